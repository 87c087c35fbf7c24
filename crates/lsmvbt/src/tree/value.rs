//! Payloads that do not fit into their cell: overflow chains.
//!
//! A chain is written in the transaction of its entry, and never changed by another one. It belongs
//! to the entry that is not `moved`; copies made by splits take it over.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::page::{Entry, Node, NodeRef, OVERFLOW_BYTES, PageType, cell};
use crate::room;
use crate::types::PageNo;

/// The longest payload.
pub(crate) const MAX_PAYLOAD: usize = 0x7fff_ff00;

/// The known part of an overflow chain: so a part of a long payload is found without a walk from its
/// beginning. First page and version name the chain, until the transaction frees a page of its own.
#[derive(Default)]
pub(crate) struct Walked {
    first: u32,
    start: u64,
    /// Pages, and the place of their first byte in the payload.
    pages: Vec<(u32, usize)>,
}

impl Core {
    /// Splits a payload into the part that stays in the cell and a new chain; returns their sizes
    /// in `e`. `is_row`: it is of an integer tree.
    pub(crate) fn store_payload<'p>(
        &mut self,
        tree: u32,
        is_row: bool,
        e: &mut Entry,
        payload: &'p [u8],
    ) -> Result<&'p [u8]> {
        if payload.len() > MAX_PAYLOAD {
            return Err(Error::TooBig("the value"));
        }
        let (local, rest) = payload.split_at(cell::local_len(payload.len(), is_row));
        e.total = payload.len() as u32;
        e.overflow = 0;
        for part in rest.chunks(OVERFLOW_BYTES).rev() {
            let next = e.overflow;
            e.overflow = self.allocate(|page, m| Node::overflow(page, tree, m, part, next))?;
        }
        Ok(local)
    }

    /// Checked pages of a chain, one after another.
    fn chain_page(&mut self, page: u32, tree: u32, of: PageNo) -> Result<NodeRef> {
        let node = self.node(page)?;
        if node.kind != PageType::Overflow || node.tree != tree {
            return Err(Error::Damaged {
                page: of,
                what: "its overflow chain leads elsewhere",
            });
        }
        Ok(node)
    }

    /// Reads a part of a payload.
    pub(crate) fn read_payload(
        &mut self,
        node: &NodeRef,
        e: &Entry,
        offset: usize,
        buf: &mut [u8],
    ) -> Result<()> {
        let local = node.local(e);
        if offset
            .checked_add(buf.len())
            .is_none_or(|end| end > e.total as usize)
        {
            return Err(Error::TooBig("the part of the value that was asked for"));
        }
        let mut done = 0;
        if offset < local.len() {
            done = (local.len() - offset).min(buf.len());
            buf[..done].copy_from_slice(&local[offset..offset + done]);
        }
        while done < buf.len() {
            let want = offset + done;
            let (page, at) = self.chain_page_with(node, e, want)?;
            let part = self.chain_page(page, node.tree, node.page)?;
            let data = &part.data()[want - at..];
            let n = data.len().min(buf.len() - done);
            buf[done..done + n].copy_from_slice(&data[..n]);
            done += n;
        }
        Ok(())
    }

    /// The page of a chain that has byte `want` of the payload, and the place of its first byte.
    fn chain_page_with(&mut self, node: &NodeRef, e: &Entry, want: usize) -> Result<(u32, usize)> {
        if (self.walked.first, self.walked.start) != (e.overflow, e.start) {
            self.walked = Walked {
                first: e.overflow,
                start: e.start,
                pages: vec![(e.overflow, usize::from(e.local))],
            };
        }
        let known = self.walked.pages.partition_point(|(_, at)| *at <= want);
        let (mut page, mut at) = self.walked.pages[known.max(1) - 1];
        loop {
            let part = self.chain_page(page, node.tree, node.page)?;
            let size = part.data().len();
            if size == 0 {
                return Err(Error::Damaged {
                    page: node.page,
                    what: "its overflow chain is empty",
                });
            }
            if want < at + size {
                return Ok((page, at));
            }
            (page, at) = (part.next, at + size);
            if self.walked.pages.last().is_none_or(|(_, last)| *last < at) {
                self.walked.pages.push((page, at));
            }
        }
    }

    /// Changes a part of a payload where it stands. False, and nothing has changed, if an earlier
    /// version has it too: then the whole payload must be written again.
    pub(crate) fn overwrite_payload(
        &mut self,
        page: u32,
        index: usize,
        offset: usize,
        data: &[u8],
    ) -> Result<bool> {
        let m = self.version()?;
        let node = self.node(page)?;
        let e = node.entries()[index];
        let end = offset.checked_add(data.len());
        if end.is_none_or(|end| end > e.total as usize) {
            return Err(Error::TooBig("the part of the value that was to change"));
        }
        if e.start != m {
            return Ok(false);
        }
        let mut local = node.local(&e).to_vec();
        let mut done = 0;
        if offset < local.len() {
            done = data.len().min(local.len() - offset);
            local[offset..offset + done].copy_from_slice(&data[..done]);
            let changed = self.node_mut(page)?;
            changed.remove(index);
            changed.insert(index, e, &local);
        }
        while done < data.len() {
            let want = offset + done;
            let (part, at) = self.chain_page_with(&node, &e, want)?;
            if !self.txn()?.own.contains(&part) {
                return Err(Error::Damaged {
                    page: node.page,
                    what: "its overflow chain is older than its entry",
                });
            }
            let bytes = &mut self.node_mut(part)?.data_mut()[want - at..];
            let n = bytes.len().min(data.len() - done);
            bytes[..n].copy_from_slice(&data[done..done + n]);
            done += n;
            self.spill_if_needed()?;
        }
        self.changed(node.tree);
        Ok(true)
    }

    /// The whole payload, or its first `len` bytes. The code does not trust its length on disk
    /// before the bytes are there.
    pub(crate) fn payload(&mut self, node: &NodeRef, e: &Entry, len: usize) -> Result<Vec<u8>> {
        if len > crate::types::PAGE_SIZE {
            let size = self.file_size()?;
            let own = self.txn.as_ref().map_or(0, |t| t.dirty.len() as u64);
            if len as u64 > size + own * crate::types::PAGE_SIZE as u64 {
                return Err(Error::Damaged {
                    page: node.page,
                    what: "a value is longer than the file",
                });
            }
        }
        let local = node.local(e);
        let mut out = Vec::new();
        room::reserve(&mut out, local.len().min(len))?;
        out.extend_from_slice(&local[..local.len().min(len)]);
        let mut page = e.overflow;
        while out.len() < len {
            let part = self.chain_page(page, node.tree, node.page)?;
            if part.data().is_empty() {
                return Err(Error::Damaged {
                    page: node.page,
                    what: "its overflow chain is empty",
                });
            }
            let n = part.data().len().min(len - out.len());
            room::reserve(&mut out, n)?;
            out.extend_from_slice(&part.data()[..n]);
            page = part.next;
        }
        Ok(out)
    }

    /// The key of an entry of a bytes or custom tree.
    pub(crate) fn whole_key(&mut self, node: &NodeRef, e: &Entry) -> Result<Vec<u8>> {
        self.payload(node, e, e.key_len as usize)
    }

    /// The pages of a chain, bounded by the number that its length needs.
    pub(crate) fn chain(&mut self, tree: u32, of: PageNo, e: &Entry) -> Result<Vec<u32>> {
        let mut pages = Vec::new();
        let mut left = (e.total as usize).saturating_sub(usize::from(e.local));
        let mut page = e.overflow;
        while page != 0 && left > 0 {
            let part = self.chain_page(page, tree, of)?;
            pages.push(page);
            left = left.saturating_sub(part.data().len().max(1));
            page = part.next;
        }
        Ok(pages)
    }
}
