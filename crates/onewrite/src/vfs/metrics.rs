//! `PRAGMA onewrite_metrics`: what this process knows of one database, for Prometheus.
//!
//! The figures are those of `onewrite_status`, and the latency of commits. A program serves the text
//! under its own `/metrics`. `onewrite exporter` shows what all processes share.

use onewrite_common::exposition::{Exposition, Label, Metric};
use onewrite_common::metrics as m;
use std::time::Duration;

use super::database::Database;
use crate::commit::SharedLog;
use crate::commit::latency;

/// The text. Without the log of a mode it has only the mode and the guard.
pub fn text(database: &Database) -> String {
    let path = database.paths.database.to_string_lossy();
    let mut out = Metrics {
        text: Exposition::default(),
        label: ("database", &path),
    };
    let mode = database.mode().map_or("", |mode| mode.name());
    let info = [
        out.label,
        ("mode", mode),
        ("version", env!("CARGO_PKG_VERSION")),
    ];
    out.text.add(&m::INFO, &info, 1);
    out.number(&m::GUARDED, database.is_guarded().into());
    if let Some(log) = database.log() {
        let frames = database.inner.index_view().map(|index| index.last_frame.0);
        out.of_log(&log, frames);
    }
    out.text.to_string()
}

struct Metrics<'a> {
    text: Exposition,
    label: Label<'a>,
}

impl Metrics<'_> {
    fn number(&mut self, metric: &'static Metric, value: u64) {
        self.text.add(metric, &[self.label], value);
    }

    fn age(&mut self, metric: &'static Metric, age: Option<Duration>) {
        if let Some(age) = age {
            self.text.add(metric, &[self.label], age.as_secs_f64());
        }
    }

    fn of_log(&mut self, log: &SharedLog, frames: Option<u32>) {
        let file = log.file();
        self.number(&m::POISONED, log.poisoned().is_some().into());
        if let Ok(bytes) = file.size() {
            self.number(&m::LOG_BYTES, bytes);
        }
        if let Some(frames) = frames {
            self.number(&m::LOG_FRAMES, frames.into());
        }
        self.of_latency(log);
        self.age(&m::LAST_FLUSH_AGE, file.counters().flush_age());
        self.of_counts(log);
    }

    fn of_latency(&mut self, log: &SharedLog) {
        let durations = log.latency.durations();
        let (counts, above) = durations.counts.split_at(latency::BOUNDS);
        let buckets = latency::bounds().zip(counts.iter().copied());
        let above = above.iter().sum();
        let sum = durations.sum.as_secs_f64();
        let metric = &m::COMMIT_DURATION;
        self.text
            .add_histogram(metric, &[self.label], buckets, above, sum);
        self.age(&m::LAST_COMMIT_AGE, log.latency.commit_age());
        self.age(&m::LAST_CHECKPOINT_AGE, log.latency.checkpoint_age());
    }

    fn of_counts(&mut self, log: &SharedLog) {
        let io = log.file().counters().snapshot();
        let group = log.group_commit.counts();
        let synch = log.group_synch.sizes();
        for (metric, value) in [
            (&m::WRITES, io.writes),
            (&m::WRITE_BYTES, io.write_bytes),
            (&m::WRITE_THROUGH, io.write_through),
            (&m::FLUSHES, io.flushes),
            (&m::SETUP_WRITES, io.setup_writes),
            (&m::SETUP_WRITE_BYTES, io.setup_write_bytes),
            (&m::SETUP_FLUSHES, io.setup_flushes),
            (&m::GROUP_FLUSHES, group.flushes),
            (&m::GROUP_COMMITS, group.commits),
            (&m::GROUP_READS, group.reads),
            (&m::GROUP_TIMEOUTS, group.timed_out),
            (&m::CHECKPOINT_WAITS, group.checkpoint_waits),
            (&m::SYNCH_GROUPS, synch.groups),
            (&m::SYNCH_COMMITS, synch.commits),
            (&m::SYNCH_FRAMES, synch.frames),
            (&m::REMAPPED_PAGES, log.remapped.snapshot().remapped_pages),
        ] {
            self.number(metric, value);
        }
    }
}
