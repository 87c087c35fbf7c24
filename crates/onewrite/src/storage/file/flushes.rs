//! Flushes of one open file description next to each other.
//!
//! Linux reports a failed write-back once to each open file description (`errseq_t`, as fsync(2) has
//! it). Of two calls on one description at the same time, one gets the error and the other succeeds.
//! The thread that makes blocks flushes next to a commit, and so do commits next to each other.
//! So a call that succeeds waits for those that ran next to it, and fails if one of them has failed.

use std::fmt;
use std::sync::PoisonError;

use rustix::io::Errno;

use crate::sync::{Condvar, Mutex, MutexGuard};

/// See the module. It costs a call two locks of a mutex, held for a few instructions.
#[derive(Default)]
pub(in crate::storage) struct Flushes {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    begun: u64,
    /// The numbers of those that run.
    running: Vec<u64>,
    failed: u64,
    last_failure: Option<Errno>,
    /// The error with which every call ends from now on.
    for_good: Option<Errno>,
}

/// Whether a failed call fails later ones.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failure {
    Once,
    ForGood,
}

impl Flushes {
    /// Makes one call that reports errors of write-back.
    ///
    /// # Errors
    /// Its own, or that of a call next to it, or of one that failed for good.
    pub fn flush<T>(&self, call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        self.make(call, Failure::Once)
    }

    /// The same. If it fails, all later ones do: it may have taken the error of pages that another thread
    /// has written and is about to flush. The log is poisoned, but not before the failed blocks are freed.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub fn flush_or_fail_for_good(
        &self,
        call: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.make(call, Failure::ForGood)
    }

    fn make<T>(
        &self,
        call: impl FnOnce() -> Result<T, Errno>,
        failure: Failure,
    ) -> Result<T, Errno> {
        let (number, failed) = {
            let mut state = self.state();
            let number = state.begun;
            state.begun += 1;
            state.running.push(number);
            (number, state.failed)
        };
        let done = call();
        let mut state = self.state();
        state.running.retain(|running| *running != number);
        if let Err(e) = done {
            state.failed += 1;
            state.last_failure = Some(e);
            if failure == Failure::ForGood {
                state.for_good = Some(e);
            }
        }
        self.ended.notify_all();
        let done = done?;
        // A call that begins from now on finds no error that this one should have found.
        let later = state.begun;
        while state.running.iter().any(|running| *running < later) {
            let woken = self.ended.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        match (state.for_good, state.failed == failed) {
            (Some(e), _) => Err(e),
            (None, true) => Ok(done),
            (None, false) => Err(state.last_failure.unwrap_or(Errno::IO)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Flushes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flushes").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    /// Two calls overlap; the second ends first, and succeeds. Returns its result, and whether it had
    /// returned before the first one ended.
    fn next_to(first: Result<(), Errno>) -> (Result<(), Errno>, bool) {
        let flushes = Flushes::default();
        thread::scope(|scope| {
            let (begun, has_begun) = channel();
            let (end, may_end) = channel::<()>();
            let flushes = &flushes;
            let slow = scope.spawn(move || {
                flushes.flush(|| {
                    let _ = begun.send(());
                    let _ = may_end.recv();
                    first
                })
            });
            has_begun.recv().expect("it runs");
            let (ended, has_ended) = channel();
            let quick = scope.spawn(move || {
                let done = flushes.flush(|| Ok(()));
                let _ = ended.send(());
                done
            });
            let was_early = has_ended.recv_timeout(Duration::from_millis(100)).is_ok();
            end.send(()).expect("it runs");
            assert_eq!(slow.join().expect("no panic"), first);
            (quick.join().expect("no panic"), was_early)
        })
    }

    #[test]
    fn of_two_flushes_next_to_each_other_both_fail() {
        assert_eq!(next_to(Err(Errno::IO)), (Err(Errno::IO), false));
        assert_eq!(next_to(Err(Errno::NOSPC)), (Err(Errno::NOSPC), false));
        assert_eq!(next_to(Ok(())), (Ok(()), false));
    }

    #[test]
    fn a_flush_that_begins_after_a_failed_one_may_succeed() {
        let flushes = Flushes::default();
        assert_eq!(flushes.flush(|| Err::<(), _>(Errno::IO)), Err(Errno::IO));
        assert_eq!(flushes.flush(|| Ok(())), Ok(()));
        assert!(flushes.state().running.is_empty());
    }

    /// A commit was written before the failed flush of new blocks began, and is flushed after it ended.
    #[test]
    fn after_a_failed_flush_of_new_blocks_none_succeeds() {
        let flushes = Flushes::default();
        assert_eq!(flushes.flush_or_fail_for_good(|| Ok(())), Ok(()));
        assert_eq!(flushes.flush(|| Ok(())), Ok(()));
        let failed = flushes.flush_or_fail_for_good(|| Err(Errno::NOSPC));
        assert_eq!(failed, Err(Errno::NOSPC));
        assert_eq!(flushes.flush(|| Ok(())), Err(Errno::NOSPC));
        assert_eq!(flushes.flush(|| Ok(7)), Err(Errno::NOSPC));
    }
}
