//! The first block of a `-onewrite` log: its format, its database, and whether it holds frames.
//!
//! ```text
//! offset  bytes
//!      0      8  "onewrite"
//!      8      4  format version: 4 if batches share blocks, with layout packed;
//!                else 3 if writers lock each other out in a separate file;
//!                before: 2 with layout gathered, else 1
//!     12      4  journal mode that the file remembers: 1 direct, 2 waldio
//!     16      4  layout: 0 stock, 1 embedded, 2 sector, 3 page4k, 4 page8k, 5 compressed, 6 packed,
//!                7 gathered
//!     20      4  page size in bytes, 0 while no database uses the log
//!     24      8  log id: the database's header carries the same while it is guarded
//!     32     32  SQLite's WAL header; all zero while the log is empty
//!     64      4  the device whose pace follows, by a checksum of its identity; 0 if none was timed
//!     68      4  microseconds that a write-through write takes there
//!     72      4  microseconds that a write and a flush take there
//!     76      4  1: the log is at rest, and its database's header on the device is without the guard; else 0
//!     80     44  zero
//!    124      4  CRC-32C of bytes 0 to 123
//! ```
//!
//! Integers are big-endian, as in SQLite's own files. The header fits in one 512-byte sector, so a
//! torn write leaves the old or the new one. `commit` and the guard write it; every open of a log
//! parses it.

use std::fmt;
use std::io;

use super::scan::LogBytes;
use crate::mode::{JournalMode, Layout};
use crate::storage::pace::{KnownPace, Pace};
use crate::waits::{HEADER, Try, try_times};
use crate::wal::{self, PageSize, WalHeader, array, be32};

/// Bytes of the block with the header.
pub const BLOCK_BYTES: usize = 4096;
/// Bytes of the header itself: less than a sector.
pub const HEADER_BYTES: usize = 128;

/// The offset of SQLite's WAL header in it.
pub const WAL_AT: usize = 32;

/// How much of a log to read that begins with zeros.
const MAX_BLANK_BYTES: u64 = 16 << 20;
const MAGIC: &[u8; 8] = b"onewrite";
/// The newest version of the format that is written and read.
pub const VERSION: u32 = 4;
/// The version of all layouts but `packed`, and of `packed` while each batch had blocks of its own.
const VERSION_3: u32 = 3;
/// The version of the layout `gathered`, while writers still locked the log itself.
const VERSION_2: u32 = 2;
/// The version before the layout `gathered` existed.
const VERSION_1: u32 = 1;
const CRC_AT: usize = HEADER_BYTES - 4;

/// Ties a log to the one database whose header carries the same id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogId(pub [u8; 8]);

impl LogId {
    /// A new id, never zero, from the system's random numbers.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> std::io::Result<LogId> {
        let mut id = [0; 8];
        getrandom::fill(&mut id).map_err(|e| std::io::Error::other(e.to_string()))?;
        id[0] |= 1;
        Ok(LogId(id))
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The file in which writers lock each other out: all processes that have a log open must use the
/// same one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locks {
    /// The log, where a read-only process can block them. So before version 3, and where no process
    /// locks.
    InTheLog,
    /// A separate file.
    InAFileOfTheirOwn,
}

/// Whether batches share blocks, in layout `packed`. All processes that have a log open must be able to
/// read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Batches {
    /// Each has blocks of its own. So before version 4, and in every other layout.
    OwnBlocks,
    /// Those of a group share blocks.
    ShareBlocks,
}

/// The content of a log's first block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogHeader {
    /// The mode that the database had when it was last closed, or has now.
    pub mode: JournalMode,
    /// How frames lie in the log.
    pub layout: Layout,
    /// The database's page size; `None` while no database uses the log.
    pub page_size: Option<PageSize>,
    /// The id of the database that the log belongs to.
    pub id: LogId,
    /// Where writers lock each other out.
    pub locks: Locks,
    /// Whether batches share blocks.
    pub batches: Batches,
    /// SQLite's WAL header as it was written; zeros in an empty log.
    pub wal: [u8; wal::HEADER_BYTES],
    /// The pace of durable writes. A program may ignore it.
    pub pace: Option<KnownPace>,
    /// Whether the database was closed, and is on the device without the guard.
    pub at_rest: bool,
}

impl LogHeader {
    /// The header of a log that holds no frames.
    pub fn empty(
        mode: JournalMode,
        layout: Layout,
        page_size: Option<PageSize>,
        id: LogId,
    ) -> Self {
        LogHeader {
            mode,
            layout,
            page_size,
            id,
            locks: match layout {
                // The file only remembers a mode.
                Layout::Stock => Locks::InTheLog,
                _ => Locks::InAFileOfTheirOwn,
            },
            batches: match layout {
                Layout::Packed => Batches::ShareBlocks,
                _ => Batches::OwnBlocks,
            },
            wal: [0; wal::HEADER_BYTES],
            pace: None,
            at_rest: false,
        }
    }

