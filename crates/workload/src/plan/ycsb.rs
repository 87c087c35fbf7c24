//! `ycsb-a` to `ycsb-f`, and `scan`: the core workloads of YCSB (Cooper et al., SoCC '10).
//!
//! A table `usertable (ycsb_key INTEGER PRIMARY KEY, field0 TEXT, ..., field9 TEXT)`, 10,000
//! records of 10 fields of 100 bytes each. Every operation is a transaction:
//!
//! | | read | update | insert | scan | read-modify-write | keys |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | `ycsb-a` | 50 % | 50 % | | | | zipfian |
//! | `ycsb-b` | 95 % | 5 % | | | | zipfian |
//! | `ycsb-c` | 100 % | | | | | zipfian |
//! | `ycsb-d` | 95 % | | 5 % | | | latest |
//! | `ycsb-e` | | | 5 % | 95 % | | zipfian |
//! | `ycsb-f` | 50 % | | | | 50 % | zipfian |
//!
//! A read takes all fields, an update gives one a new value, a scan takes 1 to 100 records, an
//! insert adds the record after the last. Zipfian keys have YCSB's constant, 0.99, and are
//! scattered over the table. Latest keys are zipfian from the newest record down. As in YCSB's
//! client, a read-modify-write reads the record before it takes the write lock.
//!
//! `scan`, which is not YCSB's, reads all records of the same table.
//!
//! A field has two values, that of the load and that of an update, and both follow from its key. So
//! the expected table does not depend on the order of commits.

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;

use rusqlite::Connection;
use rusqlite::types::Value;

use super::rows::{self, Found};
use super::transaction::Read;
use super::{Op, Plan, Statement, Transaction, Work, Workload, populate_with};
use crate::Error;
use crate::databases::Databases;
use crate::draws::{Draws, text};
use crate::zipfian::Zipfian;

/// Records before the run.
const RECORDS: u32 = 10_000;

const FIELDS: u32 = 10;

const FIELD_BYTES: usize = 100;

/// The steps of a number drawn evenly.
const STEPS: u32 = 1 << 30;

/// The most records of a scan.
const SCAN: u32 = 100;

const SCHEMA: &str = "CREATE TABLE usertable (
    ycsb_key INTEGER PRIMARY KEY, field0 TEXT, field1 TEXT, field2 TEXT, field3 TEXT, field4 TEXT,
    field5 TEXT, field6 TEXT, field7 TEXT, field8 TEXT, field9 TEXT)";

const INSERT: &str = "INSERT INTO usertable VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
const READ: &str = "SELECT * FROM usertable WHERE ycsb_key = ?1";
const SCAN_FROM: &str = "SELECT * FROM usertable WHERE ycsb_key >= ?1 ORDER BY ycsb_key LIMIT ?2";
const UPDATES: [&str; FIELDS as usize] = [
    "UPDATE usertable SET field0 = ?2 WHERE ycsb_key = ?1",
    "UPDATE usertable SET field1 = ?2 WHERE ycsb_key = ?1",
    "UPDATE usertable SET field2 = ?2 WHERE ycsb_key = ?1",
    "UPDATE usertable SET field3 = ?2 WHERE ycsb_key = ?1",
    "UPDATE usertable SET field4 = ?2 WHERE ycsb_key = ?1",
    "UPDATE usertable SET field5 = ?2 WHERE ycsb_key = ?1",
    "UPDATE usertable SET field6 = ?2 WHERE ycsb_key = ?1",
    "UPDATE usertable SET field7 = ?2 WHERE ycsb_key = ?1",
    "UPDATE usertable SET field8 = ?2 WHERE ycsb_key = ?1",
    "UPDATE usertable SET field9 = ?2 WHERE ycsb_key = ?1",
];
const STATEMENTS: [&str; 13] = [
    INSERT, READ, SCAN_FROM, UPDATES[0], UPDATES[1], UPDATES[2], UPDATES[3], UPDATES[4],
    UPDATES[5], UPDATES[6], UPDATES[7], UPDATES[8], UPDATES[9],
];

/// The number of each kind in a hundred operations; the rest are scans.
struct Mix {
    read: u32,
    update: u32,
    insert: u32,
    read_modify_write: u32,
}

