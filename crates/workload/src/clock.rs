//! Times that are comparable between threads, processes and the kernel's trace; and this process's
//! CPU time and memory.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// A moment of `CLOCK_MONOTONIC`, in nanoseconds. The clock is the same in every process of the
/// machine. A trace with `trace_clock=mono` stamps its events with it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The present moment.
    pub fn now() -> Self {
        Self(nanos(clock_gettime(ClockId::Monotonic)))
    }

    /// Seconds from `earlier` to this moment; 0 if `earlier` is later.
    pub fn seconds_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / 1e9
    }
}

/// User and system time this process has used so far, in nanoseconds.
pub fn process_cpu_nanos() -> u64 {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

/// The peak memory of this process, in KiB, including pages of mapped files; `None` if the kernel
/// does not report it.
pub fn process_peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn nanos(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let below = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(below)
}
