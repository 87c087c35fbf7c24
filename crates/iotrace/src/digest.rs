//! Turns the kernel's reports into I/Os, in the order of time, and hands each to a [`Keep`].
//!
//! This can run during the watch. Then requests in flight bound the memory, not the length of the
//! watch. To order the events of several CPUs, the youngest are held back. Everything recorded
//! before [`Digest::take`]'s limit must have been collected. An event that still comes too late
//! counts as lost, so that no sum without it is believed.

use std::collections::VecDeque;

use crate::Error;
use crate::attribute::{Known, Replay, Timed};
use crate::collector::Collected;
use crate::events::Decoders;
use crate::io::Io;
use crate::ring;

/// A consumer of I/Os.
pub(crate) trait Keep: Send {
    /// Takes the next one.
    fn keep(&mut self, io: Io);
}

impl Keep for Vec<Io> {
    fn keep(&mut self, io: Io) {
        self.push(io);
    }
}

/// How much was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// As much as was allowed.
    Some,
    /// Everything before the limit.
    All,
}

/// The state of a watch's processing.
pub(crate) struct Digest<K> {
    decoders: Decoders,
    pub(crate) replay: Replay,
    pub(crate) kept: K,
    /// The events of one sub-buffer of each CPU that are not yet replayed.
    begun: Vec<VecDeque<Timed>>,
    /// Everything before this moment was replayed.
    until_ns: u64,
    /// Events that the kernel says it dropped, or that came too late.
    pub(crate) lost: u64,
}

impl<K: Keep> Digest<K> {
    /// Nothing yet.
    pub(crate) fn new(decoders: Decoders, known: Known, kept: K) -> Self {
        Self {
            decoders,
            replay: Replay::new(known),
            kept,
            begun: Vec::new(),
            until_ns: 0,
            lost: 0,
        }
    }

    /// Replays at most `most` events recorded before `limit_ns`, and removes them from `collected`.
    /// Says whether that was all of them.
    pub(crate) fn take(
        &mut self,
        collected: &mut Collected,
        limit_ns: u64,
        most: usize,
    ) -> Result<Taken, Error> {
        self.replay.name_files(collected.names.new.drain(..));
        self.begun
            .resize_with(collected.cpus.len().max(self.begun.len()), VecDeque::new);
        for _ in 0..most {
            let Some(timed) = self.next(collected, limit_ns)? else {
                self.until_ns = self.until_ns.max(limit_ns);
                return Ok(Taken::All);
            };
            if timed.at_ns < self.until_ns {
                self.lost += 1;
            }
            self.until_ns = self.until_ns.max(timed.at_ns);
            if let Some(io) = self.replay.apply(&timed) {
                self.kept.keep(io);
            }
        }
        Ok(Taken::Some)
    }

    /// The earliest event, if it was before the limit. Of several at the same moment, those of one
    /// CPU stay in their order.
    fn next(&mut self, collected: &mut Collected, limit_ns: u64) -> Result<Option<Timed>, Error> {
        for (cpu, begun) in self.begun.iter_mut().enumerate() {
            while begun.is_empty() {
                let Some(bytes) = collected.next(cpu) else {
                    break;
                };
                let bad = |text| Error::Unavailable(format!("the trace cannot be read: {text}"));
                let sub_buffer = ring::parse(&bytes).map_err(bad)?;
                // The kernel reports a loss, but not always how many.
                self.lost += u64::from(sub_buffer.lost);
                begun.extend(sub_buffer.events.into_iter().filter_map(|raw| {
                    let event = self.decoders.decode(raw.record)?;
                    Some(Timed {
                        at_ns: raw.at_ns,
                        event,
                    })
                }));
            }
        }
        let first = |begun: &VecDeque<Timed>| begun.front().map(|timed| timed.at_ns);
        let earliest = self.begun.iter_mut().filter(|begun| !begun.is_empty());
        let earliest = earliest.min_by_key(|begun| first(begun));
        Ok(earliest
            .filter(|begun| first(begun) < Some(limit_ns))
            .and_then(VecDeque::pop_front))
    }
}

#[cfg(test)]
mod tests;
