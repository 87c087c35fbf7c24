//! `PRAGMA journal_mode` converts an empty database, while other connections look at it or do the same.

use std::ffi::c_int;

use crate::raw::{CREATE, Db};
use crate::support::{Setup, one, run};

const OK: c_int = 0;
const BUSY: c_int = 5;
const CONVERT: &str = "PRAGMA journal_mode = lsmvbt";

/// The one that has the reserved lock finds that another one has the shared lock for a moment. That one fails,
/// so this one must not.
#[test]
fn of_two_conversions_at_once_one_succeeds() {
    let setup = Setup::new();
    let [looks, first, second] = [(); 3].map(|()| Db::open(&setup.path("x"), CREATE));
    assert_eq!(looks.run("BEGIN; SELECT * FROM sqlite_schema"), OK);
    let mut codes = Vec::new();
    let mut give_up = |_: c_int| {
        codes.push(second.run(CONVERT));
        assert_eq!(looks.run("COMMIT"), OK);
        false
    };
    first.on_busy(&mut give_up);
    let converted = first.run(CONVERT);
    first.leave_alone();
    assert_eq!((converted, codes), (OK, vec![BUSY]));
    for db in [looks, first, second] {
        assert_eq!(db.close(), OK);
    }
}

/// Another connection makes the database, with another encoding, while this one waits for the lock.
#[test]
fn a_conversion_that_has_waited_takes_the_database_as_it_is() {
    let setup = Setup::new();
    let [holder, waiting] = [(); 2].map(|()| Db::open(&setup.path("x"), CREATE));
    assert_eq!(holder.run("BEGIN IMMEDIATE"), OK);
    let mut make = |call: c_int| {
        if call == 0 {
            assert_eq!(holder.run("ROLLBACK"), OK);
            let other = setup.open("x", "lsmvbt");
            run(
                &other,
                "PRAGMA encoding = 'UTF-16le'; CREATE TABLE t(a); INSERT INTO t VALUES ('text')",
            );
        }
        true
    };
    waiting.on_busy(&mut make);
    assert_eq!(waiting.run(CONVERT), OK);
    assert_eq!(waiting.run("INSERT INTO t VALUES ('more')"), OK);
    waiting.leave_alone();
    assert_eq!((waiting.close(), holder.close()), (OK, OK));
    let db = setup.open("x", "lsmvbt");
    assert_eq!(one(&db, "PRAGMA encoding"), "UTF-16le");
    assert_eq!(one(&db, "SELECT group_concat(a) FROM t"), "text,more");
}

/// Both have opened the empty file, and one was first. The other one only wants what is there.
#[test]
fn a_conversion_of_a_database_that_another_has_converted_succeeds() {
    let setup = Setup::new();
    let [first, second] = [(); 2].map(|()| Db::open(&setup.path("x"), CREATE));
    assert_eq!(
        first.run("PRAGMA encoding = 'UTF-16le'; PRAGMA journal_mode = lsmvbt; CREATE TABLE t(a)"),
        OK
    );
    // Whether the other one writes is nothing to it.
    assert_eq!(first.run("BEGIN IMMEDIATE"), OK);
    let converted = second.run(CONVERT);
    assert_eq!(
        (converted, second.error()),
        (OK, (OK, "not an error".to_owned()))
    );
    assert_eq!(first.run("INSERT INTO t VALUES ('text'); COMMIT"), OK);
    assert_eq!(second.run("INSERT INTO t VALUES ('more')"), OK);
    assert_eq!((first.close(), second.close()), (OK, OK));
    let db = setup.open("x", "lsmvbt");
    assert_eq!(one(&db, "PRAGMA encoding"), "UTF-16le");
    assert_eq!(one(&db, "SELECT group_concat(a) FROM t"), "text,more");
}

/// The connection that it had to wait for has converted it, and goes on writing.
#[test]
fn a_conversion_that_gives_up_waiting_for_another_one_takes_its_database() {
    let setup = Setup::new();
    let [holder, waiting] = [(); 2].map(|()| Db::open(&setup.path("x"), CREATE));
    assert_eq!(holder.run("BEGIN IMMEDIATE"), OK);
    let mut gives_up = |_: c_int| {
        assert_eq!(holder.run("ROLLBACK"), OK);
        assert_eq!(holder.run(CONVERT), OK);
        assert_eq!(holder.run("CREATE TABLE t(a); BEGIN IMMEDIATE"), OK);
        false
    };
    waiting.on_busy(&mut gives_up);
    let converted = waiting.run(CONVERT);
    waiting.leave_alone();
    assert_eq!(converted, OK);
    assert_eq!(holder.run("COMMIT"), OK);
    assert_eq!(waiting.run("INSERT INTO t VALUES (1)"), OK);
    assert_eq!((waiting.close(), holder.close()), (OK, OK));
}
