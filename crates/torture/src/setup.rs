//! The directory of a run, with the database, the ledgers and the workers' log. It is kept
//! after a failure, and removed otherwise.

use crate::checks::{CheckArguments, CheckReport, Leave};
use crate::database::{Database, Engine, JournalMode, Synchronous};
use crate::failure::Failure;
use crate::processes::run_to_end;
use crate::random::{Random, fresh_seed};
use clap::Args;
use onewrite_iotrace::scratch::{self, FileSystem, Scratch};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long one process may take to check a database.
pub const CHECK_LIMIT: Duration = Duration::from_secs(120);

/// The arguments of every run.
#[derive(Debug, Clone, Args)]
pub struct SetupArguments {
    /// Journal mode of our connections.
    #[arg(long, value_enum, default_value = "waldio")]
    pub mode: JournalMode,
    /// SQLite that takes our side; `stock` tries the harness itself on SQLite's own modes.
    #[arg(long, value_enum, default_value = "ours")]
    pub engine: Engine,
    /// Durability of a commit.
    #[arg(long, value_enum, default_value = "full")]
    pub synchronous: Synchronous,
    /// Value of `PRAGMA onewrite_group_synch`, as 'frames,milliseconds'.
    #[arg(long)]
    pub group_synch: Option<String>,
    /// How checkpoints bring pages into the database: `copy`, `exchange`, `forward`, `clone` or
    /// `auto`.
    #[arg(long)]
    pub checkpoint: Option<String>,
    /// Value of `PRAGMA lsmvbt_torn`: `double`, `trust` or `auto`.
    #[arg(long)]
    pub torn: Option<String>,
    /// Run on a file system of the run's own (root), in a loop image in --dir.
    #[arg(long, value_parser = ["ext4", "xfs", "btrfs"])]
    pub scratch: Option<String>,
    /// Seed that fixes every choice of every process; drawn and printed by default.
    #[arg(long, env = "ONEWRITE_TORTURE_SEED")]
    pub seed: Option<u64>,
    /// Directory in which to make the run's own; by default the system's temporary one.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Stop after this many seconds, with fewer rounds.
    #[arg(long)]
    pub max_seconds: Option<u64>,
}

/// A run's directory, seed and end.
pub struct Setup {
    directory: TempDir,
    /// The file system of the directory, if it is the run's own. It ends after the directory.
    scratch: Option<Scratch>,
    seed: u64,
    started: Instant,
    end: Option<Instant>,
}

impl Setup {
    /// Makes the directory and prints the seed on standard error.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn new(arguments: &SetupArguments) -> Result<Self, Failure> {
        let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
        let scratch = match &arguments.scratch {
            Some(name) => Some(scratch_in(&parent, name)?),
            None => None,
        };
        let parent = scratch
            .as_ref()
            .map_or(parent, |scratch| scratch.root().to_owned());
        let directory = tempfile::Builder::new()
            .prefix("onewrite-torture-")
            .tempdir_in(&parent)
            .map_err(|error| Failure::io("make a directory in", &parent, error))?;
        let seed = arguments.seed.unwrap_or_else(fresh_seed);
        eprintln!("seed {seed} (ONEWRITE_TORTURE_SEED={seed} repeats its choices)");
        let started = Instant::now();
        let end = arguments
            .max_seconds
            .map(|seconds| started + Duration::from_secs(seconds));
        Ok(Self {
            directory,
            scratch,
            seed,
            started,
            end,
        })
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The choices of the orchestrator.
    pub fn random(&self) -> Random {
        Random::new(self.seed)
    }

