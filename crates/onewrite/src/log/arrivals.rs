//! How many commits of all processes have arrived for a flush, for a leader that waits for others
//! to join its flush. The counts are in the page of [`super::shared`].
//!
//! Only the leader among processes begins and ends a flush; any commit may arrive. A process may
//! die at any step. Then a leader waits a moment without success, and nothing else depends on it.
//!
//! A leader announces that it waits, and then looks whether all have arrived. A commit counts
//! itself, and then looks whether a leader waits. A fence between the two steps on either side
//! ensures that at least one of them sees the other. Without it a leader could sleep until its
//! patience ends (`crates/models/tests/orders.rs`).

use std::time::Duration;

use super::shared::{age, now_millis};
use crate::storage::SharedWords;
use crate::storage::observer::company_lasts;
use crate::sync::atomic::Ordering;
use crate::sync::{Instant, fence, futex_wait, futex_wake};
use crate::waits::{COME_BACK, TOGETHER};

/// Commits that a flush has released may come again within the time of so many flushes.
const COME_BACK_FLUSHES: u32 = 8;

/// See the module. Without writable words no commit is ever expected.
#[derive(Clone, Copy)]
pub struct Arrivals<'a> {
    pub(super) words: Option<&'a SharedWords>,
}

/// A flush that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// The number of commits that the flush before it had found.
    found_before: u32,
}

impl Arrivals<'_> {
    /// A commit has arrived for a flush.
    pub fn arrive(self) {
        let Some(words) = self.words else { return };
        words.arrived.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        if self.are_complete() {
            self.wake_leader();
        }
    }

    /// A waiter that is not about to commit needs the next flush: do not delay it.
    pub fn hurry(self) {
        let Some(words) = self.words else { return };
        words.is_urgent.store(1, Ordering::Release);
        fence(Ordering::SeqCst);
        self.wake_leader();
    }

    fn wake_leader(self) {
        let Some(words) = self.words else { return };
        let is_awaited = words.leader_waits.load(Ordering::Acquire) != 0;
        if is_awaited && words.leader_waits.swap(0, Ordering::AcqRel) != 0 {
            futex_wake(&words.leader_waits, 1);
        }
    }

    /// Whether there is no commit to wait for, or a waiter that needs the flush at once.
    pub fn are_complete(self) -> bool {
        let Some(words) = self.words else { return true };
        let arrived = words.arrived.load(Ordering::Acquire);
        let present = arrived.wrapping_sub(words.found.load(Ordering::Acquire));
        words.is_urgent.load(Ordering::Acquire) != 0
            || present >= words.expected.load(Ordering::Acquire)
    }

    /// Waits until all expected commits are there, but not beyond `end`.
    pub fn wait(self, end: Instant) {
        let Some(words) = self.words else { return };
        loop {
            // Before the look. A commit that arrives after it resets this before the wake, and the
            // wait compares it.
            words.leader_waits.store(1, Ordering::Release);
            fence(Ordering::SeqCst);
            let now = Instant::now();
            if self.are_complete() || now >= end {
                break;
            }
            futex_wait(&words.leader_waits, 1, end - now);
            if cfg!(shuttle) {
                // Such a wait lets the model's other threads run once, and does not advance its
                // clock.
                break;
            }
        }
        words.leader_waits.store(0, Ordering::Release);
    }

    /// A flush begins.
    pub fn begin(self) -> Begun {
        let found_before = self.words.map_or(0, |words| {
            words.is_urgent.store(0, Ordering::Release);
            let arrived = words.arrived.load(Ordering::Acquire);
            words.found.swap(arrived, Ordering::AcqRel)
        });
        Begun { found_before }
    }

    /// The flush has ended, and took so long. The commits to expect before the next one are those that
    /// wait for it, and those that this one releases.
    pub fn end(self, begun: Begun, took: Duration) {
        if let Some(words) = self.words {
            let arrived = words.arrived.load(Ordering::Acquire);
            let expected = arrived.wrapping_sub(begun.found_before);
            let lasts = took.max(company_lasts(TOGETHER)) * COME_BACK_FLUSHES;
            let lasts = lasts.min(COME_BACK).as_millis() as u64;
            let released = lasts << 32 | u64::from(now_millis());
            words.released.store(released, Ordering::Release);
            words.expected.store(expected, Ordering::Release);
        }
    }

    /// Whether the last flush has released several commits, whose connections may be about to commit
    /// again.
    pub fn come_back(self) -> bool {
        let expected = |words: &SharedWords| words.expected.load(Ordering::Acquire);
        self.words.is_some_and(|words| expected(words) > 1) && !self.are_gone()
    }

    /// Whether the last flush was so long ago that its commits are not expected any more. A process in
    /// another time namespace may have noted a time in the future. The model checker has its own time.
    pub fn are_gone(self) -> bool {
        let released = |words: &SharedWords| words.released.load(Ordering::Acquire);
        let is_over = |words: &SharedWords| is_over(released(words), now_millis());
        !cfg!(shuttle) && self.words.is_none_or(is_over)
    }

    /// The flush was not made.
    pub fn give_up(self, begun: Begun) {
        if let Some(words) = self.words {
            words.found.store(begun.found_before, Ordering::Release);
        }
    }
}

