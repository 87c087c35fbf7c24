//! Notes of errors, which `c/glue_note.c` keeps for SQLite's messages.

use std::ffi::{CString, c_char, c_int, c_void};

// `c/glue_note.c`.
unsafe extern "C" {
    fn lsmvbt_note(db: *mut c_void, code: c_int, text: *const c_char);
}

/// Writes to SQLite's log, and adds to SQLite's message for the code.
///
/// # Safety
/// `db` is an open database connection, and this thread has its mutex.
pub(super) unsafe fn note(db: *mut c_void, code: c_int, text: &str) {
    let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
    // SAFETY: the caller's promise; a C string.
    unsafe { lsmvbt_note(db, code, text.as_ptr()) };
}
