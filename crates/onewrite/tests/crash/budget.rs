//! How often the device is flushed to open a database, commit once, and close it.

use super::record::{self, DATABASE, Device, Event, Opener, Reach};
use rusqlite::Connection;
use std::path::Path;

/// Flushes, and writes that are durable by themselves.
fn flushes(events: &[Event]) -> usize {
    let is_flush = |event: &&Event| match event {
        Event::Flush(_) | Event::SyncDirectory => true,
        // SQLite syncs the directory with the first flush of a file that is new to it.
        Event::Open(file, Opener::Sqlite) => *file == record::File::Wal,
        Event::Write { reach, .. } => *reach == Reach::Through,
        _ => false,
    };
    events.iter().filter(is_flush).count()
}

fn session(directory: &Path, statement: &str) -> usize {
    record::start(directory);
    let db = open(directory);
    run(&db, statement);
    drop(db);
    flushes(&record::stop(directory))
}

fn open(directory: &Path) -> Connection {
    let flags = rusqlite::OpenFlags::default();
    let path = directory.join(DATABASE);
    Connection::open_with_flags_and_vfs(path, flags, c"onewrite").expect("a connection")
}

fn run(db: &Connection, statement: &str) {
    let mut prepared = db.prepare(statement).expect("a statement");
    let mut rows = prepared.query([]).expect("rows");
    while rows.next().expect("a row").is_some() {}
}

#[test]
fn a_guarded_mode_opens_and_closes_with_two_flushes_more_than_wal() {
    record::install();
    for device in Device::ALL {
        let counts = ["wal", "waldio", "swal", "onewrite"].map(|mode| {
            let directory = tempfile::tempdir().expect("a directory");
            record::device(directory.path(), device);
            let db = open(directory.path());
            run(&db, &format!("PRAGMA journal_mode={mode}"));
            run(&db, "CREATE TABLE t(x)");
            drop(db);
            let sessions = ["SELECT * FROM t", "INSERT INTO t VALUES(1)"];
            let first = sessions.map(|statement| session(directory.path(), statement));
            let second = sessions.map(|statement| session(directory.path(), statement));
            assert_eq!(first, second, "{mode}, {device:?}");
            first
        });
        let [wal, ours @ ..] = counts;
        assert_eq!(wal[1], 5, "{device:?}");
        for [reads, inserts] in ours {
            assert!(
                inserts <= wal[1] + 2,
                "{device:?}: {inserts}, wal {}",
                wal[1]
            );
            // Three for the log, its directory and the guard, and one for the guard again.
            assert!(reads <= 4, "{device:?}: {reads}");
        }
    }
}
