//! What a URI and the environment say, for applications that say nothing themselves.

use super::{open_flags, sql, status, stock};
use rusqlite::OpenFlags;
use std::process::Command;

#[test]
fn a_uri_names_mode_and_settings() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let uri = format!(
        "file:{}?vfs=onewrite&journal_mode=waldio&onewrite_layout=page4k&onewrite_sync=normal",
        path.display()
    );
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    let open = || open_flags(uri.as_ref(), "onewrite", flags).expect("a connection");
    let db = open();
    sql(&db, "CREATE TABLE t(x)");
    drop(db);
    let db = open();
    sql(&db, "INSERT INTO t VALUES(1)");
    assert_eq!(sql(&db, "PRAGMA journal_mode"), "waldio");
    let status = status(&db);
    assert_eq!(
        (&status["layout"], &status["sync"]),
        (&"page4k".into(), &"normal".into())
    );
    // What the application says counts more.
    assert_eq!(sql(&db, "PRAGMA journal_mode=delete"), "delete");
    assert_eq!(sql(&db, "PRAGMA journal_mode"), "delete");
    let bad = format!("file:{}?onewrite_sync=sometimes", path.display());
    assert!(open_flags(bad.as_ref(), "onewrite", flags).is_err());
}

/// The connection that converts a database for another one makes its log as that one was told to.
#[test]
fn a_database_that_is_converted_by_its_uri_gets_the_log_that_the_uri_describes() {
    for (layout, init, direct) in [
        ("sector", "zero-fill", "off"),
        ("page4k", "unwritten", "auto"),
        ("page8k", "zero-fill", "auto"),
        ("embedded", "unwritten", "off"),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        // There is content already, in a rollback mode, with room for frame headers.
        let db = open_flags(&path, "onewrite", OpenFlags::default()).expect("a connection");
        sql(&db, "PRAGMA onewrite_reserve_bytes=24");
        sql(&db, "CREATE TABLE t(x)");
        sql(&db, "INSERT INTO t VALUES(1)");
        drop(db);
        let uri = format!(
            "file:{}?journal_mode=waldio&onewrite_layout={layout}&onewrite_init={init}\
             &onewrite_direct_io={direct}",
            path.display()
        );
        let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
        let db = open_flags(uri.as_ref(), "onewrite", flags).expect("a connection");
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "1");
        sql(&db, "INSERT INTO t VALUES(2)");
        let status = status(&db);
        assert_eq!(status["mode"], "waldio");
        assert_eq!(status["layout"], layout);
        assert_eq!(status["init"], init);
        if direct == "off" {
            assert_eq!(status["direct_io"], false);
            assert_eq!(status["direct_io_why_not"], "direct I/O was turned off");
        }
        drop(db);
        assert_eq!(sql(&stock(&path), "SELECT count(*) FROM t"), "2");
    }
}

/// The child of the test below.
#[test]
#[ignore = "run by another test"]
fn child() {
    let path = std::env::var_os("ONEWRITE_TEST_DATABASE").expect("a path");
    onewrite::register().expect("the VFS onewrite");
    for _ in 0..2 {
        let db = rusqlite::Connection::open(&path).expect("a connection by the default VFS");
        if let Ok(word) = std::env::var("ONEWRITE_TEST_PRAGMA") {
            sql(&db, &word);
        }
        sql(&db, "CREATE TABLE IF NOT EXISTS t(x)");
        sql(&db, "INSERT INTO t VALUES(1)");
        println!("mode={}", sql(&db, "PRAGMA journal_mode"));
    }
}

/// A name, environment variables, and the mode that comes of them.
type Case = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
);

#[test]
fn the_environment_chooses_for_applications_that_do_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let cases: [Case; 8] = [
        ("silent", &[], "waldio"),
        (
            "asks for direct",
            &[("ONEWRITE_JOURNAL_MODE", "direct")],
            "direct",
        ),
        (
            "asks for a stock mode",
            &[("ONEWRITE_JOURNAL_MODE", "wal")],
            "delete",
        ),
        (
            "asks for no mode",
            &[("ONEWRITE_JOURNAL_MODE", "waldo")],
            "delete",
        ),
        (
            "says wal",
            &[("ONEWRITE_TEST_PRAGMA", "PRAGMA journal_mode=wal")],
            "wal",
        ),
        (
            "says wal, and is upgraded",
            &[
                ("ONEWRITE_TEST_PRAGMA", "PRAGMA journal_mode=wal"),
                ("ONEWRITE_UPGRADE_WAL", "1"),
            ],
            "waldio",
        ),
        (
            "is not upgraded by anything but 1",
            &[
                ("ONEWRITE_TEST_PRAGMA", "PRAGMA journal_mode=wal"),
                ("ONEWRITE_UPGRADE_WAL", "0"),
            ],
            "wal",
        ),
        (
            "says delete",
            &[
                ("ONEWRITE_TEST_PRAGMA", "PRAGMA journal_mode=delete"),
                ("ONEWRITE_UPGRADE_WAL", "1"),
            ],
            "delete",
        ),
    ];
    for (name, variables, expected) in cases {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "settings::child", "--ignored", "--nocapture"])
            .env("ONEWRITE_TEST_DATABASE", directory.path().join(name))
            .env("ONEWRITE_MAKE_DEFAULT", "1")
            .env("ONEWRITE_JOURNAL_MODE", "waldio")
            .envs(variables.iter().copied())
            .output()
            .expect("a child");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{name}: {text}");
        let last = text.lines().rfind(|line| line.contains("mode="));
        assert!(
            last.is_some_and(|line| line.ends_with(&format!("mode={expected}"))),
            "{name}: {text}"
        );
    }
}

#[test]
fn only_who_makes_it_the_default_gets_it_by_default() {
    let directory = tempfile::tempdir().expect("a directory");
    for (word, expected) in [("0", "delete"), ("1", "waldio")] {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "settings::child", "--ignored", "--nocapture"])
            .env("ONEWRITE_TEST_DATABASE", directory.path().join(word))
            .env("ONEWRITE_MAKE_DEFAULT", word)
            .env("ONEWRITE_JOURNAL_MODE", "waldio")
            .output()
            .expect("a child");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        assert!(text.contains(&format!("mode={expected}")), "{text}");
    }
}

/// The URI speaks for its own database, against the environment too.
#[test]
fn a_stock_word_in_the_uri_leaves_the_database_to_the_application() {
    let directory = tempfile::tempdir().expect("a directory");
    for word in ["wal", "delete", "waldo"] {
        let path = directory.path().join(word);
        let uri = format!("file:{}?journal_mode={word}", path.display());
        let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
        let db = open_flags(uri.as_ref(), "onewrite", flags).expect("a connection");
        sql(&db, "CREATE TABLE t(x)");
        assert_eq!(sql(&db, "PRAGMA journal_mode"), "delete", "{word}");
        sql(&db, "PRAGMA onewrite_layout=sector");
        assert_eq!(sql(&db, "PRAGMA journal_mode=waldio"), "waldio", "{word}");
    }
}
