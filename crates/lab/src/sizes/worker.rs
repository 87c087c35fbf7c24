//! A process of `sizes`: makes a database, runs commits on it, or recovers it.
//!
//! Flushes and bytes are counted by the device, bytes of the process by the kernel
//! (`/proc/self/io`). So the counts of both engines come from the same places.

use std::fs;
use std::io::Write as _;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};

use onewrite_common::random::SplitMix64;
use onewrite_iotrace::device::{BlockDevice, Counters};
use onewrite_workload::connection::Settings;
use onewrite_workload::mode::{Mode, Synchronous};
use onewrite_workload::zipfian::Zipfian;
use rusqlite::{Connection, params};
use rustix::fs::{Advice, fadvise};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::Value;

use super::job::{Answer, GAP, Job, Last, Recovered, Task, Worked, Workload};

/// Rows of a transaction that fills the database.
const AT_ONCE: i64 = 5_000;

/// The longest wait for a device that still writes.
const SETTLES: Duration = Duration::from_secs(20);

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// Runs a job and prints the answer.
pub fn run(job: &Job) -> Result<(), String> {
    match job.task {
        Task::Make { bytes, dense } => {
            let connection = open(job, Synchronous::Off, 1_000)?;
            let made = make(&connection, bytes, job.row, dense)?;
            connection.close().map_err(|(_, error)| text(error))?;
            answer(Answer::Done(made))
        }
        Task::Work { killed, .. } => {
            let (connection, worked) = work(job)?;
            answer(Answer::Worked(worked))?;
            if killed {
                return die();
            }
            connection.close().map_err(|(_, error)| text(error))
        }
        Task::Recover { last, cold } => {
            answer(Answer::Recovered(recover(job, last, cold)?))?;
            die()
        }
        Task::Close => {
            let connection = open(job, Synchronous::Full, 1_000)?;
            let bytes = pages(&connection)? * 4096;
            connection.close().map_err(|(_, error)| text(error))?;
            answer(Answer::Done(bytes))
        }
    }
}

fn answer(answer: Answer) -> Result<(), String> {
    let line = serde_json::to_string(&answer).map_err(text)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(text)
}

/// Ends the process as a crash of the program does.
fn die() -> Result<(), String> {
    kill_process(getpid(), Signal::KILL).map_err(text)?;
    Err("a killed process goes on".to_owned())
}

fn settings(job: &Job, synchronous: Synchronous, autocheckpoint: u32) -> Result<Settings, String> {
    Ok(Settings {
        mode: Mode::parse(&job.mode).map_err(text)?,
        synchronous,
        autocheckpoint,
    })
}

fn open(job: &Job, synchronous: Synchronous, autocheckpoint: u32) -> Result<Connection, String> {
    let settings = settings(job, synchronous, autocheckpoint)?;
    settings.open(&job.path).map_err(text)
}

fn number(connection: &Connection, sql: &str) -> Result<i64, String> {
    let found = connection.query_row(sql, (), |row| row.get(0));
    found.map_err(|error| format!("{sql}: {error}"))
}

fn pages(connection: &Connection) -> Result<u64, String> {
    Ok(number(connection, "PRAGMA page_count")?.unsigned_abs())
}

/// Fills the database, and deletes some rows everywhere. Returns its bytes.
fn make(connection: &Connection, bytes: u64, row: usize, dense: bool) -> Result<u64, String> {
    let run = |sql: &str| {
        let done = connection.execute_batch(sql);
        done.map_err(|error| format!("{sql}: {error}"))
    };
    run("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB NOT NULL)")?;
    let value = vec![1u8; row];
    let mut rows = 0;
    while pages(connection)? * 4096 < bytes {
        // A small database does not grow by a whole transaction.
        let left = (bytes / row as u64 / 20).clamp(50, AT_ONCE.unsigned_abs());
        run("BEGIN")?;
        let mut insert = connection
            .prepare_cached("INSERT INTO t VALUES (?1, ?2)")
            .map_err(text)?;
        for _ in 0..left {
            rows += 1;
            insert.execute(params![rows, value]).map_err(text)?;
        }
        run("COMMIT")?;
    }
    if !dense {
        for from in (0..=rows).step_by(AT_ONCE as usize) {
            let to = from + AT_ONCE;
            run(&format!(
                "DELETE FROM t WHERE id > {from} AND id <= {to} AND id % {GAP} = 0"
            ))?;
        }
    }
    Ok(pages(connection)? * 4096)
}

