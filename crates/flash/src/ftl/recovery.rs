//! Recovery of everything from flash, after a power cut or an orderly end: there is no difference.
//!
//! 1. The first page of each block shows whether it holds bookkeeping. Those blocks are scanned,
//!    the newest first, for the newest root.
//! 2. The pieces of the map and of the X-L2P table that the root names are read.
//! 3. Every block that was written to since the root's sequence number is scanned. For a logical
//!    page, the page of data with the highest sequence number counts, if that is higher than its
//!    piece's. Pages of transactions never count here: an active transaction is gone.
//! 4. Committed entries of the table count in the same way, with the sequence number of the commit.
//! 5. Mapped pages are valid. Blocks without a valid page are free, all others closed.
//!
//! Nothing is written.

use std::collections::BTreeMap;

use super::ahead::Ahead;
use super::blocks::{Blocks, State};
use super::checkpoint::Root;
use super::config::{Config, FlushWrites, Limits, MapGoes};
use super::demand::Cached;
use super::flaw::Flaw;
use super::map::Map;
use super::oob::{Content, Oob};
use super::scrub::Disturbed;
use super::streams::Streams;
use super::{Ftl, FtlError, Lpn, Statistics};
use crate::nand::{BlockNo, Nand, NandError, Ppn};
use crate::xftl::table::{Committed, Table, decode};

/// The cost of opening a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Recovery {
    /// Pages read.
    pub reads: u64,
    /// Blocks scanned.
    pub blocks_scanned: u32,
    /// Pages of data found that the map on flash did not have.
    pub pages_found: u32,
    /// Pages of committed transactions, and of a journal of the map, that the map's pieces did not
    /// have.
    pub committed_pages: u32,
    /// Pages in scanned blocks that transactions wrote.
    pub transaction_pages: u32,
    /// Total virtual time.
    pub nanoseconds: u64,
    /// Virtual time for the X-L2P table, which an FTL without transactions would not need.
    pub table_nanoseconds: u64,
}

/// A page that recovery has looked at.
#[derive(Clone, Copy, Debug)]
enum Seen {
    Page(Oob),
    /// It cannot be read, and others may follow it in its block.
    Unreadable,
    /// Nothing, and nothing follows it in its block.
    End,
}

impl Seen {
    fn page(self) -> Option<Oob> {
        match self {
            Self::Page(oob) => Some(oob),
            Self::Unreadable | Self::End => None,
        }
    }
}

/// The current candidate for a logical page.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    ppn: Option<Ppn>,
    sequence: u64,
}

impl Ftl {
    /// Opens a device: a new one, or the one on the NAND.
    ///
    /// # Errors
    /// If such a device is not possible, the NAND holds one of another size or of a newer version,
    /// or the power goes.
    pub fn open(nand: Nand, config: Config) -> Result<(Self, Recovery), FtlError> {
        Self::open_as(nand, config, None)
    }

    /// The same, with a rule left out.
    pub(crate) fn open_as(
        nand: Nand,
        config: Config,
        _flaw: Option<Flaw>,
    ) -> Result<(Self, Recovery), FtlError> {
        let geometry = *nand.geometry();
        let limits = Limits::check(&geometry, &config)?;
        if config.pairs != nand.has_pairs() {
            let message = "its configuration and its NAND differ in pairs";
            return Err(FtlError::Config(message.to_owned()));
        }
        let mut ftl = Self {
            config,
            limits,
            map: Map::new(
                config.logical_pages,
                limits.piece_entries,
                config.flush == FlushWrites::Journal,
            ),
            blocks: Blocks::new(geometry).with_padding(config.padding()),
            streams: Streams::new(&geometry, &config),
            sequence: 1,
            logged: 0,
            root: None,
            trims: BTreeMap::new(),
            table: Table::default(),
            since_checkpoint: 0,
            since_levelling: 0,
            ahead: Ahead::new(geometry.dies()),
            copying: vec![false; geometry.dies() as usize],
            disturbed: Disturbed::new(geometry.blocks()),
            #[cfg(test)]
            lost: Vec::new(),
            statistics: Statistics::default(),
            programs_before: nand.operations().programs,
            nand,
            #[cfg(test)]
            flaw: _flaw,
        };
        ftl.map.cached = (config.cached_entries > 0).then(|| Cached::new(config.cached_entries));
        let recovery = ftl.recover()?;
        Ok((ftl, recovery))
    }

