//! Leaving the mode while the guard cannot be cleared.

use super::below::{self, Failing, Method};
use std::path::Path;
use std::process::Command;

use rusqlite::Connection;

use super::refusal::{Refusal, Which};
use super::{
    ROWS, bytes, code, companion, directory, failing, holds, made, open, open_with, rows, sql,
    try_sql,
};

/// SQLite ignores whether its log could be deleted. Here the deletion ends the guard.
#[test]
fn a_switch_whose_guard_could_not_be_cleared_fails() {
    for before in [&[][..], &["PRAGMA locking_mode=EXCLUSIVE"]] {
        let directory = directory();
        let path = directory.path().join("db");
        let db = made(&path, before);
        let refusal = Refusal::of(&path, Which::Header, 5);
        assert_eq!(failing(&db, "PRAGMA journal_mode=delete"), code::WRITE);
        assert!(refusal.has_come());
        assert_eq!(bytes(&path)[19], onewrite::GUARD_BYTE);
        drop(refusal);
        // Transactions acknowledged from here on must be there in the end.
        let more = try_sql(&db, "INSERT INTO t VALUES('more')").is_ok();
        drop(db);
        holds(&path, ROWS + usize::from(more));
        let db = open(&path);
        assert_eq!(sql(&db, "PRAGMA journal_mode=delete"), "delete");
        assert!(!companion(&path, "-onewrite").exists());
    }
}

/// The guard was cleared, and the call still failed, so it is unknown whether the change is on the
/// device. The connection continues with the log. The guard leads to the log again before anything
/// is committed there.
#[test]
fn a_guard_that_may_be_cleared_is_written_again_before_its_log_is_used() {
    let cases = [Method::Sync, Method::WriteHeader]
        .into_iter()
        .flat_map(|method| ["delete", "wal"].map(|word| (method, word)))
        .flat_map(|how| [&[][..], &["PRAGMA locking_mode=EXCLUSIVE"]].map(|before| (how, before)));
    for ((method, word), before) in cases {
        for nth in 1..4 {
            let directory = directory();
            let path = directory.path().join("db");
            let db = made(&path, before);
            below::watch_header(&path);
            let below = Failing::nth(&path, method, code::WRITE, nth);
            let switched = try_sql(&db, &format!("PRAGMA journal_mode={word}"));
            let case = format!("{method:?} {nth} {before:?} {switched:?}");
            assert_eq!(below.has_come(), switched.is_err(), "{case}");
            drop(below);
            assert_eq!(rows(&db), ROWS, "{case}");
            sql(&db, "INSERT INTO t VALUES('more')");
            // A later step may have failed, after the mode was left: then SQLite continues in WAL.
            let mode = sql(&db, "PRAGMA journal_mode");
            let on_device = below::header_on_device(&path);
            let is_guarded = on_device[19] == onewrite::GUARD_BYTE;
            assert_eq!(is_guarded, mode == "waldio", "{case} {mode}");
            // The log's content reaches the database before the connection is closed.
            let checkpoint = sql(&db, "PRAGMA wal_checkpoint(TRUNCATE)");
            assert!(checkpoint.starts_with("0|"), "{case} {checkpoint}");
            assert_eq!(sql(&db, "PRAGMA journal_mode=delete"), "delete", "{case}");
            drop(db);
            holds(&path, ROWS + 1);
        }
    }
}

/// If the guard cannot be written again, nothing is committed until it can.
#[test]
fn a_log_that_nothing_may_lead_to_takes_no_commit() {
    for before in [&[][..], &["PRAGMA locking_mode=EXCLUSIVE"]] {
        // The first flush is of the checkpointed pages, the second of the cleared guard.
        for (method, first) in [(Method::Sync, 2), (Method::WriteHeader, 1)] {
            let directory = directory();
            let path = directory.path().join("db");
            let db = made(&path, before);
            below::watch_header(&path);
            let below = Failing::from(&path, method, code::WRITE, first);
            assert_eq!(failing(&db, "PRAGMA journal_mode=delete"), code::WRITE);
            assert!(below.has_come());
            let insert = "INSERT INTO t VALUES('more')";
            assert_eq!(failing(&db, insert), code::WRITE, "{before:?} {method:?}");
            drop(below);
            sql(&db, insert);
            let on_device = below::header_on_device(&path);
            assert_eq!(on_device[19], onewrite::GUARD_BYTE, "{before:?} {method:?}");
            let checkpoint = sql(&db, "PRAGMA wal_checkpoint(TRUNCATE)");
            assert!(checkpoint.starts_with("0|"), "{before:?} {checkpoint}");
            drop(db);
            holds(&path, ROWS + 1);
        }
    }
}

