//! Connections under a journal mode: opening them, and reading back the settings in force.
//!
//! A stock mode is a connection through SQLite's own VFS. A mode of onewrite is a connection
//! through the `onewrite` VFS; its variations are pragmas before `PRAGMA journal_mode`. Every
//! setting is verified. The journal mode must answer with the requested name. A variation must be
//! answered at all, because SQLite silently ignores unknown pragmas. The function [`in_force`]
//! reports every setting that affects durability or speed, as the connection itself states it.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use serde_json::{Map, Value};

use crate::mode::{LSMVBT, Mode, Pragma, Synchronous, Vfs};
use crate::{Error, engine};

/// The system call with which this build's SQLite makes a file durable. Every distribution builds
/// it with `fdatasync`, and `.cargo/config.toml` does so for the bundled one. The alternative is
/// `fsync`, which also writes a file's time stamps. It would cost stock modes a needless commit of
/// the file system's journal.
pub const SYNC_CALL: &str = match option_env!("LIBSQLITE3_FLAGS") {
    Some(flags) if mentions_fdatasync(flags.as_bytes()) => "fdatasync",
    _ => "fsync",
};

const fn mentions_fdatasync(flags: &[u8]) -> bool {
    let word = b"HAVE_FDATASYNC";
    let mut at = 0;
    while at + word.len() <= flags.len() {
        let mut same = 0;
        while same < word.len() && flags[at + same] == word[same] {
            same += 1;
        }
        if same == word.len() {
            return true;
        }
        at += 1;
    }
    false
}

/// How long a connection waits for another's lock, in milliseconds.
const BUSY_TIMEOUT_MS: u32 = 60_000;

/// The settings that [`in_force`] reads back.
const REPORTED: &[&str] = &[
    "journal_mode",
    "synchronous",
    "page_size",
    "wal_autocheckpoint",
    "journal_size_limit",
    "locking_mode",
    "cache_size",
    "cache_spill",
    "mmap_size",
    "fullfsync",
    "checkpoint_fullfsync",
    "auto_vacuum",
    "secure_delete",
    "temp_store",
    "busy_timeout",
    "encoding",
    "page_count",
];

/// How to open a connection.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The journal mode with its variations.
    pub mode: Mode,
    /// `PRAGMA synchronous`, unless the mode sets it.
    pub synchronous: Synchronous,
    /// `PRAGMA wal_autocheckpoint`, in pages; 0 is never.
    pub autocheckpoint: u32,
}

impl Settings {
    /// The level of `PRAGMA synchronous` that is in force.
    pub fn synchronous(&self) -> Synchronous {
        self.mode.synchronous().unwrap_or(self.synchronous)
    }

    /// Opens the database, creates it if needed, and puts every setting into force.
    pub fn open(&self, path: &Path) -> Result<Connection, Error> {
        let connection = self.open_unverified(path)?;
        self.verify(&connection)?;
        Ok(connection)
    }

    /// The same for a time that is measured: the caller must call [`Settings::verify`] afterwards.
    pub fn open_unverified(&self, path: &Path) -> Result<Connection, Error> {
        let vfs = self.mode.journal().vfs;
        if vfs == Vfs::Onewrite {
            engine::register()?;
        }
        let connection = open_with(path, vfs)?;
        let is_other_engine = self.mode.journal().is_lsmvbt();
        if is_other_engine {
            // Its pragmas exist only after the switch.
            self.switch(&connection, path)?;
        }
        if let Some(size) = self.mode.page_size() {
            answer(&connection, &format!("PRAGMA page_size={size}"))?;
        }
        if let Some(locking) = self.mode.locking() {
            answer(&connection, &format!("PRAGMA locking_mode={locking}"))?;
        }
        for pragma in self.mode.pragmas() {
            let sql = format!("PRAGMA {}={}", pragma.name, pragma.value);
            if answer(&connection, &sql)?.is_none() {
                return Err(Error::Wrong(format!(
                    "mode {}: \"{sql}\" was not answered: this build does not know that pragma",
                    self.mode
                )));
            }
        }
        if !is_other_engine {
            self.switch(&connection, path)?;
        }
        let synchronous = self.synchronous().name();
        answer(&connection, &format!("PRAGMA synchronous={synchronous}"))?;
        answer(
            &connection,
            &format!("PRAGMA wal_autocheckpoint={}", self.autocheckpoint),
        )?;
        Ok(connection)
    }

