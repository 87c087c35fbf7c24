//! Runs a plan's transactions on threads of this process and times each of them.
//!
//! Several processes may work on one plan, each with a contiguous share of the workers. The command
//! adds up their results.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::Error;
use crate::clock::{Nanos, process_cpu_nanos};
use crate::databases::Databases;
use crate::latency::Latencies;
use crate::pace::Pace;
use crate::plan::{Plan, Work, Workload};

/// The fewest prepared statements that a connection keeps: as many as rusqlite's default.
const CACHED_STATEMENTS: usize = 16;

/// A team's progress, and its workers' signal to each other to stop.
#[derive(Debug, Default)]
pub struct Control {
    /// Transactions committed so far.
    pub done: AtomicU64,
    /// Set when one of the workers has failed.
    failed: AtomicBool,
}

/// The measurements of a team.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The start of the first transaction.
    pub first: Nanos,
    /// The end of the last transaction.
    pub last: Nanos,
    /// User and system time of this process from before the first to after the last, in nanoseconds.
    pub cpu_nanos: u64,
    /// The latency of each transaction, from its due time if the plan has a rate.
    pub latencies: Latencies,
    /// The same for each kind of transaction, if an op has several. The readers' work is here as
    /// [`READ`], and in none of the other figures.
    pub kinds: BTreeMap<String, Latencies>,
}

/// The readers' work, among the kinds of [`Finished`].
pub const READ: &str = "read";

impl Finished {
    /// The measurements of two teams at the same time, as one.
    pub fn merged(mut self, other: &Self) -> Self {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.cpu_nanos = self.cpu_nanos.saturating_add(other.cpu_nanos);
        self.latencies.add(&other.latencies);
        for (kind, latencies) in &other.kinds {
            self.kinds.entry(kind.clone()).or_default().add(latencies);
        }
        self
    }
}

/// Executes the transactions of the workers `first_worker..` of `plan`, one worker for each seat
/// and each on a separate thread. It calls `gate` when all are ready; they start when `gate`
/// returns. When `stop` is set, every worker stops before its next transaction.
pub fn run(
    plan: &Plan,
    first_worker: u32,
    seats: &mut [Databases],
    control: &Control,
    stop: &AtomicBool,
    gate: impl FnOnce() -> Result<(), Error>,
) -> Result<Finished, Error> {
    run_with_readers(plan, first_worker, seats, &mut [], control, stop, gate)
}

