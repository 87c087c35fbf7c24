//! SQLite's write-ahead log, byte by byte as SQLite sees it.
//!
//! ```text
//! offset 0      WAL header, 32 bytes
//! offset 32     frame 1: header of 24 bytes, then one page
//! offset 32+f   frame 2, where f = 24 + page size
//! ```
//!
//! All integers are big-endian. Source: SQLite's "WAL file format"
//! (<https://sqlite.org/fileformat2.html#walformat>). A leaf module: all code that needs a frame's
//! position in SQLite's own log asks here.

pub mod faults;
mod index;

use std::fmt;
use std::ops::Range;

pub use index::{INDEX_WORDS, IndexHeader, IndexView, WalIndex, WritableIndex};

/// Bytes of the WAL header.
pub const HEADER_BYTES: usize = 32;
/// Bytes of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 24;
/// The range of the checksum in it.
pub const FRAME_CHECKSUM: Range<usize> = 16..24;
/// The WAL header's first word, without the bit that gives the checksum's byte order.
const MAGIC: u32 = 0x377f_0682;
/// The only version of the format.
const VERSION: u32 = 3_007_000;

/// Number of a frame in the log, from 1.
#[derive(Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FrameNo(pub u32);

impl FrameNo {
    /// The frames before this one, which is also its index counted from 0.
    pub fn index(self) -> u64 {
        u64::from(self.0.saturating_sub(1))
    }

    /// The frame `count` frames after this one.
    pub fn plus(self, count: u32) -> FrameNo {
        FrameNo(self.0.saturating_add(count))
    }
}

impl fmt::Display for FrameNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a page in the database, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageNo(pub u32);

/// Bytes of a database page: a power of two from 512 to 65,536.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PageSize(u32);

impl PageSize {
    /// `None` if SQLite has no such page size.
    pub fn new(bytes: u32) -> Option<PageSize> {
        ((512..=65_536).contains(&bytes) && bytes.is_power_of_two()).then_some(PageSize(bytes))
    }

    /// Reads bytes 16 and 17 of a database header, where 1 stands for 65,536.
    pub fn from_database_header(bytes: [u8; 2]) -> Option<PageSize> {
        match u16::from_be_bytes(bytes) {
            1 => PageSize::new(65_536),
            n => PageSize::new(u32::from(n)),
        }
    }

    /// The size in bytes.
    pub fn bytes(self) -> usize {
        self.0 as usize
    }

    /// Bytes of a frame: its header and its page.
    pub fn frame_bytes(self) -> usize {
        FRAME_HEADER_BYTES + self.bytes()
    }

    /// A frame's range in SQLite's log, in bytes.
    pub fn frame_range(self, frame: FrameNo) -> Range<u64> {
        let start = HEADER_BYTES as u64 + frame.index() * self.frame_bytes() as u64;
        start..start + self.frame_bytes() as u64
    }

    /// The frame that holds a byte of SQLite's log, and the byte's offset in the frame.
    /// `None` for the WAL header, and past the last frame that SQLite could number.
    pub fn locate(self, offset: u64) -> Option<(FrameNo, usize)> {
        let past_header = offset.checked_sub(HEADER_BYTES as u64)?;
        let index = u32::try_from(past_header / self.frame_bytes() as u64).ok()?;
        let within = (past_header % self.frame_bytes() as u64) as usize;
        Some((FrameNo(index.checked_add(1)?), within))
    }
}

/// The two salts of a log's generation: SQLite changes them whenever the log restarts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Salts(pub [u8; 8]);

impl Salts {
    /// The two salts, in this order.
    pub fn new(first: u32, second: u32) -> Salts {
        let [first, second] = [first, second].map(u32::to_be_bytes);
        Salts(array(&[first, second].concat()))
    }
}

/// The commits that follow each other in one generation, since the wal-index was last recovered. Recovery
/// may drop frames of a damaged log, and others come in their places with the same salts. Within one
/// history a published frame never changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct History {
    /// The generation.
    pub salts: Salts,
    /// The number of the recovery: [`IndexView::recovery`].
    pub recovery: u32,
}

