//! X-FTL: transactions, from the copy-on-write that an FTL does anyway.
//!
//! A page that a transaction writes goes to a new place, as every page does. But the page map keeps
//! pointing to the old one, and the X-L2P table (`table`) has the new place. So undoing costs
//! nothing, and committing works through the table:
//!
//! 1. The transaction's entries become *committed*, with a sequence number.
//! 2. The table is flushed to a new place, when all pages of the transaction are on the medium.
//! 3. The root is switched to the new table by one page. Before it nothing of the transaction
//!    counts, after it all of it does. A small table is in that page itself, and so 2 and 3 are one
//!    step.
//! 4. The pages are remapped in the page map, in memory, and the old ones are garbage.
//!
//! **Guarantees**, in addition to those of the FTL. When [`Ftl::commit`] returns, the whole
//! transaction outlives a power cut. If it never returned, all or nothing does. Until then only the
//! transaction itself sees its writes. [`Ftl::abort`], and a power cut, leave no trace of it.
//!
//! **Conflicts.** If one active transaction has written a page, others cannot write or trim it, in
//! or outside of transactions: [`FtlError::Conflict`]. Nobody waits. Reads never conflict: they see
//! the committed state.
//!
//! Papers: Kang et al., "X-FTL", SIGMOD '13. `docs/xftl.md` says what differs.

#[cfg(test)]
mod counts;
#[cfg(test)]
mod make;
#[cfg(test)]
mod model;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::ftl::checkpoint::TablePages;
use crate::ftl::flaw::Flaw;
use crate::ftl::oob::Content;
use crate::ftl::{Ftl, FtlError, Lpn, Tid};
use crate::nand::Ppn;
use table::Committed;

