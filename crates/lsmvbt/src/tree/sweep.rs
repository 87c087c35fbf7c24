//! A way through the nodes of all trees, level by level, in transactions of a bounded size.
//!
//! Between two of them any handle may write. So a sweep remembers no page, which could have been freed,
//! used again or moved meanwhile. It remembers a level, a tree's number, and a [`Place`]: how many live
//! entries come before the next one in each node above it. Every transaction goes down from the
//! root of its own version, and finds a parent of this level, whatever has changed. Insertions and removals
//! by others shift the places: the sweep may miss nodes, or see some twice. Neither does harm, because
//! every single change is one that any transaction might make. A sweep goes on to larger places only, so
//! it ends.

use std::collections::BTreeSet;

use crate::core::Core;
use crate::error::Result;
use crate::page::PageType;
use crate::tree::catalog::DIRECTORY;
use crate::tree::edit::Path;

/// Pages that a transaction of a vacuum may still look at, and write. The last node or value of a
/// transaction may take more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    looks: u32,
    writes: u32,
}

impl Budget {
    pub(crate) fn new(looks: u32, writes: u32) -> Budget {
        Budget { looks, writes }
    }

    pub(crate) fn looked(&mut self, pages: usize) {
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        self.looks = self.looks.saturating_sub(pages);
    }

    pub(crate) fn wrote(&mut self, pages: u32) {
        self.writes = self.writes.saturating_sub(pages);
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.looks == 0 || self.writes == 0
    }
}

/// The reason to write nodes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// Neighbors that have room for each other need fewer pages.
    Fuller,
    /// Pages from here on move to free ones before.
    Before(u32),
}

/// The parts of a sweep, in their order. One with [`Aim::Fuller`] has nodes only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Which trees have pages behind the end? The next page to look at.
    Look(u32),
    Nodes,
    Roots,
    Catalog,
    Over,
}

/// The place of a parent in its tree, and the next child and entry below it: the number of live entries
/// before each.
#[derive(Debug, Default)]
pub(super) struct Place {
    above: Vec<usize>,
    has_begun: bool,
    pub(super) child: usize,
    pub(super) entry: usize,
}

impl Place {
    /// Fits the place to a tree with so many levels above the parent. Others may have given it a new root.
    fn fit(&mut self, levels: usize) {
        if !self.has_begun {
            self.above = vec![0; levels];
            self.has_begun = true;
        }
        while self.above.len() < levels {
            self.above.insert(0, 0);
        }
        self.above.drain(..self.above.len() - levels);
    }

    /// Goes on to the next parent. False if this was the only one: the root.
    fn next(&mut self) -> bool {
        (self.child, self.entry) = (0, 0);
        self.above.last_mut().map(|last| *last += 1).is_some()
    }

