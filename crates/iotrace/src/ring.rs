//! The kernel's trace ring buffer, as `per_cpu/cpu*/trace_pipe_raw` hands it out.
//!
//! A file yields whole sub-buffers, usually of 4 KiB, little-endian here:
//!
//! ```text
//! 0   u64  time of the first event, in nanoseconds of the trace clock
//! 8   u64  bytes of events that follow; bit 31: events were lost before this sub-buffer
//! 16       events, each a u32 (5 bits kind or length, 27 bits time since the event before it) and
//!          then, by kind,
//!            0       u32 length, length - 4 bytes of data
//!            1..=28  that many u32 of data
//!            29      padding: the rest of the sub-buffer if the time is 0, else a u32 length to skip
//!            30      u32: bits 27.. of the time since the event before it
//!            31      u32: bits 27.. of the time itself
//! ```
//!
//! `events/header_page` and `events/header_event` in tracefs describe the same. Parsing bounds every
//! read: bytes that do not fit this form are an error, never a panic and never an event.

use crate::bytes::bytes_at;

/// Bytes before a sub-buffer's events.
const HEADER_BYTES: usize = 16;

/// Set in the second word of a sub-buffer when events were lost before it.
const LOST: u64 = 1 << 31;

/// The part of the second word that is a length.
const LENGTH: u64 = 0xf_ffff;

/// An event: when it happened, and its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawEvent<'a> {
    /// Nanoseconds of the trace clock.
    pub at_ns: u64,
    /// The record, which begins with the event's 16-bit id.
    pub record: &'a [u8],
}

/// The contents of a sub-buffer.
#[derive(Debug, PartialEq, Eq)]
pub struct SubBuffer<'a> {
    /// Whether events were lost before the first one.
    pub lost: bool,
    /// The events, in the order in which they happened on this CPU.
    pub events: Vec<RawEvent<'a>>,
}

/// Parses one sub-buffer.
///
/// # Errors
/// A message about the part that does not fit.
pub fn parse(bytes: &[u8]) -> Result<SubBuffer<'_>, String> {
    let (Some(mut at_ns), Some(word)) = (u64_at(bytes, 0), u64_at(bytes, 8)) else {
        return Err(format!(
            "a sub-buffer of {} bytes has no header",
            bytes.len()
        ));
    };
    let length = (word & LENGTH) as usize;
    let data = bytes
        .get(HEADER_BYTES..HEADER_BYTES + length)
        .ok_or_else(|| {
            format!(
                "{length} bytes of events in a sub-buffer of {}",
                bytes.len()
            )
        })?;
    let mut events = Vec::new();
    let mut rest = data;
    while !rest.is_empty() {
        let (step, used) = step(rest)
            .ok_or_else(|| format!("no event fits at byte {} of {length}", length - rest.len()))?;
        match step {
            Step::Event { delta, record } => {
                at_ns = at_ns.wrapping_add(delta);
                events.push(RawEvent { at_ns, record });
            }
            Step::Later(delta) => at_ns = at_ns.wrapping_add(delta),
            Step::Time(time) => at_ns = time,
            Step::Skip => {}
            Step::End => break,
        }
        rest = rest.get(used..).unwrap_or_default();
    }
    Ok(SubBuffer {
        lost: word & LOST != 0,
        events,
    })
}

enum Step<'a> {
    Event { delta: u64, record: &'a [u8] },
    Later(u64),
    Time(u64),
    Skip,
    End,
}

/// The step at the first byte, and its length in bytes.
fn step(bytes: &[u8]) -> Option<(Step<'_>, usize)> {
    let word = u32_at(bytes, 0)?;
    let (kind, delta) = (word & 31, u64::from(word >> 5));
    if kind == 29 && delta == 0 {
        return Some((Step::End, bytes.len()));
    }
    if let 1..=28 = kind {
        let record = bytes.get(4..4 + kind as usize * 4)?;
        return Some((Step::Event { delta, record }, 4 + record.len()));
    }
    let second = u32_at(bytes, 4)?;
    let above = u64::from(second) << 27;
    match kind {
        0 => {
            let record = bytes.get(8..4 + second as usize)?;
            // Records are padded to whole words.
            Some((
                Step::Event { delta, record },
                8 + record.len().next_multiple_of(4),
            ))
        }
        29 => Some((Step::Skip, 4 + (second as usize).max(4))),
        30 => Some((Step::Later(above + delta), 8)),
        _ => Some((Step::Time(above + delta), 8)),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes_at(bytes, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn word(kind: u32, delta: u32) -> [u8; 4] {
        (delta << 5 | kind).to_le_bytes()
    }

    fn sub_buffer(time: u64, flags: u64, parts: &[&[u8]]) -> Vec<u8> {
        let data: Vec<u8> = parts.concat();
        let mut bytes = time.to_le_bytes().to_vec();
        bytes.extend((data.len() as u64 | flags).to_le_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn every_kind_of_entry_is_read() {
        let bytes = sub_buffer(
            1_000,
            0,
            &[
                &word(2, 5),
                &[1; 8],
                // A discarded event of 12 bytes: skipped, its time not counted.
                &word(29, 77),
                &8u32.to_le_bytes(),
                &[9; 4],
                // Long data: the length counts itself.
                &word(0, 10),
                &12u32.to_le_bytes(),
                &[2; 8],
                // 2^27 nanoseconds and one later, then at an absolute time.
                &word(30, 1),
                &1u32.to_le_bytes(),
                &word(1, 0),
                &[3; 4],
                &word(31, 7),
                &2u32.to_le_bytes(),
                &word(1, 1),
                &[4; 4],
                &word(29, 0),
                &[0xff; 5],
            ],
        );
        let parsed = parse(&bytes).unwrap();
        let seen: Vec<_> = parsed
            .events
            .iter()
            .map(|e| (e.at_ns, e.record.to_vec()))
            .collect();
        assert_eq!(
            seen,
            [
                (1_005, vec![1; 8]),
                (1_015, vec![2; 8]),
                (1_015 + (1 << 27) + 1, vec![3; 4]),
                ((2 << 27) + 8, vec![4; 4]),
            ]
        );
        assert!(!parsed.lost);
    }

    #[test]
    fn lost_events_are_reported() {
        let bytes = sub_buffer(1, LOST, &[&word(1, 0), &[0; 4]]);
        let parsed = parse(&bytes).unwrap();
        assert!(parsed.lost);
        assert_eq!(parsed.events.len(), 1);
    }

    #[test]
    fn what_is_cut_short_is_an_error() {
        let bytes = sub_buffer(1, 0, &[&word(4, 0), &[0; 16]]);
        assert!(
            parse(&bytes[..bytes.len() - 1])
                .unwrap_err()
                .contains("20 bytes of events")
        );
        assert!(parse(&bytes[..10]).unwrap_err().contains("no header"));
        let bytes = sub_buffer(1, 0, &[&word(5, 0), &[0; 16]]);
        assert_eq!(parse(&bytes).unwrap_err(), "no event fits at byte 0 of 20");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let _ = parse(&bytes);
            if bytes.len() > HEADER_BYTES {
                let length = (bytes.len() - HEADER_BYTES) as u64;
                bytes[8..16].copy_from_slice(&length.to_le_bytes());
                let _ = parse(&bytes);
            }
        }
    }
}
