//! The parts of NAND, and their numbers.
//!
//! Channel > die > plane > block > page. A block is the unit of erasing, a page that of programming
//! and reading. Blocks are numbered across the dies, so that block `b` is on die `b % dies`, and
//! dies across the channels. Pages are numbered over the whole device. Dies work at the same time;
//! channels move the data. The planes of a die are taken in turn, too. They program pages with the
//! same number in their blocks at the same time, if the controller sends one right after the other.

use serde::{Deserialize, Serialize};

/// A block, counted over the whole device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockNo(pub u32);

/// A physical page, counted over the whole device: block times pages a block, plus the page in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ppn(pub u32);

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Geometry {
    /// Bytes of data in a page.
    pub page_bytes: u32,
    /// Pages in a block.
    pub pages_per_block: u32,
    /// Blocks in a plane.
    pub blocks_per_plane: u32,
    /// Planes in a die.
    pub planes_per_die: u32,
    /// Dies on a channel.
    pub dies_per_channel: u32,
    /// Channels of the controller.
    pub channels: u32,
}

impl Geometry {
    /// Pages of 8 KiB and 128 of them a block, as in X-FTL's evaluation, on one channel with one die.
    pub fn openssd(blocks: u32) -> Self {
        Self {
            page_bytes: 8192,
            pages_per_block: 128,
            blocks_per_plane: blocks,
            planes_per_die: 1,
            dies_per_channel: 1,
            channels: 1,
        }
    }

    /// The same number of blocks on `channels` channels with `ways` dies each, rounded up.
    pub fn with_channels(self, channels: u32, ways: u32) -> Self {
        let blocks = self.blocks().div_ceil((channels * ways).max(1));
        Self {
            channels,
            blocks_per_plane: blocks,
            planes_per_die: 1,
            dies_per_channel: ways,
            ..self
        }
    }

    /// At least as many blocks on `planes` planes in each die, as a multiple of them.
    pub fn with_planes(self, planes: u32) -> Self {
        let blocks = self.blocks_per_plane * self.planes_per_die;
        Self {
            planes_per_die: planes,
            blocks_per_plane: blocks.div_ceil(planes.max(1)),
            ..self
        }
    }

    /// Dies in all.
    pub fn dies(&self) -> u32 {
        self.channels * self.dies_per_channel
    }

    /// Blocks in all.
    pub fn blocks(&self) -> u32 {
        self.dies() * self.planes_per_die * self.blocks_per_plane
    }

    /// Pages in all.
    pub fn pages(&self) -> u32 {
        self.blocks() * self.pages_per_block
    }

    /// Bytes of data in all.
    pub fn bytes(&self) -> u64 {
        u64::from(self.pages()) * u64::from(self.page_bytes)
    }

    /// The die that a block is on.
    pub fn die_of(&self, block: BlockNo) -> u32 {
        block.0 % self.dies()
    }

    /// The plane of its die that a block is on.
    pub fn plane_of(&self, block: BlockNo) -> u32 {
        block.0 / self.dies() % self.planes_per_die
    }

    /// The channel of a die.
    pub fn channel_of(&self, die: u32) -> u32 {
        die % self.channels
    }

    /// Page `page` of `block`.
    pub fn ppn(&self, block: BlockNo, page: u32) -> Ppn {
        Ppn(block.0 * self.pages_per_block + page)
    }

    /// The block of a page.
    pub fn block_of(&self, ppn: Ppn) -> BlockNo {
        BlockNo(ppn.0 / self.pages_per_block)
    }

    /// The place of a page in its block.
    pub fn page_in_block(&self, ppn: Ppn) -> u32 {
        ppn.0 % self.pages_per_block
    }

    /// Whether it is possible: nothing is zero, and every page has a number.
    ///
    /// # Errors
    /// A message about the mistake.
    pub fn check(&self) -> Result<(), String> {
        let parts = [
            ("page_bytes", self.page_bytes),
            ("pages_per_block", self.pages_per_block),
            ("blocks_per_plane", self.blocks_per_plane),
            ("planes_per_die", self.planes_per_die),
            ("dies_per_channel", self.dies_per_channel),
            ("channels", self.channels),
        ];
        if let Some((name, _)) = parts.iter().find(|(_, value)| *value == 0) {
            return Err(format!("{name} is 0"));
        }
        // The last number stands for "no page".
        let pages = parts[1..].iter().try_fold(1_u32, |pages, (_, value)| {
            pages.checked_mul(*value).filter(|pages| *pages < u32::MAX)
        });
        match pages {
            Some(_) => Ok(()),
            None => Err("it has more pages than 32 bits can number".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_blocks_are_numbered_through_and_dies_take_turns() {
        let geometry = Geometry {
            page_bytes: 512,
            pages_per_block: 4,
            blocks_per_plane: 3,
            planes_per_die: 2,
            dies_per_channel: 2,
            channels: 2,
        };
        assert_eq!((geometry.dies(), geometry.blocks()), (4, 24));
        assert_eq!(geometry.bytes(), 24 * 4 * 512);
        for page in 0..geometry.pages() {
            let (block, within) = (
                geometry.block_of(Ppn(page)),
                geometry.page_in_block(Ppn(page)),
            );
            assert_eq!(geometry.ppn(block, within), Ppn(page));
        }
        let dies: Vec<u32> = (0..5)
            .map(|block| geometry.die_of(BlockNo(block)))
            .collect();
        assert_eq!(dies, [0, 1, 2, 3, 0]);
        let planes = [0, 3, 4, 7, 8].map(|block| geometry.plane_of(BlockNo(block)));
        assert_eq!(planes, [0, 0, 1, 1, 0]);
        let more = Geometry::openssd(9).with_planes(2);
        assert_eq!((more.blocks(), more.planes_per_die), (10, 2));
        assert_eq!(
            [0, 1, 2, 3].map(|die| geometry.channel_of(die)),
            [0, 1, 0, 1]
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(Geometry::openssd(64).check(), Ok(()));
        assert!(Geometry::openssd(0).check().is_err());
        assert!(Geometry::openssd(u32::MAX / 128 + 1).check().is_err());
    }
}
