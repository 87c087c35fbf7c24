//! `Double`: commits through slots. A transaction may write its pages in rounds before that, each
//! through the slot that the round before did not take.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::disk::{Block, Place};
use super::recovery::Alive;
use super::*;

impl Engine {
    // ---- writing

    /// Everything before the transaction is durable and in place, and a header says so.
    fn begin_rounds(&mut self) -> Step<()> {
        if self.txn()?.rounds.is_some() {
            return Ok(());
        }
        match self.is(Mutant::SettledTooEarly) {
            true => self.bring_home()?,
            false => self.flush_in_place()?,
        }
        let floor = self.version() - 1;
        let txn = self.txn()?;
        txn.rounds = Some(0);
        let (free, hwm) = (txn.free_at_base.clone(), txn.hwm_at_base);
        self.marks.clear();
        self.write_header(|h| {
            (h.floor, h.settled) = (floor, floor);
            h.marks.clear();
            h.free = free;
            h.hwm = hwm;
        })?;
        self.disk.flush()
    }

    /// Marks pages of a transaction with rounds; true if that took a header.
    fn mark_round(&mut self, pages: &[u32]) -> Step<bool> {
        let need: BTreeSet<u32> = pages.iter().map(|p| p / REGION).collect();
        if self.is(Mutant::RoundUnmarked) || need.is_subset(&self.marks) {
            return Ok(false);
        }
        self.marks.extend(need);
        let marks = self.marks.clone();
        self.write_header(|h| h.marks = marks)?;
        Ok(true)
    }

    /// Some dirty pages, and of those the ones born in the transaction first.
    fn some_pages(&mut self) -> Step<(Vec<u32>, Vec<u32>)> {
        let mut pages: Vec<u32> = self.txn()?.dirty.keys().copied().collect();
        pages.sort_unstable();
        self.shuffle(&mut pages);
        pages.truncate(1 + self.random.below(4) as usize);
        let own = &self.txn()?.own;
        Ok(pages.into_iter().partition(|page| own.contains(page)))
    }

    /// A round, before the commit.
    pub fn spill_double(&mut self) -> Step<()> {
        let (born, old) = self.some_pages()?;
        if born.is_empty() && old.is_empty() {
            return Ok(());
        }
        self.begin_rounds()?;
        let marks = self.mark_round(&[&born[..], &old].concat())?;
        if marks && !self.is(Mutant::NoFlushOfMarks) {
            self.disk.flush()?;
        }
        let born = self.images(&born)?;
        let old = self.images(&old)?;
        if !self.is(Mutant::NoFlushOfBorn) {
            self.write_pages(&born)?;
        }
        let version = self.version();
        if old.is_empty() {
            // Its flush covers the pages of the round before, too.
            self.disk.flush()?;
        } else {
            let round = self.txn()?.rounds.unwrap_or(0) + 1;
            self.write_round(version, round, &old)?;
            self.txn()?.rounds = Some(round);
        }
        if self.is(Mutant::NoFlushOfBorn) {
            self.write_pages(&born)?;
        }
        self.write_pages(&old)?;
        let txn = self.txn()?;
        for (page, _) in born.iter().chain(&old) {
            txn.dirty.remove(page);
            txn.spilled.insert(*page);
        }
        Ok(())
    }

    fn images(&mut self, pages: &[u32]) -> Step<Vec<(u32, Rc<Image>)>> {
        let mut images = Vec::new();
        for page in pages {
            images.push((*page, Rc::new(self.image(*page, None)?)));
        }
        Ok(images)
    }

    fn write_pages(&mut self, images: &[(u32, Rc<Image>)]) -> Step<()> {
        for (page, image) in images {
            let block = Block::Page(image.clone());
            self.disk.write(Place::Page(*page), block)?;
        }
        Ok(())
    }

    /// Writes a slot that does not commit, and flushes it.
    fn write_round(&mut self, version: u64, round: u64, images: &[(u32, Rc<Image>)]) -> Step<()> {
        let slot = Slot {
            version,
            round,
            is_last: false,
            images: images.iter().cloned().collect(),
            free: self.free.clone(),
            hwm: self.hwm,
        };
        self.write_slot(slot)?;
        if self.is(Mutant::RoundIntoNewest) {
            self.slot = 1 - self.slot;
        }
        Ok(())
    }

