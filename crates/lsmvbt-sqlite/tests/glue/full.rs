//! A full disk: an error of the statement that found it, and no more.

use onewrite_iotrace::scratch::{Mounted, private_mounts};

use lsmvbt_sqlite::sqlite::Connection;

use crate::support::{Setup, one, run};

#[test]
fn a_full_disk_is_an_error_of_one_statement() {
    // This thread's own mounts, which end with it.
    if let Err(error) = private_mounts() {
        println!("SKIPPED: a small file system takes root: {error}");
        return;
    }
    for torn in ["trust", "double"] {
        let setup = Setup::new();
        let directory = setup.path("");
        let place = std::path::Path::new(&directory);
        let _mounted = Mounted::with_options("tmpfs".as_ref(), place, "tmpfs", Some(c"size=2m"))
            .expect("tmpfs");
        let (a, b) = (setup.open("x", "lsmvbt"), setup.open("x", "lsmvbt"));
        run(&a, "CREATE TABLE t(x)");
        assert_eq!(one(&a, &format!("PRAGMA lsmvbt_torn = {torn}")), torn);
        let mut rows = 0;
        let refused = loop {
            match a.execute("INSERT INTO t VALUES (zeroblob(20000))") {
                Ok(_) => rows += 1,
                Err(error) => break error.to_string(),
            }
        };
        for words in ["database or disk is full: ", &setup.path("x"), "make room"] {
            assert!(refused.contains(words), "{refused}");
        }
        assert!(rows > 20, "{rows}");
        // Both go on, and make room.
        for connection in [&a, &b] {
            assert_eq!(one(connection, "SELECT count(*) FROM t"), rows.to_string());
        }
        run(&b, "DELETE FROM t WHERE rowid % 2");
        // Dead entries go with the next change of their page, and the one after can use their
        // space.
        run(&a, "INSERT INTO t VALUES (1)");
        run(&a, "INSERT INTO t VALUES (zeroblob(20000))");
        let left = (rows / 2 + 2).to_string();
        assert_eq!(one(&b, "SELECT count(*) FROM t"), left);
        drop((a, b));
        let again = setup.open("x", "lsmvbt");
        assert_eq!(one(&again, "PRAGMA integrity_check"), "ok");
        assert_eq!(one(&again, "SELECT count(*) FROM t"), left);
    }
}

/// Databases of several engines in one transaction, each of them in turn on a full disk: COMMIT
/// fails, and nothing of it is left anywhere. With two stock ones SQLite uses a super-journal, and
/// does not look at the result of the second phase.
#[test]
fn a_full_disk_fails_the_commit_of_all_databases() {
    if let Err(error) = private_mounts() {
        println!("SKIPPED: a small file system takes root: {error}");
        return;
    }
    for torn in ["trust", "double"] {
        for engines in [
            ["stock", "stock", "lsmvbt"],
            ["stock", "lsmvbt", "stock"],
            ["lsmvbt", "stock", "stock"],
            ["stock", "lsmvbt", "lsmvbt"],
            ["lsmvbt", "lsmvbt", "stock"],
        ] {
            for small in 0..engines.len() {
                full_together(torn, engines, small);
            }
        }
    }
}

fn full_together(torn: &str, engines: [&str; 3], small: usize) {
    const NAMES: [&str; 3] = ["main", "b", "c"];
    let case = format!("{torn}, {engines:?}, {small} is full");
    let (setup, disk) = (Setup::new(), Setup::new());
    let directory = disk.path("");
    let place = std::path::Path::new(&directory);
    let _mounted =
        Mounted::with_options("tmpfs".as_ref(), place, "tmpfs", Some(c"size=1m")).expect("tmpfs");
    let uri = |i: usize| {
        let setup = if i == small { &disk } else { &setup };
        setup.uri(NAMES[i], engines[i])
    };
    let open = || {
        let connection = Connection::open(&uri(0)).expect("a database");
        for (i, name) in NAMES.iter().enumerate().skip(1) {
            run(&connection, &format!("ATTACH '{}' AS {name}", uri(i)));
        }
        connection
    };
    let write = |connection: &Connection, rows: [u32; 3]| {
        run(connection, "BEGIN");
        for (name, rows) in NAMES.iter().zip(rows) {
            run(
                connection,
                &format!(
                    "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i<{rows}) \
                     INSERT INTO {name}.t SELECT i, randomblob(2000) FROM c"
                ),
            );
        }
        connection.execute("COMMIT")
    };
    let count = |connection: &Connection, rows: u32| {
        for name in NAMES {
            let found = one(connection, &format!("SELECT count(*) FROM {name}.t"));
            assert_eq!(found, rows.to_string(), "{case}: {name}");
            let check = format!("PRAGMA {name}.integrity_check");
            assert_eq!(one(connection, &check), "ok", "{case}: {name}");
        }
    };
    let connection = open();
    for (name, engine) in NAMES.iter().zip(engines) {
        run(&connection, &format!("CREATE TABLE {name}.t(a, b)"));
        if engine == "lsmvbt" {
            let set = format!("PRAGMA {name}.lsmvbt_torn = {torn}");
            assert_eq!(one(&connection, &set), torn);
        }
    }
    write(&connection, [10; 3]).expect("room");
    count(&connection, 10);
    let mut rows = [10; 3];
    rows[small] = 600;
    let error = write(&connection, rows).expect_err(&case).to_string();
    assert!(error.contains("full"), "{case}: {error}");
    count(&connection, 10);
    let other = open();
    count(&other, 10);
    if small == 0 && engines[1..] == ["stock", "stock"] {
        // The super-journal stands next to the first database, and has no room there.
        return;
    }
    write(&connection, [10; 3]).unwrap_or_else(|error| panic!("{case}: {error}"));
    count(&other, 20);
    drop((connection, other));
    count(&open(), 20);
}