/// The operation on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Read { key: u32 },
    Update { key: u32, field: u32 },
    Insert,
    Scan { key: u32, records: u32 },
    ReadModifyWrite { key: u32, field: u32 },
}

/// The workload.
pub(super) struct Ycsb {
    op: Op,
    seed: u64,
    count: u32,
    mix: Mix,
    zipfian: Zipfian,
}

impl Ycsb {
    pub(super) fn of(plan: &Plan) -> Self {
        let (read, update, insert, read_modify_write) = match plan.op {
            Op::YcsbA => (50, 50, 0, 0),
            Op::YcsbB => (95, 5, 0, 0),
            Op::YcsbD => (95, 0, 5, 0),
            Op::YcsbE => (0, 0, 5, 0),
            Op::Scan => (0, 0, 0, 0),
            Op::YcsbF => (50, 0, 0, 50),
            _ => (100, 0, 0, 0),
        };
        Self {
            op: plan.op,
            seed: plan.seed,
            count: plan.count,
            mix: Mix {
                read,
                update,
                insert,
                read_modify_write,
            },
            zipfian: Zipfian::new(RECORDS),
        }
    }

    fn operation(&self, number: u32) -> Operation {
        let mut draws = Draws::of(self.seed, number);
        let kind = draws.below(100);
        let rank = self
            .zipfian
            .rank(f64::from(draws.below(STEPS)) / f64::from(STEPS));
        let key = match self.op {
            // The newest record is that of this operation, if it is an insert.
            Op::YcsbD => (RECORDS + number).saturating_sub(rank),
            _ => scattered(rank),
        };
        let field = draws.below(FIELDS);
        let Mix {
            read,
            update,
            insert,
            read_modify_write,
        } = self.mix;
        if kind < read {
            Operation::Read { key }
        } else if kind < read + update {
            Operation::Update { key, field }
        } else if kind < read + update + insert {
            Operation::Insert
        } else if kind < read + update + insert + read_modify_write {
            Operation::ReadModifyWrite { key, field }
        } else {
            match self.op {
                Op::Scan => Operation::Scan {
                    key: 1,
                    records: RECORDS,
                },
                _ => Operation::Scan {
                    key,
                    records: draws.below(SCAN) + 1,
                },
            }
        }
    }

    fn field(&self, key: u32, field: u32, updated: bool) -> Value {
        let place = u64::from(key) << 5 | u64::from(field) << 1 | u64::from(updated);
        Value::Text(text(self.seed ^ place << 8, FIELD_BYTES))
    }

    /// A record, with some updated fields.
    fn record(&self, key: u32, updated: &HashSet<(u32, u32)>) -> Vec<Value> {
        let fields =
            (0..FIELDS).map(|field| self.field(key, field, updated.contains(&(key, field))));
        std::iter::once(key.into()).chain(fields).collect()
    }

    fn insert(&self, key: u32) -> Statement {
        Statement {
            sql: INSERT,
            values: self.record(key, &HashSet::new()),
        }
    }

    fn update(&self, key: u32, field: u32) -> Statement {
        Statement {
            sql: UPDATES[field as usize % UPDATES.len()],
            values: vec![key.into(), self.field(key, field, true)],
        }
    }
}

/// The key of a rank: hot records are not neighbors.
fn scattered(rank: u32) -> u32 {
    // 7,919 is a prime that does not divide the number of records.
    (u64::from(rank) * 7_919 % u64::from(RECORDS)) as u32 + 1
}

impl Ycsb {
    /// The transaction with this number.
    pub(super) fn transaction(&self, number: u32) -> Transaction {
        let read = |sql, values| Read {
            database: 0,
            sql,
            values,
        };
        let (reads, statements) = match self.operation(number) {
            Operation::Read { key } => (vec![read(READ, vec![key.into()])], vec![]),
            Operation::Update { key, field } => (vec![], vec![self.update(key, field)]),
            Operation::Insert => (vec![], vec![self.insert(RECORDS + 1 + number)]),
            Operation::Scan { key, records } => {
                let values = vec![key.into(), records.into()];
                (vec![read(SCAN_FROM, values)], vec![])
            }
            Operation::ReadModifyWrite { key, field } => {
                let reads = vec![read(READ, vec![key.into()])];
                (reads, vec![self.update(key, field)])
            }
        };
        Transaction {
            reads,
            ..Transaction::new(self.op, number, statements)
        }
    }
}

