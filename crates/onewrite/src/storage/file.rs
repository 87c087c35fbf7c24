//! One open log file.
//!
//! It has two descriptors. A buffered one is for reads, locks, flushes and the writes of huge
//! transactions. One with O_DIRECT is for commits, if [`Capabilities`] allow it. Direct writes and
//! buffered reads of one file are coherent on ext4, XFS and Btrfs.
//!
//! Guarantees: every failed call is reported. Only a request that the kernel refused before any I/O
//! is tried in another way (EINVAL for O_DIRECT, EOPNOTSUPP for RWF_DSYNC).

pub(super) mod flushes;
mod write;

use super::capabilities::{Capabilities, DirectAlign};
use super::counters::IoCounters;
use super::description::Description;
use super::error::{Operation, StorageError};
use super::lock::WriterLocks;
use super::observer::{self, Call};
use super::open::{self, Access};
use super::probe;
use super::sys;
use crate::waits::stall::{self, Phase};
use flushes::Flushes;
use rustix::fs::{Advice, AtFlags, Statx, StatxFlags, fadvise, fdatasync, fstat, ftruncate, statx};
use rustix::io::{Errno, IoSliceMut, pread, preadv};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Largest offset that the kernel knows (`off_t`).
const MAX_OFFSET: u64 = i64::MAX as u64;

/// The guarantee of a single write when it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Durability {
    /// Reads find the bytes in the page cache. They survive a kill of the process.
    Cached,
    /// Reads find the bytes. They survive a kill of the process; with direct I/O also a crash of
    /// the system, but not a power cut.
    None,
    /// These bytes survive a power cut. It says nothing of earlier writes: with FUA they may still
    /// be in the device's cache.
    WriteThrough,
}

/// One open log file. All methods take `&self` and may be called from several threads. The caller
/// excludes simultaneous writes to overlapping ranges.
#[derive(Debug)]
pub struct LogFile {
    pub(super) path: PathBuf,
    pub(super) access: Access,
    pub(super) buffered: File,
    pub(super) direct: Option<Direct>,
    /// The first data of the probe.
    pub(super) stat: Statx,
    /// Why direct I/O must not be used.
    pub(super) no_direct: Option<&'static str>,
    /// Probed at first use: a reader never needs it.
    pub(super) capabilities: OnceLock<Capabilities>,
    /// Whether the kernel or the file system does not take RWF_DSYNC, or does not honor it;
    /// fdatasync replaces it.
    pub(super) no_dsync_flag: AtomicBool,
    /// Whether the file system has refused `FALLOC_FL_WRITE_ZEROES`.
    pub(super) no_write_zeroes: AtomicBool,
    pub(super) counters: IoCounters,
    /// The flushes through `buffered`.
    pub(super) flushes: Flushes,
    /// The locks on this file. Not on `buffered`, which a forked child shares.
    pub(super) locks: Description,
    /// The file in which writers lock each other out, if not this one.
    pub(super) writer_locks: Option<WriterLocks>,
}

/// The descriptor for direct writes.
#[derive(Debug)]
pub(super) struct Direct {
    pub(super) file: File,
    pub(super) align: DirectAlign,
    /// Set when a well-aligned direct write was refused with EINVAL although direct I/O is
    /// reported.
    pub(super) refused: OnceLock<String>,
}

