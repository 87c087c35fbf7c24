//! kill -9 at random moments, under writers and readers on one database, and a check after each.
//!
//! The run succeeds if every acknowledged commit exists, none exists in part, and nothing else
//! appears. `integrity_check` must be ok, whichever process was killed, and whenever.

use crate::checks::Leave;
use crate::database::{Engine, JournalMode};
use crate::failure::{Failure, Promise};
use crate::files::Watched;
use crate::model::WriterId;
use crate::probe;
use crate::processes::Worker;
use crate::random::Random;
use crate::setup::{Settle, Setup, SetupArguments, TestDatabase};
use crate::transactions::Lie;
use crate::workers::WorkerArguments;
use clap::Args;
use serde::Serialize;
use std::time::{Duration, Instant};

/// How long all writers have for one commit each, before those that had it make room.
const TURN: Duration = Duration::from_secs(3);

/// How long no process may commit. A worker gives up after 30 s of "busy". This wait and the turns
/// of all others end before that.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// The arguments of `kill`.
#[derive(Debug, Clone, Args)]
pub struct KillArguments {
    /// Directory, settings and seed.
    #[command(flatten)]
    pub setup: SetupArguments,
    /// Number of moments at which one, several or all processes are killed.
    #[arg(long, default_value_t = 500)]
    pub kills: u64,
    /// Number of writer processes.
    #[arg(long, default_value_t = 4)]
    pub writers: u32,
    /// Writers in each of these processes, each with a thread and a connection.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: u32,
    /// Number of reader processes.
    #[arg(long, default_value_t = 2)]
    pub readers: u32,
    /// The last writer and the last reader use stock SQLite; for a mode without a guard.
    #[arg(long)]
    pub stock: bool,
    /// Longest time between two kills, in milliseconds.
    #[arg(long, default_value_t = 150)]
    pub longest_pause: u64,
    /// Lie of the writers, to show that the checks find it.
    #[arg(long, value_enum)]
    pub lie: Option<Lie>,
}

/// The results of a run.
#[derive(Debug, Default, Serialize)]
pub struct KillReport {
    /// The seed.
    pub seed: u64,
    /// Moments at which processes were killed.
    pub kills: u64,
    /// Processes that were killed.
    pub processes_killed: u64,
    /// Checks while other processes were at work.
    pub checks_alive: u64,
    /// Checks after all processes were killed.
    pub checks_dead: u64,
    /// How often stock SQLite tried a guarded database that nobody had open.
    pub stock_refused: u64,
    /// How often stock SQLite checked the database.
    pub stock_checks: u64,
    /// Commits in the database at the end.
    pub commits: usize,
    /// Commits that were acknowledged; all of them are in the database.
    pub acknowledged: usize,
    /// Seconds.
    pub elapsed_s: f64,
    /// Whether the time ended before all kills were done.
    pub stopped_early: bool,
}

/// Kills and checks.
///
/// # Errors
/// The failure that was found.
pub fn run(arguments: &KillArguments) -> Result<KillReport, Failure> {
    if arguments.stock && arguments.setup.mode.is_guarded() {
        let mode = arguments.setup.mode.name();
        let why = format!("--stock: in {mode} stock SQLite cannot open the database");
        return Err(Failure::Harness(why));
    }
    let setup = Setup::new(&arguments.setup)?;
    let result = Run::new(arguments, &setup).and_then(Run::all_kills);
    setup.finish(result)
}

struct Run<'a> {
    arguments: &'a KillArguments,
    setup: &'a Setup,
    test: TestDatabase,
    random: Random,
    /// Writers first, then readers; `None` for a dead one.
    workers: Vec<Option<Worker>>,
    report: KillReport,
}

impl<'a> Run<'a> {
    fn new(arguments: &'a KillArguments, setup: &'a Setup) -> Result<Self, Failure> {
        let test = setup.test_database(0)?;
        setup.create(&test, &arguments.setup)?;
        let count = (arguments.writers + arguments.readers) as usize;
        Ok(Self {
            arguments,
            setup,
            test,
            random: setup.random(),
            workers: std::iter::repeat_with(|| None).take(count).collect(),
            report: KillReport {
                seed: setup.seed(),
                ..KillReport::default()
            },
        })
    }

