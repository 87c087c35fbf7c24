//! The mode that the URI or the environment asks for: when the database gets it, and what is said if
//! it does not. Words that mean nothing are loud.

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use super::settings::{heard, heard_from};
use super::{open, open_flags, sql, status, stock};

#[test]
fn a_uri_that_names_no_journal_mode_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let uri = format!("file:{}?journal_mode=waldo", path.display());
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    let refused = open_flags(uri.as_ref(), "onewrite", flags)
        .and_then(|db| db.execute_batch("CREATE TABLE t(x)"))
        .expect_err("no mode has this name")
        .to_string();
    for told in [
        "unknown value 'waldo'",
        "use direct, waldio, swal, onewrite",
        "db",
    ] {
        assert!(refused.contains(told), "{refused}");
    }
}

/// Neither can be had: the database would stay in a stock mode, and nobody would notice.
#[test]
fn a_uri_whose_settings_are_not_for_its_journal_mode_is_refused() {
    let cases = [
        (
            "journal_mode=onewrite&onewrite_layout=page4k",
            "onewrite_layout: journal mode onewrite has a layout of its own; page4k is for journal_mode=waldio",
        ),
        (
            "onewrite_layout=gathered&journal_mode=SWAL",
            "onewrite_layout: journal mode swal has",
        ),
        (
            "journal_mode=direct&onewrite_group_synch=4,2",
            "use journal_mode=waldio",
        ),
        (
            "journal_mode=swal&onewrite_checkpoint=exchange",
            "use journal_mode=onewrite or waldio",
        ),
    ];
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let made = directory.path().join("made");
    sql(&stock(&made), "CREATE TABLE t(x)");
    for (settings, told) in cases {
        for path in [&path, &made] {
            let uri = format!("file:{}?{settings}", path.display());
            let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
            let refused = open_flags(uri.as_ref(), "onewrite", flags)
                .and_then(|db| db.execute_batch("SELECT count(*) FROM sqlite_schema"))
                .expect_err(settings)
                .to_string();
            assert!(refused.contains(told), "{settings}: {refused}");
        }
        assert!(!path.exists(), "{settings}");
    }
    // A stock mode leaves the settings for a later pragma.
    let uri = format!(
        "file:{}?journal_mode=delete&onewrite_layout=page4k",
        path.display()
    );
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    let db = open_flags(uri.as_ref(), "onewrite", flags).expect("a connection");
    assert_eq!(sql(&db, "PRAGMA journal_mode=waldio"), "waldio");
    assert_eq!(status(&db)["layout"], "page4k");
}

/// A connection whose URI asks for a mode.
fn asking_for(mode: &str, path: &Path) -> Connection {
    let uri = format!("file:{}?journal_mode={mode}", path.display());
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    open_flags(uri.as_ref(), "onewrite", flags).expect("a connection")
}

#[test]
fn a_new_database_is_in_the_requested_mode_when_it_is_asked_for_its_mode() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in ["onewrite", "waldio", "swal", "direct"] {
        for question in ["PRAGMA journal_mode", "PRAGMA onewrite_status"] {
            let name = format!("{mode}, {question}");
            let path = directory.path().join(&name);
            let db = asking_for(mode, &path);
            // What must be chosen before the first page is chosen before the question.
            sql(&db, "PRAGMA page_size=8192");
            sql(&db, "PRAGMA auto_vacuum=incremental");
            sql(&db, question);
            let log = path.with_file_name(format!("{name}-onewrite"));
            assert!(log.exists(), "{name}");
            assert_eq!(sql(&db, "PRAGMA journal_mode"), mode, "{name}");
            let requested = serde_json::json!({"mode": mode, "by": "URI", "why_not": null});
            assert_eq!(status(&db)["requested"], requested, "{name}");
            let writes = || status(&db)["writes"].as_u64().expect("a number");
            let before = writes();
            sql(&db, "CREATE TABLE t(x)");
            // The first transaction is in the mode's log.
            assert!(writes() > before, "{name}");
            assert_eq!(sql(&db, "PRAGMA page_size"), "8192", "{name}");
            assert_eq!(sql(&db, "PRAGMA auto_vacuum"), "2", "{name}");
        }
    }
}

