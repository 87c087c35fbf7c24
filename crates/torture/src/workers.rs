//! The processes that run until they are killed: writers and readers.

use crate::checks::{Patience, connect_patiently, read_snapshot, unexpected};
use crate::database::Database;
use crate::failure::Failure;
use crate::ledger::Ledger;
use crate::model::{SnapshotError, Verified, WriterId};
use crate::random::Random;
use crate::session::{Session, SqlError};
use crate::transactions::{Lie, TransactionError, Writer};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// The arguments that writers and readers share.
#[derive(Debug, Clone, Args)]
pub struct WorkerArguments {
    /// Connection.
    #[command(flatten)]
    pub database: Database,
    /// Directory of the ledgers.
    #[arg(long)]
    pub ledgers: PathBuf,
    /// Seed that fixes every choice.
    #[arg(long)]
    pub seed: u64,
}

impl WorkerArguments {
    fn arguments(&self, subcommand: &str) -> Vec<String> {
        let mut arguments = vec![subcommand.to_owned()];
        arguments.extend(self.database.arguments());
        arguments.extend(["--ledgers".to_owned(), self.ledgers.display().to_string()]);
        arguments.extend(["--seed".to_owned(), self.seed.to_string()]);
        arguments
    }

    /// The arguments of a reader.
    pub fn reader_arguments(&self) -> Vec<String> {
        self.arguments("reader")
    }

    /// The arguments of a worker that runs scripts.
    pub fn scripted_arguments(&self, writer: WriterId) -> Vec<String> {
        let mut arguments = self.arguments("scripted");
        arguments.extend(["--writer".to_owned(), writer.0.to_string()]);
        arguments
    }

    /// The arguments of a process of writers. Each writer has a thread and a connection of its own.
    pub fn writer_arguments(&self, writers: &[WriterId], lie: Option<Lie>) -> Vec<String> {
        let mut arguments = self.arguments("writer");
        for writer in writers {
            arguments.extend(["--writer".to_owned(), writer.0.to_string()]);
        }
        if let Some(lie) = lie {
            arguments.extend(["--lie".to_owned(), crate::database::value_name(lie)]);
        }
        arguments
    }
}

/// The next action of a writer.
#[derive(Debug, Clone, Copy)]
enum Step {
    Transaction,
    Checkpoint,
    Reopen,
    Tune,
    Vacuum,
    Pause,
}

const STEPS: [(Step, u64); 6] = [
    (Step::Transaction, 870),
    (Step::Checkpoint, 40),
    (Step::Reopen, 40),
    (Step::Tune, 20),
    (Step::Vacuum, 2),
    (Step::Pause, 28),
];

/// Writes until it is killed, each writer on a thread of its own.
///
/// # Errors
/// The first failure that one of them finds.
pub fn write(
    arguments: &WorkerArguments,
    writers: &[WriterId],
    lie: Option<Lie>,
) -> Result<(), Failure> {
    crate::processes::die_with_parent()?;
    if let [writer] = writers {
        return write_as(arguments, *writer, lie);
    }
    let (found, first) = std::sync::mpsc::channel();
    for writer in writers.iter().copied() {
        let found = found.clone();
        let mut arguments = arguments.clone();
        // Each writer makes its own choices.
        arguments.seed ^= u64::from(writer.0) << 32;
        std::thread::spawn(move || found.send(write_as(&arguments, writer, lie)));
    }
    drop(found);
    // When this thread ends, so does the process.
    let none = || Failure::Harness("no writer says how it ended".to_owned());
    first.recv().map_err(|_| none())?
}

fn write_as(
    arguments: &WorkerArguments,
    writer: WriterId,
    lie: Option<Lie>,
) -> Result<(), Failure> {
    let ledger = Ledger::open(&arguments.ledgers, writer)?;
    let mut writer = Writer::new(writer, arguments.seed, ledger, lie);
    let mut session = connect_patiently(&arguments.database)?;
    let mut patience = Patience::new();
    loop {
        let weights = STEPS.map(|(_, weight)| weight);
        let step = STEPS[writer.random().weighted(&weights)].0;
        if let Step::Reopen = step {
            session.close().map_err(|error| unexpected(&error))?;
            let pause = writer.random().pause(Duration::from_millis(3));
            std::thread::sleep(pause);
            session = connect_patiently(&arguments.database)?;
            continue;
        }
        match take(step, &mut writer, session.as_mut()) {
            Ok(()) => patience.renew(),
            Err(TransactionError::Sql(error)) => patience.wait(&error)?,
            Err(TransactionError::Harness(failure)) => return Err(failure),
        }
    }
}

fn take(
    step: Step,
    writer: &mut Writer,
    session: &mut dyn Session,
) -> Result<(), TransactionError> {
    match step {
        Step::Transaction => writer.transaction(session),
        Step::Checkpoint => Ok(checkpoint(session, writer.random())?),
        Step::Tune => Ok(tune(session, writer.random())?),
        Step::Vacuum => match session.run("VACUUM", &[]) {
            // A reader keeps LS-MVBT's pages where they are.
            Err(error) if error.message.contains("a connection reads version") => Ok(()),
            done => Ok(done?),
        },
        Step::Pause | Step::Reopen => {
            std::thread::sleep(writer.random().pause(Duration::from_millis(5)));
            Ok(())
        }
    }
}

/// A checkpoint of any kind.
///
/// # Errors
/// Errors of SQLite.
pub fn checkpoint(session: &mut dyn Session, random: &mut Random) -> Result<(), SqlError> {
    let kind = random.choose(&["PASSIVE", "FULL", "RESTART", "TRUNCATE"]);
    session.run(&format!("PRAGMA wal_checkpoint({kind})"), &[])
}

/// Changes the limits that decide when the log restarts and how long it stays.
///
/// # Errors
/// Errors of SQLite.
pub fn tune(session: &mut dyn Session, random: &mut Random) -> Result<(), SqlError> {
    if random.one_in(2) {
        let frames = random.choose(&["0", "10", "60", "300", "1000"]);
        session.run(&format!("PRAGMA wal_autocheckpoint={frames}"), &[])
    } else {
        let bytes = random.choose(&["-1", "0", "40000", "1000000"]);
        session.run(&format!("PRAGMA journal_size_limit={bytes}"), &[])
    }
}

/// Verifies snapshots until it is killed.
///
/// # Errors
/// The failure that it finds.
pub fn read(arguments: &WorkerArguments) -> Result<(), Failure> {
    crate::processes::die_with_parent()?;
    let mut random = Random::new(arguments.seed);
    let mut session = connect_patiently(&arguments.database)?;
    let mut known = Verified::default();
    let mut patience = Patience::new();
    loop {
        let hold = match random.below(8) {
            0 => random.pause(Duration::from_millis(30)),
            _ => Duration::ZERO,
        };
        match read_snapshot(session.as_mut(), &arguments.ledgers, &mut known, hold) {
            Ok(_) => patience.renew(),
            Err(SnapshotError::Sql(error)) => {
                // SQLite refuses this if it has already rolled back.
                let _ = session.run("ROLLBACK", &[]);
                patience.wait(&error)?;
            }
            Err(SnapshotError::Broken(failure)) => return Err(failure),
        }
        if random.one_in(10) {
            session.close().map_err(|error| unexpected(&error))?;
            session = connect_patiently(&arguments.database)?;
        }
        std::thread::sleep(random.pause(Duration::from_millis(4)));
    }
}
