//! A region in a file of its own (`onewrite_region`): on a disk that becomes full, in two processes,
//! and next to fork.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use rusqlite::Connection;
use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::database::{Database, Mount, connect, query};
use super::processes::Helper;

const MIB: u64 = 1 << 20;
const ROWS: u32 = 400;

fn made(mount: &Mount, init: &str) -> Database {
    let database = Database::make(mount, "onewrite", "forward", init);
    database.sql("PRAGMA wal_autocheckpoint=0");
    database.sql("CREATE TABLE t(id INTEGER PRIMARY KEY, n INT, x)");
    database.sql(&format!(
        "INSERT INTO t WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < {}) \
         SELECT i, 0, randomblob(8000) FROM s",
        ROWS - 1
    ));
    assert!(database.sql("PRAGMA wal_checkpoint").starts_with("0|"));
    database
}

/// Updates of some rows, and a checkpoint that gives blocks away.
fn updated(db: &Connection, n: u32) {
    let changed = format!("UPDATE t SET n = {n}, x = randomblob(8000) WHERE id % 20 = {n} % 20");
    query(db, &changed).unwrap_or_else(|e| panic!("{n}: {e}"));
    let done = query(db, "PRAGMA wal_checkpoint").expect("a checkpoint");
    assert!(done.starts_with("0|"), "{n}: {done}");
}

fn status_of(db: &Connection) -> serde_json::Value {
    let status = query(db, "PRAGMA onewrite_status").expect("a status");
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    status["remapped"].clone()
}

fn count(db: &Connection, name: &str) -> u64 {
    status_of(db)[name].as_u64().expect("a count")
}

/// Waits until the condition holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The files without a name below a directory that a process has open.
fn unnamed(process: &str, below: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(format!("/proc/{process}/fd")).expect("/proc");
    let all = all.flatten().map(|entry| entry.path());
    let is_unnamed = |fd: &PathBuf| {
        let target = fs::read_link(fd).unwrap_or_default();
        target.starts_with(below) && target.to_string_lossy().ends_with("(deleted)")
    };
    all.filter(is_unnamed).collect()
}

/// Bytes of blocks of the region.
fn allocated(mount: &Mount) -> u64 {
    let region = unnamed("self", mount.root());
    assert!(region.len() <= 1, "{region:?}");
    let blocks = region
        .iter()
        .map(|fd| fs::metadata(fd).expect("it").blocks());
    blocks.sum::<u64>() * 512
}

fn free(mount: &Mount) -> u64 {
    let space = statvfs(mount.root()).expect("the file system");
    space.f_bavail * space.f_frsize
}

/// Takes all of the file system's space, at once.
fn fill(mount: &Mount) -> PathBuf {
    let path = mount.root().join("filling");
    let file = File::create(&path).expect("a file");
    let mut end = 0;
    for piece in [64 * MIB, 16 * MIB, 4 * MIB, MIB, 64 << 10, 4 << 10] {
        while fallocate(&file, FallocateFlags::empty(), end, piece).is_ok() {
            end += piece;
        }
    }
    path
}

fn is_full(mount: &Mount) {
    assert!(free(mount) < MIB, "{}", free(mount));
}

fn is_whole(db: &Connection, bytes: u64) -> bool {
    count(db, "region_bytes") == bytes
}

/// The disk becomes full while a thread makes the region. It gives all blocks back. Commits go on, and
/// checkpoints too. The region is made when there is space again.
#[test]
fn a_disk_that_becomes_full_while_the_region_is_made_gets_its_blocks_back() {
    let Some(mount) = Mount::xfs() else { return };
    let database = made(&mount, "zero-fill");
    let region = 64 * MIB;
    database.sql("PRAGMA onewrite_region='64M'");
    let before = free(&mount);
    updated(&database.db, 1);
    until("the region begins", || free(&mount) + 4 * MIB < before);
    let filling = fill(&mount);
    until("a refusal", || count(&database.db, "region_refusals") == 1);
    let status = status_of(&database.db);
    assert_eq!(status["region_bytes"], 0, "{status}");
    assert_eq!(allocated(&mount), 0, "{status}");
    // The filling file may have taken those blocks.
    fs::remove_file(&filling).expect("removed");
    let filling = fill(&mount);
    is_full(&mount);
    for n in 2..6 {
        updated(&database.db, n);
        database.check();
    }
    until("more refusals", || {
        count(&database.db, "region_refusals") > 1
    });
    assert_eq!(count(&database.db, "moved_forward"), 0);
    fs::remove_file(filling).expect("removed");
    updated(&database.db, 6);
    until("a region", || is_whole(&database.db, region));
    let moved = count(&database.db, "moved_forward");
    updated(&database.db, 7);
    assert_eq!(count(&database.db, "moved_forward"), moved + 1);
    assert_eq!(database.sql("SELECT count(*) FROM t WHERE n > 0"), "140");
    database.check();
    database.close_and_check();
}

