//! Block remapping: a file system brings blocks of the log into the database by its metadata alone.
//!
//! - [`Remap::Exchange`]: blocks of log and database change places (`XFS_IOC_EXCHANGE_RANGE`, Linux 6.10, on
//!   XFS made with the feature `exchange`); each call is atomic and journaled.
//! - [`Remap::Clone`]: the database shares the log's blocks (`FICLONERANGE`, XFS and Btrfs); the log keeps
//!   its own.
//!
//! Both need a descriptor of the database, and a process that closes one loses all of SQLite's POSIX
//! locks on the file. So it is opened once and not closed again ([`KEPT`]), as SQLite itself puts off such a close, but by a tool that
//! has no connection any more ([`close_kept_databases`]). The
//! call is made by the thread that holds SQLite's locks: they live until it is over, also where the process
//! is killed in the middle of it.
//!
//! Called by `vfs::remap`, with all readers and writers of the database kept out.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, OFlags, fallocate, fstat, stat};
use rustix::io::Errno;

use super::observer::{self, Call};
use super::open::LEAST_DESCRIPTOR;
use super::{Init, LogFile, Operation, sys};

/// How blocks are brought into the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remap {
    /// They change places.
    Exchange,
    /// They are shared.
    Clone,
}

impl Remap {
    /// The word for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Remap::Exchange => "exchange",
            Remap::Clone => "clone",
        }
    }
}

/// Neighbouring blocks of the log that become neighbouring blocks of the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// Where they are in the log, in bytes.
    pub log: u64,
    /// Where they belong in the database, in bytes.
    pub database: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// What came of the moves.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Remapped {
    /// For each move whether it was made. One that was not has changed nothing.
    pub done: Vec<bool>,
    /// Why one was not.
    pub why_not: Option<String>,
    /// Moves that brought the database blocks that it had none for: the log has others for them, which nobody
    /// has written.
    pub grown: Vec<bool>,
    /// What the calls took.
    pub took: Duration,
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Remapping<'a> {
    /// The log.
    pub log: &'a LogFile,
    /// The database's path.
    pub database: &'a Path,
    /// How.
    pub how: Remap,
    /// What goes where.
    pub moves: &'a [Move],
    /// How the log's blocks are made anew where the database had none to give in exchange. With
    /// [`Init::ZeroFill`] that would cost what a copy costs: such moves are not made.
    pub init: Init,
}

/// Databases that were opened a second time, by device and inode: an open file keeps its inode from being
/// used again.
static KEPT: Mutex<Option<HashMap<Identity, Kept>>> = Mutex::new(None);

/// Open files of one inode.
struct Kept {
    file: Arc<File>,
    /// Opened once more, because the path came to name this file between a look and the opening.
    more: Vec<File>,
}

/// Device and inode.
type Identity = (u64, u64);

