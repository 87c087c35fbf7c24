//! Checkpoints by block remapping, as SQLite's calls show them.
//!
//! A checkpoint of SQLite's reads each page from the log and writes it to the database, truncates and
//! flushes the database, and says in the wal-index how far it came. An exchange destroys the log's copy of a
//! page. So it is done only where nobody can need that copy, and in this order:
//!
//! 1. `CKPT_START`: the checkpoint will copy everything that is published, and nobody reads or writes:
//!    SQLite's locks WRITE and READ 1 to 4 are taken and kept, READ 0 SQLite holds already. (Or the
//!    connection is the last one, and closes: it has the database EXCLUSIVE.)
//! 2. Writes of pages that come from the log are put off.
//! 3. `xTruncate`, which follows the last page: the wal-index is made invalid; pages change places;
//!    the rest is copied. SQLite flushes the database.
//! 4. When SQLite lets go of its own locks: if the checkpoint has succeeded, the wal-index gets a log that
//!    begins anew, as SQLite's own restart writes it, and the log an empty header. Else it stays invalid.
//!
//! Whether it pays is looked at before step 1, from the headers of the log's frames: where it does not, nobody is
//! kept out.
//!
//! Whoever finds the wal-index invalid recovers from the log. Frame headers stay where they are, so a
//! frame whose page went to the database is found there, by page number and checksum, and is put back
//! ([`Database::repair`]). The argument: `docs/durability.md`, RM1 to RM30.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::sync::Arc;
use std::time::Instant;

use super::company::{CHECKPOINT_LOCK, FIRST_READ_LOCK, LOG_READ_LOCKS, WRITE_LOCK};
use super::database::Database;
use super::ffi::{self, SQLITE_OK};
use super::inner::{IndexHeader, LockLevel};
use crate::checkpoint::cost::Cost;
use crate::checkpoint::{self, Logged, Run};
use crate::commit::{SharedLog, Writer};
use crate::log::forward::Taken;
use crate::log::{ErrorKind, Log, LogError};
use crate::mode::{CheckpointPolicy, Layout};
use crate::storage::{Access, Durability, Init, Remap, Remapped, Remapping};
use crate::waits::REMAPPING;
use crate::wal::{
    FRAME_HEADER_BYTES, FrameHeader, FrameNo, HEADER_BYTES, IndexView, PageNo, WalHeader, array,
};

const TOO_LONG: &str = "the calls would take too long";
const NOT_ITS_HEADER: &str = "a frame's header in the log is not that of its page";

/// What a connection's checkpoint is doing; see the module.
#[derive(Default)]
pub struct Remapper {
    held: RefCell<Option<Held>>,
    /// The last page that was read from the log.
    read: Cell<Option<FrameNo>>,
    /// Shared locks of readers that this connection has, by number.
    read_locks: Cell<u8>,
    /// The connection took the database EXCLUSIVE to leave it.
    is_leaving: Cell<bool>,
}

/// A remapping checkpoint under way.
struct Held {
    how: Remap,
    /// What the wal-index said.
    header: IndexHeader,
    view: IndexView,
    since: Instant,
    /// Most of the pages were new in the database.
    taken: Taken,
    /// The database was flushed after the last page.
    is_synced: bool,
    /// Not where the connection is the only one.
    keeps_locks: bool,
    took_write_lock: bool,
    pages: Vec<Logged>,
    invalidated: bool,
    /// What was put off is done.
    is_finished: bool,
}

/// Puts a checkpoint back that keeps locks: they must not be forgotten.
struct PutBack<'a> {
    cell: &'a RefCell<Option<Held>>,
    held: Option<Held>,
}

impl Drop for PutBack<'_> {
    fn drop(&mut self) {
        let held = self.held.take().filter(|held| held.keeps_locks);
        self.cell.replace(held);
    }
}

impl Remapper {
    /// Whether a checkpoint has taken SQLite's WRITE lock by itself.
    pub fn has_write_lock(&self) -> bool {
        let held = self.held.borrow();
        held.as_ref()
            .is_some_and(|held| held.keeps_locks && held.took_write_lock)
    }

