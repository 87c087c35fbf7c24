//! The errors of the store, with their place.

use std::fmt;
use std::io;

use crate::time;
use crate::types::{PageNo, TreeId, Version};

/// An error of the store. Nothing that comes from a caller or from the disk panics.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The storage failed. `what` says during which step.
    Io {
        /// The step that failed.
        what: &'static str,
        /// The storage's error.
        source: io::Error,
    },
    /// The file does not begin with the magic of this format.
    NotADatabase,
    /// The file was written by a newer version of this crate.
    NewerFormat {
        /// The format version in the file.
        found: u32,
        /// The newest one that this crate reads.
        supported: u32,
    },
    /// Bytes on disk differ from the written ones.
    Damaged {
        /// The page in question.
        page: PageNo,
        /// The damage.
        what: &'static str,
    },
    /// Another handle holds a lock that the call needs. Nothing was changed; try again.
    Busy,
    /// The snapshot from which a write transaction should begin is no longer the newest version.
    StaleSnapshot {
        /// The version of the snapshot.
        snapshot: Version,
        /// The newest version.
        current: Version,
    },
    /// The version is not kept any more, or not reached yet.
    NoSuchVersion {
        /// The requested version.
        asked: Version,
        /// The oldest version that can be read.
        oldest: Version,
        /// The newest one.
        current: Version,
    },
    /// The history has no version of that time, in seconds since 1970.
    NoVersionAt {
        /// The requested time.
        asked: u32,
        /// The time to which the history reaches back, if there was a commit since it was set.
        oldest: Option<u32>,
    },
    /// The history is none of time, so that no version's time is known.
    NoTimes,
    /// There is no such tree in this version.
    NoSuchTree(TreeId),
    /// The tree has keys of the other kind.
    WrongKind(TreeId),
    /// A write outside a write transaction, or a transaction within one.
    Transaction(&'static str),
    /// No such savepoint is open.
    NoSuchSavepoint(usize),
    /// A change of its tree left the cursor behind. It cannot seek by itself, because only its
    /// caller can compare keys: seek again.
    CursorStale,
    /// The cursor stands on no entry.
    CursorInvalid,
    /// A value, or the number of trees, exceeds a limit of the format.
    TooBig(&'static str),
    /// An earlier flush failed. The content of the disk is unknown until every handle has been
    /// closed and the database recovered.
    Poisoned,
    /// The caller's comparison failed; the number is its own.
    Compare(i32),
    /// The database was opened for reading only.
    ReadOnly,
    /// The shared memory is of another file, which has or had this file's name.
    OtherFile,
    /// The handle may only read, and the database was not closed cleanly: it must be recovered.
    NeedsRecovery,
    /// The system refused memory. In a write transaction: roll back.
    NoMemory,
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { what, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { what, source } => write!(f, "{what}: {source}"),
            Error::NotADatabase => f.write_str("not an lsmvbt database: the magic is missing"),
            Error::NewerFormat { found, supported } => {
                write!(
                    f,
                    "the file has format version {found}, and this version reads up to {supported}: upgrade, or copy it with VACUUM INTO by the version that wrote it"
                )
            }
            Error::Damaged { page, what } => write!(f, "page {} is damaged: {what}", page.0),
            Error::Busy => f.write_str("another connection holds the lock"),
            Error::StaleSnapshot { snapshot, current } => {
                write!(
                    f,
                    "the snapshot is of version {}, the newest is {}",
                    snapshot.0, current.0
                )
            }
            Error::NoSuchVersion {
                asked,
                oldest,
                current,
            } => write!(
                f,
                "version {} cannot be read: {} to {} can",
                asked.0, oldest.0, current.0
            ),
            Error::NoVersionAt { asked, oldest } => {
                let asked = time::text(*asked);
                match oldest {
                    Some(oldest) => {
                        let oldest = time::text(*oldest);
                        write!(f, "the history reaches back to {oldest}, not to {asked}")
                    }
                    None => write!(
                        f,
                        "nothing was committed since the history was set, so it does not reach back to {asked}"
                    ),
                }
            }
            Error::NoTimes => {
                f.write_str("no times are kept: give the history a time, such as '1 hour'")
            }
            Error::NoSuchTree(t) => write!(f, "there is no tree {}", t.0),
            Error::WrongKind(t) => write!(f, "tree {} has keys of the other kind", t.0),
            Error::Transaction(what) => f.write_str(what),
            Error::NoSuchSavepoint(n) => write!(f, "savepoint {n} is not open"),
            Error::CursorStale => f.write_str("the tree changed under the cursor: seek again"),
            Error::CursorInvalid => f.write_str("the cursor stands on no entry"),
            Error::TooBig(what) => write!(f, "too big: {what}"),
            Error::OtherFile => f.write_str(
                "another file has got this name, and both are open: close all connections, in every process, that \
                 were opened before the file was replaced, and open the database again",
            ),
            Error::Poisoned => {
                f.write_str("an earlier flush failed: close every connection, then open again")
            }
            Error::Compare(code) => write!(f, "the comparison of keys failed with {code}"),
            Error::ReadOnly => f.write_str("the database is open for reading only"),
            Error::NeedsRecovery => f.write_str(
                "it was not closed cleanly, and this handle may only read: open it once for writing, which recovers it",
            ),
            Error::NoMemory => f.write_str("out of memory"),
        }
    }
}

impl Error {
    /// True if the storage has no space left, or a quota leaves none.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Error::Io { source, .. } if is_full(source))
    }
}

/// True if the storage has no space left, or a quota leaves none.
pub(crate) fn is_full(source: &io::Error) -> bool {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    full.contains(&source.kind())
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
