//! `mail`, `messenger`, `message`, `sns`: four phone applications, generated to their published
//! characteristics.
//!
//! Table III of S-WAL (IEEE TCE 2018) counts the SQLite queries of four applications in four weeks;
//! the traces were never published. This module generates them from a seed. At full size every
//! number of that table comes out exactly, as a test checks; at any other size in proportion:
//!
//! | | `mail` | `messenger` | `message` | `sns` |
//! | --- | --- | --- | --- | --- |
//! | insert | 48,946 | 2,252 | 1,854 | 25,322 |
//! | select | 104,705 | 2,838 | 19,547 | 114 |
//! | update | 35,094 | 4,348 | 6,216 | 0 |
//! | delete | 23,747 | 769 | 773 | 58 |
//! | transactions | 32,392 | 7,301 | 7,740 | 15,998 |
//! | database files | 1 | 3 | 6 | 20 |
//!
//! The table's queries a transaction (3.3, 1.0, 1.1, 1.5) are those that write. So selects are
//! separate, before the transaction that follows. The rest was chosen:
//!
//! - *Tables.* Every file has `item` (an indexed text with author, time and state), `label`
//!   (indexed names of items) and `blob`.
//! - *Files.* A transaction works in one. `message`'s first file gets three of four, as the paper
//!   says that babel1.db is accessed most. `sns`'s files get shares that fall as 1/n. One of
//!   `messenger`'s files holds BLOBs, and three of `sns`'s, of 1 to 8 KiB that do not compress. The
//!   paper says that there are BLOBs, but not how many. With these shares they are 20 % of
//!   `messenger`'s inserts, and 14 % of `sns`'s.
//! - *Texts* are words: 1,300 bytes on average in `mail`, 155 in `messenger` and `message`, 170 in
//!   `sns`. The paper's traces are files of 70, 1.7, 9 and 7.2 MB. A query there is 329, 167, 317
//!   and 282 bytes long with the text of its statement.
//! - *Rows.* Updates, deletes and selects take existing rows, newer ones more often. Before the run
//!   each file has a share of 1,000 items, and of their labels or BLOBs.
//!
//! On stock WAL a transaction is 5.84, 1.97, 1.93 and 2.90 frames on average over 300 transactions
//! (seed 1; a test has it).
//!
//! The order matters: one thread executes it. The expected final content comes from stock SQLite in
//! memory with the same transactions.

mod generator;
mod profile;

use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;
use rusqlite::types::Value;

use generator::{Generator, Kind, Query, Rows, scaled, share_out};
use profile::{File, Profile};

pub(super) use profile::{MAIL, MESSAGE, MESSENGER, SNS, files, transactions};

use super::rows::{self, Found};
use super::transaction::Read;
use super::{Op, Plan, Statement, Transaction, Work, Workload, created, populate_with, words};
use crate::Error;
use crate::databases::Databases;
use crate::draws::{Draws, shuffle};

const SCHEMA: &str = "
    CREATE TABLE item (
        id INTEGER PRIMARY KEY, thread INTEGER, author TEXT, body TEXT, sent INTEGER, state INTEGER);
    CREATE INDEX item_by_thread ON item (thread, sent);
    CREATE TABLE label (id INTEGER PRIMARY KEY, item INTEGER, name TEXT);
    CREATE INDEX label_by_item ON label (item);
    CREATE TABLE blob (id INTEGER PRIMARY KEY, item INTEGER, content BLOB);";

/// Insert, update, delete, and two selects of each table.
const STATEMENTS: [[&str; 5]; 3] = [
    [
        "INSERT INTO item VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        "UPDATE item SET state = ?2, sent = ?3 WHERE id = ?1",
        "DELETE FROM item WHERE id = ?1",
        "SELECT * FROM item WHERE id = ?1",
        "SELECT id, author, sent FROM item WHERE thread = ?1 ORDER BY sent DESC LIMIT 20",
    ],
    [
        "INSERT INTO label VALUES (?1, ?2, ?3)",
        "UPDATE label SET name = ?2 WHERE id = ?1",
        "DELETE FROM label WHERE id = ?1",
        "SELECT * FROM label WHERE id = ?1",
        "SELECT name FROM label WHERE item = ?1",
    ],
    [
        "INSERT INTO blob VALUES (?1, ?2, ?3)",
        "UPDATE blob SET item = ?2 WHERE id = ?1",
        "DELETE FROM blob WHERE id = ?1",
        "SELECT length(content) FROM blob WHERE id = ?1",
        "SELECT * FROM blob WHERE id = ?1",
    ],
];

