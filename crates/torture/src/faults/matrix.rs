//! The matrix: lists the injections, and runs one after the other.

use super::FaultArguments;
use super::calls::{self, Fault};
use super::conditions::{self, Condition};
use super::directory::{WorkDirectory, copy_files};
use super::inspect::{Checker, Facts, Question};
use super::judge::{Case, Story};
use super::report::Report;
use super::scenario::Scenario;
use super::tracer::{self, Injection, Lasts, Run};
use super::worker::Event;
use crate::failure::Failure;
use crate::interrupt;
use crate::processes::{self, this_program};
use clap::ValueEnum;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A worker that takes longer counts as hung.
const LIMIT: Duration = Duration::from_secs(20);
/// The database's name in every directory.
const DATABASE: &str = "a.db";

/// A scenario that is ready to run.
struct Prepared {
    scenario: Scenario,
    /// Its initial files.
    template: PathBuf,
    /// The content of those files.
    before: Story,
}

/// The directories and helpers of one thread.
struct Runner<'a> {
    arguments: &'a FaultArguments,
    directory: PathBuf,
    log: PathBuf,
    checker: Option<Checker>,
}

/// One run and its findings.
struct Tried {
    run: Run,
    story: Story,
    broken: Vec<String>,
}

/// Runs everything that `arguments` ask for.
pub fn run(arguments: &FaultArguments, directory: &WorkDirectory) -> Result<Report, Failure> {
    let all = Scenario::value_variants().iter().copied();
    let wanted = |scenario: &Scenario| {
        scenario.exists_in(arguments.mode)
            && (arguments.scenario.contains(scenario)
                || (arguments.scenario.is_empty() && arguments.condition.is_empty()))
    };
    let mut report = Report::new(arguments.mode);
    for scenario in all.filter(wanted) {
        if scenario == Scenario::Detach && !detach_is_there() {
            report.skip(
                scenario,
                "the command onewrite is not built next to this one",
            );
            continue;
        }
        run_scenario(arguments, directory, scenario, &mut report)?;
        if report.findings.len() >= arguments.most_findings {
            break;
        }
    }
    run_conditions(arguments, directory, &mut report)?;
    Ok(report)
}

fn run_conditions(
    arguments: &FaultArguments,
    directory: &WorkDirectory,
    report: &mut Report,
) -> Result<(), Failure> {
    if arguments.condition.is_empty()
        && (!arguments.scenario.is_empty() || arguments.call.is_some())
    {
        return Ok(());
    }
    for &condition in Condition::value_variants() {
        let wanted = arguments.condition.is_empty() || arguments.condition.contains(&condition);
        if !wanted || !condition.exists_in(arguments.mode) {
            continue;
        }
        let dir = directory.path().join(format!("condition-{condition}"));
        let tally = conditions::run(condition, arguments.mode, &dir, directory.images())?;
        report.record_condition(condition, tally);
    }
    Ok(())
}

fn detach_is_there() -> bool {
    std::env::current_exe().is_ok_and(|path| path.with_file_name("onewrite").exists())
}

