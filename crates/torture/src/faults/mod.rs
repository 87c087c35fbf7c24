//! Every system call on every path fails, once in turn and then for good; after each fault what was
//! promised must hold.
//!
//! For each [`scenario`] a worker ([`actor`]) is run once without a fault, and every system call
//! that it makes between two marks is noted ([`tracer`]). Then it is run again for each of these
//! calls, for each error that fits the call ([`calls`]), once and for good. Two states of the files
//! are looked at each time ([`inspect`]): as they were when the fault was over, which is what a
//! `kill -9` at that moment leaves, and after work went on and the worker killed itself. [`judge`]
//! compares what the worker told with what is there.
//!
//! The list of conditions that no single call makes (a full disk, a log that was replaced, memory
//! refused, ...) is in [`conditions`].

pub mod actor;
pub mod calls;
pub mod conditions;
pub mod inspect;
pub mod judge;
mod matrix;
mod place;
mod registers;
mod report;
pub mod scenario;
mod sqlite;
pub mod tracer;

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
    /// The journal mode.
    #[arg(long, value_enum, default_value = "waldio")]
    pub mode: JournalMode,
    /// Only this scenario; all without it.
    #[arg(long, value_enum)]
    pub scenario: Vec<Scenario>,
    /// Only this condition; all without it, and none where a scenario or a call is named.
    #[arg(long, value_enum)]
    pub condition: Vec<Condition>,
    /// Only this system call.
    #[arg(long)]
    pub call: Option<String>,
    /// Only the call of this number, counted by name from 1.
    #[arg(long)]
    pub nth: Option<u64>,
    /// Only this fault: an error's name, "short", or "done-EIO" for a call that is done and says
    /// that it failed.
    #[arg(long)]
    pub errno: Option<Fault>,
    /// Only faults that stay.
    #[arg(long, conflicts_with = "once")]
    pub forever: bool,
    /// Only faults that come once.
    #[arg(long)]
    pub once: bool,
    /// Every so many injections alone, for a shorter run.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub every: u32,
    /// How many workers at a time; as many as there are processors without it.
    #[arg(long)]
    pub jobs: Option<usize>,
    /// Where to work; without it on an ext4 of its own, as root, or in the temporary directory.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// One JSON document instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Keep going after so many broken promises.
    #[arg(long, default_value_t = 20)]
    pub most_findings: usize,
    /// Let the workers lie, to show that the checks see it.
    #[arg(long, value_enum)]
    pub lie: Option<actor::Lie>,
    /// Tell what every worker told.
    #[arg(long)]
    pub verbose: bool,
}

/// Runs the matrix and prints it.
///
/// # Errors
/// A broken promise, or the harness'.
pub fn run(arguments: &FaultArguments) -> Result<String, Failure> {
    if !registers::ARE_KNOWN {
        return Err(Failure::Harness(format!(
            "faults are put in by a tracer, which knows x86-64 and aarch64; this is {}",
            std::env::consts::ARCH
        )));
    }
    interrupt::install()?;
    let place = place::Place::make(arguments.dir.as_deref())?;
    let report = matrix::run(arguments, &place)?;
    place.remove()?;
    let text = match arguments.json {
        true => {
            serde_json::to_string(&report).map_err(|e| Failure::Harness(format!("JSON: {e}")))?
        }
        false => report.to_string(),
    };
    match report.findings.first() {
        None => Ok(text),
        Some(first) => {
            // Standard output gets one JSON document, which is what was broken.
            match arguments.json {
                true => eprintln!("{text}"),
                false => println!("{text}"),
            }
            let detail = format!("{}: {}", first.replay, first.broken.join("; "));
            Err(Failure::broken(Promise::FaultsAreHandled, detail))
        }
    }
}
