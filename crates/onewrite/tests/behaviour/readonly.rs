//! Connections that only read: by a flag, by `mode=ro`, by `immutable=1`, on a file system that is
//! mounted read-only; of databases at rest, in use and after a crash.

use super::damage::files;
use super::scratch::Scratch;
use super::{MODES, Mode, copy, open, open_flags, open_in, outcome, sql, stock};
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};

const COUNT: &str = "SELECT count(*) FROM t";

fn by_uri(path: &Path, parameters: &str) -> Connection {
    let uri = format!("file:{}?{parameters}", path.display());
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    open_flags(uri.as_ref(), "onewrite", flags).expect("a connection")
}

/// A database with three rows, checkpointed after the first; closed, and as a crash leaves it.
fn made(directory: &Path, mode: Mode) -> (PathBuf, PathBuf) {
    let (rest, crashed) = (directory.join("rest"), directory.join("crashed"));
    let db = open_in(&rest, mode);
    sql(&db, "CREATE TABLE t(x)");
    sql(&db, "INSERT INTO t VALUES(1)");
    sql(&db, "PRAGMA wal_checkpoint(TRUNCATE)");
    sql(&db, "INSERT INTO t VALUES(2)");
    sql(&db, "INSERT INTO t VALUES(3)");
    copy(&rest, &crashed);
    (rest, crashed)
}

fn only_reads(db: &Connection) {
    for statement in ["INSERT INTO t VALUES(9)", "DROP TABLE t", "VACUUM"] {
        let found = outcome(db, statement);
        assert!(found.starts_with("error 8"), "{statement}: {found}");
    }
}

#[test]
fn mode_ro_reads_everything_that_was_committed_and_changes_nothing() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let (rest, crashed) = made(directory.path(), mode);
        for path in [&rest, &crashed] {
            let db = by_uri(path, "mode=ro");
            assert_eq!(sql(&db, COUNT), "3", "{mode:?}");
            only_reads(&db);
            let writer = open(path);
            sql(&writer, "INSERT INTO t VALUES(4)");
            assert_eq!(sql(&db, COUNT), "4", "{mode:?}: beside a writer");
            sql(&writer, "DELETE FROM t WHERE x = 4");
            sql(&writer, "PRAGMA wal_checkpoint");
            assert_eq!(sql(&db, COUNT), "3");
            drop(writer);
            assert_eq!(sql(&db, COUNT), "3", "{mode:?}: alone again");
            drop(db);
            // The last one to go was a reader, who cannot end a guard.
            sql(&open(path), COUNT);
            assert_eq!(sql(&stock(path), COUNT), "3");
        }
    }
}

/// As in stock SQLite an immutable database is the file alone: no log is read, no lock taken. A guarded
/// one is then not a database, because its newest transactions are elsewhere.
#[test]
fn immutable_reads_the_file_alone_and_changes_nothing() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let (rest, crashed) = made(directory.path(), mode);
        let left = match mode.name {
            "direct" => "1",
            _ => "error 26: file is not a database",
        };
        for (path, expected) in [(&rest, "3"), (&crashed, left)] {
            let before = files(path);
            let db = by_uri(path, "immutable=1");
            assert_eq!(outcome(&db, COUNT), expected, "{mode:?}");
            if !expected.starts_with("error") {
                assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
                only_reads(&db);
            }
            drop(db);
            assert!(files(path) == before, "{mode:?}: a file was changed");
        }
        // Nothing of that was remembered.
        assert_eq!(sql(&open(&crashed), COUNT), "3", "{mode:?}");
    }
}

/// There SQLite itself reads a database in WAL mode only as an immutable one, for want of a wal-index.
#[test]
fn on_a_read_only_file_system_a_database_answers_as_with_stock_sqlite() {
    for mode in MODES {
        let Some(disk) = Scratch::ext4(64, &[], "") else {
            return;
        };
        let (rest, crashed) = made(disk.path(), mode);
        disk.remount("ro");
        let before = (files(&rest), files(&crashed));
        assert_eq!(outcome(&open(&rest), COUNT), outcome(&stock(&rest), COUNT));
        assert_eq!(sql(&by_uri(&rest, "immutable=1"), COUNT), "3", "{mode:?}");
        let found = outcome(&open(&crashed), COUNT);
        assert!(found.starts_with("error 14"), "{mode:?}: {found}");
        assert!(before == (files(&rest), files(&crashed)));
        disk.remount("rw");
        for path in [&rest, &crashed] {
            assert_eq!(sql(&open(path), COUNT), "3", "{mode:?}");
        }
    }
}
