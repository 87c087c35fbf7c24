//! `indexed`: each transaction inserts one row into a table with two secondary indexes.
//!
//! An address book's table: `(id INTEGER PRIMARY KEY, name TEXT, phone INTEGER, body TEXT, created
//! INTEGER)` with an index on `name` and one on `phone`, empty at first. A name has some 10
//! characters, from 1,024 pairs. A phone number is drawn from nine thousand million. `body` has the
//! record size in letters of six random bits each, as Mobibench's values have. None of them can be
//! guessed, and they compress little. New entries go anywhere in both indexes.
//!
//! On stock WAL a transaction is 3 frames: a leaf of the table and one of each index. With the
//! pages by which they grow, it is 3.07 on average over the first 300 rows of 100 bytes (seed 1; a
//! test has it).

use std::sync::atomic::AtomicBool;

use rusqlite::Connection;
use rusqlite::types::Value;

use super::rows::{self, Found};
use super::{Op, Plan, Statement, Transaction, Work, Workload, created, words};
use crate::Error;
use crate::databases::Databases;
use crate::draws::Draws;

const SCHEMA: &str = "
    CREATE TABLE contact (
        id INTEGER PRIMARY KEY, name TEXT, phone INTEGER, body TEXT, created INTEGER);
    CREATE INDEX contact_by_name ON contact (name);
    CREATE INDEX contact_by_phone ON contact (phone);";

const INSERT: &str = "INSERT INTO contact (name, phone, body, created) VALUES (?1, ?2, ?3, ?4)";

/// Phone numbers have ten digits, the first of which is not 0.
const LOWEST_PHONE: i64 = 1_000_000_000;

/// The workload.
pub(super) struct Indexed {
    count: u32,
    body_bytes: usize,
    seed: u64,
    workers: u32,
}

impl Indexed {
    pub(super) fn of(plan: &Plan) -> Self {
        Self {
            count: plan.count,
            body_bytes: plan.record_size,
            seed: plan.seed,
            workers: plan.workers,
        }
    }

    /// The values of a row in addition to its id: `name`, `phone`, `body` and `created`.
    fn values(&self, number: u32) -> Vec<Value> {
        let mut draws = Draws::of(self.seed, number);
        let (thousands, rest) = (draws.below(9_000_000), draws.below(1_000));
        vec![
            Value::Text(words::name(&mut draws)),
            Value::Integer(LOWEST_PHONE + i64::from(thousands) * 1_000 + i64::from(rest)),
            Value::Text(draws.letters(self.body_bytes)),
            Value::Integer(created(number)),
        ]
    }
}

impl Indexed {
    /// The transaction with this number.
    pub(super) fn transaction(&self, number: u32) -> Transaction {
        let (sql, values) = (INSERT, self.values(number));
        Transaction::new(Op::Indexed, number, vec![Statement { sql, values }])
    }
}

impl Workload for Indexed {
    fn populate(&self, databases: &mut Databases, _stop: &AtomicBool) -> Result<(), Error> {
        databases
            .first()
            .execute_batch(SCHEMA)
            .map_err(Error::sqlite("create table"))
    }

    fn statements(&self) -> &'static [&'static str] {
        &[INSERT]
    }

    fn work(&self, number: u32) -> Work {
        Work::Given(self.transaction(number))
    }

    /// Ids follow the order of commits, which only a single worker determines; `created` identifies
    /// the row.
    fn compare(&self, databases: &Databases) -> Result<Found, Error> {
        self.compare_in(databases.first())
            .map_err(Error::sqlite("read the rows"))
    }
}

impl Indexed {
    fn compare_in(&self, connection: &Connection) -> rusqlite::Result<Found> {
        let ids = (1..=i64::from(self.count)).map(|id| vec![Value::Integer(id)]);
        let ids = rows::compare(
            connection,
            "contact",
            "SELECT id FROM contact ORDER BY id",
            ids,
        )?;
        let sql = if self.workers == 1 {
            "SELECT name, phone, body, created FROM contact ORDER BY id"
        } else {
            "SELECT name, phone, body, created FROM contact ORDER BY created"
        };
        let expected = (0..self.count).map(|number| self.values(number));
        let found = rows::compare(connection, "contact", sql, expected)?;
        Ok(Found {
            difference: ids.difference.or(found.difference),
            ..found
        })
    }
}
