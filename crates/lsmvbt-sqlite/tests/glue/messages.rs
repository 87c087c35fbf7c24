//! Messages name the file and the way out where SQLite has only a text for each code. A message of
//! one database is never that of another.

use std::process::Command;
use std::time::Duration;

use lsmvbt_sqlite::sqlite::Connection;

use crate::model;
use crate::support::{Setup, Shell, one, refused, run};

const ENGINE: &str = "lsmvbt";

/// The message begins with SQLite's own text and the file, and has these words.
fn explains(message: &str, own: &str, path: &str, words: &str) {
    let start = format!("{own}: {path}: ");
    assert!(message.starts_with(&start), "{message}");
    assert!(message.contains(words), "{message}");
}

/// Changes the number of the format in both headers.
fn made_newer(setup: &Setup, name: &str) -> String {
    run(&setup.open(name, ENGINE), "CREATE TABLE t(x)");
    let path = setup.path(name);
    let mut bytes = std::fs::read(&path).expect("the file");
    for page in [0, 4096] {
        bytes[page + 14] += 1;
    }
    std::fs::write(&path, bytes).expect("written");
    path
}

#[test]
fn a_newer_format_is_named_with_its_file() {
    let setup = Setup::new();
    let path = made_newer(&setup, "x");
    let connection = Connection::open(&path).expect("opened");
    let own = "file is not a database";
    // Again, after the statement before has been finished.
    for sql in ["SELECT * FROM t", "PRAGMA user_version", "SELECT 1 FROM t"] {
        explains(&refused(&connection, sql), own, &path, "upgrade, or copy");
    }
}

#[test]
fn a_message_of_one_database_is_not_that_of_another() {
    let setup = Setup::new();
    let path = made_newer(&setup, "x");
    std::fs::write(setup.path("y"), [7; 8192]).expect("a file of nobody's");
    let connection = setup.open("z", ENGINE);
    let own = "file is not a database";
    let attach = |path| refused(&connection, &format!("ATTACH '{path}' AS other"));
    explains(&attach(&path), own, &path, "upgrade, or copy");
    assert_eq!(attach(&setup.path("y")), own);
    assert_eq!(
        refused(&connection, "nonsense"),
        "near \"nonsense\": syntax error"
    );
}

#[test]
fn damage_is_named_with_its_file() {
    let setup = Setup::new();
    run(&setup.open("x", ENGINE), "CREATE TABLE t(x)");
    let path = setup.path("x");
    let mut bytes = std::fs::read(&path).expect("the file");
    bytes[2 * 4096..].fill(0xa5);
    std::fs::write(&path, bytes).expect("written");
    let connection = Connection::open(&path).expect("opened");
    let own = "database disk image is malformed";
    explains(
        &refused(&connection, "SELECT * FROM t"),
        own,
        &path,
        "restore a copy",
    );
}

#[test]
fn a_failed_read_is_named_with_its_file() {
    let setup = Setup::new();
    let connection = setup.open("x", model::NAME);
    run(&connection, "CREATE TABLE t(x)");
    model::fail_at_the_header();
    let message = refused(&connection, "SELECT * FROM t");
    explains(&message, "disk I/O error", &setup.path("x"), "");
    assert_eq!(one(&connection, "SELECT count(*) FROM t"), "0");
}

#[test]
fn a_version_that_is_gone_is_named_with_those_that_are_there() {
    let setup = Setup::new();
    let connection = setup.open("x", ENGINE);
    run(&connection, "CREATE TABLE t(x); INSERT INTO t VALUES (1)");
    let (path, uri) = (
        setup.path("x"),
        format!("file:{}?version=1", setup.path("x")),
    );
    let own = "unable to open database file";
    let message = Connection::open(&uri).err().expect("refused").message;
    explains(&message, own, &path, "version 1 cannot be read: ");
    let message = refused(&connection, &format!("ATTACH '{uri}' AS old"));
    let own = format!("unable to open database: {uri}");
    explains(&message, &own, &path, "version 1 cannot be read: ");
    for (uri, words) in [
        (format!("file:{path}?cache=shared"), "use cache=private"),
        (format!("file:{path}?vfs=unix-excl"), "use vfs=unix"),
        (format!("file:{path}?vfs=unix-none"), "use vfs=unix"),
        (setup.uri("x", "stock"), "leave engine= out"),
        (setup.uri("x", "nonesuch"), "there are lsmvbt and stock"),
    ] {
        let message = Connection::open(&uri).err().expect("refused").message;
        explains(&message, "unable to open database file", &path, words);
    }
}

