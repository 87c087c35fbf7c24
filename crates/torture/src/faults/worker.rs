//! The worker: one connection that runs a scenario and reports every outcome.
//!
//! It reports on standard output, one JSON document a line, as soon as it knows. So every report
//! before a kill counts. The text of row `i` of batch `b` follows from `b`, `i` and its length, so
//! every reader can tell whether it is correct.

use super::scenario::{Finds, Scenario};
use super::sqlite;
use super::tracer::{self, Mark};
use crate::database::JournalMode;
use crate::failure::Failure;
use crate::processes::{die, die_with_parent};
use clap::{Args, ValueEnum};
use rusqlite::{Connection, OpenFlags};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::Duration;

/// The first batch of the disturbed worker. Batches of the preparing worker begin at 1.
const FIRST_BATCH_OF_RUN: i64 = 100;

/// The outcome of a call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// SQLite's extended result code; 0 is success.
    pub code: i32,
    /// SQLite's message, or the finding.
    pub message: String,
    /// The messages through `sqlite3_log` meanwhile.
    pub logged: Vec<String>,
}

impl Outcome {
    /// Whether the call succeeded.
    pub fn is_ok(&self) -> bool {
        self.code == 0
    }
}

/// A report of a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Event {
    /// Calls may fail from here on.
    Begin,
    /// The fault is gone.
    End,
    /// A transaction.
    Commit {
        /// The number of the batch.
        batch: i64,
        /// The number of its rows.
        rows: i64,
        /// The outcome of COMMIT, or of the statement before it that failed.
        outcome: Outcome,
    },
    /// A transaction that nobody may see.
    RolledBack {
        /// The number of the batch.
        batch: i64,
        /// Its outcome.
        outcome: Outcome,
    },
    /// Any other step.
    Step {
        /// The name of the step.
        what: String,
        /// Its outcome.
        outcome: Outcome,
    },
    /// The worker asked for a journal mode.
    Mode {
        /// The requested mode.
        wanted: String,
        /// The answer of `PRAGMA journal_mode`; empty after an error.
        got: String,
        /// Its outcome.
        outcome: Outcome,
    },
    /// The rows differ from the written ones, and no error was reported.
    WrongAnswer(String),
    /// The connection did not continue after the fault, and is opened again.
    Reopens,
    /// The worker is done.
    Done,
}

/// The arguments of a worker.
#[derive(Debug, Clone, Args)]
pub struct WorkerArguments {
    /// Database file.
    #[arg(long)]
    pub db: PathBuf,
    /// Journal mode.
    #[arg(long, value_enum)]
    pub mode: JournalMode,
    /// Scenario to run.
    #[arg(long, value_enum)]
    pub scenario: Scenario,
    /// Part of the scenario.
    #[arg(long, value_enum)]
    pub part: Part,
    /// Lie to tell.
    #[arg(long, value_enum)]
    pub lie: Option<Lie>,
}

/// The appearance of a broken engine, to show that the checks find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Lie {
    /// Reports a failed commit as a successful one.
    SwallowedError,
    /// Reports every error as `SQLITE_CORRUPT`.
    WrongCode,
    /// Waits forever after an error.
    Hang,
    /// Sends nothing through `sqlite3_log`.
    Silence,
}

/// A part of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Make its initial files.
    Prepare,
    /// Run it under a tracer.
    Run,
}

/// Does the worker's work, and ends by `kill -9`.
///
/// # Errors
/// Errors of the harness.
pub fn run(arguments: &WorkerArguments) -> Result<(), Failure> {
    die_with_parent()?;
    sqlite::collect_log()?;
    onewrite::register().map_err(|e| Failure::Harness(e.to_string()))?;
    let mut worker = Worker {
        arguments: arguments.clone(),
        connection: None,
        other: None,
        batch: match arguments.part {
            Part::Prepare => 0,
            Part::Run => FIRST_BATCH_OF_RUN,
        },
        detach: std::env::current_exe()?.with_file_name("onewrite"),
    };
    match arguments.part {
        Part::Prepare => {
            arguments.scenario.prepare(&mut worker);
            tell(&Event::Done);
            if arguments.scenario.finds() == Finds::Killed {
                die();
            }
        }
        Part::Run => {
            tracer::be_traced()?;
            arguments.scenario.before(&mut worker);
            tell(&Event::Begin);
            Mark::Begin.tell();
            arguments.scenario.body(&mut worker);
            Mark::End.tell();
            tell(&Event::End);
            Mark::Snapshot.tell();
            worker.go_on();
            tell(&Event::Done);
            die();
        }
    }
    Ok(())
}

