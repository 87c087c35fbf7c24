//! The users of a database: its locks, and the last commit in the wal-index.
//!
//! This code only queries and reads; it locks nothing. It opens and closes the files, so no
//! connection of this process may have the database open: closing a descriptor would drop SQLite's
//! locks.

use std::io::{self, Read};
use std::path::Path;

use onewrite::log::shared;
use onewrite::storage::{Holder, is_byte_locked, lock_holders};

use super::look::companion;
use crate::regular::open_regular;

/// A byte of the database that SQLite locks with every lock it takes: the first of the range for
/// SHARED.
const SHARED_BYTE: i32 = 0x4000_0002;
/// The byte of `-shm` that each process with the wal-index open holds locked.
const INDEX_BYTE: i32 = 128;

/// The bytes of `-shm` that readers lock, one for each read mark.
const READ_BYTES: std::ops::Range<i32> = 123..128;

/// Bytes of one copy of the wal-index' header; there are two.
const INDEX_HEADER_BYTES: usize = 48;
/// Bytes of the wal-index before its frames: the header's copies, and `WalCkptInfo`.
const INDEX_BYTES: usize = 136;
/// In `WalCkptInfo`: `nBackfill`, then `aReadMark`.
const BACKFILLED_AT: usize = 96;
const READ_MARKS_AT: usize = 100;
/// SQLite changes one copy after the other. They are compared up to this often.
const READS: u32 = 20;

/// The last commit in the wal-index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Published {
    /// The generation's salts.
    pub salts: [u8; 8],
    /// The last frame of the last commit.
    pub last_frame: u32,
    /// Counts the transactions since the wal-index was made, of all connections.
    pub changes: u32,
    /// It is of this run of the system. So no commit after that frame was acknowledged, unless
    /// recovery dropped it. Otherwise it may be older than the log.
    pub is_recent: bool,
}

/// How far checkpoints and readers are behind the last commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The last frame of the last commit.
    pub last_frame: u32,
    /// Frames that checkpoints have copied to the database.
    pub checkpointed: u32,
    /// The last frame that the readers of each read mark in use see; `None` for those that read the
    /// database alone.
    pub readers: Vec<Option<u32>>,
    /// The generation's salts.
    pub salts: [u8; 8],
    /// The read marks in use that are older than the last frame.
    pub behind: Vec<Mark>,
}

/// A read mark in use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Mark {
    /// The last frame that its readers see.
    pub frame: u32,
    /// The byte of `-shm` that they lock.
    byte: i32,
}

/// A process that reads an older state than that of the last commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reader {
    /// Its number.
    pub pid: u32,
    /// The name of its program.
    pub program: String,
    /// The last frame that it sees.
    pub frame: u32,
}

