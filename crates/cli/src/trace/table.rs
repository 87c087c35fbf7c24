//! The report for people.

use onewrite_iotrace::io::{Kind, Op};
use onewrite_iotrace::percentiles::Percentiles;
use onewrite_iotrace::summary::{Moved, Summary};

use super::Traced;
use super::report::processes;
use crate::text_table::{NONE, TextTable};

/// The number of listed files and processes; the JSON document has all.
const LISTED: usize = 20;

/// The tables of a trace; for several traces one line each, by mode.
pub fn render(traced: &[Traced]) -> String {
    if let [one] = traced {
        return render_one(one);
    }
    let mut text = by_mode(traced);
    // Other facts about each mode are in --json; problems are shown here.
    let closings = traced.iter().map(|one| (one, closing(one, &one.summary())));
    for (one, closing) in closings.filter(|(one, _)| !is_whole(one)) {
        let mode = one.mode.as_deref().unwrap_or_default();
        text.push_str(&format!("{mode}: {closing}"));
    }
    if traced.iter().all(is_whole) {
        text.push_str(EXACT);
    }
    text
}

/// The last line of a trace without problems.
const EXACT: &str = "exact: bytes, requests and flushes are those that the device counted\n";

fn is_whole(traced: &Traced) -> bool {
    let recording = &traced.recording;
    traced.summary().is_exact() && recording.lost == 0 && recording.notes.is_empty()
}

fn render_one(traced: &Traced) -> String {
    let summary = traced.summary();
    let mode = traced.mode.iter().map(|mode| format!("{mode}: "));
    let mut text = mode.collect::<String>();
    text.push_str(&format!(
        "{}, {} s on {} ({})\n",
        traced.what,
        decimals(summary.elapsed_ns as f64 / 1e9, 3),
        traced.file_system,
        traced.device
    ));
    text.push_str(&format!("{}\n", by_kind(traced, &summary)));
    let lists = [by_file(traced, &summary), by_process(traced, &summary)];
    for list in lists.into_iter().flatten() {
        text.push_str(&format!("{list}\n"));
    }
    let times = [latency(&summary), stages(&summary), seeks(&summary)];
    for table in times.into_iter().flatten() {
        text.push_str(&format!("{table}\n"));
    }
    text.push_str(&closing(traced, &summary));
    text
}

/// One line for each mode: bytes by kind, writes and flushes.
fn by_mode(traced: &[Traced]) -> String {
    let summaries: Vec<Summary> = traced.iter().map(Traced::summary).collect();
    let bytes_of = |summary: &Summary, kind: Kind| {
        let found = summary.by_kind.iter().find(|(other, _)| *other == kind);
        found.map_or(0, |(_, moved)| moved.write_bytes)
    };
    let kinds: Vec<Kind> = Kind::ALL
        .into_iter()
        .filter(|kind| summaries.iter().any(|summary| bytes_of(summary, *kind) > 0))
        .collect();
    let labels = kinds
        .iter()
        .map(|kind| format!("{}\nKiB", kind.label().replace(' ', "\n")));
    let labels: Vec<String> = labels.collect();
    let mut header = vec!["mode"];
    header.extend(labels.iter().map(String::as_str));
    header.extend(["all\nKiB", "writes", "flushes"]);
    let mut table = TextTable::new(1, header);
    for (one, summary) in traced.iter().zip(&summaries) {
        let per = one.per.unwrap_or(1).max(1) as f64;
        let mut row = vec![one.mode.clone().unwrap_or_default()];
        let bytes = kinds.iter().map(|kind| bytes_of(summary, *kind));
        row.extend(
            bytes
                .chain([summary.total.write_bytes])
                .map(|bytes| decimals(bytes as f64 / 1024.0 / per, 1)),
        );
        let places = usize::from(one.per.is_some()) * 2;
        row.extend(
            [summary.total.writes, summary.flushes]
                .map(|count| decimals(count as f64 / per, places)),
        );
        table.row(row);
    }
    let what = traced.first().map_or("", |one| one.what.as_str());
    let each = match traced.first().and_then(|one| one.per) {
        Some(count) => format!("; figures are those of one of {count}"),
        None => String::new(),
    };
    format!("{what}, by journal mode{each}\n{table}\n")
}

