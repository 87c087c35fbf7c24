//! The header's numbers: those of the transaction, and an error where they cannot be read.

use crate::model;
use crate::support::{OTHERS, Setup, alike, one, refused, run};

/// SQLite asks for them by a function without a result code. A 0 would be an empty database, or one
/// in UTF-8.
#[test]
fn a_header_that_cannot_be_read_is_an_error_and_not_zero() {
    let setup = Setup::new();
    let a = setup.open("x", model::NAME);
    run(&a, "PRAGMA encoding = 'UTF-16le'; CREATE TABLE t(x)");
    run(&a, "INSERT INTO t VALUES ('a'); PRAGMA user_version = 7");
    for sql in [
        "SELECT x FROM t",
        "PRAGMA user_version",
        "PRAGMA encoding",
        "INSERT INTO t VALUES ('b')",
        "BEGIN IMMEDIATE",
    ] {
        let fresh = setup.open("x", model::NAME);
        for connection in [&a, &fresh] {
            if std::ptr::eq(connection, &a) && sql == "PRAGMA encoding" {
                // It knows the answer.
                continue;
            }
            model::fail_at_the_header();
            let message = refused(connection, sql);
            assert!(message.starts_with("disk I/O error: "), "{sql}: {message}");
            // No transaction is left open, here or there.
            run(connection, "BEGIN IMMEDIATE; COMMIT");
            run(&a, "BEGIN IMMEDIATE; COMMIT");
        }
        assert_eq!(one(&fresh, "PRAGMA user_version"), "7", "{sql}");
        assert_eq!(one(&fresh, "PRAGMA encoding"), "UTF-16le", "{sql}");
        assert_eq!(one(&fresh, "SELECT hex(x) FROM t"), "6100", "{sql}");
        assert_eq!(one(&fresh, "SELECT count(*) FROM t"), "1", "{sql}");
    }
}

#[test]
fn a_transaction_sees_its_own_numbers_until_it_goes_back() {
    let setup = Setup::new();
    alike(
        &setup,
        "numbers",
        &[
            "CREATE TABLE t(x)",
            "PRAGMA user_version = 7",
            "BEGIN",
            "PRAGMA user_version = 8",
            "PRAGMA application_id = 5",
            "SAVEPOINT a",
            "PRAGMA user_version = 9",
            "CREATE TABLE u(x)",
            "PRAGMA user_version",
            "ROLLBACK TO a",
            "PRAGMA user_version",
            "SELECT * FROM u",
            "RELEASE a",
            "ROLLBACK",
            "PRAGMA user_version",
            "PRAGMA application_id",
            "BEGIN",
            "PRAGMA user_version = 10",
            "COMMIT",
            "PRAGMA user_version",
        ],
    );
    for engine in OTHERS {
        // The statement goes on reading after the rollback.
        let connection = setup.open(&format!("reading.{engine}"), engine);
        run(&connection, "CREATE TABLE t(x); PRAGMA user_version = 7");
        run(&connection, "INSERT INTO t VALUES (1), (2)");
        let statement = connection.statement("SELECT x FROM t");
        let mut reading = statement.expect("SQL").expect("a statement");
        assert!(reading.step().expect("a row"));
        run(&connection, "BEGIN; PRAGMA user_version = 8; ROLLBACK");
        assert_eq!(one(&connection, "PRAGMA user_version"), "7", "{engine}");
        run(&connection, "PRAGMA user_version = 9");
        assert_eq!(one(&connection, "PRAGMA user_version"), "9", "{engine}");
        assert!(reading.step().expect("a row"));
    }
}
