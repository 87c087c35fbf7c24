//! How often an event may be written. Without a lock: a fork may find that taken for ever.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Events that are told apart. Two that share a place are written more often, never less.
const PLACES: usize = 64;
/// How often a place is tried that other threads change.
const TRIES: usize = 8;
/// Bits for the time in milliseconds: 34 years.
const TIME_BITS: u32 = 40;

/// See the module.
pub struct Limits {
    /// The upper part of the key, and when it was written last; 0 for never.
    last: [AtomicU64; PLACES],
    /// How often it was left out since.
    missed: [AtomicU32; PLACES],
}

/// Those of this process.
pub static LIMITS: Limits = Limits::new();

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000 + 1) & ((1 << TIME_BITS) - 1)
}

/// Whether `last` is of this key, and less than `every` ago.
fn is_recent(last: u64, key: u64, now: u64, every: Duration) -> bool {
    let time = last & ((1 << TIME_BITS) - 1);
    last >> TIME_BITS == key >> TIME_BITS && u128::from(now.wrapping_sub(time)) < every.as_millis()
}

impl Limits {
    const fn new() -> Limits {
        Limits {
            last: [const { AtomicU64::new(0) }; PLACES],
            missed: [const { AtomicU32::new(0) }; PLACES],
        }
    }

    fn place(&self, key: u64) -> (&AtomicU64, &AtomicU32) {
        let place = (key % PLACES as u64) as usize;
        (&self.last[place], &self.missed[place])
    }

    /// Whether an event of this key would be written now; if not, it counts as left out.
    pub fn is_due(&self, key: u64, every: Duration) -> bool {
        let (last, missed) = self.place(key);
        let is_due = !is_recent(last.load(Relaxed), key, now(), every);
        if !is_due {
            missed.fetch_add(1, Relaxed);
        }
        is_due
    }

    /// How many of this key were left out since the last one; `None` if this one is left out, too.
    pub fn passes(&self, key: u64, every: Duration) -> Option<u32> {
        if every.is_zero() {
            return Some(0);
        }
        let (last, missed) = self.place(key);
        for _ in 0..TRIES {
            let (before, now) = (last.load(Relaxed), now());
            if is_recent(before, key, now, every) {
                missed.fetch_add(1, Relaxed);
                return None;
            }
            let new = key >> TIME_BITS << TIME_BITS | now;
            // Another thread may write the same event, or one that shares the place.
            if last.compare_exchange(before, new, Relaxed, Relaxed).is_ok() {
                let left_out = missed.swap(0, Relaxed);
                let is_another = before >> TIME_BITS != key >> TIME_BITS;
                return Some(if is_another { 0 } else { left_out });
            }
        }
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);
    const KEY: u64 = 0x1234_5600_0000_0007;

    #[test]
    fn repetitions_are_counted_and_told_with_the_next_one() {
        let limits = Limits::new();
        assert!(limits.is_due(KEY, LONG));
        assert_eq!(limits.passes(KEY, LONG), Some(0));
        assert_eq!(limits.passes(KEY, LONG), None);
        assert!(!limits.is_due(KEY, LONG));
        assert_eq!(limits.passes(KEY + 1, LONG), Some(0), "another event");
        assert_eq!(limits.passes(KEY, Duration::from_nanos(1)), Some(2));
        assert_eq!(limits.passes(KEY, LONG), None);
        assert_eq!(limits.passes(KEY, Duration::ZERO), Some(0), "no limit");
        let same_place = KEY ^ 1 << 63;
        assert_eq!(limits.passes(same_place, LONG), Some(0), "another event");
    }

    #[test]
    fn threads_that_share_a_place_all_write() {
        const THREADS: u64 = 4;
        let limits = Limits::new();
        let passed = std::thread::scope(|scope| {
            let limits = &limits;
            let passes = move |thread: u64| {
                let key = |n: u64| ((n * THREADS + thread + 1) << TIME_BITS) | 7;
                (0..1000)
                    .filter(|n| limits.passes(key(*n), LONG).is_some())
                    .count()
            };
            let start = |thread| scope.spawn(move || passes(thread));
            let threads: Vec<_> = (0..THREADS).map(start).collect();
            let passed = threads.into_iter().filter_map(|it| it.join().ok());
            passed.sum::<usize>()
        });
        assert_eq!(passed, 4000, "each key is another event");
    }

    #[test]
    fn of_many_threads_one_writes() {
        let limits = Limits::new();
        let passed = std::thread::scope(|scope| {
            let passes = || limits.passes(KEY, LONG).is_some();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(passes)).collect();
            let passed = threads.into_iter().filter_map(|it| it.join().ok());
            passed.filter(|passed| *passed).count()
        });
        assert_eq!(passed, 1);
    }
}
