//! `PRAGMA journal_mode=xftl`: the file system commits transactions, and SQLite keeps no journal on disk.
//!
//! To SQLite the database is in `memory` mode: the rollback journal, savepoints included, is in memory. What it
//! writes to the file, when it spills and when it commits, is the file system's transaction:
//!
//! | SQLite | the file |
//! | --- | --- |
//! | first write | begin |
//! | xSync of COMMIT | commit, of this file alone |
//! | xSync, where the transaction has written other databases | it shares their transaction |
//! | COMMIT_PHASETWO | commit, if there is something left: of several files at once, or with `synchronous=OFF` |
//! | deletion of a super-journal | commit, where others of the transaction are in rollback modes ([`super::super_journal`]) |
//! | lock given back, not committed | abort |
//!
//! So COMMIT is one fsync. A process that dies, or a power cut, leaves the database as it was committed last: there is no
//! journal to be played back, nor to be waited for. ROLLBACK plays the journal in memory back, as always, and the
//! abort drops that with all the rest: it comes to the same. The sync at the end of that is left out.
//!
//! A journal that another mode left is played back outside of all that, and synced, before SQLite ends it: SQLite
//! goes from SHARED to EXCLUSIVE for that, and for nothing else, and says `SQLITE_FCNTL_SYNC` at its end. And where a write or a commit fails the transaction is aborted
//! at once: SQLite puts back what it can, but it may keep its lock.
//!
//! Each commit of a rollback mode counts in page 1, so that other connections know that what they remember is old. After a
//! power cut there are none: where a commit changes nothing else of the page, the file system may keep the count to itself, and no
//! page is written for it.
//!
//! The mode is of a connection, as `memory` and `off` are. Others may use the database in any rollback mode, if
//! they are in this mode too when they write: what another mode writes is in no transaction that survives alone.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::database::{Database, Switch};
use super::ffi;
use super::header;
use super::host::{Connection, SqlError};
use super::pragma::{Answer, Failure};
use super::super_journal;
use crate::storage::{AtomicWrites, Descriptor, atomic_writes};

/// The journal mode's name.
pub const NAME: &str = "xftl";

thread_local! {
    /// A connection's number, and the first file of its transaction over several databases, whose transaction the others share. One
    /// thread commits one transaction at a time.
    static FIRST: RefCell<Option<(usize, Descriptor)>> = const { RefCell::new(None) };
}

/// A database in this mode.
pub struct Atomic {
    transaction: Rc<Transaction>,
    playback: Cell<Playback>,
}

/// The file's.
pub struct Transaction {
    database: PathBuf,
    file: Box<dyn AtomicWrites>,
    /// Something was written and neither committed nor aborted.
    has_begun: Cell<bool>,
    /// It was committed, and the super-journal is not known to be deleted. If SQLite plays its journal back now, that
    /// has to be committed as well.
    is_ahead: Cell<bool>,
}

impl Transaction {
    fn new(database: &Path, file: Box<dyn AtomicWrites>) -> Rc<Self> {
        Rc::new(Self {
            database: database.to_owned(),
            file,
            has_begun: Cell::new(false),
            is_ahead: Cell::new(false),
        })
    }

    /// Commits before SQLite has deleted its super-journal.
    pub(super) fn commit_ahead(&self) -> Result<(), c_int> {
        if !self.has_begun.get() {
            return Ok(());
        }
        let committed = self.file.commit_by_ioctl();
        committed.map_err(|error| self.failed("commit", &error).0)?;
        self.has_begun.set(false);
        self.is_ahead.set(true);
        Ok(())
    }

    /// After a commit that failed. If the abort fails as well, it is the device that fails: SQLite is told of the
    /// first, and the next to abort tries again.
    pub(super) fn give_up(&self) {
        if self.has_begun.get() && self.file.abort().is_ok() {
            self.has_begun.set(false);
        }
    }

    /// Logs what went wrong: SQLite's code for it, and the message.
    fn failed(&self, doing: &str, error: &std::io::Error) -> (c_int, String) {
        let message = format!("{}: cannot {doing}: {error}", self.database.display());
        super::host::log(ffi::SQLITE_IOERR, &message);
        let code = match error.kind() {
            std::io::ErrorKind::StorageFull => ffi::SQLITE_FULL,
            _ => ffi::SQLITE_IOERR,
        };
        (code, message)
    }
}

