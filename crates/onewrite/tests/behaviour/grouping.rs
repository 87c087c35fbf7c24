//! Several writers at once in strict group commit: the log stays bounded, and no writer starves.

use super::{companion, open, sql, stock};
use onewrite::storage::{Access, Create, DirectIo, LockByte, LockKind, LogFile};
use rusqlite::Connection;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Every commit that waits for its flush holds a read mark. If the log never restarted, it would
/// grow as long as there are writers.
#[test]
fn the_log_stays_bounded_under_many_writers() {
    // Each commit has a frame, so a log that never restarts has twice as many. A busy machine may keep a
    // reader from its processor for that long, but not each time.
    const MOST: u64 = (THREADS * COMMITS / 2) as u64;
    for mode in ["onewrite", "direct"] {
        let is_bounded = (0..3).any(|_| longest_log(mode) <= MOST);
        assert!(is_bounded, "{mode}: more than {MOST} frames, each time");
    }
}

const THREADS: usize = 16;
const COMMITS: usize = 250;

/// The most frames of a log to which many threads write.
fn longest_log(mode: &str) -> u64 {
    const THRESHOLD: u64 = 200;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = open(&path);
    assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
    sql(&db, "CREATE TABLE t(thread INTEGER, n INTEGER, x TEXT)");
    let done = AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let path = &path;
                scope.spawn(move || {
                    let db = open(path);
                    db.busy_timeout(Duration::from_secs(60)).expect("a timeout");
                    sql(&db, &format!("PRAGMA wal_autocheckpoint={THRESHOLD}"));
                    for n in 0..COMMITS {
                        sql(&db, &format!("INSERT INTO t VALUES({thread},{n},'x')"));
                    }
                })
            })
            .collect();
        let watcher = scope.spawn(|| {
            let db = open(&path);
            let mut longest = 0;
            while !done.load(Ordering::Relaxed) {
                let status = sql(&db, "PRAGMA onewrite_status");
                let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
                longest = longest.max(status["frames"].as_u64().unwrap_or(0));
                std::thread::sleep(Duration::from_millis(1));
            }
            longest
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        // The watcher ends, too, where one of them has failed.
        done.store(true, Ordering::Relaxed);
        for writer in ended {
            writer.expect("no panic");
        }
        watcher.join().expect("no panic")
    });
    println!("{mode}: at most {longest} frames, of a threshold of {THRESHOLD}");
    drop(db);
    let db = stock(&path);
    assert_eq!(
        sql(&db, "SELECT count(*) FROM t"),
        (THREADS * COMMITS).to_string()
    );
    longest
}

/// SQLite would refuse the second writer, and its busy handler would sleep. No commit has run next
/// to another before.
#[test]
fn a_writer_waits_for_the_first_other_one() {
    const TRIES: usize = 20;
    const TRANSACTION: Duration = Duration::from_millis(5);
    let waited = (0..TRIES).filter(|_| waits_for_the_other(TRANSACTION));
    // A busy machine may stretch a transaction beyond the time that a writer waits.
    assert!(waited.count() > 0, "refused {TRIES} times");
}

fn waits_for_the_other(transaction: Duration) -> bool {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = open(&path);
    assert_eq!(sql(&db, "PRAGMA journal_mode=onewrite"), "onewrite");
    sql(&db, "CREATE TABLE t(x)");
    let (begun, wait_for_it) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let path = &path;
        let other = scope.spawn(move || {
            let db = open(path);
            db.busy_timeout(Duration::ZERO).expect("no timeout");
            sql(&db, "SELECT count(*) FROM t");
            wait_for_it.recv().expect("a transaction");
            db.execute_batch("INSERT INTO t VALUES(2)").is_ok()
        });
        sql(&db, "BEGIN IMMEDIATE");
        begun.send(()).expect("somebody to wait");
        std::thread::sleep(transaction);
        sql(&db, "INSERT INTO t VALUES(1)");
        sql(&db, "COMMIT");
        other.join().expect("no panic")
    })
}

/// The files of the group next to a database in `direct`: what the processes share, and the locks.
const SHARED_FILES: [&str; 2] = ["-onewrite-shm", "-onewrite-lock"];

/// A database in `direct`, and how many of its commits shared a flush.
fn direct(path: &Path) -> Connection {
    let db = open(path);
    assert_eq!(sql(&db, "PRAGMA journal_mode=direct"), "direct");
    sql(&db, "CREATE TABLE IF NOT EXISTS t(x)");
    db
}

fn grouped(db: &Connection) -> u64 {
    let status = sql(db, "PRAGMA onewrite_status");
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    status["group_commits"]["commits"]
        .as_u64()
        .expect("a number")
}

#[test]
fn in_direct_the_shared_files_go_with_the_log() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let present = || SHARED_FILES.map(|suffix| companion(&path, suffix).exists());
    let db = direct(&path);
    sql(&db, "INSERT INTO t VALUES(1)");
    assert_eq!(present(), [true, true]);
    let last = stock(&path);
    sql(&last, "SELECT count(*) FROM t");
    drop(db);
    drop(last);
    assert_eq!(present(), [true, true], "stock SQLite does not know them");
    drop(direct(&path));
    assert_eq!(present(), [false, false]);
}

/// Without its shared files a process takes nothing of others for durable, and promises them
/// nothing. It goes on all the same, as stock SQLite does.
#[test]
fn direct_needs_no_shared_files() {
    for missing in SHARED_FILES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        std::fs::create_dir(companion(&path, missing)).expect("something in the way");
        let dbs = [direct(&path), direct(&path)];
        let access = Access::ReadWrite;
        let other = LogFile::open(
            &companion(&path, "-wal"),
            Create::Never,
            access,
            DirectIo::Auto,
        );
        let joined = other
            .expect("the log")
            .try_lock(LockByte::Presence, LockKind::Shared);
        assert!(joined.expect("an answer"), "others would wait at each open");
        for db in dbs.iter().cycle().take(6) {
            sql(db, "INSERT INTO t VALUES(1)");
        }
        assert_eq!(grouped(&dbs[0]), 0, "{missing}");
        let reader = stock(&path);
        assert_eq!(sql(&reader, "SELECT count(*) FROM t"), "6", "{missing}");
    }
}

/// A stock connection finds every commit of a group, and writes among them.
#[test]
fn stock_connections_read_and_write_among_the_commits_of_a_group() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let dbs = [direct(&path), direct(&path)];
    let other = stock(&path);
    for n in 0..20 {
        for db in &dbs {
            sql(db, "INSERT INTO t VALUES(1)");
        }
        assert_eq!(
            sql(&other, "SELECT count(*) FROM t"),
            (n * 3 + 2).to_string()
        );
        sql(&other, "INSERT INTO t VALUES(2)");
        assert_eq!(
            sql(&dbs[n % 2], "SELECT count(*) FROM t"),
            (n * 3 + 3).to_string()
        );
    }
    assert!(grouped(&dbs[0]) > 20, "commits that shared a flush");
    let closed = dbs.into_iter().chain([other]);
    closed.for_each(|db| db.close().expect("a close"));
    let db = stock(&path);
    assert_eq!(sql(&db, "SELECT count(*) FROM t"), "60");
    assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
}
