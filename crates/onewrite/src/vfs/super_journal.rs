//! Transactions over databases in `xftl` and several in rollback modes of SQLite's.
//!
//! For those SQLite makes a super-journal, and deletes it when every database is written and synced. That is its
//! COMMIT: no error that comes later is reported, that of COMMIT_PHASETWO neither. So the databases in `xftl` are
//! committed at the last moment at which one is:
//!
//! | SQLite | here |
//! | --- | --- |
//! | xOpen of a super-journal | its name is kept |
//! | `SQLITE_FCNTL_SYNC` with that name | the database's transaction joins |
//! | xDelete of it, to be made durable | what has joined is committed; where that fails the super-journal stays, and SQLite plays back |
//!
//! Only the VFS of the main database sees the super-journal. Who cannot join must not commit.
//!
//! All of this comes in one call of SQLite's, on one thread. Called by [`super::thunks`] and [`super::atomic`].

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

/// Before a super-journal is opened: to be written, or in a playback, which deletes the last one. What joined before
/// was not committed.
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

/// Before a file is deleted durably: if it is the super-journal, what has joined is committed. If that fails none of it
/// stays begun, and the file must not be deleted. The error is SQLite's code.
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

/// `None` while the thread ends: connections may be closed that late, and nothing can join any more.
fn with_commit<T>(work: impl FnOnce(&mut Option<Commit>) -> T) -> Option<T> {
    COMMIT
        .try_with(|commit| work(&mut commit.borrow_mut()))
        .ok()
}
