//! Opening and creating a log file, and making its name durable.

use super::counters::IoCounters;
use super::description::Description;
use super::error::{Operation, StorageError};
use super::file::flushes::Flushes;
use super::file::{Direct, LogFile, retry};
use super::observer::{self, Call};
use super::probe;
use super::sys;
use rustix::fs::{
    FallocateFlags, FileType, IFlags, Mode, OFlags, Stat, fallocate, fstat, ioctl_getflags,
};
use rustix::io::Errno;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Descriptors below this are stdin, stdout and stderr. In a process that closed them, a stray
/// message would end up in the log. SQLite avoids them too.
pub(super) const LEAST_DESCRIPTOR: i32 = 3;

/// Permissions and owner of a file that is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewFile {
    /// Permission bits. They are set regardless of the umask, as SQLite does for its log.
    pub mode: u32,
    /// User and group, set if this process is root, as SQLite does; `None` leaves them.
    pub owner: Option<(u32, u32)>,
}

/// How [`LogFile::open`] treats a missing file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Create {
    /// Fail.
    Never,
    /// Create it.
    IfMissing(NewFile),
    /// Create it, and fail if it exists.
    New(NewFile),
}

/// The access for which the file is opened.
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
    /// Direct, if the capabilities allow it.
    Auto,
    /// Always through the page cache.
    Never,
}

impl LogFile {
    /// Opens a log file. Like SQLite it follows no symbolic link at the end of the path, and does
    /// not let a child process inherit the descriptors. A new file's directory entry is durable
    /// only after [`sync_directory`].
    ///
    /// # Errors
    /// The path cannot be opened, is no regular file, or was replaced meanwhile.
    pub fn open(
        path: &Path,
        create: Create,
        access: Access,
        direct: DirectIo,
    ) -> Result<Self, StorageError> {
        observer::before(path, Operation::Open, &Call::Open)?;
        let buffered = open_buffered(path, create, access)?;
        let stat = probe::inspect(&buffered, path)?;
        let locks = Description::of(buffered.as_fd(), access == Access::ReadWrite)
            .map_err(|e| StorageError::io(path, Operation::OpenAgain, e))?;
        let no_direct = match (access, direct) {
            (Access::ReadWrite, DirectIo::Auto) => None,
            (_, DirectIo::Never) => Some("direct I/O was turned off"),
            (Access::ReadOnly, DirectIo::Auto) => Some("the file was opened read-only"),
        };
        let mut file = Self {
            path: path.to_owned(),
            access,
            buffered,
            direct: None,
            stat,
            no_direct,
            capabilities: OnceLock::new(),
            no_dsync_flag: AtomicBool::new(false),
            no_write_zeroes: AtomicBool::new(false),
            counters: IoCounters::default(),
            flushes: Flushes::default(),
            locks,
            writer_locks: None,
        };
        if no_direct.is_none() {
            file.open_direct()?;
        }
        Ok(file)
    }

    /// Gives an existing file the permissions and owner of a new one. As with a new file, a failure
    /// is ignored.
    pub fn give_permissions(&self, new: NewFile) {
        if let Ok(stat) = fstat(&self.buffered) {
            give_permissions(&self.buffered, new, &stat);
        }
    }

    fn open_direct(&mut self) -> Result<(), StorageError> {
        let Ok(align) = self.capabilities().direct else {
            return Ok(());
        };
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = match open_descriptor(&self.path, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(e @ (Errno::INVAL | Errno::OPNOTSUPP)) => {
                if let Some(capabilities) = self.capabilities.get_mut() {
                    capabilities.direct = Err(format!(
                        "{} refuses to open a file with O_DIRECT: {e}",
                        capabilities.filesystem
                    ));
                }
                return Ok(());
            }
            Err(e) => return Err(self.error(Operation::OpenAgain, None, e)),
        };
        if self.identity_of(&file)? != self.identity()? {
            return Err(StorageError::Replaced {
                path: self.path.clone(),
            });
        }
        let is_durable = self.capabilities().write_through.is_ok();
        self.no_dsync_flag.store(!is_durable, Ordering::Relaxed);
        self.direct = Some(Direct {
            file,
            align,
            refused: OnceLock::new(),
        });
        Ok(())
    }
}

/// Makes the creation or deletion of `of` durable: fsync of the directory that holds it.
///
/// # Errors
/// The directory cannot be opened or flushed.
pub fn sync_directory(of: &Path) -> Result<(), StorageError> {
    observer::before(of, Operation::Flush, &Call::SyncDirectory)?;
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

/// Removes a file if it exists. This is durable only after [`sync_directory`].
///
/// # Errors
/// It exists and cannot be removed.
pub fn remove_file(path: &Path) -> Result<(), StorageError> {
    observer::before(path, Operation::Remove, &Call::Remove)?;
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(StorageError::io(path, Operation::Remove, e)),
    }
}

