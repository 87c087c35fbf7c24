//! Figure 3: stock journal modes on a benchmark of phones.

use onewrite_workload::plan::Op;

use super::data;
use crate::reproduce::experiment::{Choice, Experiment, RECORD_BYTES, Trial};
use crate::reproduce::outcome::{Kind, Predicted, Reason, Row, Shown, Side, Stated, explain};
use crate::reproduce::requests::{self, REQUESTS};
use onewrite_cli::compare::report::Run;

/// Transactions of each kind.
const COUNT: u32 = 1_000;

const OPS: [(Op, &str); 3] = [
    (Op::Insert, "inserts"),
    (Op::Update, "updates"),
    (Op::Delete, "deletes"),
];

const MODES: [(&str, &str); 5] = [
    ("DELETE", "delete"),
    ("TRUNCATE", "truncate"),
    ("PERSIST", "persist"),
    ("WAL", "wal"),
    ("MEMORY", "memory"),
];

fn trial(choice: Choice, op: Op, mode: &'static str) -> Trial {
    Trial {
        op,
        mode,
        count: choice.count.unwrap_or(COUNT).min(COUNT),
        autocheckpoint: super::AUTOCHECKPOINT,
        repeats: choice.rounds(),
        record_bytes: RECORD_BYTES,
        warm_up: 0,
    }
}

/// All modes with all operations.
pub fn trials(choice: Choice) -> Vec<Trial> {
    let each = |(op, _)| MODES.iter().map(move |(_, mode)| trial(choice, op, mode));
    OPS.into_iter().flat_map(each).collect()
}

/// Rates of each mode, compared with WAL or MEMORY.
pub fn figure_3(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    let choice = experiment.choice();
    let rows = experiment.decided(&trials(choice), rows_of)?;
    let differences = explain(&rows, REASONS, experiment)?;
    Ok(Shown {
        figure: "figure-3",
        title: "stock journal modes on Mobibench",
        how: format!(
            "{} transactions of one row of 100 bytes, synchronous=FULL, a checkpoint every {} pages; medians of at \
             least {} rounds, ratios of each round",
            choice.count.unwrap_or(COUNT).min(COUNT),
            super::AUTOCHECKPOINT,
            choice.rounds()
        ),
        rows,
        differences,
        sequences: Vec::new(),
        notes: vec!["of the paper's two benchmarks AndroBench is not here".to_owned()],
    })
}

fn rows_of(experiment: &mut Experiment<'_>) -> Result<Vec<Row>, String> {
    let choice = experiment.choice();
    let mut rows = Vec::new();
    for (op, quantity) in OPS {
        let ratio = |experiment: &Experiment<'_>, of, to| {
            let per_s = |run: &Run| run.ops_per_s;
            experiment.to(trial(choice, op, of), trial(choice, op, to), per_s)
        };
        let mut row = |name, mode| -> Result<Row, String> {
            let ours = experiment.run(&trial(choice, op, mode))?.ops_per_s;
            let row = Row::new(name, quantity, "/s", Kind::Timed).ran(mode);
            Ok(row.ours(Some(ours)))
        };
        let all = MODES.map(|(name, mode)| row(name, mode));
        let persist = row("PERSIST", "persist")?;
        for (row, (name, mode)) in all.into_iter().zip(MODES) {
            let (to, baseline, stated): (_, _, Option<Stated>) = match name {
                "WAL" => ("MEMORY", "memory", Some(data::WAL_TO_MEMORY)),
                "MEMORY" => ("WAL", "wal", None),
                _ => ("WAL", "wal", Some(data::ROLLBACK_TO_WAL)),
            };
            let row = row?.rounds(to, stated, &ratio(experiment, mode, baseline));
            rows.push(row.judged());
        }
        for (other, mode) in MODES.into_iter().take(2) {
            let ratio = ratio(experiment, "persist", mode);
            let row = persist.clone();
            let row = row.rounds(other, Some(data::PERSIST_TO_OTHERS), &ratio);
            rows.push(row.judged());
        }
    }
    Ok(rows)
}

