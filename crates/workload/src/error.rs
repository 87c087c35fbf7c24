//! The errors of a workload, with enough context to act on.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a workload could not run, or had a wrong result.
#[derive(Debug)]
pub enum Error {
    /// A mode name or one of its variations is unknown; the text lists the known ones.
    Mode(String),
    /// `PRAGMA journal_mode=` answered with another mode than the requested one.
    JournalMode {
        /// The database.
        path: PathBuf,
        /// The requested journal mode.
        asked: String,
        /// The journal mode in force.
        got: String,
    },
    /// SQLite returned an error.
    Sqlite {
        /// The failed operation, for example `insert row 17`.
        doing: String,
        /// SQLite's error.
        source: rusqlite::Error,
    },
    /// The operating system returned an error.
    Io {
        /// The failed operation, for example `write`.
        doing: String,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The database does not hold the transactions' content, or could not take part.
    Wrong(String),
    /// The user asked to stop.
    Interrupted,
}

impl Error {
    /// Whether this only says that work was stopped, and not why.
    pub fn is_interruption(&self) -> bool {
        matches!(self, Self::Interrupted)
    }

    /// A closure for `map_err` that names the operation of SQLite.
    pub(crate) fn sqlite(doing: impl Into<String>) -> impl FnOnce(rusqlite::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Sqlite { doing, source }
    }

    /// A closure for `map_err` that names the operation and the file.
    pub(crate) fn io<E: Into<std::io::Error>>(doing: &str, path: &Path) -> impl FnOnce(E) -> Self {
        let (doing, path) = (doing.to_owned(), path.to_owned());
        move |source| Self::Io {
            doing,
            path,
            source: source.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mode(text) | Self::Wrong(text) => f.write_str(text),
            Self::JournalMode { path, asked, got } => write!(
                f,
                "{}: asked for journal_mode={asked}, SQLite answered \"{got}\"",
                path.display()
            ),
            Self::Sqlite { doing, source } => write!(f, "{doing}: {source}"),
            Self::Io {
                doing,
                path,
                source,
            } => write!(f, "{doing} {}: {source}", path.display()),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Sqlite { source, .. } => Some(source),
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
