//! The transactions of a run, and the expected content of the database afterwards.
//!
//! A [`Plan`] determines a run completely. All stored content follows from the seed and the number
//! of a transaction. So the database can be checked row by row, without a record of the run, for
//! any order of commits.
//!
//! This module has the parts common to every op: sharing out the transactions, and the verdict of a
//! check. Each op owns its tables, its statements and their results, as a `Workload`: `mobibench`
//! (`insert`, `update`, `delete`), `indexed`, `app`, `phone` (`mail`, `messenger`, `message`,
//! `sns`), `partsupply`, `tpcc`, `web` and `ycsb`. `transaction` executes their statements, `rows`
//! compares their expected rows, and `draws` is the source of their values.

mod app;
mod indexed;
mod mobibench;
mod partsupply;
mod phone;
mod queries;
mod rows;
mod tpcc;
mod transaction;
mod web;
mod words;
mod ycsb;

use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::databases::Databases;
use app::App;
use indexed::Indexed;
use mobibench::{Change, Mobibench};
use partsupply::Partsupply;
use phone::Phone;
pub use queries::Queries;
use rows::Found;
use tpcc::Tpcc;
pub(crate) use transaction::{Statement, Transaction};
use web::Web;
use ycsb::Ycsb;

/// `created` of row 0, in seconds since 1970, as SQLite's `unixepoch()` gives them; row n is n seconds
/// later.
const CREATED: i64 = 1_700_000_000;

/// The content of each transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Inserts one row.
    Insert,
    /// Gives one existing row a new value.
    Update,
    /// Deletes one existing row.
    Delete,
    /// Inserts one row into a table with two secondary indexes.
    Indexed,
    /// Files one message as a messenger or mail application does.
    App,
    /// The next transaction of S-WAL's Mail, generated to published characteristics.
    Mail,
    /// The same of its Messenger, in 3 files.
    Messenger,
    /// The same of its Message (SMS), in 6 files.
    Message,
    /// The same of its SNS, in 20 files.
    Sns,
    /// Changes rows of TPC-H's partsupp anywhere, as many as in the plan.
    Partsupply,
    /// TPC-C's five transactions in its own mix.
    Tpcc,
    /// The same in a mix that mostly reads.
    #[serde(rename = "tpcc-read")]
    TpccRead,
    /// A web server's short transactions; readers work alongside the writers.
    Web,
    /// YCSB's workload A: reads and updates.
    #[serde(rename = "ycsb-a")]
    YcsbA,
    /// B: reads, and some updates.
    #[serde(rename = "ycsb-b")]
    YcsbB,
    /// C: reads.
    #[serde(rename = "ycsb-c")]
    YcsbC,
    /// D: reads of new records, and some inserts.
    #[serde(rename = "ycsb-d")]
    YcsbD,
    /// E: scans, and some inserts.
    #[serde(rename = "ycsb-e")]
    YcsbE,
    /// F: reads, and reads that are followed by an update.
    #[serde(rename = "ycsb-f")]
    YcsbF,
    /// Reads all of YCSB's records, in the order of their keys.
    Scan,
}

impl Op {
    /// The name in the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Indexed => "indexed",
            Self::App => "app",
            Self::Mail => "mail",
            Self::Messenger => "messenger",
            Self::Message => "message",
            Self::Sns => "sns",
            Self::Partsupply => "partsupply",
            Self::Tpcc => "tpcc",
            Self::TpccRead => "tpcc-read",
            Self::Web => "web",
            Self::YcsbA => "ycsb-a",
            Self::YcsbB => "ycsb-b",
            Self::YcsbC => "ycsb-c",
            Self::YcsbD => "ycsb-d",
            Self::YcsbE => "ycsb-e",
            Self::YcsbF => "ycsb-f",
            Self::Scan => "scan",
        }
    }

    /// Frames that a transaction writes to a stock log, on average and rounded; the maximum, if the
    /// plan has the number of changes.
    pub fn frames(self) -> u32 {
        match self {
            Self::Insert | Self::Update | Self::Delete => 1,
            Self::Indexed => 3,
            Self::App => 6,
            Self::Mail => 6,
            Self::Messenger | Self::Message => 2,
            Self::Sns => 3,
            Self::Partsupply => 20,
            Self::Tpcc => 12,
            Self::TpccRead => 1,
            Self::Web => 2,
            Self::YcsbA
            | Self::YcsbB
            | Self::YcsbC
            | Self::YcsbD
            | Self::YcsbE
            | Self::YcsbF
            | Self::Scan => 1,
        }
    }

    /// The number of its database files ([`Databases`]).
    pub fn databases(self) -> usize {
        phone::files(self)
    }

    /// Transactions of an application's whole trace; `None` for other ops.
    pub fn trace_length(self) -> Option<u32> {
        phone::transactions(self)
    }

    /// Whether transactions work on rows of earlier transactions: then the order of commits changes
    /// their work.
    pub fn is_tpcc(self) -> bool {
        matches!(self, Self::Tpcc | Self::TpccRead)
    }

    /// Whether a plan may have readers alongside the workers.
    pub fn has_readers(self) -> bool {
        self == Self::Web
    }

    /// Whether the plan's record size sets the size of a row; other ops have their own sizes.
    pub fn has_record_size(self) -> bool {
        matches!(
            self,
            Self::Insert | Self::Update | Self::Delete | Self::Indexed
        )
    }
}

