//! Giving space back: the file becomes shorter.
//!
//! [`Core::give_back`] takes away free pages at the end of the file. [`Core::vacuum`] before moves what
//! stands near the end, in transactions of a bounded number of pages: see [`crate::tree::pack`].
//!
//! The order of the former, under the writer's lock:
//!
//! 1. Flush. All commits are durable, and in place.
//! 2. A header is written that ends before the pages, and flushed. All commits are settled in it, and
//!    its floor is the newest number. So neither a slot nor a record that names the pages is needed.
//! 3. The shared memory gets the new end.
//! 4. The file is cut.
//!
//! A crash before the header is durable leaves the one before it, and all pages. Later it leaves the
//! new one: a header is only written over when the other one is durable. The cut need not be durable,
//! and may fail: what stands behind the end is older than the floor, and counts for nothing. The next
//! call cuts again.

use std::collections::BTreeSet;

use crate::core::Core;
use crate::double::SLOT_PAGES;
use crate::error::{Error, Result};
use crate::freemap::{FIRST, MAP_AT, SPAN};
use crate::header::Marks;
use crate::page::{NodeRef, PageType};
use crate::shared::{CURRENT, DURABLE, HWM, SETTLED};
use crate::slots::Slots;
use crate::tree::edit::owns;
use crate::tree::pack::Sweep;
use crate::types::{Durability, Held, PAGE_SIZE, PageNo, Vacuumed, Version};

/// Pages that one transaction moves; with `double`, whose slots need as many and some more; and where
/// there is no room for these, so that the smallest slots mostly suffice.
const BATCH: u32 = 256;
const BATCH_DOUBLE: u32 = 48;
const BATCH_SMALL: u32 = 6;
/// Every so many pages in use, one free page stays before them, and so many in any case. Moving needs
/// some.
const SPARE: u32 = 32;
const SPARE_AT_LEAST: u32 = 8;
/// Sweeps through all nodes, each of which leaves fewer of them. Others may write meanwhile.
const MOST_SWEEPS: usize = 64;

impl Core {
    // ---- the end of the file

    /// Gives free pages at the end of the file back, from page `end` on. Returns their number.
    pub(crate) fn give_back(&mut self, end: u32) -> Result<u32> {
        self.begin_write(None)?;
        let given = self.give_back_locked(end);
        self.rollback()?;
        given
    }

    fn give_back_locked(&mut self, end: u32) -> Result<u32> {
        let base = self.txn()?.base;
        let before = self.space.map.hwm;
        self.flush_storage()?;
        self.now_durable(base)?;
        self.release_quarantine()?;
        self.lower_slots()?;
        let end = end.max(self.space.map.used_end());
        // After a recovery only pages behind the end of the free map may go. The record of the newest
        // commit may name them, so it must not be needed any more.
        let is_needed = self.header.floor < self.newest_over()?;
        if end < self.space.map.hwm || is_needed && self.is_longer_than(end)? {
            self.lower_end(end)?;
        }
        self.cut()?;
        Ok(before.saturating_sub(self.space.map.hwm))
    }

    /// Writes a durable header that ends at `end`, and publishes it.
    fn lower_end(&mut self, end: u32) -> Result<()> {
        let mut header = self.header.clone();
        // As in every clean header: numbers of rolled-back transactions are used up, too.
        let over = self.newest_over()?;
        (header.floor, header.settled) = (over, over);
        header.marks = Marks::Some(Default::default());
        header.reserved = 0;
        let mut free = self.base_free();
        free.truncate(end);
        self.marked_by = 0;
        self.write_header(header, Some(&free))?;
        self.flush_storage()?;
        self.store(SETTLED, over)?;
        self.space.map.truncate(end);
        self.publish_free()
    }

    fn is_longer_than(&self, end: u32) -> Result<bool> {
        let size = self
            .storage
            .size()
            .map_err(Error::io("asking for the file's size"))?;
        Ok(size > PageNo(end).offset())
    }