/// SQLite has deleted its log under EXCLUSIVE, and continues under SHARED. Another connection makes
/// a new log there, and commits to it. SQLite must then open that log.
#[test]
fn a_connection_that_leaves_a_mode_meets_the_log_that_another_makes_at_once() {
    let modes = ["wal", "direct", "waldio", "swal", "onewrite"];
    for (mode, to) in modes
        .iter()
        .flat_map(|mode| ["delete", "wal", "direct", "onewrite"].map(|to| (*mode, to)))
        .filter(|(mode, to)| mode != to)
    {
        let directory = directory();
        let path = directory.path().join("db");
        let db = made(&path, &[]);
        assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
        let (come, others) = std::sync::mpsc::channel();
        let there = path.clone();
        below::when_lowered(&path, move || {
            let other = open(&there);
            let inserted = try_sql(&other, "INSERT INTO t VALUES('other')").is_ok();
            // If the test has failed already, no thread receives it.
            let _ = come.send((other, inserted));
        });
        let switched = try_sql(&db, &format!("PRAGMA journal_mode={to}"));
        let (other, inserted) = others.try_recv().expect("a lock was lowered");
        let more = try_sql(&db, "INSERT INTO t VALUES('more')").is_ok();
        let expected = ROWS + usize::from(inserted) + usize::from(more);
        let case = format!("{mode} to {to}: {switched:?} {inserted} {more}");
        assert!(inserted || more, "{case}");
        assert_eq!((rows(&db), rows(&other)), (expected, expected), "{case}");
        drop((db, other));
        holds(&path, expected);
    }
}

/// The modes, with `direct`, which keeps SQLite's log.
const MODES: [&str; 4] = ["direct", "waldio", "swal", "onewrite"];

/// A database in a rollback mode. `waldio` finds its reserved bytes there.
fn in_delete(path: &Path) -> Connection {
    let db = made(path, &[]);
    assert_eq!(sql(&db, "PRAGMA journal_mode=delete"), "delete");
    db
}

/// SQLite's header of WAL mode is in the database, and our log is not there yet.
#[test]
fn a_death_within_a_switch_leaves_the_mode_that_was_asked_for() {
    for mode in MODES {
        let directory = directory();
        let [path, left] = ["db", "left"].map(|name| directory.path().join(name));
        let db = in_delete(&path);
        let (from, to) = (path.clone(), left.clone());
        below::when_lowered(&path, move || {
            for suffix in ["", "-onewrite", "-journal", "-wal"] {
                // By another process: closing a file here would drop SQLite's locks.
                let [from, to] = [&from, &to].map(|path| companion(path, suffix));
                let _ = Command::new("cp").args([from, to]).output();
            }
        });
        assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
        assert_eq!(
            &bytes(&left)[18..20],
            [2, 2],
            "{mode}: it was copied in between"
        );
        let db = open(&left);
        assert_eq!(sql(&db, "PRAGMA journal_mode"), mode);
        assert_eq!(rows(&db), ROWS);
        drop(db);
        holds(&left, ROWS);
    }
}

#[test]
fn a_connection_that_comes_within_a_switch_is_in_the_mode_at_once() {
    for mode in MODES {
        let directory = directory();
        let path = directory.path().join("db");
        let db = in_delete(&path);
        let (come, others) = std::sync::mpsc::channel();
        let there = path.clone();
        below::when_lowered(&path, move || {
            let other = open(&there);
            let found = try_sql(&other, "PRAGMA journal_mode");
            let _ = come.send((other, found));
        });
        assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
        let (other, found) = others.try_recv().expect("a lock was lowered");
        if let Ok(found) = found {
            assert_eq!(found, mode);
        }
        for db in [&db, &other] {
            assert_eq!(sql(db, "PRAGMA journal_mode"), mode);
            sql(db, "INSERT INTO t VALUES('more')");
        }
        drop((db, other));
        holds(&path, ROWS + 2);
    }
}

