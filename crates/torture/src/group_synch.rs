//! The loss bound of group synch. A killed process that had the database alone may lose
//! acknowledged commits. It loses at most the newest N frames or T milliseconds, and never out of
//! order. A process in company loses nothing.
//!
//! Commit number s writes s into table s mod 8. Each table is one page, so a commit is one frame,
//! for another page than the seven before it. After a kill the tables must match a prefix of the
//! commits.

use crate::checks::{Patience, connect_patiently, unexpected};
use crate::database::Database;
use crate::failure::{Failure, Promise};
use crate::ledger::{self, Event, Ledger, Record, now_nanoseconds};
use crate::model::{Commit, Seq, Tick, WriterId};
use crate::processes::Worker;
use crate::random::Random;
use crate::session::{Session, SqlError, integer};
use crate::setup::{Setup, SetupArguments, TestDatabase};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const TABLES: i64 = 8;
const WRITER: WriterId = WriterId(0);
/// Bounds of the time for which a lying writer holds its commits back.
const HELD_AT_LEAST: Duration = Duration::from_millis(5);
const HELD_AT_MOST: Duration = Duration::from_secs(1);

/// The arguments of `group-synch`. `--group-synch` sets the bound; without it nothing may be lost.
#[derive(Debug, Clone, Args)]
pub struct GroupSynchArguments {
    /// Directory, settings and seed.
    #[command(flatten)]
    pub setup: SetupArguments,
    /// Number of kills of the writer.
    #[arg(long, default_value_t = 40)]
    pub kills: u64,
    /// Milliseconds that scheduling may add to the bound.
    #[arg(long, default_value_t = 100)]
    pub tolerance_ms: u64,
    /// Lie, to show that the check finds it: acknowledge this many commits one by one, but commit
    /// them together.
    #[arg(long, default_value_t = 1)]
    pub hoard: i64,
}

/// The results of a run.
#[derive(Debug, Default, Serialize)]
pub struct GroupSynchReport {
    /// The seed.
    pub seed: u64,
    /// Kills of the writer while it was alone.
    pub kills_alone: u64,
    /// Kills while another process had the database open.
    pub kills_in_company: u64,
    /// Commits that were acknowledged.
    pub acknowledged: u64,
    /// Acknowledged commits that were lost, all by a writer that was alone.
    pub lost: u64,
    /// The most that one kill lost.
    pub most_lost: u64,
    /// The greatest age of a lost commit when its writer was dead, in microseconds.
    pub oldest_lost_us: u64,
    /// Seconds.
    pub elapsed_s: f64,
    /// Whether the time ended before all kills were done.
    pub stopped_early: bool,
}

/// The bound: frames and milliseconds.
#[derive(Debug, Clone, Copy)]
struct Bound {
    frames: u64,
    milliseconds: u64,
}

impl Bound {
    const NOTHING: Self = Self {
        frames: 0,
        milliseconds: 0,
    };

    fn parse(text: Option<&str>) -> Result<Self, Failure> {
        let Some(text) = text else {
            return Ok(Self::NOTHING);
        };
        text.split_once(',')
            .and_then(|(frames, milliseconds)| {
                Some(Self {
                    frames: frames.trim().parse().ok()?,
                    milliseconds: milliseconds.trim().parse().ok()?,
                })
            })
            .ok_or_else(|| {
                Failure::Harness(format!(
                    "--group-synch {text:?} is not 'frames,milliseconds'"
                ))
            })
    }
}

/// Kills and checks.
///
/// # Errors
/// The failure that was found.
pub fn run(arguments: &GroupSynchArguments) -> Result<GroupSynchReport, Failure> {
    let setup = Setup::new(&arguments.setup)?;
    let result = all_kills(arguments, &setup);
    setup.finish(result)
}

