//! Writing a run of frames: which write, which flush, and what is known to be durable after it.

use std::sync::Arc;

use crate::commit::transaction::Promise;
use crate::commit::{KEPT_BYTES, Writer};
use crate::log::layout::SideBlock;
use crate::log::packed::batch::{Begin, Blocks};
use crate::log::packed::{LastBatch, Packed, Packing, Unpacked};
use crate::log::{Covered, ErrorKind, LogError};
use crate::mode::{Layout, SyncPolicy};
use crate::storage::{AlignedBuf, Durability};
use crate::sync::atomic::Ordering;
use crate::sync::fence;
use crate::wal::{FrameNo, History, IndexView};

const BLOCK: u64 = 4096;

/// The block that the next frame shares with those before it, as this connection wrote it. In
/// SQLite's own layout it is the block that the frame begins in, in `gathered` the block with its
/// header. After a direct write the page cache does not hold it.
pub(super) struct StockTail {
    offset: u64,
    block: AlignedBuf,
    /// The checksum of the last frame. If the wal-index has another one, the block may not be used.
    checksum: [u8; 8],
}

/// The last layout of the run.
#[derive(Default)]
pub(super) struct LaidOut {
    pub(super) blocks: AlignedBuf,
    /// Where `blocks` end in the file.
    pub(super) end: u64,
    /// The frame headers of `blocks`, if they are in a separate block.
    headers: Option<SideBlock>,
    /// Positions in a log without fixed ones.
    pub(super) packing: Option<Packing>,
}

impl LaidOut {
    fn offset(&self) -> u64 {
        self.end - self.blocks.len() as u64
    }

    /// Moves a batch that was laid out behind another to the next block.
    fn begin_block(&mut self) {
        if let Some(packing) = &mut self.packing {
            packing.begin_block(&mut self.blocks);
            self.end = packing.offset + self.blocks.len() as u64;
        }
    }

    /// Forgets it, and frees the memory of a large run.
    pub(super) fn forget(&mut self) {
        self.packing = None;
        if self.blocks.capacity() > KEPT_BYTES {
            self.blocks = AlignedBuf::new();
        }
    }
}

impl Writer {
    /// Drops the remembered tail if another connection has written frames since.
    pub(super) fn check_stock_tail(&mut self, index: Option<IndexView>) {
        // Without a wal-index in shared memory there are no other connections.
        let others = |tail: &StockTail| index.is_some_and(|index| index.checksum != tail.checksum);
        if self.stock_tail.as_ref().is_some_and(others) {
            self.stock_tail = None;
        }
    }

    /// Makes room up to byte `end`. With `onewrite_sync=normal` no flush follows, and the commit survives a
    /// crash of the system all the same.
    pub(super) fn make_room(&self, end: u64) -> Result<(), LogError> {
        let covered = match self.config.sync {
            SyncPolicy::Normal => Covered::ByItself,
            SyncPolicy::Full | SyncPolicy::Persistent | SyncPolicy::Auto => Covered::ByTheCommit,
        };
        self.log.make_room(end, covered, &*self.patience)
    }

    /// Writes the collected frames in one write.
    pub(super) fn write_out(&mut self, durability: Durability) -> Result<(), LogError> {
        if self.run.is_empty() || self.run_is_out {
            return Ok(());
        }
        self.log.group_synch.write_all(&self.log)?;
        self.write_header()?;
        let offset = self.encode(Begin::Block, Blocks::Own)?;
        if self.laid_out.blocks.is_empty() {
            return Ok(());
        }
        self.make_room(self.laid_out.end)?;
        self.log.shared().open_block().close_as_writer();
        self.write_headers_apart(durability)?;
        self.log
            .file()
            .write_at(self.laid_out.blocks.as_slice(), offset, durability)?;
        self.note_written();
        self.remember_stock_tail(offset);
        match durability {
            Durability::Cached => self
                .log
                .write_back
                .note(&self.log, self.laid_out.blocks.len() as u64),
            Durability::None | Durability::WriteThrough => Ok(()),
        }
    }

