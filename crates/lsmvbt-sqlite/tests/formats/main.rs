//! Databases in each format of LS-MVBT, closed or killed: this version reads them and goes on.
//!
//! `tests/formats/FORMAT` holds them, packed with zstd. A release never writes one of an older format
//! again. This writes those of the newest:
//!
//! ```sh
//! LSMVBT_TEST_WRITE_DATABASES=1 cargo test -p lsmvbt-sqlite --test formats
//! ```
//!
//! `LSMVBT_TEST_WRITER` names the shell that writes them, which may be one of an older version.

mod cases;
mod left;

use std::path::Path;

use lsmvbt_sqlite::sqlite::{Connection, Value};

use cases::{CASES, Case, MORE};
use left::Left;

fn open(path: &Path) -> Connection {
    let path = path.to_str().expect("UTF-8");
    Connection::open(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The rows of a query as a text.
fn answer(db: &Connection, sql: &str) -> String {
    let rows = db.query(sql);
    let rows = rows.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let row = |row: &Vec<Value>| {
        row.iter()
            .map(Value::to_string)
            .collect::<Vec<_>>()
            .join("|")
    };
    rows.iter().map(row).collect::<Vec<_>>().join("\n")
}

fn check(db: &Connection, case: &Case) {
    for (sql, expected) in case.answers {
        assert_eq!(answer(db, sql), *expected, "{}: {sql}", case.name);
    }
    assert_eq!(answer(db, "PRAGMA integrity_check"), "ok", "{}", case.name);
}

/// Each database, unpacked into a directory of its own.
fn each(test: impl Fn(&Left, &Path)) {
    left::write_if_asked_for();
    let all = left::all();
    assert!(!all.is_empty());
    for left in all {
        let directory = tempfile::tempdir().expect("a directory");
        let path = left.unpack(directory.path());
        println!("{left}");
        test(&left, &path);
    }
}

#[test]
fn every_format_has_a_database_of_each_kind() {
    left::write_if_asked_for();
    let found: Vec<_> = left::all().iter().map(ToString::to_string).collect();
    for format in left::FORMATS {
        for case in CASES.iter().filter(|case| case.since <= format) {
            for state in left::STATES {
                let name = format!("{format}/{}.{state}", case.name);
                assert!(found.contains(&name), "{name} is missing");
            }
        }
    }
}

#[test]
fn every_row_is_there_and_the_database_goes_on() {
    each(|left, path| {
        let db = open(path);
        check(&db, left.case);
        db.execute(MORE).expect("a transaction");
        drop(db);
        let db = open(path);
        check(&db, left.case);
        assert_eq!(answer(&db, "SELECT count(*), sum(a) FROM more"), "100|5050");
    });
}

/// A commit brings the file into the newest format. A read does not.
#[test]
fn the_next_commit_is_in_the_newest_format() {
    each(|left, path| {
        let db = open(path);
        assert_eq!(
            left::format_of(path),
            left.format,
            "reading changes nothing"
        );
        db.execute(MORE).expect("a transaction");
        drop(db);
        let newest = left::FORMATS.iter().max().copied();
        assert_eq!(Some(left::format_of(path)), newest, "{left}");
    });
}

/// The one that was killed has a page that is older than its change.
#[test]
fn the_newest_format_has_a_database_with_a_late_page() {
    each(|left, path| {
        if left.case.name != "late" {
            return;
        }
        let page = |n: usize, bytes: &[u8]| bytes[n * 4096..(n + 1) * 4096].to_vec();
        let bytes = std::fs::read(path).expect("a database");
        let carries = (2..bytes.len() / 4096).filter(|n| page(*n, &bytes)[18] & 2 != 0);
        assert!(carries.count() > 5, "{left}");
        let without = open(path);
        assert_eq!(answer(&without, "SELECT max(v) FROM t"), "20", "{left}");
    });
}

#[test]
fn an_older_version_is_still_readable() {
    each(|left, path| {
        // The last transactions each made one number larger by one.
        let (query, last, steps) = match left.case.name {
            "history" | "times" => ("SELECT v FROM t", cases::UPDATES, [1, 2, 3]),
            "schemas" => ("PRAGMA user_version", cases::SCHEMAS, [1, 200, 400]),
            _ => return,
        };
        let db = open(path);
        let newest: u64 = answer(&db, "PRAGMA lsmvbt_version")
            .parse()
            .expect("a version");
        for back in steps {
            db.execute(&format!("PRAGMA lsmvbt_version = {}", newest - back))
                .expect("a version");
            assert_eq!(answer(&db, query), (last - back).to_string(), "{left}");
        }
    });
}
