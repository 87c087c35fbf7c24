//! Which rows a run touches, in which order, and what must be in the database afterwards.
//!
//! The workload is Mobibench's: one table `(id INTEGER PRIMARY KEY, value TEXT, created INTEGER)` and
//! one row a transaction. Everything is derived from the seed and the number of a row, so that the
//! content of the database can be checked without having been remembered.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::Error;

/// The table.
pub const CREATE_TABLE: &str =
    "CREATE TABLE mobibench (id INTEGER PRIMARY KEY, value TEXT, created INTEGER)";

/// `created` of row 0, in seconds since 1970, as SQLite's `unixepoch()` gives them; row n is n seconds
/// later.
const CREATED: i64 = 1_700_000_000;

/// Bytes of a row, as the schema sees it, besides `value`: `id` and `created`, eight bytes each.
pub const BYTES_BESIDES_VALUE: usize = 16;

/// What each transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Inserts one row.
    Insert,
    /// Gives one row that was there before a new value.
    Update,
    /// Deletes one row that was there before.
    Delete,
}

impl Op {
    /// The word SQL and the command line use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
        }
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

/// Which version of a row's value.
#[derive(Clone, Copy)]
enum Version {
    Inserted = 0,
    Updated = 1,
}

/// A run, completely: two runs of the same plan execute the same transactions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// What each transaction does.
    pub op: Op,
    /// Transactions in all, over every thread and process.
    pub count: u32,
    /// Bytes of a row as the schema sees it: 8 for `id`, 8 for `created`, the rest `value`.
    pub record_size: usize,
    /// The order of updates and deletes.
    pub order: Order,
    /// What values, and the random order, are made from.
    pub seed: u64,
    /// Threads in all, over every process; each takes every n-th transaction.
    pub workers: u32,
}

/// The transaction a worker is to execute next.
pub(crate) struct Step {
    /// The row's number, from 0; its id is one more, except that concurrent inserts share the ids out
    /// in the order in which they commit.
    pub(crate) row: u32,
    /// The value to be stored; empty for a delete.
    pub(crate) value: String,
    /// `created` of this row.
    pub(crate) created: i64,
}

/// What a finished run left in its database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// Rows in the table.
    pub rows: u64,
    /// `ok`, or the first difference from what the transactions put there.
    pub content: String,
    /// `ok`, or what `PRAGMA integrity_check` found.
    pub integrity_check: String,
}

impl Checked {
    /// Whether everything was as it must be.
    pub fn is_ok(&self) -> bool {
        self.content == "ok" && self.integrity_check == "ok"
    }
}

impl Plan {
    /// Creates the table and, for updates and deletes, the rows that they need. Gives up when `stop`
    /// is set.
    pub fn populate(&self, connection: &mut Connection, stop: &AtomicBool) -> Result<(), Error> {
        connection
            .execute_batch(CREATE_TABLE)
            .map_err(Error::sqlite("create table"))?;
        if self.op == Op::Insert {
            return Ok(());
        }
        let transaction = connection.transaction().map_err(Error::sqlite("begin"))?;
        {
            let mut insert = transaction
                .prepare(self.sql_insert())
                .map_err(Error::sqlite("prepare insert"))?;
            for row in 0..self.count {
                if stop.load(Ordering::Relaxed) {
                    return Err(Error::Interrupted);
                }
                insert
                    .execute((self.value(row, Version::Inserted), created(row)))
                    .map_err(Error::sqlite("insert the rows to work on"))?;
            }
        }
        transaction
            .commit()
            .map_err(Error::sqlite("commit the rows to work on"))
    }

