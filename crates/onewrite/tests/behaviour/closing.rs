//! Connections that close at the same moment: SQLite refuses EXCLUSIVE to each of them, because the
//! others still have the database open. None is the last one then, as SQLite sees it.

use super::child::Child;
use super::{MODES, Mode, open, open_in, outcome, sql, stock};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Barrier;

const AT_ONCE: usize = 4;

/// Rounds in which connections close together. In most of them one is the last, as SQLite sees it.
const ROUNDS: usize = 40;

/// A closed database in a mode, with an empty table.
fn made(directory: &Path, mode: Mode) -> PathBuf {
    let path = directory.join("db");
    sql(&open_in(&path, mode), "CREATE TABLE t(x)");
    path
}

fn assert_is_stock(path: &Path, rows: usize, mode: Mode) {
    let found = outcome(&stock(path), "SELECT count(*) FROM t");
    assert_eq!(found, rows.to_string(), "{mode:?}");
}

/// Does it with all of them at the same moment.
fn at_once(open: Vec<Connection>, work: impl Fn(Connection) + Sync) {
    let ready = Barrier::new(open.len());
    std::thread::scope(|scope| {
        for db in open {
            scope.spawn(|| {
                ready.wait();
                work(db);
            });
        }
    });
}

#[test]
fn connections_that_close_at_once_leave_a_stock_database() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = made(directory.path(), mode);
        for round in 1..=ROUNDS {
            let open: Vec<_> = (0..AT_ONCE).map(|_| open(&path)).collect();
            for db in &open {
                assert_eq!(sql(db, "SELECT count(*) FROM t"), (round - 1).to_string());
            }
            sql(&open[0], "INSERT INTO t VALUES(1)");
            at_once(open, drop);
            assert_is_stock(&path, round, mode);
        }
    }
}

#[test]
fn connections_that_detach_at_once_leave_a_stock_database() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = made(directory.path(), mode);
        let attached = || {
            let db = open(Path::new(":memory:"));
            sql(&db, &format!("ATTACH '{}' AS a", path.display()));
            db
        };
        for round in 1..=ROUNDS {
            let open: Vec<_> = (0..AT_ONCE).map(|_| attached()).collect();
            for db in &open {
                assert_eq!(sql(db, "SELECT count(*) FROM a.t"), (round - 1).to_string());
            }
            sql(&open[0], "INSERT INTO a.t VALUES(1)");
            at_once(open, |db| drop(sql(&db, "DETACH a")));
            assert_is_stock(&path, round, mode);
        }
    }
}

#[test]
fn processes_that_close_at_once_leave_a_stock_database() {
    for mode in MODES.into_iter().filter(|mode| mode.before.is_empty()) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = made(directory.path(), mode);
        let mut children: Vec<_> = (0..AT_ONCE).map(|_| Child::start(&path)).collect();
        for round in 1..=ROUNDS {
            for child in &mut children {
                let found = child.sql("SELECT count(*) FROM t");
                assert_eq!(found, (round - 1).to_string(), "{mode:?}");
            }
            assert_eq!(children[0].sql("INSERT INTO t VALUES(1)"), "", "{mode:?}");
            children.iter_mut().for_each(Child::begin_to_close);
            children.iter_mut().for_each(Child::has_closed);
            assert_is_stock(&path, round, mode);
            children.iter_mut().for_each(Child::open);
        }
    }
}

/// `sqlite3_interrupt` without a running statement holds until the next one. SQLite's checkpoint at the
/// close finds it, and ends.
fn interrupt_and_close(db: Connection) {
    db.get_interrupt_handle().interrupt();
    drop(db);
}

#[test]
fn an_interrupted_connection_that_closes_leaves_a_stock_database() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = made(directory.path(), mode);
        for (round, locking) in (1..).zip(["NORMAL", "EXCLUSIVE"]) {
            let db = open(&path);
            sql(&db, &format!("PRAGMA locking_mode={locking}"));
            sql(&db, "INSERT INTO t VALUES(1)");
            interrupt_and_close(db);
            assert_is_stock(&path, round, mode);
        }
        assert_eq!(sql(&open(&path), "SELECT count(*) FROM t"), "2");
    }
}

#[test]
fn an_interrupted_connection_leaves_its_attached_databases_stock_ones() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = made(directory.path(), mode);
        let db = open(&directory.path().join("main"));
        sql(&db, &format!("ATTACH '{}' AS a", path.display()));
        sql(&db, "INSERT INTO a.t VALUES(1)");
        interrupt_and_close(db);
        assert_is_stock(&path, 1, mode);
    }
}

#[test]
fn an_interrupted_connection_that_is_not_the_last_leaves_the_end_to_the_other() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = made(directory.path(), mode);
        let (db, other) = (open(&path), open(&path));
        sql(&db, "INSERT INTO t VALUES(1)");
        assert_eq!(sql(&other, "SELECT count(*) FROM t"), "1");
        interrupt_and_close(db);
        sql(&other, "INSERT INTO t VALUES(2)");
        interrupt_and_close(other);
        assert_is_stock(&path, 2, mode);
    }
}
