//! The bytes that modes write: table 1, figures 8 and 15.

use onewrite_iotrace::meter::ByFile;
use onewrite_workload::files::Way;
use onewrite_workload::plan::Op;

use super::counted;
use super::data::{self, KIB, Volume};
use crate::reproduce::experiment::{Choice, Experiment, FRAME_BYTES, RECORD_BYTES, Trial};
use crate::reproduce::outcome::{Kind, Predicted, Reason, Row, Shown, Side, Stated, explain};
use onewrite_cli::compare::report::Run;

const MB: f64 = 1e6;

const TOTAL: &str = "written";
const JOJ: &str = "file-system journal";
const DATA: &str = "not file-system journal";
const SHARE: &str = "share of file-system journal";

fn one_insert(mode: &'static str) -> Trial {
    Trial {
        op: Op::Insert,
        mode,
        count: 1,
        autocheckpoint: 0,
        repeats: 1,
        record_bytes: RECORD_BYTES,
        warm_up: 0,
    }
}

/// One insert in each mode.
pub fn one_insert_trials(_: Choice) -> Vec<Trial> {
    let modes = data::ONE_INSERT.iter().map(|volume| volume.mode);
    modes.map(one_insert).collect()
}

/// Bytes that a run wrote until it returned: all of them, and those of the file system's journal.
fn written(run: &Run) -> (Option<f64>, Option<f64>) {
    let total = run.device.map(|device| device.write_bytes as f64);
    let journal = run.by_file.map(|by: ByFile| by.fs_journal_bytes as f64);
    (total, journal)
}

/// Table 1: one insert.
pub fn table_1(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    experiment.must_count()?;
    experiment.run_all(&one_insert_trials(experiment.choice()))?;
    let mut rows = Vec::new();
    for Volume {
        name,
        mode,
        total,
        joj,
    } in data::ONE_INSERT
    {
        let (all, journal) = written(experiment.run(&one_insert(mode))?);
        let kib = |bytes: Option<f64>| bytes.map(|bytes| bytes / KIB);
        let row = |quantity| Row::new(name, quantity, "KiB", Kind::Counted).ran(mode);
        rows.push(row(TOTAL).paper(total).ours(kib(all)).judged());
        rows.push(row(JOJ).paper(joj).ours(kib(journal)).judged());
        let share = match name {
            "WAL" => data::WAL_JOJ_SHARE,
            "DELETE" => data::DELETE_JOJ_SHARE,
            _ => continue,
        };
        let row = Row::new(name, SHARE, "of 1", Kind::Counted).ran(mode);
        rows.push(row.paper(Some(share)).ours(over(journal, all)).judged());
    }
    let differences = explain(&rows, ONE_INSERT_REASONS, experiment)?;
    Ok(Shown {
        figure: "table-1",
        title: "what one insert writes, by journal mode",
        how: "one row of 100 bytes into an empty table, a transaction; what the device completed until \
              COMMIT returned"
            .to_owned(),
        rows,
        differences,
        sequences: Vec::new(),
        notes: vec![
SHARE_OF_JOURNAL.to_owned(),
        ],
    })
}

/// The bytes that count as journaling of journal.
pub const SHARE_OF_JOURNAL: &str = "the paper's journaling of journal is the file system's journal for SQLite's journal \
                                    alone; ours is all of the file system's journal, which is the same where the \
                                    database's own sync journals nothing (OFF)";

/// Syncs of one insert that only find blocks which exist already, by mode: of the rollback journal,
/// and of all files.
fn syncs_in_place(name: &str) -> (f64, f64) {
    match name {
        "OFF" => (0.0, 1.0),
        "DELETE" | "TRUNCATE" => (1.0, 2.0),
        // The journal's header, and its reset.
        "PERSIST" => (2.0, 3.0),
        _ => (0.0, 0.0),
    }
}

const OVERWRITTEN: &str = "what fsync and fdatasync journal for an overwritten block";
const TRUNCATION: &str = "what the sync of the truncation journals, and what fsync would";

