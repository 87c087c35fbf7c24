//! `onewrite-lab matrix`: stock WAL and our modes over a grid. Its axes are operations, states,
//! workers, devices and page sizes. The result says in which cells a mode is worse than stock.
//!
//! `grid` has the cells, `measure` runs one with the rounds of `compare`, `rule` says whether it is
//! red, `show` makes the heat map. A results file keeps each cell as a line of JSON, so the same
//! command continues an interrupted run.

mod grid;
mod measure;
mod rule;
mod show;

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use onewrite_cli::arguments::Modes;
use onewrite_cli::output::OutputArgs;
use onewrite_cli::progress::Progress;
use onewrite_cli::{Outcome, interrupt};
use serde::Serialize;

use grid::Cell;
use measure::{Choice, Measured};
use rule::State;

/// Explains cells and the rule below the options of `matrix --help`.
pub const AFTER_HELP: &str = "\
A cell is operation/state/workers/device/page, as insert/steady/8t/emmc/4k. A pattern for --cells has some \
parts from the left; * stands for any part: insert, */fresh/1t.
  operation  insert, update, delete, indexed, app, mail, messenger, message, sns, tpcc, ycsb-a, ycsb-b, \
ycsb-f, web
  state      fresh, steady
  workers    1t, 8t, 32t (threads), 8p (processes); phone traces have 1t alone
  device     none, nvme, emmc, sd, network (a flush takes 100 ms)
  page       4k, 8k, 16k

A cell is red for a mode if, against stock WAL at FULL in the same rounds, its rate is below 0.97 (r), its \
bytes are above 1.00 (b), its processor time is above 1.15 (c), or its p99 with half of stock's rate offered \
to both is above 1.00 (p). The paired rounds' interval decides; bytes are counts. ? is undecided: run more \
rounds or use a quiet machine. Exit code 1 says that a cell is red.

Examples:
  onewrite-lab matrix --quick --results quick.jsonl --html quick.html
  onewrite-lab matrix --cells 'app/steady,insert/*/32t/nvme' --modes wal,onewrite";

/// The options of `onewrite-lab matrix`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Patterns of cells, separated by commas, see below [default: all]
    #[arg(long, value_delimiter = ',')]
    cells: Vec<String>,

    /// Journal modes, separated by commas; the first must be plain wal
    #[arg(long, default_value = "wal,direct,waldio:group_commit=on,onewrite")]
    modes: Modes,

    /// The short grid: insert and app, 1t and 8t, none and emmc, 4k
    #[arg(long)]
    quick: bool,

    /// Print the names of the cells, and run none
    #[arg(long)]
    list: bool,

    /// Keep each cell as a line of this file; cells that it has do not run again
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,

    /// Transactions of a run [default: 250 to 2500, by operation and device]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    count: Option<u32>,

    /// Rounds of a cell at most, until it is decided
    #[arg(long, value_name = "ROUNDS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    max_rounds: u32,

    /// The seed of values and orders
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Directory of the scratch images while they are in use [default: $TMPDIR or /tmp]
    #[arg(long, value_name = "DIR")]
    scratch_dir: Option<PathBuf>,

    /// Also write each mode's map into this directory, as matrix-MODE.svg
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,

    #[command(flatten)]
    output: OutputArgs,
}

