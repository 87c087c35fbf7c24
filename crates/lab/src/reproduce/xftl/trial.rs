//! One run: a device, its file system, a workload, and the device's work meanwhile.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use onewrite_workload::connection::Settings;
use onewrite_workload::databases::{Databases, paths};
use onewrite_workload::mode::{Mode, Synchronous};
use onewrite_workload::plan::{Op, Order, Plan};
use onewrite_workload::team::{self, Control};
use rusqlite::Connection;
use serde::Serialize;
use serde_json::Value;

use super::conditions::Conditions;
use super::controllers::Controller;
use super::cycles::{Checkpoints, Lengths, Logs, Workload, copy};
use super::places;
use super::random::{Job, Said};
use super::rl;
use super::test_device::{Below, TestDevice};
use super::validity::{self, Sought};
use onewrite_cli::interrupt;
use onewrite_iotrace::sectors_of;

/// Frames of a WAL after which SQLite checkpoints it by default.
pub const AUTOCHECKPOINT: u32 = 1_000;

/// A system to compare.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// The paper's name.
    pub name: &'static str,
    /// SQLite's journal mode; empty without SQLite.
    pub journal: &'static str,
    pub below: Below,
    pub counter: Counter,
}

/// The change counter in a database's first page, in mode `xftl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// It stays in the device's memory: ours, not the paper's.
    Lazy,
    /// It is written with each commit, as any page: the paper's.
    Written,
}

impl Compared {
    pub const fn new(name: &'static str, journal: &'static str, below: Below) -> Self {
        Self {
            name,
            journal,
            below,
            counter: Counter::Lazy,
        }
    }
}

/// SQLite's modes.
pub const SQLITE: [Compared; 3] = [
    Compared::new("rollback journal", "delete", Below::Ext4),
    Compared::new("WAL", "wal", Below::Ext4),
    Compared::new("X-FTL", "xftl", Below::Files),
];

/// The name of X-FTL as in its paper.
pub const WRITTEN: &str = "X-FTL, counter written";

/// X-FTL as in its paper: the change counter is written with each commit.
pub const COUNTER_WRITTEN: Compared = Compared {
    counter: Counter::Written,
    ..Compared::new(WRITTEN, "xftl", Below::Files)
};

/// WAL on other file systems: what these bring is not what the FTL brings.
pub const OTHERS: [Compared; 3] = [
    Compared::new("WAL, lazytime", "wal", Below::Ext4Lazytime),
    Compared::new("WAL, no journal", "wal", Below::Ext4NoJournal),
    Compared::new(
        "WAL, transactional files",
        "wal:locking_mode=exclusive",
        Below::Files,
    ),
];

/// The work of a run.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Transactions of an operation, with this many updates if the operation varies them.
    Plan { op: Op, updates: u32 },
    /// RL Benchmark's statements.
    Rl,
    /// fio's pages anywhere in a file of each job, with an fsync after every `every` pages.
    Random { every: u32, jobs: u32 },
}

/// The size of a device, and how full it is. This decides what a map costs, and how many valid pages
/// garbage collection finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Fullness {
    /// MiB for the host.
    pub host_mib: u32,
    /// The spare share of the NAND, at least: a small device needs more for itself.
    pub spare_percent: u32,
    pub fill: Fill,
}

/// How full a device is before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// This percentage of the host's pages hold something.
    Percent(u32),
    /// As full as it takes for this percentage of valid pages in the blocks that garbage collection
    /// empties during the run.
    Validity(u32),
}

impl Fullness {
    /// The name in tables.
    pub fn name(self) -> String {
        let fill = match self.fill {
            Fill::Percent(percent) => format!("{percent} % full"),
            Fill::Validity(percent) => format!("{percent} % valid at GC"),
        };
        format!(
            "{} MiB, {} % spare, {fill}",
            self.host_mib, self.spare_percent
        )
    }
}

/// A run without its mode.
#[derive(Clone, Debug)]
pub struct Trial {
    pub figure: &'static str,
    pub workload: String,
    pub work: Work,
    pub controller: Controller,
    pub fullness: Fullness,
    pub conditions: Conditions,
    /// Transactions before the measured part.
    pub warm_up: u32,
    /// The number of measured transactions.
    pub count: u32,
    pub seed: u64,
}

