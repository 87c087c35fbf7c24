//! SQLite's calls for remapping checkpoints ([`crate::checkpoint`]).

use std::ffi::c_int;
use std::path::Path;
use std::sync::Arc;

use super::company::{CHECKPOINT_LOCK, FIRST_READ_LOCK, LOG_READ_LOCKS, WRITE_LOCK};
use super::database::Database;
use super::ffi::{self, SQLITE_OK};
use super::inner::{Inner, LockLevel};
use crate::checkpoint::{self, Connection, Counters, Index, IndexLocks, Released};
use crate::commit::{SharedLog, Writer};
use crate::log::{Log, LogError};
use crate::mode::{CheckpointPolicy, Region};
use crate::storage::Remap;
use crate::wal::{FRAME_HEADER_BYTES, FrameNo, IndexHeader, IndexView};

impl Index for Inner {
    fn lock(&self, locks: IndexLocks) -> bool {
        let (first, count) = place_of(locks);
        self.shm_lock(first, count, ffi::SQLITE_SHM_LOCK_EXCLUSIVE) == SQLITE_OK
    }

    fn unlock(&self, locks: IndexLocks) {
        let (first, count) = place_of(locks);
        self.shm_lock(first, count, ffi::SQLITE_SHM_UNLOCK_EXCLUSIVE);
    }

    fn view(&self) -> Option<IndexView> {
        self.index_view()
    }

    fn header(&self) -> Option<IndexHeader> {
        self.writable_index()?.header()
    }

    fn backfilled(&self) -> Option<FrameNo> {
        self.backfilled()
    }

    fn backfill_attempted(&self) -> Option<FrameNo> {
        self.index().map(|index| index.backfill_attempted())
    }

    fn can_write(&self) -> bool {
        self.writable_index().is_some()
    }

    fn invalidate(&self) {
        self.invalidate_index();
    }

    fn restart(&self, before: &IndexHeader, salt: [u8; 4]) {
        if let Some(index) = self.writable_index() {
            index.restart(before, salt);
        }
    }
}

fn place_of(locks: IndexLocks) -> (c_int, c_int) {
    match locks {
        IndexLocks::Writers => (WRITE_LOCK, 1),
        IndexLocks::Readers => (FIRST_READ_LOCK + 1, LOG_READ_LOCKS),
    }
}

/// A connection with its log.
struct WithLog<'a> {
    database: &'a Database,
    log: &'a Arc<SharedLog>,
}

impl Connection for WithLog<'_> {
    fn index(&self) -> &dyn Index {
        &self.database.inner
    }

    fn log(&self) -> &Log {
        self.log
    }

    fn counters(&self) -> &Counters {
        &self.log.remapped
    }

    fn policy(&self) -> CheckpointPolicy {
        self.database.settings.get().checkpoint
    }

    fn region(&self) -> Option<Region> {
        self.database.settings.get().region
    }

    fn database(&self) -> &Path {
        &self.database.paths.database
    }

    fn is_on_sqlites_vfs(&self) -> bool {
        let name = self.database.host.base_name();
        name.to_bytes().starts_with(b"unix")
    }

    fn is_at_its_path(&self) -> bool {
        self.database.inner.has_moved() == Some(false)
    }

    fn is_exclusive(&self) -> bool {
        self.database.lock.get() == LockLevel::EXCLUSIVE
    }

    fn holds_write_lock(&self) -> bool {
        self.database.held.write.get()
    }

    fn writes(&self) -> bool {
        let writer = self.database.writer.borrow();
        writer.as_ref().is_some_and(Writer::is_in_transaction)
    }

    fn read_logged(
        &self,
        frame: FrameNo,
        view: IndexView,
        page: &mut [u8],
    ) -> Result<(), LogError> {
        let frames = self.log.geometry().page().frame_range(frame);
        let at = frames.start + FRAME_HEADER_BYTES as u64;
        match self.database.writer.borrow_mut().as_mut() {
            Some(writer) => writer.read(page, at, Some(view)),
            None if self.log.read_page(frame, 0, page, &[view.salts])? => Ok(()),
            None => Err(self.log.missing(frame)),
        }
    }

    fn read_database(&self, page: &mut [u8], offset: u64) -> Result<bool, LogError> {
        match self.database.inner.read(page, offset as i64) {
            SQLITE_OK => Ok(true),
            ffi::SQLITE_IOERR_SHORT_READ => Ok(false),
            code => Err(self.database.inner_error("read", code)),
        }
    }

    fn write_database(&self, page: &[u8], offset: u64) -> Result<(), LogError> {
        match self.database.inner.write(page, offset as i64) {
            SQLITE_OK => Ok(()),
            code => Err(self.database.inner_error("write", code)),
        }
    }

    fn prepare_region(&self) {
        self.log.prepare_region(self.region());
    }

    fn report(&self, error: &LogError) {
        self.database.fail(error);
    }
}

