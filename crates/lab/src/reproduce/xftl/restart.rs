//! Restart after a power cut: from flash up to SQLite's first row.

use std::sync::atomic::AtomicBool;

use onewrite_workload::databases::Databases;
use onewrite_workload::plan::Op;
use onewrite_workload::team::{self, Control};
use serde::Serialize;
use serde_json::Value;

use super::controllers::{Controller, TABLE};
use super::test_device::TestDevice;
use super::trial::{Compared, number, page_size, plan, settings};

/// The paper's restart times, in ms, in the order of [`super::trial::SQLITE`].
pub const PAPER: [f64; 3] = [20.1, 153.0, 3.5];

/// The times of a restart.
#[derive(Clone, Debug, Serialize)]
pub struct Restarted {
    pub mode: &'static str,
    pub controller: Controller,
    /// The FTL's time, from flash.
    pub ftl_ms: f64,
    /// The part of it for the X-L2P table.
    pub table_ms: f64,
    /// Mounting the file system.
    pub mount_ms: f64,
    /// SQLite's time, to its first rows.
    pub sqlite_ms: f64,
    pub paper_ms: f64,
}

/// NAND operations until the power goes, unless another place is needed.
const CUT: u32 = 1_500;
/// Places a few operations further on. One of them is taken if a cut leaves no journal to play
/// back.
const PLACES: u32 = 12;

/// A restart with something to recover. A rollback journal does not exist all the time.
pub fn restart(
    controller: Controller,
    mode: Compared,
    updates: u32,
    seed: u64,
    paper_ms: f64,
) -> Result<Restarted, String> {
    let mut cuts = (CUT..).step_by(7).take(PLACES as usize);
    loop {
        let cut = cuts.next();
        let cut = cut.ok_or_else(|| format!("{}: no cut has left a journal", mode.name))?;
        let (restarted, is_played_back) =
            restart_after(cut, controller, mode, updates, seed, paper_ms)?;
        if is_played_back || mode.journal != "delete" {
            return Ok(restarted);
        }
    }
}

fn integrity(databases: &Databases) -> rusqlite::Result<String> {
    let sql = "PRAGMA integrity_check";
    databases.first().query_row(sql, [], |row| row.get(0))
}

/// Runs transactions until the power goes in the middle of one, then everything from flash up to
/// the first rows. Also returns whether SQLite has synced anything, as it does after playing a
/// journal back.
fn restart_after(
    cut: u32,
    controller: Controller,
    mode: Compared,
    updates: u32,
    seed: u64,
    paper_ms: f64,
) -> Result<(Restarted, bool), String> {
    eprintln!("onewrite: restart, {}, {}", controller.name(), mode.name);
    let name = mode.name;
    let shape = controller.shape(80, 30, TABLE)?;
    let mut device = TestDevice::start(controller, &shape, mode.below)?;
    let path = device.root().join("test.db");
    page_size(&path, 1)?;
    let stop = AtomicBool::new(false);
    let plan = plan(Op::Partsupply, 2_000, updates, seed);
    let text = |error: onewrite_workload::Error| error.to_string();
    let mut databases = Databases::open(&settings(mode.journal)?, &path, 1).map_err(text)?;
    databases.set_cache_kib(400 << 10).map_err(text)?;
    plan.populate(&mut databases, &stop).map_err(text)?;
    let mut seats = vec![databases];
    team::warm_up(&plan, &mut seats[0], &Control::default(), &stop).map_err(text)?;
    device.order(&format!("cut {cut}"))?;
    let control = Control::default();
    if team::run(&plan, 0, &mut seats, &control, &stop, || Ok(())).is_ok() {
        return Err(format!("{name}: the power did not go"));
    }
    for databases in seats {
        // Nothing can be written any more, so the result does not matter.
        let _ = databases.close();
    }
    let off = device.order("off")?;
    let off: u64 = off
        .parse()
        .map_err(|_| format!("off is answered by {off:?}"))?;
    let _ = device.unmount();
    let on: Value =
        serde_json::from_str(&device.order("on")?).map_err(|error| error.to_string())?;
    let now = |device: &mut TestDevice| -> Result<(u64, u64), String> {
        let report = device.report()?;
        Ok((
            number(&report, "/now_ns"),
            number(&report, "/statistics/flushes"),
        ))
    };
    // The device's own process mounts transactional files; the kernel mounts ext4.
    let opened = off + number(&on, "/recovery/nanoseconds");
    device.mount(mode.below)?;
    let (mounted, flushes_before) = now(&mut device)?;
    let path = device.root().join("test.db");
    let databases = Databases::open(&settings(mode.journal)?, &path, 1).map_err(text)?;
    let first_query = || -> rusqlite::Result<i64> {
        let sql = "SELECT ps_availqty FROM partsupp LIMIT 1";
        databases.first().query_row(sql, [], |row| row.get(0))
    };
    let rows = first_query().map_err(|error| format!("{name} after the cut: {error}"))?;
    let (read, flushes) = now(&mut device)?;
    let found = integrity(&databases).map_err(|error| format!("{name} after the cut: {error}"))?;
    if found != "ok" || rows < 0 {
        return Err(format!("{name} after the cut: {found}"));
    }
    databases.close().map_err(text)?;
    device.end()?;
    let ms = |nanoseconds: u64| nanoseconds as f64 / 1e6;
    let restarted = Restarted {
        mode: name,
        controller,
        ftl_ms: ms(number(&on, "/recovery/nanoseconds")),
        table_ms: ms(number(&on, "/recovery/table_nanoseconds")),
        mount_ms: ms(mounted.saturating_sub(opened)),
        sqlite_ms: ms(read - mounted),
        paper_ms,
    };
    Ok((restarted, flushes > flushes_before))
}
