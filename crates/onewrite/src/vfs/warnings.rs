//! What somebody asked for and does not get: a word means nothing, or nothing is durable here. A
//! warning is in
//! `onewrite_status` and in SQLite's log. Most drivers hide both, so each is also a line on standard
//! error, once in a process.

use std::sync::Mutex;

use super::database::Database;
use super::environment::{self, Sink};
use super::events::print;
use super::{convert, ffi, host};
use crate::log::Log;

/// The most different warnings of a process that go to standard error.
const MOST: usize = 16;

/// Those that it has seen.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Database {
    /// Warns the program's user.
    pub(super) fn warn(&self, message: &str) {
        warn(message);
        let warnings = &self.requested.warnings;
        warnings.borrow_mut().push(message.to_owned());
    }

    /// Warns where no commit can be durable. It is no error: a test may want it so.
    pub(super) fn warn_of_memory(&self, log: &Log) {
        let found = log.file().capabilities();
        let Err(why) = &found.durable else { return };
        if convert::is_converting() || self.is_of_the_background() {
            return;
        }
        let place = found.mount_point.as_ref().unwrap_or(&self.paths.database);
        let message = format!(
            "{}: {why}: no commit survives a power cut or a restart of the machine, in any mode; move the \
             database to a directory on a disk",
            place.display()
        );
        if !self.requested.warnings.borrow().contains(&message) {
            self.warn(&message);
        }
    }
}

/// Warns where no database is open.
pub(super) fn warn(message: &str) {
    host::log(ffi::SQLITE_WARNING, message);
    if is_new(message) && environment::sink() != Ok(Sink::Stderr) {
        print(message);
    }
}

fn is_new(message: &str) -> bool {
    // Without waiting: a fork may have left it locked for ever. The status has the warning in any case.
    let Ok(mut seen) = SEEN.try_lock() else {
        return false;
    };
    let is_new = seen.len() < MOST && !seen.iter().any(|known| known == message);
    if is_new {
        seen.push(message.to_owned());
    }
    is_new
}
