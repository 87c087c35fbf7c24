//! A vacuum: the file becomes shorter, in steps that others write between.
//!
//! A [`Vacuum`] is the state between two steps. Each step is a write transaction of its own. It looks at
//! [`LOOKS`] pages and writes [`BATCH`] of them, and the last node or long value may add to that. So
//! others wait for the writer's lock only as long as for a commit of that size. One that cannot have the
//! lock is `Busy`, and has changed nothing: the caller takes it again.
//!
//! 1. The walk ([`crate::heal`]) frees pages that nothing leads to.
//! 2. Dead entries that own pages are collected, and dropped trees.
//! 3. Sparse nodes are packed: see [`crate::tree::pack`].
//! 4. Pages at the end move to free ones: see [`crate::tree::nearer`].
//! 5. The free end is given back: see [`crate::give_back`].
//!
//! All that a vacuum remembers between two steps is a hint. See [`crate::tree::sweep`] for sweeps. The pages
//! with dead entries ([`Core::collect_remembered`]) are looked at again, as nodes of the transaction. The
//! walk hears of every page that is written. And only pages that are free when the file is cut go.

use std::collections::BTreeSet;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::page::{NodeRef, PageType};
use crate::shared::{CURRENT, DURABLE};
use crate::slots::Slots;
use crate::tree::catalog::DIRECTORY;
use crate::tree::edit::owns;
use crate::tree::sweep::{Budget, Sweep};
use crate::types::{Durability, Held, Vacuumed, Version};

/// Pages that one transaction writes. With `double` its slots need as many and some more. Where there is
/// no room for these, the smallest slots mostly suffice.
const BATCH: u32 = 256;
const BATCH_DOUBLE: u32 = 48;
const BATCH_SMALL: u32 = 6;
/// Pages that one transaction looks at.
const LOOKS: u32 = 512;
/// Every so many pages in use, one free page stays before them, and so many in any case. Moving needs
/// some.
const SPARE: u32 = 32;
const SPARE_AT_LEAST: u32 = 8;
/// Sweeps of each kind, each of which leaves less to do. Others may write meanwhile.
const MOST_SWEEPS: u32 = 64;
/// Steps of the walk, and of collecting, for each that would do if nobody wrote meanwhile.
const MOST_TIMES: u32 = 4;

/// A vacuum that has begun: see [`crate::Db::vacuum_step`].
#[derive(Debug)]
pub struct Vacuum {
    /// Pages at the end of the file that are to go; all that can.
    most: Option<u32>,
    /// The pages of the file before, and the first of those that are to go.
    before: u32,
    end: u32,
    phase: Phase,
    /// The disk is full: only a few pages at once.
    few: bool,
    /// With `double`, what stands behind the slots moves to the place that small ones have left.
    second: bool,
    held: Option<Held>,
    /// Whether it waits for readers, and the version of the one that it waits for.
    is_patient: bool,
    reader: Option<Version>,
    /// The disk is full. The pages that are free by then are given back first.
    failed: Option<Error>,
}

#[derive(Debug)]
enum Phase {
    Begin,
    /// The walk may take so many steps.
    Walk(u32),
    Collect(Left),
    Pack(Run),
    Move(Run),
    /// Collects what has been moved last.
    Settle(Left),
    Cut,
    Over,
}

/// Steps that collecting may still take. The first one counts them. Others may leave garbage before
/// each step, so that collecting would not end by itself.
#[derive(Debug, Default)]
struct Left(Option<u32>);

impl Left {
    /// Counts a step that has freed so many pages, and true if no step is to follow.
    fn is_over(&mut self, freed: usize, at_first: u32) -> bool {
        let left = self.0.unwrap_or(at_first).saturating_sub(1);
        self.0 = Some(left);
        freed == 0 || left == 0
    }
}

/// Sweeps that follow each other until one finds nothing to do.
#[derive(Debug, Default)]
struct Run {
    sweep: Option<Sweep>,
    pages: u32,
    sweeps: u32,
}

impl Run {
    /// Counts what a step has written, and true if no sweep is to follow.
    fn is_over(&mut self, pages: u32) -> bool {
        self.pages += pages;
        if self.sweep.as_ref().is_some_and(|sweep| !sweep.is_over()) {
            return false;
        }
        self.sweep = None;
        self.sweeps += 1;
        std::mem::take(&mut self.pages) == 0 || self.sweeps >= MOST_SWEEPS
    }
}

