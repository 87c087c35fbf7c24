//! Whether a waiter looks for the end of a turn before it sleeps.
//!
//! A look costs processor time, at most `TURN_SPIN`. It saves putting a thread to sleep and waking it,
//! if the turn ends meanwhile. The turns of larger transactions are longer than any look. Then only
//! one waiter in a while looks, to see whether turns have become shorter.

use crate::sync::atomic::{AtomicI32, Ordering};

/// Failed looks after which looking is given up.
const MOST_CREDIT: i32 = 16;
/// How many failed looks a successful one is worth.
const SUCCESS: i32 = 2;
/// Once it is given up, one waiter of so many looks.
const RARELY: i32 = 16;

/// The success of the last looks. Threads change it without a lock, so it may miss some: it only
/// decides how to wait.
pub struct Looks {
    /// Above zero: more looks are worth it. Below: waiters since the last look.
    credit: AtomicI32,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            credit: AtomicI32::new(MOST_CREDIT),
        }
    }
}

impl Looks {
    /// Whether the next waiter is to look.
    pub fn are_worth_it(&self) -> bool {
        let credit = self.credit.load(Ordering::Relaxed);
        if credit <= -RARELY {
            self.credit.store(0, Ordering::Relaxed);
        } else if credit <= 0 {
            self.credit.store(credit - 1, Ordering::Relaxed);
        }
        credit > 0 || credit <= -RARELY
    }

    /// Notes whether a turn has ended while a waiter looked.
    pub fn note(&self, has_ended: bool) {
        let credit = self.credit.load(Ordering::Relaxed);
        let next = match has_ended {
            true => (credit.max(0) + SUCCESS).min(MOST_CREDIT),
            false => credit - i32::from(credit > 0),
        };
        self.credit.store(next, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;

    fn looks_of(looks: &Looks, waiters: i32, have_success: bool) -> i32 {
        (0..waiters)
            .filter(|_| {
                let worth = looks.are_worth_it();
                if worth {
                    looks.note(have_success);
                }
                worth
            })
            .count() as i32
    }

    #[test]
    fn looking_is_given_up_where_turns_are_long_and_taken_up_again() {
        let looks = Looks::default();
        assert_eq!(looks_of(&looks, 1000, true), 1000);
        assert_eq!(looks_of(&looks, MOST_CREDIT, false), MOST_CREDIT);
        let waiters = 100 * (RARELY + 1);
        assert_eq!(looks_of(&looks, waiters, false), 100);
        // Turns are short again: the first look finds that out.
        let before = (0..waiters).position(|_| looks.are_worth_it());
        assert_eq!(before, Some(RARELY as usize));
        looks.note(true);
        assert_eq!(looks_of(&looks, 1000, true), 1000);
    }

    #[test]
    fn looks_of_which_one_in_three_has_success_go_on() {
        let looks = Looks::default();
        for waiter in 0..3000 {
            assert!(looks.are_worth_it(), "waiter {waiter}");
            looks.note(waiter % 3 == 0);
        }
    }
}
