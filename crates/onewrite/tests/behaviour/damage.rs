//! Logs that are missing, damaged, truncated, of another database or of a newer version, and
//! databases that were exchanged. Each gives a clear error, and nothing committed changes.
#![allow(unsafe_code)]

use super::{MODES, WALDIO, answer, companion, copy, open, open_in, outcome, sql};
use rusqlite::{Connection, ffi};
use std::path::{Path, PathBuf};

/// The files that a crash leaves of a database with `rows` rows, one row per transaction.
fn crashed(directory: &Path, name: &str, rows: u32) -> PathBuf {
    let path = directory.join(format!("{name}.origin"));
    let db = open_in(&path, WALDIO);
    sql(&db, "CREATE TABLE t(id INTEGER PRIMARY KEY, x)");
    for _ in 0..rows {
        sql(&db, "INSERT INTO t(x) VALUES(randomblob(300))");
    }
    let left = directory.join(name);
    copy(&path, &left);
    left
}

/// The bytes of a database and of its other files.
pub fn files(path: &Path) -> Vec<Option<Vec<u8>>> {
    let read = |suffix: &str| std::fs::read(companion(path, suffix)).ok();
    vec![read(""), read("-onewrite"), read("-wal"), read("-journal")]
}

/// Opening must fail, give the reason in the error itself, and change no byte.
pub fn refused(path: &Path, why: &str) {
    let before = files(path);
    let found = answer(path, "SELECT count(*) FROM t");
    assert!(found.starts_with("error 14"), "{why}: {found}");
    assert!(found.contains(why), "{why}: {found}");
    assert!(files(path) == before, "{why}: a file was changed");
    // The same holds for an attached database, where SQLite has its own error text.
    let db = open(":memory:".as_ref());
    let attach = format!("ATTACH 'file:{}?vfs=onewrite' AS other", path.display());
    assert!(outcome(&db, &attach).starts_with("error 14"), "{why}");
    drop(db);
    assert!(files(path) == before, "{why}: a file was changed");
}

fn holds(path: &Path, rows: u32) {
    let db = open(path);
    assert_eq!(sql(&db, "SELECT count(*) FROM t"), rows.to_string());
    assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
}

#[test]
fn a_missing_log_is_asked_for_and_taken_when_it_is_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = crashed(directory.path(), "db", 9);
    let (log, away) = (companion(&path, "-onewrite"), directory.path().join("away"));
    std::fs::rename(&log, &away).expect("a rename");
    refused(&path, "it is missing");
    std::fs::rename(&away, &log).expect("a rename");
    holds(&path, 9);
}

#[test]
fn the_log_of_another_database_is_not_taken() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = crashed(directory.path(), "db", 9);
    let other = crashed(directory.path(), "other", 5);
    let (log, away) = (companion(&path, "-onewrite"), directory.path().join("away"));
    std::fs::rename(&log, &away).expect("a rename");
    std::fs::copy(companion(&other, "-onewrite"), &log).expect("a copy");
    refused(&path, "belongs to another database");
    std::fs::rename(&away, &log).expect("a rename");
    holds(&path, 9);
    holds(&other, 5);
}

#[test]
fn a_damaged_or_newer_header_is_told_and_nothing_is_lost() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = crashed(directory.path(), "db", 9);
    let log = companion(&path, "-onewrite");
    let whole = std::fs::read(&log).expect("the log");
    let mut newer = whole.clone();
    newer[11] = 9;
    let damaged_version = newer.clone();
    let crc = crc32c::crc32c(&newer[..124]);
    newer[124..128].copy_from_slice(&crc.to_be_bytes());
    let mut flipped = whole.clone();
    flipped[40] ^= 1;
    let mut not_ours = whole.clone();
    not_ours[..8].copy_from_slice(b"twowrite");
    let cases = [
        (newer, "version 9"),
        (flipped, "damaged"),
        (damaged_version, "damaged"),
        (not_ours, "not an onewrite log"),
        (whole[..100].to_vec(), "cut short"),
        (Vec::new(), "cut short"),
    ];
    for (bytes, why) in cases {
        std::fs::write(&log, &bytes).expect("a write");
        refused(&path, why);
        if why != "version 9" {
            refused(&path, "\"onewrite salvage DB -o OUT\" saves");
        }
    }
    std::fs::write(&log, &whole).expect("a write");
    holds(&path, 9);
}

