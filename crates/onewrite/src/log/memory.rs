//! The frame memory: the last frames that this process committed or decompressed, so that reading
//! them back costs no I/O. A direct write leaves nothing in the page cache. Without this memory,
//! the first reader of every logged page would go to the device.
//!
//! It has two bounds: [`MAX_BYTES`] for each open log, and [`PROCESS_BYTES`] for all logs of the
//! process. Memory is taken in slabs of 64 KiB as frames arrive, because the allocator would ask
//! the kernel for every single page. A frame number maps to one slot, or to one of `WAYS` slots
//! where pages are so large that a log has less than `MAX_FRAMES`. The newest frames win, but there
//! they leave the slots to frames that the next differences may refer to, except one. When the process has
//! all of its slabs, a log takes one of any log that was not used for some time.
//!
//! Slabs of a closed log are kept for the next one, as many as one log may have. For memory that is
//! new to the process, the kernel takes longer to supply a page than reading the frame again takes.
//!
//! Only published frames are remembered. Within one [`History`] a published frame never changes. So a
//! hit with that of the reader's wal-index is the frame.

use std::sync::{Arc, PoisonError, Weak};

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{self, RwLock, RwLockWriteGuard};
use crate::wal::{FrameNo, History, PageNo, PageSize};

/// The bound of the frame memory of one log, in bytes.
pub const MAX_BYTES: usize = 4 << 20;
/// The bound of the frame memory of all logs of the process, open or closed, in bytes.
pub const PROCESS_BYTES: usize = 32 << 20;
/// Memory is taken in pieces of this size, in bytes; a page of any size fits.
const SLAB_BYTES: usize = 64 << 10;
/// The most frames to remember, if pages are small.
const MAX_FRAMES: usize = 1024;
/// The slots that a frame may be in, if pages are large.
const WAYS: usize = 4;

/// The pages of all slabs in the process.
#[derive(Default)]
struct Pool {
    /// Pages of closed logs.
    free: Vec<Vec<u8>>,
    /// Slabs that have pages.
    slabs: Vec<Weak<SharedSlab>>,
    /// The next slab to examine when one must give up its pages.
    hand: usize,
    /// Pages in `slabs`, and on their way there.
    taken: usize,
}

/// Not of [`crate::sync`]: it outlives the runs of a model.
type Shared = std::sync::Mutex<Pool>;

static POOL: Shared = Shared::new(Pool {
    free: Vec::new(),
    slabs: Vec::new(),
    hand: 0,
    taken: 0,
});

impl Pool {
    /// Pages for a slab; `None` if all are in use at this moment.
    fn take(&mut self, slab: &Arc<SharedSlab>) -> Option<Vec<u8>> {
        let pages = match self.free.pop() {
            Some(pages) => pages,
            None if (self.taken + 1) * SLAB_BYTES <= PROCESS_BYTES => vec![0; SLAB_BYTES],
            None => self.take_from_another()?,
        };
        self.taken += 1;
        self.slabs.push(Arc::downgrade(slab));
        Some(pages)
    }

    /// The pages of a slab that was not used since the hand last passed.
    fn take_from_another(&mut self) -> Option<Vec<u8>> {
        // The first round clears the marks of use, the second finds a slab without one.
        for _ in 0..2 * self.slabs.len() {
            self.hand = (self.hand + 1) % self.slabs.len().max(1);
            // A slab that is being dropped returns its pages by itself.
            let Some(other) = self.slabs.get(self.hand).and_then(Weak::upgrade) else {
                continue;
            };
            if other.is_used.swap(false, Ordering::Relaxed) {
                continue;
            }
            // The caller holds its own slab, so it must not wait for another.
            if let Ok(mut slab) = other.slab.try_write() {
                self.slabs.swap_remove(self.hand);
                self.taken -= 1;
                slab.tags = Vec::new();
                return Some(std::mem::take(&mut slab.pages));
            }
        }
        None
    }

    fn give_back(&mut self, slab: &Arc<SharedSlab>, pages: Vec<u8>) {
        self.slabs
            .retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(slab)));
        self.taken -= 1;
        if self.free.len() < MAX_BYTES / SLAB_BYTES {
            self.free.push(pages);
        }
    }
}