/// As [`run`], with a reader for each of `readers`. They begin with the workers, and end with them.
pub fn run_with_readers(
    plan: &Plan,
    first_worker: u32,
    seats: &mut [Databases],
    readers: &mut [Databases],
    control: &Control,
    stop: &AtomicBool,
    gate: impl FnOnce() -> Result<(), Error>,
) -> Result<Finished, Error> {
    let workload = plan.workload();
    let workload = &*workload;
    prepare(workload, seats)?;
    prepare(workload, readers)?;
    let workers = (first_worker..).zip(seats).map(|(worker, databases)| Seat {
        workload,
        numbers: Box::new(plan.numbers(worker)),
        pace: Pace::of(plan, worker),
        databases,
        next: None,
    });
    let workers: Vec<_> = workers.collect();
    if readers.is_empty() {
        return run_workers(workers, control, stop, gate);
    }
    let (begun, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let gate = || gate().inspect(|()| begun.store(true, Ordering::Release));
    thread::scope(|scope| {
        let (begun, over) = (&begun, &over);
        let threads: Vec<_> = (0..)
            .zip(readers)
            .map(|(reader, databases)| {
                scope.spawn(move || {
                    read_until(over, begun, control, |number| {
                        workload.read(reader, number, databases)
                    })
                })
            })
            .collect();
        let finished = run_workers(workers, control, stop, gate);
        over.store(true, Ordering::Release);
        let mut reads = Latencies::new();
        let mut failed = None;
        for thread in threads {
            match thread.join() {
                Ok(Ok(read)) => reads.add(&read),
                Ok(Err(error)) => failed = Some(error),
                Err(_) => failed = Some(Error::Wrong("a reader panicked".to_owned())),
            }
        }
        // A reader that failed has stopped the others, and its error says more than theirs.
        if let Some(error) = failed {
            return Err(error);
        }
        let mut finished = finished?;
        finished.kinds.insert(READ.to_owned(), reads);
        Ok(finished)
    })
}

/// Executes the warm-up of `plan`, one transaction after the other on these connections.
pub fn warm_up(
    plan: &Plan,
    seat: &mut Databases,
    control: &Control,
    stop: &AtomicBool,
) -> Result<(), Error> {
    one_by_one(plan, plan.warm_up_numbers(), seat, stop, || {
        control.done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

/// Executes all transactions of `plan`, one after the other on these connections, and calls `after`
/// after each.
pub fn each(
    plan: &Plan,
    seat: &mut Databases,
    stop: &AtomicBool,
    after: impl FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    let numbers = plan.warm_up_numbers().chain(plan.numbers(0));
    one_by_one(plan, numbers, seat, stop, after)
}

fn one_by_one(
    plan: &Plan,
    numbers: impl Iterator<Item = u32>,
    seat: &mut Databases,
    stop: &AtomicBool,
    mut after: impl FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    let workload = plan.workload();
    prepare(&*workload, std::slice::from_mut(seat))?;
    for number in numbers {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        workload.work(number).commit(seat)?;
        after()?;
    }
    Ok(())
}

/// Size of the first database after the warm-up of `plan`, in KiB: stock SQLite's, in memory.
pub fn kib_after_warm_up(plan: &Plan, stop: &AtomicBool) -> Result<u64, Error> {
    let mut databases = Databases::in_memory(plan.databases())?;
    plan.populate(&mut databases, stop)?;
    warm_up(plan, &mut databases, &Control::default(), stop)?;
    Ok(databases.kib()?.0)
}

/// Parses and plans every statement, so that the first transaction is like every other.
fn prepare(workload: &dyn Workload, seats: &[Databases]) -> Result<(), Error> {
    let statements = workload.statements();
    for connection in seats.iter().flat_map(Databases::all) {
        connection.set_prepared_statement_cache_capacity(statements.len().max(CACHED_STATEMENTS));
        for sql in statements {
            connection
                .prepare_cached(sql)
                .map_err(Error::sqlite(*sql))?;
        }
    }
    Ok(())
}

/// A reader: it reads, one step after the other, until `over` is set.
fn read_until(
    over: &AtomicBool,
    begun: &AtomicBool,
    control: &Control,
    read: impl Fn(u32) -> Result<(), Error>,
) -> Result<Latencies, Error> {
    let mut latencies = Latencies::new();
    while !begun.load(Ordering::Acquire) && !over.load(Ordering::Acquire) {
        thread::sleep(Duration::from_micros(100));
    }
    let mut number = 0;
    while !over.load(Ordering::Acquire) {
        let begin = Nanos::now();
        read(number).inspect_err(|_| control.failed.store(true, Ordering::Relaxed))?;
        latencies.record_nanos(Nanos::now().0.saturating_sub(begin.0));
        number = number.wrapping_add(1);
    }
    Ok(latencies)
}

/// The steps of one thread.
pub(crate) trait Worker: Send {
    /// Prepares the next step, which is not timed; `false` when there is nothing more.
    fn prepare(&mut self) -> bool;

    /// Waits until it is due. Returns the start of its time.
    fn wait(&mut self, _beginning: Nanos, _stop: &AtomicBool) -> Nanos {
        Nanos::now()
    }

    /// Executes the step, which is timed.
    fn execute(&mut self) -> Result<(), Error>;

    /// The kind of the step, if there are several.
    fn kind(&self) -> Option<&'static str> {
        None
    }
}

/// One worker of a plan.
struct Seat<'a> {
    workload: &'a dyn Workload,
    numbers: Box<dyn Iterator<Item = u32> + Send>,
    pace: Option<Pace>,
    databases: &'a mut Databases,
    next: Option<Work>,
}

impl Worker for Seat<'_> {
    fn prepare(&mut self) -> bool {
        let number = self.numbers.next();
        self.next = number.map(|number| self.workload.work(number));
        self.next.is_some()
    }

    fn wait(&mut self, beginning: Nanos, stop: &AtomicBool) -> Nanos {
        let paced = self.pace.as_mut().map(|pace| pace.wait(beginning, stop));
        paced.unwrap_or_else(Nanos::now)
    }

    fn execute(&mut self) -> Result<(), Error> {
        match &self.next {
            Some(work) => work.commit(self.databases),
            None => Ok(()),
        }
    }

    fn kind(&self) -> Option<&'static str> {
        self.next.as_ref().and_then(Work::kind)
    }
}

/// Runs each worker on a separate thread, as [`run`] does.
pub(crate) fn run_workers<W: Worker>(
    workers: Vec<W>,
    control: &Control,
    stop: &AtomicBool,
    gate: impl FnOnce() -> Result<(), Error>,
) -> Result<Finished, Error> {
    let start = Barrier::new(workers.len() + 1);
    let (cpu_before, opened, shares) = thread::scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .map(|worker| {
                let start = &start;
                scope.spawn(move || work(worker, control, stop, start))
            })
            .collect();
        let opened = gate();
        if opened.is_err() {
            control.failed.store(true, Ordering::Relaxed);
        }
        let cpu_before = process_cpu_nanos();
        start.wait();
        let shares: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        (cpu_before, opened, shares)
    });
    let cpu_nanos = process_cpu_nanos().saturating_sub(cpu_before);
    opened?;
    let panicked = |_| Err(Error::Wrong("a worker thread panicked".to_owned()));
    let mut shares: Vec<_> = shares
        .into_iter()
        .map(|share| share.unwrap_or_else(panicked))
        .collect();
    // The error that stopped the others says more than theirs.
    shares.sort_by_key(|share| !matches!(share, Err(error) if !error.is_interruption()));
    let mut all: Option<Finished> = None;
    for share in shares {
        let share = share?;
        all = Some(match all {
            Some(all) => all.merged(&share),
            None => share,
        });
    }
    let all = all.ok_or_else(|| Error::Wrong("no worker to work with".to_owned()))?;
    Ok(Finished { cpu_nanos, ..all })
}

