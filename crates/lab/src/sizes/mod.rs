//! `onewrite-lab sizes`: the cost of a commit and of recovery by the size of the database, for
//! LS-MVBT and stock WAL.
//!
//! A database of each size is made once for each mode. Processes of this program then run commits
//! on it, die, and recover it; `worker` is such a process, `job` its orders, `show` the tables.

mod job;
mod show;
mod worker;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use onewrite_cli::arguments::Modes;
use onewrite_cli::place::{self, Place, Where};
use onewrite_cli::progress::Progress;
use onewrite_cli::{Outcome, interrupt, output};
use onewrite_common::random::mixed;
use serde::Serialize;

use job::{Answer, Job, Last, Recovered, Task, Worked, Workload};

/// Explains the tables below the options of `sizes --help`.
pub const AFTER_HELP: &str = "\
A database has rows of 500 bytes (--row), every fourth of them deleted, so that pages have room. Commits are
of one row at synchronous=FULL: random updates, appended rows, or YCSB-A (half of the operations
read). As many commits run before the counted ones, so WAL reuses its log, with a checkpoint after
1,000 pages. Flushes and bytes are the device's; pages are what the process wrote, and `header`
those of LS-MVBT's header and free map among them. In the runs with a reader, another connection
holds a snapshot of the start.

Recovery follows the death of a process after the commits, without a checkpoint. Pages and reads are
those of the process until its first query has returned, and so are times: from the call that opens
the database on. Times are medians, with the files in the page cache and without. `clean` is the same
after a close, both ways; `more` is what a recovery takes more than that, in WAL's.

Needs a build with --features lsmvbt, and root.

Examples:
  onewrite-lab sizes --sizes 1,16
  onewrite-lab sizes --sizes 16 --modes wal,lsmvbt:torn=trust,recovery_pages=64";

/// The size of `--large`, in MiB.
const LARGE: u64 = 10 << 10;

/// The options of `onewrite-lab sizes`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Sizes of databases in MiB, separated by commas
    #[arg(long, value_name = "MIB", value_delimiter = ',', default_values_t = [1, 16, 256, 1024],
          value_parser = clap::value_parser!(u64).range(1..=51_200))]
    sizes: Vec<u64>,

    /// 10 GiB as well
    #[arg(long)]
    large: bool,

    /// Journal modes, separated by commas
    #[arg(long, default_value = "wal,lsmvbt:torn=trust,lsmvbt:torn=double")]
    modes: Modes,

    /// Commits of a run
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,

    /// Recoveries of each kind
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    repeat: u32,

    /// Bytes of a row's value
    #[arg(long, value_name = "BYTES", default_value_t = 500, value_parser = clap::value_parser!(u32).range(16..=1_000))]
    row: u32,

    /// Leave no room in the pages: most updates split one
    #[arg(long)]
    dense: bool,

    /// The seed of keys
    #[arg(long, default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    place: Where,

    /// Print one JSON document instead of the tables
    #[arg(long)]
    json: bool,
}

/// The counts of commits in one database.
#[derive(Debug, Serialize)]
struct Cost {
    mib: u64,
    mode: String,
    workload: Workload,
    reader: bool,
    counts: Worked,
}

/// The recoveries of one database.
#[derive(Debug, Serialize)]
struct Recovery {
    mib: u64,
    mode: String,
    workload: Workload,
    read_bytes: u64,
    read_calls: u64,
    /// The median, with the files in the page cache.
    us: f64,
    /// The same without.
    cold_us: f64,
    /// The median of the same after a close, with the files in the page cache: nothing is to be recovered.
    clean_us: f64,
    /// The same without.
    cold_clean_us: f64,
}

/// The whole document.
#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    count: u32,
    row: u32,
    dense: bool,
    seed: u64,
    file_system: String,
    notes: Vec<String>,
    commits: Vec<Cost>,
    recoveries: Vec<Recovery>,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    interrupt::install()?;
    let mut sizes = args.sizes.clone();
    if args.large {
        sizes.push(LARGE);
    }
    let progress = Progress::default();
    let largest = sizes.iter().max().copied().unwrap_or(0) << 20;
    // The log of a run with a reader, and what the database grows by.
    let place = place::choose(&args.place, place::bytes_with(largest * 3 / 2), &progress)?;
    let report = match place.counts() {
        true => measure(args, &sizes, &place, &progress),
        false => Err("it takes a scratch file system (root): others write to this device".into()),
    };
    let removed = place.remove();
    let report = report?;
    removed?;
    output::print(args.json, &report, || show::text(&report))?;
    Ok(interrupt::exit_code(ExitCode::SUCCESS))
}

/// Runs one process: its job as JSON.
pub fn run_worker(job: &str) -> Outcome {
    let job: Job = serde_json::from_str(job).map_err(|error| error.to_string())?;
    worker::run(&job)?;
    Ok(ExitCode::SUCCESS)
}

