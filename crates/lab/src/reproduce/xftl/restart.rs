//! Restart after a power cut: from flash up to SQLite's first row.

use std::sync::atomic::AtomicBool;

use onewrite_common::random::SplitMix64;
use onewrite_workload::databases::Databases;
use onewrite_workload::plan::{Op, Plan};
use onewrite_workload::team::{self, Control};
use serde::Serialize;
use serde_json::Value;

use super::conditions::Conditions;
use super::controllers::Controller;
use super::test_device::TestDevice;
use super::trial::{
    Compared, Fill, Fullness, OTHERS, SQLITE, number, page_size, plan, set_cache, settings,
};

/// The modes, with the paper's restart times in ms.
pub const MODES: [(Compared, Option<f64>); 4] = [
    (SQLITE[0], Some(20.1)),
    (SQLITE[1], Some(153.0)),
    (SQLITE[2], Some(3.5)),
    // X-FTL's file system without its transactions.
    (OTHERS[2], None),
];

/// The times of a restart.
#[derive(Clone, Debug, Serialize)]
pub struct Restarted {
    pub mode: &'static str,
    pub controller: Controller,
    pub fullness: Fullness,
    /// Whether it was in use; a new device otherwise, on which only the workload has pages.
    pub in_use: bool,
    /// The NAND operation in which the power went, counted from the first transaction.
    pub cut: u64,
    /// The NAND operations of the whole run, and its transactions.
    pub operations: u64,
    pub transactions: u32,
    /// The FTL's time, from flash.
    pub ftl_ms: f64,
    /// The part of it for the X-L2P table.
    pub table_ms: f64,
    /// Mounting the file system.
    pub mount_ms: f64,
    /// SQLite's time, to its first rows.
    pub sqlite_ms: f64,
    pub paper_ms: Option<f64>,
    /// Pages read from the NAND and programmed since SQLite opened the database.
    pub sqlite_reads: u64,
    pub sqlite_programs: u64,
    /// The time of one of each, if nothing else works meanwhile.
    pub read_ms: f64,
    pub program_ms: f64,
}

impl Restarted {
    /// All but the FTL's own part.
    pub fn ms(&self) -> f64 {
        self.table_ms + self.mount_ms + self.sqlite_ms
    }

    /// All of it, from flash to the first row.
    pub fn whole_ms(&self) -> f64 {
        self.ftl_ms + self.mount_ms + self.sqlite_ms
    }

    /// The time of SQLite's reads and programs, one after the other.
    pub fn sqlite_work_ms(&self) -> f64 {
        self.sqlite_reads as f64 * self.read_ms + self.sqlite_programs as f64 * self.program_ms
    }
}

/// The restarts of one mode on one device.
pub struct Group<'a> {
    pub mode: &'static str,
    pub controller: Controller,
    pub fullness: Fullness,
    /// Sorted by SQLite's time.
    sorted: Vec<&'a Restarted>,
}

impl<'a> Group<'a> {
    /// Whether both are of the same device.
    pub fn is_on_device_of(&self, other: &Group<'_>) -> bool {
        (self.controller, self.fullness) == (other.controller, other.fullness)
    }

    /// The restart with the median of SQLite's time.
    pub fn median(&self) -> Option<&'a Restarted> {
        onewrite_common::middle(&self.sorted).copied()
    }

    pub fn cuts(&self) -> usize {
        self.sorted.len()
    }

    /// The NAND operations in which the power went, in the order of the run.
    pub fn places(&self) -> Vec<u64> {
        let mut places: Vec<u64> = self.sorted.iter().map(|one| one.cut).collect();
        places.sort_unstable();
        places
    }

    /// The largest factor between the median of SQLite's time and a single one.
    pub fn factor(&self) -> f64 {
        let (median, least, most) = self.spread(|one| one.sqlite_ms);
        (most / median).max(median / least)
    }

    /// The median, the least and the most of a time.
    pub fn spread(&self, time: fn(&Restarted) -> f64) -> (f64, f64, f64) {
        let mut times: Vec<f64> = self.sorted.iter().map(|one| time(one)).collect();
        times.sort_by(f64::total_cmp);
        let of = |time: Option<&f64>| time.copied().unwrap_or(f64::NAN);
        let median = onewrite_common::middle(&times);
        (of(median), of(times.first()), of(times.last()))
    }
}

