//! Primitives that threads share: mutexes, condition variables, atomics, threads, and the clock.
//!
//! They are std's. Under `--cfg shuttle` they are the model checker shuttle's. It runs the threads
//! of a test one at a time, in thousands of orders one after the other (`crates/models/tests/model`).
//! Under `--cfg loom` atomics and futexes are loom's, which models weak memory
//! (`crates/models/tests/orders.rs`).
//! docs/testing.md says how to run both.

#[cfg(shuttle)]
mod model;
#[cfg(loom)]
mod weak;

#[cfg(loom)]
pub use std::time::Instant;
#[cfg(loom)]
pub use weak::{LeftOut, fence, leave_out};
#[cfg(loom)]
pub(crate) use weak::{atomic, futex_wait, futex_wake};

#[cfg(shuttle)]
pub(crate) use model::{Condvar, background, forget_finished};
#[cfg(shuttle)]
pub use model::{Instant, reset_clock};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic, atomic::fence,
};
#[cfg(shuttle)]
pub(crate) use shuttle::thread::{Builder, JoinHandle, ThreadId};

#[cfg(not(shuttle))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(any(shuttle, loom)))]
pub(crate) use std::sync::{atomic, atomic::fence};
#[cfg(not(shuttle))]
pub(crate) use std::thread::{Builder, JoinHandle, ThreadId};
#[cfg(not(any(shuttle, loom)))]
pub(crate) use std::time::Instant;

#[cfg(shuttle)]
pub(crate) use model::{lock_static, long_step, sleep, spin_until, step};
#[cfg(shuttle)]
pub(crate) use shuttle::thread_local;

#[cfg(not(any(shuttle, loom)))]
pub(crate) use std::thread::sleep;
#[cfg(not(shuttle))]
pub(crate) use std::thread_local;
#[cfg(loom)]
pub(crate) use weak::sleep;

/// Locks data that outlives every connection.
#[cfg(not(shuttle))]
pub(crate) fn lock_static<T>(
    mutex: &'static std::sync::Mutex<T>,
) -> std::sync::MutexGuard<'static, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The current thread.
pub(crate) fn this_thread() -> ThreadId {
    #[cfg(shuttle)]
    return shuttle::thread::current().id();
    #[cfg(not(shuttle))]
    return std::thread::current().id();
}

/// Works with a thread's data. If the thread is ending and has lost them, it uses a new one: a
/// destructor may close a connection that late.
pub(crate) fn with_kept<K: Default + 'static, T>(
    kept: &'static std::thread::LocalKey<std::cell::RefCell<K>>,
    work: impl FnOnce(&mut K) -> T,
) -> T {
    match kept.try_with(|_| ()) {
        Ok(()) => kept.with_borrow_mut(work),
        Err(_) => work(&mut K::default()),
    }
}

/// Checks a condition repeatedly, for at most this long, without sleeping. With a single processor
/// nothing would change meanwhile.
#[cfg(not(shuttle))]
pub(crate) fn spin_until(most: std::time::Duration, is_so: impl Fn() -> bool) {
    static IS_ALONE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    // It fails on machines with more than 1,024 processors.
    let has_one = || rustix::thread::sched_getaffinity(None).is_ok_and(|set| set.count() == 1);
    if *IS_ALONE.get_or_init(has_one) {
        return;
    }
    let end = Instant::now() + most;
    while !is_so() && Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// Tells the model checker that other threads may run here.
#[cfg(not(shuttle))]
#[inline]
pub(crate) fn step() {}

/// Tells the model checker that other threads may run for long here.
#[cfg(not(shuttle))]
#[inline]
pub(crate) fn long_step() {}

/// Marks the work of a background thread, for the model checker's clock.
#[cfg(not(shuttle))]
pub(crate) fn background<W: FnOnce() + Send + 'static>(work: W) -> W {
    work
}

/// Drops the handles of threads that have ended.
#[cfg(not(shuttle))]
pub(crate) fn forget_finished(threads: &mut Vec<JoinHandle<()>>) {
    threads.retain(|thread| !thread.is_finished());
}

/// Waits until the word differs from `seen` and a wake-up comes, or some time has passed. Works
/// between processes.
#[cfg(not(any(shuttle, loom)))]
pub(crate) fn futex_wait(word: &atomic::AtomicU32, seen: u32, most: std::time::Duration) {
    use rustix::thread::futex;
    let most = futex::Timespec {
        tv_sec: most.as_secs() as i64,
        tv_nsec: most.subsec_nanos().into(),
    };
    // In any case the caller looks itself.
    let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&most));
}

/// Wakes some of the waiters on the word.
#[cfg(not(any(shuttle, loom)))]
pub(crate) fn futex_wake(word: &atomic::AtomicU32, most: u32) {
    use rustix::thread::futex;
    let most = most.min(i32::MAX as u32);
    let _ = futex::wake(word, futex::Flags::empty(), most);
}

/// Other processes are not part of the model.
#[cfg(shuttle)]
pub(crate) fn futex_wait(_: &atomic::AtomicU32, _: u32, most: std::time::Duration) {
    sleep(most);
}

/// See [`futex_wait`].
#[cfg(shuttle)]
pub(crate) fn futex_wake(_: &atomic::AtomicU32, _: u32) {}
