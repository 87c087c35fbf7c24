//! Variable-length integers: seven bits a byte, least significant first, at most ten bytes. Signed
//! ones are folded first (0, -1, 1, -2, ...), so that small distances of either sign are short.

/// Bytes that [`put`] takes.
pub(crate) fn len(value: u64) -> usize {
    ((64 - (value | 1).leading_zeros()) as usize).div_ceil(7)
}

/// Appends a value.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads a value at `*at` and advances; `None` when the bytes end early, or the value does not end.
pub(crate) fn get(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for shift in 0..10 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        let bits = u64::from(byte & 0x7f);
        if shift == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * shift);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Folds a signed number.
pub(crate) fn fold(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Undoes [`fold`].
pub(crate) fn unfold(value: u64) -> i64 {
    ((value >> 1) as i64) ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_comes_back() {
        for bit in 0..64 {
            for value in [1u64 << bit, (1u64 << bit) - 1, u64::MAX >> bit] {
                let mut bytes = Vec::new();
                put(&mut bytes, value);
                assert_eq!(bytes.len(), len(value));
                let mut at = 0;
                assert_eq!(get(&bytes, &mut at), Some(value));
                assert_eq!(at, bytes.len());
                assert_eq!(fold(unfold(value)), value);
                assert_eq!(get(&bytes[..bytes.len() - 1], &mut 0), None);
            }
        }
    }

    #[test]
    fn a_number_that_does_not_end_is_refused() {
        assert_eq!(get(&[0xff; 11], &mut 0), None);
    }
}
