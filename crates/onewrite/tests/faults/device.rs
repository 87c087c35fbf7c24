//! Flushes that fail, and what is lost with them.

use super::refusal::{Refusal, Which};
use super::{
    ROWS, code, directory, failing, holds, holds_either, made, open, rows, sql, status, try_sql,
};
use rusqlite::Connection;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;

/// Commits that are published, and durable only with a later flush.
fn commit_without_flush(db: &Connection) {
    sql(db, "PRAGMA synchronous=NORMAL");
    sql(db, "INSERT INTO t VALUES('a')");
    sql(db, "INSERT INTO t VALUES('b')");
    sql(db, "PRAGMA synchronous=FULL");
}

/// Whatever is tried on it, the log says that it cannot be trusted.
fn is_poisoned(db: &Connection) {
    assert_eq!(failing(db, "INSERT INTO t VALUES('later')"), code::FSYNC);
    assert!(status(db)["poisoned"].is_string());
}

/// Commits at NORMAL wait for a flush: if that fails, for whatever reason, no later one says what became
/// of them.
#[test]
fn a_failed_flush_of_earlier_commits_poisons_the_log() {
    for errno in [EIO, ENOSPC, EDQUOT] {
        let directory = directory();
        let path = directory.path().join("db");
        let db = made(&path, &["PRAGMA onewrite_sync=full"]);
        commit_without_flush(&db);
        let refusal = Refusal::of(&path, Which::Flush, errno);
        assert_eq!(failing(&db, "INSERT INTO t VALUES('c')"), code::FSYNC);
        assert!(refusal.has_come());
        is_poisoned(&db);
        drop(db);
        holds_either(&path, [ROWS + 2, ROWS + 3]);
    }
}

/// The same where one write does both, and its blocks were ready: then it is not a full disk.
#[test]
fn a_failed_write_through_of_earlier_commits_poisons_the_log() {
    for (errno, code) in [
        (EIO, code::WRITE),
        (ENOSPC, code::FULL),
        (EDQUOT, code::FULL),
    ] {
        let directory = directory();
        let path = directory.path().join("db");
        let db = made(&path, &["PRAGMA onewrite_sync=persistent"]);
        let status = status(&db);
        if status["direct_io"] == false || status["fua"] == true {
            // With FUA the write covers nothing but itself, and a flush follows it.
            eprintln!("SKIPPED: no direct I/O, or FUA");
            return;
        }
        // Another connection's: this one goes on with one write a commit.
        let other = open(&path);
        commit_without_flush(&other);
        let refusal = Refusal::of(&path, Which::WriteThrough, errno);
        assert_eq!(failing(&db, "INSERT INTO t VALUES('c')"), code);
        assert!(refusal.has_come());
        is_poisoned(&db);
        drop((db, other));
        holds(&path, ROWS + 2);
    }
}

/// A flush that covers nothing but the commit itself is that commit's failure alone.
#[test]
fn a_failed_flush_of_one_commit_fails_that_commit() {
    let directory = directory();
    let path = directory.path().join("db");
    let db = made(&path, &["PRAGMA onewrite_sync=full"]);
    let refusal = Refusal::of(&path, Which::Flush, EIO);
    assert_eq!(failing(&db, "INSERT INTO t VALUES('c')"), code::FSYNC);
    assert!(refusal.has_come());
    assert!(status(&db)["poisoned"].is_null());
    sql(&db, "INSERT INTO t VALUES('d')");
    drop(db);
    holds(&path, ROWS + 1);
}

/// With `onewrite_sync=normal` only a large transaction is flushed; it covers the small ones before.
#[test]
fn a_failed_flush_of_a_large_transaction_poisons_at_sync_normal_too() {
    let directory = directory();
    let path = directory.path().join("db");
    let db = made(&path, &["PRAGMA onewrite_sync=normal"]);
    sql(&db, "INSERT INTO t VALUES('a')");
    let refusal = Refusal::of(&path, Which::Flush, EIO);
    let large = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i<200) \
                 INSERT INTO t SELECT zeroblob(3000) FROM c";
    assert_eq!(failing(&db, large), code::FSYNC);
    assert!(refusal.has_come());
    is_poisoned(&db);
    drop(db);
    holds_either(&path, [ROWS + 1, ROWS + 1 + 200]);
}

/// Frames that the first part of a log takes.
const FIRST_PART: u64 = 1536;

/// Frames that the log's ready blocks still take.
fn room(db: &Connection) -> u64 {
    FIRST_PART - status(db)["frames"].as_u64().expect("a number")
}

/// Rows that take a page of 1 KiB each.
fn pages(db: &Connection, number: u64) -> Result<String, (i32, String)> {
    let rows = format!(
        "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i<{number}) \
         INSERT INTO t SELECT zeroblob(900) FROM c"
    );
    try_sql(db, &rows)
}

fn almost_full(path: &std::path::Path, leaving: u64) -> Connection {
    let db = made(path, &["PRAGMA page_size=1024"]);
    sql(&db, "PRAGMA wal_autocheckpoint=0");
    sql(&db, "PRAGMA synchronous=NORMAL");
    while room(&db) > leaving + 20 {
        let many = (room(&db) - leaving).min(200);
        pages(&db, many - 15).expect("room");
    }
    db
}

/// The blocks of a log that grows are made durable by a flush of the whole file: the same holds for it.
#[test]
fn a_failed_flush_of_new_blocks_poisons_the_log() {
    for errno in [EIO, ENOSPC] {
        let directory = directory();
        let path = directory.path().join("db");
        // More than are prepared ahead are left, and less than one transaction takes.
        let db = almost_full(&path, 165);
        let rows = rows(&db);
        sql(&db, "PRAGMA synchronous=FULL");
        let refusal = Refusal::of(&path, Which::FlushOfNewBlocks, errno);
        let (found, why) = pages(&db, 230).expect_err("a failed flush");
        assert_eq!(found, code::FSYNC, "{why}");
        assert!(refusal.has_come());
        is_poisoned(&db);
        drop(db);
        holds(&path, rows);
    }
}

#[test]
fn a_failed_flush_of_blocks_that_are_prepared_ahead_poisons_the_log() {
    let directory = directory();
    let path = directory.path().join("db");
    let db = almost_full(&path, 165);
    let refusal = Refusal::of(&path, Which::FlushOfNewBlocks, EIO);
    let mut acknowledged = rows(&db);
    // In the background, while commits go on.
    while try_sql(&db, "INSERT INTO t VALUES(1)").is_ok() {
        acknowledged += 1;
        assert!(acknowledged < 10_000, "nobody has told");
    }
    assert!(refusal.has_come());
    is_poisoned(&db);
    drop(db);
    holds_either(&path, [acknowledged, acknowledged + 1]);
}
