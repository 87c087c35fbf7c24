//! The `onewrite-lab` command: the evidence behind onewrite. It cuts the power of recorded
//! workloads, repeats the papers' measurements, and compares modes over a grid. Users of onewrite do not need it.
//!
//! It shares comparisons, scratch file systems and reports with the `onewrite` command.

mod history;
mod matrix;
mod powercut;
mod reproduce;
mod sizes;
mod soak;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use onewrite_cli::{compare, device, exit, ftl};

/// The evidence behind onewrite: power cuts, and the tables and figures of five papers.
#[derive(Parser)]
#[command(name = "onewrite-lab", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Cut the power at many points of a recorded workload, and check what survives (root)
    #[command(after_long_help = powercut::AFTER_HELP)]
    Powercut(powercut::Args),
    /// Measure what a paper's tables and figures show, and print the paper's values next to ours
    #[command(after_long_help = reproduce::AFTER_HELP)]
    Reproduce(Box<reproduce::Args>),
    /// Compare stock WAL and our modes over a grid, and show where a mode is worse (root)
    #[command(after_long_help = matrix::AFTER_HELP)]
    Matrix(matrix::Args),
    /// Several programs on one database under kills, full disks and power cuts, checked (root)
    #[command(after_long_help = soak::AFTER_HELP)]
    Soak(soak::Args),
    /// Count what a commit and a recovery cost by the size of the database (root)
    #[command(after_long_help = sizes::AFTER_HELP)]
    Sizes(sizes::Args),
    /// Check a history of list-append transactions for strict serializability
    #[command(after_long_help = history::AFTER_HELP)]
    CheckHistory(history::Args),
    /// Run one process of `soak`: its job as JSON
    #[command(hide = true)]
    SoakWorker {
        #[arg(allow_hyphen_values = true)]
        job: String,
    },
    /// Run one process of `sizes`: its job as JSON
    #[command(hide = true)]
    SizesWorker {
        #[arg(allow_hyphen_values = true)]
        job: String,
    },
    /// Mount and check the device of `powercut` (internal process)
    #[command(hide = true)]
    PowercutWorker,
    /// Run a process of a comparison; reads its job from standard input
    #[command(hide = true)]
    CompareWorker,
    /// Answer a modelled device (internal process); reads its orders from standard input
    #[command(hide = true)]
    DeviceServer,
    /// Mount the flash device of `reproduce xftl` (internal process)
    #[command(hide = true)]
    Ftl(ftl::Args),
}

fn main() -> ExitCode {
    #[cfg(feature = "lsmvbt")]
    lsmvbt_sqlite::link();
    let outcome = match Cli::parse().command {
        Command::Powercut(args) => powercut::run(&args),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Matrix(args) => matrix::run(&args),
        Command::CheckHistory(args) => history::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::Sizes(args) => sizes::run(&args),
        Command::SizesWorker { job } => sizes::run_worker(&job),
        Command::SoakWorker { job } => soak::run_worker(&job),
        Command::PowercutWorker => powercut::run_worker(),
        Command::CompareWorker => compare::run_worker(),
        Command::DeviceServer => device::run_server(),
        Command::Ftl(args) => ftl::run(&args),
    };
    exit("onewrite-lab", outcome)
}
