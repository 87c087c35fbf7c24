//! Where the next page goes: one open block a stream, and for the host and for copies one on each die.
//!
//! What changes together lies together: pages that the host writes now, pages that outlived their block
//! (and so change less), pages that never change, and bookkeeping (which changes most) have blocks of their own; unless
//! the device is to put the first two into the same blocks ([`CopiesGo::AmongHost`]).

use super::blocks::Pick;
use super::config::CopiesGo;
use crate::nand::{BlockNo, Geometry, Ppn};

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// The host, on each die in turn.
    Host,
    /// Garbage collection, on each die in turn.
    Copies,
    /// Wear levelling: what never changes, onto worn blocks.
    Cold,
    /// The page map, the X-L2P table and the root.
    Meta,
}

impl Stream {
    pub(crate) fn pick(self) -> Pick {
        match self {
            Self::Cold => Pick::MostWorn,
            _ => Pick::LeastWorn,
        }
    }
}

/// Sets of blocks of which one is open on each die.
const fn spread(copies: CopiesGo) -> usize {
    match copies {
        CopiesGo::Apart => 2,
        CopiesGo::AmongHost => 1,
    }
}

/// Streams that have one block.
const SINGLE: usize = 2;

/// Blocks that may be open at a time.
pub(crate) fn most_open(dies: u32, copies: CopiesGo) -> u32 {
    dies * spread(copies) as u32 + SINGLE as u32
}

#[derive(Clone, Copy, Debug)]
struct OpenBlock {
    block: BlockNo,
    next: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    open: Vec<Option<OpenBlock>>,
    dies: u32,
    /// Of what is spread, the die of the next page: of the host's pages, and of copies where they go elsewhere.
    turns: Vec<u32>,
}

impl Streams {
    pub(crate) fn new(dies: u32, copies: CopiesGo) -> Self {
        Self {
            open: vec![None; most_open(dies, copies) as usize],
            dies,
            turns: vec![0; spread(copies)],
        }
    }

    /// Whose turn it is, if the stream goes from die to die.
    fn turn(&self, stream: Stream) -> Option<usize> {
        match stream {
            Stream::Host => Some(0),
            Stream::Copies => Some(self.turns.len() - 1),
            Stream::Cold | Stream::Meta => None,
        }
    }

    fn index(&self, stream: Stream) -> usize {
        let dies = self.dies as usize;
        match self.turn(stream) {
            Some(turn) => turn * dies + self.turns[turn] as usize,
            None => self.turns.len() * dies + usize::from(stream == Stream::Meta),
        }
    }

    /// The die that a new block is wanted on.
    pub(crate) fn die(&self, stream: Stream) -> Option<u32> {
        let turn = self.turn(stream)?;
        (self.dies > 1).then_some(self.turns[turn])
    }

    /// The next page of a stream's open block; `None` if it has none.
    pub(crate) fn next(&self, stream: Stream, geometry: &Geometry) -> Option<Ppn> {
        let open = self.open[self.index(stream)]?;
        Some(geometry.ppn(open.block, open.next))
    }

    /// The next page of a stream that is spread is on the next die that is wanted; `false` if none is, and on the one whose turn it is then.
    /// `is_wanted` is asked for a die, and whether the stream has a block open there.
    pub(crate) fn seek(&mut self, stream: Stream, is_wanted: impl Fn(u32, bool) -> bool) -> bool {
        let Some(turn) = self.turn(stream) else {
            return false;
        };
        let before = self.turns[turn];
        for die in (before..self.dies).chain(0..before) {
            self.turns[turn] = die;
            if is_wanted(die, self.open[self.index(stream)].is_some()) {
                return true;
            }
        }
        self.turns[turn] = before;
        false
    }

    pub(crate) fn open(&mut self, stream: Stream, block: BlockNo) {
        let index = self.index(stream);
        self.open[index] = Some(OpenBlock { block, next: 0 });
    }

    /// The stream's next page was programmed. Returns the block if that was its last page; and the next page of a
    /// stream that is spread is on the next die.
    pub(crate) fn advance(&mut self, stream: Stream, geometry: &Geometry) -> Option<BlockNo> {
        let index = self.index(stream);
        if let Some(turn) = self.turn(stream) {
            self.turns[turn] = (self.turns[turn] + 1) % self.dies;
        }
        let open = self.open[index].as_mut()?;
        open.next += 1;
        match open.next == geometry.pages_per_block {
            true => self.open[index].take().map(|open| open.block),
            false => None,
        }
    }

    /// The stream gives its block up.
    pub(crate) fn close(&mut self, stream: Stream) -> Option<BlockNo> {
        let index = self.index(stream);
        self.open[index].take().map(|open| open.block)
    }
}
