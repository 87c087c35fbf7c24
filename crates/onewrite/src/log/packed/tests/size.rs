//! How pages are stored, and how many blocks a commit takes.

use super::*;
use crate::mode::{Compression, Goal};

#[test]
fn a_page_that_was_logged_before_is_held_as_a_difference() {
    let process = Process::new(Form::Packed);
    let mut log = vec![0; 4096];
    for (no, frame) in (1..).zip(versions(20)) {
        assert!(
            process
                .packed
                .begin(log.as_slice(), SALTS, FrameNo(no - 1))
                .expect("memory")
        );
        let frames = [frame];
        let packing = process.write(&mut log, no, &frames, true);
        process.publish(no, &frames, packing);
    }
    assert_eq!(process.packed.counters.deltas.load(Ordering::Relaxed), 19);
    assert_eq!(log.len(), 4096 * 21, "a block a commit");
    // Another process does not remember the frame that they refer to.
    let other = Process::new(Form::Packed);
    for (no, frame) in (1..).zip(versions(20)) {
        assert_eq!(other.read(&log, no, Some(20)), (Found::Page, frame));
    }
}

#[test]
fn a_block_is_saved_where_better_compression_can() {
    for (with, goal, bytes) in [
        (Compression::Lz4, Goal::Speed, 4096),
        (Compression::Auto, Goal::Bytes, 4096),
        (Compression::Auto, Goal::Speed, 8192),
        (Compression::None, Goal::Bytes, 8192),
    ] {
        let mut process = Process::new(Form::Packed);
        (process.how.with, process.how.goal) = (with, goal);
        let mut log = vec![0; 4096];
        let begun = process.packed.begin(log.as_slice(), SALTS, FrameNo(0));
        assert!(begun.expect("memory"));
        let frames = letters(1..9);
        let packing = process.write(&mut log, 1, &frames, true);
        process.publish(1, &frames, packing);
        assert_eq!(log.len(), 4096 + bytes, "{with} {goal}");
        let saved = u64::from(bytes == 4096);
        let counted = process.packed.counters.snapshot();
        assert_eq!((counted.tightened, counted.blocks_saved), (saved, saved));
        let other = Process::new(Form::Packed);
        for (no, frame) in (1..).zip(&frames) {
            assert_eq!(other.read(&log, no, Some(8)), (Found::Page, frame.clone()));
        }
    }
}

#[test]
fn what_does_not_save_a_block_stays_as_it_is_quick_to_read() {
    let mut process = Process::new(Form::Packed);
    process.how.goal = Goal::Bytes;
    let mut log = vec![0; 4096];
    let begun = process.packed.begin(log.as_slice(), SALTS, FrameNo(0));
    assert!(begun.expect("memory"));
    // Two blocks; a quarter less is still more than one.
    let frames = letters(1..14);
    process.write(&mut log, 1, &frames, true);
    let counted = process.packed.counters.snapshot();
    assert_eq!((counted.tightened, counted.blocks_saved), (1, 0));
    assert_eq!(
        counted.record_bytes,
        36 + 13 * (20 + PAGE as u64),
        "as they are"
    );
}

#[test]
fn a_page_that_changes_a_little_is_the_ranges_that_changed() {
    let mut process = Process::new(Form::Packed);
    process.how.goal = Goal::Speed;
    let mut log = vec![0; 4096];
    let mut last = letters(7..8);
    for no in 1..4 {
        let begun = process.packed.begin(log.as_slice(), SALTS, FrameNo(no - 1));
        assert!(begun.expect("memory"));
        let before = process.packed.counters.snapshot();
        last[0][FRAME_HEADER_BYTES + no as usize * 100] = 0;
        let packing = process.write(&mut log, no, &last, true);
        process.publish(no, &last, packing);
        let counted = process.packed.counters.snapshot();
        let bytes = counted.record_bytes - before.record_bytes;
        let header = (batch::HEADER_BYTES + Form::Packed.header_bytes()) as u64;
        match no {
            1 => assert_eq!((bytes, counted.differences), (header + PAGE as u64, 0)),
            // The number of the whole frame; a skip of one or two bytes, a length and a byte for
            // each byte that differs from it.
            _ => assert!(bytes <= header + 4 + 4 * u64::from(no - 1), "{bytes}"),
        }
        let late = Process::new(Form::Packed);
        let read = late.read(&log, no, Some(no));
        assert_eq!(read, (Found::Page, last[0].clone()));
    }
    assert_eq!(process.packed.counters.snapshot().differences, 2);
}