    /// Seconds since the start.
    pub fn elapsed_seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Whether the given time is over.
    pub fn is_over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() > end)
    }

    /// The file for the workers' standard error.
    pub fn log(&self) -> PathBuf {
        self.directory.path().join("workers.log")
    }

    /// The database under test, number `number`: the database file and the directory of its ledgers.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn test_database(&self, number: u64) -> Result<TestDatabase, Failure> {
        let ledgers = self.directory.path().join(format!("ledgers-{number}"));
        std::fs::create_dir(&ledgers).map_err(|error| Failure::io("make", &ledgers, error))?;
        let database = self.directory.path().join(format!("db-{number}"));
        Ok(TestDatabase { database, ledgers })
    }

    /// Runs a subcommand of this program to its end.
    ///
    /// # Errors
    /// The failure that it finds.
    pub fn run(&self, name: &str, arguments: &[String]) -> Result<String, Failure> {
        run_to_end(name, arguments, &self.log(), CHECK_LIMIT)
    }

    /// Lets a process make the tables of `test`.
    ///
    /// # Errors
    /// The failure that it finds.
    pub fn create(&self, test: &TestDatabase, arguments: &SetupArguments) -> Result<(), Failure> {
        let mut create = vec!["create".to_owned()];
        create.extend(test.connection(arguments).arguments());
        self.run("create", &create).map(drop)
    }

    /// Lets a process check everything of `test`, through `database`.
    ///
    /// # Errors
    /// The failure that it finds.
    pub fn check(
        &self,
        test: &TestDatabase,
        database: Database,
        settle: Settle,
        leave: Leave,
    ) -> Result<CheckReport, Failure> {
        let ledgers = test.ledgers.clone();
        let settle = settle == Settle::Yes;
        let check = CheckArguments {
            database,
            ledgers,
            settle,
            leave,
        };
        let output = self.run("check", &check.arguments())?;
        serde_json::from_str(output.trim())
            .map_err(|error| Failure::Harness(format!("check said {output:?}: {error}")))
    }

    /// Ends the run. Removes the directory unless a failure was found in it.
    pub fn finish<T>(self, result: Result<T, Failure>) -> Result<T, Failure> {
        result.map_err(|failure| {
            let seed = self.seed;
            let kept = match &self.scratch {
                None => self.directory.keep(),
                Some(scratch) => copied_out(self.directory.path(), &scratch.host_dir()),
            };
            failure.at(&format!("seed {seed}, files kept in {}", kept.display()))
        })
    }
}

/// Makes a file system for the run.
fn scratch_in(parent: &Path, name: &str) -> Result<Scratch, Failure> {
    let named = |file_system: &FileSystem| file_system.name() == name;
    let file_system = FileSystem::ALL.into_iter().find(named);
    let options = scratch::Options {
        file_system: file_system
            .ok_or_else(|| Failure::Harness(format!("no file system {name}")))?,
        bytes: 1 << 30,
        parent,
        stop: &AtomicBool::new(false),
    };
    Scratch::create(&options).map_err(|error| Failure::Harness(error.to_string()))
}

/// Copies the files of a failure to a directory next to the file system, which ends with the run.
/// Returns that directory.
fn copied_out(from: &Path, mount_point: &Path) -> PathBuf {
    let to = mount_point.with_extension("kept");
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .arg(from)
        .arg(&to)
        .status();
    match copied.is_ok_and(|status| status.success()) {
        true => to,
        false => from.to_owned(),
    }
}

/// Whether commits that a check does not find are lost for good. They are if no writer lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// Writers live.
    No,
    /// No writer lives.
    Yes,
}

/// A database and its ledgers.
#[derive(Debug, Clone)]
pub struct TestDatabase {
    /// The database file.
    pub database: PathBuf,
    /// The directory of the ledgers.
    pub ledgers: PathBuf,
}

impl TestDatabase {
    /// How our side connects to it.
    pub fn connection(&self, arguments: &SetupArguments) -> Database {
        let engine = match arguments.mode {
            // This mode uses SQLite's own VFS.
            JournalMode::Lsmvbt => Engine::Stock,
            _ => arguments.engine,
        };
        Database {
            db: self.database.clone(),
            engine,
            mode: Some(arguments.mode),
            synchronous: arguments.synchronous,
            group_synch: arguments.group_synch.clone(),
            checkpoint: arguments.checkpoint.clone(),
            torn: arguments.torn.clone(),
            busy_timeout: 5000,
        }
    }

    /// Removes the files, so that a run over many databases keeps only those with failures.
    pub fn remove(&self) {
        // If a file cannot be removed now, it goes with the run's directory.
        for suffix in ["", "-wal", "-shm", "-journal", "-onewrite"] {
            let _ = std::fs::remove_file(crate::files::companion(&self.database, suffix));
        }
        let _ = std::fs::remove_dir_all(&self.ledgers);
    }
}
