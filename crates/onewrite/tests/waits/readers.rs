//! Another user, which may only read, locks every file that it can open.

use super::helper::Helper;
use super::{companion, count, made, sql};
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

const NOBODY: u32 = 65_534;
const LARGE: &str = "INSERT INTO t VALUES(randomblob(12000000))";

/// Commits, alone and in company, and the log's growth continue as if there were no such reader.
#[test]
fn shared_locks_on_every_byte_keep_no_writer() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: needs root, to be another user");
    }
    for mode in ["onewrite", "waldio", "swal"] {
        let directory = tempfile::tempdir().expect("a directory");
        set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("a mode");
        let path = directory.path().join("db");
        std::fs::write(&path, []).expect("a file");
        set_permissions(&path, Permissions::from_mode(0o644)).expect("a mode");
        let db = made(&path, mode);
        sql(&db, "PRAGMA onewrite_group_commit=on");
        let mut other = Helper::with(&path);
        other.ask("PRAGMA onewrite_group_commit=on");
        let mut reader = Helper::start();
        reader.ask(&format!("user {NOBODY}"));
        for file in ["-onewrite", "-onewrite-shm"] {
            reader.lock(&companion(&path, file), "read", 0, 0);
        }
        let locks = companion(&path, "-onewrite-lock");
        let refused = reader.answer(&format!("lock read 0 0 {}", locks.display()));
        assert!(refused.contains("denied"), "{mode}: {refused}");
        for _ in 0..30 {
            sql(&db, "INSERT INTO t VALUES('more')");
            other.ask("INSERT INTO t VALUES('more')");
        }
        sql(&db, LARGE);
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "62", "{mode}");
        assert!(count(&db, "commits") > 0, "{mode}: in company");
        assert_eq!(count(&db, "timed_out"), 0, "{mode}");
        drop(other);
        // A process that has the log open keeps its guard, as a SHARED lock on the database would.
        drop(reader);
        drop(db);
        assert!(!locks.exists(), "{mode}: it is gone when nobody uses it");
    }
}

/// Group synch must know that no connection looks. Here one always does, so every commit is written
/// at once.
#[test]
fn a_reader_that_looks_all_the_time_makes_group_synch_write_at_once() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: needs root, to be another user");
    }
    let directory = tempfile::tempdir().expect("a directory");
    set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("a mode");
    let path = directory.path().join("db");
    std::fs::write(&path, []).expect("a file");
    set_permissions(&path, Permissions::from_mode(0o644)).expect("a mode");
    let db = made(&path, "waldio");
    let mut reader = Helper::start();
    reader.ask(&format!("user {NOBODY}"));
    reader.lock(&companion(&path, "-onewrite"), "read", 0, 0);
    sql(&db, "PRAGMA onewrite_group_synch='8,10000'");
    for _ in 0..20 {
        sql(&db, "INSERT INTO t VALUES('more')");
    }
    assert_eq!(super::status(&db)["groups"]["commits"], 0);
    // A connection that opens the log now finds all commits.
    let mut other = Helper::with(&path);
    assert_eq!(other.ask("SELECT count(*) FROM t"), "21");
}