impl Ftl {
    /// read(t, p): the page as the transaction sees it: its own write, or the committed page.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_in(&mut self, tid: Tid, lpn: Lpn) -> Result<Arc<[u8]>, FtlError> {
        self.check_page(lpn)?;
        check_transaction(tid)?;
        let own = self.table.holder(lpn).filter(|(holder, _)| *holder == tid);
        if own.is_none() {
            self.fetch_to_read(lpn)?;
        }
        self.statistics.host_reads += 1;
        let ppn = match own {
            Some((_, ppn)) => ppn,
            None => self.map.get(lpn),
        };
        self.read_at(lpn, ppn)
    }

    /// write(t, p): only the transaction sees it, until it commits. The transaction begins with its
    /// first write.
    ///
    /// # Errors
    /// As [`Self::write`]. If another transaction has the page, or the table is full, the
    /// transaction stays as it was.
    pub fn write_in(&mut self, tid: Tid, lpn: Lpn, data: &[u8]) -> Result<(), FtlError> {
        self.check_length(data)?;
        self.prepare_entry(tid, lpn)?;
        let ppn = self.append_host(Content::Transaction(tid, lpn), data)?;
        self.statistics.host_writes += 1;
        self.set_entry(tid, lpn, Some(ppn));
        Ok(())
    }

    /// Trims a page in a transaction.
    ///
    /// # Errors
    /// As [`Self::write_in`].
    pub fn trim_in(&mut self, tid: Tid, lpn: Lpn) -> Result<(), FtlError> {
        self.prepare_entry(tid, lpn)?;
        self.statistics.host_trims += 1;
        self.set_entry(tid, lpn, None);
        Ok(())
    }

    /// commit(t): when it returns, all writes of the transaction are durable and visible. A
    /// transaction without writes costs nothing.
    ///
    /// # Errors
    /// If the device is worn out, the transaction stays active. If the power went, opening the
    /// device shows whether it was committed.
    pub fn commit(&mut self, tid: Tid) -> Result<(), FtlError> {
        check_transaction(tid)?;
        if !self.table.of(tid).is_empty() {
            // Garbage collection runs before the entries are read: it moves pages.
            self.prepare()?;
            self.collect_ahead()?;
            self.commit_entries(tid)?;
        }
        self.statistics.commits += 1;
        Ok(())
    }

    fn commit_entries(&mut self, tid: Tid) -> Result<(), FtlError> {
        let written = self.table.of(tid);
        // A table that does not fit would make every commit more expensive, so older entries go
        // into the page map.
        let entries = self.table.committed() + written.len();
        let pieces = match entries > self.limits.cheap_entries() {
            true => self.pieces_of(self.table.committed_pages()),
            false => Vec::new(),
        };
        let written_pieces = self.write_pieces(&pieces)?;
        let sequence = self.next_sequence();
        let committing: Vec<(Lpn, Committed)> = written
            .into_iter()
            .map(|(lpn, ppn)| (lpn, Committed { tid, ppn, sequence }))
            .collect();
        let flushed: &[_] = match self.leaves_out(Flaw::NoTableFlush) {
            true => &[],
            false => &committing,
        };
        let table = self.place_table(&pieces, flushed, TablePages::Stay)?;
        self.switch(written_pieces, table)?;
        self.remap_committed(&committing);
        Ok(())
    }

    fn remap_committed(&mut self, committing: &[(Lpn, Committed)]) {
        for (lpn, entry) in committing {
            self.table.remove_active(*lpn);
            self.table.set_committed(*lpn, *entry);
            self.remap(*lpn, entry.ppn);
            self.map.is_logged(*lpn);
        }
    }

    /// abort(t): undoes all writes of the transaction.
    ///
    /// # Errors
    /// Transaction 0 is not a transaction. The NAND is not touched.
    pub fn abort(&mut self, tid: Tid) -> Result<(), FtlError> {
        check_transaction(tid)?;
        for (lpn, ppn) in self.table.of(tid) {
            self.table.remove_active(lpn);
            ppn.into_iter()
                .for_each(|ppn| self.blocks.mark_invalid(ppn));
        }
        self.statistics.aborts += 1;
        Ok(())
    }

    /// Moves the writes of one transaction to another; no page can belong to both.
    ///
    /// # Errors
    /// Transaction 0 is not a transaction. The NAND is not touched.
    pub fn merge(&mut self, from: Tid, into: Tid) -> Result<(), FtlError> {
        check_transaction(from)?;
        check_transaction(into)?;
        for (lpn, ppn) in self.table.of(from) {
            self.table.set_active(into, lpn, ppn);
        }
        Ok(())
    }

    /// Active transactions, and the number of pages that each has written.
    pub fn transactions(&self) -> Vec<(Tid, u32)> {
        self.table.transactions().into_iter().collect()
    }

    /// Checks that no transaction other than `tid` has written a page.
    pub(crate) fn check_holder(&self, lpn: Lpn, tid: Option<Tid>) -> Result<(), FtlError> {
        match self.table.holder(lpn) {
            Some((holder, _)) if Some(holder) != tid => {
                Err(FtlError::Conflict { page: lpn, holder })
            }
            _ => Ok(()),
        }
    }

    /// Checks, and makes room on the medium and in the table.
    fn prepare_entry(&mut self, tid: Tid, lpn: Lpn) -> Result<(), FtlError> {
        self.check_page(lpn)?;
        check_transaction(tid)?;
        self.check_holder(lpn, Some(tid))?;
        let capacity = self.config.table_capacity;
        let is_full = self.table.len() >= capacity as usize && self.table.holder(lpn).is_none();
        if is_full && self.table.committed() == 0 {
            return Err(FtlError::TableFull { capacity });
        }
        self.prepare()?;
        if is_full && self.table.committed() > 0 {
            self.checkpoint()?;
        }
        // The old page becomes invalid when the transaction is committed.
        self.fetch(lpn)
    }

    fn set_entry(&mut self, tid: Tid, lpn: Lpn, ppn: Option<Ppn>) {
        // Garbage collection keeps valid pages.
        ppn.into_iter().for_each(|ppn| self.blocks.mark_valid(ppn));
        if let Some(before) = self.table.set_active(tid, lpn, ppn) {
            self.blocks.mark_invalid(before);
        }
    }
}

fn check_transaction(tid: Tid) -> Result<(), FtlError> {
    match tid.0 {
        0 => Err(FtlError::NoTransaction),
        _ => Ok(()),
    }
}
