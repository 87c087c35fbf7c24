//! Making room: garbage collection, wear levelling, and blocks that failed.
//!
//! *Greedy* ([`super::victim`] has another choice): the closed block with the fewest valid pages is
//! emptied, until more blocks are free than the reserve. The reserve is for garbage collection itself and for bookkeeping, which never
//! wait for room. Power cuts close open blocks, and so cost blocks; the reserve holds all the same.
//! A cut halfway through a victim leaves two blocks with half of its pages each, and the next
//! victim is the emptier one. A block's pages can be halved only so many times. After that many
//! cuts the victim has one page, and a cut costs no further block.
//!
//! *Dies.* Copies go to an open block on each die in turn. For this the reserve has an additional
//! block for each die, more than this argument needs. If only as many are free as it needs, copies
//! stay in the open blocks. Then a block is opened only if none is open: a victim takes at most one
//! block, as with one die. Where copies go among the host's pages, all this holds for the host's
//! open blocks. The host uses the room that a copy leaves in them.
//!
//! *Wear levelling*: free blocks are used least worn first. A closed block may lag behind the most
//! worn free one by more than a gap, because its content never changes. Then that content moves to
//! the worn block.
//!
//! *The moved pages*: every valid page, and nothing else decides which are valid. Pages of active
//! transactions are kept because they are marked valid when written. The pages that undoing them
//! needs are kept because the map still points there. A committed page is copied as plain data,
//! under a higher sequence number: from then on recovery finds it without the X-L2P table.

use super::blocks::State;
use super::checkpoint::TablePages;
use super::flaw::Flaw;
use super::lost::Moving;
use super::oob::Content;
use super::streams::Stream;
use super::victim::CollectsBy;
use super::{Ftl, FtlError};
use crate::nand::{BlockNo, Ppn};

/// Blocks opened between two looks at wear.
const LEVELLING_EVERY: u32 = 16;

impl Ftl {
    /// Ensures that more blocks are free than the reserve.
    pub(super) fn make_room(&mut self) -> Result<(), FtlError> {
        while self.blocks.failing_count() > 0 && self.blocks.free() > 0 {
            let Some(block) = self.blocks.failing() else {
                break;
            };
            let copies = self.empty(block, Stream::Copies)?;
            self.statistics.failed_copies += copies;
            self.give_up(block)?;
        }
        if self.blocks.free() <= self.limits.reserve && !self.trims.is_empty() {
            self.persist_trims()?;
        }
        while self.blocks.free() <= self.limits.reserve {
            self.collect()?;
        }
        match self.since_levelling >= LEVELLING_EVERY {
            true => self.level_wear(),
            false => Ok(()),
        }
    }

    /// Empties a block.
    fn collect(&mut self) -> Result<(), FtlError> {
        let full = self.nand.geometry().pages_per_block;
        let collects = match self.blocks.free() > self.limits.room {
            true => self.config.collects,
            false => CollectsBy::Greedy,
        };
        let victim = collects.victim(&self.blocks, None);
        let victim = victim.filter(|victim| self.blocks.valid_count(*victim) < full);
        let victim = victim.ok_or(FtlError::WornOut {
            bad_blocks: self.blocks.bad(),
        })?;
        self.statistics.gc_blocks += u64::from(!self.ahead.forget(victim));
        self.statistics.gc_copies += self.empty(victim, Stream::Copies)?;
        Ok(())
    }

