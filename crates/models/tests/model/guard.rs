//! The guard: our connections and connections of stock SQLite open, write, switch modes and close,
//! all through the real SQLite. Every call of the engine to the VFS underneath is a step.
//!
//! They share a process, and so one opening of the log. SQLite's locks on the database separate
//! them as they do processes, because its VFS provides for that within a process.

use crate::{COSTLY, Work, explore, together};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use shuttle::thread;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// How often a connection that gets "busy" tries again.
const PATIENCE: u32 = 50;

/// A database, and the rows that were acknowledged.
struct Database {
    path: PathBuf,
    acknowledged: Mutex<Vec<i64>>,
    _directory: tempfile::TempDir,
}

/// The VFS that opens the database.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Vfs {
    Ours,
    Stock,
}

impl Database {
    /// A database of stock SQLite in journal mode `mode`.
    fn new(mode: &str) -> Arc<Database> {
        onewrite::register().expect("the VFS onewrite");
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let path = directory.path().join("db");
        let db = open(&path, Vfs::Stock).expect("a database");
        let sql = format!("PRAGMA journal_mode={mode}; CREATE TABLE t (id INTEGER PRIMARY KEY)");
        db.execute_batch(&sql).expect("a table");
        Arc::new(Database {
            path,
            acknowledged: Mutex::default(),
            _directory: directory,
        })
    }

    /// A database in a rollback mode, next to a log that remembers `waldio`: stock SQLite has
    /// switched it since.
    fn switched_by_stock() -> Arc<Database> {
        let database = Database::new("delete");
        for (vfs, mode) in [(Vfs::Ours, "waldio"), (Vfs::Stock, "delete")] {
            let db = open(&database.path, vfs).expect("a database");
            switch(&db, mode).expect("no lock in the way");
        }
        assert!(database.path.with_file_name("db-onewrite").exists());
        database
    }

    /// Opens, switches to each mode in turn and inserts a row in it, then closes.
    fn session(self: &Arc<Self>, vfs: Vfs, modes: &'static [&'static str], first: i64) -> Work {
        let database = Arc::clone(self);
        Box::new(move || {
            let Some(db) = patiently(|| open(&database.path, vfs)) else {
                return;
            };
            for (mode, id) in modes.iter().zip(first..) {
                patiently(|| switch(&db, mode));
                if patiently(|| insert(&db, id)).is_some() {
                    database.acknowledged.lock().expect("no panic").push(id);
                }
            }
            drop(db);
        })
    }

    /// When all have closed: everything acknowledged is there, first for our VFS and then for stock
    /// SQLite.
    fn check(&self) {
        let mut expected = self.acknowledged.lock().expect("no panic").clone();
        expected.sort_unstable();
        for vfs in [Vfs::Ours, Vfs::Stock] {
            let db = open(&self.path, vfs).expect("a database at rest");
            let ids: Vec<i64> = db
                .prepare("SELECT id FROM t ORDER BY id")
                .and_then(|mut query| query.query_map([], |row| row.get(0))?.collect())
                .expect("the rows");
            assert_eq!(ids, expected);
            let ok: String = db
                .query_row("PRAGMA integrity_check", [], |row| row.get(0))
                .expect("an answer");
            assert_eq!(ok, "ok");
        }
    }
}

fn open(path: &Path, vfs: Vfs) -> rusqlite::Result<Connection> {
    let name = match vfs {
        Vfs::Ours => c"onewrite",
        Vfs::Stock => c"unix",
    };
    let db = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), name)?;
    db.busy_timeout(std::time::Duration::ZERO)?;
    if vfs == Vfs::Stock {
        // SQLite 3.54 leaves WAL mode with the pages that the connection has cached, even if others
        // have committed to them since its last transaction. Without a cache it has none.
        db.execute_batch("PRAGMA cache_size=0")?;
    }
    // SQLite opens the file lazily: here it reads it.
    db.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(db)
}

fn switch(db: &Connection, mode: &str) -> rusqlite::Result<()> {
    if mode == "waldio" {
        // The layout that any database can have. It is refused if another connection has taken the
        // database to `direct` meanwhile; then it stays there.
        match db.query_row("PRAGMA onewrite_layout=page4k", [], |_| Ok(())) {
            Err(e) if e.sqlite_error_code() == Some(ErrorCode::Unknown) => return Ok(()),
            set => set?,
        }
    }
    db.query_row(&format!("PRAGMA journal_mode={mode}"), [], |_| Ok(()))
}

fn insert(db: &Connection, id: i64) -> rusqlite::Result<()> {
    let result = (|| {
        db.execute_batch("BEGIN IMMEDIATE")?;
        thread::yield_now();
        db.execute("INSERT INTO t VALUES (?1)", [id])?;
        thread::yield_now();
        db.execute_batch("COMMIT")
    })();
    if result.is_err() && !db.is_autocommit() {
        db.execute_batch("ROLLBACK").expect("a rollback");
    }
    result
}

/// Tries again while the database is busy. `None` if it stays busy, or is guarded against this VFS.
fn patiently<T>(mut ask: impl FnMut() -> rusqlite::Result<T>) -> Option<T> {
    for _ in 0..PATIENCE {
        match ask() {
            Ok(value) => return Some(value),
            Err(e) => match e.sqlite_error_code() {
                // "Locking protocol": the wal-index was in recovery for longer than SQLite waits.
                Some(ErrorCode::DatabaseBusy | ErrorCode::FileLockingProtocolFailed) => {
                    thread::yield_now();
                }
                Some(ErrorCode::NotADatabase) => return None,
                _ => panic!("neither busy nor guarded: {e}"),
            },
        }
    }
    None
}

#[test]
fn ours_switch_together() {
    explore(COSTLY, || {
        let database = Database::new("delete");
        together(vec![
            database.session(Vfs::Ours, &["waldio", "delete"], 10),
            database.session(Vfs::Ours, &["waldio", "waldio"], 20),
        ]);
        database.check();
    });
}

/// One connection forgets the remembered mode while another is about to use the log again.
#[test]
fn ours_forget_a_mode_and_take_it_up_again() {
    explore(COSTLY, || {
        let database = Database::switched_by_stock();
        together(vec![
            database.session(Vfs::Ours, &["waldio", "waldio", "waldio", "waldio"], 10),
            database.session(Vfs::Ours, &["truncate", "delete"], 20),
        ]);
        database.check();
    });
}

#[test]
fn ours_and_stock_in_a_rollback_mode() {
    explore(COSTLY, || {
        let database = Database::new("delete");
        together(vec![
            database.session(Vfs::Ours, &["waldio"], 10),
            database.session(Vfs::Stock, &["persist", "delete"], 20),
            database.session(Vfs::Ours, &["waldio"], 30),
        ]);
        database.check();
    });
}

#[test]
fn ours_and_stock_in_wal() {
    explore(COSTLY, || {
        let database = Database::new("wal");
        together(vec![
            database.session(Vfs::Ours, &["waldio"], 10),
            database.session(Vfs::Stock, &["wal", "delete"], 20),
            database.session(Vfs::Ours, &["direct", "direct"], 30),
        ]);
        database.check();
    });
}
