//! `onewrite_synchronous`: no commit is less durable than it says, whatever level the program runs
//! at.

use rusqlite::{Connection, OpenFlags};

use super::settings::heard;
use super::{MODES, Mode, open, open_flags, open_in, sql, status};

const FLOOR: &str = "PRAGMA onewrite_synchronous=full";

const FILL: &str = "INSERT INTO t WITH RECURSIVE n(value) AS (VALUES(1) UNION ALL \
                    SELECT value + 1 FROM n WHERE value < 200) SELECT value, randomblob(900) FROM n";

/// A connection at NORMAL that no pragma has raised, as in a SQLite that is compiled to run there.
fn at_normal(path: &std::path::Path, mode: Mode) -> Connection {
    let db = open_in(path, mode);
    sql(&db, "PRAGMA synchronous=NORMAL");
    sql(&db, FLOOR);
    assert_eq!(sql(&db, "PRAGMA synchronous"), "1");
    db
}

/// Calls that made commits durable.
fn durable_calls(db: &Connection) -> u64 {
    let status = status(db);
    let count = |name: &str| status[name].as_u64().expect("a count");
    count("flushes") + count("write_through")
}

fn calls_of(db: &Connection, statement: &str) -> u64 {
    let before = durable_calls(db);
    sql(db, statement);
    durable_calls(db) - before
}

#[test]
fn each_commit_at_normal_costs_what_one_at_full_does() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let (normal, full) = (
            at_normal(&directory.path().join("normal"), mode),
            open_in(&directory.path().join("full"), mode),
        );
        for db in [&normal, &full] {
            sql(db, "CREATE TABLE t(x)");
            sql(db, "INSERT INTO t VALUES('first')");
        }
        for number in 0..5 {
            let insert = format!("INSERT INTO t VALUES({number})");
            let (normal, full) = (calls_of(&normal, &insert), calls_of(&full, &insert));
            assert!(normal > 0, "{} {number}", mode.name);
            assert_eq!(normal, full, "{} {number}", mode.name);
        }
        sql(&normal, "PRAGMA onewrite_synchronous=none");
        assert_eq!(calls_of(&normal, "INSERT INTO t VALUES('last')"), 0);
    }
}

/// SQLite finishes the frames of such a transaction at its end, or not at all (before 3.50).
#[test]
fn a_commit_whose_frames_were_rewritten_is_flushed_once_it_is_whole() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = at_normal(&path, mode);
        sql(&db, "PRAGMA cache_size=10");
        sql(&db, "CREATE TABLE t(x, y)");
        for round in 0..3 {
            let before = durable_calls(&db);
            sql(&db, "BEGIN");
            sql(&db, FILL);
            sql(&db, "SAVEPOINT s");
            sql(&db, "UPDATE t SET y = randomblob(901)");
            sql(&db, "ROLLBACK TO s");
            sql(&db, "UPDATE t SET x = x + 1");
            sql(&db, "COMMIT");
            assert!(durable_calls(&db) > before, "{} {round}", mode.name);
            // A copy is the state after a kill, recovered from the log alone.
            let left = directory.path().join(format!("left{round}"));
            for suffix in ["", "-wal", "-onewrite"] {
                let copy = |path: &std::path::Path| format!("{}{suffix}", path.display());
                let _ = std::process::Command::new("cp")
                    .args([copy(&path), copy(&left)])
                    .output();
            }
            let rows = (200 * (round + 1)).to_string();
            let left = open(&left);
            assert_eq!(sql(&left, "SELECT count(*) FROM t"), rows, "{}", mode.name);
            assert_eq!(sql(&left, "PRAGMA integrity_check"), "ok");
        }
    }
}

#[test]
fn a_pragma_that_says_less_sets_the_floor_and_reads_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = open(&directory.path().join("db"));
    sql(&db, "PRAGMA journal_mode=onewrite");
    sql(&db, FLOOR);
    for (word, level) in [
        ("off", "2"),
        ("NORMAL", "2"),
        ("0", "2"),
        ("full", "2"),
        ("extra", "3"),
    ] {
        assert_eq!(sql(&db, &format!("PRAGMA synchronous={word}")), "");
        assert_eq!(sql(&db, "PRAGMA synchronous"), level, "{word}");
    }
    sql(&db, "PRAGMA onewrite_synchronous=extra");
    sql(&db, "PRAGMA synchronous=full");
    assert_eq!(sql(&db, "PRAGMA synchronous"), "3");
    sql(&db, "PRAGMA onewrite_synchronous=none");
    sql(&db, "PRAGMA synchronous=off");
    assert_eq!(sql(&db, "PRAGMA synchronous"), "0");
    // At OFF a checkpoint flushes nothing: the log alone could not hold the floor.
    sql(&db, "BEGIN");
    let refused = super::outcome(&db, FLOOR);
    assert!(refused.contains("within a transaction"), "{refused}");
    assert_eq!(sql(&db, "PRAGMA onewrite_synchronous"), "none");
    sql(&db, "COMMIT");
    sql(&db, FLOOR);
    assert_eq!(sql(&db, "PRAGMA synchronous"), "2");
}

