//! A thread of the application has a lock that the application's callback for SQLite's log needs, too, as
//! in Python. It forks, commits, closes or exits, and one of our threads has something to say at that
//! moment.

use super::children::{self, printed, this_program};
use super::{
    FAILING, FAILS_FOR_OTHERS, LONGEST, at_once, await_end, is_closed, lingering, open, outcome,
    sql, status,
};
use rusqlite::ffi;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{ThreadId, current, sleep};
use std::time::{Duration, Instant};

/// `exit` waits so long for our threads.
const AT_EXIT: Duration = Duration::from_secs(5);

/// The application's lock.
static LOCK: Mutex<()> = Mutex::new(());
/// The application's thread. Where it is set, only other threads need the lock, for our own messages.
static APPLICATION: OnceLock<ThreadId> = OnceLock::new();
/// Whether one of these threads has come into the callback.
static HAS_COME: AtomicBool = AtomicBool::new(false);
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn lines() -> MutexGuard<'static, Vec<String>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C" fn tells(_: *mut c_void, _code: c_int, text: *const c_char) {
    // SAFETY: SQLite passes a C string.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let needs_lock = APPLICATION.get().is_none_or(|application| {
        let is_ours = *application != current().id() && text.starts_with("onewrite:");
        HAS_COME.fetch_or(is_ours, Ordering::AcqRel);
        is_ours
    });
    let _lock = needs_lock.then(|| LOCK.lock().unwrap_or_else(PoisonError::into_inner));
    if needs_lock && EXITS.load(Ordering::Acquire) {
        println!("exits now");
        std::process::exit(0);
    }
    lines().push(text.into_owned());
}

fn database() -> PathBuf {
    let tells: unsafe extern "C" fn(*mut c_void, c_int, *const c_char) = tells;
    // SAFETY: before SQLite is used; the function stays.
    let code =
        unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_LOG, tells, ptr::null_mut::<c_void>()) };
    assert_eq!(code, ffi::SQLITE_OK);
    PathBuf::from(std::env::var(children::DATABASE).expect("a database"))
}

fn await_so(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONGEST / 4, "{what}");
        sleep(Duration::from_millis(2));
    }
}

fn await_line(part: &str) {
    let has = || lines().iter().any(|line| line.contains(part));
    await_so(&format!("no line has {part:?}: {:?}", lines()), has);
}

fn run(name: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let text = printed(&mut children::child(&this_program(), name, &path));
    assert!(text.contains("and told"), "{text}");
}

/// A child opens the database.
fn fork_and_open(path: &Path, lock: MutexGuard<'_, ()>) -> String {
    fork_and(lock, || opened(path))
}

fn opened(path: &Path) -> String {
    match super::try_open(path, c"onewrite") {
        Ok(db) => outcome(&db, "SELECT count(*) FROM sqlite_schema"),
        Err(e) => format!("error: {e}"),
    }
}

/// A child does some work. As Python does, it makes the lock free there.
fn fork_and(lock: MutexGuard<'_, ()>, work: impl FnOnce() -> String) -> String {
    let (mut told, mut tells) = std::io::pipe().expect("a pipe");
    // SAFETY: the parent's other threads have no lock that the child needs.
    let child = unsafe { libc::fork() };
    drop(lock);
    if child == 0 {
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let found = found.unwrap_or_else(|_| "a panic".to_owned());
        let _ = std::io::Write::write_all(&mut tells, found.as_bytes());
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) }
    }
    drop(tells);
    let mut found = String::new();
    std::io::Read::read_to_string(&mut told, &mut found).expect("the child's words");
    let mut ended = 0;
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut ended, 0) }, child);
    assert_eq!(ended, 0);
    found
}