    fn sql_insert(&self) -> &'static str {
        "INSERT INTO mobibench (value, created) VALUES (?1, ?2)"
    }

    /// The statement that each transaction executes.
    pub(crate) fn sql(&self) -> &'static str {
        match self.op {
            Op::Insert => self.sql_insert(),
            Op::Update => "UPDATE mobibench SET value = ?1 WHERE id = ?2",
            Op::Delete => "DELETE FROM mobibench WHERE id = ?1",
        }
    }

    /// The transactions of one worker, in order.
    pub(crate) fn steps(&self, worker: u32) -> impl Iterator<Item = Step> + '_ {
        let rows = self.rows_in_order();
        let workers = self.workers.max(1) as usize;
        (worker as usize..rows.len())
            .step_by(workers)
            .map(move |at| self.step(rows[at]))
    }

    fn rows_in_order(&self) -> Vec<u32> {
        let mut rows: Vec<u32> = (0..self.count).collect();
        if self.order == Order::Random && self.op != Op::Insert {
            shuffle(&mut rows, self.seed);
        }
        rows
    }

    fn step(&self, row: u32) -> Step {
        let value = match self.op {
            Op::Insert => self.value(row, Version::Inserted),
            Op::Update => self.value(row, Version::Updated),
            Op::Delete => String::new(),
        };
        Step {
            row,
            value,
            created: created(row),
        }
    }

    fn value(&self, row: u32, version: Version) -> String {
        let length = self.record_size.saturating_sub(BYTES_BESIDES_VALUE);
        text(self.seed ^ (u64::from(row) << 2 | version as u64), length)
    }

    /// Compares the database with what the transactions must have left in it.
    pub fn check(&self, connection: &Connection) -> Result<Checked, Error> {
        let (rows, content) = self
            .check_rows(connection)
            .map_err(Error::sqlite("read the rows"))?;
        let mut problems: Vec<String> = Vec::new();
        connection
            .pragma_query(None, "integrity_check", |row| {
                problems.push(row.get(0)?);
                Ok(())
            })
            .map_err(Error::sqlite("integrity_check"))?;
        Ok(Checked {
            rows,
            content,
            integrity_check: problems.join("; "),
        })
    }

    fn check_rows(&self, connection: &Connection) -> rusqlite::Result<(u64, String)> {
        let mut statement =
            connection.prepare("SELECT id, value, created FROM mobibench ORDER BY id")?;
        let mut cursor = statement.query(())?;
        let (mut rows, mut first) = (0u64, None);
        let mut seen = HashSet::new();
        while let Some(row) = cursor.next()? {
            let (id, value, created) = (row.get(0)?, row.get(1)?, row.get(2)?);
            if first.is_none() {
                first = self.difference(rows, id, value, created, &mut seen);
            }
            rows += 1;
        }
        let expected = if self.op == Op::Delete {
            0
        } else {
            u64::from(self.count)
        };
        if rows != expected {
            first = Some(format!("{rows} rows, expected {expected}"));
        }
        Ok((rows, first.unwrap_or_else(|| "ok".to_owned())))
    }

    /// What is wrong with the row at this position, if anything.
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
        if (self.op != Op::Insert || self.workers == 1) && i64::from(row) + 1 != id {
            return Some(format!("id {id} holds what belongs to id {}", row + 1));
        }
        let version = if self.op == Op::Update {
            Version::Updated
        } else {
            Version::Inserted
        };
        (value != self.value(row, version))
            .then(|| format!("id {id} holds another value than was stored last"))
    }
}

fn created(row: u32) -> i64 {
    CREATED + i64::from(row)
}

/// `length` printable characters, six random bits each, that depend on `seed` alone.
fn text(seed: u64, length: usize) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-.";
    let mut state = seed;
    let mut text = String::with_capacity(length + 10);
    while text.len() < length {
        let mut bits = split_mix(&mut state);
        for _ in 0..10 {
            text.push(char::from(LETTERS[(bits & 63) as usize]));
            bits >>= 6;
        }
    }
    text.truncate(length);
    text
}

