//! The functions that stand in for SQLite's.
//!
//! Each one calls SQLite's function with its own arguments and returns the result. It reads values
//! before the call, because SQLite may free them, and everything else after it. Calls that SQLite
//! itself makes during a call pass through unread.

mod bind;
#[cfg(all(
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod deepbind;
mod execute;
mod other;
mod prepare;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use onewrite_record::SOCKET_VARIABLE;

use crate::real::{self, Handle, Real};
use crate::{environment, load, state};

const OK: c_int = 0;
const MISUSE: c_int = 21;
const ROW: c_int = 100;

/// Flags of `sqlite3_open`.
const READ_WRITE_CREATE: u64 = 6;

/// Whether the environment asks for a recording.
fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| environment::variable(SOCKET_VARIABLE).is_some())
}

/// Whether to record this call.
fn is_recorded() -> bool {
    is_wanted() && state::is_outermost()
}

/// The SQLite that has a connection.
fn of_connection(db: Handle) -> Option<&'static Real> {
    real::only()
        .or_else(|| state::with(|state| state.real_of_connection(db as usize)).flatten())
        .or_else(real::of_caller)
}

/// The SQLite that has a statement.
fn of_statement(statement: Handle) -> Option<&'static Real> {
    real::only()
        .or_else(|| state::with(|state| state.real_of_statement(statement as usize)).flatten())
        .or_else(real::of_caller)
}

/// # Safety
/// A string that ends with a zero byte, or null.
pub unsafe fn text(pointer: *const c_char) -> Vec<u8> {
    match pointer.is_null() {
        true => Vec::new(),
        // SAFETY: by this function's contract.
        false => unsafe { CStr::from_ptr(pointer) }.to_bytes().to_vec(),
    }
}

/// # Safety
/// `length` bytes are there, or the pointer is null.
unsafe fn bytes(pointer: *const c_void, length: usize) -> Vec<u8> {
    match pointer.is_null() {
        true => Vec::new(),
        // SAFETY: by this function's contract.
        false => unsafe { std::slice::from_raw_parts(pointer.cast(), length) }.to_vec(),
    }
}

/// # Safety
/// UTF-16 in the machine's byte order. It ends with a zero unit, or within `most` bytes if `most`
/// is not negative.
unsafe fn text16(pointer: *const c_void, most: i64) -> (Vec<u8>, usize) {
    if pointer.is_null() {
        return (Vec::new(), 0);
    }
    let limit = usize::try_from(most).map_or(usize::MAX, |bytes| bytes / 2);
    let units: Vec<u16> = (0..limit)
        // SAFETY: by this function's contract; unaligned because nothing promises alignment.
        .map(|at| unsafe { pointer.cast::<u16>().add(at).read_unaligned() })
        .take_while(|unit| *unit != 0)
        .collect();
    (String::from_utf16_lossy(&units).into_bytes(), units.len())
}

/// Whether a connection is outside a transaction.
///
/// # Safety
/// The connection is one of this SQLite.
unsafe fn autocommit(real: &Real, db: Handle) -> bool {
    // SAFETY: by this function's contract.
    db.is_null()
        || real
            .get_autocommit
            .is_none_or(|ask| unsafe { ask(db) } != 0)
}

/// The full path of a database that a statement attaches by this name; empty for an in-memory one.
pub fn full_path(name: &[u8]) -> Vec<u8> {
    let name = match name.strip_prefix(b"file:") {
        Some(uri) => match of_uri(uri) {
            Some(path) => path,
            None => return Vec::new(),
        },
        None => name.to_vec(),
    };
    if name.is_empty() || name == b":memory:" {
        return Vec::new();
    }
    let path = PathBuf::from(std::ffi::OsString::from_vec(name));
    let absolute = std::env::current_dir().unwrap_or_default().join(path);
    let whole = absolute.canonicalize().ok();
    let in_its_directory = || {
        let parent = absolute.parent()?.canonicalize().ok()?;
        Some(parent.join(absolute.file_name()?))
    };
    whole
        .or_else(in_its_directory)
        .unwrap_or(absolute)
        .as_os_str()
        .as_bytes()
        .to_vec()
}

