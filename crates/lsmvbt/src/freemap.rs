//! The set of free pages.
//!
//! In memory, and in shared memory, it has one bit a page up to the high-water mark. On disk, it
//! has one map page for each [`SPAN`] pages, in two copies that take turns. The header has the
//! valid copy and its checksum, so that maps and header change together. Maps are only written with
//! a header that moves its floor: at a clean close, at recovery, and when too many regions are
//! marked.

use crate::error::{Error, Result};
use crate::header::MAX_SPANS;
use crate::page::{self, Image, set_u32, set_u64, u32_at};
use crate::types::{PAGE_SIZE, PageNo};

/// Pages that one map page describes.
pub(crate) const SPAN: u32 = ((PAGE_SIZE - page::HEADER) * 8) as u32;
/// The places of a map's two copies in its span.
pub(crate) const MAP_AT: [u32; 2] = [4, 5];
/// The first page that may ever be free.
pub(crate) const FIRST: u32 = 6;
const MAP_TYPE: u8 = 6;
/// The pages of a file are below this: a header lists that many spans. One span is left for the
/// slots of `double`, so that what a file has can always be committed and rolled back.
pub(crate) const MAX_PAGES: u32 = (MAX_SPANS as u32 - 1) * SPAN;

/// The error of a transaction for which the file would be too large: to it the disk is full.
pub(crate) fn too_large() -> Error {
    Error::Io {
        what: "the file has the largest size of its format, 59 GiB",
        source: std::io::ErrorKind::StorageFull.into(),
    }
}

/// True for pages that are never allocated: the headers, the directory, and the maps.
pub(crate) fn is_fixed(page: u32) -> bool {
    page < FIRST || MAP_AT.contains(&(page % SPAN))
}

/// A set of free pages below a high-water mark.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeMap {
    bits: Vec<u64>,
    pub(crate) hwm: u32,
    count: u32,
    hint: usize,
    /// Words of `bits` that may have changed since the last
    /// [`FreeMap::forget_touched`], in any order.
    touched: Vec<usize>,
}

impl FreeMap {
    pub(crate) fn new(hwm: u32) -> FreeMap {
        FreeMap {
            hwm,
            ..FreeMap::default()
        }
    }

    /// The map of these words. Bits of pages behind the end are of an earlier and larger file. These pages
    /// are not free, and their word counts as changed.
    pub(crate) fn from_words(mut bits: Vec<u64>, hwm: u32) -> FreeMap {
        let last = (hwm / 64) as usize;
        let mut touched = Vec::new();
        if let Some(word) = bits.get_mut(last) {
            let below = *word & ((1 << (hwm % 64)) - 1);
            if below != *word {
                *word = below;
                touched.push(last);
            }
        }
        bits.truncate(last + 1);
        let count = bits.iter().map(|w| w.count_ones()).sum();
        FreeMap {
            bits,
            hwm,
            count,
            hint: 0,
            touched,
        }
    }

    /// The words that may have changed since [`FreeMap::forget_touched`].
    pub(crate) fn touched(&self) -> &[usize] {
        &self.touched
    }

    pub(crate) fn forget_touched(&mut self) {
        self.touched.clear();
    }

