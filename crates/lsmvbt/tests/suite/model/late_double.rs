//! Late pages with `Double`: the page that comes home may tear, and its carrier repairs it.
//!
//! A change is the bytes here in which the next image of the leaf differs from its page in place. The next
//! commit writes exactly that image. So what a torn write leaves is right, or in the change.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::cells::{Bytes, Change};
use super::disk::{Block, Place};
use super::late::Chain;
use super::*;

/// How to commit with a late page.
struct Plan {
    /// The page that is written, and its image without what it carries.
    writes: u32,
    image: Bytes,
    /// The page that is late from now on, as readers see it, and its change.
    late: Option<(u32, Page)>,
    change: Option<Change>,
    settles: bool,
}

impl Engine {
    // ---- writing

    fn newest_slot(&self) -> Option<Rc<Slot>> {
        let settled = match self.is(Mutant::CarrierUnreached) {
            true => 0,
            false => self.header().settled,
        };
        self.unsettled(settled).pop().map(|(_, slot)| slot)
    }

    /// The page that the next commit with a late page writes, and its image.
    fn next_carrier(&mut self, leaf: u32) -> Option<(u32, Bytes)> {
        let Some(chain) = self.chain.clone() else {
            return self.first_carrier(leaf);
        };
        let (Some((page, content)), Some(image)) = (chain.late, chain.image) else {
            // Only without the rule that a repair ends it.
            let bytes = self.disk.bytes(chain.carrier)?;
            return (chain.carrier != leaf).then(|| (chain.carrier, bytes.clean()));
        };
        if page == leaf && !self.is(Mutant::LateTwice) {
            return None;
        }
        if !self.may_tear(page, chain.carrier) && !self.is(Mutant::WayTorn) {
            return None;
        }
        let left = image.page().ents;
        let gone = content.ents.iter().filter(|e| !left.contains(e));
        let is_seen = |e: &Ent| self.snapshots.values().any(|view| e.sees(*view));
        if gone.into_iter().any(is_seen) && !self.is(Mutant::ImageWithoutReaders) {
            return None;
        }
        match self.is(Mutant::HomeAnew) {
            true => Some((page, Bytes::of(&content, self.id()))),
            false => Some((page, image)),
        }
    }

    /// Recovery must find the carrier where this page is torn. It does not go over it, or the carrier is the
    /// first one, to which a slot leads. Or its commit came with a header, and a power cut has kept that.
    fn may_tear(&self, page: u32, carrier: u32) -> bool {
        let floor = self.header().floor;
        let from = self.disk.page(carrier).map_or(INF, |i| i.from);
        let is_first = self.newest_slot().is_some_and(|slot| slot.version == from);
        let is_old = self.disk.page(page).is_some_and(|i| i.ver <= floor);
        is_old || is_first || from <= floor + 1
    }

    /// A page that the newest commit has in its slot.
    fn first_carrier(&mut self, leaf: u32) -> Option<(u32, Bytes)> {
        let slot = self.newest_slot()?;
        let pages = slot.images.keys().copied().filter(|page| *page != leaf);
        let pages: Vec<u32> = pages.collect();
        if slot.version != self.current || !slot.is_last || pages.is_empty() {
            return None;
        }
        let page = *self.random.pick(&pages);
        let bytes = self.newest_image(page)?.bytes.clean();
        (!self.random.chance(30)).then_some((page, bytes))
    }

    fn plan_double(&mut self) -> Step<Option<Plan>> {
        let Some((leaf, content)) = self.only_leaf() else {
            return Ok(None);
        };
        let Some((writes, image)) = self.next_carrier(leaf) else {
            return Ok(None);
        };
        let is_next = self.chain.is_some();
        let floor = self.header().floor;
        // Recovery may go over the leaf to its carrier, or put an image of a slot there. It does neither
        // after a header that marks the carrier, and settles the slots.
        let is_on_way = self.disk.page(leaf).is_some_and(|i| i.ver > floor);
        let is_on_way = is_on_way && !self.is(Mutant::WayTorn);
        let settles = is_next && (is_on_way || self.random.chance(10));
        let Some(before) = self.disk.bytes(leaf) else {
            return bug("the leaf is not there");
        };
        if writes == leaf {
            let image = Bytes::over(&content, &image, &mut self.random);
            return Ok(Some(Plan {
                writes,
                image,
                late: None,
                change: None,
                settles,
            }));
        }
        // After a power cut there are no readers of what has ended. But it may own pages.
        let version = self.version();
        let mut next = content.clone();
        next.ents
            .retain(|e| e.end != version || e.chain().is_some());
        let next = Bytes::over(&next, &before, &mut self.random);
        let change = match self.is(Mutant::GapCounted) {
            true => Change::new(leaf, &before.clean(), next),
            false => Change::new(leaf, &before, next),
        };
        Ok(Some(Plan {
            writes,
            image,
            late: Some((leaf, content)),
            change: Some(change),
            settles,
        }))
    }

