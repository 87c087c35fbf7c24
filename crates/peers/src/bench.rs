//! Runs every engine under every workload on one scratch file system, and counts the device's work.
//!
//! A run has three processes. One prepares the store. One does the work and is then killed. One
//! opens the store again and reads everything back. The device's figures cover the time of the
//! work. Before it, everything is written out, so they include nothing of the preparation.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use onewrite_iotrace::meter::{Figures, Meter, Watched};
use onewrite_iotrace::scratch::{FileSystem, Options, Scratch};
use onewrite_iotrace::tracefs::Tracefs;
use onewrite_workload::latency::{Latencies, Percentiles};
use serde::de::DeserializeOwned;

use crate::engine::{Result, Setting};
use crate::report::{Device, Outcome, Run};
use crate::work::Workload;
use crate::worker::{Job, READY, Ran, Task, Verified};

/// Bytes of the scratch file system.
const IMAGE_BYTES: u64 = 2 << 30;

/// How long one answer of a worker may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// One square of the table.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The workload.
    pub workload: Workload,
    /// The number of threads.
    pub threads: usize,
    /// The number of measured operations.
    pub operations: u64,
}

/// A scratch file system with a place for one store.
pub struct Place {
    // Fields drop in this order: the trace must end before its file system.
    tracefs: Tracefs,
    scratch: Scratch,
}

impl Place {
    /// Makes an ext4 on a loop device, its image in `parent`.
    pub fn make(parent: &Path) -> Result<Self> {
        let options = Options {
            file_system: FileSystem::Ext4,
            bytes: IMAGE_BYTES,
            parent,
            stop: &AtomicBool::new(false),
        };
        let scratch = Scratch::create(&options)?;
        let tracefs = Tracefs::open(&scratch.host_dir().join("tracing"))?;
        Ok(Self { tracefs, scratch })
    }

    /// Unmounts and removes it.
    pub fn remove(self) -> Result<()> {
        drop(self.tracefs);
        Ok(self.scratch.remove()?)
    }

    /// Runs an engine once.
    pub fn run(&self, setting: &'static Setting, cell: Cell) -> Run {
        let dir = self.scratch.root().join("store");
        let outcome = fs::create_dir(&dir)
            .map_err(Into::into)
            .and_then(|()| self.run_in(&dir, setting, cell));
        let removed = fs::remove_dir_all(&dir);
        let outcome = match (outcome, removed) {
            (Ok(outcome), Ok(())) => Ok(outcome),
            (Ok(_), Err(error)) => Err(format!("cannot remove {}: {error}", dir.display())),
            (Err(error), _) => Err(error.to_string()),
        };
        Run {
            engine: setting.name,
            durable: setting.durable,
            workload: cell.workload,
            threads: cell.threads,
            operations: cell.operations,
            outcome,
        }
    }

    fn run_in(&self, dir: &Path, setting: &Setting, cell: Cell) -> Result<Outcome> {
        let job = |task| Job {
            engine: setting.name.to_owned(),
            dir: dir.to_owned(),
            workload: cell.workload,
            task,
        };
        let _: Verified = Worker::start(&job(Task::Populate))?.last()?;
        let database = dir.join("test.db");
        let (ext4, tracefs) = (FileSystem::Ext4, Some(&self.tracefs));
        let meter = Meter::new(&Watched::scratch(&self.scratch, ext4, &database, tracefs))?;
        let mut worker = Worker::start(&job(Task::Run {
            operations: cell.operations,
            threads: cell.threads,
        }))?;
        let ready = worker.line()?;
        if ready != READY {
            return Err(format!("a worker said {ready}").into());
        }
        let from = meter.settle()?;
        worker.go()?;
        let ran: Ran = worker.answer()?;
        let until = meter.mark()?;
        worker.kill()?;
        let stored_bytes = bytes_below(dir)?;
        let settled = meter.settle()?;
        let (figures, notes) = meter.finish(&[(from, until), (until, settled)]);
        let verify = Task::Verify {
            operations: cell.workload.warm_up() + cell.operations,
        };
        let verified: Verified = Worker::start(&job(verify))?.last()?;
        if verified.check != "ok" {
            return Err(format!("its own check says: {}", verified.check).into());
        }
        Ok(Outcome {
            device: device(&figures),
            ops_per_s: cell.operations as f64 / ran.elapsed_s.max(1e-9),
            elapsed_s: ran.elapsed_s,
            cpu_s: ran.cpu_s,
            latency_us: percentiles(&ran),
            peak_kib: ran.peak_kib,
            stored_bytes,
            verified_rows: verified.rows,
            notes,
        })
    }
}

fn percentiles(ran: &Ran) -> Percentiles {
    let mut latencies = Latencies::new();
    ran.latencies.iter().for_each(|b| latencies.record(*b));
    latencies.percentiles()
}

fn device(figures: &[Figures]) -> Device {
    let (run, later) = (&figures[0], &figures[1]);
    Device {
        write_bytes: run.counters.write_bytes,
        writes: run.writes,
        flushes: run.counters.flushes,
        fs_journal_bytes: run.by_file.map(|by_file| by_file.fs_journal_bytes),
        later_bytes: later.counters.write_bytes,
    }
}

/// Bytes that the files of a directory occupy on the device.
fn bytes_below(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;

    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += match metadata.is_dir() {
            true => bytes_below(&entry.path())?,
            false => metadata.blocks() * 512,
        };
    }
    Ok(bytes)
}

/// A worker, killed when this value ends.
struct Worker {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Worker {
    fn start(job: &Job) -> Result<Self> {
        let program: PathBuf = std::env::current_exe()?;
        let mut child = Command::new(program)
            .arg("worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("a worker without output")?;
        let input = child.stdin.take().ok_or("a worker without input")?;
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(|line| line.ok()) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let mut worker = Self {
            child,
            input,
            lines,
        };
        worker.input.write_all(&serde_json::to_vec(job)?)?;
        worker.go()?;
        Ok(worker)
    }

    fn go(&mut self) -> Result<()> {
        Ok(self.input.write_all(b"\n")?)
    }

    fn line(&mut self) -> Result<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("no answer within {} s", PATIENCE.as_secs()).into())
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(format!("it ended early, {}", self.child.wait()?).into())
            }
        }
    }

    fn answer<T: DeserializeOwned>(&mut self) -> Result<T> {
        Ok(serde_json::from_str(&self.line()?)?)
    }

    /// Returns the only answer, and waits for the end of the process.
    fn last<T: DeserializeOwned>(mut self) -> Result<T> {
        let answer = self.answer()?;
        let status = self.child.wait()?;
        match status.success() {
            true => Ok(answer),
            false => Err(format!("it did not close the store well, {status}").into()),
        }
    }

    fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