    /// A reader's lock was taken or released.
    pub fn note_read_lock(&self, lock: c_int, is_held: bool) {
        let bit = 1u8 << (lock - FIRST_READ_LOCK).clamp(0, 7);
        let locks = self.read_locks.get();
        self.read_locks.set(match is_held {
            true => locks | bit,
            false => locks & !bit,
        });
    }

    /// Whether the connection has a lock of a reader that uses the log.
    pub fn reads_the_log(&self) -> bool {
        self.read_locks.get() & !1 != 0
    }

    /// Whether SQLite asks for locks that are kept for it.
    pub fn keeps(&self, offset: c_int, flags: c_int) -> bool {
        let keeps_readers = || {
            let held = self.held.borrow();
            held.as_ref().is_some_and(|held| held.keeps_locks)
        };
        offset > FIRST_READ_LOCK && flags & ffi::SQLITE_SHM_EXCLUSIVE != 0 && keeps_readers()
    }

    /// The database was flushed.
    pub fn note_sync(&self) {
        if let Ok(mut held) = self.held.try_borrow_mut()
            && let Some(held) = held.as_mut().filter(|held| held.is_finished)
        {
            held.is_synced = true;
        }
    }

    /// A whole page of the log was read.
    pub fn note_read(&self, frame: Option<FrameNo>) {
        self.read.set(frame);
    }
}

impl Database {
    /// The connection goes from SHARED to EXCLUSIVE. While it reads nothing, it does so to close or to
    /// leave the journal mode; for `locking_mode=EXCLUSIVE` it does so inside a transaction.
    pub fn note_exclusive(&self) {
        let reads = self.remapper.read_locks.get() != 0;
        self.remapper.is_leaving.set(!reads);
    }

    /// A checkpoint begins (`SQLITE_FCNTL_CKPT_START`): writes to the database are put off from here on,
    /// where it may remap.
    pub fn begin_remapping(&self) {
        // Of a checkpoint that came to no end.
        self.end_remapping();
        let Some(log) = self.log() else { return };
        let how = match self.way_to_remap(&log) {
            Ok(Some(how)) => how,
            Ok(None) => return,
            Err(why) => return log.remapped.count_refusal(why),
        };
        if let Err(why) = self
            .foresee(how, &log)
            .and_then(|planned| self.hold(how, planned))
        {
            log.remapped.count_refusal(why);
        }
    }

