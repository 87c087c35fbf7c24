//! The interface of an engine behind SQLite's `btree.h`, next to the stock B-tree.
//!
//! An engine opens database files. A connection to a file has trees of entries. In a table the key
//! is an integer and the payload is the row. In an index the payload is the key, a record that only
//! SQLite can compare. Before a change to a tree the C part saves the places of all its other
//! cursors. So an engine's cursor never sees its tree change under it.

use std::cmp::Ordering;
use std::ffi::CStr;
use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::ptr;

use ::lsmvbt::{Abbreviation, Around, Change, Found, Payloads, Span};

use crate::ffi::DatabaseFile;

/// The number of bytes after the slice that must be readable for every payload that SQLite gets:
/// its record decoder reads past the end of a damaged record.
pub const READABLE_BEHIND: usize = 96;

/// An error of an engine.
#[derive(Debug)]
pub enum Error {
    /// Another connection holds the lock.
    Busy,
    /// Another connection has written since this one began to read.
    StaleSnapshot,
    /// The database is open for reading only.
    ReadOnly,
    /// The database must be recovered, which a connection that may only read cannot: the way out.
    NeedsRecovery(String),
    /// The file is not this engine's.
    NotADatabase,
    /// A newer version has written the file: which, and the way out.
    Newer(String),
    /// The data on disk are damaged: where and how.
    Damaged(String),
    /// There is no space left.
    Full,
    /// The system refused memory.
    NoMemory,
    /// Reading or writing failed: what, and why.
    Io(String),
    /// The VFS refused with this code, which goes back to SQLite: missing memory is not a failed
    /// disk.
    Vfs(i32, String),
    /// A limit of the engine is exceeded: which.
    TooBig(&'static str),
    /// There is no such tree.
    NoSuchTree(u32),
    /// SQLite's comparison failed with this code, which goes back to SQLite.
    Compare(i32),
    /// Another connection keeps the request from its end: why, and the way out.
    InTheWay(String),
    /// The request is impossible: why.
    Refused(String),
    /// The engine does not support this call.
    Misuse(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("another connection holds the lock"),
            Self::StaleSnapshot => {
                f.write_str("another connection has written since this one began to read")
            }
            Self::ReadOnly => f.write_str("the database is open for reading only"),
            Self::NotADatabase => f.write_str("the file is not a database of this engine"),
            Self::Damaged(what) => write!(f, "the database is damaged: {what}"),
            Self::Full => f.write_str("there is no space left"),
            Self::NoMemory => f.write_str("out of memory"),
            Self::Io(what) | Self::Vfs(_, what) | Self::Newer(what) | Self::NeedsRecovery(what) => {
                f.write_str(what)
            }
            Self::TooBig(what) => write!(f, "too big: {what}"),
            Self::NoSuchTree(tree) => write!(f, "there is no tree {tree}"),
            Self::Compare(code) => write!(f, "the comparison of keys failed with {code}"),
            Self::InTheWay(what) | Self::Refused(what) | Self::Misuse(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}

/// A result of an engine.
pub type Result<T> = std::result::Result<T, Error>;

/// SQLite's comparison with the sought record.
pub trait Comparison {
    /// The order of a stored record relative to it. [`READABLE_BEHIND`] readable bytes must follow
    /// the slice.
    ///
    /// # Errors
    /// [`Error::Compare`].
    fn compare(&mut self, record: &[u8]) -> Result<Ordering>;

    /// The number of a page's records that are not larger than it. Those before `from` are known
    /// not to be larger. One call of the C part makes all comparisons.
    ///
    /// # Errors
    /// [`Error::Compare`].
    fn search(&mut self, records: Payloads<'_>, from: usize) -> Result<Found>;

    /// As [`lsmvbt::Sought::abbreviation`].
    fn abbreviation(&self) -> Option<Abbreviation>;

    /// As [`lsmvbt::Sought::abbreviate`].
    fn abbreviate(&self, records: Payloads<'_>) -> Vec<u64>;
}

/// A kind of database file.
pub trait Engine: Send + Sync {
    /// Its name: for `PRAGMA journal_mode` and the URI parameter `engine`.
    fn name(&self) -> &'static CStr;

    /// The first bytes of its files.
    fn magic(&self) -> [u8; 16];

    /// Whether a file that begins with these bytes is its own, if only to say that it is too new.
    fn owns(&self, magic: &[u8]) -> bool {
        magic == self.magic()
    }

    /// Opens the database, or makes it if the file is empty and may be written. The caller keeps
    /// stock SQLite away from the file while the engine makes it.
    ///
    /// # Errors
    /// The engine's errors.
    fn open(&self, place: Place) -> Result<Box<dyn Connection>>;
}

/// The place of a database.
#[derive(Clone)]
pub struct Place {
    /// The file's full path, as the VFS made it.
    pub path: PathBuf,
    /// Whether it may only be read.
    pub read_only: bool,
    /// Whether `VACUUM INTO` makes it, by one transaction.
    pub is_copy: bool,
    /// The file that the VFS has opened.
    pub file: DatabaseFile,
}

/// How a tree orders its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeKind {
    /// By integer: a table.
    Table,
    /// By SQLite's comparison of records: an index, or a table `WITHOUT ROWID`.
    Index,
}

/// A cursor of a connection.
pub type CursorId = u32;

/// The place of a cursor after a seek.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// Nowhere: the tree is empty.
    Empty,
    /// On an entry with this order relative to the sought one: the entry itself, or a neighbor of
    /// its place.
    At(Ordering),
}

/// The current entry of a cursor, and the entries around it. The C part sees it too, as `EngineRow`
/// of `c/engine.h`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Row<'a> {
    rowid: i64,
    payload: *const u8,
    local: u32,
    total: u32,
    bytes: *const u8,
    spans: *const Span,
    rowids: *const i64,
    before: i32,
    behind: i32,
    page: PhantomData<&'a [u8]>,
}

impl<'a> Row<'a> {
    /// An entry. In a table it has this integer key. `total` is the size of its payload in bytes.
    /// The payload begins with `local`, and [`READABLE_BEHIND`] readable bytes follow that. It
    /// stays in place until the cursor moves or is closed, also across writes.
    #[must_use]
    #[inline]
    pub fn new(rowid: i64, local: &'a [u8], total: u32) -> Self {
        Self {
            rowid,
            payload: local.as_ptr(),
            // `total` can hold the length of every payload.
            local: local.len() as u32,
            total,
            bytes: ptr::null(),
            spans: ptr::null(),
            rowids: ptr::null(),
            before: 0,
            behind: 0,
            page: PhantomData,
        }
    }

    /// An entry that is whole in its page, with the entries around it, which the C part reaches
    /// without a call. They stay in place until the cursor moves by another way than
    /// [`Connection::skip`]. The C part also finds the entry's own payload among them, when it is
    /// asked for.
    #[must_use]
    #[inline]
    pub fn among(around: &Around<'a>) -> Self {
        let Around {
            payloads,
            integers,
            at,
            integer,
        } = *around;
        let (before, rest) = payloads.spans().split_at(at);
        let rowids = integers.get(at..).unwrap_or_default();
        let rowids = match rowids.is_empty() {
            true => ptr::null(),
            false => rowids.as_ptr(),
        };
        Self {
            rowid: integer,
            payload: ptr::null(),
            local: 0,
            total: 0,
            bytes: payloads.bytes().as_ptr(),
            spans: rest.as_ptr(),
            rowids,
            // These can hold the number of entries of a page.
            before: before.len() as i32,
            behind: rest.len() as i32 - 1,
            page: PhantomData,
        }
    }
}

/// The event that a commit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Nothing (`PRAGMA synchronous` OFF and NORMAL).
    Later,
    /// The device (FULL and EXTRA).
    #[default]
    Flush,
}

/// A connection to a database. One thread at a time uses it.
///
/// A read sees the newest commit at the time when reading began, and the connection's own changes.
/// After a commit or a rollback the connection goes on reading: its own commit, or the state before
/// the transaction.
pub trait Connection: Send {
    /// Begins to read.
    ///
    /// # Errors
    /// [`Error::Busy`] and the engine's errors.
    fn begin_read(&mut self) -> Result<()>;

