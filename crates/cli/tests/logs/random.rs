//! Random numbers that one number repeats.

/// xorshift64*.
pub struct Random(u64);

impl Random {
    /// Seeded from `ONEWRITE_TEST_SEED` or the clock, and printed either way.
    pub fn new() -> Self {
        let seed = std::env::var("ONEWRITE_TEST_SEED")
            .ok()
            .map(|text| text.parse().expect("a number in ONEWRITE_TEST_SEED"))
            .unwrap_or_else(|| {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                now.expect("a clock after 1970").as_nanos() as u64
            });
        println!("repeat with ONEWRITE_TEST_SEED={seed}");
        Self(seed | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % limit
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}