    /// Whether remapping pays, before anybody is kept out for it; for which state of the wal-index.
    fn foresee(&self, how: Remap, log: &SharedLog) -> Result<Planned, &'static str> {
        let view = self.inner.index_view();
        let (view, copied) = view
            .zip(self.inner.backfilled())
            .ok_or("the wal-index is not valid")?;
        let frames = log
            .gathered_pages(copied, view.last_frame, view.salts)
            .map_err(|_| "the log cannot be read")?
            .ok_or(NOT_ITS_HEADER)?;
        // Page 1 is copied in any case.
        let frames = frames.into_iter().filter(|(_, page)| page.0 > 1);
        let pages = checkpoint::newest(frames);
        let runs = checkpoint::runs(&pages, log.geometry());
        judge(how, &runs, log).map(|()| Planned(view))
    }

    fn way_to_remap(&self, log: &Log) -> Result<Option<Remap>, &'static str> {
        let policy = self.settings.get().checkpoint;
        let how = match policy {
            CheckpointPolicy::Copy => return Ok(None),
            CheckpointPolicy::Exchange | CheckpointPolicy::Forward => Some(Remap::Exchange),
            CheckpointPolicy::Clone => Some(Remap::Clone),
            CheckpointPolicy::Auto => checkpoint::automatic(&log.file().capabilities().filesystem),
        };
        // Another VFS may keep other bytes in the file than SQLite gave it.
        let is_plain = self.host.base_name().to_bytes().starts_with(b"unix");
        if how.is_some() && !is_plain {
            return Err("the VFS underneath is not SQLite's own");
        }
        if how.is_some() && log.geometry().layout() != Layout::Gathered {
            return Err("the log's layout is not gathered");
        }
        Ok(how)
    }

    /// How checkpoints of this connection remap, where nobody is in the way.
    pub fn remaps_by(&self, log: &Log) -> Option<Remap> {
        self.way_to_remap(log).ok().flatten()
    }

    /// Keeps everybody else out, if there is nobody.
    fn hold(&self, how: Remap, planned: Planned) -> Result<(), &'static str> {
        let inner = &self.inner;
        let since = Instant::now();
        let exclusive = self.lock.get() == LockLevel::EXCLUSIVE;
        if exclusive && !self.remapper.is_leaving.get() {
            return Err("locking_mode=EXCLUSIVE goes on with the log");
        }
        if self.remapper.read_locks.get() != 0 {
            return Err("the connection reads");
        }
        let took_write_lock = !exclusive && !self.holds_write_lock.get();
        if took_write_lock
            && inner.shm_lock(WRITE_LOCK, 1, ffi::SQLITE_SHM_LOCK_EXCLUSIVE) != SQLITE_OK
        {
            return Err("somebody writes");
        }
        let readers_out = exclusive
            || inner.shm_lock(
                FIRST_READ_LOCK + 1,
                LOG_READ_LOCKS,
                ffi::SQLITE_SHM_LOCK_EXCLUSIVE,
            ) == SQLITE_OK;
        let index = inner.index_header().zip(inner.index_view());
        // Somebody may have committed before the lock was ours.
        let attempted = inner.backfill_attempted();
        let index = index.filter(|(_, view)| {
            readers_out && attempted == Some(view.last_frame) && *view == planned.0
        });
        if let Some((header, view)) = index {
            self.remapper.held.replace(Some(Held {
                how,
                header,
                view,
                since,
                taken: Taken::Rewritten,
                is_synced: false,
                keeps_locks: !exclusive,
                took_write_lock,
                pages: Vec::new(),
                invalidated: false,
                is_finished: false,
            }));
            return Ok(());
        }
        if readers_out && !exclusive {
            self.let_readers_in();
        }
        if took_write_lock {
            inner.shm_lock(WRITE_LOCK, 1, ffi::SQLITE_SHM_UNLOCK_EXCLUSIVE);
        }
        match readers_out {
            true => Err("not everything can be copied yet"),
            false => Err("somebody reads from the log"),
        }
    }

    fn let_readers_in(&self) {
        let flags = ffi::SQLITE_SHM_UNLOCK_EXCLUSIVE;
        self.inner
            .shm_lock(FIRST_READ_LOCK + 1, LOG_READ_LOCKS, flags);
    }

    /// `xWrite` to the database: whether it is put off.
    pub fn puts_off(&self, data: &[u8], offset: u64) -> bool {
        let Some(frame) = self.remapper.read.take() else {
            return false;
        };
        let Ok(mut held) = self.remapper.held.try_borrow_mut() else {
            return false;
        };
        let (Some(held), Some(log)) = (held.as_mut(), self.log()) else {
            return false;
        };
        let page_bytes = log.geometry().page().bytes();
        // Page 1 has the guard in the database, and not in the log.
        let is_page = data.len() == page_bytes && offset.is_multiple_of(page_bytes as u64);
        let page = u32::try_from(offset / page_bytes as u64 + 1).ok();
        let ascends = |page: u32| held.pages.last().is_none_or(|last| last.page.0 < page);
        let fits = |page: u32| page > 1 && frame <= held.view.last_frame && ascends(page);
        match page.filter(|&page| is_page && !held.is_finished && fits(page)) {
            Some(page) => {
                held.pages.push(Logged {
                    page: PageNo(page),
                    frame,
                });
                true
            }
            None => false,
        }
    }

    /// `xTruncate` of the database, with which a whole checkpoint ends: what was put off is done.
    ///
    /// # Errors
    /// An I/O error; the checkpoint fails, and whoever reads next recovers from the log.
    pub fn finish_pages(&self) -> Result<(), LogError> {
        let Some(held) = self.remapper.held.take() else {
            return Ok(());
        };
        // Whatever comes of it, also where it panics.
        let mut kept = PutBack {
            cell: &self.remapper.held,
            held: Some(Held {
                is_finished: true,
                ..held
            }),
        };
        match (self.log(), kept.held.as_mut()) {
            (Some(log), Some(held)) if !held.pages.is_empty() => self.bring_pages(held, &log),
            _ => Ok(()),
        }
    }

    fn bring_pages(&self, held: &mut Held, log: &SharedLog) -> Result<(), LogError> {
        let runs = checkpoint::runs(&held.pages, log.geometry());
        let refusal = match judge(held.how, &runs, log) {
            Ok(()) => self.check_headers(held, log)?,
            Err(why) => Some(why),
        };
        if let Some(why) = refusal {
            return self.copy_all(held, log, why);
        }
        let moves: Vec<_> = runs.iter().map(|run| run.place).collect();
        let remapping = Remapping {
            log: log.file(),
            database: &self.paths.database,
            how: held.how,
            moves: &moves,
            init: log.init(),
        };
        let remapped = remapping
            .run(
                || self.is_at_its_path(),
                || self.invalidate_for_remapping(held),
            )
            .map_err(|e| {
                LogError::io(
                    ErrorKind::Write,
                    &self.paths.database,
                    "remap blocks of the log into",
                    &e,
                )
            })?;
        if !held.invalidated && !remapped.done.contains(&true) {
            // All of it is new in the database, say: the log has every page, and goes on.
            return self.copy_all(held, log, remapped.why_not.as_deref().unwrap_or_default());
        }
        for (run, _) in runs.iter().zip(&remapped.done).filter(|(_, done)| !**done) {
            let pages = held.pages.get(run.first..run.first + run.pages);
            pages
                .into_iter()
                .flatten()
                .try_for_each(|page| self.copy(*page, held.view))?;
        }
        held.taken = taken(&runs, &remapped);
        log.remapped
            .count_checkpoint(&runs, &remapped, held.pages.len());
        Ok(())
    }

    /// Nothing was moved, and copying keeps nobody out. SQLite knows already how far it will have come.
    fn copy_all(&self, held: &mut Held, log: &SharedLog, why: &str) -> Result<(), LogError> {
        log.remapped.count_refusal(why);
        self.let_everybody_in(held, log);
        held.pages
            .iter()
            .try_for_each(|page| self.copy(*page, held.view))
    }

    fn invalidate_for_remapping(&self, held: &mut Held) {
        if held.how == Remap::Exchange && held.keeps_locks {
            // Should this process die now, the next reader recovers.
            self.inner.invalidate_index();
            held.invalidated = true;
        }
    }

    fn let_everybody_in(&self, held: &mut Held, log: &SharedLog) {
        if std::mem::take(&mut held.keeps_locks) {
            log.remapped.count_kept_out(held.since.elapsed());
            self.release(held);
        }
    }

    fn release(&self, held: &mut Held) {
        held.keeps_locks = false;
        self.let_readers_in();
        if held.took_write_lock {
            self.inner
                .shm_lock(WRITE_LOCK, 1, ffi::SQLITE_SHM_UNLOCK_EXCLUSIVE);
        }
    }

    /// Recovery finds a page in the database by its frame's header: so the header in the file must be
    /// that of the page.
    fn check_headers(
        &self,
        held: &Held,
        log: &SharedLog,
    ) -> Result<Option<&'static str>, LogError> {
        for logged in &held.pages {
            let header = log.read_gathered_header(logged.frame)?;
            if header.page != logged.page || header.salts != held.view.salts {
                return Ok(Some(NOT_ITS_HEADER));
            }
        }
        Ok(None)
    }

    /// Writes a page that was put off, as SQLite would have done.
    fn copy(&self, logged: Logged, view: IndexView) -> Result<(), LogError> {
        let Some(log) = self.log() else { return Ok(()) };
        let size = log.geometry().page();
        let mut page = vec![0; size.bytes()];
        let at = size.frame_range(logged.frame).start + FRAME_HEADER_BYTES as u64;
        // The wal-index itself may be invalid by now.
        match self.writer.borrow_mut().as_mut() {
            Some(writer) => writer.read(&mut page, at, Some(view))?,
            None if log.read_page(logged.frame, 0, &mut page, &[view.salts])? => {}
            None => return Err(log.missing(logged.frame)),
        }
        let offset = i64::from(logged.page.0 - 1) * size.bytes() as i64;
        match self.inner.write(&page, offset) {
            SQLITE_OK => Ok(()),
            code => Err(self.inner_error("write", code)),
        }
    }

    fn is_at_its_path(&self) -> bool {
        self.inner.has_moved() == Some(false)
    }

    /// SQLite is about to release one of its locks. With the last that keeps writers out the checkpoint is
    /// over.
    pub fn before_shm_unlock(&self, offset: c_int, flags: c_int) {
        if flags & ffi::SQLITE_SHM_UNLOCK == 0 {
            return;
        }
        let ends = self.remapper.held.borrow().as_ref().is_some_and(|held| {
            held.keeps_locks
                && match held.took_write_lock {
                    true => offset == CHECKPOINT_LOCK,
                    false => offset == WRITE_LOCK,
                }
        });
        if ends {
            self.end_remapping();
        }
    }

    /// The checkpoint is over, whatever came of it.
    pub fn end_remapping(&self) {
        self.remapper.read.set(None);
        let Some(mut held) = self.remapper.held.take() else {
            return;
        };
        if !held.keeps_locks {
            return;
        }
        // SQLite has restarted the log itself in a checkpoint of the kind TRUNCATE.
        let is_invalid = held.invalidated && self.inner.index_view().is_none();
        if is_invalid && self.inner.backfilled() == Some(held.view.last_frame) {
            let mut salt = [0; 4];
            // Without it stays invalid, and is recovered.
            if getrandom::fill(&mut salt).is_ok() {
                self.inner.restart_index(&held.header, salt);
            }
        }
        let Some(log) = self.log() else {
            return self.release(&mut held);
        };
        // So it is now, by us or by SQLite. Without a flush, at synchronous=OFF, nothing is promised.
        let begins_anew =
            |view: IndexView| view.last_frame == FrameNo(0) && view.salts != held.view.salts;
        if held.invalidated && held.is_synced && self.inner.index_view().is_some_and(begins_anew) {
            self.empty_log(&held, &log);
        }
        self.let_everybody_in(&mut held, &log);
    }

    /// The database has everything, durably, and the wal-index says so: the log's own header need not lead to the
    /// frames any more. Who comes next, after a kill, has nothing to recover. With the power this may be lost: then
    /// recovery finds the frames in the database.
    fn empty_log(&self, held: &Held, log: &Arc<SharedLog>) {
        // Before blocks of older generations come to the log's start: salts may come again after a recovery.
        let durability = match self.settings.get().checkpoint {
            CheckpointPolicy::Forward => Durability::WriteThrough,
            _ => Durability::None,
        };
        let emptied = log
            .check_poison()
            .and_then(|()| log.write_wal_header(&[0; HEADER_BYTES], durability));
        if let Err(e) = emptied {
            self.fail(&e);
            return;
        }
        if self.settings.get().checkpoint != CheckpointPolicy::Forward {
            return;
        }
        match log.go_forward(held.view.last_frame, held.taken) {
            Ok(true) => log.remapped.count_forward(log.region_bytes()),
            Ok(false) => {}
            Err(e) => log
                .remapped
                .count_refusal(&format!("the log did not move forward: {e}")),
        }
        if log.init() != Init::Unwritten {
            log.prepare_region();
        }
    }

    /// Recovery has read a frame, header and page: if its page went to the database in a checkpoint that
    /// was cut short, it is put back into the log. `frame` is what was read; it becomes whole.
    ///
    /// # Errors
    /// The log or the database cannot be read, or the log not be written.
    pub fn repair(&self, no: FrameNo, frame: &mut [u8]) -> Result<(), LogError> {
        let Some(log) = self.gathered_log() else {
            return Ok(());
        };
        if self.writes() {
            return Ok(());
        }
        let (header, page) = frame.split_at_mut(FRAME_HEADER_BYTES);
        let header = FrameHeader::parse(&array(header));
        let Whereabouts::Database(found) = self.whereabouts(&log, no, &header, page)? else {
            return Ok(());
        };
        // Recovery holds the write lock, or the database EXCLUSIVE. With a wal-index of its own, in memory, a
        // connection may recover beside one that writes: that takes what it needs, and leaves the log alone.
        if self.holds_write_lock.get() || self.lock.get() == LockLevel::EXCLUSIVE {
            if log.file().access() == Access::ReadOnly {
                return Err(log.error(
                    ErrorKind::ReadOnly,
                    "a checkpoint was cut short: recovery needs a connection that can write",
                ));
            }
            log.file()
                .write_buffered_at(&found, log.geometry().page_offset(no))?;
            log.remapped.count_repair();
        }
        page.copy_from_slice(&found);
        Ok(())
    }

    /// A page was read from the log. A connection that cannot write the wal-index may have one of its own, in
    /// memory, and go on trusting it when a checkpoint has come and gone: it looks whether the page is the
    /// frame's, and takes it from the database if it is not.
    ///
    /// # Errors
    /// The log or the database cannot be read; the page is in neither.
    pub fn check_page(&self, no: FrameNo, page: &mut [u8]) -> Result<(), LogError> {
        let may_be_outdated = !self.inner.can_write_index()
            && self.lock.get() != LockLevel::EXCLUSIVE
            && !self.writes();
        let Some(log) = self.gathered_log().filter(|_| may_be_outdated) else {
            return Ok(());
        };
        let header = log.read_gathered_header(no)?;
        match self.whereabouts(&log, no, &header, page)? {
            Whereabouts::Log => Ok(()),
            Whereabouts::Database(found) => {
                page.copy_from_slice(&found);
                Ok(())
            }
            Whereabouts::Nowhere => {
                let what = format!("the page of frame {no} is neither here nor in the database");
                Err(log.error(ErrorKind::Corrupt, &what))
            }
        }
    }

    /// In a transaction SQLite reads its own frames back, which need not be in the file yet.
    fn writes(&self) -> bool {
        let writes = |writer: &Writer| writer.is_in_transaction();
        self.writer.borrow().as_ref().is_some_and(writes)
    }

    fn gathered_log(&self) -> Option<Arc<SharedLog>> {
        self.log()
            .filter(|log| log.geometry().layout() == Layout::Gathered)
    }

    /// Where the page of a frame is: as read from the log, or in the database.
    fn whereabouts(
        &self,
        log: &SharedLog,
        no: FrameNo,
        header: &FrameHeader,
        page: &[u8],
    ) -> Result<Whereabouts, LogError> {
        let Some(wal) = WalHeader::parse(&log.read_header()?.wal) else {
            return Ok(Whereabouts::Nowhere);
        };
        let previous = match no.0 {
            1 => wal.checksum(),
            n => log.read_gathered_header(FrameNo(n - 1))?.checksum,
        };
        if header.follows(&wal, previous, page) {
            return Ok(Whereabouts::Log);
        }
        // Page 1 is never remapped.
        if header.salts != wal.salts || header.page.0 < 2 {
            return Ok(Whereabouts::Nowhere);
        }
        let mut found = vec![0; page.len()];
        let at = i64::from(header.page.0 - 1) * page.len() as i64;
        match self.inner.read(&mut found, at) {
            SQLITE_OK => {}
            ffi::SQLITE_IOERR_SHORT_READ => return Ok(Whereabouts::Nowhere),
            code => return Err(self.inner_error("read", code)),
        }
        Ok(match header.follows(&wal, previous, &found) {
            true => Whereabouts::Database(found),
            false => Whereabouts::Nowhere,
        })
    }
}

