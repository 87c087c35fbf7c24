//! LS-MVBT (FAST '14): slides 46 to 56. The full paper's text is not available here, so only the
//! numbers printed on the slides are compared.
//!
//! The slides assume, without saying so, that the device writes 4 KiB whole or not at all:
//! `torn=trust` here. The cost without that assumption (`double`, the default) stands next to it.
//! Needs a build with `--features lsmvbt`.

mod reasons;

use onewrite_workload::connection::Settings;
use onewrite_workload::databases::Databases;
use onewrite_workload::mode::{Mode, Synchronous};
use onewrite_workload::plan::Op;

use super::Figure;
use super::crash::crashed;
use super::experiment::{Choice, Experiment, RECORD_BYTES, Trial};
use super::outcome::{Kind, Row, Shown, Stated, explain};
use onewrite_cli::compare::report::Run;
use reasons::REASONS;

const TRUST: &str = "lsmvbt:torn=trust";
const DOUBLE: &str = "lsmvbt";
const REDISTRIBUTION: &str = "lsmvbt:torn=trust,redistribution=on";
const WAL: &str = "wal";
/// Pages of log after which SQLite checkpoints by itself.
const AUTOCHECKPOINT: u32 = 1_000;
const COUNT: u32 = 1_000;
const SLIDES: &str = "slides";

/// The engine's switches: all on, each off, all off.
const SWITCHES: &[(&str, &str)] = &[
    ("all five", TRUST),
    ("no lazy split", "lsmvbt:torn=trust,lazy_split=off"),
    ("no reserve", "lsmvbt:torn=trust,reserve=0"),
    (
        "no lazy garbage collection",
        "lsmvbt:torn=trust,lazy_gc=off",
    ),
    ("no embedded metadata", "lsmvbt:torn=trust,embedding=off"),
    ("sibling redistribution", REDISTRIBUTION),
    (
        "none of the five",
        "lsmvbt:torn=trust,lazy_split=off,reserve=0,lazy_gc=off,embedding=off,redistribution=on",
    ),
];

/// YCSB's mixes: how many of a hundred transactions search; the others update a row.
const MIXES: [(Op, &str); 3] = [
    (Op::YcsbA, "50 % searches"),
    (Op::YcsbB, "95 % searches"),
    (Op::YcsbC, "100 % searches"),
];

/// The figures that can be reproduced.
pub const FIGURES: &[Figure] = &[
    Figure {
        name: "slide-46",
        title: "an insert: time, and writes to the device (slides 46, 47)",
        trials: |choice| thousand(choice).collect(),
        extra_s: 0.0,
        run: slide_46,
    },
    Figure {
        name: "slide-48",
        title: "accesses to the device by 10 and 100 inserts",
        trials: |choice| few(choice, 10).chain(few(choice, 100)).collect(),
        extra_s: 0.0,
        run: slide_48,
    },
    Figure {
        name: "slide-49",
        title: "bytes written by 1,000 inserts",
        trials: |choice| thousand(choice).collect(),
        extra_s: 0.0,
        run: slide_49,
    },
    Figure {
        name: "slide-51",
        title: "throughput by the share of searches",
        trials: mixes,
        extra_s: 0.0,
        run: slide_51,
    },
    Figure {
        name: "slide-53",
        title: "recovery after a crash",
        trials: |_| Vec::new(),
        extra_s: 20.0,
        run: slide_53,
    },
    Figure {
        name: "slide-56",
        title: "what each optimization brings (slides 55, 56)",
        trials: switched,
        extra_s: 0.0,
        run: slide_56,
    },
];

fn trial(choice: Choice, op: Op, mode: &'static str, count: u32) -> Trial {
    Trial {
        op,
        mode,
        count,
        autocheckpoint: AUTOCHECKPOINT,
        repeats: choice.repeats.unwrap_or(1),
        record_bytes: RECORD_BYTES,
        warm_up: 0,
    }
}

/// A trial whose time is taken, in rounds.
fn timed(choice: Choice, op: Op, mode: &'static str) -> Trial {
    Trial {
        repeats: choice.rounds(),
        ..trial(choice, op, mode, count(choice))
    }
}

fn count(choice: Choice) -> u32 {
    choice.count.unwrap_or(COUNT).min(COUNT)
}

fn thousand(choice: Choice) -> impl Iterator<Item = Trial> {
    let each = move |mode| timed(choice, Op::Insert, mode);
    [WAL, TRUST, DOUBLE].into_iter().map(each)
}

