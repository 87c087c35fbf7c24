//! The speed of modes: table 2, figures 13 and 14.

use onewrite_workload::files::Way;
use onewrite_workload::plan::Op;

use super::data::{self, Rate};
use super::trial;
use crate::reproduce::experiment::{Choice, Experiment, Trial};
use crate::reproduce::outcome::{Kind, Predicted, Reason, Row, Shown, Side, Stated, explain};
use onewrite_cli::compare::report::Run;

/// The three groups of table 2.
const OPS: [(Op, &str); 3] = [
    (Op::Insert, "inserts"),
    (Op::Update, "updates"),
    (Op::Delete, "deletes"),
];

/// WALDIO as in the paper's abstract.
const FASTEST_DURABLE: &str = "waldio:sync=persistent,group_synch=4/2";

/// The name of the row that compares updates and deletes with inserts.
const GAIN: &str = "WALDIO-PD, GS4 over WAL, to that of inserts";

fn trials_of(choice: Choice, op: Op, rates: &[Rate]) -> Vec<Trial> {
    let all = std::iter::once(&data::WAL).chain(rates);
    let modes = all.filter_map(|rate| rate.mode);
    modes.map(|mode| trial(choice, op, mode)).collect()
}

/// The trials of figure 13.
pub fn figure_13_trials(choice: Choice) -> Vec<Trial> {
    trials_of(choice, Op::Insert, &data::ALIGNED)
}

/// The trials of figure 14.
pub fn figure_14_trials(choice: Choice) -> Vec<Trial> {
    trials_of(choice, Op::Insert, &data::MODES)
}

/// The trials of table 2.
pub fn table_2_trials(choice: Choice) -> Vec<Trial> {
    let each = |(op, _)| trials_of(choice, op, &data::MODES);
    OPS.into_iter().flat_map(each).collect()
}

fn per_s(run: &Run) -> f64 {
    run.ops_per_s
}

/// Transactions a second.
fn rate(experiment: &mut Experiment<'_>, op: Op, mode: &'static str) -> Result<f64, String> {
    let trial = trial(experiment.choice(), op, mode);
    Ok(experiment.run(&trial)?.ops_per_s)
}