    /// Writes the block of frame headers that the run does not include (`gathered`), as durably as
    /// the run will be. A flush after the run covers it; FUA does not, nor does a device that is
    /// not known.
    fn write_headers_apart(&self, durability: Durability) -> Result<(), LogError> {
        let Some(headers) = &self.laid_out.headers else {
            return Ok(());
        };
        let file = self.log.file();
        // Through the page cache, the run ends with a flush of the file.
        let is_covered = file.direct().is_none() || file.write_through_covers_all_before();
        let durability = match durability {
            Durability::WriteThrough if is_covered => Durability::None,
            other => other,
        };
        Ok(file.write_at(headers.bytes.as_slice(), headers.offset, durability)?)
    }

    fn note_written(&mut self) {
        self.run_is_out = true;
        if let (Some(packed), Some(packing)) = (self.log.packed(), &self.laid_out.packing) {
            packed.written(packing);
        }
    }

    /// Makes sure that the collected frames are in the file, because the transaction continues
    /// without them: it is too large to be collected whole. Its end will be flushed. That holds
    /// even if they were written already, as a commit for which no `xSync` was expected: no one has
    /// waited for that write.
    pub(super) fn spill(&mut self) -> Result<(), LogError> {
        self.transaction.spilled |= !self.run.is_empty();
        self.write_to_page_cache()
    }

    /// Writes the collected frames into the page cache, for a flush to find them.
    fn write_to_page_cache(&mut self) -> Result<(), LogError> {
        if self.run.is_empty() || self.run_is_out {
            return Ok(());
        }
        self.log.shared().open_block().close_as_writer();
        self.lay_out_for_page_cache(Begin::Block, Blocks::Own)?;
        self.write_laid_out()
    }

    /// Writes the collected frames of a commit that a leader will flush into the page cache. They share a
    /// block with the commits before them that wait for the same flush.
    pub(super) fn write_for_leader(&mut self) -> Result<(), LogError> {
        match self.last_batch_to_join() {
            Some(last) => self.write_in_shared_block(last),
            None => self.write_to_page_cache(),
        }
    }

    /// Writes the collected frames of a commit at `synchronous=NORMAL` into the page cache. They share a
    /// block with the commits before them that the kernel has not begun to write.
    pub(super) fn write_without_sync(&mut self) -> Result<(), LogError> {
        let Some(last) = self.last_batch_to_join() else {
            return self.write_out(Durability::Cached);
        };
        if self.log.write_back.has_begun_since() {
            self.log.shared().open_block().close_as_writer();
        }
        // Enough wherever the batch comes to begin. Another process may be preparing the blocks behind
        // those that are ready, with zeros.
        self.make_room_for_run()?;
        self.write_in_shared_block(last)?;
        // A flush that finds this commit published finds its block in the word, and closes it. SQLite
        // publishes it by plain stores, which the fence keeps after that.
        fence(Ordering::Release);
        let bytes = self.laid_out.blocks.len() as u64;
        self.log.write_back.note(&self.log, bytes)
    }

    /// The batch at the log's end, if the collected frames may share its block.
    fn last_batch_to_join(&self) -> Option<LastBatch> {
        // A transaction of several batches joins no other.
        let may_join = self.log.batches_share_blocks()
            && !self.run.is_empty()
            && !self.run_is_out
            && !self.transaction.spilled;
        let packed = self.log.packed().filter(|_| may_join);
        packed.map(Packed::last_batch)
    }

    fn write_in_shared_block(&mut self, last: LastBatch) -> Result<(), LogError> {
        let log = Arc::clone(&self.log);
        let block = log.shared().open_block();
        let begin = match block.is_open(last) && log.file().page_is_everybodys() {
            true => Begin::Behind,
            false => Begin::Block,
        };
        self.lay_out_for_page_cache(begin, Blocks::Shared)?;
        if self.laid_out.blocks.is_empty() {
            return Ok(());
        }
        // A leader waits for a writer that holds the block. Room was made before, so that this writer
        // waits for nobody.
        let held = match begin {
            Begin::Behind => block.hold(last),
            Begin::Block => None,
        };
        if held.is_none() {
            // Where it is open, this commit does not use it, and no later one may.
            block.close_as_writer();
        }
        if begin == Begin::Behind && held.is_none() {
            self.laid_out.begin_block();
        }
        let written = self.write_laid_out();
        match (&written, &self.laid_out.packing) {
            (Ok(()), Some(packing)) => block.wrote(packing.last(), held),
            _ => block.close_as_writer(),
        }
        written
    }

