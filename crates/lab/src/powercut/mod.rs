//! `onewrite-lab powercut`: real file systems on a device that loses power.
//!
//! - [`test_device`] is a device with its worker process.
//! - [`round`] records a history on it, cuts it, and has the worker ([`worker`]) check every crash
//!   image.
//! - [`promise`] judges the findings.
//! - [`fua`] treats the device as one with FUA.
//! - [`case`] keeps failures.
//!
//! `docs/powercut.md` says which parts are real and which are modelled.

mod case;
mod fua;
mod promise;
mod protocol;
mod round;
mod test_device;
mod trusted;
mod worker;
mod workload;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use onewrite_iotrace::scratch::private_mounts;
use onewrite_torture::random::fresh_seed;
use onewrite_workload::mode::Mode;
use serde::Serialize;

use case::{Case, TearArg};
use onewrite_cli::{Outcome, directory, interrupt};
use promise::Contract;
use protocol::{Broken, Setup};
use round::{Ended, Plan, Round, Tally};
use test_device::{Stop, TestDevice};
use workload::Workload;

pub use protocol::FileSystemArg;
pub use test_device::superblocks;
pub use worker::run as run_worker;

/// The largest number of cuts of one history.
const CUTS_PER_HISTORY: u64 = 200;

/// The explanation below the options of `powercut --help`.
pub const AFTER_HELP: &str = "\
A workload runs on a real file system on a device of our own, and every write, flush and discard is
recorded. Then the power goes, at many points of that record: what was flushed is on the medium, of
what was not any part may be. The kernel mounts each such medium, the engine recovers, and the
database must be whole, with every commit that the mode promises. A quarter of the recoveries is cut
a second time, half of those with new commits behind them.

A failure ends the run with exit code 1, and is kept: the record, the medium as an image that can be
mounted, and what was wrong. --replay makes the same cut of the same record again.

Examples:
  onewrite-lab powercut --fs ext4 --mode waldio --cuts 2000
  onewrite-lab powercut --fs xfs --mode direct --workload spill --seed 7
  onewrite-lab powercut --mode waldio:group_synch=40/10 --fua
  onewrite-lab powercut --replay /tmp/powercut-7-3-120";

/// The options of `onewrite-lab powercut`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// File system on the device
    #[arg(long, value_enum, default_value_t = FileSystemArg::Ext4)]
    fs: FileSystemArg,

    /// Journal mode; variations as for `compare`
    #[arg(long, default_value = "waldio", value_parser = known_mode)]
    mode: String,

    /// Workloads to run; each history takes the next of the list [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    workload: Vec<Workload>,

    /// Crash images to check; second cuts come on top
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    cuts: u64,

    /// Transactions of a history
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    transactions: u32,

    /// Seed of everything random [default: a fresh one, which is printed]
    #[arg(long)]
    seed: Option<u64>,

    /// How writes that were not flushed survive
    #[arg(long, value_enum, default_value_t = TearArg::Sectors)]
    tear: TearArg,

    /// The device has FUA: a write-through write makes its own blocks durable, and no others
    #[arg(long)]
    fua: bool,

    /// Plant a deliberate defect, which the checks must find
    #[arg(long, value_enum)]
    broken: Option<Broken>,

    /// Number of devices at work at the same time [default: one a core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: Option<u16>,

    /// Stop after this many seconds, whatever has been checked by then
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<u64>,

    /// Directory for mount points and kept failures [default: $TMPDIR or /tmp]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Repeat the cut of a kept failure
    #[arg(long, value_name = "DIR", conflicts_with_all = ["mode", "workload", "cuts", "seed", "broken"])]
    replay: Option<PathBuf>,

    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// The result of a run.
#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    filesystem: FileSystemArg,
    mode: String,
    promise: String,
    workloads: Vec<Workload>,
    tear: TearArg,
    fua: bool,
    broken: Option<Broken>,
    seed: u64,
    transactions: u32,
    kernel: String,
    sqlite: &'static str,
    #[serde(flatten)]
    tally: Tally,
    elapsed_s: f64,
    images_per_s: f64,
    /// The time limit came before all cuts were made.
    stopped_early: bool,
    failure: Option<FailureReport>,
}

#[derive(Clone, Debug, Serialize)]
struct FailureReport {
    what: String,
    workload: Workload,
    round: u64,
    cut: Option<usize>,
    /// The directory of the kept case, or the reason why it was not kept.
    kept: Result<PathBuf, String>,
}

