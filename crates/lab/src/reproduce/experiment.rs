//! Measures the figures on one file system. Each trial runs once, however many figures need it.
//!
//! A trial is a run of `compare`: the same transactions under one mode, on a fresh database. The
//! repetitions of several trials are interleaved, so that other load on the machine affects all of
//! them. [`super::rounds`] decides the ratios of times.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use onewrite::mode::Region;
use onewrite_iotrace::trace::Tracer;
use onewrite_workload::files::{Access, FilePlan, Way};
use onewrite_workload::mode::{Mode, Synchronous};
use onewrite_workload::plan::{Op, Order, Plan};
use onewrite_workload::raw::{Rates, RawBench};
use tempfile::TempDir;

use onewrite_cli::compare::files;
use onewrite_cli::compare::paired::{CONFIDENCE, FIRST_LOOK, Looks, first_look};
use onewrite_cli::compare::report::{Raw, Run};
use onewrite_cli::compare::rounds::order;
use onewrite_cli::compare::session::{self, Terms};
use onewrite_cli::device::flash::FlashModel;
use onewrite_cli::place::{Place, Room};
use onewrite_cli::progress::Progress;
use onewrite_cli::trace::{self, Traced};
use onewrite_cli::{directory, interrupt};

use super::requests::Costs;
use super::rounds::different;

/// Bytes of a Mobibench row, as in both papers.
pub const RECORD_BYTES: u32 = 100;

/// Seconds that a trial takes besides its transactions: to make, settle, check and close files.
const TRIAL_S: f64 = 0.5;

/// Seconds of CPU that a transaction takes.
const TRANSACTION_S: f64 = 60e-6;

/// One configuration to run.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// The operation of each transaction.
    pub op: Op,
    /// The mode with its variations.
    pub mode: &'static str,
    /// The number of transactions.
    pub count: u32,
    /// Pages of log after which a checkpoint follows; 0 is never.
    pub autocheckpoint: u32,
    /// The number of repetitions.
    pub repeats: u32,
    /// Bytes of a row.
    pub record_bytes: u32,
    /// Transactions before the measured ones, so that the log is one that is reused.
    pub warm_up: u32,
}

impl Trial {
    /// Bytes of a scratch file system for it.
    pub fn bytes(&self) -> u64 {
        let mut parts = self.mode.split([':', ',']);
        let region = parts.find_map(|part| Region::parse(part.strip_prefix("region=")?).ok()?);
        // A log leaves twice its region free.
        let region = region.map_or(0, |region| 4 * region.bytes());
        self.room().bytes() + region
    }

    fn room(&self) -> Room {
        Room {
            op: self.op,
            count: self.count + self.warm_up,
            record_size: self.record_bytes,
            autocheckpoint: self.autocheckpoint,
            warehouses: 1,
        }
    }

    /// Whether both do the same, however often.
    pub fn is_same_work(&self, other: &Self) -> bool {
        let work = |of: &Self| {
            (
                of.op,
                of.mode,
                of.count,
                of.autocheckpoint,
                of.record_bytes,
                of.warm_up,
            )
        };
        work(self) == work(other)
    }

    /// The estimated flushes of a transaction, which it waits for.
    fn flushes(&self) -> f64 {
        if self.mode.contains("sync=normal") {
            return 0.1;
        }
        if self.mode.contains("group_synch") {
            return 0.25;
        }
        match self.mode.split(':').next() {
            Some("delete") => 4.0,
            Some("truncate" | "persist") => 6.0,
            Some("wal") => 2.0,
            _ => 1.0,
        }
    }
}

/// The user's options.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Transactions, if the user sets the number.
    pub count: Option<u32>,
    /// The seed of all values.
    pub seed: u64,
    /// Repetitions, if the user sets the number.
    pub repeats: Option<u32>,
    /// Rounds of a figure at most, until its ratios are decided.
    pub max_rounds: u32,
}

impl Choice {
    /// Rounds of a timed trial before the first look.
    pub fn rounds(self) -> u32 {
        let least = FIRST_LOOK.min(self.max_rounds);
        self.repeats.unwrap_or(least)
    }

    /// After how many rounds so many ratios are looked at, which share the error.
    pub fn looks(self, ratios: u32) -> Looks {
        match self.repeats {
            Some(repeats) => Looks::new(repeats, repeats),
            None => Looks::new(first_look(ratios).min(self.max_rounds), self.max_rounds),
        }
    }
}

