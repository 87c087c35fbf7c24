//! Counts what this process has sent to one log file, for `PRAGMA onewrite_status` and tests.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Running totals of one [`LogFile`](super::LogFile). Setup (preallocation) and the work of commits
/// are counted apart, so that neither hides in the other.
///
/// Relaxed atomics: each total is exact, but two of them read in turn may be of different moments.
#[derive(Debug, Default)]
pub struct IoCounters {
    /// Write calls for commits. The continuation of a short write counts again.
    pub writes: AtomicU64,
    /// Bytes of these writes.
    pub write_bytes: AtomicU64,
    /// Those of `writes` that asked the kernel for write-through (`RWF_DSYNC`).
    pub write_through: AtomicU64,
    /// Calls that make the kernel begin to write (sync_file_range).
    pub begun: AtomicU64,
    /// fdatasync calls for commits.
    pub flushes: AtomicU64,
    /// Write and allocation calls of preallocation.
    pub setup_writes: AtomicU64,
    /// Bytes that preallocation initialized by writing or by write-zeroes.
    pub setup_write_bytes: AtomicU64,
    /// fdatasync calls of preallocation, and fsync calls on the directory.
    pub setup_flushes: AtomicU64,
    /// When the last fdatasync returned: microseconds since [`begin`], and 1; 0 for never.
    last_flush: AtomicU64,
}

/// A moment of this process, before everything that is timed by it.
fn begin() -> Instant {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    *BEGIN.get_or_init(Instant::now)
}

/// The values of [`IoCounters`] at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct IoCounts {
    /// Write calls for commits.
    pub writes: u64,
    /// Bytes of these writes.
    pub write_bytes: u64,
    /// Those of `writes` that asked the kernel for write-through.
    pub write_through: u64,
    /// Calls that make the kernel begin to write.
    pub begun: u64,
    /// fdatasync calls for commits.
    pub flushes: u64,
    /// Write and allocation calls of preallocation.
    pub setup_writes: u64,
    /// Bytes that preallocation initialized.
    pub setup_write_bytes: u64,
    /// fdatasync and fsync calls of preallocation.
    pub setup_flushes: u64,
}

impl IoCounters {
    /// Counts the work since `before` as setup.
    pub(super) fn was_setup(&self, before: &IoCounts) {
        let now = self.snapshot();
        for (from, to, count) in [
            (&self.writes, &self.setup_writes, now.writes - before.writes),
            (
                &self.write_bytes,
                &self.setup_write_bytes,
                now.write_bytes - before.write_bytes,
            ),
            (
                &self.flushes,
                &self.setup_flushes,
                now.flushes - before.flushes,
            ),
        ] {
            from.fetch_sub(count, Relaxed);
            to.fetch_add(count, Relaxed);
        }
        self.write_through
            .fetch_sub(now.write_through - before.write_through, Relaxed);
    }

    /// The values now.
    #[must_use]
    pub fn snapshot(&self) -> IoCounts {
        IoCounts {
            writes: self.writes.load(Relaxed),
            write_bytes: self.write_bytes.load(Relaxed),
            write_through: self.write_through.load(Relaxed),
            begun: self.begun.load(Relaxed),
            flushes: self.flushes.load(Relaxed),
            setup_writes: self.setup_writes.load(Relaxed),
            setup_write_bytes: self.setup_write_bytes.load(Relaxed),
            setup_flushes: self.setup_flushes.load(Relaxed),
        }
    }

    pub(super) fn count_flush(&self) {
        self.flushes.fetch_add(1, Relaxed);
        let since = begin().elapsed().as_micros() as u64;
        self.last_flush.store(since + 1, Relaxed);
    }

    /// The time since the last fdatasync, for commits or for preallocation; `None` without one.
    #[must_use]
    pub fn flush_age(&self) -> Option<Duration> {
        let at = self.last_flush.load(Relaxed).checked_sub(1)?;
        Some(begin().elapsed().saturating_sub(Duration::from_micros(at)))
    }

    pub(super) fn count_write(&self, bytes: usize) {
        self.writes.fetch_add(1, Relaxed);
        self.write_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn count_setup(&self, bytes: u64) {
        self.setup_writes.fetch_add(1, Relaxed);
        self.setup_write_bytes.fetch_add(bytes, Relaxed);
    }
}
