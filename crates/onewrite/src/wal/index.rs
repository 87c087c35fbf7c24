//! SQLite's wal-index (`walIndexHdr` and `WalCkptInfo` of wal.c): its words, and how they are read and
//! written while other processes do the same.
//!
//! | words | content |
//! | --- | --- |
//! | 0 to 11, 12 to 23 | two copies of the header |
//! | 24 | `nBackfill`: frames that checkpoints have copied |
//! | 25 to 29 | `aReadMark`: the last frame for each read lock |
//! | 30, 31 | bytes that SQLite locks |
//! | 32 | `nBackfillAttempted`: frames that a checkpoint may have copied |
//! | 33 | unused by SQLite: a number of ours for the last recovery, 0 if there was none |

use std::array;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::{Checksum, FrameNo, History, Salts};

/// Words of the two headers and of the words for checkpoints.
pub const INDEX_WORDS: usize = 34;
/// Words of one copy of the header.
const HEADER_WORDS: usize = 12;
/// SQLite writes the second copy first.
const COPIES: [usize; 2] = [HEADER_WORDS, 0];
const BACKFILLED: usize = 24;
const READ_MARKS: usize = 25;
const MOST_READ_LOCK: usize = 4;
/// The second one, which is 0 in a log without frames; the first is always 0.
const SECOND_READ_MARK: usize = 26;
/// The others; `UNUSED` in a log without frames.
const FREE_READ_MARKS: [usize; 3] = [27, 28, 29];
const UNUSED: u32 = 0xffff_ffff;
const BACKFILL_ATTEMPTED: usize = 32;
const RECOVERY: usize = 33;
/// A copy with a wrong checksum is being written, or was when its writer died.
const LOOKS: usize = 64;

/// Words of one copy of the header, by their places in it.
mod word {
    use std::ops::Range;

    /// `isInit`, the checksum's byte order, and the page size.
    pub const FLAGS: usize = 3;
    pub const LAST_FRAME: usize = 4;
    pub const FRAME_CHECKSUM: Range<usize> = 6..8;
    /// Bytes, big-endian.
    pub const SALTS: [usize; 2] = [8, 9];
    /// Of all words before it.
    pub const CHECKSUM: Range<usize> = 10..12;
}

/// The mapped wal-index.
#[derive(Clone, Copy, Debug)]
pub struct WalIndex<'a>(&'a [AtomicU32; INDEX_WORDS]);

impl<'a> WalIndex<'a> {
    /// The wal-index that begins with these words.
    pub fn new(words: &'a [AtomicU32; INDEX_WORDS]) -> WalIndex<'a> {
        WalIndex(words)
    }

    /// Every read goes through here. Later reads, of the wal-index and of the log, return nothing
    /// older.
    fn read<const N: usize>(&self, from: usize) -> [u32; N] {
        let words = array::from_fn(|word| match self.0.get(from + word) {
            Some(word) => word.load(Ordering::Relaxed),
            None => 0,
        });
        fence(Ordering::Acquire);
        words
    }

    fn word(&self, word: usize) -> u32 {
        let [word] = self.read(word);
        word
    }

    /// The first copy of the header, then the second.
    fn copies(&self) -> [IndexHeader; 2] {
        let words = self.read::<{ 2 * HEADER_WORDS }>(0);
        [0, HEADER_WORDS].map(|from| IndexHeader {
            words: array::from_fn(|word| words[from + word]),
        })
    }

    /// The present view; `None` while the wal-index is not valid.
    ///
    /// It has two copies of its header. SQLite writes the second, then the first, each with a
    /// checksum. While one is being written, the other is whole. A copy with a wrong checksum is
    /// ignored: it could name a generation that never existed.
    ///
    /// The number of the recovery changes only while both are invalid. So a header is of the number that
    /// was there before it was read and is there after it.
    pub fn view(&self) -> Option<IndexView> {
        for _ in 0..LOOKS {
            let recovery = self.word(RECOVERY);
            let is_its = || self.word(RECOVERY) == recovery;
            let first = IndexHeader {
                words: self.read(0),
            };
            if first.is_whole() && is_its() {
                return Some(first.view(recovery));
            }
            let copies = self.copies();
            if let Some(whole) = copies.iter().find(|copy| copy.is_whole())
                && is_its()
            {
                return Some(whole.view(recovery));
            }
            if copies.iter().all(|copy| copy.words[word::FLAGS] == 0) {
                break;
            }
        }
        None
    }

    /// How many frames checkpoints have written to the database.
    pub fn backfilled(&self) -> FrameNo {
        FrameNo(self.word(BACKFILLED))
    }

    /// The last frame that the readers of a read lock see, by the lock's number: 0 to 4.
    pub fn read_mark(&self, lock: usize) -> FrameNo {
        FrameNo(self.word(READ_MARKS + lock.min(MOST_READ_LOCK)))
    }

    /// How far a checkpoint may have got.
    pub fn backfill_attempted(&self) -> FrameNo {
        FrameNo(self.word(BACKFILL_ATTEMPTED))
    }
}

/// A wal-index that is mapped for writing too. Except for [`forget_backfill`](Self::forget_backfill)
/// the caller holds SQLite's write lock.
#[derive(Clone, Copy, Debug)]
pub struct WritableIndex<'a>(pub WalIndex<'a>);

