//! Which transactions overlapped so that their recorded results may rightly differ.
//!
//! A transaction sees another one's changes if that had committed before the call that took its
//! snapshot. If both calls overlapped when recorded, either may come first. The same holds for two
//! calls that take the write lock. In both cases the transaction *raced*, with all of its
//! statements. Other overlaps have the same results in either order: a reader's
//! snapshot stays while others commit.
//!
//! Only transactions on the same database race. Later transactions see its outcome. They did not
//! race themselves, and do not count here.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onewrite_record::event::{DONE, Outcome, ROW, UNKNOWN};
use onewrite_record::sql;

use super::Key;
use super::order::Interval;

/// Calls that are compared with later ones, of each database.
const MOST_RECENT: usize = 16_384;

/// Pragmas that write the database when they have a value.
const WRITING_PRAGMAS: &[&str] = &["user_version", "application_id", "incremental_vacuum"];

/// The effect of a statement on its transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It needs no snapshot: a deferred BEGIN, a COMMIT, a setting.
    None,
    /// As `None`, and the transaction's changes are gone.
    Undoes,
    /// It needs a snapshot.
    Reads,
    /// It needs the write lock.
    Writes,
}

/// Whether a transaction raced. A later event may show that it did.
#[derive(Clone, Debug, Default)]
pub struct Raced(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    raced: AtomicBool,
    statements: AtomicU64,
}

impl Raced {
    /// As far as the trace has been read.
    pub fn get(&self) -> bool {
        self.0.raced.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn set(&self) {
        self.0.raced.store(true, Ordering::Relaxed);
    }
}

/// The part of a call in its transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Snapshot,
    Lock,
    Commit,
}

struct Call {
    line: Key,
    role: Role,
    interval: Interval,
    raced: Raced,
}

#[derive(Default)]
struct Line {
    databases: Vec<Vec<u8>>,
    now: Option<Transaction>,
    /// Statements with rows that were not read yet.
    unfinished: HashSet<u64>,
}

#[derive(Default)]
struct Transaction {
    raced: Raced,
    has_snapshot: bool,
    has_lock: bool,
}

/// See the module.
#[derive(Default)]
pub struct Races {
    lines: HashMap<Key, Line>,
    /// Calls by database, in the order in which they returned.
    recent: HashMap<Vec<u8>, VecDeque<Call>>,
    /// Statements of transactions that raced.
    pub statements: u64,
}

impl Races {
    /// A connection uses a database.
    pub fn uses(&mut self, line: Key, database: &[u8]) {
        if !database.is_empty() {
            let known = &mut self.lines.entry(line).or_default().databases;
            if !known.iter().any(|one| one == database) {
                known.push(database.to_vec());
            }
        }
    }

    /// A connection is closed.
    pub fn forget(&mut self, line: Key) {
        self.lines.remove(&line);
    }

    /// Notes a run of a statement, or of a script with the number 0. Returns its transaction.
    pub fn run(
        &mut self,
        key: Key,
        statement: u64,
        effect: Effect,
        interval: Interval,
        outcome: &Outcome,
    ) -> Raced {
        let raced = self.goes_on(key, statement, effect, interval, outcome);
        raced.0.statements.fetch_add(1, Ordering::Relaxed);
        self.statements += u64::from(raced.get());
        raced
    }

