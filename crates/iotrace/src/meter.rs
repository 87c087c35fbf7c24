//! What a device did between two moments.
//!
//! The caller takes a [`Mark`] at each boundary and asks for the [`Figures`] between two of them.
//! [`Meter::settle`] is a boundary that nothing crosses: everything written before it has reached the
//! device and nothing is under way. [`Meter::mark`] is the present moment, whatever is under way;
//! what has been completed by then belongs before it.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::Error;
use crate::device::{BlockDevice, Counters};

/// How long a device may take to become idle after a sync.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a mark is tried again because a request completed while it was taken.
const TRIES: u32 = 1_000;

/// A moment, and what the device had completed by then.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// The device's counters at that moment.
    pub counters: Counters,
}

/// Bytes written, by what they were written for. Together they are all bytes written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ByFile {
    /// The file system's own journal or log.
    pub fs_journal_bytes: u64,
    /// Other metadata of the file system: inodes, bitmaps, directories, extent trees, superblock.
    pub fs_metadata_bytes: u64,
    /// SQLite's log or rollback journal.
    pub log_bytes: u64,
    /// The database file.
    pub database_bytes: u64,
    /// Other files.
    pub other_bytes: u64,
}

/// What a device completed between two marks.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// The device's own counters.
    pub counters: Counters,
    /// Write requests that carried data; `None` where they could not be traced.
    pub writes: Option<u64>,
    /// The bytes by file; `None` where they could not be traced.
    pub by_file: Option<ByFile>,
}

/// Watches one device that holds one file system.
#[derive(Debug)]
pub struct Meter {
    device: BlockDevice,
    root: File,
}

impl Meter {
    /// A meter for `device`, which holds the file system mounted at `root`.
    pub fn new(device: BlockDevice, root: &Path) -> Result<Self, Error> {
        let root = File::open(root).map_err(Error::io("open", root))?;
        Ok(Self { device, root })
    }

    /// Writes out everything the file system has in memory and waits until the device is idle.
    pub fn settle(&self) -> Result<Mark, Error> {
        // The first may leave something for the second: writing file data makes metadata to write.
        for _ in 0..2 {
            rustix::fs::syncfs(&self.root)
                .map_err(Error::io("syncfs", Path::new(self.device.name())))?;
        }
        self.device.wait_idle(PATIENCE)?;
        self.mark()
    }

    /// What was completed between the marks of each pair, in the order given, and what the reader
    /// should know about it.
    pub fn finish(self, windows: &[(Mark, Mark)]) -> (Vec<Figures>, Vec<String>) {
        let figures = windows
            .iter()
            .map(|(from, to)| Figures {
                counters: to.counters.since(from.counters),
                writes: None,
                by_file: None,
            })
            .collect();
        (figures, Vec::new())
    }

    /// The present moment: counters that were the same just before and just after it.
    pub fn mark(&self) -> Result<Mark, Error> {
        let mut before = self.device.counters()?;
        for _ in 0..TRIES {
            let at_ns = now_ns();
            let after = self.device.counters()?;
            if before == after {
                return Ok(Mark {
                    at_ns,
                    counters: after,
                });
            }
            before = after;
        }
        Err(Error::Unavailable(format!(
            "{}: the counters never stood still",
            self.device.name()
        )))
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}
