//! `onewrite-lab check-history`: does a history of list-append transactions keep the promise?
//!
//! - [`edn`] and [`transaction`] read histories in Jepsen's format.
//! - [`lists`] infers the order of each list, and finds what a single read proves.
//! - [`graph`] makes dependencies of it, and [`cycles`] finds cycles in them.
//!
//! The method is that of Elle (Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from
//! Experimental Observations", VLDB 2020). `docs/soak.md` says which model is checked, and why.

mod cycles;
mod edn;
mod graph;
mod lists;
mod report;
mod transaction;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use onewrite_cli::Outcome as Ended;

pub use report::Report;
pub use transaction::{Outcome, Transaction, parse};

/// The explanation below the options of `check-history --help`.
pub const AFTER_HELP: &str = "\
A history has one operation a line, as Jepsen writes them:

  {:type :invoke, :process 0, :f :txn, :value [[:append 5 1] [:r 7 nil]], :time 10}
  {:type :ok, :process 0, :f :txn, :value [[:append 5 1] [:r 7 [4 2]]], :time 25}

Types are invoke, ok, fail and info. A line that is cut off counts as if it were not there; an
invocation without an end is info. Times are of one clock for all files, in any unit. Without them
the order of lines counts, which needs one file. Keys and values are integers, and no value is
appended to a key twice.

The model is strict serializability. Anomalies have the names of Elle: G0, G1a, G1b, G1c, G-single,
G2-item, lost-update, internal, incompatible-order, duplicate-element, garbage-read, with -realtime
where the order of time is part of the cycle. `lost-append` is an acknowledged append that a later
read does not show, and that no read shows.

The exit code is 0 if nothing was found, 1 otherwise.

Examples:
  onewrite-lab check-history history.edn
  onewrite-lab check-history --json worker-*.edn";

/// The options of `onewrite-lab check-history`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Histories; several are parts of one
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Ended {
    let report = check_files(&args.files)?;
    if args.json {
        let text = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
        println!("{text}");
    } else {
        print(&report);
    }
    Ok(match report.is_right() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn print(report: &Report) {
    println!(
        "{} transactions: {} ok, {} failed, {} unknown; {} keys, {} dependencies, {} torn lines",
        report.transactions,
        report.ok,
        report.fail,
        report.info,
        report.keys,
        report.dependencies,
        report.torn_lines
    );
    for (name, anomaly) in &report.anomalies {
        println!("{name}: {} found, one of them:", anomaly.count);
        for line in &anomaly.example {
            println!("  {line}");
        }
    }
    if report.is_right() {
        println!("no anomaly: {}", report.model);
    }
}

/// Checks a history in several files.
pub fn check_files(files: &[PathBuf]) -> Result<Report, String> {
    let mut history = Vec::new();
    let mut torn = 0;
    for path in files {
        let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let parsed = parse(&String::from_utf8_lossy(&bytes));
        torn += parsed.torn;
        history.extend(parsed.transactions);
    }
    if history.is_empty() {
        return Err("there is no transaction in the history".to_owned());
    }
    let mut report = check(&history);
    report.torn_lines = torn;
    Ok(report)
}

fn check(history: &[Transaction]) -> Report {
    let count = |outcome| history.iter().filter(|one| one.outcome == outcome).count() as u64;
    let mut report = Report {
        version: 1,
        model: "strict-serializable",
        transactions: history.len() as u64,
        ok: count(Outcome::Ok),
        fail: count(Outcome::Fail),
        info: count(Outcome::Info),
        ..Report::default()
    };
    let lists = lists::infer(history, &mut report);
    let graph = graph::build(history, &lists);
    report.keys = lists.orders.len() as u64;
    report.dependencies = graph.0.iter().map(|edges| edges.len() as u64).sum();
    cycles::search(history, &graph, &mut report);
    report
}
