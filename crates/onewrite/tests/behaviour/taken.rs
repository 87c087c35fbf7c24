//! A database that is taken away under a connection. No commit that would be lost is acknowledged,
//! and committed transactions stay in the log.

use super::{MODES, Mode, companion, open_in, outcome, sql, status, stock};
use onewrite::storage::{Access, Create, DirectIo, LockByte, LockKind, LogFile};
use rusqlite::Connection;
use std::path::Path;
use std::process::Command;

/// `SQLITE_READONLY_DBMOVED`.
const MOVED: &str = "error 1032";

fn filled(path: &Path, mode: Mode) -> Connection {
    let db = open_in(path, mode);
    sql(&db, "CREATE TABLE t(id INTEGER PRIMARY KEY, x)");
    for _ in 0..5 {
        sql(&db, "INSERT INTO t(x) VALUES(randomblob(300))");
    }
    db
}

fn guarded() -> impl Iterator<Item = Mode> {
    MODES.into_iter().filter(|mode| mode.name != "direct")
}

/// Runs it in another process, as happens in practice.
fn run(program: &str, from: &Path, to: &Path) {
    let status = Command::new(program).args([from, to]).status();
    assert!(status.is_ok_and(|status| status.success()));
}

/// A stock database with one row.
fn backup(path: &Path) {
    let db = stock(path);
    sql(&db, "CREATE TABLE b(x)");
    sql(&db, "INSERT INTO b VALUES('kept')");
}

fn holds_frames(log: &Path) -> bool {
    let bytes = std::fs::read(log).expect("the log");
    // SQLite's WAL header in our log: zeros if the log is empty.
    bytes[32..64].iter().any(|&byte| byte != 0)
}

#[test]
fn a_connection_that_finds_its_database_replaced_acknowledges_nothing() {
    for mode in guarded() {
        for program in ["cp", "mv", "rm"] {
            let what = format!("{mode:?}, {program}");
            let directory = tempfile::tempdir().expect("a directory");
            let (path, kept) = (directory.path().join("db"), directory.path().join("kept"));
            backup(&kept);
            let db = filled(&path, mode);
            match program {
                "rm" => std::fs::remove_file(&path).expect("the database"),
                other => run(other, &kept, &path),
            }
            for _ in 0..2 {
                let refused = outcome(&db, "INSERT INTO t(x) VALUES(1)");
                assert!(refused.starts_with(MOVED), "{what}: {refused}");
            }
            let why = status(&db)["error"].to_string();
            assert!(why.contains("onewrite salvage"), "{what}: {why}");
            assert!(why.contains(&path.display().to_string()), "{what}: {why}");
            // The log's content does not fit the file that is at the path now.
            let checkpoint = outcome(&db, "PRAGMA wal_checkpoint");
            assert!(checkpoint.starts_with("error"), "{what}: {checkpoint}");
            drop(db);
            let log = companion(&path, "-onewrite");
            assert!(holds_frames(&log), "{what}");
            if program != "rm" {
                let bytes = std::fs::read(&path).expect("the backup");
                assert_eq!(bytes.len(), 8192, "{what}");
                std::fs::rename(&path, &kept).expect("a rename");
                let db = stock(&kept);
                assert_eq!(sql(&db, "SELECT x FROM b"), "kept", "{what}");
                assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok", "{what}");
            }
        }
    }
}

/// The log is set aside then. That passed for a directory that was moved, and commits went into the removed file.
#[test]
fn a_connection_whose_removed_database_was_made_again_acknowledges_nothing() {
    for mode in guarded() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = filled(&path, mode);
        std::fs::remove_file(&path).expect("the database");
        let again = filled(&path, mode);
        for _ in 0..2 {
            let refused = outcome(&db, "INSERT INTO t(x) VALUES(1)");
            assert!(refused.starts_with(MOVED), "{mode:?}: {refused}");
            let checkpoint = outcome(&db, "PRAGMA wal_checkpoint");
            assert!(checkpoint.starts_with("error"), "{mode:?}: {checkpoint}");
        }
        drop(db);
        assert_eq!(sql(&again, "SELECT count(*) FROM t"), "5", "{mode:?}");
        assert_eq!(sql(&again, "PRAGMA integrity_check"), "ok", "{mode:?}");
        let names = std::fs::read_dir(directory.path()).expect("a directory");
        let mut names = names.map(|entry| entry.expect("an entry").path());
        let aside = names.find(|path| path.to_string_lossy().contains("-onewrite-orphan-"));
        assert!(holds_frames(&aside.expect("a log")), "{mode:?}");
    }
}

