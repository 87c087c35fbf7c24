//! A controller that has not the whole page map in memory: DFTL's cached mapping table.
//!
//! Gupta, Kim and Urgaonkar, "DFTL", ASPLOS '09. Memory has room for some entries of the map. For
//! another entry the controller reads the piece that has it, and drops the entry that was not used
//! for longest. If that one has changed, the piece is first *written back*: read, and programmed
//! with all changed entries of it in memory (the paper's batch update).
//!
//! The model has the whole map in its own memory. Here it does the reads and programs that the
//! controller would need, so that counts and times are right.
//!
//! *Roots.* A piece that was written back counts in recovery when a root names it, as every piece.
//! Until then the FTL keeps the one that the root names, too. Later changes may make it useless: a
//! root only names a piece that is current. Recovery finds all else by out-of-band areas, so that
//! nothing depends on a write-back.
//!
//! *Differences from the paper.* A read drops the oldest unchanged entry, and so never programs.
//! Copies of garbage collection are changed entries in memory, which may be too many until the next
//! command that writes. The paper's table is segmented by recency; this one is least recently used.

use std::collections::BTreeMap;

use super::flaw::Flaw;
use super::map::Piece;
use super::{Ftl, FtlError, Lpn};

/// An entry of the map in memory.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The moment of its last use.
    used: u64,
    /// Its piece on flash has an older one.
    is_changed: bool,
}

/// The entries in memory, and the pieces that were written back.
#[derive(Clone, Debug)]
pub(crate) struct Cached {
    capacity: usize,
    entries: BTreeMap<Lpn, Entry>,
    /// The entries by their last use.
    order: BTreeMap<u64, Lpn>,
    now: u64,
    /// Pieces that no root names yet, whether or not they have changed since.
    pub(super) written_back: BTreeMap<u32, Piece>,
}

impl Cached {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            capacity: capacity as usize,
            entries: BTreeMap::new(),
            order: BTreeMap::new(),
            now: 0,
            written_back: BTreeMap::new(),
        }
    }

    fn has(&self, lpn: Lpn) -> bool {
        self.entries.contains_key(&lpn)
    }

    /// An entry is used, and in memory from now on.
    pub(super) fn touch(&mut self, lpn: Lpn, is_changed: bool) {
        self.now += 1;
        let entry = self.entries.entry(lpn).or_insert(Entry {
            used: self.now,
            is_changed,
        });
        self.order.remove(&entry.used);
        self.order.insert(self.now, lpn);
        entry.used = self.now;
        entry.is_changed |= is_changed;
    }

    /// The entries of a piece are as on flash.
    pub(super) fn is_written(&mut self, pages: std::ops::Range<u32>) {
        let entries = self.entries.range_mut(Lpn(pages.start)..Lpn(pages.end));
        entries.for_each(|(_, entry)| entry.is_changed = false);
    }

    /// The oldest entry if there are too many, and whether it has changed.
    fn surplus(&self) -> Option<(Lpn, bool)> {
        let (_, lpn) = self.order.first_key_value()?;
        let is_changed = self.entries.get(lpn).is_some_and(|entry| entry.is_changed);
        (self.entries.len() > self.capacity).then_some((*lpn, is_changed))
    }

    /// Drops the oldest unchanged entry if there are too many.
    fn drop_unchanged(&mut self) {
        if self.entries.len() > self.capacity {
            let is_unchanged =
                |lpn: &&Lpn| (self.entries.get(lpn)).is_some_and(|entry| !entry.is_changed);
            let oldest = self.order.values().find(is_unchanged).copied();
            oldest.into_iter().for_each(|lpn| self.forget(lpn));
        }
    }

    fn forget(&mut self, lpn: Lpn) {
        if let Some(entry) = self.entries.remove(&lpn) {
            self.order.remove(&entry.used);
        }
    }
}

impl Ftl {
    /// Whether the controller knows the place of a logical page without reading.
    pub(super) fn knows(&self, lpn: Lpn) -> bool {
        (self.map.cached.as_ref()).is_none_or(|cached| cached.has(lpn))
    }

