//! Recovery that drops frames which were published: the log was damaged, and the wal-index is not
//! valid. Other frames come in their places, in the same generation. No process may take the old ones
//! for these (N16 of docs/durability.md).

use super::child::Child;
use super::{companion, open, sql};
use rusqlite::Connection;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Both copies of the wal-index's header, in bytes.
const HEADERS: usize = 96;

/// Makes the wal-index invalid, as a writer does that dies while it publishes.
fn make_invalid(path: &Path) {
    let index = File::options().write(true).open(companion(path, "-shm"));
    index
        .and_then(|index| index.write_all_at(&[0; HEADERS], 0))
        .expect("an invalid wal-index");
}

/// Puts the log back as it was, as if later writes had been lost.
fn lose(path: &Path, log: &[u8]) {
    let file = File::options()
        .write(true)
        .open(companion(path, "-onewrite"));
    file.and_then(|file| file.write_all_at(log, 0))
        .expect("the log as it was");
    make_invalid(path);
}

/// Commits, drops, and commits something else of the same size.
fn drops(mode: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = open(&path);
    sql(&db, "PRAGMA page_size=4096");
    sql(&db, &format!("PRAGMA journal_mode={mode}"));
    sql(&db, "PRAGMA wal_autocheckpoint=0");
    sql(&db, "CREATE TABLE t(k INTEGER PRIMARY KEY, v TEXT)");
    sql(&db, "CREATE TABLE u(k INTEGER PRIMARY KEY, v TEXT)");
    sql(&db, "INSERT INTO t VALUES(1, 'kept')");
    let mut other = Child::start(&path);
    other.sql("PRAGMA wal_autocheckpoint=0");
    let mut reader = Child::start(&path);
    reader.sql("PRAGMA wal_autocheckpoint=0");
    for round in 0..4 {
        assert_eq!(other.sql("SELECT v FROM t WHERE k = 1"), "kept");
        let log = std::fs::read(companion(&path, "-onewrite")).expect("the log");
        other.sql(&format!("UPDATE t SET v = 'kept' || {round}"));
        other.sql(&format!("INSERT INTO u VALUES({}, 'lost')", 2 * round));
        // It reads these frames, and remembers them.
        let lost = format!("SELECT v FROM u WHERE k = {}", 2 * round);
        assert_eq!(reader.sql(&lost), "lost", "{mode}");
        lose(&path, &log);
        // This process recovers, and the others do not.
        assert_eq!(sql(&db, "SELECT v FROM t WHERE k = 1"), "kept", "{mode}");
        let new = 2 * round + 1;
        sql(&db, &format!("INSERT INTO u VALUES({new}, 'here')"));
        sql(&db, &format!("INSERT INTO t VALUES({new} + 1, 'new')"));
        let all = "SELECT group_concat(k || v) FROM (SELECT * FROM u ORDER BY k)";
        let expected = sql(&db, all);
        assert_eq!(reader.sql(all), expected, "{mode}, round {round}: a reader");
        assert_eq!(other.sql(all), expected, "{mode}, round {round}: a writer");
        assert_eq!(other.sql("SELECT v FROM t WHERE k = 1"), "kept", "{mode}");
        // Each of them goes on behind these frames.
        other.sql(&format!("UPDATE u SET v = 'more' WHERE k = {new}"));
        let more = format!("SELECT v FROM u WHERE k = {new}");
        assert_eq!(reader.sql(&more), "more", "{mode}, round {round}");
        assert_eq!(sql(&db, &more), "more", "{mode}, round {round}");
        assert_eq!(reader.sql("PRAGMA integrity_check"), "ok", "{mode}");
    }
}

#[test]
fn no_process_reads_what_the_recovery_of_another_one_has_dropped() {
    for mode in ["onewrite", "swal", "waldio"] {
        drops(mode);
    }
}

/// A connection to a database that was closed, with one row: it will recover an empty log.
fn opened_again(path: &Path, mode: &str, value: &str) -> Connection {
    let db = open(path);
    sql(&db, &format!("PRAGMA journal_mode={mode}"));
    sql(&db, "CREATE TABLE t(v)");
    sql(&db, &format!("INSERT INTO t VALUES({value})"));
    drop(db);
    open(path)
}

/// The header that SQLite makes of an empty log is always the same. A connection that has its pages from
/// such a time would find it unchanged.
#[test]
fn the_recovery_of_an_empty_log_is_noticed() {
    for mode in ["onewrite", "swal", "waldio", "direct"] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = opened_again(&path, mode, "'old'");
        assert_eq!(sql(&db, "SELECT v FROM t"), "old", "{mode}");
        let mut other = Child::start(&path);
        assert_eq!(other.sql("SELECT v FROM t"), "old", "{mode}");
        for round in 0..3 {
            sql(&db, &format!("UPDATE t SET v = 'new' || {round}"));
            sql(&db, "PRAGMA wal_checkpoint=TRUNCATE");
            make_invalid(&path);
            let new = sql(&db, "SELECT v FROM t");
            assert_eq!(new, format!("new{round}"), "{mode}");
            assert_eq!(other.sql("SELECT v FROM t"), new, "{mode}, round {round}");
            assert_eq!(other.sql("UPDATE t SET v = v || '+'"), "", "{mode}");
            assert_eq!(sql(&db, "SELECT v FROM t"), format!("{new}+"), "{mode}");
            assert_eq!(
                sql(&db, "PRAGMA wal_checkpoint=TRUNCATE"),
                "0|0|0",
                "{mode}"
            );
            make_invalid(&path);
            assert_eq!(other.sql("SELECT v FROM t"), format!("{new}+"), "{mode}");
        }
    }
}

/// SQLite would copy its buffer into the wal-index, with whatever was in that memory before.
#[test]
fn the_recovery_of_an_empty_log_leaves_the_rest_of_the_index_as_it_is() {
    for mode in ["onewrite", "swal", "waldio", "direct"] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = opened_again(&path, mode, "randomblob(100000)");
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "1", "{mode}");
        let index = std::fs::read(companion(&path, "-shm")).expect("the wal-index");
        assert_eq!(index.len(), 32768, "{mode}");
        let used = index[HEADERS + 40..].iter().filter(|byte| **byte != 0);
        assert_eq!(used.count(), 0, "{mode}");
    }
}
