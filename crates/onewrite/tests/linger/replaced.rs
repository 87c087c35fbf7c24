//! Programs that close a database, put another file in its place, and open that, while the process
//! keeps the first one open.

use super::{
    MODES, await_end, companion, is_closed, lingering, open, outcome, sql, status, stock, try_open,
};
use std::path::Path;

/// A backup of two rows, in a mode of stock SQLite.
fn backup(path: &Path, mode: &str) {
    let db = stock(path);
    sql(&db, &format!("PRAGMA journal_mode={mode}"));
    sql(&db, "CREATE TABLE t(id INTEGER PRIMARY KEY, x)");
    sql(&db, "INSERT INTO t(x) VALUES('old'), ('older')");
}

#[test]
fn a_backup_that_is_renamed_over_it_is_found_and_the_renamed_database_is_whole() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in MODES {
        for stocks in ["delete", "wal"] {
            let path = directory.path().join(format!("{mode}-{stocks}"));
            let (new, kept) = (path.with_extension("new"), path.with_extension("kept"));
            lingering(&path, mode);
            backup(&new, stocks);
            std::fs::rename(&path, &kept).expect("a rename");
            std::fs::rename(&new, &path).expect("a rename");
            let db = open(&path);
            assert_eq!(sql(&db, "SELECT x FROM t"), "old older", "{mode}, {stocks}");
            sql(&db, "INSERT INTO t(x) VALUES('new')");
            drop(db);
            is_closed(&kept, 1);
            is_closed(&path, 3);
        }
    }
}

#[test]
fn a_removed_database_is_made_anew() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in MODES {
        for with_its_log in [false, true] {
            let path = directory.path().join(format!("{mode}-{with_its_log}"));
            lingering(&path, mode);
            std::fs::remove_file(&path).expect("the database");
            if with_its_log {
                for suffix in ["-onewrite", "-shm", "-onewrite-shm", "-onewrite-lock"] {
                    let _ = std::fs::remove_file(companion(&path, suffix));
                }
            }
            let db = open(&path);
            assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
            sql(&db, "CREATE TABLE t(x)");
            sql(&db, "INSERT INTO t VALUES(1), (2)");
            assert_eq!(status(&db)["set_aside"], serde_json::Value::Null);
            drop(db);
            is_closed(&path, 2);
        }
    }
}

/// The thread looks.
#[test]
fn a_renamed_database_is_closed_though_nobody_opens_the_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    lingering(&path, "onewrite");
    let elsewhere = directory.path().join("elsewhere");
    std::fs::rename(&path, &elsewhere).expect("a rename");
    await_end(&elsewhere);
    is_closed(&elsewhere, 1);
}

/// As when a connection is open: nothing is mixed, and nothing is lost without a word.
#[test]
fn a_database_that_is_overwritten_in_place_is_refused_with_the_way_out() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in MODES {
        let path = directory.path().join(mode);
        let new = path.with_extension("new");
        lingering(&path, mode);
        backup(&new, "delete");
        let copied = std::process::Command::new("cp")
            .args([&new, &path])
            .status();
        assert!(copied.is_ok_and(|status| status.success()));
        for _ in 0..2 {
            let found = match try_open(&path, c"onewrite") {
                Ok(db) => outcome(&db, "SELECT x FROM t"),
                Err(e) => format!("{e}"),
            };
            assert!(found.contains("detach"), "{mode}: {found}");
        }
    }
}

#[test]
fn a_backup_after_the_end_of_the_time_is_a_stock_database() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    lingering(&path, "onewrite");
    let db = open(&path);
    sql(&db, "PRAGMA onewrite_linger=off");
    sql(&db, "SELECT count(*) FROM t");
    drop(db);
    let copy = directory.path().join("copy");
    std::fs::copy(&path, &copy).expect("a copy");
    is_closed(&copy, 1);
}
