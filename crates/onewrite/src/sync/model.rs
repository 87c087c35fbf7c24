//! Time in the model checker, which has none: a clock that only waiting advances, and waits that
//! end.
//!
//! A wait ends when it is notified, or when its time is up. Its time is up only when no other wait
//! would end before it, and no background thread runs or is about to. So a thread that is never
//! woken sleeps through all of its time. The clock then shows that it woke too late.

use shuttle::rand::Rng;
use shuttle::sync::{Arc, MutexGuard};
use shuttle::thread::{self, JoinHandle, ThreadId};
use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::{Add, Sub};
use std::sync::{LockResult, PoisonError, TryLockError};
use std::time::Duration;

/// The clock, and its pending waits. All threads of a model run on one thread.
#[derive(Default)]
struct Clock {
    now: Duration,
    waits: Vec<Wait>,
    next: u64,
    background: HashSet<ThreadId>,
    /// Background threads that do not wait here.
    busy: usize,
}

struct Wait {
    id: u64,
    until: Duration,
    is_background: bool,
}

std::thread_local! {
    static CLOCK: RefCell<Clock> = RefCell::default();
}

impl Clock {
    fn begin(&mut self, time: Duration) -> u64 {
        let until = self.now + time;
        self.next += 1;
        let is_background = self.background.contains(&thread::current().id());
        self.busy -= usize::from(is_background);
        self.waits.push(Wait {
            id: self.next,
            until,
            is_background,
        });
        self.next
    }

    /// `Some(true)`: the time of this wait is up, and the clock has advanced to it. `None`: not
    /// yet.
    fn look(&mut self, id: u64) -> Option<bool> {
        let Some(wait) = self.waits.iter().find(|wait| wait.id == id) else {
            return Some(false);
        };
        let until = wait.until;
        if self.busy > 0 || self.waits.iter().any(|wait| wait.until < until) {
            return None;
        }
        self.now = self.now.max(until);
        self.end(id);
        Some(true)
    }

    fn end(&mut self, id: u64) {
        let Some(at) = self.waits.iter().position(|wait| wait.id == id) else {
            return;
        };
        self.busy += usize::from(self.waits.remove(at).is_background);
    }
}

/// Marks the work of a background thread. On a real machine such a thread is late by much less than
/// the longest waits last. So the clock stands still from now on, except while the thread waits.
pub(crate) fn background(work: impl FnOnce() + Send + 'static) -> impl FnOnce() + Send + 'static {
    CLOCK.with_borrow_mut(|clock| clock.busy += 1);
    move || {
        let this = thread::current().id();
        CLOCK.with_borrow_mut(|clock| clock.background.insert(this));
        work();
        CLOCK.with_borrow_mut(|clock| {
            clock.background.remove(&this);
            clock.busy -= 1;
        });
    }
}

/// Forgets the waits of another run.
#[doc(hidden)]
pub fn reset_clock() {
    CLOCK.take();
}

/// A time of the clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    /// The present time.
    pub fn now() -> Instant {
        Instant(CLOCK.with_borrow(|clock| clock.now))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, time: Duration) -> Instant {
        Instant(self.0 + time)
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Whether the time of a wait was up.
pub(crate) struct TimedOut(bool);

impl TimedOut {
    pub(crate) fn timed_out(&self) -> bool {
        self.0
    }
}

/// Shuttle's condition variable, with waits that end.
#[derive(Default)]
pub(crate) struct Condvar {
    changed: Arc<shuttle::sync::Condvar>,
    waiting: Arc<shuttle::sync::Mutex<Vec<u64>>>,
}

impl Condvar {
    pub(crate) fn notify_one(&self) {
        // A woken thread sleeps no longer, however long it takes to be scheduled.
        for id in self.waiting.lock().expect("no panic").drain(..) {
            CLOCK.with_borrow_mut(|clock| clock.end(id));
        }
        self.changed.notify_all();
    }

    pub(crate) fn notify_all(&self) {
        // As above: it wakes all.
        self.notify_one();
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.changed.wait(guard)
    }

    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, TimedOut)> {
        let id = CLOCK.with_borrow_mut(|clock| clock.begin(time));
        self.waiting.lock().expect("no panic").push(id);
        let changed = Arc::clone(&self.changed);
        let up = Arc::new(std::sync::OnceLock::new());
        let awake = Arc::new(std::sync::OnceLock::new());
        let (up_there, awake_there) = (Arc::clone(&up), Arc::clone(&awake));
        thread::spawn(move || {
            let timed_out = loop {
                thread::yield_now();
                if let Some(timed_out) = CLOCK.with_borrow_mut(|clock| clock.look(id)) {
                    break timed_out;
                }
            };
            if timed_out {
                let _ = up_there.set(());
            }
            // Repeats even after a notification, because that may have come just before the sleep.
            while awake_there.get().is_none() {
                changed.notify_all();
                thread::yield_now();
            }
        });
        let guard = self
            .changed
            .wait(guard)
            .unwrap_or_else(PoisonError::into_inner);
        let _ = awake.set(());
        CLOCK.with_borrow_mut(|clock| clock.end(id));
        Ok((guard, TimedOut(up.get().is_some())))
    }
}

/// The model cannot tell which threads have ended: they are joined at the end.
pub(crate) fn forget_finished(_threads: &mut Vec<JoinHandle<()>>) {}

/// Locks data that outlives every connection, and so every run of the model, by trying repeatedly.
pub(crate) fn lock_static<T>(
    mutex: &'static std::sync::Mutex<T>,
) -> std::sync::MutexGuard<'static, T> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(guard)) => return guard.into_inner(),
            Err(TryLockError::WouldBlock) => thread::yield_now(),
        }
    }
}

/// Lets other threads run.
pub(crate) fn step() {
    thread::yield_now();
}

/// Lets other threads run, sometimes long enough to complete an operation. Use it only without a
/// lock. A thread that waits for one inside SQLite sleeps, and in the model no thread runs
/// meanwhile.
pub(crate) fn long_step() {
    let mut random = shuttle::rand::thread_rng();
    let is_long = random.gen_range(0..6) == 0;
    for _ in 0..if is_long {
        1 << random.gen_range(6..12)
    } else {
        1
    } {
        thread::yield_now();
    }
}

/// Waits for something that takes other threads some time.
pub(crate) fn sleep(_time: Duration) {
    thread::yield_now();
}

/// Lets other threads run, once.
pub(crate) fn spin_until(_most: Duration, _is_so: impl Fn() -> bool) {
    thread::yield_now();
}
