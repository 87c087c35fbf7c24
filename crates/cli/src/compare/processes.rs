//! A run distributed over several processes: this program again, as `onewrite compare-worker`.
//!
//! The parent writes a job to the standard input of each process, as one line of JSON. It waits
//! until all have answered `ready`, and then writes `go` to all. Each process answers with its
//! measurements, one line of JSON. A worker whose parent is gone finds its standard input closed
//! and ends.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use onewrite_workload::Error;
use onewrite_workload::clock::Nanos;
use onewrite_workload::connection::Settings;
use onewrite_workload::databases::Databases;
use onewrite_workload::latency::{Bucket, Latencies};
use onewrite_workload::mode::{Mode, Synchronous};
use onewrite_workload::plan::Plan;
use onewrite_workload::team::{self, Control, Finished};
use serde::{Deserialize, Serialize};

use crate::{Outcome, interrupt};

const READY: &str = "ready";
const GO: &str = "go";

/// The time between two checks whether the user wants to stop.
const INTERVAL: Duration = Duration::from_millis(50);

/// The job of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The database.
    pub path: PathBuf,
    /// The mode as the user gave it.
    pub mode: String,
    /// As in [`Settings`].
    pub synchronous: Synchronous,
    /// As in [`Settings`].
    pub autocheckpoint: u32,
    /// `PRAGMA cache_size`, in KiB; null keeps SQLite's default.
    pub cache_kib: Option<u32>,
    /// The whole run.
    pub plan: Plan,
    /// The first of this process's workers.
    pub first_worker: u32,
    /// The number of its workers.
    pub threads: u32,
}

/// The answer of one process.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Finished {
        first: Nanos,
        last: Nanos,
        cpu_nanos: u64,
        latencies: Vec<Bucket>,
        kinds: BTreeMap<String, Vec<Bucket>>,
    },
    Failed(String),
}

/// A worker process. If it still runs when this is dropped, it is killed.
struct Worker {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

/// Runs `job` on `processes` processes. It calls `gate` when all are ready; they start when `gate`
/// returns.
pub fn run(
    job: &Job,
    processes: u32,
    gate: impl FnOnce() -> Result<(), String>,
) -> Result<Finished, String> {
    let mut workers = Vec::new();
    for process in 0..processes {
        let job = Job {
            first_worker: process * job.threads,
            ..job.clone()
        };
        workers.push(Worker::start(&job)?);
    }
    for worker in &workers {
        let line = worker.line()?;
        if line != READY {
            return Err(failure(&line));
        }
    }
    gate()?;
    for worker in &mut workers {
        worker.send(GO)?;
    }
    let mut all: Option<Finished> = None;
    for worker in &workers {
        let finished = finished(&worker.line()?)?;
        all = Some(match all {
            Some(all) => all.merged(&finished),
            None => finished,
        });
    }
    all.ok_or_else(|| "no process to work with".to_owned())
}

impl Worker {
    fn start(job: &Job) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("cannot start a worker process: {error}");
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .arg("compare-worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the parent, which then ends its workers.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a worker process has no pipes".to_owned());
        };
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut worker = Self {
            child,
            stdin,
            lines,
        };
        worker.send(&serde_json::to_string(job).map_err(|error| error.to_string())?)?;
        Ok(worker)
    }

    fn send(&mut self, line: &str) -> Result<(), String> {
        writeln!(self.stdin, "{line}")
            .map_err(|error| format!("worker process {}: {error}", self.child.id()))
    }

    /// Its next line, unless the user wants to stop.
    fn line(&self) -> Result<String, String> {
        loop {
            match self.lines.recv_timeout(INTERVAL) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Timeout) if !interrupt::is_requested() => {}
                Err(RecvTimeoutError::Timeout) => return Err("interrupted".to_owned()),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("worker process {} ended early", self.child.id()));
                }
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The worker has nothing left to do, or must not continue: either way it should end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn finished(line: &str) -> Result<Finished, String> {
    match serde_json::from_str(line) {
        Ok(Answer::Finished {
            first,
            last,
            cpu_nanos,
            latencies,
            kinds,
        }) => Ok(Finished {
            first,
            last,
            cpu_nanos,
            latencies: recorded(latencies),
            kinds: kinds
                .into_iter()
                .map(|(kind, buckets)| (kind, recorded(buckets)))
                .collect(),
        }),
        _ => Err(failure(line)),
    }
}

fn recorded(buckets: Vec<Bucket>) -> Latencies {
    let mut latencies = Latencies::new();
    buckets
        .into_iter()
        .for_each(|bucket| latencies.record(bucket));
    latencies
}

fn failure(line: &str) -> String {
    match serde_json::from_str(line) {
        Ok(Answer::Failed(message)) => message,
        _ => format!("a worker process answered \"{line}\""),
    }
}

/// The worker's side: does the job on standard input.
pub fn run_worker() -> Outcome {
    let answer = match work() {
        Ok(Finished {
            first,
            last,
            cpu_nanos,
            latencies,
            kinds,
        }) => Answer::Finished {
            first,
            last,
            cpu_nanos,
            latencies: latencies.buckets(),
            kinds: kinds
                .into_iter()
                .map(|(kind, latencies)| (kind, latencies.buckets()))
                .collect(),
        },
        Err(error) => Answer::Failed(error.to_string()),
    };
    println!(
        "{}",
        serde_json::to_string(&answer).map_err(|error| error.to_string())?
    );
    Ok(ExitCode::SUCCESS)
}

fn work() -> Result<Finished, Error> {
    let job: Job = serde_json::from_str(&read_line()?)
        .map_err(|error| Error::Wrong(format!("expected a job on standard input: {error}")))?;
    let settings = Settings {
        mode: Mode::parse(&job.mode)?,
        synchronous: job.synchronous,
        autocheckpoint: job.autocheckpoint,
    };
    let files = job.plan.databases();
    let mut seats = Vec::new();
    for _ in 0..job.threads {
        let seat = Databases::open(&settings, &job.path, files)?;
        if let Some(kib) = job.cache_kib {
            seat.set_cache_kib(kib)?;
        }
        seats.push(seat);
    }
    let gate = || {
        println!("{READY}");
        let line = read_line()?;
        if line != GO {
            return Err(Error::Wrong(format!("\"{GO}\" expected, \"{line}\" read")));
        }
        thread::spawn(end_with_parent);
        Ok(())
    };
    let never = AtomicBool::new(false);
    team::run(
        &job.plan,
        job.first_worker,
        &mut seats,
        &Control::default(),
        &never,
        gate,
    )
}

fn read_line() -> Result<String, Error> {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|error| Error::Wrong(format!("standard input: {error}")))?;
    Ok(line.trim_end().to_owned())
}

/// Waits for the end of standard input, which is the end of the parent.
fn end_with_parent() {
    while read_line().is_ok_and(|line| !line.is_empty()) {}
    std::process::exit(1);
}
