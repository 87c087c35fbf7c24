//! `onewrite run` of a program that is stopped or killed: signals reach the program, its exit code
//! is the command's, and its databases are databases of stock SQLite afterwards.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::common::{self, path};
use super::python;

/// Commits twenty rows and keeps its connection open. Then it waits for a signal, or kills itself.
const PROGRAM: &str = "
import os, signal, sqlite3, sys, time
database = sqlite3.connect(sys.argv[1])
database.execute('CREATE TABLE t (a)')
for n in range(20):
    database.execute('INSERT INTO t VALUES (?)', (n,))
    database.commit()
if sys.argv[2] == 'exits':
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda number, _: os._exit(40 + number))
print(os.getppid(), flush=True)
sys.stdin.readline()
if sys.argv[2] == 'kills itself':
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    time.sleep(0.02)
";

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A command that is ended with all that it has started.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(words: &[&str]) -> Running {
        let (program, words) = words.split_first().expect("a program");
        let mut command = Command::new(program);
        command.args(words).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Running(command.spawn().expect("it starts"))
    }

    /// The line that the program prints.
    fn line(&mut self) -> String {
        let stdout = self.0.stdout.take().expect("its output");
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(stdout).read_line(&mut line);
            let _ = send.send(line);
        });
        receive.recv_timeout(PATIENCE).expect("a line in time")
    }

    fn status(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().expect("its status") {
                return status;
            }
            assert!(Instant::now() < end, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Where `onewrite run` runs.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Place {
    Here,
    /// As process 1 of a namespace, as in a container.
    ProcessOne,
}

/// Runs the program and stops it. The command ends with the expected code, and every row is in a
/// stock database.
fn ends(place: Place, way: &str, signal: Option<Signal>, code: i32) {
    let Some(python) = python("sqlite3") else {
        return;
    };
    common::build_libraries();
    let what = format!("{place:?}, {way}, {signal:?}");
    let dir = tempfile::tempdir().expect("a directory");
    let database = dir.path().join("app.db");
    let namespace = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let run = [env!("CARGO_BIN_EXE_onewrite"), "run", "--"];
    let program = [path(&python), "-c", PROGRAM, path(&database), way];
    let mut running = Running::start(&match place {
        Place::Here => [&run[..], &program].concat(),
        Place::ProcessOne => [&namespace[..], &run, &program].concat(),
    });
    let parent = running.line();
    assert_eq!(parent.trim() == "1", place == Place::ProcessOne, "{parent}");
    assert!(is_guarded(&database), "{what}: the mode is not in use");
    drop(running.0.stdin.take());
    if let Some(signal) = signal {
        let command = match place {
            Place::Here => Pid::from_child(&running.0),
            Place::ProcessOne => child_of(running.0.id()),
        };
        kill_process(command, signal).expect("a signal");
    }
    assert_eq!(running.status().code(), Some(code), "{what}");
    assert!(!is_guarded(&database), "{what}: it was left guarded");
    let stock = rusqlite::Connection::open(&database).expect("a database");
    let ask = |statement| {
        let answer = stock.query_row(statement, (), |row| row.get(0));
        answer.unwrap_or_else(|e| panic!("{what}: {e}"))
    };
    let rows: String = ask("SELECT count(*) || ' ' || sum(a) FROM t");
    assert_eq!(rows, "20 190", "{what}");
    let check: String = ask("PRAGMA integrity_check");
    assert_eq!(check, "ok", "{what}");
}

fn is_guarded(database: &Path) -> bool {
    std::fs::read(database).expect("the database")[19] == onewrite::GUARD_BYTE
}

/// The one child of a process.
fn child_of(parent: u32) -> Pid {
    let line = format!("PPid:\t{parent}\n");
    let processes = std::fs::read_dir("/proc").expect("the processes").flatten();
    let child = processes
        .filter_map(|process| process.file_name().to_str()?.parse().ok())
        .find(|pid: &i32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
            status.is_ok_and(|status| status.contains(&line))
        });
    child.and_then(Pid::from_raw).expect("a child")
}

#[test]
fn a_program_that_is_stopped_or_killed_leaves_a_stock_database() {
    ends(Place::Here, "dies", Some(Signal::TERM), 128 + 15);
    ends(Place::Here, "exits", Some(Signal::TERM), 40 + 15);
    ends(Place::Here, "exits", Some(Signal::INT), 40 + 2);
    ends(Place::Here, "kills itself", None, 128 + 9);
}

#[test]
fn the_command_does_the_same_as_process_1() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: a namespace of processes takes root");
        return;
    }
    ends(Place::ProcessOne, "dies", Some(Signal::TERM), 128 + 15);
    ends(Place::ProcessOne, "exits", Some(Signal::TERM), 40 + 15);
    ends(Place::ProcessOne, "exits", Some(Signal::INT), 40 + 2);
    ends(Place::ProcessOne, "kills itself", None, 128 + 9);
}
