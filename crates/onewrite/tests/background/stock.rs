//! `direct`, SQLite's own log: the thread next to processes with stock SQLite. And a process that is
//! killed or stopped inside its thread's pass.

use super::children::{self, this_program};
use super::processes::MODE;
use super::{LONGEST, await_thread, checkpoints, directory, insert, is_stock, open, open_in, sql};
use rusqlite::{Connection, OpenFlags};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// A part of a test in its own process, which reports in lines. It is killed at the test's end.
struct Part {
    process: Child,
    lines: BufReader<ChildStdout>,
    orders: ChildStdin,
}

impl Part {
    fn run(name: &str, path: &Path, mode: &str) -> Part {
        let mut command = children::child(&this_program(), name, path);
        command.env(MODE, mode).stdin(Stdio::piped());
        let mut process = command.stdout(Stdio::piped()).spawn().expect("a process");
        Part {
            lines: BufReader::new(process.stdout.take().expect("a pipe")),
            orders: process.stdin.take().expect("a pipe"),
            process,
        }
    }

    /// Reads until the part has printed `line`.
    fn await_line(&mut self, wanted: &str) {
        let mut line = String::new();
        while line.trim_end() != wanted {
            line.clear();
            let read = self.lines.read_line(&mut line).expect("text");
            assert!(read > 0, "it ended without {wanted:?}");
        }
    }

    fn go_on(&mut self) {
        self.orders.write_all(b"\n").expect("it reads");
    }

    fn signal(&self, signal: i32) {
        // SAFETY: our own child, which nobody has waited for.
        assert_eq!(unsafe { libc::kill(self.process.id() as i32, signal) }, 0);
    }