fn few(choice: Choice, inserts: u32) -> impl Iterator<Item = Trial> {
    let each = move |mode| trial(choice, Op::Insert, mode, inserts);
    [WAL, TRUST, DOUBLE].into_iter().map(each)
}

fn mixes(choice: Choice) -> Vec<Trial> {
    let each = |(op, _)| [WAL, TRUST].map(|mode| timed(choice, op, mode));
    MIXES.into_iter().flat_map(each).collect()
}

fn switched(choice: Choice) -> Vec<Trial> {
    let ours = SWITCHES
        .iter()
        .map(|(_, mode)| timed(choice, Op::Insert, mode));
    let wal = timed(choice, Op::Insert, WAL);
    ours.chain([wal]).collect()
}

fn writes(run: &Run) -> Result<f64, String> {
    let device = run.device.as_ref().ok_or("the device was not counted")?;
    Ok(device.writes.unwrap_or(device.write_requests) as f64)
}

fn bytes(run: &Run) -> Result<f64, String> {
    let device = run.device.as_ref().ok_or("the device was not counted")?;
    Ok(device.write_bytes as f64)
}

fn names() -> [(&'static str, &'static str); 3] {
    [
        ("WAL", WAL),
        ("LS-MVBT", TRUST),
        ("LS-MVBT, doubled", DOUBLE),
    ]
}

fn shown(
    experiment: &mut Experiment<'_>,
    figure: &'static str,
    how: String,
    rows: Vec<Row>,
) -> Result<Shown, String> {
    let title = FIGURES.iter().find(|one| one.name == figure);
    let differences = explain(&rows, REASONS, experiment)?;
    let notes = vec![format!(
        "{TRUST} is what the slides assume of the device; {DOUBLE} stands every torn write"
    )];
    let title = title.map_or("", |one| one.title);
    Ok(Shown::of(figure, title, how, rows, differences, notes))
}

fn how(experiment: &Experiment<'_>) -> String {
    let inserts = count(experiment.choice());
    format!(
        "{inserts} transactions of one row of 100 bytes, synchronous=FULL, on a fresh database and log"
    )
}

fn per_s(run: &Run) -> f64 {
    run.ops_per_s
}

fn slide_46(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    let trials: Vec<Trial> = thousand(experiment.choice()).collect();
    let rows = experiment.decided(&trials, an_insert)?;
    let how = how(experiment);
    shown(experiment, "slide-46", how, rows)
}

fn an_insert(experiment: &mut Experiment<'_>) -> Result<Vec<Row>, String> {
    let choice = experiment.choice();
    let wal = timed(choice, Op::Insert, WAL);
    let mut rows = Vec::new();
    for (name, mode) in names() {
        let trial = timed(choice, Op::Insert, mode);
        let run = experiment.run(&trial)?;
        let us = 1e6 / run.ops_per_s;
        let per_op = run.device.is_some().then(|| writes(run)).transpose()?;
        let per_op = per_op.map(|writes| writes / f64::from(trial.count));
        let time = Row::new(name, "time of an insert", "us", Kind::Timed)
            .ran(mode)
            .ours(Some(us));
        // 30 to 78 % faster: at most 1/1.3 of the time.
        let stated = (name == "LS-MVBT").then_some(Stated::at_most(0.77, SLIDES));
        let ratio = experiment.to(trial, wal, |run| 1.0 / per_s(run));
        rows.push(match name {
            "WAL" => time.judged(),
            _ => time.rounds("WAL", stated, &ratio).judged(),
        });
        let stated = (name == "LS-MVBT").then_some(Stated::about(1.0, SLIDES));
        let row = Row::new(name, "writes of an insert", "", Kind::Counted).ran(mode);
        rows.push(row.paper(stated).ours(per_op).judged());
    }
    Ok(rows)
}

fn slide_48(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    experiment.must_count()?;
    let choice = experiment.choice();
    let mut rows = Vec::new();
    for (inserts, quantity, stated) in [
        (10, "10 inserts", [34.0, 20.0]),
        (100, "100 inserts", [218.0, 148.0]),
    ] {
        let mut wal = None;
        for (number, trial) in few(choice, inserts).enumerate() {
            let (name, mode) = names()[number];
            let ours = writes(experiment.run(&trial)?)?;
            let row = Row::new(name, quantity, "accesses", Kind::Counted).ran(mode);
            let paper = stated
                .get(number)
                .map(|amount| Stated::about(*amount, SLIDES));
            let row = row.paper(paper).ours(Some(ours));
            let baseline = *wal.get_or_insert(ours);
            let stated =
                (name == "LS-MVBT").then_some(Stated::about(stated[1] / stated[0], SLIDES));
            rows.push(match name {
                "LS-MVBT" => row.ratio("WAL", stated, Some(ours / baseline)).judged(),
                _ => row.judged(),
            });
        }
    }
    let how = "transactions of one row of 100 bytes, synchronous=FULL; writes that the device got"
        .to_owned();
    shown(experiment, "slide-48", how, rows)
}

