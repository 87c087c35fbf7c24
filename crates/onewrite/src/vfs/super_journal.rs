//! Transactions over databases in `xftl` and several in SQLite's rollback modes.
//!
//! For those SQLite makes a super-journal, and deletes it when every database is written and
//! synced. That is its COMMIT: SQLite reports no later error, not even one of COMMIT_PHASETWO. So
//! the databases in `xftl` are committed at the last moment at which an error is reported:
//!
//! | SQLite | here |
//! | --- | --- |
//! | xOpen of a super-journal | its name is kept |
//! | `SQLITE_FCNTL_SYNC` with that name | the database's transaction joins |
//! | xDelete of it, to be made durable | what has joined is committed; where that fails the super-journal stays, and SQLite plays back |
//!
//! Only the VFS of the main database sees the super-journal. A database that cannot join must not
//! commit.
//!
//! All of this comes in one call from SQLite, on one thread. Called by [`super::thunks`] and
//! [`super::atomic`].

use std::cell::RefCell;
use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::atomic::{self, Transaction};

thread_local! {
    static COMMIT: RefCell<Option<Commit>> = const { RefCell::new(None) };
}

struct Commit {
    super_journal: PathBuf,
    joined: Vec<Rc<Transaction>>,
}

/// Called before a super-journal is opened, either for writing or in a rollback, which deletes the
/// last one. Transactions that joined before were not committed.
pub fn opens(super_journal: PathBuf) {
    with_commit(|commit| {
        *commit = Some(Commit {
            super_journal,
            joined: Vec::new(),
        });
    });
}

/// Whether the transaction will be committed with the super-journal.
pub fn join(super_journal: &Path, transaction: &Rc<Transaction>) -> bool {
    let joins = with_commit(|commit| {
        let commit = commit.as_mut();
        let commit = commit.filter(|commit| commit.super_journal == super_journal)?;
        commit.joined.push(Rc::clone(transaction));
        Some(())
    });
    joins.flatten().is_some()
}

/// Called before a file is deleted durably. If it is the super-journal, commits the joined
/// transactions. If that fails, none of them stays begun, and the file must not be deleted. The
/// error is SQLite's code.
pub fn commit(name: &Path) -> Result<(), c_int> {
    let commit = with_commit(|commit| commit.take_if(|commit| commit.super_journal == name));
    let Some(Commit { joined, .. }) = commit.flatten() else {
        return Ok(());
    };
    let committed = joined.iter().try_for_each(|one| one.commit_ahead());
    if committed.is_err() {
        joined.iter().for_each(|one| one.give_up());
    }
    atomic::forget_first();
    committed
}

/// `None` while the thread ends: connections may be closed that late, and no transaction can join
/// any more.
fn with_commit<T>(work: impl FnOnce(&mut Option<Commit>) -> T) -> Option<T> {
    COMMIT
        .try_with(|commit| work(&mut commit.borrow_mut()))
        .ok()
}
