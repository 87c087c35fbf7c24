//! The bytes of a database's header that the guard uses, and their meaning. Pure functions:
//! [`super::guard`] decides who reads and writes the header, and under which lock.

use std::ops::Range;

use crate::log::{ErrorKind, Geometry, LogError, LogId};
use crate::mode::Layout;
use crate::wal::{FRAME_HEADER_BYTES, PageSize, array, be32};

/// The read version on disk while the database is guarded. Bit 7 keeps it above every version that
/// SQLite could reach.
pub const GUARD_BYTE: u8 = 0xA1;
/// The first bytes of every database.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// The read version of a database in WAL mode.
pub(super) const WAL_VERSION: u8 = 2;
/// Bytes of the database header.
pub const HEADER_BYTES: usize = 100;
pub(super) const READ_VERSION_AT: usize = 19;
pub(super) const ID_AT: usize = 72;
/// The offsets of the change counter: the counter itself, and the "version-valid-for" copy.
const COUNTERS_AT: [usize; 2] = [24, 92];
/// After the copy: the version of SQLite that has counted.
const COUNTED_BY_AT: usize = 96;

pub type Header = [u8; HEADER_BYTES];

/// The range of the change counter and its related fields, if two versions of page 1 differ only
/// there.
pub(super) fn only_counters_differ(page: &[u8], other: &[u8]) -> Option<Range<usize>> {
    let [counter, copy] = COUNTERS_AT;
    let parts = [0..counter, counter + 4..copy, COUNTED_BY_AT + 4..page.len()];
    let are_same = parts.into_iter().all(|part| {
        let pair = page.get(part.clone()).zip(other.get(part));
        pair.is_some_and(|(part, other)| part == other)
    });
    are_same.then_some(counter..COUNTED_BY_AT + 4)
}

/// The log that a database is guarded for, by the header on disk; `None` for a stock database, and
/// if this is not a header.
pub fn guarded_by(header: &[u8]) -> Option<LogId> {
    let header: &Header = header.first_chunk()?;
    let is_guarded = header.starts_with(MAGIC) && header[READ_VERSION_AT] == GUARD_BYTE;
    is_guarded.then(|| LogId(array(&header[ID_AT..ID_AT + 8])))
}

/// Whether bytes read from the database at `offset` look guarded.
pub(super) fn stands_in(bytes: &[u8], offset: u64) -> bool {
    let at = (READ_VERSION_AT as u64).checked_sub(offset);
    at.and_then(|at| bytes.get(at as usize)) == Some(&GUARD_BYTE)
}

/// Replaces the guard, in bytes read from the database at `offset`, with what SQLite expects there.
pub fn hide(bytes: &mut [u8], offset: u64) {
    if offset >= HEADER_BYTES as u64 {
        return;
    }
    let at = |position: usize| position.checked_sub(offset as usize);
    if let Some(version) = at(READ_VERSION_AT).and_then(|i| bytes.get_mut(i))
        && *version == GUARD_BYTE
    {
        *version = WAL_VERSION;
    }
    for position in ID_AT..ID_AT + 8 {
        if let Some(byte) = at(position).and_then(|i| bytes.get_mut(i)) {
            *byte = 0;
        }
    }
}

/// Puts the guard into page 1 before it is written.
pub fn keep(page: &mut [u8], id: LogId) {
    if page.len() >= HEADER_BYTES {
        page[READ_VERSION_AT] = GUARD_BYTE;
        page[ID_AT..ID_AT + 8].copy_from_slice(&id.0);
    }
}

/// Turns the header into that of a stock database in WAL mode.
pub(super) fn clear(header: &mut Header) {
    header[READ_VERSION_AT] = WAL_VERSION;
    header[ID_AT..ID_AT + 8].fill(0);
}

pub(super) fn is_of_a_database(header: &Header) -> bool {
    header.starts_with(MAGIC) && page_size(header).is_ok()
}

pub(super) fn page_size(header: &Header) -> Result<PageSize, LogError> {
    PageSize::from_database_header(array(&header[16..18])).ok_or_else(|| {
        let text = "the database header has an impossible page size";
        LogError::new(ErrorKind::Corrupt, std::path::Path::new("database"), text)
    })
}

/// Whether a layout can carry the database's pages; the error gives the reason.
pub(super) fn suits(layout: Layout, header: &Header) -> Result<(), String> {
    let page = page_size(header).map_err(|error| error.to_string())?;
    if layout == Layout::Embedded && usize::from(header[20]) < FRAME_HEADER_BYTES {
        return Err("it does not have the reserved bytes for journal mode waldio".into());
    }
    Geometry::new(layout, page, 1).map(drop)
}