    fn touch(&mut self, word: usize) {
        if self.touched.last() != Some(&word) {
            self.touched.push(word);
        }
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.bits
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn contains(&self, page: u32) -> bool {
        self.bits
            .get((page / 64) as usize)
            .is_some_and(|w| w >> (page % 64) & 1 == 1)
    }

    pub(crate) fn insert(&mut self, page: u32) {
        let word = (page / 64) as usize;
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        if self.bits[word] >> (page % 64) & 1 == 0 {
            self.bits[word] |= 1 << (page % 64);
            self.count += 1;
            self.hint = self.hint.min(word);
            self.touch(word);
        }
    }

    pub(crate) fn remove(&mut self, page: u32) {
        if self.contains(page) {
            let word = (page / 64) as usize;
            self.bits[word] &= !(1 << (page % 64));
            self.count -= 1;
            self.touch(word);
        }
    }

    /// Removes the lowest free page and returns it.
    fn take(&mut self) -> Option<u32> {
        while self.hint < self.bits.len() {
            let word = self.bits[self.hint];
            if word != 0 {
                let page = self.hint as u32 * 64 + word.trailing_zeros();
                self.remove(page);
                return Some(page);
            }
            self.hint += 1;
        }
        None
    }

    /// The pages that are taken next, as far as they are free.
    pub(crate) fn next_free(&self, count: usize) -> impl Iterator<Item = u32> {
        let words = (self.hint as u32..).zip(self.bits.iter().skip(self.hint));
        let pages_of = |(number, word): (u32, &u64)| {
            let word = *word;
            let is_free = move |bit: &u32| word >> bit & 1 == 1;
            (0..64).filter(is_free).map(move |bit| number * 64 + bit)
        };
        words
            .filter(|(_, word)| **word != 0)
            .flat_map(pages_of)
            .take(count)
    }

    /// A page to use: a free one, or the next one of the file.
    pub(crate) fn allocate(&mut self) -> Result<u32> {
        if let Some(page) = self.take() {
            return Ok(page);
        }
        while is_fixed(self.hwm) {
            self.hwm += 1;
        }
        if self.hwm >= MAX_PAGES {
            return Err(too_large());
        }
        self.hwm += 1;
        Ok(self.hwm - 1)
    }

    /// The first of so many pages that are free, or not in the file yet, with no others between them
    /// than fixed ones.
    pub(crate) fn run(&self, count: u32) -> u32 {
        let (mut start, mut found) = (None, 0);
        let mut page = FIRST;
        while page < self.hwm && found < count {
            let word = self.bits.get((page / 64) as usize).copied().unwrap_or(0);
            if word == 0 && page.is_multiple_of(64) {
                (start, found) = (None, 0);
                page = page.saturating_add(64);
                continue;
            }
            if self.contains(page) {
                start.get_or_insert(page);
                found += 1;
            } else if !is_fixed(page) {
                (start, found) = (None, 0);
            }
            page = page.saturating_add(1);
        }
        start.unwrap_or(self.hwm)
    }

    /// One past the last page in use. Fixed pages do not count.
    pub(crate) fn used_end(&self) -> u32 {
        let used = |page: &u32| !self.contains(*page) && !is_fixed(*page);
        let last = (FIRST..self.hwm).rev().find(used);
        last.map_or(FIRST, |page| page + 1)
    }

    /// The number of free pages below `end`, counted up to `most`.
    pub(crate) fn free_below(&self, end: u32, most: u32) -> u32 {
        let mut found = 0;
        for (word, number) in self.bits.iter().zip(0u32..).skip(self.hint) {
            let first = number * 64;
            if first >= end || found >= most {
                break;
            }
            let below = (end - first).min(64);
            found += (word & (u64::MAX >> (64 - below))).count_ones();
        }
        found.min(most)
    }

    /// Lowers the high-water mark to `hwm`; pages above it are neither free nor in use.
    pub(crate) fn truncate(&mut self, hwm: u32) {
        debug_assert!(hwm <= self.hwm, "{hwm} is behind the end, {}", self.hwm);
        for p in hwm..self.hwm {
            self.remove(p);
        }
        self.hwm = hwm;
    }

    /// Spans that need a map.
    pub(crate) fn spans(&self) -> usize {
        self.hwm.div_ceil(SPAN).max(1) as usize
    }

    /// The map page of a span, encoded for its place `page`.
    pub(crate) fn encode(&self, span: usize, page: PageNo, salt: u64) -> Box<Image> {
        let mut image: Box<Image> = Box::new([0; PAGE_SIZE]);
        set_u32(&mut image[..], 4, page.0);
        set_u64(&mut image[..], 8, salt);
        image[16] = MAP_TYPE;
        set_u32(&mut image[..], 20, span as u32);
        let words = (SPAN / 64) as usize;
        for (i, word) in self.bits.iter().skip(span * words).take(words).enumerate() {
            set_u64(&mut image[..], page::HEADER + 8 * i, *word);
        }
        page::seal(&mut image);
        image
    }

    /// Adds the bits of a map page. The caller has verified the image.
    pub(crate) fn decode(&mut self, image: &Image, span: usize) -> Option<()> {
        if image[16] != MAP_TYPE || u32_at(image, 20) != span as u32 {
            return None;
        }
        let words = (SPAN / 64) as usize;
        for i in 0..words {
            let mut word = page::u64_at(image, page::HEADER + 8 * i);
            while word != 0 {
                let page = (span * words + i) as u32 * 64 + word.trailing_zeros();
                if page >= self.hwm || is_fixed(page) {
                    return None;
                }
                self.insert(page);
                word &= word - 1;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Db, Durability, MemoryFile, Options, Torn, TreeKind};

    #[test]
    fn pages_come_back_lowest_first_and_fixed_ones_never() {
        let mut map = FreeMap::new(FIRST);
        let pages: Vec<u32> = (0..5).map(|_| map.allocate().unwrap()).collect();
        assert_eq!(pages, [6, 7, 8, 9, 10]);
        map.insert(9);
        map.insert(7);
        assert_eq!((map.allocate().unwrap(), map.allocate().unwrap()), (7, 9));
        assert_eq!(map.allocate().unwrap(), 11);
        map.hwm = SPAN + 3;
        assert_eq!(map.allocate().unwrap(), SPAN + 3);
        assert_eq!(map.allocate().unwrap(), SPAN + 6);
    }

    #[test]
    fn a_run_of_free_pages_is_the_first_one_that_is_long_enough() {
        let mut map = FreeMap::new(SPAN + 400);
        assert_eq!(map.run(1), SPAN + 400);
        for page in (100..110).chain(300..364).chain(SPAN - 5..SPAN + 20) {
            if !is_fixed(page) {
                map.insert(page);
            }
        }
        for (count, start) in [(1, 100), (10, 100), (11, 300), (64, 300), (65, SPAN + 400)] {
            assert_eq!(map.run(count), start, "{count}");
        }
        // Over the maps of a span, and on behind the file's end.
        for page in 300..364 {
            map.remove(page);
        }
        assert_eq!(map.run(23), SPAN - 5);
        assert_eq!(map.run(24), SPAN + 400);
        (390..400).for_each(|page| map.insert(SPAN + page));
        assert_eq!(map.run(24), SPAN + 390);
    }

    #[test]
    fn a_file_of_the_largest_size_is_a_full_disk() {
        for torn in [Torn::Trust, Torn::Double] {
            let file = MemoryFile::new();
            let options = Options {
                torn,
                ..Options::default()
            };
            let open = || Db::open(file.storage(), options.clone()).unwrap();
            let mut db = open();
            db.begin_write().unwrap();
            let tree = db.create_tree(TreeKind::Integer).unwrap();
            db.put_integer(tree, 1, b"first").unwrap();
            db.commit(Durability::Flush).unwrap();
            // As if all pages between were in use.
            db.core.space.map.hwm = MAX_PAGES - 200;
            db.core.publish_free().unwrap();
            db.begin_write().unwrap();
            let error = (2..1000).find_map(|key| db.put_integer(tree, key, &[7; 5000]).err());
            assert!(error.as_ref().is_some_and(Error::is_full), "{error:?}");
            assert!(error.unwrap().to_string().contains("59 GiB"));
            db.rollback().unwrap();
            for key in 2..40 {
                db.begin_write().unwrap();
                db.put_integer(tree, key, &[7; 5000]).unwrap();
                db.commit(Durability::Flush).unwrap();
            }
            db.close().unwrap();
            let mut db = open();
            db.begin_write().unwrap();
            assert!(db.delete_integer(tree, 1).unwrap());
            db.commit(Durability::Flush).unwrap();
            let view = db.snapshot().unwrap();
            assert_eq!(db.count(view.version(), tree).unwrap(), 38);
        }
    }

    #[test]
    fn a_map_page_comes_back() {
        let mut map = FreeMap::new(SPAN + 100);
        for p in [6, 63, 64, 9999, SPAN - 1, SPAN + 7] {
            map.insert(p);
        }
        let mut read = FreeMap::new(map.hwm);
        for span in 0..map.spans() {
            let image = map.encode(span, PageNo(4), 7);
            read.decode(&image, span).unwrap();
        }
        assert_eq!(read.words(), map.words());
        assert_eq!(read.count(), 6);
    }
}
