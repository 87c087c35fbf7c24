//! The transactions of writers: inserts, updates and deletes of rows with indexes and BLOBs, large
//! and small. They have savepoints, rollbacks, cache spills and changes of the schema.

use crate::failure::Failure;
use crate::ledger::{Event, Ledger, Witness};
use crate::model::{Commit, Seq, Tick, Totals, WriterId, item_digest, next_chain};
use crate::random::Random;
use crate::session::{BlobRange, Session, SqlError, SqlErrorKind, Value, integer};
use crate::steps;
use clap::ValueEnum;
use std::time::{Duration, Instant};

/// The most rows of a writer. So the database stays small while its history grows.
const SLOTS: u64 = 100;

/// How long a busy COMMIT is tried again before it is rolled back.
const COMMIT_PATIENCE: Duration = Duration::from_millis(500);

/// A lie that a writer tells, to show that the checks find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Lie {
    /// Acknowledges commits before COMMIT is called.
    EarlyAcknowledgement,
    /// Commits a transaction in two halves.
    HalfCommit,
    /// Rolls one commit in a hundred back and acknowledges it.
    DroppedCommit,
    /// Commits one transaction in a hundred after reporting that it was rolled back.
    UnknownCommit,
}

/// Why a transaction did not commit.
#[derive(Debug)]
pub enum TransactionError {
    /// SQLite reported an error. Nothing was committed, unless the error is that the process is
    /// gone.
    Sql(SqlError),
    /// The harness failed.
    Harness(Failure),
}

impl From<SqlError> for TransactionError {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

impl From<Failure> for TransactionError {
    fn from(failure: Failure) -> Self {
        Self::Harness(failure)
    }
}

/// The content of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One small row.
    Small,
    /// Some rows of mixed sizes.
    Medium,
    /// A BLOB on many overflow pages.
    Large,
    /// More pages than the cache holds, so that some reach the log before the commit.
    Spilling,
    /// Partly inside a savepoint that is rolled back.
    Savepoint,
    /// A table created or dropped.
    Schema,
    /// One row of the [`steps`], and nothing else.
    Step,
}

const SHAPES: [(Shape, u64); 6] = [
    (Shape::Small, 50),
    (Shape::Medium, 26),
    (Shape::Large, 4),
    (Shape::Spilling, 8),
    (Shape::Savepoint, 10),
    (Shape::Schema, 2),
];

/// A writer: its rows, its choices, its ledger.
pub struct Writer<L = Ledger> {
    id: WriterId,
    random: Random,
    ledger: L,
    lie: Option<Lie>,
    shapes: &'static [(Shape, u64)],
    /// Whether the database has steps, once that is known.
    has_steps: Option<bool>,
}

impl<L: Witness> Writer<L> {
    /// A writer that appends to `ledger`.
    pub fn new(id: WriterId, seed: u64, ledger: L, lie: Option<Lie>) -> Self {
        Self {
            id,
            random: Random::new(seed),
            ledger,
            lie,
            shapes: &SHAPES,
            has_steps: None,
        }
    }

    /// The same with transactions of other shapes, each drawn as often as its weight says.
    pub fn with_shapes(mut self, shapes: &'static [(Shape, u64)]) -> Self {
        if !shapes.is_empty() {
            self.shapes = shapes;
        }
        self
    }

    /// Its choices.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// Runs one transaction to its commit. Sometimes it is rolled back on purpose, which counts as
    /// a success, too.
    ///
    /// # Errors
    /// Errors of SQLite, after a rollback.
    pub fn transaction(&mut self, session: &mut dyn Session) -> Result<(), TransactionError> {
        let weights: Vec<u64> = self.shapes.iter().map(|(_, weight)| *weight).collect();
        let shape = self.shapes[self.random.weighted(&weights)].0;
        if shape == Shape::Spilling {
            session.run("PRAGMA cache_size=12", &[])?;
        }
        let result = self.run_shape(session, shape);
        if shape == Shape::Spilling {
            session.run("PRAGMA cache_size=-2000", &[])?;
        }
        if result.is_err() {
            // SQLite refuses this if it has already rolled back. The first error is the one to
            // report.
            let _ = session.run("ROLLBACK", &[]);
        }
        result
    }

