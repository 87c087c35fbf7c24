//! The X-L2P table: the pages that transactions have written.
//!
//! An entry has a transaction, a logical page, the transaction's physical page (or none, if it
//! trimmed), and a status. The status is *active*, or *committed* with the sequence number of the
//! commit. A logical page has at most one active entry
//! ([`FtlError::Conflict`](crate::ftl::FtlError)) and one committed one. Committed entries stay
//! until their piece of the page map is written.
//!
//! Flash has only committed entries: nobody would ever read active ones. A piece is one page,
//! big-endian:
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 4 | entries (n) |
//! | 4 | 4 | zero |
//! | 8 | 24 n | of each entry: transaction (8), logical page (4), physical page (4; all ones if trimmed), sequence number of the commit (8) |

use std::collections::BTreeMap;

use crate::ftl::oob::{be32, be64};
use crate::ftl::{Lpn, Tid};
use crate::nand::Ppn;

/// Bytes before the entries.
pub(crate) const TABLE_HEADER_BYTES: u32 = 8;
/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: u32 = 24;

const NO_PAGE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Active {
    tid: Tid,
    ppn: Option<Ppn>,
}

/// A logical page after a committed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Committed {
    pub(crate) tid: Tid,
    /// `None` if it was trimmed.
    pub(crate) ppn: Option<Ppn>,
    pub(crate) sequence: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    active: BTreeMap<Lpn, Active>,
    committed: BTreeMap<Lpn, Committed>,
    /// The table's pages on flash.
    pub(crate) pages: Vec<Ppn>,
}

impl Table {
    /// Entries, of both kinds.
    pub(crate) fn len(&self) -> usize {
        self.active.len() + self.committed.len()
    }

    /// Committed entries.
    pub(crate) fn committed(&self) -> usize {
        self.committed.len()
    }

    /// The result of the last committed transaction for a logical page, if its entry is still
    /// needed.
    pub(crate) fn committed_at(&self, lpn: Lpn) -> Option<Committed> {
        self.committed.get(&lpn).copied()
    }

    /// Logical pages of committed entries.
    pub(crate) fn committed_pages(&self) -> impl Iterator<Item = Lpn> {
        self.committed.keys().copied()
    }

    /// The active transaction that has a logical page, and the physical page.
    pub(crate) fn holder(&self, lpn: Lpn) -> Option<(Tid, Option<Ppn>)> {
        self.active.get(&lpn).map(|entry| (entry.tid, entry.ppn))
    }

    /// The active transaction and the logical page that a physical page belongs to.
    pub(crate) fn active_at(&self, ppn: Ppn) -> Option<(Tid, Lpn)> {
        let mut active = self.active.iter();
        let found = active.find(|(_, entry)| entry.ppn == Some(ppn));
        found.map(|(lpn, entry)| (entry.tid, *lpn))
    }

    /// A transaction has written or trimmed a logical page. Returns its previous entry for the
    /// page.
    pub(crate) fn set_active(&mut self, tid: Tid, lpn: Lpn, ppn: Option<Ppn>) -> Option<Ppn> {
        let before = self.active.insert(lpn, Active { tid, ppn });
        before.and_then(|entry| entry.ppn)
    }

    /// Garbage collection has moved an active page.
    pub(crate) fn move_active(&mut self, lpn: Lpn, to: Ppn) {
        if let Some(entry) = self.active.get_mut(&lpn) {
            entry.ppn = Some(to);
        }
    }

    /// The writes of a transaction.
    pub(crate) fn of(&self, tid: Tid) -> Vec<(Lpn, Option<Ppn>)> {
        let entries = self.active.iter().filter(|(_, entry)| entry.tid == tid);
        entries.map(|(lpn, entry)| (*lpn, entry.ppn)).collect()
    }

