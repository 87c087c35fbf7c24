//! The device's I/Os one by one: figures 2, 11 and 12.

use std::fs::File;
use std::time::{Duration, Instant};

use onewrite_iotrace::io::{Io, Kind as What, Op};
use onewrite_iotrace::summary::Summary;
use onewrite_iotrace::trace::Mark;
use onewrite_workload::connection::{self, Checkpoint, Settings};
use onewrite_workload::mode::{Mode, Synchronous};
use rusqlite::Connection;

use super::data::{self, KIB};
use super::volumes::{ONE_INSERT_REASONS, SHARE_OF_JOURNAL};
use crate::reproduce::experiment::Experiment;
use crate::reproduce::outcome::{
    Kind, Predicted, Reason, Row, Sequence, Shown, Side, Stated, explain,
};
use onewrite_cli::interrupt;
use onewrite_cli::trace::Traced;

/// Mobibench's table.
const TABLE: &str = "CREATE TABLE test (id INTEGER PRIMARY KEY, value TEXT, created INTEGER)";

/// One of its rows: 8 bytes id, 84 bytes value, 8 bytes created.
const INSERT: &str = "INSERT INTO test (value, created) VALUES (?1, 1700000000)";

/// Bytes of a value.
const VALUE: usize = 84;

/// I/Os that a sequence lists, at most.
const LISTED: usize = 12;

/// How long to wait for a moment at which the device is idle.
const QUIET: Duration = Duration::from_secs(5);

/// Frames in the log's first chunk. The log prepares another chunk when few are left.
const FIRST_CHUNK: u32 = 1_536;

/// Frames left when the trace begins: more than when the log prepares the next chunk.
const BEFORE_THE_NEXT: u32 = 400;

/// The part of a run to trace.
#[derive(Clone, Copy)]
enum From {
    /// The creation of the database, its table and its log.
    Nothing,
    /// Inserts, after a number of untraced ones.
    Inserts { before: u32, count: u32 },
}

const INSERTS: &str = "inserts";

/// Traces a mode.
fn trace(
    experiment: &Experiment<'_>,
    mode: &str,
    from: From,
    what: &str,
) -> Result<Traced, String> {
    let text = |error: onewrite_workload::Error| error.to_string();
    let settings = Settings {
        mode: Mode::parse(mode).map_err(text)?,
        synchronous: Synchronous::Full,
        autocheckpoint: 0,
    };
    let dir = experiment.directory("trace")?;
    let path = dir.path().join("test.db");
    let opened = File::open(dir.path()).map_err(|error| error.to_string())?;
    let tracer = experiment.tracer()?;
    let device = tracer.device().clone();
    let settled = || Mark::settled(&device, &opened).map_err(|error| error.to_string());
    let mut begun = settled()?;
    let connection = settings.open(&path).map_err(text)?;
    set_up(&connection)?;
    if let From::Inserts { before, count } = from {
        connection::checkpoint(&connection, Checkpoint::Truncate).map_err(text)?;
        // One transaction, so that the log exists.
        let first = connection.execute_batch("PRAGMA user_version=1");
        first.map_err(|error| format!("first transaction: {error}"))?;
        insert(&connection, before)?;
        begun = settled()?;
        insert(&connection, count)?;
    }
    let ended = quiet(&device)?;
    let recording = tracer.finish().map_err(|error| error.to_string())?;
    if let From::Inserts { before, count } = from {
        check(&connection, before + count)?;
    }
    connection
        .close()
        .map_err(|(_, error)| format!("close: {error}"))?;
    if recording.lost > 0 {
        return Err(format!("the kernel's trace lost {} events", recording.lost));
    }
    let traced = Traced {
        what: what.to_owned(),
        mode: Some(mode.to_owned()),
        per: None,
        file_system: experiment.file_system(),
        device: device.name().to_owned(),
        recording,
        from: begun,
        to: ended,
        ended: None,
    };
    counters_agree(&traced.summary())?;
    Ok(traced)
}

fn set_up(connection: &Connection) -> Result<(), String> {
    connection
        .execute_batch(TABLE)
        .map_err(|error| format!("create the table: {error}"))
}

