//! Turso's engine: SQLite's file format and SQL, rewritten in Rust, with a write-ahead log and one
//! writer at a time. With MVCC it has a log of rows instead. Transactions then run at the same time,
//! and the later one of two that change the same row is aborted.

use std::path::Path;
use std::time::Duration;

use pollster::block_on;
use turso::{Builder, Connection, Database, Error, Value};

use super::sqlite::{create, statements};
use super::{Body, Each, Engine, Result, Session, Table, Transaction};

/// The same as for connections to SQLite.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

/// How commits are logged, and writers kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    /// SQLite's write-ahead log.
    Wal,
    /// Turso's log of rows.
    Mvcc,
}

/// A database file.
pub struct Store {
    database: Database,
    journal: Journal,
}

impl Store {
    /// Opens `dir/test.db`.
    pub fn open(dir: &Path, journal: Journal) -> Result<Self> {
        let path = dir.join("test.db");
        let path = path.to_str().ok_or("a path that is no text")?;
        let database = block_on(Builder::new_local(path).build())?;
        let store = Self { database, journal };
        let connection = store.connect()?;
        for table in Table::ALL {
            block_on(connection.execute(create(table), ()))?;
        }
        Ok(store)
    }

    fn connect(&self) -> Result<Connection> {
        let connection = self.database.connect()?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        if self.journal == Journal::Mvcc {
            block_on(connection.pragma_update("journal_mode", "'mvcc'"))?;
        }
        block_on(connection.pragma_update("synchronous", "full"))?;
        Ok(connection)
    }
}

impl Engine for Store {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Seat {
            connection: self.connect()?,
            begin: match self.journal {
                Journal::Wal => "BEGIN IMMEDIATE",
                Journal::Mvcc => "BEGIN CONCURRENT",
            },
        }))
    }

    fn check(&self) -> Result<String> {
        let mut said = String::new();
        let connection = self.connect()?;
        let rows = connection.pragma_query("integrity_check", |row| {
            let value = row.get_value(0).map(|value| value.as_text().cloned());
            said.push_str(&value.ok().flatten().unwrap_or_default());
            Ok(())
        });
        block_on(rows)?;
        Ok(said)
    }
}

/// A connection.
struct Seat {
    connection: Connection,
    begin: &'static str,
}

async fn put(connection: &Connection, table: Table, key: u64, value: &[u8]) -> Result<()> {
    let mut statement = connection.prepare_cached(statements(table).put).await?;
    let values = [
        Value::Integer(key.cast_signed()),
        Value::Blob(value.to_vec()),
    ];
    statement.execute(values).await?;
    Ok(())
}

async fn get(connection: &Connection, table: Table, key: u64) -> Result<Option<Vec<u8>>> {
    let mut statement = connection.prepare_cached(statements(table).get).await?;
    let mut rows = statement.query([Value::Integer(key.cast_signed())]).await?;
    let row = rows.next().await?;
    // Runs to the end: an unfinished statement stays a reader.
    if row.is_some() {
        rows.next().await?;
    }
    row.map(|row| blob(row.get_value(0)?)).transpose()
}

fn blob(value: Value) -> Result<Vec<u8>> {
    match value {
        Value::Blob(bytes) => Ok(bytes),
        other => Err(format!("a BLOB came back as {other:?}").into()),
    }
}

struct Open<'a>(&'a Connection);

impl Transaction for Open<'_> {
    fn get(&mut self, table: Table, key: u64) -> Result<Option<Vec<u8>>> {
        block_on(get(self.0, table, key))
    }

    fn put(&mut self, table: Table, key: u64, value: &[u8]) -> Result<()> {
        block_on(put(self.0, table, key, value))
    }
}

/// Whether a statement only lost the race for a lock or a row.
fn busy(error: &super::Error) -> bool {
    match error.downcast_ref::<Error>() {
        Some(Error::Busy(_) | Error::BusySnapshot(_)) => true,
        // It has no kind of its own.
        Some(Error::Error(message)) => message.contains("conflict"),
        _ => false,
    }
}

impl Session for Seat {
    fn write(&mut self, body: Body<'_>) -> Result<()> {
        let connection = &self.connection;
        let run = |sql: &'static str| -> Result<()> {
            block_on(async {
                let mut statement = connection.prepare_cached(sql).await?;
                statement.execute(()).await?;
                Ok(())
            })
        };
        loop {
            let done = run(self.begin)
                .and_then(|()| body(&mut Open(connection)))
                .and_then(|()| run("COMMIT"));
            match done {
                Ok(()) => return Ok(()),
                Err(error) => {
                    if !connection.is_autocommit()? {
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
            match block_on(put(&self.connection, table, key, value)) {
                Err(error) if busy(&error) => {}
                other => return other,
            }
        }
    }

    fn get(&mut self, table: Table, key: u64) -> Result<Option<Vec<u8>>> {
        block_on(get(&self.connection, table, key))
    }

    fn scan(&mut self, table: Table, first: u64, limit: usize, each: Each<'_>) -> Result<()> {
        block_on(async {
            let mut statement = self
                .connection
                .prepare_cached(statements(table).scan)
                .await?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let values = [Value::Integer(first.cast_signed()), Value::Integer(limit)];
            let mut rows = statement.query(values).await?;
            while let Some(row) = rows.next().await? {
                let key = *row.get_value(0)?.as_integer().ok_or("a key is no number")?;
                each(key.cast_unsigned(), &blob(row.get_value(1)?)?)?;
            }
            Ok(())
        })
    }
}
