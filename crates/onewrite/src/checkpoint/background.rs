//! The thread of a process that checkpoints one log, so that no commit does
//! (`onewrite_background_checkpoint`).
//!
//! This module has the thread's state: requests, waiters, and its end. `vfs::background` has its
//! connection, with which SQLite's own checkpoint runs, and chooses the checkpoints for it. [`super::due`]
//! says when. The rules are BG1 to BG15 of `docs/durability.md`.
//!
//! The mutex is held over no call into SQLite and over no I/O.

use std::sync::PoisonError;
use std::time::Duration;

use serde::Serialize;

use super::due::{Due, Fill, Pass};
use crate::storage::process_number;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Instant, JoinHandle, Mutex, MutexGuard, forget_finished};
use crate::waits::{IDLE, QUIET};

/// So many commits that would have asked checkpoint by themselves after a failure. Then the next one
/// asks again: memory, threads or files may have been short for a moment.
const SPARED: u32 = 16;

/// See the module.
#[derive(Default)]
pub struct Background {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether a connection that is about to write waits for the pass that is asked for, or runs.
    /// Readers look at it without the mutex.
    writers_wait: AtomicBool,
}

#[derive(Default)]
struct State {
    thread: Thread,
    /// To be joined at the end. All but the last have ended, or are about to.
    handles: Handles,
    /// Whether a pass was asked for and has not begun.
    is_asked: bool,
    /// The last commit that has left a pass for a quiet moment, until there is a pass.
    for_quiet: Option<(Instant, Pass)>,
    /// The last pass that was asked for.
    last: Option<Pass>,
    /// The calls that the thread begins no checkpoint next to.
    holds: u32,
    is_stopping: bool,
    checkpoints: u64,
    failure: Option<Failure>,
}

/// Threads, and the process that has them.
#[derive(Default)]
struct Handles {
    process: u64,
    threads: Vec<JoinHandle<()>>,
}

impl Handles {
    fn add(&mut self, thread: JoinHandle<()>) {
        forget_finished(&mut self.threads);
        self.process = process_number();
        self.threads.push(thread);
    }

