//! Leaving a mode with a log: the log is given up, the guard is cleared, and the remembered mode is
//! removed. The interleavings: `docs/durability.md`, M1 to M6.

use std::sync::atomic::Ordering;

use super::companion::open_companion;
use super::database::{Database, Switch};
use super::header::{Header, READ_VERSION_AT, WAL_VERSION, clear, guarded_by};
use super::host::Connection;
use super::inner::LockLevel;
use super::{convert, ffi};
use crate::commit::SharedLog;
use crate::log::LogError;
use crate::log::shared::Shared;
use crate::storage::is_present;
use crate::waits::{DATABASE_LOCK, Try, try_times};

impl Database {
    /// Called before `xDelete` of SQLite's own log.
    ///
    /// SQLite may then go from EXCLUSIVE to SHARED without ever releasing the lock. Others make a
    /// new log at once, and SQLite opens it. The log known here is another file.
    pub fn forget_wal(&self) -> Result<(), LogError> {
        self.forget_pages()?;
        let was_direct = self.log.replace(None).is_some();
        if was_direct && self.lock.get() == LockLevel::EXCLUSIVE && !self.has_moved() {
            // No other connection has the database. What stays, the next one makes again.
            let _ = Shared::remove(&self.paths.log);
        }
        Ok(())
    }

    /// Under EXCLUSIVE, unless the log is deleted because its last connection closes. SQLite keeps
    /// the pages in the connection's cache, though others may have committed to them since its last
    /// transaction, unless the change counter differs. The counter matters only to open
    /// connections, so it needs no flush.
    fn forget_pages(&self) -> Result<(), LogError> {
        if !self.is_leaving_a_log() || self.lock.get() != LockLevel::EXCLUSIVE {
            return Ok(());
        }
        match self.read_header()? {
            Some(mut header) => self.move_counter_on(&mut header),
            None => Ok(()),
        }
    }

    /// Whether SQLite ends its use of a log to enter another mode, and not because it closes the
    /// file. Only then is a statement running that may write: `PRAGMA journal_mode`. No pragma call
    /// tells us reliably. One without a schema name is for attached databases too, and only the
    /// main one gets it. A prepared one runs again without a call to us.
    ///
    /// A shared cache that may be closing asks nobody, and counts as leaving.
    pub fn is_leaving_a_log(&self) -> bool {
        if self.is_shared() {
            return self.lock.get() == LockLevel::EXCLUSIVE;
        }
        let connection = self.connection.get();
        connection.is_none_or(Connection::is_writing)
    }

    /// SQLite tells the file its connection when it opens it, and again for each one that comes to share it.
    /// That may be while another thread uses the file.
    pub fn note_connection(&self, connection: Connection) {
        match self.connection.get() {
            None => self.connection.set(Some(connection)),
            Some(_) => self.is_shared.store(true, Ordering::Release),
        }
    }