/// No transaction over several databases goes on.
pub(super) fn forget_first() {
    // A thread that ends has none any more.
    let _ = FIRST.try_with(|first| first.take());
}

/// How far a journal is played back that another mode left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Playback {
    /// None is.
    None,
    /// What SQLite writes is from it.
    Runs,
    /// All of it is written; it may have to be synced.
    Written,
}

impl Database {
    /// Whether the connection is in this mode.
    pub fn is_atomic(&self) -> bool {
        self.atomic.borrow().is_some()
    }

    /// Enters the mode, by way of `memory`.
    pub(super) fn switch_to_atomic(&self) -> Answer {
        match self.try_switch_to_atomic() {
            Ok(()) => Answer::Text(NAME.to_owned()),
            Err(failure) => Answer::Fail(failure),
        }
    }

    fn try_switch_to_atomic(&self) -> Result<(), Failure> {
        if self.is_atomic() {
            return Ok(());
        }
        let (connection, schema) = self
            .connection_and_schema()
            .map_err(|error| self.why(error))?
            .ok_or("the connection is not known to the VFS")?;
        if !connection.is_autocommit() {
            return Err("cannot change into xftl mode from within a transaction".into());
        }
        if self.read_only {
            return Err("cannot change into xftl mode: the database is read-only".into());
        }
        let database = self.paths.database.display();
        let file = atomic_writes(&self.paths.database)
            .map_err(|error| format!("cannot change into xftl mode: {database}: {error}"))?;
        self.leave_for("memory")?;
        // From `wal` to `memory` there is no way but by `delete`.
        for word in ["delete", "memory"] {
            self.expect_mode(self.stock_mode(connection, &schema, word), word)?;
        }
        self.atomic.replace(Some(Atomic {
            transaction: Transaction::new(&self.paths.database, file),
            playback: Cell::new(Playback::None),
        }));
        Ok(())
    }

    /// A way from this mode, if that is what the database is in, to another: on it, writes are as on any file
    /// system. If the way fails the mode is what it was.
    pub(super) fn out_of_atomic(
        &self,
        switch: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Some(atomic) = self.atomic.take() else {
            return switch();
        };
        let switched = switch();
        if switched.is_err() {
            // It may have been left for `delete` already.
            let back = match self.connection_and_schema() {
                Ok(Some((connection, schema))) => {
                    self.stock_mode(connection, &schema, "memory").ok()
                }
                _ => None,
            };
            // Where it is not known, as well: a journal in memory alone protects nothing.
            if back.flatten().is_none_or(|mode| mode == "memory") {
                self.atomic.replace(Some(atomic));
            }
        }
        switched
    }

    /// To a mode of SQLite's own. While the pragma is prepared nobody knows whether SQLite will do it, and in
    /// `memory` without transactions of the file nothing protects it: so it is done here, and looked at.
    pub(super) fn leave_atomic_for(&self, word: &str) -> Result<(), Failure> {
        self.leave_for(word)?;
        let (connection, schema) = self
            .connection_and_schema()
            .map_err(|error| self.why(error))?
            .ok_or("the connection is not known to the VFS")?;
        // By way of `delete`: from `memory` SQLite writes the header of `wal` without a journal.
        for word in ["delete", word] {
            self.expect_mode(self.stock_mode(connection, &schema, word), word)
                .map_err(|failure| Failure {
                    message: format!("cannot change out of xftl mode: {}", failure.message),
                    ..failure
                })?;
        }
        Ok(())
    }

    /// SQLite's own pragma, as a statement of ours.
    fn stock_mode(
        &self,
        connection: Connection,
        schema: &str,
        word: &str,
    ) -> Result<Option<String>, SqlError> {
        self.switch.set(Switch::ToStock);
        let mode = connection.query(&format!("PRAGMA {schema}.journal_mode={word}"));
        self.switch.set(Switch::Idle);
        mode
    }

