//! Insertion, replacement and deletion of entries, and what follows from them up the tree.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::page::{CAPACITY, Ended, Entry, INF, Node, NodeRef, PageType, cell};
use crate::room;
use crate::tree::pack::end_cost;
use crate::tree::search::{Place, Target};
use crate::types::{PageNo, TreeKind};

/// A way down by page and index; the nodes may change meanwhile.
pub(crate) type Path = Vec<(u32, usize)>;

/// A key and value from the caller.
pub(crate) enum NewEntry<'a> {
    Integer(i64, &'a [u8]),
    Bytes(&'a [u8], &'a [u8]),
    Custom(&'a [u8]),
}

impl NewEntry<'_> {
    fn kind(&self) -> TreeKind {
        match self {
            NewEntry::Integer(..) => TreeKind::Integer,
            NewEntry::Bytes(..) => TreeKind::Bytes,
            NewEntry::Custom(..) => TreeKind::Custom,
        }
    }
}

impl Core {
    /// Bytes that a node may fill after an insertion: all of it once it has been split lazily.
    pub(crate) fn limit(&self, node: &Node) -> usize {
        if node.is_lazy() {
            CAPACITY
        } else {
            self.soft_limit()
        }
    }

    /// The same without the reserve.
    pub(crate) fn soft_limit(&self) -> usize {
        let reserve = usize::from(self.options.optimizations.reserve_percent.min(40));
        CAPACITY - CAPACITY * reserve / 100
    }

    /// The path to a leaf of the write transaction's view, and the place in it.
    pub(crate) fn way(&mut self, tree: u32, target: &mut Target<'_>) -> Result<(Path, Place)> {
        let view = self.version()?;
        let root = self.root(tree, view)?;
        let mut steps = Vec::new();
        self.descend(root, tree, view, target, &mut steps)?;
        let Some(leaf) = steps.last() else {
            return Err(Error::Damaged {
                page: PageNo(root),
                what: "it leads nowhere",
            });
        };
        let place = self.place(&leaf.node.clone(), view, target)?;
        Ok((steps.iter().map(|s| (s.page, s.index)).collect(), place))
    }

    /// Inserts or replaces.
    pub(crate) fn put(
        &mut self,
        tree: u32,
        new: &NewEntry<'_>,
        target: &mut Target<'_>,
    ) -> Result<()> {
        let m = self.version()?;
        let root = self.root(tree, m)?;
        if self.kind_of(root, tree)? != new.kind() {
            return Err(Error::WrongKind(crate::types::TreeId(tree)));
        }
        self.look_for_space()?;
        let (mut path, place) = self.way(tree, target)?;
        let mut e = Entry {
            start: m,
            end: INF,
            ..Entry::default()
        };
        let mut joined = Vec::new();
        let payload = match new {
            NewEntry::Integer(key, value) => {
                e.key = *key;
                *value
            }
            NewEntry::Custom(key) => {
                e.key_len = key.len() as u32;
                *key
            }
            NewEntry::Bytes(key, value) => {
                e.key_len = key.len() as u32;
                room::reserve(&mut joined, key.len() + value.len())?;
                joined.extend_from_slice(key);
                joined.extend_from_slice(value);
                joined.as_slice()
            }
        };
        let is_row = matches!(new, NewEntry::Integer(..));
        let local = self.store_payload(tree, is_row, &mut e, payload)?;
        self.changed(tree);
        let leaf = path.len() - 1;
        let at = match (place.exact, place.before, place.after) {
            (Some(old), _, _) => self.end_entry(path[leaf].0, old)?,
            (None, Some(before), _) => before + 1,
            (None, None, Some(after)) => after,
            (None, None, None) => 0,
        };
        self.insert(&mut path, leaf, at, e, local)
    }

    /// Ends the live entry at an index, or removes it if it was born in this transaction. Returns
    /// the index at which its successor belongs.
    pub(crate) fn end_entry(&mut self, page: u32, at: usize) -> Result<usize> {
        let m = self.version()?;
        let node = self.node_mut(page)?;
        let e = node.entries()[at];
        if e.start < m {
            node.end(at, m, Ended::Killed);
            return Ok(at + 1);
        }
        node.remove(at);
        let (tree, of) = (node.tree, node.page);
        for p in self.chain(tree, of, &e)? {
            self.free_page(p)?;
        }
        Ok(at)
    }

