//! A thread forks with a lock that the application's callback for SQLite's log needs, too, as Python does.
//! One of our threads has something to say at that moment.

use super::children::{self, printed, this_program};
use super::{FAILING, LONGEST, at_once, await_end, lingering, open, outcome, sql, status};
use rusqlite::ffi;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The application's lock.
static LOCK: Mutex<()> = Mutex::new(());
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn lines() -> MutexGuard<'static, Vec<String>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C" fn tells(_: *mut c_void, _code: c_int, text: *const c_char) {
    // SAFETY: SQLite passes a C string.
    let text = unsafe { CStr::from_ptr(text) };
    let _lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    lines().push(text.to_string_lossy().into_owned());
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
    assert!(text.contains("forked and told"), "{text}");
}

/// A child opens the database. As Python does, it makes the lock free there.
fn fork_and_open(path: &Path, lock: MutexGuard<'_, ()>) -> String {
    let (mut told, mut tells) = std::io::pipe().expect("a pipe");
    // SAFETY: the parent's other threads have no lock that the child needs.
    let child = unsafe { libc::fork() };
    drop(lock);
    if child == 0 {
        let opens = || match super::try_open(path, c"onewrite") {
            Ok(db) => outcome(&db, "SELECT count(*) FROM t"),
            Err(e) => format!("error: {e}"),
        };
        let found = std::panic::catch_unwind(opens).unwrap_or_else(|_| "a panic".to_owned());
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
    assert_eq!(found, "0", "the fork has waited for the callback");
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
