//! The ways in: the loadable extension's entry point, and the function behind `onewrite.h`.
#![allow(unsafe_code)]

use std::env;
use std::ffi::{c_char, c_int};
use std::mem;

use super::ffi::{self, Api, Untyped, VERSION_SLOT, sqlite3};
use super::{RegisterError, host, thunks};

/// SQLite 3.40.0.
const OLDEST: c_int = 3_040_000;

/// Whether the environment asks that databases without a VFS name use ours.
pub fn default_is_wanted() -> bool {
    env::var_os("ONEWRITE_MAKE_DEFAULT").is_some_and(|on| on == "1")
}

/// The entry point of the loadable extension: `.load ./libonewrite` in the sqlite3 shell,
/// `load_extension` elsewhere. It stays loaded, so that it may be loaded by a connection that is
/// closed again.
///
/// # Safety
/// Called by SQLite, with its function table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_onewrite_init(
    _db: *mut sqlite3,
    error: *mut *mut c_char,
    routines: *const Option<Untyped>,
) -> c_int {
    // SAFETY: by this function's contract.
    let registered =
        unsafe { api_of(routines) }.and_then(|api| thunks::register(api, default_is_wanted()));
    match registered {
        Ok(()) => ffi::SQLITE_OK_LOAD_PERMANENTLY,
        Err(e) => {
            // SAFETY: SQLite passes a place for a message, or null.
            unsafe {
                if !error.is_null() {
                    *error = host::sqlite_string(&e.to_string());
                }
            }
            ffi::SQLITE_ERROR
        }
    }
}

/// # Safety
/// `routines` is the function table of some SQLite.
unsafe fn api_of(routines: *const Option<Untyped>) -> Result<Api, RegisterError> {
    // SAFETY: every SQLite that can load extensions has this function in this slot.
    unsafe {
        let version = (*routines.add(VERSION_SLOT)).ok_or(RegisterError::NoFunctions)?;
        let version = mem::transmute::<Untyped, unsafe extern "C" fn() -> c_int>(version)();
        if version < OLDEST {
            return Err(RegisterError::TooOld(version));
        }
        Api::from_routines(routines).ok_or(RegisterError::NoFunctions)
    }
}

/// What `onewrite_register()` of `onewrite.h` calls with the functions of the SQLite that the
/// program is linked with. Returns a result code of SQLite's.
///
/// # Safety
/// `api` is the structure that `onewrite.h` declares, of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onewrite_register_with(
    api: *const Api,
    size: usize,
    version: c_int,
    make_default: c_int,
) -> c_int {
    if size != size_of::<Api>() || version < OLDEST {
        return ffi::SQLITE_ERROR;
    }
    // SAFETY: by this function's contract.
    let api = unsafe { *api };
    match thunks::register(api, make_default != 0 || default_is_wanted()) {
        Ok(()) => ffi::SQLITE_OK,
        Err(RegisterError::Refused(code)) => code,
        Err(_) => ffi::SQLITE_ERROR,
    }
}
