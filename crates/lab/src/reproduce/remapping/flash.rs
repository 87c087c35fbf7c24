//! Remapping on flash: the work of figure 4 on a file system on our FTL, and then a scan.
//!
//! Each mode has a new device, so that none works on the blocks of another. The figure counts the
//! NAND's work during the transactions and a checkpoint after them, with all that the file system
//! writes for them. Then it counts the extents of both files. At the end it reads the database from
//! start to end, with nothing of it in the page cache. All are counts. The paper has no such figure:
//! it expects fewer writes to save flash, and fragments of the log to cost time.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use onewrite_cli::device::flash::{Cost, FlashModel, USUAL_RATE, Work};
use onewrite_cli::place::{self, Place, Where};
use onewrite_cli::{directory, interrupt};
use onewrite_common::files::companion;
use onewrite_iotrace::device::BlockDevice;
use onewrite_workload::connection::{Checkpoint, Settings};
use onewrite_workload::databases::Databases;
use onewrite_workload::mode::{Mode, Synchronous};
use onewrite_workload::plan::{Op, Order, Plan};
use onewrite_workload::team::{self, Control};
use rustix::fs::{Advice, fadvise};

use super::{AUTOCHECKPOINT, COPY, EXCHANGE, FORWARD, RECORD_BYTES};
use crate::reproduce::experiment::{Experiment, Trial};
use crate::reproduce::outcome::{Kind, Row, Shown};

/// Transactions of a run.
const COUNT: u32 = 1_500;

/// The device, unless the user names one with `--device ftl`. It answers at once; counts are the
/// same.
const DEVICE: &str = "ftl:time=none";

/// How long the device may take to become idle.
const AT_MOST: Duration = Duration::from_secs(60);

const WORKS: [(&str, Op, Order); 3] = [
    ("inserts", Op::Insert, Order::Id),
    ("updates in order", Op::Update, Order::Id),
    ("updates at random", Op::Update, Order::Random),
];

const MODES: [&str; 4] = [COPY, EXCHANGE, FORWARD, super::REGION];

/// The effects of a run on the flash and on its files.
#[derive(Clone, Copy, Debug)]
struct Found {
    cost: Cost,
    count: u32,
    pages_per_block: u32,
    database_extents: usize,
    log_extents: usize,
    scan_requests: u64,
    scan_reads: u64,
}

/// A column of the figure: its name, its unit, and its value.
type Column = (&'static str, &'static str, fn(&Found) -> Option<f64>);

const COLUMNS: [Column; 9] = [
    ("host's pages a transaction", "pages", |found| {
        Some(found.cost.statistics.host_writes as f64 / f64::from(found.count))
    }),
    ("programs a transaction", "pages", |found| {
        Some(found.cost.programs_per_op)
    }),
    ("erases", "blocks", |found| {
        Some(found.cost.nand.erases as f64)
    }),
    ("programs for each of the host's pages", "", |found| {
        found.cost.write_amplification
    }),
    ("valid pages of a collected block", "of 1", |found| {
        let statistics = &found.cost.statistics;
        let pages = statistics.gc_blocks * u64::from(found.pages_per_block);
        (pages > 0).then(|| statistics.gc_copies as f64 / pages as f64)
    }),
    ("extents of the database", "", |found| {
        Some(found.database_extents as f64)
    }),
    ("extents of the log", "", |found| {
        Some(found.log_extents as f64)
    }),
    ("requests of a scan afterwards", "", |found| {
        Some(found.scan_requests as f64)
    }),
    ("NAND pages read by that scan", "pages", |found| {
        Some(found.scan_reads as f64)
    }),
];

/// All works in all modes.
pub fn flash(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    let model = match experiment.flash_model() {
        Some(model) => model,
        None => FlashModel::find(DEVICE).ok_or("no such device")??,
    };
    let count = experiment.choice().count.unwrap_or(COUNT);
    let warm_up = count.min(AUTOCHECKPOINT);
    let mut rows = Vec::new();
    for (work, op, order) in WORKS {
        let plan = Plan {
            warm_up,
            record_size: RECORD_BYTES as usize,
            order,
            // The plan includes the warm-up.
            ..experiment.plan(op, count + warm_up)
        };
        let mut copied = None;
        for mode in MODES {
            experiment.say(&format!("{mode} on flash: {work}"));
            let of = |error: String| format!("{work}, {mode}: {error}");
            let found = on_a_device(experiment, &model, &plan, mode).map_err(of)?;
            rows.extend(rows_of(work, mode, &found, copied.get_or_insert(found)));
        }
    }
    Ok(Shown::of(
        "flash",
        "what remapping does to NAND, to the files' extents and to a later scan",
        format!(
            "{count} transactions of one record of 8 KB each on a log that is reused, checkpoints of {AUTOCHECKPOINT} pages, \
             on XFS on a flash device of its own: {}; with the last checkpoint",
            model.description()
        ),
        rows,
        Vec::new(),
        vec![
            "the paper has no such figure; ratios are to the same log with checkpoints that copy"
                .to_owned(),
        ],
    ))
}

