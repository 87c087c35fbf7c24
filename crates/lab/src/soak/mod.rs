//! `onewrite-lab soak`: several programs on one database, while everything happens to them.
//!
//! - [`mod@run`] starts the workers ([`fleet`], [`programs`], [`worker`]) and lets things happen.
//! - [`disk`] is the file system, which fills up and loses power; [`clocks`] are wall clocks that jump.
//! - [`tasks`] are checks ([`check`]), backups and shells.
//! - [`merge`] makes one history, which [`crate::history`] checks.
//!
//! `docs/soak.md` is the page for users.

mod check;
mod clocks;
mod cuts;
mod disk;
mod fleet;
mod job;
mod merge;
mod programs;
mod report;
mod run;
mod tasks;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use onewrite_cli::{Outcome, interrupt};
use onewrite_iotrace::scratch::private_mounts;
use onewrite_torture::random::fresh_seed;

use job::{Job, Role};

/// The explanation below the options of `soak --help`.
pub const AFTER_HELP: &str = "\
Workers in several languages, each with the SQLite of its language, transfer money between accounts
and append to lists in one database. The database is on a small ext4 on a device of our own.
Meanwhile workers are killed, stopped, continued and terminated, their wall clocks jump, the disk
fills up, the power goes, backups are made and the library is replaced.

Checks run all the time. The sum of all accounts must stay, and each acknowledged transaction must
be there once, in its worker's order. Each worker writes its history to a file outside of the disk,
in the format of Jepsen. At the end the histories are checked as by `check-history`.

The result is one JSON document on standard output. The exit code is 0 if nothing was wrong, 1
otherwise; the directory of the run is then kept, with the history and the database. Ctrl-C ends the
run early, with a report and exit code 130.

A language without a program is named in the report under `missing`. --require makes that an error.
scripts/soak makes the programs in Node and Go available, and the library of another commit.

Examples:
  onewrite-lab soak --mode onewrite --seconds 3600
  onewrite-lab soak --mode direct --seconds 600 --rate 20 --hurry 3
  onewrite-lab soak --mode swal --events 20 --hurry 20 --require rust,python
  onewrite-lab soak --mode lsmvbt --libsqlite3 target/libsqlite3 --seconds 3600";

/// A journal mode of onewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    Onewrite,
    Waldio,
    Direct,
    Swal,
    /// The other B-tree; takes a build with --features lsmvbt
    Lsmvbt,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Onewrite => "onewrite",
            Self::Waldio => "waldio",
            Self::Direct => "direct",
            Self::Swal => "swal",
            Self::Lsmvbt => "lsmvbt",
        }
    }

    /// Whether a stock SQLite may use the database at the same time.
    fn has_stock_neighbours(self) -> bool {
        self == Self::Direct
    }

    /// Whether an extension has the mode, and not SQLite's library itself.
    fn is_of_extension(self) -> bool {
        self != Self::Lsmvbt
    }
}

/// A deliberate defect, which the checks must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Broken {
    /// Workers in Rust acknowledge transactions that they have rolled back
    AcknowledgesRolledBack,
    /// The device answers flushes and does nothing
    DeviceIgnoresFlushes,
    /// Workers in Rust write the wall clock's time into their histories
    HistoriesByWallClock,
    /// Workers in Rust do not flush when they have the other library
    OtherLibraryDoesNotFlush,
}

