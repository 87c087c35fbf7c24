//! The page map and the root on flash.
//!
//! Pieces of the page map and of the X-L2P table are written to new places. When everything is on
//! the medium, the root is written, which has their places. That one page is the switch: before it
//! the old root's state holds, after it the new root's.
//!
//! The root, big-endian:
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 8 | `onewrtFT` |
//! | 8 | 4 | format version: 2 |
//! | 12 | 4 | logical pages of the device |
//! | 16 | 8 | sequence number: pages before it are not looked at in recovery, for every change is in the pieces |
//! | 24 | 4 | pieces of the page map (n) |
//! | 28 | 4 | pieces of the X-L2P table (m) |
//! | 32 | 12 n | of each piece of the map: page (4; all ones if never written), sequence number (8) |
//! | 32 + 12 n | 4 m | of each piece of the table: page |
//! | 32 + 12 n + 4 m | | the X-L2P table as a piece of it would be, if it fits here and m is 0 |
//!
//! The rest of the page is zero. So a commit of few pages flushes its table and switches to it by
//! one page. A piece of the page map has four bytes for each logical page: the physical page, or
//! all ones. [`crate::xftl::table`] describes the table.

use super::flaw::Flaw;
use super::map::{NONE, Piece};
use super::oob::{Content, be32, be64};
use super::streams::Stream;
use super::{Ftl, FtlError, Lpn, Tid};
use crate::nand::Ppn;
use crate::xftl::table::{Committed, TABLE_HEADER_BYTES};

/// Bytes before the pieces.
pub(crate) const ROOT_HEADER_BYTES: u32 = 32;
/// Bytes of a piece of the page map in the root.
pub(crate) const ROOT_PIECE_BYTES: u32 = 12;
/// Bytes of a piece of the X-L2P table in the root.
pub(crate) const ROOT_TABLE_BYTES: u32 = 4;

const MAGIC: &[u8; 8] = b"onewrtFT";
const VERSION: u32 = 2;

/// The contents of a root.
#[derive(Clone, Debug)]
pub(super) struct Root {
    pub(super) logical_pages: u32,
    pub(super) covered: u64,
    pub(super) pieces: Vec<Piece>,
    /// The pages of the X-L2P table's pieces.
    pub(super) table: Vec<Ppn>,
    /// The X-L2P table, if it is here.
    pub(super) entries: Vec<(Lpn, Committed)>,
}

impl Root {
    fn encode(&self, page_bytes: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(page_bytes as usize);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_be_bytes());
        bytes.extend(self.logical_pages.to_be_bytes());
        bytes.extend(self.covered.to_be_bytes());
        bytes.extend((self.pieces.len() as u32).to_be_bytes());
        bytes.extend((self.table.len() as u32).to_be_bytes());
        for piece in &self.pieces {
            bytes.extend(piece.ppn.map_or(NONE, |ppn| ppn.0).to_be_bytes());
            bytes.extend(piece.sequence.to_be_bytes());
        }
        for page in &self.table {
            bytes.extend(page.0.to_be_bytes());
        }
        if !self.entries.is_empty() {
            crate::xftl::table::encode_into(&mut bytes, &self.entries);
        }
        // The configuration check ensured that this fits.
        bytes.resize(page_bytes as usize, 0);
        bytes
    }

    /// `None` if it is not a root, or one of a newer version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.get(..8)? != MAGIC || be32(bytes, 8) != VERSION {
            return None;
        }
        let (pieces, table) = (be32(bytes, 24) as usize, be32(bytes, 28) as usize);
        let begin = ROOT_HEADER_BYTES as usize;
        let middle = pieces
            .checked_mul(ROOT_PIECE_BYTES as usize)?
            .checked_add(begin)?;
        let end = table
            .checked_mul(ROOT_TABLE_BYTES as usize)?
            .checked_add(middle)?;
        let pieces = bytes
            .get(begin..middle)?
            .chunks_exact(ROOT_PIECE_BYTES as usize);
        let table = bytes
            .get(middle..end)?
            .chunks_exact(ROOT_TABLE_BYTES as usize);
        let entries = match bytes.len() - end < TABLE_HEADER_BYTES as usize {
            true => Vec::new(),
            false => crate::xftl::table::decode(&bytes[end..])?,
        };
        Some(Self {
            logical_pages: be32(bytes, 12),
            covered: be64(bytes, 16),
            pieces: pieces
                .map(|piece| Piece {
                    ppn: Some(be32(piece, 0)).filter(|ppn| *ppn != NONE).map(Ppn),
                    sequence: be64(piece, 4),
                    is_changed: false,
                })
                .collect(),
            table: table.map(|page| Ppn(be32(page, 0))).collect(),
            entries,
        })
    }
}

/// A written piece of the map, which counts once a root names it.
pub(crate) type WrittenPiece = (u32, Piece);

