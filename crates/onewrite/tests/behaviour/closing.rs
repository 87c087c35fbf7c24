//! Connections that close at the same moment: SQLite refuses EXCLUSIVE to each of them, because the
//! others still have the database open. None is the last one then, as SQLite sees it.

use rusqlite::Connection;

use super::{MODES, Mode, open, open_in, outcome, sql, stock};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;

const AT_ONCE: usize = 4;

/// Rounds in which connections close together. Where nobody ended the guard, one in five left it.
const ROUNDS: usize = 40;

fn assert_is_stock(path: &Path, rows: usize, mode: Mode) {
    let found = outcome(&stock(path), "SELECT count(*) FROM t");
    assert_eq!(found, rows.to_string(), "{mode:?}");
}

/// Does it with all of them at the same moment.
fn at_once(open: Vec<Connection>, work: impl Fn(Connection) + Sync) {
    let ready = Barrier::new(open.len());
    std::thread::scope(|scope| {
        for db in open {
            scope.spawn(|| {
                ready.wait();
                work(db);
            });
        }
    });
}

#[test]
fn connections_that_close_at_once_leave_a_stock_database() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = open_in(&path, mode);
        sql(&db, "CREATE TABLE t(x)");
        drop(db);
        for round in 1..=ROUNDS {
            let open: Vec<_> = (0..AT_ONCE).map(|_| open(&path)).collect();
            for db in &open {
                assert_eq!(sql(db, "SELECT count(*) FROM t"), (round - 1).to_string());
            }
            sql(&open[0], "INSERT INTO t VALUES(1)");
            at_once(open, drop);
            assert_is_stock(&path, round, mode);
        }
    }
}

#[test]
fn connections_that_detach_at_once_leave_a_stock_database() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = open_in(&path, mode);
        sql(&db, "CREATE TABLE t(x)");
        drop(db);
        let attached = || {
            let db = open(Path::new(":memory:"));
            sql(&db, &format!("ATTACH '{}' AS a", path.display()));
            db
        };
        for round in 1..=ROUNDS {
            let open: Vec<_> = (0..AT_ONCE).map(|_| attached()).collect();
            for db in &open {
                assert_eq!(sql(db, "SELECT count(*) FROM a.t"), (round - 1).to_string());
            }
            sql(&open[0], "INSERT INTO a.t VALUES(1)");
            at_once(open, |db| drop(sql(&db, "DETACH a")));
            assert_is_stock(&path, round, mode);
        }
    }
}

/// The child of the test below: has the database open until it gets a line.
#[test]
#[ignore = "run by another test"]
fn closer() {
    let path = std::env::var_os("ONEWRITE_TEST_DATABASE").expect("a path");
    let db = open(path.as_ref());
    for line in std::io::stdin().lines() {
        match line.expect("a statement").as_str() {
            "close" => break,
            statement => println!("found={}", outcome(&db, statement)),
        }
    }
}

struct Closer {
    child: Child,
    answers: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Closer {
    fn start(path: &Path) -> Closer {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .args(["--exact", "closing::closer", "--ignored", "--nocapture"])
            .env("ONEWRITE_TEST_DATABASE", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let stdout = child.stdout.take().expect("a pipe");
        let answers = BufReader::new(stdout).lines();
        Closer { child, answers }
    }

    fn say(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{line}").expect("a line");
    }

    fn hear(&mut self) -> String {
        let answers = self.answers.by_ref().map(|line| line.expect("a line"));
        let mut found = answers.filter_map(|line| Some(line.split_once("found=")?.1.to_owned()));
        found.next().expect("an answer")
    }
}

#[test]
fn processes_that_close_at_once_leave_a_stock_database() {
    for mode in MODES.into_iter().filter(|mode| mode.before.is_empty()) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = open_in(&path, mode);
        sql(&db, "CREATE TABLE t(x)");
        drop(db);
        for round in 1..=ROUNDS {
            let mut closers: Vec<_> = (0..AT_ONCE).map(|_| Closer::start(&path)).collect();
            for closer in &mut closers {
                closer.say("SELECT count(*) FROM t");
                assert_eq!(closer.hear(), (round - 1).to_string(), "{mode:?}");
            }
            closers[0].say("INSERT INTO t VALUES(1)");
            assert_eq!(closers[0].hear(), "", "{mode:?}");
            closers.iter_mut().for_each(|closer| closer.say("close"));
            for mut closer in closers {
                let rest = closer.answers.by_ref().count();
                let status = closer.child.wait().expect("a status");
                assert!(status.success(), "{status} after {rest} lines");
            }
            assert_is_stock(&path, round, mode);
        }
    }
}
