//! The database's own file, and the wal-index, in the VFS underneath.

use super::below::{self, Failing, Method};
use super::{ROWS, code, companion, directory, failing, holds, made, open, open_with, rows, sql};
use std::path::Path;

const COUNT: &str = "SELECT count(*) FROM t";

/// One of our calls to the VFS underneath fails. SQLite gets the code that it would have got
/// directly.
#[test]
fn codes_of_the_vfs_underneath_are_passed_on() {
    let cases = [
        (Method::Sync, code::FSYNC, code::FSYNC),
        (Method::Sync, code::NO_MEMORY, code::NOMEM),
        (Method::Sync, code::FULL, code::FULL),
        (Method::WriteHeader, code::WRITE, code::WRITE),
        (Method::WriteHeader, code::FULL, code::FULL),
        (Method::ReadHeader, code::READ, code::READ),
        (Method::ReadHeader, code::NOMEM, code::NOMEM),
        // To SQLite this code means SQLITE_CORRUPT, but a failed call is no corruption.
        (Method::ReadHeader, code::CORRUPT_FS, code::READ),
    ];
    let directory = directory();
    let path = directory.path().join("db");
    drop(made(&path, &[]));
    for (method, said, expected) in cases {
        let db = open(&path);
        let below = Failing::once(&path, method, said);
        assert_eq!(failing(&db, COUNT), expected, "{method:?} {said}");
        assert!(below.has_come());
        drop(below);
        assert_eq!(sql(&db, COUNT), ROWS.to_string(), "{method:?}");
    }
}

/// The guard leads to the log. If its write succeeds and its flush fails, a second flush alone does
/// not bring it to the device. The kernel treats pages that it could not write as clean.
#[test]
fn a_guard_whose_flush_failed_is_written_again() {
    let directory = directory();
    let path = directory.path().join("db");
    drop(made(&path, &[]));
    below::watch_header(&path);
    let db = open(&path);
    // The log is at rest, so the guard's flush is the first.
    let below = Failing::nth(&path, Method::Sync, code::FSYNC, 1);
    assert_eq!(failing(&db, COUNT), code::FSYNC);
    assert!(below.has_come());
    drop(below);
    assert_ne!(byte_on_device(&path), onewrite::GUARD_BYTE);
    sql(&db, "INSERT INTO t VALUES('more')");
    assert_eq!(byte_on_device(&path), onewrite::GUARD_BYTE);
    drop(db);
    holds(&path, ROWS + 1);
}

/// The reverse: before a log gets another id, nothing on the device may refer to the old one.
#[test]
fn a_cleared_guard_whose_flush_failed_is_written_again() {
    let directory = directory();
    let path = directory.path().join("db");
    let db = made(&path, &[]);
    sql(&db, "PRAGMA wal_checkpoint(TRUNCATE)");
    below::watch_header(&path);
    // Our flush of the database comes first, before the log is emptied.
    let last = Failing::from(&path, Method::Sync, code::FSYNC, 2);
    drop(db);
    assert!(last.has_come());
    drop(last);
    assert_eq!(byte_on_device(&path), onewrite::GUARD_BYTE);
    let db = open(&path);
    let below = Failing::nth(&path, Method::Sync, code::FSYNC, 2);
    assert_eq!(failing(&db, COUNT), code::FSYNC);
    assert!(below.has_come());
    assert_ne!(byte_on_device(&path), onewrite::GUARD_BYTE);
    drop((below, db));
    holds(&path, ROWS);
}

fn byte_on_device(path: &Path) -> u8 {
    below::header_on_device(path)[19]
}

/// Without a wal-index SQLite treats the log as empty when it closes, and would delete it.
#[test]
fn a_log_stays_when_the_wal_index_could_not_be_mapped() {
    for (mode, code) in ["waldio", "direct", "wal"].into_iter().flat_map(|mode| {
        [8 | 5 << 8, 10 | 18 << 8, 10 | 19 << 8, code::MAPPING].map(|code| (mode, code))
    }) {
        let directory = directory();
        let (path, killed) = (directory.path().join("db"), directory.path().join("killed"));
        let db = open(&path);
        assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
        sql(&db, "CREATE TABLE t(x)");
        sql(&db, "INSERT INTO t VALUES(1)");
        for suffix in ["", "-wal", "-onewrite"] {
            if companion(&path, suffix).exists() {
                std::fs::write(
                    companion(&killed, suffix),
                    super::bytes(&companion(&path, suffix)),
                )
                .expect("a copy");
            }
        }
        let db = open(&killed);
        let below = Failing::always(&killed, Method::Map, code);
        eprintln!("{mode} {code} {:?}", super::try_sql(&db, COUNT));
        assert!(below.has_come());
        drop(db);
        drop(below);
        holds(&killed, 1);
    }
}

/// If one of our modes is remembered, a hot journal that returns after a power cut would roll back
/// later commits of the log. SQLite by itself does not ask for a durable deletion.
#[test]
fn a_hot_journal_is_deleted_durably_where_a_mode_of_ours_is_remembered() {
    for (mode, is_durable) in [("direct", true), ("onewrite", true), ("delete", false)] {
        let directory = directory();
        let [path, crashed] = ["db", "crashed"].map(|name| directory.path().join(name));
        let db = made(&path, &["PRAGMA onewrite_layout=page4k"]);
        sql(&db, "PRAGMA journal_mode=delete");
        sql(&db, "PRAGMA onewrite_layout=auto");
        assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
        drop(db);
        assert_eq!(companion(&path, "-onewrite").exists(), is_durable);
        // A transaction in a rollback mode that has spilled some pages to the database.
        let stock = open_with(&path, "unix");
        sql(&stock, "PRAGMA journal_mode=delete");
        sql(&stock, "PRAGMA cache_size=1");
        sql(&stock, "BEGIN");
        sql(
            &stock,
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n LIMIT 2000) INSERT INTO t SELECT x FROM n",
        );
        for suffix in ["", "-journal", "-onewrite"] {
            let _ = std::fs::copy(companion(&path, suffix), companion(&crashed, suffix));
        }
        let db = open(&crashed);
        assert_eq!(rows(&db), ROWS);
        let journal = companion(&crashed, "-journal");
        assert!(!journal.exists());
        assert_eq!(
            below::was_deleted_durably(&journal),
            Some(is_durable),
            "{mode}"
        );
    }
}
