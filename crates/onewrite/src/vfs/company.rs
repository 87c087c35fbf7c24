//! Strict group commit as SQLite's locks show it: when a connection waits for others, and for what.
//! The rules are J1 to J17 of `docs/durability.md`. [`crate::commit::group_commit`] does the
//! waiting itself.

use std::ffi::c_int;
use std::time::Duration;

use super::background::Checkpoint;
use super::database::Database;
use super::ffi;
use super::host::Connection;
use super::inner::LockLevel;
use super::state::CheckpointLock;
use crate::commit::turns::HandsOver;
use crate::commit::{SharedLog, group_commit};
use crate::log::shared::Contention;
use crate::log::{ErrorKind, Log, LogError};
use crate::sync::{Instant, sleep};
use crate::waits::stall::{self, Phase};
use crate::waits::{RESTART_OVER, RESTART_PAUSE};
use crate::wal::{FrameNo, IndexView};

/// SQLite's locks in the wal-index.
pub const WRITE_LOCK: c_int = 0;
pub const CHECKPOINT_LOCK: c_int = 1;
const RECOVERY_LOCK: c_int = 2;
pub const FIRST_READ_LOCK: c_int = 3;
/// The read locks after the first, for readers that use the log.
pub const LOG_READ_LOCKS: c_int = 4;

/// A wait for the log's restart ends after so many flushes of others: they go on committing, and this
/// connection would starve.
const RESTART_FLUSHES: u32 = 5;

impl Database {
    fn groups_commits(&self, log: &Log) -> bool {
        self.settings.get().commit.groups_commits(log.mode())
    }

    fn is_writing(&self) -> bool {
        let connection = self.connection.get();
        self.held.write.get() || connection.is_some_and(|connection| connection.is_writing())
    }

    /// Whether this is the only database that the transaction writes. With several, SQLite does not
    /// report an error that comes after publication, so nothing may be deferred until then.
    pub fn alone_in_transaction(&self) -> bool {
        let connection = self.connection.get();
        connection.is_some_and(|connection| connection.written_databases() <= 1)
    }

    /// Called before SQLite takes a read lock. A connection that is about to write waits for its
    /// turn, and for a log that is about to restart. Returns whether others have proceeded
    /// meanwhile, so that SQLite should look again.
    pub fn before_read_lock(&self) -> bool {
        let Some(log) = self.log() else {
            return false;
        };
        let in_company = self.groups_commits(&log)
            && (log.shared().contention() > Contention::None
                || log.group_commit.turns().is_anothers(self.committer));
        let follows_thread = self.is_thread_to_catch_up(&log);
        if !(in_company || follows_thread) || self.held.write.get() || self.held.turn.get() {
            return false;
        }
        let connection = self.connection.get();
        let waits = connection.is_some_and(|connection| {
            // A connection that holds another database's lock must not wait.
            connection.is_writing() && connection.written_databases() == 0
        });
        if !waits {
            return false;
        }
        let look = || (self.inner.index_view(), self.inner.backfilled());
        let before = look();
        stall::measured(Phase::WriteLock, || {
            if in_company {
                let hands_over = self.hands_over();
                log.group_commit
                    .turns()
                    .take(&log, self.committer, hands_over);
                self.held.turn.set(true);
            }
            if follows_thread {
                self.await_thread(&log);
            }
            if in_company {
                self.wait_for_restart(&log);
            }
        });
        // When SQLite chose this lock, it found frames to copy. If none are left, it takes another
        // lock, with which the log may restart.
        look() != before || self.left_to_copy() == Some(FrameNo(0))
    }

    /// The number of frames that a checkpoint has yet to copy; `None` if it has hardly begun.
    pub(super) fn left_to_copy(&self) -> Option<FrameNo> {
        let last = self.inner.index_view()?.last_frame;
        let copied = self.inner.backfilled()?;
        (copied.0 > last.0 / 2).then(|| FrameNo(last.0 - copied.0.min(last.0)))
    }

