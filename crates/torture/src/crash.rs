//! The state after a crash. Stock SQLite cannot use a guarded database that nobody has open, and
//! changes no byte of it. Our SQLite recovers it. After a clean close, stock SQLite finds
//! everything.

use crate::checks::Leave;
use crate::failure::{Failure, Promise};
use crate::files::Watched;
use crate::ledger;
use crate::model::WriterId;
use crate::probe;
use crate::processes::Worker;
use crate::setup::{Settle, Setup, SetupArguments, TestDatabase};
use crate::workers::WorkerArguments;
use clap::Args;
use serde::Serialize;
use std::time::{Duration, Instant};

/// The arguments of `crash`.
#[derive(Debug, Clone, Args)]
pub struct CrashArguments {
    /// Directory, settings and seed.
    #[command(flatten)]
    pub setup: SetupArguments,
    /// Number of crashes.
    #[arg(long, default_value_t = 10)]
    pub crashes: u64,
}

/// The results of a run.
#[derive(Debug, Default, Serialize)]
pub struct CrashReport {
    /// The seed.
    pub seed: u64,
    /// Crashes that left a guarded database.
    pub crashes: u64,
    /// Commits that were acknowledged; stock has found all of them.
    pub acknowledged: usize,
    /// The stock SQLites that took part.
    pub stock: Vec<String>,
    /// Seconds.
    pub elapsed_s: f64,
}

/// Makes crashes and checks the files.
///
/// # Errors
/// The failure that was found.
pub fn run(arguments: &CrashArguments) -> Result<CrashReport, Failure> {
    let setup = Setup::new(&arguments.setup)?;
    let result = all_crashes(arguments, &setup);
    setup.finish(result)
}

fn all_crashes(arguments: &CrashArguments, setup: &Setup) -> Result<CrashReport, Failure> {
    let test = setup.test_database(0)?;
    let ours = test.connection(&arguments.setup);
    setup.create(&test, &arguments.setup)?;
    let mut seeds = setup.random();
    let mut report = CrashReport {
        seed: setup.seed(),
        ..CrashReport::default()
    };
    for _ in 0..arguments.crashes {
        crash_while_guarded(arguments, setup, &test, seeds.next())?;
        probe::expect_refused(setup, &test.database, Watched::DatabaseAndLog)?;
        setup.check(&test, ours.clone(), Settle::Yes, Leave::Close)?;
        probe::expect_stock_header(&test.database)?;
        for engine in probe::stock_engines() {
            let found = setup.check(&test, ours.through(engine), Settle::Yes, Leave::Close)?;
            report.acknowledged = found.acknowledged;
        }
        report.crashes += 1;
    }
    report.stock = probe::stock_engines()
        .iter()
        .map(|engine| format!("{engine:?}"))
        .collect();
    report.elapsed_s = setup.elapsed_seconds();
    Ok(report)
}

/// Kills a writer until it leaves a guarded database. A writer sometimes closes, and a kill may hit
/// that moment.
fn crash_while_guarded(
    arguments: &CrashArguments,
    setup: &Setup,
    test: &TestDatabase,
    seed: u64,
) -> Result<(), Failure> {
    let writer = WriterId(0);
    let worker = WorkerArguments {
        database: test.connection(&arguments.setup),
        ledgers: test.ledgers.clone(),
        seed,
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        let before = ledger::read(&test.ledgers, writer)?.len();
        let mut process = Worker::start(
            "writer",
            &worker.writer_arguments(&[writer], None),
            &setup.log(),
        )?;
        while ledger::read(&test.ledgers, writer)?.len() < before + 20 {
            process.check()?;
            if Instant::now() > deadline {
                let detail = "the writer has not committed for 30 s";
                return Err(Failure::broken(Promise::Progress, detail));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        process.kill()?;
        if probe::is_guarded(&test.database)? {
            return Ok(());
        }
    }
    let detail = "no kill has left a guarded database for 30 s";
    Err(Failure::broken(Promise::StockIsRefused, detail))
}
