//! Calls that a replay must know of, apart from statements.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::time::Instant;

use onewrite_record::event::Outcome;

use super::{MISUSE, OK, autocommit, is_recorded, of_connection, text};
use crate::real::{Handle, Real};
use crate::state;

macro_rules! teaching {
    ($name:ident, $real:ident, $what:literal, $($arg:ident: $type:ty),*) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(db: Handle, name: *const c_char, $($arg: $type),*) -> c_int {
            let Some(teach) = of_connection(db).and_then(|real| real.$real) else {
                return MISUSE;
            };
            // SAFETY: the caller's own arguments.
            unsafe {
                if is_recorded() {
                    let taught = text(name);
                    state::with(|state| state.taught(db as usize, $what, &taught));
                }
                state::within(|| teach(db, name, $($arg),*))
            }
        }
    };
}

teaching!(sqlite3_create_function, create_function, "function",
    arguments: c_int, encoding: c_int, app: *mut c_void, call: *mut c_void, step: *mut c_void,
    last: *mut c_void);
teaching!(sqlite3_create_function_v2, create_function_v2, "function",
    arguments: c_int, encoding: c_int, app: *mut c_void, call: *mut c_void, step: *mut c_void,
    last: *mut c_void, free: *mut c_void);
teaching!(sqlite3_create_window_function, create_window_function, "function",
    arguments: c_int, encoding: c_int, app: *mut c_void, step: *mut c_void, last: *mut c_void,
    value: *mut c_void, inverse: *mut c_void, free: *mut c_void);
teaching!(sqlite3_create_collation, create_collation, "collation",
    encoding: c_int, app: *mut c_void, compare: *mut c_void);
teaching!(sqlite3_create_collation_v2, create_collation_v2, "collation",
    encoding: c_int, app: *mut c_void, compare: *mut c_void, free: *mut c_void);
teaching!(sqlite3_create_module, create_module, "module",
    methods: *const c_void, app: *mut c_void);
teaching!(sqlite3_create_module_v2, create_module_v2, "module",
    methods: *const c_void, app: *mut c_void, free: *mut c_void);

fn unrecorded(name: &str) {
    if is_recorded() {
        state::with(|state| state.unrecorded(name));
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_blob_open(
    db: Handle,
    schema: *const c_char,
    table: *const c_char,
    column: *const c_char,
    row: i64,
    flags: c_int,
    blob: *mut Handle,
) -> c_int {
    let Some(open) = of_connection(db).and_then(|real| real.blob_open) else {
        return MISUSE;
    };
    if flags != 0 {
        unrecorded("sqlite3_blob_open for writing");
    }
    // SAFETY: here and below: the caller's own arguments.
    state::within(|| unsafe { open(db, schema, table, column, row, flags, blob) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_backup_init(
    to: Handle,
    to_name: *const c_char,
    from: Handle,
    from_name: *const c_char,
) -> Handle {
    let Some(init) = of_connection(to).and_then(|real| real.backup_init) else {
        return ptr::null_mut();
    };
    unrecorded("sqlite3_backup_init");
    state::within(|| unsafe { init(to, to_name, from, from_name) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_deserialize(
    db: Handle,
    schema: *const c_char,
    data: *mut u8,
    size: i64,
    room: i64,
    flags: u32,
) -> c_int {
    let Some(deserialize) = of_connection(db).and_then(|real| real.deserialize) else {
        return MISUSE;
    };
    unrecorded("sqlite3_deserialize");
    state::within(|| unsafe { deserialize(db, schema, data, size, room, flags) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_load_extension(
    db: Handle,
    file: *const c_char,
    entry: *const c_char,
    error: *mut *mut c_char,
) -> c_int {
    let Some(load) = of_connection(db).and_then(|real| real.load_extension) else {
        return MISUSE;
    };
    unrecorded("sqlite3_load_extension");
    state::within(|| unsafe { load(db, file, entry, error) })
}

/// Calls a function that does the same as a pragma, and records it as that pragma, if there is one.
fn as_pragma(
    db: Handle,
    real: &Real,
    call: impl FnOnce() -> c_int,
    pragma: impl FnOnce() -> Option<String>,
) -> c_int {
    let recorded = is_recorded();
    let (at, began) = (state::now(), Instant::now());
    let code = state::within(call);
    if recorded && let Some(sql) = pragma() {
        as_sql(db, real, at, began, code, &sql);
    }
    code
}

fn as_sql(db: Handle, real: &Real, at: u64, began: Instant, code: c_int, sql: &str) {
    if code != OK {
        return;
    }
    let took = began.elapsed().as_nanos() as u64;
    // SAFETY: a connection of this SQLite.
    let autocommit = unsafe { autocommit(real, db) };
    let outcome = Outcome {
        code: 0,
        autocommit,
        rows: None,
    };
    state::with(|state| state.executed(db as usize, at, took, sql.as_bytes(), outcome));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_wal_autocheckpoint(db: Handle, pages: c_int) -> c_int {
    let known = of_connection(db).and_then(|real| Some((real, real.wal_autocheckpoint?)));
    let Some((real, set)) = known else {
        return MISUSE;
    };
    as_pragma(
        db,
        real,
        || unsafe { set(db, pages) },
        || Some(format!("PRAGMA wal_autocheckpoint={pages}")),
    )
}

/// The name of a checkpoint mode.
fn checkpoint_mode(mode: c_int) -> &'static str {
    match mode {
        0 => "PASSIVE",
        1 => "FULL",
        2 => "RESTART",
        _ => "TRUNCATE",
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_wal_checkpoint(db: Handle, schema: *const c_char) -> c_int {
    let known = of_connection(db).and_then(|real| Some((real, real.wal_checkpoint?)));
    let Some((real, checkpoint)) = known else {
        return MISUSE;
    };
    as_pragma(
        db,
        real,
        || unsafe { checkpoint(db, schema) },
        || Some("PRAGMA wal_checkpoint(PASSIVE)".to_owned()),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_wal_checkpoint_v2(
    db: Handle,
    schema: *const c_char,
    mode: c_int,
    frames: *mut c_int,
    copied: *mut c_int,
) -> c_int {
    let known = of_connection(db).and_then(|real| Some((real, real.wal_checkpoint_v2?)));
    let Some((real, checkpoint)) = known else {
        return MISUSE;
    };
    as_pragma(
        db,
        real,
        || unsafe { checkpoint(db, schema, mode, frames, copied) },
        || Some(format!("PRAGMA wal_checkpoint({})", checkpoint_mode(mode))),
    )
}

/// `sqlite3_db_config` takes arguments that depend on `what`: at most three words. On the supported
/// machines they lie where those of a function with three such parameters lie.
#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_db_config(
    db: Handle,
    what: c_int,
    first: usize,
    second: usize,
    third: usize,
) -> c_int {
    let known = of_connection(db).and_then(|real| Some((real, real.db_config?)));
    let Some((real, configure)) = known else {
        return MISUSE;
    };
    as_pragma(
        db,
        real,
        || unsafe { configure(db, what, first, second, third) },
        || config_pragma(what, first as c_int),
    )
}

/// The pragma equivalent to such a call, if there is one and the call was not only a question.
fn config_pragma(what: c_int, on: c_int) -> Option<String> {
    let pragma = match what {
        1002 => "foreign_keys",
        1017 => "writable_schema",
        _ => return None,
    };
    (on >= 0).then(|| format!("PRAGMA {pragma}={}", on != 0))
}