    /// Writes the transaction, if it may have a late page, and flushes it.
    pub fn write_late_double(&mut self) -> Step<Option<Chain>> {
        let Some(plan) = self.plan_double()? else {
            return Ok(None);
        };
        let (version, id) = (self.version(), self.id());
        let bytes = match &plan.change {
            Some(change) => plan.image.clone().with_parts_of(change, id),
            None => Some(plan.image.clone()),
        };
        let Some(bytes) = bytes else {
            // It has no room for the change.
            return Ok(None);
        };
        let image = plan.change.as_ref().map(|change| change.image().clone());
        let page = plan.image.page();
        let written = Rc::new(Image {
            change: plan.change.map(Rc::new),
            bytes: Rc::new(bytes),
            ..Image::new(page, version, self.current, self.durable, id)
        });
        let header_first = self.random.chance(50);
        if plan.settles && header_first {
            self.settle_to_carrier(plan.writes)?;
        }
        let block = Block::Page(written);
        self.disk.write(Place::Page(plan.writes), block)?;
        if plan.settles && !header_first {
            self.settle_to_carrier(plan.writes)?;
        }
        // Often, since most of what can go wrong comes from torn pages of such commits.
        if self
            .random
            .chance(if self.chain.is_some() { 15 } else { 3 })
        {
            return Err(Stop::Crash);
        }
        self.disk.flush()?;
        Ok(Some(Chain {
            carrier: plan.writes,
            version,
            late: plan.late,
            image,
        }))
    }

    /// A header that calls every version before the newest carrier's settled.
    fn settle_to_carrier(&mut self, writes: u32) -> Step<()> {
        let Some(chain) = &self.chain else {
            return bug("no carrier");
        };
        let marks = BTreeSet::from([chain.carrier / REGION, writes / REGION]);
        let floor = match self.is(Mutant::FloorAboveCarrier) {
            true => chain.version,
            false => chain.version - 1,
        };
        self.marks = marks.clone();
        let (free, hwm) = self.free_at_base();
        self.write_header(|h| {
            h.marks = marks;
            (h.floor, h.settled) = (floor, floor);
            h.free = free;
            h.hwm = hwm;
        })
    }

    fn free_at_base(&self) -> (BTreeSet<u32>, u32) {
        match &self.txn {
            Some(txn) => (txn.free_at_base.clone(), txn.hwm_at_base),
            None => (self.free.clone(), self.hwm),
        }
    }

    /// Brings the late page home through a slot, as if the newest commit had gone through it.
    pub fn home_through_slot(&mut self, chain: Chain) -> Step<()> {
        let Some((page, content)) = chain.late else {
            return Ok(());
        };
        let version = chain.version;
        let image = Rc::new(Image::new(content, version, version, version, self.id()));
        if self.is(Mutant::HomeInPlace) {
            self.disk.write(Place::Page(page), Block::Page(image))?;
            return self.disk.flush();
        }
        let (free, hwm) = self.free_at_base();
        if self.is(Mutant::HomeIntoNewest) {
            self.slot = 1 - self.slot;
        }
        self.write_slot(Slot {
            version,
            round: 0,
            is_last: true,
            images: BTreeMap::from([(page, image.clone())]),
            free,
            hwm,
        })?;
        self.disk.write(Place::Page(page), Block::Page(image))
    }

    /// A header between transactions, to which all commits are settled.
    pub fn settle(&mut self) -> Step<()> {
        self.flush_what_was_found()?;
        self.flush_in_place()?;
        let floor = self.next - 1;
        let (free, hwm) = self.free_at_base();
        self.marks.clear();
        self.write_header(|h| {
            h.marks.clear();
            (h.floor, h.settled) = (floor, floor);
            h.free = free;
            h.hwm = hwm;
        })
    }

