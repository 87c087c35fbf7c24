//! Several connections, several databases, both engines in one transaction.

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use crate::support::{ENGINES, Setup, on_other_engines, one, refused, run};

on_other_engines! {
    a_reader_sees_a_snapshot_next_to_a_writer
    one_writes_at_a_time_and_the_busy_handler_waits
    another_connections_schema_is_noticed
    both_engines_in_one_connection
    vacuum_into_converts_either_way
    a_database_becomes_the_other_engines_while_it_is_empty
    threads_with_connections_of_their_own
}

fn a_reader_sees_a_snapshot_next_to_a_writer(engine: &str) {
    let setup = Setup::new();
    let (a, b) = (setup.open("x", engine), setup.open("x", engine));
    run(&a, "CREATE TABLE t(x); INSERT INTO t VALUES (1)");
    run(&b, "BEGIN");
    assert_eq!(one(&b, "SELECT count(*) FROM t"), "1");
    run(&a, "INSERT INTO t VALUES (2)");
    assert_eq!(one(&a, "SELECT count(*) FROM t"), "2");
    assert_eq!(one(&b, "SELECT count(*) FROM t"), "1", "its snapshot");
    assert_eq!(
        refused(&b, "INSERT INTO t VALUES (3)"),
        "database is locked",
        "a stale snapshot"
    );
    run(&b, "COMMIT");
    run(&b, "INSERT INTO t VALUES (3)");
    assert_eq!(one(&a, "SELECT count(*) FROM t"), "3");
}

fn one_writes_at_a_time_and_the_busy_handler_waits(engine: &str) {
    let setup = Setup::new();
    let (a, b) = (setup.open("x", engine), setup.open("x", engine));
    run(
        &a,
        "CREATE TABLE t(x); BEGIN IMMEDIATE; INSERT INTO t VALUES (1)",
    );
    assert_eq!(
        refused(&b, "INSERT INTO t VALUES (2)"),
        "database is locked"
    );
    b.busy_timeout(20_000).expect("a timeout");
    let waiting = std::thread::spawn(move || run(&b, "INSERT INTO t VALUES (2)"));
    std::thread::sleep(std::time::Duration::from_millis(200));
    run(&a, "COMMIT");
    waiting.join().expect("the writer that waits");
    assert_eq!(one(&a, "SELECT count(*) FROM t"), "2");
}

fn another_connections_schema_is_noticed(engine: &str) {
    let setup = Setup::new();
    let (a, b) = (setup.open("x", engine), setup.open("x", engine));
    run(&a, "CREATE TABLE t(x); INSERT INTO t VALUES (1)");
    assert_eq!(one(&b, "SELECT x FROM t"), "1");
    let before = one(&b, "PRAGMA data_version");
    run(&b, "INSERT INTO t VALUES (2)");
    assert_eq!(
        one(&b, "PRAGMA data_version"),
        before,
        "its own commits do not count"
    );
    run(
        &a,
        "ALTER TABLE t ADD COLUMN y DEFAULT 'new'; CREATE TABLE u(z)",
    );
    assert_ne!(one(&b, "PRAGMA data_version"), before);
    assert_eq!(one(&b, "SELECT y FROM t"), "new");
    run(&b, "INSERT INTO u VALUES (1)");
}

#[test]
fn a_statement_goes_on_across_a_commit_and_a_rollback() {
    let setup = Setup::new();
    for engine in ENGINES {
        let connection = setup.open(&format!("across.{engine}"), engine);
        run(
            &connection,
            "CREATE TABLE t(x INTEGER PRIMARY KEY); CREATE TABLE u(x)",
        );
        run(&connection, "INSERT INTO t VALUES (1), (2), (3), (4), (5)");
        let mut reading = connection
            .statement("SELECT x FROM t ORDER BY x")
            .expect("SQL")
            .expect("a statement");
        assert!(reading.step().expect("a row"));
        run(
            &connection,
            "BEGIN; INSERT INTO u VALUES (1); DELETE FROM t WHERE x = 2; COMMIT",
        );
        assert!(reading.step().expect("a row"));
        assert_eq!(reading.row()[0].to_string(), "3", "{engine}");
        run(&connection, "BEGIN; INSERT INTO u VALUES (2)");
        run(&connection, "ROLLBACK");
        assert!(
            reading
                .step()
                .expect("a row after a rollback without changes of the schema"),
            "{engine}"
        );
        assert_eq!(reading.row()[0].to_string(), "4", "{engine}");
        drop(reading);
        assert_eq!(one(&connection, "SELECT count(*) FROM u"), "1");
    }
}

/// A database of each engine, attached to one connection.
fn both(setup: &Setup, engine: &str) -> lsmvbt_sqlite::sqlite::Connection {
    let connection = setup.open("main.db", "stock");
    run(
        &connection,
        &format!("ATTACH '{}' AS o", setup.uri("other.db", engine)),
    );
    connection
}

