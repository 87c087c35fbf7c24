//! The catalog: the root page of each tree, at every version, and the 16 meta values.
//!
//! Page 2 is the directory. Its keys are -1 to -16 for the meta values, and 0 and up for catalog
//! pages. Catalog page `c` has the roots of the trees `64 c` to `64 c + 63`. The pages are full of
//! versioned entries like all others. Roots are never split in place; a new root gets a new entry.
//!
//! When the directory becomes full of earlier meta values, those of now move to a catalog page of
//! their own, which the directory has under the key [`META_PAGE`]. Such a page makes room as every
//! catalog page does, and the directory cannot. Earlier versions have their values where they were.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::page::{CAPACITY, Ended, Entry, INF, Node, NodeRef, PageType};
use crate::types::{PageNo, TreeId, TreeKind};

/// The directory's page.
pub(crate) const DIRECTORY: u32 = 2;
/// Trees of one catalog page.
const TREES: u32 = 64;
/// The number of meta values.
pub(crate) const METAS: usize = 16;
/// The directory's key of the meta values' own page: the number after those of all other catalog pages.
const META_PAGE: i64 = u32::MAX as i64 / TREES as i64 + 1;
/// A larger directory has its meta values in their own page. What is left is for the samples of a
/// history and for catalog pages.
const ROOM_FOR_METAS: usize = CAPACITY / 2;

fn find(node: &NodeRef, view: u64, key: i64) -> Option<usize> {
    node.entries()
        .iter()
        .position(|e| e.key == key && e.visible(view))
}

impl Core {
    pub(crate) fn catalog_node(&mut self, page: u32) -> Result<NodeRef> {
        let node = self.node(page)?;
        if node.kind == PageType::Catalog {
            Ok(node)
        } else {
            Err(Error::Damaged {
                page: PageNo(page),
                what: "it is no catalog page",
            })
        }
    }

    /// The catalog page of a tree, if there is one at a version.
    fn catalog_page(&mut self, tree: u32, view: u64) -> Result<Option<u32>> {
        let directory = self.catalog_node(DIRECTORY)?;
        let at = find(&directory, view, i64::from(tree / TREES));
        Ok(at.map(|at| directory.entries()[at].child))
    }

    /// All catalog pages of a version, the directory first.
    pub(crate) fn catalog_pages(&mut self, view: u64) -> Result<Vec<u32>> {
        let directory = self.catalog_node(DIRECTORY)?;
        let others = directory
            .entries()
            .iter()
            .filter(|e| e.key >= 0 && e.visible(view));
        Ok(std::iter::once(DIRECTORY)
            .chain(others.map(|e| e.child))
            .collect())
    }

    fn root_entry(&mut self, tree: u32, view: u64) -> Result<(u32, usize, Entry)> {
        let missing = Error::NoSuchTree(TreeId(tree));
        let Some(page) = self.catalog_page(tree, view)? else {
            return Err(missing);
        };
        let node = self.catalog_node(page)?;
        let at = find(&node, view, i64::from(tree)).ok_or(missing)?;
        Ok((page, at, node.entries()[at]))
    }

    /// The root page of a tree at a version.
    pub(crate) fn root(&mut self, tree: u32, view: u64) -> Result<u32> {
        Ok(self.root_entry(tree, view)?.2.child)
    }

    /// The version since which the live root has been the root.
    pub(crate) fn root_start(&mut self, tree: u32) -> Result<u64> {
        let m = self.version()?;
        Ok(self.root_entry(tree, m)?.2.start)
    }

    /// Trees and roots of a version.
    pub(crate) fn roots(&mut self, view: u64) -> Result<Vec<(u32, u32)>> {
        let mut roots = Vec::new();
        for page in self.catalog_pages(view)?.into_iter().skip(1) {
            let node = self.catalog_node(page)?;
            let visible = node.entries().iter().filter(|e| e.visible(view));
            for e in visible.filter(|e| e.key >= 0) {
                let tree = u32::try_from(e.key).map_err(|_| Error::Damaged {
                    page: PageNo(page),
                    what: "no tree's number",
                })?;
                roots.push((tree, e.child));
            }
        }
        roots.sort_unstable();
        Ok(roots)
    }

    /// The first tree from this number on at a version, and its root. Reads only its catalog page, and
    /// those before it that have no such tree.
    pub(crate) fn next_root(&mut self, tree: u32, view: u64) -> Result<Option<(u32, u32)>> {
        let mut from = i64::from(tree / TREES);
        loop {
            let directory = self.catalog_node(DIRECTORY)?;
            let chunks = directory.entries().iter();
            let chunks = chunks.filter(|e| e.key >= from && e.visible(view));
            let Some((chunk, page)) = chunks.map(|e| (e.key, e.child)).min() else {
                return Ok(None);
            };
            let node = self.catalog_node(page)?;
            let visible = node.entries().iter().filter(|e| e.visible(view));
            let trees = visible.filter(|e| e.key >= i64::from(tree));
            if let Some((key, root)) = trees.map(|e| (e.key, e.child)).min() {
                let next = u32::try_from(key).map_err(|_| Error::Damaged {
                    page: PageNo(page),
                    what: "no tree's number",
                })?;
                return Ok(Some((next, root)));
            }
            from = chunk + 1;
        }
    }

