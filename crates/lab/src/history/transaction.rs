//! A history as transactions: invocations with their completions.

use std::collections::HashMap;

use super::edn::{self, Edn};

/// An operation on a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Append(i64, i64),
    /// A read of a key, with the list if its result is known.
    Read(i64, Option<Vec<i64>>),
}

/// A transaction's known end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has committed.
    Ok,
    /// It has not.
    Fail,
    /// It may have committed, or may still do so.
    Info,
}

/// A transaction. Times are in the unit of the history's `:time`, or numbers of lines without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    pub process: i64,
    pub outcome: Outcome,
    pub invoked: u64,
    /// `None` if no completion is known.
    pub completed: Option<u64>,
    /// Those of the completion if it is `:ok`, otherwise those of the invocation.
    pub operations: Vec<Operation>,
    /// The worker's own number for it.
    pub seq: Option<u64>,
}

impl Transaction {
    /// Its appends: key and value.
    pub fn appends(&self) -> impl Iterator<Item = (i64, i64)> {
        self.operations
            .iter()
            .filter_map(|operation| match operation {
                Operation::Append(key, value) => Some((*key, *value)),
                Operation::Read(..) => None,
            })
    }

    pub fn has_appends(&self) -> bool {
        self.appends().next().is_some()
    }
}

/// A history that was read.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    pub transactions: Vec<Transaction>,
    /// Lines that are not a whole operation, as a kill leaves them.
    pub torn: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Invoke,
    Completion(Outcome),
}

struct Line {
    kind: Kind,
    process: i64,
    time: u64,
    operations: Vec<Operation>,
    seq: Option<u64>,
}

/// Reads a history with one operation a line. Operations of other processes than numbered ones, and
/// of other functions than `:txn`, are left out, as those of Jepsen's nemesis.
pub fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let mut open: HashMap<i64, usize> = HashMap::new();
    for (number, text) in text.lines().enumerate() {
        if text.trim().is_empty() {
            continue;
        }
        let Some(map) = edn::parse(text) else {
            parsed.torn += 1;
            continue;
        };
        if let Some(line) = line(&map, number as u64) {
            parsed.add(line, &mut open);
        }
    }
    parsed
}

impl Parsed {
    fn add(&mut self, line: Line, open: &mut HashMap<i64, usize>) {
        let index = match line.kind {
            Kind::Invoke => {
                open.insert(line.process, self.transactions.len());
                self.transactions.push(Transaction {
                    process: line.process,
                    outcome: Outcome::Info,
                    invoked: line.time,
                    completed: None,
                    operations: line.operations,
                    seq: line.seq,
                });
                return;
            }
            Kind::Completion(_) => open.remove(&line.process),
        };
        // A completion without its invocation says nothing about when it began.
        let Some(transaction) = index.and_then(|index| self.transactions.get_mut(index)) else {
            return;
        };
        if let Kind::Completion(outcome) = line.kind {
            transaction.outcome = outcome;
            if outcome != Outcome::Info {
                transaction.completed = Some(line.time);
            }
            if outcome == Outcome::Ok {
                transaction.operations = line.operations;
            }
        }
    }
}

fn line(map: &Edn, number: u64) -> Option<Line> {
    let is_transaction = map.get("f").is_none_or(|f| f.keyword() == Some("txn"));
    let kind = match map.get("type")?.keyword()? {
        "invoke" => Kind::Invoke,
        "ok" => Kind::Completion(Outcome::Ok),
        "fail" => Kind::Completion(Outcome::Fail),
        "info" => Kind::Completion(Outcome::Info),
        _ => return None,
    };
    let process = map.get("process")?.integer().filter(|_| is_transaction)?;
    let unsigned = |name| map.get(name)?.integer().map(|number: i64| number as u64);
    let operations = map.get("value")?.vector()?.iter().filter_map(operation);
    Some(Line {
        kind,
        process,
        time: unsigned("time").unwrap_or(number),
        operations: operations.collect(),
        seq: unsigned("seq"),
    })
}

fn operation(edn: &Edn) -> Option<Operation> {
    let [what, key, value] = edn.vector()? else {
        return None;
    };
    let key = key.integer()?;
    match what.keyword()? {
        "append" => Some(Operation::Append(key, value.integer()?)),
        "r" => {
            let list = value.vector();
            let list = list.map(|list| list.iter().filter_map(Edn::integer).collect());
            Some(Operation::Read(key, list))
        }
        _ => None,
    }
}

impl std::fmt::Display for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "T(process {}", self.process)?;
        match self.seq {
            Some(seq) => write!(f, ", {seq})"),
            None => write!(f, ", time {})", self.invoked),
        }
    }
}
