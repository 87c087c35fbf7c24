//! Block remapping's figure 4: the bytes that inserts of 8 KB write, and the time that they take.
//!
//! The paper's text has two numbers for each panel, as ratios to WAL. The bars themselves are not
//! read off. Its WAL is represented here by the same log with checkpoints that copy, so only the
//! checkpoint differs. Stock WAL is shown next to it. Bytes are those of the transactions, of a
//! full checkpoint after them, and of closing. A deferred checkpoint has written nothing yet, so
//! the bytes must include those.

use onewrite_workload::plan::Op;

use super::Figure;
use super::experiment::{Choice, Experiment, Trial};
use super::outcome::{Kind, Predicted, Reason, Row, Shown, Side, Stated, explain};
use onewrite_cli::compare::report::Run;

const RECORD_BYTES: u32 = 8192;
const COUNT: u32 = 1_500;
/// SQLite's default, in pages.
const AUTOCHECKPOINT: u32 = 1_000;

const MB: f64 = 1e6;

/// The figures that can be reproduced.
pub const FIGURES: &[Figure] = &[Figure {
    name: "figure-4",
    title: "bytes written and elapsed time of inserts of 8 KB: WAL, DB remap, DB remap+",
    trials,
    extra_s: 4.0,
    run: figure_4,
}];

const WAL: &str = "WAL";
const REMAP: &str = "DB remap";
const REMAP_PLUS: &str = "DB remap+";
const COPY: &str = "onewrite:layout=gathered";

/// The paper's name, and the mode here.
const MODES: [(&str, &str); 6] = [
    (WAL, COPY),
    (REMAP, "onewrite:checkpoint=exchange"),
    (REMAP_PLUS, "onewrite:checkpoint=forward"),
    (REMAP, "onewrite:checkpoint=exchange,init=unwritten"),
    (REMAP_PLUS, "onewrite:checkpoint=forward,init=unwritten"),
    ("stock WAL", "wal"),
];

const WRITTEN: Stated = Stated::about(0.83, "section 3: 17 % less than WAL");
const SLOWER: Stated = Stated::about(1.0 / 0.95, "section 3: performance decreased by 5 %");
const FASTER: Stated = Stated::about(1.0 / 1.11, "section 3: performance improved by 11 %");

fn trial(choice: Choice, op: Op, mode: &'static str) -> Trial {
    Trial {
        op,
        mode,
        count: choice.count.unwrap_or(COUNT),
        autocheckpoint: AUTOCHECKPOINT,
        repeats: choice.repeats.unwrap_or(1),
        record_bytes: RECORD_BYTES,
        warm_up: AUTOCHECKPOINT,
    }
}

fn trials(choice: Choice) -> Vec<Trial> {
    let each = |op| MODES.iter().map(move |(_, mode)| trial(choice, op, mode));
    [Op::Insert, Op::Update]
        .into_iter()
        .flat_map(each)
        .collect()
}

/// Bytes until everything is in the closed database.
fn written(run: &Run) -> Option<f64> {
    let device = run.device?.write_bytes;
    let later = [&run.after, &run.checkpoint, &run.close];
    let later: Option<u64> = later.iter().map(|phase| phase.write_bytes).sum();
    Some((device + later?) as f64)
}

/// The paper's statements on this mode, for inserts alone: bytes and time, as ratios to its WAL.
fn stated(op: Op, name: &str) -> (Option<Stated>, Option<Stated>) {
    match name {
        _ if op != Op::Insert => (None, None),
        REMAP => (Some(WRITTEN), Some(SLOWER)),
        // The text does not state its bytes. It maps no less than remap does.
        REMAP_PLUS => (None, Some(FASTER)),
        _ => (None, None),
    }
}