    /// Inserts an entry into the node at `path[depth]`. At the end of a full node, a new node takes
    /// it alone, and the full one stays as it is: append split.
    pub(crate) fn insert(
        &mut self,
        path: &mut Path,
        depth: usize,
        at: usize,
        e: Entry,
        local: &[u8],
    ) -> Result<()> {
        let page = path[depth].0;
        let node = self.node(page)?;
        let e = Entry {
            local: local.len() as u16,
            ..e
        };
        let is_last = !node.entries()[at..].iter().any(|e| e.live());
        let appends = is_last
            && self.options.optimizations.no_redistribution
            && node.dead() == 0
            && node.live_count() > 0
            && node.size() + node.cost(&e) > self.soft_limit();
        if appends {
            self.stats.append_splits += 1;
            let q = self.allocate_node(&node)?;
            self.node_mut(q)?.insert(0, e, local);
            return self.add_routers(path, depth, &[q], false);
        }
        drop(node);
        self.node_mut(page)?.insert(at, e, local);
        self.settle(path, depth, Some(at))
    }

    /// Deletes the live entry at the end of a path.
    pub(crate) fn delete_entry(&mut self, tree: u32, path: &mut Path, at: usize) -> Result<()> {
        self.changed(tree);
        let leaf = path.len() - 1;
        self.end_entry(path[leaf].0, at)?;
        self.settle(path, leaf, None)
    }

    /// After a change of the node at `path[depth]`: collects garbage where it frees pages or needed
    /// space, splits an over-full node, removes an empty one.
    pub(crate) fn settle(
        &mut self,
        path: &mut Path,
        depth: usize,
        inserted: Option<usize>,
    ) -> Result<()> {
        let page = path[depth].0;
        let node = self.node(page)?;
        let full = if inserted.is_some() {
            self.soft_limit()
        } else {
            CAPACITY
        };
        let owners =
            node.kind.routes() || node.entries().iter().any(|e| !e.live() && e.overflow != 0);
        let over = node.size() > full;
        if node.dead() > 0 && (owners || over) {
            drop(node);
            self.collect(page, over)?;
        }
        let node = self.node(page)?;
        let limit = if inserted.is_some() {
            self.limit(&node)
        } else {
            CAPACITY
        };
        if node.size() > limit {
            return self.split(path, depth);
        }
        if node.live_count() == 0 && depth > 0 {
            return self.remove_empty(path, depth);
        }
        if depth == 0 && node.kind == PageType::Inner {
            return self.settle_root(page);
        }
        Ok(())
    }

    /// A single child replaces its root; a root without a child becomes an empty leaf.
    fn settle_root(&mut self, page: u32) -> Result<()> {
        let node = self.node(page)?;
        let (tree, own) = (node.tree, self.txn()?.own.contains(&page));
        match node.live_count() {
            0 if own && node.entries().iter().any(owns) => self.keep_owners(page),
            0 => self.kill_root(page),
            1 if !own && !self.is_root_since(page, tree)? => self.lower_root(page),
            _ => Ok(()),
        }
    }

    /// The only child of a root takes its place. A router of an earlier version stays as it is: it owns
    /// nothing then, so it must have no chain. And if the child dies in this transaction as well, there must
    /// be room for the router's end.
    fn lower_root(&mut self, page: u32) -> Result<()> {
        let m = self.version()?;
        let node = self.node(page)?;
        let Some(at) = node.entries().iter().position(Entry::live) else {
            return Ok(());
        };
        let router = node.entries()[at];
        if router.start == m {
            self.end_entry(page, at)?;
        } else if router.overflow != 0 || node.size() + end_cost(&node, &router, m) > CAPACITY {
            return Ok(());
        }
        self.replace_root(node.tree, router.child, Ended::Replaced)
    }

    /// A root without live entries becomes an empty leaf. If it has no room for the ends of all entries
    /// that own pages, a node with these takes its place.
    pub(crate) fn kill_root(&mut self, page: u32) -> Result<()> {
        let tree = self.node(page)?.tree;
        self.root_dies(page, tree)?;
        let (node, revived) = self.retire_with(page)?;
        let root = match revived.is_empty() {
            true => {
                self.allocate(|p, m| Node::new(p, PageType::Leaf, node.tree_kind, tree, 0, m))?
            }
            false => self.node_of_owners(&node, &revived)?,
        };
        self.replace_root(tree, root, Ended::Replaced)
    }

    /// True if this root is a page of an earlier version that has become the root in this transaction. It
    /// was the last child of the root of before, which still has its router, live, and so does not own it.
    pub(crate) fn is_root_since(&mut self, root: u32, tree: u32) -> Result<bool> {
        let m = self.version()?;
        Ok(!self.txn()?.own.contains(&root) && self.root_start(tree)? == m)
    }