/// Estimates the time left from the expected and the measured times of trials.
#[derive(Debug)]
struct Clock {
    expected_s: f64,
    done_s: f64,
    begun: Instant,
}

/// Bytes of a frame in SQLite's log: a page and its header.
pub const FRAME_BYTES: usize = 24 + 4096;

/// The device's work for one append of a frame to a plain file, with fdatasync. SQLite has no part
/// in it, so reasons can predict from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Appended {
    /// Writes, those of the file system's journal included.
    pub writes: f64,
    /// Bytes of the file system's journal.
    pub fs_journal_bytes: f64,
    /// The part of the file, of 1, that was written when its extents no longer fitted into the
    /// inode: the file system's journal had a block more then. 0 where the file system has no such
    /// block.
    pub past_inode: f64,
}

/// See the module.
pub struct Experiment<'a> {
    place: &'a Place,
    progress: &'a Progress,
    choice: Choice,
    /// The directory for pictures of traces, if the user wants them.
    plots: Option<&'a Path>,
    /// The runs of each trial; their `repeat` is the round.
    runs: Vec<(Trial, Vec<Run>)>,
    /// Rounds so far.
    rounds: u32,
    /// How often an interval may miss the true ratio.
    error: f64,
    bench: RawBench<'a>,
    samples: Vec<Rates>,
    clock: Clock,
    /// Figures that several reasons need, by name.
    known: BTreeMap<&'static str, f64>,
    /// The same of appends, by their number.
    appended: BTreeMap<u32, Appended>,
    notes: Vec<String>,
}

impl<'a> Experiment<'a> {
    /// Prepares the place, and measures the device's rates.
    pub fn new(
        place: &'a Place,
        progress: &'a Progress,
        choice: Choice,
        plots: Option<&'a Path>,
    ) -> Result<Self, String> {
        let bench = RawBench::prepare(place.root(), choice.count.unwrap_or(1_000))
            .map_err(|error| directory::explain(place.given(), &error))?
            .stopped_by(interrupt::requested());
        progress.say("raw device rates");
        let first = bench.measure().map_err(|error| error.to_string())?;
        Ok(Self {
            place,
            progress,
            choice,
            plots,
            runs: Vec::new(),
            rounds: 0,
            error: 1.0 - CONFIDENCE,
            bench,
            samples: vec![first],
            clock: Clock {
                expected_s: 0.0,
                done_s: 0.0,
                begun: Instant::now(),
            },
            known: BTreeMap::new(),
            appended: BTreeMap::new(),
            notes: Vec::new(),
        })
    }

    /// A figure that is measured once, however many reasons need it.
    pub fn known_or(
        &mut self,
        name: &'static str,
        measure: impl FnOnce(&mut Self) -> Result<f64, String>,
    ) -> Result<f64, String> {
        if let Some(figure) = self.known.get(name) {
            return Ok(*figure);
        }
        let figure = measure(self)?;
        self.known.insert(name, figure);
        Ok(figure)
    }

    /// The user's options.
    pub fn choice(&self) -> Choice {
        self.choice
    }

    /// Refuses a place where bytes are not counted.
    pub fn must_count(&self) -> Result<(), String> {
        match self.place.counts() {
            true => Ok(()),
            false => Err("device bytes take a scratch file system (root)".to_owned()),
        }
    }

    /// The flash below the place, if there is.
    pub fn flash_model(&self) -> Option<FlashModel> {
        self.place.flash_model()
    }

    /// Shows what is done.
    pub fn progress(&self) -> &Progress {
        self.progress
    }

    /// Says what is done now.
    pub fn say(&self, what: &str) {
        self.progress.say(what);
    }

    /// Starts to trace the device.
    pub fn tracer(&self) -> Result<Tracer, String> {
        self.place.tracer()
    }

