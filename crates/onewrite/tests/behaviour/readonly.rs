//! Connections that only read: by a flag, by `mode=ro`, by `immutable=1`, or on a read-only file
//! system. Their databases are at rest, in use, or left by a crash.

use super::child::Child;
use super::damage::files;
use super::scratch::Scratch;
use super::{MODES, Mode, copy, open, open_flags, open_in, outcome, sql, stock};
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};

const COUNT: &str = "SELECT count(*) FROM t";

pub fn by_uri(path: &Path, parameters: &str) -> Connection {
    let uri = format!("file:{}?{parameters}", path.display());
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    open_flags(uri.as_ref(), "onewrite", flags).expect("a connection")
}

/// A database with three rows, checkpointed after the first: one closed, one as a crash leaves it.
fn made(directory: &Path, mode: Mode) -> (PathBuf, PathBuf) {
    let (rest, crashed) = (directory.join("rest"), directory.join("crashed"));
    let db = open_in(&rest, mode);
    sql(&db, "CREATE TABLE t(x)");
    sql(&db, "INSERT INTO t VALUES(1)");
    sql(&db, "PRAGMA wal_checkpoint(TRUNCATE)");
    sql(&db, "INSERT INTO t VALUES(2)");
    sql(&db, "INSERT INTO t VALUES(3)");
    copy(&rest, &crashed);
    (rest, crashed)
}

fn only_reads(db: &Connection) {
    for statement in ["INSERT INTO t VALUES(9)", "DROP TABLE t", "VACUUM"] {
        let found = outcome(db, statement);
        assert!(found.starts_with("error 8"), "{statement}: {found}");
    }
}

#[test]
fn mode_ro_reads_everything_that_was_committed_and_changes_nothing() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let (rest, crashed) = made(directory.path(), mode);
        for path in [&rest, &crashed] {
            let db = by_uri(path, "mode=ro");
            assert_eq!(sql(&db, COUNT), "3", "{mode:?}");
            only_reads(&db);
            let writer = open(path);
            sql(&writer, "INSERT INTO t VALUES(4)");
            assert_eq!(sql(&db, COUNT), "4", "{mode:?}: next to a writer");
            sql(&writer, "DELETE FROM t WHERE x = 4");
            sql(&writer, "PRAGMA wal_checkpoint");
            assert_eq!(sql(&db, COUNT), "3");
            drop(writer);
            assert_eq!(sql(&db, COUNT), "3", "{mode:?}: alone again");
            drop(db);
            assert_eq!(sql(&stock(path), COUNT), "3");
        }
    }
}

/// A read-only connection cannot end the guard by itself.
#[test]
fn after_the_last_close_the_database_is_a_stock_one_also_where_that_only_read() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let (rest, crashed) = made(directory.path(), mode);
        for path in [&rest, &crashed] {
            let readers = [by_uri(path, "mode=ro"), by_uri(path, "mode=ro")];
            for db in readers {
                assert_eq!(sql(&db, COUNT), "3", "{mode:?}");
            }
            assert_eq!(outcome(&stock(path), COUNT), "3", "{mode:?}");
            // The guard stays until the other connection closes.
            let reader = by_uri(path, "mode=ro");
            assert_eq!(sql(&reader, COUNT), "3");
            let writer = open(path);
            sql(&writer, "BEGIN IMMEDIATE");
            drop(reader);
            sql(&writer, "COMMIT");
            if mode.name != "direct" {
                let found = outcome(&stock(path), COUNT);
                assert!(found.starts_with("error 26"), "{mode:?}: {found}");
            }
            drop(writer);
            assert_eq!(outcome(&stock(path), COUNT), "3", "{mode:?}");
        }
    }
}

