//! A log grows before its commits need the blocks: no commit writes or flushes for that. Calls are
//! counted by the thread that makes them. Each takes its time, as on the eMMC of
//! `crates/flash/models/emmc.toml`.

#[path = "common/rows.rs"]
mod rows;

use onewrite::storage::Durability;
use onewrite::storage::observer::{Call, Observer, Route, observe};
use onewrite_common::files::companion;
use rusqlite::{Connection, OpenFlags};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

/// A piece of zeros, as the engine writes them.
const PIECE: u64 = 256 << 10;
/// For what is waited for. A thread of a busy machine may come late.
const LONGEST: Duration = Duration::from_secs(60);

/// The device works on one request at a time.
static CHANNEL: Mutex<()> = Mutex::new(());
/// Bytes in the page cache, for the next flush.
static DIRTY: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Counts {
    /// Flushes, and write-through writes.
    durable: u32,
    initialize: u32,
}

thread_local! {
    static MADE: Cell<Counts> = const { Cell::new(Counts { durable: 0, initialize: 0 }) };
}

fn request(microseconds: u64, bytes: u64) {
    let _turn: MutexGuard<'_, ()> = CHANNEL.lock().unwrap_or_else(PoisonError::into_inner);
    thread::sleep(Duration::from_micros(microseconds + bytes / 125));
}

struct Emmc;

impl Observer for Emmc {
    fn before(&self, _path: &Path, call: &Call<'_>) -> io::Result<()> {
        let mut made = MADE.get();
        match call {
            Call::Write {
                bytes,
                route,
                durability,
                ..
            } => {
                let bytes = bytes.len() as u64;
                match (route, durability) {
                    (Route::Buffered, _) => {
                        DIRTY.fetch_add(bytes, Ordering::Relaxed);
                    }
                    (Route::Direct, Durability::WriteThrough) => {
                        made.durable += 1;
                        request(957, bytes);
                    }
                    (Route::Direct, _) => request(44, bytes),
                }
            }
            Call::Flush => {
                made.durable += 1;
                request(1000, DIRTY.swap(0, Ordering::Relaxed));
            }
            Call::Initialize { range } => {
                made.initialize += 1;
                for _ in 0..(range.end - range.start).div_ceil(PIECE) {
                    request(44, PIECE);
                }
            }
            _ => {}
        }
        MADE.set(made);
        Ok(())
    }
}

fn open(path: &Path) -> Connection {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        assert!(observe(Box::new(Emmc)), "the only hook");
        onewrite::register().expect("the VFS onewrite");
    });
    let db = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), onewrite::VFS_NAME)
        .expect("a connection");
    db.busy_timeout(LONGEST).expect("a timeout");
    sql(&db, "PRAGMA wal_autocheckpoint=0");
    db
}

fn sql(db: &Connection, statement: &str) -> String {
    rows::query(db, statement).unwrap_or_else(|e| panic!("{statement}: {e}"))
}

fn made(path: &Path, mode: &str) -> Connection {
    let db = open(path);
    assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
    sql(&db, "CREATE TABLE t(x)");
    sql(&db, "INSERT INTO t VALUES(0)");
    db
}

/// Commits one page. Returns the calls of this thread for that.
fn commit(db: &Connection) -> Counts {
    let before = MADE.get();
    sql(db, "UPDATE t SET x = randomblob(1000) WHERE rowid = 1");
    let after = MADE.get();
    Counts {
        durable: after.durable - before.durable,
        initialize: after.initialize - before.initialize,
    }
}

/// A commit that pays only for itself.
const ITS_OWN: Counts = Counts {
    durable: 1,
    initialize: 0,
};

fn log_of(path: &Path, mode: &str) -> PathBuf {
    let suffix = if mode == "direct" {
        "-wal"
    } else {
        "-onewrite"
    };
    companion(path, suffix)
}

fn bytes(log: &Path) -> u64 {
    fs::metadata(log).expect("the log").len()
}

fn status(db: &Connection, what: &str) -> u64 {
    let status = sql(db, "PRAGMA onewrite_status");
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    status[what]
        .as_u64()
        .unwrap_or_else(|| panic!("{what}: {status}"))
}

/// Makes so many commits of a block each. If few of the log's blocks are free, it waits for more: that
/// has begun by then, in another thread. Returns how often the log grew, and the longest commit.
fn fill(db: &Connection, log: &Path, commits: u64) -> (u32, Duration) {
    let (mut grown, mut size) = (0, bytes(log));
    let mut longest = Duration::ZERO;
    for _ in 0..commits {
        let begun = Instant::now();
        assert_eq!(commit(db), ITS_OWN, "{} bytes", bytes(log));
        longest = longest.max(begun.elapsed());
        let begun = Instant::now();
        let used = || (status(db, "frames") + 1) * 4120;
        while used() + (400 << 10).min(size / 3) > size && bytes(log) == size {
            assert!(begun.elapsed() < LONGEST, "the log does not grow");
            thread::sleep(Duration::from_millis(1));
        }
        grown += u32::from(bytes(log) > size);
        size = bytes(log);
    }
    (grown, longest)
}

#[test]
fn no_commit_pays_for_the_growth_of_the_log() {
    for mode in ["onewrite", "waldio", "direct"] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = made(&path, mode);
        let (grown, longest) = fill(&db, &log_of(&path, mode), 600);
        println!("{mode}: grew {grown} times, the longest commit took {longest:?}");
        assert!(grown >= 3, "{mode}: grew {grown} times");
    }
}

/// Commits of 250 KiB need more than a quarter of what a step adds.
#[test]
fn in_direct_large_commits_do_not_outrun_the_growth() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = made(&path, "direct");
    let log = log_of(&path, "direct");
    fill(&db, &log, 300);
    for _ in 0..30 {
        let before = MADE.get();
        sql(&db, "INSERT INTO t VALUES(randomblob(240000))");
        assert_eq!(MADE.get().initialize, before.initialize);
    }
}
