//! The document of `onewrite replay --json`, and the table for people.
//!
//! A contract with its parsers: fields may be added, never renamed. A figure that was not measured
//! is null, never estimated.

use onewrite_iotrace::meter::{ByFile, Figures};
use onewrite_replay::results::Both;
use onewrite_workload::latency::Percentiles;
use serde::Serialize;

use crate::text_table::TextTable;

/// The whole document.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Version of this format.
    pub version: u32,
    /// The trace's file.
    pub trace: String,
    /// The contents of the trace.
    pub recorded: Recorded,
    /// The threads: `one`, or `recorded` for one of each connection.
    pub threads: String,
    /// Type of the file system.
    pub filesystem: String,
    /// Version of the SQLite library.
    pub sqlite: String,
    /// One for each mode, in their order.
    pub runs: Vec<Run>,
    /// Modes that could not play it.
    pub failed: Vec<Failed>,
    /// Whether every mode replayed all of it, with the same results and contents in all modes.
    pub same_in_all_modes: bool,
    /// Whether these also equal the recorded ones; null where the trace has none of them.
    pub same_as_recorded: Option<bool>,
    /// Notes for the reader of these figures.
    pub notes: Vec<String>,
}

/// The contents of a trace.
#[derive(Debug, Serialize)]
pub struct Recorded {
    /// Values are masked.
    pub masked: bool,
    /// It ends early.
    pub cut: bool,
    /// Runs of statements and scripts.
    pub statements: u64,
    /// Connections.
    pub connections: u64,
    /// Processes.
    pub processes: u64,
    /// Database files.
    pub databases: usize,
    /// From the first event to the last, when recorded; null without times.
    pub elapsed_s: Option<f64>,
}

/// A mode that could not play it.
#[derive(Debug, Serialize)]
pub struct Failed {
    /// The mode as the user gave it.
    pub mode: String,
    /// Why.
    pub error: String,
}

/// One mode.
#[derive(Debug, Serialize)]
pub struct Run {
    /// The mode as the user gave it, variations included.
    pub mode: String,
    /// From the first event to the last.
    pub elapsed_s: f64,
    /// Runs of statements.
    pub statements: u64,
    /// Runs of statements a second.
    pub statements_per_s: f64,
    /// Transactions that wrote something.
    pub commits: u64,
    /// Commits a second.
    pub commits_per_s: f64,
    /// Latency of the calls that committed, in microseconds.
    pub commit_latency_us: Percentiles,
    /// The device's work in that time.
    pub device: Option<Device>,
    /// The files that those bytes belong to.
    pub by_file: Option<ByFile>,
    /// `device` divided by the number of commits.
    pub per_commit: Option<PerCommit>,
    /// The counts of several threads; null with one.
    pub together: Option<Together>,
    /// Whether the results are right.
    pub checked: Checked,
}

/// The counts of several threads.
#[derive(Debug, Serialize)]
pub struct Together {
    /// Threads: as many as connections were open at once.
    pub threads: u64,
    /// Runs of statements during which one of another connection ran.
    pub overlapped: u64,
    /// Recorded runs in transactions that raced: which one came first was open.
    pub raced: u64,
    /// Those whose results differ from the recorded ones. They are not in `checked`.
    pub raced_differ_from_recorded: Differences,
    /// Those whose results differ from those under the first mode. They are not in `checked`.
    pub raced_differ_from_first_mode: Differences,
    /// Events that began before one that waited for a lock, and had returned before them when
    /// recorded.
    pub passed: u64,
    /// Events that the trace has too late to keep their place in the order.
    pub late: u64,
    /// Times that a transaction was rolled back and tried again: another one had committed after its
    /// snapshot.
    pub tried_again: u64,
}

impl Together {
    /// From the engine's counts, and the differences of transactions that raced.
    pub fn new(of: onewrite_replay::engine::Together, raced: Both) -> Self {
        Self {
            threads: of.threads,
            overlapped: of.overlapped,
            raced: of.raced,
            raced_differ_from_recorded: raced.from_recorded.into(),
            raced_differ_from_first_mode: raced.from_first.into(),
            passed: of.passed,
            late: of.late,
            tried_again: of.tried_again,
        }
    }
}

/// The completed work of a device.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Device {
    /// Bytes written.
    pub write_bytes: u64,
    /// Write requests that carried data.
    pub writes: Option<u64>,
    /// Flushes of the device's cache.
    pub flushes: u64,
    /// Bytes written afterwards: the file system still had them in memory.
    pub write_bytes_after: u64,
}