fn all_kills(arguments: &GroupSynchArguments, setup: &Setup) -> Result<GroupSynchReport, Failure> {
    let bound = Bound::parse(arguments.setup.group_synch.as_deref())?;
    let test = setup.test_database(0)?;
    let mut random = setup.random();
    let mut report = GroupSynchReport {
        seed: setup.seed(),
        ..GroupSynchReport::default()
    };
    survivors(arguments, setup, &test)?;
    let mut seen = 0;
    for kill in 0..arguments.kills {
        if setup.is_over() {
            report.stopped_early = true;
            break;
        }
        let company = kill % 4 == 3;
        let dead_at = one_kill(arguments, setup, &test, &mut random, company)?;
        let survived = survivors(arguments, setup, &test)?;
        let records = ledger::read(&test.ledgers, WRITER)?;
        let loss = Loss::of(&records[seen..], survived, dead_at);
        seen = records.len();
        let bound = if company { Bound::NOTHING } else { bound };
        loss.check(bound, arguments.tolerance_ms, &format!("kill {kill}"))?;
        loss.add_to(&mut report, company);
    }
    report.elapsed_s = setup.elapsed_seconds();
    Ok(report)
}

/// Starts a writer, kills it, and returns the time of its death.
fn one_kill(
    arguments: &GroupSynchArguments,
    setup: &Setup,
    test: &TestDatabase,
    random: &mut Random,
    company: bool,
) -> Result<u64, Failure> {
    let ring = RingArguments {
        database: test.connection(&arguments.setup),
        ledgers: test.ledgers.clone(),
        // Half of the writers leave enough time between commits for the interval to end a group.
        pause_us: *random.choose(&[0, 0, 0, 300, 1500, 6000]),
        hoard: arguments.hoard,
    };
    let mut writer = Worker::start("ring writer", &ring.arguments(), &setup.log())?;
    wait_for_commits(&mut writer, test)?;
    let companion = if company {
        Some(start_companion(&ring, setup, test)?)
    } else {
        None
    };
    std::thread::sleep(Duration::from_millis(2) + random.pause(Duration::from_millis(60)));
    writer.kill()?;
    let dead_at = now_nanoseconds();
    companion.map_or(Ok(()), Worker::kill)?;
    Ok(dead_at)
}

fn acknowledged(records: &[Record]) -> impl Iterator<Item = &Record> {
    records
        .iter()
        .filter(|record| record.event == Event::Acknowledged)
}

