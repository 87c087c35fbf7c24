//! The result of the probe: what direct, durable and preallocated writes mean in one directory.
//!
//! Every "no" carries its reason as text for people. `PRAGMA onewrite_status` and `onewrite doctor`
//! print it unchanged.

use super::device::WriteCache;
use super::error::StorageError;
use super::probe;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Alignment that direct I/O needs, in bytes, as statx reports it (`STATX_DIOALIGN`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct DirectAlign {
    /// Alignment of the buffer's address.
    pub memory: u32,
    /// Alignment of file offsets and lengths.
    pub offset: u32,
}

/// How one write that must be durable becomes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DurableWrite {
    /// A direct write with FUA. It makes only its own blocks durable.
    Fua,
    /// A direct write; the device has no volatile cache.
    NoCache,
    /// A direct write, and a flush of the device's whole cache that the kernel adds.
    Flush,
    /// A direct write, and then fdatasync: the file system's write-through is not reliable.
    WriteThenFlush,
    /// A direct write to a device that is not known. It may have FUA, so we assume that the write
    /// makes only its own blocks durable.
    Unknown,
    /// Through the page cache, and then fdatasync.
    PageCache,
}

impl DurableWrite {
    /// Whether everything that the device received before is durable too.
    #[must_use]
    pub fn covers_all_before(self) -> bool {
        use DurableWrite::{Flush, NoCache, WriteThenFlush};
        matches!(self, NoCache | Flush | WriteThenFlush)
    }
}

/// File systems that keep files only in memory.
pub const IN_MEMORY: &[&str] = &["tmpfs", "ramfs", "devtmpfs"];

/// Mount options of an overlay that keep flushes from the file system below, as older kernels and
/// newer ones show them.
pub const VOLATILE: &[&str] = &["volatile", "fsync=volatile"];

/// The abilities of the file system and the device under a file.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Capabilities {
    /// Type of the file system: `ext4`, `xfs`, `btrfs`, `tmpfs`, `overlay`, ...
    pub filesystem: String,
    /// Its mount point; `None` if `/proc` does not report it.
    pub mount_point: Option<PathBuf>,
    /// Options of the mount and of the file system; empty if `/proc` does not report them.
    pub mount_options: Vec<String>,
    /// Name of the block device (`loop0`, `nvme0n1p2`); empty if there is none or it is unknown.
    pub device: String,
    /// Whether the device is known to be the only one with the file's data, so that its properties
    /// here hold for every block.
    pub is_only_device: bool,
    /// For a loop device, the file behind it.
    pub backing_file: Option<PathBuf>,
    /// Alignment for direct I/O, or why writes go through the page cache.
    pub direct: Result<DirectAlign, String>,
    /// Whether a direct write-through write (`RWF_DSYNC`) is durable, or why it needs a separate
    /// flush.
    pub write_through: Result<(), String>,
    /// Whether the device has FUA, so that a durable write is one command, or why not.
    pub fua: Result<(), String>,
    /// The device's volatile cache. Without one every completed write is durable, and the kernel
    /// sends neither FUA nor flushes.
    pub write_cache: WriteCache,
    /// Whether a flush reaches the device, or why not (`nobarrier`).
    pub barriers: Result<(), String>,
    /// Whether a write can survive a power cut at all, or why not (tmpfs).
    pub durable: Result<(), String>,
    /// Whether `FALLOC_FL_WRITE_ZEROES` works, or why not.
    pub write_zeroes: Result<(), String>,
    /// Whether two files can exchange blocks, or why not. [`Capabilities::of_dir`] tries it. For an
    /// open file it is unknown until a checkpoint tries.
    pub exchange: Result<(), String>,
    /// Whether a file can share blocks of another, or why not; also tried by
    /// [`Capabilities::of_dir`] only.
    pub clone: Result<(), String>,
    /// Largest write in bytes that the file system never tears (`STATX_WRITE_ATOMIC`, for writes
    /// with RWF_ATOMIC); `None` without such a promise. Where the device cannot, XFS writes to
    /// other blocks and remaps.
    pub atomic_write_bytes: Option<u32>,
    /// Largest write in bytes that the device never tears; `None` without such a promise.
    pub device_atomic_write_bytes: Option<u32>,
    /// Smallest unit that the device addresses, in bytes; 512 if unknown.
    pub logical_block_bytes: u32,
    /// Smallest unit that the device writes without reading first, in bytes; 512 if unknown.
    pub physical_block_bytes: u32,
}

impl Capabilities {
    /// Inspects an open regular file without changing it. `path` is for messages.
    ///
    /// # Errors
    /// Only if the file itself cannot be inspected. A property that is merely unknown is a reason
    /// inside.
    pub fn of_file(file: &File, path: &Path) -> Result<Self, StorageError> {
        probe::of_file(file, path)
    }

    /// Inspects files that would be created in `dir`. Creates a file without a name, or with one if
    /// the file system needs it. Tries a direct write and a write-zeroes on it, and removes it.
    ///
    /// # Errors
    /// `dir` is missing, not a directory, on a read-only file system, full or not writable.
    pub fn of_dir(dir: &Path) -> Result<Self, StorageError> {
        probe::of_dir(dir)
    }

    /// How a durable write is done, unless direct I/O is turned off.
    #[must_use]
    pub fn durable_write(&self) -> DurableWrite {
        match (&self.direct, &self.fua, self.write_cache) {
            (Err(_), _, _) => DurableWrite::PageCache,
            _ if self.write_through.is_err() => DurableWrite::WriteThenFlush,
            (Ok(_), Ok(()), _) => DurableWrite::Fua,
            _ if !self.is_only_device => DurableWrite::Unknown,
            (Ok(_), Err(_), WriteCache::WriteThrough) => DurableWrite::NoCache,
            (Ok(_), Err(_), WriteCache::WriteBack) => DurableWrite::Flush,
            (Ok(_), Err(_), WriteCache::Unknown) => DurableWrite::Unknown,
        }
    }

    pub(super) fn has_option(&self, option: &str) -> bool {
        self.mount_options.iter().any(|o| o == option)
    }
}
