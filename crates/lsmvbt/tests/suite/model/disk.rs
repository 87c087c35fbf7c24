//! A disk whose unflushed writes survive in any subset, in any of their versions.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::{Header, Image, Slot, Step, Stop};
use crate::random::Random;

/// The unit of a write.
#[derive(Clone)]
pub enum Block {
    Page(Rc<Image>),
    Header(Rc<Header>),
    Slot(Rc<Slot>),
    Torn,
}

/// The place of a write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Place {
    Page(u32),
    Header(usize),
    Slot(usize),
}

#[derive(Default)]
pub struct Disk {
    durable: HashMap<Place, Block>,
    pending: BTreeMap<Place, Vec<Block>>,
    pub fuse: Option<u64>,
    pub tears: bool,
}

impl Disk {
    fn tick(&mut self) -> Step<()> {
        if let Some(fuse) = &mut self.fuse {
            *fuse = fuse.saturating_sub(1);
            if *fuse == 0 {
                return Err(Stop::Crash);
            }
        }
        Ok(())
    }

    pub fn write(&mut self, place: Place, block: Block) -> Step<()> {
        self.tick()?;
        self.pending.entry(place).or_default().push(block);
        self.tick()
    }

    /// Durable at once: only to make the disk.
    pub fn put(&mut self, place: Place, block: Block) {
        self.durable.insert(place, block);
    }

    pub fn read(&self, place: Place) -> Option<&Block> {
        self.pending
            .get(&place)
            .and_then(|w| w.last())
            .or_else(|| self.durable.get(&place))
    }

    pub fn page(&self, page: u32) -> Option<&Rc<Image>> {
        match self.read(Place::Page(page)) {
            Some(Block::Page(image)) => Some(image),
            _ => None,
        }
    }

    pub fn flush(&mut self) -> Step<()> {
        self.tick()?;
        for (place, mut writes) in std::mem::take(&mut self.pending) {
            if let Some(last) = writes.pop() {
                self.durable.insert(place, last);
            }
        }
        self.tick()
    }

    pub fn power_cut(&mut self, random: &mut Random) {
        let keep = random.below(101);
        for (place, writes) in std::mem::take(&mut self.pending) {
            if random.below(100) < keep {
                // An older write of a page may be there without the newer one.
                let old = !self.tears && random.chance(30);
                let pick = if old {
                    random.below(writes.len() as u64) as usize
                } else {
                    writes.len() - 1
                };
                self.durable.insert(place, writes[pick].clone());
            } else if self.tears && random.chance(30) {
                self.durable.insert(place, Block::Torn);
            }
        }
    }
}
