//! `PRAGMA journal_mode=xftl`: the file system commits transactions, and SQLite keeps no journal on
//! disk.
//!
//! To SQLite the database is in `memory` mode: the rollback journal, with its savepoints, is in
//! memory. Its writes to the file, when it spills and when it commits, are the file system's
//! transaction:
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
//! So COMMIT is one fsync. A process that dies, or a power cut, leaves the database as last
//! committed. There is no journal to roll back or to wait for. ROLLBACK rolls back from the journal
//! in memory, as always. The abort drops that with all the rest, so the result is the same, and
//! SQLite's sync at the end is left out.
//!
//! A journal that another mode left is rolled back without a transaction, and synced, before SQLite
//! ends it. Only for that does SQLite go from SHARED to EXCLUSIVE, and it sends `SQLITE_FCNTL_SYNC`
//! at its end. If a write or a commit fails, the transaction is aborted at once. SQLite restores
//! what it can, but it may keep its lock.
//!
//! Each commit of a rollback mode counts in page 1, so that other connections know that their
//! caches are old. After a power cut there are no other connections. If a commit changes only the
//! count on that page, the file system may keep the count to itself, and writes no page for it.
//!
//! The mode belongs to a connection, like `memory` and `off`. Others may use the database in any
//! rollback mode, if they are in this mode too when they write. Writes of another mode are in no
//! transaction that survives alone.

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
    /// A connection's number, and the first file of its transaction over several databases. The
    /// other files share that file's transaction. A thread commits one transaction at a time.
    static FIRST: RefCell<Option<(usize, Descriptor)>> = const { RefCell::new(None) };
}

/// A database in this mode.
pub struct Atomic {
    transaction: Rc<Transaction>,
    playback: Cell<Playback>,
}

/// The file's transaction.
pub struct Transaction {
    database: PathBuf,
    file: Box<dyn AtomicWrites>,
    /// Whether bytes were written and neither committed nor aborted.
    has_begun: Cell<bool>,
    /// Whether it was committed while the super-journal may not be deleted yet. If SQLite then
    /// rolls its journal back, that must be committed as well.
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

    /// Commits before SQLite deletes its super-journal.
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

    /// Called after a failed commit. If the abort fails as well, the device fails: SQLite gets the
    /// first error, and the next abort tries again.
    pub(super) fn give_up(&self) {
        if self.has_begun.get() && self.file.abort().is_ok() {
            self.has_begun.set(false);
        }
    }

    /// Logs the error. Returns SQLite's code for it, and the message.
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

/// No transaction over several databases is open any more.
pub(super) fn forget_first() {
    // A thread that is ending has none any more.
    let _ = FIRST.try_with(|first| first.take());
}

/// The progress of rolling back a journal that another mode left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Playback {
    /// There is no such journal.
    None,
    /// SQLite's writes are from it.
    Runs,
    /// All of it is written; it may still need a sync.
    Written,
}

impl Database {
    /// Whether the connection is in this mode.
    pub fn is_atomic(&self) -> bool {
        self.atomic.borrow().is_some()
    }