    /// Cuts the file where its last page ends. The maps of the last span stay.
    fn cut(&mut self) -> Result<()> {
        let last_span = (self.space.map.spans() as u32 - 1) * SPAN;
        let pages = self.space.map.hwm.max(last_span + MAP_AT[1] + 1).max(FIRST);
        let end = u64::from(pages) * PAGE_SIZE as u64;
        let asking = Error::io("asking for the file's size");
        if self.storage.size().map_err(asking)? <= end {
            return Ok(());
        }
        let cutting = Error::io("making the file shorter");
        self.storage.truncate(end).map_err(cutting)
    }

    /// Slots that are larger than the smallest ones become so. They move to free pages nearer to the
    /// beginning, if there are enough next to each other. They stay if a file system that copies on
    /// write has no room for the header.
    fn lower_slots(&mut self) -> Result<()> {
        let Some(old) = Slots::of(&self.header) else {
            return Ok(());
        };
        let smaller = old.shrunk(SLOT_PAGES);
        let other = Slots::new_in(&self.space.map, smaller.pages())?;
        let moves = other.start() < old.start();
        let slots = if moves { other } else { smaller };
        if slots == old {
            return Ok(());
        }
        let mut changed = Ok(());
        if moves {
            changed = self.settle_before(slots).and_then(|()| self.reserve(slots));
        }
        match changed.and_then(|()| self.change_slots(slots)) {
            Err(error) if error.is_full() => self.check_poison(),
            changed => changed,
        }
    }

    // ---- moving pages