    /// Before anything is written to the file, or cut from it.
    pub fn begin_atomic(&self) -> Result<(), c_int> {
        let atomic = self.atomic.borrow();
        let is_due = |atomic: &&Atomic| {
            !atomic.transaction.has_begun.get() && atomic.playback.get() != Playback::Runs
        };
        let Some(atomic) = atomic.as_ref().filter(is_due) else {
            return Ok(());
        };
        match atomic.transaction.file.begin() {
            Ok(()) => {
                atomic.transaction.has_begun.set(true);
                atomic.playback.set(Playback::None);
                Ok(())
            }
            Err(error) => Err(self.atomic_failed("begin a transaction", &error)),
        }
    }

    /// A write of page 1 that changes nothing but the counters: those are written lazily. `false` if it is to be written as
    /// any other.
    pub fn counts_lazily(&self, page: &[u8]) -> bool {
        let Some(transaction) = self.begun() else {
            return false;
        };
        // What is in the file is looked at, and not remembered: others write it too.
        let mut present = vec![0; page.len()];
        if self.inner.read(&mut present, 0) != ffi::SQLITE_OK {
            return false;
        }
        let Some(counters) = header::only_counters_differ(page, &present) else {
            return false;
        };
        let file = &transaction.file;
        file.write_lazily(counters.start as u64, &page[counters])
    }

    /// EXCLUSIVE was taken where SHARED was held: SQLite has found a journal. It plays that back, unless another
    /// connection was first; with `locking_mode=EXCLUSIVE` it keeps the lock even so.
    pub fn begin_playback(&self) {
        if let Some(atomic) = self.atomic.borrow().as_ref()
            && self.paths.journal.try_exists().unwrap_or(true)
        {
            atomic.playback.set(Playback::Runs);
        }
    }

    /// `SQLITE_FCNTL_SYNC`: it comes when all is written, or played back, also with `synchronous=OFF`, where xSync does
    /// not. It names the super-journal, if the transaction has one.
    pub fn all_written(&self, super_journal: Option<&Path>) -> Result<(), c_int> {
        self.playback_goes(Playback::Runs, Playback::Written);
        let atomic = self.atomic.borrow();
        let Some(transaction) = atomic.as_ref().map(|atomic| &atomic.transaction) else {
            return Ok(());
        };
        match super_journal {
            _ if !transaction.has_begun.get() => Ok(()),
            Some(name) => match super_journal::join(name, transaction) {
                true => Ok(()),
                false => Err(self.atomic_failed(
                    "commit beside several databases in rollback modes",
                    &std::io::Error::other(
                        "their super-journal is not made by onewrite: open the main database through it",
                    ),
                )),
            },
            None if transaction.is_ahead.get() => self.commit_atomic_file(transaction),
            None => Ok(()),
        }
    }

    /// After an xSync of the file as on any file system. Where it failed SQLite plays the journal back again.
    pub fn playback_synced(&self, code: c_int) {
        if let (ffi::SQLITE_OK, Some(atomic)) = (code, self.atomic.borrow().as_ref()) {
            atomic.playback.set(Playback::None);
        } else {
            self.playback_goes(Playback::Written, Playback::Runs);
        }
    }

    fn playback_goes(&self, from: Playback, to: Playback) {
        if let Some(atomic) = self.atomic.borrow().as_ref()
            && atomic.playback.get() == from
        {
            atomic.playback.set(to);
        }
    }

    /// Before the mode may be left.
    pub(super) fn is_in_atomic_transaction(&self) -> bool {
        let atomic = self.atomic.borrow();
        atomic.as_ref().is_some_and(|atomic| {
            let connection = self.connection.get();
            atomic.transaction.has_begun.get()
                || connection.is_some_and(|connection| !connection.is_autocommit())
        })
    }

    /// After something failed in a transaction: the file is what it was before, whatever SQLite can do about it.
    pub fn give_up_atomic(&self, code: c_int) -> c_int {
        // A playback that fails is none: SQLite begins it again.
        if code != ffi::SQLITE_OK && self.begun().is_some() {
            // If that fails as well, it is the device that fails: SQLite is told of the first.
            let _ = self.abort_atomic();
        }
        code
    }

