//! When frames go to the log, and with what durability.
//!
//! One [`Writer`] stands for one connection's open log. SQLite writes frames in pieces: for every
//! frame, an `xWrite` of the header and one of the page. Then it calls `xSync`, then it publishes
//! the frames in the wal-index. The writer collects the pieces of a transaction and writes them in
//! one write, before they are published:
//!
//! - at `synchronous=FULL` in the commit's `xSync`, with the durability that `onewrite_sync` asks
//!   for;
//! - at `synchronous=NORMAL`, without an `xSync`, as soon as the commit frame is complete, into the
//!   page cache. The kernel begins to write it to the device within some milliseconds (`write_back.rs`),
//!   and the commit does not wait for that;
//! - if the transaction is too large to be collected ([`MAX_RUN_BYTES`]), through the page cache,
//!   piece by piece, with one flush at its end. The cost is then that of stock SQLite.
//!
//! Invariants:
//! - Frames that another process can see in the wal-index are in the file. The exception, group
//!   synch, is used only while no other process uses the log ([`group_synch`]).
//! - A write-through write makes a commit durable only if everything before it is durable already.
//!   Otherwise the whole file is flushed.
//! - A failed write or flush is reported, and never repeated as if it had not happened. If it may
//!   have affected frames that were published before, the log is poisoned.

pub mod group_commit;
pub mod group_synch;
pub mod latency;
pub mod turns;

mod delay;
mod floor;
mod looks;
mod partial_frame;
mod read;
mod run;
mod seal;
mod shared_log;
mod stuck;
mod transaction;
pub(crate) mod write_back;
mod write_out;

use std::sync::Arc;

use crate::log::memory::Remembered;
use crate::log::shared::Committer;
use crate::log::{ErrorKind, LogError};
use crate::mode::{Compressing, Floor, GroupSynch, JournalMode, SyncPolicy};
use crate::storage::{Durability, Patience, Short};
use crate::sync::Instant;
use crate::waits::LOOK_AT_NORMAL;
use crate::wal::{self, FrameNo, History, IndexView, Salts, array};
use partial_frame::PartialFrame;
use run::Run;
pub use seal::Resealed;
use seal::Unfinished;
pub use shared_log::SharedLog;
use transaction::{Phase, Promise, Transaction};
use write_out::{LaidOut, StockTail};

/// A transaction's frames are collected up to this size, in bytes.
pub const MAX_RUN_BYTES: usize = 256 << 10;

/// The bytes that frames without fixed positions may take in addition to their length: a batch
/// begins and ends with a block.
const SLACK: usize = 16 << 10;

/// The bytes of a buffer that a connection keeps between transactions.
const KEPT_BYTES: usize = 64 << 10;

/// The settings of a connection for its commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CommitConfig {
    /// `onewrite_sync`.
    pub sync: SyncPolicy,
    /// `onewrite_synchronous`.
    pub floor: Floor,
    /// `onewrite_group_synch`.
    pub group_synch: Option<GroupSynch>,
    /// `onewrite_group_commit`; `None` leaves it to the mode.
    pub group_commit: Option<bool>,
    /// `onewrite_compression` and `onewrite_differences`.
    pub compressing: Compressing,
}

impl CommitConfig {
    /// Whether commits may be made durable together with others.
    pub fn groups_commits(&self, mode: JournalMode) -> bool {
        self.group_commit.unwrap_or(mode.usually_groups_commits())
    }
}

/// One connection's open log; see the module.
pub struct Writer {
    log: Arc<SharedLog>,
    /// The connection's settings.
    pub config: CommitConfig,
    /// How long the connection waits for other processes.
    pub patience: Arc<dyn Patience>,
    /// The frames collected, or those last written, until the next transaction begins.
    run: Run,
    /// Whether `run` is in the file (or in the group) unchanged.
    run_is_out: bool,
    /// Whether the log knows the frames of `run` as published.
    run_is_known: bool,
    /// A WAL header from SQLite that is not needed yet.
    header: Option<[u8; wal::HEADER_BYTES]>,
    /// While the connection recovers the wal-index: the generation of a log that has none.
    recovery: Option<Salts>,
    transaction: Transaction,
    partial: Option<PartialFrame>,
    unfinished: Unfinished,
    resealed: Option<Resealed>,
    company: group_commit::Company,
    promise: Promise,
    /// Whether `xSync` follows the connection's commits (`synchronous=FULL`).
    expects_sync: bool,
    /// Whether the commit under way must be durable as with an `xSync`, and is not yet: see [`floor`].
    owes_sync: bool,
    laid_out: LaidOut,
    stock_tail: Option<StockTail>,
    /// When the last frame of the commit under way was there, for [`latency`].
    commit_began: Option<Instant>,
    /// Whether a look at the log's size of a moment ago will do for a transaction.
    pub looks_rarely: bool,
    /// When the log's size was last looked at, and in which generation.
    looked: Option<(Instant, Salts)>,
    user: User,
}

