//! Seeded random choices: the same seed makes the same choices on every machine.
//!
//! SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).

/// A seeded stream of choices.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A separate stream for part `part` of the choices of `seed`.
    pub fn of_part(seed: u64, part: u64) -> Self {
        let mut mixer = Self(seed ^ part.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        Self(mixer.next())
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)] // an endless stream has no use for Option
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
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
