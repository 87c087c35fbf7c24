//! Moving pages nearer to the file's beginning: see [`crate::tree::pack`], whose step it takes.

use std::collections::BTreeSet;

use crate::core::Core;
use crate::error::Result;
use crate::page::{CAPACITY, Ended, Entry, INF, NodeRef, PageType};
use crate::tree::catalog::DIRECTORY;
use crate::tree::edit::Path;
use crate::tree::pack::{Aim, Child, Packed, Sweep, end_cost, router_cost};
use crate::types::TreeKind;

impl Core {
    /// A sweep through the trees that have pages from `end` on; none if there is nothing to move. Pages
    /// that no tree has are left out: a crash may have left some.
    pub(crate) fn sweep_before(&mut self, end: u32) -> Result<Option<Sweep>> {
        let mut sweep = Sweep::new(Aim::Before(end));
        let mut trees = BTreeSet::new();
        for page in end..self.space.map.hwm {
            if self.is_free(page) {
                continue;
            }
            let Some(node) = self.dead_node(page)? else {
                continue;
            };
            match node.kind {
                PageType::Catalog => {
                    trees.insert(0);
                }
                PageType::Leaf | PageType::Inner => {
                    trees.insert(node.tree);
                }
                PageType::Overflow => {
                    trees.insert(node.tree);
                    sweep.chains = true;
                }
                PageType::Record => {}
            }
        }
        let any = !trees.is_empty();
        sweep.trees = Some(trees);
        Ok(any.then_some(sweep))
    }

    /// Goes on with a sweep until so many pages are written. At its end it comes to roots and catalog
    /// pages. Returns the number of pages.
    pub(crate) fn move_on(&mut self, sweep: &mut Sweep, most: u32) -> Result<u32> {
        let mut moved = self.pack(sweep, most)?;
        let Aim::Before(end) = sweep.aim else {
            return Ok(moved);
        };
        if !sweep.over {
            return Ok(moved);
        }
        let view = self.version()?;
        for (tree, root) in self.roots(view)? {
            let wanted = sweep.trees.as_ref().is_some_and(|all| all.contains(&tree));
            if wanted {
                moved += self.move_root(tree, root, end, sweep.chains)?;
            }
        }
        for page in self.catalog_pages(view)? {
            if page != DIRECTORY && page >= end && self.room_before(end, 1) {
                self.move_catalog(page)?;
                moved += 1;
            }
        }
        Ok(moved)
    }

    fn room_before(&self, end: u32, pages: u32) -> bool {
        self.space.map.free_below(end, pages) >= pages
    }

    /// Moves children of the end of a path, and their long values, so many pages of the latter.
    pub(super) fn move_below(
        &mut self,
        tree: u32,
        path: &mut Path,
        end: u32,
        chains: Option<u32>,
    ) -> Result<Packed> {
        let (parent, _) = path[path.len() - 1];
        self.collect_all_of(parent)?;
        let node = self.node(parent)?;
        let mut pages = 0;
        if let Some(most) = chains.filter(|_| node.level == 1) {
            let chains = self.move_chains_below(path, end, most)?;
            if chains.again {
                return Ok(chains);
            }
            pages += chains.pages;
        }
        loop {
            let node = self.node(parent)?;
            let Some(child) = self.child_to_move(&node, end)? else {
                let again = false;
                return Ok(Packed { pages, again });
            };
            pages += self.replace(tree, path, &[child], CAPACITY)?;
            if !self.stands(tree, path)? {
                // A split of the parent moves routers above it.
                let again = true;
                return Ok(Packed { pages, again });
            }
        }
    }