fn by_kind(traced: &Traced, summary: &Summary) -> TextTable {
    let mut header = vec![
        "what",
        "writes",
        "written\nKiB",
        "%",
        "FUA",
        "reads",
        "read\nKiB",
    ];
    if traced.per.is_some() {
        header.extend(["writes\neach", "KiB\neach"]);
    }
    let mut table = TextTable::new(1, header);
    let total = summary.total;
    let shown = summary
        .by_kind
        .iter()
        .filter(|(_, moved)| !moved.is_nothing());
    let rows = shown.map(|(kind, moved)| (kind.label(), *moved));
    for (name, moved) in rows.chain([("all", total)]) {
        let share = moved.write_bytes as f64 * 100.0 / total.write_bytes.max(1) as f64;
        let mut row = vec![
            name.to_owned(),
            grouped(moved.writes),
            kib(moved.write_bytes),
            decimals(share, 1),
            grouped(moved.fua),
            grouped(moved.reads),
            kib(moved.read_bytes),
        ];
        if let Some(count) = traced.per {
            let per = |figure: u64, places| decimals(figure as f64 / count.max(1) as f64, places);
            row.push(per(moved.writes, 2));
            row.push(decimals(
                moved.write_bytes as f64 / 1024.0 / count.max(1) as f64,
                1,
            ));
        }
        table.row(row);
    }
    table
}

/// A table of the first of a list, unless it is empty.
fn listed<'a>(
    header: &[&str],
    rows: impl ExactSizeIterator<Item = (Vec<String>, &'a Moved)>,
) -> Option<TextTable> {
    let all = rows.len();
    let mut table = TextTable::new(1, header.to_vec());
    for (mut row, moved) in rows.take(LISTED) {
        row.extend([
            grouped(moved.writes),
            kib(moved.write_bytes),
            grouped(moved.reads),
            kib(moved.read_bytes),
        ]);
        table.row(row);
    }
    if all > LISTED {
        table.row(vec![format!("... and {} more, in --json", all - LISTED)]);
    }
    (all > 0).then_some(table)
}

fn by_file(traced: &Traced, summary: &Summary) -> Option<TextTable> {
    let header = [
        "file",
        "what",
        "writes",
        "written\nKiB",
        "reads",
        "read\nKiB",
    ];
    let rows = summary.by_file.iter().map(|(file, moved)| {
        let kind = traced
            .recording
            .files
            .get(file.0 as usize)
            .map(|file| file.kind);
        let label = kind.unwrap_or(Kind::Unknown).label().to_owned();
        (vec![traced.path(*file).to_owned(), label], moved)
    });
    listed(&header, rows)
}

fn by_process(traced: &Traced, summary: &Summary) -> Option<TextTable> {
    let header = [
        "process",
        "pid",
        "writes",
        "written\nKiB",
        "reads",
        "read\nKiB",
    ];
    let processes = processes(traced, summary);
    let rows = processes.iter().map(|process| {
        let name = process.name.clone();
        let name = name.unwrap_or_else(|| "(before the trace began)".to_owned());
        let pid = process.pid.map_or(String::new(), |pid| pid.to_string());
        (vec![name, pid], &process.moved)
    });
    listed(&header, rows)
}

fn latency(summary: &Summary) -> Option<TextTable> {
    let header = [
        "from issue to completion",
        "count",
        "p50 us",
        "p90 us",
        "p99 us",
        "max us",
    ];
    let mut table = TextTable::new(1, header);
    let mut add = |name: String, took: &Percentiles| {
        let figures = [took.p50, took.p90, took.p99, took.max];
        let mut row = vec![name, grouped(took.count)];
        row.extend(figures.map(|ns| decimals(ns as f64 / 1e3, 0)));
        table.row(row);
    };
    for (op, took) in &summary.times.latency {
        add(label(*op).to_owned(), took);
        if *op == Op::Write && summary.times.write_latency.len() > 1 {
            for (kind, took) in &summary.times.write_latency {
                add(format!("  {}", kind.label()), took);
            }
        }
    }
    (!summary.times.latency.is_empty()).then_some(table)
}