/// The same in one list.
const ALL_STATEMENTS: [&str; 15] = {
    let mut all = [""; 15];
    let mut at = 0;
    while at < 15 {
        all[at] = STATEMENTS[at / 5][at % 5];
        at += 1;
    }
    all
};

const TABLES: [&str; 3] = ["item", "label", "blob"];

/// Items, and labels or BLOBs, that exist before the run, over all files.
const HISTORY: u32 = 1_000;

/// The fewest rows that every table of every file has before the run.
const LEAST_HISTORY: u32 = 20;

const THREADS: u32 = 64;

/// A workload; see the module.
pub(super) struct Phone {
    op: Op,
    seed: u64,
    profile: &'static Profile,
    reads: Vec<Query>,
    writes: Vec<Query>,
    /// For each transaction, the end of its reads and of its writes.
    ends: Vec<(u32, u32)>,
}

impl Phone {
    /// The plan's application.
    pub(super) fn of(plan: &Plan, profile: &'static Profile) -> Self {
        let mut phone = Self {
            op: plan.op,
            seed: plan.seed,
            profile,
            reads: Vec::new(),
            writes: Vec::new(),
            ends: Vec::new(),
        };
        phone.generate(plan.count);
        phone
    }

    fn generate(&mut self, count: u32) {
        let of = |part| scaled(part, self.profile.transactions, count);
        let (updates, deletes) = (of(self.profile.updates), of(self.profile.deletes));
        let inserts = of(self.profile.inserts).max(count.saturating_sub(updates + deletes));
        let mut kinds: Vec<u32> = [inserts, updates, deletes]
            .into_iter()
            .zip(0..)
            .flat_map(|(times, kind)| std::iter::repeat_n(kind, times as usize))
            .collect();
        shuffle(&mut kinds, self.seed);
        let mut draws = Draws::of(self.seed, u32::MAX);
        let writes = u32::try_from(kinds.len()).unwrap_or(u32::MAX);
        let writes = share_out(&mut draws, count, 1, writes - count);
        let reads = share_out(&mut draws, count, 0, of(self.profile.selects));
        let mut generator = Generator {
            profile: self.profile,
            draws,
            rows: self.history(),
            version: 0,
        };
        let mut next = 0;
        for (reads, writes) in reads.into_iter().zip(writes) {
            for _ in 0..reads {
                self.reads.extend(generator.select());
            }
            let file = generator.file();
            for _ in 0..writes {
                let query = generator.next_write(file, &mut kinds, next);
                self.writes.extend(query);
                next += 1;
            }
            self.ends
                .push((self.reads.len() as u32, self.writes.len() as u32));
        }
    }

    /// The rows of each file before the run.
    fn history(&self) -> Vec<[Rows; 3]> {
        let shares: u32 = self.profile.files.iter().map(|file| file.share).sum();
        let rows = |file: &File| {
            let rows = (HISTORY * file.share / shares.max(1)).max(LEAST_HISTORY);
            file.tables.map(|share| {
                let next = if share > 0 { rows } else { 0 };
                let live = (1..=next).collect();
                Rows { live, next }
            })
        };
        self.profile.files.iter().map(rows).collect()
    }

    /// The values of a query's parameters.
    fn values(&self, query: &Query) -> Vec<Value> {
        let place = u64::from(query.file) << 8 | u64::from(query.table);
        let seed = self.seed ^ place << 40;
        let mut draws = Draws::of(seed, query.key);
        let mut changed = Draws::of(seed ^ 1, query.version);
        let key = Value::from(query.key);
        match (query.kind, query.table) {
            (Kind::Insert, 0) => {
                let thread = draws.low_below(THREADS) + 1;
                let author = words::address(&mut draws);
                let (least, most) = self.profile.words;
                let body = words::sentence(&mut draws, least, most);
                let sent = created(query.key);
                vec![
                    key,
                    thread.into(),
                    author.into(),
                    body.into(),
                    sent.into(),
                    0.into(),
                ]
            }
            (Kind::Insert, 1) => {
                let item = draws.below(query.key) + 1;
                vec![key, item.into(), words::name(&mut draws).into()]
            }
            (Kind::Insert, _) => {
                let length = 1_024 + draws.below(7 * 1_024 + 1);
                let content = draws.bytes(length as usize);
                vec![key, query.key.into(), content.into()]
            }
            (Kind::Update, 0) => {
                let (state, later) = (changed.below(8) + 1, changed.below(100_000));
                vec![
                    key,
                    state.into(),
                    (created(query.key) + i64::from(later)).into(),
                ]
            }
            (Kind::Update, 1) => vec![key, words::name(&mut changed).into()],
            (Kind::Update, _) => vec![key, changed.below(query.key).into()],
            (Kind::SelectMany, 0) => vec![(draws.low_below(THREADS) + 1).into()],
            (Kind::Delete | Kind::SelectRow | Kind::SelectMany, _) => vec![key],
        }
    }

