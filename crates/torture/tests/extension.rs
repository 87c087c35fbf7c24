//! The loadable extension in other programs: Python's sqlite3 module and the shell.

mod common;
#[path = "extension/wal_faults.rs"]
mod wal_faults;

use common::{extension, python, skip};
use onewrite_torture::files::header;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

fn has_shell() -> bool {
    let installed = onewrite_torture::session::shell::is_installed();
    if !installed {
        skip("the sqlite3 shell is not installed");
    }
    installed
}

struct Fixture {
    directory: TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    fn database(&self) -> PathBuf {
        self.directory.path().join("app.db")
    }

    /// Runs a script of `tests/extension/` on the database and returns its output.
    fn python(&self, python: &Path, script: &str, variables: &[(&str, &str)]) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/extension")
            .join(script);
        let mut command = Command::new(python);
        command.arg(path).arg(extension()).arg(self.database());
        printed(command.envs(variables.iter().copied()))
    }

    /// Feeds the shell, which starts on an in-memory database.
    fn shell(&self, lines: &str, variables: &[(&str, &str)]) -> String {
        self.shell_by(&mut Command::new("sqlite3"), lines, variables)
    }

    /// Likewise, with a command that starts the shell.
    fn shell_by(&self, command: &mut Command, lines: &str, variables: &[(&str, &str)]) -> String {
        let input = self.directory.path().join("input.sql");
        std::fs::write(&input, lines).expect("the temporary directory is writable");
        command.args(["-batch", "-bail", "-init", "/dev/null", ":memory:"]);
        command.stdin(std::fs::File::open(&input).expect("it was just written"));
        printed(command.envs(variables.iter().copied()))
    }

    /// The output of stock SQLite: one statement in a shell of its own.
    fn stock(&self, sql: &str) -> Output {
        let mut command = Command::new("sqlite3");
        command
            .args(["-batch", "-init", "/dev/null"])
            .arg(self.database())
            .arg(sql);
        command.output().expect("the shell was there a moment ago")
    }

    fn is_guarded(&self) -> bool {
        let header = header(&self.database()).expect("the database can be read");
        header.expect("the database is there").is_guarded()
    }
}

fn printed(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    // One of the scripts ends by killing itself.
    let ended = output.status.success() || output.status.signal() == Some(9);
    assert!(ended, "{command:?}\n{stdout}\n{stderr}");
    stdout.trim().to_owned()
}

const DEFAULT: [(&str, &str); 2] = [
    ("ONEWRITE_MAKE_DEFAULT", "1"),
    ("ONEWRITE_JOURNAL_MODE", "waldio"),
];

#[test]
fn python_opens_by_uri_switches_and_leaves_a_stock_database() {
    let Some(python) = python() else { return };
    let fixture = Fixture::new();
    assert_eq!(fixture.python(&python, "by_uri.py", &[]), "waldio 100 ok");
    assert!(!fixture.is_guarded());
    assert_eq!(fixture.python(&python, "stock.py", &[]), "wal 100 ok");
}

#[test]
fn python_that_knows_of_nothing_gets_waldio_from_the_environment() {
    let Some(python) = python() else { return };
    let fixture = Fixture::new();
    assert_eq!(
        fixture.python(&python, "unaware.py", &DEFAULT),
        "waldio 50 ok"
    );
    // The script has killed itself. The database must be guarded, and whole.
    assert!(fixture.is_guarded());
    assert_eq!(
        fixture.python(&python, "unaware.py", &DEFAULT),
        "waldio 100 ok"
    );
}

#[test]
fn python_threads_commit_side_by_side() {
    let Some(python) = python() else { return };
    let fixture = Fixture::new();
    assert_eq!(fixture.python(&python, "threads.py", &[]), "waldio 400 ok");
    assert!(!fixture.is_guarded());
}

/// Unless our VFS makes SQLite read the file, SQLite takes its cached pages for the newest commits.
#[test]
fn python_leaves_the_modes_of_attached_databases_and_writes_over_no_commit() {
    let Some(python) = python() else { return };
    let expected = ["wal", "direct", "waldio", "onewrite"].map(|m| format!("{m} 1,2,3 delete"));
    let printed = Fixture::new().python(&python, "attached.py", &[]);
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
}

