//! Checkpoints that write no page twice: pages of the log become pages of the database by block
//! remapping.
//!
//! A checkpoint of SQLite reads each page from the log and writes it to the database. Then it
//! truncates and flushes the database, and records in the wal-index how far it came. An exchange of
//! blocks destroys the log's copy of a page, so no connection may need that copy. The order:
//!
//! 1. `CKPT_START` ([`Remapper::begin`]): the checkpoint will copy every published frame, and no
//!    connection reads or writes. This one takes SQLite's locks WRITE and READ 1 to 4, and keeps
//!    them; SQLite already has READ 0. (Or the connection is the last one, and closes: then it has
//!    the database EXCLUSIVE.)
//! 2. Writes of pages that come from the log are deferred ([`Remapper::puts_off`]).
//! 3. `xTruncate` follows the last page ([`Remapper::finish`]). The wal-index becomes invalid,
//!    pages are exchanged, and the rest is copied. SQLite flushes the database.
//! 4. SQLite releases its own locks ([`Remapper::end`]). If the checkpoint has succeeded, the
//!    wal-index describes a log without frames, as SQLite's own restart writes it, and the log gets
//!    an empty header. Otherwise the wal-index stays invalid.
//!
//! Before step 1, the headers of the log's frames show whether remapping pays ([`cost`]). If not,
//! no connection is excluded.
//!
//! A connection that finds the wal-index invalid recovers from the log. Frame headers stay where
//! they are. So recovery finds a page that went to the database by page number and checksum, and
//! puts it back ([`repair`](repair())). The argument: `docs/durability.md`, RM1 to RM30.
//!
//! `vfs::remap` calls this room and is its [`Connection`].

pub mod cost;

mod background;
mod blocks;
mod connection;
mod counts;
mod due;
mod remapper;
mod repair;
mod runs;

use crate::storage::Remap;

pub use background::{Background, BackgroundCounts};
pub use blocks::{Remapped, Remapping};
pub use connection::{Connection, Index, IndexLocks};
pub use counts::{Counters, Counts};
pub use due::Fill;
pub use remapper::{Released, Remapper, way};
pub use repair::{check_page, repair};
pub use runs::{Logged, Run, newest, runs};

/// How a file system of this name remaps if the setting is `auto`. Btrfs does not: there, sharing
/// blocks writes more metadata than it saves (docs/modes/remap.md).
pub fn automatic(filesystem: &str) -> Option<Remap> {
    match filesystem {
        "xfs" => Some(Remap::Exchange),
        _ => None,
    }
}
