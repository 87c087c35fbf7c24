//! Strict group commit as SQLite's locks show it: when a connection waits for others, and for what.
//! The rules are those of `docs/durability.md`, J1 to J17; the waiting itself is done in
//! [`crate::commit::group_commit`].

use std::ffi::c_int;
use std::time::Duration;

use super::database::{CheckpointLock, Database};
use super::ffi;
use super::host::Connection;
use crate::commit::IndexView;
use crate::log::shared::Company;
use crate::log::{ErrorKind, Log, LogError};
use crate::sync::{Instant, sleep};
use crate::wal::FrameNo;

/// SQLite's locks in the wal-index.
pub const WRITE_LOCK: c_int = 0;
pub const CHECKPOINT_LOCK: c_int = 1;
const RECOVERY_LOCK: c_int = 2;
pub const FIRST_READ_LOCK: c_int = 3;
/// Those behind the first: of readers that use the log.
pub const LOG_READ_LOCKS: c_int = 4;

/// How a wait for the log's restart goes on.
const PAUSE: Duration = Duration::from_micros(100);
/// A commit that has come to its end needs a moment to begin its checkpoint. Where nothing has been under way for
/// longer, nothing will let the log start again.
const OVER: Duration = Duration::from_millis(1);

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
        let in_company = log.shared().company() > Company::None
            || log.group_commit.turns().is_anothers(self.who);
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
        log.group_commit.turns().take(&log, self.who);
        self.has_turn.set(true);
        self.wait_for_restart(&log);
        // SQLite found frames to be copied when it chose this lock. When there are none it takes another
        // one, with which the log may start again.
        look() != before || self.may_restart() == Some(FrameNo(0))
    }

    /// Frames that a checkpoint has yet to copy; `None` where it has hardly begun.
    fn may_restart(&self) -> Option<FrameNo> {
        let last = self.inner.index_view()?.last_frame;
        let copied = self.inner.backfilled()?;
        (copied.0 > last.0 / 2).then(|| FrameNo(last.0 - copied.0.min(last.0)))
    }

    /// A log starts again when a writer begins, finds everything in the database and nobody reading from
    /// the log. With many writers there is always one more commit, and one that waits for its flush: so
    /// when a checkpoint has copied the most of it, the writer whose turn it is lets the others come to
    /// their end, and their checkpoints too.
    fn wait_for_restart(&self, log: &Log) {
        let may_go_on = || match self.may_restart() {
            Some(FrameNo(0)) => self.nobody_reads_the_log(),
            Some(_) => false,
            None => true,
        };
        let is_under_way = || {
            let commits = self.inner.index_view();
            commits.is_some_and(|seen| log.may_hold_deferred(seen)) || self.somebody_checkpoints()
        };
        self.wait_patiently(log, is_under_way, may_go_on);
    }

    /// Waits for what lets the log start again, where that was not in vain a moment ago.
    fn wait_patiently(
        &self,
        log: &Log,
        is_under_way: impl Fn() -> bool,
        is_done: impl Fn() -> bool,
    ) {
        let Some(index) = self.inner.index_view() else {
            return;
        };
        let patience = log.group_commit.patience_for_restart(index);
        if !patience.is_zero() && wait(patience, is_under_way, is_done) == Waited::InVain {
            log.group_commit.gave_up_restart(index);
        }
    }

    /// Whether another connection checkpoints now.
    fn somebody_checkpoints(&self) -> bool {
        // A connection that starts the log again shares it, and does not checkpoint.
        let lock = |flags| {
            let flags = flags | ffi::SQLITE_SHM_SHARED;
            self.inner.shm_lock(CHECKPOINT_LOCK, 1, flags) == ffi::SQLITE_OK
        };
        !(lock(ffi::SQLITE_SHM_LOCK) && lock(ffi::SQLITE_SHM_UNLOCK))
    }

    /// `xShmLock` of a checkpoint. With many writers each of them checkpoints after its commit, and all
    /// but one are refused. If they all came to wait for the log's restart then, nobody would be left to copy what
    /// was committed meanwhile: so when the most of the log is copied, and a writer lets the others come to
    /// their end, they wait for their turn to checkpoint.
    ///
    /// Only those: a checkpoint that an application asks for does not wait, if it is not to (PASSIVE). What follows a
    /// commit comes within the call that has committed, so that nothing has come in between and no statement runs any
    /// more; a pragma is a statement that runs.
    pub fn lock_for_checkpoint(&self, flags: c_int) -> c_int {
        if let Err(e) = self.check_not_taken() {
            return self.fail(&e);
        }
        let follows_commit = self.has_just_committed.take()
            && self
                .connection
                .get()
                .is_some_and(|connection| !connection.is_running());
        let code = std::cell::Cell::new(ffi::SQLITE_BUSY);
        let locked = || {
            code.set(self.inner.shm_lock(CHECKPOINT_LOCK, 1, flags));
            code.get() != ffi::SQLITE_BUSY
        };
        if !locked()
            && follows_commit
            && let Some(log) = self.log().filter(|log| self.groups_commits(log))
            && self.may_restart().is_some()
        {
            log.group_commit.note_checkpoint_wait();
            self.wait_patiently(&log, || true, locked);
        }
        self.note_checkpoint_lock(CHECKPOINT_LOCK, 1, flags, code.get());
        code.get()
    }

    /// `xShmLock`, once it is done: whether it was for the lock of checkpoints. Recovery takes it as well.
    pub fn note_checkpoint_lock(&self, offset: c_int, count: c_int, flags: c_int, code: c_int) {
        let is_it = (offset..offset.saturating_add(count)).contains(&CHECKPOINT_LOCK);
        if !is_it || flags & ffi::SQLITE_SHM_EXCLUSIVE == 0 || code != ffi::SQLITE_OK {
            return;
        }
        let is_taken = flags & ffi::SQLITE_SHM_LOCK != 0;
        self.checkpoint_lock.set(match is_taken {
            true => CheckpointLock::Exclusive,
            false => CheckpointLock::Free,
        });
        if is_taken && !self.remapper.reads_the_log() {
            self.seen.set(self.inner.index_view());
        }
    }

    /// Recovery is over, and its locks are about to be released.
    pub fn recovered(&self) {
        let index = self.inner.index_view();
        self.seen.set(index);
        if let Some(writer) = self.writer.borrow().as_ref() {
            writer.recovered(index);
        }
    }

    /// `xShmLock` of all readers' locks but the first: the log starts again.
    ///
    /// SQLite 3.7.0 to 3.51.2 loses commits where a writer does that while a checkpoint has read the wal-index and
    /// has not begun to copy: the checkpoint then copies frames of the old generation from a log of the new one,
    /// and says that the new one is in the database. So who starts the log again keeps checkpoints out for as
    /// long, and does not start it while there is one: then SQLite goes on behind the log's end.
    pub fn lock_for_restart(&self, flags: c_int) -> c_int {
        let lock_log = || {
            self.inner
                .shm_lock(FIRST_READ_LOCK + 1, LOG_READ_LOCKS, flags)
        };
        if self.checkpoint_lock.get() != CheckpointLock::Free {
            return lock_log();
        }
        let shared = ffi::SQLITE_SHM_LOCK | ffi::SQLITE_SHM_SHARED;
        match self.inner.shm_lock(CHECKPOINT_LOCK, 1, shared) {
            ffi::SQLITE_OK => self.checkpoint_lock.set(CheckpointLock::ForRestart),
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
        if self.checkpoint_lock.get() == CheckpointLock::ForRestart {
            let flags = ffi::SQLITE_SHM_UNLOCK | ffi::SQLITE_SHM_SHARED;
            self.inner.shm_lock(CHECKPOINT_LOCK, 1, flags);
            self.checkpoint_lock.set(CheckpointLock::Free);
        }
    }

    /// Whether no connection reads frames of the log now: SQLite's locks for that are all free.
    fn nobody_reads_the_log(&self) -> bool {
        let lock = |flags| {
            let flags = flags | ffi::SQLITE_SHM_EXCLUSIVE;
            self.inner
                .shm_lock(FIRST_READ_LOCK + 1, LOG_READ_LOCKS, flags)
                == ffi::SQLITE_OK
        };
        lock(ffi::SQLITE_SHM_LOCK) && lock(ffi::SQLITE_SHM_UNLOCK)
    }

    /// SQLite has taken a read lock: what it will read is what is published now.
    pub fn read_locked(&self, lock: c_int) -> Result<(), LogError> {
        self.snapshot.set(None);
        let copied = self.inner.backfilled();
        self.seen.set(self.inner.index_view());
        if lock != FIRST_READ_LOCK {
            self.finish_restart(copied);
        }
        let (Some(log), Some(index)) = (self.log(), self.seen.get()) else {
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

    /// Finishes the restart of a log in which a writer died. SQLite publishes the new header before it sets
    /// `nBackfill` to 0. With the old one it would take the next commits for copied, and not read them.
    ///
    /// Under a read lock other than the first nobody restarts the log. `copied` is `nBackfill` as it stood
    /// before `mxFrame` was read, so it is not larger unless a writer died.
    fn finish_restart(&self, copied: Option<FrameNo>) {
        if let (Some(copied), Some(index)) = (copied, self.seen.get())
            && copied > index.last_frame
        {
            self.inner.forget_backfill(copied);
        }
    }

    /// The read lock was released.
    pub fn read_unlocked(&self) {
        self.snapshot.set(None);
        self.seen.set(None);
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
        let (Some(index), Some(log)) = (self.read_view(), self.log()) else {
            return Ok(());
        };
        log.await_deferred(index, &|| self.inner.index_view())
    }

    /// What the wal-index says, or, while another connection makes it anew, what it said last. As long as this
    /// connection holds a lock under which it reads the log, the log does not start again: the generation is the
    /// same, and what was published stays.
    fn read_view(&self) -> Option<IndexView> {
        let view = self.inner.index_view();
        // Without shared memory there are no others.
        if view.is_some() || !self.inner.has_index() {
            self.seen.set(view);
        }
        self.seen.get()
    }

    /// What a page of the log is read by; `None` where the connection has no wal-index in shared memory.
    ///
    /// # Errors
    /// It has one, and that has not been valid under this lock. What the log's header says may be of another
    /// generation.
    pub fn view_of_reads(&self) -> Result<Option<IndexView>, LogError> {
        let view = self.read_view();
        if view.is_none() && self.inner.has_index() {
            let what = "the wal-index is not valid";
            return Err(LogError::new(ErrorKind::Read, &self.paths.log, what));
        }
        Ok(view)
    }

    /// The write lock was taken.
    pub fn write_locked(&self) {
        self.holds_write_lock.set(true);
        if let Some(log) = self.log() {
            self.has_turn.set(true);
            log.group_commit.turns().claim(self.who);
        }
    }

    /// The write lock was refused: if it was to a writer, who has it is to know that he is not alone. SQLite's
    /// busy handler sleeps now; the next time there is a turn to wait for. A reader that was to recover the
    /// wal-index says nothing: shared memory is in a file, and that of a frozen file system cannot be written.
    pub fn write_refused(&self) {
        let writes = |connection: Connection| connection.is_writing();
        if let Some(log) = self.log().filter(|log| self.groups_commits(log))
            && self.connection.get().is_some_and(writes)
        {
            let in_another_process = !log.group_commit.turns().is_anothers(self.who);
            log.shared().note_company(in_another_process);
        }
    }

    /// The turn to write is over, if this connection has it.
    pub fn end_turn(&self) {
        if let Some(log) = self.log().filter(|_| self.has_turn.replace(false)) {
            log.group_commit.turns().end(&log, self.who);
        }
    }
}

/// Whether somebody waited for nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waited {
    Done,
    InVain,
}

/// Waits until it is done: at most for `patience`, and no longer than what leads to it is under way.
fn wait(patience: Duration, is_under_way: impl Fn() -> bool, is_done: impl Fn() -> bool) -> Waited {
    let begun = Instant::now();
    let mut last_under_way = begun;
    while !is_done() {
        let now = Instant::now();
        if is_under_way() {
            last_under_way = now;
        }
        if now - begun >= patience || now - last_under_way >= OVER {
            return Waited::InVain;
        }
        sleep(PAUSE);
    }
    Waited::Done
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

/// Whether `xShmLock` is asked for the locks under which the log starts again, or to release them.
pub fn is_restart_lock(offset: c_int, count: c_int, flags: c_int) -> bool {
    offset == FIRST_READ_LOCK + 1
        && count == LOG_READ_LOCKS
        && flags & ffi::SQLITE_SHM_EXCLUSIVE != 0
}

/// Whether `xShmLock` is asked to release what recovery alone takes.
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
    fn nobody_waits_for_what_nobody_is_about_to_do() {
        let begun = Instant::now();
        assert_eq!(wait(LONG, || false, || false), Waited::InVain);
        assert!(begun.elapsed() < LONG);
    }

    #[test]
    fn what_is_under_way_is_waited_for() {
        let looks = Cell::new(0);
        let is_done = || looks.replace(looks.get() + 1) == 20;
        assert_eq!(wait(LONG, || true, is_done), Waited::Done);
        // What is done already is not waited for at all.
        assert_eq!(wait(Duration::ZERO, || false, || true), Waited::Done);
    }

    #[test]
    fn patience_ends() {
        assert_eq!(wait(3 * OVER, || true, || false), Waited::InVain);
    }
}