/// A column without a name is what Python raises MemoryError for, and what ends PHP.
#[test]
fn a_pragma_that_is_raised_has_no_column_as_in_stock_sqlite() {
    let directory = tempfile::tempdir().expect("a directory");
    let stock = Connection::open_in_memory().expect("a database");
    for mode in MODES {
        let db = open_in(&directory.path().join(mode.name), mode);
        sql(&db, FLOOR);
        for word in ["NORMAL", "off", "0", "-1", "'no'", "''", "what"] {
            let pragma = format!("PRAGMA synchronous={word}");
            let columns = |db: &Connection| db.prepare(&pragma).map(|found| found.column_count());
            assert_eq!(columns(&db), columns(&stock), "{pragma}");
            let level = if word == "''" { "1" } else { "2" };
            assert_eq!(sql(&db, "PRAGMA synchronous"), level, "{pragma}");
            assert_eq!(status(&db)["synchronous"], "full", "{pragma}");
        }
    }
}

#[test]
fn the_status_has_the_level_that_holds_and_why() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = at_normal(&directory.path().join("db"), super::WALDIO);
    let told = status(&db);
    assert_eq!(told["synchronous"], "full");
    let why = told["synchronous_why"].to_string();
    assert!(why.contains("at normal") && why.contains("=full"), "{why}");
    sql(&db, "PRAGMA synchronous=FULL");
    assert_eq!(status(&db)["synchronous_why"], serde_json::Value::Null);
}

#[test]
fn uri_and_environment_set_the_floor() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let uri = format!("file:{}?onewrite_synchronous=full", path.display());
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    let db = open_flags(uri.as_ref(), "onewrite", flags).expect("a connection");
    sql(&db, "PRAGMA synchronous=normal");
    assert_eq!(sql(&db, "PRAGMA synchronous"), "2");
    let usual = [
        ("ONEWRITE_MAKE_DEFAULT", "1"),
        ("ONEWRITE_JOURNAL_MODE", "onewrite"),
    ];
    for (word, warned) in [
        ("full", false),
        ("extra", false),
        ("normal", true),
        ("off", true),
    ] {
        let path = directory.path().join(word);
        let (text, errors) = heard(
            &path,
            &[&usual[..], &[("ONEWRITE_SYNCHRONOUS", word)]].concat(),
        );
        assert_eq!(
            errors.contains("ONEWRITE_SYNCHRONOUS: "),
            warned,
            "{errors}"
        );
        assert_eq!(text.contains("warnings=[]"), !warned, "{text}");
    }
}

/// Threads that commit together share flushes, and each commit waits for one.
#[test]
fn threads_at_normal_share_their_flushes() {
    const THREADS: u64 = 4;
    const COMMITS: u64 = 20;
    for mode in ["onewrite", "direct"] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = open(&path);
        sql(&db, &format!("PRAGMA journal_mode={mode}"));
        sql(&db, "CREATE TABLE t(x)");
        let before = durable_calls(&db);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let db = open(&path);
                    db.busy_timeout(std::time::Duration::from_secs(120))
                        .expect("a timeout");
                    sql(&db, "PRAGMA synchronous=NORMAL");
                    sql(&db, FLOOR);
                    for x in 0..COMMITS {
                        sql(&db, &format!("INSERT INTO t VALUES({x})"));
                    }
                });
            }
        });
        let told = status(&db);
        let grouped = told["group_commits"]["commits"].as_u64().expect("a count");
        let flushes = told["group_commits"]["flushes"].as_u64().expect("a count");
        let alone = durable_calls(&db) - before - flushes;
        assert!(
            grouped + alone >= THREADS * COMMITS,
            "{grouped} {alone} of {mode}"
        );
        assert_eq!(
            sql(&db, "SELECT count(*) FROM t"),
            (THREADS * COMMITS).to_string()
        );
    }
}
