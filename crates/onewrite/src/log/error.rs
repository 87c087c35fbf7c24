//! Errors of a log, as text for people and as kinds for SQLite's error codes.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::log::{HeaderError, LogId};
use crate::storage::{Operation, StorageError};

/// Decides which of SQLite's error codes the application gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// `SQLITE_CANTOPEN`: missing, damaged, of a newer version, of another database.
    CantOpen,
    /// `SQLITE_CANTOPEN`: this user may not open, make or remove the file.
    Denied,
    /// `SQLITE_CANTOPEN`: this combination of layout, page size and device is not possible.
    Unsuited,
    /// `SQLITE_FULL`.
    Full,
    /// `SQLITE_IOERR_READ`.
    Read,
    /// `SQLITE_IOERR_SHORT_READ`.
    ShortRead,
    /// `SQLITE_IOERR_WRITE`.
    Write,
    /// `SQLITE_IOERR_FSYNC`.
    Flush,
    /// `SQLITE_IOERR_LOCK`.
    Lock,
    /// `SQLITE_BUSY`: another process holds a lock, for longer than the connection waits.
    Busy,
    /// `SQLITE_READONLY`.
    ReadOnly,
    /// `SQLITE_READONLY_DBMOVED`: the database is no longer the one that the log belongs to.
    Taken,
    /// `SQLITE_IOERR_DATA`: the bytes read differ from those written.
    Corrupt,
    /// `SQLITE_IOERR_FSYNC`: an earlier write failed; see K1 to K6 in `docs/durability.md`.
    Poisoned,
    /// The VFS underneath failed with this result code, and it is passed on.
    Underneath(i32),
}

/// An error of a log; names the file.
#[derive(Debug)]
pub struct LogError {
    kind: ErrorKind,
    path: PathBuf,
    text: String,
}

impl LogError {
    /// An error about the log at `path`.
    pub fn new(kind: ErrorKind, path: &Path, text: impl Into<String>) -> LogError {
        LogError {
            kind,
            path: path.to_owned(),
            text: text.into(),
        }
    }

    /// An I/O error outside the storage layer; `kind` says what the failed call is for.
    pub fn io(kind: ErrorKind, path: &Path, doing: &str, error: &io::Error) -> LogError {
        LogError::new(kind, path, format!("cannot {doing} it: {error}"))
    }

    pub(super) fn missing(path: &Path, error: &StorageError) -> LogError {
        let text = if error.is_not_found() {
            "the database's newest transactions are in this log, and it is missing: put it back \
             next to the database. \"onewrite verify DB\" says what is there, \"onewrite salvage DB \
             -o OUT\" copies what the database holds without it"
                .to_owned()
        } else if error.is_denied() {
            let text = format!("the database's newest transactions are in this log: {error}");
            return LogError::new(ErrorKind::Denied, path, text);
        } else {
            error.to_string()
        };
        LogError::new(ErrorKind::CantOpen, path, text)
    }

    /// The header of the log at `path` is damaged, or of a newer version.
    pub fn header(path: &Path, error: HeaderError) -> LogError {
        let text = match error {
            HeaderError::Version(_) => error.to_string(),
            _ => format!(
                "{error}. \"onewrite verify DB\" says more, \"onewrite salvage DB -o OUT\" saves what is whole"
            ),
        };
        LogError::new(ErrorKind::CantOpen, path, text)
    }

    pub(super) fn other_database(path: &Path, found: LogId, expected: LogId) -> LogError {
        LogError::new(
            ErrorKind::CantOpen,
            path,
            format!(
                "this log belongs to another database (id {found}, the database says {expected}): \
                 keep both files, and put the right log back. \"onewrite verify DB\" says what is \
                 there, \"onewrite salvage\" reads either into a new database"
            ),
        )
    }

    /// Whether the file at the path is no log that this process can read.
    pub fn is_unreadable(&self) -> bool {
        matches!(self.kind, ErrorKind::CantOpen | ErrorKind::Denied)
    }

    /// The kind, from which the error code follows.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl From<StorageError> for LogError {
    fn from(error: StorageError) -> LogError {
        let kind = match &error {
            // A flush that finds no space has lost earlier writes. It is not a full disk, which a
            // rollback would repair.
            StorageError::Io {
                operation: Operation::Flush,
                ..
            } => ErrorKind::Flush,
            e if e.is_no_space() => ErrorKind::Full,
            e if e.is_denied() => ErrorKind::Denied,
            StorageError::Io { operation, .. } => match operation {
                Operation::Open | Operation::OpenAgain | Operation::Create => ErrorKind::CantOpen,
                Operation::Inspect | Operation::Read => ErrorKind::Read,
                Operation::Write
                | Operation::Truncate
                | Operation::Initialize
                | Operation::Remove => ErrorKind::Write,
                Operation::Flush => ErrorKind::Flush,
                Operation::Lock(_) => ErrorKind::Lock,
            },
            StorageError::ReadOnly { .. } => ErrorKind::ReadOnly,
            StorageError::Busy { .. } => ErrorKind::Busy,
            StorageError::NotAFile { .. } | StorageError::Replaced { .. } => ErrorKind::CantOpen,
            _ => ErrorKind::Write,
        };
        // A storage error names the file itself; the path would only repeat it.
        LogError {
            kind,
            path: PathBuf::new(),
            text: error.to_string(),
        }
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.as_os_str().is_empty() {
            return f.write_str(&self.text);
        }
        write!(f, "{}: {}", self.path.display(), self.text)
    }
}

impl std::error::Error for LogError {}