impl WritableIndex<'_> {
    fn put(&self, word: usize, value: u32) {
        if let Some(word) = self.0.0.get(word) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Sets the number of copied frames to 0, if it still has this value: checkpoints then copy once
    /// more. If it has changed, another connection was first.
    pub fn forget_backfill(&self, known: FrameNo) {
        let word = &self.0.0[BACKFILLED];
        let _ = word.compare_exchange(known.0, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The present header; `None` if it is not valid.
    pub fn header(&self) -> Option<IndexHeader> {
        self.0.view()?;
        let [first, second] = self.0.copies();
        (first == second).then_some(first)
    }

    /// Makes the wal-index describe a restarted log, without frames, as SQLite's `walRestartHdr`
    /// does: the first salt goes up by one, the second is `salt`. Other connections see another
    /// header, and drop their cached pages. The caller also excludes readers of the log.
    pub fn restart(&self, before: &IndexHeader, salt: [u8; 4]) {
        self.put(BACKFILLED, 0);
        self.put(SECOND_READ_MARK, 0);
        for mark in FREE_READ_MARKS {
            self.put(mark, UNUSED);
        }
        self.put(BACKFILL_ATTEMPTED, 0);
        self.publish(&before.restarted(salt));
    }

    /// Puts another checksum of the last frame into the header: that of the log, if SQLite has
    /// published a different one.
    pub fn correct(&self, sum: Checksum) {
        if let Some(header) = self.header() {
            self.publish(&header.with_frame_checksum(sum));
        }
    }

    /// Recovery begins: its locks are held, and the header is invalid. So nobody sees frames that it drops
    /// with the header that it publishes. If it dies, the next one comes here again.
    ///
    /// It is no counter: a wal-index that is made again begins with 0, next to shared memory that may stay.
    /// Returns the number that it sets.
    pub fn note_recovery(&self, seed: u64) -> u32 {
        fence(Ordering::Release);
        let present = self.0.word(RECOVERY);
        let mixed = crc32c::crc32c(&(seed ^ u64::from(present)).to_ne_bytes());
        let new = [mixed, mixed.wrapping_add(1), mixed.wrapping_add(2)];
        let new = new.into_iter().find(|new| ![0, present].contains(new));
        let new = new.unwrap_or(1);
        self.put(RECOVERY, new);
        fence(Ordering::Release);
        new
    }

    /// Makes both copies of the header invalid, so that every connection, in every process, recovers
    /// from the log before it reads again. A stock process that recovers leaves the number that this sets.
    pub fn invalidate(&self) {
        for word in 0..2 * HEADER_WORDS {
            self.put(word, 0);
        }
        self.note_recovery(0);
    }

    /// Writes the header as SQLite's `walIndexWriteHdr` does. So a process that reads both copies
    /// finds them equal, or looks again.
    fn publish(&self, header: &IndexHeader) {
        for copy in COPIES {
            fence(Ordering::SeqCst);
            for (word, value) in header.words.into_iter().enumerate() {
                self.put(copy + word, value);
            }
        }
        fence(Ordering::SeqCst);
    }
}

/// The state in the wal-index now, as far as the connection has mapped it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexView {
    /// The present generation.
    pub salts: Salts,
    /// The last published frame.
    pub last_frame: FrameNo,
    /// The checksum at that frame.
    pub checksum: [u8; 8],
    /// The number of the last recovery. Frames that it has dropped are of another [`History`].
    pub recovery: u32,
}

impl IndexView {
    /// The history of the published frames.
    pub fn history(&self) -> History {
        History {
            salts: self.salts,
            recovery: self.recovery,
        }
    }
}

/// One copy of the header: version, unused, change counter, flags and page size, last frame, pages,
/// checksum of the last frame, salts, checksum of the words before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexHeader {
    words: [u32; HEADER_WORDS],
}