impl Default for Vacuum {
    fn default() -> Vacuum {
        Vacuum::all()
    }
}

impl Vacuum {
    /// Makes the file as short as it can be.
    #[must_use]
    pub fn all() -> Vacuum {
        Vacuum {
            most: None,
            before: 0,
            end: 0,
            phase: Phase::Begin,
            few: false,
            second: false,
            held: None,
            is_patient: false,
            reader: None,
            failed: None,
        }
    }

    /// Makes the file shorter by so many pages at most. Moves pages from its end, and packs none.
    #[must_use]
    pub fn part(pages: u32) -> Vacuum {
        Vacuum {
            most: Some(pages),
            ..Vacuum::all()
        }
    }

    /// Waits for readers. While one keeps earlier versions, a step that cannot go on is `Busy`, and
    /// [`Vacuum::reader`] tells its version. The vacuum stays where it is.
    #[must_use]
    pub fn patient(self) -> Vacuum {
        Vacuum {
            is_patient: true,
            ..self
        }
    }

    /// The version that a reader keeps for which the last step has waited.
    #[must_use]
    pub fn reader(&self) -> Option<Version> {
        self.reader
    }

    /// Waits for readers no longer: the next steps give back what is free at the end of the file.
    pub fn give_up(&mut self) {
        if let Some(version) = self.reader.take() {
            self.is_held(Held::Reader(version));
        }
    }

    fn is_held(&mut self, held: Held) {
        (self.held, self.phase) = (Some(held), Phase::Cut);
    }

    /// Somebody keeps earlier versions.
    fn held_by(&mut self, held: Held) -> Result<()> {
        match held {
            Held::Reader(version) if self.is_patient => {
                self.reader = Some(version);
                Err(Error::Busy)
            }
            _ => {
                self.is_held(held);
                Ok(())
            }
        }
    }

    /// A full disk: first fewer pages at once, then none.
    fn without_room(&mut self, error: Error) {
        let again = match self.second {
            true => Phase::Move(Run::default()),
            false => Phase::Collect(Left::default()),
        };
        if std::mem::replace(&mut self.few, true) {
            self.failed = Some(error);
            self.phase = Phase::Cut;
        } else {
            self.phase = again;
        }
    }

    /// Goes on after the cut, or ends.
    fn after_cut(&mut self, double: bool) {
        let again = double && !self.second && self.most.is_none();
        if again && self.held.is_none() && self.failed.is_none() {
            // The slots have become small. Pages behind them can move to where they were, without
            // making them large again.
            (self.second, self.few) = (true, true);
            self.phase = Phase::Move(Run::default());
        } else {
            self.phase = Phase::Over;
        }
    }
}

impl Core {
    // ---- steps

    /// The next step of a vacuum. Its result after the last one.
    pub(crate) fn vacuum_step(&mut self, vacuum: &mut Vacuum) -> Result<Option<Vacuumed>> {
        vacuum.reader = None;
        let can_do_less = !matches!(vacuum.phase, Phase::Begin | Phase::Cut | Phase::Over);
        match self.vacuum_by(vacuum) {
            Err(e) if e.is_full() && can_do_less => vacuum.without_room(e),
            done => done?,
        }
        if !matches!(vacuum.phase, Phase::Over) {
            return Ok(None);
        }
        match vacuum.failed.take() {
            Some(error) => Err(error),
            None => Ok(Some(Vacuumed {
                held: vacuum.held,
                given_back: vacuum.before.saturating_sub(self.space.map.hwm),
            })),
        }
    }

