//! The metrics of `PRAGMA onewrite_metrics` and `onewrite exporter`.
//!
//! The table in `docs/metrics.md` is made from this one, and the dashboard is tested against it.

use crate::exposition::{Kind, Metric};

/// The program that exports a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// `PRAGMA onewrite_metrics`: what one process knows.
    Pragma,
    /// `onewrite exporter`: what all processes share.
    Exporter,
    /// Either.
    Both,
}

/// Always 1; the labels say the journal mode and the version of onewrite.
pub static INFO: Metric = Metric {
    name: "onewrite_info",
    otel: "onewrite.info",
    unit: "1",
    kind: Kind::Gauge,
    help: "Always 1; the labels say the journal mode and the version of onewrite.",
};
/// 1 while the guard keeps stock SQLite off the database.
pub static GUARDED: Metric = Metric {
    name: "onewrite_guarded",
    otel: "onewrite.guarded",
    unit: "1",
    kind: Kind::Gauge,
    help: "1 while the guard keeps stock SQLite off the database.",
};
/// 1 if a process could not write the log; close every connection, then open the database again.
pub static POISONED: Metric = Metric {
    name: "onewrite_poisoned",
    otel: "onewrite.poisoned",
    unit: "1",
    kind: Kind::Gauge,
    help: "1 if a process could not write the log; close every connection, then open the database again.",
};
/// Size of the log's file.
pub static LOG_BYTES: Metric = Metric {
    name: "onewrite_log_bytes",
    otel: "onewrite.log.size",
    unit: "By",
    kind: Kind::Gauge,
    help: "Size of the log's file.",
};
/// The last frame in the wal-index.
pub static LOG_FRAMES: Metric = Metric {
    name: "onewrite_log_frames",
    otel: "onewrite.log.frames",
    unit: "{frame}",
    kind: Kind::Gauge,
    help: "The last frame in the wal-index.",
};
/// Time from a commit's last frame until SQLite may report the commit.
pub static COMMIT_DURATION: Metric = Metric {
    name: "onewrite_commit_duration_seconds",
    otel: "onewrite.commit.duration",
    unit: "s",
    kind: Kind::Histogram,
    help: "Time from a commit's last frame until SQLite may report the commit.",
};
/// Time since the last commit of this process.
pub static LAST_COMMIT_AGE: Metric = Metric {
    name: "onewrite_last_commit_age_seconds",
    otel: "onewrite.commit.age",
    unit: "s",
    kind: Kind::Gauge,
    help: "Time since the last commit of this process.",
};
/// Time since this process last flushed the log with fdatasync.
pub static LAST_FLUSH_AGE: Metric = Metric {
    name: "onewrite_last_flush_age_seconds",
    otel: "onewrite.flush.age",
    unit: "s",
    kind: Kind::Gauge,
    help: "Time since this process last flushed the log with fdatasync.",
};
/// Time since a checkpoint of this process last copied pages.
pub static LAST_CHECKPOINT_AGE: Metric = Metric {
    name: "onewrite_last_checkpoint_age_seconds",
    otel: "onewrite.checkpoint.age",
    unit: "s",
    kind: Kind::Gauge,
    help: "Time since a checkpoint of this process last copied pages.",
};
/// Write calls for commits.
pub static WRITES: Metric = Metric {
    name: "onewrite_writes_total",
    otel: "onewrite.log.writes",
    unit: "{write}",
    kind: Kind::Counter,
    help: "Write calls for commits.",
};
/// Bytes of the write calls for commits.
pub static WRITE_BYTES: Metric = Metric {
    name: "onewrite_write_bytes_total",
    otel: "onewrite.log.write.size",
    unit: "By",
    kind: Kind::Counter,
    help: "Bytes of the write calls for commits.",
};
/// Write calls for commits that asked for write-through.
pub static WRITE_THROUGH: Metric = Metric {
    name: "onewrite_write_through_writes_total",
    otel: "onewrite.log.write_through",
    unit: "{write}",
    kind: Kind::Counter,
    help: "Write calls for commits that asked for write-through.",
};
/// Calls of fdatasync for commits.
pub static FLUSHES: Metric = Metric {
    name: "onewrite_flushes_total",
    otel: "onewrite.log.flushes",
    unit: "{flush}",
    kind: Kind::Counter,
    help: "Calls of fdatasync for commits.",
};
/// Write and allocation calls of preallocation.
pub static SETUP_WRITES: Metric = Metric {
    name: "onewrite_setup_writes_total",
    otel: "onewrite.setup.writes",
    unit: "{write}",
    kind: Kind::Counter,
    help: "Write and allocation calls of preallocation.",
};
/// Bytes that preallocation initialized.
pub static SETUP_WRITE_BYTES: Metric = Metric {
    name: "onewrite_setup_write_bytes_total",
    otel: "onewrite.setup.write.size",
    unit: "By",
    kind: Kind::Counter,
    help: "Bytes that preallocation initialized.",
};
/// Calls of fdatasync and fsync of preallocation.
pub static SETUP_FLUSHES: Metric = Metric {
    name: "onewrite_setup_flushes_total",
    otel: "onewrite.setup.flushes",
    unit: "{flush}",
    kind: Kind::Counter,
    help: "Calls of fdatasync and fsync of preallocation.",
};
/// Flushes for a group of commits.
pub static GROUP_FLUSHES: Metric = Metric {
    name: "onewrite_group_commit_flushes_total",
    otel: "onewrite.group_commit.flushes",
    unit: "{flush}",
    kind: Kind::Counter,
    help: "Flushes for a group of commits.",
};
/// Commits that were published before they were durable, and waited for a flush.
pub static GROUP_COMMITS: Metric = Metric {
    name: "onewrite_group_commit_commits_total",
    otel: "onewrite.group_commit.commits",
    unit: "{commit}",
    kind: Kind::Counter,
    help: "Commits that were published before they were durable, and waited for a flush.",
};
/// Statements that waited for the commits they were about to read.
pub static GROUP_READS: Metric = Metric {
    name: "onewrite_group_commit_reads_total",
    otel: "onewrite.group_commit.reads",
    unit: "{statement}",
    kind: Kind::Counter,
    help: "Statements that waited for the commits they were about to read.",
};
/// Waits for the flush of another process that reached their bound.
pub static GROUP_TIMEOUTS: Metric = Metric {
    name: "onewrite_group_commit_timeouts_total",
    otel: "onewrite.group_commit.timeouts",
    unit: "{wait}",
    kind: Kind::Counter,
    help: "Waits for the flush of another process that reached their bound.",
};
/// How often a checkpoint after a commit waited for another one.
pub static CHECKPOINT_WAITS: Metric = Metric {
    name: "onewrite_checkpoint_waits_total",
    otel: "onewrite.checkpoint.waits",
    unit: "{wait}",
    kind: Kind::Counter,
    help: "How often a checkpoint after a commit waited for another one.",
};
/// Groups that onewrite_group_synch wrote.
pub static SYNCH_GROUPS: Metric = Metric {
    name: "onewrite_group_synch_groups_total",
    otel: "onewrite.group_synch.groups",
    unit: "{group}",
    kind: Kind::Counter,
    help: "Groups that onewrite_group_synch wrote.",
};
/// Commits in the groups of onewrite_group_synch.
pub static SYNCH_COMMITS: Metric = Metric {
    name: "onewrite_group_synch_commits_total",
    otel: "onewrite.group_synch.commits",
    unit: "{commit}",
    kind: Kind::Counter,
    help: "Commits in the groups of onewrite_group_synch.",
};
/// Frames in the groups of onewrite_group_synch.
pub static SYNCH_FRAMES: Metric = Metric {
    name: "onewrite_group_synch_frames_total",
    otel: "onewrite.group_synch.frames",
    unit: "{frame}",
    kind: Kind::Counter,
    help: "Frames in the groups of onewrite_group_synch.",
};
/// Pages that checkpoints remapped instead of copying.
pub static REMAPPED_PAGES: Metric = Metric {
    name: "onewrite_remapped_pages_total",
    otel: "onewrite.checkpoint.remapped_pages",
    unit: "{page}",
    kind: Kind::Counter,
    help: "Pages that checkpoints remapped instead of copying.",
};
/// 1 if the database and its log could be read.
pub static UP: Metric = Metric {
    name: "onewrite_up",
    otel: "onewrite.up",
    unit: "1",
    kind: Kind::Gauge,
    help: "1 if the database and its log could be read.",
};
/// Size of the database's file.
pub static DATABASE_BYTES: Metric = Metric {
    name: "onewrite_database_bytes",
    otel: "onewrite.database.size",
    unit: "By",
    kind: Kind::Gauge,
    help: "Size of the database's file.",
};
/// 1 if the locks show that a process has the database open.
pub static IN_USE: Metric = Metric {
    name: "onewrite_in_use",
    otel: "onewrite.in_use",
    unit: "1",
    kind: Kind::Gauge,
    help: "1 if the locks show that a process has the database open.",
};
/// Problems that onewrite verify --quick finds in the headers, poison included.
pub static PROBLEMS: Metric = Metric {
    name: "onewrite_problems",
    otel: "onewrite.problems",
    unit: "{problem}",
    kind: Kind::Gauge,
    help: "Problems that onewrite verify --quick finds in the headers, poison included.",
};
/// Frames in the wal-index that no checkpoint has copied to the database.
pub static BEHIND: Metric = Metric {
    name: "onewrite_uncheckpointed_frames",
    otel: "onewrite.checkpoint.frames_behind",
    unit: "{frame}",
    kind: Kind::Gauge,
    help: "Frames in the wal-index that no checkpoint has copied to the database.",
};
/// Time since the log's file was last written, by its modification time.
pub static LOG_AGE: Metric = Metric {
    name: "onewrite_log_change_age_seconds",
    otel: "onewrite.log.change.age",
    unit: "s",
    kind: Kind::Gauge,
    help: "Time since the log's file was last written, by its modification time.",
};
/// Read marks of the wal-index that a reader holds; several readers may share one.
pub static READERS: Metric = Metric {
    name: "onewrite_read_marks_in_use",
    otel: "onewrite.readers.marks",
    unit: "{mark}",
    kind: Kind::Gauge,
    help: "Read marks of the wal-index that a reader holds; several readers may share one.",
};
/// Read marks in use that are older than the last frame, and hold up a checkpoint.
pub static OLD_READERS: Metric = Metric {
    name: "onewrite_read_marks_behind",
    otel: "onewrite.readers.marks_behind",
    unit: "{mark}",
    kind: Kind::Gauge,
    help: "Read marks in use that are older than the last frame, and hold up a checkpoint.",
};
/// Frames between the oldest read mark in use and the last frame.
pub static READER_LAG: Metric = Metric {
    name: "onewrite_oldest_reader_frames",
    otel: "onewrite.readers.frames_behind",
    unit: "{frame}",
    kind: Kind::Gauge,
    help: "Frames between the oldest read mark in use and the last frame.",
};
/// The process of the reader with the oldest read mark, if it is behind the last frame and the exporter can see it.
pub static OLDEST_READER_PID: Metric = Metric {
    name: "onewrite_oldest_reader_pid",
    otel: "onewrite.readers.oldest.pid",
    unit: "1",
    kind: Kind::Gauge,
    help: "The process of the reader with the oldest read mark, if it is behind the last frame and the exporter can see it.",
};
/// Time that the exporter took to look at all databases.
pub static SCRAPE_DURATION: Metric = Metric {
    name: "onewrite_exporter_scrape_duration_seconds",
    otel: "onewrite.exporter.scrape.duration",
    unit: "s",
    kind: Kind::Gauge,
    help: "Time that the exporter took to look at all databases.",
};
/// Processor time that the exporter has used since it started.
pub static PROCESS_CPU: Metric = Metric {
    name: "process_cpu_seconds_total",
    otel: "process.cpu.time",
    unit: "s",
    kind: Kind::Counter,
    help: "Processor time that the exporter has used since it started.",
};

