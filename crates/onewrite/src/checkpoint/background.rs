//! The thread of a process that checkpoints one log, so that no commit does
//! (`onewrite_background_checkpoint`).
//!
//! This module has the thread's state: requests, waiters, and its end. `vfs::background` has its
//! connection, with which SQLite's own checkpoint runs, and chooses the checkpoints for it. The rules are BG1 to BG12 of `docs/durability.md`.
//!
//! The mutex is held over no call into SQLite and over no I/O.

use std::sync::PoisonError;
use std::time::Duration;

use serde::Serialize;

use crate::sync::{Condvar, Instant, JoinHandle, Mutex, MutexGuard};
use crate::waits::IDLE;

/// See the module.
#[derive(Default)]
pub struct Background {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    thread: Thread,
    /// To be joined when the thread has ended.
    handle: Option<JoinHandle<()>>,
    /// Whether a checkpoint was asked for and has not begun.
    is_asked: bool,
    /// The calls that the thread begins no checkpoint next to.
    holds: u32,
    is_stopping: bool,
    /// `wal_autocheckpoint` of the connection that asked last, in frames.
    threshold: u32,
    checkpoints: u64,
    /// Why no thread checkpoints this log any more.
    failure: Option<String>,
}

impl State {
    fn is_busy(&self) -> bool {
        self.thread == Thread::Working || self.is_asked
    }
}

/// The thread's occupation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Thread {
    #[default]
    None,
    /// It opens its connection, checkpoints, or closes its connection.
    Working,
    Idle,
}

/// For `onewrite_status`.
#[derive(Clone, Debug, Serialize)]
pub struct BackgroundCounts {
    /// Whether it has a checkpoint to run, or is running one.
    pub is_busy: bool,
    /// Checkpoints that the thread has run.
    pub checkpoints: u64,
    /// Why it runs no more: commits do again.
    pub failure: Option<String>,
}

impl Background {
    /// Asks the thread for a checkpoint. `start` starts it if there is none. `false` if there can be
    /// none: then the caller checkpoints.
    pub fn ask(&self, threshold: u32, start: impl FnOnce() -> Option<JoinHandle<()>>) -> bool {
        let mut state = self.state();
        if state.failure.is_some() {
            return false;
        }
        state.threshold = threshold;
        state.is_asked = true;
        match state.thread {
            Thread::Working => {}
            Thread::Idle => self.changed.notify_all(),
            Thread::None => {
                // It has ended, and no longer needs the mutex.
                state.handle.take().map(JoinHandle::join);
                state.handle = start();
                match state.handle.is_some() {
                    true => state.thread = Thread::Working,
                    false => {
                        state.is_asked = false;
                        state.failure = Some("no thread can be started".to_owned());
                        return false;
                    }
                }
            }
        }
        true
    }

    /// The thread's work: checkpoints when it is asked, until it is stopped, or has had nothing to do
    /// for long. The error of a checkpoint ends it for good.
    pub fn serve(&self, mut checkpoint: impl FnMut() -> Result<(), String>) {
        let mut state = self.state();
        while !state.is_stopping {
            if state.is_asked && state.holds == 0 {
                state.is_asked = false;
                state.thread = Thread::Working;
                drop(state);
                let done = checkpoint();
                state = self.state();
                state.checkpoints += 1;
                if let Err(message) = done {
                    state.failure = Some(message);
                    break;
                }
                continue;
            }
            state.thread = Thread::Idle;
            self.changed.notify_all();
            let woken = self.changed.wait_timeout(state, IDLE);
            let (guard, result) = woken.unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if result.timed_out() && !state.is_asked && state.holds == 0 {
                break;
            }
        }
        // It closes its connection now. Whoever asks meanwhile asks again after the next commit.
        state.thread = Thread::Working;
    }

