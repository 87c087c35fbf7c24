//! Advisory locks on a log file, between processes and between connections of one process.
//!
//! Open-file-description locks belong to one [`LogFile`], not to the process: two of them in one
//! process exclude each other, closing another descriptor drops nothing, and the kernel releases
//! them when their holder dies, in whatever pid namespace it ran. Threads that share one `LogFile`
//! share its locks: they need a mutex besides.
//!
//! So do processes: a child made by fork shares them until it calls exec, exits or closes the
//! descriptors. A `LogFile` therefore releases its locks itself when it is dropped, rather than
//! leave that to the closing, which a child's copy would delay; and only in the process that opened
//! it, so that a child that drops its copy does not release its parent's. If the parent is killed
//! while such a child lives, its locks live on with the child.

use super::error::{Operation, StorageError};
use super::file::LogFile;
use super::sys::{OfdCommand, OfdType, ofd_lock};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;

/// First locked byte. The locks are advisory and on no data, so that the byte may lie anywhere; this
/// place fits a 32-bit `off_t`, so that 32- and 64-bit processes agree on it. SQLite locks bytes of
/// the database and of `-shm`, never of a log.
const LOCK_BASE: i32 = 0x7fff_ff00;

/// The bytes that are locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum LockByte {
    /// Held shared by everybody who has the log in use.
    Presence,
    /// Held exclusively while the log is created, extended or reset.
    Extension,
    /// Held by those who have seen the log poisoned.
    Poison,
    /// Held exclusively by the process that flushes for a group of commits.
    Flush,
    /// Held exclusively by the process whose turn it is to ask for SQLite's write lock.
    Turn,
}

impl LockByte {
    const ALL: [Self; 5] = [
        Self::Presence,
        Self::Extension,
        Self::Poison,
        Self::Flush,
        Self::Turn,
    ];

    fn offset(self) -> i32 {
        LOCK_BASE
            + match self {
                Self::Presence => 0,
                Self::Extension => 1,
                Self::Poison => 2,
                Self::Flush => 3,
                Self::Turn => 4,
            }
    }
}

/// Who else may hold the byte at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum LockKind {
    /// Others may hold it shared too.
    Shared,
    /// Nobody else.
    Exclusive,
}

impl LockKind {
    fn ofd(self) -> OfdType {
        match self {
            Self::Shared => OfdType::Read,
            Self::Exclusive => OfdType::Write,
        }
    }
}

/// Whether any open file, of this process or another, holds a lock on one byte of a file, SQLite's POSIX
/// locks included. Asks, and locks nothing; the file may be open for reading alone.
///
/// # Errors
/// Whatever fcntl(2) reports.
pub fn is_byte_locked(file: impl AsFd, offset: i32) -> io::Result<bool> {
    ofd_lock(file.as_fd(), OfdCommand::Get, OfdType::Write, offset)
}

