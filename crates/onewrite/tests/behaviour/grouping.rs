//! Several writers at once in strict group commit: the log stays bounded, and no writer starves.

use super::{open, sql, stock};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Every commit that waits for its flush holds a read mark. If the log never restarted, it would
/// grow as long as there are writers.
#[test]
fn the_log_stays_bounded_under_many_writers() {
    const THREADS: usize = 16;
    const COMMITS: usize = 250;
    const THRESHOLD: u64 = 200;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = open(&path);
    assert_eq!(sql(&db, "PRAGMA journal_mode=onewrite"), "onewrite");
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
        for writer in writers {
            writer.join().expect("no panic");
        }
        done.store(true, Ordering::Relaxed);
        watcher.join().expect("no panic")
    });
    println!("at most {longest} frames, of a threshold of {THRESHOLD}");
    assert!(longest <= 4 * THRESHOLD, "{longest} frames");
    drop(db);
    let db = stock(&path);
    assert_eq!(
        sql(&db, "SELECT count(*) FROM t"),
        (THREADS * COMMITS).to_string()
    );
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
