//! The boundary to SQLite's C code: the only unsafe code of this crate.
//!
//! [`exports`] and [`rows`] have the functions that the C part calls (`c/engine.h`). [`file`] is
//! the database file as SQLite's VFS has opened it. [`note`] adds the file and the
//! reason to SQLite's messages. [`sqlite`] is SQLite's own interface for Rust.
//!
//! No panic passes the boundary: it becomes `SQLITE_INTERNAL`. A call from within a call of the
//! same connection (a collation that uses the database it compares for) returns `SQLITE_MISUSE`.

mod ahead;
mod diff;
mod exports;
mod file;
mod handle;
mod names;
mod note;
mod pragma;
mod rows;
pub mod sqlite;
mod vacuum;

pub use file::{DatabaseFile, VfsWrites, code_of_vfs};
pub use handle::register;

/// Result codes of SQLite.
pub(crate) mod code {
    use std::ffi::c_int;

    pub const OK: c_int = 0;
    pub const ERROR: c_int = 1;
    pub const INTERNAL: c_int = 2;
    pub const BUSY: c_int = 5;
    pub const NOMEM: c_int = 7;
    pub const READONLY: c_int = 8;
    pub const IOERR: c_int = 10;
    pub const CORRUPT: c_int = 11;
    pub const FULL: c_int = 13;
    pub const CANTOPEN: c_int = 14;
    pub const TOOBIG: c_int = 18;
    pub const MISUSE: c_int = 21;
    pub const NOTFOUND: c_int = 12;
    pub const NOTADB: c_int = 26;
    pub const ROW: c_int = 100;
    pub const DONE: c_int = 101;
    pub const BUSY_SNAPSHOT: c_int = BUSY | 2 << 8;
    pub const READONLY_RECOVERY: c_int = READONLY | 1 << 8;
    pub const IOERR_SHORT_READ: c_int = IOERR | 2 << 8;
}