impl Database {
    /// Works with the connection from a checkpoint's view, if it has a log.
    fn with_log<T>(&self, work: impl FnOnce(Option<&dyn Connection>) -> T) -> T {
        match self.log() {
            Some(log) => work(Some(&WithLog {
                database: self,
                log: &log,
            })),
            None => work(None),
        }
    }

    /// A checkpoint begins (`SQLITE_FCNTL_CKPT_START`).
    pub fn begin_remapping(&self) {
        // An earlier checkpoint may not have ended.
        self.end_remapping();
        self.with_log(|of| of.into_iter().for_each(|of| self.remapper.begin(of)));
    }

    /// How checkpoints of this connection remap, if no other connection prevents it.
    pub fn remaps_by(&self, log: &Arc<SharedLog>) -> Option<Remap> {
        let of = WithLog {
            database: self,
            log,
        };
        checkpoint::way(&of).ok().flatten()
    }

    /// `xWrite` to the database: whether it is deferred.
    pub fn puts_off(&self, data: &[u8], offset: u64) -> bool {
        let page = || self.log().map(|log| log.geometry().page());
        self.remapper.puts_off(data, offset, page)
    }

    /// `xTruncate` of the database, with which a whole checkpoint ends.
    ///
    /// # Errors
    /// An I/O error.
    pub fn finish_pages(&self) -> Result<(), LogError> {
        self.with_log(|of| self.remapper.finish(of))
    }

    /// Notes that a reader's lock was taken shared, or released.
    pub fn note_read_lock(&self, lock: c_int, is_held: bool) {
        let number = u8::try_from(lock - FIRST_READ_LOCK).unwrap_or(0);
        self.held.read.set(is_held);
        self.remapper.note_read_lock(number, is_held);
    }

    /// Whether SQLite asks for locks that a checkpoint already keeps for it.
    pub fn keeps_lock(&self, offset: c_int, flags: c_int) -> bool {
        offset > FIRST_READ_LOCK
            && flags & ffi::SQLITE_SHM_EXCLUSIVE != 0
            && self.remapper.keeps_readers_out()
    }

    /// SQLite is about to release one of its locks. The checkpoint may end with it.
    pub fn before_shm_unlock(&self, offset: c_int, flags: c_int) {
        if flags & ffi::SQLITE_SHM_UNLOCK == 0 {
            return;
        }
        let last = self.remapper.lasts_until().map(|lock| match lock {
            Released::Write => WRITE_LOCK,
            Released::Checkpoint => CHECKPOINT_LOCK,
        });
        if last == Some(offset) {
            self.end_remapping();
        }
    }

    /// The checkpoint is over, whatever its result.
    pub fn end_remapping(&self) {
        self.with_log(|of| self.remapper.end(&self.inner, of));
    }

    /// Recovery has read a whole frame: see [`checkpoint::repair()`].
    ///
    /// # Errors
    /// Its errors.
    pub fn repair(&self, no: FrameNo, frame: &mut [u8]) -> Result<(), LogError> {
        self.with_log(|of| of.map_or(Ok(()), |of| checkpoint::repair(no, frame, of)))
    }

    /// A page was read from the log: see [`checkpoint::check_page`].
    ///
    /// # Errors
    /// Its errors.
    pub fn check_page(&self, no: FrameNo, page: &mut [u8]) -> Result<(), LogError> {
        self.with_log(|of| of.map_or(Ok(()), |of| checkpoint::check_page(no, page, of)))
    }
}