    /// Begins to write, from reading or not.
    ///
    /// # Errors
    /// [`Error::Busy`]; [`Error::StaleSnapshot`] if it reads another version than the newest
    /// commit. A connection that did not read does not read afterwards either.
    fn begin_write(&mut self) -> Result<()>;

    /// Does what can still be refused about a commit.
    ///
    /// # Errors
    /// The obstacle; the transaction is still open.
    fn prepare(&mut self) -> Result<()>;

    /// Writes the transaction, so that only a failure of shared memory can stop its commit. It can
    /// still be rolled back.
    ///
    /// # Errors
    /// The obstacle; the transaction must be rolled back.
    fn write(&mut self, durability: Durability) -> Result<()> {
        let _ = durability;
        self.prepare()
    }

    /// Commits.
    ///
    /// # Errors
    /// The transaction is still open, or its outcome is unknown and every later call fails.
    fn commit(&mut self, durability: Durability) -> Result<()>;

    /// Makes all commits durable, those of others too. Outside of a transaction.
    ///
    /// # Errors
    /// [`Error::Busy`]; the flush failed.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    /// Undoes the transaction.
    ///
    /// # Errors
    /// The engine's errors.
    fn rollback(&mut self) -> Result<()>;

    /// Ends reading.
    fn end_read(&mut self);

