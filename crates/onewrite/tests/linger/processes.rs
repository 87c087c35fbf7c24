//! Processes that exit, fork or are killed while they keep a database open, and other processes next
//! to them.

use super::children::{self, printed, this_program};
use super::{LONG, MODES, is_closed, is_stock, lingering, open, outcome, sql, status};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

fn database() -> PathBuf {
    PathBuf::from(std::env::var(children::DATABASE).expect("a database"))
}

fn run(name: &str, path: &Path) -> String {
    printed(&mut children::child(&this_program(), name, path))
}

#[test]
fn a_process_that_exits_closes_what_it_keeps_open() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let text = run("processes::exits", &path);
    assert!(text.contains("guarded at the end"), "{text}");
    for mode in MODES {
        is_closed(&path.with_extension(mode), 1);
    }
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn exits() {
    for mode in MODES {
        let path = database().with_extension(mode);
        lingering(&path, mode);
        assert!(!is_stock(&path));
    }
    println!("guarded at the end");
}

#[test]
fn a_kill_loses_no_commit() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in MODES {
        let path = directory.path().join(mode);
        let mut child = children::child(&this_program(), "processes::is_killed", &path)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("this program");
        let status = child.wait().expect("a child of ours");
        assert!(!status.success());
        assert!(!is_stock(&path), "{mode}");
        let db = open(&path);
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "51", "{mode}");
        drop(db);
        is_closed(&path, 51);
    }
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn is_killed() {
    let path = database();
    let mode = path
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    lingering(&path, &mode);
    for _ in 0..50 {
        let db = open(&path);
        sql(&db, LONG);
        sql(&db, "INSERT INTO t(x) VALUES(randomblob(100))");
    }
    // SAFETY: ends this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// Whether a process has SHARED.
fn is_locked(path: &Path) -> bool {
    let database = std::fs::File::open(path).expect("the database");
    let mut lock = libc::flock64 {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0x4000_0002,
        l_len: 510,
        l_pid: 0,
    };
    // SAFETY: a question about a file of our own.
    let code = unsafe { libc::fcntl(database.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
    lock.l_type != libc::F_UNLCK as i16
}

/// SQLite in the child takes the locks that its parent has for its own.
#[test]
fn a_child_of_fork_opens_the_database_with_locks_of_its_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = run("processes::forks", &directory.path().join("db"));
    assert!(text.contains("both have written"), "{text}");
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn forks() {
    let path = database();
    lingering(&path, "onewrite");
    let (mut parents, mut childs) = UnixStream::pair().expect("a pair of sockets");
    // SAFETY: the parent's other threads hold nothing: they wait for this test.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // A panic must not run the parent's code.
        let opened = std::panic::catch_unwind(|| {
            let db = open(&path);
            assert_eq!(status(&db)["lingering"], 0);
            sql(&db, "INSERT INTO t(x) VALUES('child')");
            db
        });
        let is_told = childs.write_all(b"!").is_ok() && childs.read_exact(&mut [0]).is_ok();
        let is_well = is_told && opened.is_ok_and(|db| db.close().is_ok());
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!is_well)) }
    }
    parents.read_exact(&mut [0]).expect("the child has written");
    let db = open(&path);
    let refused = outcome(&db, "PRAGMA journal_mode=delete");
    assert!(refused.starts_with("error 5"), "{refused}");
    // This process keeps nothing open now. So a lock is the child's.
    drop(db);
    assert!(is_locked(&path), "the child has no lock");
    let db = open(&path);
    sql(&db, LONG);
    sql(&db, "INSERT INTO t(x) VALUES('parent')");
    drop(db);
    parents.write_all(b"!").expect("the child may close");
    let mut ended = 0;
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut ended, 0) }, child);
    assert_eq!(ended, 0);
    let db = open(&path);
    assert_eq!(sql(&db, "SELECT count(*) FROM t"), "3");
    assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
    println!("both have written");
}

/// As next to an idle connection.
#[test]
fn another_process_reads_and_writes_and_cannot_leave_the_mode() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in MODES {
        let path = directory.path().join(mode);
        let text = run("processes::keeps", &path);
        assert!(text.contains("kept"), "{text}");
    }
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn keeps() {
    let path = database();
    let mode = path
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    lingering(&path, &mode);
    let text = run("processes::comes", &path);
    assert!(text.contains("refused"), "{text}");
    assert!(
        !is_stock(&path),
        "{mode}: the other process has ended the guard"
    );
    let db = open(&path);
    sql(&db, "PRAGMA onewrite_linger='200ms'");
    assert_eq!(sql(&db, "SELECT count(*) FROM t"), "2");
    drop(db);
    // A shorter time does not cut the longer one short.
    assert!(!is_stock(&path));
    let db = open(&path);
    sql(&db, "PRAGMA onewrite_linger=off");
    sql(&db, "SELECT count(*) FROM t");
    drop(db);
    println!("kept");
    is_closed(&path, 2);
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn comes() {
    let db = open(&database());
    sql(&db, "INSERT INTO t(x) VALUES('other')");
    let left = outcome(&db, "PRAGMA journal_mode=delete");
    assert!(left.starts_with("error 5"), "{left}");
    println!("refused");
}
