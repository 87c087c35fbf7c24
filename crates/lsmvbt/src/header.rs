//! The file's header: pages 0 and 1, written in turn, the higher `seq` counts.
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 16 | `LSMVBT format 7` and a zero byte |
//! | 16 | 4 | format version: 7 |
//! | 20 | 4 | page size: 4,096 |
//! | 24 | 8 | salt: random, in every page |
//! | 32 | 8 | `seq`: one more with every header written; odd ones stand in page 0 |
//! | 40 | 8 | floor: the version whose free map the maps hold; pages with a higher `ver` are in marked regions only, or of a commit that was lost with its header |
//! | 48 | 8 | settled: slots of this version and older need not be redone, and recovery never goes back before it, as it never does before the floor |
//! | 56 | 8 | history: versions to keep |
//! | 64 | 8 | the version since which that many have been kept |
//! | 72 | 4 | high-water mark, in pages |
//! | 76 | 4 | pages of a region: a power of two |
//! | 80 | 4 | first page of the slots of `double`, 0 if there are none yet |
//! | 84 | 4 | pages of one slot |
//! | 88 | 4 | marked regions in the list; 0xffffffff: all are marked |
//! | 92 | 4 | spans of the free map |
//! | 96 | 8 | reserved: no page has a higher `ver` before another header is durable; 0: none has a higher `ver` than the pages in marked regions |
//! | 104 | 4 | ranges of lost versions |
//! | 108 | 4 | history: seconds to keep; 0: see offset 56. See [`crate::history`] |
//! | 112 | 4 each | marked regions |
//! | then | 5 each | for each span: the valid copy of its map (0, 1; 2: no page of it is free), and its CRC |
//! | then | 16 each | for each range of lost versions: the last version before it, and its last one |
//! | then | 16 each | for each range of lost versions of which no page is left: the same; see [`crate::lost`] |
//! | 4084 | 4 | the number of these: they and those at offset 104 are 32 at most |
//! | 4088 | 4 | lives of the database that have ended since all of it was healed; 0: nothing is left to heal. See [`crate::heal`] |
//! | 4092 | 4 | CRC-32C of bytes 0 to 4,091 |
//!
//! Earlier releases write a 0 at offsets 4084 and 4088. A history then counts the numbers of the former
//! as versions.
//!
//! Format 1 had the digit 1 in both places, regions of 64 pages, and the marked regions at offset
//! 96; nothing was reserved or lost. Format 2 had a 0 at offset 108. Format 3 had no page of meta
//! values. Format 4 had no slots that leave their transaction open: see [`crate::rounds`]. Format 5 had
//! no images in the heads of slots: see [`crate::heads`]. The first header that is written to such a
//! file is one of format 7, in both pages.
//!
//! A torn header leaves the other one, which was durable before this one was begun. See
//! [`crate::commit`], which never has two headers in flight.

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::freemap::{MAP_AT, SPAN};
use crate::lost::{Lost, MAX_LOST};
use crate::page::{Image, set_u32, set_u64, u32_at, u64_at};
use crate::slots::Slots;
use crate::types::{PAGE_SIZE, PageNo};

/// The first 16 bytes of a database.
pub const MAGIC: &[u8; 16] = b"LSMVBT format 7\0";
/// The format version of this crate.
pub(crate) const FORMAT: u32 = 7;
/// Pages of a region of format 1.
const REGION_1: u32 = 64;
/// Marked regions that fit into a header of format 1.
const MAX_MARKS_1: usize = 400;
/// Marked regions that always fit.
pub(crate) const MAX_MARKS: usize = 256;
/// The start of the lists, and of those of format 1.
const LISTS: usize = 112;
const LISTS_1: usize = 96;
const COUNTED: usize = PAGE_SIZE - 12;
/// The first format that may have numbers there, and at the offset after it.
const FIRST_COUNTED: u32 = 5;
const UNHEALED: usize = PAGE_SIZE - 8;
const CHECKSUM: usize = PAGE_SIZE - 4;
/// Spans that fit: 59 GiB. See [`crate::freemap::MAX_PAGES`].
pub(crate) const MAX_SPANS: usize = 479;
const ALL: u32 = u32::MAX;
const _: () = assert!(LISTS + 4 * MAX_MARKS + 5 * MAX_SPANS + 16 * MAX_LOST <= COUNTED);

