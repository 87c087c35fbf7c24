//! Every switch from one journal mode to another, and the mode that the database remembers.
#![allow(unsafe_code)]

use super::{MODES, Mode, WALDIO, companion, open, open_in, outcome, sql, status, stock};
use rusqlite::ffi;

const ALL: [&str; 10] = [
    "delete", "truncate", "persist", "memory", "off", "wal", "direct", "waldio", "swal", "onewrite",
];

fn is_ours(mode: &str) -> bool {
    ["direct", "waldio", "swal", "onewrite"].contains(&mode)
}

#[test]
fn every_mode_follows_every_other_and_the_pragma_tells_the_truth() {
    let directory = tempfile::tempdir().expect("a directory");
    for from in ALL {
        for to in ALL {
            let path = directory.path().join(format!("{from}-{to}"));
            let db = open(&path);
            sql(&db, "PRAGMA onewrite_reserve_bytes=24");
            sql(&db, "CREATE TABLE t(x)");
            for (n, mode) in [from, to].into_iter().enumerate() {
                assert_eq!(
                    sql(&db, &format!("PRAGMA journal_mode={mode}")),
                    mode,
                    "{from} {to}"
                );
                assert_eq!(sql(&db, "PRAGMA journal_mode"), mode);
                sql(&db, &format!("INSERT INTO t VALUES({n})"));
                let said = status(&db)["mode"].as_str().map(str::to_owned);
                assert_eq!(said.as_deref(), Some(mode).filter(|mode| is_ours(mode)));
            }
            drop(db);
            // As in SQLite, the database remembers only modes with a log.
            let kept = if to == "wal" || is_ours(to) {
                to
            } else {
                "delete"
            };
            let db = open(&path);
            assert_eq!(
                sql(&db, "PRAGMA journal_mode"),
                kept,
                "{from} {to}, opened again"
            );
            assert_eq!(sql(&db, "SELECT group_concat(x) FROM t"), "0,1");
            drop(db);
            let file = companion(&path, "-onewrite");
            assert_eq!(
                file.exists(),
                is_ours(to),
                "{from} {to}: {}",
                file.display()
            );
            // The file is also a stock database.
            let db = stock(&path);
            let mode = if kept == "delete" { "delete" } else { "wal" };
            assert_eq!(sql(&db, "PRAGMA journal_mode"), mode);
            assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
        }
    }
}

/// Content of many pages. Every switch must keep it whole.
const LOOK: &str = "SELECT count(*), total(id * v), total(length(w)), max(w) FROM t";

#[test]
fn every_layout_is_entered_from_and_left_for_every_other_mode() {
    let directory = tempfile::tempdir().expect("a directory");
    for layout in &MODES[..4] {
        for other in ALL.into_iter().filter(|mode| *mode != "waldio") {
            let path = directory.path().join("db");
            let db = open(&path);
            sql(&db, "PRAGMA onewrite_reserve_bytes=24");
            sql(&db, &format!("PRAGMA journal_mode={other}"));
            sql(
                &db,
                "CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER, w TEXT)",
            );
            sql(&db, "CREATE INDEX by_v ON t(v)");
            let fill = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i<300) \
                        INSERT INTO t(v, w) SELECT i % 7, printf('%d.%.*c', i, 700, 'w') FROM c";
            sql(&db, fill);
            let mut seen = sql(&db, LOOK);
            for (round, mode) in ["waldio", other, "waldio"].into_iter().enumerate() {
                let other_has_layout = ["direct", "swal", "onewrite"].contains(&other);
                if mode == "waldio" && !other_has_layout {
                    layout
                        .before
                        .iter()
                        .for_each(|pragma| drop(sql(&db, pragma)));
                }
                if other_has_layout {
                    // Its log has its own layout; the setting is for waldio.
                    let setting = match mode {
                        "waldio" => layout.before[0],
                        _ => "PRAGMA onewrite_layout=auto",
                    };
                    let said = outcome(&db, setting);
                    if said.contains("the log is in use") {
                        sql(&db, "PRAGMA journal_mode=delete");
                        sql(&db, setting);
                    }
                }
                let set = format!("PRAGMA journal_mode={mode}");
                assert_eq!(sql(&db, &set), mode, "{layout:?} {other}");
                assert_eq!(sql(&db, LOOK), seen, "{layout:?} {other}, into {mode}");
                sql(&db, &format!("UPDATE t SET v = v + {round}, w = w || 'x'"));
                sql(&db, &format!("DELETE FROM t WHERE id % 40 = {round}"));
                seen = sql(&db, LOOK);
                // In any mode, a kill leaves exactly the committed rows.
                let killed = directory.path().join("killed");
                super::copy(&path, &killed);
                let after = open(&killed);
                assert_eq!(
                    sql(&after, LOOK),
                    seen,
                    "{layout:?} {other}, killed in {mode}"
                );
                assert_eq!(sql(&after, "PRAGMA integrity_check"), "ok");
            }
            drop(db);
            let db = stock(&path);
            assert_eq!(sql(&db, LOOK), seen, "{layout:?} {other}, stock");
            assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
            drop(db);
            for suffix in ["", "-onewrite", "-wal", "-shm", "-journal"] {
                let _ = std::fs::remove_file(companion(&path, suffix));
            }
        }
    }
}

