//! Blocks in reserve: consecutive ones, ready for a log that gives its own away.
//!
//! They are a window of a file without a name, in the log's directory. [`Reserve::give`] exchanges
//! the first of them with blocks of the log, and the window goes on behind them.
//! [`Reserve::replenish`] frees what the log gave, and adds as many new blocks at the window's end.
//! So the log's blocks are consecutive for as long as the file system finds such space.
//!
//! One thread replenishes, and the checkpoint takes, with all writers excluded. The one changes the
//! window's end and what is before its start, the other its start. So a checkpoint waits for no I/O
//! of the thread.
//!
//! When the file system is full, [`Reserve::give_up`] frees all blocks: commits need them more.
//!
//! After a crash there is no such file, and its blocks are free. A child of fork closes its copy of
//! the descriptor ([`Description`]), so that it does not keep the blocks.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fdatasync, fstat};
use rustix::io::{Errno, pwrite};

use super::description::Description;
use super::observer::{self, Call};
use super::open::open_descriptor;
use super::probe::FALLOC_FL_WRITE_ZEROES;
use super::{Init, LogFile, Operation, most_bytes_of_a_file, sys};

/// Bytes that are made at once.
const PIECE_BYTES: u64 = 1 << 20;

/// See the module.
#[derive(Debug)]
pub struct Reserve {
    file: Description,
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    ready: Range<u64>,
    /// Since the last replenishing began.
    is_given_up: bool,
}

impl Reserve {
    /// An empty reserve in a directory.
    ///
    /// # Errors
    /// The file system has no files without a name, or an I/O error.
    pub fn new(directory: &Path) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = open_descriptor(directory, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Self {
            file: Description::owning(file),
            window: Mutex::default(),
        })
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are ready.
    pub fn bytes(&self) -> u64 {
        let ready = self.window().ready.clone();
        ready.end - ready.start
    }

    /// Gives the log so many bytes of consecutive blocks for those at `at`: one call, atomic and
    /// journaled. `false` if there are not so many.
    ///
    /// # Errors
    /// The file system has no such call, or an I/O error.
    pub fn give(&self, log: &LogFile, at: u64, bytes: u64) -> io::Result<bool> {
        // Kept during the call: nobody may free these blocks meanwhile.
        let mut window = self.window();
        let ready = window.ready.clone();
        if bytes == 0 || ready.end - ready.start < bytes {
            return Ok(false);
        }
        observer::before(log.path(), Operation::Write, &Call::Forward).map_err(io::Error::other)?;
        sys::exchange_range(log.as_fd(), at, self.file.fd()?, ready.start, bytes)?;
        window.ready.start += bytes;
        Ok(true)
    }

    /// Frees what the log gave. For the thread that replenishes.
    ///
    /// # Errors
    /// An I/O error.
    pub fn free_given(&self) -> io::Result<()> {
        let start = {
            let mut window = self.window();
            window.is_given_up = false;
            window.ready.start
        };
        self.punch(start)
    }

    /// Makes the reserve `wanted` bytes again, as long as `is_used`. Returns the bytes of the new
    /// blocks.
    ///
    /// # Errors
    /// No space, and then all blocks are freed; or an I/O error, and then those made until then are
    /// ready.
    pub fn replenish(
        &self,
        wanted: u64,
        init: Init,
        is_used: impl Fn() -> bool,
    ) -> io::Result<u64> {
        let mut made = 0;
        loop {
            let (ready, is_given_up) = {
                let window = self.window();
                (window.ready.clone(), window.is_given_up)
            };
            if is_given_up {
                // Also the piece that was being made.
                self.give_up()?;
                return Err(Errno::NOSPC.into());
            }
            let has = ready.end - ready.start;
            if has >= wanted || !is_used() {
                return Ok(made);
            }
            let bytes = PIECE_BYTES.min(wanted - has).next_multiple_of(4096);
            let piece = ready.end..ready.end + bytes;
            match self.make(&piece, init) {
                Err(e) if is_no_space(&e) => {
                    self.give_up()?;
                    return Err(e);
                }
                other => other?,
            }
            made += bytes;
            self.window().ready.end = piece.end;
        }
    }

    /// Frees all blocks. A thread that replenishes ends. Returns whether there were any.
    ///
    /// # Errors
    /// An I/O error.
    pub fn give_up(&self) -> io::Result<bool> {
        let end = {
            let mut window = self.window();
            window.is_given_up = true;
            window.ready.start = window.ready.end;
            window.ready.end
        };
        let had = fstat(self.file.fd()?)?.st_blocks > 0;
        // A part of the next piece may have been allocated.
        self.punch(end + PIECE_BYTES)?;
        Ok(had)
    }

    fn punch(&self, end: u64) -> io::Result<()> {
        if end == 0 {
            return Ok(());
        }
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(self.file.fd()?, punch, 0, end)?)
    }

    /// Adds durable blocks behind the window.
    fn make(&self, piece: &Range<u64>, init: Init) -> io::Result<()> {
        if piece.end > most_bytes_of_a_file() {
            return Err(Errno::NOSPC.into());
        }
        let bytes = piece.end - piece.start;
        let flags = match init {
            Init::WriteZeroes => FALLOC_FL_WRITE_ZEROES,
            Init::Unwritten | Init::ZeroFill => FallocateFlags::empty(),
        };
        let file = self.file.fd()?;
        fallocate(file, flags, piece.start, bytes)?;
        if init == Init::ZeroFill {
            let zeros = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
            let mut done = 0;
            while done < zeros.len() {
                match pwrite(file, &zeros[done..], piece.start + done as u64) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => done += written,
                    Err(Errno::INTR) => {}
                    Err(e) => return Err(e.into()),
                }
            }
        }
        Ok(fdatasync(file)?)
    }
}

fn is_no_space(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOSPC | Errno::DQUOT)
    )
}
