//! The possible failures: a broken promise, which the tests search for, or a fault of the harness.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// A promise that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// An acknowledged commit exists after any kill.
    AcknowledgedCommitsSurvive,
    /// Every commit in the database was made by a writer, with exactly this content. A commit that
    /// was rolled back, or that a recovery found lost, does not come back.
    NothingElseAppears,
    /// Every snapshot is the result of whole transactions, in one order.
    SnapshotsAreWhole,
    /// A snapshot is never older than the commits acknowledged before it began.
    SnapshotsAreFresh,
    /// `PRAGMA integrity_check` is ok.
    IntegrityCheck,
    /// Stock SQLite changes no byte of a guarded database or its log.
    GuardedBytesStay,
    /// Stock SQLite reports "file is not a database" for a guarded database, and for no other.
    StockIsRefused,
    /// A database that was closed cleanly is a stock database.
    CleanCloseIsStock,
    /// The requested journal mode is the journal mode in force.
    ModeIsTrue,
    /// No statement fails except for a reason that the test has set up.
    NoOtherErrors,
    /// Work continues: nobody waits forever.
    Progress,
    /// Group synch loses no more than its bound.
    GroupSynchBound,
    /// A failing call is reported with the right code and loses nothing, and work continues after
    /// it.
    FaultsAreHandled,
}

impl Promise {
    /// The name in JSON.
    pub fn name(self) -> String {
        serde_json::to_value(self)
            .ok()
            .and_then(|name| name.as_str().map(str::to_owned))
            .unwrap_or_default()
    }
}

/// Why a run ended early.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// A promise of the engine was broken.
    Broken {
        /// The promise.
        promise: Promise,
        /// The observation, and the expectation.
        detail: String,
    },
    /// The harness could not do its work.
    Harness(String),
    /// The user stopped the run.
    Stopped,
}

impl Failure {
    /// A broken promise.
    pub fn broken(promise: Promise, detail: impl Into<String>) -> Self {
        Self::Broken {
            promise,
            detail: detail.into(),
        }
    }

    /// An I/O error of the harness itself on `path`.
    pub fn io(what: &str, path: &Path, error: impl fmt::Display) -> Self {
        Self::Harness(format!("cannot {what} {}: {error}", path.display()))
    }

    /// The same failure, with its context in front.
    pub fn at(self, context: &str) -> Self {
        match self {
            Self::Broken { promise, detail } => Self::Broken {
                promise,
                detail: format!("{context}: {detail}"),
            },
            Self::Harness(detail) => Self::Harness(format!("{context}: {detail}")),
            Self::Stopped => Self::Stopped,
        }
    }

    /// The exit code of a process that ends with this failure: 1 for a broken promise, and 2
    /// otherwise. It is 130 if the user stopped it, as a shell reports SIGINT.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Broken { .. } => 1,
            Self::Harness(_) => 2,
            Self::Stopped => 130,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken { promise, detail } => {
                write!(out, "broken promise ({}): {detail}", promise.name())
            }
            Self::Harness(detail) => write!(out, "harness: {detail}"),
            Self::Stopped => out.write_str("stopped"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Harness(format!("I/O: {error}"))
    }
}
