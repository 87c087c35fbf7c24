//! The cost of a closed database: bytes on disk, and flushes at open and close.

use super::{MODES, Mode, companion, copy, open, open_in, sql, status, stock};
use std::path::Path;

fn guarded() -> impl Iterator<Item = Mode> {
    MODES.into_iter().filter(|mode| mode.name != "direct")
}

fn log_bytes(path: &Path) -> u64 {
    let log = std::fs::metadata(companion(path, "-onewrite"));
    log.expect("the log").len()
}

fn insert(db: &rusqlite::Connection, rows: u32) {
    for _ in 0..rows {
        sql(db, "INSERT INTO t VALUES(randomblob(300))");
    }
}

#[test]
fn the_log_of_a_small_closed_database_is_small_and_its_blocks_are_ready() {
    for mode in guarded() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = open_in(&path, mode);
        sql(&db, "CREATE TABLE t(x)");
        drop(db);
        let kept = log_bytes(&path);
        assert!(kept <= 96 << 10, "{mode:?}: {kept} bytes");
        // The first commits find initialized blocks, so nothing is prepared for them.
        for _ in 0..3 {
            let db = open(&path);
            insert(&db, 2);
            let said = status(&db);
            assert_eq!(said["setup_write_bytes"], 0, "{mode:?}: {said}");
            assert_eq!(said["log_bytes"], kept, "{mode:?}");
            drop(db);
            assert_eq!(log_bytes(&path), kept, "{mode:?}");
        }
        assert_eq!(sql(&stock(&path), "SELECT count(*) FROM t"), "6");
    }
}

#[test]
fn the_log_of_a_busy_or_a_large_database_keeps_more() {
    for mode in guarded() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = open_in(&path, mode);
        sql(&db, "CREATE TABLE t(x)");
        drop(db);
        let small = log_bytes(&path);
        // A log that grew again step by step holds all rows, even after a kill.
        let db = open(&path);
        insert(&db, 150);
        let killed = directory.path().join("killed");
        copy(&path, &killed);
        assert_eq!(sql(&open(&killed), "SELECT count(*) FROM t"), "150");
        drop(db);
        let busy = log_bytes(&path);
        assert!(busy >= 4 * small, "{mode:?}: {busy} bytes, small {small}");
        // With less use the log is small again, while the database is too.
        let db = open(&path);
        insert(&db, 1);
        drop(db);
        assert!(log_bytes(&path) <= 2 * small, "{mode:?}");
        let db = open(&path);
        sql(&db, "BEGIN");
        for _ in 0..30 {
            sql(&db, "INSERT INTO t VALUES(randomblob(100000))");
        }
        sql(&db, "COMMIT");
        drop(db);
        let db = open(&path);
        insert(&db, 1);
        drop(db);
        let large = log_bytes(&path);
        assert!(large > 5 * small, "{mode:?}: {large} bytes, small {small}");
        assert_eq!(sql(&stock(&path), "PRAGMA integrity_check"), "ok");
    }
}
