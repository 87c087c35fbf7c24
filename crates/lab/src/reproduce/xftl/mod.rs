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
//! options      the devices of a run; conditions: what comes before a run, SQLite's cache, fio's files
//! cycles       the length of a run that has whole checkpoint cycles
//! places       pages that lie across two of the device
//! validity     the fill at which a run collects blocks of a wanted validity
//! trial        one run; random: the program fio, rl: RL Benchmark's statements
//! restart      from flash up to SQLite's first row; recovered: the same next to the paper's; fsck
//! region       where a claim holds, fails, or is undecided
//! targets      targets, misses, and the counts that explain them; programs: erases; merits: slide 22's factors
//! text         tables; page: the same as a page; plots: pictures
//! test_device  a device and its mounted files
//! ```

mod conditions;
mod controllers;
mod cycles;
mod flush;
mod fsck;
mod merits;
mod nand;
mod options;
mod page;
mod places;
mod plots;
mod programs;
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
use conditions::Conditions;
use controllers::Controller;
use cycles::Lengths;
use onewrite_cli::interrupt;
use options::{SIZES, USUAL};
use restart::Restarted;
use trial::{
    AUTOCHECKPOINT, COUNTER_WRITTEN, Compared, Fill, Fullness, OTHERS, Ran, SQLITE, Trial, Work,
};

/// Transactions unless the user sets the number; the paper does not state its own. The number is
/// raised until the WAL has whole checkpoint cycles.
const TRANSACTIONS: u32 = 500;
/// MiB that TPC-C's database needs, unless the user sets them.
const TPCC_MIB: u32 = 260;
/// Figures of a quick run.
pub const QUICK: [&str; 3] = ["flush", "space", "restart"];
/// The user's options of `reproduce`.
pub struct Asked<'a> {
    /// Names of figures; all if none.
    pub figures: &'a [String],
    /// Transactions of each run on the board; see [`nand::Nand::longer`].
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

/// Figures that can be run.
pub const FIGURES: [(&str, &str); 10] = [
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
    ("fsck", "fio, power cuts, and ext4's fsck"),
];

/// The document of `--json`.
#[derive(Serialize)]
pub struct Report {
    version: u32,
    paper: &'static str,
    seed: u64,
    shape: String,
    conditions: Conditions,
    flushes: Vec<flush::Costs>,
    cells: Vec<space::Cell>,
    ran: Vec<Ran>,
    restarts: Vec<Restarted>,
    checks: Vec<fsck::Checked>,
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
        version: 10,
        paper: "xftl",
        seed: asked.seed,
        shape: asked.device.shape(),
        conditions: asked.device.conditions,
        flushes: Vec::new(),
        cells: Vec::new(),
        ran: Vec::new(),
        restarts: Vec::new(),
        checks: Vec::new(),
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

pub use options::Device;
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
            "fsck" => restart_devices(asked).len() * fsck::MODES.len(),
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
        "restart" => return run_restarts(asked, report, pace),
        "fsck" => return run_checks(asked, report, pace),
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

fn run_restarts(asked: &Asked<'_>, report: &mut Report, pace: &mut Pace) -> Result<(), String> {
    let updates = asked.device.updates();
    for (controller, fullness) in restart_devices(asked) {
        for (mode, paper) in restart::MODES {
            pace.next(asked.limit)?;
            let case = restart::Case {
                controller,
                fullness,
                conditions: asked.device.conditions,
                in_use: asked.device.in_use,
                updates,
                transactions: whole_cycles(asked, updates),
                cuts: asked.device.cuts,
                seed: asked.seed,
            };
            let restarts = restart::restarts(case, mode, paper)?;
            report.restarts.extend(restarts);
        }
    }
    Ok(())
}

fn run_checks(asked: &Asked<'_>, report: &mut Report, pace: &mut Pace) -> Result<(), String> {
    random::check_installed()?;
    let Conditions {
        precondition,
        file_size,
        ..
    } = asked.device.conditions;
    for (controller, fullness) in restart_devices(asked) {
        for mode in fsck::MODES {
            pace.next(asked.limit)?;
            let case = fsck::Case {
                controller,
                fullness,
                precondition,
                job: random::Job {
                    every: asked.device.updates(),
                    jobs: 1,
                    pages: fio_pages(asked.count.unwrap_or(TRANSACTIONS)),
                    file_mib: file_size,
                    seed: asked.seed,
                    page_bytes: controller.page_bytes(),
                },
                cuts: asked.device.cuts,
            };
            report.checks.extend(fsck::checks(case, mode)?);
        }
    }
    Ok(())
}

/// Pages that fio writes: its unit is pages instead of transactions, and ext4's journal must wrap
/// around several times.
fn fio_pages(count: u32) -> u32 {
    count * 8
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

/// The devices of the figures restart and fsck.
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
        "tpcc" => asked.device.each(&[TPCC_MIB]),
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
    sizes.into_iter().flat_map(on).collect()
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
        conditions: asked.device.conditions,
        warm_up: asked.device.conditions.warm_up,
        count: match figure {
            "fio" => fio_pages(count),
            _ => count,
        },
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        device: Device,
    }

    fn parsed(words: &[&str]) -> Result<Device, clap::Error> {
        Only::try_parse_from([&["x"], words].concat()).map(|only| only.device)
    }

    fn trials_of(figure: &'static str, words: &[&str]) -> Vec<Trial> {
        let device = parsed(words).expect("good words");
        let asked = Asked {
            figures: &[],
            count: None,
            device: &device,
            seed: 1,
            plots: None,
            limit: Limit::NONE,
        };
        trials(&asked, figure)
    }

    #[test]
    fn the_size_is_that_of_tpc_c_s_device_too() {
        let sizes = |words: &[&str]| -> Vec<u32> {
            let trials = trials_of("tpcc", words);
            trials.iter().map(|one| one.fullness.host_mib).collect()
        };
        assert_eq!(sizes(&[]), [260, 260], "both mixes");
        assert_eq!(sizes(&["--size", "300,512"]), [300, 300, 512, 512]);
    }

    #[test]
    fn conditions_reach_every_run_and_are_told() {
        let words = [
            "--warm-up",
            "0",
            "--precondition",
            "300",
            "--cache-size",
            "2",
            "--file-size",
            "48",
        ];
        let expected = Conditions {
            warm_up: 0,
            precondition: 300,
            cache_size: 2,
            file_size: 48,
        };
        for (figure, _) in FIGURES {
            for trial in trials_of(figure, &words) {
                assert_eq!(trial.conditions, expected, "{figure}");
                assert_eq!(trial.warm_up, 0, "{figure}");
            }
        }
        let shape = parsed(&words).expect("good words").shape();
        let told = "0 transactions of warm-up, 300 % of the NAND programmed before, SQLite's cache 2 MiB, fio's files 48 MiB";
        assert!(shape.ends_with(told), "{shape}");
        let usual = parsed(&[]).expect("no words");
        assert_eq!(usual.conditions, Conditions::USUAL);
        assert_eq!(usual.parts, controllers::Parts::NONE);
    }

    #[test]
    fn what_no_device_can_have_is_refused() {
        for words in [
            ["--warm-up", "-1"],
            ["--warm-up", "1000001"],
            ["--precondition", "10001"],
            ["--precondition", "1.5"],
            ["--cache-size", "0"],
            ["--file-size", "7"],
            ["--transfer-rate", "0"],
            ["--write-buffer", "0"],
            ["--map-interval", "63"],
            ["--wear-gap", "0"],
            ["--gc-ahead", "1025"],
        ] {
            assert!(parsed(&words).is_err(), "{words:?}");
        }
    }
}