fn figure_4(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    experiment.must_count()?;
    let choice = experiment.choice();
    experiment.run_all(&trials(choice))?;
    let (mut bytes, mut times) = (Vec::new(), Vec::new());
    for op in [Op::Insert, Op::Update] {
        let of_op = |insert, update| if op == Op::Insert { insert } else { update };
        let copy = experiment.run(&trial(choice, op, COPY))?;
        let (copied, copy_s) = (written(copy), copy.elapsed_s);
        for (name, mode) in MODES {
            let run = experiment.run(&trial(choice, op, mode))?;
            let (paper_bytes, paper_time) = stated(op, name);
            let all = written(run);
            let quantity = of_op("written by inserts", "written by updates");
            let row = Row::new(name, quantity, "MB", Kind::Counted).ran(mode);
            let row = row.ours(all.map(|bytes| bytes / MB));
            bytes.push(row.ratio(WAL, paper_bytes, over(all, copied)).judged());
            let quantity = of_op("elapsed, inserts", "elapsed, updates");
            let row = Row::new(name, quantity, "s", Kind::Timed).ran(mode);
            let row = row.ours(Some(run.elapsed_s));
            let ratio = over(Some(run.elapsed_s), Some(copy_s));
            times.push(row.ratio(WAL, paper_time, ratio).judged());
        }
    }
    bytes.append(&mut times);
    let differences = explain(&bytes, REASONS, experiment)?;
    let notes = [
        "WAL here is the same log with checkpoints that copy (`onewrite_checkpoint=copy`); the updates are ours, \
         the paper has inserts alone.",
        "Blocks that a growing database takes from the log have to come from somewhere: initialized ones are written \
         twice, as many bytes as the copy (`init=zero-fill`, the default); unwritten ones cost the file system's \
         journal at the commit, and a second flush (`init=unwritten`).",
        "DB remap+ is `onewrite_checkpoint=forward`. Elapsed times take a device as slow as a phone's: `--device emmc`.",
    ];
    Ok(Shown::of(
        "figure-4",
        "bytes written (a) and elapsed time (b), ratios to WAL",
        format!(
            "{} transactions of one record of 8 KB each on a log that is reused, checkpoints of {AUTOCHECKPOINT} pages; \
             bytes with the last checkpoint and closing",
            choice.count.unwrap_or(COUNT)
        ),
        bytes,
        differences,
        notes.map(str::to_owned).to_vec(),
    ))
}

const EXCHANGE: &str = "onewrite:checkpoint=exchange";
const UNWRITTEN: &str = "onewrite:checkpoint=exchange,init=unwritten";

const REASONS: &[Reason] = &[
    Reason {
        of: |row| row.unit == "MB" && row.ran.as_deref() == Some(EXCHANGE),
        side: Side::Above,
        sentence: "Inserts make the database grow, and the blocks that it takes from the log are first filled with \
                   zeros (`init=zero-fill`), so that each page is written twice, as by the copy.",
        count: "the bytes of the log, and all others of the copy",
        predict: |experiment, _| {
            let (copied, rest, told) = of_copy(experiment)?;
            let log = logged(experiment, EXCHANGE)?.0;
            Ok(Predicted::new((log + rest) / copied, told))
        },
    },
    Reason {
        of: |row| row.unit == "MB" && row.ran.as_deref() == Some(UNWRITTEN),
        side: Side::Above,
        sentence: "The first commit into each block that a growing database has taken has the file system's journal mark \
                   its extent as written.",
        count: "the bytes of the log and of the file system's journal",
        predict: |experiment, _| {
            let (copied, _, _) = of_copy(experiment)?;
            let (log, journal) = logged(experiment, UNWRITTEN)?;
            Ok(Predicted::new(
                (log + journal) / copied,
                format!(
                    "log {:.1} MB, file system's journal {:.1} MB",
                    log / MB,
                    journal / MB
                ),
            ))
        },
    },
];

/// Bytes of the inserts' log and of the file system's journal in a mode.
fn logged(experiment: &mut Experiment<'_>, mode: &'static str) -> Result<(f64, f64), String> {
    let run = experiment.run(&trial(experiment.choice(), Op::Insert, mode))?;
    let by = run.by_file.ok_or("bytes were not told apart")?;
    Ok((by.log_bytes as f64, by.fs_journal_bytes as f64))
}

/// Bytes of the inserts where checkpoints copy: all, and those that are not of the log.
fn of_copy(experiment: &mut Experiment<'_>) -> Result<(f64, f64, String), String> {
    let (log, _) = logged(experiment, COPY)?;
    let run = experiment.run(&trial(experiment.choice(), Op::Insert, COPY))?;
    let all = written(run).ok_or("bytes were not counted")?;
    let told = format!(
        "the copy writes {:.1} MB, {:.1} of them to the log",
        all / MB,
        log / MB
    );
    Ok((all, all - log, told))
}

fn over(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    let whole = whole.filter(|whole| *whole > 0.0)?;
    part.map(|part| part / whole)
}
