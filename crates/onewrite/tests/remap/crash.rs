//! kill -9 at every step of a remapping checkpoint, and at any time, while other processes live on.
//!
//! The writer is another process: this program again, controlled by its environment. It prints on
//! its standard output which transaction has returned. Any later reader must find all of these, and
//! none in part. That includes a connection that was open all the time.

use onewrite_common::files::companion;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{env, io, thread};

use onewrite::storage::observer::{Call, Observer, observe};
use rusqlite::Connection;

use super::database::{Database, Mount, connect, query};

const PATH: &str = "REMAP_CRASH_PATH";
const DIE_AT: &str = "REMAP_CRASH_AT";
const FIRST: &str = "REMAP_CRASH_FIRST";
const CHECKPOINT: &str = "REMAP_CRASH_CHECKPOINT";
const ROWS: u32 = 300;
const A_TRANSACTION: u32 = 20;

/// `forward`, with a region in a file of its own.
const REPLENISHED: &str = "forward, replenished";

fn policy(how: &str) -> &str {
    how.split(',').next().unwrap_or(how)
}

/// Dies by SIGKILL before the n-th call that concerns remapping.
struct Reaper {
    left: AtomicU32,
    /// Counts only the ends, not the single exchanges.
    counts_ends: bool,
}

impl Observer for Reaper {
    fn before(&self, _: &Path, call: &Call<'_>) -> io::Result<()> {
        let is_end = matches!(call, Call::Remapped | Call::Forward);
        let is_any = matches!(call, Call::Remap { .. } | Call::Remapped | Call::Forward);
        if (is_end || is_any && !self.counts_ends) && self.left.fetch_sub(1, Ordering::SeqCst) == 1
        {
            let own = rustix::process::getpid();
            let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
            loop {
                thread::park();
            }
        }
        Ok(())
    }
}

fn row_of(transaction: u32, i: u32) -> u32 {
    (transaction * 37 + i * i * 7 + i) % ROWS
}

/// The content of a row: large enough that pages overflow, small enough to inspect.
const CONTENT: &str = "replace(hex(zeroblob(700)), '00', printf('%04d', v))";

fn write(db: &Connection, transaction: u32) {
    let statements = |statement: String| query(db, &statement).map(drop);
    let done = (|| {
        statements("BEGIN IMMEDIATE".into())?;
        for i in 0..A_TRANSACTION {
            let row = row_of(transaction, i);
            statements(format!("UPDATE t SET v = {transaction} WHERE id = {row}"))?;
            statements(format!("UPDATE t SET x = {CONTENT} WHERE id = {row}"))?;
        }
        statements(format!("UPDATE last SET n = {transaction}"))?;
        statements("COMMIT".into())
    })();
    done.unwrap_or_else(|e| panic!("transaction {transaction}: {e}"));
}

/// The writer. Other tests start it; as a separate test it does nothing.
#[test]
fn writer() {
    let Some(path) = env::var_os(PATH) else {
        return;
    };
    let number = |name: &str| env::var(name).ok().and_then(|n| n.parse::<u32>().ok());
    if let Some(at) = number(DIE_AT) {
        observe(Box::new(Reaper {
            left: AtomicU32::new(at),
            counts_ends: env::var(CHECKPOINT).is_ok_and(|how| how.starts_with("forward")),
        }));
    }
    let db = connect(&PathBuf::from(path), "onewrite");
    let how = env::var(CHECKPOINT).expect("a way");
    query(&db, &format!("PRAGMA onewrite_checkpoint={}", policy(&how))).expect("set");
    if how == REPLENISHED {
        query(&db, "PRAGMA onewrite_region='1M'").expect("set");
    }
    query(&db, "PRAGMA wal_autocheckpoint=90").expect("set");
    for transaction in number(FIRST).expect("a number").. {
        write(&db, transaction);
        println!("committed {transaction}");
    }
}

fn start(path: &Path, how: &str, first: u32, die_at: Option<u32>) -> Child {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command
        .args(["--exact", "crash::writer", "--nocapture"])
        .env(PATH, path)
        .env(FIRST, first.to_string())
        .env(CHECKPOINT, how)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    if let Some(at) = die_at {
        command.env(DIE_AT, at.to_string());
    }
    command.spawn().expect("a writer")
}

/// Reads the writer's output until it is dead.
fn last_said(child: &mut Child) -> Option<u32> {
    let output = child.stdout.take().expect("its output");
    let mut last = None;
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        // The test harness may have begun the line.
        let number = line.split_once("committed ").map(|(_, number)| number);
        last = number.and_then(|n| n.parse().ok()).or(last);
    }
    let status = child.wait().expect("waited");
    assert!(!status.success(), "it ended by itself");
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(status.signal(), Some(9), "it failed: {status}");
    last
}

/// Checks every row after `last` transactions.
fn check(db: &Connection, said: Option<u32>, whose: &str) -> u32 {
    let ask = |statement: &str| {
        query(db, statement).unwrap_or_else(|e| panic!("{whose}: {statement}: {e}"))
    };
    let last: u32 = ask("SELECT n FROM last").parse().expect("a number");
    let said = said.unwrap_or(0);
    assert!(
        last == said || last == said + 1,
        "{whose}: {said} has returned, {last} is there"
    );
    assert_eq!(ask("PRAGMA integrity_check"), "ok", "{whose}");
    let wrong = format!("SELECT count(*) FROM t WHERE x <> {CONTENT}");
    assert_eq!(ask(&wrong), "0", "{whose}");
    let mut rows = vec![0; ROWS as usize];
    for transaction in 1..=last {
        for i in 0..A_TRANSACTION {
            rows[row_of(transaction, i) as usize] = transaction;
        }
    }
    let expected: Vec<String> = rows.iter().map(u32::to_string).collect();
    assert_eq!(
        ask("SELECT v FROM t ORDER BY id"),
        expected.join(" "),
        "{whose}"
    );
    last
}

