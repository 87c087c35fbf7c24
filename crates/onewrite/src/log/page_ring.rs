//! The last pages that processes have published, in memory that they share. A process reads there what
//! another one has logged, and neither finds its record in the log nor unpacks it. The rules are N12 to
//! N15 of `docs/durability.md`.
//!
//! A frame has one slot, by its number. A slot has a sequence lock: its writer makes the sequence odd,
//! stores the page, and makes it even again. A reader that finds another sequence after its copy than
//! before has read nothing. A CRC-32C covers generation, frame and page, so no stray write is believed.
//! A slot also has the number of the wal-index's last recovery. So nobody need forget what a recovery has
//! dropped: it is of another [`History`].
//!
//! Only published frames are put there, under SQLite's write lock, and only while another process reads
//! what others log. The log has everything that is here. A slot that is lost, or was left half written by
//! a process that was killed, costs a read of the log.

use serde::Serialize;
use std::sync::OnceLock;

use super::Log;
use super::memory::{FrameMemory, Remembered};
use super::shared::{Committer, Contention};
use crate::storage::{Make, PageWord, SharedSlots, SlotHeader, SlotLayout};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::fence;
use crate::wal::{FrameNo, History, PageNo, PageSize, Salts, array};

/// Bytes of pages, unless pages are large or small.
const BYTES: usize = 1 << 20;
/// The least and the most slots. Eight processes that commit some pages each, in turns, need the least.
const SLOTS: std::ops::RangeInclusive<usize> = 64..=512;

/// Bytes of a word of a page.
const WORD: usize = size_of::<usize>();

/// See the module.
pub struct PageRing {
    slots: SharedSlots,
}

/// A slot that this process fills.
struct Claim<'a> {
    header: &'a SlotHeader,
    page: &'a [PageWord],
    sequence: u64,
}

/// The slots for pages of this size.
pub fn layout(page: PageSize) -> SlotLayout {
    SlotLayout {
        slots: (BYTES / page.bytes()).clamp(*SLOTS.start(), *SLOTS.end()),
        page_bytes: page.bytes(),
    }
}

fn of_salts(salts: Salts) -> u64 {
    u64::from_ne_bytes(salts.0)
}

/// The number of the recovery in the upper half, the CRC-32C in the lower.
fn crc_of(history: History, frame: u64, page: &[u8]) -> u64 {
    let crc = crc32c::crc32c(&history.recovery.to_ne_bytes());
    let crc = crc32c::crc32c_append(crc, &history.salts.0);
    let crc = crc32c::crc32c_append(crc, &frame.to_ne_bytes());
    u64::from(history.recovery) << 32 | u64::from(crc32c::crc32c_append(crc, page))
}

impl PageRing {
    /// The pages in these slots.
    pub fn new(slots: SharedSlots) -> PageRing {
        PageRing { slots }
    }

    fn slot(&self, frame: FrameNo) -> Option<(&SlotHeader, &[PageWord])> {
        let slots = self.slots.layout().slots as u64;
        self.slots.slot((frame.index() % slots) as usize)
    }