    // ---- recovery

    /// Reads pages, and those to which changes lead. Torn ones are not among them.
    pub fn seen_double(&self, pages: &BTreeSet<u32>, floor: u64) -> BTreeMap<u32, Rc<Image>> {
        let mut todo: Vec<u32> = pages.iter().copied().collect();
        let mut seen = BTreeMap::new();
        while let Some(page) = todo.pop() {
            let Some(image) = self.newest_image(page) else {
                continue;
            };
            if image.ver <= floor || seen.insert(page, image.clone()).is_some() {
                continue;
            }
            todo.extend(image.change.iter().map(|change| change.page));
        }
        seen
    }

    /// The newest carrier, if it is newer than this version. Only its page is late, or torn.
    fn newest_carrier(
        &self,
        seen: &BTreeMap<u32, Rc<Image>>,
        above: u64,
    ) -> Option<(u32, Rc<Image>)> {
        let carriers = seen.iter().filter(|(_, image)| image.change.is_some());
        let newest = carriers
            .filter(|(_, image)| image.ver > above)
            .max_by_key(|(_, image)| image.ver);
        newest.map(|(page, image)| (*page, image.clone()))
    }

    /// Finds the page that is late. Where it is torn, it is repaired, and comes home by that. Also returns
    /// the version of the newest carrier.
    pub fn find_late_double(
        &mut self,
        seen: &BTreeMap<u32, Rc<Image>>,
        above: u64,
    ) -> Step<Option<(u64, Option<Chain>)>> {
        if self.is(Mutant::AnyCarrierRepairs) {
            self.repair_by_any(seen)?;
        }
        let Some((carrier, image)) = self.newest_carrier(seen, above) else {
            return Ok(None);
        };
        let version = image.ver;
        let Some(change) = image.change.clone() else {
            return Ok(None);
        };
        let mut chain = Chain {
            carrier,
            version,
            late: None,
            image: None,
        };
        match self.disk.page(change.page).cloned() {
            Some(there) if there.ver >= version => Ok(Some((version, None))),
            Some(there) => {
                let Some(image) = change.applied_to(&there.bytes) else {
                    return bug("a change that does not begin from its page");
                };
                let content = change.seen_over(&there.page, &image, version);
                chain.late = Some((change.page, content));
                chain.image = Some(image);
                Ok(Some((version, Some(chain))))
            }
            None => {
                let torn = self.disk.bytes(change.page);
                let Some(image) = torn.and_then(|torn| change.applied_to(&torn)) else {
                    return bug("a torn page that its change does not repair");
                };
                self.repair(change.page, &image, version)?;
                let goes_on = self.is(Mutant::GoesOnAfterRepair);
                Ok(Some((version, goes_on.then_some(chain))))
            }
        }
    }

    fn repair(&mut self, page: u32, image: &Bytes, version: u64) -> Step<()> {
        self.flush_what_was_found()?;
        let id = self.id();
        let image = Image {
            bytes: Rc::new(image.clone()),
            ..Image::new(image.page(), version, version, version, id)
        };
        let block = Block::Page(Rc::new(image));
        self.disk.write(Place::Page(page), block)?;
        self.repairs += 1;
        match self.is(Mutant::RepairUnflushed) {
            true => Ok(()),
            false => self.disk.flush(),
        }
    }

    /// Without the rule that only the newest carrier repairs.
    fn repair_by_any(&mut self, seen: &BTreeMap<u32, Rc<Image>>) -> Step<()> {
        let mut all: Vec<Rc<Image>> = seen.values().cloned().collect();
        all.sort_by_key(|image| image.ver);
        let version = all.last().map_or(0, |image| image.ver);
        for image in all {
            let Some(change) = image.change.clone() else {
                continue;
            };
            let torn = self.disk.page(change.page).is_none();
            let bytes = self.disk.bytes(change.page).filter(|_| torn);
            if let Some(fixed) = bytes.and_then(|bytes| change.applied_to(&bytes)) {
                self.repair(change.page, &fixed, version)?;
            }
        }
        Ok(())
    }
}
