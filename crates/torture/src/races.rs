//! Races between stock SQLite and ours: opening, writing, switching modes, closing, dying.
//!
//! The run succeeds if the database is never corrupt, and every acknowledged commit of both sides
//! exists. While the database is guarded, stock must report "file is not a database" and change no
//! byte of it. After each race all processes stand still, some with open connections and full
//! caches. Then:
//!
//! 1. Every stock process, old and new, tries a guarded database, and its bytes are compared.
//! 2. An unguarded database must not be refused.
//! 3. One of our processes checks everything, and sometimes, after all have closed, stock does.

pub mod processes;
pub mod scripts;

use crate::failure::{Failure, Promise};
use crate::files::{self, Watched, companion};
use crate::probe;
use crate::random::Random;
use crate::scripted::{Outcome, Reply, Step};
use crate::setup::{Setup, SetupArguments};
use clap::Args;
use processes::{Answer, Processes, expect_all_done};
use scripts::{Kind, OURS, Race, Script, Scripts};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Races on one database before the next one begins.
const RACES_A_DATABASE: u64 = 50;

/// Races after which every kind of event must have happened. Fewer races may miss one by chance.
const ENOUGH: u64 = 100;

/// The arguments of `races`.
#[derive(Debug, Clone, Args)]
pub struct RaceArguments {
    /// Directory, settings and seed.
    #[command(flatten)]
    pub setup: SetupArguments,
    /// Number of races.
    #[arg(long, default_value_t = 2000)]
    pub count: u64,
    /// Lie, to show that the check finds it: a stock process writes a byte into the guarded file.
    #[arg(long)]
    pub scribble: bool,
}

/// The outcomes of one side's steps.
#[derive(Debug, Default, Serialize)]
pub struct Tally {
    /// Done.
    pub done: u64,
    /// Another process held a lock.
    pub busy: u64,
    /// "file is not a database".
    pub refused: u64,
    /// Processes that died.
    pub died: u64,
}

/// The results of a run.
#[derive(Debug, Default, Serialize)]
pub struct RaceReport {
    /// The seed.
    pub seed: u64,
    /// Races.
    pub races: u64,
    /// Steps of our processes.
    pub ours: Tally,
    /// Steps of stock processes.
    pub stock: Tally,
    /// Acknowledged commits of our processes.
    pub commits_of_ours: usize,
    /// Acknowledged commits of stock processes.
    pub commits_of_stock: usize,
    /// Races that began with a hot rollback journal of a dead process.
    pub hot_journals: u64,
    /// Races that began with a log of a dead process.
    pub hot_logs: u64,
    /// How often stock tried a guarded database, with its bytes compared.
    pub guarded: u64,
    /// Of these: a stock process had been idle with its cache since before the guard.
    pub guarded_under_idle_cache: u64,
    /// Of these: all of our processes were dead.
    pub guarded_after_death: u64,
    /// Of these: our processes went on committing meanwhile.
    pub guarded_while_committing: u64,
    /// How often stock tried an unguarded database.
    pub unguarded: u64,
    /// Full checks.
    pub checks: u64,
    /// How often all closed and stock checked the files.
    pub clean_closes: u64,
    /// Seconds.
    pub elapsed_s: f64,
    /// Whether the time ended before all races were run.
    pub stopped_early: bool,
}

/// Runs the races.
///
/// # Errors
/// The failure that was found.
pub fn run(arguments: &RaceArguments) -> Result<RaceReport, Failure> {
    let setup = Setup::new(&arguments.setup)?;
    let result = all_races(arguments, &setup);
    setup.finish(result)
}

