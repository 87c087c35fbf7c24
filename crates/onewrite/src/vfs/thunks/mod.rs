//! The functions that SQLite calls: of the VFS ([`vfs`]), of a database ([`database`]), of a log
//! ([`log`]), and system calls for locks ([`syscalls`]).
//!
//! Each finds its object, calls the safe code, and turns the result into one of SQLite's codes. No
//! panic leaves them: it becomes an error of the call.
#![allow(unsafe_code)]

mod database;
mod log;
mod names;
mod opened;
mod shm;
mod syscalls;
mod vfs;

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use syscalls::notices_fork;
pub use vfs::{locks_on, make_default, register, stays_loaded};

use super::database::Database;
use super::ffi::SQLITE_OK;
use super::host;
use crate::commit::Writer;
use crate::log::LogError;

/// Runs the safe code behind a call; a panic becomes SQLite's "internal error". With debug
/// assertions it ends the process, so that no test can miss it.
fn shielded(work: impl FnOnce() -> c_int) -> c_int {
    const SQLITE_INTERNAL: c_int = 2;
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        host::log(
            SQLITE_INTERNAL,
            "a bug: please report the panic printed to standard error",
        );
        if cfg!(debug_assertions) {
            std::process::abort();
        }
        SQLITE_INTERNAL
    })
}

/// Works with the open log, if there is one.
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
        Err(e) => failed(database, &e),
    }
}

/// Called before a page is read. Returns when the page's snapshot is durable. The error is SQLite's
/// code.
fn await_snapshot(database: &Database) -> Result<(), c_int> {
    let awaited = shielded(|| match database.await_snapshot() {
        Ok(()) => SQLITE_OK,
        Err(e) => failed(database, &e),
    });
    match awaited {
        SQLITE_OK => Ok(()),
        code => Err(code),
    }
}

/// SQLite's code for an error of the log. Also tells other processes if the log is poisoned.
fn failed(database: &Database, error: &LogError) -> c_int {
    database.spread_poison();
    database.fail(error)
}

/// The bytes that SQLite hands to `xWrite`.
///
/// # Safety
/// `data` points to `size` bytes that live for `'a`.
unsafe fn in_buffer<'a>(data: *const c_void, size: c_int) -> &'a [u8] {
    // SAFETY: by this function's contract.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size as usize) }
}

/// The bytes that SQLite wants `xRead` to fill.
///
/// # Safety
/// `out` points to `size` bytes that live for `'a`, and that no other code accesses meanwhile.
unsafe fn out_buffer<'a>(out: *mut c_void, size: c_int) -> &'a mut [u8] {
    // SAFETY: by this function's contract.
    unsafe { std::slice::from_raw_parts_mut(out.cast::<u8>(), size as usize) }
}
