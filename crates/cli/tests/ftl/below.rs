//! The VFS below onewrite's, in which a call on a database, or on a rollback journal, fails.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use rusqlite::ffi::{
    SQLITE_IOERR_DELETE, SQLITE_IOERR_FSYNC, SQLITE_IOERR_READ, SQLITE_IOERR_WRITE,
    SQLITE_OPEN_MAIN_DB, SQLITE_OPEN_MAIN_JOURNAL,
};

use crate::shim::{self, Call, Watch};

/// The calls that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Read,
    Write,
    /// The sync is not done.
    Sync,
    /// The sync is done, but reported as failed.
    SyncThatWasDone,
    /// The deletion of a super-journal, in a transaction with this main database.
    DeleteOfSuperJournal,
}

/// A call that must fail, once.
struct Fault {
    which: Which,
    /// The number of such calls before it; `None` once it has failed.
    before: Option<u32>,
}

static FAULTS: Mutex<BTreeMap<PathBuf, Fault>> = Mutex::new(BTreeMap::new());

fn faults() -> MutexGuard<'static, BTreeMap<PathBuf, Fault>> {
    FAULTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The call on a file after `before` others of its kind fails.
pub fn fail(file: &Path, which: Which, before: u32) {
    let before = Some(before);
    faults().insert(file.to_owned(), Fault { which, before });
}

/// No call fails from now on; returns whether one has.
pub fn has_failed(file: &Path) -> bool {
    let fault = faults().remove(file);
    fault.is_some_and(|fault| fault.before.is_none())
}

fn is_due(file: &Path, which: Which) -> bool {
    let mut faults = faults();
    let fault = faults.get_mut(file);
    let Some(fault) = fault.filter(|fault| fault.which == which) else {
        return false;
    };
    let is_due = fault.before == Some(0);
    fault.before = fault.before.and_then(|before| before.checked_sub(1));
    is_due
}

struct Failing;

impl Watch for Failing {
    const NAME: &CStr = c"below";
    const FILES: c_int = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_MAIN_JOURNAL;

    fn read(path: &Path, _offset: u64, _size: usize, call: impl Call) -> c_int {
        match is_due(path, Which::Read) {
            true => SQLITE_IOERR_READ,
            false => call(),
        }
    }

    fn delete(path: &Path, _durably: bool, call: impl Call) -> c_int {
        let name = path.to_string_lossy();
        let of = name.split_once("-mj").map(|(database, _)| database);
        match of.is_some_and(|of| is_due(Path::new(of), Which::DeleteOfSuperJournal)) {
            true => SQLITE_IOERR_DELETE,
            false => call(),
        }
    }

    fn write(path: &Path, _offset: u64, _bytes: &[u8], call: impl Call) -> c_int {
        match is_due(path, Which::Write) {
            true => SQLITE_IOERR_WRITE,
            false => call(),
        }
    }

    fn sync(path: &Path, call: impl Call) -> c_int {
        if is_due(path, Which::Sync) {
            return SQLITE_IOERR_FSYNC;
        }
        let code = call();
        match is_due(path, Which::SyncThatWasDone) {
            true => SQLITE_IOERR_FSYNC,
            false => code,
        }
    }
}

/// Puts it below, before onewrite's VFS is registered.
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(shim::register::<Failing>);
}
