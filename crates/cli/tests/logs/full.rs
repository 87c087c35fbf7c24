//! Whole databases that a full disk leaves behind. No command calls them broken.

use std::fs;
use std::path::Path;

use onewrite_iotrace::scratch::{Mounted, private_mounts};
use rusqlite::{Connection, OpenFlags};

use super::{companion, inspect_json, lossy, number, onewrite, run, stock};

/// A write that found no space ends the log of SQLite inside a frame, behind the last commit.
#[test]
fn a_log_that_a_full_disk_ended_inside_a_frame_is_whole() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: takes root");
        return;
    }
    private_mounts().expect("a mount namespace");
    let place = tempfile::tempdir().expect("a directory");
    let size = Some(c"size=14m");
    let mounted = Mounted::with_options(Path::new("onewrite-test"), place.path(), "tmpfs", size);
    let mounted = mounted.expect("a file system");
    let database = place.path().join("test.db");
    let rows = fill(&database);
    let name = database.to_str().expect("UTF-8");
    let (found, _) = inspect_json(&companion(&database, "-wal"), &[]);
    assert_eq!(found["wal"]["end"]["reason"], "cut-short", "{found:#}");
    let said = |args: &[&str]| {
        let output = run(onewrite(args));
        let said = lossy(&output.stdout) + &lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
        said
    };
    let verified = said(&["verify", name]);
    assert!(
        verified.contains("whole") && verified.contains("inside frame"),
        "{verified}"
    );
    let status = said(&["status", name]);
    assert!(status.contains("needs recovery"), "{status}");
    assert!(
        !status.contains("broken") && !status.contains("problem"),
        "{status}"
    );
    let elsewhere = tempfile::tempdir().expect("a directory");
    let saved = elsewhere.path().join("saved.db");
    let salvaged = said(&["salvage", name, "-o", saved.to_str().expect("UTF-8")]);
    assert!(!salvaged.contains("not everything"), "{salvaged}");
    let saved = stock(&saved).expect("a stock database");
    assert_eq!(number(&saved, "SELECT count(*) FROM t"), rows);
    mounted.unmount().expect("unmounted");
}

/// Inserts in `direct` until no space is left, then fails with a larger transaction, and closes.
/// Returns the rows that were committed.
fn fill(database: &Path) -> i64 {
    onewrite::register().expect("the VFS");
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let ours = Connection::open_with_flags_and_vfs(database, flags, onewrite::VFS_NAME);
    let ours = ours.expect("a database");
    ours.query_row("PRAGMA journal_mode=direct", [], |_| Ok(()))
        .expect("the mode");
    ours.execute_batch("CREATE TABLE t(a)").expect("a table");
    let mut rows = 0;
    let insert = "INSERT INTO t VALUES(randomblob(20000))";
    while ours.execute(insert, []).is_ok() {
        rows += 1;
    }
    for sql in ["VACUUM", "INSERT INTO t VALUES(zeroblob(3000000))"] {
        ours.execute_batch(sql).expect_err("no space is left");
    }
    // Its checkpoint finds no space either.
    let _ = ours.close();
    assert!(fs::metadata(companion(database, "-wal")).is_ok_and(|log| log.len() > 0));
    rows
}
