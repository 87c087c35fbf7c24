//! The place of the next page: one open block for each stream; for the host and for copies one on
//! each die, and there on each plane.
//!
//! Pages that change together are stored together. Four kinds have separate blocks. They are: the
//! host's current writes; pages that outlived their block, which change less; pages that never
//! change; bookkeeping, which changes most. With [`CopiesGo::AmongHost`] the first two share
//! blocks. With [`MapGoes::Striped`] the map's pieces have a block on each die, too.
//!
//! The planes of a die take turns before the next die: pages with the same number in their blocks
//! are programmed together.

use super::blocks::Pick;
use super::config::{Config, CopiesGo, MapGoes};
use crate::nand::{BlockNo, Geometry, Ppn, pairs};

/// The source of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// The host, on each die in turn.
    Host,
    /// Garbage collection, on each die in turn.
    Copies,
    /// Wear levelling: pages that never change, onto worn blocks.
    Cold,
    /// The X-L2P table and the root.
    Meta,
    /// The page map: with the root, or on each die in turn.
    Map,
}

impl Stream {
    pub(crate) fn pick(self) -> Pick {
        match self {
            Self::Cold => Pick::MostWorn,
            _ => Pick::LeastWorn,
        }
    }
}

/// Sets of blocks with one open block on each die.
fn spread(config: &Config) -> usize {
    let copies = usize::from(config.copies == CopiesGo::Apart);
    1 + copies + usize::from(config.map == MapGoes::Striped)
}

/// Streams that have one block.
const SINGLE: usize = 2;

/// Blocks that may be open at a time on `planes` planes in all.
pub(crate) fn most_open(planes: u32, config: &Config) -> u32 {
    planes * spread(config) as u32 + SINGLE as u32
}

#[derive(Clone, Copy, Debug)]
struct OpenBlock {
    block: BlockNo,
    next: u32,
    /// With its pages before this one, the pairs of all content are complete.
    until: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    open: Vec<Option<OpenBlock>>,
    dies: u32,
    /// Of each die.
    planes: u32,
    /// For spread streams, the die of the next page: of the host's pages, of copies if they go
    /// elsewhere, and of the map if it is striped.
    turns: Vec<u32>,
    copies: usize,
    map: Option<usize>,
}

impl Streams {
    pub(crate) fn new(geometry: &Geometry, config: &Config) -> Self {
        let (dies, planes) = (geometry.dies(), geometry.planes_per_die);
        let spread = spread(config);
        Self {
            open: vec![None; most_open(dies * planes, config) as usize],
            dies,
            planes,
            turns: vec![0; spread],
            copies: usize::from(config.copies == CopiesGo::Apart),
            map: (config.map == MapGoes::Striped).then_some(spread - 1),
        }
    }

    /// The current turn, if the stream goes from die to die.
    fn turn(&self, stream: Stream) -> Option<usize> {
        match stream {
            Stream::Host => Some(0),
            Stream::Copies => Some(self.copies),
            Stream::Map => self.map,
            Stream::Cold | Stream::Meta => None,
        }
    }

    fn index(&self, stream: Stream) -> usize {
        match self.turn(stream) {
            Some(turn) => self.on_die(turn) + self.next_plane(turn),
            None => self.open.len() - SINGLE + usize::from(stream != Stream::Cold),
        }
    }

    /// The first plane of the die whose turn it is.
    fn on_die(&self, turn: usize) -> usize {
        (turn * self.dies as usize + self.turns[turn] as usize) * self.planes as usize
    }

    /// The open blocks of the die whose turn it is.
    fn of_die(&self, turn: usize) -> &[Option<OpenBlock>] {
        &self.open[self.on_die(turn)..][..self.planes as usize]
    }

    /// The plane whose open block has the fewest pages; the first one if no block is open.
    fn next_plane(&self, turn: usize) -> usize {
        let open = self.of_die(turn).iter().enumerate();
        let next = open.filter_map(|(plane, open)| Some((open.as_ref()?.next, plane)));
        next.min().map_or(0, |(_, plane)| plane)
    }

