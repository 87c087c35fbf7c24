//! Keeps initialized blocks ready ahead of the commits, so that a commit allocates nothing.
//!
//! The file's size tells all processes what is ready. Blocks below it are allocated and
//! initialized. It only grows by initialization, or by a write that ends in a flush. A process that
//! changes it holds the log's extension lock.
//!
//! The first chunk holds [`CHUNK_FRAMES`] frames, more than SQLite's default checkpoint threshold
//! of 1,000. So a log that is checkpointed in time is never extended. When [`LOW_WATER_FRAMES`] are
//! left, a separate thread prepares the next chunk.
//!
//! A flush waits for what was written before it, so zeros hold up the commits of others, too. Hence
//! a log grows by steps, each with its own flush. A step is as large as the device can take in
//! [`GROWTH_STEP`], as measured at the steps before, and [`LEAST_STEP`] at least: otherwise a device
//! with slow flushes would have one for every few frames.
//!
//! SQLite's own log has no such thread, as another SQLite may write to it: there the commit that needs
//! blocks prepares them, and others wait for it. So these steps are the smallest, and have no flush if the
//! commit's own covers them ([`Covered`]).
//!
//! The log of a closed database keeps part of that. It is twice what this process used, or an
//! eighth of the database's size, and at least [`LEAST_BYTES`]. One that has become too small grows
//! by [`GROWTH`] each time, up to the first chunk.

use std::ops::Range;
use std::sync::PoisonError;
use std::time::Duration;

use crate::log::Geometry;
use crate::storage::{Init, LockByte, LockKind, LogFile, StorageError, most_bytes_of_a_file};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Instant, Mutex, sleep};
use crate::waits::{GROWTH_STEP, LONGEST_PAUSE, MOMENT, Patience, STUCK_LOCK, Short};
use crate::wal::FrameNo;

/// Frames of a chunk, where pages are of ordinary size.
const CHUNK_FRAMES: u32 = if cfg!(shuttle) { 16 } else { 1536 };
/// The most bytes of a chunk: with large pages it has fewer frames.
const CHUNK_BYTES: u64 = 16 << 20;
/// The least that the log of a closed database keeps, in bytes and in frames.
const LEAST_BYTES: u64 = 64 << 10;
const LEAST_FRAMES: u32 = 4;
/// The factor by which a small log grows that is used more.
const GROWTH: u64 = 4;
/// SQLite's own log begins with this, or with what the first commit needs. The last close removes it.
const SMALLEST: u64 = 32 << 10;
/// The step of its growth.
const SMALL_STEP: u64 = 256 << 10;
/// The smallest step of other logs.
const LEAST_STEP: u64 = 1 << 20;
/// How many frames before the end the next chunk is prepared.
const LOW_WATER_FRAMES: u64 = if cfg!(shuttle) { 4 } else { 160 };

/// See the module.
pub struct Space {
    /// The bytes that this process saw ready at its last look.
    ready: AtomicU64,
    preparing: AtomicBool,
    /// How far this process has used the log, in bytes.
    used: AtomicU64,
    /// The bytes of the next step of growth.
    step: AtomicU64,
    /// Separates the threads of this process, which share the file's extension lock. The value is
    /// when the lock was last not free in time.
    extending: Mutex<Option<Instant>>,
    /// Whether the lock was not free at the last request.
    is_stuck: AtomicBool,
    excludes: Excludes,
}

/// Who else may change the size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Excludes {
    /// Other processes, and threads of this one.
    Processes,
    /// Threads of this process: SQLite's write lock excludes other processes.
    Threads,
}

/// How the blocks of a step of SQLite's own log become durable, and the file's size with them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Covered {
    /// The write or flush that makes the commit durable (fdatasync(2), or RWF_DSYNC).
    ByTheCommit,
    /// A flush of its own.
    ByItself,
}

/// Where the chunk ends that begins at `from`, or at the log's start.
pub fn chunk_end(geometry: &Geometry, from: u64) -> u64 {
    let whole = geometry.end_of(FrameNo(CHUNK_FRAMES));
    let chunk = whole.min(CHUNK_BYTES.max(geometry.end_of(FrameNo(16))));
    let end = match from {
        0 => chunk,
        small if small < chunk => (small * GROWTH).min(chunk),
        _ => from + chunk,
    };
    in_blocks(geometry, end)
}

