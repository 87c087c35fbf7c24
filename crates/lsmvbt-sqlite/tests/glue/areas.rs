//! SQL, area by area: the other engine answers as stock SQLite does.

use std::cell::RefCell;
use std::rc::Rc;

use lsmvbt_sqlite::sqlite::{Blob, Connection};

use crate::support::{Setup, alike, one, run};

/// The script gives the same on every engine, and fails nowhere.
fn succeeds(name: &str, script: &[&str]) {
    for said in alike(&Setup::new(), name, script) {
        assert!(said.contains(": ["), "{said}");
    }
}

const MANY: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)";

#[test]
fn the_engine_is_the_other_one() {
    let setup = Setup::new();
    for (engine, magic) in [
        ("model", b"glue test model\0"),
        ("lsmvbt", b"LSMVBT format 7\0"),
    ] {
        let connection = setup.open(engine, engine);
        assert_eq!(one(&connection, "PRAGMA journal_mode"), engine);
        run(&connection, "CREATE TABLE t(a)");
        let bytes = std::fs::read(setup.path(engine)).expect("the file");
        assert_eq!(bytes[..16], *magic);
    }
}

#[test]
fn tables_and_indexes() {
    succeeds(
        "tables",
        &[
            "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT UNIQUE, c BLOB, d)",
            "CREATE INDEX td ON t(d)",
            "CREATE INDEX te ON t(d DESC, b) WHERE a % 2",
            &format!(
                "{MANY} INSERT INTO t SELECT i, 'key' || (i * 7919 % 20011), zeroblob(i % 300), i % 97 FROM n"
            ),
            "INSERT INTO t(b, c) VALUES ('big', zeroblob(200000))",
            "SELECT count(*), sum(length(c)), max(b), min(b) FROM t",
            "SELECT a FROM t WHERE b = 'key7919'",
            "SELECT count(*) FROM t WHERE b > 'key5' AND b <= 'key7'",
            "SELECT a FROM t WHERE d = 13 ORDER BY b DESC LIMIT 5",
            "SELECT d, count(*) FROM t GROUP BY d ORDER BY d DESC LIMIT 7",
            "UPDATE t SET d = d + 50 WHERE d > 20",
            "UPDATE t SET a = a + 100000 WHERE a % 3 = 0",
            "UPDATE t SET b = 'u' || b WHERE d > 60",
            "DELETE FROM t WHERE d IN (SELECT d FROM t WHERE d > 120)",
            "DELETE FROM t WHERE a BETWEEN 100 AND 500",
            "SELECT count(*), sum(a), sum(d) FROM t",
            "REPLACE INTO t(a, b) VALUES (18, 'key7919')",
            "INSERT INTO t(a, b) VALUES (17, 'zz') ON CONFLICT(a) DO UPDATE SET b = 'up' || a",
            "SELECT a, b FROM t WHERE a IN (17, 18)",
            "DROP INDEX td",
            "REINDEX",
            "ANALYZE",
            "SELECT * FROM sqlite_stat1 ORDER BY 1, 2",
            "DELETE FROM t RETURNING a",
            "SELECT count(*) FROM t",
            "DROP TABLE t",
            "CREATE TABLE t(x)",
            "ALTER TABLE t ADD COLUMN y DEFAULT 7",
            "INSERT INTO t(x) VALUES (1)",
            "ALTER TABLE t RENAME COLUMN x TO z",
            "ALTER TABLE t DROP COLUMN y",
            "SELECT * FROM t",
        ],
    );
}

#[test]
fn tables_without_rowid() {
    succeeds(
        "without_rowid",
        &[
            "CREATE TABLE w(k TEXT COLLATE NOCASE, v, n, PRIMARY KEY(k, n DESC)) WITHOUT ROWID",
            "CREATE INDEX wv ON w(v)",
            &format!("{MANY} INSERT INTO w SELECT 'Key' || (i % 50), zeroblob(i), i FROM n"),
            "UPDATE w SET v = zeroblob(5000) WHERE n % 50 = 0",
            "UPDATE w SET k = upper(k) WHERE n % 7 = 0",
            "REPLACE INTO w VALUES ('kEY1', 'replaced', 51)",
            "SELECT k, n, length(v) FROM w WHERE k = 'key1' ORDER BY n",
            "SELECT count(*), sum(length(v)) FROM w WHERE k > 'key3'",
            "DELETE FROM w WHERE k BETWEEN 'KEY2' AND 'key4' AND n % 2",
            "SELECT k, n FROM w ORDER BY k DESC, n LIMIT 20",
            "SELECT count(*) FROM w",
        ],
    );
}