    pub fn write_slot(&mut self, slot: Slot) -> Step<()> {
        let place = Place::Slot(self.slot);
        self.disk.write(place, Block::Slot(Rc::new(slot)))?;
        // Often, since pages that stay in a slot are lost there.
        if self.late && self.random.chance(3) {
            return Err(Stop::Crash);
        }
        if !self.is(Mutant::NoFlushOfSlot) {
            self.disk.flush()?;
        }
        self.slot = 1 - self.slot;
        Ok(())
    }

    /// Writes the last slot of a transaction. After a crash it is committed.
    pub fn write_double(&mut self) -> Step<()> {
        if self.txn()?.dirty.is_empty() {
            if self.txn()?.spilled.is_empty() {
                return Ok(());
            }
            self.change(CATALOG)?;
        }
        self.take_along()?;
        let mut pages: Vec<u32> = self.txn()?.dirty.keys().copied().collect();
        pages.sort_unstable();
        let rounds = self.txn()?.rounds;
        let own = self.txn()?.own.clone();
        if rounds.is_some() {
            let unmarked = self.is(Mutant::LastUnmarked);
            let mut marked = pages.clone();
            marked.retain(|page| !unmarked || own.contains(page));
            // Flushed with the slot, before anything of it is in place.
            self.mark_round(&marked)?;
        } else {
            self.mark_born()?;
        }
        let images = self.images(&pages)?;
        let is_born = |(page, _): &(u32, Rc<Image>)| own.contains(page);
        let (born, old): (Vec<_>, Vec<_>) = images.iter().cloned().partition(is_born);
        self.write_pages(&born)?;
        let away = self.stays_no_more(&pages)?;
        if away && !self.is(Mutant::StaysAway) {
            self.write_what_stays()?;
        }
        let mut free = self.free.clone();
        free.extend(&self.txn()?.freed);
        let slot = Slot {
            version: self.version(),
            round: rounds.map_or(0, |round| round + 1),
            is_last: true,
            images: images.into_iter().collect(),
            free,
            hwm: self.hwm,
        };
        self.write_slot(slot)?;
        self.txn()?.written = Some(old);
        match away {
            true => self.write_what_stays(),
            false => Ok(()),
        }
    }

    pub fn commit_double(&mut self) -> Step<()> {
        if self.late && self.commit_late()? {
            return Ok(());
        }
        self.write_double()?;
        let stays = self.stays_in()?;
        let Some(txn) = self.txn.take() else {
            return bug("no transaction");
        };
        let Some(in_place) = txn.written else {
            return Ok(());
        };
        let is_late = |chain: &mut Chain| {
            let late = chain.late.as_ref().map(|(page, _)| *page);
            late.is_some() && in_place.iter().all(|(page, _)| Some(*page) != late)
        };
        self.chain = self.chain.take_if(is_late);
        self.free.extend(txn.freed);
        self.current = txn.version;
        self.durable = txn.version;
        self.stays = stays;
        match stays {
            Some(_) => Ok(()),
            None => self.write_pages(&in_place),
        }
    }

    /// Undoes the rounds of a transaction, and the last slot.
    pub fn undo_double(&mut self, spilled: &[u32]) -> Step<()> {
        let (version, base) = (self.version(), self.txn()?.base);
        let rounds = self.txn()?.rounds;
        let is_written = self.txn()?.written.is_some();
        if rounds.is_none() && !is_written {
            return Ok(());
        }
        self.flush_in_place()?;
        let is_old = |page: &&u32| self.disk.page(**page).is_some_and(|i| i.page.birth <= base);
        let old: Vec<u32> = spilled.iter().filter(is_old).copied().collect();
        if !self.is(Mutant::NoUndoOfSpills) {
            let next = rounds.unwrap_or(0) + u64::from(is_written) + 1;
            self.strip_in_rounds(&old, base, version, next)?;
            self.disk.flush()?;
        }
        if self.is(Mutant::SlotStaysUnsettled) {
            return Ok(());
        }
        // This version is the base under another number.
        let txn = self.txn()?;
        let (free, hwm) = (txn.free_at_base.clone(), txn.hwm_at_base);
        self.write_header(|h| {
            (h.floor, h.settled) = (version, version);
            h.free = free;
            h.hwm = hwm;
        })?;
        self.disk.flush()
    }

