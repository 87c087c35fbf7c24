//! Databases that a process keeps open for a while after their last connection (`onewrite_linger`). A
//! VFS between ours and SQLite's own counts what happens to each database.
#![allow(unsafe_code)]

mod at_once;
mod callback;
#[path = "../process/children.rs"]
mod children;
mod others;
mod processes;
mod replaced;
#[path = "../common/rows.rs"]
mod rows;
#[path = "../common/shim.rs"]
mod shim;
mod with_a_thread;

use rusqlite::ffi;
use rusqlite::{Connection, OpenFlags};
use shim::{Call, Watch};
use std::collections::HashMap;
use std::ffi::{CStr, c_int};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, OnceLock, PoisonError};
use std::thread::{ThreadId, current, sleep};
use std::time::{Duration, Instant};

const MODES: [&str; 3] = ["onewrite", "waldio", "swal"];
/// Every wait ends.
const LONGEST: Duration = Duration::from_secs(240);
/// Longer than any test.
const LONG: &str = "PRAGMA onewrite_linger='1000s'";
const ROUNDS: u64 = 20;

struct Counting;

/// Writes and flushes of each database.
static CALLS: Mutex<Option<HashMap<PathBuf, u32>>> = Mutex::new(None);
/// Databases whose flushes take their time.
static SLOW: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// Databases whose guard cannot be changed, and how often that was tried.
static FAILING: Mutex<Vec<(PathBuf, u32)>> = Mutex::new(Vec::new());
/// A database that only this thread can write.
static FAILS_FOR_OTHERS: OnceLock<(PathBuf, ThreadId)> = OnceLock::new();
/// SQLite writes whole pages, the engine its header alone.
const LESS_THAN_A_PAGE: usize = 512;

fn count(path: &Path) {
    let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let calls = calls.get_or_insert_default();
    *calls.entry(path.to_owned()).or_default() += 1;
}

fn calls(path: &Path) -> u32 {
    let calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let calls = calls.iter().flatten();
    let mut found = calls.filter_map(|(of, count)| (of == path).then_some(*count));
    found.next().unwrap_or(0)
}

impl Watch for Counting {
    const NAME: &CStr = c"counting";
    const FILES: c_int = ffi::SQLITE_OPEN_MAIN_DB;

    fn write(path: &Path, offset: u64, bytes: &[u8], call: impl Call) -> c_int {
        count(path);
        let fails = FAILS_FOR_OTHERS.get();
        if fails.is_some_and(|(of, thread)| of == path && *thread != current().id()) {
            return ffi::SQLITE_IOERR_WRITE;
        }
        if offset == 0 && bytes.len() < LESS_THAN_A_PAGE {
            let mut failing = FAILING.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, tried)) = failing.iter_mut().find(|(of, _)| of == path) {
                *tried += 1;
                return ffi::SQLITE_IOERR_WRITE;
            }
        }
        call()
    }

    fn lock(path: &Path, level: c_int, call: impl Call) -> c_int {
        match level == ffi::SQLITE_LOCK_EXCLUSIVE && others::is_refused(path) {
            true => ffi::SQLITE_BUSY,
            false => call(),
        }
    }

    fn sync(path: &Path, call: impl Call) -> c_int {
        count(path);
        let slow = SLOW.lock().unwrap_or_else(PoisonError::into_inner);
        let is_slow = slow.iter().any(|slow| slow == path);
        drop(slow);
        if is_slow {
            sleep(Duration::from_millis(20));
        }
        call()
    }
}

fn try_open(path: &Path, vfs: &CStr) -> rusqlite::Result<Connection> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        shim::register::<Counting>();
        onewrite::register().expect("the VFS onewrite");
    });
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    let db = Connection::open_with_flags_and_vfs(path, flags, vfs)?;
    // A connection that does not get a lock says so at once.
    db.busy_timeout(Duration::ZERO)?;
    Ok(db)
}

fn open(path: &Path) -> Connection {
    try_open(path, c"onewrite").expect("a connection")
}

fn open_to_linger(path: &Path) -> Connection {
    let db = open(path);
    sql(&db, LONG);
    db
}

fn stock(path: &Path) -> Connection {
    try_open(path, c"unix").expect("a stock connection")
}

/// All rows of a statement, or the error's code.
fn outcome(db: &Connection, statement: &str) -> String {
    rows::query(db, statement).unwrap_or_else(|e| match e.sqlite_error() {
        Some(error) => format!("error {}: {e}", error.extended_code),
        None => format!("error: {e}"),
    })
}

/// The rows of a statement that must not fail.
fn sql(db: &Connection, statement: &str) -> String {
    let found = outcome(db, statement);
    assert!(!found.starts_with("error"), "{statement}: {found}");
    found
}

