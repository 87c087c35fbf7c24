//! The report for people.

use super::paired::Interval;
use super::ratios::Ratios;
use super::report::{Raw, Report, Run};
use crate::text_table::{NONE, TextTable};
use onewrite_iotrace::device::described;

/// The table, the raw rates under it, and the notes.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    if let Some(first) = report.runs.first() {
        text.push_str(&title(first));
        text.push_str(&format!("\n{}\n", table(report)));
    }
    if let Some(ratios) = &report.ratios {
        text.push_str(&rounds(ratios));
    }
    if let Some(latencies) = latencies(&report.runs) {
        text.push_str(&format!("{latencies}\n"));
    }
    if let Some(flash) = flash(&report.runs) {
        text.push_str(&flash);
        text.push_str(&flash_latencies(&report.runs));
    }
    if let Some(kinds) = kinds(&report.runs) {
        text.push_str(&format!("{kinds}\n"));
    }
    if let Some(state) = report.runs.iter().find_map(|run| state(run, &report.runs)) {
        text.push_str(&state);
    }
    text.push_str(&raw(&report.raw));
    text.push_str(&format!(
        "\n{}{}, Linux {}, SQLite {} ({})\n",
        report.filesystem,
        on_device(report),
        report.kernel,
        report.sqlite,
        report.sqlite_sync
    ));
    for note in &report.notes {
        text.push_str(&format!("{note}\n"));
    }
    if let Some(kib) = report.peak_rss_kib {
        text.push_str(&format!(
            "memory of this command: {} MiB at most\n",
            kib >> 10
        ));
    }
    text
}

fn on_device(report: &Report) -> String {
    if let Some(flash) = &report.flash_model {
        return format!(" on flash ({}: {})", flash.name, flash.description());
    }
    match (&report.device, &report.device_model) {
        (_, Some(model)) => format!(
            " on a device of the model {} ({})",
            model.name, model.description
        ),
        (Some(device), None) => format!(" on {}", described(device)),
        (None, None) => String::new(),
    }
}

pub(super) fn title(run: &Run) -> String {
    let mut title = format!("{} x {}", run.count, run.op.name());
    if let Some(record_size) = run.record_size {
        title.push_str(&format!(", {record_size}-byte rows"));
    }
    let several = [
        (run.threads, "threads"),
        (run.processes, "processes"),
        (run.warehouses.unwrap_or(1), "warehouses"),
    ];
    for (number, what) in several {
        if number > 1 {
            title.push_str(&format!(", {number} {what}"));
        }
    }
    if run.readers > 0 {
        title.push_str(&format!(", {} readers", run.readers));
    }
    title
}

/// The rounds behind the column `times` and its interval.
fn rounds(ratios: &Ratios) -> String {
    let rounds = ratios.modes.iter().map(|mode| mode.rounds);
    let text = format!(
        "times {}: from {} paired rounds, with the {:.0} % interval\n",
        ratios.base,
        rounds.max().unwrap_or(0),
        ratios.confidence * 100.0
    );
    let warning = ratios.warning.iter().map(|warning| format!("{warning}\n"));
    text + &warning.collect::<String>()
}

/// A ratio's interval as people read it.
pub(super) fn interval(interval: &Interval) -> String {
    or_none(interval.bounds(), |(low, high)| {
        format!("{low:.2} to {high:.2}")
    })
}

fn table(report: &Report) -> TextTable {
    let heads = [
        "mode",
        "sync",
        "ops/s",
        "times\nwal",
        "interval\nof it",
        "p50\nus",
        "p99\nus",
        "device\nKiB/op",
        "writes\n/op",
        "flushes\n/op",
        "fs journal\nKiB/op",
        "lazily\nafter MiB",
        "checkpoint\nMiB",
    ];
    let mut table = TextTable::new(1, heads).words(2);
    for run in medians(&report.runs) {
        table.row(row(run, report.ratios.as_ref()));
    }
    table
}

