//! How long the first access to a database takes after a crash.
//!
//! An application runs. Its files are copied while its connections are open and a transaction is
//! under way. The process `cp` makes the copy. If this process closed a descriptor on the files, it
//! would drop SQLite's locks. The copy, once it is on the device, is the state after a crash. The
//! measured time covers opening each file of a copy and reading from it, which makes SQLite
//! recover. It is measured with the files in the page cache, as after the death of the process. It
//! is also measured with none of them there, as after a power cut.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use onewrite_iotrace::device::BlockDevice;
use onewrite_workload::connection::{Checkpoint, Settings};
use onewrite_workload::databases::Databases;
use onewrite_workload::plan::Plan;
use onewrite_workload::team::{self, Control};
use rustix::fs::{Advice, fadvise};

use super::experiment::Experiment;
use onewrite_cli::interrupt;

/// The median time of recovery, and the bytes to recover.
#[derive(Clone, Copy)]
pub struct Recovered {
    /// Milliseconds with the files in the page cache.
    pub ms: f64,
    /// Milliseconds with none of the files in the page cache.
    pub cold_ms: f64,
    /// Bytes of all logs or journals.
    pub log_bytes: u64,
    /// The device's flushes meanwhile; 0 if the files are on no device of their own.
    pub flushes: f64,
}

fn text(error: onewrite_workload::Error) -> String {
    error.to_string()
}

/// Runs a plan and crashes it in the transaction that `begin` has begun. Recovers `crashes` copies
/// of the files with the page cache, and as many without.
pub fn crashed(
    experiment: &Experiment<'_>,
    crashes: u32,
    plan: &Plan,
    settings: &Settings,
    begin: fn(&Databases) -> Result<(), String>,
) -> Result<Recovered, String> {
    let dir = experiment.directory("recovery")?;
    let live = dir.path().join("live");
    std::fs::create_dir(&live).map_err(|error| format!("{}: {error}", live.display()))?;
    let databases = ran(plan, settings, &live.join("test.db"))?;
    begin(&databases)?;
    let copies = Copies {
        live: &live,
        copy: dir.path().join("crash"),
        times: crashes,
        plan,
        settings,
    };
    let warm = copies.opened(on_device)?;
    let cold = copies.opened(off_page_cache)?;
    for connection in databases.all() {
        let rolled_back = connection.execute_batch("ROLLBACK");
        rolled_back.map_err(|error| format!("rollback: {error}"))?;
    }
    databases.close().map_err(text)?;
    Ok(Recovered {
        cold_ms: cold.ms,
        ..warm
    })
}

/// The same without a crash: milliseconds with the files in the page cache.
pub fn closed(
    experiment: &Experiment<'_>,
    times: u32,
    plan: &Plan,
    settings: &Settings,
) -> Result<f64, String> {
    let dir = experiment.directory("opening")?;
    let live = dir.path().join("live");
    std::fs::create_dir(&live).map_err(|error| format!("{}: {error}", live.display()))?;
    let databases = ran(plan, settings, &live.join("test.db"))?;
    databases.close().map_err(text)?;
    let copies = Copies {
        live: &live,
        copy: dir.path().join("copy"),
        times,
        plan,
        settings,
    };
    Ok(copies.opened(on_device)?.ms)
}

/// Copies of the files, to be opened for the first time.
struct Copies<'a> {
    live: &'a Path,
    copy: PathBuf,
    times: u32,
    plan: &'a Plan,
    settings: &'a Settings,
}

