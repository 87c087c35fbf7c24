//! What `scripts/libsqlite3` links into a `libsqlite3.so.0`: SQLite with both B-tree engines, and
//! onewrite's VFS.
//!
//! SQLite registers the VFS when it initializes itself, so a program need not load an extension.
//! The default VFS stays SQLite's own, unless the environment has `ONEWRITE_MAKE_DEFAULT=1`.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};

const SQLITE_OK: c_int = 0;
const SQLITE_ERROR: c_int = 1;

// So that the linker takes SQLite along.
use lsmvbt_sqlite as _;

/// `sqlite3_initialize` calls it once (`SQLITE_EXTRA_INIT`), outside its mutex.
#[unsafe(no_mangle)]
pub extern "C" fn onewrite_sqlite3_init(_: *const c_char) -> c_int {
    match onewrite::register() {
        Ok(()) => SQLITE_OK,
        Err(error) => {
            // A program whose SQLite does not initialize has no other way to learn the reason.
            eprintln!("onewrite: {error}");
            SQLITE_ERROR
        }
    }
}