impl IndexHeader {
    /// The header of a log that restarts, without frames.
    fn restarted(&self, salt: [u8; 4]) -> IndexHeader {
        let mut words = self.words;
        let [first, second] = word::SALTS;
        words[word::LAST_FRAME] = 0;
        let next = u32::from_be_bytes(words[first].to_ne_bytes()).wrapping_add(1);
        words[first] = u32::from_ne_bytes(next.to_be_bytes());
        words[second] = u32::from_ne_bytes(salt);
        IndexHeader { words }.summed()
    }

    /// The same header with another checksum of the last frame.
    fn with_frame_checksum(&self, sum: Checksum) -> IndexHeader {
        let mut words = self.words;
        words[word::FRAME_CHECKSUM].copy_from_slice(&sum);
        IndexHeader { words }.summed()
    }

    fn summed(mut self) -> IndexHeader {
        let sum = self.checksum();
        self.words[word::CHECKSUM].copy_from_slice(&sum);
        self
    }

    /// SQLite's checksum of the words before it, in this machine's byte order.
    fn checksum(&self) -> Checksum {
        let pairs = self.words[..word::CHECKSUM.start].chunks_exact(2);
        pairs.fold([0, 0], |[s1, s2], pair| {
            let s1 = pair[0].wrapping_add(s1).wrapping_add(s2);
            [s1, pair[1].wrapping_add(s2).wrapping_add(s1)]
        })
    }

    /// Whether `isInit` is set and the checksum is right: the header is not being written.
    fn is_whole(&self) -> bool {
        self.words[word::FLAGS].to_ne_bytes()[0] != 0
            && self.words[word::CHECKSUM] == self.checksum()
    }