/// The whole document.
#[derive(Debug, Serialize)]
struct Report {
    /// Of this format.
    version: u32,
    /// The modes that stock is compared with.
    modes: Vec<String>,
    /// How many cells each state has, over all modes.
    clear: usize,
    undecided: usize,
    red: usize,
    /// Selected cells that were not measured, as the run was stopped or they failed.
    missing: Vec<String>,
    /// Why cells failed.
    problems: Vec<String>,
    /// The cells.
    cells: Vec<Measured>,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let is_plain = |mode: &onewrite_workload::mode::Mode| mode.spec() == "wal";
    if !args.modes.0.first().is_some_and(is_plain) || args.modes.0.len() < 2 {
        eprintln!("onewrite-lab: --modes: wal comes first, and others follow");
        return Ok(ExitCode::from(2));
    }
    let cells = match grid::cells(&args.cells, args.quick) {
        Ok(cells) => cells,
        Err(message) => {
            eprintln!("onewrite-lab: {message}");
            return Ok(ExitCode::from(2));
        }
    };
    if args.list {
        let names = cells.iter().map(|cell| format!("{cell}\n"));
        onewrite_cli::output::text(&names.collect::<String>())?;
        return Ok(ExitCode::SUCCESS);
    }
    args.output.check()?;
    // A long run does not end with a directory that cannot be made.
    if let Some(directory) = &args.pictures {
        fs::create_dir_all(directory)
            .map_err(|error| format!("--pictures {}: {error}", directory.display()))?;
    }
    interrupt::install()?;
    let report = measure_all(args, &cells)?;
    let table = || show::text(&report, &cells);
    args.output
        .show(&report, table, || show::page(&report, &cells))?;
    if let Some(directory) = &args.pictures {
        show::save_pictures(&report, &cells, directory)?;
    }
    for problem in &report.problems {
        eprintln!("onewrite-lab: {problem}");
    }
    let is_bad = report.red > 0 || !report.problems.is_empty();
    Ok(interrupt::exit_code(match is_bad {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }))
}

/// Every cell that the results do not have yet.
fn measure_all(args: &Args, cells: &[Cell]) -> Result<Report, String> {
    let choice = Choice {
        modes: args.modes.0.clone(),
        count: args.count,
        seed: args.seed,
        max_rounds: args.max_rounds,
        scratch_dir: args.scratch_dir.clone(),
    };
    let before = args
        .results
        .as_deref()
        .map_or_else(|| Ok(Vec::new()), read)?;
    let (mut measured, mut missing, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for (number, cell) in cells.iter().enumerate() {
        if let Some(known) = before.iter().find(|known| known.answers(cell, &choice)) {
            measured.push(known.clone());
            continue;
        }
        if interrupt::is_requested() {
            missing.push(cell.to_string());
            continue;
        }
        if !rustix::process::geteuid().is_root() {
            return Err(
                "matrix takes root: it makes a file system on a loop device and mounts it. What \
                 --results has can be shown without"
                    .to_owned(),
            );
        }
        let progress = Progress::default();
        match measure::cell(cell, &choice, &progress) {
            Ok(one) => {
                progress.tell(&format!(
                    "{} of {} {}",
                    number + 1,
                    cells.len(),
                    show::line(&one)
                ));
                if let Some(path) = &args.results {
                    append(path, &one)?;
                }
                measured.push(one);
            }
            Err(error) => {
                missing.push(cell.to_string());
                if !interrupt::is_requested() {
                    problems.push(format!("{cell}: {error}"));
                }
            }
        }
    }
    let count = |state: State| {
        let modes = measured.iter().flat_map(|cell: &Measured| &cell.modes);
        modes.filter(|mode| mode.state == state).count()
    };
    Ok(Report {
        version: 1,
        modes: choice
            .modes
            .iter()
            .skip(1)
            .map(|mode| mode.spec().to_owned())
            .collect(),
        clear: count(State::Clear),
        undecided: count(State::Undecided),
        red: count(State::Red),
        missing,
        problems,
        cells: measured,
    })
}

/// The cells of a results file; none if there is no such file. A line that a stopped run did not
/// finish is left out.
fn read(path: &Path) -> Result<Vec<Measured>, String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("--results {}: {error}", path.display())),
    };
    let mut cells = Vec::new();
    for line in BufReader::new(file).lines() {
        let line = line.map_err(|error| format!("--results {}: {error}", path.display()))?;
        cells.extend(serde_json::from_str::<Measured>(&line));
    }
    Ok(cells)
}

/// Adds a cell to a results file, on a line of its own even behind an unfinished one.
fn append(path: &Path, cell: &Measured) -> Result<(), String> {
    let line = serde_json::to_string(cell).map_err(|error| error.to_string())?;
    let before = fs::read(path).unwrap_or_default();
    let end = match before.last() {
        None | Some(b'\n') => "",
        Some(_) => "\n",
    };
    let mut options = OpenOptions::new();
    let written = options
        .create(true)
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(format!("{end}{line}\n").as_bytes()));
    written.map_err(|error| format!("--results {}: {error}", path.display()))
}
