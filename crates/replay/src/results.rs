//! Compares the result of each statement with the first mode's and with the recorded one.
//!
//! A result is a small record of fixed size. Those of the first mode lie in a file without a name,
//! so that memory stays bounded for a trace of any length. Differences are counted, and the first
//! few are kept for display.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use onewrite_record::event::{Outcome, UNKNOWN};
use onewrite_record::rows::Rows;
use onewrite_record::sql;

use crate::engine::Raced;

/// Differences kept for display.
const SHOWN: usize = 5;

/// Bytes shown of a statement's text.
const SHOWN_BYTES: usize = 160;

/// Differences that wait until more of the trace has been read.
const MOST_PENDING: usize = 1000;

/// Bytes of a record: code, order, number, content, and a mark that there is one.
const RECORD: u64 = 32;

/// The result of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Result {
    /// Its result code, as in a trace.
    pub code: u32,
    /// The rows until then.
    pub rows: Rows,
}

/// The places in which a result must be the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparable {
    /// In every mode, and equal to the recorded result.
    Fully,
    /// Only its code: its rows are about the file, its journal mode, or the machine.
    CodeOnly,
}

/// A difference.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The statement.
    pub sql: String,
    /// The difference.
    pub what: String,
}

/// Differences of one kind.
#[derive(Clone, Debug, Default)]
pub struct Differences {
    /// Their number.
    pub count: u64,
    /// The number of expected ones: random values, or another version of SQLite.
    pub expected: u64,
    /// The first unexpected ones. If there are none, the first expected ones.
    pub first: Vec<Difference>,
}

impl Differences {
    fn add(&mut self, expected: bool, difference: impl FnOnce() -> Difference) {
        // Unexpected differences are shown first.
        if !expected && self.count == self.expected {
            self.first.clear();
        }
        self.count += 1;
        self.expected += u64::from(expected);
        let all_expected = self.count == self.expected;
        if self.first.len() < SHOWN && expected == all_expected {
            self.first.push(difference());
        }
    }

    /// Adds those that another thread found.
    fn merge(&mut self, other: Self) {
        let (ours, theirs) = (self.count > self.expected, other.count > other.expected);
        if theirs && !ours {
            self.first.clear();
        }
        if theirs || !ours {
            self.first.extend(other.first);
            self.first.truncate(SHOWN);
        }
        self.count += other.count;
        self.expected += other.expected;
    }
}

impl Difference {
    fn new(text: &[u8], what: String) -> Self {
        let sql = String::from_utf8_lossy(text.get(..SHOWN_BYTES).unwrap_or(text));
        let sql = sql.split_whitespace().collect::<Vec<_>>().join(" ");
        Self { sql, what }
    }
}

/// Differences from the recording and from the first mode.
#[derive(Clone, Debug, Default)]
pub struct Both {
    /// From the recorded results.
    pub from_recorded: Differences,
    /// From the first mode.
    pub from_first: Differences,
}

impl Both {
    fn of(&mut self, side: Side) -> &mut Differences {
        match side {
            Side::Recorded => &mut self.from_recorded,
            Side::First => &mut self.from_first,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Side {
    Recorded,
    First,
}

/// A difference of a transaction that may turn out to have raced.
#[derive(Debug)]
struct Pending {
    raced: Raced,
    side: Side,
    expected: bool,
    difference: Difference,
}

/// The results of the first mode, for the others.
#[derive(Debug)]
pub struct Reference(File);

impl Reference {
    /// An empty reference, in a directory for temporary files.
    ///
    /// # Errors
    /// The system's.
    pub fn new(dir: &Path) -> io::Result<Self> {
        tempfile::tempfile_in(dir).map(Self)
    }

    fn put(&self, ordinal: u64, result: &Result) -> io::Result<()> {
        let mut record = [0; RECORD as usize];
        record[..4].copy_from_slice(&result.code.to_be_bytes());
        record[4..8].copy_from_slice(&result.rows.ordered.to_be_bytes());
        record[8..16].copy_from_slice(&result.rows.count.to_be_bytes());
        record[16..24].copy_from_slice(&result.rows.unordered.to_be_bytes());
        record[24] = 1;
        self.0.write_all_at(&record, ordinal * RECORD)
    }

    fn get(&self, ordinal: u64) -> io::Result<Option<Result>> {
        let mut record = [0; RECORD as usize];
        if self.0.read_at(&mut record, ordinal * RECORD)? < record.len() || record[24] == 0 {
            return Ok(None);
        }
        let number = |at: usize, length: usize| {
            record
                .iter()
                .skip(at)
                .take(length)
                .fold(0u64, |n, byte| n << 8 | u64::from(*byte))
        };
        let rows = Rows {
            count: number(8, 8),
            ordered: number(4, 4) as u32,
            unordered: number(16, 8),
        };
        Ok(Some(Result {
            code: number(0, 4) as u32,
            rows,
        }))
    }
}

/// The properties of a recording that affect comparison.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// The program had this version of SQLite alone.
    pub is_same_version: bool,
    /// The trace has only the number of rows.
    pub is_masked: bool,
}

/// The comparison of one mode's results.
#[derive(Debug)]
pub struct Comparison<'a> {
    reference: &'a Reference,
    is_first: bool,
    /// The program had this version of SQLite alone.
    is_same_version: bool,
    /// The recording has only the number of rows.
    is_masked: bool,
    /// Results compared with the recorded ones, including their rows.
    pub compared: u64,
    /// Differences.
    pub differ: Both,
    /// Differences of transactions that raced: their results may differ.
    pub differ_after_race: Both,
    pending: VecDeque<Pending>,
}

/// Functions that depend on more than the content of the database.
const VARYING: &[&str] = &["random", "randomblob", "sqlite_version", "sqlite_source_id"];

/// Functions of floating-point numbers that SQLite has computed more exactly since 3.43.
const VARYING_BY_VERSION: &[&str] = &["sum", "avg", "total"];

impl<'a> Comparison<'a> {
    /// Compares with the results of the first mode, or records them.
    pub fn new(reference: &'a Reference, is_first: bool, recorded: Recorded) -> Self {
        Self {
            reference,
            is_first,
            is_same_version: recorded.is_same_version,
            is_masked: recorded.is_masked,
            compared: 0,
            differ: Both::default(),
            differ_after_race: Both::default(),
            pending: VecDeque::new(),
        }
    }