/// The state of the wal-index that it was found worth to remap in.
struct Planned(IndexView);

/// Whether these runs are better remapped than copied; if not, why.
fn judge(how: Remap, runs: &[Run], log: &SharedLog) -> Result<(), &'static str> {
    let recent = log.remapped.snapshot().recent_call_us;
    let cost = Cost::of(how).with_calls_of(recent);
    match (cost.is_worth(runs), cost.time(runs) <= REMAPPING) {
        (true, true) => Ok(()),
        (false, _) => Err("copying writes less"),
        (_, false) => {
            log.remapped.count_impatience(TOO_LONG);
            Err(TOO_LONG)
        }
    }
}

/// What the blocks mostly were that the log got.
fn taken(runs: &[Run], remapped: &Remapped) -> Taken {
    let of = |marks: &[bool]| -> usize {
        let marked = runs.iter().zip(marks).filter(|(_, mark)| **mark);
        marked.map(|(run, _)| run.pages).sum()
    };
    match of(&remapped.grown) * 2 > of(&remapped.done) {
        true => Taken::Grown,
        false => Taken::Rewritten,
    }
}

/// Where the page of a frame is.
enum Whereabouts {
    /// In the log, where it belongs.
    Log,
    /// In the database.
    Database(Vec<u8>),
    /// In neither: the frame is not of this generation, or was never whole.
    Nowhere,
}
