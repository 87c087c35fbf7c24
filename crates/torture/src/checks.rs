//! The checks of a database: readers check one snapshot at a time; after a kill, everything is
//! checked.

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

/// How long a process tries again while the database is busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// An error of SQLite that the test does not account for.
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

/// How long the database has been busy.
pub struct Patience {
    since: Option<Instant>,
}

impl Patience {
    /// Starts without any wait.
    pub fn new() -> Self {
        Self { since: None }
    }

    /// The database was not busy.
    pub fn renew(&mut self) {
        self.since = None;
    }

    /// The database was busy, with `error`. Waits a little.
    ///
    /// # Errors
    /// [`Promise::Progress`] after half a minute without a renewal. Any error other than busy is
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

/// Connects, and tries again while the database is busy.
///
/// # Errors
/// Any other obstacle.
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

/// Verifies one snapshot, from the end of `known` on. If `hold` is set, keeps it for that long and
/// verifies that it has not changed. Returns its tick.
///
/// # Errors
/// The fault of the snapshot.
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
    // Nothing was written, so COMMIT has nothing to refuse. The first error is the one to report.
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
    /// The process closes its connection.
    Close,
    /// The process kills itself.
    Die,
}

/// The arguments of `check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArguments {
    /// Connection.
    #[command(flatten)]
    pub database: Database,
    /// Directory of the ledgers.
    #[arg(long)]
    pub ledgers: PathBuf,
    /// Treat every missing commit as lost for good, because no writer lives.
    #[arg(long)]
    pub settle: bool,
    /// How to leave the database.
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

/// The counts of a successful full check.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckReport {
    /// Commits in the database.
    pub commits: usize,
    /// Commits that were acknowledged before the check began. All of them are in the database.
    pub acknowledged: usize,
}

/// Checks everything and leaves as the arguments say.
///
/// # Errors
/// The fault that was found.
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

/// Verifies the whole history, the content, `integrity_check`, and the ledgers both ways. Every
/// commit that `before` has as acknowledged is in the database, and every commit in the database
/// was meant. Returns the commits.
///
/// # Errors
/// The fault that was found.
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

/// The same without another try if the database is busy.
///
/// # Errors
/// The fault, or an error of SQLite.
pub fn check_everything_once(
    session: &mut dyn Session,
    before: &Ledgers,
    ledgers: &Path,
) -> Result<BTreeMap<Tick, Commit>, SnapshotError> {
    let read = read_everything(session);
    if read.is_err() {
        // SQLite refuses this if no transaction is open, which is fine.
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

/// Records in every ledger that all intents beyond `tick` are lost. No writer may live.
///
/// # Errors
/// Errors of the file system.
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