/// The measured part of a run.
pub struct Measured {
    /// The device's reports before and after it.
    pub before: Value,
    pub after: Value,
    /// Transactions.
    pub count: u32,
    /// Checkpoints of logs; `None` in modes without a log.
    pub checkpoints: Option<Checkpoints>,
    /// fio's own counts; `None` without fio.
    pub fio: Option<Said>,
}

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Ran {
    pub figure: &'static str,
    pub mode: &'static str,
    pub workload: String,
    pub controller: Controller,
    pub fullness: Fullness,
    /// The percentage of the host's pages that held something before the run.
    pub full_percent: u32,
    /// The validity that it was filled for.
    pub sought: Option<Sought>,
    /// Pages that a transaction updates; 0 if the workload decides.
    pub updates: u32,
    /// Pages of the database; 0 without SQLite.
    pub database_pages: u64,
    /// The percentage of them that lie across two pages of the device; null without ext4.
    pub across_percent: Option<f64>,
    pub seed: u64,
    /// Transactions; written pages if there is no SQLite.
    pub transactions: u32,
    /// Checkpoints of the WAL; null in other modes.
    pub checkpoints: Option<Checkpoints>,
    /// fio's own counts; null without fio.
    pub fio: Option<Said>,
    /// Jobs of fio; 0 without fio.
    pub jobs: u32,
    /// Seconds of the device's own time.
    pub seconds: f64,
    pub ms_per_transaction: f64,
    pub host_writes: u64,
    pub host_reads: u64,
    pub flushes: u64,
    pub commits: u64,
    pub programs: u64,
    pub gc_copies: u64,
    /// Of those: pages copied while the device waited for a program in any case.
    pub gc_ahead: u64,
    pub gc_blocks: u64,
    pub erases: u64,
    /// Blocks that its pages used up. These are the erases, except for blocks that were open at an end
    /// of the run: they count by the pages programmed in the run.
    pub used_blocks: f64,
    pub map_writes: u64,
    pub table_writes: u64,
    pub root_writes: u64,
    /// Pieces of the map read for entries that were not in memory.
    pub map_reads: u64,
    /// Pages that complete pairs.
    pub padding_writes: u64,
    /// Pages copied by wear levelling, because of bit errors, and out of blocks that failed.
    pub wear_copies: u64,
    pub scrub_copies: u64,
    pub failed_copies: u64,
    /// Valid pages of the blocks that garbage collection emptied, in percent; null if it emptied
    /// none.
    pub gc_validity: Option<f64>,
}

impl Ran {
    /// A count, for each transaction.
    pub fn each(&self, count: u64) -> f64 {
        count as f64 / f64::from(self.transactions.max(1))
    }

    /// Whether a run is of X-FTL, in either way.
    pub fn is_xftl(&self) -> bool {
        self.mode == "X-FTL" || self.mode == WRITTEN
    }

    /// Whether its transactions are of partsupply, the slides' synthetic workload.
    pub fn is_partsupply(&self) -> bool {
        self.workload.starts_with("partsupply")
    }

    /// Whether it may be compared: it has the validity that was wanted, if one was.
    pub fn is_comparable(&self) -> bool {
        self.sought.is_none_or(|sought| sought.is_reached)
    }

    /// Whether another run has the same workload on the same device, whatever its mode and seed.
    pub fn is_on_device_of(&self, other: &Self) -> bool {
        other.figure == self.figure
            && other.workload == self.workload
            && other.fullness == self.fullness
            && other.controller == self.controller
    }

    /// Whether another run has also the same seed, and another mode.
    pub fn is_counterpart(&self, other: &Self) -> bool {
        self.is_on_device_of(other) && other.seed == self.seed && other.mode != self.mode
    }
}

pub fn settings(journal: &str) -> Result<Settings, String> {
    Ok(Settings {
        mode: Mode::parse(journal).map_err(|error| error.to_string())?,
        synchronous: Synchronous::Full,
        autocheckpoint: AUTOCHECKPOINT,
    })
}

/// This many measured transactions, after those of the warm-up.
pub fn plan(op: Op, warm_up: u32, measured: u32, updates: u32, seed: u64) -> Plan {
    Plan {
        op,
        count: warm_up + measured,
        warm_up,
        record_size: 100,
        updates,
        warehouses: 1,
        order: Order::Random,
        seed,
        workers: 1,
        readers: 0,
        rate: None,
    }
}

/// Makes empty databases of the device's page size.
pub fn page_size(path: &Path, databases: usize, page_bytes: u64) -> Result<(), String> {
    let open = |path: &Path| -> rusqlite::Result<()> {
        let connection = Connection::open(path)?;
        connection.execute_batch(&format!("PRAGMA page_size={page_bytes}; VACUUM;"))
    };
    paths(path, databases).try_for_each(|path| {
        open(&path).map_err(|error| format!("cannot make the database: {error}"))
    })
}

/// Sets SQLite's cache, of all files. By default it holds everything, because transactional files
/// have no page cache below.
pub fn set_cache(databases: &Databases, files: usize, mib: u32) -> Result<(), String> {
    let set = databases.set_cache_kib((mib << 10) / files as u32);
    set.map_err(|error| error.to_string())
}