/// The rare long latencies of each mode, for runs with the same load.
fn latencies(runs: &[Run]) -> Option<TextTable> {
    let heads = ["mode", "p50\nus", "p99\nus", "p99.9\nus", "longest\nus"];
    let mut table = TextTable::new(1, heads);
    for run in medians(runs).into_iter().filter(|run| run.rate.is_some()) {
        let us = run.latency_us;
        let cells = [us.p50, us.p99, us.p999, us.max].map(|us| us.to_string());
        table.row(std::iter::once(run.mode.clone()).chain(cells));
    }
    (!table.is_empty()).then_some(table)
}

/// The flash's work for each mode, and its life.
fn flash(runs: &[Run]) -> Option<String> {
    let rate = runs.iter().find_map(|run| run.flash)?.life_rate;
    let heads = [
        "mode",
        "host\npages/op",
        "map\npages/op",
        "moved\npages/op",
        "programs\n/op",
        "amplifi-\ncation",
        "erases\n/1000 op",
        "years\nof life",
    ];
    let mut table = TextTable::new(1, heads);
    for run in medians(runs) {
        let Some(cost) = &run.flash else { continue };
        let (s, count) = (&cost.statistics, f64::from(run.count.max(1)));
        let each = |pages: u64| format!("{:.2}", pages as f64 / count);
        table.row([
            run.mode.clone(),
            each(s.host_writes),
            each(s.map_writes + s.table_writes + s.root_writes + s.padding_writes),
            each(s.gc_copies + s.wear_copies + s.scrub_copies + s.failed_copies),
            format!("{:.2}", cost.programs_per_op),
            or_none(cost.write_amplification, |times| format!("{times:.2}")),
            format!("{:.1}", cost.nand.erases as f64 * 1000.0 / count),
            or_none(cost.life_years, |years| format!("{years:.2}")),
        ]);
    }
    Some(format!(
        "{table}\nflash: with the checkpoint; years at {rate} transaction{} a second, if wear is level\n",
        if rate == 1 { "" } else { "s" }
    ))
}

/// How long the flash took for each kind of request.
fn flash_latencies(runs: &[Run]) -> String {
    let heads = [
        "mode",
        "request",
        "number",
        "p50\nus",
        "p99\nus",
        "p99.9\nus",
        "max\nus",
    ];
    let mut table = TextTable::new(2, heads);
    for run in medians(runs) {
        let Some(cost) = &run.flash else { continue };
        for (name, us) in cost.latency_us.named() {
            let Some(us) = us else { continue };
            let mut cells = vec![run.mode.clone(), name.to_owned(), us.requests.to_string()];
            cells.extend([us.p50, us.p99, us.p999, us.max].map(|us| format!("{us:.1}")));
            table.row(cells);
        }
    }
    format!("{table}\nflash: latencies of its requests, in its own time\n")
}

/// The kinds of transactions of each mode, for an op that has several.
fn kinds(runs: &[Run]) -> Option<TextTable> {
    let heads = [
        "mode",
        "kind",
        "count",
        "in a\nsecond",
        "p50\nus",
        "p99\nus",
        "longest\nus",
    ];
    let mut table = TextTable::new(2, heads);
    for run in medians(runs) {
        let all = (run.readers > 0).then_some((
            "write",
            u64::from(run.count),
            run.ops_per_s,
            run.latency_us,
        ));
        let each = run.kinds.iter();
        let each = each.map(|kind| (kind.kind.as_str(), kind.count, kind.per_s, kind.latency_us));
        for (kind, count, per_s, latency) in all.into_iter().chain(each) {
            table.row([
                run.mode.clone(),
                kind.to_owned(),
                count.to_string(),
                format!("{per_s:.0}"),
                latency.p50.to_string(),
                latency.p99.to_string(),
                latency.max.to_string(),
            ]);
        }
    }
    (!table.is_empty()).then_some(table)
}

