//! The rows that differ between two versions.
//!
//! A page is changed in place, and its parent does not know. So one look at each leaf is needed, to
//! see the versions of its rows. But a leaf that belongs to both versions, and in which no row has
//! begun or ended since the older one, has the same rows in both. Only the rows of the other leaves are
//! compared. A row that has moved to another leaf keeps the version in which it began. So values are
//! compared only of rows that were written again.

use std::collections::HashSet;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::page::{Entry, NodeRef};
use crate::room;
use crate::types::{Change, ChangeKind, TreeId, TreeKind, Version};

/// The rows of some leaves at a version, in order.
struct Rows {
    view: u64,
    tree: u32,
    leaves: std::vec::IntoIter<u32>,
    node: Option<NodeRef>,
    at: usize,
}

impl Rows {
    /// The next row, which stays the next one.
    fn peek(&mut self, core: &mut Core) -> Result<Option<Entry>> {
        loop {
            if let Some(node) = &self.node {
                let rest = node.entries().iter().enumerate().skip(self.at);
                for (at, e) in rest {
                    if e.visible(self.view) {
                        self.at = at;
                        return Ok(Some(*e));
                    }
                }
            }
            let Some(page) = self.leaves.next() else {
                self.node = None;
                return Ok(None);
            };
            self.node = Some(core.node_of(page, self.tree, Some(0))?);
            self.at = 0;
        }
    }

    /// The value of the row that was shown last.
    fn value(&self, core: &mut Core, e: &Entry) -> Result<Vec<u8>> {
        match &self.node {
            Some(node) => core.payload(node, e, e.total as usize),
            None => Err(Error::CursorInvalid),
        }
    }
}

impl Core {
    /// The leaves of a tree at a version, in order. Reads the pages above them.
    fn leaves(&mut self, place: Option<(Version, TreeId)>) -> Result<Vec<u32>> {
        let Some((view, tree)) = place else {
            return Ok(Vec::new());
        };
        let root = self.root(tree.0, view.0)?;
        let node = self.node_of(root, tree.0, None)?;
        if node.tree_kind != Some(TreeKind::Integer) {
            return Err(Error::WrongKind(tree));
        }
        let mut leaves = Vec::new();
        let mut above = vec![(root, node.level)];
        while let Some((page, level)) = above.pop() {
            if level == 0 {
                room::reserve(&mut leaves, 1)?;
                leaves.push(page);
                continue;
            }
            let node = self.node_of(page, tree.0, Some(level))?;
            let children = node.entries().iter().rev().filter(|e| e.visible(view.0));
            above.extend(children.map(|e| (e.child, level - 1)));
        }
        Ok(leaves)
    }

    /// See [`crate::Db::diff`].
    pub(crate) fn diff(
        &mut self,
        old: Option<(Version, TreeId)>,
        new: Option<(Version, TreeId)>,
    ) -> Result<Vec<Change>> {
        let (mut before, mut after) = (self.leaves(old)?, self.leaves(new)?);
        if let (Some((old, tree)), Some((new, other))) = (old, new)
            && tree == other
        {
            let same = self.unchanged(tree.0, &before, &after, old.0.min(new.0))?;
            before.retain(|page| !same.contains(page));
            after.retain(|page| !same.contains(page));
        }
        let rows = |place: Option<(Version, TreeId)>, leaves: Vec<u32>| Rows {
            view: place.map_or(0, |place| place.0.0),
            tree: place.map_or(0, |place| place.1.0),
            leaves: leaves.into_iter(),
            node: None,
            at: 0,
        };
        self.changes_between(rows(old, before), rows(new, after))
    }

    /// The leaves of both versions in which nothing has changed after version `since`.
    ///
    /// Each is judged once: a writer may write it now.
    fn unchanged(
        &mut self,
        tree: u32,
        before: &[u32],
        after: &[u32],
        since: u64,
    ) -> Result<HashSet<u32>> {
        let before: HashSet<u32> = before.iter().copied().collect();
        let mut same = HashSet::new();
        for page in after.iter().filter(|page| before.contains(page)) {
            if self.node_of(*page, tree, Some(0))?.unchanged_since(since) {
                same.insert(*page);
            }
        }
        Ok(same)
    }

    fn changes_between(&mut self, mut old: Rows, mut new: Rows) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        loop {
            let (a, b) = (old.peek(self)?, new.peek(self)?);
            let (key, kind) = match (a, b) {
                (None, None) => return Ok(changes),
                (Some(a), Some(b)) if a.key == b.key => {
                    // Rows of two trees may have begun in the same version.
                    let is_one_row = old.tree == new.tree && a.start == b.start;
                    let is_same = is_one_row
                        || a.total == b.total && old.value(self, &a)? == new.value(self, &b)?;
                    old.at += 1;
                    new.at += 1;
                    if is_same {
                        continue;
                    }
                    (a.key, ChangeKind::Update)
                }
                (Some(a), b) if b.is_none_or(|b| a.key < b.key) => {
                    old.at += 1;
                    (a.key, ChangeKind::Delete)
                }
                (_, Some(b)) => {
                    new.at += 1;
                    (b.key, ChangeKind::Insert)
                }
                (Some(_), None) => return Err(Error::CursorInvalid),
            };
            room::reserve(&mut changes, 1)?;
            changes.push(Change { key, kind });
        }
    }
}
