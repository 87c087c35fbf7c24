//! Operations that the other engine's databases refuse, with a message, and without harm to any
//! file.

use lsmvbt_sqlite::sqlite::Connection;

use crate::raw;
use crate::support::{Setup, on_other_engines, one, refused, run};

on_other_engines! {
    a_backup_over_it
    shared_cache
    a_vfs_that_shares_no_memory
    raw_pages
    journal_modes_once_there_is_something
    an_engine_that_the_file_is_not_of
}

/// A connection to a database of the other engine with a row in it.
fn filled(setup: &Setup, engine: &str) -> Connection {
    let connection = setup.open("x", engine);
    run(&connection, "CREATE TABLE t(a); INSERT INTO t VALUES (1)");
    connection
}

fn unharmed(connection: &Connection) {
    assert_eq!(one(connection, "SELECT a FROM t"), "1");
    assert_eq!(one(connection, "PRAGMA integrity_check"), "ok");
}

fn a_backup_over_it(engine: &str) {
    let setup = Setup::new();
    let connection = filled(&setup, engine);
    let stock = setup.open("stock", "stock");
    run(&stock, "CREATE TABLE t(a); INSERT INTO t VALUES (1)");
    let other = filled(&Setup::new(), engine);
    for from in [&stock, &other] {
        let error = connection.backup_from(from).expect_err("refused");
        let words = format!("use VACUUM INTO 'file:NAME?engine={engine}' on the source");
        assert!(error.message.contains(&words), "{error}");
    }
    unharmed(&connection);
    unharmed(&stock);
    // As it says.
    let uri = setup.uri("made", engine);
    run(&stock, &format!("VACUUM INTO '{uri}'"));
    let made = setup.open("made", engine);
    assert_eq!(one(&made, "PRAGMA journal_mode"), engine);
    unharmed(&made);
}

/// LS-MVBT does it: see `vacuum.rs`.
#[test]
fn vacuum_in_place_by_an_engine_that_does_not_do_it() {
    let setup = Setup::new();
    let connection = filled(&setup, crate::model::NAME);
    assert!(refused(&connection, "VACUUM").contains("VACUUM INTO writes a compact copy"));
    unharmed(&connection);
    let stock = setup.open("stock", "stock");
    run(
        &stock,
        "CREATE TABLE t(a); INSERT INTO t VALUES (1); VACUUM",
    );
    unharmed(&stock);
}

fn shared_cache(engine: &str) {
    let setup = Setup::new();
    drop(filled(&setup, engine));
    let shared = format!("file:{}?cache=shared", setup.path("x"));
    assert_eq!(
        Connection::open(&shared)
            .err()
            .map(|error| error.code & 0xff),
        Some(14),
        "SQLITE_CANTOPEN"
    );
    unharmed(&setup.open("x", engine));
}

/// A process that made a database so kept its locks to itself. The commits of another one were written over.
fn a_vfs_that_shares_no_memory(engine: &str) {
    let setup = Setup::new();
    drop(filled(&setup, engine));
    let alone = |name: &str| format!("file:{}?vfs=unix-excl", setup.path(name));
    let code = |uri: &str| Connection::open(uri).err().map(|error| error.code & 0xff);
    assert_eq!(code(&alone("x")), Some(14), "SQLITE_CANTOPEN");
    let named = format!("{}&engine={engine}", alone("new"));
    assert_eq!(code(&named), Some(14), "SQLITE_CANTOPEN");
    let stock = Connection::open(&alone("stock")).expect("a stock database");
    let said = refused(&stock, &format!("PRAGMA journal_mode = {engine}"));
    assert!(said.contains("use vfs=unix"), "{said}");
    run(&stock, "CREATE TABLE t(a); INSERT INTO t VALUES (1)");
    unharmed(&stock);
    unharmed(&setup.open("x", engine));
}

/// SQLite's way to empty a database succeeded, and all was there.
#[test]
fn a_vacuum_that_is_to_empty_the_database() {
    let setup = Setup::new();
    drop(filled(&setup, "lsmvbt"));
    let db = raw::Db::open(&setup.uri("x", "lsmvbt"), raw::CREATE);
    db.reset(true);
    assert_eq!(db.run("VACUUM"), 1);
    let (_, told) = db.error();
    assert!(told.contains("DROP its tables"), "{told}");
    db.reset(false);
    assert_eq!(db.run("VACUUM"), 0);
    assert_eq!(db.close(), 0);
    unharmed(&setup.open("x", "lsmvbt"));
}

fn raw_pages(engine: &str) {
    let setup = Setup::new();
    let connection = filled(&setup, engine);
    assert!(
        connection
            .query("SELECT count(*) FROM sqlite_dbpage WHERE pgno = 1")
            .is_err()
    );
    assert!(
        connection
            .execute("UPDATE sqlite_dbpage SET data = zeroblob(4096) WHERE pgno = 1")
            .is_err()
    );
    assert!(connection.query("SELECT * FROM dbstat").is_err());
    unharmed(&connection);
}

fn journal_modes_once_there_is_something(engine: &str) {
    let setup = Setup::new();
    let stock = setup.open("stock", "stock");
    run(&stock, "CREATE TABLE t(a); INSERT INTO t VALUES (1)");
    assert!(
        refused(&stock, &format!("PRAGMA journal_mode = {engine}"))
            .contains("not empty: VACUUM INTO")
    );
    unharmed(&stock);
    let memory = Connection::open(":memory:").expect("in memory");
    assert!(
        refused(&memory, &format!("PRAGMA journal_mode = {engine}"))
            .contains("only a database in a file")
    );
    let connection = filled(&setup, engine);
    for mode in ["delete", "wal", "off", "memory"] {
        assert_eq!(
            one(&connection, &format!("PRAGMA journal_mode = {mode}")),
            engine
        );
    }
    unharmed(&connection);
    let empty = setup.open("empty", "stock");
    run(&empty, "BEGIN");
    assert!(
        refused(&empty, &format!("PRAGMA journal_mode = {engine}"))
            .contains("not within a transaction")
    );
}

fn an_engine_that_the_file_is_not_of(engine: &str) {
    let setup = Setup::new();
    drop(filled(&setup, engine));
    run(&setup.open("stock", "stock"), "CREATE TABLE t(a)");
    for uri in [
        setup.uri("x", "stock"),
        setup.uri("stock", engine),
        setup.uri("new", "nonesuch"),
    ] {
        assert_eq!(
            Connection::open(&uri).err().map(|error| error.code & 0xff),
            Some(14),
            "SQLITE_CANTOPEN: {uri}"
        );
    }
    assert_eq!(
        one(
            &Connection::open(&setup.path("x")).expect("by its first bytes"),
            "PRAGMA journal_mode"
        ),
        engine
    );
}

#[test]
fn a_name_that_no_engine_has_changes_nothing() {
    let setup = Setup::new();
    let stock = setup.open("stock", "stock");
    assert_eq!(one(&stock, "PRAGMA journal_mode = nonesuch"), "delete");
}
