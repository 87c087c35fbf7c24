//! Checkpoints by a thread (`onewrite_background_checkpoint=on`): which calls run on whose thread. A
//! VFS between ours and SQLite's own counts what each thread does to the database.
#![allow(unsafe_code)]

mod answer;
#[path = "../process/children.rs"]
mod children;
mod processes;
#[path = "../common/rows.rs"]
mod rows;
#[path = "../common/shim.rs"]
mod shim;
mod stock;
mod unasked;

use rusqlite::ffi;
use rusqlite::{Connection, OpenFlags};
use shim::{Call, Watch};
use std::collections::HashMap;
use std::ffi::{CStr, c_int};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, Once, OnceLock, PoisonError};
use std::thread::{ThreadId, current, sleep};
use std::time::{Duration, Instant};

const MODES: [&str; 4] = ["onewrite", "waldio", "swal", "direct"];
/// Every wait ends.
const LONGEST: Duration = Duration::from_secs(240);

struct Counting;

/// Writes and flushes of each database, by thread.
static CALLS: Mutex<Option<HashMap<(PathBuf, ThreadId), u32>>> = Mutex::new(None);

fn count(path: &Path) {
    let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let of_thread = (path.to_owned(), current().id());
    *calls.get_or_insert_default().entry(of_thread).or_default() += 1;
}

/// Flushes of each database.
static SYNCS: Mutex<Option<HashMap<PathBuf, u32>>> = Mutex::new(None);

fn syncs(path: &Path) -> u32 {
    let syncs = SYNCS.lock().unwrap_or_else(PoisonError::into_inner);
    syncs
        .iter()
        .flatten()
        .find_map(|(of, count)| (of == path).then_some(*count))
        .unwrap_or(0)
}

/// Writes and flushes of the database by this thread, and by all others.
fn calls(path: &Path) -> (u32, u32) {
    let calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut found = (0, 0);
    for ((of, thread), count) in calls.iter().flatten() {
        if of == path {
            match *thread == current().id() {
                true => found.0 += count,
                false => found.1 += count,
            }
        }
    }
    found
}

/// Sends this process a signal inside the thread's pass.
static TRAP: Trap = Trap(OnceLock::new());

struct Trap(OnceLock<(PathBuf, ThreadId, AtomicU32, c_int)>);

impl Trap {
    /// At the `nth` write to the database by another thread than this one.
    fn set(&self, path: &Path, nth: u32, signal: c_int) {
        let trap = (path.to_owned(), current().id(), AtomicU32::new(nth), signal);
        self.0.set(trap).expect("one trap for a process");
    }

    fn note_write(&self, path: &Path) {
        let Some((of, but, left, signal)) = self.0.get() else {
            return;
        };
        let is_it = of == path && *but != current().id();
        if is_it && left.fetch_sub(1, Ordering::SeqCst) == 1 {
            // SAFETY: a signal for this process.
            unsafe { libc::kill(libc::getpid(), *signal) };
            // A signal may be a moment late.
            sleep(Duration::from_millis(100));
        }
    }
}

impl Watch for Counting {
    const NAME: &CStr = c"counting";
    const FILES: c_int = ffi::SQLITE_OPEN_MAIN_DB;

    fn write(path: &Path, _offset: u64, _bytes: &[u8], call: impl Call) -> c_int {
        count(path);
        TRAP.note_write(path);
        unasked::note_write(path);
        call()
    }

    fn sync(path: &Path, call: impl Call) -> c_int {
        count(path);
        let mut syncs = SYNCS.lock().unwrap_or_else(PoisonError::into_inner);
        *syncs
            .get_or_insert_default()
            .entry(path.to_owned())
            .or_default() += 1;
        drop(syncs);
        call()
    }
}

fn open(path: &Path) -> Connection {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        shim::register::<Counting>();
        onewrite::register().expect("the VFS onewrite");
    });
    let db = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), c"onewrite");
    let db = db.expect("a connection");
    // A connection that cannot get a lock reports it at once.
    db.busy_timeout(Duration::ZERO).expect("no timeout");
    db
}

/// A database with checkpoints by a thread, and a table.
fn open_in(path: &Path, mode: &str, frames: u32) -> Connection {
    let db = open(path);
    assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
    assert_eq!(sql(&db, "PRAGMA onewrite_background_checkpoint=on"), "on");
    sql(&db, &format!("PRAGMA wal_autocheckpoint={frames}"));
    sql(&db, "CREATE TABLE t(x)");
    db
}

