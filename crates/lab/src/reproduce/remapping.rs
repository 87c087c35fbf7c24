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
use super::outcome::{Kind, Row, Shown, Stated};
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
        Vec::new(),
        notes.map(str::to_owned).to_vec(),
    ))
}

fn over(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    let whole = whole.filter(|whole| *whole > 0.0)?;
    part.map(|part| part / whole)
}
