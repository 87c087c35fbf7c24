//! `onewrite status` for a user who may only read.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rusqlite::Connection;

use super::{companion, lossy, run};

/// A closed database in WAL mode has neither `-shm` nor `-wal`, and SQLite reads it with both.
#[test]
fn a_user_who_may_not_make_the_files_that_sqlite_reads_with_is_told() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: takes root");
        return;
    }
    const NOBODY: u32 = 65_534;
    let open = std::os::unix::fs::PermissionsExt::from_mode;
    let place = tempfile::tempdir().expect("a directory");
    fs::set_permissions(place.path(), open(0o755)).expect("permissions");
    let program = place.path().join("onewrite");
    onewrite_common::files::copy_program(env!("CARGO_BIN_EXE_onewrite"), &program);
    let database = place.path().join("test.db");
    let stock = Connection::open(&database).expect("a database");
    let told = |is_nobody: bool| {
        let mut command = Command::new(&program);
        command.arg("status").arg(&database).current_dir("/");
        if is_nobody {
            command.uid(NOBODY).gid(NOBODY);
        }
        let output = run(command);
        assert_eq!(output.status.code(), Some(0), "{}", lossy(&output.stderr));
        lossy(&output.stdout)
    };
    // In a rollback mode SQLite makes no file to read.
    stock.execute_batch("CREATE TABLE t(a)").expect("a table");
    assert!(told(true).contains("stock SQLite   can open it\n"));
    let begin = "PRAGMA journal_mode=wal; INSERT INTO t VALUES(1)";
    stock.execute_batch(begin).expect(begin);
    // Both files are there.
    assert!(told(true).contains("stock SQLite   can open it\n"));
    stock.close().expect("it closes");
    assert!(told(false).contains("stock SQLite   can open it\n"));
    let index = companion(&database, "-shm");
    for left in [None, Some(&index)] {
        if let Some(left) = left {
            fs::write(left, [0; 32768]).expect("a file that was left");
        }
        let told = told(true);
        assert!(told.contains("cannot open it as this user"), "{told}");
        assert!(told.contains("run this as its owner, user 0"), "{told}");
    }
}
