//! Restart after a power cut: from flash up to SQLite's first row.

use std::sync::atomic::AtomicBool;

use onewrite_flash::nand::timing::Timing;
use onewrite_workload::databases::Databases;
use onewrite_workload::plan::Op;
use onewrite_workload::team::{self, Control};
use serde::Serialize;
use serde_json::Value;

use super::controllers::{Controller, TABLE};
use super::test_device::TestDevice;
use super::trial::{Compared, Fullness, PAGE, number, page_size, plan, settings};

/// The paper's restart times, in ms, in the order of [`super::trial::SQLITE`].
pub const PAPER: [f64; 3] = [20.1, 153.0, 3.5];

/// The times of a restart.
#[derive(Clone, Debug, Serialize)]
pub struct Restarted {
    pub mode: &'static str,
    pub controller: Controller,
    pub fullness: Fullness,
    /// The FTL's time, from flash.
    pub ftl_ms: f64,
    /// The part of it for the X-L2P table.
    pub table_ms: f64,
    /// Mounting the file system.
    pub mount_ms: f64,
    /// SQLite's time, to its first rows.
    pub sqlite_ms: f64,
    pub paper_ms: f64,
    /// Pages read from the NAND since the FTL was there, and programmed.
    pub reads: u64,
    pub programs: u64,
    /// The time of one of each, if nothing else works meanwhile.
    pub read_ms: f64,
    pub program_ms: f64,
}

impl Restarted {
    /// The paper's restart: all but the FTL's own part.
    pub fn ms(&self) -> f64 {
        self.table_ms + self.mount_ms + self.sqlite_ms
    }

    /// The time of the reads and programs, one after the other.
    pub fn work_ms(&self) -> f64 {
        self.reads as f64 * self.read_ms + self.programs as f64 * self.program_ms
    }
}

/// The NAND of [`Controller::shape`].
const NAND: &str = "openssd";
/// NAND operations until the power goes, unless another place is needed.
const CUT: u32 = 1_500;
/// Places a few operations further on. One of them is taken if a cut leaves no journal to play
/// back.
const PLACES: u32 = 12;

/// A restart with something to recover. A rollback journal does not exist all the time.
pub fn restart(
    controller: Controller,
    fullness: Fullness,
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
            restart_after(cut, controller, fullness, mode, updates, seed, paper_ms)?;
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
    fullness: Fullness,
    mode: Compared,
    updates: u32,
    seed: u64,
    paper_ms: f64,
) -> Result<(Restarted, bool), String> {
    eprintln!("onewrite: restart, {}, {}", controller.name(), mode.name);
    let name = mode.name;
    let shape = controller.shape(fullness.host_mib, fullness.spare_percent, TABLE)?;
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
    let flushes = |report: &Value| number(report, "/statistics/flushes");
    // The device's own process mounts transactional files; the kernel mounts ext4.
    let opened = off + number(&on, "/recovery/nanoseconds");
    device.mount(mode.below)?;
    let mounted = device.report()?;
    let path = device.root().join("test.db");
    let databases = Databases::open(&settings(mode.journal)?, &path, 1).map_err(text)?;
    let first_query = || -> rusqlite::Result<i64> {
        let sql = "SELECT ps_availqty FROM partsupp LIMIT 1";
        databases.first().query_row(sql, [], |row| row.get(0))
    };
    let rows = first_query().map_err(|error| format!("{name} after the cut: {error}"))?;
    let read = device.report()?;
    let found = integrity(&databases).map_err(|error| format!("{name} after the cut: {error}"))?;
    if found != "ok" || rows < 0 {
        return Err(format!("{name} after the cut: {found}"));
    }
    databases.close().map_err(text)?;
    device.end()?;
    let ms = |nanoseconds: u64| nanoseconds as f64 / 1e6;
    let mounted_ns = number(&mounted, "/now_ns");
    let work = |pointer: &str| number(&read, pointer) - number(&on, pointer);
    let timing = Timing::built_in(NAND).ok_or("no such NAND")?;
    let transfer_ms = PAGE as f64 / timing.transfer_mb_per_s / 1e3;
    let restarted = Restarted {
        mode: name,
        controller,
        fullness,
        ftl_ms: ms(number(&on, "/recovery/nanoseconds")),
        table_ms: ms(number(&on, "/recovery/table_nanoseconds")),
        mount_ms: ms(mounted_ns.saturating_sub(opened)),
        sqlite_ms: ms(number(&read, "/now_ns") - mounted_ns),
        paper_ms,
        reads: work("/nand/reads"),
        programs: work("/nand/programs"),
        read_ms: timing.read_us / 1e3 + transfer_ms,
        program_ms: timing.program_us / 1e3 + transfer_ms,
    };
    Ok((restarted, flushes(&read) > flushes(&mounted)))
}
