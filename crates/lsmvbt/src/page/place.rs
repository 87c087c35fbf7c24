//! The next image of a page, over the one in place: cells that stay keep their places.
//!
//! So the two differ in few bytes, which another page can carry: see [`super::change`]. A new cell takes the
//! smallest hole that has room for it, and else the end of the gap. All bytes outside of cells become zeros.

use std::ops::Range;

use super::change::Cleared;
use super::node::{Entry, Node};
use super::{HEADER, Image, cell, set_u16, u16_at};
use crate::error::Result;
use crate::room;
use crate::types::PAGE_SIZE;

/// The places of an image that is being made.
#[derive(Default)]
struct Places {
    /// The cells that have their place.
    used: Vec<Range<usize>>,
}

impl Places {
    /// Takes this place, if nothing has it.
    fn try_take(&mut self, place: Range<usize>) -> Option<usize> {
        let is_free = |cell: &Range<usize>| cell.end <= place.start || place.end <= cell.start;
        let at = self.used.iter().all(is_free).then_some(place.start)?;
        self.used.push(place);
        Some(at)
    }

    /// Takes a place for a cell: the smallest hole between cells, or the end of the gap, which begins after
    /// the slots.
    fn take(&mut self, len: usize, slots_end: usize) -> Option<usize> {
        self.used.sort_unstable_by_key(|cell| cell.start);
        let content = self.used.first().map_or(PAGE_SIZE, |cell| cell.start);
        let ends = self.used.iter().skip(1).map(|cell| cell.start);
        let holes = self.used.iter().zip(ends.chain([PAGE_SIZE]));
        let holes = holes.map(|(cell, end)| cell.end..end.max(cell.end));
        let best = holes
            .filter(|hole| hole.len() >= len)
            .min_by_key(Range::len);
        let at = match best {
            Some(hole) => hole.end - len,
            None => content.checked_sub(len).filter(|at| *at >= slots_end)?,
        };
        self.used.push(at..at + len);
        Some(at)
    }
}

impl Node {
    /// The image of the entries of this node that `keeps` wants, over the image in place, of which `before`
    /// is the node; cleared. `None` if they have no room without moving others.
    pub(crate) fn next_image(
        &self,
        before: &Node,
        in_place: &Image,
        keeps: impl Fn(&Entry) -> bool,
    ) -> Result<Option<Cleared>> {
        let kept: Vec<&Entry> = self.entries().iter().filter(|e| keeps(e)).collect();
        let slots_end = HEADER + 2 * kept.len();
        let Some(places) = self.places_of(&kept, before, in_place, slots_end) else {
            return Ok(None);
        };
        let mut image = room::image()?;
        // Bytes 4 to 31 and 60 to 63 are those of the page as long as it lives, but for the flags.
        image[4..32].copy_from_slice(&in_place[4..32]);
        image[18] = 0;
        image[60..HEADER].copy_from_slice(&in_place[60..HEADER]);
        let (shape, mut bytes) = (self.shape(), Vec::with_capacity(64));
        let mut cells = Vec::with_capacity(kept.len());
        for (i, (e, at)) in kept.iter().zip(places).enumerate() {
            bytes.clear();
            cell::put(&mut bytes, e, self.local(e), shape, self.birth);
            image[at..at + bytes.len()].copy_from_slice(&bytes);
            set_u16(&mut image[..], HEADER + 2 * i, at as u16);
            cells.push(at..at + bytes.len());
        }
        cells.sort_unstable_by_key(|cell| cell.start);
        let content = cells.first().map_or(PAGE_SIZE, |cell| cell.start);
        set_u16(&mut image[..], 48, kept.len() as u16);
        set_u16(&mut image[..], 50, content as u16);
        Ok(Some(Cleared::new(image, &cells)))
    }

    /// The offset of each of these entries' cells in the next image.
    fn places_of(
        &self,
        kept: &[&Entry],
        before: &Node,
        in_place: &Image,
        slots_end: usize,
    ) -> Option<Vec<usize>> {
        let len_of = |e: &Entry| cell::len(e, self.shape(), self.birth);
        let mut places = Places::default();
        let mut offsets = vec![None; kept.len()];
        let mut ended = Vec::new();
        let mut from = 0;
        for (i, e) in kept.iter().enumerate() {
            let same = |o: &Entry| Node::is_same_row(before, o, self, e);
            let Some(gone) = before.entries()[from..].iter().position(same) else {
                continue;
            };
            let old = &before.entries()[from + gone];
            let at = usize::from(u16_at(in_place, HEADER + 2 * (from + gone)));
            from += gone + 1;
            // An entry that ends is longer, and its payload stays: it begins earlier.
            let end = at + cell::len(old, before.shape(), before.birth);
            match old.is_same(e) {
                true => offsets[i] = places.try_take(at..end),
                false => ended.push((i, end)),
            }
        }
        for (i, end) in ended {
            offsets[i] = end
                .checked_sub(len_of(kept[i]))
                .and_then(|at| places.try_take(at..end));
        }
        let places = kept.iter().zip(offsets).map(|(e, offset)| {
            offset
                .or_else(|| places.take(len_of(e), slots_end))
                .filter(|at| *at >= slots_end)
        });
        places.collect()
    }

    /// True if this node has all entries of `other` that `keeps` wants, as they are there.
    pub(crate) fn has_all(&self, other: &Node, keeps: impl Fn(&Entry) -> bool) -> bool {
        let mut from = 0;
        other.entries().iter().filter(|e| keeps(e)).all(|e| {
            let found = self.entries()[from..]
                .iter()
                .position(|o| o.is_same(e) && self.local(o) == other.local(e));
            from += found.map_or(0, |at| at + 1);
            found.is_some()
        })
    }

    /// True if both are of one row and version: the same but for the end.
    pub(crate) fn is_same_row(this: &Node, e: &Entry, other: &Node, o: &Entry) -> bool {
        let same_end = Entry {
            end: o.end,
            ended: o.ended,
            ..*e
        };
        same_end.is_same(o) && this.local(e) == other.local(o)
    }
}

impl Entry {
    /// True if both have the same cell but for the bytes of the payload.
    fn is_same(&self, other: &Entry) -> bool {
        Entry { off: 0, ..*self } == Entry { off: 0, ..*other }
    }
}
