//! A process forks while one of its threads waits in the middle of an event.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use std::{env, fs, thread};

use onewrite_iotrace::scratch::{FileSystem, Options, Scratch};

use super::child::{end, start};
use super::hostile::{Frozen, waits_for_it};
use super::{events, made, sql};

/// A child that takes longer hangs, in seconds.
const LONGEST: u32 = 100;

/// The variable that the process has, too.
const LOG: &str = "ONEWRITE_LOG";

/// The log of the child, and the file that says that it has ended well.
fn of_child(path: &Path) -> [PathBuf; 2] {
    [path.with_extension("log"), path.with_extension("good")]
}

/// The scene of this test; `false` for another's.
pub fn scene(name: &str, path: &Path) -> bool {
    if name == "forks" {
        forks(path);
    }
    name == "forks"
}

#[allow(unsafe_code)]
fn forks(path: &Path) {
    let waiting = path.with_extension("waiting");
    let thread = thread::spawn(move || drop(made(&waiting, "onewrite")));
    while !waits_for_it(std::process::id()) {
        assert!(!thread.is_finished(), "it has written its event");
        thread::sleep(Duration::from_millis(5));
    }
    // SAFETY: the other thread is in a system call, and has SQLite's mutex of its own connection alone.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: a timer of this child, which has one thread.
            unsafe { libc::alarm(LONGEST) };
            let code = i32::from(!is_well(path));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(code) }
        }
        -1 => panic!("fork failed"),
        child => {
            let mut status = 0;
            // SAFETY: waits for our own child.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "14: it hangs; in the upper byte 1: no event");
        }
    }
    fs::write(&of_child(path)[1], "").expect("a file");
    thread.join().expect("no panic");
}

/// The child enters a mode, commits, and asks for all figures.
#[allow(unsafe_code)]
fn is_well(path: &Path) -> bool {
    let [log, _] = of_child(path);
    // SAFETY: no other thread is in this process.
    unsafe { env::set_var(LOG, &log) };
    let db = made(path, "onewrite");
    sql(&db, "INSERT INTO t VALUES('of the child')");
    let figures = ["onewrite_metrics", "onewrite_status"];
    let has = figures.map(|figure| !sql(&db, &format!("PRAGMA {figure}")).is_empty());
    drop(db);
    let text = fs::read_to_string(&log).unwrap_or_default();
    has == [true, true] && events(&text, "mode_entered").len() == 1
}

/// Otherwise a lock that the thread holds is taken in the child for ever.
#[test]
fn a_child_of_fork_works_while_a_thread_of_its_parent_writes_an_event() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: a scratch file system takes root");
        return;
    }
    if let Some(missing) = FileSystem::Ext4.missing() {
        println!("SKIPPED: {missing}");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let scratch = Scratch::create(&Options {
        file_system: FileSystem::Ext4,
        bytes: 64 << 20,
        parent: directory.path(),
        stop: &AtomicBool::new(false),
    })
    .expect("a scratch file system");
    let log = scratch.root().join("log");
    fs::write(&log, "").expect("a file");
    let path = directory.path().join("db");
    let frozen = Frozen::new(scratch.root());
    let place = log.to_str().expect("a name");
    let mut parent = start("forks", &path, &[(LOG, place)]);
    let [_, good] = of_child(&path);
    while !good.exists() && parent.try_wait().expect("a state").is_none() {
        thread::sleep(Duration::from_millis(5));
    }
    drop(frozen);
    let (is_good, errors) = end(parent);
    assert!(is_good && good.exists(), "{errors}");
    let text = fs::read_to_string(&log).expect("a file");
    assert_eq!(events(&text, "mode_entered").len(), 1, "{text}");
    scratch.remove().expect("nothing left");
}
