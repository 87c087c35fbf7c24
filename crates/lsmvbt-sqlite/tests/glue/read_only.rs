//! Connections that may only read: next to a writer, after its death, and where nothing can be
//! written. An open that is refused says which file, and the way out.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use lsmvbt_sqlite::sqlite::Connection;
use onewrite_iotrace::scratch::{Mounted, private_mounts};
use rustix::mount::{MountFlags, mount_remount};
use rustix::process::{Uid, geteuid};
use rustix::thread::set_thread_res_uid;

use crate::support::{Setup, Shell, one, refused, run};

const ENGINE: &str = "lsmvbt";
const COUNT: &str = "SELECT count(*) FROM t";
const READONLY: &str = "attempt to write a readonly database";
/// The codes of a database that may only be read, and of one that must be recovered.
const READONLY_CODE: i32 = 8;
const READONLY_RECOVERY: i32 = 8 | 1 << 8;

fn reading(path: &str) -> Connection {
    Connection::open(&format!("file:{path}?mode=ro")).expect("opened")
}

fn immutable(path: &str) -> Connection {
    Connection::open(&format!("file:{path}?immutable=1")).expect("opened")
}

/// A closed database of three rows.
fn filled(setup: &Setup) -> String {
    let connection = setup.open("x", ENGINE);
    run(
        &connection,
        "CREATE TABLE t(a); INSERT INTO t VALUES (1), (2), (3)",
    );
    setup.path("x")
}

fn insert(connection: &Connection) {
    run(connection, "INSERT INTO t VALUES (9)");
}

/// A process that has written two rows, and can do more.
fn writer(path: &str) -> Shell {
    let mut shell = Shell::of(path);
    let sql = "INSERT INTO t VALUES (4); INSERT INTO t VALUES (5); SELECT 'written';";
    assert_eq!(shell.says(sql), "written");
    shell
}

/// Whoever makes a database may be killed between its header and its schema.
#[test]
fn a_database_whose_making_was_cut_short_is_empty() {
    let setup = Setup::new();
    let path = setup.path("x");
    let storage = lsmvbt::DirectFile::open(path.as_ref(), lsmvbt::Caching::Direct);
    let storage = Box::new(storage.expect("a file"));
    drop(lsmvbt::Db::open(storage, lsmvbt::Options::default()).expect("made"));
    for connection in [reading(&path), immutable(&path)] {
        assert_eq!(one(&connection, "SELECT count(*) FROM sqlite_schema"), "0");
        assert_eq!(
            one(&connection, "SELECT max(rowid) IS NULL FROM sqlite_schema"),
            "1"
        );
        let sought = "SELECT count(*) FROM sqlite_schema WHERE rowid >= 1";
        assert_eq!(one(&connection, sought), "0");
        let sought = "SELECT count(*) FROM sqlite_schema WHERE rowid = 1";
        assert_eq!(one(&connection, sought), "0");
        assert!(refused(&connection, COUNT).contains("no such table"));
        assert_eq!(one(&connection, "PRAGMA integrity_check"), "ok");
    }
    let connection = setup.open("x", ENGINE);
    run(&connection, "CREATE TABLE t(a)");
    assert_eq!(one(&reading(&path), COUNT), "0");
}

#[test]
fn a_closed_database_is_read_and_stays_as_it_is() {
    let setup = Setup::new();
    let path = filled(&setup);
    let before = fs::read(&path).expect("the file");
    let reader = reading(&path);
    assert_eq!(one(&reader, COUNT), "3");
    assert_eq!(one(&reader, "PRAGMA integrity_check"), "ok");
    assert_eq!(one(&reader, "PRAGMA journal_mode"), ENGINE);
    for sql in [
        "INSERT INTO t VALUES (4)",
        "CREATE TABLE u(a)",
        "PRAGMA user_version = 1",
    ] {
        assert_eq!(refused(&reader, sql), READONLY, "{sql}");
    }
    let message = refused(&reader, "PRAGMA lsmvbt_history = 3");
    assert!(message.contains("for reading only"), "{message}");
    run(&reader, "PRAGMA wal_checkpoint");
    // Another one joins.
    assert_eq!(one(&reading(&path), COUNT), "3");
    drop(reader);
    assert!(before == fs::read(&path).expect("the file"));
}

