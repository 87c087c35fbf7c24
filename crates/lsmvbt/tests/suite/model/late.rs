//! Late pages: a commit that changes one leaf writes another page, which carries its change.
//!
//! A change is the whole new content of the leaf here. A commit writes the late page of the commit before.
//! The first one of a chain writes the page that the newest commit has written.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::cells::Bytes;
use super::disk::{Block, Place};
use super::*;

/// The newest commits, if they are such ones.
#[derive(Clone)]
pub struct Chain {
    /// The page that the newest commit has written, and its version.
    pub carrier: u32,
    pub version: u64,
    /// The page that it has changed, and its content, unless that is the carrier.
    pub late: Option<(u32, Page)>,
    /// With `Double`: its next image, as the carrier describes it.
    pub image: Option<Bytes>,
}

/// How to commit with a late page.
struct Plan {
    /// The page that is written, and its content.
    writes: u32,
    content: Page,
    /// The change that it carries.
    carries: Option<(u32, Page)>,
    /// The carrier of the commit before, and its version.
    before: (u32, u64),
    moves_floor: bool,
}

/// The pages that recovery reads: of the marked regions, and those to which changes lead. Only pages that
/// are newer than the floor carry any.
pub type Seen = BTreeMap<u32, Rc<Image>>;

impl Engine {
    /// The content of a page that is late.
    pub fn late_page(&self, page: u32) -> Option<&Page> {
        let (late, content) = self.chain.as_ref()?.late.as_ref()?;
        (*late == page).then_some(content)
    }

    // ---- writing

    /// Brings the late page home before anything else is written.
    pub fn bring_home(&mut self) -> Step<()> {
        self.write_what_stays()?;
        if self.chain.is_none() || self.is(Mutant::StaysLate) {
            return Ok(());
        }
        self.flush_what_was_found()?;
        let Some(chain) = self.chain.take() else {
            return Ok(());
        };
        if self.double {
            return self.home_through_slot(chain);
        }
        let Some((page, content)) = chain.late else {
            return Ok(());
        };
        // The version is durable by now. The page may be one of the way to the carrier, so recovery may
        // see no record of this version any more (MV42).
        let base = match self.is(Mutant::HomeOfOldBase) {
            true => self.disk.page(chain.carrier).map_or(0, |i| i.base),
            false => chain.version,
        };
        let version = chain.version;
        let image = Rc::new(Image::new(content, version, version, base, self.id()));
        self.disk.write(Place::Page(page), Block::Page(image))?;
        if !self.is(Mutant::HomeUnflushed) {
            self.disk.flush()?;
            self.flushed(false);
        }
        Ok(())
    }

    /// The leaf that the transaction changes, if it changes nothing else.
    pub fn only_leaf(&self) -> Option<(u32, Page)> {
        let txn = self.txn.as_ref()?;
        let (page, content) = txn.dirty.iter().next()?;
        let nothing_else = txn.dirty.len() == 1
            && txn.own.is_empty()
            && txn.freed.is_empty()
            && txn.spilled.is_empty();
        (nothing_else && content.kind == Kind::Leaf).then(|| (*page, content.clone()))
    }

    fn is_marked(&self, page: u32) -> bool {
        self.marks.contains(&(page / REGION))
    }

    /// The page that the newest commit has written and from which recovery goes on, and its version.
    fn newest(&self) -> Option<(u32, u64)> {
        if let Some(chain) = &self.chain {
            return Some((chain.carrier, chain.version));
        }
        let image = self.disk.page(self.carrier)?;
        let is_seen = self.is_marked(self.carrier) || self.is(Mutant::CarrierUnreached);
        (is_seen && image.ver == self.current).then_some((self.carrier, image.ver))
    }

    fn plan(&mut self) -> Step<Option<Plan>> {
        let is_durable = self.durable == self.current && self.group.is_empty();
        let is_reserved = self.version() <= self.header().reserved;
        let Some((leaf, content)) = self.only_leaf() else {
            return Ok(None);
        };
        let Some(before) = self.newest().filter(|_| is_durable && is_reserved) else {
            return Ok(None);
        };
        let chain = self.chain.clone();
        let (writes, old) = match chain.as_ref().and_then(|chain| chain.late.clone()) {
            Some((page, content)) => (page, content),
            None => (before.0, self.without_lost_of(before.0)?),
        };
        if chain.is_none() && (writes == leaf || self.random.chance(30)) {
            return Ok(None);
        }
        // The first one of a chain writes over the record of another kind of commit (MV43).
        let may_move = chain.is_some() || self.is(Mutant::FloorAtBegin);
        let moves_floor = may_move && !self.is_strict() && self.random.chance(30);
        let (content, carries) = match writes == leaf {
            true => (content, None),
            false => (old, Some((leaf, content))),
        };
        Ok(Some(Plan {
            writes,
            content,
            carries,
            before,
            moves_floor,
        }))
    }

    /// A page in place.
    fn without_lost_of(&self, page: u32) -> Step<Page> {
        match self.disk.page(page) {
            Some(image) => Ok(self.without_lost(image)),
            None => bug("the newest page is gone"),
        }
    }

