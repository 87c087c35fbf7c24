//! X-FTL: transactions, out of the copy-on-write that an FTL does anyway.
//!
//! A page that a transaction writes goes to a new place, as every page does; but the page map keeps
//! pointing to the old one, and the new place stands in the X-L2P table (`table`). So undoing costs nothing, and
//! committing is a matter of the table:
//!
//! 1. the transaction's entries become *committed*, with a sequence number;
//! 2. the table is flushed to a new place, when all pages of the transaction are on the medium;
//! 3. the root is switched to the new table: one page, before which nothing of the transaction counts,
//!    and after which all of it does. A table that is small is in that page itself, and so 2 and 3 are one;
//! 4. the pages are remapped in the page map, in memory, and the old ones are garbage.
//!
//! **What it guarantees**, beside what the FTL does. When [`Ftl::commit`] returns, the whole transaction
//! outlives a power cut; if it never returned, all of it or nothing does. What a transaction wrote is seen by
//! itself alone, until then. [`Ftl::abort`], and a power cut, leave no trace of it.
//!
//! **Conflicts.** A page that one active transaction has written, no other and nobody outside of
//! transactions can write or trim: [`FtlError::Conflict`]. Nobody waits. Reads never conflict: they see
//! what is committed.
//!
//! Papers: Kang et al., "X-FTL", SIGMOD '13. `docs/xftl.md` says what differs.

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
    /// read(t, p): the page as the transaction sees it, which is as it wrote it itself, or as committed.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_in(&mut self, tid: Tid, lpn: Lpn) -> Result<Arc<[u8]>, FtlError> {
        self.check_page(lpn)?;
        check_transaction(tid)?;
        self.statistics.host_reads += 1;
        let own = self.table.holder(lpn).filter(|(holder, _)| *holder == tid);
        let ppn = match own {
            Some((_, ppn)) => ppn,
            None => self.map.get(lpn),
        };
        self.read_at(lpn, ppn)
    }

    /// write(t, p): seen by the transaction alone, until it commits. It begins with its first write.
    ///
    /// # Errors
    /// As [`Self::write`]; another transaction has the page, or the table is full, and then the
    /// transaction is as it was.
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

    /// commit(t): when it returns, all that the transaction wrote is durable and visible. A transaction
    /// that wrote nothing costs nothing.
    ///
    /// # Errors
    /// The device is worn out, and the transaction active as before; or the power went, and whether it was
    /// committed is known when the device is opened again.
    pub fn commit(&mut self, tid: Tid) -> Result<(), FtlError> {
        check_transaction(tid)?;
        if !self.table.of(tid).is_empty() {
            // What has to be collected is collected before the entries are looked at: it moves pages.
            self.prepare()?;
            self.collect_ahead()?;
            self.commit_entries(tid)?;
        }
        self.statistics.commits += 1;
        Ok(())
    }

    fn commit_entries(&mut self, tid: Tid) -> Result<(), FtlError> {
        let written = self.table.of(tid);
        // A table that does not fit would cost every commit more: older entries go into the page map.
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
        }
    }

    /// abort(t): nothing that the transaction wrote ever was.
    ///
    /// # Errors
    /// Transaction 0 is none. The NAND is not touched.
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

    /// What one transaction has written becomes another's; no page can be of both.
    ///
    /// # Errors
    /// Transaction 0 is none. The NAND is not touched.
    pub fn merge(&mut self, from: Tid, into: Tid) -> Result<(), FtlError> {
        check_transaction(from)?;
        check_transaction(into)?;
        for (lpn, ppn) in self.table.of(from) {
            self.table.set_active(into, lpn, ppn);
        }
        Ok(())
    }

    /// Active transactions, and how many pages each has written.
    pub fn transactions(&self) -> Vec<(Tid, u32)> {
        self.table.transactions().into_iter().collect()
    }

    /// Nobody outside of transaction `tid` may have written a page.
    pub(crate) fn check_holder(&self, lpn: Lpn, tid: Option<Tid>) -> Result<(), FtlError> {
        match self.table.holder(lpn) {
            Some((holder, _)) if Some(holder) != tid => {
                Err(FtlError::Conflict { page: lpn, holder })
            }
            _ => Ok(()),
        }
    }

    /// Checks, makes room on the medium and in the table.
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
        match is_full && self.table.committed() > 0 {
            true => self.checkpoint(),
            false => Ok(()),
        }
    }

    fn set_entry(&mut self, tid: Tid, lpn: Lpn, ppn: Option<Ppn>) {
        // Valid pages are what garbage collection keeps.
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