/// SQLite has its own error message for every call of a VFS except opening.
#[test]
fn python_is_told_the_way_out_in_the_error_itself() {
    let Some(python) = python() else { return };
    let printed = Fixture::new().python(&python, "replaced.py", &[]);
    assert_eq!(printed, "True True True");
}

#[test]
fn python_goes_on_in_wal_next_to_an_idle_stock_connection() {
    let Some(python) = python() else { return };
    let environment = [
        ("ONEWRITE_MAKE_DEFAULT", "1"),
        ("ONEWRITE_UPGRADE_WAL", "onewrite"),
    ];
    let printed = Fixture::new().python(&python, "idle_stock.py", &environment);
    assert_eq!(printed, "True 0 wal 1\n1 True");
}

#[test]
fn the_shell_loads_it_and_uses_it() {
    if !has_shell() {
        return;
    }
    let fixture = Fixture::new();
    let lines = format!(
        ".load {}\n.open 'file:{}?vfs=onewrite'\nPRAGMA journal_mode=waldio;\n\
         CREATE TABLE t(a);\nINSERT INTO t VALUES(1),(2),(3);\nSELECT sum(a) FROM t;\n\
         PRAGMA integrity_check;\n",
        extension().with_extension("").display(),
        fixture.database().display()
    );
    assert_eq!(fixture.shell(&lines, &[]), "waldio\n6\nok");
    assert!(!fixture.is_guarded());
    let stock = fixture.stock("PRAGMA journal_mode; SELECT count(*) FROM t;");
    assert_eq!(String::from_utf8_lossy(&stock.stdout), "wal\n3\n");

    // The database remembers the mode, so the next connection through the VFS has it without
    // asking.
    let again = format!(
        ".load {}\n.open 'file:{}?vfs=onewrite'\nPRAGMA journal_mode;\nSELECT count(*) FROM t;\n",
        extension().display(),
        fixture.database().display()
    );
    assert_eq!(fixture.shell(&again, &[]), "waldio\n3");
}

/// Valgrind maps no vDSO, though the kernel's auxiliary vector has one. Its memcheck also finds what
/// the extension does wrong in memory, and ends with 9 then.
#[test]
fn the_shell_under_valgrind_uses_it() {
    if !has_shell() {
        return;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        skip("valgrind is not installed");
        return;
    }
    let fixture = Fixture::new();
    let lines = format!(
        ".load {}\n.open 'file:{}?vfs=onewrite'\nPRAGMA journal_mode=onewrite;\n\
         CREATE TABLE t(a, b);\nINSERT INTO t VALUES(1, randomblob(9000)),(2, zeroblob(20000));\n\
         INSERT INTO t VALUES(3, 'x');\nPRAGMA wal_checkpoint;\nINSERT INTO t VALUES(4, 'y');\n\
         SELECT sum(a) FROM t;\nPRAGMA integrity_check;\n",
        extension().display(),
        fixture.database().display()
    );
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--error-exitcode=9", "sqlite3"]);
    let printed = fixture.shell_by(&mut valgrind, &lines, &[]);
    let (first, last) = ("onewrite\n0|", "\n10\nok");
    assert!(
        printed.starts_with(first) && printed.ends_with(last),
        "{printed}"
    );
}

#[test]
fn the_shell_that_knows_of_nothing_gets_waldio_from_the_environment() {
    if !has_shell() {
        return;
    }
    let fixture = Fixture::new();
    let lines = format!(
        ".load {}\n.open {}\nCREATE TABLE t(a);\nINSERT INTO t VALUES(1);\n\
         PRAGMA journal_mode;\n.shell sqlite3 -batch {} 'SELECT * FROM t' 2>&1 || true\n",
        extension().display(),
        fixture.database().display(),
        fixture.database().display()
    );
    let printed = fixture.shell(&lines, &DEFAULT);
    assert!(printed.starts_with("waldio"), "{printed}");
    assert!(printed.contains("file is not a database"), "{printed}");
    let stock = fixture.stock("SELECT count(*) FROM t;");
    assert_eq!(String::from_utf8_lossy(&stock.stdout), "1\n");
}

