//! The backup interface from a database of another engine: the copy is a stock one.

use lsmvbt_sqlite::sqlite::Connection;

use crate::support::{Setup, on_other_engines, one, refused, run};

on_other_engines! {
    a_backup_is_a_stock_database_of_one_moment
    a_backup_replaces_what_was_there
    within_a_transaction_there_is_none
}

const SUM: &str = "SELECT count(*) || ' ' || sum(a) || ' ' || sum(length(b)) FROM t";

/// 1,000 rows, one of them long.
fn filled(setup: &Setup, name: &str, engine: &str) -> Connection {
    let connection = setup.open(name, engine);
    run(
        &connection,
        "CREATE TABLE t(a INTEGER PRIMARY KEY, b); CREATE INDEX i ON t(b)",
    );
    run(
        &connection,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 999) INSERT INTO t SELECT i, i FROM n",
    );
    run(&connection, "INSERT INTO t VALUES (1000, zeroblob(100000))");
    connection
}

fn is_whole(connection: &Connection) {
    assert_eq!(one(connection, SUM), "1000 500500 102889");
    assert_eq!(one(connection, "PRAGMA integrity_check"), "ok");
}

fn a_backup_is_a_stock_database_of_one_moment(engine: &str) {
    let setup = Setup::new();
    let connection = filled(&setup, "x", engine);
    for name in ["copy", "again"] {
        let copy = setup.open(name, "stock");
        let backup = copy.backup(&connection, "main").expect("begun");
        assert!(backup.step(3).expect("three pages"), "there are more");
        // As a change of the source shows nowhere.
        run(&connection, "DELETE FROM t WHERE a < 500");
        while backup.step(20).expect("pages") {}
        backup.finish().expect("finished");
        is_whole(&copy);
        assert_eq!(one(&copy, "PRAGMA journal_mode"), "delete");
        drop(copy);
        let bytes = std::fs::read(setup.path(name)).expect("the copy");
        assert!(bytes.starts_with(b"SQLite format 3\0"));
        assert_eq!(one(&connection, "SELECT count(*) FROM t"), "501");
        run(
            &connection,
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 499) INSERT INTO t SELECT i, i FROM n",
        );
        is_whole(&connection);
    }
    // One that is given up, and one into memory.
    let memory = Connection::open(":memory:").expect("a database");
    let given_up = memory.backup(&connection, "main").expect("begun");
    given_up.step(1).expect("a page");
    drop(given_up);
    memory.backup_from(&connection).expect("a copy");
    is_whole(&memory);
}

fn a_backup_replaces_what_was_there(engine: &str) {
    let setup = Setup::new();
    let connection = filled(&setup, "x", engine);
    let copy = setup.open("copy", "stock");
    run(
        &copy,
        "CREATE TABLE other(a); INSERT INTO other VALUES (zeroblob(1000000))",
    );
    copy.backup_from(&connection).expect("a copy");
    is_whole(&copy);
    assert_eq!(
        refused(&copy, "SELECT * FROM other"),
        "no such table: other"
    );
    // Between stock databases it is SQLite's own.
    let third = setup.open("third", "stock");
    third.backup_from(&copy).expect("a copy of the copy");
    is_whole(&third);
}

fn within_a_transaction_there_is_none(engine: &str) {
    let setup = Setup::new();
    let connection = filled(&setup, "x", engine);
    let copy = setup.open("copy", "stock");
    run(&connection, "BEGIN; INSERT INTO t VALUES (1001, 1)");
    let error = copy.backup_from(&connection).expect_err("a transaction");
    assert!(error.message.contains("within a transaction"), "{error}");
    run(&connection, "ROLLBACK");
    let error = copy.backup(&connection, "nothing").err().expect("refused");
    assert!(
        error.message.contains("unknown database nothing"),
        "{error}"
    );
    copy.backup_from(&connection).expect("a copy");
    is_whole(&copy);
}

#[test]
fn a_backup_of_an_earlier_version() {
    let setup = Setup::new();
    let connection = filled(&setup, "x", "lsmvbt");
    run(&connection, "PRAGMA lsmvbt_history = 10");
    let version = one(&connection, "PRAGMA lsmvbt_version");
    run(&connection, "DELETE FROM t WHERE a < 500");
    let uri = format!("file:{}?version={version}", setup.path("x"));
    run(&connection, &format!("ATTACH '{uri}' AS old"));
    let copy = setup.open("copy", "stock");
    let backup = copy.backup(&connection, "old").expect("begun");
    while backup.step(100).expect("pages") {}
    backup.finish().expect("finished");
    is_whole(&copy);
}
