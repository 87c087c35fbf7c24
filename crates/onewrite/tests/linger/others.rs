//! Connections that need a database for themselves, next to databases that linger.

use super::{LONG, MODES, is_stock, lingering, open, outcome, sql, stock};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A database that nobody gets for itself, and another one that is closed each time.
struct Refused {
    path: PathBuf,
    other: PathBuf,
    times: u32,
}

static REFUSED: Mutex<Option<Refused>> = Mutex::new(None);
/// More often than a connection may try.
const MOST: u32 = 100;

/// Called when EXCLUSIVE is asked for.
pub fn is_refused(path: &Path) -> bool {
    let mut found = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(refused) = found.as_mut().filter(|it| it.path == path) else {
        return false;
    };
    refused.times += 1;
    let other = refused.other.clone();
    let closes = refused.times < MOST;
    // Locks of the other one come here, too.
    drop(found);
    if closes {
        let closed = std::thread::spawn(move || opens_and_closes(&other)).join();
        assert!(closed.is_ok(), "no panic");
    }
    true
}

/// The last of these connections ends the time of the database.
fn opens_and_closes(path: &Path) {
    for linger in [LONG, "PRAGMA onewrite_linger=off"] {
        let db = open(path);
        sql(&db, linger);
        sql(&db, "SELECT count(*) FROM t");
    }
}

/// Closes are counted in 64 places, by the database's inode.
fn are_counted_as_one(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| path.metadata().expect("a file").ino() % 64;
    place(one) == place(other)
}

/// Otherwise each close of another database would be a reason to try once more.
#[test]
fn a_locked_database_is_busy_though_other_databases_close_all_the_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = open(&path);
    assert_eq!(sql(&db, "PRAGMA journal_mode=onewrite"), "onewrite");
    drop(db);
    let other = (0..)
        .map(|n| directory.path().join(format!("other-{n}")))
        .find(|other| {
            lingering(other, "onewrite");
            !are_counted_as_one(&path, other)
        })
        .expect("one of them");
    let begins = Refused {
        path: path.clone(),
        other,
        times: 0,
    };
    let refused = || REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    *refused() = Some(begins);
    let db = open(&path);
    let found = outcome(&db, "SELECT count(*) FROM sqlite_schema");
    let times = refused().take().expect("it is refused").times;
    assert!(found.starts_with("error 5"), "{found}");
    assert!(times <= 20, "tried {times} times");
    drop(db);
}

#[test]
fn a_log_is_given_up_though_this_process_keeps_the_database_open() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in MODES {
        let path = directory.path().join(mode);
        lingering(&path, mode);
        let given_up = onewrite::discard_log(&path);
        assert!(given_up.is_ok(), "{mode}: {given_up:?}");
        assert!(is_stock(&path), "{mode}");
        let db = stock(&path);
        // Nothing is lost: the log could be recovered.
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "1", "{mode}");
        drop(db);

        let path = directory.path().join(format!("{mode}-without"));
        lingering(&path, mode);
        std::fs::remove_file(super::companion(&path, "-onewrite")).expect("a log");
        let given_up = onewrite::discard_log(&path);
        assert!(given_up.is_ok(), "{mode}: {given_up:?}");
        assert!(is_stock(&path), "{mode}");
        assert_eq!(sql(&stock(&path), "PRAGMA integrity_check"), "ok", "{mode}");
    }
}

/// An open connection of the application is in the way, and stays so.
#[test]
fn a_log_is_not_given_up_under_a_connection() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    lingering(&path, "onewrite");
    let db = open(&path);
    sql(&db, LONG);
    assert_eq!(sql(&db, "SELECT count(*) FROM t"), "1");
    let given_up = onewrite::discard_log(&path);
    assert_eq!(given_up, Err(onewrite::DiscardError::InUse));
    sql(&db, "INSERT INTO t(x) VALUES(2)");
    assert_eq!(sql(&db, "SELECT count(*) FROM t"), "2");
}
