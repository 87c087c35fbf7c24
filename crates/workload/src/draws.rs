//! Values that depend only on a seed, the same on every machine.

use onewrite_common::random::{SplitMix64, mixed};

/// A sequence of random numbers.
#[derive(Debug)]
pub(crate) struct Draws {
    random: SplitMix64,
}

impl Draws {
    /// The sequence that belongs to transaction `number` of the runs with this seed.
    pub(crate) fn of(seed: u64, number: u32) -> Self {
        // Mixed once, so that neighboring numbers do not start neighboring sequences.
        let random = SplitMix64::new(mixed(seed ^ (u64::from(number) << 32)));
        Self { random }
    }

    /// A number from 0 to `below - 1`; 0 if there is none.
    pub(crate) fn below(&mut self, below: u32) -> u32 {
        self.random.below(below.into()) as u32
    }

    /// As [`Self::below`], small numbers more often: the smaller of two draws.
    pub(crate) fn low_below(&mut self, below: u32) -> u32 {
        self.below(below).min(self.below(below))
    }

    /// One of `all`, the first ones more often; `None` if there is none.
    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let count = u32::try_from(all.len()).unwrap_or(u32::MAX);
        all.get(self.low_below(count) as usize)
    }

    /// This many bytes that look like compressed content: none can be guessed.
    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.random.next().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }

    /// This many printable characters, six random bits each.
    pub(crate) fn letters(&mut self, length: usize) -> String {
        letters(&mut self.random, length)
    }
}

/// `length` printable characters, six random bits each, that depend on `seed` alone.
pub(crate) fn text(seed: u64, length: usize) -> String {
    letters(&mut SplitMix64::new(seed), length)
}

fn letters(random: &mut SplitMix64, length: usize) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-.";
    let mut text = String::with_capacity(length + 10);
    while text.len() < length {
        let mut bits = random.next();
        for _ in 0..10 {
            text.push(char::from(LETTERS[(bits & 63) as usize]));
            bits >>= 6;
        }
    }
    text.truncate(length);
    text
}

/// Fisher and Yates's shuffle.
pub fn shuffle(rows: &mut [u32], seed: u64) {
    let mut random = SplitMix64::new(seed);
    for last in (1..rows.len()).rev() {
        let other = random.below(last as u64 + 1) as usize;
        rows.swap(last, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published figures were measured with these values.
    #[test]
    fn values_are_the_same_for_ever() {
        assert_eq!(text(1, 12), text(1, 20)[..12]);
        let drawn = |seed, number| Draws::of(seed, number).bytes(16);
        assert_eq!(drawn(1, 0), drawn(1, 0));
        assert_ne!(drawn(1, 0), drawn(1, 1));
        assert_ne!(drawn(1, 0), drawn(2, 0));
    }

    #[test]
    fn draws_keep_their_bounds() {
        let mut draws = Draws::of(5, 6);
        let mut seen = [0; 4];
        for _ in 0..400 {
            seen[draws.low_below(4) as usize] += 1;
        }
        assert!(seen.is_sorted_by(|a, b| a > b), "{seen:?}");
        assert_eq!((draws.below(0), draws.below(1)), (0, 0));
        assert_eq!(draws.pick::<u8>(&[]), None);
        assert_eq!((draws.bytes(9).len(), draws.letters(9).len()), (9, 9));
    }
}
