//! Checkpoints that wait for another one, and those that do not.

use super::helper::Helper;
use super::{companion, count, made, open, sql};

const CHECKPOINT: i64 = 121;

/// A checkpoint that an application asks for without wanting to wait does not wait, whether its
/// pragma was prepared just now or earlier. One that follows a commit waits, so that the log
/// restarts under many writers.
#[test]
fn a_passive_checkpoint_waits_for_no_connection() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = made(&path, "onewrite");
    let other = open(&path);
    sql(&db, "PRAGMA wal_autocheckpoint=0");
    // Most of the log is copied, so that it may restart soon; a reader prevents that.
    for _ in 0..20 {
        sql(&db, "INSERT INTO t VALUES('more')");
    }
    sql(&other, "BEGIN");
    sql(&other, "SELECT count(*) FROM t");
    sql(&db, "PRAGMA wal_checkpoint(PASSIVE)");
    let mut helper = Helper::start();
    helper.lock(&companion(&path, "-shm"), "write", CHECKPOINT, 1);
    let waits = || count(&db, "checkpoint_waits");
    let mut prepared = db.prepare("PRAGMA wal_checkpoint(PASSIVE)").expect("SQL");
    let passive = |statement: &mut rusqlite::Statement<'_>| {
        let busy: i64 = statement.query_row([], |row| row.get(0)).expect("a row");
        assert_eq!(busy, 1, "another one has the lock");
    };
    let before = waits();
    sql(&db, "INSERT INTO t VALUES('more')");
    passive(&mut db.prepare("PRAGMA wal_checkpoint(PASSIVE)").expect("SQL"));
    sql(&db, "INSERT INTO t VALUES('more')");
    passive(&mut prepared);
    assert_eq!(waits(), before);
    sql(&db, "PRAGMA onewrite_background_checkpoint=off");
    sql(&db, "PRAGMA wal_autocheckpoint=1");
    sql(&db, "INSERT INTO t VALUES('more')");
    assert_eq!(waits(), before + 1, "one that follows a commit");
}

/// Otherwise the connections of one process would wait on, while those of another write.
#[test]
fn no_process_waits_for_what_another_one_waited_for_in_vain() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = made(&path, "onewrite");
    let other = open(&path);
    sql(&db, "PRAGMA wal_autocheckpoint=0");
    for _ in 0..200 {
        sql(&db, "INSERT INTO t VALUES('more')");
    }
    sql(&other, "BEGIN");
    sql(&other, "SELECT count(*) FROM t");
    sql(&db, "PRAGMA wal_checkpoint(PASSIVE)");
    let mut locker = Helper::start();
    locker.lock(&companion(&path, "-shm"), "write", CHECKPOINT, 1);
    let mut writer = Helper::with(&path);
    writer.ask("PRAGMA onewrite_background_checkpoint=off");
    writer.ask("PRAGMA wal_autocheckpoint=1");
    writer.ask("INSERT INTO t VALUES('more')");
    let status = writer.ask("PRAGMA onewrite_status");
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["group_commits"]["checkpoint_waits"], 1, "{status}");
    sql(&db, "PRAGMA onewrite_background_checkpoint=off");
    sql(&db, "PRAGMA wal_autocheckpoint=1");
    sql(&db, "INSERT INTO t VALUES('more')");
    assert_eq!(count(&db, "checkpoint_waits"), 0);
}
