//! Rows inserted in a journal mode, as in WALDIO's figures 2, 11 and 12: one row a transaction.
//! Before that, the database, its table and its log are made, and everything has reached the
//! device.

use std::fs::{self, File};

use onewrite_workload::connection::{Checkpoint, Settings};
use onewrite_workload::databases::Databases;
use onewrite_workload::mode::{Mode, Synchronous};
use onewrite_workload::plan::{Op, Order, Plan};
use onewrite_workload::team::{self, Control};

use super::Traced;
use super::watch::{Over, Site};
use crate::interrupt;

/// Bytes of a row.
const RECORD: usize = 100;

/// Traces `count` inserts in each mode.
pub fn all(
    site: &Site,
    modes: &[Mode],
    count: u32,
    per: Option<u64>,
) -> Result<Vec<Traced>, String> {
    let of = |mode| one(site, mode, count, per).map_err(|error| format!("{mode}: {error}"));
    modes.iter().map(of).collect()
}

fn one(site: &Site, mode: &Mode, count: u32, per: Option<u64>) -> Result<Traced, String> {
    let dir = site.place.root.join("database");
    fs::create_dir(&dir).map_err(|error| format!("cannot create {}: {error}", dir.display()))?;
    let over = insert(site, mode, count, &dir);
    let removed = fs::remove_dir_all(&dir);
    let over = over?;
    removed.map_err(|error| format!("cannot remove {}: {error}", dir.display()))?;
    let rows = if count == 1 { "row" } else { "rows" };
    Ok(Traced {
        what: format!("{count} {rows} of {RECORD} bytes inserted"),
        mode: Some(mode.spec().to_owned()),
        per: per.or((count > 1).then_some(u64::from(count))),
        file_system: site.place.file_system.name(),
        device: site.place.device.name().to_owned(),
        recording: over.recording,
        from: over.from,
        to: over.to,
        ended: None,
    })
}

fn insert(site: &Site, mode: &Mode, count: u32, dir: &std::path::Path) -> Result<Over, String> {
    let mut begun = site.begin_settled()?;
    let settings = Settings {
        mode: mode.clone(),
        synchronous: Synchronous::Full,
        // A checkpoint is no part of a commit.
        autocheckpoint: 0,
    };
    let plan = Plan {
        op: Op::Insert,
        count,
        record_size: RECORD,
        updates: 1,
        order: Order::Id,
        seed: 1,
        workers: 1,
        readers: 0,
        rate: None,
        warehouses: 1,
        warm_up: 0,
    };
    let (path, stop) = (dir.join("test.db"), interrupt::requested());
    let mut seats = vec![Databases::open(&settings, &path, 1).map_err(text)?];
    if let Some(seat) = seats.first_mut() {
        plan.populate(seat, stop).map_err(text)?;
        seat.checkpoint(Checkpoint::Truncate).map_err(text)?;
        // One transaction, so that the log exists.
        let first = seat.first().execute_batch("PRAGMA user_version=1");
        first.map_err(|error| format!("first transaction: {error}"))?;
    }
    let open = File::open(dir).map_err(|error| format!("open {}: {error}", dir.display()))?;
    let gate = || {
        let again = begun.begin_again(&open);
        again.map_err(onewrite_workload::Error::Wrong)
    };
    team::run(&plan, 0, &mut seats, &Control::default(), stop, gate).map_err(text)?;
    let over = begun.end()?;
    for seat in seats {
        let found = plan.check(&seat).map_err(text)?;
        if !found.is_ok() {
            return Err(format!(
                "the rows are not what was inserted: {}",
                found.content
            ));
        }
        seat.close().map_err(text)?;
    }
    Ok(over)
}

fn text(error: onewrite_workload::Error) -> String {
    error.to_string()
}
