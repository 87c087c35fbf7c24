//! A run of frames, laid out for the log's end, before it is written. Called by [`super`], and by
//! `commit` for a batch whose block was closed meanwhile.

use std::cell::RefCell;

use super::bases::WholeFrame;
use super::batch::{self, Begin};
use super::chain::{Link, Position, Tail};
use crate::storage::AlignedBuf;
use crate::sync::with_kept;
use crate::wal::{History, PageNo};

/// The entries of a list that a thread keeps room for.
const KEPT_ENTRIES: usize = 1024;

thread_local! {
    /// The lists of the thread's last run, so that a commit allocates none.
    static LISTS: RefCell<Lists> = const {
        RefCell::new(Lists { positions: Vec::new(), wholes: Vec::new(), differences: Vec::new() })
    };
}

/// The lists of a run.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) positions: Vec<Position>,
    pub(super) wholes: Vec<(PageNo, WholeFrame)>,
    /// The pages that are differences, and their bytes.
    pub(super) differences: Vec<(PageNo, usize)>,
}

impl Lists {
    /// Empty lists.
    pub(super) fn take() -> Lists {
        with_kept(&LISTS, std::mem::take)
    }

    fn give_back(mut self) {
        self.positions.clear();
        self.wholes.clear();
        self.differences.clear();
        self.positions.shrink_to(KEPT_ENTRIES);
        self.wholes.shrink_to(KEPT_ENTRIES);
        self.differences.shrink_to(KEPT_ENTRIES);
        with_kept(&LISTS, |kept| *kept = self);
    }
}

/// Frames laid out for the log's end. They are part of the log once they are written.
#[derive(Debug)]
pub struct Packing {
    /// Where to write them, in bytes.
    pub offset: u64,
    /// The end of the log before them.
    pub(super) after: Tail,
    pub(super) link: Link,
    pub(super) history: History,
    pub(super) wholes: Vec<(PageNo, WholeFrame)>,
    /// The pages that are differences, and their bytes.
    pub(super) differences: Vec<(PageNo, usize)>,
}

/// A batch at the log's end, by its CRC and its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastBatch {
    /// Its CRC-32C, which covers its place in the log's chain.
    pub crc: u32,
    /// Where it ends, in bytes: a multiple of 16.
    pub end: u64,
}

impl LastBatch {
    /// Whether it ends within a block.
    pub fn leaves_room(self) -> bool {
        !self.end.is_multiple_of(batch::BLOCK_BYTES)
    }
}

impl Packing {
    /// It is published, and no longer needed.
    pub(super) fn end(self) {
        Lists {
            positions: self.link.positions,
            wholes: self.wholes,
            differences: self.differences,
        }
        .give_back();
    }

    /// This batch.
    pub fn last(&self) -> LastBatch {
        LastBatch {
            crc: self.link.crc,
            end: self.link.offset,
        }
    }

    /// Moves a batch that was laid out behind another to the next block.
    pub fn begin_block(&mut self, out: &mut AlignedBuf) {
        let offset = Begin::Block.after(self.after.offset);
        let further = offset - self.offset;
        for position in &mut self.link.positions {
            *position = position.moved_by(further);
        }
        self.link.offset += further;
        self.offset = offset;
        Begin::Block.put(out.as_mut_slice());
        self.fill_block(out);
    }

    /// Fills the last block with zeros, unless another batch has begun it, and filled it. Nothing but
    /// batches of this chain was written there since.
    pub(super) fn fill_block(&self, out: &mut AlignedBuf) {
        let begun = self.offset.next_multiple_of(batch::BLOCK_BYTES);
        let end = match self.link.offset <= begun {
            true => self.link.offset,
            false => self.link.offset.next_multiple_of(batch::BLOCK_BYTES),
        };
        out.resize_zeroed((end - self.offset) as usize);
    }
}