/// A device's figures for one commit.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PerCommit {
    /// Bytes written.
    pub write_bytes: f64,
    /// Write requests that carried data.
    pub writes: Option<f64>,
    /// Flushes of the device's cache.
    pub flushes: f64,
}

impl Device {
    /// From the meter's figures during the run and after it.
    pub fn of(run: &Figures, after: &Figures) -> Self {
        Self {
            write_bytes: run.counters.write_bytes,
            writes: run.writes,
            flushes: run.counters.flushes,
            write_bytes_after: after.counters.write_bytes,
        }
    }

    /// For one commit.
    pub fn per_commit(&self, commits: u64) -> PerCommit {
        let commits = commits.max(1) as f64;
        PerCommit {
            write_bytes: self.write_bytes as f64 / commits,
            writes: self.writes.map(|writes| writes as f64 / commits),
            flushes: self.flushes as f64 / commits,
        }
    }
}

/// Whether a run had the same results.
#[derive(Debug, Serialize)]
pub struct Checked {
    /// Runs whose rows were compared with the recorded ones.
    pub compared_with_recorded: u64,
    /// Runs whose results differ from the recorded ones.
    pub differ_from_recorded: Differences,
    /// Runs whose results differ from those under the first mode.
    pub differ_from_first_mode: Differences,
    /// Every database, as stock SQLite finds it afterwards.
    pub databases: Vec<Database>,
    /// Runs that waited for another connection's lock.
    pub waited: u64,
    /// Runs that SQLite refused when recorded (busy, full, ...), left out.
    pub refused_when_recorded: u64,
    /// Runs left out because a replay sets this itself: journal_mode, busy_timeout, VACUUM INTO.
    pub replaced: u64,
    /// Why it was not played to its end; null if it was.
    pub stuck: Option<String>,
}

/// Differences of one kind.
#[derive(Debug, Serialize)]
pub struct Differences {
    /// The number of differences.
    pub count: u64,
    /// The number of expected ones: from random values, or from another version of SQLite.
    pub expected: u64,
    /// The first of the unexpected ones, or of the expected ones if there are no others.
    pub first: Vec<Difference>,
}

/// A difference.
#[derive(Debug, Serialize)]
pub struct Difference {
    /// The beginning of the statement.
    pub sql: String,
    /// The difference itself.
    pub what: String,
}

impl From<onewrite_replay::results::Differences> for Differences {
    fn from(differences: onewrite_replay::results::Differences) -> Self {
        let first = differences.first.into_iter();
        Self {
            count: differences.count,
            expected: differences.expected,
            first: first
                .map(|one| Difference {
                    sql: one.sql,
                    what: one.what,
                })
                .collect(),
        }
    }
}

/// A database at the end.
#[derive(Debug, Serialize)]
pub struct Database {
    /// Its path when recorded.
    pub path: String,
    /// The digest of its content, in hexadecimal, or what is wrong with it.
    pub content: String,
    /// Whether that equals the recorded content; null where the trace has none.
    pub same_as_recorded: Option<bool>,
    /// Whether the first mode left the same content.
    pub same_as_first_mode: bool,
}

impl Checked {
    /// Whether every result and content equals that of the first mode.
    pub fn is_same_as_first(&self) -> bool {
        self.stuck.is_none()
            && self.differ_from_first_mode.count == 0
            && self.databases.iter().all(|one| one.same_as_first_mode)
    }

    /// Whether it equals the recording; `None` where the trace has nothing to compare with.
    pub fn is_same_as_recorded(&self) -> Option<bool> {
        let contents: Vec<bool> = self
            .databases
            .iter()
            .filter_map(|d| d.same_as_recorded)
            .collect();
        if self.compared_with_recorded == 0 && contents.is_empty() {
            return None;
        }
        let differ = &self.differ_from_recorded;
        Some(differ.count == differ.expected && contents.into_iter().all(|same| same))
    }
}

/// A figure that was not measured.
const NONE: &str = "-";

/// The table and the notes.
pub fn render(report: &Report) -> String {
    let recorded = &report.recorded;
    let mut text = format!(
        "{}: {} statements, {} connections, {} processes, {} databases\n",
        report.trace,
        recorded.statements,
        recorded.connections,
        recorded.processes,
        recorded.databases
    );
    if !report.runs.is_empty() {
        text.push_str(&format!("{}\n", table(&report.runs)));
    }
    if report.runs.iter().any(|run| run.together.is_some()) {
        text.push_str(&format!("{}\n", threads(&report.runs)));
    }
    for (number, run) in report.runs.iter().enumerate() {
        differences(&mut text, run, number == 0);
    }
    text.push_str(&format!("results: {}\n", verdict(report)));
    text.push_str(&format!(
        "{}, SQLite {}\n",
        report.filesystem, report.sqlite
    ));
    for note in &report.notes {
        text.push_str(&format!("{note}\n"));
    }
    text
}

