//! Garbage collection ahead of need, while dies are idle.
//!
//! A commit waits twice, for its pages and then for its root. So does a flush that writes the map.
//! Meanwhile most dies are idle: one reads pages of the next victim, others program them. Nobody
//! waits for such a copy. The original stays readable until its block is erased, and the device
//! waits for everything before that.
//!
//! *While a root is being programmed* a copy has a higher sequence number than the state that the
//! root commits. So a transaction's pages are left alone, and so are the pages that undoing it
//! needs. Recovery would find a copy of the new page without the root, and a copy of the old page
//! in place of the new one. The root changes nothing else.
//!
//! It ends at [`Config::gc_ahead`](super::Config::gc_ahead) free blocks beyond the reserve, for each
//! plane of a die: a stream opens blocks on all planes of a die at a time.
//!
//! No block is opened for it, unless a program fails: that needs an erase, which waits for
//! everything.

use super::blocks::State;
use super::flaw::Flaw;
use super::gc::Owner;
use super::oob::Content;
use super::streams::Stream;
use super::victim::CollectsBy;
use super::{Ftl, FtlError, Lpn};
use crate::nand::{BlockNo, Ppn};

/// A block that is being collected.
#[derive(Clone, Copy, Debug)]
struct Begun {
    block: BlockNo,
    /// Whether it holds a page that must wait until room is needed.
    is_stuck: bool,
}

/// The blocks being collected, by die.
#[derive(Clone, Debug)]
pub(super) struct Ahead {
    begun: Vec<Option<Begun>>,
}

impl Ahead {
    pub(super) fn new(dies: u32) -> Self {
        Self {
            begun: vec![None; dies as usize],
        }
    }

    /// A block was collected whole, or reused. Returns whether its collection had begun.
    pub(super) fn forget(&mut self, block: BlockNo) -> bool {
        let begun = |begun: &Begun| begun.block == block;
        let mut dies = self.begun.iter_mut();
        let found = dies.find(|of_die| of_die.as_ref().is_some_and(begun));
        found.is_some_and(|of_die| of_die.take().is_some())
    }
}

impl Ftl {
    /// Copies pages while a die works on an operation that will be waited for, and reading takes no
    /// longer.
    pub(crate) fn collect_ahead(&mut self) -> Result<(), FtlError> {
        let planes = self.nand.geometry().planes_per_die;
        let beyond = self.config.gc_ahead.saturating_mul(planes);
        let enough = self.limits.reserve.saturating_add(beyond);
        while beyond > 0
            && self.blocks.free() <= enough
            && self.has_to_wait()
            && self.copy_ahead()?
        {}
        Ok(())
    }

    fn has_to_wait(&self) -> bool {
        let reading = self.nand.read_nanoseconds();
        let mut dies = (0..).zip(&self.copying);
        dies.any(|(die, is_copy)| !is_copy && self.nand.busy_nanoseconds(die) >= reading)
    }

    /// Copies a page, if that is possible at once.
    fn copy_ahead(&mut self) -> Result<bool, FtlError> {
        let Some((from, page)) = self.page_ahead() else {
            return Ok(false);
        };
        let nand = &self.nand;
        let is_idle = |to: u32, is_open: bool| is_open && to != from && !nand.is_busy(to);
        if !self.streams.seek(Stream::Copies, is_idle) {
            return Ok(false);
        }
        // Emptying the block replaces a lost page.
        let read = self.read_if_kept(page)?;
        let owner = match read.as_ref().map(|(oob, _)| oob.content) {
            Some(Content::Data(lpn) | Content::Transaction(_, lpn)) => {
                Some((lpn, self.owner(lpn, page)?))
            }
            _ => None,
        };
        let owner = owner.filter(|(lpn, owner)| self.may_be_copied(*owner, *lpn));
        let (Some((lpn, owner)), Some((oob, data))) = (owner, read) else {
            let begun = self.ahead.begun[from as usize].as_mut();
            begun.into_iter().for_each(|begun| begun.is_stuck = true);
            return Ok(true);
        };
        let content = owner.content(lpn);
        let (copy, _) = self.append_kept(Stream::Copies, content, oob.kept, data)?;
        self.blocks.mark_valid(copy);
        self.moved(owner, lpn, page, copy);
        self.statistics.gc_copies += 1;
        self.statistics.gc_ahead += 1;
        Ok(true)
    }

    fn may_be_copied(&self, owner: Owner, lpn: Lpn) -> bool {
        match owner {
            _ if self.leaves_out(Flaw::CopiedDuringCommit) => true,
            Owner::Map => self.table.holder(lpn).is_none(),
            Owner::Trim | Owner::Transaction(_) => false,
        }
    }

