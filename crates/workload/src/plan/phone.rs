//! `mail`, `messenger`, `message`, `sns`: four applications of a phone, generated to the characteristics
//! that were published of them.
//!
//! Table III of S-WAL (IEEE TCE 2018) counts what four applications asked SQLite for in four weeks; the
//! traces were never published. What is here is made from a seed so that every number of that table comes
//! out exactly at full size (a test holds it to that), and in proportion at any other:
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
//! The table's queries a transaction (3.3, 1.0, 1.1, 1.5) are those that write; so selects stand by
//! themselves, before the transaction that follows. What the table does not say was chosen:
//!
//! - *Tables.* Every file has `item` (an indexed text with author, time and state), `label` (indexed
//!   names of items) and `blob`.
//! - *Files.* A transaction works in one. `message`'s first file gets three of four, as the paper says
//!   that babel1.db is accessed most; `sns`'s files get shares that fall as 1/n. One of `messenger`'s
//!   files holds BLOBs, and three of `sns`'s, of 1 to 8 KiB that do not compress: the paper says that there
//!   are BLOBs, not how many. With these shares they are 20 % of `messenger`'s inserts, and 14 % of `sns`'s.
//! - *Texts* are words: 1,300 bytes on average in `mail`, 155 in `messenger` and `message`, 170 in `sns`. The
//!   paper's traces are files of 70, 1.7, 9 and 7.2 MB, in which a query is 329, 167, 317 and 282 bytes long
//!   with the text of its statement.
//! - *Rows.* Updates, deletes and selects take rows that are there, newer ones more often. A share of 1,000
//!   items, and labels or BLOBs of them, is in each file before the run.
//!
//! On stock WAL a transaction is 5.84, 1.97, 1.93 and 2.90 frames on average over 300 transactions (seed 1; a
//! test has it).
//!
//! The order matters: one thread executes it. What the files must hold in the end is what stock SQLite in
//! memory makes of the same transactions.

use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;
use rusqlite::types::Value;

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

/// Items, and labels or BLOBs, that are there before the run, over all files.
const HISTORY: u32 = 1_000;

/// Rows of each table that every file has before the run, at least.
const LEAST_HISTORY: u32 = 20;

const THREADS: u32 = 64;

/// What was published of an application, and what was chosen.
pub(super) struct Profile {
    inserts: u32,
    selects: u32,
    updates: u32,
    deletes: u32,
    transactions: u32,
    files: &'static [File],
    /// Words of a text.
    words: (u32, u32),
}

/// One of an application's files.
struct File {
    /// Its share of the transactions.
    share: u32,
    /// Shares of its inserts that go to each table.
    tables: [u32; 3],
}

const fn texts(share: u32) -> File {
    File {
        share,
        tables: [60, 40, 0],
    }
}

const fn blobs(share: u32) -> File {
    File {
        share,
        tables: [0, 0, 1],
    }
}

pub(super) static MAIL: Profile = Profile {
    inserts: 48_946,
    selects: 104_705,
    updates: 35_094,
    deletes: 23_747,
    transactions: 32_392,
    files: &[File {
        share: 1,
        tables: [40, 60, 0],
    }],
    words: (20, 500),
};

pub(super) static MESSENGER: Profile = Profile {
    inserts: 2_252,
    selects: 2_838,
    updates: 4_348,
    deletes: 769,
    transactions: 7_301,
    files: &[texts(5), texts(3), blobs(2)],
    words: (3, 60),
};

pub(super) static MESSAGE: Profile = Profile {
    inserts: 1_854,
    selects: 19_547,
    updates: 6_216,
    deletes: 773,
    transactions: 7_740,
    files: &[texts(15), texts(1), texts(1), texts(1), texts(1), texts(1)],
    words: (3, 60),
};

pub(super) static SNS: Profile = Profile {
    inserts: 25_322,
    selects: 114,
    updates: 0,
    deletes: 58,
    transactions: 15_998,
    files: &[
        texts(1000),
        texts(500),
        blobs(333),
        texts(250),
        texts(200),
        texts(167),
        texts(143),
        blobs(125),
        texts(111),
        texts(100),
        texts(91),
        texts(83),
        texts(77),
        texts(71),
        texts(67),
        texts(63),
        blobs(59),
        texts(56),
        texts(53),
        texts(50),
    ],
    words: (3, 65),
};

/// The profile of an op that is such an application.
fn profile(op: Op) -> Option<&'static Profile> {
    match op {
        Op::Mail => Some(&MAIL),
        Op::Messenger => Some(&MESSENGER),
        Op::Message => Some(&MESSAGE),
        Op::Sns => Some(&SNS),
        _ => None,
    }
}

/// Transactions of an application in the four weeks that were counted; `None` for other ops.
pub(super) fn transactions(op: Op) -> Option<u32> {
    profile(op).map(|profile| profile.transactions)
}

