//! The places of the slots of `Torn::Double`: arithmetic on page numbers, without I/O.
//!
//! Two slots of equal size stand one after the other. They take every page from the header's first
//! one on except the fixed ones (the free maps). Those come every [`freemap::SPAN`] pages, and a
//! slot may be larger than that.

use crate::error::Result;
use crate::freemap::{FreeMap, MAP_AT, SPAN, is_fixed, too_large};
use crate::header::{Header, MAX_SPANS};

/// The slots of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    start: u32,
    /// Pages of one slot.
    pages: u32,
}

/// The `n`-th page from `start` on, counted from 0, that is not fixed; `None` beyond the largest
/// file.
fn nth_page(start: u32, n: u32) -> Option<u32> {
    let mut page = start;
    while is_fixed(page) {
        page = page.checked_add(1)?;
    }
    let mut left = n;
    loop {
        let span = page - page % SPAN;
        let fixed = match page % SPAN < MAP_AT[0] {
            true => span.checked_add(MAP_AT[0])?,
            false => span.checked_add(SPAN + MAP_AT[0])?,
        };
        if left < fixed - page {
            return Some(page + left);
        }
        left -= fixed - page;
        page = fixed.checked_add(MAP_AT.len() as u32)?;
    }
}

impl Slots {
    /// The slots of a header; `None` if it has none yet.
    pub(crate) fn of(header: &Header) -> Option<Slots> {
        Slots::at(header.slot_start, header.slot_pages).filter(|s| s.pages > 0)
    }

    /// Slots at a place; `None` if a file cannot hold them.
    pub(crate) fn at(start: u32, pages: u32) -> Option<Slots> {
        let all = pages.checked_mul(2)?;
        let last = nth_page(start, all.saturating_sub(1))?;
        (last < u32::MAX - SPAN).then_some(Slots { start, pages })
    }

    /// New slots in the first free pages that have room for both, or at the end of the file.
    pub(crate) fn new_in(free: &FreeMap, pages: u32) -> Result<Slots> {
        let start = nth_page(free.run(pages.saturating_mul(2)), 0);
        start
            .and_then(|start| Slots::at(start, pages))
            .filter(|slots| slots.end() <= MAX_SPANS as u32 * SPAN)
            .ok_or_else(too_large)
    }

    /// The same, with fewer pages.
    pub(crate) fn shrunk(self, pages: u32) -> Slots {
        let pages = pages.min(self.pages);
        Slots { pages, ..self }
    }

    /// Pages of one slot.
    pub(crate) fn pages(self) -> u32 {
        self.pages
    }

    /// First page of both.
    pub(crate) fn start(self) -> u32 {
        self.start
    }

    /// A page of a slot. The number must be below the slot's size.
    pub(crate) fn page(self, slot: u32, number: u32) -> u32 {
        // Within the bounds that `at` has checked.
        nth_page(self.start, slot * self.pages + number).unwrap_or(u32::MAX)
    }

    /// One past the last page of both.
    pub(crate) fn end(self) -> u32 {
        self.page(1, self.pages - 1) + 1
    }

    /// The pages of both.
    pub(crate) fn all(self) -> impl Iterator<Item = u32> {
        (self.start..self.end()).filter(|page| !is_fixed(*page))
    }

    /// True for a page of either.
    pub(crate) fn contains(self, page: u32) -> bool {
        (self.start..self.end()).contains(&page) && !is_fixed(page)
    }

    /// Keeps a free map's high-water mark above the slots, and their pages out of it.
    pub(crate) fn protect(self, free: &mut FreeMap) {
        let end = self.end();
        if free.hwm < end {
            for page in free.hwm..self.start {
                if !is_fixed(page) {
                    free.insert(page);
                }
            }
            free.hwm = end;
        }
        for page in self.all() {
            free.remove(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::freemap::FIRST;

    #[test]
    fn slots_leave_out_the_fixed_pages_however_large_they_are() {
        for (start, pages) in [
            (FIRST, 16),
            (SPAN - 3, 16),
            (SPAN + 5, 40),
            (SPAN, 3 * SPAN),
            (2 * SPAN + 3, 100_000),
        ] {
            let slots = Slots::at(start, pages).unwrap();
            let expected: Vec<u32> = (start..)
                .filter(|page| !is_fixed(*page))
                .take(2 * pages as usize)
                .collect();
            assert!(slots.all().eq(expected.iter().copied()), "{start} {pages}");
            assert_eq!(slots.end(), expected[expected.len() - 1] + 1);
            for (number, page) in expected.iter().enumerate().step_by(97) {
                let (slot, number) = (number as u32 / pages, number as u32 % pages);
                assert_eq!(slots.page(slot, number), *page);
                assert!(slots.contains(*page));
            }
            assert!(!slots.contains(slots.end()) && !slots.contains(start - 1));
        }
    }

    #[test]
    fn what_no_file_can_hold_is_none() {
        assert_eq!(Slots::at(u32::MAX - SPAN, 1), None);
        assert_eq!(Slots::at(6, u32::MAX / 2 + 1), None);
        assert_eq!(Slots::at(u32::MAX - 10, 100), None);
        assert!(Slots::new_in(&FreeMap::new(u32::MAX - 7), 9).is_err());
    }

    #[test]
    fn protected_pages_are_never_given_out() {
        let slots = Slots::at(SPAN - 2, 10).unwrap();
        let mut free = FreeMap::new(SPAN - 8);
        slots.protect(&mut free);
        free.insert(slots.page(0, 3));
        slots.protect(&mut free);
        for _ in 0..50 {
            let page = free.allocate().unwrap();
            assert!(!slots.contains(page) && !is_fixed(page), "{page}");
        }
    }
}
