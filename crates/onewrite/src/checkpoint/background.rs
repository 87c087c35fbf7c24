//! The thread of a process that checkpoints one log, so that no commit does
//! (`onewrite_background_checkpoint`).
//!
//! This module has the thread's state: requests, waiters, and its end. `vfs::background` has its
//! connection, with which SQLite's own checkpoint runs, and chooses the checkpoints for it. [`super::due`]
//! says when. The rules are BG1 to BG19 of `docs/durability.md`.
//!
//! The mutex is held over no call into SQLite and over no I/O.

#[cfg(all(test, not(shuttle), not(loom)))]
mod tests;

use std::sync::PoisonError;
use std::time::Duration;

use serde::Serialize;

use super::due::{Due, Fill, Pass};
use crate::storage::process_number;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Instant, JoinHandle, Mutex, MutexGuard, forget_finished, sleep};
use crate::waits::{IDLE, LOOK, QUIET, TO_OPEN};

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
    /// It opens its connection, and somebody has waited for that as long as anybody does.
    is_slow_to_open: bool,
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
        self.thread.is_in_sqlite() || self.is_asked
    }

    /// Whether it has something to do now, or in a quiet moment.
    fn has_pass_left(&self) -> bool {
        self.is_asked || self.for_quiet.is_some()
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
    /// It opens its connection. An automatic extension of the application gets that, and may wait for a
    /// lock that the application has.
    Opens,
    /// It checkpoints, or closes its connection.
    Working,
    Idle,
}

impl Thread {
    fn is_in_sqlite(self) -> bool {
        matches!(self, Thread::Opens | Thread::Working)
    }
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
    pub fn leave(
        &self,
        fill: Fill,
        start: impl FnOnce() -> Result<JoinHandle<()>, String>,
    ) -> bool {
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
            // Not while a pass is under way.
            Due::Now if !state.is_busy() => {
                if fill.catches_up(state.last) {
                    self.writers_wait.store(true, Ordering::Relaxed);
                }
                state.ask(pass);
            }
            Due::Now | Due::InQuiet => state.for_quiet = Some((Instant::now(), pass)),
        }
        match state.thread {
            Thread::Opens | Thread::Working => true,
            // It sleeps no longer than until the next quiet moment.
            Thread::Idle if had_work && !state.is_asked => true,
            Thread::Idle => {
                self.changed.notify_all();
                true
            }
            Thread::None => self.start(&mut state, start),
        }
    }

    fn start(
        &self,
        state: &mut State,
        start: impl FnOnce() -> Result<JoinHandle<()>, String>,
    ) -> bool {
        // The thread before may not have ended altogether, and a commit waits for none of them.
        match start() {
            Ok(thread) => {
                state.handles.add(thread);
                state.thread = Thread::Opens;
                state.is_slow_to_open = false;
                state.is_stopping = false;
                true
            }
            Err(why) => {
                self.forget(state);
                state.fail(why);
                false
            }
        }
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
    ///
    /// When it is stopped it makes the pass that is left. A commit has relied on that, and the database
    /// may stay open in another process.
    pub fn serve(&self, mut checkpoint: impl FnMut() -> Result<(), String>) {
        let mut state = self.state();
        state.thread = Thread::Working;
        loop {
            let is_last = state.is_stopping;
            if is_last && (state.holds > 0 || !state.has_pass_left()) {
                break;
            }
            if (state.is_asked || is_last) && state.holds == 0 {
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

    /// Waits until the thread has closed its connection and ended. `false` if it cannot open that for too
    /// long: then it ends as soon as it has.
    pub fn stop(&self) -> bool {
        let end = Instant::now() + TO_OPEN;
        let mut state = self.state();
        while state.thread != Thread::None {
            state.is_stopping = true;
            self.changed.notify_all();
            let Some(changed) = self.wait_unless_it_opens(state, end) else {
                self.forget(&mut self.state());
                return false;
            };
            state = changed;
        }
        state.is_stopping = false;
        let ended = std::mem::take(&mut state.handles);
        drop(state);
        ended.join();
        true
    }

    /// Waits until none of these threads is in SQLite, as in a checkpoint. Each stays outside until as
    /// many calls have released it, or one stops it. All that open a connection share one wait.
    pub fn hold_all<'a>(all: impl IntoIterator<Item = &'a Background>) {
        let end = Instant::now() + TO_OPEN;
        all.into_iter().for_each(|one| one.hold(end));
    }

    fn hold(&self, end: Instant) {
        let mut state = self.state();
        state.holds += 1;
        while state.thread.is_in_sqlite() {
            let Some(changed) = self.wait_unless_it_opens(state, end) else {
                return;
            };
            state = changed;
        }
    }

    /// As [`Background::hold_all`], for one, and waits no longer than this. `false` if the thread still is in
    /// SQLite.
    pub fn hold_until(&self, end: Instant) -> bool {
        let mut state = self.state();
        state.holds += 1;
        while state.thread.is_in_sqlite() {
            let now = Instant::now();
            if now >= end {
                return false;
            }
            let woken = self.changed.wait_timeout(state, end - now);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// As [`Background::hold_until`], where another holder of the mutex may never release it.
    pub fn hold_at_exit(&self, end: Instant) {
        let mut is_held = false;
        loop {
            if let Ok(mut state) = self.state.try_lock() {
                state.holds += u32::from(!is_held);
                is_held = true;
                if !state.thread.is_in_sqlite() {
                    return;
                }
            }
            if Instant::now() >= end {
                return;
            }
            sleep(LOOK);
        }
    }

    /// See [`Background::hold_all`].
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

    /// Waits for a change of the state. `None` if the thread opens its connection at `end`. From then on
    /// nobody waits for that: a close and its checkpoint wait once.
    fn wait_unless_it_opens<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        end: Instant,
    ) -> Option<MutexGuard<'a, State>> {
        if state.thread != Thread::Opens {
            let woken = self.changed.wait(state);
            return Some(woken.unwrap_or_else(PoisonError::into_inner));
        }
        let now = Instant::now();
        state.is_slow_to_open |= now >= end;
        (!state.is_slow_to_open).then(|| {
            let woken = self.changed.wait_timeout(state, end - now);
            woken.unwrap_or_else(PoisonError::into_inner).0
        })
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
