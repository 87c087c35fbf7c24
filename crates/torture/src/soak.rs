//! A bank on one database, on a chosen SQLite: transfers with `ROLLBACK TO`, long readers, several
//! checkpointers, and kill -9 at random moments.
//!
//! It tests faults that only another SQLite than the linked one has. SQLite 3.40.1 and 3.46 leave
//! commits without checksums, and lose them if a log starts again alongside a checkpoint. So the
//! workers are Python scripts (`soak/worker.py`) that load the extension.
//!
//! The run succeeds if every acknowledged row exists once, and `integrity_check` is ok. In every
//! snapshot the sum of all accounts and the index must be right. No statement may fail except for a
//! lock.

use crate::database::JournalMode;
use crate::failure::{Failure, Promise};
use crate::random::{Random, fresh_seed};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const WORKER: &str = include_str!("soak/worker.py");
/// The time between checks while others are at work.
const CHECK_EVERY: Duration = Duration::from_secs(6);
/// The number of failures kept in the report.
const KEPT: usize = 10;

/// The arguments of `soak`.
#[derive(Debug, Clone, Args)]
pub struct SoakArguments {
    /// Journal mode.
    #[arg(long, value_enum, default_value = "onewrite")]
    pub mode: JournalMode,
    /// Length of the run in seconds.
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Seed that fixes the choices of every process; drawn and printed by default.
    #[arg(long, env = "ONEWRITE_TORTURE_SEED")]
    pub seed: Option<u64>,
    /// Library libsqlite3.so.0 to use in place of the system's.
    #[arg(long)]
    pub sqlite: Option<PathBuf>,
    /// Number of processes.
    #[arg(long, default_value_t = 6)]
    pub workers: usize,
    /// Extension to load; by default the one next to this program.
    #[arg(long)]
    pub extension: Option<PathBuf>,
    /// Run without the extension: SQLite alone.
    #[arg(long)]
    pub stock: bool,
    /// Python whose sqlite3 module uses libsqlite3.so.0 and can load extensions.
    #[arg(long, env = "ONEWRITE_PYTHON", default_value = "/usr/bin/python3")]
    pub python: PathBuf,
    /// Directory in which to make the run's own; by default the system's temporary one.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Let workers acknowledge rolled-back transactions, to show that the checks find it.
    #[arg(long)]
    pub lie: bool,
}

/// The work and the findings of a run.
#[derive(Debug, Default, Serialize)]
pub struct SoakReport {
    /// The seed.
    pub seed: u64,
    /// The version of the used SQLite.
    pub sqlite: String,
    /// The journal mode.
    pub mode: String,
    /// Processes that were killed.
    pub processes_killed: u64,
    /// How often all were killed at once.
    pub all_killed: u64,
    /// Checks of everything.
    pub checks: u64,
    /// Rows whose COMMIT had returned, at the last check.
    pub acknowledged: u64,
    /// How often SQLite recovered a log.
    pub recoveries: u64,
    /// Checks that failed, and workers' statements that failed or read wrong data.
    pub failures: u64,
    /// Some of these failures.
    pub wrong: Vec<String>,
    /// Seconds.
    pub elapsed_s: f64,
}

/// The report of `worker.py check`.
#[derive(Debug, Deserialize)]
struct Found {
    acknowledged: u64,
    missing: u64,
    twice: u64,
    sum_is_right: bool,
    index_is_right: bool,
    integrity: String,
}

impl Found {
    fn is_right(&self) -> bool {
        self.missing == 0
            && self.twice == 0
            && self.sum_is_right
            && self.index_is_right
            && self.integrity == "ok"
    }
}

/// How much a check covers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Rows,
    Integrity,
}

/// Runs the bank.
///
/// # Errors
/// The failures, with the report. The directory is kept.
pub fn run(arguments: &SoakArguments) -> Result<SoakReport, Failure> {
    let mut run = Run::new(arguments)?;
    run.soak()?;
    run.kill_workers()?;
    run.check(Depth::Integrity, "at the end");
    run.gather()?;
    let report = std::mem::take(&mut run.report);
    if report.failures == 0 {
        return Ok(report);
    }
    run.directory.disable_cleanup(true);
    let kept = run.directory.path().display();
    let detail = format!("files kept in {kept}: {}", serde_json::json!(report));
    Err(Failure::broken(Promise::AcknowledgedCommitsSurvive, detail))
}

struct Run<'a> {
    arguments: &'a SoakArguments,
    directory: TempDir,
    extension: PathBuf,
    random: Random,
    started: Instant,
    workers: Vec<Child>,
    report: SoakReport,
}

impl<'a> Run<'a> {
    fn new(arguments: &'a SoakArguments) -> Result<Self, Failure> {
        let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
        let directory = tempfile::Builder::new()
            .prefix("onewrite-soak-")
            .tempdir_in(&parent)
            .map_err(|error| Failure::io("make a directory in", &parent, error))?;
        let script = directory.path().join("worker.py");
        fs::write(&script, WORKER).map_err(|error| Failure::io("write", &script, error))?;
        let seed = arguments.seed.unwrap_or_else(fresh_seed);
        eprintln!("seed {seed} (ONEWRITE_TORTURE_SEED={seed} repeats its choices)");
        let extension = match (&arguments.extension, arguments.stock) {
            (_, true) => PathBuf::from("-"),
            (Some(extension), _) => extension.clone(),
            (None, _) => std::env::current_exe()?.with_file_name("libonewrite.so"),
        };
        let mut run = Run {
            arguments,
            directory,
            extension,
            random: Random::new(seed),
            started: Instant::now(),
            workers: Vec::new(),
            report: SoakReport {
                seed,
                mode: arguments.mode.name().to_owned(),
                ..SoakReport::default()
            },
        };
        run.report.sqlite = run.output(&["create"])?.trim().to_owned();
        Ok(run)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, what: &[&str]) -> Result<Command, Failure> {
        let log = self.path("stderr.log");
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(|error| Failure::io("open", &log, error))?;
        let mut command = Command::new(&self.arguments.python);
        command
            .arg(self.path("worker.py"))
            .arg(&self.extension)
            .arg(self.path("bank.db"))
            .arg(self.arguments.mode.name())
            .args(what)
            .stdin(Stdio::null())
            .stderr(log);
        if let Some(library) = &self.arguments.sqlite {
            command.env("LD_PRELOAD", library);
        }
        Ok(command)
    }

