//! Checkpoints that write no page twice: pages of the log become pages of the database by block
//! remapping.
//!
//! A checkpoint of SQLite's reads each page from the log and writes it to the database. Then it
//! truncates and flushes the database, and says in the wal-index how far it came. An exchange of
//! blocks destroys the log's copy of a page, so it needs that nobody uses that copy. The order:
//!
//! 1. `CKPT_START` ([`Remapper::begin`]): the checkpoint will copy everything that is published, and
//!    nobody reads or writes. The connection takes SQLite's locks WRITE and READ 1 to 4, and keeps
//!    them; SQLite has READ 0 already. (Or the connection is the last one, and closes: then it has
//!    the database EXCLUSIVE.)
//! 2. Writes of pages that come from the log are put off ([`Remapper::puts_off`]).
//! 3. `xTruncate` follows the last page ([`Remapper::finish`]). The wal-index becomes invalid, pages
//!    change places, and the rest is copied. SQLite flushes the database.
//! 4. SQLite releases its own locks ([`Remapper::end`]). If the checkpoint has succeeded, the
//!    wal-index gets a log without frames, as SQLite's own restart writes it, and the log gets an
//!    empty header. Else the wal-index stays invalid.
//!
//! Before step 1 the headers of the log's frames tell whether remapping pays ([`cost`]). Where it
//! does not, nobody is kept out.
//!
//! A connection that finds the wal-index invalid recovers from the log. Frame headers stay where they
//! are. So recovery finds a page that went to the database by page number and checksum, and puts it
//! back ([`repair`](repair())). The argument: `docs/durability.md`, RM1 to RM30.
//!
//! `vfs::remap` calls this room and is its [`Connection`].

pub mod cost;

mod blocks;
mod connection;
mod counts;
mod remapper;
mod repair;
mod runs;

use crate::storage::Remap;

pub use blocks::{Remapped, Remapping};
pub use connection::{Connection, Index, IndexLocks};
pub use counts::{Counters, Counts};
pub use remapper::{Released, Remapper, way};
pub use repair::{check_page, repair};
pub use runs::{Logged, Run, newest, runs};

/// How a file system of this name remaps, where `auto` is asked for. Not Btrfs: there sharing blocks writes
/// more metadata than it saves (docs/modes/remap.md).
pub fn automatic(filesystem: &str) -> Option<Remap> {
    match filesystem {
        "xfs" => Some(Remap::Exchange),
        _ => None,
    }
}
