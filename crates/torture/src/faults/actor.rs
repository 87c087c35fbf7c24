//! The worker: one connection that does what a scenario says and tells every outcome.
//!
//! It tells on standard output, one JSON document a line, as soon as it knows: what was told before
//! a kill stands. Row `i` of batch `b` has a text that follows from `b`, `i` and its length, so that
//! whoever reads it later can tell whether it is what was written.

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

/// Batches of the worker that prepares begin at 1, those of the worker that is disturbed here.
const FIRST_BATCH_OF_RUN: i64 = 100;

/// What a call came to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// SQLite's extended result code; 0 is success.
    pub code: i32,
    /// SQLite's words, or what was found.
    pub message: String,
    /// What came through `sqlite3_log` meanwhile.
    pub logged: Vec<String>,
}

impl Outcome {
    /// Whether it succeeded.
    pub fn is_ok(&self) -> bool {
        self.code == 0
    }
}

/// What a worker tells.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Event {
    /// Calls may fail from here on.
    Begin,
    /// The fault is gone.
    End,
    /// A transaction.
    Commit {
        /// Its number.
        batch: i64,
        /// Its rows.
        rows: i64,
        /// What COMMIT, or what came before it, said.
        outcome: Outcome,
    },
    /// A transaction that is not to be seen.
    RolledBack {
        /// Its number.
        batch: i64,
        /// What it came to.
        outcome: Outcome,
    },
    /// Anything else.
    Step {
        /// What.
        what: String,
        /// What it came to.
        outcome: Outcome,
    },
    /// The journal mode was asked for and is this.
    Mode {
        /// What was asked for.
        wanted: String,
        /// What `PRAGMA journal_mode` said; empty after an error.
        got: String,
        /// What it came to.
        outcome: Outcome,
    },
    /// Rows that are there are not those that were written, and nobody said so.
    WrongAnswer(String),
    /// The connection did not go on after the fault, and is opened anew.
    Reopens,
    /// Everything is done.
    Done,
}

/// How a worker is started.
#[derive(Debug, Clone, Args)]
pub struct ActorArguments {
    /// The database file.
    #[arg(long)]
    pub db: PathBuf,
    /// The journal mode.
    #[arg(long, value_enum)]
    pub mode: JournalMode,
    /// What to do.
    #[arg(long, value_enum)]
    pub scenario: Scenario,
    /// Which part of it.
    #[arg(long, value_enum)]
    pub part: Part,
    /// The lie that it tells.
    #[arg(long, value_enum)]
    pub lie: Option<Lie>,
}

/// What a broken engine would look like, to show that the checks see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Lie {
    /// A commit that failed is told as one that returned.
    SwallowedError,
    /// Every error is told as `SQLITE_CORRUPT`.
    WrongCode,
    /// It waits for ever after an error.
    Hang,
    /// Nothing goes through `sqlite3_log`.
    Silence,
}

/// Which part of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Make what it finds.
    Prepare,
    /// Do it, under a tracer.
    Run,
}

/// Does the worker's work, and ends by `kill -9`.
///
/// # Errors
/// The harness'.
pub fn play(arguments: &ActorArguments) -> Result<(), Failure> {
    die_with_parent()?;
    sqlite::collect_log()?;
    onewrite::register().map_err(|e| Failure::Harness(e.to_string()))?;
    let mut actor = Actor {
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
            arguments.scenario.prepare(&mut actor);
            tell(&Event::Done);
            if arguments.scenario.finds() == Finds::Killed {
                die();
            }
        }
        Part::Run => {
            tracer::be_traced()?;
            arguments.scenario.before(&mut actor);
            tell(&Event::Begin);
            Mark::Begin.tell();
            arguments.scenario.body(&mut actor);
            Mark::End.tell();
            tell(&Event::End);
            Mark::Snapshot.tell();
            actor.go_on();
            tell(&Event::Done);
            die();
        }
    }
    Ok(())
}

fn tell(event: &Event) {
    let mut line = serde_json::to_string(event).unwrap_or_default();
    line.push('\n');
    // Nobody listens any more: the orchestrator will notice.
    let _ = std::io::stdout().write_all(line.as_bytes());
    let _ = std::io::stdout().flush();
}

/// See the module.
pub struct Actor {
    arguments: ActorArguments,
    connection: Option<Connection>,
    /// The one whose turn it is not.
    other: Option<Connection>,
    batch: i64,
    /// The command `onewrite`, looked up before anything fails.
    detach: PathBuf,
}

impl Actor {
    fn open_with(&mut self, flags: OpenFlags, what: &str) {
        sqlite::take_log();
        let opened = Connection::open_with_flags_and_vfs(
            &self.arguments.db,
            flags | OpenFlags::SQLITE_OPEN_NO_MUTEX,
            onewrite::VFS_NAME,
        )
        .and_then(|connection| {
            // Enough for a moment's contention, and not for a hang.
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

    /// The other connection goes on.
    pub fn take_turns(&mut self) {
        std::mem::swap(&mut self.connection, &mut self.other);
    }

    /// Opens it for reading alone.
    pub fn open_read_only(&mut self) {
        self.open_with(OpenFlags::SQLITE_OPEN_READ_ONLY, "open read-only");
    }

    /// Closes it.
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

    /// Does something with the connection, if there is one.
    fn with<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Option<(rusqlite::Result<T>, Outcome)> {
        let connection = self.connection.as_ref()?;
        sqlite::take_log();
        let result = work(connection);
        let outcome = outcome_of(&result);
        if !connection.is_autocommit() {
            // What fails in a transaction ends it; that this fails too is for the next to show.
            let _ = connection.execute_batch("ROLLBACK");
        }
        Some((result, outcome))
    }

    /// Runs a statement whose rows do not matter.
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
            // To its end: what the row says holds only if the statement does not fail after it.
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

    /// Makes the table that the batches go to.
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

    /// Commits so many rows of so many bytes.
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

    /// Inserts, and rolls back.
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

    /// Commits until the log holds about so many frames of 1 KiB pages, in large transactions.
    pub fn fill_log(&mut self, frames: i64) {
        let mut done = 0;
        while done < frames {
            let pages = (frames - done).min(200);
            // A page a row, and some above the leaves.
            self.commit(pages - 4, 900);
            done += pages;
        }
    }

    /// Reads everything, and compares it with what was written.
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

    /// The fault is gone: work goes on, or the connection says that it must be opened again.
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