    /// To be kept by the thread. When it is dropped the thread has no connection any more, and ends.
    pub fn until_it_ends(&self) -> Ends<'_> {
        Ends(self)
    }

    /// No thread checkpoints this log any more.
    pub fn give_up(&self, why: String) {
        self.state().failure.get_or_insert(why);
    }

    /// Waits until the thread has closed its connection and ended.
    pub fn stop(&self) {
        let mut state = self.state();
        while state.thread != Thread::None {
            state.is_stopping = true;
            self.changed.notify_all();
            state = self.wait(state);
        }
        state.is_stopping = false;
        let handle = state.handle.take();
        drop(state);
        // A panic was reported when it happened.
        handle.map(JoinHandle::join);
    }

    /// Waits until the thread is not in SQLite, as it is in a checkpoint. It stays outside until as
    /// many calls have released it, or one stops it.
    pub fn hold(&self) {
        let mut state = self.state();
        state.holds += 1;
        while state.thread == Thread::Working {
            state = self.wait(state);
        }
    }

    /// See [`Background::hold`].
    pub fn release(&self) {
        self.state().holds -= 1;
        self.changed.notify_all();
    }

    /// Waits until the thread has done what it was asked for. `false` if that takes longer.
    pub fn await_idle(&self, most: Duration) -> bool {
        let end = Instant::now() + most;
        let mut state = self.state();
        while state.is_busy() {
            let now = Instant::now();
            if now >= end {
                return false;
            }
            let woken = self.changed.wait_timeout(state, end - now);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// `wal_autocheckpoint` of the connection that asked last, in frames, while there is a thread.
    pub fn threshold(&self) -> Option<u32> {
        let state = self.state();
        (state.thread != Thread::None).then_some(state.threshold)
    }

    /// See [`BackgroundCounts`].
    pub fn counts(&self) -> BackgroundCounts {
        let state = self.state();
        BackgroundCounts {
            is_busy: state.is_busy(),
            checkpoints: state.checkpoints,
            failure: state.failure.clone(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let woken = self.changed.wait(state);
        woken.unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`Background::until_it_ends`]. A panic of the thread comes here, too.
pub struct Ends<'a>(&'a Background);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.thread = Thread::None;
        state.is_asked = false;
        self.0.changed.notify_all();
    }
}

#[cfg(all(test, not(shuttle), not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn serving(
        background: &Arc<Background>,
        checkpoint: impl FnMut() -> Result<(), String> + Send + 'static,
    ) -> Option<JoinHandle<()>> {
        let its = Arc::clone(background);
        Some(std::thread::spawn(move || {
            let _ends = its.until_it_ends();
            its.serve(checkpoint);
        }))
    }

    #[test]
    fn no_checkpoint_runs_next_to_a_hold() {
        let background = Arc::new(Background::default());
        let count = Arc::new(AtomicU32::new(0));
        let its = Arc::clone(&count);
        let checkpoint = move || {
            its.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        assert!(background.ask(1000, || serving(&background, checkpoint)));
        assert!(background.await_idle(Duration::from_secs(600)));
        assert_eq!(count.load(Ordering::SeqCst), 1);
        background.hold();
        assert!(background.ask(1000, || unreachable!("it has a thread")));
        assert!(!background.await_idle(Duration::from_millis(1)));
        assert_eq!(count.load(Ordering::SeqCst), 1);
        background.release();
        assert!(background.await_idle(Duration::from_secs(600)));
        assert_eq!(count.load(Ordering::SeqCst), 2);
        background.stop();
        assert_eq!(background.threshold(), None);
    }

    #[test]
    fn a_failure_and_a_panic_end_the_thread() {
        let background = Arc::new(Background::default());
        let fails = || Err("the disk is full".to_owned());
        assert!(background.ask(1, || serving(&background, fails)));
        background.stop();
        // Whether it was stopped before it began is open.
        background.give_up("the disk is full".to_owned());
        assert!(!background.ask(1, || unreachable!("it has failed")));
        assert_eq!(
            background.counts().failure.as_deref(),
            Some("the disk is full")
        );

        let background = Arc::new(Background::default());
        let panics = || panic!("on purpose");
        assert!(background.ask(1, || serving(&background, panics)));
        assert!(background.await_idle(Duration::from_secs(600)));
        background.stop();
        assert!(background.ask(1, || serving(&background, || Ok(()))));
        background.stop();
    }

    #[test]
    fn without_a_thread_the_caller_checkpoints() {
        let background = Background::default();
        assert!(!background.ask(1, || None));
        assert!(!background.ask(1, || unreachable!("it was tried")));
        background.hold();
        background.release();
        background.stop();
    }
}
