//! `VACUUM` in place and `PRAGMA incremental_vacuum`, which make a file shorter.

use std::time::Duration;

use lsmvbt_sqlite::sqlite::Connection;

use crate::raw;
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

/// Its one transaction went through a slot, and there were two: the copy was four times as large.
#[test]
fn a_copy_takes_little_more_than_one_of_stock_sqlite() {
    let setup = Setup::new();
    let connection = setup.open("x", "lsmvbt");
    run(
        &connection,
        "CREATE TABLE t(a INTEGER PRIMARY KEY, b);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
         INSERT INTO t SELECT i, hex(randomblob(250)) FROM n",
    );
    for engine in ["stock", "lsmvbt"] {
        let uri = setup.uri(engine, engine);
        run(&connection, &format!("VACUUM INTO '{uri}'"));
    }
    let bytes = |name: &str| std::fs::metadata(setup.path(name)).expect("a copy").len();
    let (stock, copy) = (bytes("stock"), bytes("lsmvbt"));
    assert!(copy * 10 < stock * 13, "{copy}, and {stock} in stock");
    let copy = setup.open("lsmvbt", "lsmvbt");
    run(&copy, "INSERT INTO t(b) VALUES (1)");
    assert_eq!(one(&copy, "SELECT count(*) FROM t"), "5001");
    assert_eq!(one(&copy, "PRAGMA integrity_check"), "ok");
    let torn = "PRAGMA lsmvbt_torn";
    assert_eq!(one(&copy, torn), one(&connection, torn));
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

const INTERRUPT: i32 = 9;

/// A connection whose handlers a test sets.
fn with_handlers(setup: &Setup) -> raw::Db {
    raw::Db::open(&setup.uri("x", "lsmvbt"), raw::CREATE)
}

/// Found by reading: nothing could end a VACUUM. What it has done stays, and the next one does the rest.
#[test]
fn vacuum_can_be_interrupted_between_steps() {
    for torn in ["trust", "double"] {
        let setup = Setup::new();
        let connection = thinned(&setup, torn);
        let (before, size) = (content(&connection), bytes(&setup));
        let db = with_handlers(&setup);
        for by_progress in [true, false] {
            for steps in 1..5 {
                let mut calls = 0;
                let mut asked = || {
                    calls += 1;
                    if calls == steps && !by_progress {
                        db.interrupt();
                    }
                    calls == steps && by_progress
                };
                db.on_progress(&mut asked);
                assert_eq!(db.run("VACUUM"), INTERRUPT, "{torn} {steps}");
                db.leave_alone();
                assert_eq!(db.error().1, "interrupted");
                assert_eq!(content(&connection), before);
            }
        }
        assert_eq!(db.run("VACUUM"), 0, "{:?}", db.error());
        assert!(bytes(&setup) * 3 < size);
        assert_eq!(content(&connection), before);
        assert_eq!(db.close(), 0);
    }
}

/// Found by reading: all waits of a VACUUM together counted as one, and began it again. Each of its steps
/// has the whole timeout now: the busy handler's calls count from 0 again.
#[test]
fn each_step_of_vacuum_may_wait() {
    for torn in ["trust", "double"] {
        let setup = Setup::new();
        let connection = thinned(&setup, torn);
        let size = bytes(&setup);
        let other = setup.open("x", "lsmvbt");
        let before = content(&connection);
        let db = with_handlers(&setup);
        let is_locked = std::cell::Cell::new(false);
        let (mut steps, mut waits) = (0, 0);
        let mut between = || {
            steps += 1;
            if steps % 2 == 0 && !is_locked.replace(true) {
                run(&other, "BEGIN IMMEDIATE");
            }
            false
        };
        let mut wait = |call| {
            waits += 1;
            if call == 2 {
                run(&other, "ROLLBACK");
                is_locked.set(false);
            }
            // It gives up at the fourth call for one lock.
            call < 3
        };
        db.on_progress(&mut between);
        db.on_busy(&mut wait);
        assert_eq!(db.run("VACUUM"), 0, "{:?}", db.error());
        db.leave_alone();
        assert!(waits > 6, "{waits} waits in {steps} steps");
        if is_locked.get() {
            run(&other, "ROLLBACK");
        }
        assert_eq!(content(&connection), before);
        assert!(bytes(&setup) * 3 < size);
        // A wait that is too long ends it.
        run(&other, "BEGIN IMMEDIATE");
        let mut never = |_| false;
        db.on_busy(&mut never);
        assert_eq!(db.run("VACUUM"), BUSY);
        db.leave_alone();
        run(&other, "COMMIT");
        assert_eq!(db.close(), 0);
    }
}

/// Found by reading: the pages moved before the other database had committed. In both orders: the
/// databases commit in that of their numbers.
#[test]
fn incremental_vacuum_waits_for_the_other_databases() {
    for (first, second) in [("x", "y"), ("y", "x")] {
        let setup = Setup::new();
        let connection = thinned(&setup, "trust");
        let (before, size) = (content(&connection), bytes(&setup));
        for engine in ["stock", "lsmvbt"] {
            let y_name = format!("y.{engine}");
            let other = setup.open(&y_name, engine);
            run(&other, "PRAGMA journal_mode = WAL; CREATE TABLE u(a)");
            let uri = |name: &str| match name {
                "x" => setup.uri("x", "lsmvbt"),
                _ => setup.uri(&y_name, engine),
            };
            let db = raw::Db::open(&uri(first), raw::CREATE);
            assert_eq!(db.run(&format!("ATTACH '{}' AS other", uri(second))), 0);
            let (x, y) = match first {
                "x" => ("main", "other"),
                _ => ("other", "main"),
            };
            let pages = number(&connection, "PRAGMA page_count");
            let begin =
                format!("BEGIN; INSERT INTO {y}.u VALUES (1); PRAGMA {x}.incremental_vacuum(20)");
            assert_eq!(db.run(&begin), 0);
            assert_eq!(db.run("ROLLBACK"), 0);
            assert_eq!(number(&connection, "PRAGMA page_count"), pages);
            assert_eq!(db.run(&begin), 0);
            // Between the steps that move pages the other database has committed.
            let mut steps = 0;
            let mut between = || {
                steps += 1;
                assert_eq!(number(&other, "SELECT count(*) FROM u"), 1);
                false
            };
            db.on_progress(&mut between);
            assert_eq!(db.run("COMMIT"), 0);
            db.leave_alone();
            assert!(steps > 2, "{steps}");
            assert_eq!(number(&connection, "PRAGMA page_count"), pages - 20);
            assert_eq!(db.close(), 0);
        }
        assert!(bytes(&setup) < size);
        assert_eq!(content(&connection), before);
    }
}