/// The order in which `update` and `delete` take the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// By id, as Mobibench does.
    Id,
    /// Shuffled by the seed.
    Random,
}

/// All parameters of a run: two runs of the same plan execute the same transactions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The content of each transaction.
    pub op: Op,
    /// Transactions in total, over every thread and process, including those of the warm-up.
    pub count: u32,
    /// This many come first, one after the other, and are not measured.
    pub warm_up: u32,
    /// Bytes of a row as the schema sees it, for the ops of Mobibench: 8 for `id`, 8 for `created`,
    /// the rest `value`. Bytes of `body` for `indexed`.
    pub record_size: usize,
    /// Rows that a transaction of `partsupply` changes.
    pub updates: u32,
    /// Warehouses of `tpcc`, from 1.
    pub warehouses: u32,
    /// The order of updates and deletes.
    pub order: Order,
    /// The seed of values, and of the random order.
    pub seed: u64,
    /// Threads in total, over every process; each takes every n-th transaction.
    pub workers: u32,
    /// Threads that read while the workers work, for ops with readers.
    pub readers: u32,
    /// Due transactions a second, for all workers together. Without it each worker begins the next
    /// at once.
    pub rate: Option<u32>,
}

/// One timed step of a worker, prepared beforehand.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Work {
    /// Statements with values that are known beforehand.
    Given(Transaction),
    /// A transaction whose statements depend on its reads.
    Tpcc(tpcc::Request),
}

impl Work {
    /// Executes and commits it.
    pub(crate) fn commit(&self, databases: &Databases) -> Result<(), Error> {
        match self {
            Self::Given(transaction) => transaction.commit(databases),
            Self::Tpcc(request) => request.execute(databases.first()),
        }
    }

    /// The name of its kind in a report, if the op has several kinds.
    pub(crate) fn kind(&self) -> Option<&'static str> {
        match self {
            Self::Given(_) => None,
            Self::Tpcc(request) => Some(request.kind()),
        }
    }
}

/// The parts of an op: its tables, its transactions, and their expected result in any order.
pub(crate) trait Workload: Sync {
    /// Creates the tables and the rows that transactions need. Gives up when `stop` is set.
    fn populate(&self, databases: &mut Databases, stop: &AtomicBool) -> Result<(), Error>;

    /// Every statement that a transaction may execute.
    fn statements(&self) -> &'static [&'static str];

    /// The transaction with this number, from 0 to the plan's count.
    fn work(&self, number: u32) -> Work;

    /// A reader's step with this number, where the reader counts for itself: some reads, with a
    /// check of their result. Nothing, for an op without readers.
    fn read(&self, _reader: u32, _number: u32, _databases: &Databases) -> Result<(), Error> {
        Ok(())
    }

    /// Compares all rows with the expected result of all transactions.
    fn compare(&self, databases: &Databases) -> Result<Found, Error>;
}

/// The content of a database after a finished run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// Rows in the table, or in all tables if the op has several.
    pub rows: u64,
    /// `ok`, or the first difference from the transactions' content.
    pub content: String,
    /// `ok`, or the findings of `PRAGMA integrity_check`.
    pub integrity_check: String,
}

impl Checked {
    /// Whether everything is as expected.
    pub fn is_ok(&self) -> bool {
        self.content == "ok" && self.integrity_check == "ok"
    }
}

