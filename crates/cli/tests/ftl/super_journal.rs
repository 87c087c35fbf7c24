//! Transactions over databases in `xftl` and two in one of SQLite's rollback modes. For those
//! SQLite makes a super-journal. Once that is deleted, SQLite considers the COMMIT done, and
//! reports no later failure.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::ffi::{SQLITE_IOERR, SQLITE_IOERR_DELETE};
use tempfile::TempDir;

use crate::below::{self, Which};
use crate::common::path;
use crate::support::{Mounted, TABLE, ask, can_run, connect};

const INSERT: &str = "BEGIN; INSERT INTO main.t (b) VALUES ('x'); INSERT INTO x.t (b) VALUES ('x');
    INSERT INTO c.t (b) VALUES ('x'); INSERT INTO d.t (b) VALUES ('x'); COMMIT";

/// Two of the four are on the device and in `xftl`. The other two are in mode `delete` on the
/// machine's own file system.
struct Mixture {
    mounted: Mounted,
    others: TempDir,
    /// The order of the attached databases. The second of the two on the device comes last or
    /// first.
    order: [&'static str; 3],
}

impl Mixture {
    fn new(order: [&'static str; 3]) -> Self {
        let mixture = Self {
            mounted: Mounted::new(),
            others: tempfile::tempdir().unwrap(),
            order,
        };
        let connection = mixture.open();
        for schema in ["main", "x", "c", "d"] {
            let create = TABLE.replace("TABLE t", &format!("TABLE {schema}.t"));
            connection.execute_batch(&create).unwrap();
        }
        mixture
    }

    fn path(&self, name: &str) -> PathBuf {
        match name {
            "main" | "x" => self.mounted.path(&format!("{name}.db")),
            _ => self.others.path().join(format!("{name}.db")),
        }
    }

    fn open(&self) -> Connection {
        let connection = self.mounted.open("main.db");
        for name in self.order {
            let attach = format!("ATTACH '{}' AS {name}", path(&self.path(name)));
            connection.execute_batch(&attach).unwrap();
        }
        let mode = ask(&connection, "PRAGMA x.journal_mode=xftl").unwrap();
        assert_eq!(mode, "xftl");
        connection
    }

    /// Inserts into all databases while a call on a file fails: then none has the row. `false` if
    /// there was no such call.
    fn fails(&self, locking: &str, file: &Path, which: Which, before: u32) -> bool {
        let context = format!(
            "{:?}, {locking}, {which:?} {before} of {file:?}",
            self.order
        );
        let connection = self.open();
        let pragma = format!("PRAGMA locking_mode={locking}");
        connection.execute_batch(&pragma).unwrap();
        let rows = self.counts(&connection);
        below::fail(file, which, before);
        let inserted = connection.execute_batch(INSERT);
        let has_failed = below::has_failed(file);
        assert_eq!(has_failed, inserted.is_err(), "{context}: {inserted:?}");
        if !connection.is_autocommit() {
            connection.execute_batch("ROLLBACK").unwrap();
        }
        let expected = rows.map(|rows| rows + i64::from(!has_failed));
        assert_eq!(self.counts(&connection), expected, "{context}");
        drop(connection);
        assert_eq!(self.counts(&self.open()), expected, "{context}");
        has_failed
    }

    /// The number of rows in each.
    fn counts(&self, connection: &Connection) -> [i64; 4] {
        ["main", "x", "c", "d"].map(|name| {
            let sql = format!("SELECT count(*) FROM {name}.t");
            connection.query_row(&sql, [], |row| row.get(0)).unwrap()
        })
    }
}

/// The power fails at every NAND operation of the commit: a successful COMMIT is complete.
#[test]
fn a_commit_that_went_well_is_durable() {
    if !can_run() {
        return;
    }
    for synchronous in ["FULL", "OFF"] {
        let mut mixture = Mixture::new(["x", "c", "d"]);
        let (mut failed, mut done) = (0, 0);
        for at in 0..40 {
            let connection = mixture.open();
            for name in ["main", "x"] {
                let pragma = format!("PRAGMA {name}.synchronous={synchronous}");
                connection.execute_batch(&pragma).unwrap();
            }
            let before = mixture.counts(&connection);
            mixture.mounted.order(&format!("cut {at}"));
            let committed = connection.execute_batch(INSERT);
            drop(connection);
            mixture.mounted.lose_power();
            let after = mixture.counts(&mixture.open());
            let context = format!("{synchronous}, cut at {at}: {before:?}, {after:?}");
            let more: Vec<_> = std::iter::zip(after, before).map(|(a, b)| a - b).collect();
            // Equal for databases that share a transaction, and for those that share a
            // super-journal.
            assert!(more[0] == more[1] || synchronous == "OFF", "{context}");
            assert_eq!(more[2], more[3], "{context}");
            // Where the deletion of the super-journal was cut, COMMIT fails, and the file may be
            // gone.
            assert!(committed.is_err() || more == [1, 1, 1, 1], "{context}");
            failed += usize::from(committed.is_err());
            done += usize::from(committed.is_ok());
        }
        assert!(failed > 3 && done > 3, "{failed} failed, {done} done");
    }
}

/// In any order of playback. SQLite deletes the super-journal when no journal names it any more.
/// That may be before the databases in `xftl` are played back.
#[test]
fn where_another_database_fails_nothing_is_committed() {
    if !can_run() {
        return;
    }
    for order in [["x", "c", "d"], ["c", "x", "d"], ["c", "d", "x"]] {
        let mixture = Mixture::new(order);
        let (c, d) = (mixture.path("c"), mixture.path("d"));
        let journal = mixture.others.path().join("d.db-journal");
        for locking in ["NORMAL", "EXCLUSIVE"] {
            for (file, which) in [
                (&c, Which::Sync),
                (&d, Which::Sync),
                (&journal, Which::Write),
            ] {
                let failed = (0..)
                    .take_while(|before| mixture.fails(locking, file, which, *before))
                    .count();
                assert!(failed > 0, "{order:?}, {locking}, {which:?}");
            }
        }
    }
}

/// Everything was committed, and SQLite rolls it back.
#[test]
fn where_the_super_journal_cannot_be_deleted_it_is_taken_back() {
    if !can_run() {
        return;
    }
    for order in [["x", "c", "d"], ["c", "d", "x"]] {
        let mut mixture = Mixture::new(order);
        for settings in [
            "",
            "PRAGMA locking_mode=EXCLUSIVE",
            "PRAGMA main.synchronous=OFF; PRAGMA x.synchronous=OFF",
        ] {
            let context = format!("{order:?}, {settings}");
            let connection = mixture.open();
            connection.execute_batch(settings).unwrap();
            let before = mixture.counts(&connection);
            below::fail(&mixture.path("main"), Which::DeleteOfSuperJournal, 0);
            let failed = connection.execute_batch(INSERT);
            assert!(below::has_failed(&mixture.path("main")), "{context}");
            let error = failed.expect_err(&context);
            let code = error.sqlite_error().map(|error| error.extended_code);
            assert_eq!(code, Some(SQLITE_IOERR_DELETE), "{context}: {error}");
            assert_eq!(mixture.counts(&connection), before, "{context}");
            mixture.mounted.lose_power();
            drop(connection);
            let connection = mixture.open();
            assert_eq!(mixture.counts(&connection), before, "{context}");
            connection.execute_batch(INSERT).unwrap();
        }
    }
}

/// Only the VFS of the main database sees the super-journal.
#[test]
fn it_is_refused_where_the_main_database_is_not_opened_through_onewrite() {
    if !can_run() {
        return;
    }
    let mounted = Mounted::new();
    drop(mounted.create("x.db"));
    let others = tempfile::tempdir().unwrap();
    drop(connect(&others.path().join("main.db")));
    let connection = Connection::open(others.path().join("main.db")).unwrap();
    let (x, c) = (mounted.path("x.db"), others.path().join("c.db"));
    connection
        .execute_batch(&format!(
            "ATTACH 'file:{}?vfs=onewrite' AS x; ATTACH '{}' AS c; CREATE TABLE t (b); CREATE TABLE c.t (b)",
            path(&x),
            path(&c)
        ))
        .unwrap();
    let mode = ask(&connection, "PRAGMA x.journal_mode=xftl").unwrap();
    assert_eq!(mode, "xftl");
    let both = "BEGIN; INSERT INTO x.t (b) VALUES ('x'); INSERT INTO c.t VALUES ('x'); COMMIT";
    connection.execute_batch(both).unwrap();
    let all = "BEGIN; INSERT INTO t VALUES ('x'); INSERT INTO c.t VALUES ('x');
        INSERT INTO x.t (b) VALUES ('x'); COMMIT";
    let refused = connection.execute_batch(all).unwrap_err();
    let code = refused.sqlite_error().map(|error| error.extended_code);
    assert_eq!(code, Some(SQLITE_IOERR), "{refused}");
    let status: String = connection
        .query_row("PRAGMA x.onewrite_status", [], |row| row.get(0))
        .unwrap();
    assert!(status.contains("super-journal"), "{status}");
    let counts = ["main", "c", "x"].map(|name| -> i64 {
        let sql = format!("SELECT count(*) FROM {name}.t");
        connection.query_row(&sql, [], |row| row.get(0)).unwrap()
    });
    assert_eq!(counts, [0, 1, 1]);
}
