//! Paired pages: the two pages of the same cells (MLC).
//!
//! A cell has a bit of a *lower* page and one of an *upper* page, which is programmed later. When the
//! power goes in a program of the upper page, both may be lost: the lower page, too, although it was
//! programmed long before. The pages of a block are programmed in order, so the upper page is some
//! pages behind the lower one:
//!
//! ```text
//! lower   0  1  3  5  7 ...
//! upper   2  4  6  8 10 ...     and the last one with the last but two
//! ```
//!
//! Grupp et al. found such pairs, at distances that depend on the maker ("Characterizing Flash
//! Memory", MICRO '09). Tseng, Grupp and Swanson show the loss ("Understanding the Impact of Power
//! Loss on Flash Memory", DAC '11). The distance of three is an assumption.

/// The fewest pages of a block that has pairs; the number is even.
pub(crate) const LEAST_PAGES: u32 = 8;

/// The upper page of a lower one, in a block of `count` pages.
pub(crate) fn upper_of(page: u32, count: u32) -> Option<u32> {
    match page {
        0 => Some(2),
        page if page + 3 == count => Some(count - 1),
        page if page % 2 == 1 && page + 3 < count => Some(page + 3),
        _ => None,
    }
}

/// The lower page of an upper one.
pub(crate) fn lower_of(page: u32, count: u32) -> Option<u32> {
    let before = page.saturating_sub(3)..page;
    let mut before = before.filter(|lower| upper_of(*lower, count) == Some(page));
    before.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_is_in_one_pair() {
        for count in [8, 16, 128, 256] {
            let mut pages: Vec<u32> = Vec::new();
            for lower in 0..count {
                if let Some(upper) = upper_of(lower, count) {
                    assert_eq!(lower_of(upper, count), Some(lower));
                    pages.extend([lower, upper]);
                }
            }
            pages.sort_unstable();
            assert!(pages.iter().copied().eq(0..count), "{count}: {pages:?}");
        }
    }
}
