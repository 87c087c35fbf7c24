//! The report for people: one line for each program and database, and what it would cost otherwise.

use super::databases::Source;
use super::report::{Figures, OfDatabase, OfProgram, OfReader, Report};
use super::words::{
    bytes, bytes_or_none, milliseconds, per_second, percent, shortened, small, years,
};
use crate::html::grouped;
use crate::text_table::{NONE, TextTable};

/// The longest path in a table; the JSON document has it whole.
const PATH: usize = 44;

/// The text where nothing was written.
const NOTHING: &str = "no SQLite database was written to in this time";

/// The report.
pub fn render(report: &Report) -> String {
    let mut text = format!("{}\n", head(report));
    if report.databases.is_empty() {
        text.push_str(&format!("{NOTHING}\n"));
    } else {
        text.push_str(&format!("{}\n", by_program(report)));
        if report
            .databases
            .iter()
            .any(|database| database.estimate.is_some())
        {
            text.push_str(&format!("{}\n{ESTIMATED}\n", estimates(report)));
        }
    }
    text.push_str(&closing(report));
    text
}

const ESTIMATED: &str = "onewrite and direct are estimates from the counted pages; \
                         `onewrite compare` measures";

/// The sums, in a line.
pub fn head(report: &Report) -> String {
    let day = match report.traced {
        true => format!(", {} a day to devices", bytes(report.bytes_per_day())),
        false => String::new(),
    };
    format!(
        "SQLite in {:.1} s: {} written, {} commits/s{day}",
        report.seconds,
        number_of_databases(report.databases.len()),
        per_second(report.commits_per_s()),
    )
}

fn number_of_databases(number: usize) -> String {
    match number {
        1 => "1 database".to_owned(),
        _ => format!("{number} databases"),
    }
}

fn by_program(report: &Report) -> TextTable {
    let heads = [
        "program",
        "pid",
        "database",
        "mode",
        "commits\na second",
        "bytes\na commit",
        "flushes\na commit",
        "journaling\nof the fs",
        "log\nsize",
        "flush p50\nms",
        "flush p99\nms",
        "bytes\na day",
    ];
    let mut table = TextTable::new(3, heads).words(4);
    for database in &report.databases {
        for program in &database.programs {
            table.row(line(database, program));
        }
    }
    table
}

fn line(database: &OfDatabase, program: &OfProgram) -> Vec<String> {
    let figures = &program.figures;
    let mut cells = vec![
        program.name.clone(),
        of_processes(program),
        shortened(&database.path, PATH),
        database.journal_mode.clone(),
    ];
    cells.extend(cells_of(figures, database));
    cells
}

/// The process, or how many have ended.
pub fn of_processes(program: &OfProgram) -> String {
    match program.pid {
        Some(pid) => pid.to_string(),
        None => format!("{} ended", program.processes),
    }
}

/// The figures of a program or a database.
pub fn cells_of(figures: &Figures, database: &OfDatabase) -> [String; 8] {
    let mark = match database.commits_from {
        Source::Flushes => "~",
        Source::WalIndex | Source::ChangeCounter => "",
    };
    let times = figures.flush_us;
    let time = |of: fn(&super::report::Times) -> u64| {
        times
            .as_ref()
            .map_or_else(|| NONE.to_owned(), |times| milliseconds(of(times)))
    };
    [
        format!("{mark}{}", per_second(figures.commits_per_s)),
        bytes_or_none(figures.bytes_per_commit),
        small(figures.flushes_per_commit),
        percent(figures.journal_share()),
        bytes(database.log_size as f64),
        time(|times| times.p50),
        time(|times| times.p99),
        bytes_or_none(figures.bytes_per_day),
    ]
}

