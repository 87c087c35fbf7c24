//! `onewrite backup`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use onewrite_iotrace::scratch::{Mounted, private_mounts};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::writer::{FOUR_COMMITS, Then, Writer};
use super::{MODES, companion, lossy, names, onewrite, path, run, stock_shell};

/// The limit for any step here.
const PATIENCE: Duration = Duration::from_secs(60);

struct Case {
    directory: tempfile::TempDir,
}

impl Case {
    fn new() -> Case {
        Case {
            directory: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    fn database(&self) -> PathBuf {
        self.directory.path().join("app.db")
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("backup.db")
    }

    fn backup(&self, more: &[&str]) -> Output {
        let (database, file) = (self.database(), self.file());
        run(onewrite(
            &[&["backup", path(&database), path(&file)], more].concat(),
        ))
    }

    fn backed_up(&self, more: &[&str]) -> Value {
        let output = self.backup(&[more, &["--json"]].concat());
        let (out, err) = (lossy(&output.stdout), lossy(&output.stderr));
        assert!(output.status.success(), "{out}{err}");
        serde_json::from_str(&out).expect("one JSON document")
    }

    /// The backup is a whole stock database without other files; returns its number of rows.
    fn rows(&self) -> i64 {
        assert_eq!(names(self.directory.path(), "backup.db"), ["backup.db"]);
        let head = fs::read(self.file()).expect("the backup");
        assert_eq!((head[18], head[19], &head[72..80]), (1, 1, &[0; 8][..]));
        let said = stock_shell(
            &self.file(),
            "PRAGMA integrity_check; PRAGMA journal_mode;
             SELECT count(*) FROM t; SELECT max(id) FROM t",
        );
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines[..2], ["ok", "delete"], "{said}");
        assert_eq!(lines[2], lines[3], "every row up to the last");
        lines[2].parse().expect("a number")
    }

    /// A slow backup, in the middle of its work.
    fn slow(&self, pause: &str) -> Child {
        let (database, file) = (self.database(), self.file());
        let mut command = onewrite(&["backup", "--pause", pause, path(&database), path(&file)]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.expect("it starts");
        let image = companion(&self.file(), "-onewrite-partial").join("image");
        let begun = Instant::now();
        while fs::metadata(&image).map_or(0, |image| image.len()) < 2 << 20 {
            assert!(begun.elapsed() < PATIENCE, "it does not begin");
            std::thread::sleep(Duration::from_millis(1));
        }
        child
    }
}

/// Rows of about 12 MiB.
const LARGE: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, value);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
    INSERT INTO t SELECT i, randomblob(4000) FROM n;";

#[test]
fn a_database_in_use_in_every_mode_is_copied_as_it_was_at_one_moment() {
    for mode in MODES {
        let case = Case::new();
        let sql =
            format!("{FOUR_COMMITS} PRAGMA wal_autocheckpoint=50; PRAGMA busy_timeout=30000;");
        let mut writer = Writer::start(&case.database(), mode, "auto", &sql, Then::Insert);
        let acknowledged = writer.next_row();
        let said = case.backed_up(&[]);
        // Only the writer knows which rollback mode it is.
        let is_rollback = ["truncate", "persist", "memory"].contains(&mode);
        let seen = if is_rollback { "delete" } else { mode };
        assert_eq!(said["journal_mode"], seen, "{said:#}");
        assert!(case.rows() >= acknowledged, "{mode}");
        let at = writer.next_row();
        assert!(writer.next_row() > at, "{mode}: it goes on");
    }
}

#[test]
fn in_a_mode_with_a_log_no_commit_makes_it_begin_again() {
    for mode in ["onewrite", "waldio", "swal", "direct", "wal"] {
        let case = Case::new();
        let mut writer = Writer::start(&case.database(), mode, "auto", LARGE, Then::Insert);
        let acknowledged = writer.next_row();
        let said = case.backed_up(&["--pause", "5"]);
        assert_eq!(
            (&said["restarts"], &said["held_writers"]),
            (&0.into(), &false.into())
        );
        let rows = case.rows();
        assert!(rows >= acknowledged, "{mode}");
        assert!(writer.kill() > rows, "{mode}: writers go on meanwhile");
    }
}

#[test]
fn in_a_rollback_mode_it_ends_though_others_commit() {
    let case = Case::new();
    let sql = format!("PRAGMA busy_timeout=30000; {LARGE}");
    let mut writer = Writer::start(&case.database(), "delete", "auto", &sql, Then::Insert);
    let acknowledged = writer.next_row();
    case.backed_up(&["--pause", "5"]);
    assert!(case.rows() >= acknowledged);
    let at = writer.next_row();
    assert!(writer.next_row() > at, "it goes on");
}

#[test]
fn killed_in_the_middle_it_leaves_the_database_and_the_next_one_clears_up() {
    for mode in ["onewrite", "direct", "delete"] {
        let case = Case::new();
        let writer = Writer::start(&case.database(), mode, "auto", LARGE, Then::Wait);
        let mut child = case.slow("50");
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        assert!(!case.file().exists(), "{mode}: no half of a backup");
        case.backed_up(&[]);
        assert_eq!(case.rows(), 3000);
        writer.finish();
        // The killed backup did not keep the guard.
        assert_eq!(
            stock_shell(&case.database(), "PRAGMA integrity_check"),
            "ok",
            "{mode}"
        );
    }
}

#[test]
fn stopped_by_the_user_it_leaves_nothing() {
    for signal in [Signal::INT, Signal::TERM] {
        let case = Case::new();
        let writer = Writer::start(&case.database(), "onewrite", "auto", LARGE, Then::Wait);
        let mut child = case.slow("50");
        let pid = Pid::from_raw(child.id() as i32).expect("a pid");
        kill_process(pid, signal).expect("the signal");
        assert_eq!(child.wait().expect("it ends").code(), Some(130));
        assert!(names(case.directory.path(), "backup").is_empty());
        writer.finish();
    }
}

#[test]
fn two_at_a_time_do_not_meet() {
    let case = Case::new();
    let writer = Writer::start(&case.database(), "onewrite", "auto", LARGE, Then::Wait);
    let mut child = case.slow("50");
    let second = case.backup(&[]);
    assert!(lossy(&second.stderr).contains("another onewrite"));
    assert!(child.wait().expect("it ends").success());
    assert_eq!(case.rows(), 3000);
    drop(writer);
}

#[test]
fn nothing_is_overwritten_unless_asked_for_and_no_log_gets_a_foreign_database() {
    let case = Case::new();
    let mode = "waldio";
    Writer::start(&case.database(), mode, "embedded", FOUR_COMMITS, Then::Wait).finish();
    fs::write(case.file(), "precious").expect("a file");
    let refused = case.backup(&[]);
    assert!(
        lossy(&refused.stderr).contains("--force"),
        "{}",
        lossy(&refused.stderr)
    );
    assert_eq!(fs::read(case.file()).expect("the file"), b"precious");
    case.backed_up(&["--force"]);
    assert_eq!(case.rows(), 3);
    for suffix in ["-wal", "-journal", "-onewrite"] {
        let log = companion(&case.file(), suffix);
        fs::write(&log, "something").expect("a file");
        let refused = lossy(&case.backup(&["--force"]).stderr);
        assert!(
            refused.contains(suffix) && refused.contains("verify"),
            "{refused}"
        );
        fs::remove_file(&log).expect("the file");
    }
    let itself = run(onewrite(&[
        "backup",
        "--force",
        path(&case.database()),
        path(&case.database()),
    ]));
    assert!(lossy(&itself.stderr).contains("its own backup"));
    case.backed_up(&["--force"]);
    let used = Writer::start(
        &case.file(),
        "direct",
        "auto",
        "SELECT 1 FROM t",
        Then::Wait,
    );
    let refused = lossy(&case.backup(&["--force"]).stderr);
    assert!(refused.contains("in use"), "{refused}");
    used.finish();
}

#[test]
fn no_backup_takes_the_name_of_another_databases_file() {
    let case = Case::new();
    let other = case.directory.path().join("other.db");
    for database in [case.database(), other.clone()] {
        Writer::start(&database, "onewrite", "auto", FOUR_COMMITS, Then::Wait).kill();
    }
    for suffix in [
        "-onewrite",
        "-onewrite-shm",
        "-onewrite-lock",
        "-shm",
        "-wal",
        "-journal",
    ] {
        let file = companion(&other, suffix);
        let before = fs::read(&file).ok();
        let refused = run(onewrite(&[
            "backup",
            "--force",
            path(&case.database()),
            path(&file),
        ]));
        let text = lossy(&refused.stderr);
        assert!(
            !refused.status.success() && text.contains("other.db"),
            "{text}"
        );
        assert_eq!(fs::read(&file).ok(), before, "{suffix}");
    }
}

#[test]
fn a_killed_database_is_recovered_into_its_backup() {
    for mode in ["onewrite", "waldio", "swal", "direct", "wal"] {
        let case = Case::new();
        Writer::start(&case.database(), mode, "auto", FOUR_COMMITS, Then::Wait).kill();
        case.backed_up(&[]);
        assert_eq!(case.rows(), 3, "{mode}");
        // The backup closes it last: a stock database again.
        assert_eq!(
            stock_shell(&case.database(), "SELECT count(*) FROM t"),
            "3",
            "{mode}"
        );
    }
}

#[test]
fn the_database_keeps_its_mode_and_the_backup_its_permissions() {
    let case = Case::new();
    let connection = rusqlite::Connection::open(case.database()).expect("a database");
    connection.execute_batch(FOUR_COMMITS).expect("rows");
    drop(connection);
    let secret = fs::Permissions::from_mode(0o600);
    fs::set_permissions(case.database(), secret).expect("permissions");
    let before = fs::read(case.database()).expect("the database");
    let (database, file) = (case.database(), case.file());
    let mut command = onewrite(&["backup", path(&database), path(&file)]);
    command
        .env("ONEWRITE_JOURNAL_MODE", "onewrite")
        .env("ONEWRITE_UPGRADE_WAL", "1");
    assert!(run(command).status.success());
    assert_eq!(fs::read(case.database()).expect("the database"), before);
    assert_eq!(case.rows(), 3);
    let mode = fs::metadata(case.file())
        .expect("the backup")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_cannot_be_backed_up_says_why_and_leaves_nothing() {
    let case = Case::new();
    for (bytes, why) in [
        (None, "no such file"),
        (Some(&b""[..]), "empty"),
        (Some(b"neither this nor that"), "not a database"),
    ] {
        if let Some(bytes) = bytes {
            fs::write(case.database(), bytes).expect("a file");
        }
        let output = case.backup(&[]);
        assert_eq!(output.status.code(), Some(1));
        let said = lossy(&output.stderr);
        assert!(said.contains(why) && said.contains("app.db"), "{said}");
        assert!(names(case.directory.path(), "backup").is_empty());
    }
    fs::remove_file(case.database()).expect("the file");
    Writer::start(
        &case.database(),
        "waldio",
        "embedded",
        FOUR_COMMITS,
        Then::Wait,
    )
    .kill();
    fs::remove_file(companion(&case.database(), "-onewrite")).expect("the log");
    let said = lossy(&case.backup(&[]).stderr);
    assert!(
        said.contains("onewrite verify") && said.contains("onewrite salvage"),
        "{said}"
    );
}

#[test]
fn a_full_disk_is_said_and_nothing_is_left() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: takes root");
        return;
    }
    let case = Case::new();
    let writer = Writer::start(&case.database(), "onewrite", "auto", LARGE, Then::Wait);
    // Only this thread's mounts, and those of the processes that it starts.
    private_mounts().expect("a mount namespace");
    let small = case.directory.path().join("small");
    fs::create_dir(&small).expect("a directory");
    let source = Path::new("onewrite-test");
    let mounted = Mounted::with_options(source, &small, "tmpfs", Some(c"size=4m"));
    let mounted = mounted.expect("a file system");
    let (database, file) = (case.database(), small.join("backup.db"));
    let output = run(onewrite(&["backup", path(&database), path(&file)]));
    let said = lossy(&output.stderr);
    assert!(said.contains("no space is left"), "{said}");
    assert!(said.contains(path(&file)), "{said}");
    assert!(!said.contains(path(&database)), "{said}");
    assert!(names(&small, "").is_empty(), "nothing is left");
    mounted.unmount().expect("unmounted");
    drop(writer);
}