    /// The controller needs the entry of a logical page, to read the page.
    pub(crate) fn fetch_to_read(&mut self, lpn: Lpn) -> Result<(), FtlError> {
        self.fetch(lpn)?;
        if let Some(cached) = &mut self.map.cached {
            cached.drop_unchanged();
        }
        Ok(())
    }

    /// The controller needs the entry of a logical page.
    pub(crate) fn fetch(&mut self, lpn: Lpn) -> Result<(), FtlError> {
        if !self.knows(lpn) {
            self.read_piece(self.map.piece_of(lpn))?;
        }
        if let Some(cached) = &mut self.map.cached {
            cached.touch(lpn, false);
        }
        Ok(())
    }

    /// Reads a piece of the map, if it was ever written.
    fn read_piece(&mut self, number: u32) -> Result<(), FtlError> {
        let cached = self.map.cached.as_ref();
        let written_back = cached.and_then(|cached| cached.written_back.get(&number));
        let piece = written_back.unwrap_or(&self.map.pieces[number as usize]);
        if let Some(ppn) = piece.ppn {
            let read = self.read_meta(ppn, super::Content::Map(number));
            // The model itself has the entries of a lost piece.
            match read {
                Err(error) if !self.is_bit_error(&error) => return Err(error),
                _ => {}
            }
            self.statistics.map_reads += 1;
        }
        Ok(())
    }

    /// A piece will be written: the entries that are not in memory come from its older version.
    pub(super) fn read_before_write(&mut self, number: u32) -> Result<(), FtlError> {
        match self.map.cached.is_some() {
            true => self.read_piece(number),
            false => Ok(()),
        }
    }

    /// Drops entries until memory has room for the others.
    pub(super) fn drop_surplus(&mut self) -> Result<(), FtlError> {
        let surplus = |ftl: &Self| ftl.map.cached.as_ref().and_then(Cached::surplus);
        while let Some((lpn, is_changed)) = surplus(self) {
            if is_changed {
                self.make_room()?;
                self.write_back(self.map.piece_of(lpn))?;
            }
            if let Some(cached) = &mut self.map.cached {
                cached.forget(lpn);
            }
        }
        Ok(())
    }

    fn write_back(&mut self, number: u32) -> Result<(), FtlError> {
        let pages = self.map.pages_of(number);
        for (_, piece) in self.write_pieces(&[number])? {
            self.statistics.map_write_backs += 1;
            piece
                .ppn
                .into_iter()
                .for_each(|ppn| self.blocks.mark_valid(ppn));
            let Some(cached) = &mut self.map.cached else {
                continue;
            };
            cached.is_written(pages.clone());
            let before = cached.written_back.insert(number, piece);
            let before = before.and_then(|before| before.ppn);
            before
                .into_iter()
                .for_each(|ppn| self.blocks.mark_invalid(ppn));
        }
        Ok(())
    }

    /// Pieces that were written back and are current, so that the next root can name them.
    pub(super) fn current_written_back(&self) -> Vec<(u32, Piece)> {
        let cached = self.map.cached.as_ref();
        let pieces = cached.into_iter().flat_map(|cached| &cached.written_back);
        let takes_all = self.leaves_out(Flaw::StaleWrittenBack);
        let current = pieces.filter(|(_, piece)| takes_all || !piece.is_changed);
        current
            .map(|(number, piece)| {
                let piece = Piece {
                    is_changed: false,
                    ..*piece
                };
                (*number, piece)
            })
            .collect()
    }

    /// A root names this version of a piece. One that was written back earlier is useless.
    pub(super) fn named(&mut self, number: u32, piece: &Piece) {
        let Some(cached) = &mut self.map.cached else {
            return;
        };
        let written = cached.written_back.remove(&number);
        let useless = written.filter(|written| written.ppn != piece.ppn);
        let useless = useless.and_then(|written| written.ppn);
        useless
            .into_iter()
            .for_each(|ppn| self.blocks.mark_invalid(ppn));
    }
}

#[cfg(test)]
mod tests {
    use crate::ftl::{Config, FlushWrites, Ftl, Lpn, Statistics};
    use crate::nand::timing::Timing;
    use crate::nand::{Geometry, Nand};
    use crate::random::Random;

