//! How many commits have come to be flushed, of all processes, for a leader that waits for others to join its
//! flush: in the page of [`super::shared`].
//!
//! Only who has the lead among processes begins and ends a flush; anybody may arrive. A process may die with any
//! of it half done: then a leader waits in vain for a moment, and nothing else depends on it.
//!
//! A leader says that it waits, and then looks whether all are there; a commit counts itself, and then looks whether a
//! leader waits. A fence stands between the two on either side, so that at least one of them sees the other. Without
//! it a leader could sleep until its patience ends (`tests/orders.rs`).

use crate::storage::SharedWords;
use crate::sync::atomic::Ordering;
use crate::sync::{Instant, fence, futex_wait, futex_wake};

/// See the module. Without words that can be written nobody is ever expected.
#[derive(Clone, Copy)]
pub struct Arrivals<'a> {
    pub(super) words: Option<&'a SharedWords>,
}

/// A flush that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// Commits that the flush before it had found.
    found_before: u32,
}

impl Arrivals<'_> {
    /// A commit came to be flushed.
    pub fn arrive(self) {
        let Some(words) = self.words else { return };
        words.arrived.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        if self.are_complete() {
            self.wake_leader();
        }
    }

    /// Somebody waits for the next flush who is not about to commit: nobody is to be waited for.
    pub fn hurry(self) {
        let Some(words) = self.words else { return };
        words.is_urgent.store(1, Ordering::Release);
        fence(Ordering::SeqCst);
        self.wake_leader();
    }

    fn wake_leader(self) {
        let Some(words) = self.words else { return };
        let is_awaited = words.gathers.load(Ordering::Acquire) != 0;
        if is_awaited && words.gathers.swap(0, Ordering::AcqRel) != 0 {
            futex_wake(&words.gathers, 1);
        }
    }

    /// Whether there is nobody to wait for, or somebody to hurry for.
    pub fn are_complete(self) -> bool {
        let Some(words) = self.words else { return true };
        let arrived = words.arrived.load(Ordering::Acquire);
        let present = arrived.wrapping_sub(words.found.load(Ordering::Acquire));
        words.is_urgent.load(Ordering::Acquire) != 0
            || present >= words.expected.load(Ordering::Acquire)
    }

    /// Waits until all are there who are expected, but not beyond `end`.
    pub fn wait(self, end: Instant) {
        let Some(words) = self.words else { return };
        loop {
            // Before the look. Whoever comes after it takes this back before the wake, and the wait compares it.
            words.gathers.store(1, Ordering::Release);
            fence(Ordering::SeqCst);
            let now = Instant::now();
            if self.are_complete() || now >= end {
                break;
            }
            futex_wait(&words.gathers, 1, end - now);
            if cfg!(shuttle) {
                // Such a wait lets the model's others go on once, and does not move its clock.
                break;
            }
        }
        words.gathers.store(0, Ordering::Release);
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

    /// It has ended. So many may come before the next one: those that wait for it, and those that this one lets go.
    pub fn end(self, begun: Begun) {
        if let Some(words) = self.words {
            let arrived = words.arrived.load(Ordering::Acquire);
            let expected = arrived.wrapping_sub(begun.found_before);
            words.expected.store(expected, Ordering::Release);
        }
    }

    /// It was not made.
    pub fn give_up(self, begun: Begun) {
        if let Some(words) = self.words {
            words.found.store(begun.found_before, Ordering::Release);
        }
    }
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(600);

    fn arrive(arrivals: Arrivals<'_>, commits: u32) {
        (0..commits).for_each(|_| arrivals.arrive());
    }

    /// A flush during which so many commits arrive.
    fn flush(arrivals: Arrivals<'_>, commits: u32) {
        let begun = arrivals.begin();
        arrive(arrivals, commits);
        arrivals.end(begun);
    }

    /// Two halves of four that flush in turns.
    fn halves(words: &SharedWords) -> Arrivals<'_> {
        let arrivals = Arrivals { words: Some(words) };
        arrive(arrivals, 4);
        flush(arrivals, 4);
        arrivals
    }

    #[test]
    fn those_are_expected_whom_the_last_flush_let_go() {
        let words = SharedWords::default();
        let arrivals = halves(&words);
        assert!(!arrivals.are_complete());
        arrive(arrivals, 4);
        assert!(arrivals.are_complete());
        flush(arrivals, 0);
        // One of the eight comes no more.
        arrive(arrivals, 7);
        assert!(!arrivals.are_complete());
        flush(arrivals, 0);
        arrive(arrivals, 7);
        assert!(arrivals.are_complete());
    }

    #[test]
    fn who_is_alone_is_complete() {
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
    fn nobody_is_waited_for_while_a_reader_waits() {
        let words = SharedWords::default();
        let arrivals = halves(&words);
        arrivals.hurry();
        assert!(arrivals.are_complete());
        flush(arrivals, 4);
        assert!(!arrivals.are_complete());
    }

    #[test]
    fn counts_may_begin_anew() {
        let words = SharedWords::default();
        words.arrived.store(u32::MAX - 2, Ordering::Release);
        words.found.store(u32::MAX - 2, Ordering::Release);
        let arrivals = halves(&words);
        assert!(!arrivals.are_complete());
        arrive(arrivals, 4);
        assert!(arrivals.are_complete());
    }

    #[test]
    fn a_leader_is_woken_by_the_last_who_comes_and_by_a_reader() {
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
            assert_eq!(words.gathers.load(Ordering::Acquire), 0);
        }
    }

    #[test]
    fn a_leader_does_not_wait_beyond_its_patience() {
        let words = SharedWords::default();
        halves(&words).wait(Instant::now() + Duration::from_millis(2));
    }
}