/// The SplitMix64 generator (Steele, Lea and Flood, OOPSLA 2014).
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Fisher and Yates's shuffle.
fn shuffle(rows: &mut [u32], seed: u64) {
    let mut state = seed;
    for last in (1..rows.len()).rev() {
        let other = (split_mix(&mut state) % (last as u64 + 1)) as usize;
        rows.swap(last, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(op: Op, workers: u32) -> Plan {
        Plan {
            op,
            count: 50,
            record_size: 100,
            order: Order::Random,
            seed: 7,
            workers,
        }
    }

    /// A database in memory in which the whole plan has been executed.
    fn executed(plan: &Plan) -> Connection {
        let mut connection = Connection::open_in_memory().unwrap();
        plan.populate(&mut connection, &AtomicBool::new(false))
            .unwrap();
        for step in (0..plan.workers).flat_map(|worker| plan.steps(worker)) {
            let id = i64::from(step.row) + 1;
            match plan.op {
                Op::Insert => connection.execute(plan.sql(), (step.value, step.created)),
                Op::Update => connection.execute(plan.sql(), (step.value, id)),
                Op::Delete => connection.execute(plan.sql(), (id,)),
            }
            .unwrap();
        }
        connection
    }

    #[test]
    fn the_check_accepts_what_the_plan_does() {
        for op in [Op::Insert, Op::Update, Op::Delete] {
            for workers in [1, 3] {
                let plan = plan(op, workers);
                let checked = plan.check(&executed(&plan)).unwrap();
                assert!(checked.is_ok(), "{op:?} {workers}: {checked:?}");
                assert_eq!(checked.rows, if op == Op::Delete { 0 } else { 50 });
            }
        }
    }

    #[test]
    fn the_check_finds_what_is_wrong() {
        for (op, damage, found) in [
            (Op::Insert, "DELETE FROM mobibench WHERE id = 50", "49 rows"),
            (
                Op::Insert,
                "UPDATE mobibench SET value = 'x' WHERE id = 9",
                "id 9 holds another",
            ),
            (
                Op::Insert,
                "UPDATE mobibench SET created = 1 WHERE id = 3",
                "was never stored",
            ),
            (
                Op::Update,
                "UPDATE mobibench SET created = created + 1 WHERE id = 4",
                "id 4 holds",
            ),
            (
                Op::Delete,
                "INSERT INTO mobibench VALUES (1, 'a', 2)",
                "1 rows, expected 0",
            ),
        ] {
            let plan = plan(op, 1);
            let connection = executed(&plan);
            connection.execute_batch(damage).unwrap();
            let checked = plan.check(&connection).unwrap();
            assert!(checked.content.contains(found), "{damage}: {checked:?}");
            assert!(!checked.is_ok());
        }
    }

    #[test]
    fn a_lost_update_is_found() {
        let plan = plan(Op::Update, 1);
        let connection = executed(&plan);
        connection
            .execute(
                "UPDATE mobibench SET value = ?1 WHERE id = 5",
                (plan.value(4, Version::Inserted),),
            )
            .unwrap();
        assert!(
            plan.check(&connection)
                .unwrap()
                .content
                .starts_with("id 5 holds another value")
        );
    }

    #[test]
    fn workers_share_every_row_once() {
        for order in [Order::Id, Order::Random] {
            let plan = Plan {
                order,
                ..plan(Op::Update, 4)
            };
            let mut rows: Vec<u32> = (0..4)
                .flat_map(|worker| plan.steps(worker))
                .map(|step| step.row)
                .collect();
            assert!(!rows.is_sorted());
            rows.sort_unstable();
            assert_eq!(rows, (0..50).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_value_has_the_length_that_the_record_size_leaves() {
        let plan = plan(Op::Insert, 1);
        assert_eq!(plan.value(3, Version::Inserted).len(), 84);
        assert_ne!(
            plan.value(3, Version::Inserted),
            plan.value(3, Version::Updated)
        );
        assert_ne!(
            plan.value(3, Version::Inserted),
            plan.value(4, Version::Inserted)
        );
        assert!(
            plan.value(3, Version::Updated)
                .chars()
                .all(|c| c.is_ascii_graphic())
        );
    }
}
