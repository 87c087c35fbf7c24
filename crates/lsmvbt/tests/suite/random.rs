//! Random numbers with a seed, and the amount of work.

use onewrite_common::random::SplitMix64;

/// A small generator.
pub struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Random {
        let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
        Random(SplitMix64::new(mixed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// Below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// The seeds of a test: the one of `LSMVBT_SEED`, or a number of seeds from a fixed beginning,
/// times `LSMVBT_SCALE`.
pub fn seeds(count: u64) -> Vec<u64> {
    if let Some(seed) = number("LSMVBT_SEED") {
        return vec![seed];
    }
    let first = number("LSMVBT_FIRST").unwrap_or(0);
    (first..first + count * number("LSMVBT_SCALE").unwrap_or(1)).collect()
}

pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Prints the seed that failed when a test panics.
pub struct Seed(pub &'static str, pub u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: LSMVBT_SEED={}", self.0, self.1);
        }
    }
}
