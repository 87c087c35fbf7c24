//! Checkpoints in every mode under readers, the log's size, and VACUUM.

use super::{MODES, Mode, companion, copy, open, open_in, sql, status};
use onewrite::wal::checksum;
use rusqlite::Connection;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

fn checkpoint(db: &Connection, how: &str) -> (bool, i64, i64) {
    let found = sql(db, &format!("PRAGMA wal_checkpoint({how})"));
    let numbers: Vec<i64> = found
        .split('|')
        .map(|number| number.parse().expect("a number"))
        .collect();
    (numbers[0] != 0, numbers[1], numbers[2])
}

fn log_of(path: &Path, mode: Mode) -> std::path::PathBuf {
    let suffix = if mode.name == "direct" {
        "-wal"
    } else {
        "-onewrite"
    };
    companion(path, suffix)
}

fn bytes_of(path: &Path, mode: Mode) -> u64 {
    std::fs::metadata(log_of(path, mode))
        .expect("the log")
        .len()
}

#[test]
fn every_checkpoint_mode_does_under_a_reader_what_it_promises() {
    for mode in MODES {
        for how in ["PASSIVE", "FULL", "RESTART", "TRUNCATE"] {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("db");
            let db = open_in(&path, mode);
            sql(&db, "CREATE TABLE t(x)");
            sql(&db, "INSERT INTO t VALUES(1)");
            let reader = open(&path);
            sql(&reader, "BEGIN");
            assert_eq!(sql(&reader, "SELECT count(*) FROM t"), "1");
            for _ in 0..4 {
                sql(&db, "INSERT INTO t VALUES(2)");
            }
            // With a reader of an old snapshot, only the pages that it sees may go to the database.
            let (busy, frames, done) = checkpoint(&db, how);
            assert!(done < frames, "{mode:?} {how}");
            assert_eq!(busy, how != "PASSIVE", "{mode:?} {how}");
            assert_eq!(sql(&reader, "SELECT count(*) FROM t"), "1");
            let crashed = directory.path().join("crashed");
            copy(&path, &crashed);
            assert_eq!(sql(&open(&crashed), "SELECT count(*) FROM t"), "5");
            // A reader of the newest snapshot blocks only checkpoints that restart the log.
            sql(&reader, "COMMIT");
            sql(&reader, "BEGIN");
            assert_eq!(sql(&reader, "SELECT count(*) FROM t"), "5");
            let (busy, frames, done) = checkpoint(&db, how);
            assert_eq!((frames, done), (frames, frames), "{mode:?} {how}");
            let begins_anew = ["RESTART", "TRUNCATE"].contains(&how);
            assert_eq!(busy, begins_anew, "{mode:?} {how}");
            sql(&reader, "COMMIT");
            let (busy, frames, done) = checkpoint(&db, how);
            assert!(!busy && frames == done, "{mode:?} {how}");
            if how == "TRUNCATE" {
                assert_eq!(frames, 0);
            }
            sql(&db, "INSERT INTO t VALUES(3)");
            assert_eq!(sql(&reader, "SELECT count(*) FROM t"), "6");
            copy(&path, &crashed);
            assert_eq!(sql(&open(&crashed), "SELECT count(*) FROM t"), "6");
            assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
        }
    }
}

#[test]
fn the_log_gives_back_what_is_above_its_limit_and_never_what_it_needs() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = open_in(&path, mode);
        sql(&db, "PRAGMA wal_autocheckpoint=0");
        sql(&db, "CREATE TABLE t(x)");
        sql(&db, "INSERT INTO t VALUES(1)");
        let at_first = bytes_of(&path, mode);
        let many = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i<3000) \
                    INSERT INTO t SELECT randomblob(3500) FROM c";
        sql(&db, many);
        let grown = bytes_of(&path, mode);
        assert!(grown > at_first, "{mode:?}: {grown} bytes");
        sql(&db, "PRAGMA journal_size_limit=100000");
        assert!(!checkpoint(&db, "RESTART").0);
        // SQLite truncates the log when it restarts.
        sql(&db, "INSERT INTO t VALUES(2)");
        let cut = bytes_of(&path, mode);
        assert!(cut < grown, "{mode:?}: {cut} of {grown} bytes");
        assert!(cut <= at_first.max(100_000), "{mode:?}: {cut} bytes");
        let writes_before = status(&db)["log_bytes"].as_u64();
        assert_eq!(writes_before, Some(cut));
        sql(&db, many);
        assert_eq!(checkpoint(&db, "TRUNCATE"), (false, 0, 0));
        let cut = bytes_of(&path, mode);
        assert!(cut <= at_first, "{mode:?}: {cut} bytes");
        sql(&db, "INSERT INTO t VALUES(3)");
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "6003");
        assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
    }
}

