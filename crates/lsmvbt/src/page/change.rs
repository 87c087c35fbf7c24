//! The change of a page, carried by another one: see [`crate::late`].
//!
//! A change makes the next image of a page from its bytes in place. It has all bytes in which the two
//! differ, except in the free parts of the next image: its gap, and large holes between its cells. So it also
//! repairs a page of which a part of the next image was written, and the rest was not.
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | number of the page that it is for |
//! | 4 | [`sum`] of the next image |
//! | 1 | number of holes |
//! | 4 each | offset and length of a hole |
//! | rest | pieces, in the order of the page |
//!
//! | piece | what |
//! | --- | --- |
//! | number | so many bytes stay, of those from offset 48 on |
//! | number | twice the bytes that change, and one more if they become zeros |
//! | bytes | the new ones; none for zeros |
//!
//! Numbers in pieces are varints. A page carries a change in its gap, which goes on in its holes. The gap
//! begins with the number of these holes, and their offsets and lengths, as in a change.

use std::ops::Range;

use super::node::{Ended, Node};
use super::{
    HEADER, Image, Record, Stamp, put_record, seal, set_u16, set_u32, u16_at, u32_at, varint,
};
use crate::error::Result;
use crate::room;
use crate::types::PAGE_SIZE;

/// The bytes before the holes.
const HEAD: usize = 8;
/// The number of entries, and the offset of the first cell: the first bytes that a change may have.
const ENTRIES: usize = 48;
const CONTENT: usize = 50;
const FROM: usize = ENTRIES;
/// Two pieces that are this near each other are one: a piece begins with two numbers.
const NEAR: usize = 3;
/// Zeros from this number on are a piece of their own.
const ZEROS: usize = 8;
/// Holes at most, of so many bytes at least: smaller ones are not worth their offset.
const MOST_HOLES: usize = 8;
const WORTH: usize = 32;

/// An image without what belongs to one writing of it, and its holes.
#[derive(Debug)]
pub(crate) struct Cleared {
    image: Box<Image>,
    holes: Vec<Range<usize>>,
}

/// The gap of an image, between its slots and its cells; `None` if it has none.
fn gap(image: &Image) -> Option<Range<usize>> {
    let slots_end = HEADER + 2 * usize::from(u16_at(image, ENTRIES));
    let content = usize::from(u16_at(image, CONTENT));
    (slots_end <= content && content <= PAGE_SIZE).then_some(slots_end..content)
}

/// Appends holes.
fn put_holes(to: &mut Vec<u8>, holes: &[Range<usize>]) {
    to.push(holes.len() as u8);
    for hole in holes {
        to.extend_from_slice(&(hole.start as u16).to_le_bytes());
        to.extend_from_slice(&(hole.len() as u16).to_le_bytes());
    }
}

/// Reads holes, and the offset behind them.
fn holes_at(bytes: &[u8], mut at: usize) -> Option<(Vec<Range<usize>>, usize)> {
    let count = usize::from(*bytes.get(at)?);
    at += 1;
    let end = at + 4 * count;
    bytes.get(at..end).filter(|_| count <= MOST_HOLES)?;
    let mut holes = Vec::with_capacity(count);
    for at in (at..end).step_by(4) {
        let from = usize::from(u16_at(bytes, at));
        let to = from + usize::from(u16_at(bytes, at + 2));
        (HEADER <= from && to <= PAGE_SIZE).then(|| holes.push(from..to))?;
    }
    Some((holes, end))
}

impl Cleared {
    /// `image` has neither checksum nor versions yet, and zeros in its gap and its holes. Its cells have these
    /// places, in their order.
    pub(crate) fn new(image: Box<Image>, cells: &[Range<usize>]) -> Cleared {
        let ends = cells.iter().skip(1).map(|cell| cell.start);
        let holes = cells.iter().zip(ends.chain([PAGE_SIZE]));
        let mut holes: Vec<_> = holes
            .map(|(cell, end)| cell.end..end)
            .filter(|hole| hole.len() >= WORTH)
            .collect();
        holes.sort_unstable_by_key(|hole| std::cmp::Reverse(hole.len()));
        holes.truncate(MOST_HOLES);
        Cleared { image, holes }
    }

