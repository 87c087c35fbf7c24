//! Integers and strings as bytes, the parts of events.
//!
//! Numbers are LEB128: seven bits a byte, the lowest first, the eighth bit set where more bytes
//! follow. Strings are their length and their bytes. The reader trusts nothing. A length beyond the
//! available bytes is an error, and the reader allocates nothing for it.

use std::fmt;

/// Malformed bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed record: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Appends a number.
pub fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a number that may be negative. Small numbers stay short.
pub fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_number(out, ((number << 1) ^ (number >> 63)) as u64);
}

/// Appends a string of bytes with its length.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads the output of the functions above.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// One byte.
    ///
    /// # Errors
    /// There is none.
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(Malformed("it ends early"))?;
        self.0 = rest;
        Ok(*first)
    }

    /// A number.
    ///
    /// # Errors
    /// It is cut off, or has more than 64 bits.
    pub fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed("a number has more than 64 bits"))
    }

    /// A number that may be negative.
    ///
    /// # Errors
    /// As for [`Input::number`].
    pub fn signed(&mut self) -> Result<i64, Malformed> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// Takes `length` bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn take(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(length).map_err(|_| Malformed("a string ends early"))?;
        let taken = self
            .0
            .get(..length)
            .ok_or(Malformed("a string ends early"))?;
        self.0 = self.0.get(length..).unwrap_or_default();
        Ok(taken)
    }

    /// A string of bytes with its length.
    ///
    /// # Errors
    /// As for [`Input::take`].
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.number()?;
        self.take(length)
    }

    /// Eight bytes, big-endian.
    ///
    /// # Errors
    /// There are fewer.
    pub fn fixed(&mut self) -> Result<u64, Malformed> {
        let bytes = self.take(8)?;
        Ok(bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_put_is_taken(a: u64, b: i64, text: Vec<u8>) {
            let mut out = Vec::new();
            put_number(&mut out, a);
            put_signed(&mut out, b);
            put_bytes(&mut out, &text);
            let mut input = Input(&out);
            prop_assert_eq!(input.number(), Ok(a));
            prop_assert_eq!(input.signed(), Ok(b));
            prop_assert_eq!(input.bytes(), Ok(&text[..]));
            prop_assert!(input.0.is_empty());
        }
    }

    #[test]
    fn what_is_cut_or_too_long_is_an_error() {
        assert!(Input(&[0x80]).number().is_err());
        assert!(Input(&[0xFF; 11]).number().is_err());
        assert!(
            Input(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2])
                .number()
                .is_err()
        );
        assert!(Input(&[0xFF, 0xFF, 0xFF, 0xFF, 0x7F, 1]).bytes().is_err());
    }
}
