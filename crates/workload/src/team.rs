//! Runs a plan's transactions on threads of this process and times each of them.
//!
//! Several processes may work on one plan, each with a contiguous share of the workers; the command
//! adds up what they return.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::Error;
use crate::clock::{Nanos, process_cpu_nanos};
use crate::databases::Databases;
use crate::latency::Latencies;
use crate::plan::{Plan, Transaction, Workload};

/// Prepared statements that a connection keeps at least: as many as rusqlite does by itself.
const CACHED_STATEMENTS: usize = 16;

/// What a team reports while it works, and how its workers tell each other to stop.
#[derive(Debug, Default)]
pub struct Control {
    /// Transactions committed so far.
    pub done: AtomicU64,
    /// Set when one of the workers has failed.
    failed: AtomicBool,
}

/// What a team measured.
#[derive(Clone, Debug)]
pub struct Finished {
    /// When the first transaction began.
    pub first: Nanos,
    /// When the last one had ended.
    pub last: Nanos,
    /// User and system time of this process from before the first to after the last, in nanoseconds.
    pub cpu_nanos: u64,
    /// How long each transaction took.
    pub latencies: Latencies,
}

impl Finished {
    /// What two teams measured at the same time, as one.
    pub fn merged(mut self, other: &Self) -> Self {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.cpu_nanos = self.cpu_nanos.saturating_add(other.cpu_nanos);
        self.latencies.add(&other.latencies);
        self
    }
}

/// Executes the transactions of the workers `first_worker..` of `plan`, one worker for each seat
/// and each on a thread of its own. `gate` is called when all stand ready; they start when it returns.
/// When `stop` is set, every worker stops before its next transaction.
pub fn run(
    plan: &Plan,
    first_worker: u32,
    seats: &mut [Databases],
    control: &Control,
    stop: &AtomicBool,
    gate: impl FnOnce() -> Result<(), Error>,
) -> Result<Finished, Error> {
    let workload = plan.workload();
    let statements = workload.statements();
    for connection in seats.iter().flat_map(Databases::all) {
        connection.set_prepared_statement_cache_capacity(statements.len().max(CACHED_STATEMENTS));
        // Parsed and planned here, so that the first transaction is like every other.
        for sql in statements {
            connection
                .prepare_cached(sql)
                .map_err(Error::sqlite(*sql))?;
        }
    }
    let workload = &*workload;
    let workers = (first_worker..).zip(seats).map(|(worker, databases)| Seat {
        workload,
        numbers: Box::new(plan.numbers(worker)),
        databases,
        next: None,
    });
    run_workers(workers.collect(), control, stop, gate)
}

/// What one thread does, step by step.
pub(crate) trait Worker: Send {
    /// Makes ready what is next, which is not timed; `false` when there is nothing more.
    fn prepare(&mut self) -> bool;

    /// Does it, which is.
    fn execute(&mut self) -> Result<(), Error>;
}

/// One worker of a plan.
struct Seat<'a> {
    workload: &'a dyn Workload,
    numbers: Box<dyn Iterator<Item = u32> + Send>,
    databases: &'a mut Databases,
    next: Option<Transaction>,
}

impl Worker for Seat<'_> {
    fn prepare(&mut self) -> bool {
        let number = self.numbers.next();
        self.next = number.map(|number| self.workload.transaction(number));
        self.next.is_some()
    }

    fn execute(&mut self) -> Result<(), Error> {
        match &self.next {
            Some(transaction) => transaction.commit(self.databases),
            None => Ok(()),
        }
    }
}

/// Runs each worker on a thread of its own, as [`run`] says.
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
    // What failed says more than that the others were stopped.
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
        let begin = Nanos::now();
        worker.execute().inspect_err(|_| {
            // One failed transaction fails the run; the others need not go on.
            control.failed.store(true, Ordering::Relaxed);
        })?;
        last = Nanos::now();
        latencies.record_nanos(last.0.saturating_sub(begin.0));
        control.done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(Finished {
        first,
        last,
        cpu_nanos: 0,
        latencies,
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
