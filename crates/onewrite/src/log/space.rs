//! Keeps initialized blocks ready ahead of the commits, so that a commit allocates nothing.
//!
//! The file's size is the one truth about what is ready, for all processes: blocks below it are
//! allocated and initialized, and it only grows by initialization or by a write that ends in a
//! flush. Whoever changes it holds the log's extension lock.
//!
//! The first chunk holds [`CHUNK_FRAMES`] frames, more than SQLite's default checkpoint threshold
//! of 1,000, so that a log which is checkpointed in time is never extended. When
//! [`LOW_WATER_FRAMES`] are left the next chunk is prepared by a thread of its own.

use std::sync::PoisonError;

use crate::log::Geometry;
use crate::storage::{Init, LockByte, LockKind, LogFile, StorageError};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::wal::FrameNo;

/// Frames of a chunk, where pages are of ordinary size.
const CHUNK_FRAMES: u32 = if cfg!(shuttle) { 16 } else { 1536 };
/// A chunk is never larger than this, in bytes: large pages make fewer frames.
const CHUNK_BYTES: u64 = 16 << 20;
/// So many frames before the end the next chunk is prepared.
const LOW_WATER_FRAMES: u64 = if cfg!(shuttle) { 4 } else { 160 };

/// See the module.
pub struct Space {
    /// What this process saw to be ready when it looked last, in bytes.
    ready: AtomicU64,
    preparing: AtomicBool,
    /// The threads of this process share the file's extension lock; this keeps them apart.
    extending: Mutex<()>,
}

/// Where the chunk ends that begins at `from`, or at the log's start.
pub fn chunk_end(geometry: &Geometry, from: u64) -> u64 {
    let whole = geometry.end_of(FrameNo(CHUNK_FRAMES));
    let chunk = whole.min(CHUNK_BYTES.max(geometry.end_of(FrameNo(16))));
    (from + chunk).next_multiple_of(geometry.unit().max(4096))
}

impl Space {
    pub fn new(size: u64) -> Space {
        Space {
            ready: AtomicU64::new(size),
            preparing: AtomicBool::new(false),
            extending: Mutex::new(()),
        }
    }

    pub fn lacks(&self, end: u64) -> bool {
        end > self.ready.load(Ordering::Relaxed)
    }

    /// The size was looked up: another process may have changed it.
    pub fn refresh(&self, size: u64) {
        self.ready.store(size, Ordering::Relaxed);
    }

    pub fn is_running_low(&self, geometry: &Geometry, end: u64) -> bool {
        let low = (LOW_WATER_FRAMES * geometry.slot_bytes()).min(CHUNK_BYTES / 8);
        self.lacks(end + low) && !self.preparing.load(Ordering::Relaxed)
    }

    /// Initializes the first chunk of a new log.
    pub fn prepare(
        &self,
        file: &LogFile,
        geometry: &Geometry,
        init: Init,
    ) -> Result<(), StorageError> {
        self.extend(file, init, |size| chunk_end(geometry, 0).max(size))
    }

    /// Initializes one more chunk, unless another thread is at it.
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
        let done = self.extend(file, init, |size| match size > known {
            true => size,
            false => chunk_end(geometry, size),
        });
        self.preparing.store(false, Ordering::Release);
        done
    }

    /// Makes sure that everything up to `end` is ready: a whole chunk where there is room for it,
    /// else as much as is needed.
    pub fn ensure(
        &self,
        file: &LogFile,
        geometry: &Geometry,
        init: Init,
        end: u64,
    ) -> Result<(), StorageError> {
        if !self.lacks(end) {
            return Ok(());
        }
        let chunk = self.extend(file, init, |size| match size >= end {
            true => size,
            false => chunk_end(geometry, size).max(end),
        });
        match chunk {
            // A flush that found no space has lost what was written before, and is not tried again.
            Err(e) if e.is_no_space() && !e.is_of_flush() => {
                self.extend(file, init, |size| size.max(end))
            }
            other => other,
        }
    }

    /// Runs a write that makes its own blocks, behind those that are ready.
    pub fn write_beyond(
        &self,
        file: &LogFile,
        write: impl FnOnce() -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        self.locked(file, write)
    }

    pub fn shrink(&self, file: &LogFile, size: u64) -> Result<(), StorageError> {
        self.locked(file, || match file.size()? > size {
            true => file.truncate(size),
            false => Ok(()),
        })
    }

    fn extend(
        &self,
        file: &LogFile,
        init: Init,
        target: impl FnOnce(u64) -> u64,
    ) -> Result<(), StorageError> {
        self.locked(file, || {
            let size = file.size()?;
            let end = target(size);
            if end > size {
                file.initialize(size..end, init)
            } else {
                Ok(())
            }
        })
    }

    fn locked(
        &self,
        file: &LogFile,
        change: impl FnOnce() -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let _extending = self
            .extending
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        file.lock(LockByte::Extension, LockKind::Exclusive)?;
        let changed = change();
        let size = file.size();
        let unlocked = file.unlock(LockByte::Extension);
        self.ready
            .store(*size.as_ref().unwrap_or(&0), Ordering::Relaxed);
        changed.and(size.map(drop)).and(unlocked)
    }
}
