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
