//! Block remapping's figure 4: the bytes that inserts of 8 KB write, and the time that they take.
//!
//! The paper's text has two numbers for each panel, as ratios to WAL. The bars themselves are not
//! read off. Its WAL is represented here by the same log with checkpoints that copy, so only the
//! checkpoint differs. Stock WAL is shown next to it. Bytes are those of the transactions, of a
//! full checkpoint after them, and of closing. A deferred checkpoint has written nothing yet, so
//! the bytes must include those. Times are of the transactions, in paired rounds.

use onewrite_workload::plan::Op;

use super::{AUTOCHECKPOINT, COPY, EXCHANGE, FORWARD, RECORD_BYTES, REGION};
use crate::reproduce::experiment::{Choice, Experiment, Trial};
use crate::reproduce::outcome::{Kind, Predicted, Reason, Row, Shown, Side, Stated, explain};
use crate::reproduce::requests;
use onewrite_cli::compare::report::Run;

const COUNT: u32 = 1_500;

const MB: f64 = 1e6;

const WAL: &str = "WAL";
const REMAP: &str = "DB remap";
const REMAP_PLUS: &str = "DB remap+";
const UNWRITTEN: &str = "onewrite:checkpoint=exchange,init=unwritten";
const FORWARD_UNWRITTEN: &str = "onewrite:checkpoint=forward,init=unwritten";
const REGION_UNWRITTEN: &str = "onewrite:checkpoint=forward,region=150m,init=unwritten";

/// The paper's name, and the mode here.
const MODES: [(&str, &str); 8] = [
    (WAL, COPY),
    (REMAP, EXCHANGE),
    (REMAP_PLUS, FORWARD),
    (REMAP_PLUS, REGION),
    (REMAP, UNWRITTEN),
    (REMAP_PLUS, FORWARD_UNWRITTEN),
    (REMAP_PLUS, REGION_UNWRITTEN),
    ("stock WAL", "wal"),
];

const OPS: [Op; 2] = [Op::Insert, Op::Update];

const WRITTEN: Stated = Stated::about(0.83, "section 3: 17 % less than WAL");
const SLOWER: Stated = Stated::about(1.0 / 0.95, "section 3: performance decreased by 5 %");
const FASTER: Stated = Stated::about(1.0 / 1.11, "section 3: performance improved by 11 %");

fn trial(choice: Choice, op: Op, mode: &'static str) -> Trial {
    Trial {
        op,
        mode,
        count: choice.count.unwrap_or(COUNT),
        autocheckpoint: AUTOCHECKPOINT,
        repeats: choice.rounds(),
        record_bytes: RECORD_BYTES,
        warm_up: AUTOCHECKPOINT,
    }
}

