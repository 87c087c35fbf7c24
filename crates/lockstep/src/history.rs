//! The committed transactions, as the programs know them. Each transaction takes the next number
//! and writes it into the rows that it changes. So a snapshot tells which transactions it holds,
//! and determines each row.

/// Rows of the table.
pub const ROWS: usize = 8;

/// The effect of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// Rows that get its number, as bits. Bit 0, the counter, is always set.
    pub rows: u16,
    /// The number of rows inserted into the other table.
    pub inserts: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// COMMIT has not been called.
    Begun,
    /// COMMIT was called and has not returned, or the process died in it.
    Committing,
    Committed,
}

#[derive(Clone, Copy, Debug)]
struct Transaction {
    number: i64,
    process: usize,
    change: Change,
    state: State,
}

/// The content of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    pub rows: Vec<i64>,
    pub inserted: i64,
    pub sum: i64,
}

/// See the module. Numbers begin with 1; number 0 made the tables.
#[derive(Clone, Default)]
pub struct History(Vec<Transaction>);

impl History {
    /// A transaction that has seen number `before` begins. Fails if that is not the last one.
    pub fn begin(&mut self, process: usize, before: i64, change: Change) -> Result<(), String> {
        let newest = self.acknowledged();
        if newest > before {
            return Err(format!(
                "P{process} is to write after transaction {before}, and {newest} is committed"
            ));
        }
        // Drops a transaction that was not committed after all.
        self.0.retain(|transaction| transaction.number <= before);
        if self.0.len() as i64 != before {
            return Err(format!(
                "P{process} has seen transaction {before}, which nobody began"
            ));
        }
        self.settle(before);
        self.0.push(Transaction {
            number: before + 1,
            process,
            change,
            state: State::Begun,
        });
        Ok(())
    }

    fn own(&mut self, process: usize, number: i64) -> Option<&mut Transaction> {
        let found = self.0.iter_mut().find(|known| known.number == number);
        found.filter(|known| known.process == process)
    }

    pub fn committing(&mut self, process: usize, number: i64) -> Result<(), String> {
        let transaction = self.own(process, number);
        let transaction =
            transaction.ok_or(format!("P{process}: transaction {number} has been taken"))?;
        transaction.state = State::Committing;
        Ok(())
    }

    pub fn committed(&mut self, process: usize, number: i64) -> Result<(), String> {
        let transaction = self.own(process, number);
        let transaction = transaction.ok_or(format!(
            "P{process}: transaction {number} is acknowledged, and another process has written after {}",
            number - 1
        ))?;
        transaction.state = State::Committed;
        Ok(())
    }

    /// The transaction was rolled back.
    pub fn withdrawn(&mut self, process: usize, number: i64) {
        self.0.retain(|known| {
            known.number != number || known.process != process || known.state == State::Committed
        });
    }

    /// Its process died before it asked for the commit.
    pub fn death(&mut self, process: usize) {
        self.0
            .retain(|known| known.process != process || known.state != State::Begun);
    }

    /// The last number that must exist.
    pub fn acknowledged(&self) -> i64 {
        let committed = self
            .0
            .iter()
            .filter(|known| known.state == State::Committed);
        committed.map(|known| known.number).max().unwrap_or(0)
    }

    /// A transaction that was seen once stays.
    fn settle(&mut self, number: i64) {
        for known in &mut self.0 {
            if known.number <= number {
                known.state = State::Committed;
            }
        }
    }

    /// Checks a snapshot: it must be whole, and of transaction `least` or a later one. Returns its
    /// number.
    pub fn check(&mut self, who: &str, least: i64, seen: &Seen) -> Result<i64, String> {
        let Some(&number) = seen.rows.first() else {
            return Err(format!("{who}: the table is empty"));
        };
        if number < least {
            return Err(format!(
                "{who}: transaction {number} is the last one there, and {least} was acknowledged before"
            ));
        }
        let known = usize::try_from(number)
            .ok()
            .and_then(|count| self.0.get(..count));
        let Some(known) = known else {
            return Err(format!(
                "{who}: transaction {number} is there, which nobody began"
            ));
        };
        if let Some(begun) = known.iter().find(|known| known.state == State::Begun) {
            return Err(format!(
                "{who}: transaction {} is there before its commit",
                begun.number
            ));
        }
        let mut expected = Seen {
            rows: vec![0; ROWS],
            ..Seen::default()
        };
        for transaction in known {
            for (row, value) in expected.rows.iter_mut().enumerate() {
                if row == 0 || transaction.change.rows & 1 << row != 0 {
                    *value = transaction.number;
                }
            }
            let inserts = i64::from(transaction.change.inserts);
            expected.inserted += inserts;
            expected.sum += inserts * transaction.number;
        }
        if *seen != expected {
            return Err(format!("{who}: {seen:?} is there instead of {expected:?}"));
        }
        self.settle(number);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGE: Change = Change {
        rows: 0b10,
        inserts: 2,
    };

    fn seen(number: i64) -> Seen {
        let mut rows = vec![0; ROWS];
        (rows[0], rows[1]) = (number, number);
        let inserted = number * 2;
        let sum = (1..=number).sum::<i64>() * 2;
        Seen {
            rows,
            inserted,
            sum,
        }
    }

    fn committed(count: i64) -> History {
        let mut history = History::default();
        for number in 1..=count {
            history.begin(0, number - 1, CHANGE).expect("the next");
            history.committing(0, number).expect("its own");
            history.committed(0, number).expect("its own");
        }
        history
    }

    #[test]
    fn what_was_committed_must_be_there_whole() {
        let mut history = committed(2);
        assert_eq!(history.check("a reader", 2, &seen(2)), Ok(2));
        assert!(history.check("a reader", 2, &seen(1)).is_err(), "lost");
        let mut half = seen(2);
        half.rows[1] = 1;
        assert!(history.check("a reader", 2, &half).is_err(), "half");
        half = seen(2);
        half.rows[3] = 2;
        assert!(history.check("a reader", 2, &half).is_err(), "too much");
        half = seen(2);
        half.inserted -= 1;
        assert!(history.check("a reader", 2, &half).is_err(), "a row short");
    }

    #[test]
    fn an_older_snapshot_may_be_read_by_a_transaction_that_began_before() {
        let mut history = committed(2);
        assert_eq!(history.check("a reader", 1, &seen(1)), Ok(1));
    }

    #[test]
    fn nobody_writes_after_an_old_state_or_sees_what_is_not_committed() {
        let mut history = committed(2);
        assert!(history.begin(1, 1, CHANGE).is_err());
        history.begin(1, 2, CHANGE).expect("the next");
        assert!(history.check("a reader", 2, &seen(3)).is_err(), "too early");
        history.committing(1, 3).expect("its own");
        assert_eq!(history.check("a reader", 2, &seen(3)), Ok(3));
        // After it was seen once, it stays.
        assert!(
            history
                .check("a reader", history.acknowledged(), &seen(2))
                .is_err()
        );
    }

    #[test]
    fn a_commit_in_which_a_process_died_is_there_or_not() {
        let mut history = committed(1);
        history.begin(1, 1, CHANGE).expect("the next");
        history.committing(1, 2).expect("its own");
        history.death(1);
        assert_eq!(history.clone().check("a reader", 1, &seen(2)), Ok(2));
        assert_eq!(history.check("a reader", 1, &seen(1)), Ok(1));
        history.begin(0, 1, CHANGE).expect("in its place");
        assert!(history.committed(1, 2).is_err());
    }
}
