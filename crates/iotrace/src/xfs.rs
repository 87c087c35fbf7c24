//! XFS: the position of its log, and the owners of blocks by its trace events.
//!
//! The superblock (kernel's `fs/xfs/libxfs/xfs_format.h`, `struct xfs_dsb`) is big-endian. A
//! block's number joins the number of its allocation group and its place in the group. So numbers
//! of neighboring groups have a gap between them:
//!
//! ```text
//! 0 "XFSB"   4 u32 block bytes   8 u64 blocks   48 u64 first log block   84 u32 blocks of a group
//! 96 u32 log blocks   124 u8 bits of a block number that are the place in the group
//! ```

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::Error;
use crate::bytes::bytes_at;
use crate::device::SECTOR_BYTES;
use crate::events::{Decoders, Event, Inode};
use crate::tracefs::Instance;

/// The layout of a file system, needed to interpret its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The sectors of the log.
    pub(crate) log: Range<u64>,
    geometry: Geometry,
}

/// How blocks are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Geometry {
    block_sectors: u64,
    blocks: u64,
    group_blocks: u64,
    group_bits: u32,
}

impl Geometry {
    /// The sectors of `count` blocks of a group; `None` beyond the device.
    fn in_group(&self, group: u64, block: u64, count: u64) -> Option<Range<u64>> {
        let first = group.checked_mul(self.group_blocks)?.checked_add(block)?;
        let end = first.checked_add(count)?;
        (end <= self.blocks).then(|| first * self.block_sectors..end * self.block_sectors)
    }

    /// The sectors of `count` blocks from a block number. `None` for the numbers that stand for no
    /// block, of holes and of delayed allocations: they all lie beyond the device.
    fn sectors(&self, block: u64, count: u64) -> Option<Range<u64>> {
        let place = (1u64 << self.group_bits) - 1;
        self.in_group(block >> self.group_bits, block & place, count)
    }
}

impl Layout {
    /// Reads the layout from a device.
    pub(crate) fn read(device: &Path) -> Result<Self, Error> {
        let mut superblock = [0; 512];
        File::open(device)
            .and_then(|file| file.read_exact_at(&mut superblock, 0))
            .map_err(Error::io("read", device))?;
        Self::parse(&superblock).map_err(|text| Error::format(device, text))
    }

    fn parse(superblock: &[u8]) -> Result<Self, String> {
        if superblock.get(..4) != Some(b"XFSB") {
            return Err("no XFS superblock".to_owned());
        }
        let block_bytes = u64::from(u32_at(superblock, 4));
        let group_bits = u32::from(superblock.get(124).copied().unwrap_or(0));
        if !block_bytes.is_power_of_two() || block_bytes < SECTOR_BYTES || group_bits > 31 {
            return Err(format!(
                "{block_bytes} bytes a block, {group_bits} bits in a group"
            ));
        }
        let geometry = Geometry {
            block_sectors: block_bytes / SECTOR_BYTES,
            blocks: u64_at(superblock, 8),
            group_blocks: u64::from(u32_at(superblock, 84)),
            group_bits,
        };
        let (first, length) = (u64_at(superblock, 48), u64::from(u32_at(superblock, 96)));
        let log = geometry.sectors(first, length).filter(|_| first != 0);
        log.map(|log| Self { log, geometry })
            .ok_or_else(|| format!("no log of {length} blocks at block {first} on this device"))
    }

    /// Enables the events that give the owners of blocks, and the names.
    pub(crate) fn add_events(
        &self,
        decoders: &mut Decoders,
        instance: &Instance,
        filter: &str,
    ) -> Result<(), Error> {
        let geometry = self.geometry;
        // An extent that a file has from now on: a new one, or a changed one.
        for event in [
            "xfs/xfs_iext_insert",
            "xfs/xfs_bmap_post_update",
            "xfs/xfs_read_extent",
        ] {
            decoders.add(instance, event, filter, |fields| {
                let (inode, block) = (fields.get("ino")?, fields.get("startblock")?);
                let count = fields.get("blockcount")?;
                Ok(move |record: &[u8]| {
                    let sectors = geometry.sectors(block.number(record), count.number(record))?;
                    Some(Event::Mapped {
                        inode: Inode::of(inode.number(record)),
                        sectors,
                    })
                })
            })?;
        }
        decoders.add(instance, "xfs/xfs_free_extent", filter, |fields| {
            let (group, block) = (fields.get("agno")?, fields.get("agbno")?);
            let count = fields.get("len")?;
            Ok(move |record: &[u8]| {
                let (group, block) = (group.number(record), block.number(record));
                geometry
                    .in_group(group, block, count.number(record))
                    .map(Event::Freed)
            })
        })?;
        // One for each form that a directory can have.
        for event in ["sf", "block", "leaf", "node"] {
            let event = format!("xfs/xfs_dir2_{event}_addname");
            decoders.add(instance, &event, filter, |fields| {
                let (dir, inode) = (fields.get("ino")?, fields.get("inumber")?);
                let name = fields.get("name")?;
                Ok(move |record: &[u8]| {
                    let dir = Inode::of(dir.number(record));
                    let inode = Inode::of(inode.number(record));
                    let name = String::from_utf8_lossy(name.located(record)).into_owned();
                    Some(Event::Named { inode, dir, name })
                })
            })?;
        }
        Ok(())
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes_at(bytes, at).map_or(0, u32::from_be_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes_at(bytes, at).map_or(0, u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four groups of 32,768 blocks of 4 KiB, so 15 bits; the log of 4,096 blocks in the third.
    fn superblock() -> [u8; 512] {
        let mut bytes = [0; 512];
        bytes[..4].copy_from_slice(b"XFSB");
        bytes[4..8].copy_from_slice(&4096u32.to_be_bytes());
        bytes[8..16].copy_from_slice(&131_072u64.to_be_bytes());
        bytes[48..56].copy_from_slice(&(2u64 << 15 | 6).to_be_bytes());
        bytes[84..88].copy_from_slice(&32_000u32.to_be_bytes());
        bytes[96..100].copy_from_slice(&4096u32.to_be_bytes());
        bytes[124] = 15;
        bytes
    }

    #[test]
    fn the_log_is_found_and_block_numbers_become_sectors() {
        let layout = Layout::parse(&superblock()).unwrap();
        let first = (2 * 32_000 + 6) * 8;
        assert_eq!(layout.log, first..first + 4096 * 8);
        assert_eq!(
            layout.geometry.sectors(1 << 15 | 1, 2),
            Some(256_008..256_024)
        );
        assert_eq!(layout.geometry.in_group(0, 3, 1), Some(24..32));
    }

    #[test]
    fn numbers_that_stand_for_no_block_are_none() {
        let geometry = Layout::parse(&superblock()).unwrap().geometry;
        for block in [
            u64::MAX,
            u64::MAX - 1,
            (1 << 52) - 1 - 31,
            0xff_ffff_e000_0000,
        ] {
            assert_eq!(geometry.sectors(block, 1), None, "{block:#x}");
        }
    }

    #[test]
    fn what_is_no_superblock_is_an_error() {
        assert_eq!(Layout::parse(&[0; 512]).unwrap_err(), "no XFS superblock");
        let mut external_log = superblock();
        external_log[48..56].fill(0);
        assert!(Layout::parse(&external_log).unwrap_err().contains("no log"));
        let mut broken = superblock();
        broken[124] = 200;
        assert!(Layout::parse(&broken).is_err());
    }
}