/// Whose connection has the log open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum User {
    Application,
    /// Of the thread that checkpoints: it ends before the last of the application's connections.
    Background,
}

impl Writer {
    /// A connection opens the log.
    pub fn new(log: Arc<SharedLog>, config: CommitConfig, committer: Committer) -> Writer {
        log.enter();
        Writer::of(User::Application, log, config, committer)
    }

    /// The connection of the thread that checkpoints opens the log.
    pub fn in_background(
        log: Arc<SharedLog>,
        config: CommitConfig,
        committer: Committer,
    ) -> Writer {
        Writer::of(User::Background, log, config, committer)
    }

    fn of(user: User, log: Arc<SharedLog>, config: CommitConfig, committer: Committer) -> Writer {
        let page = log.geometry().page();
        Writer {
            company: group_commit::Company::of(committer, log.shared()),
            log,
            config,
            patience: Arc::new(Short),
            run: Run::new(page),
            run_is_out: false,
            run_is_known: false,
            header: None,
            recovery: None,
            transaction: Transaction::default(),
            partial: None,
            unfinished: Unfinished::default(),
            resealed: None,
            promise: Promise::None,
            expects_sync: false,
            owes_sync: false,
            laid_out: LaidOut::default(),
            stock_tail: None,
            commit_began: None,
            looks_rarely: false,
            looked: None,
            user,
        }
    }

    /// The log.
    pub fn log(&self) -> &Arc<SharedLog> {
        &self.log
    }

    /// Whether `xSync` has followed the last commit, so far as there was one.
    pub fn expects_sync(&self) -> bool {
        self.expects_sync
    }

    /// Whether a transaction is being written.
    pub fn is_in_transaction(&self) -> bool {
        self.transaction.is_under_way()
    }

    /// The application has changed `synchronous`: find out again whether commits are synced.
    pub fn synchronous_changed(&mut self) {
        self.expects_sync = false;
    }

    /// The connection has the write lock: frames collected before are void.
    pub fn transaction_may_begin(&mut self) {
        self.end_transaction();
        self.resealed = None;
        self.promise.forget_durable();
        self.forget_run();
        self.forget_header();
    }

    fn end_transaction(&mut self) {
        let ended = std::mem::take(&mut self.transaction.phase);
        if ended != Phase::Ended
            && let Some(packed) = self.log.packed()
        {
            packed.end_transaction();
        }
        self.unfinished = Unfinished::default();
        self.owes_sync = false;
    }

    /// Ends a write transaction, committed or not: the write lock is about to be released.
    ///
    /// # Errors
    /// Published frames could not be written; the log is poisoned.
    pub fn transaction_ends(&mut self, index: Option<IndexView>) -> Result<(), LogError> {
        let ended = self.write_published(index);
        self.forget_header();
        // Before the next writer begins: it needs the log's end, and frames for its differences.
        let is_published = index
            .is_some_and(|index| self.has_published(&index) && index.last_frame >= self.run.last());
        if ended.is_ok() && is_published {
            self.note_published();
        }
        ended
    }

    /// A WAL header without frames belongs to no log. The next writer, of any process, writes its
    /// own, with other salts. If ours were written later, it would invalidate all of those frames.
    fn forget_header(&mut self) {
        if self.header.take().is_some() {
            self.log.forget_wal_header();
        }
    }