fn rows_of(work: &'static str, mode: &str, found: &Found, copied: &Found) -> Vec<Row> {
    let row = |(quantity, unit, value): Column| {
        let ours = value(found);
        let ratio = ours
            .zip(value(copied))
            .filter(|(_, copied)| *copied > 0.0)
            .map(|(ours, copied)| ours / copied);
        Row::new(work, quantity, unit, Kind::Counted)
            .ran(mode)
            .ours(ours)
            .ratio("copy", None, ratio)
            .judged()
    };
    COLUMNS.into_iter().map(row).collect()
}

/// Runs a plan on a new device, which is removed.
fn on_a_device(
    experiment: &Experiment<'_>,
    model: &FlashModel,
    plan: &Plan,
    mode: &str,
) -> Result<Found, String> {
    // All modes have the same device, with room for the largest region.
    let largest = Trial {
        op: plan.op,
        mode: super::REGION,
        count: plan.measured(),
        autocheckpoint: AUTOCHECKPOINT,
        repeats: 1,
        record_bytes: RECORD_BYTES,
        warm_up: plan.warm_up,
    };
    let place = Where::xfs_on_flash(model.clone());
    let place = place::choose(&place, largest.bytes(), experiment.progress())?;
    let found = measured(&place, plan, mode, model.pages_per_block());
    let removed = place.remove();
    let found = found?;
    removed.map(|()| found)
}

fn measured(place: &Place, plan: &Plan, mode: &str, pages_per_block: u32) -> Result<Found, String> {
    let dir = place.root().join("flash");
    fs::create_dir(&dir).map_err(|error| directory::explain(&dir, &error))?;
    let path = dir.join("test.db");
    let settings = Settings {
        mode: Mode::parse(mode).map_err(|error| error.to_string())?,
        synchronous: Synchronous::Full,
        autocheckpoint: AUTOCHECKPOINT,
    };
    let (stop, control) = (interrupt::requested(), Control::default());
    let mut databases = Databases::open(&settings, &path, plan.databases()).map_err(text)?;
    plan.populate(&mut databases, stop).map_err(text)?;
    databases.checkpoint(Checkpoint::Truncate).map_err(text)?;
    team::warm_up(plan, &mut databases, &control, stop).map_err(text)?;
    let before = settled(place, &dir)?;
    let mut seats = [databases];
    team::run(plan, 0, &mut seats, &control, stop, || Ok(())).map_err(text)?;
    let [databases] = seats;
    databases.checkpoint(Checkpoint::Full).map_err(text)?;
    let after = settled(place, &dir)?;
    let extents = |path: &Path| {
        let extents = onewrite_iotrace::extents_of(path);
        extents.map_err(|error| directory::explain(path, &error))
    };
    let (database_extents, log_extents) =
        (extents(&path)?, extents(&companion(&path, "-onewrite"))?);
    databases.close().map_err(text)?;
    let (scan_requests, scan_reads) = scanned(place, &path)?;
    let stock = Databases::open_stock(&path, plan.databases()).map_err(text)?;
    let checked = plan.check(&stock).map_err(text)?;
    if !checked.is_ok() {
        return Err(format!("{}; {}", checked.content, checked.integrity_check));
    }
    Ok(Found {
        cost: Cost::of(&before, &after, plan.measured(), USUAL_RATE),
        count: plan.measured(),
        pages_per_block,
        database_extents,
        log_extents,
        scan_requests,
        scan_reads,
    })
}

fn device(dir: &Path) -> Result<BlockDevice, String> {
    let device = BlockDevice::holding(dir).map_err(|error| error.to_string())?;
    device.ok_or_else(|| format!("{} is on no device", dir.display()))
}

/// The flash's work once everything is there, and no thread writes any more.
fn settled(place: &Place, dir: &Path) -> Result<Work, String> {
    let idle = || {
        device(dir)?
            .wait_idle(AT_MOST)
            .map_err(|error| error.to_string())
    };
    idle()?;
    let synced = File::open(dir).and_then(|dir| Ok(rustix::fs::syncfs(&dir)?));
    synced.map_err(|error| directory::explain(dir, &error))?;
    idle()?;
    place
        .flash_work()?
        .ok_or_else(|| "there is no flash".to_owned())
}

/// Reads a file from start to end, with nothing of it in the page cache: requests to the device, and
/// pages read by the NAND.
fn scanned(place: &Place, path: &Path) -> Result<(u64, u64), String> {
    let failed = |error: std::io::Error| directory::explain(path, &error);
    let mut file = File::open(path).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    let dropped = fadvise(&file, 0, None, Advice::DontNeed);
    dropped.map_err(|error| failed(error.into()))?;
    let device = device(path)?;
    let counters = || device.counters().map_err(|error| error.to_string());
    let work = || {
        place
            .flash_work()?
            .ok_or_else(|| "there is no flash".to_owned())
    };
    let (requests, before) = (counters()?, work()?);
    std::io::copy(&mut file, &mut std::io::sink()).map_err(failed)?;
    let requests = counters()?.since(requests).read_requests;
    let reads = Cost::of(&before, &work()?, 1, USUAL_RATE).nand.reads;
    Ok((requests, reads))
}

fn text(error: onewrite_workload::Error) -> String {
    error.to_string()
}
