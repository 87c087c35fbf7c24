//! Advisory locks on a log file, between processes and between connections of one process.
//!
//! Open-file-description locks belong to one [`LogFile`], not to the process. Two of them in one
//! process exclude each other, and closing another descriptor drops nothing. The kernel releases
//! them when their holder dies, in any pid namespace. Threads that share one `LogFile` share its
//! locks, so they also need a mutex.
//!
//! A child made by fork shares the open file. So the locks are on a [`Description`] of their own,
//! and the child closes its descriptor at once. It keeps no lock of a killed parent, and releases
//! no lock of a living one.
//!
//! A process that may only read a file can take shared locks on it, and keep them. So the bytes
//! that writers wait for are locked in a separate file. Only those that may write the log
//! can open it ([`LogFile::lock_in_own_file`]).

use super::description::Description;
use super::error::{Operation, StorageError};
use super::file::LogFile;
use super::observer::{self, Call};
use super::open::{Access, Create, NewFile, open_buffered, remove_file};
use super::sys::{OfdCommand, OfdRange, OfdType, ofd_lock};
use crate::waits::{Patience, try_within};
use onewrite_common::files::companion;
use rustix::fs::{fstat, ftruncate};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// First locked byte. The locks are advisory and cover no data, so the byte may lie anywhere. This
/// offset fits a 32-bit `off_t`, so that 32- and 64-bit processes agree on it. SQLite locks bytes
/// of the database and of `-shm`, never of a log.
const LOCK_BASE: i32 = 0x7fff_ff00;

/// The bytes that are locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum LockByte {
    /// Held shared by every process that uses the log.
    Presence,
    /// Held exclusively while the log is created, extended or reset.
    Extension,
    /// Held by the processes that have seen the log poisoned.
    Poison,
    /// Held exclusively by the process that flushes for a group of commits.
    Flush,
    /// Held exclusively by the process whose turn it is to ask for SQLite's write lock.
    Turn,
    /// Held shared by a process that waits for the presence lock. Meanwhile no other process may
    /// take that lock exclusively.
    Knock,
}

impl LockByte {
    /// Whether writers wait for it, or must always be able to take it.
    fn is_for_writers(self) -> bool {
        !matches!(self, Self::Presence | Self::Knock)
    }

    fn offset(self) -> i32 {
        LOCK_BASE
            + match self {
                Self::Presence => 0,
                Self::Extension => 1,
                Self::Poison => 2,
                Self::Flush => 3,
                Self::Turn => 4,
                Self::Knock => 5,
            }
    }

    fn range(self) -> OfdRange {
        OfdRange {
            start: self.offset().into(),
            len: 1,
        }
    }
}

/// Whether others may hold the byte at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum LockKind {
    /// Others may also hold it shared.
    Shared,
    /// No other may hold it.
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

/// Whether any open file, of this process or another, holds a lock on one byte of a file. SQLite's
/// POSIX locks count. It locks nothing, and the file may be open for reading only.
///
/// # Errors
/// Those of fcntl(2).
pub fn is_byte_locked(file: impl AsFd, offset: i32) -> io::Result<bool> {
    ofd_lock(file.as_fd(), OfdCommand::Get, OfdType::Write, offset)
}

/// Whether any process has this log open. It may be open for reading only, and nothing is locked.
///
/// # Errors
/// Those of fcntl(2).
pub fn is_present(log: impl AsFd) -> io::Result<bool> {
    is_byte_locked(log, LockByte::Presence.offset())
}

/// The path of the file in which a log's writers exclude each other.
#[must_use]
pub fn lock_path(log: &Path) -> PathBuf {
    companion(log, "-lock")
}

/// Permissions of a file that only writers of a file with `mode` can open. They may read and write
/// it; others have no access.
fn for_writers_only(mode: u32) -> u32 {
    let writes = mode & 0o222;
    writes | writes << 1
}

/// The separate file in which writers lock each other out.
#[derive(Debug)]
pub(super) struct WriterLocks {
    path: PathBuf,
    file: Description,
}

