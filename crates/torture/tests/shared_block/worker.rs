//! Another process: this program again, with one connection. It executes the statements that it is
//! sent, one a line, and answers each with a line.

use onewrite::storage::observer::{self, Call, Observer};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const ROLE: &str = "ONEWRITE_SHARED_BLOCK_WORKER";
const END: &str = "====";
/// Longer than any wait of the engine, on a busy machine.
const IN_TIME: Duration = Duration::from_secs(120);

/// The connections count as active, however long the test takes.
struct Company;

impl Observer for Company {
    fn before(&self, _: &Path, _: &Call<'_>) -> std::io::Result<()> {
        Ok(())
    }

    fn company_lasts(&self, _: Duration) -> Duration {
        Duration::from_secs(86400)
    }
}

/// As a separate test it does nothing.
#[test]
fn worker() {
    let Some(path) = std::env::var_os(ROLE) else {
        return;
    };
    assert!(observer::observe(Box::new(Company)));
    onewrite::register().expect("the VFS onewrite");
    let flags = OpenFlags::default();
    let db = Connection::open_with_flags_and_vfs(path, flags, onewrite::VFS_NAME);
    let db = db.expect("a connection");
    println!("{END}{}", rustix::thread::gettid().as_raw_nonzero());
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let answer = query(&db, &line).unwrap_or_else(|e| format!("ERROR {e}"));
        println!("{END}{answer}");
    }
}

/// The first column of all rows, separated by spaces.
fn query(db: &Connection, statement: &str) -> rusqlite::Result<String> {
    let mut prepared = db.prepare(statement)?;
    let mut rows = prepared.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(match row.get_ref(0)? {
            ValueRef::Integer(n) => n.to_string(),
            ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
            other => format!("{other:?}"),
        });
    }
    Ok(all.join(" "))
}

/// See the module.
pub struct Worker {
    child: Child,
    /// The thread with the connection.
    pub thread: i32,
    stdin: ChildStdin,
    answers: Receiver<String>,
}

impl Worker {
    pub fn with(database: &Path) -> Worker {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "worker::worker", "--nocapture"])
            .env(ROLE, database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a worker");
        let stdin = child.stdin.take().expect("its input");
        let answers = answers_of(child.stdout.take().expect("its output"));
        let mut worker = Worker {
            child,
            thread: 0,
            stdin,
            answers,
        };
        worker.thread = worker.answer().parse().expect("its thread");
        worker
    }

    pub fn process(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub fn order(&mut self, statement: &str) {
        writeln!(self.stdin, "{statement}").expect("sent");
    }

    /// The answer to an order; "ERROR" and the reason if it failed.
    pub fn answer(&self) -> String {
        let answer = self.answers.recv_timeout(IN_TIME);
        answer.expect("an answer in time")
    }

    pub fn try_ask(&mut self, statement: &str) -> String {
        self.order(statement);
        self.answer()
    }

    pub fn ask(&mut self, statement: &str) -> String {
        let answer = self.try_ask(statement);
        assert!(!answer.starts_with("ERROR"), "{statement}: {answer}");
        answer
    }

    /// kill -9. When it returns, the kernel has released the process's locks.
    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("its end");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answers_of(stdout: ChildStdout) -> Receiver<String> {
    let (send, answers) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some((_, answer)) = line.split_once(END)
                && send.send(answer.to_owned()).is_err()
            {
                return;
            }
        }
    });
    answers
}
