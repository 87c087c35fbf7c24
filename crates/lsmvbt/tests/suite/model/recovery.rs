//! Header, recovery, closing.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::disk::{Block, Disk, Place};
use super::*;

/// The knowledge of other handles when a writer dies.
pub struct Alive {
    pub next: u64,
    pub lost: Lost,
    pub snapshots: BTreeMap<u64, u64>,
    pub current: u64,
    pub stays: Option<(u32, usize)>,
}

impl Engine {
    /// A disk with an empty database.
    pub fn make(disk: &mut Disk, double: bool) {
        let page = Page {
            kind: Kind::Catalog,
            tree: 0,
            birth: 1,
            ents: Vec::new(),
            data: 0,
        };
        let image = Rc::new(Image::new(page, 1, 1, 1, 0));
        disk.put(Place::Page(CATALOG), Block::Page(image.clone()));
        if double {
            let images = BTreeMap::from([(CATALOG, image)]);
            let slot = Slot {
                version: 1,
                round: 0,
                is_last: true,
                images,
                free: BTreeSet::new(),
                hwm: 3,
            };
            disk.put(Place::Slot(0), Block::Slot(Rc::new(slot)));
        } else {
            let header = Header {
                floor: 1,
                hwm: 3,
                ..Header::default()
            };
            disk.put(Place::Header(0), Block::Header(Rc::new(header)));
        }
    }

    /// Opens; on a crash it returns the disk.
    pub fn open(
        disk: Disk,
        double: bool,
        mutant: Option<Mutant>,
        random: Random,
        ids: u64,
        alive: Option<Alive>,
    ) -> Result<Engine, Box<(Disk, Random, u64, Stop)>> {
        let mut engine = Engine {
            disk,
            mutant,
            double,
            random,
            snapshots: BTreeMap::new(),
            current: 0,
            durable: 0,
            next: 0,
            group: BTreeMap::new(),
            carrier: 0,
            marks: BTreeSet::new(),
            free: BTreeSet::new(),
            quarantine: BTreeSet::new(),
            durable_free: BTreeSet::new(),
            durable_hwm: 0,
            hwm: 0,
            ids,
            slot: 0,
            txn: None,
            found_flushed: false,
            lost: Lost::new(),
            chain: None,
            stays: None,
            late: false,
            late_commits: 0,
            repairs: 0,
            stay_commits: 0,
            left_in_slots: 0,
        };
        if let Some(alive) = &alive {
            engine.snapshots = alive.snapshots.clone();
        }
        let opened = if double {
            let next = alive.as_ref().map_or(0, |alive| alive.next);
            let recovered = engine.recover_double(alive);
            engine.next = engine.next.max(next);
            recovered
        } else {
            engine.recover(alive)
        };
        match opened.and_then(|()| engine.check_free()) {
            Ok(()) => {
                engine.durable_free = engine.free.clone();
                engine.durable_hwm = engine.hwm;
                Ok(engine)
            }
            Err(stop) => Err(Box::new((engine.disk, engine.random, engine.ids, stop))),
        }
    }

    pub fn header(&self) -> Header {
        let headers = [0, 1]
            .into_iter()
            .filter_map(|i| match self.disk.read(Place::Header(i)) {
                Some(Block::Header(h)) => Some(h),
                _ => None,
            });
        headers
            .max_by_key(|h| h.seq)
            .map(|h| (**h).clone())
            .unwrap_or_default()
    }

    pub fn write_header(&mut self, change: impl FnOnce(&mut Header)) -> Step<()> {
        let mut header = self.header();
        if !self.is(Mutant::ForgetLost) {
            header.lost = self.lost.clone();
        }
        change(&mut header);
        header.seq += 1;
        let place = Place::Header((header.seq % 2) as usize);
        self.disk.write(place, Block::Header(Rc::new(header)))
    }

    pub fn start(&mut self, version: u64, free: BTreeSet<u32>, hwm: u32) {
        self.current = version;
        self.durable = version;
        self.next = version + 1;
        self.free = free;
        self.hwm = hwm;
    }