/// Draws the rows of commits.
struct Keys {
    workload: Workload,
    random: SplitMix64,
    zipfian: Zipfian,
    /// The newest row.
    newest: i64,
    /// The rows of the start.
    rows: u32,
}

impl Keys {
    fn new(connection: &Connection, workload: Workload, seed: u64) -> Result<Self, String> {
        let newest = number(connection, "SELECT max(id) FROM t")?;
        let rows = u32::try_from(newest).map_err(text)?;
        Ok(Self {
            workload,
            random: SplitMix64::new(seed),
            zipfian: Zipfian::new(rows),
            newest,
            rows,
        })
    }

    /// An existing row for a number from 0.
    fn existing(number: u32) -> i64 {
        i64::from(number - number % GAP + 1)
    }

    /// The row of the next commit, and the rows that are read before it.
    fn next(&mut self) -> (i64, Vec<i64>) {
        match self.workload {
            Workload::Random => {
                let drawn = self.random.below(self.rows.into()) as u32;
                (Self::existing(drawn), Vec::new())
            }
            Workload::Appending => {
                self.newest += 1;
                (self.newest, Vec::new())
            }
            Workload::YcsbA => {
                let mut read = Vec::new();
                loop {
                    let row = self.zipfian_row();
                    if self.random.below(2) == 0 {
                        return (row, read);
                    }
                    read.push(row);
                }
            }
        }
    }

    /// Hot rows are not neighbors.
    fn zipfian_row(&mut self) -> i64 {
        let uniform = self.random.below(1 << 30) as f64 / f64::from(1 << 30);
        let rank = u64::from(self.zipfian.rank(uniform));
        Self::existing((rank * 7_919 % u64::from(self.rows)) as u32)
    }
}

/// The moment before or after a run of commits.
struct Moment {
    device: Counters,
    written: u64,
    status: Option<Value>,
    files: i64,
}

impl Moment {
    fn now(job: &Job, connection: &Connection, device: &BlockDevice) -> Result<Self, String> {
        let written = process_io()?.written_bytes;
        Ok(Self {
            device: device.wait_idle(SETTLES).map_err(text)?,
            written,
            status: status(job, connection)?,
            files: bytes_of_files(&job.path),
        })
    }

    /// A sum of the engine's own counts, if it has any.
    fn counted(&self, names: &[&str]) -> Option<u64> {
        let status = self.status.as_ref()?;
        names.iter().map(|name| status[*name].as_u64()).sum()
    }
}

fn status(job: &Job, connection: &Connection) -> Result<Option<Value>, String> {
    if !job.mode.starts_with("lsmvbt") {
        return Ok(None);
    }
    let status: String = connection
        .query_row("PRAGMA onewrite_status", (), |row| row.get(0))
        .map_err(text)?;
    serde_json::from_str(&status).map(Some).map_err(text)
}

/// Bytes of the database and the files next to it.
fn bytes_of_files(path: &Path) -> i64 {
    let sizes = ["", "-wal"].map(|end| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        fs::metadata(name).map_or(0, |metadata| metadata.len())
    });
    sizes.into_iter().sum::<u64>() as i64
}

fn work(job: &Job) -> Result<(Connection, Worked), String> {
    let Task::Work {
        workload,
        warm_up,
        count,
        reader,
        autocheckpoint,
        ..
    } = job.task
    else {
        return Err("no work".to_owned());
    };
    let connection = open(job, Synchronous::Full, autocheckpoint)?;
    let device = BlockDevice::holding(&job.path).map_err(text)?;
    let device = device.ok_or("the files are on no block device")?;
    let mut keys = Keys::new(&connection, workload, job.seed)?;
    commits(&connection, &mut keys, job, 1..=warm_up.into())?;
    let reading = match reader {
        false => None,
        true => {
            let reading = open(job, Synchronous::Full, autocheckpoint)?;
            let begun = reading.execute_batch("BEGIN; SELECT id FROM t LIMIT 1");
            begun.map_err(text)?;
            Some(reading)
        }
    };
    let before = Moment::now(job, &connection, &device)?;
    let stamps = u64::from(warm_up) + 1..=u64::from(warm_up) + u64::from(count);
    let begun = Instant::now();
    let last = commits(&connection, &mut keys, job, stamps)?;
    let took = begun.elapsed();
    let after = Moment::now(job, &connection, &device)?;
    let of_engine = |names: &[&str]| Some(after.counted(names)? - before.counted(names)?);
    let device = after.device.since(before.device);
    let worked = Worked {
        commits: count,
        us: took.as_secs_f64() * 1e6,
        flushes: device.flushes,
        device_bytes: device.write_bytes,
        written_bytes: after.written - before.written,
        grown_bytes: after.files - before.files,
        header_pages: of_engine(&["header_pages_written"]),
        splits: of_engine(&["lazy_splits", "append_splits", "legacy_splits"]),
        kept: of_engine(&["kept_for_readers"]),
        last,
    };
    drop(reading);
    Ok((connection, worked))
}