/// All modes with inserts and updates.
pub fn trials(choice: Choice) -> Vec<Trial> {
    let each = |op| MODES.iter().map(move |(_, mode)| trial(choice, op, mode));
    OPS.into_iter().flat_map(each).collect()
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

/// Figure 4: both panels.
pub fn figure_4(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    experiment.must_count()?;
    let choice = experiment.choice();
    let rows = experiment.decided(&trials(choice), panels)?;
    let differences = explain(&rows, REASONS, experiment)?;
    let notes = [
        "WAL here is the same log with checkpoints that copy (`onewrite_checkpoint=copy`); the updates are ours, \
         the paper has inserts alone.",
        "Blocks that a growing database takes from the log have to come from somewhere: initialized ones are written \
         twice, as many bytes as the copy (`init=zero-fill`, the default); unwritten ones cost the file system's \
         journal at the commit, and a second flush (`init=unwritten`).",
        "DB remap+ is `onewrite_checkpoint=forward`; `region=150M` has the paper's region, and makes what it used again \
         while it runs. The paper makes its region before, and does not count it.",
        "Elapsed times take a device as slow as a phone's: `--device emmc`.",
    ];
    Ok(Shown::of(
        "figure-4",
        "bytes written (a) and elapsed time (b), ratios to WAL",
        format!(
            "{} transactions of one record of 8 KB each on a log that is reused, checkpoints of {AUTOCHECKPOINT} pages; \
             bytes with the last checkpoint and closing; medians of at least {} rounds, ratios of times from each round",
            choice.count.unwrap_or(COUNT),
            choice.rounds()
        ),
        rows,
        differences,
        notes.map(str::to_owned).to_vec(),
    ))
}

/// Panel (a), then panel (b).
fn panels(experiment: &mut Experiment<'_>) -> Result<Vec<Row>, String> {
    let choice = experiment.choice();
    let (mut bytes, mut times) = (Vec::new(), Vec::new());
    for op in OPS {
        let of_op = |insert, update| if op == Op::Insert { insert } else { update };
        let copy = trial(choice, op, COPY);
        let copied = written(experiment.run(&copy)?);
        for (name, mode) in MODES {
            let trial = trial(choice, op, mode);
            let run = experiment.run(&trial)?;
            let (all, seconds) = (written(run), run.elapsed_s);
            let (paper_bytes, paper_time) = stated(op, name);
            let quantity = of_op("written by inserts", "written by updates");
            let row = Row::new(name, quantity, "MB", Kind::Counted).ran(mode);
            let row = row.ours(all.map(|bytes| bytes / MB));
            bytes.push(row.ratio(WAL, paper_bytes, over(all, copied)).judged());
            let quantity = of_op("elapsed, inserts", "elapsed, updates");
            let row = Row::new(name, quantity, "s", Kind::Timed).ran(mode);
            let ratio = experiment.to(trial, copy, |run| run.elapsed_s);
            let row = row.ours(Some(seconds));
            times.push(row.rounds(WAL, paper_time, &ratio).judged());
        }
    }
    bytes.append(&mut times);
    Ok(bytes)
}

/// Whether the row is a time of inserts, in a mode with blocks of this kind.
fn is_time(row: &Row, unwritten: bool) -> bool {
    let mode = row.ran.as_deref().unwrap_or_default();
    row.unit == "s" && row.name != WAL && mode.contains("init=unwritten") == unwritten
}

const REQUESTS: &str = "the device's writes and flushes, by the time of a plain write and of a durable one, and the \
                        transactions' processor time";

const REASONS: &[Reason] = &[
    Reason {
        of: |row| is_time(row, true),
        side: Side::Above,
        sentence: "The first commit into a block that was never written waits for the file system's journal too: a second \
                   flush.",
        count: REQUESTS,
        predict: by_requests,
    },
    Reason {
        of: |row| is_time(row, false),
        side: Side::Above,
        sentence: "Pages that are new in the database are copied here as WAL's are, because initialized blocks for them \
                   would take as many bytes. So no write is saved that a commit would wait for.",
        count: REQUESTS,
        predict: by_requests,
    },
    Reason {
        of: |row| is_time(row, false),
        side: Side::Below,
        sentence: "Pages that are new in the database are copied here as WAL's are. So few blocks change places, and the \
                   log is not in more pieces than WAL's.",
        count: REQUESTS,
        predict: by_requests,
    },
    Reason {
        of: |row| row.unit == "MB" && row.ran.as_deref() == Some(EXCHANGE),
        side: Side::Above,
        sentence: "Inserts make the database grow. Pages that are new in it are copied as WAL's are, because \
                   initialized blocks for them would take as many bytes (`init=zero-fill`).",
        count: "the pages that checkpoints copied and remapped, by the engine's own count",
        predict: by_copied_pages,
    },
    Reason {
        of: |row| row.unit == "MB" && row.ran.as_deref() == Some(UNWRITTEN),
        side: Side::Above,
        sentence: "The first commit into each block that a growing database has taken has the file system's journal mark \
                   its extent as written.",
        count: "the bytes of the copy's log, and those of the file system's journal with remapping",
        predict: |experiment, _| {
            let copy = of_copy(experiment)?;
            let (log, journal) = logged(experiment, UNWRITTEN)?;
            Ok(Predicted::new(
                with_journal(&copy, journal),
                format!(
                    "{}; the file system's journal of DB remap {:.1} MB, its log {:.1}",
                    copy.told(),
                    journal / MB,
                    log / MB
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

/// Bytes of the inserts where checkpoints copy.
#[derive(Clone, Copy)]
struct Copied {
    all: f64,
    log: f64,
    database: f64,
}

impl Copied {
    fn told(&self) -> String {
        format!(
            "the copy writes {:.1} MB, {:.1} of them to the log and {:.1} to the database",
            self.all / MB,
            self.log / MB,
            self.database / MB
        )
    }
}

fn of_copy(experiment: &mut Experiment<'_>) -> Result<Copied, String> {
    let (log, _) = logged(experiment, COPY)?;
    let run = experiment.run(&trial(experiment.choice(), Op::Insert, COPY))?;
    let all = written(run).ok_or("bytes were not counted")?;
    let later = [&run.after, &run.checkpoint, &run.close].map(|phase| phase.by_file);
    let of_database: Option<u64> = std::iter::once(run.by_file)
        .chain(later)
        .map(|by| by.map(|by| by.database_bytes))
        .sum();
    let database = of_database.ok_or("bytes were not told apart")? as f64;
    Ok(Copied { all, log, database })
}

/// The ratio of bytes if remapping left out a part of the copy's pages, by the engine's count.
fn by_copied_pages(experiment: &mut Experiment<'_>, _: &Row) -> Result<Predicted, String> {
    let copy = of_copy(experiment)?;
    let run = experiment.run(&trial(experiment.choice(), Op::Insert, EXCHANGE))?;
    let status = run.pragmas.get("onewrite_status");
    let count = |name| status?.get("remapped")?.get(name)?.as_f64();
    let counts = count("copied_pages").zip(count("remapped_pages"));
    let (copied, remapped) = counts.ok_or("the engine counted no pages")?;
    Ok(Predicted::new(
        without_remapped(&copy, copied, remapped),
        format!(
            "{}; checkpoints of DB remap copied {copied:.0} pages and remapped {remapped:.0}",
            copy.told()
        ),
    ))
}

/// The copy's bytes without the pages that were remapped, to all of them.
fn without_remapped(copy: &Copied, copied: f64, remapped: f64) -> f64 {
    (copy.all - copy.database * remapped / (copied + remapped)) / copy.all
}

/// The bytes if all pages were remapped, and the file system journaled so many for it; to the copy's.
fn with_journal(copy: &Copied, journal: f64) -> f64 {
    (copy.log + journal) / copy.all
}

fn over(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    let whole = whole.filter(|whole| *whole > 0.0)?;
    part.map(|part| part / whole)
}

/// The ratio of times if a run took the time of its requests and of the processor, one after the
/// other.
fn by_requests(experiment: &mut Experiment<'_>, row: &Row) -> Result<Predicted, String> {
    let choice = experiment.choice();
    let mode = MODES
        .iter()
        .find(|(_, mode)| row.ran.as_deref() == Some(*mode));
    let (_, mode) = *mode.ok_or("no such mode")?;
    let trials = [mode, COPY].map(|mode| trial(choice, Op::Insert, mode));
    requests::by_requests(experiment, trials.each_ref(), row.name, |ours_s, copy_s| {
        ours_s / copy_s
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::outcome::Verdict;
    use crate::reproduce::requests::{Costs, Waited};
    use crate::reproduce::rounds::Paired;

    /// A time to WAL's in seven rounds, all alike.
    fn row(mode: &'static str, paper: Stated, ours: f64) -> Row {
        let paired = Paired {
            ratios: vec![ours; 7],
            error: 0.05,
            trials: Vec::new(),
        };
        let row = Row::new(REMAP, "elapsed, inserts", "s", Kind::Timed).ran(mode);
        row.rounds(WAL, Some(paper), &paired).judged()
    }

    #[test]
    fn the_paper_s_times_can_come_out_each_way() {
        let verdict = |paper, ours| row(EXCHANGE, paper, ours).verdict;
        assert_eq!(verdict(SLOWER, 1.05), Verdict::Same);
        assert_eq!(verdict(SLOWER, 1.30), Verdict::Magnitude);
        assert_eq!(verdict(SLOWER, 0.95), Verdict::Misses);
        assert_eq!(verdict(FASTER, 0.90), Verdict::Same);
        assert_eq!(verdict(FASTER, 1.0), Verdict::Misses);
        assert_eq!(verdict(FASTER, 1.05), Verdict::Misses);
    }

    /// A mode with twice the flushes, which took 1.8 times WAL's time. The processor takes an eighth of it.
    #[test]
    fn the_reason_for_a_time_can_fail() {
        let row = row(UNWRITTEN, FASTER, 1.8);
        assert!(row.differs());
        let costs = Costs {
            write_s: 50e-6,
            flush_s: 400e-6,
        };
        let waited = |flushes, cpu_s| Waited {
            writes: 3000.0,
            flushes,
            cpu_s,
        };
        let of = |flushes, cpu_s| {
            waited(flushes, cpu_s).seconds(costs) / waited(1500.0, 0.1).seconds(costs)
        };
        assert!(row.is_accounted_for_by(of(3000.0, 0.1)));
        // Planted: as many flushes as WAL, far more than twice as many, and a processor that works as
        // long as all flushes take.
        assert!(!row.is_accounted_for_by(of(1500.0, 0.1)));
        assert!(!row.is_accounted_for_by(of(6000.0, 0.1)));
        assert!(!row.is_accounted_for_by(of(3000.0, 2.0)));
    }

    /// The bytes of inserts to WAL's; the paper has 0.83.
    fn bytes(mode: &'static str, ours: f64) -> Row {
        let row = Row::new(REMAP, "written by inserts", "MB", Kind::Counted).ran(mode);
        let row = row.ratio(WAL, Some(WRITTEN), Some(ours)).judged();
        let is_for = |r: &&Reason| (r.of)(&row) && Some(r.side) == row.side();
        assert_eq!(REASONS.iter().filter(is_for).count(), 1, "{row:?}");
        assert!(row.differs());
        row
    }

    const COPIED: Copied = Copied {
        all: 45.0 * MB,
        log: 32.0 * MB,
        database: 13.0 * MB,
    };

    #[test]
    fn the_pages_that_checkpoints_copied_can_speak_against_their_reason() {
        let row = bytes(EXCHANGE, 0.99);
        assert!(row.is_accounted_for_by(without_remapped(&COPIED, 5_000.0, 10.0)));
        // Planted: all pages remapped, half of them, and none counted at all.
        assert!(!row.is_accounted_for_by(without_remapped(&COPIED, 0.0, 5_000.0)));
        assert!(!row.is_accounted_for_by(without_remapped(&COPIED, 2_500.0, 2_500.0)));
        assert!(!row.is_accounted_for_by(without_remapped(&COPIED, 0.0, 0.0)));
    }

    #[test]
    fn the_bytes_of_the_journal_can_speak_against_their_reason() {
        let row = bytes(UNWRITTEN, 0.95);
        assert!(row.is_accounted_for_by(with_journal(&COPIED, 10.0 * MB)));
        // Planted: no journal, and one as large as the log.
        assert!(!row.is_accounted_for_by(with_journal(&COPIED, 0.0)));
        assert!(!row.is_accounted_for_by(with_journal(&COPIED, 32.0 * MB)));
    }
}