pub(super) fn label(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Discard => "discard",
        Op::Flush => "flush",
        Op::FlushRequest => "wait for a flush without data",
    }
}

/// Where the time of requests went: before the driver, in the device, and both.
fn stages(summary: &Summary) -> Option<TextTable> {
    let header = [
        "where time went",
        "queue to\ndriver\np50 us",
        "\n\np99 us",
        "driver to\ncompletion\np50 us",
        "\n\np99 us",
        "queue to\ncompletion\np50 us",
        "\n\np99 us",
    ];
    let mut table = TextTable::new(1, header);
    for (op, stages) in &summary.times.stages {
        let mut row = vec![label(*op).to_owned()];
        for took in [stages.queue, stages.device, stages.whole] {
            let us = |of: fn(Percentiles) -> u64| match took {
                Some(took) => decimals(of(took) as f64 / 1e3, 0),
                None => NONE.to_owned(),
            };
            row.extend([us(|took| took.p50), us(|took| took.p99)]);
        }
        table.row(row);
    }
    (!table.is_empty()).then_some(table)
}

/// How far the device jumps from one request to the next.
fn seeks(summary: &Summary) -> Option<TextTable> {
    let header = [
        "seeks to",
        "requests",
        "sequential\n%",
        "p50\nKiB",
        "p90\nKiB",
        "max\nKiB",
    ];
    let mut table = TextTable::new(1, header);
    for (op, seeks) in &summary.seeks {
        let share = seeks.sequential as f64 * 100.0 / seeks.requests.max(1) as f64;
        let mut row = vec![
            label(*op).to_owned(),
            grouped(seeks.requests),
            decimals(share, 1),
        ];
        row.extend(match seeks.distance {
            Some(of) => [of.p50, of.p90, of.max].map(kib),
            None => [(); 3].map(|()| NONE.to_owned()),
        });
        table.row(row);
    }
    (!table.is_empty()).then_some(table)
}

/// The problems of a trace: failed requests, sums that differ from the device's, lost events.
pub(super) fn warnings(traced: &Traced, summary: &Summary) -> Vec<String> {
    let mut all = Vec::new();
    if summary.failed > 0 {
        all.push(format!("{} requests FAILED", grouped(summary.failed)));
    }
    let wrong = summary.checks.iter();
    for check in wrong.filter(|check| check.traced != check.counted) {
        all.push(format!(
            "NOT EXACT: {} is {} in the trace, but the device counted {}",
            check.what,
            grouped(check.traced),
            grouped(check.counted)
        ));
    }
    if traced.recording.lost > 0 {
        all.push(format!(
            "NOT EXACT: the kernel lost {} events of the trace",
            grouped(traced.recording.lost)
        ));
    }
    all
}

/// Flushes and discards, the comparison with the counters, and notes for the reader.
fn closing(traced: &Traced, summary: &Summary) -> String {
    let total = summary.total;
    let mut text = format!(
        "{} flushes of the device's cache ({} waited for without data), {} writes with FUA",
        grouped(summary.flushes),
        grouped(total.flush_requests),
        grouped(total.fua)
    );
    if let Some(count) = traced.per {
        let each = summary.flushes as f64 / count.max(1) as f64;
        text.push_str(&format!("; {} flushes each", decimals(each, 2)));
    }
    if total.discards > 0 {
        let (discards, bytes) = (grouped(total.discards), kib(total.discard_bytes));
        text.push_str(&format!("; {discards} discards of {bytes} KiB"));
    }
    text.push('\n');
    for warning in warnings(traced, summary) {
        text.push_str(&format!("{warning}\n"));
    }
    if summary.is_exact() && traced.recording.lost == 0 {
        text.push_str(EXACT);
    }
    for note in &traced.recording.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

pub(super) fn kib(bytes: u64) -> String {
    decimals(bytes as f64 / 1024.0, 1)
}

pub(super) fn grouped(figure: u64) -> String {
    decimals(figure as f64, 0)
}

/// A number with commas between thousands.
pub(super) fn decimals(figure: f64, places: usize) -> String {
    let text = format!("{figure:.places$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{grouped}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_commas() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(decimals(999.95, 1), "1,000.0");
        assert_eq!(decimals(123.0, 2), "123.00");
    }
}