    /// Whether SQLite sees no log at all.
    pub fn is_empty(&self) -> bool {
        self.wal == [0; wal::HEADER_BYTES]
    }

    /// SQLite's header, if SQLite would accept it.
    pub fn wal_header(&self) -> Option<WalHeader> {
        WalHeader::parse(&self.wal)
    }

    /// The format version of a log with this header.
    pub fn version(&self) -> u32 {
        match (self.locks, self.batches, self.layout) {
            (_, Batches::ShareBlocks, _) => VERSION,
            (Locks::InAFileOfTheirOwn, ..) => VERSION_3,
            (Locks::InTheLog, _, Layout::Gathered) => VERSION_2,
            (Locks::InTheLog, ..) => VERSION_1,
        }
    }

    /// The header as on disk.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let page_size = self.page_size.map_or(0, |size| size.bytes() as u32);
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&self.version().to_be_bytes());
        bytes[12..16].copy_from_slice(&self.mode.code().to_be_bytes());
        bytes[16..20].copy_from_slice(&self.layout.code().to_be_bytes());
        bytes[20..24].copy_from_slice(&page_size.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.id.0);
        bytes[32..64].copy_from_slice(&self.wal);
        if let Some(KnownPace { device, pace }) = self.pace {
            bytes[64..68].copy_from_slice(&device.to_be_bytes());
            bytes[68..72].copy_from_slice(&pace.write_through_us.to_be_bytes());
            bytes[72..76].copy_from_slice(&pace.write_and_flush_us.to_be_bytes());
        }
        bytes[76..80].copy_from_slice(&u32::from(self.at_rest).to_be_bytes());
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// Reads a header from the start of a log file; `bytes` are all that the file has there.
    ///
    /// # Errors
    /// The defect of the header. It never panics, whatever the bytes.
    pub fn parse(bytes: &[u8]) -> Result<LogHeader, HeaderError> {
        let magic = bytes.len().min(MAGIC.len());
        if bytes[..magic] != MAGIC[..magic] {
            return Err(HeaderError::Magic);
        }
        let bytes: &[u8; HEADER_BYTES] = bytes
            .first_chunk()
            .ok_or(HeaderError::Truncated(bytes.len()))?;
        // The checksum comes before the version, which may be damaged too. Every version has it here.
        let (found, expected) = (be32(bytes, CRC_AT), crc32c::crc32c(&bytes[..CRC_AT]));
        if found != expected {
            return Err(HeaderError::Checksum { found, expected });
        }
        let (locks, batches) = match be32(bytes, 8) {
            VERSION_1 | VERSION_2 => (Locks::InTheLog, Batches::OwnBlocks),
            VERSION_3 => (Locks::InAFileOfTheirOwn, Batches::OwnBlocks),
            VERSION => (Locks::InAFileOfTheirOwn, Batches::ShareBlocks),
            newer => return Err(HeaderError::Version(newer)),
        };
        let page_size = match be32(bytes, 20) {
            0 => None,
            n => Some(PageSize::new(n).ok_or(HeaderError::Field {
                name: "page size",
                value: n,
            })?),
        };
        let field = |name, at| HeaderError::Field {
            name,
            value: be32(bytes, at),
        };
        let header = LogHeader {
            mode: JournalMode::from_code(be32(bytes, 12)).ok_or(field("journal mode", 12))?,
            layout: Layout::from_code(be32(bytes, 16)).ok_or(field("layout", 16))?,
            page_size,
            id: LogId(array(&bytes[24..32])),
            locks,
            batches,
            wal: array(&bytes[32..64]),
            pace: parse_pace(bytes),
            at_rest: be32(bytes, 76) == 1,
        };
        let is_packed = header.layout == Layout::Packed;
        let may_be =
            header.version() == be32(bytes, 8) && (is_packed || batches == Batches::OwnBlocks);
        match may_be {
            true => Ok(header),
            false => Err(field("layout", 16)),
        }
    }
}

/// A pace that makes no sense is no reason to refuse a log: it is timed again.
fn parse_pace(bytes: &[u8; HEADER_BYTES]) -> Option<KnownPace> {
    let [device, through, flush] = [64, 68, 72].map(|at| be32(bytes, at));
    (device != 0 && through != 0 && flush != 0).then_some(KnownPace {
        device,
        pace: Pace {
            write_through_us: through,
            write_and_flush_us: flush,
        },
    })
}

/// A header, or what is wrong with it.
pub type Parsed = Result<LogHeader, HeaderError>;

