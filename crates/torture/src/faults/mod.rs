//! Makes every system call on every path fail, first once and then for good. After each fault every
//! promise must hold.
//!
//! For each [`scenario`] a worker ([`worker`]) runs once without a fault. The tracer ([`tracer`])
//! records every system call that it makes between two marks. Then the scenario runs again for each
//! of these calls, for each error that fits the call ([`calls`]), once and for good. Each run
//! inspects two states of the files ([`inspect`]). The first is the state when the fault is over,
//! which a `kill -9` at that moment leaves. The second is the state after work continued and the
//! worker killed itself. The judge ([`judge`]) compares the worker's reports with the files.
//!
//! The module [`conditions`] has conditions that no single call makes: a full disk, a replaced log,
//! refused memory, and more.

pub mod calls;
pub mod conditions;
mod directory;
pub mod inspect;
pub mod judge;
mod matrix;
mod registers;
mod report;
pub mod scenario;
mod sqlite;
pub mod tracer;
pub mod worker;

pub use sqlite::print_log;

use crate::database::JournalMode;
use crate::failure::{Failure, Promise};
use crate::interrupt;
use calls::Fault;
use clap::Args;
use conditions::Condition;
use scenario::Scenario;
use std::path::PathBuf;

/// The options of `onewrite-torture faults`.
#[derive(Debug, Clone, Args)]
pub struct FaultArguments {
    /// Journal mode.
    #[arg(long, value_enum, default_value = "waldio")]
    pub mode: JournalMode,
    /// Only this scenario; all by default.
    #[arg(long, value_enum)]
    pub scenario: Vec<Scenario>,
    /// Only this condition; all by default, and none if a scenario or a call is given.
    #[arg(long, value_enum)]
    pub condition: Vec<Condition>,
    /// Only this system call.
    #[arg(long)]
    pub call: Option<String>,
    /// Only the call with this number, counted by name from 1.
    #[arg(long)]
    pub nth: Option<u64>,
    /// Only this fault: an error's name, "short", or "done-EIO" for a call that takes effect and
    /// reports a failure.
    #[arg(long)]
    pub errno: Option<Fault>,
    /// Only faults that last.
    #[arg(long, conflicts_with = "once")]
    pub forever: bool,
    /// Only faults that occur once.
    #[arg(long)]
    pub once: bool,
    /// Run only one of this many injections, for a shorter run.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub every: u32,
    /// Number of workers at a time; by default the number of processors.
    #[arg(long)]
    pub jobs: Option<usize>,
    /// Directory to work in; by default an ext4 of the run's own (as root), or the temporary
    /// directory.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Keep going until this many broken promises.
    #[arg(long, default_value_t = 20)]
    pub most_findings: usize,
    /// Let the workers lie, to show that the checks find it.
    #[arg(long, value_enum)]
    pub lie: Option<worker::Lie>,
    /// Print every worker's reports.
    #[arg(long)]
    pub verbose: bool,
}

/// Runs the matrix and prints it.
///
/// # Errors
/// A broken promise, or an error of the harness.
pub fn run(arguments: &FaultArguments) -> Result<String, Failure> {
    if !registers::ARE_KNOWN {
        return Err(Failure::Harness(format!(
            "faults are put in by a tracer, which knows x86-64 and aarch64; this is {}",
            std::env::consts::ARCH
        )));
    }
    interrupt::install()?;
    let directory = directory::WorkDirectory::make(arguments.dir.as_deref())?;
    let report = matrix::run(arguments, &directory)?;
    directory.remove()?;
    let text = match arguments.json {
        true => {
            serde_json::to_string(&report).map_err(|e| Failure::Harness(format!("JSON: {e}")))?
        }
        false => report.to_string(),
    };
    match report.findings.first() {
        None => Ok(text),
        Some(first) => {
            // Standard output gets one JSON document: the broken promises.
            match arguments.json {
                true => eprintln!("{text}"),
                false => println!("{text}"),
            }
            let detail = format!("{}: {}", first.replay, first.broken.join("; "));
            Err(Failure::broken(Promise::FaultsAreHandled, detail))
        }
    }
}
