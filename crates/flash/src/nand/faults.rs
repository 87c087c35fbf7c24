//! Faults of NAND on demand: the power goes, a program fails, an erase fails.

use crate::random::Random;

/// The faults, and when they happen.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Operations (reads, programs, erases) until the power goes in the middle of one; `None` is never.
    pub power_off_after: Option<u64>,
    /// One in this many programs fails, and one in this many erases; 0 is none.
    pub fail_one_in: u64,
    /// Decides which operations fail, and the effect of a power cut.
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

/// The effect of an interrupted operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// The complete effect.
    Done,
    /// Cells in between: nothing can be read.
    Torn,
    /// No visible effect. Even so, the cells have changed.
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

    /// The effect of an operation that was in progress when the power went.
    pub(crate) fn interrupted(&mut self) -> Interrupted {
        match self.random.below(3) {
            0 => Interrupted::Done,
            1 => Interrupted::Torn,
            _ => Interrupted::Unseen,
        }
    }
}
