//! The function that SQLite calls at the end of `sqlite3_open`, as it does for automatic extensions
//! (`sqlite3_auto_extension`). Only here can our own text get into `sqlite3_errmsg`. For a refused
//! lock, as for every other call to a VFS, SQLite uses its own text. So a database that would be
//! refused anyway is refused here, with the reason and the way out.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::ptr;

use super::{database, shielded};
use crate::vfs::ffi::{self, Api, SQLITE_OK, Untyped, sqlite3, sqlite3_file};
use crate::vfs::host;

/// Has SQLite call [`opened`] for every connection from now on; more than one call is allowed. If
/// SQLite cannot, only the text is missing.
pub fn watch(api: &Api) {
    type Opened =
        unsafe extern "C" fn(*mut sqlite3, *mut *mut c_char, *const Option<Untyped>) -> c_int;
    // SAFETY: SQLite documents that it calls the function with these arguments.
    unsafe {
        let opened = std::mem::transmute::<Opened, Untyped>(opened);
        (api.auto_extension)(Some(opened));
    }
}

/// # Safety
/// SQLite passes a connection, room for a message, and its function table, or null.
unsafe extern "C" fn opened(
    db: *mut sqlite3,
    message: *mut *mut c_char,
    routines: *const Option<Untyped>,
) -> c_int {
    shielded(|| {
        // SAFETY: by this function's contract. The table belongs to the SQLite with which we were
        // registered, and whose version was checked then.
        unsafe {
            let api = (!routines.is_null()).then(|| Api::from_routines(routines));
            let Some(api) = api.flatten() else {
                return SQLITE_OK;
            };
            let mut file: *mut sqlite3_file = ptr::null_mut();
            let found = (&raw mut file).cast();
            let code = (api.file_control)(db, c"main".as_ptr(), ffi::FCNTL_DATABASE, found);
            // Only what this returns gets to `sqlite3_open`.
            if matches!(code, ffi::SQLITE_NOMEM | ffi::SQLITE_IOERR_NOMEM) {
                return ffi::SQLITE_NOMEM;
            }
            // The file is of another VFS, or of one over ours that does not pass the question on.
            if code != SQLITE_OK || file.is_null() {
                return SQLITE_OK;
            }
            let database = database::of_ours(file);
            let refused = database.and_then(|ours| Some((ours, ours.refusal()?)));
            let Some((database, error)) = refused else {
                return SQLITE_OK;
            };
            let words = error.to_string();
            *message = host::copied(&words, |bytes| (api.malloc64)(bytes as u64));
            database.fail(&error)
        }
    })
}
