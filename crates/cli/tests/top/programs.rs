//! Programs that commit a given number of times: Python with the system's SQLite, Node with its own,
//! and two that have SQLite linked statically: this test, and one in Go (go/main.go).
#![allow(dead_code)] // not every test that includes this module needs all of it

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Opens, waits for a line, commits, and waits for the end of its input.
pub const PYTHON: &str = "
import sqlite3, sys
path, mode, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
db = sqlite3.connect(path, isolation_level=None)
db.execute('PRAGMA journal_mode=' + mode)
db.execute('PRAGMA synchronous=FULL')
db.execute('CREATE TABLE IF NOT EXISTS t(x)')
print('ready', flush=True)
sys.stdin.readline()
for i in range(count):
    db.execute('INSERT INTO t VALUES (?)', ('x' * 100,))
print('done', flush=True)
sys.stdin.readline()
";

const NODE: &str = "
const {DatabaseSync} = require('node:sqlite');
const [path, mode, count] = process.argv.slice(1);
const db = new DatabaseSync(path);
db.exec(`PRAGMA journal_mode=${mode}; PRAGMA synchronous=FULL; CREATE TABLE t(x)`);
console.log('ready');
process.stdin.once('data', () => {
  for (let i = 0; i < Number(count); i++) db.exec(`INSERT INTO t VALUES ('${'x'.repeat(100)}')`);
  console.log('done');
  process.stdin.once('data', () => process.exit(0));
});
";

/// The variable that makes this test the program with a statically linked SQLite.
const WRITER: &str = "ONEWRITE_TOP_WRITER";

/// Where scripts put programs.
fn target(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target")
        .join(name)
}

/// A program that has opened its database.
pub struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Python's own SQLite.
    pub fn python(database: &Path, mode: &str, count: u32) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", PYTHON]).arg(database);
        Self::start(command.args([mode, &count.to_string()]))
    }

    /// A program that has SQLite linked statically.
    pub fn linked(database: &Path, mode: &str, count: u32) -> Self {
        let test = std::env::current_exe().expect("this test");
        let job = format!("{mode}\n{count}\n{}", database.display());
        let mut command = Command::new(test);
        command.args([
            "--exact",
            "programs::writes_if_it_is_told_to",
            "--nocapture",
        ]);
        Self::start(command.env(WRITER, job))
    }

    /// Node, of this machine or from npm, if one has SQLite.
    pub fn node(database: &Path, mode: &str, count: u32) -> Option<Self> {
        let has_sqlite = |node: &PathBuf| {
            let asked = Command::new(node)
                .args(["-e", "require('node:sqlite')"])
                .stderr(Stdio::null())
                .status();
            asked.is_ok_and(|status| status.success())
        };
        let from_npm = target("node-package/node_modules/node-24/bin/node");
        let Some(node) = [from_npm, "node".into()].into_iter().find(has_sqlite) else {
            println!("SKIPPED: no Node with SQLite: run scripts/node-and-go");
            return None;
        };
        let mut command = Command::new(node);
        command.args(["-e", NODE]).arg(database);
        command.args([mode, &count.to_string()]);
        Some(Self::start(command.stderr(Stdio::null())))
    }

    /// A program in Go.
    pub fn in_go(database: &Path, mode: &str, count: u32) -> Option<Self> {
        let program = target("go-package/top");
        if !program.exists() {
            println!("SKIPPED: no program in Go: run scripts/node-and-go");
            return None;
        }
        let mut command = Command::new(program);
        command.arg(database).args([mode, &count.to_string()]);
        Some(Self::start(&mut command))
    }

    pub fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program");
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let mut program = Self {
            child,
            input: input.expect("a pipe"),
            output: BufReader::new(output.expect("a pipe")),
        };
        program.wait_for("ready");
        program
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it commit.
    pub fn go(&mut self) {
        self.input.write_all(b"go\n").expect("a line");
        self.input.flush().expect("a line");
    }

    /// Waits until it has committed.
    pub fn wait_done(&mut self) {
        self.wait_for("done");
    }

    fn wait_for(&mut self, word: &str) {
        let mut line = String::new();
        while !line.trim_end().ends_with(word) {
            line.clear();
            let read = self.output.read_line(&mut line).expect("a line");
            assert!(read > 0, "the program ended before it was {word}");
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// No test by itself: the program of [`Program::linked`].
#[test]
fn writes_if_it_is_told_to() {
    let Ok(job) = std::env::var(WRITER) else {
        return;
    };
    let mut parts = job.splitn(3, '\n');
    let mut part = || parts.next().expect("three lines");
    let (mode, count, path) = (part(), part().parse().expect("a number"), part());
    let database = rusqlite::Connection::open(path).expect("a database");
    let set_up = format!("PRAGMA journal_mode={mode}; PRAGMA synchronous=FULL; CREATE TABLE t(x)");
    database.execute_batch(&set_up).expect("a table");
    let read = || std::io::stdin().read_line(&mut String::new());
    println!("ready");
    read().expect("a line");
    for _ in 0..count {
        let row = "x".repeat(100);
        let inserted = database.execute("INSERT INTO t VALUES (?)", [row]);
        inserted.expect("a row");
    }
    println!("done");
    let _ = read();
}
