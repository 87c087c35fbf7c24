//! ext4: the position of its journal, and the owners of blocks by its trace events.
//!
//! The journal's position comes from the superblock, which holds a copy of the journal inode's
//! block map (kernel document `filesystems/ext4/super.rst`, field `s_jnl_blocks`). Structures on
//! disk are little-endian. An extent tree's node, here and in blocks below, is
//!
//! ```text
//! 0   u16 0xf30a, u16 entries, u16 room, u16 depth, u32 generation
//! 12  entries of 12 bytes; at depth 0  u32 file block, u16 length, u16 start high, u32 start low
//!                          above       u32 file block, u32 child low, u16 child high, u16 unused
//! ```

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::Error;
use crate::bytes::bytes_at;
use crate::device::SECTOR_BYTES;
use crate::events::{Decoders, Event, Inode, InodeKind};
use crate::tracefs::Instance;

const SUPERBLOCK_AT: u64 = 1024;
const SUPERBLOCK_MAGIC: u16 = 0xef53;
const EXTENT_MAGIC: u16 = 0xf30a;

/// `s_feature_compat`: there is a journal.
const HAS_JOURNAL: u32 = 0x4;

/// `s_jnl_backup_type`: `s_jnl_blocks` holds the journal inode's block map and size.
const BACKUP_OF_BLOCK_MAP: u8 = 1;

/// Bytes of an extent tree node's header, and of each entry.
const ENTRY_BYTES: usize = 12;

/// The deepest extent tree ext4 makes.
const MAX_DEPTH: u16 = 5;

/// Extent status bits of `ext4_es_insert_extent`: written or unwritten; both have blocks.
const WRITTEN_OR_UNWRITTEN: u64 = 0b11;

/// The layout of a file system, needed to interpret its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// 512-byte sectors of a block.
    block_sectors: u64,
    /// The sectors of the journal.
    pub(crate) journal: Vec<Range<u64>>,
}

impl Layout {
    /// Reads the layout from a device.
    pub(crate) fn read(device: &Path) -> Result<Self, Error> {
        let file = File::open(device).map_err(Error::io("open", device))?;
        let mut superblock = vec![0; 1024];
        file.read_exact_at(&mut superblock, SUPERBLOCK_AT)
            .map_err(Error::io("read", device))?;
        let bad = |text: String| Error::format(device, text);
        if u16_at(&superblock, 0x38) != SUPERBLOCK_MAGIC {
            return Err(bad("no ext4 superblock".to_owned()));
        }
        let log_block = u32_at(&superblock, 0x18);
        if log_block > 6 {
            return Err(bad(format!("a block size of 1024 << {log_block} bytes")));
        }
        let block_bytes = 1024u64 << log_block;
        let block_sectors = block_bytes / SECTOR_BYTES;
        if u32_at(&superblock, 0x5c) & HAS_JOURNAL == 0 {
            return Ok(Self {
                block_sectors,
                journal: Vec::new(),
            });
        }
        if superblock.get(0xfd) != Some(&BACKUP_OF_BLOCK_MAP) {
            return Err(bad(
                "the superblock does not say where the journal is".to_owned()
            ));
        }
        let tree = Tree {
            file: &file,
            device,
            block_bytes,
        };
        let mut blocks = Vec::new();
        let root = superblock.get(0x10c..0x10c + 60).unwrap_or_default();
        tree.collect(root, MAX_DEPTH, &mut blocks)?;
        let size = u64::from(u32_at(&superblock, 0x10c + 60)) << 32
            | u64::from(u32_at(&superblock, 0x10c + 64));
        let found: u64 = blocks.iter().map(|range| range.end - range.start).sum();
        if found.saturating_mul(block_bytes) != size {
            return Err(bad(format!(
                "a journal of {size} bytes with {found} blocks"
            )));
        }
        let sectors = |range: &Range<u64>| range.start * block_sectors..range.end * block_sectors;
        Ok(Self {
            block_sectors,
            journal: blocks.iter().map(sectors).collect(),
        })
    }

    fn sectors(&self, block: u64, count: u64) -> Range<u64> {
        let start = block.saturating_mul(self.block_sectors);
        start..start.saturating_add(count.saturating_mul(self.block_sectors))
    }

    /// Enables the events that give the owners of blocks.
    pub(crate) fn add_events(
        &self,
        decoders: &mut Decoders,
        instance: &Instance,
        filter: &str,
    ) -> Result<(), Error> {
        let layout = self.clone();
        decoders.add(instance, "ext4/ext4_es_insert_extent", filter, |fields| {
            let (inode, block) = (fields.get("ino")?, fields.get("pblk")?);
            let (length, status) = (fields.get("len")?, fields.get("status")?);
            Ok(move |record: &[u8]| {
                let sectors = layout.sectors(block.number(record), length.number(record));
                (status.number(record) & WRITTEN_OR_UNWRITTEN != 0).then(|| Event::Mapped {
                    inode: Inode::of(inode.number(record)),
                    sectors,
                })
            })
        })?;
        let layout = self.clone();
        decoders.add(instance, "ext4/ext4_free_blocks", filter, |fields| {
            let (block, count) = (fields.get("block")?, fields.get("count")?);
            Ok(move |record: &[u8]| {
                Some(Event::Freed(
                    layout.sectors(block.number(record), count.number(record)),
                ))
            })
        })?;
        decoders.add(instance, "ext4/ext4_allocate_inode", filter, |fields| {
            let (inode, mode) = (fields.get("ino")?, fields.get("mode")?);
            Ok(move |record: &[u8]| {
                let kind = InodeKind::of_mode(mode.number(record));
                let inode = Inode::of(inode.number(record));
                Some(Event::Created { inode, kind })
            })
        })
    }
}

