//! Earlier versions, by number and by time.

use std::thread::sleep;
use std::time::Duration;

use lsmvbt_sqlite::sqlite::{Connection, Value};

use crate::support::{Setup, one, refused, run};

const ENGINE: &str = "lsmvbt";

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

#[test]
fn the_history_is_a_number_of_versions_or_a_time() {
    let setup = Setup::new();
    let a = setup.open("x", ENGINE);
    run(&a, "CREATE TABLE t(x)");
    for (set, answer) in [
        ("'1 hour'", "1 hour"),
        ("'90 Minutes'", "90 minutes"),
        ("'120 minutes'", "2 hours"),
        ("'48 hours'", "2 days"),
        ("'1  day'", "1 day"),
        ("'61 second'", "61 seconds"),
        ("100", "100"),
        ("'0 days'", "0"),
        ("'2 seconds'", "2 seconds"),
        ("0", "0"),
        ("'5 minutes'", "5 minutes"),
    ] {
        assert_eq!(one(&a, &format!("PRAGMA lsmvbt_history = {set}")), answer);
        run(&a, "INSERT INTO t VALUES (1)");
        let b = setup.open("x", ENGINE);
        assert_eq!(one(&b, "PRAGMA lsmvbt_history"), answer);
    }
    let status = one(&a, "PRAGMA onewrite_status").replace('\'', "''");
    let seconds = format!("SELECT json_extract('{status}', '$.history_seconds')");
    assert_eq!(one(&a, &seconds), "300");
    let usage = "it is a number of versions, 0 or more, or a time, such as '1 hour'";
    for wrong in [
        "'1 month'",
        "'-1 hours'",
        "'1.5 hours'",
        "'hour'",
        "'1hour'",
        "'99999 days'",
    ] {
        let told = format!("lsmvbt_history = {}: {usage}", wrong.trim_matches('\''));
        let message = refused(&a, &format!("PRAGMA lsmvbt_history = {wrong}"));
        assert_eq!(message, told);
    }
    assert_eq!(one(&a, "PRAGMA lsmvbt_history"), "5 minutes");
    assert_eq!(one(&a, "PRAGMA integrity_check"), "ok");
}

#[test]
fn a_version_is_chosen_by_its_time() {
    let setup = Setup::new();
    let a = setup.open("x", ENGINE);
    let now = || one(&a, "SELECT datetime('now')");
    run(&a, "CREATE TABLE t(x)");
    let pin = |time: &str| format!("PRAGMA lsmvbt_version = '{time}'");
    let message = refused(&a, &pin(&now()));
    let (_, why) = message.split_once(": ").expect("the pragma and its value");
    assert_eq!(
        why,
        "no times are kept: give the history a time, such as '1 hour'"
    );
    run(&a, "PRAGMA lsmvbt_history = '60 seconds'");
    let mut times = Vec::new();
    for x in 1..4 {
        run(&a, &format!("INSERT INTO t VALUES ({x})"));
        let version = one(&a, "PRAGMA lsmvbt_version");
        times.push((now(), version));
        sleep(Duration::from_millis(1_100));
    }
    // Another connection, also after all others have closed the database.
    drop(setup.open("x", ENGINE));
    let b = setup.open("x", ENGINE);
    for (rows, (time, version)) in (1..4).zip(&times) {
        assert_eq!(one(&b, &pin(time)), *version, "{time}");
        assert_eq!(one(&b, "SELECT count(*) FROM t"), rows.to_string());
        for uri in [
            time.clone(),
            time.replace(' ', "T"),
            time.replace(' ', "%20"),
        ] {
            let old = format!("file:{}?version={uri}", setup.path("x"));
            let old = Connection::open(&old).expect("then");
            assert_eq!(one(&old, "SELECT count(*) FROM t"), rows.to_string());
        }
    }
    assert_eq!(one(&b, &pin("2100-01-01")), times[2].1, "the newest");
    run(&b, "PRAGMA lsmvbt_version = 0");
    let message = refused(&b, &pin("2026-01-01 00:00:00"));
    assert!(
        message.contains(": the history reaches back to 20"),
        "{message}"
    );
    assert!(
        message.ends_with(", not to 2026-01-01 00:00:00"),
        "{message}"
    );
    for wrong in ["yesterday", "2026-13-01", "10:00"] {
        let message = refused(&b, &pin(wrong));
        assert!(
            message.contains("such as '2026-11-27 10:00:00'"),
            "{message}"
        );
    }
    for beyond in [
        "2999-01-01 00:00:00",
        "2300-01-01",
        "2106-02-07 06:28:16",
        "1969-12-31",
    ] {
        let message = refused(&b, &pin(beyond));
        assert_eq!(
            message,
            format!(
                "lsmvbt_version = {beyond}: {beyond} is beyond the times that versions can have, 1970-01-01 00:00:00 to \
                 2106-02-07 06:28:15 (UTC)"
            )
        );
    }
    let attach = format!(
        "ATTACH 'file:{}?version=2026-01-01' AS old",
        setup.path("x")
    );
    assert!(refused(&b, &attach).contains("unable to open database"));
}

