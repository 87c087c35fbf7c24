//! The report of `trace` as a page.

use onewrite_iotrace::summary::Summary;

use super::report::Report;
use super::{Traced, picture};
use crate::html::{Page, Part, Section, Table, grouped};

/// The page of what was traced.
pub fn page(traced: &[Traced], report: &Report) -> Result<Page, String> {
    let what = traced.first().map_or("", |one| one.what.as_str());
    let mut page = Page::of(format!("{what}: what was written"), report)?;
    for one in traced {
        let drawn = picture::draw(std::slice::from_ref(one)).map_err(|error| error.to_string())?;
        let name = one.mode.clone().unwrap_or_else(|| one.what.clone());
        let label = format!("{name}: addresses and bytes over time, by what they are for");
        let parts = vec![
            Part::Picture(drawn, label),
            Part::Table(by_kind(&one.summary())),
        ];
        let intro =
            "Where and when the device was written, how much of it over time, and what it was for.";
        page.sections.push(Section::new(&name, intro, parts));
    }
    if let Some(one) = traced.first() {
        page.fact("file system", one.file_system);
        page.fact("device", one.device.clone());
    }
    Ok(page)
}

fn by_kind(summary: &Summary) -> Table {
    let mut table = Table::new([
        "what",
        "writes",
        "written, KiB",
        "share, %",
        "FUA",
        "reads",
        "read, KiB",
    ]);
    let all = summary.total;
    let shown = summary.by_kind.iter();
    let shown = shown.filter(|(_, moved)| !moved.is_nothing());
    let rows = shown.map(|(kind, moved)| (kind.label(), *moved));
    for (name, moved) in rows.chain([("all", all)]) {
        let share = moved.write_bytes as f64 * 100.0 / all.write_bytes.max(1) as f64;
        table.rows.push(vec![
            name.to_owned(),
            grouped(moved.writes),
            format!("{:.1}", moved.write_bytes as f64 / 1024.0),
            format!("{share:.1}"),
            grouped(moved.fua),
            grouped(moved.reads),
            format!("{:.1}", moved.read_bytes as f64 / 1024.0),
        ]);
    }
    table
}