    /// A root dies. Its entry in the catalog owns it. If it has become the root in this transaction, it has
    /// no such entry. Then its router in the root of before ends, and owns it.
    fn root_dies(&mut self, root: u32, tree: u32) -> Result<()> {
        if !self.is_root_since(root, tree)? {
            return Ok(());
        }
        let base = self.txn()?.base;
        let before = self.root(tree, base)?;
        let routers = self.node(before)?;
        let mut routers = routers.entries().iter();
        let at = routers.position(|e| e.live() && e.child == root);
        debug_assert!(at.is_some(), "page {before} does not lead to {root}");
        match at {
            Some(at) => self.end_entry(before, at).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Handles a node whose live entries are elsewhere now: in the nodes `to` of the same level. Born in
    /// this transaction: it is free. Else older versions still read it, and it needs no write unless dead
    /// entries in it own pages. Where it has no room for that, the new nodes take these over.
    pub(crate) fn retire(&mut self, page: u32, to: &[u32]) -> Result<()> {
        let (node, revived) = self.retire_with(page)?;
        self.carry(&node, &revived, to)
    }

    /// The same without new nodes. Returns the node, and what it has no room for.
    fn retire_with(&mut self, page: u32) -> Result<(NodeRef, Vec<Entry>)> {
        let node = self.node(page)?;
        let txn = self.txn()?;
        let (m, spilled) = (txn.version, txn.spilled.contains_key(&page));
        if txn.own.contains(&page) {
            self.free_page(page)?;
            return Ok((node, Vec::new()));
        }
        if !txn.dirty.contains_key(&page) && !spilled {
            return Ok((node, Vec::new()));
        }
        drop(node);
        let node = self.node_mut(page)?;
        node.sift(|e| e.start < m);
        let mut revived = Vec::new();
        for only_idle in [true, false] {
            for at in 0..node.entries().len() {
                let e = node.entries()[at];
                let owns = owns(&e);
                if e.end != m || only_idle && owns || owns && node.fits() {
                    continue;
                }
                node.revive(at);
                revived.extend(owns.then_some(e));
            }
        }
        let node = self.node(page)?;
        self.write_only_if_changed(page)?;
        Ok((node, revived))
    }

    /// Removes a node without live entries, which is of an earlier version, from its parent. If it has no
    /// room for the ends of all entries that own pages, a node with these takes its place.
    pub(crate) fn kill_node(&mut self, path: &mut Path, depth: usize) -> Result<()> {
        let (node, revived) = self.retire_with(path[depth].0)?;
        if !revived.is_empty() {
            let q = self.node_of_owners(&node, &revived)?;
            return self.add_routers(path, depth, &[q], true);
        }
        let (parent, router) = path[depth - 1];
        self.end_entry(parent, router)?;
        self.settle(path, depth - 1, None)
    }

    fn node_of_owners(&mut self, node: &NodeRef, owners: &[Entry]) -> Result<u32> {
        let q = self.allocate_node(node)?;
        let empty = self.node(q)?;
        self.lead_to_empty_leaf(&empty)?;
        self.carry(node, owners, &[q])?;
        Ok(q)
    }

    /// Removes a node without live entries from its parent. Its left neighbor takes over its keys;
    /// for the first one, the next neighbor does.
    fn remove_empty(&mut self, path: &mut Path, depth: usize) -> Result<()> {
        let page = path[depth].0;
        let node = self.node(page)?;
        let own = self.txn()?.own.contains(&page);
        if own && node.entries().iter().any(owns) {
            return self.keep_owners(page);
        }
        self.kill_node(path, depth)
    }

    /// A node of this transaction without live entries must stay, if dead ones own pages. Only these
    /// stay in it, without their payloads. No version sees the others: all have ended by the version
    /// that has made the node. Above the leaves it must lead somewhere. The router comes first, so that
    /// there is room for it.
    pub(crate) fn keep_owners(&mut self, page: u32) -> Result<()> {
        let m = self.version()?;
        let before = self.node(page)?;
        debug_assert!(before.birth == m && before.live_count() == 0);
        let (kind, tree_kind, level) = (before.kind, before.tree_kind, before.level);
        let empty = Node::new(before.page, kind, tree_kind, before.tree, level, m);
        *self.node_mut(page)? = empty;
        self.lead_to_empty_leaf(&before)?;
        self.carry_owners(&before, &[page])
    }

    fn lead_to_empty_leaf(&mut self, node: &Node) -> Result<()> {
        let (m, mut above) = (self.version()?, node.page.0);
        for level in (0..node.level).rev() {
            let kind = match level {
                0 => PageType::Leaf,
                _ => PageType::Inner,
            };
            let child = self
                .allocate(|page, m| Node::new(page, kind, node.tree_kind, node.tree, level, m))?;
            self.node_mut(above)?.insert(0, first_router(child, m), &[]);
            above = child;
        }
        Ok(())
    }

    /// Adds routers to new nodes right after the one of `path[depth]`, or in its place, if its node
    /// died. The nodes' low keys are those of their first live entries.
    pub(crate) fn add_routers(
        &mut self,
        path: &mut Path,
        depth: usize,
        nodes: &[u32],
        died: bool,
    ) -> Result<()> {
        let m = self.version()?;
        let old = path[depth].0;
        if depth == 0 {
            return self.grow_root(old, nodes, died);
        }
        let (parent, router) = path[depth - 1];
        let mut new = Vec::with_capacity(nodes.len());
        for (i, page) in nodes.iter().enumerate() {
            let (from, at) = if died && i == 0 {
                (parent, Some(router))
            } else {
                (*page, None)
            };
            new.push(self.router(from, at, *page, m)?);
        }
        if !died && new.len() == 1 {
            let (e, local) = &new[0];
            return self.insert(path, depth - 1, router + 1, *e, local);
        }
        let mut at = if died {
            self.end_entry(parent, router)?
        } else {
            router + 1
        };
        for (e, local) in &new {
            self.node_mut(parent)?.insert(at, *e, local);
            at += 1;
        }
        self.settle(path, depth - 1, Some(at - 1))
    }

    /// A router to `child` with the key of an entry of node `from`: the given one, or the first
    /// live one. A key with an overflow chain gets a chain of its own.
    pub(crate) fn router(
        &mut self,
        from: u32,
        at: Option<usize>,
        child: u32,
        m: u64,
    ) -> Result<(Entry, Vec<u8>)> {
        let node = self.node(from)?;
        let mut new = Entry {
            start: m,
            end: INF,
            child,
            ..Entry::default()
        };
        let at = at.or_else(|| node.entries().iter().position(Entry::live));
        let Some(e) = at.and_then(|at| node.entries().get(at)).copied() else {
            return Err(Error::Damaged {
                page: node.page,
                what: "it has no live entry",
            });
        };
        new.key = e.key;
        if node.tree_kind == Some(TreeKind::Integer) {
            return Ok((new, Vec::new()));
        }
        let key = self.whole_key(&node, &e)?;
        new.key_len = key.len() as u32;
        let local = self
            .store_payload(node.tree, false, &mut new, &key)?
            .to_vec();
        debug_assert_eq!(local.len(), cell::local_len(key.len(), false));
        Ok((new, local))
    }

    /// A new root above `old` and its new siblings, or above the nodes that replace it.
    fn grow_root(&mut self, old: u32, nodes: &[u32], died: bool) -> Result<()> {
        let m = self.version()?;
        let node = self.node(old)?;
        let (tree, level, kind) = (node.tree, node.level, node.tree_kind);
        // If it dies in this transaction, too, its router owns it.
        let start = match self.is_root_since(old, tree)? {
            true => node.birth,
            false => self.root_start(tree)?,
        };
        if died {
            self.root_dies(old, tree)?;
        }
        let ended = if died { Ended::Replaced } else { Ended::Moved };
        if died && nodes.len() == 1 {
            return self.replace_root(tree, nodes[0], ended);
        }
        let mut routers = Vec::new();
        if !died {
            routers.push((first_router(old, start), Vec::new()));
        }
        for (i, page) in nodes.iter().enumerate() {
            if died && i == 0 {
                routers.push((first_router(*page, m), Vec::new()));
            } else {
                routers.push(self.router(*page, None, *page, m)?);
            }
        }
        let root = self.allocate(|p, m| Node::new(p, PageType::Inner, kind, tree, level + 1, m))?;
        let node = self.node_mut(root)?;
        for (i, (e, local)) in routers.iter().enumerate() {
            node.insert(i, *e, local);
        }
        self.replace_root(tree, root, ended)
    }
}

/// A router to the first child of a node: its key has no meaning.
fn first_router(child: u32, start: u64) -> Entry {
    Entry {
        start,
        end: INF,
        child,
        ..Entry::default()
    }
}

/// True for a dead entry that frees pages when it goes.
pub(crate) fn owns(e: &Entry) -> bool {
    !e.live() && e.ended != Ended::Moved && (e.overflow != 0 || e.child != 0)
}