#[test]
fn a_new_database_that_nobody_asks_has_the_requested_mode_when_it_has_a_table() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in ["onewrite", "waldio", "swal", "direct"] {
        let path = directory.path().join(mode);
        let db = asking_for(mode, &path);
        // Other statements change nothing that must be chosen before the first table.
        assert_eq!(sql(&db, "SELECT count(*) FROM sqlite_schema"), "0");
        assert_eq!(sql(&db, "PRAGMA synchronous"), "2");
        sql(&db, "PRAGMA page_size=8192");
        sql(&db, "PRAGMA auto_vacuum=incremental");
        sql(&db, "CREATE TABLE t(x)");
        assert_eq!(sql(&db, "PRAGMA journal_mode"), mode);
        let requested = serde_json::json!({"mode": mode, "by": "URI", "why_not": null});
        assert_eq!(status(&db)["requested"], requested);
        assert_eq!(sql(&db, "PRAGMA page_size"), "8192");
        assert_eq!(sql(&db, "PRAGMA auto_vacuum"), "2");
    }
}

/// The environment asks as the URI does. Its program may compare the answer with "wal".
#[test]
fn a_new_database_answers_the_mode_of_the_environment_to_the_first_statement() {
    let directory = tempfile::tempdir().expect("a directory");
    let cases: [(&[(&str, &str)], &str); 2] = [
        (&[], "answer=onewrite"),
        (&[("ONEWRITE_UPGRADE_WAL", "1")], "answer=wal"),
    ];
    for (number, (variables, answer)) in cases.into_iter().enumerate() {
        let usual = [
            ("ONEWRITE_MAKE_DEFAULT", "1"),
            ("ONEWRITE_JOURNAL_MODE", "onewrite"),
        ];
        let path = directory.path().join(number.to_string());
        let (text, _) = heard_from(
            "requested::child_that_asks",
            &path,
            &[&usual, variables].concat(),
        );
        assert!(text.contains(answer), "{text}");
        assert!(text.contains("mode=\"onewrite\""), "{text}");
    }
}

/// In its own process, with the variables of its test.
#[test]
#[ignore = "run by another test"]
fn child_that_asks() {
    let path = std::env::var_os("ONEWRITE_TEST_DATABASE").expect("a database");
    onewrite::register().expect("the VFS");
    let db = Connection::open(path).expect("a connection");
    println!("answer={}", sql(&db, "PRAGMA journal_mode"));
    println!("mode={}", status(&db)["mode"]);
}

/// A question never fails, and does not wait for a connection that writes.
#[test]
fn a_new_database_that_another_connection_is_making_answers_its_present_mode() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let other = stock(&path);
    sql(&other, "BEGIN IMMEDIATE");
    sql(&other, "CREATE TABLE t(x)");
    let mut db = asking_for("onewrite", &path);
    static WAITS: AtomicU32 = AtomicU32::new(0);
    fn waits(_: i32) -> bool {
        WAITS.fetch_add(1, Ordering::Relaxed) < 100
    }
    db.busy_handler(Some(waits)).expect("a busy handler");
    assert_eq!(sql(&db, "PRAGMA journal_mode"), "delete");
    let why = status(&db)["requested"]["why_not"].to_string();
    assert!(why.contains("the database is new"), "{why}");
    assert_eq!(WAITS.load(Ordering::Relaxed), 0);
    sql(&other, "COMMIT");
    drop(other);
    assert_eq!(sql(&db, "PRAGMA journal_mode"), "onewrite");
    assert_eq!(sql(&db, "SELECT count(*) FROM t"), "0");
}

#[test]
fn a_connection_that_only_reads_leaves_a_new_database_empty() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    std::fs::write(&path, "").expect("an empty file");
    let uri = format!("file:{}?journal_mode=onewrite", path.display());
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let db = open_flags(uri.as_ref(), "onewrite", flags).expect("a connection");
    assert_eq!(sql(&db, "PRAGMA journal_mode"), "delete");
    let why = status(&db)["requested"]["why_not"].to_string();
    assert!(why.contains("read-only"), "{why}");
    let entries = std::fs::read_dir(directory.path()).expect("a directory");
    assert_eq!(entries.count(), 1);
    assert_eq!(std::fs::metadata(&path).expect("a file").len(), 0);
}

/// By the table-valued function the column has a name that drivers can ask for.
#[test]
fn the_mode_has_a_column_of_its_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let uri = format!("file:{}?journal_mode=onewrite", path.display());
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    let db = open_flags(uri.as_ref(), "onewrite", flags).expect("a connection");
    let named = "SELECT journal_mode FROM pragma_journal_mode";
    // It asks within a statement that reads, and no mode changes there.
    assert_eq!(sql(&db, named), "delete");
    assert_eq!(sql(&db, "PRAGMA journal_mode"), "onewrite");
    assert_eq!(sql(&db, named), "onewrite");
    sql(&db, "CREATE TABLE t(x)");
    assert_eq!(sql(&db, named), "onewrite");
}

