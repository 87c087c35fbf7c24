//! Mobibench's workload: one table `(id INTEGER PRIMARY KEY, value TEXT, created INTEGER)`. Each
//! transaction inserts, updates or deletes one row.
//!
//! On stock WAL a transaction is one frame. With the pages by which the table grows it is 1.05 on
//! average over the first 300 inserts of 100 bytes (a test has it).

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;

use rusqlite::Connection;
use rusqlite::types::Value;

use super::rows::Found;
use super::{CREATED, Op, Plan, Statement, Transaction, Work, Workload, created, populate_with};
use crate::Error;
use crate::databases::Databases;
use crate::draws::text;

const CREATE_TABLE: &str =
    "CREATE TABLE mobibench (id INTEGER PRIMARY KEY, value TEXT, created INTEGER)";

const INSERT: &str = "INSERT INTO mobibench (value, created) VALUES (?1, ?2)";
const UPDATE: &str = "UPDATE mobibench SET value = ?1 WHERE id = ?2";
const DELETE: &str = "DELETE FROM mobibench WHERE id = ?1";

/// Bytes of a row, as the schema sees it, other than `value`: `id` and `created`, eight bytes each.
const BYTES_BESIDES_VALUE: usize = 16;

/// The change to the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Insert,
    Update,
    Delete,
}

/// The version of a row's value.
#[derive(Clone, Copy)]
enum Version {
    Inserted = 0,
    Updated = 1,
}

/// One of Mobibench's three ops.
pub(super) struct Mobibench {
    change: Change,
    op: Op,
    count: u32,
    value_bytes: usize,
    seed: u64,
    workers: u32,
}

impl Mobibench {
    pub(super) fn of(plan: &Plan, change: Change) -> Self {
        Self {
            change,
            op: plan.op,
            count: plan.count,
            value_bytes: plan.record_size.saturating_sub(BYTES_BESIDES_VALUE),
            seed: plan.seed,
            workers: plan.workers,
        }
    }

    /// The row's id is its number plus one, except that concurrent inserts get ids in the order of
    /// commits.
    fn transaction_of(&self, change: Change, row: u32) -> Transaction {
        let value = |version| Value::Text(self.value(row, version));
        let id = Value::Integer(i64::from(row) + 1);
        let (sql, values) = match change {
            Change::Insert => (
                INSERT,
                vec![value(Version::Inserted), Value::Integer(created(row))],
            ),
            Change::Update => (UPDATE, vec![value(Version::Updated), id]),
            Change::Delete => (DELETE, vec![id]),
        };
        Transaction::new(self.op, row, vec![Statement { sql, values }])
    }

    fn value(&self, row: u32, version: Version) -> String {
        text(
            self.seed ^ (u64::from(row) << 2 | version as u64),
            self.value_bytes,
        )
    }

    /// The difference of the row at this position, if any.
    fn difference(
        &self,
        position: u64,
        id: i64,
        value: String,
        created_at: i64,
        seen: &mut HashSet<u32>,
    ) -> Option<String> {
        if i64::try_from(position + 1) != Ok(id) {
            return Some(format!(
                "row {position} has id {id}, expected {}",
                position + 1
            ));
        }
        let row = created_at
            .checked_sub(CREATED)
            .and_then(|row| u32::try_from(row).ok());
        let Some(row) = row.filter(|row| *row < self.count && seen.insert(*row)) else {
            return Some(format!(
                "id {id}: created {created_at} was never stored, or twice"
            ));
        };
        if (self.change != Change::Insert || self.workers == 1) && i64::from(row) + 1 != id {
            return Some(format!("id {id} holds what belongs to id {}", row + 1));
        }
        let version = if self.change == Change::Update {
            Version::Updated
        } else {
            Version::Inserted
        };
        (value != self.value(row, version))
            .then(|| format!("id {id} holds another value than was stored last"))
    }
}

impl Mobibench {
    /// The transaction with this number.
    pub(super) fn transaction(&self, number: u32) -> Transaction {
        self.transaction_of(self.change, number)
    }
}

impl Workload for Mobibench {
    fn populate(&self, databases: &mut Databases, stop: &AtomicBool) -> Result<(), Error> {
        let connection = databases.first_mut();
        connection
            .execute_batch(CREATE_TABLE)
            .map_err(Error::sqlite("create table"))?;
        if self.change == Change::Insert {
            return Ok(());
        }
        populate_with(connection, stop, 0..self.count, |connection, row| {
            self.transaction_of(Change::Insert, row).apply(connection)
        })
    }

    fn statements(&self) -> &'static [&'static str] {
        match self.change {
            Change::Insert => &[INSERT],
            Change::Update => &[UPDATE],
            Change::Delete => &[DELETE],
        }
    }

    fn work(&self, number: u32) -> Work {
        Work::Given(self.transaction(number))
    }

    fn compare(&self, databases: &Databases) -> Result<Found, Error> {
        self.compare_in(databases.first())
            .map_err(Error::sqlite("read the rows"))
    }
}

impl Mobibench {
    fn compare_in(&self, connection: &Connection) -> rusqlite::Result<Found> {
        let mut statement =
            connection.prepare("SELECT id, value, created FROM mobibench ORDER BY id")?;
        let mut cursor = statement.query(())?;
        let mut found = Found::default();
        let mut seen = HashSet::new();
        while let Some(row) = cursor.next()? {
            let (id, value, created) = (row.get(0)?, row.get(1)?, row.get(2)?);
            if found.difference.is_none() {
                found.difference = self.difference(found.rows, id, value, created, &mut seen);
            }
            found.rows += 1;
        }
        let expected = match self.change {
            Change::Delete => 0,
            Change::Insert | Change::Update => u64::from(self.count),
        };
        if found.rows != expected {
            found.difference = Some(format!("{} rows, expected {expected}", found.rows));
        }
        Ok(found)
    }
}
