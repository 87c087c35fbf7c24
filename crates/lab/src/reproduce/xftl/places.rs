//! Where ext4 has put a database: pages that lie across two pages of the device.
//!
//! ext4 allocates blocks of 4 KiB, and the device and the database have pages of 8 KiB or more. A file that
//! begins in the middle of a device's page has every page in two of them. Each of its pages is then
//! two writes of the device, unless the one before or behind it is written as well.

use std::ops::Range;

/// The percentage of a file's pages that lie across two pages of the device. The file has these
/// sectors, in order and without holes.
pub fn across(extents: &[Range<u64>], page_bytes: u64) -> Option<f64> {
    let page = page_bytes / 512;
    let (mut all, mut across) = (0, 0);
    for extent in extents {
        let sectors = extent.end.saturating_sub(extent.start);
        if extent.start % page != all % page {
            across += sectors;
        }
        all += sectors;
    }
    (all > 0).then(|| across as f64 * 100.0 / all as f64)
}

/// Pages of the device that are written for a part of a database's pages, drawn at random.
pub fn written(pages: f64, part: f64, across_percent: f64) -> f64 {
    let two = across_percent / 100.0;
    // One that holds halves of two pages is spared only if neither of them is written.
    let of_two = 1.0 - (1.0 - part) * (1.0 - part);
    pages * ((1.0 - two) * part + two * of_two)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_lies_across_two_if_the_file_is_half_a_page_off() {
        let of = |extents: &[Range<u64>]| across(extents, 8192);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[32..64, 160..176]), Some(0.0));
        assert_eq!(of(&[40..56, 72..88]), Some(100.0));
        // Half a page in front, and the rest where it belongs; a part that does not.
        assert_eq!(of(&[32..40, 8..64]), Some(0.0));
        assert_eq!(of(&[32..64, 104..136]), Some(50.0));
        // Where pages have 8 KiB it begins one, and of 16 KiB it is in the middle.
        let off = [48..112, 176..208];
        assert_eq!(across(&off, 8192), Some(0.0));
        assert_eq!(across(&off, 16_384), Some(100.0));
    }

    #[test]
    fn pages_across_two_are_up_to_twice_as_many_writes() {
        assert!((written(1_000.0, 0.5, 0.0) - 500.0).abs() < 1e-9);
        assert!((written(1_000.0, 0.5, 100.0) - 750.0).abs() < 1e-9);
        assert!((written(1_000.0, 0.001, 100.0) - 2.0).abs() < 1e-2);
        assert!((written(1_000.0, 1.0, 100.0) - 1_000.0).abs() < 1e-9);
    }
}