fn known_mode(text: &str) -> Result<String, String> {
    match Mode::parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The contract of a mode. A defect does not lower the promise.
fn contract(mode: &Mode, broken: Option<Broken>) -> Result<Contract, String> {
    match broken {
        None => Contract::of(mode),
        Some(_) => Ok(Contract::Full),
    }
}

/// The mode with the defect's changes.
fn effective_mode(mode: &str, broken: Option<Broken>) -> String {
    let variations = match broken {
        Some(Broken::NoFlush | Broken::TrustsWriteThrough) => "sync=normal",
        Some(Broken::UnwrittenExtents) => "init=unwritten,sync=normal",
        Some(Broken::InitializedExtents) => "init=zero-fill,sync=normal",
        Some(Broken::DeviceIgnoresFlushes | Broken::EarlyReuse) | None => return mode.to_owned(),
    };
    let separator = if mode.contains(':') { ',' } else { ':' };
    format!("{mode}{separator}{variations}")
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Err(
            "powercut takes root: it makes file systems on a loop device and mounts them"
                .to_owned(),
        );
    }
    interrupt::install()?;
    private_mounts().map_err(|error| error.to_string())?;
    let directory = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    directory::check(&directory, "give another with --dir")?;
    match &args.replay {
        Some(kept) => replay(kept, &directory),
        None => cut(args, &directory),
    }
}

fn setup(file_system: FileSystemArg, mode: String, fua: bool, broken: Option<Broken>) -> Setup {
    Setup {
        file_system,
        node: PathBuf::new(),
        mount_point: PathBuf::new(),
        mode,
        fua,
        broken,
    }
}

fn stopped(stop: Stop) -> String {
    match stop {
        Stop::Failed(failure) => failure.to_string(),
        Stop::Interrupted => "stopped".to_owned(),
    }
}

fn replay(kept: &Path, directory: &Path) -> Outcome {
    let case = Case::load(kept)?;
    eprintln!("as kept: {}", case.failure);
    let setup = setup(case.file_system, case.mode.clone(), case.fua, case.broken);
    let mut device = TestDevice::new(setup, directory).map_err(stopped)?;
    match round::replay(&mut device, kept, &case) {
        Ok(found) => {
            println!("nothing is wrong now: {found:?}");
            Ok(ExitCode::SUCCESS)
        }
        Err(Stop::Failed(failure)) => {
            println!("{failure}");
            Ok(ExitCode::FAILURE)
        }
        Err(Stop::Interrupted) => Err("stopped".to_owned()),
    }
}

/// The state that the threads share.
struct Shared<'a> {
    plan: &'a Plan,
    setup: &'a Setup,
    directory: &'a Path,
    workloads: &'a [Workload],
    cuts: u64,
    next_round: AtomicU64,
    end: Option<Instant>,
    over: AtomicBool,
    bar: ProgressBar,
    tally: Mutex<Tally>,
    ended: Mutex<Option<Ended>>,
}

fn cut(args: &Args, directory: &Path) -> Outcome {
    let mode = effective_mode(&args.mode, args.broken);
    let parsed = Mode::parse(&mode).map_err(|error| error.to_string())?;
    Contract::holds_on(&parsed, args.tear)?;
    let seed = args.seed.unwrap_or_else(fresh_seed);
    let plan = Plan {
        file_system: args.fs,
        mode: mode.clone(),
        vfs: parsed.journal().vfs,
        journal: parsed.journal().name,
        contract: contract(&parsed, args.broken)?,
        tear: args.tear.into(),
        transactions: args.transactions,
        seed,
        keep: directory.to_owned(),
    };
    let workloads = workloads(args, &parsed)?;
    let setup = setup(args.fs, mode, args.fua, args.broken);
    let shared = Shared {
        plan: &plan,
        setup: &setup,
        directory,
        workloads: &workloads,
        cuts: args.cuts,
        next_round: AtomicU64::new(0),
        end: args
            .time_limit
            .map(|limit| Instant::now() + Duration::from_secs(limit)),
        over: AtomicBool::new(false),
        bar: progress_bar(args, seed),
        tally: Mutex::default(),
        ended: Mutex::default(),
    };
    let begin = Instant::now();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let jobs = args.jobs.map_or(cores, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| shared.work());
        }
    });
    shared.bar.finish_and_clear();
    let elapsed_s = begin.elapsed().as_secs_f64();
    let tally = shared.tally.into_inner().unwrap_or_default();
    let ended = shared.ended.into_inner().unwrap_or_default();
    let failure = failure(ended)?;
    let images = tally.images + tally.second_images;
    let report = Report {
        version: 1,
        filesystem: args.fs,
        mode: plan.mode.clone(),
        promise: plan.contract.to_string(),
        workloads,
        tear: args.tear,
        fua: args.fua,
        broken: args.broken,
        seed,
        transactions: args.transactions,
        kernel: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        sqlite: rusqlite::version(),
        stopped_early: failure.is_none() && tally.images < args.cuts,
        tally,
        elapsed_s,
        images_per_s: images as f64 / elapsed_s,
        failure,
    };
    print(&report, args.json)
}

