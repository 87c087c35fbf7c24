//! `onewrite exporter` as Prometheus meets it. The databases are open in this test's own process,
//! which is another one for the exporter.

#[path = "../common/mod.rs"]
mod common;
mod dashboard;
mod http;
mod prometheus;
mod state;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use common::{PATIENCE, until};
use rusqlite::{Connection, OpenFlags};
use rustix::process::{Pid, Signal, kill_process};

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onewrite"));
    command.arg("exporter").args(args);
    command
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An exporter that listens.
struct Exporter {
    process: Ended,
    address: SocketAddr,
}

impl Exporter {
    /// Starts it on a free port.
    fn start(args: &[&str]) -> Exporter {
        let mut command = command(args);
        command.args(["--listen", "127.0.0.1:0"]);
        let mut process = Ended(command.stderr(Stdio::piped()).spawn().expect("it starts"));
        let mut line = String::new();
        let said = process.0.stderr.take().expect("its errors");
        BufReader::new(said).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("onewrite: metrics at http://");
        let address = address.and_then(|rest| rest.strip_suffix("/metrics"));
        let address = address.expect(&line).parse().expect("an address");
        Exporter { process, address }
    }

    fn get(&self, target: &str) -> (String, String) {
        get(self.address, target)
    }

    /// The text of a scrape.
    fn text(&self) -> String {
        let (head, body) = self.get("/metrics");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        body
    }

    /// The samples, by their names and labels.
    fn samples(&self) -> BTreeMap<String, f64> {
        samples(&self.text())
    }

    /// Ends it by SIGTERM; its exit code.
    fn end(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.process.0), Signal::TERM).expect("a signal");
        until("end", || self.process.0.try_wait().expect("its status")).code()
    }
}

fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        (name.to_owned(), value.parse().expect("a number"))
    };
    lines.map(sample).collect()
}

/// The head and the body of an answer.
fn get(address: SocketAddr, target: &str) -> (String, String) {
    request(address, &format!("GET {target} HTTP/1.0\r\n\r\n"))
}

fn request(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (format!("{head}\r\n"), body.to_owned())
}

/// A connection with onewrite.
fn open(path: &Path) -> Connection {
    onewrite::register().expect("registered");
    let db = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), c"onewrite");
    db.expect("a connection")
}

/// The first column of the first row; empty without one.
fn sql(db: &Connection, sql: &str) -> String {
    let mut statement = db.prepare(sql).expect(sql);
    let mut rows = statement.query([]).expect(sql);
    let row = rows.next().expect(sql);
    let value = row.map(|row| row.get::<_, rusqlite::types::Value>(0).expect("a column"));
    match value {
        Some(rusqlite::types::Value::Text(text)) => text,
        Some(rusqlite::types::Value::Integer(number)) => number.to_string(),
        _ => String::new(),
    }
}

/// A database in a mode, with a table, that no checkpoint touches by itself.
fn prepared(path: &Path, mode: &str) -> Connection {
    let db = open(path);
    assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
    sql(&db, "PRAGMA wal_autocheckpoint=0");
    sql(&db, "CREATE TABLE t(x)");
    db
}

/// Whether Prometheus' programs are there; prints why not.
fn has_prometheus() -> bool {
    let is_there = |program| Command::new(program).arg("--version").output().is_ok();
    let found = is_there("prometheus") && is_there("promtool");
    if !found {
        println!("SKIPPED: prometheus and promtool are not installed");
    }
    found
}

/// Prometheus' own tool has nothing against the text.
fn check_with_promtool(text: &str) {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool");
    let mut input = child.stdin.take().expect("its input");
    input.write_all(text.as_bytes()).expect("written");
    drop(input);
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().expect("its output");
    let said = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
    assert!(status.success() && said.is_empty(), "{said}\n{text}");
}
