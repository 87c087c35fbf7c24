//! Recovery, and transactions that were rolled back.

use super::*;

#[test]
fn what_recovery_has_published_is_not_walked_over_again() {
    let process = Process::new(Form::Compressed);
    let mut log = vec![0; 4096];
    for (no, frame) in (1..).zip(versions(20)) {
        let begun = process.packed.begin(log.as_slice(), SALTS, FrameNo(no - 1));
        assert!(begun.expect("memory"));
        let frames = [frame];
        let packing = process.write(&mut log, no, &frames, true);
        process.publish(no, &frames, packing);
    }
    let end = process.packed.end();
    for (salts, published, is_known) in [(SALTS, 20, true), (SALTS, 19, false), (OTHER, 20, false)]
    {
        let other = Process::new(Form::Compressed);
        let last = other.packed.survey(log.as_slice(), SALTS);
        assert_eq!(last.expect("memory"), FrameNo(20));
        other
            .packed
            .recovered(Some((salts.into(), FrameNo(published))));
        let found = other.packed.chain().published(FrameNo(7), SALTS.into());
        assert_eq!(found.is_some(), is_known, "{published} published");
        for (no, frame) in (1..=published).zip(versions(20)) {
            let read = other.read(&log, no, Some(published));
            assert_eq!(read, (Found::Page, frame));
        }
    }
    // Of a transaction that was under way when the process died: the next one goes where it began.
    let begun = process.packed.begin(log.as_slice(), SALTS, FrameNo(20));
    assert!(begun.expect("memory"));
    let unfinished: Vec<_> = (1..=3).map(|n| frame(3, 0, SALTS, n)).collect();
    process.write(&mut log, 21, &unfinished, false);
    let other = Process::new(Form::Compressed);
    let last = other.packed.survey(log.as_slice(), SALTS);
    assert_eq!(last.expect("memory"), FrameNo(23));
    other.packed.recovered(Some((SALTS.into(), FrameNo(20))));
    let begun = other.packed.begin(log.as_slice(), SALTS, FrameNo(20));
    assert!(begun.expect("memory"));
    assert_eq!(other.packed.end(), end);
}

#[test]
fn behind_a_recovery_the_next_transaction_takes_the_place_of_one_that_was_rolled_back() {
    for form in [Form::Compressed, Form::Packed] {
        let process = Process::new(form);
        let mut log = vec![0; 4096];
        let all = versions(12);
        let begin = |process: &Process, log: &[u8]| {
            let begun = process.packed.begin(log, SALTS, FrameNo(10));
            assert!(begun.expect("memory"), "{form:?}");
            process.packed.end()
        };
        assert!(
            process
                .packed
                .begin(log.as_slice(), SALTS, FrameNo(0))
                .expect("memory")
        );
        let packing = process.write(&mut log, 1, &all[..10], true);
        process.publish(1, &all[..10], packing);
        let position = begin(&process, &log);
        process.write(&mut log, 11, &all[10..], false);
        let other = Process::new(form);
        let last = other.packed.survey(log.as_slice(), SALTS).expect("memory");
        assert_eq!(last, FrameNo(12), "{form:?}");
        other.packed.recovered(Some((SALTS.into(), FrameNo(10))));
        assert_eq!(begin(&other, &log), position, "{form:?}");
    }
}

/// A connection asks for the log's size while another has begun a generation that is not in the
/// file.
#[test]
fn a_survey_leaves_the_transaction_that_is_under_way_as_it_is() {
    let process = Process::new(Form::Packed);
    let mut log = vec![0; 4096];
    assert!(
        process
            .packed
            .begin(log.as_slice(), SALTS, FrameNo(0))
            .expect("memory")
    );
    let frames = versions(5);
    let packing = process.write(&mut log, 1, &frames, true);
    process.publish(5, &frames, packing);
    process.packed.end_transaction();
    process.packed.restart(OTHER);
    assert!(
        process
            .packed
            .begin(log.as_slice(), OTHER, FrameNo(0))
            .expect("memory")
    );
    let last = process.packed.survey(log.as_slice(), SALTS);
    assert_eq!(last.expect("memory"), FrameNo(5));
    assert_eq!(
        (process.packed.committed(), process.packed.end()),
        (FrameNo(0), 4096)
    );
}

