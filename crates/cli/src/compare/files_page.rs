//! The report of `bench file` as a page.

use onewrite_plot::{Arrangement, Axis, BarSeries, Bars, Unit, colors};

use super::files::{Report, Run, threads};
use crate::html::{Bar, Page, Part, Section, Table, grouped, rate};

/// A figure that was not measured.
const NONE: &str = "–";

/// The page of a report.
pub fn page(report: &Report) -> Result<Page, String> {
    let title = format!(
        "{} records of {} bytes, {}, {}",
        grouped(u64::from(report.count)),
        grouped(u64::from(report.record_bytes)),
        report.access.name(),
        threads(report.threads)
    );
    let mut page = Page::of(title, report)?;
    for failed in &report.failed {
        let text = format!("{}: {}", failed.way.name(), failed.error);
        page.problems.push(text);
    }
    for run in report.runs.iter().filter(|run| run.checked != "ok") {
        page.problems
            .push(format!("{}: {}", run.way.name(), run.checked));
    }
    if !report.runs.is_empty() {
        page.sections.push(rates(&report.runs)?);
        page.sections.push(costs(report));
    }
    page.notes = report.notes.clone();
    page.fact("seed", report.seed.to_string());
    page.fact("file system", report.filesystem.clone());
    if let Some(model) = &report.device_model {
        page.fact(
            "device model",
            format!("{} ({})", model.name, model.description),
        );
    }
    Ok(page)
}

/// The page cache takes records a hundred times as fast as a device, so the bars are logarithmic.
fn rates(runs: &[Run]) -> Result<Section, String> {
    let bars = runs.iter().map(|run| Bar {
        name: run.way.name().to_owned(),
        value: run.ops_per_s.max(1.0).log10(),
        text: format!("{}/s", rate(run.ops_per_s)),
        is_base: false,
    });
    let mut parts = vec![Part::Bars(bars.collect())];
    let per_op = runs.iter().map(|run| run.per_op);
    let counts: Vec<_> = per_op
        .map(|per_op| per_op.map(|per_op| per_op.flushes))
        .collect();
    if counts.iter().any(Option::is_some) {
        let series = BarSeries {
            name: "flushes".to_owned(),
            color: colors::FS_JOURNAL,
            values: counts,
        };
        let picture = Bars {
            title: "Flushes of the device's cache for a record".to_owned(),
            subtitle: None,
            categories: runs.iter().map(|run| run.way.name().to_owned()).collect(),
            axis: Axis::new("flushes", Unit::Number),
            arrangement: Arrangement::Grouped,
            series: vec![series],
        };
        let picture = picture.draw().map_err(|error| error.to_string())?;
        let label = "bars: flushes for a record, for each way of writing".to_owned();
        parts.push(Part::Picture(picture, label));
    }
    let intro = "Bars are on a logarithmic scale: each step of the same length is the same factor.";
    Ok(Section::new("Records a second", intro, parts))
}

fn costs(report: &Report) -> Section {
    let mut table = Table::new([
        "way",
        "p50, µs",
        "p99, µs",
        "longest, µs",
        "KiB each",
        "writes each",
        "flushes each",
        "fs journal, KiB each",
        "later, MiB",
    ]);
    let none = || NONE.to_owned();
    for run in &report.runs {
        let per_op = run.per_op.as_ref();
        let journal = run
            .by_file
            .map(|by| by.fs_journal_bytes as f64 / f64::from(report.count.max(1)) / 1024.0);
        let later = run
            .after_write_bytes
            .map(|bytes| bytes as f64 / 1_048_576.0);
        let one = |figure: Option<f64>| figure.map_or_else(none, |figure| format!("{figure:.1}"));
        let two = |figure: Option<f64>| figure.map_or_else(none, |figure| format!("{figure:.2}"));
        table.rows.push(vec![
            run.way.name().to_owned(),
            grouped(run.latency_us.p50),
            grouped(run.latency_us.p99),
            grouped(run.latency_us.max),
            one(per_op.map(|per_op| per_op.write_bytes / 1024.0)),
            two(per_op.and_then(|per_op| per_op.writes)),
            two(per_op.map(|per_op| per_op.flushes)),
            one(journal),
            one(later),
        ]);
    }
    let intro = "How long a record takes, and what the device completed while they were written or read, divided by \
                 their number.";
    let table = table.without_empty_columns(NONE);
    Section::new("What it costs", intro, vec![Part::Table(table)])
}