/// Whether the commits are gone that a flush has released: see `SharedWords::released`.
fn is_over(noted: u64, now: u32) -> bool {
    u64::from(age(noted, now)) >= noted >> 32
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn arrive(arrivals: Arrivals<'_>, commits: u32) {
        (0..commits).for_each(|_| arrivals.arrive());
    }

    /// A flush during which this many commits arrive.
    fn flush(arrivals: Arrivals<'_>, commits: u32) {
        let begun = arrivals.begin();
        arrive(arrivals, commits);
        arrivals.end(begun, Duration::ZERO);
    }

    /// Two halves of four that flush in turns.
    fn halves(words: &SharedWords) -> Arrivals<'_> {
        let arrivals = Arrivals { words: Some(words) };
        arrive(arrivals, 4);
        flush(arrivals, 4);
        arrivals
    }

    #[test]
    fn commits_that_the_last_flush_released_are_expected() {
        let words = SharedWords::default();
        let arrivals = halves(&words);
        assert!(!arrivals.are_complete());
        arrive(arrivals, 4);
        assert!(arrivals.are_complete());
        flush(arrivals, 0);
        // One of the eight does not come again.
        arrive(arrivals, 7);
        assert!(!arrivals.are_complete());
        flush(arrivals, 0);
        arrive(arrivals, 7);
        assert!(arrivals.are_complete());
    }

    #[test]
    fn what_a_flush_of_long_ago_released_does_not_come_back() {
        let lasts = |took| {
            let words = SharedWords::default();
            let arrivals = halves(&words);
            let begun = arrivals.begin();
            arrive(arrivals, 2);
            arrivals.end(begun, took);
            let noted = words.released.load(Ordering::Acquire);
            let lasts = noted >> 32;
            // Another clock may be behind, and a count of milliseconds begins again.
            let at = |passed: u64| (noted as u32).wrapping_add(passed as u32);
            let before = |ahead: u64| (noted as u32).wrapping_sub(ahead as u32);
            for now in [at(0), at(lasts - 1), before(lasts - 1)] {
                assert!(!is_over(noted, now), "{took:?}");
            }
            for now in [at(lasts), before(lasts), at(1 << 30)] {
                assert!(is_over(noted, now), "{took:?}");
            }
            let long_ago = lasts << 32 | u64::from(before(2 * lasts));
            for (noted, are_gone) in [(long_ago, true), (u64::from(u32::MAX) << 32, false)] {
                words.released.store(noted, Ordering::Release);
                assert_eq!(arrivals.are_gone(), are_gone);
                assert_eq!(arrivals.come_back(), !are_gone);
            }
            Duration::from_millis(lasts)
        };
        assert_eq!(lasts(Duration::ZERO), TOGETHER * COME_BACK_FLUSHES);
        let slow = 2 * TOGETHER;
        assert_eq!(lasts(slow), slow * COME_BACK_FLUSHES);
        // A process that was stopped in its flush.
        assert_eq!(lasts(LONG), COME_BACK);
        assert!(is_over(0, 0), "a process of an older version notes no time");
    }

    #[test]
    fn a_group_of_one_commit_is_complete() {
        let words = SharedWords::default();
        let arrivals = Arrivals {
            words: Some(&words),
        };
        for _ in 0..3 {
            arrivals.arrive();
            assert!(arrivals.are_complete());
            flush(arrivals, 0);
        }
        let unwritable = Arrivals { words: None };
        unwritable.arrive();
        flush(unwritable, 3);
        assert!(unwritable.are_complete());
    }

    #[test]
    fn a_flush_that_was_not_made_has_found_nobody() {
        let words = SharedWords::default();
        let arrivals = halves(&words);
        let begun = arrivals.begin();
        arrivals.give_up(begun);
        arrive(arrivals, 4);
        assert!(arrivals.are_complete());
    }

    #[test]
    fn a_leader_waits_for_no_commit_while_a_reader_waits() {
        let words = SharedWords::default();
        let arrivals = halves(&words);
        arrivals.hurry();
        assert!(arrivals.are_complete());
        flush(arrivals, 4);
        assert!(!arrivals.are_complete());
    }

    #[test]
    fn counts_may_begin_again() {
        let words = SharedWords::default();
        words.arrived.store(u32::MAX - 2, Ordering::Release);
        words.found.store(u32::MAX - 2, Ordering::Release);
        let arrivals = halves(&words);
        assert!(!arrivals.are_complete());
        arrive(arrivals, 4);
        assert!(arrivals.are_complete());
    }

    #[test]
    fn a_leader_is_woken_by_the_last_commit_that_comes_and_by_a_reader() {
        for hurries in [false, true] {
            let words = SharedWords::default();
            let arrivals = halves(&words);
            std::thread::scope(|scope| {
                let begun = std::time::Instant::now();
                let leader = scope.spawn(move || arrivals.wait(Instant::now() + LONG));
                match hurries {
                    false => arrive(arrivals, 4),
                    true => arrivals.hurry(),
                }
                leader.join().expect("no panic");
                assert!(begun.elapsed() < LONG);
            });
            assert_eq!(words.leader_waits.load(Ordering::Acquire), 0);
        }
    }

    #[test]
    fn a_leader_does_not_wait_beyond_its_patience() {
        let words = SharedWords::default();
        halves(&words).wait(Instant::now() + Duration::from_millis(2));
    }
}
