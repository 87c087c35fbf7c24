//! Files whose writes are a transaction of the file system, until a commit or an abort.
//!
//! Two file systems have such files. On X-FTL's (`crates/flash/src/files`) every file is one: fsync
//! commits, an ioctl aborts, and files can share a transaction. F2FS has ioctls for one file at a
//! time.
//!
//! The ioctls go to a descriptor that SQLite already has open. Opening and closing another one on
//! the database would drop all its POSIX locks in this process. It is found by device and inode
//! among the process's descriptors. Any descriptor of the file works, and each use checks it again.
//!
//! Called by `vfs/atomic.rs`.

use std::cell::Cell;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::sys;

/// `F2FS_IOC_START_ATOMIC_WRITE`, also of X-FTL.
const START: u32 = 0xF501;
/// `F2FS_IOC_COMMIT_ATOMIC_WRITE`, also of X-FTL, where fsync does the same.
const COMMIT: u32 = 0xF502;
/// `F2FS_IOC_ABORT_ATOMIC_WRITE`, also of X-FTL.
const ABORT: u32 = 0xF505;
/// Of X-FTL: the file shares the transaction of the file with this inode number.
const SHARE: u32 = 0x4008_5801;
/// Of X-FTL: bytes that need not outlive the mount. The argument is their offset (8 bytes), their
/// number (4 bytes), and the bytes themselves.
const LAZY: u32 = 0x4080_5802;
/// Bytes of the argument of [`LAZY`].
const LAZY_BYTES: usize = 128;

/// F2FS's number in statfs(2).
const F2FS: u32 = 0xF2F5_2010;

/// How a file system makes writes atomic.
pub trait AtomicWrites {
    /// Starts a transaction of the file's writes. It is aborted if the process ends.
    ///
    /// # Errors
    /// The file system's.
    fn begin(&self) -> io::Result<()>;
    /// Makes everything that was written durable; `false` if fsync does that.
    ///
    /// # Errors
    /// The file system's. The writes are gone after an abort, or may still be there.
    fn commit(&self) -> io::Result<bool>;
    /// The same by the ioctl alone, for callers that have no SQLite call on the file at hand.
    ///
    /// # Errors
    /// As [`Self::commit`].
    fn commit_by_ioctl(&self) -> io::Result<()>;
    /// Undoes everything that was written.
    ///
    /// # Errors
    /// The file system's.
    fn abort(&self) -> io::Result<()>;
    /// Writes bytes that need not be on the device: only those that have the file open read them.
    /// `false` if that is impossible, and nothing was written.
    fn write_lazily(&self, offset: u64, bytes: &[u8]) -> bool;
    /// The file shares its transaction with another file.
    ///
    /// # Errors
    /// The file system cannot, or the two files are on different ones.
    fn share(&self, with: &Descriptor) -> io::Result<()>;
    /// The descriptor.
    fn descriptor(&self) -> &Descriptor;
}

/// A descriptor of a file that SQLite has open.
#[derive(Clone, Debug)]
pub struct Descriptor {
    device: u64,
    inode: u64,
    number: Cell<i32>,
}

impl Descriptor {
    /// A descriptor of the file at a path, if this process has it open for writing.
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        let descriptor = Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            number: Cell::new(-1),
        };
        descriptor.find()?;
        Ok(descriptor)
    }

    fn is(&self, number: i32) -> bool {
        sys::descriptor(number).ok() == Some((self.device, self.inode, true))
    }

    fn find(&self) -> io::Result<i32> {
        if self.is(self.number.get()) {
            return Ok(self.number.get());
        }
        for entry in std::fs::read_dir("/proc/self/fd")? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.parse().ok());
            if let Some(number) = number.filter(|number| self.is(*number)) {
                self.number.set(number);
                return Ok(number);
            }
        }
        Err(io::Error::other(
            "this process has no file descriptor of the database",
        ))
    }

    fn ioctl(&self, request: u32, argument: &[u8]) -> io::Result<()> {
        sys::ioctl(self.find()?, request, argument)
    }
}

/// A file on X-FTL's file system.
struct Xftl(Descriptor);

impl AtomicWrites for Xftl {
    fn begin(&self) -> io::Result<()> {
        self.0.ioctl(START, &[])
    }

    fn commit(&self) -> io::Result<bool> {
        Ok(false)
    }

    fn commit_by_ioctl(&self) -> io::Result<()> {
        self.0.ioctl(COMMIT, &[])
    }

    fn abort(&self) -> io::Result<()> {
        self.0.ioctl(ABORT, &[])
    }

    fn write_lazily(&self, offset: u64, bytes: &[u8]) -> bool {
        let argument = lazy_write(offset, bytes);
        argument.is_some_and(|argument| self.0.ioctl(LAZY, &argument).is_ok())
    }

    fn share(&self, with: &Descriptor) -> io::Result<()> {
        match self.0.device == with.device {
            true => self.0.ioctl(SHARE, &with.inode.to_ne_bytes()),
            false => Err(io::Error::from(io::ErrorKind::CrossesDevices)),
        }
    }

    fn descriptor(&self) -> &Descriptor {
        &self.0
    }
}

/// The argument of [`LAZY`], if it has room for that many bytes.
fn lazy_write(offset: u64, bytes: &[u8]) -> Option<[u8; LAZY_BYTES]> {
    let mut argument = [0; LAZY_BYTES];
    let (head, rest) = argument.split_at_mut(12);
    head[..8].copy_from_slice(&offset.to_ne_bytes());
    head[8..].copy_from_slice(&u32::try_from(bytes.len()).ok()?.to_ne_bytes());
    rest.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(argument)
}

/// A file on F2FS. Not tested on the author's machine: its kernel has no F2FS.
struct F2fs(Descriptor);

impl AtomicWrites for F2fs {
    fn begin(&self) -> io::Result<()> {
        self.0.ioctl(START, &[])
    }

    fn commit(&self) -> io::Result<bool> {
        self.commit_by_ioctl().map(|()| true)
    }

    fn commit_by_ioctl(&self) -> io::Result<()> {
        self.0.ioctl(COMMIT, &[])
    }

    fn abort(&self) -> io::Result<()> {
        self.0.ioctl(ABORT, &[])
    }

    fn write_lazily(&self, _offset: u64, _bytes: &[u8]) -> bool {
        false
    }

    fn share(&self, _with: &Descriptor) -> io::Result<()> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    fn descriptor(&self) -> &Descriptor {
        &self.0
    }
}

/// The method of the file system that a file is on.
///
/// # Errors
/// The file does not exist or is not open, or its file system has no transactions.
pub fn atomic_writes(path: &Path) -> io::Result<Box<dyn AtomicWrites>> {
    let descriptor = Descriptor::of(path)?;
    let file_system = rustix::fs::statfs(path)?;
    if file_system.f_type as u32 == F2FS {
        return Ok(Box::new(F2fs(descriptor)));
    }
    // A file can always share a transaction with itself.
    match descriptor.ioctl(SHARE, &descriptor.inode.to_ne_bytes()) {
        Ok(()) => Ok(Box::new(Xftl(descriptor))),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "its file system has no transactions: use F2FS, or X-FTL (onewrite ftl mount)",
        )),
    }
}