/// As in stock SQLite, an immutable database is the file alone: no log is read and no lock taken.
/// So a guarded file is not a database, because its newest transactions are in the log.
#[test]
fn immutable_reads_the_file_alone_and_changes_nothing() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let (rest, crashed) = made(directory.path(), mode);
        let left = match mode.name {
            "direct" => "1",
            _ => "error 26: file is not a database",
        };
        for (path, expected) in [(&rest, "3"), (&crashed, left)] {
            let before = files(path);
            let db = by_uri(path, "immutable=1");
            assert_eq!(outcome(&db, COUNT), expected, "{mode:?}");
            if !expected.starts_with("error") {
                assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
                only_reads(&db);
            }
            drop(db);
            assert!(files(path) == before, "{mode:?}: a file was changed");
        }
        // Nothing of that was remembered.
        assert_eq!(sql(&open(&crashed), COUNT), "3", "{mode:?}");
    }
}

/// No connection is in the way then: the parameter is, and the error says so.
#[test]
fn without_locks_a_journal_mode_is_refused_for_that_reason() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let (rest, _) = made(directory.path(), mode);
        for parameter in ["immutable=1", "nolock=1"] {
            let before = files(&rest);
            let db = by_uri(&rest, parameter);
            let said = outcome(&db, &format!("PRAGMA journal_mode={}", mode.name));
            assert!(
                said.contains(parameter) && !said.contains("another connection"),
                "{mode:?}: {said}"
            );
            drop(db);
            assert!(files(&rest) == before, "{mode:?}: a file was changed");
        }
    }
}

/// There SQLite itself reads a database in WAL mode only as an immutable one, because it has no
/// wal-index.
#[test]
fn on_a_read_only_file_system_a_database_answers_as_with_stock_sqlite() {
    for mode in MODES {
        let Some(disk) = Scratch::ext4(64, &[], "") else {
            return;
        };
        let (rest, crashed) = made(disk.path(), mode);
        disk.remount("ro");
        let before = (files(&rest), files(&crashed));
        assert_eq!(outcome(&open(&rest), COUNT), outcome(&stock(&rest), COUNT));
        assert_eq!(sql(&by_uri(&rest, "immutable=1"), COUNT), "3", "{mode:?}");
        let found = outcome(&open(&crashed), COUNT);
        assert!(found.starts_with("error 14"), "{mode:?}: {found}");
        assert!(before == (files(&rest), files(&crashed)));
        disk.remount("rw");
        for path in [&rest, &crashed] {
            assert_eq!(sql(&open(path), COUNT), "3", "{mode:?}");
        }
    }
}

/// The child of the test below: prints the answer to a connection whose user may only read.
#[test]
#[ignore = "run by another test"]
fn child() {
    let path = std::env::var_os("ONEWRITE_TEST_DATABASE").expect("a path");
    let vfs = std::env::var("ONEWRITE_TEST_VFS").expect("a VFS");
    let found = match open_flags(path.as_ref(), &vfs, OpenFlags::default()) {
        Ok(db) => {
            let written = outcome(&db, "INSERT INTO t VALUES(9)");
            assert!(written.starts_with("error"), "it wrote: {written}");
            outcome(&db, COUNT)
        }
        Err(e) => format!("error: {e}"),
    };
    println!("found={found}");
}

/// The answer to a user that may read the files but not write them.
fn as_another_user(program: &Path, path: &Path, vfs: &str) -> String {
    use std::os::unix::process::CommandExt;
    let mut command = std::process::Command::new(program);
    command
        .args(["--exact", "readonly::child", "--ignored", "--nocapture"])
        .env("ONEWRITE_TEST_DATABASE", path)
        .env("ONEWRITE_TEST_VFS", vfs);
    if rustix::process::geteuid().is_root() {
        // Permissions do not bind root.
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().expect("a child");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let found = text
        .split("found=")
        .nth(1)
        .and_then(|rest| rest.lines().next());
    found.map(str::to_owned).unwrap_or(text)
}

fn permit(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, permissions).expect("permissions");
}

