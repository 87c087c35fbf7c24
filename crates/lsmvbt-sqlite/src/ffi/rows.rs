//! The C part's view of entries: the current one of a cursor, and those around it, which the C part
//! visits without a call. The rest is as in `exports.rs`.

use std::ffi::{c_int, c_uint};

use super::code;
use super::exports::NOWHERE;
use super::handle::{Handle, Inner};
use crate::engine::{CursorId, Result, Row};

/// Moves a cursor. Afterwards `row` shows the entry, or the result is `SQLITE_DONE`.
///
/// # Safety
/// `db` is a connection; `row` may be written.
pub(super) unsafe fn moving(
    db: *mut Handle,
    cursor: CursorId,
    row: *mut Row<'_>,
    work: impl FnOnce(&mut Inner) -> Result<bool>,
) -> c_int {
    // SAFETY: the caller's promise. A shared reference suffices: Handle guards its own state.
    unsafe { &*db }.moving(|inner| {
        if cursor == NOWHERE || !work(inner)? {
            return Ok(code::DONE);
        }
        // SAFETY: the caller's promise.
        unsafe { row.cast::<Row<'_>>().write(inner.opened()?.row(cursor)?) };
        Ok(code::OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_first(
    db: *mut Handle,
    cursor: c_uint,
    row: *mut Row<'static>,
) -> c_int {
    // SAFETY: a connection; `row` may be written.
    unsafe { moving(db, cursor, row, |inner| inner.opened()?.first(cursor)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_last(db: *mut Handle, cursor: c_uint, row: *mut Row<'static>) -> c_int {
    // SAFETY: a connection; `row` may be written.
    unsafe { moving(db, cursor, row, |inner| inner.opened()?.last(cursor)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_step(
    db: *mut Handle,
    cursor: c_uint,
    back: c_int,
    row: *mut Row<'static>,
) -> c_int {
    // SAFETY: a connection; `row` may be written.
    unsafe {
        moving(db, cursor, row, |inner| {
            let connection = inner.opened()?;
            if back != 0 {
                connection.previous(cursor)
            } else {
                connection.next(cursor)
            }
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_skip(db: *mut Handle, cursor: c_uint, by: c_int) -> c_int {
    // SAFETY: a connection. A shared reference suffices: Handle guards its own state.
    unsafe { &*db }.moving(|inner| inner.opened()?.skip(cursor, by).map(|()| code::OK))
}