/// Restarts by device and mode, in the order in which they were made.
pub fn groups(restarts: &[Restarted]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for one in restarts {
        let is_same = |group: &&mut Group<'_>| {
            let device = (group.controller, group.fullness);
            group.mode == one.mode && device == (one.controller, one.fullness)
        };
        match groups.iter_mut().find(is_same) {
            Some(group) => group.sorted.push(one),
            None => groups.push(Group {
                mode: one.mode,
                controller: one.controller,
                fullness: one.fullness,
                sorted: vec![one],
            }),
        }
    }
    for group in &mut groups {
        group
            .sorted
            .sort_by(|a, b| a.sqlite_ms.total_cmp(&b.sqlite_ms));
    }
    groups
}

/// Power cuts of each mode, unless the user sets the number.
pub const CUTS: u32 = 5;
/// Places to try for one cut. A run may have fewer operations than another, and then ends before it. A rollback journal does not exist all the time, and a cut that leaves
/// none to play back does not count.
pub const TRIES: u32 = 100;

/// A device, and the transactions on it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub controller: Controller,
    pub fullness: Fullness,
    pub conditions: Conditions,
    /// Whether the device was in use.
    pub in_use: bool,
    pub updates: u32,
    pub transactions: u32,
    pub cuts: u32,
    pub seed: u64,
}

/// The places of a run at which the power may go: one part of the run for each cut, and in it any
/// NAND operation, drawn from the seed.
pub struct Places {
    pub operations: u64,
    pub parts: u64,
    pub random: SplitMix64,
}

impl Places {
    pub fn draw(&mut self, part: u64) -> u64 {
        let begin = self.operations * part / self.parts;
        let end = self.operations * (part + 1) / self.parts;
        begin + self.random.below(end - begin)
    }
}

/// The restarts of a mode, each with something to recover.
pub fn restarts(
    case: Case,
    mode: Compared,
    paper_ms: Option<f64>,
) -> Result<Vec<Restarted>, String> {
    let mut places = Places {
        operations: operations(case, mode)?,
        parts: u64::from(case.cuts),
        random: SplitMix64::new(case.seed),
    };
    (0..places.parts)
        .map(|part| {
            let found = (0..TRIES).find_map(|_| {
                let cut = places.draw(part);
                restart_after(cut, places.operations, case, mode, paper_ms).transpose()
            });
            found.unwrap_or_else(|| Err(format!("{}: no cut has left a journal", mode.name)))
        })
        .collect()
}

fn integrity(databases: &Databases) -> rusqlite::Result<String> {
    let sql = "PRAGMA integrity_check";
    databases.first().query_row(sql, [], |row| row.get(0))
}

/// A device on which the transactions can begin.
struct Ready {
    device: TestDevice,
    plan: Plan,
    seats: Vec<Databases>,
}

fn ready(case: Case, mode: Compared) -> Result<Ready, String> {
    let Case {
        controller,
        fullness,
        conditions,
        in_use,
        updates,
        transactions,
        seed,
        ..
    } = case;
    let shape = controller.shape(fullness.host_mib, fullness.spare_percent)?;
    let mut device = TestDevice::start(controller, &shape, mode.below)?;
    let path = device.root().join("test.db");
    page_size(&path, 1, controller.page_bytes())?;
    let stop = AtomicBool::new(false);
    let plan = plan(
        Op::Partsupply,
        conditions.warm_up,
        transactions,
        updates,
        seed,
    );
    let text = |error: onewrite_workload::Error| error.to_string();
    let mut databases = Databases::open(&settings(mode.journal)?, &path, 1).map_err(text)?;
    set_cache(&databases, 1, conditions.cache_size)?;
    plan.populate(&mut databases, &stop).map_err(text)?;
    if let (true, Fill::Percent(percent)) = (in_use, fullness.fill) {
        device.use_up(percent, seed, conditions.precondition)?;
    }
    let mut seats = vec![databases];
    team::warm_up(&plan, &mut seats[0], &Control::default(), &stop).map_err(text)?;
    Ok(Ready {
        device,
        plan,
        seats,
    })
}

/// The NAND operations of all transactions.
fn operations(case: Case, mode: Compared) -> Result<u64, String> {
    eprintln!("onewrite: restart, {}, the whole run", mode.name);
    let Ready {
        mut device,
        plan,
        mut seats,
    } = ready(case, mode)?;
    let before = device.report()?;
    let (control, stop) = (Control::default(), AtomicBool::new(false));
    team::run(&plan, 0, &mut seats, &control, &stop, || Ok(()))
        .map_err(|error| error.to_string())?;
    let after = device.report()?;
    for databases in seats {
        databases.close().map_err(|error| error.to_string())?;
    }
    device.end()?;
    let of = |pointer: &str| number(&after, pointer) - number(&before, pointer);
    Ok(of("/nand/reads") + of("/nand/programs") + of("/nand/erases"))
}

