//! A database that lingers is closed while a thread opens it to checkpoint
//! (`onewrite_background_checkpoint`). Neither may wait for the other.

use super::children::{self, printed, this_program};
use super::{LONG, MODES, at_once, is_closed, open, sql};
use rusqlite::ffi;
use std::ffi::{c_char, c_int};
use std::path::PathBuf;
use std::sync::{Once, OnceLock};
use std::thread::{ThreadId, current, sleep};
use std::time::Duration;

const ROWS: u64 = 10;

/// The thread of the application.
static APPLICATION: OnceLock<ThreadId> = OnceLock::new();

/// A connection of another thread has opened the file, and takes its first lock later.
unsafe extern "C" fn delays(
    _db: *mut ffi::sqlite3,
    _message: *mut *mut c_char,
    _api: *const ffi::sqlite3_api_routines,
) -> c_int {
    if APPLICATION.get() != Some(&current().id()) {
        sleep(Duration::from_millis(200));
    }
    ffi::SQLITE_OK
}

fn opens_slowly() {
    static ONCE: Once = Once::new();
    APPLICATION.get_or_init(|| current().id());
    // SAFETY: the function stays.
    ONCE.call_once(|| unsafe {
        ffi::sqlite3_auto_extension(Some(delays));
    });
}

fn in_a_process(name: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let text = printed(&mut children::child(&this_program(), name, &path));
    assert!(text.contains("closed in each mode"), "{text}");
}

/// The last commit leaves a checkpoint to a thread, which is about to open the database.
fn leave_a_checkpoint(db: &rusqlite::Connection, mode: &str) {
    assert_eq!(sql(db, &format!("PRAGMA journal_mode={mode}")), mode);
    sql(db, LONG);
    sql(db, "PRAGMA onewrite_background_checkpoint=on");
    sql(db, "CREATE TABLE t(id INTEGER PRIMARY KEY, x)");
    for _ in 1..ROWS {
        sql(db, "INSERT INTO t(x) VALUES('a row')");
    }
    opens_slowly();
    sql(db, "PRAGMA wal_autocheckpoint=5");
    sql(db, "INSERT INTO t(x) VALUES('the last one')");
}

#[test]
fn a_fork_closes_it() {
    in_a_process("with_a_thread::closes_and_forks");
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn closes_and_forks() {
    let path = PathBuf::from(std::env::var(children::DATABASE).expect("a database"));
    for mode in MODES {
        let path = path.with_extension(mode);
        let db = open(&path);
        leave_a_checkpoint(&db, mode);
        drop(db);
        at_once::fork();
        is_closed(&path, ROWS);
    }
    println!("closed in each mode");
}

#[test]
fn a_fork_closes_it_while_the_application_has_it_open() {
    in_a_process("with_a_thread::forks_with_another_connection");
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn forks_with_another_connection() {
    let path = PathBuf::from(std::env::var(children::DATABASE).expect("a database"));
    for mode in MODES {
        let path = path.with_extension(mode);
        let (db, other) = (open(&path), open(&path));
        leave_a_checkpoint(&db, mode);
        assert_eq!(sql(&other, "SELECT count(*) FROM t"), ROWS.to_string());
        drop(db);
        at_once::fork();
        assert_eq!(sql(&other, "SELECT count(*) FROM t"), ROWS.to_string());
        drop(other);
        is_closed(&path, ROWS);
    }
    println!("closed in each mode");
}