/// Commits of a row each, and the last of them. No value is that of an earlier commit: stock SQLite
/// writes no page for a row that stays the same.
fn commits(
    connection: &Connection,
    keys: &mut Keys,
    job: &Job,
    stamps: RangeInclusive<u64>,
) -> Result<Last, String> {
    let mut last = Last { id: 0, stamp: 0 };
    let mut value = vec![2; job.row];
    value[8..16].copy_from_slice(&job.seed.to_le_bytes());
    for stamp in stamps {
        let (id, read) = keys.next();
        for row in read {
            let sql = "SELECT v FROM t WHERE id = ?1";
            let mut statement = connection.prepare_cached(sql).map_err(text)?;
            let found: Vec<u8> = statement.query_row([row], |row| row.get(0)).map_err(text)?;
            std::hint::black_box(found);
        }
        value[..8].copy_from_slice(&stamp.to_le_bytes());
        let sql = match keys.workload {
            Workload::Appending => "INSERT INTO t VALUES (?1, ?2)",
            _ => "UPDATE t SET v = ?2 WHERE id = ?1",
        };
        let mut statement = connection.prepare_cached(sql).map_err(text)?;
        if statement.execute(params![id, value]).map_err(text)? != 1 {
            return Err(format!("there is no row {id}"));
        }
        last = Last { id, stamp };
    }
    Ok(last)
}

fn recover(job: &Job, last: Last, cold: bool) -> Result<Recovered, String> {
    if cold {
        drop_from_page_cache(&job.path)?;
    }
    let settings = settings(job, Synchronous::Full, 0)?;
    // Reading the counts counts, too.
    let idle = process_io()?;
    let before = process_io()?;
    let begun = Instant::now();
    // Asking for the settings in force is no part of a recovery, and stock modes have none to ask for.
    let connection = settings.open_unverified(&job.path).map_err(text)?;
    number(&connection, "SELECT count(*) FROM sqlite_schema")?;
    let us = begun.elapsed().as_secs_f64() * 1e6;
    let after = process_io()?;
    settings.verify(&connection).map_err(text)?;
    let found: Vec<u8> = connection
        .query_row("SELECT v FROM t WHERE id = ?1", [last.id], |row| row.get(0))
        .map_err(text)?;
    if found.get(..8) != Some(&last.stamp.to_le_bytes()[..]) {
        return Err(format!("{}: the last commit is lost", job.mode));
    }
    // It dies with the process, which closes nothing.
    std::mem::forget(connection);
    Ok(Recovered {
        read_bytes: (after.read_bytes - before.read_bytes)
            .saturating_sub(before.read_bytes - idle.read_bytes),
        read_calls: (after.read_calls - before.read_calls)
            .saturating_sub(before.read_calls - idle.read_calls),
        us,
    })
}

fn drop_from_page_cache(path: &Path) -> Result<(), String> {
    for end in ["", "-wal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        if let Ok(file) = fs::File::open(&name) {
            file.sync_all().map_err(text)?;
            fadvise(&file, 0, None, Advice::DontNeed).map_err(text)?;
        }
    }
    Ok(())
}

/// The kernel's counts of this process.
struct ProcessIo {
    read_bytes: u64,
    read_calls: u64,
    written_bytes: u64,
}

fn process_io() -> Result<ProcessIo, String> {
    let counts = fs::read_to_string("/proc/self/io").map_err(text)?;
    let count = |name: &str| {
        let line = counts.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|number| number.trim().parse().ok());
        number.ok_or_else(|| format!("/proc/self/io has no {name}"))
    };
    Ok(ProcessIo {
        read_bytes: count("rchar:")?,
        read_calls: count("syscr:")?,
        written_bytes: count("wchar:")?,
    })
}
