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
struct Scene {
    path: PathBuf,
    acknowledged: Mutex<Vec<i64>>,
    _directory: tempfile::TempDir,
}

/// The VFS that opens the database.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Ours,
    Stock,
}

impl Scene {
    /// A database of stock SQLite in journal mode `mode`.
    fn new(mode: &str) -> Arc<Scene> {
        onewrite::register().expect("the VFS onewrite");
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let path = directory.path().join("db");
        let db = open(&path, Who::Stock).expect("a database");
        let sql = format!("PRAGMA journal_mode={mode}; CREATE TABLE t (id INTEGER PRIMARY KEY)");
        db.execute_batch(&sql).expect("a table");
        Arc::new(Scene {
            path,
            acknowledged: Mutex::default(),
            _directory: directory,
        })
    }

    /// A database in a rollback mode, next to a log that remembers `waldio`: stock SQLite has
    /// switched it since.
    fn switched_by_stock() -> Arc<Scene> {
        let scene = Scene::new("delete");
        for (who, mode) in [(Who::Ours, "waldio"), (Who::Stock, "delete")] {
            let db = open(&scene.path, who).expect("a database");
            switch(&db, mode).expect("nobody is in the way");
        }
        assert!(scene.path.with_file_name("db-onewrite").exists());
        scene
    }

    /// Opens, switches to each mode in turn and inserts a row in it, then closes.
    fn life(self: &Arc<Self>, who: Who, modes: &'static [&'static str], first: i64) -> Work {
        let scene = Arc::clone(self);
        Box::new(move || {
            let Some(db) = patiently(|| open(&scene.path, who)) else {
                return;
            };
            for (mode, id) in modes.iter().zip(first..) {
                patiently(|| switch(&db, mode));
                if patiently(|| insert(&db, id)).is_some() {
                    scene.acknowledged.lock().expect("no panic").push(id);
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
        for who in [Who::Ours, Who::Stock] {
            let db = open(&self.path, who).expect("a database at rest");
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

fn open(path: &Path, who: Who) -> rusqlite::Result<Connection> {
    let vfs = match who {
        Who::Ours => c"onewrite",
        Who::Stock => c"unix",
    };
    let db = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), vfs)?;
    db.busy_timeout(std::time::Duration::ZERO)?;
    if who == Who::Stock {
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
        let scene = Scene::new("delete");
        together(vec![
            scene.life(Who::Ours, &["waldio", "delete"], 10),
            scene.life(Who::Ours, &["waldio", "waldio"], 20),
        ]);
        scene.check();
    });
}

/// One connection forgets the remembered mode while another is about to use the log again.
#[test]
fn ours_forget_a_mode_and_take_it_up_again() {
    explore(COSTLY, || {
        let scene = Scene::switched_by_stock();
        together(vec![
            scene.life(Who::Ours, &["waldio", "waldio", "waldio", "waldio"], 10),
            scene.life(Who::Ours, &["truncate", "delete"], 20),
        ]);
        scene.check();
    });
}

#[test]
fn ours_and_stock_in_a_rollback_mode() {
    explore(COSTLY, || {
        let scene = Scene::new("delete");
        together(vec![
            scene.life(Who::Ours, &["waldio"], 10),
            scene.life(Who::Stock, &["persist", "delete"], 20),
            scene.life(Who::Ours, &["waldio"], 30),
        ]);
        scene.check();
    });
}

#[test]
fn ours_and_stock_in_wal() {
    explore(COSTLY, || {
        let scene = Scene::new("wal");
        together(vec![
            scene.life(Who::Ours, &["waldio"], 10),
            scene.life(Who::Stock, &["wal", "delete"], 20),
            scene.life(Who::Ours, &["direct", "direct"], 30),
        ]);
        scene.check();
    });
}
