//! Choices from input bytes. After the end of the input every choice is zero, so that every input
//! is a program.

/// The rest of an input.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// All of it.
    pub fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// The next two bytes, as a number.
    pub fn number(&mut self) -> usize {
        usize::from(self.byte()) << 8 | usize::from(self.byte())
    }

    /// A number below `limit`, which is at most 65,536; 0 where that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let number = match limit {
            0..=256 => usize::from(self.byte()),
            _ => self.number(),
        };
        number.checked_rem(limit).unwrap_or(0)
    }

    /// At most the next `n` bytes.
    pub fn take(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// All the rest.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}
