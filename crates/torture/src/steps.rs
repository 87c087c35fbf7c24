//! Steps: commits that change a row each, and nothing else. The row is far from that of the step before.
//!
//! ```text
//! steps    a fixed number of rows: tick (of the last step in it), chain (up to there), body
//! ```
//! A step takes the next tick, as a commit of the [`model`](crate::model) does, and changes the row that
//! follows from the tick. Its digest follows from the tick, too. So the ticks that `commits` does not have
//! are steps, the newest of them is the largest in the table, and each row must have its last one.
//!
//! One writer makes all of them, and nobody verifies a part of such a history.

use crate::digest::Digest;
use crate::model::{Tick, next_chain, run_all};
use crate::session::{Session, SqlError, Value, integer};
use std::collections::BTreeMap;

/// The number of rows, some six to a page.
const ROWS: i64 = 240;
/// Bytes of a row's body.
const BODY: usize = 300;

/// The statements that create the table, if it is not there yet. Every second row goes, so that pages have
/// room.
const SCHEMA: [&str; 3] = [
    "CREATE TABLE IF NOT EXISTS steps(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, \
     chain INTEGER NOT NULL, body BLOB NOT NULL)",
    "INSERT OR IGNORE INTO steps WITH RECURSIVE rows(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM rows \
     WHERE id < 479) SELECT id, 0, 0, zeroblob(300) FROM rows",
    "DELETE FROM steps WHERE id % 2 = 1",
];

/// Creates the table, if it is not there yet.
///
/// # Errors
/// Errors of SQLite.
pub fn create(session: &mut dyn Session) -> Result<(), SqlError> {
    run_all(session, &SCHEMA)
}

/// A step in its row: its tick, and the chain up to it.
pub type Step = (i64, i64);

fn row_of(tick: i64) -> i64 {
    tick * 77 % ROWS * 2
}

fn digest(tick: i64) -> i64 {
    Digest::new(4).number(tick).wide()
}

fn body(tick: i64) -> Vec<u8> {
    let bytes = tick.to_le_bytes();
    bytes.iter().copied().cycle().take(BODY).collect()
}

/// The step after a commit or step with this tick and chain.
pub fn next(tick: i64, chain: i64) -> Step {
    (
        tick + 1,
        next_chain(chain, Tick(tick + 1), digest(tick + 1)),
    )
}

/// Whether the database has steps.
///
/// # Errors
/// Errors of SQLite.
pub fn are_there(session: &mut dyn Session) -> Result<bool, SqlError> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'steps'";
    let rows = session.rows(sql, &[])?;
    Ok(rows.first().is_some_and(|row| integer(row, 0) > 0))
}

/// Changes the row of a step.
///
/// # Errors
/// Errors of SQLite.
pub fn make(session: &mut dyn Session, (tick, chain): Step) -> Result<(), SqlError> {
    let values = [
        Value::Integer(row_of(tick)),
        tick.into(),
        chain.into(),
        Value::Blob(body(tick)),
    ];
    let sql = "UPDATE steps SET tick = ?2, chain = ?3, body = ?4 WHERE id = ?1";
    session.run(sql, &values)
}

/// The steps of a history, as they must be found.
#[derive(Debug, Default)]
pub struct Steps {
    rows: BTreeMap<i64, Step>,
}

impl Steps {
    /// Follows the history with steps up to a tick.
    pub fn follow(&mut self, from: Step, to: i64) -> Step {
        let mut last = from;
        while last.0 < to {
            last = next(last.0, last.1);
            self.rows.insert(row_of(last.0), last);
        }
        last
    }

    /// Compares them with the rows. Says what differs.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub fn differ(&self, session: &mut dyn Session) -> Result<Option<String>, SqlError> {
        let rows = session.rows("SELECT id, tick, chain, body FROM steps ORDER BY id", &[])?;
        if !rows.is_empty() && rows.len() as i64 != ROWS {
            return Ok(Some(format!("there are {} rows of steps", rows.len())));
        }
        for row in rows {
            let (id, found) = (integer(&row, 0), (integer(&row, 1), integer(&row, 2)));
            let expected = self.rows.get(&id).copied().unwrap_or((0, 0));
            let is_whole = row.get(3) == Some(&Value::Blob(body(found.0)));
            if found != expected || !is_whole {
                return Ok(Some(format!(
                    "row {id} has the step {found:?}, the last one in it is {expected:?}; its body is {}",
                    if is_whole { "right" } else { "another one" }
                )));
            }
        }
        Ok(None)
    }
}

/// The tick and chain of the newest step, (0, 0) if there is none.
///
/// # Errors
/// Errors of SQLite.
pub fn newest(session: &mut dyn Session) -> Result<Step, SqlError> {
    let rows = session.rows("SELECT max(tick), chain FROM steps", &[])?;
    let has_any = |row: &&crate::session::Row| row.first() != Some(&Value::Null);
    let newest = rows.first().filter(has_any);
    Ok(newest.map_or((0, 0), |row| (integer(row, 0), integer(row, 1))))
}
