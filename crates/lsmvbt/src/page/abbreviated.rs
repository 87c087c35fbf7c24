//! Abbreviated keys of a node, made after a few searches in it. Making them reads every key, which
//! a search by comparison does not do.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::payloads::{Payloads, Sought, Span};
use crate::prefetch::prefetch;

/// Searches without them.
const SEARCHES: u8 = 2;

/// The numbers of all keys of a node, cut down to the bits that distinguish them. Each takes two
/// bytes, so that those of many nodes fit the processor's cache. A search reads the last one of each
/// block, then one block: two or three lines of that cache, where halving would wait for each read.
/// While it waits for the block, the places of the block's keys are fetched.
#[derive(Debug)]
pub(crate) struct Numbers {
    kind: u32,
    /// The first key to compare with: a router covers the keys before the second one, whatever its
    /// own key is.
    from: usize,
    /// The number of keys from that one on.
    count: usize,
    /// The number of that key, which is the smallest.
    least: u64,
    /// The number of last bits that are dropped.
    shift: u32,
    /// The number of blocks in `all` before those of the keys. They have the last one of each of these.
    lasts: usize,
    all: Vec<Block>,
}

/// Signed, because processors compare such numbers at once; they are not negative.
type Cut = i16;
const BITS: u32 = Cut::BITS - 1;

/// Numbers that are compared at once. Behind the last one it is filled up with the highest.
type Block = [Cut; BLOCK];
const BLOCK: usize = 16;

fn blocks(cuts: impl ExactSizeIterator<Item = Cut>) -> Vec<Block> {
    let mut blocks = vec![[Cut::MAX; BLOCK]; cuts.len().div_ceil(BLOCK)];
    for (place, cut) in blocks.as_flattened_mut().iter_mut().zip(cuts) {
        *place = cut;
    }
    blocks
}

impl Numbers {
    fn new(kind: u32, numbers: &[u64], from: usize) -> Numbers {
        let compared = numbers.get(from..).unwrap_or_default();
        debug_assert!(compared.is_sorted());
        let least = compared.first().copied().unwrap_or(0);
        let most = compared.last().map_or(0, |last| last.saturating_sub(least));
        let shift = (u64::BITS - most.leading_zeros()).saturating_sub(BITS);
        let cut = |number: &u64| (number.saturating_sub(least) >> shift) as Cut;
        let cuts = blocks(compared.iter().map(cut));
        let mut all = blocks(cuts.iter().map(|block| block[BLOCK - 1]));
        let lasts = all.len();
        all.extend(cuts);
        Numbers {
            kind,
            from,
            count: compared.len(),
            least,
            shift,
            lasts,
            all,
        }
    }

    /// The keys that may be the sought one: their number, as far as it is kept, is its own. Keys
    /// before them are smaller, keys after them larger. `places` are those of all keys.
    pub(crate) fn alike(&self, number: u64, places: &[Span]) -> Range<usize> {
        let Some(above) = number.checked_sub(self.least) else {
            return self.from..self.from;
        };
        let Ok(cut) = Cut::try_from(above >> self.shift) else {
            let end = self.from + self.count;
            return end..end;
        };
        let (lasts, cuts) = self.all.split_at(self.lasts);
        let block = before(lasts.as_flattened(), cut);
        let of_block = places.get(self.from + block * BLOCK..).unwrap_or_default();
        prefetch(&of_block[..of_block.len().min(BLOCK)]);
        let within = cuts.get(block).map_or(0, |block| before(block, cut));
        let begin = block * BLOCK + within;
        let count = match cuts.as_flattened().get(begin..self.count) {
            Some([one, other, ..]) if *one == cut && *other == cut => {
                let same = &cuts.as_flattened()[begin..self.count];
                same.partition_point(|other| *other == cut)
            }
            Some([one, ..]) if *one == cut => 1,
            _ => 0,
        };
        let begin = self.from + begin;
        begin..begin + count
    }
}

/// The number of smaller ones, counted several at once.
#[inline]
fn before(blocks: &[Cut], cut: Cut) -> usize {
    let smaller: Cut = blocks.iter().map(|other| Cut::from(*other < cut)).sum();
    smaller as usize
}

/// See the module. A copy of a node for a change has none.
#[derive(Debug, Default)]
pub(crate) struct Abbreviated {
    made: OnceLock<Numbers>,
    searches: AtomicU8,
}

impl Clone for Abbreviated {
    fn clone(&self) -> Abbreviated {
        Abbreviated::default()
    }
}

