//! A worker that runs scripts. The races start such processes once and send them their scripts.
//!
//! A script is one line of JSON on standard input; the reply is one line on standard output. A
//! worker keeps its connection, with its cache, from script to script, because idle connections are
//! a guard's greatest risk. A worker whose script makes it die gives no reply.

use crate::checks::{check_everything_once, last_tick, read_snapshot, settle};
use crate::database::{ConnectError, Database, Engine, JournalMode, switch_mode};
use crate::failure::Failure;
use crate::ledger::{Ledger, Ledgers};
use crate::model::{self, SnapshotError, Verified, WriterId};
use crate::probe;
use crate::processes::{die, die_with_parent, kill_descendant};
use crate::session::{Session, SqlError, SqlErrorKind};
use crate::transactions::{TransactionError, Writer};
use crate::workers::{WorkerArguments, checkpoint, tune};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::os::unix::fs::FileExt;
use std::thread::JoinHandle;
use std::time::Duration;

/// A step of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Opens a connection if there is none, and asks for a mode if one is named.
    Open(Option<JournalMode>),
    /// Closes the connection.
    Close,
    /// Creates the tables that do not exist yet.
    Create,
    /// Verifies a snapshot, keeps it for this many microseconds, and leaves the connection idle.
    Read(u64),
    /// Commits this many transactions.
    Transactions(u64),
    /// Asks for a journal mode; every answer is fine.
    Switch(JournalMode),
    /// Checkpoints.
    Checkpoint,
    /// Changes the limits of the log.
    Tune,
    /// Stops checkpoints by this connection.
    NoCheckpoints,
    /// Waits for this many microseconds.
    Pause(u64),
    /// Dies in the middle of a transaction that has spilled.
    DieInTransaction,
    /// Dies after this many microseconds, whatever it is doing then.
    DieAfter(u64),
    /// Tries everything on a guarded database, and must be refused.
    ExpectRefusals,
    /// Checks everything. A missing commit may still appear: a writer that died between writing a
    /// commit and publishing it left it to the next recovery. There is no recovery while a process
    /// has the database open.
    Check,
    /// Checks everything after all processes have closed. A missing commit is lost.
    CheckAndSettle,
    /// A lie: writes a byte into the database file, which stock SQLite must not do.
    Scribble,
}

/// The outcome of a step.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The step succeeded.
    Done,
    /// Another process held a lock.
    Busy(String),
    /// "file is not a database".
    Refused,
    /// The shell was dead.
    Gone,
    /// The worker found a failure.
    Failed(Failure),
}

/// A worker's answer to a script.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reply {
    /// One outcome a step.
    pub outcomes: Vec<Outcome>,
    /// Whether the worker has a connection now.
    pub is_open: bool,
}

struct Worker {
    database: Database,
    arguments: WorkerArguments,
    writer: Writer,
    session: Option<Box<dyn Session>>,
    known: Verified,
    /// The thread that will kill this worker's SQLite.
    death: Option<JoinHandle<()>>,
}

/// The worker `scripted`: runs scripts until its standard input ends.
///
/// # Errors
/// Errors of the harness. Findings of the scripts are in the replies.
pub fn run(arguments: &WorkerArguments, writer: WriterId) -> Result<(), Failure> {
    die_with_parent()?;
    let ledger = Ledger::open(&arguments.ledgers, writer)?;
    let mut worker = Worker {
        database: arguments.database.clone(),
        arguments: arguments.clone(),
        writer: Writer::new(writer, arguments.seed, ledger, None),
        session: None,
        known: Verified::default(),
        death: None,
    };
    for line in std::io::stdin().lock().lines() {
        let script: Vec<Step> = serde_json::from_str(&line?)
            .map_err(|error| Failure::Harness(format!("not a script: {error}")))?;
        let outcomes = script.iter().map(|step| worker.outcome(*step)).collect();
        worker.meet_death();
        let reply = Reply {
            outcomes,
            is_open: worker.session.is_some(),
        };
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{}", serde_json::json!(reply))?;
        stdout.flush()?;
    }
    Ok(())
}

/// How a step can fail.
enum StepError {
    Sql(SqlError),
    Found(Failure),
}

impl From<SqlError> for StepError {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

impl From<Failure> for StepError {
    fn from(failure: Failure) -> Self {
        Self::Found(failure)
    }
}

impl From<ConnectError> for StepError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Sql(error) => Self::Sql(error),
            ConnectError::Other(failure) => Self::Found(failure),
        }
    }
}

impl From<SnapshotError> for StepError {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Sql(error) => Self::Sql(error),
            SnapshotError::Broken(failure) => Self::Found(failure),
        }
    }
}

impl From<TransactionError> for StepError {
    fn from(error: TransactionError) -> Self {
        match error {
            TransactionError::Sql(error) => Self::Sql(error),
            TransactionError::Harness(failure) => Self::Found(failure),
        }
    }
}

