//! Packing: nodes and long values are written again, to fewer pages or nearer to the file's beginning.
//!
//! It takes the steps of a legacy split. The live entries of some neighbors, or of one node, are copied
//! to new nodes. The routers of the old nodes end as `killed`, and those of the new ones begin. The old
//! pages stay as they are for earlier versions, and are freed when their routers are collected. So all
//! rules of the tree hold, and a crash finds a commit like any other. A long value is written as by an
//! update of its row. A root, or a page of the catalog, gets a new entry above it.
//!
//! Only live entries are compared by their place, so no key is compared at all.

use crate::core::Core;
use crate::error::Result;
use crate::page::{CAPACITY, Ended, Entry, Node, NodeRef, PageType, cell};
use crate::tree::edit::Path;
use crate::tree::sweep::Budget;
use crate::types::TreeKind;

/// Nodes are packed where that saves one of so many.
const WORTH: usize = 8;

/// A child of a node, and the place of its router there.
pub(super) struct Child {
    pub(super) at: usize,
    pub(super) router: Entry,
    pub(super) node: NodeRef,
}

/// An entry to copy; with another key, if it is given.
struct Copied {
    from: NodeRef,
    entry: Entry,
    key: Option<Vec<u8>>,
}

/// Bytes that the live entries of a child take in a node of the transaction.
struct Sizes {
    entries: Vec<usize>,
    bytes: usize,
    /// Bytes of the longest router to a node that begins with one of them.
    key: usize,
}

impl Sizes {
    fn of(child: &Child, m: u64) -> Sizes {
        let node = &child.node;
        let new = Node::new(
            node.page,
            node.kind,
            node.tree_kind,
            node.tree,
            node.level,
            m,
        );
        let live = || node.entries().iter().filter(|e| e.live());
        let entries: Vec<usize> = live().map(|e| new.cost(e)).collect();
        let bytes = entries.iter().sum();
        let key = live().map(|e| router_cost(node, e)).max().unwrap_or(0);
        Sizes {
            entries,
            bytes,
            key,
        }
    }
}

/// Nodes that are filled one after another.
struct Filling {
    limit: usize,
    nodes: usize,
    size: usize,
}

impl Filling {
    fn new(limit: usize) -> Filling {
        let (nodes, size) = (1, 0);
        Filling { limit, nodes, size }
    }

    fn add(&mut self, cost: usize) {
        if self.size > 0 && self.size + cost > self.limit {
            self.nodes += 1;
            self.size = 0;
        }
        self.size += cost;
    }
}

/// Bytes of a router at most, with the key of this entry.
pub(super) fn router_cost(node: &Node, e: &Entry) -> usize {
    let key = match (node.tree_kind, node.kind) {
        (Some(TreeKind::Integer), _) => 10,
        (Some(TreeKind::Bytes), PageType::Leaf) => 5 + cell::local_len(e.key_len as usize, false),
        _ => 5 + cell::local_len(e.total as usize, false),
    };
    // Slot, flags, start, child, chain.
    2 + 1 + 2 + 4 + 4 + key
}

/// Bytes that a router takes more once it has ended.
pub(crate) fn end_cost(node: &Node, e: &Entry, m: u64) -> usize {
    let ended = Entry {
        end: m,
        ended: Ended::Killed,
        ..*e
    };
    node.cost(&ended) - node.cost(e)
}

impl Core {
    /// The live children of a node.
    fn children(&mut self, node: &NodeRef) -> Result<Vec<Child>> {
        let mut children = Vec::new();
        for (at, e) in node.entries().iter().enumerate().filter(|(_, e)| e.live()) {
            let child = self.node_of(e.child, node.tree, Some(node.level - 1))?;
            children.push(Child {
                at,
                router: *e,
                node: child,
            });
        }
        Ok(children)
    }

    // ---- fewer pages

    /// Packs some neighbors below the end of a path. Others have their turn when the routers of these
    /// have been collected. Returns the number of pages written.
    pub(super) fn pack_below(
        &mut self,
        tree: u32,
        path: &mut Path,
        budget: &mut Budget,
    ) -> Result<u32> {
        let (parent, _) = path[path.len() - 1];
        // Its dead entries take the room of new routers.
        self.collect_all_of(parent)?;
        let node = self.node(parent)?;
        let children = self.children(&node)?;
        budget.looked(children.len());
        let run = self.worth_packing(&node, &children)?;
        let run = run.map_or(0..0, |(from, to)| from..to);
        // The others keep their pages: what those of the run own goes with them.
        let others = children[..run.start].iter().chain(&children[run.end..]);
        for child in others.filter(|child| child.node.level == 0) {
            self.collect_owners(&child.node)?;
        }
        let limit = self.soft_limit();
        let pages = self.replace(tree, path, &children[run], limit)?;
        budget.wrote(pages);
        Ok(pages)
    }

