//! The dependencies between committed transactions, as Adya and Elle name them.
//!
//! - `ww`: the second overwrites (appends after) what the first wrote.
//! - `wr`: the second reads what the first wrote.
//! - `rw`: the second overwrites what the first read.
//! - `rt`: the second began after the first had ended.

use std::collections::HashSet;

use super::lists::Lists;
use super::transaction::{Outcome, Transaction};

/// The kind of a dependency; a bit of a [`Kinds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ww = 1,
    Wr = 2,
    Rw = 4,
    Rt = 8,
}

/// A set of kinds.
pub type Kinds = u8;

/// A dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    pub from: usize,
    pub to: usize,
    pub kind: Kind,
    /// The key, of the kinds that have one.
    pub key: i64,
}

/// All dependencies, by the transaction that they lead from.
#[derive(Debug)]
pub struct Graph(pub Vec<Vec<Edge>>);

/// Builds the graph. Transactions are numbers of the history's.
pub fn build(history: &[Transaction], lists: &Lists) -> Graph {
    let mut graph = Graph(vec![Vec::new(); history.len()]);
    for (key, order) in &lists.orders {
        graph.add_order(*key, order, lists);
    }
    for read in &lists.reads {
        graph.add_read(read, lists);
    }
    graph.add_times(history, lists);
    graph
}

impl Graph {
    fn add(&mut self, from: usize, to: usize, kind: Kind, key: i64) {
        let edge = Edge {
            from,
            to,
            kind,
            key,
        };
        if from != to && !self.0[from].contains(&edge) {
            self.0[from].push(edge);
        }
    }

    fn add_order(&mut self, key: i64, order: &[i64], lists: &Lists) {
        let writer = |value: &i64| lists.writers.get(&(key, *value)).copied();
        for pair in order.windows(2) {
            if let (Some(from), Some(to)) = (writer(&pair[0]), writer(&pair[1])) {
                self.add(from, to, Kind::Ww, key);
            }
        }
        // A committed append that no read shows comes after all those that one shows.
        let Some(last) = order.last().and_then(writer) else {
            return;
        };
        for (_, unseen) in lists.unseen.get(&key).into_iter().flatten() {
            self.add(last, *unseen, Kind::Ww, key);
        }
    }

    fn add_read(&mut self, read: &super::lists::Read, lists: &Lists) {
        let key = read.key;
        let order = lists.orders.get(&key).map_or(&[][..], Vec::as_slice);
        let writer = |value: &i64| lists.writers.get(&(key, *value)).copied();
        let before = read.length.checked_sub(1).and_then(|last| order.get(last));
        if let Some(before) = before.and_then(writer) {
            self.add(before, read.transaction, Kind::Wr, key);
        }
        match order.get(read.length).and_then(writer) {
            Some(next) => self.add(read.transaction, next, Kind::Rw, key),
            None => {
                for (_, unseen) in lists.unseen.get(&key).into_iter().flatten() {
                    self.add(read.transaction, *unseen, Kind::Rw, key);
                }
            }
        }
    }

    /// Adds the order of time. Of dependencies that follow from others most are left out.
    fn add_times(&mut self, history: &[Transaction], lists: &Lists) {
        let mut moments = Vec::new();
        for number in committed(history, lists) {
            let transaction = &history[number];
            moments.push((transaction.invoked, false, number));
            let end = transaction.completed;
            if let Some(end) = end.filter(|_| transaction.outcome == Outcome::Ok) {
                moments.push((end, true, number));
            }
        }
        // Of the same moment, beginnings come first: nothing is known of their order.
        moments.sort_unstable();
        // Those that have ended, and after whose end none has begun and ended.
        let mut last: Vec<usize> = Vec::new();
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); history.len()];
        for (_, is_end, number) in moments {
            if is_end {
                last.retain(|one| !before[number].contains(one));
                last.push(number);
            } else {
                for from in &last {
                    self.add(*from, number, Kind::Rt, 0);
                }
                before[number].clone_from(&last);
            }
        }
    }
}

/// The transactions that have committed: those that say so, and those of which a read shows it.
fn committed(history: &[Transaction], lists: &Lists) -> Vec<usize> {
    let orders = lists.orders.iter();
    let shown = orders.flat_map(|(key, order)| order.iter().map(move |value| (*key, *value)));
    let mut all: HashSet<usize> = shown
        .filter_map(|append| lists.writers.get(&append).copied())
        .collect();
    let ok = history.iter().enumerate();
    all.extend(
        ok.filter(|(_, one)| one.outcome == Outcome::Ok)
            .map(|(number, _)| number),
    );
    all.into_iter().collect()
}