/// The header cannot be written when the guard is to end, which the engine tells.
#[test]
fn a_fork_does_not_wait_for_what_a_close_tells() {
    run("callback::closes");
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn closes() {
    let path = database();
    let db = open(&path);
    sql(&db, "PRAGMA journal_mode=onewrite");
    sql(&db, "PRAGMA onewrite_linger='100ms'");
    sql(&db, "CREATE TABLE t(x)");
    let failing = || FAILING.lock().unwrap_or_else(PoisonError::into_inner);
    failing().push((path.clone(), 0));
    drop(db);
    let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    await_so("the header is not written", || failing()[0].1 > 0);
    let found = fork_and_open(&path, lock);
    assert_eq!(found, "1", "the fork has waited for the callback");
    failing().clear();
    await_line("write");
    println!("forked and told");
}

/// A checkpoint that a reader holds up is an event.
#[test]
fn the_thread_that_checkpoints_tells_where_no_fork_waits_for_it() {
    run("callback::checkpoints");
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn checkpoints() {
    let path = database();
    let (db, reader) = (open(&path), open(&path));
    sql(&db, "PRAGMA journal_mode=onewrite");
    sql(&db, "CREATE TABLE t(x)");
    sql(&reader, "BEGIN");
    sql(&reader, "SELECT count(*) FROM t");
    sql(&db, "PRAGMA onewrite_background_checkpoint=on");
    sql(&db, "PRAGMA wal_autocheckpoint=5");
    let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..6 {
        sql(&db, "INSERT INTO t VALUES(randomblob(3000))");
    }
    let is_done = || status(&db)["background"]["checkpoints"].as_u64() > Some(0);
    await_so("the thread is in a callback of the application", is_done);
    at_once::fork();
    drop(lock);
    await_line("checkpoint_held");
    println!("forked and told");
}

/// SQLite itself has a message, which nothing can delay.
#[test]
fn a_fork_waits_a_bounded_time_for_sqlites_own_message() {
    run("callback::sqlite_tells");
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn sqlite_tells() {
    let path = database();
    lingering(&path, "onewrite");
    std::fs::hard_link(&path, path.with_extension("link")).expect("a second name");
    let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let begun = Instant::now();
    let found = fork_and_open(&path, lock);
    println!("after {:?}: {found}", begun.elapsed());
    assert!(found.contains("unable to open"), "{found}");
    await_line("multiple links");
    await_end(&path);
    println!("forked and told");
}

/// A child has the descriptors of what it has inherited, so no new database gets that inode. If it closes
/// them, as a daemon does, one may. SQLite knows files by their inode, and may still count the parent's
/// locks there.
#[test]
fn a_child_that_closes_all_descriptors_is_refused_the_inode_of_an_inherited_database() {
    run("callback::makes_new_databases");
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn makes_new_databases() {
    let path = database();
    lingering(&path, "onewrite");
    std::fs::hard_link(&path, path.with_extension("link")).expect("a second name");
    let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let found = fork_and(lock, || new_databases_of_a_child(&path));
    println!("{found}");
    assert!(
        found.contains("unable to open") || found.starts_with("SKIPPED"),
        "{found}"
    );
    println!("forked and told");
}

fn inode(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).expect("a file").ino()
}

fn new_databases_of_a_child(path: &Path) -> String {
    let before = inode(path);
    for name in [path, &path.with_extension("link")] {
        std::fs::remove_file(name).expect("removed");
    }
    for number in 0..32 {
        let new = path.with_extension(number.to_string());
        let db = open(&new);
        assert_eq!(sql(&db, "PRAGMA journal_mode=onewrite"), "onewrite");
        sql(&db, "CREATE TABLE t(x)");
        assert_ne!(inode(&new), before, "it has the inode of an open file");
    }
    for number in 3..1024 {
        let name = std::fs::read_link(format!("/proc/self/fd/{number}"));
        if name.is_ok_and(|name| name.to_string_lossy().ends_with("/db (deleted)")) {
            // SAFETY: what has it open is never used again.
            unsafe { libc::close(number) };
        }
    }
    let names = (32..1000).map(|number| path.with_extension(number.to_string()));
    let again = names.into_iter().find(|new| {
        std::fs::File::create_new(new).expect("a file");
        inode(new) == before
    });
    let Some(again) = again else {
        return "SKIPPED: this file system does not use an inode again".to_owned();
    };
    opened(&again)
}

/// The application's thread has its lock, and a thread of the engine waits for it in the callback. A
/// reader holds the checkpoints of `db` up, which is an event.
fn with_a_thread_in_the_callback(
    path: &Path,
    threshold: u32,
) -> (
    rusqlite::Connection,
    rusqlite::Connection,
    MutexGuard<'static, ()>,
) {
    APPLICATION.get_or_init(|| current().id());
    let (db, reader) = (open(path), open(path));
    sql(&db, "PRAGMA journal_mode=onewrite");
    sql(&db, "CREATE TABLE t(x)");
    sql(&reader, "BEGIN");
    sql(&reader, "SELECT count(*) FROM t");
    sql(&db, "PRAGMA onewrite_background_checkpoint=on");
    sql(&db, &format!("PRAGMA wal_autocheckpoint={threshold}"));
    let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..2 * threshold {
        sql(&db, "INSERT INTO t VALUES('a row')");
        if HAS_COME.load(Ordering::Acquire) {
            break;
        }
    }
    await_so("no thread comes into the callback", || {
        HAS_COME.load(Ordering::Acquire)
    });
    (db, reader, lock)
}

/// Each pass fails, so its thread ends. After some commits the next one starts another.
#[test]
fn no_commit_waits_for_what_a_thread_that_has_failed_tells() {
    run("callback::commits_next_to_failing_passes");
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn commits_next_to_failing_passes() {
    let path = database();
    FAILS_FOR_OTHERS
        .set((path.clone(), current().id()))
        .expect("set once");
    let (db, reader, lock) = with_a_thread_in_the_callback(&path, 50);
    let failure = || status(&db)["background"]["failure"].is_string();
    await_so("the pass does not fail", failure);
    for _ in 0..40 {
        sql(&db, "INSERT INTO t VALUES('a row')");
    }
    drop(lock);
    await_line("checkpoint_held");
    drop((reader, db));
    println!("committed and told");
}

#[test]
fn no_close_waits_for_what_the_thread_that_checkpoints_tells() {
    run("callback::closes_next_to_the_thread");
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn closes_next_to_the_thread() {
    let path = database();
    let (db, reader, lock) = with_a_thread_in_the_callback(&path, 5);
    let rows = sql(&db, "SELECT count(*) FROM t").parse();
    drop(reader);
    let begun = Instant::now();
    drop(db);
    let took = begun.elapsed();
    assert!(took < LONGEST / 4, "it has waited for {took:?}");
    is_closed(&path, rows.expect("a number"));
    assert!(lines().iter().all(|line| !line.contains("checkpoint_held")));
    drop(lock);
    await_line("checkpoint_held");
    println!("closed and told");
}

/// Where nothing keeps the callback from it, the message is there when the database is closed.
#[test]
fn a_close_waits_for_messages_that_can_be_written() {
    run("callback::closes_behind_the_message");
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn closes_behind_the_message() {
    let path = database();
    let (db, reader, lock) = with_a_thread_in_the_callback(&path, 5);
    let lets_go = std::thread::scope(|scope| {
        let closes = scope.spawn(|| drop((reader, db)));
        sleep(Duration::from_millis(50));
        drop(lock);
        closes.join()
    });
    lets_go.expect("no panic");
    assert!(lines().iter().any(|line| line.contains("checkpoint_held")));
    println!("closed and told");
}

/// Set where the callback exits by itself.
static EXITS: AtomicBool = AtomicBool::new(false);

/// The callback may give up, as a program does that cannot write its log any more.
#[test]
fn a_callback_that_exits_does_not_wait_for_itself() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let begun = Instant::now();
    let text = printed(&mut children::child(
        &this_program(),
        "callback::exits_in_the_callback",
        &path,
    ));
    assert!(text.contains("exits now"), "{text}");
    let took = begun.elapsed();
    assert!(took < AT_EXIT, "it has waited for itself: {took:?}");
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn exits_in_the_callback() {
    let path = database();
    APPLICATION.get_or_init(|| current().id());
    lingering(&path.with_extension("other"), "onewrite");
    EXITS.store(true, Ordering::Release);
    let (_db, _reader, lock) = with_a_thread_in_the_callback(&path, 5);
    drop(lock);
    sleep(LONGEST);
    unreachable!("the callback exits");
}

/// The thread that closes what lingers tells why a guard stays, and another database is still open.
#[test]
fn no_exit_waits_long_for_what_a_thread_tells() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let begun = Instant::now();
    let text = printed(&mut children::child(
        &this_program(),
        "callback::exits",
        &path,
    ));
    assert!(text.contains("exits now"), "{text}");
    assert!(begun.elapsed() < LONGEST / 4);
    let other = path.with_extension("other");
    assert!(super::is_stock(&other), "it was not closed");
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn exits() {
    let path = database();
    APPLICATION.get_or_init(|| current().id());
    lingering(&path.with_extension("other"), "onewrite");
    let db = open(&path);
    sql(&db, "PRAGMA journal_mode=onewrite");
    sql(&db, "PRAGMA onewrite_linger='100ms'");
    sql(&db, "CREATE TABLE t(x)");
    let failing = || FAILING.lock().unwrap_or_else(PoisonError::into_inner);
    failing().push((path.clone(), 0));
    let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    drop(db);
    await_so("no thread comes into the callback", || {
        HAS_COME.load(Ordering::Acquire)
    });
    println!("exits now");
    std::mem::forget(lock);
    std::process::exit(0);
}
