//! Differences from frames that another process has logged.

use super::*;

/// Commits one frame after the others.
fn commit(process: &Process, log: &mut Vec<u8>, no: u32, frames: &[Vec<u8>]) {
    let begun = process.packed.begin(log.as_slice(), SALTS, FrameNo(no - 1));
    assert!(begun.expect("memory"));
    let packing = process.write(log, no, frames, true);
    process.publish(no, frames, packing);
}

fn differences(process: &Process) -> u64 {
    process.packed.counters.snapshot().differences
}

#[test]
fn a_page_of_another_process_is_referred_to_where_it_is_shared() {
    for form in [Form::Packed, Form::Compressed] {
        let processes = Process::two(form);
        let mut log = vec![0; 4096];
        for (no, frame) in (1..).zip(versions(12)) {
            let writer = &processes[no as usize % 2];
            commit(writer, &mut log, no, &[frame]);
        }
        let all: u64 = processes.iter().map(differences).sum();
        assert_eq!(all, 11, "{form:?}: the page is whole once");
        let late = Process::new(form);
        for (no, frame) in (1..).zip(versions(12)) {
            assert_eq!(late.read(&log, no, Some(12)), (Found::Page, frame));
        }
    }
}

#[test]
fn a_page_of_another_process_is_referred_to_once_it_was_read() {
    let processes = [Process::new(Form::Packed), Process::new(Form::Packed)];
    let mut log = vec![0; 4096];
    let frames = versions(4);
    commit(&processes[0], &mut log, 1, &frames[..1]);
    commit(&processes[1], &mut log, 2, &frames[1..2]);
    assert_eq!(differences(&processes[1]), 0, "its page is nowhere near");
    let read = processes[0].read(&log, 2, Some(2));
    assert_eq!(read, (Found::Page, frames[1].clone()));
    commit(&processes[0], &mut log, 3, &frames[2..3]);
    assert_eq!(differences(&processes[0]), 1);
    let late = Process::new(Form::Packed);
    for (no, frame) in (1..).zip(&frames[..3]) {
        assert_eq!(late.read(&log, no, Some(3)), (Found::Page, frame.clone()));
    }
}

/// Its first batch has the page whole, and its second one something else in the place of that.
#[test]
fn what_a_transaction_replaces_is_not_referred_to() {
    let processes = Process::two(Form::Packed);
    let mut log = vec![0; 4096];
    let [writer, other] = &processes;
    let begun = writer.packed.begin(log.as_slice(), SALTS, FrameNo(0));
    assert!(begun.expect("memory"));
    writer.write(&mut log, 1, &[frame(3, 0, SALTS, 8)], false);
    let frames = [frame(4, 0, SALTS, 15), frame(5, 9, SALTS, 22)];
    writer.write(&mut log, 1, &frames[..1], false);
    let packing = writer.write(&mut log, 2, &frames[1..], true);
    writer.publish(2, &frames[1..], packing);
    let begun = other.packed.begin(log.as_slice(), SALTS, FrameNo(2));
    assert!(begun.expect("memory"));
    let whole = Known::new(other.packed.bases(), SALTS).whole_frame_of(PageNo(3));
    assert!(whole.is_none(), "{whole:?}");
    other.packed.end_transaction();
    for (no, frame) in (1..).zip(&frames) {
        assert_eq!(other.read(&log, no, Some(2)), (Found::Page, frame.clone()));
    }
}

/// Recovery drops frames of the same generation, and others come in their places.
#[test]
fn a_frame_that_recovery_has_dropped_is_referred_to_by_none() {
    for form in [Form::Packed, Form::Compressed] {
        let processes = Process::two(form);
        let mut log = vec![0; 4096];
        commit(&processes[0], &mut log, 1, &[frame(4, 9, SALTS, 1)]);
        let end = log.len();
        // Pages 4, 5 and 3: the last one in frame 4.
        let three = [
            frame(4, 0, SALTS, 2),
            frame(5, 0, SALTS, 8),
            frame(3, 9, SALTS, 15),
        ];
        commit(&processes[0], &mut log, 2, &three);
        // The other one passes them, and reads none.
        let begun = processes[1].packed.begin(log.as_slice(), SALTS, FrameNo(4));
        assert!(begun.expect("memory"));
        processes[1].packed.end_transaction();
        // They are damaged. Recovery, by any process, ends behind frame 1.
        log[end..].fill(0);
        // As `Writer::encode` does.
        processes[1].memory.forget(FrameNo(2));
        processes[1]
            .ring
            .as_ref()
            .expect("a ring")
            .forget(FrameNo(2));
        let new = [frame(3, 9, SALTS, 22)];
        commit(&processes[1], &mut log, 2, &new);
        let late = Process::new(form);
        assert_eq!(
            late.read(&log, 2, Some(2)),
            (Found::Page, new[0].clone()),
            "{form:?}"
        );
    }
}