    fn recover(&mut self) -> Result<Recovery, FtlError> {
        let mut recovery = Recovery::default();
        let (begin, reads) = (self.nand.now().0, self.nand.operations().reads);
        let firsts = self.first_pages()?;
        let covered = match self.newest_root(&firsts)? {
            Some((ppn, root)) => {
                self.root = Some(ppn);
                self.read_pieces(&root)?;
                let before_table = self.nand.now().0;
                self.read_table(&root)?;
                self.take_entries(ppn, Some(root.entries))?;
                recovery.table_nanoseconds = self.nand.now().0 - before_table;
                root.covered
            }
            None => 0,
        };
        let mut candidates = BTreeMap::new();
        for blocks in self.newer(&firsts, covered)? {
            recovery.blocks_scanned += blocks.len() as u32;
            self.look_through(&blocks, &mut candidates, &mut recovery)?;
        }
        self.apply(candidates, &mut recovery);
        self.classify()?;
        recovery.reads = self.nand.operations().reads - reads;
        recovery.nanoseconds = self.nand.now().0 - begin;
        Ok(recovery)
    }

    /// The out-of-band area of a page. Without bit errors only a power cut makes a page unreadable,
    /// and then it is the last one of its block.
    fn look(&mut self, ppn: Ppn) -> Result<Seen, FtlError> {
        let expects_errors = self.nand.has_bit_errors();
        let seen = match self.nand.read_oob(ppn) {
            Ok(bytes) => {
                let oob = bytes.and_then(|bytes| Oob::decode(&bytes));
                oob.map_or(Seen::End, Seen::Page)
            }
            Err(NandError::Uncorrectable(_))
                if expects_errors && !self.leaves_out(Flaw::ErrorEndsBlock) =>
            {
                Seen::Unreadable
            }
            Err(NandError::Uncorrectable(_)) => Seen::End,
            Err(error) => return Err(error.into()),
        };
        self.was_read(ppn);
        if let Seen::Page(oob) = seen {
            self.sequence = self.sequence.max(oob.sequence + 1);
        }
        Ok(seen)
    }

    /// The first page of a block that can be read.
    fn first_of(&mut self, block: BlockNo) -> Result<Option<Oob>, FtlError> {
        let geometry = *self.nand.geometry();
        for page in 0..geometry.pages_per_block {
            match self.look(geometry.ppn(block, page))? {
                Seen::Page(oob) => return Ok(Some(oob)),
                Seen::Unreadable => {}
                Seen::End => break,
            }
        }
        Ok(None)
    }

    /// The first page of every block that has one. Also finds wear and bad blocks.
    fn first_pages(&mut self) -> Result<Vec<(BlockNo, Oob)>, FtlError> {
        let mut firsts = Vec::new();
        let mut unknown = Vec::new();
        let geometry = *self.nand.geometry();
        for block in self.blocks.all() {
            let soon = block.0..geometry.blocks().min(block.0 + geometry.dies());
            soon.for_each(|soon| self.nand.load(geometry.ppn(BlockNo(soon), 0)));
            if self.nand.is_bad(block) {
                self.blocks.set_state(block, State::Bad);
                continue;
            }
            match self.first_of(block)? {
                Some(oob) => {
                    self.blocks.set_erases(block, oob.erases);
                    self.blocks.changed_at(block, oob.sequence);
                    firsts.push((block, oob));
                }
                None => unknown.push(block),
            }
        }
        // The number of an erased block's erases is unknown; it gets the average of the others.
        let known: u64 = firsts.iter().map(|(_, oob)| u64::from(oob.erases)).sum();
        let mean = known.checked_div(firsts.len() as u64).unwrap_or(0);
        for block in unknown {
            self.blocks.set_erases(block, mean as u32);
        }
        Ok(firsts)
    }

    fn newest_root(&mut self, firsts: &[(BlockNo, Oob)]) -> Result<Option<(Ppn, Root)>, FtlError> {
        // If the map is striped, its blocks hold nothing else.
        let is_map = |content| matches!(content, Content::Map(_));
        let has_map = self.config.map == MapGoes::OneDie;
        let mut blocks: Vec<_> = firsts
            .iter()
            .filter(|(_, oob)| oob.content.is_meta() && (has_map || !is_map(oob.content)))
            .collect();
        blocks.sort_by_key(|(_, oob)| std::cmp::Reverse(oob.sequence));
        for (block, _) in blocks {
            if let Some(ppn) = self.last_root(*block)? {
                let read = self.read_page(ppn);
                let (_, data) = self.needed(read, ppn, Content::Root)?;
                let root = Root::decode(&data).filter(|root| self.fits(root));
                let root = root.ok_or_else(|| FtlError::Corrupt {
                    page: ppn,
                    expected: format!(
                        "the root of a device of {} pages",
                        self.config.logical_pages
                    ),
                })?;
                return Ok(Some((ppn, root)));
            }
        }
        Ok(None)
    }

