//! SQLite with a second B-tree engine next to its own, chosen for each database file.
//!
//! The build cuts SQLite's amalgamation (`onewrite-sqlite-split`), and compiles it with a C part
//! (`c/`). The C part keeps SQLite's cursors and transactions in the states that SQLite knows. It
//! builds on an [`Engine`]: seek, step, payload, mutation, transactions, savepoints, sixteen
//! numbers.
//!
//! The library is SQLite in everything else. `liblsmvbt_sqlite.a` exports SQLite's own functions.
//! `scripts/libsqlite3` turns it into a `libsqlite3.so` that replaces the system's. For Rust,
//! [`sqlite::Connection`] has the part of SQLite's interface that the tests and the shell need.
//!
//! With the feature `in-place-of-bundled` it replaces the SQLite that `libsqlite3-sys` bundles, in
//! programs that use `rusqlite`. They only need to call [`link`].
//!
//! `docs/lsmvbt-sqlite.md` lists the engine of each function of SQLite's `btree.h`.

// So that the linker sees this library first and does not need the bundled SQLite.
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

/// Links this library into a program that calls it. The whole program then has the SQLite of the
/// two engines. If the functions were there twice, the program would not link.
pub fn link() {
    std::hint::black_box(sqlite::version());
}
