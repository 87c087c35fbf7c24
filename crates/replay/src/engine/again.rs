//! Transactions that are rolled back, and played again from their beginning.
//!
//! In WAL modes a transaction that reads first and writes later keeps its snapshot. If another one
//! commits in between, SQLite refuses the write (`SQLITE_BUSY_SNAPSHOT`), and no waiting helps.
//! Applications roll back and try again. `threads` does the same.
//!
//! For that a thread keeps the events of a transaction until it has the write lock, which is never
//! refused afterwards. Their results were compared when they were played first, and they are not
//! compared again.

use super::{Job, Key, Part, Player, when_of};
use crate::sqlite::Transaction;

/// The most attempts of one transaction. Each one was refused because another transaction had
/// committed, so only as many transactions can refuse it.
pub(super) const MOST_ATTEMPTS: u32 = 1_000;

/// Bytes of a transaction's events. A longer one is not played again.
const MOST_BYTES: usize = 64 << 20;

/// A transaction without the write lock, from its beginning.
#[derive(Debug, Default)]
pub(super) struct Begun {
    jobs: Vec<Job>,
    bytes: usize,
    /// Statements that the program has finalized since.
    finalized: Vec<Key>,
    refused: u32,
}

/// The next step after a refusal.
pub(super) enum Again {
    /// These events are played again, and then the present one.
    Jobs(Vec<Job>),
    /// It was refused too often.
    TooOften,
}

impl Player<'_> {
    /// Notes where a transaction begins, before a statement of the present event.
    pub(super) fn note_beginning(&self, key: Key, part: &mut Part) {
        let opened = self.connections.get(&key);
        if opened.is_some_and(|opened| opened.connection.transaction() == Transaction::None) {
            part.beginning = Some(part.here());
        }
    }

    /// Keeps an event that was played, if its transaction may have to be played again.
    pub(super) fn keep(&mut self, key: Key, mut job: Job, bytes: usize) {
        let opened = self.connections.get(&key);
        let state = opened.map(|opened| opened.connection.transaction());
        if state != Some(Transaction::Reads) {
            return self.forget(key);
        }
        let beginning = std::mem::take(&mut job.part).beginning;
        if let Some(before) = beginning {
            self.forget(key);
            job.part = before.into();
            self.begun.insert(key, Begun::default());
        }
        let Some(begun) = self.begun.get_mut(&key) else {
            return;
        };
        if when_of(&job.event).is_none() {
            return;
        }
        begun.jobs.push(job);
        begun.bytes += bytes;
        if begun.bytes > MOST_BYTES {
            self.forget(key);
        }
    }

    fn forget(&mut self, key: Key) {
        for statement in self.begun.remove(&key).unwrap_or_default().finalized {
            self.statements.remove(&statement);
        }
    }

    /// The program finalizes a statement. It stays while its transaction may be played again.
    pub(super) fn finalize(&mut self, key: Key) {
        let known = self.statements.get(&key);
        let begun = known.and_then(|known| self.begun.get_mut(&known.connection));
        match (begun, known.and_then(|known| known.statement.as_ref())) {
            (Some(begun), Some(statement)) => {
                statement.reset();
                begun.finalized.push(key);
            }
            _ => {
                self.statements.remove(&key);
            }
        }
    }

    /// Whether the present event was refused because its transaction's snapshot is old.
    pub(super) fn is_refused(&self, key: Key, job: &Job) -> bool {
        let has_beginning = job.part.beginning.is_some() || self.begun.contains_key(&key);
        let opened = self.connections.get(&key);
        has_beginning && opened.is_some_and(|opened| opened.connection.is_outdated())
    }

    /// Rolls the transaction back. Returns its events before the present one.
    ///
    /// # Errors
    /// The ROLLBACK failed.
    pub(super) fn begin_again(&mut self, key: Key, job: &mut Job) -> Result<Again, String> {
        let begun = self.begun.entry(key).or_default();
        begun.refused += 1;
        if begun.refused > MOST_ATTEMPTS {
            return Ok(Again::TooOften);
        }
        // A script that began the transaction itself is played again from there.
        let (part, jobs) = match job.part.beginning {
            Some(before) => (Part::from(before), Vec::new()),
            None => (Part::default(), std::mem::take(&mut begun.jobs)),
        };
        self.played.statements -= job.part.statements - part.statements;
        job.part = part;
        // A statement that was read half-way would keep the snapshot.
        let known = self.statements.values();
        for known in known.filter(|known| known.connection == key) {
            known
                .statement
                .iter()
                .for_each(|statement| statement.reset());
        }
        if let Some(opened) = self.connections.get(&key) {
            let done = opened.connection.ask("ROLLBACK");
            done.map_err(|failure| format!("ROLLBACK: {failure}"))?;
        }
        self.played.tried_again += 1;
        Ok(Again::Jobs(jobs))
    }

    /// Keeps the events that were played again for the next refusal.
    pub(super) fn keep_again(&mut self, key: Key, jobs: Vec<Job>) {
        if let Some(begun) = self.begun.get_mut(&key) {
            begun.jobs = jobs;
        }
    }
}