/// The workloads to run: those named, or all that suit the mode.
fn workloads(args: &Args, mode: &Mode) -> Result<Vec<Workload>, String> {
    let journal = mode.journal();
    if let Some(other) = args.workload.iter().find(|one| !one.suits(journal)) {
        return Err(format!("mode {} has no workload {other:?}", journal.name));
    }
    let named = match args.workload.as_slice() {
        [] => Workload::ALL.to_vec(),
        some => some.to_vec(),
    };
    Ok(named.into_iter().filter(|one| one.suits(journal)).collect())
}

/// The failure of the mode that ended the run early, if there is one.
fn failure(ended: Option<Ended>) -> Result<Option<FailureReport>, String> {
    match ended {
        // Everything checked until then counts.
        None | Some(Ended::Stop(Stop::Interrupted)) => Ok(None),
        Some(Ended::Stop(stop)) => Err(stopped(stop)),
        Some(Ended::Found {
            failure,
            workload,
            round,
            cut,
            kept,
        }) => Ok(Some(FailureReport {
            what: failure.to_string(),
            workload,
            round,
            cut,
            kept,
        })),
    }
}

fn progress_bar(args: &Args, seed: u64) -> ProgressBar {
    eprintln!("seed {seed}");
    let bar = ProgressBar::new(args.cuts);
    let template = "{elapsed_precise} {wide_bar} {pos}/{len} images, {per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

impl Shared<'_> {
    /// The work of one thread: one round after the other on one device.
    fn work(&self) {
        if let Err(ended) = self.rounds() {
            self.over.store(true, Ordering::Relaxed);
            let mut first = self.ended.lock().unwrap_or_else(|e| e.into_inner());
            // A failure that was found takes precedence over the others' reason to stop.
            match (&*first, &ended) {
                (Some(Ended::Found { .. }), Ended::Found { kept: Ok(path), .. }) => {
                    eprintln!("onewrite: also kept: {}", path.display());
                }
                (Some(Ended::Found { .. }), _) => {}
                _ => *first = Some(ended),
            }
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed) || self.end.is_some_and(|end| Instant::now() >= end)
    }

    fn rounds(&self) -> Result<(), Ended> {
        let mut device = TestDevice::new(self.setup.clone(), self.directory)?;
        while !self.is_over() {
            let number = self.next_round.fetch_add(1, Ordering::Relaxed);
            let left = self.cuts.saturating_sub(number * CUTS_PER_HISTORY);
            if left == 0 {
                break;
            }
            let workload = self.workloads[number as usize % self.workloads.len()];
            let mut round = Round {
                plan: self.plan,
                device: &mut device,
                workload,
                number,
                tally: Tally::default(),
            };
            let goes_on = || {
                self.bar.inc(1);
                !self.is_over()
            };
            let result = round.run(left.min(CUTS_PER_HISTORY) as usize, &goes_on);
            let mut tally = self.tally.lock().unwrap_or_else(|e| e.into_inner());
            tally.add(&round.tally);
            result?;
        }
        Ok(())
    }
}

fn print(report: &Report, json: bool) -> Outcome {
    if json {
        let text = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
        println!("{text}");
    } else {
        let tally = &report.tally;
        println!(
            "{} images and {} of second cuts checked in {:.0} s ({:.0}/s), from {} histories with {} \
             acknowledged commits",
            tally.images,
            tally.second_images,
            report.elapsed_s,
            report.images_per_s,
            tally.histories,
            tally.acknowledged,
        );
        println!(
            "{} images differed, {} had lost or torn writes; {} commits were gone as {} allows",
            tally.distinct_images,
            tally.images_with_losses,
            tally.commits_lost_as_allowed,
            report.mode
        );
        println!("promise: {}; seed {}", report.promise, report.seed);
    }
    let Some(failure) = &report.failure else {
        return match interrupt::is_requested() {
            true => Err("stopped".to_owned()),
            false => Ok(ExitCode::SUCCESS),
        };
    };
    eprintln!(
        "onewrite: {} (workload {:?}, history {}, cut {:?}, seed {})",
        failure.what, failure.workload, failure.round, failure.cut, report.seed
    );
    match &failure.kept {
        Ok(path) => eprintln!(
            "kept in {}; again: onewrite-lab powercut --replay {}",
            path.display(),
            path.display()
        ),
        Err(why) => eprintln!("not kept: {why}"),
    }
    Ok(ExitCode::FAILURE)
}