/// All of them, in the order of the page.
pub static ALL: [(&Metric, Source); 37] = [
    (&INFO, Source::Both),
    (&GUARDED, Source::Both),
    (&POISONED, Source::Both),
    (&LOG_BYTES, Source::Both),
    (&LOG_FRAMES, Source::Both),
    (&COMMIT_DURATION, Source::Pragma),
    (&LAST_COMMIT_AGE, Source::Pragma),
    (&LAST_FLUSH_AGE, Source::Pragma),
    (&LAST_CHECKPOINT_AGE, Source::Pragma),
    (&WRITES, Source::Pragma),
    (&WRITE_BYTES, Source::Pragma),
    (&WRITE_THROUGH, Source::Pragma),
    (&FLUSHES, Source::Pragma),
    (&SETUP_WRITES, Source::Pragma),
    (&SETUP_WRITE_BYTES, Source::Pragma),
    (&SETUP_FLUSHES, Source::Pragma),
    (&GROUP_FLUSHES, Source::Pragma),
    (&GROUP_COMMITS, Source::Pragma),
    (&GROUP_READS, Source::Pragma),
    (&GROUP_TIMEOUTS, Source::Pragma),
    (&CHECKPOINT_WAITS, Source::Pragma),
    (&SYNCH_GROUPS, Source::Pragma),
    (&SYNCH_COMMITS, Source::Pragma),
    (&SYNCH_FRAMES, Source::Pragma),
    (&REMAPPED_PAGES, Source::Pragma),
    (&UP, Source::Exporter),
    (&DATABASE_BYTES, Source::Exporter),
    (&IN_USE, Source::Exporter),
    (&PROBLEMS, Source::Exporter),
    (&BEHIND, Source::Exporter),
    (&LOG_AGE, Source::Exporter),
    (&READERS, Source::Exporter),
    (&OLD_READERS, Source::Exporter),
    (&READER_LAG, Source::Exporter),
    (&OLDEST_READER_PID, Source::Exporter),
    (&SCRAPE_DURATION, Source::Exporter),
    (&PROCESS_CPU, Source::Exporter),
];
