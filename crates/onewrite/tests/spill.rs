//! A transaction that spills, overwrites some of its frames, and reads them back. SQLite leaves the
//! headers of such frames unfinished until the commit.

use rusqlite::{Connection, OpenFlags};

fn open(path: &std::path::Path, layout: &str) -> Connection {
    onewrite::register().expect("the VFS registers");
    let db = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), onewrite::VFS_NAME)
        .expect("the database opens");
    db.execute_batch(&format!("PRAGMA onewrite_layout={layout}"))
        .expect("the layout is known");
    let mode: String = db
        .query_row("PRAGMA journal_mode=waldio", [], |row| row.get(0))
        .expect("the mode switches");
    assert_eq!(mode, "waldio");
    db
}

/// Fills, updates twice and sums far more pages than the cache and the gathered run can hold.
fn churn(db: &Connection, synchronous: &str) {
    db.execute_batch(&format!(
        "PRAGMA synchronous={synchronous}; PRAGMA cache_size=10;
         CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB, n INTEGER);
         CREATE INDEX i ON t(n);
         BEGIN;
         WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<1500)
           INSERT INTO t SELECT x, randomblob(700), x FROM c;
         UPDATE t SET n = n + 1;
         UPDATE t SET v = zeroblob(600), n = n + 1 WHERE id % 3 = 0;"
    ))
    .expect("the transaction spills");
    let sum: i64 = db
        .query_row("SELECT sum(n) FROM t", [], |row| row.get(0))
        .expect("reads back");
    assert_eq!(sum, 1500 * 1501 / 2 + 1500 + 500);
    db.execute_batch("COMMIT").expect("the transaction commits");
}

#[test]
fn a_transaction_reads_back_what_it_spilled_and_wrote_again() {
    for layout in ["embedded", "sector", "page4k", "page8k", "gathered"] {
        for synchronous in ["FULL", "NORMAL"] {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("t.db");
            let db = open(&path, layout);
            churn(&db, synchronous);
            // Another connection reads the log from the file, as recovery would.
            let other = open(&path, layout);
            for db in [&other, &db] {
                let check: String = db
                    .query_row("PRAGMA integrity_check", [], |row| row.get(0))
                    .expect("the check runs");
                assert_eq!(check, "ok", "{layout} {synchronous}");
            }
        }
    }
}