fn in_blocks(geometry: &Geometry, bytes: u64) -> u64 {
    bytes.next_multiple_of(block_bytes(geometry))
}

/// A log ends with a whole block of the device, and of its layout.
fn block_bytes(geometry: &Geometry) -> u64 {
    geometry.unit().max(4096)
}

/// Where blocks end that are made ahead, if `end` is needed: the process may not make larger files.
pub fn ahead(geometry: &Geometry, target: u64, end: u64) -> u64 {
    let most = most_bytes_of_a_file();
    target.min(most - most % block_bytes(geometry)).max(end)
}

/// The next step, after `bytes` were initialized and flushed in `time`.
fn step_after(bytes: u64, time: Duration) -> u64 {
    let in_a_step = u128::from(bytes) * GROWTH_STEP.as_nanos() / time.as_nanos().max(1);
    u64::try_from(in_a_step)
        .unwrap_or(u64::MAX)
        .clamp(LEAST_STEP, CHUNK_BYTES)
}

/// The size from which a log is used as it is.
fn least_end(geometry: &Geometry) -> u64 {
    let least = LEAST_BYTES.max(geometry.end_of(FrameNo(LEAST_FRAMES)));
    in_blocks(geometry, least).min(chunk_end(geometry, 0))
}

impl Space {
    pub fn new(size: u64, excludes: Excludes) -> Space {
        Space {
            ready: AtomicU64::new(size),
            preparing: AtomicBool::new(false),
            used: AtomicU64::new(0),
            step: AtomicU64::new(match excludes {
                Excludes::Processes => LEAST_STEP,
                Excludes::Threads => SMALL_STEP,
            }),
            extending: Mutex::new(None),
            is_stuck: AtomicBool::new(false),
            excludes,
        }
    }

    pub fn lacks(&self, end: u64) -> bool {
        end > self.ready.load(Ordering::Relaxed)
    }

    /// The size was read: another process may have changed it.
    pub fn refresh(&self, size: u64) {
        self.ready.store(size, Ordering::Relaxed);
    }

    /// Whether another process prevented the last change of the size.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }

    pub fn is_running_low(&self, geometry: &Geometry, end: u64) -> bool {
        self.used.fetch_max(end, Ordering::Relaxed);
        let low = (LOW_WATER_FRAMES * geometry.slot_bytes()).min(CHUNK_BYTES / 8);
        let low = low.min(self.ready.load(Ordering::Relaxed) / GROWTH);
        self.lacks(end + low)
            && !self.preparing.load(Ordering::Relaxed)
            && !self.is_at_limit(geometry)
    }

    /// Whether the process may not make the log any larger.
    fn is_at_limit(&self, geometry: &Geometry) -> bool {
        self.ready.load(Ordering::Relaxed) >= ahead(geometry, u64::MAX, 0)
    }

    /// The file size for a closed database's log, from the database's size, in bytes.
    pub fn at_rest(&self, geometry: &Geometry, database: u64) -> u64 {
        let used = 2 * self.used.load(Ordering::Relaxed);
        let kept = least_end(geometry).max(used).max(database / 8);
        in_blocks(geometry, kept).min(chunk_end(geometry, 0))
    }

    /// Where the blocks of a new log are to end, if they end at `size` now: the log of a closed
    /// database already has some.
    pub fn first_end(geometry: &Geometry, size: u64) -> u64 {
        match size >= least_end(geometry) {
            true => size,
            false => ahead(geometry, chunk_end(geometry, 0), size),
        }
    }

    /// Initializes one more chunk, step by step, unless another thread or process does so.
    pub fn prepare_next(
        &self,
        file: &LogFile,
        geometry: &Geometry,
        init: Init,
    ) -> Result<(), StorageError> {
        if self.preparing.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let done = match file.is_locked_by_other(LockByte::Extension, LockKind::Exclusive) {
            Ok(false) => self.prepare_chunk(file, geometry, init),
            other => other.map(drop),
        };
        self.preparing.store(false, Ordering::Release);
        done
    }

