//! The ranges of a file that a description holds, as fcntl(2) has granted them.

use crate::storage::{OfdRange, OfdType};

/// Read or write locks on ranges that do not overlap, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Held(Vec<Segment>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Segment {
    start: i64,
    /// The first byte after the range; the largest number if it goes to the end of the file.
    end: i64,
    kind: OfdType,
}

fn end_of(range: OfdRange) -> i64 {
    match range.len {
        0 => i64::MAX,
        len => range.start.saturating_add(len),
    }
}

impl Held {
    /// Records that the range was locked or unlocked; this replaces what was there before.
    pub fn set(&mut self, range: OfdRange, kind: OfdType) {
        let (start, end) = (range.start, end_of(range));
        let before = self.0.iter().map(|held| Segment {
            end: held.end.min(start),
            ..*held
        });
        let behind = self.0.iter().map(|held| Segment {
            start: held.start.max(end),
            ..*held
        });
        let new = (kind != OfdType::Unlock).then_some(Segment { start, end, kind });
        let after = before.chain(new).chain(behind);
        let after = after.filter(|part| part.start < part.end).collect();
        self.0 = after;
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (OfdRange, OfdType)> {
        self.0.iter().map(|held| {
            let len = match held.end {
                i64::MAX => 0,
                end => end - held.start,
            };
            let range = OfdRange {
                start: held.start,
                len,
            };
            (range, held.kind)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: i64, len: i64) -> OfdRange {
        OfdRange { start, len }
    }

    fn all(held: &Held) -> Vec<(i64, i64, OfdType)> {
        held.iter()
            .map(|(range, kind)| (range.start, range.len, kind))
            .collect()
    }

    #[test]
    fn a_part_that_is_locked_otherwise_or_unlocked_is_cut_out() {
        let mut held = Held::default();
        held.set(range(10, 10), OfdType::Read);
        held.set(range(12, 2), OfdType::Write);
        let expected = [
            (10, 2, OfdType::Read),
            (12, 2, OfdType::Write),
            (14, 6, OfdType::Read),
        ];
        assert_eq!(all(&held), expected);
        held.set(range(13, 3), OfdType::Unlock);
        let expected = [
            (10, 2, OfdType::Read),
            (12, 1, OfdType::Write),
            (16, 4, OfdType::Read),
        ];
        assert_eq!(all(&held), expected);
        held.set(range(0, 0), OfdType::Unlock);
        assert!(held.is_empty());
    }

    #[test]
    fn a_range_to_the_end_of_the_file_has_no_length() {
        let mut held = Held::default();
        held.set(range(5, 0), OfdType::Read);
        assert_eq!(all(&held), [(5, 0, OfdType::Read)]);
        held.set(range(7, 1), OfdType::Unlock);
        assert_eq!(all(&held), [(5, 2, OfdType::Read), (8, 0, OfdType::Read)]);
    }
}