#[test]
fn keys_of_every_kind_in_the_order_of_sqlite() {
    succeeds(
        "keys",
        &[
            "CREATE TABLE k(a UNIQUE, b COLLATE NOCASE, c COLLATE RTRIM)",
            "CREATE INDEX kb ON k(b)",
            "CREATE INDEX kc ON k(c DESC)",
            "INSERT INTO k VALUES (NULL, NULL, NULL), (NULL, 1, 2), (-1, 'a', 'x  '), (1.5, 'A', 'x'), (1, 'b', 'y ')",
            "INSERT INTO k VALUES (9223372036854775807, 'B', 'X'), (-9223372036854775808, 'c', ''), (1e300, 'C', ' ')",
            "INSERT INTO k VALUES ('', '', x''), ('text', 'Text', 'text '), (x'', x'00', x'ff'), (x'0001', x'01', 'z')",
            "INSERT INTO k VALUES (9007199254740993, 'ä', 'Ä'), (9007199254740992.0, 'z', 'Z'), (0, 0.0, '0')",
            "SELECT typeof(a), a FROM k ORDER BY a",
            "SELECT b FROM k ORDER BY b, rowid",
            "SELECT c FROM k ORDER BY c DESC, rowid",
            "SELECT a FROM k WHERE b = 'A' ORDER BY rowid",
            "SELECT a FROM k WHERE c = 'x' ORDER BY rowid",
            "SELECT a FROM k WHERE a > 9007199254740992",
            "SELECT a FROM k WHERE a >= 9007199254740992.0",
            "CREATE INDEX ke ON k(lower(b)) WHERE a IS NOT NULL",
            "SELECT count(*) FROM k WHERE lower(b) = 'text' AND a IS NOT NULL",
        ],
    );
}

#[test]
fn utf16() {
    for encoding in ["UTF-16le", "UTF-16be"] {
        succeeds(
            encoding,
            &[
                &format!("PRAGMA encoding = '{encoding}'"),
                "CREATE TABLE t(a UNIQUE, b COLLATE NOCASE)",
                "INSERT INTO t VALUES ('ä', 'x'), ('z', 'Y'), ('a', 'y')",
                "SELECT * FROM t ORDER BY a",
                "SELECT * FROM t ORDER BY b, a",
                "PRAGMA encoding",
            ],
        );
    }
}

#[test]
fn joins_subqueries_windows_json() {
    succeeds(
        "queries",
        &[
            "CREATE TABLE a(i INTEGER PRIMARY KEY, x)",
            "CREATE TABLE b(j INTEGER PRIMARY KEY, i, y)",
            "CREATE INDEX bi ON b(i)",
            &format!("{MANY} INSERT INTO a SELECT i, i % 10 FROM n WHERE i <= 200"),
            &format!("{MANY} INSERT INTO b SELECT i, i % 250, json_object('v', i) FROM n"),
            "SELECT count(*), sum(x) FROM a JOIN b USING (i)",
            "SELECT count(*) FROM a LEFT JOIN b ON a.i = b.i AND b.j > 2000 WHERE b.j IS NULL",
            "SELECT count(*) FROM a FULL JOIN b ON a.i = b.i",
            "SELECT x, (SELECT max(j) FROM b WHERE b.i = a.i) FROM a ORDER BY i LIMIT 5",
            "SELECT i, sum(x) OVER (PARTITION BY x ORDER BY i ROWS 2 PRECEDING) FROM a ORDER BY i LIMIT 30",
            "SELECT sum(y ->> '$.v') FROM b WHERE y ->> '$.v' > 100",
            "SELECT count(*) FROM (SELECT i FROM a EXCEPT SELECT i FROM b)",
            "SELECT count(*) FROM (SELECT i FROM a INTERSECT SELECT i FROM b ORDER BY 1 DESC)",
            "SELECT i FROM a ORDER BY i DESC LIMIT 3 OFFSET 4",
        ],
    );
}

