//! The thread that writes the lines of our other threads to SQLite's log ([`Later`]).
//!
//! The application's callback may need a lock that a thread has which commits, closes, forks or exits.
//! So no thread that these wait for calls it (`docs/durability.md`, Y5): it hands its lines over here.
//! Nobody waits for this thread without a bound. A callback may close or exit itself: this thread does not
//! wait for itself.
//!
//! The mutex is held over no call of SQLite.

use std::cell::{Cell, RefCell};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use super::later::Later;
use crate::storage::{process_number, without_signals};
use crate::sync::{self, Builder, Instant};
use crate::waits::{LOOK, TOLD};

struct State {
    /// The process that has them.
    process: u64,
    lines: Later,
    /// How often lines were handed over.
    handed: u64,
    /// How many of these times all lines are written.
    written: u64,
    /// When the last line was written, or a thread began.
    moved: Option<Instant>,
    has_thread: bool,
}

static STATE: Mutex<State> = Mutex::new(State {
    process: 0,
    lines: Later::new(),
    handed: 0,
    written: 0,
    moved: None,
    has_thread: false,
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
            guard.written = guard.handed;
            guard.has_thread = false;
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

    /// Whether the lines are written that were handed over up to this one.
    fn has_told(&self, handed: u64) -> bool {
        self.written >= handed
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
    state.handed += 1;
    if !state.has_thread {
        state.moved = Some(Instant::now());
        let thread = Builder::new().name("onewrite".into());
        // Nobody joins it. It ends when no line is left.
        let is_started = without_signals(|| thread.spawn(write)).is_ok();
        state.note_thread(is_started);
    }
}

/// The thread.
fn write() {
    let _ = IS_TELLER.try_with(|it| it.set(true));
    let wrote = || {
        state().moved = Some(Instant::now());
        CHANGED.notify_all();
    };
    let mut state = state();
    loop {
        let lines = mem::take(&mut state.lines);
        if lines.is_empty() {
            state.note_thread(false);
            CHANGED.notify_all();
            return;
        }
        let handed = state.handed;
        drop(state);
        lines.tell(wrote);
        state = self::state();
        state.written = handed;
        CHANGED.notify_all();
    }
}

/// Waits until the lines are written that were handed over before. `false` if they are not, and the
/// callback does not return: it takes longer than [`TOLD`] for one line, and may wait for the caller. Then
/// nobody waits before it has returned. Later lines of other threads are not waited for.
pub fn await_told() -> bool {
    if is_teller() {
        return false;
    }
    let is_idle = || {
        let busy = BUSY.load(Ordering::Acquire);
        busy == 0 || busy != process_number()
    };
    if is_idle() {
        return true;
    }
    let mut state = state();
    let handed = state.handed;
    loop {
        if state.has_told(handed) || !state.has_thread {
            return state.has_told(handed);
        }
        let now = Instant::now();
        let end = state.moved.map_or(now, |moved| moved + TOLD);
        if now >= end {
            return false;
        }
        state = wait(state, end - now);
    }
}

/// As [`await_told`], when the process exits. A signal handler may have called `exit` here, or the callback
/// itself.
pub fn await_told_at_exit(end: Instant) {
    if is_teller() {
        return;
    }
    loop {
        match STATE.try_lock() {
            Ok(state) => return wait_until(State::own(state), end),
            Err(TryLockError::Poisoned(_)) => return,
            Err(TryLockError::WouldBlock) if Instant::now() >= end => return,
            Err(TryLockError::WouldBlock) => sync::sleep(LOOK),
        }
    }
}

fn wait_until(mut state: MutexGuard<'static, State>, end: Instant) {
    loop {
        let now = Instant::now();
        if !state.has_thread || now >= end {
            return;
        }
        state = wait(state, end - now);
    }
}

fn wait(state: MutexGuard<'static, State>, most: Duration) -> MutexGuard<'static, State> {
    let woken = CHANGED.wait_timeout(state, most);
    woken.unwrap_or_else(PoisonError::into_inner).0
}

/// Whether this is the thread, which has called the application.
fn is_teller() -> bool {
    IS_TELLER.try_with(Cell::get).unwrap_or(false)
}

std::thread_local! {
    static IS_TELLER: Cell<bool> = const { Cell::new(false) };
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
