//! Strict group commit as SQLite's locks show it: when a connection waits for others, and for what.
//! The rules are those of `docs/durability.md`, "Group commit"; the waiting itself is done in
//! [`crate::commit::group_commit`].

use std::ffi::c_int;
use std::time::Duration;

use super::database::Database;
use super::ffi;
use crate::commit::group_commit::TURN;
use crate::log::shared::Company;
use crate::log::{Log, LogError};
use crate::sync::{Instant, sleep};
use crate::wal::FrameNo;

/// SQLite's locks in the wal-index.
pub const WRITE_LOCK: c_int = 0;
pub const FIRST_READ_LOCK: c_int = 3;

/// How a wait for the log's restart goes on.
const PAUSE: Duration = Duration::from_micros(100);

impl Database {
    fn groups_commits(&self, log: &Log) -> bool {
        self.settings.get().commit.groups_commits(log.mode())
    }

    fn is_writing(&self) -> bool {
        let connection = self.connection.get();
        self.holds_write_lock.get() || connection.is_some_and(|connection| connection.is_writing())
    }

    /// Whether this is the only database that the transaction writes. Of several, SQLite does not
    /// report an error that comes after publication, so that nothing may be put off until then.
    pub fn alone_in_transaction(&self) -> bool {
        let connection = self.connection.get();
        connection.is_some_and(|connection| connection.written_databases() <= 1)
    }

    /// Before SQLite takes a read lock: who is about to write waits for its turn, and for a log that
    /// is about to start again. Returns whether others have gone on meanwhile, so that SQLite had better
    /// look anew.
    pub fn before_read_lock(&self) -> bool {
        let Some(log) = self.log().filter(|log| self.groups_commits(log)) else {
            return false;
        };
        let in_company = log.shared().company() > Company::None;
        if !in_company || self.holds_write_lock.get() || self.has_turn.get() {
            return false;
        }
        let connection = self.connection.get();
        let waits = connection.is_some_and(|connection| {
            // Whoever holds another database's lock is to wait for nobody.
            connection.is_writing() && connection.written_databases() == 0
        });
        if !waits {
            return false;
        }
        let look = || (self.inner.index_view(), self.inner.backfilled());
        let before = look();
        log.group_commit.take_turn(&log, self.who);
        self.has_turn.set(true);
        self.wait_for_restart(&log);
        look() != before
    }

    /// Frames that a checkpoint has yet to copy; `None` where it has hardly begun.
    fn may_restart(&self) -> Option<FrameNo> {
        let last = self.inner.index_view()?.last_frame;
        let copied = self.inner.backfilled()?;
        (copied.0 > last.0 / 2).then(|| FrameNo(last.0 - copied.0.min(last.0)))
    }

    /// A log starts again when a writer begins and finds everything in the database. With many writers
    /// there is always one more commit: so when a checkpoint has copied the most of it, the writer
    /// whose turn it is lets the others come to their end, and their checkpoints too.
    fn wait_for_restart(&self, log: &Log) {
        let last = || {
            let index = self.inner.index_view();
            index.map_or(FrameNo(0), |index| index.last_frame)
        };
        let is_due = |left: FrameNo| left.0 != 0 && log.group_commit.may_wait_for_restart(last());
        if !self.may_restart().is_some_and(is_due) {
            return;
        }
        let end = Instant::now() + TURN;
        while self.may_restart().is_some_and(|left| left.0 != 0) {
            if Instant::now() >= end {
                return log.group_commit.gave_up_restart(last());
            }
            sleep(PAUSE);
        }
    }

    /// SQLite has taken a read lock: what it will read is what is published now.
    pub fn read_locked(&self, lock: c_int) -> Result<(), LogError> {
        self.snapshot.set(None);
        let (Some(log), Some(index)) = (self.log(), self.inner.index_view()) else {
            return Ok(());
        };
        let before = self.last_snapshot.replace(Some(index));
        // With the first lock it reads nothing of the log.
        let is_exempt = lock == FIRST_READ_LOCK
            || !self.settings.get().read_durable
            || self.reads_relaxed.get()
            || !log.may_hold_deferred(index);
        if is_exempt || self.is_writing() {
            return Ok(());
        }
        if before == Some(index) {
            // It may have these pages still, and not come to read them.
            return log.await_deferred(index, &|| self.inner.index_view());
        }
        // If something is published meanwhile, it looks anew: so not now, but when it reads.
        self.snapshot.set(Some(index));
        Ok(())
    }

    /// The read lock was released.
    pub fn read_unlocked(&self) {
        self.snapshot.set(None);
        if !self.holds_write_lock.get() {
            self.end_turn();
        }
    }

    /// Before the first page of a snapshot is read: returns when the snapshot is durable.
    pub fn await_snapshot(&self) -> Result<(), LogError> {
        let (Some(index), Some(log)) = (self.snapshot.take(), self.log()) else {
            return Ok(());
        };
        log.await_deferred(index, &|| self.inner.index_view())
    }

    /// Before a checkpoint: returns when everything is durable that it may copy.
    pub fn await_published(&self) -> Result<(), LogError> {
        let (Some(index), Some(log)) = (self.inner.index_view(), self.log()) else {
            return Ok(());
        };
        log.await_deferred(index, &|| self.inner.index_view())
    }

    /// The write lock was taken.
    pub fn write_locked(&self) {
        self.holds_write_lock.set(true);
        if let Some(log) = self.log() {
            self.has_turn.set(true);
            log.group_commit.claim_turn(self.who);
        }
    }

    /// The turn to write is over, if this connection has it.
    pub fn end_turn(&self) {
        if let Some(log) = self.log().filter(|_| self.has_turn.replace(false)) {
            log.group_commit.end_turn(&log, self.who);
        }
    }
}

/// Whether `xShmLock` is asked for a read lock.
pub fn is_read_lock(offset: c_int, flags: c_int) -> bool {
    offset >= FIRST_READ_LOCK
        && flags & ffi::SQLITE_SHM_LOCK != 0
        && flags & ffi::SQLITE_SHM_SHARED != 0
}

/// Whether `xShmLock` is asked to release one.
pub fn is_read_unlock(offset: c_int, flags: c_int) -> bool {
    offset >= FIRST_READ_LOCK
        && flags & ffi::SQLITE_SHM_UNLOCK != 0
        && flags & ffi::SQLITE_SHM_SHARED != 0
}