/// An extent tree on a device.
struct Tree<'a> {
    file: &'a File,
    device: &'a Path,
    block_bytes: u64,
}

impl Tree<'_> {
    /// Collects the blocks of the tree below `node`, which has at most this depth.
    fn collect(
        &self,
        node: &[u8],
        deepest: u16,
        blocks: &mut Vec<Range<u64>>,
    ) -> Result<(), Error> {
        let (magic, entries, depth) = (u16_at(node, 0), u16_at(node, 2), u16_at(node, 6));
        let room = node.len() / ENTRY_BYTES - 1;
        if magic != EXTENT_MAGIC || depth > deepest || usize::from(entries) > room {
            return Err(Error::format(
                self.device,
                format!(
                    "a node of the journal's extent tree has magic {magic:#x}, depth {depth} and \
                     {entries} entries"
                ),
            ));
        }
        for entry in node
            .chunks_exact(ENTRY_BYTES)
            .skip(1)
            .take(usize::from(entries))
        {
            if depth == 0 {
                let start = u64::from(u16_at(entry, 6)) << 32 | u64::from(u32_at(entry, 8));
                blocks.push(start..start + u64::from(u16_at(entry, 4)));
                continue;
            }
            let child = u64::from(u16_at(entry, 8)) << 32 | u64::from(u32_at(entry, 4));
            let mut below = vec![0; self.block_bytes as usize];
            self.file
                .read_exact_at(&mut below, child.saturating_mul(self.block_bytes))
                .map_err(Error::io("read the journal's extent tree of", self.device))?;
            self.collect(&below, depth - 1, blocks)?;
        }
        Ok(())
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes_at(bytes, at).map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes_at(bytes, at).map_or(0, u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
        bytes[at..at + value.len()].copy_from_slice(value);
    }

    fn node(depth: u16, entries: &[[u8; 12]]) -> Vec<u8> {
        let mut bytes = EXTENT_MAGIC.to_le_bytes().to_vec();
        bytes.extend((entries.len() as u16).to_le_bytes());
        bytes.extend([4, 0]);
        bytes.extend(depth.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(entries.concat());
        bytes
    }

    fn leaf(length: u16, start: u32) -> [u8; 12] {
        let mut entry = [0; 12];
        put(&mut entry, 4, &length.to_le_bytes());
        put(&mut entry, 8, &start.to_le_bytes());
        entry
    }

    /// A device of 4 KiB blocks: its journal's map at depth 1, the leaf in block 2.
    fn device() -> Vec<u8> {
        let mut bytes = vec![0; 4 * 4096];
        put(&mut bytes, 1024 + 0x38, &SUPERBLOCK_MAGIC.to_le_bytes());
        put(&mut bytes, 1024 + 0x18, &2u32.to_le_bytes());
        put(&mut bytes, 1024 + 0x5c, &HAS_JOURNAL.to_le_bytes());
        bytes[1024 + 0xfd] = BACKUP_OF_BLOCK_MAP;
        let mut child = [0; 12];
        put(&mut child, 4, &2u32.to_le_bytes());
        put(&mut bytes, 1024 + 0x10c, &node(1, &[child]));
        put(
            &mut bytes,
            1024 + 0x10c + 64,
            &(1003u32 * 4096).to_le_bytes(),
        );
        put(
            &mut bytes,
            2 * 4096,
            &node(0, &[leaf(1000, 7), leaf(3, 5000)]),
        );
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Layout, Error> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        Layout::read(file.path())
    }

    #[test]
    fn the_journal_is_found_through_its_extent_tree() {
        let layout = read(&device()).unwrap();
        assert_eq!(layout.journal, [56..8056, 40_000..40_024]);
        assert_eq!(layout.sectors(10, 2), 80..96);
    }

    #[test]
    fn what_does_not_fit_is_an_error_that_says_what() {
        let broken = |at: usize, value: &[u8]| {
            let mut bytes = device();
            put(&mut bytes, at, value);
            read(&bytes).unwrap_err().to_string()
        };
        assert!(broken(1024 + 0x38, &[0, 0]).contains("no ext4 superblock"));
        assert!(broken(1024 + 0x18, &[200]).contains("block size"));
        assert!(broken(1024 + 0xfd, &[0]).contains("where the journal is"));
        assert!(broken(1024 + 0x10c, &[0, 0]).contains("magic 0x0"));
        assert!(broken(1024 + 0x10c + 2, &[5]).contains("5 entries"));
        assert!(broken(1024 + 0x10c + 64, &[1]).contains("with 1003 blocks"));
        assert!(broken(2 * 4096 + 6, &[1]).contains("depth 1"));
        assert!(broken(1024 + 0x10c + 18, &[0xff]).contains("read the journal's extent tree"));
        assert!(read(&[0; 100]).unwrap_err().to_string().contains("read "));
    }

    #[test]
    fn a_file_system_without_a_journal_has_none() {
        let mut bytes = device();
        put(&mut bytes, 1024 + 0x5c, &[0; 4]);
        assert!(read(&bytes).unwrap().journal.is_empty());
    }
}
