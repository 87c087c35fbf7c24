//! Preparing and finalizing statements.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use super::{MISUSE, OK, autocommit, is_recorded, of_connection, of_statement, text16};
use crate::real::Handle;
use crate::state;

/// The text of a statement that the program passed to SQLite, up to where SQLite read.
///
/// # Safety
/// The arguments of `sqlite3_prepare_v2`, and its result in `tail`.
unsafe fn statement_text(sql: *const c_char, length: c_int, tail: *const c_char) -> Vec<u8> {
    if sql.is_null() {
        return Vec::new();
    }
    // SAFETY: by this function's contract.
    unsafe {
        let most = match length {
            0.. => libc::strnlen(sql, length as usize),
            _ => libc::strlen(sql),
        };
        let used = match tail.is_null() {
            true => most,
            false => (tail as usize).saturating_sub(sql as usize).min(most),
        };
        super::bytes(sql.cast(), used)
    }
}

/// The same for a text in UTF-16; returns UTF-8.
///
/// # Safety
/// The arguments of `sqlite3_prepare16_v2`, and its result in `tail`.
unsafe fn statement_text16(sql: *const c_void, length: c_int, tail: *const c_void) -> Vec<u8> {
    let used = match tail.is_null() {
        true => i64::from(length),
        false => (tail as usize).saturating_sub(sql as usize) as i64,
    };
    // SAFETY: by this function's contract.
    unsafe { text16(sql, used).0 }
}

/// Records a statement. An empty one is no statement.
fn prepared(db: Handle, statement: Handle, at: u64, code: c_int, sql: Vec<u8>) {
    if code == OK && statement.is_null() {
        return;
    }
    let statement = match code {
        OK => statement as usize,
        _ => 0,
    };
    state::with(|state| state.prepared(db as usize, statement, at, code as u32 & 0xFF, sql));
}

/// The hook of a function that prepares text of this type. `$used` computes the text of the
/// statement from the whole text, its length and the end of the statement.
macro_rules! preparing {
    ($name:ident, $real:ident, $text:ty, $used:expr, $($flags:ident: $type:ty)?) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            db: Handle,
            sql: *const $text,
            length: c_int,
            $($flags: $type,)?
            statement: *mut Handle,
            tail: *mut *const $text,
        ) -> c_int {
            let Some(prepare) = of_connection(db).and_then(|real| real.$real) else {
                return MISUSE;
            };
            if !is_recorded() || statement.is_null() {
                // SAFETY: the caller's own arguments.
                return unsafe { prepare(db, sql, length, $($flags,)? statement, tail) };
            }
            let at = state::now();
            let mut end = ptr::null();
            // SAFETY: the caller's own arguments, and a local place for the end of the text.
            unsafe {
                let code = state::within(|| prepare(db, sql, length, $($flags,)? statement, &mut end));
                if !tail.is_null() {
                    *tail = end;
                }
                prepared(db, *statement, at, code, $used(sql, length, end));
                code
            }
        }
    };
}

preparing!(sqlite3_prepare, prepare, c_char, statement_text,);
preparing!(sqlite3_prepare_v2, prepare_v2, c_char, statement_text,);
preparing!(sqlite3_prepare_v3, prepare_v3, c_char, statement_text, flags: u32);
preparing!(sqlite3_prepare16, prepare16, c_void, statement_text16,);
preparing!(sqlite3_prepare16_v2, prepare16_v2, c_void, statement_text16,);
preparing!(sqlite3_prepare16_v3, prepare16_v3, c_void, statement_text16, flags: u32);

/// Whether the connection of a statement is outside a transaction.
///
/// # Safety
/// A statement of SQLite that is not finalized.
pub(super) unsafe fn autocommit_of(statement: Handle) -> bool {
    let db = state::with(|state| state.connection_of(statement as usize)).flatten();
    match (db, of_statement(statement)) {
        // SAFETY: a connection lives as long as its statements.
        (Some(db), Some(real)) => unsafe { autocommit(real, db as Handle) },
        _ => true,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_reset(statement: Handle) -> c_int {
    let Some(reset) = of_statement(statement).and_then(|real| real.reset) else {
        return MISUSE;
    };
    // SAFETY: the caller's own argument.
    unsafe {
        if !is_recorded() || statement.is_null() {
            return reset(statement);
        }
        let code = state::within(|| reset(statement));
        let autocommit = autocommit_of(statement);
        state::with(|state| state.was_reset(statement as usize, autocommit));
        code
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_finalize(statement: Handle) -> c_int {
    let Some(finalize) = of_statement(statement).and_then(|real| real.finalize) else {
        return MISUSE;
    };
    // SAFETY: the caller's own argument. The event is recorded before another statement can get its
    // address.
    unsafe {
        if !is_recorded() || statement.is_null() {
            return finalize(statement);
        }
        let autocommit = autocommit_of(statement);
        state::with(|state| state.finalized(statement as usize, autocommit));
        state::within(|| finalize(statement))
    }
}
