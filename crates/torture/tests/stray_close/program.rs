//! Processes with connections, of which the newest is used. They are this program again, with the
//! linked SQLite, or Debian's Python.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use std::{env, fs, io, thread};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use super::common::{extension, python};

const IS_PROGRAM: &str = "STRAY_CLOSE_PROGRAM";
/// Stands before each answer, because the test harness prints on the same line.
const MARK: &str = "<answer>";
/// A process that does not answer for this long counts as hung.
const PATIENCE: Duration = Duration::from_secs(120);

/// The SQLite of a process.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Library {
    /// The one linked into this program.
    Linked,
    /// The one of Debian's Python.
    Debian,
}

impl Library {
    pub fn present() -> Vec<Library> {
        match python() {
            Some(_) => vec![Library::Linked, Library::Debian],
            None => vec![Library::Linked],
        }
    }
}

/// Whether a process has loaded onewrite.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    Ours,
    Stock,
}

impl Kind {
    pub fn vfs(self) -> &'static str {
        match self {
            Kind::Ours => "onewrite",
            Kind::Stock => "unix",
        }
    }
}

/// See the module. It is killed when it is dropped.
pub struct Program {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
}

fn answers(output: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if let Some((_, answer)) = line.split_once(MARK)
                && sender.send(answer.to_owned()).is_err()
            {
                return;
            }
        }
    });
    receiver
}

impl Program {
    pub fn start(library: Library, kind: Kind) -> Program {
        let mut command = match library {
            Library::Linked => {
                let mut command = Command::new(env::current_exe().expect("this program"));
                command.args([
                    "--exact",
                    "program::serve",
                    "--nocapture",
                    "--test-threads=1",
                ]);
                command.env(IS_PROGRAM, "1");
                command
            }
            Library::Debian => {
                let script = Path::new(env!("CARGO_MANIFEST_DIR"));
                let mut command = Command::new(python().expect("looked for before"));
                command
                    .arg(script.join("tests/stray_close/program.py"))
                    .arg(extension());
                command
            }
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let mut program = Program {
            input: child.stdin.take(),
            answers: answers(child.stdout.take().expect("a pipe")),
            child,
        };
        if kind == Kind::Ours {
            program.say("load");
        }
        program
    }

    /// A process with a connection.
    pub fn with(library: Library, kind: Kind, database: &Path) -> Program {
        let mut program = Program::start(library, kind);
        program.open(kind.vfs(), database);
        program
    }

    pub fn open(&mut self, vfs: &str, database: &Path) {
        let opened = self.say(&format!("open {vfs} {}", database.display()));
        assert_eq!(opened, "open");
    }

    /// Sends a command, and returns the answer.
    pub fn say(&mut self, command: &str) -> String {
        let input = self.input.as_mut().expect("it was not told to end");
        writeln!(input, "{command}").expect("it reads");
        let answer = self.answers.recv_timeout(PATIENCE);
        answer.unwrap_or_else(|e| panic!("{command}: {e}"))
    }

    /// The rows of a statement, or the error.
    pub fn sql(&mut self, statement: &str) -> String {
        self.say(&format!("sql {statement}"))
    }

    /// Runs a statement that must not fail.
    pub fn must(&mut self, statement: &str) -> String {
        let answer = self.sql(statement);
        assert!(!answer.starts_with("ERROR"), "{statement}: {answer}");
        answer
    }

    /// Opens and closes a file without SQLite.
    pub fn stray(&mut self, path: &Path) {
        assert_eq!(self.say(&format!("stray {}", path.display())), "strayed");
    }

    pub fn close(&mut self) {
        assert_eq!(self.say("close"), "closed");
    }

    /// `kill -9`, while its children continue. Their input does not end until the pipe is dropped.
    pub fn kill_and_keep_input(mut self) -> Option<ChildStdin> {
        let input = self.input.take();
        self.kill();
        input
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().expect("it lives");
        self.child.wait().expect("it has ended");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process with the linked SQLite. As a test of its own it does nothing.
#[test]
fn serve() {
    if env::var_os(IS_PROGRAM).is_none() {
        return;
    }
    let mut connections = Vec::new();
    for line in io::stdin().lines().map_while(Result::ok) {
        let (command, argument) = line.split_once(' ').unwrap_or((&line, ""));
        let answer = match command {
            "load" => onewrite::register()
                .map(|()| "loaded".to_owned())
                .map_err(|e| e.to_string()),
            "open" => connect(argument).map(|opened| {
                connections.push(opened);
                "open".to_owned()
            }),
            "sql" => query(connections.last().expect("a connection"), argument),
            "close" => {
                drop(connections.pop());
                Ok("closed".to_owned())
            }
            "stray" => {
                drop(fs::File::open(argument).expect("the file"));
                Ok("strayed".to_owned())
            }
            other => panic!("{other}?"),
        };
        let answer = answer.unwrap_or_else(|e| format!("ERROR {e}"));
        println!("{MARK}{}", answer.replace('\n', " "));
    }
}

fn connect(argument: &str) -> Result<Connection, String> {
    let (vfs, path) = argument.split_once(' ').expect("a VFS and a path");
    let vfs = std::ffi::CString::new(vfs).expect("a name");
    let opened =
        Connection::open_with_flags_and_vfs(PathBuf::from(path), OpenFlags::default(), &*vfs);
    let opened = opened.and_then(|db| db.busy_timeout(Duration::ZERO).map(|()| db));
    opened.map_err(|e| e.to_string())
}

fn query(db: &Connection, sql: &str) -> Result<String, String> {
    let rows = || -> rusqlite::Result<Vec<String>> {
        let mut statement = db.prepare(sql)?;
        let columns = statement.column_count();
        let mut found = statement.query([])?;
        let mut rows = Vec::new();
        while let Some(row) = found.next()? {
            let values = (0..columns).map(|column| match row.get_ref(column)? {
                ValueRef::Null => Ok("None".to_owned()),
                ValueRef::Integer(number) => Ok(number.to_string()),
                ValueRef::Text(text) => Ok(String::from_utf8_lossy(text).into_owned()),
                other => Ok(format!("{other:?}")),
            });
            rows.push(values.collect::<rusqlite::Result<Vec<_>>>()?.join("|"));
        }
        Ok(rows)
    };
    rows().map(|rows| rows.join(" ")).map_err(|e| e.to_string())
}