fn insert(connection: &Connection, count: u32) -> Result<(), String> {
    let failed = |error: rusqlite::Error| format!("{INSERTS}: {error}");
    let mut statement = connection.prepare_cached(INSERT).map_err(failed)?;
    let value = "v".repeat(VALUE);
    for _ in 0..count {
        if interrupt::is_requested() {
            return Err("interrupted".to_owned());
        }
        statement.execute([&value]).map_err(failed)?;
    }
    Ok(())
}

fn check(connection: &Connection, rows: u32) -> Result<(), String> {
    let found: Result<u32, _> =
        connection.query_row("SELECT count(*) FROM test", (), |row| row.get(0));
    match found {
        Ok(found) if found == rows => Ok(()),
        Ok(found) => Err(format!("{found} rows, not the {rows} that were inserted")),
        Err(error) => Err(format!("count the rows: {error}")),
    }
}

/// A moment at which the device has nothing under way.
fn quiet(device: &onewrite_iotrace::device::BlockDevice) -> Result<Mark, String> {
    let begun = Instant::now();
    loop {
        let mark = Mark::now(device).map_err(|error| error.to_string())?;
        let idle = device.is_idle().map_err(|error| error.to_string())?;
        if idle || begun.elapsed() > QUIET {
            return Ok(mark);
        }
    }
}

/// Checks that the sum over all I/Os equals the device's own count. If not, there are no figures.
fn counters_agree(summary: &Summary) -> Result<(), String> {
    match summary.checks.iter().find(|one| one.traced != one.counted) {
        None => Ok(()),
        Some(one) => Err(format!(
            "{}: the trace has {}, the device counted {}",
            one.what, one.traced, one.counted
        )),
    }
}

/// KiB written of a kind.
fn kib(summary: &Summary, of: &[What]) -> f64 {
    let kinds = summary.by_kind.iter().filter(|(kind, _)| of.contains(kind));
    kinds
        .map(|(_, moved)| moved.write_bytes as f64)
        .sum::<f64>()
        / KIB
}

const LOGS: &[What] = &[What::Log, What::RollbackJournal];

/// The I/Os in the order in which they were completed.
fn sequence(name: &'static str, traced: &Traced) -> Sequence {
    let of = |io: &Io| {
        let at_ms = io.completed_ns.saturating_sub(traced.from.at_ns) as f64 / 1e6;
        let piece = io.pieces.first().map(|piece| traced.recording.kind(piece));
        let what = piece.map_or("", What::label);
        match io.op {
            Op::Flush => Some(format!("{at_ms:.2} ms flush")),
            Op::Write => Some(format!(
                "{at_ms:.2} ms {what} {:.0} KiB at {} KiB",
                io.bytes() as f64 / KIB,
                io.sector / 2
            )),
            Op::Read | Op::Discard | Op::FlushRequest => None,
        }
    };
    let ios: Vec<String> = traced
        .recording
        .between(&traced.from, &traced.to)
        .filter_map(of)
        .collect();
    let (count, mut ios) = (ios.len(), ios);
    ios.truncate(LISTED);
    Sequence {
        name,
        ios,
        more: count.saturating_sub(LISTED),
    }
}

/// The rows of a trace: bytes by purpose, writes and flushes.
fn rows(name: &'static str, traced: &Traced) -> [Row; 5] {
    let summary = traced.summary();
    let mode = traced.mode.as_deref().unwrap_or_default();
    let row = |quantity, unit| Row::new(name, quantity, unit, Kind::Counted).ran(mode);
    let of = |kinds: &[What]| Some(kib(&summary, kinds));
    [
        row(JOURNAL, "KiB").ours(of(&[What::FsJournal])),
        row(LOG, "KiB").ours(of(LOGS)),
        row(DATABASE, "KiB").ours(of(&[What::Database])),
        row(WRITES, "number").ours(Some(summary.total.writes as f64)),
        row(FLUSHES, "number").ours(Some(summary.flushes as f64)),
    ]
}

