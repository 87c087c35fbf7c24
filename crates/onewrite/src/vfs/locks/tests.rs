//! A table as SQLite uses it, on real files. "Others" are POSIX locks of another process, which
//! look the same as our own descriptions.

use super::*;
use crate::storage::Description;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;

const PENDING: OfdRange = OfdRange {
    start: 0x4000_0000,
    len: 1,
};
const RESERVED: OfdRange = OfdRange {
    start: 0x4000_0001,
    len: 1,
};
const SHARED: OfdRange = OfdRange {
    start: 0x4000_0002,
    len: 510,
};
const ALL: OfdRange = OfdRange { start: 0, len: 0 };

struct Fixture {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

impl Fixture {
    fn new() -> Fixture {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("app.db");
        File::create_new(&path).expect("a file");
        Fixture {
            _directory: directory,
            path,
        }
    }

    fn open(&self, table: &Table, writes: bool) -> File {
        table.before_open();
        let file = File::options().read(true).write(writes).open(&self.path);
        let file = file.expect("the file");
        table.forget(file.as_raw_fd());
        file
    }

    /// The lock that another process finds in conflict.
    fn others_find(&self, kind: OfdType, range: OfdRange) -> Option<OfdType> {
        let file = File::open(&self.path).expect("the file");
        let other = Description::of(file.as_fd(), false).expect("a description");
        let conflict = other.lock(OfdCommand::Get, kind, range);
        conflict.expect("an answer").map(|conflict| conflict.kind)
    }
}

fn ask(table: &Table, file: &File, command: OfdCommand, kind: OfdType, range: OfdRange) -> Answer {
    table.answer(file.as_fd(), command, Request { kind, range })
}

fn set(table: &Table, file: &File, kind: OfdType, range: OfdRange) -> Answer {
    ask(table, file, OfdCommand::Set, kind, range)
}

fn close(table: &Table, file: File) {
    table.forget(file.as_raw_fd());
    drop(file);
}

const DONE: Answer = Answer::Done(None);

/// Takes SHARED as SQLite does.
fn share(table: &Table, file: &File) {
    assert_eq!(set(table, file, OfdType::Read, PENDING), DONE);
    assert_eq!(set(table, file, OfdType::Read, SHARED), DONE);
    assert_eq!(set(table, file, OfdType::Unlock, PENDING), DONE);
}

#[test]
fn locks_outlive_other_descriptors_and_end_with_the_last_of_sqlites() {
    let (fixture, table) = (Fixture::new(), Table::new());
    let (one, two) = (fixture.open(&table, true), fixture.open(&table, true));
    share(&table, &one);
    drop(File::open(&fixture.path).expect("the file"));
    assert_eq!(
        fixture.others_find(OfdType::Write, SHARED),
        Some(OfdType::Read)
    );
    // One connection may unlock what another has locked: they are one to SQLite.
    assert_eq!(set(&table, &two, OfdType::Write, RESERVED), DONE);
    assert_eq!(
        ask(&table, &one, OfdCommand::Get, OfdType::Write, RESERVED),
        DONE
    );
    assert_eq!(set(&table, &one, OfdType::Unlock, RESERVED), DONE);
    assert_eq!(fixture.others_find(OfdType::Write, RESERVED), None);
    // SQLite closes the descriptor of the wal-index, which unlocks it.
    close(&table, one);
    assert_eq!(
        fixture.others_find(OfdType::Write, SHARED),
        Some(OfdType::Read)
    );
    close(&table, two);
    assert_eq!(fixture.others_find(OfdType::Write, ALL), None);
    assert_eq!(table.held_on(&fixture.path, false), Held::NotYet);
}

#[test]
fn a_reader_that_was_there_first_keeps_its_lock_when_a_writer_comes() {
    let (fixture, table) = (Fixture::new(), Table::new());
    let (reader, writer) = (fixture.open(&table, false), fixture.open(&table, true));
    share(&table, &reader);
    let refused = set(&table, &reader, OfdType::Write, RESERVED);
    assert_eq!(refused, Answer::Failed(libc::EBADF));
    assert_eq!(set(&table, &writer, OfdType::Write, RESERVED), DONE);
    assert_eq!(
        fixture.others_find(OfdType::Write, SHARED),
        Some(OfdType::Read)
    );
    assert_eq!(
        fixture.others_find(OfdType::Read, RESERVED),
        Some(OfdType::Write)
    );
    // Its own locks do not conflict.
    assert_eq!(set(&table, &writer, OfdType::Write, SHARED), DONE);
    assert_eq!(set(&table, &reader, OfdType::Unlock, ALL), DONE);
    assert_eq!(fixture.others_find(OfdType::Write, ALL), None);
}

#[test]
fn two_sqlites_in_one_process_keep_each_other_out() {
    let (fixture, one, two) = (Fixture::new(), Table::new(), Table::new());
    let (first, second) = (fixture.open(&one, true), fixture.open(&two, true));
    share(&one, &first);
    share(&two, &second);
    assert_eq!(
        set(&two, &second, OfdType::Write, SHARED),
        Answer::Failed(libc::EAGAIN)
    );
    let Answer::Done(Some(conflict)) = ask(&two, &second, OfdCommand::Get, OfdType::Write, SHARED)
    else {
        panic!("nobody is in the way");
    };
    assert_eq!(conflict.kind, OfdType::Read);
    close(&two, second);
    assert_eq!(
        fixture.others_find(OfdType::Write, SHARED),
        Some(OfdType::Read)
    );
    close(&one, first);
}

#[test]
fn a_waiting_connection_gets_the_lock_when_it_is_free() {
    let (fixture, one) = (Fixture::new(), Table::new());
    static TWO: Table = Table::new();
    TWO.before_open();
    let (first, second) = (fixture.open(&one, true), fixture.open(&TWO, true));
    assert_eq!(set(&one, &first, OfdType::Write, SHARED), DONE);
    let waiter = std::thread::spawn(move || {
        let answer = ask(&TWO, &second, OfdCommand::SetWait, OfdType::Read, SHARED);
        (answer, second)
    });
    assert_eq!(set(&one, &first, OfdType::Unlock, ALL), DONE);
    let (answer, second) = waiter.join().expect("it got an answer");
    assert_eq!(answer, DONE);
    assert_eq!(
        set(&one, &first, OfdType::Write, SHARED),
        Answer::Failed(libc::EAGAIN)
    );
    close(&TWO, second);
    assert_eq!(set(&one, &first, OfdType::Write, SHARED), DONE);
}

#[test]
fn a_file_that_was_open_before_keeps_posix_locks_until_it_has_none() {
    let (fixture, table) = (Fixture::new(), Table::new());
    // SQLite opened it, and took SHARED, before its calls came here.
    let old = File::options().read(true).write(true).open(&fixture.path);
    let old = old.expect("the file");
    let new = fixture.open(&table, true);
    for file in [&old, &new] {
        assert_eq!(set(&table, file, OfdType::Write, RESERVED), Answer::PassOn);
    }
    assert_eq!(
        table.held_on(&fixture.path, false),
        Held::Posix(Why::OpenBefore)
    );
    // Everything is unlocked; the next locks are ours.
    assert_eq!(set(&table, &old, OfdType::Unlock, ALL), Answer::PassOn);
    share(&table, &new);
    assert_eq!(table.held_on(&fixture.path, false), Held::Ofd);
}

#[test]
fn a_file_that_was_open_before_and_not_locked_is_ours_from_the_first_lock_on() {
    let (fixture, table) = (Fixture::new(), Table::new());
    let old = File::options().read(true).write(true).open(&fixture.path);
    share(&table, &old.expect("the file"));
    assert_eq!(table.held_on(&fixture.path, false), Held::Ofd);
}

#[test]
fn a_file_that_was_open_before_and_is_closed_is_forgotten() {
    let (fixture, table) = (Fixture::new(), Table::new());
    let old = File::open(&fixture.path).expect("the file");
    let new = fixture.open(&table, true);
    close(&table, old);
    assert_eq!(set(&table, &new, OfdType::Write, RESERVED), DONE);
}

/// Code other than SQLite closes it, unseen by the table.
#[test]
fn an_inode_of_a_file_that_was_open_before_may_be_used_again() {
    let (fixture, table) = (Fixture::new(), Table::new());
    let old = File::open(&fixture.path).expect("the file");
    let elsewhere = fixture.open(&table, true);
    drop(old);
    // A file system may give the inode to a new file, such as a wal-index.
    assert_eq!(set(&table, &elsewhere, OfdType::Write, RESERVED), DONE);
    assert_eq!(table.held_on(&fixture.path, false), Held::Ofd);
}

#[test]
fn a_child_of_fork_leaves_its_parents_locks_alone() {
    let (fixture, table) = (Fixture::new(), Table::new());
    let file = fixture.open(&table, true);
    share(&table, &file);
    let held = table.maps().know(file.as_fd());
    // As in the child: the same descriptors, and none of the parent's locks.
    table.forked();
    for _ in 0..2 {
        assert_eq!(set(&table, &file, OfdType::Write, SHARED), Answer::PassOn);
    }
    assert_eq!(set(&table, &file, OfdType::Unlock, ALL), Answer::PassOn);
    let own = fixture.open(&table, true);
    close(&table, file);
    assert_eq!(
        fixture.others_find(OfdType::Write, SHARED),
        Some(OfdType::Read)
    );
    drop(held);
    drop(own);
}

#[test]
fn a_number_that_is_used_again_is_another_file() {
    let (fixture, other, table) = (Fixture::new(), Fixture::new(), Table::new());
    let file = fixture.open(&table, true);
    share(&table, &file);
    let number = file.as_raw_fd();
    // Closed by code that does not own it.
    drop(file);
    let mut opened = Vec::new();
    while opened
        .last()
        .is_none_or(|file: &File| file.as_raw_fd() != number)
    {
        opened.push(other.open(&table, true));
        assert!(opened.len() < 10_000, "other tests take the number");
        if opened.last().is_some_and(|file| file.as_raw_fd() > number) {
            // Another thread of the tests has it.
            return;
        }
    }
    let again = opened.pop().expect("the number");
    share(&table, &again);
    assert_eq!(
        other.others_find(OfdType::Write, SHARED),
        Some(OfdType::Read)
    );
    assert_eq!(fixture.others_find(OfdType::Write, ALL), None);
}