/// The path in a URI without `file:`; `None` if its database is in memory.
fn of_uri(uri: &[u8]) -> Option<Vec<u8>> {
    let uri = match uri.strip_prefix(b"//") {
        Some(rest) => rest.get(rest.iter().position(|byte| *byte == b'/')?..)?,
        None => uri,
    };
    let end = uri
        .iter()
        .position(|byte| matches!(byte, b'?' | b'#'))
        .unwrap_or(uri.len());
    let (path, query) = uri.split_at(end);
    if query.windows(11).any(|part| part == b"mode=memory") {
        return None;
    }
    let mut decoded = Vec::with_capacity(path.len());
    let mut at = 0;
    while let Some(byte) = path.get(at) {
        let hex = path
            .get(at + 1..at + 3)
            .and_then(|hex| std::str::from_utf8(hex).ok());
        let code = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (byte, code) {
            (b'%', Some(code)) => {
                decoded.push(code);
                at += 3;
            }
            _ => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    Some(decoded)
}

/// Called after a connection was opened.
///
/// # Safety
/// `handle` is where SQLite put it.
unsafe fn opened(
    real: &'static Real,
    at: u64,
    code: c_int,
    handle: *mut Handle,
    flags: u64,
    name: &[u8],
) {
    // SAFETY: by this function's contract.
    let db = match handle.is_null() {
        true => return,
        false => unsafe { *handle },
    };
    let is_asked_for = is_wanted() || load::is_run();
    if code != OK || db.is_null() || !is_asked_for || !state::is_outermost() {
        return;
    }
    let path = match real.db_filename {
        // SAFETY: a connection of this SQLite.
        Some(ask) => unsafe { text(ask(db, c"main".as_ptr())) },
        None => full_path(name),
    };
    let path = match Path::new(std::ffi::OsStr::from_bytes(&path)).is_absolute() {
        true => path,
        false => full_path(&path),
    };
    load::database(&path);
    if !is_wanted() {
        return;
    }
    // SAFETY: it takes nothing and returns a text that stays valid.
    let version = real
        .libversion
        .map_or_else(Vec::new, |ask| unsafe { text(ask()) });
    state::with(|state| state.opened(db as usize, real, at, flags, name, &path, version));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_open(name: *const c_char, handle: *mut Handle) -> c_int {
    let Some((real, open)) = real::of_caller().and_then(|real| Some((real, real.open?))) else {
        return MISUSE;
    };
    load::extension(real);
    let at = state::now();
    // SAFETY: the caller's own arguments.
    unsafe {
        let code = state::within(|| open(name, handle));
        opened(real, at, code, handle, READ_WRITE_CREATE, &text(name));
        code
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_open_v2(
    name: *const c_char,
    handle: *mut Handle,
    flags: c_int,
    vfs: *const c_char,
) -> c_int {
    let Some((real, open)) = real::of_caller().and_then(|real| Some((real, real.open_v2?))) else {
        return MISUSE;
    };
    load::extension(real);
    let at = state::now();
    // SAFETY: the caller's own arguments.
    unsafe {
        let code = state::within(|| open(name, handle, flags, vfs));
        opened(real, at, code, handle, u64::from(flags as u32), &text(name));
        code
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sqlite3_open16(name: *const c_void, handle: *mut Handle) -> c_int {
    let Some((real, open)) = real::of_caller().and_then(|real| Some((real, real.open16?))) else {
        return MISUSE;
    };
    load::extension(real);
    let at = state::now();
    // SAFETY: the caller's own arguments.
    unsafe {
        let code = state::within(|| open(name, handle));
        opened(
            real,
            at,
            code,
            handle,
            READ_WRITE_CREATE,
            &text16(name, -1).0,
        );
        code
    }
}

macro_rules! closing {
    ($name:ident, $real:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(db: Handle) -> c_int {
            let Some(close) = of_connection(db).and_then(|real| real.$real) else {
                return MISUSE;
            };
            if !is_recorded() || db.is_null() {
                // SAFETY: the caller's own argument.
                return unsafe { close(db) };
            }
            let at = state::now();
            // SAFETY: the caller's own argument.
            let code = state::within(|| unsafe { close(db) });
            if code == OK {
                state::with(|state| state.closed(db as usize, at));
            }
            code
        }
    };
}

closing!(sqlite3_close, close);
closing!(sqlite3_close_v2, close_v2);
