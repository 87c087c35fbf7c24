//! A lock that its holder does not release: the process may have been stopped. A connection that
//! has waited for it without success does not wait for the same holder again.

use crate::sync::atomic::{AtomicU64, Ordering};

/// The state of a lock whose releases are counted.
#[derive(Default)]
pub(super) struct Stuck(AtomicU64);

impl Stuck {
    /// Notes the count, which has not changed during a wait.
    pub(super) fn note(&self, count: u32) {
        self.0.store(1 << 32 | u64::from(count), Ordering::Relaxed);
    }

    /// Whether the count is still the same.
    pub(super) fn is(&self, count: u32) -> bool {
        self.0.load(Ordering::Relaxed) == 1 << 32 | u64::from(count)
    }
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_stuck_until_it_is_let_go() {
        let stuck = Stuck::default();
        assert!(!stuck.is(0));
        stuck.note(0);
        assert!(stuck.is(0) && !stuck.is(1));
        stuck.note(u32::MAX);
        assert!(stuck.is(u32::MAX) && !stuck.is(0));
    }
}