#[test]
fn a_reader_keeps_its_version_while_others_write() {
    let setup = Setup::new();
    let path = filled(&setup);
    for reader_is_first in [true, false] {
        let early = reader_is_first.then(|| reading(&path));
        if let Some(reader) = &early {
            one(reader, COUNT);
        }
        let writer = setup.open("x", ENGINE);
        run(&writer, "DELETE FROM t WHERE a = 9");
        let reader = early.unwrap_or_else(|| reading(&path));
        run(&reader, "BEGIN");
        assert_eq!(one(&reader, COUNT), "3");
        for _ in 0..50 {
            insert(&writer);
        }
        assert_eq!(one(&reader, COUNT), "3");
        run(&reader, "COMMIT");
        assert_eq!(one(&reader, COUNT), "53");
        drop(writer);
        assert_eq!(one(&reader, "PRAGMA integrity_check"), "ok");
    }
}

#[test]
fn after_a_reader_that_closes_last_others_can_read() {
    for torn in ["trust", "double"] {
        for reader_is_first in [true, false] {
            let setup = Setup::new();
            let path = filled(&setup);
            let early = reader_is_first.then(|| reading(&path));
            if let Some(reader) = &early {
                one(reader, COUNT);
            }
            let (writer, other) = (setup.open("x", ENGINE), setup.open("x", ENGINE));
            run(&writer, &format!("PRAGMA lsmvbt_torn = {torn}"));
            insert(&writer);
            let reader = early.unwrap_or_else(|| reading(&path));
            assert_eq!(one(&reader, COUNT), "4");
            // The other one goes on after the first has closed.
            insert(&other);
            drop(writer);
            insert(&other);
            drop(other);
            drop(reader);
            let reader = reading(&path);
            assert_eq!(one(&reader, COUNT), "6", "{torn} {reader_is_first}");
            assert_eq!(one(&reader, "PRAGMA integrity_check"), "ok");
            assert_eq!(one(&immutable(&path), COUNT), "6");
        }
    }
}

#[test]
fn after_a_kill_a_reader_is_refused_until_a_writer_has_recovered() {
    let setup = Setup::new();
    let path = filled(&setup);
    writer(&path).kill();
    for reader in [reading(&path), immutable(&path)] {
        for sql in [COUNT, "PRAGMA user_version", "PRAGMA lsmvbt_version"] {
            let error = reader.query(sql).expect_err("refused");
            let start = format!("{READONLY}: {path}: it was not closed cleanly");
            assert!(error.message.starts_with(&start), "{sql}: {error}");
            assert!(
                error.message.contains("open it once for writing"),
                "{error}"
            );
            assert_eq!(error.code, READONLY_RECOVERY);
        }
    }
    let waiting = reading(&path);
    waiting.query(COUNT).expect_err("refused");
    let attached = Connection::open(":memory:").expect("a connection");
    let attach = format!("ATTACH 'file:{path}?mode=ro' AS x");
    let message = refused(&attached, &attach);
    assert!(message.contains("open it once for writing"), "{message}");
    let writer = setup.open("x", ENGINE);
    assert_eq!(one(&writer, COUNT), "5");
    // One that was refused tries again.
    assert_eq!(one(&waiting, COUNT), "5");
    drop(writer);
    assert_eq!(one(&reading(&path), COUNT), "5");
}

#[test]
fn a_reader_outlives_a_writer_that_is_killed() {
    let setup = Setup::new();
    let path = filled(&setup);
    let reader = reading(&path);
    assert_eq!(one(&reader, COUNT), "3");
    writer(&path).kill();
    assert_eq!(one(&reader, COUNT), "5");
    assert_eq!(one(&reading(&path), COUNT), "5");
    let writer = setup.open("x", ENGINE);
    insert(&writer);
    assert_eq!(one(&reader, COUNT), "6");
    drop(writer);
    drop(reader);
    assert_eq!(one(&reading(&path), COUNT), "6");
}

#[test]
fn a_database_whose_making_was_cut_short_is_refused() {
    let setup = Setup::new();
    let path = filled(&setup);
    let mut begun = fs::read(&path).expect("the file");
    begun.truncate(4096);
    begun[16..].fill(0);
    fs::write(&path, &begun).expect("written");
    let message = refused(&reading(&path), "SELECT 1 FROM sqlite_schema");
    assert!(message.contains("open it once for writing"), "{message}");
    assert!(message.contains(&path), "{message}");
}