    /// Runs a worker to its end and returns its output.
    fn output(&self, what: &[&str]) -> Result<String, Failure> {
        let output = self.command(what)?.output()?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => {
                let log = fs::read_to_string(self.path("stderr.log")).unwrap_or_default();
                let last = log.lines().last().unwrap_or("nothing on standard error");
                Err(Failure::Harness(format!("{}: {last}", what.join(" "))))
            }
        }
    }

    fn start(&mut self, worker: usize) -> Result<Child, Failure> {
        let (name, seed) = (worker.to_string(), self.random.next().to_string());
        let mut what = vec!["write", &name, &seed];
        what.extend(self.arguments.lie.then_some("lie"));
        Ok(self.command(&what)?.stdout(Stdio::null()).spawn()?)
    }

    fn soak(&mut self) -> Result<(), Failure> {
        for worker in 0..self.arguments.workers {
            let child = self.start(worker)?;
            self.workers.push(child);
        }
        let end = self.started + Duration::from_secs(self.arguments.seconds);
        let mut next_check = self.started + CHECK_EVERY;
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(self.random.between(50, 600)));
            self.expect_all_at_work()?;
            match self.random.one_in(5) {
                true => self.kill_all()?,
                false => self.kill_one()?,
            }
            if Instant::now() > next_check {
                let depth = self.random.choose(&[Depth::Rows, Depth::Integrity]);
                self.check(*depth, "while others work");
                next_check = Instant::now() + CHECK_EVERY;
            }
        }
        Ok(())
    }

    fn expect_all_at_work(&mut self) -> Result<(), Failure> {
        for (number, worker) in self.workers.iter_mut().enumerate() {
            if let Some(status) = worker.try_wait()? {
                let what = format!("worker {number} ended by itself: {status}");
                return Err(Failure::Harness(what));
            }
        }
        Ok(())
    }

    fn kill_one(&mut self) -> Result<(), Failure> {
        let victim = self.random.below(self.workers.len() as u64) as usize;
        self.workers[victim].kill()?;
        self.workers[victim].wait()?;
        self.report.processes_killed += 1;
        self.workers[victim] = self.start(victim)?;
        Ok(())
    }

    fn kill_all(&mut self) -> Result<(), Failure> {
        self.kill_workers()?;
        self.report.all_killed += 1;
        if self.random.one_in(3) {
            self.check(Depth::Integrity, "after all were killed");
        }
        for worker in 0..self.arguments.workers {
            let child = self.start(worker)?;
            self.workers.push(child);
        }
        Ok(())
    }

    /// Checks everything. A check that fails is a finding, because nothing may disturb it.
    fn check(&mut self, depth: Depth, when: &str) {
        let what: &[&str] = match depth {
            Depth::Rows => &["check", "checker"],
            Depth::Integrity => &["check", "checker", "integrity"],
        };
        self.report.checks += 1;
        let found = self.output(what).map_err(|error| error.to_string());
        let found = found.and_then(|text| {
            serde_json::from_str::<Found>(&text).map_err(|error| format!("{error}: {text}"))
        });
        match found {
            Ok(found) if found.is_right() => self.report.acknowledged = found.acknowledged,
            Ok(found) => self.note(&format!("{when}: {found:?}")),
            Err(error) => self.note(&format!("{when}: {error}")),
        }
    }

    fn note(&mut self, what: &str) {
        eprintln!("{what}");
        self.report.failures += 1;
        if self.report.wrong.len() < KEPT {
            self.report.wrong.push(what.to_owned());
        }
    }

    /// Kills all workers.
    fn kill_workers(&mut self) -> Result<(), Failure> {
        for worker in &mut self.workers {
            worker.kill()?;
        }
        for mut worker in self.workers.drain(..) {
            worker.wait()?;
            self.report.processes_killed += 1;
        }
        Ok(())
    }

    /// Counts the workers' notes.
    fn gather(&mut self) -> Result<(), Failure> {
        let names = (0..self.arguments.workers).map(|worker| worker.to_string());
        for name in names.chain(["checker".to_owned()]) {
            self.report.recoveries += read(&self.path(&format!("recovered.{name}")))?.len() as u64;
            for line in read(&self.path(&format!("wrong.{name}")))?.lines() {
                self.note(&format!("worker {name}: {line}"));
            }
        }
        self.report.elapsed_s = self.started.elapsed().as_secs_f64();
        Ok(())
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        for mut worker in self.workers.drain(..) {
            // It has ended by itself.
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

/// A file's text; empty if there is no file.
fn read(path: &Path) -> Result<String, Failure> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(Failure::io("read", path, error)),
    }
}