#[test]
fn transactions_savepoints_and_statements_that_fail() {
    alike(
        &Setup::new(),
        "transactions",
        &[
            "CREATE TABLE t(a INTEGER PRIMARY KEY, b UNIQUE, CHECK (b <> 666))",
            &format!("{MANY} INSERT INTO t SELECT i, i FROM n WHERE i <= 1000"),
            "BEGIN",
            "UPDATE t SET b = b + 5000",
            "SAVEPOINT s1",
            "DELETE FROM t WHERE a % 5 = 0",
            "SAVEPOINT s2",
            "DELETE FROM t",
            "SELECT count(*) FROM t",
            "ROLLBACK TO s2",
            "SELECT count(*) FROM t",
            "ROLLBACK TO s1",
            "SELECT count(*), sum(b) FROM t",
            "RELEASE s1",
            "COMMIT",
            "SELECT count(*), sum(b) FROM t",
            // A savepoint that is the transaction, undone as a whole, and used again.
            "SAVEPOINT whole",
            "DELETE FROM t WHERE a > 10",
            "CREATE TABLE u(x)",
            "ROLLBACK TO whole",
            "SELECT count(*) FROM t",
            "SELECT name FROM sqlite_schema ORDER BY name",
            "DELETE FROM t WHERE a > 990",
            "RELEASE whole",
            "SELECT count(*) FROM t",
            // Statements that fail half way.
            "UPDATE t SET b = 5500 WHERE a > 400",
            "SELECT count(*), sum(b) FROM t",
            "INSERT INTO t SELECT a + 10000, CASE a WHEN 700 THEN 666 ELSE a END FROM t",
            "SELECT count(*), sum(b) FROM t",
            "INSERT OR FAIL INTO t SELECT a + 10000, CASE a WHEN 700 THEN 666 ELSE a END FROM t",
            "INSERT OR IGNORE INTO t SELECT a + 10500, b FROM t WHERE a < 5",
            "BEGIN",
            "INSERT INTO t VALUES (50000, 50000)",
            "INSERT OR ROLLBACK INTO t VALUES (50001, 50000)",
            "COMMIT",
            "BEGIN",
            "DELETE FROM t WHERE a < 500",
            "DROP TABLE t",
            "ROLLBACK",
            "SELECT count(*), sum(b) FROM t",
        ],
    );
}

#[test]
fn triggers_and_foreign_keys() {
    alike(
        &Setup::new(),
        "triggers",
        &[
            "CREATE TABLE p(id INTEGER PRIMARY KEY, n)",
            "CREATE TABLE c(id INTEGER PRIMARY KEY, p REFERENCES p ON DELETE CASCADE ON UPDATE SET NULL)",
            "CREATE TABLE d(p REFERENCES p DEFERRABLE INITIALLY DEFERRED)",
            "CREATE TABLE log(x)",
            "CREATE TRIGGER tr AFTER INSERT ON p BEGIN INSERT INTO log VALUES ('+' || new.id); \
             UPDATE p SET n = -1 WHERE id = new.id - 1; END",
            "CREATE TRIGGER td BEFORE DELETE ON p WHEN old.id % 2 BEGIN INSERT INTO log VALUES ('-' || old.id); END",
            &format!("{MANY} INSERT INTO p SELECT i, i FROM n WHERE i <= 100"),
            &format!("{MANY} INSERT INTO c SELECT i, i % 100 + 1 FROM n"),
            "INSERT INTO c VALUES (100000, 5000)",
            "DELETE FROM p WHERE id < 30",
            "UPDATE p SET id = id + 1000 WHERE id > 90",
            "SELECT count(*), count(p) FROM c",
            "SELECT count(*), max(x) FROM log",
            "BEGIN",
            "INSERT INTO d VALUES (777)",
            "COMMIT",
            "INSERT INTO p VALUES (777, 0)",
            "COMMIT",
            "DELETE FROM p WHERE id = 777",
            "SELECT * FROM d",
            "CREATE VIEW v AS SELECT id FROM p",
            "CREATE TRIGGER tv INSTEAD OF DELETE ON v BEGIN DELETE FROM p WHERE id = old.id; END",
            "DELETE FROM v WHERE id BETWEEN 40 AND 50",
            "SELECT count(*), sum(id) FROM p",
            "PRAGMA foreign_key_check",
        ],
    );
}

