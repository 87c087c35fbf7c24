//! The owners of a device's sectors, as they change over time.

use std::collections::BTreeMap;
use std::ops::Range;

/// A map from ranges of sectors to their owners. It leaves out ranges without an owner.
#[derive(Clone, Debug)]
pub(crate) struct Extents<Owner> {
    // Start of a range to its end and owner; ranges do not overlap.
    ranges: BTreeMap<u64, (u64, Owner)>,
}

impl<Owner> Default for Extents<Owner> {
    fn default() -> Self {
        Self {
            ranges: BTreeMap::new(),
        }
    }
}

impl<Owner: Copy + PartialEq> Extents<Owner> {
    /// Gives a range to an owner and takes it from its previous owners.
    pub(crate) fn give(&mut self, range: Range<u64>, owner: Owner) {
        self.free(range.clone());
        if range.start < range.end {
            self.ranges.insert(range.start, (range.end, owner));
        }
    }

    /// Takes a range from its owners.
    pub(crate) fn free(&mut self, range: Range<u64>) {
        if range.start >= range.end {
            return;
        }
        let before = self
            .ranges
            .range(..range.start)
            .next_back()
            .map(|(s, (e, o))| (*s, *e, *o));
        if let Some((start, end, owner)) = before.filter(|(_, end, _)| *end > range.start) {
            self.ranges.insert(start, (range.start, owner));
            if end > range.end {
                self.ranges.insert(range.end, (end, owner));
            }
        }
        let inside: Vec<u64> = self
            .ranges
            .range(range.clone())
            .map(|(start, _)| *start)
            .collect();
        for start in inside {
            if let Some((end, owner)) = self.ranges.remove(&start)
                && end > range.end
            {
                self.ranges.insert(range.end, (end, owner));
            }
        }
    }

    /// The owners of a range, and the number of sectors of each piece, from start to end.
    pub(crate) fn owners(&self, range: Range<u64>) -> Vec<(Option<Owner>, u64)> {
        let mut pieces = Vec::new();
        let mut at = range.start;
        let first = self
            .ranges
            .range(..=at)
            .next_back()
            .map_or(at, |(start, _)| *start);
        for (start, (end, owner)) in self.ranges.range(first..range.end.max(first)) {
            let (from, to) = ((*start).max(at), (*end).min(range.end));
            if from >= to {
                continue;
            }
            if from > at {
                pieces.push((None, from - at));
            }
            pieces.push((Some(*owner), to - from));
            at = to;
        }
        if at < range.end {
            pieces.push((None, range.end - at));
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_later_owner_takes_the_middle_out_of_an_earlier_one() {
        let mut extents = Extents::default();
        extents.give(10..30, 'a');
        extents.give(15..20, 'b');
        extents.free(25..28);
        assert_eq!(
            extents.owners(5..35),
            [
                (None, 5),
                (Some('a'), 5),
                (Some('b'), 5),
                (Some('a'), 5),
                (None, 3),
                (Some('a'), 2),
                (None, 5),
            ]
        );
        assert_eq!(extents.owners(16..18), [(Some('b'), 2)]);
        assert_eq!(extents.owners(26..26), []);
    }

    proptest! {
        /// The map gives the same owner for every sector as an array of sectors.
        #[test]
        fn it_behaves_as_an_array_of_owners(
            steps in prop::collection::vec((0u64..64, 0u64..20, prop::option::of(0u8..4)), 0..60),
            asked in (0u64..70, 0u64..30),
        ) {
            let (mut extents, mut model) = (Extents::default(), [None; 100]);
            for (start, length, owner) in steps {
                match owner {
                    Some(owner) => extents.give(start..start + length, owner),
                    None => extents.free(start..start + length),
                }
                model[start as usize..(start + length) as usize].fill(owner);
            }
            let range = asked.0..asked.0 + asked.1;
            let flat: Vec<Option<u8>> = extents
                .owners(range.clone())
                .into_iter()
                .flat_map(|(owner, sectors)| vec![owner; sectors as usize])
                .collect();
            prop_assert_eq!(&flat[..], &model[range.start as usize..range.end as usize]);
        }
    }
}
