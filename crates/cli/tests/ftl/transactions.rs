//! Transactions on the device, and their results: committed, rolled back, too large, over several
//! files.

use rusqlite::Connection;
use rusqlite::ffi::SQLITE_IOERR_FSYNC;

use crate::below::{self, Which};
use crate::common::path;
use crate::support::{Mounted, TABLE, ask, can_run, connect, count, fill, integrity};

#[test]
fn commit_is_one_fsync_and_rollback_leaves_nothing() {
    if !can_run() {
        return;
    }
    let mut mounted = Mounted::new();
    let connection = mounted.create("a.db");
    assert_eq!(ask(&connection, "PRAGMA journal_mode").unwrap(), "xftl");
    let before = (
        mounted.number("/statistics/commits"),
        mounted.number("/statistics/host_writes"),
    );
    connection
        .execute_batch("INSERT INTO t (b) VALUES ('one')")
        .unwrap();
    let after = (
        mounted.number("/statistics/commits"),
        mounted.number("/statistics/host_writes"),
    );
    // The row and the change counter: two pages of SQLite, in one page of the device.
    assert_eq!((after.0 - before.0, after.1 - before.1), (1, 1));
    // Spilled, rolled back to a savepoint, rolled back completely.
    connection
        .execute_batch("PRAGMA cache_size=10; BEGIN")
        .unwrap();
    for _ in 0..500 {
        connection
            .execute("INSERT INTO t (b) VALUES (?1)", ["x".repeat(900)])
            .unwrap();
    }
    connection
        .execute_batch("SAVEPOINT s; DELETE FROM t WHERE a % 2; ROLLBACK TO s")
        .unwrap();
    assert_eq!(count(&connection), 501);
    connection.execute_batch("ROLLBACK").unwrap();
    assert_eq!(
        (count(&connection), integrity(&connection).as_str()),
        (1, "ok")
    );
    assert!(mounted.number("/statistics/aborts") > 0);
    drop(connection);
    // The view of stock SQLite.
    let stock = Connection::open(mounted.path("a.db")).unwrap();
    assert_eq!((count(&stock), integrity(&stock).as_str()), (1, "ok"));
    let names = std::fs::read_dir(mounted.files()).unwrap();
    assert_eq!(names.count(), 1, "there is no journal");
}

/// The change counter, as a reader of the file sees it.
fn counter(path: &std::path::Path) -> u32 {
    let header = std::fs::read(path).unwrap();
    u32::from_be_bytes(header[24..28].try_into().unwrap())
}

#[test]
fn a_commit_is_counted_without_a_page_being_written_for_it() {
    if !can_run() {
        return;
    }
    let mut mounted = Mounted::new();
    let connection = mounted.open("a.db");
    connection
        .execute_batch(&format!("PRAGMA page_size=8192; {TABLE}"))
        .unwrap();
    fill(&connection, 20).unwrap();
    let stock = Connection::open(mounted.path("a.db")).unwrap();
    let value = |connection: &Connection| {
        ask(
            connection,
            "SELECT CAST(b AS INTEGER) || '' FROM t WHERE a = 1",
        )
        .unwrap()
    };
    let update = "UPDATE t SET b = format('%0900d', b + 1) WHERE a = 1";
    assert_eq!(value(&stock), "0");
    for round in 1..=10 {
        let before = mounted.number("/statistics/host_writes");
        let counted = counter(&mounted.path("a.db"));
        connection.execute_batch(update).unwrap();
        assert_eq!(mounted.number("/statistics/host_writes") - before, 1);
        assert_eq!(counter(&mounted.path("a.db")), counted + 1);
        // A connection that remembers pages sees that they are old.
        assert_eq!(value(&stock), round.to_string());
        connection
            .execute_batch(&format!("BEGIN; {update}; ROLLBACK"))
            .unwrap();
        assert_eq!(counter(&mounted.path("a.db")), counted + 1);
    }
    let counted = counter(&mounted.path("a.db"));
    drop((connection, stock));
    mounted.lose_power();
    assert!(counter(&mounted.path("a.db")) < counted);
    let connection = mounted.open("a.db");
    assert_eq!(value(&connection), "10");
    connection.execute_batch(update).unwrap();
    let counted = counter(&mounted.path("a.db"));
    // When the mount ends, the device has the count.
    let mounted = mounted.mount_again();
    assert_eq!(counter(&mounted.path("a.db")), counted);
    let connection = mounted.open("a.db");
    assert_eq!(value(&connection), "11");
    assert_eq!(integrity(&connection), "ok");
}