    /// The type of the file system.
    pub fn file_system(&self) -> &'static str {
        self.place.kind_of_file_system()
    }

    /// Draws traces if the user wants pictures, and returns the place of the picture.
    pub fn plot(&self, name: &str, traces: &[Traced]) -> Result<Option<String>, String> {
        let Some(dir) = self.plots else {
            return Ok(None);
        };
        let text = |error: onewrite_plot::Error| error.to_string();
        let picture = trace::draw(traces).map_err(text)?;
        for ending in ["svg", "png"] {
            let file = dir.join(format!("{name}.{ending}"));
            picture.save(&file).map_err(text)?;
        }
        Ok(Some(format!(
            "drawn in {}",
            dir.join(format!("{name}.svg and .png")).display()
        )))
    }

    /// A fresh directory, removed when it is dropped.
    pub fn directory(&self, name: &str) -> Result<TempDir, String> {
        let made = tempfile::Builder::new()
            .prefix(name)
            .tempdir_in(self.place.root());
        made.map_err(|error| directory::explain(self.place.given(), &error))
    }

    /// The raw rates: medians of all measurements so far.
    pub fn raw(&self) -> Raw {
        Raw::of(&self.samples, self.bench.writes())
    }

    /// The time of requests here, by the raw rates.
    ///
    /// # Errors
    /// There is no direct I/O here.
    pub fn costs(&self) -> Result<Costs, String> {
        let raw = self.raw();
        let rates = raw.direct_dsync_4k_per_s.zip(raw.direct_4k_per_s);
        let (durable, plain) = rates.ok_or("there is no direct I/O here")?;
        Ok(Costs {
            write_s: 1.0 / plain,
            flush_s: (1.0 / durable - 1.0 / plain).max(0.0),
        })
    }

    /// Notes for the reader about the figures.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Announces the work ahead, and returns how long all of it should take.
    pub fn expect(&mut self, trials: &[Trial], extra: Duration) -> Duration {
        let each = different(trials);
        let each = each.iter().map(|trial| self.seconds(trial));
        self.clock.expected_s = each.sum::<f64>() + extra.as_secs_f64();
        self.clock.begun = Instant::now();
        Duration::from_secs_f64(self.clock.expected_s)
    }

    /// How long all repetitions of a trial should take.
    fn seconds(&self, trial: &Trial) -> f64 {
        let rates = self.samples.first();
        let flush = rates.map_or(1e-3, |rates| {
            1.0 / rates.direct_dsync_4k.unwrap_or(rates.append_fdatasync)
        });
        let transaction =
            trial.flushes() * flush + f64::from(trial.op.frames()) * TRANSACTION_S + TRANSACTION_S;
        f64::from(trial.repeats) * (TRIAL_S + f64::from(trial.count) * transaction)
    }

    /// How long the rest should take.
    pub fn left(&self) -> Duration {
        let Clock {
            expected_s,
            done_s,
            begun,
        } = &self.clock;
        let pace = match *done_s > 1.0 {
            true => begun.elapsed().as_secs_f64() / done_s,
            false => 1.0,
        };
        Duration::from_secs_f64((expected_s - done_s).max(0.0) * pace)
    }

    /// Counts work that is not a trial.
    pub fn done(&mut self, seconds: f64) {
        self.clock.done_s += seconds;
    }

    /// Runs all trials that have not run yet, with interleaved repetitions.
    pub fn run_all(&mut self, trials: &[Trial]) -> Result<(), String> {
        let mut missing = different(trials);
        missing.retain(|trial| self.runs_of(trial).is_empty());
        let most = missing.iter().map(|trial| trial.repeats).max();
        for round in 1..=most.unwrap_or(0) {
            let due = missing.iter().filter(|trial| round <= trial.repeats);
            let due: Vec<Trial> = due.copied().collect();
            self.round(&due)?;
        }
        Ok(())
    }

    /// Runs each of these trials once.
    pub fn round(&mut self, trials: &[Trial]) -> Result<(), String> {
        self.rounds += 1;
        for at in order(trials.len(), self.rounds, self.choice.seed) {
            let Some(trial) = trials.get(at) else {
                continue;
            };
            let run = self.run_once(trial, self.rounds)?;
            let of_trial = |(known, _): &&mut (Trial, _)| trial.is_same_work(known);
            match self.runs.iter_mut().find(of_trial) {
                Some((_, runs)) => runs.push(run),
                None => self.runs.push((*trial, vec![run])),
            }
            let seconds = self.seconds(trial) / f64::from(trial.repeats.max(1));
            self.done(seconds);
        }
        let again = self.bench.measure().map_err(|error| error.to_string())?;
        self.samples.push(again);
        Ok(())
    }

    /// The runs of a trial so far.
    pub fn runs_of(&self, trial: &Trial) -> &[Run] {
        let of_trial = |(known, _): &&(Trial, _)| trial.is_same_work(known);
        let found = self.runs.iter().find(of_trial);
        found.map_or(&[], |(_, runs)| runs)
    }

    /// How often an interval of this look may miss the true ratio.
    pub fn error(&self) -> f64 {
        self.error
    }

    /// Sets the error of the look that is due.
    pub fn set_error(&mut self, error: f64) {
        self.error = error;
    }

    fn run_once(&mut self, trial: &Trial, round: u32) -> Result<Run, String> {
        let of = |error: String| format!("{} {}: {error}", trial.op.name(), trial.mode);
        let mode = Mode::parse(trial.mode).map_err(|error| error.to_string())?;
        let plan = Plan {
            warm_up: trial.warm_up,
            record_size: trial.record_bytes as usize,
            // The plan includes the warm-up.
            ..self.plan(trial.op, trial.count + trial.warm_up)
        };
        let terms = Terms {
            synchronous: Synchronous::Full,
            autocheckpoint: trial.autocheckpoint,
            threads: 1,
            processes: 1,
            steady: false,
            cache_kib: None,
        };
        let (run, notes) =
            session::run(terms, &plan, self.place, &mode, round, self.progress).map_err(of)?;
        if let Some(problem) = run.checked.problem() {
            return Err(of(format!("the database is not as it must be: {problem}")));
        }
        for note in notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        Ok(run)
    }

    /// The transactions of an operation.
    pub fn plan(&self, op: Op, count: u32) -> Plan {
        Plan {
            op,
            count,
            warm_up: 0,
            record_size: RECORD_BYTES as usize,
            updates: 5,
            warehouses: 1,
            order: Order::Id,
            seed: self.choice.seed,
            workers: 1,
            readers: 0,
            rate: None,
        }
    }

    /// Returns the repetition of a trial that has the median rate.
    pub fn run(&mut self, trial: &Trial) -> Result<&Run, String> {
        self.run_all(&[*trial])?;
        let mut by_rate: Vec<&Run> = self.runs_of(trial).iter().collect();
        by_rate.sort_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s));
        let median = onewrite_common::middle(&by_rate).copied();
        median.ok_or_else(|| format!("{}: no run", trial.mode))
    }

    /// Writes records of a plain file, `repeats` times, and returns the run with the median rate.
    pub fn records(
        &mut self,
        way: Way,
        record_bytes: usize,
        count: u32,
        repeats: u32,
    ) -> Result<files::Run, String> {
        let plan = self.records_of(Access::SequentialWrite, way, record_bytes, count);
        let mut runs = Vec::new();
        for _ in 0..repeats.max(1) {
            runs.push(self.one_of_files(&plan)?);
        }
        runs.sort_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s));
        let at = (runs.len() - 1) / 2;
        Ok(runs.swap_remove(at))
    }

    /// Appends frames to a plain file, each with fdatasync, and counts the device's work for one.
    pub fn appended(&mut self, count: u32) -> Result<Appended, String> {
        if let Some(appended) = self.appended.get(&count) {
            return Ok(*appended);
        }
        let plan = self.records_of(Access::Append, Way::Fdatasync, FRAME_BYTES, count);
        let run = self.one_of_files(&plan)?;
        let device = run.device.ok_or("the device was not counted")?;
        let by = run.by_file.ok_or("bytes were not told apart")?;
        let count_of = f64::from(count.max(1));
        let appended = Appended {
            writes: device.writes.unwrap_or(device.write_requests) as f64 / count_of,
            fs_journal_bytes: by.fs_journal_bytes as f64 / count_of,
            past_inode: self.of_ext4(run.past_inode),
        };
        self.appended.insert(count, appended);
        Ok(appended)
    }

    /// The part of a file past the inode, on ext4.
    pub fn of_ext4(&self, past_inode: Option<f64>) -> f64 {
        let has_leaves = self.file_system() == "ext4";
        past_inode.filter(|_| has_leaves).unwrap_or(0.0)
    }

    fn records_of(&self, access: Access, way: Way, record_bytes: usize, count: u32) -> FilePlan {
        FilePlan {
            access,
            way,
            count,
            record_bytes,
            records: count,
            threads: 1,
            seed: self.choice.seed,
        }
    }

    fn one_of_files(&self, plan: &FilePlan) -> Result<files::Run, String> {
        let (run, _) = files::one(plan, self.place, self.progress)?;
        match run.checked == "ok" {
            true => Ok(run),
            false => Err(format!("{}: {}", plan.way.name(), run.checked)),
        }
    }
}
