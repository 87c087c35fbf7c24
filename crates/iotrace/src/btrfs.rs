//! Btrfs: the positions of its addresses on the device, and their owners by its trace events.
//!
//! Files and trees have addresses in the file system's own space; chunks map that space to devices.
//! The superblock (64 KiB into the device; `btrfs_super_block` in
//! `include/uapi/linux/btrfs_tree.h`) holds the chunks of the chunk tree. The chunk tree holds all
//! others. Structures are little-endian:
//!
//! ```text
//! superblock  32 fsid  48 u64 address  64 "_BHRfS_M"  88 u64 chunk root  136 u64 devices
//!             148 u32 node bytes  160 u32 bytes of chunks  199 u8 level of the chunk root
//!             201 u64 id of this device  811 chunks: keys of 17 bytes, each with its item
//! node        48 u64 address  96 u32 items  100 u8 level
//!             101 leaf: items of 25 bytes: key, u32 offset of the data from 101, u32 length
//!                 else: pointers of 33 bytes: key, u64 address, u64 generation
//! key         u64 object, u8 type (228: chunk), u64 offset: the chunk's address
//! chunk       u64 length, u64 owner, u64 stripe length, u64 type, ... 44 u16 stripes, u16
//!             48 stripes of 32 bytes: u64 device, u64 offset, 16 bytes
//! ```
//!
//! The superblock at the end of the trace gives the positions of new chunks. Btrfs never uses a
//! chunk's address twice.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use onewrite_common::mounts;
use rustix::fs::OFlags;

use crate::Error;
use crate::bytes::bytes_at;
use crate::device::SECTOR_BYTES;
use crate::events::{Decoders, Event, Holder, Inode, InodeKind};
use crate::tracefs::Instance;

const SUPERBLOCK_AT: u64 = 64 << 10;
const SUPERBLOCK_BYTES: usize = 4096;
const CHUNK_ITEM: u8 = 228;
const KEY_BYTES: usize = 17;
const CHUNK_BYTES: usize = 48;
const STRIPE_BYTES: usize = 32;

/// The most nodes of the chunk tree to read.
const MAX_NODES: usize = 100_000;

/// Kinds of chunks that are not plain copies of each other: striped ones and those with parity.
const STRIPED: u64 = 1 << 3 | 1 << 6 | 1 << 7 | 1 << 8;

/// Kinds of extents that hold trees: system and metadata.
const TREES: u64 = 1 << 1 | 1 << 2;

/// `BTRFS_ADD_DELAYED_REF`.
const ADD_REF: u64 = 1;

/// The positions of the file system's addresses on this device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chunks {
    /// A chunk's address to its length and the starts of its copies on the device, in bytes.
    chunks: BTreeMap<u64, (u64, Vec<u64>)>,
}

impl Chunks {
    #[cfg(test)]
    pub(crate) fn one(address: u64, at: u64, length: u64) -> Self {
        let chunks = BTreeMap::from([(address, (length, vec![at]))]);
        Self { chunks }
    }

    /// Adds the chunks of another moment.
    pub(crate) fn join(&mut self, other: Self) {
        self.chunks.extend(other.chunks);
    }

    /// The sectors of this device that hold these addresses. None if no chunk holds them, or if the
    /// chunk is striped.
    pub(crate) fn sectors(&self, bytes: Range<u64>) -> Vec<Range<u64>> {
        let Some((start, (length, copies))) = self.chunks.range(..=bytes.start).next_back() else {
            return Vec::new();
        };
        let inside = bytes.start - start;
        if bytes.end.saturating_sub(*start) > *length {
            return Vec::new();
        }
        let sectors = |at: &u64| {
            let first = at.checked_add(inside)?;
            let end = first.checked_add(bytes.end - bytes.start)?;
            Some(first / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES))
        };
        copies.iter().filter_map(sectors).collect()
    }
}

/// The layout of a file system, needed to interpret its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    fsid: [u8; 16],
    pub(crate) chunks: Chunks,
}

impl Layout {
    /// Reads the layout from a device. It bypasses the page cache, which Btrfs does not use for its
    /// trees.
    pub(crate) fn read(device: &Path) -> Result<Self, Error> {
        let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(direct)
            .open(device)
            .map_err(Error::io("open", device))?;
        let read = |at: u64, bytes: usize| -> Result<Vec<u8>, Error> {
            // Direct reads need aligned memory too; an extra block leaves room for that.
            const BLOCK: usize = 4096;
            let mut buffer = vec![0u8; bytes + BLOCK];
            let skip = buffer.as_ptr().align_offset(BLOCK).min(BLOCK);
            let wanted = buffer.get_mut(skip..skip + bytes).unwrap_or_default();
            file.read_exact_at(wanted, at)
                .map_err(Error::io("read", device))?;
            Ok(wanted.to_vec())
        };
        Self::parse(read).map_err(|error| match error {
            Bad::Io(error) => error,
            Bad::Format(text) => Error::format(device, text),
        })
    }

