//! A remapping checkpoint from start to end; the steps are in [`super`].

use std::cell::{Cell, RefCell};
use std::time::Instant;

use super::blocks::{Remapped, Remapping};
use super::connection::{Connection, Index, IndexLocks};
use super::cost::Cost;
use super::{Counters, Logged, Run, automatic, newest, runs};
use crate::log::forward::Taken;
use crate::log::{ErrorKind, Log, LogError};
use crate::mode::{CheckpointPolicy, Layout};
use crate::storage::{Durability, Remap};
use crate::waits::REMAPPING;
use crate::wal::{FrameNo, HEADER_BYTES, IndexHeader, IndexView, PageNo, PageSize};

const TOO_LONG: &str = "remapping would take too long";
const NOT_ITS_HEADER: &str = "a frame's header in the log does not match its page";

/// A connection's remapping checkpoint, and the state of the connection's locks that it needs.
#[derive(Default)]
pub struct Remapper {
    held: RefCell<Option<Held>>,
    /// The last page that was read from the log.
    read: Cell<Option<FrameNo>>,
    /// READ locks that this connection holds shared: a bit for each number.
    read_locks: Cell<u8>,
    /// Whether the connection took the database EXCLUSIVE to leave it.
    is_leaving: Cell<bool>,
}

/// A checkpoint under way, with readers and writers excluded.
struct Held {
    how: Remap,
    /// The wal-index's header before it became invalid.
    header: IndexHeader,
    view: IndexView,
    since: Instant,
    /// The main kind of the blocks that the log got.
    taken: Taken,
    /// Whether the database was flushed after the last page.
    is_synced: bool,
    /// Whether it has SQLite's locks. False if the connection is the only one.
    keeps_locks: bool,
    took_write_lock: bool,
    pages: Vec<Logged>,
    invalidated: bool,
    /// Whether the deferred pages are in the database.
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
    /// Whether a checkpoint has taken WRITE by itself.
    pub fn has_write_lock(&self) -> bool {
        let held = self.held.borrow();
        held.as_ref()
            .is_some_and(|held| held.keeps_locks && held.took_write_lock)
    }