/// True for the first bytes of a database that this crate can open.
pub(crate) fn is_magic(bytes: &[u8]) -> bool {
    let (name, rest) = bytes.split_at_checked(14).unwrap_or_default();
    let digit = |digit: &u8| (b'1'..=MAGIC[14]).contains(digit);
    name == &MAGIC[..14] && rest.first().is_some_and(digit) && rest.get(1) == Some(&0)
}

/// The regions that recovery must read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Marks {
    /// These.
    Some(BTreeSet<u32>),
    /// The whole file.
    All,
}

impl Marks {
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Marks::Some(set) if set.is_empty())
    }
}

/// One span's map: which copy, and its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapRef {
    /// 0 or 1; 2 when the span has no free page and no map was written.
    pub(crate) copy: u8,
    pub(crate) crc: u32,
}

/// A header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) salt: u64,
    pub(crate) seq: u64,
    pub(crate) floor: u64,
    pub(crate) settled: u64,
    pub(crate) history: u64,
    pub(crate) history_since: u64,
    /// The history is this span of time, not a number of versions; 0: it is not.
    pub(crate) history_seconds: u32,
    pub(crate) hwm: u32,
    pub(crate) slot_start: u32,
    pub(crate) slot_pages: u32,
    /// False if this one, or the one in the other page, is of an older format. All are written in the newest.
    pub(crate) is_newest_format: bool,
    /// Pages of a region.
    pub(crate) region: u32,
    pub(crate) reserved: u64,
    /// Lives of the database that have ended since all of it was healed.
    pub(crate) unhealed: u32,
    pub(crate) lost: Lost,
    /// Lost versions of which no page is left. Only the history needs them.
    pub(crate) counted: Lost,
    pub(crate) marks: Marks,
    pub(crate) maps: Vec<MapRef>,
}

/// The error for a file of a newer format. Only its first 16 bytes are known: `LSMVBT format ` and a
/// digit.
pub(crate) fn newer_format(image: &Image) -> Option<Error> {
    let digit = *image.strip_prefix(&MAGIC[..14])?.first()?;
    let found = char::from(digit).to_digit(10)?;
    (found > FORMAT).then_some(Error::NewerFormat {
        found,
        supported: FORMAT,
    })
}

impl Header {
    /// Where this header stands.
    pub(crate) fn page(&self) -> PageNo {
        PageNo(if self.seq % 2 == 1 { 0 } else { 1 })
    }

    /// The pages of the maps that count.
    pub(crate) fn map_pages(&self) -> impl Iterator<Item = (u32, MapRef)> {
        let spans = self.maps.iter().zip(0u32..);
        spans.filter_map(|(map, span)| {
            let within = MAP_AT.get(usize::from(map.copy))?;
            Some((span * SPAN + within, *map))
        })
    }

    /// True if versions before the newest are kept.
    pub(crate) fn has_history(&self) -> bool {
        self.history > 0 || self.history_seconds > 0
    }

    /// Lives of the database that have ended since all of it was healed. Earlier releases count none;
    /// ranges of lost versions stay until a walk is over.
    pub(crate) fn lives_unhealed(&self) -> u64 {
        let is_open = !self.lost.ranges().is_empty();
        u64::from(self.unhealed.max(u32::from(is_open)))
    }

    /// True if no crash may add a range of lost versions.
    pub(crate) fn is_full_of_lost(&self) -> bool {
        self.lost.ranges().len() + self.counted.ranges().len() >= MAX_LOST
    }

    /// True if recovery looks at this page.
    pub(crate) fn marks(&self, page: u32) -> bool {
        match &self.marks {
            Marks::Some(set) => set.contains(&(page / self.region)),
            Marks::All => true,
        }
    }