    fn statement(&self, query: &Query) -> Statement {
        Statement {
            sql: STATEMENTS[query.table as usize][query.kind as usize],
            values: self.values(query),
        }
    }

    fn read(&self, query: &Query) -> Read {
        let Statement { sql, values } = self.statement(query);
        Read {
            database: query.file as usize,
            sql,
            values,
        }
    }

    /// Creates the tables of one file, and the rows before the run.
    fn populate_file(
        &self,
        connection: &mut Connection,
        file: usize,
        rows: &[Rows; 3],
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        connection
            .execute_batch(SCHEMA)
            .map_err(Error::sqlite("create tables"))?;
        for (table, rows) in (0..).zip(rows) {
            populate_with(connection, stop, 1..rows.next + 1, |connection, key| {
                let query = Query {
                    file: file as u8,
                    table,
                    kind: Kind::Insert,
                    key,
                    version: 0,
                };
                Transaction::new(self.op, 0, vec![self.statement(&query)]).apply(connection)
            })?;
        }
        Ok(())
    }

    /// The result of all transactions in stock SQLite, in memory.
    fn expected(&self) -> Result<Databases, Error> {
        let never = AtomicBool::new(false);
        let mut expected = Databases::in_memory(self.profile.files.len())?;
        self.populate(&mut expected, &never)?;
        for number in 0..u32::try_from(self.ends.len()).unwrap_or(u32::MAX) {
            let mut transaction = self.transaction(number);
            transaction.reads.clear();
            transaction.commit(&expected)?;
        }
        Ok(expected)
    }
}

impl Phone {
    /// The transaction with this number.
    pub(super) fn transaction(&self, number: u32) -> Transaction {
        let place = number as usize;
        let end = |place: usize| self.ends.get(place).copied().unwrap_or_default();
        let from = place.checked_sub(1).map(end).unwrap_or_default();
        let to = end(place);
        let of = |queries: &[Query], from: u32, to: u32| -> Vec<Query> {
            queries
                .get(from as usize..to as usize)
                .unwrap_or_default()
                .to_vec()
        };
        let (reads, writes) = (
            of(&self.reads, from.0, to.0),
            of(&self.writes, from.1, to.1),
        );
        Transaction {
            op: self.op,
            number,
            reads: reads.iter().map(|query| self.read(query)).collect(),
            database: writes.first().map_or(0, |query| query.file as usize),
            statements: writes.iter().map(|query| self.statement(query)).collect(),
        }
    }
}

impl Workload for Phone {
    fn populate(&self, databases: &mut Databases, stop: &AtomicBool) -> Result<(), Error> {
        let history = self.history();
        for (file, (connection, rows)) in databases.all_mut().zip(&history).enumerate() {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            self.populate_file(connection, file, rows, stop)?;
        }
        Ok(())
    }

    fn statements(&self) -> &'static [&'static str] {
        &ALL_STATEMENTS
    }

    fn work(&self, number: u32) -> Work {
        Work::Given(self.transaction(number))
    }

    fn compare(&self, databases: &Databases) -> Result<Found, Error> {
        let expected = self.expected()?;
        let mut found = Found::default();
        for (number, (have, want)) in databases.all().zip(expected.all()).enumerate() {
            for table in TABLES {
                let name = format!("file {}: {table}", number + 1);
                let next = compare_table(have, want, table, &name)
                    .map_err(Error::sqlite("read the rows"))?;
                found = found.and(next);
            }
        }
        Ok(found)
    }
}

/// Compares a table row by row with the one of the same name.
fn compare_table(
    have: &Connection,
    want: &Connection,
    table: &str,
    name: &str,
) -> rusqlite::Result<Found> {
    let sql = format!("SELECT * FROM {table} ORDER BY id");
    let mut statement = want.prepare(&sql)?;
    let columns = statement.column_count();
    // Row by row: a whole table of texts would need as much memory as the trace's file.
    let mut failed = None;
    let wanted = statement
        .query_map((), |row| {
            (0..columns)
                .map(|column| row.get(column))
                .collect::<rusqlite::Result<Vec<Value>>>()
        })?
        .map_while(|row| row.map_err(|error| failed = Some(error)).ok());
    let found = rows::compare(have, name, &sql, wanted)?;
    failed.map_or(Ok(found), Err)
}

#[cfg(test)]
mod tests;
