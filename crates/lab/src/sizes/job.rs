//! The jobs of the processes of `sizes`, and their answers. Both are JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One of this many rows is deleted when a database has been filled, so that its pages have room.
pub const GAP: u32 = 4;

/// The transactions of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Each updates one row, anywhere.
    Random,
    /// Each inserts one row behind the last.
    Appending,
    /// YCSB-A: reads of a row and as many updates, zipfian.
    #[serde(rename = "ycsb-a")]
    YcsbA,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Random, Self::Appending, Self::YcsbA];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Appending => "appending",
            Self::YcsbA => "ycsb-a",
        }
    }
}

/// The row of the last commit, and the first bytes of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Last {
    /// The row.
    pub id: i64,
    /// The number of the commit.
    pub stamp: u64,
}

/// The work of a process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Task {
    /// Makes a database of so many bytes.
    Make {
        /// Its size.
        bytes: u64,
        /// Its pages have no room.
        dense: bool,
    },
    /// Runs transactions, and counts them.
    Work {
        /// Their kind.
        workload: Workload,
        /// Commits before the counted ones.
        warm_up: u32,
        /// Commits that are counted.
        count: u32,
        /// Another connection holds a snapshot during the counted commits.
        reader: bool,
        /// As in `PRAGMA wal_autocheckpoint`.
        autocheckpoint: u32,
        /// The process kills itself at the end, and so closes nothing.
        killed: bool,
    },
    /// Opens the database after a kill, counts the reads, and kills itself again.
    Recover {
        /// The commit that must be there.
        last: Last,
        /// The files are not in the page cache.
        cold: bool,
    },
    /// Opens and closes the database.
    Close,
}

/// The job of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The database.
    pub path: PathBuf,
    /// The mode as the user gave it.
    pub mode: String,
    /// The seed of keys.
    pub seed: u64,
    /// Bytes of a row's value: 16 or more.
    pub row: usize,
    /// The work.
    pub task: Task,
}

/// The counts of a run of commits. All but `last` are of all commits together.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Worked {
    /// Commits.
    pub commits: u32,
    /// Microseconds that they took.
    pub us: f64,
    /// Flushes of the device.
    pub flushes: u64,
    /// Bytes that the device wrote, those of the file system included.
    pub device_bytes: u64,
    /// Bytes that the process wrote.
    pub written_bytes: u64,
    /// Bytes by which the files grew.
    pub grown_bytes: i64,
    /// Of LS-MVBT: pages of the header and the free map.
    pub header_pages: Option<u64>,
    /// Of LS-MVBT: splits of any kind.
    pub splits: Option<u64>,
    /// Of LS-MVBT: dead entries that full pages had to keep for a reader.
    pub kept: Option<u64>,
    /// The last commit.
    pub last: Last,
}

/// The counts of a recovery.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Recovered {
    /// Bytes that the process read.
    pub read_bytes: u64,
    /// Calls that read.
    pub read_calls: u64,
    /// Microseconds until the first read of the database has returned.
    pub us: f64,
}

/// The answer of a process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Of [`Task::Make`] and [`Task::Close`]: the bytes of the database.
    Done(u64),
    /// Of [`Task::Work`].
    Worked(Worked),
    /// Of [`Task::Recover`].
    Recovered(Recovered),
}