impl From<Salts> for History {
    /// Of a log that no other process uses.
    fn from(salts: Salts) -> History {
        History { salts, recovery: 0 }
    }
}

/// The two running checksums of SQLite's log.
pub type Checksum = [u32; 2];

/// A WAL header whose magic number, version, page size and checksum are right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WalHeader {
    /// The header as it was read.
    pub bytes: [u8; HEADER_BYTES],
    /// Bytes of a page.
    pub page_size: PageSize,
    /// How many checkpoints had been made when the log restarted.
    pub checkpoints: u32,
    /// The generation.
    pub salts: Salts,
}

impl WalHeader {
    /// `None` if SQLite would find no valid data in the log.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<WalHeader> {
        let magic = be32(bytes, 0);
        let page_size = PageSize::new(be32(bytes, 8))?;
        let sum = checksum(magic & 1 == 1, [0, 0], &bytes[..24]);
        let valid = magic & !1 == MAGIC
            && be32(bytes, 4) == VERSION
            && sum == [be32(bytes, 24), be32(bytes, 28)];
        valid.then(|| WalHeader {
            bytes: *bytes,
            page_size,
            checkpoints: be32(bytes, 12),
            salts: Salts(array(&bytes[16..24])),
        })
    }

    /// The initial value for the checksum of frame 1.
    pub fn checksum(&self) -> Checksum {
        [be32(&self.bytes, 24), be32(&self.bytes, 28)]
    }

    /// Whether the checksums add big-endian words.
    pub fn big_endian_checksum(&self) -> bool {
        be32(&self.bytes, 0) & 1 == 1
    }

    /// The header of a log without frames, for SQLite's recovery. Its checksum is wrong: SQLite takes the
    /// salts before it compares that, and looks for no frame. Otherwise it would copy the rest of its
    /// buffer, and what was in that memory before, into the wal-index.
    pub fn without_frames(page_size: PageSize, salts: Salts) -> [u8; HEADER_BYTES] {
        let mut bytes = WalHeader::build(page_size, 0, salts).bytes;
        bytes[24] ^= 1;
        bytes
    }

    /// Builds the header of a log, checksummed in the byte order of this machine, as SQLite does.
    pub fn build(page_size: PageSize, checkpoints: u32, salts: Salts) -> WalHeader {
        let mut bytes = [0; HEADER_BYTES];
        let big_endian = cfg!(target_endian = "big");
        bytes[..4].copy_from_slice(&(MAGIC | u32::from(big_endian)).to_be_bytes());
        bytes[4..8].copy_from_slice(&VERSION.to_be_bytes());
        bytes[8..12].copy_from_slice(&page_size.0.to_be_bytes());
        bytes[12..16].copy_from_slice(&checkpoints.to_be_bytes());
        bytes[16..24].copy_from_slice(&salts.0);
        let sum = checksum(big_endian, [0, 0], &bytes[..24]);
        bytes[24..28].copy_from_slice(&sum[0].to_be_bytes());
        bytes[28..32].copy_from_slice(&sum[1].to_be_bytes());
        WalHeader {
            bytes,
            page_size,
            checkpoints,
            salts,
        }
    }
}

/// A frame's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// The page that the frame holds.
    pub page: PageNo,
    /// Pages of the database after the commit; 0 in a frame that does not end a transaction.
    pub commit_pages: u32,
    /// The generation that the frame belongs to.
    pub salts: Salts,
    /// Checksum over the WAL header and every frame up to this one.
    pub checksum: Checksum,
}

impl FrameHeader {
    /// Splits a frame's header into its fields; SQLite decides whether they make sense.
    pub fn parse(bytes: &[u8; FRAME_HEADER_BYTES]) -> FrameHeader {
        FrameHeader {
            page: PageNo(be32(bytes, 0)),
            commit_pages: be32(bytes, 4),
            salts: Salts(array(&bytes[8..16])),
            checksum: [be32(bytes, 16), be32(bytes, 20)],
        }
    }