#[test]
fn immutable_takes_no_lock_and_leaves_nothing_behind() {
    let setup = Setup::new();
    let connection = setup.open("x", ENGINE);
    run(
        &connection,
        "CREATE TABLE t(a); PRAGMA lsmvbt_history = 10; INSERT INTO t VALUES (1)",
    );
    let version = one(&connection, "PRAGMA lsmvbt_version");
    run(&connection, "INSERT INTO t VALUES (2), (3)");
    drop(connection);
    let path = setup.path("x");
    let _ = fs::remove_file(format!("{path}-shm"));
    let reader = immutable(&path);
    assert_eq!(one(&reader, COUNT), "3");
    assert_eq!(one(&reader, "PRAGMA integrity_check"), "ok");
    assert_eq!(refused(&reader, "INSERT INTO t VALUES (4)"), READONLY);
    run(
        &reader,
        &format!("ATTACH 'file:{path}?immutable=1&version={version}' AS old"),
    );
    assert_eq!(one(&reader, "SELECT count(*) FROM old.t"), "1");
    run(&reader, "SAVEPOINT s; SELECT * FROM t; RELEASE s");
    assert!(!fs::exists(format!("{path}-shm")).expect("looked"));
    // It shares nothing with others.
    let writer = setup.open("x", ENGINE);
    assert_eq!(one(&writer, COUNT), "3");
    assert_eq!(one(&reader, COUNT), "3");
}

/// While it is there, this thread is one of a user that may not do everything.
struct Nobody {
    was: Uid,
}

impl Nobody {
    fn new() -> Nobody {
        let was = geteuid();
        if was.is_root() {
            set_thread_res_uid(None::<Uid>, Uid::from_raw(65534), None::<Uid>)
                .expect("another user");
        }
        Nobody { was }
    }
}

impl Drop for Nobody {
    fn drop(&mut self) {
        set_thread_res_uid(None::<Uid>, self.was, None::<Uid>).expect("the user again");
    }
}

fn allow(path: &str, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("permissions");
}

/// An open that is refused for want of the shared memory, and one with immutable=1 that is not.
fn shared_memory_is_missed(path: &str, own: &str) {
    let message = refused(&reading(path), COUNT);
    let start = format!("{own}: {path}: ");
    assert!(message.starts_with(&start), "{message}");
    for words in ["-shm", "immutable=1"] {
        assert!(message.contains(words), "{message}");
    }
    let writable = Connection::open(path).expect("opened");
    let message = refused(&writable, COUNT);
    assert!(message.starts_with(&start), "{message}");
    assert_eq!(one(&immutable(path), COUNT), "3");
}

#[test]
fn a_file_that_may_not_be_written_is_read() {
    let setup = Setup::new();
    let path = filled(&setup);
    fs::remove_file(format!("{path}-shm")).expect("removed");
    allow(&setup.path(""), 0o777);
    allow(&path, 0o444);
    let _nobody = Nobody::new();
    // As SQLite opens it, with no wish of the caller's.
    let connection = Connection::open(&path).expect("opened");
    assert_eq!(one(&connection, COUNT), "3");
    let error = connection
        .execute("INSERT INTO t VALUES (4)")
        .expect_err("refused");
    assert_eq!(error.code & 0xff, READONLY_CODE);
    assert_eq!(error.message, READONLY);
    assert_eq!(one(&reading(&path), COUNT), "3");
}

#[test]
fn a_directory_that_may_not_be_written_needs_immutable() {
    for leaves_shared_memory in [true, false] {
        let setup = Setup::new();
        let path = filled(&setup);
        let shared = format!("{path}-shm");
        let own = if leaves_shared_memory {
            allow(&shared, 0o444);
            READONLY
        } else {
            fs::remove_file(&shared).expect("removed");
            "unable to open database file"
        };
        allow(&path, 0o444);
        allow(&setup.path(""), 0o555);
        let nobody = Nobody::new();
        shared_memory_is_missed(&path, own);
        drop(nobody);
        // For who removes it.
        allow(&setup.path(""), 0o755);
    }
}

#[test]
fn a_file_system_that_may_not_be_written_needs_immutable() {
    // This thread's own mounts, which end with it.
    if let Err(error) = private_mounts() {
        println!("SKIPPED: a mount takes root: {error}");
        return;
    }
    for leaves_shared_memory in [true, false] {
        let setup = Setup::new();
        let directory = setup.path("");
        let place = std::path::Path::new(&directory);
        let _mounted = Mounted::new("tmpfs".as_ref(), place, "tmpfs").expect("tmpfs");
        let path = filled(&setup);
        if !leaves_shared_memory {
            fs::remove_file(format!("{path}-shm")).expect("removed");
        }
        mount_remount(place, MountFlags::RDONLY, "").expect("read-only");
        let own = match leaves_shared_memory {
            true => READONLY,
            false => "unable to open database file",
        };
        shared_memory_is_missed(&path, own);
    }
}
