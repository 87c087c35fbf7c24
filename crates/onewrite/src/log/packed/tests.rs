//! Random transactions on a log in memory, read back by their writer and by another process.

use proptest::prelude::*;

use super::*;
use crate::log::page_ring::PageRing;
use crate::mode::{Compression, Differences, Goal};
use crate::storage::{SharedSlots, SlotLayout};
use crate::wal::{FrameHeader, PageNo};
use std::sync::Arc;

mod behind;
mod others;
mod renewed;

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
            salts: SALTS,
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
                salts: SALTS,
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

#[derive(Clone, Debug)]
enum Step {
    /// Commits so many frames, after writing so many ahead; some of those are written again.
    Commit { ahead: u8, again: u8, frames: u8 },
    /// Commits so many frames for a leader to flush.
    Grouped(u8),
    /// The same, and its process dies before it has published them.
    Dead(u8),
    /// A leader flushes.
    Flush,
    /// Writes frames and rolls them back.
    RolledBack(u8),
    /// Another process continues writing.
    Other,
    /// From here on, pages are compressed differently.
    How(Compressing),
}

fn how() -> impl Strategy<Value = Compressing> {
    let with = Compression::WORDS.map(|word| word.value);
    let differences = [Differences::Held, Differences::None];
    let goals = Goal::WORDS.map(|word| word.value);
    (
        prop::sample::select(with.to_vec()),
        prop::sample::select(differences.to_vec()),
        prop::sample::select(goals.to_vec()),
    )
        .prop_map(|(with, differences, goal)| Compressing {
            with,
            differences,
            goal,
        })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u8..3, 0u8..3, 1u8..6).prop_map(|(ahead, again, frames)| Step::Commit {
            ahead,
            again,
            frames
        }),
        6 => (1u8..12).prop_map(Step::Grouped),
        1 => (1u8..12).prop_map(Step::Dead),
        1 => Just(Step::Flush),
        1 => (1u8..5).prop_map(Step::RolledBack),
        1 => Just(Step::Other),
        1 => how().prop_map(Step::How),
    ];
    proptest::collection::vec(step, 1..40)
}

/// The result of the steps.
struct Played {
    /// The content of every frame that is published.
    model: Vec<Vec<u8>>,
    log: Vec<u8>,
    /// The commits that were not published: after how many frames, and their frames.
    dead: Vec<(usize, Vec<Vec<u8>>)>,
}

/// Runs the steps.
fn play(form: Form, steps: &[Step], check: bool) -> Played {
    let mut log = vec![0; 4096];
    let mut dead = Vec::new();
    let mut model: Vec<Vec<u8>> = Vec::new();
    let mut processes = Process::two(form);
    let (mut writer, mut content) = (0, 0u32);
    let mut open = None;
    let mut next = |commit: bool| {
        content += 1;
        frame(1 + content % 5, u32::from(commit) * 9, SALTS, content)
    };
    for step in steps {
        if let Step::How(how) = step {
            processes[writer].how = *how;
            continue;
        }
        let process = &processes[writer];
        let last = model.len() as u32;
        let begun = process.packed.begin(log.as_slice(), SALTS, FrameNo(last));
        assert!(begun.expect("memory"), "frame {last} is not there");
        match step {
            Step::How(_) => {}
            Step::Flush => open = None,
            Step::Grouped(frames) | Step::Dead(frames) => {
                let written: Vec<_> = (1..=*frames).map(|n| next(n == *frames)).collect();
                let begin = match open == Some(process.packed.last_batch()) {
                    true => Begin::Behind,
                    false => Begin::Block,
                };
                let begin = (begin, Blocks::Shared);
                let packing = process.write_at(begin, &mut log, last + 1, &written, true);
                open = Some(packing.last());
                if let Step::Dead(_) = step {
                    process.packed.end_transaction();
                    dead.push((model.len(), written));
                    continue;
                }
                process.publish(last + 1, &written, packing);
                model.extend(written);
            }
            Step::Other => {
                process.packed.end_transaction();
                writer = 1 - writer;
            }
            Step::RolledBack(frames) => {
                let frames: Vec<_> = (0..*frames).map(|_| next(false)).collect();
                open = None;
                process.write(&mut log, last + 1, &frames, false);
                process.packed.end_transaction();
            }
            Step::Commit {
                ahead,
                again,
                frames,
            } => {
                open = None;
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
            let late = Process::new(form);
            for process in processes.iter().chain([&late]) {
                for (no, frame) in (1..).zip(&model) {
                    let read = process.read(&log, no, Some(published));
                    assert_eq!(read, (Found::Page, frame.clone()), "frame {no}");
                }
            }
            for (no, frame) in (1..).zip(&model) {
                let shared = processes[0].shared(no);
                let page = &frame[FRAME_HEADER_BYTES..];
                assert!(shared.is_none_or(|shared| shared == page), "frame {no}");
            }
        }
    }
    Played { model, log, dead }
}

impl Played {
    /// Whether these are the first frames that were published. After them there may be a commit that
    /// was written there, and not published.
    fn may_be(&self, frames: &[Vec<u8>]) -> bool {
        let died_here = |(at, dead): &(usize, Vec<Vec<u8>>)| {
            frames.len() == at + dead.len()
                && self.model[..*at] == frames[..*at]
                && *dead == frames[*at..]
        };
        self.model.starts_with(frames) || self.dead.iter().any(died_here)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_process_reads_what_was_published(steps in steps()) {
        play(Form::Packed, &steps, true);
        play(Form::Compressed, &steps, true);
    }

    /// Recovery after a power cut. Whatever happened to the end, the frames found are frames that
    /// were written. This is for `packed`, which does not leave that to SQLite's checksums.
    #[test]
    fn a_damaged_end_ends_the_log(steps in steps(), at in any::<prop::sample::Index>(), bit in 0u32..8) {
        let played = play(Form::Packed, &steps, false);
        let mut log = played.log.clone();
        prop_assume!(log.len() > 4096);
        let at = 4096 + at.index(log.len() - 4096);
        log[at] ^= 1u8 << bit;
        let process = Process::new(Form::Packed);
        let last = process.packed.survey(log.as_slice(), SALTS).expect("memory");
        let committed = process.packed.chain().tail().committed;
        let frames: Vec<_> = (1..=committed.0).map(|no| process.read(&log, no, None)).collect();
        prop_assert!(frames.iter().all(|(found, _)| *found == Found::Page));
        let frames: Vec<_> = frames.into_iter().map(|(_, frame)| frame).collect();
        prop_assert!(played.may_be(&frames), "{} frames", frames.len());
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
        other.packed.recovered(salts, FrameNo(published));
        let found = other.packed.chain().published(FrameNo(7), SALTS);
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
    other.packed.recovered(SALTS, FrameNo(20));
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
        other.packed.recovered(SALTS, FrameNo(10));
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
fn frames_of_another_generation_are_not_there() {
    let Played { model, log, .. } = play(
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
