//! The JSON document. Fields may be added, not renamed; docs/trace.md describes them.

use std::collections::HashMap;

use onewrite_iotrace::io::TaskId;
use onewrite_iotrace::summary::{Latency, Moved, Summary};
use serde::Serialize;

use super::Traced;
use crate::place;

/// All of it.
#[derive(Debug, Serialize)]
pub struct Report {
    version: u32,
    kernel: String,
    runs: Vec<Run>,
}

#[derive(Debug, Serialize)]
struct Run {
    traced: String,
    mode: Option<String>,
    filesystem: &'static str,
    device: String,
    elapsed_s: f64,
    exact: bool,
    lost_events: u64,
    checks: Vec<Check>,
    total: Figures,
    flushes: u64,
    failed: u64,
    by_kind: Vec<OfKind>,
    by_file: Vec<OfFile>,
    by_process: Vec<OfProcess>,
    latency_us: Vec<Took>,
    write_latency_us: Vec<Took>,
    per: Option<Per>,
    exit_code: Option<i32>,
    signal: Option<i32>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Check {
    what: &'static str,
    traced: u64,
    counted: u64,
}

#[derive(Debug, Serialize)]
struct Figures {
    writes: u64,
    write_bytes: u64,
    fua: u64,
    reads: u64,
    read_bytes: u64,
    discards: u64,
    discard_bytes: u64,
    flush_requests: u64,
}

#[derive(Debug, Serialize)]
struct OfKind {
    kind: &'static str,
    #[serde(flatten)]
    figures: Figures,
}

#[derive(Debug, Serialize)]
struct OfFile {
    path: String,
    kind: &'static str,
    #[serde(flatten)]
    figures: Figures,
}

#[derive(Debug, Serialize)]
struct OfProcess {
    /// `None` for requests from before the trace began.
    name: Option<String>,
    pid: Option<u32>,
    threads: usize,
    #[serde(flatten)]
    figures: Figures,
}

/// A latency by request, or by the kind of the written data.
#[derive(Debug, Serialize)]
struct Took {
    of: &'static str,
    count: u64,
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
}

/// Figures divided by a number.
#[derive(Debug, Serialize)]
struct Per {
    count: u64,
    writes: f64,
    write_bytes: f64,
    flushes: f64,
}

impl Report {
    /// The document for these traces.
    pub fn of(traced: &[Traced]) -> Self {
        Self {
            version: 1,
            kernel: place::kernel_release(),
            runs: traced.iter().map(Run::of).collect(),
        }
    }
}

impl Run {
    fn of(traced: &Traced) -> Self {
        let summary = traced.summary();
        let files = summary.by_file.iter().map(|(file, moved)| OfFile {
            path: traced.path(*file).to_owned(),
            kind: kind_of(traced, *file),
            figures: Figures::of(moved),
        });
        let by_kind = summary.by_kind.iter().map(|(kind, moved)| OfKind {
            kind: kind.key(),
            figures: Figures::of(moved),
        });
        let processes = processes(traced, &summary)
            .into_iter()
            .map(|process| OfProcess {
                name: process.name,
                pid: process.pid,
                threads: process.threads,
                figures: Figures::of(&process.moved),
            });
        let checks = summary.checks.iter().map(|check| Check {
            what: check.what,
            traced: check.traced,
            counted: check.counted,
        });
        let latency = summary.latency.iter();
        let write_latency = summary.write_latency.iter();
        Self {
            traced: traced.what.clone(),
            mode: traced.mode.clone(),
            filesystem: traced.file_system,
            device: traced.device.clone(),
            elapsed_s: summary.elapsed_ns as f64 / 1e9,
            exact: summary.is_exact() && traced.recording.lost == 0,
            lost_events: traced.recording.lost,
            checks: checks.collect(),
            total: Figures::of(&summary.total),
            flushes: summary.flushes,
            failed: summary.failed,
            by_kind: by_kind.collect(),
            by_file: files.collect(),
            by_process: processes.collect(),
            latency_us: latency.map(|(op, took)| Took::of(op.key(), took)).collect(),
            write_latency_us: write_latency
                .map(|(kind, took)| Took::of(kind.key(), took))
                .collect(),
            per: traced.per.map(|count| Per::of(count, &summary)),
            exit_code: traced.ended.and_then(|ended| ended.code),
            signal: traced.ended.and_then(|ended| ended.signal),
            notes: traced.recording.notes.clone(),
        }
    }
}

fn kind_of(traced: &Traced, file: onewrite_iotrace::io::FileId) -> &'static str {
    let file = traced.recording.files.get(file.0 as usize);
    file.map_or("unknown", |file| file.kind.key())
}

impl Figures {
    fn of(moved: &Moved) -> Self {
        Self {
            writes: moved.writes,
            write_bytes: moved.write_bytes,
            fua: moved.fua,
            reads: moved.reads,
            read_bytes: moved.read_bytes,
            discards: moved.discards,
            discard_bytes: moved.discard_bytes,
            flush_requests: moved.flush_requests,
        }
    }
}

impl Took {
    fn of(of: &'static str, took: &Latency) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        Self {
            of,
            count: took.count,
            p50: us(took.p50_ns),
            p90: us(took.p90_ns),
            p99: us(took.p99_ns),
            max: us(took.max_ns),
        }
    }
}

impl Per {
    fn of(count: u64, summary: &Summary) -> Self {
        let per = |figure: u64| figure as f64 / count.max(1) as f64;
        Self {
            count,
            writes: per(summary.total.writes),
            write_bytes: per(summary.total.write_bytes),
            flushes: per(summary.flushes),
        }
    }
}

/// The requests of a process's threads.
pub struct Process {
    /// The name of the process's first thread, or of another if that one requested nothing. `None`
    /// for requests from before the trace began.
    pub name: Option<String>,
    /// `None` where the kernel no longer knew a thread's process: then the thread stands alone.
    pub pid: Option<u32>,
    /// Threads with requests.
    pub threads: usize,
    /// The requests.
    pub moved: Moved,
}

/// Sums by process, the largest writers first.
pub fn processes(traced: &Traced, summary: &Summary) -> Vec<Process> {
    let mut found: Vec<(Option<u32>, Process)> = Vec::new();
    let mut places: HashMap<Option<u32>, usize> = HashMap::new();
    for (task, moved) in &summary.by_task {
        let task = task.and_then(|TaskId(task)| traced.recording.tasks.get(task as usize));
        let number = task.map(|task| task.pid.unwrap_or(task.tid));
        let place = *places.entry(number).or_insert_with(|| {
            let process = Process {
                name: task.map(|task| task.name.clone()),
                pid: task.and_then(|task| task.pid),
                threads: 0,
                moved: Moved::default(),
            };
            found.push((number, process));
            found.len() - 1
        });
        if let Some((number, process)) = found.get_mut(place) {
            process.threads += 1;
            process.moved.join(moved);
            if let Some(first) = task.filter(|task| Some(task.tid) == *number) {
                process.name = Some(first.name.clone());
            }
        }
    }
    let mut processes: Vec<Process> = found.into_iter().map(|(_, process)| process).collect();
    let order = |process: &Process| (process.moved.write_bytes, process.moved.read_bytes);
    processes.sort_by_key(|process| std::cmp::Reverse(order(process)));
    processes
}
