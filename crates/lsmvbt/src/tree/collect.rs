//! Garbage collection: dropping dead entries that no reader can see any more, and freeing the pages
//! that killed ones own.
//!
//! The crash model fails without any one of these rules:
//! - An entry stays while one of these lies in `[start, end)`: a read mark, the transaction's base
//!   (MV8), the newest durable version (MV9), a version of the history of the latter. (A crash may go
//!   back to it.)
//! - An entry that owns a page stays until the oldest of these has passed its end (MV10). The page may
//!   be older than the entry, and be reached by other ways at versions before its start.
//! - Only `killed` entries free pages (MV11); `moved` ones have a copy that does.
//!
//! A dropped tree is freed in slices. A crash takes back what a slice has freed, but for the pages
//! that were used again. These are recognized by their birth. One that a power cut has torn has no
//! birth: a dead page that cannot be read counts as used again. It is not freed here, and nothing
//! below it. If it was of the dead tree after all, its pages are unreachable, as others are after a
//! crash. Nothing live is freed: what is freed here was reached through pages that were read.

use foldhash::HashSet;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::page::{Ended, Entry, NodeRef, PageType};
use crate::readers::Keep;
use crate::tree::catalog::DIRECTORY;
use crate::tree::edit::owns;
use crate::types::PageNo;

