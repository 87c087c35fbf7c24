//! onewrite: journal modes for stock SQLite that make a commit durable in one device write.
//!
//! ```text
//! vfs         the SQLite boundary: translates calls, guards databases, answers pragmas
//! plan        the settings of a mode in one directory, if all are `auto`
//! commit      when frames are written, with what durability, and with whom
//! checkpoint  from the log to the database without writing a page twice
//! log         how frames lie on the device, and where they are found
//! mode        the modes and settings, and their words
//! storage     direct and durable block I/O, preallocation, the device's abilities
//! waits       all waiting times, and the functions that wait
//! sync        locks, threads and time
//! wal         SQLite's own log format
//! ```
//!
//! Each room uses those below it (`tests/layers.rs`). A program that links SQLite (through
//! `rusqlite`, say) calls [`register`] once. Then every connection that is opened with the VFS
//! `onewrite` can say `PRAGMA journal_mode=waldio`. `docs/design.md` is the map.

pub mod checkpoint;
pub mod commit;
pub mod log;
pub mod mode;
pub mod plan;
pub mod storage;
#[cfg(any(shuttle, loom))]
#[doc(hidden)]
pub mod sync;
#[cfg(not(any(shuttle, loom)))]
mod sync;
mod vfs;
mod waits;
pub mod wal;

pub use vfs::{
    DATABASE_HEADER_BYTES, DiscardError, Discarded, EVENTS, EventKind, GUARD_BYTE, RegisterError,
    SETTINGS, Setting, discard_log, guarded_by,
};

/// The name of the VFS, for `sqlite3_open_v2` and the URI parameter `vfs=`.
pub const VFS_NAME: &str = "onewrite";

/// Registers the VFS `onewrite` with the SQLite that this program is linked with. It does not
/// become the default VFS, unless the environment has `ONEWRITE_MAKE_DEFAULT=1`.
///
/// # Errors
/// SQLite has no default VFS to build on, or refuses.
#[inline] // see vfs::register
pub fn register() -> Result<(), RegisterError> {
    vfs::register(false)
}

/// Like [`register`], and makes `onewrite` the default VFS: for drivers that cannot name one.
///
/// # Errors
/// As for [`register`].
#[inline] // see vfs::register
pub fn register_as_default() -> Result<(), RegisterError> {
    vfs::register(true)
}