#[test]
fn a_layout_is_remembered_and_changed_on_the_way_through_delete() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    for mode in &MODES[..4] {
        let layout = mode.before[0].rsplit('=').next().unwrap_or_default();
        let db = open(&path);
        sql(&db, "PRAGMA onewrite_reserve_bytes=24");
        sql(&db, "PRAGMA journal_mode=delete");
        drop(db);
        let db = open_in(&path, *mode);
        sql(&db, "CREATE TABLE IF NOT EXISTS t(x)");
        sql(&db, "INSERT INTO t VALUES(1)");
        drop(db);
        let db = open(&path);
        assert_eq!(sql(&db, "PRAGMA journal_mode"), "waldio");
        assert_eq!(status(&db)["layout"], layout);
        let other = if layout == "sector" {
            "page4k"
        } else {
            "sector"
        };
        let refused = outcome(&db, &format!("PRAGMA onewrite_layout={other}"));
        assert!(refused.contains("the log is in use"), "{refused}");
    }
}

/// The database was never in one of our modes, and a stock connection has it open in WAL.
#[test]
fn a_stock_connection_that_is_open_keeps_a_mode_out_and_the_error_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in ["direct", "waldio", "swal", "onewrite"] {
        let path = directory.path().join(mode);
        let other = stock(&path);
        sql(&other, "PRAGMA journal_mode=wal");
        sql(&other, "CREATE TABLE t(x)");
        let db = open(&path);
        sql(&db, "PRAGMA onewrite_layout=sector");
        if mode != "waldio" {
            sql(&db, "PRAGMA onewrite_layout=auto");
        }
        let refused = outcome(&db, &format!("PRAGMA journal_mode={mode}"));
        assert!(refused.starts_with("error 5"), "{refused}");
        assert!(
            refused.contains("another connection has the database open"),
            "{refused}"
        );
        assert_eq!(sql(&db, "PRAGMA journal_mode"), "wal");
        drop(other);
        assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
    }
}

#[test]
fn a_mode_is_not_changed_within_a_transaction_nor_under_another_connection() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = open_in(&path, WALDIO);
    sql(&db, "CREATE TABLE t(x)");
    for mode in ["wal", "delete", "direct"] {
        sql(&db, "BEGIN");
        sql(&db, "INSERT INTO t VALUES(1)");
        let refused = outcome(&db, &format!("PRAGMA journal_mode={mode}"));
        assert!(
            refused.contains("within a transaction"),
            "{mode}: {refused}"
        );
        sql(&db, "COMMIT");
        assert_eq!(sql(&db, "PRAGMA journal_mode"), "waldio");
    }
    let other = open(&path);
    assert_eq!(sql(&other, "SELECT count(*) FROM t"), "3");
    let refused = outcome(&db, "PRAGMA journal_mode=delete");
    assert!(refused.starts_with("error"), "{refused}");
    assert_eq!(sql(&db, "PRAGMA journal_mode"), "waldio");
    sql(&other, "INSERT INTO t VALUES(2)");
    drop(other);
    assert_eq!(sql(&db, "PRAGMA journal_mode=delete"), "delete");
    assert_eq!(sql(&db, "SELECT count(*) FROM t"), "4");
}