fn all_races(arguments: &RaceArguments, setup: &Setup) -> Result<RaceReport, Failure> {
    let mut run = Run {
        arguments,
        random: setup.random(),
        report: RaceReport {
            seed: setup.seed(),
            ..RaceReport::default()
        },
    };
    let mut told = Instant::now();
    while run.report.races < arguments.count && !run.report.stopped_early {
        let test = setup.test_database(run.report.races / RACES_A_DATABASE)?;
        let seeds = Random::of_part(setup.seed(), run.report.races);
        let mut processes = Processes::new(setup, &arguments.setup, test, seeds);
        for _ in 0..RACES_A_DATABASE.min(arguments.count - run.report.races) {
            run.report.stopped_early = setup.is_over();
            if run.report.stopped_early {
                break;
            }
            run.race(&mut processes)?;
            if told.elapsed() > Duration::from_secs(5) {
                told = Instant::now();
                eprintln!("{} of {} races", run.report.races, arguments.count);
            }
        }
        run.count_commits(&processes)?;
        processes.test().remove();
    }
    run.report.elapsed_s = setup.elapsed_seconds();
    run.expect_coverage()?;
    Ok(run.report)
}

struct Run<'a> {
    arguments: &'a RaceArguments,
    random: Random,
    report: RaceReport,
}