    /// The last root in a block whose first page can be read. No valid page follows an erased or
    /// torn one.
    fn last_root(&mut self, block: BlockNo) -> Result<Option<Ppn>, FtlError> {
        let geometry = *self.nand.geometry();
        let (mut programmed, mut end) = (1, geometry.pages_per_block);
        while programmed < end {
            let page = programmed.midpoint(end);
            match self.look(geometry.ppn(block, page))? {
                Seen::Page(_) | Seen::Unreadable => programmed = page + 1,
                Seen::End => end = page,
            }
        }
        for page in (0..programmed).rev() {
            let ppn = geometry.ppn(block, page);
            if (self.look(ppn)?.page()).is_some_and(|oob| oob.content == Content::Root) {
                return Ok(Some(ppn));
            }
        }
        Ok(None)
    }

    /// Whether a root belongs to a device such as this.
    fn fits(&self, root: &Root) -> bool {
        let named = root
            .pieces
            .iter()
            .filter_map(|piece| piece.ppn)
            .chain(root.table.iter().copied());
        root.logical_pages == self.config.logical_pages
            && root.pieces.len() == self.limits.pieces as usize
            && named
                .into_iter()
                .all(|ppn| ppn.0 < self.nand.geometry().pages())
    }

    fn read_pieces(&mut self, root: &Root) -> Result<(), FtlError> {
        let pages = self.nand.geometry().pages();
        for (number, piece) in (0..).zip(&root.pieces) {
            let Some(ppn) = piece.ppn else { continue };
            let content = Content::Map(number);
            let read = self.read_meta(ppn, content);
            let data = self.needed(read, ppn, content)?;
            if !self.map.decode(number, &data, pages) {
                return Err(FtlError::Corrupt {
                    page: ppn,
                    expected: "physical pages that exist".to_owned(),
                });
            }
        }
        self.map.pieces.clone_from(&root.pieces);
        Ok(())
    }

    fn read_table(&mut self, root: &Root) -> Result<(), FtlError> {
        for (number, ppn) in (0..).zip(&root.table) {
            let content = Content::Table(number);
            let read = self.read_meta(*ppn, content);
            let data = self.needed(read, *ppn, content)?;
            self.take_entries(*ppn, decode(&data))?;
        }
        self.table.pages.clone_from(&root.table);
        Ok(())
    }

    /// Adds entries of the X-L2P table that were found on a page.
    fn take_entries(
        &mut self,
        page: Ppn,
        entries: Option<Vec<(Lpn, Committed)>>,
    ) -> Result<(), FtlError> {
        let entries = entries.filter(|entries| entries.iter().all(|entry| self.can_be(entry)));
        let entries = entries.ok_or_else(|| FtlError::Corrupt {
            page,
            expected: "entries of the X-L2P table".to_owned(),
        })?;
        for (lpn, entry) in entries {
            let piece = self.map.pieces[self.map.piece_of(lpn) as usize];
            if entry.sequence > piece.sequence {
                self.table.set_committed(lpn, entry);
            }
            self.sequence = self.sequence.max(entry.sequence + 1);
        }
        Ok(())
    }

    fn can_be(&self, (lpn, entry): &(Lpn, Committed)) -> bool {
        let exists = |ppn: Ppn| ppn.0 < self.nand.geometry().pages();
        lpn.0 < self.config.logical_pages && entry.ppn.is_none_or(exists)
    }

    pub(super) fn read_meta(
        &mut self,
        ppn: Ppn,
        content: Content,
    ) -> Result<std::sync::Arc<[u8]>, FtlError> {
        match self.read_page(ppn)? {
            (oob, data) if oob.content == content => Ok(data),
            _ => Err(FtlError::Corrupt {
                page: ppn,
                expected: format!("{content:?}"),
            }),
        }
    }

