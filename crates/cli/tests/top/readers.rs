//! Readers of an old state hold checkpoints up: `top` names their processes.

use std::fs;
use std::os::unix::fs::MetadataExt;

use onewrite::storage::lock_holders;
use onewrite_iotrace::scratch::{Mounted, private_mounts};
use rusqlite::Connection;

use crate::programs::Program;
use crate::*;

/// The bytes of `-shm` that readers lock.
const READERS: std::ops::Range<u64> = 123..128;

/// A connection that reads the state before the next commit.
fn reader(path: &Path) -> Connection {
    let db = Connection::open(path).expect("a database");
    db.execute_batch("PRAGMA journal_mode=wal; CREATE TABLE IF NOT EXISTS old(x)")
        .expect("a table");
    db.execute_batch("BEGIN; SELECT * FROM old")
        .expect("a snapshot");
    db
}

#[test]
fn a_reader_that_holds_a_checkpoint_up_is_named() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = dir.path().join("held.db");
    let reader = reader(&path);
    // It commits once before it is ready, so the reader is behind before `top` looks first.
    let mut program = Program::python(&path, "wal", 20);
    let run = |args: &[&str], program: &mut Program| {
        let top = Top::start(args);
        program.go();
        program.wait_done();
        top
    };
    let document = run(&["--json", "--for", "600s"], &mut program).stop();
    let held = database(&document, &path);
    assert!(number(&held["checkpoint_held_s"]) >= 1, "{held:#}");
    let readers = list(held, "checkpoint_held_by");
    assert_eq!(readers.len(), 1, "{held:#}");
    assert_eq!(readers[0]["pid"], std::process::id());
    let name = fs::read_to_string("/proc/self/comm").expect("a name");
    assert_eq!(readers[0]["name"], name.trim_end());
    // CREATE TABLE is one or two frames, each row at least one.
    assert!(number(&readers[0]["frames_behind"]) >= 21, "{held:#}");

    let mut again = Program::python(&path, "wal", 20);
    let mut top = run(&["--once", "--for", "600s"], &mut again);
    kill_process(Pid::from_child(&top.0), Signal::INT).expect("a signal");
    let table = std::io::read_to_string(top.0.stdout.take().expect("a pipe")).expect("a table");
    let named = format!("{} ({}), ", name.trim_end(), std::process::id());
    assert!(
        table.contains("held.db was held up for") && table.contains(&named),
        "{table}"
    );

    drop(reader);
    let mut last = Program::python(&path, "wal", 20);
    let document = run(&["--json", "--for", "600s"], &mut last).stop();
    let held = database(&document, &path);
    assert_eq!(held["checkpoint_held_s"], 0, "{held:#}");
    assert!(list(held, "checkpoint_held_by").is_empty(), "{held:#}");
}

/// Two containers may have files of the same name and inode number.
#[test]
fn a_reader_of_another_file_with_the_same_inode_number_is_not_named() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: mounts take root");
        return;
    }
    private_mounts().expect("mounts of our own");
    let dir = tempfile::tempdir().expect("a directory");
    let [one, other] = ["one", "other"].map(|name| {
        let point = dir.path().join(name);
        fs::create_dir(&point).expect("a directory");
        let mounted = Mounted::new(Path::new("tmpfs"), &point, "tmpfs").expect("tmpfs");
        (point.join("app.db"), mounted)
    });
    let reading = reader(&one.0);
    let idle = reader(&other.0);
    idle.execute_batch("COMMIT").expect("the end");
    let index = |path: &Path| onewrite_common::files::companion(path, "-shm");
    let inode = |path: &Path| fs::metadata(index(path)).expect("a file").ino();
    assert_eq!(inode(&one.0), inode(&other.0), "the test is for equal ones");
    let holders = lock_holders(&index(&one.0), READERS);
    assert_eq!(holders.len(), 1, "{holders:?}");
    assert_eq!(holders[0].pid, std::process::id());
    let holders = lock_holders(&index(&other.0), READERS);
    assert!(holders.is_empty(), "{holders:?}");
    drop((reading, idle));
    for (_, mounted) in [one, other] {
        mounted.unmount().expect("unmounted");
    }
}