/// Pages of dropped trees that are freed at once.
const SLICE: usize = 512;
/// The transaction looks for space again when it has taken this many pages. They are fewer than a
/// slice, so a file with dropped trees does not grow for long.
const LOOK_AGAIN: usize = SLICE / 2;

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
        self.collecting(page, |core| core.collect_of(page, wanted))
    }

    fn collect_of(&mut self, page: u32, wanted: bool) -> Result<()> {
        let keep = self.keep()?;
        let before = self.node(page)?;
        if !before.entries().iter().any(|e| Self::collectable(&keep, e)) {
            if wanted {
                self.stats.kept_for_readers += before.dead() as u64;
            }
            return Ok(());
        }
        let waiting = self.free_dropped(&before, &keep, wanted)?;
        let stays = |e: &Entry| !Self::collectable(&keep, e) || waiting.contains(&(e.key, e.start));
        if before.entries().iter().all(stays) {
            return Ok(());
        }
        let gone = self.node_mut(page)?.sift(stays);
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
            // A dropped tree: `free_dropped` has freed it.
            _ => Ok(()),
        }
    }

    /// A page that a dead entry leads to. `None`: it cannot be read, and counts as used again.
    ///
    /// # Errors
    /// Those of the storage: the page may be readable the next time.
    pub(crate) fn dead_node(&mut self, page: u32) -> Result<Option<NodeRef>> {
        match self.node(page) {
            Ok(node) => Ok(Some(node)),
            Err(Error::Damaged { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// A crash takes back what an earlier slice has freed, but for the pages that were used again. So
    /// the chain may lead to pages of others, and ends there. It has no page born after its entry.
    fn free_chain(&mut self, node: &NodeRef, e: &Entry) -> Result<()> {
        let mut page = e.overflow;
        while page != 0 && !self.is_free(page) {
            let Some(part) = self.dead_node(page)? else {
                return Ok(());
            };
            let is_of_chain = part.kind == PageType::Overflow && part.tree == node.tree;
            if !is_of_chain || part.birth > e.start {
                return Ok(());
            }
            self.free_page(page)?;
            page = part.next;
        }
        Ok(())
    }

    /// Frees a dead page and the pages that its killed entries own. A page born after `born_by` has
    /// been freed and used again.
    fn free_dead_page(&mut self, page: u32, born_by: u64) -> Result<()> {
        if self.is_free(page) {
            return Ok(());
        }
        let node = self.dead_node(page)?;
        let Some(node) = node.filter(|node| node.birth <= born_by) else {
            return Ok(());
        };
        self.free_page(page)?;
        for e in node.entries().iter().filter(|e| owns(e)) {
            self.release(&node, e)?;
        }
        Ok(())
    }

    /// Frees a slice of the dropped trees of a catalog page, or all of them if their entries' space
    /// is `wanted`. Returns key and start of the entries whose trees still have pages: they stay.
    fn free_dropped(
        &mut self,
        node: &NodeRef,
        keep: &Keep,
        wanted: bool,
    ) -> Result<HashSet<(i64, u64)>> {
        let mut waiting = HashSet::default();
        if node.kind != PageType::Catalog {
            return Ok(waiting);
        }
        let mut left = if wanted { usize::MAX } else { SLICE };
        let of_pages_and_trees = node.entries().iter().filter(|e| e.key >= 0);
        for e in of_pages_and_trees.filter(|e| Self::collectable(keep, e)) {
            let is_freed = match e.ended {
                Ended::Killed => self.free_some(e.child, e.end - 1, None, &mut left)?,
                Ended::Replaced if node.page.0 == DIRECTORY => self.free_left(e, &mut left)?,
                _ => true,
            };
            if !is_freed {
                waiting.insert((e.key, e.start));
            }
        }
        Ok(waiting)
    }

    /// Frees pages of the dropped trees of a catalog page that was full: only live entries have moved
    /// to the next one. They were dropped before `e`, the old page's entry, ended. True if all are
    /// freed.
    fn free_left(&mut self, e: &Entry, left: &mut usize) -> Result<bool> {
        let old = self.dead_node(e.child)?;
        let Some(old) = old.filter(|old| old.kind == PageType::Catalog && old.birth <= e.start)
        else {
            return Ok(true);
        };
        let dropped = |e: &&Entry| e.key >= 0 && e.ended == Ended::Killed && !e.live();
        for tree in old.entries().iter().filter(dropped) {
            if !self.free_some(tree.child, tree.end - 1, None, left)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Frees pages of a dead subtree as it was at version `view`, and the pages that its killed
    /// entries own, until `left` pages are freed. True if all are.
    ///
    /// Children go before their parent. So whatever a crash takes back, the rest is still reached
    /// from the catalog. Pages that an earlier slice has freed are free, or were born again later.
    fn free_some(
        &mut self,
        page: u32,
        view: u64,
        parent: Option<u8>,
        left: &mut usize,
    ) -> Result<bool> {
        if self.is_free(page) {
            return Ok(true);
        }
        if *left == 0 {
            return Ok(false);
        }
        let node = self.dead_node(page)?;
        let Some(node) = node.filter(|node| node.birth <= view) else {
            return Ok(true);
        };
        if parent.is_some_and(|above| node.level >= above) {
            let what = "it is on a higher level than its parent";
            let page = PageNo(page);
            return Err(Error::Damaged { page, what });
        }
        for e in node.entries().iter().filter(|e| e.visible(view)) {
            if node.kind == PageType::Inner
                && !self.free_some(e.child, view, Some(node.level), left)?
            {
                return Ok(false);
            }
        }
        let before = self.txn()?.freed.len();
        for e in node.entries() {
            if e.visible(view) {
                self.free_chain(&node, e)?;
            } else if owns(e) {
                self.release(&node, e)?;
            }
        }
        self.free_page(page)?;
        *left = left.saturating_sub(self.txn()?.freed.len() - before);
        Ok(true)
    }

    /// Takes back what this transaction has done in a tree, when it also removes the tree. It reads no
    /// more than the transaction has written of this tree. Pages born in it are free. Pages owned by dead
    /// entries in them also belong to a page of the base, where the entries are alive again. So a dropped
    /// tree is freed as it was at the base, whatever is collected in its pages until then.
    pub(crate) fn take_back_tree(&mut self, tree: u32) -> Result<()> {
        let txn = self.txn()?;
        let base = txn.base;
        let is_own = |page: &u32| txn.own.contains(page);
        let (own, changed): (Vec<u32>, Vec<u32>) = txn.pages_of(tree).into_iter().partition(is_own);
        for page in own {
            if self.node(page)?.tree == tree {
                self.free_page(page)?;
            }
        }
        for page in changed {
            let node = self.node(page)?;
            if node.tree != tree || node.birth > base || node.unchanged_since(base) {
                continue;
            }
            drop(node);
            self.node_mut(page)?.strip(base);
            self.write_only_if_changed(page)?;
            self.spill_if_needed()?;
        }
        Ok(())
    }

    /// A page that has its entries of before need not be written.
    pub(crate) fn write_only_if_changed(&mut self, page: u32) -> Result<()> {
        let node = self.node(page)?;
        let is_spilled = self.txn()?.spilled.contains_key(&page);
        let clean = self.cache.get(page);
        if !is_spilled && clean.is_some_and(|clean| clean.same_entries(&node)) {
            self.txn()?.dirty.remove(&page);
        }
        Ok(())
    }

    /// Before the file grows: frees a slice of the trees that were dropped and that nobody reads.
    pub(crate) fn look_for_space(&mut self) -> Result<()> {
        let enough = self.space.map.count() >= 8;
        let txn = self.txn()?;
        if enough || txn.own.len() < txn.look_for_space_at {
            return Ok(());
        }
        txn.look_for_space_at = txn.own.len() + LOOK_AGAIN;
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
        for page in pages {
            if self.is_free(page) {
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

#[cfg(test)]
mod tests {
    use crate::{Db, Durability, MemoryFile, Options, Torn, TreeId, TreeKind};

    /// Trees of a row each.
    fn trees(db: &mut Db, count: i64) -> Vec<TreeId> {
        let made = (0..count).map(|_| db.create_tree(TreeKind::Integer).unwrap());
        let made: Vec<_> = made.collect();
        made.iter()
            .for_each(|tree| db.put_integer(*tree, 1, b"one").unwrap());
        made
    }

    #[test]
    fn trees_that_a_transaction_drops_and_clears_do_not_make_it_look_at_all_it_has_written() {
        const TREES: i64 = 100;
        for torn in [Torn::Trust, Torn::Double] {
            let options = Options {
                torn,
                cache_pages: 32,
                ..Options::default()
            };
            let mut db = Db::open(MemoryFile::new().storage(), options).unwrap();
            db.begin_write().unwrap();
            let large = db.create_tree(TreeKind::Integer).unwrap();
            (0..3000).for_each(|key| db.put_integer(large, key, &[1; 300]).unwrap());
            let old = trees(&mut db, TREES);
            db.commit(Durability::Flush).unwrap();
            db.begin_write().unwrap();
            // Pages of before, and new ones. Most of them are written before the commit.
            (0..6000).for_each(|key| db.put_integer(large, key, &[2; 300]).unwrap());
            let new = trees(&mut db, TREES);
            let before = db.stats();
            for tree in old.iter().chain(&new) {
                db.clear_tree(*tree).unwrap();
                db.put_integer(*tree, 2, b"two").unwrap();
                db.drop_tree(*tree).unwrap();
            }
            let after = db.stats();
            let read = after.pages_read - before.pages_read;
            let written = after.spilled - before.spilled;
            assert!(
                read < 20 * TREES as u64,
                "{torn:?}: {read} pages read, {written} written"
            );
            db.commit(Durability::Flush).unwrap();
            assert_eq!(db.check().unwrap(), Vec::<String>::new(), "{torn:?}");
            assert_eq!(
                db.count(db.current_version().unwrap(), large).unwrap(),
                6000
            );
        }
    }

    #[test]
    fn a_large_transaction_that_drops_its_tree_stays_within_its_memory() {
        const CACHE: usize = 32;
        for torn in [Torn::Trust, Torn::Double] {
            let options = Options {
                torn,
                cache_pages: CACHE,
                ..Options::default()
            };
            let mut db = Db::open(MemoryFile::new().storage(), options).unwrap();
            db.begin_write().unwrap();
            let tree = db.create_tree(TreeKind::Integer).unwrap();
            (0..3000).for_each(|key| db.put_integer(tree, key, &[1; 300]).unwrap());
            db.commit(Durability::Flush).unwrap();
            db.begin_write().unwrap();
            // A short row for each page or so, for which it has room.
            let keys = (0..3000).step_by(10);
            keys.for_each(|key| db.put_integer(tree, key, b"new").unwrap());
            db.drop_tree(tree).unwrap();
            let dirty = db.core.txn().unwrap().dirty.len();
            assert!(dirty <= CACHE + 2, "{torn:?}: {dirty} pages");
            db.commit(Durability::Flush).unwrap();
            assert_eq!(db.check().unwrap(), Vec::<String>::new(), "{torn:?}");
        }
    }
}
