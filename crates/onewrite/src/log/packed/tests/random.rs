//! Random transactions, read back by their writer and by another process.

use proptest::prelude::*;

use super::*;
use crate::mode::{Compression, Differences, Goal};

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
