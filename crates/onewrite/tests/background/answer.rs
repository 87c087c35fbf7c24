//! SQLite's answer about its hook counts for several commits.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::ffi;

use super::{directory, frames, insert, open, open_in, sql};

/// How often SQLite was asked.
static ASKED: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn count(
    _: *mut c_void,
    action: c_int,
    name: *const c_char,
    _: *const c_char,
    _: *const c_char,
    _: *const c_char,
) -> c_int {
    // SAFETY: the name of a pragma is text.
    if action == ffi::SQLITE_PRAGMA && unsafe { CStr::from_ptr(name) } == c"wal_autocheckpoint" {
        ASKED.fetch_add(1, Ordering::SeqCst);
    }
    ffi::SQLITE_OK
}

#[test]
fn few_commits_ask_sqlite_whether_it_checkpoints() {
    let (_directory, path) = directory();
    let db = open_in(&path, "onewrite", 160);
    // The log does not restart.
    let reader = open(&path);
    sql(&reader, "BEGIN");
    sql(&reader, "SELECT * FROM t");
    while frames(&db) < 150 {
        insert(&db);
    }
    // SAFETY: an open connection, and a function for it.
    unsafe { ffi::sqlite3_set_authorizer(db.handle(), Some(count), std::ptr::null_mut()) };
    let mut commits = 0;
    while frames(&db) < 195 {
        insert(&db);
        commits += u32::from(frames(&db) >= 160);
    }
    let asked = ASKED.load(Ordering::SeqCst);
    assert!(
        (1..=2).contains(&asked) && commits > 10,
        "asked {asked} times in {commits} commits"
    );
}

/// A commit without a checkpoint shows that the answer counts no more.
#[test]
fn behind_a_commit_without_a_checkpoint_sqlite_is_asked_again() {
    let (_directory, path) = directory();
    let db = open_in(&path, "onewrite", 40);
    let mut insert = db.prepare("INSERT INTO t VALUES(1)").expect("a statement");
    while frames(&db) < 40 {
        insert.execute([]).expect("inserted");
    }
    // SAFETY: an open connection.
    let code = unsafe { ffi::sqlite3_wal_autocheckpoint(db.handle(), 0) };
    assert_eq!(code, ffi::SQLITE_OK);
    (0..2).for_each(|_| assert_eq!(insert.execute([]).expect("inserted"), 1));
    let (mut all, mut done) = (0, 0);
    // SAFETY: an open connection, and room for two integers.
    let code = unsafe {
        let (all, done) = (&raw mut all, &raw mut done);
        ffi::sqlite3_wal_checkpoint_v2(db.handle(), c"main".as_ptr(), 0, all, done)
    };
    assert_eq!(
        (code, all),
        (ffi::SQLITE_OK, done),
        "it is the application's"
    );
}