    /// Called after each call of the C part, but for those that only move a cursor or change a value in
    /// place: gives back what no transaction uses any more.
    fn let_go(&mut self) {}

    /// The number of open savepoints.
    fn savepoints(&self) -> usize;

    /// Opens a savepoint.
    ///
    /// # Errors
    /// The engine's errors.
    fn savepoint(&mut self) -> Result<()>;

    /// Undoes all changes since a savepoint, numbered from 0. It stays open; those within it are
    /// gone.
    ///
    /// # Errors
    /// The engine's errors.
    fn rollback_to(&mut self, number: usize) -> Result<()>;

    /// Ends a savepoint and those within it; the changes since then stay.
    ///
    /// # Errors
    /// The engine's errors.
    fn release(&mut self, number: usize) -> Result<()>;

    /// The 16 numbers of the database. SQLite asks for them where it takes no error, so the C part
    /// reads them when a transaction begins.
    ///
    /// # Errors
    /// The engine's errors.
    fn metas(&mut self) -> Result<[u32; 16]>;

    /// Sets one of the 16 numbers.
    ///
    /// # Errors
    /// The engine's errors.
    fn set_meta(&mut self, index: usize, value: u32) -> Result<()>;

    /// Runs a pragma of the engine and returns its answer. The name is in lower case. `None` if the
    /// engine has no such pragma.
    ///
    /// # Errors
    /// [`Error::Refused`] and the engine's errors.
    fn pragma(&mut self, name: &str, value: Option<&str>) -> Result<Option<String>> {
        let _ = (name, value);
        Ok(None)
    }

    /// Begins to make the file shorter: `VACUUM`, or by so many pages at most. Forgets a vacuum that has
    /// begun before.
    fn begin_vacuum(&mut self, pages: Option<u32>) {
        let _ = pages;
    }

    /// The next step of that. Outside of a transaction. True after the last one.
    ///
    /// # Errors
    /// [`Error::Busy`] and [`Error::InTheWay`], after which the step can be tried again; [`Error::Refused`]
    /// with the way out; a full disk. Steps that were taken stay.
    fn vacuum(&mut self) -> Result<bool> {
        Err(Error::Refused(
            "VACUUM in place is not supported by this database's engine: VACUUM INTO writes a compact copy"
                .to_owned(),
        ))
    }

    /// After [`Error::InTheWay`]: its next steps do what can be done at once.
    fn vacuum_waits_no_longer(&mut self) {}

    /// The number of pages in the file that are free.
    ///
    /// # Errors
    /// The engine's errors.
    fn free_pages(&mut self) -> Result<u32> {
        Ok(0)
    }

    /// Within a write transaction: pages by which the file could be shorter without packing.
    fn removable_pages(&mut self) -> u32 {
        0
    }

    /// The rows of a table that differ between two versions, which are numbers or times. Without
    /// `to`, up to the newest one.
    ///
    /// # Errors
    /// [`Error::Refused`] and the engine's errors.
    fn diff(&mut self, table: &str, from: &str, to: Option<&str>) -> Result<Vec<Change>> {
        let _ = (table, from, to);
        Err(Error::Refused(
            "this database's engine compares no versions".to_owned(),
        ))
    }

    /// A number that changes whenever other connections' commits have become visible, and only
    /// then.
    fn data_version(&mut self) -> u32;

    /// Makes a tree. Its number is above 1: tree 1 is a table that is always there.
    ///
    /// # Errors
    /// The engine's errors.
    fn create_tree(&mut self, kind: TreeKind) -> Result<u32>;

    /// Removes a tree.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`] and the engine's errors.
    fn drop_tree(&mut self, tree: u32) -> Result<()>;

