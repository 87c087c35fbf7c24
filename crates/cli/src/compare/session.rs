//! One mode, from an empty directory to the close of the last connection.
//!
//! Boundaries that nothing crosses separate set-up, run, checkpoint and close: the file system is
//! synced and the device idle. The run alone ends at the moment when the last transaction returned.
//! Bytes written lazily after that are a separate figure.

use onewrite_common::files::companion;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use onewrite_iotrace::meter::{Figures, Mark, Meter};
use onewrite_workload::connection::{self, Checkpoint, Settings};
use onewrite_workload::databases::Databases;
use onewrite_workload::latency::Latencies;
use onewrite_workload::mode::{Mode, Pragma, Synchronous, Vfs};
use onewrite_workload::plan::{self, Plan};
use onewrite_workload::team::{self, Control, Finished};
use serde_json::{Map, Value};

use super::processes::{self, Job};
use super::report::{Checked, Device, Kind, Phase, RawAround, Run, State};
use crate::device::flash::{Cost, USUAL_RATE, Work};
use crate::interrupt;
use crate::place::Place;
use crate::progress::Progress;

/// The smallest cache for measuring a steady state, in KiB: a few more pages than a transaction
/// has.
pub const LEAST_CACHE_KIB: u32 = 64;

/// Boundaries in the life of a database, each with the meter's mark if there is a meter.
struct Boundaries {
    meter: Option<Meter>,
}

impl Boundaries {
    /// A boundary that nothing crosses.
    fn settle(&self) -> Result<Option<Mark>, String> {
        if interrupt::is_requested() {
            return Err("interrupted".to_owned());
        }
        self.meter
            .as_ref()
            .map(Meter::settle)
            .transpose()
            .map_err(|error| error.to_string())
    }

    /// Runs a step between two boundaries that nothing crosses.
    fn step<T>(&self, step: impl FnOnce() -> Result<T, String>) -> Result<(T, Span), String> {
        let from = self.settle()?;
        let begin = Instant::now();
        let result = step()?;
        let elapsed_s = begin.elapsed().as_secs_f64();
        let returned = self.mark()?;
        let settled = self.settle()?;
        Ok((
            result,
            Span {
                from,
                returned,
                settled,
                elapsed_s,
            },
        ))
    }

    /// The present moment.
    fn mark(&self) -> Result<Option<Mark>, String> {
        self.meter
            .as_ref()
            .map(Meter::mark)
            .transpose()
            .map_err(|error| error.to_string())
    }
}

/// A step between two idle moments, and the moment at which it returned.
#[derive(Clone, Copy)]
struct Span {
    from: Option<Mark>,
    returned: Option<Mark>,
    settled: Option<Mark>,
    elapsed_s: f64,
}

/// A database's life: its measurements and findings.
struct Life {
    /// The work of the flash before the run, and after the checkpoint.
    flash: Option<(Work, Work)>,
    setup: Span,
    transactions: Span,
    checkpoint: Span,
    close: Span,
    finished: Finished,
    state: State,
    pragmas: Map<String, Value>,
    found: plan::Checked,
}

/// The terms for every mode of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// `PRAGMA synchronous` of a mode that does not set it.
    pub synchronous: Synchronous,
    /// Pages of log after which a checkpoint follows; 0 is never.
    pub autocheckpoint: u32,
    /// Threads of each process.
    pub threads: u32,
    /// Processes.
    pub processes: u32,
    /// Whether the database must be larger than SQLite's cache, which is reduced for that.
    pub steady: bool,
    /// SQLite's cache in KiB; without it, SQLite's default, or that of a steady state.
    pub cache_kib: Option<u32>,
}

/// Runs one mode once. Returns the measurement, and notes about it for the reader.
pub fn run(
    terms: Terms,
    plan: &Plan,
    place: &Place,
    mode: &Mode,
    repeat: u32,
    progress: &Progress,
) -> Result<(Run, Vec<String>), String> {
    let dir = place.root().join("database");
    fs::create_dir(&dir).map_err(|error| format!("cannot create {}: {error}", dir.display()))?;
    let settings = Settings {
        mode: mode.clone(),
        synchronous: terms.synchronous,
        autocheckpoint: terms.autocheckpoint,
    };
    let path = dir.join("test.db");
    let boundaries = Boundaries {
        meter: place.meter(&path)?,
    };
    let session = Session {
        terms,
        plan,
        settings,
        path,
        boundaries,
        place,
        progress,
    };
    let result = session.run(repeat);
    fs::remove_dir_all(&dir)
        .map_err(|error| format!("cannot remove {}: {error}", dir.display()))?;
    result
}

