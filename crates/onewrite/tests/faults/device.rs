//! Flushes that fail, and the commits that are lost with them.

use super::refusal::{Refusal, Which};
use super::{
    ROWS, code, directory, failing, holds, holds_either, made, open, rows, sql, status, try_sql,
};
use rusqlite::Connection;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;

/// Commits that are published, and become durable only with a later flush.
fn commit_without_flush(db: &Connection) {
    sql(db, "PRAGMA synchronous=NORMAL");
    sql(db, "INSERT INTO t VALUES('a')");
    sql(db, "INSERT INTO t VALUES('b')");
    sql(db, "PRAGMA synchronous=FULL");
}

/// The log reports that it cannot be trusted, whatever is tried.
fn is_poisoned(db: &Connection) {
    assert_eq!(failing(db, "INSERT INTO t VALUES('later')"), code::FSYNC);
    assert!(status(db)["poisoned"].is_string());
}

/// Commits at NORMAL wait for a flush. If that flush fails, for any reason, no later one shows
/// whether they are durable.
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

/// The same with one write that does both. Its blocks were ready, so the error is not a full disk.
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
            // With FUA the write covers only itself, and a flush follows it.
            eprintln!("SKIPPED: no direct I/O, or FUA");
            return;
        }
        // Another connection makes them, so that this one continues with one write per commit.
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

/// The failure of a flush that covers only one commit fails only that commit.
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

/// The number of frames in the first part of a log.
const FIRST_PART: u64 = 1536;

/// The number of frames that still fit in the log's ready blocks.
fn room(db: &Connection) -> u64 {
    FIRST_PART - status(db)["frames"].as_u64().expect("a number")
}

/// Inserts rows that take a page of 1 KiB each.
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

/// A flush of the whole file makes the new blocks of a growing log durable. The same rule holds for
/// it.
#[test]
fn a_failed_flush_of_new_blocks_poisons_the_log() {
    for errno in [EIO, ENOSPC] {
        let directory = directory();
        let path = directory.path().join("db");
        // The room left is more than the limit for preparing ahead, and less than one transaction
        // needs.
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
    // The flush runs in the background, while commits continue.
    while try_sql(&db, "INSERT INTO t VALUES(1)").is_ok() {
        acknowledged += 1;
        assert!(acknowledged < 10_000, "nobody has told");
    }
    assert!(refusal.has_come());
    is_poisoned(&db);
    drop(db);
    holds_either(&path, [acknowledged, acknowledged + 1]);
}
