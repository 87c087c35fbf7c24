//! The controller's data in the out-of-band area of each page, which describes the page.
//!
//! Integers are big-endian.
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 1 | kind: 1 data, 2 data of a transaction, 3 a piece of the page map, 4 a piece of the X-L2P table, 5 root, 6 padding |
//! | 1 | 1 | 0, or 1 if the page's content was lost to bit errors: reads of it fail |
//! | 2 | 2 | zero |
//! | 4 | 4 | logical page; of a piece, its number; of the root, 0 |
//! | 8 | 8 | sequence number: every page that the controller programs has the next one |
//! | 16 | 8 | transaction; 0 for every kind but 2 |
//! | 24 | 4 | times that the block was erased |
//! | 28 | 4 | CRC-32C of the data |
//! | 32 | 4 | zero |
//! | 36 | 4 | CRC-32C of bytes 0 to 35 |

use super::{Lpn, Tid};
use crate::nand::{OOB_BYTES, OobBytes};

/// The content of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A logical page as everybody sees it.
    Data(Lpn),
    /// A logical page as one transaction wrote it. It counts only if a committed entry in the X-L2P
    /// table names this very page.
    Transaction(Tid, Lpn),
    /// A piece of the page map.
    Map(u32),
    /// A piece of the X-L2P table.
    Table(u32),
    /// The places of the pieces.
    Root,
    /// Nothing: it completes a pair of pages.
    Padding,
}

impl Content {
    /// Whether it belongs to the controller's own bookkeeping.
    pub(crate) fn is_meta(self) -> bool {
        matches!(self, Self::Map(_) | Self::Table(_) | Self::Root)
    }

    /// In words, for messages.
    pub(crate) fn words(self) -> String {
        match self {
            Self::Data(lpn) => format!("logical page {}", lpn.0),
            Self::Transaction(tid, lpn) => {
                format!("logical page {} of transaction {}", lpn.0, tid.0)
            }
            Self::Map(number) => format!("piece {number} of the page map"),
            Self::Table(number) => format!("piece {number} of the X-L2P table"),
            Self::Root => "the root".to_owned(),
            Self::Padding => "padding".to_owned(),
        }
    }
}

/// Whether a page has its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Yes.
    Whole,
    /// No: it stands for a page that could not be read any more.
    Lost,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Oob {
    pub(crate) content: Content,
    pub(crate) kept: Kept,
    pub(crate) sequence: u64,
    pub(crate) erases: u32,
    pub(crate) data_crc: u32,
}

impl Oob {
    pub(crate) fn encode(&self) -> OobBytes {
        let (kind, number, transaction) = match self.content {
            Content::Data(lpn) => (1, lpn.0, 0),
            Content::Transaction(tid, lpn) => (2, lpn.0, tid.0),
            Content::Map(piece) => (3, piece, 0),
            Content::Table(piece) => (4, piece, 0),
            Content::Root => (5, 0, 0),
            Content::Padding => (6, 0, 0),
        };
        let mut bytes = [0; OOB_BYTES];
        bytes[0] = kind;
        bytes[1] = u8::from(self.kept == Kept::Lost);
        bytes[4..8].copy_from_slice(&number.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[16..24].copy_from_slice(&transaction.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.erases.to_be_bytes());
        bytes[28..32].copy_from_slice(&self.data_crc.to_be_bytes());
        let crc = crc32c::crc32c(&bytes[..36]);
        bytes[36..].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// `None` if the controller did not write these bytes.
    pub(crate) fn decode(bytes: &OobBytes) -> Option<Self> {
        if crc32c::crc32c(&bytes[..36]) != be32(bytes, 36) {
            return None;
        }
        let (number, transaction) = (be32(bytes, 4), be64(bytes, 16));
        let content = match bytes[0] {
            1 => Content::Data(Lpn(number)),
            2 => Content::Transaction(Tid(transaction), Lpn(number)),
            3 => Content::Map(number),
            4 => Content::Table(number),
            5 => Content::Root,
            6 => Content::Padding,
            _ => return None,
        };
        let kept = match bytes[1] {
            0 => Kept::Whole,
            1 => Kept::Lost,
            _ => return None,
        };
        Some(Self {
            content,
            kept,
            sequence: be64(bytes, 8),
            erases: be32(bytes, 24),
            data_crc: be32(bytes, 28),
        })
    }
}

/// The four bytes at an offset. The caller ensures that it is within.
pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(word)
}

/// The eight bytes at an offset. The caller ensures that it is within.
pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_is_decoded_and_no_byte_may_differ() {
        for content in [
            Content::Data(Lpn(7)),
            Content::Transaction(Tid(1 << 40), Lpn(u32::MAX)),
            Content::Map(3),
            Content::Table(0),
            Content::Root,
            Content::Padding,
        ] {
            let kept = match content {
                Content::Data(_) => Kept::Lost,
                _ => Kept::Whole,
            };
            let oob = Oob {
                content,
                kept,
                sequence: 1 << 50,
                erases: 3000,
                data_crc: 0xDEAD_BEEF,
            };
            let bytes = oob.encode();
            assert_eq!(Oob::decode(&bytes), Some(oob));
            for at in 0..OOB_BYTES {
                let mut bytes = bytes;
                bytes[at] ^= 1;
                assert_eq!(Oob::decode(&bytes), None, "byte {at}");
            }
        }
    }
}