fn status(db: &Connection) -> serde_json::Value {
    serde_json::from_str(&sql(db, "PRAGMA onewrite_status")).expect("JSON")
}

/// A database of one row in a mode, which the process keeps open.
fn lingering(path: &Path, mode: &str) {
    let db = open(path);
    assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
    sql(&db, LONG);
    sql(&db, "CREATE TABLE t(id INTEGER PRIMARY KEY, x)");
    sql(&db, "INSERT INTO t(x) VALUES('first')");
    drop(db);
    assert!(!is_stock(path), "{mode}: nothing keeps the database open");
}

/// Whether stock SQLite may use the database.
fn is_stock(path: &Path) -> bool {
    // Another process reads: closing a descriptor here would drop SQLite's locks.
    let out = std::process::Command::new("head")
        .args(["-c", "20"])
        .arg(path)
        .output();
    let header = out.expect("head").stdout;
    header.get(19) != Some(&onewrite::GUARD_BYTE)
}

fn companion(path: &Path, suffix: &str) -> PathBuf {
    onewrite_common::files::companion(path, suffix)
}

/// Waits until stock SQLite may use the database.
fn await_end(path: &Path) {
    let begun = Instant::now();
    while !is_stock(path) {
        assert!(begun.elapsed() < LONGEST, "the database stays guarded");
        sleep(Duration::from_millis(5));
    }
}

/// A closed database is a stock one with so many rows.
fn is_closed(path: &Path, rows: u64) {
    assert!(is_stock(path), "the database is guarded");
    let db = stock(path);
    // The end of the guard is not the last step of a close.
    db.busy_timeout(LONGEST).expect("a timeout");
    assert_eq!(sql(&db, "SELECT count(*) FROM t"), rows.to_string());
    assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
}

/// Durable writes and flushes of commits to the log.
fn durable(status: &serde_json::Value) -> u64 {
    let count = |name: &str| status[name].as_u64().expect(name);
    count("write_through") + count("flushes") + count("setup_flushes")
}

#[test]
fn a_reader_costs_no_flush_and_a_writer_one() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in MODES {
        let path = directory.path().join(mode);
        lingering(&path, mode);
        let begun = open_to_linger(&path);
        let (before, of_database) = (durable(&status(&begun)), calls(&path));
        drop(begun);
        for _ in 0..ROUNDS {
            let db = open_to_linger(&path);
            assert_eq!(sql(&db, "SELECT count(*) FROM t"), "1");
        }
        let db = open_to_linger(&path);
        assert_eq!(
            durable(&status(&db)),
            before,
            "{mode}: readers flush the log"
        );
        drop(db);
        for _ in 0..ROUNDS {
            let db = open_to_linger(&path);
            sql(&db, "INSERT INTO t(x) VALUES('next')");
        }
        let db = open_to_linger(&path);
        assert_eq!(durable(&status(&db)), before + ROUNDS, "{mode}");
        assert_eq!(
            calls(&path),
            of_database,
            "{mode}: the database was written"
        );
        drop(db);
        let db = open(&path);
        sql(&db, "PRAGMA onewrite_linger=off");
        sql(&db, "SELECT count(*) FROM t");
        drop(db);
        assert!(!companion(&path, "-shm").exists(), "the wal-index stays");
        is_closed(&path, ROUNDS + 1);
    }
}

#[test]
fn it_ends_after_its_time_and_a_close_begins_the_time_anew() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in MODES {
        let path = directory.path().join(mode);
        let db = open(&path);
        sql(&db, &format!("PRAGMA journal_mode={mode}"));
        sql(&db, "PRAGMA onewrite_linger='500ms'");
        sql(&db, "CREATE TABLE t(x)");
        drop(db);
        sleep(Duration::from_millis(300));
        let db = open(&path);
        sql(&db, "PRAGMA onewrite_linger='500ms'");
        sql(&db, "INSERT INTO t VALUES(1)");
        let closed = Instant::now();
        drop(db);
        await_end(&path);
        assert!(closed.elapsed() >= Duration::from_millis(500), "{mode}");
        // The end of the guard is not the last step.
        while companion(&path, "-shm").exists() {
            assert!(closed.elapsed() < LONGEST, "the wal-index stays");
            sleep(Duration::from_millis(5));
        }
        is_closed(&path, 1);
    }
}

/// Without it a connection finds the database locked, where it is alone and has no busy handler.
#[test]
fn no_connection_finds_the_database_busy_that_is_being_closed() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in MODES {
        let path = directory.path().join(mode);
        SLOW.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(path.clone());
        let db = open(&path);
        sql(&db, &format!("PRAGMA journal_mode={mode}"));
        sql(&db, "CREATE TABLE t(x)");
        drop(db);
        for round in 0..40 {
            let db = open(&path);
            sql(&db, "PRAGMA onewrite_linger='5ms'");
            sql(&db, "INSERT INTO t VALUES(1)");
            drop(db);
            sleep(Duration::from_millis(round % 8));
        }
        let db = open(&path);
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "40", "{mode}");
    }
}