struct Session<'a> {
    terms: Terms,
    plan: &'a Plan,
    settings: Settings,
    path: PathBuf,
    boundaries: Boundaries,
    place: &'a Place,
    progress: &'a Progress,
}

impl Session<'_> {
    fn run(self, repeat: u32) -> Result<(Run, Vec<String>), String> {
        let life = self.live()?;
        let stock_after_close = self.check_with_stock();
        Ok(self.describe(repeat, life, stock_after_close))
    }

    /// Set-up, run, check, checkpoint and close.
    fn live(&self) -> Result<Life, String> {
        self.say("set-up");
        let (holder, setup) = self.boundaries.step(|| self.set_up())?;
        let cache_kib = self.cache(&holder)?;
        let mut state = self.state(&holder)?;
        // Set-up and checkpoint end with a device that is idle.
        let flash_before = self.place.flash_work()?;
        self.say("transactions");
        let (ran, mut transactions) = self
            .boundaries
            .step(|| self.transactions(holder, cache_kib))?;
        (transactions.from, transactions.returned) = (ran.started, ran.ended);
        state.log_kib_after = self.log_kib();
        state.log_past_inode = self.log_past_inode();

        self.say("check");
        let vfs = self.settings.mode.journal().vfs;
        let pragmas = connection::in_force(ran.holder.first(), vfs).map_err(text)?;
        let found = self.plan.check(&ran.holder).map_err(text)?;

        self.say("checkpoint");
        let copy = || ran.holder.checkpoint(Checkpoint::Full).map_err(text);
        let ((), checkpoint) = self.boundaries.step(copy)?;
        let flash = flash_before.zip(self.place.flash_work()?);
        let close = || ran.holder.close().map_err(text);
        let ((), close) = self.boundaries.step(close)?;
        let finished = ran.finished;
        Ok(Life {
            flash,
            setup,
            transactions,
            checkpoint,
            close,
            finished,
            state,
            pragmas,
            found,
        })
    }

    /// Gives the first connection the requested cache, or one that a steady database exceeds.
    /// Returns the cache for every other connection.
    fn cache(&self, holder: &Databases) -> Result<Option<u32>, String> {
        let steady = || -> Result<Option<u32>, String> {
            if !self.terms.steady {
                return Ok(None);
            }
            let (database, cache) = holder.kib().map_err(text)?;
            if database / 4 >= cache {
                return Ok(None);
            }
            let kib = u32::try_from(database / 4).unwrap_or(u32::MAX);
            if kib < LEAST_CACHE_KIB {
                return Err(format!(
                    "--steady: a database of {database} KiB is too small to exceed any cache; give a \
                     larger --count or --warm-up"
                ));
            }
            Ok(Some(kib))
        };
        let kib = match self.terms.cache_kib {
            Some(kib) => Some(kib),
            None => steady()?,
        };
        if let Some(kib) = kib {
            holder.set_cache_kib(kib).map_err(text)?;
        }
        Ok(kib)
    }

    /// The state at the beginning of the run.
    fn state(&self, holder: &Databases) -> Result<State, String> {
        let (database_kib, cache_kib) = holder.kib().map_err(text)?;
        Ok(State {
            warm_up: self.plan.warm_up,
            database_kib,
            cache_kib,
            log_kib_before: self.log_kib(),
            log_kib_after: None,
            log_past_inode: None,
        })
    }

    /// Size of the log's file, for a mode that has one.
    fn log_kib(&self) -> Option<u64> {
        let suffixes: &[&str] = match self.settings.mode.journal().name {
            "wal" | "direct" => &["-wal"],
            _ => &["-onewrite", "-journal"],
        };
        let file = |suffix: &&str| fs::metadata(companion(&self.path, suffix)).ok();
        suffixes.iter().find_map(file).map(|file| file.len() / 1024)
    }

    /// See [`State::log_past_inode`]. No other mode's log is opened: this process may hold locks on it.
    fn log_past_inode(&self) -> Option<f64> {
        let journal = self.settings.mode.journal();
        let is_stock = journal.vfs == Vfs::Stock && journal.name == "wal";
        let part = || onewrite_iotrace::part_past_inode(&companion(&self.path, "-wal")).ok();
        is_stock.then(part).flatten()
    }

    /// The database with its table and, for updates and deletes, its rows, which are checkpointed.
    /// Every mode starts with a log that holds next to nothing and was never used further. The
    /// connection stays open: the last one to close would remove the log.
    fn set_up(&self) -> Result<Databases, String> {
        let mut holder = self.open()?;
        self.plan
            .populate(&mut holder, interrupt::requested())
            .map_err(text)?;
        holder.checkpoint(Checkpoint::Truncate).map_err(text)?;
        // One transaction of one page, so that every mode makes (and preallocates) its log here.
        for connection in holder.all() {
            connection
                .execute_batch("PRAGMA user_version=1")
                .map_err(|error| format!("first transaction: {error}"))?;
        }
        if self.plan.warm_up > 0 {
            self.say("warm-up");
            let control = Control::default();
            let stop = interrupt::requested();
            self.progress
                .during(u64::from(self.plan.warm_up), &control, || {
                    team::warm_up(self.plan, &mut holder, &control, stop).map_err(text)
                })?;
        }
        Ok(holder)
    }

    /// The transactions, in this process or in several.
    fn transactions(&self, holder: Databases, cache_kib: Option<u32>) -> Result<Ran, String> {
        let control = Control::default();
        let (mut started, mut seats) = (None, vec![holder]);
        let total = self.plan.measured();
        let mut gate = || {
            started = self.boundaries.mark()?;
            Ok(())
        };
        let finished = if self.terms.processes > 1 {
            let job = Job {
                path: self.path.clone(),
                mode: self.settings.mode.spec().to_owned(),
                synchronous: self.settings.synchronous,
                autocheckpoint: self.settings.autocheckpoint,
                cache_kib,
                plan: self.plan.clone(),
                first_worker: 0,
                threads: self.terms.threads,
            };
            processes::run(&job, self.terms.processes, gate)
        } else {
            for _ in 1..self.terms.threads {
                seats.push(self.open_with(cache_kib)?);
            }
            let mut readers = Vec::new();
            for _ in 0..self.plan.readers {
                readers.push(self.open_with(cache_kib)?);
            }
            let gate = || gate().map_err(onewrite_workload::Error::Wrong);
            let stop = interrupt::requested();
            self.progress.during(u64::from(total), &control, || {
                let (seats, readers) = (&mut seats, &mut readers);
                team::run_with_readers(self.plan, 0, seats, readers, &control, stop, gate)
                    .map_err(text)
            })
        }?;
        let ended = self.boundaries.mark()?;
        let holder = seats.swap_remove(0);
        Ok(Ran {
            holder,
            started,
            ended,
            finished,
        })
    }

    /// Checks the closed database as any other program finds it: `ok` or the problem.
    fn check_with_stock(&self) -> String {
        let found = Databases::open_stock(&self.path, self.plan.databases())
            .and_then(|stock| self.plan.check(&stock));
        match found {
            Ok(found) if found.content != "ok" => found.content,
            Ok(found) => found.integrity_check,
            Err(error) => error.to_string(),
        }
    }

    fn describe(self, repeat: u32, life: Life, stock_after_close: String) -> (Run, Vec<String>) {
        let (phases, mut notes) = phases(self.boundaries.meter, &life);
        notes.extend(no_checkpoint(&self.terms, &self.settings.mode, &phases));
        notes.extend(no_region(&self.settings.mode, &life.pragmas));
        let count = self.plan.measured();
        let device = phases.run.as_ref().map(Device::of);
        let elapsed_s = life.finished.last.seconds_since(life.finished.first);
        let run = Run {
            mode: self.settings.mode.spec().to_owned(),
            journal_mode: self.settings.mode.journal().name.to_owned(),
            op: self.plan.op,
            count,
            threads: self.terms.threads,
            processes: self.terms.processes,
            readers: self.plan.readers,
            rate: self.plan.rate,
            warehouses: self.plan.op.is_tpcc().then_some(self.plan.warehouses),
            synchronous: self.settings.synchronous().name(),
            record_size: self
                .plan
                .op
                .has_record_size()
                .then_some(self.plan.record_size),
            order: self.plan.order,
            seed: self.plan.seed,
            repeat,
            elapsed_s,
            ops_per_s: f64::from(count) / elapsed_s.max(1e-9),
            cpu_s: life.finished.cpu_nanos as f64 / 1e9,
            latency_us: life.finished.latencies.percentiles(),
            kinds: kinds(&life.finished, elapsed_s),
            state: life.state,
            raw_around: RawAround::default(),
            device,
            by_file: phases.run.and_then(|figures| figures.by_file),
            per_op: device.map(|device| device.per_op(count)),
            flash: life.flash.map(|(before, after)| {
                Cost::of(&before, &after, count, self.plan.rate.unwrap_or(USUAL_RATE))
            }),
            setup: life.setup.phase(phases.setup.as_ref()),
            after: Phase::of(phases.after.as_ref(), None, None),
            checkpoint: life.checkpoint.phase(phases.checkpoint.as_ref()),
            close: life.close.phase(phases.close.as_ref()),
            checked: Checked {
                rows: life.found.rows,
                integrity_check: life.found.integrity_check,
                content: life.found.content,
                stock_after_close,
            },
            pragmas: life.pragmas,
        };
        (run, notes)
    }

    fn open_with(&self, cache_kib: Option<u32>) -> Result<Databases, String> {
        let opened = self.open()?;
        if let Some(kib) = cache_kib {
            opened.set_cache_kib(kib).map_err(text)?;
        }
        Ok(opened)
    }

    fn open(&self) -> Result<Databases, String> {
        Databases::open(&self.settings, &self.path, self.plan.databases()).map_err(text)
    }

    fn say(&self, what: &str) {
        self.progress
            .say(&format!("{}: {what}", self.settings.mode));
    }
}

