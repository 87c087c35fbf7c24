//! The `onewrite-lab` command: the evidence behind onewrite. It cuts the power of recorded workloads
//! and runs what the papers measured. Users of onewrite do not need it.
//!
//! It shares comparisons, scratch file systems and reports with the `onewrite` command.

mod powercut;
mod reproduce;

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
    /// Cut the power at many places of a recorded workload, and check what survives (root)
    #[command(after_long_help = powercut::AFTER_HELP)]
    Powercut(powercut::Args),
    /// Run what a paper's tables and figures show, and print the paper's values next to ours
    #[command(after_long_help = reproduce::AFTER_HELP)]
    Reproduce(reproduce::Args),
    /// The process of `powercut` that mounts and checks
    #[command(hide = true)]
    PowercutWorker,
    /// A process of a comparison; reads its job from standard input
    #[command(hide = true)]
    CompareWorker,
    /// The process that answers a modelled device; reads its orders from standard input
    #[command(hide = true)]
    DeviceServer,
    /// The process that mounts the flash device of `reproduce xftl`
    #[command(hide = true)]
    Ftl(ftl::Args),
}

fn main() -> ExitCode {
    #[cfg(feature = "lsmvbt")]
    lsmvbt_sqlite::link();
    let outcome = match Cli::parse().command {
        Command::Powercut(args) => powercut::run(&args),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::PowercutWorker => powercut::run_worker(),
        Command::CompareWorker => compare::run_worker(),
        Command::DeviceServer => device::run_server(),
        Command::Ftl(args) => ftl::run(&args),
    };
    exit("onewrite-lab", outcome)
}
