//! One open log file.
//!
//! Two descriptors on one file: a buffered one for reads, locks, flushes and the writes of huge
//! transactions, and one with O_DIRECT for commits where [`Capabilities`] allow it. Direct writes
//! and buffered reads of one file are coherent on ext4, XFS and Btrfs.
//!
//! Guarantees: a call that fails has said so; the one thing that is ever tried in another way is a
//! request that the kernel refused before any I/O (EINVAL for O_DIRECT, EOPNOTSUPP for RWF_DSYNC).

use super::capabilities::{Capabilities, DirectAlign};
use super::counters::IoCounters;
use super::error::{Operation, StorageError};
use rustix::fs::{FileType, Mode, OFlags, fdatasync, fstat, ftruncate};
use rustix::io::{Errno, IoSlice, ReadWriteFlags, pread, pwrite, pwritev2};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What a single write must guarantee when it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Durability {
    /// The bytes are where reads find them. They survive a kill of the process; with direct I/O
    /// also a crash of the system, though not a power cut.
    None,
    /// These bytes survive a power cut. Of earlier writes it says nothing: with FUA they may still
    /// be in the device's cache.
    WriteThrough,
}

/// Permissions and owner of a file that is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewFile {
    /// Permission bits; set whatever the umask is, as SQLite does for its log.
    pub mode: u32,
    /// User and group, set when this process is root, as SQLite does; `None` leaves them.
    pub owner: Option<(u32, u32)>,
}

/// What [`LogFile::open`] does about a missing file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Create {
    /// Fail.
    Never,
    /// Create it.
    IfMissing(NewFile),
    /// Create it, and fail if it exists.
    New(NewFile),
}

/// What the file is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads, writes, shared and exclusive locks.
    ReadWrite,
    /// Reads and shared locks.
    ReadOnly,
}

/// Whether writes may be direct.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectIo {
    /// Where the capabilities allow it.
    Auto,
    /// Never: everything goes through the page cache.
    Never,
}

/// One open log file. All methods take `&self` and may be called from several threads; writes to
/// overlapping ranges at the same time are for the caller to exclude.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    access: Access,
    buffered: File,
    direct: Option<Direct>,
    capabilities: Capabilities,
    /// The kernel or the file system does not take RWF_DSYNC; fdatasync does its work.
    no_dsync_flag: AtomicBool,
    counters: IoCounters,
}

#[derive(Debug)]
struct Direct {
    file: File,
    align: DirectAlign,
    /// Set when a well-aligned direct write was refused with EINVAL in spite of all signs.
    refused: OnceLock<String>,
}

impl LogFile {
    /// Opens a log file. Like SQLite it follows no symbolic link at the end of the path, and does
    /// not let a child process inherit the descriptors. A created file's directory entry is not
    /// durable before [`sync_directory`].
    ///
    /// # Errors
    /// The path cannot be opened, is no regular file, or was replaced meanwhile.
    pub fn open(
        path: &Path,
        create: Create,
        access: Access,
        direct: DirectIo,
    ) -> Result<Self, StorageError> {
        let buffered = open_buffered(path, create, access)?;
        let capabilities = Capabilities::of_file(&buffered, path)?;
        let mut file = Self {
            path: path.to_owned(),
            access,
            buffered,
            direct: None,
            capabilities,
            no_dsync_flag: AtomicBool::new(false),
            counters: IoCounters::default(),
        };
        if access == Access::ReadWrite && direct == DirectIo::Auto {
            file.open_direct()?;
        } else if file.capabilities.direct.is_ok() {
            file.capabilities.direct = Err(match direct {
                DirectIo::Never => "direct I/O was turned off".to_owned(),
                DirectIo::Auto => "the file was opened read-only".to_owned(),
            });
        }
        Ok(file)
    }

    fn open_direct(&mut self) -> Result<(), StorageError> {
        let Ok(align) = self.capabilities.direct else {
            return Ok(());
        };
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = match retry(|| rustix::fs::open(&self.path, flags, Mode::empty())) {
            Ok(fd) => File::from(fd),
            Err(e @ (Errno::INVAL | Errno::OPNOTSUPP)) => {
                self.capabilities.direct = Err(format!(
                    "{} refuses to open a file with O_DIRECT: {e}",
                    self.capabilities.filesystem
                ));
                return Ok(());
            }
            Err(e) => return Err(self.error(Operation::Open, None, e)),
        };
        if self.identity_of(&file)? != self.identity()? {
            return Err(StorageError::Replaced {
                path: self.path.clone(),
            });
        }
        self.direct = Some(Direct {
            file,
            align,
            refused: OnceLock::new(),
        });
        Ok(())
    }

