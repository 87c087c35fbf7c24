//! Seeded random choices: the same seed makes the same choices on every machine.

use onewrite_common::random::{SplitMix64, mixed};

/// A seeded stream of choices.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// A separate stream for part `part` of the choices of `seed`.
    pub fn of_part(seed: u64, part: u64) -> Self {
        Self::new(mixed(seed ^ part.wrapping_mul(0xD6E8_FEB8_6659_FD93)))
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)] // an endless stream has no use for Option
    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// A number in `0..limit`; 0 where `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        match limit {
            0 => 0,
            // The bias of a remainder is below 2^-40 for every limit used here.
            limit => (self.next() % limit as u64) as usize,
        }
    }

    /// True in `percent` of a hundred draws.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.next() % 100 < u64::from(percent)
    }

    /// Puts `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}
