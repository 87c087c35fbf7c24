//! The functions that SQLite calls: of the VFS ([`vfs`]), of a database ([`database`]), of a log
//! ([`log`]).
//!
//! Each finds its object, calls the safe code, and turns the result into one of SQLite's codes. A
//! panic does not leave them: it becomes an error of the call.

mod database;
mod log;
mod names;
mod vfs;

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use vfs::{base_name, make_default, register};

use super::database::Database;
use super::ffi::SQLITE_OK;
use super::host;
use crate::commit::Writer;
use crate::log::LogError;

/// Runs the safe code behind a call; a panic becomes SQLite's "internal error".
fn shielded(work: impl FnOnce() -> c_int) -> c_int {
    const SQLITE_INTERNAL: c_int = 2;
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        host::log(
            SQLITE_INTERNAL,
            "a bug: please report the panic printed to standard error",
        );
        SQLITE_INTERNAL
    })
}

/// Does something with the open log, if there is one.
fn with_writer(
    database: &Database,
    work: impl FnOnce(&mut Writer) -> Result<(), LogError>,
) -> c_int {
    let done = match database.writer.borrow_mut().as_mut() {
        Some(writer) => work(writer),
        None => Ok(()),
    };
    match done {
        Ok(()) => SQLITE_OK,
        Err(e) => {
            database.spread_poison();
            database.fail(&e)
        }
    }
}