    /// The next page to copy, and its die, which is idle. A begun block on it is emptied before
    /// another is begun there.
    fn page_ahead(&mut self) -> Option<(u32, Ppn)> {
        let collects = self.config.collects;
        // Its die may be busy.
        let best = collects.victim(&self.blocks, None)?;
        let idle = (0..self.nand.geometry().dies()).filter(|die| !self.nand.is_busy(*die));
        let blocks = idle.filter_map(|die| Some((die, self.block_ahead(die)?)));
        let (die, block) = blocks
            .filter(|(_, block)| collects.is_nearly(&self.blocks, *block, best))
            .min_by_key(|(_, block)| self.ahead_cost(*block))?;
        let begun = &mut self.ahead.begun[die as usize];
        if begun.is_none_or(|begun| begun.block != block) {
            self.statistics.gc_blocks += 1;
            *begun = Some(Begun {
                block,
                is_stuck: false,
            });
        }
        Some((die, self.blocks.first_valid(block)?))
    }

    /// By greedy, of blocks with as few valid pages the one on the first die.
    fn ahead_cost(&self, block: BlockNo) -> u128 {
        match self.config.collects {
            CollectsBy::Greedy => u128::from(self.blocks.valid_count(block)),
            by_benefit => by_benefit.cost(&self.blocks, block),
        }
    }

    /// The block to collect on a die.
    fn block_ahead(&self, die: u32) -> Option<BlockNo> {
        let begun = self.ahead.begun[die as usize];
        match begun.filter(|begun| self.blocks.state(begun.block) == State::Closed) {
            Some(begun) => (!begun.is_stuck).then_some(begun.block),
            None => self.config.collects.victim(&self.blocks, Some(die)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ftl::{Config, CopiesGo, FlushWrites, Ftl, Lpn, MapGoes, Tid};
    use crate::nand::timing::Timing;
    use crate::nand::{Geometry, Nand};
    use crate::random::Random;

    #[test]
    fn room_ahead_is_a_choice_and_none_is_made_with_0() {
        let work = |gc_ahead: u32| {
            let geometry = Geometry {
                page_bytes: 512,
                pages_per_block: 8,
                ..Geometry::openssd(160)
            };
            let timing = Timing::built_in("openssd").unwrap();
            let nand = Nand::new(geometry.with_channels(4, 1), timing).unwrap();
            let config = Config {
                table_capacity: 20,
                gc_ahead,
                ..Config::new(600)
            };
            let mut device = Ftl::open(nand, config).unwrap().0;
            let mut random = Random::new(1);
            for n in 0..2_000 {
                let lpn = Lpn(random.below(600) as u32);
                device.write_in(Tid(1), lpn, &[n as u8; 512]).unwrap();
                device.commit(Tid(1)).unwrap();
            }
            let s = device.statistics();
            assert_eq!(s.programs(), device.nand().operations().programs);
            // How many blocks are free beyond the reserve now.
            let beyond = i64::from(device.blocks.free()) - i64::from(device.limits.reserve);
            (s, beyond)
        };
        let [(none, at_need), (four, _), (usual, _), (sixteen, beyond)] =
            [0, 4, Config::GC_AHEAD, 16].map(work);
        assert!(none.gc_ahead == 0 && none.gc_copies > 0, "{none:?}");
        assert_eq!(four, usual);
        assert!(four.gc_ahead > 0, "{four:?}");
        assert!(sixteen.gc_ahead > four.gc_ahead, "{sixteen:?}");
        assert!(at_need <= 1 && beyond > 4, "{at_need} {beyond}");
        // The largest number that a file can hold is no overflow.
        work(u32::MAX);
    }

    /// Blocks are opened in pairs there, so the room that is made ahead must be larger. With that of one
    /// plane, 11,482 of 17,202 copies were made ahead.
    #[test]
    fn two_planes_do_not_wait_for_garbage_collection_more_often() {
        let timing = Timing::built_in("openssd").unwrap();
        let like = Config {
            copies: CopiesGo::AmongHost,
            map: MapGoes::Striped,
            flush: FlushWrites::WholeMap,
            ..Config::new(16_384)
        };
        let board = |blocks| Geometry::openssd(blocks).with_channels(2, 4).with_planes(2);
        let geometry = like.fitting(30, board).unwrap();
        let mut device = Ftl::open(Nand::new(geometry, timing).unwrap(), like)
            .unwrap()
            .0;
        let (data, pages) = (vec![1; 8192], device.pages());
        (0..pages).for_each(|lpn| device.write(Lpn(lpn), &data).unwrap());
        let mut random = Random::new(3);
        let mut commits = |count: u32, device: &mut Ftl| {
            for _ in 0..count {
                for _ in 0..5 {
                    let lpn = Lpn(random.below(pages as usize) as u32);
                    device.write_in(Tid(1), lpn, &data).unwrap();
                }
                device.commit(Tid(1)).unwrap();
            }
        };
        commits(8_000, &mut device);
        let before = device.statistics();
        commits(4_000, &mut device);
        let s = device.statistics().since(&before);
        assert!(s.gc_ahead * 5 > s.gc_copies * 4, "{s:?}");
    }
}