#[test]
fn changes_under_a_scan() {
    succeeds(
        "scans",
        &[
            "CREATE TABLE t(a INTEGER PRIMARY KEY, b)",
            "CREATE INDEX tb ON t(b)",
            &format!("{MANY} INSERT INTO t SELECT i, i % 100 FROM n"),
            // The index that is scanned is the one that is changed.
            "UPDATE t SET b = b + 1 WHERE b BETWEEN 20 AND 30",
            "UPDATE t INDEXED BY tb SET b = b + 200 WHERE b >= 50",
            "DELETE FROM t INDEXED BY tb WHERE b > 220 AND a % 3 = 0",
            "INSERT INTO t SELECT a + 100000, b FROM t",
            "UPDATE t SET a = -a WHERE a > 100000",
            "UPDATE OR REPLACE t SET a = a + 1 WHERE a < 1000 AND a > 0",
            "SELECT count(*), sum(a), sum(b) FROM t",
            "DELETE FROM t WHERE a IN (SELECT a FROM t WHERE b % 2)",
            "SELECT count(*), sum(a), sum(b) FROM t",
        ],
    );
}

#[test]
fn full_text_and_rtree() {
    succeeds(
        "virtual",
        &[
            "CREATE VIRTUAL TABLE f USING fts5(x, y)",
            &format!("{MANY} INSERT INTO f SELECT 'w' || (i % 100) || ' common', 'n' || i FROM n"),
            "INSERT INTO f(f) VALUES ('optimize')",
            "SELECT count(*) FROM f WHERE f MATCH 'common AND w7'",
            "DELETE FROM f WHERE rowid % 2",
            "UPDATE f SET x = 'changed' WHERE rowid % 10 = 0",
            "SELECT count(*) FROM f WHERE f MATCH 'changed'",
            "INSERT INTO f(f) VALUES ('integrity-check')",
            "CREATE VIRTUAL TABLE g USING fts4(x)",
            &format!("{MANY} INSERT INTO g SELECT 'alpha beta' || (i % 10) FROM n WHERE i < 500"),
            "SELECT count(*) FROM g WHERE g MATCH 'beta3'",
            "CREATE VIRTUAL TABLE r USING rtree(id, x0, x1, y0, y1)",
            &format!(
                "{MANY} INSERT INTO r SELECT i, i % 60, i % 60 + 2, i / 60, i / 60 + 3 FROM n"
            ),
            "SELECT count(*), sum(id) FROM r WHERE x0 > 10 AND x1 < 30 AND y0 > 5",
            "DELETE FROM r WHERE id % 3",
            "SELECT count(*), sum(id) FROM r WHERE x0 > 10 AND x1 < 30 AND y0 > 5",
            "SELECT rtreecheck('r')",
            "DROP TABLE f",
            "DROP TABLE g",
            "DROP TABLE r",
        ],
    );
}

#[test]
fn pragmas() {
    succeeds(
        "pragmas",
        &[
            "PRAGMA user_version = 77",
            "PRAGMA application_id = 5",
            "CREATE TABLE t(a, b)",
            "PRAGMA user_version",
            "PRAGMA application_id",
            "PRAGMA table_info(t)",
            "PRAGMA quick_check",
            "PRAGMA foreign_key_check",
            "PRAGMA synchronous = NORMAL",
            "PRAGMA cache_size = 50",
            "PRAGMA freelist_count",
            "PRAGMA incremental_vacuum",
            "PRAGMA wal_checkpoint",
            "PRAGMA optimize",
        ],
    );
}

/// A search for equality trusts an equal record that it has compared with: that record must be
/// live.
#[test]
fn equality_with_what_is_gone() {
    succeeds(
        "gone",
        &[
            "CREATE TABLE t(a INTEGER PRIMARY KEY, c)",
            "CREATE TABLE w(k, n, v, PRIMARY KEY(k, n)) WITHOUT ROWID",
            "CREATE INDEX wv ON w(v)",
            &format!("{MANY} INSERT INTO t SELECT i, i FROM n WHERE i < 100"),
            &format!("{MANY} INSERT INTO w SELECT 'k' || i, i % 7, i % 100 FROM n"),
            "DELETE FROM w WHERE v % 3 = 0",
            "SELECT a, (SELECT max(n) FROM w WHERE v = t.c), (SELECT min(n) FROM w WHERE v = t.c) FROM t",
            "SELECT a, (SELECT k FROM w WHERE v = t.c ORDER BY v DESC, k DESC LIMIT 1) FROM t",
            "DELETE FROM w WHERE v > 50",
            "SELECT a, (SELECT max(n) FROM w WHERE v = t.c), (SELECT min(n) FROM w WHERE v = t.c) FROM t",
            "DELETE FROM w",
            "SELECT a, (SELECT max(n) FROM w WHERE v = t.c), (SELECT min(n) FROM w WHERE v = t.c) FROM t",
        ],
    );
}