/// Stock SQLite also says "file is not a database", and no code that it could take for a failed
/// read.
#[test]
fn an_impossible_page_size_is_said_in_sqlites_words() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = open_in(&path, mode);
        sql(&db, "CREATE TABLE t(x)");
        drop(db);
        let mut bytes = std::fs::read(&path).expect("the database");
        bytes[16..18].copy_from_slice(&[0, 0xFF]);
        std::fs::write(&path, &bytes).expect("a write");
        for statement in ["SELECT * FROM t", "PRAGMA journal_mode", "VACUUM"] {
            let found = outcome(&open(&path), statement);
            assert!(
                found.starts_with("error 26"),
                "{mode:?} {statement}: {found}"
            );
        }
        assert!(std::fs::read(&path).expect("the database") == bytes);
    }
}

/// SQLite looks for page 1 in the log first.
#[test]
fn a_page_size_that_is_damaged_in_the_database_is_read_from_the_log() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let (origin, path) = (directory.path().join("origin"), directory.path().join("db"));
        let db = open_in(&origin, mode);
        sql(&db, "CREATE TABLE t(x)");
        sql(&db, "INSERT INTO t VALUES(1)");
        copy(&origin, &path);
        let mut bytes = std::fs::read(&path).expect("the database");
        bytes[16..18].copy_from_slice(&[0, 0xFF]);
        std::fs::write(&path, &bytes).expect("a write");
        holds(&path, 1);
    }
}

/// SQLite's journal rolls back what a crash has left of a write, whatever bytes it finds. One of
/// 256 torn headers looks guarded.
#[test]
fn a_torn_header_that_looks_guarded_is_taken_back_by_the_journal() {
    let directory = tempfile::tempdir().expect("a directory");
    let (origin, path) = (directory.path().join("origin"), directory.path().join("db"));
    let db = open(&origin);
    sql(&db, "CREATE TABLE t(x)");
    sql(&db, "INSERT INTO t VALUES(1)");
    sql(&db, "PRAGMA cache_size=5");
    sql(&db, "BEGIN");
    sql(&db, "CREATE TABLE u(x)");
    for _ in 0..100 {
        sql(&db, "INSERT INTO u VALUES(randomblob(1000))");
    }
    copy(&origin, &path);
    let mut bytes = std::fs::read(&path).expect("the database");
    for (i, byte) in bytes[..512].iter_mut().enumerate() {
        *byte = (i * 37 + 11) as u8;
    }
    bytes[19] = 0xA1;
    std::fs::write(&path, &bytes).expect("a write");
    holds(&path, 1);
    // Without a journal it is not a database.
    std::fs::write(&path, &bytes).expect("a write");
    let found = outcome(&open(&path), "SELECT * FROM t");
    assert!(found.starts_with("error 26"), "{found}");
}

/// Bytes that a VFS above ours reads through us, such as a VFS that encrypts.
fn read_below(db: &Connection, bytes: usize, offset: i64) -> Vec<u8> {
    let mut file: *mut ffi::sqlite3_file = std::ptr::null_mut();
    let mut out = vec![0; bytes];
    // SAFETY: the connection is open; the operation stores its file, whose method gets a buffer.
    let code = unsafe {
        let (op, found) = (ffi::SQLITE_FCNTL_FILE_POINTER, (&raw mut file).cast());
        ffi::sqlite3_file_control(db.handle(), c"main".as_ptr(), op, found);
        let read = (*(*file).pMethods).xRead.expect("the method");
        read(file, out.as_mut_ptr().cast(), bytes as i32, offset)
    };
    assert_eq!(code, ffi::SQLITE_OK);
    out
}

