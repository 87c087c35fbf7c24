//! Errors of a log file: the cause, the place, and the way out.

use super::capabilities::DirectAlign;
use super::lock::LockByte;
use super::sys;
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The operation that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Operation {
    /// Opening an existing file.
    Open,
    /// Opening a file that is open already, for a description of its own. A refusal says nothing
    /// about what the user may do.
    OpenAgain,
    /// Creating a file.
    Create,
    /// Asking the file system about a file or a directory.
    Inspect,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Making written data durable (fdatasync or fsync).
    Flush,
    /// Setting the size.
    Truncate,
    /// Allocating and initializing blocks.
    Initialize,
    /// Removing a file.
    Remove,
    /// Locking or unlocking.
    Lock(LockByte),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("open"),
            Self::OpenAgain => f.write_str("open a second time"),
            Self::Create => f.write_str("create"),
            Self::Inspect => f.write_str("inspect"),
            Self::Read => f.write_str("read"),
            Self::Write => f.write_str("write"),
            Self::Flush => f.write_str("flush"),
            Self::Truncate => f.write_str("set the size of"),
            Self::Initialize => f.write_str("preallocate blocks of"),
            Self::Remove => f.write_str("remove"),
            Self::Lock(byte) => write!(f, "lock the {byte:?} byte of"),
        }
    }
}

/// An error of the storage layer. `Display` names the file and, where there is one, the way out.
#[non_exhaustive]
pub enum StorageError {
    /// The kernel refused an operation.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operation that failed.
        operation: Operation,
        /// Byte offset in the file, if the operation has one.
        offset: Option<u64>,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A direct write whose buffer, offset or length the device cannot take. It is a bug of the
    /// caller.
    Misaligned {
        /// The file.
        path: PathBuf,
        /// Offset of the write in bytes.
        offset: u64,
        /// Length of the write in bytes.
        len: usize,
        /// Address of the buffer modulo the alignment that it needs.
        memory_remainder: usize,
        /// The alignment that is needed.
        align: DirectAlign,
    },
    /// The path names something other than a regular file.
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The open file no longer has a name: it was deleted or replaced.
    Deleted {
        /// The path that it had.
        path: PathBuf,
    },
    /// The file was replaced while it was being opened.
    Replaced {
        /// The path.
        path: PathBuf,
    },
    /// Another process holds a lock for too long.
    Busy {
        /// The file.
        path: PathBuf,
        /// The byte that is locked.
        byte: LockByte,
    },
    /// A write or an exclusive lock on a file that was opened read-only.
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        operation: Operation,
    },
}

impl StorageError {
    pub(super) fn io(path: &Path, operation: Operation, source: impl Into<io::Error>) -> Self {
        Self::Io {
            path: path.to_owned(),
            operation,
            offset: None,
            source: source.into(),
        }
    }

