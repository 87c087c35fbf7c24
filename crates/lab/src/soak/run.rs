//! The run: workers at work, and what happens to them.

mod judge;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use onewrite_cli::interrupt;
use onewrite_torture::random::Random;

use super::clocks::Clocks;
use super::cuts::Cuts;
use super::disk::Disk;
use super::fleet::Fleet;
use super::job::{ACCOUNTS, BALANCE, Job, Role, now, wall_clock};
use super::programs::Programs;
use super::report::Report;
use super::tasks::{self, Kind, Tasks};
use super::{Args, Broken, Mode, merge};

const TICK: Duration = Duration::from_millis(100);
/// Errors of a full disk may come this long after the space is back: a statement waits for locks
/// that long.
const AFTERMATH_NS: u64 = 30_000_000_000;
/// How long a check at the end may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// An event of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Kill,
    KillAll,
    Stop,
    Terminate,
    Full,
    PowerCut,
    Copy,
    Check,
    Shell,
    Upgrade,
    ClockJump,
}

/// The events with the seconds between two of a kind, on average.
const EVENTS: [(Event, f64); 11] = [
    (Event::Kill, 15.0),
    (Event::KillAll, 70.0),
    (Event::Stop, 25.0),
    (Event::Terminate, 40.0),
    (Event::Full, 80.0),
    (Event::PowerCut, 100.0),
    (Event::Copy, 45.0),
    (Event::Check, 30.0),
    (Event::Shell, 10.0),
    (Event::Upgrade, 600.0),
    (Event::ClockJump, 20.0),
];