#[test]
fn threads_open_and_close_next_to_the_thread_that_closes() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in MODES {
        let path = directory.path().join(mode);
        lingering(&path, mode);
        let work = |number: u64| {
            for round in 0..30 {
                let db = open(&path);
                db.busy_timeout(LONGEST).expect("a timeout");
                sql(
                    &db,
                    &format!("PRAGMA onewrite_linger='{}ms'", 1 + (number + round) % 4),
                );
                match number % 2 {
                    0 => sql(&db, "SELECT count(*) FROM t"),
                    _ => sql(&db, "INSERT INTO t(x) VALUES(randomblob(500))"),
                };
                drop(db);
                sleep(Duration::from_millis((number + round) % 5));
            }
        };
        std::thread::scope(|scope| {
            for number in 0..4 {
                scope.spawn(move || work(number));
            }
        });
        let db = open(&path);
        sql(&db, "PRAGMA onewrite_linger=off");
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "61", "{mode}");
        drop(db);
        is_closed(&path, 61);
    }
}

#[test]
fn the_mode_is_left_and_the_file_is_locked_exclusively_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in MODES {
        let path = directory.path().join(mode);
        lingering(&path, mode);
        let db = open(&path);
        sql(&db, LONG);
        assert_eq!(sql(&db, "PRAGMA journal_mode=delete"), "delete", "{mode}");
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "1");
        drop(db);
        is_closed(&path, 1);

        let path = directory.path().join(format!("{mode}-exclusive"));
        lingering(&path, mode);
        let db = open(&path);
        sql(&db, LONG);
        sql(&db, "PRAGMA locking_mode=exclusive");
        sql(&db, "INSERT INTO t(x) VALUES(2)");
        let other = try_open(&path, c"onewrite").expect("a connection");
        let found = outcome(&other, "SELECT count(*) FROM t");
        assert!(found.starts_with("error 5"), "{mode}: {found}");
        drop(other);
        drop(db);
        is_closed(&path, 2);
    }
}

#[test]
fn an_attached_database_stays_open_and_one_that_is_detached_is_closed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("attached");
    lingering(&path, "onewrite");
    let db = open(&directory.path().join("main"));
    sql(&db, &format!("ATTACH '{}' AS aux", path.display()));
    sql(&db, "PRAGMA aux.onewrite_linger='1000s'");
    sql(&db, "INSERT INTO aux.t(x) VALUES(2)");
    drop(db);
    assert!(!is_stock(&path));
    let db = open(&directory.path().join("main"));
    sql(&db, &format!("ATTACH '{}' AS aux", path.display()));
    sql(&db, "PRAGMA aux.onewrite_linger='1000s'");
    assert_eq!(sql(&db, "SELECT count(*) FROM aux.t"), "2");
    sql(&db, "DETACH aux");
    is_closed(&path, 2);
}

#[test]
fn direct_has_no_guard_and_does_not_linger() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = open(&path);
    sql(&db, LONG);
    sql(&db, "PRAGMA journal_mode=direct");
    sql(&db, "CREATE TABLE t(x)");
    let refused = outcome(&db, LONG);
    assert!(refused.contains("no guard"), "{refused}");
    assert_eq!(status(&db)["linger"], serde_json::Value::Null);
    drop(db);
    assert!(!companion(&path, "-wal").exists());
    is_closed(&path, 0);
}

#[test]
fn a_process_keeps_a_bounded_number_of_databases_open() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = children::printed(&mut children::child(
        &children::this_program(),
        "many",
        &directory.path().join("db"),
    ));
    assert!(text.contains("bounded"), "{text}");
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn many() {
    let path = PathBuf::from(std::env::var(children::DATABASE).expect("a database"));
    let limit = libc::rlimit {
        rlim_cur: 512,
        rlim_max: 512,
    };
    // SAFETY: of this process alone.
    assert_eq!(
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) },
        0
    );
    let mut was_refused = false;
    for number in 0..40 {
        let db = open(&path.with_extension(number.to_string()));
        sql(&db, "PRAGMA journal_mode=onewrite");
        sql(&db, LONG);
        sql(&db, "CREATE TABLE t(x)");
        let status = status(&db);
        let open = status["lingering"].as_u64().expect("a number");
        was_refused |= status["linger_why_not"].is_string();
        assert!(open <= 16, "{open} databases");
    }
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("/proc").count();
    assert!(descriptors < 256, "{descriptors} descriptors");
    assert!(
        was_refused,
        "the status does not say that there are too many"
    );
    println!("bounded");
}