/// Parses a header that others may be writing now.
///
/// # Errors
/// Those of `read`; inside, what is wrong with the header.
pub fn parse_whole<B: AsRef<[u8]>, E>(mut read: impl FnMut() -> Result<B, E>) -> Result<Parsed, E> {
    until_whole(
        || Ok(LogHeader::parse(read()?.as_ref())),
        |parsed| matches!(parsed, Err(HeaderError::Checksum { .. })),
    )
}

/// The header of a log that others may be making or writing now. `None` if the file was made and never
/// written: a process died there, or power failed when the file had its size already. A log's header is
/// durable before its database is guarded.
///
/// # Errors
/// Those of reading; inside, what is wrong with the header.
pub fn of(log: &impl LogBytes) -> io::Result<Option<Parsed>> {
    let mut is_lost = false;
    let look = || {
        let mut head = [0; HEADER_BYTES];
        let n = log.read_at(&mut head, 0)?;
        if !are_zeros(&head) {
            return Ok(Some(LogHeader::parse(&head[..n])));
        }
        // Bytes behind the zeros stay there, and a search for them may read much.
        is_lost = is_lost || first_behind(log, HEADER_BYTES)?.is_some();
        Ok(is_lost.then_some(Err(HeaderError::Lost)))
    };
    until_whole(look, |found| {
        matches!(
            found,
            Some(Err(HeaderError::Checksum { .. } | HeaderError::Lost))
        )
    })
}

/// Looks until the header is whole. A buffered read during a direct write can see half of it, and a log
/// may be made between two reads. So half a header counts only if it persists, for some 10 ms.
fn until_whole<T, E>(
    mut look: impl FnMut() -> Result<T, E>,
    is_half: impl Fn(&T) -> bool,
) -> Result<T, E> {
    let mut found = look()?;
    try_times(&HEADER, |number| {
        if number > 0 {
            found = look()?;
        }
        Ok(match is_half(&found) {
            true => Try::Later,
            false => Try::Done(()),
        })
    })?;
    Ok(found)
}

fn are_zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// The first byte that is not zero behind a log's header. The frames of a log begin there, and a sparse
/// file may claim any size. So no more is read than the blocks that a new log gets.
///
/// # Errors
/// Those of reading.
pub fn first_behind(log: &impl LogBytes, header: usize) -> io::Result<Option<u64>> {
    let mut bytes = vec![0; 64 << 10];
    let mut offset = header as u64;
    while offset < MAX_BLANK_BYTES {
        let n = log.read_at(&mut bytes, offset)?;
        if let Some(at) = bytes[..n].iter().position(|&byte| byte != 0) {
            return Ok(Some(offset + at as u64));
        }
        if n < bytes.len() {
            break;
        }
        offset += n as u64;
    }
    Ok(None)
}

/// Why the first block of a file is not the header of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderError {
    /// Zeros stand in its place, and something behind them.
    Lost,
    /// The file has only this many bytes.
    Truncated(usize),
    /// The file does not begin with the word "onewrite".
    Magic,
    /// Another version of the format wrote it.
    Version(u32),
    /// The header is damaged.
    Checksum {
        /// The CRC-32C in the header.
        found: u32,
        /// The CRC-32C of the bytes before it.
        expected: u32,
    },
    /// A value without a meaning in this version.
    Field {
        /// The field.
        name: &'static str,
        /// Its value.
        value: u32,
    },
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeaderError::Lost => f.write_str("the log was written, and has lost its header"),
            HeaderError::Truncated(len) => {
                write!(
                    f,
                    "the log is cut short: {len} bytes of a header of {HEADER_BYTES}"
                )
            }
            HeaderError::Magic => {
                f.write_str("not an onewrite log: it does not begin with \"onewrite\"")
            }
            HeaderError::Version(v) => {
                write!(
                    f,
                    "the log has format version {v}, this onewrite reads {VERSION}: use a newer onewrite"
                )
            }
            HeaderError::Checksum { found, expected } => {
                write!(
                    f,
                    "the log's header is damaged: CRC-32C {found:08x}, expected {expected:08x}"
                )
            }
            HeaderError::Field { name, value } => {
                write!(f, "the log's header is damaged: {name} {value}")
            }
        }
    }
}

