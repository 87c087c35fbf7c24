//! The block that garbage collection empties.
//!
//! *Greedy* takes the block with the fewest valid pages, and of these the least worn.
//! *Cost-benefit* also looks at the age, the pages programmed since the block was last written to
//! or one of its pages became invalid. It takes the block with the highest age * (1 - u) / 2u,
//! where u is the valid part. Young blocks are left alone, because more of their pages become
//! invalid soon.
//!
//! Cost-benefit is of Kawaguchi, Nishioka and Motoda, "A Flash-Memory Based File System", USENIX
//! 1995, after the log-structured file system (Rosenblum and Ousterhout, SOSP '91). Recovery knows
//! of each block only when its first page was programmed, and takes that for its age.
//!
//! The argument for the reserve ([`super::gc`]) needs greedy. So the blocks that it counts are only
//! filled greedily, and cost-benefit has [`OWN_RESERVE`] more in which it may choose.

use super::blocks::Blocks;
use crate::nand::BlockNo;

/// The choice of the block that garbage collection empties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectsBy {
    /// The block with the fewest valid pages.
    Greedy,
    /// The block with the highest product of age and free part by valid part.
    CostBenefit,
}

/// Free blocks in addition to the reserve, for cost-benefit.
const OWN_RESERVE: u32 = 2;
/// A block is nearly the best if its cost is higher by at most one part in this many: for greedy,
/// one page in this many of a block.
const NEARLY: u32 = 8;

impl CollectsBy {
    /// Free blocks that it needs in addition to the reserve.
    pub(super) fn reserve(self) -> u32 {
        match self {
            Self::Greedy => 0,
            Self::CostBenefit => OWN_RESERVE,
        }
    }

    /// The closed block to empty, of one die, or of all.
    pub(super) fn victim(self, blocks: &Blocks, die: Option<u32>) -> Option<BlockNo> {
        let is_there = |block: &BlockNo| die.is_none_or(|die| blocks.die_of(*block) == die);
        let closed = blocks.closed().filter(is_there);
        closed.min_by_key(|block| self.cost(blocks, *block))
    }

    /// Whether a block is nearly as good as the best one.
    pub(super) fn is_nearly(self, blocks: &Blocks, block: BlockNo, best: BlockNo) -> bool {
        let (full, valid) = (blocks.pages_per_block(), blocks.valid_count(block));
        let is_near = match self {
            Self::Greedy => valid <= blocks.valid_count(best) + full / NEARLY,
            Self::CostBenefit => {
                let least = self.cost(blocks, best);
                self.cost(blocks, block) <= least.saturating_add(least / u128::from(NEARLY))
            }
        };
        is_near && valid < full
    }

    /// The lowest one is the best.
    pub(super) fn cost(self, blocks: &Blocks, block: BlockNo) -> u128 {
        let valid = u128::from(blocks.valid_count(block));
        match self {
            Self::Greedy => valid << 32 | u128::from(blocks.erases(block)),
            Self::CostBenefit => {
                let gain = u128::from(blocks.gain(block)) * u128::from(blocks.age(block) + 1);
                // The factor keeps fractions apart; a full block has none.
                (valid << 96).checked_div(gain).unwrap_or(u128::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftl::blocks::State;
    use crate::ftl::{Config, Ftl, Lpn};
    use crate::nand::timing::Timing;
    use crate::nand::{Geometry, Nand};
    use crate::random::Random;

    /// Blocks of 16 pages: (valid pages, the sequence number of the last change).
    fn blocks(closed: &[(u32, u64)]) -> Blocks {
        let geometry = Geometry {
            pages_per_block: 16,
            ..Geometry::openssd(closed.len() as u32)
        };
        let mut blocks = Blocks::new(geometry);
        for (number, (valid, changed)) in (0..).zip(closed) {
            let pages = 0..*valid;
            pages.for_each(|page| blocks.mark_valid(geometry.ppn(BlockNo(number), page)));
            blocks.changed_at(BlockNo(number), *changed);
            blocks.set_state(BlockNo(number), State::Closed);
        }
        blocks
    }

    #[test]
    fn greedy_takes_the_emptiest_block_and_cost_benefit_an_old_one() {
        // The last one is full, and so of no use however old.
        let blocks = blocks(&[(4, 990), (8, 100), (8, 500), (16, 1)]);
        let greedy = CollectsBy::Greedy;
        assert_eq!(greedy.victim(&blocks, None), Some(BlockNo(0)));
        let by_benefit = CollectsBy::CostBenefit;
        assert_eq!(by_benefit.victim(&blocks, None), Some(BlockNo(1)));
        // Younger by four parts in nine: not nearly as good.
        assert!(!by_benefit.is_nearly(&blocks, BlockNo(2), BlockNo(1)));
        assert!(by_benefit.is_nearly(&blocks, BlockNo(1), BlockNo(1)));
        assert!(!greedy.is_nearly(&blocks, BlockNo(1), BlockNo(0)));
    }

    /// Nine writes of ten go to a tenth of the pages.
    fn copies(collects: CollectsBy) -> u64 {
        let geometry = Geometry {
            page_bytes: 512,
            pages_per_block: 32,
            ..Geometry::openssd(128)
        };
        let config = Config {
            table_capacity: 20,
            collects,
            wear_gap: u32::MAX,
            ..Config::new(2_800)
        };
        let nand = Nand::new(geometry, Timing::built_in("openssd").unwrap()).unwrap();
        let (mut ftl, _) = Ftl::open(nand, config).unwrap();
        let pages = ftl.pages() as usize;
        let mut random = Random::new(3);
        (0..pages).for_each(|lpn| ftl.write(Lpn(lpn as u32), &[1; 512]).unwrap());
        for _ in 0..60_000 {
            let within = if random.percent(90) {
                pages / 10
            } else {
                pages
            };
            let lpn = Lpn(random.below(within) as u32);
            ftl.write(lpn, &[2; 512]).unwrap();
        }
        ftl.statistics().gc_copies
    }

    #[test]
    fn the_choice_reaches_the_device() {
        let (greedy, by_benefit) = (copies(CollectsBy::Greedy), copies(CollectsBy::CostBenefit));
        println!("greedy {greedy}, cost-benefit {by_benefit} copies");
        assert!(by_benefit < greedy, "{by_benefit} {greedy}");
    }
}