/// WAL and the other modes, for one operation. The paper's figures are those of inserts.
fn rows_of(
    experiment: &mut Experiment<'_>,
    (op, quantity): (Op, &'static str),
    rates: &[Rate],
) -> Result<Vec<Row>, String> {
    let choice = experiment.choice();
    let wal = rate(experiment, op, "wal")?;
    let new = |name| Row::new(name, quantity, "/s", Kind::Timed);
    let stated = |stated: Option<Stated>| stated.filter(|_| op == Op::Insert);
    let first = new(data::WAL.name).ran("wal");
    let first = first.paper(stated(data::WAL.rate)).ours(Some(wal));
    let mut rows = vec![first.judged()];
    for Rate {
        name,
        mode,
        rate: paper,
        to_wal,
    } in rates
    {
        let ours = mode.map(|mode| rate(experiment, op, mode)).transpose()?;
        let of_wal = || {
            let (of, to) = paper.as_ref().zip(data::WAL.rate)?;
            Some(Stated {
                amount: of.amount / to.amount,
                ..*of
            })
        };
        let stock = matches!(*name, "DELETE" | "TRUNCATE" | "PERSIST");
        let ratio = to_wal
            .or_else(of_wal)
            .or_else(|| stock.then_some(data::STOCK_BELOW_WAL));
        let mut row = new(name).paper(stated(*paper)).ours(ours);
        row.ran = mode.map(str::to_owned);
        let row = match mode {
            Some(mode) => {
                let (of, to) = (trial(choice, op, mode), trial(choice, op, "wal"));
                row.rounds("WAL", stated(ratio), &experiment.to(of, to, per_s))
            }
            None => row.ratio("WAL", stated(ratio), None),
        };
        rows.push(row.judged());
    }
    Ok(rows)
}

fn how(choice: Choice) -> String {
    format!(
        "{} transactions of one row of 100 bytes, synchronous=FULL, no checkpoint inside; medians of at least {} \
         rounds, ratios of each round",
        choice.count.unwrap_or(super::THOUSAND),
        choice.rounds()
    )
}

const ELSEWHERE: &str = "LS-MVBT has its own: reproduce lsmvbt, in a build with that feature";

/// Figure 13: layouts.
pub fn figure_13(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    let choice = experiment.choice();
    let rows = experiment.decided(&figure_13_trials(choice), |experiment| {
        rows_of(experiment, OPS[0], &data::ALIGNED)
    })?;
    let differences = explain(&rows, LAYOUT_REASONS, experiment)?;
    Ok(Shown {
        figure: "figure-13",
        title: "inserts a second, by layout of the log",
        how: how(choice),
        rows,
        differences,
        sequences: Vec::new(),
        notes: Vec::new(),
    })
}

/// Figure 14: modes and sync options.
pub fn figure_14(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    let choice = experiment.choice();
    let rows = experiment.decided(&figure_14_trials(choice), |experiment| {
        rows_of(experiment, OPS[0], &data::MODES)
    })?;
    let differences = explain(&rows, MODE_REASONS, experiment)?;
    Ok(Shown {
        figure: "figure-14",
        title: "inserts a second, by journal mode and sync option",
        how: how(choice),
        rows,
        differences,
        sequences: Vec::new(),
        notes: vec![ELSEWHERE.to_owned()],
    })
}

/// Table 2: the same, also for updates and deletes.
pub fn table_2(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    let choice = experiment.choice();
    let rows = experiment.decided(&table_2_trials(choice), table_2_rows)?;
    let differences = explain(&rows, MODE_REASONS, experiment)?;
    let notes = vec![
        "the paper's figures of single updates and deletes stand in its table alone, not in its text".to_owned(),
        ELSEWHERE.to_owned(),
    ];
    Ok(Shown {
        figure: "table-2",
        title: "inserts, updates and deletes a second",
        how: how(choice),
        rows,
        differences,
        sequences: Vec::new(),
        notes,
    })
}

fn table_2_rows(experiment: &mut Experiment<'_>) -> Result<Vec<Row>, String> {
    let choice = experiment.choice();
    let mut rows = Vec::new();
    for of in OPS {
        rows.extend(rows_of(experiment, of, &data::MODES)?);
    }
    let pair = |op| [trial(choice, op, FASTEST_DURABLE), trial(choice, op, "wal")];
    for (op, quantity) in &OPS[1..] {
        let trials = [pair(*op), pair(Op::Insert)].concat();
        let gain = experiment.paired(&trials, |runs| match runs {
            [fast, wal, of_inserts, wal_s] => {
                per_s(fast) / per_s(wal) / (per_s(of_inserts) / per_s(wal_s))
            }
            _ => f64::NAN,
        });
        let row = Row::new(GAIN, quantity, "of 1", Kind::Timed).ran(FASTEST_DURABLE);
        let row = row.rounds("inserts", Some(data::LIKE_INSERTS), &gain);
        rows.push(row.judged());
    }
    Ok(rows)
}

const LAYOUT_REASONS: &[Reason] = &[
    Reason {
        of: |row| row.name == "sector padding",
        side: Side::Above,
        sentence: "This device takes a write that is no multiple of 4 KiB about as fast as one that is; the paper's \
                   flash reads, changes and rewrites a page for it.",
        count: ODD_SIZES,
        predict: odd_sizes_cost_nothing,
    },
    Reason {
        of: |row| mode_of(row).is_ok(),
        side: Side::Below,
        sentence: "What a commit costs here is the flush and not the file system's journal that WALDIO saves: stock \
                   WAL's two flushes an insert are fast compared with the one that both need.",
        count: FLUSHES,
        predict: by_flushes,
    },
    Reason {
        of: |row| mode_of(row).is_ok(),
        side: Side::Above,
        sentence: "Stock WAL pays more for the file system's journal here than on the paper's phone: its inserts wait \
                   for more than one flush, those of WALDIO for one.",
        count: FLUSHES,
        predict: by_flushes,
    },
];

const MODE_REASONS: &[Reason] = &[
    Reason {
        of: |row| row.name.starts_with("WALDIO-NS"),
        side: Side::Above,
        sentence: "A write that is not flushed costs next to nothing on this device, so leaving out the flush gains \
                   more than on the paper's phone.",
        count: FLUSH_TIME,
        predict: without_flushes,
    },
    Reason {
        of: |row| row.name.starts_with("WALDIO-NS"),
        side: Side::Below,
        sentence: "A flush costs little more than a write on this device, so leaving it out gains less than on the \
                   paper's phone.",
        count: FLUSH_TIME,
        predict: without_flushes,
    },
    Reason {
        of: |row| row.name.ends_with("GS4"),
        side: Side::Above,
        sentence: "Flushing, which four inserts share in group synch, is more of an insert's cost here than on the \
                   paper's phone.",
        count: FLUSH_TIME,
        predict: without_flushes,
    },
    Reason {
        of: |row| row.name.ends_with("GS4"),
        side: Side::Below,
        sentence: "Flushing, which four inserts share in group synch, is less of an insert's cost here than on the \
                   paper's phone.",
        count: FLUSH_TIME,
        predict: without_flushes,
    },
    Reason {
        of: |row| row.name.starts_with(GAIN),
        side: Side::Above,
        sentence: "WAL itself is slower at these than at inserts in this run.",
        count: WAL_BY_OP,
        predict: wal_by_op,
    },
    Reason {
        of: |row| row.name.starts_with(GAIN),
        side: Side::Below,
        sentence: "WAL itself is faster at these than at inserts in this run.",
        count: WAL_BY_OP,
        predict: wal_by_op,
    },
    LAYOUT_REASONS[1],
    LAYOUT_REASONS[2],
];

const ODD_SIZES: &str =
    "the rate of header embedding, and that of durable writes of 4,608 and 4,096 bytes";
const FLUSHES: &str = "flushes an insert";
const FLUSH_TIME: &str =
    "the flushes that are left out, and the time of a durable write and of another";
const WAL_BY_OP: &str = "the rates of WAL alone";

/// Header embedding's gain, if only the size of a write made a difference.
fn odd_sizes_cost_nothing(experiment: &mut Experiment<'_>, _: &Row) -> Result<Predicted, String> {
    let choice = experiment.choice();
    let count = choice.count.unwrap_or(super::THOUSAND).min(super::THOUSAND);
    let mut of_size = |bytes| -> Result<f64, String> {
        Ok(experiment
            .records(Way::ODirectOSync, bytes, count, super::REPEATS)?
            .ops_per_s)
    };
    let (frame, page) = (of_size(4096 + 512)?, of_size(4096)?);
    let embedded = rate(experiment, Op::Insert, EMBEDDED)?;
    let gain = embedded / rate(experiment, Op::Insert, "wal")?;
    Ok(Predicted::new(
        by_size(gain, frame, page),
        format!(
            "durable direct writes, one after the other: {frame:.0} a second of 4,608 bytes, {page:.0} of 4,096; header \
             embedding, one page an insert, {gain:.2} times WAL"
        ),
    ))
}

/// A layout's gain if its writes take longer as plain ones of its size do.
fn by_size(gain: f64, frame_per_s: f64, page_per_s: f64) -> f64 {
    gain * frame_per_s / page_per_s
}

/// WALDIO's layout, which writes one page an insert, and flushes it.
const EMBEDDED: &str = "waldio:sync=full";

/// The mode of a row.
fn mode_of(row: &Row) -> Result<&'static str, String> {
    let mut all = data::MODES.iter().chain(&data::ALIGNED);
    let found = all.find(|rate| rate.name == row.name);
    let mode = found.and_then(|rate| rate.mode);
    mode.ok_or_else(|| format!("{} is no mode", row.name))
}

