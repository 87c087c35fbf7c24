//! Figures 7 and 8: the writes of applications in each mode, and the time that they take.

use onewrite_workload::plan::Op;

use super::data::{self, APPLICATIONS};
use super::{GENERATED, OURS, PAPER_S, trial};
use crate::reproduce::experiment::{Choice, Experiment, Trial};
use crate::reproduce::outcome::{Checked, Kind, Reason, Row, Shown, Side, Stated, explain};

const MODES: [(&str, &str); 5] = [
    ("PERSIST", "persist"),
    ("MEMORY", "memory"),
    ("WAL", "wal"),
    ("S-WAL", PAPER_S),
    ("S-WAL with differences", OURS),
];

/// Bytes of a write in these counts.
const BLOCK: f64 = 4096.0;

/// Names of rows over all applications.
const AVERAGE: &str = "average of all";
const LEAST: &str = "least of all";
const MOST: &str = "most of all";

const JOURNAL_WAL: &str = "journal: WAL to S-WAL";
const JOURNAL_OURS: &str = "journal: WAL to S-WAL with differences";
const DATABASE: &str = "database: PERSIST to WAL";
const TO_WAL: &str = "time: S-WAL to WAL";
const TO_PERSIST: &str = "time: PERSIST to S-WAL";

/// Every application in every mode.
pub fn trials(choice: Choice) -> Vec<Trial> {
    let each = |op| MODES.iter().map(move |(_, mode)| trial(choice, op, mode));
    APPLICATIONS.iter().flat_map(|one| each(one.op)).collect()
}

/// The cost of an application's transaction in a mode.
#[derive(Clone, Copy)]
struct Cost {
    /// Blocks written to the journal, of 4 KiB.
    journal: f64,
    /// Blocks written to the database.
    database: f64,
    /// Flushes of the device.
    flushes: f64,
    /// Seconds of the whole run.
    seconds: f64,
    count: f64,
}

fn cost(experiment: &mut Experiment<'_>, op: Op, mode: &'static str) -> Result<Cost, String> {
    let run = experiment.run(&trial(experiment.choice(), op, mode))?;
    let by = run.by_file.unwrap_or_default();
    let count = f64::from(run.count);
    Ok(Cost {
        journal: by.log_bytes as f64 / BLOCK / count,
        database: by.database_bytes as f64 / BLOCK / count,
        flushes: run.per_op.map_or(0.0, |per_op| per_op.flushes),
        seconds: run.elapsed_s,
        count,
    })
}

/// The ratio of two modes for each application in which the second did anything.
fn ratios(
    experiment: &mut Experiment<'_>,
    of: &'static str,
    to: &'static str,
    part: fn(&Cost) -> f64,
) -> Result<Vec<f64>, String> {
    let mut ratios = Vec::new();
    for one in &APPLICATIONS {
        let (of, to) = (cost(experiment, one.op, of)?, cost(experiment, one.op, to)?);
        if part(&to) > 0.0 {
            ratios.push(part(&of) / part(&to));
        }
    }
    Ok(ratios)
}

fn least(of: &[f64]) -> Option<f64> {
    of.iter().copied().reduce(f64::min)
}

fn most(of: &[f64]) -> Option<f64> {
    of.iter().copied().reduce(f64::max)
}

fn average(of: &[f64]) -> Option<f64> {
    (!of.is_empty()).then(|| of.iter().sum::<f64>() / of.len() as f64)
}

/// A row whose figure is a ratio.
fn times(
    name: &'static str,
    what: &'static str,
    kind: Kind,
    stated: Stated,
    ours: Option<f64>,
) -> Row {
    let (of, to) = what.rsplit_once(" to ").unwrap_or((what, ""));
    let ran = of.rsplit_once(": ").map_or(of, |(_, of)| of);
    let mode = MODES.iter().find(|(name, _)| *name == ran);
    let row = Row::new(name, what, "times", kind).ran(mode.map_or(ran, |(_, mode)| mode));
    row.ratio(to, Some(stated), ours).judged()
}

fn how(choice: Choice, lab_repeats: u32) -> String {
    let length = choice.count.map_or_else(
        || "at their full length".to_owned(),
        |count| format!("{count} transactions of each"),
    );
    format!(
        "four applications, {length}, synchronous=FULL, a checkpoint every {} pages; {}",
        super::AUTOCHECKPOINT,
        match lab_repeats {
            1 => "each once".to_owned(),
            n => format!("median of {n}"),
        }
    )
}