#[test]
fn long_values_of_one_row_after_another() {
    succeeds(
        "long",
        &[
            "CREATE TABLE t(a INTEGER PRIMARY KEY, b)",
            "INSERT INTO t VALUES (1, printf('%.5000c', 'x')), (2, printf('%.5000c', 'y')), (3, printf('%.5000c', 'z'))",
            "SELECT a, substr(b, 4990) FROM t",
            "SELECT t.a, substr(u.b, 4990), substr(t.b, 4990) FROM t JOIN t AS u ON u.a >= t.a",
            "CREATE TABLE u AS SELECT b FROM t",
            "SELECT substr(b, 4990) FROM u",
            "UPDATE t SET b = b || 'end'",
            "SELECT a, substr(b, 4990) FROM t",
        ],
    );
}

/// UPDATE OR REPLACE pins its cursor while it deletes conflicting rows, so that triggers cannot
/// change the table.
#[test]
fn a_trigger_that_takes_away_what_update_or_replace_is_at() {
    let said = alike(
        &Setup::new(),
        "pinned",
        &[
            "PRAGMA recursive_triggers = on",
            "CREATE TABLE t(a UNIQUE, b UNIQUE)",
            "CREATE TRIGGER tt AFTER DELETE ON t BEGIN DELETE FROM t; END",
            "INSERT INTO t VALUES (1, NULL), (0, NULL)",
            "UPDATE OR REPLACE t SET b = 1",
            "SELECT * FROM t",
            "CREATE TABLE w(a PRIMARY KEY, b UNIQUE, c UNIQUE) WITHOUT ROWID",
            "CREATE TRIGGER wt AFTER DELETE ON w BEGIN DELETE FROM w; END",
            "INSERT INTO w VALUES (1, 1, 1), (2, 2, 2)",
            "UPDATE OR REPLACE w SET c = 0",
            "SELECT * FROM w",
            // Where no rows are left, none conflict.
            "CREATE TABLE v(a UNIQUE, b UNIQUE)",
            "CREATE TRIGGER vt AFTER DELETE ON v BEGIN INSERT INTO v VALUES (old.a + 10, NULL); END",
            "INSERT INTO v VALUES (1, NULL), (0, NULL)",
            "UPDATE OR REPLACE v SET b = 1",
            "SELECT * FROM v ORDER BY a",
        ],
    );
    for statement in ["UPDATE OR REPLACE t", "UPDATE OR REPLACE w"] {
        let refused = said.iter().find(|said| said.starts_with(statement));
        assert!(
            refused.is_some_and(|said| said.contains("constraint failed")),
            "{refused:?}"
        );
    }
}

#[test]
fn a_blob_that_a_collation_cannot_read_stays_on_its_row() {
    let setup = Setup::new();
    for engine in crate::support::ENGINES {
        // Leaked, so that the collation can hold a BLOB of it.
        let connection: &'static Connection =
            Box::leak(Box::new(setup.open(&format!("collation.{engine}"), engine)));
        let in_collation: Rc<RefCell<Option<Blob<'static>>>> = Rc::default();
        let blob = Rc::clone(&in_collation);
        let compare = move |left: &[u8], right: &[u8]| {
            if let Some(blob) = &*blob.borrow() {
                // SQLITE_MISUSE, where the other engine is at work.
                let _ = blob.read(20_000, 4);
            }
            left.cmp(right)
        };
        let made = connection.create_collation("reads", Box::new(compare));
        made.expect("a collation");
        run(
            connection,
            "CREATE TABLE t(a INTEGER PRIMARY KEY, b); CREATE TABLE u(x TEXT COLLATE reads); CREATE INDEX i ON u(x);
             INSERT INTO u VALUES ('a'), ('b'), ('c')",
        );
        for row in 1..=7 {
            run(
                connection,
                &format!(
                    "INSERT INTO t VALUES ({row}, replace(hex(zeroblob(20000)), '0', '{row}'))"
                ),
            );
        }
        let blob = connection.blob("t", "b", 1, true).expect("a BLOB");
        // One row after the other: a cursor that goes on has looked ahead.
        for row in 2..=4 {
            blob.reopen(row).expect("the next row");
        }
        *in_collation.borrow_mut() = Some(blob);
        assert_eq!(one(connection, "SELECT x FROM u WHERE x = 'b'"), "b");
        let blob = in_collation.take().expect("the BLOB");
        assert_eq!(blob.read(20_000, 4).expect("read"), b"4444", "{engine}");
    }
}

