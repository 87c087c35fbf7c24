//! The counted queries of a plan's transactions.

use std::collections::BTreeSet;

use super::{Plan, Work};

/// Queries of a plan by operation, as S-WAL's table III counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queries {
    /// INSERT.
    pub inserts: u32,
    /// SELECT.
    pub selects: u32,
    /// UPDATE.
    pub updates: u32,
    /// DELETE.
    pub deletes: u32,
    /// Transactions that write.
    pub transactions: u32,
    /// Database files of the transactions.
    pub files: u32,
}

impl Queries {
    /// Queries that write.
    pub fn writes(&self) -> u32 {
        self.inserts + self.updates + self.deletes
    }
}

impl Plan {
    /// Makes every transaction, as a run would execute it, and counts its queries. `None` for an op
    /// whose queries depend on its reads.
    pub fn queries(&self) -> Option<Queries> {
        let workload = self.workload();
        let (mut queries, mut files) = (Queries::default(), BTreeSet::new());
        for number in 0..self.count {
            let Work::Given(transaction) = workload.work(number) else {
                return None;
            };
            if !transaction.statements.is_empty() {
                queries.transactions += 1;
                files.insert(transaction.database);
            }
            let reads = transaction.reads.iter().map(|read| read.sql);
            let writes = transaction.statements.iter().map(|statement| statement.sql);
            for sql in reads.chain(writes) {
                match sql.split(' ').next() {
                    Some("INSERT") => queries.inserts += 1,
                    Some("SELECT") => queries.selects += 1,
                    Some("UPDATE") => queries.updates += 1,
                    Some("DELETE") => queries.deletes += 1,
                    _ => {}
                }
            }
        }
        queries.files = u32::try_from(files.len()).unwrap_or(u32::MAX);
        Some(queries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Op, Order};

    #[test]
    fn a_plan_s_queries_are_those_of_the_table() {
        let plan = Plan {
            op: Op::Messenger,
            count: 7_301,
            warm_up: 0,
            record_size: 100,
            updates: 5,
            warehouses: 1,
            order: Order::Id,
            seed: 7,
            workers: 1,
            readers: 0,
            rate: None,
        };
        let queries = plan.queries().unwrap();
        let published = Queries {
            inserts: 2_252,
            selects: 2_838,
            updates: 4_348,
            deletes: 769,
            transactions: 7_301,
            files: 3,
        };
        assert_eq!(queries, published);
        assert_eq!(queries.writes(), 7_369);
        let inserts = Plan {
            op: Op::Insert,
            count: 9,
            ..plan
        };
        let counted = inserts.queries().unwrap();
        assert_eq!(
            (counted.inserts, counted.transactions, counted.files),
            (9, 9, 1)
        );
    }
}