    fn all_kills(mut self) -> Result<KillReport, Failure> {
        let mut told = Instant::now();
        while self.report.kills < self.arguments.kills {
            if self.setup.is_over() {
                self.report.stopped_early = true;
                break;
            }
            self.start_the_dead()?;
            if self.report.kills % 50 == 25 {
                self.expect_progress()?;
            }
            std::thread::sleep(self.pause());
            self.one_kill()?;
            if told.elapsed() > Duration::from_secs(5) {
                told = Instant::now();
                eprintln!("{} of {} kills", self.report.kills, self.arguments.kills);
            }
        }
        let everybody: Vec<_> = (0..self.workers.len()).collect();
        self.kill(&everybody)?;
        self.expect_guard()?;
        self.check_dead(Leave::Close)?;
        self.check_through_stock()?;
        self.report.elapsed_s = self.setup.elapsed_seconds();
        Ok(self.report)
    }

    /// Half of the kills hit opening and recovery; half of them hit work in full swing.
    fn pause(&mut self) -> Duration {
        let longest = self.arguments.longest_pause;
        match self.random.below(2) {
            0 => self.random.pause(Duration::from_millis(longest)),
            _ => Duration::from_millis(self.random.below(longest + 1)),
        }
    }

    fn start_the_dead(&mut self) -> Result<(), Failure> {
        for index in 0..self.workers.len() {
            if self.workers[index].is_some() {
                continue;
            }
            let mut database = self.test.connection(&self.arguments.setup);
            if self.is_stock(index) {
                database = database.through(Engine::Stock);
            }
            let worker = WorkerArguments {
                database,
                ledgers: self.test.ledgers.clone(),
                seed: self.random.next(),
            };
            let (name, arguments) = match u32::try_from(index) {
                Ok(writer) if writer < self.arguments.writers => {
                    let lie = self.arguments.lie;
                    (
                        format!("writer {writer}"),
                        worker.writer_arguments(&self.writers_of(writer), lie),
                    )
                }
                _ => (format!("reader {index}"), worker.reader_arguments()),
            };
            self.workers[index] = Some(Worker::start(&name, &arguments, &self.setup.log())?);
        }
        Ok(())
    }

    /// Whether this worker uses stock SQLite: writers come before readers.
    fn is_stock(&self, index: usize) -> bool {
        let writers = self.arguments.writers as usize;
        self.arguments.stock && (index + 1 == writers || index + 1 == self.workers.len())
    }

    /// The writers that a process runs.
    fn writers_of(&self, process: u32) -> Vec<WriterId> {
        (0..self.arguments.threads)
            .map(|thread| WriterId(thread * self.arguments.writers + process))
            .collect()
    }

    fn check_workers(&mut self) -> Result<(), Failure> {
        self.workers
            .iter_mut()
            .flatten()
            .try_for_each(Worker::check)
    }

    /// Kills the workers `victims`, all signals before the first wait.
    fn kill(&mut self, victims: &[usize]) -> Result<(), Failure> {
        self.check_workers()?;
        let mut killed: Vec<_> = victims
            .iter()
            .filter_map(|victim| self.workers[*victim].take())
            .collect();
        killed.iter_mut().for_each(Worker::signal);
        self.report.processes_killed += killed.len() as u64;
        killed.into_iter().try_for_each(Worker::kill)
    }

    fn one_kill(&mut self) -> Result<(), Failure> {
        let count = self.workers.len() as u64;
        let victims: Vec<usize> = match self.random.below(10) {
            0..4 => vec![self.random.below(count) as usize],
            4..6 => (0..count as usize)
                .filter(|_| self.random.one_in(2))
                .collect(),
            _ => (0..count as usize).collect(),
        };
        self.kill(&victims)?;
        self.report.kills += 1;
        if self.workers.iter().any(Option::is_some) {
            if self.random.one_in(4) {
                self.check(Leave::Close, Settle::No, self.arguments.setup.engine)?;
                self.report.checks_alive += 1;
            }
            return Ok(());
        }
        if self.random.one_in(4) {
            // The workers recover it themselves, under the next kill.
            return Ok(());
        }
        let leave = if self.random.one_in(2) {
            Leave::Close
        } else {
            Leave::Die
        };
        self.check_dead(leave)
    }

