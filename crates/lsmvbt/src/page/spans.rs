//! The parts of a node's entries that searches and scans read. They are a fifth of the entries
//! themselves, most of which would not be in the processor's cache.

use super::Entry;
use crate::payloads::Span;

/// The length of a payload that is not all in the page.
const ELSEWHERE: u16 = u16::MAX;

/// The parts of a node, apart from the places of payloads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct With {
    /// In integer trees.
    pub(crate) integers: bool,
    /// In nodes above the leaves.
    pub(crate) children: bool,
}

/// The places of payloads in the heap, integer keys, and children, entry by entry. Fields that are read
/// first come first, as in the node.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Spans {
    elsewhere: u32,
    /// An integer key was not larger than the one before it.
    repeats: bool,
    with: With,
    /// The first and the last integer key, so that a search need not read them in the list.
    ends: (i64, i64),
    spans: Vec<Span>,
    integers: Vec<i64>,
    children: Vec<u32>,
}

fn span(e: &Entry) -> Span {
    match u16::try_from(e.off) {
        Ok(offset) if e.overflow == 0 => Span {
            offset,
            len: e.local,
        },
        _ => Span {
            offset: 0,
            len: ELSEWHERE,
        },
    }
}

impl Spans {
    /// Empty, with room for `count` entries.
    pub(crate) fn with_capacity(count: usize, with: With) -> Spans {
        Spans {
            spans: Vec::with_capacity(count),
            integers: Vec::with_capacity(if with.integers { count } else { 0 }),
            children: Vec::with_capacity(if with.children { count } else { 0 }),
            with,
            elsewhere: 0,
            ends: (0, 0),
            repeats: false,
        }
    }

    pub(crate) fn insert(&mut self, at: usize, e: &Entry) {
        let span = span(e);
        self.elsewhere += u32::from(span.len == ELSEWHERE);
        self.spans.insert(at, span);
        if self.with.integers {
            self.integers.insert(at, e.key);
            let around = &self.integers[at.saturating_sub(1)..self.integers.len().min(at + 2)];
            self.repeats |= around.windows(2).any(|two| two[0] >= two[1]);
            self.note_ends();
        }
        if self.with.children {
            self.children.insert(at, e.child);
        }
    }

    pub(crate) fn remove(&mut self, at: usize) {
        let span = self.spans.remove(at);
        self.elsewhere -= u32::from(span.len == ELSEWHERE);
        if self.with.integers {
            self.integers.remove(at);
            self.note_ends();
        }
        if self.with.children {
            self.children.remove(at);
        }
    }

    fn note_ends(&mut self) {
        let end = |key: Option<&i64>| key.copied().unwrap_or_default();
        self.ends = (end(self.integers.first()), end(self.integers.last()));
    }

    /// Gives an entry another child.
    pub(crate) fn set_child(&mut self, at: usize, child: u32) {
        if let Some(known) = self.children.get_mut(at) {
            *known = child;
        }
    }

    pub(crate) fn children(&self) -> &[u32] {
        &self.children
    }

    pub(crate) fn integers(&self) -> &[i64] {
        &self.integers
    }

    /// The first and the last of them; zeros, if there are none.
    pub(crate) fn ends(&self) -> (i64, i64) {
        self.ends
    }

    /// The first and the last of integer keys that follow each other without a gap, as rowids
    /// mostly do. Then a key's place is known without a read of any other.
    #[inline]
    pub(crate) fn consecutive(&self) -> Option<(i64, i64)> {
        let (first, last) = self.ends;
        let gaps = usize::try_from(last.wrapping_sub(first)).ok()?;
        (!self.repeats && gaps + 1 == self.integers.len()).then_some(self.ends)
    }

    /// The integer key of an entry; 0, if there are none.
    #[inline]
    pub(crate) fn integer(&self, at: usize) -> i64 {
        match self.consecutive() {
            Some((first, _)) => first + at as i64,
            None => self.integers.get(at).copied().unwrap_or_default(),
        }
    }

    /// All, if every payload is in the page.
    pub(crate) fn whole(&self) -> Option<&[Span]> {
        (self.elsewhere == 0).then_some(&self.spans)
    }

    /// The one of an entry, if its payload is in the page.
    pub(crate) fn get(&self, at: usize) -> Option<Span> {
        self.spans.get(at).copied().filter(|s| s.len != ELSEWHERE)
    }

    /// The entries around one whose payloads are in the page, as indexes. `None` where its own is
    /// not.
    #[inline]
    pub(crate) fn run(&self, at: usize) -> std::ops::Range<usize> {
        if self.elsewhere == 0 {
            return 0..self.spans.len();
        }
        self.run_of_some(at)
    }

    fn run_of_some(&self, at: usize) -> std::ops::Range<usize> {
        let is_here = |s: &&Span| s.len != ELSEWHERE;
        let before = self.spans[..at].iter().rev().take_while(is_here).count();
        let from = self.spans[at..].iter().take_while(is_here).count();
        if from == 0 {
            at..at
        } else {
            at - before..at + from
        }
    }

    /// Those of a run.
    #[inline]
    pub(crate) fn slice(&self, run: std::ops::Range<usize>) -> (&[Span], &[i64]) {
        let integers = self.integers.get(run.clone()).unwrap_or_default();
        (&self.spans[run], integers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: i64) -> Entry {
        Entry {
            key,
            ..Entry::default()
        }
    }

    fn of(keys: &[i64]) -> Spans {
        let with = With {
            integers: true,
            children: false,
        };
        let mut spans = Spans::with_capacity(keys.len(), with);
        for (at, key) in keys.iter().enumerate() {
            spans.insert(at, &entry(*key));
        }
        spans
    }

    #[test]
    fn consecutive_keys_are_those_without_gaps_and_repetitions() {
        assert_eq!(of(&[7]).consecutive(), Some((7, 7)));
        assert_eq!(of(&[-1, 0, 1]).consecutive(), Some((-1, 1)));
        let (least, most) = (i64::MIN, i64::MAX);
        assert_eq!(of(&[most - 1, most]).consecutive(), Some((most - 1, most)));
        for none in [
            &[][..],
            &[1, 3],
            &[1, 1, 3],
            &[1, 3, 3],
            &[1, 3, 2],
            &[3, 2, 1],
            &[least, most],
            &[least, 0, most],
        ] {
            assert_eq!(of(none).consecutive(), None, "{none:?}");
        }
    }

    #[test]
    fn what_is_removed_leaves_a_gap_that_may_be_filled() {
        let mut spans = of(&[1, 2, 3]);
        spans.remove(1);
        assert_eq!(spans.consecutive(), None);
        spans.insert(1, &entry(2));
        assert_eq!(spans.consecutive(), Some((1, 3)));
    }
}
