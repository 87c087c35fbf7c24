//! A hook that sees every call that changes a log file, in order, before the call happens.
//!
//! For tests alone: the crash test records what reached the files, and from that builds every
//! state that a power cut could leave. A hook may also refuse a call, which then fails as if the
//! kernel had refused it, and may tell another story of what the device can do.
//!
//! Without a hook a call costs one atomic load more.

use super::capabilities::Capabilities;
use super::error::{Operation, StorageError};
use super::file::Durability;
use super::remap::{Move, Remap};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How the bytes of a write travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// Past the page cache: the device has them when the call returns, maybe in a volatile cache.
    Direct,
    /// Into the page cache, which nothing but a flush empties for certain.
    Buffered,
}

/// A call that is about to happen.
#[derive(Debug)]
pub enum Call<'a> {
    /// The file is opened, and created if it is not there.
    Open,
    /// A write. One of [`Durability::WriteThrough`] is always direct: a buffered one is followed by
    /// a [`Call::Flush`].
    Write {
        /// Where, in bytes.
        offset: u64,
        /// What.
        bytes: &'a [u8],
        /// How.
        route: Route,
        /// What it guarantees when it returns.
        durability: Durability,
    },
    /// fdatasync.
    Flush,
    /// What the page cache holds goes to the device, which is not flushed.
    WriteBack,
    /// The size is set.
    Truncate {
        /// The new size in bytes.
        size: u64,
    },
    /// Blocks are allocated and filled with zeros; a [`Call::Flush`] follows.
    Initialize {
        /// Which bytes.
        range: Range<u64>,
    },
    /// Blocks of the log are brought into the database. The path is the database's.
    Remap {
        /// How.
        how: Remap,
        /// Which.
        place: Move,
    },
    /// All blocks were brought there that will be.
    Remapped,
    /// The log's first blocks are given others, one behind the other.
    Forward,
    /// The file is removed.
    Remove,
    /// The names in the file's directory are made durable.
    SyncDirectory,
}

/// See the module.
pub trait Observer: Send + Sync {
    /// Sees a call on the file at `path` before it happens.
    ///
    /// # Errors
    /// An error keeps the call from happening, and becomes its result.
    fn before(&self, path: &Path, call: &Call<'_>) -> io::Result<()>;

    /// May change what is believed about a file that was opened.
    fn capabilities(&self, _path: &Path, _found: &mut Capabilities) {}

    /// A clock of the test's own, for what is measured.
    fn clock(&self) -> Option<Duration> {
        None
    }

    /// May change for how long who has committed is taken to be at work still: a test that needs several
    /// at work, on a machine where any of them may be kept waiting.
    fn company_lasts(&self, usually: Duration) -> Duration {
        usually
    }
}

static OBSERVER: OnceLock<Box<dyn Observer>> = OnceLock::new();

/// Sets the hook of this process, once and for all its log files. `false` if there is one already.
pub fn observe(observer: Box<dyn Observer>) -> bool {
    OBSERVER.set(observer).is_ok()
}

pub(super) fn before(
    path: &Path,
    operation: Operation,
    call: &Call<'_>,
) -> Result<(), StorageError> {
    match OBSERVER.get() {
        None => Ok(()),
        Some(observer) => observer
            .before(path, call)
            .map_err(|e| StorageError::io(path, operation, e)),
    }
}

/// The time on a clock that only goes forward.
pub(super) fn now() -> Duration {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    let usual = || BEGIN.get_or_init(Instant::now).elapsed();
    let observer = OBSERVER.get();
    observer
        .and_then(|observer| observer.clock())
        .unwrap_or_else(usual)
}

pub(crate) fn company_lasts(usually: Duration) -> Duration {
    let observer = OBSERVER.get();
    observer.map_or(usually, |observer| observer.company_lasts(usually))
}

pub(super) fn adjust(path: &Path, found: &mut Capabilities) {
    if let Some(observer) = OBSERVER.get() {
        observer.capabilities(path, found);
    }
}
