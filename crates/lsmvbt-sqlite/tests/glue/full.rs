//! A full disk: an error of the statement that found it, and no more.

use onewrite_iotrace::scratch::{Mounted, private_mounts};

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
        run(&a, &format!("PRAGMA lsmvbt_torn = {torn}"));
        run(&a, "CREATE TABLE t(x)");
        let mut rows = 0;
        let refused = loop {
            match a.execute("INSERT INTO t VALUES (zeroblob(20000))") {
                Ok(_) => rows += 1,
                Err(error) => break error.to_string(),
            }
        };
        assert!(refused.contains("database or disk is full"), "{refused}");
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