/// Figure 7: writes by mode.
pub fn figure_7(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    experiment.must_count()?;
    let choice = experiment.choice();
    experiment.run_all(&trials(choice))?;
    let mut rows = Vec::new();
    for one in &APPLICATIONS {
        for (name, mode) in MODES {
            let cost = cost(experiment, one.op, mode)?;
            for (what, blocks) in [("journal", cost.journal), ("database", cost.database)] {
                let quantity = quantity(one.name, what);
                let row = Row::new(name, quantity, "4 KiB blocks", Kind::Counted).ran(mode);
                rows.push(row.ours(Some((blocks * cost.count).round())).judged());
            }
        }
    }
    rows.extend(over_all(experiment)?);
    let differences = explain(&rows, TRAFFIC_REASONS, experiment)?;
    Ok(Shown {
        figure: "figure-7",
        title: "writes to journal and database, by journal mode",
        how: how(choice, choice.repeats.unwrap_or(1)),
        rows,
        differences,
        sequences: Vec::new(),
        notes: vec![
            GENERATED.to_owned(),
            "a write is counted as the blocks of 4 KiB that reached the device, which does not depend on how the kernel \
             merges them; the paper's text does not say what it counts"
                .to_owned(),
        ],
    })
}

/// The names of the groups of bars.
fn quantity(application: &str, what: &str) -> &'static str {
    match (application, what) {
        ("Mail", "journal") => "Mail, journal",
        ("Mail", _) => "Mail, database",
        ("Messenger", "journal") => "Messenger, journal",
        ("Messenger", _) => "Messenger, database",
        ("Message", "journal") => "Message, journal",
        ("Message", _) => "Message, database",
        (_, "journal") => "SNS, journal",
        (_, _) => "SNS, database",
    }
}

/// The rows for which the paper's text has numbers.
fn over_all(experiment: &mut Experiment<'_>) -> Result<Vec<Row>, String> {
    let journal = ratios(experiment, "wal", PAPER_S, |cost| cost.journal)?;
    let with_differences = ratios(experiment, "wal", OURS, |cost| cost.journal)?;
    let database = ratios(experiment, "persist", "wal", |cost| cost.database)?;
    let same = ratios(experiment, PAPER_S, "wal", |cost| cost.database)?;
    let all = |cost: &Cost| cost.journal + cost.database;
    let persist = ratios(experiment, "persist", "wal", all)?;
    let counted = |name, what, stated, ours| times(name, what, Kind::Counted, stated, ours);
    Ok(vec![
        counted(
            AVERAGE,
            JOURNAL_WAL,
            data::FEWER_JOURNAL_WRITES,
            average(&journal),
        ),
        counted(
            MOST,
            JOURNAL_WAL,
            data::FEWEST_JOURNAL_WRITES,
            most(&journal),
        ),
        counted(
            AVERAGE,
            JOURNAL_OURS,
            data::FEWER_JOURNAL_WRITES,
            average(&with_differences),
        ),
        counted(
            MOST,
            JOURNAL_OURS,
            data::FEWEST_JOURNAL_WRITES,
            most(&with_differences),
        ),
        counted(
            LEAST,
            DATABASE,
            data::FEWER_DATABASE_WRITES.0,
            least(&database),
        ),
        counted(
            MOST,
            DATABASE,
            data::FEWER_DATABASE_WRITES.1,
            most(&database),
        ),
        counted(
            AVERAGE,
            "database: S-WAL to WAL",
            data::SAME_DATABASE_WRITES,
            average(&same),
        ),
        counted(
            LEAST,
            "all writes: PERSIST to WAL",
            data::PERSIST_WRITES_MORE,
            least(&persist),
        ),
    ])
}

/// Figure 8: elapsed time by mode.
pub fn figure_8(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    let choice = experiment.choice();
    experiment.run_all(&trials(choice))?;
    let mut rows = Vec::new();
    for one in &APPLICATIONS {
        let persist = cost(experiment, one.op, "persist")?.seconds;
        for (name, mode) in MODES {
            let seconds = cost(experiment, one.op, mode)?.seconds;
            let row = Row::new(name, one.name, "s", Kind::Timed).ran(mode);
            let row = row.ours(Some(seconds));
            rows.push(row.ratio("PERSIST", None, Some(seconds / persist)).judged());
        }
    }
    let to_wal = ratios(experiment, PAPER_S, "wal", |cost| cost.seconds)?;
    let to_persist = ratios(experiment, "persist", PAPER_S, |cost| cost.seconds)?;
    let timed = |name, what, stated, ours| times(name, what, Kind::Timed, stated, ours);
    rows.extend([
        timed(LEAST, TO_WAL, data::TO_WAL_S_TIME.0, least(&to_wal)),
        timed(MOST, TO_WAL, data::TO_WAL_S_TIME.1, most(&to_wal)),
        timed(
            LEAST,
            TO_PERSIST,
            data::PERSIST_S_TIME.0,
            least(&to_persist),
        ),
        timed(MOST, TO_PERSIST, data::PERSIST_S_TIME.1, most(&to_persist)),
    ]);
    let differences = explain(&rows, TIME_REASONS, experiment)?;
    Ok(Shown {
        figure: "figure-8",
        title: "elapsed time, by journal mode",
        how: how(choice, choice.repeats.unwrap_or(1)),
        rows,
        differences,
        sequences: Vec::new(),
        notes: vec![GENERATED.to_owned()],
    })
}