    /// Checks while nobody has the database open.
    fn check_dead(&mut self, leave: Leave) -> Result<(), Failure> {
        if self.random.one_in(8) {
            self.expect_guard()?;
        }
        let engine = self.arguments.setup.engine;
        // In a mode without a guard, any SQLite recovers the database.
        let first = match self.random.below(3) {
            0 if !self.arguments.setup.mode.is_guarded() => Engine::Stock,
            _ => engine,
        };
        self.check(leave, Settle::Yes, first)?;
        self.report.checks_dead += 1;
        if leave == Leave::Close && self.random.one_in(3) {
            self.check_through_stock()?;
        }
        Ok(())
    }

    /// Makes stock SQLite try a guarded database while nobody has it open.
    fn expect_guard(&mut self) -> Result<(), Failure> {
        if self.arguments.setup.mode != JournalMode::Lsmvbt
            && probe::is_guarded(&self.test.database)?
        {
            probe::expect_refused(self.setup, &self.test.database, Watched::DatabaseAndLog)?;
            self.report.stock_refused += 1;
        }
        Ok(())
    }

    /// After the last of our connections has closed the database, stock SQLite finds the same in
    /// it.
    fn check_through_stock(&mut self) -> Result<(), Failure> {
        if self.arguments.setup.mode == JournalMode::Lsmvbt {
            // The file of this mode never becomes a stock one.
            return Ok(());
        }
        probe::expect_stock_header(&self.test.database)?;
        self.check(Leave::Close, Settle::Yes, Engine::Stock)?;
        self.report.stock_checks += 1;
        Ok(())
    }

    fn check(&mut self, leave: Leave, settle: Settle, engine: Engine) -> Result<(), Failure> {
        let mut database = self.test.connection(&self.arguments.setup);
        if engine != self.arguments.setup.engine {
            database = database.through(engine);
        }
        let report = self
            .setup
            .check(&self.test, database, settle, leave)
            .map_err(|failure| failure.at(&format!("after kill {}", self.report.kills)))?;
        self.report.commits = report.commits;
        self.report.acknowledged = report.acknowledged;
        Ok(())
    }

    /// Waits until every process has committed once more: nobody waits forever.
    ///
    /// SQLite's busy handler is not fair. While others write without a pause, a writer may find the
    /// lock taken all the time. So writers that have had their turn are killed, and one of the
    /// others must then commit.
    fn expect_progress(&mut self) -> Result<(), Failure> {
        let before = self.commits_written()?;
        let mut waiting: Vec<usize> = (0..self.arguments.writers as usize).collect();
        while !waiting.is_empty() {
            let (served, starved) = self.wait_for_some(&waiting, &before)?;
            if !starved.is_empty() {
                self.kill(&served)?;
            }
            waiting = starved;
        }
        Ok(())
    }

    /// Waits a while for all of the writers `waiting`, and longer for one of them. Returns those
    /// that have committed since `before`, and those that have not.
    fn wait_for_some(
        &mut self,
        waiting: &[usize],
        before: &[usize],
    ) -> Result<(Vec<usize>, Vec<usize>), Failure> {
        let begun = Instant::now();
        loop {
            let now = self.commits_written()?;
            // Two records more: the first may be the end of a commit that was under way.
            let (served, starved): (Vec<_>, Vec<_>) =
                waiting.iter().partition(|w| now[**w] >= before[**w] + 2);
            if starved.is_empty() || (!served.is_empty() && begun.elapsed() > TURN) {
                return Ok((served, starved));
            }
            if begun.elapsed() > LONGEST_WAIT {
                let detail = format!(
                    "none of the writing processes {starved:?} has committed for {} s",
                    LONGEST_WAIT.as_secs()
                );
                return Err(Failure::broken(Promise::Progress, detail));
            }
            std::thread::sleep(Duration::from_millis(5));
            self.check_workers()?;
        }
    }

    /// The number of records in the ledgers of every process.
    fn commits_written(&self) -> Result<Vec<usize>, Failure> {
        let of_writer = |writer| -> Result<usize, Failure> {
            Ok(crate::ledger::read(&self.test.ledgers, writer)?.len())
        };
        (0..self.arguments.writers)
            .map(|process| self.writers_of(process).into_iter().map(of_writer).sum())
            .collect()
    }
}