    /// Active transactions, and how many pages each has.
    pub(crate) fn transactions(&self) -> BTreeMap<Tid, u32> {
        let mut pages = BTreeMap::new();
        for entry in self.active.values() {
            *pages.entry(entry.tid).or_default() += 1;
        }
        pages
    }

    /// Pages that active transactions have written.
    #[cfg(test)]
    pub(crate) fn active_pages(&self) -> usize {
        self.active
            .values()
            .filter(|entry| entry.ppn.is_some())
            .count()
    }

    /// Takes an active entry out.
    pub(crate) fn remove_active(&mut self, lpn: Lpn) {
        self.active.remove(&lpn);
    }

    /// A logical page was committed.
    pub(crate) fn set_committed(&mut self, lpn: Lpn, entry: Committed) {
        self.committed.insert(lpn, entry);
    }

    /// Committed entries of these logical pages are in the page map on flash.
    pub(crate) fn forget(&mut self, is_in_map: impl Fn(Lpn) -> bool) {
        self.committed.retain(|lpn, _| !is_in_map(*lpn));
    }

    /// The entries to flush: the committed ones that are still needed, and those being committed.
    pub(crate) fn entries(
        &self,
        is_needed: impl Fn(Lpn) -> bool,
        committing: &[(Lpn, Committed)],
    ) -> Vec<(Lpn, Committed)> {
        let needed = self.committed.iter().filter(|(lpn, _)| is_needed(**lpn));
        let mut entries: BTreeMap<Lpn, Committed> =
            needed.map(|(lpn, entry)| (*lpn, *entry)).collect();
        entries.extend(committing.iter().copied());
        entries.into_iter().collect()
    }
}

/// A piece of the table in its form on flash.
pub(crate) fn encode(entries: &[(Lpn, Committed)], page_bytes: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(page_bytes as usize);
    encode_into(&mut bytes, entries);
    bytes.resize(page_bytes as usize, 0);
    bytes
}

/// The same, appended to `bytes`.
pub(crate) fn encode_into(bytes: &mut Vec<u8>, entries: &[(Lpn, Committed)]) {
    bytes.extend((entries.len() as u32).to_be_bytes());
    bytes.extend([0; 4]);
    for (lpn, entry) in entries {
        bytes.extend(entry.tid.0.to_be_bytes());
        bytes.extend(lpn.0.to_be_bytes());
        bytes.extend(entry.ppn.map_or(NO_PAGE, |ppn| ppn.0).to_be_bytes());
        bytes.extend(entry.sequence.to_be_bytes());
    }
}

/// The entries of a piece; `None` if it is not one.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<(Lpn, Committed)>> {
    let entries = be32(bytes.get(..8)?, 0) as usize;
    let begin = TABLE_HEADER_BYTES as usize;
    let end = entries
        .checked_mul(ENTRY_BYTES as usize)?
        .checked_add(begin)?;
    let entries = bytes.get(begin..end)?.chunks_exact(ENTRY_BYTES as usize);
    let entry = |bytes: &[u8]| {
        let committed = Committed {
            tid: Tid(be64(bytes, 0)),
            ppn: Some(be32(bytes, 12)).filter(|ppn| *ppn != NO_PAGE).map(Ppn),
            sequence: be64(bytes, 16),
        };
        (Lpn(be32(bytes, 8)), committed)
    };
    Some(entries.map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_is_decoded_and_too_many_entries_are_refused() {
        let entry = |ppn| Committed {
            tid: Tid(1 << 60),
            ppn,
            sequence: 99,
        };
        let entries = [(Lpn(3), entry(Some(Ppn(7)))), (Lpn(4), entry(None))];
        let mut bytes = encode(&entries, 64);
        assert_eq!(bytes.len(), 64);
        assert_eq!(decode(&bytes).unwrap(), entries);
        bytes[3] = 3;
        assert_eq!(decode(&bytes), None);
        bytes[..4].fill(0xFF);
        assert_eq!(decode(&bytes), None);
        assert_eq!(decode(&[0; 4]), None);
    }
}