/// Database files of an op.
pub(super) fn files(op: Op) -> usize {
    profile(op).map_or(1, |profile| profile.files.len())
}

/// What a query does; the numbers are places in [`STATEMENTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Insert = 0,
    Update = 1,
    Delete = 2,
    SelectRow = 3,
    SelectMany = 4,
}

/// A query, from which its values follow.
#[derive(Clone, Copy, Debug)]
struct Query {
    file: u8,
    table: u8,
    kind: Kind,
    key: u32,
    /// Tells the updates of a row apart.
    version: u32,
}

/// A workload; see the module.
pub(super) struct Phone {
    op: Op,
    seed: u64,
    profile: &'static Profile,
    reads: Vec<Query>,
    writes: Vec<Query>,
    /// Of each transaction, where its reads and its writes end.
    ends: Vec<(u32, u32)>,
}

/// The rows that are there, of one table in one file.
#[derive(Clone, Default)]
struct Rows {
    live: Vec<u32>,
    next: u32,
}

impl Rows {
    fn add(&mut self) -> u32 {
        let key = self.next + 1;
        self.next = key;
        self.live.push(key);
        key
    }

    /// The place of one, newer ones more often.
    fn pick(&self, draws: &mut Draws) -> Option<usize> {
        let count = u32::try_from(self.live.len()).unwrap_or(u32::MAX);
        let from_the_end = draws.low_below(count) as usize;
        self.live.len().checked_sub(from_the_end + 1)
    }
}

/// Makes the queries, one after the other.
struct Generator {
    profile: &'static Profile,
    draws: Draws,
    rows: Vec<[Rows; 3]>,
    version: u32,
}

impl Generator {
    fn weighted(&mut self, weights: impl Iterator<Item = u32> + Clone) -> usize {
        let mut left = self.draws.below(weights.clone().sum());
        let mut at = 0;
        for weight in weights {
            if left < weight {
                break;
            }
            left -= weight;
            at += 1;
        }
        at
    }

    fn file(&mut self) -> usize {
        let files = self.profile.files;
        self.weighted(files.iter().map(|file| file.share))
    }

    fn table(&mut self, file: usize) -> usize {
        let tables = self.profile.files[file].tables;
        self.weighted(tables.into_iter())
    }

    /// A query of this kind in a file; `None` where there is no row to work on.
    fn query(&mut self, file: usize, kind: Kind) -> Option<Query> {
        let table = self.table(file);
        let rows = &mut self.rows[file][table];
        let key = match kind {
            Kind::Insert => rows.add(),
            Kind::Delete => {
                let place = rows.pick(&mut self.draws)?;
                rows.live.swap_remove(place)
            }
            Kind::Update | Kind::SelectRow | Kind::SelectMany => {
                *rows.live.get(rows.pick(&mut self.draws)?)?
            }
        };
        self.version += 1;
        Some(Query {
            file: file as u8,
            table: table as u8,
            kind,
            key,
            version: self.version,
        })
    }

    fn select(&mut self) -> Option<Query> {
        let kind = match self.draws.below(2) {
            0 => Kind::SelectRow,
            _ => Kind::SelectMany,
        };
        let file = self.file();
        self.query(file, kind)
    }
}

/// `part` of `of`, for `count` instead: rounded, and exact where they are equal.
fn scaled(part: u32, of: u32, count: u32) -> u32 {
    let scaled = (u64::from(part) * u64::from(count) + u64::from(of) / 2) / u64::from(of.max(1));
    u32::try_from(scaled).unwrap_or(u32::MAX)
}

/// Gives each of `count` at least `least`, and shares out `more` by chance.
fn share_out(draws: &mut Draws, count: u32, least: u32, more: u32) -> Vec<u32> {
    let mut shares = vec![least; count as usize];
    for _ in 0..more {
        let place = draws.below(count) as usize;
        if let Some(share) = shares.get_mut(place) {
            *share += 1;
        }
    }
    shares
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

    /// What a query's parameters stand for.
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

    /// Creates the tables of one file, and the rows that are there before the run.
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

    /// What stock SQLite makes of all of it, in memory.
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

impl Generator {
    /// The write of the kind that is next. Where no row is left to update or delete, an insert that was
    /// to come later changes places with it.
    fn next_write(&mut self, file: usize, kinds: &mut [u32], next: usize) -> Option<Query> {
        let kind = |number: u32| match number {
            0 => Kind::Insert,
            1 => Kind::Update,
            _ => Kind::Delete,
        };
        if let Some(query) = self.query(file, kind(*kinds.get(next)?)) {
            return Some(query);
        }
        let later = kinds[next..].iter().position(|kind| *kind == 0)?;
        kinds.swap(next, next + later);
        self.query(file, Kind::Insert)
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
    // Row by row: a whole table of texts would be as much memory as the trace's file.
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
#[path = "phone_tests.rs"]
mod tests;
