//! Other processes with the same files: they commit, sync, leave journals and die.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use rusqlite::Connection;

use crate::support::{Mounted, Other, can_run, connect, count, fill, integrity};

/// A process that has committed, and one that only syncs, never end another's transaction.
#[test]
fn others_neither_drop_nor_commit_a_transaction() {
    if !can_run() {
        return;
    }
    // It writes the existing content.
    let commits = "import fcntl, os, sys\n\
                   f = os.open(sys.argv[1], os.O_RDWR)\n\
                   fcntl.ioctl(f, 0xF501)\n\
                   os.pwrite(f, os.pread(f, 512, 0), 0)\n\
                   os.fsync(f)\n\
                   print('ready', flush=True)\n\
                   sys.stdin.read()\n";
    let syncs = "import os, sys\n\
                 f = os.open(sys.argv[1], os.O_RDWR)\n\
                 print('ready', flush=True)\n\
                 sys.stdin.read()\n\
                 os.fsync(f)\n";
    let mounted = Mounted::new();
    let connection = mounted.create("a.db");
    connection.execute_batch("PRAGMA cache_size=10").unwrap();
    let path = mounted.path("a.db");
    let mut rows = 0;
    for (script, end) in [
        (commits, "COMMIT"),
        (commits, "ROLLBACK"),
        (syncs, "ROLLBACK"),
        (syncs, "COMMIT"),
    ] {
        let other = Other::new(script, &path);
        connection.execute_batch("BEGIN").unwrap();
        fill(&connection, 400).unwrap();
        other.go_on();
        fill(&connection, 400).unwrap();
        connection.execute_batch(end).unwrap();
        rows += if end == "COMMIT" { 800 } else { 0 };
        let looking = mounted.open("a.db");
        let found = (count(&looking), integrity(&looking));
        assert_eq!(found, (rows, "ok".to_owned()), "{end}");
    }
}

/// A stock writer that spills, in a transaction over rows of `x`.
const DIES: &str = "import sqlite3, sys\n\
                c = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
                c.execute('PRAGMA journal_mode=delete')\n\
                c.execute('PRAGMA cache_size=5')\n\
                c.execute('BEGIN')\n\
                c.execute(\"UPDATE t SET b = replace(b, 'x', 'y')\")\n\
                print('ready', flush=True)\n\
                sys.stdin.read()\n";

/// A stock writer dies in its transaction: a connection in this mode plays its journal back, for
/// good.
#[test]
fn a_journal_that_another_mode_left_is_played_back() {
    if !can_run() {
        return;
    }
    for (begin, end) in [("BEGIN", "COMMIT"), ("SELECT 1", "SELECT 1")] {
        let mounted = Mounted::new();
        let connection = mounted.create("a.db");
        connection.execute_batch("BEGIN").unwrap();
        fill(&connection, 500).unwrap();
        connection.execute_batch("COMMIT").unwrap();
        let files = mounted.files();
        Other::new(DIES, &files.join("a.db")).kill();
        assert!(files.join("a.db-journal").exists());
        connection.execute_batch(begin).unwrap();
        let changed = "SELECT count(*) FROM t WHERE b LIKE '%y%'";
        let number = |connection: &Connection| -> i64 {
            connection.query_row(changed, [], |row| row.get(0)).unwrap()
        };
        assert_eq!(number(&connection), 0);
        connection.execute_batch(end).unwrap();
        drop(connection);
        assert!(!files.join("a.db-journal").exists());
        let stock = Connection::open(files.join("a.db")).unwrap();
        let found = (number(&stock), count(&stock), integrity(&stock));
        assert_eq!(found, (0, 500, "ok".to_owned()), "{begin}");
    }
}

/// The process that [`a_writer_killed_after_a_playback_leaves_nothing`] kills.
#[test]
fn a_writer_to_be_killed() {
    let Some(path) = std::env::var_os("ONEWRITE_FTL_WRITER") else {
        return;
    };
    let told = || std::io::stdin().read_line(&mut String::new()).unwrap();
    let connection = connect(path.as_ref());
    connection
        .execute_batch(
            "PRAGMA journal_mode=xftl; PRAGMA synchronous=OFF; PRAGMA cache_size=10;
             PRAGMA locking_mode=EXCLUSIVE",
        )
        .unwrap();
    eprintln!("ready");
    told();
    assert_eq!(count(&connection), 500);
    connection
        .execute_batch("BEGIN; UPDATE t SET b = replace(b, 'x', 'z')")
        .unwrap();
    eprintln!("written");
    told();
}

/// With `synchronous=OFF` nothing syncs the played-back pages, and with EXCLUSIVE nothing releases
/// the lock.
#[test]
fn a_writer_killed_after_a_playback_leaves_nothing() {
    if !can_run() {
        return;
    }
    let mounted = Mounted::new();
    let connection = mounted.create("a.db");
    connection.execute_batch("BEGIN").unwrap();
    fill(&connection, 500).unwrap();
    connection.execute_batch("COMMIT").unwrap();
    drop(connection);
    let path = mounted.path("a.db");
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::a_writer_to_be_killed", "--nocapture"])
        .env("ONEWRITE_FTL_WRITER", &path)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(writer.stderr.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "ready");
    Other::new(DIES, &path).kill();
    assert!(mounted.path("a.db-journal").exists());
    writeln!(writer.stdin.as_mut().unwrap()).unwrap();
    assert_eq!(said.next().unwrap().unwrap(), "written");
    writer.kill().unwrap();
    writer.wait().unwrap();
    let connection = mounted.open("a.db");
    let changed: i64 = connection
        .query_row("SELECT count(*) FROM t WHERE b NOT LIKE '%x%'", [], |row| {
            row.get(0)
        })
        .unwrap();
    let found = (changed, count(&connection), integrity(&connection));
    assert_eq!(found, (0, 500, "ok".to_owned()));
}

/// A process that writes pages as SQLite does when it spills, after a START, and dies.
#[test]
fn a_killed_writer_leaves_nothing() {
    if !can_run() {
        return;
    }
    let begins = "import fcntl, os, sys\n\
                  f = os.open(sys.argv[1], os.O_RDWR)\n\
                  fcntl.ioctl(f, 0xF501)\n\
                  os.pwrite(f, b'garbage' * 5000, 0)\n\
                  print('ready', flush=True)\n\
                  sys.stdin.read()\n";
    let mounted = Mounted::new();
    let connection = mounted.create("a.db");
    fill(&connection, 1).unwrap();
    drop(connection);
    Other::new(begins, &mounted.path("a.db")).kill();
    let connection = mounted.open("a.db");
    let found = (count(&connection), integrity(&connection));
    assert_eq!(found, (1, "ok".to_owned()));
}

/// A process that is being started has copies of its parent's open files until it runs its program.
#[test]
fn a_file_that_is_closed_a_moment_later_does_not_fail_the_unmount() {
    if !can_run() {
        return;
    }
    let mounted = Mounted::new();
    let connection = mounted.create("a.db");
    connection
        .execute_batch("INSERT INTO t VALUES (1, 'x')")
        .unwrap();
    drop(connection);
    let script = "exec 3<\"$0\"; echo; exec sleep 0.5";
    let mut holder = Command::new("sh")
        .args(["-c", script])
        .arg(mounted.path("a.db"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let output = holder.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    assert!(mounted.end(), "the mount ended with an error");
    holder.wait().unwrap();
}