const JOURNAL: &str = "file-system journal";
const LOG: &str = "SQLite's journal or log";
const DATABASE: &str = "database";
const WRITES: &str = "writes";
const FLUSHES: &str = "flushes";

/// Figure 2: one insert in each stock mode.
pub fn figure_2(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    experiment.must_count()?;
    let (mut all, mut sequences, mut traces) = (Vec::new(), Vec::new(), Vec::new());
    let what = "one row of 100 bytes inserted";
    let from = From::Inserts {
        before: 0,
        count: 1,
    };
    for (name, mode) in data::STOCK_MODES {
        let traced = trace(experiment, mode, from, what)?;
        for row in rows(name, &traced) {
            let stated = data::ONE_INSERT_PARTS
                .iter()
                .find(|(of, quantity, _)| *of == name && *quantity == row.quantity);
            let stated = stated.map(|(_, _, stated)| *stated);
            all.push(row.paper(stated).judged());
        }
        sequences.push(sequence(name, &traced));
        traces.push(traced);
    }
    let differences = explain(&all, ONE_INSERT_REASONS, experiment)?;
    let mut notes = vec![SHARE_OF_JOURNAL.to_owned()];
    notes.extend(experiment.plot("waldio-figure-2", &traces)?);
    Ok(Shown {
        sequences,
        ..Shown::of(
            "figure-2",
            "the I/Os of one insert, by journal mode",
            format!("{what}, a transaction, after everything before has reached the device"),
            all,
            differences,
            notes,
        )
    })
}

/// Figure 11: WALDIO's log: an insert, its creation, its extension.
pub fn figure_11(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    experiment.must_count()?;
    let mode = "waldio:sync=full";
    let inserts = |before, count| From::Inserts { before, count };
    let count = BEFORE_THE_NEXT;
    let parts = [
        (
            "(a) one insert",
            inserts(0, 1),
            "one row of 100 bytes inserted",
        ),
        (
            "(b) the log is created",
            From::Nothing,
            "database, table and log created",
        ),
        (
            "(c) the log is extended",
            inserts(FIRST_CHUNK - BEFORE_THE_NEXT, count),
            "400 rows of 100 bytes inserted, while the log grows",
        ),
    ];
    let (mut all, mut sequences, mut traces) = (Vec::new(), Vec::new(), Vec::new());
    for (name, from, what) in parts {
        let traced = trace(experiment, mode, from, what)?;
        for row in rows(name, &traced) {
            let one = name.starts_with("(a)");
            let stated = match row.quantity {
                WRITES if one => Some(data::ONE_WRITE),
                LOG if one => Some(data::ONE_PAGE),
                JOURNAL if one => Some(Stated::about(0.0, data::ONE_PAGE.from)),
                _ => None,
            };
            all.push(row.paper(stated).judged());
        }
        sequences.push(sequence(name, &traced));
        traces.push(traced);
    }
    let differences = explain(&all, &[], experiment)?;
    let notes = experiment.plot("waldio-figure-11", &traces)?;
    Ok(Shown {
        sequences,
        ..Shown::of(
            "figure-11",
            "the I/Os of WALDIO: an insert, its log created, its log extended",
            format!(
                "one row of 100 bytes a transaction; in (c) {count} rows, in the course of which the log gets its \
                 second chunk"
            ),
            all,
            differences,
            notes.into_iter().collect(),
        )
    })
}

/// Inserts of figure 12.
const TEN: u32 = 10;