    fn join(mut self) {
        for thread in std::mem::take(&mut self.threads) {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Handles {
    /// A child of fork has not the threads. It must not detach them: the C library has reused their
    /// memory.
    fn drop(&mut self) {
        if self.process != process_number() {
            std::mem::forget(std::mem::take(&mut self.threads));
        }
    }
}

/// Why no thread checkpoints this log for now.
struct Failure {
    why: String,
    /// The commits that are still spared ([`SPARED`]).
    spared: u32,
}

impl State {
    /// Whether the thread has something to do that is not left for a quiet moment.
    fn is_busy(&self) -> bool {
        self.thread == Thread::Working || self.is_asked
    }

    fn ask(&mut self, pass: Pass) {
        self.is_asked = true;
        self.last = Some(pass);
    }

    fn fail(&mut self, why: String) {
        self.failure = Some(Failure {
            why,
            spared: SPARED,
        });
    }

    /// Whether this commit checkpoints by itself, because the thread has failed.
    fn spares(&mut self) -> bool {
        self.failure.as_mut().is_some_and(|failure| {
            let is_spared = failure.spared > 0;
            failure.spared = failure.spared.saturating_sub(1);
            is_spared
        })
    }

    /// How long the idle thread sleeps if nothing wakes it.
    fn pause(&self) -> Duration {
        match self.for_quiet {
            Some((since, _)) if self.holds == 0 => QUIET.saturating_sub(Instant::now() - since),
            _ => IDLE,
        }
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
    /// Whether it has a checkpoint to run, now or in a quiet moment, or is running one.
    pub is_busy: bool,
    /// Checkpoints that the thread has run.
    pub checkpoints: u64,
    /// Why it runs none for now: commits do.
    pub failure: Option<String>,
}

impl Background {
    /// Leaves the checkpoint of a commit to the thread. `start` starts it if there is none. `false`
    /// if there can be none: then the caller checkpoints.
    pub fn leave(&self, fill: Fill, start: impl FnOnce() -> Option<JoinHandle<()>>) -> bool {
        let mut state = self.state();
        if state.spares() {
            return false;
        }
        if fill.is_long() && state.is_busy() {
            self.writers_wait.store(true, Ordering::Relaxed);
        }
        let (due, pass) = (fill.due(state.last), fill.pass(state.last));
        let had_work = state.for_quiet.is_some() || state.is_asked;
        match due {
            Due::Later => return true,
            // The pass that is under way comes to its end first.
            Due::Now if !state.is_busy() => {
                if fill.catches_up(state.last) {
                    self.writers_wait.store(true, Ordering::Relaxed);
                }
                state.ask(pass);
            }
            Due::Now | Due::InQuiet => state.for_quiet = Some((Instant::now(), pass)),
        }
        match state.thread {
            Thread::Working => true,
            // It sleeps no longer than until the next quiet moment.
            Thread::Idle if had_work && !state.is_asked => true,
            Thread::Idle => {
                self.changed.notify_all();
                true
            }
            Thread::None => self.start(&mut state, start),
        }
    }

    fn start(&self, state: &mut State, start: impl FnOnce() -> Option<JoinHandle<()>>) -> bool {
        // The thread before may not have ended altogether, and a commit waits for none of them.
        let Some(thread) = start() else {
            self.forget(state);
            state.fail("no thread can be started".to_owned());
            return false;
        };
        state.handles.add(thread);
        state.thread = Thread::Working;
        true
    }

    /// No thread does what it was asked for.
    fn forget(&self, state: &mut State) {
        if std::mem::take(&mut state.is_asked) {
            state.last = None;
        }
        state.for_quiet = None;
        self.writers_wait.store(false, Ordering::Relaxed);
    }

    /// The thread's work: makes passes when it is asked, and in quiet moments, until it is stopped, or
    /// has had nothing to do for long. The error of a pass ends it.
    pub fn serve(&self, mut checkpoint: impl FnMut() -> Result<(), String>) {
        let mut state = self.state();
        while !state.is_stopping {
            if state.is_asked && state.holds == 0 {
                state.is_asked = false;
                state.for_quiet = None;
                state.thread = Thread::Working;
                drop(state);
                let done = checkpoint();
                state = self.state();
                state.checkpoints += 1;
                self.writers_wait.store(false, Ordering::Relaxed);
                match done {
                    Ok(()) => state.failure = None,
                    Err(why) => {
                        state.fail(why);
                        break;
                    }
                }
                continue;
            }
            state.thread = Thread::Idle;
            self.changed.notify_all();
            let pause = state.pause();
            let woken = self.changed.wait_timeout(state, pause);
            let (guard, result) = woken.unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if !result.timed_out() || state.is_asked || state.holds > 0 {
                continue;
            }
            match state.for_quiet {
                Some((_, pass)) if state.pause().is_zero() => state.ask(pass),
                Some(_) => {}
                None => break,
            }
        }
        // It closes its connection now. Whoever asks meanwhile asks again after the next commit.
        state.thread = Thread::Working;
    }

    /// To be kept by the thread. When it is dropped the thread has no connection any more, and ends.
    pub fn until_it_ends(&self) -> Ends<'_> {
        Ends(self)
    }

    /// No thread checkpoints this log for now.
    pub fn give_up(&self, why: String) {
        self.state().fail(why);
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
        let ended = std::mem::take(&mut state.handles);
        drop(state);
        ended.join();
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

    /// As [`Background::hold`], and waits no longer than this. `false` if the thread still is in SQLite.
    pub fn hold_until(&self, end: Instant) -> bool {
        let mut state = self.state();
        state.holds += 1;
        while state.thread == Thread::Working {
            let now = Instant::now();
            if now >= end {
                return false;
            }
            let woken = self.changed.wait_timeout(state, end - now);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// See [`Background::hold`].
    pub fn release(&self) {
        self.state().holds -= 1;
        self.changed.notify_all();
    }

    /// Whether a connection that is about to write waits for the thread.
    pub fn writers_wait(&self) -> bool {
        self.writers_wait.load(Ordering::Relaxed)
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

    /// Whether there is a thread.
    pub fn has_thread(&self) -> bool {
        self.state().thread != Thread::None
    }

    /// See [`BackgroundCounts`].
    pub fn counts(&self) -> BackgroundCounts {
        let state = self.state();
        BackgroundCounts {
            is_busy: state.is_busy() || state.for_quiet.is_some(),
            checkpoints: state.checkpoints,
            failure: state.failure.as_ref().map(|failure| failure.why.clone()),
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
        self.0.forget(&mut state);
        self.0.changed.notify_all();
    }
}

#[cfg(all(test, not(shuttle), not(loom)))]
mod tests {
    use super::*;
    use crate::wal::Salts;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    const LONGEST: Duration = Duration::from_secs(600);

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

    /// A log that is due for its first pass, in its `generation`.
    fn long(generation: u8) -> Fill {
        Fill {
            salts: Salts([generation; 8]),
            frames: 1_250,
            copied: 0,
            threshold: 1_000,
        }
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
        assert!(background.leave(long(1), || serving(&background, checkpoint)));
        assert!(background.await_idle(LONGEST));
        assert_eq!(count.load(Ordering::SeqCst), 1);
        background.hold();
        assert!(background.leave(long(2), || unreachable!("it has a thread")));
        assert!(!background.await_idle(Duration::from_millis(1)));
        assert_eq!(count.load(Ordering::SeqCst), 1);
        background.release();
        assert!(background.await_idle(LONGEST));
        assert_eq!(count.load(Ordering::SeqCst), 2);
        background.stop();
        assert!(!background.has_thread());
    }

    #[test]
    fn a_failure_and_a_panic_end_the_thread() {
        let background = Arc::new(Background::default());
        let fails = || Err("the disk is full".to_owned());
        assert!(background.leave(long(1), || serving(&background, fails)));
        background.stop();
        // Whether it was stopped before it began is open.
        background.give_up("the disk is full".to_owned());
        assert!(!background.leave(long(1), || unreachable!("it has failed")));
        assert_eq!(
            background.counts().failure.as_deref(),
            Some("the disk is full")
        );

        let background = Arc::new(Background::default());
        let panics = || panic!("on purpose");
        assert!(background.leave(long(1), || serving(&background, panics)));
        assert!(background.await_idle(LONGEST));
        background.stop();
        assert!(background.leave(long(1), || serving(&background, || Ok(()))));
        background.stop();
    }

    /// `clone` may return EAGAIN for a moment.
    #[test]
    fn without_a_thread_commits_checkpoint_and_later_one_tries_again() {
        let background = Arc::new(Background::default());
        assert!(!background.leave(long(1), || None));
        for _ in 0..SPARED {
            assert!(!background.leave(long(1), || unreachable!("it is too early")));
        }
        assert!(!background.leave(long(1), || None));
        assert!(background.counts().failure.is_some());
        for _ in 0..SPARED {
            assert!(!background.leave(long(1), || unreachable!("it is too early")));
        }
        assert!(background.leave(long(1), || serving(&background, || Ok(()))));
        assert!(background.await_idle(LONGEST));
        assert_eq!(background.counts().failure, None);
        assert_eq!(background.counts().checkpoints, 1);
        background.hold();
        background.release();
        background.stop();
    }

    #[test]
    fn what_is_left_is_copied_in_a_quiet_moment() {
        let background = Arc::new(Background::default());
        let quiet = Fill {
            frames: 1_000,
            ..long(1)
        };
        assert!(background.leave(quiet, || serving(&background, || Ok(()))));
        let begun = Instant::now();
        while background.counts().is_busy {
            assert!(begun.elapsed() < LONGEST, "it takes too long");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(background.counts().checkpoints, 1);
        // Once, even if the log has not restarted.
        assert!(background.leave(quiet, || unreachable!("it has a thread")));
        assert!(!background.counts().is_busy);
        background.stop();
    }

    #[test]
    fn writers_wait_for_the_pass_that_is_to_catch_up() {
        let background = Arc::new(Background::default());
        assert!(background.leave(long(1), || serving(&background, || Ok(()))));
        assert!(background.await_idle(LONGEST));
        assert!(!background.writers_wait());
        background.hold();
        let longer = Fill {
            frames: 1_375,
            copied: 1_250,
            ..long(1)
        };
        assert!(background.leave(longer, || unreachable!("it has a thread")));
        assert!(background.writers_wait());
        background.release();
        assert!(background.await_idle(LONGEST));
        assert!(!background.writers_wait());
        background.stop();
    }

    /// Its last step may take long: it is no longer in SQLite then, and has nothing of the log.
    #[test]
    fn no_commit_waits_for_a_thread_that_has_almost_ended() {
        let background = Arc::new(Background::default());
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        let its = Arc::clone(&background);
        let slow = || {
            Some(std::thread::spawn(move || {
                drop(its.until_it_ends());
                let _ = may_go_on.recv_timeout(LONGEST);
            }))
        };
        assert!(background.leave(long(1), slow));
        let begun = Instant::now();
        while background.has_thread() {
            assert!(begun.elapsed() < LONGEST, "it takes too long");
            std::thread::yield_now();
        }
        let (left, is_left) = std::sync::mpsc::channel();
        let its = Arc::clone(&background);
        // Not joined if the test fails: it would wait for ever.
        std::thread::spawn(move || {
            let _ = left.send(its.leave(long(2), || serving(&its, || Ok(()))));
        });
        let found = is_left.recv_timeout(Duration::from_secs(20));
        assert_eq!(found, Ok(true), "it has waited");
        drop(go_on);
        background.stop();
    }
}