/// Frames that share an allocation.
#[derive(Default)]
struct SharedSlab {
    slab: RwLock<Slab>,
    /// Whether it was used since the last search for a slab to take.
    is_used: AtomicBool,
}

#[derive(Default)]
struct Slab {
    /// The frame in each slot; empty until the first frame comes.
    tags: Vec<Option<Tag>>,
    pages: Vec<u8>,
}

/// A remembered frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tag {
    frame: FrameNo,
    history: History,
    /// The page that it holds.
    page: PageNo,
}

impl Tag {
    fn is(&self, frame: FrameNo, history: History) -> bool {
        (self.frame, self.history) == (frame, history)
    }
}

/// A frame's page, to be remembered.
#[derive(Clone, Copy, Debug)]
pub struct Remembered<'a> {
    /// The frame.
    pub frame: FrameNo,
    /// Its history.
    pub history: History,
    /// The page's number.
    pub page: PageNo,
    /// The page.
    pub bytes: &'a [u8],
}

/// The use of a slot, the least useful first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Use {
    /// It has the frame already.
    Same,
    Empty,
    /// A frame of another generation.
    Over,
    /// A frame that nothing may refer to any more.
    Known,
    /// A frame that the next differences may refer to.
    Needed,
}

/// A slot in its slab.
struct Place<'a> {
    slab: &'a Arc<SharedSlab>,
    slot: usize,
    of: Use,
}

/// See the module.
pub struct FrameMemory {
    page_bytes: usize,
    /// The slots that a frame may be in.
    ways: usize,
    slabs: Vec<Arc<SharedSlab>>,
    pool: &'static Shared,
}

impl FrameMemory {
    /// An empty memory for pages of one size; it takes memory for pages only when they come.
    pub fn new(page: PageSize) -> FrameMemory {
        FrameMemory::of_pool(page, &POOL)
    }

    fn of_pool(page: PageSize, pool: &'static Shared) -> FrameMemory {
        let bytes = MAX_BYTES.min(MAX_FRAMES * page.bytes());
        FrameMemory {
            page_bytes: page.bytes(),
            ways: match bytes / page.bytes() {
                MAX_FRAMES.. => 1,
                _ => WAYS,
            },
            slabs: (0..bytes.div_ceil(SLAB_BYTES))
                .map(|_| Arc::default())
                .collect(),
            pool,
        }
    }

    /// The slabs of a frame, and its slots in them. Frames that come one after the other have their first
    /// slots one after the other.
    fn slots(&self, frame: FrameNo) -> impl Iterator<Item = (&Arc<SharedSlab>, usize)> {
        let in_slab = SLAB_BYTES / self.page_bytes;
        let slots = self.slabs.len() * in_slab;
        // It is a power of two, as all sizes here.
        let last = slots - 1;
        let first = frame.index() as usize & last;
        (0..self.ways).map(move |way| {
            let index = (first + way * (slots / WAYS)) & last;
            (&self.slabs[index / in_slab], index % in_slab)
        })
    }

    fn change(slab: &SharedSlab) -> RwLockWriteGuard<'_, Slab> {
        slab.slab.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn tag(of: &SharedSlab, slot: usize) -> Option<Tag> {
        let slab = of.slab.read().unwrap_or_else(PoisonError::into_inner);
        slab.tags.get(slot).copied().flatten()
    }

