//! Digesting in pieces gives the same result as digesting at once.

use super::*;
use crate::attribute::Metadata;
use crate::events::{Event, Letters, Request};

/// A test's record: its kind, and the start of its request.
fn decoders() -> Decoders {
    Decoders::of_test(7, |record| {
        let request = Request {
            letters: Letters::parse(b"W")?,
            start: u64::from(*record.get(4)?) * 8,
            sectors: 8,
        };
        Some(Event::Completed(request, 0))
    })
}

/// A sub-buffer with an event at each of these moments.
fn sub_buffer(events: &[(u64, u8)]) -> Vec<u8> {
    let mut data = Vec::new();
    let begin = events.first().map_or(0, |(at, _)| *at);
    let mut last = begin;
    for (at, block) in events {
        // Two words of data, and the time since the previous event.
        data.extend((2 | ((at - last) as u32) << 5).to_le_bytes());
        data.extend([7, 0, 0, 0, *block, 0, 0, 0]);
        last = *at;
    }
    let head = [begin.to_le_bytes(), (data.len() as u64).to_le_bytes()].concat();
    [head, data].concat()
}

fn digest() -> Digest<Vec<Io>> {
    let known = Known {
        metadata: Metadata::TheRest,
        ..Known::default()
    };
    Digest::new(decoders(), known, Vec::new())
}

fn collected(cpus: &[&[&[(u64, u8)]]]) -> Collected {
    let mut collected = Collected::default();
    for (cpu, sub_buffers) in cpus.iter().enumerate() {
        for events in *sub_buffers {
            collected.add(cpu, sub_buffer(events));
        }
    }
    collected
}

fn told(digest: &Digest<Vec<Io>>) -> Vec<(u64, u64)> {
    let io = |io: &Io| (io.completed_ns, io.sector / 8);
    digest.kept.iter().map(io).collect()
}

#[test]
fn events_of_several_cpus_come_in_the_order_of_time_whatever_pieces_they_are_taken_in() {
    let all: [&[&[(u64, u8)]]; 3] = [
        &[&[(10, 1), (20, 2), (20, 3)], &[(90, 4)]],
        &[&[(15, 5)], &[(20, 6), (21, 7)], &[(22, 8)]],
        &[],
    ];
    let expected = [
        (10, 1),
        (15, 5),
        (20, 2),
        (20, 3),
        (20, 6),
        (21, 7),
        (22, 8),
        (90, 4),
    ];
    let mut at_once = digest();
    at_once
        .take(&mut collected(&all), u64::MAX, usize::MAX)
        .unwrap();
    assert_eq!(told(&at_once), expected);
    for limits in [vec![21], vec![1, 15, 16, 22, 23], vec![200]] {
        let (mut pieces, mut held) = (digest(), collected(&all));
        for limit in limits {
            pieces.take(&mut held, limit, usize::MAX).unwrap();
            assert!(told(&pieces).iter().all(|(at, _)| *at < limit));
        }
        // A few at a time.
        while pieces.take(&mut held, u64::MAX, 3).unwrap() == Taken::Some {}
        assert_eq!(told(&pieces), expected);
        assert_eq!((pieces.lost, held.bytes()), (0, 0));
    }
}

#[test]
fn an_event_that_comes_too_late_is_not_passed_over() {
    let mut digest = digest();
    digest
        .take(&mut collected(&[&[&[(50, 1)]]]), 100, usize::MAX)
        .unwrap();
    assert_eq!(digest.lost, 0);
    digest
        .take(
            &mut collected(&[&[], &[&[(99, 2), (100, 3)]]]),
            200,
            usize::MAX,
        )
        .unwrap();
    assert_eq!(digest.lost, 1);
}

#[test]
fn what_the_kernel_lost_is_counted() {
    let sub_buffer = |flags: u64| [7u64.to_le_bytes(), flags.to_le_bytes()].concat();
    let lost = |sub_buffers: Vec<Vec<u8>>| {
        let mut collected = Collected::default();
        for bytes in sub_buffers {
            collected.add(0, bytes);
        }
        let mut digest = digest();
        digest.take(&mut collected, u64::MAX, usize::MAX).unwrap();
        digest.lost
    };
    assert_eq!(lost(vec![sub_buffer(0)]), 0);
    // The kernel's mark on the buffer after the gap, whatever its counters say.
    assert_eq!(lost(vec![sub_buffer(0), sub_buffer(1 << 31)]), 1);
}