    /// Waits until it is stopped or has ended.
    fn await_change(&self) -> i32 {
        let begun = Instant::now();
        loop {
            let mut status = 0;
            let flags = libc::WNOHANG | libc::WUNTRACED;
            // SAFETY: waits for our own child.
            match unsafe { libc::waitpid(self.process.id() as i32, &mut status, flags) } {
                0 => assert!(begun.elapsed() < LONGEST, "it takes too long"),
                -1 => panic!("no such child"),
                _ => return status,
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn database() -> PathBuf {
    std::env::var(children::DATABASE)
        .expect("a database")
        .into()
}

fn await_order() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("an order");
}

/// A connection of SQLite's own VFS.
fn open_stock(path: &Path) -> Connection {
    let db = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), c"unix");
    let db = db.expect("a connection");
    db.busy_timeout(LONGEST).expect("a timeout");
    db
}

fn check(path: &Path, rows: usize) {
    let db = open_stock(path);
    assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
    assert_eq!(sql(&db, "SELECT count(*) FROM t"), rows.to_string());
}

/// Both checkpoint: the stock writer in its commits, ours by the thread.
#[test]
fn a_stock_writer_that_checkpoints_writes_next_to_the_thread() {
    let (_directory, path) = directory();
    let db = open_in(&path, "direct", 20);
    db.busy_timeout(LONGEST).expect("a timeout");
    insert(&db);
    let mut stock = Part::run("stock::writes_by_itself", &path, "direct");
    stock.await_line("writes");
    (0..300).for_each(|_| insert(&db));
    stock.await_line("wrote");
    (0..30).for_each(|_| insert(&db));
    await_thread(&db);
    assert!(checkpoints(&db) > 0);
    assert_eq!(stock.await_change(), 0);
    drop(db);
    check(&path, 331 + 300);
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn writes_by_itself() {
    super::open(&database()); // Registers the VFSs; the next connection does not use them.
    let db = open_stock(&database());
    sql(&db, "PRAGMA wal_autocheckpoint=20");
    println!("\nwrites");
    (0..300).for_each(|_| insert(&db));
    println!("wrote");
}

/// The thread copies nothing that the reader's snapshot does not have, and the log does not restart.
#[test]
fn a_stock_reader_keeps_its_snapshot_next_to_the_thread() {
    let (_directory, path) = directory();
    let db = open_in(&path, "direct", 20);
    (0..10).for_each(|_| insert(&db));
    let mut reader = Part::run("stock::reads_twice", &path, "direct");
    reader.await_line("10");
    for _ in 0..200 {
        insert(&db);
    }
    await_thread(&db);
    assert!(checkpoints(&db) > 0);
    assert!(super::frames(&db) >= 200, "the log did not restart");
    reader.go_on();
    reader.await_line("10");
    reader.go_on();
    reader.await_line("210");
    for _ in 0..20 {
        insert(&db);
        await_thread(&db);
    }
    assert!(super::frames(&db) < 200, "the log has restarted");
    reader.go_on();
    assert_eq!(reader.await_change(), 0);
    drop(db);
    check(&path, 230);
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn reads_twice() {
    super::open(&database());
    let db = open_stock(&database());
    let count = || println!("\n{}", sql(&db, "SELECT count(*) FROM t"));
    sql(&db, "BEGIN");
    count();
    await_order();
    count();
    sql(&db, "COMMIT");
    await_order();
    count();
    await_order();
}

/// The thread's n-th write to the database kills the process, so everything up to it is there.
#[test]
fn a_process_that_is_killed_inside_the_pass_loses_nothing() {
    for mode in super::MODES {
        for nth in [1, 2, 3] {
            let (_directory, path) = directory();
            drop(open_in(&path, mode, 10));
            let mut part = Part::run("stock::writes_until_a_signal", &path, mode);
            part.orders
                .write_all(format!("{nth} {}\n", libc::SIGKILL).as_bytes())
                .expect("it reads");
            let status = part.await_change();
            assert!(libc::WIFSIGNALED(status), "{mode}: {status}");
            let mut committed = 0;
            let mut line = String::new();
            while part.lines.read_line(&mut line).expect("text") > 0 {
                committed += usize::from(line.trim_end() == "+");
                line.clear();
            }
            let db = open(&path);
            assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok", "{mode}");
            let rows: usize = sql(&db, "SELECT count(*) FROM t").parse().expect("rows");
            // The last commit may have been under way.
            assert!(
                (committed..=committed + 1).contains(&rows) && committed >= 4,
                "{mode}: {rows} of {committed}"
            );
            drop(db);
            assert!(is_stock(&path), "{mode}");
        }
    }
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn writes_until_a_signal() {
    let mode = std::env::var(MODE).expect("a mode");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("an order");
    let (nth, signal) = line.trim_end().split_once(' ').expect("two numbers");
    let db = open_in_again(&database(), &mode, 10);
    let (nth, signal) = (nth.parse().expect("one"), signal.parse().expect("one"));
    super::TRAP.set(&database(), nth, signal);
    // The signal comes long before.
    for _ in 0..10_000 {
        insert(&db);
        println!("\n+");
    }
}

fn open_in_again(path: &Path, mode: &str, frames: u32) -> Connection {
    let db = open(path);
    assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
    db.busy_timeout(LONGEST).expect("a timeout");
    sql(&db, "PRAGMA onewrite_background_checkpoint=on");
    sql(&db, &format!("PRAGMA wal_autocheckpoint={frames}"));
    db
}

/// It keeps SQLite's checkpoint lock. No other process waits for it without a bound.
#[test]
fn next_to_a_process_that_is_stopped_inside_the_pass_others_commit_and_close() {
    for mode in super::MODES {
        let (_directory, path) = directory();
        drop(open_in(&path, mode, 10));
        let mut part = Part::run("stock::is_stopped_in_quiet", &path, mode);
        assert!(libc::WIFSTOPPED(part.await_change()), "{mode}");
        let db = open_in_again(&path, mode, 10);
        db.busy_timeout(Duration::ZERO).expect("no timeout");
        for number in 0..100 {
            let done = super::rows::query(&db, "INSERT INTO t VALUES(1)");
            assert!(done.is_ok(), "{mode} {number}: {done:?}");
        }
        await_thread(&db);
        let checkpoint = sql(&db, "PRAGMA wal_checkpoint(TRUNCATE)");
        assert!(checkpoint.starts_with("1|"), "{mode}: {checkpoint}");
        assert!(super::rows::query(&db, "PRAGMA journal_mode=delete").is_err());
        drop(db);
        part.signal(libc::SIGCONT);
        part.await_line("wrote");
        drop(part);
        let db = open(&path);
        assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok", "{mode}");
        let rows: u32 = sql(&db, "SELECT count(*) FROM t").parse().expect("rows");
        assert!(rows > 130, "{mode}: {rows}");
    }
}

/// The pass comes in a quiet moment, so no commit is under way when the process is stopped.
#[test]
#[ignore = "a part of another test, for a process of its own"]
fn is_stopped_in_quiet() {
    let mode = std::env::var(MODE).expect("a mode");
    let db = open_in_again(&database(), &mode, 10);
    super::TRAP.set(&database(), 1, libc::SIGSTOP);
    while super::frames(&db) < 10 {
        insert(&db);
    }
    await_thread(&db);
    (0..30).for_each(|_| insert(&db));
    println!("\nwrote");
    await_order();
}