    /// Removes all entries of a tree, and says how many there were.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`] and the engine's errors.
    fn clear_tree(&mut self, tree: u32) -> Result<u64>;

    /// The highest number of a tree that exists, or the number of pages of the file if that is
    /// higher. SQLite rejects each number above it, and shows it as `PRAGMA page_count`.
    ///
    /// # Errors
    /// The engine's errors.
    fn last_tree(&mut self) -> Result<u32>;

    /// The number of entries of a tree.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`] and the engine's errors.
    fn count(&mut self, tree: u32) -> Result<u64>;

    /// Checks everything; a line per finding, none if all is well.
    ///
    /// # Errors
    /// Where it could not be checked.
    fn check(&mut self) -> Result<Vec<String>>;

    /// Opens a cursor that stands nowhere. In a write transaction it shows and makes its changes.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`] and the engine's errors.
    fn open_cursor(&mut self, tree: u32, kind: TreeKind) -> Result<CursorId>;

    /// Closes a cursor.
    fn close_cursor(&mut self, cursor: CursorId);

    /// Moves to the first entry; false if there is none.
    ///
    /// # Errors
    /// The engine's errors.
    fn first(&mut self, cursor: CursorId) -> Result<bool>;

    /// Moves to the last entry; false if there is none.
    ///
    /// # Errors
    /// The engine's errors.
    fn last(&mut self, cursor: CursorId) -> Result<bool>;

    /// Moves to the next entry; false if there is none, and the cursor then stands nowhere.
    ///
    /// # Errors
    /// The engine's errors.
    fn next(&mut self, cursor: CursorId) -> Result<bool>;

    /// Moves to the previous entry; false if there is none, and the cursor then stands nowhere.
    ///
    /// # Errors
    /// The engine's errors.
    fn previous(&mut self, cursor: CursorId) -> Result<bool>;

    /// Moves by a number of the entries that [`Connection::row`] has shown around, back if
    /// negative.
    ///
    /// # Errors
    /// [`Error::Misuse`] if it has not shown enough entries.
    fn skip(&mut self, cursor: CursorId, by: i32) -> Result<()> {
        let _ = cursor;
        match by {
            0 => Ok(()),
            _ => Err(Error::Misuse("no entry was shown around".to_owned())),
        }
    }

    /// Holds at most `pages` pages in memory. Without this call, the engine chooses.
    fn set_cache_pages(&mut self, pages: usize) {
        let _ = pages;
    }

    /// To a row of a table, or a neighbor.
    ///
    /// # Errors
    /// The engine's errors.
    fn seek_rowid(&mut self, cursor: CursorId, rowid: i64) -> Result<Seek>;

    /// To the entry of an index that compares equal, or a neighbor.
    ///
    /// # Errors
    /// The engine's errors, and [`Error::Compare`].
    fn seek_record(&mut self, cursor: CursorId, sought: &mut dyn Comparison) -> Result<Seek>;

    /// The entry that a cursor stands on.
    ///
    /// # Errors
    /// [`Error::Misuse`] if it stands nowhere.
    fn row(&self, cursor: CursorId) -> Result<Row<'_>>;

    /// Reads a part of the payload of the entry that a cursor stands on.
    ///
    /// # Errors
    /// The engine's errors.
    fn read(&mut self, cursor: CursorId, offset: u32, buffer: &mut [u8]) -> Result<()>;

    /// Inserts or replaces a row of a table; `zeros` zeros follow its data. The cursor then stands
    /// nowhere.
    ///
    /// # Errors
    /// The engine's errors.
    fn insert_row(&mut self, cursor: CursorId, rowid: i64, data: &[u8], zeros: u32) -> Result<()>;

    /// Inserts a record into an index, or replaces the one that compares equal. The cursor stands
    /// nowhere then.
    ///
    /// # Errors
    /// The engine's errors, and [`Error::Compare`].
    fn insert_record(
        &mut self,
        cursor: CursorId,
        record: &[u8],
        sought: &mut dyn Comparison,
    ) -> Result<()>;

    /// Changes a part of the row that a cursor stands on, and stays on it.
    ///
    /// # Errors
    /// The engine's errors.
    fn overwrite(&mut self, cursor: CursorId, offset: u32, data: &[u8]) -> Result<()>;

    /// Removes the entry that a cursor stands on; it stands nowhere then.
    ///
    /// # Errors
    /// The engine's errors.
    fn delete(&mut self, cursor: CursorId) -> Result<()>;
}
