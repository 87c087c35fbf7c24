//! Applications that have not asked for a thread, and do what SQLite lets them do without one. The rules
//! are BG16 to BG19 of `docs/durability.md`.

use super::children::{self, printed, this_program};
use super::{LONGEST, MODES, await_thread, calls, checkpoints, directory, frames, insert};
use super::{open, open_in, sql, status};
use rusqlite::{Connection, OpenFlags, ffi};
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{ThreadId, current, sleep};
use std::time::{Duration, Instant};

fn database() -> PathBuf {
    PathBuf::from(std::env::var(children::DATABASE).expect("a database"))
}

/// Runs a part of a test in a process of its own, which says that it is done.
fn in_a_process(name: &str, path: &Path) {
    let text = printed(&mut children::child(&this_program(), name, path));
    assert!(text.contains("it is done"), "{text}");
}

/// The threads of this process that checkpoint.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads");
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    tasks
        .filter_map(|task| name(task.ok()?).ok())
        .filter(|name| name.trim_end() == "onewrite-ckpt")
        .count()
}

#[test]
fn by_default_a_thread_checkpoints_where_pages_are_compressed() {
    let (_directory, path) = directory();
    in_a_process("unasked::asks_for_nothing", &path);
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn asks_for_nothing() {
    onewrite::register().expect("the VFS onewrite");
    for mode in MODES {
        let path = database().with_extension(mode);
        let db = Connection::open_with_flags_and_vfs(&path, OpenFlags::default(), c"onewrite");
        let db = db.expect("a connection");
        assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
        assert_eq!(sql(&db, "PRAGMA onewrite_background_checkpoint"), "auto");
        sql(&db, "PRAGMA wal_autocheckpoint=100");
        sql(&db, "CREATE TABLE t(x)");
        (0..200).for_each(|_| insert(&db));
        await_thread(&db);
        // The logs of the other modes have no room for what comes during a pass.
        let is_threads = ["onewrite", "swal"].contains(&mode);
        let expected = if is_threads { "on" } else { "off" };
        assert_eq!(status(&db)["background_checkpoint"], expected, "{mode}");
        assert_eq!(checkpoints(&db) > 0, is_threads, "{mode}");
    }
    println!("it is done");
}

/// An application's own VFS may expect all calls from one thread.
#[test]
fn by_default_no_thread_calls_another_vfs_than_sqlites() {
    for mode in MODES {
        let (_directory, path) = directory();
        let db = open_in(&path, mode, 10);
        sql(&db, "PRAGMA onewrite_background_checkpoint=auto");
        let (own, others) = calls(&path);
        (0..30).for_each(|_| insert(&db));
        assert_eq!(status(&db)["background_checkpoint"], "off", "{mode}");
        assert_eq!(calls(&path).1, others, "{mode}");
        assert!(calls(&path).0 > own, "{mode}: the commits");
    }
}

/// It would have to wait for the thread when it closes, and the log would get no checkpoint.
#[test]
fn a_process_of_one_commit_starts_no_thread() {
    for mode in MODES {
        let (_directory, path) = directory();
        let db = open_in(&path, mode, 0);
        while frames(&db) < 1_100 {
            insert(&db);
        }
        in_a_process("unasked::commits_once", &path);
        insert(&db);
        assert!(frames(&db) < 100, "{mode}: the log has restarted");
    }
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn commits_once() {
    let path = database();
    let db = open(&path);
    sql(&db, "PRAGMA onewrite_background_checkpoint=on");
    let (before, _) = calls(&path);
    insert(&db);
    let (own, others) = calls(&path);
    assert!(own > before, "the commit checkpoints");
    assert_eq!((others, threads()), (0, 0));
    drop(db);
    println!("it is done");
}

/// Next to another process the close does not checkpoint, so the thread does what it was left.
#[test]
fn a_close_leaves_no_pass_undone() {
    for mode in MODES {
        let (_directory, path) = directory();
        let db = open_in(&path, mode, 0);
        in_a_process("unasked::closes_at_once", &path);
        insert(&db);
        let frames = frames(&db);
        assert!(
            frames < 50,
            "{mode}: {frames} frames, the log has restarted"
        );
    }
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn closes_at_once() {
    let db = open(&database());
    sql(&db, "PRAGMA onewrite_background_checkpoint=on");
    sql(&db, "PRAGMA wal_autocheckpoint=100");
    while frames(&db) < 102 {
        insert(&db);
    }
    drop(db);
    println!("it is done");
}

#[test]
fn a_process_with_many_databases_has_a_bounded_number_of_threads() {
    let (_directory, path) = directory();
    in_a_process("unasked::has_many_databases", &path);
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn has_many_databases() {
    let path = |number: u32| database().with_extension(number.to_string());
    let databases: Vec<_> = (0..40)
        .map(|number| open_in(&path(number), "onewrite", 4))
        .collect();
    for round in 0..100 {
        for db in &databases {
            insert(db);
            let frames = frames(db);
            assert!(frames < 60, "round {round}: {frames} frames");
        }
        let threads = threads();
        assert!(threads <= 16, "round {round}: {threads} threads");
    }
    assert!(threads() > 0);
    drop(databases);
    println!("it is done");
}

/// The thread of the application.
static APPLICATION: OnceLock<ThreadId> = OnceLock::new();
/// The connections that the application's thread has opened.
static OPENED: AtomicU32 = AtomicU32::new(0);
/// Whether a connection of another thread is in [`writes`].
static WRITES: AtomicBool = AtomicBool::new(false);

/// Calls this function for every connection that is opened from now on.
fn for_each_connection(
    function: unsafe extern "C" fn(
        *mut ffi::sqlite3,
        *mut *mut c_char,
        *const ffi::sqlite3_api_routines,
    ) -> c_int,
) {
    APPLICATION.get_or_init(|| current().id());
    // SAFETY: the function stays.
    unsafe { ffi::sqlite3_auto_extension(Some(function)) };
}

fn exec(db: *mut ffi::sqlite3, sql: &CStr) -> c_int {
    let (null, none) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: an open connection, and no callback.
    unsafe { ffi::sqlite3_exec(db, sql.as_ptr(), None, null, none) }
}

unsafe extern "C" fn counts(
    _db: *mut ffi::sqlite3,
    _message: *mut *mut c_char,
    _api: *const ffi::sqlite3_api_routines,
) -> c_int {
    let is_applications = APPLICATION.get() == Some(&current().id());
    OPENED.fetch_add(u32::from(is_applications), Ordering::SeqCst);
    ffi::SQLITE_OK
}

unsafe extern "C" fn writes(
    db: *mut ffi::sqlite3,
    _message: *mut *mut c_char,
    _api: *const ffi::sqlite3_api_routines,
) -> c_int {
    if APPLICATION.get() != Some(&current().id()) {
        let code = exec(db, c"BEGIN IMMEDIATE");
        WRITES.store(true, Ordering::SeqCst);
        sleep(Duration::from_millis(200));
        exec(db, c"COMMIT");
        return code;
    }
    ffi::SQLITE_OK
}

/// SQLite asks for this lock where a reader finds a writer that is just publishing a commit. Here an
/// automatic extension does.
#[test]
fn the_connection_of_the_thread_never_has_the_write_lock() {
    let (_directory, path) = directory();
    in_a_process("unasked::has_an_extension_that_writes", &path);
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn has_an_extension_that_writes() {
    for mode in MODES {
        let path = database().with_extension(mode);
        let db = open_in(&path, mode, 0);
        (0..10).for_each(|_| insert(&db));
        for_each_connection(writes);
        WRITES.store(false, Ordering::SeqCst);
        sql(&db, "PRAGMA wal_autocheckpoint=5");
        insert(&db);
        let begun = Instant::now();
        while !WRITES.load(Ordering::SeqCst) {
            assert!(begun.elapsed() < LONGEST, "it takes too long");
            sleep(Duration::from_millis(1));
        }
        // There is no busy handler.
        insert(&db);
        drop(db);
        let db = open(&path);
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "12", "{mode}");
    }
    println!("it is done");
}

/// A close waits so long for a thread that opens its connection.
const TO_OPEN: Duration = Duration::from_secs(5);

/// The result of the statement of [`writes_patiently`].
static CODE: AtomicI32 = AtomicI32::new(-1);

/// It can wait for the write lock as long as the application does.
unsafe extern "C" fn writes_patiently(
    db: *mut ffi::sqlite3,
    _message: *mut *mut c_char,
    _api: *const ffi::sqlite3_api_routines,
) -> c_int {
    if APPLICATION.get() != Some(&current().id()) {
        exec(db, c"PRAGMA busy_timeout=60000");
        WRITES.store(true, Ordering::SeqCst);
        CODE.store(exec(db, c"INSERT INTO t VALUES(7)"), Ordering::SeqCst);
        // SQLite opens no connection whose last statement failed.
        exec(db, c"SELECT 1");
    }
    ffi::SQLITE_OK
}

/// It holds neither a checkpoint nor a close.
#[test]
fn an_extension_that_writes_in_the_thread_is_refused_at_once() {
    let (_directory, path) = directory();
    in_a_process("unasked::has_an_extension_that_writes_patiently", &path);
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn has_an_extension_that_writes_patiently() {
    for mode in MODES {
        let path = database().with_extension(mode);
        let db = open_in(&path, mode, 0);
        (0..10).for_each(|_| insert(&db));
        for_each_connection(writes_patiently);
        WRITES.store(false, Ordering::SeqCst);
        CODE.store(-1, Ordering::SeqCst);
        sql(&db, "PRAGMA wal_autocheckpoint=5");
        insert(&db);
        let begun = Instant::now();
        while !WRITES.load(Ordering::SeqCst) {
            assert!(begun.elapsed() < LONGEST, "it takes too long");
            sleep(Duration::from_millis(1));
        }
        let begun = Instant::now();
        let (code, ..) = checkpoint(&db);
        assert_eq!(code, ffi::SQLITE_OK);
        assert!(
            begun.elapsed() < TO_OPEN / 2,
            "{mode}: {:?}",
            begun.elapsed()
        );
        // The thread checkpoints all the same.
        (0..20).for_each(|_| insert(&db));
        await_thread(&db);
        assert!(checkpoints(&db) > 0, "{mode}: {}", status(&db));
        drop(db);
        assert!(begun.elapsed() < TO_OPEN, "{mode}: {:?}", begun.elapsed());
        assert_eq!(CODE.load(Ordering::SeqCst), ffi::SQLITE_READONLY, "{mode}");
        let db = open(&path);
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "31", "{mode}");
    }
    println!("it is done");
}

/// The extension needs it, like an interpreter's lock.
static LOCK: Mutex<()> = Mutex::new(());

unsafe extern "C" fn needs_the_lock(
    _db: *mut ffi::sqlite3,
    _message: *mut *mut c_char,
    _api: *const ffi::sqlite3_api_routines,
) -> c_int {
    if APPLICATION.get() != Some(&current().id()) {
        drop(LOCK.lock().unwrap_or_else(PoisonError::into_inner));
    }
    ffi::SQLITE_OK
}

/// The extension runs in the thread, which a close waits for.
#[test]
fn no_close_waits_for_ever_for_an_extension_of_the_application() {
    let (_directory, path) = directory();
    in_a_process("unasked::has_an_extension_that_needs_a_lock", &path);
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn has_an_extension_that_needs_a_lock() {
    let path = database();
    let db = open_in(&path, "onewrite", 5);
    for_each_connection(needs_the_lock);
    let locked = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    (0..10).for_each(|_| insert(&db));
    let (code, ..) = checkpoint(&db);
    assert_eq!(code, ffi::SQLITE_OK);
    drop(db);
    drop(locked);
    let db = open(&path);
    assert_eq!(sql(&db, "SELECT count(*) FROM t"), "10");
    println!("it is done");
}

/// An automatic extension of the application would run inside its commit.
#[test]
fn a_commit_opens_no_connection_in_its_own_thread() {
    let (_directory, path) = directory();
    in_a_process("unasked::counts_its_connections", &path);
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn counts_its_connections() {
    let path = database();
    drop(open_in(&path, "onewrite", 0));
    for_each_connection(counts);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_FULL_MUTEX;
    let db = Connection::open_with_flags_and_vfs(&path, flags, c"onewrite").expect("a connection");
    sql(&db, "PRAGMA onewrite_background_checkpoint=on");
    sql(&db, "PRAGMA wal_autocheckpoint=5");
    insert(&db);
    let before = OPENED.load(Ordering::SeqCst);
    (0..20).for_each(|_| insert(&db));
    await_thread(&db);
    assert!(checkpoints(&db) > 0);
    assert_eq!(OPENED.load(Ordering::SeqCst), before);
    println!("it is done");
}

/// A checkpoint by the C interface, which must not be refused: what it has copied of how much.
fn checkpoint(db: &Connection) -> (c_int, c_int, c_int) {
    let (mut all, mut done) = (0, 0);
    // SAFETY: an open connection, and room for two integers.
    let code = unsafe {
        let (all, done) = (&raw mut all, &raw mut done);
        ffi::sqlite3_wal_checkpoint_v2(db.handle(), c"main".as_ptr(), 0, all, done)
    };
    (code, all, done)
}

/// SQLite calls no hook behind these commits. So the checkpoint that follows is the application's.
#[test]
fn a_checkpoint_behind_a_blob_runs_at_once() {
    for mode in MODES {
        let (_directory, path) = directory();
        let db = open_in(&path, mode, 0);
        sql(&db, "INSERT INTO t(rowid, x) VALUES(1, zeroblob(20000))");
        (0..10).for_each(|_| insert(&db));
        sql(&db, "PRAGMA wal_autocheckpoint=10");
        let mut blob = std::ptr::null_mut();
        // SAFETY: an open connection; the blob is closed.
        unsafe {
            let (name, table, column) = (c"main".as_ptr(), c"t".as_ptr(), c"x".as_ptr());
            let code =
                ffi::sqlite3_blob_open(db.handle(), name, table, column, 1, 1, &raw mut blob);
            assert_eq!(code, ffi::SQLITE_OK);
            let bytes = c"changed";
            let code = ffi::sqlite3_blob_write(blob, bytes.as_ptr().cast(), 7, 0);
            assert_eq!(code, ffi::SQLITE_OK);
            assert_eq!(ffi::sqlite3_blob_close(blob), ffi::SQLITE_OK);
        }
        // It may get the address of the blob's statement.
        let _held = db.prepare("SELECT x FROM t WHERE rowid=?1").expect("one");
        let (before, _) = calls(&path);
        let (code, all, done) = checkpoint(&db);
        assert_eq!((code, all), (ffi::SQLITE_OK, done), "{mode}");
        assert!(calls(&path).0 > before, "{mode}: where it was called");
    }
}

#[test]
fn a_checkpoint_behind_a_backup_runs_at_once() {
    for mode in ["onewrite", "direct"] {
        let (_directory, path) = directory();
        let source = Connection::open_in_memory().expect("a connection");
        sql(&source, "CREATE TABLE t(x)");
        (0..50).for_each(|_| {
            sql(&source, "INSERT INTO t VALUES(randomblob(3000))");
        });
        let db = open_in(&path, mode, 30);
        // SAFETY: two open connections; the backup is finished.
        unsafe {
            let main = c"main".as_ptr();
            let backup = ffi::sqlite3_backup_init(db.handle(), main, source.handle(), main);
            assert!(!backup.is_null());
            assert_eq!(ffi::sqlite3_backup_step(backup, -1), ffi::SQLITE_DONE);
            assert_eq!(ffi::sqlite3_backup_finish(backup), ffi::SQLITE_OK);
        }
        let (before, _) = calls(&path);
        let (code, all, done) = checkpoint(&db);
        assert_eq!((code, all), (ffi::SQLITE_OK, done), "{mode}");
        assert!(done > 40, "{mode}: {done}");
        assert!(calls(&path).0 > before, "{mode}: where it was called");
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "50", "{mode}");
    }
}

/// The handlers of `exit` that follow may end what SQLite needs.
#[test]
fn an_exit_waits_until_the_thread_is_out_of_sqlite() {
    let (_directory, path) = directory();
    in_a_process("unasked::exits_in_a_pass", &path);
}

/// Whether the thread is in a write, which takes long.
static IN_WRITE: AtomicBool = AtomicBool::new(false);

/// Called by the VFS underneath for each write to a database.
pub fn note_write(path: &Path) {
    let is_meant = path.extension().is_some_and(|it| it == "slow");
    let is_applications = APPLICATION.get() == Some(&current().id());
    if is_meant && !is_applications {
        IN_WRITE.store(true, Ordering::SeqCst);
        sleep(Duration::from_millis(50));
        IN_WRITE.store(false, Ordering::SeqCst);
    }
}

extern "C" fn ends_sqlite() {
    if IN_WRITE.load(Ordering::SeqCst) {
        // SAFETY: ends the process.
        unsafe { libc::_exit(3) }
    }
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn exits_in_a_pass() {
    // SAFETY: a function of this program.
    assert_eq!(unsafe { libc::atexit(ends_sqlite) }, 0);
    APPLICATION.get_or_init(|| current().id());
    let db = open_in(&database().with_extension("slow"), "onewrite", 10);
    sql(&db, "INSERT INTO t VALUES(zeroblob(60000))");
    let begun = Instant::now();
    while !IN_WRITE.load(Ordering::SeqCst) {
        assert!(begun.elapsed() < LONGEST, "it takes too long");
        sleep(Duration::from_millis(1));
    }
    println!("it is done");
    std::process::exit(0);
}

/// The answer of another database to an extension, in another thread than the application's.
static OTHER: Mutex<Option<(c_int, String)>> = Mutex::new(None);
static OTHER_PATH: OnceLock<CString> = OnceLock::new();

unsafe extern "C" fn writes_another(
    _db: *mut ffi::sqlite3,
    _message: *mut *mut c_char,
    _api: *const ffi::sqlite3_api_routines,
) -> c_int {
    static INSIDE: AtomicBool = AtomicBool::new(false);
    if APPLICATION.get() == Some(&current().id()) || INSIDE.swap(true, Ordering::SeqCst) {
        return ffi::SQLITE_OK;
    }
    let path = OTHER_PATH.get().expect("a path");
    let flags = ffi::SQLITE_OPEN_READWRITE;
    let mut other = std::ptr::null_mut();
    // SAFETY: a connection that is closed.
    let found = unsafe {
        let opened =
            ffi::sqlite3_open_v2(path.as_ptr(), &raw mut other, flags, c"onewrite".as_ptr());
        let code = match opened {
            ffi::SQLITE_OK => exec(other, c"INSERT INTO t VALUES(7)"),
            refused => refused,
        };
        let why = CStr::from_ptr(ffi::sqlite3_errmsg(other));
        let why = why.to_string_lossy().into_owned();
        ffi::sqlite3_close(other);
        (code, why)
    };
    *OTHER.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    INSIDE.store(false, Ordering::SeqCst);
    ffi::SQLITE_OK
}

/// The thread's own database is the only one that its connections may not write.
#[test]
fn an_extension_writes_another_database_in_the_thread() {
    let (_directory, path) = directory();
    in_a_process("unasked::has_an_extension_that_writes_another", &path);
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn has_an_extension_that_writes_another() {
    let path = database();
    let other = path.with_extension("other");
    let name = CString::new(other.to_str().expect("UTF-8")).expect("a path");
    OTHER_PATH.set(name).expect("once");
    drop(open_in(&other, "onewrite", 0));
    let db = open_in(&path, "onewrite", 5);
    for_each_connection(writes_another);
    (0..30).for_each(|_| insert(&db));
    await_thread(&db);
    let found = OTHER.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (code, why) = found.expect("the thread had a connection");
    assert_eq!(code, ffi::SQLITE_OK, "{why}");
    drop(db);
    println!("it is done");
}
