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

const REQUESTS: &str =
    "the device's writes and flushes, by the time of a plain write and of a durable one";

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

/// The ratio of times if the device's requests alone took time.
fn by_requests(experiment: &mut Experiment<'_>, row: &Row) -> Result<Predicted, String> {
    let raw = experiment.raw();
    let rates = raw.direct_dsync_4k_per_s.zip(raw.direct_4k_per_s);
    let (durable, lazy) = rates.ok_or("there is no direct I/O here")?;
    let costs = Costs {
        write_us: 1e6 / lazy,
        flush_us: (1e6 / durable - 1e6 / lazy).max(0.0),
    };
    let choice = experiment.choice();
    let mode = MODES
        .iter()
        .find(|(_, mode)| row.ran.as_deref() == Some(*mode));
    let (_, mode) = *mode.ok_or("no such mode")?;
    let mut requests = |mode| -> Result<(f64, f64), String> {
        let run = experiment.run(&trial(choice, Op::Insert, mode))?;
        let device = run.device.ok_or("requests were not counted")?;
        let writes = device.writes.unwrap_or(device.write_requests);
        Ok((writes as f64, device.flushes as f64))
    };
    let (ours, copy) = (requests(mode)?, requests(COPY)?);
    Ok(Predicted::of_row(
        costs.us(ours) / costs.us(copy),
        &format!(
            "a write takes {:.0} us, a flush {:.0} us; WAL {} writes, {} flushes;",
            costs.write_us, costs.flush_us, copy.0, copy.1
        ),
        format!("{} writes, {} flushes", ours.0, ours.1),
    ))
}

/// The time of requests one after the other.
struct Costs {
    write_us: f64,
    flush_us: f64,
}

impl Costs {
    fn us(&self, (writes, flushes): (f64, f64)) -> f64 {
        writes * self.write_us + flushes * self.flush_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::outcome::Verdict;
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

    /// A mode with twice the flushes, which took 1.8 times WAL's time.
    #[test]
    fn the_reason_for_a_time_can_fail() {
        let row = row(UNWRITTEN, FASTER, 1.8);
        assert!(row.differs());
        let costs = Costs {
            write_us: 50.0,
            flush_us: 400.0,
        };
        let of = |flushes| costs.us((3000.0, flushes)) / costs.us((3000.0, 1500.0));
        assert!(row.is_accounted_for_by(of(3000.0)));
        // Planted: as many flushes as WAL, and far more than twice as many.
        assert!(!row.is_accounted_for_by(of(1500.0)));
        assert!(!row.is_accounted_for_by(of(6000.0)));
    }
}