/// Why one insert writes more or less than in the paper.
pub const ONE_INSERT_REASONS: &[Reason] = &[
    Reason {
        of: |row| matches!(row.name, "OFF" | "DELETE" | "PERSIST"),
        side: Side::Below,
        sentence: "The paper's SQLite journals the inode at every sync, also of blocks that are there already, \
                   as fsync does; SQLite now calls fdatasync, which then journals nothing.",
        count: OVERWRITTEN,
        predict: fsync_or_fdatasync,
    },
    Reason {
        of: |row| row.name == "TRUNCATE",
        side: Side::Above,
        sentence: "SQLite now syncs the truncation of the journal too (its source names Mozilla's bug 1072773, \
                   of 2014), which the paper's did not; and fdatasync journals nothing for blocks that are there.",
        count: TRUNCATION,
        predict: truncation_synced,
    },
];

/// Measurements of an overwritten block. In one of them the file system may journal a block of
/// another file, too, or nothing, if the block was written within a tick of the clock before.
const OVERWRITES: usize = 5;

/// KiB of file-system journal for an overwritten block: by fsync, and by fdatasync.
fn of_overwriting(experiment: &mut Experiment<'_>) -> Result<(f64, f64), String> {
    let mut journal = |name, way| {
        experiment.known_or(name, |experiment| {
            let mut each = Vec::new();
            for _ in 0..OVERWRITES {
                let run = experiment.records(way, 4096, 1, 1)?;
                let by = run.by_file.ok_or("bytes were not told apart")?;
                each.push(by.fs_journal_bytes as f64 / KIB);
            }
            usual(each)
        })
    };
    let fsync = journal("overwritten, fsync", Way::Fsync)?;
    Ok((fsync, journal("overwritten, fdatasync", Way::Fdatasync)?))
}

/// The median.
fn usual(mut each: Vec<f64>) -> Result<f64, String> {
    each.sort_by(f64::total_cmp);
    onewrite_common::middle(&each)
        .copied()
        .ok_or_else(|| "nothing was measured".to_owned())
}

/// The paper's figure without what fsync journals more than fdatasync, at each sync of blocks that
/// are there already.
fn fsync_or_fdatasync(experiment: &mut Experiment<'_>, row: &Row) -> Result<Predicted, String> {
    let (fsync, fdatasync) = of_overwriting(experiment)?;
    let (of_journal, of_all) = syncs_in_place(row.name);
    // OFF has no journal of its own, so the file system journals the database there.
    let syncs = match row.quantity == JOJ && row.name != "OFF" {
        true => of_journal,
        false => of_all,
    };
    let measured = format!(
        "overwriting a block here journals {fsync:.0} KiB with fsync, {fdatasync:.0} with fdatasync; such syncs:"
    );
    let figure = with_fdatasync(row, syncs, fsync, fdatasync);
    Ok(Predicted::of_row(figure, &measured, format!("{syncs:.0}")))
}

fn with_fdatasync(row: &Row, syncs: f64, fsync: f64, fdatasync: f64) -> f64 {
    row.compared_paper() - syncs * (fsync - fdatasync)
}

/// `synchronous=normal` leaves out that sync. It also leaves out the one of the journal's header,
/// which journals nothing.
fn truncation_synced(experiment: &mut Experiment<'_>, row: &Row) -> Result<Predicted, String> {
    let of = |(all, journal): (Option<f64>, Option<f64>)| -> Result<f64, String> {
        let bytes = if row.quantity == JOJ { journal } else { all };
        Ok(bytes.ok_or("bytes were not told apart")? / KIB)
    };
    let with = of(written(experiment.run(&one_insert("truncate"))?))?;
    let without = one_insert("truncate:synchronous=normal");
    let without = of(written(experiment.run(&without)?))?;
    let (fsync, fdatasync) = of_overwriting(experiment)?;
    let (of_journal, _) = syncs_in_place("TRUNCATE");
    let less = of_journal * (fsync - fdatasync);
    Ok(Predicted::new(
        with_truncation(row, with - without, less),
        format!(
            "that sync journals {:.0} KiB ({without:.0} in all with synchronous=normal); fdatasync journals {less:.0} KiB \
             less than fsync",
            with - without
        ),
    ))
}