fn wait_for_commits(writer: &mut Worker, test: &TestDatabase) -> Result<(), Failure> {
    let before = ledger::read(&test.ledgers, WRITER)?.len();
    let deadline = Instant::now() + Duration::from_secs(30);
    while ledger::read(&test.ledgers, WRITER)?.len() < before + 2 {
        writer.check()?;
        if Instant::now() > deadline {
            let detail = "the ring writer has not committed for 30 s";
            return Err(Failure::broken(Promise::Progress, detail));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// Starts a process that opens the database and reads it. Waits until it has done so, and until the
/// writer has committed since.
fn start_companion(
    ring: &RingArguments,
    setup: &Setup,
    test: &TestDatabase,
) -> Result<Worker, Failure> {
    let ready = test.ledgers.join("companion-is-ready");
    let _ = std::fs::remove_file(&ready); // it exists from the second time on
    let mut arguments = vec!["ring-companion".to_owned()];
    arguments.extend(ring.database.arguments());
    arguments.extend(["--ready".to_owned(), ready.display().to_string()]);
    let mut companion = Worker::start("ring companion", &arguments, &setup.log())?;
    let deadline = Instant::now() + Duration::from_secs(30);
    while !ready.exists() {
        companion.check()?;
        if Instant::now() > deadline {
            let detail = "the companion could not read for 30 s";
            return Err(Failure::broken(Promise::Progress, detail));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    wait_for_commits(&mut companion, test)?;
    Ok(companion)
}

fn survivors(
    arguments: &GroupSynchArguments,
    setup: &Setup,
    test: &TestDatabase,
) -> Result<i64, Failure> {
    let mut check = vec!["ring-check".to_owned()];
    check.extend(test.connection(&arguments.setup).arguments());
    let output = setup.run("ring check", &check)?;
    let survivors: Survivors = serde_json::from_str(output.trim())
        .map_err(|error| Failure::Harness(format!("ring-check said {output:?}: {error}")))?;
    Ok(survivors.last)
}

/// The loss of one kill.
struct Loss {
    acknowledged: u64,
    last_intent: i64,
    survived: i64,
    lost: u64,
    oldest_us: u64,
}

impl Loss {
    fn of(records: &[Record], survived: i64, dead_at: u64) -> Self {
        let lost = |record: &&Record| record.commit.tick.0 > survived;
        let oldest = acknowledged(records)
            .find(lost)
            .map(|record| record.nanoseconds);
        Self {
            acknowledged: acknowledged(records).count() as u64,
            last_intent: records.iter().map(|r| r.commit.tick.0).max().unwrap_or(0),
            survived,
            lost: acknowledged(records).filter(lost).count() as u64,
            oldest_us: oldest.map_or(0, |at| dead_at.saturating_sub(at) / 1000),
        }
    }

    fn check(&self, bound: Bound, tolerance_ms: u64, context: &str) -> Result<(), Failure> {
        let late = self.oldest_us > (bound.milliseconds + tolerance_ms) * 1000;
        if self.lost > bound.frames || (self.lost > 0 && late) {
            let detail = format!(
                "{context}: {} acknowledged commits lost, the oldest {} us old; {bound:?} allows \
                 fewer or younger ones (tolerance {tolerance_ms} ms)",
                self.lost, self.oldest_us
            );
            return Err(Failure::broken(Promise::GroupSynchBound, detail));
        }
        if self.survived > self.last_intent {
            let detail = format!(
                "{context}: commit {} survived, {} is the last",
                self.survived, self.last_intent
            );
            return Err(Failure::broken(Promise::NothingElseAppears, detail));
        }
        Ok(())
    }

    fn add_to(&self, report: &mut GroupSynchReport, company: bool) {
        if company {
            report.kills_in_company += 1;
        } else {
            report.kills_alone += 1;
        }
        report.acknowledged += self.acknowledged;
        report.lost += self.lost;
        report.most_lost = report.most_lost.max(self.lost);
        report.oldest_lost_us = report.oldest_lost_us.max(self.oldest_us);
    }
}

/// The arguments of the writer.
#[derive(Debug, Clone, Args)]
pub struct RingArguments {
    /// Connection.
    #[command(flatten)]
    pub database: Database,
    /// Directory of the ledger.
    #[arg(long)]
    pub ledgers: PathBuf,
    /// Time between two commits, in microseconds.
    #[arg(long)]
    pub pause_us: u64,
    /// Number of commits that are acknowledged one by one but committed together.
    #[arg(long)]
    pub hoard: i64,
}

impl RingArguments {
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["ring-writer".to_owned()];
        arguments.extend(self.database.arguments());
        arguments.extend(["--ledgers".to_owned(), self.ledgers.display().to_string()]);
        arguments.extend(["--pause-us".to_owned(), self.pause_us.to_string()]);
        arguments.extend(["--hoard".to_owned(), self.hoard.to_string()]);
        arguments
    }
}

/// The worker `ring-writer`: commits until it is killed.
///
/// # Errors
/// Errors of SQLite.
pub fn write(arguments: &RingArguments) -> Result<(), Failure> {
    crate::processes::die_with_parent()?;
    let mut ledger = Ledger::open(&arguments.ledgers, WRITER)?;
    let mut session = connect_patiently(&arguments.database)?;
    let mut last = read_ring(session.as_mut())?;
    let mut patience = Patience::new();
    let mut commit_took = Duration::ZERO;
    loop {
        match write_some(
            session.as_mut(),
            &mut ledger,
            last,
            arguments.hoard,
            &mut commit_took,
        ) {
            Ok(()) => {
                last += arguments.hoard;
                patience.renew();
            }
            Err(RingError::Sql(error)) => patience.wait(&error)?,
            Err(RingError::Harness(failure)) => return Err(failure),
        }
        if arguments.pause_us > 0 {
            std::thread::sleep(Duration::from_micros(arguments.pause_us));
        }
    }
}

enum RingError {
    Sql(SqlError),
    Harness(Failure),
}

/// Commits the numbers after `last`: one alone, or, when lying, several together.
fn write_some(
    session: &mut dyn Session,
    ledger: &mut Ledger,
    last: i64,
    hoard: i64,
    commit_took: &mut Duration,
) -> Result<(), RingError> {
    let lying = hoard > 1;
    if lying {
        session.run("BEGIN", &[]).map_err(RingError::Sql)?;
    }
    for number in last + 1..=last + hoard {
        let commit = Commit {
            tick: Tick(number),
            writer: WRITER,
            seq: Seq(number),
            chain: 0,
        };
        ledger
            .append(Event::Intent, &commit)
            .map_err(RingError::Harness)?;
        let sql = format!("UPDATE ring_{} SET last = ?1", number % TABLES);
        session
            .run(&sql, &[number.into()])
            .map_err(RingError::Sql)?;
        ledger
            .append(Event::Acknowledged, &commit)
            .map_err(RingError::Harness)?;
    }
    if lying {
        hold_back(*commit_took);
        let start = Instant::now();
        session.run("COMMIT", &[]).map_err(RingError::Sql)?;
        *commit_took = start.elapsed();
    }
    Ok(())
}

/// Waits with commits that were acknowledged and not made. On a slow device the writer is in a
/// COMMIT for most of the time, and a kill there loses nothing. So the wait is as long as a COMMIT:
/// about each second kill finds the lie.
fn hold_back(commit_took: Duration) {
    std::thread::sleep(commit_took.clamp(HELD_AT_LEAST, HELD_AT_MOST));
}

/// Creates the tables that do not exist yet.
fn make_ring(session: &mut dyn Session) -> Result<(), SqlError> {
    for table in 0..TABLES {
        let create = format!("CREATE TABLE IF NOT EXISTS ring_{table}(last INTEGER)");
        session.run(&create, &[])?;
        let fill = format!(
            "INSERT INTO ring_{table} SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM ring_{table})"
        );
        session.run(&fill, &[])?;
    }
    Ok(())
}

/// The last number in the tables, which must match the numbers up to it.
fn read_ring(session: &mut dyn Session) -> Result<i64, Failure> {
    let select = |table| format!("SELECT (SELECT last FROM ring_{table})");
    let sql = (0..TABLES)
        .map(select)
        .collect::<Vec<_>>()
        .join(" UNION ALL ");
    let rows = session
        .rows(&sql, &[])
        .map_err(|error| unexpected(&error))?;
    let found: Vec<i64> = rows.iter().map(|row| integer(row, 0)).collect();
    let last = found.iter().copied().max().unwrap_or(0);
    for (table, number) in (0..TABLES).zip(&found) {
        let expected = (last - (last - table).rem_euclid(TABLES)).max(0);
        if *number != expected {
            let detail = format!(
                "the tables hold {found:?}: of the commits up to {last}, table {table} lacks \
                 {expected}"
            );
            return Err(Failure::broken(Promise::GroupSynchBound, detail));
        }
    }
    Ok(last)
}

/// The findings of `ring-check`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Survivors {
    /// The last commit that survived; all before it survived, too.
    pub last: i64,
}

/// The worker `ring-check`, which also creates the tables before the first kill.
///
/// # Errors
/// The failure that it finds.
pub fn check(database: &Database) -> Result<Survivors, Failure> {
    crate::processes::die_with_parent()?;
    let mut session = connect_patiently(database)?;
    make_ring(session.as_mut()).map_err(|error| unexpected(&error))?;
    let last = read_ring(session.as_mut())?;
    session.close().map_err(|error| unexpected(&error))?;
    Ok(Survivors { last })
}

/// The worker `ring-companion`: reads once, reports this by creating the file `ready`, and stays.
///
/// # Errors
/// The failure that it finds.
pub fn accompany(database: &Database, ready: &Path) -> Result<(), Failure> {
    crate::processes::die_with_parent()?;
    let mut session = connect_patiently(database)?;
    read_ring(session.as_mut())?;
    std::fs::write(ready, []).map_err(|error| Failure::io("make", ready, error))?;
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}