    fn vacuum_by(&mut self, vacuum: &mut Vacuum) -> Result<()> {
        match &mut vacuum.phase {
            Phase::Begin => return self.vacuum_begins(vacuum),
            Phase::Walk(left) => {
                let is_over = self.step(|core| core.walk_for_vacuum(LOOKS))?;
                *left = left.saturating_sub(1);
                if is_over || *left == 0 {
                    vacuum.phase = Phase::Collect(Left::default());
                }
            }
            Phase::Collect(left) => {
                if self.collect_step(left)? {
                    vacuum.phase = match vacuum.most {
                        None => Phase::Pack(Run::default()),
                        Some(_) => Phase::Move(Run::default()),
                    };
                }
            }
            Phase::Pack(run) => {
                let few = vacuum.few;
                let packed = self.step(|core| core.vacuum_some(run, few, |_| Sweep::fuller()))?;
                match packed {
                    Err(held) => return vacuum.held_by(held),
                    // First fewer pages, then nearer ones: what is written again last stays.
                    Ok(pages) if run.is_over(pages) => vacuum.phase = Phase::Move(Run::default()),
                    Ok(_) => {}
                }
            }
            Phase::Move(run) => {
                let (few, end) = (vacuum.few, vacuum.end);
                let sweep = |core: &Core| core.sweep_to_end(end);
                let moved = self.step(|core| core.vacuum_some(run, few, sweep))?;
                match moved {
                    Err(held) => return vacuum.held_by(held),
                    Ok(pages) if run.is_over(pages) => {
                        vacuum.phase = Phase::Settle(Left::default())
                    }
                    Ok(_) => {}
                }
            }
            Phase::Settle(left) => {
                if self.collect_step(left)? {
                    vacuum.phase = Phase::Cut;
                }
            }
            Phase::Cut => {
                self.give_back(vacuum.end)?;
                vacuum.after_cut(self.double);
            }
            Phase::Over => {}
        }
        Ok(())
    }

    fn vacuum_begins(&mut self, vacuum: &mut Vacuum) -> Result<()> {
        if self.load(DURABLE)? < self.load(CURRENT)? {
            // A power cut could bring the old pages back, so nothing would be collected.
            self.flush()?;
        }
        let (held, pages) = self.step(|core| {
            core.forget_waiting()?;
            Ok((core.held()?, core.space.map.hwm))
        })?;
        vacuum.before = pages;
        vacuum.end = vacuum.most.map_or(0, |most| pages.saturating_sub(most));
        if let Some(held) = held {
            return vacuum.held_by(held);
        }
        vacuum.phase = match vacuum.most {
            None => Phase::Walk((pages / LOOKS + 1) * MOST_TIMES),
            Some(_) => Phase::Collect(Left::default()),
        };
        Ok(())
    }

    /// A step of a run of sweeps; `next` makes one. Returns the number of pages written.
    fn vacuum_some(
        &mut self,
        run: &mut Run,
        few: bool,
        next: impl FnOnce(&Core) -> Sweep,
    ) -> Result<std::result::Result<u32, Held>> {
        if let Some(held) = self.held()? {
            return Ok(Err(held));
        }
        self.collect_remembered()?;
        let most = match (few, self.double) {
            (true, _) => BATCH_SMALL,
            (false, true) => BATCH_DOUBLE,
            (false, false) => BATCH,
        };
        let mut budget = Budget::new(LOOKS, most);
        let sweep = run.sweep.get_or_insert_with(|| next(self));
        let pages = self.sweep(sweep, &mut budget)?;
        self.remember_dead()?;
        Ok(Ok(pages))
    }

    /// A sweep that moves all pages behind what would be the end, but not before `end`.
    fn sweep_to_end(&self, end: u32) -> Sweep {
        let packed = self.packed_end();
        // Slots at the end come last: they move to the first free pages that are long enough.
        let packed = match Slots::of(&self.header) {
            Some(slots) if slots.start() + 2 * slots.pages() >= packed => {
                packed.saturating_sub(2 * slots.pages())
            }
            _ => packed,
        };
        Sweep::before(end.max(packed))
    }

    /// The end of the file if all pages in use stood before it, with some free ones between them.
    fn packed_end(&self) -> u32 {
        let map = &self.space.map;
        let dying = self.txn.as_ref().map_or(0, |txn| txn.freed.len() as u32);
        let used = map.hwm.saturating_sub(map.count() + dying);
        let spare = used / SPARE + SPARE_AT_LEAST;
        used.saturating_add(spare).min(map.hwm)
    }

    /// Pages by which the file could be shorter.
    pub(crate) fn removable(&self) -> u32 {
        self.space.map.hwm - self.packed_end()
    }

    /// Those who keep versions.
    fn held(&mut self) -> Result<Option<Held>> {
        if self.header.has_history() {
            return Ok(Some(Held::History));
        }
        self.release_snapshots()?;
        let oldest = self.marks_in_use()?.into_iter().map(|(low, _)| low).min();
        Ok(oldest.map(|low| Held::Reader(Version(low))))
    }

    // ---- garbage

