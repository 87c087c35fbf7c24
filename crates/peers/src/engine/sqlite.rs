//! SQLite, in its own journal modes and in ours, opened as in `onewrite compare`.

use std::path::{Path, PathBuf};

use onewrite_workload::connection::{self, Settings};
use onewrite_workload::mode::{Mode, Synchronous};
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};

use super::{Body, Each, Engine, Result, Session, Table, Transaction};

/// SQLite's own default: pages of log after which a commit checkpoints.
const AUTOCHECKPOINT: u32 = 1000;

/// A database file.
pub struct Store {
    path: PathBuf,
    settings: Settings,
    /// Open as long as the store. Otherwise the last connection to close would remove the log.
    _holder: std::sync::Mutex<Connection>,
}

impl Store {
    /// Opens `dir/test.db` in this mode.
    pub fn open(dir: &Path, mode: &str) -> Result<Self> {
        let settings = Settings {
            mode: Mode::parse(mode)?,
            synchronous: Synchronous::Full,
            autocheckpoint: AUTOCHECKPOINT,
        };
        let path = dir.join("test.db");
        let holder = settings.open(&path)?;
        for table in Table::ALL {
            holder.execute_batch(&create(table))?;
        }
        Ok(Self {
            path,
            settings,
            _holder: std::sync::Mutex::new(holder),
        })
    }
}

/// The statement that makes a table.
pub fn create(table: Table) -> String {
    let name = table.name();
    format!("CREATE TABLE IF NOT EXISTS {name}(k INTEGER PRIMARY KEY, v BLOB NOT NULL)")
}

/// The statements of a table.
#[derive(Clone, Copy)]
pub struct Statements {
    /// Gives a key a value.
    pub put: &'static str,
    /// Reads the value of a key.
    pub get: &'static str,
    /// Reads rows from a key on.
    pub scan: &'static str,
}

/// The statements of one table.
pub fn statements(table: Table) -> Statements {
    const OF: [Statements; 3] = [
        Statements {
            put: "INSERT OR REPLACE INTO row(k, v) VALUES(?1, ?2)",
            get: "SELECT v FROM row WHERE k = ?1",
            scan: "SELECT k, v FROM row WHERE k >= ?1 ORDER BY k LIMIT ?2",
        },
        Statements {
            put: "INSERT OR REPLACE INTO chat(k, v) VALUES(?1, ?2)",
            get: "SELECT v FROM chat WHERE k = ?1",
            scan: "SELECT k, v FROM chat WHERE k >= ?1 ORDER BY k LIMIT ?2",
        },
        Statements {
            put: "INSERT OR REPLACE INTO time(k, v) VALUES(?1, ?2)",
            get: "SELECT v FROM time WHERE k = ?1",
            scan: "SELECT k, v FROM time WHERE k >= ?1 ORDER BY k LIMIT ?2",
        },
    ];
    OF[table as usize]
}

impl Engine for Store {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Seat(self.settings.open(&self.path)?)))
    }

    fn check(&self) -> Result<String> {
        let connection = connection::open_stock(&self.path);
        // Only our VFS can open a guarded database.
        let connection = match self.settings.mode.journal().is_log() {
            true => self.settings.open(&self.path),
            false => connection,
        }?;
        Ok(connection.query_row("PRAGMA integrity_check", (), |row| row.get(0))?)
    }
}

/// A connection.
struct Seat(Connection);

struct Open<'a>(&'a Connection);

impl Transaction for Open<'_> {
    fn get(&mut self, table: Table, key: u64) -> Result<Option<Vec<u8>>> {
        get(self.0, table, key)
    }

    fn put(&mut self, table: Table, key: u64, value: &[u8]) -> Result<()> {
        put(self.0, table, key, value)
    }
}

fn get(connection: &Connection, table: Table, key: u64) -> Result<Option<Vec<u8>>> {
    let mut statement = connection.prepare_cached(statements(table).get)?;
    let value = statement.query_row([key.cast_signed()], |row| row.get(0));
    Ok(value.optional()?)
}

fn put(connection: &Connection, table: Table, key: u64, value: &[u8]) -> Result<()> {
    let mut statement = connection.prepare_cached(statements(table).put)?;
    statement.execute(params![key.cast_signed(), value])?;
    Ok(())
}

/// Whether a statement only lost the race for a lock.
fn busy(error: &super::Error) -> bool {
    let error = error.downcast_ref::<rusqlite::Error>();
    error.and_then(rusqlite::Error::sqlite_error_code) == Some(ErrorCode::DatabaseBusy)
}

impl Session for Seat {
    fn write(&mut self, body: Body<'_>) -> Result<()> {
        let connection = &self.0;
        let run = |sql| -> Result<()> {
            connection.prepare_cached(sql)?.execute(())?;
            Ok(())
        };
        loop {
            let done = run("BEGIN IMMEDIATE")
                .and_then(|()| body(&mut Open(connection)))
                .and_then(|()| run("COMMIT"));
            match done {
                Ok(()) => return Ok(()),
                Err(error) => {
                    if !connection.is_autocommit() {
                        run("ROLLBACK")?;
                    }
                    if !busy(&error) {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn put(&mut self, table: Table, key: u64, value: &[u8]) -> Result<()> {
        loop {
            match put(&self.0, table, key, value) {
                Err(error) if busy(&error) => {}
                other => return other,
            }
        }
    }

    fn get(&mut self, table: Table, key: u64) -> Result<Option<Vec<u8>>> {
        get(&self.0, table, key)
    }

    fn scan(&mut self, table: Table, first: u64, limit: usize, each: Each<'_>) -> Result<()> {
        let mut statement = self.0.prepare_cached(statements(table).scan)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = statement.query([first.cast_signed(), limit])?;
        while let Some(row) = rows.next()? {
            let key: i64 = row.get(0)?;
            each(key.cast_unsigned(), row.get_ref(1)?.as_blob()?)?;
        }
        Ok(())
    }
}
