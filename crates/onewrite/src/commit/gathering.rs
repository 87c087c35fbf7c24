//! How long the leader of a group waits for others to join its flush.
//!
//! Whoever commits while a flush is under way waits for the rest of it, and then for one of its own: so
//! the writers fall into two halves that flush in turns, and each commit waits for two flushes. Where a
//! flush takes long beside what else a commit does, all are better off if the leader waits a moment for
//! those whom the last flush has let go, for they are likely to come again: then everybody shares every
//! flush, and waits for one.
//!
//! It is a bet. The stake is half of what a flush usually takes, and who loses bets less often. Commits
//! of other processes are not waited for. Nothing depends on any of it but time.

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

/// See the module. Counts are of commits since the log was opened.
#[derive(Default)]
pub(super) struct Gathering {
    /// Commits that came to be flushed.
    arrived: u64,
    /// Those of them that were there when the last flush began.
    found: u64,
    /// So many may come before the next flush: those that wait for it, and those that the last one let go.
    expected: u64,
    /// What a flush usually takes.
    usual: Duration,
    /// Bets in vain, in a row.
    in_vain: u32,
    /// So many flushes begin at once before the next bet.
    sits_out: u32,
    /// Somebody waits who is not about to commit.
    is_urgent: bool,
}

/// A flush that has begun.
pub(super) struct Begun {
    /// Commits that the flush before it had found.
    found_before: u64,
}

impl Gathering {
    /// A commit came to be flushed.
    pub(super) fn arrive(&mut self) {
        self.arrived += 1;
    }

    /// Somebody waits for the next flush who is not about to commit: nobody is to be waited for.
    pub(super) fn hurry(&mut self) {
        self.is_urgent = true;
    }

    /// Commits that wait for the next flush.
    fn present(&self) -> u64 {
        self.arrived - self.found
    }

    /// Whether there is nobody to wait for, or somebody to hurry for.
    pub(super) fn is_complete(&self) -> bool {
        self.is_urgent || self.present() >= self.expected
    }

    /// How long a leader may wait for those who are missing.
    pub(super) fn patience(&mut self) -> Duration {
        if self.is_complete() {
            return Duration::ZERO;
        }
        if self.sits_out > 0 {
            self.sits_out -= 1;
            return Duration::ZERO;
        }
        self.usual.max(SHORTEST_FLUSH) / 2
    }

    /// A leader has waited.
    pub(super) fn waited(&mut self) {
        if self.is_complete() {
            self.in_vain = 0;
        } else {
            self.in_vain = RAREST.min(self.in_vain + 1);
            self.sits_out = (1 << self.in_vain) - 1;
        }
    }

    /// A flush begins.
    pub(super) fn begin(&mut self) -> Begun {
        self.is_urgent = false;
        Begun {
            found_before: std::mem::replace(&mut self.found, self.arrived),
        }
    }

    /// It has ended, and took so long.
    pub(super) fn end(&mut self, begun: &Begun, took: Duration) {
        self.expected = self.arrived - begun.found_before;
        self.usual = (self.usual * (WEIGHT - 1) + took) / WEIGHT;
    }

    /// It was not made: another process is at it, or it has failed.
    pub(super) fn give_up(&mut self, begun: &Begun) {
        self.found = begun.found_before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLUSH: Duration = Duration::from_millis(2);

    /// A flush during which so many commits arrive.
    fn flush(gathering: &mut Gathering, arrive: u64) {
        let begun = gathering.begin();
        (0..arrive).for_each(|_| gathering.arrive());
        gathering.end(&begun, FLUSH);
    }

    /// Two halves of four that flush in turns.
    fn halves() -> Gathering {
        let mut gathering = Gathering {
            usual: FLUSH,
            ..Gathering::default()
        };
        (0..4).for_each(|_| gathering.arrive());
        flush(&mut gathering, 4);
        gathering
    }

    #[test]
    fn those_are_waited_for_whom_the_last_flush_let_go() {
        let mut gathering = halves();
        assert_eq!((gathering.present(), gathering.expected), (4, 8));
        assert_eq!(gathering.patience(), FLUSH / 2);
        (0..4).for_each(|_| gathering.arrive());
        assert!(gathering.is_complete());
        gathering.waited();
        flush(&mut gathering, 0);
        assert_eq!((gathering.present(), gathering.expected), (0, 8));
        // One of the eight comes no more.
        (0..7).for_each(|_| gathering.arrive());
        assert!(!gathering.is_complete());
        flush(&mut gathering, 0);
        assert_eq!(gathering.expected, 7);
    }

    #[test]
    fn who_is_alone_waits_for_nobody() {
        let mut gathering = Gathering::default();
        for _ in 0..3 {
            gathering.arrive();
            assert!(gathering.patience().is_zero());
            flush(&mut gathering, 0);
        }
    }

    #[test]
    fn who_found_another_process_at_it_waits_for_the_flush_still() {
        let mut gathering = halves();
        let begun = gathering.begin();
        gathering.give_up(&begun);
        assert_eq!((gathering.present(), gathering.expected), (4, 8));
    }

    #[test]
    fn nobody_waits_while_a_reader_does() {
        let mut gathering = halves();
        gathering.hurry();
        assert!(gathering.patience().is_zero());
        flush(&mut gathering, 4);
        assert!(!gathering.patience().is_zero());
    }

    #[test]
    fn bets_in_vain_get_rarer() {
        let mut gathering = halves();
        let mut bets = Vec::new();
        for round in 0..256 {
            if !gathering.patience().is_zero() {
                gathering.waited();
                bets.push(round);
            }
            flush(&mut gathering, 4);
        }
        assert_eq!(bets, [0, 2, 6, 14, 30, 62, 126, 190, 254]);
        // One that is won, and they are as before.
        gathering.sits_out = 0;
        (0..4).for_each(|_| gathering.arrive());
        gathering.waited();
        flush(&mut gathering, 4);
        assert!(!gathering.patience().is_zero());
    }
}