impl LogFile {
    /// From here on, locks the bytes that writers wait for in the file at `path` ([`lock_path`]).
    /// `new` is for a file that must be made. `is_alone`: no other process has the log open or can
    /// open it now. Then a leftover file, maybe with other permissions, is replaced where this user
    /// may do that.
    ///
    /// # Errors
    /// The file cannot be opened or made.
    pub fn lock_in_own_file(
        &mut self,
        path: PathBuf,
        new: NewFile,
        is_alone: bool,
    ) -> Result<(), StorageError> {
        if is_alone {
            match remove_file(&path) {
                // The directory is not this user's to change. The file may be.
                Err(e) if e.is_denied() => {}
                other => other?,
            }
        }
        let new = NewFile {
            mode: for_writers_only(new.mode),
            ..new
        };
        observer::before(&path, Operation::Open, &Call::Open)?;
        let file = open_buffered(&path, Create::IfMissing(new), Access::ReadWrite)?;
        let file = Description::owning(file.into());
        self.writer_locks = Some(WriterLocks { path, file });
        Ok(())
    }

    /// Takes the lock. Waits for a moment, and then for as long as patience lasts. Taking a byte
    /// that this file already holds changes its kind.
    ///
    /// # Errors
    /// [`StorageError::Busy`] if the lock was not free in time; [`LockKind::Exclusive`] on a
    /// read-only file; errors of fcntl(2).
    pub fn lock(
        &self,
        byte: LockByte,
        kind: LockKind,
        (moment, patience): (Duration, &dyn Patience),
    ) -> Result<(), StorageError> {
        match try_within(moment, patience, || self.try_lock(byte, kind))? {
            true => Ok(()),
            false => Err(self.busy(byte)),
        }
    }

    /// The error for a lock that was not free in time.
    #[must_use]
    pub fn busy(&self, byte: LockByte) -> StorageError {
        StorageError::Busy {
            path: self.path.clone(),
            byte,
        }
    }

    /// Checks that writers' locks still exclude all others. They do not if the file with them was
    /// deleted, because a later process has made another.
    ///
    /// # Errors
    /// The file was deleted; errors of fstat(2).
    pub fn check_locks(&self) -> Result<(), StorageError> {
        let Some(locks) = &self.writer_locks else {
            return Ok(());
        };
        let path = &locks.path;
        let fd = locks.file.fd();
        match fd.and_then(|fd| Ok(fstat(fd)?)) {
            Ok(stat) if stat.st_nlink == 0 => Err(StorageError::Deleted { path: path.clone() }),
            Ok(_) => Ok(()),
            Err(e) => Err(StorageError::io(path, Operation::Inspect, e)),
        }
    }

    /// Notes for all present and later processes that this one writes the log without the page that
    /// the others share. The size of the file with the writers' locks says so: that needs no space,
    /// and outlives this process.
    ///
    /// # Errors
    /// Those of ftruncate(2).
    pub fn note_missing_page(&self) -> Result<(), StorageError> {
        let Some(WriterLocks { path, file }) = &self.writer_locks else {
            return Ok(());
        };
        let noted = file.fd().and_then(|fd| Ok(ftruncate(fd, 1)?));
        noted.map_err(|e| StorageError::io(path, Operation::Truncate, e))
    }

    /// Whether every process that has written the log since this one opened it shares the page, as far
    /// as the file with the writers' locks can tell.
    #[must_use]
    pub fn page_is_everybodys(&self) -> bool {
        let locks = self.writer_locks.as_ref();
        let stat = locks.and_then(|locks| Some(fstat(locks.file.fd().ok()?)));
        stat.is_some_and(|stat| stat.is_ok_and(|stat| stat.st_size == 0 && stat.st_nlink > 0))
    }

    /// Marks the log as poisoned for all its users, for as long as it is open here.
    pub fn lock_poison(&self) {
        // Other holders of the shared byte reported the same. If the lock fails, the log is still
        // not to be trusted.
        let _ = self.try_lock(LockByte::Poison, LockKind::Exclusive);
        if self.writer_locks.is_some() && self.access == Access::ReadWrite {
            // Readers look here, and so do processes that have yet to open the other file.
            let byte = LockByte::Poison.range();
            let _ = self.locks.lock(OfdCommand::Set, OfdType::Write, byte);
        }
    }

    /// Takes the lock if no other lock conflicts. Returns whether it was taken.
    ///
    /// # Errors
    /// As [`LogFile::lock`].
    pub fn try_lock(&self, byte: LockByte, kind: LockKind) -> Result<bool, StorageError> {
        self.check_lockable(byte, kind)?;
        let lock = || {
            observer::lock(self.path(), byte)?;
            self.ofd(OfdCommand::Set, kind.ofd(), byte)
        };
        match lock() {
            Ok(_) => Ok(true),
            // EAGAIN, or EACCES as POSIX allows.
            Err(e) if is_conflict(&e) => Ok(false),
            Err(e) => Err(self.lock_error(byte, e)),
        }
    }

