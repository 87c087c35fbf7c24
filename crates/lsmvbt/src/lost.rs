//! Versions that never happened.
//!
//! A commit flushes its pages together with the header that marks their regions. So a power cut may
//! leave such a page on the device without its mark. Recovery does not see the page, and goes back
//! to the version before. The page still has all of that version, and entries of the lost one.
//!
//! Recovery therefore declares lost every version number that may have been in use. None of them is
//! used again (MV16). Every later header keeps these ranges (MV18). If a lost version wrote a page last,
//! a handle that reads the page strips it in memory (MV17). The next commit that changes the page writes
//! it so.
//!
//! When no page is left that a lost version wrote last, the ranges are forgotten: see [`crate::heal`]. A
//! history counts its versions, and must not count lost numbers. So with a history a header keeps the
//! numbers in ranges of a second kind, which only count ([`Lost::add_healed`]). They go when the oldest
//! version that is kept is above them. Where there are many, two become one that ends where the newer one
//! did. Then a version between them takes the place of a lost one, and more versions are kept than asked
//! for, never fewer.

/// Ranges that a header keeps. One place is left for a crash; when there is none, marks are flushed
/// before their pages, so that a crash needs none.
pub(crate) const MAX_LOST: usize = 32;
/// Ranges that only a history needs. The other places are for crashes.
const MAX_COUNTED: usize = 12;

/// Ranges of lost versions, in order. None touches the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// The last version before a range, and its last lost one.
    ranges: Vec<(u64, u64)>,
}

impl Lost {
    /// Adds the versions above `after` up to `to`, which is the newest of all.
    pub(crate) fn add(&mut self, after: u64, to: u64) {
        if after >= to {
            return;
        }
        let mut from = after;
        while let Some((low, _)) = self.ranges.pop_if(|(_, high)| *high >= after) {
            from = from.min(low);
        }
        self.ranges.push((from, to));
    }

    /// The last version before the range that has `version`, if it is a lost one.
    pub(crate) fn before(&self, version: u64) -> Option<u64> {
        let at = self.ranges.partition_point(|(_, to)| *to < version);
        let (after, _) = self.ranges.get(at)?;
        (*after < version).then_some(*after)
    }

    /// The version that lies `count` versions before `version`, without counting lost ones.
    pub(crate) fn back(&self, version: u64, count: u64) -> u64 {
        let (mut at, mut left) = (version, count);
        for (after, to) in self.ranges.iter().rev().filter(|range| range.0 < version) {
            let between = at.saturating_sub(*to);
            if left < between {
                break;
            }
            left -= between;
            at = at.min(*after);
        }
        at.saturating_sub(left)
    }

    /// Adds ranges of versions of which no page is left: see the module. Those that are known stay.
    pub(crate) fn add_healed(&mut self, healed: &Lost) {
        for (after, to) in &healed.ranges {
            let known = self.ranges.last().map_or(0, |(_, to)| *to);
            self.add((*after).max(known), *to);
        }
        while self.ranges.len() > MAX_COUNTED {
            // Those with the fewest numbers: so none comes to have most of them.
            let pairs = self.ranges.windows(2);
            let size = |pair: &[(u64, u64)]| pair.iter().map(|(after, to)| to - after).sum::<u64>();
            let least = pairs.map(size).enumerate().min_by_key(|(_, size)| *size);
            let Some((at, size)) = least else {
                return;
            };
            self.ranges.remove(at);
            let (after, to) = &mut self.ranges[at];
            *after = *to - size;
        }
    }

    /// Forgets ranges below the oldest version that is kept.
    pub(crate) fn forget_below(&mut self, oldest: u64) {
        self.ranges.retain(|(_, to)| *to >= oldest);
    }