/// The operation of a row.
fn op_of(row: &Row) -> Op {
    let op = OPS.iter().find(|(_, quantity)| *quantity == row.quantity);
    op.map_or(Op::Insert, |(op, _)| *op)
}

/// Flushes of a transaction, and its microseconds.
fn cost(experiment: &mut Experiment<'_>, op: Op, mode: &'static str) -> Result<(f64, f64), String> {
    let run = experiment.run(&trial(experiment.choice(), op, mode))?;
    // Without a scratch device nothing is counted, and nothing predicted.
    let flushes = run.per_op.map_or(f64::NAN, |per_op| per_op.flushes);
    Ok((flushes, 1e6 / run.ops_per_s))
}

/// The ratio to WAL if only flushes took time.
fn by_flushes(experiment: &mut Experiment<'_>, row: &Row) -> Result<Predicted, String> {
    let (op, mode) = (op_of(row), mode_of(row)?);
    let (wal, ours) = (cost(experiment, op, "wal")?, cost(experiment, op, mode)?);
    Ok(Predicted::of_row(
        of_flushes(wal.0, ours.0),
        "flushes and time of a transaction:",
        format!(
            "{:.2} and {:.0} us, WAL {:.2} and {:.0} us",
            ours.0, ours.1, wal.0, wal.1
        ),
    ))
}

