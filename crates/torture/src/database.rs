//! How a process connects: which SQLite, which journal mode, which durability.

use crate::failure::{Failure, Promise};
use crate::session::{Session, SqlError, Value, linked::Linked, shell::Shell};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A journal mode, stock or ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum JournalMode {
    /// Rollback journal, deleted at commit.
    Delete,
    /// Rollback journal, truncated at commit.
    Truncate,
    /// Rollback journal, its header zeroed at commit.
    Persist,
    /// Stock write-ahead log.
    Wal,
    /// Stock log bytes in the stock log file, by direct I/O.
    Direct,
    /// One block a frame, guarded.
    Waldio,
    /// Compressed frames through the page cache, guarded.
    Swal,
    /// A commit's compressed frames in whole blocks, guarded.
    Onewrite,
    /// Another B-tree engine without a journal, in a build that has it; uses stock SQLite's VFS.
    Lsmvbt,
}

impl JournalMode {
    /// The name in `PRAGMA journal_mode`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Truncate => "truncate",
            Self::Persist => "persist",
            Self::Wal => "wal",
            Self::Direct => "direct",
            Self::Waldio => "waldio",
            Self::Swal => "swal",
            Self::Onewrite => "onewrite",
            Self::Lsmvbt => "lsmvbt",
        }
    }

    /// Whether a database in use in this mode is guarded against stock SQLite.
    pub fn is_guarded(self) -> bool {
        matches!(self, Self::Waldio | Self::Swal | Self::Onewrite)
    }

    /// Whether only our VFS knows the mode.
    pub fn is_ours(self) -> bool {
        self == Self::Direct || self.is_guarded()
    }
}

impl fmt::Display for JournalMode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The SQLite of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// SQLite with our VFS.
    Ours,
    /// The same SQLite through its own `unix` VFS.
    Stock,
    /// The system's `sqlite3` shell, driven through pipes: another, older SQLite.
    Shell,
}

/// `PRAGMA synchronous`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Synchronous {
    /// Durable at every commit.
    Full,
    /// Written at every commit, durable at checkpoints.
    Normal,
    /// Written at every commit, durable whenever the system decides. The death of a process loses
    /// nothing here either.
    Off,
}

impl Synchronous {
    /// The name in the pragma.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Normal => "normal",
            Self::Off => "off",
        }
    }
}

/// All settings that a process needs to open its connection. Processes pass it on as arguments.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub struct Database {
    /// Database file.
    #[arg(long)]
    pub db: PathBuf,
    /// SQLite that opens it.
    #[arg(long, value_enum, default_value = "ours")]
    pub engine: Engine,
    /// Journal mode to ask for; by default the database's own.
    #[arg(long, value_enum)]
    pub mode: Option<JournalMode>,
    /// Durability of a commit.
    #[arg(long, value_enum, default_value = "full")]
    pub synchronous: Synchronous,
    /// Value of `PRAGMA onewrite_group_synch`, as 'frames,milliseconds'.
    #[arg(long)]
    pub group_synch: Option<String>,
    /// Value of `PRAGMA onewrite_checkpoint`.
    #[arg(long)]
    pub checkpoint: Option<String>,
    /// Value of `PRAGMA lsmvbt_torn`.
    #[arg(long)]
    pub torn: Option<String>,
    /// How long SQLite waits for a lock, in milliseconds.
    #[arg(long, default_value_t = 5000)]
    pub busy_timeout: u64,
}

