//! The library as an extension, for a program that loads extensions but whose SQLite preloading
//! cannot reach. The program runs `SELECT load_extension('libonewrite_preload')` once, with
//! `ONEWRITE_RECORD` naming the socket of `onewrite record --connect`. This records the connection
//! that loads it, and every connection opened from then on.
//!
//! It sees less than preloading. It sees each statement when it is over, but not its result. Values
//! are written into the statement's text (floating-point numbers in 15 digits, texts up to a zero
//! byte). It takes SQLite's one place for `sqlite3_trace_v2` in each connection.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

use onewrite_record::SOCKET_VARIABLE;
use onewrite_record::event::{Outcome, UNKNOWN};

use crate::environment;
use crate::real::{Handle, Real};
use crate::sink::say;
use crate::state;

/// `SQLITE_OK_LOAD_PERMANENTLY`.
const LOADED_FOR_GOOD: c_int = 256;

/// `SQLITE_TRACE_STMT`, `_PROFILE` and `_CLOSE`.
const STATEMENT: c_uint = 1;
const PROFILE: c_uint = 2;
const CLOSE: c_uint = 8;

/// SQLite 3.14.0, the first with `sqlite3_trace_v2`.
const OLDEST: c_int = 3_014_000;

/// Places in SQLite's table of functions, which only grows at its end.
const VERSION_NUMBER: usize = 67;
const SLOTS: [(&CStr, usize); 3] = [
    (c"sqlite3_get_autocommit", 60),
    (c"sqlite3_libversion", 66),
    (c"sqlite3_db_filename", 180),
];

type Function = unsafe extern "C" fn();
type Entry = unsafe extern "C" fn(Handle, *mut *mut c_char, *const Option<Function>) -> c_int;
type Traced = unsafe extern "C" fn(c_uint, *mut c_void, *mut c_void, *mut c_void) -> c_int;

/// SQLite's table of functions.
static ROUTINES: AtomicPtr<Option<Function>> = AtomicPtr::new(ptr::null_mut());

/// Start times of running statements.
static BEGUN: LazyLock<Mutex<HashMap<usize, u64>>> = LazyLock::new(Mutex::default);

/// A function from the table, with its type.
///
/// # Safety
/// `T` is the type of the function in this place.
unsafe fn slot<T: Copy>(at: usize) -> Option<T> {
    let routines = ROUTINES.load(Ordering::Acquire);
    // SAFETY: the table has this place in every SQLite that is not too old, and the age was
    // checked.
    unsafe { (*routines.add(at)).map(|function| std::mem::transmute_copy(&function)) }
}

/// The entry point, by the name that SQLite derives from the file's name. SQLite calls it again for
/// every opened connection.
#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_onewritepreload_init(
    db: Handle,
    _error: *mut *mut c_char,
    routines: *const Option<Function>,
) -> c_int {
    if environment::variable(SOCKET_VARIABLE).is_none() {
        say("ONEWRITE_RECORD names no recorder: nothing is recorded");
        return LOADED_FOR_GOOD;
    }
    ROUTINES.store(routines.cast_mut(), Ordering::Release);
    // SAFETY: the types are those of SQLite's functions.
    unsafe {
        let version = slot::<unsafe extern "C" fn() -> c_int>(VERSION_NUMBER);
        if version.is_none_or(|ask| ask() < OLDEST) {
            say(
                "this SQLite is too old to be recorded by an extension: 3.14 is the first that can be",
            );
            return LOADED_FOR_GOOD;
        }
        if let Some(automatic) = slot::<unsafe extern "C" fn(Entry) -> c_int>(192) {
            automatic(sqlite3_onewritepreload_init);
        }
        attend(db);
    }
    LOADED_FOR_GOOD
}

/// The functions of the table that other modules need.
fn real() -> &'static Real {
    static REAL: OnceLock<Real> = OnceLock::new();
    REAL.get_or_init(|| {
        let find = |name: &CStr| {
            let known = SLOTS.iter().find(|(known, _)| *known == name);
            // SAFETY: any function, as an address.
            known
                .and_then(|(_, at)| unsafe { slot::<*mut c_void>(*at) })
                .unwrap_or(ptr::null_mut())
        };
        // SAFETY: SQLite's functions, by their names.
        unsafe { Real::with(find) }
    })
}

/// # Safety
/// A connection of the SQLite whose table this is.
unsafe fn attend(db: Handle) {
    let known = state::with(|state| state.real_of_connection(db as usize).is_some());
    if known != Some(false) {
        return;
    }
    // SAFETY: by this function's contract.
    unsafe {
        let path = match real().db_filename {
            Some(ask) => super::hooks::text(ask(db, c"main".as_ptr())),
            None => return,
        };
        let version = real()
            .libversion
            .map_or_else(Vec::new, |ask| super::hooks::text(ask()));
        let now = state::now();
        state::with(|state| state.opened(db as usize, real(), now, 6, &path, &path, version));
        type Trace = unsafe extern "C" fn(Handle, c_uint, Traced, *mut c_void) -> c_int;
        if let Some(trace) = slot::<Trace>(214) {
            trace(db, STATEMENT | PROFILE | CLOSE, traced, ptr::null_mut());
        }
    }
}

/// # Safety
/// SQLite calls it, with the arguments of the kind of event.
unsafe extern "C" fn traced(
    kind: c_uint,
    _context: *mut c_void,
    subject: *mut c_void,
    detail: *mut c_void,
) -> c_int {
    let mut begun = BEGUN.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: by this function's contract.
    unsafe {
        match kind {
            STATEMENT => {
                // A statement within another, such as a trigger's: a comment names it.
                let text = CStr::from_ptr(detail.cast()).to_bytes();
                if !text.starts_with(b"--") && !begun.contains_key(&(subject as usize)) {
                    begun.insert(subject as usize, state::now());
                    if onewrite_record::sql::verb(text) == "ATTACH"
                        && let Some((db, sql)) = expanded(subject)
                    {
                        state::with(|state| state.executes(db as usize, &sql));
                    }
                }
            }
            PROFILE => {
                if let (Some(began), Some((db, sql))) =
                    (begun.remove(&(subject as usize)), expanded(subject))
                {
                    let autocommit = real().get_autocommit.is_none_or(|ask| ask(db) != 0);
                    let outcome = Outcome {
                        code: UNKNOWN,
                        autocommit,
                        rows: None,
                    };
                    let took = (*detail.cast::<i64>()).max(0) as u64;
                    state::with(|state| state.executed(db as usize, began, took, &sql, outcome));
                }
            }
            CLOSE => {
                let now = state::now();
                state::with(|state| state.closed(subject as usize, now));
            }
            _ => {}
        }
    }
    0
}

/// A statement's connection, and its text with its values.
///
/// # Safety
/// A statement of the SQLite whose table this is.
unsafe fn expanded(statement: Handle) -> Option<(Handle, Vec<u8>)> {
    // SAFETY: the types are those of SQLite's functions.
    unsafe {
        let db = slot::<unsafe extern "C" fn(Handle) -> Handle>(49)?(statement);
        let text = slot::<unsafe extern "C" fn(Handle) -> *mut c_char>(215)?(statement);
        if text.is_null() {
            state::with(|state| state.unrecorded("a statement longer than SQLite's limit"));
            return None;
        }
        let sql = CStr::from_ptr(text).to_bytes().to_vec();
        if let Some(free) = slot::<unsafe extern "C" fn(*mut c_char)>(58) {
            free(text);
        }
        Some((db, sql))
    }
}