#[test]
fn an_option_of_the_shell_makes_no_file() {
    let place = tempfile::tempdir().expect("a directory");
    let shell = |option: &str| {
        Command::new(env!("CARGO_BIN_EXE_lsmvbt-sqlite3"))
            .arg(option)
            .current_dir(place.path())
            .output()
            .expect("the shell")
    };
    let help = shell("--help");
    assert!(help.status.success() && help.stdout.starts_with(b"usage"));
    assert_eq!(shell("--no-such-option").status.code(), Some(2));
    assert_eq!(
        std::fs::read_dir(place.path())
            .expect("it is there")
            .count(),
        0
    );
}

#[test]
fn a_file_under_the_name_of_one_that_another_process_has_is_named() {
    let setup = Setup::new();
    let path = setup.path("x");
    run(&setup.open("x", ENGINE), "CREATE TABLE t(x)");
    std::fs::copy(&path, setup.path("backup")).expect("a backup");
    let mut other = Shell::of(&path);
    assert_eq!(
        other.says("INSERT INTO t VALUES (1); SELECT 'written';"),
        "written"
    );
    std::fs::rename(&path, setup.path("old")).expect("renamed");
    std::fs::rename(setup.path("backup"), &path).expect("restored");
    let restored = Connection::open(&path).expect("opened");
    let (own, way) = (
        "unable to open database file",
        "opened before the file was replaced",
    );
    explains(&refused(&restored, "SELECT * FROM t"), own, &path, way);
    other.ends();
    assert_eq!(one(&restored, "SELECT count(*) FROM t"), "0");
    run(&restored, "INSERT INTO t VALUES (3)");
    assert_eq!(one(&restored, "PRAGMA integrity_check"), "ok");
}

/// SQLite's locks on shared memory are those of the process: a new connection to another file would end them
/// when it is closed. So it is refused before it has touched them.
#[test]
fn a_file_under_the_name_of_one_that_this_process_has_is_not_harmed() {
    for torn in ["trust", "double"] {
        let setup = Setup::new();
        let path = setup.path("x");
        let old = setup.open("x", ENGINE);
        run(&old, &format!("PRAGMA lsmvbt_torn = {torn}"));
        let rows = "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
                    INSERT INTO t(x) SELECT randomblob(500) FROM n";
        run(&old, &format!("CREATE TABLE t(x); {rows}"));
        drop(old);
        std::fs::copy(&path, setup.path("backup")).expect("a backup");
        let old = setup.open("x", ENGINE);
        run(&old, &format!("PRAGMA lsmvbt_torn = {torn}"));
        run(&old, "DELETE FROM t WHERE rowid > 100; VACUUM");
        let mut other = Shell::of(&path);
        assert_eq!(other.says("PRAGMA busy_timeout = 60000;"), "60000");
        run(&old, &format!("BEGIN; {rows}"));
        std::fs::rename(&path, setup.path("old")).expect("renamed");
        std::fs::rename(setup.path("backup"), &path).expect("restored");
        let (own, way) = (
            "unable to open database file",
            "opened before the file was replaced",
        );
        for statement in ["SELECT * FROM t", "INSERT INTO t VALUES (1)"] {
            let restored = Connection::open(&path).expect("opened");
            explains(&refused(&restored, statement), own, &path, way);
        }
        // The old connection's locks are in force as before: the other writer waits.
        other.write("INSERT INTO t VALUES (1);");
        std::thread::sleep(Duration::from_millis(300));
        run(&old, "COMMIT");
        assert_eq!(other.says("SELECT count(*) FROM t;"), "2101");
        assert_eq!(one(&old, "SELECT count(*) FROM t"), "2101", "{torn}");
        assert_eq!(one(&old, "PRAGMA integrity_check"), "ok", "{torn}");
        other.ends();
        drop(old);
        let restored = Connection::open(&path).expect("opened");
        run(&restored, rows);
        assert_eq!(one(&restored, "SELECT count(*) FROM t"), "4000", "{torn}");
        assert_eq!(one(&restored, "PRAGMA integrity_check"), "ok", "{torn}");
    }
}