/// The mode cannot change within a transaction, so it changes later.
#[test]
fn a_transaction_that_asks_for_the_mode_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let uri = format!("file:{}?journal_mode=onewrite", path.display());
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    let db = open_flags(uri.as_ref(), "onewrite", flags).expect("a connection");
    sql(&db, "BEGIN");
    assert_eq!(sql(&db, "PRAGMA journal_mode"), "delete");
    sql(&db, "CREATE TABLE t(x)");
    let why = status(&db)["requested"]["why_not"].to_string();
    assert!(why.contains("within a transaction"), "{why}");
    sql(&db, "COMMIT");
    assert_eq!(sql(&db, "PRAGMA journal_mode"), "onewrite");
    assert_eq!(sql(&db, "SELECT count(*) FROM t"), "0");
}

#[test]
fn the_status_says_why_the_requested_mode_is_not_in_use() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let other = stock(&path);
    sql(&other, "CREATE TABLE t(x)");
    sql(&other, "BEGIN");
    sql(&other, "SELECT * FROM t");
    let uri = format!("file:{}?journal_mode=onewrite", path.display());
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    let db = open_flags(uri.as_ref(), "onewrite", flags).expect("a connection");
    let told = status(&db);
    assert_eq!(told["mode"], serde_json::Value::Null);
    let why = told["requested"]["why_not"].as_str().unwrap_or_default();
    assert!(why.contains("another connection"), "{told}");
    drop(other);
    sql(&db, "PRAGMA journal_mode=delete");
    let why = status(&db)["requested"]["why_not"].to_string();
    assert!(why.contains("the program has named"), "{why}");
}

#[test]
fn words_that_mean_nothing_are_warnings_in_the_status() {
    let directory = tempfile::tempdir().expect("a directory");
    let cases: [(&[(&str, &str)], &str); 10] = [
        (
            &[("ONEWRITE_JOURNAL_MODE", "waldo")],
            "ONEWRITE_JOURNAL_MODE: unknown value 'waldo'",
        ),
        (
            &[("ONEWRITE_UPGRADE_WAL", "wadlio")],
            "ONEWRITE_UPGRADE_WAL: unknown value 'wadlio'",
        ),
        (
            &[("ONEWRITE_LAYOUT", "page5k")],
            "ONEWRITE_LAYOUT: onewrite_layout: unknown value 'page5k'",
        ),
        (
            &[("ONEWRITE_LOG", "paper")],
            "ONEWRITE_LOG: unknown value 'paper': use stderr, journald or sqlite, or an absolute path",
        ),
        (
            &[("ONEWRITE_MAKE_DEFAULT", "si")],
            "ONEWRITE_MAKE_DEFAULT: unknown value 'si': use 1 or 0",
        ),
        (
            &[
                ("ONEWRITE_UPGRADE_WAL", "1"),
                ("ONEWRITE_JOURNAL_MODE", "wal"),
            ],
            "ONEWRITE_UPGRADE_WAL: 1 needs a mode of onewrite in ONEWRITE_JOURNAL_MODE, which is wal",
        ),
        (
            &[("ONEWRITE_UPGRADE_WAL", "1")],
            "ONEWRITE_UPGRADE_WAL: 1 needs a mode of onewrite in ONEWRITE_JOURNAL_MODE, which is not set",
        ),
        (
            &[("ONEWRITE_SYNCHRONUS", "full")],
            "ONEWRITE_SYNCHRONUS: no variable has this name: use ONEWRITE_SYNCHRONOUS",
        ),
        (
            &[
                ("ONEWRITE_JOURNAL_MODE", "onewrite"),
                ("ONEWRITE_LAYOUT", "page4k"),
            ],
            "onewrite_layout: journal mode onewrite has a layout of its own; page4k is for journal_mode=waldio",
        ),
        (&[("ONEWRITE_JOURNAL_MODE", "onewrite")], ""),
    ];
    for (number, (variables, told)) in cases.into_iter().enumerate() {
        let usual = [("ONEWRITE_MAKE_DEFAULT", "yes")];
        let path = directory.path().join(number.to_string());
        let (text, errors) = heard(&path, &[&usual, variables].concat());
        let lines = errors.lines().filter(|line| line.starts_with("onewrite: "));
        // Each is told once, however many connections meet it.
        assert_eq!(lines.count(), usize::from(!told.is_empty()), "{errors}");
        assert!(errors.contains(told), "{told}: {errors}");
        // Without our VFS there is no status.
        let expected = match told {
            "" => "warnings=[]",
            _ if told.starts_with("ONEWRITE_MAKE_DEFAULT") => "warnings=null",
            _ => &format!("warnings=[\"{told}"),
        };
        assert_eq!(text.matches(expected).count(), 2, "{expected}: {text}");
    }
}

