//! `synchronous=NORMAL`: how often a call makes the kernel begin to write the log.

use super::{open, sql, status};
use rusqlite::Connection;
use std::path::Path;
use std::time::{Duration, Instant};

const MODES: [&str; 3] = ["onewrite", "waldio", "direct"];
/// A commit within so long of the last call leaves its own to the thread.
const PAUSE_MS: u128 = 10;
/// So many bytes wait for the thread at most.
const MOST_BYTES: u64 = 4 << 20;

fn at_normal(path: &Path, mode: &str) -> Connection {
    let db = open(path);
    sql(&db, &format!("PRAGMA journal_mode={mode}"));
    sql(&db, "PRAGMA synchronous=NORMAL");
    sql(&db, "PRAGMA wal_autocheckpoint=0");
    sql(&db, "CREATE TABLE t(n INTEGER)");
    db
}

fn count(db: &Connection, field: &str) -> u64 {
    status(db)[field].as_u64().expect("a number")
}

#[test]
fn the_kernel_is_told_once_of_many_commits() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let began = Instant::now();
        let db = at_normal(&directory.path().join("db"), mode);
        for n in 0..2_000 {
            sql(&db, &format!("INSERT INTO t VALUES({n})"));
        }
        let (begun, bytes) = (count(&db, "begun"), count(&db, "write_bytes"));
        let at_most = 2 + began.elapsed().as_millis() / PAUSE_MS + u128::from(bytes / MOST_BYTES);
        println!("{mode}: {begun} calls, at most {at_most}");
        assert!(u128::from(begun) <= at_most, "{mode}: {begun} of {at_most}");
        assert!(begun > 0, "{mode}");
    }
}

#[test]
fn what_a_commit_leaves_is_begun_though_no_other_commit_comes() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let db = at_normal(&directory.path().join("db"), mode);
        // Some of them find a thread that is idle, or none.
        for pause in [0, 0, 30, 0, 0, 2_500, 0, 0] {
            std::thread::sleep(Duration::from_millis(pause));
            sql(&db, "INSERT INTO t VALUES(1)");
            sql(&db, "INSERT INTO t VALUES(2)");
            let end = Instant::now() + Duration::from_secs(120);
            while count(&db, "not_begun_bytes") > 0 {
                assert!(Instant::now() < end, "{mode}: nobody begins to write them");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

#[test]
fn commits_at_normal_share_blocks() {
    const COMMITS: u64 = 2_000;
    let directory = tempfile::tempdir().expect("a directory");
    let db = at_normal(&directory.path().join("db"), "onewrite");
    let (begun, bytes) = (count(&db, "begun"), count(&db, "write_bytes"));
    for n in 0..COMMITS {
        sql(&db, &format!("INSERT INTO t VALUES({n})"));
    }
    let begun = count(&db, "begun") - begun;
    let written = count(&db, "write_bytes") - bytes;
    // A commit begins a block after each call, and where the last one is full.
    let most = COMMITS * 512 + (begun + 2) * 4096;
    assert!(written < most, "{written} bytes, at most {most}");
}

/// It is written before it is known that `xSync` comes, and a crash of the system would take it.
#[test]
fn with_sync_normal_the_first_commit_at_full_does_not_stay_in_the_page_cache() {
    for mode in ["onewrite", "waldio"] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let _first = at_normal(&path, mode);
        let db = open(&path);
        sql(&db, "PRAGMA onewrite_sync=normal");
        sql(&db, "PRAGMA synchronous=FULL");
        let flushes = || {
            let before = count(&db, "flushes");
            sql(&db, "INSERT INTO t VALUES(1)");
            count(&db, "flushes") - before
        };
        assert_eq!((flushes(), flushes()), (1, 0), "{mode}");
    }
}