    /// The page of a version's meta values.
    fn meta_page(&mut self, view: u64) -> Result<u32> {
        let directory = self.catalog_node(DIRECTORY)?;
        let at = find(&directory, view, META_PAGE);
        Ok(at.map_or(DIRECTORY, |at| directory.entries()[at].child))
    }

    /// All meta values at a version.
    pub(crate) fn metas(&mut self, view: u64) -> Result<[u32; METAS]> {
        let page = self.meta_page(view)?;
        let node = self.catalog_node(page)?;
        let mut metas = [0; METAS];
        for e in node.entries().iter().filter(|e| e.visible(view)) {
            let index = usize::try_from(-1 - e.key).unwrap_or(METAS);
            if let Some(meta) = metas.get_mut(index) {
                *meta = e.child;
            }
        }
        Ok(metas)
    }

    /// A meta value at a version.
    pub(crate) fn meta(&mut self, view: u64, index: usize) -> Result<u32> {
        let page = self.meta_page(view)?;
        let node = self.catalog_node(page)?;
        let at = find(&node, view, -1 - index as i64);
        Ok(at.map_or(0, |at| node.entries()[at].child))
    }

    /// Sets a meta value.
    pub(crate) fn set_meta(&mut self, index: usize, value: u32) -> Result<()> {
        let m = self.version()?;
        if self.meta(m, index)? == value {
            return Ok(());
        }
        let mut page = self.meta_page(m)?;
        if page == DIRECTORY && self.catalog_node(DIRECTORY)?.size() > ROOM_FOR_METAS {
            page = self.move_metas()?;
        }
        let node = self.catalog_node(page)?;
        let key = -1 - index as i64;
        match find(&node, m, key) {
            Some(at) => self.change_entry(page, at, value, Ended::Moved),
            None => self.add_entry(page, key, value),
        }
    }

    /// Moves the meta values out of a directory that is getting full; returns their page.
    fn move_metas(&mut self) -> Result<u32> {
        self.collect(DIRECTORY, true)?;
        if self.catalog_node(DIRECTORY)?.size() <= ROOM_FOR_METAS {
            return Ok(DIRECTORY);
        }
        // An earlier release must not take the file for one of its own.
        if !self.header.is_newest_format {
            // It flushes.
            self.write_header(self.header.clone(), None)?;
        }
        let page = self.allocate(|p, m| Node::new(p, PageType::Catalog, None, 0, 0, m))?;
        let values = self.metas(self.version()?)?;
        self.end_metas()?;
        for (key, value) in (0..).map(|index| -1 - index).zip(values) {
            if value != 0 {
                self.add_entry(page, key, value)?;
            }
        }
        self.add_entry(DIRECTORY, META_PAGE, page)?;
        Ok(page)
    }

    /// Ends the meta values of the directory.
    fn end_metas(&mut self) -> Result<()> {
        let m = self.version()?;
        let directory = self.node_mut(DIRECTORY)?;
        let is_meta = |e: &Entry| e.live() && (-(METAS as i64)..0).contains(&e.key);
        directory.sift(|e| !is_meta(e) || e.start < m);
        for at in 0..directory.entries().len() {
            if is_meta(&directory.entries()[at]) {
                directory.end(at, m, Ended::Moved);
            }
        }
        Ok(())
    }

    /// Gives a live entry another value from this version on.
    fn change_entry(&mut self, page: u32, at: usize, child: u32, ended: Ended) -> Result<()> {
        let m = self.version()?;
        let node = self.node_mut(page)?;
        let e = node.entries()[at];
        if e.start == m {
            node.set_child(at, child);
            return Ok(());
        }
        node.end(at, m, ended);
        self.add_entry(page, e.key, child)
    }

    fn add_entry(&mut self, page: u32, key: i64, child: u32) -> Result<()> {
        let m = self.version()?;
        let e = Entry {
            start: m,
            end: INF,
            key,
            child,
            ..Entry::default()
        };
        let node = self.node_mut(page)?;
        let at = node
            .entries()
            .iter()
            .position(|e| e.key > key)
            .unwrap_or(node.entries().len());
        node.insert(at, e, &[]);
        self.settle_catalog(page)
    }

    /// Collects; moves the live entries of a catalog page that is full to a new page.
    fn settle_catalog(&mut self, page: u32) -> Result<()> {
        let node = self.catalog_node(page)?;
        if node.dead() > 0 {
            let wanted = node.size() > CAPACITY;
            drop(node);
            self.collect(page, wanted)?;
        }
        let node = self.catalog_node(page)?;
        if node.fits() {
            return Ok(());
        }
        if page == DIRECTORY {
            self.thin_samples()?;
            if self.catalog_node(page)?.fits() {
                return Ok(());
            }
            return Err(Error::TooBig(
                "the catalog, with what readers and history keep of it",
            ));
        }
        self.move_catalog(page)
    }