    fn lay_out_for_page_cache(&mut self, begin: Begin, blocks: Blocks) -> Result<(), LogError> {
        // SQLite asks again with every page that it wants to write early.
        self.log.check_room(self.end_at_most(), &*self.patience)?;
        self.log.group_synch.write_all(&self.log)?;
        self.write_header()?;
        self.stock_tail = None;
        self.encode(begin, blocks).map(drop)
    }

    fn write_laid_out(&mut self) -> Result<(), LogError> {
        if self.laid_out.blocks.is_empty() {
            return Ok(());
        }
        let offset = self.laid_out.offset();
        let file = self.log.file();
        if let Some(headers) = &self.laid_out.headers {
            file.write_buffered_at(headers.bytes.as_slice(), headers.offset)?;
        }
        let write = || file.write_buffered_at(self.laid_out.blocks.as_slice(), offset);
        match self.log.lacks_room(self.laid_out.end) {
            true => self.log.write_beyond(&*self.patience, write)?,
            false => write()?,
        }
        self.note_written();
        Ok(())
    }

    /// Lays the run out in `blocks`, and writes the side block that belongs before it.
    fn encode(&mut self, begin: Begin, blocks: Blocks) -> Result<u64, LogError> {
        for frame in self.run.first().0..=self.run.last().0 {
            self.log.forget_frame(FrameNo(frame));
        }
        let offset = match self.log.geometry().layout().has_fixed_positions() {
            true => self.encode_in_place()?,
            false => self.pack(begin, blocks)?,
        };
        self.laid_out.end = offset + self.laid_out.blocks.len() as u64;
        Ok(offset)
    }

    /// Compresses the run, for the end of a log without fixed positions.
    fn pack(&mut self, begin: Begin, blocks: Blocks) -> Result<u64, LogError> {
        let log = Arc::clone(&self.log);
        let (Some(packed), Some(history)) = (log.packed(), self.transaction.history) else {
            return Err(log.error(ErrorKind::Write, "its generation is not known"));
        };
        // A frame after a finished commit is only begun.
        let ends = self.run.is_commit(self.transaction.commit)
            && self.run.is_sealed(self.transaction.commit);
        let last = match ends {
            true => self.transaction.commit,
            false => self.run.last(),
        };
        // The frames that SQLite puts after a commit to fill a sector are commits again, of the
        // same transaction. Nothing replaces a commit in the log, and the written part of this one
        // waits for a flush.
        let first = self.run.first().max(packed.committed().plus(1));
        self.transaction.spilled |= first > self.run.first();
        if first > last {
            self.laid_out.blocks.clear();
            return Ok(packed.end());
        }
        let run = Unpacked {
            first,
            frames: self.run.between(first, last),
            ends_transaction: ends,
            history,
        };
        let how = self.config.compressing;
        let packing = packed.pack(
            &run,
            (begin, blocks),
            how,
            log.nearby(),
            &mut self.laid_out.blocks,
        );
        let offset = packing.offset;
        self.laid_out.packing = Some(packing);
        Ok(offset)
    }

    fn encode_in_place(&mut self) -> Result<u64, LogError> {
        self.laid_out.headers = None;
        let (log, tail) = (&self.log, &self.stock_tail);
        let mut load = |offset: u64, out: &mut [u8]| match tail {
            Some(tail) if tail.offset == offset && tail.block.len() == out.len() => {
                out.copy_from_slice(tail.block.as_slice());
                Ok(())
            }
            _ => log.load_block(offset, out),
        };
        let (offset, side) = log
            .geometry()
            .encode(
                self.run.first(),
                self.run.bytes(),
                self.transaction.live_until,
                &mut load,
                &mut self.laid_out.blocks,
            )
            .map_err(|e| {
                LogError::io(
                    ErrorKind::Read,
                    log.file().path(),
                    "read back a block of",
                    &e,
                )
            })?;
        if log.geometry().layout() == Layout::Gathered {
            self.laid_out.headers = side;
        } else if let Some(side) = side {
            self.make_room(side.offset + side.bytes.len() as u64)?;
            log.file()
                .write_at(side.bytes.as_slice(), side.offset, Durability::None)?;
            // The frames must not become durable before those that they depend on.
            self.transaction.spilled = true;
        }
        Ok(offset)
    }

