//! The backup interface used in the wrong order, or without what it needs. From a database of another
//! engine SQLite's answers are those of stock.

use std::sync::atomic::{AtomicUsize, Ordering};

use lsmvbt_sqlite::sqlite::Connection;

use crate::raw::{Backup, CREATE, Db, MAIN, READONLY};
use crate::support::{ENGINES, Setup, one};

const OK: i32 = 0;
const BUSY: i32 = 5;
const READONLY_CODE: i32 = 8;
const DONE: i32 = 101;

/// A database of 500 rows.
fn filled(setup: &Setup, name: &str, engine: &str) -> Db {
    let db = Db::open(&setup.uri(name, engine), CREATE);
    let rows = "CREATE TABLE t(a INTEGER PRIMARY KEY, b); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT \
        i + 1 FROM n WHERE i < 500) INSERT INTO t SELECT i, zeroblob(1000) FROM n";
    assert_eq!(db.run(rows), OK);
    db
}

fn empty(setup: &Setup, name: &str) -> Db {
    Db::open(&setup.uri(name, "stock"), CREATE)
}

fn is_whole(setup: &Setup, name: &str) {
    let copy = Connection::open(&setup.path(name)).expect("the copy");
    assert_eq!(
        one(&copy, "SELECT count(*) || ' ' || sum(length(b)) FROM t"),
        "500 500000"
    );
    assert_eq!(one(&copy, "PRAGMA integrity_check"), "ok");
}

/// Does the same with a source of each engine. All must answer alike.
fn on_each<T: PartialEq + std::fmt::Debug>(happens: impl Fn(&Setup, Db) -> T) {
    let [stock, others @ ..] = ENGINES.map(|engine| {
        let setup = Setup::new();
        let source = filled(&setup, "source", engine);
        happens(&setup, source)
    });
    for (other, engine) in others.iter().zip(&ENGINES[1..]) {
        assert_eq!(stock, *other, "stock SQLite first, then {engine}");
    }
}

/// The number of descriptors that the process has open on a file.
fn descriptors(setup: &Setup, name: &str) -> usize {
    let path = setup.path(name);
    let open = std::fs::read_dir("/proc/self/fd").expect("the descriptors");
    let files = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    files.filter(|file| file.to_str() == Some(&path)).count()
}

#[test]
fn a_database_without_a_name_is_unknown() {
    for (to, of) in [(MAIN, None), (None, MAIN), (None, None)] {
        on_each(|setup, source| {
            let copy = empty(setup, "copy");
            assert!(copy.backup_from(to, source, of).is_none());
            let error = copy.error();
            assert_eq!(error, (1, "unknown database ".to_owned()));
            (error, source.close(), copy.close())
        });
    }
    // Over a database of each engine.
    for engine in ENGINES {
        let setup = Setup::new();
        let (copy, source) = (filled(&setup, "copy", engine), filled(&setup, "x", "stock"));
        assert!(copy.backup_from(None, source, MAIN).is_none());
        assert_eq!(copy.error().1, "unknown database ", "{engine}");
        assert_eq!((copy.close(), source.close()), (OK, OK));
    }
}

/// Stock SQLite without API armor ends the process. Here it does not, with either.
#[test]
fn without_a_connection_there_is_no_backup() {
    let setup = Setup::new();
    for engine in ENGINES {
        let db = filled(&setup, engine, engine);
        for (to, from) in [(Db::NONE, db), (db, Db::NONE), (Db::NONE, Db::NONE)] {
            assert!(to.backup_from(MAIN, from, MAIN).is_none());
        }
        assert_eq!(db.close(), OK);
    }
    assert_eq!(Backup::NONE.finish(), OK);
}

#[test]
fn a_source_is_not_closed_before_its_backup_is_finished() {
    on_each(|setup, source| {
        let copy = empty(setup, "copy");
        let backup = copy.backup_from(MAIN, source, MAIN).expect("a backup");
        let mut said = vec![(source.close(), source.error())];
        assert_eq!(backup.step(3), OK);
        said.push((source.close(), source.error()));
        // It is still open.
        assert_eq!(
            source.run("INSERT INTO t VALUES (501, 1); DELETE FROM t WHERE a = 501"),
            OK
        );
        while backup.step(10) == OK {}
        said.push((source.close(), source.error()));
        assert_eq!(
            (backup.finish(), copy.close(), source.close()),
            (OK, OK, OK)
        );
        is_whole(setup, "copy");
        assert_eq!(said[0].0, BUSY);
        said
    });
}

