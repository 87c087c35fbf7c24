//! The report of `compare` and `bench` as a page.

use onewrite_iotrace::meter::ByFile;
use onewrite_plot::{Arrangement, Axis, BarSeries, Bars, Color, Unit, colors};

use super::paired::Interval;
use super::ratios::Ratios;
use super::report::{RawRates, Report, Run};
use super::table::{base, medians};
use crate::html::{Bar, Page, Part, Section, Table, grouped, rate};

/// A figure that was not measured.
const NONE: &str = "–";

/// The page of a report.
pub fn page(report: &Report) -> Result<Page, String> {
    let title = match report.runs.first() {
        Some(run) => super::table::title(run),
        None => "no mode could be run".to_owned(),
    };
    let mut page = Page::of(title, report)?;
    let runs = medians(&report.runs);
    page.lead = lead(report, &runs);
    problems(&mut page, report);
    if !runs.is_empty() {
        page.sections.push(rates(report, &runs));
        page.sections.extend(report.ratios.as_ref().map(ratios));
        page.sections.extend(device(&runs)?);
        page.sections.push(latencies(&runs)?);
        page.sections.extend(kinds(&runs));
        page.sections.extend(state(&runs));
    }
    if report.runs.len() > runs.len() {
        page.sections.push(repetitions(&report.runs));
    }
    page.sections.push(raw(report));
    page.notes = report.notes.clone();
    facts(&mut page, report);
    Ok(page)
}

fn problems(page: &mut Page, report: &Report) {
    for failed in &report.failed {
        page.problems
            .push(format!("{}: {}", failed.mode, failed.error));
    }
    for run in &report.runs {
        if let Some(problem) = run.checked.problem() {
            let text = format!("{}: the database is wrong: {problem}", run.mode);
            page.problems.push(text);
        }
    }
}

/// The fastest mode compared with the base mode.
fn lead(report: &Report, runs: &[&Run]) -> Option<String> {
    let noisy = report
        .ratios
        .as_ref()
        .filter(|ratios| ratios.is_too_noisy());
    if let Some(warning) = noisy.and_then(|ratios| ratios.warning.as_ref()) {
        return Some(format!("Not decided: {warning}."));
    }
    let base = base(runs)?;
    let fastest = |a: &&&Run, b: &&&Run| a.ops_per_s.total_cmp(&b.ops_per_s);
    let first = runs.iter().max_by(fastest)?;
    let said = |run: &Run| {
        let per_op = run.per_op?;
        Some(format!(
            "{} KiB, {} writes and {} flushes",
            kib(per_op.write_bytes),
            or_none(per_op.writes, |writes| format!("{writes:.2}")),
            format_args!("{:.2}", per_op.flushes)
        ))
    };
    if first.mode == base.mode {
        return Some(format!(
            "{} was the fastest of {} modes in this run, with {} transactions a second.",
            first.mode,
            runs.len(),
            rate(first.ops_per_s)
        ));
    }
    let cost = match (said(first), said(base)) {
        (Some(first), Some(its)) => {
            format!(
                " A transaction costs the device {first}; under {} {its}.",
                base.mode
            )
        }
        _ => String::new(),
    };
    Some(format!(
        "{} was the fastest of {} modes in this run: {} transactions a second, {:.2} times the rate of {}.{cost}",
        first.mode,
        runs.len(),
        rate(first.ops_per_s),
        times(report, first, base),
        base.mode
    ))
}

/// The ratio of two rates: of the paired rounds, where there are some.
fn times(report: &Report, run: &Run, base: &Run) -> f64 {
    let paired = report.ratios.as_ref().and_then(|all| all.find(&run.mode));
    paired.map_or(run.ops_per_s / base.ops_per_s, |mode| mode.rate.ratio)
}

