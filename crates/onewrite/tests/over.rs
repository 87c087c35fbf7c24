//! A VFS over ours may store other bytes in the log than in the database, which the thread's
//! connection would not know. So commits checkpoint there by themselves.

#[path = "common/rows.rs"]
mod rows;
#[path = "common/shim.rs"]
mod shim;

use rusqlite::{Connection, OpenFlags, ffi};
use shim::Watch;
use std::ffi::{CStr, c_int};

struct Over;

impl Watch for Over {
    const NAME: &CStr = c"over";
    const FILES: c_int = ffi::SQLITE_OPEN_MAIN_DB | ffi::SQLITE_OPEN_WAL;
}

fn open(path: &std::path::Path, vfs: &CStr) -> Connection {
    Connection::open_with_flags_and_vfs(path, OpenFlags::default(), vfs).expect("a connection")
}

fn sql(db: &Connection, statement: &str) -> String {
    rows::query(db, statement).expect("a statement")
}

#[test]
fn under_another_vfs_commits_checkpoint_by_themselves() {
    let directory = tempfile::tempdir().expect("a directory");
    onewrite::register().expect("the VFS onewrite");
    let first = open(&directory.path().join("first"), c"onewrite");
    assert_eq!(sql(&first, "PRAGMA onewrite_make_default"), "onewrite");
    shim::register::<Over>();
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