fn verdict(report: &Report) -> String {
    let modes = match report.same_in_all_modes {
        true => "the same rows, errors and contents in all modes",
        false => "NOT the same in all modes",
    };
    let recorded = match report.same_as_recorded {
        None => "nothing recorded to compare with",
        Some(true) => "and the same as recorded",
        Some(false) => "not all the same as recorded, see above",
    };
    format!("{modes}; {recorded}")
}

fn differences(text: &mut String, run: &Run, is_first: bool) {
    let checked = &run.checked;
    if let Some(stuck) = &checked.stuck {
        text.push_str(&format!("{}: {stuck}\n", run.mode));
    }
    some(
        text,
        &run.mode,
        &checked.differ_from_first_mode,
        "under the first mode",
    );
    // The other modes have the same differences, or differ from the first.
    if is_first {
        some(
            text,
            &run.mode,
            &checked.differ_from_recorded,
            "when recorded",
        );
    }
    for one in &checked.databases {
        if one.same_as_recorded == Some(false) || !one.same_as_first_mode {
            text.push_str(&format!(
                "{}: {} has other contents: {}\n",
                run.mode, one.path, one.content
            ));
        }
    }
}

fn some(text: &mut String, mode: &str, differences: &Differences, than: &str) {
    if differences.count == 0 {
        return;
    }
    let expected = match differences.expected {
        0 => String::new(),
        number => format!(", {number} of them as expected"),
    };
    text.push_str(&format!(
        "{mode}: {} statements had other results than {than}{expected}:\n",
        differences.count
    ));
    for one in &differences.first {
        text.push_str(&format!("  {}: {}\n", one.sql, one.what));
    }
}

fn table(runs: &[Run]) -> TextTable {
    let heads = [
        "mode",
        "s",
        "statements\n/s",
        "commits",
        "commits\n/s",
        "times\nfirst",
        "commit\np50 us",
        "p99\nus",
        "KiB\n/commit",
        "writes\n/commit",
        "flushes\n/commit",
        "fs journal\nKiB/commit",
        "same",
    ];
    let mut table = TextTable::new(1, heads);
    let first = runs.first().map_or(1.0, |run| run.elapsed_s);
    for run in runs {
        table.row(row(run, first));
    }
    table
}

/// The counts of several threads.
fn threads(runs: &[Run]) -> TextTable {
    let heads = [
        "mode",
        "threads",
        "statements\noverlapped",
        "of raced\ntransactions",
        "with other\nresults",
        "waited for\na lock",
        "order\nleft",
        "tried\nagain",
    ];
    let mut table = TextTable::new(1, heads);
    for run in runs {
        if let Some(together) = &run.together {
            table.row([
                run.mode.clone(),
                together.threads.to_string(),
                together.overlapped.to_string(),
                together.raced.to_string(),
                together.raced_differ_from_recorded.count.to_string(),
                run.checked.waited.to_string(),
                (together.passed + together.late).to_string(),
                together.tried_again.to_string(),
            ]);
        }
    }
    table
}

fn row(run: &Run, first: f64) -> [String; 13] {
    let per = run.per_commit;
    let commits = run.commits.max(1) as f64;
    let journal = run.by_file.map(|by| by.fs_journal_bytes as f64 / commits);
    let same = match (
        run.checked.is_same_as_first(),
        run.checked.is_same_as_recorded(),
    ) {
        (true, Some(true) | None) => "yes",
        (true, Some(false)) => "modes",
        (false, _) => "NO",
    };
    [
        run.mode.clone(),
        format!("{:.2}", run.elapsed_s),
        format!("{:.0}", run.statements_per_s),
        run.commits.to_string(),
        format!("{:.0}", run.commits_per_s),
        format!("{:.2}", first / run.elapsed_s.max(1e-9)),
        run.commit_latency_us.p50.to_string(),
        run.commit_latency_us.p99.to_string(),
        or_none(per.map(|per| kib(per.write_bytes))),
        or_none(
            per.and_then(|per| per.writes)
                .map(|writes| format!("{writes:.2}")),
        ),
        or_none(per.map(|per| format!("{:.2}", per.flushes))),
        or_none(journal.map(kib)),
        same.to_owned(),
    ]
}

fn kib(bytes: f64) -> String {
    format!("{:.1}", bytes / 1024.0)
}

fn or_none(figure: Option<String>) -> String {
    figure.unwrap_or_else(|| NONE.to_owned())
}
