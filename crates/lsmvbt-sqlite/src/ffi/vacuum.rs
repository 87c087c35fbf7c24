//! `VACUUM` and `PRAGMA incremental_vacuum`, for the C part.

use std::ffi::{CString, c_char, c_int, c_uint};

use super::code;
use super::exports::{doing, run};
use super::handle::Handle;
use super::sqlite;
use crate::engine::Error;

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_vacuum_begin(db: *mut Handle, pages: c_uint) {
    // SAFETY: a connection.
    unsafe {
        doing(db, |inner| {
            if let Some(connection) = inner.connection() {
                connection.begin_vacuum((pages > 0).then_some(pages));
            }
            Ok(())
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_vacuum(db: *mut Handle, reason: *mut *mut c_char) -> c_int {
    // SAFETY: a connection.
    unsafe {
        run(db, |inner| {
            if inner.is_new() {
                return Ok(code::DONE);
            }
            // It may be this connection's first look at the database.
            inner.begin(false)?;
            let connection = inner.opened()?;
            connection.end_read();
            match connection.vacuum() {
                Ok(true) => Ok(code::DONE),
                Ok(false) => Ok(code::OK),
                Err(Error::InTheWay(why)) => Ok(explained(reason, why, code::BUSY)),
                Err(Error::Refused(why)) => Ok(explained(reason, why, code::ERROR)),
                Err(error) => Err(error),
            }
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_vacuum_give_up(db: *mut Handle) {
    // SAFETY: a connection.
    unsafe {
        doing(db, |inner| {
            if let Some(connection) = inner.connection() {
                connection.vacuum_waits_no_longer();
            }
            Ok(())
        });
    }
}

/// Hands the reason for `code` to the C part.
///
/// # Safety
/// `reason` may be written.
unsafe fn explained(reason: *mut *mut c_char, why: String, code: c_int) -> c_int {
    let copy = sqlite::allocated(&CString::new(why).unwrap_or_default());
    // SAFETY: as above.
    unsafe { reason.write(copy) };
    if copy.is_null() { code::NOMEM } else { code }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_free_pages(db: *mut Handle) -> c_uint {
    let mut pages = 0;
    // SAFETY: a connection.
    unsafe {
        doing(db, |inner| {
            if let Some(connection) = inner.connection() {
                pages = connection.free_pages()?;
            }
            Ok(())
        });
    }
    pages
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_removable_pages(db: *mut Handle) -> c_uint {
    let mut pages = 0;
    // SAFETY: a connection.
    unsafe {
        doing(db, |inner| {
            pages = inner.opened()?.removable_pages();
            Ok(())
        });
    }
    pages
}
