//! Every wait has a bound. Some processes are stopped while they hold a lock. Some users may only
//! read, and lock all they can. See W1 to W25 in `docs/durability.md`.

mod checkpoints;
mod helper;
mod poison;
mod readers;
#[path = "../common/rows.rs"]
mod rows;
mod stopped;

use onewrite_common::files::companion;
use std::path::Path;
use std::sync::Once;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

/// The first of the log's lock bytes, and those after it.
const PRESENCE: i64 = 0x7fff_ff00;
const EXTENSION: i64 = PRESENCE + 1;
const FLUSH: i64 = PRESENCE + 3;
const TURN: i64 = PRESENCE + 4;

/// The busy timeout that the application has set.
const TIMEOUT: Duration = Duration::from_millis(300);
/// The answer must come soon after that timeout. The rest allows for a busy machine.
const IN_TIME: Duration = Duration::from_secs(10);

fn try_open(path: &Path) -> rusqlite::Result<Connection> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| onewrite::register().expect("the VFS onewrite"));
    let db = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), onewrite::VFS_NAME)?;
    db.busy_timeout(TIMEOUT)?;
    Ok(db)
}

fn open(path: &Path) -> Connection {
    try_open(path).expect("a connection")
}

fn sql(db: &Connection, statement: &str) -> String {
    rows::query(db, statement).unwrap_or_else(|e| panic!("{statement}: {e}"))
}

fn made(path: &Path, mode: &str) -> Connection {
    let db = open(path);
    assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
    sql(&db, "CREATE TABLE t(x)");
    sql(&db, "INSERT INTO t VALUES('first')");
    db
}

fn status(db: &Connection) -> serde_json::Value {
    serde_json::from_str(&sql(db, "PRAGMA onewrite_status")).expect("JSON")
}

fn count(db: &Connection, what: &str) -> u64 {
    let status = status(db);
    status["group_commits"][what].as_u64().expect("a number")
}

/// Runs `work` in its own thread. Fails if it does not end in time.
fn in_time<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, result) = channel();
    thread::spawn(move || send.send(work()));
    let result = result.recv_timeout(IN_TIME);
    result.unwrap_or_else(|e| panic!("{what}: {e}"))
}

/// SQLite's code, if a statement fails.
fn code(result: &rusqlite::Result<String>) -> Option<i32> {
    match result {
        Err(rusqlite::Error::SqliteFailure(error, _)) => Some(error.extended_code & 0xff),
        Err(e) => panic!("{e}"),
        Ok(_) => None,
    }
}

const BUSY: i32 = 5;
const PROTOCOL: i32 = 15;
