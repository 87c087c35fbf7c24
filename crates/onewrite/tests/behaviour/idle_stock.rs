//! An open, idle connection of stock SQLite. The database cannot be guarded then, and continues in
//! SQLite's WAL.

use super::{
    MODES, companion, copy, guarded, open, open_flags, open_in, outcome, sql, status, stock,
};
use rusqlite::OpenFlags;

const ROWS: &str = "SELECT group_concat(x) FROM (SELECT x FROM t ORDER BY x)";

#[test]
fn an_idle_stock_connection_keeps_no_other_from_a_database_that_remembers_a_mode() {
    for mode in guarded() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, killed) = (directory.path().join("db"), directory.path().join("killed"));
        let db = open_in(&path, mode);
        sql(&db, "CREATE TABLE t(x)");
        sql(&db, "INSERT INTO t VALUES(1)");
        drop(db);
        let idle = stock(&path);
        assert_eq!(sql(&idle, ROWS), "1");

        let db = open(&path);
        assert_eq!(outcome(&db, ROWS), "1", "{mode:?}");
        sql(&db, "INSERT INTO t VALUES(2)");
        let (read_only, second) = (OpenFlags::SQLITE_OPEN_READ_ONLY, open(&path));
        let reader = open_flags(&path, "onewrite", read_only).expect("a connection");
        assert_eq!(sql(&reader, ROWS), "1,2", "{mode:?}");
        sql(&second, "INSERT INTO t VALUES(3)");
        sql(&idle, "INSERT INTO t VALUES(4)");
        assert_eq!(sql(&db, ROWS), "1,2,3,4", "{mode:?}");

        // The status reports it, and the mode is remembered.
        assert_eq!(sql(&db, "PRAGMA journal_mode"), "wal");
        let said = status(&db);
        assert!(said["mode"].is_null(), "{said}");
        assert_eq!(said["kept_out_of"]["mode"], mode.name, "{said}");
        let found = outcome(&db, &format!("PRAGMA journal_mode={}", mode.name));
        assert!(found.starts_with("error 5"), "{found}");
        assert!(found.contains("has it open in wal"), "{found}");

        // A kill now leaves stock SQLite's log next to our empty one.
        copy(&path, &killed);
        let after = open(&killed);
        assert_eq!(sql(&after, ROWS), "1,2,3,4", "{mode:?}, killed");
        assert_eq!(sql(&after, "PRAGMA journal_mode"), mode.name);
        assert_eq!(sql(&after, "PRAGMA integrity_check"), "ok");

        // No connection takes the mode while another of our connections is still in WAL.
        drop(idle);
        let third = open(&path);
        assert_eq!(sql(&third, ROWS), "1,2,3,4", "{mode:?}");
        assert!(status(&third)["mode"].is_null());
        drop((db, second, third, reader));
        let db = open(&path);
        assert_eq!(sql(&db, ROWS), "1,2,3,4", "{mode:?}");
        let said = status(&db);
        assert_eq!(said["mode"], mode.name, "{said}");
        assert!(said["kept_out_of"].is_null(), "{said}");
        assert!(!companion(&path, "-wal").exists());
    }
}

/// A named mode is remembered even if it cannot be entered now.
#[test]
fn a_stock_mode_that_is_named_next_to_an_idle_stock_connection_is_remembered() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    drop(open_in(&path, MODES[6]));
    let idle = stock(&path);
    sql(&idle, "CREATE TABLE t(x)");
    let db = open(&path);
    assert_eq!(sql(&db, "PRAGMA journal_mode=wal"), "wal");
    drop((db, idle));
    assert_eq!(sql(&open(&path), "PRAGMA journal_mode"), "wal");
}