    /// The file or directory that the error is about.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Io { path, .. }
            | Self::Misaligned { path, .. }
            | Self::NotAFile { path }
            | Self::Deleted { path }
            | Self::Replaced { path }
            | Self::Busy { path, .. }
            | Self::ReadOnly { path, .. } => path,
        }
    }

    /// The kind that [`io::Error`] would report.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Io { source, .. } => source.kind(),
            Self::Misaligned { .. } | Self::NotAFile { .. } => io::ErrorKind::InvalidInput,
            Self::Deleted { .. } | Self::Replaced { .. } => io::ErrorKind::Other,
            Self::ReadOnly { .. } => io::ErrorKind::PermissionDenied,
            Self::Busy { .. } => io::ErrorKind::WouldBlock,
        }
    }

    /// The error number of the system call, if there was one.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    fn is(&self, errno: Errno) -> bool {
        self.raw_os_error() == Some(errno.raw_os_error())
    }

    /// Whether the file system or a quota has no room left.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        self.is(Errno::NOSPC) || self.is(Errno::DQUOT)
    }

    /// Whether this user may not open, make or remove the file, or nobody may because the file system
    /// is read-only. The same error of another call does not mean that: the file was open already.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(
            self,
            Self::Io {
                operation: Operation::Open | Operation::Create | Operation::Remove,
                source,
                ..
            } if is_denial(source)
        )
    }

    /// Whether a flush failed: what was written before it may be lost.
    #[must_use]
    pub fn is_of_flush(&self) -> bool {
        let operation = match self {
            Self::Io { operation, .. } => Some(*operation),
            _ => None,
        };
        operation == Some(Operation::Flush)
    }

    /// Whether the file system, the device or the kernel does not support the operation.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        let errno = self.raw_os_error().map(Errno::from_raw_os_error);
        errno.is_some_and(sys::is_refused)
    }

    /// Whether the file does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.is(Errno::NOENT)
    }

    /// Whether there is a file of that name.
    #[must_use]
    pub fn is_there_already(&self) -> bool {
        self.is(Errno::EXIST)
    }

    /// Steps that the user can take.
    fn way_out(&self) -> Option<&'static str> {
        let Self::Io { operation, .. } = self else {
            return None;
        };
        if self.is_no_space() {
            return Some("free some space on this file system, or raise the quota");
        }
        if self.is(Errno::LOOP) {
            return Some("the path is a symbolic link: use the path of the file itself");
        }
        if self.is(Errno::ROFS) {
            return Some("the file system is mounted read-only");
        }
        if self.is(Errno::FBIG) {
            return Some("the file system or a process limit (ulimit -f) allows no larger file");
        }
        if *operation == Operation::Initialize && self.is_unsupported() {
            return Some(
                "this way of initializing is not available here: use onewrite_init=zero-fill",
            );
        }
        if self.is(Errno::IO) && matches!(operation, Operation::Write | Operation::Flush) {
            return Some("the device failed; what it holds is known only after the next recovery");
        }
        None
    }
}

/// Whether the kernel refused a call because of permissions or a read-only file system.
#[must_use]
pub fn is_denial(error: &io::Error) -> bool {
    let denials = [Errno::ACCESS, Errno::PERM, Errno::ROFS];
    let found = error.raw_os_error();
    denials
        .iter()
        .any(|errno| found == Some(errno.raw_os_error()))
}

/// As people read it. A derived one would take 5 KiB of code, which no user sees.
impl fmt::Debug for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io {
                path,
                operation,
                offset,
                source,
            } => {
                write!(f, "cannot {operation} {}", path.display())?;
                if let Some(offset) = offset {
                    write!(f, " at byte {offset}")?;
                }
                write!(f, ": {source}")?;
            }
            Self::Misaligned {
                path,
                offset,
                len,
                memory_remainder,
                align,
            } => write!(
                f,
                "cannot write {len} bytes at byte {offset} of {} directly: offset and length must \
                 be multiples of {}, and the buffer, {memory_remainder} bytes past such an \
                 address, must start at a multiple of {}",
                path.display(),
                align.offset,
                align.memory
            )?,
            Self::NotAFile { path } => write!(f, "{} is not a regular file", path.display())?,
            Self::Deleted { path } => write!(
                f,
                "{} was deleted or replaced while it was in use: what is written to it now would be \
                 lost; close every connection, which saves what was committed",
                path.display()
            )?,
            Self::Replaced { path } => write!(
                f,
                "{} was replaced by another file while it was being opened",
                path.display()
            )?,
            Self::Busy { path, byte } => write!(
                f,
                "another process keeps the {byte:?} byte of {} locked, and may have been stopped",
                path.display()
            )?,
            Self::ReadOnly { path, operation } => {
                write!(
                    f,
                    "cannot {operation} {}: it was opened read-only",
                    path.display()
                )?;
            }
        }
        if let Some(way_out) = self.way_out() {
            write!(f, "; {way_out}")?;
        }
        Ok(())
    }
}

impl std::error::Error for StorageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<StorageError> for io::Error {
    /// Keeps the kind and the whole text. [`io::Error::get_ref`] gives access to the error number.
    fn from(error: StorageError) -> Self {
        Self::new(error.kind(), error)
    }
}
