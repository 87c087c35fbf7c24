//! Moving pages nearer to the file's beginning: see [`crate::tree::pack`], whose step it takes.

use crate::core::Core;
use crate::error::Result;
use crate::page::{CAPACITY, Ended, Entry, INF, NodeRef};
use crate::tree::edit::Path;
use crate::tree::pack::{Child, end_cost, router_cost};
use crate::tree::sweep::{Budget, Sweep};
use crate::types::TreeKind;

/// The index and the child of the router that has so many live ones before it.
fn nth_live(node: &NodeRef, number: usize) -> Option<(usize, u32)> {
    let mut live = node.entries().iter().enumerate().filter(|(_, e)| e.live());
    live.nth(number).map(|(at, e)| (at, e.child))
}

impl Core {
    pub(super) fn room_before(&self, end: u32, pages: u32) -> bool {
        self.space.map.free_below(end, pages) >= pages
    }

    /// Moves the children of the end of a path that stand behind `end`, and their long values. Goes on
    /// at the sweep's place. Returns the pages written, and true if the parent is done.
    pub(super) fn move_below(
        &mut self,
        tree: u32,
        path: &mut Path,
        end: u32,
        sweep: &mut Sweep,
        budget: &mut Budget,
    ) -> Result<(u32, bool)> {
        let depth = path.len() - 1;
        let (parent, _) = path[depth];
        self.collect_all_of(parent)?;
        let mut pages = 0;
        while !budget.is_spent() {
            let node = self.node(parent)?;
            let Some((at, child)) = nth_live(&node, sweep.place.child) else {
                return Ok((pages, true));
            };
            budget.looked(1);
            if sweep.chains && node.level == 1 {
                path[depth].1 = at;
                path.push((child, 0));
                let (moved, same) = self.move_chains(path, end, sweep, budget)?;
                path.truncate(depth + 1);
                pages += moved;
                if !same {
                    return Ok((pages, false));
                }
            }
            (sweep.place.child, sweep.place.entry) = (sweep.place.child + 1, 0);
            let node = self.node(parent)?;
            let Some(child) = self.child_to_move(&node, at, end, budget)? else {
                continue;
            };
            let new = self.replace(tree, path, &[child], CAPACITY)?;
            budget.wrote(new);
            pages += new;
            if !self.stands(tree, path)? {
                // A split of the parent moves routers above it.
                return Ok((pages, false));
            }
        }
        Ok((pages, false))
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

    /// The child at this index, if it stands, or its router's long key stands, behind `end`. None if
    /// there is no room before it, or in the parent.
    fn child_to_move(
        &mut self,
        parent: &NodeRef,
        at: usize,
        end: u32,
        budget: &mut Budget,
    ) -> Result<Option<Child>> {
        let m = self.version()?;
        let Some(router) = parent.entries().get(at).copied() else {
            return Ok(None);
        };
        let chain = self.chain(parent.tree, parent.page, &router)?;
        budget.looked(chain.len());
        let stays = router.child < end && chain.iter().all(|page| *page < end);
        if stays || !self.room_before(end, 1 + chain.len() as u32) {
            return Ok(None);
        }
        let size = parent.size() + end_cost(parent, &router, m) + router_cost(parent, &router);
        if size > CAPACITY {
            return Ok(None);
        }
        let node = self.node_of(router.child, parent.tree, Some(parent.level - 1))?;
        Ok(Some(Child { at, router, node }))
    }

    /// Writes the long values of the leaf at the end of a path again that stand behind `end`, from the
    /// sweep's entry on. Returns the pages written, and false if the nodes above have changed, or the
    /// budget is spent: some may be left.
    fn move_chains(
        &mut self,
        path: &mut Path,
        end: u32,
        sweep: &mut Sweep,
        budget: &mut Budget,
    ) -> Result<(u32, bool)> {
        let (page, _) = path[path.len() - 1];
        let leaf = self.node(page)?;
        let tree = leaf.tree;
        self.node_of(page, tree, Some(0))?;
        self.collect_owners(&leaf)?;
        drop(leaf);
        let mut pages = 0;
        loop {
            let leaf = self.node(page)?;
            let mut live = leaf.entries().iter().enumerate().filter(|(_, e)| e.live());
            let Some((at, e)) = live.nth(sweep.place.entry) else {
                return Ok((pages, true));
            };
            if e.overflow == 0 {
                sweep.place.entry += 1;
                continue;
            }
            if budget.is_spent() {
                return Ok((pages, false));
            }
            let chain = self.chain(tree, leaf.page, e)?;
            budget.looked(chain.len());
            sweep.place.entry += 1;
            let count = chain.len() as u32;
            if chain.iter().all(|page| *page < end) || !self.room_before(end, count + 1) {
                continue;
            }
            drop(leaf);
            self.rewrite(path, at)?;
            self.spill_if_needed()?;
            budget.wrote(count);
            pages += count;
            if !self.stands(tree, path)? {
                return Ok((pages, false));
            }
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

    /// Moves a root behind `end`, or the long values of one that is a leaf. Returns the pages written,
    /// and true if it is done.
    pub(super) fn move_root(
        &mut self,
        tree: u32,
        root: u32,
        end: u32,
        sweep: &mut Sweep,
        budget: &mut Budget,
    ) -> Result<(u32, bool)> {
        let mut moved = 0;
        if sweep.chains && self.node_of(root, tree, None)?.level == 0 {
            let (pages, same) = self.move_chains(&mut vec![(root, 0)], end, sweep, budget)?;
            if !same {
                return Ok((pages, false));
            }
            moved = pages;
        }
        if root < end || !self.room_before(end, 1) {
            return Ok((moved, true));
        }
        let node = self.node_of(root, tree, None)?;
        let own = self.txn()?.own.contains(&root);
        if self.is_root_since(root, tree)? {
            return Ok((moved, true));
        }
        let q = self.allocate_node(&node)?;
        let new = self.node_mut(q)?;
        for e in node.entries().iter().filter(|e| e.live()) {
            new.push_from(&node, e);
        }
        if !new.fits() {
            self.free_page(q)?;
            return Ok((moved, true));
        }
        if own {
            self.carry_owners(&node, &[q])?;
        }
        self.replace_root(tree, q, Ended::Replaced)?;
        self.retire(root, &[q])?;
        self.changed(tree);
        budget.wrote(1);
        Ok((moved + 1, true))
    }
}
