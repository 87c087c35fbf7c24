//! Group synch while a group fails.

use super::refusal::{Refusal, Which};
use super::{ROWS, code, directory, failing, holds, made, sql, status};
use std::time::{Duration, Instant};

/// A group is being written, slowly, and a commit wants to join the next one. It checked whether
/// the log may be trusted before the write failed. It must check again after that.
#[test]
fn no_commit_joins_a_group_after_another_has_failed() {
    let directory = directory();
    let path = directory.path().join("db");
    let db = made(&path, &[]);
    sql(&db, "PRAGMA onewrite_group_synch='8,20'");
    let refusal = Refusal::slow(&path, Which::Frames, 5, Duration::from_millis(400));
    sql(&db, "INSERT INTO t VALUES('lost')");
    let begin = Instant::now();
    while !refusal.has_come() {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "nobody writes the group"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(failing(&db, "INSERT INTO t VALUES('refused')"), code::FSYNC);
    assert!(status(&db)["poisoned"].is_string());
    // No thread writes it later, behind missing frames.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(refusal.frames_after(), 0);
    drop(db);
    holds(&path, ROWS);
}