/// Figure 12: ten inserts in WAL and in WALDIO.
pub fn figure_12(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    experiment.must_count()?;
    let from = From::Inserts {
        before: 0,
        count: TEN,
    };
    let what = "10 rows of 100 bytes inserted";
    let (mut all, mut sequences, mut traces) = (Vec::new(), Vec::new(), Vec::new());
    let mut wal = None;
    for (name, mode, stated) in [
        ("(a) WAL", "wal", data::TEN_IN_WAL),
        ("(b) WALDIO", "waldio:sync=full", data::TEN_IN_WALDIO),
    ] {
        let traced = trace(experiment, mode, from, what)?;
        let total = traced.summary().total.write_bytes as f64 / KIB;
        let baseline = *wal.get_or_insert(total);
        let row = Row::new(name, TOTAL, "KiB", Kind::Counted).ran(mode);
        let mut row = row.paper(Some(stated)).ours(Some(total));
        if mode != "wal" {
            let paper = Stated {
                amount: stated.amount / data::TEN_IN_WAL.amount,
                ..stated
            };
            row = row.ratio("WAL", Some(paper), Some(total / baseline));
        }
        all.push(row.judged());
        all.extend(rows(name, &traced).map(Row::judged));
        sequences.push(sequence(name, &traced));
        traces.push(traced);
    }
    let differences = explain(&all, &TEN_REASONS, experiment)?;
    let notes = experiment.plot("waldio-figure-12", &traces)?;
    Ok(Shown {
        sequences,
        ..Shown::of(
            "figure-12",
            "the I/Os of 10 inserts in WAL and in WALDIO",
            format!("{what}, one a transaction"),
            all,
            differences,
            notes.into_iter().collect(),
        )
    })
}

const TOTAL: &str = "written";

const JOURNALED_BY_TEN: &str = "the log's blocks by its format, and what the file system journals when a plain file grows by a frame";

const TEN_REASONS: [Reason; 2] = [
    Reason {
        of: |row| row.quantity == TOTAL && row.ratio.is_some(),
        side: Side::Below,
        sentence: "WALDIO writes what the paper says; WAL's file system journals more for some inserts than for the \
                   one of table 1.",
        count: JOURNALED_BY_TEN,
        predict: predict_ten,
    },
    // On a busy machine.
    Reason {
        of: |row| row.quantity == TOTAL && row.ratio.is_none(),
        side: Side::Above,
        sentence: "The file system journals more for some inserts than for the one of table 1.",
        count: JOURNALED_BY_TEN,
        predict: predict_ten,
    },
];

fn predict_ten(experiment: &mut Experiment<'_>, row: &Row) -> Result<Predicted, String> {
    let journal = experiment.appended(TEN)?.fs_journal_bytes / KIB;
    Ok(Predicted::new(
        of_ten(row, journal),
        format!(
            "{journal:.1} KiB of file-system journal for an append of 4,120 bytes to a plain file, with fdatasync, \
             the average of 10"
        ),
    ))
}

/// The row's figure if the file system journals so many KiB for an insert of WAL, whose frame has
/// two blocks. One of WALDIO has one block, and journals nothing.
fn of_ten(row: &Row, journal: f64) -> f64 {
    let (wal, waldio) = (f64::from(TEN) * (8.0 + journal), f64::from(TEN) * 4.0);
    match row.ratio {
        Some(_) => waldio / wal,
        None => wal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten inserts of WAL write 340 KiB; in the paper 280.
    #[test]
    fn the_journal_of_a_plain_file_can_speak_against_its_reason() {
        let [reason, above] = TEN_REASONS;
        let waldio = Row::new("(b) WALDIO", TOTAL, "KiB", Kind::Counted)
            .ratio(
                "WAL",
                Some(Stated::about(40.0 / 280.0, "test")),
                Some(40.0 / 340.0),
            )
            .judged();
        assert!(waldio.differs() && waldio.side() == Some(reason.side));
        assert!((reason.of)(&waldio));
        assert!(waldio.is_accounted_for_by(of_ten(&waldio, 26.0)));
        let wal = Row::new("(a) WAL", TOTAL, "KiB", Kind::Counted)
            .paper(Some(Stated::about(280.0, "test")))
            .ours(Some(340.0))
            .judged();
        assert!(wal.differs() && wal.side() == Some(above.side));
        assert!((above.of)(&wal) && !(above.of)(&waldio) && !(reason.of)(&wal));
        assert!(wal.is_accounted_for_by(of_ten(&wal, 26.0)));
        // Planted: the journal of table 1's insert, none, and far more.
        for journal in [20.0, 0.0, 60.0] {
            assert!(!waldio.is_accounted_for_by(of_ten(&waldio, journal)));
            assert!(!wal.is_accounted_for_by(of_ten(&wal, journal)));
        }
    }
}