    fn prepare_chunk(
        &self,
        file: &LogFile,
        geometry: &Geometry,
        init: Init,
    ) -> Result<(), StorageError> {
        let mut known = self.ready.load(Ordering::Relaxed);
        let chunk = ahead(geometry, chunk_end(geometry, known), known);
        while known < chunk {
            let next = self.step_from(geometry, known).min(chunk);
            let mut is_own = false;
            self.extend(file, init, &Short, |size| {
                is_own = size == known;
                if is_own { next } else { size }
            })?;
            if !is_own {
                // Another thread or process has changed the size, and prepares the rest.
                break;
            }
            known = next;
            if known < chunk {
                // A commit that waits for the lock goes first.
                sleep(LONGEST_PAUSE);
            }
        }
        Ok(())
    }

    /// Makes everything up to `end` ready: a step towards a whole chunk if there is room for it,
    /// otherwise as much as is needed. SQLite's own log begins small, since a program may make one
    /// commit and close.
    pub fn ensure(
        &self,
        file: &LogFile,
        geometry: &Geometry,
        init: Init,
        patience: &dyn Patience,
        end: u64,
        covered: Covered,
    ) -> Result<(), StorageError> {
        let extend = |target: &dyn Fn(u64) -> u64| {
            self.extend_with(file, patience, target, |range| match covered {
                Covered::ByTheCommit => file.initialize_for_commit(range, init),
                Covered::ByItself => self.initialize(file, range, init),
            })
        };
        let step = extend(&|size| match size {
            0 => ahead(geometry, in_blocks(geometry, end).max(SMALLEST), end),
            _ if size >= end => size,
            _ => ahead(geometry, self.step_from(geometry, size), end),
        });
        match step {
            // A flush that found no space has lost earlier writes, and is not retried.
            Err(e) if e.is_no_space() && !e.is_of_flush() => extend(&|size| size.max(end)),
            other => other,
        }
    }

    /// The next step towards the end of the chunk that begins at `size`.
    fn step_from(&self, geometry: &Geometry, size: u64) -> u64 {
        let step = in_blocks(geometry, size + self.step.load(Ordering::Relaxed));
        step.min(chunk_end(geometry, size))
    }

    pub fn shrink(
        &self,
        file: &LogFile,
        patience: &dyn Patience,
        size: u64,
    ) -> Result<(), StorageError> {
        self.locked(file, patience, || match file.size()? > size {
            true => file.truncate(size),
            false => Ok(()),
        })
    }

    /// Initializes up to what `target` computes from the size, if that is more.
    pub fn extend(
        &self,
        file: &LogFile,
        init: Init,
        patience: &dyn Patience,
        target: impl FnOnce(u64) -> u64,
    ) -> Result<(), StorageError> {
        self.extend_with(file, patience, target, |range| {
            self.initialize(file, range, init)
        })
    }

    fn extend_with(
        &self,
        file: &LogFile,
        patience: &dyn Patience,
        target: impl FnOnce(u64) -> u64,
        initialize: impl FnOnce(Range<u64>) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        self.locked(file, patience, || {
            let size = file.size()?;
            let end = target(size);
            match end > size {
                true => initialize(size..end),
                false => Ok(()),
            }
        })
    }

    /// Initializes and flushes, and learns from the time how large the next step may be.
    fn initialize(
        &self,
        file: &LogFile,
        range: Range<u64>,
        init: Init,
    ) -> Result<(), StorageError> {
        let (bytes, began) = (range.end - range.start, Instant::now());
        let made = file.initialize(range, init);
        if self.excludes == Excludes::Processes {
            let step = step_after(bytes, Instant::now() - began);
            self.step.store(step, Ordering::Relaxed);
        }
        made
    }