    /// The path that the file was opened with.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the file system and the device can do. `direct` there is an error too when direct I/O
    /// was not asked for.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
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
        match (&self.capabilities.direct, &self.direct) {
            (Err(reason), _) => Some(reason),
            (Ok(_), Some(direct)) => direct.refused.get().map(String::as_str),
            (Ok(_), None) => None,
        }
    }

    /// What this process has done to the file through this object.
    #[must_use]
    pub fn counters(&self) -> &IoCounters {
        &self.counters
    }

    /// Device and inode number of the open file.
    ///
    /// # Errors
    /// Whatever fstat(2) reports.
    pub fn identity(&self) -> Result<(u64, u64), StorageError> {
        self.identity_of(&self.buffered)
    }

    fn identity_of(&self, file: &File) -> Result<(u64, u64), StorageError> {
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
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match retry(|| pread(&self.buffered, &mut buf[done..], at)) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) => return Err(self.error(Operation::Read, Some(at), e)),
            }
        }
        Ok(done)
    }

    /// Writes `buf` at `offset`: one pwritev2 in the good case, direct where [`LogFile::direct`]
    /// is `Some`, with RWF_DSYNC for [`Durability::WriteThrough`]. Through the page cache
    /// otherwise, followed by fdatasync for write-through.
    ///
    /// # Errors
    /// [`StorageError::Misaligned`] for a direct write of unaligned bytes; whatever the kernel
    /// reports otherwise. After an error any part of `buf` may be on the device.
    pub fn write_at(
        &self,
        buf: &[u8],
        offset: u64,
        durability: Durability,
    ) -> Result<(), StorageError> {
        self.check_writable(Operation::Write)?;
        if let (Some(align), Some(direct)) = (self.direct(), &self.direct) {
            self.check_aligned(buf, offset, align)?;
            if self.write_direct(direct, buf, offset, durability)? {
                return Ok(());
            }
        }
        self.write_buffered_at(buf, offset)?;
        match durability {
            Durability::None => Ok(()),
            Durability::WriteThrough => self.flush(),
        }
    }

    /// Returns false if the kernel refused the first byte with EINVAL: then nothing was written,
    /// and from now on everything is buffered.
    fn write_direct(
        &self,
        direct: &Direct,
        buf: &[u8],
        offset: u64,
        durability: Durability,
    ) -> Result<bool, StorageError> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let written = match self.pwrite_through(&direct.file, &buf[done..], at, durability) {
                Ok(0) => return Err(self.error(Operation::Write, Some(at), write_zero())),
                Ok(n) => n,
                Err(Errno::INVAL) if done == 0 => {
                    direct.refused.get_or_init(|| {
                        format!(
                            "{} refused an aligned direct write",
                            self.capabilities.filesystem
                        )
                    });
                    return Ok(false);
                }
                Err(e) => return Err(self.error(Operation::Write, Some(at), e)),
            };
            self.counters.count_write(written);
            done += written;
            if done < buf.len() {
                // Continue on a block boundary; the bytes past it are written again.
                let block = done - done % direct.align.offset as usize;
                if block + written <= done {
                    return Err(self.error(Operation::Write, Some(at), write_zero()));
                }
                done = block;
            }
        }
        Ok(true)
    }

    /// One write of some of `buf`, durable if asked for.
    fn pwrite_through(
        &self,
        file: &File,
        buf: &[u8],
        offset: u64,
        durability: Durability,
    ) -> Result<usize, Errno> {
        if durability == Durability::None {
            return retry(|| pwrite(file, buf, offset));
        }
        if !self.no_dsync_flag.load(Relaxed) {
            let slices = [IoSlice::new(buf)];
            match retry(|| pwritev2(file, &slices, offset, ReadWriteFlags::DSYNC)) {
                // Refused before any I/O: a kernel before 4.7, or a file system without it.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.no_dsync_flag.store(true, Relaxed),
                Ok(n) => {
                    self.counters.write_through.fetch_add(1, Relaxed);
                    return Ok(n);
                }
                Err(e) => return Err(e),
            }
        }
        let written = retry(|| pwrite(file, buf, offset))?;
        retry(|| fdatasync(file))?;
        self.counters.flushes.fetch_add(1, Relaxed);
        Ok(written)
    }

    fn check_aligned(
        &self,
        buf: &[u8],
        offset: u64,
        align: DirectAlign,
    ) -> Result<(), StorageError> {
        let memory_remainder = buf.as_ptr().addr() % align.memory as usize;
        let aligned = memory_remainder == 0
            && offset.is_multiple_of(u64::from(align.offset))
            && buf.len().is_multiple_of(align.offset as usize);
        if aligned {
            return Ok(());
        }
        Err(StorageError::Misaligned {
            path: self.path.clone(),
            offset,
            len: buf.len(),
            memory_remainder,
            align,
        })
    }

    /// Writes `buf` at `offset` through the page cache, whatever the capabilities: for
    /// transactions so large that one flush at the end is cheaper. Not durable before
    /// [`LogFile::flush`].
    ///
    /// # Errors
    /// Whatever pwrite(2) reports. After an error any part of `buf` may be in the file.
    pub fn write_buffered_at(&self, buf: &[u8], offset: u64) -> Result<(), StorageError> {
        self.check_writable(Operation::Write)?;
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match retry(|| pwrite(&self.buffered, &buf[done..], at)) {
                Ok(0) => return Err(self.error(Operation::Write, Some(at), write_zero())),
                Ok(n) => {
                    self.counters.count_write(n);
                    done += n;
                }
                Err(e) => return Err(self.error(Operation::Write, Some(at), e)),
            }
        }
        Ok(())
    }

    /// Makes everything durable that was written to this file before, by whatever descriptor or
    /// process, and empties the device's cache (fdatasync).
    ///
    /// # Errors
    /// Whatever fdatasync(2) reports. The state of the written data is unknown then, and a later
    /// success says nothing about it.
    pub fn flush(&self) -> Result<(), StorageError> {
        retry(|| fdatasync(&self.buffered)).map_err(|e| self.error(Operation::Flush, None, e))?;
        self.counters.flushes.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Size in bytes.
    ///
    /// # Errors
    /// Whatever fstat(2) reports.
    pub fn size(&self) -> Result<u64, StorageError> {
        let stat = fstat(&self.buffered).map_err(|e| self.error(Operation::Inspect, None, e))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    /// Sets the size, and frees blocks beyond it. Bytes that come into being are a hole: use
    /// [`LogFile::initialize`] to get blocks. Not durable before [`LogFile::flush`].
    ///
    /// # Errors
    /// Whatever ftruncate(2) reports.
    pub fn truncate(&self, size: u64) -> Result<(), StorageError> {
        self.check_writable(Operation::Truncate)?;
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

/// Makes the creation or deletion of `of` durable: fsync of the directory that holds it.
///
/// # Errors
/// The directory cannot be opened or flushed.
pub fn sync_directory(of: &Path) -> Result<(), StorageError> {
    let parent = match of.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = retry(|| rustix::fs::open(parent, flags, Mode::empty()))
        .map_err(|e| StorageError::io(parent, Operation::Open, e))?;
    retry(|| rustix::fs::fsync(&directory))
        .map_err(|e| StorageError::io(parent, Operation::Flush, e))
}

fn open_buffered(path: &Path, create: Create, access: Access) -> Result<File, StorageError> {
    // NONBLOCK has no effect on a regular file; it keeps the open of a FIFO that stands in the
    // log's place from waiting for ever.
    let mut flags = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    flags |= match access {
        Access::ReadWrite => OFlags::RDWR,
        Access::ReadOnly => OFlags::RDONLY,
    };
    let (operation, new) = match create {
        Create::Never => (Operation::Open, None),
        Create::IfMissing(new) => {
            flags |= OFlags::CREATE;
            (Operation::Create, Some(new))
        }
        Create::New(new) => {
            flags |= OFlags::CREATE | OFlags::EXCL;
            (Operation::Create, Some(new))
        }
    };
    let mode = new.map_or(Mode::empty(), |n| Mode::from_raw_mode(n.mode & 0o777));
    let error = |e: Errno| StorageError::io(path, operation, e);
    let fd = retry(|| rustix::fs::open(path, flags, mode)).map_err(error)?;
    let stat = fstat(&fd).map_err(error)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(StorageError::NotAFile {
            path: path.to_owned(),
        });
    }
    if let Some(new) = new.filter(|_| stat.st_size == 0) {
        give_permissions(&fd, new, stat.st_mode);
    }
    Ok(fd.into())
}

/// As SQLite treats a new log: right permissions in spite of the umask and the database's owner
/// when we are root. A failure is ignored there and here; the file works for this process.
fn give_permissions(fd: impl AsFd, new: NewFile, current: u32) {
    let fd = fd.as_fd();
    if current & 0o777 != new.mode & 0o777 {
        let _ = rustix::fs::fchmod(fd, Mode::from_raw_mode(new.mode & 0o777));
    }
    if let Some((user, group)) = new.owner
        && rustix::process::geteuid().is_root()
    {
        let user = rustix::fs::Uid::from_raw(user);
        let group = rustix::fs::Gid::from_raw(group);
        let _ = rustix::fs::fchown(fd, Some(user), Some(group));
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
