//! SQLite's log names the file for locks; their messages stay SQLite's own. In a program of its own, because
//! the log is the process's.

use std::sync::Mutex;

use lsmvbt_sqlite::sqlite::Connection;

static LINES: Mutex<Vec<(i32, String)>> = Mutex::new(Vec::new());

#[allow(unsafe_code)]
mod log {
    use std::ffi::{CStr, c_char, c_int, c_void};

    unsafe extern "C" {
        fn sqlite3_config(option: c_int, ...) -> c_int;
    }

    const CONFIG_LOG: c_int = 16;

    unsafe extern "C" fn line(_: *mut c_void, code: c_int, text: *const c_char) {
        // SAFETY: SQLite passes a C string.
        let text = unsafe { CStr::from_ptr(text) };
        let text = text.to_string_lossy().into_owned();
        super::LINES.lock().expect("the lines").push((code, text));
    }

    /// Before SQLite's first use.
    pub fn keep() {
        let line: unsafe extern "C" fn(*mut c_void, c_int, *const c_char) = line;
        let nothing: *mut c_void = std::ptr::null_mut();
        // SAFETY: the option takes such a function and what it is called with.
        assert_eq!(unsafe { sqlite3_config(CONFIG_LOG, line, nothing) }, 0);
    }
}

fn refused(connection: &Connection, sql: &str) -> String {
    connection.execute(sql).expect_err("refused").message
}

/// The lines with this code since the last call.
fn lines(code: i32) -> Vec<String> {
    let lines = std::mem::take(&mut *LINES.lock().expect("the lines"));
    let of_code = lines.into_iter().filter(|(found, _)| *found == code);
    of_code.map(|(_, text)| text).collect()
}

#[test]
fn a_lock_that_was_not_free_is_logged_with_its_file() {
    log::keep();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("x").display().to_string();
    let open = || Connection::open(&format!("file:{path}?engine=lsmvbt")).expect("a database");
    let (a, b) = (open(), open());
    a.execute("CREATE TABLE t(x); BEGIN IMMEDIATE")
        .expect("a writer");
    assert!(lines(5).is_empty());
    b.busy_timeout(50).expect("a number");
    assert_eq!(
        refused(&b, "INSERT INTO t VALUES (1)"),
        "database is locked"
    );
    // Once, however often the busy handler has tried.
    let logged = lines(5);
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].starts_with(&format!("{path}: another connection writes")));
    assert!(logged[0].contains("busy_timeout"));
    // A snapshot that is no longer the newest: the way out is another.
    b.execute("BEGIN; SELECT * FROM t").expect("a reader");
    a.execute("INSERT INTO t VALUES (1); COMMIT")
        .expect("a commit");
    assert_eq!(
        refused(&b, "INSERT INTO t VALUES (2)"),
        "database is locked"
    );
    let logged = lines(5 | 2 << 8);
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(
        logged[0].contains("begin with BEGIN IMMEDIATE"),
        "{logged:?}"
    );
}
