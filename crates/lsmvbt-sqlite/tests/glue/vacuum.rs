//! `VACUUM` in place and `PRAGMA incremental_vacuum`, which make a file shorter.

use std::time::Duration;

use lsmvbt_sqlite::sqlite::Connection;

use crate::support::{Setup, one, refused, run, transcript};

const ROWS: u32 = 4000;
const BUSY: i32 = 5;

/// A database with an index, a table WITHOUT ROWID and long values, of which nine of ten rows are gone.
fn thinned(setup: &Setup, torn: &str) -> Connection {
    let connection = setup.open("x", "lsmvbt");
    run(
        &connection,
        "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c BLOB);
         CREATE INDEX tb ON t(b);
         CREATE TABLE w(k TEXT PRIMARY KEY, v) WITHOUT ROWID;",
    );
    assert_eq!(
        one(&connection, &format!("PRAGMA lsmvbt_torn = {torn}")),
        torn
    );
    let numbers =
        format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})");
    run(
        &connection,
        &format!(
            "{numbers} INSERT INTO t SELECT i, 'text ' || i, zeroblob(iif(i % 30 = 0, 9000, 200)) FROM n;
             {numbers} INSERT INTO w SELECT 'key ' || i, i FROM n;"
        ),
    );
    for part in 0..9 {
        run(
            &connection,
            &format!("DELETE FROM t WHERE a % 10 = {part}; DELETE FROM w WHERE v % 10 = {part};"),
        );
    }
    connection
}

fn number(connection: &Connection, sql: &str) -> u64 {
    one(connection, sql).parse().expect("a number")
}

fn bytes(setup: &Setup) -> u64 {
    std::fs::metadata(setup.path("x")).expect("the file").len()
}

/// All that the tables and the index hold.
fn content(connection: &Connection) -> Vec<String> {
    assert_eq!(one(connection, "PRAGMA integrity_check"), "ok");
    let queries = [
        "SELECT group_concat(a || b || hex(substr(c, 1, 8)) || length(c)) FROM (SELECT * FROM t ORDER BY a)",
        "SELECT group_concat(b) FROM (SELECT b FROM t INDEXED BY tb ORDER BY b)",
        "SELECT group_concat(k || v) FROM (SELECT * FROM w ORDER BY k)",
        "SELECT group_concat(sql) FROM sqlite_schema",
    ];
    queries.map(|sql| one(connection, sql)).to_vec()
}

#[test]
fn vacuum_in_place_makes_the_file_shorter() {
    for torn in ["trust", "double"] {
        let setup = Setup::new();
        let connection = thinned(&setup, torn);
        let (before, size) = (content(&connection), bytes(&setup));
        run(&connection, "VACUUM");
        assert_eq!(content(&connection), before);
        let now = bytes(&setup);
        run(
            &connection,
            &format!("VACUUM INTO '{}'", setup.uri("copy", "lsmvbt")),
        );
        let copy = std::fs::metadata(setup.path("copy")).expect("a copy").len();
        println!("{torn}: {size} bytes became {now}, a copy has {copy}");
        assert!(
            now * 3 < size && now * 10 < copy * 13,
            "{size} to {now}, a copy has {copy}"
        );
        assert_eq!(number(&connection, "PRAGMA page_count") * 4096, now);
        let free = number(&connection, "PRAGMA freelist_count");
        assert!(free <= 12 + now / 4096 / 16, "{free}");
        let other = setup.open("x", "lsmvbt");
        run(&other, "INSERT INTO w VALUES ('new', 0)");
        run(&connection, "DELETE FROM w WHERE k = 'new'; VACUUM main");
        assert_eq!(content(&other), before);
    }
}

#[test]
fn incremental_vacuum_removes_so_many_pages() {
    for torn in ["trust", "double"] {
        let setup = Setup::new();
        let connection = thinned(&setup, torn);
        let before = content(&connection);
        run(
            &connection,
            "DROP INDEX tb; CREATE INDEX tb ON t(b); DELETE FROM w WHERE v % 20;",
        );
        run(
            &connection,
            "INSERT INTO w VALUES ('x', 0); DELETE FROM w WHERE k = 'x'",
        );
        let count = number(&connection, "PRAGMA page_count");
        let free = number(&connection, "PRAGMA freelist_count");
        assert!(free > 60, "{free}");
        let rows = connection
            .query("PRAGMA incremental_vacuum(20)")
            .expect("removed");
        assert_eq!(rows.len(), 20);
        assert_eq!(number(&connection, "PRAGMA page_count"), count - 20);
        assert_eq!(bytes(&setup), (count - 20) * 4096);
        // In a transaction, with other changes; and taken back.
        run(
            &connection,
            "BEGIN; INSERT INTO w VALUES ('x', 0); PRAGMA incremental_vacuum(10); ROLLBACK",
        );
        assert_eq!(number(&connection, "PRAGMA page_count"), count - 20);
        run(
            &connection,
            "BEGIN; INSERT INTO w VALUES ('x', 0); PRAGMA incremental_vacuum(10); COMMIT",
        );
        assert_eq!(number(&connection, "PRAGMA page_count"), count - 30);
        run(&connection, "DELETE FROM w WHERE k = 'x'");
        run(&connection, "PRAGMA incremental_vacuum");
        let now = number(&connection, "PRAGMA page_count");
        assert!(
            now + free / 2 < count,
            "{count} pages, {free} of them free, became {now}"
        );
        assert_eq!(content(&connection)[..2], before[..2]);
        assert_eq!(one(&connection, "PRAGMA auto_vacuum"), "0");
    }
}

