//! The SQLite boundary: a VFS named `onewrite` over the platform's default VFS.
//!
//! A main database gets our methods. So does its log, while the database is in one of our modes.
//! The VFS underneath opens everything else: temporary files, rollback journals, super-journals,
//! and the `-wal` file of a database in one of SQLite's own modes. It opens them in the very memory
//! that SQLite passed, so our code is not involved.
//!
//! Only `entry`, `ffi`, `host`, `inner` and `thunks` have unsafe code. The other modules get safe
//! values from them.

mod atomic;
mod background;
mod claim;
mod companion;
mod company;
mod convert;
mod database;
mod discard;
mod entering;
mod entry;
mod environment;
mod events;
mod ffi;
mod guard;
mod header;
mod host;
mod inner;
mod leaving;
mod linger;
mod locks;
mod metrics;
mod orphan;
mod pragma;
mod refusal;
mod remap;
mod settings;
mod stall;
mod state;
mod status;
mod super_journal;
mod switching;
mod synchronous;
mod taken;
mod tell;
mod thunks;
mod warnings;

use std::ffi::CStr;
use std::fmt;

pub use discard::{DiscardError, Discarded, discard_log};
pub use events::{EVENTS, Kind as EventKind};
pub use header::{GUARD_BYTE, HEADER_BYTES as DATABASE_HEADER_BYTES, guarded_by};
pub use settings::{SETTINGS, Setting};
use thunks::make_default;

/// The name that the VFS is registered under.
pub const VFS_NAME: &CStr = c"onewrite";

/// Why the VFS could not be registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegisterError {
    /// The host's SQLite is older than 3.40, the first supported version.
    TooOld(i32),
    /// The host's function table lacks functions.
    NoFunctions,
    /// `onewrite.h` belongs to another version than the library.
    Header,
    /// There is no default VFS to build on, or it lacks shared memory.
    NoBase,
    /// SQLite refused, with this result code.
    Refused(i32),
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegisterError::TooOld(version) => write!(
                f,
                "onewrite needs SQLite 3.40 or later, this is {}.{}.{}",
                version / 1_000_000,
                version / 1000 % 1000,
                version % 1000
            ),
            RegisterError::NoFunctions => {
                f.write_str("this SQLite does not offer the functions that onewrite needs")
            }
            RegisterError::Header => f.write_str(
                "onewrite.h and the onewrite library are of different versions: compile with the header that came with the library",
            ),
            RegisterError::NoBase => f.write_str("this SQLite has no default VFS to build on"),
            RegisterError::Refused(code) => {
                write!(
                    f,
                    "SQLite refused to register the VFS onewrite: result code {code}"
                )
            }
        }
    }
}

impl std::error::Error for RegisterError {}

/// Registers the VFS with the SQLite that this program is linked with.
///
/// # Errors
/// See [`RegisterError`].
// It is inline, so that only Rust programs that call it contain the code that names SQLite's
// functions. The static library for C then needs no SQLite at link time.
#[inline]
pub fn register(default: bool) -> Result<(), RegisterError> {
    entry::register(ffi::Api::linked(), ffi::Api::linked_version(), default)
}
