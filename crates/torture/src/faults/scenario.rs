//! The work of a worker while one of its system calls fails.
//!
//! Each scenario has three parts: its initial files (made once, by an undisturbed worker), the
//! worker's first steps, and the steps while calls may fail.

use super::worker::Worker;
use crate::database::JournalMode;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// One action of an application.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// A new database is created, and its journal mode set.
    OpenNew,
    /// A database at rest is opened, read and written.
    Open,
    /// A database at rest is opened by a connection that only reads.
    OpenReadOnly,
    /// Small transactions.
    Commit,
    /// The same at `synchronous=NORMAL`.
    CommitNormal,
    /// A transaction too large to gather, with a cache too small for it.
    Spill,
    /// A transaction that no longer fits the log.
    Extend,
    /// Transactions while the log's next part is prepared in the background.
    ExtendAhead,
    /// The first transactions after everything was checkpointed: the log starts again.
    Restart,
    /// `PRAGMA wal_checkpoint(PASSIVE)`.
    CheckpointPassive,
    /// `PRAGMA wal_checkpoint(FULL)`.
    CheckpointFull,
    /// `PRAGMA wal_checkpoint(RESTART)`.
    CheckpointRestart,
    /// `PRAGMA wal_checkpoint(TRUNCATE)`.
    CheckpointTruncate,
    /// A database that a killed process left is opened.
    Recover,
    /// The same, but the database is closed at once, whatever the result.
    RecoverAndClose,
    /// The last connection is closed.
    Close,
    /// `PRAGMA journal_mode=wal`.
    SwitchToWal,
    /// `PRAGMA journal_mode=delete`.
    SwitchToDelete,
    /// Everything is read, with a cache too small for it, and with memory mapping.
    Read,
    /// A transaction is rolled back after part of it was written.
    Rollback,
    /// `VACUUM`.
    Vacuum,
    /// Commits that are not yet durable, then one that makes them so.
    NormalThenFull,
    /// Group synch.
    GroupSynch,
    /// Strict group commit: two connections take turns.
    GroupCommit,
    /// `onewrite detach` on the files of a killed process.
    Detach,
}

/// The initial files of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finds {
    /// An empty directory.
    Nothing,
    /// A database that was closed.
    AtRest,
    /// A database that a killed process left.
    Killed,
}

/// Bytes of a row that fills several pages of its own.
const LARGE_ROW: usize = 3000;
/// `onewrite_group_synch`: frames, milliseconds.
pub const GROUP: (u32, u32) = (4, 5);

impl fmt::Display for Scenario {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        out.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

impl Scenario {
    /// Whether the scenario exists in this mode.
    pub fn exists_in(self, mode: JournalMode) -> bool {
        let has_log = !matches!(
            mode,
            JournalMode::Delete | JournalMode::Truncate | JournalMode::Persist
        );
        match self {
            Scenario::GroupSynch => mode == JournalMode::Waldio,
            Scenario::GroupCommit => mode.is_ours() && mode != JournalMode::Direct,
            Scenario::Detach => mode.is_ours(),
            Scenario::SwitchToWal => mode != JournalMode::Wal,
            Scenario::SwitchToDelete => mode != JournalMode::Delete,
            Scenario::Extend
            | Scenario::ExtendAhead
            | Scenario::Restart
            | Scenario::CheckpointPassive
            | Scenario::CheckpointFull
            | Scenario::CheckpointRestart
            | Scenario::CheckpointTruncate
            | Scenario::NormalThenFull => has_log,
            _ => true,
        }
    }

    /// The initial files.
    pub fn finds(self) -> Finds {
        match self {
            Scenario::OpenNew => Finds::Nothing,
            Scenario::Recover
            | Scenario::RecoverAndClose
            | Scenario::Detach
            | Scenario::Extend
            | Scenario::ExtendAhead => Finds::Killed,
            _ => Finds::AtRest,
        }
    }

    /// Bytes of a page. Small pages are for scenarios that need thousands of frames. Large ones are
    /// for the scenario that examines every position in the log.
    pub fn page_size(self) -> u32 {
        match self {
            Scenario::Detach => 65536,
            Scenario::Extend | Scenario::ExtendAhead => 1024,
            _ => 4096,
        }
    }

    /// Whether a failed flush must stop all further commits of the same connection: commits
    /// published before it may be lost.
    pub fn must_poison(self) -> bool {
        self == Scenario::NormalThenFull
    }

    /// Makes the initial files. If the scenario needs it, the worker kills itself afterwards.
    pub fn prepare(self, worker: &mut Worker) {
        if self.finds() == Finds::Nothing {
            return;
        }
        worker.open();
        worker.pragma(&format!("page_size={}", self.page_size()));
        worker.enter_mode();
        worker.make_table();
        worker.commit(30, 400);
        worker.commit(3, 100);
        match self {
            // Leaves a little of the 1,536 frames of the log's first part.
            Scenario::Extend | Scenario::ExtendAhead => {
                worker.pragma("wal_autocheckpoint=0");
                worker.pragma("wal_checkpoint(TRUNCATE)");
                let frames = if self == Scenario::Extend { 1500 } else { 1370 };
                worker.fill_log(frames);
            }
            _ => {}
        }
        if self.finds() == Finds::AtRest {
            worker.close();
        }
    }