    /// Takes back in these pages what happened after `state`, as `version`. Everything in place must be
    /// durable.
    fn strip_in_rounds(
        &mut self,
        pages: &[u32],
        state: u64,
        version: u64,
        mut round: u64,
    ) -> Step<()> {
        let most = 1 + self.random.below(3) as usize;
        for part in pages.chunks(most) {
            let mut images = Vec::new();
            for page in part {
                let late = self.late_page(*page).cloned();
                let in_place = || self.disk.page(*page).map(|image| image.page.clone());
                let Some(content) = late.or_else(in_place) else {
                    return bug("a page of a round is gone");
                };
                images.push((*page, self.strip(content, state, version, state)));
            }
            if !self.is(Mutant::StripInPlace) {
                self.write_round(version, round, &images)?;
                round += 1;
            }
            self.write_pages(&images)?;
        }
        Ok(())
    }

    // ---- recovery

    /// The slots that the header does not call settled, the newest last.
    pub fn unsettled(&self, settled: u64) -> Vec<(usize, Rc<Slot>)> {
        let mut slots: Vec<(usize, Rc<Slot>)> = [0, 1]
            .into_iter()
            .filter_map(|i| match self.disk.read(Place::Slot(i)) {
                Some(Block::Slot(s)) if s.version > settled => Some((i, s.clone())),
                _ => None,
            })
            .collect();
        let in_any_order = self.is(Mutant::RoundsInAnyOrder);
        slots.sort_by_key(|(_, s)| (s.version, if in_any_order { 0 } else { s.round }));
        slots
    }

    pub fn redo(&mut self, slots: &[(usize, Rc<Slot>)]) -> Step<BTreeSet<u32>> {
        let images: BTreeMap<u32, Rc<Image>> = slots
            .iter()
            .flat_map(|(_, slot)| slot.images.clone())
            .collect();
        let pages = images.keys().copied().collect();
        for (page, image) in images {
            if self.stays.is_some_and(|(stays, _)| stays == page) {
                continue;
            }
            let there = self.disk.page(page);
            // One of a later commit with a late page stays, also if that is what it carries the change of.
            let is_later = |there: &Rc<Image>| {
                there.change.is_some() && there.ver > image.ver && !self.is(Mutant::RedoOverCarrier)
            };
            if there.is_some_and(|there| there.id == image.id || is_later(there)) {
                continue;
            }
            self.flush_what_was_found()?;
            self.disk.write(Place::Page(page), Block::Page(image))?;
        }
        if self.found_flushed {
            self.disk.flush()?;
        }
        Ok(pages)
    }

    /// The newest commit is whole. A handle that cannot go on from here brings the late page home.
    fn go_on_double(
        &mut self,
        state: u64,
        free: BTreeSet<u32>,
        hwm: u32,
        late: Option<Chain>,
    ) -> Step<()> {
        self.start(state, free.clone(), hwm);
        let is_late = late.is_some();
        self.chain = late;
        let moves_floor = self.random.chance(if self.repairs > 0 { 50 } else { 15 });
        if !moves_floor {
            if !self.found_flushed {
                self.durable = 0;
            }
            return Ok(());
        }
        self.flush_what_was_found()?;
        self.redo_what_stays()?;
        if is_late && !self.is(Mutant::LateForgotten) {
            self.bring_home()?;
            self.disk.flush()?;
        }
        self.chain = None;
        self.write_clean_header(state, free, hwm)
    }