fn sql(db: &Connection, statement: &str) -> String {
    match rows::query(db, statement) {
        Ok(rows) => rows,
        Err(e) => panic!("{statement}: {e}"),
    }
}

fn insert(db: &Connection) {
    sql(db, "INSERT INTO t VALUES(randomblob(100))");
}

fn status(db: &Connection) -> serde_json::Value {
    serde_json::from_str(&sql(db, "PRAGMA onewrite_status")).expect("JSON")
}

fn frames(db: &Connection) -> u32 {
    status(db)["frames"].as_u64().expect("a number") as u32
}

fn checkpoints(db: &Connection) -> u64 {
    let status = status(db);
    let background = &status["background"];
    assert_eq!(background["failure"], serde_json::Value::Null);
    background["checkpoints"].as_u64().expect("a number")
}

/// Waits until the thread has nothing to do.
fn await_thread(db: &Connection) {
    let begun = Instant::now();
    while status(db)["background"]["is_busy"] == true {
        assert!(begun.elapsed() < LONGEST, "it takes too long");
        sleep(Duration::from_millis(1));
    }
}

fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().canonicalize().expect("a path").join("db");
    (directory, path)
}

/// Whether stock SQLite may use the database.
fn is_stock(path: &Path) -> bool {
    std::fs::read(path).expect("the database")[19] != onewrite::GUARD_BYTE
}

#[test]
fn commits_neither_write_nor_flush_the_database_and_the_log_stays_bounded() {
    for mode in MODES {
        let (_directory, path) = directory();
        let db = open_in(&path, mode, 100);
        let (before, _) = calls(&path);
        let commits = if mode == "onewrite" { 10_000 } else { 2_000 };
        let mut restarts = 0;
        let mut last = 0;
        for number in 0..commits {
            insert(&db);
            if number % 20 == 0 {
                let now = frames(&db);
                assert!(now < 400, "{mode}: {now} frames");
                restarts += u32::from(now < last);
                last = now;
                // The thread may not get the processor for long.
                if now > 200 {
                    await_thread(&db);
                }
            }
        }
        let (own, others) = calls(&path);
        assert_eq!(own, before, "{mode}: by the commits");
        assert!(others > 0 && checkpoints(&db) > 0, "{mode}: by the thread");
        assert!(restarts >= commits / 500, "{mode}: {restarts} restarts");
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), commits.to_string());
        drop(db);
        assert!(is_stock(&path), "{mode}: the last connection detaches");
        let db = open(&path);
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), commits.to_string());
        assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
    }
}

/// Syncs of the database by `commits` of one steady writer, and the longest log.
fn steady(mode: &str, background: &str, commits: u32) -> (u32, u32) {
    const FRAMES: u32 = 1_000;
    let (_directory, path) = directory();
    let db = open_in(&path, mode, FRAMES);
    sql(
        &db,
        &format!("PRAGMA onewrite_background_checkpoint={background}"),
    );
    let before = syncs(&path);
    let mut longest = 0;
    for number in 0..commits {
        insert(&db);
        if number % 10 == 0 {
            let frames = frames(&db);
            longest = longest.max(frames);
            // A writer waits for the second pass, and not for long. The machine may be slower.
            if frames >= FRAMES + FRAMES / 3 {
                await_thread(&db);
            }
        }
    }
    await_thread(&db);
    (syncs(&path) - before, longest)
}

/// A thread that made a pass after nearly every commit flushed 30 times as often.
#[test]
fn a_steady_writer_s_database_is_flushed_hardly_more_often_by_the_thread() {
    for (mode, commits) in [("onewrite", 10_000), ("onewrite", 3_000), ("direct", 3_000)] {
        let (by_commits, _) = steady(mode, "off", commits);
        let (by_thread, longest) = steady(mode, "on", commits);
        assert!(by_commits >= 3, "{mode}: {by_commits} by commits");
        // The last pass may have been early.
        let most = by_commits * 3 / 2 + 1;
        assert!(
            (1..=most).contains(&by_thread),
            "{mode}: {by_thread} by the thread, {by_commits} by commits"
        );
        assert!(longest <= 2_000, "{mode}: {longest} frames");
        println!("{mode} {commits}: {by_thread} and {by_commits}, {longest} frames");
    }
}

/// Without it the thread would be the only one to checkpoint, and never do it.
#[test]
fn next_to_a_reader_that_stays_commits_checkpoint_by_themselves_again() {
    for mode in MODES {
        let (_directory, path) = directory();
        let db = open_in(&path, mode, 10);
        let reader = open(&path);
        sql(&reader, "BEGIN");
        sql(&reader, "SELECT count(*) FROM t");
        while frames(&db) < 39 {
            insert(&db);
        }
        await_thread(&db);
        let (before, _) = calls(&path);
        sql(&reader, "COMMIT");
        insert(&db);
        insert(&db);
        assert!(calls(&path).0 > before, "{mode}: four times as many frames");
        insert(&db);
        assert!(frames(&db) < 10, "{mode}: it starts again");
    }
}