    /// An image that was written, or is to be.
    pub(crate) fn of(image: Box<Image>) -> Cleared {
        Cleared {
            image,
            holes: Vec::new(),
        }
    }

    /// Removes its checksum, its versions, its record, and what it carries.
    fn clear(&mut self) -> Option<()> {
        let gap = gap(&self.image)?;
        for free in self.holes.iter().cloned().chain([gap]) {
            self.image[free].fill(0);
        }
        self.image[18] = 0;
        for part in [0..4, 32..48, 52..60] {
            self.image[part].fill(0);
        }
        Some(())
    }

    /// The checksum of it.
    fn sum(&self) -> u32 {
        crc32c::crc32c(&self.image[..])
    }

    /// The change from the bytes of a page in place. The rest of an earlier change counts, too (MV46).
    pub(crate) fn change_from(&self, in_place: &Image) -> Option<Vec<u8>> {
        let mut change = vec![0; HEAD];
        set_u32(&mut change, 0, u32_at(&self.image[..], 4));
        set_u32(&mut change, 4, self.sum());
        put_holes(&mut change, &self.holes);
        let differing = self.differing(in_place)?;
        let (mut end, mut at) = (FROM, 0);
        while at < differing.len() {
            let from = differing[at];
            let mut to = from + 1;
            at += 1;
            while at < differing.len() && differing[at] - to <= NEAR {
                to = differing[at] + 1;
                at += 1;
            }
            put_pieces(&mut change, &mut end, from, &self.image[from..to]);
        }
        Some(change)
    }

    /// Offsets outside of what is free where it differs from these bytes.
    fn differing(&self, in_place: &Image) -> Option<Vec<usize>> {
        let gap = gap(&self.image)?;
        let is_free = |at: &usize| self.holes.iter().any(|hole| hole.contains(at));
        let outside = (FROM..52)
            .chain(HEADER..gap.start)
            .chain(gap.end..PAGE_SIZE);
        let differs = |at: &usize| in_place[*at] != self.image[*at] && !is_free(at);
        Some(outside.filter(differs).collect())
    }

    /// The next image of a page, from its bytes in place, or from any mixture of both. `None` if the change
    /// is not for these bytes.
    pub(crate) fn by(change: &[u8], in_place: &Image) -> Result<Option<Cleared>> {
        let mut image = room::image()?;
        image.copy_from_slice(in_place);
        let made = holes_at(change, HEAD).and_then(|(holes, at)| {
            put(change, at, &mut image)?;
            let mut next = Cleared { image, holes };
            next.clear()?;
            (u32_at(change, 4) == next.sum()).then_some(next)
        });
        Ok(made)
    }

    /// A copy of it as one of this version, without a change.
    pub(crate) fn stamped(&self, stamp: Stamp) -> Result<Box<Image>> {
        let mut image = room::image()?;
        image.copy_from_slice(&self.image[..]);
        stamp.put(&mut image);
        seal(&mut image);
        Ok(image)
    }

    /// Bytes of a change that it has room for.
    pub(crate) fn room(&self) -> usize {
        let holes: usize = self.holes.iter().map(Range::len).sum();
        let table = 1 + 4 * self.holes.len();
        let gap = gap(&self.image).map_or(0, |gap| gap.len());
        match gap >= table + HEAD {
            true => gap + holes - table,
            false => 0,
        }
    }

    /// Puts a change, for which it has room, or else only an empty record into an image with these places.
    pub(crate) fn carry(&self, image: &mut Image, change: Option<&[u8]>) -> u32 {
        let (Some(change), Some(gap)) = (change, gap(image)) else {
            return put_record(image, &Record::default());
        };
        let mut holes = Vec::new();
        let mut parts = Vec::new();
        let mut left = change.len();
        let in_gap = |holes: usize| gap.len() - 1 - 4 * holes;
        while left > in_gap(holes.len()) && holes.len() < self.holes.len() {
            left = left.saturating_sub(self.holes[holes.len()].len());
            holes.push(self.holes[holes.len()].clone());
        }
        put_holes(&mut parts, &holes);
        let at = gap.start + parts.len();
        image[gap.start..at].copy_from_slice(&parts);
        image[18] |= CARRIES;
        set_u16(image, 52, 0);
        set_u32(image, 56, change.len() as u32);
        let mut rest = change;
        for place in std::iter::once(at..gap.end).chain(holes) {
            let (part, after) = rest.split_at(rest.len().min(place.len()));
            image[place.start..place.start + part.len()].copy_from_slice(part);
            rest = after;
        }
        seal(image)
    }
}

