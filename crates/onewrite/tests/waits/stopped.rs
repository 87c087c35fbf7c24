//! A process that is stopped while it holds any lock that it can hold. The others continue, or get
//! "busy" in time.

use super::helper::Helper;
use super::{
    BUSY, EXTENSION, FLUSH, PRESENCE, PROTOCOL, TURN, code, companion, count, in_time, made, open,
    rows, sql, try_open,
};
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

const INSERT: &str = "INSERT INTO t VALUES('more')";
const LARGE: &str = "INSERT INTO t VALUES(randomblob(12000000))";

fn result_of(path: &Path, statement: &'static str) -> rusqlite::Result<String> {
    let path = path.to_owned();
    in_time(statement, move || rows::query(&try_open(&path)?, statement))
}

/// A group of commits that is not written is visible to no other process. A connection that opens
/// it gets "busy", and other databases of its process open.
#[test]
fn in_a_group_that_is_not_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let [path, other] = ["db", "other"].map(|name| directory.path().join(name));
    drop(made(&path, "waldio"));
    drop(made(&other, "waldio"));
    let mut helper = Helper::with(&path);
    helper.ask("PRAGMA onewrite_group_synch='1000,10000'");
    // The first commit writes the log's header, and is not deferred.
    helper.ask(INSERT);
    helper.ask(INSERT);
    helper.stop();
    let (send, result) = channel();
    let waits = path.clone();
    thread::spawn(move || send.send(rows::query(&open(&waits), "SELECT count(*) FROM t")));
    let opened = result_of(&other, "SELECT count(*) FROM t");
    assert_eq!(opened.as_deref(), Ok("1"), "another database");
    let refused = result.recv_timeout(super::IN_TIME).expect("an answer");
    assert_eq!(code(&refused), Some(BUSY), "{refused:?}");
    // When it continues, it writes the group, and all may open the log.
    helper.go_on();
    helper.ask("PRAGMA onewrite_group_synch='off'");
    helper.ask(INSERT);
    let opened = result_of(&path, "SELECT count(*) FROM t");
    assert_eq!(opened.as_deref(), Ok("4"));
}

/// A connection waits to open a database. Another connection of its process waits no longer than
/// its own timeout.
#[test]
fn no_connection_waits_for_the_busy_timeout_of_another() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    drop(made(&path, "waldio"));
    let mut helper = Helper::with(&path);
    helper.ask("PRAGMA onewrite_group_synch='1000,10000'");
    helper.ask(INSERT);
    helper.ask(INSERT);
    helper.stop();
    let (begun, begins) = channel();
    let waits = path.clone();
    let patient = thread::spawn(move || {
        let db = open(&waits);
        db.busy_timeout(Duration::from_secs(600))
            .expect("a timeout");
        begun.send(()).expect("heard");
        rows::query(&db, "SELECT count(*) FROM t")
    });
    begins.recv().expect("begun");
    let refused = result_of(&path, "SELECT count(*) FROM t");
    assert_eq!(code(&refused), Some(BUSY), "{refused:?}");
    assert!(!patient.is_finished());
    // The kernel releases the locks of the dead process, and its group is lost with it.
    drop(helper);
    assert_eq!(patient.join().expect("no panic").as_deref(), Ok("2"));
}

/// One process at a time changes the log's size. A commit that needs more room returns "busy";
/// others continue.
#[test]
fn while_it_changes_the_logs_size() {
    for mode in ["waldio", "onewrite", "swal"] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = made(&path, mode);
        let mut helper = Helper::start();
        helper.lock(&companion(&path, "-onewrite-lock"), "write", EXTENSION, 1);
        helper.stop();
        let (db, large) = in_time("a large transaction", move || {
            let large = rows::query(&db, LARGE);
            (db, large)
        });
        assert_eq!(code(&large), Some(BUSY), "{mode}: {large:?}");
        sql(&db, INSERT);
        // Nothing is poisoned, and nothing is lost.
        drop(helper);
        sql(&db, LARGE);
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "3", "{mode}");
        drop(db);
        assert_eq!(sql(&open(&path), "PRAGMA integrity_check"), "ok", "{mode}");
    }
}

/// A COMMIT that was refused for lack of room can be tried again, even if a part of it is in the
/// log already.
#[test]
fn a_commit_that_found_it_busy_is_tried_again() {
    for mode in ["waldio", "onewrite", "swal"] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = made(&path, mode);
        // Nothing is written before the end.
        sql(&db, "PRAGMA cache_size=-100000");
        let mut helper = Helper::start();
        helper.lock(&companion(&path, "-onewrite-lock"), "write", EXTENSION, 1);
        helper.stop();
        sql(&db, "BEGIN");
        sql(&db, LARGE);
        for _ in 0..2 {
            let refused = rows::query(&db, "COMMIT");
            assert_eq!(code(&refused), Some(BUSY), "{mode}: {refused:?}");
        }
        drop(helper);
        sql(&db, "COMMIT");
        drop(db);
        let db = open(&path);
        assert_eq!(
            sql(&db, "SELECT sum(length(x)) FROM t"),
            "12000005",
            "{mode}"
        );
        assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok", "{mode}");
    }
}

