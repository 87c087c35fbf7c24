//! Random numbers that depend on a seed alone: the same on every machine.

/// The generator SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). It has eight bytes of state, and
/// its quality is sufficient for choices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)] // an endless stream has no use for Option
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..limit`; 0 if `limit` is 0. The bias of a remainder is below 2^-40 for limits
    /// below 2^24.
    pub const fn below(&mut self, limit: u64) -> u64 {
        let drawn = self.next();
        if limit == 0 { 0 } else { drawn % limit }
    }
}

/// The first number of the stream of `seed`: the results of neighboring seeds look unrelated.
pub const fn mixed(seed: u64) -> u64 {
    SplitMix64::new(seed).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published sequence of state 0.
    #[test]
    fn the_stream_is_the_published_one() {
        let mut stream = SplitMix64::new(0);
        assert_eq!(stream.next(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(stream.next(), 0x6E78_9E6A_A1B9_65F4);
        assert_eq!(mixed(0), 0xE220_A839_7B1D_CDAF);
        assert_eq!(stream.below(0), 0);
        assert!((0..1000).all(|_| stream.below(7) < 7));
    }
}
