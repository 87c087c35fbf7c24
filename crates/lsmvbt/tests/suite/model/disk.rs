//! A disk whose unflushed writes survive in any subset, in any of their versions.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::cells::Bytes;
use super::{Header, Image, Slot, Step, Stop};
use crate::random::Random;

/// The unit of a write.
#[derive(Clone)]
pub enum Block {
    Page(Rc<Image>),
    Header(Rc<Header>),
    Slot(Rc<Slot>),
    /// A page that is torn: its checksum is wrong.
    Mixed(Rc<Bytes>),
    /// A header or a slot that is torn.
    Torn,
}

impl Block {
    fn bytes(&self) -> Option<Rc<Bytes>> {
        match self {
            Block::Page(image) => Some(image.bytes.clone()),
            Block::Mixed(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }
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

    /// The content in place, torn or not.
    pub fn bytes(&self, page: u32) -> Option<Rc<Bytes>> {
        self.read(Place::Page(page))?.bytes()
    }

    /// Whether a header is not durable. No other one may be written over the one before it.
    pub fn has_new_header(&self) -> bool {
        let is_header = |place: &Place| matches!(place, Place::Header(_));
        self.pending.keys().any(is_header)
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
        let nothing = self.tears && random.chance(33);
        let keep = if nothing { 0 } else { random.below(101) };
        let torn = *random.pick(&[0, 50, 100]);
        for (place, writes) in std::mem::take(&mut self.pending) {
            if random.below(100) < keep {
                // An older write of a page may be there without the newer one.
                let pick = match random.chance(30) {
                    true => random.below(writes.len() as u64) as usize,
                    false => writes.len() - 1,
                };
                self.durable.insert(place, writes[pick].clone());
            } else if self.tears && random.chance(torn) {
                let torn = self.torn(place, &writes, random);
                self.durable.insert(place, torn);
            }
        }
    }

    /// Each part of a page is as before or as one of the writes.
    fn torn(&self, place: Place, writes: &[Block], random: &mut Random) -> Block {
        let before = self.durable.get(&place);
        let all: Vec<Rc<Bytes>> = before
            .into_iter()
            .chain(writes)
            .filter_map(Block::bytes)
            .collect();
        match (place, all.is_empty()) {
            (Place::Page(_), false) => Block::Mixed(Rc::new(Bytes::torn(&all, random))),
            _ => Block::Torn,
        }
    }
}