    /// Planes on which a stream opens blocks together.
    pub(crate) fn planes(&self, stream: Stream) -> u32 {
        match self.turn(stream) {
            Some(_) => self.planes,
            None => 1,
        }
    }

    /// The die for a new block.
    pub(crate) fn die(&self, stream: Stream) -> Option<u32> {
        let turn = self.turn(stream)?;
        (self.dies > 1).then_some(self.turns[turn])
    }

    /// The next page of a stream's open block; `None` if it has none.
    pub(crate) fn next(&self, stream: Stream, geometry: &Geometry) -> Option<Ppn> {
        let open = self.open[self.index(stream)]?;
        Some(geometry.ppn(open.block, open.next))
    }

    /// Moves a spread stream's next page to the next wanted die. `false` if none is wanted; then it
    /// is the die whose turn it is. `is_wanted` gets a die, and whether the stream has a block open
    /// there.
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

    /// The stream has a new block on a plane of the die whose turn it is.
    pub(crate) fn open(&mut self, stream: Stream, plane: u32, block: BlockNo) {
        let index = match self.turn(stream) {
            Some(turn) => self.on_die(turn) + plane as usize,
            None => self.index(stream),
        };
        self.open[index] = Some(OpenBlock {
            block,
            next: 0,
            until: 0,
        });
    }

    /// The stream's next page was programmed. Returns the block if that was its last page. The next
    /// page of a spread stream is on the next die, unless another plane has the page with the same
    /// number to program.
    pub(crate) fn advance(&mut self, stream: Stream, geometry: &Geometry) -> Option<BlockNo> {
        let index = self.index(stream);
        let open = self.open[index].as_mut()?;
        let programmed = open.next;
        open.next += 1;
        let upper = pairs::upper_of(programmed, geometry.pages_per_block);
        open.until = open.until.max(upper.map_or(0, |upper| upper + 1));
        let full = match open.next == geometry.pages_per_block {
            true => self.open[index].take().map(|open| open.block),
            false => None,
        };
        if let Some(turn) = self.turn(stream) {
            let mut others = self.of_die(turn).iter().flatten();
            if !others.any(|open| open.next == programmed) {
                self.turns[turn] = (self.turns[turn] + 1) % self.dies;
            }
        }
        full
    }

    /// Open blocks, and the pages programmed in them.
    pub(crate) fn filled(&self) -> (u32, u64) {
        let open = || self.open.iter().flatten();
        let pages = open().map(|open| u64::from(open.next)).sum();
        (open().count() as u32, pages)
    }

    /// Blocks that may be open.
    pub(crate) fn most(&self) -> usize {
        self.open.len()
    }

    /// The next page of an open block, if it has pairs to complete.
    pub(crate) fn incomplete(&self, open: usize, geometry: &Geometry) -> Option<Ppn> {
        let open = self.open[open].filter(|open| open.next < open.until)?;
        Some(geometry.ppn(open.block, open.next))
    }

    /// An open block was padded by a page. Returns it if that was its last page.
    pub(crate) fn advance_padded(&mut self, open: usize, geometry: &Geometry) -> Option<BlockNo> {
        let padded = self.open[open].as_mut()?;
        padded.next += 1;
        match padded.next == geometry.pages_per_block {
            true => self.close_at(open),
            false => None,
        }
    }

    /// Closes an open block.
    pub(crate) fn close_at(&mut self, open: usize) -> Option<BlockNo> {
        self.open[open].take().map(|open| open.block)
    }

    /// Closes a block, wherever it is open. `false` if it is not.
    pub(crate) fn close_block(&mut self, block: BlockNo) -> bool {
        let mut places = self.open.iter_mut();
        let place = places.find(|place| place.is_some_and(|open| open.block == block));
        place.is_some_and(|place| place.take().is_some())
    }

    /// The stream gives its block up.
    pub(crate) fn close(&mut self, stream: Stream) -> Option<BlockNo> {
        let index = self.index(stream);
        self.open[index].take().map(|open| open.block)
    }
}
