//! What direct, durable and preallocated writes mean at one place: the result of the probe.
//!
//! Every "no" carries its reason as text for people, which `PRAGMA onewrite_status` and
//! `onewrite doctor` print as it stands.

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

/// How one write that must be durable becomes so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DurableWrite {
    /// A direct write with FUA: it makes its own blocks durable, and nothing else.
    Fua,
    /// A direct write; the device has no volatile cache.
    NoCache,
    /// A direct write, and a flush of the device's whole cache that the kernel adds.
    Flush,
    /// A direct write, and then fdatasync: the file system's write-through is not to be trusted.
    WriteThenFlush,
    /// A direct write to a device that is not known. It may have FUA, so the write makes its own blocks
    /// durable and is taken to cover nothing else.
    Unknown,
    /// Through the page cache, and then fdatasync.
    PageCache,
}

impl DurableWrite {
    /// Whether everything that the device was given before is durable too.
    #[must_use]
    pub fn covers_all_before(self) -> bool {
        use DurableWrite::{Flush, NoCache, WriteThenFlush};
        matches!(self, NoCache | Flush | WriteThenFlush)
    }
}

/// What the file system and the device under a file can do.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Capabilities {
    /// Type of the file system: `ext4`, `xfs`, `btrfs`, `tmpfs`, `overlay`, ...
    pub filesystem: String,
    /// Where it is mounted; `None` if `/proc` does not tell.
    pub mount_point: Option<PathBuf>,
    /// Options of the mount and of the file system; empty if `/proc` does not tell.
    pub mount_options: Vec<String>,
    /// Name of the block device (`loop0`, `nvme0n1p2`); empty if there is none or it is unknown.
    pub device: String,
    /// The device is known to be the only one that holds the file's data, so that what is said of it
    /// here is true of every block.
    pub is_only_device: bool,
    /// For a loop device, the file behind it.
    pub backing_file: Option<PathBuf>,
    /// Alignment for direct I/O, or why writes go through the page cache.
    pub direct: Result<DirectAlign, String>,
    /// Whether a direct write-through write (`RWF_DSYNC`) is durable, or why it must be flushed by a call of its own.
    pub write_through: Result<(), String>,
    /// Whether the device has FUA, so that a durable write is one command, or why not.
    pub fua: Result<(), String>,
    /// The device's volatile cache. Without one every completed write is durable and neither FUA
    /// nor flushes are sent.
    pub write_cache: WriteCache,
    /// Whether a flush reaches the device, or why not (`nobarrier`).
    pub barriers: Result<(), String>,
    /// Whether `FALLOC_FL_WRITE_ZEROES` works, or why not.
    pub write_zeroes: Result<(), String>,
    /// Whether blocks of two files can change places, or why not. Tried where files would be made
    /// ([`Capabilities::of_dir`]); of an open file nothing is known before a checkpoint tries.
    pub exchange: Result<(), String>,
    /// Whether a file can share blocks of another, or why not; likewise.
    pub clone: Result<(), String>,
    /// Largest write in bytes that the file system never tears (`STATX_WRITE_ATOMIC`, for writes
    /// with RWF_ATOMIC); `None` without such a promise. XFS keeps it by writing elsewhere and
    /// remapping where the device cannot.
    pub atomic_write_bytes: Option<u32>,
    /// Largest write in bytes that the device never tears; `None` without such a promise.
    pub device_atomic_write_bytes: Option<u32>,
    /// Smallest unit that the device addresses, in bytes; 512 if unknown.
    pub logical_block_bytes: u32,
    /// Smallest unit that the device writes without reading first, in bytes; 512 if unknown.
    pub physical_block_bytes: u32,
}

impl Capabilities {
    /// Asks about an open regular file; does not change it. `path` is for messages.
    ///
    /// # Errors
    /// Only when the file itself cannot be inspected; everything that is merely unknown is a
    /// reason inside.
    pub fn of_file(file: &File, path: &Path) -> Result<Self, StorageError> {
        probe::of_file(file, path)
    }

    /// Asks about files that would be created in `dir`: creates one without a name (or with one,
    /// where the file system cannot do that), tries a direct write and a write-zeroes on it, and
    /// removes it.
    ///
    /// # Errors
    /// `dir` is missing, no directory, on a read-only file system, full or not writable.
    pub fn of_dir(dir: &Path) -> Result<Self, StorageError> {
        probe::of_dir(dir)
    }

    /// How a durable write is done, where direct I/O is not turned off.
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
