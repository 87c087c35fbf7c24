//! The bytes written between marks: sums that are kept during a trace, instead of its I/Os.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::device::SECTOR_BYTES;
use crate::digest::Keep;
use crate::io::{FileId, Io, Op, Owner};
use crate::trace::Mark;

/// The marks taken so far, in the order of time. The marking and the summing code share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks(Arc<Mutex<Vec<u64>>>);

impl Marks {
    /// Adds one.
    pub(crate) fn add(&self, mark: &Mark) {
        let mut marks = self.lock();
        let at = marks.partition_point(|at_ns| *at_ns <= mark.at_ns);
        marks.insert(at, mark.at_ns);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of marks before a moment: the index of its span.
    fn before(&self, at_ns: u64) -> usize {
        self.lock().partition_point(|mark| *mark < at_ns)
    }

    /// The number of marks up to a moment.
    fn up_to(&self, at_ns: u64) -> usize {
        self.lock().partition_point(|mark| *mark <= at_ns)
    }
}

/// The bytes written in a span of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// Requests with data.
    pub(crate) writes: u64,
    pub(crate) fs_journal_bytes: u64,
    pub(crate) fs_metadata_bytes: u64,
    /// Bytes without a known owner.
    pub(crate) unknown_bytes: u64,
    /// Bytes of each file.
    pub(crate) files: HashMap<FileId, u64>,
}

impl Span {
    fn add(&mut self, io: &Io) {
        self.writes += 1;
        for piece in &io.pieces {
            let bytes = piece.sectors * SECTOR_BYTES;
            *match piece.owner {
                Owner::FsJournal => &mut self.fs_journal_bytes,
                Owner::FsMetadata => &mut self.fs_metadata_bytes,
                Owner::Unknown => &mut self.unknown_bytes,
                Owner::File(file) => self.files.entry(file).or_default(),
            } += bytes;
        }
    }

    fn join(&mut self, other: &Self) {
        self.writes += other.writes;
        self.fs_journal_bytes += other.fs_journal_bytes;
        self.fs_metadata_bytes += other.fs_metadata_bytes;
        self.unknown_bytes += other.unknown_bytes;
        for (file, bytes) in &other.files {
            *self.files.entry(*file).or_default() += bytes;
        }
    }
}

/// Sums between each mark and the next.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    marks: Marks,
    /// The first span is before the first mark.
    spans: Vec<Span>,
}

impl Sums {
    /// Sums between these marks; the caller may add more. It must add a mark before it passes I/Os
    /// that completed after that mark.
    pub(crate) fn between(marks: Marks) -> Self {
        Self {
            marks,
            spans: Vec::new(),
        }
    }

    /// The bytes completed after one mark and up to another.
    pub(crate) fn of(&self, from: &Mark, to: &Mark) -> Span {
        let (first, last) = (self.marks.up_to(from.at_ns), self.marks.before(to.at_ns));
        let mut all = Span::default();
        let spans = self.spans.iter().enumerate();
        spans
            .filter(|(number, _)| (first..=last).contains(number))
            .for_each(|(_, span)| all.join(span));
        all
    }
}

impl Keep for Sums {
    fn keep(&mut self, io: Io) {
        if io.op != Op::Write {
            return;
        }
        let number = self.marks.before(io.completed_ns);
        if self.spans.len() <= number {
            self.spans.resize_with(number + 1, Span::default);
        }
        if let Some(span) = self.spans.get_mut(number) {
            span.add(&io);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::device::Counters;
    use crate::io::{Asked, Piece};

    fn mark(at_ns: u64) -> Mark {
        Mark {
            at_ns,
            counters: Counters::default(),
        }
    }

    fn io(completed_ns: u64, sectors: u64) -> Io {
        Io {
            op: Op::Write,
            queued_ns: None,
            issued_ns: None,
            completed_ns,
            sector: 0,
            sectors,
            asked: Asked::default(),
            error: 0,
            pieces: vec![Piece {
                sectors,
                owner: Owner::File(FileId((sectors % 3) as u32)),
                task: None,
            }],
        }
    }

    proptest! {
        #[test]
        fn sums_between_marks_are_those_of_the_ios_between_them(
            mut moments in prop::collection::vec((1u64..40, 0u64..9), 1..60),
        ) {
            // No sectors stands for a mark.
            moments.sort_unstable();
            let marks = Marks::default();
            let mut sums = Sums::between(marks.clone());
            let (mut taken, mut ios) = (vec![mark(0)], Vec::new());
            marks.add(&taken[0]);
            for (at_ns, sectors) in moments {
                if sectors == 0 {
                    taken.push(mark(at_ns));
                    marks.add(&mark(at_ns));
                } else {
                    ios.push(io(at_ns, sectors));
                }
            }
            // After the marks, as the digest does it.
            ios.iter().for_each(|io| sums.keep(io.clone()));
            for (number, from) in taken.iter().enumerate() {
                for to in &taken[number..] {
                    let mut expected = Span::default();
                    let within = |io: &&Io| from.at_ns < io.completed_ns && io.completed_ns <= to.at_ns;
                    ios.iter().filter(within).for_each(|io| expected.add(io));
                    prop_assert_eq!(sums.of(from, to), expected);
                }
            }
        }
    }
}