/// The path leads to no file, or to another database. The log moved with its database.
#[test]
fn a_connection_whose_directory_was_moved_goes_on() {
    for mode in guarded() {
        for is_replaced in [false, true] {
            let what = format!("{mode:?}, replaced: {is_replaced}");
            let directory = tempfile::tempdir().expect("a directory");
            let (before, after) = (directory.path().join("a"), directory.path().join("b"));
            std::fs::create_dir(&before).expect("a directory");
            let db = filled(&before.join("db"), mode);
            std::fs::rename(&before, &after).expect("a rename");
            let other = is_replaced.then(|| {
                std::fs::create_dir(&before).expect("a directory");
                filled(&before.join("db"), mode)
            });
            let inserted = outcome(&db, "INSERT INTO t(x) VALUES(1)");
            assert!(!inserted.starts_with("error"), "{what}: {inserted}");
            let checkpoint = outcome(&db, "PRAGMA wal_checkpoint");
            assert!(checkpoint.starts_with("0|"), "{what}: {checkpoint}");
            sql(&db, "INSERT INTO t(x) VALUES(2)");
            drop(db);
            let db = super::open(&after.join("db"));
            assert_eq!(sql(&db, "SELECT count(*) FROM t"), "7", "{what}");
            assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok", "{what}");
            if let Some(other) = other {
                assert_eq!(sql(&other, "SELECT count(*) FROM t"), "5", "{what}");
            }
        }
    }
}

/// The connection's locks on the database are lost, but not its lock on the log.
#[test]
fn a_close_next_to_a_connection_without_locks_leaves_the_log_and_the_guard() {
    for mode in guarded() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = filled(&path, mode);
        let log = companion(&path, "-onewrite");
        let other = LogFile::open(&log, Create::Never, Access::ReadWrite, DirectIo::Never);
        let other = other.expect("the log");
        let shared = other.try_lock(LockByte::Presence, LockKind::Shared);
        assert!(shared.expect("an answer"), "{mode:?}");
        drop(db);
        assert!(holds_frames(&log), "{mode:?}");
        assert!(companion(&path, "-shm").exists(), "{mode:?}");
        let refused = outcome(&stock(&path), "SELECT count(*) FROM t");
        assert!(refused.contains("not a database"), "{mode:?}: {refused}");
        drop(other);
        let db = super::open(&path);
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "5");
        drop(db);
        assert_eq!(sql(&stock(&path), "SELECT count(*) FROM t"), "5");
    }
}

#[test]
fn at_normal_a_replaced_database_is_found_a_moment_later() {
    for mode in guarded() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, kept) = (directory.path().join("db"), directory.path().join("kept"));
        backup(&kept);
        let db = filled(&path, mode);
        sql(&db, "PRAGMA synchronous=NORMAL");
        sql(&db, "INSERT INTO t(x) VALUES(1)");
        sql(&db, "INSERT INTO t(x) VALUES(2)");
        run("mv", &kept, &path);
        // No commit has looked within this time.
        std::thread::sleep(std::time::Duration::from_millis(11));
        let refused = outcome(&db, "INSERT INTO t(x) VALUES(3)");
        assert!(refused.starts_with(MOVED), "{mode:?}: {refused}");
        let refused = outcome(&db, "INSERT INTO t(x) VALUES(4)");
        assert!(refused.starts_with(MOVED), "{mode:?}, again: {refused}");
        let checkpoint = outcome(&db, "PRAGMA wal_checkpoint");
        assert!(checkpoint.starts_with("error"), "{mode:?}: {checkpoint}");
    }
}
