//! Preallocation: blocks that are allocated *and* initialized before a commit needs them.
//!
//! A commit into such blocks changes no metadata, so the file system has nothing to journal
//! (WALDIO's "preallocation with explicit journaling"). One fdatasync at the end makes the extents
//! and the size durable. Until it returns, writes into the range work but may be journaled.

use super::aligned::AlignedBuf;
use super::error::{Operation, StorageError};
use super::file::{LogFile, retry, write_zero};
use super::observer::{self, Call};
use super::probe::FALLOC_FL_WRITE_ZEROES;
use rustix::fs::{FallocateFlags, fallocate, fdatasync};
use rustix::io::{Errno, pwrite};
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of zeros in one write. Extending writes hold the inode's lock, so a commit may have to
/// wait for one. Measured: 1 to 3 ms while 32 MiB were initialized, and 11 ms with pieces of 8 MiB.
const PIECE_BYTES: usize = 256 << 10;

/// How far a file may grow in this process, in whole blocks (RLIMIT_FSIZE). A call that goes beyond ends the
/// process, unless that ignores SIGXFSZ. So no blocks are made ahead beyond it.
pub fn most_bytes_of_a_file() -> u64 {
    let limit = getrlimit(Resource::Fsize).current;
    limit.map_or(u64::MAX, |bytes| bytes - bytes % 4096)
}

/// How blocks are initialized.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Init {
    /// Writes zeros. Works everywhere, and writes the range once to the device.
    ZeroFill,
    /// `FALLOC_FL_WRITE_ZEROES` (Linux 6.17): one command to the device zeroes the blocks, and the
    /// extents are marked as written.
    WriteZeroes,
    /// Plain fallocate. The first write to each block changes an extent, which is journaled. A
    /// crash before the journal commit loses that change. For measurements only.
    Unwritten,
}

impl fmt::Display for Init {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZeroFill => "zero-fill",
            Self::WriteZeroes => "write-zeroes",
            Self::Unwritten => "unwritten",
        })
    }
}

/// A text that names no method of initialization.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseInitError(String);

impl fmt::Display for ParseInitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no initialization method {:?}: zero-fill, write-zeroes and unwritten are known",
            self.0
        )
    }
}

impl std::error::Error for ParseInitError {}

impl FromStr for Init {
    type Err = ParseInitError;

    fn from_str(text: &str) -> Result<Self, ParseInitError> {
        [Self::ZeroFill, Self::WriteZeroes, Self::Unwritten]
            .into_iter()
            .find(|init| init.to_string().eq_ignore_ascii_case(text))
            .ok_or_else(|| ParseInitError(text.to_owned()))
    }
}

impl LogFile {
    /// Allocates and initializes `range` (in bytes), extends the file to its end, and makes that
    /// durable with one fdatasync. The range's content is lost. The caller excludes others that
    /// might change the size at the same time ([`LockByte::Extension`](super::LockByte)).
    ///
    /// The size grows only with initialized blocks. So a crash in between leaves no unwritten
    /// extent below the size, except with [`Init::Unwritten`].
    ///
    /// # Errors
    /// No space, an unsupported `init`, or an I/O error. The file then ends where its initialized
    /// blocks do, and has no blocks beyond. After a failed allocation that is its former size.
    /// After a failed write it is the end of the zeros written before, because others may have
    /// committed into these.
    pub fn initialize(&self, range: Range<u64>, init: Init) -> Result<(), StorageError> {
        self.initialize_and(range, init, || self.setup_flush())
    }

    /// The same without the fdatasync: the write or flush that makes a commit in `range` durable makes the
    /// extents and the size durable, too.
    ///
    /// # Errors
    /// As [`LogFile::initialize`].
    pub fn initialize_for_commit(&self, range: Range<u64>, init: Init) -> Result<(), StorageError> {
        self.initialize_and(range, init, || Ok(()))
    }