#[test]
fn off_and_no_autocheckpoint_and_synchronous_off_mean_what_they_meant() {
    for mode in MODES {
        let (_directory, path) = directory();
        let db = open_in(&path, mode, 10);
        // SAFETY: an open connection.
        let code = unsafe { ffi::sqlite3_wal_autocheckpoint(db.handle(), 0) };
        assert_eq!(code, ffi::SQLITE_OK);
        for pragma in ["SELECT 1", "PRAGMA wal_autocheckpoint=0"] {
            sql(&db, pragma);
            let before = calls(&path);
            for _ in 0..50 {
                insert(&db);
            }
            assert_eq!(
                (calls(&path), checkpoints(&db)),
                (before, 0),
                "{mode}: none"
            );
        }
        assert!(frames(&db) > 100);
        // SAFETY: as above.
        let code = unsafe { ffi::sqlite3_wal_autocheckpoint(db.handle(), 1_000) };
        assert_eq!(code, ffi::SQLITE_OK);
        sql(&db, "PRAGMA onewrite_background_checkpoint=off");
        sql(&db, "PRAGMA wal_autocheckpoint=5");
        let (before, _) = calls(&path);
        insert(&db);
        assert!(calls(&path).0 > before, "{mode}: the commit");
        assert_eq!(checkpoints(&db), 0, "{mode}");
        sql(&db, "PRAGMA onewrite_background_checkpoint=on");
        sql(&db, "PRAGMA synchronous=off");
        for _ in 0..20 {
            insert(&db);
        }
        assert_eq!(checkpoints(&db), 0, "{mode}: at OFF the commit");
    }
}

#[test]
fn the_c_api_sets_the_threshold_too() {
    let (_directory, path) = directory();
    let db = open_in(&path, "onewrite", 0);
    // SAFETY: an open connection.
    let code = unsafe { ffi::sqlite3_wal_autocheckpoint(db.handle(), 7) };
    assert_eq!(code, ffi::SQLITE_OK);
    while frames(&db) < 7 {
        assert_eq!(checkpoints(&db), 0);
        insert(&db);
    }
    await_thread(&db);
    assert_eq!(checkpoints(&db), 1);
}

/// No commit looks for its statement where no checkpoint came before, so the first one comes unexpected.
#[test]
fn of_a_threshold_that_the_c_api_lowers_the_thread_runs_all_but_the_first_checkpoint() {
    let (_directory, path) = directory();
    let db = open_in(&path, "onewrite", 40);
    while frames(&db) < 40 {
        insert(&db);
    }
    await_thread(&db);
    insert(&db);
    assert!(frames(&db) < 10, "the log has restarted");
    let by_thread = checkpoints(&db);
    let (own, _) = calls(&path);
    // SAFETY: an open connection.
    let code = unsafe { ffi::sqlite3_wal_autocheckpoint(db.handle(), 5) };
    assert_eq!(code, ffi::SQLITE_OK);
    while frames(&db) < 4 {
        insert(&db);
    }
    assert_eq!((checkpoints(&db), calls(&path).0), (by_thread, own));
    while calls(&path).0 == own {
        assert_eq!(checkpoints(&db), by_thread);
        insert(&db);
    }
    let (own, _) = calls(&path);
    while checkpoints(&db) == by_thread {
        insert(&db);
        await_thread(&db);
    }
    assert_eq!(calls(&path).0, own, "no further one in a commit");
}

static HOOK_CALLS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn hook(
    argument: *mut std::ffi::c_void,
    db: *mut ffi::sqlite3,
    name: *const std::ffi::c_char,
    _frames: c_int,
) -> c_int {
    HOOK_CALLS.fetch_add(1, Ordering::SeqCst);
    assert_eq!(argument.addr(), 5, "the application's own argument");
    let (mut all, mut done) = (0, 0);
    // SAFETY: SQLite's own arguments.
    let code = unsafe {
        let passive = ffi::SQLITE_CHECKPOINT_PASSIVE;
        ffi::sqlite3_wal_checkpoint_v2(db, name, passive, &raw mut all, &raw mut done)
    };
    assert_eq!((code, all), (ffi::SQLITE_OK, done));
    ffi::SQLITE_OK
}