    fn write_published(&mut self, index: Option<IndexView>) -> Result<(), LogError> {
        let has_commit = self.transaction.phase.awaits_sync();
        let owes_sync = self.owes_sync;
        self.end_transaction();
        let published = index.is_none_or(|index| self.has_published(&index));
        if !published {
            // It was rolled back after its `xSync`: there is nothing to wait for.
            self.promise.forget_deferred();
        }
        if published && self.transaction.commit > FrameNo(0) {
            self.company.note_published();
        }
        // Not before it is published: the same frames might be written again, and count as durable.
        if let Some((history, frame)) = self.promise.take_durable().filter(|_| published) {
            self.log.set_durable(frame, history);
        }
        if !has_commit || self.run_is_out && !owes_sync || !published {
            return Ok(());
        }
        // The connection was set to a lower synchronous level, and we did not see it. Its published
        // frames are written late. If that fails, the log is lost for all connections.
        self.expects_sync = false;
        self.leave_out_partial();
        // Room was made before the commit was published. Now no write can be refused, and nothing
        // is waited for.
        let patience = std::mem::replace(&mut self.patience, Arc::new(Short));
        let written = match owes_sync {
            true => self.hold_floor_late(),
            // Not into a shared block: a flush may have found it published already.
            false => self.write_out(Durability::Cached),
        };
        self.patience = patience;
        written.inspect_err(|e| {
            self.log
                .poison(&format!("a published commit could not be written: {e}"));
        })
    }

    /// Makes room for the collected frames, wherever they will be written.
    fn make_room_for_run(&self) -> Result<(), LogError> {
        self.make_room(self.end_at_most())
    }

    /// The latest end of the collected frames.
    fn end_at_most(&self) -> u64 {
        match self.log.packed() {
            // A page that cannot be compressed keeps its length, and has its record's header in
            // addition.
            Some(packed) => packed.end() + (self.run.len() + self.run.len() / 64 + SLACK) as u64,
            None => self.log.geometry().end_of(self.run.last()),
        }
    }

    fn has_published(&self, index: &IndexView) -> bool {
        // After the commit frame there may be some that fill a sector.
        self.run_salts() == Some(index.salts) && index.last_frame >= self.transaction.commit
    }

    /// The commit is published (`SQLITE_FCNTL_COMMIT_PHASETWO`): its frames may be remembered.
    ///
    /// # Errors
    /// As [`Writer::transaction_ends`].
    pub fn published(&mut self, index: Option<IndexView>) -> Result<(), LogError> {
        self.transaction_ends(index)?;
        self.note_published();
        if self.run_is_known {
            self.prepare_ahead();
        }
        self.forget_run();
        self.log.check_poison()
    }

    /// The commit is published: its frames may be remembered.
    fn note_published(&mut self) {
        let is_commit = !self.run.is_empty() && self.run.is_commit(self.run.last());
        if self.run_is_known || !self.run_is_out || !is_commit {
            return;
        }
        let Some(history) = self.run_history() else {
            return;
        };
        self.log.set_committed(self.run.last());
        let packed = self.log.packed();
        if let Some(packed) = packed {
            packed.published(self.run.last(), self.laid_out.packing.take());
        }
        for (frame, page, bytes) in self.run.pages() {
            let new = Remembered {
                frame,
                history,
                page,
                bytes,
            };
            self.log.memory().insert(new, |page, frame| {
                packed.is_some_and(|packed| packed.is_needed(history)(page, frame))
            });
        }
        self.run_is_known = true;
    }

    /// Whether the transaction's last frame has come.
    pub fn has_commit(&self) -> bool {
        self.commit_began.is_some()
    }

    /// SQLite may report the commit: see [`latency`].
    pub fn note_commit_ended(&mut self) {
        if let Some(began) = self.commit_began.take() {
            self.log.latency.note_commit(began);
        }
    }

    fn forget_run(&mut self) {
        self.run.clear();
        self.run_is_out = false;
        self.run_is_known = false;
        self.laid_out.forget();
    }

    /// The end of the run in the file. With fixed positions it is known before the run is laid out,
    /// and also if a group writes it.
    fn end_of_run(&self) -> u64 {
        match self.log.packed() {
            Some(_) => self.laid_out.end,
            None => self.log.geometry().end_of(self.run.last()),
        }
    }

    fn prepare_ahead(&self) {
        if self.log.is_running_low(self.end_of_run()) {
            let log = Arc::clone(&self.log);
            self.log.in_background(move || log.prepare_next_chunk());
        }
    }