    /// Changes the file's size, or makes a write that creates its own blocks beyond the ready ones.
    /// Waits for a thread of this process, because that one is using the device. A process may have
    /// been stopped, so waits for it only as long as patience lasts.
    pub fn locked(
        &self,
        file: &LogFile,
        patience: &dyn Patience,
        change: impl FnOnce() -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let mut gave_up = self
            .extending
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let excludes_processes = self.excludes == Excludes::Processes;
        if excludes_processes {
            // A transaction that must spill asks for every page.
            let is_stuck = gave_up.is_some_and(|then| Instant::now() - then < STUCK_LOCK);
            let moment = if is_stuck { Duration::ZERO } else { MOMENT };
            let (byte, kind) = (LockByte::Extension, LockKind::Exclusive);
            let locked = file.lock(byte, kind, (moment, patience));
            *gave_up = locked.is_err().then(Instant::now);
            self.is_stuck.store(locked.is_err(), Ordering::Relaxed);
            locked?;
        }
        let changed = file.check_locks().and_then(|()| change());
        let size = file.size();
        let unlocked = match excludes_processes {
            true => file.unlock(LockByte::Extension),
            false => Ok(()),
        };
        self.ready
            .store(*size.as_ref().unwrap_or(&0), Ordering::Relaxed);
        changed.and(size.map(drop)).and(unlocked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mode::Layout;
    use crate::storage::{Access, Create, DirectIo, NewFile};
    use crate::wal::PageSize;

    #[test]
    fn a_step_takes_as_long_as_commits_may_wait() {
        let mib = 1 << 20;
        let after = |bytes, us| step_after(bytes, Duration::from_micros(us));
        assert_eq!(after(6 * mib, 12_000), 2 * mib);
        assert_eq!(after(6 * mib, 1_000_000), LEAST_STEP);
        assert_eq!(after(6 * mib, 1), CHUNK_BYTES);
        assert_eq!(after(mib, 0), CHUNK_BYTES);
    }

    fn file_in(dir: &tempfile::TempDir) -> LogFile {
        let create = Create::IfMissing(NewFile {
            mode: 0o600,
            owner: None,
        });
        let path = dir.path().join("log");
        LogFile::open(&path, create, Access::ReadWrite, DirectIo::Never).unwrap()
    }

    fn geometry() -> Geometry {
        Geometry::new(Layout::Stock, PageSize::new(4096).unwrap(), 1).unwrap()
    }

    #[test]
    fn sqlites_own_log_grows_by_small_steps_without_a_flush() {
        let dir = tempfile::tempdir().unwrap();
        let (file, geometry) = (file_in(&dir), geometry());
        let space = Space::new(0, Excludes::Threads);
        let by = Covered::ByTheCommit;
        let ensure = |end| space.ensure(&file, &geometry, Init::ZeroFill, &Short, end, by);
        let size = || file.size().unwrap();
        // A program may make one commit and close.
        ensure(5000).unwrap();
        assert_eq!(size(), SMALLEST);
        // A small log grows by a factor.
        ensure(size() + 1).unwrap();
        assert_eq!(size(), SMALLEST * GROWTH);
        let from = size();
        for step in 1..5 {
            ensure(size() + 1).unwrap();
            assert_eq!(size(), from + step * SMALL_STEP);
        }
        // A large commit needs more than a step.
        ensure(size() + 5 * SMALL_STEP).unwrap();
        assert_eq!(size(), from + 9 * SMALL_STEP);
        let flushes = || file.counters().setup_flushes.load(Ordering::Relaxed);
        assert_eq!(flushes(), 0);
        let (zeros, by, end) = (Init::ZeroFill, Covered::ByItself, size() + 1);
        space
            .ensure(&file, &geometry, zeros, &Short, end, by)
            .unwrap();
        assert_eq!((size(), flushes()), (from + 10 * SMALL_STEP, 1));
    }

    #[test]
    fn a_thread_prepares_a_chunk_by_steps_with_a_flush_each() {
        let dir = tempfile::tempdir().unwrap();
        let (file, geometry) = (file_in(&dir), geometry());
        let first = chunk_end(&geometry, 0);
        let space = Space::new(0, Excludes::Processes);
        space
            .extend(&file, Init::ZeroFill, &Short, |_| first)
            .unwrap();
        let flushes = || file.counters().setup_flushes.load(Ordering::Relaxed);
        assert_eq!((file.size().unwrap(), flushes()), (first, 1));
        space.step.store(LEAST_STEP, Ordering::Relaxed);
        space
            .prepare_next(&file, &geometry, Init::ZeroFill)
            .unwrap();
        assert_eq!(file.size().unwrap(), chunk_end(&geometry, first));
        assert!(flushes() > 2, "{}", flushes());
    }
}