    /// Whether connections have shared this file. While the last one closes it, `connection` may be another
    /// one that has closed, and is freed. So it may not be asked where a close may be under way.
    pub fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Acquire)
    }

    /// `xDelete` of the log, which SQLite calls under EXCLUSIVE when everything is in the database.
    /// The log becomes empty, and the database a stock one again.
    pub fn delete_log(&self) -> Result<(), LogError> {
        // SQLite's checkpoint was not interrupted. After an error here nothing is tried again.
        self.guard.has_closed.set(false);
        let Some(log) = self
            .log()
            .filter(|_| self.lock.get() == LockLevel::EXCLUSIVE)
        else {
            return Ok(());
        };
        log.check_poison()?;
        if !log.is_untouched() {
            if !self.is_flushed.get() {
                self.flush_database()?;
            }
            log.reset()?;
        }
        let Some(mut header) = self.read_header()? else {
            return Ok(());
        };
        clear(&mut header);
        self.write_header(&mut header).inspect_err(|_| {
            // Whether the database is still guarded is unknown, and SQLite continues with the log.
            log.set_guard_in_doubt(true);
        })?;
        if self.switch.get() == Switch::Idle {
            let rested = self.inner.size().map(|size| log.rest(size));
            if let Ok(Err(e)) = rested {
                // The log keeps its size, and the next connection to open it must be more careful.
                self.fail(&e);
            }
        }
        self.log.replace(None);
        self.remove_companions();
        match self.switch.get() {
            Switch::Idle | Switch::Asks => Ok(()),
            Switch::ToStock | Switch::To(_) => self.forget_mode(),
        }
    }

    /// Removes the files next to the log. Only under EXCLUSIVE: then no connection uses them. If they
    /// stay, the next connection makes them again.
    pub(super) fn remove_companions(&self) {
        if !self.has_moved() {
            let _ = Shared::remove(&self.paths.log);
        }
    }

    /// EXCLUSIVE is refused, or granted. SQLite may have asked for it to close the database as the last one:
    /// with the connection, or in `DETACH`, which is a statement that does not write. Where it is granted,
    /// SQLite's checkpoint may still be interrupted. Then the log is not deleted.
    pub fn note_close(&self) {
        let is_ours = |log: &SharedLog| {
            log.mode().is_guarded() && log.file().is_of_this_process() && log.poisoned().is_none()
        };
        let closes = self.has_idle_log() && !self.is_leaving_a_log();
        if closes && self.log().is_some_and(|log| is_ours(&log)) {
            self.guard.has_closed.set(true);
        }
    }

    /// Whether SQLite's checkpoint at the close may end early though it can be made: by `sqlite3_interrupt`,
    /// which our own connections never get. With `readonly_shm=1` SQLite makes none, and leaves its log
    /// to others on purpose.
    pub fn may_be_interrupted(&self) -> bool {
        self.served.is_none() && !convert::is_ending() && !self.may_only_read_index
    }

    /// Called with the last lock: the log now belongs to other connections, or to none. Only the last
    /// connection ends the guard, and only if it can write.
    pub fn let_go_of_log(&self) {
        let has_closed = self.guard.has_closed.take();
        let only_reads = self.read_only || self.may_not_write_log();
        let Some(log) = self.log.replace(None) else {
            return;
        };
        // The checkpoint at the close may have poisoned it.
        let may_try = has_closed && log.poisoned().is_none();
        let could_not = may_try || (only_reads && !convert::is_converting());
        self.guard.left_guarded.set(could_not && log.id().is_some());
    }

    /// Called before the file is closed. Whether this connection leaves a guarded database that no
    /// other connection uses. Every connection lets go of its log before it looks, so of those that
    /// close at once the last one finds nobody. If another one uses it, that one ends the guard.
    pub fn must_end_guard(&self) -> bool {
        if !self.guard.left_guarded.take() || self.has_moved() {
            return false;
        }
        let log = open_companion(&self.paths.log).ok().flatten();
        let is_unused = log.is_some_and(|log| is_present(log).is_ok_and(|present| !present));
        let is_guarded = || {
            self.read_header()
                .is_ok_and(|header| header.is_some_and(|header| guarded_by(&header).is_some()))
        };
        is_unused && is_guarded()
    }

    /// Removes the file that remembers a mode which this connection does not use. Another process
    /// may be about to use it: the process that guards the database makes the log under EXCLUSIVE
    /// and leaves the guard behind. So under SHARED, if there is no guard, the file is not in use
    /// as a log.
    ///
    /// `false`: the database is guarded or in WAL mode by now, or we could not look.
    pub fn forget_unused_mode(&self) -> Result<bool, LogError> {
        if self.lock.get() != LockLevel::NONE {
            // Our own SHARED has prevented others from guarding for as long as we have known the
            // mode.
            return self.forget_mode().map(|()| true);
        }
        let forgotten = try_times(&DATABASE_LOCK, |_| {
            match self.inner.lock(LockLevel::SHARED) {
                ffi::SQLITE_OK => {
                    let forgotten = self.forget_unguarded();
                    self.inner.unlock(LockLevel::NONE);
                    forgotten.map(Try::Done)
                }
                code if code & 0xff == ffi::SQLITE_BUSY => Ok(Try::Later),
                code => Err(self.inner_error("lock", code)),
            }
        })?;
        Ok(forgotten.unwrap_or(false))
    }

    /// Under SHARED, taken just now. When this connection looked last, the database was not in WAL
    /// mode. If it is by now, another connection has entered the mode meanwhile.
    fn forget_unguarded(&self) -> Result<bool, LogError> {
        let header = self.read_header()?;
        let is_entered = |header: &Header| {
            guarded_by(header).is_some() || header[READ_VERSION_AT] == WAL_VERSION
        };
        if header.is_some_and(|header| is_entered(&header)) {
            return Ok(false);
        }
        self.forget_mode().map(|()| true)
    }

    /// Removes the file that remembers the mode. Only if no connection can be using it as a log:
    /// under EXCLUSIVE, or as [`Database::forget_unused_mode`] does.
    pub(super) fn forget_mode(&self) -> Result<(), LogError> {
        if self.has_moved() {
            // The name belongs to another database by now.
            return Ok(());
        }
        Ok(crate::storage::remove_file(&self.paths.log)?)
    }
}
