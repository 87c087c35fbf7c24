//! The entry points: of the loadable extension, and the function behind `onewrite.h`.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::Mutex;

use super::ffi::{self, Api, MALLOC_SLOT, Untyped, VERSION_SLOT, sqlite3};
use super::warnings::warn;
use super::{RegisterError, environment, host, thunks};
use crate::sync;

/// SQLite 3.40.0.
const OLDEST: c_int = 3_040_000;

/// Registers the VFS with a SQLite of this version and these functions.
pub fn register(api: Api, version: c_int, make_default: bool) -> Result<(), RegisterError> {
    if version < OLDEST {
        return Err(RegisterError::TooOld(version));
    }
    // Whether the environment asks that databases without a VFS name use ours.
    let is_wanted = environment::makes_default().unwrap_or(false);
    thunks::register(api, make_default || is_wanted)?;
    // Once registered there is a log to write to.
    environment::unknown_words().for_each(|message| warn(&message));
    Ok(())
}

/// The entry point of the loadable extension: `.load ./libonewrite` in the sqlite3 shell,
/// `load_extension` elsewhere. It stays loaded, so that a connection that is closed again may load
/// it.
///
/// # Safety
/// Called by SQLite, with its function table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_onewrite_init(
    _db: *mut sqlite3,
    error: *mut *mut c_char,
    routines: *const Option<Untyped>,
) -> c_int {
    // SAFETY: by this function's contract. SQLite passes a place for a message, or null.
    unsafe {
        match register_with(routines) {
            Ok(()) => ffi::SQLITE_OK_LOAD_PERMANENTLY,
            Err(e) => {
                if !error.is_null() {
                    *error = message_of(routines, &e.to_string());
                }
                ffi::SQLITE_ERROR
            }
        }
    }
}

/// # Safety
/// `routines` is the function table of some SQLite.
unsafe fn register_with(routines: *const Option<Untyped>) -> Result<(), RegisterError> {
    // SAFETY: every SQLite that can load extensions has this function in this slot.
    unsafe {
        let version = (*routines.add(VERSION_SLOT)).ok_or(RegisterError::NoFunctions)?;
        let version = mem::transmute::<Untyped, unsafe extern "C" fn() -> c_int>(version)();
        // The version is checked first: an old table is shorter.
        if version < OLDEST {
            return Err(RegisterError::TooOld(version));
        }
        let api = Api::from_routines(routines).ok_or(RegisterError::NoFunctions)?;
        register(api, version, false)
    }
}

/// A message in memory of a SQLite that may be too old to be our host; SQLite frees it.
///
/// # Safety
/// As for [`register_with`].
unsafe fn message_of(routines: *const Option<Untyped>, text: &str) -> *mut c_char {
    type Malloc = unsafe extern "C" fn(c_int) -> *mut c_void;
    // SAFETY: as in `register_with`.
    unsafe {
        match *routines.add(MALLOC_SLOT) {
            Some(malloc) => {
                let malloc = mem::transmute::<Untyped, Malloc>(malloc);
                host::copied(text, |bytes| malloc(bytes as c_int))
            }
            None => ptr::null_mut(),
        }
    }
}

/// The function that `onewrite_register()` of `onewrite.h` calls, with the functions of the SQLite
/// that the program is linked with. Returns a result code of SQLite.
///
/// # Safety
/// `api` is the structure that `onewrite.h` declares, of `size` bytes, or null. Its members may be
/// null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onewrite_register_with(
    api: *const Api,
    size: usize,
    version: c_int,
    make_default: c_int,
) -> c_int {
    let registered = match size == size_of::<Api>() {
        // A SQLite that is too old may lack functions, and the error says that it is too old.
        true if version < OLDEST => Err(RegisterError::TooOld(version)),
        // SAFETY: by this function's contract.
        true => unsafe { Api::from_members(api.cast()) }
            .ok_or(RegisterError::NoFunctions)
            .and_then(|api| register(api, version, make_default != 0)),
        false => Err(RegisterError::Header),
    };
    note(registered.err());
    match registered {
        Ok(()) => ffi::SQLITE_OK,
        Err(RegisterError::Refused(code)) => code,
        Err(_) => ffi::SQLITE_ERROR,
    }
}

/// Why the last registration from C failed. A returned message stays valid forever. Messages are
/// few, and a repeated one is stored once.
static WHY: Mutex<Why> = Mutex::new(Why {
    last: None,
    told: Vec::new(),
});

struct Why {
    last: Option<RegisterError>,
    told: Vec<(RegisterError, CString)>,
}

fn note(error: Option<RegisterError>) {
    let mut why = sync::lock_static(&WHY);
    why.last = error;
    if let Some(error) = error
        && !why.told.iter().any(|(known, _)| *known == error)
    {
        // A message has no zero byte.
        let text = CString::new(error.to_string()).unwrap_or_default();
        why.told.push((error, text));
    }
}

/// Why the last `onewrite_register()` of this process failed: an English sentence; empty if it did
/// not fail.
#[unsafe(no_mangle)]
pub extern "C" fn onewrite_register_message() -> *const c_char {
    let why = sync::lock_static(&WHY);
    let found = why.told.iter().find(|(known, _)| Some(*known) == why.last);
    found.map_or(c"".as_ptr(), |(_, text)| text.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    unsafe extern "C" fn version_3_39() -> c_int {
        3_039_004
    }

    unsafe extern "C" fn malloc(bytes: c_int) -> *mut c_void {
        // SAFETY: as C does.
        unsafe { libc::malloc(bytes as usize) }
    }

    /// The message that the entry point gives to a SQLite with these functions.
    fn said(version: unsafe extern "C" fn() -> c_int) -> String {
        let mut routines: Vec<Option<Untyped>> = vec![None; 300];
        // SAFETY: the types are those of the slots.
        unsafe {
            routines[VERSION_SLOT] = Some(
                mem::transmute::<unsafe extern "C" fn() -> c_int, Untyped>(version),
            );
            routines[MALLOC_SLOT] = Some(mem::transmute::<
                unsafe extern "C" fn(c_int) -> *mut c_void,
                Untyped,
            >(malloc));
            let mut error = ptr::null_mut();
            let code = sqlite3_onewrite_init(ptr::null_mut(), &mut error, routines.as_ptr());
            assert_eq!(code, ffi::SQLITE_ERROR);
            assert!(!error.is_null(), "no message");
            let text = CStr::from_ptr(error).to_string_lossy().into_owned();
            libc::free(error.cast());
            text
        }
    }

    /// Even before any SQLite is our host, there is a message.
    #[test]
    fn a_sqlite_that_cannot_be_the_host_is_told_why() {
        let text = said(version_3_39);
        assert!(text.contains("3.40") && text.contains("3.39.4"), "{text}");
        unsafe extern "C" fn version_3_40() -> c_int {
            OLDEST
        }
        let text = said(version_3_40);
        assert!(text.contains("functions"), "{text}");
    }
}