    /// The longest run of neighbors that need fewer pages, if their parent has room for the routers.
    fn worth_packing(
        &mut self,
        parent: &NodeRef,
        children: &[Child],
    ) -> Result<Option<(usize, usize)>> {
        let m = self.version()?;
        let sizes: Vec<Sizes> = children.iter().map(|child| Sizes::of(child, m)).collect();
        let soft = self.soft_limit();
        for (from, first) in children.iter().enumerate() {
            if sizes[from].bytes * WORTH > soft * (WORTH - 1) {
                continue;
            }
            let mut filling = Filling::new(soft);
            let (mut best, mut key, mut ends) = (None, 0, 0);
            for (to, child) in children.iter().enumerate().skip(from) {
                if to > from && !can_follow(parent, child) {
                    break;
                }
                sizes[to].entries.iter().for_each(|cost| filling.add(*cost));
                key = key.max(sizes[to].key);
                ends += end_cost(parent, &child.router, m);
                let (count, need) = (to + 1 - from, filling.nodes);
                let routers = router_cost(parent, &first.router) + (need - 1) * key;
                if parent.size() + ends + routers > CAPACITY {
                    break;
                }
                if need < count && need * WORTH <= count * (WORTH - 1) {
                    best = Some((from, to + 1));
                }
            }
            if best.is_some() {
                return Ok(best);
            }
        }
        Ok(None)
    }

    // ---- the step itself

    /// Copies the live entries of neighbors below the end of a path to new nodes, which take their
    /// place. Returns the number of new nodes.
    pub(super) fn replace(
        &mut self,
        tree: u32,
        path: &mut Path,
        run: &[Child],
        limit: usize,
    ) -> Result<u32> {
        let m = self.version()?;
        let depth = path.len() - 1;
        let (parent, _) = path[depth];
        let [first, others @ ..] = run else {
            return Ok(0);
        };
        let pages = self.copy(parent, run, limit)?;
        let mut routers = Vec::new();
        for (i, page) in pages.iter().enumerate() {
            let (from, at) = match i {
                0 => (parent, Some(first.at)),
                _ => (*page, None),
            };
            routers.push(self.router(from, at, *page, m)?);
        }
        for child in others.iter().rev() {
            self.end_entry(parent, child.at)?;
        }
        let at = self.end_entry(parent, first.at)?;
        for ((e, local), at) in routers.iter().zip(at..) {
            self.node_mut(parent)?.insert(at, *e, local);
        }
        for child in run {
            let page = child.router.child;
            if self.txn()?.own.contains(&page) {
                self.carry_owners(&child.node, &pages)?;
            }
            self.retire(page, &pages)?;
        }
        self.changed(tree);
        self.settle(path, depth, None)?;
        Ok(pages.len() as u32)
    }

    fn copy(&mut self, parent: u32, run: &[Child], limit: usize) -> Result<Vec<u32>> {
        let above = self.node(parent)?;
        let like = run[0].node.clone();
        let mut q = self.allocate_node(&like)?;
        let mut pages = vec![q];
        for copied in run
            .iter()
            .enumerate()
            .flat_map(|(i, child)| copies(&above, child, i > 0))
        {
            let new = self.node_mut(q)?;
            if new.len() > 0 && new.size() + new.cost(&copied.entry) > limit {
                q = self.allocate_node(&like)?;
                pages.push(q);
            }
            let new = self.node_mut(q)?;
            let at = new.len();
            let local = match &copied.key {
                Some(key) => key,
                None => copied.from.local(&copied.entry),
            };
            new.insert(at, copied.entry, local);
        }
        Ok(pages)
    }
}

/// True if a node may follow another one in a new node. The first router of an inner node gets the key
/// that the parent has for the node: its own has no meaning. Long keys are left where they are.
fn can_follow(parent: &NodeRef, child: &Child) -> bool {
    let first = child.node.entries().iter().find(|e| e.live());
    let is_short = first.is_none_or(|e| e.overflow == 0) && child.router.overflow == 0;
    parent.level == 1 || is_short
}

/// The live entries of a child.
fn copies(parent: &NodeRef, child: &Child, follows: bool) -> Vec<Copied> {
    let node = &child.node;
    let live = node.entries().iter().filter(|e| e.live());
    let mut copies: Vec<Copied> = live
        .map(|e| Copied {
            from: node.clone(),
            entry: *e,
            key: None,
        })
        .collect();
    if follows
        && node.level > 0
        && let Some(first) = copies.first_mut()
    {
        let key = parent.local(&child.router).to_vec();
        first.entry.key = child.router.key;
        first.entry.key_len = child.router.key_len;
        first.entry.total = child.router.total;
        first.entry.local = key.len() as u16;
        first.key = Some(key);
    }
    copies
}