    fn remember_stock_tail(&mut self, offset: u64) {
        let geometry = self.log.geometry();
        let header = self.run.frame(self.run.last());
        let last = match geometry.layout() {
            Layout::Stock => {
                let end = geometry.page().frame_range(self.run.last()).end;
                Some(end - end % BLOCK)
            }
            _ => geometry.header_block(self.run.last()),
        };
        let Some(last) = last else { return };
        let headers = self
            .laid_out
            .headers
            .as_ref()
            .filter(|headers| headers.offset == last);
        let kept = self.stock_tail.take().map(|tail| tail.block);
        self.stock_tail = header.and_then(|header| {
            let mut block = kept.unwrap_or_default();
            block.clear();
            block.extend_from_slice(match headers {
                Some(headers) => headers.bytes.as_slice(),
                None => {
                    let in_blocks = last.checked_sub(offset)? as usize;
                    self.laid_out
                        .blocks
                        .as_slice()
                        .get(in_blocks..)?
                        .get(..BLOCK as usize)?
                }
            });
            Some(StockTail {
                offset: last,
                block,
                checksum: crate::wal::array(&header[16..24]),
            })
        });
    }

    fn write_header(&mut self) -> Result<(), LogError> {
        let Some(header) = self.header else {
            return Ok(());
        };
        self.make_room(BLOCK)?;
        self.log.write_wal_header(&header, Durability::None)?;
        self.header = None;
        // Frames of the new generation must not become durable alone.
        self.transaction.spilled = true;
        Ok(())
    }

    /// `xSync` of a commit.
    pub(super) fn sync_commit(
        &mut self,
        index: Option<IndexView>,
        alone_in_transaction: &dyn Fn() -> bool,
    ) -> Result<(), LogError> {
        let policy = self.log.sync_policy(self.config.sync);
        if self.try_group(policy)? {
            return Ok(());
        }
        let Some(history) = self.run_history() else {
            return self.sync_everything(index);
        };
        if self.may_defer(policy, index, alone_in_transaction) {
            return self.defer(history);
        }
        if policy == SyncPolicy::Normal {
            // Before this call was expected, the frames went to the page cache.
            self.transaction.spilled |= self.run_is_out;
            self.write_out(Durability::None)?;
            return self.keep_spilled_on_disk(index);
        }
        let everything_before = self.published_is_durable(index);
        // A write into shared blocks may find no space. If that write is also a flush, it is
        // unclear whether other commits are lost.
        let one_write = policy == SyncPolicy::Persistent
            && !self.run_is_out
            && !self.transaction.spilled
            && self.header.is_none()
            && (everything_before
                || self.write_through_flushes() && !self.log.may_lack_space_for_ready_blocks());
        if one_write {
            self.write_through(everything_before)?;
        } else {
            self.write_out(Durability::None)?;
            self.flush(everything_before)?;
        }
        // A side block may have been written on the way, which a FUA write does not cover.
        if one_write && self.transaction.spilled {
            self.flush(everything_before)?;
        }
        // Not of the last frame, if only a part of it is there.
        self.promise = Promise::Durable(history, self.transaction.commit);
        Ok(())
    }

    /// Whether a frame of this transaction is in a log without fixed positions as a commit that
    /// nothing replaces, or before one.
    pub(super) fn is_out(&self, frame: FrameNo) -> bool {
        let packed = self
            .log
            .packed()
            .filter(|_| self.transaction.history.is_some());
        packed.is_some_and(|packed| frame <= packed.committed())
    }