impl Worker {
    fn outcome(&mut self, step: Step) -> Outcome {
        let error = match self.take(step) {
            Ok(()) => return Outcome::Done,
            Err(StepError::Found(failure)) => {
                return Outcome::Failed(failure.at(&format!("{step:?}")));
            }
            Err(StepError::Sql(error)) => error,
        };
        if let Some(session) = &mut self.session {
            // SQLite refuses this if no transaction is open, which is fine.
            let _ = session.run("ROLLBACK", &[]);
        }
        match error.kind {
            SqlErrorKind::Busy => Outcome::Busy(error.to_string()),
            SqlErrorKind::NotADatabase => Outcome::Refused,
            SqlErrorKind::Gone => {
                self.meet_death();
                self.session = None;
                Outcome::Gone
            }
            SqlErrorKind::Other => {
                Outcome::Failed(crate::checks::unexpected(&error).at(&format!("{step:?}")))
            }
        }
    }

    fn take(&mut self, step: Step) -> Result<(), StepError> {
        match step {
            Step::Pause(micros) => std::thread::sleep(Duration::from_micros(micros)),
            Step::Close => return self.close(),
            Step::DieAfter(micros) => return self.die_after(Duration::from_micros(micros)),
            Step::Scribble => return self.scribble(),
            Step::ExpectRefusals => return self.expect_refusals(),
            Step::Open(mode) => {
                self.open(mode)?;
            }
            _ => return self.take_connected(step),
        }
        Ok(())
    }

    fn open(&mut self, mode: Option<JournalMode>) -> Result<&mut Box<dyn Session>, StepError> {
        let session = match self.session.take() {
            Some(mut session) => {
                if let Some(mode) = mode {
                    let switched = crate::database::request_mode(session.as_mut(), mode);
                    self.session = Some(session);
                    switched?;
                    return self.session.as_mut().ok_or_else(no_session);
                }
                session
            }
            None => Database {
                mode,
                ..self.database.clone()
            }
            .connect()?,
        };
        Ok(self.session.insert(session))
    }

    fn close(&mut self) -> Result<(), StepError> {
        self.meet_death();
        match self.session.take() {
            Some(session) => Ok(session.close()?),
            None => Ok(()),
        }
    }

    fn take_connected(&mut self, step: Step) -> Result<(), StepError> {
        self.open(None)?;
        let Self {
            session,
            writer,
            known,
            arguments,
            ..
        } = self;
        let session = session.as_mut().ok_or_else(no_session)?.as_mut();
        let ledgers = &arguments.ledgers;
        match step {
            Step::Create => model::create(session)?,
            Step::Read(hold) => {
                read_snapshot(session, ledgers, known, Duration::from_micros(hold))?;
            }
            Step::Transactions(count) => {
                for _ in 0..count {
                    writer.transaction(session)?;
                }
            }
            Step::Switch(mode) => {
                switch_mode(session, mode)?;
            }
            Step::Checkpoint => checkpoint(session, writer.random())?,
            Step::Tune => tune(session, writer.random())?,
            Step::NoCheckpoints => session.run("PRAGMA wal_autocheckpoint=0", &[])?,
            Step::DieInTransaction => {
                writer.die_in_transaction(session)?;
                // This returns only for the shell.
                self.session = None;
            }
            Step::Check | Step::CheckAndSettle => {
                let before = Ledgers::read(ledgers)?;
                let found = check_everything_once(session, &before, ledgers)?;
                if step == Step::CheckAndSettle {
                    settle(ledgers, last_tick(&found))?;
                }
            }
            _ => return Err(Failure::Harness(format!("{step:?} needs no connection")).into()),
        }
        Ok(())
    }

    /// Without a connection, opens one and sets nothing, because a pragma would be refused.
    fn expect_refusals(&mut self) -> Result<(), StepError> {
        let session = match self.session.take() {
            Some(session) => session,
            None => self.database.open()?,
        };
        Ok(probe::expect_refusals(
            self.session.insert(session).as_mut(),
        )?)
    }

    /// Starts the thread that kills this process. For the shell, it kills the shell's process; this
    /// process reaps that one only after the thread has ended.
    fn die_after(&mut self, delay: Duration) -> Result<(), StepError> {
        self.meet_death();
        let victim = match self.database.engine {
            Engine::Shell => Some(self.open(None)?.process_id()),
            Engine::Ours | Engine::Stock => None,
        };
        self.death = Some(std::thread::spawn(move || {
            std::thread::sleep(delay);
            match victim {
                Some(process) => kill_descendant(process),
                None => die(),
            }
        }));
        Ok(())
    }

    /// Waits for the killing thread.
    fn meet_death(&mut self) {
        if let Some(death) = self.death.take() {
            // With a linked SQLite this does not return.
            let _ = death.join();
            self.session = None;
        }
    }

    fn scribble(&self) -> Result<(), StepError> {
        let path = &self.database.db;
        let mut byte = [0u8; 1];
        std::fs::File::options()
            .read(true)
            .write(true)
            .open(path)
            .and_then(|file| {
                file.read_exact_at(&mut byte, 4000)?;
                file.write_all_at(&[byte[0] ^ 1], 4000)
            })
            .map_err(|error| Failure::io("scribble on", path, error).into())
    }
}

fn no_session() -> StepError {
    StepError::Found(Failure::Harness("the connection has vanished".to_owned()))
}