    fn initialize_and(
        &self,
        range: Range<u64>,
        init: Init,
        flush: impl FnOnce() -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        self.check_writable(Operation::Initialize)?;
        let former = self.size()?;
        let call = Call::Initialize {
            range: range.clone(),
        };
        observer::before(self.path(), Operation::Initialize, &call)?;
        let done = self.fill(&range, init).and_then(|()| flush());
        if done.is_err() && range.end > former {
            // Truncating to the present size frees the blocks beyond it, and never those that
            // another process took for ready. The caller gets the first error, not that of this
            // cleanup.
            let _ = self.size().and_then(|size| self.truncate(size));
        }
        done
    }

    fn fill(&self, range: &Range<u64>, init: Init) -> Result<(), StorageError> {
        if range.is_empty() {
            return Ok(());
        }
        match init {
            Init::ZeroFill => {
                // All blocks at once: one extent if possible, and ENOSPC before any work.
                match self.allocate(range, FallocateFlags::KEEP_SIZE) {
                    Err(e) if e.is_unsupported() => {}
                    other => other?,
                }
                self.write_zeros(range)
            }
            Init::WriteZeroes => {
                self.allocate(range, FALLOC_FL_WRITE_ZEROES)
                    .inspect_err(|e| self.no_write_zeroes.store(e.is_unsupported(), Relaxed))?;
                self.counters().count_setup(range.end - range.start);
                Ok(())
            }
            Init::Unwritten => {
                // Blocks first, so that the size stays as it is if there is no room for all of
                // them.
                self.allocate(range, FallocateFlags::KEEP_SIZE)?;
                self.allocate(range, FallocateFlags::empty())?;
                self.counters().count_setup(0);
                Ok(())
            }
        }
    }

    fn allocate(&self, range: &Range<u64>, flags: FallocateFlags) -> Result<(), StorageError> {
        let len = range.end - range.start;
        retry(|| fallocate(self.buffered_fd(), flags, range.start, len))
            .map_err(|e| self.error(Operation::Initialize, Some(range.start), e))
    }

    fn write_zeros(&self, range: &Range<u64>) -> Result<(), StorageError> {
        let zeros = AlignedBuf::zeroed(PIECE_BYTES);
        let mut fd = self.setup_fd(|align| {
            let block = u64::from(align.offset);
            range.start.is_multiple_of(block) && range.end.is_multiple_of(block)
        });
        let mut at = range.start;
        while at < range.end {
            let left = usize::try_from(range.end - at).unwrap_or(usize::MAX);
            let piece = &zeros[..left.min(PIECE_BYTES)];
            match retry(|| pwrite(fd, piece, at)) {
                Ok(0) => return Err(self.error(Operation::Initialize, Some(at), write_zero())),
                Ok(n) => {
                    self.counters().count_setup(n as u64);
                    at += n as u64;
                }
                // Direct I/O was refused, or a short write ended within a block.
                Err(Errno::INVAL) => fd = self.setup_buffered(fd, at)?,
                Err(e) => return Err(self.error(Operation::Initialize, Some(at), e)),
            }
        }
        Ok(())
    }

    /// The buffered descriptor, for use after a refused direct write. An error if the refused
    /// descriptor was the buffered one.
    fn setup_buffered<'a>(
        &'a self,
        refused: std::os::fd::BorrowedFd<'_>,
        at: u64,
    ) -> Result<std::os::fd::BorrowedFd<'a>, StorageError> {
        use std::os::fd::AsRawFd;
        let buffered = self.buffered_fd();
        if refused.as_raw_fd() == buffered.as_raw_fd() {
            return Err(self.error(Operation::Initialize, Some(at), Errno::INVAL));
        }
        Ok(buffered)
    }

    fn setup_flush(&self) -> Result<(), StorageError> {
        observer::before(self.path(), Operation::Flush, &Call::Flush)?;
        let flush = || fdatasync(self.buffered_fd());
        let flushed = self.flushes.flush_or_fail_for_good(flush);
        flushed.map_err(|e| self.error(Operation::Flush, None, e))?;
        self.counters().setup_flushes.fetch_add(1, Relaxed);
        Ok(())
    }
}