    /// A log restarts when a writer begins, finds everything in the database, and no connection
    /// reads from the log. With many writers there is always one more commit, and one that waits
    /// for its flush. So once a checkpoint has copied most of the log, the writer whose turn it is
    /// lets the others finish, and their checkpoints too.
    fn wait_for_restart(&self, log: &SharedLog) {
        let may_go_on = || match self.left_to_copy() {
            Some(FrameNo(0)) => self.has_no_log_reader(),
            Some(_) => false,
            None => true,
        };
        let is_under_way = || {
            let commits = self.inner.index_view();
            commits.is_some_and(|seen| log.may_hold_deferred(seen)) || self.is_checkpoint_running()
        };
        self.wait_patiently(log, is_under_way, may_go_on);
    }

    /// Waits for what lets the log restart, unless such a wait has just failed. Returns whether it has
    /// waited.
    fn wait_patiently(
        &self,
        log: &SharedLog,
        is_under_way: impl Fn() -> bool,
        is_done: impl Fn() -> bool,
    ) -> bool {
        let Some(index) = self.inner.index_view() else {
            return false;
        };
        let patience = group_commit::patience_for_restart(log, index);
        let flushes = log.shared().flushes();
        let is_fair = || log.shared().flushes().wrapping_sub(flushes) < RESTART_FLUSHES;
        let is_under_way = || is_fair() && is_under_way();
        if patience.is_zero() {
            return false;
        }
        if wait(patience, is_under_way, is_done) == Waited::GaveUp {
            group_commit::gave_up_restart(log, index, self.inner.index_view());
        }
        true
    }

    /// Whether another connection checkpoints now.
    fn is_checkpoint_running(&self) -> bool {
        // A connection that restarts the log holds it shared, and does not checkpoint.
        let lock = |flags| {
            let flags = flags | ffi::SQLITE_SHM_SHARED;
            self.inner.shm_lock(CHECKPOINT_LOCK, 1, flags) == ffi::SQLITE_OK
        };
        !(lock(ffi::SQLITE_SHM_LOCK) && lock(ffi::SQLITE_SHM_UNLOCK))
    }

    /// `xShmLock` of a checkpoint. With many writers each of them checkpoints after its commit, and
    /// all but one are refused. If all of them then waited for the log's restart, none would be
    /// left to copy new commits. So when most of the log is copied, and a writer lets the others
    /// finish, they wait for their turn to checkpoint.
    ///
    /// Only those wait. A checkpoint that an application asks for does not wait, if it must not
    /// (PASSIVE). A checkpoint that follows a commit comes within the call that committed: nothing
    /// came in between, and no statement is running. A pragma is a running statement. Where a thread
    /// checkpoints, the statement that has committed is still there, too.
    pub fn lock_for_checkpoint(&self, flags: c_int) -> c_int {
        let known = self.quiet.forget();
        let committed = self.committed_by.take();
        let may_close = self.is_shared() && self.lock.get() == LockLevel::EXCLUSIVE;
        let follows_commit = self.has_just_committed.take()
            && !may_close
            && self.connection.get().is_some_and(|connection| {
                !connection.is_running() && committed.is_none_or(|it| connection.has_still(it))
            });
        let whose = match follows_commit {
            true => self.whose_checkpoint(known),
            false => Checkpoint::Application,
        };
        match whose {
            // SQLite ignores it.
            Checkpoint::Thread => ffi::SQLITE_BUSY,
            Checkpoint::Commit => {
                self.stall.begin_checkpoint(self.settings.get().stall_log);
                let code = self.try_checkpoint_lock(flags, true);
                if code != ffi::SQLITE_OK {
                    self.end_own_checkpoint();
                }
                code
            }
            Checkpoint::Application => {
                let _hold = self.hold_thread();
                self.try_checkpoint_lock(flags, false)
            }
        }
    }

    fn try_checkpoint_lock(&self, flags: c_int, follows_commit: bool) -> c_int {
        if let Err(e) = self.check_not_taken() {
            return self.fail(&e);
        }
        let code = std::cell::Cell::new(ffi::SQLITE_BUSY);
        let locked = || {
            code.set(self.inner.shm_lock(CHECKPOINT_LOCK, 1, flags));
            code.get() != ffi::SQLITE_BUSY
        };
        if !locked()
            && follows_commit
            && let Some(log) = self.log().filter(|log| self.groups_commits(log))
            && self.left_to_copy().is_some()
            && self.wait_patiently(&log, || true, locked)
        {
            log.group_commit.note_checkpoint_wait();
        }
        self.note_checkpoint_lock(CHECKPOINT_LOCK, 1, flags, code.get());
        code.get()
    }

