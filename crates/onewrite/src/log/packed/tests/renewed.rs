//! When a page whose ranges have grown is stored whole again.

use super::*;
use crate::mode::Goal;

/// Commits page 7 twice as it was, with 40 bytes changed, and then with 290, which is more than it took
/// on average, next to so many new pages. Returns how many frames are differences, and the bytes that
/// the last commit took in the log.
fn after_many_changes(blocks: Blocks, others: u32) -> (u64, usize) {
    let mut process = Process::new(Form::Packed);
    process.how.goal = Goal::Speed;
    let mut log = vec![0; 4096];
    let mut page = letters(7..8).remove(0);
    let mut last = 0;
    let mut before = 0;
    for changed in [0, 40, 290] {
        let begun = process.packed.begin(log.as_slice(), SALTS, FrameNo(last));
        assert!(begun.expect("memory"));
        page[FRAME_HEADER_BYTES..][..changed].fill(0);
        let mut frames = vec![page.clone()];
        if changed == 290 {
            // It is not the first: its place in the run counts.
            frames.splice(0..0, letters(20..20 + others));
        }
        before = log.len();
        let packing = process.write_at((Begin::Block, blocks), &mut log, last + 1, &frames, true);
        process.publish(last + 1, &frames, packing);
        let other = Process::new(Form::Packed);
        for (no, frame) in (last + 1..).zip(&frames) {
            let published = Some(last + frames.len() as u32);
            assert_eq!(
                other.read(&log, no, published),
                (Found::Page, frame.clone())
            );
        }
        last += frames.len() as u32;
    }
    let differences = process.packed.counters.snapshot().differences;
    (differences, log.len() - before)
}

#[test]
fn a_page_with_many_changes_is_whole_again_where_that_takes_no_further_block() {
    assert_eq!(after_many_changes(Blocks::Own, 1), (1, 4096));
    assert_eq!(after_many_changes(Blocks::Own, 7), (2, 4096));
}

#[test]
fn a_page_alone_in_its_block_is_not_compressed_again() {
    assert_eq!(after_many_changes(Blocks::Own, 0), (2, 4096));
}

#[test]
fn in_a_shared_block_it_is_whole_again_whatever_that_takes() {
    assert_eq!(after_many_changes(Blocks::Shared, 7), (1, 8192));
}

#[test]
fn among_many_pages_it_is_whole_again_whatever_that_takes() {
    // 36 + 24 + 293 + 532 * n, and 215 more with the whole page.
    let others = (40..70).find(|n| (353 + 532 * n) % 4096 > 4096 - 215);
    let others = others.expect("one that leaves little space");
    let (differences, bytes) = after_many_changes(Blocks::Own, others);
    assert_eq!(differences, 1);
    assert_eq!(
        bytes,
        (353 + 532 * others as usize).next_multiple_of(4096) + 4096
    );
}

/// A log with pages of 16 KiB, of which no byte repeats another.
struct Large {
    process: Process,
    log: Vec<u8>,
    last: u32,
}

impl Large {
    fn new() -> Large {
        let page = PageSize::new(16_384).expect("a page size");
        let mut process = Process::new(Form::Packed);
        process.packed = Packed::new(Form::Packed, page);
        process.memory = FrameMemory::new(page);
        process.how.goal = Goal::Speed;
        let log = vec![0; 4096];
        Large {
            process,
            log,
            last: 0,
        }
    }

    /// Version `version` of a page; each differs from the first one in 200 bytes more.
    fn page(number: u32, version: u32) -> Vec<u8> {
        let header = FrameHeader {
            page: PageNo(number),
            commit_pages: 99,
            salts: SALTS,
            checksum: [number, version],
        };
        let noise = |i: u32| i.wrapping_mul(0x9e37_79b9).rotate_left(i % 31) ^ i << 7;
        let body =
            (0..16_384u32).map(|i| noise(i ^ number << 20) as u8 ^ u8::from(i < 200 * version));
        header.to_bytes().into_iter().chain(body).collect()
    }

    /// Commits it, and returns how many blocks the log grows by.
    fn commit(&mut self, frame: Vec<u8>) -> usize {
        let begun = (self.process.packed).begin(self.log.as_slice(), SALTS, FrameNo(self.last));
        assert!(begun.expect("memory"));
        let before = self.log.len();
        let (own, frames) = ((Begin::Block, Blocks::Own), [frame]);
        let packing = (self.process).write_at(own, &mut self.log, self.last + 1, &frames, true);
        self.process.publish(self.last + 1, &frames, packing);
        self.last += 1;
        (self.log.len() - before) / 4096
    }
}

#[test]
fn a_large_page_is_whole_again_when_its_ranges_take_more_than_a_block() {
    let mut log = Large::new();
    let blocks: Vec<usize> = (0..70)
        .map(|version| log.commit(Large::page(7, version)))
        .collect();
    // Whole, it takes five blocks: once at first, and after each 20 versions.
    assert!(
        blocks.iter().all(|blocks| [1, 5].contains(blocks)),
        "{blocks:?}"
    );
    let wholes = blocks.iter().filter(|blocks| **blocks == 5).count();
    assert!((3..=4).contains(&wholes), "{blocks:?}");
}

#[test]
fn a_large_page_is_a_difference_after_hundreds_of_other_frames() {
    let mut log = Large::new();
    log.commit(Large::page(7, 0));
    log.commit(Large::page(8, 0));
    for version in 1..600 {
        log.commit(Large::page(8, version % 10));
    }
    assert_eq!(log.commit(Large::page(7, 1)), 1);
}
