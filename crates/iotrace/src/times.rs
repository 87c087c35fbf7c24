//! How long the requests of a trace took, and where their time went.

use std::collections::HashMap;
use std::hash::Hash;

use crate::io::{Io, Kind, Op};
use crate::percentiles::Percentiles;
use crate::trace::Recording;

/// Percentiles of times in nanoseconds. The lists have what occurred, in the order of reports.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// From issue to completion, by operation. A flush request is never issued: its time begins
    /// when it was asked for.
    pub latency: Vec<(Op, Percentiles)>,
    /// From issue to completion of writes, by the kind that they begin with.
    pub write_latency: Vec<(Kind, Percentiles)>,
    /// By operation.
    pub stages: Vec<(Op, Stages)>,
}

/// Where the time of requests went, in the stages of `btt`. A request that was queued before the
/// trace began counts in `device` alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stages {
    /// From the block layer to the device's driver (Q2D): merging, scheduling, waiting.
    pub queue: Option<Percentiles>,
    /// From the driver to completion (D2C).
    pub device: Option<Percentiles>,
    /// From the block layer to completion (Q2C).
    pub whole: Option<Percentiles>,
}

/// All times, to be sorted.
#[derive(Default)]
pub(crate) struct Times {
    queue: HashMap<Op, Vec<u64>>,
    device: HashMap<Op, Vec<u64>>,
    whole: HashMap<Op, Vec<u64>>,
    writes: HashMap<Kind, Vec<u64>>,
}

impl Times {
    /// Adds a request.
    pub fn add(&mut self, recording: &Recording, io: &Io) {
        let stages = [
            (&mut self.queue, io.queue_ns()),
            (&mut self.device, io.device_ns()),
            (&mut self.whole, io.whole_ns()),
        ];
        for (all, took) in stages {
            all.entry(io.op).or_default().extend(took);
        }
        if let (Op::Write, Some(first), Some(took)) = (io.op, io.pieces.first(), io.device_ns()) {
            let kind = recording.kind(first);
            self.writes.entry(kind).or_default().push(took);
        }
    }

    /// Of all that were added.
    pub fn percentiles(mut self) -> Taken {
        let mut taken = Taken::default();
        for op in Op::ALL {
            let stages = Stages {
                queue: percentiles(&mut self.queue, op),
                device: percentiles(&mut self.device, op),
                whole: percentiles(&mut self.whole, op),
            };
            let latency = match op {
                Op::FlushRequest => stages.whole,
                _ => stages.device,
            };
            taken.latency.extend(latency.map(|took| (op, took)));
            let has_any = stages.device.or(stages.whole).is_some();
            taken.stages.extend(has_any.then_some((op, stages)));
        }
        for kind in Kind::ALL {
            let took = percentiles(&mut self.writes, kind);
            taken.write_latency.extend(took.map(|took| (kind, took)));
        }
        taken
    }
}

fn percentiles<K: Eq + Hash>(all: &mut HashMap<K, Vec<u64>>, of: K) -> Option<Percentiles> {
    Percentiles::of(all.remove(&of)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Asked, Owner, Piece};

    fn io(op: Op, queued_ns: Option<u64>, issued_ns: Option<u64>, completed_ns: u64) -> Io {
        Io {
            op,
            queued_ns,
            issued_ns,
            completed_ns,
            sector: 0,
            sectors: 8,
            asked: Asked::default(),
            error: 0,
            pieces: vec![Piece {
                sectors: 8,
                owner: Owner::FsJournal,
                task: None,
            }],
        }
    }

    #[test]
    fn a_request_has_a_time_for_each_stage_that_the_trace_saw() {
        let recording = Recording::default();
        let mut times = Times::default();
        times.add(&recording, &io(Op::Write, Some(10), Some(30), 100));
        // Asked for before the trace began.
        times.add(&recording, &io(Op::Write, None, Some(40), 50));
        times.add(&recording, &io(Op::FlushRequest, Some(10), None, 15));
        times.add(&recording, &io(Op::Read, None, None, 15));
        let taken = times.percentiles();
        let most = |took: Option<Percentiles>| took.map(|took| (took.count, took.max));
        let [(Op::Write, write), (Op::FlushRequest, flush)] = taken.stages[..] else {
            panic!("{:?}", taken.stages);
        };
        assert_eq!(most(write.queue), Some((1, 20)));
        assert_eq!(most(write.device), Some((2, 70)));
        assert_eq!(most(write.whole), Some((1, 90)));
        assert_eq!((flush.queue, flush.device), (None, None));
        assert_eq!(most(flush.whole), Some((1, 5)));
        let ops: Vec<Op> = taken.latency.iter().map(|(op, _)| *op).collect();
        assert_eq!(ops, [Op::Write, Op::FlushRequest]);
        let [(Kind::FsJournal, of_journal)] = taken.write_latency[..] else {
            panic!("{:?}", taken.write_latency);
        };
        assert_eq!(of_journal.count, 2);
    }
}
