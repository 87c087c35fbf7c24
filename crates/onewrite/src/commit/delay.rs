//! How long the leader of a group waits for others to join its flush.
//!
//! A commit that arrives during a flush waits for the rest of it, and then for the next flush. So
//! the writers split into two halves that flush in turns, and each commit waits for two flushes. If
//! a flush takes long compared with the rest of a commit, a short wait of the leader helps
//! everyone. The commits that the last flush has released are likely to come again. Then all of
//! them share every flush, and wait for one. [`crate::log::arrivals`] counts them, in all
//! processes.
//!
//! It is a bet. The stake is half of the usual time of a flush, and a leader that loses bets less
//! often. It affects only time.

use std::time::Duration;

/// After this many lost bets in a row they do not become rarer.
const RAREST: u32 = 6;
/// A new flush is one part in this many of the usual time.
const WEIGHT: u32 = 8;
/// The model's flushes take no time, and it must still try waits.
const SHORTEST_FLUSH: Duration = match cfg!(shuttle) {
    true => Duration::from_millis(1),
    false => Duration::ZERO,
};

/// The bets of a process.
#[derive(Default)]
pub(super) struct CommitDelay {
    /// The usual time of a flush.
    usual: Duration,
    /// Lost bets in a row.
    lost: u32,
    /// How many flushes begin at once before the next bet.
    sits_out: u32,
}

impl CommitDelay {
    /// How long a leader may wait for missing commits.
    pub(super) fn patience(&mut self) -> Duration {
        if self.sits_out > 0 {
            self.sits_out -= 1;
            return Duration::ZERO;
        }
        self.usual.max(SHORTEST_FLUSH) / 2
    }

    /// A leader has waited, and all missing commits came, or not.
    pub(super) fn waited(&mut self, all_came: bool) {
        if all_came {
            self.lost = 0;
        } else {
            self.lost = RAREST.min(self.lost + 1);
            self.sits_out = (1 << self.lost) - 1;
        }
    }

    /// Notes the time of a flush.
    pub(super) fn flushed(&mut self, took: Duration) {
        self.usual = (self.usual * (WEIGHT - 1) + took) / WEIGHT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLUSH: Duration = Duration::from_millis(2);

    #[test]
    fn the_stake_is_half_of_what_a_flush_usually_takes() {
        let mut delay = CommitDelay::default();
        assert_eq!(delay.patience(), SHORTEST_FLUSH / 2);
        for _ in 0..100 {
            delay.flushed(FLUSH);
        }
        let (least, most) = (FLUSH * 9 / 20, FLUSH / 2);
        assert!((least..=most).contains(&delay.patience()));
    }

    #[test]
    fn lost_bets_make_bets_rarer() {
        let mut delay = CommitDelay::default();
        delay.flushed(FLUSH);
        let mut bets = Vec::new();
        for round in 0..256 {
            if !delay.patience().is_zero() {
                delay.waited(false);
                bets.push(round);
            }
        }
        assert_eq!(bets, [0, 2, 6, 14, 30, 62, 126, 190, 254]);
        // After one that is won, they are as before.
        delay.sits_out = 0;
        delay.waited(true);
        assert!(!delay.patience().is_zero());
        assert!(!delay.patience().is_zero());
    }
}
