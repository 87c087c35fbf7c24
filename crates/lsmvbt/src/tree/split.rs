//! Splits of a node that is too full. Append splits are in `edit.rs`, where nothing has been
//! changed yet.
//!
//! | split | what happens | pages changed |
//! | --- | --- | --- |
//! | lazy | the upper half is copied to a new node and ends here as `moved`; this node stays | 3 |
//! | legacy | every live entry is copied to one or more new nodes; this one dies | 3 or 4 |
//!
//! Entries born in this transaction move without leaving anything behind: no reader has seen them.

use crate::core::Core;
use crate::error::Result;
use crate::page::cell::{self, MIN_LOCAL};
use crate::page::{CAPACITY, Ended, Entry, Node, NodeRef, OVERFLOW_BYTES, PageType};
use crate::tree::edit::{Path, owns};
use crate::types::TreeKind;

impl Core {
    /// Splits the node at `path[depth]`.
    pub(crate) fn split(&mut self, path: &mut Path, depth: usize) -> Result<()> {
        let page = path[depth].0;
        let node = self.node(page)?;
        let optimizations = self.options.optimizations;
        if !optimizations.no_redistribution
            && node.kind == PageType::Leaf
            && self.redistribute(path, depth, &node)?
        {
            return Ok(());
        }
        if optimizations.lazy_split
            && !node.is_lazy()
            && node.live_count() >= 2
            && self.split_lazily(path, depth, &node)?
        {
            return Ok(());
        }
        self.split_legacy(path, depth, &node)
    }

    /// False if the halves would not fit.
    fn split_lazily(&mut self, path: &mut Path, depth: usize, node: &NodeRef) -> Result<bool> {
        let m = self.version()?;
        let page = path[depth].0;
        let own = self.txn()?.own.contains(&page);
        let half = upper_half(node);
        let mut upper = Node::new(
            node.page,
            node.kind,
            node.tree_kind,
            node.tree,
            node.level,
            m,
        );
        let mut lower = (**node).clone();
        for at in (half..node.entries().len()).rev() {
            let e = node.entries()[at];
            if !e.live() {
                continue;
            }
            upper.insert(0, e, node.local(&e));
            if own || e.start == m {
                lower.remove(at);
            } else {
                lower.end(at, m, Ended::Moved);
            }
        }
        if lower.size() > self.limit(&lower) || upper.size() > CAPACITY {
            return Ok(false);
        }
        self.stats.lazy_splits += 1;
        let q = self.allocate_node(node)?;
        upper.page = crate::types::PageNo(q);
        *self.node_mut(q)? = upper;
        *self.node_mut(page)? = lower;
        self.add_routers(path, depth, &[q], false)?;
        Ok(true)
    }

    fn split_legacy(&mut self, path: &mut Path, depth: usize, node: &NodeRef) -> Result<()> {
        self.stats.legacy_splits += 1;
        let page = path[depth].0;
        let live: Vec<Entry> = node
            .entries()
            .iter()
            .filter(|e| e.live())
            .copied()
            .collect();
        let own = self.txn()?.own.contains(&page);
        if own && live.is_empty() && node.entries().iter().any(owns) {
            return self.keep_owners(page);
        }
        if live.is_empty() && depth > 0 {
            return self.kill_node(path, depth);
        }
        if live.is_empty() && node.kind == PageType::Inner {
            return self.kill_root(page);
        }
        let mut bytes: usize = live.iter().map(|e| node.cost(e)).sum();
        if own {
            let is_row = node.tree_kind == Some(TreeKind::Integer);
            let owners = node.entries().iter().filter(|e| owns(e));
            let owners = owners.map(|e| node.cost(&without_payload(e, is_row)));
            bytes += owners.sum::<usize>();
        }
        // A part needs room for later entries, but there should be few parts.
        let parts = (bytes * 10)
            .div_ceil(self.soft_limit() * 8)
            .max(1)
            .min(live.len().max(1));
        let mut pages = Vec::new();
        for part in divide(&live, |e| node.cost(e), parts) {
            let q = self.allocate_node(node)?;
            let new = self.node_mut(q)?;
            for e in part {
                new.push_from(node, e);
            }
            pages.push(q);
        }
        if own {
            self.carry_owners(node, &pages)?;
        }
        self.add_routers(path, depth, &pages, true)?;
        self.retire(page, &pages)
    }

