//! Digests that let a snapshot prove itself: of a row's bytes, and of the chain of all commits.
//!
//! A digest detects bugs, not attacks: eight bytes a step, multiply and fold.

/// A digest under computation.
#[derive(Debug, Clone, Copy)]
pub struct Digest(u64);

const MULTIPLIER: u64 = 0x9FB2_1C65_1E98_DF25;

impl Digest {
    /// An empty digest; `purpose` separates digests of different things.
    pub fn new(purpose: u64) -> Self {
        Self(purpose ^ 0x2545_F491_4F6C_DD1D)
    }

    /// Adds a number.
    pub fn number(self, number: i64) -> Self {
        let mixed = (self.0 ^ number as u64).wrapping_mul(MULTIPLIER);
        Self(mixed.rotate_left(29) ^ (mixed >> 31))
    }

    /// Adds bytes; their length is part of the digest.
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let mut digest = self.number(bytes.len() as i64);
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            digest = digest.number(i64::from_le_bytes(word));
        }
        digest
    }

    /// 40 bits, so that SQLite's `sum()` over a million of them cannot overflow.
    pub fn summable(self) -> i64 {
        (self.number(0).0 >> 24) as i64
    }

    /// 62 bits: never negative as an SQL integer.
    pub fn wide(self) -> i64 {
        (self.number(0).0 >> 2) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_the_input_counts() {
        let base = vec![0x5Au8; 100];
        let whole = Digest::new(1).bytes(&base).summable();
        for bit in 0..base.len() * 8 {
            let mut changed = base.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(
                Digest::new(1).bytes(&changed).summable(),
                whole,
                "bit {bit}"
            );
        }
        assert_ne!(Digest::new(1).bytes(&base[..99]).summable(), whole);
        assert_ne!(Digest::new(2).bytes(&base).summable(), whole);
    }

    #[test]
    fn digests_fit_sqlite_integers() {
        for seed in 0..1000 {
            let digest = Digest::new(seed).number(-1);
            assert!((0..1i64 << 40).contains(&digest.summable()));
            assert!(digest.wide() >= 0);
        }
    }
}