    /// Blocks of data, except those whose last page shows that all of their pages are in the map.
    /// The blocks of a group are on different dies, so that they can be read at the same time.
    fn newer(
        &mut self,
        firsts: &[(BlockNo, Oob)],
        covered: u64,
    ) -> Result<Vec<Vec<BlockNo>>, FtlError> {
        let geometry = *self.nand.geometry();
        let data = firsts.iter().filter(|(_, first)| !first.content.is_meta());
        let lasts: Vec<Ppn> = data
            .map(|(block, _)| geometry.ppn(*block, geometry.pages_per_block - 1))
            .collect();
        let mut of_dies = vec![0; geometry.dies() as usize];
        let mut groups: Vec<Vec<BlockNo>> = Vec::new();
        for (at, last) in lasts.iter().enumerate() {
            let soon = lasts[at..].iter().take(of_dies.len());
            soon.for_each(|soon| self.nand.load(*soon));
            if self
                .look(*last)?
                .page()
                .is_some_and(|last| last.sequence < covered)
            {
                continue;
            }
            let block = geometry.block_of(*last);
            let group = &mut of_dies[geometry.die_of(block) as usize];
            if *group == groups.len() {
                groups.push(Vec::new());
            }
            groups[*group].push(block);
            *group += 1;
        }
        Ok(groups)
    }

    /// Scans blocks for pages of data.
    fn look_through(
        &mut self,
        blocks: &[BlockNo],
        candidates: &mut BTreeMap<Lpn, Candidate>,
        recovery: &mut Recovery,
    ) -> Result<(), FtlError> {
        let geometry = *self.nand.geometry();
        let mut blocks = blocks.to_vec();
        for page in 0..geometry.pages_per_block {
            let pages = blocks.iter().map(|block| geometry.ppn(*block, page));
            pages.for_each(|ppn| self.nand.load(ppn));
            let mut ended = Vec::new();
            for block in &blocks {
                let ppn = geometry.ppn(*block, page);
                match self.look(ppn)? {
                    Seen::Page(oob) => self.found(ppn, oob, candidates, recovery),
                    Seen::Unreadable => {}
                    Seen::End => ended.push(*block),
                }
            }
            blocks.retain(|block| !ended.contains(block));
        }
        Ok(())
    }

    /// A page was found that may be missing in the map.
    fn found(
        &self,
        ppn: Ppn,
        oob: Oob,
        candidates: &mut BTreeMap<Lpn, Candidate>,
        recovery: &mut Recovery,
    ) {
        let lpn = match oob.content {
            Content::Data(lpn) => lpn,
            Content::Transaction(_, lpn) => {
                recovery.transaction_pages += 1;
                if !self.leaves_out(Flaw::ActiveRecovered) {
                    return;
                }
                lpn
            }
            _ => return,
        };
        if lpn.0 < self.config.logical_pages {
            self.consider(candidates, lpn, Some(ppn), oob.sequence);
        }
    }

    fn consider(
        &self,
        candidates: &mut BTreeMap<Lpn, Candidate>,
        lpn: Lpn,
        ppn: Option<Ppn>,
        sequence: u64,
    ) {
        let known = candidates.get(&lpn).map(|candidate| candidate.sequence);
        let piece = self.map.pieces[self.map.piece_of(lpn) as usize].sequence;
        let is_newer = known.unwrap_or(piece) < sequence;
        if is_newer || self.leaves_out(Flaw::SequenceIgnored) {
            candidates.insert(lpn, Candidate { ppn, sequence });
        }
    }

    /// Maps the pages that are newer than the pieces, including pages of committed transactions.
    fn apply(&mut self, mut candidates: BTreeMap<Lpn, Candidate>, recovery: &mut Recovery) {
        let found = candidates.len();
        if !self.leaves_out(Flaw::CommittedNotRecovered) {
            for (lpn, entry) in self.table.entries(|_| true, &[]) {
                self.consider(&mut candidates, lpn, entry.ppn, entry.sequence);
            }
        }
        for (lpn, candidate) in candidates {
            self.map.set(lpn, candidate.ppn);
            let entry = self.table.committed_at(lpn);
            let is_committed = entry.is_some_and(|entry| entry.sequence == candidate.sequence);
            recovery.committed_pages += u32::from(is_committed);
        }
        recovery.pages_found = found as u32;
    }

    /// Determines valid pages, and the use of each block.
    fn classify(&mut self) -> Result<(), FtlError> {
        let pieces = self.map.pieces.iter().filter_map(|piece| piece.ppn);
        let meta = pieces
            .chain(self.table.pages.iter().copied())
            .chain(self.root);
        let valid: Vec<Ppn> = meta.chain(self.map.mapped().map(|(_, ppn)| ppn)).collect();
        for ppn in valid {
            if self.blocks.is_valid(ppn) {
                let expected = "one logical page, but two".to_owned();
                return Err(FtlError::Corrupt {
                    page: ppn,
                    expected,
                });
            }
            self.blocks.mark_valid(ppn);
        }
        for block in self.blocks.all() {
            if self.blocks.valid_count(block) > 0 && self.blocks.state(block) == State::Free {
                self.blocks.set_state(block, State::Closed);
            }
        }
        Ok(())
    }
}
