//! The content of the medium when the power goes.
//!
//! Everything up to the last completed flush is on it. Of the writes since then any subset
//! survives, in any order, each whole or torn between sectors. A FUA write is on the medium too, so
//! earlier writes to its sectors can no longer get there.
//!
//! Subsets are drawn unevenly, because bugs sit at the corners. Nothing, everything, all but one,
//! one alone, and a prefix are each as likely as one of the random mixes.

use std::collections::HashMap;
use std::ops::Range;

use crate::history::{Covers, Event, History, Position};
use crate::image::Image;
use crate::random::Random;

/// The smallest unit, in bytes, that a device writes whole.
pub const SECTOR: u64 = 512;

/// How writes may be torn and reordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tear {
    /// Any subset in any order, torn at 512-byte sectors.
    Sectors,
    /// Any subset in any order, never torn below 4 KiB.
    Blocks,
    /// The writes arrive in order and whole: a prefix of them survives.
    InOrder,
}

impl Tear {
    fn unit(self) -> u64 {
        match self {
            Self::Sectors => SECTOR,
            Self::Blocks | Self::InOrder => 4096,
        }
    }
}

/// A crash image and the draws for it.
#[derive(Clone, Debug)]
pub struct Crash {
    /// The content of the medium.
    pub image: Image,
    /// Writes that were in the cache.
    pub cached: usize,
    /// Cached writes of which nothing survived.
    pub lost: usize,
    /// Cached writes of which a part survived.
    pub torn: usize,
    /// Distinguishes images of one history. It is equal where the same pieces of the same writes
    /// survived after the same flush.
    pub fingerprint: u64,
}

/// Walks along a history and makes crash images.
#[derive(Debug)]
pub struct Cutter<'a> {
    history: &'a History,
    at: Position,
    durable: Image,
    /// Indices of the events that are only in the cache.
    cached: Vec<usize>,
    never_torn: Vec<Range<u64>>,
    /// Sectors that a FUA write has put on the medium since the last flush, with that write.
    written_through: HashMap<u64, usize>,
}

/// The surviving bytes of one write: start and end.
struct Piece {
    event: usize,
    range: Range<u64>,
}

impl<'a> Cutter<'a> {
    /// At the beginning of `history`, which was recorded on a device that held `base`.
    pub fn new(base: Image, history: &'a History) -> Self {
        Self {
            history,
            at: Position(0),
            durable: base,
            cached: Vec::new(),
            never_torn: Vec::new(),
            written_through: HashMap::new(),
        }
    }

    /// Ranges of bytes in which no write is torn. A file system may read a superblock with a
    /// checksum before it replays its journal. If that superblock is torn, the file system cannot
    /// be mounted.
    pub fn never_torn(mut self, ranges: &[Range<u64>]) -> Self {
        self.never_torn = ranges.to_vec();
        self
    }

    /// The position of the walk.
    pub fn position(&self) -> Position {
        self.at
    }

    /// How many writes are only in the cache.
    pub fn cached(&self) -> usize {
        self.cached.len()
    }

    /// Goes forward to `position`, or to the end; never back.
    pub fn advance(&mut self, position: Position) {
        let end = position.min(self.history.end());
        while self.at < end {
            let index = self.at.0;
            self.at = Position(index + 1);
            match self.history.events().get(index) {
                Some(Event::Write { .. } | Event::Zero { .. }) => self.cached.push(index),
                Some(Event::Flush(Covers::Everything)) => self.flush_everything(),
                Some(Event::Flush(Covers::WritesSince(from))) => self.write_through(*from),
                Some(Event::Mark(_)) | None => {}
            }
        }
    }

    fn flush_everything(&mut self) {
        let mut durable = std::mem::take(&mut self.durable);
        for index in std::mem::take(&mut self.cached) {
            if let Some(range) = self.whole(index) {
                self.apply(index, range, &mut durable);
            }
        }
        self.durable = durable;
        self.written_through.clear();
    }

    fn write_through(&mut self, from: Position) {
        let split = self.cached.partition_point(|index| *index < from.0);
        let mut durable = std::mem::take(&mut self.durable);
        for index in self.cached.split_off(split) {
            if let Some(range) = self.whole(index) {
                for sector in sectors(&range) {
                    self.written_through.insert(sector, index);
                }
                self.apply(index, range, &mut durable);
            }
        }
        self.durable = durable;
    }

    fn whole(&self, index: usize) -> Option<Range<u64>> {
        let (offset, bytes) = self.history.events().get(index)?.range()?;
        Some(offset..offset + bytes)
    }

    /// Puts a part of a write on the medium, except where a later FUA write put its data.
    fn apply(&self, index: usize, range: Range<u64>, image: &mut Image) {
        if self.written_through.is_empty() {
            return self.copy(index, range, image);
        }
        for sector in sectors(&range) {
            let newer = self.written_through.get(&sector);
            if newer.is_none_or(|newer| *newer <= index) {
                let start = (sector * SECTOR).max(range.start);
                self.copy(index, start..((sector + 1) * SECTOR).min(range.end), image);
            }
        }
    }