/// An encrypted page may have any byte at the guard's position.
#[test]
fn bytes_that_are_no_header_are_passed_on_as_they_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let mut bytes: Vec<u8> = (0..8192_u32).map(|i| (i * 37 + 11) as u8).collect();
    for version in [onewrite::GUARD_BYTE, 2] {
        bytes[19] = version;
        std::fs::write(&path, &bytes).expect("a write");
        let db = open(&path);
        for looks in 0..2 {
            for (offset, size) in [(0, 100), (0, 4096), (16, 16), (19, 1), (64, 64)] {
                let range = offset..offset + size;
                let found = read_below(&db, size, offset as i64);
                assert!(found == bytes[range], "{version}, look {looks}, {offset}");
            }
            let found = outcome(&db, "SELECT * FROM t");
            assert!(found.starts_with("error 26"), "{found}");
        }
        drop(db);
        assert!(std::fs::read(&path).expect("it") == bytes);
    }
    // The guard is hidden even before the first lock.
    let path = crashed(directory.path(), "guarded", 3);
    let db = open(&path);
    assert_eq!(read_below(&db, 100, 0)[19], 2);
    assert_eq!(read_below(&db, 4, 17)[2], 2);
}

/// As stock SQLite treats a `-wal` that was truncated or damaged: the whole frames before the
/// damage count.
#[test]
fn a_log_that_is_cut_or_damaged_behind_its_header_holds_a_prefix_of_transactions() {
    for mode in &MODES[..4] {
        let directory = tempfile::tempdir().expect("a directory");
        let origin = directory.path().join("origin");
        let db = open_in(&origin, *mode);
        sql(&db, "CREATE TABLE t(id INTEGER PRIMARY KEY, x)");
        sql(&db, "INSERT INTO t(x) VALUES(randomblob(300))");
        sql(&db, "PRAGMA wal_checkpoint(TRUNCATE)");
        for _ in 0..6 {
            sql(&db, "INSERT INTO t(x) VALUES(randomblob(300))");
        }
        let path = directory.path().join("db");
        copy(&origin, &path);
        let log = companion(&path, "-onewrite");
        let (database, whole) = (
            std::fs::read(&path).expect("it"),
            std::fs::read(&log).expect("it"),
        );
        let used = whole.iter().rposition(|&byte| byte != 0).unwrap_or(0);
        let mut seen = Vec::new();
        for at in (128..used + 4096).step_by(512) {
            for cut in [true, false] {
                let mut bytes = whole.clone();
                match cut {
                    true => bytes.truncate(at),
                    false => bytes[at.min(used)] ^= 0x10,
                }
                std::fs::write(&path, &database).expect("a write");
                std::fs::write(&log, &bytes).expect("a write");
                let _ = std::fs::remove_file(companion(&path, "-shm"));
                let db = open(&path);
                let rows: u32 = sql(&db, "SELECT count(*) FROM t")
                    .parse()
                    .expect("a number");
                assert_eq!(sql(&db, "SELECT max(id) FROM t"), rows.to_string());
                assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
                sql(&db, "INSERT INTO t(x) VALUES(1)");
                seen.push(rows);
            }
        }
        assert!(seen.contains(&1) && seen.contains(&7), "{mode:?}: {seen:?}");
    }
}

#[test]
fn a_log_next_to_a_database_that_it_does_not_belong_to_is_never_replayed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = crashed(directory.path(), "db", 9);
    // A user puts a backup in the database's place, and forgets the log.
    let backup = directory.path().join("backup");
    let db = super::stock(&backup);
    sql(&db, "CREATE TABLE t(id INTEGER PRIMARY KEY, x)");
    sql(&db, "INSERT INTO t(x) VALUES('old')");
    drop(db);
    for mode in ["delete", "wal"] {
        let db = super::stock(&backup);
        sql(&db, &format!("PRAGMA journal_mode={mode}"));
        drop(db);
        std::fs::copy(&backup, &path).expect("a copy");
        refused(&path, "no longer here");
        refused(&path, "onewrite detach --discard");
    }
    std::fs::rename(companion(&path, "-onewrite"), directory.path().join("away"))
        .expect("a rename");
    holds(&path, 1);
}

#[test]
fn stock_sqlite_refuses_a_guarded_database_and_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = crashed(directory.path(), "db", 9);
    let before = files(&path);
    let db = super::stock(&path);
    for statement in [
        "SELECT * FROM t",
        "DELETE FROM t",
        "PRAGMA journal_mode=delete",
        "VACUUM",
    ] {
        let found = outcome(&db, statement);
        assert!(found.starts_with("error 26"), "{statement}: {found}");
    }
    drop(db);
    assert!(files(&path) == before, "a file was changed");
    holds(&path, 9);
}
