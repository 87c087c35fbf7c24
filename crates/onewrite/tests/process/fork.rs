//! A child of `fork` is another process to all users of the log, and to the engine itself.

use super::children::{self, printed, this_program};
use super::{open, sql};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where the shared page says who committed last: a number of the process, and one of the
/// connection (docs/formats.md).
const LAST_COMMITTER: usize = 24;

fn last_committer(database: &Path) -> (u32, u32) {
    let shared = std::fs::read(format!("{}-onewrite-shm", database.display()));
    let shared = shared.expect("the shared page");
    let word = shared[LAST_COMMITTER..LAST_COMMITTER + 8].try_into();
    let word = u64::from_ne_bytes(word.expect("8 bytes"));
    ((word >> 32) as u32, word as u32)
}

/// The number of descriptors of the log that this process has open.
fn open_logs(database: &Path) -> usize {
    let log = format!("{}-onewrite", database.display());
    let all = std::fs::read_dir("/proc/self/fd").expect("/proc");
    let targets = all
        .flatten()
        .filter_map(|fd| std::fs::read_link(fd.path()).ok());
    targets.filter(|target| *target == Path::new(&log)).count()
}

/// Otherwise two processes take each other for one. A leader would not wait for the other's
/// commits. And a child shares its parent's open-file-description locks, so these would exclude
/// neither.
#[test]
fn a_child_of_fork_is_another_committer_and_opens_the_log_itself() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let mut child = children::child(&this_program(), "fork::child", &path);
    let text = printed(&mut child);
    assert!(text.contains("both committed"), "{text}");
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn child() {
    let path = std::env::var(children::DATABASE).expect("a database");
    let path = Path::new(&path);
    let parents = open(path);
    assert_eq!(sql(&parents, "PRAGMA journal_mode=onewrite"), "onewrite");
    sql(&parents, "CREATE TABLE t(x)");
    let before = last_committer(path);
    let logs = open_logs(path);
    // SAFETY: the parent's other threads hold nothing: they wait for this test.
    match unsafe { libc::fork() } {
        0 => {
            let childs = open(path);
            sql(&childs, "INSERT INTO t VALUES(1)");
            let is_another = last_committer(path).0 != before.0 && last_committer(path).0 != 0;
            let has_its_own = open_logs(path) > logs;
            let code = i32::from(!is_another) | i32::from(!has_its_own) << 1;
            // SAFETY: ends the child at once; the parent's connection is not the child's to close.
            unsafe { libc::_exit(code) }
        }
        -1 => panic!("fork failed"),
        child => {
            let mut status = 0;
            // SAFETY: waits for our own child.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(
                status, 0,
                "1: the same committer, 2: the same log (in the upper byte)"
            );
        }
    }
    sql(&parents, "INSERT INTO t VALUES(2)");
    assert_eq!(last_committer(path), before);
    assert_eq!(sql(&parents, "SELECT count(*) FROM t"), "2");
    println!("both committed");
}

/// A garbage collector does so. At NORMAL, and with checkpoints in the background, the parent has
/// threads that the child must not wait for.
#[test]
fn a_child_of_fork_may_close_what_it_has_inherited() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let mut child = children::child(&this_program(), "fork::closing_child", &path);
    let text = printed(&mut child);
    assert!(text.contains("all closed"), "{text}");
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn closing_child() {
    let path = std::env::var(children::DATABASE).expect("a database");
    for mode in ["onewrite", "waldio", "swal", "direct"] {
        let parents = open(Path::new(&format!("{path}-{mode}")));
        assert_eq!(sql(&parents, &format!("PRAGMA journal_mode={mode}")), mode);
        sql(&parents, "PRAGMA synchronous=NORMAL");
        sql(&parents, "PRAGMA onewrite_background_checkpoint=on");
        sql(&parents, "PRAGMA wal_autocheckpoint=5");
        sql(&parents, "CREATE TABLE IF NOT EXISTS t(x)");
        for _ in 0..10 {
            sql(&parents, "INSERT INTO t VALUES(randomblob(3000))");
            sql(&parents, "INSERT INTO t VALUES(1)");
            // SAFETY: the parent's other threads hold nothing: they wait for this test.
            match unsafe { libc::fork() } {
                0 => {
                    // Where `parents` is dropped in the parent, later, this is another process.
                    // SAFETY: the child reads the connection once, and then it ends.
                    drop(unsafe { std::ptr::read(&parents) });
                    // SAFETY: ends the child at once.
                    unsafe { libc::_exit(0) }
                }
                -1 => panic!("fork failed"),
                child => {
                    let mut status = 0;
                    // SAFETY: waits for our own child.
                    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                    assert_eq!(status, 0, "{mode}");
                }
            }
        }
        assert_eq!(sql(&parents, "PRAGMA integrity_check"), "ok");
    }
    println!("all closed");
}

