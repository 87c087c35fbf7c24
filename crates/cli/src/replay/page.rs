//! The report of `replay` as a page.

use super::report::{Report, Run};
use crate::compare::page::{Volume, volumes};
use crate::html::{Bar, Page, Part, Section, Table, grouped, rate};

/// A figure that was not measured.
const NONE: &str = "–";

/// The page of a report.
pub fn page(report: &Report) -> Result<Page, String> {
    let mut page = Page::of(format!("{}, replayed", report.trace), report)?;
    page.lead = Some(lead(report));
    for failed in &report.failed {
        page.problems
            .push(format!("{}: {}", failed.mode, failed.error));
    }
    if !report.same_in_all_modes {
        let text = "Results or contents are not the same in all modes, or some mode did not replay all of it.";
        page.problems.push(text.to_owned());
    }
    if !report.runs.is_empty() {
        page.sections.push(rates(&report.runs));
        page.sections.push(costs(&report.runs)?);
        page.sections.extend(threads(&report.runs));
    }
    page.notes = report.notes.clone();
    page.fact("statements", grouped(report.recorded.statements));
    page.fact("connections", grouped(report.recorded.connections));
    page.fact("databases", report.recorded.databases.to_string());
    page.fact("file system", report.filesystem.clone());
    Ok(page)
}

fn lead(report: &Report) -> String {
    let same = match report.same_in_all_modes {
        true => "Results and contents are the same in all of them.",
        false => "Results or contents differ.",
    };
    let recorded = match report.same_as_recorded {
        Some(true) => " They are the same as recorded.",
        Some(false) => " They are not the same as recorded.",
        None => "",
    };
    format!(
        "{} statements under {} modes. {same}{recorded}",
        grouped(report.recorded.statements),
        report.runs.len()
    )
}

fn rates(runs: &[Run]) -> Section {
    let base = runs.iter().find(|run| run.mode == "wal");
    let bars = runs.iter().map(|run| {
        let times = base.map_or_else(String::new, |base| {
            format!(" · {:.2} ×", run.commits_per_s / base.commits_per_s)
        });
        Bar {
            name: run.mode.clone(),
            value: run.commits_per_s,
            text: format!("{}/s{times}", rate(run.commits_per_s)),
            is_base: run.mode == "wal",
        }
    });
    let intro = "Transactions that wrote something, from the first event of the trace to the last.";
    Section::new("Commits a second", intro, vec![Part::Bars(bars.collect())])
}

fn costs(runs: &[Run]) -> Result<Section, String> {
    let mut parts = Vec::new();
    if runs.iter().any(|run| run.by_file.is_some()) {
        let each = runs.iter().map(|run| Volume {
            mode: run.mode.clone(),
            bytes: run.by_file,
            count: run.commits,
        });
        parts.push(volumes("a commit", &each.collect::<Vec<_>>())?);
    }
    parts.push(Part::Table(table(runs)));
    let intro =
        "The time of the calls that committed, and the device's work divided by the commits.";
    Ok(Section::new("Cost of a commit", intro, parts))
}

/// The counts of several threads.
fn threads(runs: &[Run]) -> Option<Section> {
    let mut table = Table::new([
        "mode",
        "threads",
        "statements that overlapped",
        "of transactions that raced",
        "of these with other results",
        "waited for a lock",
        "left the order",
        "transactions tried again",
    ]);
    for run in runs {
        if let Some(together) = &run.together {
            table.rows.push(vec![
                run.mode.clone(),
                grouped(together.threads),
                grouped(together.overlapped),
                grouped(together.raced),
                grouped(together.raced_differ_from_recorded.count),
                grouped(run.checked.waited),
                grouped(together.passed + together.late),
                grouped(together.tried_again),
            ]);
        }
    }
    let intro =
        "Each connection had a thread of its own. What overlapped when recorded could overlap.";
    let is_there = !table.rows.is_empty();
    is_there.then(|| Section::new("Threads", intro, vec![Part::Table(table)]))
}

fn table(runs: &[Run]) -> Table {
    let mut table = Table::new([
        "mode",
        "commits",
        "p50, µs",
        "p99, µs",
        "longest, µs",
        "KiB each",
        "writes each",
        "flushes each",
    ]);
    let two = |figure: Option<f64>| figure.map_or_else(|| NONE.to_owned(), |n| format!("{n:.2}"));
    for run in runs {
        let (per_commit, latency) = (run.per_commit, run.commit_latency_us);
        table.rows.push(vec![
            run.mode.clone(),
            grouped(run.commits),
            grouped(latency.p50),
            grouped(latency.p99),
            grouped(latency.max),
            two(per_commit.map(|per| per.write_bytes / 1024.0)),
            two(per_commit.and_then(|per| per.writes)),
            two(per_commit.map(|per| per.flushes)),
        ]);
    }
    table.without_empty_columns(NONE)
}
