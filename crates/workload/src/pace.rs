//! The due times of transactions, if they do not follow each other at once.
//!
//! Independent clients arrive at random (a Poisson process), and do not wait for the answers of
//! others. A transaction that is due while its worker is busy waits, and that time counts.
//! Otherwise it would be Tene's "coordinated omission". All workers share one Poisson process and
//! take its moments in turn, so that all of them end at the same time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::clock::Nanos;
use crate::draws::Draws;
use crate::plan::Plan;

/// Its number among the sequences of a seed; transactions count up from 0.
const SEQUENCE: u32 = u32::MAX;
/// The interval at which a waiting worker checks for a stop.
const LOOK: Duration = Duration::from_millis(20);

/// The due times of one worker's transactions.
#[derive(Debug)]
pub(crate) struct Pace {
    mean_nanos: f64,
    draws: Draws,
    workers: u32,
    /// Moments until this worker's next one, inclusive.
    left: u32,
    /// The last moment, in nanoseconds from the beginning.
    due: f64,
}

impl Pace {
    /// The pace of a worker; `None` if it works as fast as it can.
    pub(crate) fn of(plan: &Plan, worker: u32) -> Option<Self> {
        let rate = f64::from(plan.rate?.max(1));
        Some(Self {
            mean_nanos: 1e9 / rate,
            draws: Draws::of(plan.seed, SEQUENCE),
            workers: plan.workers.max(1),
            left: worker + 1,
            due: 0.0,
        })
    }

    /// This worker's next moment, in nanoseconds from the beginning.
    fn next(&mut self) -> u64 {
        const STEPS: u32 = 1 << 30;
        for _ in 0..std::mem::replace(&mut self.left, self.workers) {
            let drawn = f64::from(self.draws.below(STEPS) + 1) / f64::from(STEPS);
            self.due -= drawn.ln() * self.mean_nanos;
        }
        self.due as u64
    }

    /// Waits until the next transaction is due. Returns the start of its latency: its due time, or
    /// the present if the worker was idle. A late wake-up is not the transaction's fault.
    pub(crate) fn wait(&mut self, beginning: Nanos, stop: &AtomicBool) -> Nanos {
        let due = Nanos(beginning.0.saturating_add(self.next()));
        if Nanos::now() >= due {
            return due;
        }
        loop {
            let left = due.0.saturating_sub(Nanos::now().0);
            if left == 0 || stop.load(Ordering::Relaxed) {
                return Nanos::now();
            }
            thread::sleep(Duration::from_nanos(left).min(LOOK));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Op, Order};

    fn plan(rate: Option<u32>) -> Plan {
        Plan {
            op: Op::Insert,
            count: 10,
            record_size: 100,
            updates: 5,
            warm_up: 0,
            warehouses: 1,
            order: Order::Id,
            seed: 3,
            workers: 4,
            readers: 0,
            rate,
        }
    }

    #[test]
    fn moments_come_at_the_rate_at_random_and_workers_take_them_in_turn() {
        let plan = plan(Some(1000));
        let moments = |worker| -> Vec<u64> {
            let mut pace = Pace::of(&plan, worker).unwrap();
            (0..20_000).map(|_| pace.next()).collect()
        };
        let workers: Vec<Vec<u64>> = (0..4).map(moments).collect();
        let all: Vec<u64> = (0..80_000).map(|at| workers[at % 4][at / 4]).collect();
        assert!(all.is_sorted());
        // 80,000, 1,000 a second.
        let last = *all.last().unwrap() as f64 / 1e9;
        assert!((last - 80.0).abs() < 2.0, "{last}");
        let gaps: Vec<f64> = all.windows(2).map(|two| (two[1] - two[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // An exponential distribution's deviation is its mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05);
    }

    #[test]
    fn what_was_due_before_counts_from_then() {
        let never = AtomicBool::new(false);
        let mut pace = Pace::of(&plan(Some(1_000_000_000)), 0).unwrap();
        let beginning = Nanos(Nanos::now().0 - 1_000_000_000);
        let begun = pace.wait(beginning, &never);
        assert!(
            begun.0 < beginning.0 + 1_000_000,
            "{begun:?}, {beginning:?}"
        );
        assert!(Pace::of(&plan(None), 0).is_none());
        // A stop ends the wait for a transaction that is due in a year.
        let mut pace = Pace {
            mean_nanos: 3e16,
            ..pace
        };
        pace.wait(Nanos::now(), &AtomicBool::new(true));
    }
}