    fn ftl(cached_entries: u32, flush: FlushWrites) -> Ftl {
        let geometry = Geometry {
            page_bytes: 512,
            pages_per_block: 16,
            ..Geometry::openssd(128)
        };
        let config = Config {
            table_capacity: 20,
            cached_entries,
            flush,
            ..Config::new(1_280)
        };
        let nand = Nand::new(geometry, Timing::built_in("openssd").unwrap()).unwrap();
        Ftl::open(nand, config).unwrap().0
    }

    fn since(ftl: &mut Ftl, work: impl FnOnce(&mut Ftl)) -> Statistics {
        let before = ftl.statistics();
        work(ftl);
        ftl.statistics().since(&before)
    }

    /// A piece of the map has 128 entries.
    #[test]
    fn an_entry_that_is_not_in_memory_costs_a_read_and_a_changed_one_a_write_back() {
        let mut ftl = ftl(10, FlushWrites::Nothing);
        // Nothing is on flash yet: nothing to read.
        let write = |ftl: &mut Ftl, lpn: u32| ftl.write(Lpn(lpn), &[1; 512]).unwrap();
        let s = since(&mut ftl, |ftl| (0..10).for_each(|n| write(ftl, n)));
        assert_eq!((s.map_reads, s.map_write_backs, s.map_writes), (0, 0, 0));
        // The next two entries push out the first. All changed ones are of one piece, which is then
        // on flash, where the last entry is read.
        let s = since(&mut ftl, |ftl| (10..12).for_each(|n| write(ftl, n)));
        assert_eq!((s.map_reads, s.map_write_backs, s.root_writes), (1, 1, 0));
        // It was dropped.
        let s = since(&mut ftl, |ftl| drop(ftl.read(Lpn(0)).unwrap()));
        assert_eq!((s.map_reads, s.map_writes), (1, 0));
        let s = since(&mut ftl, |ftl| drop(ftl.read(Lpn(0)).unwrap()));
        assert_eq!(s.map_reads, 0);
        // Of ten pieces: each new entry is a miss. Each second one that is dropped has changed: the
        // others were written with an older one of their piece. A piece is read before it is
        // written again.
        (0..30).for_each(|n| write(&mut ftl, n * 128 % 1_280 + n / 10));
        let s = since(&mut ftl, |ftl| {
            (0..20).for_each(|n| write(ftl, n * 128 % 1_280 + 10 + n / 10));
        });
        assert_eq!((s.map_write_backs, s.map_reads), (10, 30));
        ftl.checkpoint().unwrap();
        assert_eq!(
            ftl.statistics().programs(),
            ftl.nand().operations().programs
        );
        (0..10).for_each(|n| assert_eq!(*ftl.read(Lpn(n * 128 + 10)).unwrap(), [1; 512]));
    }

    /// Otherwise they would stay until the piece changes again, and the table would hold more than it
    /// may.
    #[test]
    fn entries_that_a_piece_has_are_not_in_the_journal() {
        let mut ftl = ftl(4, FlushWrites::Journal);
        let mut random = Random::new(1);
        let mut journals = 0;
        for _ in 0..500 {
            for _ in 0..random.below(8) {
                let lpn = Lpn(random.below(1_280) as u32);
                ftl.write(lpn, &[1; 512]).unwrap();
            }
            ftl.flush().unwrap();
            journals += usize::from(ftl.table.committed() > 0);
            if random.percent(20) {
                ftl.checkpoint().unwrap();
                assert_eq!(ftl.table.committed(), 0);
            }
        }
        assert!(journals > 100, "{journals}");
    }

    #[test]
    fn a_table_for_the_whole_map_reads_and_writes_back_nothing() {
        let mut ftl = ftl(1_280, FlushWrites::Nothing);
        (0..5_000).for_each(|n| ftl.write(Lpn(n * 7 % 1_280), &[2; 512]).unwrap());
        let s = ftl.statistics();
        assert!(s.gc_copies == 0 || s.gc_blocks > 0);
        // Pieces are read when a checkpoint or garbage collection writes them again.
        assert_eq!(s.map_write_backs, 0);
        assert!(s.map_reads <= s.map_writes, "{s:?}");
    }
}
