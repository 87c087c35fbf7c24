//! What the C part sees of entries: the one that a cursor stands on, and those ahead of it, which the C part goes
//! through without a call. The rest is as in `exports.rs`.

use std::ffi::{c_int, c_uint};

use super::code;
use super::exports::{NOWHERE, doing, run};
use super::handle::{Handle, Inner};
use crate::engine::{CursorId, Error, Result, Row};

/// `EngineRows`.
#[repr(C)]
pub struct EngineRows {
    rows: *const Row<'static>,
    count: c_uint,
}

/// A move of a cursor: afterwards `row` shows the entry, or the move says `SQLITE_DONE`.
///
/// # Safety
/// `db` is a connection; `row` may be written.
pub(super) unsafe fn moving(
    db: *mut Handle,
    cursor: CursorId,
    row: *mut Row<'_>,
    work: impl FnOnce(&mut Inner) -> Result<bool>,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        run(db, |inner| {
            if cursor == NOWHERE || !work(inner)? {
                return Ok(code::DONE);
            }
            row.cast::<Row<'_>>().write(inner.opened()?.row(cursor)?);
            Ok(code::OK)
        })
    }
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
    most: c_uint,
    row: *mut Row<'static>,
    ahead: *mut EngineRows,
) -> c_int {
    let back = back != 0;
    // SAFETY: a connection; `row` and `ahead` may be written.
    unsafe {
        moving(db, cursor, row, |inner| {
            let connection = inner.opened()?;
            let moved = if back {
                connection.previous(cursor)?
            } else {
                connection.next(cursor)?
            };
            if moved {
                ahead.write(inner.show_ahead(cursor, back, most as usize)?);
            }
            Ok(moved)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_skip(
    db: *mut Handle,
    cursor: c_uint,
    back: c_int,
    count: c_uint,
) -> c_int {
    // SAFETY: a connection.
    unsafe {
        doing(db, |inner| {
            inner.opened()?.skip(cursor, back != 0, count as usize)
        })
    }
}

impl Inner {
    /// What is ahead of a cursor, to be read until it moves otherwise than by a skip.
    fn show_ahead(&mut self, cursor: CursorId, back: bool, most: usize) -> Result<EngineRows> {
        let mut rows: Vec<Row<'_>> = std::mem::take(self.ahead_of(cursor));
        rows.clear();
        self.opened()?.ahead(cursor, back, most, &mut rows)?;
        // SAFETY: only the lifetime changes. From here on nobody but the C part looks at what the rows point to, which has
        // promised not to after it has moved the cursor; the next look from here clears them.
        let rows = unsafe { std::mem::transmute::<Vec<Row<'_>>, Vec<Row<'static>>>(rows) };
        let kept = self.ahead_of(cursor);
        *kept = rows;
        Ok(EngineRows {
            rows: kept.as_ptr(),
            count: c_uint::try_from(kept.len()).map_err(|_| Error::TooBig("a page"))?,
        })
    }
}
