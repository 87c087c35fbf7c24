//! Where the bytes are: the only door to the outside.
//!
//! A handle of the database owns one [`Storage`]. Handles on the same database, of one process or of
//! several, work together through what their storages share: the bytes of the file, eight locks and a
//! small shared memory. The engine never waits for a lock: it tries, and says `Busy`.

use std::io;

/// One of the eight locks. The numbers are those of SQLite's `xShmLock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lock(pub u8);

impl Lock {
    /// Held by the writer, exclusively.
    pub const WRITE: Lock = Lock(0);
    /// Held exclusively by who prepares the shared memory or recovers.
    pub const RECOVER: Lock = Lock(1);
    /// Held, shared, by every handle for as long as it is open: who gets it exclusively is the last one.
    pub const OPEN: Lock = Lock(2);
    /// The first of the [`READERS`] locks of the read marks.
    pub const READ: Lock = Lock(3);
    /// How many locks there are.
    pub const COUNT: u8 = 8;
}

/// How many read marks, and locks of them, there are.
pub const READERS: usize = 5;

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Together with other shared holders.
    Shared,
    /// Alone.
    Exclusive,
}

/// A file with locks and shared memory.
///
/// Offsets and sizes are bytes. All writes are whole pages of 4,096 bytes at multiples of that, so that
/// direct I/O is possible (buffers are not aligned: an implementation that needs that copies).
pub trait Storage: Send {
    /// Reads at an offset. Returns how many bytes there were before the end of the file; the rest of the
    /// buffer is left as it is.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `data`, extending the file when needed. A later [`Storage::sync`] makes it durable.
    /// Until then a power cut may keep it, drop it, or tear it at units of
    /// [`Storage::atomic_write_bytes`], independently of other writes.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes every write that has returned durable, in this handle and in others, and the file's size.
    fn sync(&self) -> io::Result<()>;

    /// Size of the file in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Bytes of an aligned write that a power cut leaves all or nothing; 512 when nothing is known.
    fn atomic_write_bytes(&self) -> u32 {
        512
    }

    /// Tries to take a lock, at once: false if another handle stands in the way. A handle never holds
    /// the same lock twice, and gives a shared one back before it asks for it exclusively. The death of
    /// a process frees its locks.
    fn lock(&self, lock: Lock, mode: LockMode) -> io::Result<bool>;

    /// Gives a lock back.
    fn unlock(&self, lock: Lock, mode: LockMode) -> io::Result<()>;

    /// A 64-bit word of the shared memory, sequentially consistent. Words never written are zero, and
    /// all words are zero when no handle had the database open before. Words are counted from 0; the
    /// memory grows as needed (65,536 words serve a database of 14 GiB).
    fn shm_load(&self, word: usize) -> io::Result<u64>;

    /// Writes a word of the shared memory, sequentially consistent.
    fn shm_store(&self, word: usize, value: u64) -> io::Result<()>;

    /// Raises a word to at least `value`, atomically.
    fn shm_max(&self, word: usize, value: u64) -> io::Result<()>;
}

mod file;
mod memory;
mod shm;

pub use file::{Caching, DirectFile};
pub use memory::{MemoryFile, PowerCut};