/// The disk becomes full when the region is whole. A checkpoint takes from it, and what it lacks cannot
/// be made: it is given back.
#[test]
fn a_region_that_cannot_be_made_again_is_given_back() {
    for init in ["zero-fill", "unwritten"] {
        let Some(mount) = Mount::xfs() else { return };
        let database = made(&mount, init);
        database.sql("PRAGMA onewrite_region='8M'");
        updated(&database.db, 1);
        until("a region", || is_whole(&database.db, 8 * MIB));
        assert!(allocated(&mount) >= 8 * MIB);
        let moved = count(&database.db, "moved_forward");
        let filling = fill(&mount);
        is_full(&mount);
        updated(&database.db, 2);
        until("a refusal", || count(&database.db, "region_refusals") == 1);
        let status = status_of(&database.db);
        assert_eq!(status["moved_forward"], moved + 1, "{status}");
        assert_eq!(
            (status["region_bytes"].as_u64(), allocated(&mount)),
            (Some(0), 0)
        );
        assert!(free(&mount) > 7 * MIB, "{}", free(&mount));
        for n in 3..6 {
            updated(&database.db, n);
        }
        fs::remove_file(filling).expect("removed");
        // XFS frees the blocks of a removed file some time later.
        until("space", || free(&mount) > 16 * MIB);
        updated(&database.db, 6);
        until("a region", || is_whole(&database.db, 8 * MIB));
        let moved = count(&database.db, "moved_forward");
        updated(&database.db, 7);
        assert_eq!(count(&database.db, "moved_forward"), moved + 1);
        database.check();
        database.close_and_check();
    }
}

/// A log that must grow on a full disk takes the space of the region.
#[test]
fn a_log_that_finds_no_space_gets_that_of_the_region() {
    let Some(mount) = Mount::xfs() else { return };
    let database = made(&mount, "zero-fill");
    database.sql("PRAGMA onewrite_region='24M'");
    updated(&database.db, 1);
    until("a region", || is_whole(&database.db, 24 * MIB));
    let filling = fill(&mount);
    is_full(&mount);
    // Six transactions of 800 pages: the log's first chunk has room for 1,536.
    for n in 2..8 {
        database.sql(&format!("UPDATE t SET n = {n}, x = randomblob(8000)"));
    }
    assert_eq!(allocated(&mount), 0);
    let refused = loop {
        match query(&database.db, "UPDATE t SET n = n + 1, x = randomblob(8000)") {
            Ok(_) => {}
            Err(e) => break e,
        }
    };
    let code = refused.sqlite_error_code();
    assert_eq!(code, Some(rusqlite::ErrorCode::DiskFull), "{refused}");
    assert!(database.sql("PRAGMA wal_checkpoint").starts_with("0|"));
    assert_eq!(database.sql("SELECT count(DISTINCT n) FROM t"), "1");
    fs::remove_file(filling).expect("removed");
    updated(&database.db, 8);
    until("a region", || is_whole(&database.db, 24 * MIB));
    database.check();
    database.close_and_check();
}

/// Each process has a region of its own. Both move one log.
#[test]
fn two_processes_move_one_log_through_their_own_regions() {
    let Some(mount) = Mount::xfs() else { return };
    let database = made(&mount, "zero-fill");
    database.sql("PRAGMA onewrite_region='4M'");
    let mut other = Helper::start(&database.path, &[]);
    for setting in ["checkpoint=forward", "region='2M'", "init='zero-fill'"] {
        other.ask(&format!("PRAGMA onewrite_{setting}"));
    }
    other.ask("PRAGMA wal_autocheckpoint=0");
    let others = |other: &mut Helper| -> serde_json::Value {
        let status = other.ask("PRAGMA onewrite_status");
        serde_json::from_str::<serde_json::Value>(&status).expect("JSON")["remapped"].clone()
    };
    for n in 1..30 {
        updated(&database.db, n);
        // Every third time frames of both are in the log.
        if n % 3 == 0 {
            database.sql(&format!("UPDATE t SET n = n + 1000 WHERE id = {n}"));
        }
        let row = n * 7 % ROWS;
        other.ask(&format!("UPDATE t SET x = 'other {n}' WHERE id = {row}"));
        let done = other.ask("PRAGMA wal_checkpoint");
        assert!(done.starts_with("0|"), "{done}");
        let seen = database.sql(&format!("SELECT x FROM t WHERE id = {row}"));
        assert_eq!(seen, format!("other {n}"));
        let sums = "SELECT count(*) || '|' || total(n) || '|' || total(length(x)) FROM t";
        assert_eq!(other.ask(sums), database.sql(sums));
        database.check();
        // Both regions are made again in the background.
        if n % 5 == 0 {
            until("a region", || is_whole(&database.db, 4 * MIB));
            // The blocks that the log gave are free again, but for those of the last checkpoints.
            assert!(allocated(&mount) < 6 * MIB, "{}", allocated(&mount));
            until("the other's", || {
                others(&mut other)["region_bytes"] == 2 * MIB
            });
        }
    }
    let moved = |status: &serde_json::Value| status["moved_forward"].as_u64();
    let (mine, its) = (status_of(&database.db), others(&mut other));
    assert!(
        moved(&mine) > Some(10) && moved(&its) > Some(10),
        "{mine} {its}"
    );
    let has = |process: &str| unnamed(process, mount.root()).len();
    assert_eq!((has("self"), has(&other.process().to_string())), (1, 1));
    other.end();
    updated(&database.db, 30);
    database.check();
    database.close_and_check();
}

