//! Payloads in a page, and the search among them.

use std::cmp::Ordering;
use std::ops::Range;

use crate::error::Result;

/// The place of a payload in the bytes of its page.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Span {
    /// Of its first byte.
    pub offset: u16,
    /// In bytes.
    pub len: u16,
}

/// Payloads of neighbors in a page, in order, each of them whole. [`crate::READABLE_BEHIND`] bytes
/// after each may be read.
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

    /// The bytes that contain them.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The place of each in these bytes.
    pub fn spans(&self) -> &'a [Span] {
        self.spans
    }

    /// Those in a range of indexes.
    ///
    /// # Panics
    /// If there are fewer.
    pub(crate) fn part(self, indexes: Range<usize>) -> Payloads<'a> {
        Payloads {
            spans: &self.spans[indexes],
            ..self
        }
    }

    /// The payload at an index.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn at(&self, index: usize) -> &'a [u8] {
        let span = self.spans[index];
        &self.bytes[usize::from(span.offset)..][..usize::from(span.len)]
    }
}

/// The entries of a page around the current one of a cursor, as far as they can be shown.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// Their payloads.
    pub payloads: Payloads<'a>,
    /// Their keys in an `Integer` tree, otherwise empty.
    pub integers: &'a [i64],
    /// The index of the current entry.
    pub at: usize,
    /// The key of that one in an `Integer` tree, otherwise 0.
    pub integer: i64,
}

/// The result of [`Sought::search`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The number of keys that are not larger than the sought one.
    pub not_larger: usize,
    /// Whether the last of these was compared, and is equal to it.
    pub equal: bool,
}

/// Numbers that stand for keys: abbreviated keys, as in sorting. A search compares them before it
/// looks at a key. Of two keys in the order of the tree the second one's number is not smaller.
/// Where numbers are equal, [`Sought::search`] decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abbreviation {
    /// The rule that makes them. Numbers made by another rule cannot be compared with these.
    pub kind: u32,
    /// The number of the sought key.
    pub sought: u64,
}

/// The sought key of a search by comparison. Functions that compare a stored key also implement it.
pub trait Sought {
    /// The order of a stored key, with [`crate::READABLE_BEHIND`] bytes after it, relative to the
    /// sought one. It must be consistent with the order of the tree, but may call several keys
    /// equal, as a prefix does.
    ///
    /// # Errors
    /// They end the search.
    fn compare(&mut self, stored: &[u8]) -> Result<Ordering>;

    /// Searches keys by halving; those before `from` are known not to be larger. Override it where
    /// a call for each comparison costs more than the comparison.
    ///
    /// # Errors
    /// As [`Sought::compare`].
    fn search(&mut self, keys: Payloads<'_>, from: usize) -> Result<Found> {
        halve(from, keys.spans.len(), |at| self.compare(keys.at(at)))
    }

    /// For keys that can be abbreviated: the rule, and the number of the sought key.
    fn abbreviation(&self) -> Option<Abbreviation> {
        None
    }

    /// Abbreviates keys by the rule of [`Sought::abbreviation`]. Pages that are searched again keep
    /// the numbers.
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