/// The options of `onewrite-lab soak`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Journal mode
    #[arg(long, value_enum, default_value_t = Mode::Onewrite)]
    mode: Mode,

    /// Length of the run in seconds
    #[arg(long, default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seconds: u64,

    /// End after this many kills, stops, cuts and other events
    #[arg(long)]
    events: Option<u64>,

    /// Number of workers; languages take turns
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,

    /// Transactions a second of each worker
    #[arg(long, default_value_t = 2.0, value_parser = positive)]
    rate: f64,

    /// Let things happen this many times as often
    #[arg(long, default_value_t = 1.0, value_parser = positive)]
    hurry: f64,

    /// Size of the disk in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(32..=16384))]
    disk: u64,

    /// Seed that fixes the choices; drawn and printed by default
    #[arg(long, env = "ONEWRITE_TORTURE_SEED")]
    seed: Option<u64>,

    /// Languages that must be there, separated by commas: rust, python, node, go
    #[arg(long, value_delimiter = ',')]
    require: Vec<String>,

    /// Python whose sqlite3 module can load extensions
    #[arg(long, env = "ONEWRITE_PYTHON", default_value = "/usr/bin/python3")]
    python: PathBuf,

    /// Node with node:sqlite, or with better-sqlite3 in NODE_PATH
    #[arg(long, env = "ONEWRITE_NODE", default_value = "node")]
    node: PathBuf,

    /// The worker in Go, compiled
    #[arg(long, env = "ONEWRITE_SOAK_GO")]
    go: Option<PathBuf>,

    /// Directory of scripts/libsqlite3, whose library Python loads in mode lsmvbt
    #[arg(long, value_name = "DIR")]
    libsqlite3: Option<PathBuf>,

    /// Extension to load [default: the one next to this program]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,

    /// Extension that workers load after an upgrade [default: a copy of the first]
    #[arg(long, value_name = "FILE")]
    next_library: Option<PathBuf>,

    /// Extension of another release, which each new worker loads with a chance of one half
    #[arg(long, value_name = "FILE")]
    other_library: Option<PathBuf>,

    /// Plant a deliberate defect, which the checks must find
    #[arg(long, value_enum)]
    broken: Option<Broken>,

    /// Directory in which to make the run's own [default: $TMPDIR or /tmp]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Keep the directory of the run in any case
    #[arg(long)]
    keep: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match number > 0.0 && number <= 10_000.0 {
        true => Ok(number),
        false => Err("not above 0 and up to 10,000".to_owned()),
    }
}

impl Args {
    /// The time that these seconds take in a hurry.
    fn hurried(&self, seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds / self.hurry)
    }

    fn next_to_this(name: &str) -> Result<PathBuf, String> {
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let path = this.with_file_name(name);
        match path.is_file() {
            true => Ok(path),
            false => Err(format!("there is no {}", path.display())),
        }
    }

    fn library(&self) -> Result<PathBuf, String> {
        match &self.library {
            Some(library) => Ok(library.clone()),
            None => Self::next_to_this("libonewrite.so"),
        }
    }

    /// Refuses what the mode does not have.
    fn check(&self) -> Result<(), String> {
        if self.mode.is_of_extension() {
            return match self.libsqlite3 {
                Some(_) => Err("--libsqlite3 is for --mode lsmvbt".to_owned()),
                None => Ok(()),
            };
        }
        let libraries = [&self.library, &self.next_library, &self.other_library];
        if libraries.iter().any(|library| library.is_some()) {
            return Err("mode lsmvbt has no extension to load".to_owned());
        }
        match cfg!(feature = "lsmvbt") {
            true => Ok(()),
            false => Err("mode lsmvbt takes a build with --features lsmvbt".to_owned()),
        }
    }

    fn onewrite(&self) -> Result<PathBuf, String> {
        Self::next_to_this("onewrite")
    }
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Outcome {
    args.check()?;
    if !rustix::process::geteuid().is_root() {
        return Err("soak takes root: it makes a file system and mounts it".to_owned());
    }
    interrupt::install()?;
    private_mounts().map_err(|error| error.to_string())?;
    let seed = args.seed.unwrap_or_else(fresh_seed);
    eprintln!("seed {seed}");
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let mut directory = tempfile::Builder::new()
        .prefix("onewrite-soak-")
        .tempdir_in(&parent)
        .map_err(|error| format!("{}: {error}", parent.display()))?;
    let mut report = run::Run::new(args, directory.path(), seed)?.run()?;
    if report.failures > 0 || args.keep {
        directory.disable_cleanup(true);
        report.kept = Some(directory.path().to_owned());
    }
    let text = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
    println!("{text}");
    Ok(match report.failures {
        0 => interrupt::exit_code(ExitCode::SUCCESS),
        _ => ExitCode::FAILURE,
    })
}

/// Runs one process of the soak: `--probe`, or a job.
pub fn run_worker(order: &str) -> Outcome {
    if order == "--probe" {
        println!("{}", rusqlite::version());
        return Ok(ExitCode::SUCCESS);
    }
    let job: Job = serde_json::from_str(order).map_err(|error| error.to_string())?;
    match job.role {
        Role::Work => worker::run(job)?,
        _ => check::run(&job)?,
    }
    Ok(ExitCode::SUCCESS)
}