/// The ratios of the paired rounds.
fn ratios(ratios: &Ratios) -> Section {
    let mut table = Table::new([
        "mode",
        "rounds",
        "rate",
        "interval",
        "in words",
        "CPU",
        "interval of it",
        "p99",
        "its interval",
        "bytes",
    ]);
    let figure = |interval: Option<Interval>| or_none(interval, |one| format!("{:.2}", one.ratio));
    let bounds = |interval: Option<Interval>| {
        let bounds = interval.and_then(|interval| interval.bounds());
        or_none(bounds, |(low, high)| format!("{low:.2} to {high:.2}"))
    };
    for mode in &ratios.modes {
        table.rows.push(vec![
            mode.mode.clone(),
            mode.rounds.to_string(),
            figure(Some(mode.rate)),
            bounds(Some(mode.rate)),
            mode.verdict.words().to_owned(),
            figure(mode.cpu),
            bounds(mode.cpu),
            figure(mode.p99),
            bounds(mode.p99),
            or_none(mode.write_bytes, |times| format!("{times:.2}")),
        ]);
    }
    let intro = format!(
        "Times {}, from paired rounds: each compares two runs that followed each other. An interval holds the \
         true ratio in {:.0} of 100 comparisons. Bytes are counts, and need none.",
        ratios.base,
        ratios.confidence * 100.0
    );
    let heading = format!("Compared with {}", ratios.base);
    Section::new(&heading, intro, vec![Part::Table(table)])
}

fn rates(report: &Report, runs: &[&Run]) -> Section {
    let base = base(runs);
    let bars = runs.iter().map(|run| {
        let times = base.map_or_else(String::new, |base| {
            format!(" · {:.2} ×", times(report, run, base))
        });
        Bar {
            name: run.mode.clone(),
            value: run.ops_per_s,
            text: format!("{}/s{times}", rate(run.ops_per_s)),
            is_base: base.is_some_and(|base| base.mode == run.mode),
        }
    });
    let compared = base.map_or_else(String::new, |base| {
        format!("; × is times the rate of {}", base.mode)
    });
    Section::new(
        "Transactions a second",
        format!("From the beginning of the first transaction to the end of the last{compared}."),
        vec![Part::Bars(bars.collect())],
    )
}

