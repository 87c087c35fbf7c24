//! When a page whose ranges have grown is stored whole again.

use super::*;

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
    assert_eq!(after_many_changes(Blocks::Own, 0), (1, 4096));
    assert_eq!(after_many_changes(Blocks::Own, 7), (2, 4096));
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
