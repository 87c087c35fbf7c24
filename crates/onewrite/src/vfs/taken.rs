//! A database that was taken from under its connections: its file was replaced, removed or
//! overwritten. Or another process ended its guard while this connection was at work. Transactions
//! that were committed to the log stay there, but no connection to this database will read them. No
//! more commits may be acknowledged.
//!
//! SQLite's locks keep other connections from doing this, as long as they hold
//! (`docs/durability.md`, L1 to L14 and T1 to T4). They do not stop a `cp`.

use std::ffi::c_int;
use std::path::Path;

use super::background::Service;
use super::database::Database;
use super::ffi;
use super::header::{HEADER_BYTES, guarded_by};
use super::host;
use super::inner::LockLevel;
use super::orphan::is_aside;
use crate::log::{ErrorKind, LogError};
use crate::storage::{LogFile, StorageError};
use crate::sync::Instant;
use crate::waits::{LOG_IN_USE, LOOK_AT_NORMAL, Try, try_times};

/// The database's path leads elsewhere: whether its log stayed, was removed, or was set aside by another
/// program that made a new database there. If the log's path leads elsewhere as well, the directory was
/// renamed, or this process has another root, or may no longer look there. Then both are still together.
fn was_left_behind(log: &LogFile, path: &Path) -> bool {
    let is_removed = || matches!(log.size_while_linked(), Err(StorageError::Deleted { .. }));
    log.same_as_path().unwrap_or(false) || is_removed() || is_aside(log, path)
}

impl Database {
    /// As [`Database::check_not_taken`], before a commit is written. At NORMAL the look of a moment ago
    /// will do.
    ///
    /// # Errors
    /// It is another one.
    pub fn check_before_commit(&self) -> Result<(), LogError> {
        let now = Instant::now();
        let looked = self.guard.looked.get();
        if self.looks_rarely() && looked.is_some_and(|then| now - then < LOOK_AT_NORMAL) {
            return Ok(());
        }
        self.check_not_taken()?;
        self.guard.looked.set(Some(now));
        Ok(())
    }

    /// Whether this connection commits without a flush. The last commit tells, too: a pragma may have
    /// been prepared and not run.
    pub fn looks_rarely(&self) -> bool {
        let writer = self.writer.borrow();
        self.reads_relaxed() && writer.as_ref().is_some_and(|writer| !writer.expects_sync())
    }

    /// Checks that the database is still the one that the log belongs to. Called before a commit is
    /// written and before a checkpoint. Two system calls, in the modes that guard.
    ///
    /// # Errors
    /// It is another one.
    pub fn check_not_taken(&self) -> Result<(), LogError> {
        let Some(log) = self.log().filter(|log| log.mode().is_guarded()) else {
            return Ok(());
        };
        // After a failure of the call that clears the guard, the header's state is unknown.
        if self.takes_no_lock || log.is_guard_in_doubt() {
            return Ok(());
        }
        let is_left = || self.has_moved() && was_left_behind(log.file(), &self.paths.log);
        // The application has closed its connections. Their commits belong in this file, wherever it
        // is now.
        if !self.serves(Service::Lingers) && is_left() {
            return Err(self.taken("was replaced or removed"));
        }
        let mut header = [0; HEADER_BYTES];
        let found = match self.inner.read(&mut header, 0) {
            ffi::SQLITE_OK => guarded_by(&header),
            ffi::SQLITE_IOERR_SHORT_READ => None,
            code => return Err(self.inner_error("read the header of", code)),
        };
        match found == log.id() {
            true => Ok(()),
            false => Err(self.taken("was overwritten, or opened and closed by another program")),
        }
    }

    fn taken(&self, how: &str) -> LogError {
        let log = self.paths.log.display();
        let text = format!(
            "this database {how} while this connection had it open: no more commits are written. Earlier \
             commits stay in {log}: \"onewrite salvage {log} -o NEW\" saves them"
        );
        LogError::new(ErrorKind::Taken, &self.paths.database, text)
    }

    /// `xLock(EXCLUSIVE)` of a guarded database was granted: by SQLite's locks no other connection
    /// has it open. A connection that has the log open has lost its locks, and continues. The error
    /// is SQLite's code.
    pub fn check_exclusive(&self) -> Result<(), c_int> {
        let Some(log) = self.log().filter(|log| log.mode().is_guarded()) else {
            return Ok(());
        };
        self.check_not_taken().map_err(|e| self.fail(&e))?;
        // A killed process releases the database a moment before the log.
        let free = try_times(&LOG_IN_USE, |_| match log.is_used_elsewhere() {
            Ok(false) => Ok(Try::Done(())),
            Ok(true) => Ok(Try::Later),
            Err(e) => Err(self.fail(&e)),
        });
        if free?.is_some() {
            return Ok(());
        }
        let database = self.paths.database.display();
        host::log(
            ffi::SQLITE_BUSY,
            &format!(
                "{database}: another process uses it, and has lost its SQLite locks: something there has \
                 opened and closed the file; the log stays as it is"
            ),
        );
        Err(ffi::SQLITE_BUSY)
    }

    /// `xLock` above SHARED.
    pub fn lock_further(&self, level: LockLevel) -> c_int {
        if level == LockLevel::EXCLUSIVE {
            if self.is_of_the_background() {
                return ffi::SQLITE_BUSY;
            }
            if self.lingers_on() || self.leaves_the_end_to_others() {
                // The database is not closed with this connection, unless the other closes now, too.
                self.note_close();
                return ffi::SQLITE_BUSY;
            }
            self.before_exclusive();
        }
        let code = self.inner.lock(level);
        if code != ffi::SQLITE_OK {
            if level == LockLevel::EXCLUSIVE {
                self.note_close();
            }
            return code;
        }
        let was = self.lock.get();
        if level == LockLevel::EXCLUSIVE && self.may_be_interrupted() {
            self.note_close();
        }
        if level == LockLevel::EXCLUSIVE && was == LockLevel::SHARED {
            if let Err(code) = self.check_exclusive() {
                self.note_close();
                self.inner.unlock(was);
                return code;
            }
            self.remapper.note_exclusive();
            self.begin_playback();
        }
        self.lock.set(was.max(level));
        ffi::SQLITE_OK
    }
}