#[test]
fn a_source_that_was_closed_meanwhile_ends_with_its_backup() {
    on_each(|setup, source| {
        let copy = empty(setup, "copy");
        let first = copy.backup_from(MAIN, source, MAIN).expect("a backup");
        let second = copy.backup_from(MAIN, source, MAIN).expect("a backup");
        assert_eq!(source.close_v2(), OK);
        let mut open = vec![descriptors(setup, "source")];
        assert_eq!(first.finish(), OK);
        open.push(descriptors(setup, "source"));
        assert_eq!(second.step(2), OK);
        assert_eq!((second.step(-1), second.finish()), (DONE, OK));
        open.push(descriptors(setup, "source"));
        assert_eq!(copy.close(), OK);
        is_whole(setup, "copy");
        assert_eq!(open, [1, 1, 0]);
        open
    });
}

#[test]
fn a_source_is_not_detached_before_its_backup_is_finished() {
    on_each(|setup, source| {
        assert_eq!(source.close(), OK);
        let (db, copy) = (empty(setup, "main"), empty(setup, "copy"));
        assert_eq!(
            db.run(&format!("ATTACH '{}' AS source", setup.path("source"))),
            OK
        );
        let backup = copy
            .backup_from(MAIN, db, Some(c"source"))
            .expect("a backup");
        let detach = || (db.run("DETACH source"), db.error());
        let refused = detach();
        assert_eq!(refused.1.1, "database source is locked");
        assert_eq!((backup.step(-1), backup.finish()), (DONE, OK));
        assert_eq!(detach().0, OK);
        assert_eq!((copy.close(), db.close()), (OK, OK));
        is_whole(setup, "copy");
        refused
    });
}

/// A backup that could not be begun leaves its source free.
#[test]
fn a_source_is_free_after_a_backup_that_did_not_begin() {
    on_each(|setup, source| {
        let copy = empty(setup, "copy");
        assert_eq!(copy.run("CREATE TABLE u(x); BEGIN; SELECT * FROM u"), OK);
        assert!(copy.backup_from(MAIN, source, MAIN).is_none());
        let mut said = vec![copy.error()];
        assert!(copy.backup_from(Some(c"nothing"), source, MAIN).is_none());
        said.push(copy.error());
        assert_eq!((source.close(), copy.close()), (OK, OK));
        said
    });
}

#[test]
fn a_step_after_an_error_gives_it_again() {
    on_each(|setup, source| {
        let copy = empty(setup, "copy");
        assert_eq!((copy.run("CREATE TABLE u(x)"), copy.close()), (OK, OK));
        let copy = Db::open(&setup.uri("copy", "stock"), READONLY);
        let backup = copy.backup_from(MAIN, source, MAIN).expect("a backup");
        let said = [
            backup.step(1),
            backup.step(-1),
            backup.step(0),
            backup.finish(),
        ];
        assert_eq!(said, [READONLY_CODE; 4]);
        let error = copy.error();
        assert_eq!((source.close(), copy.close()), (OK, OK));
        (said, error)
    });
}

#[test]
fn a_step_may_be_tried_again_after_a_lock() {
    on_each(|setup, source| {
        let (copy, other) = (empty(setup, "copy"), empty(setup, "copy"));
        assert_eq!(other.run("CREATE TABLE u(x); BEGIN EXCLUSIVE"), OK);
        let backup = copy.backup_from(MAIN, source, MAIN).expect("a backup");
        assert_eq!((backup.step(1), backup.step(-1)), (BUSY, BUSY));
        assert_eq!(other.run("COMMIT"), OK);
        assert_eq!(
            (backup.step(1), backup.step(-1), backup.step(1)),
            (OK, DONE, DONE)
        );
        assert_eq!(
            (backup.finish(), copy.close(), other.close(), source.close()),
            (OK, OK, OK, OK)
        );
        is_whole(setup, "copy");
    });
}

/// The interface is no SQL: nobody asks whether the application may run it, or shows it as its.
#[test]
fn a_backup_asks_no_authorizer() {
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    on_each(|setup, source| {
        let copy = empty(setup, "copy");
        source.watch(&SEEN);
        let backup = copy.backup_from(MAIN, source, MAIN).expect("a backup");
        assert_eq!((backup.step(-1), backup.finish()), (DONE, OK));
        assert_eq!(SEEN.load(Ordering::Relaxed), 0);
        // It is asked again afterwards.
        assert_ne!(source.run("DELETE FROM t"), OK);
        assert_ne!(SEEN.swap(0, Ordering::Relaxed), 0);
        assert_eq!((copy.close(), source.close()), (OK, OK));
        is_whole(setup, "copy");
    });
}
