//! How long commits of this process take, for `PRAGMA onewrite_metrics`.
//!
//! A commit begins when its last frame is there, and ends when SQLite may report it. Both are noted
//! outside of everything that decides durability. The atomics are std's under the model checkers,
//! too: no thread waits for them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::sync::Instant;

/// The first bound is 2 to this power, in microseconds; each next bound is twice the one before.
const FIRST: u32 = 4;
/// The number of bounds: 16 microseconds to 16.8 seconds.
pub const BOUNDS: usize = 21;

/// Counts of durations, and when the last commit and the last checkpoint ended.
pub struct Latency {
    /// When the log was opened.
    since: Instant,
    /// The last one is for durations above all bounds.
    counts: [AtomicU64; BOUNDS + 1],
    sum_ns: AtomicU64,
    /// Microseconds since `since`, and 1; 0 for never.
    last_commit: AtomicU64,
    last_checkpoint: AtomicU64,
}

/// The counts of [`Latency`] at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Durations {
    /// Commits above the bound before, up to this one; the last is for those above all bounds.
    pub counts: [u64; BOUNDS + 1],
    /// The sum of all durations.
    pub sum: Duration,
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            counts: Default::default(),
            sum_ns: AtomicU64::new(0),
            last_commit: AtomicU64::new(0),
            last_checkpoint: AtomicU64::new(0),
        }
    }
}

impl Latency {
    /// A commit that began then has ended.
    pub fn note_commit(&self, began: Instant) {
        let now = Instant::now();
        let took = now - began;
        if let Some(count) = self.counts.get(place(took)) {
            count.fetch_add(1, Relaxed);
        }
        self.sum_ns.fetch_add(took.as_nanos() as u64, Relaxed);
        self.last_commit.store(self.mark(now), Relaxed);
    }

    /// A checkpoint has copied its pages.
    pub fn note_checkpoint(&self) {
        self.last_checkpoint
            .store(self.mark(Instant::now()), Relaxed);
    }

    fn mark(&self, now: Instant) -> u64 {
        (now - self.since).as_micros() as u64 + 1
    }

    /// The number of commits.
    pub fn commits(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// The durations so far.
    pub fn durations(&self) -> Durations {
        Durations {
            counts: std::array::from_fn(|k| self.counts[k].load(Relaxed)),
            sum: Duration::from_nanos(self.sum_ns.load(Relaxed)),
        }
    }

    /// The time since the last commit; `None` without one.
    pub fn commit_age(&self) -> Option<Duration> {
        self.age(&self.last_commit)
    }

    /// The time since the last checkpoint that copied pages; `None` without one.
    pub fn checkpoint_age(&self) -> Option<Duration> {
        self.age(&self.last_checkpoint)
    }

    fn age(&self, mark: &AtomicU64) -> Option<Duration> {
        let at = mark.load(Relaxed).checked_sub(1)?;
        let now = Instant::now() - self.since;
        Some(now.saturating_sub(Duration::from_micros(at)))
    }
}

/// The upper bounds, in seconds.
pub fn bounds() -> impl Iterator<Item = f64> {
    (0..BOUNDS as u32).map(|k| (1_u64 << (FIRST + k)) as f64 / 1e6)
}

/// The place of a duration among the counts.
fn place(took: Duration) -> usize {
    let us = took.as_nanos().div_ceil(1000) as u64;
    let power = u64::BITS - us.saturating_sub(1).leading_zeros();
    (power.saturating_sub(FIRST) as usize).min(BOUNDS)
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_below_the_first_bound_that_it_does_not_exceed() {
        let bounds: Vec<f64> = bounds().collect();
        for ns in [0, 1, 15_999, 16_000, 16_001, 32_000, 32_001, 999_999_999] {
            let took = Duration::from_nanos(ns);
            let expected = bounds.iter().position(|bound| took.as_secs_f64() <= *bound);
            assert_eq!(place(took), expected.expect("below the last"), "{ns} ns");
        }
        assert_eq!(place(Duration::from_micros(1 << 24)), BOUNDS - 1);
        assert_eq!(place(Duration::from_micros((1 << 24) + 1)), BOUNDS);
        assert_eq!(place(Duration::from_secs(1 << 40)), BOUNDS);
    }

    #[test]
    fn what_was_noted_is_counted() {
        let latency = Latency::default();
        assert_eq!(
            (latency.commit_age(), latency.checkpoint_age()),
            (None, None)
        );
        latency.note_commit(Instant::now());
        latency.note_checkpoint();
        assert_eq!(latency.durations().counts.iter().sum::<u64>(), 1);
        assert!(latency.commit_age().is_some() && latency.checkpoint_age().is_some());
    }
}