/// The result of [`Session::transactions`].
struct Ran {
    holder: Databases,
    started: Option<Mark>,
    ended: Option<Mark>,
    finished: Finished,
}

/// The device's work in each phase; `None` without a meter.
#[derive(Default)]
struct Phases {
    setup: Option<Figures>,
    run: Option<Figures>,
    after: Option<Figures>,
    checkpoint: Option<Figures>,
    close: Option<Figures>,
}

fn phases(meter: Option<Meter>, life: &Life) -> (Phases, Vec<String>) {
    let Life {
        setup,
        transactions,
        checkpoint,
        close,
        ..
    } = life;
    let windows = [
        (setup.from, setup.settled),
        (transactions.from, transactions.returned),
        (transactions.returned, transactions.settled),
        (checkpoint.from, checkpoint.settled),
        (close.from, close.settled),
    ];
    let windows: Option<Vec<_>> = windows.into_iter().map(|(from, to)| from.zip(to)).collect();
    let Some((meter, windows)) = meter.zip(windows) else {
        return Default::default();
    };
    let (figures, notes) = meter.finish(&windows);
    let mut figures = figures.into_iter();
    let phases = Phases {
        setup: figures.next(),
        run: figures.next(),
        after: figures.next(),
        checkpoint: figures.next(),
        close: figures.next(),
    };
    (phases, notes)
}

