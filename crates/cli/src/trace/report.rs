//! The JSON document. Fields may be added, not renamed; docs/trace.md describes them.

use std::borrow::Cow;
use std::collections::HashMap;

use onewrite_iotrace::io::{Op, TaskId};
use onewrite_iotrace::percentiles::Percentiles;
use onewrite_iotrace::seeks::Seeks;
use onewrite_iotrace::summary::{Moved, Summary};
use onewrite_iotrace::times::Stages;
use serde::{Deserialize, Serialize};

use super::Traced;
use crate::place;

/// All of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    pub(super) version: u32,
    kernel: String,
    pub(super) runs: Vec<Run>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Run {
    traced: String,
    pub(super) mode: Option<String>,
    filesystem: Cow<'static, str>,
    device: String,
    elapsed_s: f64,
    exact: bool,
    lost_events: u64,
    checks: Vec<Check>,
    pub(super) total: Figures,
    pub(super) flushes: u64,
    failed: u64,
    pub(super) by_kind: Vec<OfKind>,
    by_file: Vec<OfFile>,
    by_process: Vec<OfProcess>,
    latency_us: Vec<Took>,
    write_latency_us: Vec<Took>,
    /// Older documents have none.
    #[serde(default)]
    pub(super) stages_us: Vec<Stage>,
    #[serde(default)]
    pub(super) seeks: Vec<Jumps>,
    per: Option<Per>,
    exit_code: Option<i32>,
    signal: Option<i32>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Check {
    what: Cow<'static, str>,
    traced: u64,
    counted: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) writes: u64,
    pub(super) write_bytes: u64,
    pub(super) fua: u64,
    pub(super) reads: u64,
    pub(super) read_bytes: u64,
    pub(super) discards: u64,
    pub(super) discard_bytes: u64,
    pub(super) flush_requests: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OfKind {
    pub(super) kind: Cow<'static, str>,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

#[derive(Debug, Serialize, Deserialize)]
struct OfFile {
    path: String,
    kind: Cow<'static, str>,
    #[serde(flatten)]
    figures: Figures,
}

#[derive(Debug, Serialize, Deserialize)]
struct OfProcess {
    /// `None` for requests from before the trace began.
    name: Option<String>,
    pid: Option<u32>,
    threads: usize,
    #[serde(flatten)]
    figures: Figures,
}

/// A latency by request, or by the kind of the written data.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Took {
    pub(super) of: Cow<'static, str>,
    pub(super) count: u64,
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

/// A part of the time of requests.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Stage {
    pub(super) stage: Cow<'static, str>,
    #[serde(flatten)]
    pub(super) took: Took,
}

/// How far the device jumps to requests.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Jumps {
    pub(super) of: Cow<'static, str>,
    pub(super) requests: u64,
    pub(super) sequential: u64,
    pub(super) total_bytes: u64,
    /// Of those that are not sequential.
    pub(super) distance_bytes: Option<Distance>,
}

/// A distance on the device, in bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Distance {
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    pub(super) max: u64,
}

/// Figures divided by a number.
#[derive(Debug, Serialize, Deserialize)]
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
            kind: kind_of(traced, *file).into(),
            figures: Figures::of(moved),
        });
        let by_kind = summary.by_kind.iter().map(|(kind, moved)| OfKind {
            kind: kind.key().into(),
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
            what: check.what.into(),
            traced: check.traced,
            counted: check.counted,
        });
        let latency = summary.times.latency.iter();
        let write_latency = summary.times.write_latency.iter();
        Self {
            traced: traced.what.clone(),
            mode: traced.mode.clone(),
            filesystem: traced.file_system.into(),
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
            stages_us: Stage::all(&summary.times.stages),
            seeks: summary.seeks.iter().map(Jumps::of).collect(),
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
    fn of(of: &'static str, took: &Percentiles) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        Self {
            of: of.into(),
            count: took.count,
            p50: us(took.p50),
            p90: us(took.p90),
            p99: us(took.p99),
            max: us(took.max),
        }
    }
}

impl Stage {
    fn all(stages: &[(Op, Stages)]) -> Vec<Self> {
        let of = |(op, stages): &(Op, Stages)| {
            let named = named(stages).into_iter();
            let known = named.filter_map(|(stage, took)| Some((stage, took?)));
            let op = op.key();
            let all = known.map(move |(stage, took)| Self {
                stage: stage.into(),
                took: Took::of(op, &took),
            });
            all.collect::<Vec<_>>()
        };
        stages.iter().flat_map(of).collect()
    }
}

/// The stages of a request with their names in the document.
fn named(stages: &Stages) -> [(&'static str, Option<Percentiles>); 3] {
    [
        ("queue_to_driver", stages.queue),
        ("driver_to_completion", stages.device),
        ("queue_to_completion", stages.whole),
    ]
}

impl Jumps {
    fn of((op, seeks): &(Op, Seeks)) -> Self {
        Self {
            of: op.key().into(),
            requests: seeks.requests,
            sequential: seeks.sequential,
            total_bytes: seeks.total_bytes,
            distance_bytes: seeks.distance.map(|of| Distance {
                p50: of.p50,
                p90: of.p90,
                p99: of.p99,
                max: of.max,
            }),
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
