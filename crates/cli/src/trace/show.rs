//! `trace --show`: the documents of earlier traces side by side, a column for each run.

use std::path::{Path, PathBuf};

use super::report::{Figures, Report, Run, Took};
use super::table::{decimals, grouped, kib, label};
use crate::html::{Page, Part, Section, Table};
use crate::output::OutputArgs;
use crate::text_table::{NONE, TextTable};
use onewrite_iotrace::io::{Kind, Op};

/// The version of documents that this can read.
const VERSION: u32 = 1;

/// Shows the runs of these documents.
pub fn show(paths: &[PathBuf], output: &OutputArgs) -> Result<(), String> {
    let mut all: Option<Report> = None;
    let mut names = Vec::new();
    for path in paths {
        let report = read(path)?;
        names.extend(report.runs.iter().map(|run| name(path, run)));
        match &mut all {
            Some(all) => all.runs.extend(report.runs),
            None => all = Some(report),
        }
    }
    let report = all.filter(|all| !all.runs.is_empty());
    let report = report.ok_or("these documents have no trace")?;
    let lines = lines(&report.runs);
    output.show(
        &report,
        || table(&names, &lines).to_string(),
        || page(&names, &lines, &report),
    )
}

fn read(path: &Path) -> Result<Report, String> {
    let bad = |what: &dyn std::fmt::Display| {
        format!(
            "{}: {what}; `onewrite trace --json` prints the documents that --show reads",
            path.display()
        )
    };
    let text = std::fs::read(path).map_err(|error| bad(&error))?;
    let report: Report = serde_json::from_slice(&text).map_err(|error| bad(&error))?;
    match report.version {
        VERSION => Ok(report),
        other => Err(bad(&format_args!("its version is {other}, not {VERSION}"))),
    }
}

/// The head of a run's column.
fn name(path: &Path, run: &Run) -> String {
    let file = path.file_stem().unwrap_or_default().to_string_lossy();
    match &run.mode {
        Some(mode) => format!("{file}\n{mode}"),
        None => file.into_owned(),
    }
}

/// A figure of all runs; `None` where a run has none.
struct Line {
    name: String,
    figures: Vec<Option<f64>>,
    shown: Shown,
}

/// A figure as a text.
type Shown = fn(f64) -> String;

type Total = fn(&Figures) -> u64;

type Share = fn(&Took) -> f64;

fn lines(runs: &[Run]) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut add = |name: String, shown: Shown, of: &dyn Fn(&Run) -> Option<f64>| {
        let figures: Vec<_> = runs.iter().map(of).collect();
        // A line of zeros says nothing.
        if figures.iter().flatten().any(|figure| *figure != 0.0) {
            lines.push(Line {
                name,
                figures,
                shown,
            });
        }
    };
    let whole = |figure: f64| grouped(figure as u64);
    let kibs = |figure: f64| kib(figure as u64);
    let us = |figure: f64| decimals(figure, 0);
    let totals: [(&str, Shown, Total); 7] = [
        ("writes", whole, |of| of.writes),
        ("written, KiB", kibs, |of| of.write_bytes),
        ("writes with FUA", whole, |of| of.fua),
        ("reads", whole, |of| of.reads),
        ("read, KiB", kibs, |of| of.read_bytes),
        ("discards", whole, |of| of.discards),
        ("waits for a flush", whole, |of| of.flush_requests),
    ];
    for (name, shown, of) in totals {
        add(name.to_owned(), shown, &|run| Some(of(&run.total) as f64));
    }
    add("flushes".to_owned(), whole, &|run| Some(run.flushes as f64));
    for kind in Kind::ALL {
        let name = format!("written, {}, KiB", kind.label());
        add(name, kibs, &|run| {
            let found = run.by_kind.iter().find(|of| of.kind == kind.key());
            found.map(|of| of.figures.write_bytes as f64)
        });
    }
    for op in Op::ALL {
        for (stage, words) in STAGES {
            for (share, of) in SHARES {
                let name = format!("{}, {words}, {share}, us", label(op));
                add(name, us, &|run| {
                    let mut all = run.stages_us.iter();
                    let found = all.find(|of| of.stage == stage && of.took.of == op.key());
                    found.map(|found| of(&found.took))
                });
            }
        }
        let name = format!("{}, sequential, %", label(op));
        add(name, |share| decimals(share, 1), &|run| {
            let found = run.seeks.iter().find(|of| of.of == op.key())?;
            Some(found.sequential as f64 * 100.0 / found.requests.max(1) as f64)
        });
        let name = format!("{}, seek distance, p50, KiB", label(op));
        add(name, kibs, &|run| {
            let found = run.seeks.iter().find(|of| of.of == op.key())?;
            found.distance_bytes.as_ref().map(|of| of.p50 as f64)
        });
    }
    lines
}

const STAGES: [(&str, &str); 3] = [
    ("queue_to_driver", "queue to driver"),
    ("driver_to_completion", "driver to completion"),
    ("queue_to_completion", "queue to completion"),
];

const SHARES: [(&str, Share); 2] = [("p50", |took| took.p50), ("p99", |took| took.p99)];

impl Line {
    /// The figure, and how many times the first run's it is.
    fn cells(&self) -> Vec<String> {
        let first = self.figures.first().copied().flatten();
        let cell = |(at, figure): (usize, &Option<f64>)| match (figure, first) {
            (None, _) => NONE.to_owned(),
            (Some(figure), Some(first)) if at > 0 && first != 0.0 => {
                format!("{} ({:.2})", (self.shown)(*figure), figure / first)
            }
            (Some(figure), _) => (self.shown)(*figure),
        };
        self.figures.iter().enumerate().map(cell).collect()
    }
}

fn table(names: &[String], lines: &[Line]) -> TextTable {
    let heads = ["what".to_owned()].into_iter().chain(names.iter().cloned());
    let mut table = TextTable::new(1, heads);
    for line in lines {
        table.row([line.name.clone()].into_iter().chain(line.cells()));
    }
    table
}

fn page(names: &[String], lines: &[Line], report: &Report) -> Result<Page, String> {
    let mut page = Page::of("Traces side by side".to_owned(), report)?;
    let row = |name: &str, cells: &[String]| [&[name.to_owned()], cells].concat();
    let table = Table {
        head: row("what", names),
        rows: lines.iter().map(|of| row(&of.name, &of.cells())).collect(),
    };
    let intro = "In parentheses: how many times the first column's figure.";
    let parts = vec![Part::Table(table)];
    page.sections.push(Section::new("Figures", intro, parts));
    Ok(page)
}
