//! The bytes that modes write: table 1, figures 8 and 15.

use onewrite_iotrace::meter::ByFile;
use onewrite_workload::files::Way;
use onewrite_workload::plan::Op;

use super::data::{self, KIB, Volume};
use super::trial;
use crate::reproduce::experiment::{Choice, Experiment, RECORD_BYTES, Trial};
use crate::reproduce::outcome::{Checked, Kind, Reason, Row, Shown, Side, Stated, explain};
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

/// Why one insert writes more or less than in the paper.
pub const ONE_INSERT_REASONS: &[Reason] = &[
    Reason {
        of: |row| matches!(row.name, "OFF" | "DELETE" | "PERSIST"),
        side: Side::Below,
        sentence: "The paper's SQLite journals the inode at every sync, also of blocks that are there already, \
                   as fsync does; SQLite now calls fdatasync, which then journals nothing.",
        check: fsync_or_fdatasync,
    },
    Reason {
        of: |row| row.name == "TRUNCATE",
        side: Side::Above,
        sentence: "SQLite now syncs the truncation of the journal too (its source names Mozilla's bug 1072773, \
                   of 2014), which the paper's did not.",
        check: truncation_synced,
    },
];

/// Overwrites a block and syncs it, both ways, and adds the extra cost of fsync to the measured
/// value.
fn fsync_or_fdatasync(experiment: &mut Experiment<'_>, row: &Row) -> Result<Checked, String> {
    let mut journal = |way| -> Result<f64, String> {
        let run = experiment.records(way, 4096, 1, 1)?;
        let by = run.by_file.ok_or("bytes were not told apart")?;
        Ok(by.fs_journal_bytes as f64 / KIB)
    };
    let (fsync, fdatasync) = (journal(Way::Fsync)?, journal(Way::Fdatasync)?);
    let (of_journal, of_all) = syncs_in_place(row.name);
    // OFF has no journal of its own, so the file system journals the database there.
    let syncs = match row.quantity == JOJ && row.name != "OFF" {
        true => of_journal,
        false => of_all,
    };
    let with_fsync = row.ours.unwrap_or(0.0) + syncs * fsync;
    let paper = row.paper.map_or(0.0, |stated| stated.amount);
    Ok(Checked {
        holds: fdatasync == 0.0 && fsync > 0.0 && (with_fsync / paper - 1.0).abs() <= 0.12,
        measured: format!(
            "overwriting a block here journals {fsync:.0} KiB with fsync, {fdatasync:.0} with fdatasync; with \
             that for each such sync these rows would be:"
        ),
        of_row: Some(format!("{with_fsync:.0} KiB")),
    })
}

/// `synchronous=normal` leaves out that sync. It also leaves out the one of the journal's header,
/// which journals nothing.
fn truncation_synced(experiment: &mut Experiment<'_>, row: &Row) -> Result<Checked, String> {
    let without = one_insert("truncate:synchronous=normal");
    let (all, journal) = written(experiment.run(&without)?);
    let without = if row.quantity == JOJ { journal } else { all };
    let without = without.ok_or("bytes were not told apart")? / KIB;
    let paper = row.paper.map_or(f64::MAX, |stated| stated.amount);
    Ok(Checked::new(
        without <= paper,
        format!("without that sync (synchronous=normal) this row is {without:.0} KiB"),
    ))
}