fn tell(event: &Event) {
    let mut line = serde_json::to_string(event).unwrap_or_default();
    line.push('\n');
    // Nobody reads any more; the orchestrator will notice.
    let _ = std::io::stdout().write_all(line.as_bytes());
    let _ = std::io::stdout().flush();
}

/// See the module.
pub struct Worker {
    arguments: WorkerArguments,
    connection: Option<Connection>,
    /// The connection whose turn it is not.
    other: Option<Connection>,
    batch: i64,
    /// The command `onewrite`, found before any call fails.
    detach: PathBuf,
}

impl Worker {
    fn open_with(&mut self, flags: OpenFlags, what: &str) {
        sqlite::take_log();
        let opened = Connection::open_with_flags_and_vfs(
            &self.arguments.db,
            flags | OpenFlags::SQLITE_OPEN_NO_MUTEX,
            onewrite::VFS_NAME,
        )
        .and_then(|connection| {
            // Enough for a moment's contention, but not for a hang.
            connection.busy_timeout(Duration::from_millis(100))?;
            Ok(connection)
        });
        let outcome = outcome_of(&opened);
        tell(&Event::Step {
            what: what.to_owned(),
            outcome,
        });
        self.connection = opened.ok();
    }

    /// Opens the connection.
    pub fn open(&mut self) {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        self.open_with(flags, "open");
    }

    /// Switches to the other connection.
    pub fn take_turns(&mut self) {
        std::mem::swap(&mut self.connection, &mut self.other);
    }

    /// Opens the connection read-only.
    pub fn open_read_only(&mut self) {
        self.open_with(OpenFlags::SQLITE_OPEN_READ_ONLY, "open read-only");
    }

    /// Closes the connection.
    pub fn close(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        sqlite::take_log();
        let closed = connection.close().map_err(|(_, error)| error);
        let outcome = outcome_of(&closed);
        tell(&Event::Step {
            what: "close".to_owned(),
            outcome,
        });
    }

    /// Runs `work` with the connection, if there is one.
    fn with<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Option<(rusqlite::Result<T>, Outcome)> {
        let connection = self.connection.as_ref()?;
        sqlite::take_log();
        let result = work(connection);
        let outcome = outcome_of(&result);
        if !connection.is_autocommit() {
            // A failure in a transaction ends it. If ROLLBACK fails too, the next statement will
            // show it.
            let _ = connection.execute_batch("ROLLBACK");
        }
        Some((result, outcome))
    }

    /// Runs a statement and ignores its rows.
    pub fn run(&mut self, sql: &str) {
        let done = self.with(|connection| {
            let mut statement = connection.prepare(sql)?;
            let mut rows = statement.query([])?;
            while rows.next()?.is_some() {}
            Ok(())
        });
        if let Some((_, outcome)) = done {
            tell(&Event::Step {
                what: sql.to_owned(),
                outcome,
            });
        }
    }

    /// Runs a pragma.
    pub fn pragma(&mut self, words: &str) {
        self.run(&format!("PRAGMA {words}"));
    }

    /// Runs a checkpoint, then a transaction.
    pub fn checkpoint(&mut self, kind: &str) {
        self.pragma(&format!("wal_checkpoint({kind})"));
        self.commit(2, 100);
    }

    /// Asks for the mode of the run.
    pub fn enter_mode(&mut self) {
        let mode = self.arguments.mode;
        self.ask_for_mode(mode.name());
    }

    fn ask_for_mode(&mut self, wanted: &str) {
        let asked = self.with(|connection| {
            let sql = format!("PRAGMA journal_mode={wanted}");
            // Runs to the end: the row's answer holds only if the statement does not fail after it.
            let mut statement = connection.prepare(&sql)?;
            let said: rusqlite::Result<Vec<String>> =
                statement.query_map([], |row| row.get(0))?.collect();
            Ok(said?.concat())
        });
        if let Some((result, outcome)) = asked {
            tell(&Event::Mode {
                wanted: wanted.to_owned(),
                got: result.unwrap_or_default(),
                outcome,
            });
        }
    }

    /// Switches to another mode, and commits.
    pub fn switch(&mut self, wanted: &str) {
        self.ask_for_mode(wanted);
        self.commit(2, 100);
    }

    /// Creates the table for the batches.
    pub fn make_table(&mut self) {
        self.run(
            "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, batch INTEGER, i INTEGER, \
             size INTEGER, body TEXT)",
        );
    }

