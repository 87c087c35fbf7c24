//! Random numbers from a seed. The test prints the seed, and `ONEWRITE_SEED` sets it.

use onewrite_common::random::SplitMix64;

#[derive(Clone)]
pub struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64::new(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    #[allow(dead_code)] // not every test that includes this module needs it
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// The seed from `ONEWRITE_SEED`, or a new one. It is printed, so that a failure can be replayed.
pub fn seed(test: &str) -> u64 {
    let given = std::env::var("ONEWRITE_SEED").ok();
    let seed = match given {
        Some(text) => text.parse().expect("ONEWRITE_SEED is a number"),
        None => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |now| now.as_nanos() as u64 % 1_000_000_007),
    };
    println!("{test}: ONEWRITE_SEED={seed}");
    seed
}