    /// Makes the slot of a frame odd. The number is one that no process has used for it, so a process
    /// that was taken for dead cannot end with what it began.
    fn claim(&self, frame: FrameNo) -> Option<Claim<'_>> {
        let (header, page) = self.slot(frame).filter(|_| self.slots.is_writable())?;
        let found = header.sequence.load(Ordering::Relaxed);
        let sequence = match found % 2 {
            0 => found.wrapping_add(1),
            // Its process was killed: this one has the write lock.
            _ => found.wrapping_add(2),
        };
        let claimed =
            header
                .sequence
                .compare_exchange(found, sequence, Ordering::Relaxed, Ordering::Relaxed);
        claimed.ok()?;
        // A reader that finds one of the stores after this one finds the odd number, too.
        fence(Ordering::Release);
        Some(Claim {
            header,
            page,
            sequence,
        })
    }

    /// Puts a published frame there, in place of another one. Under SQLite's write lock.
    pub fn put(&self, new: Remembered<'_>) {
        if new.bytes.len() != self.slots.layout().page_bytes {
            return;
        }
        let Some(claim) = self.claim(new.frame) else {
            return;
        };
        let frame = u64::from(new.page.0) << 32 | u64::from(new.frame.0);
        let crc = crc_of(new.history, frame, new.bytes);
        claim.fill(of_salts(new.history.salts), frame, crc);
        for (word, bytes) in claim.page.iter().zip(new.bytes.chunks_exact(WORD)) {
            word.store(usize::from_ne_bytes(array(bytes)), Ordering::Relaxed);
        }
        claim.end();
    }

    /// Forgets a frame that is about to be written again. Under SQLite's write lock.
    pub fn forget(&self, frame: FrameNo) {
        let has = |header: &SlotHeader| header.frame.load(Ordering::Relaxed) as u32 == frame.0;
        if self.slot(frame).is_some_and(|(header, _)| has(header))
            && let Some(claim) = self.claim(frame)
        {
            claim.fill(0, 0, 0);
            claim.end();
        }
    }

    /// Copies the page of a frame, and returns its number. `None` if it is not there. Then `page` may
    /// hold anything.
    pub fn get(
        &self,
        frame: FrameNo,
        history: impl Into<History>,
        page: &mut [u8],
    ) -> Option<PageNo> {
        let history = history.into();
        let (header, words) = self.slot(frame)?;
        if page.len() != words.len() * WORD {
            return None;
        }
        let before = header.sequence.load(Ordering::Acquire);
        let found = header.frame.load(Ordering::Relaxed);
        let is_it = before % 2 == 0
            && found as u32 == frame.0
            && header.salts.load(Ordering::Relaxed) == of_salts(history.salts);
        if !is_it {
            return None;
        }
        for (word, bytes) in words.iter().zip(page.chunks_exact_mut(WORD)) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        let crc = header.crc.load(Ordering::Relaxed);
        // If one of these loads has found a later store, the next one finds a later number.
        fence(Ordering::Acquire);
        let is_same = header.sequence.load(Ordering::Relaxed) == before;
        // The model must find what the CRC would hide.
        let is_of_it = (crc >> 32) as u32 == history.recovery;
        let is_whole = is_same && is_of_it && (cfg!(loom) || crc == crc_of(history, found, page));
        is_whole.then_some(PageNo((found >> 32) as u32))
    }
}

impl Claim<'_> {
    fn fill(&self, salts: u64, frame: u64, crc: u64) {
        self.header.salts.store(salts, Ordering::Relaxed);
        self.header.frame.store(frame, Ordering::Relaxed);
        self.header.crc.store(crc, Ordering::Relaxed);
    }

    /// The stored page is whole, unless another process has taken the slot.
    fn end(self) {
        let _ = self.header.sequence.compare_exchange(
            self.sequence,
            self.sequence.wrapping_add(1),
            Ordering::Release,
            Ordering::Relaxed,
        );
    }
}

/// Where the pages of published frames are found without a read of the log.
#[derive(Clone, Copy)]
pub struct Nearby<'a> {
    /// The frame memory of this process.
    pub memory: &'a FrameMemory,
    /// The memory that processes share.
    pub ring: Option<&'a PageRing>,
}

impl Nearby<'_> {
    /// Copies a whole page; `false` if it is in neither.
    pub fn read(self, frame: FrameNo, history: History, page: &mut [u8]) -> bool {
        self.memory.read(frame, history, 0, page)
            || self
                .ring
                .is_some_and(|ring| ring.get(frame, history, page).is_some())
    }

    /// Looks at a whole page. `space` is for one that must be copied.
    pub fn view<R>(
        self,
        frame: FrameNo,
        history: History,
        space: &mut [u8],
        mut look: impl FnMut(&[u8]) -> R,
    ) -> Option<R> {
        let seen = self.memory.view(frame, history, &mut look);
        seen.or_else(|| {
            self.ring?.get(frame, history, space)?;
            Some(look(space))
        })
    }
}

/// Counts of pages that processes share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct SharedPageCounts {
    /// Pages that this process has put there.
    pub put: u64,
    /// Pages that it has found there.
    pub found: u64,
}

/// A log's part of [`PageRing`].
#[derive(Default)]
pub(super) struct Pages {
    /// `None` where there was no ring, and no space for one.
    ring: OnceLock<Option<PageRing>>,
    put: AtomicU64,
    found: AtomicU64,
}

impl Log {
    /// The pages that processes share, if one of them has made room for them.
    fn page_ring(&self) -> Option<&PageRing> {
        match self.pages.ring.get() {
            Some(ring) => ring.as_ref(),
            None if self.shared.has_slots() => self.open_ring(Make::Never),
            None => None,
        }
    }

    fn open_ring(&self, make: Make) -> Option<&PageRing> {
        let open = || {
            let slots = self.shared.slots(layout(self.geometry.page()), make);
            slots.map(PageRing::new)
        };
        self.pages.ring.get_or_init(open).as_ref()
    }