    fn parse(read: impl Fn(u64, usize) -> Result<Vec<u8>, Error>) -> Result<Self, Bad> {
        let superblock = read(SUPERBLOCK_AT, SUPERBLOCK_BYTES).map_err(Bad::Io)?;
        let bad = |text: &str| Bad::Format(text.to_owned());
        if superblock.get(64..72) != Some(b"_BHRfS_M") {
            return Err(bad("no Btrfs superblock"));
        }
        if u64_at(&superblock, 136) != Some(1) {
            return Err(bad(
                "a Btrfs over several devices: only one on a single device can be traced",
            ));
        }
        let node_bytes = u32_at(&superblock, 148).unwrap_or(0) as usize;
        if !(4096..=65_536).contains(&node_bytes) || !node_bytes.is_power_of_two() {
            return Err(Bad::Format(format!("a node size of {node_bytes} bytes")));
        }
        let this = u64_at(&superblock, 201).unwrap_or(0);
        let length = u32_at(&superblock, 160).unwrap_or(0) as usize;
        let array = superblock.get(811..).and_then(|rest| rest.get(..length));
        let mut chunks = Chunks::default();
        let mut rest =
            array.ok_or_else(|| bad("more chunks in the superblock than it can hold"))?;
        while let Some(key) = rest.get(..KEY_BYTES) {
            let item = rest.get(KEY_BYTES..).unwrap_or_default();
            let used = chunks
                .add(key, item, this)
                .ok_or_else(|| bad("a chunk in the superblock that is cut off"))?;
            rest = item.get(used..).unwrap_or_default();
        }
        let mut to_read = vec![u64_at(&superblock, 88).unwrap_or(0)];
        let mut nodes = 0;
        while let Some(address) = to_read.pop() {
            nodes += 1;
            let place = chunks.sectors(address..address.saturating_add(node_bytes as u64));
            let first = place.first().filter(|_| nodes <= MAX_NODES);
            let at = first.ok_or_else(|| {
                Bad::Format(format!("no chunk has the chunk tree's node at {address}"))
            })?;
            let node = read(at.start * SECTOR_BYTES, node_bytes).map_err(Bad::Io)?;
            if u64_at(&node, 48) != Some(address) {
                return Err(Bad::Format(format!(
                    "no node of the chunk tree at {address}"
                )));
            }
            chunks.add_node(&node, this, &mut to_read);
        }
        let fsid = bytes_at(&superblock, 32).unwrap_or_default();
        Ok(Self { fsid, chunks })
    }

    /// Enables the events that give the owners of addresses. Every mounted Btrfs emits them; the id
    /// of the file system distinguishes them.
    pub(crate) fn add_events(
        &self,
        decoders: &mut Decoders,
        instance: &Instance,
    ) -> Result<(), Error> {
        let fsid = self.fsid;
        decoders.add(instance, "btrfs/btrfs_inode_new", "0", |fields| {
            let (file_system, tree) = (fields.get("fsid")?, fields.get("root_objectid")?);
            let inode = fields.get("ino")?;
            Ok(move |record: &[u8]| {
                (file_system.bytes(record) == fsid).then(|| Event::Created {
                    inode: Inode {
                        tree: tree.number(record),
                        number: inode.number(record),
                    },
                    kind: InodeKind::Unknown,
                })
            })
        })?;
        decoders.add(instance, "btrfs/btrfs_ordered_extent_add", "0", |fields| {
            let (file_system, tree) = (fields.get("fsid")?, fields.get("root_objectid")?);
            let (inode, start) = (fields.get("ino")?, fields.get("start")?);
            let length = fields.get("disk_len")?;
            Ok(move |record: &[u8]| {
                (file_system.bytes(record) == fsid).then(|| Event::Given {
                    bytes: range(start.number(record), length.number(record)),
                    to: Holder::Data(Inode {
                        tree: tree.number(record),
                        number: inode.number(record),
                    }),
                })
            })
        })?;
        decoders.add(instance, "btrfs/btrfs_reserve_extent", "0", |fields| {
            let (file_system, flags) = (fields.get("fsid")?, fields.get("flags")?);
            let (start, length) = (fields.get("start")?, fields.get("len")?);
            Ok(move |record: &[u8]| {
                let ours = file_system.bytes(record) == fsid;
                (ours && flags.number(record) & TREES != 0).then(|| Event::Given {
                    bytes: range(start.number(record), length.number(record)),
                    to: Holder::NewTreeBlock,
                })
            })
        })?;
        decoders.add(instance, "btrfs/add_delayed_tree_ref", "0", |fields| {
            let (file_system, action) = (fields.get("fsid")?, fields.get("action")?);
            let (start, length) = (fields.get("bytenr")?, fields.get("num_bytes")?);
            Ok(move |record: &[u8]| {
                let ours = file_system.bytes(record) == fsid;
                (ours && action.number(record) == ADD_REF).then(|| Event::Given {
                    bytes: range(start.number(record), length.number(record)),
                    to: Holder::TreeBlock,
                })
            })
        })
    }
}