/// A kind of file: its name, its color, and its bytes.
type File = (&'static str, Color, fn(&ByFile) -> u64);

const FILES: [File; 5] = [
    ("log or journal", colors::LOG, |by| by.log_bytes),
    ("database", colors::DATABASE, |by| by.database_bytes),
    ("fs journal", colors::FS_JOURNAL, |by| by.fs_journal_bytes),
    ("fs metadata", colors::FS_METADATA, |by| {
        by.fs_metadata_bytes
    }),
    ("other", colors::OTHER, |by| by.other_bytes),
];

/// The device's work, if no other process used the device.
fn device(runs: &[&Run]) -> Result<Option<Section>, String> {
    if runs.iter().all(|run| run.device.is_none()) {
        return Ok(None);
    }
    let mut parts = Vec::new();
    if runs.iter().any(|run| run.by_file.is_some()) {
        let each = runs.iter().map(|run| Volume {
            mode: run.mode.clone(),
            bytes: run.by_file,
            count: u64::from(run.count),
        });
        parts.push(volumes("a transaction", &each.collect::<Vec<_>>())?);
    }
    parts.push(Part::Table(device_table(runs)));
    let intro = "The device's work while the transactions ran, divided by their number. Then the bytes that the \
                 file system wrote later, a full checkpoint after the run, and the set-up before it.";
    Ok(Some(Section::new("Cost for the device", intro, parts)))
}

/// The bytes written under a mode, and the number of transactions.
pub(crate) struct Volume {
    pub mode: String,
    pub bytes: Option<ByFile>,
    pub count: u64,
}

/// The bytes of `what` under each mode as bars, stacked by purpose.
pub(crate) fn volumes(what: &str, each: &[Volume]) -> Result<Part, String> {
    let series = FILES.map(|(name, color, bytes)| {
        let of = |volume: &Volume| {
            let bytes = volume.bytes.as_ref().map(bytes)?;
            Some(bytes as f64 / volume.count.max(1) as f64)
        };
        BarSeries {
            name: name.to_owned(),
            color,
            values: each.iter().map(of).collect(),
        }
    });
    let bars = Bars {
        title: format!("Bytes written to the device for {what}"),
        subtitle: None,
        categories: each.iter().map(|volume| volume.mode.clone()).collect(),
        axis: Axis::new("written", Unit::Bytes),
        arrangement: Arrangement::Stacked,
        series: series.to_vec(),
    };
    let label = format!("bars: bytes for {what} under each mode, by purpose");
    let picture = bars.draw().map_err(|error| error.to_string())?;
    Ok(Part::Picture(picture, label))
}

fn device_table(runs: &[&Run]) -> Table {
    let mut table = Table::new([
        "mode",
        "KiB each",
        "writes each",
        "flushes each",
        "fs journal, KiB each",
        "later, MiB",
        "checkpoint, MiB",
        "set-up, MiB",
        "CPU each, µs",
    ]);
    for run in runs {
        let count = f64::from(run.count.max(1));
        let per_op = run.per_op.as_ref();
        table.rows.push(vec![
            run.mode.clone(),
            or_none(per_op, |per_op| kib(per_op.write_bytes)),
            or_none(per_op.and_then(|per_op| per_op.writes), |writes| {
                format!("{writes:.2}")
            }),
            or_none(per_op, |per_op| format!("{:.2}", per_op.flushes)),
            or_none(run.by_file, |by| kib(by.fs_journal_bytes as f64 / count)),
            or_none(run.after.write_bytes, mib),
            or_none(run.checkpoint.write_bytes, mib),
            or_none(run.setup.write_bytes, mib),
            format!("{:.0}", run.cpu_s * 1e6 / count),
        ]);
    }
    table
}

fn latencies(runs: &[&Run]) -> Result<Section, String> {
    let seconds = |us: u64| us as f64 / 1e6;
    let series = |name: &str, color, of: fn(&Run) -> u64| {
        BarSeries::new(name, color, runs.iter().map(|run| seconds(of(run))))
    };
    let bars = Bars {
        title: "Time of a transaction".to_owned(),
        subtitle: None,
        categories: runs.iter().map(|run| run.mode.clone()).collect(),
        axis: Axis::new("latency", Unit::Seconds),
        arrangement: Arrangement::Grouped,
        series: vec![
            series("p50", colors::of(0), |run| run.latency_us.p50),
            series("p99", colors::of(1), |run| run.latency_us.p99),
        ],
    };
    let picture = bars.draw().map_err(|error| error.to_string())?;
    let mut table = Table::new(["mode", "p50, µs", "p99, µs", "p99.9, µs", "longest, µs"]);
    for run in runs {
        let latency = run.latency_us;
        let figures = [latency.p50, latency.p99, latency.p999, latency.max].map(grouped);
        table
            .rows
            .push([std::slice::from_ref(&run.mode), &figures[..]].concat());
    }
    let label = "bars: p50 and p99 of the latency under each mode".to_owned();
    let parts = vec![Part::Picture(picture, label), Part::Table(table)];
    Ok(Section::new(
        "Latency",
        "From the beginning of a transaction, or with --rate from when it was due, until its COMMIT has returned. Half of them take at most p50, 99 of 100 at most p99, 999 of 1,000 at most p99.9.",
        parts,
    ))
}

/// The kinds of transactions, for an op that has several.
fn kinds(runs: &[&Run]) -> Option<Section> {
    let mut table = Table::new([
        "mode",
        "kind",
        "count",
        "a second",
        "p50, µs",
        "p99, µs",
        "longest, µs",
    ]);
    for run in runs {
        let write = ("write", u64::from(run.count), run.ops_per_s, run.latency_us);
        let write = (run.readers > 0).then_some(write);
        let each = run.kinds.iter();
        let each = each.map(|kind| (kind.kind.as_str(), kind.count, kind.per_s, kind.latency_us));
        for (kind, count, per_s, latency) in write.into_iter().chain(each) {
            table.rows.push(vec![
                run.mode.clone(),
                kind.to_owned(),
                grouped(count),
                rate(per_s),
                grouped(latency.p50),
                grouped(latency.p99),
                grouped(latency.max),
            ]);
        }
    }
    let intro =
        "The figures above are those of all transactions; those of the readers are only here.";
    let is_some = !table.rows.is_empty();
    is_some.then(|| Section::new("Each kind", intro, vec![Part::Table(table)]))
}

/// The state that runs with a warm-up began from.
fn state(runs: &[&Run]) -> Option<Section> {
    let run = runs.first().filter(|run| run.state.warm_up > 0)?;
    let mut table = Table::new([
        "mode",
        "database, KiB",
        "cache, KiB",
        "log at first, KiB",
        "log at last, KiB",
        "checkpointed meanwhile, KiB",
    ]);
    for run in runs {
        let state = run.state;
        table.rows.push(vec![
            run.mode.clone(),
            grouped(state.database_kib),
            grouped(state.cache_kib),
            or_none(state.log_kib_before, grouped),
            or_none(state.log_kib_after, grouped),
            or_none(run.by_file, |by| grouped(by.database_bytes / 1024)),
        ]);
    }
    let intro = format!(
        "{} transactions ran before the measured ones.",
        grouped(u64::from(run.state.warm_up))
    );
    Some(Section::new(
        "The steady state",
        intro,
        vec![Part::Table(table)],
    ))
}

/// Every run, where modes were run several times.
fn repetitions(runs: &[Run]) -> Section {
    let mut table = Table::new([
        "mode",
        "repetition",
        "a second",
        "p50, µs",
        "p99, µs",
        "KiB each",
    ]);
    for run in runs {
        table.rows.push(vec![
            run.mode.clone(),
            run.repeat.to_string(),
            rate(run.ops_per_s),
            grouped(run.latency_us.p50),
            grouped(run.latency_us.p99),
            or_none(run.per_op, |per_op| kib(per_op.write_bytes)),
        ]);
    }
    let intro = "Above, each mode has the repetition with the median rate.";
    Section::new("Every run", intro, vec![Part::Table(table)])
}

/// A kind of measurement, its median, and its range.
type RawKind = (&'static str, Option<f64>, fn(&RawRates) -> Option<f64>);

fn raw(report: &Report) -> Section {
    let raw = &report.raw;
    let mut table = Table::new(["plain system calls", "median a second", "least", "most"]);
    let kinds: [RawKind; 3] = [
        (
            "4 KiB overwritten, direct and durable",
            raw.direct_dsync_4k_per_s,
            |rates| rates.direct_dsync_4k_per_s,
        ),
        (
            "4 KiB overwritten, direct, not durable",
            raw.direct_4k_per_s,
            |rates| rates.direct_4k_per_s,
        ),
        (
            "4,120 bytes appended, and fdatasync",
            raw.append_fdatasync_per_s,
            |rates| rates.append_fdatasync_per_s,
        ),
    ];
    for (name, median, of) in kinds {
        let figures = [median, of(&raw.min), of(&raw.max)].map(|figure| or_none(figure, rate));
        table.rows.push([&[name.to_owned()], &figures[..]].concat());
    }
    let intro = format!(
        "Measured {} times, before and between the runs, on the same file system: the abilities of the device \
         in that time.",
        raw.samples
    );
    Section::new("Raw rates", intro, vec![Part::Table(table)])
}

fn facts(page: &mut Page, report: &Report) {
    if let Some(run) = report.runs.first() {
        page.fact("seed", run.seed.to_string());
        page.fact("synchronous", run.synchronous);
    }
    let device = report
        .device
        .as_deref()
        .map_or_else(String::new, |device| format!(" on {device}"));
    page.fact("file system", format!("{}{device}", report.filesystem));
    if let Some(flash) = &report.flash_model {
        page.fact("flash", format!("{} ({})", flash.name, flash.description()));
    }
    if let Some(model) = &report.device_model {
        page.fact(
            "device model",
            format!("{} ({})", model.name, model.description),
        );
    }
}

fn or_none<T>(figure: Option<T>, show: impl FnOnce(T) -> String) -> String {
    figure.map_or_else(|| NONE.to_owned(), show)
}

fn kib(bytes: f64) -> String {
    format!("{:.1}", bytes / 1024.0)
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1_048_576.0)
}
