//! Random transactions on a log in memory, read back by who wrote them and by another process.

use proptest::prelude::*;

use super::*;
use crate::wal::FrameHeader;

const PAGE: usize = 512;
const SALTS: Salts = Salts(*b"firstgen");
const OTHER: Salts = Salts(*b"othergen");

fn page_size() -> PageSize {
    PageSize::new(PAGE as u32).expect("512 is a page size")
}

/// A frame as SQLite writes it; what the checksum says is of no concern here.
fn frame(page: u32, commit_pages: u32, salts: Salts, content: u32) -> Vec<u8> {
    let header = FrameHeader {
        page: PageNo(page),
        commit_pages,
        salts,
        checksum: [content, !content],
    };
    let mut bytes = header.to_bytes().to_vec();
    // Alike from one content to the next, as the versions of a page are; now and then unlike any.
    let noise = |seed: u32, i: usize| {
        (seed as usize * 2_654_435_761 + i * 40_503)
            .wrapping_mul(0x9e37_79b9)
            .to_le_bytes()[3]
    };
    bytes.extend((0..PAGE).map(|i| match (content % 7, i) {
        (0, _) => noise(content, i),
        (_, 0 | 100) => content as u8,
        _ => noise(page, i),
    }));
    bytes
}

/// A process that has the log open.
struct Process {
    packed: Packed,
    memory: FrameMemory,
}

impl Process {
    fn new(form: Form) -> Process {
        Process {
            packed: Packed::new(form, page_size(), Compression::Lz4),
            memory: FrameMemory::new(page_size()),
        }
    }

    fn write(&self, log: &mut Vec<u8>, first: u32, frames: &[Vec<u8>], ends: bool) -> Packing {
        let mut out = AlignedBuf::new();
        let all = frames.concat();
        let packing = self
            .packed
            .pack(FrameNo(first), &all, ends, SALTS, &self.memory, &mut out);
        let at = packing.offset as usize;
        let end = at + out.len();
        log.resize(log.len().max(end), 0);
        log[at..end].copy_from_slice(out.as_slice());
        self.packed.written(&packing);
        packing
    }

    fn publish(&self, first: u32, frames: &[Vec<u8>], packing: Packing) {
        for (no, frame) in (first..).zip(frames) {
            let page = &frame[FRAME_HEADER_BYTES..];
            self.memory.insert(FrameNo(no), SALTS, page);
        }
        let last = FrameNo(first + frames.len() as u32 - 1);
        self.packed.published(last, Some(packing));
        self.packed.end_transaction();
    }

    fn read(&self, log: &[u8], no: u32, published: Option<u32>) -> (Found, Vec<u8>) {
        let (mut header, mut page) = ([0; FRAME_HEADER_BYTES], vec![0; PAGE]);
        let published = published.map(FrameNo);
        let out = (&mut header, page.as_mut_slice());
        let memory = Some(&self.memory);
        let found = self
            .packed
            .read(log, memory, SALTS, FrameNo(no), published, out);
        (found.expect("memory"), [&header[..], &page].concat())
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Commits so many frames, after so many that are written ahead; some of those are written again.
    Commit { ahead: u8, again: u8, frames: u8 },
    /// Writes frames and takes them back.
    RolledBack(u8),
    /// Another process goes on writing.
    Other,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u8..3, 0u8..3, 1u8..6).prop_map(|(ahead, again, frames)| Step::Commit {
            ahead,
            again,
            frames
        }),
        1 => (1u8..5).prop_map(Step::RolledBack),
        1 => Just(Step::Other),
    ];
    proptest::collection::vec(step, 1..40)
}

