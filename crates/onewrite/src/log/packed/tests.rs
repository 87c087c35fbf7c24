//! Transactions on a log in memory, read back by their writer and by other processes.

use super::*;
use crate::log::page_ring::PageRing;
use crate::storage::{SharedSlots, SlotLayout};
use crate::wal::{FrameHeader, PageNo};
use std::sync::Arc;

mod behind;
mod compressed;
mod others;
mod random;
mod recovery;
mod renewed;
mod size;

const PAGE: usize = 512;
const SALTS: Salts = Salts(*b"firstgen");
const OTHER: Salts = Salts(*b"othergen");

fn page_size() -> PageSize {
    PageSize::new(PAGE as u32).expect("512 is a page size")
}

/// A frame as SQLite writes it; the checksum does not matter here.
fn frame(page: u32, commit_pages: u32, salts: Salts, content: u32) -> Vec<u8> {
    let header = FrameHeader {
        page: PageNo(page),
        commit_pages,
        salts,
        checksum: [content, !content],
    };
    let mut bytes = header.to_bytes().to_vec();
    // Similar from one content to the next, as versions of a page are; sometimes very different,
    // everywhere or up to the last few bytes.
    let noise = |seed: u32, i: usize| {
        seed.wrapping_mul(2_654_435_761)
            .wrapping_add((i as u32).wrapping_mul(40_503))
            .wrapping_mul(0x9e37_79b9)
            .to_le_bytes()[3]
    };
    bytes.extend((0..PAGE).map(|i| match (content % 7, i) {
        (0, _) => noise(content, i),
        (3, i) if i < PAGE - content as usize / 7 % 8 => noise(content, i),
        (_, 0 | 100) => content as u8,
        _ => noise(page, i),
    }));
    bytes
}

/// A process that has the log open.
struct Process {
    packed: Packed,
    how: Compressing,
    memory: FrameMemory,
    /// The pages that it shares with another process.
    ring: Option<Arc<PageRing>>,
}

impl Process {
    fn new(form: Form) -> Process {
        Process {
            how: Compressing::default(),
            packed: Packed::new(form, page_size()),
            memory: FrameMemory::new(page_size()),
            ring: None,
        }
    }

    /// Two processes that share a few pages.
    fn two(form: Form) -> [Process; 2] {
        let layout = SlotLayout {
            slots: 16,
            page_bytes: PAGE,
        };
        let ring = Arc::new(PageRing::new(SharedSlots::private(layout)));
        [(); 2].map(|()| Process {
            ring: Some(Arc::clone(&ring)),
            ..Process::new(form)
        })
    }

    fn nearby(&self) -> Nearby<'_> {
        Nearby {
            memory: &self.memory,
            ring: self.ring.as_deref(),
        }
    }

    fn write(&self, log: &mut Vec<u8>, first: u32, frames: &[Vec<u8>], ends: bool) -> Packing {
        self.write_at((Begin::Block, Blocks::Own), log, first, frames, ends)
    }

    fn write_at(
        &self,
        begin: (Begin, Blocks),
        log: &mut Vec<u8>,
        first: u32,
        frames: &[Vec<u8>],
        ends: bool,
    ) -> Packing {
        let mut out = AlignedBuf::new();
        let all = frames.concat();
        let run = Unpacked {
            first: FrameNo(first),
            frames: &all,
            ends_transaction: ends,
            history: SALTS.into(),
        };
        let packing = self
            .packed
            .pack(&run, begin, self.how, self.nearby(), &mut out);
        let at = packing.offset as usize;
        let end = at + out.len();
        log.resize(log.len().max(end), 0);
        log[at..end].copy_from_slice(out.as_slice());
        self.packed.written(&packing);
        packing
    }

    fn publish(&self, first: u32, frames: &[Vec<u8>], packing: Packing) {
        let last = FrameNo(first + frames.len() as u32 - 1);
        self.packed.published(last, Some(packing));
        for (no, frame) in (first..).zip(frames) {
            let new = Remembered {
                frame: FrameNo(no),
                history: SALTS.into(),
                page: PageNo(be32(frame, 0)),
                bytes: &frame[FRAME_HEADER_BYTES..],
            };
            self.memory.insert(new, self.packed.is_needed(SALTS));
            if let Some(ring) = &self.ring {
                ring.put(new);
            }
        }
        self.packed.end_transaction();
    }

    /// The page of a frame, as the processes share it.
    fn shared(&self, no: u32) -> Option<Vec<u8>> {
        let mut page = vec![0; PAGE];
        let ring = self.ring.as_ref()?;
        ring.get(FrameNo(no), SALTS, &mut page)?;
        Some(page)
    }

    fn read(&self, log: &[u8], no: u32, published: Option<u32>) -> (Found, Vec<u8>) {
        let (mut header, mut page) = ([0; FRAME_HEADER_BYTES], vec![0; PAGE]);
        let published = published.map(FrameNo);
        let out = (&mut header, page.as_mut_slice());
        let nearby = Some(self.nearby());
        let found = self
            .packed
            .read(log, nearby, SALTS, FrameNo(no), published, out);
        (found.expect("memory"), [&header[..], &page].concat())
    }
}

/// The frames of one commit after another, of the same page with little changed.
fn versions(count: u32) -> Vec<Vec<u8>> {
    (1..=count).map(|n| frame(3, 9, SALTS, n * 7 + 1)).collect()
}

/// Frames of different pages, of letters that only entropy coding compresses.
fn letters(pages: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    let page = |page: u32| {
        let mut bytes = frame(page, u32::from(page + 1 == pages.end) * 9, SALTS, page);
        let mut state = u64::from(page) | 1 << 40;
        for byte in &mut bytes[FRAME_HEADER_BYTES..] {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *byte = b'0' + (state >> 58) as u8;
        }
        bytes
    };
    pages.clone().map(page).collect()
}