    /// The header as in SQLite's log.
    pub fn to_bytes(self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.page.0.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.commit_pages.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.salts.0);
        bytes[16..20].copy_from_slice(&self.checksum[0].to_be_bytes());
        bytes[20..].copy_from_slice(&self.checksum[1].to_be_bytes());
        bytes
    }

    /// The header of a frame that follows one with the checksum `previous`.
    pub fn build(
        page: PageNo,
        commit_pages: u32,
        log: &WalHeader,
        previous: Checksum,
        data: &[u8],
    ) -> FrameHeader {
        let mut header = FrameHeader {
            page,
            commit_pages,
            salts: log.salts,
            checksum: previous,
        };
        header.checksum = header.expected_checksum(log, previous, data);
        header
    }

    /// Whether SQLite's recovery would accept this frame as the next of the log.
    pub fn follows(&self, log: &WalHeader, previous: Checksum, data: &[u8]) -> bool {
        self.salts == log.salts
            && self.page.0 != 0
            && self.checksum == self.expected_checksum(log, previous, data)
    }

    fn expected_checksum(&self, log: &WalHeader, previous: Checksum, data: &[u8]) -> Checksum {
        let big_endian = log.big_endian_checksum();
        let sum = checksum(big_endian, previous, &self.to_bytes()[..8]);
        checksum(big_endian, sum, data)
    }
}

/// SQLite's log checksum over `data`, whose length is a multiple of 8, continued from `start`.
pub fn checksum(big_endian: bool, start: Checksum, data: &[u8]) -> Checksum {
    let word = |w: &[u8]| match big_endian {
        true => u32::from_be_bytes(array(w)),
        false => u32::from_le_bytes(array(w)),
    };
    data.chunks_exact(8).fold(start, |[s1, s2], pair| {
        let s1 = s1.wrapping_add(word(&pair[..4])).wrapping_add(s2);
        let s2 = s2.wrapping_add(word(&pair[4..])).wrapping_add(s1);
        [s1, s2]
    })
}

/// Copies a slice whose length the caller knows; shorter input leaves zeros.
pub(crate) fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    let n = bytes.len().min(N);
    out[..n].copy_from_slice(&bytes[..n]);
    out
}

pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(&bytes[at..at + 4]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(bytes: u32) -> PageSize {
        PageSize::new(bytes).expect("a valid page size")
    }

    #[test]
    fn frames_lie_one_behind_the_other() {
        let page = size(4096);
        assert_eq!(page.frame_range(FrameNo(1)), 32..4152);
        assert_eq!(page.frame_range(FrameNo(2)), 4152..8272);
        assert_eq!(page.locate(31), None);
        assert_eq!(page.locate(32), Some((FrameNo(1), 0)));
        assert_eq!(page.locate(4152 + 24), Some((FrameNo(2), 24)));
        assert_eq!(page.locate(u64::MAX), None);
    }

    #[test]
    fn a_page_size_of_one_means_64_kib() {
        assert_eq!(
            PageSize::from_database_header([0, 1]),
            PageSize::new(65_536)
        );
        assert_eq!(
            PageSize::from_database_header([0x10, 0]),
            PageSize::new(4096)
        );
        assert_eq!(PageSize::from_database_header([0, 0]), None);
    }

    #[test]
    fn a_built_header_parses_and_a_flipped_bit_is_seen() {
        let header = WalHeader::build(size(1024), 7, Salts(*b"saltsalt"));
        assert_eq!(WalHeader::parse(&header.bytes), Some(header));
        for bit in 0..header.bytes.len() * 8 {
            let mut damaged = header.bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(WalHeader::parse(&damaged), None, "bit {bit}");
        }
    }

    #[test]
    fn a_frame_follows_only_its_predecessor() {
        let log = WalHeader::build(size(512), 0, Salts([3; 8]));
        let first = FrameHeader::build(PageNo(1), 0, &log, log.checksum(), &[1; 512]);
        let second = FrameHeader::build(PageNo(2), 2, &log, first.checksum, &[2; 512]);
        assert!(first.follows(&log, log.checksum(), &[1; 512]));
        assert!(second.follows(&log, first.checksum, &[2; 512]));
        assert!(!second.follows(&log, log.checksum(), &[2; 512]));
        assert!(!second.follows(&log, first.checksum, &[3; 512]));
        assert_eq!(FrameHeader::parse(&second.to_bytes()), second);
    }
}
