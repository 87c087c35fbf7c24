//! The file's header: pages 0 and 1, written in turn, the higher `seq` counts.
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 16 | `LSMVBT format 1` and a zero byte |
//! | 16 | 4 | format version: 1 |
//! | 20 | 4 | page size: 4,096 |
//! | 24 | 8 | salt: random, in every page |
//! | 32 | 8 | `seq`: one more with every header written; odd ones stand in page 0 |
//! | 40 | 8 | floor: the version whose free map the maps hold; pages with a higher `ver` are in marked regions only |
//! | 48 | 8 | settled: slots of this version and older need not be redone, and recovery never goes back before it, as it never does before the floor |
//! | 56 | 8 | history: versions to keep |
//! | 64 | 8 | the version since which that many have been kept |
//! | 72 | 4 | high-water mark, in pages |
//! | 76 | 4 | pages of a region: 64 |
//! | 80 | 4 | first page of the slots of `double`, 0 if there are none yet |
//! | 84 | 4 | pages of one slot |
//! | 88 | 4 | marked regions in the list; 0xffffffff: all are marked |
//! | 92 | 4 | spans of the free map |
//! | 96 | 4 each | marked regions |
//! | then | 5 each | for each span: the valid copy of its map (0, 1; 2: no page of it is free), and its CRC |
//! | 4092 | 4 | CRC-32C of bytes 0 to 4,091 |
//!
//! A torn header leaves the other one, which was durable before this one was begun. See
//! [`crate::commit`], which never has two headers in flight.

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::freemap::{MAP_AT, SPAN};
use crate::page::{Image, set_u32, set_u64, u32_at, u64_at};
use crate::slots::Slots;
use crate::types::{PAGE_SIZE, PageNo};

/// The first 16 bytes of a database.
pub const MAGIC: &[u8; 16] = b"LSMVBT format 1\0";
/// The format version of this crate.
pub(crate) const FORMAT: u32 = 1;
/// Pages of a region.
pub(crate) const REGION: u32 = 64;
/// Marked regions that fit.
pub(crate) const MAX_MARKS: usize = 400;
/// Spans that fit: 59 GiB. See [`crate::freemap::MAX_PAGES`].
pub(crate) const MAX_SPANS: usize = 479;
const ALL: u32 = u32::MAX;

/// The regions that recovery must read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Marks {
    /// These.
    Some(BTreeSet<u32>),
    /// The whole file.
    All,
}

impl Marks {
    pub(crate) fn has(&self, page: u32) -> bool {
        match self {
            Marks::Some(set) => set.contains(&(page / REGION)),
            Marks::All => true,
        }
    }

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
    pub(crate) hwm: u32,
    pub(crate) slot_start: u32,
    pub(crate) slot_pages: u32,
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
        set_u32(&mut image[..], 72, self.hwm);
        set_u32(&mut image[..], 76, REGION);
        set_u32(&mut image[..], 80, self.slot_start);
        set_u32(&mut image[..], 84, self.slot_pages);
        if self.maps.len() > MAX_SPANS {
            return Err(Error::TooBig("the file"));
        }
        set_u32(&mut image[..], 92, self.maps.len() as u32);
        let mut at = 96;
        match &self.marks {
            Marks::All => set_u32(&mut image[..], 88, ALL),
            Marks::Some(set) if set.len() > MAX_MARKS => {
                return Err(Error::TooBig("the list of marked regions"));
            }
            Marks::Some(set) => {
                set_u32(&mut image[..], 88, set.len() as u32);
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
        let crc = crc32c::crc32c(&image[..PAGE_SIZE - 4]);
        set_u32(&mut image[..], PAGE_SIZE - 4, crc);
        Ok(image)
    }

    /// Reads a header: `Ok(None)` if these bytes are none (torn, or never written).
    ///
    /// # Errors
    /// `NewerFormat`.
    pub(crate) fn decode(image: &Image, page: PageNo) -> Result<Option<Header>> {
        if &image[..16] != MAGIC
            || crc32c::crc32c(&image[..PAGE_SIZE - 4]) != u32_at(image, PAGE_SIZE - 4)
        {
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
        if u32_at(image, 20) != PAGE_SIZE as u32 || u32_at(image, 76) != REGION {
            return Err(damaged("its page or region size is not supported"));
        }
        let count = u32_at(image, 88);
        let spans = u32_at(image, 92) as usize;
        let listed = if count == ALL { 0 } else { count as usize };
        if listed > MAX_MARKS || spans > MAX_SPANS {
            return Err(damaged("its lists are too long"));
        }
        if Slots::at(u32_at(image, 80), u32_at(image, 84)).is_none() {
            return Err(damaged("its slots lie beyond any file"));
        }
        let marks = if count == ALL {
            Marks::All
        } else {
            Marks::Some((0..listed).map(|i| u32_at(image, 96 + 4 * i)).collect())
        };
        let from = 96 + 4 * listed;
        let maps = (0..spans)
            .map(|i| MapRef {
                copy: image[from + 5 * i],
                crc: u32_at(image, from + 5 * i + 1),
            })
            .collect();
        let header = Header {
            salt: u64_at(image, 24),
            seq: u64_at(image, 32),
            floor: u64_at(image, 40),
            settled: u64_at(image, 48),
            history: u64_at(image, 56),
            history_since: u64_at(image, 64),
            hwm: u32_at(image, 72),
            slot_start: u32_at(image, 80),
            slot_pages: u32_at(image, 84),
            marks,
            maps,
        };
        Ok((header.page() == page).then_some(header))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            salt: 1,
            seq: 7,
            floor: 3,
            settled: 4,
            history: 5,
            history_since: 6,
            hwm: 99,
            slot_start: 8,
            slot_pages: 9,
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
        newest[14] = b'3';
        let error = newer_format(&newest).unwrap().to_string();
        assert!(error.contains("version 3") && error.contains("upgrade"));
        assert!(newer_format(&image).is_none());
        set_u32(&mut newer[..], 16, 2);
        let crc = crc32c::crc32c(&newer[..4092]);
        set_u32(&mut newer[..], 4092, crc);
        assert!(matches!(
            Header::decode(&newer, PageNo(0)),
            Err(Error::NewerFormat { found: 2, .. })
        ));
    }
}
