//! Whole checkpoint cycles of WAL in the measured part of a run.
//!
//! SQLite writes to a log until a commit makes it [`AUTOCHECKPOINT`] frames long, and then copies it
//! into the database. A run that ends in between has written to the log what it has not copied.
//!
//! So a rehearsal in a plain directory counts the frames of each transaction. They decide where the
//! measured part begins and ends, in all modes alike. Before it begins, all logs are copied, so that
//! their cycles begin with it. It ends with a cycle. An application with several files has several
//! logs, and the cycle is that of the log with most frames. What the others still hold is copied at
//! the end of the measured part. The run's own checkpoints are counted by its logs' headers.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use onewrite_cli::interrupt;
use onewrite_workload::connection::{Checkpoint, Settings};
use onewrite_workload::databases::{Databases, paths};
use onewrite_workload::mode::Synchronous;
use onewrite_workload::plan::{Op, Plan};
use onewrite_workload::{Error, team};
use serde::Serialize;

use super::trial::{AUTOCHECKPOINT, page_size, plan, set_cache, settings};

/// Bytes of a log's header, and of a frame's.
const HEADER: u64 = 32;
const FRAME_HEADER: u64 = 24;
/// The most rehearsals of one workload.
const MOST: u32 = 12;

/// The transactions of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    pub warm_up: u32,
    pub measured: u32,
}

/// The parameters of a workload's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    pub op: Op,
    pub updates: u32,
    /// The fewest transactions to measure.
    pub asked: u32,
    pub seed: u64,
    /// Bytes of a page of the database.
    pub page_bytes: u64,
    /// The fewest transactions before them.
    pub warm_up: u32,
    /// MiB of SQLite's cache, which decides when a transaction's pages go to the log.
    pub cache_mib: u32,
}

/// Lengths by workload, each rehearsed once.
#[derive(Debug, Default)]
pub struct Lengths(Vec<(Workload, Length)>);

impl Lengths {
    /// The length of a workload's runs.
    pub fn of(&mut self, workload: Workload) -> Result<Length, String> {
        if let Some((_, length)) = self.0.iter().find(|(known, _)| *known == workload) {
            return Ok(*length);
        }
        let length = find(workload)?;
        self.0.push((workload, length));
        Ok(length)
    }
}

fn find(workload: Workload) -> Result<Length, String> {
    let Workload {
        op,
        updates,
        asked,
        seed,
        warm_up,
        ..
    } = workload;
    // The transactions of such a trace depend on its length.
    let is_trace = op.trace_length().is_some();
    let mut measured = asked;
    for _ in 0..MOST {
        let plan = plan(op, warm_up, measured, updates, seed);
        eprintln!(
            "onewrite: {}: frames of {} transactions are counted",
            op.name(),
            plan.count
        );
        let frames =
            rehearsed(&plan, workload).map_err(|error| format!("{}: {error}", op.name()))?;
        if let Some(length) = whole(&frames, warm_up as usize, asked as usize, is_trace) {
            return Ok(length);
        }
        let logged: u32 = frames.iter().skip(warm_up as usize).sum();
        let cycles = f64::from(AUTOCHECKPOINT) / f64::from(logged.max(1));
        measured = match cycles > 1.0 {
            true => (f64::from(measured) * (cycles * 1.1).min(10.0)) as u32 + 1,
            // All of a trace is run, so that it grows in small steps.
            false if is_trace => measured + measured / 8 + 1,
            false => measured + measured / 2 + 1,
        };
    }
    Err(format!(
        "{}: no whole checkpoint cycle in {measured} transactions",
        op.name()
    ))
}

/// The part of these transactions, by their frames, that has whole cycles only: at least `asked`,
/// after at least `least`. All of a trace must be run, so that it ends with its last frame.
fn whole(frames: &[u32], least: usize, asked: usize, is_trace: bool) -> Option<Length> {
    let latest = match is_trace {
        true => frames.len().checked_sub(asked)?,
        false => least,
    };
    let found = (least..=latest).rev().find_map(|from| {
        let is_end = |end: &usize| {
            let is_last = || frames[*end..].iter().all(|frames| *frames == 0);
            end - from >= asked && (!is_trace || is_last())
        };
        let end = ends(frames, from).find(is_end)?;
        Some((from, if is_trace { frames.len() } else { end }))
    });
    found.map(|(from, end)| Length {
        warm_up: from as u32,
        measured: (end - from) as u32,
    })
}