/// An application that asks for WAL and knows nothing of onewrite, with extra environment
/// `variables`.
fn unaware(variables: &[(&str, &str)], statements: &str) -> (Fixture, String) {
    let fixture = Fixture::new();
    let mut all = vec![
        ("ONEWRITE_MAKE_DEFAULT", "1"),
        ("ONEWRITE_UPGRADE_WAL", "waldio"),
    ];
    all.extend_from_slice(variables);
    let lines = format!(
        ".load {}\n.open {}\n{statements}\n",
        extension().display(),
        fixture.database().display()
    );
    let printed = fixture.shell(&lines, &all);
    (fixture, printed)
}

#[test]
fn an_application_that_asks_for_wal_gets_waldio_and_is_answered_wal() {
    if !has_shell() {
        return;
    }
    let (fixture, printed) = unaware(
        &[],
        "PRAGMA journal_mode=wal;\nPRAGMA journal_mode;\nCREATE TABLE t(a);\n\
         PRAGMA onewrite_status;\nPRAGMA journal_mode=delete;\nPRAGMA onewrite_status;",
    );
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[..2], ["wal", "wal"], "{printed}");
    assert!(lines[2].contains(r#""mode":"waldio""#), "{printed}");
    assert_eq!(lines[3], "delete");
    assert!(lines[4].contains(r#""mode":null"#), "{printed}");
    assert!(!fixture.is_guarded());
}

#[test]
fn a_database_that_waldio_cannot_carry_gets_wal_or_another_layout() {
    if !has_shell() {
        return;
    }
    // It has content, and no room in its pages for frame headers.
    let statements = "CREATE TABLE t(a);\nPRAGMA journal_mode=wal;\nPRAGMA onewrite_status;";
    for (variables, expected) in [
        (&[][..], r#""mode":null"#),
        (&[("ONEWRITE_LAYOUT", "sector")][..], r#""layout":"sector""#),
    ] {
        let (_place, printed) = unaware(variables, statements);
        let lines: Vec<&str> = printed.lines().collect();
        assert_eq!(lines[0], "wal", "{printed}");
        assert!(lines[1].contains(expected), "{printed}");
    }
}

#[test]
fn a_word_of_the_environment_that_means_nothing_is_told_in_sqlites_log() {
    if !has_shell() {
        return;
    }
    let cases = [
        (
            &[("ONEWRITE_UPGRADE_WAL", "wadlio")][..],
            "ONEWRITE_UPGRADE_WAL: unknown value 'wadlio'",
        ),
        (
            &[("ONEWRITE_UPGRADE_WAL", "1")][..],
            "ONEWRITE_UPGRADE_WAL: 1 needs a mode",
        ),
        (
            &[("ONEWRITE_LAYOUT", "page5k")][..],
            "ONEWRITE_LAYOUT: onewrite_layout: unknown value 'page5k'",
        ),
        (
            &[("ONEWRITE_JOURNAL_MODE", "waldo")][..],
            "ONEWRITE_JOURNAL_MODE: unknown value 'waldo'",
        ),
        (&[("ONEWRITE_UPGRADE_WAL", "0")][..], ""),
        (&[("ONEWRITE_UPGRADE_WAL", "")][..], ""),
        (
            &[
                ("ONEWRITE_UPGRADE_WAL", "1"),
                ("ONEWRITE_JOURNAL_MODE", "wal"),
            ][..],
            "ONEWRITE_UPGRADE_WAL: 1 needs a mode of onewrite in ONEWRITE_JOURNAL_MODE, which is wal",
        ),
    ];
    for (variables, told) in cases {
        let fixture = Fixture::new();
        let mut all = vec![("ONEWRITE_MAKE_DEFAULT", "1")];
        all.extend_from_slice(variables);
        let lines = format!(
            ".log stdout\n.load {}\n.open {}\nPRAGMA journal_mode=wal;\nPRAGMA onewrite_status;\n",
            extension().display(),
            fixture.database().display()
        );
        let printed = fixture.shell(&lines, &all);
        // The application continues with SQLite's own WAL.
        assert!(
            printed.contains(r#""mode":null"#),
            "{variables:?}: {printed}"
        );
        assert_eq!(
            printed.contains("unknown value"),
            told.contains("unknown value"),
            "{printed}"
        );
        assert!(printed.contains(told), "{variables:?}: {printed}");
        assert_eq!(
            told.is_empty(),
            !printed.contains("(28)"),
            "{variables:?}: {printed}"
        );
    }
}

/// A program did not ask for the line, so it must not die of it.
#[test]
fn a_warning_to_a_pipe_that_nobody_reads_does_not_end_the_program() {
    if !has_shell() {
        return;
    }
    let fixture = Fixture::new();
    let lines = format!(
        ".load {}\n.open {}\nCREATE TABLE IF NOT EXISTS t(a);\n.print done\n",
        extension().display(),
        fixture.database().display()
    );
    let input = fixture.directory.path().join("input.sql");
    std::fs::write(&input, lines).expect("the temporary directory is writable");
    for log in ["stderr", "sqlite"] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new("sqlite3");
        command.args(["-batch", "-init", "/dev/null", ":memory:"]);
        command.stdin(std::fs::File::open(&input).expect("it was just written"));
        command.stderr(writer).stdout(Stdio::piped());
        command.envs([
            ("ONEWRITE_LOG", log),
            ("ONEWRITE_MAKE_DEFAULT", "1"),
            ("ONEWRITE_LAYOUT", "page5k"),
        ]);
        let child = command.spawn().expect("the shell was there a moment ago");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", output.status);
        assert!(String::from_utf8_lossy(&output.stdout).contains("done"));
    }
}

#[test]
fn asking_for_wal_without_a_schema_is_for_attached_databases_too() {
    if !has_shell() {
        return;
    }
    let second = Fixture::new();
    let statements = format!(
        "ATTACH '{}' AS two;\nCREATE TABLE two.t(a);\nPRAGMA journal_mode=wal;\n\
         PRAGMA main.journal_mode;\nPRAGMA two.journal_mode;",
        second.database().display()
    );
    let (_place, printed) = unaware(&[], &statements);
    assert_eq!(printed, "wal\nwal\nwal");
}

/// Some older SQLite versions, such as Debian 12's and 13's, can leave frames without checksums.
/// That happens when a transaction overwrites a frame and then rolls back, by a savepoint, to
/// before it. It depends on the positions of random bytes: some forty times in a hundred.
#[test]
fn what_sqlite_commits_with_unfinished_frames_is_recovered() {
    if !has_shell() {
        return;
    }
    const TRIALS: usize = 25;
    let (mut statements, mut expected) = (String::new(), String::new());
    let fixture = Fixture::new();
    for trial in 0..TRIALS {
        let path = |name: &str| fixture.directory.path().join(format!("{name}{trial}.db"));
        let (used, copy) = (path("used"), path("copy"));
        let (used, copy) = (used.display(), copy.display());
        statements += &format!(
            ".open {used}\nPRAGMA page_size=1024;\nPRAGMA journal_mode=wal;\n\
             CREATE TABLE t(a PRIMARY KEY);\nINSERT INTO t VALUES(randomblob(900));\n\
             .open {used}\nPRAGMA synchronous={};\nPRAGMA cache_size=10;\n\
             BEGIN;\nINSERT INTO t SELECT randomblob(900) FROM t;\nSAVEPOINT s;\n\
             INSERT INTO t SELECT randomblob(900) FROM t;\n\
             INSERT INTO t SELECT randomblob(900) FROM t;\n\
             INSERT INTO t SELECT randomblob(900) FROM t;\n\
             ROLLBACK TO s;\nCOMMIT;\nSELECT count(*) FROM t;\n\
             INSERT INTO t VALUES(1);\nSELECT count(*) FROM t;\n\
             .shell cp {used} {copy}; cp {used}-onewrite {copy}-onewrite\n\
             .open {copy}\nSELECT count(*) FROM t;\nPRAGMA integrity_check;\n",
            ["FULL", "NORMAL"][trial % 2],
        );
        expected += "wal\n2\n3\n3\nok\n";
    }
    for layout in ["embedded", "sector"] {
        let (_place, printed) = unaware(&[("ONEWRITE_LAYOUT", layout)], &statements);
        assert_eq!(printed, expected.trim(), "{layout}");
        for entry in std::fs::read_dir(fixture.directory.path()).expect("the directory") {
            std::fs::remove_file(entry.expect("an entry").path()).expect("a file");
        }
    }
}
