//! Sums over a recording, compared with the device's own counters.

use std::collections::HashMap;

use crate::device::SECTOR_BYTES;
use crate::io::{FileId, Io, Kind, Op, Owner, Piece, TaskId};
use crate::seeks::{self, Seeks};
use crate::times::{Taken, Times};
use crate::trace::{Mark, Recording};

/// Amounts of moved data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Read requests. One with several kinds counts as the kind that it begins with, so that the
    /// sum over kinds is the number of requests.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests with data, counted likewise.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Those of the requests that must be durable when they return (FUA).
    pub fua: u64,
    /// Discard requests.
    pub discards: u64,
    /// Bytes discarded.
    pub discard_bytes: u64,
    /// Flushes without data that a task waited for.
    pub flush_requests: u64,
}

impl Moved {
    fn add(&mut self, op: Op, requests: u64, bytes: u64) {
        let (count, sum) = match op {
            Op::Read => (&mut self.reads, &mut self.read_bytes),
            Op::Write => (&mut self.writes, &mut self.write_bytes),
            Op::Discard => (&mut self.discards, &mut self.discard_bytes),
            Op::FlushRequest => {
                self.flush_requests += requests;
                return;
            }
            Op::Flush => return,
        };
        *count += requests;
        *sum += bytes;
    }

    /// Adds another sum to this one.
    pub fn join(&mut self, other: &Self) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.write_bytes += other.write_bytes;
        self.fua += other.fua;
        self.discards += other.discards;
        self.discard_bytes += other.discard_bytes;
        self.flush_requests += other.flush_requests;
    }

    /// Whether nothing was moved.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// A figure of the trace next to the device's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The name of the figure, as in JSON.
    pub what: &'static str,
    /// The sum over the trace.
    pub traced: u64,
    /// The device's own count.
    pub counted: u64,
}

/// A device's I/O between two marks.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Nanoseconds between the marks.
    pub elapsed_ns: u64,
    /// All of it.
    pub total: Moved,
    /// Flushes of the device's cache.
    pub flushes: u64,
    /// Requests that failed.
    pub failed: u64,
    /// In the order of [`Kind::ALL`], every kind.
    pub by_kind: Vec<(Kind, Moved)>,
    /// Files, the most written first.
    pub by_file: Vec<(FileId, Moved)>,
    /// Tasks, those that wrote most first; `None` for I/O that was asked for before the trace
    /// began.
    pub by_task: Vec<(Option<TaskId>, Moved)>,
    /// How long they took.
    pub times: Taken,
    /// How far the device jumps to them, by operation.
    pub seeks: Vec<(Op, Seeks)>,
    /// Each of the device's counters next to the same sum over the trace.
    pub checks: Vec<Checked>,
}

impl Summary {
    /// Whether the trace adds up to exactly the device's counters.
    pub fn is_exact(&self) -> bool {
        self.checks
            .iter()
            .all(|check| check.traced == check.counted)
    }
}

impl Recording {
    /// The I/Os completed after one mark and up to another.
    pub fn between(&self, from: &Mark, to: &Mark) -> impl Iterator<Item = &Io> {
        let (from, to) = (from.at_ns, to.at_ns);
        self.ios
            .iter()
            .filter(move |io| from < io.completed_ns && io.completed_ns <= to)
    }

    /// The purpose of a piece.
    pub fn kind(&self, piece: &Piece) -> Kind {
        match piece.owner {
            Owner::FsJournal => Kind::FsJournal,
            Owner::FsMetadata => Kind::FsMetadata,
            Owner::Unknown => Kind::Unknown,
            Owner::File(file) => self
                .files
                .get(file.0 as usize)
                .map_or(Kind::Unknown, |file| file.kind),
        }
    }

    /// The device's I/O after one mark and up to another.
    pub fn summary(&self, from: &Mark, to: &Mark) -> Summary {
        let mut sums = Sums::default();
        for io in self.between(from, to) {
            sums.add(self, io);
        }
        let seeks = seeks::of(self.between(from, to));
        sums.summary(from, to, seeks)
    }
}

#[derive(Default)]
struct Sums {
    total: Moved,
    flushes: u64,
    failed: u64,
    kinds: HashMap<Kind, Moved>,
    files: HashMap<FileId, Moved>,
    tasks: HashMap<Option<TaskId>, Moved>,
    times: Times,
}

impl Sums {
    fn add(&mut self, recording: &Recording, io: &Io) {
        self.failed += u64::from(io.error != 0);
        let fua = u64::from(io.asked.fua && io.op == Op::Write);
        self.total.add(io.op, 1, io.bytes());
        self.total.fua += fua;
        self.times.add(recording, io);
        if io.op == Op::Flush {
            self.flushes += 1;
            return;
        }
        for (index, piece) in io.pieces.iter().enumerate() {
            let (first, bytes) = (u64::from(index == 0), piece.sectors * SECTOR_BYTES);
            let add = |moved: &mut Moved| {
                moved.add(io.op, first, bytes);
                moved.fua += fua * first;
            };
            add(self.tasks.entry(piece.task).or_default());
            if io.op == Op::FlushRequest {
                continue;
            }
            let kind = recording.kind(piece);
            add(self.kinds.entry(kind).or_default());
            if let Owner::File(file) = piece.owner {
                add(self.files.entry(file).or_default());
            }
        }
    }

    fn summary(mut self, from: &Mark, to: &Mark, seeks: Vec<(Op, Seeks)>) -> Summary {
        let checks = self.checks(from, to);
        let by_kind = Kind::ALL.map(|kind| (kind, self.kinds.remove(&kind).unwrap_or_default()));
        let mut by_file: Vec<_> = self.files.into_iter().collect();
        by_file.sort_by_key(|(file, moved)| (std::cmp::Reverse(order(moved)), *file));
        let mut by_task: Vec<_> = self.tasks.into_iter().collect();
        by_task.sort_by_key(|(task, moved)| (std::cmp::Reverse(order(moved)), *task));
        Summary {
            elapsed_ns: to.at_ns.saturating_sub(from.at_ns),
            total: self.total,
            flushes: self.flushes,
            failed: self.failed,
            by_kind: by_kind.to_vec(),
            by_file,
            by_task,
            times: self.times.percentiles(),
            seeks,
            checks,
        }
    }

    fn checks(&self, from: &Mark, to: &Mark) -> Vec<Checked> {
        let counted = to.counters.since(from.counters);
        let sum = |of: fn(&Moved) -> u64| self.kinds.values().map(of).sum::<u64>();
        // The kernel counts a flush without data as a write request.
        let write_requests = sum(|moved| moved.writes) + self.total.flush_requests;
        let all = [
            (
                "write_bytes",
                sum(|moved| moved.write_bytes),
                counted.write_bytes,
            ),
            ("write_requests", write_requests, counted.write_requests),
            ("flushes", self.flushes, counted.flushes),
            (
                "read_bytes",
                sum(|moved| moved.read_bytes),
                counted.read_bytes,
            ),
            (
                "read_requests",
                sum(|moved| moved.reads),
                counted.read_requests,
            ),
            (
                "discard_bytes",
                sum(|moved| moved.discard_bytes),
                counted.discard_bytes,
            ),
            (
                "discard_requests",
                sum(|moved| moved.discards),
                counted.discard_requests,
            ),
        ];
        all.map(|(what, traced, counted)| Checked {
            what,
            traced,
            counted,
        })
        .to_vec()
    }
}

/// The sort key of lists.
fn order(moved: &Moved) -> (u64, u64, u64) {
    (moved.write_bytes, moved.read_bytes, moved.discard_bytes)
}
