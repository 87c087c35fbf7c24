//! Binding values.

use std::ffi::{c_char, c_int, c_void};

use onewrite_record::event::Value;

use super::{MISUSE, OK, bytes, is_recorded, of_statement, text16};
use crate::real::{Destructor, Handle, Real};
use crate::state;

/// `SQLITE_UTF8`, as `sqlite3_bind_text64` takes it.
const UTF8: u8 = 1;

/// Calls SQLite, and remembers the value if SQLite accepted it.
fn bind(
    statement: Handle,
    parameter: c_int,
    value: impl FnOnce() -> Value,
    call: impl FnOnce(&'static Real) -> Option<c_int>,
) -> c_int {
    let Some(real) = of_statement(statement) else {
        return MISUSE;
    };
    if !is_recorded() {
        return call(real).unwrap_or(MISUSE);
    }
    // Before the call: SQLite frees a value that it rejects.
    let value = value();
    let code = call(real).unwrap_or(MISUSE);
    if code == OK {
        state::with(|state| state.bound(statement as usize, parameter as usize, value));
    }
    code
}

/// # Safety
/// The arguments of `sqlite3_bind_text`.
unsafe fn text_value(pointer: *const c_char, length: c_int) -> Value {
    if pointer.is_null() {
        return Value::Null;
    }
    // SAFETY: by this function's contract.
    unsafe {
        let length = match length {
            0.. => length as usize,
            _ => libc::strlen(pointer),
        };
        Value::Text(bytes(pointer.cast(), length))
    }
}

/// # Safety
/// `length` bytes of UTF-16 are there, or a text that ends.
unsafe fn text16_value(pointer: *const c_void, length: i64) -> Value {
    match pointer.is_null() {
        true => Value::Null,
        // SAFETY: by this function's contract.
        false => Value::Text(unsafe { text16(pointer, length) }.0),
    }
}

/// # Safety
/// `length` bytes are there.
unsafe fn blob_value(pointer: *const c_void, length: u64) -> Value {
    match pointer.is_null() {
        true => Value::Null,
        // SAFETY: by this function's contract.
        false => Value::Blob(unsafe { bytes(pointer, length as usize) }),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_bind_null(statement: Handle, at: c_int) -> c_int {
    // SAFETY: here and below: the caller's own arguments.
    bind(
        statement,
        at,
        || Value::Null,
        |real| Some(unsafe { real.bind_null?(statement, at) }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_bind_int(statement: Handle, at: c_int, number: c_int) -> c_int {
    let value = || Value::Integer(i64::from(number));
    bind(statement, at, value, |real| {
        Some(unsafe { real.bind_int?(statement, at, number) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_bind_int64(statement: Handle, at: c_int, number: i64) -> c_int {
    let value = || Value::Integer(number);
    bind(statement, at, value, |real| {
        Some(unsafe { real.bind_int64?(statement, at, number) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_bind_double(statement: Handle, at: c_int, number: f64) -> c_int {
    let value = || Value::Real(number);
    bind(statement, at, value, |real| {
        Some(unsafe { real.bind_double?(statement, at, number) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_bind_text(
    statement: Handle,
    at: c_int,
    text: *const c_char,
    length: c_int,
    free: Destructor,
) -> c_int {
    let value = || unsafe { text_value(text, length) };
    bind(statement, at, value, |real| {
        Some(unsafe { real.bind_text?(statement, at, text, length, free) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_bind_text64(
    statement: Handle,
    at: c_int,
    text: *const c_char,
    length: u64,
    free: Destructor,
    encoding: u8,
) -> c_int {
    let value = || match encoding {
        UTF8 => match text.is_null() {
            true => Value::Null,
            false => Value::Text(unsafe { bytes(text.cast(), length as usize) }),
        },
        _ => unsafe { text16_value(text.cast(), length as i64) },
    };
    bind(statement, at, value, |real| {
        Some(unsafe { real.bind_text64?(statement, at, text, length, free, encoding) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_bind_text16(
    statement: Handle,
    at: c_int,
    text: *const c_void,
    length: c_int,
    free: Destructor,
) -> c_int {
    let value = || unsafe { text16_value(text, i64::from(length)) };
    bind(statement, at, value, |real| {
        Some(unsafe { real.bind_text16?(statement, at, text, length, free) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_bind_blob(
    statement: Handle,
    at: c_int,
    blob: *const c_void,
    length: c_int,
    free: Destructor,
) -> c_int {
    let value = || unsafe { blob_value(blob, length.max(0) as u64) };
    bind(statement, at, value, |real| {
        Some(unsafe { real.bind_blob?(statement, at, blob, length, free) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_bind_blob64(
    statement: Handle,
    at: c_int,
    blob: *const c_void,
    length: u64,
    free: Destructor,
) -> c_int {
    let value = || unsafe { blob_value(blob, length) };
    bind(statement, at, value, |real| {
        Some(unsafe { real.bind_blob64?(statement, at, blob, length, free) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_bind_zeroblob(statement: Handle, at: c_int, length: c_int) -> c_int {
    let value = || Value::Zeros(length.max(0) as u64);
    bind(statement, at, value, |real| {
        Some(unsafe { real.bind_zeroblob?(statement, at, length) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_bind_zeroblob64(statement: Handle, at: c_int, length: u64) -> c_int {
    bind(
        statement,
        at,
        || Value::Zeros(length),
        |real| Some(unsafe { real.bind_zeroblob64?(statement, at, length) }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_bind_value(statement: Handle, at: c_int, source: Handle) -> c_int {
    let value = || match of_statement(statement) {
        Some(real) => unsafe { value_of(real, source) }.unwrap_or(Value::Null),
        None => Value::Null,
    };
    bind(statement, at, value, |real| {
        Some(unsafe { real.bind_value?(statement, at, source) })
    })
}

/// # Safety
/// A value of this SQLite.
unsafe fn value_of(real: &Real, source: Handle) -> Option<Value> {
    // SAFETY: by this function's contract. The length is requested after the text, as SQLite
    // requires.
    unsafe {
        Some(match real.value_type?(source) {
            1 => Value::Integer(real.value_int64?(source)),
            2 => Value::Real(real.value_double?(source)),
            3 => {
                let text = real.value_text?(source);
                Value::Text(bytes(text.cast(), real.value_bytes?(source) as usize))
            }
            4 => {
                let blob = real.value_blob?(source);
                Value::Blob(bytes(blob, real.value_bytes?(source) as usize))
            }
            _ => Value::Null,
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_bind_pointer(
    statement: Handle,
    at: c_int,
    pointer: *mut c_void,
    kind: *const c_char,
    free: Destructor,
) -> c_int {
    if is_recorded() {
        state::with(|state| state.unrecorded("sqlite3_bind_pointer"));
    }
    bind(
        statement,
        at,
        || Value::Null,
        |real| Some(unsafe { real.bind_pointer?(statement, at, pointer, kind, free) }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_clear_bindings(statement: Handle) -> c_int {
    let Some(clear) = of_statement(statement).and_then(|real| real.clear_bindings) else {
        return MISUSE;
    };
    let code = unsafe { clear(statement) };
    if is_recorded() {
        state::with(|state| state.cleared(statement as usize));
    }
    code
}