    /// Called after `xShmLock`: notes whether it was for the checkpoint lock. Recovery takes it as
    /// well.
    pub fn note_checkpoint_lock(&self, offset: c_int, count: c_int, flags: c_int, code: c_int) {
        let is_it = (offset..offset.saturating_add(count)).contains(&CHECKPOINT_LOCK);
        if !is_it || flags & ffi::SQLITE_SHM_EXCLUSIVE == 0 || code != ffi::SQLITE_OK {
            return;
        }
        let is_taken = flags & ffi::SQLITE_SHM_LOCK != 0;
        self.held.checkpoint.set(match is_taken {
            true => CheckpointLock::Exclusive,
            false => CheckpointLock::Free,
        });
        if is_taken && !self.remapper.reads_the_log() {
            self.snapshots.seen.set(self.inner.index_view());
        }
        // Recovery takes more locks at once.
        if count == 1 {
            match is_taken {
                true => self.checkpoint_begins(),
                false => self.checkpoint_ends(),
            }
        }
    }

    /// Recovery has ended, and its locks are about to be released.
    pub fn recovered(&self) {
        let index = self.inner.index_view();
        self.tell_of_recovery(index);
        self.snapshots.seen.set(index);
        if let Some(writer) = self.writer.borrow_mut().as_mut() {
            writer.recovered(index);
        }
    }

    /// `xShmLock` of all readers' locks except the first: the log restarts.
    ///
    /// SQLite 3.7.0 to 3.51.2 can lose commits here. A checkpoint has read the wal-index and not
    /// begun to copy, and a writer restarts the log. The checkpoint then copies frames of the old
    /// generation from a log of the new one. It records that the new one is in the database. So a
    /// connection that restarts the log excludes checkpoints meanwhile, and does not restart it
    /// during one. In that case SQLite appends at the log's end.
    pub fn lock_for_restart(&self, flags: c_int) -> c_int {
        let lock_log = || {
            self.inner
                .shm_lock(FIRST_READ_LOCK + 1, LOG_READ_LOCKS, flags)
        };
        if self.held.checkpoint.get() != CheckpointLock::Free {
            return lock_log();
        }
        let shared = ffi::SQLITE_SHM_LOCK | ffi::SQLITE_SHM_SHARED;
        match self.inner.shm_lock(CHECKPOINT_LOCK, 1, shared) {
            ffi::SQLITE_OK => self.held.checkpoint.set(CheckpointLock::ForRestart),
            refused => return refused,
        }
        let code = lock_log();
        if code != ffi::SQLITE_OK {
            self.restart_is_over();
        }
        code
    }

    /// The readers' locks are free again.
    pub fn restart_is_over(&self) {
        if self.held.checkpoint.get() == CheckpointLock::ForRestart {
            let flags = ffi::SQLITE_SHM_UNLOCK | ffi::SQLITE_SHM_SHARED;
            self.inner.shm_lock(CHECKPOINT_LOCK, 1, flags);
            self.held.checkpoint.set(CheckpointLock::Free);
        }
    }

    /// Whether no connection reads frames of the log now: SQLite's locks for that are all free.
    fn has_no_log_reader(&self) -> bool {
        let lock = |flags| {
            let flags = flags | ffi::SQLITE_SHM_EXCLUSIVE;
            self.inner
                .shm_lock(FIRST_READ_LOCK + 1, LOG_READ_LOCKS, flags)
                == ffi::SQLITE_OK
        };
        lock(ffi::SQLITE_SHM_LOCK) && lock(ffi::SQLITE_SHM_UNLOCK)
    }

    /// Whether a connection holds this read lock.
    pub(super) fn is_read_lock_held(&self, lock: c_int) -> bool {
        let attempt = |flags| {
            let flags = flags | ffi::SQLITE_SHM_EXCLUSIVE;
            self.inner.shm_lock(lock, 1, flags) == ffi::SQLITE_OK
        };
        !(attempt(ffi::SQLITE_SHM_LOCK) && attempt(ffi::SQLITE_SHM_UNLOCK))
    }