    /// A comparison with the same results, for another thread.
    pub fn fork(&self) -> Self {
        Self {
            compared: 0,
            differ: Both::default(),
            differ_after_race: Both::default(),
            pending: VecDeque::new(),
            ..*self
        }
    }

    /// Adds what another thread compared.
    pub fn merge(&mut self, mut other: Self) {
        other.settle(0);
        self.compared += other.compared;
        for (all, more) in [
            (&mut self.differ, other.differ),
            (&mut self.differ_after_race, other.differ_after_race),
        ] {
            all.from_recorded.merge(more.from_recorded);
            all.from_first.merge(more.from_first);
        }
    }

    /// Decides about pending differences, until this number is left.
    fn settle(&mut self, left: usize) {
        while self.pending.len() > left {
            let Some(one) = self.pending.pop_front() else {
                return;
            };
            let all = match one.raced.get() {
                true => &mut self.differ_after_race,
                false => &mut self.differ,
            };
            all.of(one.side).add(one.expected, || one.difference);
        }
    }

    fn differs(
        &mut self,
        raced: Option<&Raced>,
        side: Side,
        expected: bool,
        difference: impl FnOnce() -> Difference,
    ) {
        let Some(raced) = raced else {
            self.differ.of(side).add(expected, difference);
            return;
        };
        self.pending.push_back(Pending {
            raced: raced.clone(),
            side,
            expected,
            difference: difference(),
        });
        self.settle(MOST_PENDING);
    }

    /// Notes the result of the statement with this number in the trace. `raced` is of its
    /// transaction, where several threads play.
    ///
    /// # Errors
    /// The system's, from the reference.
    #[expect(
        clippy::too_many_arguments,
        reason = "they are a statement and its results"
    )]
    pub fn add(
        &mut self,
        ordinal: u64,
        text: &[u8],
        comparable: Comparable,
        recorded: &Outcome,
        result: Result,
        message: Option<&str>,
        raced: Option<&Raced>,
    ) -> io::Result<()> {
        let rows_count = comparable == Comparable::Fully;
        match self.is_first {
            true => self.reference.put(ordinal, &result)?,
            false => {
                let first = self.reference.get(ordinal)?;
                match first {
                    Some(first) if !is_same(&first, &result, rows_count) => {
                        self.differs(raced, Side::First, false, || {
                            Difference::new(text, difference(&first, &result, message))
                        });
                    }
                    Some(_) => {}
                    None => self.differs(raced, Side::First, false, || {
                        Difference::new(text, "did not run under the first mode".into())
                    }),
                }
            }
        }
        if recorded.code == UNKNOWN {
            return Ok(());
        }
        let then = Result {
            code: recorded.code,
            rows: recorded.rows.unwrap_or(result.rows),
        };
        let mut then = then;
        if self.is_masked {
            then.rows = Rows {
                count: then.rows.count,
                ..result.rows
            };
        }
        let now = result;
        let rows_recorded = rows_count && recorded.rows.is_some();
        self.compared += u64::from(rows_recorded);
        if !is_same(&then, &now, rows_recorded) {
            let by_version = match self.is_same_version {
                true => None,
                false => sql::first_call(text, VARYING_BY_VERSION),
            };
            let varies = sql::first_call(text, VARYING);
            let is_expected = then.code == now.code && (varies.is_some() || by_version.is_some());
            self.differs(raced, Side::Recorded, is_expected, || {
                let what = difference(&then, &now, message);
                let what = match (varies, by_version) {
                    (Some(call), _) => format!("{what}; it depends on {call}"),
                    (None, Some(call)) => {
                        format!("{what}; {call} of another version of SQLite")
                    }
                    (None, None) => what,
                };
                Difference::new(text, what)
            });
        }
        Ok(())
    }
}

