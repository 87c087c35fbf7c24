//! What somebody asked for and does not get, because a word means nothing. A warning is in
//! `onewrite_status` and in SQLite's log. Most drivers hide both, so each is also a line on standard
//! error, once in a process.

use std::io::{self, Write};
use std::sync::Mutex;

use super::database::Database;
use super::{environment, ffi, host};

/// The most different warnings of a process that go to standard error.
const MOST: usize = 16;

/// Those that it has seen.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Database {
    /// Warns the program's user.
    pub(super) fn warn(&self, message: &str) {
        warn(message);
        self.requested
            .warnings
            .borrow_mut()
            .push(message.to_owned());
    }
}

/// Warns where no database is open.
pub(super) fn warn(message: &str) {
    host::log(ffi::SQLITE_WARNING, message);
    // Without waiting: a fork may have left it locked for ever. The status has the warning in any case.
    let Ok(mut seen) = SEEN.try_lock() else {
        return;
    };
    let is_new = seen.len() < MOST && !seen.iter().any(|known| known == message);
    if is_new {
        seen.push(message.to_owned());
    }
    if is_new && !environment::logs_to_stderr().unwrap_or(false) {
        print(message);
    }
}

/// Prints a line on standard error. `eprintln!` would panic where that is a closed pipe.
pub(super) fn print(message: &str) {
    let _ = writeln!(io::stderr(), "onewrite: {message}");
}