    fn level_wear(&mut self) -> Result<(), FtlError> {
        self.since_levelling = 0;
        match self.blocks.coldest() {
            Some((cold, gap)) if gap > self.config.wear_gap => {
                self.statistics.wear_blocks += 1;
                self.statistics.wear_copies += self.empty(cold, Stream::Cold)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Moves everything valid out of a block. A closed block is then free. Returns the number of
    /// copies: bookkeeping is written again, and counts as such.
    pub(super) fn empty(&mut self, block: BlockNo, stream: Stream) -> Result<u64, FtlError> {
        let (mut pieces, mut has_meta, mut has_table) = (Vec::new(), false, false);
        let mut copies = 0;
        let die = self.nand.geometry().die_of(block);
        let pages = self.blocks.valid_pages(block);
        for (at, ppn) in (1..).zip(pages.iter().copied()) {
            let Moving {
                content,
                kept,
                data,
            } = self.read_to_move(ppn)?;
            // While this one goes to another die.
            if let Some(next) = pages.get(at) {
                self.nand.load(*next);
            }
            match content {
                // An older version of it may be here, too.
                Content::Map(piece) if pieces.contains(&piece) => {}
                Content::Map(piece) => pieces.push(piece),
                Content::Table(_) => has_table = true,
                Content::Root | Content::Padding => {}
                Content::Data(lpn) | Content::Transaction(_, lpn) => {
                    let owner = self.owner(lpn, ppn)?;
                    if self.drops(owner, lpn) {
                        continue;
                    }
                    self.streams.seek(stream, |to, _| to != die);
                    let (copy, _) = self.append_kept(stream, owner.content(lpn), kept, data)?;
                    self.blocks.mark_valid(copy);
                    self.moved(owner, lpn, ppn, copy);
                    copies += 1;
                }
            }
            has_meta |= content.is_meta();
        }
        if has_meta {
            // Bookkeeping is not copied, but written again from memory.
            let written = self.write_pieces(&pieces)?;
            let pages = match has_table {
                true => TablePages::Move,
                false => TablePages::Stay,
            };
            let table = self.place_table(&pieces, &[], pages)?;
            self.switch(written, table)?;
        }
        if self.blocks.state(block) == State::Closed && self.blocks.valid_count(block) == 0 {
            self.blocks.set_state(block, State::Free);
        }
        Ok(copies)
    }

    /// Never, unless a test leaves a rule out: whether the page was dropped instead of moved.
    fn drops(&mut self, owner: Owner, lpn: super::Lpn) -> bool {
        match owner {
            Owner::Transaction(tid) if self.leaves_out(Flaw::ActiveNotKept) => {
                let page = self.table.set_active(tid, lpn, None);
                page.into_iter()
                    .for_each(|page| self.blocks.mark_invalid(page));
                true
            }
            Owner::Map
                if self.leaves_out(Flaw::UndoNotKept) && self.table.holder(lpn).is_some() =>
            {
                self.remap(lpn, None);
                true
            }
            _ => false,
        }
    }

    /// The owner of a valid page of data.
    pub(super) fn owner(&self, lpn: super::Lpn, ppn: Ppn) -> Result<Owner, FtlError> {
        if self.map.get(lpn) == Some(ppn) {
            return Ok(Owner::Map);
        }
        if self.trims.get(&lpn) == Some(&ppn) {
            return Ok(Owner::Trim);
        }
        match self.table.holder(lpn) {
            Some((tid, Some(page))) if page == ppn => Ok(Owner::Transaction(tid)),
            _ => Err(FtlError::Corrupt {
                page: ppn,
                expected: format!("logical page {} that anybody needs", lpn.0),
            }),
        }
    }

    pub(super) fn moved(&mut self, owner: Owner, lpn: super::Lpn, from: Ppn, to: Ppn) {
        match owner {
            Owner::Map => {
                self.map.set(lpn, Some(to));
            }
            Owner::Trim => {
                self.trims.insert(lpn, to);
            }
            Owner::Transaction(_) => self.table.move_active(lpn, to),
        }
        self.blocks.mark_invalid(from);
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    Map,
    Trim,
    Transaction(super::Tid),
}

impl Owner {
    pub(super) fn content(self, lpn: super::Lpn) -> Content {
        match self {
            Self::Map | Self::Trim => Content::Data(lpn),
            Self::Transaction(tid) => Content::Transaction(tid, lpn),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ftl::{Config, CopiesGo, FlushWrites, Ftl, Lpn, MapGoes};
    use crate::nand::timing::Timing;
    use crate::nand::{Geometry, Nand};
    use crate::random::Random;

    /// Programs, those that the statistics explain, and failures of programs and erases, after
    /// random writes with flushes.
    fn work(like: Config, fail_one_in: u64) -> (u64, u64, u64) {
        let geometry = Geometry {
            page_bytes: 512,
            pages_per_block: 16,
            ..Geometry::openssd(128)
        };
        let geometry = geometry.with_channels(2, 1);
        let config = Config::with_spare(&geometry, 20, like).unwrap();
        let timing = Timing::built_in("openssd").unwrap();
        let (mut ftl, _) = Ftl::open(Nand::new(geometry, timing).unwrap(), config).unwrap();
        ftl.nand_mut().faults.fail_one_in = fail_one_in;
        let mut random = Random::new(3);
        let pages = ftl.pages() as usize;
        for n in 0..20_000 {
            // Most of the device changes rarely.
            let within = if random.percent(90) { pages / 4 } else { pages };
            let lpn = Lpn(random.below(within) as u32);
            match random.percent(2) {
                true => ftl.trim(lpn).unwrap(),
                false => ftl.write(lpn, &[n as u8; 512]).unwrap(),
            }
            if n % 10 == 0 {
                ftl.flush().unwrap();
            }
        }
        let s = ftl.statistics();
        assert!(s.gc_copies > 0 && s.wear_copies > 0, "{s:?}");
        assert_eq!(s.failed_copies > 0, fail_one_in > 0, "{s:?}");
        let operations = ftl.nand().operations();
        (operations.programs, s.programs(), operations.failures)
    }

    #[test]
    fn every_program_is_of_the_host_of_the_map_or_a_copy() {
        for flush in [
            FlushWrites::Nothing,
            FlushWrites::Map,
            FlushWrites::WholeMap,
            FlushWrites::Journal,
        ] {
            for (copies, map) in [
                (CopiesGo::Apart, MapGoes::OneDie),
                (CopiesGo::AmongHost, MapGoes::OneDie),
                (CopiesGo::AmongHost, MapGoes::Striped),
            ] {
                let like = Config {
                    table_capacity: 40,
                    wear_gap: 4,
                    flush,
                    copies,
                    map,
                    ..Config::new(0)
                };
                let (programs, explained, failures) = work(like, 0);
                assert_eq!((programs, failures), (explained, 0), "{like:?}");
                // A failed program is of nobody; failures count erases as well.
                let (programs, explained, failures) = work(like, 2000);
                let of_nobody = programs.checked_sub(explained);
                assert!(of_nobody.is_some_and(|failed| failed <= failures));
            }
        }
    }
}
