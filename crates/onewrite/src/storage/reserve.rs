//! Blocks in reserve: consecutive ones, ready for a log that gives its own away.
//!
//! They are a window of a file without a name, in the log's directory. [`Reserve::give`] exchanges
//! the first of them with blocks of the log, and the window goes on behind them.
//! [`Reserve::replenish`] frees what the log gave, and adds as many new blocks at the window's end.
//! So the log's blocks are consecutive for as long as the file system finds such space.
//!
//! One thread replenishes, and the checkpoint takes, with all writers excluded. The one changes the
//! window's end and what is before its start, the other its start. So neither waits for the other.
//!
//! After a crash there is no such file, and its blocks are free.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fdatasync};

use super::observer::{self, Call};
use super::probe::FALLOC_FL_WRITE_ZEROES;
use super::{Init, LogFile, Operation, sys};

/// Bytes that are made at once.
const PIECE_BYTES: u64 = 1 << 20;

/// See the module.
#[derive(Debug)]
pub struct Reserve {
    file: File,
    window: Mutex<Range<u64>>,
}

impl Reserve {
    /// An empty reserve in a directory.
    ///
    /// # Errors
    /// The file system has no files without a name, or an I/O error.
    pub fn new(directory: &Path) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Self {
            file: file.into(),
            window: Mutex::new(0..0),
        })
    }

    fn window(&self) -> Range<u64> {
        self.window
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn change(&self, change: impl FnOnce(&mut Range<u64>)) {
        change(&mut self.window.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Bytes that are ready.
    pub fn bytes(&self) -> u64 {
        let window = self.window();
        window.end - window.start
    }

    /// Gives the log so many bytes of consecutive blocks for those at `at`: one call, atomic and
    /// journaled. `false` if there are not so many.
    ///
    /// # Errors
    /// The file system has no such call, or an I/O error.
    pub fn give(&self, log: &LogFile, at: u64, bytes: u64) -> io::Result<bool> {
        let start = self.window().start;
        if bytes == 0 || self.bytes() < bytes {
            return Ok(false);
        }
        observer::before(log.path(), Operation::Write, &Call::Forward).map_err(io::Error::other)?;
        sys::exchange_range(log.as_fd(), at, self.file.as_fd(), start, bytes)?;
        self.change(|window| window.start += bytes);
        Ok(true)
    }

    /// Frees what the log gave, and makes the reserve `wanted` bytes again, as long as `is_used`.
    /// Returns the bytes of the new blocks.
    ///
    /// # Errors
    /// No space, or an I/O error. The blocks made until then are ready.
    pub fn replenish(
        &self,
        wanted: u64,
        init: Init,
        is_used: impl Fn() -> bool,
    ) -> io::Result<u64> {
        let start = self.window().start;
        if start > 0 {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&self.file, punch, 0, start)?;
        }
        let mut made = 0;
        while self.bytes() < wanted && is_used() {
            let from = self.window().end;
            let piece = from..from
                + PIECE_BYTES
                    .min(wanted - self.bytes())
                    .next_multiple_of(4096);
            self.make(&piece, init)?;
            made += piece.end - piece.start;
            self.change(|window| window.end = piece.end);
        }
        Ok(made)
    }

    /// Adds durable blocks behind the window.
    fn make(&self, piece: &Range<u64>, init: Init) -> io::Result<()> {
        let bytes = piece.end - piece.start;
        let flags = match init {
            Init::WriteZeroes => FALLOC_FL_WRITE_ZEROES,
            Init::Unwritten | Init::ZeroFill => FallocateFlags::empty(),
        };
        fallocate(&self.file, flags, piece.start, bytes)?;
        if init == Init::ZeroFill {
            let zeros = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
            self.file.write_all_at(&zeros, piece.start)?;
        }
        Ok(fdatasync(&self.file)?)
    }
}
