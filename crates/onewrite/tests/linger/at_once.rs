//! A database that lingers ends at the moment at which another connection closes it. Neither is the
//! last one then, as SQLite sees it.

use super::children::{self, printed, this_program};
use super::{MODES, ROUNDS, await_end, is_closed, is_stock, lingering, open, open_to_linger, sql};
use rusqlite::ffi;
use std::ffi::{CStr, c_char, c_int};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, Once, PoisonError};

/// SHARED locks, each until the next connection opens the database.
static HELD: Mutex<Vec<(PathBuf, File)>> = Mutex::new(Vec::new());

unsafe extern "C" fn let_go(
    db: *mut ffi::sqlite3,
    _message: *mut *mut c_char,
    _api: *const ffi::sqlite3_api_routines,
) -> c_int {
    // SAFETY: SQLite passes an open connection, whose name stays.
    let name = unsafe { CStr::from_ptr(ffi::sqlite3_db_filename(db, c"main".as_ptr())) };
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    held.retain(|(path, _)| path.as_os_str().as_bytes() != name.to_bytes());
    ffi::SQLITE_OK
}

/// Takes SHARED, as a connection of another process has it that closes: it has released the log, and
/// not yet the database.
fn hold_shared(path: &Path) {
    static ONCE: Once = Once::new();
    // SAFETY: the function stays.
    ONCE.call_once(|| unsafe {
        ffi::sqlite3_auto_extension(Some(let_go));
    });
    let file = File::open(path).expect("a database");
    let shared = libc::flock {
        l_type: libc::F_RDLCK as _,
        l_whence: libc::SEEK_SET as _,
        l_start: 0x4000_0002,
        l_len: 510,
        l_pid: 0,
    };
    // SAFETY: an open file, and a lock.
    let code = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const shared) };
    assert_eq!(code, 0, "SHARED");
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    held.push((path.to_owned(), file));
}

#[test]
fn a_database_that_another_process_closes_just_then_is_a_stock_one() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in MODES {
        let path = directory.path().join(mode);
        let db = open(&path);
        assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
        sql(&db, "PRAGMA onewrite_linger='300ms'");
        sql(&db, "CREATE TABLE t(x)");
        drop(db);
        hold_shared(&path);
        await_end(&path);
        is_closed(&path, 0);
    }
}

/// Our own connection, which ends the guard then, has the settings of the environment.
#[test]
fn a_close_without_the_setting_ends_the_guard_whatever_the_environment_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let mut child = children::child(
        &this_program(),
        "at_once::closes_without_the_setting",
        &path,
    );
    let text = printed(child.env("ONEWRITE_LINGER", "1000s"));
    assert!(text.contains("closed in each mode"), "{text}");
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn closes_without_the_setting() {
    let path = PathBuf::from(std::env::var(children::DATABASE).expect("a database"));
    for mode in MODES {
        let path = path.with_extension(mode);
        let db = open(&path);
        sql(&db, "PRAGMA onewrite_linger=off");
        assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
        sql(&db, "CREATE TABLE t(x)");
        hold_shared(&path);
        drop(db);
        assert!(is_stock(&path), "{mode}: it is guarded");
    }
    println!("closed in each mode");
}

/// A fork ends what lingers.
#[test]
fn a_connection_closes_while_another_thread_forks() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let text = printed(&mut children::child(
        &this_program(),
        "at_once::closes_and_forks",
        &path,
    ));
    assert!(text.contains("closed each time"), "{text}");
}

/// Makes a child that only ends.
pub fn fork() {
    // SAFETY: the child only ends. The parent waits for it.
    unsafe {
        match libc::fork() {
            0 => libc::_exit(0),
            child => assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child),
        }
    }
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn closes_and_forks() {
    let path = PathBuf::from(std::env::var(children::DATABASE).expect("a database"));
    for mode in MODES {
        let path = path.with_extension(mode);
        lingering(&path, mode);
        for round in 0..ROUNDS {
            let db = open_to_linger(&path);
            assert_eq!(sql(&db, "SELECT count(*) FROM t"), "1");
            let (ready, is_closed) = (Barrier::new(2), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    ready.wait();
                    while !is_closed.load(Ordering::Acquire) {
                        fork();
                    }
                });
                ready.wait();
                drop(db);
                is_closed.store(true, Ordering::Release);
            });
            fork();
            assert!(is_stock(&path), "{mode}: it is guarded after round {round}");
        }
    }
    println!("closed each time");
}
