//! The place of the bytes, and the engine's only way to the outside.
//!
//! A handle of the database owns one [`Storage`]. Handles on the same database, of one process or
//! of several, work together through their storages. These share the bytes of the file, eight locks
//! and a small shared memory. The engine never waits for a lock: it tries, and returns `Busy`.

use std::io;

/// One of the eight locks. The numbers are those of SQLite's `xShmLock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lock(pub u8);

impl Lock {
    /// Held by the writer, exclusively.
    pub const WRITE: Lock = Lock(0);
    /// Held exclusively by a handle that prepares the shared memory or recovers.
    pub const RECOVER: Lock = Lock(1);
    /// Held, shared, by every handle while it is open. The handle that gets it exclusively is the
    /// last one.
    pub const OPEN: Lock = Lock(2);
    /// The first of the [`READERS`] locks of the read marks.
    pub const READ: Lock = Lock(3);
    /// The number of locks.
    pub const COUNT: u8 = 8;
}

/// The number of read marks, and of their locks.
pub const READERS: usize = 5;

/// The mode of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Together with other shared holders.
    Shared,
    /// Alone.
    Exclusive,
}

/// A file with locks and shared memory.
///
/// Offsets and sizes are bytes. All writes are whole pages of 4,096 bytes at multiples of that, so
/// that direct I/O is possible. Buffers are not aligned: an implementation that needs alignment
/// copies.
pub trait Storage: Send {
    /// Reads at an offset. Returns the number of bytes before the end of the file; the rest of the
    /// buffer stays unchanged.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Reads of these offsets and lengths will follow, in any order. A storage that can begin to read
    /// many places at once may do so.
    fn will_read(&self, ranges: &[(u64, u64)]) {
        let _ = ranges;
    }

    /// Writes all of `data`, extending the file when needed. A later [`Storage::sync`] makes it
    /// durable. Until then a power cut may keep it, drop it, or tear it at units of
    /// [`Storage::atomic_writes`], independently of other writes.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes every write that has returned durable, in this handle and in others, and the file's
    /// size.
    fn sync(&self) -> io::Result<()>;

    /// Makes the file shorter: so many bytes, whole pages. Where it grows again it has zeros. Until the
    /// next [`Storage::sync`] a power cut may undo this for some of the pages. An error leaves the
    /// file as it was, which harms nothing.
    fn truncate(&self, size: u64) -> io::Result<()> {
        let _ = size;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Size of the file in bytes.
    fn size(&self) -> io::Result<u64>;

    /// A number that no other file has which can have the same name, such as that of its inode. 0: unknown.
    fn identity(&self) -> u64 {
        0
    }

    /// Whether a page that was written is written again in its place. Where it gets another one each time, zeros
    /// prepare nothing.
    fn writes_in_place(&self) -> bool {
        true
    }

    /// The bytes of an aligned write that a power cut leaves all or nothing, and the reason.
    fn atomic_writes(&self) -> AtomicWrites {
        AtomicWrites::none("double: the storage promises nothing of 4,096 bytes")
    }

    /// The time of the clock in seconds since 1970. It may jump.
    fn now(&self) -> u32 {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
    }

    /// Tries to take a lock, at once: false if another handle holds it. A handle never holds the
    /// same lock twice, and releases a shared one before it tries to get it exclusively. The death
    /// of a process frees its locks.
    fn lock(&self, lock: Lock, mode: LockMode) -> io::Result<bool>;

    /// Releases a lock.
    fn unlock(&self, lock: Lock, mode: LockMode) -> io::Result<()>;

    /// A 64-bit word of the shared memory, sequentially consistent. Words never written are zero,
    /// and all words are zero when no handle had the database open before. Words are counted from
    /// 0. The memory grows as needed (65,536 words serve a database of 14 GiB). Once a word was read,
    /// writes to it and to those before it find their space.
    fn shm_load(&self, word: usize) -> io::Result<u64>;

    /// Reads words of the shared memory, from `first` on. Each is read as by [`Storage::shm_load`].
    fn shm_load_all(&self, first: usize, words: &mut [u64]) -> io::Result<()> {
        for (word, to) in (first..).zip(words) {
            *to = self.shm_load(word)?;
        }
        Ok(())
    }

    /// Writes a word of the shared memory, sequentially consistent.
    fn shm_store(&self, word: usize, value: u64) -> io::Result<()>;

    /// Raises a word to at least `value`, atomically.
    fn shm_max(&self, word: usize, value: u64) -> io::Result<()>;

    /// Lowers a word to at most `value`, atomically. A word of 0 stays 0.
    fn shm_min(&self, word: usize, value: u64) -> io::Result<()>;
}

mod atomic;
mod file;
mod in_place;
mod memory;
mod shm;

pub use atomic::{AtomicWrites, Device, Facts, Writes};
pub use file::{Caching, DirectFile};
pub use in_place::writes_in_place;
pub use memory::{MemoryFile, PowerCut};