/// A commit that was to begin a group, and found no room, has hidden nothing: all may open the log.
#[test]
fn a_group_without_space_excludes_no_connection() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = made(&path, "waldio");
    sql(&db, "PRAGMA wal_autocheckpoint=0");
    sql(&db, "PRAGMA synchronous=NORMAL");
    sql(&db, "PRAGMA onewrite_group_synch='1,1'");
    let mut helper = Helper::start();
    helper.lock(&companion(&path, "-onewrite-lock"), "write", EXTENSION, 1);
    helper.stop();
    let commit = || rows::query(&db, "INSERT INTO t VALUES(randomblob(100000))");
    let refused = (0..200).map(|_| commit()).find(Result::is_err);
    let refused = refused.expect("the log is full");
    assert_eq!(code(&refused), Some(BUSY), "{refused:?}");
    let mut other = Helper::with(&path);
    let rows = sql(&db, "SELECT count(*) FROM t");
    assert_eq!(other.ask("SELECT count(*) FROM t"), rows);
}

/// Others wait only once for a process that is stopped in its flush or in its turn.
#[test]
fn in_its_flush_or_in_its_turn() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = made(&path, "onewrite");
    let mut other = Helper::with(&path);
    let mut helper = Helper::start();
    for byte in [FLUSH, TURN] {
        helper.lock(&companion(&path, "-onewrite-lock"), "write", byte, 1);
    }
    helper.stop();
    for _ in 0..20 {
        // They are in company all the time.
        sql(&db, INSERT);
        other.ask(INSERT);
    }
    assert_eq!(sql(&db, "SELECT count(*) FROM t"), "41");
    let timed_out = || count(&db, "timed_out");
    assert!(timed_out() <= 2, "{} waits timed out", timed_out());
    helper.go_on();
    drop(helper);
    let before = timed_out();
    sql(&db, INSERT);
    other.ask(INSERT);
    assert_eq!(timed_out(), before);
}

/// The bytes of SQLite's locks in `-shm`, and in the database.
const CHECKPOINT: i64 = 121;
const RECOVER: i64 = 122;
const FIRST_READ: i64 = 123;
const DEAD_MANS_SWITCH: i64 = 128;
const PENDING: i64 = 0x4000_0000;

/// With SQLite's own locks: the answer is SQLite's and comes in time, and other databases open at
/// once.
#[test]
fn with_a_lock_of_sqlites() {
    let shm = |path: &Path| companion(path, "-shm");
    let file = |path: &Path| path.to_owned();
    type Of = fn(&Path) -> std::path::PathBuf;
    let locks: [(&str, Of, &str, i64); 5] = [
        ("CKPT", shm, "write", CHECKPOINT),
        ("RECOVER", shm, "write", RECOVER),
        ("READ", shm, "read", FIRST_READ + 1),
        ("PENDING", file, "write", PENDING),
        ("DMS", shm, "write", DEAD_MANS_SWITCH),
    ];
    for (name, of, kind, byte) in locks {
        let directory = tempfile::tempdir().expect("a directory");
        let [path, other] = ["db", "other"].map(|name| directory.path().join(name));
        drop(made(&other, "onewrite"));
        let db = made(&path, "onewrite");
        let mut helper = Helper::start();
        if byte == DEAD_MANS_SWITCH {
            // The byte is held while no connection has it shared.
            drop(db);
            std::fs::write(shm(&path), []).expect("a wal-index");
        }
        helper.lock(&of(&path), kind, byte, 1);
        helper.stop();
        let (send, result) = channel();
        let waits = path.clone();
        thread::spawn(move || send.send(rows::query(&open(&waits), INSERT)));
        let opened = result_of(&other, "SELECT count(*) FROM t");
        assert_eq!(opened.as_deref(), Ok("1"), "{name}: another database");
        // SQLite tries for ten seconds to lock the wal-index.
        let result = result.recv_timeout(6 * super::IN_TIME).expect(name);
        let answers = [None, Some(BUSY), Some(PROTOCOL)];
        assert!(answers.contains(&code(&result)), "{name}: {result:?}");
        drop(helper);
        sql(&open(&path), INSERT);
    }
}

/// Real transactions, stopped in the middle.
#[test]
fn in_a_transaction() {
    let directory = tempfile::tempdir().expect("a directory");
    let [path, other] = ["db", "other"].map(|name| directory.path().join(name));
    drop(made(&other, "onewrite"));
    let db = made(&path, "onewrite");
    for (begins, answer) in [
        ("BEGIN IMMEDIATE", Some(BUSY)),
        ("BEGIN EXCLUSIVE", Some(BUSY)),
        ("BEGIN", None),
    ] {
        let mut helper = Helper::with(&path);
        helper.ask(begins);
        helper.ask("SELECT count(*) FROM t");
        helper.stop();
        let result = result_of(&path, INSERT);
        assert_eq!(code(&result), answer, "{begins}: {result:?}");
        assert_eq!(sql(&db, "SELECT count(*) > 0 FROM t"), "1");
        let opened = result_of(&other, "SELECT count(*) FROM t");
        assert_eq!(opened.as_deref(), Ok("1"), "{begins}");
    }
    // A close does not wait for another process either.
    let mut helper = Helper::with(&path);
    helper.lock(&companion(&path, "-onewrite"), "read", PRESENCE, 1);
    helper.stop();
    in_time("a close", move || drop(db));
}
