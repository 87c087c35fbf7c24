use std::sync::mpsc::channel;
use std::thread;

use super::*;
use crate::log::{Log, OpenLog};
use crate::mode::Layout;

/// The data of a thread that checkpoints this log.
fn served(path: &Path) -> Served {
    let log = Log::create(&OpenLog::for_test(path), Layout::Packed).expect("a log");
    Served {
        log: Arc::new(SharedLog::from(log)),
        database: path.to_owned(),
        by: Service::Checkpoints,
        settings: Settings::default(),
    }
}

/// A thread that checkpoints opens a file which another SQLite has open. A fork waits for that thread.
#[test]
fn a_connection_of_our_own_ends_nothing_of_another_sqlite() {
    drop(rusqlite::Connection::open_in_memory().expect("a SQLite"));
    crate::vfs::register(false).expect("the VFS onewrite");
    let host = host::get().expect("its host");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db-onewrite");
    let served = served(&path);
    before_fork();
    let (ended, end) = channel();
    let thread = thread::spawn(move || {
        let found = serving(served, || end_in_other_hosts(host, &path));
        let _ = ended.send(());
        found
    });
    let is_over = end.recv_timeout(Duration::from_secs(20));
    after_fork();
    assert_eq!(thread.join().expect("no panic"), Some(false));
    assert!(is_over.is_ok(), "it has waited for the fork");
}

/// The first question of every open. A child of fork that has inherited files may fork.
#[test]
fn a_connection_of_our_own_does_not_wait_for_the_list_that_a_fork_keeps_locked() {
    drop(rusqlite::Connection::open_in_memory().expect("a SQLite"));
    let directory = tempfile::tempdir().expect("a directory");
    let served = served(&directory.path().join("db-onewrite"));
    before_fork();
    HAS_INHERITED.store(true, Ordering::Release);
    let (ended, end) = channel();
    let thread = thread::spawn(move || {
        let found = serving(served, || is_inherited((0, 0)));
        let _ = ended.send(());
        found
    });
    let is_over = end.recv_timeout(Duration::from_secs(20));
    HAS_INHERITED.store(false, Ordering::Release);
    after_fork();
    assert_eq!(thread.join().expect("no panic"), Some(false));
    assert!(is_over.is_ok(), "it has waited for the fork");
}
