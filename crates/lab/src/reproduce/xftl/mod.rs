//! X-FTL's figures (SIGMOD '13), in the device's own virtual time.
//!
//! Rollback journal and WAL run on ext4 on the plain FTL. X-FTL runs on transactional files on the
//! same FTL. Each has a new device of the same shape. The results show the device's time and work
//! between two moments. The first is when the database is populated, warmed up and flushed; the
//! second is when the last transaction has been committed. The host's own time is left out.
//!
//! ```text
//! flush        what a flush costs, by size and FTL; space: size by FTL by file system
//! controllers  unknown settings of the board, every setting with its source; nand: chips
//! cycles       the length of a run that has whole checkpoint cycles
//! places       pages that lie across two of the device
//! validity     the fill at which a run collects blocks of a wanted validity
//! trial        one run; random: the program fio, rl: RL Benchmark's statements
//! restart      from flash up to SQLite's first row; recovered: the same next to the paper's
//! region       where a claim holds, fails, or is undecided
//! targets      targets, misses, and the counts that explain them; merits: slide 22's factors
//! text         tables; page: the same as a page; plots: pictures
//! test_device  a device and its mounted files
//! ```

mod controllers;
mod cycles;
mod flush;
mod merits;
mod nand;
mod page;
mod places;
mod plots;
mod random;
mod recovered;
mod region;
mod restart;
mod rl;
mod space;
mod targets;
mod test_device;
mod text;
mod trial;
mod validity;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use onewrite_workload::plan::Op;
use serde::Serialize;

use super::all::{Limit, left_of};
use super::outcome::Shown;
use super::{Failed, spoken};
use controllers::{BOARD, Controller, Ftl, Parts};
use cycles::Lengths;
use nand::Nand;
use onewrite_cli::interrupt;
use restart::Restarted;
use trial::{
    AUTOCHECKPOINT, COUNTER_WRITTEN, Compared, Fill, Fullness, OTHERS, Ran, SQLITE, Trial, WARM_UP,
    Work,
};

/// Transactions unless the user sets the number; the paper does not state its own. The number is
/// raised until the WAL has whole checkpoint cycles.
const TRANSACTIONS: u32 = 500;
/// Pages that a transaction updates, unless the user sets them: slide 23's picture of I/O activities
/// has this number. Slide 22 has 1 to 20, and does not say where its factors are from.
const UPDATES: u32 = 5;

/// The device of figures that do not vary it, unless the user sets it.
const USUAL: Fullness = Fullness {
    host_mib: 128,
    spare_percent: 30,
    fill: Fill::Percent(FILL),
};
/// Percent of the host's pages that hold something, unless the user sets it.
const FILL: u32 = 80;
/// MiB of a small device.
const SMALL_MIB: u32 = 96;
/// Figures of a quick run.
pub const QUICK: [&str; 3] = ["flush", "space", "restart"];
/// Sizes of the figure `space`, in MiB.
const SIZES: [u32; 3] = [128, 512, 2048];
/// From here on a run takes minutes.
const LARGE_MIB: u32 = 1_024;

/// The user's options of `reproduce`.
pub struct Asked<'a> {
    /// Names of figures; all if none.
    pub figures: &'a [String],
    /// Transactions of each run on the board; see [`Nand::longer`].
    pub count: Option<u32>,
    /// The devices.
    pub device: &'a Device,
    /// The seed of all values.
    pub seed: u64,
    /// The directory for pictures.
    pub plots: Option<&'a Path>,
    /// The time after which nothing more begins.
    pub limit: Limit,
}