/// The paper's figure with a sync that journals `more`, and fdatasync, which journals `less`.
fn with_truncation(row: &Row, more: f64, less: f64) -> f64 {
    row.compared_paper() + more - less
}

/// Inserts in each layout.
pub fn figure_8_trials(choice: Choice) -> Vec<Trial> {
    let modes = data::THOUSAND_INSERTS.iter().map(|(_, mode, ..)| *mode);
    modes
        .map(|mode| counted(choice, Op::Insert, mode))
        .collect()
}

/// MB of 1,000 transactions.
fn mb_a_thousand(bytes: Option<f64>, count: u32) -> Option<f64> {
    bytes.map(|bytes| bytes / MB * 1_000.0 / f64::from(count.max(1)))
}

/// Figure 8: the bytes that inserts write in each layout.
pub fn figure_8(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    experiment.must_count()?;
    let choice = experiment.choice();
    experiment.run_all(&figure_8_trials(choice))?;
    let mut rows = vec![
        Row::new("WAL, page padding", TOTAL, "MB", Kind::Counted),
        Row::new("WAL, page padding", DATA, "MB", Kind::Counted),
    ];
    let mut wal = (None, None);
    for (name, mode, total, data) in data::THOUSAND_INSERTS {
        let run = experiment.run(&counted(choice, Op::Insert, mode))?;
        let (all, journal) = written(run);
        let rest = all.zip(journal).map(|(all, journal)| all - journal);
        let (all, rest) = (
            mb_a_thousand(all, run.count),
            mb_a_thousand(rest, run.count),
        );
        let row = |quantity| Row::new(name, quantity, "MB", Kind::Counted).ran(mode);
        let (mut first, mut second) = (
            row(TOTAL).paper(total).ours(all),
            row(DATA).paper(data).ours(rest),
        );
        if name == "WAL" {
            wal = (all, rest);
        } else {
            let [(_, _, wal_total, wal_data), ..] = data::THOUSAND_INSERTS;
            first = first.ratio("WAL", quotient(total, wal_total), over(all, wal.0));
            second = second.ratio("WAL", quotient(data, wal_data), over(rest, wal.1));
        }
        rows.extend([first.judged(), second.judged()]);
    }
    let differences = explain(&rows, THOUSAND_REASONS, experiment)?;
    Ok(Shown {
        figure: "figure-8",
        title: "what 1,000 inserts write, by layout of the log",
        how: how_thousand(choice),
        rows,
        differences,
        sequences: Vec::new(),
        notes: vec!["stock SQLite's log cannot be padded: that bar is not run".to_owned()],
    })
}

fn how_thousand(choice: Choice) -> String {
    let count = choice.count.unwrap_or(super::THOUSAND);
    let scaled = if count == super::THOUSAND {
        ""
    } else {
        ", brought to 1,000"
    };
    format!("{count} transactions of one row of 100 bytes, no checkpoint inside{scaled}")
}

/// The ratio of two numbers that the paper states.
fn quotient(of: Option<Stated>, to: Option<Stated>) -> Option<Stated> {
    let (of, to) = of.zip(to)?;
    Some(Stated {
        amount: of.amount / to.amount,
        ..of
    })
}

fn over(of: Option<f64>, to: Option<f64>) -> Option<f64> {
    of.zip(to).map(|(of, to)| of / to)
}

const FRAMES: &str = "the blocks that a frame of 4,120 bytes touches";
const FRAMES_AND_JOURNAL: &str = "the blocks that a frame of 4,120 bytes touches, and those that the file system \
                                  journals when a plain file grows by as much";

