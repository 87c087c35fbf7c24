//! A database on a scratch file system.

use std::cell::Cell;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use onewrite_iotrace::scratch::{FileSystem, Options, Scratch};
use rusqlite::{Connection, OpenFlags};

pub use super::rows::query;

/// A mounted scratch file system, for the thread that makes it.
pub struct Mount {
    scratch: Option<Scratch>,
    root: PathBuf,
    made: Cell<u32>,
}

#[allow(dead_code)]
impl Mount {
    pub fn xfs() -> Option<Mount> {
        Self::of(FileSystem::Xfs)
    }

    pub fn btrfs() -> Option<Mount> {
        Self::of(FileSystem::Btrfs)
    }

    pub fn ext4() -> Option<Mount> {
        Self::of(FileSystem::Ext4)
    }

    fn of(file_system: FileSystem) -> Option<Mount> {
        let stop = AtomicBool::new(false);
        let memory = Path::new("/dev/shm");
        let temporary = std::env::temp_dir();
        let options = Options {
            file_system,
            bytes: 400 << 20,
            parent: if memory.is_dir() { memory } else { &temporary },
            stop: &stop,
        };
        match Scratch::create(&options) {
            Ok(scratch) => Some(Mount {
                root: scratch.root().to_owned(),
                scratch: Some(scratch),
                made: Cell::new(0),
            }),
            Err(e) => {
                eprintln!("SKIPPED with {}: {e}", file_system.name());
                assert!(std::env::var_os("CI").is_none(), "nothing is skipped on CI");
                None
            }
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn path(&self) -> PathBuf {
        self.made.set(self.made.get() + 1);
        self.root().join(format!("db{}", self.made.get()))
    }
}

impl Drop for Mount {
    /// Each remapped database stays open until the process ends. No test may wait for that, so the
    /// memory of its files is freed here.
    fn drop(&mut self) {
        let Some(scratch) = self.scratch.take() else {
            return;
        };
        for file in std::fs::read_dir(&self.root)
            .into_iter()
            .flatten()
            .flatten()
        {
            let _ = std::fs::File::create(file.path());
        }
        let _ = std::process::Command::new("fstrim")
            .arg(&self.root)
            .output();
        scratch.let_go();
    }
}

/// A connection to a database of its own.
pub struct Database {
    pub path: PathBuf,
    pub db: Connection,
}

pub fn connect(path: &Path, vfs: &str) -> Connection {
    onewrite::register().expect("the VFS onewrite");
    let vfs = CString::new(vfs).expect("a name");
    let flags = OpenFlags::default();
    let db = Connection::open_with_flags_and_vfs(path, flags, vfs.as_c_str()).expect("opened");
    db.busy_timeout(Duration::from_secs(5)).expect("a timeout");
    db
}

#[allow(dead_code)]
impl Database {
    pub fn make(mount: &Mount, mode: &str, checkpoint: &str, init: &str) -> Database {
        Self::with_pages(mount, mode, checkpoint, init, 4096)
    }

    pub fn with_pages(
        mount: &Mount,
        mode: &str,
        checkpoint: &str,
        init: &str,
        bytes: u32,
    ) -> Database {
        let path = mount.path();
        let database = Database {
            db: connect(&path, "onewrite"),
            path,
        };
        database.sql(&format!("PRAGMA page_size={bytes}"));
        database.sql(&format!("PRAGMA onewrite_init='{init}'"));
        database.sql(&format!("PRAGMA onewrite_checkpoint={checkpoint}"));
        assert_eq!(database.sql(&format!("PRAGMA journal_mode={mode}")), mode);
        assert_eq!(database.sql("PRAGMA onewrite_layout"), "gathered");
        database
    }

    pub fn another(&self) -> Connection {
        let db = connect(&self.path, "onewrite");
        query(&db, "SELECT count(*) FROM sqlite_schema").expect("read");
        db
    }

    pub fn sql(&self, statement: &str) -> String {
        query(&self.db, statement).unwrap_or_else(|e| panic!("{statement}: {e}"))
    }

    pub fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.sql("PRAGMA onewrite_status")).expect("JSON")
    }

    pub fn check(&self) {
        assert_eq!(self.sql("PRAGMA integrity_check"), "ok");
    }

    /// The result is a stock database.
    pub fn close_and_check(self) {
        let Database { path, db } = self;
        let digest = |db: &Connection| query(db, "SELECT count(*), total(length(x)) FROM t");
        let before = digest(&db).expect("a digest");
        db.close().map_err(|(_, e)| e).expect("closed");
        let stock = connect(&path, "unix");
        assert_eq!(
            query(&stock, "PRAGMA integrity_check").expect("a check"),
            "ok"
        );
        assert_eq!(digest(&stock).expect("a digest"), before);
    }
}