/// The axes of a device. A figure that varies one of them ignores it.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Device {
    /// X-FTL's device: MiB for the host, of one or several [default: 128; of space 128,512,2048]
    #[arg(long, value_name = "MIB", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(80..=65536))]
    size: Vec<u32>,

    /// The same: percent of its NAND kept back, at least [default: 30]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=90))]
    spare: Option<u32>,

    /// The same: percent of its pages that hold something [default: 80]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    fill: Option<u32>,

    /// Of the figure activities: percent of valid pages in the blocks that garbage collection
    /// empties, the same in each mode, as measured [default: 30,45]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=95))]
    validity: Vec<u32>,

    /// Pages that a transaction of partsupply updates, in space, activities, controllers and restart;
    /// the figure updates has 1, 5, 10 and 20 [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20))]
    updates: Option<u32>,

    /// FTLs of the figures flush and space [default: all], and of restart [default: board]
    #[arg(long, value_enum, value_delimiter = ',')]
    ftl: Vec<Ftl>,

    /// NAND of all figures: the board's, or of today (docs/xftl.md) [default: board]
    #[arg(long, value_enum, value_delimiter = ',')]
    nand: Vec<Nand>,

    /// Of the figure space: seeds of a device near a claim's edge; others have one
    #[arg(long, value_name = "N", default_value_t = space::SEEDS, value_parser = clap::value_parser!(u32).range(1..=20))]
    seeds: u32,

    /// Of the figure fio: jobs at a time, each with a file of its own [default: 1,4]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=random::MOST_JOBS))]
    numjobs: Vec<u32>,

    #[command(flatten)]
    parts: Parts,

    /// Power cuts of each mode in the figure restart; the seed spreads them over the run
    #[arg(long, value_name = "N", default_value_t = restart::CUTS, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    cuts: u32,

    /// Sizes of the figure `space` alone, in MiB, if no size is given; [`SIZES`] if there are none.
    #[arg(skip)]
    space: Vec<u32>,
}

impl Device {
    /// Of the figure `space` only the sizes that take little time.
    pub fn without_large(&mut self) {
        self.space = SIZES.into_iter().filter(|size| *size < LARGE_MIB).collect();
    }

    /// One small device of two FTLs, unless the user names others, and one seed.
    pub fn small(&mut self) {
        self.seeds = 1;
        if self.size.is_empty() {
            self.size.push(SMALL_MIB);
        }
        if self.ftl.is_empty() {
            self.ftl = vec![Ftl::Board, Ftl::Journal];
        }
    }

    fn fullness(&self, host_mib: u32) -> Fullness {
        Fullness {
            host_mib,
            spare_percent: self.spare.unwrap_or(USUAL.spare_percent),
            fill: Fill::Percent(self.fill.unwrap_or(FILL)),
        }
    }

    /// The validities of the figure activities.
    fn validities(&self) -> &[u32] {
        match self.validity.is_empty() {
            true => &validity::WANTED,
            false => &self.validity,
        }
    }

    /// The FTLs that were asked for, or all.
    fn controllers(&self) -> Vec<Controller> {
        let all = match self.ftl.is_empty() {
            true => &Ftl::ALL[..],
            false => &self.ftl,
        };
        let ftls = all.iter().map(|ftl| ftl.controller());
        ftls.flat_map(|controller| self.on_each(controller))
            .collect()
    }

    /// The same setting on each NAND, with the parts that were asked for.
    fn on_each(&self, controller: Controller) -> Vec<Controller> {
        let nand = match self.nand.is_empty() {
            true => &[Nand::Board][..],
            false => &self.nand,
        };
        let on = |nand: &Nand| controller.on(*nand).with(self.parts);
        nand.iter().map(on).collect()
    }

    /// The numbers of fio's jobs.
    fn jobs(&self) -> &[u32] {
        match self.numjobs.is_empty() {
            true => &random::JOBS,
            false => &self.numjobs,
        }
    }

    fn updates(&self) -> u32 {
        self.updates.unwrap_or(UPDATES)
    }

    /// The FTLs of the figure restart.
    fn restarted(&self) -> Vec<Controller> {
        match self.ftl.is_empty() {
            true => self.boards(),
            false => self.controllers(),
        }
    }

    /// The devices, in words.
    fn shape(&self) -> String {
        let chips = self.boards().into_iter().map(|board| {
            let chips = board.nand.chips();
            format!(
                "pages of {} KiB, {} a block, NAND {}",
                chips.page_bytes >> 10,
                chips.pages_per_block,
                chips.timing
            )
        });
        let chips: Vec<String> = chips.collect();
        let entries = self.parts.table;
        format!("{}; {entries} entries of the X-L2P table", chips.join("; "))
    }