    /// Writes and flushes the transaction, if it may have a late page.
    pub fn write_late(&mut self) -> Step<Option<Chain>> {
        if self.double {
            return self.write_late_double();
        }
        let Some(plan) = self.plan()? else {
            return Ok(None);
        };
        let (version, id) = (self.version(), self.id());
        let image = Image::new(plan.content, version, self.current, self.durable, id);
        let image = Rc::new(Image {
            record: Some(Vec::new()),
            carries: plan.carries.clone().map(Rc::new),
            ..image
        });
        let header_first = self.random.chance(50);
        if plan.moves_floor && header_first {
            self.move_floor_to(plan.before, plan.writes)?;
        }
        let block = Block::Page(image);
        self.disk.write(Place::Page(plan.writes), block)?;
        if plan.moves_floor && !header_first {
            self.move_floor_to(plan.before, plan.writes)?;
        }
        self.disk.flush()?;
        Ok(Some(Chain {
            carrier: plan.writes,
            version: self.version(),
            late: plan.carries,
            image: None,
        }))
    }

    /// A header from which recovery need not follow the changes before the newest one.
    fn move_floor_to(&mut self, (carrier, version): (u32, u64), writes: u32) -> Step<()> {
        let floor = match self.is(Mutant::FloorAboveCarrier) {
            true => version,
            false => version - 1,
        };
        let txn = self.txn()?;
        let (free, hwm) = (txn.free_at_base.clone(), txn.hwm_at_base);
        let marks = BTreeSet::from([carrier / REGION, writes / REGION]);
        let reserved = self.reserve();
        self.marks = marks.clone();
        self.write_header(|h| {
            h.marks = marks;
            h.floor = floor;
            h.free = free;
            h.hwm = hwm;
            h.reserved = reserved;
        })
    }

    /// Commits, if the page may be late.
    pub fn commit_late(&mut self) -> Step<bool> {
        let Some(chain) = self.write_late()? else {
            return Ok(false);
        };
        let Some(txn) = self.txn.take() else {
            return bug("no transaction");
        };
        self.current = txn.version;
        self.carrier = chain.carrier;
        self.chain = Some(chain);
        self.stays = None;
        self.late_commits += 1;
        self.flushed(true);
        Ok(true)
    }

    /// Writes a transaction, and leaves it to be rolled back. The page that was late is home by that.
    pub fn write_to_roll_back(&mut self) -> Step<()> {
        let newest = self.newest().map(|(page, _)| page);
        let late = self.chain.as_ref().and_then(|chain| chain.late.as_ref());
        let Some(page) = late.map(|(page, _)| *page).or(newest) else {
            return Ok(());
        };
        let old = match self.late_page(page) {
            Some(content) => content.clone(),
            None => self.without_lost_of(page)?,
        };
        if self.write_late()?.is_none() {
            return Ok(());
        }
        if self.is_marked(page) && self.random.chance(50) {
            self.txn()?.spilled.insert(page);
            self.chain = None;
            return Ok(());
        }
        // A header with a higher floor would hide a page that is not marked. So it is written once more
        // before that, as the base has left it.
        let version = self.current;
        self.chain = Some(Chain {
            carrier: page,
            version,
            late: Some((page, old)),
            image: None,
        });
        self.bring_home()
    }

    // ---- recovery

    /// Reads the marked regions, and follows the changes.
    pub fn seen(&self, header: &Header) -> Seen {
        let of_region = |r: &u32| r * REGION..(r + 1) * REGION;
        let mut todo: Vec<u32> = header.marks.iter().flat_map(of_region).collect();
        todo.retain(|page| *page >= CATALOG);
        let mut seen = Seen::new();
        while let Some(page) = todo.pop() {
            let Some(image) = self.disk.page(page) else {
                continue;
            };
            if seen.insert(page, image.clone()).is_none()
                && image.ver > header.floor
                && let Some(carried) = &image.carries
            {
                todo.push(carried.0);
            }
        }
        seen
    }

    /// The page that is late: the one that is older than the page that carries its change.
    pub fn find_late(&self, seen: &Seen, floor: u64) -> Step<Option<Chain>> {
        let mut found = None;
        for (page, image) in seen.iter().filter(|(_, image)| image.ver > floor) {
            let Some(carried) = &image.carries else {
                continue;
            };
            let there = seen.get(&carried.0).map_or(0, |i| i.ver);
            if there >= image.ver && !self.is(Mutant::OldChange) {
                continue;
            }
            if found.is_some() && self.mutant.is_none() {
                return bug("two pages are late");
            }
            found = Some(Chain {
                carrier: *page,
                version: image.ver,
                late: Some((**carried).clone()),
                image: None,
            });
        }
        Ok(found)
    }

    /// Writes the late page as of a state, with what recovery takes back. The caller flushes.
    pub fn home_in_recovery(&mut self, chain: &Chain, state: u64, top: u64) -> Step<()> {
        let Some((page, content)) = &chain.late else {
            return Ok(());
        };
        let mut content = content.clone();
        content.strip(state);
        let image = Image::new(content, top, state, state, self.id());
        let block = Block::Page(Rc::new(image));
        self.disk.write(Place::Page(*page), block)
    }
}
