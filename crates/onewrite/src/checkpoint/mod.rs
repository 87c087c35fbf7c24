//! Checkpoints that write no page twice: which pages of the log become pages of the database by block
//! remapping, and which are copied.
//!
//! SQLite reads each page from the log and writes it to the database. Where a remapping checkpoint is
//! possible the write is put off: `vfs::remap` keeps which page comes from which frame. When SQLite has
//! come to the end, [`runs`] finds neighbours in both files, [`cost`] tells whether remapping them is
//! worth it, and `storage::Remapping` does it. Called by `vfs::remap`, which keeps readers and writers
//! out; why nothing is lost is in `docs/durability.md`, RM1 to RM30.

pub mod cost;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use serde::Serialize;

use crate::log::Geometry;
use crate::storage::{Move, Remap, Remapped};
use crate::wal::{FrameNo, PageNo};

/// A page whose newest content is in a frame of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Logged {
    /// The page.
    pub page: PageNo,
    /// The last frame that holds it.
    pub frame: FrameNo,
}

/// Neighbouring pages that are neighbours in the log too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Where they are, and where they belong.
    pub place: Move,
    /// Index of the first of them.
    pub first: usize,
    /// How many.
    pub pages: usize,
}

/// The last frame of each page, in the order of the pages: what a checkpoint brings into the database, by the
/// headers of these frames.
pub fn newest(frames: impl Iterator<Item = (FrameNo, PageNo)>) -> Vec<Logged> {
    let last: BTreeMap<u32, FrameNo> = frames.map(|(frame, page)| (page.0, frame)).collect();
    let logged = |(page, frame)| Logged {
        page: PageNo(page),
        frame,
    };
    last.into_iter().map(logged).collect()
}

/// Runs of pages, which come in ascending order, as SQLite checkpoints them.
pub fn runs(pages: &[Logged], geometry: &Geometry) -> Vec<Run> {
    let bytes = geometry.page().bytes() as u64;
    let mut runs: Vec<Run> = Vec::new();
    for (i, logged) in pages.iter().enumerate() {
        let log = geometry.page_offset(logged.frame);
        let database = u64::from(logged.page.0.saturating_sub(1)) * bytes;
        match runs.last_mut() {
            Some(run)
                if run.place.log + run.place.bytes == log
                    && run.place.database + run.place.bytes == database =>
            {
                run.place.bytes += bytes;
                run.pages += 1;
            }
            _ => runs.push(Run {
                place: Move {
                    log,
                    database,
                    bytes,
                },
                first: i,
                pages: 1,
            }),
        }
    }
    runs
}

/// What checkpoints of this process have done with one log.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Checkpoints that remapped pages.
    pub checkpoints: u64,
    /// Pages that were remapped.
    pub remapped_pages: u64,
    /// In so many calls.
    pub calls: u64,
    /// Pages that such checkpoints copied all the same.
    pub copied_pages: u64,
    /// What the calls took, in microseconds.
    pub call_us: u64,
    /// What a call took in the last checkpoint that remapped; halved by every one that therefore did not,
    /// so that it is tried again.
    pub recent_call_us: u64,
    /// Frames that recovery took from the database, because a checkpoint was cut short.
    pub repaired_frames: u64,
    /// How long remapping checkpoints kept readers and writers out, in microseconds.
    pub kept_out_us: u64,
    /// How often the log went on in blocks that lie one behind the other.
    pub moved_forward: u64,
    /// Bytes at the log's end that it does so with, as far as they are ready.
    pub region_bytes: u64,
    /// Why pages were copied last.
    pub why_not: Option<String>,
}

/// [`Counts`] that several connections add to.
#[derive(Debug, Default)]
pub struct Counters(Mutex<Counts>);

impl Counters {
    /// What has come together so far.
    pub fn snapshot(&self) -> Counts {
        self.with(|counts| counts.clone())
    }

