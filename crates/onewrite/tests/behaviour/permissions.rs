//! Users that may not do everything with a database's files: after a `chown`, with files of root,
//! and in directories that are not theirs. Where stock SQLite works, so do we.

use super::{Mode, companion, copy, guarded, open, open_flags, open_in, outcome, sql};
use rusqlite::OpenFlags;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A user without privileges.
const USER: u32 = 65_534;
const COUNT: &str = "SELECT count(*) FROM t";
const INSERT: &str = "INSERT INTO t VALUES(9)";
const MODE: &str = "PRAGMA journal_mode";
const STATUS: &str = "PRAGMA onewrite_status";

/// The child of the tests below: prints what the statements come to, one a line.
#[test]
#[ignore = "run by another test"]
fn child() {
    let path = std::env::var_os("ONEWRITE_TEST_DATABASE").expect("a path");
    let vfs = std::env::var("ONEWRITE_TEST_VFS").expect("a VFS");
    let statements = std::env::var("ONEWRITE_TEST_STATEMENTS").expect("statements");
    match open_flags(path.as_ref(), &vfs, OpenFlags::default()) {
        Ok(db) => {
            for statement in statements.lines() {
                println!("found={}", outcome(&db, statement));
            }
        }
        Err(e) => println!("found=refused: {e}"),
    }
}

/// A directory that users can enter, with a copy of this program that they can run.
struct Fixture {
    directory: tempfile::TempDir,
    program: PathBuf,
}

impl Fixture {
    /// `None` if this process is not root: only root can act as another user.
    fn new() -> Option<Fixture> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can act as another user");
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        permit(directory.path(), 0o755);
        let program = directory.path().join("program");
        onewrite_common::files::copy_program(
            std::env::current_exe().expect("this program"),
            &program,
        );
        Some(Fixture { directory, program })
    }

    /// A new directory with these permissions, which belongs to root.
    fn directory(&self, permissions: u32) -> tempfile::TempDir {
        let directory = tempfile::tempdir_in(self.directory.path()).expect("a directory");
        permit(directory.path(), permissions);
        directory
    }

    /// The results of the statements for the user, in a process of its own.
    fn as_user(&self, path: &Path, vfs: &str, statements: &[&str]) -> Vec<String> {
        let output = Command::new(&self.program)
            .args(["--exact", "permissions::child", "--ignored", "--nocapture"])
            .env("ONEWRITE_TEST_DATABASE", path)
            .env("ONEWRITE_TEST_VFS", vfs)
            .env("ONEWRITE_TEST_STATEMENTS", statements.join("\n"))
            .uid(USER)
            .gid(USER)
            .output()
            .expect("a child");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
        let found = text.split("found=").skip(1);
        found
            .map(|rest| rest.lines().next().unwrap_or_default().to_owned())
            .collect()
    }
}

fn permit(path: &Path, mode: u32) {
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, permissions).expect("permissions");
}

fn give_to_user(path: &Path) {
    std::os::unix::fs::chown(path, Some(USER), Some(USER)).expect("a new owner");
}

/// A database of root with one row, closed.
fn closed(directory: &Path, mode: Mode, permissions: u32) -> PathBuf {
    let path = directory.join("db");
    std::fs::write(&path, "").expect("a file");
    permit(&path, permissions);
    let db = open_in(&path, mode);
    sql(&db, "CREATE TABLE t(x)");
    sql(&db, "INSERT INTO t VALUES(1)");
    path
}

fn kept_out_of(status: &str) -> serde_json::Value {
    let status: serde_json::Value = serde_json::from_str(status).expect("JSON");
    status["kept_out_of"].clone()
}

/// As a deployment does it: root makes the database, and gives it to the program.
#[test]
fn a_database_that_got_a_new_owner_goes_on_in_its_mode() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    for mode in guarded() {
        let directory = fixture.directory(0o777);
        let path = closed(directory.path(), mode, 0o644);
        give_to_user(&path);
        let found = fixture.as_user(&path, "onewrite", &[COUNT, INSERT, COUNT, MODE]);
        assert_eq!(found, ["1", "", "2", mode.name], "{mode:?}");
        let log = std::fs::metadata(companion(&path, "-onewrite")).expect("the log");
        assert_eq!((log.uid(), log.mode() & 0o777), (USER, 0o644), "{mode:?}");
        let db = open(&path);
        assert_eq!(sql(&db, COUNT), "2");
        assert_eq!(sql(&db, MODE), mode.name);
    }
}