    /// `xWrite`: some bytes of SQLite's log. `view` reads the wal-index's header and verifies it. Few of
    /// a transaction's writes need that, and each finds the same: the connection has the write lock,
    /// so nobody publishes anything meanwhile.
    ///
    /// # Errors
    /// The log is poisoned or full; an I/O error; bytes where SQLite writes none.
    pub fn write(
        &mut self,
        data: &[u8],
        offset: u64,
        view: &dyn Fn() -> Option<IndexView>,
    ) -> Result<(), LogError> {
        self.log.check_poison()?;
        if offset == 0 && data.len() == wal::HEADER_BYTES {
            return self.begin_generation(array(data), view());
        }
        let page = self.log.geometry().page();
        let mut rest = data;
        let mut at = offset;
        while !rest.is_empty() {
            let (frame, within) = page
                .locate(at)
                .ok_or_else(|| self.unexpected(offset, data))?;
            let n = rest.len().min(page.frame_bytes() - within);
            let (piece, behind) = rest.split_at(n);
            self.write_piece(frame, within, piece, view)?;
            rest = behind;
            at += n as u64;
        }
        Ok(())
    }

    fn unexpected(&self, offset: u64, data: &[u8]) -> LogError {
        let what = format!(
            "SQLite wrote {} bytes at {offset}, which is not a frame",
            data.len()
        );
        self.log.error(ErrorKind::Write, &what)
    }

    /// The log restarts from its first frame.
    fn begin_generation(
        &mut self,
        header: [u8; wal::HEADER_BYTES],
        index: Option<IndexView>,
    ) -> Result<(), LogError> {
        let page = wal::WalHeader::parse(&header).map(|header| header.page_size);
        if page != Some(self.log.geometry().page()) {
            let what = "the WAL header has another page size than the database";
            return Err(self.log.error(ErrorKind::Corrupt, what));
        }
        self.log.group_synch.write_all(&self.log)?;
        self.transaction.phase = Phase::Ended;
        self.unfinished.restart();
        let salts = Salts(array(&header[16..24]));
        let recovery = index.map_or(0, |index| index.recovery);
        let history = History { salts, recovery };
        if let Some(packed) = self.log.packed() {
            packed.restart(history);
        }
        self.begin_transaction(FrameNo(1), Some(history))?;
        self.stock_tail = None;
        self.header = Some(header);
        self.log.note_wal_header(&header);
        Ok(())
    }

    fn begin_transaction(
        &mut self,
        first: FrameNo,
        history: Option<History>,
    ) -> Result<(), LogError> {
        if self.transaction.is_under_way() {
            return Ok(());
        }
        self.refresh(history.map(|history| history.salts))?;
        if let Some(history) = history {
            self.log
                .begin(history, FrameNo(first.0.saturating_sub(1)))?;
        }
        // Nothing stays of a commit that failed, or whose last piece came after its end.
        self.transaction = Transaction::begin(first, history);
        self.commit_began = None;
        self.promise.forget_durable();
        self.forget_run();
        Ok(())
    }

    /// Looks at the log's size, unless it is known. Within a generation the log becomes no shorter.
    fn refresh(&mut self, salts: Option<Salts>) -> Result<(), LogError> {
        let now = Instant::now();
        let is_known = self.looks_rarely
            && self
                .looked
                .is_some_and(|(then, of)| Some(of) == salts && now - then < LOOK_AT_NORMAL);
        if !is_known {
            self.log.refresh()?;
            self.looked = salts.map(|salts| (now, salts));
        }
        Ok(())
    }

