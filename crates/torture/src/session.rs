//! One connection to any SQLite: statements in, rows or an error out.
//!
//! The model, the writers and the checks use only this trait. So the linked SQLite (stock or ours)
//! and the system's shell run the very same transactions.

pub mod linked;
pub mod shell;

pub use rusqlite::types::Value;
use std::fmt;

/// One row of a result.
pub type Row = Vec<Value>;

/// The kinds of errors of SQLite that a test distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqlErrorKind {
    /// Another connection holds a lock: try again.
    Busy,
    /// "file is not a database".
    NotADatabase,
    /// The process at the other end of the pipe is dead.
    Gone,
    /// Any other error.
    Other,
}

/// An error of SQLite, with the statement.
#[derive(Debug, Clone)]
pub struct SqlError {
    /// Its meaning for a test.
    pub kind: SqlErrorKind,
    /// SQLite's extended result code, 0 if it is unknown.
    pub code: i32,
    /// SQLite's message.
    pub message: String,
    /// The statement.
    pub sql: String,
}

impl SqlError {
    /// From SQLite's result code.
    pub fn of_code(code: i32, message: impl Into<String>, sql: &str) -> Self {
        let kind = match code & 0xFF {
            // SQLITE_PROTOCOL: it lost the race for a WAL read lock too often, which is equally
            // transient.
            5 | 6 | 15 => SqlErrorKind::Busy,
            26 => SqlErrorKind::NotADatabase,
            _ => SqlErrorKind::Other,
        };
        Self {
            kind,
            code,
            message: message.into(),
            sql: sql.to_owned(),
        }
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({}) from `{}`", self.message, self.code, self.sql)
    }
}

/// One connection.
pub trait Session {
    /// Runs one statement and collects its rows.
    ///
    /// # Errors
    /// Errors of SQLite.
    fn rows(&mut self, sql: &str, parameters: &[Value]) -> Result<Vec<Row>, SqlError>;

    /// Runs one statement for its effect.
    ///
    /// # Errors
    /// Errors of SQLite.
    fn run(&mut self, sql: &str, parameters: &[Value]) -> Result<(), SqlError> {
        self.rows(sql, parameters).map(drop)
    }

    /// Overwrites part of a BLOB in place, through incremental I/O if the session has it.
    ///
    /// # Errors
    /// Errors of SQLite.
    fn overwrite_blob(&mut self, range: BlobRange<'_>, bytes: &[u8]) -> Result<(), SqlError>;

    /// Dies as by kill -9, with its work half done. With the linked SQLite the process itself dies,
    /// so this does not return.
    fn die(&mut self);

    /// The process in which this SQLite runs.
    fn process_id(&self) -> u32;

    /// Closes the connection.
    ///
    /// # Errors
    /// Errors of SQLite.
    fn close(self: Box<Self>) -> Result<(), SqlError>;
}

/// The part of a BLOB, and where the BLOB is in the database.
#[derive(Debug, Clone, Copy)]
pub struct BlobRange<'a> {
    /// The table.
    pub table: &'a str,
    /// The column.
    pub column: &'a str,
    /// The row.
    pub rowid: i64,
    /// Bytes from the BLOB's start.
    pub offset: usize,
}

/// The integer in `row[column]`; 0 if there is none (a `sum()` over no rows is NULL).
pub fn integer(row: &Row, column: usize) -> i64 {
    match row.get(column) {
        Some(Value::Integer(number)) => *number,
        _ => 0,
    }
}
