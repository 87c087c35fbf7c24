//! What can go wrong: a broken promise (what the tests look for), or the harness itself.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// A promise that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// An acknowledged commit is there after any kill.
    AcknowledgedCommitsSurvive,
    /// What is in the database was committed by a writer, with exactly that content; a commit that
    /// was rolled back, or that a recovery has found lost, does not come back.
    NothingElseAppears,
    /// Every snapshot is the result of whole transactions, in one order.
    SnapshotsAreWhole,
    /// A snapshot is never older than what was acknowledged before it began.
    SnapshotsAreFresh,
    /// `PRAGMA integrity_check` is ok.
    IntegrityCheck,
    /// Stock SQLite changes no byte of a guarded database or its log.
    GuardedBytesStay,
    /// Stock SQLite says "file is not a database" of a guarded database, and only of a guarded one.
    StockIsRefused,
    /// A database that was closed cleanly is a stock database.
    CleanCloseIsStock,
    /// The journal mode asked for is the journal mode in force.
    ModeIsTrue,
    /// No statement fails but for a reason that the test has set up.
    NoOtherErrors,
    /// Work goes on: nobody waits for ever.
    Progress,
    /// Group synch loses no more than it says.
    GroupSynchBound,
    /// A call that fails is reported by the right code, loses nothing, and work goes on after it.
    FaultsAreHandled,
}

impl Promise {
    /// The name it has in JSON.
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
        /// Which one.
        promise: Promise,
        /// What was seen, and what should have been.
        detail: String,
    },
    /// The harness could not do its work.
    Harness(String),
    /// The user has stopped it.
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

    /// The same, with where it was seen in front.
    pub fn at(self, place: &str) -> Self {
        match self {
            Self::Broken { promise, detail } => Self::Broken {
                promise,
                detail: format!("{place}: {detail}"),
            },
            Self::Harness(detail) => Self::Harness(format!("{place}: {detail}")),
            Self::Stopped => Self::Stopped,
        }
    }

    /// The exit code of a process that ends with it: 1 for a broken promise, 130 where the user has
    /// stopped it, as a shell reports SIGINT, and 2 otherwise.
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