/// The tree of the subvolume that is mounted at `root`.
pub(crate) fn tree_of(root: &Path) -> u64 {
    const TOP: u64 = 5;
    let mounts = mounts::read(mounts::OF_THIS_PROCESS).unwrap_or_default();
    let mount = mounts.iter().rev().find(|mount| mount.point == root);
    let options = mount.map_or(&[][..], |mount| &mount.options);
    let tree = options
        .iter()
        .find_map(|option| option.strip_prefix("subvolid="));
    tree.and_then(|tree| tree.parse().ok()).unwrap_or(TOP)
}

/// The reason that a layout could not be read.
enum Bad {
    Io(Error),
    Format(String),
}

impl Chunks {
    /// Adds a chunk if the key is a chunk's. Returns the length of its item; `None` if the item is
    /// cut off.
    fn add(&mut self, key: &[u8], item: &[u8], device: u64) -> Option<usize> {
        if key.get(8) != Some(&CHUNK_ITEM) {
            return None;
        }
        let address = u64_at(key, 9)?;
        let (length, kind) = (u64_at(item, 0)?, u64_at(item, 24)?);
        let stripes = usize::from(bytes_at(item, 44).map(u16::from_le_bytes)?);
        let used = CHUNK_BYTES + stripes * STRIPE_BYTES;
        let stripes = item.get(CHUNK_BYTES..used)?.chunks_exact(STRIPE_BYTES);
        let on_this = stripes.filter(|stripe| u64_at(stripe, 0) == Some(device));
        let copies = on_this.filter_map(|stripe| u64_at(stripe, 8)).collect();
        if kind & STRIPED == 0 {
            self.chunks.insert(address, (length, copies));
        }
        Some(used)
    }

    /// Adds the contents of a chunk tree's node. Appends the nodes below it to `to_read`.
    fn add_node(&mut self, node: &[u8], device: u64, to_read: &mut Vec<u64>) {
        let items = u32_at(node, 96).unwrap_or(0) as usize;
        let body = node.get(101..).unwrap_or_default();
        if node.get(100) != Some(&0) {
            let below = body.chunks_exact(33).take(items);
            to_read.extend(below.filter_map(|pointer| u64_at(pointer, KEY_BYTES)));
            return;
        }
        for item in body.chunks_exact(25).take(items) {
            let (offset, length) = (u32_at(item, 17), u32_at(item, 21));
            let data = offset
                .zip(length)
                .and_then(|(offset, length)| body.get(offset as usize..)?.get(..length as usize));
            let key = item.get(..KEY_BYTES).unwrap_or_default();
            // Other keys are devices.
            self.add(key, data.unwrap_or_default(), device);
        }
    }
}