    /// Compares the requested variations with the settings in force by `onewrite_status`. A mode
    /// may have accepted a pragma that does not apply to it.
    pub fn verify(&self, connection: &Connection) -> Result<(), Error> {
        if let Some(size) = self.mode.page_size() {
            let got = answer(connection, "PRAGMA page_size")?.unwrap_or(Value::Null);
            if got != size {
                return Err(Error::Wrong(format!(
                    "mode {}: asked for pages of {size} bytes, the database has {got}",
                    self.mode
                )));
            }
        }
        if self.mode.pragmas().is_empty() {
            return Ok(());
        }
        let status = answer(connection, "PRAGMA onewrite_status")?.unwrap_or(Value::Null);
        match first_difference(self.mode.pragmas(), &parsed(status)) {
            None => Ok(()),
            Some(difference) => Err(Error::Wrong(format!("mode {}: {difference}", self.mode))),
        }
    }

    fn switch(&self, connection: &Connection, path: &Path) -> Result<(), Error> {
        let asked = self.mode.journal().name;
        let got = answer(connection, &format!("PRAGMA journal_mode={asked}"))?;
        let got = match got {
            Some(Value::String(text)) => text,
            other => format!("{other:?}"),
        };
        if got == asked {
            return Ok(());
        }
        if self.mode.journal().is_lsmvbt() {
            return Err(Error::Mode(
                "this build has SQLite's own B-tree only: for lsmvbt, build with --features lsmvbt"
                    .to_owned(),
            ));
        }
        Err(Error::JournalMode {
            path: path.to_owned(),
            asked: asked.to_owned(),
            got,
        })
    }
}

/// The first pragma whose value differs from the status, as text. `auto` may have become anything.
fn first_difference(pragmas: &[Pragma], status: &Value) -> Option<String> {
    pragmas.iter().find_map(|pragma| {
        let asked = pragma.value.trim_matches('\'');
        let key = pragma.name.trim_start_matches("onewrite_");
        let key = key.trim_start_matches("lsmvbt_");
        let got = match status.get(key).unwrap_or(&Value::Null) {
            Value::Number(number) => Value::String(number.to_string()),
            got => got.clone(),
        };
        (asked != "auto" && got != asked)
            .then(|| format!("asked for {}={asked}, in force is {got}", pragma.name))
    })
}

/// Opens a database as any other program would: stock SQLite with default settings.
pub fn open_stock(path: &Path) -> Result<Connection, Error> {
    open_with(path, Vfs::Stock)
}

fn open_with(path: &Path, vfs: Vfs) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let doing = || format!("open {} with the VFS \"{}\"", path.display(), vfs.name());
    let connection = Connection::open_with_flags_and_vfs(path, flags, vfs.name())
        .map_err(Error::sqlite(doing()))?;
    answer(
        &connection,
        &format!("PRAGMA busy_timeout={BUSY_TIMEOUT_MS}"),
    )?;
    Ok(connection)
}

/// Every setting that affects durability or speed, as the connection states it; `onewrite_status`
/// as JSON.
pub fn in_force(connection: &Connection, vfs: Vfs) -> Result<Map<String, Value>, Error> {
    let mut settings = Map::new();
    for name in REPORTED {
        let value = answer(connection, &format!("PRAGMA {name}"))?.unwrap_or(Value::Null);
        settings.insert((*name).to_owned(), value);
    }
    settings.insert("vfs".to_owned(), vfs.name().into());
    let is_lsmvbt = settings
        .get("journal_mode")
        .is_some_and(|mode| mode == LSMVBT);
    if vfs == Vfs::Onewrite || is_lsmvbt {
        let status = answer(connection, "PRAGMA onewrite_status")?.unwrap_or(Value::Null);
        settings.insert("onewrite_status".to_owned(), parsed(status));
    }
    Ok(settings)
}

