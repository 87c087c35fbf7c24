//! One open log file.
//!
//! Two descriptors on one file: a buffered one for reads, locks, flushes and the writes of huge
//! transactions, and one with O_DIRECT for commits where [`Capabilities`] allow it. Direct writes
//! and buffered reads of one file are coherent on ext4, XFS and Btrfs.
//!
//! Guarantees: a call that fails has said so; the one thing that is ever tried in another way is a
//! request that the kernel refused before any I/O (EINVAL for O_DIRECT, EOPNOTSUPP for RWF_DSYNC).

mod write;

use super::capabilities::{Capabilities, DirectAlign};
use super::counters::IoCounters;
use super::description::Description;
use super::error::{Operation, StorageError};
use super::observer::{self, Call};
use super::open::{self, Access};
use super::probe;
use super::sys;
use rustix::fs::{Advice, AtFlags, Statx, StatxFlags, fadvise, fdatasync, fstat, ftruncate, statx};
use rustix::io::{Errno, IoSliceMut, pread, preadv};
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Largest offset that the kernel knows (`off_t`).
const MAX_OFFSET: u64 = i64::MAX as u64;

/// What a single write must guarantee when it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Durability {
    /// The bytes are where reads find them, in the page cache, and the kernel has begun to write
    /// them to the device. They survive a kill of the process.
    Begun,
    /// The bytes are where reads find them. They survive a kill of the process; with direct I/O
    /// also a crash of the system, though not a power cut.
    None,
    /// These bytes survive a power cut. Of earlier writes it says nothing: with FUA they may still
    /// be in the device's cache.
    WriteThrough,
}

/// One open log file. All methods take `&self` and may be called from several threads; writes to
/// overlapping ranges at the same time are for the caller to exclude.
#[derive(Debug)]
pub struct LogFile {
    pub(super) path: PathBuf,
    pub(super) access: Access,
    pub(super) buffered: File,
    pub(super) direct: Option<Direct>,
    /// What the probe begins with.
    pub(super) stat: Statx,
    /// Why direct I/O was not to be used.
    pub(super) no_direct: Option<&'static str>,
    /// Probed when they are first asked for: who only reads never does.
    pub(super) capabilities: OnceLock<Capabilities>,
    /// The kernel or the file system does not take RWF_DSYNC, or does not keep to it; fdatasync does its work.
    pub(super) no_dsync_flag: AtomicBool,
    pub(super) counters: IoCounters,
    /// The locks on this file. Not on `buffered`, which a forked child shares.
    pub(super) locks: Description,
    /// Where writers lock each other out, if not here.
    pub(super) writer_locks: Option<Description>,
}

/// The descriptor for direct writes.
#[derive(Debug)]
pub(super) struct Direct {
    pub(super) file: File,
    pub(super) align: DirectAlign,
    /// Set when a well-aligned direct write was refused with EINVAL in spite of all signs.
    pub(super) refused: OnceLock<String>,
}

impl LogFile {
    /// The path that the file was opened with.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the file was opened for.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// What the file system and the device can do. `direct` there is an error too when direct I/O
    /// was not asked for.
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

    /// Alignment that [`LogFile::write_at`] needs now; `None` while it goes through the page cache.
    #[must_use]
    pub fn direct(&self) -> Option<DirectAlign> {
        self.direct
            .as_ref()
            .filter(|d| d.refused.get().is_none())
            .map(|d| d.align)
    }

    /// Why writes go through the page cache; `None` while they are direct.
    #[must_use]
    pub fn why_not_direct(&self) -> Option<&str> {
        match (&self.capabilities().direct, &self.direct) {
            (Err(reason), _) => Some(reason),
            (Ok(_), Some(direct)) => direct.refused.get().map(String::as_str),
            (Ok(_), None) => None,
        }
    }

    /// A number for the device under the file, from what identifies it; never 0. Of a device that is not known it
    /// changes with every run of the system.
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

    /// Whether a direct write-through write makes everything durable that the device was given before.
    /// What waits in the page cache it does not cover: see [`LogFile::write_back`].
    #[must_use]
    pub fn write_through_covers_all_before(&self) -> bool {
        self.direct().is_some() && self.capabilities().durable_write().covers_all_before()
    }

    /// Whether this process has opened it. A child of fork must not use its parent's: it shares the locks.
    #[must_use]
    pub fn is_of_this_process(&self) -> bool {
        self.locks.is_of_this_process()
    }

    /// What this process has done to the file through this object.
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
    /// Whatever fstat(2) reports.
    pub fn identity(&self) -> Result<(u64, u64), StorageError> {
        self.identity_of(&self.buffered)
    }

