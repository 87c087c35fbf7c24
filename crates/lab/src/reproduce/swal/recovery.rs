//! Figure 10: how long the first access to a database takes after a crash; see
//! [`super::super::crash`].

use onewrite_workload::connection::Settings;
use onewrite_workload::databases::Databases;
use onewrite_workload::mode::{Mode, Synchronous};
use onewrite_workload::plan::{Op, Plan};

use super::data::{self, APPLICATIONS};
use super::{AUTOCHECKPOINT, GENERATED, OURS, PAPER_S, length};
use crate::reproduce::crash::{Recovered, closed, crashed};
use crate::reproduce::experiment::Experiment;
use crate::reproduce::outcome::{Kind, Predicted, Reason, Row, Shown, Side, explain};

/// Transactions before the crash, at most.
const MOST: u32 = 1_000;

/// Crashes of each application and mode, as in the paper.
const CRASHES: u32 = 5;

const MODES: [(&str, &str); 4] = [
    ("WAL", "wal"),
    ("PERSIST", "persist"),
    ("S-WAL", PAPER_S),
    ("S-WAL with differences", OURS),
];

/// Figure 10: recovery.
pub fn figure_10(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    let mut rows = Vec::new();
    for one in &APPLICATIONS {
        let mut wal = None;
        for (name, mode) in MODES {
            let found = crash(experiment, one.op, mode)?;
            let baseline = *wal.get_or_insert(found.ms);
            let row = Row::new(name, one.name, "ms", Kind::Timed)
                .ran(mode)
                .ours(Some(found.ms));
            let stated = match name {
                "WAL" => {
                    rows.push(row.judged());
                    continue;
                }
                "PERSIST" => data::PERSIST_S_RECOVERY,
                _ => data::SWAL_S_RECOVERY,
            };
            rows.push(
                row.ratio("WAL", Some(stated), Some(found.ms / baseline))
                    .judged(),
            );
        }
    }
    let differences = explain(&rows, REASONS, experiment)?;
    Ok(Shown {
        figure: "figure-10",
        title: "recovery time, by journal mode",
        how: format!(
            "opening all files of an application and reading from each, after a crash in the middle of a transaction; \
             median of {CRASHES}, files in the page cache"
        ),
        rows,
        differences,
        sequences: Vec::new(),
        notes: vec![GENERATED.to_owned()],
    })
}

/// Runs an application, crashes it, and recovers copies of its files.
fn crash(experiment: &Experiment<'_>, op: Op, mode: &'static str) -> Result<Recovered, String> {
    let (plan, settings) = of_crash(experiment, op, mode)?;
    crashed(experiment, CRASHES, &plan, &settings, begin)
}

/// The transactions before the crash.
fn of_crash(
    experiment: &Experiment<'_>,
    op: Op,
    mode: &'static str,
) -> Result<(Plan, Settings), String> {
    let settings = Settings {
        mode: Mode::parse(mode).map_err(|error| error.to_string())?,
        synchronous: Synchronous::Full,
        autocheckpoint: AUTOCHECKPOINT,
    };
    let plan = experiment.plan(op, length(experiment.choice(), op).min(MOST));
    Ok((plan, settings))
}

/// Begins a transaction in each file that changes rows, writes them, and does not commit.
fn begin(databases: &Databases) -> Result<(), String> {
    for connection in databases.all() {
        let changed = connection.execute_batch(
            "BEGIN IMMEDIATE;
             UPDATE item SET state = state + 1 WHERE id IN (SELECT id FROM item LIMIT 3);
             UPDATE blob SET item = item + 1 WHERE id IN (SELECT id FROM blob LIMIT 3);",
        );
        let written = changed.and_then(|()| connection.cache_flush());
        written.map_err(|error| format!("a transaction before the crash: {error}"))?;
    }
    Ok(())
}

const LOG_BYTES: &str =
    "the bytes of log to recover, by WAL's time for each and that of opening a closed database";

const REASONS: &[Reason] = &[
    Reason {
        of: |row| row.name == "PERSIST",
        side: Side::Below,
        sentence: "PERSIST undoes only the few pages of the transaction that was under way, where WAL reads its whole \
                   log; nothing in the paper's text says why it was long there.",
        count: LOG_BYTES,
        predict: by_log_bytes,
    },
    Reason {
        of: |row| row.name.starts_with("S-WAL"),
        side: Side::Below,
        sentence: "A compressed log has fewer bytes to read than WAL's, and unpacking them takes less time than that \
                   saves.",
        count: LOG_BYTES,
        predict: by_log_bytes,
    },
];

/// The time of recovery if a byte of any log took what one of WAL's takes, on top of opening files
/// that were closed.
fn by_log_bytes(experiment: &mut Experiment<'_>, row: &Row) -> Result<Predicted, String> {
    let one = APPLICATIONS.iter().find(|one| one.name == row.quantity);
    let one = one.ok_or("no such application")?;
    let mode = MODES.iter().find(|(name, _)| *name == row.name);
    let (_, mode) = *mode.ok_or("no such mode")?;
    let (plan, settings) = of_crash(experiment, one.op, "wal")?;
    let opening = closed(experiment, CRASHES, &plan, &settings)?;
    let (wal, other) = (
        crash(experiment, one.op, "wal")?,
        crash(experiment, one.op, mode)?,
    );
    let share = other.log_bytes as f64 / wal.log_bytes.max(1) as f64;
    let figure = (opening + (wal.ms - opening).max(0.0) * share) / wal.ms;
    Ok(Predicted::of_row(
        figure,
        "run again:",
        format!(
            "{} KiB of journal, WAL {} KiB, {:.1} ms to recover them and {opening:.1} ms to open closed files",
            other.log_bytes >> 10,
            wal.log_bytes >> 10,
            wal.ms
        ),
    ))
}