    /// True if a path still leads from the root to its last node. A node that dies may look as before.
    fn stands(&mut self, tree: u32, path: &Path) -> Result<bool> {
        let view = self.version()?;
        let root = self.root(tree, view)?;
        if path.first().is_none_or(|(page, _)| *page != root) {
            return Ok(false);
        }
        for step in path.windows(2) {
            let ((page, at), (child, _)) = (step[0], step[1]);
            let node = self.node(page)?;
            let router = node.entries().get(at);
            if router.is_none_or(|e| !e.live() || e.child != child) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A child that stands, or whose router's long key stands, behind `end`. None if there is no room
    /// before it, or in the parent.
    fn child_to_move(&mut self, parent: &NodeRef, end: u32) -> Result<Option<Child>> {
        let m = self.version()?;
        for (at, e) in parent
            .entries()
            .iter()
            .enumerate()
            .filter(|(_, e)| e.live())
        {
            let chain = self.chain(parent.tree, parent.page, e)?;
            let stays = e.child < end && chain.iter().all(|page| *page < end);
            if stays || !self.room_before(end, 1 + chain.len() as u32) {
                continue;
            }
            let size = parent.size() + end_cost(parent, e, m) + router_cost(parent, e);
            if size > CAPACITY {
                continue;
            }
            let node = self.node_of(e.child, parent.tree, Some(parent.level - 1))?;
            let router = *e;
            return Ok(Some(Child { at, router, node }));
        }
        Ok(None)
    }

    /// Writes the long values of the leaves below the end of a path again that stand behind `end`. Ends
    /// when the parent changes, or so many pages are written.
    fn move_chains_below(&mut self, path: &mut Path, end: u32, most: u32) -> Result<Packed> {
        let depth = path.len();
        let (parent, _) = path[depth - 1];
        let above = self.node(parent)?;
        let mut pages = 0;
        for (at, router) in above.entries().iter().enumerate().filter(|(_, e)| e.live()) {
            path[depth - 1].1 = at;
            path.truncate(depth);
            path.push((router.child, 0));
            if !self.stands(above.tree, path)? {
                path.truncate(depth);
                return Ok(Packed { pages, again: true });
            }
            let leaf = self.node_of(router.child, above.tree, Some(0))?;
            self.collect_owners(&leaf)?;
            let (moved, same) = self.move_chains(path, end, most - pages)?;
            pages += moved;
            if !same {
                path.truncate(depth);
                return Ok(Packed { pages, again: true });
            }
        }
        path.truncate(depth);
        Ok(Packed {
            pages,
            again: false,
        })
    }

    /// Writes the long values of the leaf at the end of a path again that stand behind `end`. Returns the
    /// pages written, and false if the nodes above have changed, or these are `most`, and some may be
    /// left.
    fn move_chains(&mut self, path: &mut Path, end: u32, most: u32) -> Result<(u32, bool)> {
        let depth = path.len() - 1;
        let (page, _) = path[depth];
        let tree = self.node(page)?.tree;
        let mut pages = 0;
        'again: loop {
            let leaf = self.node(page)?;
            for (at, e) in leaf.entries().iter().enumerate() {
                if !e.live() || e.overflow == 0 {
                    continue;
                }
                let chain = self.chain(tree, leaf.page, e)?;
                let count = chain.len() as u32;
                if chain.iter().all(|page| *page < end) || !self.room_before(end, count + 1) {
                    continue;
                }
                self.rewrite(path, at)?;
                self.spill_if_needed()?;
                pages += count;
                if pages >= most || !self.stands(tree, path)? {
                    return Ok((pages, false));
                }
                continue 'again;
            }
            return Ok((pages, true));
        }
    }

    /// Writes an entry's payload again: an update without a change.
    fn rewrite(&mut self, path: &mut Path, at: usize) -> Result<()> {
        let m = self.version()?;
        let depth = path.len() - 1;
        let page = path[depth].0;
        let node = self.node(page)?;
        let e = node.entries()[at];
        let payload = self.payload(&node, &e, e.total as usize)?;
        let is_row = node.tree_kind == Some(TreeKind::Integer);
        let mut new = Entry {
            start: m,
            end: INF,
            key: e.key,
            key_len: e.key_len,
            ..Entry::default()
        };
        let local = self.store_payload(node.tree, is_row, &mut new, &payload)?;
        self.changed(node.tree);
        drop(node);
        let at = self.end_entry(page, at)?;
        self.insert(path, depth, at, new, local)
    }

    /// Moves a root behind `end`, or the long values of one that is a leaf.
    fn move_root(&mut self, tree: u32, root: u32, end: u32, chains: bool) -> Result<u32> {
        let mut moved = 0;
        let mut root = root;
        if chains && self.node_of(root, tree, None)?.level == 0 {
            moved += self.move_chains(&mut vec![(root, 0)], end, u32::MAX)?.0;
            root = self.root(tree, self.version()?)?;
        }
        if root < end || !self.room_before(end, 1) {
            return Ok(moved);
        }
        let node = self.node_of(root, tree, None)?;
        let own = self.txn()?.own.contains(&root);
        if !own && self.root_start(tree)? == self.version()? {
            // It became the root in this transaction: only the entry of an earlier root leads to it.
            return Ok(moved);
        }
        let q = self.allocate_node(&node)?;
        let new = self.node_mut(q)?;
        for e in node.entries().iter().filter(|e| e.live()) {
            new.push_from(&node, e);
        }
        if !new.fits() {
            self.free_page(q)?;
            return Ok(moved);
        }
        if own {
            self.carry_owners(&node, q)?;
        }
        self.replace_root(tree, q, Ended::Replaced)?;
        self.retire(root)?;
        self.changed(tree);
        Ok(moved + 1)
    }
}
