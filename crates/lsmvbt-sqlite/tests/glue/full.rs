//! A full disk: an error of the statement that found it, and no more.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use onewrite_iotrace::scratch::{FileSystem, LoopDevice, Mounted, private_mounts};

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

/// A write behind a limit on the size of files (`ulimit -f`) ends the process. Only what a commit needs may come to it.
#[test]
fn zeros_behind_new_pages_end_at_the_limit_on_files() {
    const ROW: &str = "INSERT INTO t VALUES (zeroblob(3500));";
    for torn in ["trust", "double"] {
        let setup = Setup::new();
        let made = |name: &str| {
            let connection = setup.open(name, "lsmvbt");
            run(&connection, "CREATE TABLE t(x)");
            assert_eq!(
                one(&connection, &format!("PRAGMA lsmvbt_torn = {torn}")),
                torn
            );
            connection
        };
        let connection = made("free");
        let (mut rows, mut size) = (0, u64::MAX);
        // Until one of the rows brings zeros. A file system that writes pages elsewhere gets none.
        let with_zeros = loop {
            if rows == 3000 {
                let file = File::open(setup.path("free")).expect("the file");
                assert!(!lsmvbt::writes_in_place(&file), "{torn}: no zeros");
                return;
            }
            run(&connection, ROW);
            rows += 1;
            let before = size;
            size = std::fs::metadata(setup.path("free"))
                .expect("its size")
                .len();
            if rows > 100 && size > before + 6 * 4096 {
                break size;
            }
        };
        drop(made("limited"));
        let status = Command::new("prlimit")
            .arg(format!("--fsize={}", with_zeros - 4096))
            .args(["--", env!("CARGO_BIN_EXE_lsmvbt-sqlite3")])
            .arg(setup.path("limited"))
            .arg(format!("PRAGMA lsmvbt_torn = {torn}; {}", ROW.repeat(rows)))
            .status()
            .expect("prlimit");
        assert!(status.success(), "{torn}, {rows} rows: {status}");
        let limited = setup.open("limited", "lsmvbt");
        assert_eq!(one(&limited, "SELECT count(*) FROM t"), rows.to_string());
    }
}

/// A disk that has no block left for the shared memory: an error that says so, until there is room.
#[test]
fn a_full_disk_without_room_for_shared_memory_is_an_error_of_a_full_disk() {
    if let Err(error) = private_mounts() {
        println!("SKIPPED: a small file system takes root: {error}");
        return;
    }
    let setup = Setup::new();
    let directory = setup.path("");
    let place = Path::new(&directory);
    let _mounted =
        Mounted::with_options("tmpfs".as_ref(), place, "tmpfs", Some(c"size=2m")).expect("tmpfs");
    run(
        &setup.open("x", "lsmvbt"),
        "CREATE TABLE t(x); INSERT INTO t VALUES (1)",
    );
    std::fs::remove_file(setup.path("x-shm")).expect("no one uses it");
    let filled = fill(place);
    let refused = setup
        .open("x", "lsmvbt")
        .execute("SELECT x FROM t")
        .expect_err("no room")
        .to_string();
    for words in ["database or disk is full: ", &setup.path("x"), "make room"] {
        assert!(refused.contains(words), "{refused}");
    }
    std::fs::remove_file(filled).expect("room");
    assert_eq!(one(&setup.open("x", "lsmvbt"), "SELECT x FROM t"), "1");
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

/// The directory and what is done there, for a process of its own: a signal ends that one alone.
const SMALL_BLOCKS: &str = "ONEWRITE_SMALL_BLOCKS";

/// SQLite's VFS makes the file of the shared memory longer by one byte in each 4 KiB. Where blocks are
/// smaller, the rest of the 4 KiB has no space on the disk yet. A store there would be a signal.
#[test]
fn a_full_disk_with_blocks_of_1_kib_is_an_error() {
    if let Ok(case) = std::env::var(SMALL_BLOCKS) {
        let (directory, torn) = case.rsplit_once(':').expect("a directory and a case");
        return fill_small_blocks(Path::new(directory), torn);
    }
    let missing = private_mounts()
        .err()
        .or_else(|| FileSystem::Ext4.missing());
    if let Some(missing) = missing {
        println!("SKIPPED: a small file system takes root and mkfs.ext4: {missing}");
        return;
    }
    for torn in ["trust", "double"] {
        let (images, place) = (Setup::new(), Setup::new());
        let image = images.path("image");
        let image = Path::new(&image);
        File::create(image)
            .and_then(|file| file.set_len(24 << 20))
            .expect("an image");
        FileSystem::Ext4.make(image, &["-b", "1024"]).expect("ext4");
        let device = LoopDevice::attach(image).expect("a loop device");
        let directory = place.path("");
        let mounted = Mounted::new(device.node(), directory.as_ref(), "ext4").expect("a mount");
        let status = Command::new(std::env::current_exe().expect("this program"))
            .args([
                "--exact",
                "full::a_full_disk_with_blocks_of_1_kib_is_an_error",
            ])
            .env(SMALL_BLOCKS, format!("{directory}:{torn}"))
            .status()
            .expect("a process");
        mounted.unmount().expect("not in use");
        device.detach().expect("not in use");
        assert!(status.success(), "{torn}: {status}");
    }
}

/// Fills the rest of a file system, and returns the file.
fn fill(directory: &Path) -> std::path::PathBuf {
    let path = directory.join("fill");
    let mut file = File::create(&path).expect("a file");
    for bytes in [65_536, 1024] {
        while file.write_all(&vec![1; bytes]).is_ok() {}
    }
    path
}

fn fill_small_blocks(directory: &Path, torn: &str) {
    let path = directory.join("x");
    let open = || Connection::open(&format!("file:{}?engine=lsmvbt", path.display())).expect("x");
    let a = open();
    run(&a, "CREATE TABLE t(x)");
    assert_eq!(one(&a, &format!("PRAGMA lsmvbt_torn = {torn}")), torn);
    // Room in the database, so that its own file need not grow.
    run(
        &a,
        "INSERT INTO t VALUES (zeroblob(3000000)); DELETE FROM t",
    );
    let filled = fill(directory);
    let mut rows = 0;
    let refused = loop {
        match a.execute("INSERT INTO t VALUES (randomblob(2000))") {
            Ok(()) => rows += 1,
            Err(error) => break error.to_string(),
        }
    };
    println!("{torn}: {rows} rows: {refused}");
    assert!(refused.contains("database or disk is full"), "{refused}");
    // Another statement, and another connection, find the same.
    for connection in [&a, &open()] {
        assert_eq!(one(connection, "SELECT count(*) FROM t"), rows.to_string());
        if let Err(error) = connection.execute("VACUUM") {
            let error = error.to_string();
            assert!(error.contains("database or disk is full"), "{error}");
        }
    }
    std::fs::remove_file(filled).expect("room");
    for _ in 0..100 {
        run(&a, "INSERT INTO t VALUES (randomblob(2000))");
    }
    run(&a, "VACUUM");
    drop(a);
    let a = open();
    assert_eq!(one(&a, "SELECT count(*) FROM t"), (rows + 100).to_string());
    assert_eq!(one(&a, "PRAGMA integrity_check"), "ok");
}
