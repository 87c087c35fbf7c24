//! Turns what the kernel reported into I/Os, in the order of time, and hands each to whoever keeps it.
//!
//! It can be done while the watch goes on: then memory is bounded by what is under way and not by how long
//! the watch lasts. Events of several CPUs are put in order by holding the youngest back: what was recorded
//! before [`Digest::take`]'s limit must have been gathered. An event that comes too late all the same is
//! counted among the lost ones, so that no sum that lacks it is believed.

use std::collections::VecDeque;

use crate::Error;
use crate::attribute::{Known, Replay, Timed};
use crate::collector::Gathered;
use crate::events::Decoders;
use crate::io::Io;
use crate::ring;

/// What is done with I/Os.
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

/// A watch as far as it has been looked at.
pub(crate) struct Digest<K> {
    decoders: Decoders,
    pub(crate) replay: Replay,
    pub(crate) kept: K,
    /// The events of a sub-buffer of each CPU, as far as they have not been replayed.
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

    /// Replays what was recorded before `limit_ns`, `most` events of it, and takes that out of `gathered`.
    /// Says whether that was all of it.
    pub(crate) fn take(
        &mut self,
        gathered: &mut Gathered,
        limit_ns: u64,
        most: usize,
    ) -> Result<Taken, Error> {
        self.replay.name_files(gathered.names.new.drain(..));
        self.begun
            .resize_with(gathered.cpus.len().max(self.begun.len()), VecDeque::new);
        for _ in 0..most {
            let Some(timed) = self.next(gathered, limit_ns)? else {
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

    /// The earliest event, if it was before the limit. Of several at the same moment those of one CPU stay in
    /// their order.
    fn next(&mut self, gathered: &mut Gathered, limit_ns: u64) -> Result<Option<Timed>, Error> {
        for (cpu, begun) in self.begun.iter_mut().enumerate() {
            while begun.is_empty() {
                let Some(bytes) = gathered.next(cpu) else {
                    break;
                };
                let bad = |text| Error::Unavailable(format!("the trace cannot be read: {text}"));
                let sub_buffer = ring::parse(&bytes).map_err(bad)?;
                // The kernel says so, and not always how many.
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