    fn with<T>(&self, work: impl FnOnce(&mut Counts) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A checkpoint was copied, and why.
    pub fn count_refusal(&self, why: &str) {
        self.with(|counts| counts.why_not = Some(why.to_owned()));
    }

    /// A checkpoint was copied because its calls would take too long.
    pub fn count_impatience(&self, why: &str) {
        self.with(|counts| {
            counts.recent_call_us /= 2;
            counts.why_not = Some(why.to_owned());
        });
    }

    /// A checkpoint remapped what it could.
    pub fn count_checkpoint(&self, runs: &[Run], remapped: &Remapped, pages: usize) {
        self.with(|counts| {
            let done = || runs.iter().zip(&remapped.done).filter(|(_, done)| **done);
            let moved: usize = done().map(|(run, _)| run.pages).sum();
            counts.checkpoints += u64::from(moved > 0);
            counts.remapped_pages += moved as u64;
            counts.calls += done().count() as u64;
            counts.copied_pages += pages.saturating_sub(moved) as u64;
            let took = u64::try_from(remapped.took.as_micros()).unwrap_or(u64::MAX);
            counts.call_us = counts.call_us.saturating_add(took);
            counts.recent_call_us = took / (done().count() as u64).max(1);
            counts.why_not.clone_from(&remapped.why_not);
        });
    }

    /// Readers and writers are let in again.
    pub fn count_kept_out(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.with(|counts| counts.kept_out_us = counts.kept_out_us.saturating_add(us));
    }

    /// The log went on in other blocks.
    pub fn count_forward(&self, region_bytes: u64) {
        self.with(|counts| {
            counts.moved_forward += 1;
            counts.region_bytes = region_bytes;
        });
    }

    /// Recovery has put a frame back into the log.
    pub fn count_repair(&self) {
        self.with(|counts| counts.repaired_frames += 1);
    }
}

/// How a file system of this name remaps, where `auto` is asked for. Not Btrfs: there sharing blocks writes
/// more metadata than it saves (docs/modes/remap.md).
pub fn automatic(filesystem: &str) -> Option<Remap> {
    match filesystem {
        "xfs" => Some(Remap::Exchange),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::cost::Cost;
    use super::*;
    use crate::mode::Layout;
    use crate::waits::REMAPPING;
    use crate::wal::PageSize;

    fn geometry(page: u32) -> Geometry {
        let page = PageSize::new(page).expect("a page size");
        Geometry::new(Layout::Gathered, page, 512).expect("a geometry")
    }

    fn logged(pairs: &[(u32, u32)]) -> Vec<Logged> {
        let logged = |&(page, frame)| Logged {
            page: PageNo(page),
            frame: FrameNo(frame),
        };
        pairs.iter().map(logged).collect()
    }

    #[test]
    fn neighbours_in_both_files_are_one_run() {
        let pages = logged(&[(2, 5), (3, 6), (4, 7), (5, 9), (7, 10), (8, 11)]);
        let runs = runs(&pages, &geometry(4096));
        let found: Vec<_> = runs.iter().map(|run| (run.first, run.pages)).collect();
        assert_eq!(found, [(0, 3), (3, 1), (4, 2)]);
        assert_eq!(runs[0].place.database, 4096);
        assert_eq!(runs[0].place.bytes, 3 * 4096);
        assert_eq!(runs[0].place.log, geometry(4096).page_offset(FrameNo(5)));
    }

    #[test]
    fn slow_calls_are_given_up_and_tried_again_later() {
        let runs = runs(&logged(&[(2, 5), (9, 6), (11, 3)]), &geometry(4096));
        let counters = Counters::default();
        let cost = || Cost::of(Remap::Exchange).with_calls_of(counters.snapshot().recent_call_us);
        assert!(cost().time(&runs) < REMAPPING);
        let slow = Remapped {
            done: vec![true; 3],
            took: Duration::from_secs(3),
            ..Remapped::default()
        };
        counters.count_checkpoint(&runs, &slow, 3);
        let mut given_up = 0;
        while cost().time(&runs) > REMAPPING {
            counters.count_impatience("too slow");
            given_up += 1;
        }
        assert_eq!(given_up, 1);
    }

    #[test]
    fn a_block_of_headers_ends_a_run() {
        let pages = logged(&[(2, 128), (3, 129)]);
        assert_eq!(runs(&pages, &geometry(8192)).len(), 2);
    }
}
