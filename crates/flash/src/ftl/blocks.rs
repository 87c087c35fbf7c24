//! The controller's state of each block: its use, its valid pages, and the number of its erases.
//!
//! ```text
//! free -> open -> closed -> free          and from any of them: bad
//! ```
//!
//! *Free* blocks are not erased. Opening a block erases it, so that a page that became invalid
//! stays readable until its block is used again. *Closed* blocks take no more pages; they are full,
//! or were open when the power went. A closed block without valid pages is free.

use crate::nand::{BlockNo, Geometry, Ppn};

/// The use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    Open,
    Closed,
    /// Closed because programming or erasing it failed; given up after its valid pages have been
    /// moved.
    Failing,
    Bad,
}

/// The choice among free blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    LeastWorn,
    MostWorn,
}

/// The place of a free block, if that matters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) die: Option<u32>,
    pub(crate) plane: Option<u32>,
}

#[derive(Clone, Debug)]
struct Info {
    state: State,
    /// One bit a page.
    valid: Vec<u64>,
    valid_count: u32,
    erases: u32,
    /// The sequence number of the last change: a page was programmed, or became invalid.
    changed: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    geometry: Geometry,
    infos: Vec<Info>,
    free: u32,
    failing: u32,
    /// The highest sequence number so far.
    now: u64,
    /// Pages of padding in each block.
    padding: u32,
}

impl Blocks {
    /// Every block free and never erased.
    pub(crate) fn new(geometry: Geometry) -> Self {
        let info = Info {
            state: State::Free,
            valid: vec![0; geometry.pages_per_block.div_ceil(64) as usize],
            valid_count: 0,
            erases: 0,
            changed: 0,
        };
        Self {
            geometry,
            infos: vec![info; geometry.blocks() as usize],
            free: geometry.blocks(),
            failing: 0,
            now: 0,
            padding: 0,
        }
    }