/// Inserts in each layout.
pub fn figure_8_trials(choice: Choice) -> Vec<Trial> {
    let modes = data::THOUSAND_INSERTS.iter().map(|(_, mode, ..)| *mode);
    modes.map(|mode| trial(choice, Op::Insert, mode)).collect()
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
        let run = experiment.run(&trial(choice, Op::Insert, mode))?;
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

const THOUSAND_REASONS: &[Reason] = &[
    Reason {
        of: |row| row.name == "WAL" && row.quantity == DATA,
        side: Side::Below,
        sentence: "An insert's frame of 4,120 bytes touches two blocks of the log, and nothing else is written besides \
                   the journal; so it is in the paper's table 1 (28 - 20 KiB), but its 12.3 MB are three an insert.",
        check: two_blocks_a_frame,
    },
    Reason {
        of: |row| row.name == "WAL",
        side: Side::Above,
        sentence: "The log grows with every insert, and each time the file system journals five blocks or more for it, \
                   as in the paper's table 1 (20 KiB); its figure 8 has four.",
        check: journal_blocks,
    },
    Reason {
        of: |row| row.name != "WAL" && row.quantity == DATA,
        side: Side::Above,
        sentence: "WAL is what differs, not WALDIO: WALDIO writes one page an insert in both, WAL writes two blocks \
                   of data an insert here and three in the paper (12.3 MB).",
        check: one_page_a_frame,
    },
    Reason {
        of: |row| row.name != "WAL" && row.quantity == TOTAL,
        side: Side::Below,
        sentence: "The file system's journal weighs more in WAL here than in the paper; WALDIO writes one page an \
                   insert and nothing else, in both.",
        check: one_page_a_frame,
    },
];

/// Blocks of the file system's journal for one insert, and for one of many.
fn journal_blocks(experiment: &mut Experiment<'_>, _: &Row) -> Result<Checked, String> {
    let (_, one) = written(experiment.run(&one_insert("wal"))?);
    let one = one.ok_or("bytes were not told apart")? / 4096.0;
    let run = experiment.run(&trial(experiment.choice(), Op::Insert, "wal"))?;
    let (_, many) = written(run);
    let many = many.ok_or("bytes were not told apart")? / 4096.0 / f64::from(run.count);
    Ok(Checked::new(
        one == 5.0 && (5.0..7.0).contains(&many),
        format!(
            "{one:.0} blocks of the file system's journal for the first insert, {many:.2} for each of {}",
            run.count
        ),
    ))
}

fn two_blocks_a_frame(experiment: &mut Experiment<'_>, _: &Row) -> Result<Checked, String> {
    let run = experiment.run(&trial(experiment.choice(), Op::Insert, "wal"))?;
    let by = run.by_file.ok_or("bytes were not told apart")?;
    let blocks = by.log_bytes as f64 / 4096.0 / f64::from(run.count);
    Ok(Checked::new(
        (2.0..2.2).contains(&blocks) && by.database_bytes == 0,
        format!("{blocks:.2} blocks of the log an insert, none of the database"),
    ))
}

fn one_page_a_frame(experiment: &mut Experiment<'_>, row: &Row) -> Result<Checked, String> {
    let choice = experiment.choice();
    let wal = written(experiment.run(&trial(choice, Op::Insert, "wal"))?);
    let run = experiment.run(&trial(choice, Op::Insert, "waldio:sync=full"))?;
    let by = run.by_file.ok_or("bytes were not told apart")?;
    let pages = by.log_bytes as f64 / 4096.0 / f64::from(run.count);
    let share = over(wal.1, wal.0).unwrap_or(0.0);
    let paper = 1.0 - 12.3 / 29.0;
    let of_wal = match row.quantity {
        TOTAL => share > paper,
        _ => true,
    };
    Ok(Checked::new(
        (1.0..1.1).contains(&pages) && by.fs_journal_bytes == 0 && of_wal,
        format!(
            "WALDIO {pages:.2} pages an insert, file-system journal {} bytes; the journal is {:.0} % of WAL's \
             writes here, {:.0} % in the paper",
            by.fs_journal_bytes,
            share * 100.0,
            paper * 100.0
        ),
    ))
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
    let each = |op| MODES.iter().map(move |(_, mode)| trial(choice, op, mode));
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
    let wal = experiment.run(&trial(choice, op, "wal"))?;
    let wal = mb_a_thousand(written(wal).0, wal.count);
    for (name, mode) in MODES {
        let run = experiment.run(&trial(choice, op, mode))?;
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
        let most_of = "the largest of the rollback modes";
        let ours = most.1.map(|_| most.0);
        let row = Row::new(most_of, quantity, "MB", Kind::Counted);
        rows.push(row.paper(Some(data::ROLLBACK_MOST)).ours(ours).judged());
        let share = Row::new(most_of, SHARE, "of 1", Kind::Counted);
        let share = share.paper(Some(data::ROLLBACK_JOURNAL_SHARE)).ours(most.1);
        rows.push(share.judged());
    }
    Ok(rows)
}

const ALL_REASONS: &[Reason] = &[
    Reason {
        of: |row| row.name == "WAL",
        side: Side::Above,
        sentence: "The log grows with every insert, and each time the file system journals five blocks or more for it, \
                   as in the paper's table 1 (20 KiB); its figure 8 has four.",
        check: journal_blocks,
    },
    Reason {
        of: |row| row.name == "the largest of the rollback modes",
        side: Side::Below,
        sentence: "The paper's SQLite journals the inode at every sync, also of blocks that are there already; \
                   SQLite now calls fdatasync, which then journals nothing.",
        check: rollback_with_fsync,
    },
    Reason {
        of: |row| row.name == "WALDIO",
        side: Side::Below,
        sentence: "The file system's journal weighs more in WAL here than in the paper; WALDIO writes one page an \
                   insert and nothing else, in both.",
        check: |experiment, row| {
            let row = Row {
                quantity: TOTAL,
                ..row.clone()
            };
            one_page_a_frame(experiment, &row)
        },
    },
];

/// DELETE's volume of one insert, with the extra bytes of fsync, scaled to 1,000.
fn rollback_with_fsync(experiment: &mut Experiment<'_>, _: &Row) -> Result<Checked, String> {
    let (all, _) = written(experiment.run(&one_insert("delete"))?);
    let all = all.ok_or("bytes were not told apart")? / KIB;
    let run = experiment.records(Way::Fsync, 4096, 1, 1)?;
    let fsync = run
        .by_file
        .ok_or("bytes were not told apart")?
        .fs_journal_bytes as f64
        / KIB;
    let (_, syncs) = syncs_in_place("DELETE");
    let with_fsync = (all + syncs * fsync) * KIB / 1_000.0;
    Ok(Checked::new(
        fsync > 0.0 && (0.85..1.15).contains(&(with_fsync / data::ROLLBACK_MOST.amount)),
        format!(
            "one insert in DELETE writes {all:.0} KiB here; with {syncs:.0} times the {fsync:.0} KiB that fsync of \
             an overwritten block journals, 1,000 of them come to {with_fsync:.0} MB"
        ),
    ))
}
