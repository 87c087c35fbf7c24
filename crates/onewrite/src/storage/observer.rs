//! A hook that sees every call that changes a log file, in order, before the call happens.
//!
//! For tests only. The crash test records what reached the files, and builds every state that a
//! power cut could leave. A hook may also refuse a call, which then fails as if the kernel had
//! refused it. It may change the device's reported abilities.
//!
//! Without a hook a call costs one more atomic load.

use super::blocks::{Move, Remap};
use super::capabilities::Capabilities;
use super::error::{Operation, StorageError};
use super::file::Durability;
use super::lock::LockByte;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How the bytes of a write travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// Past the page cache: the device has the bytes when the call returns, maybe in a volatile
    /// cache.
    Direct,
    /// Into the page cache, which only a flush certainly empties.
    Buffered,
}

/// A call that is about to happen.
#[derive(Debug)]
pub enum Call<'a> {
    /// Opens the file, and creates it if it is missing.
    Open,
    /// A write. One with [`Durability::WriteThrough`] is always direct: a buffered one is followed
    /// by a [`Call::Flush`].
    Write {
        /// The offset in bytes.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
        /// Their route.
        route: Route,
        /// The guarantee when it returns.
        durability: Durability,
    },
    /// fdatasync.
    Flush,
    /// The page cache is written to the device, which is not flushed.
    WriteBack,
    /// Sets the size.
    Truncate {
        /// The new size in bytes.
        size: u64,
    },
    /// Allocates blocks and fills them with zeros; a [`Call::Flush`] follows.
    Initialize {
        /// The bytes to initialize.
        range: Range<u64>,
    },
    /// Brings blocks of the log into the database. The path is the database's.
    Remap {
        /// The method.
        how: Remap,
        /// The blocks.
        place: Move,
    },
    /// The remapping has moved all the blocks that it will.
    Remapped,
    /// Gives other, contiguous blocks to the start of the log.
    Forward,
    /// Removes the file.
    Remove,
    /// Makes the names in the file's directory durable.
    SyncDirectory,
}

/// See the module.
pub trait Observer: Send + Sync {
    /// Sees a call on the file at `path` before it happens.
    ///
    /// # Errors
    /// An error prevents the call, and becomes its result.
    fn before(&self, path: &Path, call: &Call<'_>) -> io::Result<()>;

    /// Sees an attempt to lock a byte of the log at `path`.
    ///
    /// # Errors
    /// An error prevents the attempt, and becomes its result.
    fn lock(&self, _path: &Path, _byte: LockByte) -> io::Result<()> {
        Ok(())
    }

    /// May change the reported abilities of an opened file.
    fn capabilities(&self, _path: &Path, _found: &mut Capabilities) {}

    /// The test's clock, for measurements.
    fn clock(&self) -> Option<Duration> {
        None
    }

    /// May change how long a connection that has committed counts as active. Some tests need
    /// several active connections, on a machine that may delay any of them.
    fn company_lasts(&self, usually: Duration) -> Duration {
        usually
    }
}

static OBSERVER: OnceLock<Box<dyn Observer>> = OnceLock::new();

/// Sets this process's hook, once and for all its log files. `false` if there is one already.
pub fn observe(observer: Box<dyn Observer>) -> bool {
    OBSERVER.set(observer).is_ok()
}

pub(crate) fn before(
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

pub(super) fn lock(path: &Path, byte: LockByte) -> io::Result<()> {
    let observer = OBSERVER.get();
    observer.map_or(Ok(()), |observer| observer.lock(path, byte))
}

/// The time on a monotonic clock.
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