fn is_same(a: &Result, b: &Result, rows: bool) -> bool {
    a.code == b.code && (!rows || a.rows == b.rows)
}

fn difference(then: &Result, now: &Result, message: Option<&str>) -> String {
    if then.code != now.code {
        let said = message
            .map(|message| format!(" ({message})"))
            .unwrap_or_default();
        return format!("result code {} instead of {}{said}", now.code, then.code);
    }
    if then.rows.count != now.rows.count {
        return format!("{} rows instead of {}", now.rows.count, then.rows.count);
    }
    match then.rows.unordered == now.rows.unordered {
        true => format!("the same {} rows in another order", now.rows.count),
        false => format!("other values in {} rows", now.rows.count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Recorded = Recorded {
        is_same_version: true,
        is_masked: false,
    };

    fn rows(texts: &[&str]) -> Rows {
        let mut rows = Rows::default();
        for text in texts {
            let mut row = onewrite_record::rows::Row::default();
            row.add(onewrite_record::rows::Kind::Text, text.as_bytes());
            rows.add(row);
        }
        rows
    }

    #[test]
    fn what_differs_is_found_and_said() {
        let reference = Reference::new(&std::env::temp_dir()).unwrap();
        let outcome = |texts: &[&str]| Outcome {
            code: 101,
            autocommit: true,
            rows: Some(rows(texts)),
        };
        let result = |texts: &[&str]| Result {
            code: 101,
            rows: rows(texts),
        };
        let mut first = Comparison::new(&reference, true, HERE);
        let recorded = outcome(&["a", "b"]);
        first
            .add(
                7,
                b"SELECT x",
                Comparable::Fully,
                &recorded,
                result(&["a", "b"]),
                None,
                None,
            )
            .unwrap();
        assert_eq!((first.compared, first.differ.from_recorded.count), (1, 0));

        let mut second = Comparison::new(&reference, false, HERE);
        for (number, texts) in [
            (7, &["b", "a"][..]),
            (7, &["a"]),
            (7, &["a", "c"]),
            (8, &["a", "b"]),
        ] {
            second
                .add(
                    number,
                    b"SELECT x",
                    Comparable::Fully,
                    &recorded,
                    result(texts),
                    None,
                    None,
                )
                .unwrap();
        }
        let said: Vec<_> = second
            .differ
            .from_first
            .first
            .iter()
            .map(|d| d.what.as_str())
            .collect();
        assert_eq!(
            said,
            [
                "the same 2 rows in another order",
                "1 rows instead of 2",
                "other values in 2 rows",
                "did not run under the first mode"
            ]
        );
        assert_eq!(second.differ.from_recorded.count, 3);
        let mut third = Comparison::new(&reference, false, HERE);
        let other = result(&["x"]);
        third
            .add(
                7,
                b"PRAGMA x",
                Comparable::CodeOnly,
                &recorded,
                other,
                None,
                None,
            )
            .unwrap();
        assert_eq!(
            third.differ.from_first.count + third.differ.from_recorded.count + third.compared,
            0
        );
    }
    /// A race may be known only after the difference.
    #[test]
    fn differences_of_transactions_that_raced_are_counted_apart() {
        let reference = Reference::new(&std::env::temp_dir()).unwrap();
        let recorded = Outcome {
            code: 101,
            autocommit: true,
            rows: Some(rows(&["a"])),
        };
        let came = Result {
            code: 101,
            rows: rows(&["b"]),
        };
        let mut all = Comparison::new(&reference, true, HERE);
        let mut one = all.fork();
        let (raced, alone) = (Raced::default(), Raced::default());
        for (ordinal, transaction) in [(1, &raced), (2, &alone), (3, &raced)] {
            let full = Comparable::Fully;
            one.add(
                ordinal,
                b"SELECT 1",
                full,
                &recorded,
                came,
                None,
                Some(transaction),
            )
            .unwrap();
        }
        raced.set();
        all.merge(one);
        assert_eq!(all.compared, 3);
        assert_eq!(all.differ.from_recorded.count, 1);
        assert_eq!(all.differ_after_race.from_recorded.count, 2);
        assert_eq!(all.differ.from_recorded.first.len(), 1);
    }
}
