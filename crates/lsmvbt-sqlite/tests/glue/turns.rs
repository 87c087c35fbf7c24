//! A `VACUUM` takes the writer's lock many times. Those who wait for it in between have their turn.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use lsmvbt_sqlite::sqlite::Connection;

use crate::raw;
use crate::support::{Setup, one, run};

const ROWS: u32 = 16_000;
const WAIT: &str = "PRAGMA busy_timeout = 60000";

/// Ends the writers, also where the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// A table of which two of three rows are gone, in some thousand pages, and one for the writers.
fn thinned(setup: &Setup, torn: &str) -> Connection {
    let connection = setup.open("x", "lsmvbt");
    run(
        &connection,
        "CREATE TABLE t(a INTEGER PRIMARY KEY, b); CREATE TABLE w(a INTEGER PRIMARY KEY, b)",
    );
    one(&connection, &format!("PRAGMA lsmvbt_torn = {torn}"));
    run(
        &connection,
        &format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
             INSERT INTO t SELECT i, zeroblob(900) FROM n;
             DELETE FROM t WHERE a % 3"
        ),
    );
    connection
}

fn number(connection: &Connection, sql: &str) -> u32 {
    one(connection, sql).parse().expect("a number")
}

/// Counts the steps of a VACUUM.
fn steps_of_vacuum(setup: &Setup) -> u32 {
    let db = raw::Db::open(&setup.uri("x", "lsmvbt"), raw::CREATE);
    assert_eq!(db.run("PRAGMA busy_timeout = 10000"), 0);
    let mut steps = 0;
    let mut counts = || {
        steps += 1;
        false
    };
    db.on_progress(&mut counts);
    assert_eq!(db.run("VACUUM"), 0, "{:?}", db.error());
    db.leave_alone();
    assert_eq!(db.close(), 0);
    steps
}

/// On a busy machine a writer may get no processor while a VACUUM runs.
fn in_some_try(had_its_turn: impl Fn() -> bool) {
    assert!((0..4).any(|_| had_its_turn()), "in no try");
}

/// Found by reading: a writer that waits as SQLite's busy handler does was refused for the whole VACUUM.
#[test]
fn writers_have_their_turn_between_the_steps_of_vacuum() {
    for torn in ["trust", "double"] {
        in_some_try(|| have_turns(torn));
    }
}