    fn write_piece(
        &mut self,
        frame: FrameNo,
        within: usize,
        piece: &[u8],
        view: &dyn Fn() -> Option<IndexView>,
    ) -> Result<(), LogError> {
        if self.transaction.is_under_way() && self.is_out(frame) {
            // In exclusive mode the next transaction begins without notice after a failed commit.
            self.end_transaction();
        }
        if !self.transaction.is_under_way() {
            let index = view();
            self.begin_transaction(frame, self.present_history(index))?;
            self.check_stock_tail(index);
        }
        if !self.run.contains(frame) {
            self.collect(frame, within, view)?;
        }
        self.run_is_out = false;
        self.run_is_known = false;
        let page = self.log.geometry().page();
        if let Some(bytes) = self.run.frame_mut(frame) {
            bytes[within..within + piece.len()].copy_from_slice(piece);
        }
        self.transaction.live_until = self.transaction.live_until.max(frame);
        self.unfinished.note(frame, within, piece);
        let is_complete = within + piece.len() == page.frame_bytes();
        // If a transaction has overwritten one of its own frames, SQLite leaves salts and checksums
        // zero. Once all frames are there, it writes every header from that frame on again, the
        // commit frame's last. Only then is the transaction as it will be published. (Frames after
        // the commit fill a sector: their pages follow.)
        let is_header_again = within == 0 && self.awaits_sync_of(frame);
        if !is_complete && !is_header_again {
            self.keep_partial(frame, within + piece.len());
            return Ok(());
        }
        if is_complete {
            self.forget_partial(frame);
        }
        if self.run.is_commit(frame) {
            self.transaction.commit = frame;
            self.commit_began.get_or_insert_with(Instant::now);
            // These frames were rolled back, and came together with this transaction. In the log
            // they could pass for later frames.
            self.run.truncate(frame.plus(1));
            let is_sealed = self.run.is_sealed(frame);
            if let Some(from) = self.unfinished.left_by(frame, is_sealed) {
                return self.seal_commit(from, frame, view());
            }
            let is_synced = self.transaction.phase.is_synced();
            self.owes_sync |= self.config.floor != Floor::None && !is_synced;
            let is_last_chance = is_synced || !self.expects_sync && !self.owes_sync;
            if !is_sealed || !is_last_chance {
                // If no `xSync` comes, it is written after its publication, or by `hold_floor`.
                self.make_room_for_run()?;
            } else if !self.try_group(SyncPolicy::Normal)? {
                self.write_without_sync()?;
            }
            self.note_commit();
            self.unfinished.note_complete(frame);
        } else if self.run.len() >= MAX_RUN_BYTES && frame == self.run.last() {
            return self.spill();
        }
        Ok(())
    }

    /// Whether a frame belongs to a complete commit that no `xSync` has followed.
    fn awaits_sync_of(&self, frame: FrameNo) -> bool {
        self.transaction.phase.awaits_sync() && frame <= self.transaction.commit
    }

    /// Notes that a commit frame, or one after it, is complete.
    fn note_commit(&mut self) {
        self.transaction.phase = self.transaction.phase.after_commit_frame();
    }

    /// Makes `frame` part of the run, with its present content if that counts.
    fn collect(
        &mut self,
        frame: FrameNo,
        within: usize,
        view: &dyn Fn() -> Option<IndexView>,
    ) -> Result<(), LogError> {
        let is_new = frame > self.transaction.live_until && within == 0;
        let mut present = Vec::new();
        if let Some(bytes) = self.take_partial(frame, within) {
            present = bytes;
        } else if !is_new {
            present.resize(self.log.geometry().page().frame_bytes(), 0);
            self.read_whole_frame(frame, &mut present, view())?;
        }
        let is_full = self.run.len() >= MAX_RUN_BYTES;
        if is_full || !self.run.accepts(frame) || self.fills_behind_resealed(frame) {
            self.spill()?;
            self.forget_run();
        }
        let bytes = self.run.push(frame);
        if !present.is_empty() {
            bytes.copy_from_slice(&present);
        }
        Ok(())
    }

    /// `xSync`; for `alone_in_transaction` see `may_defer`.
    ///
    /// # Errors
    /// Bytes that were to be made durable may not be.
    pub fn sync(
        &mut self,
        index: Option<IndexView>,
        alone_in_transaction: &dyn Fn() -> bool,
    ) -> Result<(), LogError> {
        self.log.check_poison()?;
        let Some(synced) = self.transaction.phase.after_sync() else {
            return self.sync_everything(index);
        };
        self.transaction.phase = synced;
        self.expects_sync = true;
        self.company.note_commit(self.log.shared());
        self.leave_out_partial();
        self.sync_commit(index, alone_in_transaction)?;
        self.owes_sync = false;
        Ok(())
    }

    /// `xTruncate`.
    ///
    /// # Errors
    /// An I/O error.
    pub fn truncate(&mut self, size: u64) -> Result<(), LogError> {
        self.log.check_poison()?;
        self.log.group_synch.write_all(&self.log)?;
        if size == 0 && self.log.id().is_some() {
            self.header = None;
            // This comes before the file is cut. Suppose that a log still has its header, but not
            // its last frames. The first ones would be read into the database again, over newer
            // pages.
            self.log
                .write_wal_header(&[0; wal::HEADER_BYTES], Durability::WriteThrough)?;
        }
        self.stock_tail = None;
        self.log.shrink(size, &*self.patience)
    }

    /// A checkpoint begins, or the log is being closed: no frame may wait any longer.
    ///
    /// # Errors
    /// A write failed.
    pub fn drain(&self) -> Result<(), LogError> {
        self.log.group_synch.write_all(&self.log)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.user == User::Application {
            self.log.leave();
        }
    }
}
