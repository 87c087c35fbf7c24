//! What is checked of a database: one snapshot, by readers all the time; everything, after a kill.

use crate::database::{ConnectError, Database};
use crate::failure::{Failure, Promise};
use crate::ledger::{self, Event, Ledger, Ledgers};
use crate::model::{Commit, Seq, SnapshotError, Tick, Verified, verify_snapshot};
use crate::session::{Session, SqlError, SqlErrorKind, Value};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a process asks again when it is told that the database is busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// An error of SQLite that nothing in the test accounts for.
pub fn unexpected(error: &SqlError) -> Failure {
    Failure::broken(Promise::NoOtherErrors, error.to_string())
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Sql(error) => unexpected(&error),
            ConnectError::Other(failure) => failure,
        }
    }
}

impl From<SnapshotError> for Failure {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Sql(error) => unexpected(&error),
            SnapshotError::Broken(failure) => failure,
        }
    }
}

/// How long somebody has been told that the database is busy.
pub struct Patience {
    since: Option<Instant>,
}

impl Patience {
    /// Nobody has waited yet.
    pub fn new() -> Self {
        Self { since: None }
    }

    /// It was not busy.
    pub fn renew(&mut self) {
        self.since = None;
    }

    /// It was busy, says `error`: waits a little.
    ///
    /// # Errors
    /// [`Promise::Progress`] after half a minute without a renewal; any error other than busy as
    /// unexpected.
    pub fn wait(&mut self, error: &SqlError) -> Result<(), Failure> {
        if error.kind != SqlErrorKind::Busy {
            return Err(unexpected(error));
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() > PATIENCE {
            let detail = format!("busy for {} s: {error}", PATIENCE.as_secs());
            return Err(Failure::broken(Promise::Progress, detail));
        }
        std::thread::sleep(Duration::from_millis(1));
        Ok(())
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self::new()
    }
}

/// Connects, asking again while the database is busy.
///
/// # Errors
/// Whatever else stands in the way.
pub fn connect_patiently(database: &Database) -> Result<Box<dyn Session>, Failure> {
    let mut patience = Patience::new();
    loop {
        match database.connect() {
            Ok(session) => return Ok(session),
            Err(ConnectError::Sql(error)) => patience.wait(&error)?,
            Err(ConnectError::Other(failure)) => return Err(failure),
        }
    }
}

/// One snapshot, verified from where `known` ended; `hold` keeps it for that long and verifies
/// that it has not moved. Returns its tick.
///
/// # Errors
/// What is wrong with it.
pub fn read_snapshot(
    session: &mut dyn Session,
    ledgers: &Path,
    known: &mut Verified,
    hold: Duration,
) -> Result<Tick, SnapshotError> {
    let promised = ledger::latest_acknowledged(ledgers).map_err(SnapshotError::Broken)?;
    session.run("BEGIN", &[])?;
    let mut result = verify_snapshot(session, known).map(drop);
    if result.is_ok() && !hold.is_zero() {
        std::thread::sleep(hold);
        result = verify_again(session, known);
    }
    // Nothing was written, so COMMIT has nothing to refuse; the first error is the one to tell of.
    let ended = session.run("COMMIT", &[]);
    result?;
    ended?;
    if known.tick() < promised {
        let detail = format!(
            "a snapshot at tick {}, begun after tick {} was acknowledged",
            known.tick().0,
            promised.0
        );
        return Err(SnapshotError::Broken(Failure::broken(
            Promise::SnapshotsAreFresh,
            detail,
        )));
    }
    Ok(known.tick())
}

fn verify_again(session: &mut dyn Session, known: &Verified) -> Result<(), SnapshotError> {
    let mut again = known.clone();
    verify_snapshot(session, &mut again)?;
    if (again.tick(), again.chain()) != (known.tick(), known.chain()) {
        let detail = format!(
            "one snapshot was at tick {} and then at {}",
            known.tick().0,
            again.tick().0
        );
        return Err(SnapshotError::Broken(Failure::broken(
            Promise::SnapshotsAreWhole,
            detail,
        )));
    }
    Ok(())
}

/// How a process leaves the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Leave {
    /// It closes its connection.
    Close,
    /// It kills itself.
    Die,
}