/// See the module.
pub struct Run<'a> {
    args: &'a Args,
    // In the order in which they must be dropped.
    tasks: Tasks,
    fleet: Fleet,
    disk: Disk,
    directory: PathBuf,
    programs: Programs,
    job: Job,
    random: Random,
    started: Instant,
    due: Vec<(Event, Instant)>,
    /// When the disk is emptied again, and when it was filled.
    full_until: Option<(Instant, u64)>,
    full: Vec<(u64, u64)>,
    happened: u64,
    copies: u64,
    report: Report,
    bar: ProgressBar,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn progress_bar(args: &Args) -> ProgressBar {
    let bar = ProgressBar::new(args.seconds);
    let template = "{elapsed_precise} {wide_bar} {pos}/{len} s, {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// Statements of which a worker runs one now and then. Where LS-MVBT keeps a history, it refuses to vacuum;
/// so a run has one or the other.
fn upkeep(mode: Mode, seed: u64) -> Vec<String> {
    let statements: &[&str] = match (mode, seed.is_multiple_of(2)) {
        (Mode::Lsmvbt, true) => &["VACUUM", "PRAGMA incremental_vacuum(20)"],
        (Mode::Lsmvbt, false) => &[
            "PRAGMA lsmvbt_history = 100",
            "PRAGMA lsmvbt_history = '5 seconds'",
            "PRAGMA lsmvbt_history = 0",
        ],
        _ => &[
            "PRAGMA wal_checkpoint(PASSIVE)",
            "PRAGMA wal_checkpoint(FULL)",
            "PRAGMA wal_checkpoint(RESTART)",
            "PRAGMA wal_checkpoint(TRUNCATE)",
        ],
    };
    statements.iter().map(ToString::to_string).collect()
}

/// The job of every worker, but for what its place decides.
fn first_job(
    args: &Args,
    seed: u64,
    database: PathBuf,
    library: Option<PathBuf>,
    directory: &Path,
) -> Job {
    let by_wall_clock = args.broken == Some(Broken::HistoriesByWallClock);
    Job {
        role: Role::Work,
        database,
        mode: args.mode.name().to_owned(),
        library,
        history: PathBuf::new(),
        notes: PathBuf::new(),
        histories: directory.to_owned(),
        process: 0,
        seed: 0,
        rate: args.rate,
        busy_ms: 5000,
        accounts: ACCOUNTS,
        total: ACCOUNTS * BALANCE,
        keys: 8,
        epoch_s: 20,
        long_readers: 0.03,
        upkeep: upkeep(args.mode, seed),
        copy: PathBuf::new(),
        until: u64::MAX,
        integrity: false,
        lie: args.broken == Some(Broken::AcknowledgesRolledBack),
        began: wall_clock(),
        by_wall_clock: by_wall_clock.then(|| wall_clock() - now()),
        synchronous: "FULL".to_owned(),
    }
}

/// The name of a file, as text.
fn name_of(file: Option<&Path>) -> Option<String> {
    let name = file?.file_name()?;
    Some(name.to_string_lossy().into_owned())
}

/// Gives the workers their wall clocks and the other library. Returns what cannot be done.
fn prepare(fleet: &mut Fleet, args: &Args, directory: &Path) -> Result<Vec<String>, String> {
    if let Some(other) = &args.other_library {
        // SQLite finds the entry point by the letters of the name.
        let library = directory.join("libonewrite-0.so");
        std::fs::copy(other, &library).map_err(|error| format!("{}: {error}", other.display()))?;
        let breaks = args.broken == Some(Broken::OtherLibraryDoesNotFlush);
        fleet.mix(&library, if breaks { "OFF" } else { "FULL" });
    }
    match Args::next_to_this("libonewrite_wallclock.so") {
        Ok(library) => fleet.set_clocks(Clocks::new(&library, fleet.len(), directory)?),
        Err(why) => return Ok(vec![format!("clock jumps: {why}")]),
    }
    Ok(Vec::new())
}

/// Runs a command to its end.
fn finished(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(text)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

impl<'a> Run<'a> {
    /// Makes the disk and the database in it. `directory` is the run's own, on another file system.
    pub fn new(args: &'a Args, directory: &Path, seed: u64) -> Result<Self, String> {
        let programs = Programs::find(args, directory)?;
        for missing in &programs.missing {
            eprintln!("no program in {}: {}", missing.language, missing.why);
        }
        let disk = Disk::new(args.disk << 20, directory)?;
        let mut library = None;
        if args.mode.is_of_extension() {
            let copy = library.insert(directory.join("libonewrite-1.so"));
            std::fs::copy(args.library()?, copy).map_err(text)?;
        }
        let job = first_job(args, seed, disk.database(), library, directory);
        if args.broken == Some(Broken::DeviceIgnoresFlushes) {
            disk.ignore_flushes();
        }
        let mut fleet = Fleet::new(
            &programs.found,
            usize::from(args.workers),
            job.clone(),
            directory,
        );
        let not_done = prepare(&mut fleet, args, directory)?;
        let report = Report {
            version: 1,
            mode: args.mode.name().to_owned(),
            seed,
            programs: programs.found.clone(),
            missing: programs.missing.clone(),
            workers: fleet.languages(),
            not_done,
            other_library: name_of(args.other_library.as_deref()),
            ..Report::default()
        };
        let mut run = Self {
            args,
            tasks: Tasks::default(),
            fleet,
            disk,
            directory: directory.to_owned(),
            programs,
            job,
            random: Random::new(seed),
            started: Instant::now(),
            due: Vec::new(),
            full_until: None,
            full: Vec::new(),
            happened: 0,
            copies: 0,
            report,
            bar: progress_bar(args),
        };
        run.create()?;
        Ok(run)
    }

    fn create(&mut self) -> Result<(), String> {
        let mut command = self.command("rust", Role::Create, |_| {})?;
        finished(&mut command)
    }

    /// A command for a job of a program.
    fn command(
        &self,
        language: &str,
        role: Role,
        change: impl FnOnce(&mut Job),
    ) -> Result<Command, String> {
        let mut job = self.job.clone();
        job.library = self.fleet.library().map(Path::to_owned);
        job.role = role;
        change(&mut job);
        let program = self.programs.of(language);
        let mut command = program.ok_or(format!("no program in {language}"))?.start();
        command.arg(serde_json::to_string(&job).map_err(text)?);
        Ok(command)
    }

    /// Runs until the end, and returns the report.
    pub fn run(mut self) -> Result<Report, String> {
        let begin = Instant::now();
        self.due = EVENTS
            .iter()
            .filter(|(event, _)| self.is_possible(*event))
            .map(|(event, mean)| (*event, begin + self.args.hurried(*mean / 2.0)))
            .collect();
        while !self.is_over() {
            std::thread::sleep(TICK);
            self.fleet.tend(&mut self.random)?;
            self.reap()?;
            if self
                .full_until
                .is_some_and(|(until, _)| until <= Instant::now())
            {
                self.empty_disk()?;
            }
            self.happen()?;
            self.show();
        }
        self.bar.finish_and_clear();
        self.report.stopped_early = interrupt::is_requested();
        self.finish()?;
        Ok(self.report)
    }

    fn show(&self) {
        self.bar.set_position(self.started.elapsed().as_secs());
        let report = &self.report;
        self.bar.set_message(format!(
            "{} events, {} commits, {} wrong",
            self.happened, report.acknowledged, report.failures
        ));
    }

    fn is_possible(&self, event: Event) -> bool {
        match event {
            Event::Shell => self.args.mode.has_stock_neighbours(),
            Event::Upgrade => {
                let is_long = self.args.seconds >= 60;
                self.args.mode.is_of_extension() && (self.args.next_library.is_some() || is_long)
            }
            Event::ClockJump => self.report.not_done.is_empty(),
            _ => true,
        }
    }

    fn is_over(&self) -> bool {
        let limit = Duration::from_secs(self.args.seconds);
        let enough = self
            .args
            .events
            .is_some_and(|events| self.happened >= events);
        interrupt::is_requested() || enough || self.started.elapsed() >= limit
    }

    /// Lets everything happen that is due.
    fn happen(&mut self) -> Result<(), String> {
        for number in 0..self.due.len() {
            let (event, at) = self.due[number];
            if at > Instant::now() {
                continue;
            }
            self.let_happen(event)?;
            self.happened += 1;
            let mean = EVENTS.iter().find(|(one, _)| *one == event);
            let mean = mean.map_or(60.0, |(_, seconds)| *seconds);
            let share = 0.5 + self.random.below(1000) as f64 / 1000.0;
            self.due[number].1 = Instant::now() + self.args.hurried(mean * share);
        }
        Ok(())
    }

    fn anyone(&mut self) -> usize {
        self.random.below(self.fleet.len() as u64) as usize
    }

    fn let_happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Kill => {
                let victim = self.anyone();
                self.fleet.kill(victim)?;
                self.report.count("killed");
            }
            Event::KillAll => {
                self.fleet.kill_all()?;
                self.tasks.kill();
                self.report.count("all killed");
                if self.random.one_in(2) {
                    self.start_check(true)?;
                }
            }
            Event::Stop => {
                let (victim, time) = (self.anyone(), self.random.between(500, 9000));
                self.fleet.stop(victim, Duration::from_millis(time));
                self.report.count("stopped");
            }
            Event::Terminate => {
                let victim = self.anyone();
                self.fleet.terminate(victim, Duration::from_secs(10));
                self.report.count("terminated");
            }
            Event::Full => self.fill_disk()?,
            Event::PowerCut => self.cut_power()?,
            Event::Copy => self.start_copy()?,
            Event::Check => {
                let integrity = self.random.one_in(3);
                self.start_check(integrity)?;
            }
            Event::Shell => self.start_shell()?,
            Event::Upgrade => self.upgrade()?,
            Event::ClockJump => {
                let place = self.anyone();
                self.fleet.jump(place, &mut self.random)?;
                self.report.count("clock jump");
            }
        }
        Ok(())
    }

    fn fill_disk(&mut self) -> Result<(), String> {
        if self.full_until.is_some() {
            return Ok(());
        }
        let keep = self.random.below(64) << 10;
        let time = Duration::from_millis(self.random.between(1000, 8000));
        let began = now();
        self.disk.fill(keep)?;
        self.full_until = Some((Instant::now() + time, began));
        self.report.count("disk filled");
        Ok(())
    }

    fn empty_disk(&mut self) -> Result<(), String> {
        if let Some((_, began)) = self.full_until.take() {
            self.disk.empty()?;
            self.full.push((began, now() + AFTERMATH_NS));
        }
        Ok(())
    }

    fn cut_power(&mut self) -> Result<(), String> {
        let (fleet, tasks) = (&mut self.fleet, &mut self.tasks);
        let kill = || {
            fleet.kill_all()?;
            tasks.kill();
            Ok(())
        };
        let (moment, cut) = self.disk.cut(self.random.next(), kill)?;
        Cuts::add(&self.directory, moment, now())?;
        self.disk.empty()?;
        if let Some((_, began)) = self.full_until.take() {
            self.full.push((began, now() + AFTERMATH_NS));
        }
        self.report.count("power cut");
        self.report.cached_writes += cut.cached as u64;
        self.report.lost_writes += cut.lost as u64;
        self.report.torn_writes += cut.torn as u64;
        if self.random.one_in(2) {
            self.keep_quiet_check()?;
        }
        self.start_check(true)
    }

    /// A check with nobody else at work.
    fn keep_quiet_check(&mut self) -> Result<(), String> {
        self.start_check(true)?;
        self.wait_for_tasks()
    }

    fn wait_for_tasks(&mut self) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        while !self.tasks.is_empty() {
            std::thread::sleep(TICK);
            self.reap()?;
            if Instant::now() >= end {
                self.report.fail("a check or a backup does not end");
                self.tasks.kill();
                return Ok(());
            }
        }
        Ok(())
    }

    fn start_check(&mut self, integrity: bool) -> Result<(), String> {
        if self.tasks.is_running(|kind| *kind == Kind::Check) {
            return Ok(());
        }
        let set = |job: &mut Job| {
            job.integrity = integrity;
            // A check has no reason to give up while a stopped worker holds a lock.
            job.busy_ms = 60_000;
        };
        let mut command = self.command("rust", Role::Check, set)?;
        self.tasks.start(Kind::Check, &mut command)?;
        self.report.count("check");
        Ok(())
    }

    fn start_copy(&mut self) -> Result<(), String> {
        if self
            .tasks
            .is_running(|kind| matches!(kind, Kind::Copy { .. }))
        {
            return Ok(());
        }
        let mut methods = Vec::new();
        // It has no SQLite that could read the other B-tree.
        if self.args.mode.is_of_extension() {
            methods.push("onewrite backup");
        }
        if self.programs.of("python").is_some() {
            methods.extend(["backup API", "VACUUM INTO"]);
        }
        if self.args.mode.has_stock_neighbours() {
            methods.push(".backup of a stock shell");
        }
        if methods.is_empty() {
            return Ok(());
        }
        let method = *self.random.choose(&methods);
        self.copies += 1;
        let copy = self.directory.join(format!("copy-{}.db", self.copies));
        let to = |job: &mut Job| job.copy = copy.clone();
        let mut command = match method {
            "backup API" => self.command("python", Role::Backup, to)?,
            "VACUUM INTO" => self.command("python", Role::VacuumInto, to)?,
            "onewrite backup" => {
                let mut command = Command::new("setpriv");
                command.args(["--pdeathsig", "KILL", "--"]);
                command.arg(self.args.onewrite()?).arg("backup");
                command.arg(self.disk.database()).arg(&copy);
                command
            }
            _ => {
                let mut command = tasks::shell();
                command.arg(self.disk.database());
                command.args([".timeout 5000", &format!(".backup {}", copy.display())]);
                command
            }
        };
        let began = now();
        let kind = Kind::Copy {
            method,
            copy,
            began,
        };
        self.tasks.start(kind, &mut command)?;
        self.report.count(method);
        Ok(())
    }

    /// A stock shell reads and transfers money.
    fn start_shell(&mut self) -> Result<(), String> {
        let (debit, credit) = (self.random.below(200), self.random.below(200));
        let mut command = tasks::shell();
        command.arg(self.disk.database()).args([
            ".timeout 5000",
            "SELECT sum(balance) FROM account;",
            "BEGIN IMMEDIATE;",
            &format!("UPDATE account SET balance = balance - 7 WHERE id = {debit};"),
            &format!("UPDATE account SET balance = balance + 7 WHERE id = {credit};"),
            "COMMIT;",
            "SELECT sum(balance) FROM account;",
        ]);
        self.tasks.start(Kind::Shell, &mut command)?;
        self.report.count("stock shell");
        Ok(())
    }

    /// Workers that start from now on load another file.
    fn upgrade(&mut self) -> Result<(), String> {
        let count = self.report.events.get("upgrade").copied().unwrap_or(0);
        let library = self.directory.join(format!("libonewrite-{}.so", count + 2));
        let from = match &self.args.next_library {
            Some(next) => next.clone(),
            None => self.args.library()?,
        };
        std::fs::copy(from, &library).map_err(text)?;
        self.fleet.upgrade(&library);
        self.report.count("upgrade");
        Ok(())
    }

    /// Ends the workers, checks everything, and merges the history.
    fn finish(&mut self) -> Result<(), String> {
        self.empty_disk()?;
        self.fleet.kill_all()?;
        self.wait_for_tasks()?;
        self.keep_quiet_check()?;
        self.report.processes = self.fleet.lives();
        self.report.processes_with_other = self.fleet.with_other();
        for ended in std::mem::take(&mut self.fleet.ended) {
            self.report.fail(&format!("ended by itself: {ended}"));
        }
        self.report.gather(&self.directory, &self.full)?;
        self.report.elapsed_s = self.started.elapsed().as_secs_f64();
        let set = |job: &mut Job| {
            job.process = u64::MAX >> 32;
            job.history = self.directory.join("worker-last.edn");
        };
        let mut read_all = self.command("rust", Role::ReadAll, set)?;
        if let Err(error) = finished(&mut read_all) {
            self.report.fail(&format!("the last read: {error}"));
        }
        let history = self.directory.join("history.edn");
        merge::merge(&self.directory, &history)?;
        let checked = crate::history::check_files(std::slice::from_ref(&history))?;
        if !checked.is_right() {
            self.report.fail(&format!("history: {}", checked.summary()));
        }
        self.report.checked = Some(checked);
        self.report.history = Some(history);
        if self.report.failures > 0 {
            self.disk.keep(&self.directory)?;
        }
        Ok(())
    }
}
