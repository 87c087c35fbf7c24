//! The bytes in which two pages differ, as a mask: the inner loop of [`super::find`].
#![allow(unsafe_code)]

/// Bytes that are compared at once: one bit of a mask each.
pub const STRIDE: usize = 64;

/// The bytes in which two strides differ, a bit each, the first byte lowest.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn differing(new: &[u8; STRIDE], old: &[u8; STRIDE]) -> u64 {
    // SAFETY: every x86-64 has SSE2.
    unsafe { sse2::differing(new, old) }
}

/// The bytes in which two strides differ, a bit each, the first byte lowest.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn differing(new: &[u8; STRIDE], old: &[u8; STRIDE]) -> u64 {
    // Most strides are equal.
    match words::differ(new, old) {
        true => words::differing(new, old),
        false => 0,
    }
}

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x,
    };

    use super::STRIDE;

    #[inline]
    #[target_feature(enable = "sse2")]
    pub fn differing(new: &[u8; STRIDE], old: &[u8; STRIDE]) -> u64 {
        let (new, old) = (new.as_chunks().0, old.as_chunks().0);
        let equal = |part: usize| _mm_cmpeq_epi8(vector(&new[part]), vector(&old[part]));
        let equal = [equal(0), equal(1), equal(2), equal(3)];
        let all = _mm_and_si128(
            _mm_and_si128(equal[0], equal[1]),
            _mm_and_si128(equal[2], equal[3]),
        );
        // Most strides are equal.
        if _mm_movemask_epi8(all) == 0xffff {
            return 0;
        }
        let mut mask = 0;
        for equal in equal.into_iter().rev() {
            mask = mask << 16 | u64::from(!_mm_movemask_epi8(equal) as u16);
        }
        mask
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn vector(bytes: &[u8; 16]) -> __m128i {
        let bits = u128::from_le_bytes(*bytes);
        _mm_set_epi64x((bits >> 64) as i64, bits as i64)
    }
}

/// The same with 64-bit words.
#[cfg(any(test, not(target_arch = "x86_64")))]
mod words {
    use super::STRIDE;

    /// The highest bit of every byte of a word.
    const HIGH: u64 = 0x8080_8080_8080_8080;

    /// Whether two strides differ. As `!=` it would be a call of a function.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn differ(new: &[u8; STRIDE], old: &[u8; STRIDE]) -> bool {
        words(new)
            .zip(words(old))
            .fold(0, |bits, (new, old)| bits | (new ^ old))
            != 0
    }

    pub fn differing(new: &[u8; STRIDE], old: &[u8; STRIDE]) -> u64 {
        let of_words = words(new).zip(words(old)).map(|(new, old)| {
            let bits = new ^ old;
            // The sum carries into a byte's highest bit where one of the lower seven is set.
            let bytes = (((bits & !HIGH) + !HIGH) | bits) & HIGH;
            // The product gathers these bits in its highest byte.
            (bytes >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
        });
        of_words
            .zip(0..)
            .fold(0, |mask, (bytes, word)| mask | bytes << (8 * word))
    }

    fn words(stride: &[u8; STRIDE]) -> impl Iterator<Item = u64> {
        stride
            .as_chunks()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bit_is_set_where_bytes_differ(
            new in proptest::collection::vec(prop::sample::select(vec![0u8, 0, 1, 0x80, 0xff]), STRIDE),
            old in proptest::collection::vec(prop::sample::select(vec![0u8, 0, 1, 0x80, 0xff]), STRIDE),
        ) {
            let (new, old) = (new.as_array().unwrap(), old.as_array().unwrap());
            let simple = (0..STRIDE).fold(0, |mask, at| mask | u64::from(new[at] != old[at]) << at);
            prop_assert_eq!(differing(new, old), simple);
            prop_assert_eq!(words::differing(new, old), simple);
            prop_assert_eq!(differing(new, new), 0);
        }
    }
}