    /// SQLite has taken a read lock: it will read what is published now.
    pub fn read_locked(&self, lock: c_int) -> Result<(), LogError> {
        self.snapshots.next.set(None);
        let copied = self.inner.backfilled();
        self.snapshots.seen.set(self.inner.index_view());
        if lock != FIRST_READ_LOCK {
            self.finish_restart(copied);
        }
        let (Some(log), Some(index)) = (self.log(), self.snapshots.seen.get()) else {
            return Ok(());
        };
        let before = self.snapshots.last.replace(Some(index));
        // With the first lock it reads nothing from the log.
        let is_exempt = lock == FIRST_READ_LOCK
            || !self.settings.get().read_durable
            || self.reads_relaxed()
            || !log.may_hold_deferred(index);
        if is_exempt || self.is_writing() {
            return Ok(());
        }
        if before == Some(index) {
            // It may have these pages in its cache, and read nothing.
            return log.await_deferred(index, &|| self.inner.index_view());
        }
        // If a commit is published meanwhile, SQLite looks again. So it waits when it reads, not
        // now.
        self.snapshots.next.set(Some(index));
        Ok(())
    }

    /// Finishes the restart of a log during which the writer died. SQLite publishes the new header
    /// before it sets `nBackfill` to 0. With the old value it would treat the next commits as
    /// copied, and not read them.
    ///
    /// Under a read lock other than the first no connection restarts the log. `copied` is
    /// `nBackfill` from before `mxFrame` was read, so it is larger only if a writer died.
    fn finish_restart(&self, copied: Option<FrameNo>) {
        if let (Some(copied), Some(seen)) = (copied, self.snapshots.seen.get())
            && copied > seen.last_frame
            && let Some(index) = self.inner.writable_index()
        {
            index.forget_backfill(copied);
        }
    }

    /// The read lock was released.
    pub fn read_unlocked(&self) {
        self.snapshots.next.set(None);
        self.snapshots.seen.set(None);
        if !self.held.write.get() {
            self.end_turn();
        }
    }

    /// Called before the first page of a snapshot is read. Returns when the snapshot is durable.
    pub fn await_snapshot(&self) -> Result<(), LogError> {
        let (Some(index), Some(log)) = (self.snapshots.next.take(), self.log()) else {
            return Ok(());
        };
        log.await_deferred(index, &|| self.inner.index_view())
    }

    /// Called before a checkpoint. Returns when everything that it may copy is durable.
    pub fn await_published(&self) -> Result<(), LogError> {
        let (Some(index), Some(log)) = (self.read_view(), self.log()) else {
            return Ok(());
        };
        log.await_deferred(index, &|| self.inner.index_view())
    }

    /// The wal-index now or, while another connection rebuilds it, at the last look. The log does
    /// not restart while this connection holds a lock under which it reads the log. So the
    /// generation is the same, and published frames stay.
    fn read_view(&self) -> Option<IndexView> {
        let view = self.inner.index_view();
        // Without shared memory there are no other connections.
        if view.is_some() || self.inner.index().is_none() {
            self.snapshots.seen.set(view);
        }
        self.snapshots.seen.get()
    }

    /// The view of the wal-index for reading a page of the log; `None` if the connection has no
    /// wal-index in shared memory.
    ///
    /// # Errors
    /// The wal-index has not been valid under this lock. The log's header may be of another
    /// generation.
    pub fn view_of_reads(&self) -> Result<Option<IndexView>, LogError> {
        let view = self.read_view();
        if view.is_none() && self.inner.index().is_some() {
            let what = "the wal-index is not valid";
            return Err(LogError::new(ErrorKind::Read, &self.paths.log, what));
        }
        Ok(view)
    }

    /// The write lock was taken.
    pub fn write_locked(&self) {
        self.held.write.set(true);
        self.stall_has_lock();
        if let Some(log) = self.log() {
            self.held.turn.set(true);
            log.group_commit.turns().claim(self.committer);
        }
    }