/// Whether another process has the database open, as far as locks show. In a rollback mode they
/// show only transactions.
///
/// # Errors
/// A file cannot be opened.
pub fn has_users(database: &Path) -> io::Result<bool> {
    if is_byte_locked(open_regular(database)?, SHARED_BYTE)? {
        return Ok(true);
    }
    match open_regular(companion(database, "-shm")) {
        Ok(index) => is_byte_locked(index, INDEX_BYTE),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// The last commit in the database's wal-index; `None` without a valid wal-index.
pub fn published(database: &Path) -> Option<Published> {
    let path = companion(database, "-shm");
    (0..READS).find_map(|_| {
        let mut bytes = [0; 2 * INDEX_HEADER_BYTES];
        open_regular(&path).ok()?.read_exact(&mut bytes).ok()?;
        parse(&bytes, is_of_this_run(database))
    })
}

/// Whether the wal-index of a database names no commit: it is zeros, or SQLite made it over a log
/// without frames.
pub fn names_no_commit(database: &Path) -> bool {
    let mut bytes = [0; 2 * INDEX_HEADER_BYTES];
    let Ok(index) = open_regular(companion(database, "-shm")) else {
        return false;
    };
    let mut begin = Vec::new();
    if index
        .take(bytes.len() as u64)
        .read_to_end(&mut begin)
        .is_err()
    {
        return false;
    }
    bytes[..begin.len()].copy_from_slice(&begin);
    bytes.iter().all(|&byte| byte == 0) || parse(&bytes, false).is_some_and(|it| it.last_frame == 0)
}

/// The progress of checkpoints and readers; `None` without a valid wal-index.
pub fn progress(database: &Path) -> Option<Progress> {
    let path = companion(database, "-shm");
    (0..READS).find_map(|_| {
        let mut bytes = [0; INDEX_BYTES];
        open_regular(&path).ok()?.read_exact(&mut bytes).ok()?;
        let published = parse(bytes.first_chunk()?, false)?;
        let is_held = |byte| open_regular(&path).and_then(|index| is_byte_locked(index, byte));
        let held = READ_BYTES
            .enumerate()
            .filter(|(_, byte)| is_held(*byte).unwrap_or(false));
        // The first mark is for readers that need no frame.
        let frame = |mark| (mark > 0).then(|| word(&bytes, READ_MARKS_AT + 4 * mark));
        let held: Vec<_> = held.map(|(mark, byte)| (frame(mark), byte)).collect();
        let mut behind: Vec<Mark> = held
            .iter()
            .filter_map(|(frame, byte)| {
                let frame = frame.filter(|it| *it < published.last_frame)?;
                Some(Mark { frame, byte: *byte })
            })
            .collect();
        behind.sort_unstable();
        Some(Progress {
            last_frame: published.last_frame,
            checkpointed: word(&bytes, BACKFILLED_AT),
            salts: published.salts,
            behind,
            readers: held.into_iter().map(|(frame, _)| frame).collect(),
        })
    })
}

/// The processes that read with these read marks, as far as this user can see them. The oldest comes
/// first.
pub fn readers_with(database: &Path, marks: &[Mark]) -> Vec<Reader> {
    if marks.is_empty() {
        return Vec::new();
    }
    let bytes = READ_BYTES.start.unsigned_abs().into()..READ_BYTES.end.unsigned_abs().into();
    let reader = |holder: Holder| {
        let holds = |mark: &&Mark| holder.bytes.contains(&u64::from(mark.byte.unsigned_abs()));
        let frame = marks.iter().filter(holds).map(|mark| mark.frame).min()?;
        Some(Reader {
            pid: holder.pid,
            program: holder.program,
            frame,
        })
    };
    let holders = lock_holders(&companion(database, "-shm"), bytes);
    let mut readers: Vec<Reader> = holders.into_iter().filter_map(reader).collect();
    readers.sort_by_key(|reader| reader.frame);
    readers
}

/// A word in the machine's byte order; 0 beyond the end.
fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u32::from_ne_bytes(*word))
}

/// Whether a process has used a onewrite log of this database in this run of the system.
fn is_of_this_run(database: &Path) -> bool {
    let mut begin = [0; 8];
    open_regular(companion(database, "-onewrite-shm"))
        .and_then(|mut page| page.read_exact(&mut begin))
        .is_ok_and(|()| shared::is_of_this_run(&begin))
}

/// Two copies of SQLite's `WalIndexHdr`, in the machine's byte order: byte 8 is `iChange`, 12
/// `isInit`, 16 `mxFrame`, 32 `aSalt` (as in the log).
fn parse(bytes: &[u8; 2 * INDEX_HEADER_BYTES], is_recent: bool) -> Option<Published> {
    let (one, other) = bytes.split_at(INDEX_HEADER_BYTES);
    if one != other || one[12] == 0 {
        return None;
    }
    Some(Published {
        salts: *one[32..].first_chunk()?,
        last_frame: u32::from_ne_bytes(*one[16..].first_chunk()?),
        changes: u32::from_ne_bytes(*one[8..].first_chunk()?),
        is_recent,
    })
}
