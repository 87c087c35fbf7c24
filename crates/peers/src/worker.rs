//! A process that has one store open and nothing else, so that its processor time and memory are
//! the engine's. It is this program again, as `onewrite-peers worker`.
//!
//! It reads a [`Job`] from a line of its standard input. A run prints [`READY`] when everything is
//! ready, and begins after another line. It prints its measurements, a [`Ran`], and waits for a
//! signal to kill it: committed data must not depend on a clean end. Other jobs answer with a
//! [`Verified`] and end.

use std::fs;
use std::io::{BufRead, Write, stdin, stdout};
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use onewrite_workload::clock::{Nanos, process_cpu_nanos, process_peak_kib};
use onewrite_workload::latency::{Bucket, Latencies};
use serde::{Deserialize, Serialize};

use crate::engine::{Engine, Result, Setting};
use crate::work::{self, Workload};

/// The line of a run that is ready to begin.
pub const READY: &str = "ready";

/// The work of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The engine's name.
    pub engine: String,
    /// The store's directory.
    pub dir: PathBuf,
    /// The workload.
    pub workload: Workload,
    /// The part of the job.
    pub task: Task,
}

/// A part of a job.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Task {
    /// Fill the store before the measurement.
    Populate,
    /// Run the operations, after a warm-up.
    Run {
        /// The number of measured operations.
        operations: u64,
        /// The number of threads that share them.
        threads: usize,
    },
    /// Read everything back.
    Verify {
        /// The number of all operations, including the warm-up's.
        operations: u64,
    },
}

/// The measurements of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ran {
    /// From the first operation's beginning to the last one's end.
    pub elapsed_s: f64,
    /// Processor time in that time, of the process and of its server.
    pub cpu_s: f64,
    /// The times of the operations.
    pub latencies: Vec<Bucket>,
    /// The peak memory of the process during the run, in KiB: its own, and pages of files that it
    /// has mapped. A server's memory is that of the run's end.
    pub peak_kib: u64,
}

/// The findings in a store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verified {
    /// Rows that were read and are correct.
    pub rows: u64,
    /// The result of the engine's own check.
    pub check: String,
}

/// Does the job on standard input.
pub fn main() -> Result<()> {
    let mut line = String::new();
    stdin().lock().read_line(&mut line)?;
    let job: Job = serde_json::from_str(&line)?;
    let setting = Setting::named(&job.engine).ok_or("there is no such engine")?;
    let engine = setting.open(&job.dir)?;
    match job.task {
        Task::Populate => {
            work::populate(job.workload, &mut *engine.session()?)?;
            say(&Verified {
                rows: 0,
                check: String::new(),
            })
        }
        Task::Run {
            operations,
            threads,
        } => {
            say(&run(&*engine, job.workload, operations, threads)?)?;
            // Usually killed here.
            stdin().lock().read_line(&mut line)?;
            Ok(())
        }
        Task::Verify { operations } => {
            let rows = work::verify(job.workload, &mut *engine.session()?, operations)?;
            say(&Verified {
                rows,
                check: engine.check()?,
            })
        }
    }
}

fn say(what: &impl Serialize) -> Result<()> {
    let mut out = stdout().lock();
    serde_json::to_writer(&mut out, what)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// The measurements of a thread.
struct Thread {
    began: Nanos,
    ended: Nanos,
    latencies: Latencies,
}

fn run(engine: &dyn Engine, workload: Workload, operations: u64, threads: usize) -> Result<Ran> {
    let warm_up = workload.warm_up();
    {
        let mut session = engine.session()?;
        (0..warm_up).try_for_each(|number| work::operate(workload, &mut *session, number))?;
    }
    let (ready, go, failed) = (
        Barrier::new(threads + 1),
        Barrier::new(threads + 1),
        AtomicBool::new(false),
    );
    let one = |thread: usize| -> Result<Thread> {
        let session = engine.session();
        ready.wait();
        go.wait();
        let mut session = session?;
        let (mut latencies, began) = (Latencies::new(), Nanos::now());
        let mut ended = began;
        for number in work::share(warm_up..warm_up + operations, thread, threads) {
            if failed.load(Ordering::Relaxed) {
                break;
            }
            let done = work::operate(workload, &mut *session, number);
            done.inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            let before = std::mem::replace(&mut ended, Nanos::now());
            latencies.record_nanos(ended.0.saturating_sub(before.0));
        }
        Ok(Thread {
            began,
            ended,
            latencies,
        })
    };
    thread::scope(|scope| {
        let one = &one;
        let running: Vec<_> = (0..threads)
            .map(|number| scope.spawn(move || one(number)))
            .collect();
        ready.wait();
        // Resets the kernel's peak. Without this feature, the peak includes the warm-up.
        let _ = fs::write("/proc/self/clear_refs", "5");
        let told = told_to_go();
        let cpu = cpu_nanos(engine);
        go.wait();
        told?;
        let joined = running
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a thread panicked")?);
        let threads = joined.collect::<Result<Vec<Thread>>>()?;
        let cpu_s = (cpu_nanos(engine)? - cpu?) as f64 / 1e9;
        let mut latencies = Latencies::new();
        threads.iter().for_each(|t| latencies.add(&t.latencies));
        let first = threads.iter().map(|t| t.began).min();
        let last = threads.iter().map(|t| t.ended).max();
        let (first, last) = first.zip(last).ok_or("no threads")?;
        Ok(Ran {
            elapsed_s: last.seconds_since(first),
            cpu_s,
            latencies: latencies.buckets(),
            peak_kib: process_peak_kib().ok_or("no VmHWM in /proc/self/status")?
                + engine.server()?.memory_kib,
        })
    })
}

/// Processor time of this process, and of a server's.
fn cpu_nanos(engine: &dyn Engine) -> Result<u64> {
    Ok(process_cpu_nanos() + engine.server()?.cpu_nanos)
}

fn told_to_go() -> Result<()> {
    println!("{READY}");
    stdout().flush()?;
    let mut line = String::new();
    match stdin().lock().read_line(&mut line)? {
        0 => Err("nobody is there any more".into()),
        _ => Ok(()),
    }
}