    /// Before anything is written.
    pub fn flush_what_was_found(&mut self) -> Step<()> {
        if self.found_flushed {
            return Ok(());
        }
        if !self.is(Mutant::NoFlushOfFound) {
            self.disk.flush()?;
        }
        self.found_flushed = true;
        self.flushed(true);
        Ok(())
    }

    /// Declares lost what may be there of versions above `after`, and uses none of them again.
    fn lose(&mut self, after: u64, to: u64) {
        if after < to {
            self.lost.push((after, to));
        }
        if !self.is(Mutant::ReuseLostVersions) {
            self.next = self.next.max(to + 1);
        }
    }

    fn recover(&mut self, alive: Option<Alive>) -> Step<()> {
        let header = self.header();
        let floor = header.floor;
        self.lost = header.lost.clone();
        if header.marks.is_empty() {
            self.start(floor, header.free, header.hwm);
            return Ok(());
        }
        let images = self.seen(&header);
        let late = self.find_late(&images, floor)?;
        let top = images
            .values()
            .map(|i| i.ver)
            .max()
            .unwrap_or(floor)
            .max(floor);
        let state = if top <= floor {
            floor
        } else {
            self.decide(top, floor, &images)
        };
        if late.is_some() && state < top && self.mutant.is_none() {
            return bug("a page is late in a version that is taken back");
        }
        // Perhaps it came home because a later commit was taken back, which a power cut could bring back.
        let is_home = |i: &Rc<Image>| i.ver == top && i.base == top && i.record.is_none();
        if top > floor && images.values().any(is_home) {
            self.flush_what_was_found()?;
        }
        // `Double` cannot go on from here: its first handle moves the floor.
        let moves_floor = late.is_some() && self.random.chance(20);
        if state == top && !moves_floor {
            // The header stays as it is.
            self.chain = late;
            let (free, hwm) = free_map(&header, &images, state);
            self.start(top, free, hwm);
            if !self.found_flushed {
                self.durable = 0;
            }
            self.marks = header.marks;
            match alive {
                // The power is on, so nothing is lost.
                Some(alive) => {
                    self.next = self.next.max(alive.next);
                    self.lost = alive.lost;
                }
                None => self.lose(top, header.reserved),
            }
            return Ok(());
        }
        self.flush_what_was_found()?;
        if !self.is(Mutant::NoUndo) {
            for (page, image) in &images {
                if image.ver > state && image.page.birth <= state {
                    let undone = self.strip(image.page.clone(), state, top, state);
                    self.disk.write(Place::Page(*page), Block::Page(undone))?;
                }
            }
        }
        if let Some(late) = late.filter(|_| !self.is(Mutant::LateForgotten)) {
            self.home_in_recovery(&late, state, top)?;
        }
        if !self.is(Mutant::NoFlushOfUndone) {
            self.disk.flush()?;
        }
        let (free, hwm) = free_map(&header, &images, state);
        let version = if self.is(Mutant::ReuseVersions) {
            state
        } else if self.is(Mutant::FloorBelowLost) {
            top
        } else {
            top.max(header.reserved)
        };
        self.start(version, free.clone(), hwm);
        if header.reserved > 0 && !self.is(Mutant::ReuseVersions) {
            self.lose(state, version.max(header.reserved));
        }
        self.write_header(|h| {
            h.floor = version;
            h.marks = BTreeSet::new();
            h.free = free;
            h.hwm = hwm;
            h.reserved = 0;
        })
    }

    /// True if the pages of a commit are there, or newer ones.
    fn is_whole(&self, version: u64, images: &BTreeMap<u32, Rc<Image>>) -> bool {
        let record = images
            .values()
            .filter(|i| i.ver == version)
            .find_map(|i| i.record.as_ref());
        let there = |page: &u32| match self.is(Mutant::CountUnmarked) {
            true => self.disk.page(*page),
            false => images.get(page),
        };
        record.is_some_and(|record| {
            self.is(Mutant::NoList)
                || record.iter().all(|(page, id)| match there(page) {
                    None => false,
                    Some(i) if self.is(Mutant::NoChecksum) => i.ver >= version,
                    Some(i) => i.id == *id || i.ver > version,
                })
        })
    }

