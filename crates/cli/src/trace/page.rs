//! The report of `trace` as a page.

use onewrite_iotrace::summary::Summary;

use super::report::Report;
use super::table::warnings;
use super::{Traced, picture};
use crate::html::{Page, Part, Section, Table, grouped};

/// The page of a trace.
pub fn page(traced: &[Traced], report: &Report) -> Result<Page, String> {
    let what = traced.first().map_or("", |one| one.what.as_str());
    let mut page = Page::of(format!("{}: bytes written", shortened(what)), report)?;
    match traced {
        [one] => page.lead = Some(lead(one)),
        _ => page.sections.push(by_mode(traced)?),
    }
    let closings = traced.iter().flat_map(|one| warnings(one, &one.summary()));
    page.problems.extend(closings);
    page.notes
        .extend(traced.iter().flat_map(|one| one.recording.notes.clone()));
    page.notes.dedup();
    for one in traced {
        let drawn = picture::draw(std::slice::from_ref(one)).map_err(|error| error.to_string())?;
        let name = one.mode.as_deref().unwrap_or("Place, time and purpose");
        let label = format!("{name}: addresses and bytes over time, by purpose");
        let parts = vec![
            Part::Picture(drawn, label),
            Part::Table(by_kind(&one.summary())),
        ];
        let intro = "Where and when the device was written, how many bytes over time, and for which purpose.";
        page.sections.push(Section::new(name, intro, parts));
    }
    if let Some(one) = traced.first() {
        page.fact("file system", one.file_system);
        page.fact("device", one.device.clone());
    }
    Ok(page)
}

/// The longest command in a title, in characters.
const TITLE: usize = 40;

/// The beginning of a long command; all of it is under "How it was made".
fn shortened(what: &str) -> String {
    match what.char_indices().nth(TITLE) {
        Some((end, _)) => format!("{}…", what[..end].trim_end()),
        None => what.to_owned(),
    }
}

/// The result, in a sentence.
fn lead(one: &Traced) -> String {
    let summary = one.summary();
    let all = summary.total.write_bytes;
    let most = summary.by_kind.iter().max_by_key(|(_, m)| m.write_bytes);
    let most = most.filter(|(_, moved)| moved.write_bytes > 0);
    let most = most.map(|(kind, moved)| {
        let share = moved.write_bytes as f64 * 100.0 / all.max(1) as f64;
        format!(", {share:.0} % of it {}", kind.label())
    });
    format!(
        "{:.1} KiB in {} writes, and {} flushes of the device's cache{}.",
        all as f64 / 1024.0,
        grouped(summary.total.writes),
        grouped(summary.flushes),
        most.unwrap_or_default()
    )
}

/// All modes side by side: the bytes of each, and the number of flushes.
fn by_mode(traced: &[Traced]) -> Result<Section, String> {
    let volume = picture::volume(traced).map_err(|error| error.to_string())?;
    let mut table = Table::new(["mode", "written, KiB", "writes", "flushes"]);
    for one in traced {
        let (summary, per) = (one.summary(), one.per.unwrap_or(1).max(1) as f64);
        let places = usize::from(one.per.is_some()) * 2;
        let of = |count: u64| format!("{:.places$}", count as f64 / per);
        table.rows.push(vec![
            one.mode.clone().unwrap_or_default(),
            format!("{:.1}", summary.total.write_bytes as f64 / 1024.0 / per),
            of(summary.total.writes),
            of(summary.flushes),
        ]);
    }
    let label = "bytes written in each mode, by purpose".to_owned();
    let parts = vec![Part::Picture(volume, label), Part::Table(table)];
    let each = match traced.first().and_then(|one| one.per) {
        Some(count) => format!(" Figures are those of one of {count}."),
        None => String::new(),
    };
    let intro = format!("The device's work in each journal mode.{each}");
    Ok(Section::new("By journal mode", intro, parts))
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