    /// The write lock was refused. If a writer holds it, tell that writer that others are waiting.
    /// SQLite's busy handler sleeps now; the next time there is a turn to wait for. A reader that
    /// was to recover the wal-index tells nothing. Shared memory is in a file, and a frozen file
    /// system does not let us write it.
    pub fn write_refused(&self) {
        self.stall_is_refused();
        let writes = |connection: Connection| connection.is_writing();
        if let Some(log) = self.log().filter(|log| self.groups_commits(log))
            && self.connection.get().is_some_and(writes)
        {
            let in_another_process = !log.group_commit.turns().is_anothers(self.committer);
            log.shared().note_contention(in_another_process);
        }
    }

    /// At NORMAL a commit waits for nothing, and the next may follow at once.
    fn hands_over(&self) -> HandsOver {
        match self.reads_relaxed() {
            true => HandsOver::BySlices,
            false => HandsOver::EachTime,
        }
    }

    /// Ends the turn to write, if this connection has it.
    pub fn end_turn(&self) {
        if let Some(log) = self.log().filter(|_| self.held.turn.replace(false)) {
            let turns = log.group_commit.turns();
            turns.end(&log, self.committer, self.hands_over());
        }
    }
}

/// The result of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waited {
    Done,
    GaveUp,
}

/// Waits until it is done: at most for `patience`, and only while progress toward it is under way.
fn wait(patience: Duration, is_under_way: impl Fn() -> bool, is_done: impl Fn() -> bool) -> Waited {
    let begun = Instant::now();
    let mut last_under_way = begun;
    while !is_done() {
        let now = Instant::now();
        if is_under_way() {
            last_under_way = now;
        }
        if now - begun >= patience || now - last_under_way >= RESTART_OVER {
            return Waited::GaveUp;
        }
        sleep(RESTART_PAUSE);
    }
    Waited::Done
}

/// Whether `xShmLock` is to take a read lock.
pub fn is_read_lock(offset: c_int, flags: c_int) -> bool {
    offset >= FIRST_READ_LOCK
        && flags & ffi::SQLITE_SHM_LOCK != 0
        && flags & ffi::SQLITE_SHM_SHARED != 0
}

/// Whether `xShmLock` is to release a read lock.
pub fn is_read_unlock(offset: c_int, flags: c_int) -> bool {
    offset >= FIRST_READ_LOCK
        && flags & ffi::SQLITE_SHM_UNLOCK != 0
        && flags & ffi::SQLITE_SHM_SHARED != 0
}

/// Whether `xShmLock` is for the locks under which the log restarts.
pub fn is_restart_lock(offset: c_int, count: c_int, flags: c_int) -> bool {
    offset == FIRST_READ_LOCK + 1
        && count == LOG_READ_LOCKS
        && flags & ffi::SQLITE_SHM_EXCLUSIVE != 0
}

/// Whether `xShmLock` is to take a lock that only recovery takes.
pub fn is_recovery_lock(offset: c_int, count: c_int, flags: c_int) -> bool {
    (offset..offset.saturating_add(count)).contains(&RECOVERY_LOCK)
        && flags & ffi::SQLITE_SHM_LOCK != 0
        && flags & ffi::SQLITE_SHM_EXCLUSIVE != 0
}

/// Whether `xShmLock` is to release a lock that only recovery takes.
pub fn is_recovery_unlock(offset: c_int, count: c_int, flags: c_int) -> bool {
    (offset..offset.saturating_add(count)).contains(&RECOVERY_LOCK)
        && flags & ffi::SQLITE_SHM_UNLOCK != 0
        && flags & ffi::SQLITE_SHM_EXCLUSIVE != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn there_is_no_wait_for_what_no_connection_is_about_to_do() {
        let begun = Instant::now();
        assert_eq!(wait(LONG, || false, || false), Waited::GaveUp);
        assert!(begun.elapsed() < LONG);
    }

    #[test]
    fn what_is_under_way_is_waited_for() {
        let looks = Cell::new(0);
        let is_done = || looks.replace(looks.get() + 1) == 20;
        assert_eq!(wait(LONG, || true, is_done), Waited::Done);
        // If it is done already, there is no wait at all.
        assert_eq!(wait(Duration::ZERO, || false, || true), Waited::Done);
    }

    #[test]
    fn patience_ends() {
        assert_eq!(wait(3 * RESTART_OVER, || true, || false), Waited::GaveUp);
    }
}
