//! A VFS over ours. It may store other bytes in the log than in the database, which the thread's
//! connection would not know. So commits checkpoint there by themselves. It also answers before ours,
//! with its own errors.

#[path = "common/rows.rs"]
mod rows;
#[path = "common/shim.rs"]
mod shim;

use rusqlite::{Connection, OpenFlags, ffi};
use shim::{Call, Watch};
use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::path::Path;
use std::sync::Once;

struct Over;

thread_local! {
    /// The error with which this thread's next operation of a VFS's own fails, if it is set.
    static NEXT: Cell<c_int> = const { Cell::new(ffi::SQLITE_OK) };
}

/// SQLite's own operations have small numbers.
const FIRST_OF_A_VFS: c_int = 100_000;

impl Watch for Over {
    const NAME: &CStr = c"over";
    const FILES: c_int = ffi::SQLITE_OPEN_MAIN_DB | ffi::SQLITE_OPEN_WAL;

    fn file_control(_path: &Path, op: c_int, call: impl Call) -> c_int {
        match op >= FIRST_OF_A_VFS && NEXT.get() != ffi::SQLITE_OK {
            true => NEXT.take(),
            false => call(),
        }
    }
}

/// It lies over onewrite, which is the default VFS from here on.
fn set_up() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        onewrite::register().expect("the VFS onewrite");
        let directory = tempfile::tempdir().expect("a directory");
        let first = open(&directory.path().join("first"), c"onewrite");
        assert_eq!(sql(&first, "PRAGMA onewrite_make_default"), "onewrite");
        shim::register::<Over>();
    });
}

fn open(path: &Path, vfs: &CStr) -> Connection {
    Connection::open_with_flags_and_vfs(path, OpenFlags::default(), vfs).expect("a connection")
}

fn sql(db: &Connection, statement: &str) -> String {
    rows::query(db, statement).expect("a statement")
}

#[test]
fn under_another_vfs_commits_checkpoint_by_themselves() {
    let directory = tempfile::tempdir().expect("a directory");
    set_up();
    for (vfs, by_thread) in [(c"over", false), (c"onewrite", true)] {
        let db = open(&directory.path().join(vfs.to_str().expect("a name")), vfs);
        assert_eq!(sql(&db, "PRAGMA journal_mode=onewrite"), "onewrite");
        assert_eq!(sql(&db, "PRAGMA onewrite_background_checkpoint=on"), "on");
        sql(&db, "PRAGMA wal_autocheckpoint=10");
        sql(&db, "CREATE TABLE t(x)");
        for _ in 0..100 {
            sql(&db, "INSERT INTO t VALUES(1)");
        }
        let status = sql(&db, "PRAGMA onewrite_status");
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        // The thread may be in its first checkpoint.
        let background = &status["background"];
        let has_thread = background["checkpoints"] != 0 || background["is_busy"] == true;
        assert_eq!(has_thread, by_thread, "{vfs:?}: {status}");
        // A thread that does not get the processor may be behind.
        let frames = status["frames"].as_u64().expect("a number");
        assert!(by_thread || frames < 20, "{vfs:?}: {frames} frames");
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "100");
    }
}

/// At the end of `sqlite3_open` our VFS asks for its file. If memory is missing there, the open
/// fails. Other errors only say that a VFS does not know our operation.
#[test]
fn an_open_without_memory_for_the_last_question_fails() {
    set_up();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let cases = [
        (ffi::SQLITE_NOMEM, ffi::SQLITE_NOMEM),
        (ffi::SQLITE_IOERR_NOMEM, ffi::SQLITE_NOMEM),
        (ffi::SQLITE_ERROR, ffi::SQLITE_OK),
        (ffi::SQLITE_IOERR, ffi::SQLITE_OK),
        (ffi::SQLITE_NOTFOUND, ffi::SQLITE_OK),
    ];
    for (said, expected) in cases {
        NEXT.set(said);
        let opened = Connection::open_with_flags_and_vfs(&path, OpenFlags::default(), c"over");
        assert_eq!(NEXT.take(), ffi::SQLITE_OK, "{said}: it was not asked");
        let code = match opened {
            Ok(_) => ffi::SQLITE_OK,
            Err(rusqlite::Error::SqliteFailure(error, _)) => error.extended_code,
            Err(other) => panic!("{said}: {other}"),
        };
        assert_eq!(code, expected, "{said}");
    }
}