    /// The version whose state is recovered.
    fn decide(&self, top: u64, floor: u64, images: &BTreeMap<u32, Rc<Image>>) -> u64 {
        if self.is_whole(top, images) {
            return top;
        }
        if self.is(Mutant::PreviousVersion) {
            return top - 1;
        }
        let bases = images.values().map(|i| i.base);
        let durable = bases.max().unwrap_or(floor).max(floor);
        let with_record = images.values().filter(|i| i.record.is_some());
        let before = with_record.map(|i| i.ver).filter(|ver| *ver < top).max();
        let before = before.unwrap_or(0).max(durable);
        let mut later = images.values().filter(|i| i.ver > before);
        if (self.is(Mutant::AnyLaterPage) || later.all(|i| i.from == before))
            && self.is_whole(before, images)
        {
            before
        } else {
            durable
        }
    }

    pub fn strip(&mut self, mut page: Page, state: u64, ver: u64, base: u64) -> Rc<Image> {
        page.strip(state);
        Rc::new(Image::new(page, ver, state, base, self.id()))
    }

    /// Another handle writes next. It does not know what is durable.
    pub fn turn(&mut self) {
        self.found_flushed = false;
        self.durable = 0;
        self.carrier = 0;
    }

    /// Leaves a clean header.
    pub fn close(&mut self) -> Step<()> {
        if self.double {
            return Ok(());
        }
        self.bring_home()?;
        self.disk.flush()?;
        self.found_flushed = true;
        self.flushed(true);
        let (floor, free, hwm) = (self.next - 1, self.free.clone(), self.hwm);
        self.write_header(|h| {
            h.floor = floor;
            h.marks = BTreeSet::new();
            h.free = free;
            h.hwm = hwm;
            h.reserved = 0;
        })?;
        self.disk.flush()?;
        self.marks.clear();
        Ok(())
    }

    /// Takes a mark back, between transactions.
    pub fn unmark(&mut self) -> Step<()> {
        if self.double {
            return self.settle();
        }
        if self.marks.is_empty() {
            return Ok(());
        }
        self.flush_what_was_found()?;
        self.bring_home()?;
        if self.durable != self.current {
            self.disk.flush()?;
            self.flushed(true);
        }
        let marks: Vec<u32> = self.marks.iter().copied().collect();
        let gone = *self.random.pick(&marks);
        self.marks.remove(&gone);
        let floor = match self.is(Mutant::FloorBelowLost) {
            true => self.current,
            false => self.next - 1,
        };
        let (marks, free, hwm) = (self.marks.clone(), self.free.clone(), self.hwm);
        self.write_header(|h| {
            h.floor = floor;
            h.reserved = if marks.is_empty() { 0 } else { h.reserved };
            h.marks = marks;
            h.free = free;
            h.hwm = hwm;
        })
    }
}

/// The free map of a state, and its end. It has pages free at the floor, less those born since, and
/// with those born after the state.
fn free_map(
    header: &Header,
    images: &BTreeMap<u32, Rc<Image>>,
    state: u64,
) -> (BTreeSet<u32>, u32) {
    let in_use = |p: u32, i: &Image| {
        i.page.birth <= state
            && (i.page.birth > header.floor || (!header.free.contains(&p) && p < header.hwm))
    };
    let used: BTreeSet<u32> = images
        .iter()
        .filter(|(p, i)| in_use(**p, i))
        .map(|(p, _)| *p)
        .collect();
    let hwm = used.last().map_or(0, |p| p + 1).max(header.hwm);
    let mut free: BTreeSet<u32> = header.free.difference(&used).copied().collect();
    free.extend((header.hwm..hwm).filter(|p| !used.contains(p) && *p != CATALOG));
    free.extend(
        images
            .iter()
            .filter(|(p, i)| i.page.birth > state && **p < hwm)
            .map(|(p, _)| *p),
    );
    (free, hwm)
}