    /// Enters the mode, through `memory`.
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
        // From `wal`, SQLite reaches `memory` only through `delete`.
        for word in ["delete", "memory"] {
            self.expect_mode(self.stock_mode(connection, &schema, word), word)?;
        }
        self.atomic.replace(Some(Atomic {
            transaction: Transaction::new(&self.paths.database, file),
            playback: Cell::new(Playback::None),
        }));
        Ok(())
    }

    /// Switches to another mode, and leaves this one first if the database is in it. During the
    /// switch, writes are as on any file system. If the switch fails, the mode is as before.
    pub(super) fn out_of_atomic(
        &self,
        switch: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Some(atomic) = self.atomic.take() else {
            return switch();
        };
        let switched = switch();
        if switched.is_err() {
            // The database may be in `delete` already.
            let back = match self.connection_and_schema() {
                Ok(Some((connection, schema))) => {
                    self.stock_mode(connection, &schema, "memory").ok()
                }
                _ => None,
            };
            // Also if it is unknown: a journal in memory alone protects nothing.
            if back.flatten().is_none_or(|mode| mode == "memory") {
                self.atomic.replace(Some(atomic));
            }
        }
        switched
    }

    /// Switches to one of SQLite's own modes. While the pragma is prepared, it is unknown whether
    /// SQLite will switch. In `memory` without transactions of the file, nothing protects the
    /// database. So the switch is done and checked here.
    pub(super) fn leave_atomic_for(&self, word: &str) -> Result<(), Failure> {
        self.leave_for(word)?;
        let (connection, schema) = self
            .connection_and_schema()
            .map_err(|error| self.why(error))?
            .ok_or("the connection is not known to the VFS")?;
        // Through `delete`: from `memory`, SQLite writes the header of `wal` without a journal.
        for word in ["delete", word] {
            self.expect_mode(self.stock_mode(connection, &schema, word), word)
                .map_err(|failure| Failure {
                    message: format!("cannot change out of xftl mode: {}", failure.message),
                    ..failure
                })?;
        }
        Ok(())
    }

    /// Runs SQLite's own pragma as our statement.
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

    /// Begins before a write to the file, or a truncation.
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

    /// A write of page 1 that changes only the counters: they are written lazily. `false` if the
    /// page must be written normally.
    pub fn counts_lazily(&self, page: &[u8]) -> bool {
        let Some(transaction) = self.begun() else {
            return false;
        };
        // The file is read each time and not cached, because others write it too.
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

    /// EXCLUSIVE was taken directly from SHARED: SQLite has found a journal. It rolls that back,
    /// unless another connection was first. With `locking_mode=EXCLUSIVE` it keeps the lock even
    /// so.
    pub fn begin_playback(&self) {
        if let Some(atomic) = self.atomic.borrow().as_ref()
            && self.paths.journal.try_exists().unwrap_or(true)
        {
            atomic.playback.set(Playback::Runs);
        }
    }

    /// `SQLITE_FCNTL_SYNC` comes when all is written, or rolled back. It comes also with
    /// `synchronous=OFF`, where xSync does not. It names the super-journal, if the transaction has
    /// one.
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
                    "commit together with several databases in rollback modes",
                    &std::io::Error::other(
                        "onewrite did not make their super-journal: open the main database through it",
                    ),
                )),
            },
            None if transaction.is_ahead.get() => self.commit_atomic_file(transaction),
            None => Ok(()),
        }
    }

    /// Called after a normal xSync of the file. If that failed, SQLite rolls the journal back
    /// again.
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

    /// Whether a transaction is open, so that the mode may not be left.
    pub(super) fn is_in_atomic_transaction(&self) -> bool {
        let atomic = self.atomic.borrow();
        atomic.as_ref().is_some_and(|atomic| {
            let connection = self.connection.get();
            atomic.transaction.has_begun.get()
                || connection.is_some_and(|connection| !connection.is_autocommit())
        })
    }

    /// Called after a failure in a transaction: the file is as before, whatever SQLite can do about
    /// it.
    pub fn give_up_atomic(&self, code: c_int) -> c_int {
        // A failed rollback of a journal is not a transaction: SQLite begins it again.
        if code != ffi::SQLITE_OK && self.begun().is_some() {
            // If this fails as well, the device fails: SQLite gets the first error.
            let _ = self.abort_atomic();
        }
        code
    }

    /// `xSync`: `true` if it was done, or is deferred until all files of the transaction are
    /// written.
    pub fn sync_atomic(&self) -> Result<bool, c_int> {
        let Some(transaction) = self.begun() else {
            return Ok(false);
        };
        // ROLLBACK rolls back from its journal and syncs, before it releases the lock. The abort
        // that follows drops it all. (SQLite leaves autocommit mode before ROLLBACK works, and
        // enters it before COMMIT works. A single statement that fails is treated as a commit of
        // the state before it.)
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
        // Without a shared transaction the files would be committed one by one.
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

    /// COMMIT_PHASETWO: commits everything that is not committed yet. The first of several files
    /// does it for all; for the others it is an fsync of nothing.
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
                    // SQLite's code does not say whether the disk was full. The system's error
                    // number does, and the VFS keeps it. A second commit would say so as well, but
                    // might succeed after SQLite got an error.
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

    /// Called before the lock is released: undoes what was not committed.
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

    /// The file's transaction, if it has begun.
    fn begun(&self) -> Option<Rc<Transaction>> {
        let atomic = self.atomic.borrow();
        let transaction = atomic.as_ref().map(|atomic| Rc::clone(&atomic.transaction));
        transaction.filter(|transaction| transaction.has_begun.get())
    }

    /// The transaction has ended, one way or the other.
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