fn both_engines_in_one_connection(engine: &str) {
    let setup = Setup::new();
    let connection = both(&setup, engine);
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)";
    for schema in ["main", "o"] {
        run(
            &connection,
            &format!("CREATE TABLE {schema}.t(a INTEGER PRIMARY KEY, b TEXT UNIQUE, c BLOB, d)"),
        );
        run(&connection, &format!("CREATE INDEX {schema}.td ON t(d)"));
        run(
            &connection,
            &format!("CREATE TABLE {schema}.w(k TEXT, v, n, PRIMARY KEY(k, n)) WITHOUT ROWID"),
        );
        run(
            &connection,
            &format!(
                "{many} INSERT INTO {schema}.t SELECT i, 'k' || (i * 7919 % 20011), zeroblob(i * 13 % 4000), i % 97 FROM n"
            ),
        );
        run(
            &connection,
            &format!("INSERT INTO {schema}.w SELECT b, c, a FROM {schema}.t"),
        );
        run(
            &connection,
            &format!("CREATE TABLE {schema}.x(a INTEGER PRIMARY KEY, b TEXT UNIQUE, c BLOB, d)"),
        );
        run(
            &connection,
            &format!("CREATE TABLE {schema}.y(k TEXT, v, n, PRIMARY KEY(k, n)) WITHOUT ROWID"),
        );
    }
    // SQLite copies whole rows between trees here, from one engine to the other.
    run(
        &connection,
        "INSERT INTO main.x SELECT * FROM o.t; INSERT INTO o.x SELECT * FROM main.t",
    );
    run(
        &connection,
        "INSERT INTO main.y SELECT * FROM o.w; INSERT INTO o.y SELECT * FROM main.w",
    );
    run(
        &connection,
        "CREATE TABLE o.x2(a INTEGER PRIMARY KEY, b TEXT UNIQUE, c BLOB, d)",
    );
    run(&connection, "INSERT INTO o.x2 SELECT * FROM o.t");
    for (a, b) in [
        ("main.x", "o.x"),
        ("o.x", "main.t"),
        ("o.x2", "main.t"),
        ("main.y", "o.w"),
        ("o.y", "main.w"),
    ] {
        let sql = format!("SELECT count(*) FROM (SELECT * FROM {a} EXCEPT SELECT * FROM {b})");
        assert_eq!(one(&connection, &sql), "0", "{a} and {b}");
        assert_eq!(
            one(&connection, &format!("SELECT count(*) FROM {a}")),
            "5000"
        );
    }
    // One transaction over both.
    run(
        &connection,
        "BEGIN; DELETE FROM o.t WHERE a % 2; DELETE FROM main.t WHERE a % 2; ROLLBACK",
    );
    run(
        &connection,
        "BEGIN; DELETE FROM o.t WHERE a % 3 = 0; DELETE FROM main.t WHERE a % 3 = 0; COMMIT",
    );
    assert_eq!(
        one(
            &connection,
            "SELECT (SELECT count(*) FROM o.t) = (SELECT count(*) FROM main.t)"
        ),
        "1"
    );
    assert_eq!(one(&connection, "PRAGMA main.integrity_check"), "ok");
    assert_eq!(one(&connection, "PRAGMA o.integrity_check"), "ok");
    run(&connection, "DETACH o");
}

fn vacuum_into_converts_either_way(engine: &str) {
    let setup = Setup::new();
    let connection = both(&setup, engine);
    run(
        &connection,
        "CREATE TABLE main.t(a INTEGER PRIMARY KEY, b UNIQUE); INSERT INTO main.t VALUES (1, 'x'), (2, 'y')",
    );
    run(
        &connection,
        "CREATE TABLE o.u(k PRIMARY KEY, v) WITHOUT ROWID; INSERT INTO o.u VALUES ('a', 1), ('b', 2)",
    );
    run(
        &connection,
        &format!("VACUUM main INTO '{}'", setup.uri("t.other", engine)),
    );
    run(
        &connection,
        &format!("VACUUM o INTO '{}'", setup.path("u.stock")),
    );
    run(
        &connection,
        &format!("VACUUM o INTO '{}'", setup.uri("u.other", engine)),
    );
    for (name, engine, sum) in [
        ("t.other", engine, "t"),
        ("u.stock", "stock", "u"),
        ("u.other", engine, "u"),
    ] {
        let copy = setup.open(name, engine);
        assert_eq!(one(&copy, "PRAGMA integrity_check"), "ok", "{name}");
        assert_eq!(
            one(&copy, &format!("SELECT count(*) FROM {sum}")),
            "2",
            "{name}"
        );
    }
}