    /// A node at this depth has no more children: the next one above it has its turn.
    fn carry(&mut self, depth: usize) {
        self.above[depth - 1] += 1;
        self.above[depth..].fill(0);
        (self.child, self.entry) = (0, 0);
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Sweep {
    pub(super) aim: Aim,
    part: Part,
    /// Only these trees.
    trees: Option<BTreeSet<u32>>,
    /// Also through long values.
    pub(super) chains: bool,
    /// The level of the parents, and the next tree on it.
    level: u8,
    tree: u32,
    pub(super) place: Place,
    /// There is a parent on this level.
    any: bool,
}

impl Sweep {
    /// Through everything.
    pub(crate) fn fuller() -> Sweep {
        Sweep::new(Aim::Fuller, Part::Nodes, None)
    }

    /// Through the trees that have pages from `end` on. Pages that no tree has are left out.
    pub(crate) fn before(end: u32) -> Sweep {
        Sweep::new(Aim::Before(end), Part::Look(end), Some(BTreeSet::new()))
    }

    fn new(aim: Aim, part: Part, trees: Option<BTreeSet<u32>>) -> Sweep {
        Sweep {
            aim,
            part,
            trees,
            chains: false,
            level: 1,
            tree: 0,
            place: Place::default(),
            any: false,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.part == Part::Over
    }

    /// The first of its trees from this one on; `None` if there is none.
    fn first_of(&self, tree: u32) -> Option<u32> {
        match &self.trees {
            Some(all) => all.range(tree..).next().copied(),
            None => Some(tree),
        }
    }

    /// Goes on to the next parent.
    pub(super) fn next(&mut self) {
        if !self.place.next() {
            self.next_tree();
        }
    }

    fn next_tree(&mut self) {
        self.place = Place::default();
        match self.tree.checked_add(1) {
            Some(tree) => self.tree = tree,
            None => self.next_level(),
        }
    }

    fn next_level(&mut self) {
        self.place = Place::default();
        (self.level, self.tree) = (self.level.saturating_add(1), 0);
        if !std::mem::take(&mut self.any) {
            self.end_nodes();
        }
    }

    fn end_nodes(&mut self) {
        self.tree = 0;
        self.part = match self.aim {
            Aim::Fuller => Part::Over,
            Aim::Before(_) => Part::Roots,
        };
    }

    /// A tree has a page behind the end.
    fn has(&mut self, tree: u32) {
        if let Some(trees) = &mut self.trees {
            trees.insert(tree);
        }
    }
}

impl Core {
    /// Goes on with a sweep until the budget is spent. Returns the number of pages written.
    pub(crate) fn sweep(&mut self, sweep: &mut Sweep, budget: &mut Budget) -> Result<u32> {
        let mut pages = 0;
        while !budget.is_spent() {
            pages += match (sweep.part, sweep.aim) {
                (Part::Look(page), _) => self.look_behind(sweep, page, budget)?,
                (Part::Nodes, _) => self.sweep_nodes(sweep, budget)?,
                (Part::Roots, Aim::Before(end)) => self.sweep_roots(sweep, end, budget)?,
                (Part::Catalog, Aim::Before(end)) => self.sweep_catalog(sweep, end, budget)?,
                _ => break,
            };
        }
        Ok(pages)
    }

    /// Looks which trees have pages from `page` on. A page that has changed its owner when its tree has its
    /// turn stays where it is, until the next sweep.
    fn look_behind(&mut self, sweep: &mut Sweep, page: u32, budget: &mut Budget) -> Result<u32> {
        let mut page = page;
        while page < self.space.map.hwm && !budget.is_spent() {
            if !self.is_free(page) {
                budget.looked(1);
                if let Some(node) = self.dead_node(page)? {
                    match node.kind {
                        PageType::Catalog => sweep.has(0),
                        PageType::Leaf | PageType::Inner => sweep.has(node.tree),
                        PageType::Overflow => {
                            sweep.has(node.tree);
                            sweep.chains = true;
                        }
                        PageType::Record => {}
                    }
                }
            }
            page += 1;
        }
        sweep.part = match page < self.space.map.hwm {
            true => Part::Look(page),
            false if sweep.trees.as_ref().is_some_and(BTreeSet::is_empty) => Part::Over,
            false => Part::Nodes,
        };
        Ok(0)
    }

    /// Looks at the next parent.
    fn sweep_nodes(&mut self, sweep: &mut Sweep, budget: &mut Budget) -> Result<u32> {
        let Some((tree, mut path)) = self.next_parent(sweep, budget)? else {
            return Ok(0);
        };
        let pages = match sweep.aim {
            Aim::Fuller => {
                let pages = self.pack_below(tree, &mut path, budget)?;
                sweep.next();
                pages
            }
            Aim::Before(end) => {
                let (pages, is_done) = self.move_below(tree, &mut path, end, sweep, budget)?;
                if is_done {
                    sweep.next();
                }
                pages
            }
        };
        self.spill_if_needed()?;
        Ok(pages)
    }

    /// The path to the next parent. `None` if there is none left, or the budget is spent.
    fn next_parent(
        &mut self,
        sweep: &mut Sweep,
        budget: &mut Budget,
    ) -> Result<Option<(u32, Path)>> {
        while sweep.part == Part::Nodes && !budget.is_spent() {
            let Some((tree, root)) = self.next_tree(sweep)? else {
                sweep.next_level();
                continue;
            };
            if let Some(path) = self.way_to(tree, root, sweep, budget)? {
                sweep.any = true;
                return Ok(Some((tree, path)));
            }
            sweep.next_tree();
        }
        Ok(None)
    }

    /// The next tree of a sweep, and its root.
    fn next_tree(&mut self, sweep: &mut Sweep) -> Result<Option<(u32, u32)>> {
        let view = self.version()?;
        let mut from = sweep.tree;
        while let Some(tree) = sweep.first_of(from) {
            let Some((next, root)) = self.next_root(tree, view)? else {
                break;
            };
            if sweep.first_of(next) == Some(next) {
                if next != sweep.tree {
                    (sweep.tree, sweep.place) = (next, Place::default());
                }
                return Ok(Some((next, root)));
            }
            from = next;
        }
        Ok(None)
    }

    /// The path to the next parent in a tree. `None` if there is none left.
    fn way_to(
        &mut self,
        tree: u32,
        root: u32,
        sweep: &mut Sweep,
        budget: &mut Budget,
    ) -> Result<Option<Path>> {
        let level = self.node_of(root, tree, None)?.level;
        budget.looked(1);
        if level < sweep.level {
            return Ok(None);
        }
        let place = &mut sweep.place;
        place.fit(usize::from(level - sweep.level));
        'down: loop {
            let (mut path, mut page, mut expected) = (Path::new(), root, None);
            for depth in 0..place.above.len() {
                let node = self.node_of(page, tree, expected)?;
                budget.looked(1);
                let mut live = node.entries().iter().enumerate().filter(|(_, e)| e.live());
                let Some((at, e)) = live.nth(place.above[depth]) else {
                    if depth == 0 {
                        return Ok(None);
                    }
                    place.carry(depth);
                    continue 'down;
                };
                path.push((page, at));
                (page, expected) = (e.child, Some(node.level - 1));
            }
            self.node_of(page, tree, expected)?;
            budget.looked(1);
            path.push((page, 0));
            return Ok(Some(path));
        }
    }

    /// Moves roots behind `end`.
    fn sweep_roots(&mut self, sweep: &mut Sweep, end: u32, budget: &mut Budget) -> Result<u32> {
        let mut pages = 0;
        while !budget.is_spent() {
            let Some((tree, root)) = self.next_tree(sweep)? else {
                sweep.part = Part::Catalog;
                break;
            };
            budget.looked(1);
            let (moved, is_done) = self.move_root(tree, root, end, sweep, budget)?;
            pages += moved;
            if is_done && sweep.tree == u32::MAX {
                sweep.part = Part::Catalog;
                break;
            }
            if is_done {
                sweep.next_tree();
            }
            self.spill_if_needed()?;
        }
        Ok(pages)
    }

    /// Moves catalog pages behind `end`. One that has been moved is not found there again.
    fn sweep_catalog(&mut self, sweep: &mut Sweep, end: u32, budget: &mut Budget) -> Result<u32> {
        let mut pages = 0;
        let view = self.version()?;
        for page in self.catalog_pages(view)? {
            if page == DIRECTORY || page < end || !self.room_before(end, 1) {
                continue;
            }
            if budget.is_spent() {
                return Ok(pages);
            }
            self.move_catalog(page)?;
            budget.looked(1);
            budget.wrote(1);
            pages += 1;
        }
        sweep.part = Part::Over;
        Ok(pages)
    }
}
