//! The byte ranges in which a page differs from another: the cheapest difference. SQLite changes a
//! page in a few places, which a comparison finds at the speed of memory.
//!
//! ```text
//! for each range:  bytes since the end of the last range   LEB128
//!                  length, at least 1                      LEB128
//!                  the page's bytes
//! ```
//!
//! At least one range, so that a record has data. With any bytes from disk, [`apply`] writes within
//! the page it is given.

/// The most equal bytes within a range: more end it. A further range costs two or three bytes.
const GAP_BYTES: usize = 4;
/// Bytes that are compared at once where pages are equal.
const STRIDE: usize = 32;
/// Bytes that are compared at once where they differ.
const WORD: usize = 8;
/// The highest bit of every byte of a word.
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Appends the difference of `page` from `base` to `out`, and returns whether it did. A difference of
/// more than `most` bytes, or of as many as the page, leaves `out` as before.
pub fn find(page: &[u8], base: &[u8], most: usize, out: &mut Vec<u8>) -> bool {
    let most = most.min(page.len() - 1);
    let begin = out.len();
    let (mut at, mut last_end) = (0, 0);
    loop {
        at += equal_bytes(&page[at..], &base[at..]);
        if at == page.len() {
            break;
        }
        let end = range_end(page, base, at);
        append(out, (at - last_end, &page[at..end]));
        if out.len() - begin > most {
            out.truncate(begin);
            return false;
        }
        (at, last_end) = (end, end);
    }
    if out.len() == begin {
        append(out, (0, &page[..1]));
    }
    true
}

/// Makes `page` from its difference and the page that it refers to. `false` if the bytes are no
/// difference of such a page.
pub fn apply(mut data: &[u8], base: &[u8], page: &mut [u8]) -> bool {
    if base.len() != page.len() {
        return false;
    }
    page.copy_from_slice(base);
    let mut at = 0usize;
    while !data.is_empty() {
        let Some((skip, bytes)) = number(&mut data).zip(number(&mut data)) else {
            return false;
        };
        let from = at + skip as usize;
        at = from + bytes as usize;
        let (Some(to), Some((new, rest))) = (
            page.get_mut(from..at),
            data.split_at_checked(bytes as usize),
        ) else {
            return false;
        };
        to.copy_from_slice(new);
        data = rest;
    }
    true
}

/// The number of equal bytes at the start of two slices of the same length.
fn equal_bytes(a: &[u8], b: &[u8]) -> usize {
    let strides = a.chunks_exact(STRIDE).zip(b.chunks_exact(STRIDE));
    let at = STRIDE * strides.take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[at..], &b[at..]);
    let words = a.chunks_exact(WORD).zip(b.chunks_exact(WORD));
    let mut equal = 0;
    for (a, b) in words {
        match differing(a, b) {
            0 => equal += WORD,
            bytes => return at + equal + first(bytes),
        }
    }
    let rest = a[equal..].iter().zip(&b[equal..]);
    at + equal + rest.take_while(|(a, b)| a == b).count()
}

/// The end of a range that begins with the different byte at `at`.
fn range_end(page: &[u8], base: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    let mut next = end;
    let (words, old) = (
        page[next..].chunks_exact(WORD),
        base[next..].chunks_exact(WORD),
    );
    for (new, old) in words.zip(old) {
        let bytes = differing(new, old);
        if bytes == 0 || next + first(bytes) > end + GAP_BYTES || has_gap(bytes) {
            break;
        }
        end = next + last(bytes) + 1;
        next += WORD;
    }
    // Byte by byte where the range ends, and at the end of the page.
    for (at, (new, old)) in (next..).zip(page[next..].iter().zip(&base[next..])) {
        if new != old {
            end = at + 1;
        } else if at >= end + GAP_BYTES {
            break;
        }
    }
    end
}

/// The bytes in which two words differ: the highest bit of each, the first byte lowest.
fn differing(a: &[u8], b: &[u8]) -> u64 {
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let bits = word(a) ^ word(b);
    // The sum carries into a byte's highest bit where one of the lower seven is set.
    (((bits & !HIGH) + !HIGH) | bits) & HIGH
}

/// The first of these bytes.
fn first(bytes: u64) -> usize {
    bytes.trailing_zeros() as usize / 8
}

/// The last of these bytes.
fn last(bytes: u64) -> usize {
    WORD - 1 - bytes.leading_zeros() as usize / 8
}

/// Whether more equal bytes than a range may have follow each other within the word.
fn has_gap(bytes: u64) -> bool {
    let equal = !bytes & HIGH;
    let two = equal & equal >> 8;
    (two & two >> 16 & equal >> 32) != 0
}