#[test]
fn the_applications_hook_is_called_and_its_checkpoints_run_where_it_asks_for_them() {
    for mode in MODES {
        let (_directory, path) = directory();
        let db = open_in(&path, mode, 5);
        // SAFETY: an open connection, and a function for it. The argument is no pointer.
        unsafe {
            ffi::sqlite3_wal_hook(db.handle(), Some(hook), std::ptr::without_provenance_mut(5))
        };
        let before = HOOK_CALLS.load(Ordering::SeqCst);
        let (own, others) = calls(&path);
        for _ in 0..50 {
            insert(&db);
        }
        assert_eq!(HOOK_CALLS.load(Ordering::SeqCst) - before, 50, "{mode}");
        assert!(
            calls(&path).0 >= own + 50 && calls(&path).1 == others,
            "{mode}"
        );
        assert_eq!(checkpoints(&db), 0, "{mode}");
    }
}

/// By pragma and by the C interface. The thread is busy when they come.
#[test]
fn a_checkpoint_that_the_application_asks_for_runs_at_once_and_is_never_refused() {
    for mode in MODES {
        let (_directory, path) = directory();
        let db = open_in(&path, mode, 1);
        for number in 0..100 {
            insert(&db);
            if number % 2 == 0 {
                let done = sql(&db, "PRAGMA wal_checkpoint(TRUNCATE)");
                assert_eq!(done, "0|0|0", "{mode}");
                continue;
            }
            let (mut all, mut done) = (0, 0);
            // SAFETY: an open connection, and room for two integers.
            let code = unsafe {
                let (all, done) = (&raw mut all, &raw mut done);
                ffi::sqlite3_wal_checkpoint_v2(db.handle(), c"main".as_ptr(), 0, all, done)
            };
            assert_eq!((code, all), (ffi::SQLITE_OK, done), "{mode}");
        }
        assert!(calls(&path).0 > 0);
    }
}

/// Its log is another one in this process than the writers'. It finds nothing left to copy, or cannot copy.
#[test]
fn a_checkpoint_of_a_connection_that_only_reads_is_never_refused() {
    for mode in MODES {
        let (_directory, path) = directory();
        let db = open_in(&path, mode, 1);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let reader = Connection::open_with_flags_and_vfs(&path, flags, c"onewrite");
        let reader = reader.expect("a connection");
        reader.busy_timeout(Duration::ZERO).expect("no timeout");
        for _ in 0..100 {
            insert(&db);
            match rows::query(&reader, "PRAGMA wal_checkpoint(PASSIVE)") {
                Ok(done) => assert!(done.starts_with("0|"), "{mode}: {done}"),
                Err(e) => assert!(e.to_string().contains("disk I/O error"), "{mode}: {e}"),
            }
        }
        assert!(calls(&path).1 > 0, "{mode}: no pass of the thread");
    }
}

#[test]
fn the_mode_is_left_and_the_file_is_locked_exclusively_next_to_a_busy_thread() {
    for mode in MODES {
        let (_directory, path) = directory();
        let mut db = open_in(&path, mode, 1);
        for _ in 0..15 {
            insert(&db);
            assert_eq!(sql(&db, "PRAGMA journal_mode=delete"), "delete");
            assert!(is_stock(&path));
            insert(&db);
            assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
            insert(&db);
            sql(&db, "VACUUM");
            assert_eq!(sql(&db, "PRAGMA locking_mode=exclusive"), "exclusive");
            insert(&db);
            assert_eq!(sql(&db, "PRAGMA locking_mode=normal"), "normal");
            insert(&db);
            drop(db);
            assert!(is_stock(&path), "{mode}: the last connection detaches");
            db = open(&path);
            sql(&db, "PRAGMA onewrite_background_checkpoint=on");
            sql(&db, "PRAGMA wal_autocheckpoint=1");
        }
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "75", "{mode}");
    }
}

/// The thread ends with the last connection: a library may be unloaded then.
#[test]
fn several_connections_open_and_close_next_to_the_thread() {
    for mode in MODES {
        let (_directory, path) = directory();
        drop(open_in(&path, mode, 1));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let db = open(&path);
                        db.busy_timeout(LONGEST).expect("a timeout");
                        sql(&db, "PRAGMA onewrite_background_checkpoint=on");
                        sql(&db, "PRAGMA wal_autocheckpoint=1");
                        insert(&db);
                        insert(&db);
                    }
                });
            }
        });
        assert!(is_stock(&path), "{mode}: the last connection detaches");
        let db = open(&path);
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "120", "{mode}");
        assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
    }
}