fn prepared(mount: &Mount, how: &str) -> Database {
    let init = if how.starts_with("forward") {
        "zero-fill"
    } else {
        "unwritten"
    };
    let database = Database::make(mount, "onewrite", policy(how), init);
    database.sql("CREATE TABLE last(n)");
    database.sql("INSERT INTO last VALUES(0)");
    database.sql("CREATE TABLE t(id INTEGER PRIMARY KEY, v INT, x)");
    database.sql(&format!(
        "INSERT INTO t(id, v, x) WITH RECURSIVE s(v, id) AS \
         (SELECT 0, 0 UNION ALL SELECT 0, id + 1 FROM s WHERE id < {}) SELECT id, v, {CONTENT} FROM s",
        ROWS - 1
    ));
    database.sql("PRAGMA wal_checkpoint(TRUNCATE)");
    database
}

/// With a connection of another process that lives on, and without.
fn killed_at(mount: &Mount, how: &str, die_at: u32, repaired: &mut u64) {
    let living = prepared(mount, how);
    let mut said = None;
    for (round, first) in [1, 0].into_iter().enumerate() {
        let first = if first == 1 { 1 } else { said.unwrap_or(0) + 1 };
        let mut child = start(&living.path, how, first, Some(die_at + 3 * round as u32));
        let last = last_said(&mut child).or(said);
        // The dead writer may have published its last transaction before it could print it.
        said = Some(check(&living.db, last, "the survivor"));
    }
    let count = living.status()["remapped"]["repaired_frames"].as_u64();
    *repaired += count.expect("a count");
    // Now without any other process.
    let Database { path, db } = living;
    db.close().map_err(|(_, e)| e).expect("closed");
    let mut child = start(&path, how, said.unwrap_or(0) + 1, Some(die_at));
    let last = last_said(&mut child).or(said);
    let db = connect(&path, "onewrite");
    check(&db, last, "a new connection");
    let status: serde_json::Value =
        serde_json::from_str(&query(&db, "PRAGMA onewrite_status").expect("a status"))
            .expect("JSON");
    *repaired += status["remapped"]["repaired_frames"]
        .as_u64()
        .expect("a count");
    db.close().map_err(|(_, e)| e).expect("closed");
    check(&connect(&path, "unix"), last, "stock SQLite");
    for suffix in ["", "-onewrite"] {
        std::fs::remove_file(companion(&path, suffix)).expect("removed");
    }
}

/// Takes one step in `REMAP_STEPS` (3 by default).
#[test]
fn killed_at_every_step_of_an_exchange() {
    let Some(mount) = Mount::xfs() else { return };
    let mut repaired = 0;
    let one_in = env::var("REMAP_STEPS").ok().and_then(|n| n.parse().ok());
    for die_at in (1..=40).step_by(one_in.unwrap_or(3)).chain([60, 61, 120]) {
        killed_at(&mount, "exchange", die_at, &mut repaired);
    }
    assert!(repaired > 100, "{repaired}");
    println!("{repaired} frames were put back");
}

#[test]
fn killed_at_every_step_of_a_clone() {
    for mount in [Mount::xfs(), Mount::btrfs()].into_iter().flatten() {
        let mut repaired = 0;
        for die_at in [1, 2, 3, 10, 30, 50] {
            killed_at(&mount, "clone", die_at, &mut repaired);
        }
        assert_eq!(repaired, 0);
    }
}

/// Before and after each end of a checkpoint, and each time that the log moves on to other blocks.
#[test]
fn killed_when_the_log_goes_forward() {
    let Some(mount) = Mount::xfs() else { return };
    let mut repaired = 0;
    for how in ["forward", REPLENISHED] {
        for die_at in 1..=12 {
            killed_at(&mount, how, die_at, &mut repaired);
        }
    }
    println!("{repaired} frames were put back");
    assert!(repaired > 10, "{repaired}");
}

/// `REMAP_KILLS` sets the number of kills; the seed is the time that each writer lives.
#[test]
fn killed_at_any_time() {
    for how in ["exchange", "forward", REPLENISHED] {
        killed_often(how);
    }
}

fn killed_often(how: &str) {
    let Some(mount) = Mount::xfs() else { return };
    let kills = env::var("REMAP_KILLS").ok().and_then(|n| n.parse().ok());
    let living = prepared(&mount, how);
    let mut said = None;
    for round in 0..kills.unwrap_or(15u64) {
        let mut child = start(&living.path, how, said.unwrap_or(0) + 1, None);
        let lives = Duration::from_micros(30_000 + round * 7919 % 220_000);
        thread::sleep(lives);
        child.kill().expect("killed");
        let last = last_said(&mut child).or(said);
        said = Some(check(
            &living.db,
            last,
            &format!("round {round}, {lives:?}"),
        ));
    }
    let remapped = living.status()["remapped"].clone();
    println!("{said:?} transactions, {remapped}");
    assert!(said > Some(10));
}
