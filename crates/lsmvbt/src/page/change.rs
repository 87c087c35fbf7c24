//! The change of a page, carried by another one: see [`crate::late`].
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | number of the page that it is for |
//! | 4 | CRC-32C of the birth and the cells of that page in place, in the order of its entries |
//! | rest | steps over these cells, in their order |
//!
//! | step | then | what |
//! | --- | --- | --- |
//! | 0 | number | so many cells stay |
//! | 1 | number | so many cells go |
//! | 2 | | a cell stays, and ends in the version of the change. It owns what it points to |
//! | 3 | number, bytes | a new cell of so many bytes |
//!
//! Numbers are varints. Cells that no step speaks of are gone.

use super::cell;
use super::node::{Ended, Entry, INF, Node};
use super::{HEADER, Image, seal, set_u16, set_u32, u16_at, u32_at, varint};

const STAY: u8 = 0;
const GO: u8 = 1;
const END: u8 = 2;
const NEW: u8 = 3;

/// The bytes before the steps.
const HEAD: usize = 8;

/// The checksum of what a change begins from.
fn crc_before(node: &Node) -> u32 {
    let shape = node.shape();
    let mut bytes = node.birth.to_le_bytes().to_vec();
    for e in node.entries() {
        cell::put(&mut bytes, e, node.local(e), shape, node.birth);
    }
    crc32c::crc32c(&bytes)
}

/// Writes steps, several cells that stay or go in one.
struct Steps {
    bytes: Vec<u8>,
    /// The step that is being counted, and its cells.
    run: (u8, u64),
}

impl Steps {
    fn count(&mut self, step: u8, cells: u64) {
        if self.run.0 != step {
            self.end_run();
            self.run.0 = step;
        }
        self.run.1 += cells;
    }

    fn end_run(&mut self) {
        let (step, cells) = std::mem::take(&mut self.run);
        if cells > 0 {
            self.bytes.push(step);
            varint::put(&mut self.bytes, cells);
        }
    }

    fn end_cell(&mut self) {
        self.end_run();
        self.bytes.push(END);
    }

    fn new_cell(&mut self, cell: &[u8]) {
        self.end_run();
        self.bytes.push(NEW);
        varint::put(&mut self.bytes, cell.len() as u64);
        self.bytes.extend_from_slice(cell);
    }
}

impl Node {
    /// The change from the page in place to this node, which version `version` has made.
    pub(crate) fn change_from(&self, before: &Node, version: u64) -> Vec<u8> {
        let mut bytes = vec![0; HEAD];
        set_u32(&mut bytes, 0, self.page.0);
        set_u32(&mut bytes, 4, crc_before(before));
        let mut steps = Steps {
            bytes,
            run: (STAY, 0),
        };
        let old = before.entries();
        let mut at = 0;
        for e in self.entries() {
            let was = Entry {
                end: if e.end == version { INF } else { e.end },
                ended: if e.end == version {
                    Ended::Killed
                } else {
                    e.ended
                },
                ..*e
            };
            let has_ended_now = e.end == version && e.ended == Ended::Killed;
            let found = old[at..].iter().position(|o| {
                (o.is_same(e) || has_ended_now && o.is_same(&was))
                    && before.local(o) == self.local(e)
            });
            let Some(gone) = found else {
                let mut cell = Vec::new();
                cell::put(&mut cell, e, self.local(e), self.shape(), self.birth);
                steps.new_cell(&cell);
                continue;
            };
            steps.count(GO, gone as u64);
            at += gone;
            match old[at].is_same(e) {
                true => steps.count(STAY, 1),
                false => steps.end_cell(),
            }
            at += 1;
        }
        steps.end_run();
        steps.bytes
    }

    /// This node, as its page in place has it, after a change that version `version` has made. `None` if
    /// the change does not begin from it.
    pub(crate) fn changed_by(&self, change: &[u8], version: u64, base: u64) -> Option<Node> {
        if change.len() < HEAD || u32_at(change, 4) != crc_before(self) {
            return None;
        }
        let mut node = Node::new(
            self.page,
            self.kind,
            self.tree_kind,
            self.tree,
            self.level,
            self.birth,
        );
        (node.ver, node.base, node.next) = (version, base, self.next);
        let (mut at, mut old) = (HEAD, self.entries().iter());
        while at < change.len() {
            let step = change[at];
            at += 1;
            match step {
                STAY => {
                    for _ in 0..varint::get(change, &mut at)? {
                        node.push_from(self, old.next()?);
                    }
                }
                GO => {
                    for _ in 0..varint::get(change, &mut at)? {
                        old.next()?;
                    }
                }
                END => {
                    let e = old.next().filter(|e| e.live() && e.start < version)?;
                    node.push_from(self, e);
                    node.end(node.len() - 1, version, Ended::Killed);
                }
                NEW => {
                    let len = usize::try_from(varint::get(change, &mut at)?).ok()?;
                    let bytes = change.get(at..at.checked_add(len)?)?;
                    at += len;
                    node.push_cell(bytes)?;
                }
                _ => return None,
            }
        }
        node.fits().then_some(node)
    }

    /// Appends the entry of a cell.
    fn push_cell(&mut self, bytes: &[u8]) -> Option<()> {
        let e = cell::get(bytes, 0, self.shape(), self.birth)?;
        let from = e.off as usize;
        let local = bytes.get(from..from + usize::from(e.local))?;
        self.insert(self.len(), e, local);
        Some(())
    }
}

impl Entry {
    /// True if both have the same cell but for the bytes of the payload.
    fn is_same(&self, other: &Entry) -> bool {
        Entry { off: 0, ..*self } == Entry { off: 0, ..*other }
    }
}

// ---- in an image

/// The flags of a page that carries a change: its commit's record, which is empty, and the change.
const CARRIES: u8 = 1 | 2;

/// Bytes of a change that fit into a page of this node.
pub(crate) fn room(node: &Node) -> usize {
    super::CAPACITY.saturating_sub(node.size())
}

/// Puts a change into an image with enough room, and seals it.
pub(crate) fn put_change(image: &mut Image, change: &[u8]) -> u32 {
    let from = HEADER + 2 * usize::from(u16_at(image, 48));
    image[18] |= CARRIES;
    set_u16(image, 52, 0);
    set_u32(image, 56, change.len() as u32);
    image[from..from + change.len()].copy_from_slice(change);
    seal(image)
}

/// The change that a verified image carries.
pub(crate) fn change_of(image: &Image) -> Option<&[u8]> {
    if image[18] & CARRIES != CARRIES {
        return None;
    }
    let from = HEADER + 2 * usize::from(u16_at(image, 48));
    let len = u32_at(image, 56) as usize;
    let change = image.get(from..from.checked_add(len)?)?;
    (len >= HEAD).then_some(change)
}

/// The page whose change a verified image carries; 0: none.
pub(crate) fn late_page_of(image: &Image) -> u32 {
    change_of(image).map_or(0, |change| u32_at(change, 0))
}
