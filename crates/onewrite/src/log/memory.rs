//! The frame memory: the frames that this process committed or unpacked last, so that reading them back costs
//! no I/O. A direct write leaves nothing in the page cache; without this, the first reader of every
//! logged page would go to the device.
//!
//! Bounded: at most [`MAX_BYTES`] for each open log, taken in slabs of 64 KiB as frames
//! arrive, because the allocator would ask the kernel for every single page. A frame number always
//! falls on the same place, so that lookup is one comparison and the newest frames win.
//!
//! Slabs that a closed log leaves are kept for the next one, as many as one log may have: where memory is
//! new to the process, the kernel takes longer to hand out a page than reading the frame again takes.
//!
//! Only published frames are remembered. Within one generation (one pair of salts) a published
//! frame never changes, so a hit whose salts are those of the reader's snapshot is the frame.

use std::sync::PoisonError;

use crate::sync::{RwLock, RwLockWriteGuard};
use crate::wal::{FrameNo, PageSize, Salts};

/// The bound of the frame memory of one log, in bytes.
pub const MAX_BYTES: usize = 4 << 20;
/// Memory is taken in pieces of this size, in bytes; a page of any size fits.
const SLAB_BYTES: usize = 64 << 10;
/// Frames that are remembered at most, where pages are small.
const MAX_FRAMES: usize = 1024;

/// Pages of slabs that nobody uses. Not of [`crate::sync`]: nothing waits here, and no order matters.
static FREE: std::sync::Mutex<Vec<Vec<u8>>> = std::sync::Mutex::new(Vec::new());

fn take_pages() -> Vec<u8> {
    let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    free.unwrap_or_else(|| vec![0; SLAB_BYTES])
}

/// Places of frames that share an allocation.
#[derive(Default)]
struct Slab {
    /// What is in each place; empty until the first frame comes.
    tags: Vec<Option<(FrameNo, Salts)>>,
    pages: Vec<u8>,
}

/// See the module.
pub struct FrameMemory {
    page_bytes: usize,
    slabs: Vec<RwLock<Slab>>,
}

impl FrameMemory {
    /// An empty memory for pages of one size; it takes no memory for pages until they come.
    pub fn new(page: PageSize) -> FrameMemory {
        let bytes = MAX_BYTES.min(MAX_FRAMES * page.bytes());
        FrameMemory {
            page_bytes: page.bytes(),
            slabs: (0..bytes.div_ceil(SLAB_BYTES))
                .map(|_| RwLock::default())
                .collect(),
        }
    }

    /// The slab of a frame, and the place in it.
    fn place(&self, frame: FrameNo) -> (&RwLock<Slab>, usize) {
        let places = SLAB_BYTES / self.page_bytes;
        let index = (frame.index() % (self.slabs.len() * places) as u64) as usize;
        (&self.slabs[index / places], index % places)
    }

    fn change(slab: &RwLock<Slab>) -> RwLockWriteGuard<'_, Slab> {
        slab.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a published frame, in place of an older one.
    pub fn insert(&self, frame: FrameNo, salts: Salts, page: &[u8]) {
        let (slab, place) = self.place(frame);
        self.put(Self::change(slab), place, frame, salts, page);
    }

    /// Remembers a published frame that was read, unless a newer one would have to go: those are what
    /// commits find their differences from.
    pub fn offer(&self, frame: FrameNo, salts: Salts, page: &[u8]) {
        let (slab, place) = self.place(frame);
        let slab = Self::change(slab);
        let present = slab.tags.get(place).copied().flatten();
        if present.is_none_or(|(there, of)| of != salts || there < frame) {
            self.put(slab, place, frame, salts, page);
        }
    }

    fn put(
        &self,
        mut slab: RwLockWriteGuard<'_, Slab>,
        place: usize,
        frame: FrameNo,
        salts: Salts,
        page: &[u8],
    ) {
        if slab.tags.is_empty() {
            slab.tags = vec![None; SLAB_BYTES / self.page_bytes];
            slab.pages = take_pages();
        }
        let at = place * self.page_bytes;
        if page.len() == self.page_bytes {
            slab.pages[at..at + page.len()].copy_from_slice(page);
            slab.tags[place] = Some((frame, salts));
        }
    }