/// A statement that returns rows and is reset before its end commits then. SQLite calls
/// no hook, so the next checkpoint is the application's.
#[test]
fn a_checkpoint_behind_a_statement_that_was_reset_runs_at_once() {
    for mode in MODES {
        let (_directory, path) = directory();
        let db = open_in(&path, mode, 10);
        while frames(&db) < 10 {
            insert(&db);
        }
        await_thread(&db);
        for is_finished in [false, true] {
            // The log starts again.
            sql(&db, "PRAGMA wal_checkpoint(TRUNCATE)");
            sql(&db, "PRAGMA onewrite_background_checkpoint=off");
            sql(&db, "PRAGMA wal_autocheckpoint=0");
            (0..12).for_each(|_| insert(&db));
            sql(&db, "PRAGMA onewrite_background_checkpoint=on");
            sql(&db, "PRAGMA wal_autocheckpoint=10");
            let (before, _) = calls(&path);
            let insert = "INSERT INTO t VALUES(1), (2) RETURNING x";
            let mut statement = db.prepare(insert).expect("a statement");
            let mut rows = statement.query([]).expect("it runs");
            assert!(rows.next().expect("a row").is_some());
            while is_finished && rows.next().expect("its end").is_some() {}
            drop(rows);
            drop(statement);
            let (mut all, mut done) = (0, 0);
            // SAFETY: an open connection, and room for two integers.
            let code = unsafe {
                let (all, done) = (&raw mut all, &raw mut done);
                ffi::sqlite3_wal_checkpoint_v2(db.handle(), c"main".as_ptr(), 0, all, done)
            };
            assert_eq!((code, all), (ffi::SQLITE_OK, done), "{mode}");
            assert!(done >= 13, "{mode}: {done}");
            assert!(calls(&path).0 > before, "{mode}: where it was called");
        }
    }
}

#[test]
fn each_attached_database_has_a_thread_of_its_own() {
    for mode in MODES {
        let (directory, path) = directory();
        let other = directory
            .path()
            .canonicalize()
            .expect("a path")
            .join("other");
        drop(open_in(&other, mode, 10));
        let db = open_in(&path, mode, 10);
        sql(&db, &format!("ATTACH '{}' AS other", other.display()));
        sql(&db, "PRAGMA other.onewrite_background_checkpoint=on");
        let (own, _) = calls(&path);
        let (others, _) = calls(&other);
        for _ in 0..30 {
            sql(&db, "BEGIN");
            insert(&db);
            sql(&db, "INSERT INTO other.t VALUES(1)");
            sql(&db, "COMMIT");
            await_thread(&db);
        }
        let of_other = sql(&db, "PRAGMA other.onewrite_status");
        let of_other: serde_json::Value = serde_json::from_str(&of_other).expect("JSON");
        let background = &of_other["background"];
        assert!(
            background["checkpoints"].as_u64() > Some(0),
            "{mode}: {background}"
        );
        assert_eq!(background["failure"], serde_json::Value::Null, "{mode}");
        assert!(checkpoints(&db) > 0, "{mode}");
        assert_eq!(calls(&path).0, own, "{mode}: by the commits");
        assert_eq!(calls(&other).0, others, "{mode}: by the commits");
        drop(db);
        for path in [&path, &other] {
            assert!(is_stock(path), "{mode}");
            assert_eq!(sql(&open(path), "SELECT count(*) FROM t"), "30", "{mode}");
        }
    }
}

#[test]
fn a_database_in_memory_has_no_thread() {
    let db = open(Path::new(":memory:"));
    sql(&db, "PRAGMA journal_mode=direct");
    sql(&db, "PRAGMA wal_autocheckpoint=1");
    sql(&db, "CREATE TABLE t(x)");
    (0..20).for_each(|_| insert(&db));
    assert_eq!(sql(&db, "SELECT count(*) FROM t"), "20");
}

/// `SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE`: the thread's connection does not checkpoint either.
#[test]
fn a_close_without_a_checkpoint_leaves_the_log() {
    let (_directory, path) = directory();
    let db = open_in(&path, "onewrite", 10);
    db.set_db_config(
        rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE,
        true,
    )
    .expect("the setting");
    while frames(&db) < 10 {
        insert(&db);
    }
    await_thread(&db);
    let count = sql(&db, "SELECT count(*) FROM t");
    sql(&db, "PRAGMA wal_autocheckpoint=0");
    sql(&db, "CREATE TABLE u(x)");
    drop(db);
    assert!(!is_stock(&path));
    assert_eq!(sql(&open(&path), "SELECT count(*) FROM t"), count);
}