/// Makes a file of `bytes` bytes, in transactions of a MiB. X-FTL's table bounds them.
pub fn write_file(path: &Path, bytes: u64) -> Result<(), String> {
    let failed = |error: std::io::Error| onewrite_cli::directory::cannot_write(path, &error);
    let mut file = std::fs::File::create(path).map_err(failed)?;
    for _ in 0..bytes >> 20 {
        std::io::Write::write_all(&mut file, &vec![0xAA; 1 << 20]).map_err(failed)?;
        file.sync_all().map_err(failed)?;
    }
    Ok(())
}

/// A number of a report; 0 if it is missing.
pub fn number(report: &Value, pointer: &str) -> u64 {
    report.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

/// See [`Ran::used_blocks`]. A block is erased when it is opened, for all of its pages.
fn used_blocks(before: &Value, after: &Value) -> f64 {
    let of = |report: &Value| {
        let [erases, open, programmed, pages] = [
            "/nand/erases",
            "/wear/open_blocks",
            "/wear/open_pages",
            "/pages_per_block",
        ]
        .map(|pointer| number(report, pointer) as f64);
        erases - open + programmed / pages.max(1.0)
    };
    of(after) - of(before)
}

impl Trial {
    /// With a measured part of whole checkpoint cycles.
    pub fn in_whole_cycles(mut self, lengths: &mut Lengths) -> Result<Self, String> {
        if let Work::Plan { op, updates } = self.work {
            let length = lengths.of(Workload {
                op,
                updates,
                asked: self.count,
                seed: self.seed,
                page_bytes: self.controller.page_bytes(),
                warm_up: self.conditions.warm_up,
                cache_mib: self.conditions.cache_size,
            })?;
            (self.warm_up, self.count) = (length.warm_up, length.measured);
        }
        Ok(self)
    }

    /// Runs the trial in a mode. `known` are the runs of that mode, on this device, that a search
    /// for a validity has made; it adds its own.
    pub fn run(&self, mode: Compared, known: &mut Vec<Ran>) -> Result<Ran, String> {
        match self.fullness.fill {
            Fill::Percent(percent) => self.run_filled(mode, percent),
            Fill::Validity(wanted) => {
                let ran = validity::seek(wanted, known, |percent| self.run_filled(mode, percent))?;
                // It may be a run that was made for another validity.
                Ok(Ran {
                    fullness: self.fullness,
                    ..ran
                })
            }
        }
    }

    fn run_filled(&self, mode: Compared, full_percent: u32) -> Result<Ran, String> {
        if interrupt::is_requested() {
            return Err("interrupted".to_owned());
        }
        eprintln!(
            "onewrite: {}, {}, {}, {}, filled to {full_percent} %, {}",
            self.figure,
            self.workload,
            self.controller.name(),
            self.fullness.name(),
            mode.name
        );
        let Fullness {
            host_mib,
            spare_percent,
            ..
        } = self.fullness;
        let shape = self.controller.shape(host_mib, spare_percent)?;
        let mut device = TestDevice::start(self.controller, &shape, mode.below)?;
        if mode.counter == Counter::Written {
            device.order("lazy off")?;
        }
        let database = device.root().join("test.db");
        let page_bytes = self.controller.page_bytes();
        let measured = match self.work {
            Work::Plan { op, updates } => {
                self.run_plan(&mut device, mode, full_percent, op, updates)?
            }
            Work::Rl => {
                page_size(&database, 1, page_bytes)?;
                self.occupy(&mut device, full_percent)?;
                rl::run(
                    &mut device,
                    mode.journal,
                    self.seed,
                    self.conditions.cache_size,
                )?
            }
            Work::Random { every, jobs } => {
                let job = Job {
                    every,
                    jobs,
                    pages: self.count,
                    file_mib: self.conditions.file_size,
                    seed: self.seed,
                    page_bytes,
                };
                job.lay_out(device.root())?;
                self.occupy(&mut device, full_percent)?;
                job.run(&mut device, mode)?
            }
        };
        let bytes = std::fs::metadata(&database).map_or(0, |found| found.len());
        let is_on_ext4 = mode.below != Below::Files;
        let sectors = (bytes > 0 && is_on_ext4).then(|| sectors_of(&database));
        let across_percent = match sectors {
            Some(sectors) => {
                let sectors =
                    sectors.map_err(|error| format!("FIEMAP of the database: {error}"))?;
                places::across(&sectors, page_bytes)
            }
            None => None,
        };
        device.end()?;
        Ok(Ran {
            database_pages: bytes / page_bytes,
            across_percent,
            full_percent,
            ..self.ran(mode, &measured)
        })
    }

    /// Makes the device one that was in use.
    fn occupy(&self, device: &mut TestDevice, full_percent: u32) -> Result<(), String> {
        device.use_up(full_percent, self.seed, self.conditions.precondition)
    }

    fn run_plan(
        &self,
        device: &mut TestDevice,
        mode: Compared,
        full_percent: u32,
        op: Op,
        updates: u32,
    ) -> Result<Measured, String> {
        let text = |error: onewrite_workload::Error| error.to_string();
        let stop = AtomicBool::new(false);
        let path = device.root().join("test.db");
        let files = op.databases();
        page_size(&path, files, self.controller.page_bytes())?;
        let plan = plan(op, self.warm_up, self.count, updates, self.seed);
        let mut databases =
            Databases::open(&settings(mode.journal)?, &path, files).map_err(text)?;
        set_cache(&databases, files, self.conditions.cache_size)?;
        plan.populate(&mut databases, &stop).map_err(text)?;
        let mut seats = vec![databases];
        self.occupy(device, full_percent)?;
        let control = Control::default();
        team::warm_up(&plan, &mut seats[0], &control, &stop).map_err(text)?;
        let logs = Logs::begin(mode.journal, &path, files, &seats[0])?;
        let before = device.report()?;
        team::run(&plan, 0, &mut seats, &control, &stop, || Ok(())).map_err(text)?;
        logs.iter().try_for_each(|_| copy(&seats[0]))?;
        let after = device.report()?;
        let checkpoints = logs.map(|logs| logs.checkpoints()).transpose()?;
        for databases in seats {
            let checked = plan.check(&databases).map_err(text)?;
            if !checked.is_ok() {
                return Err(format!(
                    "{}: the database does not hold what it must: {checked:?}",
                    mode.name
                ));
            }
            databases.close().map_err(text)?;
        }
        Ok(Measured {
            before,
            after,
            count: self.count,
            checkpoints,
            fio: None,
        })
    }

    fn ran(&self, mode: Compared, measured: &Measured) -> Ran {
        let Measured {
            before,
            after,
            count,
            checkpoints,
            fio,
        } = measured;
        let count = *count;
        let of = |pointer: &str| number(after, pointer) - number(before, pointer);
        let seconds = of("/now_ns") as f64 / 1e9;
        let (gc_copies, gc_blocks) = (of("/statistics/gc_copies"), of("/statistics/gc_blocks"));
        let pages = number(after, "/pages_per_block").max(1);
        Ran {
            figure: self.figure,
            mode: mode.name,
            workload: self.workload.clone(),
            controller: self.controller,
            fullness: self.fullness,
            full_percent: 0,
            sought: None,
            updates: match self.work {
                Work::Plan { updates, .. } => updates,
                Work::Rl | Work::Random { .. } => 0,
            },
            database_pages: 0,
            across_percent: None,
            seed: self.seed,
            transactions: count,
            checkpoints: *checkpoints,
            fio: *fio,
            jobs: match self.work {
                Work::Random { jobs, .. } => jobs,
                Work::Plan { .. } | Work::Rl => 0,
            },
            seconds,
            ms_per_transaction: seconds * 1e3 / f64::from(count.max(1)),
            host_writes: of("/statistics/host_writes"),
            host_reads: of("/statistics/host_reads"),
            flushes: of("/statistics/flushes"),
            commits: of("/statistics/commits"),
            programs: of("/nand/programs"),
            gc_copies,
            gc_ahead: of("/statistics/gc_ahead"),
            gc_blocks,
            erases: of("/nand/erases"),
            used_blocks: used_blocks(before, after),
            map_writes: of("/statistics/map_writes"),
            table_writes: of("/statistics/table_writes"),
            root_writes: of("/statistics/root_writes"),
            map_reads: of("/statistics/map_reads"),
            padding_writes: of("/statistics/padding_writes"),
            wear_copies: of("/statistics/wear_copies"),
            scrub_copies: of("/statistics/scrub_copies"),
            failed_copies: of("/statistics/failed_copies"),
            gc_validity: (gc_blocks > 0)
                .then(|| gc_copies as f64 * 100.0 / (gc_blocks * pages) as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Between two reports a block is filled whose half was there before, and one is opened and half
    /// filled.
    #[test]
    fn a_block_that_is_open_at_an_end_counts_by_its_part() {
        let report = |erases: u64, open_blocks: u64, open_pages: u64| {
            json!({
                "pages_per_block": 100,
                "nand": { "erases": erases },
                "wear": { "open_blocks": open_blocks, "open_pages": open_pages },
            })
        };
        let used = |before: &Value, after: &Value| used_blocks(before, after);
        let half = report(10, 1, 50);
        assert_eq!(used(&half, &report(11, 1, 50)), 1.0);
        // No erase, and half a block of pages.
        assert_eq!(used(&half, &report(10, 0, 0)), 0.5);
        // One erase, and a page.
        assert!((used(&half, &report(11, 2, 51)) - 0.01).abs() < 1e-9);
    }
}