/// Runs the steps; what every frame must hold, and the log.
fn play(form: Form, steps: &[Step], check: bool) -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut log = vec![0; 4096];
    let mut model: Vec<Vec<u8>> = Vec::new();
    let processes = [Process::new(form), Process::new(form)];
    let (mut writer, mut content) = (0, 0u32);
    let mut next = |commit: bool| {
        content += 1;
        frame(1 + content % 5, u32::from(commit) * 9, SALTS, content)
    };
    for step in steps {
        let process = &processes[writer];
        let last = model.len() as u32;
        let begun = process.packed.begin(log.as_slice(), SALTS, FrameNo(last));
        assert!(begun.expect("memory"), "frame {last} is not there");
        match step {
            Step::Other => {
                process.packed.end_transaction();
                writer = 1 - writer;
            }
            Step::RolledBack(frames) => {
                let frames: Vec<_> = (0..*frames).map(|_| next(false)).collect();
                process.write(&mut log, last + 1, &frames, false);
                process.packed.end_transaction();
            }
            Step::Commit {
                ahead,
                again,
                frames,
            } => {
                let mut written: Vec<_> = (0..*ahead).map(|_| next(false)).collect();
                if !written.is_empty() {
                    process.write(&mut log, last + 1, &written, false);
                }
                let again = usize::from(*again).min(written.len());
                for i in 0..again {
                    written[i] = next(false);
                    process.write(&mut log, last + 1 + i as u32, &written[i..=i], false);
                }
                let from = written.len();
                written.extend((1..=*frames).map(|n| next(n == *frames)));
                let first = last + 1 + from as u32;
                let packing = process.write(&mut log, first, &written[from..], true);
                for (i, frame) in written.iter().enumerate() {
                    let read = process.read(&log, last + 1 + i as u32, None);
                    assert_eq!(read, (Found::Page, frame.clone()), "in its transaction");
                }
                process.publish(first, &written[from..], packing);
                model.extend(written);
            }
        }
        if check {
            let published = model.len() as u32;
            for process in &processes {
                for (no, frame) in (1..).zip(&model) {
                    let read = process.read(&log, no, Some(published));
                    assert_eq!(read, (Found::Page, frame.clone()), "frame {no}");
                }
            }
        }
    }
    (model, log)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_process_reads_what_was_published(steps in steps()) {
        play(Form::Packed, &steps, true);
        play(Form::Compressed, &steps, true);
    }

    /// Recovery after a power cut: whatever became of the end, what is found is what was written, as
    /// far as it goes; here in `packed`, where that is not left to SQLite's checksums.
    #[test]
    fn a_damaged_end_ends_the_log(steps in steps(), at in any::<prop::sample::Index>(), bit in 0u32..8) {
        let (model, mut log) = play(Form::Packed, &steps, false);
        prop_assume!(log.len() > 4096);
        let at = 4096 + at.index(log.len() - 4096);
        log[at] ^= 1u8 << bit;
        let process = Process::new(Form::Packed);
        let last = process.packed.survey(log.as_slice(), SALTS).expect("memory");
        let committed = process.packed.chain().tail().committed;
        for no in 1..=committed.0 {
            let read = process.read(&log, no, None);
            prop_assert_eq!(read, (Found::Page, model[no as usize - 1].clone()), "frame {}", no);
        }
        prop_assert!(last >= committed);
    }

    #[test]
    fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..9000)) {
        for form in [Form::Packed, Form::Compressed] {
            let process = Process::new(form);
            let last = process.packed.survey(bytes.as_slice(), SALTS).expect("memory");
            for no in 0..=last.0.saturating_add(1).min(50) {
                process.read(&bytes, no, None);
            }
        }
    }
}

/// The frames of one commit after another, of the same page with little changed.
fn versions(count: u32) -> Vec<Vec<u8>> {
    (1..=count).map(|n| frame(3, 9, SALTS, n * 7 + 1)).collect()
}

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
fn frames_of_another_generation_are_not_there() {
    let (model, log) = play(
        Form::Packed,
        &[Step::Commit {
            ahead: 0,
            again: 0,
            frames: 3,
        }],
        true,
    );
    let process = Process::new(Form::Packed);
    assert_eq!(model.len(), 3);
    assert_eq!(
        process
            .packed
            .survey(log.as_slice(), OTHER)
            .expect("memory"),
        FrameNo(0)
    );
    assert_eq!(
        process
            .packed
            .survey(log.as_slice(), SALTS)
            .expect("memory"),
        FrameNo(3)
    );
}

#[test]
fn what_a_rolled_back_transaction_left_is_not_taken_for_the_next() {
    // The commit is as long as the first of the two batches before it: the second stands where the
    // log would go on.
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
