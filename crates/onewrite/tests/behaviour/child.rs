//! Another process that uses a database: this program again, which runs the statements that it gets.

use super::{open, outcome};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{self, ChildStdout, Command, Stdio};

/// The words that are no statements: the process opens or closes its connection.
const OPEN: &str = "open";
const CLOSE: &str = "close";

/// The other process. It ends with its standard input.
#[test]
#[ignore = "run by other tests"]
fn runs_statements() {
    let path = std::env::var_os("ONEWRITE_TEST_DATABASE").expect("a path");
    let mut db = None;
    for line in std::io::stdin().lines() {
        let found = match line.expect("a line").as_str() {
            OPEN => db
                .replace(open(path.as_ref()))
                .map_or("", |_| "reopened")
                .into(),
            CLOSE => db.take().map_or("not open", |_| "").into(),
            statement => outcome(db.as_ref().expect("a connection"), statement),
        };
        println!("found={found}");
    }
}

/// Another process with a connection.
pub struct Child {
    process: process::Child,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts it, and opens its connection.
    pub fn start(path: &Path) -> Child {
        let program = std::env::current_exe().expect("this program");
        let mut process = Command::new(program)
            .args([
                "--exact",
                "child::runs_statements",
                "--ignored",
                "--nocapture",
            ])
            .env("ONEWRITE_TEST_DATABASE", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let stdout = process.stdout.take().expect("a pipe");
        let answers = BufReader::new(stdout).lines();
        let mut child = Child { process, answers };
        child.open();
        child
    }

    pub fn open(&mut self) {
        assert_eq!(self.sql(OPEN), "");
    }

    /// Begins to close the connection. The next answer is that it has closed.
    pub fn begin_to_close(&mut self) {
        self.say(CLOSE);
    }

    pub fn has_closed(&mut self) {
        assert_eq!(self.answer(), "");
    }

    pub fn sql(&mut self, statement: &str) -> String {
        self.say(statement);
        self.answer()
    }

    fn say(&mut self, line: &str) {
        let stdin = self.process.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{line}").expect("a line");
    }

    fn answer(&mut self) -> String {
        // The test harness writes on the same stream.
        let lines = self.answers.by_ref().map(|line| line.expect("a line"));
        let mut found = lines.filter_map(|line| Some(line.split_once("found=")?.1.to_owned()));
        found.next().expect("the other process has ended")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