    /// These ranges of versions of which no page is left, and newer ones.
    pub(crate) fn with_newer(&self, newer: &Lost) -> Lost {
        let known = self.ranges.last().map_or(0, |(_, to)| *to);
        let newer = newer.ranges.iter().filter(|(_, to)| *to > known);
        let ranges = self.ranges.iter().chain(newer).copied().collect();
        Lost { ranges }
    }

    pub(crate) fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// Ranges of a header; `None` if they are not in order.
    pub(crate) fn from_ranges(ranges: Vec<(u64, u64)>) -> Option<Lost> {
        let ordered = ranges.iter().all(|(after, to)| after < to)
            && ranges.windows(2).all(|pair| pair[0].1 < pair[1].0);
        (ordered && ranges.len() <= MAX_LOST).then_some(Lost { ranges })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_before_a_lost_one_is_found() {
        let mut lost = Lost::default();
        lost.add(10, 20);
        lost.add(30, 40);
        let found = [10, 11, 20, 21, 30, 31, 40, 41].map(|version| lost.before(version));
        let expected = [0, 10, 10, 0, 0, 30, 30, 0].map(|after| (after > 0).then_some(after));
        assert_eq!(found, expected);
        assert_eq!(Lost::from_ranges(lost.ranges().to_vec()), Some(lost));
    }

    #[test]
    fn lost_versions_do_not_count() {
        let mut lost = Lost::default();
        lost.add(10, 20);
        lost.add(30, 40);
        let back = [
            (45, 0),
            (45, 4),
            (45, 5),
            (45, 7),
            (45, 14),
            (45, 15),
            (45, 17),
            (9, 3),
            (35, 2),
        ];
        let found = back.map(|(version, count)| lost.back(version, count));
        assert_eq!(found, [45, 41, 30, 28, 21, 10, 8, 6, 28]);
        assert_eq!(lost.back(45, 100), 0);
    }

    /// Commits and crashes, one walk after each crash: as many versions are kept as asked for, and not many
    /// more.
    #[test]
    fn a_history_keeps_what_was_asked_for_however_many_crashes_there_are() {
        for (kept, between) in [(1000, 20), (100, 3), (40, 39), (300, 1), (7, 50)] {
            let (mut exact, mut counted) = (Lost::default(), Lost::default());
            let (mut newest, mut since, mut most) = (0, 0, 0);
            let mut real = Vec::new();
            for crash in 0..600 {
                for _ in 0..between {
                    newest += 1;
                    real.push(newest);
                    let low = counted.back(newest, kept).max(since);
                    let needed = real.len().saturating_sub(kept as usize + 1);
                    assert!(low <= real[needed], "{kept} {between} {crash}");
                    assert!(low <= exact.back(newest, kept));
                    let count = real.len() - real.partition_point(|version| *version < low);
                    most = most.max(count);
                }
                let mut healed = Lost::default();
                healed.add(newest, newest + 4096 + crash % 5);
                exact.add(newest, newest + 4096 + crash % 5);
                since = counted.back(newest, kept).max(since);
                counted.add_healed(&healed);
                counted.add_healed(&healed);
                counted.forget_below(since);
                assert!(counted.ranges().len() <= MAX_COUNTED);
                newest += 4096 + crash % 5;
            }
            println!("{kept} versions, a crash every {between}: {most} at most");
            assert!(
                most as u64 <= 1 + kept + kept / 2 + between,
                "{kept} {between}: {most}"
            );
        }
    }

    #[test]
    fn ranges_without_a_commit_between_them_become_one() {
        let mut lost = Lost::default();
        lost.add(5, 5);
        assert_eq!(lost.ranges(), []);
        for (after, to) in [(1, 3), (10, 20), (20, 30), (10, 40), (8, 50)] {
            lost.add(after, to);
        }
        assert_eq!(lost.ranges(), [(1, 3), (8, 50)]);
        assert_eq!(Lost::from_ranges(vec![(1, 3), (3, 5)]), None);
        assert_eq!(Lost::from_ranges(vec![(3, 3)]), None);
    }
}