/// Changes of each kind, in a table of rowids and in the schema, by numbers and by the newest.
#[test]
fn the_rows_that_differ_between_two_versions_are_listed() {
    let setup = Setup::new();
    for encoding in ["UTF-8", "UTF-16le", "UTF-16be"] {
        let a = setup.open(encoding, ENGINE);
        run(&a, &format!("PRAGMA encoding = '{encoding}'"));
        run(&a, "PRAGMA lsmvbt_history = 100");
        run(
            &a,
            "CREATE TABLE t(x INTEGER PRIMARY KEY, y); CREATE INDEX i ON t(y)",
        );
        run(&a, "CREATE TABLE \"Größe\"(x)");
        run(
            &a,
            "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c'), (5, 'e')",
        );
        let old = one(&a, "PRAGMA lsmvbt_version");
        run(
            &a,
            "UPDATE t SET y = 'B' WHERE x = 2; DELETE FROM t WHERE x = 3",
        );
        run(
            &a,
            "INSERT INTO t VALUES (4, 'd'); UPDATE t SET y = y WHERE x = 5",
        );
        let new = one(&a, "PRAGMA lsmvbt_version");
        run(&a, "DELETE FROM t; INSERT INTO \"Größe\" VALUES (7)");
        let diff = |arguments: &str| {
            let rows = format!(
                "SELECT group_concat(change || ' ' || rowid) FROM lsmvbt_diff({arguments})"
            );
            one(&a, &rows)
        };
        assert_eq!(
            diff(&format!("'t', {old}, {new}")),
            "update 2,delete 3,insert 4"
        );
        assert_eq!(
            diff(&format!("'T', {new}, {old}")),
            "update 2,insert 3,delete 4"
        );
        assert_eq!(
            diff(&format!("'t', {old}")),
            "delete 1,delete 2,delete 3,delete 5"
        );
        assert_eq!(diff(&format!("'Größe', {old}")), "insert 1");
        assert_eq!(diff(&format!("'t', {old}, {old}")), "");
        assert_eq!(diff(&format!("'sqlite_schema', {old}")), "");
        // With the rows of now, in a join, and of an attached database.
        let joined = format!(
            "SELECT group_concat(g.x) FROM lsmvbt_diff('Größe', {old}) d JOIN \"Größe\" g ON g.rowid = d.rowid"
        );
        assert_eq!(one(&a, &joined), "7");
        let b = setup.open(&format!("stock-{encoding}"), "stock");
        run(
            &b,
            &format!("PRAGMA encoding = '{encoding}'; CREATE TABLE q(x)"),
        );
        run(&b, &format!("ATTACH '{}' AS o", setup.path(encoding)));
        let attached = format!("SELECT count(*) FROM lsmvbt_diff('t', {old}, {new}, 'o')");
        assert_eq!(one(&b, &attached), "3");
        let stock = format!("SELECT * FROM lsmvbt_diff('t', {old})");
        assert_eq!(
            refused(&b, &stock),
            "lsmvbt_diff: main is no database of lsmvbt"
        );
        // In a transaction the newest version is the one that it began from.
        run(&a, "BEGIN; INSERT INTO t VALUES (9, 'z')");
        assert_eq!(
            diff(&format!("'t', {new}")),
            "delete 1,delete 2,delete 4,delete 5"
        );
        run(&a, "COMMIT");
        assert_eq!(one(&a, "PRAGMA integrity_check"), "ok");
    }
}

#[test]
fn a_diff_of_a_stock_database_says_that_it_is_one() {
    let setup = Setup::new();
    let file = setup.open("z", "stock");
    let memory = Connection::open(":memory:").expect("in memory");
    for stock in [file, memory] {
        run(&stock, "CREATE TABLE t(x)");
        assert_eq!(
            refused(&stock, "SELECT * FROM lsmvbt_diff('t', 1)"),
            "lsmvbt_diff: main is no database of lsmvbt"
        );
        run(&stock, "CREATE TABLE lsmvbt_diff(x)");
        assert_eq!(one(&stock, "SELECT count(*) FROM lsmvbt_diff"), "0");
    }
}

