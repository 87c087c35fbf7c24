//! The bytes of a page: its entries stand in cells, and a change that it carries in those between, which are
//! the gap. A torn page has its head and each cell as before or as written.

use std::rc::Rc;

use super::*;

/// Cells of a page. Where it has more entries, it has as many cells.
const CELLS: usize = 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cell {
    Nothing,
    Ent(Ent),
    /// A part of the change in the image with this checksum.
    Part(u64, usize),
}

/// All of a page but its cells and what is new with each write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    kind: Kind,
    tree: u32,
    birth: u64,
    data: u64,
    /// The cells with entries, in their order.
    used: Vec<usize>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bytes {
    head: Head,
    cells: Vec<Cell>,
    /// Whether the end of each cell is no zeros. That of an entry is zeros, as an empty gap is.
    ends: Vec<bool>,
}

/// The change of a page, as its bytes: those outside of the gap that differ from the page in place.
#[derive(Debug)]
pub struct Change {
    pub page: u32,
    /// The image after the change, with an empty gap. It stands for the checksum of that.
    image: Bytes,
    head: Option<Head>,
    cells: Vec<(usize, Cell)>,
    ends: Vec<usize>,
}

impl Bytes {
    fn new(page: &Page, cells: Vec<(usize, Ent)>) -> Bytes {
        let head = Head {
            kind: page.kind,
            tree: page.tree,
            birth: page.birth,
            data: page.data,
            used: cells.iter().map(|(at, _)| *at).collect(),
        };
        let most = cells.iter().map(|(at, _)| at + 1).max().unwrap_or(0);
        let mut bytes = Bytes {
            head,
            cells: vec![Cell::Nothing; most.max(CELLS)],
            ends: vec![false; most.max(CELLS)],
        };
        for (at, e) in cells {
            bytes.cells[at] = Cell::Ent(e);
        }
        bytes
    }

    /// A page in another layout; the seed decides about the places.
    pub fn of(page: &Page, seed: u64) -> Bytes {
        let all = page.ents.len().max(CELLS);
        let place = |i: usize| (seed as usize % all + i) % all;
        let cells = page.ents.iter().enumerate();
        Bytes::new(page, cells.map(|(i, e)| (place(i), *e)).collect())
    }

    /// A page over these bytes: entries that stay keep their places.
    pub fn over(page: &Page, before: &Bytes, random: &mut Random) -> Bytes {
        let key = |e: &Ent| (e.key, e.start, e.value);
        let is_same = |at: &usize, e: &Ent| match before.cells[*at] {
            Cell::Ent(old) => key(&old) == key(e),
            _ => false,
        };
        let old = |e: &Ent| before.head.used.iter().copied().find(|at| is_same(at, e));
        let mut free: Vec<usize> = (0..before.cells.len().max(page.ents.len())).collect();
        free.retain(|at| !page.ents.iter().any(|e| old(e) == Some(*at)));
        let mut cells = Vec::new();
        for e in &page.ents {
            let mut new = |free: &mut Vec<usize>| {
                let pick = random.below(free.len() as u64) as usize;
                free.swap_remove(pick)
            };
            cells.push((old(e).unwrap_or_else(|| new(&mut free)), *e));
        }
        Bytes::new(page, cells)
    }

    pub fn page(&self) -> Page {
        let ents = self
            .head
            .used
            .iter()
            .filter_map(|at| match self.cells[*at] {
                Cell::Ent(e) => Some(e),
                _ => None,
            });
        Page {
            kind: self.head.kind,
            tree: self.head.tree,
            birth: self.head.birth,
            ents: ents.collect(),
            data: self.head.data,
        }
    }

    /// The same with an empty gap.
    pub fn clean(&self) -> Bytes {
        let mut bytes = self.clone();
        for at in 0..self.cells.len() {
            if !self.head.used.contains(&at) {
                (bytes.cells[at], bytes.ends[at]) = (Cell::Nothing, false);
            }
        }
        bytes
    }

    /// Puts a change into the gap, if it has room there.
    pub fn with_parts_of(mut self, change: &Change, id: u64) -> Option<Bytes> {
        let gap: Vec<usize> = (0..self.cells.len())
            .filter(|at| !self.head.used.contains(at))
            .collect();
        let parts = 1 + change.cells.len();
        for part in 0..parts {
            let at = *gap.get(part)?;
            (self.cells[at], self.ends[at]) = (Cell::Part(id, part), true);
        }
        Some(self)
    }

    /// Each part of a page as one of its writes has it. The first of them is complete before the write.
    pub fn torn(writes: &[Rc<Bytes>], random: &mut Random) -> Bytes {
        let most = writes.iter().map(|bytes| bytes.cells.len()).max();
        let head = random.pick(writes).head.clone();
        let (mut cells, mut ends) = (Vec::new(), Vec::new());
        for at in 0..most.unwrap_or(0) {
            let cell = random.pick(writes).cells.get(at).copied();
            cells.push(cell.unwrap_or(Cell::Nothing));
            let end = random.pick(writes).ends.get(at).copied();
            ends.push(end.unwrap_or(false));
        }
        Bytes { head, cells, ends }
    }
}

impl Change {
    /// From the page as it stands in place to this image, which has an empty gap.
    pub fn new(page: u32, before: &Bytes, image: Bytes) -> Change {
        let used = &image.head.used;
        let cells = used.iter().map(|at| (*at, image.cells[*at]));
        let differs = |at: &usize, cell: &Cell| before.cells.get(*at) != Some(cell);
        let has_end = |at: &usize| before.ends.get(*at).is_some_and(|end| *end);
        Change {
            page,
            ends: used.iter().copied().filter(has_end).collect(),
            head: (image.head != before.head).then(|| image.head.clone()),
            cells: cells.filter(|(at, cell)| differs(at, cell)).collect(),
            image,
        }
    }

    /// The image after the change, with an empty gap.
    pub fn image(&self) -> &Bytes {
        &self.image
    }

    /// The image, from the page in place, which may be torn. `None` if it is not that page.
    pub fn applied_to(&self, before: &Bytes) -> Option<Bytes> {
        let mut bytes = before.clone();
        if let Some(head) = &self.head {
            bytes.head = head.clone();
        }
        for (at, cell) in &self.cells {
            if *at >= bytes.cells.len() {
                bytes.cells.resize(at + 1, Cell::Nothing);
            }
            bytes.cells[*at] = *cell;
        }
        for at in &self.ends {
            bytes.ends[*at] = false;
        }
        bytes.cells.resize(self.image.cells.len(), Cell::Nothing);
        bytes.ends.resize(self.image.cells.len(), false);
        let used = &bytes.head.used;
        if used.iter().any(|at| *at >= bytes.cells.len()) {
            return None;
        }
        let image = bytes.clean();
        (image == self.image).then_some(image)
    }

    /// The view of a reader who has the page in place: the entries that have ended with the change, too.
    pub fn seen_over(&self, before: &Page, image: &Bytes, version: u64) -> Page {
        let mut page = image.page();
        let key = |e: &Ent| (e.key, e.start, e.value);
        let gone = before.ents.iter().filter(|e| e.live());
        let gone: Vec<Ent> = gone
            .filter(|old| !page.ents.iter().any(|e| key(e) == key(old)))
            .map(|old| Ent {
                end: version,
                why: Why::Killed,
                ..*old
            })
            .collect();
        page.ents.extend(gone);
        page
    }
}
