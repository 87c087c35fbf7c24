//! What threads share: mutexes, condition variables, atomics, threads, and the clock.
//!
//! They are std's. Under `--cfg shuttle` they are those of the model checker shuttle, which runs the
//! threads of a test one at a time, in thousands of orders one after the other (`tests/model`;
//! docs/testing.md says how to run it).

#[cfg(shuttle)]
mod model;

#[cfg(shuttle)]
pub(crate) use model::{Condvar, forget_finished, wait_for_lock};
#[cfg(shuttle)]
pub use model::{Instant, reset_clock};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, RwLock, RwLockWriteGuard, atomic};
#[cfg(shuttle)]
pub(crate) use shuttle::thread::{Builder, JoinHandle};

#[cfg(not(shuttle))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockWriteGuard, atomic};
#[cfg(not(shuttle))]
pub(crate) use std::thread::{Builder, JoinHandle};
#[cfg(not(shuttle))]
pub(crate) use std::time::Instant;

/// Drops the handles of threads that have ended.
#[cfg(not(shuttle))]
pub(crate) fn forget_finished(threads: &mut Vec<JoinHandle<()>>) {
    threads.retain(|thread| !thread.is_finished());
}
