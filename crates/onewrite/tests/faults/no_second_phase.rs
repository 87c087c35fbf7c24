//! Commits whose end SQLite does not announce. libSQL's replicas apply the frames of their primary in a
//! transaction that they then roll back, so `SQLITE_FCNTL_COMMIT_PHASETWO` never comes.

#![allow(unsafe_code)]

use super::group_commit::{deferred, in_company};
use super::refusal::{Refusal, Which};
use super::{directory, open, rows, sql, status, try_sql};
use rusqlite::{Connection, ffi};
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

type Control = unsafe extern "C" fn(*mut ffi::sqlite3_file, c_int, *mut c_void) -> c_int;
static BELOW: OnceLock<Control> = OnceLock::new();

unsafe extern "C" fn without_the_second_phase(
    file: *mut ffi::sqlite3_file,
    op: c_int,
    argument: *mut c_void,
) -> c_int {
    if op == ffi::SQLITE_FCNTL_COMMIT_PHASETWO {
        return ffi::SQLITE_OK;
    }
    // SAFETY: SQLite's own arguments, passed to the method that it would have called.
    unsafe { BELOW.get().expect("the method")(file, op, argument) }
}

/// From here on the engine hears of no commit's end on this connection.
fn silence(db: &Connection) {
    let mut file: *mut ffi::sqlite3_file = std::ptr::null_mut();
    // SAFETY: the connection is open; the operation stores its file, whose table is copied and lasts.
    unsafe {
        let (op, found) = (ffi::SQLITE_FCNTL_FILE_POINTER, (&raw mut file).cast());
        ffi::sqlite3_file_control(db.handle(), c"main".as_ptr(), op, found);
        let mut methods = *(*file).pMethods;
        BELOW.get_or_init(|| methods.xFileControl.expect("the method"));
        methods.xFileControl = Some(without_the_second_phase);
        (*file).pMethods = Box::leak(Box::new(methods));
    }
}

fn flushes(db: &Connection) -> u64 {
    status(db)["group_commits"]["flushes"]
        .as_u64()
        .expect("a number")
}

#[test]
fn a_commit_without_a_second_phase_is_durable_when_it_returns() {
    for mode in ["onewrite", "direct"] {
        let directory = directory();
        let [db, other] = in_company(&directory.path().join("db"), mode);
        silence(&db);
        for _ in 0..3 {
            let before = (deferred(&other), flushes(&other));
            sql(&db, "INSERT INTO t VALUES('applied')");
            let after = (deferred(&other), flushes(&other));
            assert_eq!(after, (before.0 + 1, before.1 + 1), "{mode}");
        }
    }
}

#[test]
fn if_its_flush_fails_nobody_goes_on() {
    for mode in ["onewrite", "direct"] {
        let directory = directory();
        let path = directory.path().join("db");
        let [db, other] = in_company(&path, mode);
        let before = rows(&other);
        silence(&db);
        let refused = Refusal::of(&path, Which::Flush, 5);
        // SQLite takes no error from a lock that is released.
        sql(&db, "INSERT INTO t VALUES('applied')");
        assert!(refused.has_come());
        for db in [&db, &other] {
            let found = try_sql(db, "INSERT INTO t VALUES('later')");
            assert!(found.is_err(), "{mode}: {found:?} on a poisoned log");
        }
        drop((db, other, refused));
        let found = rows(&open(&path));
        assert!(
            (before..=before + 1).contains(&found),
            "{mode}: {found} rows"
        );
    }
}
