//! The speed of modes: table 2, figures 13 and 14.

use onewrite_workload::files::Way;
use onewrite_workload::plan::Op;

use super::data::{self, Rate};
use super::trial;
use crate::reproduce::experiment::{Choice, Experiment, Trial};
use crate::reproduce::outcome::{Checked, Kind, Reason, Row, Shown, Side, Stated, explain};

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
        let row = row.ratio("WAL", stated(ratio), ours.map(|ours| ours / wal));
        rows.push(row.judged());
    }
    Ok(rows)
}

fn how(choice: Choice) -> String {
    format!(
        "{} transactions of one row of 100 bytes, synchronous=FULL, no checkpoint inside; median of {}",
        choice.count.unwrap_or(super::THOUSAND),
        choice.repeats.unwrap_or(super::REPEATS)
    )
}

const ELSEWHERE: &str = "LS-MVBT has its own: reproduce lsmvbt, in a build with that feature";

/// Figure 13: layouts.
pub fn figure_13(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    let choice = experiment.choice();
    experiment.run_all(&figure_13_trials(choice))?;
    let (op, _) = OPS[0];
    let rows = rows_of(experiment, (op, "inserts"), &data::ALIGNED)?;
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
    experiment.run_all(&figure_14_trials(choice))?;
    let rows = rows_of(experiment, (Op::Insert, "inserts"), &data::MODES)?;
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
    experiment.run_all(&table_2_trials(choice))?;
    let mut rows = Vec::new();
    for of in OPS {
        rows.extend(rows_of(experiment, of, &data::MODES)?);
    }
    let mut gain = |op| -> Result<f64, String> {
        Ok(rate(experiment, op, FASTEST_DURABLE)? / rate(experiment, op, "wal")?)
    };
    let inserts = gain(Op::Insert)?;
    for (op, quantity) in &OPS[1..] {
        let to_inserts = gain(*op)? / inserts;
        let row = Row::new(GAIN, quantity, "of 1", Kind::Timed).ran(FASTEST_DURABLE);
        let row = row.ratio("inserts", Some(data::LIKE_INSERTS), Some(to_inserts));
        rows.push(row.judged());
    }
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

const LAYOUT_REASONS: &[Reason] = &[
    Reason {
        of: |row| row.name == "sector padding",
        side: Side::Above,
        sentence: "This device takes a write that is no multiple of 4 KiB about as fast as one that is; the paper's \
                   flash reads, changes and rewrites a page for it.",
        check: odd_sizes_cost_nothing,
    },
    Reason {
        of: |row| row.name != "WAL",
        side: Side::Below,
        sentence: "What a commit costs here is the flush and not the file system's journal that WALDIO saves: stock \
                   WAL's two flushes an insert are fast compared with the one that both need.",
        check: flushes_bound,
    },
    Reason {
        of: |row| row.name != "WAL",
        side: Side::Above,
        sentence: "Stock WAL pays more for the file system's journal here than on the paper's phone: its inserts wait \
                   for more than one flush, those of WALDIO for one.",
        check: flushes_bound,
    },
];

const MODE_REASONS: &[Reason] = &[
    Reason {
        of: |row| row.name.starts_with("WALDIO-NS"),
        side: Side::Above,
        sentence: "A write that is not flushed costs next to nothing on this device, so leaving out the flush gains \
                   more than on the paper's phone.",
        check: flush_dominates,
    },
    Reason {
        of: |row| row.name.starts_with("WALDIO-NS"),
        side: Side::Below,
        sentence: "A flush costs little more than a write on this device, so leaving it out gains less than on the \
                   paper's phone.",
        check: flush_is_cheap,
    },
    Reason {
        of: |row| row.name.ends_with("GS4"),
        side: Side::Above,
        sentence: "Flushing, which four inserts share in group synch, is more of an insert's cost here than on the \
                   paper's phone.",
        check: shared_flushes,
    },
    Reason {
        of: |row| row.name.ends_with("GS4"),
        side: Side::Below,
        sentence: "Flushing, which four inserts share in group synch, is less of an insert's cost here than on the \
                   paper's phone.",
        check: shared_flushes,
    },
    Reason {
        of: |row| row.name.starts_with(GAIN),
        side: Side::Above,
        sentence: "WAL itself is slower at these than at inserts in this run.",
        check: wal_by_op,
    },
    Reason {
        of: |row| row.name.starts_with(GAIN),
        side: Side::Below,
        sentence: "WAL itself is faster at these than at inserts in this run.",
        check: wal_by_op,
    },
    LAYOUT_REASONS[1],
    LAYOUT_REASONS[2],
];

/// Durable direct writes of a sector-padded frame, and of a page.
fn odd_sizes_cost_nothing(experiment: &mut Experiment<'_>, _: &Row) -> Result<Checked, String> {
    let count = experiment
        .choice()
        .count
        .unwrap_or(super::THOUSAND)
        .min(super::THOUSAND);
    let mut rate = |bytes| -> Result<f64, String> {
        Ok(experiment
            .records(Way::ODirectOSync, bytes, count, super::REPEATS)?
            .ops_per_s)
    };
    let (frame, page) = (rate(4096 + 512)?, rate(4096)?);
    Ok(Checked::new(
        frame / page > 0.75,
        format!(
            "durable direct writes, one after the other: {frame:.0} a second of 4,608 bytes, {page:.0} of 4,096"
        ),
    ))
}

/// Flushes of an insert in WAL and WALDIO, and the cost of a durable write here.
fn flushes_bound(experiment: &mut Experiment<'_>, row: &Row) -> Result<Checked, String> {
    let choice = experiment.choice();
    let mut of = |mode| -> Result<(f64, f64), String> {
        let run = experiment.run(&trial(choice, Op::Insert, mode))?;
        let flushes = run.per_op.map_or(0.0, |per_op| per_op.flushes);
        Ok((flushes, 1e6 / run.ops_per_s))
    };
    let (wal, waldio) = (of("wal")?, of("waldio:sync=full")?);
    // The ratio from flushes alone.
    let by_flushes = wal.0 / waldio.0.max(1e-9);
    let gained = row
        .ratio
        .as_ref()
        .and_then(|ratio| ratio.ours)
        .unwrap_or(0.0);
    Ok(Checked::new(
        waldio.0 > 0.0 && (0.6..1.7).contains(&(gained / by_flushes)),
        format!(
            "an insert of WAL flushes {:.2} times and takes {:.0} us, one of WALDIO-FS {:.2} times and {:.0} us",
            wal.0, wal.1, waldio.0, waldio.1
        ),
    ))
}

/// Direct writes a second with and without durability, medians of this run.
fn raw(experiment: &Experiment<'_>) -> Result<(f64, f64), String> {
    let raw = experiment.raw();
    let rates = raw.direct_dsync_4k_per_s.zip(raw.direct_4k_per_s);
    rates.ok_or_else(|| "there is no direct I/O here".to_owned())
}

/// The gain of the paper's inserts without the flush: NS to PD, both grouped.
const PAPER_FLUSH: f64 = 4332.0 / 2967.0;

fn flush_told(durable: f64, lazy: f64) -> String {
    format!(
        "raw direct writes of 4 KiB: {durable:.0} a second durable, {lazy:.0} not ({:.1} times)",
        lazy / durable
    )
}

fn flush_dominates(experiment: &mut Experiment<'_>, _: &Row) -> Result<Checked, String> {
    let (durable, lazy) = raw(experiment)?;
    Ok(Checked::new(
        lazy / durable > PAPER_FLUSH * 1.5,
        flush_told(durable, lazy),
    ))
}

fn flush_is_cheap(experiment: &mut Experiment<'_>, _: &Row) -> Result<Checked, String> {
    let (durable, lazy) = raw(experiment)?;
    Ok(Checked::new(
        lazy / durable < PAPER_FLUSH,
        flush_told(durable, lazy),
    ))
}

/// The gain of grouping here and in the paper, and the number of flushes it saves.
fn shared_flushes(experiment: &mut Experiment<'_>, row: &Row) -> Result<Checked, String> {
    let choice = experiment.choice();
    let mut of = |mode| -> Result<(f64, f64), String> {
        let run = experiment.run(&trial(choice, Op::Insert, mode))?;
        Ok((
            run.per_op.map_or(0.0, |per_op| per_op.flushes),
            run.ops_per_s,
        ))
    };
    let single = of("waldio:sync=full")?;
    let grouped = of("waldio:sync=full,group_synch=4/2")?;
    let (here, paper) = (grouped.1 / single.1, 2729.0 / 1219.0);
    Ok(Checked::new(
        grouped.0 < single.0 / 2.0 && (here > paper) == (row.side() == Some(Side::Above)),
        format!(
            "grouping takes WALDIO-FS from {:.2} to {:.2} flushes an insert and makes it {here:.1} times as fast; \
             {paper:.1} times in the paper",
            single.0, grouped.0
        ),
    ))
}

/// WAL's own rates.
fn wal_by_op(experiment: &mut Experiment<'_>, row: &Row) -> Result<Checked, String> {
    let op = OPS.iter().find(|(_, quantity)| *quantity == row.quantity);
    let op = op.map_or(Op::Insert, |(op, _)| *op);
    let inserts = rate(experiment, Op::Insert, "wal")?;
    let others = rate(experiment, op, "wal")?;
    let slower = others < inserts;
    Ok(Checked::new(
        slower == (row.side() == Some(Side::Above)),
        format!(
            "WAL: {inserts:.0} inserts a second, {others:.0} {}",
            row.quantity
        ),
    ))
}