    fn run_shape(
        &mut self,
        session: &mut dyn Session,
        shape: Shape,
    ) -> Result<(), TransactionError> {
        // A deferred transaction meets BUSY_SNAPSHOT; an immediate one waits for its turn.
        let begin = if self.random.one_in(10) {
            "BEGIN"
        } else {
            "BEGIN IMMEDIATE"
        };
        session.run(begin, &[])?;
        if shape == Shape::Step {
            return self.step(session);
        }
        let mut totals = self.read_totals(session)?;
        self.change_items(session, shape, &mut totals)?;
        // This rollback must undo the frames that have already reached the log.
        let odds = if shape == Shape::Spilling { 4 } else { 25 };
        if self.random.one_in(odds) {
            return Ok(session.run("ROLLBACK", &[])?);
        }
        if self.lie == Some(Lie::HalfCommit) {
            session.run("COMMIT", &[])?;
            session.run("BEGIN IMMEDIATE", &[])?;
        }
        let commit = self.close_books(session, totals)?;
        self.commit(session, &commit)
    }

    fn step(&mut self, session: &mut dyn Session) -> Result<(), TransactionError> {
        let (tick, chain) = self.position(session)?;
        let step = steps::next(tick, chain);
        steps::make(session, step)?;
        if self.random.one_in(25) {
            return Ok(session.run("ROLLBACK", &[])?);
        }
        let commit = Commit {
            tick: Tick(step.0),
            writer: self.id,
            seq: Seq(0),
            chain: step.1,
        };
        self.commit(session, &commit)
    }

    /// The tick and the chain of the newest commit or step.
    fn position(&mut self, session: &mut dyn Session) -> Result<(i64, i64), SqlError> {
        let rows = session.rows("SELECT tick, chain FROM clock", &[])?;
        let last = rows
            .first()
            .map_or((0, 0), |row| (integer(row, 0), integer(row, 1)));
        // Another writer may have made them.
        let has_steps = match self.has_steps {
            Some(has_steps) => has_steps,
            None => *self.has_steps.insert(steps::are_there(session)?),
        };
        match has_steps {
            true => Ok(last.max(steps::newest(session)?)),
            false => Ok(last),
        }
    }

    fn read_totals(&self, session: &mut dyn Session) -> Result<Totals, SqlError> {
        let sql = "SELECT seq, items, sum FROM totals WHERE writer = ?1";
        let rows = session.rows(sql, &[self.id_value()])?;
        Ok(rows.first().map_or(Totals::EMPTY, |row| Totals {
            seq: Seq(integer(row, 0)),
            items: integer(row, 1),
            sum: integer(row, 2),
        }))
    }

    fn change_items(
        &mut self,
        session: &mut dyn Session,
        shape: Shape,
        totals: &mut Totals,
    ) -> Result<(), SqlError> {
        match shape {
            Shape::Small | Shape::Step => self.change_some(session, totals, 1, (10, 300)),
            Shape::Medium => {
                let count = self.random.between(2, 8);
                self.change_some(session, totals, count, (50, 3000))
            }
            Shape::Large => self.change_some(session, totals, 1, (15_000, 90_000)),
            Shape::Spilling => {
                let count = self.random.between(15, 30);
                self.change_some(session, totals, count, (2000, 9000))
            }
            Shape::Savepoint => {
                self.change_some(session, totals, 2, (50, 1500))?;
                self.inside_savepoint(session, totals)?;
                self.change_some(session, totals, 1, (50, 1500))
            }
            Shape::Schema => {
                let table = format!("extra_{}", self.id.0);
                let verb = if self.random.one_in(2) {
                    format!("CREATE TABLE IF NOT EXISTS {table}(a, b UNIQUE)")
                } else {
                    format!("DROP TABLE IF EXISTS {table}")
                };
                session.run(&verb, &[])?;
                self.change_some(session, totals, 1, (10, 300))
            }
        }
    }