pub(super) fn open_buffered(
    path: &Path,
    create: Create,
    access: Access,
) -> Result<File, StorageError> {
    // NONBLOCK has no effect on a regular file. If a FIFO has the log's name, it keeps the open
    // from waiting forever.
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
    let fd =
        open_descriptor(path, flags, mode).map_err(|e| StorageError::io(path, operation, e))?;
    // Only a refused open means that this user may not write the file.
    let stat = fstat(&fd).map_err(|e| StorageError::io(path, Operation::Inspect, e))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(StorageError::NotAFile {
            path: path.to_owned(),
        });
    }
    if let Some(new) = new.filter(|_| stat.st_size == 0) {
        give_permissions(&fd, new, &stat);
    }
    Ok(fd.into())
}

/// `FS_NOCOMP_FL`: Btrfs does not try to compress the file.
const NOT_COMPRESSED: IFlags = IFlags::from_bits_retain(0x400);

/// Asks the file system to write the blocks of an empty file in place. Btrfs looks for new blocks otherwise,
/// when a process stores into memory that is mapped from the file. Where it is full it ends that process
/// (SIGBUS). From Linux 6.15 on a store into blocks that are there needs no space then. Other file systems
/// write in place anyway, or cannot: a failure changes nothing.
pub(super) fn write_in_place(file: impl AsFd) {
    let flags = ioctl_getflags(&file);
    if let Some(flags) = flags.ok().filter(|flags| !flags.contains(IFlags::NOCOW)) {
        // A file takes these from its directory. Btrfs refuses the attribute for a file that has one of
        // them, also in the call that takes it away.
        let plain = flags - IFlags::COMPRESSED - NOT_COMPRESSED;
        if plain != flags {
            let _ = sys::set_file_flags(&file, plain.bits());
        }
        let _ = sys::set_file_flags(&file, (plain | IFlags::NOCOW).bits());
    }
}

/// Makes an empty file whose blocks are written in place, unless there is a file of that name.
///
/// # Errors
/// It cannot be made.
pub fn make_in_place(path: &Path, new: NewFile) -> Result<(), StorageError> {
    match open_buffered(path, Create::New(new), Access::ReadWrite) {
        Ok(file) => {
            write_in_place(&file);
            Ok(())
        }
        Err(e) if e.is_there_already() => Ok(()),
        Err(e) => Err(e),
    }
}

/// Makes every block of a part of a file, with its size. So a store into memory that is mapped from there
/// needs no space.
///
/// # Errors
/// No space; an I/O error.
pub fn make_blocks(path: &Path, part: Range<u64>) -> Result<(), StorageError> {
    let file = open_buffered(path, Create::Never, Access::ReadWrite)?;
    let (plain, bytes) = (FallocateFlags::empty(), part.end - part.start);
    match retry(|| fallocate(&file, plain, part.start, bytes)) {
        // Then the file has holes, as SQLite makes it.
        Err(Errno::OPNOTSUPP) => Ok(()),
        made => made.map_err(|e| StorageError::io(path, Operation::Initialize, e)),
    }
}

/// Treats a new log as SQLite does: the right permissions despite the umask, and the database's
/// owner if this process is root. SQLite also ignores a failure; the file works for this process.
fn give_permissions(fd: impl AsFd, new: NewFile, current: &Stat) {
    let fd = fd.as_fd();
    if current.st_mode & 0o777 != new.mode & 0o777 {
        let _ = rustix::fs::fchmod(fd, Mode::from_raw_mode(new.mode & 0o777));
    }
    if let Some((user, group)) = new.owner
        && (user, group) != (current.st_uid, current.st_gid)
        && rustix::process::geteuid().is_root()
    {
        let user = rustix::fs::Uid::from_raw(user);
        let group = rustix::fs::Gid::from_raw(group);
        let _ = rustix::fs::fchown(fd, Some(user), Some(group));
    }
}

/// Opens a file on a descriptor above those of stdin, stdout and stderr.
pub(super) fn open_descriptor(path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let fd = retry(|| rustix::fs::open(path, flags, mode))?;
    if fd.as_raw_fd() >= LEAST_DESCRIPTOR {
        return Ok(fd);
    }
    retry(|| rustix::io::fcntl_dupfd_cloexec(&fd, LEAST_DESCRIPTOR))
}

#[cfg(test)]
mod tests {
    use super::super::{AlignedBuf, Durability};
    use super::*;

    #[test]
    fn where_write_through_is_not_durable_a_flush_follows() {
        let directory = tempfile::tempdir_in(".").expect("a temporary directory");
        let path = directory.path().join("log");
        let new = Create::New(NewFile {
            mode: 0o600,
            owner: None,
        });
        let mut file =
            LogFile::open(&path, new, Access::ReadWrite, DirectIo::Auto).expect("a log file");
        if file.direct().is_none() {
            eprintln!("SKIPPED: no direct I/O in this directory");
            return;
        }
        let found = file.capabilities.get_mut().expect("asked for");
        found.write_through = Err("as F2FS".to_owned());
        assert!(found.durable_write().covers_all_before());
        file.open_direct().expect("the same file");
        let block = AlignedBuf::zeroed(4096);
        file.write_at(&block, 0, Durability::WriteThrough)
            .expect("a write");
        let counts = file.counters().snapshot();
        assert_eq!(
            (counts.writes, counts.write_through, counts.flushes),
            (1, 0, 1)
        );
    }
}