    /// Whether the kernel turns a write-through write into a write and a flush of the device's
    /// whole cache, because the device has no FUA. It then covers everything that the device has
    /// received. Pages in the page cache, such as commits at NORMAL, must be written to the device
    /// first.
    fn write_through_flushes(&self) -> bool {
        self.log.geometry().layout() != Layout::Stock
            && self.log.file().write_through_covers_all_before()
    }

    /// `onewrite_sync=normal` promises that a commit survives a crash of the system. Frames that a
    /// large transaction left in the page cache would not.
    fn keep_spilled_on_disk(&self, index: Option<IndexView>) -> Result<(), LogError> {
        match self.transaction.spilled {
            true => self.flush(self.published_is_durable(index)),
            false => Ok(()),
        }
    }

    /// `xSync` that belongs to no commit: of a checkpoint, or of a WAL header. When it returns,
    /// everything written so far by any process is durable.
    pub(super) fn sync_everything(&mut self, index: Option<IndexView>) -> Result<(), LogError> {
        self.log.group_synch.write_all(&self.log)?;
        if self.run.is_empty()
            && let Some(header) = self.header
        {
            if self.log.is_untouched() {
                // The device durably has an empty log. Without this header there are no frames.
                // With it there are no older ones, which have other salts. So it may be written and
                // flushed with the first commit.
                return Ok(());
            }
            // Only the header is new, and it depends on nothing: one write-through write.
            self.make_room(BLOCK)?;
            self.log
                .write_wal_header(&header, Durability::WriteThrough)?;
            self.header = None;
            if let Some(salts) = self.log.header_salts() {
                let recovery = index.map_or(0, |index| index.recovery);
                self.log
                    .set_durable(FrameNo(0), History { salts, recovery });
            }
            return Ok(());
        }
        if self.run.is_empty()
            && !self.transaction.is_under_way()
            && self.published_is_durable(index)
        {
            // A checkpoint may copy all of it.
            return Ok(());
        }
        self.write_header()?;
        self.flush(self.published_is_durable(index))?;
        if let Some(index) = index {
            self.log.set_durable(index.last_frame, index.history());
        }
        Ok(())
    }

    /// Whether this process knows that every published frame is durable.
    fn published_is_durable(&self, index: Option<IndexView>) -> bool {
        match index {
            Some(index) => self
                .log
                .durable_before(index.last_frame.plus(1), index.history()),
            // `locking_mode=EXCLUSIVE` without shared memory: all frames are ours.
            None => self
                .run_history()
                .is_some_and(|of| self.log.durable_before(self.run.first(), of)),
        }
    }

    /// One write that makes the commit durable by itself, or with the kernel's flush after it.
    fn write_through(&mut self, everything_before: bool) -> Result<(), LogError> {
        if !everything_before {
            self.log.check_poison_everywhere()?;
            // Any error here, even a lack of space, concerns published frames.
            self.log.file().write_back().inspect_err(|e| {
                self.log.poison(&format!("a flush failed: {e}"));
            })?;
        }
        let written = self.write_out(Durability::WriteThrough);
        self.poison_unless(everything_before, written)
    }

    fn flush(&self, everything_before: bool) -> Result<(), LogError> {
        self.log.group_synch.write_all(&self.log)?;
        if !everything_before {
            self.log.check_poison_everywhere()?;
        }
        self.log.shared().open_block().close();
        let flushed = self.log.file().flush().map_err(LogError::from);
        self.poison_unless(everything_before, flushed)
    }

    /// A failed flush may lose commits that were published before this one, and a later flush would
    /// not report that.
    fn poison_unless(
        &self,
        everything_before: bool,
        result: Result<(), LogError>,
    ) -> Result<(), LogError> {
        // Without room for the frames nothing was written. But if there was room, the device or an
        // earlier write found none.
        let end = self.end_of_run();
        let no_room = |e: &LogError| match e.kind() {
            ErrorKind::Full => self.log.lacks_room(end),
            // Waits happen only to make room.
            kind => kind == ErrorKind::Busy,
        };
        if let Err(e) = &result
            && !everything_before
            && !no_room(e)
        {
            self.log.poison(&format!("a flush failed: {e}"));
        }
        result
    }
}
