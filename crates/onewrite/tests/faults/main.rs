//! The effects of one failed call, in the log's own file and in the VFS underneath. SQLite gets the
//! right code, and no failure is reported as success.
//!
//! `onewrite-torture faults` makes every system call of real processes fail. Here a few calls fail
//! in states that its scenarios do not reach, or that exist only for an instant.

mod below;
mod database;
mod device;
mod group_commit;
mod group_synch;
mod no_second_phase;
mod promised;
mod refusal;
#[path = "../common/rows.rs"]
mod rows;
mod shared_blocks;
#[path = "../common/shim.rs"]
mod shim;
mod stock;
mod switching;
mod torn;
mod unfinished;

use onewrite_common::files::companion;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

/// SQLite's result codes.
mod code {
    pub const NOMEM: i32 = 7;
    pub const READ: i32 = 10 | 1 << 8;
    pub const WRITE: i32 = 10 | 3 << 8;
    pub const FSYNC: i32 = 10 | 4 << 8;
    pub const NO_MEMORY: i32 = 10 | 12 << 8;
    pub const MAPPING: i32 = 10 | 21 << 8;
    pub const CORRUPT_FS: i32 = 10 | 33 << 8;
    pub const FULL: i32 = 13;
}

fn set_up() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        below::register();
        refusal::register();
        onewrite::register().expect("the VFS onewrite");
    });
}

/// A directory where direct I/O works, if there is one.
fn directory() -> tempfile::TempDir {
    set_up();
    tempfile::tempdir().expect("a directory")
}

fn open_with(path: &Path, vfs: &str) -> Connection {
    set_up();
    let db =
        Connection::open_with_flags_and_vfs(path, OpenFlags::default(), vfs).expect("a connection");
    db.busy_timeout(Duration::ZERO).expect("a timeout");
    db
}

fn open(path: &Path) -> Connection {
    open_with(path, onewrite::VFS_NAME)
}

/// A database in journal mode waldio with a table and some rows.
fn made(path: &Path, before: &[&str]) -> Connection {
    let db = open(path);
    for pragma in before {
        sql(&db, pragma);
    }
    assert_eq!(sql(&db, "PRAGMA journal_mode=waldio"), "waldio");
    sql(&db, "CREATE TABLE t(x)");
    for x in 0..ROWS {
        sql(&db, &format!("INSERT INTO t VALUES({x})"));
    }
    db
}

const ROWS: usize = 5;

fn try_sql(db: &Connection, statement: &str) -> Result<String, (i32, String)> {
    rows::query(db, statement).map_err(|e| match e {
        rusqlite::Error::SqliteFailure(error, message) => {
            (error.extended_code, message.unwrap_or_default())
        }
        other => (1, other.to_string()),
    })
}

/// The rows of a statement that must not fail.
fn sql(db: &Connection, statement: &str) -> String {
    try_sql(db, statement).unwrap_or_else(|(code, why)| panic!("{statement}: {code} {why}"))
}

/// The code of a statement that must fail.
fn failing(db: &Connection, statement: &str) -> i32 {
    match try_sql(db, statement) {
        Ok(rows) => panic!("{statement}: {rows:?} and no error"),
        Err((code, _)) => code,
    }
}

fn status(db: &Connection) -> serde_json::Value {
    serde_json::from_str(&sql(db, "PRAGMA onewrite_status")).expect("JSON")
}

/// The number of rows for our VFS and then, after a clean close, for stock SQLite.
fn holds(path: &Path, rows: usize) {
    holds_either(path, [rows, rows]);
}

/// After a failed commit: without its rows, or with all of them.
fn holds_either(path: &Path, either: [usize; 2]) {
    let mut seen = Vec::new();
    for vfs in [onewrite::VFS_NAME, "unix"] {
        let db = open_with(path, vfs);
        seen.push(rows(&db));
        assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok", "{vfs}");
    }
    assert!(
        either.contains(&seen[0]) && seen[0] == seen[1],
        "{seen:?} of {either:?}"
    );
}

fn rows(db: &Connection) -> usize {
    sql(db, "SELECT count(*) FROM t").parse().expect("a number")
}

/// The bytes of a file, read by another process: closing a descriptor here would drop SQLite's
/// locks.
fn bytes(path: &Path) -> Vec<u8> {
    let output = std::process::Command::new("cat").arg(path).output();
    output.expect("cat").stdout
}
