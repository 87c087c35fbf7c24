//! How much processor time goes into saving blocks.
//!
//! With `auto` compression and the goal `balanced`, a thread may spend at most a twentieth of its other
//! processor time: that of SQLite, of the application, and of writing the log. It earns that as it
//! goes. Both times are measured, so the share holds on any processor and
//! with any transactions.

use std::cell::Cell;

use crate::mode::{Compressing, Compression, Goal};

/// The share that may be spent: one part in this many. It is a third of the 15 percent that the mode
/// may take in all over stock WAL. Differences and LZ4 take most of the rest.
const SHARE: u64 = 20;
/// The most that a thread can have saved up, in nanoseconds. It is some tries: a thread that has
/// computed for an hour does not slow down its next hundred commits for it.
const MOST_SAVED: i64 = 1_000_000;

/// The time that this thread has earned and not spent.
#[derive(Clone, Copy, Default)]
struct Account {
    nanos: i64,
    /// The thread's processor time when it last earned.
    counted_to: u64,
}

thread_local! {
    static ACCOUNT: Cell<Account> = const { Cell::new(Account { nanos: 0, counted_to: 0 }) };
}

/// Tries to save a block, if this commit may.
pub fn within_budget(how: Compressing, try_to_save: impl FnOnce()) {
    match (how.with, how.goal) {
        (Compression::None, _) | (Compression::Auto, Goal::Speed) => {}
        (Compression::Auto, Goal::Bytes) | (Compression::Lz4 | Compression::Zstd, _) => {
            try_to_save()
        }
        (Compression::Auto, Goal::Balanced) => {
            let begun = thread_nanos();
            let mut account = ACCOUNT.get().at(begun);
            if account.nanos > 0 {
                try_to_save();
                account = account.without(thread_nanos() - begun);
            }
            ACCOUNT.set(account);
        }
    }
}

impl Account {
    fn at(self, now: u64) -> Account {
        let earned = now.saturating_sub(self.counted_to) / SHARE;
        Account {
            nanos: self.nanos.saturating_add(earned as i64).min(MOST_SAVED),
            counted_to: now,
        }
    }

    /// The time that was spent earns nothing.
    fn without(self, nanos: u64) -> Account {
        Account {
            nanos: self.nanos.saturating_sub(nanos as i64),
            counted_to: self.counted_to + nanos,
        }
    }
}

/// The processor time of this thread, in nanoseconds.
fn thread_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twentieth_of_the_other_time_is_spent() {
        let (mut now, mut spent) = (0, 0);
        let mut account = Account::default();
        for step in 0..1000 {
            now += 100_000 + step;
            account = account.at(now);
            if account.nanos > 0 {
                account = account.without(70_000);
                now += 70_000;
                spent += 70_000;
            }
        }
        let others = now - spent;
        assert!(spent <= others / SHARE + 70_000 && spent >= others / SHARE - 70_000);
    }

    #[test]
    fn little_is_saved_up() {
        let account = Account::default().at(u64::MAX / 2);
        assert_eq!(account.nanos, MOST_SAVED);
        assert_eq!(account.at(u64::MAX / 2 + 80).nanos, MOST_SAVED);
    }
}