    /// Notes that a READ lock with this number was taken shared, or released.
    pub fn note_read_lock(&self, number: u8, is_held: bool) {
        let bit = 1u8 << number.min(7);
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

    /// Whether a checkpoint excludes readers of the log.
    pub fn keeps_readers_out(&self) -> bool {
        let held = self.held.borrow();
        held.as_ref().is_some_and(|held| held.keeps_locks)
    }

    /// Notes that the database was flushed.
    pub fn note_sync(&self) {
        if let Ok(mut held) = self.held.try_borrow_mut()
            && let Some(held) = held.as_mut().filter(|held| held.is_finished)
        {
            held.is_synced = true;
        }
    }

    /// Notes that a whole page of the log was read.
    pub fn note_read(&self, frame: Option<FrameNo>) {
        self.read.set(frame);
    }

    /// The connection goes from SHARED to EXCLUSIVE. If it reads nothing then, it does so to close
    /// or to leave the journal mode. For `locking_mode=EXCLUSIVE` it does so inside a transaction.
    pub fn note_exclusive(&self) {
        self.is_leaving.set(self.read_locks.get() == 0);
    }

    /// A checkpoint begins (`SQLITE_FCNTL_CKPT_START`). If it may remap, writes to the database are
    /// deferred from here on. An earlier checkpoint has ended.
    pub fn begin(&self, of: &dyn Connection) {
        let how = match way(of) {
            Ok(Some(how)) => how,
            Ok(None) => return,
            Err(why) => return of.counters().count_refusal(why),
        };
        let begun = foresee(how, of).and_then(|planned| self.hold(how, planned, of));
        if let Err(why) = begun {
            of.counters().count_refusal(why);
        }
    }

    /// Excludes all other connections, if there are none at work.
    fn hold(&self, how: Remap, planned: Planned, of: &dyn Connection) -> Result<(), &'static str> {
        let index = of.index();
        let since = Instant::now();
        let exclusive = of.is_exclusive();
        if exclusive && !self.is_leaving.get() {
            return Err("the connection keeps the log in use (locking_mode=EXCLUSIVE)");
        }
        if self.read_locks.get() != 0 {
            return Err("the connection has a read transaction open");
        }
        let took_write_lock = !exclusive && !of.holds_write_lock();
        if took_write_lock && !index.lock(IndexLocks::Writers) {
            return Err("another connection is writing");
        }
        let readers_out = exclusive || index.lock(IndexLocks::Readers);
        let seen = index.header().zip(index.view());
        // Another connection may have committed before the lock was taken.
        let attempted = index.backfill_attempted();
        let seen = seen.filter(|(_, view)| {
            readers_out && attempted == Some(view.last_frame) && *view == planned.0
        });
        if let Some((header, view)) = seen {
            self.held.replace(Some(Held {
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
            index.unlock(IndexLocks::Readers);
        }
        if took_write_lock {
            index.unlock(IndexLocks::Writers);
        }
        match readers_out {
            true => Err("not every frame can be copied yet"),
            false => Err("another connection is reading the log"),
        }
    }

    /// `xWrite` to the database: whether it is deferred. `page` is the page size of the log, if the
    /// connection has one open.
    pub fn puts_off(
        &self,
        data: &[u8],
        offset: u64,
        page: impl FnOnce() -> Option<PageSize>,
    ) -> bool {
        let Some(frame) = self.read.take() else {
            return false;
        };
        let Ok(mut held) = self.held.try_borrow_mut() else {
            return false;
        };
        let (Some(held), Some(page)) = (held.as_mut(), page()) else {
            return false;
        };
        let page_bytes = page.bytes();
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

    /// `xTruncate` of the database, with which a whole checkpoint ends: the deferred pages go
    /// there. Without a connection to the log there is nothing to do.
    ///
    /// # Errors
    /// An I/O error. The checkpoint fails, and the next reader recovers from the log.
    pub fn finish(&self, of: Option<&dyn Connection>) -> Result<(), LogError> {
        let Some(held) = self.held.take() else {
            return Ok(());
        };
        // Whatever the result, even after a panic.
        let mut kept = PutBack {
            cell: &self.held,
            held: Some(Held {
                is_finished: true,
                ..held
            }),
        };
        match (of, kept.held.as_mut()) {
            (Some(of), Some(held)) if !held.pages.is_empty() => held.bring_pages(of),
            _ => Ok(()),
        }
    }

    /// The SQLite lock whose release ends the checkpoint: the last one that excludes writers.
    pub fn lasts_until(&self) -> Option<Released> {
        let held = self.held.borrow();
        let held = held.as_ref().filter(|held| held.keeps_locks)?;
        Some(match held.took_write_lock {
            true => Released::Checkpoint,
            false => Released::Write,
        })
    }

    /// The checkpoint is over, whatever its result. `of` is `None` if the log is closed.
    pub fn end(&self, index: &dyn Index, of: Option<&dyn Connection>) {
        self.read.set(None);
        let Some(mut held) = self.held.take() else {
            return;
        };
        if !held.keeps_locks {
            return;
        }
        // In a TRUNCATE checkpoint SQLite has restarted the log itself.
        let is_invalid = held.invalidated && index.view().is_none();
        if is_invalid && index.backfilled() == Some(held.view.last_frame) {
            let mut salt = [0; 4];
            // Without a salt the wal-index stays invalid, and is recovered.
            if getrandom::fill(&mut salt).is_ok() {
                index.restart(&held.header, salt);
            }
        }
        let Some(of) = of else {
            return held.release(index);
        };
        // We or SQLite have restarted the log. Without a flush, at synchronous=OFF, nothing is promised.
        let is_restarted =
            |view: IndexView| view.last_frame == FrameNo(0) && view.salts != held.view.salts;
        if held.invalidated && held.is_synced && index.view().is_some_and(is_restarted) {
            held.empty_log(of);
        }
        held.let_others_in(of);
    }
}

/// A lock that SQLite releases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Released {
    /// WRITE.
    Write,
    /// CKPT.
    Checkpoint,
}

impl Held {
    fn bring_pages(&mut self, of: &dyn Connection) -> Result<(), LogError> {
        let log = of.log();
        let runs = runs(&self.pages, log.geometry());
        let refusal = match judge(self.how, &runs, of.counters()) {
            Ok(()) => self.check_headers(log)?,
            Err(why) => Some(why),
        };
        if let Some(why) = refusal {
            return self.copy_all(of, why);
        }
        let moves: Vec<_> = runs.iter().map(|run| run.place).collect();
        let remapping = Remapping {
            log: log.file(),
            database: of.database(),
            how: self.how,
            moves: &moves,
            init: log.init(),
        };
        let remapped = remapping
            .run(|| of.is_at_its_path(), || self.invalidate(of.index()))
            .map_err(|e| {
                LogError::io(
                    ErrorKind::Write,
                    of.database(),
                    "remap blocks of the log into",
                    &e,
                )
            })?;
        if !self.invalidated && !remapped.done.contains(&true) {
            // For example, all pages are new in the database. The log has every page, and
            // continues.
            return self.copy_all(of, remapped.why_not.as_deref().unwrap_or_default());
        }
        for (run, _) in runs.iter().zip(&remapped.done).filter(|(_, done)| !**done) {
            let pages = self.pages.get(run.first..run.first + run.pages);
            pages
                .into_iter()
                .flatten()
                .try_for_each(|page| copy(*page, self.view, of))?;
        }
        self.taken = taken(&runs, &remapped);
        of.counters()
            .count_checkpoint(&runs, &remapped, self.pages.len());
        Ok(())
    }

    /// Copies everything: nothing was moved, and a copy excludes no connection. SQLite already
    /// knows how far the checkpoint will have come.
    fn copy_all(&mut self, of: &dyn Connection, why: &str) -> Result<(), LogError> {
        of.counters().count_refusal(why);
        self.let_others_in(of);
        self.pages
            .iter()
            .try_for_each(|page| copy(*page, self.view, of))
    }

    fn invalidate(&mut self, index: &dyn Index) {
        if self.how == Remap::Exchange && self.keeps_locks {
            // If this process dies now, the next reader recovers.
            index.invalidate();
            self.invalidated = true;
        }
    }

    fn let_others_in(&mut self, of: &dyn Connection) {
        if self.keeps_locks {
            of.counters().count_kept_out(self.since.elapsed());
            self.release(of.index());
        }
    }

    fn release(&mut self, index: &dyn Index) {
        self.keeps_locks = false;
        index.unlock(IndexLocks::Readers);
        if self.took_write_lock {
            index.unlock(IndexLocks::Writers);
        }
    }

    /// Recovery finds a page in the database by its frame's header. So the header in the file must
    /// belong to the page.
    fn check_headers(&self, log: &Log) -> Result<Option<&'static str>, LogError> {
        for logged in &self.pages {
            let header = log.read_gathered_header(logged.frame)?;
            if header.page != logged.page || header.salts != self.view.salts {
                return Ok(Some(NOT_ITS_HEADER));
            }
        }
        Ok(None)
    }

    /// The database durably has everything, and the wal-index says so. So the log's own header need
    /// no longer lead to the frames, and after a kill there is nothing to recover. A power cut may
    /// undo this: then recovery finds the frames in the database.
    fn empty_log(&self, of: &dyn Connection) {
        let (log, goes_forward) = (of.log(), of.policy() == CheckpointPolicy::Forward);
        // Before blocks of older generations come to the log's start: salts may repeat after a recovery.
        let durability = match goes_forward {
            true => Durability::WriteThrough,
            false => Durability::None,
        };
        let emptied = log
            .check_poison()
            .and_then(|()| log.write_wal_header(&[0; HEADER_BYTES], durability));
        if let Err(e) = emptied {
            of.report(&e);
            return;
        }
        if !goes_forward {
            return;
        }
        match log.go_forward(self.view.last_frame, self.taken, of.region()) {
            Ok(true) => of.counters().count_forward(log.region_bytes()),
            Ok(false) => {}
            Err(e) => of
                .counters()
                .count_refusal(&format!("the log did not move forward: {e}")),
        }
        of.prepare_region();
    }
}

/// How checkpoints of this connection remap, if no other connection prevents it. `None` if they
/// copy.
///
/// # Errors
/// Why they cannot remap.
pub fn way(of: &dyn Connection) -> Result<Option<Remap>, &'static str> {
    let log = of.log();
    let how = match of.policy() {
        CheckpointPolicy::Copy => return Ok(None),
        CheckpointPolicy::Exchange | CheckpointPolicy::Forward => Some(Remap::Exchange),
        CheckpointPolicy::Clone => Some(Remap::Clone),
        CheckpointPolicy::Auto => automatic(&log.file().capabilities().filesystem),
    };
    if how.is_some() && !of.is_on_sqlites_vfs() {
        return Err("the VFS underneath is not SQLite's own");
    }
    if how.is_some() && log.geometry().layout() != Layout::Gathered {
        return Err("the log's layout is not gathered");
    }
    Ok(how)
}

/// The state of the wal-index in which remapping was found to pay.
struct Planned(IndexView);

/// Whether remapping pays, before any connection is excluded for it.
fn foresee(how: Remap, of: &dyn Connection) -> Result<Planned, &'static str> {
    let (log, index) = (of.log(), of.index());
    let view = index.view();
    let (view, copied) = view
        .zip(index.backfilled())
        .ok_or("the wal-index is not valid")?;
    let frames = log
        .gathered_pages(copied, view.last_frame, view.salts)
        .map_err(|_| "the log cannot be read")?
        .ok_or(NOT_ITS_HEADER)?;
    // Page 1 is always copied.
    let frames = frames.into_iter().filter(|(_, page)| page.0 > 1);
    let pages = newest(frames);
    let runs = runs(&pages, log.geometry());
    judge(how, &runs, of.counters()).map(|()| Planned(view))
}

/// Whether these runs are better remapped than copied; if not, the reason.
fn judge(how: Remap, runs: &[Run], counters: &Counters) -> Result<(), &'static str> {
    let recent = counters.snapshot().recent_call_us;
    let cost = Cost::of(how).with_calls_of(recent);
    match (cost.is_worth(runs), cost.time(runs) <= REMAPPING) {
        (true, true) => Ok(()),
        (false, _) => Err("copying writes fewer bytes"),
        (_, false) => {
            counters.count_impatience(TOO_LONG);
            Err(TOO_LONG)
        }
    }
}

/// Writes a deferred page, as SQLite would have done.
fn copy(logged: Logged, view: IndexView, of: &dyn Connection) -> Result<(), LogError> {
    let bytes = of.log().geometry().page().bytes();
    let mut page = vec![0; bytes];
    // The wal-index itself may be invalid by now.
    of.read_logged(logged.frame, view, &mut page)?;
    of.write_database(&page, u64::from(logged.page.0 - 1) * bytes as u64)
}

/// The main kind of the blocks that the log got.
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
