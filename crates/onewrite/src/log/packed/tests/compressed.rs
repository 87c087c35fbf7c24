//! Where commits of `swal` begin, and records that this version does not know.

use super::*;

/// A process that has committed so many frames of letters to a new log of `swal`.
fn swal(frames: u32) -> (Process, Vec<u8>) {
    let process = Process::new(Form::Compressed);
    let mut log = vec![0; 4096];
    let begun = process.packed.begin(log.as_slice(), SALTS, FrameNo(0));
    assert!(begun.expect("memory"));
    let frames = letters(1..frames + 1);
    let packing = process.write(&mut log, 1, &frames, true);
    process.publish(1, &frames, packing);
    (process, log)
}

#[test]
fn a_commit_begins_a_block_where_that_touches_fewer() {
    // After 4 records of 540 bytes there is room for 3 more.
    for (more, at) in [
        (3, 4096 + 4 * 540),
        (4, 8192),
        (7, 8192),
        (8, 4096 + 4 * 540),
    ] {
        let (process, mut log) = swal(4);
        let begun = process.packed.begin(log.as_slice(), SALTS, FrameNo(4));
        assert!(begun.expect("memory"));
        let frames = letters(100..100 + more);
        let packing = process.write(&mut log, 5, &frames, true);
        assert_eq!(packing.offset, at, "{more} more");
        process.publish(5, &frames, packing);
        for process in [process, Process::new(Form::Compressed)] {
            for (no, frame) in (5..).zip(&frames) {
                let read = process.read(&log, no, Some(4 + more));
                assert_eq!(read, (Found::Page, frame.clone()));
            }
        }
    }
}

#[test]
fn a_commit_does_not_go_past_what_was_rolled_back() {
    let (process, mut log) = swal(4);
    let begin = |log: &[u8]| {
        let begun = process.packed.begin(log, SALTS, FrameNo(4));
        assert!(begun.expect("memory"));
    };
    begin(&log);
    let gone = process.write(&mut log, 5, &letters(50..59)[..2], false);
    assert_eq!(gone.offset, 4096 + 4 * 540);
    process.packed.end_transaction();
    begin(&log);
    let frames = letters(100..104);
    let packing = process.write(&mut log, 5, &frames, true);
    assert_eq!(packing.offset, gone.offset, "where the first one began");
    process.publish(5, &frames, packing);
    let late = Process::new(Form::Compressed);
    let read = late.read(&log, 8, Some(8));
    assert_eq!(read, (Found::Page, frames[3].clone()));
}

#[test]
fn records_of_a_newer_version_are_an_error_and_not_the_end_of_the_log() {
    for form in [Form::Packed, Form::Compressed] {
        let process = Process::new(form);
        let mut log = vec![0; 4096];
        let begun = process.packed.begin(log.as_slice(), SALTS, FrameNo(0));
        assert!(begun.expect("memory"));
        process.write(&mut log, 1, &letters(1..3), true);
        let kind = 4096 + form.head_bytes() + form.header_bytes() - 4;
        log[kind] = 0xf0 | log[kind] & 0xf;
        if form == Form::Packed {
            let mut batch = Batch::parse(&log[4096..]).expect("a batch");
            batch.crc = batch.seal(&mut log[4096..]);
        }
        let late = Process::new(form);
        let error = late.packed.survey(log.as_slice(), SALTS);
        let error = error.expect_err("of a newer version").to_string();
        assert!(error.contains("kind 15 at byte 4096"), "{error}");
        assert!(error.contains("use a newer onewrite"), "{error}");
    }
}