/// The ratio to WAL of rates, if a transaction takes as long as its flushes.
fn of_flushes(wal: f64, ours: f64) -> f64 {
    wal / ours
}

/// The mode that flushes more, and otherwise does the same.
fn flushing_more(mode: &'static str) -> &'static str {
    match mode {
        "waldio:sync=normal,group_synch=4/2" => "waldio:sync=persistent,group_synch=4/2",
        "waldio:sync=persistent,group_synch=4/2" | "waldio:sync=normal" => "waldio:sync=persistent",
        _ => EMBEDDED,
    }
}

/// The ratio to WAL from the mode that flushes more: its time without those flushes, each of which
/// takes what durability adds to a write.
fn without_flushes(experiment: &mut Experiment<'_>, row: &Row) -> Result<Predicted, String> {
    let (op, mode) = (op_of(row), mode_of(row)?);
    let raw = experiment.raw();
    let rates = raw.direct_dsync_4k_per_s.zip(raw.direct_4k_per_s);
    let (durable, lazy) = rates.ok_or("there is no direct I/O here")?;
    let flush_us = 1e6 / durable - 1e6 / lazy;
    let more = flushing_more(mode);
    let (before, after) = (cost(experiment, op, more)?, cost(experiment, op, mode)?);
    let (_, wal_us) = cost(experiment, op, "wal")?;
    Ok(Predicted::of_row(
        leaving_out(wal_us, before.1, before.0 - after.0, flush_us),
        &format!(
            "raw direct writes of 4 KiB: {durable:.0} a second durable, {lazy:.0} not, so that a flush takes {flush_us:.0} us; \
             flushes and time of a transaction:"
        ),
        format!(
            "{:.2} and {:.0} us, {more} {:.2} and {:.0} us",
            after.0, after.1, before.0, before.1
        ),
    ))
}

/// The ratio to WAL of a transaction without some of its flushes. If they would take all of its
/// time, there is no such ratio.
fn leaving_out(wal_us: f64, before_us: f64, flushes: f64, flush_us: f64) -> f64 {
    match before_us - flushes * flush_us {
        us if us > 0.0 => wal_us / us,
        _ => f64::INFINITY,
    }
}

/// The gain to that of inserts, if the fastest mode is as fast at everything.
fn wal_by_op(experiment: &mut Experiment<'_>, row: &Row) -> Result<Predicted, String> {
    let inserts = rate(experiment, Op::Insert, "wal")?;
    let others = rate(experiment, op_of(row), "wal")?;
    Ok(Predicted::new(
        of_wal_alone(inserts, others),
        format!(
            "WAL: {inserts:.0} inserts a second, {others:.0} {}",
            row.quantity
        ),
    ))
}

/// That gain from WAL's rates.
fn of_wal_alone(inserts_per_s: f64, others_per_s: f64) -> f64 {
    inserts_per_s / others_per_s
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::outcome::tests::alike;

    /// A rate to another in seven rounds, all alike.
    fn row(name: &'static str, quantity: &'static str, paper: f64, ours: f64) -> Row {
        let stated = Some(Stated::about(paper, "test"));
        let row = Row::new(name, quantity, "/s", Kind::Timed);
        let row = row.rounds("WAL", stated, &alike(ours)).judged();
        assert!(row.differs(), "{row:?}");
        row
    }

    fn is_for(row: &Row, count: &str) -> bool {
        let mut all = LAYOUT_REASONS.iter().chain(MODE_REASONS);
        all.any(|r| r.count == count && (r.of)(row) && Some(r.side) == row.side())
    }

    #[test]
    fn the_rates_of_odd_sizes_can_speak_against_their_reason() {
        let row = row("sector padding", "inserts", 1.0, 2.1);
        assert!(is_for(&row, ODD_SIZES));
        assert!(row.is_accounted_for_by(by_size(2.0, 1_950.0, 2_000.0)));
        // Planted: writes of 4,608 bytes take twice as long; a layout that gains nothing.
        assert!(!row.is_accounted_for_by(by_size(2.0, 1_000.0, 2_000.0)));
        assert!(!row.is_accounted_for_by(by_size(1.0, 2_000.0, 2_000.0)));
    }

    #[test]
    fn the_count_of_flushes_can_speak_against_its_reasons() {
        let more = row("header embedding", "inserts", 2.11, 6.0);
        assert!(is_for(&more, FLUSHES));
        assert!(more.is_accounted_for_by(of_flushes(5.0, 1.0)));
        let less = row("header embedding", "inserts", 2.11, 1.1);
        assert!(is_for(&less, FLUSHES));
        assert!(less.is_accounted_for_by(of_flushes(1.2, 1.0)));
        // Planted: the counts of the other row, and as many flushes as in the paper's ratio.
        assert!(!more.is_accounted_for_by(of_flushes(1.2, 1.0)));
        assert!(!less.is_accounted_for_by(of_flushes(5.0, 1.0)));
        assert!(!less.is_accounted_for_by(of_flushes(2.11, 1.0)));
        // Without a scratch device nothing is counted.
        assert!(!less.is_accounted_for_by(of_flushes(f64::NAN, f64::NAN)));
    }

    /// 1,000 us in WAL, 500 with a flush and 40 without.
    #[test]
    fn the_time_of_a_flush_can_speak_against_its_reasons() {
        let row = row("WALDIO-NS, GS4", "inserts", 7.38, 25.0);
        assert!(is_for(&row, FLUSH_TIME));
        assert!(row.is_accounted_for_by(leaving_out(1_000.0, 500.0, 1.0, 460.0)));
        // Planted: flushes that cost little, that are not left out, or that take all the time.
        assert!(!row.is_accounted_for_by(leaving_out(1_000.0, 500.0, 1.0, 100.0)));
        assert!(!row.is_accounted_for_by(leaving_out(1_000.0, 500.0, 0.0, 460.0)));
        assert!(!row.is_accounted_for_by(leaving_out(1_000.0, 500.0, 1.0, 600.0)));
    }

    #[test]
    fn wal_s_own_rates_can_speak_against_their_reasons() {
        let row = row(GAIN, "updates", 1.0, 0.5);
        assert!(is_for(&row, WAL_BY_OP));
        assert!(row.is_accounted_for_by(of_wal_alone(1_000.0, 1_900.0)));
        // Planted: WAL as fast at both, and the rates the other way round.
        assert!(!row.is_accounted_for_by(of_wal_alone(1_000.0, 1_000.0)));
        assert!(!row.is_accounted_for_by(of_wal_alone(1_900.0, 1_000.0)));
    }
}
