//! Files that are deleted or replaced while a connection has them open. Committed transactions stay
//! readable, and a log is never read into a database that it does not belong to.

use super::damage::{files, refused};
use super::{MODES, answer, companion, open, open_in, outcome, sql, stock};
use rusqlite::Connection;
use std::path::{Path, PathBuf};

fn filled(path: &Path, mode: super::Mode, rows: u32) -> Connection {
    let db = open_in(path, mode);
    sql(&db, "CREATE TABLE t(id INTEGER PRIMARY KEY, x)");
    for _ in 0..rows {
        sql(&db, "INSERT INTO t(x) VALUES(randomblob(300))");
    }
    db
}

fn count(db: &Connection) -> String {
    sql(db, "SELECT count(*) FROM t")
}

fn guarded() -> impl Iterator<Item = super::Mode> {
    MODES.into_iter().filter(|mode| mode.name == "waldio")
}

/// Another process copies: closing a descriptor here would drop SQLite's locks.
fn copy_to(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").args([from, to]).status();
    assert!(status.is_ok_and(|status| status.success()));
}

#[test]
fn a_log_deleted_under_a_connection_keeps_what_it_holds_until_that_closes() {
    for mode in guarded() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = filled(&path, mode, 5);
        std::fs::remove_file(companion(&path, "-onewrite")).expect("the log");
        assert_eq!(count(&db), "5", "{mode:?}");
        // A write to that file would be lost with this process.
        let written = outcome(&db, "INSERT INTO t(x) VALUES(1)");
        assert!(written.starts_with("error"), "{mode:?}: {written}");
        // A new connection does not find the log, and must not work without it.
        let found = answer(&path, "SELECT count(*) FROM t");
        assert!(found.starts_with("error 14"), "{mode:?}: {found}");
        drop(db);
        let db = stock(&path);
        assert_eq!(count(&db), "5", "{mode:?}");
        assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
    }
}

#[test]
fn a_log_replaced_under_a_connection_is_not_taken_by_the_next() {
    for mode in guarded() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, strange) = (
            directory.path().join("db"),
            directory.path().join("strange"),
        );
        let db = filled(&path, mode, 5);
        let stranger = filled(&strange, mode, 9);
        let log = companion(&path, "-onewrite");
        std::fs::remove_file(&log).expect("the log");
        copy_to(&companion(&strange, "-onewrite"), &log);
        let found = answer(&path, "SELECT count(*) FROM t");
        assert!(found.starts_with("error 14"), "{mode:?}: {found}");
        let written = outcome(&db, "INSERT INTO t(x) VALUES(1)");
        assert!(written.starts_with("error"), "{mode:?}: {written}");
        assert_eq!(count(&db), "5");
        drop(db);
        let db = stock(&path);
        assert_eq!(count(&db), "5", "{mode:?}");
        assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
        drop(db);
        // The other database's frames are still there, and must not be used.
        refused(&path, "no longer here");
        assert_eq!(count(&stranger), "9");
    }
}

#[test]
fn a_log_that_became_another_file_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in guarded() {
        let path = directory.path().join(mode.before[0].replace(' ', "-"));
        drop(filled(&path, mode, 3));
        let log = companion(&path, "-onewrite");
        std::fs::remove_file(&log).expect("the log");
        std::fs::create_dir(&log).expect("a directory");
        let found = answer(&path, "SELECT count(*) FROM t");
        assert!(found.starts_with("error"), "{mode:?}: {found}");
        std::fs::remove_dir(&log).expect("the directory");
        assert_eq!(count(&open(&path)), "3");
    }
}

#[test]
fn a_database_deleted_or_replaced_under_a_connection_never_meets_the_old_log() {
    for mode in guarded() {
        for replaces in [false, true] {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("db");
            let backup = directory.path().join("backup");
            let db = stock(&backup);
            sql(&db, "CREATE TABLE t(id INTEGER PRIMARY KEY, x)");
            sql(&db, "INSERT INTO t(x) VALUES('old')");
            drop(db);
            let db = filled(&path, mode, 5);
            match replaces {
                true => std::fs::rename(&backup, &path).expect("a rename"),
                false => std::fs::remove_file(&path).expect("the database"),
            }
            // The connection continues with its open file, like a connection of stock SQLite.
            assert_eq!(count(&db), "5");
            let log: PathBuf = companion(&path, "-onewrite");
            let found = answer(&path, "SELECT * FROM t");
            // Next to a new database the log is set aside.
            let expected = if replaces { "error 14" } else { "error 1:" };
            assert!(found.starts_with(expected), "{mode:?}: {found}");
            assert_eq!(log.exists(), replaces, "{mode:?}");
            drop(db);
            if replaces {
                refused(&path, "no longer here");
                std::fs::remove_file(&log).expect("the log");
                assert_eq!(count(&open(&path)), "1", "{mode:?}");
            }
        }
    }
}

/// As in stock SQLite: no connection looks for the `-wal` file, so none misses it.
#[test]
fn direct_goes_on_with_a_wal_file_that_was_deleted_as_stock_does() {
    let directory = tempfile::tempdir().expect("a directory");
    let answers = |vfs: &str| {
        let path = directory.path().join(vfs);
        let open = || super::open_flags(&path, vfs, Default::default()).expect("a connection");
        let db = open();
        let mode = ["wal", "direct"][usize::from(vfs == "onewrite")];
        assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
        sql(&db, "CREATE TABLE t(x)");
        sql(&db, "PRAGMA wal_checkpoint(TRUNCATE)");
        sql(&db, "INSERT INTO t VALUES(1)");
        std::fs::remove_file(companion(&path, "-wal")).expect("the log");
        let first = [
            outcome(&db, "SELECT count(*) FROM t"),
            outcome(&db, "INSERT INTO t VALUES(2)"),
            outcome(&db, "SELECT count(*) FROM t"),
        ];
        drop(db);
        (first, sql(&open(), "SELECT count(*) FROM t"))
    };
    assert_eq!(answers("onewrite"), answers("unix"));
}

#[test]
fn files_of_direct_that_are_damaged_are_told_or_read_as_stock_reads_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let origin = directory.path().join("origin");
    let db = filled(&origin, MODES[4], 6);
    let path = directory.path().join("db");
    super::copy(&origin, &path);
    let (log, wal) = (companion(&path, "-onewrite"), companion(&path, "-wal"));
    let whole = std::fs::read(&log).expect("the mode");
    for (at, why) in [
        (0, "not an onewrite log"),
        (11, "damaged"),
        (100, "damaged"),
    ] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x08;
        std::fs::write(&log, bytes).expect("a write");
        refused(&path, why);
    }
    std::fs::write(&log, &whole).expect("a write");
    let (database, frames) = (
        std::fs::read(&path).expect("it"),
        std::fs::read(&wal).expect("it"),
    );
    let used = frames.iter().rposition(|&byte| byte != 0).unwrap_or(0);
    for at in (0..used).step_by(1021) {
        let mut bytes = frames.clone();
        bytes[at] ^= 0x40;
        let answer = |vfs: &str| {
            std::fs::write(&path, &database).expect("a write");
            std::fs::write(&wal, &bytes).expect("a write");
            let _ = std::fs::remove_file(companion(&path, "-shm"));
            let db = super::open_flags(&path, vfs, Default::default()).expect("a connection");
            outcome(&db, "SELECT count(*), max(id) FROM t")
        };
        assert_eq!(answer("onewrite"), answer("unix"), "byte {at}");
    }
    drop(db);
    assert!(files(&path)[1].is_some());
}