    /// The worker's steps before calls may fail.
    pub fn before(self, worker: &mut Worker) {
        match self {
            Scenario::OpenNew
            | Scenario::Open
            | Scenario::OpenReadOnly
            | Scenario::Recover
            | Scenario::RecoverAndClose
            | Scenario::Detach => return,
            _ => worker.open(),
        }
        worker.read_all();
        match self {
            Scenario::Extend | Scenario::ExtendAhead => worker.pragma("wal_autocheckpoint=0"),
            _ => worker.commit(2, 100),
        }
        match self {
            Scenario::CommitNormal => {
                worker.pragma("synchronous=NORMAL");
                worker.commit(1, 100);
            }
            Scenario::NormalThenFull => {
                worker.pragma("wal_autocheckpoint=0");
                worker.pragma("synchronous=NORMAL");
                worker.commit(2, 100);
                worker.commit(2, 100);
                worker.pragma("synchronous=FULL");
            }
            Scenario::Spill | Scenario::Rollback => worker.pragma("cache_size=10"),
            Scenario::Vacuum => {
                // Pages to move and to give back.
                worker.run("CREATE TABLE gone AS SELECT * FROM t, (VALUES(1),(2),(3),(4))");
                worker.commit(20, 1000);
                worker.run("DROP TABLE gone");
                worker.commit(1, 100);
            }
            Scenario::Restart => {
                worker.commit(20, 1000);
                worker.pragma("wal_checkpoint(PASSIVE)");
            }
            Scenario::CheckpointPassive
            | Scenario::CheckpointFull
            | Scenario::CheckpointRestart
            | Scenario::CheckpointTruncate
            | Scenario::Close => worker.commit(20, 1000),
            Scenario::Read => {
                worker.commit(30, LARGE_ROW);
                worker.pragma("wal_checkpoint(PASSIVE)");
                worker.commit(5, LARGE_ROW);
                worker.close();
                worker.open();
                worker.pragma("cache_size=5");
                worker.pragma("mmap_size=65536");
            }
            Scenario::GroupSynch => {
                let (frames, milliseconds) = GROUP;
                worker.pragma(&format!("onewrite_group_synch='{frames},{milliseconds}'"));
                worker.commit(1, 100);
            }
            Scenario::GroupCommit => {
                worker.pragma("onewrite_group_commit=on");
                worker.take_turns();
                worker.open();
                worker.pragma("onewrite_group_commit=on");
                for _ in 0..3 {
                    worker.commit(1, 100);
                    worker.take_turns();
                }
            }
            _ => {}
        }
    }

    /// The worker's steps while calls may fail.
    pub fn body(self, worker: &mut Worker) {
        match self {
            Scenario::OpenNew => {
                worker.open();
                worker.enter_mode();
                worker.make_table();
                worker.commit(2, 100);
            }
            Scenario::Open | Scenario::Recover => {
                worker.open();
                worker.read_all();
                worker.commit(2, 100);
            }
            Scenario::OpenReadOnly => {
                worker.open_read_only();
                worker.read_all();
            }
            Scenario::RecoverAndClose => {
                worker.open();
                worker.read_all();
                worker.close();
            }
            Scenario::CheckpointPassive => worker.checkpoint("PASSIVE"),
            Scenario::CheckpointFull => worker.checkpoint("FULL"),
            Scenario::CheckpointRestart => worker.checkpoint("RESTART"),
            Scenario::CheckpointTruncate => worker.checkpoint("TRUNCATE"),
            Scenario::Close => worker.close(),
            Scenario::SwitchToWal => worker.switch("wal"),
            Scenario::SwitchToDelete => worker.switch("delete"),
            Scenario::Detach => worker.become_detach(),
            transactions => transactions.transact(worker),
        }
    }

    /// The steps of the scenarios that consist of transactions. The others have none.
    fn transact(self, worker: &mut Worker) {
        match self {
            Scenario::Commit | Scenario::CommitNormal => {
                for _ in 0..3 {
                    worker.commit(2, 100);
                }
            }
            Scenario::Spill => {
                worker.commit(140, LARGE_ROW);
                worker.commit(1, 100);
            }
            Scenario::Extend => {
                worker.commit(30, LARGE_ROW);
                worker.commit(1, 100);
            }
            Scenario::ExtendAhead => {
                for _ in 0..3 {
                    worker.commit(2, 900);
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Scenario::Restart => {
                worker.commit(2, 100);
                worker.commit(2, 100);
            }
            Scenario::Read => {
                worker.read_all();
                worker.commit(1, 100);
                worker.read_all();
            }
            Scenario::Rollback => {
                worker.roll_back(120, LARGE_ROW);
                worker.commit(1, 100);
            }
            Scenario::Vacuum => {
                worker.run("VACUUM");
                worker.commit(1, 100);
            }
            Scenario::NormalThenFull => {
                worker.commit(1, 100);
                worker.commit(1, 100);
            }
            Scenario::GroupSynch => {
                for _ in 0..6 {
                    worker.commit(1, 100);
                }
                std::thread::sleep(Duration::from_millis(12));
                worker.commit(1, 100);
            }
            Scenario::GroupCommit => {
                for _ in 0..4 {
                    worker.commit(1, 100);
                    worker.take_turns();
                }
                worker.run("SELECT count(*) FROM t");
            }
            _ => {}
        }
    }
}