    fn boards(&self) -> Vec<Controller> {
        self.on_each(BOARD)
    }

    /// Of each size that was asked for, or of these.
    fn each(&self, usual: &[u32]) -> Vec<Fullness> {
        let sizes = if self.size.is_empty() {
            usual
        } else {
            &self.size
        };
        sizes.iter().map(|size| self.fullness(*size)).collect()
    }
}

/// Figures that can be run.
pub const FIGURES: [(&str, &str); 9] = [
    (
        "flush",
        "what a flush and a commit cost, by the device's size and by FTL (no root)",
    ),
    (
        "space",
        "partsupply: by size, FTL and file system, and where the paper's claims hold",
    ),
    (
        "updates",
        "partsupply: time by pages updated in a transaction, and whether one of them reaches the paper's 3.0 and 11.7",
    ),
    (
        "activities",
        "partsupply: what the device does, by how many pages of collected blocks are valid",
    ),
    (
        "controllers",
        "partsupply: by dies that work at a time, what a flush writes, where copies go, and ext4's clusters",
    ),
    (
        "android",
        "RL Benchmark, and shapes of Gmail, Facebook and a web browser",
    ),
    ("tpcc", "TPC-C and its read-intensive mix"),
    (
        "fio",
        "random writes by the program fio, an fsync every 1 to 20, on ext4 ordered and journaling data, and on X-FTL",
    ),
    (
        "restart",
        "restart after power cuts, with the FTL's own recovery",
    ),
];

/// The document of `--json`.
#[derive(Serialize)]
pub struct Report {
    version: u32,
    paper: &'static str,
    seed: u64,
    shape: String,
    flushes: Vec<flush::Costs>,
    cells: Vec<space::Cell>,
    ran: Vec<Ran>,
    restarts: Vec<Restarted>,
    pub figures: Vec<Shown>,
    /// Figures that could not be run, or were begun and not finished.
    pub failed: Vec<Failed>,
    pictures: Vec<String>,
}

/// The figures with these names, all if there are none; or those that there are.
pub fn chosen(names: &[String]) -> Result<Vec<&'static str>, String> {
    let known = FIGURES.map(|(name, _)| name);
    for name in names {
        if !known.contains(&name.as_str()) {
            return Err(format!(
                "xftl has no \"{name}\" here; there are {}",
                known.join(", ")
            ));
        }
    }
    let is_wanted = |name: &&str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    Ok(known.into_iter().filter(is_wanted).collect())
}

/// Runs the figures.
pub fn measure(asked: &Asked<'_>) -> Result<Report, String> {
    let figures = chosen(asked.figures)?;
    let takes_root = figures.iter().any(|name| *name != "flush");
    if takes_root && !rustix::process::geteuid().is_root() {
        return Err("X-FTL's figures take root: they are run on a device of our own".to_owned());
    }
    let mut report = Report {
        version: 9,
        paper: "xftl",
        seed: asked.seed,
        shape: asked.device.shape(),
        flushes: Vec::new(),
        cells: Vec::new(),
        ran: Vec::new(),
        restarts: Vec::new(),
        figures: Vec::new(),
        failed: Vec::new(),
        pictures: Vec::new(),
    };
    let mut pace = Pace::of(asked, &figures);
    let mut lengths = Lengths::default();
    for figure in figures {
        match run_figure(asked, figure, &mut report, &mut pace, &mut lengths) {
            Ok(()) => {}
            Err(error) if interrupt::is_requested() => return Err(error),
            Err(error) => report.failed.push(Failed { figure, error }),
        }
    }
    report.cells = space::cells(&report.ran);
    report.figures = targets::judge(&report.ran);
    report.figures.extend(recovered::restarts(&report.restarts));
    if let Some(dir) = asked.plots {
        report.pictures = plots::save(&report.ran, &report.restarts, dir)?;
    }
    Ok(report)
}

/// The tables.
pub fn text(report: &Report) -> String {
    text::text(report)
}

pub use page::page;

/// The runs so far, of all. A run takes about as long as another.
struct Pace {
    all: usize,
    done: usize,
    begun: Instant,
}

