//! The SQLite that is linked into this program, through its own VFS or through ours.

use super::{BlobRange, Row, Session, SqlError, SqlErrorKind, Value};
use crate::failure::Failure;
use rusqlite::{Connection, OpenFlags, params_from_iter};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// A connection of the linked SQLite.
pub struct Linked {
    connection: Connection,
    is_ours: bool,
}

/// Registers our VFS, once a process.
fn register_engine() -> Result<(), Failure> {
    static REGISTERED: OnceLock<Result<(), String>> = OnceLock::new();
    REGISTERED
        .get_or_init(|| onewrite::register().map_err(|error| error.to_string()))
        .clone()
        .map_err(|error| Failure::Harness(format!("cannot register the VFS onewrite: {error}")))
}

impl Linked {
    /// Wraps a connection that was opened elsewhere, with the VFS of this name.
    pub fn of(connection: Connection, vfs: &str) -> Self {
        connection.set_prepared_statement_cache_capacity(64);
        Self {
            connection,
            is_ours: vfs == onewrite::VFS_NAME,
        }
    }

    /// Opens `path` through the VFS `onewrite`.
    ///
    /// # Errors
    /// Errors of SQLite, or the VFS cannot be registered.
    pub fn open_ours(
        path: &Path,
        timeout: Duration,
    ) -> Result<Self, crate::database::ConnectError> {
        register_engine()?;
        Ok(Self::open(path, onewrite::VFS_NAME, timeout)?)
    }

    /// Opens `path` through SQLite's own VFS.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub fn open_stock(path: &Path, timeout: Duration) -> Result<Self, SqlError> {
        Self::open(path, "unix", timeout)
    }

    fn open(path: &Path, vfs: &str, timeout: Duration) -> Result<Self, SqlError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags_and_vfs(path, flags, vfs)
            .and_then(|connection| connection.busy_timeout(timeout).map(|()| connection))
            .map_err(|error| sql_error(&error, "sqlite3_open_v2"))?;
        Ok(Self::of(connection, vfs))
    }

    /// Adds our VFS's last error message, if the connection can return it.
    fn explained(&self, mut error: SqlError) -> SqlError {
        if self.is_ours && error.kind == SqlErrorKind::Other {
            let status = "PRAGMA onewrite_status";
            let row = self
                .connection
                .query_row(status, [], |row| row.get::<_, String>(0));
            let why = row.ok().and_then(|json| {
                let status: serde_json::Value = serde_json::from_str(&json).ok()?;
                Some(status["error"].as_str()?.to_owned())
            });
            error.message.extend(why.map(|why| format!(" [{why}]")));
        }
        error
    }

    fn collect(
        statement: &mut rusqlite::Statement<'_>,
        parameters: &[Value],
    ) -> rusqlite::Result<Vec<Row>> {
        let columns = statement.column_count();
        let mut found = statement.query(params_from_iter(parameters))?;
        let mut rows = Vec::new();
        while let Some(row) = found.next()? {
            let values = (0..columns).map(|column| row.get(column));
            rows.push(values.collect::<rusqlite::Result<Row>>()?);
        }
        Ok(rows)
    }
}

impl Session for Linked {
    fn rows(&mut self, sql: &str, parameters: &[Value]) -> Result<Vec<Row>, SqlError> {
        // The model's repeated statements are prepared once, as in applications, so that SQLite's
        // re-preparing is tested, too. Pragmas act when they are prepared.
        let result = if sql.starts_with("PRAGMA") || sql == "VACUUM" {
            self.connection
                .prepare(sql)
                .and_then(|mut statement| Self::collect(&mut statement, parameters))
        } else {
            self.connection
                .prepare_cached(sql)
                .and_then(|mut statement| Self::collect(&mut statement, parameters))
        };
        result.map_err(|error| self.explained(sql_error(&error, sql)))
    }

    fn overwrite_blob(&mut self, range: BlobRange<'_>, bytes: &[u8]) -> Result<(), SqlError> {
        let BlobRange {
            table,
            column,
            rowid,
            offset,
        } = range;
        self.connection
            .blob_open("main", table, column, rowid, false)
            .and_then(|mut blob| {
                blob.write_all_at(bytes, offset)?;
                blob.close()
            })
            .map_err(|error| sql_error(&error, "sqlite3_blob_open"))
    }

    fn die(&mut self) {
        crate::processes::die();
    }

    fn process_id(&self) -> u32 {
        std::process::id()
    }

    fn close(self: Box<Self>) -> Result<(), SqlError> {
        self.connection
            .close()
            .map_err(|(_, error)| sql_error(&error, "sqlite3_close"))
    }
}

fn sql_error(error: &rusqlite::Error, sql: &str) -> SqlError {
    let code = match error {
        rusqlite::Error::SqliteFailure(failure, _) => failure.extended_code,
        rusqlite::Error::SqlInputError { error, .. } => error.extended_code,
        _ => 0,
    };
    SqlError::of_code(code, error.to_string(), sql)
}
