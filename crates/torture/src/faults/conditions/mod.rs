//! Conditions that no single system call makes. Examples are a full disk, a read-only mount, and a
//! log that is missing or another's. Others are missing descriptors, memory or permission, and
//! unusual names.
//!
//! Each runs in a process of its own, which may lower its limits or become another user. The
//! process reports the tried situations, the result codes and the faults.

mod files;
mod limits;
mod mounts;
mod names;

use super::directory::Image;
use super::sqlite;
use crate::database::JournalMode;
use crate::failure::Failure;
use crate::interrupt;
use crate::processes::{die_with_parent, this_program};
use clap::{Args, ValueEnum};
use onewrite_common::files::companion;
use rusqlite::{Connection, OpenFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A condition.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// The disk is full when the log must grow.
    FullDisk,
    /// Database and log are on a read-only mount.
    ReadOnlyMount,
    /// The log is deleted while it is in use.
    LogDeleted,
    /// The log is replaced while it is in use.
    LogReplaced,
    /// The log is another database's.
    LogOfAnother,
    /// No descriptors are left.
    NoDescriptors,
    /// Memory is refused.
    NoMemory,
    /// The log, and only the log, may not be opened.
    LogForbidden,
    /// A directory is where the log should be.
    DirectoryAsLog,
    /// The database is opened through a symbolic link.
    SymbolicLink,
    /// Names with spaces, UTF-8, or 400 characters, and one that leaves no room for a suffix.
    Names,
    /// Another database's `-shm` lies next to it.
    ForeignIndex,
    /// Another database's `-wal` lies next to it.
    ForeignWal,
}

impl fmt::Display for Condition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        out.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// The results of a condition.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Tally {
    /// The number of situations tried.
    pub tried: u64,
    /// The count of each result code.
    pub codes: BTreeMap<String, u64>,
    /// The faults.
    pub broken: Vec<String>,
    /// The reason why it was skipped.
    pub skipped: Option<String>,
}

/// The arguments of a condition's process.
#[derive(Debug, Clone, Args)]
pub struct ConditionArguments {
    /// Condition to make.
    #[arg(long, value_enum)]
    pub condition: Condition,
    /// Journal mode.
    #[arg(long, value_enum)]
    pub mode: JournalMode,
    /// Empty directory.
    #[arg(long)]
    pub dir: PathBuf,
    /// Directory for its own file systems.
    #[arg(long)]
    pub images: PathBuf,
}

/// The time limit of a condition.
const LIMIT: Duration = Duration::from_secs(150);

impl Condition {
    /// Whether the condition exists in this mode.
    pub fn exists_in(self, mode: JournalMode) -> bool {
        match self {
            // In the other modes the log is SQLite's own, and SQLite decides which log it accepts.
            Condition::LogOfAnother
            | Condition::LogDeleted
            | Condition::LogReplaced
            | Condition::ForeignWal => mode.is_guarded(),
            Condition::LogForbidden | Condition::DirectoryAsLog | Condition::ForeignIndex => {
                mode.is_ours()
            }
            _ => true,
        }
    }
}

/// Starts the process of a condition, and waits for its report.
///
/// # Errors
/// Errors of the harness.
pub fn run(
    condition: Condition,
    mode: JournalMode,
    dir: &Path,
    images: &Path,
) -> Result<Tally, Failure> {
    std::fs::create_dir_all(dir)?;
    let mut command = this_program(
        &[
            "fault-condition".to_owned(),
            "--condition".to_owned(),
            condition.to_string(),
            "--mode".to_owned(),
            mode.name().to_owned(),
            "--dir".to_owned(),
            dir.to_string_lossy().into_owned(),
            "--images".to_owned(),
            images.to_string_lossy().into_owned(),
        ],
        &dir.with_extension("stderr"),
    )?;
    if condition == Condition::LogForbidden {
        if !rustix::process::geteuid().is_root() {
            return Ok(skipped("becoming another user takes root"));
        }
        files::make_forbidden(mode, dir)?;
        command.uid(files::NOBODY).gid(files::NOBODY);
    }
    let mut child = command.spawn()?;
    let stdout = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        if let Some(mut stdout) = stdout {
            let _ = std::io::Read::read_to_string(&mut stdout, &mut text);
        }
        text
    });
    let deadline = std::time::Instant::now() + LIMIT;
    let status = loop {
        let stopped = interrupt::check();
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if stopped.is_err() || std::time::Instant::now() > deadline => {
                let _ = child.kill();
                let _ = child.wait();
                stopped?;
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let text = reader.join().unwrap_or_default();
    let tally = text
        .lines()
        .last()
        .and_then(|line| serde_json::from_str(line).ok());
    Ok(match (status, tally) {
        (Some(status), Some(tally)) if status.success() => tally,
        (status, _) => broken(format!("its process ended with {status:?}: {text}")),
    })
}

fn skipped(why: &str) -> Tally {
    Tally {
        skipped: Some(why.to_owned()),
        ..Tally::default()
    }
}

fn broken(what: String) -> Tally {
    Tally {
        broken: vec![what],
        ..Tally::default()
    }
}

/// Runs the process of a condition.
///
/// # Errors
/// Errors of the harness.
pub fn work(arguments: &ConditionArguments) -> Result<Tally, Failure> {
    die_with_parent()?;
    sqlite::collect_log()?;
    if arguments.condition == Condition::NoMemory {
        sqlite::make_memory_refusable()?;
    }
    onewrite::register().map_err(|e| Failure::Harness(e.to_string()))?;
    let mut trial = Trial {
        mode: arguments.mode,
        dir: arguments.dir.clone(),
        images: arguments.images.clone(),
        tally: Tally::default(),
    };
    let done = match arguments.condition {
        Condition::FullDisk => mounts::full_disk(&mut trial),
        Condition::ReadOnlyMount => mounts::read_only_mount(&mut trial),
        Condition::LogDeleted => files::log_deleted(&mut trial),
        Condition::LogReplaced => files::log_replaced(&mut trial),
        Condition::LogOfAnother => files::log_of_another(&mut trial),
        Condition::NoDescriptors => limits::no_descriptors(&mut trial),
        Condition::NoMemory => limits::no_memory(&mut trial),
        Condition::LogForbidden => files::log_forbidden(&mut trial),
        Condition::DirectoryAsLog => files::directory_as_log(&mut trial),
        Condition::SymbolicLink => names::symbolic_link(&mut trial),
        Condition::Names => names::names(&mut trial),
        Condition::ForeignIndex => files::foreign_index(&mut trial),
        Condition::ForeignWal => files::foreign_wal(&mut trial),
    };
    match done {
        Ok(()) => {}
        Err(Stop::Left(why)) => trial.tally.skipped = Some(why),
        Err(Stop::Sql(error)) => trial.tally.broken.push(format!("unexpectedly: {error}")),
        Err(Stop::Harness(failure)) => return Err(failure),
    }
    Ok(trial.tally)
}

/// Why a condition ends early.
enum Stop {
    /// The condition cannot be made here.
    Left(String),
    /// An unexpected error.
    Sql(rusqlite::Error),
    /// The harness failed.
    Harness(Failure),
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Stop::Sql(error)
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Stop::Harness(error.into())
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Harness(failure)
    }
}