impl std::error::Error for HeaderError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::Salts;

    fn header() -> LogHeader {
        let page_size = PageSize::new(4096);
        let mut header = LogHeader::empty(
            JournalMode::Waldio,
            Layout::Embedded,
            page_size,
            LogId(*b"\x01bcdefgh"),
        );
        let page_size = page_size.expect("4096 is a page size");
        header.wal = WalHeader::build(page_size, 1, Salts([9; 8])).bytes;
        header
    }

    #[test]
    fn what_is_written_is_read_back() {
        assert_eq!(LogHeader::parse(&header().to_bytes()), Ok(header()));
        assert!(!header().is_empty());
        assert!(header().wal_header().is_some());
        let at_rest = LogHeader {
            at_rest: true,
            ..header()
        };
        assert_eq!(LogHeader::parse(&at_rest.to_bytes()), Ok(at_rest));
    }

    #[test]
    fn the_pace_is_read_back_and_one_that_makes_no_sense_is_none() {
        let pace = Pace {
            write_through_us: 1640,
            write_and_flush_us: 660,
        };
        let mut header = header();
        header.pace = Some(KnownPace { device: 7, pace });
        assert_eq!(LogHeader::parse(&header.to_bytes()), Ok(header));
        let mut bytes = header.to_bytes();
        bytes[68..72].fill(0);
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_be_bytes());
        header.pace = None;
        assert_eq!(LogHeader::parse(&bytes), Ok(header));
    }

    #[test]
    fn every_flipped_bit_is_an_error() {
        for bit in 0..HEADER_BYTES * 8 {
            let mut damaged = header().to_bytes();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(LogHeader::parse(&damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_log_keeps_its_version() {
        assert_eq!(header().to_bytes()[11], 3);
        let mut older = header();
        older.locks = Locks::InTheLog;
        assert_eq!(older.to_bytes()[11], 1);
        assert_eq!(LogHeader::parse(&older.to_bytes()), Ok(older));
        let mut gathered = older;
        gathered.layout = Layout::Gathered;
        let mut bytes = gathered.to_bytes();
        assert_eq!(bytes[11], 2);
        assert_eq!(LogHeader::parse(&bytes), Ok(gathered));
        // An older version has no such layout.
        bytes[11] = 1;
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_be_bytes());
        let refused = Err(HeaderError::Field {
            name: "layout",
            value: 7,
        });
        assert_eq!(LogHeader::parse(&bytes), refused);
    }

    /// A log's content at each read of its beginning; it stays as the last one.
    struct Changing(std::cell::RefCell<Vec<Vec<u8>>>);

    impl LogBytes for Changing {
        fn size(&self) -> io::Result<u64> {
            self.0.borrow()[0].as_slice().size()
        }

        fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
            let mut contents = self.0.borrow_mut();
            let read = contents[0].as_slice().read_at(out, offset);
            if contents.len() > 1 {
                contents.remove(0);
            }
            read
        }
    }

    fn found_in<const N: usize>(contents: [Vec<u8>; N]) -> Option<Parsed> {
        of(&Changing(std::cell::RefCell::new(contents.into()))).expect("it is read")
    }

    #[test]
    fn a_log_that_is_made_between_two_reads_has_its_header() {
        let whole = [header().to_bytes().to_vec(), vec![7; 9000]].concat();
        assert_eq!(found_in([vec![], whole.clone()]), Some(Ok(header())));
        let zeros = vec![0; HEADER_BYTES];
        assert_eq!(found_in([zeros, whole.clone()]), Some(Ok(header())));
        let mut half = whole.clone();
        half[100..HEADER_BYTES].fill(0);
        assert_eq!(found_in([half, whole]), Some(Ok(header())));
    }

    #[test]
    fn zeros_are_a_log_that_was_never_written_unless_something_is_behind_them() {
        assert_eq!(found_in([vec![]]), None);
        assert_eq!(found_in([vec![0; 100]]), None);
        let mut zeros = vec![0; 200_000];
        assert_eq!(found_in([zeros.clone()]), None);
        zeros[199_999] = 1;
        assert_eq!(found_in([zeros]), Some(Err(HeaderError::Lost)));
    }

    /// A sparse file of any size.
    struct Endless;

    impl LogBytes for Endless {
        fn size(&self) -> io::Result<u64> {
            Ok(u64::MAX)
        }

        fn read_at(&self, out: &mut [u8], _: u64) -> io::Result<usize> {
            out.fill(0);
            Ok(out.len())
        }
    }

    #[test]
    fn a_hole_of_any_size_is_a_log_that_was_never_written() {
        assert_eq!(of(&Endless).expect("it is read"), None);
    }

    #[test]
    fn every_prefix_is_an_error() {
        for len in 0..HEADER_BYTES {
            let cut = &header().to_bytes()[..len];
            assert_eq!(LogHeader::parse(cut), Err(HeaderError::Truncated(len)));
        }
    }

    #[test]
    fn a_newer_version_says_so() {
        let mut newer = header().to_bytes();
        newer[11] = 9;
        // A damaged byte is no newer version.
        let damaged = LogHeader::parse(&newer);
        assert!(matches!(damaged, Err(HeaderError::Checksum { .. })));
        let crc = crc32c::crc32c(&newer[..CRC_AT]);
        newer[CRC_AT..].copy_from_slice(&crc.to_be_bytes());
        assert_eq!(LogHeader::parse(&newer), Err(HeaderError::Version(9)));
    }
}