/// The place of the X-L2P table when a root counts.
#[derive(Clone, Debug)]
pub(crate) enum TableAt {
    /// In the root.
    Root(Vec<(Lpn, Committed)>),
    /// On separate pages.
    Pages(Vec<Ppn>),
}

/// Whether the X-L2P table may stay on its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TablePages {
    /// Yes, if nothing is added.
    Stay,
    /// No.
    Move,
}

impl Ftl {
    /// Writes every changed piece of the map. Then nothing of the X-L2P table is needed any more.
    pub(crate) fn checkpoint(&mut self) -> Result<(), FtlError> {
        self.since_checkpoint = 0;
        let pieces = self.write_pieces(&self.map.changed())?;
        self.switch(pieces, TableAt::Root(Vec::new()))
    }

    /// Writes every piece of the map.
    pub(super) fn checkpoint_whole(&mut self) -> Result<(), FtlError> {
        self.since_checkpoint = 0;
        let all: Vec<u32> = (0..self.limits.pieces).collect();
        let pieces = self.write_pieces(&all)?;
        self.switch(pieces, TableAt::Root(Vec::new()))
    }

    /// Makes the map durable by a journal: the entries that have changed since they were last
    /// written go into the X-L2P table, as those of transaction 0. If they would not fit, the
    /// pieces are written instead.
    pub(super) fn log_map(&mut self) -> Result<(), FtlError> {
        let sequence = self.next_sequence();
        let entry = |lpn: &Lpn| Committed {
            tid: Tid(0),
            ppn: self.map.get(*lpn),
            sequence,
        };
        let unlogged = self.map.unlogged();
        if unlogged.is_empty() {
            return Ok(());
        }
        // The root names pieces that were written back and have their entries.
        let lacks = |lpn: &&Lpn| !self.map.is_written_back(self.map.piece_of(**lpn));
        let unlogged = unlogged.iter().filter(lacks);
        let changed: Vec<(Lpn, Committed)> = unlogged.map(|lpn| (*lpn, entry(lpn))).collect();
        let capacity = self.config.table_capacity as usize;
        if self.table.len() + changed.len() > capacity
            || self.table.committed() + changed.len() > self.limits.cheap_entries()
        {
            return self.checkpoint();
        }
        let written = match self.leaves_out(Flaw::JournalIncomplete) {
            true => changed.get(1..).unwrap_or(&[]),
            false => &changed[..],
        };
        let table = self.place_table(&[], written, TablePages::Move)?;
        // The entries name copies, too.
        self.wait()?;
        let before = std::mem::replace(&mut self.logged, sequence);
        if let Err(error) = self.switch(Vec::new(), table) {
            self.logged = before;
            return Err(error);
        }
        for (lpn, entry) in changed {
            self.table.set_committed(lpn, entry);
            self.map.is_logged(lpn);
        }
        Ok(())
    }

    /// Makes trims durable: the pieces of the map that forget the pages.
    pub(super) fn persist_trims(&mut self) -> Result<(), FtlError> {
        let pieces = self.pieces_of(self.trims.keys().copied());
        let written = self.write_pieces(&pieces)?;
        let table = self.place_table(&pieces, &[], TablePages::Stay)?;
        self.switch(written, table)
    }

    /// The pieces that logical pages are in, each once.
    pub(crate) fn pieces_of(&self, pages: impl Iterator<Item = Lpn>) -> Vec<u32> {
        let mut pieces: Vec<u32> = pages.map(|lpn| self.map.piece_of(lpn)).collect();
        pieces.sort_unstable();
        pieces.dedup();
        pieces
    }

    /// Writes pieces of the current map.
    pub(crate) fn write_pieces(&mut self, pieces: &[u32]) -> Result<Vec<WrittenPiece>, FtlError> {
        let mut written = Vec::with_capacity(pieces.len());
        for number in pieces {
            self.read_before_write(*number)?;
            let bytes = self.map.encode(*number, self.page_bytes());
            let content = Content::Map(*number);
            let (ppn, sequence) = self.append(Stream::Map, content, bytes.into())?;
            self.statistics.map_writes += 1;
            let piece = Piece {
                ppn: Some(ppn),
                sequence,
                is_changed: false,
            };
            written.push((*number, piece));
        }
        Ok(written)
    }

    /// The X-L2P table for a new root. It has the committed entries except those in `without`,
    /// pieces of the map just written, and the entries being committed. It goes into the root if it
    /// fits, else to new pages. Pages that may stay have at most extra entries, older than their
    /// pieces of the map.
    pub(crate) fn place_table(
        &mut self,
        without: &[u32],
        committing: &[(Lpn, Committed)],
        pages: TablePages,
    ) -> Result<TableAt, FtlError> {
        let is_needed = |lpn: Lpn| !without.contains(&self.map.piece_of(lpn));
        let entries = self.table.entries(is_needed, committing);
        if entries.len() <= self.limits.root_entries as usize {
            return Ok(TableAt::Root(entries));
        }
        let may_stay = pages == TablePages::Stay && committing.is_empty();
        match may_stay && !self.table.pages.is_empty() {
            true => Ok(TableAt::Pages(self.table.pages.clone())),
            false => self.write_table(&entries).map(TableAt::Pages),
        }
    }