    /// Where the pages of published frames are found without a read of the file.
    pub fn nearby(&self) -> Nearby<'_> {
        Nearby {
            memory: &self.memory,
            ring: self.page_ring(),
        }
    }

    /// Whether a published frame of this log is for other processes to read: one of them reads what
    /// others log.
    pub fn shares_pages(&self, writer: Committer) -> bool {
        self.packed.is_some()
            && self.shared.has_other_readers(writer)
            // Elsewhere a store into a block that is ready may find no space.
            && !self.may_lack_space_for_ready_blocks()
    }

    /// Shares published frames. Under SQLite's write lock.
    pub fn share_pages<'a>(&self, pages: impl Iterator<Item = Remembered<'a>>) {
        let Some(ring) = self.open_ring(Make::IfMissing) else {
            return;
        };
        for page in pages {
            ring.put(page);
            self.pages.put.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that this process reads what others log. A store into shared memory may end a process where its
    /// file system is full, and waits where that is frozen. So it comes only while several processes commit,
    /// whose stores are there anyway.
    fn note_reader(&self, reader: Committer) {
        let is_among_writers = self.shared.contention() == Contention::Processes;
        if is_among_writers && !self.may_lack_space_for_ready_blocks() {
            self.shared.note_reader(reader);
        }
    }

    /// Copies the page of a published frame from what processes share. `false` if it is not there, and
    /// then `page` may hold anything.
    pub fn read_shared(
        &self,
        frame: FrameNo,
        history: History,
        page: &mut [u8],
        reader: Committer,
    ) -> bool {
        let Some(packed) = &self.packed else {
            return false;
        };
        self.note_reader(reader);
        let found = self
            .page_ring()
            .and_then(|ring| ring.get(frame, history, page));
        let Some(number) = found else {
            return false;
        };
        self.pages.found.fetch_add(1, Ordering::Relaxed);
        let read = Remembered {
            frame,
            history,
            page: number,
            bytes: page,
        };
        // It stays there longer, for the differences of later commits.
        self.memory.offer(read, packed.is_needed(history));
        true
    }

    /// Forgets a frame that is about to be written again.
    pub fn forget_frame(&self, frame: FrameNo) {
        self.memory.forget(frame);
        if let Some(ring) = self.page_ring() {
            ring.forget(frame);
        }
    }

    /// How many pages this process has shared, and found.
    pub fn shared_pages(&self) -> SharedPageCounts {
        SharedPageCounts {
            put: self.pages.put.load(Ordering::Relaxed),
            found: self.pages.found.load(Ordering::Relaxed),
        }
    }
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;

    const OLD: Salts = Salts([1; 8]);
    const NEW: Salts = Salts([2; 8]);
    const PAGE: usize = 4096;

    fn ring() -> PageRing {
        let page = PageSize::new(PAGE as u32).expect("a page size");
        PageRing::new(SharedSlots::private(layout(page)))
    }

    fn put(ring: &PageRing, frame: u32, salts: Salts, byte: u8) {
        ring.put(Remembered {
            frame: FrameNo(frame),
            history: salts.into(),
            page: PageNo(frame + 100),
            bytes: &[byte; PAGE],
        });
    }

    /// The byte of which the page consists.
    fn get(ring: &PageRing, frame: u32, salts: Salts) -> Option<u8> {
        let mut page = [0; PAGE];
        let number = ring.get(FrameNo(frame), salts, &mut page)?;
        assert_eq!(number, PageNo(frame + 100));
        assert!(page.iter().all(|byte| *byte == page[0]), "two pages in one");
        Some(page[0])
    }

    fn header(ring: &PageRing, frame: u32) -> &SlotHeader {
        ring.slot(FrameNo(frame)).expect("a slot").0
    }

    #[test]
    fn a_frame_is_found_until_another_one_takes_its_slot() {
        let ring = ring();
        assert_eq!(get(&ring, 1, OLD), None);
        for frame in 1..=257 {
            put(&ring, frame, OLD, frame as u8);
            assert_eq!(get(&ring, frame, OLD), Some(frame as u8));
        }
        assert_eq!((get(&ring, 1, OLD), get(&ring, 2, OLD)), (None, Some(2)));
        assert_eq!(ring.get(FrameNo(2), OLD, &mut [0; 512]), None);
    }

    #[test]
    fn a_frame_of_another_generation_is_not_there() {
        let ring = ring();
        put(&ring, 5, OLD, 7);
        assert_eq!((get(&ring, 5, NEW), get(&ring, 5, OLD)), (None, Some(7)));
        put(&ring, 5, NEW, 8);
        assert_eq!((get(&ring, 5, NEW), get(&ring, 5, OLD)), (Some(8), None));
        // Salts or a number that were not stored with the page.
        header(&ring, 5)
            .salts
            .store(of_salts(OLD), Ordering::Relaxed);
        assert_eq!(get(&ring, 5, OLD), None);
        put(&ring, 5, NEW, 8);
        header(&ring, 5).frame.fetch_add(256, Ordering::Relaxed);
        assert_eq!(get(&ring, 261, NEW), None);
    }

    /// Nobody forgets what a recovery has dropped: its process may have no slots.
    #[test]
    fn a_frame_that_a_recovery_may_have_dropped_is_not_there() {
        let ring = ring();
        let after = |recovery| History {
            salts: OLD,
            recovery,
        };
        let put = |recovery, byte| {
            ring.put(Remembered {
                frame: FrameNo(5),
                history: after(recovery),
                page: PageNo(105),
                bytes: &[byte; PAGE],
            });
        };
        let get = |recovery| {
            let mut page = [0; PAGE];
            let number = ring.get(FrameNo(5), after(recovery), &mut page);
            number.map(|_| page[0])
        };
        put(7, 1);
        assert_eq!((get(7), get(8), get(0)), (Some(1), None, None));
        put(8, 2);
        assert_eq!((get(7), get(8)), (None, Some(2)));
        // A stray write into the number of the recovery.
        header(&ring, 5).crc.fetch_xor(1 << 32, Ordering::Relaxed);
        assert_eq!((get(8), get(8 ^ 1)), (None, None));
    }

    #[test]
    fn a_frame_that_is_written_again_is_forgotten() {
        let ring = ring();
        put(&ring, 5, OLD, 7);
        ring.forget(FrameNo(261));
        assert_eq!(get(&ring, 5, OLD), Some(7));
        ring.forget(FrameNo(5));
        assert_eq!(get(&ring, 5, OLD), None);
        put(&ring, 5, OLD, 8);
        assert_eq!(get(&ring, 5, OLD), Some(8));
    }

    /// Stops a process after so many words of a page.
    fn put_in_part(ring: &PageRing, frame: u32, words: usize) -> Claim<'_> {
        let claim = ring.claim(FrameNo(frame)).expect("the slot");
        claim.fill(
            of_salts(OLD),
            u64::from(frame + 100) << 32 | u64::from(frame),
            0,
        );
        for word in &claim.page[..words] {
            word.store(0, Ordering::Relaxed);
        }
        claim
    }

    #[test]
    fn what_a_killed_process_has_half_written_is_not_there_and_its_slot_is_used_again() {
        for words in [0, 1, 511, 512] {
            let ring = ring();
            put(&ring, 5, OLD, 7);
            for _ in 0..3 {
                let dead = put_in_part(&ring, 5, words);
                assert_eq!(dead.sequence % 2, 1);
                assert_eq!(get(&ring, 5, OLD), None, "{words} words");
            }
            put(&ring, 5, OLD, 9);
            assert_eq!(get(&ring, 5, OLD), Some(9), "{words} words");
        }
    }

    /// It should have lost the write lock only with its life.
    #[test]
    fn a_process_that_was_taken_for_dead_ends_nothing_and_spoils_no_page() {
        let ring = ring();
        let stopped = put_in_part(&ring, 5, 0);
        put(&ring, 5, OLD, 9);
        let late = &stopped.page[100];
        late.store(0, Ordering::Relaxed);
        stopped.end();
        assert_eq!(get(&ring, 5, OLD), None, "two pages in one");
        put(&ring, 5, OLD, 9);
        assert_eq!(get(&ring, 5, OLD), Some(9));
    }

    #[test]
    fn pages_of_every_size_have_slots() {
        for bytes in (9..=16).map(|power| 1u32 << power) {
            let page = PageSize::new(bytes).expect("a page size");
            let ring = PageRing::new(SharedSlots::private(layout(page)));
            let content = vec![3; bytes as usize];
            let frames = layout(page).slots as u32;
            for frame in (1..=frames).map(FrameNo) {
                ring.put(Remembered {
                    frame,
                    history: OLD.into(),
                    page: PageNo(9),
                    bytes: &content,
                });
            }
            let mut out = vec![0; bytes as usize];
            for frame in (1..=frames).map(FrameNo) {
                assert_eq!(ring.get(frame, OLD, &mut out), Some(PageNo(9)), "{bytes}");
                assert!(out == content);
                out.fill(0);
            }
        }
    }

    #[test]
    fn threads_that_put_and_get_see_whole_pages() {
        let ring = ring();
        let found = std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..20_000 {
                    put(&ring, 1 + round % 4 * 256, OLD, round as u8);
                }
            });
            let look = || {
                let looks = (0..20_000).filter_map(|i| get(&ring, 1 + i % 4 * 256, OLD));
                looks.count()
            };
            let readers = [scope.spawn(look), scope.spawn(look)];
            readers.map(|reader| reader.join().expect("no panic"))
        });
        println!("{found:?} of 20000");
    }
}