    fn inside_savepoint(
        &mut self,
        session: &mut dyn Session,
        totals: &mut Totals,
    ) -> Result<(), SqlError> {
        session.run("SAVEPOINT inner_work", &[])?;
        let mut inner = *totals;
        let count = self.random.between(1, 6);
        self.change_some(session, &mut inner, count, (50, 6000))?;
        if self.random.one_in(2) {
            session.run("ROLLBACK TO inner_work", &[])?;
        } else {
            *totals = inner;
        }
        session.run("RELEASE inner_work", &[])
    }

    fn change_some(
        &mut self,
        session: &mut dyn Session,
        totals: &mut Totals,
        count: u64,
        sizes: (u64, u64),
    ) -> Result<(), SqlError> {
        for _ in 0..count {
            let id = i64::from(self.id.0) * 1_000_000 + self.random.below(SLOTS) as i64;
            let sql = "SELECT digest, length(body) FROM items WHERE id = ?1";
            let rows = session.rows(sql, &[Value::Integer(id)])?;
            match rows.first() {
                None => self.insert(session, totals, id, sizes)?,
                Some(row) => {
                    totals.sum -= integer(row, 0);
                    self.change_existing(session, totals, id, integer(row, 1) as usize, sizes)?;
                }
            }
        }
        Ok(())
    }

    fn new_content(&mut self, id: i64, sizes: (u64, u64)) -> (String, Vec<u8>, i64) {
        let size = self.random.between(sizes.0, sizes.1) as usize;
        let name = format!("{:08x}-{id}", self.random.next() as u32);
        let body = self.random.bytes(size);
        let digest = item_digest(id, self.id, &name, &body);
        (name, body, digest)
    }

    fn insert(
        &mut self,
        session: &mut dyn Session,
        totals: &mut Totals,
        id: i64,
        sizes: (u64, u64),
    ) -> Result<(), SqlError> {
        let (name, body, digest) = self.new_content(id, sizes);
        totals.items += 1;
        totals.sum += digest;
        let values = [
            Value::Integer(id),
            self.id_value(),
            Value::Text(name),
            Value::Blob(body),
            Value::Integer(digest),
        ];
        session.run("INSERT INTO items VALUES(?1, ?2, ?3, ?4, ?5)", &values)
    }

    /// Updates or deletes item `id`. The totals no longer include its digest.
    fn change_existing(
        &mut self,
        session: &mut dyn Session,
        totals: &mut Totals,
        id: i64,
        length: usize,
        sizes: (u64, u64),
    ) -> Result<(), SqlError> {
        match self.random.below(10) {
            0..3 => {
                totals.items -= 1;
                session.run("DELETE FROM items WHERE id = ?1", &[Value::Integer(id)])
            }
            3 if length > 0 => self.change_in_place(session, totals, id, length),
            _ => {
                let (name, body, digest) = self.new_content(id, sizes);
                totals.sum += digest;
                let sql = "UPDATE items SET name = ?2, body = ?3, digest = ?4 WHERE id = ?1";
                let values = [
                    Value::Integer(id),
                    Value::Text(name),
                    Value::Blob(body),
                    Value::Integer(digest),
                ];
                session.run(sql, &values)
            }
        }
    }

    /// Overwrites part of the item's BLOB through incremental I/O.
    fn change_in_place(
        &mut self,
        session: &mut dyn Session,
        totals: &mut Totals,
        id: i64,
        length: usize,
    ) -> Result<(), SqlError> {
        let offset = self.random.below(length as u64) as usize;
        let size = self.random.between(1, (length - offset) as u64) as usize;
        let bytes = self.random.bytes(size);
        let range = BlobRange {
            table: "items",
            column: "body",
            rowid: id,
            offset,
        };
        session.overwrite_blob(range, &bytes)?;
        let rows = session.rows(
            "SELECT name, body FROM items WHERE id = ?1",
            &[Value::Integer(id)],
        )?;
        let Some([Value::Text(name), Value::Blob(body)]) = rows.first().map(Vec::as_slice) else {
            return Err(SqlError::of_code(
                0,
                format!("item {id} has vanished"),
                "SELECT",
            ));
        };
        let digest = item_digest(id, self.id, name, body);
        totals.sum += digest;
        let sql = "UPDATE items SET digest = ?2 WHERE id = ?1";
        session.run(sql, &[Value::Integer(id), Value::Integer(digest)])
    }