impl Plan {
    /// The number of its database files ([`Databases`]).
    pub fn databases(&self) -> usize {
        self.op.databases()
    }

    /// The workload of this plan's op.
    pub(crate) fn workload(&self) -> Box<dyn Workload> {
        match self.op {
            Op::Insert => Box::new(Mobibench::of(self, Change::Insert)),
            Op::Update => Box::new(Mobibench::of(self, Change::Update)),
            Op::Delete => Box::new(Mobibench::of(self, Change::Delete)),
            Op::Indexed => Box::new(Indexed::of(self)),
            Op::App => Box::new(App::of(self)),
            Op::Mail => Box::new(Phone::of(self, &phone::MAIL)),
            Op::Messenger => Box::new(Phone::of(self, &phone::MESSENGER)),
            Op::Message => Box::new(Phone::of(self, &phone::MESSAGE)),
            Op::Sns => Box::new(Phone::of(self, &phone::SNS)),
            Op::Partsupply => Box::new(Partsupply::of(self)),
            Op::Tpcc | Op::TpccRead => Box::new(Tpcc::of(self)),
            Op::Web => Box::new(Web::of(self)),
            Op::YcsbA | Op::YcsbB | Op::YcsbC | Op::YcsbD | Op::YcsbE | Op::YcsbF | Op::Scan => {
                Box::new(Ycsb::of(self))
            }
        }
    }

    /// Creates the tables and the rows that the transactions need. Gives up when `stop` is set.
    pub fn populate(&self, databases: &mut Databases, stop: &AtomicBool) -> Result<(), Error> {
        self.workload().populate(databases, stop)
    }

    /// Transactions that are measured.
    pub fn measured(&self) -> u32 {
        self.count.saturating_sub(self.warm_up)
    }

    /// All numbers, in the order in which one worker would execute them.
    fn all_numbers(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = (0..self.count).collect();
        if self.order == Order::Random && matches!(self.op, Op::Update | Op::Delete) {
            crate::draws::shuffle(&mut numbers, self.seed);
        }
        numbers
    }

    /// The numbers of the warm-up's transactions.
    pub(crate) fn warm_up_numbers(&self) -> impl Iterator<Item = u32> + use<> {
        self.all_numbers().into_iter().take(self.warm_up as usize)
    }

    /// The numbers of one worker's transactions, in the order in which it executes them.
    pub(crate) fn numbers(&self, worker: u32) -> impl Iterator<Item = u32> + use<> {
        let workers = self.workers.max(1) as usize;
        let after = self.warm_up as usize;
        self.all_numbers()
            .into_iter()
            .skip(after + worker as usize)
            .step_by(workers)
    }

    /// Compares the database with the expected result of the transactions.
    pub fn check(&self, databases: &Databases) -> Result<Checked, Error> {
        let found = self.workload().compare(databases)?;
        let mut problems: Vec<String> = Vec::new();
        for connection in databases.all() {
            connection
                .pragma_query(None, "integrity_check", |row| {
                    problems.push(row.get(0)?);
                    Ok(())
                })
                .map_err(Error::sqlite("integrity_check"))?;
        }
        // Each intact file reports that.
        problems.dedup_by(|a, b| a == "ok" && b == "ok");
        Ok(Checked {
            rows: found.rows,
            content: found.difference.unwrap_or_else(|| "ok".to_owned()),
            integrity_check: problems.join("; "),
        })
    }
}

/// `created` of the row with this number.
fn created(number: u32) -> i64 {
    CREATED + i64::from(number)
}

/// Rows that are populated in one transaction: few enough for the X-L2P table of a small device.
const POPULATED_TOGETHER: usize = 5_000;

/// Populates the rows that transactions work on. It calls `fill` for each number.
fn populate_with(
    connection: &mut Connection,
    stop: &AtomicBool,
    numbers: std::ops::Range<u32>,
    mut fill: impl FnMut(&Connection, u32) -> Result<(), Error>,
) -> Result<(), Error> {
    let numbers: Vec<u32> = numbers.collect();
    for together in numbers.chunks(POPULATED_TOGETHER) {
        let transaction = connection.transaction().map_err(Error::sqlite("begin"))?;
        for number in together {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            fill(&transaction, *number)?;
        }
        transaction
            .commit()
            .map_err(Error::sqlite("commit the rows to work on"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