    fn insert(connection: &Connection, batch: i64, rows: i64, size: usize) -> rusqlite::Result<()> {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut insert = connection.prepare(
            "INSERT INTO t(batch, i, size, body) \
             VALUES (?1, ?2, ?3, printf('%0*d', ?3, ?1 * 1000 + ?2))",
        )?;
        for i in 0..rows {
            insert.execute((batch, i, size as i64))?;
        }
        Ok(())
    }

    /// Commits this many rows of this many bytes.
    pub fn commit(&mut self, rows: i64, size: usize) {
        self.batch += 1;
        let batch = self.batch;
        let committed = self.with(|connection| {
            Self::insert(connection, batch, rows, size)?;
            connection.execute_batch("COMMIT")
        });
        if let Some((_, mut outcome)) = committed {
            self.lie_about(&mut outcome);
            tell(&Event::Commit {
                batch,
                rows,
                outcome,
            });
        }
    }

    fn lie_about(&self, outcome: &mut Outcome) {
        if outcome.is_ok() {
            return;
        }
        match self.arguments.lie {
            None => {}
            Some(Lie::SwallowedError) => outcome.code = 0,
            Some(Lie::WrongCode) => outcome.code = 11,
            Some(Lie::Silence) => outcome.logged.clear(),
            Some(Lie::Hang) => std::thread::sleep(Duration::from_secs(3600)),
        }
    }

    /// Inserts rows, and rolls back.
    pub fn roll_back(&mut self, rows: i64, size: usize) {
        self.batch += 1;
        let batch = self.batch;
        let rolled_back = self.with(|connection| {
            Self::insert(connection, batch, rows, size)?;
            connection.execute_batch("ROLLBACK")
        });
        if let Some((_, outcome)) = rolled_back {
            tell(&Event::RolledBack { batch, outcome });
        }
    }

    /// Commits large transactions until the log holds about this many frames of 1 KiB pages.
    pub fn fill_log(&mut self, frames: i64) {
        let mut done = 0;
        while done < frames {
            let pages = (frames - done).min(200);
            // One page a row, and some inner pages.
            self.commit(pages - 4, 900);
            done += pages;
        }
    }

    /// Reads everything, and compares it with the written rows.
    pub fn read_all(&mut self) {
        let read = self.with(|connection| {
            connection.query_row(
                "SELECT count(*) FILTER (WHERE body IS NOT printf('%0*d', size, batch * 1000 + i)) \
                 FROM t",
                [],
                |row| row.get::<_, i64>(0),
            )
        });
        let Some((result, outcome)) = read else {
            return;
        };
        if let Ok(wrong @ 1..) = result {
            tell(&Event::WrongAnswer(format!("{wrong} rows read wrongly")));
        }
        tell(&Event::Step {
            what: "read".to_owned(),
            outcome,
        });
    }

    /// Becomes the command `onewrite detach`, which does not return.
    pub fn become_detach(&mut self) {
        let error = std::process::Command::new(&self.detach)
            .arg("detach")
            .arg(&self.arguments.db)
            .exec();
        tell(&Event::WrongAnswer(format!(
            "harness: cannot become onewrite: {error}"
        )));
    }

    /// The fault is gone: work continues, or the connection reports that it must be opened again.
    fn go_on(&mut self) {
        self.other = None;
        if self.connection.is_some() && self.arguments.scenario == Scenario::OpenReadOnly {
            self.read_all();
            self.close();
        }
        if self.connection.is_some() {
            self.make_table();
            self.commit(1, 100);
            self.commit(1, 100);
        }
        let works = self.connection.is_some() && self.last_commit_was_ok();
        if !works {
            tell(&Event::Reopens);
            self.close();
            self.open();
            self.make_table();
            self.commit(1, 100);
        }
        self.read_all();
    }

    fn last_commit_was_ok(&self) -> bool {
        let batch = self.batch;
        self.connection.as_ref().is_some_and(|connection| {
            let sql = "SELECT count(*) FROM t WHERE batch = ?1";
            connection.query_row(sql, [batch], |row| row.get::<_, i64>(0)) == Ok(1)
        })
    }
}

fn outcome_of<T>(result: &rusqlite::Result<T>) -> Outcome {
    let (code, message) = match result {
        Ok(_) => (0, String::new()),
        Err(rusqlite::Error::SqliteFailure(error, message)) => (
            error.extended_code,
            message.clone().unwrap_or_else(|| error.to_string()),
        ),
        Err(other) => (1, other.to_string()),
    };
    Outcome {
        code,
        message,
        logged: sqlite::take_log(),
    }
}
