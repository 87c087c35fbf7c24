//! A connection without a transaction holds nothing: neither a version, which others would have to keep, nor
//! the writer's lock.

use lsmvbt_sqlite::sqlite::Connection;

use crate::support::{Setup, one, run};

/// Statements that an idle connection runs while another one is writing, and whether each is refused.
const LAST: [(&str, bool); 14] = [
    ("INSERT INTO t VALUES (3, 1)", true),
    ("BEGIN IMMEDIATE", true),
    ("PRAGMA user_version = 3", true),
    ("CREATE TABLE u(a)", true),
    ("PRAGMA lsmvbt_history = 3", true),
    ("PRAGMA lsmvbt_reclaim", true),
    ("VACUUM", true),
    ("PRAGMA lsmvbt_history", false),
    ("PRAGMA lsmvbt_torn", false),
    ("PRAGMA lsmvbt_lazy_gc", false),
    ("PRAGMA onewrite_status", false),
    ("SELECT * FROM nowhere", true),
    ("SELECT * FROM lsmvbt_diff('nowhere', 0, 1)", true),
    ("SELECT a FROM t", false),
];

/// Found by reading: a connection that was refused, or whose first statement was a pragma of the engine, kept
/// its version until it ran something else. No page was freed until then, and each VACUUM was busy.
#[test]
fn a_connection_without_a_transaction_holds_nothing() {
    for is_first in [true, false] {
        for (last, is_refused) in LAST {
            let setup = Setup::new();
            let connection = setup.open("x", "lsmvbt");
            run(
                &connection,
                "CREATE TABLE t(a INTEGER PRIMARY KEY, b); INSERT INTO t VALUES (1, zeroblob(9000))",
            );
            let writer = setup.open("x", "lsmvbt");
            let idle = Connection::open(&setup.uri("x", "lsmvbt")).expect("a connection");
            if !is_first {
                one(&idle, "SELECT count(*) FROM t");
            }
            run(&writer, "BEGIN IMMEDIATE; INSERT INTO t VALUES (2, 1)");
            let said = idle.query(last);
            assert_eq!(said.is_err(), is_refused, "{last}: {said:?}");
            run(&writer, "COMMIT");
            for _ in 0..100 {
                run(&connection, "UPDATE t SET b = zeroblob(9000) WHERE a = 1");
            }
            let pages: u32 = one(&connection, "PRAGMA page_count")
                .parse()
                .expect("pages");
            assert!(pages < 60, "{last}: {pages} pages");
            run(&connection, "VACUUM");
        }
    }
}

/// The same of a version that was read, and of a transaction that could not begin to write.
#[test]
fn a_version_that_is_no_longer_read_is_not_kept() {
    let setup = Setup::new();
    let (connection, other) = (setup.open("x", "lsmvbt"), setup.open("x", "lsmvbt"));
    run(&connection, "CREATE TABLE t(a); INSERT INTO t VALUES (1)");
    let version = one(&other, "PRAGMA lsmvbt_version");
    assert_eq!(
        one(&other, &format!("PRAGMA lsmvbt_version = {version}")),
        version
    );
    run(&connection, "INSERT INTO t VALUES (2)");
    let busy = connection.query("VACUUM").expect_err("a version is read");
    assert!(
        busy.message.contains("a connection reads version"),
        "{busy:?}"
    );
    one(&other, "PRAGMA lsmvbt_version = 0");
    run(&connection, "VACUUM");

    run(&other, "BEGIN");
    one(&other, "SELECT count(*) FROM t");
    run(&connection, "INSERT INTO t VALUES (3)");
    let stale = other.query("INSERT INTO t VALUES (4)").expect_err("stale");
    assert_eq!(stale.code & 0xff, 5, "{stale:?}");
    run(&other, "ROLLBACK");
    run(&connection, "VACUUM");
}