fn slide_49(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    experiment.must_count()?;
    let choice = experiment.choice();
    let mut rows = Vec::new();
    let mut wal = None;
    for ((name, mode), trial) in names().into_iter().zip(thousand(choice)) {
        let ours =
            bytes(experiment.run(&trial)?)? / 1e6 * f64::from(COUNT) / f64::from(trial.count);
        let baseline = *wal.get_or_insert(ours);
        let row = Row::new(name, "of 1,000 inserts", "MB", Kind::Counted).ran(mode);
        let stated = match name {
            "WAL" => Some(Stated::about(31.0, SLIDES)),
            "LS-MVBT" => Some(Stated::about(9.9, SLIDES)),
            _ => None,
        };
        let row = row.paper(stated).ours(Some(ours));
        rows.push(match name {
            "WAL" => row.judged(),
            _ => {
                let stated = (name == "LS-MVBT").then_some(Stated::at_most(0.33, SLIDES));
                row.ratio("WAL", stated, Some(ours / baseline)).judged()
            }
        });
    }
    let how = how(experiment);
    shown(experiment, "slide-49", how, rows)
}

fn slide_51(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    let trials = mixes(experiment.choice());
    let rows = experiment.decided(&trials, rates_of_mixes)?;
    let how =
        "YCSB's mixes A, B and C: searches, and updates of a row; synchronous=FULL".to_owned();
    shown(experiment, "slide-51", how, rows)
}

fn rates_of_mixes(experiment: &mut Experiment<'_>) -> Result<Vec<Row>, String> {
    let choice = experiment.choice();
    let mut rows = Vec::new();
    for (op, quantity) in MIXES {
        let stated = match op {
            Op::YcsbA => Stated::at_least(1.0, SLIDES),
            // From 93 % searches on, LS-MVBT is slower.
            _ => Stated::at_most(1.0, SLIDES),
        };
        let [wal, ours] = [WAL, TRUST].map(|mode| timed(choice, op, mode));
        let ratio = experiment.to(ours, wal, per_s);
        let mut row = |name, trial: Trial| -> Result<Row, String> {
            let rate = per_s(experiment.run(&trial)?);
            let row = Row::new(name, quantity, "/s", Kind::Timed).ran(trial.mode);
            Ok(row.ours(Some(rate)))
        };
        rows.push(row("WAL", wal)?.judged());
        let row = row("LS-MVBT", ours)?;
        rows.push(row.rounds("WAL", Some(stated), &ratio).judged());
    }
    Ok(rows)
}

/// Nothing else in these figures is in milliseconds.
const RECOVERY_UNIT: &str = "ms";

/// Crashes of each mode.
const CRASHES: u32 = 15;

/// Inserts before a crash, and the names of the times measured after it.
const CRASHED_AFTER: [(u32, &str, &str); 2] = [
    (100, "100 inserts, cached", "100 inserts, not cached"),
    (1_000, "1,000 inserts, cached", "1,000 inserts, not cached"),
];

fn slide_53(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    let mut rows = Vec::new();
    for (inserts, cached, not_cached) in CRASHED_AFTER {
        let mut baseline = None;
        for (name, mode) in names() {
            let plan = experiment.plan(Op::Insert, inserts);
            let settings = recovered_with(mode)?;
            let found = crashed(experiment, CRASHES, &plan, &settings, begin)?;
            let wal = *baseline.get_or_insert(found);
            let stated = (name == "LS-MVBT").then_some(Stated::at_most(0.2, SLIDES));
            for (quantity, ms, wal_ms) in [
                (cached, found.ms, wal.ms),
                (not_cached, found.cold_ms, wal.cold_ms),
            ] {
                let row = Row::new(name, quantity, RECOVERY_UNIT, Kind::Timed)
                    .ran(mode)
                    .ours(Some(ms));
                rows.push(match name {
                    "WAL" => row.judged(),
                    _ => row.ratio("WAL", stated, Some(ms / wal_ms)).judged(),
                });
            }
        }
    }
    let how = format!(
        "opening a copy that was taken within a transaction, and reading from it; median of {CRASHES}, with the files in \
         the page cache, as after the death of the process, and with none of them there, as after a power cut. The \
         slides do not say how much there was to recover"
    );
    shown(experiment, "slide-53", how, rows)
}