#[test]
fn what_a_rolled_back_transaction_left_is_not_taken_for_the_next() {
    // The commit is as long as the first of the two batches before it: the second is where the log
    // would continue.
    let process = Process::new(Form::Packed);
    let mut log = vec![0; 4096];
    assert!(
        process
            .packed
            .begin(log.as_slice(), SALTS, FrameNo(0))
            .expect("memory")
    );
    process.write(&mut log, 1, &[frame(1, 0, SALTS, 1)], false);
    process.write(&mut log, 2, &[frame(2, 9, SALTS, 2)], true);
    process.packed.end_transaction();
    assert!(
        process
            .packed
            .begin(log.as_slice(), SALTS, FrameNo(0))
            .expect("memory")
    );
    process.write(&mut log, 1, &[frame(1, 9, SALTS, 3)], true);
    let other = Process::new(Form::Packed);
    assert_eq!(
        other.packed.survey(log.as_slice(), SALTS).expect("memory"),
        FrameNo(1)
    );
}

/// A log that counts how often it is read.
struct Counted<'a> {
    log: &'a [u8],
    reads: std::cell::Cell<usize>,
}

impl LogBytes for Counted<'_> {
    fn size(&self) -> io::Result<u64> {
        self.log.size()
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.reads.set(self.reads.get() + 1);
        self.log.read_at(out, offset)
    }
}

/// Readers go on while another connection of their process recovers. Neither makes the other walk over
/// the log again.
#[test]
fn what_a_reader_next_to_a_recovery_reads_is_walked_over_once() {
    const FRAMES: u32 = 40;
    for form in [Form::Compressed, Form::Packed] {
        let writer = Process::new(form);
        let mut log = vec![0; 4096];
        for (no, frame) in (1..).zip(versions(FRAMES)) {
            let begun = writer.packed.begin(log.as_slice(), SALTS, FrameNo(no - 1));
            assert!(begun.expect("memory"));
            let frames = [frame];
            let packing = writer.write(&mut log, no, &frames, true);
            writer.publish(no, &frames, packing);
        }
        let log = Counted {
            log: &log,
            reads: std::cell::Cell::default(),
        };
        let before = History {
            salts: SALTS,
            recovery: 3,
        };
        let read = |process: &Process, no, published: Option<u32>| {
            let (mut header, mut page) = ([0; FRAME_HEADER_BYTES], vec![0; PAGE]);
            let history = published.map_or(SALTS.into(), |_| before);
            let found = process.packed.read(
                &log,
                None,
                history,
                FrameNo(no),
                published.map(FrameNo),
                (&mut header, page.as_mut_slice()),
            );
            assert_eq!(found.expect("memory"), Found::Page, "{form:?}, frame {no}");
            assert_eq!([&header[..], &page].concat(), versions(no)[no as usize - 1]);
        };
        let survey = |process: &Process| {
            process.packed.recovery_begins();
            let last = process.packed.survey(&log, SALTS).expect("memory");
            assert_eq!(last, FrameNo(FRAMES), "{form:?}");
        };
        let alone = Process::new(form);
        (1..=FRAMES).for_each(|no| read(&alone, no, Some(FRAMES)));
        survey(&alone);
        (1..=FRAMES).for_each(|no| read(&alone, no, None));
        let once = log.reads.take();
        // A reader has the log open already, or comes when recovery has begun.
        for has_read in [1, 0] {
            let both = Process::new(form);
            (1..=has_read).for_each(|no| read(&both, no, Some(FRAMES)));
            survey(&both);
            for no in 1..=FRAMES {
                read(&both, no, None);
                if no > has_read {
                    read(&both, no, Some(FRAMES));
                }
            }
            assert_eq!(log.reads.take(), once, "{form:?}");
            let after = History {
                recovery: 4,
                ..before
            };
            both.packed.recovered(Some((after, FrameNo(FRAMES))));
            let chain = both.packed.chain();
            assert!(chain.published(FrameNo(1), after).is_some(), "{form:?}");
            assert!(chain.aside.is_none(), "{form:?}");
        }
    }
}