/// The arguments of `check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArguments {
    /// How to connect.
    #[command(flatten)]
    pub database: Database,
    /// The directory of the ledgers.
    #[arg(long)]
    pub ledgers: PathBuf,
    /// No writer lives: whatever is not there now is lost for good.
    #[arg(long)]
    pub settle: bool,
    /// How to leave.
    #[arg(long, value_enum, default_value = "close")]
    pub leave: Leave,
}

impl CheckArguments {
    /// The arguments from which clap makes the same value again, subcommand first.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["check".to_owned()];
        arguments.extend(self.database.arguments());
        arguments.extend(["--ledgers".to_owned(), self.ledgers.display().to_string()]);
        arguments.extend([
            "--leave".to_owned(),
            crate::database::value_name(self.leave),
        ]);
        if self.settle {
            arguments.push("--settle".to_owned());
        }
        arguments
    }
}

/// What a full check found in order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckReport {
    /// Commits in the database.
    pub commits: usize,
    /// Commits that were acknowledged before the check began, all of which are there.
    pub acknowledged: usize,
}

/// Checks everything and leaves as told.
///
/// # Errors
/// What is wrong.
pub fn check(arguments: &CheckArguments) -> Result<CheckReport, Failure> {
    let before = Ledgers::read(&arguments.ledgers)?;
    let mut session = connect_patiently(&arguments.database)?;
    let found = check_everything(session.as_mut(), &before, &arguments.ledgers)?;
    if arguments.settle {
        settle(&arguments.ledgers, last_tick(&found))?;
    }
    let report = CheckReport {
        commits: found.len(),
        acknowledged: before.acknowledged(),
    };
    match arguments.leave {
        Leave::Close => session.close().map_err(|error| unexpected(&error))?,
        Leave::Die => {
            println!("{}", serde_json::json!(report));
            session.die();
        }
    }
    Ok(report)
}

/// The last tick among `found`.
pub fn last_tick(found: &BTreeMap<Tick, Commit>) -> Tick {
    found.keys().next_back().copied().unwrap_or(Tick(0))
}

/// Verifies the whole history, the content, `integrity_check`, and the ledgers both ways: what
/// `before` says was acknowledged is there, and what is there was meant. Returns the commits.
///
/// # Errors
/// What is wrong.
pub fn check_everything(
    session: &mut dyn Session,
    before: &Ledgers,
    ledgers: &Path,
) -> Result<BTreeMap<Tick, Commit>, Failure> {
    let mut patience = Patience::new();
    loop {
        match check_everything_once(session, before, ledgers) {
            Ok(found) => return Ok(found),
            Err(SnapshotError::Sql(error)) => patience.wait(&error)?,
            Err(SnapshotError::Broken(failure)) => return Err(failure),
        }
    }
}

/// The same without asking again where the database is busy.
///
/// # Errors
/// What is wrong, or SQLite's.
pub fn check_everything_once(
    session: &mut dyn Session,
    before: &Ledgers,
    ledgers: &Path,
) -> Result<BTreeMap<Tick, Commit>, SnapshotError> {
    let read = read_everything(session);
    if read.is_err() {
        // Refused where no transaction is open, which is well.
        let _ = session.run("ROLLBACK", &[]);
    }
    let found = read?;
    before
        .expect_acknowledged(&found)
        .and_then(|()| Ledgers::read(ledgers)?.expect_nothing_else(&found))
        .map_err(SnapshotError::Broken)?;
    Ok(found)
}

fn read_everything(session: &mut dyn Session) -> Result<BTreeMap<Tick, Commit>, SnapshotError> {
    session.run("BEGIN", &[])?;
    let found = verify_snapshot(session, &mut Verified::default())?;
    let answer = session.rows("PRAGMA integrity_check", &[])?;
    if answer != [[Value::Text("ok".to_owned())]] {
        let detail = format!("{answer:?}");
        return Err(SnapshotError::Broken(Failure::broken(
            Promise::IntegrityCheck,
            detail,
        )));
    }
    session.run("COMMIT", &[])?;
    Ok(found)
}

/// Records in every ledger that whatever was meant beyond `tick` is lost. No writer may live.
///
/// # Errors
/// The file system's.
pub fn settle(ledgers: &Path, tick: Tick) -> Result<(), Failure> {
    for writer in ledger::writers(ledgers)? {
        let mark = Commit {
            writer,
            tick,
            seq: Seq(0),
            chain: 0,
        };
        Ledger::open(ledgers, writer)?.append(Event::Settled, &mark)?;
    }
    Ok(())
}
