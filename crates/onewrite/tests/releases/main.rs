//! Databases that released versions left, closed or killed: this version goes on with all of them.
//!
//! `tests/releases/VERSION` holds them. Before a release, this writes those of its version:
//!
//! ```sh
//! ONEWRITE_TEST_WRITE_DATABASES=1 cargo test -p onewrite --test releases
//! ```

mod cases;
mod left;
#[path = "../common/rows.rs"]
mod rows;
mod write;

use std::ffi::CString;
use std::path::{Path, PathBuf};

use onewrite_common::files::companion;
use rusqlite::{Connection, OpenFlags};

use cases::{CASES, State, TRANSACTIONS};
use left::Left;

/// Offsets of the log's format version and of the header's CRC-32C.
const VERSION_AT: usize = 8;
const CRC_AT: usize = 124;

fn open(path: &Path, vfs: &str) -> rusqlite::Result<Connection> {
    onewrite::register().expect("the VFS onewrite");
    let vfs = CString::new(vfs).expect("a name");
    Connection::open_with_flags_and_vfs(path, OpenFlags::default(), vfs.as_c_str())
}

fn opened(path: &Path, vfs: &str) -> Connection {
    open(path, vfs).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// All rows of a statement, or its error.
fn answer(path: &Path, vfs: &str, statement: &str) -> Result<String, rusqlite::Error> {
    rows::query(&open(path, vfs)?, statement)
}

fn sql(db: &Connection, statement: &str) -> String {
    rows::query(db, statement).unwrap_or_else(|e| panic!("{statement}: {e}"))
}

/// Each database of each release, unpacked into a directory of its own.
fn each(test: impl Fn(&Left, &Path)) {
    write::once_if_asked_for();
    for left in left::all() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = left.unpack(directory.path());
        println!("{left}");
        test(&left, &path);
    }
}

#[test]
fn this_version_has_left_a_database_of_each_kind() {
    write::once_if_asked_for();
    let found: Vec<_> = left::all().iter().map(ToString::to_string).collect();
    let version = env!("CARGO_PKG_VERSION");
    for case in &CASES {
        for state in case.states() {
            let name = format!("{version}/{}", case.file(*state));
            let how = "ONEWRITE_TEST_WRITE_DATABASES=1 cargo test -p onewrite --test releases";
            assert!(found.contains(&name), "{name} is missing: {how}");
        }
    }
}

#[test]
fn every_row_is_there_and_the_database_goes_on() {
    each(|left, path| {
        let db = opened(path, "onewrite");
        left.case.check(&db, TRANSACTIONS);
        if left.state == State::Remapping {
            let status = sql(&db, "PRAGMA onewrite_status");
            assert!(!status.contains("\"repaired_frames\":0,"), "{status}");
        }
        assert_eq!(sql(&db, "PRAGMA journal_mode"), left.case.mode);
        for n in TRANSACTIONS + 1..=TRANSACTIONS + 10 {
            left.case.transaction(&db, n);
        }
        left.case.check(&db, TRANSACTIONS + 10);
        drop(db);
        let db = opened(path, "onewrite");
        left.case.check(&db, TRANSACTIONS + 10);
        assert_eq!(sql(&db, "PRAGMA journal_mode"), left.case.mode);
    });
}

#[test]
fn every_database_goes_back_to_stock_with_all_rows() {
    each(|left, path| {
        let db = opened(path, "onewrite");
        assert_eq!(sql(&db, "PRAGMA journal_mode=delete"), "delete");
        drop(db);
        for suffix in [
            "-onewrite",
            "-onewrite-shm",
            "-onewrite-lock",
            "-wal",
            "-shm",
        ] {
            assert!(!companion(path, suffix).exists(), "{suffix} is left");
        }
        left.case.check(&opened(path, "unix"), TRANSACTIONS);
    });
}

/// A guarded database is refused, whole. The others are databases of stock SQLite.
#[test]
fn stock_sqlite_reads_all_rows_or_changes_nothing() {
    each(|left, path| {
        if left.state == State::Closed || !left.case.is_guarded() {
            left.case.check(&opened(path, "unix"), TRANSACTIONS);
            return;
        }
        let error = answer(path, "unix", "SELECT count(*) FROM t").expect_err("a guard");
        let code = error.sqlite_error_code();
        assert_eq!(code, Some(rusqlite::ErrorCode::NotADatabase), "{error}");
        left.assert_is_untouched(path);
    });
}

#[test]
fn a_log_of_a_newer_version_is_refused_and_left_as_it_is() {
    each(|left, path| {
        let log = companion(path, "-onewrite");
        let Ok(mut bytes) = std::fs::read(&log) else {
            assert_eq!(left.case.mode, "wal", "it has no log of ours");
            return;
        };
        let newer = onewrite::log::header::VERSION + 1;
        bytes[VERSION_AT..VERSION_AT + 4].copy_from_slice(&newer.to_be_bytes());
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
        std::fs::write(&log, &bytes).expect("a write");
        let before = files(path);
        let error = answer(path, "onewrite", "SELECT count(*) FROM t").expect_err("a newer log");
        let code = error.sqlite_error_code();
        assert_eq!(code, Some(rusqlite::ErrorCode::CannotOpen), "{error}");
        let text = error.to_string();
        for part in [
            format!("format version {newer}"),
            "use a newer onewrite".to_owned(),
        ] {
            assert!(text.contains(&part), "{text}");
        }
        assert!(files(path) == before, "a file was changed");
    });
}

/// The files that hold data, and their contents.
fn files(path: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    ["", "-onewrite", "-wal", "-journal"]
        .into_iter()
        .map(|suffix| companion(path, suffix))
        .map(|path| (path.clone(), std::fs::read(path).ok()))
        .collect()
}
