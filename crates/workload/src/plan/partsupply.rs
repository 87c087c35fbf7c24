//! `partsupply`: X-FTL's synthetic workload (SIGMOD '13), random updates of TPC-H's table partsupp.
//!
//! It has 60,000 rows of 220 bytes each, as the schema sees them. A row has two keys and a quantity
//! of 8 bytes each, a cost of 8, and a comment of 188 that looks random. A transaction changes the
//! quantity of as many rows as the plan's `updates` says, 1 to 20 in the paper. Each row is
//! anywhere in the table, so that nearly every one is on a different page.
//!
//! Each transaction adds to quantities, so the expected table does not depend on the order of
//! commits.
//!
//! On stock WAL a transaction of 5 rows is 5.00 frames on average over 300 transactions (seed 1; a
//! test has it).

use std::sync::atomic::AtomicBool;

use rusqlite::Connection;
use rusqlite::types::Value;

use super::rows::{self, Found};
use super::{Op, Plan, Statement, Transaction, Work, Workload, populate_with};
use crate::Error;
use crate::databases::Databases;
use crate::draws::Draws;

/// Rows of the table.
const ROWS: u32 = 60_000;

/// Suppliers of each part, as TPC-H has them.
const SUPPLIERS: u32 = 4;

/// Bytes of a row without its four numbers.
const COMMENT_BYTES: usize = 220 - 4 * 8;

const SCHEMA: &str = "CREATE TABLE partsupp (
    ps_partkey INTEGER, ps_suppkey INTEGER, ps_availqty INTEGER, ps_supplycost REAL, ps_comment TEXT,
    PRIMARY KEY (ps_partkey, ps_suppkey)) WITHOUT ROWID";

const INSERT: &str = "INSERT INTO partsupp VALUES (?1, ?2, ?3, ?4, ?5)";
const UPDATE: &str =
    "UPDATE partsupp SET ps_availqty = ps_availqty + ?3 WHERE ps_partkey = ?1 AND ps_suppkey = ?2";

/// The workload.
pub(super) struct Partsupply {
    seed: u64,
    count: u32,
    updates: u32,
}

impl Partsupply {
    pub(super) fn of(plan: &Plan) -> Self {
        Self {
            seed: plan.seed,
            count: plan.count,
            updates: plan.updates.max(1),
        }
    }

    /// The keys of a row.
    fn keys(row: u32) -> (u32, u32) {
        (row / SUPPLIERS + 1, row % SUPPLIERS + 1)
    }

    /// A row before the run, with `added` more in its quantity.
    fn row(&self, row: u32, added: i64) -> Vec<Value> {
        // Numbers that no transaction has.
        let mut draws = Draws::of(!self.seed, row);
        let (part, supplier) = Self::keys(row);
        let quantity = i64::from(draws.below(9_999)) + 1;
        let cost = f64::from(draws.below(100_000)) / 100.0;
        vec![
            part.into(),
            supplier.into(),
            (quantity + added).into(),
            cost.into(),
            draws.letters(COMMENT_BYTES).into(),
        ]
    }

    /// The rows that a transaction changes, and the amount added to each.
    fn changes(&self, number: u32) -> impl Iterator<Item = (u32, i64)> {
        let mut draws = Draws::of(self.seed, number);
        (0..self.updates).map(move |_| (draws.below(ROWS), i64::from(draws.below(100)) + 1))
    }

    fn expected(&self) -> impl Iterator<Item = Vec<Value>> {
        let mut added = vec![0; ROWS as usize];
        for (row, more) in (0..self.count).flat_map(|number| self.changes(number)) {
            if let Some(added) = added.get_mut(row as usize) {
                *added += more;
            }
        }
        (0..).zip(added).map(|(row, added)| self.row(row, added))
    }
}

impl Partsupply {
    /// The transaction with this number.
    pub(super) fn transaction(&self, number: u32) -> Transaction {
        let statement = |(row, more): (u32, i64)| {
            let (part, supplier) = Self::keys(row);
            Statement {
                sql: UPDATE,
                values: vec![part.into(), supplier.into(), more.into()],
            }
        };
        let statements = self.changes(number).map(statement).collect();
        Transaction::new(Op::Partsupply, number, statements)
    }
}

impl Workload for Partsupply {
    fn populate(&self, databases: &mut Databases, stop: &AtomicBool) -> Result<(), Error> {
        let connection = databases.first_mut();
        connection
            .execute_batch(SCHEMA)
            .map_err(Error::sqlite("create table"))?;
        populate_with(connection, stop, 0..ROWS, |connection: &Connection, row| {
            let (sql, values) = (INSERT, self.row(row, 0));
            Transaction::new(Op::Partsupply, row, vec![Statement { sql, values }]).apply(connection)
        })
    }

    fn statements(&self) -> &'static [&'static str] {
        &[UPDATE]
    }

    fn work(&self, number: u32) -> Work {
        Work::Given(self.transaction(number))
    }

    fn compare(&self, databases: &Databases) -> Result<Found, Error> {
        let sql = "SELECT * FROM partsupp ORDER BY ps_partkey, ps_suppkey";
        rows::compare(databases.first(), "partsupp", sql, self.expected())
            .map_err(Error::sqlite("read the rows"))
    }
}