    /// Releases the byte, whether it was held or not.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn unlock(&self, byte: LockByte) -> Result<(), StorageError> {
        self.ofd(OfdCommand::Set, OfdType::Unlock, byte)
            .map(|_| ())
            .map_err(|e| self.lock_error(byte, e))
    }

    /// Whether another open file, of this process or another, conflicts with `kind` now. For
    /// [`LockKind::Exclusive`] any holder does, for [`LockKind::Shared`] an exclusive one.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn is_locked_by_other(&self, byte: LockByte, kind: LockKind) -> Result<bool, StorageError> {
        self.ofd(OfdCommand::Get, kind.ofd(), byte)
            .map_err(|e| self.lock_error(byte, e))
    }

    /// The kernel would only report EBADF, which explains nothing.
    fn check_lockable(&self, byte: LockByte, kind: LockKind) -> Result<(), StorageError> {
        match kind {
            LockKind::Shared => Ok(()),
            LockKind::Exclusive => self.check_writable(Operation::Lock(byte)),
        }
    }

    /// Returns whether somebody is in the way, for [`OfdCommand::Get`].
    fn ofd(&self, command: OfdCommand, kind: OfdType, byte: LockByte) -> io::Result<bool> {
        let locks = match &self.writer_locks {
            Some(locks) if byte.is_for_writers() => &locks.file,
            _ => &self.locks,
        };
        let conflict = locks.lock(command, kind, byte.range())?;
        Ok(conflict.is_some())
    }

    fn lock_error(&self, byte: LockByte, source: io::Error) -> StorageError {
        self.error(Operation::Lock(byte), None, source)
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

    const ALL: [LockByte; 6] = [
        LockByte::Presence,
        LockByte::Extension,
        LockByte::Poison,
        LockByte::Flush,
        LockByte::Turn,
        LockByte::Knock,
    ];

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
        for byte in ALL {
            assert!(file.try_lock(byte, LockKind::Exclusive).expect("a lock"));
        }
        // The copy that a child of fork holds.
        let fd = file.locks.fd().expect("a descriptor");
        let copy = fd.try_clone_to_owned().expect("a copy");
        drop(file);
        for byte in ALL {
            assert!(other.try_lock(byte, LockKind::Exclusive).expect("free"));
        }
        drop(copy);
    }

    #[test]
    fn only_a_process_that_may_write_can_open_the_file_with_the_locks() {
        let modes = [0o600, 0o644, 0o640, 0o664, 0o660, 0o666, 0o444];
        let writers = [0o600, 0o600, 0o600, 0o660, 0o660, 0o666, 0];
        assert_eq!(modes.map(for_writers_only), writers);
    }

    #[test]
    fn shared_locks_on_the_log_keep_no_writer_out() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("log");
        let new = NewFile {
            mode: 0o644,
            owner: None,
        };
        let reader = open(&path);
        let [mut file, mut other] = [open(&path), open(&path)];
        for (file, is_alone) in [(&mut file, true), (&mut other, false)] {
            let path = lock_path(&path);
            file.lock_in_own_file(path, new, is_alone).expect("a file");
        }
        for byte in ALL {
            assert!(reader.try_lock(byte, LockKind::Shared).expect("a lock"));
            let is_taken = file.try_lock(byte, LockKind::Exclusive).expect("an answer");
            assert_eq!(is_taken, byte.is_for_writers(), "{byte:?}");
            let is_seen = other.is_locked_by_other(byte, LockKind::Shared);
            assert_eq!(is_seen.expect("an answer"), is_taken, "{byte:?}");
        }
        assert!(file.check_locks().is_ok());
        remove_file(&lock_path(&path)).expect("removed");
        assert!(file.check_locks().is_err(), "others may lock another file");
    }

    #[test]
    fn dropping_a_copy_in_another_process_keeps_the_locks_of_the_opener() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("log");
        let (mut file, other) = (open(&path), open(&path));
        assert!(
            file.try_lock(LockByte::Presence, LockKind::Shared)
                .expect("a lock")
        );
        let fd = file.locks.fd().expect("a descriptor");
        let parent = fd.try_clone_to_owned().expect("a copy");
        // The child's view after fork: opened by another process, with the parent's descriptor.
        file.locks.opened_by ^= 1;
        drop(file);
        let locked = other.is_locked_by_other(LockByte::Presence, LockKind::Exclusive);
        assert!(locked.expect("an answer"));
        drop(parent);
    }
}
