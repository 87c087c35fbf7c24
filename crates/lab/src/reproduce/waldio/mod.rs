//! WALDIO's tables and figures.
//!
//! - [`data`]: the paper's statements.
//! - [`volumes`]: the bytes that modes write (table 1, figures 8 and 15).
//! - [`rates`]: their speed (table 2, figures 13 and 14).
//! - [`direct`]: plain direct writes (figure 6).
//! - [`traces`]: the device's I/Os one by one (figures 2, 11 and 12).

mod data;
mod direct;
mod rates;
mod traces;
mod volumes;

use super::Figure;
use super::experiment::{Choice, RECORD_BYTES, Trial};
use onewrite_workload::plan::Op;

/// The paper's number of repetitions: 1,000.
const THOUSAND: u32 = 1_000;

/// Repetitions of a trial that has no rounds.
const REPEATS: u32 = 3;

/// The figures that can be reproduced.
pub const FIGURES: &[Figure] = &[
    Figure {
        name: "table-1",
        title: "what one insert writes, by journal mode",
        trials: volumes::one_insert_trials,
        extra_s: 4.0,
        run: volumes::table_1,
    },
    Figure {
        name: "table-2",
        title: "inserts, updates and deletes a second",
        trials: rates::table_2_trials,
        extra_s: 0.0,
        run: rates::table_2,
    },
    Figure {
        name: "figure-2",
        title: "the I/Os of one insert, by journal mode",
        trials: |_| Vec::new(),
        extra_s: 5.0,
        run: traces::figure_2,
    },
    Figure {
        name: "figure-6",
        title: "direct writes by their size",
        trials: |_| Vec::new(),
        extra_s: 12.0,
        run: direct::figure_6,
    },
    Figure {
        name: "figure-8",
        title: "what 1,000 inserts write, by layout of the log",
        trials: volumes::figure_8_trials,
        extra_s: 0.0,
        run: volumes::figure_8,
    },
    Figure {
        name: "figure-11",
        title: "the I/Os of WALDIO: an insert, its log created, its log extended",
        trials: |_| Vec::new(),
        extra_s: 4.0,
        run: traces::figure_11,
    },
    Figure {
        name: "figure-12",
        title: "the I/Os of 10 inserts in WAL and in WALDIO",
        trials: |_| Vec::new(),
        extra_s: 2.0,
        run: traces::figure_12,
    },
    Figure {
        name: "figure-13",
        title: "inserts a second, by layout of the log",
        trials: rates::figure_13_trials,
        extra_s: 6.0,
        run: rates::figure_13,
    },
    Figure {
        name: "figure-14",
        title: "inserts a second, by journal mode and sync option",
        trials: rates::figure_14_trials,
        extra_s: 0.0,
        run: rates::figure_14,
    },
    Figure {
        name: "figure-15",
        title: "what 1,000 inserts, updates and deletes write, by journal mode",
        trials: volumes::figure_15_trials,
        extra_s: 0.0,
        run: volumes::figure_15,
    },
];

/// A timed trial of Mobibench, as in the paper: no checkpoint inside.
fn trial(choice: Choice, op: Op, mode: &'static str) -> Trial {
    Trial {
        op,
        mode,
        count: choice.count.unwrap_or(THOUSAND),
        autocheckpoint: 0,
        repeats: choice.rounds(),
        record_bytes: RECORD_BYTES,
        warm_up: 0,
    }
}

/// The same trial where only its counts matter.
fn counted(choice: Choice, op: Op, mode: &'static str) -> Trial {
    Trial {
        repeats: choice.repeats.unwrap_or(REPEATS),
        ..trial(choice, op, mode)
    }
}