/// JSON in a text as JSON; anything else as it is.
fn parsed(value: Value) -> Value {
    match value.as_str().map(serde_json::from_str) {
        Some(Ok(json)) => json,
        _ => value,
    }
}

/// The part of the log that a checkpoint leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoint {
    /// Everything is copied into the database; the next writer reuses the log from its start.
    Full,
    /// As full, and the log is emptied.
    Truncate,
}

/// Copies the log into the database. In journal modes without a log nothing happens.
pub fn checkpoint(connection: &Connection, kind: Checkpoint) -> Result<(), Error> {
    let sql = match kind {
        Checkpoint::Full => "PRAGMA wal_checkpoint(FULL)",
        Checkpoint::Truncate => "PRAGMA wal_checkpoint(TRUNCATE)",
    };
    let (busy, in_log, copied): (i64, i64, i64) = connection
        .query_row(sql, (), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .map_err(Error::sqlite(sql))?;
    if busy != 0 || in_log != copied {
        return Err(Error::Wrong(format!(
            "{sql} was not complete: busy {busy}, {in_log} frames in the log, {copied} copied"
        )));
    }
    Ok(())
}

/// The first column of the first row that a pragma returns.
fn answer(connection: &Connection, sql: &str) -> Result<Option<Value>, Error> {
    let first = || -> rusqlite::Result<Option<Value>> {
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query(())?;
        let value = match rows.next()? {
            Some(row) => Some(json(row.get_ref(0)?)),
            None => None,
        };
        while rows.next()?.is_some() {}
        Ok(value)
    };
    first().map_err(Error::sqlite(sql))
}

fn json(value: rusqlite::types::ValueRef<'_>) -> Value {
    use rusqlite::types::ValueRef;
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => String::from_utf8_lossy(bytes).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(mode: &str) -> Settings {
        Settings {
            mode: Mode::parse(mode).unwrap(),
            synchronous: Synchronous::Full,
            autocheckpoint: 0,
        }
    }

    #[test]
    fn this_build_of_sqlite_is_told_that_there_is_fdatasync() {
        assert_eq!(SYNC_CALL, "fdatasync");
        assert!(!mentions_fdatasync(b"-DHAVE_FDATASYN") && !mentions_fdatasync(b""));
    }

    #[test]
    fn every_stock_mode_is_in_force_and_reported() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["delete", "truncate", "persist", "memory", "wal", "off"] {
            let path = dir.path().join(format!("{name}.db"));
            let connection = settings(name).open(&path).unwrap();
            let settings = in_force(&connection, Vfs::Stock).unwrap();
            assert_eq!(settings["journal_mode"], name);
            assert_eq!(settings["synchronous"], 2);
            assert_eq!(settings["wal_autocheckpoint"], 0);
            assert_eq!(settings["busy_timeout"], 60_000);
            assert_eq!(settings["page_size"], 4096);
        }
    }

    #[test]
    fn an_exclusive_wal_has_no_shared_memory() {
        let dir = tempfile::tempdir().unwrap();
        for (mode, has_memory) in [("wal", true), ("wal:locking_mode=exclusive", false)] {
            let path = dir.path().join(format!("{has_memory}.db"));
            let connection = settings(mode).open(&path).unwrap();
            connection.execute_batch("CREATE TABLE t (a)").unwrap();
            let memory = dir.path().join(format!("{has_memory}.db-shm"));
            assert_eq!(memory.exists(), has_memory, "{mode}");
        }
        assert!(Mode::parse("wal:locking_mode=often").is_err());
    }

    #[test]
    fn a_variation_that_is_not_in_force_is_found() {
        let mode = Mode::parse("waldio:layout=page8k,init=auto,group_synch=4/2").unwrap();
        let difference =
            |status: &str| first_difference(mode.pragmas(), &serde_json::from_str(status).unwrap());
        let right = r#"{"layout": "page8k", "init": "zero-fill", "group_synch": "4,2"}"#;
        assert_eq!(difference(right), None);
        assert_eq!(
            difference(&right.replace("page8k", "stock")).unwrap(),
            "asked for onewrite_layout=page8k, in force is \"stock\""
        );
        assert_eq!(
            difference(&right.replace("\"4,2\"", "null")).unwrap(),
            "asked for onewrite_group_synch=4,2, in force is null"
        );
        assert!(difference("null").is_some());
    }

    #[test]
    fn every_variation_of_waldio_is_in_force_when_it_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        for (number, variation) in [
            "layout=embedded",
            "layout=sector",
            "layout=page4k",
            "layout=page8k",
            "sync=full",
            "sync=persistent",
            "sync=normal",
            "sync=auto",
            "init=zero-fill",
            "init=unwritten",
            "init=auto",
            "group_synch=4/2",
        ]
        .into_iter()
        .enumerate()
        {
            let path = dir.path().join(format!("{number}.db"));
            let settings = settings(&format!("waldio:{variation}"));
            let connection = settings
                .open(&path)
                .unwrap_or_else(|e| panic!("{variation}: {e}"));
            let force = in_force(&connection, Vfs::Onewrite).unwrap();
            assert_eq!(force["onewrite_status"]["mode"], "waldio", "{variation}");
        }
    }

    #[test]
    fn the_mode_s_own_synchronous_wins() {
        let dir = tempfile::tempdir().unwrap();
        let connection = settings("wal:synchronous=normal")
            .open(&dir.path().join("a.db"))
            .unwrap();
        assert_eq!(in_force(&connection, Vfs::Stock).unwrap()["synchronous"], 1);
    }

    #[test]
    fn a_page_size_is_that_of_the_new_database() {
        for name in ["delete", "wal", "direct", "waldio", "onewrite"] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a.db");
            let size = |size: u32| settings(&format!("{name}:page_size={size}")).open(&path);
            let connection = size(16_384).unwrap();
            connection.execute_batch("CREATE TABLE t (a)").unwrap();
            let settings = in_force(&connection, Vfs::Stock).unwrap();
            assert_eq!(settings["page_size"], 16_384, "{name}");
            let error = size(4096).unwrap_err().to_string();
            assert!(error.contains("the database has 16384"), "{name}: {error}");
        }
    }

    #[test]
    fn a_journal_mode_that_is_refused_is_an_error() {
        let error = settings("wal")
            .open(Path::new(":memory:"))
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            ":memory:: asked for journal_mode=wal, SQLite answered \"memory\""
        );
    }

    #[test]
    fn a_checkpoint_empties_the_log_and_is_harmless_without_one() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["wal", "delete"] {
            let path = dir.path().join(format!("{name}.db"));
            let connection = settings(name).open(&path).unwrap();
            connection
                .execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)")
                .unwrap();
            checkpoint(&connection, Checkpoint::Full).unwrap();
            checkpoint(&connection, Checkpoint::Truncate).unwrap();
            let log = dir.path().join(format!("{name}.db-wal"));
            assert_eq!(log.metadata().map(|m| m.len()).unwrap_or(0), 0);
        }
    }

    #[test]
    fn a_checkpoint_that_a_reader_holds_up_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let connection = settings("wal").open(&path).unwrap();
        connection.execute_batch("CREATE TABLE t (a)").unwrap();
        let reader = open_stock(&path).unwrap();
        reader.execute_batch("BEGIN; SELECT * FROM t").unwrap();
        connection
            .execute_batch("INSERT INTO t VALUES (1); PRAGMA busy_timeout=1")
            .unwrap();
        let error = checkpoint(&connection, Checkpoint::Full)
            .unwrap_err()
            .to_string();
        assert!(error.contains("was not complete"), "{error}");
    }
}
