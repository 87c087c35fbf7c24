//! The seeded random choices of every process.
//!
//! One seed fixes every choice of the processes. It cannot fix how the kernel schedules them, so to
//! repeat a failure, run the same seed a few times.

use std::time::Duration;

use onewrite_common::random::{SplitMix64, mixed};

/// A seeded stream of choices.
#[derive(Debug, Clone)]
pub struct Random(SplitMix64);

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// A separate stream for part number `part` of a run. So the draws of one part do not change
    /// those of another.
    pub fn of_part(seed: u64, part: u64) -> Self {
        Self::new(mixed(seed ^ part.wrapping_mul(0xA24B_AED4_963E_E407)))
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)] // an endless stream has no use for Option
    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// A number in `0..limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 {
            return 0;
        }
        // The bias of a remainder is below 2^-40 for every limit used here.
        self.next() % limit
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True once in `n` draws.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of `choices`, which must not be empty.
    pub fn choose<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// An index into `weights`, each drawn as often as its weight says.
    pub fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        0
    }

    /// A pause between 0 and `longest`. Short ones are far more frequent than long ones, because
    /// the interesting phases (opening, recovery, a commit) end within a millisecond.
    pub fn pause(&mut self, longest: Duration) -> Duration {
        let micros = longest.as_micros() as u64;
        let bits = 64 - micros.leading_zeros() as u64;
        let scale = self.between(0, bits);
        Duration::from_micros(self.below(1 << scale).min(micros))
    }

    /// `length` bytes. Half of each buffer repeats itself, as real records do.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length / 2 {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        let fill = self.next() as u8;
        bytes.resize(length, fill);
        bytes
    }
}

/// A seed from the operating system, for runs without a given seed.
pub fn fresh_seed() -> u64 {
    // Without a random device the clock is sufficient: the seed is printed and need not be secret.
    getrandom::u64().unwrap_or_else(|_| {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |age| age.as_nanos() as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_stream() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..8).map(|_| random.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn pauses_stay_within_their_limit_and_are_mostly_short() {
        let mut random = Random::new(fresh_seed());
        let longest = Duration::from_millis(50);
        let pauses: Vec<_> = (0..1000).map(|_| random.pause(longest)).collect();
        assert!(pauses.iter().all(|pause| *pause <= longest));
        assert!(
            pauses
                .iter()
                .filter(|pause| **pause < Duration::from_millis(1))
                .count()
                > 300
        );
    }
}