/// Commits wait in the memory of both. The parent writes them, and goes on in their place.
#[test]
fn a_child_that_closes_writes_no_commit_of_its_parent() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let mut child = children::child(&this_program(), "fork::closing_child_with_commits", &path);
    let text = printed(&mut child);
    assert!(text.contains("each log is as it was"), "{text}");
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn closing_child_with_commits() {
    let path = std::env::var(children::DATABASE).expect("a database");
    let normal = "PRAGMA synchronous=NORMAL";
    closed_by_a_child(&path, "waldio", "PRAGMA onewrite_group_synch='1024,10000'");
    for mode in ["onewrite", "waldio", "swal"] {
        closed_by_a_child(&format!("{path}.{mode}"), mode, normal);
    }
    println!("each log is as it was");
}

fn closed_by_a_child(path: &str, mode: &str, waits: &str) {
    const ROWS: i64 = 20;
    let parents = open(Path::new(path));
    sql(&parents, &format!("PRAGMA journal_mode={mode}"));
    sql(&parents, "CREATE TABLE t(x)");
    sql(&parents, waits);
    for _ in 0..ROWS {
        sql(&parents, "INSERT INTO t VALUES(1)");
    }
    let (mut told, mut tells) = std::io::pipe().expect("a pipe");
    // SAFETY: the parent's other threads hold nothing: they wait for this test.
    let child = match unsafe { libc::fork() } {
        0 => {
            let _ = std::io::Read::read(&mut told, &mut [0]);
            // SAFETY: the child reads the connection once, and then it ends.
            drop(unsafe { std::ptr::read(&parents) });
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) }
        }
        child => child,
    };
    assert!(child > 0, "fork failed");
    sql(&parents, "PRAGMA onewrite_group_synch=off");
    sql(&parents, "PRAGMA synchronous=FULL");
    sql(&parents, "PRAGMA wal_checkpoint(TRUNCATE)");
    for _ in 0..2 * ROWS {
        sql(&parents, "INSERT INTO t VALUES(2)");
    }
    let log = || {
        // A descriptor of this process must not be closed.
        let mut command = std::process::Command::new("cat");
        let out = command.arg(format!("{path}-onewrite")).output();
        out.expect("cat").stdout
    };
    let before = log();
    std::io::Write::write_all(&mut tells, &[1]).expect("the pipe");
    let mut status = 0;
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert!(before == log(), "{mode}: the child has written to the log");
    assert_eq!(
        sql(&parents, "SELECT count(*) FROM t"),
        (3 * ROWS).to_string()
    );
}

/// How often a thread was detached.
static DETACHED: AtomicUsize = AtomicUsize::new(0);

/// The C library's function, counted. A thread of the parent does not exist in its child, and the memory
/// of one that has ended belongs to others.
#[unsafe(no_mangle)]
extern "C" fn pthread_detach(thread: libc::pthread_t) -> libc::c_int {
    DETACHED.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the C library has the function, with this type.
    unsafe {
        let detach = libc::dlsym(libc::RTLD_NEXT, c"pthread_detach".as_ptr());
        let detach: extern "C" fn(libc::pthread_t) -> libc::c_int = std::mem::transmute(detach);
        detach(thread)
    }
}

#[test]
fn a_child_detaches_no_thread_of_its_parent() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let mut child = children::child(&this_program(), "fork::closing_child_of_threads", &path);
    let text = printed(&mut child);
    assert!(text.contains("none is detached"), "{text}");
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn closing_child_of_threads() {
    let path = std::env::var(children::DATABASE).expect("a database");
    let parents = open(Path::new(&path));
    assert_eq!(sql(&parents, "PRAGMA journal_mode=onewrite"), "onewrite");
    sql(&parents, "PRAGMA onewrite_background_checkpoint=on");
    sql(&parents, "PRAGMA wal_autocheckpoint=5");
    sql(&parents, "CREATE TABLE t(x)");
    let threads = || {
        let all = std::fs::read_dir("/proc/self/task").expect("/proc");
        all.count()
    };
    let before = threads();
    // Their thread checkpoints, and ends when it has nothing more to do.
    while threads() == before {
        sql(&parents, "INSERT INTO t VALUES(randomblob(3000))");
    }
    while threads() > before {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let was = DETACHED.load(Ordering::SeqCst);
    // SAFETY: the parent's other threads hold nothing: they wait for this test.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: the child reads the connection once, and then it ends.
            drop(unsafe { std::ptr::read(&parents) });
            let detached = DETACHED.load(Ordering::SeqCst) - was;
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(detached > 0)) }
        }
        -1 => panic!("fork failed"),
        child => {
            let mut status = 0;
            // SAFETY: waits for our own child.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "in the upper byte 1: a thread was detached");
        }
    }
    println!("none is detached");
}
