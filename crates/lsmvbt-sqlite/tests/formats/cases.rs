//! The contents of the databases.

/// A database: the SQL that writes it, and what is read from it.
pub struct Case {
    pub name: &'static str,
    /// The first format that has what it uses.
    pub since: u32,
    pub sql: &'static str,
    /// Queries and their rows.
    pub answers: &'static [(&'static str, &'static str)],
}

/// Updates of the one row in `history`.
pub const UPDATES: u64 = 20;

/// The row that each of the commits in `late` changes: the number of the commit times this.
pub const APART: u64 = 44;

/// Changes of the schema's numbers in `schemas`.
pub const SCHEMAS: u64 = 500;

/// A transaction that each database takes.
pub const MORE: &str = "BEGIN;
CREATE TABLE more(a);
INSERT INTO more WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT i FROM n;
COMMIT;";

pub const CASES: [Case; 11] = [
    // Small and large values, of each type.
    Case {
        name: "values",
        since: 1,
        sql: "CREATE TABLE t(a INTEGER PRIMARY KEY, b, c);
INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
  SELECT i, CASE i % 4 WHEN 0 THEN NULL WHEN 1 THEN i * 0.5 WHEN 2 THEN 'text ' || i ELSE CAST('blob ' || i AS BLOB) END,
  printf('%.*c', i * 7, 'x') FROM n;
INSERT INTO t VALUES (1000, 'large', zeroblob(100000)), (1001, 'larger', zeroblob(300000));
UPDATE t SET c = zeroblob(50000) WHERE a = 1000;
DELETE FROM t WHERE a BETWEEN 50 AND 99;",
        answers: &[
            ("SELECT count(*), sum(a), count(b), sum(length(c)) FROM t", "252|43426|189|639975"),
            ("SELECT typeof(b), count(*) FROM t WHERE a < 1000 GROUP BY 1", "blob|62\nnull|63\nreal|63\ntext|62"),
            ("SELECT b FROM t WHERE a = 102", "text 102"),
        ],
    },
    // Several trees: indexes, a table without rowids, a search index.
    Case {
        name: "trees",
        since: 1,
        sql: "CREATE TABLE t(a, b UNIQUE, c);
CREATE INDEX by_c ON t(c, a);
CREATE TABLE w(k TEXT PRIMARY KEY, v) WITHOUT ROWID;
CREATE VIRTUAL TABLE f USING fts5(words);
INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
  SELECT i, 'b' || (i * 7919 % 1000), i % 10 FROM n;
INSERT INTO w SELECT b, a FROM t;
INSERT INTO f SELECT 'row ' || a || ' of ' || c FROM t WHERE a <= 100;
DELETE FROM t WHERE c = 3;",
        answers: &[
            ("SELECT count(*), sum(a) FROM t INDEXED BY by_c WHERE c = 4", "50|12450"),
            ("SELECT count(*), sum(v) FROM w", "500|125250"),
            ("SELECT count(*) FROM f WHERE f MATCH 'row AND 7'", "10"),
        ],
    },
    // Versions that stay readable.
    Case {
        name: "history",
        since: 1,
        sql: "CREATE TABLE t(v);
PRAGMA lsmvbt_history = 8;
INSERT INTO t VALUES (0);
@UPDATES",
        answers: &[("SELECT v FROM t", "20"), ("PRAGMA lsmvbt_history", "8")],
    },
    // The same for a time, and a number of versions before that.
    Case {
        name: "times",
        since: 3,
        sql: "CREATE TABLE t(v);
PRAGMA lsmvbt_history = 8;
INSERT INTO t VALUES (0);
PRAGMA lsmvbt_history = '36500 days';
@UPDATES",
        answers: &[("SELECT v FROM t", "20"), ("PRAGMA lsmvbt_history", "36500 days")],
    },
    // More changes of the schema's numbers than the directory holds.
    Case {
        name: "schemas",
        since: 4,
        sql: "PRAGMA lsmvbt_history = 100000;
CREATE TABLE t(v);
@SCHEMAS",
        answers: &[("PRAGMA user_version", "500"), ("SELECT count(*) FROM t", "0")],
    },
    // Small commits, each in one page.
    Case {
        name: "trust",
        since: 1,
        sql: "PRAGMA lsmvbt_torn = trust;
CREATE TABLE t(v);
INSERT INTO t VALUES (0);
@UPDATES",
        answers: &[("SELECT v FROM t", "20")],
    },
    // The same, written twice.
    Case {
        name: "double",
        since: 1,
        sql: "PRAGMA lsmvbt_torn = double;
CREATE TABLE t(v);
INSERT INTO t VALUES (0);
@UPDATES",
        answers: &[("SELECT v FROM t", "20")],
    },
    // Commits of one row each, the last of which is in a page that another one's page changes.
    Case {
        name: "late",
        since: 7,
        sql: "PRAGMA lsmvbt_torn = trust;
CREATE TABLE t(a INTEGER PRIMARY KEY, v, w);
INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900)
  SELECT i, 0, printf('%.*c', 100, 'a') FROM n;
DELETE FROM t WHERE a % 4 = 1;
PRAGMA lsmvbt_reclaim;
@ROWS",
        answers: &[("SELECT sum(v), count(nullif(v, 0)), (SELECT v FROM t WHERE a = 880) FROM t", "210|20|20")],
    },
    // A transaction that has written pages in rounds, without an end.
    Case {
        name: "rounds",
        since: 5,
        sql: "PRAGMA lsmvbt_torn = double;
CREATE TABLE t(a INTEGER PRIMARY KEY, b);
INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
  SELECT i, printf('%.*c', 900, 'a') FROM n;
PRAGMA cache_size = 10;
BEGIN;
UPDATE t SET b = printf('%.*c', 900, 'b');",
        answers: &[("SELECT count(*), min(b) = max(b), substr(b, 1, 1) FROM t", "300|1|a")],
    },
    // Pages that are free, and a tree that is gone.
    Case {
        name: "freed",
        since: 1,
        sql: "CREATE TABLE gone(a);
CREATE TABLE t(a);
INSERT INTO gone WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
  SELECT printf('%.*c', 1000, 'g') FROM n;
INSERT INTO t SELECT rowid FROM gone;
DROP TABLE gone;
DELETE FROM t WHERE a % 2;",
        answers: &[("SELECT count(*), sum(a) FROM t", "100|10100"), ("SELECT count(*) FROM sqlite_schema WHERE name = 'gone'", "0")],
    },
    Case {
        name: "utf16",
        since: 1,
        sql: "PRAGMA encoding = 'UTF-16le';
CREATE TABLE t(a);
PRAGMA user_version = 7;
INSERT INTO t VALUES ('ä€𝄞'), ('z');",
        answers: &[("SELECT a, length(a) FROM t", "ä€𝄞|3\nz|1"), ("PRAGMA user_version", "7")],
    },
];
