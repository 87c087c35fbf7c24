//! Counters of remapping checkpoints, for `onewrite_status`.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::Run;
use super::blocks::Remapped;

/// Counters of this process's checkpoints for one log.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Checkpoints that remapped pages.
    pub checkpoints: u64,
    /// Pages that were remapped.
    pub remapped_pages: u64,
    /// The calls for that.
    pub calls: u64,
    /// Pages that such checkpoints still copied.
    pub copied_pages: u64,
    /// Total time of the calls, in microseconds.
    pub call_us: u64,
    /// The time of a call in the last checkpoint that remapped. Each checkpoint that copies because
    /// of it halves it, so that remapping is tried again.
    pub recent_call_us: u64,
    /// Frames that recovery took from the database, because a checkpoint was cut short.
    pub repaired_frames: u64,
    /// How long remapping checkpoints excluded readers and writers, in microseconds.
    pub kept_out_us: u64,
    /// How often the log continued in contiguous blocks.
    pub moved_forward: u64,
    /// Bytes at the log's end for that, as far as they are ready.
    pub region_bytes: u64,
    /// Bytes of blocks that were made for a region in a file of its own, the first ones included.
    pub replenished_bytes: u64,
    /// How often a region in a file of its own could not be made, or not whole.
    pub region_refusals: u64,
    /// Why, the last time.
    pub why_no_region: Option<String>,
    /// Why pages were last copied.
    pub why_not: Option<String>,
}

/// [`Counts`] to which several connections add.
#[derive(Debug, Default)]
pub struct Counters(Mutex<Counts>);

impl Counters {
    /// The counts so far.
    pub fn snapshot(&self) -> Counts {
        self.with(|counts| counts.clone())
    }

    fn with<T>(&self, work: impl FnOnce(&mut Counts) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes a checkpoint that copied, and why.
    pub fn count_refusal(&self, why: &str) {
        self.with(|counts| counts.why_not = Some(why.to_owned()));
    }

    /// Notes a checkpoint that copied because its calls would take too long.
    pub fn count_impatience(&self, why: &str) {
        self.with(|counts| {
            counts.recent_call_us /= 2;
            counts.why_not = Some(why.to_owned());
        });
    }

    /// Notes a checkpoint that remapped what it could.
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

    /// Notes how long readers and writers were excluded.
    pub fn count_kept_out(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.with(|counts| counts.kept_out_us = counts.kept_out_us.saturating_add(us));
    }

    /// Notes that the log continued in other blocks.
    pub fn count_forward(&self, region_bytes: u64) {
        self.with(|counts| {
            counts.moved_forward += 1;
            counts.region_bytes = region_bytes;
        });
    }

    /// Notes that the region's blocks were made again.
    pub fn count_replenished(&self, made: u64, region_bytes: u64) {
        self.with(|counts| {
            counts.replenished_bytes += made;
            counts.region_bytes = region_bytes;
        });
    }

    /// Notes that the region was not made, and why.
    pub fn count_region_refusal(&self, why: &str, region_bytes: u64) {
        self.with(|counts| {
            counts.region_refusals += 1;
            counts.why_no_region = Some(why.to_owned());
            counts.region_bytes = region_bytes;
        });
    }

    /// Notes that recovery has put a frame back into the log.
    pub fn count_repair(&self) {
        self.with(|counts| counts.repaired_frames += 1);
    }
}
