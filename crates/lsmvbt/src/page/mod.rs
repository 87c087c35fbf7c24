//! Pages: their header, their checksum, and the nodes in them.
//!
//! A page is 4,096 bytes, little-endian:
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 4 | CRC-32C of bytes 4 to 4,095 |
//! | 4 | 4 | page number |
//! | 8 | 8 | salt: the database's random number |
//! | 16 | 1 | type: see [`PageType`] |
//! | 17 | 1 | level: 0 for a leaf, else one more than its children |
//! | 18 | 1 | flags: 1 = carries the commit record of `ver`, 2 = and the [`change`] of another page, after the slots |
//! | 19 | 1 | kind of the tree: 1 integer, 2 bytes, 3 custom; 0 outside of trees |
//! | 20 | 4 | tree |
//! | 24 | 8 | `birth`: the version in which the page came to be |
//! | 32 | 8 | `ver`: the version that wrote it last |
//! | 40 | 8 | `base`: the newest durable version when it was written |
//! | 48 | 2 | entries; in an overflow page: bytes of data |
//! | 50 | 2 | offset of the first cell |
//! | 52 | 2 | entries of the commit record, after the slots, 8 bytes each: page number, CRC |
//! | 54 | 2 | `ver` less the version that its transaction began from; 0 if that is unknown |
//! | 56 | 4 | first page of the commit record's list, 0 if all of it is here; with flag 2: bytes of the change |
//! | 60 | 4 | next page of an overflow chain or of a record's list |
//! | 64 | 2 each | slots: offsets of the cells, in key order among the entries alive at any version |
//!
//! Cells fill the page from its end. See [`cell`] for their bytes.

mod abbreviated;
pub(crate) mod cell;
pub(crate) mod change;
#[cfg(test)]
mod change_tests;
pub(crate) mod node;
mod place;
pub(crate) mod spans;
pub(crate) mod varint;

pub(crate) use node::{Ended, Entry, INF, Node, NodeRef};

use crate::error::{Error, Result};
use crate::types::{PAGE_SIZE, PageNo, TreeKind};

/// Bytes of a page's header.
pub(crate) const HEADER: usize = 64;
/// Bytes for slots and cells.
pub(crate) const CAPACITY: usize = PAGE_SIZE - HEADER;
/// Bytes that one overflow page carries.
pub(crate) const OVERFLOW_BYTES: usize = PAGE_SIZE - HEADER;
/// Readable bytes after everything in a decoded page.
pub(crate) const PADDING: usize = 96;

/// The type of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageType {
    /// Entries with payloads.
    Leaf,
    /// Routers: the low key of a child, and the child.
    Inner,
    /// Tree number (or directory entry, or meta value) to page number.
    Catalog,
    /// A part of a payload.
    Overflow,
    /// A part of a commit record that did not fit into a page of the commit.
    Record,
}

impl PageType {
    pub(crate) fn byte(self) -> u8 {
        match self {
            PageType::Leaf => 1,
            PageType::Inner => 2,
            PageType::Catalog => 3,
            PageType::Overflow => 4,
            PageType::Record => 5,
        }
    }

    fn from_byte(byte: u8) -> Option<PageType> {
        Some(match byte {
            1 => PageType::Leaf,
            2 => PageType::Inner,
            3 => PageType::Catalog,
            4 => PageType::Overflow,
            5 => PageType::Record,
            _ => return None,
        })
    }

    /// True where a dead entry may own a page.
    pub(crate) fn routes(self) -> bool {
        matches!(self, PageType::Inner | PageType::Catalog)
    }
}

pub(crate) fn kind_byte(kind: Option<TreeKind>) -> u8 {
    match kind {
        None => 0,
        Some(TreeKind::Integer) => 1,
        Some(TreeKind::Bytes) => 2,
        Some(TreeKind::Custom) => 3,
    }
}

fn kind_from(byte: u8) -> Option<Option<TreeKind>> {
    Some(match byte {
        0 => None,
        1 => Some(TreeKind::Integer),
        2 => Some(TreeKind::Bytes),
        3 => Some(TreeKind::Custom),
        _ => return None,
    })
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    let mut b = [0; 2];
    b.copy_from_slice(&bytes[at..at + 2]);
    u16::from_le_bytes(b)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut b = [0; 4];
    b.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(b)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut b = [0; 8];
    b.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(b)
}