#[test]
fn incremental_blobs() {
    let setup = Setup::new();
    for engine in crate::support::ENGINES {
        let connection = setup.open(&format!("blob.{engine}"), engine);
        run(
            &connection,
            "CREATE TABLE t(a INTEGER PRIMARY KEY, b, c); INSERT INTO t VALUES (1, 'x', zeroblob(20000))",
        );
        run(
            &connection,
            "INSERT INTO t VALUES (2, 'y', x'010203'), (3, 'z', zeroblob(100))",
        );
        let blob = connection.blob("t", "c", 1, true).expect("a BLOB");
        assert_eq!(blob.size(), 20000);
        blob.write(15000, b"hello").expect("written");
        assert_eq!(blob.read(14999, 7).expect("read"), b"\0hello\0");
        assert!(blob.write(19998, b"past").is_err(), "past the end");
        // A change of another row leaves it alone; a change of its own row ends it.
        run(
            &connection,
            "UPDATE t SET b = 'other' WHERE a = 2; INSERT INTO t VALUES (9, 9, 9)",
        );
        assert_eq!(blob.read(15000, 5).expect("read"), b"hello");
        run(&connection, "UPDATE t SET b = 'own' WHERE a = 1");
        assert_eq!(
            blob.read(15000, 5).expect_err("expired").code,
            4,
            "SQLITE_ABORT on {engine}"
        );
        assert!(blob.reopen(2).is_err(), "expired for good");
        drop(blob);
        let blob = connection.blob("t", "c", 3, true).expect("a BLOB");
        blob.reopen(2).expect("another row");
        assert_eq!(blob.read(0, 3).expect("read"), [1, 2, 3]);
        run(&connection, "DELETE FROM t WHERE a = 2");
        assert_eq!(
            blob.read(0, 3).expect_err("expired").code,
            4,
            "SQLITE_ABORT on {engine}"
        );
        drop(blob);
        assert_eq!(
            one(
                &connection,
                "SELECT hex(substr(c, 15000, 7)) FROM t WHERE a = 1"
            ),
            "0068656C6C6F00"
        );
        assert!(connection.blob("t", "c", 77, true).is_err());
        let blob = connection.blob("t", "c", 3, false).expect("a BLOB to read");
        assert_eq!(
            blob.write(0, b"x").expect_err("only to read").code,
            8,
            "SQLITE_READONLY"
        );
    }
}

/// A value of 2 MiB in pieces of a page, with 50 pages in memory: a piece costs the same wherever it is.
#[test]
fn a_long_blob_is_written_in_pieces_without_reading_all_of_it_for_each() {
    const PIECES: i32 = 512;
    let setup = Setup::new();
    let connection = setup.open("pieces", "lsmvbt");
    run(
        &connection,
        "PRAGMA lsmvbt_torn = trust; PRAGMA cache_size = 50; CREATE TABLE t(a INTEGER PRIMARY KEY, b); \
         INSERT INTO t VALUES (1, zeroblob(2097152)); BEGIN",
    );
    let read = || -> i32 {
        let status = one(&connection, "PRAGMA onewrite_status").replace('\'', "''");
        let sql = format!("SELECT json_extract('{status}', '$.pages_read')");
        one(&connection, &sql).parse().expect("a number")
    };
    let blob = connection.blob("t", "b", 1, true).expect("a BLOB");
    let mut costs = Vec::new();
    for quarter in 0..4 {
        let before = read();
        for piece in quarter * PIECES / 4..(quarter + 1) * PIECES / 4 {
            blob.write(piece * 4096, &[piece as u8; 4096])
                .expect("written");
        }
        costs.push(read() - before);
    }
    println!("pages read by each quarter: {costs:?}");
    // The first piece copies the value.
    assert!(
        costs[0] < 5 * PIECES && costs[1..].iter().all(|cost| *cost < 2 * PIECES),
        "{costs:?}"
    );
    for piece in 0..PIECES {
        let found = blob.read(piece * 4096, 4096).expect("read");
        assert!(found == [piece as u8; 4096], "{piece}");
    }
    drop(blob);
    run(&connection, "COMMIT");
    assert_eq!(one(&connection, "PRAGMA integrity_check"), "ok");
}