fn recovered_with(mode: &str) -> Result<Settings, String> {
    Ok(Settings {
        mode: Mode::parse(mode).map_err(|error| error.to_string())?,
        synchronous: Synchronous::Full,
        autocheckpoint: 0,
    })
}

fn begin(databases: &Databases) -> Result<(), String> {
    for connection in databases.all() {
        let begun = connection.execute_batch("BEGIN IMMEDIATE; PRAGMA user_version = 7");
        begun.map_err(|error| format!("a transaction before the crash: {error}"))?;
    }
    Ok(())
}

fn slide_56(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    let trials = switched(experiment.choice());
    let rows = experiment.decided(&trials, rates_by_switch)?;
    let how = how(experiment);
    let mut shown = shown(experiment, "slide-56", how, rows)?;
    shown.notes.push(
        "the slide's text does not say which optimizations its 40 % and 51 % are of, so no setting of ours is compared \
         with them"
            .to_owned(),
    );
    Ok(shown)
}

fn rates_by_switch(experiment: &mut Experiment<'_>) -> Result<Vec<Row>, String> {
    let choice = experiment.choice();
    let wal = timed(choice, Op::Insert, WAL);
    let wal_rate = per_s(experiment.run(&wal)?);
    let mut rows = Vec::new();
    let row = Row::new("WAL", "rate", "/s", Kind::Timed).ran(WAL);
    let stated = Some(Stated::about(417.0, SLIDES));
    rows.push(row.paper(stated).ours(Some(wal_rate)).judged());
    for (name, mode) in SWITCHES {
        let trial = timed(choice, Op::Insert, mode);
        let run = experiment.run(&trial)?;
        let (rate, counted) = (per_s(run), run.device.as_ref().map(|_| writes(run)));
        let counted = counted.transpose()?;
        let row = Row::new(name, "rate", "/s", Kind::Timed)
            .ran(mode)
            .ours(Some(rate));
        let (value, stated) = match *name {
            "all five" => (
                Some(Stated::about(704.0, SLIDES)),
                Some(Stated::about(1.7, SLIDES)),
            ),
            _ => (None, None),
        };
        let row = row.paper(value);
        let ratio = experiment.to(trial, wal, per_s);
        rows.push(row.rounds("WAL", stated, &ratio).judged());
        let row = Row::new(name, "writes", "", Kind::Counted).ran(mode);
        rows.push(row.ours(counted).judged());
    }
    rows.push(without_redistribution(experiment)?);
    rows.extend(STEPS.map(|(name, stated)| {
        let row = Row::new(name, "rate", "/s", Kind::Timed);
        row.ratio("WAL", Some(stated), None).judged()
    }));
    Ok(rows)
}

/// The name of the row that compares all five with redistribution switched on.
const NO_REDISTRIBUTION: &str = "no redistribution";

/// Slide 55.
const FASTER_INSERTS: Stated = Stated::about(
    1.2,
    "slide 55: disabling redistribution, 20 % faster insertion",
);

/// Slide 56 prints these gains before that of all five. Its text does not name the settings.
const STEPS: [(&str, Stated); 2] = [
    (
        "a step, unnamed",
        Stated::about(1.40, "slide 56: 40 % improvement"),
    ),
    (
        "another step, unnamed",
        Stated::about(1.51, "slide 56: 51 % improvement"),
    ),
];

/// All five, to the same with sibling redistribution.
fn without_redistribution(experiment: &mut Experiment<'_>) -> Result<Row, String> {
    let choice = experiment.choice();
    let [without, with] = [TRUST, REDISTRIBUTION].map(|mode| timed(choice, Op::Insert, mode));
    let rate = per_s(experiment.run(&without)?);
    let ratio = experiment.to(without, with, per_s);
    let row = Row::new(NO_REDISTRIBUTION, "rate", "/s", Kind::Timed).ran(TRUST);
    let row = row.ours(Some(rate));
    Ok(row
        .rounds("redistribution", Some(FASTER_INSERTS), &ratio)
        .judged())
}