fn have_turns(torn: &str) -> bool {
    let setup = Setup::in_memory();
    let connection = thinned(&setup, torn);
    let is_over = AtomicBool::new(false);
    let commits = [AtomicU32::new(0), AtomicU32::new(0)];
    let (steps, written) = std::thread::scope(|scope| {
        let _ends = Ends(&is_over);
        for count in &commits {
            let writer = setup.open("x", "lsmvbt");
            let is_over = &is_over;
            scope.spawn(move || {
                run(&writer, WAIT);
                while !is_over.load(SeqCst) {
                    run(&writer, "INSERT INTO w(b) VALUES (1)");
                    count.fetch_add(1, SeqCst);
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
        std::thread::sleep(Duration::from_millis(20));
        let before = commits.each_ref().map(|count| count.load(SeqCst));
        let steps = steps_of_vacuum(&setup);
        let after = commits.each_ref().map(|count| count.load(SeqCst));
        (steps, [after[0] - before[0], after[1] - before[1]])
    });
    println!("{torn}: {written:?} commits in {steps} steps");
    assert!(steps > 20, "{steps}");
    assert_eq!(one(&connection, "PRAGMA integrity_check"), "ok");
    written.iter().all(|count| *count > steps / 8)
}

/// The same of another process.
#[test]
fn a_writer_of_another_process_has_its_turn() {
    in_some_try(another_process_has_turns);
}

fn another_process_has_turns() -> bool {
    let setup = Setup::in_memory();
    let connection = thinned(&setup, "double");
    let mut shell = Command::new(env!("CARGO_BIN_EXE_lsmvbt-sqlite3"))
        .arg(setup.path("x"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut input = shell.stdin.take().expect("its input");
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = is_over.clone();
    let wrote = std::thread::spawn(move || {
        writeln!(input, "{WAIT};").expect("it is read");
        let mut rows = 0;
        while !ends.load(SeqCst) {
            writeln!(input, "INSERT INTO w(b) VALUES (2);").expect("it is read");
            rows += 1;
            std::thread::sleep(Duration::from_millis(3));
        }
        rows
    });
    let begun = Instant::now();
    while number(&connection, "SELECT count(*) FROM w") == 0 {
        assert!(begun.elapsed() < Duration::from_secs(120), "no row");
        std::thread::sleep(Duration::from_millis(1));
    }
    let before = number(&connection, "SELECT count(*) FROM w");
    let steps = steps_of_vacuum(&setup);
    let after = number(&connection, "SELECT count(*) FROM w");
    is_over.store(true, SeqCst);
    let rows = wrote.join().expect("a thread");
    let done = shell.wait_with_output().expect("its end");
    assert!(
        done.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert_eq!(number(&connection, "SELECT count(*) FROM w"), rows);
    println!("{} commits in {steps} steps", after - before);
    after - before > steps / 16
}

/// A reader that passes keeps a VACUUM where it is.
#[test]
fn vacuum_goes_on_where_a_reader_has_stopped_it() {
    for torn in ["trust", "double"] {
        let setup = Setup::in_memory();
        drop(thinned(&setup, torn));
        let alone = {
            let copy = Setup::in_memory();
            std::fs::copy(setup.path("x"), copy.path("x")).expect("a copy");
            let connection = copy.open("x", "lsmvbt");
            one(&connection, &format!("PRAGMA lsmvbt_torn = {torn}"));
            steps_of_vacuum(&copy)
        };
        let connection = setup.open("x", "lsmvbt");
        one(&connection, &format!("PRAGMA lsmvbt_torn = {torn}"));
        let reader = setup.open("x", "lsmvbt");
        let db = raw::Db::open(&setup.uri("x", "lsmvbt"), raw::CREATE);
        let is_reading = std::cell::Cell::new(false);
        let (mut steps, mut readers) = (0, 0);
        let mut between = || {
            steps += 1;
            if steps % 5 == 0 && !is_reading.replace(true) {
                run(&reader, "BEGIN");
                one(&reader, "SELECT count(*) FROM w");
                readers += 1;
            }
            false
        };
        let mut longest = 0;
        let mut wait = |call| {
            longest = longest.max(call);
            if call >= 2 && is_reading.replace(false) {
                run(&reader, "COMMIT");
            }
            true
        };
        db.on_progress(&mut between);
        db.on_busy(&mut wait);
        assert_eq!(db.run("VACUUM"), 0, "{:?}", db.error());
        db.leave_alone();
        println!("{torn}: {steps} steps with {readers} readers, {alone} alone");
        // Each reader makes three attempts fail, and some pages are written once more.
        assert!(readers > 3, "{readers}");
        assert!(
            steps <= alone + 4 * readers + 8,
            "{steps} with {readers} readers, {alone} alone"
        );
        // The next reader may begin right after the third attempt, before another step.
        assert!((2..=3).contains(&longest), "{longest}");
        if is_reading.get() {
            run(&reader, "COMMIT");
        }
        assert_eq!(one(&connection, "PRAGMA integrity_check"), "ok");
        assert_eq!(db.close(), 0);
    }
}

/// VACUUM gives up for a reader. Then a writer is in the way of the free end.
#[test]
fn what_is_free_waits_for_writers_after_a_reader() {
    for waits in [true, false] {
        let setup = Setup::in_memory();
        let reader = thinned(&setup, "trust");
        let writer = setup.open("x", "lsmvbt");
        run(&reader, "BEGIN");
        one(&reader, "SELECT count(*) FROM w");
        let db = raw::Db::open(&setup.uri("x", "lsmvbt"), raw::CREATE);
        let mut calls = 0;
        let mut wait = |_| {
            calls += 1;
            match calls {
                1 => run(&writer, "BEGIN IMMEDIATE"),
                2 => run(&writer, "COMMIT"),
                _ => {}
            }
            calls == 2 && waits
        };
        db.on_busy(&mut wait);
        assert_eq!(db.run("VACUUM") & 0xff, 5);
        db.leave_alone();
        assert_eq!(calls, 2);
        let error = db.error();
        assert!(error.1.contains("version"), "{error:?}");
        assert_eq!(db.close(), 0);
        assert_eq!(one(&writer, "PRAGMA integrity_check"), "ok");
    }
}