    /// Forgets a frame that is about to be written anew.
    pub fn forget(&self, frame: FrameNo) {
        let (slab, place) = self.place(frame);
        if let Some(tag) = Self::change(slab).tags.get_mut(place)
            && tag.is_some_and(|(remembered, _)| remembered == frame)
        {
            *tag = None;
        }
    }

    /// Copies a part of a remembered page, from byte `at` on; `false` where it is not remembered.
    pub fn read(&self, frame: FrameNo, salts: Salts, at: usize, out: &mut [u8]) -> bool {
        let (slab, place) = self.place(frame);
        let slab = slab.read().unwrap_or_else(PoisonError::into_inner);
        let page = place * self.page_bytes;
        let found = slab.tags.get(place) == Some(&Some((frame, salts)));
        let within = slab.pages.get(page..page + self.page_bytes);
        let Some(bytes) = within
            .filter(|_| found)
            .and_then(|page| page.get(at..at + out.len()))
        else {
            return false;
        };
        out.copy_from_slice(bytes);
        true
    }
}

impl Drop for FrameMemory {
    fn drop(&mut self) {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        for slab in &mut self.slabs {
            let slab = slab.get_mut().unwrap_or_else(PoisonError::into_inner);
            if !slab.pages.is_empty() && free.len() < MAX_BYTES / SLAB_BYTES {
                free.push(std::mem::take(&mut slab.pages));
            }
        }
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
    fn what_is_offered_does_not_drive_out_what_is_newer() {
        let memory = memory();
        let places = MAX_BYTES as u32 / 65_536;
        memory.insert(FrameNo(places + 5), NEW, &[7; 65_536]);
        memory.offer(FrameNo(5), NEW, &[8; 65_536]);
        assert_eq!(read(&memory, 5, NEW), None);
        assert_eq!(read(&memory, places + 5, NEW), Some(7));
        memory.offer(FrameNo(2 * places + 5), NEW, &[9; 65_536]);
        assert_eq!(read(&memory, 2 * places + 5, NEW), Some(9));
        memory.offer(FrameNo(5), OLD, &[3; 65_536]);
        assert_eq!(read(&memory, 5, OLD), Some(3));
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
    fn what_another_log_has_left_is_not_found() {
        let log = memory();
        log.insert(FrameNo(5), OLD, &[7; 65_536]);
        drop(log);
        for _ in 0..3 {
            let log = memory();
            assert_eq!(read(&log, 5, OLD), None);
            log.insert(FrameNo(6), OLD, &[8; 65_536]);
            assert_eq!(read(&log, 6, OLD), Some(8));
            assert!(
                FREE.lock()
                    .is_ok_and(|free| free.len() <= MAX_BYTES / SLAB_BYTES)
            );
        }
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
        let taken: usize = memory
            .slabs
            .iter()
            .map(|slab| slab.read().map_or(0, |slab| slab.pages.capacity()))
            .sum();
        assert_eq!(taken, MAX_BYTES);
    }

    #[test]
    fn every_page_size_has_places_of_its_own_in_every_slab() {
        for bytes in (9..=16).map(|power| 1usize << power) {
            let page = PageSize::new(bytes as u32).expect("a page size");
            let memory = FrameMemory::new(page);
            let frames = (MAX_BYTES / bytes).min(MAX_FRAMES) as u32;
            for frame in 1..=frames {
                memory.insert(FrameNo(frame), NEW, &vec![frame as u8; bytes]);
            }
            let mut out = vec![0; bytes];
            for frame in 1..=frames {
                assert!(memory.read(FrameNo(frame), NEW, 0, &mut out), "{bytes}");
                assert!(out.iter().all(|&byte| byte == frame as u8), "{bytes}");
            }
            assert!(
                !memory.read(FrameNo(1), NEW, 1, &mut out),
                "beyond the page"
            );
            memory.insert(FrameNo(frames + 1), NEW, &vec![0; bytes]);
            assert!(!memory.read(FrameNo(1), NEW, 0, &mut out), "{bytes}");
        }
    }
}