impl LogFile {
    /// The path that the file was opened with.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The access with which the file was opened.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// The abilities of the file system and the device. `direct` there is also an error if direct
    /// I/O was not asked for.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        self.capabilities.get_or_init(|| {
            let mut found = probe::of_inspected(&self.buffered, &self.stat);
            observer::adjust(&self.path, &mut found);
            if let Some(why_not) = self.no_direct.filter(|_| found.direct.is_ok()) {
                found.direct = Err(why_not.to_owned());
            }
            found
        })
    }

    /// The alignment that [`LogFile::write_at`] needs now; `None` while it uses the page cache.
    #[must_use]
    pub fn direct(&self) -> Option<DirectAlign> {
        self.direct
            .as_ref()
            .filter(|d| d.refused.get().is_none())
            .map(|d| d.align)
    }

    /// Whether the file system has refused `FALLOC_FL_WRITE_ZEROES`, though the device offers it.
    #[must_use]
    pub fn refuses_write_zeroes(&self) -> bool {
        self.no_write_zeroes.load(Relaxed)
    }

    /// Why writes use the page cache; `None` while they are direct.
    #[must_use]
    pub fn why_not_direct(&self) -> Option<&str> {
        match (&self.capabilities().direct, &self.direct) {
            (Err(reason), _) => Some(reason),
            (Ok(_), Some(direct)) => direct.refused.get().map(String::as_str),
            (Ok(_), None) => None,
        }
    }

    /// A number for the device under the file, from what identifies it; never 0. If the device is
    /// not known, the number changes with every run of the system.
    pub(super) fn device_tag(&self) -> u32 {
        let found = self.capabilities();
        let identity = match found.device.as_str() {
            "" => format!(
                "{} {}:{} {}",
                found.filesystem,
                self.stat.stx_dev_major,
                self.stat.stx_dev_minor,
                std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
            ),
            name => super::device::identity(name),
        };
        crc32c::crc32c(identity.as_bytes()).max(1)
    }

    /// Whether a direct write-through write makes everything durable that the device received
    /// before. It does not cover pages that wait in the page cache: see [`LogFile::write_back`].
    #[must_use]
    pub fn write_through_covers_all_before(&self) -> bool {
        self.direct().is_some() && self.capabilities().durable_write().covers_all_before()
    }

    /// Whether this process has opened it. A child of fork must not use its parent's file: it
    /// shares the locks.
    #[must_use]
    pub fn is_of_this_process(&self) -> bool {
        self.locks.is_of_this_process()
    }

    /// This process's calls on the file through this object.
    #[must_use]
    pub fn counters(&self) -> &IoCounters {
        &self.counters
    }

    /// The descriptor for buffered I/O.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.buffered.as_fd()
    }

    /// Device and inode number of the open file.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn identity(&self) -> Result<(u64, u64), StorageError> {
        self.identity_of(&self.buffered)
    }

    pub(super) fn identity_of(&self, file: &File) -> Result<(u64, u64), StorageError> {
        let stat = fstat(file).map_err(|e| self.error(Operation::Inspect, None, e))?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Whether the path still names the open file; false if it was deleted, moved or replaced.
    ///
    /// # Errors
    /// Those of stat(2), except that the file is missing.
    pub fn same_as_path(&self) -> Result<bool, StorageError> {
        match rustix::fs::lstat(&self.path) {
            Ok(stat) => Ok((stat.st_dev, stat.st_ino) == self.identity()?),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(e) => Err(self.error(Operation::Inspect, None, e)),
        }
    }

    /// The file's name at present, without its directory; `None` where `/proc` does not tell.
    pub fn present_name(&self) -> Option<OsString> {
        let link = format!("/proc/self/fd/{}", self.buffered.as_raw_fd());
        let path = std::fs::read_link(link).ok()?;
        path.file_name().map(OsStr::to_owned)
    }

    /// Reads from `offset` through the page cache. Returns the number of bytes before the end of
    /// the file; it is less than requested only there.
    ///
    /// # Errors
    /// Those of pread(2).
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, StorageError> {
        // No file has bytes beyond the largest off_t.
        let room = usize::try_from(MAX_OFFSET.saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = buf.len().min(room);
        let mut done = 0;
        while done < wanted {
            let at = offset + done as u64;
            match retry(|| pread(&self.buffered, &mut buf[done..wanted], at)) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) => return Err(self.error(Operation::Read, Some(at), e)),
            }
        }
        Ok(done)
    }

    /// Fills `first` and then `second` from `offset` on, usually by one preadv; otherwise as
    /// [`LogFile::read_at`]. Bytes beyond the end of the file are zeros.
    ///
    /// # Errors
    /// Those of preadv(2) or pread(2).
    pub fn read_pair_at(
        &self,
        first: &mut [u8],
        second: &mut [u8],
        offset: u64,
    ) -> Result<usize, StorageError> {
        let whole = first.len() + second.len();
        if offset.saturating_add(whole as u64) <= MAX_OFFSET {
            let mut both = [IoSliceMut::new(first), IoSliceMut::new(second)];
            match retry(|| preadv(&self.buffered, &mut both, offset)) {
                Ok(n) if n == whole => return Ok(n),
                Ok(_) => {}
                Err(e) => return Err(self.error(Operation::Read, Some(offset), e)),
            }
        }
        first.fill(0);
        second.fill(0);
        let mut done = self.read_at(first, offset)?;
        if done == first.len() {
            done += self.read_at(second, offset + done as u64)?;
        }
        Ok(done)
    }

    /// Writes all waiting pages of the page cache to the device, of any writer, and waits for that.
    /// They may then be in the device's volatile cache: a flush of that must follow.
    ///
    /// # Errors
    /// Those of sync_file_range(2), which may be of an earlier write. As with [`LogFile::flush`],
    /// the state of the data is then unknown.
    pub fn write_back(&self) -> Result<(), StorageError> {
        stall::measured(Phase::Write, || self.finish_write_back())
    }

    fn finish_write_back(&self) -> Result<(), StorageError> {
        observer::before(&self.path, Operation::Flush, &Call::WriteBack)?;
        let write_back = || {
            let done = sys::write_back(self.buffered_fd(), 0, 0, sys::WriteBack::Finish);
            match done {
                Ok(()) => Ok(true),
                // No call next to it has failed for that.
                Err(e) if sys::is_missing(&e) => Ok(false),
                Err(e) => Err(Errno::from_io_error(&e).unwrap_or(Errno::IO)),
            }
        };
        let written = self.flushes.flush(write_back);
        match written.map_err(|e| self.error(Operation::Flush, None, e))? {
            true => Ok(()),
            false => self.flush(),
        }
    }

    /// Drops pages of the file that the page cache has and the device may not have. After a failed
    /// flush, reads would find them, and no later flush would write them.
    pub fn drop_page_cache(&self) {
        // This is advice: if the kernel ignores it, nothing can be done.
        let _ = fadvise(&self.buffered, 0, None, Advice::DontNeed);
    }

    /// Tells the kernel that these bytes will be read soon.
    pub fn will_read(&self, range: Range<u64>) {
        let bytes = NonZeroU64::new(range.end.saturating_sub(range.start));
        if bytes.is_some() {
            let _ = fadvise(&self.buffered, range.start, bytes, Advice::WillNeed);
        }
    }

    /// Makes all earlier writes to this file durable, of any descriptor or process, and empties the
    /// device's cache (fdatasync).
    ///
    /// # Errors
    /// Those of fdatasync(2). The state of the written data is then unknown, and a later success
    /// says nothing about it.
    pub fn flush(&self) -> Result<(), StorageError> {
        stall::measured(Phase::Flush, || {
            observer::before(&self.path, Operation::Flush, &Call::Flush)?;
            // Not retried even after a signal: an error that the first attempt saw may not show twice.
            let flush = || fdatasync(&self.buffered);
            let flushed = self.flushes.flush(flush);
            flushed.map_err(|e| self.error(Operation::Flush, None, e))
        })?;
        self.counters.count_flush();
        Ok(())
    }

    /// Makes the file's name durable: fsync of the directory that holds it. Counted as setup.
    ///
    /// # Errors
    /// The directory cannot be opened or flushed.
    pub fn sync_directory(&self) -> Result<(), StorageError> {
        open::sync_directory(&self.path)?;
        self.counters.setup_flushes.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Size in bytes.
    ///
    /// It asks for nothing else. Since Linux 6.13, asking for a file's times gives the file a time
    /// of the finest grain at its next write. So with an fstat(2) between writes, every write would
    /// change the inode. Otherwise it changes once per clock tick.
    ///
    /// # Errors
    /// Those of statx(2).
    pub fn size(&self) -> Result<u64, StorageError> {
        match statx(&self.buffered, c"", AtFlags::EMPTY_PATH, StatxFlags::SIZE) {
            Ok(stat) => Ok(stat.stx_size),
            // An older filter of system calls, without statx.
            Err(e) if sys::is_refused(e) => Ok(self.size_and_links()?.0),
            Err(e) => Err(self.error(Operation::Inspect, None, e)),
        }
    }

    /// Size in bytes, if the file still has a name. A file without one is not found by later opens
    /// of the path, so writes to it would be lost.
    ///
    /// # Errors
    /// [`StorageError::Deleted`]; those of statx(2).
    pub fn size_while_linked(&self) -> Result<u64, StorageError> {
        let wanted = StatxFlags::SIZE | StatxFlags::NLINK;
        let (size, is_linked) = match statx(&self.buffered, c"", AtFlags::EMPTY_PATH, wanted) {
            Ok(stat) => (stat.stx_size, stat.stx_nlink > 0),
            Err(e) if sys::is_refused(e) => self.size_and_links()?,
            Err(e) => return Err(self.error(Operation::Inspect, None, e)),
        };
        match is_linked {
            true => Ok(size),
            false => Err(StorageError::Deleted {
                path: self.path.clone(),
            }),
        }
    }

    /// The size, and whether the file has a name, without statx(2).
    fn size_and_links(&self) -> Result<(u64, bool), StorageError> {
        let stat = fstat(&self.buffered).map_err(|e| self.error(Operation::Inspect, None, e))?;
        Ok((u64::try_from(stat.st_size).unwrap_or(0), stat.st_nlink > 0))
    }

    /// Sets the size, and frees blocks beyond it. New bytes are a hole: use [`LogFile::initialize`]
    /// to get blocks. Durable only after [`LogFile::flush`].
    ///
    /// # Errors
    /// Those of ftruncate(2).
    pub fn truncate(&self, size: u64) -> Result<(), StorageError> {
        self.check_writable(Operation::Truncate)?;
        observer::before(&self.path, Operation::Truncate, &Call::Truncate { size })?;
        retry(|| ftruncate(&self.buffered, size))
            .map_err(|e| self.error(Operation::Truncate, Some(size), e))
    }

    pub(super) fn buffered_fd(&self) -> BorrowedFd<'_> {
        self.buffered.as_fd()
    }

    /// The descriptor for setup writes of `range`, and its alignment if it is direct.
    pub(super) fn setup_fd(&self, aligned_to: impl Fn(DirectAlign) -> bool) -> BorrowedFd<'_> {
        match (self.direct(), &self.direct) {
            (Some(align), Some(direct)) if aligned_to(align) => direct.file.as_fd(),
            _ => self.buffered.as_fd(),
        }
    }

    pub(super) fn check_writable(&self, operation: Operation) -> Result<(), StorageError> {
        match self.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(StorageError::ReadOnly {
                path: self.path.clone(),
                operation,
            }),
        }
    }

    pub(super) fn error(
        &self,
        operation: Operation,
        offset: Option<u64>,
        source: impl Into<std::io::Error>,
    ) -> StorageError {
        StorageError::Io {
            path: self.path.clone(),
            operation,
            offset,
            source: source.into(),
        }
    }
}