    /// A step that collects. True if none is to follow.
    fn collect_step(&mut self, left: &mut Left) -> Result<bool> {
        let (freed, enough) = self.step(|core| {
            // A step frees `LOOKS` pages, changes `BATCH` nodes, or is the last one.
            let nodes = u32::try_from(core.dead_pages.len()).unwrap_or(u32::MAX);
            let steps = core.space.map.hwm / LOOKS + nodes / BATCH + 2;
            Ok((core.collect_some()?, steps.saturating_mul(MOST_TIMES)))
        })?;
        Ok(left.is_over(freed, enough))
    }

    /// Collects, and returns the number of pages that become free.
    fn collect_some(&mut self) -> Result<usize> {
        self.collect_remembered()?;
        self.remember_dead()?;
        Ok(self.txn()?.freed.len())
    }

    /// Collects dead entries of a node that own pages.
    pub(crate) fn collect_owners(&mut self, node: &NodeRef) -> Result<()> {
        if node.entries().iter().any(owns) {
            self.collect(node.page.0, false)?;
        }
        Ok(())
    }

    /// Collects dead entries of a node.
    pub(crate) fn collect_all_of(&mut self, page: u32) -> Result<()> {
        match self.node(page)?.dead() {
            0 => Ok(()),
            _ => self.collect(page, false),
        }
    }

    /// Collects some of what earlier transactions have left, and slices of dropped trees.
    fn collect_remembered(&mut self) -> Result<()> {
        let view = self.version()?;
        for page in self.catalog_pages(view)? {
            let node = self.catalog_node(page)?;
            self.collect_owners(&node)?;
            if self.txn()?.freed.len() >= LOOKS as usize {
                // The others have slices of their own.
                return Ok(());
            }
        }
        let mut pages: Vec<u32> = self.dead_pages.iter().copied().collect();
        pages.sort_unstable();
        for page in pages.into_iter().take(LOOKS as usize) {
            if !self.is_free(page) {
                self.collect_dead(page)?;
            }
            if self.is_free(page) || !self.has_dead_owners(page)? {
                self.dead_pages.remove(&page);
            }
            // A large transaction may have left many.
            self.spill_if_needed()?;
            let txn = self.txn()?;
            if txn.freed.len() >= LOOKS as usize || txn.dirty.len() >= BATCH as usize {
                return Ok(());
            }
        }
        Ok(())
    }

    fn collect_dead(&mut self, page: u32) -> Result<()> {
        match self.dead_node(page)? {
            Some(node) if is_node(&node) => self.collect_owners(&node),
            _ => Ok(()),
        }
    }

    fn has_dead_owners(&mut self, page: u32) -> Result<bool> {
        let node = self.dead_node(page)?;
        Ok(node.is_some_and(|node| is_node(&node) && node.entries().iter().any(owns)))
    }

    /// Remembers where the transaction has left dead entries that own pages.
    fn remember_dead(&mut self) -> Result<()> {
        let txn = self.txn()?;
        let pages: BTreeSet<u32> = txn
            .dirty
            .keys()
            .chain(txn.spilled.keys())
            .copied()
            .collect();
        for page in pages {
            if !self.is_free(page) && self.has_dead_owners(page)? {
                self.dead_pages.insert(page);
            }
        }
        Ok(())
    }

    // ---- the transactions

    /// A slice of a dropped tree changes no page, and a transaction without one commits nothing.
    fn keep_what_is_free(&mut self) -> Result<()> {
        let txn = self.txn()?;
        if !txn.freed.is_empty() && txn.dirty.is_empty() && txn.spilled.is_empty() {
            self.node_mut(DIRECTORY)?;
        }
        Ok(())
    }

    /// A transaction of its own.
    fn step<T>(&mut self, work: impl FnOnce(&mut Core) -> Result<T>) -> Result<T> {
        self.begin_write(None)?;
        let done = self.changing(|core| {
            let done = work(core)?;
            core.keep_what_is_free()?;
            Ok(done)
        });
        let done = done.and_then(|done| {
            self.commit(Durability::Flush)?;
            Ok(done)
        });
        if done.is_err() && self.txn.is_some() {
            // The caller gets the first error.
            let _ = self.rollback();
        }
        done
    }
}

fn is_node(node: &NodeRef) -> bool {
    matches!(node.kind, PageType::Leaf | PageType::Inner)
}