/// The state at the beginning of runs with a warm-up, if this is the first of them.
fn state(run: &Run, runs: &[Run]) -> Option<String> {
    (run.state.warm_up > 0).then_some(())?;
    let mut text = format!("after a warm-up of {} transactions\n", run.state.warm_up);
    for run in medians(runs) {
        let state = run.state;
        let log = or_none(state.log_kib_before, |kib| format!("{kib} KiB"));
        let after = or_none(state.log_kib_after, |kib| format!("{kib} KiB"));
        text.push_str(&format!(
            "  {}: database {} KiB, cache {} KiB, log {log}, at the end {after}\n",
            run.mode, state.database_kib, state.cache_kib
        ));
    }
    Some(text)
}

/// The base of the comparison: plain `wal` if it was run, else its first variation.
pub(super) fn base<'a>(runs: &[&'a Run]) -> Option<&'a Run> {
    runs.iter()
        .filter(|run| run.journal_mode == "wal")
        .min_by_key(|run| run.mode != "wal")
        .copied()
}

/// The repetition of each mode with the median rate; modes in the order given.
pub(super) fn medians(runs: &[Run]) -> Vec<&Run> {
    let mut modes: Vec<&str> = Vec::new();
    for run in runs {
        if !modes.contains(&run.mode.as_str()) {
            modes.push(&run.mode);
        }
    }
    let median = |mode: &&str| {
        let mut of_mode: Vec<&Run> = runs.iter().filter(|run| run.mode == *mode).collect();
        of_mode.sort_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s));
        onewrite_common::middle(&of_mode).copied()
    };
    modes.iter().filter_map(median).collect()
}

fn row(run: &Run, ratios: Option<&Ratios>) -> [String; 13] {
    let rate = ratios
        .and_then(|ratios| ratios.find(&run.mode))
        .map(|mode| mode.rate);
    let is_base = ratios.is_some_and(|ratios| ratios.base == run.mode) || run.mode == "wal";
    let times = is_base.then_some(1.0).or(rate.map(|rate| rate.ratio));
    let per_op = run.per_op.as_ref();
    let journal = run
        .by_file
        .map(|by| by.fs_journal_bytes as f64 / f64::from(run.count.max(1)));
    [
        run.mode.clone(),
        run.synchronous.to_owned(),
        format!("{:.0}", run.ops_per_s),
        or_none(times, |times| format!("{times:.2}")),
        or_none(rate, |rate| interval(&rate)),
        run.latency_us.p50.to_string(),
        run.latency_us.p99.to_string(),
        or_none(per_op, |per_op| kib(per_op.write_bytes)),
        or_none(per_op.and_then(|per_op| per_op.writes), |writes| {
            format!("{writes:.2}")
        }),
        or_none(per_op, |per_op| format!("{:.2}", per_op.flushes)),
        or_none(journal, kib),
        or_none(run.after.write_bytes, mib),
        or_none(run.checkpoint.write_bytes, mib),
    ]
}

fn kib(bytes: f64) -> String {
    format!("{:.1}", bytes / 1024.0)
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1_048_576.0)
}

fn or_none<T>(figure: Option<T>, show: impl FnOnce(T) -> String) -> String {
    figure.map_or_else(|| NONE.to_owned(), show)
}

fn raw(raw: &Raw) -> String {
    let rate = |name: &str, median: Option<f64>, min: Option<f64>, max: Option<f64>| match (
        median, min, max,
    ) {
        (Some(median), Some(min), Some(max)) => {
            format!("  {name:<42} {median:>8.0}/s  ({min:.0} to {max:.0})\n")
        }
        _ => format!("  {name:<42} {NONE:>8}\n"),
    };
    let mut text = format!("raw rates, median of {} measurements\n", raw.samples);
    text.push_str(&rate(
        "4 KiB overwrite, direct and durable",
        raw.direct_dsync_4k_per_s,
        raw.min.direct_dsync_4k_per_s,
        raw.max.direct_dsync_4k_per_s,
    ));
    text.push_str(&rate(
        "4 KiB overwrite, direct, not durable",
        raw.direct_4k_per_s,
        raw.min.direct_4k_per_s,
        raw.max.direct_4k_per_s,
    ));
    text.push_str(&rate(
        "4,120-byte append and fdatasync",
        raw.append_fdatasync_per_s,
        raw.min.append_fdatasync_per_s,
        raw.max.append_fdatasync_per_s,
    ));
    text
}
