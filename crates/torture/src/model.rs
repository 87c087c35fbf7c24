//! The database's content, and the invariant that lets every snapshot prove itself.
//!
//! ```text
//! clock    one row: tick (commits so far), chain (digest over all of them)
//! commits  one row a commit: tick, writer, seq (that writer's commits so far), digest, chain
//! totals   one row a writer: seq, items (how many), sum (of their digests)
//! items    rows with indexes and BLOBs, each with the digest of its content
//! ```
//! A transaction changes items of one writer, its totals and the clock, and appends to commits. In
//! every snapshot of whole transactions, in one order:
//!
//! - commits hold the ticks 1, 2, ... up to the clock's, and for each writer the seqs 1, 2, ...;
//! - each chain is the digest of the chain before it and of the commit; the last is the clock's;
//! - each writer's last commit digests its totals, and its totals are the sums of its items;
//! - these items are found through the table, whose rows match their digests, and through both
//!   indexes.

use crate::digest::Digest;
use crate::failure::{Failure, Promise};
use crate::session::{Row, Session, SqlError, Value, integer};
use crate::steps::{self, Steps};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// One of the writers; each has its own rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WriterId(pub u32);

/// Number of a commit in the database's one order; the first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tick(pub i64);

/// Number of a commit among those of its writer; the first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Seq(pub i64);

/// One commit, as a ledger records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Commit {
    /// Its position in the total order.
    pub tick: Tick,
    /// Its writer.
    pub writer: WriterId,
    /// Its position among that writer's commits.
    pub seq: Seq,
    /// Digest of the whole history up to and including it.
    pub chain: i64,
}

impl fmt::Display for Commit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tick,
            writer,
            seq,
            chain,
        } = self;
        write!(
            out,
            "tick {} (writer {}, seq {}, chain {chain:x})",
            tick.0, writer.0, seq.0
        )
    }
}

/// The statements that create the tables. Each of them may find its work done.
pub const SCHEMA: [&str; 9] = [
    "CREATE TABLE IF NOT EXISTS clock(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, \
     chain INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS commits(tick INTEGER PRIMARY KEY, writer INTEGER NOT NULL, \
     seq INTEGER NOT NULL, digest INTEGER NOT NULL, chain INTEGER NOT NULL)",
    "CREATE UNIQUE INDEX IF NOT EXISTS commits_by_writer ON commits(writer, seq)",
    "CREATE TABLE IF NOT EXISTS totals(writer INTEGER PRIMARY KEY, seq INTEGER NOT NULL, \
     items INTEGER NOT NULL, sum INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS items(id INTEGER PRIMARY KEY, writer INTEGER NOT NULL, \
     name TEXT NOT NULL, body BLOB NOT NULL, digest INTEGER NOT NULL)",
    "CREATE INDEX IF NOT EXISTS items_by_name ON items(name)",
    "CREATE INDEX IF NOT EXISTS items_by_writer ON items(writer, digest)",
    "CREATE TABLE IF NOT EXISTS scratch(id INTEGER PRIMARY KEY, junk BLOB)",
    "INSERT OR IGNORE INTO clock VALUES(1, 0, 0)",
];

/// Creates the tables that do not exist yet.
///
/// # Errors
/// Errors of SQLite.
pub fn create(session: &mut dyn Session) -> Result<(), SqlError> {
    run_all(session, &SCHEMA)
}

/// Runs statements in one transaction.
///
/// # Errors
/// Errors of SQLite.
pub fn run_all(session: &mut dyn Session, statements: &[&str]) -> Result<(), SqlError> {
    session.run("BEGIN IMMEDIATE", &[])?;
    let made = statements
        .iter()
        .try_for_each(|sql| session.run(sql, &[]))
        .and_then(|()| session.run("COMMIT", &[]));
    if made.is_err() {
        // The first error is the one to report.
        let _ = session.run("ROLLBACK", &[]);
    }
    made
}

/// The digest of an item's content.
pub fn item_digest(id: i64, writer: WriterId, name: &str, body: &[u8]) -> i64 {
    Digest::new(1)
        .number(id)
        .number(i64::from(writer.0))
        .bytes(name.as_bytes())
        .bytes(body)
        .summable()
}

/// A writer's row in `totals`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// That writer's commits so far.
    pub seq: Seq,
    /// The number of its items.
    pub items: i64,
    /// The sum of their digests.
    pub sum: i64,
}

impl Totals {
    /// The totals of a writer before its first commit.
    pub const EMPTY: Self = Self {
        seq: Seq(0),
        items: 0,
        sum: 0,
    };

    /// The digest that the writer's commit carries.
    pub fn digest(&self, writer: WriterId) -> i64 {
        Digest::new(2)
            .number(i64::from(writer.0))
            .number(self.seq.0)
            .number(self.items)
            .number(self.sum)
            .wide()
    }
}