const TRAFFIC_REASONS: &[Reason] = &[
    Reason {
        of: |row| row.quantity == JOURNAL_WAL,
        side: Side::Below,
        sentence: "A commit's pages compress to more than one block: the generated texts repeat themselves less than \
                   what the paper recorded (figure 4), and pages that are compressed by themselves stay large.",
        check: blocks_of_a_commit,
    },
    Reason {
        of: |row| row.quantity == JOURNAL_OURS,
        side: Side::Below,
        sentence: "A commit writes one block at least, so a factor cannot be larger than the blocks that a commit of \
                   stock WAL takes, and the generated applications change few pages in each.",
        check: ceiling,
    },
    Reason {
        of: |row| row.quantity == JOURNAL_OURS,
        side: Side::Above,
        sentence: "Differences from earlier frames, which are ours and not the paper's, take less than compressed pages.",
        check: differences_take_less,
    },
    Reason {
        of: |row| row.quantity == DATABASE,
        side: Side::Above,
        sentence: "A checkpoint copies each page once however often it was logged, and the generated applications come \
                   back to the same pages more often.",
        check: pages_come_back,
    },
    Reason {
        of: |row| row.quantity == DATABASE,
        side: Side::Below,
        sentence: "A checkpoint copies each page once however often it was logged, and the generated applications come \
                   back to the same pages less often.",
        check: pages_come_back,
    },
];

/// Journal blocks of a commit in each application.
fn of_each(
    experiment: &mut Experiment<'_>,
    mode: &'static str,
    part: fn(&Cost) -> f64,
) -> Result<(Vec<f64>, String), String> {
    let (mut values, mut told) = (Vec::new(), Vec::new());
    for one in &APPLICATIONS {
        let value = part(&cost(experiment, one.op, mode)?);
        values.push(value);
        told.push(format!("{} {value:.2}", one.name));
    }
    Ok((values, told.join(", ")))
}

fn blocks_of_a_commit(experiment: &mut Experiment<'_>, _: &Row) -> Result<Checked, String> {
    let (swal, told) = of_each(experiment, PAPER_S, |cost| cost.journal)?;
    let (_, wal) = of_each(experiment, "wal", |cost| cost.journal)?;
    Ok(Checked::new(
        average(&swal) > Some(1.2),
        format!("journal blocks a transaction: S-WAL {told}; WAL {wal}"),
    ))
}

fn ceiling(experiment: &mut Experiment<'_>, row: &Row) -> Result<Checked, String> {
    let (wal, told) = of_each(experiment, "wal", |cost| cost.journal)?;
    let (_, ours) = of_each(experiment, OURS, |cost| cost.journal)?;
    let (ceiling, paper) = match row.name {
        MOST => (
            most(&wal).unwrap_or(0.0),
            data::FEWEST_JOURNAL_WRITES.amount,
        ),
        _ => (
            average(&wal).unwrap_or(0.0),
            data::FEWER_JOURNAL_WRITES.amount,
        ),
    };
    Ok(Checked {
        holds: ceiling < paper * 1.5,
        measured: format!(
            "journal blocks a transaction: WAL {told}; S-WAL with differences {ours}"
        ),
        of_row: Some(format!("can be {ceiling:.1} at most")),
    })
}

fn differences_take_less(experiment: &mut Experiment<'_>, _: &Row) -> Result<Checked, String> {
    let (ours, told) = of_each(experiment, OURS, |cost| cost.journal)?;
    let (pages, theirs) = of_each(experiment, PAPER_S, |cost| cost.journal)?;
    Ok(Checked::new(
        average(&ours) < average(&pages),
        format!("journal blocks a transaction: with differences {told}; without {theirs}"),
    ))
}

