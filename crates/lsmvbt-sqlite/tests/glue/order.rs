//! Searches by a part of an index's columns, after the rest has changed. The keys that once divided
//! the tree then belong to no entry any more, and lie on either side of the existing ones.

use crate::support::{Setup, on_other_engines, one, run};
use lsmvbt_sqlite::sqlite::Connection;

on_other_engines! {
    rows_that_moved_are_found_by_their_unique_column
    rows_that_changed_are_met_once
    rowids_behind_a_unique_column_are_compared
}

/// Enough for some hundred leaves.
const ROWS: i64 = 4000;
const NUMBERS: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)";

fn fill(connection: &Connection, into: &str) {
    run(
        connection,
        &format!(
            "INSERT INTO {into} {NUMBERS} SELECT i + 100000, printf('%050d', i), i + 100000 FROM n"
        ),
    );
}

fn rows_that_moved_are_found_by_their_unique_column(engine: &str) {
    let setup = Setup::new();
    let connection = setup.open("moved", engine);
    for schema in [
        "CREATE TABLE nullable(a INTEGER PRIMARY KEY, b UNIQUE, c)",
        "CREATE TABLE never_null(a INTEGER PRIMARY KEY, b NOT NULL UNIQUE, c)",
        "CREATE TABLE p(b REFERENCES nullable(b), c REFERENCES never_null(b))",
    ] {
        run(&connection, schema);
    }
    for table in ["nullable", "never_null"] {
        fill(&connection, table);
        run(&connection, &format!("UPDATE {table} SET a = a - 100000"));
        run(
            &connection,
            &format!("INSERT OR IGNORE INTO {table}(b) SELECT b FROM {table}"),
        );
        assert_eq!(connection.changes(), 0, "{table}");
    }
    run(&connection, "INSERT INTO p SELECT b, b FROM nullable");
    assert_eq!(connection.changes(), ROWS);
    for table in ["nullable", "never_null"] {
        run(&connection, "DELETE FROM p");
        run(
            &connection,
            &format!("INSERT OR REPLACE INTO {table}(b, c) SELECT b, 0 FROM {table}"),
        );
        let replaced = format!("SELECT count(*) || ' ' || sum(c) FROM {table}");
        assert_eq!(one(&connection, &replaced), format!("{ROWS} 0"), "{table}");
    }
    assert_eq!(one(&connection, "PRAGMA integrity_check"), "ok");
}

/// Reads all rows and changes each when it is met. Returns the number met, or one more than there
/// are.
fn change_while_reading(connection: &Connection, read: &str, change: &str) -> i64 {
    run(connection, "BEGIN");
    let mut reading = connection.statement(read).expect(read).expect("a query");
    let mut met = 0;
    while met <= ROWS && reading.step().expect(read) {
        let key = reading.row()[0].to_string();
        run(connection, &change.replace('?', &key));
        met += 1;
    }
    drop(reading);
    run(connection, "COMMIT");
    met
}

fn rows_that_changed_are_met_once(engine: &str) {
    let setup = Setup::new();
    let connection = setup.open("changed", engine);
    run(
        &connection,
        "CREATE TABLE w(n, k, v, PRIMARY KEY(k)) WITHOUT ROWID",
    );
    run(
        &connection,
        "CREATE TABLE u(a INTEGER PRIMARY KEY, b NOT NULL UNIQUE, c)",
    );
    for table in ["w", "u"] {
        fill(&connection, table);
    }
    // Twice in each direction: from the second time on, the saved key of a row differs from the one
    // that divided the tree.
    let up = "SELECT k FROM w";
    let down = "SELECT k FROM w ORDER BY k DESC";
    let less = "UPDATE w SET n = n - 100000, v = v - 100000 WHERE k = '?'";
    let more = "UPDATE w SET n = n + 100000, v = v + 100000 WHERE k = '?'";
    let index_up = "SELECT b FROM u WHERE b > '' ORDER BY b";
    let index_down = "SELECT b FROM u WHERE b > '' ORDER BY b DESC";
    let lower = "UPDATE u SET a = a - 100000 WHERE b = '?'";
    let higher = "UPDATE u SET a = a + 100000 WHERE b = '?'";
    for (read, change) in [
        (up, less),
        (up, less),
        (down, more),
        (down, more),
        (index_up, lower),
        (index_up, lower),
        (index_down, higher),
        (index_down, higher),
    ] {
        assert_eq!(
            change_while_reading(&connection, read, change),
            ROWS,
            "{read}"
        );
    }
    assert_eq!(one(&connection, "PRAGMA integrity_check"), "ok");
}

fn rowids_behind_a_unique_column_are_compared(engine: &str) {
    let setup = Setup::new();
    let connection = setup.open("compared", engine);
    run(
        &connection,
        "CREATE TABLE u(a INTEGER PRIMARY KEY, b NOT NULL, c)",
    );
    run(&connection, "CREATE UNIQUE INDEX ub ON u(b)");
    fill(&connection, "u");
    run(&connection, "UPDATE u SET a = a - 100000");
    for (condition, expected) in [
        ("x.a <= y.a", ROWS),
        ("x.a < y.a", 0),
        ("x.a >= y.a", ROWS),
        ("x.a > y.a", 0),
        ("x.a < y.a + 50000 AND x.a > y.a - 50000", ROWS),
    ] {
        let count = format!(
            "SELECT count(*) FROM u y CROSS JOIN u x INDEXED BY ub ON x.b = y.b AND {condition}"
        );
        assert_eq!(
            one(&connection, &count),
            expected.to_string(),
            "{condition}"
        );
    }
}
