//! A limit on the size of files (`ulimit -f`, `LimitFSIZE` of systemd). A call that goes beyond it ends the
//! process by SIGXFSZ, so a program that SQLite's own WAL suits must suit every mode.

use super::settings::heard_from;
use super::{open, sql};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Less than the first chunk of a log, and more than the log that is needed.
const LIMIT: u64 = 1 << 20;

#[test]
fn under_a_limit_on_file_sizes_every_mode_commits_as_wal_does() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in ["wal", "direct", "onewrite", "waldio", "swal"] {
        let path = directory.path().join(mode);
        let (text, _) = heard_from(
            "limits::child_under_a_limit",
            &path,
            &[("ONEWRITE_TEST_MODE", mode)],
        );
        assert!(text.contains(&format!("mode={mode} rows=300")), "{text}");
        assert_eq!(sql(&open(&path), "SELECT count(*) FROM t"), "300", "{mode}");
    }
}

/// In its own process, which the limit is for.
#[test]
#[ignore = "run by another test"]
fn child_under_a_limit() {
    let limit = Rlimit {
        current: Some(LIMIT),
        maximum: Some(LIMIT),
    };
    setrlimit(Resource::Fsize, limit).expect("a limit");
    let path = std::env::var_os("ONEWRITE_TEST_DATABASE").expect("a database");
    let mode = std::env::var("ONEWRITE_TEST_MODE").expect("a mode");
    let db = open(path.as_ref());
    sql(&db, "PRAGMA wal_autocheckpoint=20");
    // A thread that gets no processor would let the log grow to the limit, as a reader does in SQLite's WAL.
    sql(&db, "PRAGMA onewrite_background_checkpoint=off");
    let mode = sql(&db, &format!("PRAGMA journal_mode={mode}"));
    sql(&db, "CREATE TABLE t(x)");
    for _ in 0..300 {
        // More than a checkpoint's threshold, so that the log comes near the limit.
        sql(&db, "INSERT INTO t VALUES(randomblob(1000))");
    }
    let rows = sql(&db, "SELECT count(*) FROM t");
    println!("mode={mode} rows={rows}");
}
