//! Leaving the mode while the guard cannot be cleared.

use super::below::{Failing, Method};
use super::refusal::{Refusal, Which};
use super::{ROWS, beside, bytes, code, directory, failing, holds, made, open, sql, try_sql};

/// SQLite does not care whether its log could be deleted; but here that is what ends the guard.
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
        // What is acknowledged from here on is there in the end.
        let more = try_sql(&db, "INSERT INTO t VALUES('more')").is_ok();
        drop(db);
        holds(&path, ROWS + usize::from(more));
        let db = open(&path);
        assert_eq!(sql(&db, "PRAGMA journal_mode=delete"), "delete");
        assert!(!beside(&path, "-onewrite").exists());
    }
}

/// The guard was cleared, and that failed all the same: whether it is on the device nobody knows, and no
/// commit goes to a log that nothing may lead to.
#[test]
fn after_a_guard_that_may_be_cleared_nothing_is_committed_to_its_log() {
    for (method, word) in [
        (Method::Sync, "delete"),
        (Method::Sync, "wal"),
        (Method::WriteHeader, "delete"),
        (Method::WriteHeader, "wal"),
    ] {
        for nth in 1..4 {
            let directory = directory();
            let path = directory.path().join("db");
            let db = made(&path, &[]);
            let below = Failing::nth(&path, method, code::WRITE, nth);
            let switched = try_sql(&db, &format!("PRAGMA journal_mode={word}"));
            assert_eq!(
                below.has_come(),
                switched.is_err(),
                "{method:?} {nth} {switched:?}"
            );
            drop(below);
            let more = try_sql(&db, "INSERT INTO t VALUES('more')").is_ok();
            drop(db);
            holds(&path, ROWS + usize::from(more));
        }
    }
}