fn measure(
    args: &Args,
    sizes: &[u64],
    place: &Place,
    progress: &Progress,
) -> Result<Report, String> {
    let mut report = Report {
        version: 1,
        count: args.count,
        row: args.row,
        dense: args.dense,
        seed: args.seed,
        file_system: place.kind_of_file_system().to_owned(),
        notes: place.notes.clone(),
        commits: Vec::new(),
        recoveries: Vec::new(),
    };
    for mib in sizes {
        for mode in &args.modes.0 {
            if interrupt::is_requested() {
                return Ok(report);
            }
            let dir = tempfile::tempdir_in(place.root()).map_err(|error| error.to_string())?;
            let run = Run {
                args,
                mib: *mib,
                mode: mode.spec(),
                path: dir.path().join("test.db"),
                processes: Cell::new(0),
                progress,
            };
            run.all(&mut report)?;
        }
    }
    Ok(report)
}

/// One database.
struct Run<'a> {
    args: &'a Args,
    mib: u64,
    mode: &'a str,
    path: PathBuf,
    /// Processes so far. Each has a seed of its own.
    processes: Cell<u64>,
    progress: &'a Progress,
}

impl Run<'_> {
    fn all(&self, report: &mut Report) -> Result<(), String> {
        let say = |what: &str| {
            let said = format!("{} MiB, {}: {what}", self.mib, self.mode);
            self.progress.say(&said);
        };
        say("filling");
        self.process(Task::Make {
            bytes: self.mib << 20,
            dense: self.args.dense,
        })?;
        for workload in Workload::ALL {
            for reader in [false, true] {
                if interrupt::is_requested() {
                    return Ok(());
                }
                say(workload.name());
                let counts = self.worked(workload, reader)?;
                report.commits.push(Cost {
                    mib: self.mib,
                    mode: self.mode.to_owned(),
                    workload,
                    reader,
                    counts,
                });
            }
            say("recovery");
            report.recoveries.push(self.recovery(workload)?);
        }
        Ok(())
    }

    fn worked(&self, workload: Workload, reader: bool) -> Result<Worked, String> {
        let task = Task::Work {
            workload,
            warm_up: self.args.count,
            count: self.args.count,
            reader,
            autocheckpoint: 1_000,
            killed: false,
        };
        match self.process(task)? {
            Answer::Worked(worked) => Ok(worked),
            other => Err(format!("an answer to another job: {other:?}")),
        }
    }

    fn recovery(&self, workload: Workload) -> Result<Recovery, String> {
        let task = Task::Work {
            workload,
            warm_up: 0,
            count: self.args.count,
            reader: false,
            autocheckpoint: 0,
            killed: true,
        };
        let Answer::Worked(Worked { last, .. }) = self.process(task)? else {
            return Err("an answer to another job".to_owned());
        };
        // The first one writes again what nothing has flushed; the others find the same.
        let cached = self.recovered(last, false)?;
        let cold = self.recovered(last, true)?;
        self.process(Task::Close)?;
        let clean = self.recovered(last, false)?;
        let cold_clean = self.recovered(last, true)?;
        let (first, us) = (cached.first(), median(&cached)?);
        let first = first.ok_or("no recovery")?;
        // Otherwise the medians would be those of opening a database that needs no recovery.
        // Asking whether pages are cached reads some bytes.
        let differs = |one: &Recovered| one.read_bytes.abs_diff(first.read_bytes) >= 4096;
        if cached.iter().chain(&cold).any(differs) {
            return Err(format!(
                "{}, {}: a recovery has left another state than it found, so the next ones had less to do",
                self.mode,
                workload.name()
            ));
        }
        Ok(Recovery {
            mib: self.mib,
            mode: self.mode.to_owned(),
            workload,
            read_bytes: first.read_bytes,
            read_calls: first.read_calls,
            us,
            cold_us: median(&cold)?,
            clean_us: median(&clean)?,
            cold_clean_us: median(&cold_clean)?,
        })
    }

    fn recovered(&self, last: Last, cold: bool) -> Result<Vec<Recovered>, String> {
        let recover = |_| match self.process(Task::Recover { last, cold })? {
            Answer::Recovered(recovered) => Ok(recovered),
            other => Err(format!("an answer to another job: {other:?}")),
        };
        (0..self.args.repeat).map(recover).collect()
    }

    /// Runs a process of this program, and returns its answer.
    fn process(&self, task: Task) -> Result<Answer, String> {
        self.processes.set(self.processes.get() + 1);
        let job = Job {
            path: self.path.clone(),
            mode: self.mode.to_owned(),
            seed: mixed(self.args.seed ^ (self.processes.get() << 32)),
            row: self.args.row as usize,
            task,
        };
        started(&job)
    }
}

fn started(job: &Job) -> Result<Answer, String> {
    let failed = |error: std::io::Error| format!("cannot start a process: {error}");
    let program = std::env::current_exe().map_err(failed)?;
    let order = serde_json::to_string(job).map_err(|error| error.to_string())?;
    let output = Command::new(&program)
        .args([Path::new("sizes-worker"), Path::new(&order)])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stdout);
    // A process that kills itself has answered before.
    serde_json::from_str(said.trim()).map_err(|_| {
        let complaint = String::from_utf8_lossy(&output.stderr);
        format!("{}: {}", job.mode, complaint.trim())
    })
}

fn median(recovered: &[Recovered]) -> Result<f64, String> {
    let mut times: Vec<f64> = recovered.iter().map(|one| one.us).collect();
    times.sort_by(f64::total_cmp);
    onewrite_common::median(&times).ok_or_else(|| "no recovery".to_owned())
}