fn estimates(report: &Report) -> TextTable {
    let heads = [
        "database",
        "bytes a commit\nnow",
        "\nonewrite",
        "\ndirect",
        "flushes\nnow",
        "\nonewrite, direct",
        "bytes a day\nnow",
        "\nonewrite",
        "\ndirect",
    ];
    let mut table = TextTable::new(1, heads);
    for database in &report.databases {
        let Some(estimate) = &database.estimate else {
            continue;
        };
        let (figures, one, direct) = (&database.figures, &estimate.onewrite, &estimate.direct);
        table.row([
            shortened(&database.path, PATH),
            bytes_or_none(figures.bytes_per_commit),
            bytes(one.bytes_per_commit),
            bytes(direct.bytes_per_commit),
            small(figures.flushes_per_commit),
            small(Some(one.flushes_per_commit)),
            bytes_or_none(figures.bytes_per_day),
            bytes(one.bytes_per_day),
            bytes(direct.bytes_per_day),
        ]);
    }
    table
}

/// The readers that held a checkpoint up.
pub fn held(database: &OfDatabase) -> Option<String> {
    let seconds = Some(database.checkpoint_held_s).filter(|seconds| *seconds > 0)?;
    let by = |reader: &OfReader| {
        let (name, pid, behind) = (&reader.name, reader.pid, reader.frames_behind);
        format!("{name} ({pid}), {} frames behind", grouped(behind.into()))
    };
    let readers: Vec<String> = database.checkpoint_held_by.iter().map(by).collect();
    let readers = match readers.is_empty() {
        true => "a process that this user cannot see".to_owned(),
        false => readers.join("; "),
    };
    let path = shortened(&database.path, PATH);
    Some(format!(
        "the checkpoint of {path} was held up for {seconds} s, by a reader of an old state: {readers}"
    ))
}

/// How long each device would last.
fn lives(report: &Report) -> impl Iterator<Item = String> + '_ {
    report.devices.iter().filter_map(|device| {
        let (size, life) = (bytes(device.size? as f64), years(device.life_years?));
        let (name, day) = (&device.name, bytes(device.bytes_per_day));
        let times = report.full_writes;
        Some(format!(
            "{name}: {life} at {day} a day of databases, if it may be written {times} times in full (--full-writes); \
             the disk has {size}"
        ))
    })
}

/// Facts that the reader should know, in lines.
pub fn closing(report: &Report) -> String {
    let mut text = String::new();
    let is_estimated = |database: &OfDatabase| database.commits_from == Source::Flushes;
    if report.databases.iter().any(is_estimated) {
        text.push_str("~ estimated from flushes: SQLite's own count was not there all the time\n");
    }
    let held = report.databases.iter().filter_map(held);
    for line in held.chain(lives(report)) {
        text.push_str(&format!("{line}\n"));
    }
    for note in lost(report).iter().chain(&report.notes) {
        text.push_str(&format!("{note}\n"));
    }
    text
}

/// A note about events that the kernel had no room for.
pub fn lost(report: &Report) -> Option<String> {
    let lost = report.lost_events;
    (lost > 0).then(|| format!("the kernel lost {lost} events: bytes and flushes are too low"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_has_its_years() {
        let text = closing(&Report::example());
        let line = "sda1: 92 years at 11.0 GiB a day of databases, if it may be written 360 times in full \
                    (--full-writes); the disk has 1.0 TiB\n";
        assert!(text.contains(line), "{text}");
        let mut idle = Report::example();
        idle.devices[0].life_years = None;
        assert!(!closing(&idle).contains("--full-writes"));
    }

    #[test]
    fn the_first_line_has_the_sums() {
        let mut report = Report::example();
        report.traced = true;
        let two = head(&report);
        assert!(two.contains("2 databases written"), "{two}");
        report.databases.truncate(1);
        let one = head(&report);
        assert!(one.contains("1 database written"), "{one}");
        report.databases.clear();
        let none = head(&report);
        let expected = "0 databases written, 0.0 commits/s, 0 B a day to devices";
        assert!(none.ends_with(expected), "{none}");
    }
}
