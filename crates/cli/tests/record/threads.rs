//! `onewrite replay --threads recorded`: several connections at once, as recorded.

use std::fs::File;
use std::path::{Path, PathBuf};

use onewrite_record::event::{Event, Outcome, Start, When};
use onewrite_record::file::{Header, Writer};
use onewrite_record::rows::{Kind, Row, Rows};
use serde_json::Value;

use super::common::{path, python, text};
use super::{assert_right, onewrite, record};

/// Replays with a thread for each connection.
fn replay(dir: &Path, trace: &Path, modes: &str, more: &[&str]) -> Value {
    let words = [
        "replay",
        path(trace),
        "--modes",
        modes,
        "--threads",
        "recorded",
        "--dir",
        path(dir),
        "--json",
    ];
    let output = onewrite(&[&words, more].concat());
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

/// Eight threads whose statements are transactions of their own: they commute. A barrier makes
/// them call SQLite at once.
const CROWD: &str = r#"
import sqlite3, sys, threading
path = sys.argv[1]
first = sqlite3.connect(path)
first.executescript("PRAGMA journal_mode=WAL; CREATE TABLE t (who, n)")
gate = threading.Barrier(8)
def work(who):
    db = sqlite3.connect(path, timeout=60, isolation_level=None)
    for n in range(12):
        gate.wait()
        db.execute("INSERT INTO t VALUES (?, ?)", (who, n))
    db.close()
threads = [threading.Thread(target=work, args=(who,)) for who in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert first.execute("SELECT count(*) FROM t").fetchone() == (96,)
first.close()
"#;

#[test]
fn writers_that_overlapped_overlap_again_and_come_to_the_same() {
    let Some(python) = python("sys") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let trace = record(dir.path(), &[path(&python), "-c", CROWD]);
    for more in [&[][..], &["--speed", "recorded"]] {
        let document = replay(dir.path(), &trace, "wal,onewrite", more);
        assert_right(&document);
        assert_eq!(document["threads"], "recorded");
        for run in document["runs"].as_array().expect("runs") {
            assert_eq!(run["commits"], 97, "{run:#}");
            let together = &run["together"];
            assert_eq!(together["threads"], 9, "{run:#}");
            assert!(together["overlapped"].as_u64() > Some(0), "{run:#}");
            assert!(together["raced"].as_u64() > Some(0), "{run:#}");
            assert_eq!(together["late"], 0, "{run:#}");
            assert_eq!(run["checked"]["stuck"], Value::Null, "{run:#}");
        }
    }
}

/// The program reads a row between two others' statements.
const CURSOR: &str = r#"
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("CREATE TABLE t (a)")
db.execute("INSERT INTO t VALUES (1), (2), (3)")
for row in db.execute("SELECT a FROM t"):
    time.sleep(0.002)
    db.execute("UPDATE t SET a = a WHERE a = ?", row)
db.close()
"#;

#[test]
fn each_part_of_a_run_is_recorded_with_its_own_time() {
    let Some(python) = python("sys") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let trace = record(dir.path(), &[path(&python), "-c", CURSOR]);
    let file = File::open(trace).expect("a trace");
    let mut reader = onewrite_record::file::Reader::new(file).expect("a trace");
    let (mut parts, mut last) = (0, 0);
    while let Some(event) = reader.next_event().expect("whole") {
        match event {
            Event::Run { when, .. } | Event::Exec { when, .. } => last = when.at,
            Event::More { when, .. } => {
                parts += 1;
                assert!(when.at > last, "{} {last}", when.at);
            }
            _ => {}
        }
    }
    assert!(parts >= 2, "{parts}");
}

/// A call of a trace that is written here: its connection, text, times in milliseconds, and
/// whether it ends outside a transaction.
type Call<'t> = (u64, &'t str, [u64; 2], bool);

/// One row that `sqlite3_exec` shows.
fn row(text: &str) -> Rows {
    let mut rows = Rows::default();
    let mut row = Row::default();
    row.add(Kind::Text, text.as_bytes());
    rows.add(row);
    rows
}

/// Writes a trace with three connections to a new database. A query's recorded result is `shown`.
fn written(dir: &Path, calls: &[Call<'_>], shown: &str) -> PathBuf {
    let (trace, database) = (dir.join("written.trace"), b"/app.db".to_vec());
    let file = File::create(&trace).expect("a file");
    let mut writer = Writer::new(file, Header::default()).expect("a trace");
    let mut put = |event: Event| writer.put(&event).expect("written");
    put(Event::Process {
        number: 1,
        pid: 1,
        arguments: Vec::new(),
    });
    put(Event::Database {
        path: database.clone(),
        start: Start::Empty,
    });
    for connection in 1..=3 {
        put(Event::Open {
            at: connection,
            connection,
            flags: 6,
            name: database.clone(),
            path: database.clone(),
            version: rusqlite::version().into(),
        });
    }
    for (connection, sql, [from, to], autocommit) in calls {
        let when = When {
            at: from * 1_000_000,
            took: (to - from) * 1_000_000,
            thread: *connection,
        };
        let outcome = Outcome {
            code: 0,
            autocommit: *autocommit,
            rows: sql.starts_with("SELECT").then(|| row(shown)),
        };
        put(Event::Exec {
            when,
            connection: *connection,
            sql: sql.as_bytes().to_vec(),
            outcome,
        });
    }
    writer.finish().expect("written");
    trace
}

const BEGINNING: [Call<'_>; 2] = [
    (1, "CREATE TABLE t (a)", [1, 2], true),
    (1, "INSERT INTO t VALUES (10)", [3, 4], true),
];

#[test]
fn transactions_that_conflict_are_played_in_either_order_and_counted() {
    let dir = tempfile::tempdir().expect("a directory");
    let calls = [
        (1, "BEGIN IMMEDIATE", [10, 20], false),
        (1, "UPDATE t SET a = a * 2", [21, 30], false),
        (1, "COMMIT", [40, 50], true),
        (2, "BEGIN IMMEDIATE", [15, 55], false),
        (2, "UPDATE t SET a = a + 1", [56, 60], false),
        (2, "COMMIT", [61, 70], true),
        // This one is apart, and sees the result of both.
        (3, "SELECT typeof(a) FROM t", [80, 81], true),
    ];
    let trace = written(dir.path(), &[&BEGINNING[..], &calls].concat(), "integer");
    let document = replay(dir.path(), &trace, "delete,wal,onewrite", &[]);
    for run in document["runs"].as_array().expect("runs") {
        assert_eq!(run["commits"], 4, "{run:#}");
        assert_eq!(run["together"]["raced"], 6, "{run:#}");
        assert_eq!(run["together"]["late"], 0, "{run:#}");
        let checked = &run["checked"];
        assert_eq!(checked["stuck"], Value::Null, "{run:#}");
        assert_eq!(checked["differ_from_recorded"]["count"], 0, "{run:#}");
    }
}

#[test]
fn only_differences_of_transactions_that_raced_are_excused() {
    let dir = tempfile::tempdir().expect("a directory");
    for (query, raced) in [([10, 20], 0), ([10, 35], 1)] {
        let calls = [
            (2, "SELECT a FROM t", query, true),
            (3, "INSERT INTO t VALUES (11)", [30, 40], true),
        ];
        // Neither order returns this.
        let trace = written(dir.path(), &[&BEGINNING[..], &calls].concat(), "99");
        let document = replay(dir.path(), &trace, "wal", &[]);
        let run = &document["runs"][0];
        let together = &run["together"];
        assert_eq!(together["raced_differ_from_recorded"]["count"], raced);
        let differ = &run["checked"]["differ_from_recorded"];
        assert_eq!(differ["count"], 1 - raced, "{run:#}");
        assert_eq!(document["same_as_recorded"], raced == 1, "{document:#}");
    }
}

#[test]
fn the_order_gives_way_to_a_lock_that_the_recorded_mode_did_not_take() {
    let dir = tempfile::tempdir().expect("a directory");
    let calls = [
        (2, "BEGIN", [10, 11], false),
        (2, "SELECT a FROM t", [12, 20], false),
        (3, "INSERT INTO t VALUES (11)", [30, 40], true),
        (2, "COMMIT", [60, 70], true),
    ];
    let calls = [&BEGINNING[..], &calls].concat();
    let trace = written(dir.path(), &calls, "10");
    let document = replay(dir.path(), &trace, "delete,wal", &[]);
    assert_eq!(document["same_in_all_modes"], true, "{document:#}");
    assert_eq!(document["same_as_recorded"], true, "{document:#}");
    let runs = document["runs"].as_array().expect("runs");
    let counts = |run: &Value| {
        let waited = run["checked"]["waited"].as_u64().expect("a number");
        (run["together"]["passed"].clone(), waited > 0)
    };
    assert_eq!(counts(&runs[0]), (1.into(), true), "{document:#}");
    assert_eq!(counts(&runs[1]), (0.into(), false), "{document:#}");
    // Without its end the reader holds the lock for good.
    let trace = written(dir.path(), &calls[..calls.len() - 1], "10");
    let document = replay(dir.path(), &trace, "delete", &[]);
    let stuck = document["runs"][0]["checked"]["stuck"].as_str();
    assert!(
        stuck.is_some_and(|stuck| stuck.contains("INSERT INTO t VALUES (11)")),
        "{document:#}"
    );
    assert_eq!(document["same_in_all_modes"], false);
}

/// What a replay in WAL modes counts, apart from the device's work.
fn tried_again(document: &Value) -> Vec<(u64, u64, u64)> {
    let runs = document["runs"].as_array().expect("runs");
    let counts = runs.iter().map(|run| {
        assert_eq!(run["checked"]["stuck"], Value::Null, "{document:#}");
        let number = |value: &Value| value.as_u64().expect("a number");
        (
            number(&run["together"]["tried_again"]),
            number(&run["statements"]),
            number(&run["commits"]),
        )
    });
    counts.collect()
}

/// The reader's snapshot is older than the other commit, so that its own write is refused. The first
/// script also commits before its transaction begins, which must not happen twice.
#[test]
fn a_transaction_that_is_refused_for_its_snapshot_is_played_again_from_its_beginning() {
    let dir = tempfile::tempdir().expect("a directory");
    let one_call_each = [
        (2, "BEGIN", [10, 11], false),
        (2, "SELECT a FROM t", [12, 13], false),
        (3, "INSERT INTO t VALUES (11)", [20, 30], true),
        (2, "INSERT INTO t SELECT count(*) FROM t", [40, 50], false),
        (2, "COMMIT", [60, 70], true),
    ];
    let script = [
        (2, "BEGIN", [10, 11], false),
        (2, "INSERT INTO t VALUES (7)", [12, 13], false),
        (
            2,
            "COMMIT; BEGIN; SELECT 10 FROM t LIMIT 1",
            [14, 15],
            false,
        ),
        (3, "INSERT INTO t VALUES (11)", [20, 30], true),
        (
            2,
            "SELECT 10 FROM t LIMIT 1; DELETE FROM t WHERE a = 7; COMMIT",
            [40, 50],
            true,
        ),
    ];
    for (calls, statements, commits, content) in [
        (&one_call_each[..], 7, 4, "2"),
        (&script[..], 11, 5, "10, 11"),
    ] {
        let calls = [&BEGINNING[..], calls].concat();
        let trace = written(dir.path(), &calls, "10");
        let document = replay(dir.path(), &trace, "wal,onewrite,waldio,direct", &[]);
        let expected = (1, statements, commits);
        assert_eq!(tried_again(&document), [expected; 4], "{content}");
        assert_eq!(document["same_in_all_modes"], true, "{document:#}");
        assert_eq!(document["same_as_recorded"], true, "{document:#}");
    }
}

/// Threads that read, and then write what follows from it. A thread whose transaction is refused
/// rolls it back and tries again at once. Its cursor is finalized within the transaction.
const READ_THEN_WRITE: &str = r#"
import sqlite3, sys, threading
path = sys.argv[1]
first = sqlite3.connect(path)
first.executescript("PRAGMA journal_mode=WAL; CREATE TABLE t (who, n); INSERT INTO t VALUES (0, 0)")
gate = threading.Barrier(6)
def attempt(db, who):
    try:
        db.execute("BEGIN")
        n = db.execute("SELECT max(n) FROM t").fetchone()[0]
        db.execute("INSERT INTO t VALUES (?, ?)", (who, n + 1))
        db.execute("COMMIT")
        return True
    except sqlite3.OperationalError:
        db.execute("ROLLBACK")
        return False
def work(who):
    db = sqlite3.connect(path, timeout=60, isolation_level=None, cached_statements=0)
    for _ in range(10):
        gate.wait()
        while not attempt(db, who):
            pass
    db.close()
threads = [threading.Thread(target=work, args=(who,)) for who in range(6)]
[t.start() for t in threads]
[t.join() for t in threads]
assert first.execute("SELECT count(*), max(n) FROM t").fetchone() == (61, 60)
first.close()
"#;

#[test]
fn threads_that_read_and_then_write_come_to_the_end_in_every_wal_mode() {
    let Some(python) = python("sys") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let trace = record(dir.path(), &[path(&python), "-c", READ_THEN_WRITE]);
    let document = replay(dir.path(), &trace, "wal,onewrite", &[]);
    for (_, _, commits) in tried_again(&document) {
        assert_eq!(commits, 62, "{document:#}");
    }
    for run in document["runs"].as_array().expect("runs") {
        let checked = &run["checked"];
        assert_eq!(checked["differ_from_recorded"]["count"], 0, "{run:#}");
        assert_eq!(run["together"]["threads"], 7, "{run:#}");
    }
}