    /// Writes the X-L2P table to new pages.
    fn write_table(&mut self, entries: &[(Lpn, Committed)]) -> Result<Vec<Ppn>, FtlError> {
        let (per_page, bytes) = (self.limits.table_entries as usize, self.page_bytes());
        let mut pages = Vec::new();
        for (piece, entries) in (0..).zip(entries.chunks(per_page)) {
            let data = crate::xftl::table::encode(entries, bytes);
            let (ppn, _) = self.append(Stream::Meta, Content::Table(piece), data.into())?;
            self.statistics.table_writes += 1;
            pages.push(ppn);
        }
        Ok(pages)
    }

    /// The switch: a root with the places of these new pieces and of all others.
    pub(crate) fn switch(
        &mut self,
        mut written: Vec<WrittenPiece>,
        table: TableAt,
    ) -> Result<(), FtlError> {
        for (number, piece) in self.current_written_back() {
            if written.iter().all(|(other, _)| *other != number) {
                written.push((number, piece));
            }
        }
        let (pages, entries) = match table {
            TableAt::Root(entries) => (Vec::new(), entries),
            TableAt::Pages(pages) => (pages, Vec::new()),
        };
        let mut pieces = self.map.pieces.clone();
        for (number, piece) in &written {
            pieces[*number as usize] = *piece;
        }
        let changed = pieces.iter().filter(|piece| piece.is_changed);
        let covered = changed.map(|piece| piece.sequence).min();
        let root = Root {
            logical_pages: self.config.logical_pages,
            covered: covered.unwrap_or(self.sequence).max(self.logged),
            pieces,
            table: pages.clone(),
            entries,
        };
        // Everything that the root and the pieces point to is on the medium first. Only pieces
        // point to copies that were not waited for.
        match written.is_empty() {
            _ if self.leaves_out(Flaw::NoWaitBeforeSwitch) => {}
            true => self.wait_but_for_copies()?,
            false if self.leaves_out(Flaw::CopiesNotWaitedFor) => self.wait_but_for_copies()?,
            false => self.wait()?,
        }
        let bytes = root.encode(self.page_bytes());
        let (ppn, _) = self.append(Stream::Meta, Content::Root, bytes.into())?;
        self.statistics.root_writes += 1;
        // This is done before the root is on the medium. Nothing is erased before that, and if the
        // power goes, this memory is gone too.
        self.adopt(written, pages, ppn);
        // A failure here, except of the power, fails again where room is made.
        let _ = self.collect_ahead();
        self.wait_but_for_copies()
    }

    /// The new root holds: pages that only the old one needed are invalid. The new pages are valid
    /// first: a block that holds some of both must not become free in between.
    fn adopt(&mut self, written: Vec<WrittenPiece>, table: Vec<Ppn>, root: Ppn) {
        let is_new_table = table != self.table.pages;
        let pieces = written.iter().filter_map(|(_, piece)| piece.ppn);
        // Pieces that were written back are valid already.
        let pieces = pieces.filter(|page| !self.blocks.is_valid(*page));
        let table_pages = table.iter().copied().filter(|_| is_new_table);
        let new: Vec<Ppn> = pieces.chain(table_pages).chain([root]).collect();
        let is_late = self.leaves_out(Flaw::InvalidFirst);
        if !is_late {
            new.iter().for_each(|page| self.blocks.mark_valid(*page));
        }
        for (number, piece) in written {
            self.named(number, &piece);
            let before = std::mem::replace(&mut self.map.pieces[number as usize], piece);
            before
                .ppn
                .into_iter()
                .for_each(|ppn| self.blocks.mark_invalid(ppn));
            self.map.piece_is_logged(number);
            let map = &self.map;
            self.table.forget(|lpn| map.piece_of(lpn) == number);
            let blocks = &mut self.blocks;
            self.trims.retain(|lpn, ppn| {
                let is_durable = map.piece_of(*lpn) == number;
                if is_durable {
                    blocks.mark_invalid(*ppn);
                }
                !is_durable
            });
        }
        if is_new_table {
            let before = std::mem::replace(&mut self.table.pages, table);
            before
                .into_iter()
                .for_each(|page| self.blocks.mark_invalid(page));
        }
        if let Some(before) = self.root.replace(root) {
            self.blocks.mark_invalid(before);
        }
        if is_late {
            new.iter().for_each(|page| self.blocks.mark_valid(*page));
        }
    }
}
