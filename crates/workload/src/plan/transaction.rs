//! A transaction as data: its statements and their values.

use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, TransactionBehavior, params_from_iter};

use super::Op;
use crate::Error;
use crate::databases::Databases;

/// A statement that changes exactly one row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Statement {
    /// The text, which SQLite prepares once for each connection.
    pub(crate) sql: &'static str,
    /// The values of its parameters, in order.
    pub(crate) values: Vec<Value>,
}

/// A statement that only reads; all of its rows are read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Read {
    /// The number of the plan's file, from 0.
    pub(crate) database: usize,
    /// The text, which SQLite prepares once for each connection.
    pub(crate) sql: &'static str,
    /// The values of its parameters, in order.
    pub(crate) values: Vec<Value>,
}

/// The statements of one commit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Transaction {
    /// Its op, for errors.
    pub(crate) op: Op,
    /// Its number in the plan, from 0.
    pub(crate) number: u32,
    /// The reads before it, each separate.
    pub(crate) reads: Vec<Read>,
    /// The number of the plan's file that it changes, from 0.
    pub(crate) database: usize,
    /// In order; empty in a transaction that only reads.
    pub(crate) statements: Vec<Statement>,
}

impl Transaction {
    /// A transaction in the plan's first file, without reads before it.
    pub(crate) fn new(op: Op, number: u32, statements: Vec<Statement>) -> Self {
        Self {
            op,
            number,
            reads: Vec::new(),
            database: 0,
            statements,
        }
    }

    /// Executes and commits it: a single statement without `BEGIN`, as Mobibench does, several
    /// between `BEGIN IMMEDIATE` and `COMMIT`. A writer among others takes the lock at the
    /// beginning, where the busy handler can wait for it. A write on an earlier snapshot would
    /// fail.
    pub(crate) fn commit(&self, databases: &Databases) -> Result<(), Error> {
        for read in &self.reads {
            self.read(databases.number(read.database), read)?;
        }
        let connection = databases.number(self.database);
        if self.statements.is_empty() {
            return Ok(());
        }
        if let [statement] = &self.statements[..] {
            return self.execute(connection, statement);
        }
        let transaction =
            rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate)
                .map_err(|source| self.failed("BEGIN IMMEDIATE", source))?;
        self.apply(&transaction)?;
        transaction
            .commit()
            .map_err(|source| self.failed("COMMIT", source))
    }

    /// Executes the statements in the caller's transaction.
    pub(crate) fn apply(&self, connection: &Connection) -> Result<(), Error> {
        self.statements
            .iter()
            .try_for_each(|statement| self.execute(connection, statement))
    }

    fn execute(&self, connection: &Connection, statement: &Statement) -> Result<(), Error> {
        let rows = connection
            .prepare_cached(statement.sql)
            .and_then(|mut prepared| prepared.execute(params_from_iter(&statement.values)))
            .map_err(|source| self.failed(statement.sql, source))?;
        if rows == 1 {
            return Ok(());
        }
        Err(Error::Wrong(format!(
            "{} {}: \"{}\" changed {rows} rows, not one",
            self.op.name(),
            self.number,
            statement.sql
        )))
    }

    fn read(&self, connection: &Connection, read: &Read) -> Result<(), Error> {
        let all = || -> rusqlite::Result<()> {
            let mut prepared = connection.prepare_cached(read.sql)?;
            let mut rows = prepared.query(params_from_iter(&read.values))?;
            while rows.next()?.is_some() {}
            Ok(())
        };
        all().map_err(|source| self.failed(read.sql, source))
    }

    fn failed(&self, sql: &str, source: rusqlite::Error) -> Error {
        let hint = match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy) => " (no lock within the busy timeout)",
            _ => "",
        };
        Error::Sqlite {
            doing: format!("{} {}, \"{sql}\"{hint}", self.op.name(), self.number),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transaction(values: &[i64]) -> Transaction {
        let statement = |value: &i64| Statement {
            sql: "INSERT INTO t VALUES (?1)",
            values: vec![Value::Integer(*value)],
        };
        Transaction::new(Op::App, 7, values.iter().map(statement).collect())
    }

    fn rows(connection: &Connection) -> i64 {
        connection
            .query_row("SELECT count(*) FROM t", (), |row| row.get(0))
            .unwrap()
    }

    #[test]
    fn several_statements_are_committed_together_or_not_at_all() {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch("CREATE TABLE t (a INTEGER PRIMARY KEY)")
            .unwrap();
        let databases = Databases::from(connection);
        let connection = databases.first();
        transaction(&[1, 2]).commit(&databases).unwrap();
        assert_eq!(rows(connection), 2);
        let error = transaction(&[3, 2]).commit(&databases).unwrap_err();
        let expected = "app 7, \"INSERT INTO t VALUES (?1)\": UNIQUE constraint failed";
        assert!(error.to_string().starts_with(expected), "{error}");
        assert_eq!(rows(connection), 2);
        assert!(connection.is_autocommit());
    }
}
