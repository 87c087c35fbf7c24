//! S-WAL's tables and figures.
//!
//! - [`data`]: the paper's statements.
//! - [`table`]: its table III.
//! - [`modes`]: stock modes on Mobibench (figure 3).
//! - [`pages`]: the compressed size of pages, and the time of compression (figures 4 and 9).
//! - [`traffic`]: the writes and the time of applications (figures 7 and 8); [`times`]: why times differ.
//! - [`recovery`]: the first access after a crash (figure 10).
//!
//! The paper's applications are generated to the published characteristics, not recorded. Every
//! figure that uses them says so.

mod data;
mod modes;
mod pages;
pub mod recovery;
mod table;
mod times;
mod traffic;

use onewrite_workload::plan::Op;

use super::Figure;
use super::experiment::{Choice, RECORD_BYTES, Trial};

/// The paper's mode: every page is compressed by itself.
const PAPER_S: &str = "swal:differences=off";

/// The default mode here.
const OURS: &str = "swal";

/// Pages of log after which SQLite checkpoints by itself.
const AUTOCHECKPOINT: u32 = 1_000;

/// The note next to every figure of an application.
const GENERATED: &str = "the applications' transactions are generated to published characteristics (S-WAL, table III), \
                         not recorded";

/// The figures that can be reproduced.
pub const FIGURES: &[Figure] = &[
    Figure {
        name: "table-iii",
        title: "what four applications ask SQLite for",
        trials: |_| Vec::new(),
        extra_s: 3.0,
        run: table::table_3,
    },
    Figure {
        name: "figure-3",
        title: "stock journal modes on Mobibench",
        trials: modes::trials,
        extra_s: 0.0,
        run: modes::figure_3,
    },
    Figure {
        name: "figure-4",
        title: "what journaled pages compress to",
        trials: |_| Vec::new(),
        extra_s: 10.0,
        run: pages::figure_4,
    },
    Figure {
        name: "figure-7",
        title: "writes to journal and database, by journal mode",
        trials: traffic::trials,
        extra_s: 0.0,
        run: traffic::figure_7,
    },
    Figure {
        name: "figure-8",
        title: "elapsed time, by journal mode",
        trials: traffic::timed_trials,
        extra_s: 0.0,
        run: traffic::figure_8,
    },
    Figure {
        name: "figure-9",
        title: "compression time of a transaction",
        trials: |_| Vec::new(),
        extra_s: 10.0,
        run: pages::figure_9,
    },
    Figure {
        name: "figure-10",
        title: "recovery time, by journal mode",
        trials: |_| Vec::new(),
        extra_s: 40.0,
        run: recovery::figure_10,
    },
];

/// An application under a mode. The user may shorten it, but not lengthen it.
fn trial(choice: Choice, op: Op, mode: &'static str) -> Trial {
    Trial {
        op,
        mode,
        count: length(choice, op),
        autocheckpoint: AUTOCHECKPOINT,
        repeats: choice.repeats.unwrap_or(1),
        record_bytes: RECORD_BYTES,
        warm_up: 0,
    }
}

fn length(choice: Choice, op: Op) -> u32 {
    let whole = op.trace_length().unwrap_or(1);
    choice.count.map_or(whole, |count| count.min(whole))
}