impl Run<'_> {
    fn race(&mut self, processes: &mut Processes<'_>) -> Result<(), Failure> {
        let scripts = Scripts {
            count: processes.len(),
            mode: self.arguments.setup.mode,
        };
        let is_first = self.report.races.is_multiple_of(RACES_A_DATABASE);
        let race = if is_first {
            first_race(processes.len(), self.arguments)
        } else {
            scripts.draw(&mut self.random)
        };
        let result = self.run(processes, &race, is_first);
        result.map_err(|failure| failure.at(&format!("race {}, {race:?}", self.report.races)))?;
        self.report.races += 1;
        Ok(())
    }

    fn run(
        &mut self,
        processes: &mut Processes<'_>,
        race: &Race,
        is_first: bool,
    ) -> Result<(), Failure> {
        for script in &race.before {
            let answer = processes.run(script.process, &script.steps)?;
            self.tally(processes, script.process, &answer)?;
        }
        self.count_remains(processes)?;
        for (process, answer) in processes.at_once(&race.at_once)? {
            self.tally(processes, process, &answer)?;
        }
        if is_first {
            self.expect_tables(processes)?;
        }
        self.show_to_stock(processes, race)?;
        self.check(processes)?;
        if self.random.one_in(4) {
            self.close_cleanly(processes)?;
        }
        Ok(())
    }

    /// The processes may have blocked each other before. Now nothing blocks the first one.
    fn expect_tables(&mut self, processes: &mut Processes<'_>) -> Result<(), Failure> {
        let all: Vec<_> = (0..processes.len()).collect();
        processes.close_all(all.into_iter())?;
        expect_all_done_by(processes, OURS[0], &[Step::Create])
    }

    /// Counts outcomes. A process that may not be refused must not have been.
    fn tally(
        &mut self,
        processes: &Processes<'_>,
        process: usize,
        answer: &Answer,
    ) -> Result<(), Failure> {
        let is_ours = OURS.contains(&process);
        let tally = if is_ours {
            &mut self.report.ours
        } else {
            &mut self.report.stock
        };
        let Answer::Reply(Reply { outcomes, .. }) = answer else {
            tally.died += 1;
            return Ok(());
        };
        let may_be_refused = !is_ours && self.arguments.setup.mode.is_guarded();
        for outcome in outcomes {
            match outcome {
                Outcome::Done => tally.done += 1,
                Outcome::Busy(_) => tally.busy += 1,
                Outcome::Gone => tally.died += 1,
                Outcome::Refused if may_be_refused => tally.refused += 1,
                Outcome::Refused => {
                    let detail = format!("{} was told: not a database", processes.name(process));
                    return Err(Failure::broken(Promise::StockIsRefused, detail));
                }
                Outcome::Failed(failure) => {
                    return Err(failure.clone().at(&processes.name(process)));
                }
            }
        }
        Ok(())
    }

    /// Counts the files that dead processes left.
    fn count_remains(&mut self, processes: &Processes<'_>) -> Result<(), Failure> {
        let size = |suffix| {
            std::fs::metadata(companion(&processes.test().database, suffix))
                .map_or(0, |file| file.len())
        };
        self.report.hot_journals += u64::from(size("-journal") > 0);
        self.report.hot_logs += u64::from(size("-wal") > 0);
        Ok(())
    }

    /// All processes stand still. In half of the calls, ours must guard the database first if it is
    /// not guarded.
    fn show_to_stock(&mut self, processes: &mut Processes<'_>, race: &Race) -> Result<(), Failure> {
        let database = processes.test().database.clone();
        let guards = self.arguments.setup.mode.is_guarded();
        if guards && !probe::is_guarded(&database)? && self.random.one_in(2) {
            self.make_guarded(processes)?;
        }
        if probe::is_guarded(&database)? {
            return self.show_guarded(processes, race);
        }
        let stock: Vec<_> = processes.stock().collect();
        let process = *self.random.choose(&stock);
        let answer = processes.run(process, &[Step::Close, Step::Read(0)])?;
        if matches!(&answer, Answer::Reply(reply) if is_refused(reply)) {
            let detail = format!(
                "{} is refused an unguarded database",
                processes.name(process)
            );
            return Err(Failure::broken(Promise::StockIsRefused, detail));
        }
        self.report.unguarded += 1;
        self.tally(processes, process, &answer)
    }

    /// Stock with an open log holds a lock meanwhile, so it must close. A process that is idle in a
    /// rollback mode may stay.
    fn make_guarded(&mut self, processes: &mut Processes<'_>) -> Result<(), Failure> {
        let steps = [
            Step::Open(Some(self.arguments.setup.mode)),
            Step::Transactions(1),
        ];
        let process = *self.random.choose(&OURS);
        let answer = processes.run(process, &steps)?;
        self.tally(processes, process, &answer)?;
        if matches!(&answer, Answer::Reply(reply) if expect_all_done("", reply).is_ok()) {
            return Ok(());
        }
        // One of our processes, too, may have the log open in a stock mode, because stock blocked
        // its switch before.
        let all: Vec<_> = (0..processes.len()).collect();
        processes.close_all(all.into_iter())?;
        expect_all_done_by(processes, process, &steps)?;
        if probe::is_guarded(&processes.test().database)? {
            return Ok(());
        }
        let header = files::header(&processes.test().database)?;
        let detail = format!("ours has committed, and the header is {header:?}");
        Err(Failure::broken(Promise::StockIsRefused, detail))
    }

    fn show_guarded(&mut self, processes: &mut Processes<'_>, race: &Race) -> Result<(), Failure> {
        let database = processes.test().database.clone();
        let committing = self.random.one_in(3);
        let watched = if committing {
            Watched::Database
        } else {
            Watched::DatabaseAndLog
        };
        let ours = OURS[0];
        if committing {
            // Effects of this on the file (opening, recovery, a checkpoint) must come before the
            // comparison.
            let steps = [Step::NoCheckpoints, Step::Transactions(1)];
            let answer = processes.run(ours, &steps)?;
            self.tally(processes, ours, &answer)?;
        }
        let stock: Vec<_> = processes.stock().collect();
        let mut scripts: Vec<_> = stock
            .iter()
            .map(|process| Script {
                process: *process,
                steps: vec![Step::ExpectRefusals],
            })
            .collect();
        if self.arguments.scribble {
            scripts[0].steps.push(Step::Scribble);
        }
        if committing {
            scripts.push(Script {
                process: ours,
                steps: vec![Step::Transactions(6)],
            });
        }
        probe::watch(&database, watched, || {
            for (process, answer) in processes.at_once(&scripts)? {
                self.tally(processes, process, &answer)?;
            }
            Ok(())
        })?;
        self.report.guarded += 1;
        self.report.guarded_while_committing += u64::from(committing);
        self.report.guarded_under_idle_cache += u64::from(race.kind == Kind::IdleCache);
        self.report.guarded_after_death += u64::from(race.kind == Kind::OursDied);
        Ok(())
    }

    /// Lets one of our processes check everything. If stock blocks it, stock must close first.
    fn check(&mut self, processes: &mut Processes<'_>) -> Result<(), Failure> {
        let process = *self.random.choose(&OURS);
        self.report.checks += 1;
        match processes.run(process, &[Step::Check])? {
            Answer::Reply(reply) if is_busy(&reply) => {}
            answer => return self.tally(processes, process, &answer),
        }
        let all: Vec<_> = (0..processes.len()).collect();
        processes.close_all(all.into_iter())?;
        expect_all_done_by(processes, process, &[Step::Check])
    }

    /// Closes all connections. The files must then be a stock database with everything in it.
    fn close_cleanly(&mut self, processes: &mut Processes<'_>) -> Result<(), Failure> {
        let all: Vec<_> = (0..processes.len()).collect();
        processes.close_all(all.into_iter())?;
        probe::expect_stock_header(&processes.test().database)?;
        let stock: Vec<_> = processes.stock().collect();
        let process = *self.random.choose(&stock);
        expect_all_done_by(processes, process, &[Step::CheckAndSettle, Step::Close])?;
        self.report.clean_closes += 1;
        Ok(())
    }

    fn count_commits(&mut self, processes: &Processes<'_>) -> Result<(), Failure> {
        for writer in crate::ledger::writers(&processes.test().ledgers)? {
            let records = crate::ledger::read(&processes.test().ledgers, writer)?;
            let count = records
                .iter()
                .filter(|record| record.event == crate::ledger::Event::Acknowledged)
                .count();
            if OURS.contains(&(writer.0 as usize)) {
                self.report.commits_of_ours += count;
            } else {
                self.report.commits_of_stock += count;
            }
        }
        Ok(())
    }

    /// A run in which an event never happened proves nothing about it.
    fn expect_coverage(&self) -> Result<(), Failure> {
        let report = &self.report;
        if report.races < ENOUGH {
            return Ok(());
        }
        let mut happened = vec![
            ("commits of ours", report.commits_of_ours as u64),
            ("commits of stock", report.commits_of_stock as u64),
            ("deaths of ours", report.ours.died),
            ("deaths of stock", report.stock.died),
            ("hot journals", report.hot_journals),
            ("hot logs", report.hot_logs),
            ("unguarded databases", report.unguarded),
            ("clean closes", report.clean_closes),
        ];
        if self.arguments.setup.mode.is_guarded() {
            happened.extend([
                ("refusals in a race", report.stock.refused),
                ("guarded databases", report.guarded),
                ("guards over an idle cache", report.guarded_under_idle_cache),
                ("guards left by the dead", report.guarded_after_death),
                ("guards while ours commits", report.guarded_while_committing),
            ]);
        }
        match happened.iter().find(|(_, times)| *times == 0) {
            Some((what, _)) => Err(Failure::Harness(format!(
                "no {what} in {} races",
                report.races
            ))),
            None => Ok(()),
        }
    }
}