const THOUSAND_REASONS: &[Reason] = &[
    Reason {
        of: |row| row.name == "WAL" && row.quantity == DATA,
        side: Side::Below,
        sentence: "An insert's frame of 4,120 bytes touches two blocks of the log, and nothing else is written besides \
                   the journal; so it is in the paper's table 1 (28 - 20 KiB), but its 12.3 MB are three an insert.",
        count: FRAMES,
        predict: |experiment, _| {
            let (blocks, told) = of_the_log(experiment)?;
            Ok(Predicted::new(mb_of_blocks(blocks), told))
        },
    },
    JOURNAL_BLOCKS,
    Reason {
        of: |row| row.name != "WAL" && row.quantity == DATA,
        side: Side::Above,
        sentence: "WAL is what differs, not WALDIO: WALDIO writes one page an insert in both, WAL writes two blocks \
                   of data an insert here and three in the paper (12.3 MB).",
        count: FRAMES,
        predict: |experiment, _| {
            let (blocks, told) = of_the_log(experiment)?;
            Ok(Predicted::new(a_page_of(blocks), told))
        },
    },
    ONE_PAGE_OF,
];

/// Why WAL writes more in all.
const JOURNAL_BLOCKS: Reason = Reason {
    of: |row| row.name == "WAL",
    side: Side::Above,
    sentence: "The log grows with every insert, and each time the file system journals five blocks or more for it, \
               as in the paper's table 1 (20 KiB); its figure 8 has four.",
    count: FRAMES_AND_JOURNAL,
    predict: |experiment, _| {
        let (blocks, told) = of_wal(experiment)?;
        Ok(Predicted::new(mb_of_blocks(blocks), told))
    },
};

/// Why WALDIO writes a smaller part of it.
const ONE_PAGE_OF: Reason = Reason {
    of: |row| row.name.starts_with("WALDIO") && row.quantity != DATA,
    side: Side::Below,
    sentence: "The file system's journal weighs more in WAL here than in the paper; WALDIO writes one page an \
               insert and nothing else, in both.",
    count: FRAMES_AND_JOURNAL,
    predict: |experiment, _| {
        let (blocks, told) = of_wal(experiment)?;
        Ok(Predicted::new(a_page_of(blocks), told))
    },
};

/// MB of 1,000 transactions that write this many blocks each.
fn mb_of_blocks(blocks: f64) -> f64 {
    blocks * 4096.0 * 1_000.0 / MB
}

/// WALDIO's page, to the blocks that WAL writes an insert.
fn a_page_of(blocks: f64) -> f64 {
    1.0 / blocks
}

/// Blocks of the log that frames of one page touch, a transaction each, by the log's format.
fn blocks_touched(frames: u32) -> f64 {
    /// Bytes of the log's header, and of a frame.
    const BYTES: (u64, u64) = (32, FRAME_BYTES as u64);
    let touched = (0..u64::from(frames)).map(|frame| {
        let begin = BYTES.0 + frame * BYTES.1;
        (begin + BYTES.1).div_ceil(4096) - begin / 4096
    });
    touched.sum::<u64>() as f64 / f64::from(frames.max(1))
}

/// Blocks of WAL's log an insert, by its format.
fn of_the_log(experiment: &mut Experiment<'_>) -> Result<(f64, String), String> {
    let run = experiment.run(&counted(experiment.choice(), Op::Insert, "wal"))?;
    let (blocks, count) = (blocks_touched(run.count), run.count);
    let told = format!("by the log's format {blocks:.2} blocks an insert ({count} of them)");
    Ok((blocks, told))
}

/// The same with the blocks that the file system journals for an append of a frame to a plain file.
/// It journals one more for as much of a file as was written when the inode had no room left for its
/// extents. That depends on where the allocator finds room, and is measured of both files.
fn of_wal(experiment: &mut Experiment<'_>) -> Result<(f64, String), String> {
    let (blocks, told) = of_the_log(experiment)?;
    let choice = experiment.choice();
    let state = experiment.run(&counted(choice, Op::Insert, "wal"))?.state;
    let log = experiment.of_ext4(state.log_past_inode);
    let plain = experiment.appended(choice.count.unwrap_or(super::THOUSAND))?;
    let journal = plain.fs_journal_bytes / 4096.0;
    Ok((
        blocks + journal_of_log(journal, plain.past_inode, log),
        format!(
            "{told}; {journal:.2} blocks of the file system's journal for an append of 4,120 bytes to a plain file, with \
             fdatasync, with one where the extents do not fit into the inode: {:.0} % of the plain file, {:.0} % of the log",
            plain.past_inode * 100.0,
            log * 100.0
        ),
    ))
}