impl Database {
    /// The arguments from which clap makes the same value again.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "--db".to_owned(),
            self.db.display().to_string(),
            "--engine".to_owned(),
            value_name(self.engine),
            "--synchronous".to_owned(),
            self.synchronous.name().to_owned(),
            "--busy-timeout".to_owned(),
            self.busy_timeout.to_string(),
        ];
        if let Some(mode) = self.mode {
            arguments.extend(["--mode".to_owned(), mode.name().to_owned()]);
        }
        if let Some(group_synch) = &self.group_synch {
            arguments.extend(["--group-synch".to_owned(), group_synch.clone()]);
        }
        if let Some(checkpoint) = &self.checkpoint {
            arguments.extend(["--checkpoint".to_owned(), checkpoint.clone()]);
        }
        if let Some(torn) = &self.torn {
            arguments.extend(["--torn".to_owned(), torn.clone()]);
        }
        arguments
    }

    /// The same database through stock SQLite, which accepts its current mode.
    pub fn through(&self, engine: Engine) -> Self {
        let mut other = self.clone();
        other.engine = engine;
        if engine != Engine::Ours {
            other.group_synch = None;
            other.checkpoint = None;
            other.mode = self.mode.filter(|mode| !mode.is_ours());
        }
        other
    }

    /// Opens a connection and sets nothing. SQLite has not read the file yet.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub fn open(&self) -> Result<Box<dyn Session>, ConnectError> {
        let timeout = Duration::from_millis(self.busy_timeout);
        Ok(match self.engine {
            Engine::Ours => Box::new(Linked::open_ours(&self.db, timeout)?),
            Engine::Stock => Box::new(Linked::open_stock(&self.db, timeout)?),
            Engine::Shell => Box::new(Shell::open(&self.db, timeout)?),
        })
    }

    /// Opens a connection and sets its pragmas.
    ///
    /// # Errors
    /// Errors of SQLite. A busy database is a [`SqlError`] of kind `Busy`.
    pub fn connect(&self) -> Result<Box<dyn Session>, ConnectError> {
        let mut session = self.open()?;
        if let Some(checkpoint) = &self.checkpoint {
            // This must precede the mode, because the log's layout depends on it.
            session.run(&format!("PRAGMA onewrite_checkpoint={checkpoint}"), &[])?;
        }
        if let Some(mode) = self.mode {
            request_mode(session.as_mut(), mode)?;
        }
        if let Some(torn) = &self.torn {
            session.run(&format!("PRAGMA lsmvbt_torn={torn}"), &[])?;
        }
        session.run(
            &format!("PRAGMA synchronous={}", self.synchronous.name()),
            &[],
        )?;
        if let Some(group_synch) = &self.group_synch {
            session.run(&format!("PRAGMA onewrite_group_synch='{group_synch}'"), &[])?;
        }
        Ok(session)
    }
}

/// Why a connection failed.
#[derive(Debug)]
pub enum ConnectError {
    /// SQLite reported an error.
    Sql(SqlError),
    /// The connection differs from the request, or the harness failed.
    Other(Failure),
}

impl From<SqlError> for ConnectError {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

impl From<Failure> for ConnectError {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

/// Asks for a journal mode and checks the answer.
///
/// # Errors
/// Errors of SQLite; [`Promise::ModeIsTrue`] if SQLite answered with another mode without an error.
pub fn request_mode(session: &mut dyn Session, mode: JournalMode) -> Result<(), ConnectError> {
    let answer = switch_mode(session, mode)?;
    if answer == mode.name() {
        return Ok(());
    }
    let detail = format!("PRAGMA journal_mode={mode} was answered with {answer:?}");
    Err(Failure::broken(Promise::ModeIsTrue, detail).into())
}

/// Asks for a journal mode and returns SQLite's answer.
///
/// # Errors
/// Errors of SQLite.
pub fn switch_mode(session: &mut dyn Session, mode: JournalMode) -> Result<String, SqlError> {
    let rows = session.rows(&format!("PRAGMA journal_mode={mode}"), &[])?;
    Ok(match rows.first().and_then(|row| row.first()) {
        Some(Value::Text(text)) => text.clone(),
        other => format!("{other:?}"),
    })
}

/// The name of `value` in clap.
pub fn value_name(value: impl ValueEnum) -> String {
    value
        .to_possible_value()
        .map(|name| name.get_name().to_owned())
        .unwrap_or_default()
}