/// The transactions after which a log that is empty before `from` is copied.
fn ends(frames: &[u32], from: usize) -> impl Iterator<Item = usize> {
    let mut log = 0;
    (from..frames.len()).filter_map(move |at| {
        log += frames[at];
        (log >= AUTOCHECKPOINT).then(|| {
            log = 0;
            at + 1
        })
    })
}

/// The frames of each transaction in the log with most of them after the warm-up.
fn rehearsed(plan: &Plan, workload: Workload) -> Result<Vec<u32>, String> {
    let Workload {
        page_bytes,
        warm_up,
        cache_mib,
        ..
    } = workload;
    let text = |error: Error| error.to_string();
    let dir = tempfile::tempdir().map_err(|error| format!("cannot make a directory: {error}"))?;
    let (path, files) = (dir.path().join("test.db"), plan.databases());
    page_size(&path, files, page_bytes)?;
    let settings = Settings {
        synchronous: Synchronous::Off,
        // Each log has all frames.
        autocheckpoint: 0,
        ..settings("wal")?
    };
    let stop = AtomicBool::new(false);
    let mut databases = Databases::open(&settings, &path, files).map_err(text)?;
    set_cache(&databases, files, cache_mib)?;
    plan.populate(&mut databases, &stop).map_err(text)?;
    databases.checkpoint(Checkpoint::Truncate).map_err(text)?;
    let logs = paths(&path, files).map(|path| Rehearsed::of(path, page_bytes));
    let mut logs: Vec<Rehearsed> = logs.collect();
    team::each(plan, &mut databases, &stop, || {
        if interrupt::is_requested() {
            return Err(Error::Interrupted);
        }
        logs.iter_mut().for_each(Rehearsed::count);
        Ok(())
    })
    .map_err(text)?;
    databases.close().map_err(text)?;
    let after = |log: &Rehearsed| -> u32 { log.frames.iter().skip(warm_up as usize).sum() };
    let longest = logs.into_iter().max_by_key(after);
    Ok(longest.map(|log| log.frames).unwrap_or_default())
}

/// A log of a rehearsal, which is never copied.
struct Rehearsed {
    path: PathBuf,
    /// Bytes of a frame.
    frame: u64,
    /// All frames so far.
    all: u64,
    /// The frames of each transaction.
    frames: Vec<u32>,
}

impl Rehearsed {
    fn of(database: PathBuf, page_bytes: u64) -> Self {
        Self {
            path: log_of(&database),
            frame: FRAME_HEADER + page_bytes,
            all: 0,
            frames: Vec::new(),
        }
    }

    /// A transaction has ended.
    fn count(&mut self) {
        let bytes = std::fs::metadata(&self.path).map_or(0, |found| found.len());
        let all = bytes.saturating_sub(HEADER) / self.frame;
        self.frames.push((all - self.all) as u32);
        self.all = all;
    }
}

/// The log of a database.
fn log_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

/// Checkpoints of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Checkpoints {
    /// Those that SQLite made when a log was long enough.
    pub automatic: u32,
    /// Those of what was left in logs at the end.
    pub at_end: u32,
}

/// The logs of a run.
#[derive(Debug)]
pub struct Logs {
    paths: Vec<PathBuf>,
    before: Vec<Option<Log>>,
}

impl Logs {
    /// Copies all logs, so that their cycles begin now. `None` in a journal mode without a log.
    pub fn begin(
        journal: &str,
        path: &Path,
        files: usize,
        databases: &Databases,
    ) -> Result<Option<Self>, String> {
        if !journal.starts_with("wal") {
            return Ok(None);
        }
        copy(databases)?;
        let paths: Vec<PathBuf> = paths(path, files).map(|path| log_of(&path)).collect();
        let before = paths.iter().map(|path| Log::of(path));
        Ok(Some(Self {
            before: before.collect::<Result<_, _>>()?,
            paths,
        }))
    }

    /// The checkpoints since then. [`copy`] has copied the rest.
    pub fn checkpoints(&self) -> Result<Checkpoints, String> {
        let mut all = Checkpoints::default();
        for (path, before) in self.paths.iter().zip(&self.before) {
            let Some(after) = Log::of(path)? else {
                continue;
            };
            // The first cycle of a new log has number 0.
            let begun = match before {
                Some(before) => after.cycle.wrapping_sub(before.cycle),
                None => after.cycle + 1,
            };
            let has_rest = begun > 0 && after.frames < AUTOCHECKPOINT;
            all.automatic += begun - u32::from(has_rest);
            all.at_end += u32::from(has_rest);
        }
        Ok(all)
    }
}

