//! How long the leader of a group waits for others to join its flush.
//!
//! Whoever commits while a flush is under way waits for the rest of it, and then for one of its own: so
//! the writers fall into two halves that flush in turns, and each commit waits for two flushes. Where a
//! flush takes long beside what else a commit does, all are better off if the leader waits a moment for
//! those whom the last flush has let go, for they are likely to come again: then everybody shares every
//! flush, and waits for one. Who they are, in all processes, [`crate::log::arrivals`] counts.
//!
//! It is a bet. The stake is half of what a flush usually takes, and who loses bets less often. Nothing
//! depends on any of it but time.

use std::time::Duration;

/// After so many bets in vain in a row they do not get rarer.
const RAREST: u32 = 6;
/// A flush weighs this part in what a flush usually takes.
const WEIGHT: u32 = 8;
/// The model's flushes take no time, and it is to try waits all the same.
const SHORTEST_FLUSH: Duration = match cfg!(shuttle) {
    true => Duration::from_millis(1),
    false => Duration::ZERO,
};

/// The bets of a process.
#[derive(Default)]
pub(super) struct Gathering {
    /// What a flush usually takes.
    usual: Duration,
    /// Bets in vain, in a row.
    in_vain: u32,
    /// So many flushes begin at once before the next bet.
    sits_out: u32,
}

impl Gathering {
    /// How long a leader may wait for those who are missing.
    pub(super) fn patience(&mut self) -> Duration {
        if self.sits_out > 0 {
            self.sits_out -= 1;
            return Duration::ZERO;
        }
        self.usual.max(SHORTEST_FLUSH) / 2
    }

    /// A leader has waited, and all came who were missing, or not.
    pub(super) fn waited(&mut self, all_came: bool) {
        if all_came {
            self.in_vain = 0;
        } else {
            self.in_vain = RAREST.min(self.in_vain + 1);
            self.sits_out = (1 << self.in_vain) - 1;
        }
    }

    /// A flush took so long.
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
        let mut gathering = Gathering::default();
        assert_eq!(gathering.patience(), SHORTEST_FLUSH / 2);
        for _ in 0..100 {
            gathering.flushed(FLUSH);
        }
        let (least, most) = (FLUSH * 9 / 20, FLUSH / 2);
        assert!((least..=most).contains(&gathering.patience()));
    }

    #[test]
    fn bets_in_vain_get_rarer() {
        let mut gathering = Gathering::default();
        gathering.flushed(FLUSH);
        let mut bets = Vec::new();
        for round in 0..256 {
            if !gathering.patience().is_zero() {
                gathering.waited(false);
                bets.push(round);
            }
        }
        assert_eq!(bets, [0, 2, 6, 14, 30, 62, 126, 190, 254]);
        // One that is won, and they are as before.
        gathering.sits_out = 0;
        gathering.waited(true);
        assert!(!gathering.patience().is_zero());
        assert!(!gathering.patience().is_zero());
    }
}