/// How an undo finds its version, as the documentation has it.
#[test]
fn the_commit_that_changed_a_table_is_found_by_its_differences() {
    let setup = Setup::new();
    let a = setup.open("x", ENGINE);
    run(&a, "PRAGMA lsmvbt_history = '1 hour'");
    run(
        &a,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, x); CREATE TABLE u(x)",
    );
    for x in 0..5 {
        run(
            &a,
            &format!("INSERT INTO t(x) VALUES ({x}); INSERT INTO u VALUES ({x})"),
        );
    }
    let before = number(&one(&a, "PRAGMA lsmvbt_version"));
    run(&a, "DELETE FROM t WHERE x < 3");
    run(
        &a,
        "INSERT INTO u VALUES (9); UPDATE t SET x = 7 WHERE x = 4",
    );
    let last = one(&a, "PRAGMA lsmvbt_version");
    let look = format!(
        "WITH RECURSIVE v(n) AS (SELECT {last} UNION ALL SELECT n - 1 FROM v LIMIT 3) \
         SELECT n, change, count(*) FROM v, lsmvbt_diff('t', n - 1, n) GROUP BY n, change"
    );
    let found: Vec<String> = a
        .query(&look)
        .expect("differences")
        .iter()
        .map(|row| {
            row.iter()
                .map(Value::to_string)
                .collect::<Vec<_>>()
                .join("|")
        })
        .collect();
    let (deleted, updated) = (before + 1, before + 3);
    let all = [format!("{deleted}|delete|3"), format!("{updated}|update|1")];
    assert_eq!(found, all);
    run(
        &a,
        &format!(
            "ATTACH 'file:{}?version={before}' AS old; \
             INSERT INTO t SELECT * FROM old.t WHERE rowid NOT IN (SELECT rowid FROM t)",
            setup.path("x")
        ),
    );
    let rows = "SELECT group_concat(id || ' ' || x) FROM t";
    assert_eq!(one(&a, rows), "1 0,2 1,3 2,4 3,5 7");
}

#[test]
fn a_diff_says_what_it_cannot_do() {
    let setup = Setup::new();
    let a = setup.open("x", ENGINE);
    run(&a, "PRAGMA lsmvbt_history = 100");
    run(
        &a,
        "CREATE TABLE w(k PRIMARY KEY) WITHOUT ROWID; INSERT INTO w VALUES (1)",
    );
    run(
        &a,
        "CREATE VIRTUAL TABLE f USING fts5(x); CREATE VIEW v AS SELECT 1",
    );
    for (arguments, why) in [
        (
            "'w', 2",
            "w is WITHOUT ROWID: ATTACH with version= and EXCEPT compare such tables",
        ),
        ("'f', 2", "f is a virtual table"),
        ("'v', 2", "there is no table v in version 2 or "),
        ("'w', 99999", "version 99999 cannot be read"),
        ("'w', 0", "version 0 cannot be read"),
        ("'w', '2026-01-01'", "no times are kept"),
        ("'w', 'x'", "it is a version's number, or a time"),
        (
            "'w'",
            "lsmvbt_diff takes a table, and a version to begin from",
        ),
        ("'w', 2, 2, 'y'", "lsmvbt_diff: y is no database of lsmvbt"),
    ] {
        let message = refused(&a, &format!("SELECT * FROM lsmvbt_diff({arguments})"));
        assert!(message.starts_with(why), "{arguments}: {message}");
    }
    assert_eq!(one(&a, "PRAGMA integrity_check"), "ok");
}

#[test]
fn an_attached_version_has_an_image_of_its_own() {
    let setup = Setup::new();
    let a = setup.open("x", ENGINE);
    run(&a, "PRAGMA lsmvbt_history = 100");
    run(&a, "CREATE TABLE t(x); INSERT INTO t VALUES (1)");
    let then = one(&a, "PRAGMA lsmvbt_version");
    run(&a, "INSERT INTO t VALUES (2)");
    let old = format!("file:{}?version={then}", setup.path("x"));
    run(&a, &format!("ATTACH '{old}' AS old"));
    for (schema, rows) in [("old", "1"), ("main", "2")] {
        let image = a.serialize(schema).expect("an image");
        let memory = Connection::open(":memory:").expect("a database");
        memory.deserialize("main", &image).expect("its image");
        assert_eq!(one(&memory, "SELECT count(*) FROM t"), rows);
    }
}

#[test]
fn a_version_of_a_file_without_versions_is_refused() {
    let setup = Setup::new();
    let of = |name: &str| format!("file:{}?version=3", setup.path(name));
    assert!(Connection::open(&of("none")).is_err());
    assert!(!std::path::Path::new(&setup.path("none")).exists());
    let stock = setup.open("stock", "stock");
    run(&stock, "CREATE TABLE t(a)");
    assert!(Connection::open(&of("stock")).is_err());
    assert!(refused(&stock, &format!("ATTACH '{}' AS old", of("none"))).contains("unable to open"));
    assert_eq!(one(&stock, "PRAGMA integrity_check"), "ok");
}