const REASONS: &[Reason] = &[
    Reason {
        of: |row| row.name == "PERSIST",
        side: Side::Below,
        sentence: "In PERSIST each commit syncs the reset of the journal and waits for it; DELETE's commit is a deletion \
                   that nothing waits for.",
        count: FLUSHES,
        predict: by_flushes,
    },
    Reason {
        of: |row| row.name == "WAL",
        side: Side::Below,
        sentence: "On a fresh log WAL allocates blocks, so that each commit waits for the file system's journal too; \
                   MEMORY only overwrites the database.",
        count: FLUSHES,
        predict: by_flushes,
    },
    Reason {
        of: |row| row.name == "WAL",
        side: Side::Below,
        sentence: "On a fresh log WAL waits for two flushes a commit, MEMORY for one. That is not the ratio of their rates, \
                   because both also write and compute.",
        count: REQUESTS,
        predict: by_requests,
    },
    Reason {
        of: |row| row.name == "WAL",
        side: Side::Above,
        sentence: "MEMORY writes and flushes the database at every commit, which takes more here than WAL's one append.",
        count: FLUSHES,
        predict: by_flushes,
    },
];

fn op_of(row: &Row) -> Op {
    let op = OPS.iter().find(|(_, quantity)| *quantity == row.quantity);
    op.map_or(Op::Insert, |(op, _)| *op)
}

/// Flushes of a transaction, and its microseconds.
fn cost(
    experiment: &mut Experiment<'_>,
    row: &Row,
    mode: &'static str,
) -> Result<(f64, f64), String> {
    let trial = trial(experiment.choice(), op_of(row), mode);
    let run = experiment.run(&trial)?;
    let per_op = run.per_op.ok_or("flushes were not counted")?;
    Ok((per_op.flushes, 1e6 / run.ops_per_s))
}

const FLUSHES: &str = "flushes of a transaction";

/// The mode of a row, and the one that it is compared with, whose name comes last.
fn modes_of(row: &Row) -> Result<(&'static str, &'static str, &'static str), String> {
    let mode = |name: &str| {
        let found = MODES.iter().find(|(known, _)| *known == name);
        found.map(|(_, mode)| *mode).ok_or("no such mode")
    };
    let to = row.ratio.as_ref().map_or("WAL", |ratio| ratio.to);
    Ok((mode(row.name)?, mode(to)?, to))
}

/// The ratio of rates by all that a transaction waits for.
fn by_requests(experiment: &mut Experiment<'_>, row: &Row) -> Result<Predicted, String> {
    let (ours, other, _) = modes_of(row)?;
    let (choice, op) = (experiment.choice(), op_of(row));
    let trials = [ours, other].map(|mode| trial(choice, op, mode));
    requests::by_requests(experiment, trials.each_ref(), row.quantity, of_flushes)
}

/// The ratio if only flushes took time.
fn by_flushes(experiment: &mut Experiment<'_>, row: &Row) -> Result<Predicted, String> {
    let (ours, other, to) = modes_of(row)?;
    let ours = cost(experiment, row, ours)?;
    let other = cost(experiment, row, other)?;
    Ok(Predicted::of_row(
        of_flushes(ours.0, other.0),
        "flushes and time of a transaction:",
        format!(
            "{:.1} and {:.0} us, {to} {:.1} and {:.0} us",
            ours.0, ours.1, other.0, other.1
        ),
    ))
}

/// The ratio of rates if a transaction takes as long as its flushes, or so many seconds.
fn of_flushes(ours: f64, other: f64) -> f64 {
    other / ours
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::outcome::tests::{alike, can_fail};

    #[test]
    fn the_count_of_flushes_can_speak_against_the_reasons_of_figure_3() {
        let row = |name, to, stated, ours| {
            let row = Row::new(name, "inserts", "/s", Kind::Timed);
            row.rounds(to, Some(stated), &alike(ours)).judged()
        };
        let planted = |row: &Row, [ours, other]: [f64; 2]| {
            // Planted: as many in both, and each other's.
            let wrong = [of_flushes(ours, ours), of_flushes(other, ours)];
            can_fail(row, REASONS, FLUSHES, of_flushes(ours, other), &wrong);
        };
        let persist = row("PERSIST", "DELETE", data::PERSIST_TO_OTHERS, 0.8);
        planted(&persist, [5.0, 4.0]);
        let wal = |ours| row("WAL", "MEMORY", data::WAL_TO_MEMORY, ours);
        planted(&wal(0.55), [3.6, 2.0]);
        planted(&wal(1.9), [1.0, 2.0]);
        // 375 and 269 us, of which flushes are 224 and 118. Planted: as long, and flushes alone.
        let wrong = [of_flushes(375.0, 375.0), of_flushes(224.0, 118.0)];
        can_fail(
            &wal(0.72),
            REASONS,
            REQUESTS,
            of_flushes(375.0, 269.0),
            &wrong,
        );
    }
}