fn append(out: &mut Vec<u8>, (skip, bytes): (usize, &[u8])) {
    for mut number in [skip, bytes.len()] {
        while number >= 0x80 {
            out.push(number as u8 | 0x80);
            number >>= 7;
        }
        out.push(number as u8);
    }
    out.extend_from_slice(bytes);
}

/// Takes a number off `data`. No page has more than 64 KiB, so three bytes are enough.
fn number(data: &mut &[u8]) -> Option<u32> {
    let mut number = 0;
    for shift in [0, 7, 14] {
        let (&byte, rest) = data.split_first()?;
        *data = rest;
        number |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes of the difference; `None` if it is no smaller than the page.
    fn round_trip(page: &[u8], base: &[u8]) -> Option<usize> {
        let mut data = vec![9];
        if !find(page, base, usize::MAX, &mut data) {
            assert_eq!(data, [9]);
            return None;
        }
        assert_eq!(data[0], 9);
        let mut back = vec![0; page.len()];
        assert!(apply(&data[1..], base, &mut back));
        assert_eq!(back, page);
        for most in [0, data.len() - 2] {
            let mut out = vec![9];
            assert!(page == base || !find(page, base, most, &mut out));
            assert_eq!(out, [9]);
        }
        assert!(data.len() - 1 < page.len());
        Some(data.len() - 1)
    }

    /// The end of a range, byte by byte.
    fn simple_end(page: &[u8], base: &[u8], at: usize) -> usize {
        let mut end = at + 1;
        for next in at + 1..page.len() {
            match page[next] == base[next] {
                false => end = next + 1,
                true if next - end == GAP_BYTES => break,
                true => {}
            }
        }
        end
    }

    proptest! {
        #[test]
        fn a_range_ends_where_it_does_byte_by_byte(
            bytes in proptest::collection::vec(prop::sample::select(vec![0u8, 0, 0, 1, 0x80]), 1..80),
            equal in 0usize..70,
        ) {
            let base = vec![0; bytes.len() + equal];
            let mut page = base.clone();
            page[equal..].copy_from_slice(&bytes);
            let at = page.iter().position(|byte| *byte != 0);
            prop_assert_eq!(equal_bytes(&page, &base), at.unwrap_or(page.len()));
            for at in (0..page.len()).filter(|at| page[*at] != 0) {
                prop_assert_eq!(range_end(&page, &base, at), simple_end(&page, &base, at), "{}", at);
            }
        }

        #[test]
        fn what_differs_comes_back(
            power in 9u32..=16,
            fill in any::<u8>(),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), 1usize..200, any::<u8>()), 0..20),
        ) {
            let base: Vec<u8> = (0..1usize << power).map(|i| (i / 3) as u8 ^ fill).collect();
            let mut page = base.clone();
            let mut changed = 0;
            for (at, bytes, value) in &changes {
                let at = at.index(page.len());
                let end = page.len().min(at + bytes);
                page[at..end].fill(*value);
                changed += end - at;
            }
            let bytes = round_trip(&page, &base);
            let most = 2 + changed + 6 * (1 + 2 * changed / GAP_BYTES);
            prop_assert!(bytes.map_or(page.len() <= most, |bytes| bytes <= most));
        }

        #[test]
        fn no_bytes_are_too_strange(data in proptest::collection::vec(any::<u8>(), 0..600)) {
            let mut page = vec![0; 512];
            apply(&data, &[7; 512], &mut page);
            apply(&data, &[7; 511], &mut page);
        }
    }

    #[test]
    fn the_first_and_the_last_byte_count() {
        let base = vec![0; 65_536];
        for at in [0, 1, 31, 32, 65_535] {
            let mut page = base.clone();
            page[at] = 1;
            assert!(round_trip(&page, &base).is_some_and(|bytes| bytes <= 5));
        }
    }

    #[test]
    fn a_difference_takes_fewer_bytes_than_the_page() {
        let base = [0; 512];
        let bytes = |changed| {
            let mut page = base;
            page[..changed].fill(1);
            round_trip(&page, &base)
        };
        assert_eq!(bytes(508), Some(511));
        for changed in 509..=512 {
            assert_eq!(bytes(changed), None);
        }
    }

    #[test]
    fn an_equal_page_has_a_difference_too() {
        let page = [5; 512];
        let mut data = Vec::new();
        assert!(find(&page, &page, 64, &mut data));
        assert_eq!(data, [0, 1, 5]);
    }
}
