//! SQLite's wal-index: its header, and what the engine takes from it.

use super::{Checksum, FrameNo, Salts, checksum};

/// Words of one copy of the header. Two copies stand at the start of the wal-index.
pub const INDEX_HEADER_WORDS: usize = 12;

/// The state in the wal-index now, as far as the connection has mapped it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexView {
    /// The present generation.
    pub salts: Salts,
    /// The last published frame.
    pub last_frame: FrameNo,
    /// The checksum at that frame.
    pub checksum: [u8; 8],
}

/// SQLite's `WalIndexHdr`: version, unused, change counter, flags and page size, last frame, pages,
/// checksum of the last frame, salts, checksum of the words before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexHeader {
    words: [u32; INDEX_HEADER_WORDS],
}

impl IndexHeader {
    /// A copy as it is in memory.
    pub fn new(words: [u32; INDEX_HEADER_WORDS]) -> IndexHeader {
        IndexHeader { words }
    }

    /// Its words.
    pub fn words(&self) -> [u32; INDEX_HEADER_WORDS] {
        self.words
    }

    /// Whether the word with `isInit` is zero: it was never written, or was made invalid.
    pub fn is_unset(&self) -> bool {
        self.words[3] == 0
    }

    /// The header of a log that restarts, without frames.
    pub fn restarted(&self, salt: [u8; 4]) -> IndexHeader {
        let mut words = self.words;
        words[4] = 0;
        // Salts are stored as bytes, big-endian.
        let first = u32::from_be_bytes(words[8].to_ne_bytes()).wrapping_add(1);
        words[8] = u32::from_ne_bytes(first.to_be_bytes());
        words[9] = u32::from_ne_bytes(salt);
        IndexHeader { words }.summed()
    }

    /// The same header with another checksum of the last frame.
    pub fn with_frame_checksum(&self, sum: Checksum) -> IndexHeader {
        let mut words = self.words;
        words[6..8].copy_from_slice(&sum);
        IndexHeader { words }.summed()
    }

    fn summed(mut self) -> IndexHeader {
        let sum = self.checksum();
        self.words[10..].copy_from_slice(&sum);
        self
    }

    /// SQLite's checksum of the words before it, in this machine's byte order.
    fn checksum(&self) -> Checksum {
        let mut bytes = [0; 40];
        for (bytes, word) in bytes.chunks_exact_mut(4).zip(self.words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        checksum(cfg!(target_endian = "big"), [0, 0], &bytes)
    }

    /// Whether `isInit` is set and the checksum is right: the header is not being written.
    pub fn is_whole(&self) -> bool {
        self.words[3].to_ne_bytes()[0] != 0 && self.words[10..] == self.checksum()
    }

    /// The state that the header describes.
    pub fn view(&self) -> IndexView {
        let pair = |first: [u8; 4], second: [u8; 4]| {
            let mut both = [0; 8];
            both[..4].copy_from_slice(&first);
            both[4..].copy_from_slice(&second);
            both
        };
        let words = &self.words;
        IndexView {
            salts: Salts(pair(words[8].to_ne_bytes(), words[9].to_ne_bytes())),
            last_frame: FrameNo(words[4]),
            checksum: pair(words[6].to_be_bytes(), words[7].to_be_bytes()),
        }
    }
}