/// The log stays when the database is closed, so its permissions must follow the database's. It
/// must not keep content readable after the database was made private. It must not exclude users
/// that the database has admitted since.
#[test]
fn the_log_follows_the_permissions_of_its_database() {
    use std::os::unix::fs::PermissionsExt;
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        drop(open_in(&path, mode));
        for permissions in [0o644, 0o600, 0o666] {
            permit(&path, permissions);
            let db = super::open(&path);
            sql(&db, "CREATE TABLE IF NOT EXISTS t(x)");
            sql(&db, "INSERT INTO t VALUES(1)");
            let suffix = if mode.name == "direct" {
                "-wal"
            } else {
                "-onewrite"
            };
            let log = std::fs::metadata(super::companion(&path, suffix)).expect("the log");
            let found = log.permissions().mode() & 0o777;
            assert_eq!(
                found, permissions,
                "{mode:?}: {found:o}, not {permissions:o}"
            );
        }
    }
}

#[test]
fn a_user_that_may_only_read_the_files_reads_every_commit_or_gets_an_error() {
    let home = tempfile::tempdir().expect("a directory");
    permit(home.path(), 0o755);
    let program = home.path().join("program");
    onewrite_common::files::copy_program(std::env::current_exe().expect("this program"), &program);
    permit(&program, 0o755);
    for mode in MODES {
        for may_add_files in [false, true] {
            let directory = tempfile::tempdir_in(home.path()).expect("a directory");
            permit(directory.path(), 0o755);
            let (rest, crashed) = made(directory.path(), mode);
            let used = directory.path().join("used");
            let db = open_in(&used, mode);
            sql(&db, "CREATE TABLE t(x)");
            sql(&db, "INSERT INTO t VALUES(1)");
            for path in [&rest, &crashed, &used] {
                for suffix in ["", "-onewrite", "-wal", "-shm"] {
                    let file = super::companion(path, suffix);
                    if file.exists() {
                        permit(&file, 0o444);
                    }
                }
            }
            permit(directory.path(), if may_add_files { 0o777 } else { 0o555 });
            // Stock SQLite makes an empty -wal file wherever it may.
            let content = |path: &Path| -> Vec<Vec<u8>> {
                let files = files(path).into_iter();
                files.map(Option::unwrap_or_default).collect()
            };
            let before = (content(&rest), content(&crashed));
            let context = format!("{mode:?}, may add files: {may_add_files}");
            assert_eq!(
                as_another_user(&program, &used, "onewrite"),
                "1",
                "{context}"
            );
            sql(&db, "INSERT INTO t VALUES(2)");
            assert_eq!(
                as_another_user(&program, &used, "onewrite"),
                "2",
                "{context}"
            );
            let found = as_another_user(&program, &rest, "onewrite");
            assert_eq!(found, as_another_user(&program, &rest, "unix"), "{context}");
            let found = as_another_user(&program, &crashed, "onewrite");
            match may_add_files {
                true => assert_eq!(found, "3", "{context}"),
                false => assert!(found.starts_with("error 14"), "{context}: {found}"),
            }
            assert!(
                before == (content(&rest), content(&crashed)),
                "{context}: changed"
            );
            permit(directory.path(), 0o755);
        }
    }
}

/// SQLite then maps the wal-index read-only, and follows the other processes' writes there.
#[test]
fn a_reader_that_may_only_read_the_wal_index_follows_a_restart_of_the_log() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        drop(open_in(&path, mode));
        let mut writer = Child::start(&path);
        assert_eq!(writer.sql("CREATE TABLE t(x)"), "");
        assert_eq!(writer.sql("INSERT INTO t VALUES(1)"), "");
        let reader = by_uri(&path, "readonly_shm=1");
        assert_eq!(sql(&reader, COUNT), "1", "{mode:?}");
        for count in 2..5 {
            let insert = format!("INSERT INTO t VALUES({count})");
            assert_eq!(writer.sql(&insert), "");
            assert_eq!(sql(&reader, COUNT), count.to_string(), "{mode:?}");
            assert!(!writer.sql("PRAGMA wal_checkpoint").starts_with("error"));
        }
        assert!(outcome(&reader, "INSERT INTO t VALUES(9)").starts_with("error 8"));
        drop(reader);
        drop(writer);
        assert_eq!(sql(&stock(&path), COUNT), "4", "{mode:?}");
    }
}
