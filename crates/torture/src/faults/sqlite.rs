//! What is asked of the linked SQLite before it is first used: its log, and a memory allocator that
//! can refuse. Both are process-wide, so they are for workers alone.
#![allow(unsafe_code)]

use crate::failure::Failure;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn note(code: c_int, message: &str) {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    if log.len() < 20 {
        log.push(format!("({code}) {message}"));
    }
}

/// Collects what goes through `sqlite3_log` from now on.
///
/// # Errors
/// SQLite is in use already.
pub fn collect_log() -> Result<(), Failure> {
    // SAFETY: nothing of SQLite was used before; the callback uses nothing of SQLite.
    unsafe { rusqlite::trace::config_log(Some(note)) }
        .map_err(|e| Failure::Harness(format!("SQLITE_CONFIG_LOG: {e}")))
}

/// What came since the last call.
pub fn take_log() -> Vec<String> {
    std::mem::take(&mut LOG.lock().unwrap_or_else(PoisonError::into_inner))
}