fn pages_come_back(experiment: &mut Experiment<'_>, row: &Row) -> Result<Checked, String> {
    let (logged, logged_told) = of_each(experiment, "wal", |cost| cost.journal)?;
    let (copied, told) = of_each(experiment, "wal", |cost| cost.database)?;
    let shares: Vec<f64> = logged
        .iter()
        .zip(&copied)
        .filter(|(_, copied)| **copied > 0.0)
        .map(|(logged, copied)| logged / copied)
        .collect();
    let of_row = match row.name {
        MOST => most(&shares),
        _ => least(&shares),
    };
    let of_row = of_row.unwrap_or(0.0);
    let (paper, ours) = row
        .ratio
        .as_ref()
        .and_then(|ratio| ratio.paper.map(|paper| paper.amount).zip(ratio.ours))
        .unwrap_or((1.0, 1.0));
    // Blocks logged divided by blocks copied: the ratio from this cause alone.
    let holds = (of_row > paper) == (ours > paper);
    Ok(Checked {
        holds,
        measured: format!(
            "blocks a transaction in WAL: to the log {logged_told}; to the database {told}"
        ),
        of_row: Some(format!("{of_row:.1} times more to the log")),
    })
}

const TIME_REASONS: &[Reason] = &[
    Reason {
        of: |row| row.quantity == TO_WAL,
        side: Side::Above,
        sentence: "Once its log is reused, stock WAL waits for one flush a commit as S-WAL does, and what a commit of \
                   this device takes is the flush rather than the bytes.",
        check: flushes_alike,
    },
    Reason {
        of: |row| row.quantity == TO_WAL,
        side: Side::Below,
        sentence: "S-WAL's prepared blocks spare commits the file system's journal, which stock WAL's growing log does \
                   not: more flushes a commit.",
        check: fewer_flushes,
    },
    Reason {
        of: |row| row.quantity == TO_PERSIST,
        side: Side::Above,
        sentence: "PERSIST waits for several flushes a transaction, S-WAL for one, and on this device the flush is what \
                   a transaction takes.",
        check: persist_flushes,
    },
    Reason {
        of: |row| row.quantity == TO_PERSIST,
        side: Side::Below,
        sentence: "S-WAL's time has more in it here than flushes, so PERSIST's flushes weigh less than on the paper's \
                   phone.",
        check: persist_flushes,
    },
];

/// Flushes of WAL for each flush of S-WAL, in the row's application, and a sentence about both.
fn flushes_of(experiment: &mut Experiment<'_>, row: &Row) -> Result<(f64, String), String> {
    let times = ratios(experiment, PAPER_S, "wal", |cost| cost.seconds)?;
    let wanted = if row.name == MOST {
        most(&times)
    } else {
        least(&times)
    };
    let at = times
        .iter()
        .position(|time| Some(*time) == wanted)
        .unwrap_or(0);
    let one = APPLICATIONS.get(at).ok_or("no such application")?;
    let (wal, swal) = (
        cost(experiment, one.op, "wal")?,
        cost(experiment, one.op, PAPER_S)?,
    );
    let told = format!(
        "{}: a transaction flushes {:.2} times in WAL and {:.2} in S-WAL, and takes {:.0} us and {:.0} us",
        one.name,
        wal.flushes,
        swal.flushes,
        wal.seconds / wal.count * 1e6,
        swal.seconds / swal.count * 1e6
    );
    Ok((wal.flushes / swal.flushes.max(1e-9), told))
}

fn flushes_alike(experiment: &mut Experiment<'_>, row: &Row) -> Result<Checked, String> {
    let (flushes, told) = flushes_of(experiment, row)?;
    Ok(Checked::new(flushes < 1.35, told))
}

fn fewer_flushes(experiment: &mut Experiment<'_>, row: &Row) -> Result<Checked, String> {
    let (flushes, told) = flushes_of(experiment, row)?;
    Ok(Checked::new(flushes > 1.35, told))
}

fn persist_flushes(experiment: &mut Experiment<'_>, row: &Row) -> Result<Checked, String> {
    let (persist, persist_told) = of_each(experiment, "persist", |cost| cost.flushes)?;
    let (swal, swal_told) = of_each(experiment, PAPER_S, |cost| cost.flushes)?;
    let by_flushes = average(&persist).zip(average(&swal));
    let by_flushes = by_flushes.map_or(0.0, |(persist, swal)| persist / swal.max(1e-9));
    let (paper, ours) = row
        .ratio
        .as_ref()
        .and_then(|ratio| ratio.paper.map(|paper| paper.amount).zip(ratio.ours))
        .unwrap_or((1.0, 1.0));
    let holds = match row.side() {
        Some(Side::Above) => by_flushes > paper && ours < by_flushes * 2.0,
        _ => by_flushes > ours,
    };
    Ok(Checked::new(
        holds,
        format!("flushes a transaction: PERSIST {persist_told}; S-WAL {swal_told}"),
    ))
}
