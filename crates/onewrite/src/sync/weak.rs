//! Atomics under the model checker loom: a load may see all that the memory model allows, not only
//! the last store. `crates/models/tests/orders.rs` uses them; docs/testing.md says how to run it.
//!
//! Order can be left out, so that a test shows that the model notices.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The part of the engine's order that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeftOut {
    /// Nothing.
    Nothing,
    /// Fences do nothing.
    Fences,
    /// Every load, store and exchange is relaxed.
    Orders,
}

std::thread_local! {
    // All threads of a model run on one thread.
    static LEFT_OUT: Cell<LeftOut> = const { Cell::new(LeftOut::Nothing) };
}

/// From now on leaves this out, in the models of this thread.
pub fn leave_out(what: LeftOut) {
    LEFT_OUT.set(what);
}

fn weakened(order: Ordering) -> Ordering {
    match LEFT_OUT.get() {
        LeftOut::Orders => Ordering::Relaxed,
        LeftOut::Nothing | LeftOut::Fences => order,
    }
}

/// See [`std::sync::atomic::fence`].
pub fn fence(order: Ordering) {
    if LEFT_OUT.get() != LeftOut::Fences {
        loom::sync::atomic::fence(order);
    }
}

/// The engine's substitute for `std::sync::atomic`.
pub mod atomic {
    use super::weakened;
    pub use loom::sync::atomic::{AtomicBool, AtomicUsize};
    pub use std::sync::atomic::Ordering;

    macro_rules! atomic {
        ($name:ident $integer:ty) => {
            /// See the module.
            #[derive(Default, Debug)]
            pub struct $name(loom::sync::atomic::$name);

            #[allow(dead_code, missing_docs, reason = "as std's")]
            impl $name {
                pub fn new(value: $integer) -> Self {
                    Self(loom::sync::atomic::$name::new(value))
                }
                pub fn load(&self, order: Ordering) -> $integer {
                    self.0.load(weakened(order))
                }
                pub fn store(&self, value: $integer, order: Ordering) {
                    self.0.store(value, weakened(order));
                }
                pub fn swap(&self, value: $integer, order: Ordering) -> $integer {
                    self.0.swap(value, weakened(order))
                }
                pub fn fetch_add(&self, value: $integer, order: Ordering) -> $integer {
                    self.0.fetch_add(value, weakened(order))
                }
                pub fn fetch_max(&self, value: $integer, order: Ordering) -> $integer {
                    self.0.fetch_max(value, weakened(order))
                }
                pub fn compare_exchange(
                    &self,
                    present: $integer,
                    new: $integer,
                    done: Ordering,
                    refused: Ordering,
                ) -> Result<$integer, $integer> {
                    let (done, refused) = (weakened(done), weakened(refused));
                    self.0.compare_exchange(present, new, done, refused)
                }
                pub fn fetch_update(
                    &self,
                    done: Ordering,
                    refused: Ordering,
                    new: impl FnMut($integer) -> Option<$integer>,
                ) -> Result<$integer, $integer> {
                    self.0.fetch_update(weakened(done), weakened(refused), new)
                }
            }
        };
    }
    atomic!(AtomicI32 i32);
    atomic!(AtomicU32 u32);
    atomic!(AtomicU64 u64);
}

loom::lazy_static! {
    static ref SLEEPERS: (loom::sync::Mutex<()>, loom::sync::Condvar) =
        (loom::sync::Mutex::new(()), loom::sync::Condvar::new());
}

/// Waits for something that another thread does.
pub(crate) fn sleep(_time: Duration) {
    loom::thread::yield_now();
}

/// A futex without a timeout: a thread that is not woken sleeps forever, and the model reports it.
pub(crate) fn futex_wait(word: &atomic::AtomicU32, seen: u32, _most: Duration) {
    let lock = SLEEPERS.0.lock().expect("no panic");
    // Like the kernel, between registering the sleeper and reading the word.
    loom::sync::atomic::fence(Ordering::SeqCst);
    if word.load(Ordering::Relaxed) == seen {
        drop(SLEEPERS.1.wait(lock).expect("no panic"));
    }
}

/// See [`futex_wait`].
pub(crate) fn futex_wake(_: &atomic::AtomicU32, _: u32) {
    drop(SLEEPERS.0.lock().expect("no panic"));
    SLEEPERS.1.notify_all();
}
