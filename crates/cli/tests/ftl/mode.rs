//! The pragma: the moment at which the mode is left, and databases that cannot have it.

use crate::below::{self, Which};
use crate::support::{Mounted, ask, can_run, connect, count, fill, integrity};

/// SQLite does not always do what a pragma says. If the mode were left too early, SQLite would only
/// have its journal in memory.
#[test]
fn the_mode_is_left_when_sqlite_has_left_it() {
    if !can_run() {
        return;
    }
    let mut mounted = Mounted::new();
    let connection = mounted.create("a.db");
    connection
        .execute_batch("INSERT INTO t (b) VALUES ('one'), ('two')")
        .unwrap();
    connection.busy_timeout(std::time::Duration::ZERO).unwrap();
    let ask = |sql: &str| ask(&connection, sql);
    // Another connection reads.
    let other = mounted.open("a.db");
    other.execute_batch("BEGIN").unwrap();
    assert_eq!(count(&other), 2);
    let said = ask("PRAGMA journal_mode=wal").unwrap_err();
    assert_eq!(
        said.sqlite_error_code(),
        Some(rusqlite::ErrorCode::DatabaseBusy),
        "{said}"
    );
    assert_eq!(ask("PRAGMA journal_mode").unwrap(), "xftl");
    drop(other);
    // This connection reads.
    let mut reading = connection.prepare("SELECT a FROM t").unwrap();
    let mut rows = reading.query([]).unwrap();
    rows.next().unwrap();
    ask("PRAGMA journal_mode=wal").unwrap_err();
    assert_eq!(ask("PRAGMA journal_mode").unwrap(), "xftl");
    drop(rows);
    // A statement of this connection is writing.
    let sql = "INSERT INTO t (b) VALUES ('three'), ('four') RETURNING a";
    let mut writing = connection.prepare(sql).unwrap();
    let mut rows = writing.query([]).unwrap();
    rows.next().unwrap();
    for word in ["delete", "memory", "off", "wal", "waldio"] {
        ask(&format!("PRAGMA journal_mode={word}")).unwrap_err();
        assert_eq!(ask("PRAGMA journal_mode").unwrap(), "xftl", "{word}");
    }
    while rows.next().unwrap().is_some() {}
    drop(rows);
    // So transactions are still the file's.
    connection
        .execute_batch("PRAGMA cache_size=10; BEGIN")
        .unwrap();
    fill(&connection, 400).unwrap();
    let before = mounted.number("/statistics/aborts");
    connection.execute_batch("ROLLBACK").unwrap();
    assert!(mounted.number("/statistics/aborts") > before);
    assert_eq!(count(&connection), 4);
    for word in ["delete", "truncate", "persist", "memory", "off"] {
        let said = ask(&format!("PRAGMA journal_mode={word}")).unwrap();
        assert_eq!(said, word);
        assert_eq!(ask("PRAGMA journal_mode").unwrap(), word);
        assert_eq!(ask("PRAGMA journal_mode=xftl").unwrap(), "xftl");
    }
    assert_eq!(integrity(&connection), "ok");
}

#[test]
fn the_mode_is_refused_where_files_are_not_transactional() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let connection = connect(&path);
    connection.execute_batch("CREATE TABLE t (a)").unwrap();
    let refused = ask(&connection, "PRAGMA journal_mode=xftl");
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("has no transactions"), "{said}");
    assert_eq!(ask(&connection, "PRAGMA journal_mode").unwrap(), "delete");
}

/// Every statement of the switch reads the database: the next one does not make up for its failure.
#[test]
fn a_switch_on_whose_way_something_fails_fails() {
    if !can_run() {
        return;
    }
    let mounted = Mounted::new();
    drop(mounted.create("a.db"));
    let path = mounted.path("a.db");
    for before in 0.. {
        let connection = connect(&path);
        below::fail(&path, Which::Read, before);
        let switched = ask(&connection, "PRAGMA journal_mode=xftl");
        let failed = below::has_failed(&path);
        assert_eq!(failed, switched.is_err(), "{before}: {switched:?}");
        if !failed {
            assert!(before > 1, "{before}");
            break;
        }
        assert_eq!(ask(&connection, "PRAGMA journal_mode").unwrap(), "delete");
        assert_eq!(
            ask(&connection, "PRAGMA journal_mode=xftl").unwrap(),
            "xftl"
        );
    }
}