    /// The state that the header describes.
    fn view(&self, recovery: u32) -> IndexView {
        let pair = |first: [u8; 4], second: [u8; 4]| {
            let mut both = [0; 8];
            both[..4].copy_from_slice(&first);
            both[4..].copy_from_slice(&second);
            both
        };
        let words = &self.words;
        let salts = word::SALTS.map(|word| words[word].to_ne_bytes());
        let sum = word::FRAME_CHECKSUM.start;
        IndexView {
            salts: Salts(pair(salts[0], salts[1])),
            last_frame: FrameNo(words[word::LAST_FRAME]),
            checksum: pair(words[sum].to_be_bytes(), words[sum + 1].to_be_bytes()),
            recovery,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wal-index whose header names frame 7 of generation 1.
    fn words() -> [AtomicU32; INDEX_WORDS] {
        let words: [AtomicU32; INDEX_WORDS] = array::from_fn(|_| AtomicU32::new(9));
        let mut header = IndexHeader {
            words: [3_007_000, 0, 5, 0, 7, 4, 1, 2, 0, 0, 0, 0],
        };
        header.words[word::FLAGS] = u32::from_ne_bytes([1, 0, 0, 16]);
        header.words[word::SALTS[0]] = u32::from_ne_bytes([0, 0, 0, 1]);
        let index = WalIndex::new(&words);
        WritableIndex(index).publish(&header.summed());
        words
    }

    #[test]
    fn the_checksum_of_the_words_is_that_of_their_bytes() {
        let mut header = IndexHeader {
            words: [0; HEADER_WORDS],
        };
        for (word, n) in header.words.iter_mut().zip(1..) {
            *word = 0x9e37_79b9u32.wrapping_mul(n);
        }
        let bytes: Vec<u8> = header.words[..word::CHECKSUM.start]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let of_bytes = crate::wal::checksum(cfg!(target_endian = "big"), [0, 0], &bytes);
        assert_eq!(header.checksum(), of_bytes);
    }

    #[test]
    fn a_header_that_is_being_written_does_not_hide_the_other_one() {
        for torn in 0..2 * HEADER_WORDS {
            let words = words();
            let index = WalIndex::new(&words);
            assert_eq!(index.view().map(|view| view.last_frame), Some(FrameNo(7)));
            words[torn].fetch_xor(1 << 8, Ordering::Relaxed);
            assert_eq!(index.view().map(|view| view.last_frame), Some(FrameNo(7)));
            assert!(WritableIndex(index).header().is_none(), "word {torn}");
            // In both copies: none is believed.
            words[(torn + HEADER_WORDS) % (2 * HEADER_WORDS)].fetch_xor(1 << 8, Ordering::Relaxed);
            assert_eq!(index.view(), None, "word {torn}");
        }
    }

    #[test]
    fn a_restart_is_another_generation_without_frames() {
        let words = words();
        let index = WritableIndex(WalIndex::new(&words));
        let header = index.header().expect("valid");
        index.restart(&header, [4, 3, 2, 1]);
        let view = index.0.view().expect("valid");
        assert_eq!(view.salts, Salts([0, 0, 0, 2, 4, 3, 2, 1]));
        assert_eq!(view.last_frame, FrameNo(0));
        assert_eq!(index.0.backfilled(), FrameNo(0));
        assert_eq!(index.0.backfill_attempted(), FrameNo(0));
        let words = words.map(AtomicU32::into_inner);
        // The first read mark, the locks and the last word are not SQLite's to change then.
        assert_eq!(words[25..], [9, 0, UNUSED, UNUSED, UNUSED, 9, 9, 0, 9]);
    }

    #[test]
    fn a_corrected_checksum_is_in_both_copies_and_an_invalid_index_has_no_view() {
        let words = words();
        let index = WritableIndex(WalIndex::new(&words));
        index.correct([0x0102_0304, 5]);
        let view = index.0.view().expect("valid");
        assert_eq!(view.checksum, [1, 2, 3, 4, 0, 0, 0, 5]);
        assert!(index.header().is_some());
        index.forget_backfill(FrameNo(8));
        assert_eq!(index.0.backfilled(), FrameNo(9));
        index.forget_backfill(FrameNo(9));
        assert_eq!(index.0.backfilled(), FrameNo(0));
        index.invalidate();
        assert_eq!((index.0.view(), index.header()), (None, None));
    }

    /// A stock process that recovers publishes a header and leaves the number as it is.
    #[test]
    fn an_invalid_index_is_of_another_history_than_any_before() {
        let words = words();
        let index = WritableIndex(WalIndex::new(&words));
        let header = index.header().expect("valid");
        let history = || index.0.view().expect("valid").history();
        let mut seen = vec![history()];
        for _ in 0..100 {
            index.invalidate();
            index.publish(&header);
            assert_ne!(seen.last(), Some(&history()));
            seen.push(history());
        }
        seen.sort_unstable_by_key(|history| history.recovery);
        seen.dedup();
        assert_eq!(seen.len(), 101);
    }
}
