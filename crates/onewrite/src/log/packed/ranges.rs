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

mod mask;

use mask::{STRIDE, differing};

/// The most equal bytes within a range: more end it. A further range costs two or three bytes.
const GAP_BYTES: usize = 4;

/// Appends the difference of `page` from `base` to `out`, and returns whether it did. A difference of
/// more than `most` bytes, or of as many as the page, leaves `out` as before.
#[inline(never)]
pub fn find(page: &[u8], base: &[u8], most: usize, out: &mut Vec<u8>) -> bool {
    let begin = out.len();
    let mut ranges = Ranges {
        page,
        limit: begin + most.min(page.len() - 1),
        begin: 0,
        end: 0,
        last_end: 0,
        out,
    };
    let (strides, rest) = page.as_chunks::<STRIDE>();
    let (old_strides, old_rest) = base.as_chunks::<STRIDE>();
    let mut fits = true;
    for ((new, old), at) in strides.iter().zip(old_strides).zip((0..).step_by(STRIDE)) {
        let bytes = differing(new, old);
        if bytes != 0 && !ranges.note(at, bytes) {
            fits = false;
            break;
        }
    }
    if fits && rest != old_rest {
        let (mut new, mut old) = ([0; STRIDE], [0; STRIDE]);
        new[..rest.len()].copy_from_slice(rest);
        old[..rest.len()].copy_from_slice(old_rest);
        fits = ranges.note(page.len() - rest.len(), differing(&new, &old));
    }
    fits = fits && ranges.append();
    if !fits {
        out.truncate(begin);
        return false;
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

/// The ranges found so far. The last one may go on.
struct Ranges<'a> {
    page: &'a [u8],
    /// The most bytes of `out`.
    limit: usize,
    /// The range that may go on; it is empty before the first one.
    begin: usize,
    end: usize,
    /// The end of the range before it.
    last_end: usize,
    out: &'a mut Vec<u8>,
}

impl Ranges<'_> {
    /// Notes the different bytes of the stride at byte `at`: a bit each, the first byte lowest. `false`
    /// if the ranges take too many bytes.
    fn note(&mut self, at: usize, mut bytes: u64) -> bool {
        bytes = without_gaps(bytes);
        while bytes != 0 {
            let begin = bytes.trailing_zeros();
            let end = begin + (bytes >> begin).trailing_ones();
            bytes &= u64::MAX.checked_shl(end).unwrap_or(0);
            let (begin, end) = (at + begin as usize, at + end as usize);
            if begin > self.end + GAP_BYTES || self.end == 0 {
                if !self.append() {
                    return false;
                }
                self.begin = begin;
            }
            self.end = end;
        }
        true
    }

    /// Appends the last range to `out`: it has ended.
    fn append(&mut self) -> bool {
        if self.end > 0 {
            let skip = self.begin - self.last_end;
            append(self.out, (skip, &self.page[self.begin..self.end]));
            self.last_end = self.end;
        }
        self.out.len() <= self.limit
    }
}

/// Sets also the bits of gaps that a range may have, but for some at the stride's end.
fn without_gaps(bytes: u64) -> u64 {
    let two = bytes | bytes << 1;
    let four = two | two << 2;
    let five = four | bytes << 4;
    let two = five & five >> 1;
    let four = two & two >> 2;
    bytes | four & five >> 4
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

    /// The difference, byte by byte.
    fn simple(page: &[u8], base: &[u8]) -> Vec<u8> {
        let (mut out, mut last_end) = (Vec::new(), 0);
        while let Some(begin) = (last_end..page.len()).find(|at| page[*at] != base[*at]) {
            let end = simple_end(page, base, begin);
            append(&mut out, (begin - last_end, &page[begin..end]));
            last_end = end;
        }
        out
    }

    proptest! {
        #[test]
        fn ranges_are_those_found_byte_by_byte(
            bytes in proptest::collection::vec(prop::sample::select(vec![0u8, 0, 0, 1, 0x80]), 1..200),
            equal in 0usize..140,
        ) {
            let base = vec![0; equal + bytes.len()];
            let page = [vec![0; equal], bytes].concat();
            let simple = simple(&page, &base);
            let mut data = Vec::new();
            let found = find(&page, &base, usize::MAX, &mut data);
            prop_assert_eq!(found, simple.len() < page.len());
            match page == base {
                true => prop_assert_eq!(data, [0, 1, 0]),
                false if found => prop_assert_eq!(data, simple),
                false => prop_assert!(data.is_empty()),
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