    /// Notes a later part of a run.
    pub fn goes_on(
        &mut self,
        key: Key,
        statement: u64,
        effect: Effect,
        interval: Interval,
        outcome: &Outcome,
    ) -> Raced {
        let line = self.lines.entry(key).or_default();
        let mut transaction = line.now.take().unwrap_or_default();
        let raced = transaction.raced.clone();
        let mut roles = Vec::new();
        if matches!(effect, Effect::Reads | Effect::Writes) && !transaction.has_snapshot {
            transaction.has_snapshot = true;
            roles.push(Role::Snapshot);
        }
        if effect == Effect::Writes && !transaction.has_lock {
            transaction.has_lock = true;
            roles.push(Role::Lock);
        }
        match outcome.code {
            ROW => line.unfinished.insert(statement),
            _ => line.unfinished.remove(&statement),
        };
        let worked = matches!(outcome.code, 0 | ROW | DONE | UNKNOWN);
        if outcome.autocommit && transaction.has_lock {
            if worked && effect != Effect::Undoes {
                roles.push(Role::Commit);
            }
            transaction.has_lock = outcome.code == ROW;
        }
        if !outcome.autocommit || !line.unfinished.is_empty() {
            line.now = Some(transaction);
        }
        let databases = line.databases.clone();
        for role in roles {
            for database in &databases {
                let call = Call {
                    line: key,
                    role,
                    interval,
                    raced: raced.clone(),
                };
                self.meet(database, call);
            }
        }
        raced
    }

    /// Compares a call with those that overlapped it.
    fn meet(&mut self, database: &[u8], call: Call) {
        let recent = self.recent.entry(database.to_vec()).or_default();
        let mut both = Vec::new();
        let overlapped = recent
            .iter()
            .rev()
            .take_while(|other| other.interval.end >= call.interval.begin)
            .filter(|other| other.line != call.line && other.interval.begin <= call.interval.end);
        for other in overlapped {
            match (call.role, other.role) {
                (Role::Snapshot, Role::Commit) => both.push(call.raced.clone()),
                (Role::Commit, Role::Snapshot) => both.push(other.raced.clone()),
                (Role::Lock, Role::Lock) => both.extend([call.raced.clone(), other.raced.clone()]),
                _ => {}
            }
        }
        let later = recent
            .iter()
            .rev()
            .take_while(|other| other.interval.end > call.interval.end)
            .count();
        recent.insert(recent.len() - later, call);
        if recent.len() > MOST_RECENT {
            recent.pop_front();
        }
        for one in both {
            if !one.0.raced.swap(true, Ordering::Relaxed) {
                self.statements += one.0.statements.load(Ordering::Relaxed);
            }
        }
    }
}

/// The effect of a text with one statement or several.
pub fn effect_of(mut text: &[u8]) -> Effect {
    let mut most = Effect::None;
    while !text.is_empty() {
        let end = sql::statement_end(text).unwrap_or(text.len());
        let (one, rest) = text.split_at(end.clamp(1, text.len()));
        most = match (most, effect_of_one(one)) {
            (Effect::Writes, _) | (_, Effect::Writes) => Effect::Writes,
            (Effect::Reads, _) | (_, Effect::Reads) => Effect::Reads,
            (_, effect) => effect,
        };
        text = rest;
    }
    most
}

