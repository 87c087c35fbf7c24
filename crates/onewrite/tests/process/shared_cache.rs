//! `sqlite3_enable_shared_cache`: connections to one database share its pages, and the mutex that
//! guards them.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Barrier, LazyLock};

use super::children::{self, printed, this_program};
use super::{is_stock, open, sql};

/// The engine opens connections itself while a connection with shared cache holds the cache's
/// mutex. It does so to convert to the mode that the URI names, and to recover.
#[test]
fn the_engines_own_connections_do_not_wait_for_a_shared_cache() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    for mode in ["waldio", "onewrite", "direct"] {
        let _ = std::fs::remove_file(&path);
        let mut child = children::child(&this_program(), "shared_cache::child", &path);
        let text = printed(child.env("ONEWRITE_TEST_MODE", mode));
        assert!(text.contains(&format!("mode={mode} sum=6")), "{text}");
        assert!(is_stock(&path));
    }
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn child() {
    let path = std::env::var(children::DATABASE).expect("a database");
    let mode = std::env::var("ONEWRITE_TEST_MODE").expect("a mode");
    // SAFETY: no connection is open yet.
    let code = unsafe { rusqlite::ffi::sqlite3_enable_shared_cache(1) };
    assert_eq!(code, rusqlite::ffi::SQLITE_OK);
    let uri = format!("file:{path}?journal_mode={mode}");
    let (one, two) = (open(uri.as_ref()), open(uri.as_ref()));
    sql(&one, "CREATE TABLE t(x)");
    sql(&one, "INSERT INTO t VALUES(1), (2), (3)");
    let mode = sql(&two, "PRAGMA journal_mode");
    println!("mode={mode} sum={}", sql(&two, "SELECT sum(x) FROM t"));
}

/// SQLite tells a file which connection uses it: of a shared cache the one that used it last. Of two that
/// close at once that may be the one that is gone when the other closes the file.
#[test]
fn connections_that_close_a_shared_cache_at_once_use_none_that_is_gone() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in ["direct", "onewrite", "swal"] {
        for others in [false, true] {
            let path = directory.path().join(format!("{mode}-{others}"));
            let one = open(&path);
            assert_eq!(sql(&one, &format!("PRAGMA journal_mode={mode}")), mode);
            sql(&one, "CREATE TABLE t(x)");
            let other = others.then_some(one);
            let mut child = children::child(&this_program(), "shared_cache::closing", &path);
            // The C library fills what is freed.
            child.env("MALLOC_PERTURB_", "90");
            child.env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");
            let text = printed(&mut child);
            assert!(text.contains("closed"), "{mode}, {others}: {text}");
            drop(other);
            assert!(is_stock(&path), "{mode}, {others}");
        }
    }
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn closing() {
    const STATIC_MAIN: c_int = 2;
    let path = std::env::var(children::DATABASE).expect("a database");
    let uri = format!("file:{path}?cache=shared");
    // SAFETY: SQLite is not in use yet, and the function lives as long as the program.
    let code = unsafe {
        let nothing = std::ptr::null_mut::<c_void>();
        rusqlite::ffi::sqlite3_config(
            rusqlite::ffi::SQLITE_CONFIG_LOG,
            fail_on_misuse as Log,
            nothing,
        )
    };
    assert_eq!(code, rusqlite::ffi::SQLITE_OK);
    onewrite::register().expect("the VFS onewrite");
    // SAFETY: SQLite's mutex lives as long as the program.
    let main = unsafe { rusqlite::ffi::sqlite3_mutex_alloc(STATIC_MAIN) };
    for _ in 0..40 {
        let (one, two) = (open(uri.as_ref()), open(uri.as_ref()));
        sql(&one, "INSERT INTO t VALUES(1)");
        sql(&two, "SELECT count(*) FROM t");
        sql(&one, "BEGIN");
        // SAFETY: the connection is open, and the function lives as long as the program.
        unsafe {
            rusqlite::ffi::sqlite3_rollback_hook(one.handle(), Some(meet), std::ptr::null_mut())
        };
        let closes = std::thread::spawn(move || drop(one));
        // A close uses the cache for the last time, and then takes this mutex. So `one` waits for it, and
        // `two` comes first.
        MEETING.wait();
        // SAFETY: this thread does not have the mutex.
        unsafe { rusqlite::ffi::sqlite3_mutex_enter(main) };
        MEETING.wait();
        std::thread::sleep(std::time::Duration::from_millis(10));
        // SAFETY: this thread has the mutex.
        unsafe { rusqlite::ffi::sqlite3_mutex_leave(main) };
        drop(two);
        closes.join().expect("it closes");
    }
    println!("closed");
}

static MEETING: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(2));

/// A close in a transaction calls it before it closes the cache.
unsafe extern "C" fn meet(_: *mut c_void) {
    MEETING.wait();
    MEETING.wait();
}

type Log = unsafe extern "C" fn(*mut c_void, c_int, *const c_char);

/// A SQLite that checks its arguments (`SQLITE_ENABLE_API_ARMOR`) says when a connection is none. Others use
/// what is there.
unsafe extern "C" fn fail_on_misuse(_: *mut c_void, code: c_int, message: *const c_char) {
    if code & 0xff == rusqlite::ffi::SQLITE_MISUSE {
        // SAFETY: SQLite's message.
        eprintln!("{}", unsafe { CStr::from_ptr(message) }.to_string_lossy());
        std::process::abort();
    }
}
