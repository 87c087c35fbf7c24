//! Where the next page goes: one open block a stream, and for the host one on each die.
//!
//! What changes together lies together: pages that the host writes now, pages that outlived their block
//! (and so change less), pages that never change, and bookkeeping (which changes most) have blocks of their own.

use super::blocks::Pick;
use crate::nand::{BlockNo, Geometry, Ppn};

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// The host, on each die in turn.
    Host,
    /// Garbage collection.
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
    turn: u32,
}

impl Streams {
    pub(crate) fn new(dies: u32) -> Self {
        Self {
            open: vec![None; dies as usize + 3],
            dies,
            turn: 0,
        }
    }

    fn index(&self, stream: Stream) -> usize {
        let dies = self.dies as usize;
        match stream {
            Stream::Host => self.turn as usize,
            Stream::Copies => dies,
            Stream::Cold => dies + 1,
            Stream::Meta => dies + 2,
        }
    }

    /// The die that a new block is wanted on.
    pub(crate) fn die(&self, stream: Stream) -> Option<u32> {
        (stream == Stream::Host && self.dies > 1).then_some(self.turn)
    }

    /// The next page of a stream's open block; `None` if it has none.
    pub(crate) fn next(&self, stream: Stream, geometry: &Geometry) -> Option<Ppn> {
        let open = self.open[self.index(stream)]?;
        Some(geometry.ppn(open.block, open.next))
    }

    pub(crate) fn open(&mut self, stream: Stream, block: BlockNo) {
        let index = self.index(stream);
        self.open[index] = Some(OpenBlock { block, next: 0 });
    }

    /// The stream's next page was programmed. Returns the block if that was its last page; and the host's
    /// next page is on the next die.
    pub(crate) fn advance(&mut self, stream: Stream, geometry: &Geometry) -> Option<BlockNo> {
        let index = self.index(stream);
        if stream == Stream::Host {
            self.turn = (self.turn + 1) % self.dies;
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
