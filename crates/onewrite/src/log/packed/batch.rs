//! The header of a batch: the frames of a commit.
//!
//! ```text
//! offset  bytes
//!      0      4  "owbt"; "owbs" where the batch shares the block in which the one before it ends
//!      4      4  CRC-32C of bytes 8 to the end of the records
//!      8      8  salts of the generation
//!     16      4  sequence number: 1 for the first batch of a generation
//!     20      4  the CRC-32C of the batch before; of the salts for the first
//!     24      4  number of its first frame
//!     28      4  number of frames; the top bit is set where the last one ends a transaction
//!     32      4  bytes of the records behind this header
//!     36         the records, then zeros to the end of the block or to the next batch
//! ```
//!
//! A batch begins with a block, or at the first multiple of 16 behind the one before it. Which of the
//! two follows a batch is decided by [`super::chain`]. The first four bytes distinguish them. The CRC
//! leaves these out, so that a batch can move to the next block.
//!
//! A batch belongs to the log only after the batch whose CRC it carries. So leftovers of a
//! rolled-back transaction after the end never pass for the next batch. A batch may begin with a
//! frame that the transaction has written before. Then it replaces that frame and all after it.

use crate::wal::{FrameNo, Salts, array, be32};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 36;
/// A write that is durable by itself begins and ends on a multiple of this many bytes.
pub const BLOCK_BYTES: u64 = 4096;
/// Every batch begins on a multiple of this many bytes.
pub const ALIGN_BYTES: u64 = 16;
/// The least distance between the beginnings of two batches: a header, and a record of one byte.
pub const LEAST_BYTES: u64 = 64;
/// The most bytes of records in one batch.
pub const MAX_RECORD_BYTES: u32 = 64 << 20;

const ENDS_TRANSACTION: u32 = 1 << 31;

/// Where a batch begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begin {
    /// With a block that no other batch has bytes in.
    Block,
    /// Right behind the batch before it, in the same block.
    Behind,
}

/// Whether other batches may use the rest of a batch's last block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocks {
    /// No: it is written anyway.
    Own,
    /// Yes.
    Shared,
}

impl Begin {
    fn magic(self) -> [u8; 4] {
        match self {
            Begin::Block => *b"owbt",
            Begin::Behind => *b"owbs",
        }
    }

    /// The offset of such a batch after one that ends at `end`, a multiple of [`ALIGN_BYTES`].
    pub fn after(self, end: u64) -> u64 {
        match self {
            Begin::Block => end.next_multiple_of(BLOCK_BYTES),
            Begin::Behind => end,
        }
    }

    /// Notes it in a batch that is sealed already.
    pub fn put(self, batch: &mut [u8]) {
        batch[..4].copy_from_slice(&self.magic());
    }
}

/// The fields of a batch's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Where it begins.
    pub begin: Begin,
    /// The generation.
    pub salts: Salts,
    /// Sequence number within its generation, from 1.
    pub sequence: u32,
    /// The CRC-32C of the batch before.
    pub previous: u32,
    /// Its first frame.
    pub first: FrameNo,
    /// The number of its frames.
    pub frames: u32,
    /// Whether the last of them ends a transaction.
    pub ends_transaction: bool,
    /// Bytes of the records.
    pub record_bytes: u32,
    /// Its own CRC-32C.
    pub crc: u32,
}

/// The CRC-32C that the first batch of a generation carries in place of an earlier one.
pub fn origin(salts: Salts) -> u32 {
    crc32c::crc32c(&salts.0)
}

impl Batch {
    /// Bytes of the header and the records.
    pub fn end(&self) -> usize {
        HEADER_BYTES + self.record_bytes as usize
    }

    /// Where a batch at byte `offset` ends: the next one may begin there.
    pub fn end_at(&self, offset: u64) -> u64 {
        (offset + self.end() as u64).next_multiple_of(ALIGN_BYTES)
    }

    /// Reads a header; `None` if there is none.
    pub fn parse(bytes: &[u8]) -> Option<Batch> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let begin = [Begin::Block, Begin::Behind]
            .into_iter()
            .find(|begin| bytes[..4] == begin.magic())?;
        let frames = be32(bytes, 28);
        let batch = Batch {
            begin,
            crc: be32(bytes, 4),
            salts: Salts(array(&bytes[8..16])),
            sequence: be32(bytes, 16),
            previous: be32(bytes, 20),
            first: FrameNo(be32(bytes, 24)),
            frames: frames & !ENDS_TRANSACTION,
            ends_transaction: frames & ENDS_TRANSACTION != 0,
            record_bytes: be32(bytes, 32),
        };
        let is_one = batch.first.0 != 0
            && batch.frames != 0
            && batch.first.0.checked_add(batch.frames).is_some()
            && batch.record_bytes <= MAX_RECORD_BYTES;
        is_one.then_some(batch)
    }

    /// Writes the header to the start of `bytes`, which hold the records after it. Returns the
    /// CRC-32C.
    pub fn seal(&self, bytes: &mut [u8]) -> u32 {
        let frames = self.frames
            | if self.ends_transaction {
                ENDS_TRANSACTION
            } else {
                0
            };
        self.begin.put(bytes);
        bytes[8..16].copy_from_slice(&self.salts.0);
        for (at, value) in [
            (16, self.sequence),
            (20, self.previous),
            (24, self.first.0),
            (28, frames),
            (32, self.record_bytes),
        ] {
            bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        let crc = Batch::crc_of(&bytes[..HEADER_BYTES + self.record_bytes as usize]);
        bytes[4..8].copy_from_slice(&crc.to_be_bytes());
        crc
    }

    /// The CRC-32C of a header and its records.
    pub fn crc_of(bytes: &[u8]) -> u32 {
        crc32c::crc32c(bytes.get(8..).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Batch {
        Batch {
            begin: Begin::Block,
            salts: Salts([9; 8]),
            sequence: 3,
            previous: 77,
            first: FrameNo(5),
            frames: 2,
            ends_transaction: true,
            record_bytes: 50,
            crc: 0,
        }
    }

    #[test]
    fn what_is_sealed_is_parsed() {
        let mut bytes = vec![6; 4096];
        let crc = batch().seal(&mut bytes);
        let read = Batch::parse(&bytes).expect("a batch");
        assert_eq!(read, Batch { crc, ..batch() });
        assert_eq!(Batch::crc_of(&bytes[..HEADER_BYTES + 50]), crc);
        assert_eq!(read.end_at(4096), 4096 + 96);
    }

    #[test]
    fn a_batch_that_moves_to_the_next_block_stays_whole() {
        let mut bytes = vec![6; HEADER_BYTES + 50];
        let behind = Batch {
            begin: Begin::Behind,
            ..batch()
        };
        let crc = behind.seal(&mut bytes);
        assert_eq!(Batch::parse(&bytes), Some(Batch { crc, ..behind }));
        Begin::Block.put(&mut bytes);
        assert_eq!(Batch::parse(&bytes), Some(Batch { crc, ..batch() }));
        assert_eq!(Batch::crc_of(&bytes), crc);
    }

    #[test]
    fn every_flipped_bit_of_header_and_records_shows() {
        let mut bytes = vec![6; HEADER_BYTES + 50];
        batch().seal(&mut bytes);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let read = Batch::parse(&damaged);
            let whole = read.filter(|batch| {
                let end = HEADER_BYTES + batch.record_bytes as usize;
                damaged
                    .get(..end)
                    .is_some_and(|all| Batch::crc_of(all) == batch.crc)
            });
            assert_eq!(whole, None, "bit {bit}");
        }
    }
}