pub(crate) fn set_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn set_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn set_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// The versions in an image that belong to its writing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    /// The version that writes it.
    pub(crate) ver: u64,
    /// The version that this one began from.
    pub(crate) from: u64,
    /// The newest durable version.
    pub(crate) durable: u64,
}

impl Stamp {
    /// The most versions that may lie between a version and the one it began from.
    pub(crate) const FARTHEST: u64 = u16::MAX as u64;

    /// Puts it into an image that is not sealed yet.
    pub(crate) fn put(self, image: &mut Image) {
        set_u64(image, 32, self.ver);
        set_u64(image, 40, self.durable);
        let distance = u16::try_from(self.ver.saturating_sub(self.from)).unwrap_or(0);
        set_u16(image, 54, distance);
    }
}

/// The version that the transaction of an image began from, if it is known.
pub(crate) fn from_of(image: &Image) -> Option<u64> {
    let distance = u64::from(u16_at(image, 54));
    u64_at(image, 32)
        .checked_sub(distance)
        .filter(|_| distance > 0)
}

/// A page as it is on disk.
pub(crate) type Image = [u8; PAGE_SIZE];

/// Writes the checksum of a finished image into it and returns it.
pub(crate) fn seal(image: &mut Image) -> u32 {
    let crc = crc32c::crc32c(&image[4..]);
    set_u32(image, 0, crc);
    crc
}

/// The checksum in an image.
pub(crate) fn crc_of(image: &Image) -> u32 {
    u32_at(image, 0)
}

/// The page number of a sealed image, if its checksum and salt are right.
pub(crate) fn identity(image: &Image, salt: u64) -> Option<PageNo> {
    (crc32c::crc32c(&image[4..]) == u32_at(image, 0) && u64_at(image, 8) == salt)
        .then(|| PageNo(u32_at(image, 4)))
}

/// Checks an image's checksum, number and salt.
pub(crate) fn verify(image: &Image, page: PageNo, salt: u64) -> Result<()> {
    let damaged = |what| Err(Error::Damaged { page, what });
    if crc32c::crc32c(&image[4..]) != u32_at(image, 0) {
        return damaged("its checksum is wrong");
    }
    if u64_at(image, 8) != salt {
        return damaged("it belongs to another database");
    }
    if u32_at(image, 4) != page.0 {
        return damaged("it is another page's image");
    }
    Ok(())
}

/// A commit record in an image: the pages of the commit and the checksums of their images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// Page and checksum of every other page of the commit, as far as they are in this image.
    pub(crate) pages: Vec<(u32, u32)>,
    /// The next page of the list; 0 at its end.
    pub(crate) list: u32,
}

/// The commit record in a verified image, if it carries one.
pub(crate) fn record_of(image: &Image) -> Option<Record> {
    if image[18] & 1 == 0 {
        return None;
    }
    let is_list = image[16] == PageType::Record.byte();
    let slots = if is_list {
        0
    } else {
        usize::from(u16_at(image, 48))
    };
    let count = usize::from(u16_at(image, 52));
    let from = HEADER + 2 * slots;
    if from + 8 * count > PAGE_SIZE {
        return None;
    }
    let pages = (0..count)
        .map(|i| (u32_at(image, from + 8 * i), u32_at(image, from + 8 * i + 4)))
        .collect();
    let list = match (is_list, change::carries(image)) {
        (true, _) => u32_at(image, 60),
        (false, false) => u32_at(image, 56),
        (false, true) => 0,
    };
    Some(Record { pages, list })
}

/// Entries of a commit record that fit into the gap of an image.
pub(crate) fn record_room(image: &Image) -> usize {
    let slots = usize::from(u16_at(image, 48));
    let content = usize::from(u16_at(image, 50));
    match PageType::from_byte(image[16]) {
        Some(PageType::Leaf | PageType::Inner | PageType::Catalog) => {
            content.saturating_sub(HEADER + 2 * slots) / 8
        }
        _ => 0,
    }
}

/// Puts a commit record into an image with enough room, and seals it.
pub(crate) fn put_record(image: &mut Image, record: &Record) -> u32 {
    let from = HEADER + 2 * usize::from(u16_at(image, 48));
    image[18] |= 1;
    set_u16(image, 52, record.pages.len() as u16);
    set_u32(image, 56, record.list);
    for (i, (page, crc)) in record.pages.iter().enumerate() {
        set_u32(image, from + 8 * i, *page);
        set_u32(image, from + 8 * i + 4, *crc);
    }
    seal(image)
}