/// Copies what logs still hold.
pub fn copy(databases: &Databases) -> Result<(), String> {
    let copied = databases.checkpoint(Checkpoint::Full);
    copied.map_err(|error| error.to_string())
}

/// A log between two transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Log {
    /// The number in its header, which grows when it is written from its start again.
    cycle: u32,
    /// Frames of this cycle.
    frames: u32,
}

impl Log {
    /// `None` if nothing was ever written to it.
    fn of(path: &Path) -> Result<Option<Self>, String> {
        let failed = |error| format!("cannot read {}: {error}", path.display());
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let bytes = file.metadata().map_err(failed)?.len();
        let mut header = [0; HEADER as usize];
        if bytes < HEADER {
            return Ok(None);
        }
        file.read_exact_at(&mut header, 0).map_err(failed)?;
        let [.., page_0, page_1, page_2, page_3, a, b, c, d] = header[..16] else {
            return Ok(None);
        };
        let page = u32::from_be_bytes([page_0, page_1, page_2, page_3]);
        let frame = FRAME_HEADER + u64::from(page);
        let mut frames = 0;
        // A frame of this cycle has the header's salts.
        for at in (0..(bytes - HEADER) / frame).map(|number| HEADER + number * frame) {
            let mut salts = [0; 8];
            file.read_exact_at(&mut salts, at + 8).map_err(failed)?;
            if salts != header[16..24] {
                break;
            }
            frames += 1;
        }
        Ok(Some(Self {
            cycle: u32::from_be_bytes([a, b, c, d]),
            frames,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_with_the_cycle_that_it_has_begun() {
        // 4 frames each: a cycle is 250 transactions, and begins after the warm-up.
        let length = |frames: &[u32], asked| whole(frames, 10, asked, false);
        let frames = [4; 600];
        let of = |measured| {
            Some(Length {
                warm_up: 10,
                measured,
            })
        };
        assert_eq!(length(&frames, 200), of(250));
        assert_eq!(length(&frames, 251), of(500));
        assert_eq!(length(&frames, 501), None);
        assert_eq!(length(&frames[..259], 1), None);
    }

    #[test]
    fn a_trace_ends_with_its_last_transaction_and_begins_where_that_ends_a_cycle() {
        let mut frames = vec![7; 400];
        frames.extend([0, 0]);
        let found = whole(&frames, 10, 100, true).unwrap();
        assert_eq!(found.warm_up + found.measured, 402);
        // The last frames end a cycle, and the transactions before do not.
        let measured = &frames[found.warm_up as usize..];
        assert_eq!(ends(measured, 0).last(), Some(measured.len() - 2));
        assert_eq!(whole(&frames, 10, 399, true), None);
    }

    #[test]
    fn a_rehearsal_says_what_sqlite_does() {
        let workload = Workload {
            op: Op::Partsupply,
            updates: 20,
            asked: 20,
            seed: 1,
            page_bytes: 8192,
            warm_up: 600,
            cache_mib: 400,
        };
        let Length { warm_up, measured } = find(workload).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("test.db");
        page_size(&path, 1, 8192).unwrap();
        let plan = plan(Op::Partsupply, warm_up, measured, 20, 1);
        let stop = AtomicBool::new(false);
        let mut databases = Databases::open(&settings("wal").unwrap(), &path, 1).unwrap();
        set_cache(&databases, 1, 400).unwrap();
        plan.populate(&mut databases, &stop).unwrap();
        let control = team::Control::default();
        team::warm_up(&plan, &mut databases, &control, &stop).unwrap();
        let logs = Logs::begin("wal", &path, 1, &databases).unwrap().unwrap();
        assert_eq!(logs.checkpoints().unwrap(), Checkpoints::default());
        let mut done = 0;
        team::run(
            &plan,
            0,
            std::slice::from_mut(&mut databases),
            &control,
            &stop,
            || Ok(()),
        )
        .unwrap();
        let one = Checkpoints {
            automatic: 1,
            at_end: 0,
        };
        assert_eq!(logs.checkpoints().unwrap(), one);
        // Another transaction begins a cycle, which only the end of the run would copy.
        team::each(&plan, &mut databases, &stop, || {
            done += 1;
            match done {
                1 => Err(Error::Interrupted),
                _ => Ok(()),
            }
        })
        .unwrap_err();
        copy(&databases).unwrap();
        assert_eq!(
            logs.checkpoints().unwrap(),
            Checkpoints { at_end: 1, ..one }
        );
    }
}