    /// Whether a power cut could bring back a slot that the header calls settled. Perhaps a rollback has
    /// settled it, and its header is not on the device yet.
    fn a_settled_slot_may_come_back(&self, header: &Header) -> bool {
        let other = match self.disk.read(Place::Header(1 - (header.seq % 2) as usize)) {
            Some(Block::Header(other)) => other.settled,
            _ => 0,
        };
        let settled = |slot: &Slot| other < slot.version && slot.version == header.settled;
        let slots = [0, 1].map(|i| self.disk.read(Place::Slot(i)));
        let mut slots = slots.into_iter().flatten();
        slots.any(|block| matches!(block, Block::Slot(slot) if settled(slot)))
    }

    /// The version that is durable with this slot. A round has those before its transaction, or before a recovery.
    fn state_of(&self, slot: &Slot) -> u64 {
        match slot.is_last || self.is(Mutant::AnySlotCommits) {
            true => slot.version,
            false => slot.images.values().map(|i| i.base).max().unwrap_or(0),
        }
    }

    pub fn recover_double(&mut self, alive: Option<Alive>) -> Step<()> {
        let header = self.header();
        let floor = header.floor;
        if self.a_settled_slot_may_come_back(&header) {
            self.flush_what_was_found()?;
        }
        let mut slots = self.unsettled(header.settled);
        if self.is(Mutant::RedoOneSlot) {
            slots = slots.split_off(slots.len().saturating_sub(1));
        }
        let mut pages = self.redo_but_what_stays(&slots, alive)?;
        let newest = slots.last().map(|(_, slot)| slot.clone());
        self.slot = slots.last().map_or(0, |(place, _)| 1 - place);
        let of_region = |r: &u32| r * REGION..(r + 1) * REGION;
        pages.extend(header.marks.iter().flat_map(of_region));
        let above = newest
            .as_ref()
            .map_or(floor, |slot| slot.version.max(floor));
        let seen = self.seen_double(&pages, floor);
        let carrier = self.find_late_double(&seen, above)?;
        let images = self.seen_double(&pages, floor);
        let top = images.values().map(|i| i.ver).max().unwrap_or(floor);
        self.marks = header.marks.clone();
        let state = newest.as_ref().map_or(0, |slot| self.state_of(slot));
        let (state, free, hwm) = match &newest {
            Some(slot) if state > floor => (state, slot.free.clone(), slot.hwm),
            _ => (floor, header.free.clone(), header.hwm),
        };
        // Commits with a late page leave the free map as it is.
        let (version, late) = carrier.unwrap_or((state, None));
        let state = state.max(version);
        if top <= state {
            return self.go_on_double(state, free, hwm, late);
        }
        // The transaction `top` is broken.
        self.flush_what_was_found()?;
        self.redo_what_stays()?;
        let is_changed = |i: &&Rc<Image>| i.ver > state && i.page.birth <= state;
        let changed = images.iter().filter(|(_, i)| is_changed(i));
        let mut changed: BTreeSet<u32> = changed.map(|(page, _)| *page).collect();
        // A page that was late was to come home in the slot of the broken transaction.
        self.chain = late.filter(|_| !self.is(Mutant::LateForgotten));
        let late = self.chain.as_ref().and_then(|chain| chain.late.as_ref());
        changed.extend(late.map(|(page, _)| *page));
        let changed: Vec<u32> = changed.into_iter().collect();
        let of_top = newest.filter(|slot| slot.version == top);
        let round = of_top.map_or(0, |slot| slot.round) + 1;
        (self.free, self.hwm) = (free.clone(), hwm);
        if !self.is(Mutant::NoUndo) {
            self.strip_in_rounds(&changed, state, top, round)?;
        }
        if !self.is(Mutant::NoFlushOfUndone) {
            self.disk.flush()?;
        }
        self.chain = None;
        self.start(top, free.clone(), hwm);
        self.write_clean_header(top, free, hwm)
    }

    /// The header at the end of a recovery. The next transaction flushes it.
    fn write_clean_header(&mut self, floor: u64, free: BTreeSet<u32>, hwm: u32) -> Step<()> {
        self.marks.clear();
        self.write_header(|h| {
            (h.floor, h.settled) = (floor, floor);
            h.marks.clear();
            h.free = free;
            h.hwm = hwm;
        })?;
        self.found_flushed = false;
        Ok(())
    }
}
