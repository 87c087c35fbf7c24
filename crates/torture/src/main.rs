//! The command `onewrite-torture`: orchestrators, and the workers that they start.
//!
//! An orchestrator prints one JSON document on standard output. Exit code 1: a promise of the
//! engine was broken; 2: the harness could not do its work. In both cases standard error has the
//! reason.

use clap::{Parser, Subcommand};
use onewrite_torture::checks::{self, CheckArguments, connect_patiently};
use onewrite_torture::crash::{self, CrashArguments};
use onewrite_torture::database::{Database, Engine};
use onewrite_torture::failure::Failure;
use onewrite_torture::faults::conditions::{self, ConditionArguments};
use onewrite_torture::faults::{self, FaultArguments, inspect, worker as fault_worker};
use onewrite_torture::group_synch::{self, GroupSynchArguments, RingArguments};
use onewrite_torture::kill::{self, KillArguments};
use onewrite_torture::model::{self, WriterId};
use onewrite_torture::races::{self, RaceArguments};
use onewrite_torture::soak::{self, SoakArguments};
use onewrite_torture::transactions::Lie;
use onewrite_torture::workers::{self, WorkerArguments};
use onewrite_torture::{probe, processes, scripted};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Torture onewrite's journal modes.
#[derive(Debug, Parser)]
#[command(name = "onewrite-torture", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Kill processes at random moments, and check after each.
    Kill(KillArguments),
    /// Kill a process that uses group synch, and measure its loss.
    GroupSynch(GroupSynchArguments),
    /// Let stock SQLite and ours race for one database.
    Races(RaceArguments),
    /// Kill a writer, and let stock SQLite try the guarded database.
    Crash(CrashArguments),
    /// Run a bank on a chosen SQLite, under kills, checkpoints and long readers.
    Soak(SoakArguments),
    /// Make every system call fail in turn, and check after each.
    Faults(FaultArguments),
    /// Worker: run a scenario while a call fails.
    FaultWorker(fault_worker::WorkerArguments),
    /// Worker: make a condition, and report the results.
    FaultCondition(ConditionArguments),
    /// Worker: report the content of databases.
    FaultChecker,
    /// Worker: run the scripts from standard input.
    Scripted {
        /// Connection, ledgers and seed.
        #[command(flatten)]
        worker: WorkerArguments,
        /// Number of the writer.
        #[arg(long)]
        writer: u32,
    },
    /// Worker: create the tables.
    Create {
        /// Connection.
        #[command(flatten)]
        database: Database,
    },
    /// Worker: write until killed.
    Writer {
        /// Connection, ledgers and seed.
        #[command(flatten)]
        worker: WorkerArguments,
        /// Numbers of the writers; several have a thread each.
        #[arg(long, required = true)]
        writer: Vec<u32>,
        /// Lie of the writers.
        #[arg(long, value_enum)]
        lie: Option<Lie>,
    },
    /// Worker: verify snapshots until killed.
    Reader {
        /// Connection, ledgers and seed.
        #[command(flatten)]
        worker: WorkerArguments,
    },
    /// Worker: check everything.
    Check(CheckArguments),
    /// Worker: commit one frame at a time until killed.
    RingWriter(RingArguments),
    /// Worker: check the files of the ring writer.
    RingCheck {
        /// Connection.
        #[command(flatten)]
        database: Database,
    },
    /// Worker: keep the database open alongside the ring writer.
    RingCompanion {
        /// Connection.
        #[command(flatten)]
        database: Database,
        /// File to create after the first read.
        #[arg(long)]
        ready: PathBuf,
    },
    /// Worker: try to use a guarded database with stock SQLite.
    Probe {
        /// Database file.
        #[arg(long)]
        db: PathBuf,
        /// Stock SQLite to use.
        #[arg(long, value_enum)]
        engine: Engine,
    },
}

fn main() -> ExitCode {
    #[cfg(feature = "lsmvbt")]
    lsmvbt_sqlite::link();
    if let Err(failure) = faults::print_log() {
        eprintln!("{failure}");
    }
    match run(Arguments::parse().command) {
        Ok(document) => {
            println!("{document}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{}", serde_json::json!(failure));
            eprintln!("{failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(command: Command) -> Result<String, Failure> {
    match command {
        Command::Kill(arguments) => document(&kill::run(&arguments)?),
        Command::Soak(arguments) => document(&soak::run(&arguments)?),
        Command::GroupSynch(arguments) => document(&group_synch::run(&arguments)?),
        Command::RingWriter(arguments) => document(&group_synch::write(&arguments)?),
        Command::RingCheck { database } => document(&group_synch::check(&database)?),
        Command::RingCompanion { database, ready } => {
            document(&group_synch::accompany(&database, &ready)?)
        }
        Command::Faults(arguments) => faults::run(&arguments),
        Command::FaultWorker(arguments) => document(&fault_worker::run(&arguments)?),
        Command::FaultCondition(arguments) => document(&conditions::work(&arguments)?),
        Command::FaultChecker => document(&inspect::serve()?),
        Command::Crash(arguments) => document(&crash::run(&arguments)?),
        Command::Races(arguments) => document(&races::run(&arguments)?),
        Command::Scripted { worker, writer } => {
            document(&scripted::run(&worker, WriterId(writer))?)
        }
        Command::Create { database } => document(&create(&database)?),
        Command::Writer {
            worker,
            writer,
            lie,
        } => {
            let writers: Vec<_> = writer.into_iter().map(WriterId).collect();
            document(&workers::write(&worker, &writers, lie)?)
        }
        Command::Reader { worker } => document(&workers::read(&worker)?),
        Command::Check(arguments) => {
            processes::die_with_parent()?;
            document(&checks::check(&arguments)?)
        }
        Command::Probe { db, engine } => {
            processes::die_with_parent()?;
            document(&probe::run(&db, engine)?)
        }
    }
}

fn create(database: &Database) -> Result<(), Failure> {
    processes::die_with_parent()?;
    let mut session = connect_patiently(database)?;
    model::create(session.as_mut()).map_err(|error| checks::unexpected(&error))?;
    session.close().map_err(|error| checks::unexpected(&error))
}

fn document(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::Harness(format!("JSON: {error}")))
}
