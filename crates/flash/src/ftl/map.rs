//! The page map (L2P): the place of each logical page.
//!
//! The whole map is in memory. On flash it is stored in *pieces* of one page each, and a piece may
//! be older than the map. Later changes are in the out-of-band areas of pages with higher sequence
//! numbers than the piece, and in the X-L2P table.

use std::collections::BTreeSet;

use super::Lpn;
use super::demand::Cached;
use super::oob::be32;
use crate::nand::Ppn;

/// Stands for "no page" in memory and on flash. No page has this number ([`crate::nand::Geometry::check`]).
pub(crate) const NONE: u32 = u32::MAX;

/// A piece of the map on flash.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Piece {
    /// Its place; `None` if it was never written: nothing is mapped then.
    pub(crate) ppn: Option<Ppn>,
    /// It includes everything before this sequence number.
    pub(crate) sequence: u64,
    /// The map has changed since.
    pub(crate) is_changed: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    entries: Vec<u32>,
    piece_entries: u32,
    pub(crate) pieces: Vec<Piece>,
    /// Logical pages whose entry has changed since a piece or a journal had it; `None` if nobody
    /// writes a journal.
    unlogged: Option<BTreeSet<Lpn>>,
    /// The entries that a controller without room for all has in memory; `None` if it has room.
    pub(crate) cached: Option<Cached>,
}

/// No logical pages.
static NOTHING: BTreeSet<Lpn> = BTreeSet::new();

impl Map {
    pub(crate) fn new(logical_pages: u32, piece_entries: u32, has_journal: bool) -> Self {
        let pieces = logical_pages.div_ceil(piece_entries);
        Self {
            entries: vec![NONE; logical_pages as usize],
            piece_entries,
            pieces: vec![Piece::default(); pieces as usize],
            unlogged: has_journal.then(BTreeSet::new),
            cached: None,
        }
    }

    pub(crate) fn get(&self, lpn: Lpn) -> Option<Ppn> {
        let entry = self.entries.get(lpn.0 as usize).copied()?;
        (entry != NONE).then_some(Ppn(entry))
    }

    /// Maps a logical page, and returns its previous place. The piece counts as changed.
    pub(crate) fn set(&mut self, lpn: Lpn, ppn: Option<Ppn>) -> Option<Ppn> {
        let piece = self.piece_of(lpn);
        self.pieces[piece as usize].is_changed = true;
        if let Some(unlogged) = &mut self.unlogged {
            unlogged.insert(lpn);
        }
        if let Some(cached) = &mut self.cached {
            cached.touch(lpn, true);
            let written_back = cached.written_back.get_mut(&piece);
            written_back
                .into_iter()
                .for_each(|piece| piece.is_changed = true);
        }
        let entry = &mut self.entries[lpn.0 as usize];
        let before = std::mem::replace(entry, ppn.map_or(NONE, |ppn| ppn.0));
        (before != NONE).then_some(Ppn(before))
    }

    /// The piece that a logical page is in.
    pub(crate) fn piece_of(&self, lpn: Lpn) -> u32 {
        lpn.0 / self.piece_entries
    }

    /// The logical pages of a piece.
    pub(crate) fn pages_of(&self, piece: u32) -> std::ops::Range<u32> {
        piece * self.piece_entries..(piece + 1) * self.piece_entries
    }

    /// Whether a piece has changed since a root named it.
    pub(crate) fn has_changed(&self) -> bool {
        self.pieces.iter().any(|piece| piece.is_changed)
    }

    /// Whether a piece was written back, and has not changed since.
    pub(super) fn is_written_back(&self, number: u32) -> bool {
        let cached = self.cached.as_ref();
        let written = cached.and_then(|cached| cached.written_back.get(&number));
        written.is_some_and(|written| !written.is_changed)
    }

    /// Pieces that have changed since they were written.
    pub(crate) fn changed(&self) -> Vec<u32> {
        let pieces = (0..).zip(&self.pieces);
        let changed =
            pieces.filter(|(number, piece)| piece.is_changed && !self.is_written_back(*number));
        changed.map(|(number, _)| number).collect()
    }

    /// Logical pages whose entry a journal must have.
    pub(crate) fn unlogged(&self) -> &BTreeSet<Lpn> {
        self.unlogged.as_ref().unwrap_or(&NOTHING)
    }

    /// A journal has the current entry of a logical page.
    pub(crate) fn is_logged(&mut self, lpn: Lpn) {
        if let Some(unlogged) = &mut self.unlogged {
            unlogged.remove(&lpn);
        }
    }

    /// A piece on flash has its current entries.
    pub(crate) fn piece_is_logged(&mut self, piece: u32) {
        let (entries, pages) = (self.piece_entries, self.pages_of(piece));
        if let Some(cached) = &mut self.cached {
            cached.is_written(pages);
        }
        if let Some(unlogged) = &mut self.unlogged {
            unlogged.retain(|lpn| lpn.0 / entries != piece);
        }
    }

    /// A piece in its form on flash: four bytes, big-endian, for each of its logical pages.
    pub(crate) fn encode(&self, piece: u32, page_bytes: u32) -> Vec<u8> {
        let begin = (piece * self.piece_entries) as usize;
        let end = (begin + self.piece_entries as usize).min(self.entries.len());
        let mut bytes: Vec<u8> = self.entries[begin..end]
            .iter()
            .flat_map(|entry| entry.to_be_bytes())
            .collect();
        bytes.resize(page_bytes as usize, 0xFF);
        bytes
    }

    /// Adds a piece that was read from flash, without counting it as changed. `false` if it names a
    /// page that does not exist.
    pub(crate) fn decode(&mut self, piece: u32, bytes: &[u8], pages: u32) -> bool {
        let begin = (piece * self.piece_entries) as usize;
        let words = bytes.chunks_exact(4).map(|word| be32(word, 0));
        for (entry, word) in self.entries[begin..]
            .iter_mut()
            .zip(words)
            .take(self.piece_entries as usize)
        {
            if word != NONE && word >= pages {
                return false;
            }
            *entry = word;
        }
        true
    }

    /// Every logical page that has a place.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (Lpn, Ppn)> {
        let entries = (0..)
            .zip(&self.entries)
            .filter(|(_, entry)| **entry != NONE);
        entries.map(|(lpn, entry)| (Lpn(lpn), Ppn(*entry)))
    }
}