    /// Writes the data that let the snapshot prove itself: totals, commit, clock.
    fn close_books(
        &mut self,
        session: &mut dyn Session,
        mut totals: Totals,
    ) -> Result<Commit, SqlError> {
        let (last_tick, last_chain) = self.position(session)?;
        totals.seq = Seq(totals.seq.0 + 1);
        let (tick, digest) = (Tick(last_tick + 1), totals.digest(self.id));
        let chain = next_chain(last_chain, tick, digest);
        let commit = Commit {
            tick,
            writer: self.id,
            seq: totals.seq,
            chain,
        };
        let seq = Value::Integer(totals.seq.0);
        session.run(
            "INSERT OR REPLACE INTO totals VALUES(?1, ?2, ?3, ?4)",
            &[
                self.id_value(),
                seq.clone(),
                totals.items.into(),
                totals.sum.into(),
            ],
        )?;
        session.run(
            "INSERT INTO commits VALUES(?1, ?2, ?3, ?4, ?5)",
            &[
                tick.0.into(),
                self.id_value(),
                seq,
                digest.into(),
                chain.into(),
            ],
        )?;
        session.run(
            "UPDATE clock SET tick = ?1, chain = ?2",
            &[tick.0.into(), chain.into()],
        )?;
        Ok(commit)
    }

    fn commit(
        &mut self,
        session: &mut dyn Session,
        commit: &Commit,
    ) -> Result<(), TransactionError> {
        self.ledger.note(Event::Intent, commit)?;
        let lie = self.lie.filter(|lie| match lie {
            Lie::EarlyAcknowledgement => true,
            Lie::HalfCommit => false,
            Lie::DroppedCommit | Lie::UnknownCommit => self.random.one_in(100),
        });
        match lie {
            Some(Lie::EarlyAcknowledgement) => self.ledger.note(Event::Acknowledged, commit)?,
            Some(Lie::DroppedCommit) => {
                session.run("ROLLBACK", &[])?;
                return Ok(self.ledger.note(Event::Acknowledged, commit)?);
            }
            Some(Lie::UnknownCommit) => self.ledger.note(Event::Withdrawn, commit)?,
            Some(Lie::HalfCommit) | None => {}
        }
        match self.commit_patiently(session) {
            Ok(()) if lie.is_none() => Ok(self.ledger.note(Event::Acknowledged, commit)?),
            Ok(()) => Ok(()),
            Err(error) => {
                // A killed writer withdraws nothing: the commit's fate is in the database.
                if error.kind == SqlErrorKind::Busy && session.run("ROLLBACK", &[]).is_ok() {
                    self.ledger.note(Event::Withdrawn, commit)?;
                }
                Err(error.into())
            }
        }
    }

    /// In a rollback mode COMMIT is refused while others read, and may be called again.
    fn commit_patiently(&mut self, session: &mut dyn Session) -> Result<(), SqlError> {
        let deadline = Instant::now() + COMMIT_PATIENCE;
        loop {
            match session.run("COMMIT", &[]) {
                Err(error) if error.kind == SqlErrorKind::Busy && Instant::now() < deadline => {
                    std::thread::sleep(self.random.pause(Duration::from_millis(2)));
                }
                result => return result,
            }
        }
    }

    fn id_value(&self) -> Value {
        Value::Integer(i64::from(self.id.0))
    }

    /// Begins a transaction with many changes, spills it, and dies in the middle.
    ///
    /// # Errors
    /// Errors of SQLite, if it does not get that far.
    pub fn die_in_transaction(&mut self, session: &mut dyn Session) -> Result<(), SqlError> {
        session.run("PRAGMA cache_size=12", &[])?;
        session.run("BEGIN IMMEDIATE", &[])?;
        let mut totals = Totals::EMPTY;
        let count = self.random.between(5, 30);
        self.change_some(session, &mut totals, count, (2000, 9000))?;
        session.run("INSERT INTO scratch(junk) VALUES(randomblob(50000))", &[])?;
        session.die();
        Ok(())
    }
}
