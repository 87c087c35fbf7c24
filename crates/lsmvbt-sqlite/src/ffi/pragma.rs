//! Pragmas of an engine's own, for the C part.

use std::ffi::{CStr, CString, c_char, c_int};

use super::code;
use super::handle::Handle;
use super::sqlite;
use crate::engine::Error;
use crate::lsmvbt::pragmas::PRAGMAS;

/// A C string as text; `None` if it is not UTF-8, since no engine knows such a value.
///
/// # Safety
/// `text` is null or a C string, which outlives the result.
pub(super) unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_pragma(
    db: *mut Handle,
    name: *const c_char,
    value: *const c_char,
    answer: *mut *mut c_char,
) -> c_int {
    // SAFETY: C strings, according to engine.h.
    let (name, given) = unsafe { (text(name), text(value)) };
    let Some(name) = name.map(str::to_ascii_lowercase) else {
        return code::NOTFOUND;
    };
    // For SQLite's own pragmas, which pass here first, nothing is opened yet.
    let is_ours = name == "onewrite_status" || name.starts_with("lsmvbt_");
    if !is_ours || (given.is_none() && !value.is_null()) {
        return code::NOTFOUND;
    }
    // SAFETY: a connection; `answer` may be written.
    unsafe {
        (*db).run(|inner| {
            let (result, words) = match inner.pragma(&name, given) {
                Ok(None) => return Ok(code::NOTFOUND),
                Ok(Some(words)) => (code::OK, words),
                // SQLite has a text for these, and for some a note of the file and the way out.
                Err(
                    error @ (Error::Busy
                    | Error::Compare(_)
                    | Error::NeedsRecovery(_)
                    | Error::Vfs(..)),
                ) => return Err(error),
                Err(error) => (inner.code_of(&error), error.to_string()),
            };
            let copy = sqlite::allocated(&CString::new(words).unwrap_or_default());
            answer.write(copy);
            Ok(if copy.is_null() { code::NOMEM } else { result })
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_unknown_pragma(name: *const c_char) -> *mut c_char {
    // SAFETY: a C string, according to engine.h.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let is_known = |name: &str| PRAGMAS.iter().any(|known| known.eq_ignore_ascii_case(name));
    let begins = name
        .get(..7)
        .is_some_and(|start| start.eq_ignore_ascii_case("lsmvbt_"));
    if !begins || is_known(&name) {
        return std::ptr::null_mut();
    }
    let all = PRAGMAS.join(", ");
    let words = format!("there is no pragma {name}: this engine has {all}");
    sqlite::allocated(&CString::new(words).unwrap_or_default())
}