/// All create the tables at once, on a file that does not exist yet. Stock takes no script if the
/// mode needs reserved bytes in each page. If stock created the database first, it would have none.
fn first_race(count: usize, arguments: &RaceArguments) -> Race {
    let mode = arguments.setup.mode;
    let ours = |process| Script {
        process,
        steps: vec![Step::Open(Some(mode)), Step::Create],
    };
    let stock = |process| Script {
        process,
        steps: vec![Step::Create],
    };
    let mut at_once: Vec<_> = OURS.into_iter().map(ours).collect();
    if !mode.is_guarded() {
        at_once.extend((OURS.len()..count).map(stock));
    }
    Race {
        kind: Kind::Scramble,
        before: Vec::new(),
        at_once,
    }
}

/// Plays a script that no other process can block.
fn expect_all_done_by(
    processes: &mut Processes<'_>,
    process: usize,
    steps: &[Step],
) -> Result<(), Failure> {
    match processes.run(process, steps)? {
        Answer::Reply(reply) => expect_all_done(&processes.name(process), &reply),
        Answer::Died => Err(Failure::Harness(format!(
            "{} died in no script",
            processes.name(process)
        ))),
    }
}

fn is_busy(reply: &Reply) -> bool {
    reply
        .outcomes
        .iter()
        .any(|outcome| matches!(outcome, Outcome::Busy(_)))
}

fn is_refused(reply: &Reply) -> bool {
    reply
        .outcomes
        .iter()
        .any(|outcome| matches!(outcome, Outcome::Refused))
}
