//! Payloads as they stand in a page, and what is looked for among them.

use std::cmp::Ordering;
use std::ops::Range;

use crate::error::Result;

/// Where a payload stands in the bytes of its page.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Span {
    /// Of its first byte.
    pub offset: u16,
    /// In bytes.
    pub len: u16,
}

/// Payloads of neighbors in a page, in order, each of which is there as a whole. [`crate::READABLE_BEHIND`] bytes behind each
/// may be read.
#[derive(Clone, Copy, Debug)]
pub struct Payloads<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Payloads<'a> {
    pub(crate) fn new(bytes: &'a [u8], spans: &'a [Span]) -> Payloads<'a> {
        debug_assert!(spans.iter().all(|span| {
            usize::from(span.offset) + usize::from(span.len) + crate::page::PADDING <= bytes.len()
        }));
        Payloads { bytes, spans }
    }

    /// The bytes that they stand in.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Where each stands in them.
    pub fn spans(&self) -> &'a [Span] {
        self.spans
    }

    /// Those of some of the indexes.
    ///
    /// # Panics
    /// If there are not so many.
    pub(crate) fn part(self, indexes: Range<usize>) -> Payloads<'a> {
        Payloads {
            spans: &self.spans[indexes],
            ..self
        }
    }

    /// The payload at an index.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    pub fn at(&self, index: usize) -> &'a [u8] {
        let span = self.spans[index];
        &self.bytes[usize::from(span.offset)..][..usize::from(span.len)]
    }
}

/// The entries of a page around the one that a cursor stands on, as far as they can be shown.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// Their payloads.
    pub payloads: Payloads<'a>,
    /// Their keys in an `Integer` tree, otherwise nothing.
    pub integers: &'a [i64],
    /// Which of them it stands on.
    pub at: usize,
    /// The key of that one in an `Integer` tree, otherwise 0.
    pub integer: i64,
}

/// What [`Sought::search`] finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// How many of the keys are not larger than what is sought.
    pub not_larger: usize,
    /// Whether the last of these was compared, and is equal to it.
    pub equal: bool,
}

/// Numbers that stand for keys, which a search compares before it looks at a key: abbreviated keys, as sorting knows them. Of
/// two keys in the order of the tree the second one's is not smaller; what they do not tell, [`Sought::search`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abbreviation {
    /// How they are made. Numbers that are made otherwise say nothing about these.
    pub kind: u32,
    /// That of what is sought.
    pub sought: u64,
}

/// What a search by comparison looks for. Functions that compare a stored key are, too.
pub trait Sought {
    /// How a stored key, with [`crate::READABLE_BEHIND`] bytes after it, lies to what is sought. It must be consistent with
    /// the order of the tree, but may call several keys equal, as a prefix does.
    ///
    /// # Errors
    /// They end the search.
    fn compare(&mut self, stored: &[u8]) -> Result<Ordering>;

    /// Searches keys by halving; those before `from` are known not to be larger. To be written anew where a call for each
    /// comparison costs more than the comparison.
    ///
    /// # Errors
    /// As [`Sought::compare`].
    fn search(&mut self, keys: Payloads<'_>, from: usize) -> Result<Found> {
        halve(from, keys.spans.len(), |at| self.compare(keys.at(at)))
    }

    /// Where keys may be abbreviated: how, and to what the sought one is.
    fn abbreviation(&self) -> Option<Abbreviation> {
        None
    }

    /// Abbreviates keys, in the way that [`Sought::abbreviation`] tells. Pages that are searched again keep the numbers.
    fn abbreviate(&self, _keys: Payloads<'_>) -> Vec<u64> {
        Vec::new()
    }
}

impl<F: FnMut(&[u8]) -> Result<Ordering>> Sought for F {
    fn compare(&mut self, stored: &[u8]) -> Result<Ordering> {
        self(stored)
    }
}

/// Searches by halving between two indexes.
pub(crate) fn halve(
    from: usize,
    to: usize,
    mut compare: impl FnMut(usize) -> Result<Ordering>,
) -> Result<Found> {
    let (mut low, mut high, mut equal) = (from, to, false);
    while low < high {
        let middle = low + (high - low) / 2;
        match compare(middle)? {
            Ordering::Greater => high = middle,
            order => {
                low = middle + 1;
                equal = order == Ordering::Equal;
            }
        }
    }
    Ok(Found {
        not_larger: low,
        equal,
    })
}
