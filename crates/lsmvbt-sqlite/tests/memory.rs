//! Memory that SQLite does not get: an error of the statement, and nothing else. In a program of its
//! own, because the limit is the process's.

use lsmvbt_sqlite::sqlite::{Connection, Statement, Value};

#[allow(unsafe_code)]
mod limit {
    unsafe extern "C" {
        fn sqlite3_hard_heap_limit64(bytes: i64) -> i64;
        fn sqlite3_memory_used() -> i64;
    }

    /// Refuses memory beyond what is in use and these bytes; `None` refuses nothing.
    pub fn set(beyond: Option<i64>) {
        // SAFETY: both only read and write numbers of SQLite's.
        unsafe {
            let limit = beyond.map_or(0, |beyond| sqlite3_memory_used() + beyond);
            sqlite3_hard_heap_limit64(limit);
        }
    }
}

/// Bytes by which the limit grows from run to run.
const STEP: i64 = 200;

/// A transaction with what the glue needs memory for: saved places, records that are unpacked, rows
/// that go from one table to another, savepoints, statements that go on across a change.
const WORK: &[&str] = &[
    "BEGIN",
    "INSERT INTO t SELECT a + 1000, b || 'x', randomblob(3000) FROM t WHERE a < 20",
    "SAVEPOINT s",
    "UPDATE t SET b = b || 'longer', a = a + 5000 WHERE a % 3 = 0",
    "DELETE FROM t WHERE a IN (SELECT x.a FROM t AS x JOIN t AS y ON x.b < y.b WHERE x.a % 7 = 0)",
    "ROLLBACK TO s",
    "UPDATE t SET c = zeroblob(9000) WHERE a % 5 = 0",
    "INSERT INTO u SELECT * FROM t",
    "REPLACE INTO w SELECT b, a FROM t",
    "DELETE FROM w WHERE k IN (SELECT b FROM t WHERE a % 2)",
    "RELEASE s",
    "CREATE INDEX v ON u(b, a)",
    "PRAGMA user_version = 9",
    "COMMIT",
];

const CONTENT: &str = "SELECT (SELECT count(*) || ',' || sum(a) || ',' || sum(length(c)) FROM t), \
    (SELECT count(*) FROM u), (SELECT count(*) || max(k) FROM w), \
    (SELECT count(*) FROM sqlite_schema)";

fn content(connection: &Connection) -> Vec<Vec<Value>> {
    connection.query(CONTENT).expect("the content")
}

fn template(path: &str) {
    let connection = Connection::open(&format!("file:{path}?engine=lsmvbt")).expect("a database");
    let script = "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c BLOB); CREATE INDEX i ON t(b, a); \
        CREATE TABLE u(a INTEGER PRIMARY KEY, b TEXT, c BLOB); \
        CREATE TABLE w(k TEXT PRIMARY KEY, n) WITHOUT ROWID; \
        WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 60) \
        INSERT INTO t SELECT x, printf('%0*d', 20 + x % 400, x), zeroblob(x * 10) FROM n; \
        INSERT INTO w SELECT b, a FROM t";
    connection.execute(script).expect("a table");
}

/// Works with so much memory. True if there was enough.
fn work(path: &str, beyond: i64) -> bool {
    let connection = Connection::open(path).expect("a database");
    let before = content(&connection);
    limit::set(Some(beyond));
    let mut failed = None;
    // A statement that reads all the while, so that places are saved.
    let mut reading = connection
        .statement("SELECT b FROM t ORDER BY b")
        .ok()
        .flatten();
    let mut complaints: Vec<String> = Vec::new();
    for sql in WORK {
        if let Some(Err(error)) = reading.as_mut().map(Statement::step) {
            complaints.push(error.message);
        }
        if let Err(error) = connection.execute(sql) {
            failed = Some(*sql);
            complaints.push(error.message);
            break;
        }
    }
    drop(reading);
    limit::set(None);
    for complaint in &complaints {
        assert_eq!(complaint, "out of memory", "{beyond} bytes: {failed:?}");
    }
    // SQLite may have rolled back already.
    let _ = connection.execute("ROLLBACK");
    let after = content(&connection);
    if failed.is_some_and(|sql| sql != "COMMIT") {
        assert!(
            after == before,
            "{beyond} bytes, {failed:?}: something is left"
        );
    } else if failed.is_none() {
        assert!(after != before, "{beyond} bytes: nothing is there");
    }
    let check = connection.query("PRAGMA integrity_check").expect("a check");
    assert_eq!(check[0][0].to_string(), "ok", "{beyond} bytes, {failed:?}");
    drop(connection);
    let again = Connection::open(path).expect("a database");
    assert!(content(&again) == after, "{beyond} bytes: {failed:?}");
    failed.is_none() && complaints.is_empty()
}

#[test]
fn memory_that_is_refused_fails_a_statement_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| {
        let path = directory.path().join(name);
        path.to_str().expect("UTF-8").to_owned()
    };
    template(&path("template"));
    let (mut beyond, mut in_a_row, mut failures) = (0, 0, 0);
    while in_a_row < 20 {
        let copy = path("copy");
        std::fs::copy(path("template"), &copy).expect("a copy");
        if work(&copy, beyond) {
            in_a_row += 1;
        } else {
            (in_a_row, failures) = (0, failures + 1);
        }
        beyond += STEP;
    }
    println!(
        "{failures} limits were too low, the last by {} bytes",
        20 * STEP
    );
    assert!(failures > 100, "{failures}");
}
