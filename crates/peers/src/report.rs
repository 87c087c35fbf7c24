//! The measurements, as tables and as JSON.

use comfy_table::{CellAlignment, Table, presets};
use onewrite_workload::latency::Percentiles;
use serde::Serialize;

use crate::work::Workload;

/// The engine with which a table compares the rates.
pub const BASE: &str = "sqlite-wal";

/// One run of an engine.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The engine's name.
    pub engine: &'static str,
    /// Whether a commit survives a power cut as soon as it has returned.
    pub durable: bool,
    /// The workload.
    pub workload: Workload,
    /// The number of threads.
    pub threads: usize,
    /// The number of measured operations.
    pub operations: u64,
    /// The result, or the reason why there is none.
    pub outcome: Result<Outcome, String>,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Operations a second.
    pub ops_per_s: f64,
    /// Seconds for all operations.
    pub elapsed_s: f64,
    /// Processor time of the process.
    pub cpu_s: f64,
    /// The time of one operation, in microseconds.
    pub latency_us: Percentiles,
    /// The device's work meanwhile.
    pub device: Device,
    /// The peak memory of the process, in KiB, including pages of mapped files.
    pub peak_kib: u64,
    /// Bytes that the files occupied on the device after the work.
    pub stored_bytes: u64,
    /// Rows that another process read back after this one was killed.
    pub verified_rows: u64,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// The work of a device.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Device {
    /// Bytes written.
    pub write_bytes: u64,
    /// Write requests that carried data.
    pub writes: Option<u64>,
    /// Flushes of its cache.
    pub flushes: u64,
    /// Bytes of the file system's journal among those written.
    pub fs_journal_bytes: Option<u64>,
    /// Bytes that were still in memory after the work.
    pub later_bytes: u64,
}

/// The whole report.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The version of this format.
    pub version: u32,
    /// The command that made the report.
    pub command: Vec<String>,
    /// The kernel's release.
    pub kernel: String,
    /// Logical processors.
    pub cpus: usize,
    /// SQLite's version, and the call with which it makes files durable.
    pub sqlite: String,
    /// The settings of each engine.
    pub settings: Vec<(&'static str, &'static str)>,
    /// Every run.
    pub runs: Vec<Run>,
}

/// The form of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For a terminal.
    Terminal,
    /// As Markdown.
    Markdown,
}

impl Report {
    /// The tables, one for each workload and number of threads.
    pub fn text(&self, form: Form) -> String {
        let mut cells: Vec<(Workload, usize, u64)> = Vec::new();
        for run in &self.runs {
            let cell = (run.workload, run.threads, run.operations);
            if !cells.contains(&cell) {
                cells.push(cell);
            }
        }
        let mut text = String::new();
        for (workload, threads, operations) in cells {
            let runs = self.runs.iter();
            let runs = runs.filter(|run| (run.workload, run.threads) == (workload, threads));
            let runs: Vec<&Run> = runs.collect();
            let threads = match threads {
                1 => "1 thread".to_owned(),
                threads => format!("{threads} threads"),
            };
            let (name, is) = (workload.name(), workload.is());
            let (begin, end) = match form {
                Form::Terminal => ("", ""),
                Form::Markdown => ("**", "**"),
            };
            text += &format!("{begin}{name}, {threads}{end}: {operations} times {is}\n\n");
            text += &table(&runs, workload, form).to_string();
            text += "\n\n";
        }
        text
    }

    /// Failures, and notes for the reader.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        for run in &self.runs {
            let (workload, engine) = (run.workload.name(), run.engine);
            let what = format!("{workload}, {} threads, {engine}", run.threads);
            match &run.outcome {
                Err(error) => remarks.push(format!("{what} FAILED: {error}")),
                Ok(outcome) => {
                    remarks.extend(outcome.notes.iter().map(|note| format!("{what}: {note}")));
                }
            }
        }
        remarks
    }
}

/// The run of each engine that has the median rate. Engines keep their order.
pub fn medians(runs: Vec<Run>) -> Vec<Run> {
    let mut engines: Vec<(&str, Vec<Run>)> = Vec::new();
    for run in runs {
        match engines.iter_mut().find(|(name, _)| *name == run.engine) {
            Some((_, of_engine)) => of_engine.push(run),
            None => engines.push((run.engine, vec![run])),
        }
    }
    let median = |(_, mut runs): (&str, Vec<Run>)| {
        // If any run of an engine failed, the failure is reported.
        let rate = |run: &Run| run.outcome.as_ref().map_or(f64::INFINITY, |o| o.ops_per_s);
        runs.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
        let failed = runs.iter().position(|run| run.outcome.is_err());
        runs.swap_remove(failed.unwrap_or((runs.len() - 1) / 2))
    };
    engines.into_iter().map(median).collect()
}

fn table(runs: &[&Run], workload: Workload, form: Form) -> Table {
    let mut table = Table::new();
    table.load_style(match form {
        Form::Terminal => presets::UTF8_FULL_CONDENSED,
        Form::Markdown => presets::ASCII_MARKDOWN,
    });
    let mut header = vec![
        "engine",
        "/s",
        "times wal",
        "p50 us",
        "p99 us",
        "longest ms",
    ];
    if workload.writes() {
        header.extend([
            "KiB each",
            "of it fs journal",
            "writes each",
            "flushes each",
        ]);
    }
    header.extend(["CPU us each", "peak MiB", "files MiB"]);
    let columns = header.len();
    table.set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let rate = |run: &Run| run.outcome.as_ref().ok().map(|o| o.ops_per_s);
    let base = runs.iter().find(|run| run.engine == BASE);
    let base = base.and_then(|run| rate(run));
    for run in runs {
        let name = match run.durable {
            true => run.engine.to_owned(),
            false => format!("{} (not durable)", run.engine),
        };
        let row = match &run.outcome {
            Ok(outcome) => row(run, outcome, name, base),
            Err(_) => {
                let mut row = vec![name, "failed".to_owned()];
                row.resize(columns, String::new());
                row
            }
        };
        table.add_row(row);
    }
    table
}

fn row(run: &Run, outcome: &Outcome, name: String, base: Option<f64>) -> Vec<String> {
    let each = |amount: f64| amount / run.operations.max(1) as f64;
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let (device, latency) = (&outcome.device, &outcome.latency_us);
    let mut row = vec![
        name,
        format!("{:.0}", outcome.ops_per_s),
        or_dash(base.map(|base| format!("{:.2}", outcome.ops_per_s / base))),
        latency.p50.to_string(),
        latency.p99.to_string(),
        format!("{:.1}", latency.max as f64 / 1e3),
    ];
    if run.workload.writes() {
        let kib = |bytes: u64| format!("{:.1}", each(bytes as f64) / 1024.0);
        row.extend([
            kib(device.write_bytes),
            or_dash(device.fs_journal_bytes.map(kib)),
            or_dash(
                device
                    .writes
                    .map(|writes| format!("{:.2}", each(writes as f64))),
            ),
            format!("{:.2}", each(device.flushes as f64)),
        ]);
    }
    row.extend([
        format!("{:.1}", each(outcome.cpu_s * 1e6)),
        format!("{:.1}", outcome.peak_kib as f64 / 1024.0),
        format!("{:.1}", outcome.stored_bytes as f64 / f64::from(1 << 20)),
    ]);
    row
}