    /// `xSync`: `true` if it was done, or is put off until all files of the transaction are written.
    pub fn sync_atomic(&self) -> Result<bool, c_int> {
        let Some(transaction) = self.begun() else {
            return Ok(false);
        };
        // ROLLBACK plays its journal back and syncs that, before it gives the lock back: the abort that comes
        // then drops it all. (SQLite leaves autocommit mode before ROLLBACK, and enters it before COMMIT, does its
        // work. A statement that fails on its own is taken for a commit, of what there was before it.)
        let Some(connection) = self.connection.get() else {
            return self.commit_atomic_file(&transaction).map(|()| true);
        };
        if !connection.is_autocommit() {
            return Ok(true);
        }
        if self.alone_in_transaction() {
            return self.commit_atomic_file(&transaction).map(|()| true);
        }
        let share = |first: &mut Option<(usize, Descriptor)>| match first {
            Some((whose, first)) if *whose == connection.number() => transaction.file.share(first),
            _ => {
                let descriptor = transaction.file.descriptor().clone();
                *first = Some((connection.number(), descriptor));
                Ok(())
            }
        };
        // Without it the files would be committed one by one.
        let shared = FIRST
            .try_with(|first| share(&mut first.borrow_mut()))
            .unwrap_or_else(|_| Err(std::io::Error::other("its thread is ending")));
        match shared {
            Ok(()) => Ok(true),
            Err(error) => {
                Err(self.atomic_failed("share a transaction with another database", &error))
            }
        }
    }

    /// COMMIT_PHASETWO: whatever is not committed yet is committed now. The first file of several does it for
    /// all; for the others it is an fsync of nothing.
    pub fn commit_atomic(&self) -> Result<(), c_int> {
        forget_first();
        self.not_ahead();
        match self.begun() {
            Some(transaction) => self.commit_atomic_file(&transaction),
            None => Ok(()),
        }
    }

    fn commit_atomic_file(&self, transaction: &Transaction) -> Result<(), c_int> {
        match transaction.file.commit() {
            Ok(true) => {}
            Ok(false) => {
                let code = self.inner.sync();
                if code != ffi::SQLITE_OK {
                    // The code does not say whether there was room; the system's number, which the VFS keeps, does. A second
                    // commit would say so as well, and might make a COMMIT of what SQLite is told has failed.
                    let why = std::io::Error::from_raw_os_error(self.inner.last_errno());
                    return Err(match self.atomic_failed("commit", &why) {
                        ffi::SQLITE_FULL => ffi::SQLITE_FULL,
                        _ => code,
                    });
                }
            }
            Err(error) => return Err(self.atomic_failed("commit", &error)),
        }
        transaction.has_begun.set(false);
        transaction.is_ahead.set(false);
        Ok(())
    }

    /// Before the lock is given back: what was not committed never was.
    pub fn abort_atomic(&self) -> Result<(), c_int> {
        if let Some(atomic) = self.atomic.borrow().as_ref() {
            atomic.playback.set(Playback::None);
        }
        self.not_ahead();
        let Some(transaction) = self.begun() else {
            return Ok(());
        };
        forget_first();
        match transaction.file.abort() {
            Ok(()) => {
                transaction.has_begun.set(false);
                Ok(())
            }
            Err(error) => Err(self.atomic_failed("abort", &error)),
        }
    }

    /// The file's transaction, if something was written in it.
    fn begun(&self) -> Option<Rc<Transaction>> {
        let atomic = self.atomic.borrow();
        let transaction = atomic.as_ref().map(|atomic| Rc::clone(&atomic.transaction));
        transaction.filter(|transaction| transaction.has_begun.get())
    }

    /// The transaction has come to its end, whichever.
    fn not_ahead(&self) {
        if let Some(atomic) = self.atomic.borrow().as_ref() {
            atomic.transaction.is_ahead.set(false);
        }
    }

    fn atomic_failed(&self, doing: &str, error: &std::io::Error) -> c_int {
        let atomic = self.atomic.borrow();
        let Some(atomic) = atomic.as_ref() else {
            return ffi::SQLITE_IOERR;
        };
        let (code, message) = atomic.transaction.failed(doing, error);
        self.last_error.replace(Some(message));
        code
    }
}