    pub(crate) fn encode(&self) -> Result<Box<Image>> {
        let mut image: Box<Image> = Box::new([0; PAGE_SIZE]);
        image[..16].copy_from_slice(MAGIC);
        set_u32(&mut image[..], 16, FORMAT);
        set_u32(&mut image[..], 20, PAGE_SIZE as u32);
        let words = [
            self.salt,
            self.seq,
            self.floor,
            self.settled,
            self.history,
            self.history_since,
        ];
        for (i, word) in words.into_iter().enumerate() {
            set_u64(&mut image[..], 24 + 8 * i, word);
        }
        let listed = match &self.marks {
            Marks::All => 0,
            Marks::Some(set) => set.len(),
        };
        let (lost, counted) = (self.lost.ranges(), self.counted.ranges());
        let ranges = lost.len() + counted.len();
        if LISTS + 4 * listed + 5 * self.maps.len() + 16 * ranges > COUNTED {
            return Err(Error::TooBig("the file, or the list of marked regions"));
        }
        let numbers = [self.hwm, self.region, self.slot_start, self.slot_pages];
        for (i, number) in numbers.into_iter().enumerate() {
            set_u32(&mut image[..], 72 + 4 * i, number);
        }
        set_u32(&mut image[..], 92, self.maps.len() as u32);
        set_u64(&mut image[..], 96, self.reserved);
        set_u32(&mut image[..], 104, lost.len() as u32);
        set_u32(&mut image[..], 108, self.history_seconds);
        set_u32(&mut image[..], COUNTED, counted.len() as u32);
        set_u32(&mut image[..], UNHEALED, self.unhealed);
        let mut at = LISTS;
        match &self.marks {
            Marks::All => set_u32(&mut image[..], 88, ALL),
            Marks::Some(set) => {
                set_u32(&mut image[..], 88, listed as u32);
                for region in set {
                    set_u32(&mut image[..], at, *region);
                    at += 4;
                }
            }
        }
        for map in &self.maps {
            image[at] = map.copy;
            set_u32(&mut image[..], at + 1, map.crc);
            at += 5;
        }
        for (after, to) in lost.iter().chain(counted) {
            set_u64(&mut image[..], at, *after);
            set_u64(&mut image[..], at + 8, *to);
            at += 16;
        }
        let crc = crc32c::crc32c(&image[..CHECKSUM]);
        set_u32(&mut image[..], CHECKSUM, crc);
        Ok(image)
    }

    /// Reads a header: `Ok(None)` if these bytes are none (torn, or never written).
    ///
    /// # Errors
    /// `NewerFormat`.
    pub(crate) fn decode(image: &Image, page: PageNo) -> Result<Option<Header>> {
        if !is_magic(image) || crc32c::crc32c(&image[..CHECKSUM]) != u32_at(image, CHECKSUM) {
            return Ok(None);
        }
        let found = u32_at(image, 16);
        if found > FORMAT {
            return Err(Error::NewerFormat {
                found,
                supported: FORMAT,
            });
        }
        let damaged = |what| Error::Damaged { page, what };
        let is_newest_format = found == FORMAT;
        let region = u32_at(image, 76);
        let is_first = found < 2;
        let known = region.is_power_of_two() && (!is_first || region == REGION_1);
        if u32_at(image, 20) != PAGE_SIZE as u32 || !known {
            return Err(damaged("its page or region size is not supported"));
        }
        if Slots::at(u32_at(image, 80), u32_at(image, 84)).is_none() {
            return Err(damaged("its slots lie beyond any file"));
        }
        // The lists of format 1 may reach there.
        let late = |at| match found < FIRST_COUNTED {
            true => 0,
            false => u32_at(image, at),
        };
        let lists = Header::lists(image, is_first, late(COUNTED) as usize);
        let (marks, maps, lost, counted) = lists.ok_or(damaged("its lists are too long"))?;
        let header = Header {
            salt: u64_at(image, 24),
            seq: u64_at(image, 32),
            floor: u64_at(image, 40),
            settled: u64_at(image, 48),
            history: u64_at(image, 56),
            history_since: u64_at(image, 64),
            history_seconds: if found < 3 { 0 } else { u32_at(image, 108) },
            hwm: u32_at(image, 72),
            slot_start: u32_at(image, 80),
            slot_pages: u32_at(image, 84),
            is_newest_format,
            region,
            reserved: if is_first { 0 } else { u64_at(image, 96) },
            unhealed: late(UNHEALED),
            lost,
            counted,
            marks,
            maps,
        };
        Ok((header.page() == page).then_some(header))
    }