/// Blocks of the file system's journal for an append to the log, from those of a plain file, and
/// the parts of both files that were written when the inode had no room left for their extents.
fn journal_of_log(plain_blocks: f64, plain: f64, log: f64) -> f64 {
    plain_blocks - plain + log
}

const OPS: [Op; 3] = [Op::Insert, Op::Update, Op::Delete];

/// The modes of figure 15: stock ones, and WALDIO.
const MODES: [(&str, &str); 5] = [
    ("DELETE", "delete"),
    ("TRUNCATE", "truncate"),
    ("PERSIST", "persist"),
    ("WAL", "wal"),
    ("WALDIO", "waldio:sync=full"),
];

/// The trials of figure 15.
pub fn figure_15_trials(choice: Choice) -> Vec<Trial> {
    let each = |op| MODES.iter().map(move |(_, mode)| counted(choice, op, mode));
    OPS.into_iter().flat_map(each).collect()
}

/// Figure 15: the bytes that inserts, updates and deletes write.
pub fn figure_15(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    experiment.must_count()?;
    let choice = experiment.choice();
    experiment.run_all(&figure_15_trials(choice))?;
    let mut rows = Vec::new();
    for (op, quantity) in OPS.into_iter().zip(["inserts", "updates", "deletes"]) {
        rows.extend(volumes_of(experiment, op, quantity)?);
    }
    let differences = explain(&rows, ALL_REASONS, experiment)?;
    Ok(Shown {
        figure: "figure-15",
        title: "what 1,000 inserts, updates and deletes write, by journal mode",
        how: how_thousand(choice),
        rows,
        differences,
        sequences: Vec::new(),
        notes: vec![
            "the paper's text has figures of inserts alone; LS-MVBT has its own: reproduce lsmvbt"
                .to_owned(),
        ],
    })
}

const MOST_OF: &str = "the largest of the rollback modes";

/// One group of bars.
fn volumes_of(
    experiment: &mut Experiment<'_>,
    op: Op,
    quantity: &'static str,
) -> Result<Vec<Row>, String> {
    let choice = experiment.choice();
    let inserts = op == Op::Insert;
    let [(_, _, wal_total, _), _, (_, _, embedded, _)] = data::THOUSAND_INSERTS;
    let (mut rows, mut most) = (Vec::new(), (0.0, None));
    let wal = experiment.run(&counted(choice, op, "wal"))?;
    let wal = mb_a_thousand(written(wal).0, wal.count);
    for (name, mode) in MODES {
        let run = experiment.run(&counted(choice, op, mode))?;
        let (all, journal) = written(run);
        let (mb, share) = (mb_a_thousand(all, run.count), over(journal, all));
        let stated = match name {
            "WAL" => wal_total,
            "WALDIO" => embedded,
            _ => None,
        };
        let stated = stated.filter(|_| inserts);
        let mut row = Row::new(name, quantity, "MB", Kind::Counted)
            .ran(mode)
            .paper(stated)
            .ours(mb);
        if name != "WAL" {
            let paper = quotient(stated, wal_total);
            row = row.ratio("WAL", paper, over(mb, wal));
        }
        if let Some(mb) = mb
            && mb > most.0
            && !matches!(name, "WAL" | "WALDIO")
        {
            most = (mb, share);
        }
        rows.push(row.judged());
    }
    if inserts {
        let ours = most.1.map(|_| most.0);
        let row = Row::new(MOST_OF, quantity, "MB", Kind::Counted);
        rows.push(row.paper(Some(data::ROLLBACK_MOST)).ours(ours).judged());
        let share = Row::new(MOST_OF, SHARE, "of 1", Kind::Counted);
        let share = share.paper(Some(data::ROLLBACK_JOURNAL_SHARE)).ours(most.1);
        rows.push(share.judged());
    }
    Ok(rows)
}