const FORKED: &str = "REGION_FORKED";

/// A child of fork has no copy of the region's file, whenever the fork came, and so cannot keep its blocks. It
/// closes what it has inherited, and has a region of its own.
#[test]
fn a_child_of_fork_has_no_part_in_the_region() {
    let Some(mount) = Mount::xfs() else { return };
    let database = made(&mount, "zero-fill");
    let Database { path, db } = database;
    db.close().map_err(|(_, e)| e).expect("closed");
    let run = std::process::Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "region::forks", "--nocapture"])
        .env(FORKED, &path)
        .output()
        .expect("this program");
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    let complained = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}{complained}");
    assert!(said.contains("12 children"), "{said}");
    let stock = connect(&path, "unix");
    assert_eq!(query(&stock, "PRAGMA integrity_check").as_deref(), Ok("ok"));
    let rows = query(&stock, "SELECT count(*) FROM t WHERE id > 1000");
    assert_eq!(rows.as_deref(), Ok("12"));
}

/// The program of that test, in a process of its own; as a separate test it does nothing.
#[test]
fn forks() {
    let Some(path) = env::var_os(FORKED).map(PathBuf::from) else {
        return;
    };
    let parents = in_forward(&path);
    let root = path.parent().expect("the root");
    for n in 1..=12 {
        updated(&parents, n);
        // At another moment of the making each time; sometimes it is over.
        thread::sleep(Duration::from_micros(u64::from(n - 1) * 700));
        fork_and_wait(|| {
            if !unnamed("self", root).is_empty() {
                return 1;
            }
            // SAFETY: the child takes the connection once, and then it ends without dropping it again.
            #[allow(unsafe_code)]
            drop(unsafe { std::ptr::read(&parents) });
            let own = in_forward(&path);
            updated(&own, 100 + n);
            let insert = format!("INSERT INTO t VALUES({}, 0, 'child')", 1000 + n);
            query(&own, &insert).expect("a row");
            until("a region", || is_whole(&own, 16 * MIB));
            updated(&own, 200 + n);
            let has = count(&own, "moved_forward") == 1 && unnamed("self", root).len() == 1;
            own.close().map_err(|(_, e)| e).expect("closed");
            2 * i32::from(!has) + 4 * i32::from(!unnamed("self", root).is_empty())
        });
        until("the region", || is_whole(&parents, 16 * MIB));
        assert_eq!(unnamed("self", root).len(), 1);
    }
    assert!(
        count(&parents, "moved_forward") >= 11,
        "{}",
        status_of(&parents)
    );
    println!("12 children");
}

fn in_forward(path: &Path) -> Connection {
    let db = connect(path, "onewrite");
    for setting in [
        "onewrite_checkpoint=forward",
        "onewrite_region='16M'",
        "wal_autocheckpoint=0",
    ] {
        query(&db, &format!("PRAGMA {setting}")).expect("set");
    }
    db
}

/// The child's code must be 0. 1: it has its parent's file. 2: it had no region. 4: its region stayed.
#[allow(unsafe_code)]
fn fork_and_wait(child: impl FnOnce() -> i32) {
    // SAFETY: the child uses nothing that another thread may have left locked. Besides the engine's
    // threads, only the test harness's runs, and it waits.
    match unsafe { libc::fork() } {
        0 => {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(8);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(code) }
        }
        -1 => panic!("fork failed"),
        number => {
            let mut status = 0;
            // SAFETY: waits for our own child.
            assert_eq!(unsafe { libc::waitpid(number, &mut status, 0) }, number);
            assert_eq!(libc::WEXITSTATUS(status), 0, "{status}");
            assert!(libc::WIFEXITED(status), "{status}");
        }
    }
}
