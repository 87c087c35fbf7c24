//! What goes wrong with NAND, on demand: the power goes, a page does not take its data, a block does not
//! erase.

use crate::random::Random;

/// What is to go wrong, and when.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Operations (reads, programs, erases) until the power goes in the middle of one; `None` is never.
    pub power_off_after: Option<u64>,
    /// One in so many programs fails, and one in so many erases; 0 is none.
    pub fail_one_in: u64,
    /// Decides what fails, and what a power cut leaves.
    pub random: Random,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            power_off_after: None,
            fail_one_in: 0,
            random: Random::new(0),
        }
    }
}

/// What an interrupted operation left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// All that it was to do.
    Done,
    /// Cells in between: nothing can be read.
    Torn,
    /// Nothing that can be seen. The cells are not what they were, all the same.
    Unseen,
}

impl Faults {
    /// Whether the power goes in the operation that begins now.
    pub(crate) fn power_goes(&mut self) -> bool {
        match &mut self.power_off_after {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    /// Whether the program or erase that begins now fails.
    pub(crate) fn fails(&mut self) -> bool {
        self.fail_one_in != 0 && self.random.next().is_multiple_of(self.fail_one_in)
    }

    /// What an operation left that was going on when the power went.
    pub(crate) fn interrupted(&mut self) -> Interrupted {
        match self.random.below(3) {
            0 => Interrupted::Done,
            1 => Interrupted::Torn,
            _ => Interrupted::Unseen,
        }
    }
}