fn run_scenario(
    arguments: &FaultArguments,
    directory: &WorkDirectory,
    scenario: Scenario,
    report: &mut Report,
) -> Result<(), Failure> {
    let began = std::time::Instant::now();
    let mut runner = Runner::open(arguments, directory, 0)?;
    let prepared = runner.prepare(scenario)?;
    let undisturbed = runner.attempt(&prepared, None)?;
    report.record(scenario, None, &undisturbed.run, &undisturbed.story);
    if !undisturbed.broken.is_empty() {
        report.find(replay(arguments, scenario, None), undisturbed.broken);
        return Ok(());
    }
    let injections = injections_of(arguments, &undisturbed.run);
    drop(runner);
    let next = AtomicUsize::new(0);
    let shared = Mutex::new(report);
    let jobs = arguments
        .jobs
        .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1);
    let work = |number: usize| -> Result<(), Failure> {
        let mut runner = Runner::open(arguments, directory, number)?;
        while let Some(injection) = injections.get(next.fetch_add(1, Ordering::Relaxed)) {
            interrupt::check()?;
            let tried = runner.attempt(&prepared, Some(injection))?;
            let Ok(mut report) = shared.lock() else {
                return Err(Failure::Harness("another thread has failed".to_owned()));
            };
            report.record(scenario, Some(injection), &tried.run, &tried.story);
            if !tried.broken.is_empty() {
                report.find(replay(arguments, scenario, Some(injection)), tried.broken);
            }
            if report.findings.len() >= arguments.most_findings {
                break;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..jobs).map(|n| scope.spawn(move || work(n))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(Failure::Harness("a thread panicked".to_owned())))
        })
    })?;
    eprintln!(
        "{} {scenario}: {} injections in {:.1} s",
        arguments.mode,
        injections.len(),
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Every call of the undisturbed run, with every fault that fits it, once and for good.
fn injections_of(arguments: &FaultArguments, undisturbed: &Run) -> Vec<Injection> {
    let mut injections = Vec::new();
    for seen in &undisturbed.seen {
        for fault in calls::faults_of(seen.call, seen.shape) {
            for lasts in [Lasts::Once, Lasts::ForGood] {
                // A descriptor is closed once.
                if lasts == Lasts::ForGood && matches!(fault, Fault::DoneButFails(_)) {
                    continue;
                }
                injections.push(Injection {
                    call: seen.call,
                    nth: seen.nth,
                    fault,
                    lasts,
                });
            }
        }
    }
    injections.retain(|injection| {
        arguments
            .call
            .as_deref()
            .is_none_or(|call| call == injection.call.name)
            && arguments.nth.is_none_or(|nth| nth == injection.nth)
            && arguments.errno.is_none_or(|fault| fault == injection.fault)
            && (!arguments.forever || injection.lasts == Lasts::ForGood)
            && (!arguments.once || injection.lasts == Lasts::Once)
    });
    let every = arguments.every as usize;
    // Strides differ from row to row, so that a short run still covers every error.
    injections
        .into_iter()
        .enumerate()
        .filter(|(at, _)| (at * 7919).is_multiple_of(every))
        .map(|(_, injection)| injection)
        .collect()
}

/// The command that repeats one injection.
fn replay(arguments: &FaultArguments, scenario: Scenario, injection: Option<&Injection>) -> String {
    let mut words = format!("faults --mode {} --scenario {scenario}", arguments.mode);
    if let Some(injection) = injection {
        words.push_str(&format!(
            " --call {} --nth {} --errno {} {}",
            injection.call.name,
            injection.nth,
            injection.fault,
            match injection.lasts {
                Lasts::Once => "--once",
                Lasts::ForGood => "--forever",
            }
        ));
    }
    words
}

impl<'a> Runner<'a> {
    fn open(
        arguments: &'a FaultArguments,
        directory: &WorkDirectory,
        number: usize,
    ) -> Result<Self, Failure> {
        let directory = directory.path().join(format!("runner-{number}"));
        fs::create_dir_all(&directory)?;
        Ok(Self {
            arguments,
            log: directory.join("stderr"),
            directory,
            checker: None,
        })
    }

    fn worker_arguments(&self, scenario: Scenario, database: &Path, part: &str) -> Vec<String> {
        let words = [
            "fault-worker",
            "--db",
            &database.to_string_lossy(),
            "--mode",
            self.arguments.mode.name(),
            "--scenario",
            &scenario.to_string(),
            "--part",
            part,
        ];
        let mut words: Vec<String> = words.map(str::to_owned).into();
        if let Some(lie) = self.arguments.lie.and_then(|lie| lie.to_possible_value()) {
            words.extend(["--lie".to_owned(), lie.get_name().to_owned()]);
        }
        words
    }

    fn prepare(&self, scenario: Scenario) -> Result<Prepared, Failure> {
        let made = self.directory.join(format!("made-{scenario}"));
        let template = self.directory.join(format!("template-{scenario}"));
        fs::create_dir_all(&made)?;
        let arguments = self.worker_arguments(scenario, &made.join(DATABASE), "prepare");
        let output = processes::run_to_end("prepare", &arguments, &self.log, LIMIT)?;
        let events = events_of(&output);
        let before = Story::of(&events, None);
        if !before.done || !before.wrong.is_empty() {
            return Err(Failure::Harness(format!(
                "preparing {scenario}: {}: {output}",
                before.wrong.join("; ")
            )));
        }
        // The log's prepared blocks become holes, which cost nothing to copy.
        copy_files(&made, &template)?;
        Ok(Prepared {
            scenario,
            template,
            before,
        })
    }

    fn attempt(
        &mut self,
        prepared: &Prepared,
        injection: Option<&Injection>,
    ) -> Result<Tried, Failure> {
        let directory = self.directory.join("run");
        let frozen = self.directory.join("snapshot");
        copy_files(&prepared.template, &directory)?;
        let database = directory.join(DATABASE);
        let arguments = self.worker_arguments(prepared.scenario, &database, "run");
        let command = this_program(&arguments, &self.log)?;
        let mut is_frozen = false;
        let run = tracer::run(command, injection, LIMIT, &mut || {
            is_frozen = true;
            copy_files(&directory, &frozen)
        })?;
        let events = events_of(&run.output);
        let story = Story::of(&events, Some(&prepared.before));
        if self.arguments.verbose {
            eprintln!("{}", run.output);
            for entry in fs::read_dir(&directory)?.flatten() {
                eprintln!("{:?} {}", entry.file_name(), entry.metadata()?.len());
            }
        }
        let case = Case {
            scenario: prepared.scenario,
            mode: self.arguments.mode,
            injection,
            run: &run,
            story: &story,
        };
        let mut broken = case.broken();
        if is_frozen {
            let end = events.iter().position(|event| matches!(event, Event::End));
            let until_end = &events[..end.map_or(events.len(), |end| end + 1)];
            let so_far = Story::of(until_end, Some(&prepared.before));
            let facts = self.inspect(&frozen)?;
            let found = case.broken_on_disk(facts.as_ref(), &so_far);
            broken.extend(found.iter().map(|what| format!("killed at once: {what}")));
        }
        let facts = self.inspect(&directory)?;
        let found = case.broken_on_disk(facts.as_ref(), &story);
        broken.extend(found.iter().map(|what| format!("at the end: {what}")));
        if !broken.is_empty() {
            eprintln!(
                "{}\n  {}",
                replay(self.arguments, prepared.scenario, injection),
                broken.join("\n  ")
            );
            if self.arguments.verbose {
                eprintln!("{facts:#?}");
            }
        }
        Ok(Tried { run, story, broken })
    }

    fn inspect(&mut self, directory: &Path) -> Result<Option<Facts>, Failure> {
        let copy = self.directory.join("for-stock");
        copy_files(directory, &copy)?;
        let question = Question {
            database: directory.join(DATABASE),
            for_stock: copy.join(DATABASE),
        };
        let checker = match &mut self.checker {
            Some(checker) => checker,
            none => none.insert(Checker::start(&self.log)?),
        };
        let facts = checker.ask(&question, LIMIT)?;
        if facts.is_none() {
            self.checker = None;
        }
        Ok(facts)
    }
}

fn events_of(output: &str) -> Vec<Event> {
    // Lines that a kill cut off, and the words of `onewrite detach`, are not events.
    output
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}