impl LogFile {
    /// Takes the lock, waiting as long as it takes (a signal does not end the wait). Taking a byte
    /// that this file already holds changes its kind.
    ///
    /// # Errors
    /// [`LockKind::Exclusive`] on a read-only file, and whatever fcntl(2) reports.
    pub fn lock(&self, byte: LockByte, kind: LockKind) -> Result<(), StorageError> {
        self.check_lockable(byte, kind)?;
        #[cfg(shuttle)]
        return crate::sync::wait_for_lock(|| self.try_lock(byte, kind));
        #[cfg(not(shuttle))]
        loop {
            match self.ofd(OfdCommand::SetWait, kind.ofd(), byte) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other.map(|_| ()).map_err(|e| self.lock_error(byte, e)),
            }
        }
    }

    /// Takes the lock if nobody stands in the way. Returns whether it was taken.
    ///
    /// # Errors
    /// As [`LogFile::lock`].
    pub fn try_lock(&self, byte: LockByte, kind: LockKind) -> Result<bool, StorageError> {
        self.check_lockable(byte, kind)?;
        match self.ofd(OfdCommand::Set, kind.ofd(), byte) {
            Ok(_) => Ok(true),
            // EAGAIN, or EACCES as POSIX allows.
            Err(e) if is_conflict(&e) => Ok(false),
            Err(e) => Err(self.lock_error(byte, e)),
        }
    }

    /// Releases the byte, whether it was held or not.
    ///
    /// # Errors
    /// Whatever fcntl(2) reports.
    pub fn unlock(&self, byte: LockByte) -> Result<(), StorageError> {
        self.ofd(OfdCommand::Set, OfdType::Unlock, byte)
            .map(|_| ())
            .map_err(|e| self.lock_error(byte, e))
    }

    /// Whether another open file, of this process or another, stands in the way of `kind` now:
    /// for [`LockKind::Exclusive`] any holder, for [`LockKind::Shared`] an exclusive one.
    ///
    /// # Errors
    /// Whatever fcntl(2) reports.
    pub fn is_locked_by_other(&self, byte: LockByte, kind: LockKind) -> Result<bool, StorageError> {
        self.ofd(OfdCommand::Get, kind.ofd(), byte)
            .map_err(|e| self.lock_error(byte, e))
    }

    /// The kernel would say EBADF, which helps nobody.
    fn check_lockable(&self, byte: LockByte, kind: LockKind) -> Result<(), StorageError> {
        match kind {
            LockKind::Shared => Ok(()),
            LockKind::Exclusive => self.check_writable(Operation::Lock(byte)),
        }
    }

    fn ofd(&self, command: OfdCommand, kind: OfdType, byte: LockByte) -> io::Result<bool> {
        ofd_lock(self.buffered_fd(), command, kind, byte.offset())
    }

    fn lock_error(&self, byte: LockByte, source: io::Error) -> StorageError {
        self.error(Operation::Lock(byte), None, source)
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        if rustix::process::getpid() != self.opened_by {
            return;
        }
        for byte in LockByte::ALL {
            // Closing the descriptor is the second chance.
            let _ = self.unlock(byte);
        }
    }
}

fn is_conflict(error: &io::Error) -> bool {
    [Errno::AGAIN, Errno::ACCESS]
        .iter()
        .any(|e| error.raw_os_error() == Some(e.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::super::open::{Access, Create, DirectIo, NewFile};
    use super::*;
    use std::path::Path;

    fn open(path: &Path) -> LogFile {
        let create = Create::IfMissing(NewFile {
            mode: 0o600,
            owner: None,
        });
        LogFile::open(path, create, Access::ReadWrite, DirectIo::Auto).expect("a log file")
    }

    #[test]
    fn a_copy_of_the_descriptor_does_not_keep_the_locks_of_a_dropped_file() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("log");
        let (file, other) = (open(&path), open(&path));
        for byte in LockByte::ALL {
            assert!(file.try_lock(byte, LockKind::Exclusive).expect("a lock"));
        }
        // What a child of fork holds.
        let copy = file.buffered_fd().try_clone_to_owned().expect("a copy");
        drop(file);
        for byte in LockByte::ALL {
            assert!(other.try_lock(byte, LockKind::Exclusive).expect("free"));
        }
        drop(copy);
    }

    #[test]
    fn dropping_a_copy_in_another_process_keeps_the_locks_of_the_opener() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("log");
        let (mut file, other) = (open(&path), open(&path));
        file.lock(LockByte::Presence, LockKind::Shared)
            .expect("a lock");
        let parent = file.buffered_fd().try_clone_to_owned().expect("a copy");
        // As the child of fork sees it: opened by another process, with the parent's descriptor.
        file.opened_by = rustix::process::Pid::INIT;
        drop(file);
        let locked = other.is_locked_by_other(LockByte::Presence, LockKind::Exclusive);
        assert!(locked.expect("an answer"));
        drop(parent);
    }
}
