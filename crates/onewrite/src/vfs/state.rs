//! The state of an open database that changes, in groups: [`super::database::Database`] has one of
//! each. All of it is in cells, for the reason given there.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;

use crate::mode::{JournalMode, UpgradeOfWal};
use crate::sync::Instant;
use crate::wal::IndexView;

/// What the program asks for.
#[derive(Default)]
pub struct Requested {
    /// The mode that the URI or the environment asks for.
    pub mode: Option<JournalMode>,
    /// The mode that the URI asks for.
    pub mode_in_uri: Option<JournalMode>,
    /// The mode in the URI for an application that asks for WAL.
    pub upgrade_in_uri: Option<UpgradeOfWal>,
    /// Whether the application has named a journal mode.
    pub mode_was_named: Cell<bool>,
    /// Words of the environment that mean nothing, and a name that was meant for a URI.
    pub warnings: RefCell<Vec<String>>,
    /// The error in the URI, for which the first lock is refused: see `refusal`.
    pub uri_error: Option<String>,
}

/// What attempts at the connection's first lock have done, so that none of it is tried twice.
#[derive(Default)]
pub struct FirstLock {
    /// Whether the database was converted to the requested mode, or that has failed.
    pub conversion_tried: Cell<bool>,
    /// Why that has failed.
    pub conversion_failure: RefCell<Option<String>>,
    /// Whether a connection that can write was asked to guard for this one, which cannot.
    pub writer_tried: Cell<bool>,
    /// Whether a log without a guard was looked for.
    pub leftover_checked: Cell<bool>,
    /// Whether this is the last attempt before SQLite calls its busy handler.
    pub is_last_attempt: Cell<bool>,
}

/// The guard in the database's header, and the log to which it leads.
#[derive(Default)]
pub struct GuardState {
    /// Why the database is used in SQLite's WAL, and not in the mode that it remembers.
    pub kept_out: Cell<Option<KeptOut>>,
    /// Whether SQLite believes that the database is in a rollback mode, while it is still guarded
    /// on disk. The log would overwrite what is written now. It holds until the connection looks
    /// again.
    pub must_look_again: Cell<bool>,
    /// When the connection last found that the database is the one that the log belongs to.
    pub looked: Cell<Option<Instant>>,
    /// Whether SQLite has asked for EXCLUSIVE to close the database. If the log is still there after that,
    /// it was refused, or interrupted.
    pub has_closed: Cell<bool>,
    /// Whether this connection has released a log without ending the guard, which it could not do.
    pub left_guarded: Cell<bool>,
    /// The new name of a removed database's log that was set aside.
    pub set_aside: RefCell<Option<String>>,
    /// The error of SQLite's "deletion" of the log: SQLite ignores it, but a pragma must report it.
    pub unguard_failure: RefCell<Option<(c_int, String)>>,
}

/// The locks of the wal-index that the connection holds.
#[derive(Default)]
pub struct HeldLocks {
    /// Whether it holds the write lock.
    pub write: Cell<bool>,
    /// Whether it holds a read lock.
    pub read: Cell<bool>,
    pub checkpoint: Cell<CheckpointLock>,
    /// Whether it is this connection's turn to write.
    pub turn: Cell<bool>,
}

/// The snapshots that the connection reads.
#[derive(Default)]
pub struct Snapshots {
    /// The last view of the wal-index, under a lock of this connection that prevents a restart of
    /// the log.
    pub seen: Cell<Option<IndexView>>,
    /// The snapshot that the connection is about to read, until it is known to be durable.
    pub next: Cell<Option<IndexView>>,
    /// The last snapshot that the connection read: SQLite may still have its pages.
    pub last: Cell<Option<IndexView>>,
    /// Whether `synchronous` was set below FULL: commits of others need not be durable to be read.
    pub are_relaxed: Cell<bool>,
    /// Whether `synchronous` was set to OFF: not even checkpoints flush.
    pub flush_nothing: Cell<bool>,
}

/// The connection's wal-index.
#[derive(Default)]
pub struct IndexState {
    /// Whether this connection has invalidated it.
    pub is_invalidated: Cell<bool>,
    /// Whether SQLite's last attempt to map it failed.
    pub map_failed: Cell<bool>,
}

/// A database that is used in SQLite's WAL, and not in the mode that it remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptOut {
    /// The mode; `None` if this user may not read the log, which remembers it.
    pub mode: Option<JournalMode>,
    pub why: &'static str,
}

/// How a connection holds SQLite's checkpoint lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CheckpointLock {
    #[default]
    Free,
    /// For a checkpoint, or for recovery.
    Exclusive,
    /// With the locks under which the log restarts; see `company::lock_for_restart`.
    ForRestart,
}
