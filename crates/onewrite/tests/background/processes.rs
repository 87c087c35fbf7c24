//! The thread, and processes that fork, end, or are killed.

use super::children::{self, printed, this_program};
use super::{await_thread, checkpoints, directory, insert, is_stock, open, open_in, sql};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

/// Names the mode for a child.
pub const MODE: &str = "ONEWRITE_TEST_MODE";

/// The numbers of the last rows that processes have reported, and what the database has.
fn rows(path: &Path) -> u64 {
    let db = open(path);
    assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
    sql(&db, "SELECT count(*) FROM t")
        .parse()
        .expect("a number")
}

/// SQLite's mutexes must be free in a child, whatever the thread does. The child opens connections
/// of its own.
#[test]
fn a_process_forks_next_to_the_busy_thread() {
    for mode in ["onewrite", "direct"] {
        let (_directory, path) = directory();
        let mut child = children::child(&this_program(), "processes::forks", &path);
        let text = printed(child.env(MODE, mode));
        assert!(text.contains("all children wrote"), "{mode}: {text}");
        assert!(is_stock(&path));
        assert_eq!(rows(&path), 1 + 30 * 6, "{mode}");
    }
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn forks() {
    let path = std::env::var(children::DATABASE).expect("a database");
    let path = Path::new(&path);
    let mode = std::env::var(MODE).expect("a mode");
    let db = open_in(path, &mode, 1);
    insert(&db);
    for _ in 0..30 {
        insert(&db);
        // SAFETY: only the engine's thread runs besides, which is not in SQLite.
        match unsafe { libc::fork() } {
            0 => {
                // Where it hangs, it does not stay behind.
                // SAFETY: a timer of this child.
                unsafe { libc::alarm(100) };
                let own = open(path);
                own.busy_timeout(super::LONGEST).expect("a timeout");
                sql(&own, "PRAGMA onewrite_background_checkpoint=on");
                sql(&own, "PRAGMA wal_autocheckpoint=1");
                (0..5).for_each(|_| insert(&own));
                await_thread(&own);
                let code = i32::from(checkpoints(&own) == 0);
                drop(own);
                // SAFETY: ends the child at once; the parent's connection is not the child's.
                unsafe { libc::_exit(code) }
            }
            -1 => panic!("fork failed"),
            child => {
                let mut status = 0;
                // SAFETY: waits for our own child.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                assert_eq!(status, 0, "the child has a thread of its own");
            }
        }
    }
    println!("all children wrote");
}

/// `exit` runs the handlers of libraries while the thread is in a checkpoint.
#[test]
fn a_process_exits_next_to_the_busy_thread_and_its_commits_stay() {
    for round in 0..5 {
        let (_directory, path) = directory();
        let text = printed(&mut children::child(
            &this_program(),
            "processes::exits",
            &path,
        ));
        assert!(text.contains("exits"), "{round}: {text}");
        assert_eq!(rows(&path), 40, "{round}");
    }
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn exits() {
    let path = std::env::var(children::DATABASE).expect("a database");
    let db = open_in(Path::new(&path), "onewrite", 1);
    (0..40).for_each(|_| insert(&db));
    println!("exits");
    std::process::exit(0);
}

/// Two processes with a thread each. They are killed in the middle, several times over.
#[test]
fn processes_that_are_killed_lose_no_commit_that_was_reported() {
    for mode in super::MODES {
        let (_directory, path) = directory();
        drop(open_in(&path, mode, 5));
        let mut reported = 0;
        for round in 0..4 {
            let mut writers: Vec<_> = (0..2)
                .map(|_| {
                    let mut writer = children::child(&this_program(), "processes::writes", &path);
                    writer.stdout(Stdio::piped()).spawn().expect("a process")
                })
                .collect();
            for writer in &mut writers {
                let lines = BufReader::new(writer.stdout.as_mut().expect("a pipe")).lines();
                let commits = lines
                    .map(|line| line.expect("a line"))
                    .filter(|line| line == "+");
                reported += commits.take(40 + round * 7).count() as u64;
            }
            for mut writer in writers {
                writer.kill().expect("a child of ours");
                writer.wait().expect("a child of ours");
            }
            let there = rows(&path);
            assert!(there >= reported, "{mode}: {there} of {reported} rows");
        }
        assert!(is_stock(&path));
    }
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn writes() {
    let path = std::env::var(children::DATABASE).expect("a database");
    let db = open(Path::new(&path));
    db.busy_timeout(super::LONGEST).expect("a timeout");
    sql(&db, "PRAGMA onewrite_background_checkpoint=on");
    sql(&db, "PRAGMA wal_autocheckpoint=5");
    // The test kills this process long before.
    for _ in 0..20_000 {
        insert(&db);
        println!("\n+");
    }
}