/// A rollback mode next to a file that remembers `direct`: stock SQLite has left WAL mode.
#[test]
fn a_switch_forgets_no_mode_that_others_have_entered_meanwhile() {
    let mut met = 0;
    for nth in 1..=6 {
        let directory = directory();
        let path = directory.path().join("db");
        let db = made(&path, &[]);
        assert_eq!(sql(&db, "PRAGMA journal_mode=direct"), "direct");
        drop(db);
        assert_eq!(
            sql(&open_with(&path, "unix"), "PRAGMA journal_mode=delete"),
            "delete"
        );
        assert!(companion(&path, "-onewrite").exists());
        let db = open(&path);
        let (come, others) = std::sync::mpsc::channel();
        let there = path.clone();
        below::when_unlocked(&path, nth, move || {
            let other = open(&there);
            let entered = try_sql(&other, "PRAGMA journal_mode=direct");
            let _ = come.send((other, entered));
        });
        let switched = try_sql(&db, "PRAGMA journal_mode=direct");
        let case = format!("{nth}: {switched:?}");
        let Ok((other, entered)) = others.try_recv() else {
            continue;
        };
        met += 1;
        assert!(switched.is_ok() || entered.is_ok(), "{case} {entered:?}");
        let third = open(&path);
        for db in [&db, &other, &third] {
            assert_eq!(sql(db, "PRAGMA journal_mode"), "direct", "{case}");
        }
        drop((db, other, third));
        assert_eq!(sql(&open(&path), "PRAGMA journal_mode"), "direct", "{case}");
        holds(&path, ROWS);
    }
    assert!(met > 1, "another came in at {met} moments");
}

/// Nothing is left of a mode whose file could not be written.
#[test]
fn a_switch_without_space_for_its_mark_leaves_the_mode_as_it_was() {
    for mode in MODES {
        let directory = directory();
        let path = directory.path().join("db");
        let db = in_delete(&path);
        let refusal = Refusal::of(&path, Which::Header, 28);
        assert_eq!(
            failing(&db, &format!("PRAGMA journal_mode={mode}")),
            code::FULL,
            "{mode}"
        );
        assert!(refusal.has_come());
        drop(refusal);
        assert_eq!(bytes(&path)[18..20], [1, 1], "{mode}");
        assert_eq!(sql(&db, "PRAGMA journal_mode"), "delete");
        assert_eq!(names(directory.path()), ["db"], "{mode}");
        sql(&db, "INSERT INTO t VALUES('more')");
        assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
        drop(db);
        holds(&path, ROWS + 1);
    }
}

fn names(directory: &Path) -> Vec<String> {
    let files = std::fs::read_dir(directory).expect("a directory").flatten();
    let mut names: Vec<_> = files
        .map(|file| file.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The mark was written, and there is no space for the log.
#[test]
fn a_switch_without_space_for_its_log_leaves_the_directory_as_it_was() {
    for mode in ["waldio", "swal", "onewrite"] {
        for which in [Which::Flush, Which::NewBlocks, Which::Header] {
            for nth in 0..4 {
                let directory = directory();
                let path = directory.path().join("db");
                let db = in_delete(&path);
                let refusal = Refusal::after(nth, &path, which, 28);
                let switched = try_sql(&db, &format!("PRAGMA journal_mode={mode}"));
                let case = format!("{mode} {which:?} {nth}: {switched:?}");
                assert_eq!(refusal.has_come(), switched.is_err(), "{case}");
                drop(refusal);
                if switched.is_err() {
                    assert_eq!(bytes(&path)[18..20], [1, 1], "{case}");
                    assert_eq!(sql(&db, "PRAGMA journal_mode"), "delete", "{case}");
                    assert_eq!(names(directory.path()), ["db"], "{case}");
                }
                sql(&db, "INSERT INTO t VALUES('more')");
                assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
                drop(db);
                holds(&path, ROWS + 1);
            }
        }
    }
}
