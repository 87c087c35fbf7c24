//! `sqlite3_enable_shared_cache`: connections to one database share its pages, and the mutex that
//! guards them.

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
