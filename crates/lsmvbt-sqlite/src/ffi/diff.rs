//! The differences between two versions, for the C part.

use std::ffi::{CString, c_char, c_int};

use ::lsmvbt::{Change, ChangeKind};

use super::code;
use super::exports::run;
use super::handle::Handle;
use super::pragma::text;
use super::sqlite;
use crate::engine::Error;

/// `EngineChange`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EngineChange {
    rowid: i64,
    kind: c_int,
}

impl EngineChange {
    fn of(change: &Change) -> Self {
        Self {
            rowid: change.key,
            kind: match change.kind {
                ChangeKind::Insert => 0,
                ChangeKind::Update => 1,
                ChangeKind::Delete => 2,
            },
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_diff(
    db: *mut Handle,
    table: *const c_char,
    from: *const c_char,
    to: *const c_char,
    changes: *mut *mut EngineChange,
    count: *mut i64,
    reason: *mut *mut c_char,
) -> c_int {
    // SAFETY: C strings, according to engine.h.
    let (table, from, given) = unsafe { (text(table), text(from), text(to)) };
    let is_text = given.is_some() || to.is_null();
    // SAFETY: a connection; the results may be written.
    unsafe {
        run(db, |inner| {
            let found = match (table, from) {
                (Some(table), Some(from)) if is_text => inner.diff(table, from, given),
                _ => Err(Error::Refused("the arguments are not UTF-8".to_owned())),
            };
            let found: Vec<_> = match found {
                Ok(found) => found.iter().map(EngineChange::of).collect(),
                Err(error @ (Error::Busy | Error::NoMemory)) => return Err(error),
                Err(error) => {
                    let words = CString::new(error.to_string()).unwrap_or_default();
                    reason.write(sqlite::allocated(&words));
                    return Ok(inner.code_of(&error));
                }
            };
            let copy = sqlite::allocated_array(&found);
            if copy.is_null() && !found.is_empty() {
                return Err(Error::NoMemory);
            }
            changes.write(copy);
            // No memory holds more than fit.
            count.write(found.len() as i64);
            Ok(code::OK)
        })
    }
}