    fn info(&self, block: BlockNo) -> &Info {
        &self.infos[block.0 as usize]
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = BlockNo> + use<> {
        (0..self.infos.len() as u32).map(BlockNo)
    }

    pub(crate) fn state(&self, block: BlockNo) -> State {
        self.info(block).state
    }

    pub(crate) fn set_state(&mut self, block: BlockNo, state: State) {
        let info = &mut self.infos[block.0 as usize];
        let before = std::mem::replace(&mut info.state, state);
        self.free -= u32::from(before == State::Free);
        self.free += u32::from(state == State::Free);
        self.failing -= u32::from(before == State::Failing);
        self.failing += u32::from(state == State::Failing);
    }

    /// Blocks that are free.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// Blocks that will be given up.
    pub(crate) fn failing_count(&self) -> u32 {
        self.failing
    }

    /// Blocks that are bad.
    pub(crate) fn bad(&self) -> u32 {
        let bad = self.infos.iter().filter(|info| info.state == State::Bad);
        bad.count() as u32
    }

    pub(crate) fn erases(&self, block: BlockNo) -> u32 {
        self.info(block).erases
    }

    pub(crate) fn set_erases(&mut self, block: BlockNo, erases: u32) {
        self.infos[block.0 as usize].erases = erases;
    }

    /// A block was changed by this sequence number.
    pub(crate) fn changed_at(&mut self, block: BlockNo, sequence: u64) {
        self.infos[block.0 as usize].changed = sequence;
        self.now = self.now.max(sequence);
    }

    /// Sequence numbers since a block was changed.
    pub(crate) fn age(&self, block: BlockNo) -> u64 {
        self.now.saturating_sub(self.info(block).changed)
    }

    /// Garbage collection reckons with pages of padding.
    pub(crate) fn with_padding(self, padding: u32) -> Self {
        Self { padding, ..self }
    }

    /// Pages that emptying a block gains.
    pub(crate) fn gain(&self, block: BlockNo) -> u32 {
        let used = self.valid_count(block) + self.padding;
        self.geometry.pages_per_block.saturating_sub(used)
    }

    pub(crate) fn pages_per_block(&self) -> u32 {
        self.geometry.pages_per_block
    }

    pub(crate) fn die_of(&self, block: BlockNo) -> u32 {
        self.geometry.die_of(block)
    }

    pub(crate) fn valid_count(&self, block: BlockNo) -> u32 {
        self.info(block).valid_count
    }

    fn bit(&self, ppn: Ppn) -> (usize, usize, u64) {
        let page = self.geometry.page_in_block(ppn);
        let block = self.geometry.block_of(ppn).0 as usize;
        (block, page as usize / 64, 1 << (page % 64))
    }

    /// Whether a page is needed.
    pub(crate) fn is_valid(&self, ppn: Ppn) -> bool {
        let (block, word, bit) = self.bit(ppn);
        self.infos[block].valid[word] & bit != 0
    }

    /// A page is needed now.
    pub(crate) fn mark_valid(&mut self, ppn: Ppn) {
        debug_assert!(!self.is_valid(ppn), "{ppn:?} is valid already");
        let (block, word, bit) = self.bit(ppn);
        let info = &mut self.infos[block];
        info.valid[word] |= bit;
        info.valid_count += 1;
    }

    /// A page is not needed any more. Its block becomes free with its last page.
    pub(crate) fn mark_invalid(&mut self, ppn: Ppn) {
        debug_assert!(self.is_valid(ppn), "{ppn:?} was not valid");
        let (block, word, bit) = self.bit(ppn);
        let info = &mut self.infos[block];
        info.valid[word] &= !bit;
        info.valid_count -= 1;
        info.changed = self.now;
        if info.valid_count == 0 && info.state == State::Closed {
            self.set_state(BlockNo(block as u32), State::Free);
        }
    }

    /// The valid pages of a block, in order.
    pub(crate) fn valid_pages(&self, block: BlockNo) -> Vec<Ppn> {
        let info = self.info(block);
        let is_valid = |page: &u32| info.valid[*page as usize / 64] & (1 << (page % 64)) != 0;
        let pages = (0..self.geometry.pages_per_block).filter(is_valid);
        pages.map(|page| self.geometry.ppn(block, page)).collect()
    }

    /// The first valid page of a block.
    pub(crate) fn first_valid(&self, block: BlockNo) -> Option<Ppn> {
        let words = (0..).zip(&self.info(block).valid);
        let mut pages = words.filter(|(_, word)| **word != 0);
        let page = pages
            .next()
            .map(|(at, word)| at * 64 + word.trailing_zeros())?;
        Some(self.geometry.ppn(block, page))
    }

    /// A free block, on that plane of that die if it has one, or else on that die if it has one.
    pub(crate) fn pick_free(&self, wanted: Wanted, pick: Pick) -> Option<BlockNo> {
        let free = |wanted: Wanted| {
            let is_wanted = move |block: BlockNo| {
                let Wanted { die, plane } = wanted;
                die.is_none_or(|die| self.geometry.die_of(block) == die)
                    && plane.is_none_or(|plane| self.geometry.plane_of(block) == plane)
            };
            let blocks = self
                .all()
                .filter(move |block| self.state(*block) == State::Free && is_wanted(*block));
            match pick {
                Pick::LeastWorn => blocks.min_by_key(|block| self.erases(*block)),
                Pick::MostWorn => blocks.max_by_key(|block| self.erases(*block)),
            }
        };
        let of_die = Wanted {
            plane: None,
            ..wanted
        };
        free(wanted)
            .or_else(|| wanted.plane.and_then(|_| free(of_die)))
            .or_else(|| wanted.die.and_then(|_| free(Wanted::default())))
    }

    pub(crate) fn closed(&self) -> impl Iterator<Item = BlockNo> {
        self.all()
            .filter(|block| self.state(*block) == State::Closed)
    }

    /// A block that will be given up.
    pub(crate) fn failing(&self) -> Option<BlockNo> {
        self.all()
            .find(|block| self.state(*block) == State::Failing)
    }

    /// The closed block with the fewest erases, and how many fewer it has than the free block with
    /// the most.
    pub(crate) fn coldest(&self) -> Option<(BlockNo, u32)> {
        let cold = self.closed().min_by_key(|block| self.erases(*block))?;
        let hot = self.pick_free(Wanted::default(), Pick::MostWorn)?;
        Some((cold, self.erases(hot).saturating_sub(self.erases(cold))))
    }
}