    /// Moves the live entries of a catalog page to a new page; not those of the directory.
    pub(crate) fn move_catalog(&mut self, page: u32) -> Result<()> {
        let m = self.version()?;
        let node = self.catalog_node(page)?;
        let q = self.allocate_node(&node)?;
        let new = self.node_mut(q)?;
        for e in node.entries().iter().filter(|e| e.live()) {
            new.push_from(&node, e);
        }
        if !new.fits() {
            return Err(Error::TooBig("the catalog"));
        }
        let directory = self.catalog_node(DIRECTORY)?;
        let at = directory
            .entries()
            .iter()
            .position(|e| e.live() && e.key >= 0 && e.child == page);
        let Some(at) = at else {
            return Err(Error::Damaged {
                page: PageNo(page),
                what: "the directory lost it",
            });
        };
        debug_assert!(directory.entries()[at].visible(m));
        self.change_entry(DIRECTORY, at, q, Ended::Replaced)?;
        self.retire(page, &[])
    }

    /// Gives a tree another root. `ended` gives the fate of the old one.
    pub(crate) fn replace_root(&mut self, tree: u32, root: u32, ended: Ended) -> Result<()> {
        let m = self.version()?;
        let (page, at, _) = self.root_entry(tree, m)?;
        self.change_entry(page, at, root, ended)
    }

    /// Makes a tree; returns its number, the smallest one that is free.
    pub(crate) fn create_tree(&mut self, kind: TreeKind) -> Result<u32> {
        let m = self.version()?;
        let taken: Vec<u32> = self.roots(m)?.into_iter().map(|(t, _)| t).collect();
        let mut tree = 1;
        for t in taken {
            if t == tree {
                tree += 1;
            }
        }
        let page = match self.catalog_page(tree, m)? {
            Some(page) => page,
            None => {
                let page = self.allocate(|p, m| Node::new(p, PageType::Catalog, None, 0, 0, m))?;
                self.add_entry(DIRECTORY, i64::from(tree / TREES), page)?;
                page
            }
        };
        let root = self.allocate(|p, m| Node::new(p, PageType::Leaf, Some(kind), tree, 0, m))?;
        self.add_entry(page, i64::from(tree), root)?;
        self.changed(tree);
        Ok(tree)
    }

    /// Removes a tree.
    pub(crate) fn drop_tree(&mut self, tree: u32) -> Result<()> {
        let m = self.version()?;
        let (page, at, e) = self.root_entry(tree, m)?;
        self.changed(tree);
        self.take_back_tree(tree)?;
        if e.start < m {
            self.node_mut(page)?.end(at, m, Ended::Killed);
            return self.settle_catalog(page);
        }
        self.node_mut(page)?.remove(at);
        self.own_old_root(page, tree)
    }

    /// Removes all entries of a tree.
    pub(crate) fn clear_tree(&mut self, tree: u32) -> Result<()> {
        let m = self.version()?;
        let (page, at, e) = self.root_entry(tree, m)?;
        let kind = self.kind_of(e.child, tree)?;
        self.changed(tree);
        self.take_back_tree(tree)?;
        let leaf = self.allocate(|p, m| Node::new(p, PageType::Leaf, Some(kind), tree, 0, m))?;
        if e.start < m {
            return self.change_entry(page, at, leaf, Ended::Killed);
        }
        self.node_mut(page)?.set_child(at, leaf);
        self.own_old_root(page, tree)
    }

    /// Handles a tree whose root changed and which is removed in the same transaction. The new root
    /// had taken over the tree's earlier pages. They belong to its old root's entry again.
    fn own_old_root(&mut self, page: u32, tree: u32) -> Result<()> {
        let m = self.version()?;
        let node = self.node_mut(page)?;
        for at in 0..node.entries().len() {
            let e = node.entries()[at];
            if e.key == i64::from(tree) && e.end == m {
                node.set_ended(at, Ended::Killed);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Db, Durability, MemoryFile, Options};

    #[test]
    fn meta_values_that_move_upgrade_the_file_with_a_flush_for_each_header() {
        let mut db = Db::open(MemoryFile::new().storage(), Options::default()).unwrap();
        db.set_history(u64::MAX >> 1).unwrap();
        let mut most = 0;
        for value in 1..500 {
            db.begin_write().unwrap();
            // As that of a file that an earlier release has written.
            db.core.header.is_newest_format = false;
            let before = db.stats().flushes;
            db.set_meta(3, value).unwrap();
            most = most.max(db.stats().flushes - before);
            db.core.header.is_newest_format = true;
            db.commit(Durability::Flush).unwrap();
        }
        assert_eq!(most, 2);
        assert_eq!(db.check().unwrap(), Vec::<String>::new());
    }
}