#[test]
fn vacuum_shrinks_in_every_mode_and_changes_the_page_size_on_the_way_through_delete() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let mut db = open_in(&path, mode);
        sql(&db, "CREATE TABLE t(id INTEGER PRIMARY KEY, x TEXT)");
        sql(&db, "CREATE INDEX i ON t(x)");
        sql(
            &db,
            "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i<900) INSERT INTO t \
             SELECT i, printf('%d.%.*c', i, 400, 'v') FROM c",
        );
        for page in [512, 8192, 65_536, 1024, 4096] {
            sql(&db, "DELETE FROM t WHERE id % 3 = 1");
            let rows = sql(&db, "SELECT count(*), total(length(x)), max(x) FROM t");
            let pages = |db: &Connection| -> u64 {
                sql(db, "PRAGMA page_count").parse().expect("a number")
            };
            let (before, size) = (pages(&db), sql(&db, "PRAGMA page_size"));
            // In a WAL mode SQLite keeps the page size.
            sql(&db, &format!("PRAGMA page_size={page}"));
            sql(&db, "VACUUM");
            assert_eq!(sql(&db, "PRAGMA page_size"), size, "{mode:?}");
            assert!(pages(&db) <= before, "{mode:?}");
            assert_eq!(sql(&db, "PRAGMA journal_mode"), mode.name);
            sql(&db, "PRAGMA journal_mode=delete");
            sql(&db, &format!("PRAGMA page_size={page}"));
            sql(&db, "VACUUM");
            assert_eq!(sql(&db, "PRAGMA page_size"), page.to_string());
            drop(db);
            db = open(&path);
            // Direct writes of `embedded` need pages of at least the device's block size, 512 here.
            // Otherwise the mode says so and the database stays as it is.
            for pragma in mode.before {
                sql(&db, pragma);
            }
            let entered = super::outcome(&db, &format!("PRAGMA journal_mode={}", mode.name));
            if entered != mode.name {
                assert!(entered.contains("onewrite_layout=page4k"), "{entered}");
                sql(&db, "PRAGMA onewrite_direct_io=off");
                sql(&db, &format!("PRAGMA journal_mode={}", mode.name));
            }
            sql(&db, "UPDATE t SET x = x WHERE id % 50 = 0");
            let crashed = directory.path().join("crashed");
            copy(&path, &crashed);
            for db in [&db, &open(&crashed)] {
                let found = sql(db, "SELECT count(*), total(length(x)), max(x) FROM t");
                assert_eq!(found, rows, "{mode:?}, pages of {page}");
                assert_eq!(sql(db, "PRAGMA integrity_check"), "ok");
            }
        }
    }
}

/// Publishes the header of a restarted log, as SQLite's `walRestartHdr` does, and nothing else of
/// the restart: the writer has died right after. Other processes do it, because closing a
/// descriptor here would drop SQLite's locks.
fn die_in_restart(path: &Path) {
    let index = companion(path, "-shm");
    let bytes = Command::new("cat")
        .arg(&index)
        .output()
        .expect("cat")
        .stdout;
    let mut header: [u8; 48] = bytes[..48].try_into().expect("a header");
    header[16..20].fill(0); // mxFrame
    let salt = u32::from_be_bytes(header[32..36].try_into().expect("a salt"));
    header[32..36].copy_from_slice(&salt.wrapping_add(1).to_be_bytes());
    header[36..40].copy_from_slice(&[1, 2, 3, 4]);
    let sums = checksum(cfg!(target_endian = "big"), [0, 0], &header[..40]);
    header[40..44].copy_from_slice(&sums[0].to_ne_bytes());
    header[44..].copy_from_slice(&sums[1].to_ne_bytes());
    let mut dd = Command::new("dd")
        .args(["conv=notrunc", "status=none"])
        .arg(format!("of={}", index.display()))
        .stdin(Stdio::piped())
        .spawn()
        .expect("dd");
    let mut input = dd.stdin.take().expect("a pipe");
    input
        .write_all(&[header, header].concat())
        .expect("dd reads");
    drop(input);
    assert!(dd.wait().expect("dd").success());
}

#[test]
fn a_writer_that_dies_while_it_restarts_the_log_hides_no_commit() {
    const WAL: Mode = Mode {
        name: "wal",
        before: &[],
    };
    for mode in MODES.into_iter().chain([WAL]) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = open_in(&path, mode);
        sql(&db, "CREATE TABLE t(x)");
        for _ in 0..5 {
            sql(&db, "INSERT INTO t VALUES(1)");
        }
        let other = open(&path);
        assert_eq!(sql(&other, "SELECT count(*) FROM t"), "5");
        let (busy, frames, done) = checkpoint(&db, "PASSIVE");
        assert!(!busy && frames == done && frames > 2, "{mode:?}");
        die_in_restart(&path);
        sql(&other, "INSERT INTO t VALUES(2)");
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "6", "{mode:?}");
        sql(&db, "PRAGMA wal_checkpoint(PASSIVE)");
        sql(&db, "INSERT INTO t VALUES(3)");
        assert_eq!(sql(&other, "SELECT count(*) FROM t"), "7", "{mode:?}");
        assert_eq!(sql(&other, "PRAGMA integrity_check"), "ok", "{mode:?}");
    }
}