#[test]
fn several_databases_share_a_transaction() {
    if !can_run() {
        return;
    }
    let mut mounted = Mounted::new();
    let other = mounted.path("b.db");
    let open = |mounted: &Mounted| {
        let connection = mounted.open("a.db");
        connection
            .execute("ATTACH ?1 AS b", [path(&other)])
            .unwrap();
        connection
    };
    let connection = open(&mounted);
    connection
        .execute_batch("CREATE TABLE t (a); CREATE TABLE b.t (a)")
        .unwrap();
    drop(connection);
    let mut cuts = 0;
    // One commit, cut at every one of its NAND operations.
    for at in 0..60 {
        let connection = open(&mounted);
        ask(&connection, "PRAGMA b.journal_mode=xftl").unwrap();
        let both = |connection: &Connection| -> (i64, i64) {
            let sql = "SELECT (SELECT count(*) FROM main.t), (SELECT count(*) FROM b.t)";
            connection
                .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
                .unwrap()
        };
        let before = both(&connection);
        assert_eq!(before.0, before.1, "cut at {at}");
        mounted.order(&format!("cut {at}"));
        let sql = "BEGIN; INSERT INTO t VALUES (1); INSERT INTO b.t VALUES (1); COMMIT";
        let done = connection.execute_batch(sql);
        cuts += u32::from(done.is_err());
        drop(connection);
        mounted.lose_power();
        if done.is_ok() {
            let connection = open(&mounted);
            assert_eq!(
                both(&connection),
                (before.0 + 1, before.1 + 1),
                "cut at {at}"
            );
        }
    }
    assert!(cuts > 4, "{cuts}");
}

#[test]
fn rollback_leaves_what_was_there_before_the_transaction() {
    if !can_run() {
        return;
    }
    let mounted = Mounted::new();
    let path = mounted.path("a.db");
    let connection = connect(&path);
    // Written, but not synced.
    connection
        .execute_batch(&format!(
            "PRAGMA synchronous=OFF; {TABLE}; INSERT INTO t (b) VALUES ('one')"
        ))
        .unwrap();
    ask(&connection, "PRAGMA journal_mode=xftl").unwrap();
    connection
        .execute_batch("PRAGMA synchronous=FULL; PRAGMA cache_size=10; BEGIN")
        .unwrap();
    fill(&connection, 400).unwrap();
    // The mode is not left from within a transaction.
    for word in ["delete", "waldio"] {
        let pragma = format!("PRAGMA journal_mode={word}");
        let refused = ask(&connection, &pragma);
        let said = refused.unwrap_err().to_string();
        assert!(said.contains("from within a transaction"), "{said}");
    }
    connection.execute_batch("ROLLBACK").unwrap();
    drop(connection);
    let connection = mounted.open("a.db");
    assert_eq!(
        (count(&connection), integrity(&connection).as_str()),
        (1, "ok")
    );
}

/// More pages than the X-L2P table has entries: while they spill, and at COMMIT. The lock may be
/// kept.
#[test]
fn a_transaction_that_is_too_large_fails_as_on_a_full_disk_and_leaves_nothing() {
    if !can_run() {
        return;
    }
    let mounted = Mounted::with(&["--table", "100"]);
    for (locking, synchronous) in [
        ("NORMAL", "FULL"),
        ("EXCLUSIVE", "FULL"),
        ("NORMAL", "OFF"),
        ("EXCLUSIVE", "OFF"),
    ] {
        for (cache, rows) in [(10, 5_000), (10_000, 1_500)] {
            let name = format!("{locking}-{synchronous}-{cache}.db");
            let connection = mounted.open(&name);
            connection
                .execute_batch(&format!(
                    "PRAGMA cache_size={cache}; PRAGMA locking_mode={locking}; PRAGMA synchronous={synchronous};
                     {TABLE}; INSERT INTO t (b) VALUES ('one'); BEGIN"
                ))
                .unwrap();
            let failed = fill(&connection, rows).and_then(|()| connection.execute_batch("COMMIT"));
            let code = failed.unwrap_err().sqlite_error_code();
            assert_eq!(code, Some(rusqlite::ErrorCode::DiskFull), "{name}");
            // There may be nothing left to roll back.
            let _ = connection.execute_batch("ROLLBACK");
            assert_eq!(count(&connection), 1, "{name}");
            connection
                .execute_batch("INSERT INTO t (b) VALUES ('two')")
                .unwrap();
            drop(connection);
            let connection = mounted.open(&name);
            let found = (count(&connection), integrity(&connection));
            assert_eq!(found, (2, "ok".to_owned()), "{name}");
        }
    }
}

/// A failed sync is a failed COMMIT, and leaves nothing. This also holds where the sync was done
/// all the same, and where the lock is kept.
#[test]
fn a_commit_whose_sync_fails_fails_and_leaves_nothing() {
    if !can_run() {
        return;
    }
    let mounted = Mounted::new();
    for locking in ["NORMAL", "EXCLUSIVE"] {
        for which in [Which::Sync, Which::SyncThatWasDone] {
            let name = format!("{locking}-{which:?}.db");
            let connection = mounted.open(&name);
            connection
                .execute_batch(&format!(
                    "PRAGMA locking_mode={locking}; {TABLE}; INSERT INTO t (b) VALUES ('one')"
                ))
                .unwrap();
            below::fail(&mounted.path(&name), which, 0);
            let failed = connection.execute_batch("INSERT INTO t (b) VALUES ('two')");
            assert!(below::has_failed(&mounted.path(&name)), "{name}");
            let error = failed.expect_err(&name);
            let code = error.sqlite_error().map(|error| error.extended_code);
            assert_eq!(code, Some(SQLITE_IOERR_FSYNC), "{name}: {error}");
            assert_eq!(count(&connection), 1, "{name}");
            connection
                .execute_batch("INSERT INTO t (b) VALUES ('three')")
                .unwrap();
            drop(connection);
            let connection = mounted.open(&name);
            let found = (count(&connection), integrity(&connection));
            assert_eq!(found, (2, "ok".to_owned()), "{name}");
        }
    }
}