impl Pace {
    fn of(asked: &Asked<'_>, figures: &[&'static str]) -> Self {
        let runs = |figure: &&'static str| match *figure {
            "restart" => restart_devices(asked).len() * restart::MODES.len(),
            figure => trials(asked, figure).len() * modes(figure).len(),
        };
        Self {
            all: figures.iter().map(runs).sum(),
            done: 0,
            begun: Instant::now(),
        }
    }

    /// Another run begins, unless there is no time for it.
    fn next(&mut self, limit: Limit) -> Result<(), String> {
        if interrupt::is_requested() {
            return Err("interrupted".to_owned());
        }
        limit.check()?;
        if self.done > 0 {
            let left = left_of(self.begun.elapsed(), self.done, self.all);
            let (number, all) = (self.done + 1, self.all);
            eprintln!("onewrite: {number} of {all}, about {} left", spoken(left));
        }
        self.done += 1;
        Ok(())
    }
}

fn run_figure(
    asked: &Asked<'_>,
    figure: &'static str,
    report: &mut Report,
    pace: &mut Pace,
    lengths: &mut Lengths,
) -> Result<(), String> {
    match figure {
        "flush" => {
            asked.limit.check()?;
            report.flushes =
                flush::costs(&asked.device.size, &asked.device.controllers(), asked.seed)?;
            return Ok(());
        }
        "restart" => {
            let updates = asked.device.updates();
            for (controller, fullness) in restart_devices(asked) {
                for (mode, paper) in restart::MODES {
                    pace.next(asked.limit)?;
                    let case = restart::Case {
                        controller,
                        fullness,
                        updates,
                        transactions: whole_cycles(asked, updates),
                        cuts: asked.device.cuts,
                        seed: asked.seed,
                    };
                    report
                        .restarts
                        .extend(restart::restarts(case, mode, paper)?);
                }
            }
            return Ok(());
        }
        "fio" => random::check_installed()?,
        _ => {}
    }
    let mut known: BTreeMap<(&str, u32, String), Vec<Ran>> = BTreeMap::new();
    for trial in trials(asked, figure) {
        let trial = trial.in_whole_cycles(lengths)?;
        for mode in modes(figure) {
            pace.next(asked.limit)?;
            let host_mib = trial.fullness.host_mib;
            let device = (mode.name, host_mib, trial.controller.name());
            let known = known.entry(device).or_default();
            report.ran.push(trial.run(mode, known)?);
        }
    }
    match figure {
        "space" => more_seeds(asked, report, pace, lengths),
        _ => Ok(()),
    }
}

/// Runs the devices near a claim's edge again, each with other seeds.
fn more_seeds(
    asked: &Asked<'_>,
    report: &mut Report,
    pace: &mut Pace,
    lengths: &mut Lengths,
) -> Result<(), String> {
    let edges = space::at_an_edge(&space::cells(&report.ran));
    let is_edge = |trial: &Trial| {
        let device = (trial.fullness.host_mib, trial.controller);
        edges.contains(&device)
    };
    let trials = trials(asked, "space").into_iter().filter(is_edge);
    let seeds = asked.seed + 1..asked.seed + u64::from(asked.device.seeds);
    let trials = trials.flat_map(|trial| {
        let of = move |seed| Trial {
            seed,
            ..trial.clone()
        };
        seeds.clone().map(of).collect::<Vec<Trial>>()
    });
    let trials: Vec<Trial> = trials.collect();
    pace.all += trials.len() * space::JUDGED.len();
    for trial in trials {
        let trial = trial.in_whole_cycles(lengths)?;
        for mode in space::JUDGED {
            pace.next(asked.limit)?;
            report.ran.push(trial.run(mode, &mut Vec::new())?);
        }
    }
    Ok(())
}

/// The devices of the figure restart.
fn restart_devices(asked: &Asked<'_>) -> Vec<(Controller, Fullness)> {
    let sizes = asked.device.each(&[USUAL.host_mib]);
    let controllers = asked.device.restarted().into_iter();
    let devices = controllers.flat_map(|controller| {
        let on = move |fullness: &Fullness| (controller, *fullness);
        sizes.iter().map(on).collect::<Vec<_>>()
    });
    devices.collect()
}

