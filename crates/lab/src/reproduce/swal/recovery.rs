//! Figure 10: how long the first access to a database takes after a crash; see
//! [`super::super::crash`].

use onewrite_workload::connection::Settings;
use onewrite_workload::databases::Databases;
use onewrite_workload::mode::{Mode, Synchronous};
use onewrite_workload::plan::Op;

use super::data::{self, APPLICATIONS};
use super::{AUTOCHECKPOINT, GENERATED, OURS, PAPER_S, length};
use crate::reproduce::crash::{Recovered, crashed};
use crate::reproduce::experiment::Experiment;
use crate::reproduce::outcome::{Checked, Kind, Reason, Row, Shown, Side, explain};

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
    let plan = experiment.plan(op, length(experiment.choice(), op).min(MOST));
    let settings = Settings {
        mode: Mode::parse(mode).map_err(|error| error.to_string())?,
        synchronous: Synchronous::Full,
        autocheckpoint: AUTOCHECKPOINT,
    };
    crashed(experiment, CRASHES, &plan, &settings, begin)
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

const REASONS: &[Reason] = &[
    Reason {
        of: |row| row.name == "PERSIST",
        side: Side::Below,
        sentence: "PERSIST undoes only the few pages of the transaction that was under way, where WAL reads its whole \
                   log; nothing in the paper's text says why it was long there.",
        check: what_there_was,
    },
    Reason {
        of: |row| row.name.starts_with("S-WAL"),
        side: Side::Below,
        sentence: "A compressed log has fewer bytes to read than WAL's, and unpacking them takes less time than that \
                   saves.",
        check: what_there_was,
    },
];

fn what_there_was(experiment: &mut Experiment<'_>, row: &Row) -> Result<Checked, String> {
    let one = APPLICATIONS.iter().find(|one| one.name == row.quantity);
    let one = one.ok_or("no such application")?;
    let mode = MODES.iter().find(|(name, _)| *name == row.name);
    let (_, mode) = *mode.ok_or("no such mode")?;
    let (wal, other) = (
        crash(experiment, one.op, "wal")?,
        crash(experiment, one.op, mode)?,
    );
    Ok(Checked {
        holds: other.ms < wal.ms,
        measured: "run again:".to_owned(),
        of_row: Some(format!(
            "{:.1} ms with {} KiB of journal, WAL {:.1} ms with {} KiB",
            other.ms,
            other.log_bytes >> 10,
            wal.ms,
            wal.log_bytes >> 10
        )),
    })
}
