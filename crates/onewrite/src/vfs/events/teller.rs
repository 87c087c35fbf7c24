//! The thread that writes the lines of our other threads to SQLite's log ([`Later`]).
//!
//! The application's callback may need a lock that a thread has which commits, closes, forks or exits.
//! So no thread that these wait for calls it (`docs/durability.md`, Y5): it hands its lines over here.
//! Nobody waits for this thread without a bound.
//!
//! The mutex is held over no call of SQLite.

use std::cell::RefCell;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use super::later::Later;
use crate::storage::{process_number, without_signals};
use crate::sync::{self, Builder, Instant};
use crate::waits::{LOOK, TOLD};

struct State {
    /// The process that has them.
    process: u64,
    lines: Later,
    has_thread: bool,
    /// A wait ended without success, and no line was written since.
    is_stuck: bool,
}

static STATE: Mutex<State> = Mutex::new(State {
    process: 0,
    lines: Later::new(),
    has_thread: false,
    is_stuck: false,
});
static CHANGED: Condvar = Condvar::new();
/// The process that has lines or a thread here, so that others take no lock.
static BUSY: AtomicU64 = AtomicU64::new(0);

impl State {
    /// The state of this process: the lines of a parent are the parent's, and so is the thread.
    fn own(mut guard: MutexGuard<'static, State>) -> MutexGuard<'static, State> {
        let process = process_number();
        if guard.process != process {
            guard.lines = Later::new();
            guard.has_thread = false;
            guard.is_stuck = false;
            guard.process = process;
        }
        guard
    }

    fn note_thread(&mut self, has_thread: bool) {
        self.has_thread = has_thread;
        let process = if self.is_told() { 0 } else { self.process };
        BUSY.store(process, Ordering::Release);
    }

    /// Without a thread, lines wait that a close must not take for written.
    fn is_told(&self) -> bool {
        !self.has_thread && self.lines.is_empty()
    }
}

fn state() -> MutexGuard<'static, State> {
    State::own(sync::lock_static(&STATE))
}

/// Has the thread write these lines. Where none can be started, they wait for the next ones.
pub fn tell(lines: Later) {
    if lines.is_empty() {
        return;
    }
    let mut state = state();
    state.lines.append(lines);
    if !state.has_thread {
        let thread = Builder::new().name("onewrite".into());
        // Nobody joins it. It ends when no line is left.
        let is_started = without_signals(|| thread.spawn(write)).is_ok();
        state.note_thread(is_started);
    }
}

/// The thread.
fn write() {
    let mut state = state();
    loop {
        let lines = mem::take(&mut state.lines);
        if lines.is_empty() {
            state.note_thread(false);
            CHANGED.notify_all();
            return;
        }
        drop(state);
        lines.tell();
        state = self::state();
        state.is_stuck = false;
    }
}

/// Waits until all lines are written, for [`TOLD`] at most. `false` if they are not: the application's
/// callback may wait for the caller. Then nobody waits before the callback has returned.
pub fn await_told() -> bool {
    let is_idle = || {
        let busy = BUSY.load(Ordering::Acquire);
        busy == 0 || busy != process_number()
    };
    if is_idle() {
        return true;
    }
    let state = state();
    if state.is_stuck {
        return false;
    }
    let mut state = wait_until(state, Instant::now() + TOLD);
    state.is_stuck = state.has_thread;
    state.is_told()
}

/// As [`await_told`], when the process exits. A signal handler may have called `exit` here.
pub fn await_told_at_exit(end: Instant) {
    loop {
        match STATE.try_lock() {
            Ok(state) => return drop(wait_until(State::own(state), end)),
            Err(TryLockError::Poisoned(_)) => return,
            Err(TryLockError::WouldBlock) if Instant::now() >= end => return,
            Err(TryLockError::WouldBlock) => sync::sleep(LOOK),
        }
    }
}

fn wait_until(mut state: MutexGuard<'static, State>, end: Instant) -> MutexGuard<'static, State> {
    loop {
        let now = Instant::now();
        if !state.has_thread || now >= end {
            return state;
        }
        let woken = CHANGED.wait_timeout(state, end - now);
        state = woken.unwrap_or_else(PoisonError::into_inner).0;
    }
}

std::thread_local! {
    static FORKING: RefCell<Option<MutexGuard<'static, State>>> = const { RefCell::new(None) };
}

/// Called before fork(2): the child finds the mutex free.
pub fn before_fork() {
    let _ = FORKING.try_with(|forking| forking.replace(Some(state())));
}

/// Called in the parent, and in the child.
pub fn after_fork() {
    let _ = FORKING.try_with(RefCell::take);
}
