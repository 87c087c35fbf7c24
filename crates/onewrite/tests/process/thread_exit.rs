//! Connections that a thread closes while it ends, after the engine's thread-local data are
//! destroyed.

use super::{is_stock, open, sql};
use rusqlite::Connection;
use std::cell::RefCell;
use std::ffi::c_void;
use std::path::Path;
use std::thread;

thread_local! {
    static KEPT: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// A connection that commits once more before it is closed.
struct Last(Connection);

impl Drop for Last {
    fn drop(&mut self) {
        sql(&self.0, "UPDATE t SET x = 'last' WHERE id = 1");
    }
}

/// Rows of more than half a page each. Their pages exceed the memory that the engine keeps, so a
/// checkpoint reads the log.
const ROWS: u32 = 1_600;

/// Settings that cover each way in which a checkpoint reads pages.
const WAYS: [(&str, &str, &str); 4] = [
    ("onewrite", "lz4", "on"),
    ("onewrite", "zstd", "on"),
    ("swal", "zstd", "off"),
    ("waldio", "", ""),
];

/// Two connections that take turns, so that group commit has company, and pages exist only in the
/// log.
fn used(path: &Path, (mode, compression, differences): (&str, &str, &str)) -> [Connection; 2] {
    let connections = [open(path), open(path)];
    for db in &connections {
        if !compression.is_empty() {
            sql(db, &format!("PRAGMA onewrite_compression={compression}"));
            sql(db, &format!("PRAGMA onewrite_differences={differences}"));
        }
        sql(db, "PRAGMA wal_autocheckpoint=0");
    }
    assert_eq!(
        sql(&connections[0], &format!("PRAGMA journal_mode={mode}")),
        mode
    );
    sql(&connections[0], "CREATE TABLE t(id INTEGER PRIMARY KEY, x)");
    let rows = format!(
        "WITH c(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM c WHERE i < {ROWS}) \
         INSERT INTO t SELECT i, hex(randomblob(1200)) FROM c"
    );
    sql(&connections[0], &rows);
    for i in 0..10 {
        let db = &connections[i % 2];
        sql(db, "UPDATE t SET x = 'early' WHERE id = 1");
    }
    connections
}

fn is_closed(path: &Path, way: (&str, &str, &str)) {
    assert!(
        is_stock(path),
        "{way:?}: its last close did not end the guard"
    );
    let stock = Connection::open_with_flags_and_vfs(path, Default::default(), c"unix");
    let stock = stock.expect("stock SQLite");
    let count = sql(&stock, "SELECT count(*) FROM t");
    assert_eq!(count, ROWS.to_string(), "{way:?}");
    let last = sql(&stock, "SELECT x FROM t WHERE id = 1");
    assert_eq!(last, "last", "{way:?}");
    assert_eq!(sql(&stock, "PRAGMA integrity_check"), "ok", "{way:?}");
}

/// Rust destroys a thread's data in the reverse order of first use.
#[test]
fn a_connection_that_is_dropped_after_our_thread_locals_closes_the_database() {
    for way in WAYS {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        // A scope would not wait for the destructors.
        let thread = thread::spawn({
            let path = path.clone();
            move || {
                KEPT.with_borrow(|kept| assert!(kept.is_none()));
                let [one, two] = used(&path, way);
                KEPT.with_borrow_mut(|kept| *kept = Some(Last(one)));
                drop(two);
            }
        });
        thread.join().expect("a thread that ends");
        is_closed(&path, way);
    }
}

/// C programs use `pthread_key_create`. Its destructors run even after std's own thread data are
/// gone.
#[test]
fn a_connection_that_a_key_of_the_thread_closes_closes_the_database() {
    unsafe extern "C" fn close(kept: *mut c_void) {
        // SAFETY: the value that the thread has set, once.
        drop(unsafe { Box::from_raw(kept.cast::<Last>()) });
    }
    let mut key = 0;
    // SAFETY: plain C.
    assert_eq!(
        unsafe { libc::pthread_key_create(&mut key, Some(close)) },
        0
    );
    for way in WAYS {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let thread = thread::spawn({
            let path = path.clone();
            move || {
                let [one, two] = used(&path, way);
                let kept = Box::into_raw(Box::new(Last(one)));
                // SAFETY: the destructor takes it.
                assert_eq!(unsafe { libc::pthread_setspecific(key, kept.cast()) }, 0);
                drop(two);
            }
        });
        thread.join().expect("a thread that ends");
        is_closed(&path, way);
    }
    // SAFETY: no thread has a value any more.
    unsafe { libc::pthread_key_delete(key) };
}