/// Whether a database's first page, which starts with `page`, shows that no table was ever in it.
/// The schema has not changed, and its table is a leaf without cells.
pub(super) fn holds_no_table(page: &[u8]) -> bool {
    const SCHEMA_COUNTER_AT: usize = 40;
    const LEAF_OF_A_TABLE: u8 = 13;
    page.len() >= HEADER_BYTES + 8
        && page.starts_with(MAGIC)
        && be32(page, SCHEMA_COUNTER_AT) == 0
        && page[HEADER_BYTES] == LEAF_OF_A_TABLE
        && page[HEADER_BYTES + 3..HEADER_BYTES + 5] == [0, 0]
}

/// Increments the change counter, in both places.
pub(super) fn count_on(header: &mut Header) {
    let counter = be32(&header[..], COUNTERS_AT[0]).wrapping_add(1);
    for at in COUNTERS_AT {
        header[at..at + 4].copy_from_slice(&counter.to_be_bytes());
    }
}

/// The id in a guarded header.
pub(super) fn id_in(header: &Header) -> LogId {
    LogId(array(&header[ID_AT..ID_AT + 8]))
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;
    use std::hash::{BuildHasher, Hasher, RandomState};

    const INPUTS: u32 = 100_000;

    /// SplitMix64.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^ mixed >> 31
        }

        fn below(&mut self, most: usize) -> usize {
            (self.next() % most as u64) as usize
        }
    }

    fn seed() -> u64 {
        let given = std::env::var("ONEWRITE_TEST_SEED").ok();
        let given = given.map(|seed| seed.parse().expect("a number"));
        let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        println!("ONEWRITE_TEST_SEED={seed}");
        seed
    }

    /// Some bytes that may begin a database, often almost those of a real one.
    fn hostile(random: &mut Random) -> Vec<u8> {
        let mut bytes = vec![0; random.below(2 * HEADER_BYTES)];
        if random.next().is_multiple_of(4) {
            bytes.fill_with(|| random.next() as u8);
        }
        let mut put = |at: usize, part: &[u8]| {
            if let Some(place) = bytes.get_mut(at..at + part.len()) {
                place.copy_from_slice(part);
            }
        };
        put(0, MAGIC);
        let versions = [1, WAL_VERSION, GUARD_BYTE, GUARD_BYTE ^ 1, 0xFF];
        put(18, &[WAL_VERSION, versions[random.below(versions.len())]]);
        let sizes = [0u16, 1, 2, 256, 512, 1000, 4096, 32768, 65535];
        put(16, &sizes[random.below(sizes.len())].to_be_bytes());
        for _ in 0..random.below(4) {
            put(random.below(2 * HEADER_BYTES), &[random.next() as u8]);
        }
        bytes
    }

    fn check(bytes: &[u8], random: &mut Random) {
        let begins = bytes.len() >= HEADER_BYTES && bytes.starts_with(MAGIC);
        let is_guarded = begins && bytes[READ_VERSION_AT] == GUARD_BYTE;
        let id = is_guarded.then(|| LogId(array(&bytes[ID_AT..ID_AT + 8])));
        assert_eq!(guarded_by(bytes), id);
        assert!(!holds_no_table(bytes) || begins);
        let mut shown = bytes.to_vec();
        hide(&mut shown, 0);
        assert_eq!(guarded_by(&shown), None, "SQLite sees no guard");
        let offset = random.below(2 * HEADER_BYTES);
        let part = &bytes[offset.min(bytes.len())..];
        assert!(!stands_in(part, offset as u64) || offset <= READ_VERSION_AT);
        let mut same = part.to_vec();
        hide(&mut same, offset as u64);
        let rest = shown.get(offset..).unwrap_or_default();
        assert_eq!(same, rest, "a part is shown as the whole is");
        let changes = only_counters_differ(bytes, &shown);
        assert!(changes.is_none() || bytes == shown);
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return;
        };
        let size = u16::from_be_bytes([header[16], header[17]]);
        let is_size = size == 1 || size >= 512 && size.is_power_of_two();
        assert_eq!(page_size(header).is_ok(), is_size);
        assert_eq!(is_of_a_database(header), begins && is_size);
        for layout in [Layout::Packed, Layout::Embedded, Layout::Stock] {
            assert!(suits(layout, header).is_err() || is_size);
        }
        let mut kept = *header;
        keep(&mut kept, LogId([7; 8]));
        count_on(&mut kept);
        assert_eq!(guarded_by(&kept), begins.then_some(LogId([7; 8])));
        assert_eq!(id_in(&kept), LogId([7; 8]));
        clear(&mut kept);
        assert_eq!(guarded_by(&kept), None);
    }

    #[test]
    fn no_bytes_are_taken_for_a_header_that_they_are_not() {
        let mut random = Random(seed());
        for _ in 0..INPUTS {
            let bytes = hostile(&mut random);
            check(&bytes, &mut random);
        }
    }
}
