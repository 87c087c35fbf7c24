//! Keeps initialized blocks ready ahead of the commits, so that a commit allocates nothing.
//!
//! The file's size is the one truth about what is ready, for all processes: blocks below it are
//! allocated and initialized, and it only grows by initialization or by a write that ends in a
//! flush. Whoever changes it holds the log's extension lock.
//!
//! The first chunk holds [`CHUNK_FRAMES`] frames, more than SQLite's default checkpoint threshold
//! of 1,000, so that a log which is checkpointed in time is never extended. When
//! [`LOW_WATER_FRAMES`] are left the next chunk is prepared by a thread of its own.
//!
//! The log of a closed database keeps as much of that as the database deserves: twice what this process
//! used, or an eighth of the database's size, and at least [`LEAST_BYTES`]. One that has become too small
//! grows by [`GROWTH`] each time, up to the first chunk.

use std::sync::PoisonError;
use std::time::Duration;

use crate::log::Geometry;
use crate::storage::{Init, LockByte, LockKind, LogFile, StorageError};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Instant, Mutex};
use crate::waits::{MOMENT, Patience, STUCK_LOCK, Short};
use crate::wal::FrameNo;

/// Frames of a chunk, where pages are of ordinary size.
const CHUNK_FRAMES: u32 = if cfg!(shuttle) { 16 } else { 1536 };
/// A chunk is never larger than this, in bytes: large pages make fewer frames.
const CHUNK_BYTES: u64 = 16 << 20;
/// What the log of a closed database keeps at least, in bytes and in frames.
const LEAST_BYTES: u64 = 64 << 10;
const LEAST_FRAMES: u32 = 4;
/// How many times its size a log has that was small and is used more.
const GROWTH: u64 = 4;
/// So many frames before the end the next chunk is prepared.
const LOW_WATER_FRAMES: u64 = if cfg!(shuttle) { 4 } else { 160 };

/// See the module.
pub struct Space {
    /// What this process saw to be ready when it looked last, in bytes.
    ready: AtomicU64,
    preparing: AtomicBool,
    /// How far this process has used the log, in bytes.
    used: AtomicU64,
    /// The threads of this process share the file's extension lock; this keeps them apart. And when the lock was last
    /// not to be had in time.
    extending: Mutex<Option<Instant>>,
    /// It was not to be had when it was last asked for.
    is_stuck: AtomicBool,
    excludes: Excludes,
}

/// Who else may change the size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Excludes {
    /// Other processes, and threads of this one.
    Processes,
    /// Threads of this process: against others SQLite's write lock is held.
    Threads,
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
    bytes.next_multiple_of(geometry.unit().max(4096))
}

/// How large a log must be to be used as it is.
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
            extending: Mutex::new(None),
            is_stuck: AtomicBool::new(false),
            excludes,
        }
    }

    pub fn lacks(&self, end: u64) -> bool {
        end > self.ready.load(Ordering::Relaxed)
    }

    /// The size was looked up: another process may have changed it.
    pub fn refresh(&self, size: u64) {
        self.ready.store(size, Ordering::Relaxed);
    }

    /// Whether another process did not let the size be changed when it was last to be.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }

    pub fn is_running_low(&self, geometry: &Geometry, end: u64) -> bool {
        self.used.fetch_max(end, Ordering::Relaxed);
        let low = (LOW_WATER_FRAMES * geometry.slot_bytes()).min(CHUNK_BYTES / 8);
        let low = low.min(self.ready.load(Ordering::Relaxed) / GROWTH);
        self.lacks(end + low) && !self.preparing.load(Ordering::Relaxed)
    }

    /// How large the file of a closed database's log is to be, given the database's size, in bytes.
    pub fn at_rest(&self, geometry: &Geometry, database: u64) -> u64 {
        let used = 2 * self.used.load(Ordering::Relaxed);
        let kept = least_end(geometry).max(used).max(database / 8);
        in_blocks(geometry, kept).min(chunk_end(geometry, 0))
    }

    /// Where the blocks of a log that is made are to end, if they end at `size`: the log of a database that was
    /// closed has some already.
    pub fn first_end(geometry: &Geometry, size: u64) -> u64 {
        match size >= least_end(geometry) {
            true => size,
            false => chunk_end(geometry, 0),
        }
    }

    /// Initializes one more chunk, unless somebody else is at it.
    pub fn prepare_next(
        &self,
        file: &LogFile,
        geometry: &Geometry,
        init: Init,
    ) -> Result<(), StorageError> {
        if self.preparing.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let known = self.ready.load(Ordering::Relaxed);
        // Another process may have added the chunk meanwhile.
        let target = |size| match size > known {
            true => size,
            false => chunk_end(geometry, size),
        };
        let done = match file.is_locked_by_other(LockByte::Extension, LockKind::Exclusive) {
            Ok(false) => self.extend(file, init, &Short, target),
            other => other.map(drop),
        };
        self.preparing.store(false, Ordering::Release);
        done
    }

    /// Makes everything up to `end` ready: a whole chunk where there is room for it,
    /// else as much as is needed.
    pub fn ensure(
        &self,
        file: &LogFile,
        geometry: &Geometry,
        init: Init,
        patience: &dyn Patience,
        end: u64,
    ) -> Result<(), StorageError> {
        let chunk = self.extend(file, init, patience, |size| match size >= end {
            true => size,
            false => chunk_end(geometry, size).max(end),
        });
        match chunk {
            // A flush that found no space has lost what was written before, and is not tried again.
            Err(e) if e.is_no_space() && !e.is_of_flush() => {
                self.extend(file, init, patience, |size| size.max(end))
            }
            other => other,
        }
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

    /// Initializes what `target` makes of the size, if that is more.
    pub fn extend(
        &self,
        file: &LogFile,
        init: Init,
        patience: &dyn Patience,
        target: impl FnOnce(u64) -> u64,
    ) -> Result<(), StorageError> {
        self.locked(file, patience, || {
            let size = file.size()?;
            let end = target(size);
            if end > size {
                file.initialize(size..end, init)
            } else {
                Ok(())
            }
        })
    }

    /// Changes the file's size, or writes what makes its own blocks behind those that are ready. A thread of this
    /// process is waited for: it is at the device. A process, which may have been stopped, for as long as patience
    /// lasts.
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