#[test]
fn a_file_with_the_name_of_a_uri_is_noticed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("file:app.db?vfs=onewrite");
    let db = open_flags(
        &path,
        "onewrite",
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
    )
    .expect("a connection");
    let warnings = &status(&db)["warnings"];
    let told = warnings[0].as_str().unwrap_or_default();
    assert!(
        told.contains("took this one for a file's name"),
        "{warnings}"
    );
}

/// Most drivers hide SQLite's log.
#[test]
fn the_log_goes_to_standard_error_where_the_environment_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    for (log, expected) in [("stderr", true), ("sqlite", false)] {
        let path = directory.path().join(log);
        let db = open(&path);
        sql(&db, "PRAGMA journal_mode=onewrite");
        sql(&db, "CREATE TABLE t(x)");
        drop(db);
        let other = stock(&path);
        sql(&other, "BEGIN");
        sql(&other, "SELECT * FROM t");
        let variables = [("ONEWRITE_MAKE_DEFAULT", "1"), ("ONEWRITE_LOG", log)];
        let (_, errors) = heard(&path, &variables);
        let told = errors.contains("event=mode_refused mode=onewrite");
        assert_eq!(told, expected, "{errors}");
    }
}

#[test]
fn a_database_in_stock_wal_stays_there_and_the_status_says_why() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    sql(&stock(&path), "PRAGMA journal_mode=wal");
    let uri = format!("file:{}?journal_mode=onewrite", path.display());
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    let db = open_flags(uri.as_ref(), "onewrite", flags).expect("a connection");
    assert_eq!(sql(&db, "PRAGMA journal_mode"), "wal");
    let why = status(&db)["requested"]["why_not"].to_string();
    assert!(why.contains("PRAGMA journal_mode=onewrite"), "{why}");
    assert_eq!(sql(&db, "PRAGMA journal_mode=onewrite"), "onewrite");
}

#[test]
fn the_status_has_the_level_of_its_connection() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = open(&directory.path().join("db"));
    sql(&db, "PRAGMA journal_mode=onewrite");
    for level in ["off", "normal", "full", "extra"] {
        sql(&db, &format!("PRAGMA synchronous={level}"));
        assert_eq!(status(&db)["synchronous"], level);
    }
}

/// Connections open a new database at the same moment, and each converts it.
#[test]
fn connections_that_meet_in_a_new_database_are_all_in_the_requested_mode() {
    const CONNECTIONS: usize = 6;
    let begin = Instant::now();
    for (round, mode) in ["direct", "onewrite", "direct", "waldio", "direct", "swal"]
        .iter()
        .cycle()
        .take(60)
        .enumerate()
    {
        if round > 6 && begin.elapsed() > Duration::from_secs(60) {
            break;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let uri = format!("file:{}?journal_mode={mode}", path.display());
        let (start, made) = (Barrier::new(CONNECTIONS), Barrier::new(CONNECTIONS));
        let (modes, whys): (Vec<String>, Vec<String>) = std::thread::scope(|scope| {
            let connect = || {
                start.wait();
                let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
                let opened = open_flags(uri.as_ref(), "onewrite", flags).and_then(|db| {
                    db.busy_timeout(Duration::from_secs(120))?;
                    db.execute_batch("CREATE TABLE IF NOT EXISTS t(x); INSERT INTO t VALUES(1)")?;
                    Ok(db)
                });
                // All have it open from here on. One that failed keeps nobody waiting.
                made.wait();
                let db = opened.expect("a connection");
                (
                    sql(&db, "PRAGMA journal_mode"),
                    status(&db)["requested"]["why_not"].to_string(),
                )
            };
            let all: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(connect)).collect();
            let joined = all.into_iter().map(|one| one.join().expect("no panic"));
            joined.unzip()
        });
        assert_eq!(modes, [*mode; CONNECTIONS], "round {round}: {whys:?}");
        assert_eq!(sql(&open(&path), "SELECT count(*) FROM t"), "6");
    }
}
