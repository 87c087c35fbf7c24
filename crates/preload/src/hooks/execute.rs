//! Running statements.

use std::ffi::{c_char, c_int, c_void};
use std::time::Instant;

use onewrite_record::event::Outcome;
use onewrite_record::rows::{Kind, Row, Rows};

use super::prepare::autocommit_of;
use super::{MISUSE, ROW, autocommit, is_recorded, of_connection, of_statement, text};
use crate::real::{ExecCallback, Handle, Real};
use crate::state;

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_step(statement: Handle) -> c_int {
    let Some((real, step)) = of_statement(statement).and_then(|real| Some((real, real.step?)))
    else {
        return MISUSE;
    };
    // SAFETY: the caller's own argument.
    unsafe {
        if !is_recorded() || statement.is_null() {
            return step(statement);
        }
        let key = statement as usize;
        state::with(|state| state.steps(key));
        let (at, began) = (state::now(), Instant::now());
        let code = state::within(|| step(statement));
        let took = began.elapsed().as_nanos() as u64;
        let row = match code {
            ROW => state::within(|| row(real, statement)),
            _ => None,
        };
        let autocommit = autocommit_of(statement);
        state::with(|state| state.stepped(key, at, took, code as u32 & 0xFF, row, autocommit));
        code
    }
}

/// The current row of a statement. Each value is requested in its own type, which converts nothing.
///
/// # Safety
/// A statement of this SQLite that has just returned a row.
unsafe fn row(real: &Real, statement: Handle) -> Option<Row> {
    let mut row = Row::default();
    // SAFETY: by this function's contract. Columns are below their number. The length is requested
    // after the text, as SQLite requires.
    unsafe {
        for column in 0..real.data_count?(statement) {
            match real.column_type?(statement, column) {
                1 => {
                    let number = real.column_int64?(statement, column);
                    row.add(Kind::Integer, &number.to_be_bytes());
                }
                2 => {
                    let number = real.column_double?(statement, column);
                    row.add(Kind::Real, &number.to_bits().to_be_bytes());
                }
                3 => {
                    let text = real.column_text?(statement, column);
                    let length = real.column_bytes?(statement, column);
                    row.add(Kind::Text, slice(text, length));
                }
                4 => {
                    let blob = real.column_blob?(statement, column);
                    let length = real.column_bytes?(statement, column);
                    row.add(Kind::Blob, slice(blob.cast(), length));
                }
                _ => row.add(Kind::Null, &[]),
            }
        }
    }
    Some(row)
}

/// # Safety
/// `length` bytes are there, or the pointer is null.
unsafe fn slice<'a>(bytes: *const u8, length: c_int) -> &'a [u8] {
    match bytes.is_null() || length <= 0 {
        true => &[],
        // SAFETY: by this function's contract.
        false => unsafe { std::slice::from_raw_parts(bytes, length as usize) },
    }
}

/// Wraps the callback of `sqlite3_exec`.
struct Listener {
    callback: ExecCallback,
    argument: *mut c_void,
    rows: Rows,
}

/// # Safety
/// Called by SQLite with a [`Listener`].
unsafe extern "C" fn listen(
    listener: *mut c_void,
    count: c_int,
    values: *mut *mut c_char,
    names: *mut *mut c_char,
) -> c_int {
    // SAFETY: by this function's contract. Without rows there are no values.
    unsafe {
        let listener = &mut *listener.cast::<Listener>();
        if !values.is_null() {
            let mut row = Row::default();
            for column in 0..count.max(0) as usize {
                match *values.add(column) {
                    value if value.is_null() => row.add(Kind::Null, &[]),
                    value => row.add(Kind::Text, std::ffi::CStr::from_ptr(value).to_bytes()),
                }
            }
            listener.rows.add(row);
        }
        match listener.callback {
            Some(callback) => state::outside(|| callback(listener.argument, count, values, names)),
            None => 0,
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_exec(
    db: Handle,
    sql: *const c_char,
    callback: ExecCallback,
    argument: *mut c_void,
    error: *mut *mut c_char,
) -> c_int {
    let Some((real, exec)) = of_connection(db).and_then(|real| Some((real, real.exec?))) else {
        return MISUSE;
    };
    // SAFETY: the caller's own arguments.
    unsafe {
        if !is_recorded() || db.is_null() {
            return exec(db, sql, callback, argument, error);
        }
        let script = text(sql);
        state::with(|state| state.executes(db as usize, &script));
        let mut listener = Listener {
            callback,
            argument,
            rows: Rows::default(),
        };
        let (at, began) = (state::now(), Instant::now());
        let code = state::within(|| match callback {
            None => exec(db, sql, None, argument, error),
            Some(_) => exec(db, sql, Some(listen), (&raw mut listener).cast(), error),
        });
        let took = began.elapsed().as_nanos() as u64;
        let outcome = Outcome {
            code: code as u32 & 0xFF,
            autocommit: autocommit(real, db),
            rows: callback.map(|_| listener.rows),
        };
        state::with(|state| state.executed(db as usize, at, took, &script, outcome));
        code
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_get_table(
    db: Handle,
    sql: *const c_char,
    result: *mut *mut *mut c_char,
    rows: *mut c_int,
    columns: *mut c_int,
    error: *mut *mut c_char,
) -> c_int {
    let Some((real, get)) = of_connection(db).and_then(|real| Some((real, real.get_table?))) else {
        return MISUSE;
    };
    // SAFETY: the caller's own arguments.
    unsafe {
        if !is_recorded() || db.is_null() {
            return get(db, sql, result, rows, columns, error);
        }
        let script = text(sql);
        state::with(|state| state.executes(db as usize, &script));
        let (at, began) = (state::now(), Instant::now());
        let code = state::within(|| get(db, sql, result, rows, columns, error));
        let took = began.elapsed().as_nanos() as u64;
        let autocommit = autocommit(real, db);
        let outcome = Outcome {
            code: code as u32 & 0xFF,
            autocommit,
            rows: None,
        };
        state::with(|state| state.executed(db as usize, at, took, &script, outcome));
        code
    }
}