impl Remapping<'_> {
    /// Makes the moves, until one is refused. `is_database` is asked whether the path still names the file
    /// that SQLite has open; `begin` is called before the first call, and not where none is made.
    ///
    /// # Errors
    /// An I/O error: how many moves were made is unknown.
    pub fn run(
        &self,
        is_database: impl FnOnce() -> bool,
        begin: impl FnOnce(),
    ) -> io::Result<Remapped> {
        let database = match kept(self.database) {
            Ok((database, identity)) if is_database() => {
                let is_same = identity_of(stat(self.database)) == Some(identity);
                is_same
                    .then_some(database)
                    .ok_or("the database was moved".to_owned())
            }
            Ok(_) => Err("the database was moved".to_owned()),
            Err(e) => Err(format!("cannot open the database a second time: {e}")),
        };
        match database {
            Ok(database) => self.make_moves(database.as_fd(), self.log.as_fd(), begin),
            Err(why) => Ok(Remapped {
                done: vec![false; self.moves.len()],
                why_not: Some(why),
                ..Remapped::default()
            }),
        }
    }

    fn make_moves(
        &self,
        database: BorrowedFd<'_>,
        log: BorrowedFd<'_>,
        begin: impl FnOnce(),
    ) -> io::Result<Remapped> {
        let mut result = Remapped {
            done: vec![false; self.moves.len()],
            grown: vec![false; self.moves.len()],
            ..Remapped::default()
        };
        let mut begin = Some(begin);
        let since = Instant::now();
        for (i, step) in self.moves.iter().enumerate() {
            let grows = self.how == Remap::Exchange && !is_allocated(database, step);
            if grows && self.init == Init::ZeroFill {
                result.why_not = Some(
                    "the database grows, and new blocks of the log are filled with zeros"
                        .to_owned(),
                );
                continue;
            }
            if let Some(begin) = begin.take() {
                begin();
            }
            let (how, place) = (self.how, *step);
            self.observe(&Call::Remap { how, place })?;
            match self.make(database, log, step, grows) {
                Ok(()) => {
                    result.done[i] = true;
                    result.grown[i] = grows;
                }
                Err(e) if is_refusal(&e) => {
                    result.why_not = Some(format!("{} was refused: {e}", self.how.name()));
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        result.took = since.elapsed();
        self.observe(&Call::Remapped)?;
        Ok(result)
    }

    fn observe(&self, call: &Call<'_>) -> io::Result<()> {
        observer::before(self.database, Operation::Write, call).map_err(io::Error::other)
    }

    fn make(
        &self,
        database: BorrowedFd<'_>,
        log: BorrowedFd<'_>,
        step: &Move,
        grows: bool,
    ) -> io::Result<()> {
        if grows {
            // What the log gets in exchange is blocks, and no hole: a full disk refuses before anything is
            // moved.
            fallocate(database, FallocateFlags::empty(), step.database, step.bytes)?;
        }
        match self.how {
            Remap::Exchange => {
                sys::exchange_range(database, step.database, log, step.log, step.bytes)?;
            }
            Remap::Clone => {
                sys::clone_range(database, step.database, log, step.log, step.bytes)?;
            }
        }
        if grows && self.init == Init::WriteZeroes {
            // Else the first write to each block would change an extent. Without it that is all that happens.
            let _ = fallocate(
                log,
                super::probe::FALLOC_FL_WRITE_ZEROES,
                step.log,
                step.bytes,
            );
        }
        Ok(())
    }
}

impl LogFile {
    /// Two ranges of this file change places: what lies at `from` gets the blocks of as many bytes at `to`.
    /// Atomic and journaled.
    ///
    /// # Errors
    /// The file system has no such call, or an I/O error.
    pub fn exchange_within(&self, from: u64, to: u64, bytes: u64) -> io::Result<()> {
        observer::before(self.path(), Operation::Write, &Call::Forward)
            .map_err(io::Error::other)?;
        sys::exchange_range(self.as_fd(), from, self.as_fd(), to, bytes)
    }

    /// Gives a range new blocks, which nobody has written: one behind the other where there is space.
    /// What it held is gone, in any part where this is cut short.
    ///
    /// # Errors
    /// No space: the range may be without blocks. An I/O error.
    pub fn renew(&self, from: u64, bytes: u64, init: Init) -> io::Result<()> {
        observer::before(self.path(), Operation::Write, &Call::Forward)
            .map_err(io::Error::other)?;
        let flags = match init {
            Init::WriteZeroes => super::probe::FALLOC_FL_WRITE_ZEROES,
            Init::Unwritten | Init::ZeroFill => FallocateFlags::empty(),
        };
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(self.as_fd(), punch, from, bytes)?;
        Ok(fallocate(self.as_fd(), flags, from, bytes)?)
    }

    /// Bytes that are free on its file system, for anybody.
    ///
    /// # Errors
    /// An I/O error.
    pub fn free_space(&self) -> io::Result<u64> {
        let space = rustix::fs::fstatvfs(self.as_fd())?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }
}

/// A descriptor of the file at a path, for good, and what file that is.
fn kept(path: &Path) -> io::Result<(Arc<File>, Identity)> {
    kept_as(identity_of(stat(path)), || {
        // Whatever writes to a standard stream that was closed would write into the database.
        if (0..LEAST_DESCRIPTOR).any(|number| !sys::is_open(number)) {
            return Err(io::Error::other("a standard stream is closed"));
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        Ok(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?.into())
    })
}

/// The descriptor that is kept of the file that was `seen`, or the one that `open` opens. What was opened is never
/// closed, whatever file it came to be of: SQLite may have locks on it.
fn kept_as(
    seen: Option<Identity>,
    open: impl FnOnce() -> io::Result<File>,
) -> io::Result<(Arc<File>, Identity)> {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = kept.get_or_insert_default();
    if let Some(identity) = seen
        && let Some(kept) = kept.get(&identity)
    {
        return Ok((Arc::clone(&kept.file), identity));
    }
    let file = open()?;
    let Some(identity) = identity_of(fstat(&file)) else {
        std::mem::forget(file);
        return Err(io::Error::other("its inode is not known"));
    };
    let kept = match kept.entry(identity) {
        Entry::Vacant(place) => place.insert(Kept {
            file: Arc::new(file),
            more: Vec::new(),
        }),
        Entry::Occupied(place) => {
            let kept = place.into_mut();
            kept.more.push(file);
            kept
        }
    };
    Ok((Arc::clone(&kept.file), identity))
}

fn identity_of(stat: rustix::io::Result<rustix::fs::Stat>) -> Option<Identity> {
    stat.ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// Closes the descriptors of databases that remapping has kept, so that a tool can unmount their file system
/// and live on.
///
/// With a descriptor go all POSIX locks that this process has on the file, SQLite's too. So this is only for
/// when no connection in this process, of ours or of another SQLite, has such a database open.
pub fn close_kept_databases() {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    *kept = None;
}

/// Whether the file has blocks for all of it already.
fn is_allocated(file: BorrowedFd<'_>, step: &Move) -> bool {
    let end = step.database + step.bytes;
    let size = fstat(file).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
    let hole = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(step.database));
    size >= end && hole.is_ok_and(|hole| hole >= end)
}

/// Whether the kernel has said no before it did anything.
fn is_refusal(error: &io::Error) -> bool {
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

/// Whether files in the directory of two scratch files can be remapped, by doing it.
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
        Ok(false) => Err("it was accepted, and moved nothing".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::lock::LockByte;
    use super::super::open::{Access, Create, NewFile};
    use super::super::{DirectIo, LockKind};
    use super::*;

    /// Whether this process has a POSIX lock on the first byte that [`LockByte`] names, as seen by an open file of its
    /// own.
    fn is_locked(seen_by: &LogFile) -> bool {
        let seen = seen_by.is_locked_by_other(LockByte::Presence, LockKind::Exclusive);
        seen.expect("an answer")
    }

    #[test]
    fn no_descriptor_of_a_file_that_came_in_between_is_closed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let create = Create::IfMissing(NewFile {
            mode: 0o600,
            owner: None,
        });
        // Never dropped, as SQLite's own: closing it would release the lock as well.
        let watcher = LogFile::open(&path, create, Access::ReadWrite, DirectIo::Never);
        let watcher = std::mem::ManuallyDrop::new(watcher.expect("a file"));
        let (_, identity) = kept(&path).expect("a descriptor");
        let sqlites = std::mem::ManuallyDrop::new(File::options().write(true).open(&path));
        let sqlites = sqlites.as_ref().expect("a file");
        rustix::fs::fcntl_lock(
            sqlites,
            rustix::fs::FlockOperation::NonBlockingLockExclusive,
        )
        .expect("a lock");
        assert!(is_locked(&watcher));
        // The path named another file when it was looked at, and names this one again.
        let (_, found) = kept_as(Some((0, 0)), || File::options().write(true).open(&path))
            .expect("a descriptor");
        assert_eq!(found, identity);
        assert!(is_locked(&watcher), "a descriptor of the file was closed");
    }
}