fn work(
    mut worker: impl Worker,
    control: &Control,
    stop: &AtomicBool,
    start: &Barrier,
) -> Result<Finished, Error> {
    let mut latencies = Latencies::new();
    let mut kinds: BTreeMap<&'static str, Latencies> = BTreeMap::new();
    start.wait();
    let first = Nanos::now();
    let mut last = first;
    loop {
        if stop.load(Ordering::Relaxed) || control.failed.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        if !worker.prepare() {
            break;
        }
        let begin = worker.wait(first, stop);
        worker.execute().inspect_err(|_| {
            // One failed transaction fails the run; the others need not go on.
            control.failed.store(true, Ordering::Relaxed);
        })?;
        last = Nanos::now();
        let took = last.0.saturating_sub(begin.0);
        latencies.record_nanos(took);
        if let Some(kind) = worker.kind() {
            kinds.entry(kind).or_default().record_nanos(took);
        }
        control.done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(Finished {
        first,
        last,
        cpu_nanos: 0,
        latencies,
        kinds: kinds
            .into_iter()
            .map(|(kind, latencies)| (kind.to_owned(), latencies))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Settings;
    use crate::mode::{Mode, Synchronous};
    use crate::plan::{Op, Order};

    const OPS: [Op; 5] = [Op::Insert, Op::Update, Op::Delete, Op::Indexed, Op::App];

    static NEVER: AtomicBool = AtomicBool::new(false);

    fn plan(op: Op, workers: u32) -> Plan {
        Plan {
            op,
            count: 60,
            record_size: 100,
            updates: 5,
            warm_up: 0,
            warehouses: 1,
            readers: 0,
            rate: None,
            order: Order::Id,
            seed: 3,
            workers,
        }
    }

    fn settings(mode: &str) -> Settings {
        Settings {
            mode: Mode::parse(mode).unwrap(),
            synchronous: Synchronous::Off,
            autocheckpoint: 0,
        }
    }

    #[test]
    fn threads_execute_every_transaction_once_in_every_mode() {
        let dir = tempfile::tempdir().unwrap();
        for mode in ["delete", "truncate", "persist", "wal"] {
            for op in OPS {
                let plan = plan(op, 3);
                let path = dir.path().join(format!("{mode}-{op:?}.db"));
                let settings = settings(mode);
                let mut holder = Databases::open(&settings, &path, 1).unwrap();
                plan.populate(&mut holder, &NEVER).unwrap();
                let mut connections: Vec<_> = (0..3)
                    .map(|_| Databases::open(&settings, &path, 1).unwrap())
                    .collect();
                let control = Control::default();
                let finished =
                    run(&plan, 0, &mut connections, &control, &NEVER, || Ok(())).unwrap();
                assert_eq!(finished.latencies.count(), 60);
                assert_eq!(control.done.load(Ordering::Relaxed), 60);
                assert!(finished.last > finished.first);
                assert!(finished.cpu_nanos > 0);
                let checked = plan.check(&holder).unwrap();
                assert!(checked.is_ok(), "{mode} {op:?}: {checked:?}");
            }
        }
    }

    #[test]
    fn a_stop_is_obeyed_before_the_next_transaction() {
        let plan = plan(Op::Insert, 1);
        let mut connection = Databases::in_memory(1).unwrap();
        plan.populate(&mut connection, &NEVER).unwrap();
        let control = Control::default();
        let stop = AtomicBool::new(true);
        let error = run(&plan, 0, &mut [connection], &control, &stop, || Ok(())).unwrap_err();
        assert!(matches!(error, Error::Interrupted));
        assert_eq!(control.done.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_gate_that_fails_ends_the_run_without_a_transaction() {
        let plan = plan(Op::Insert, 2);
        let mut connections = Vec::new();
        for _ in 0..2 {
            let mut connection = Databases::in_memory(1).unwrap();
            plan.populate(&mut connection, &NEVER).unwrap();
            connections.push(connection);
        }
        let control = Control::default();
        let gate = || Err(Error::Wrong("closed".to_owned()));
        let error = run(&plan, 0, &mut connections, &control, &NEVER, gate).unwrap_err();
        assert_eq!(error.to_string(), "closed");
        assert_eq!(control.done.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_update_that_finds_no_row_fails_the_run() {
        let plan = plan(Op::Update, 1);
        let mut connection = Databases::in_memory(1).unwrap();
        plan.populate(&mut connection, &NEVER).unwrap();
        connection
            .first()
            .execute_batch("DELETE FROM mobibench WHERE id = 7")
            .unwrap();
        let error = run(
            &plan,
            0,
            &mut [connection],
            &Control::default(),
            &NEVER,
            || Ok(()),
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "update 6: \"UPDATE mobibench SET value = ?1 WHERE id = ?2\" changed 0 rows, not one"
        );
    }
}
