//! When the log may be deleted, and by whom.
#![allow(unsafe_code)]

use super::{WALDIO, copy, open, open_in, sql};
use rusqlite::{Connection, ffi};

/// Calls `xDelete` of our VFS with the name of the connection's log, as SQLite would.
fn delete_log(db: &Connection) -> i32 {
    // SAFETY: the connection is open, and so is its main database, whose names live as long.
    unsafe {
        let database = ffi::sqlite3_db_filename(db.handle(), c"main".as_ptr());
        let log = ffi::sqlite3_filename_wal(database);
        let vfs = ffi::sqlite3_vfs_find(c"onewrite".as_ptr());
        let delete = (*vfs).xDelete.expect("the method");
        delete(vfs, log, 0)
    }
}

/// SQLite deletes a log under EXCLUSIVE, when all of it is in the database. It also deletes one
/// under SHARED, where it finds the database empty. In a guarded mode the database is not empty
/// then: all of its content may be in the log.
#[test]
fn the_log_is_not_given_up_under_a_shared_lock() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, killed) = (directory.path().join("db"), directory.path().join("killed"));
    let db = open_in(&path, WALDIO);
    sql(&db, "CREATE TABLE t(x)");
    sql(&db, "INSERT INTO t VALUES(1)");
    let other = open(&path);
    assert_eq!(sql(&other, "SELECT count(*) FROM t"), "1");
    // Not of the database itself: closing a descriptor of it would drop SQLite's locks.
    let bytes = || {
        copy(&path, &killed);
        std::fs::read(&killed).expect("the copy")
    };
    let guarded = bytes();

    for within in [false, true] {
        if within {
            sql(&db, "BEGIN");
            assert_eq!(sql(&db, "SELECT count(*) FROM t"), "1");
        }
        assert_eq!(delete_log(&db), ffi::SQLITE_OK);
        assert!(bytes() == guarded, "the guard is gone");
        let after = open(&killed);
        assert_eq!(sql(&after, "SELECT count(*) FROM t"), "1", "after a kill");
    }
    sql(&db, "COMMIT");
    sql(&other, "INSERT INTO t VALUES(2)");
    assert_eq!(sql(&db, "SELECT count(*) FROM t"), "2");
}