    /// The slot for a frame: one that it has, an empty one, one of another generation, that of the oldest
    /// frame, one of a frame that is needed.
    fn slot_for(
        &self,
        frame: FrameNo,
        history: History,
        is_needed: impl Fn(PageNo, FrameNo) -> bool,
    ) -> Option<Place<'_>> {
        let rank = |(slab, slot): (&'_ Arc<SharedSlab>, usize)| match Self::tag(slab, slot) {
            Some(tag) if tag.is(frame, history) => (Use::Same, 0),
            None => (Use::Empty, 0),
            Some(tag) if tag.history != history => (Use::Over, 0),
            Some(tag) if !is_needed(tag.page, tag.frame) => (Use::Known, tag.frame.0),
            Some(tag) => (Use::Needed, tag.frame.0),
        };
        let places = self.slots(frame).map(|(slab, slot)| match self.ways {
            1 => ((Use::Known, 0), slab, slot),
            _ => (rank((slab, slot)), slab, slot),
        });
        let best = places.min_by_key(|(rank, ..)| *rank);
        best.map(|((of, _), slab, slot)| Place { slab, slot, of })
    }

    /// Remembers a published frame, in place of an older one: of one that is not needed for the next
    /// differences, if pages are large. `is_needed` must not use this memory.
    pub fn insert(&self, new: Remembered<'_>, is_needed: impl Fn(PageNo, FrameNo) -> bool) {
        if let Some(place) = self.slot_for(new.frame, new.history, is_needed) {
            self.put(place.slab, Self::change(place.slab), place.slot, new);
        }
    }

    /// Remembers a published frame that was read, unless that would displace a newer one, or one that is
    /// needed: commits use these for their differences.
    pub fn offer(&self, new: Remembered<'_>, is_needed: impl Fn(PageNo, FrameNo) -> bool) {
        let place = self.slot_for(new.frame, new.history, is_needed);
        let Some(place) = place.filter(|place| place.of < Use::Needed) else {
            return;
        };
        let guard = Self::change(place.slab);
        let present = guard.tags.get(place.slot).copied().flatten();
        if present.is_none_or(|tag| tag.history != new.history || tag.frame < new.frame) {
            self.put(place.slab, guard, place.slot, new);
        }
    }

    fn put(
        &self,
        of: &Arc<SharedSlab>,
        mut slab: RwLockWriteGuard<'_, Slab>,
        slot: usize,
        new: Remembered<'_>,
    ) {
        if slab.tags.is_empty() {
            let Some(pages) = sync::lock_static(self.pool).take(of) else {
                return;
            };
            slab.tags = vec![None; SLAB_BYTES / self.page_bytes];
            slab.pages = pages;
        }
        of.is_used.store(true, Ordering::Relaxed);
        let at = slot * self.page_bytes;
        if new.bytes.len() == self.page_bytes {
            slab.pages[at..at + self.page_bytes].copy_from_slice(new.bytes);
            slab.tags[slot] = Some(Tag {
                frame: new.frame,
                history: new.history,
                page: new.page,
            });
        }
    }

    /// Forgets a frame that is about to be written again.
    pub fn forget(&self, frame: FrameNo) {
        for (slab, slot) in self.slots(frame) {
            if let Some(tag) = Self::change(slab).tags.get_mut(slot)
                && tag.is_some_and(|tag| tag.frame == frame)
            {
                *tag = None;
            }
        }
    }

    /// Copies a part of a remembered page, from byte `at` on; `false` if the page is not
    /// remembered.
    pub fn read(
        &self,
        frame: FrameNo,
        history: impl Into<History>,
        at: usize,
        out: &mut [u8],
    ) -> bool {
        let copied = self.view(frame, history, |page| {
            let part = page.get(at..at + out.len());
            part.map(|bytes| out.copy_from_slice(bytes)).is_some()
        });
        copied.unwrap_or(false)
    }

    /// Looks at a remembered page where it lies; `None` if the page is not remembered.
    pub fn view<R>(
        &self,
        frame: FrameNo,
        history: impl Into<History>,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        let history = history.into();
        for (of, slot) in self.slots(frame) {
            let slab = of.slab.read().unwrap_or_else(PoisonError::into_inner);
            let tag = slab.tags.get(slot).copied().flatten();
            if tag.is_some_and(|tag| tag.is(frame, history)) {
                let at = slot * self.page_bytes;
                let page = slab.pages.get(at..at + self.page_bytes)?;
                of.is_used.store(true, Ordering::Relaxed);
                return Some(look(page));
            }
        }
        None
    }
}

