//! The order to one process of the soak: a JSON document, the same in every language.
//!
//! Roles: `work` runs transactions until it is killed; `backup` and `vacuum_into` copy the database
//! to `copy`; `create`, `check`, `verify` and `read_all` ([`super::check`]) are for the Rust program alone.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The number of accounts, and the balance with which each begins.
pub const ACCOUNTS: i64 = 200;
pub const BALANCE: i64 = 1000;

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub role: Role,
    pub database: PathBuf,
    pub mode: String,
    /// The extension to load. Without one, SQLite's library has the mode itself.
    pub library: Option<PathBuf>,
    /// The worker's own history, to which it appends. It is not on the file system under test.
    pub history: PathBuf,
    /// Errors and wrong sums: `NANOSECONDS KIND CODE TEXT` a line.
    pub notes: PathBuf,
    /// The directory with the histories of all workers, for checks.
    pub histories: PathBuf,
    /// The number of this life of a worker. No other process of the run has it.
    pub process: u64,
    pub seed: u64,
    /// Transactions a second.
    pub rate: f64,
    pub busy_ms: u64,
    pub accounts: i64,
    /// The sum of all balances.
    pub total: i64,
    /// Keys of lists that are in use at the same time. They change every `epoch_s` seconds, so that
    /// lists stay short.
    pub keys: u64,
    pub epoch_s: u64,
    /// How many of the reading transactions hold their snapshot for seconds, 0 to 1.
    pub long_readers: f64,
    /// Statements of which a worker runs one now and then, before a transaction.
    pub upkeep: Vec<String>,
    /// The file that a copy goes to.
    pub copy: PathBuf,
    /// A check expects the transactions that were acknowledged before this time, in nanoseconds.
    pub until: u64,
    /// Whether a check runs `integrity_check`.
    pub integrity: bool,
    /// The worker in Rust acknowledges what it has rolled back.
    pub lie: bool,
    /// The wall clock's time at the beginning of the run, in nanoseconds.
    pub began: u64,
    /// The worker in Rust takes the time of its history from the wall clock, and subtracts this.
    pub by_wall_clock: Option<u64>,
    /// SQLite's `synchronous` of the worker in Rust.
    pub synchronous: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Work,
    Backup,
    VacuumInto,
    Create,
    Check,
    Verify,
    /// Reads all lists, as the last transaction of the history.
    ReadAll,
}

/// Nanoseconds of CLOCK_MONOTONIC, the clock of all histories.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds of the wall clock, which may jump.
pub fn wall_clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as u64)
}
