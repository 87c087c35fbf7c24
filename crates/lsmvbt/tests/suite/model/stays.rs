//! Pages that stay in their slot: a commit of `Double` that changes one leaf does not write it in place.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::disk::{Block, Place};
use super::recovery::Alive;
use super::*;

impl Engine {
    /// The newest image of a page that is not late.
    pub fn newest_image(&self, page: u32) -> Option<&Rc<Image>> {
        match self.stays {
            Some((stays, slot)) if stays == page => self.image_in(slot, page),
            _ => self.disk.page(page),
        }
    }

    fn image_in(&self, slot: usize, page: u32) -> Option<&Rc<Image>> {
        match self.disk.read(Place::Slot(slot)) {
            Some(Block::Slot(slot)) => slot.images.get(&page),
            _ => None,
        }
    }

    /// Whether a page stays in a slot that is older than this version.
    pub fn stays_below(&self, version: u64) -> bool {
        let slot = self
            .stays
            .map(|(_, slot)| self.disk.read(Place::Slot(slot)));
        matches!(slot, Some(Some(Block::Slot(slot))) if slot.version < version)
    }

    // ---- writing

    /// The page of the transaction whose slot is durable, if it stays there.
    pub fn stays_in(&mut self) -> Step<Option<(u32, usize)>> {
        let only = self.only_leaf().map(|(page, _)| page);
        let is_only = self.txn()?.rounds.is_none() && self.late && self.random.chance(85);
        let stays = only.filter(|_| is_only);
        self.stay_commits += u64::from(stays.is_some());
        Ok(stays.map(|page| (page, 1 - self.slot)))
    }

    /// Writes the page that stays in its slot in place. The caller flushes.
    pub fn write_what_stays(&mut self) -> Step<()> {
        let Some((page, slot)) = self.stays else {
            return Ok(());
        };
        self.flush_what_was_found()?;
        let Some(image) = self.image_in(slot, page).cloned() else {
            return bug("no slot has the newest image of a page any more");
        };
        self.disk.write(Place::Page(page), Block::Page(image))?;
        self.stays = None;
        Ok(())
    }

    /// Whether a page stays in a slot that is needed no more after a commit of these pages, and that has not
    /// got it.
    pub fn stays_no_more(&mut self, pages: &[u32]) -> Step<bool> {
        let Some((page, _)) = self.stays else {
            return Ok(false);
        };
        Ok(!pages.contains(&page) && !self.txn()?.freed.contains(&page))
    }

    /// Before a header that settles the slots.
    pub fn flush_in_place(&mut self) -> Step<()> {
        if self.is(Mutant::SettledInSlot) {
            self.disk.flush()?;
            return self.bring_home();
        }
        self.bring_home()?;
        self.disk.flush()
    }

    /// A commit through a slot brings the late page home: before that, or in the same slot.
    pub fn take_along(&mut self) -> Step<()> {
        let late = self.chain.as_ref().and_then(|chain| chain.late.clone());
        let Some((page, content)) = late.filter(|_| !self.is(Mutant::StaysLate)) else {
            return Ok(());
        };
        let is_freed = self.txn()?.freed.contains(&page);
        if is_freed || self.random.chance(50) {
            return self.bring_home();
        }
        self.txn()?.dirty.entry(page).or_insert(content);
        Ok(())
    }

    /// Marks the pages that are born in the transaction. The floor may move, but the slots stay unsettled.
    pub fn mark_born(&mut self) -> Step<()> {
        if !self.late || !self.random.chance(20) {
            return Ok(());
        }
        if self.disk.has_new_header() {
            self.disk.flush()?;
        }
        let txn = self.txn()?;
        let (own, dirty) = (txn.own.clone(), txn.dirty.clone());
        let floor = txn.version - 1;
        let (free, hwm) = (txn.free_at_base.clone(), txn.hwm_at_base);
        if self.random.chance(30) {
            self.marks.extend(own.iter().map(|page| page / REGION));
            let marks = self.marks.clone();
            return self.write_header(|h| h.marks = marks);
        }
        let is_old = self.stays_below(floor);
        if !self.is(Mutant::FloorOverStays) || self.chain.is_some() {
            self.bring_home()?;
        }
        self.marks = dirty.keys().map(|page| page / REGION).collect();
        let marks = self.marks.clone();
        self.write_header(|h| {
            h.floor = floor;
            h.marks = marks;
            h.free = free;
            h.hwm = hwm;
        })?;
        match is_old && self.random.chance(50) {
            true => Err(Stop::Crash),
            false => Ok(()),
        }
    }

    // ---- recovery

    /// The page of the newest slot, if it may stay there: the page in place must be whole, and older.
    fn may_stay(&mut self, newest: Option<&(usize, Rc<Slot>)>) -> Option<(u32, usize)> {
        let (at, slot) = newest?;
        let (page, image) = slot.images.first_key_value()?;
        let is_commit = slot.images.len() == 1 && slot.is_last && slot.round == 0;
        let is_commit = is_commit && (image.from != image.ver || self.is(Mutant::HomeStays));
        let in_place = self.disk.page(*page);
        let is_older = match in_place {
            Some(there) => there.ver < slot.version,
            None => self.is(Mutant::TornStays),
        };
        let may = is_commit && is_older && image.page.kind == Kind::Leaf;
        (may && self.random.chance(85)).then_some((*page, *at))
    }

    /// Writes the slots in place, but for a page that may stay. Other handles that live see the pages of all slots before
    /// their version, but for the one that stays.
    pub fn redo_but_what_stays(
        &mut self,
        slots: &[(usize, Rc<Slot>)],
        alive: Option<Alive>,
    ) -> Step<BTreeSet<u32>> {
        let Some(alive) = alive else {
            self.stays = self.may_stay(slots.last());
            self.left_in_slots += u64::from(self.stays.is_some());
            return self.redo(slots);
        };
        let stays = alive.stays.map(|(_, slot)| slot);
        let stays = stays.filter(|_| !self.is(Mutant::StaysPublished));
        let is_needed = |at: usize, slot: &Slot| slot.version >= alive.current || stays == Some(at);
        let mut needed = slots.to_vec();
        needed.retain(|(at, slot)| is_needed(*at, slot));
        let mut pages = self.redo(&needed)?;
        pages.extend(slots.iter().flat_map(|(_, slot)| slot.images.keys()));
        Ok(pages)
    }

    /// Writes the page in place that could have stayed, before anything is written over its slot, or settles it.
    pub fn redo_what_stays(&mut self) -> Step<()> {
        if self.stays.is_none() {
            return Ok(());
        }
        self.write_what_stays()?;
        match self.is(Mutant::SettledInSlot) {
            true => Ok(()),
            false => self.disk.flush(),
        }
    }
}