#[test]
fn a_statement_prepared_many_times_switches_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = open(&directory.path().join("db"));
    sql(&db, "PRAGMA onewrite_reserve_bytes=24");
    sql(&db, "CREATE TABLE t(x)");
    for _ in 0..3 {
        sql(&db, "EXPLAIN PRAGMA journal_mode=waldio");
        sql(&db, "EXPLAIN PRAGMA onewrite_status");
        sql(&db, "EXPLAIN PRAGMA journal_mode");
    }
    sql(&db, "INSERT INTO t VALUES(1)");
    let id = status(&db)["log_id"].clone();
    let mut prepared = db
        .prepare("PRAGMA journal_mode=waldio")
        .expect("a statement");
    for _ in 0..3 {
        let mode: String = prepared.query_row([], |row| row.get(0)).expect("a mode");
        assert_eq!(mode, "waldio");
        // The schema changes, so SQLite prepares the statement again.
        sql(&db, "CREATE TABLE u(x)");
        sql(&db, "DROP TABLE u");
    }
    assert_eq!(status(&db)["log_id"], id, "the same log");
    assert_eq!(sql(&db, "SELECT count(*) FROM t"), "1");
}

#[test]
fn a_fresh_database_in_any_mode_is_opened_by_another_connection_at_once() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = open_in(&path, Mode { ..mode });
        sql(&db, "CREATE TABLE t(x)");
        sql(&db, "INSERT INTO t VALUES(7)");
        let other = open(&path);
        assert_eq!(sql(&other, "SELECT x FROM t"), "7");
        assert_eq!(sql(&other, "PRAGMA journal_mode"), mode.name);
    }
}

/// SQLite, up to 3.54, leaves WAL mode with the pages that the connection has cached, even if
/// another has committed to them since. Then it writes the cached pages: a row is lost. SQLite
/// drops its cache if the database's change counter has moved; our VFS moves it.
#[test]
fn a_connection_that_leaves_a_mode_does_not_write_what_it_remembers_over_what_others_committed() {
    for persists in [false, true] {
        leave_after_others_committed(persists);
    }
}

/// `persists`: the log is not to be deleted (`SQLITE_FCNTL_PERSIST_WAL`).
fn leave_after_others_committed(persists: bool) {
    let wal = Mode {
        name: "wal",
        before: &[],
    };
    for mode in MODES.into_iter().chain([wal]) {
        for to in ALL.into_iter().filter(|to| *to != mode.name) {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("db");
            let ours = open(&path);
            sql(&ours, "PRAGMA onewrite_reserve_bytes=24");
            sql(&ours, "CREATE TABLE t(x)");
            drop(ours);
            let ours = open_in(&path, mode);
            if persists {
                persist_wal(&ours);
            }
            sql(&ours, "INSERT INTO t VALUES(1)");
            assert_eq!(sql(&ours, "SELECT group_concat(x) FROM t"), "1");
            let other = open(&path);
            sql(&other, "INSERT INTO t VALUES(2)");
            drop(other);
            if to != "waldio" && is_ours(to) {
                // The layout is for waldio.
                sql(&ours, "PRAGMA onewrite_layout=auto");
            }
            assert_eq!(sql(&ours, &format!("PRAGMA journal_mode={to}")), to);
            sql(&ours, "INSERT INTO t VALUES(3)");
            let found = sql(&ours, "SELECT group_concat(x) FROM t");
            drop(ours);
            let stock = stock(&path);
            let then = sql(&stock, "SELECT group_concat(x) FROM t");
            assert_eq!((&*found, &*then), ("1,2,3", "1,2,3"), "{mode:?}, to {to}");
            assert_eq!(sql(&stock, "PRAGMA integrity_check"), "ok");
        }
    }
}

fn persist_wal(db: &rusqlite::Connection) {
    persist_wal_of(db, c"main");
}

fn persist_wal_of(db: &rusqlite::Connection, schema: &std::ffi::CStr) {
    let mut persist: std::ffi::c_int = 1;
    // SAFETY: an open connection; this file control takes an integer.
    let code = unsafe {
        let op = ffi::SQLITE_FCNTL_PERSIST_WAL;
        ffi::sqlite3_file_control(db.handle(), schema.as_ptr(), op, (&raw mut persist).cast())
    };
    assert_eq!((code, persist), (ffi::SQLITE_OK, 1));
}

