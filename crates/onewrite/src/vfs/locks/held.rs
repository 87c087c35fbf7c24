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
        if start >= end {
            return;
        }
        // SQLite locks and unlocks six times in a commit, mostly what it does not hold, and just that.
        let from = self.0.iter().take_while(|held| held.end <= start).count();
        match self.0.get_mut(from) {
            Some(held) if held.start < end => {
                if (held.start, held.end) == (start, end) {
                    match kind {
                        OfdType::Unlock => drop(self.0.remove(from)),
                        kind => held.kind = kind,
                    }
                    return;
                }
            }
            _ => {
                if kind != OfdType::Unlock {
                    self.0.insert(from, Segment { start, end, kind });
                }
                return;
            }
        }
        // Those that overlap it.
        let to = self.0.partition_point(|held| held.start < end);
        let old = self.0.get(from..to).unwrap_or_default();
        let before = old.first().filter(|held| held.start < start);
        let behind = old.last().filter(|held| held.end > end);
        let parts = [
            before.map(|held| Segment {
                end: start,
                ..*held
            }),
            (kind != OfdType::Unlock).then_some(Segment { start, end, kind }),
            behind.map(|held| Segment {
                start: end,
                ..*held
            }),
        ];
        self.0.drain(from..to);
        for part in parts.into_iter().rev().flatten() {
            self.0.insert(from, part);
        }
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
    use proptest::prelude::*;

    fn range(start: i64, len: i64) -> OfdRange {
        OfdRange { start, len }
    }

    fn all(held: &Held) -> Vec<(i64, i64, OfdType)> {
        held.iter()
            .map(|(range, kind)| (range.start, range.len, kind))
            .collect()
    }

    proptest! {
        #[test]
        fn each_byte_is_held_as_it_was_locked_last(
            locks in prop::collection::vec((0i64..20, 0i64..8, 0usize..3), 1..30),
        ) {
            let mut held = Held::default();
            let mut bytes = [OfdType::Unlock; 32];
            for (start, len, kind) in locks {
                let kind = [OfdType::Read, OfdType::Write, OfdType::Unlock][kind];
                held.set(range(start, len), kind);
                let end = if len == 0 { 32 } else { start + len };
                bytes[start as usize..end as usize].fill(kind);
                let mut read = [OfdType::Unlock; 32];
                for (range, kind) in held.iter() {
                    let bytes = &mut read[range.start as usize..end_of(range).min(32) as usize];
                    prop_assert!(bytes.iter().all(|kind| *kind == OfdType::Unlock));
                    prop_assert!(!bytes.is_empty());
                    bytes.fill(kind);
                }
                prop_assert_eq!(read, bytes);
            }
        }
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
