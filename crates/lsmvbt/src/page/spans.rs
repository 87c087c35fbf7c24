//! Of a node's entries what searches and scans want: a fifth of what they would have to read of the entries themselves, most
//! of which would not be in the processor's cache.

use super::Entry;
use crate::payloads::Span;

/// The length of a payload that is not all in the page.
const ELSEWHERE: u16 = u16::MAX;

/// Which of them a node has, beside where payloads stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct With {
    /// In integer trees.
    pub(crate) integers: bool,
    /// In nodes above the leaves.
    pub(crate) children: bool,
}

/// Where the payloads stand in the heap, integer keys, and children, entry by entry.
#[derive(Clone, Debug)]
pub(crate) struct Spans {
    spans: Vec<Span>,
    integers: Vec<i64>,
    children: Vec<u32>,
    with: With,
    elsewhere: usize,
    /// The first and the last integer key, so that a search need not go to where they stand.
    ends: (i64, i64),
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
    /// None, with room for so many.
    pub(crate) fn with_capacity(count: usize, with: With) -> Spans {
        Spans {
            spans: Vec::with_capacity(count),
            integers: Vec::with_capacity(if with.integers { count } else { 0 }),
            children: Vec::with_capacity(if with.children { count } else { 0 }),
            with,
            elsewhere: 0,
            ends: (0, 0),
        }
    }

    pub(crate) fn insert(&mut self, at: usize, e: &Entry) {
        let span = span(e);
        self.elsewhere += usize::from(span.len == ELSEWHERE);
        self.spans.insert(at, span);
        if self.with.integers {
            self.integers.insert(at, e.key);
            self.note_ends();
        }
        if self.with.children {
            self.children.insert(at, e.child);
        }
    }

    pub(crate) fn remove(&mut self, at: usize) {
        let span = self.spans.remove(at);
        self.elsewhere -= usize::from(span.len == ELSEWHERE);
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

    /// All, if every payload is in the page.
    pub(crate) fn whole(&self) -> Option<&[Span]> {
        (self.elsewhere == 0).then_some(&self.spans)
    }

    /// That of one entry, if its payload is in the page.
    pub(crate) fn get(&self, at: usize) -> Option<Span> {
        self.spans.get(at).copied().filter(|s| s.len != ELSEWHERE)
    }

    /// The entries around one whose payloads are in the page, as indexes. None, where its own is not.
    pub(crate) fn run(&self, at: usize) -> std::ops::Range<usize> {
        if self.elsewhere == 0 {
            return 0..self.spans.len();
        }
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
    pub(crate) fn slice(&self, run: std::ops::Range<usize>) -> (&[Span], &[i64]) {
        let integers = self.integers.get(run.clone()).unwrap_or_default();
        (&self.spans[run], integers)
    }
}
