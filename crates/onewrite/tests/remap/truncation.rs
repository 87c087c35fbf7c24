//! A log that is cut: first, durably, nothing refers to its frames; then they are removed.

use std::io;
use std::path::Path;
use std::sync::Mutex;

use onewrite::storage::observer::{Call, Observer, observe};

use super::database::{connect, query};

static CALLS: Mutex<Vec<&str>> = Mutex::new(Vec::new());

struct Recorder;

impl Observer for Recorder {
    fn before(&self, path: &Path, call: &Call<'_>) -> io::Result<()> {
        if path.to_string_lossy().ends_with("truncated-onewrite") {
            CALLS.lock().expect("the calls").push(match call {
                Call::Write { offset: 0, .. } => "header",
                Call::Flush => "flush",
                Call::Truncate { .. } => "truncate",
                _ => return Ok(()),
            });
        }
        Ok(())
    }
}

#[test]
fn the_header_is_durable_before_frames_are_cut_off() {
    assert!(observe(Box::new(Recorder)));
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("truncated");
    let db = connect(&path, "onewrite");
    let sql =
        |statement: &str| query(&db, statement).unwrap_or_else(|e| panic!("{statement}: {e}"));
    sql("PRAGMA onewrite_direct_io=off");
    sql("PRAGMA wal_autocheckpoint=0");
    assert_eq!(sql("PRAGMA journal_mode=waldio"), "waldio");
    sql("CREATE TABLE t(x)");
    sql(
        "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 2200) \
         INSERT INTO t SELECT randomblob(3500) FROM s",
    );
    CALLS.lock().expect("the calls").clear();
    assert!(sql("PRAGMA wal_checkpoint(TRUNCATE)").starts_with("0|0"));
    let calls = CALLS.lock().expect("the calls");
    let last: Vec<_> = calls.iter().rev().take(3).rev().copied().collect();
    assert_eq!(last, ["header", "flush", "truncate"], "{calls:?}");
}