    /// A page of this transaction dies at once, but dead entries in it may own pages of earlier
    /// versions. They go on in the new nodes, without their payloads: no version sees them there. New
    /// nodes leave their reserve free, if it is not needed for this.
    pub(crate) fn carry_owners(&mut self, node: &NodeRef, to: &[u32]) -> Result<()> {
        let owners: Vec<Entry> = node.entries().iter().filter(|e| owns(e)).copied().collect();
        self.carry(node, &owners, to)
    }

    /// The same for some of them.
    pub(crate) fn carry(&mut self, node: &NodeRef, owners: &[Entry], to: &[u32]) -> Result<()> {
        let is_row = node.tree_kind == Some(TreeKind::Integer);
        let limits = [self.soft_limit(), CAPACITY];
        let local = [0; MIN_LOCAL];
        for owner in owners.iter().map(|e| without_payload(e, is_row)) {
            let places = limits
                .iter()
                .flat_map(|limit| to.iter().map(move |page| (*limit, *page)));
            for (limit, page) in places {
                let new = self.node(page)?;
                let (size, at) = (new.size() + new.cost(&owner), new.len());
                // A change copies a node that somebody else holds.
                drop(new);
                if size <= limit {
                    let new = self.node_mut(page)?;
                    new.insert(at, owner, &local[..usize::from(owner.local)]);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Sibling redistribution, as in other B-trees: this leaf and its right sibling are divided
    /// among three. All three and the parent are written. False if there is no such sibling.
    fn redistribute(&mut self, path: &mut Path, depth: usize, node: &NodeRef) -> Result<bool> {
        if depth == 0 {
            return Ok(false);
        }
        let (parent, router) = path[depth - 1];
        let up = self.node(parent)?;
        let next = up
            .entries()
            .iter()
            .enumerate()
            .skip(router + 1)
            .find(|(_, e)| e.live());
        let Some((next, right)) = next.map(|(i, e)| (i, *e)) else {
            return Ok(false);
        };
        let sibling = self.node_of(right.child, node.tree, Some(node.level))?;
        if sibling.live_count() == 0 {
            return Ok(false);
        }
        let both: Vec<(NodeRef, Entry)> = [node, &sibling]
            .into_iter()
            .flat_map(|n| {
                n.entries()
                    .iter()
                    .filter(|e| e.live())
                    .map(|e| (n.clone(), *e))
            })
            .collect();
        let (page, sibling_page) = (path[depth].0, right.child);
        let mut pages = Vec::new();
        for part in divide(&both, |(n, e)| n.cost(e), 3) {
            let q = self.allocate_node(node)?;
            let new = self.node_mut(q)?;
            for (from, e) in part {
                new.push_from(from, e);
            }
            pages.push(q);
        }
        if pages.iter().any(|q| self.node(*q).is_ok_and(|n| !n.fits())) {
            for q in pages {
                self.free_page(q)?;
            }
            return Ok(false);
        }
        self.stats.legacy_splits += 1;
        let own: Vec<u32> = {
            let txn = self.txn()?;
            [page, sibling_page]
                .into_iter()
                .filter(|p| txn.own.contains(p))
                .collect()
        };
        if own.contains(&page) {
            self.carry_owners(node, &pages)?;
        }
        if own.contains(&sibling_page) {
            pages.reverse();
            self.carry_owners(&sibling, &pages)?;
            pages.reverse();
        }
        self.end_entry(parent, next)?;
        self.add_routers(path, depth, &pages, true)?;
        self.retire(page, &pages)?;
        self.retire(sibling_page, &pages)?;
        Ok(true)
    }
}

/// A dead entry that only owns its pages. One with a chain must have a payload that needs one.
fn without_payload(e: &Entry, is_row: bool) -> Entry {
    let total = match e.overflow {
        0 => 0,
        _ => MIN_LOCAL + OVERFLOW_BYTES,
    };
    Entry {
        key: 0,
        key_len: 0,
        total: total as u32,
        local: cell::local_len(total, is_row) as u16,
        ..*e
    }
}

/// The index of the first entry of the upper half, by bytes of the live entries; at least one on
/// each side.
fn upper_half(node: &NodeRef) -> usize {
    let live: Vec<usize> = (0..node.entries().len())
        .filter(|i| node.entries()[*i].live())
        .collect();
    let total: usize = live.iter().map(|i| node.cost(&node.entries()[*i])).sum();
    let mut below = 0;
    for (n, i) in live.iter().enumerate() {
        below += node.cost(&node.entries()[*i]);
        if below * 2 >= total && n + 1 < live.len() {
            return live[n + 1];
        }
    }
    live.last().copied().unwrap_or(0)
}

/// Divides into at most `parts` runs of about the same number of bytes, none empty.
fn divide<T>(items: &[T], cost: impl Fn(&T) -> usize, parts: usize) -> Vec<&[T]> {
    let total: usize = items.iter().map(&cost).sum();
    let mut runs = Vec::new();
    let (mut from, mut sum) = (0, 0);
    for (i, item) in items.iter().enumerate() {
        sum += cost(item);
        if runs.len() + 1 < parts && sum * parts >= total * (runs.len() + 1) {
            runs.push(&items[from..=i]);
            from = i + 1;
        }
    }
    if from < items.len() || runs.is_empty() {
        runs.push(&items[from..]);
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::INF;
    use crate::tree::edit::NewEntry;
    use crate::tree::search::Target;
    use crate::{Db, Durability, MemoryFile, Options, Torn};

    /// A page behind the end: it counts as free.
    const NOWHERE: u32 = u32::MAX - 1;

    fn owner(m: u64, key: i64) -> Entry {
        Entry {
            start: m - 1,
            end: m,
            child: NOWHERE,
            key,
            ..Entry::default()
        }
    }

    fn put(core: &mut Core, tree: u32, key: i64) {
        let new = NewEntry::Integer(key, b"row");
        core.put(tree, &new, &mut Target::Integer(key)).unwrap();
    }

    fn owners(core: &mut Core, pages: &[u32]) -> usize {
        let nodes: Vec<NodeRef> = pages.iter().map(|p| core.node(*p).unwrap()).collect();
        let entries = nodes.iter().flat_map(|node| node.entries());
        entries.filter(|e| owns(e)).count()
    }

    /// A database with a write transaction whose tree has an inner root of this transaction, filled
    /// with dead entries that own pages. The last of them may make it too large.
    fn root_of_owners(is_over: bool) -> (Db, u32, u32) {
        let options = Options {
            torn: Torn::Trust,
            ..Options::default()
        };
        let mut db = Db::open(MemoryFile::new().storage(), options).unwrap();
        for _ in 0..2 {
            db.begin_write().unwrap();
            db.set_meta(1, 1).unwrap();
            db.commit(Durability::Flush).unwrap();
        }
        db.begin_write().unwrap();
        let tree = db.create_tree(crate::TreeKind::Integer).unwrap().0;
        let core = &mut db.core;
        let m = core.version().unwrap();
        let inner = |page, m| Node::new(page, PageType::Inner, Some(TreeKind::Integer), tree, 1, m);
        let root = core.allocate(inner).unwrap();
        let old = core.root(tree, m).unwrap();
        core.replace_root(tree, root, Ended::Moved).unwrap();
        core.free_page(old).unwrap();
        let node = core.node_mut(root).unwrap();
        while node.size() + node.cost(&owner(m, 0)) <= CAPACITY {
            node.insert(0, owner(m, 0), &[]);
        }
        // A longer key fills the rest.
        let left = CAPACITY - node.size() + usize::from(is_over);
        node.remove(0);
        let longer = (0..63).map(|bit| owner(m, 1 << bit));
        let fills = longer
            .into_iter()
            .find(|e| node.cost(e) == node.cost(&owner(m, 0)) + left);
        node.insert(0, fills.unwrap(), &[]);
        assert_eq!(node.size(), CAPACITY + usize::from(is_over));
        (db, tree, root)
    }

    /// Found by a review: the new root had no router, and every later search failed.
    #[test]
    fn a_root_that_is_too_large_without_live_entries_leads_to_a_leaf() {
        for is_over in [false, true] {
            let (mut db, tree, root) = root_of_owners(is_over);
            let core = &mut db.core;
            let before = owners(core, &[root]);
            core.settle(&mut vec![(root, 0)], 0, None).unwrap();
            let m = core.version().unwrap();
            let root = core.root(tree, m).unwrap();
            let node = core.node(root).unwrap();
            assert!(node.fits() && node.live_count() == 1);
            // The router takes the room of two at most.
            assert!(owners(core, &[root]) + 2 >= before);
            put(core, tree, -7);
            assert_eq!(core.check().unwrap(), Vec::<String>::new());
            db.commit(Durability::Flush).unwrap();
            assert_eq!(db.check().unwrap(), Vec::<String>::new());
        }
    }

    /// Found by a review: only live entries were counted, so that owners found no room.
    #[test]
    fn a_split_makes_nodes_for_owners_too() {
        let (mut db, tree, root) = root_of_owners(true);
        let core = &mut db.core;
        let m = core.version().unwrap();
        for key in (0..4).rev() {
            let inner =
                |page, m| Node::new(page, PageType::Leaf, Some(TreeKind::Integer), tree, 0, m);
            let child = core.allocate(inner).unwrap();
            let router = Entry {
                start: m,
                end: INF,
                ..owner(m, key)
            };
            let router = Entry { child, ..router };
            core.node_mut(root).unwrap().insert(0, router, &[]);
        }
        let before = owners(core, &[root]);
        let node = core.node(root).unwrap();
        core.split_legacy(&mut vec![(root, 0)], 0, &node).unwrap();
        let above = core.root(tree, m).unwrap();
        let routers = core.node(above).unwrap();
        let pages: Vec<u32> = match routers.level {
            1 => vec![above],
            _ => routers.entries().iter().map(|e| e.child).collect(),
        };
        assert_eq!(owners(core, &pages), before);
        put(core, tree, 2);
        assert_eq!(core.check().unwrap(), Vec::<String>::new());
    }

    /// Found by reading: the new root had no router, as above, where the root was of an earlier version.
    #[test]
    fn a_root_of_before_that_becomes_too_large_without_live_entries_leads_to_a_leaf() {
        let (mut db, tree, root) = root_of_owners(false);
        // Keeps the dead entries.
        let view = db.snapshot().unwrap();
        let core = &mut db.core;
        let m = core.version().unwrap();
        let leaf = |page, m| Node::new(page, PageType::Leaf, Some(TreeKind::Integer), tree, 0, m);
        let child = core.allocate(leaf).unwrap();
        let node = core.node_mut(root).unwrap();
        node.remove(0);
        let left = CAPACITY - node.size();
        let router = |bit: u32| Entry {
            start: m,
            end: INF,
            child,
            ..owner(m, 1 << bit)
        };
        let router = (0..63).map(router).find(|e| node.cost(e) == left);
        node.insert(0, router.unwrap(), &[]);
        assert_eq!(node.size(), CAPACITY);
        put(core, tree, 5);
        db.commit(Durability::Flush).unwrap();
        db.begin_write().unwrap();
        assert!(db.delete_integer(crate::TreeId(tree), 5).unwrap());
        assert_eq!(db.check().unwrap(), Vec::<String>::new());
        put(&mut db.core, tree, 7);
        db.commit(Durability::Flush).unwrap();
        assert_eq!(db.check().unwrap(), Vec::<String>::new());
        drop(view);
    }
}
