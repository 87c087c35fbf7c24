//! The frame memory: the frames that this process committed last, so that reading them back costs
//! no I/O. A direct write leaves nothing in the page cache; without this, the first reader of every
//! logged page would go to the device.
//!
//! Bounded: at most [`MAX_BYTES`] for each open log, taken as frames arrive. A frame number always
//! falls on the same place, so that lookup is one comparison and the newest frames win.
//!
//! Only published frames are remembered. Within one generation (one pair of salts) a published
//! frame never changes, so a hit whose salts are those of the reader's snapshot is the frame.

use std::sync::PoisonError;

use crate::sync::{Mutex, MutexGuard};
use crate::wal::{FrameNo, PageSize, Salts};

/// The bound of the frame memory of one log, in bytes.
pub const MAX_BYTES: usize = 4 << 20;

struct Place {
    frame: FrameNo,
    salts: Salts,
    page: Box<[u8]>,
}

/// See the module.
pub struct FrameMemory {
    places: Vec<Mutex<Option<Place>>>,
}

impl FrameMemory {
    /// An empty memory for pages of one size; it takes no memory for pages until they come.
    pub fn new(page: PageSize) -> FrameMemory {
        let places = (MAX_BYTES / page.bytes()).min(1024);
        FrameMemory {
            places: (0..places).map(|_| Mutex::new(None)).collect(),
        }
    }

    fn place(&self, frame: FrameNo) -> MutexGuard<'_, Option<Place>> {
        let index = (frame.index() % self.places.len() as u64) as usize;
        self.places[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a published frame, in place of an older one.
    pub fn insert(&self, frame: FrameNo, salts: Salts, page: &[u8]) {
        let mut place = self.place(frame);
        match place.as_mut() {
            Some(old) if old.page.len() == page.len() => {
                old.page.copy_from_slice(page);
                (old.frame, old.salts) = (frame, salts);
            }
            _ => {
                *place = Some(Place {
                    frame,
                    salts,
                    page: page.into(),
                })
            }
        }
    }

    /// Forgets a frame that is about to be written anew.
    pub fn forget(&self, frame: FrameNo) {
        let mut place = self.place(frame);
        if place.as_ref().is_some_and(|p| p.frame == frame) {
            *place = None;
        }
    }

    /// Copies a part of a remembered page, from byte `at` on; `false` where it is not remembered.
    pub fn read(&self, frame: FrameNo, salts: Salts, at: usize, out: &mut [u8]) -> bool {
        let place = self.place(frame);
        let found = place
            .as_ref()
            .filter(|p| p.frame == frame && p.salts == salts);
        let Some(bytes) = found.and_then(|p| p.page.get(at..at + out.len())) else {
            return false;
        };
        out.copy_from_slice(bytes);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Salts = Salts([1; 8]);
    const NEW: Salts = Salts([2; 8]);

    fn memory() -> FrameMemory {
        FrameMemory::new(PageSize::new(65_536).expect("a page size"))
    }

    fn read(memory: &FrameMemory, frame: u32, salts: Salts) -> Option<u8> {
        let mut out = [0; 4];
        memory
            .read(FrameNo(frame), salts, 65_532, &mut out)
            .then_some(out[0])
    }

    #[test]
    fn a_frame_is_found_in_its_own_generation_only() {
        let memory = memory();
        memory.insert(FrameNo(5), OLD, &[7; 65_536]);
        assert_eq!(read(&memory, 5, OLD), Some(7));
        assert_eq!(read(&memory, 5, NEW), None);
        assert_eq!(read(&memory, 6, OLD), None);
    }

    #[test]
    fn a_forgotten_frame_is_gone() {
        let memory = memory();
        memory.insert(FrameNo(5), OLD, &[7; 65_536]);
        memory.forget(FrameNo(6));
        assert_eq!(read(&memory, 5, OLD), Some(7));
        memory.forget(FrameNo(5));
        assert_eq!(read(&memory, 5, OLD), None);
    }

    #[test]
    fn the_newest_frames_win_and_the_bound_holds() {
        let memory = memory();
        let places = MAX_BYTES as u32 / 65_536;
        for frame in 1..=places + 1 {
            memory.insert(FrameNo(frame), OLD, &[frame as u8; 65_536]);
        }
        assert_eq!(read(&memory, 1, OLD), None);
        assert_eq!(read(&memory, 2, OLD), Some(2));
        assert_eq!(read(&memory, places + 1, OLD), Some(places as u8 + 1));
        assert_eq!(memory.places.len() as u32, places);
    }
}