/// Repeats a system call that a signal interrupted before it did anything.
pub(super) fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

pub(super) fn write_zero() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::WriteZero, "the kernel wrote nothing")
}

#[cfg(test)]
mod tests {
    use super::super::open::{Create, DirectIo, NewFile};
    use super::*;

    fn open(directory: &Path) -> LogFile {
        let create = Create::IfMissing(NewFile {
            mode: 0o600,
            owner: None,
        });
        LogFile::open(
            &directory.join("log"),
            create,
            Access::ReadWrite,
            DirectIo::Auto,
        )
        .expect("a log file")
    }

    #[test]
    fn a_refused_direct_write_goes_through_the_page_cache_from_then_on() {
        let directory = tempfile::tempdir_in(".").expect("a temporary directory");
        let mut file = open(directory.path());
        let Some(direct) = &mut file.direct else {
            eprintln!("SKIPPED: no direct I/O in this directory");
            return;
        };
        // As if the file system had promised more than it delivers.
        direct.align = DirectAlign {
            memory: 1,
            offset: 1,
        };
        file.write_at(&[5; 100], 3, Durability::WriteThrough)
            .expect("a buffered write");
        assert_eq!(file.direct(), None);
        assert!(
            file.why_not_direct()
                .is_some_and(|reason| reason.contains("refused"))
        );
        let counts = file.counters().snapshot();
        assert_eq!(
            (counts.writes, counts.write_through, counts.flushes),
            (1, 0, 1)
        );
        let mut back = [0; 100];
        assert_eq!(file.read_at(&mut back, 3).expect("a read"), 100);
        assert_eq!(back, [5; 100]);
    }

    #[test]
    fn without_the_dsync_flag_a_durable_write_is_a_write_and_a_flush() {
        let directory = tempfile::tempdir_in(".").expect("a temporary directory");
        let file = open(directory.path());
        if file.direct().is_none() {
            eprintln!("SKIPPED: no direct I/O in this directory");
            return;
        }
        file.no_dsync_flag.store(true, Relaxed);
        let buf = super::super::AlignedBuf::zeroed(4096);
        file.write_at(&buf, 0, Durability::WriteThrough)
            .expect("a write");
        let counts = file.counters().snapshot();
        assert_eq!(
            (counts.writes, counts.write_through, counts.flushes),
            (1, 0, 1)
        );
    }
}