impl Drop for FrameMemory {
    fn drop(&mut self) {
        for shared in &self.slabs {
            // The slab first and then the pool: all callers lock in this order.
            let mut slab = Self::change(shared);
            if !slab.pages.is_empty() {
                slab.tags = Vec::new();
                let pages = std::mem::take(&mut slab.pages);
                sync::lock_static(self.pool).give_back(shared, pages);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::Salts;

    const OLD: Salts = Salts([1; 8]);
    const NEW: Salts = Salts([2; 8]);

    /// A separate process: tests run in parallel.
    fn process() -> &'static Shared {
        Box::leak(Box::default())
    }

    fn of(pool: &'static Shared) -> FrameMemory {
        FrameMemory::of_pool(PageSize::new(65_536).expect("a page size"), pool)
    }

    fn memory() -> FrameMemory {
        of(process())
    }

    /// A frame of a page that nothing refers to.
    fn frame(frame: u32, salts: Salts, bytes: &[u8]) -> Remembered<'_> {
        Remembered {
            frame: FrameNo(frame),
            history: salts.into(),
            page: PageNo(1),
            bytes,
        }
    }

    fn insert(memory: &FrameMemory, no: u32, salts: Salts, bytes: &[u8]) {
        memory.insert(frame(no, salts, bytes), |_, _| false);
    }

    fn offer(memory: &FrameMemory, no: u32, salts: Salts, bytes: &[u8]) {
        memory.offer(frame(no, salts, bytes), |_, _| false);
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
        insert(&memory, 5, OLD, &[7; 65_536]);
        assert_eq!(read(&memory, 5, OLD), Some(7));
        assert_eq!(read(&memory, 5, NEW), None);
        assert_eq!(read(&memory, 6, OLD), None);
    }

    #[test]
    fn what_is_offered_does_not_drive_out_what_is_newer() {
        let memory = memory();
        let slots = MAX_BYTES as u32 / 65_536;
        for way in 0..WAYS as u32 {
            let frame = slots + 5 + way * (slots / WAYS as u32);
            insert(&memory, frame, NEW, &[7; 65_536]);
        }
        offer(&memory, 5, NEW, &[8; 65_536]);
        assert_eq!(read(&memory, 5, NEW), None);
        assert_eq!(read(&memory, slots + 5, NEW), Some(7));
        offer(&memory, 2 * slots + 5, NEW, &[9; 65_536]);
        assert_eq!(read(&memory, 2 * slots + 5, NEW), Some(9));
        offer(&memory, 5, OLD, &[3; 65_536]);
        assert_eq!(read(&memory, 5, OLD), Some(3));
    }

    #[test]
    fn a_frame_that_is_needed_stays_while_others_come_and_go() {
        let memory = memory();
        let slots = MAX_BYTES as u32 / 65_536;
        // Three of four slots of each frame.
        let needed = slots * 3 / 4;
        let is_needed = |_: PageNo, frame: FrameNo| frame.0 <= needed;
        for no in 1..=3 * slots {
            let bytes = [no as u8; 65_536];
            memory.insert(frame(no, OLD, &bytes), is_needed);
            assert_eq!(read(&memory, no, OLD), Some(no as u8));
        }
        for no in 1..=needed {
            assert_eq!(read(&memory, no, OLD), Some(no as u8), "frame {no}");
        }
        memory.offer(frame(needed + 1, OLD, &[9; 65_536]), is_needed);
        assert_eq!(read(&memory, needed + 1, OLD), None, "a newer one is there");
        // When all are needed, the oldest goes, and in the next generation each may.
        let all = |_: PageNo, _: FrameNo| true;
        memory.insert(frame(3 * slots + 1, OLD, &[7; 65_536]), all);
        assert_eq!(read(&memory, 1, OLD), None);
        memory.offer(frame(2, NEW, &[8; 65_536]), all);
        assert_eq!(read(&memory, 2, NEW), Some(8));
        // It is forgotten wherever it is.
        let last = 3 * slots;
        memory.forget(FrameNo(last));
        assert_eq!(read(&memory, last, OLD), None);
    }

    #[test]
    fn a_forgotten_frame_is_gone() {
        let memory = memory();
        insert(&memory, 5, OLD, &[7; 65_536]);
        memory.forget(FrameNo(6));
        assert_eq!(read(&memory, 5, OLD), Some(7));
        memory.forget(FrameNo(5));
        assert_eq!(read(&memory, 5, OLD), None);
    }

    #[test]
    fn what_another_log_has_left_is_not_found() {
        let process = process();
        let log = of(process);
        insert(&log, 5, OLD, &[7; 65_536]);
        drop(log);
        for _ in 0..3 {
            let log = of(process);
            assert_eq!(read(&log, 5, OLD), None);
            insert(&log, 6, OLD, &[8; 65_536]);
            assert_eq!(read(&log, 6, OLD), Some(8));
            let free = sync::lock_static(process).free.len();
            assert!(free <= MAX_BYTES / SLAB_BYTES);
        }
    }

    #[test]
    fn the_newest_frames_win_and_the_bound_holds() {
        let memory = memory();
        let slots = MAX_BYTES as u32 / 65_536;
        for frame in 1..=slots + 1 {
            insert(&memory, frame, OLD, &[frame as u8; 65_536]);
        }
        assert_eq!(read(&memory, 1, OLD), None);
        assert_eq!(read(&memory, 2, OLD), Some(2));
        assert_eq!(read(&memory, slots + 1, OLD), Some(slots as u8 + 1));
        let taken: usize = memory
            .slabs
            .iter()
            .map(|of| of.slab.read().map_or(0, |slab| slab.pages.capacity()))
            .sum();
        assert_eq!(taken, MAX_BYTES);
    }

    /// Bytes of all slabs, including those kept for the next log, by their vectors' capacity.
    fn bytes_of(memories: &[FrameMemory], process: &'static Shared) -> usize {
        let slabs = memories.iter().flat_map(|memory| &memory.slabs);
        let taken = slabs.map(|of| of.slab.read().map_or(0, |slab| slab.pages.capacity()));
        let pool = sync::lock_static(process);
        taken.sum::<usize>() + pool.free.iter().map(Vec::capacity).sum::<usize>()
    }

    #[test]
    fn a_thousand_logs_stay_within_the_bound_of_the_process() {
        let process = process();
        let mut memories = Vec::new();
        for number in 0..1_000u32 {
            let memory = of(process);
            for frame in 1..=8 {
                insert(&memory, frame, OLD, &[number as u8; 65_536]);
            }
            // A log that commits has what it has just committed.
            assert_eq!(read(&memory, 8, OLD), Some(number as u8), "log {number}");
            memories.push(memory);
        }
        let (bytes, bound) = (bytes_of(&memories, process), PROCESS_BYTES);
        assert!(bytes > bound / 2 && bytes <= bound, "{bytes} bytes");
        // Frames that were displaced are not found, and those found are right.
        let mut found = 0;
        for (number, memory) in memories.iter().enumerate() {
            for frame in 1..=8 {
                let byte = read(memory, frame, OLD);
                assert!(byte.is_none_or(|byte| byte == number as u8), "log {number}");
                found += usize::from(byte.is_some());
            }
        }
        assert!(found * 65_536 <= bound && found > 0);
        drop(memories);
        assert!(bytes_of(&[], process) <= MAX_BYTES);
    }

    #[test]
    fn memory_in_use_is_taken_from_no_log() {
        let process = process();
        let busy = of(process);
        insert(&busy, 1, OLD, &[1; 65_536]);
        let mut others = Vec::new();
        for _ in 0..2 * PROCESS_BYTES / MAX_BYTES {
            let other = of(process);
            for frame in 1..=MAX_BYTES as u32 / 65_536 {
                assert_eq!(read(&busy, 1, OLD), Some(1));
                insert(&other, frame, OLD, &[2; 65_536]);
            }
            others.push(other);
        }
    }

    #[test]
    fn every_page_size_has_slots_of_its_own_in_every_slab() {
        for bytes in (9..=16).map(|power| 1usize << power) {
            let page = PageSize::new(bytes as u32).expect("a page size");
            let memory = FrameMemory::new(page);
            let frames = (MAX_BYTES / bytes).min(MAX_FRAMES) as u32;
            for frame in 1..=frames {
                insert(&memory, frame, NEW, &vec![frame as u8; bytes]);
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
            insert(&memory, frames + 1, NEW, &vec![0; bytes]);
            assert!(!memory.read(FrameNo(1), NEW, 0, &mut out), "{bytes}");
        }
    }
}