const ALL_REASONS: &[Reason] = &[
    JOURNAL_BLOCKS,
    Reason {
        of: |row| row.name == MOST_OF,
        side: Side::Below,
        sentence: "The paper's SQLite journals the inode at every sync, also of blocks that are there already; \
                   SQLite now calls fdatasync, which then journals nothing.",
        count: OVERWRITTEN,
        predict: rollback_with_fdatasync,
    },
    ONE_PAGE_OF,
];

/// The paper's volume without what fsync journals more than fdatasync. A part of table 1's insert,
/// because its 1,000 inserts write more than 1,000 times that.
fn rollback_with_fdatasync(
    experiment: &mut Experiment<'_>,
    row: &Row,
) -> Result<Predicted, String> {
    let (fsync, fdatasync) = of_overwriting(experiment)?;
    let (figure, total, less) = of_less_journal(row, fsync - fdatasync)?;
    let (_, syncs) = syncs_in_place("DELETE");
    Ok(Predicted::new(
        figure,
        format!(
            "{syncs:.0} times an overwritten block journals {fsync:.0} KiB with fsync and {fdatasync:.0} with fdatasync: \
             {less:.0} KiB an insert in DELETE instead of the paper's {total:.0}"
        ),
    ))
}

/// The row's figure if each such sync journals so many KiB less, and the KiB of the paper's insert
/// with and without them.
fn of_less_journal(row: &Row, less: f64) -> Result<(f64, f64, f64), String> {
    let (of_journal, of_all) = syncs_in_place("DELETE");
    let [Volume { total, joj, .. }, ..] = data::ONE_INSERT;
    let (total, joj) = total.zip(joj).ok_or("the paper's insert is not stated")?;
    let (total, left) = (total.amount, total.amount - of_all * less);
    let figure = match row.quantity {
        SHARE => (joj.amount - of_journal * less) / left,
        _ => row.compared_paper() * left / total,
    };
    Ok((figure, total, left))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::outcome::tests::can_fail;

    /// A row of table 1, figure 2 or figure 15, counted.
    fn counted_row(name: &'static str, quantity: &'static str, paper: f64, ours: f64) -> Row {
        Row::new(name, quantity, "KiB", Kind::Counted)
            .paper(Some(Stated::about(paper, "test")))
            .ours(Some(ours))
            .judged()
    }

    /// DELETE wrote 56 KiB, 32 of them to the file system's journal; in the paper 80 and 44. OFF
    /// journaled nothing, and three blocks in figure 2.
    #[test]
    fn what_fsync_journals_can_speak_against_its_reason() {
        for (name, quantity, paper, ours, syncs) in [
            ("DELETE", TOTAL, 80.0, 56.0, 2.0),
            ("DELETE", JOJ, 44.0, 32.0, 1.0),
            ("OFF", JOJ, 12.0, 0.0, 1.0),
        ] {
            let row = counted_row(name, quantity, paper, ours);
            // Planted: fdatasync journals as much, fsync thrice as much, and each the other's.
            let predicted = |fsync, fdatasync| with_fdatasync(&row, syncs, fsync, fdatasync);
            let wrong = [
                predicted(12.0, 12.0),
                predicted(36.0, 0.0),
                predicted(0.0, 12.0),
            ];
            can_fail(
                &row,
                ONE_INSERT_REASONS,
                OVERWRITTEN,
                predicted(12.0, 0.0),
                &wrong,
            );
        }
    }

    /// TRUNCATE journaled 48 KiB, and 36 in the paper: 24 for the truncation, 12 less with fdatasync.
    #[test]
    fn what_the_truncation_journals_can_speak_against_its_reason() {
        let row = counted_row("TRUNCATE", JOJ, 36.0, 48.0);
        // Planted: its sync journals nothing, twice as much, and fdatasync as much as fsync.
        let wrong = [(0.0, 12.0), (48.0, 12.0), (24.0, 0.0)];
        let wrong = wrong.map(|(more, less)| with_truncation(&row, more, less));
        let right = with_truncation(&row, 24.0, 12.0);
        can_fail(&row, ONE_INSERT_REASONS, TRUNCATION, right, &wrong);
    }

    /// The largest rollback mode wrote 63 MB; in the paper 90.
    #[test]
    fn what_fsync_journals_can_speak_against_the_reason_of_figure_15() {
        let row = counted_row(MOST_OF, "inserts", 90.0, 63.0);
        let predicted = |less| of_less_journal(&row, less).expect("stated").0;
        // Planted: fdatasync journals as much, and fsync thrice as much.
        let wrong = [predicted(0.0), predicted(36.0)];
        can_fail(&row, ALL_REASONS, OVERWRITTEN, predicted(12.0), &wrong);
    }

    /// A single measurement of 16 KiB predicts 54 MB of rollback's 90, where 12 KiB predicts 63.
    #[test]
    fn one_measurement_that_differs_changes_no_prediction() {
        for each in [
            vec![12.0, 16.0, 12.0, 12.0, 12.0],
            vec![16.0, 12.0, 0.0, 12.0, 12.0],
        ] {
            assert_eq!(usual(each), Ok(12.0));
        }
        assert!(usual(Vec::new()).is_err());
    }

    /// WAL's 1,000 inserts write 33.2 MB; in the paper 29. A frame has two blocks.
    #[test]
    fn the_blocks_of_a_plain_file_s_append_can_speak_against_their_reasons() {
        let wal = counted_row("WAL", TOTAL, 29.0, 33.2);
        assert!(wal.differs() && (JOURNAL_BLOCKS.of)(&wal));
        assert!(wal.is_accounted_for_by(mb_of_blocks(2.0 + 6.0)));
        // Planted: a file system that journals four blocks, or none, or twice as many.
        for journal in [4.0, 0.0, 12.0] {
            assert!(!wal.is_accounted_for_by(mb_of_blocks(2.0 + journal)));
        }
        let waldio = Row::new("WALDIO", TOTAL, "MB", Kind::Counted)
            .ratio("WAL", Some(Stated::about(0.16, "test")), Some(0.12))
            .judged();
        assert!(waldio.differs() && (ONE_PAGE_OF.of)(&waldio));
        assert!(waldio.is_accounted_for_by(a_page_of(2.0 + 6.0)));
        assert!(!waldio.is_accounted_for_by(a_page_of(2.0 + 4.0)));
        assert!(!waldio.is_accounted_for_by(a_page_of(2.0)));
    }

    /// 100 inserts wrote 32.4 MB a thousand, with the log's extents outside of the inode from the 15th
    /// insert on. Those of the plain file all fitted in, and it had 5 blocks of journal.
    #[test]
    fn extents_outside_of_the_inode_are_a_block_of_the_journal() {
        let wal = counted_row("WAL", TOTAL, 29.0, 32.36);
        let predicted = |plain, log| mb_of_blocks(2.0 + journal_of_log(5.0, plain, log));
        assert!(wal.is_accounted_for_by(predicted(0.0, 0.86)));
        // Planted: neither file has such extents, or the plain one has them, and not the log.
        assert!(!wal.is_accounted_for_by(predicted(0.0, 0.0)));
        assert!(!wal.is_accounted_for_by(predicted(0.86, 0.0)));
    }

    #[test]
    fn a_frame_touches_two_blocks_and_sometimes_three() {
        assert_eq!(blocks_touched(1), 2.0);
        // A frame begins 24 bytes further into its block each time, so one in 171 touches three.
        let blocks = blocks_touched(1_000) - 2.0;
        assert!((0.002..0.006).contains(&blocks), "{blocks}");
    }
}