/// The note on a steady state whose run was too short to have a checkpoint.
fn no_checkpoint(terms: &Terms, mode: &Mode, phases: &Phases) -> Option<String> {
    let database_bytes = phases.run?.by_file?.database_bytes;
    // A checkpoint that remaps blocks writes nothing to the database.
    let copies = |p: &Pragma| p.name != "onewrite_checkpoint" || p.value == "'copy'";
    let expected = terms.steady
        && mode.journal().is_log()
        && mode.pragmas().iter().all(copies)
        && terms.autocheckpoint > 0;
    (expected && database_bytes == 0).then(|| {
        format!(
            "{mode}: --steady, but no checkpoint fell into the run, so its figures lack the cost of checkpoints; \
             give a larger --count"
        )
    })
}

/// The note on a region of remapping checkpoints that the file system had no room for. The run's
/// figures are then those without a region.
fn no_region(mode: &Mode, in_force: &Map<String, Value>) -> Option<String> {
    let remapped = in_force.get("onewrite_status")?.get("remapped")?;
    let refusals = remapped.get("region_refusals")?.as_u64()?;
    let made = remapped.get("replenished_bytes")?.as_u64()? >> 20;
    let why = remapped.get("why_no_region")?.as_str().unwrap_or_default();
    (refusals > 0).then(|| {
        format!(
            "{mode}: the region was refused {refusals} times ({why}) and {made} MiB of it were made; more than three \
             times what it lacks must be free"
        )
    })
}

impl Span {
    /// The cost of the step. Bytes count until everything was on the device. Flushes count until
    /// the step returned, because the later ones come from the measurement's own syncs.
    fn phase(&self, figures: Option<&Figures>) -> Phase {
        let flushes = self
            .from
            .zip(self.returned)
            .map(|(from, returned)| returned.counters.since(from.counters).flushes);
        Phase::of(figures, flushes, Some(self.elapsed_s))
    }
}

/// The kinds of transactions of a run that took `elapsed_s` seconds.
fn kinds(finished: &Finished, elapsed_s: f64) -> Vec<Kind> {
    let kind = |(kind, latencies): (&String, &Latencies)| Kind {
        kind: kind.clone(),
        count: latencies.count(),
        per_s: latencies.count() as f64 / elapsed_s.max(1e-9),
        latency_us: latencies.percentiles(),
    };
    finished.kinds.iter().map(kind).collect()
}

fn text(error: onewrite_workload::Error) -> String {
    error.to_string()
}