/// Transactions of a run that is cut off: they fill the WAL a whole number of times.
fn whole_cycles(asked: &Asked<'_>, updates: u32) -> u32 {
    let count = asked.count.unwrap_or(TRANSACTIONS);
    count.next_multiple_of(AUTOCHECKPOINT / updates)
}

/// The systems that a figure compares.
fn modes(figure: &str) -> Vec<Compared> {
    match figure {
        "fio" => random::MODES.to_vec(),
        "updates" | "activities" => [&SQLITE[..], &[COUNTER_WRITTEN]].concat(),
        "space" => [&SQLITE[..], &[COUNTER_WRITTEN], &OTHERS].concat(),
        _ => SQLITE.to_vec(),
    }
}

/// The runs of a figure, on a device of each size. Each runs in every mode.
fn trials(asked: &Asked<'_>, figure: &'static str) -> Vec<Trial> {
    let sizes = match figure {
        "space" if asked.device.space.is_empty() => asked.device.each(&SIZES),
        "space" => asked.device.each(&asked.device.space),
        _ => asked.device.each(&[USUAL.host_mib]),
    };
    let controllers = match figure {
        "space" => asked.device.controllers(),
        _ => asked.device.boards(),
    };
    let on = |usual: Fullness| {
        let trials = |controller: &Controller| trials_on(asked, figure, usual, *controller);
        controllers.iter().flat_map(trials).collect::<Vec<Trial>>()
    };
    let trials = sizes.into_iter().flat_map(on);
    trials.map(Trial::with_room).collect()
}

fn trials_on(
    asked: &Asked<'_>,
    figure: &'static str,
    usual: Fullness,
    board: Controller,
) -> Vec<Trial> {
    let count = asked.count.unwrap_or(TRANSACTIONS) * board.nand.longer();
    let trial = |workload: String, work, controller: Controller, fullness| Trial {
        figure,
        workload,
        work,
        controller,
        fullness,
        warm_up: WARM_UP,
        // The unit is pages instead of transactions. ext4's journal must wrap around several times.
        count: if figure == "fio" { count * 8 } else { count },
        seed: asked.seed,
    };
    let partsupply = |updates, controller, fullness| {
        let op = Op::Partsupply;
        let name = format!("partsupply, {updates} pages");
        trial(name, Work::Plan { op, updates }, controller, fullness)
    };
    let set = asked.device.updates();
    let shape = |name: &str, op| {
        let work = Work::Plan { op, updates: 1 };
        trial(name.to_owned(), work, board, usual)
    };
    match figure {
        "space" => vec![partsupply(set, board, usual)],
        "updates" => [1, 5, 10, 20]
            .map(|updates| partsupply(updates, board, usual))
            .into(),
        "activities" => {
            let wanted = asked.device.validities().iter();
            wanted
                .map(|percent| {
                    let fullness = Fullness {
                        fill: Fill::Validity(*percent),
                        ..usual
                    };
                    partsupply(set, board, fullness)
                })
                .collect()
        }
        "controllers" => controllers::ALL
            .map(|setting| partsupply(set, setting.on(board.nand).with(board.parts), usual))
            .into(),
        "android" => vec![
            trial("RL Benchmark".to_owned(), Work::Rl, board, usual),
            shape("Gmail's shape (mail)", Op::Mail),
            shape("Facebook's shape (sns)", Op::Sns),
            shape("a web browser's shape (messenger)", Op::Messenger),
        ],
        "tpcc" => vec![
            shape("TPC-C", Op::Tpcc),
            shape("TPC-C, read-intensive", Op::TpccRead),
        ],
        "fio" => {
            let jobs = asked.device.jobs().iter();
            jobs.flat_map(|jobs| [1, 5, 10, 15, 20].map(|every| (*jobs, every)))
                .map(|(jobs, every)| {
                    let by = match jobs {
                        1 => String::new(),
                        jobs => format!(" by {jobs} jobs"),
                    };
                    let name = format!("random write{by}, fsync every {every}");
                    trial(name, Work::Random { every, jobs }, board, usual)
                })
                .collect()
        }
        _ => Vec::new(),
    }
}