#[test]
fn a_log_at_rest_that_cannot_be_replaced_leaves_the_database_in_wal_and_says_why() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    for mode in guarded() {
        // In such a directory only the owner of a file may remove it.
        let directory = fixture.directory(0o1777);
        let path = closed(directory.path(), mode, 0o644);
        let log = companion(&path, "-onewrite");
        let before = std::fs::read(&log).expect("the log");
        give_to_user(&path);
        let found = fixture.as_user(&path, "onewrite", &[COUNT, INSERT, COUNT, MODE, STATUS]);
        assert_eq!(found[..4], ["1", "", "2", "wal"], "{mode:?}");
        let kept_out_of = kept_out_of(&found[4]);
        assert_eq!(kept_out_of["mode"], mode.name);
        let why = kept_out_of["why"].to_string();
        assert!(why.contains("may neither write the log"), "{why}");
        assert!(before == std::fs::read(&log).expect("the log"), "{mode:?}");
        // The mode is remembered for a user that may.
        let db = open(&path);
        assert_eq!(sql(&db, COUNT), "2");
        assert_eq!(sql(&db, MODE), mode.name);
    }
}

/// Root's log is as private as the database was.
#[test]
fn a_log_that_the_new_owner_may_not_read_leaves_the_database_in_wal_and_says_why() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    for mode in guarded() {
        let directory = fixture.directory(0o777);
        let path = closed(directory.path(), mode, 0o600);
        give_to_user(&path);
        let found = fixture.as_user(&path, "onewrite", &[COUNT, INSERT, COUNT, MODE, STATUS]);
        assert_eq!(found[..4], ["1", "", "2", "wal"], "{mode:?}");
        let why = kept_out_of(&found[4])["why"].to_string();
        assert!(why.contains("may not read the log"), "{why}");
        // A switch replaces it.
        let switch = format!("PRAGMA journal_mode={}", mode.name);
        if mode.before.is_empty() {
            let found = fixture.as_user(&path, "onewrite", &[&switch, INSERT, COUNT]);
            assert_eq!(found, [mode.name, "", "3"], "{mode:?}");
        }
    }
}

/// The files of a database that a connection of root uses, or that it left when it was killed.
fn used(directory: &Path, mode: Mode, killed: bool) -> (PathBuf, Option<rusqlite::Connection>) {
    let origin = directory.join("db");
    let db = open_in(&origin, mode);
    sql(&db, "CREATE TABLE t(x)");
    sql(&db, "INSERT INTO t VALUES(1)");
    if !killed {
        return (origin, Some(db));
    }
    let path = directory.join("killed");
    copy(&origin, &path);
    for suffix in ["-shm", "-onewrite-shm", "-onewrite-lock"] {
        let (from, to) = (companion(&origin, suffix), companion(&path, suffix));
        if from.exists() {
            let copied = Command::new("cp").args([from, to]).status().expect("cp");
            assert!(copied.success());
        }
    }
    (path, None)
}

fn permit_all(path: &Path, permissions: u32) {
    for suffix in [
        "",
        "-wal",
        "-shm",
        "-onewrite",
        "-onewrite-shm",
        "-onewrite-lock",
    ] {
        let file = companion(path, suffix);
        if file.exists() {
            permit(&file, permissions);
        }
    }
}

#[test]
fn a_user_that_may_write_the_database_but_not_its_log_reads_it() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    for mode in super::MODES {
        for killed in [true, false] {
            let context = format!("{mode:?}, killed: {killed}");
            let directory = fixture.directory(0o777);
            let (path, db) = used(directory.path(), mode, killed);
            permit(&path, 0o666);
            let found = fixture.as_user(&path, "onewrite", &[COUNT, INSERT, COUNT]);
            assert_eq!((&*found[0], &*found[2]), ("1", "1"), "{context}");
            assert!(found[1].starts_with("error 8:"), "{context}: {found:?}");
            let db = db.unwrap_or_else(|| open(&path));
            sql(&db, "INSERT INTO t VALUES(2)");
            assert_eq!(sql(&db, COUNT), "2", "{context}");
            let found = fixture.as_user(&path, "onewrite", &[COUNT, "PRAGMA integrity_check"]);
            assert_eq!(found, ["2", "ok"], "{context}");
        }
    }
}

#[test]
fn after_a_kill_a_user_may_write_where_all_files_are_writable_and_the_directory_is_not() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    for mode in super::MODES {
        let directory = fixture.directory(0o755);
        let (path, _) = used(directory.path(), mode, true);
        permit_all(&path, 0o666);
        let found = fixture.as_user(&path, "onewrite", &[COUNT, INSERT, COUNT]);
        assert_eq!(found, ["1", "", "2"], "{mode:?}");
        assert_eq!(sql(&open(&path), COUNT), "2", "{mode:?}");
    }
}

#[test]
fn a_log_that_may_not_be_read_is_named_by_the_error_itself() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    for mode in guarded() {
        for killed in [true, false] {
            let directory = fixture.directory(0o777);
            let (path, _db) = used(directory.path(), mode, killed);
            permit_all(&path, 0o600);
            permit(&path, 0o666);
            let found = fixture.as_user(&path, "onewrite", &[COUNT]);
            assert!(found[0].contains("newest transactions"), "{found:?}");
            assert!(
                found[0].contains("-onewrite: Permission denied"),
                "{found:?}"
            );
        }
    }
}