fn a_database_becomes_the_other_engines_while_it_is_empty(engine: &str) {
    let setup = Setup::new();
    let connection = setup.open("new", "stock");
    assert_eq!(one(&connection, "PRAGMA journal_mode"), "delete");
    assert_eq!(
        one(
            &connection,
            &format!("PRAGMA journal_mode = {}", engine.to_uppercase())
        ),
        engine
    );
    assert_eq!(
        one(&connection, &format!("PRAGMA journal_mode = {engine}")),
        engine,
        "once more"
    );
    assert_eq!(
        one(&connection, "PRAGMA journal_mode = wal"),
        engine,
        "it stays"
    );
    run(
        &connection,
        "CREATE TABLE t(a UNIQUE); INSERT INTO t VALUES (1), (2)",
    );
    drop(connection);
    let connection = setup.open("new", engine);
    assert_eq!(one(&connection, "SELECT count(*) FROM t"), "2");
    // An attached one.
    run(
        &connection,
        &format!("ATTACH '{}' AS a", setup.path("attached")),
    );
    assert_eq!(
        one(&connection, &format!("PRAGMA a.journal_mode = {engine}")),
        engine
    );
    run(&connection, "CREATE TABLE a.t AS SELECT * FROM main.t");
    assert_eq!(one(&connection, "SELECT count(*) FROM a.t"), "2");
}

fn threads_with_connections_of_their_own(engine: &str) {
    let setup = Setup::new();
    run(
        &setup.open("x", engine),
        "CREATE TABLE t(who, n, UNIQUE(who, n))",
    );
    std::thread::scope(|scope| {
        for who in 0..4 {
            let connection = setup.open("x", engine);
            connection.busy_timeout(60_000).expect("a timeout");
            scope.spawn(move || {
                for n in 0..50 {
                    run(&connection, &format!("INSERT INTO t VALUES ({who}, {n})"));
                }
            });
        }
    });
    let connection = setup.open("x", engine);
    assert_eq!(one(&connection, "SELECT count(*) FROM t"), "200");
    assert_eq!(one(&connection, "PRAGMA integrity_check"), "ok");
}

/// Another process makes the shared memory: SQLite's VFS holds its byte 128 exclusively, and
/// answers BUSY.
#[test]
fn a_connection_waits_for_the_shared_memory_to_be_made() {
    let setup = Setup::new();
    run(&setup.open("x", "lsmvbt"), "CREATE TABLE t(x)");
    let memory = std::fs::File::create(setup.path("x-shm")).expect("shared memory");
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 128,
        l_len: 1,
        l_pid: 0,
    };
    // Locks of an open file description also exclude others of this process.
    fcntl(&memory, FcntlArg::F_OFD_SETLK(&lock)).expect("the lock");
    let opening = std::thread::spawn(move || {
        let connection = setup.open("x", "lsmvbt");
        run(&connection, "INSERT INTO t VALUES (1)");
        one(&connection, "SELECT count(*) FROM t")
    });
    std::thread::sleep(std::time::Duration::from_millis(200));
    lock.l_type = libc::F_UNLCK as libc::c_short;
    fcntl(&memory, FcntlArg::F_OFD_SETLK(&lock)).expect("unlocked");
    assert_eq!(opening.join().expect("it is open"), "1");
}

/// SQLite returns the VFS's own code: no memory, or a file that cannot be opened, is no failed
/// disk.
#[test]
fn the_codes_of_the_vfs_arrive() {
    let setup = Setup::new();
    // SQLite's VFS follows no links to shared memory.
    std::os::unix::fs::symlink("nowhere", setup.path("x-shm")).expect("a link in its place");
    let connection = setup.open("x", "lsmvbt");
    let message = refused(&connection, "CREATE TABLE t(x)");
    assert!(
        message.starts_with("unable to open database file: ") && message.contains(&setup.path("x")),
        "{message}"
    );
    std::fs::remove_file(setup.path("x-shm")).expect("out of the way");
    run(&connection, "CREATE TABLE t(x)");
    run(&setup.open("x", "lsmvbt"), "INSERT INTO t VALUES (1)");
    assert_eq!(one(&connection, "SELECT count(*) FROM t"), "1");
}

/// If the environment chooses the engine, a database without shared memory for it is stock.
#[test]
fn the_environment_chooses_for_files_with_shared_memory() {
    let setup = Setup::new();
    let shell = |database: &str| {
        let run = std::process::Command::new(env!("CARGO_BIN_EXE_lsmvbt-sqlite3"))
            .args([
                database,
                "CREATE TABLE t(x); INSERT INTO t VALUES (1); SELECT count(*) FROM t; PRAGMA journal_mode",
            ])
            .env("LSMVBT_SQLITE_DEFAULT", "lsmvbt")
            .output()
            .expect("the shell");
        assert!(run.status.success(), "{database}: {run:?}");
        String::from_utf8(run.stdout).expect("UTF-8")
    };
    assert_eq!(shell(&setup.path("x")), "1\nlsmvbt\n");
    assert_eq!(shell("file:/x?vfs=memdb"), "1\nmemory\n");
}
