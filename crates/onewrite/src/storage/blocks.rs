//! The calls by which a range of a file gets other blocks, without a copy of the bytes.
//!
//! - [`Remap::Exchange`]: two ranges exchange their blocks (`XFS_IOC_EXCHANGE_RANGE`, Linux 6.10,
//!   on XFS made with the feature `exchange`). Each call is atomic and journaled.
//! - [`Remap::Clone`]: one range shares the blocks of the other (`FICLONERANGE`, XFS and Btrfs).
//!
//! `checkpoint` decides when a log and a database remap, and excludes readers and writers. The
//! thread that holds SQLite's locks makes the call. The locks live until it ends, even if the
//! process is killed in the middle.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{FallocateFlags, fallocate, fstat};
use rustix::io::Errno;

use super::observer::{self, Call};
use super::probe::FALLOC_FL_WRITE_ZEROES;
use super::{Init, LogFile, Operation, sys};

/// How blocks are brought into the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remap {
    /// The files exchange blocks.
    Exchange,
    /// The files share blocks.
    Clone,
}

impl Remap {
    /// The method's name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Remap::Exchange => "exchange",
            Remap::Clone => "clone",
        }
    }
}

/// Adjacent blocks of the log that become adjacent blocks of the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// Their offset in the log, in bytes.
    pub log: u64,
    /// Their offset in the database, in bytes.
    pub database: u64,
    /// Their length in bytes.
    pub bytes: u64,
}

impl Move {
    /// Whether the database already has blocks for all of it.
    pub fn is_allocated(&self, database: &File) -> bool {
        let end = self.database + self.bytes;
        let size = fstat(database).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
        let hole = rustix::fs::seek(database, rustix::fs::SeekFrom::Hole(self.database));
        size >= end && hole.is_ok_and(|hole| hole >= end)
    }

    /// Brings the blocks into the database. If the database `grows`, it has no blocks there to
    /// exchange: then `init` says how the log's new blocks are initialized.
    ///
    /// # Errors
    /// Those of the calls; [`is_refusal`] tells which of them have changed nothing.
    pub fn make(
        &self,
        how: Remap,
        database: &File,
        log: &LogFile,
        grows: bool,
        init: Init,
    ) -> io::Result<()> {
        if grows {
            // The log gets blocks in exchange, and no hole: a full disk refuses before anything is
            // moved.
            fallocate(database, FallocateFlags::empty(), self.database, self.bytes)?;
        }
        let (to, from) = (database.as_fd(), log.as_fd());
        match how {
            Remap::Exchange => {
                sys::exchange_range(to, self.database, from, self.log, self.bytes)?;
            }
            Remap::Clone => sys::clone_range(to, self.database, from, self.log, self.bytes)?,
        }
        if grows && init == Init::WriteZeroes {
            // Otherwise the first write to each block changes an extent. A failure here has only
            // that effect.
            let _ = fallocate(from, FALLOC_FL_WRITE_ZEROES, self.log, self.bytes);
        }
        Ok(())
    }
}

impl LogFile {
    /// Exchanges two ranges of this file: `from` gets the blocks of as many bytes at `to`. Atomic
    /// and journaled.
    ///
    /// # Errors
    /// The file system has no such call, or an I/O error.
    pub fn exchange_within(&self, from: u64, to: u64, bytes: u64) -> io::Result<()> {
        observer::before(self.path(), Operation::Write, &Call::Forward)
            .map_err(io::Error::other)?;
        sys::exchange_range(self.as_fd(), from, self.as_fd(), to, bytes)
    }

    /// Gives a range new blocks, which were never written, contiguous if there is space. The
    /// range's content is lost; if this is cut short, any part of it is.
    ///
    /// # Errors
    /// No space: the range may be without blocks. An I/O error.
    pub fn renew(&self, from: u64, bytes: u64, init: Init) -> io::Result<()> {
        observer::before(self.path(), Operation::Write, &Call::Forward)
            .map_err(io::Error::other)?;
        let flags = match init {
            Init::WriteZeroes => FALLOC_FL_WRITE_ZEROES,
            Init::Unwritten | Init::ZeroFill => FallocateFlags::empty(),
        };
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(self.as_fd(), punch, from, bytes)?;
        Ok(fallocate(self.as_fd(), flags, from, bytes)?)
    }

    /// Bytes of a block of its file system.
    ///
    /// # Errors
    /// An I/O error.
    pub fn block_bytes(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstatvfs(self.as_fd())?.f_bsize)
    }

    /// Bytes that are free on its file system for any user.
    ///
    /// # Errors
    /// An I/O error.
    pub fn free_space(&self) -> io::Result<u64> {
        let space = rustix::fs::fstatvfs(self.as_fd())?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }
}

/// Whether files in the directory of two scratch files can be remapped, by trying it.
pub(super) fn try_remap(how: Remap, from: &File, to: &File) -> Result<(), String> {
    const BYTES: u64 = 1 << 16;
    let made = (|| {
        for (file, byte) in [(from, 1), (to, 2)] {
            rustix::io::pwrite(file, &vec![byte; BYTES as usize], 0)?;
        }
        match how {
            Remap::Exchange => sys::exchange_range(to.as_fd(), 0, from.as_fd(), 0, BYTES)?,
            Remap::Clone => sys::clone_range(to.as_fd(), 0, from.as_fd(), 0, BYTES)?,
        }
        let mut byte = [0];
        rustix::io::pread(to, &mut byte, BYTES - 1)?;
        Ok::<_, io::Error>(byte == [1])
    })();
    match made {
        Ok(true) => Ok(()),
        Ok(false) => Err("the call succeeded, but moved no blocks".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

/// Whether the kernel refused the call before it changed anything.
pub fn is_refusal(error: &io::Error) -> bool {
    let no = [
        Errno::INVAL,
        Errno::OPNOTSUPP,
        Errno::NOTTY,
        Errno::NOSYS,
        Errno::PERM,
        Errno::ACCESS,
        Errno::XDEV,
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::NOMEM,
        Errno::BUSY,
        Errno::TXTBSY,
        Errno::FBIG,
    ];
    no.iter()
        .any(|no| error.raw_os_error() == Some(no.raw_os_error()))
}