impl Abbreviated {
    #[inline]
    pub(crate) fn is_made(&self) -> bool {
        self.made.get().is_some()
    }

    /// A key is inserted or removed.
    pub(crate) fn forget(&mut self) {
        *self = Abbreviated::default();
    }

    /// The numbers of all keys, and that of the sought one. `keys` are all keys of the node; those
    /// after the first `from` are in order.
    #[inline]
    pub(crate) fn of(
        &self,
        keys: Payloads<'_>,
        from: usize,
        sought: &dyn Sought,
    ) -> Option<(&Numbers, u64)> {
        let wanted = sought.abbreviation()?;
        let made = match self.made.get() {
            Some(made) => made,
            None => self.make(keys, from, wanted.kind, sought)?,
        };
        let fits = made.kind == wanted.kind && made.from + made.count == keys.spans().len();
        fits.then_some((made, wanted.sought))
    }

    #[cold]
    fn make(
        &self,
        keys: Payloads<'_>,
        from: usize,
        kind: u32,
        sought: &dyn Sought,
    ) -> Option<&Numbers> {
        let searches = self.searches.load(Ordering::Relaxed);
        if searches < SEARCHES {
            self.searches.store(searches + 1, Ordering::Relaxed);
            return None;
        }
        let all = sought.abbreviate(keys);
        Some(self.made.get_or_init(|| Numbers::new(kind, &all, from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EDGES: [u64; 11] = [
        0,
        1,
        2,
        u16::MAX as u64,
        1 << 16,
        (1 << 16) + 1,
        1 << 40,
        (1 << 40) + 1,
        1 << 63,
        u64::MAX - 1,
        u64::MAX,
    ];

    /// The range contains every key that may be equal, and keys outside are correctly smaller or
    /// larger.
    fn holds(numbers: &[u64], from: usize, sought: u64) {
        let alike = Numbers::new(1, numbers, from).alike(sought, &[]);
        let (begin, end) = (alike.start, alike.end);
        assert!(from <= begin && begin <= end);
        let shown = || format!("{sought} among {numbers:?} from {from}: {alike:?}");
        if let Some(compared) = numbers.get(from..begin) {
            assert!(compared.iter().all(|n| *n < sought), "{}", shown());
        }
        if let Some(behind) = numbers.get(end..) {
            assert!(behind.iter().all(|n| *n > sought), "{}", shown());
        }
    }

    #[test]
    fn what_is_cut_off_changes_no_order() {
        let mut all = vec![vec![]];
        for length in 1..=4 {
            let mut longer = Vec::new();
            for shorter in all.iter().filter(|one: &&Vec<u64>| one.len() == length - 1) {
                let least = shorter.last().copied().unwrap_or(0);
                let more = EDGES.iter().filter(|edge| **edge >= least);
                longer.extend(more.map(|edge| [&shorter[..], &[*edge]].concat()));
            }
            all.extend(longer);
        }
        for numbers in &all {
            for sought in EDGES {
                holds(numbers, 0, sought);
                // The first router's own number may be anything.
                let routers = [&[u64::MAX][..], numbers].concat();
                holds(&routers, 1, sought);
            }
        }
    }

    #[test]
    fn numbers_near_each_other_are_told_apart() {
        for count in (0..70).chain([255, 256, 257, 400]) {
            let numbers: Vec<u64> = (0..count).map(|n| (1 << 60) + n * 100).collect();
            let made = Numbers::new(1, &numbers, 0);
            for (at, number) in numbers.iter().enumerate() {
                assert_eq!(made.alike(*number, &[]), at..at + 1);
                assert_eq!(made.alike(number + 50, &[]), at + 1..at + 1);
            }
        }
    }

    #[test]
    fn equal_numbers_are_found_across_blocks() {
        for (smaller, same, larger) in [
            (0, 1, 0),
            (0, 40, 0),
            (15, 2, 15),
            (16, 1, 16),
            (20, 100, 3),
            (3, 16, 300),
        ] {
            let parts = [(1, smaller), (7, same), (u64::MAX, larger)];
            let numbers: Vec<u64> = parts
                .iter()
                .flat_map(|(n, count)| vec![*n; *count])
                .collect();
            holds(&numbers, 0, 7);
            assert_eq!(
                Numbers::new(1, &numbers[..smaller + same], 0).alike(7, &[]),
                smaller..smaller + same
            );
        }
    }
}