/// The chain after a commit with `digest` at `tick`.
pub fn next_chain(chain: i64, tick: Tick, digest: i64) -> i64 {
    Digest::new(3)
        .number(chain)
        .number(tick.0)
        .number(digest)
        .wide()
}

/// How far a reader has verified the history.
#[derive(Debug, Clone, Default)]
pub struct Verified {
    tick: i64,
    chain: i64,
    writers: BTreeMap<WriterId, LastCommit>,
}

#[derive(Debug, Clone, Copy)]
struct LastCommit {
    seq: Seq,
    digest: i64,
}

impl Verified {
    /// The last tick verified.
    pub fn tick(&self) -> Tick {
        Tick(self.tick)
    }

    /// The chain up to it.
    pub fn chain(&self) -> i64 {
        self.chain
    }
}

/// Why a snapshot could not be verified.
#[derive(Debug)]
pub enum SnapshotError {
    /// SQLite failed.
    Sql(SqlError),
    /// The snapshot is not whole.
    Broken(Failure),
}

impl From<SqlError> for SnapshotError {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

fn broken(detail: String) -> SnapshotError {
    SnapshotError::Broken(Failure::broken(Promise::SnapshotsAreWhole, detail))
}

/// Verifies the snapshot of the session's open transaction, continuing after `known`, and returns
/// the commits since then. With [`steps`], `known` must be a new one.
///
/// # Errors
/// Errors of SQLite; [`Promise::SnapshotsAreWhole`]; [`Promise::SnapshotsAreFresh`] if the snapshot
/// is older than `known`.
pub fn verify_snapshot(
    session: &mut dyn Session,
    known: &mut Verified,
) -> Result<BTreeMap<Tick, Commit>, SnapshotError> {
    let clock = session.rows("SELECT tick, chain FROM clock", &[])?;
    let [clock] = clock.as_slice() else {
        return Err(broken(format!("the clock has {} rows", clock.len())));
    };
    let (tick, chain) = (integer(clock, 0), integer(clock, 1));
    if tick < known.tick {
        let detail = format!("a snapshot at tick {tick} after one at tick {}", known.tick);
        return Err(SnapshotError::Broken(Failure::broken(
            Promise::SnapshotsAreFresh,
            detail,
        )));
    }
    let has_steps = steps::are_there(session)?;
    let mut steps = has_steps.then(Steps::default);
    let commits = verify_commits(session, known, &mut steps)?;
    if (known.tick, known.chain) != (tick, chain) {
        let detail = format!(
            "the commits end at tick {} with chain {:x}, the clock says tick {tick}, chain {chain:x}",
            known.tick, known.chain
        );
        return Err(broken(detail));
    }
    if let Some(steps) = &mut steps {
        verify_steps(session, known, steps)?;
    }
    verify_items(session, &known.writers)?;
    Ok(commits)
}

/// Follows the history to its newest step, and compares each step that is still there.
fn verify_steps(
    session: &mut dyn Session,
    known: &mut Verified,
    steps: &mut Steps,
) -> Result<(), SnapshotError> {
    let (newest, _) = steps::newest(session)?;
    (known.tick, known.chain) = steps.follow((known.tick, known.chain), newest);
    match steps.differ(session)? {
        None => Ok(()),
        Some(detail) => Err(broken(detail)),
    }
}

/// Reads the commits after `known` and moves `known` on. Ticks between them are steps, if there are any.
fn verify_commits(
    session: &mut dyn Session,
    known: &mut Verified,
    steps: &mut Option<Steps>,
) -> Result<BTreeMap<Tick, Commit>, SnapshotError> {
    let sql = "SELECT tick, writer, seq, digest, chain FROM commits WHERE tick >= ?1 ORDER BY tick";
    // Reads the last known commit again. It would differ if the history had been exchanged.
    let from = known.tick.max(1);
    let mut commits = BTreeMap::new();
    for row in session.rows(sql, &[Value::Integer(from)])? {
        let commit = Commit {
            tick: Tick(integer(&row, 0)),
            writer: WriterId(integer(&row, 1) as u32),
            seq: Seq(integer(&row, 2)),
            chain: integer(&row, 4),
        };
        if commit.tick.0 == known.tick {
            if commit.chain != known.chain {
                let detail = format!("history has changed: {commit} had chain {:x}", known.chain);
                return Err(broken(detail));
            }
            continue;
        }
        if let Some(steps) = steps {
            let from = (known.tick, known.chain);
            (known.tick, known.chain) = steps.follow(from, commit.tick.0 - 1);
        }
        verify_next(known, &commit, integer(&row, 3)).map_err(broken)?;
        commits.insert(commit.tick, commit);
    }
    Ok(commits)
}

fn verify_next(known: &mut Verified, commit: &Commit, digest: i64) -> Result<(), String> {
    let last_seq = known
        .writers
        .get(&commit.writer)
        .map_or(0, |last| last.seq.0);
    if commit.tick.0 != known.tick + 1 || commit.seq.0 != last_seq + 1 {
        return Err(format!(
            "{commit} follows tick {} and, of its writer, seq {last_seq}",
            known.tick
        ));
    }
    let chain = next_chain(known.chain, commit.tick, digest);
    if chain != commit.chain {
        return Err(format!("{commit} should have chain {chain:x}"));
    }
    known.tick = commit.tick.0;
    known.chain = chain;
    known.writers.insert(
        commit.writer,
        LastCommit {
            seq: commit.seq,
            digest,
        },
    );
    Ok(())
}

/// Compares items with totals, and totals with the last commits.
fn verify_items(
    session: &mut dyn Session,
    writers: &BTreeMap<WriterId, LastCommit>,
) -> Result<(), SnapshotError> {
    let mut totals = read_totals(session)?;
    let by_table = add_up_table(session)?;
    let index_sql = "SELECT writer, count(*), sum(digest) FROM items \
                     INDEXED BY items_by_writer GROUP BY writer";
    let by_index: BTreeMap<_, _> = session
        .rows(index_sql, &[])?
        .iter()
        .map(|row| counted(row, 0))
        .collect();
    for (writer, last) in writers {
        let totals = totals.remove(writer).unwrap_or(Totals::EMPTY);
        if totals.seq != last.seq || totals.digest(*writer) != last.digest {
            let detail = format!(
                "writer {} has {totals:?}, which is not what its last commit, seq {}, digests",
                writer.0, last.seq.0
            );
            return Err(broken(detail));
        }
        let expected = (totals.items, totals.sum);
        for (way, found) in [("table", &by_table), ("index", &by_index)] {
            let found = found.get(writer).copied().unwrap_or((0, 0));
            if found != expected {
                let detail = format!(
                    "writer {}: count and sum by the {way} {found:?}, by the totals {expected:?}",
                    writer.0
                );
                return Err(broken(detail));
            }
        }
    }
    if let Some((writer, totals)) = totals.pop_first() {
        return Err(broken(format!(
            "writer {} has {totals:?} but no commit",
            writer.0
        )));
    }
    let strays = by_table
        .keys()
        .chain(by_index.keys())
        .find(|writer| !writers.contains_key(writer));
    if let Some(writer) = strays {
        return Err(broken(format!(
            "writer {} has items but no commit",
            writer.0
        )));
    }
    verify_names(session, by_table.values().map(|(count, _)| count).sum())
}

fn counted(row: &Row, first: usize) -> (WriterId, (i64, i64)) {
    (
        WriterId(integer(row, first) as u32),
        (integer(row, first + 1), integer(row, first + 2)),
    )
}

fn read_totals(session: &mut dyn Session) -> Result<BTreeMap<WriterId, Totals>, SqlError> {
    let rows = session.rows("SELECT writer, seq, items, sum FROM totals", &[])?;
    let totals = |row: &Row| {
        let totals = Totals {
            seq: Seq(integer(row, 1)),
            items: integer(row, 2),
            sum: integer(row, 3),
        };
        (WriterId(integer(row, 0) as u32), totals)
    };
    Ok(rows.iter().map(totals).collect())
}

/// Reads every item, overflow pages and all, and compares it with its digest.
fn add_up_table(
    session: &mut dyn Session,
) -> Result<BTreeMap<WriterId, (i64, i64)>, SnapshotError> {
    let mut sums = BTreeMap::new();
    let sql = "SELECT id, writer, name, body, digest FROM items NOT INDEXED";
    for row in session.rows(sql, &[])? {
        let (id, writer) = (integer(&row, 0), WriterId(integer(&row, 1) as u32));
        let (Some(Value::Text(name)), Some(Value::Blob(body))) = (row.get(2), row.get(3)) else {
            return Err(broken(format!(
                "item {id} has a name or body of another type"
            )));
        };
        let digest = item_digest(id, writer, name, body);
        if digest != integer(&row, 4) {
            let detail = format!(
                "item {id} of {} bytes has digest {digest:x}, its row says {:x}",
                body.len(),
                integer(&row, 4)
            );
            return Err(broken(detail));
        }
        let sum: &mut (i64, i64) = sums.entry(writer).or_default();
        sum.0 += 1;
        sum.1 += digest;
    }
    Ok(sums)
}

/// The index of names leads to every item, and its names to their owners.
fn verify_names(session: &mut dyn Session, items: i64) -> Result<(), SnapshotError> {
    let sql = "SELECT count(*), count(DISTINCT name) FROM items INDEXED BY items_by_name \
               WHERE name > ''";
    let rows = session.rows(sql, &[])?;
    let found = rows
        .first()
        .map_or((0, 0), |row| (integer(row, 0), integer(row, 1)));
    if found != (items, items) {
        let detail =
            format!("the index of names holds {found:?} (distinct) names of {items} items");
        return Err(broken(detail));
    }
    Ok(())
}