impl Copies<'_> {
    /// The medians of the first access.
    fn opened(&self, prepare: fn(&Path) -> Result<(), String>) -> Result<Recovered, String> {
        let (mut times, mut flushes, mut log_bytes) = (Vec::new(), Vec::new(), 0);
        for _ in 0..self.times {
            copied(self.live, &self.copy)?;
            log_bytes = bytes_of_logs(&self.copy)?;
            prepare(&self.copy)?;
            let first = recover(self.settings, self.plan, &self.copy.join("test.db"))?;
            times.push(first.0);
            flushes.push(first.1 as f64);
            std::fs::remove_dir_all(&self.copy)
                .map_err(|error| format!("{}: {error}", self.copy.display()))?;
        }
        times.sort_by(f64::total_cmp);
        flushes.sort_by(f64::total_cmp);
        let ms = onewrite_common::median(&times).ok_or("no crash")?;
        Ok(Recovered {
            ms,
            cold_ms: ms,
            log_bytes,
            flushes: onewrite_common::median(&flushes).unwrap_or(0.0),
        })
    }
}

/// Runs a plan and returns its databases.
fn ran(plan: &Plan, settings: &Settings, path: &Path) -> Result<Databases, String> {
    let stop = interrupt::requested();
    let mut databases = Databases::open(settings, path, plan.databases()).map_err(text)?;
    plan.populate(&mut databases, stop).map_err(text)?;
    databases.checkpoint(Checkpoint::Truncate).map_err(text)?;
    let mut seats = [databases];
    team::run(plan, 0, &mut seats, &Control::default(), stop, || Ok(())).map_err(text)?;
    let [databases] = seats;
    Ok(databases)
}

/// Copies all files except those that only live processes share.
fn copied(from: &Path, to: &Path) -> Result<(), String> {
    let output = Command::new("cp").arg("-r").arg(from).arg(to).output();
    let output = output.map_err(|error| format!("cp: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "cp: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    let failed = |error: std::io::Error| format!("{}: {error}", to.display());
    for entry in std::fs::read_dir(to).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.as_os_str().as_encoded_bytes().ends_with(b"-shm") {
            std::fs::remove_file(&path).map_err(failed)?;
        }
    }
    Ok(())
}

fn bytes_of_logs(dir: &Path) -> Result<u64, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if [&b"-wal"[..], b"-onewrite", b"-journal"]
            .iter()
            .any(|end| name.ends_with(end))
        {
            bytes += entry.metadata().map_err(failed)?.len();
        }
    }
    Ok(bytes)
}

/// Makes a copy durable, so that a flush in recovery does not have to write it.
fn on_device(copy: &Path) -> Result<(), String> {
    each_file(copy, |file| file.sync_all())
}

/// Makes a copy durable and drops it from the page cache.
fn off_page_cache(copy: &Path) -> Result<(), String> {
    each_file(copy, |file| {
        file.sync_all()?;
        Ok(fadvise(file, 0, None, Advice::DontNeed)?)
    })
}

fn each_file(dir: &Path, act: impl Fn(&File) -> std::io::Result<()>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        File::open(path)
            .and_then(|file| act(&file))
            .map_err(failed)?;
    }
    Ok(())
}

/// Flushes of the device that holds a file so far; 0 if that is no block device.
fn flushes(path: &Path) -> u64 {
    let device = BlockDevice::holding(path).ok().flatten();
    let counters = device.and_then(|device| device.counters().ok());
    counters.map_or(0, |counters| counters.flushes)
}

/// Opens every file and reads from it; returns milliseconds and the device's flushes. Checks the
/// content after the measurement.
fn recover(settings: &Settings, plan: &Plan, path: &Path) -> Result<(f64, u64), String> {
    let flushes_before = flushes(path);
    let begun = Instant::now();
    let databases = Databases::open(settings, path, plan.databases()).map_err(text)?;
    for connection in databases.all() {
        let read: Result<i64, _> =
            connection.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0));
        read.map_err(|error| format!("recovery: {error}"))?;
    }
    let ms = begun.elapsed().as_secs_f64() * 1e3;
    let flushed = flushes(path) - flushes_before;
    let found = plan.check(&databases).map_err(text)?;
    if !found.is_ok() {
        return Err(format!(
            "recovery in {} left something else than what was committed: {}; {}",
            settings.mode, found.content, found.integrity_check
        ));
    }
    databases.close().map_err(text)?;
    Ok((ms, flushed))
}