#[test]
fn vacuum_is_refused_where_stock_sqlite_refuses_it() {
    let setup = Setup::new();
    let said = ["stock", "lsmvbt"].map(|engine| {
        let connection = setup.open(&format!("refused.{engine}"), engine);
        transcript(
            &connection,
            &[
                "CREATE TABLE t(a)",
                "BEGIN",
                "VACUUM",
                "COMMIT",
                "PRAGMA query_only = ON",
                "VACUUM",
                "PRAGMA query_only = OFF",
                "VACUUM",
                "VACUUM nowhere",
                "INSERT INTO t VALUES (1)",
                "SELECT * FROM t",
            ],
        )
    });
    assert_eq!(said[0], said[1]);
    let uri = format!("file:{}?mode=ro", setup.path("refused.lsmvbt"));
    let reader = Connection::open(&uri).expect("a reader");
    assert!(refused(&reader, "VACUUM").contains("attempt to write a readonly database"));
}

#[test]
fn a_reader_or_a_history_leaves_the_free_end_alone() {
    let setup = Setup::new();
    let connection = thinned(&setup, "trust");
    let reader = setup.open("x", "lsmvbt");
    run(&reader, "BEGIN");
    let rows = one(&reader, "SELECT count(*) FROM t");
    run(&connection, "DELETE FROM t WHERE a % 20");
    let before = content(&connection);
    let busy = connection.query("VACUUM").expect_err("there is a reader");
    assert_eq!(busy.code, BUSY, "{}", busy.message);
    for part in [
        "end its transaction, and repeat VACUUM",
        "VACUUM INTO writes a compact copy",
    ] {
        assert!(busy.message.contains(part), "{}", busy.message);
    }
    assert_eq!(one(&reader, "SELECT count(*) FROM t"), rows);
    assert_eq!(one(&reader, "PRAGMA integrity_check"), "ok");
    run(&reader, "COMMIT");
    assert_eq!(one(&connection, "PRAGMA lsmvbt_history = 5"), "5");
    let words = refused(&connection, "VACUUM");
    assert!(
        words.contains("set PRAGMA lsmvbt_history = 0, and repeat VACUUM"),
        "{words}"
    );
    assert_eq!(one(&connection, "PRAGMA lsmvbt_history = 0"), "0");
    let size = bytes(&setup);
    run(&connection, "VACUUM");
    assert!(bytes(&setup) * 3 < size);
    assert_eq!(content(&connection), before);
    assert_eq!(content(&reader), before);
}

#[test]
fn a_vacuum_waits_for_readers_as_busy_timeout_says() {
    let setup = Setup::new();
    let connection = thinned(&setup, "trust");
    run(&connection, "PRAGMA busy_timeout = 60000");
    let reader = setup.open("x", "lsmvbt");
    run(&reader, "BEGIN");
    one(&reader, "SELECT count(*) FROM t");
    run(&connection, "DELETE FROM t WHERE a % 20");
    let (before, size) = (content(&connection), bytes(&setup));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            run(&reader, "COMMIT");
        });
        run(&connection, "VACUUM");
    });
    assert!(bytes(&setup) * 3 < size);
    assert_eq!(content(&connection), before);
}

/// Two connections write, and each gives space back in turn.
#[test]
fn connections_vacuum_in_turns() {
    let setup = Setup::new();
    let (a, b) = (thinned(&setup, "double"), setup.open("x", "lsmvbt"));
    for round in 0..6 {
        let (one, other) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        run(
            one,
            &format!(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
                 INSERT INTO t(b, c) SELECT 'new ' || i, zeroblob(2000) FROM n;
                 DELETE FROM t WHERE b GLOB 'new *' AND a % 7 <> {round}"
            ),
        );
        run(
            other,
            ["VACUUM", "PRAGMA incremental_vacuum(50)"][round % 2],
        );
        run(one, "PRAGMA incremental_vacuum(30)");
        assert_eq!(content(&a), content(&b));
    }
}