type Done = Result<(), Stop>;

/// A condition under test.
struct Trial {
    mode: JournalMode,
    dir: PathBuf,
    images: PathBuf,
    tally: Tally,
}

impl Trial {
    /// Requires that a statement holds.
    fn expect(&mut self, holds: bool, what: impl fmt::Display) {
        self.tally.tried += 1;
        if !holds {
            self.tally.broken.push(what.to_string());
        }
    }

    /// Records SQLite's code for a result that may be an error.
    fn code<T>(&mut self, result: &rusqlite::Result<T>) -> i32 {
        let code = match result {
            Ok(_) => 0,
            Err(rusqlite::Error::SqliteFailure(error, _)) => error.extended_code,
            Err(_) => 1,
        };
        *self
            .tally
            .codes
            .entry(super::judge::code_name(code))
            .or_default() += 1;
        code
    }

    /// Requires a failure with one of these primary codes, and its reason in SQLite's log.
    fn refused<T>(&mut self, result: &rusqlite::Result<T>, codes: &[i32], words: &str) {
        let code = self.code(result);
        let log = sqlite::take_log().join("; ");
        let holds = codes.contains(&(code & 0xff));
        self.expect(
            holds && log.contains(words),
            format!("wanted {codes:?} and \"{words}\", got {code} and \"{log}\""),
        );
    }

    /// Makes a database with this many rows in the mode, and returns its open connection.
    fn make(&mut self, path: &Path, rows: u32) -> Result<Connection, Stop> {
        let connection = open(path)?;
        let mode: String =
            connection.query_row(&format!("PRAGMA journal_mode={}", self.mode), [], |row| {
                row.get(0)
            })?;
        self.expect(mode == self.mode.name(), format!("the mode is {mode}"));
        connection.execute_batch("CREATE TABLE t(x)")?;
        for x in 0..rows {
            insert(&connection, x)?;
        }
        Ok(connection)
    }

    /// Makes a database at `path`, in the state that a killed process leaves.
    fn make_killed(&mut self, path: &Path, rows: u32) -> Done {
        let live = path.with_extension("live");
        let connection = self.make(&live, rows)?;
        for suffix in ["", "-wal", "-onewrite", "-journal"] {
            let from = companion(&live, suffix);
            if from.exists() {
                std::fs::copy(&from, companion(path, suffix))?;
            }
        }
        drop(connection);
        Ok(())
    }

    /// Requires exactly this many rows, for ours and, after its close, for stock SQLite.
    fn holds(&mut self, path: &Path, rows: u32) -> Done {
        let ours = count(&open(path)?)?;
        self.expect(ours == rows, format!("{ours} rows of {rows} for ours"));
        let stock = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), "unix")?;
        let found = count(&stock)?;
        self.expect(found == rows, format!("{found} rows of {rows} for stock"));
        let check: String = stock.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        self.expect(check == "ok", check);
        Ok(())
    }
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    sqlite::take_log();
    let connection =
        Connection::open_with_flags_and_vfs(path, OpenFlags::default(), onewrite::VFS_NAME)?;
    connection.busy_timeout(Duration::from_millis(200))?;
    Ok(connection)
}

fn insert(connection: &Connection, x: u32) -> rusqlite::Result<()> {
    connection
        .execute("INSERT INTO t VALUES (?1)", [x])
        .map(drop)
}

fn count(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0))
}

impl Trial {
    /// Makes a file system for this condition.
    fn image(&self, bytes: u64) -> Result<Image, Stop> {
        Image::make(bytes, &self.images).map_err(|failure| Stop::Left(failure.to_string()))
    }
}