/// If nothing changes, stock SQLite takes no lock. The same holds for a database in a stock mode.
#[test]
fn a_stock_database_that_another_has_locked_tells_its_mode() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let ours = open(&path);
    sql(&ours, "CREATE TABLE t(x)");
    let other = stock(&path);
    sql(&other, "BEGIN EXCLUSIVE");
    for pragma in ["PRAGMA journal_mode", "PRAGMA journal_mode=delete"] {
        assert_eq!(sql(&ours, pragma), "delete", "{pragma}");
    }
    let found = outcome(&ours, "PRAGMA journal_mode=waldio");
    assert!(found.starts_with("error 5"), "{found}");
}

/// With exclusive locking, a connection never drops to no lock between two modes. Its knowledge of
/// the first mode's log must not be applied to the second's.
#[test]
fn with_exclusive_locking_a_log_that_was_left_is_not_written_to_again() {
    let wal = Mode {
        name: "wal",
        before: &[],
    };
    for mode in MODES.into_iter().chain([wal]) {
        for to in ["wal", "direct", "waldio", "onewrite"] {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("db");
            let ours = open_in(&path, mode);
            sql(&ours, "PRAGMA locking_mode=EXCLUSIVE");
            sql(&ours, "CREATE TABLE t(x)");
            let mut rows = 0;
            for mode in ["delete", to, "delete", to] {
                // Where the layout does not fit, the mode stays as it is.
                outcome(&ours, &format!("PRAGMA journal_mode={mode}"));
                sql(&ours, "INSERT INTO t VALUES(1)");
                rows += 1;
            }
            let crashed = directory.path().join("crashed");
            super::copy(&path, &crashed);
            let found = sql(&open(&crashed), "SELECT count(*) FROM t");
            assert_eq!(found, rows.to_string(), "{mode:?}, to {to}: after a crash");
            drop(ours);
            let stock = stock(&path);
            let found = sql(&stock, "SELECT count(*) FROM t");
            assert_eq!(found, rows.to_string(), "{mode:?}, to {to}");
            assert_eq!(sql(&stock, "PRAGMA integrity_check"), "ok");
        }
    }
}

/// A pragma that names no database reaches the attached ones as well, but SQLite reports only the
/// main one to our VFS. SQLite must still look again at the others.
#[test]
fn a_connection_that_leaves_the_modes_of_all_databases_writes_over_no_commit() {
    for mode in ["wal", "direct", "waldio", "onewrite"] {
        for persists in [false, true] {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("attached");
            let ours = open(&directory.path().join("main"));
            sql(&ours, &format!("ATTACH '{}' AS second", path.display()));
            let set = format!("PRAGMA second.journal_mode={mode}");
            assert_eq!(sql(&ours, &set), mode);
            sql(&ours, "CREATE TABLE second.t(x)");
            sql(&ours, "DETACH second");
            sql(&ours, &format!("ATTACH '{}' AS second", path.display()));
            if persists {
                persist_wal_of(&ours, c"second");
            }
            sql(&ours, "INSERT INTO t VALUES(1)");
            assert_eq!(sql(&ours, "SELECT group_concat(x) FROM t"), "1");
            let other = open(&path);
            sql(&other, "INSERT INTO t VALUES(2)");
            drop(other);
            sql(&ours, "PRAGMA journal_mode=delete");
            let now = sql(&ours, "PRAGMA second.journal_mode");
            assert_eq!(now, "delete", "{mode}, {persists}");
            sql(&ours, "INSERT INTO t VALUES(3)");
            let found = sql(&ours, "SELECT group_concat(x) FROM t");
            drop(ours);
            let then = sql(&stock(&path), "SELECT group_concat(x) FROM t");
            assert_eq!((&*found, &*then), ("1,2,3", "1,2,3"), "{mode}, {persists}");
        }
    }
}

/// The deletion of a log when its last connection closes makes no connection look again, because
/// none is left. A program that only reads changes no byte of its database.
#[test]
fn a_database_that_was_only_read_keeps_its_bytes() {
    for mode in ["wal", "direct"] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = open(&path);
        sql(&db, &format!("PRAGMA journal_mode={mode}"));
        sql(&db, "CREATE TABLE t(x)");
        drop(db);
        let before = std::fs::read(&path).expect("the database");
        let db = open(&path);
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "0");
        drop(db);
        assert!(
            std::fs::read(&path).expect("the database") == before,
            "{mode}"
        );
        assert!(!companion(&path, "-wal").exists(), "{mode}");
    }
}
