//! The layout of the device, and the two kinds of pages of the file system itself.
//!
//! ```text
//! logical page 0   superblock
//! 1 to n           an inode each, n is in the superblock
//! n + 1 on         chunks of data, a fixed number of pages each
//! ```
//!
//! Integers are big-endian. Superblock: `onewrtFS` (8), version 1 (4), inodes (4), pages of a chunk
//! (4), zeros. An inode of only zeros is free:
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 4 | `inod` |
//! | 4 | 2 | bytes of the name |
//! | 6 | 2 | zero |
//! | 8 | 8 | bytes of the file |
//! | 16 | 4 | chunks (n) |
//! | 20 | 255 | name, zeros behind it |
//! | 275 | 1 | zero |
//! | 276 | 4 n | the chunks, in order; all ones is a hole |
//!
//! The device does not store which chunks are free: those that no inode has.

use crate::ftl::Lpn;
use crate::ftl::oob::{be32, be64};

/// The longest name, in bytes.
pub(super) const MAX_NAME: usize = 255;
/// Bytes of an inode before its chunks.
const INODE_HEADER_BYTES: usize = 276;
const HOLE: u32 = u32::MAX;
const VERSION: u32 = 1;

/// A file, by its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNo(pub u32);

/// A piece of the space for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChunkNo(pub(super) u32);

/// Sizes, as in the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) page_bytes: usize,
    pub(super) inodes: u32,
    pub(super) chunk_pages: u32,
    pub(super) chunks: u32,
}

impl Layout {
    /// A suitable layout for a device of `pages` pages.
    pub(super) fn of(page_bytes: u32, pages: u32) -> Self {
        let inodes = (pages / 16).clamp(4, 128);
        let chunk_pages = (pages / 256).clamp(2, 32);
        Self {
            page_bytes: page_bytes as usize,
            inodes,
            chunk_pages,
            chunks: pages.saturating_sub(1 + inodes) / chunk_pages,
        }
    }

    pub(super) fn superblock(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(self.page_bytes);
        page.extend(b"onewrtFS");
        page.extend(VERSION.to_be_bytes());
        page.extend(self.inodes.to_be_bytes());
        page.extend(self.chunk_pages.to_be_bytes());
        page.resize(self.page_bytes, 0);
        page
    }

    pub(super) fn inode_page(&self, file: FileNo) -> Lpn {
        Lpn(1 + file.0)
    }

    /// Page `page` of a chunk.
    pub(super) fn data_page(&self, chunk: ChunkNo, page: u32) -> Lpn {
        Lpn(1 + self.inodes + chunk.0 * self.chunk_pages + page)
    }

    /// The pages of a chunk.
    pub(super) fn pages_of(&self, chunk: ChunkNo) -> impl Iterator<Item = Lpn> + use<> {
        let first = self.data_page(chunk, 0).0;
        (first..first + self.chunk_pages).map(Lpn)
    }

    /// The most chunks that a file can have.
    pub(super) fn chunks_of_a_file(&self) -> usize {
        (self.page_bytes - INODE_HEADER_BYTES) / 4
    }
}

/// The contents of a file's inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inode {
    pub(super) name: Vec<u8>,
    pub(super) bytes: u64,
    pub(super) chunks: Vec<Option<ChunkNo>>,
}

impl Inode {
    pub(super) fn encode(&self, page_bytes: usize) -> Vec<u8> {
        let mut page = Vec::with_capacity(page_bytes);
        page.extend(b"inod");
        page.extend((self.name.len() as u16).to_be_bytes());
        page.extend([0; 2]);
        page.extend(self.bytes.to_be_bytes());
        page.extend((self.chunks.len() as u32).to_be_bytes());
        page.extend(&self.name);
        page.resize(INODE_HEADER_BYTES, 0);
        for chunk in &self.chunks {
            page.extend(chunk.map_or(HOLE, |chunk| chunk.0).to_be_bytes());
        }
        page.resize(page_bytes, 0);
        page
    }

    /// `Ok(None)` for a free one; `Err` if it is not an inode.
    pub(super) fn decode(page: &[u8], layout: &Layout) -> Result<Option<Self>, ()> {
        match page.get(..4) {
            Some(b"inod") => {}
            Some([0, 0, 0, 0]) => return Ok(None),
            _ => return Err(()),
        }
        let name = usize::from(page[4]) << 8 | usize::from(page[5]);
        let chunks = be32(page, 16) as usize;
        if name == 0 || name > MAX_NAME || chunks > layout.chunks_of_a_file() {
            return Err(());
        }
        let numbers = page[INODE_HEADER_BYTES..].chunks_exact(4).take(chunks);
        let numbers: Vec<u32> = numbers.map(|number| be32(number, 0)).collect();
        if numbers
            .iter()
            .any(|number| *number != HOLE && *number >= layout.chunks)
        {
            return Err(());
        }
        let chunk = |number: u32| (number != HOLE).then_some(ChunkNo(number));
        Ok(Some(Self {
            name: page[20..20 + name].to_vec(),
            bytes: be64(page, 8),
            chunks: numbers.into_iter().map(chunk).collect(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_that_was_encoded_is_decoded_and_a_wrong_one_refused() {
        let layout = Layout::of(512, 1000);
        let inode = Inode {
            name: b"a.db".to_vec(),
            bytes: 12_345,
            chunks: vec![Some(ChunkNo(3)), None, Some(ChunkNo(0))],
        };
        let page = inode.encode(512);
        assert_eq!(page.len(), 512);
        assert_eq!(Inode::decode(&page, &layout), Ok(Some(inode)));
        assert_eq!(Inode::decode(&[0; 512], &layout), Ok(None));
        for (at, byte) in [(0, b'x'), (4, 1), (16, 1), (276, 1)] {
            let mut page = page.clone();
            page[at] = byte;
            assert_eq!(Inode::decode(&page, &layout), Err(()), "byte {at}");
        }
    }
}