    /// The end of the file if all pages in use stood before it, with some free ones between them.
    pub(crate) fn packed_end(&self) -> u32 {
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

    /// Those who keep versions before the newest one, or, if `all`, any version.
    fn held(&mut self, all: bool) -> Result<Option<Held>> {
        if self.header.has_history() {
            return Ok(Some(Held::History));
        }
        self.release_snapshots()?;
        let base = self.txn()?.base;
        let oldest = self.marks_in_use()?.into_iter().map(|(low, _)| low).min();
        let held = oldest.filter(|low| all || *low < base);
        Ok(held.map(|low| Held::Reader(Version(low))))
    }

    /// Within the write transaction: moves pages away from the last `most` pages of the file, so many
    /// at most. Returns the first of these last pages. None is moved where earlier versions are kept:
    /// their pages would stay.
    pub(crate) fn move_down(&mut self, most: u32) -> Result<u32> {
        let end = self.space.map.hwm.saturating_sub(most);
        if self.held(false)?.is_some() {
            return Ok(end);
        }
        self.collect_remembered()?;
        let end = end.max(self.packed_end());
        if let Some(mut sweep) = self.sweep_before(end)? {
            self.move_on(&mut sweep, most)?;
        }
        self.remember_dead()?;
        Ok(end)
    }

    /// Collects what [`Core::move_down`] has left, moves what it had no room for, and gives the end
    /// back.
    pub(crate) fn vacuum_end(&mut self, end: u32) -> Result<u32> {
        if self.load(DURABLE)? < self.load(CURRENT)? {
            // A power cut could bring the old pages back, so nothing would be collected.
            self.flush()?;
        }
        while self.step(|core| core.move_behind(end))? > 0 {}
        self.give_back(end)
    }

    /// Moves pages from `end` on, as many as one transaction moves. Returns their number.
    fn move_behind(&mut self, end: u32) -> Result<u32> {
        self.collect_remembered()?;
        let end = end.max(self.packed_end());
        let most = if self.double { BATCH_DOUBLE } else { BATCH };
        let moved = match (self.held(true)?, self.sweep_before(end)?) {
            (None, Some(mut sweep)) => self.move_on(&mut sweep, most)?,
            _ => 0,
        };
        self.remember_dead()?;
        Ok(moved)
    }

    /// Moves pages to the beginning of the file, and gives the end back. Each transaction moves a
    /// bounded number of pages.
    pub(crate) fn vacuum(&mut self) -> Result<Vacuumed> {
        let before = self.load(HWM)? as u32;
        self.learn_torn()?;
        let most = if self.double { BATCH_DOUBLE } else { BATCH };
        let packed = match self.pack_all(most) {
            Err(e) if e.is_full() => self.pack_all(BATCH_SMALL),
            packed => packed,
        };
        let packed = match packed {
            Err(e) if !e.is_full() => return Err(e),
            packed => packed,
        };
        // The pages that are free by now.
        self.give_back(0)?;
        let mut held = packed?;
        if held.is_none() && self.double {
            // The slots have become small. Pages behind them can move to where they were, without
            // making them large again.
            held = self.move_all(BATCH_SMALL)?;
            self.give_back(0)?;
        }
        Ok(Vacuumed {
            held,
            given_back: before.saturating_sub(self.space.map.hwm),
        })
    }

    fn pack_all(&mut self, most: u32) -> Result<Option<Held>> {
        if let Some(held) = self.step(|core| core.held(true))? {
            return Ok(Some(held));
        }
        // A reader may have come.
        match self.reclaim() {
            Err(Error::Busy) => {}
            reclaimed => drop(reclaimed?),
        }
        // Slices of dropped trees.
        while self.step(Core::collect_some)? > 0 {}
        // First fewer pages, then nearer ones: what is written again last stays.
        for _ in 0..MOST_SWEEPS {
            let (mut sweep, mut packed) = (Sweep::fuller(), 0);
            while !sweep.is_over() {
                match self.step(|core| core.pack_some(&mut sweep, most))? {
                    Ok(pages) => packed += pages,
                    Err(held) => return Ok(Some(held)),
                }
            }
            if packed == 0 {
                break;
            }
        }
        self.move_all(most)
    }

    fn move_all(&mut self, most: u32) -> Result<Option<Held>> {
        loop {
            let (next, mut moved) = (self.step(Core::sweep_to_end)?, 0);
            let Some(mut sweep) = next else {
                return self.step(|core| core.held(true));
            };
            while !sweep.is_over() {
                match self.step(|core| core.pack_some(&mut sweep, most))? {
                    Ok(pages) => moved += pages,
                    Err(held) => return Ok(Some(held)),
                }
            }
            if moved == 0 {
                return Ok(None);
            }
        }
    }

    fn pack_some(
        &mut self,
        sweep: &mut Sweep,
        most: u32,
    ) -> Result<std::result::Result<u32, Held>> {
        if let Some(held) = self.held(true)? {
            return Ok(Err(held));
        }
        self.collect_remembered()?;
        let packed = self.move_on(sweep, most)?;
        self.remember_dead()?;
        Ok(Ok(packed))
    }

    /// A sweep that moves all pages behind what would be the end.
    fn sweep_to_end(&mut self) -> Result<Option<Sweep>> {
        self.collect_remembered()?;
        let end = self.packed_end();
        // Slots at the end come last: they move to the first free pages that are long enough.
        let end = match Slots::of(&self.header) {
            Some(slots) if slots.start() + 2 * slots.pages() >= end => {
                end.saturating_sub(2 * slots.pages())
            }
            _ => end,
        };
        let sweep = self.sweep_before(end)?;
        self.remember_dead()?;
        Ok(sweep)
    }

    // ---- garbage

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

    /// Collects what earlier transactions of a vacuum have left, and slices of dropped trees.
    pub(crate) fn collect_remembered(&mut self) -> Result<()> {
        let view = self.version()?;
        for page in self.catalog_pages(view)? {
            let node = self.catalog_node(page)?;
            self.collect_owners(&node)?;
        }
        let mut pages: Vec<u32> = self.dead_pages.iter().copied().collect();
        pages.sort_unstable();
        for page in pages {
            if !self.is_free(page) {
                self.collect_dead(page)?;
            }
            if self.is_free(page) || !self.has_dead_owners(page)? {
                self.dead_pages.remove(&page);
            }
            // A large transaction may have left many.
            self.spill_if_needed()?;
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
    pub(crate) fn remember_dead(&mut self) -> Result<()> {
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

    /// A transaction of its own.
    fn step<T>(&mut self, work: impl FnOnce(&mut Core) -> Result<T>) -> Result<T> {
        self.begin_write(None)?;
        let done = self.changing(work).and_then(|done| {
            self.commit(Durability::Flush)?;
            Ok(done)
        });
        if done.is_err() && self.txn.is_some() {
            // The first error is the one that is told.
            let _ = self.rollback();
        }
        done
    }
}

fn is_node(node: &NodeRef) -> bool {
    matches!(node.kind, PageType::Leaf | PageType::Inner)
}