fn effect_of_one(text: &[u8]) -> Effect {
    let has = |words: &[&str]| sql::first_call(text, words).is_some();
    let if_has = |words: &[&str], otherwise| match has(words) {
        true => Effect::Writes,
        false => otherwise,
    };
    if let Some((name, has_value)) = sql::pragma(text) {
        return match has_value && WRITING_PRAGMAS.contains(&name.as_str()) {
            true => Effect::Writes,
            false => Effect::None,
        };
    }
    match sql::verb(text).as_str() {
        "BEGIN" => if_has(&["immediate", "exclusive"], Effect::None),
        "ROLLBACK" => match has(&["to"]) {
            true => Effect::None,
            false => Effect::Undoes,
        },
        "" | "COMMIT" | "END" | "SAVEPOINT" | "RELEASE" | "ATTACH" | "DETACH" => Effect::None,
        "SELECT" | "VALUES" | "EXPLAIN" => Effect::Reads,
        "WITH" => if_has(&["insert", "update", "delete", "replace"], Effect::Reads),
        _ => Effect::Writes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Key = (1, 1);
    const B: Key = (1, 2);

    fn races() -> Races {
        let mut races = Races::default();
        for key in [A, B] {
            races.uses(key, b"/app.db");
        }
        races
    }

    fn play(races: &mut Races, key: Key, text: &str, time: [u64; 2], autocommit: bool) -> Raced {
        let interval = Interval {
            begin: time[0],
            end: time[1],
        };
        let outcome = Outcome {
            code: DONE,
            autocommit,
            rows: None,
        };
        races.run(key, 1, effect_of(text.as_bytes()), interval, &outcome)
    }

    #[test]
    fn writers_race_where_they_look_for_the_lock_at_once() {
        let mut races = races();
        let first = play(&mut races, A, "INSERT INTO t VALUES (1)", [10, 20], true);
        let apart = play(&mut races, B, "INSERT INTO t VALUES (2)", [21, 30], true);
        assert!(!first.get() && !apart.get());
        let second = play(&mut races, A, "INSERT INTO t VALUES (3)", [29, 35], true);
        assert!(!first.get() && apart.get() && second.get());
        assert_eq!(races.statements, 2);
    }

    /// The second one waited for the lock. The first one could have been the one to wait.
    #[test]
    fn the_first_of_two_that_look_for_the_lock_at_once_races_too() {
        let mut races = races();
        let first = play(&mut races, A, "BEGIN IMMEDIATE", [10, 20], false);
        play(&mut races, A, "COMMIT", [40, 50], true);
        let second = play(&mut races, B, "BEGIN IMMEDIATE", [15, 55], false);
        assert!(first.get() && second.get());
        assert_eq!(races.statements, 3);
    }

    #[test]
    fn a_snapshot_races_with_a_commit_and_takes_its_transaction_along() {
        let mut races = races();
        play(&mut races, A, "BEGIN IMMEDIATE", [10, 11], false);
        play(&mut races, A, "INSERT INTO t VALUES (1)", [12, 13], false);
        // It sees nothing of the other, which has not begun to commit.
        let before = play(&mut races, B, "SELECT * FROM t", [12, 14], true);
        play(&mut races, B, "BEGIN", [15, 16], false);
        let during = play(&mut races, B, "SELECT * FROM t", [17, 19], false);
        let writer = play(&mut races, A, "COMMIT", [18, 30], true);
        let with_it = play(&mut races, B, "SELECT * FROM u", [40, 41], false);
        let ends = play(&mut races, B, "COMMIT", [42, 43], true);
        let after = play(&mut races, B, "SELECT * FROM t", [44, 45], true);
        assert!(during.get() && with_it.get() && ends.get());
        assert!(!before.get() && !writer.get() && !after.get());
        // BEGIN, both SELECT, COMMIT.
        assert_eq!(races.statements, 4);
    }

    #[test]
    fn what_is_rolled_back_or_in_another_database_races_with_no_reader() {
        let mut races = races();
        play(&mut races, A, "BEGIN", [10, 11], false);
        play(&mut races, A, "DELETE FROM t", [12, 13], false);
        play(&mut races, A, "ROLLBACK", [14, 20], true);
        assert!(!play(&mut races, B, "SELECT 1", [15, 16], true).get());
        races.uses((2, 1), b"/other.db");
        play(&mut races, A, "DELETE FROM t", [30, 40], true);
        assert!(!play(&mut races, (2, 1), "DELETE FROM t", [31, 41], true).get());
    }

    #[test]
    fn effects_are_those_of_the_text() {
        for (text, effect) in [
            ("begin", Effect::None),
            ("BEGIN EXCLUSIVE", Effect::Writes),
            ("ROLLBACK TO s", Effect::None),
            ("ROLLBACK", Effect::Undoes),
            ("PRAGMA foreign_keys=1", Effect::None),
            ("PRAGMA user_version=1", Effect::Writes),
            ("WITH a AS (SELECT 1) SELECT * FROM a", Effect::Reads),
            ("WITH a AS (SELECT 1) DELETE FROM t", Effect::Writes),
            ("SELECT 1; CREATE TABLE t (a); SELECT 2", Effect::Writes),
            ("SAVEPOINT s; SELECT 1;", Effect::Reads),
        ] {
            assert_eq!(effect_of(text.as_bytes()), effect, "{text}");
        }
    }
}