fn range(start: u64, length: u64) -> Range<u64> {
    start..start.saturating_add(length)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes_at(bytes, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: u8, offset: u64) -> Vec<u8> {
        let mut key = 256u64.to_le_bytes().to_vec();
        key.push(kind);
        key.extend(offset.to_le_bytes());
        key
    }

    fn chunk(length: u64, kind: u64, stripes: &[(u64, u64)]) -> Vec<u8> {
        let mut chunk = vec![0; CHUNK_BYTES];
        chunk[..8].copy_from_slice(&length.to_le_bytes());
        chunk[24..32].copy_from_slice(&kind.to_le_bytes());
        chunk[44..46].copy_from_slice(&(stripes.len() as u16).to_le_bytes());
        for (device, at) in stripes {
            chunk.extend(device.to_le_bytes());
            chunk.extend(at.to_le_bytes());
            chunk.extend([0; 16]);
        }
        chunk
    }

    fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
        bytes[at..at + value.len()].copy_from_slice(value);
    }

    /// A device of 1 MiB. Its system chunk is at address 10 MiB, 512 KiB into the device. The chunk
    /// holds a leaf with a chunk of two copies, a striped one, and a device.
    fn device() -> Vec<u8> {
        const TREE: u64 = 10 << 20;
        let mut bytes = vec![0; 1 << 20];
        let superblock = SUPERBLOCK_AT as usize;
        put(&mut bytes, superblock + 32, &[9; 16]);
        put(&mut bytes, superblock + 64, b"_BHRfS_M");
        put(&mut bytes, superblock + 88, &TREE.to_le_bytes());
        put(&mut bytes, superblock + 136, &1u64.to_le_bytes());
        put(&mut bytes, superblock + 148, &4096u32.to_le_bytes());
        put(&mut bytes, superblock + 201, &1u64.to_le_bytes());
        let system = [key(CHUNK_ITEM, TREE), chunk(1 << 16, 2, &[(1, 512 << 10)])].concat();
        put(
            &mut bytes,
            superblock + 160,
            &(system.len() as u32).to_le_bytes(),
        );
        put(&mut bytes, superblock + 811, &system);
        let items = [
            (key(216, 1), vec![0; 98]),
            (
                key(CHUNK_ITEM, 20 << 20),
                chunk(1 << 20, 36, &[(1, 4096), (1, 8192)]),
            ),
            (
                key(CHUNK_ITEM, 30 << 20),
                chunk(1 << 20, 1 | 1 << 3, &[(1, 0), (2, 0)]),
            ),
        ];
        let node = 512 << 10;
        put(&mut bytes, node + 48, &TREE.to_le_bytes());
        put(&mut bytes, node + 96, &(items.len() as u32).to_le_bytes());
        let mut end = 4096 - 101;
        for (index, (key, data)) in items.iter().enumerate() {
            end -= data.len();
            let at = node + 101 + index * 25;
            put(&mut bytes, at, key);
            put(&mut bytes, at + 17, &(end as u32).to_le_bytes());
            put(&mut bytes, at + 21, &(data.len() as u32).to_le_bytes());
            put(&mut bytes, node + 101 + end, data);
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Result<Layout, String> {
        let read = |at: u64, length: usize| {
            let at = at as usize;
            let found = bytes.get(at..at + length).map(<[u8]>::to_vec);
            found.ok_or_else(|| Error::Unavailable("beyond the end".to_owned()))
        };
        Layout::parse(read).map_err(|bad| match bad {
            Bad::Io(error) => error.to_string(),
            Bad::Format(text) => text,
        })
    }

    #[test]
    fn addresses_are_found_on_the_device_in_every_copy() {
        let layout = parse(&device()).unwrap();
        assert_eq!(layout.fsid, [9; 16]);
        let at = |address: u64, bytes: u64| layout.chunks.sectors(address..address + bytes);
        assert_eq!(at(20 << 20, 4096), [8..16, 16..24]);
        assert_eq!(at((20 << 20) + 512, 512), [9..10, 17..18]);
        assert_eq!(at(10 << 20, 4096), std::slice::from_ref(&(1024..1032)));
        // Striped, beyond the end of a chunk, before the first.
        for nowhere in [30 << 20, (21 << 20) - 512, 0] {
            assert_eq!(at(nowhere, 4096), [], "{nowhere}");
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error_that_says_what() {
        let broken = |at: usize, value: &[u8]| {
            let mut bytes = device();
            put(&mut bytes, at, value);
            parse(&bytes).unwrap_err()
        };
        let superblock = SUPERBLOCK_AT as usize;
        assert!(broken(superblock + 64, b"x").contains("no Btrfs superblock"));
        assert!(broken(superblock + 136, &[2]).contains("several devices"));
        assert!(broken(superblock + 148, &[1]).contains("a node size of"));
        assert!(broken(superblock + 160, &[255; 4]).contains("than it can hold"));
        assert!(broken(superblock + 160, &[90, 0]).contains("cut off"));
        assert!(broken(superblock + 88, &[1]).contains("no node of the chunk tree"));
        assert!(broken(superblock + 88, &[0; 8]).contains("no chunk has"));
        assert!(broken((512 << 10) + 100, &[1]).contains("chunk"));
    }
}