    /// The lists of a header; `None` if they cannot be right.
    fn lists(
        image: &Image,
        is_first: bool,
        counted: usize,
    ) -> Option<(Marks, Vec<MapRef>, Lost, Lost)> {
        let count = u32_at(image, 88);
        let listed = if count == ALL { 0 } else { count as usize };
        let spans = u32_at(image, 92) as usize;
        let (from, ranges) = match is_first {
            true => (LISTS_1, 0),
            false => (LISTS, u32_at(image, 104) as usize),
        };
        let is_long = counted > MAX_LOST || ranges > MAX_LOST - counted;
        if listed > MAX_MARKS_1 || spans > MAX_SPANS || is_long {
            return None;
        }
        let maps_at = from + 4 * listed;
        let lost_at = maps_at + 5 * spans;
        if lost_at + 16 * (ranges + counted) > CHECKSUM {
            return None;
        }
        let marks = match count {
            ALL => Marks::All,
            // A header of a later format has no room for all of them next to its other lists.
            _ if listed > MAX_MARKS => Marks::All,
            _ => Marks::Some((0..listed).map(|i| u32_at(image, from + 4 * i)).collect()),
        };
        let map = |at| MapRef {
            copy: image[at],
            crc: u32_at(image, at + 1),
        };
        let maps = (0..spans).map(|i| map(maps_at + 5 * i)).collect();
        let range = |at| (u64_at(image, at), u64_at(image, at + 8));
        let all = (0..ranges + counted).map(|i| range(lost_at + 16 * i));
        let mut lost: Vec<(u64, u64)> = all.collect();
        let counted = Lost::from_ranges(lost.split_off(ranges))?;
        Some((marks, maps, Lost::from_ranges(lost)?, counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(ranges: u64) -> Lost {
        Lost::from_ranges((0..ranges).map(|i| (3 * i, 3 * i + 2)).collect()).unwrap()
    }

    fn header() -> Header {
        Header {
            salt: 1,
            seq: 7,
            floor: 3,
            settled: 4,
            history: 5,
            history_since: 6,
            history_seconds: 10,
            hwm: 99,
            slot_start: 8,
            slot_pages: 9,
            is_newest_format: true,
            region: 8,
            reserved: 77,
            unhealed: 78,
            lost: lost(20),
            counted: lost(MAX_LOST as u64 - 20),
            marks: Marks::Some((0..MAX_MARKS as u32).collect()),
            maps: vec![
                MapRef {
                    copy: 1,
                    crc: 0xdead_beef
                };
                MAX_SPANS
            ],
        }
    }

    #[test]
    fn the_largest_header_comes_back() {
        let h = header();
        let image = h.encode().unwrap();
        assert_eq!(Header::decode(&image, PageNo(0)).unwrap(), Some(h));
        assert_eq!(Header::decode(&image, PageNo(1)).unwrap(), None);
    }

    #[test]
    fn a_changed_bit_is_noticed_and_a_newer_format_told() {
        let image = header().encode().unwrap();
        for at in [0, 20, 40, 200, 4000, 4095] {
            let mut bad = image.clone();
            bad[at] ^= 1;
            assert_eq!(Header::decode(&bad, PageNo(0)).unwrap(), None);
        }
        let mut newer = image.clone();
        let mut newest = image.clone();
        newest[14] += 1;
        let error = newer_format(&newest).unwrap().to_string();
        let version = format!("version {}", FORMAT + 1);
        assert!(error.contains(&version) && error.contains("upgrade"));
        assert!(newer_format(&image).is_none());
        set_u32(&mut newer[..], 16, FORMAT + 1);
        let crc = crc32c::crc32c(&newer[..4092]);
        set_u32(&mut newer[..], 4092, crc);
        assert!(matches!(
            Header::decode(&newer, PageNo(0)),
            Err(Error::NewerFormat { found, .. }) if found == FORMAT + 1
        ));
    }
}
