//! `onewrite-peers` compares onewrite's journal modes with other embedded storage engines. All of
//! them are as durable as they can be, and share one scratch file system and one run. See
//! docs/benchmarks.md.

mod bench;
mod engine;
mod report;
mod work;
mod worker;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use bench::{Cell, Place};
use clap::{Args, Parser, Subcommand};
use engine::{Result, SETTINGS, Setting};
use onewrite_workload::connection::SYNC_CALL;
use report::{Form, Report, Run};
use work::Workload;

/// Compare onewrite's journal modes with other embedded storage engines (root: it makes a file
/// system).
#[derive(Parser)]
#[command(name = "onewrite-peers", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: BenchArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Run a process of a benchmark; started by the program itself
    #[command(hide = true)]
    Worker,
}

#[derive(Args)]
struct BenchArgs {
    /// Engines to run, from the list that `--list` prints; all that are installed if none is named
    #[arg(long, value_delimiter = ',', value_parser = named)]
    engines: Vec<&'static Setting>,
    /// Workloads to run
    #[arg(long, value_delimiter = ',', value_enum)]
    workloads: Vec<Workload>,
    /// Numbers of threads; bulk loads always have one
    #[arg(long, value_delimiter = ',', default_value = "1,8,32")]
    threads: Vec<usize>,
    /// Durable transactions of a run; a twentieth as many bulk loads, 50 times as many reads, twice
    /// as many scans
    #[arg(long, default_value_t = 4000)]
    count: u64,
    /// Number of runs of each; the one with the median rate is shown
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Directory for the image of the scratch file system
    #[arg(long, value_name = "DIR")]
    scratch_dir: Option<PathBuf>,
    /// Write every run of every engine to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print tables as Markdown
    #[arg(long)]
    markdown: bool,
    /// List the engines and their settings
    #[arg(long)]
    list: bool,
}

fn named(name: &str) -> std::result::Result<&'static Setting, String> {
    Setting::named(name).ok_or_else(|| {
        let names: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
        format!("there are {}", names.join(", "))
    })
}

fn main() -> ExitCode {
    lsmvbt_sqlite::link();
    let cli = Cli::parse();
    let done = match cli.command {
        Some(Command::Worker) => worker::main().map(|()| ExitCode::SUCCESS),
        None if cli.options.list => {
            for setting in SETTINGS {
                println!("{:18} {}", setting.name, setting.settings);
            }
            return ExitCode::SUCCESS;
        }
        None => bench(&cli.options),
    };
    done.unwrap_or_else(|error| {
        eprintln!("onewrite-peers: {error}");
        ExitCode::from(2)
    })
}

fn cells(args: &BenchArgs) -> Vec<Cell> {
    let workloads = match args.workloads.as_slice() {
        [] => &Workload::ALL,
        some => some,
    };
    let threads = |workload| match workload {
        Workload::Bulk => &[1],
        _ => args.threads.as_slice(),
    };
    let of = |workload: &Workload| {
        let (workload, operations) = (*workload, workload.of_count(args.count));
        let cell = move |threads: &usize| Cell {
            workload,
            threads: *threads,
            operations,
        };
        threads(workload).iter().map(cell)
    };
    workloads.iter().flat_map(of).collect()
}

/// The engines to run. Without names these are all that are installed.
fn engines(args: &BenchArgs) -> Vec<&'static Setting> {
    if !args.engines.is_empty() {
        return args.engines.clone();
    }
    let is_here = |setting: &&Setting| match setting.missing() {
        None => true,
        Some(missing) => {
            eprintln!("onewrite-peers: without {}: {missing}", setting.name);
            false
        }
    };
    SETTINGS.iter().filter(is_here).collect()
}

fn bench(args: &BenchArgs) -> Result<ExitCode> {
    if args.threads.contains(&0) || args.count == 0 || args.repeat == 0 {
        return Err("--threads, --count and --repeat are 1 at least".into());
    }
    if !rustix::process::geteuid().is_root() {
        return Err(
            "this takes root: it makes a file system of its own, and counts what is written to it"
                .into(),
        );
    }
    let engines = engines(args);
    let parent = args.scratch_dir.clone().unwrap_or_else(std::env::temp_dir);
    let cells = cells(args);
    let total = cells.len() * engines.len() * args.repeat;
    eprintln!("onewrite-peers: {total} runs; making a scratch ext4 file system");
    let place = Place::make(&parent)?;
    let (mut all, mut shown) = (Vec::new(), Vec::new());
    for cell in cells {
        let mut runs: Vec<Run> = Vec::new();
        for setting in std::iter::repeat_n(&engines, args.repeat).flatten() {
            let number = all.len() + runs.len() + 1;
            runs.push(run(&place, setting, cell, (number, total)));
        }
        all.extend(runs.iter().cloned());
        shown.extend(report::medians(runs));
        // After each cell, so that a run which is cut short leaves what it has measured.
        if let Some(path) = &args.json {
            let json = serde_json::to_vec_pretty(&report(&engines, all.clone()))?;
            fs::write(path, json).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    place.remove()?;
    let shown = report(&engines, shown);
    let form = match args.markdown {
        true => Form::Markdown,
        false => Form::Terminal,
    };
    print!("{}", shown.text(form));
    let (kernel, cpus, sqlite) = (&shown.kernel, shown.cpus, &shown.sqlite);
    println!("ext4 on a loop device, Linux {kernel}, {cpus} processors, SQLite {sqlite}");
    let remarks = shown.remarks();
    remarks.iter().for_each(|remark| println!("{remark}"));
    let failed = shown.runs.iter().any(|run| run.outcome.is_err());
    Ok(ExitCode::from(u8::from(failed)))
}

/// Runs an engine, and says so.
fn run(
    place: &Place,
    setting: &'static Setting,
    cell: Cell,
    (number, total): (usize, usize),
) -> Run {
    let (name, threads) = (cell.workload.name(), cell.threads);
    eprint!(
        "onewrite-peers: {number} of {total}: {name}, {threads} threads, {}",
        setting.name
    );
    let run = place.run(setting, cell);
    match &run.outcome {
        Ok(outcome) => eprintln!(": {:.0}/s", outcome.ops_per_s),
        Err(error) => eprintln!(": FAILED: {error}"),
    }
    run
}

fn report(engines: &[&'static Setting], runs: Vec<Run>) -> Report {
    Report {
        version: 1,
        command: std::env::args().collect(),
        kernel: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        cpus: std::thread::available_parallelism().map_or(0, Into::into),
        sqlite: format!("{} ({SYNC_CALL})", rusqlite::version()),
        settings: engines.iter().map(|e| (e.name, e.settings)).collect(),
        runs,
    }
}
