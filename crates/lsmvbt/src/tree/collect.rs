//! Garbage collection: dropping dead entries that no reader can see any more, and freeing the pages
//! that killed ones own.
//!
//! The crash model fails without any one of these rules:
//! - An entry stays while one of these lies in `[start, end)`: a read mark, the transaction's base,
//!   the newest durable version, a version of the history. (A crash may go back to the newest
//!   durable version.)
//! - An entry that owns a page stays until the oldest of these has passed its end. The page may be
//!   older than the entry, and be reached by other ways at versions before its start.
//! - Only `killed` entries free pages; `moved` ones have a copy that does.

use crate::core::Core;
use crate::error::Result;
use crate::page::{Ended, Entry, NodeRef, PageType};
use crate::readers::Keep;
use crate::slots::Slots;
use crate::tree::edit::owns;

impl Core {
    pub(crate) fn collectable(keep: &Keep, e: &Entry) -> bool {
        !e.live()
            && if owns(e) {
                keep.oldest() >= e.end
            } else {
                !keep.sees(e.start, e.end)
            }
    }

    /// Collects the dead entries of a node that can go. `wanted`: its space is needed.
    pub(crate) fn collect(&mut self, page: u32, wanted: bool) -> Result<()> {
        let keep = self.keep()?;
        let before = self.node(page)?;
        if !before.entries().iter().any(|e| Self::collectable(&keep, e)) {
            if wanted {
                self.stats.kept_for_readers += before.dead() as u64;
            }
            return Ok(());
        }
        let gone = self.node_mut(page)?.sift(|e| !Self::collectable(&keep, e));
        self.stats.collected += gone.len() as u64;
        if wanted {
            self.stats.kept_for_readers += (before.dead() - gone.len()) as u64;
        }
        for e in gone {
            self.release(&before, &e)?;
        }
        Ok(())
    }

    /// Frees the pages that a collected entry owned.
    fn release(&mut self, node: &NodeRef, e: &Entry) -> Result<()> {
        if !owns(e) {
            return Ok(());
        }
        match node.kind {
            PageType::Inner => {
                self.free_dead_page(e.child, e.start)?;
                self.free_chain(node, e)
            }
            PageType::Leaf => self.free_chain(node, e),
            PageType::Catalog if e.key < 0 => Ok(()),
            PageType::Catalog if e.ended == Ended::Replaced => {
                self.free_dead_page(e.child, e.start)
            }
            PageType::Catalog => self.free_tree(e.child, e.end - 1),
            _ => Ok(()),
        }
    }

    fn free_chain(&mut self, node: &NodeRef, e: &Entry) -> Result<()> {
        if e.overflow == 0 || self.is_free(e.overflow) {
            return Ok(());
        }
        for page in self.chain(node.tree, node.page, e)? {
            if !self.is_free(page) && self.node(page)?.birth <= e.start {
                self.free_page(page)?;
            }
        }
        Ok(())
    }

    /// Frees a dead page and the pages that its killed entries own. A page born after `born_by` has
    /// been freed and used again.
    fn free_dead_page(&mut self, page: u32, born_by: u64) -> Result<()> {
        if self.is_free(page) {
            return Ok(());
        }
        let node = self.node(page)?;
        if node.birth > born_by {
            return Ok(());
        }
        self.free_page(page)?;
        for e in node.entries().iter().filter(|e| owns(e)) {
            self.release(&node, e)?;
        }
        Ok(())
    }

    /// Frees all of a tree as it was at a version, and the pages that its killed entries own.
    pub(crate) fn free_tree(&mut self, root: u32, view: u64) -> Result<()> {
        let mut pages = vec![root];
        while let Some(page) = pages.pop() {
            if self.is_free(page) {
                continue;
            }
            let node = self.node(page)?;
            if node.birth > view {
                continue;
            }
            self.free_page(page)?;
            for e in node.entries() {
                if e.visible(view) {
                    if node.kind == PageType::Inner {
                        pages.push(e.child);
                    }
                    self.free_chain(&node, e)?;
                } else if owns(e) {
                    self.release(&node, e)?;
                }
            }
        }
        Ok(())
    }

    /// Frees the pages of a tree that were born in this transaction, when it also removes the tree.
    /// It reads no more than the transaction has written. Pages owned by dead entries in them also
    /// belong to a page of the base, where the entries were still alive.
    pub(crate) fn free_own_tree(&mut self, tree: u32) -> Result<()> {
        let mut pages: Vec<u32> = self.txn()?.own.iter().copied().collect();
        pages.sort_unstable();
        for page in pages {
            if self.node(page)?.tree == tree {
                self.free_page(page)?;
            }
        }
        Ok(())
    }

    /// Before the file grows: once a transaction, checks whether dropped trees can be freed now.
    pub(crate) fn look_for_space(&mut self) -> Result<()> {
        if self.free.count() >= 8 || self.txn()?.looked_for_space {
            return Ok(());
        }
        self.txn()?.looked_for_space = true;
        let view = self.version()?;
        for page in self.catalog_pages(view)? {
            let node = self.node(page)?;
            if node.entries().iter().any(|e| !e.live() && owns(e)) {
                self.collect(page, false)?;
            }
        }
        Ok(())
    }

    /// The periodic pass of legacy MVBT, when lazy garbage collection is off. It collects, in this
    /// transaction, the pages that have got dead entries since the last pass.
    pub(crate) fn periodic_pass(&mut self) -> Result<()> {
        const EVERY: u32 = 16;
        let txn = self.txn()?;
        let with_dead: Vec<u32> = txn
            .dirty
            .iter()
            .filter(|(_, n)| n.dead() > 0)
            .map(|(p, _)| *p)
            .collect();
        self.dead_pages.extend(with_dead);
        self.since_pass += 1;
        if self.since_pass < EVERY {
            return Ok(());
        }
        self.since_pass = 0;
        let mut pages: Vec<u32> = self.dead_pages.drain().collect();
        pages.sort_unstable();
        let slots = Slots::of(&self.header);
        for page in pages {
            if self.is_free(page) || slots.is_some_and(|slots| slots.contains(page)) {
                continue;
            }
            let node = self.node(page)?;
            if matches!(node.kind, PageType::Leaf | PageType::Inner) && node.dead() > 0 {
                self.collect(page, false)?;
            }
        }
        Ok(())
    }
}