    fn copy(&self, index: usize, range: Range<u64>, image: &mut Image) {
        match self.history.events().get(index) {
            Some(Event::Write { offset, data }) => {
                let from = (range.start - offset) as usize;
                let to = (range.end - offset) as usize;
                if let Some(part) = data.get(from..to) {
                    image.write(range.start, part);
                }
            }
            Some(Event::Zero { .. }) => image.zero(range.start, range.end - range.start),
            Some(Event::Flush(_) | Event::Mark(_)) | None => {}
        }
    }

    /// The medium if the power goes here; `seed` draws the surviving writes.
    pub fn crash(&self, seed: u64, tear: Tear) -> Crash {
        let mut random = Random::new(seed);
        let mut pieces = Vec::new();
        let (mut lost, mut torn) = (0, 0);
        let plan = Plan {
            shape: Shape::draw(&mut random, tear, self.cached.len()),
            unit: tear.unit(),
            never_torn: &self.never_torn,
        };
        for (nth, index) in self.cached.iter().enumerate() {
            let Some(whole) = self.whole(*index) else {
                continue;
            };
            let before = pieces.len();
            plan.survivors(nth, *index, &whole, &mut random, &mut pieces);
            let survived: u64 = pieces[before..]
                .iter()
                .map(|p| p.range.end - p.range.start)
                .sum();
            match survived {
                0 => lost += 1,
                some if some < whole.end - whole.start => torn += 1,
                _ => {}
            }
        }
        let fingerprint = self.fingerprint(&pieces);
        if tear != Tear::InOrder {
            random.shuffle(&mut pieces);
        }
        let mut image = self.durable.clone();
        for piece in pieces {
            self.apply(piece.event, piece.range, &mut image);
        }
        Crash {
            image,
            cached: self.cached.len(),
            lost,
            torn,
            fingerprint,
        }
    }

    fn fingerprint(&self, pieces: &[Piece]) -> u64 {
        let last_flush = self.history.events()[..self.at.0]
            .iter()
            .rposition(|event| matches!(event, Event::Flush(_)));
        let mut mixed = last_flush.map_or(0, |index| index as u64 + 1);
        for piece in pieces {
            for part in [piece.event as u64, piece.range.start, piece.range.end] {
                mixed = Random::new(mixed ^ part).next();
            }
        }
        mixed
    }
}

fn sectors(range: &Range<u64>) -> Range<u64> {
    range.start / SECTOR..range.end.div_ceil(SECTOR)
}

/// The draw for the writes of the cache; the n-th write is `nth`.
enum Shape {
    /// The first `n` survive whole, the next one torn.
    Prefix(usize),
    /// The first `n` survive whole.
    WholePrefix(usize),
    /// All but this one.
    AllBut(usize),
    /// This one alone.
    Only(usize),
    /// Each of them with this chance in percent to survive, and this chance to be torn.
    Mixed { keep: u32, tear: u32 },
}

impl Shape {
    fn draw(random: &mut Random, tear: Tear, cached: usize) -> Self {
        match (tear, random.below(8)) {
            (Tear::InOrder, _) => Shape::WholePrefix(random.below(cached + 1)),
            (_, 0) => Shape::WholePrefix(0),
            (_, 1) => Shape::WholePrefix(cached),
            (_, 2) => Shape::AllBut(random.below(cached)),
            (_, 3) => Shape::Only(random.below(cached)),
            (_, 4) => Shape::Prefix(random.below(cached + 1)),
            _ => Shape::Mixed {
                keep: [10, 30, 50, 70, 90][random.below(5)],
                tear: [0, 20, 60, 100][random.below(4)],
            },
        }
    }
}

struct Plan<'a> {
    shape: Shape,
    unit: u64,
    never_torn: &'a [Range<u64>],
}

impl Plan<'_> {
    /// The end of the piece that begins at `at` and is written whole.
    fn piece_end(&self, at: u64, whole: &Range<u64>) -> u64 {
        let kept_whole = self.never_torn.iter().find(|range| range.contains(&at));
        let end = kept_whole.map_or((at / self.unit + 1) * self.unit, |range| range.end);
        end.min(whole.end)
    }

    fn survivors(
        &self,
        nth: usize,
        event: usize,
        whole: &Range<u64>,
        random: &mut Random,
        pieces: &mut Vec<Piece>,
    ) {
        let (keeps, tears) = match self.shape {
            Shape::Prefix(n) => (nth <= n, nth == n),
            Shape::WholePrefix(n) => (nth < n, false),
            Shape::AllBut(n) => (nth != n, false),
            Shape::Only(n) => (nth == n, false),
            Shape::Mixed { keep, tear } => (random.percent(keep), random.percent(tear)),
        };
        match (keeps, tears) {
            (false, _) => {}
            (true, false) => pieces.push(Piece {
                event,
                range: whole.clone(),
            }),
            (true, true) => self.torn(event, whole, random, pieces),
        }
    }

    fn torn(&self, event: usize, whole: &Range<u64>, random: &mut Random, pieces: &mut Vec<Piece>) {
        let keep = [15, 50, 85][random.below(3)];
        let mut at = whole.start;
        while at < whole.end {
            let end = self.piece_end(at, whole);
            if random.percent(keep) {
                match pieces.last_mut() {
                    Some(last) if last.event == event && last.range.end == at => {
                        last.range.end = end;
                    }
                    _ => pieces.push(Piece {
                        event,
                        range: at..end,
                    }),
                }
            }
            at = end;
        }
    }
}

#[cfg(test)]
mod tests;