    pub(super) fn identity_of(&self, file: &File) -> Result<(u64, u64), StorageError> {
        let stat = fstat(file).map_err(|e| self.error(Operation::Inspect, None, e))?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Whether the path still names the open file; false when it was deleted, moved or replaced.
    ///
    /// # Errors
    /// Whatever stat(2) reports, except that nothing is there.
    pub fn same_as_path(&self) -> Result<bool, StorageError> {
        match rustix::fs::lstat(&self.path) {
            Ok(stat) => Ok((stat.st_dev, stat.st_ino) == self.identity()?),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(e) => Err(self.error(Operation::Inspect, None, e)),
        }
    }

    /// Reads from `offset` through the page cache. Returns the number of bytes before the end of
    /// the file, which is less than asked for only there.
    ///
    /// # Errors
    /// Whatever pread(2) reports.
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

    /// Fills `first` and then `second` from `offset` on, by one preadv in the good case; else as
    /// [`LogFile::read_at`]. What lies behind the end of the file is filled with zeros.
    ///
    /// # Errors
    /// Whatever preadv(2) or pread(2) reports.
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

    /// Brings everything that waits in the page cache to the device, whoever wrote it, and waits for
    /// it. What the device then holds may be in its volatile cache: a flush of that must follow.
    ///
    /// # Errors
    /// Whatever sync_file_range(2) reports, which may be of an earlier write; as with
    /// [`LogFile::flush`] the state of the data is unknown then.
    pub fn write_back(&self) -> Result<(), StorageError> {
        observer::before(&self.path, Operation::Flush, &Call::WriteBack)?;
        match sys::write_back(self.buffered_fd(), 0, 0, sys::WriteBack::Finish) {
            Ok(()) => Ok(()),
            Err(e) if sys::is_missing(&e) => self.flush(),
            Err(e) => Err(self.error(Operation::Flush, None, e)),
        }
    }

    /// Forgets what the page cache holds of the file and the device may not: after a failed flush
    /// reads would find it, and nothing would ever write it.
    pub fn drop_page_cache(&self) {
        // Advice: where it is not taken there is nothing to be done.
        let _ = fadvise(&self.buffered, 0, None, Advice::DontNeed);
    }

    /// Tells the kernel that these bytes will be read soon.
    pub fn will_read(&self, range: Range<u64>) {
        let bytes = NonZeroU64::new(range.end.saturating_sub(range.start));
        if bytes.is_some() {
            let _ = fadvise(&self.buffered, range.start, bytes, Advice::WillNeed);
        }
    }

    /// Makes everything durable that was written to this file before, by whatever descriptor or
    /// process, and empties the device's cache (fdatasync).
    ///
    /// # Errors
    /// Whatever fdatasync(2) reports. The state of the written data is unknown then, and a later
    /// success says nothing about it.
    pub fn flush(&self) -> Result<(), StorageError> {
        observer::before(&self.path, Operation::Flush, &Call::Flush)?;
        // Not even tried again after a signal: what the first attempt saw may not show twice.
        fdatasync(&self.buffered).map_err(|e| self.error(Operation::Flush, None, e))?;
        self.counters.flushes.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Makes the file's name durable: fsync of the directory that holds it. Counted as set-up.
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
    /// Asks for nothing else: since Linux 6.13 a file whose times were asked for gets a time of the
    /// finest grain at its next write, so that fstat(2) between two writes would make every write
    /// change the inode, where it otherwise changes once a clock tick.
    ///
    /// # Errors
    /// Whatever statx(2) reports.
    pub fn size(&self) -> Result<u64, StorageError> {
        match statx(&self.buffered, c"", AtFlags::EMPTY_PATH, StatxFlags::SIZE) {
            Ok(stat) => Ok(stat.stx_size),
            // A filter of system calls older than statx.
            Err(Errno::NOSYS) => fstat(&self.buffered)
                .map(|stat| u64::try_from(stat.st_size).unwrap_or(0))
                .map_err(|e| self.error(Operation::Inspect, None, e)),
            Err(e) => Err(self.error(Operation::Inspect, None, e)),
        }
    }

    /// Size in bytes, if the file still has a name: who opens the path later would not find what is
    /// written to one without.
    ///
    /// # Errors
    /// [`StorageError::Deleted`]; whatever statx(2) reports.
    pub fn size_while_linked(&self) -> Result<u64, StorageError> {
        let wanted = StatxFlags::SIZE | StatxFlags::NLINK;
        match statx(&self.buffered, c"", AtFlags::EMPTY_PATH, wanted) {
            Ok(stat) if stat.stx_nlink == 0 => Err(StorageError::Deleted {
                path: self.path.clone(),
            }),
            Ok(stat) => Ok(stat.stx_size),
            Err(Errno::NOSYS) => self.size(),
            Err(e) => Err(self.error(Operation::Inspect, None, e)),
        }
    }

    /// Sets the size, and frees blocks beyond it. Bytes that come into being are a hole: use
    /// [`LogFile::initialize`] to get blocks. Not durable before [`LogFile::flush`].
    ///
    /// # Errors
    /// Whatever ftruncate(2) reports.
    pub fn truncate(&self, size: u64) -> Result<(), StorageError> {
        self.check_writable(Operation::Truncate)?;
        observer::before(&self.path, Operation::Truncate, &Call::Truncate { size })?;
        retry(|| ftruncate(&self.buffered, size))
            .map_err(|e| self.error(Operation::Truncate, Some(size), e))
    }

    pub(super) fn buffered_fd(&self) -> BorrowedFd<'_> {
        self.buffered.as_fd()
    }

    /// The descriptor for set-up writes of `range`, and its alignment if it is direct.
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

/// Runs a system call again when a signal interrupted it before it did anything.
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
        // As if the file system had promised more than it keeps.
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