impl Workload for Ycsb {
    fn populate(&self, databases: &mut Databases, stop: &AtomicBool) -> Result<(), Error> {
        let connection = databases.first_mut();
        connection
            .execute_batch(SCHEMA)
            .map_err(Error::sqlite("create table"))?;
        populate_with(
            connection,
            stop,
            1..RECORDS + 1,
            |connection: &Connection, key| {
                Transaction::new(self.op, key, vec![self.insert(key)]).apply(connection)
            },
        )
    }

    fn statements(&self) -> &'static [&'static str] {
        &STATEMENTS
    }

    fn work(&self, number: u32) -> Work {
        Work::Given(self.transaction(number))
    }

    fn compare(&self, databases: &Databases) -> Result<Found, Error> {
        let (mut updated, mut inserted) = (HashSet::new(), Vec::new());
        for number in 0..self.count {
            match self.operation(number) {
                Operation::Update { key, field } | Operation::ReadModifyWrite { key, field } => {
                    updated.insert((key, field));
                }
                Operation::Insert => inserted.push(RECORDS + 1 + number),
                Operation::Read { .. } | Operation::Scan { .. } => {}
            }
        }
        let records = (1..=RECORDS).chain(inserted);
        let records = records.map(|key| self.record(key, &updated));
        let sql = "SELECT * FROM usertable ORDER BY ycsb_key";
        rows::compare(databases.first(), "usertable", sql, records)
            .map_err(Error::sqlite("read the rows"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Order;

    fn ycsb(op: Op) -> Ycsb {
        Ycsb::of(&Plan {
            op,
            count: 10_000,
            record_size: 100,
            warm_up: 0,
            warehouses: 1,
            readers: 0,
            rate: None,
            updates: 1,
            order: Order::Id,
            seed: 3,
            workers: 1,
        })
    }

    /// The mix in the head of this file: reads, updates, inserts, scans, read-modify-writes.
    #[test]
    fn the_mixes_are_those_of_the_core_workloads() {
        for (op, mix) in [
            (Op::YcsbA, [50, 50, 0, 0, 0]),
            (Op::YcsbB, [95, 5, 0, 0, 0]),
            (Op::YcsbC, [100, 0, 0, 0, 0]),
            (Op::YcsbD, [95, 0, 5, 0, 0]),
            (Op::YcsbE, [0, 0, 5, 95, 0]),
            (Op::YcsbF, [50, 0, 0, 0, 50]),
            (Op::Scan, [0, 0, 0, 100, 0]),
        ] {
            let mut counted = [0u32; 5];
            for number in 0..10_000 {
                counted[match ycsb_operation(op, number) {
                    Operation::Read { .. } => 0,
                    Operation::Update { .. } => 1,
                    Operation::Insert => 2,
                    Operation::Scan { .. } => 3,
                    Operation::ReadModifyWrite { .. } => 4,
                }] += 1;
            }
            for (got, percent) in counted.into_iter().zip(mix) {
                let near = got.abs_diff(percent * 100) <= 200;
                assert!(near && (percent > 0 || got == 0), "{op:?}: {counted:?}");
            }
        }
    }

    fn ycsb_operation(op: Op, number: u32) -> Operation {
        thread_local!(static MADE: std::cell::RefCell<Option<Ycsb>> = const { std::cell::RefCell::new(None) });
        MADE.with(|made| {
            let mut made = made.borrow_mut();
            if made.as_ref().is_none_or(|made| made.op != op) {
                *made = Some(ycsb(op));
            }
            made.as_ref().map(|made| made.operation(number)).unwrap()
        })
    }

    #[test]
    fn every_key_exists_and_each_rank_has_its_own() {
        let keys: HashSet<u32> = (0..RECORDS).map(scattered).collect();
        assert_eq!(keys.len(), RECORDS as usize);
        assert!(keys.iter().all(|key| (1..=RECORDS).contains(key)));
    }
}
