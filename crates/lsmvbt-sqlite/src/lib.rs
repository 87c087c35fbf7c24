//! SQLite with a second B-tree engine beside its own, chosen for each database file.
//!
//! SQLite's amalgamation is cut at build time (`onewrite-sqlite-split`), and compiled with a C part
//! (`c/`) that keeps SQLite's cursors and transactions in the states that SQLite knows. What it stands on is
//! an [`Engine`]: seek, step, payload, mutation, transactions, savepoints, sixteen numbers.
//!
//! The library is SQLite in everything else: `liblsmvbt_sqlite.a` exports SQLite's own functions, and
//! `scripts/libsqlite3` makes of it a `libsqlite3.so` that takes the place of the system's. For Rust,
//! [`sqlite::Connection`] is as much of SQLite's interface as the tests and the shell need.
//!
//! With the feature `in-place-of-bundled` it takes the place of the SQLite that `libsqlite3-sys` bundles, in programs
//! that use `rusqlite`: they call [`link`], and that is all.
//!
//! `docs/lsmvbt-sqlite.md` says which function of SQLite's `btree.h` is whose.

// So that the linker sees this library first, and the bundled SQLite is not needed.
#[cfg(feature = "in-place-of-bundled")]
use libsqlite3_sys as _;

mod engine;
#[allow(unsafe_code)]
mod ffi;
mod lsmvbt;

pub use engine::{
    Comparison, Connection, CursorId, Durability, Engine, Error, Place, READABLE_BEHIND, Result,
    Row, Seek, TreeKind,
};
pub use ffi::sqlite;
pub use ffi::{DatabaseFile, register};

/// Has this library linked into a program that calls it. SQLite's functions are then those of the two engines for the
/// whole program; the program does not link if they were there twice.
pub fn link() {
    std::hint::black_box(sqlite::version());
}
