//! Figure 10: how long the first look at a database takes after a crash.
//!
//! An application runs, and its files are copied while its connections are open and a transaction is under
//! way, with `cp` in a process of its own: closing a descriptor on them in this one would drop SQLite's
//! locks. The copy is what a crash of the process leaves. The time is that of opening each file of a
//! copy and reading from it, which makes SQLite recover; the copies are in the page cache.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use onewrite_workload::connection::{Checkpoint, Settings};
use onewrite_workload::databases::Databases;
use onewrite_workload::mode::{Mode, Synchronous};
use onewrite_workload::plan::{Op, Plan};
use onewrite_workload::team::{self, Control};

use super::data::{self, APPLICATIONS};
use super::{AUTOCHECKPOINT, GENERATED, OURS, PAPER_S, length};
use crate::interrupt;
use crate::reproduce::lab::Lab;
use crate::reproduce::outcome::{Checked, Kind, Reason, Row, Shown, Side, explain};

/// Crashes of each application and mode, as the paper has it.
const CRASHES: u32 = 5;

/// Transactions before the crash, at most.
const MOST: u32 = 1_000;

const MODES: [(&str, &str); 4] = [
    ("WAL", "wal"),
    ("PERSIST", "persist"),
    ("S-WAL", PAPER_S),
    ("S-WAL with differences", OURS),
];

/// The mean time of recovery, and what there was to recover.
#[derive(Clone, Copy)]
pub struct Recovered {
    /// Milliseconds.
    pub ms: f64,
    /// Bytes of all logs or journals.
    log_bytes: u64,
}

/// Figure 10: recovery.
pub fn figure_10(lab: &mut Lab<'_>) -> Result<Shown, String> {
    let mut rows = Vec::new();
    for one in &APPLICATIONS {
        let mut wal = None;
        for (name, mode) in MODES {
            let found = crash(lab, one.op, mode)?;
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
    let differences = explain(&rows, REASONS, lab)?;
    Ok(Shown {
        figure: "figure-10",
        title: "recovery time, by journal mode",
        how: format!(
            "opening all files of an application and reading from each, after a crash in the middle of a transaction; \
             mean of {CRASHES}, files in the page cache"
        ),
        rows,
        differences,
        sequences: Vec::new(),
        notes: vec![GENERATED.to_owned()],
    })
}

fn text(error: onewrite_workload::Error) -> String {
    error.to_string()
}

/// Runs an application, crashes it, and recovers copies of what is left.
fn crash(lab: &Lab<'_>, op: Op, mode: &'static str) -> Result<Recovered, String> {
    let plan = lab.plan(op, length(lab.choice(), op).min(MOST));
    let settings = Settings {
        mode: Mode::parse(mode).map_err(text)?,
        synchronous: Synchronous::Full,
        autocheckpoint: AUTOCHECKPOINT,
    };
    crashed(lab, &plan, &settings, begin)
}

/// Runs a plan, crashes it in the transaction that `begin` has begun, and recovers copies of what is left.
pub fn crashed(
    lab: &Lab<'_>,
    plan: &Plan,
    settings: &Settings,
    begin: fn(&Databases) -> Result<(), String>,
) -> Result<Recovered, String> {
    let dir = lab.directory("recovery")?;
    let live = dir.path().join("live");
    std::fs::create_dir(&live).map_err(|error| format!("{}: {error}", live.display()))?;
    let stop = interrupt::requested();
    let path = live.join("test.db");
    let mut databases = Databases::open(settings, &path, plan.databases()).map_err(text)?;
    plan.populate(&mut databases, stop).map_err(text)?;
    databases.checkpoint(Checkpoint::Truncate).map_err(text)?;
    let mut seats = [databases];
    team::run(plan, 0, &mut seats, &Control::default(), stop, || Ok(())).map_err(text)?;
    let [databases] = seats;
    begin(&databases)?;
    let copies: Result<Vec<_>, String> = (0..CRASHES)
        .map(|number| {
            let copy = dir.path().join(format!("crash-{number}"));
            copied(&live, &copy)?;
            Ok(copy)
        })
        .collect();
    for connection in databases.all() {
        let rolled_back = connection.execute_batch("ROLLBACK");
        rolled_back.map_err(|error| format!("rollback: {error}"))?;
    }
    databases.close().map_err(text)?;
    let copies = copies?;
    let log_bytes = copies.first().map_or(Ok(0), |copy| bytes_of_logs(copy))?;
    let mut ms = 0.0;
    for copy in &copies {
        ms += recover(settings, plan, &copy.join("test.db"))?;
    }
    Ok(Recovered {
        ms: ms / f64::from(CRASHES),
        log_bytes,
    })
}

/// A transaction in each file that has changed rows and written them, and has not committed.
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

/// Copies all files but those that only processes which are alive share.
fn copied(from: &Path, to: &Path) -> Result<(), String> {
    let output = Command::new("cp").arg("-r").arg(from).arg(to).output();
    let output = output.map_err(|error| format!("cp: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "cp: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    let failed = |error: std::io::Error| format!("{}: {error}", to.display());
    for entry in std::fs::read_dir(to).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.as_os_str().as_encoded_bytes().ends_with(b"-shm") {
            std::fs::remove_file(&path).map_err(failed)?;
        }
    }
    Ok(())
}

fn bytes_of_logs(dir: &Path) -> Result<u64, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if [&b"-wal"[..], b"-onewrite", b"-journal"]
            .iter()
            .any(|end| name.ends_with(end))
        {
            bytes += entry.metadata().map_err(failed)?.len();
        }
    }
    Ok(bytes)
}

/// Opens every file and reads from it; milliseconds. What it finds is checked afterwards.
fn recover(settings: &Settings, plan: &Plan, path: &Path) -> Result<f64, String> {
    let begun = Instant::now();
    let databases = Databases::open(settings, path, plan.databases()).map_err(text)?;
    for connection in databases.all() {
        let read: Result<i64, _> =
            connection.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0));
        read.map_err(|error| format!("recovery: {error}"))?;
    }
    let ms = begun.elapsed().as_secs_f64() * 1e3;
    let found = plan.check(&databases).map_err(text)?;
    if !found.is_ok() {
        return Err(format!(
            "recovery in {} left something else than what was committed: {}; {}",
            settings.mode, found.content, found.integrity_check
        ));
    }
    databases.close().map_err(text)?;
    Ok(ms)
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

fn what_there_was(lab: &mut Lab<'_>, row: &Row) -> Result<Checked, String> {
    let one = APPLICATIONS.iter().find(|one| one.name == row.quantity);
    let one = one.ok_or("no such application")?;
    let mode = MODES.iter().find(|(name, _)| *name == row.name);
    let (_, mode) = *mode.ok_or("no such mode")?;
    let (wal, other) = (crash(lab, one.op, "wal")?, crash(lab, one.op, mode)?);
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