/// A device after a cut, and when the power went, in nanoseconds of its time. `None` if this run
/// has fewer operations.
fn cut_off(cut: u64, case: Case, mode: Compared) -> Result<Option<(TestDevice, u64)>, String> {
    eprintln!(
        "onewrite: restart, {}, {} MiB, {}, cut {cut}",
        case.controller.name(),
        case.fullness.host_mib,
        mode.name
    );
    let Ready {
        mut device,
        plan,
        mut seats,
    } = ready(case, mode)?;
    device.order(&format!("cut {cut}"))?;
    let (control, stop) = (Control::default(), AtomicBool::new(false));
    let has_gone = team::run(&plan, 0, &mut seats, &control, &stop, || Ok(())).is_err();
    for databases in seats {
        // Nothing can be written any more, so the result does not matter.
        let _ = databases.close();
    }
    if !has_gone {
        return Ok(None);
    }
    let off = device.order("off")?;
    let off: u64 = off
        .parse()
        .map_err(|_| format!("off is answered by {off:?}"))?;
    let _ = device.unmount();
    Ok(Some((device, off)))
}

/// Runs transactions until the power goes in the middle of one, then everything from flash up to
/// the first rows. `None` if the power did not go, or left no rollback journal: SQLite syncs after
/// playing one back.
fn restart_after(
    cut: u64,
    operations: u64,
    case: Case,
    mode: Compared,
    paper_ms: Option<f64>,
) -> Result<Option<Restarted>, String> {
    let name = mode.name;
    let text = |error: onewrite_workload::Error| error.to_string();
    let Some((mut device, off)) = cut_off(cut, case, mode)? else {
        return Ok(None);
    };
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
    let work = |pointer: &str| number(&read, pointer) - number(&mounted, pointer);
    let timing = case.controller.timing()?;
    let transfer_ms = case.controller.page_bytes() as f64 / timing.transfer_mb_per_s / 1e3;
    let restarted = Restarted {
        mode: name,
        controller: case.controller,
        fullness: case.fullness,
        in_use: case.in_use,
        cut,
        operations,
        transactions: case.transactions,
        ftl_ms: ms(number(&on, "/recovery/nanoseconds")),
        table_ms: ms(number(&on, "/recovery/table_nanoseconds")),
        mount_ms: ms(mounted_ns.saturating_sub(opened)),
        sqlite_ms: ms(number(&read, "/now_ns") - mounted_ns),
        paper_ms,
        sqlite_reads: work("/nand/reads"),
        sqlite_programs: work("/nand/programs"),
        read_ms: timing.read_us / 1e3 + transfer_ms,
        program_ms: timing.program_us / 1e3 + transfer_ms,
    };
    let has_journal = mode.journal != "delete" || flushes(&read) > flushes(&mounted);
    Ok(has_journal.then_some(restarted))
}

#[cfg(test)]
mod tests {
    use super::super::recovered::tests::restarted;
    use super::*;

    #[test]
    fn restarts_are_grouped_by_device_and_mode_with_their_spread() {
        let one = |mode, host_mib, sqlite_ms| {
            let one = restarted(mode, sqlite_ms, None);
            let fullness = Fullness {
                host_mib,
                ..one.fullness
            };
            Restarted { fullness, ..one }
        };
        let all = [
            one("WAL", 128, 9.0),
            one("WAL", 128, 3.0),
            one("X-FTL", 128, 1.0),
            one("WAL", 512, 4.0),
            one("WAL", 128, 5.0),
        ];
        let groups = groups(&all);
        let names: Vec<_> = groups
            .iter()
            .map(|group| (group.mode, group.fullness.host_mib, group.cuts()))
            .collect();
        assert_eq!(names, [("WAL", 128, 3), ("X-FTL", 128, 1), ("WAL", 512, 1)]);
        assert_eq!(groups[0].median().map(|one| one.sqlite_ms), Some(5.0));
        assert_eq!(groups[0].places(), [3, 5, 9]);
        assert_eq!(groups[0].factor(), 9.0 / 5.0);
        // The table's part is in the FTL's, and counts once.
        assert_eq!(groups[0].spread(Restarted::whole_ms), (17.0, 15.0, 21.0));
        assert_eq!(groups[0].spread(Restarted::ms), (8.0, 6.0, 12.0));
    }

    #[test]
    fn every_part_of_the_run_has_a_cut_and_the_seed_says_where() {
        let drawn = |seed| {
            let mut places = Places {
                operations: 1_003,
                parts: 5,
                random: SplitMix64::new(seed),
            };
            (0..5)
                .map(|part| {
                    let cut = places.draw(part);
                    let range = 1_003 * part / 5..1_003 * (part + 1) / 5;
                    assert!(range.contains(&cut), "{cut} of {range:?}");
                    cut
                })
                .collect::<Vec<u64>>()
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }
}
