//! The order of each key's appends, and the anomalies that the lists alone prove.
//!
//! Elle (Kingsbury and Alvaro, VLDB 2020), section 4: values are unique within a key, and a read
//! shows a list. So one read proves the whole order of the appends before it, and who made them.

use std::collections::{HashMap, HashSet};

use super::report::Report;
use super::transaction::{Operation, Outcome, Transaction};

/// A committed transaction's first read of a key that it has not appended to before.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    pub transaction: usize,
    pub key: i64,
    /// The length of the list that it saw.
    pub length: usize,
}

/// See the module. Transactions are numbers of the history's.
#[derive(Debug, Default)]
pub struct Lists {
    /// The longest list that was read of each key.
    pub orders: HashMap<i64, Vec<i64>>,
    /// Who appended a value to a key.
    pub writers: HashMap<(i64, i64), usize>,
    /// Reads whose list is a prefix of the key's order.
    pub reads: Vec<Read>,
    /// Acknowledged appends that no read shows, by key.
    pub unseen: HashMap<i64, Vec<(i64, usize)>>,
}

/// Infers the orders, and reports what contradicts.
pub fn infer(history: &[Transaction], report: &mut Report) -> Lists {
    let mut lists = Lists::default();
    lists.note_writers(history, report);
    for (_, reader) in committed(history) {
        check_internal(reader, report);
        for (key, list) in reads(reader) {
            lists.check_elements(history, reader, key, list, report);
            let order = lists.orders.entry(key).or_default();
            if order.len() < list.len() {
                list.clone_into(order);
            }
        }
    }
    lists.check_prefixes(history, report);
    lists.note_unseen(history);
    lists.check_lost(history, report);
    lists.check_updates(history, report);
    lists
}

fn committed(history: &[Transaction]) -> impl Iterator<Item = (usize, &Transaction)> {
    let all = history.iter().enumerate();
    all.filter(|(_, one)| one.outcome == Outcome::Ok)
}

fn reads(transaction: &Transaction) -> impl Iterator<Item = (i64, &Vec<i64>)> {
    let operations = transaction.operations.iter();
    operations.filter_map(|operation| match operation {
        Operation::Read(key, Some(list)) => Some((*key, list)),
        _ => None,
    })
}

/// A transaction sees what it has read before, and its own appends.
fn check_internal(transaction: &Transaction, report: &mut Report) {
    // The known part of a key's list: all of it, or its end alone.
    let mut known: HashMap<i64, (bool, Vec<i64>)> = HashMap::new();
    for operation in &transaction.operations {
        match operation {
            Operation::Append(key, value) => known.entry(*key).or_default().1.push(*value),
            Operation::Read(_, None) => {}
            Operation::Read(key, Some(list)) => {
                let (is_whole, end) = known.get(key).cloned().unwrap_or_default();
                let is_right = match is_whole {
                    true => *list == end,
                    false => list.ends_with(&end),
                };
                if !is_right {
                    report.note("internal", || {
                        vec![format!("{transaction}: key {key} must end in {end:?}")]
                    });
                }
                known.insert(*key, (true, list.clone()));
            }
        }
    }
}

impl Lists {
    fn note_writers(&mut self, history: &[Transaction], report: &mut Report) {
        for (number, writer) in history.iter().enumerate() {
            for (key, value) in writer.appends() {
                if let Some(other) = self.writers.insert((key, value), number) {
                    let other = &history[other];
                    report.note("duplicate-append", || {
                        vec![format!("{value} of key {key}: {other}, {writer}")]
                    });
                }
            }
        }
    }

    fn check_elements(
        &self,
        history: &[Transaction],
        reader: &Transaction,
        key: i64,
        list: &[i64],
        report: &mut Report,
    ) {
        let mut seen = HashSet::new();
        for value in list {
            let what = || vec![format!("{reader}: {value} of key {key}")];
            if !seen.insert(value) {
                report.note("duplicate-element", what);
            }
            match self.writers.get(&(key, *value)) {
                None => report.note("garbage-read", what),
                Some(writer) if history[*writer].outcome == Outcome::Fail => {
                    report.note("G1a", || {
                        let writer = &history[*writer];
                        vec![format!("{reader} reads {value} of key {key} of {writer}")]
                    });
                }
                Some(_) => {}
            }
        }
        let last = list.last();
        let Some((value, writer)) =
            last.and_then(|value| Some((*value, &history[*self.writers.get(&(key, *value))?])))
        else {
            return;
        };
        let own = writer.appends().filter(|(appended, _)| *appended == key);
        let is_last = own.last().is_none_or(|(_, last)| last == value);
        if !is_last && !std::ptr::eq(writer, reader) {
            report.note("G1b", || {
                vec![format!("{reader} reads {value} of key {key} of {writer}")]
            });
        }
    }

    fn check_prefixes(&mut self, history: &[Transaction], report: &mut Report) {
        for (number, reader) in committed(history) {
            let mut touched = HashSet::new();
            for operation in &reader.operations {
                let (key, list) = match operation {
                    Operation::Append(key, _) => {
                        touched.insert(*key);
                        continue;
                    }
                    Operation::Read(_, None) => continue,
                    Operation::Read(key, Some(list)) => (*key, list),
                };
                let order = self.orders.get(&key).map_or(&[][..], Vec::as_slice);
                if !order.starts_with(list) {
                    report.note("incompatible-order", || {
                        vec![format!("{reader}: key {key} is {list:?}, and {order:?}")]
                    });
                } else if touched.insert(key) {
                    self.reads.push(Read {
                        transaction: number,
                        key,
                        length: list.len(),
                    });
                }
            }
        }
    }

    fn note_unseen(&mut self, history: &[Transaction]) {
        let orders = self.orders.iter();
        let seen: HashSet<(i64, i64)> = orders
            .flat_map(|(key, order)| order.iter().map(|value| (*key, *value)))
            .collect();
        for (number, writer) in committed(history) {
            for (key, value) in writer.appends() {
                if !seen.contains(&(key, value)) {
                    self.unseen.entry(key).or_default().push((value, number));
                }
            }
        }
    }

    /// An acknowledged append is in every read that begins later.
    fn check_lost(&self, history: &[Transaction], report: &mut Report) {
        for (number, reader) in committed(history) {
            let keys: HashSet<i64> = reads(reader).map(|(key, _)| key).collect();
            let unseen = keys
                .iter()
                .filter_map(|key| Some((key, self.unseen.get(key)?)));
            for (key, appends) in unseen {
                for (value, writer) in appends {
                    let writer = &history[*writer];
                    let is_before = writer.completed.is_some_and(|end| end < reader.invoked);
                    if is_before && history[number].outcome == Outcome::Ok {
                        report.note("lost-append", || {
                            vec![format!("{value} of key {key} of {writer}: not in {reader}")]
                        });
                    }
                }
            }
        }
    }

    /// Of the transactions that read one version of a key and then append to it, one may commit.
    fn check_updates(&self, history: &[Transaction], report: &mut Report) {
        let mut updates: HashMap<(i64, usize), usize> = HashMap::new();
        for read in &self.reads {
            let reader = &history[read.transaction];
            if !reader.appends().any(|(key, _)| key == read.key) {
                continue;
            }
            if let Some(other) = updates.insert((read.key, read.length), read.transaction) {
                report.note("lost-update", || {
                    let other = &history[other];
                    vec![format!("key {}: {other}, {reader}", read.key)]
                });
            }
        }
    }
}
