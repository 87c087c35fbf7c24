//! The report for people: a table of databases, then each finding once.

use std::collections::BTreeMap;

use super::report::{OfDatabase, OfProgram, Report};
use crate::doctor::hazards::Hazard;
use crate::text_table::{NONE, TextTable};
use crate::top::words::{bytes, shortened};

/// The longest path in the table.
const PATH: usize = 60;

/// The report.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    if report.databases.is_empty() {
        text.push_str("no SQLite database was found\n");
    } else {
        text.push_str(&format!("{}\n", table(report)));
        text.push_str(&findings(report));
    }
    if report.unread_directories > 0 {
        let unread = report.unread_directories;
        text.push_str(&format!("{unread} directories could not be read\n"));
    }
    for note in &report.notes {
        text.push_str(&format!("{note}\n"));
    }
    text
}

fn table(report: &Report) -> TextTable {
    let heads = [
        "database",
        "journal_mode",
        "file system",
        "programs",
        "SQLite",
        "size",
        "page",
        "log",
        "findings",
    ];
    let mut table = TextTable::new(1, heads).words(5);
    for database in &report.databases {
        table.row([
            shortened(&database.path, PATH),
            database.journal_mode.clone(),
            database.file_system.clone(),
            programs(database),
            versions(database),
            bytes(database.size as f64),
            database.page_size.to_string(),
            bytes(database.log_size as f64),
            database.findings.len().to_string(),
        ]);
    }
    table
}

fn programs(database: &OfDatabase) -> String {
    let name = |program: &OfProgram| format!("{} ({})", program.name, program.pid);
    let names: Vec<String> = database.programs.iter().map(name).collect();
    match names.is_empty() {
        true => NONE.to_owned(),
        false => names.join(", "),
    }
}

fn versions(database: &OfDatabase) -> String {
    let linked = database.programs.iter().flat_map(|program| &program.sqlite);
    let mut versions: Vec<&str> = linked.filter_map(|l| l.version.as_deref()).collect();
    versions.sort_unstable();
    versions.dedup();
    match versions.is_empty() {
        true => NONE.to_owned(),
        false => versions.join(", "),
    }
}

/// Each finding once, with the databases that have it.
fn findings(report: &Report) -> String {
    let mut all: BTreeMap<&Hazard, Vec<&str>> = BTreeMap::new();
    for database in &report.databases {
        for hazard in &database.findings {
            all.entry(hazard).or_default().push(&database.path);
        }
    }
    if all.is_empty() {
        return "no setting was found that loses commits\n".to_owned();
    }
    let mut text = String::new();
    for (hazard, paths) in all {
        let of = match paths.as_slice() {
            [one] => (*one).to_owned(),
            [first, others @ ..] => format!("{first} and {} more", others.len()),
            [] => String::new(),
        };
        text.push_str(&format!(
            "- {}\n    databases: {of}\n    better: {}\n",
            hazard.what, hazard.fix
        ));
    }
    text
}
