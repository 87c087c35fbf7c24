//! Programming the next page of a stream, and opening the block for it.

use std::sync::Arc;

use super::blocks::{State, Wanted};
use super::flaw::Flaw;
use super::oob::{Content, Kept, Oob};
use super::streams::Stream;
use super::{Ftl, FtlError};
use crate::nand::{BlockNo, NandError, Ppn};

impl Ftl {
    /// Programs a page, and retries on another block if one fails. The page is not marked valid.
    /// Returns its position and its sequence number.
    pub(super) fn append(
        &mut self,
        stream: Stream,
        content: Content,
        data: Arc<[u8]>,
    ) -> Result<(Ppn, u64), FtlError> {
        self.append_kept(stream, content, Kept::Whole, data)
    }

    /// The same, with or without its content.
    pub(super) fn append_kept(
        &mut self,
        stream: Stream,
        content: Content,
        kept: Kept,
        data: Arc<[u8]>,
    ) -> Result<(Ppn, u64), FtlError> {
        let data_crc = crc32c::crc32c(&data);
        loop {
            self.choose_die(stream);
            let Some(ppn) = self.streams.next(stream, self.nand.geometry()) else {
                self.open_block(stream)?;
                continue;
            };
            let block = self.nand.geometry().block_of(ppn);
            let die = self.nand.geometry().die_of(block);
            let sequence = self.next_sequence();
            let oob = Oob {
                content,
                kept,
                sequence,
                erases: self.blocks.erases(block),
                data_crc,
            };
            let joins = self.nand.joins(ppn);
            match self.nand.program(ppn, Arc::clone(&data), oob.encode()) {
                done if done.is_ok() || self.is_ignored(done) => {
                    self.blocks.changed_at(block, sequence);
                    if let Some(full) = self.streams.advance(stream, self.nand.geometry()) {
                        self.blocks.set_state(full, State::Closed);
                    }
                    self.since_checkpoint += 1;
                    self.statistics.multi_plane += u64::from(joins);
                    // Another page that is programmed together with it may have to be waited for.
                    // The original of a lost page cannot stand in for it.
                    let is_copy = stream == Stream::Copies && !joins && kept == Kept::Whole;
                    self.copying[die as usize] = is_copy && !self.counts_by_entry(content);
                    return Ok((ppn, sequence));
                }
                Err(NandError::ProgramFailed(_)) => {
                    // The rest of the block is readable, and is moved before the block is given up.
                    if let Some(block) = self.streams.close(stream) {
                        self.blocks.set_state(block, State::Failing);
                    }
                }
                done => done?,
            }
        }
    }

    /// Whether recovery finds a page only by an entry of the X-L2P table, so that no older copy can
    /// stand in for it.
    fn counts_by_entry(&self, content: Content) -> bool {
        matches!(content, Content::Transaction(..)) && !self.leaves_out(Flaw::MovedNotWaitedFor)
    }

    /// The host and the map do not wait for a die if another is idle. If only as many blocks are
    /// free as garbage collection needs, copies and the map stay in open ones.
    fn choose_die(&mut self, stream: Stream) {
        let nand = &self.nand;
        let next = self.streams.next(stream, nand.geometry());
        if next.is_some_and(|next| nand.joins(next)) {
            return;
        }
        match stream {
            Stream::Copies | Stream::Map if self.blocks.free() <= self.limits.room => {
                self.streams.seek(stream, |_, is_open| is_open);
            }
            Stream::Host | Stream::Map => {
                self.streams.seek(stream, |die, _| !nand.is_busy(die));
            }
            _ => {}
        }
    }

    fn is_ignored(&self, done: Result<(), NandError>) -> bool {
        matches!(done, Err(NandError::ProgramFailed(_))) && self.leaves_out(Flaw::FailureIgnored)
    }

    /// A sequence number that is higher than all before.
    pub(crate) fn next_sequence(&mut self) -> u64 {
        let sequence = self.sequence;
        self.sequence += 1;
        sequence
    }

    /// Opens a block for a stream, on each plane of the die if there is room.
    fn open_block(&mut self, stream: Stream) -> Result<(), FtlError> {
        self.open_on(stream, 0)?;
        for plane in 1..self.streams.planes(stream) {
            if self.blocks.free() > self.limits.room {
                self.open_on(stream, plane)?;
            }
        }
        Ok(())
    }

    fn open_on(&mut self, stream: Stream, plane: u32) -> Result<(), FtlError> {
        let planes = self.streams.planes(stream);
        let wanted = Wanted {
            die: self.streams.die(stream),
            plane: (planes > 1).then_some(plane),
        };
        loop {
            let free = self.blocks.pick_free(wanted, stream.pick());
            let block = free.ok_or(FtlError::WornOut {
                bad_blocks: self.blocks.bad(),
            })?;
            // The writes that made the block's pages invalid must be on the medium before the pages
            // are gone.
            if !self.leaves_out(Flaw::NoWaitBeforeErase) {
                self.pad()?;
                self.nand.wait();
            }
            match self.nand.erase(block) {
                Ok(()) => {
                    self.blocks.set_erases(block, self.blocks.erases(block) + 1);
                    self.blocks.set_state(block, State::Open);
                    self.ahead.forget(block);
                    self.disturbed.is_new(block);
                    self.streams.open(stream, plane, block);
                    self.since_levelling += 1;
                    return Ok(());
                }
                Err(NandError::EraseFailed(_)) => self.give_up(block)?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Marks a block without valid pages as bad. It is never used again, nor read in recovery, so
    /// the moved pages must be on the medium first.
    pub(super) fn give_up(&mut self, block: BlockNo) -> Result<(), FtlError> {
        if !self.leaves_out(Flaw::NoWaitBeforeGivingUp) {
            self.pad()?;
            self.nand.wait();
        }
        self.blocks.set_state(block, State::Bad);
        Ok(self.nand.mark_bad(block)?)
    }
}
