//! `onewrite shell`, and `onewrite run -- sqlite3`: cron jobs with the stock shell keep working.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use super::writer::{FOUR_COMMITS, Then, Writer};
use super::{lossy, onewrite, path, run, stock_shell};

/// With the libraries that this test built.
fn with_libraries(arguments: &[&str]) -> Command {
    super::common::build_libraries();
    onewrite(arguments)
}

fn ended(output: &Output) -> (i32, String, String) {
    let code = output.status.code().expect("no signal");
    (code, lossy(&output.stdout), lossy(&output.stderr))
}

#[test]
fn the_stock_shell_reads_dumps_and_backs_up_a_database_in_use() {
    for mode in ["onewrite", "waldio", "swal", "direct", "wal", "delete"] {
        let directory = tempfile::tempdir().expect("a directory");
        let database = directory.path().join("app.db");
        let copy = directory.path().join("copy.db");
        let writer = Writer::start(&database, mode, "auto", FOUR_COMMITS, Then::Wait);
        if !["direct", "wal", "delete"].contains(&mode) {
            // The purpose of the command: the stock shell alone fails.
            assert!(stock_shell(&database, ".dump").contains("ERROR"));
        }
        for begin in [&["shell"][..], &["run", "--", "sqlite3"]] {
            let shell = |words: &[&str]| {
                let words = [begin, &[path(&database)], words].concat();
                ended(&run(with_libraries(&words)))
            };
            let (code, out, err) = shell(&[".dump"]);
            assert_eq!((code, err.as_str()), (0, ""), "{mode}");
            assert!(
                out.contains("VALUES(3,'three')") && out.contains("COMMIT"),
                "{out}"
            );
            let (code, out, err) = shell(&["-csv", "SELECT id, value FROM t"]);
            assert_eq!((code, err.as_str()), (0, ""), "{mode}");
            assert_eq!(
                out.lines().collect::<Vec<_>>(),
                ["1,one", "2,two", "3,three"]
            );
            let (code, _, err) = shell(&[&format!(".backup {}", copy.display())]);
            assert_eq!((code, err.as_str()), (0, ""), "{mode}");
            assert_eq!(
                stock_shell(&copy, "PRAGMA integrity_check; SELECT count(*) FROM t"),
                "ok\n3"
            );
            fs::remove_file(&copy).expect("the copy");
            let (code, _, err) = shell(&["SELECT nonsense FROM t"]);
            assert!(code != 0 && err.contains("nonsense"), "{code} {err}");
        }
        writer.finish();
    }
}

#[test]
fn it_reads_sql_from_standard_input_writes_and_keeps_the_mode() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in ["onewrite", "delete"] {
        let database = directory.path().join(mode);
        Writer::start(&database, mode, "auto", FOUR_COMMITS, Then::Wait).finish();
        let mut command = with_libraries(&["shell", path(&database)]);
        // This wish is for programs, not for the shell.
        command
            .env("ONEWRITE_JOURNAL_MODE", "onewrite")
            .env("ONEWRITE_UPGRADE_WAL", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut input = child.stdin.take().expect("its input");
        let sql =
            b"INSERT INTO t VALUES(4, 'four');\nPRAGMA journal_mode;\nSELECT count(*) FROM t;\n";
        input.write_all(sql).expect("a pipe");
        drop(input);
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success());
        assert_eq!(lossy(&output.stdout), format!("{mode}\n4\n"));
        assert_eq!(stock_shell(&database, "SELECT count(*) FROM t"), "4");
    }
}

/// The shell does not close the database if SQL among its arguments fails.
#[test]
fn after_an_error_the_database_is_a_stock_one_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = directory.path().join("app.db");
    Writer::start(&database, "onewrite", "auto", FOUR_COMMITS, Then::Wait).finish();
    let words = ["shell", path(&database), "SELECT nonsense FROM t"];
    let (code, _, err) = ended(&run(with_libraries(&words)));
    assert!(code != 0 && err.contains("nonsense"), "{code} {err}");
    assert_eq!(stock_shell(&database, "SELECT count(*) FROM t"), "3");
}

#[test]
fn without_a_shell_it_says_how_to_get_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = directory.path().join("app.db");
    let mut command = onewrite(&["shell", path(&database), "SELECT 1"]);
    command.env("PATH", directory.path());
    let (code, out, err) = ended(&run(command));
    assert_eq!((code, out.as_str()), (1, ""));
    for words in ["apt install sqlite3", "--sqlite3", "onewrite backup"] {
        assert!(err.contains(words), "{words}: {err}");
    }
    // An sqlite3 that preloading does not reach.
    let own = directory.path().join("sqlite3");
    fs::write(&own, b"\x7fELF...SQLite format 3\0...").expect("a file");
    let (code, _, err) = ended(&run(onewrite(&[
        "shell",
        "--sqlite3",
        path(&own),
        path(&database),
    ])));
    assert_eq!(code, 1);
    assert!(err.contains("linked into it"), "{err}");
}