/// Appends new bytes at an offset; `end` is that of the piece before.
fn put_pieces(change: &mut Vec<u8>, end: &mut usize, from: usize, bytes: &[u8]) {
    let mut put = |from: usize, bytes: &[u8], are_zeros: bool| {
        if bytes.is_empty() {
            return;
        }
        varint::put(change, (from - *end) as u64);
        varint::put(change, 2 * bytes.len() as u64 + u64::from(are_zeros));
        if !are_zeros {
            change.extend_from_slice(bytes);
        }
        *end = from + bytes.len();
    };
    let (mut done, mut at) = (0, 0);
    while at < bytes.len() {
        let zeros = bytes[at..].iter().take_while(|b| **b == 0).count();
        if zeros >= ZEROS {
            put(from + done, &bytes[done..at], false);
            put(from + at, &bytes[at..at + zeros], true);
            done = at + zeros;
        }
        at += zeros.max(1);
    }
    put(from + done, &bytes[done..], false);
}

/// Puts the pieces of a change, from an offset on, into an image.
fn put(change: &[u8], mut at: usize, image: &mut Image) -> Option<()> {
    let mut end = FROM;
    while at < change.len() {
        let number = |at: &mut usize| usize::try_from(varint::get(change, at)?).ok();
        let from = end.checked_add(number(&mut at)?)?;
        let coded = number(&mut at)?;
        let (len, are_zeros) = (coded / 2, coded % 2 == 1);
        end = from.checked_add(len)?;
        let to = image.get_mut(from..end)?;
        if are_zeros {
            to.fill(0);
        } else {
            to.copy_from_slice(change.get(at..at.checked_add(len)?)?);
            at += len;
        }
    }
    Some(())
}

/// The node of a late page: of its page in place, and of its next image, which the commit `next.ver` has
/// made. An entry that the next image does not have any more ended in that commit.
pub(crate) fn late_node(before: &Node, next: &Node) -> Node {
    let mut node = Node::new(
        next.page,
        next.kind,
        next.tree_kind,
        next.tree,
        next.level,
        next.birth,
    );
    (node.ver, node.base, node.next) = (next.ver, next.base, next.next);
    let old = before.entries();
    let mut at = 0;
    let end_all = |node: &mut Node, from: usize, to: usize| {
        for e in old[from..to].iter().filter(|e| e.live()) {
            node.push_from(before, e);
            node.end(node.len() - 1, next.ver, Ended::Killed);
        }
    };
    for e in next.entries() {
        let same = |o: &_| Node::is_same_row(before, o, next, e);
        if let Some(gone) = old[at..].iter().position(same) {
            end_all(&mut node, at, at + gone);
            at += gone + 1;
        }
        node.push_from(next, e);
    }
    end_all(&mut node, at, old.len());
    node
}

// ---- in an image

/// The flags of a page that carries a change: its commit's record, which is empty, and the change.
const CARRIES: u8 = 1 | 2;

/// True if a verified image carries a change.
pub(crate) fn carries(image: &Image) -> bool {
    image[18] & CARRIES == CARRIES
}

/// The change that a verified image carries.
pub(crate) fn change_of(image: &Image) -> Option<Vec<u8>> {
    if !carries(image) {
        return None;
    }
    let gap = gap(image)?;
    let (holes, at) = holes_at(image, gap.start)?;
    let len = u32_at(image, 56) as usize;
    let mut change = Vec::new();
    for place in std::iter::once(at.min(gap.end)..gap.end).chain(holes) {
        let wanted = (len - change.len()).min(place.len());
        change.extend_from_slice(image.get(place.start..place.start + wanted)?);
    }
    (len >= HEAD && change.len() == len).then_some(change)
}

/// The page whose change a verified image carries; 0: none.
pub(crate) fn late_page_of(image: &Image) -> u32 {
    change_of(image).map_or(0, |change| u32_at(&change, 0))
}
