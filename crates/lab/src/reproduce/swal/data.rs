//! The statements of "S-WAL: Fast and Efficient Write-Ahead Logging for Mobile Devices" (IEEE TCE
//! 64(3), 2018), from its text and its table III. Bars and points that only its pictures show are
//! left out: no number was taken from a picture.
//!
//! Device: a phone with eMMC of 32 GB, ext4 (ordered), four applications recorded for four weeks.

use onewrite_workload::plan::{Op, Queries};

use crate::reproduce::outcome::Stated;

/// An application of table III.
pub struct Application {
    /// The paper's name for it.
    pub name: &'static str,
    /// The trace, generated to its characteristics.
    pub op: Op,
    /// The counted queries.
    pub queries: Queries,
    /// Queries a transaction, cut to a tenth.
    pub per_transaction: f64,
    /// Reading queries out of ten.
    pub reads_of_ten: u32,
}

/// Table III.
pub const APPLICATIONS: [Application; 4] = [
    Application {
        name: "Mail",
        op: Op::Mail,
        queries: Queries {
            inserts: 48_946,
            selects: 104_705,
            updates: 35_094,
            deletes: 23_747,
            transactions: 32_392,
            files: 1,
        },
        per_transaction: 3.3,
        reads_of_ten: 5,
    },
    Application {
        name: "Messenger",
        op: Op::Messenger,
        queries: Queries {
            inserts: 2_252,
            selects: 2_838,
            updates: 4_348,
            deletes: 769,
            transactions: 7_301,
            files: 3,
        },
        per_transaction: 1.0,
        reads_of_ten: 3,
    },
    Application {
        name: "Message",
        op: Op::Message,
        queries: Queries {
            inserts: 1_854,
            selects: 19_547,
            updates: 6_216,
            deletes: 773,
            transactions: 7_740,
            files: 6,
        },
        per_transaction: 1.1,
        reads_of_ten: 7,
    },
    Application {
        name: "SNS",
        op: Op::Sns,
        queries: Queries {
            inserts: 25_322,
            selects: 114,
            updates: 0,
            deletes: 58,
            transactions: 15_998,
            files: 20,
        },
        per_transaction: 1.5,
        reads_of_ten: 0,
    },
];

/// The source of table III's figures.
pub const TABLE_III: &str = "table III";

/// The source of each application's number of files.
pub const WORKLOADS: &str = "text on the workloads";

/// Figure 3: WAL compared with MEMORY.
pub const WAL_TO_MEMORY: Stated = Stated::about(
    1.0,
    "text on figure 3: \"comparable to that of MEMORY mode\"",
);

/// Figure 3: rollback modes compared with WAL.
pub const ROLLBACK_TO_WAL: Stated = Stated::at_most(
    1.0,
    "text on figure 3: rollback modes \"show poor performance\"",
);

/// PERSIST compared with DELETE and with TRUNCATE.
pub const PERSIST_TO_OTHERS: Stated = Stated::at_least(
    1.0,
    "text before figure 3: PERSIST is \"much more efficient than both\"",
);

/// Figure 4: the share of Messenger's pages that compress to a tenth.
pub const MESSENGER_TO_A_TENTH: Stated = Stated::about(0.50, "text on figure 4");

/// Figure 4: the share of SNS's pages that compress to a half.
pub const SNS_TO_A_HALF: Stated = Stated::at_least(0.80, "text on figure 4");

/// Figure 7: how many times fewer journal writes S-WAL makes than WAL, on average of the four.
pub const FEWER_JOURNAL_WRITES: Stated = Stated::about(4.6, "text on figure 7");

/// The same for the application with the largest factor.
pub const FEWEST_JOURNAL_WRITES: Stated =
    Stated::about(6.4, "text on figure 7: \"in the best case\"");

/// Figure 7: how many times fewer database writes WAL makes than rollback modes: the least of the
/// four, and the most.
pub const FEWER_DATABASE_WRITES: (Stated, Stated) = (
    Stated::about(2.5, "text on figure 7"),
    Stated::about(13.1, "text on figure 7"),
);

/// Figure 7: database writes of S-WAL compared with those of WAL.
pub const SAME_DATABASE_WRITES: Stated = Stated::about(1.0, "text on figure 7: \"identical\"");

/// Figure 7: writes of PERSIST compared with those of WAL.
pub const PERSIST_WRITES_MORE: Stated = Stated::at_least(
    1.0,
    "text on figure 7: PERSIST issues \"significantly\" more",
);

/// Figure 8: the time of S-WAL compared with that of WAL: the least of the four, and the most.
pub const TO_WAL_S_TIME: (Stated, Stated) = (
    Stated::about(0.49, "text on figure 8: 51 % less"),
    Stated::about(0.93, "text on figure 8: 7 % less"),
);

/// Figure 8: the time of PERSIST compared with that of S-WAL: the least of the four, and the most.
pub const PERSIST_S_TIME: (Stated, Stated) = (
    Stated::about(1.7, "text on figure 8"),
    Stated::about(7.5, "text on figure 8"),
);

/// Figure 9: microseconds that compression takes, on average.
pub const COMPRESSION_US: Stated = Stated::at_most(336.0, "text on figure 9: \"less than\"");

/// Figure 10: recovery of S-WAL compared with WAL's: "slightly longer".
pub const SWAL_S_RECOVERY: Stated = Stated::at_least(
    1.0,
    "text on figure 10: \"slightly longer than that of WAL mode\"",
);

/// Figure 10: recovery of PERSIST compared with WAL's.
pub const PERSIST_S_RECOVERY: Stated = Stated::at_least(
    1.0,
    "text on figure 10: \"suffers from long recovery time\"",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_agrees_with_itself() {
        for one in &APPLICATIONS {
            let (writes, selects) = (one.queries.writes(), one.queries.selects);
            let transactions = one.queries.transactions;
            // The paper cuts instead of rounding: 1.586 is its 1.5.
            let tenths = writes * 10 / transactions;
            assert_eq!(
                f64::from(tenths) / 10.0,
                one.per_transaction,
                "{}",
                one.name
            );
            let reads = f64::from(selects) * 10.0 / f64::from(selects + writes);
            assert_eq!(reads.round() as u32, one.reads_of_ten, "{}", one.name);
            assert_eq!(one.op.trace_length(), Some(transactions));
            assert_eq!(one.op.databases(), one.queries.files as usize);
        }
    }

    #[test]
    fn the_ranges_are_ranges() {
        // "7 %-51 %" less, and the times of the same runs: 7.5 times at best.
        assert!((1.0 - TO_WAL_S_TIME.0.amount - 0.51).abs() < 1e-9);
        assert!((1.0 - TO_WAL_S_TIME.1.amount - 0.07).abs() < 1e-9);
        assert!(PERSIST_S_TIME.0.amount < PERSIST_S_TIME.1.amount);
        assert!(FEWER_DATABASE_WRITES.0.amount < FEWER_DATABASE_WRITES.1.amount);
        // An average is below the best case.
        let (average, best) = (FEWER_JOURNAL_WRITES.amount, FEWEST_JOURNAL_WRITES.amount);
        assert!(average < best);
    }
}
