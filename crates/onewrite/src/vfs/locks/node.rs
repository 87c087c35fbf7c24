//! The locks of one file, for all connections of one SQLite in this process.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::held::Held;
use super::{Answer, Inode, Request};
use crate::storage::{Description, OfdCommand, OfdRange, OfdType, own_locks};

/// SQLite's `PENDING_BYTE`. A connection that locks only this byte for reading held no lock before.
const FIRST_LOCK: OfdRange = OfdRange {
    start: 0x4000_0000,
    len: 1,
};
const EVERYTHING: OfdRange = OfdRange { start: 0, len: 0 };

/// Why the locks of a file are POSIX locks, which every `close` of the file drops.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// The file was open before: SQLite may hold POSIX locks on it that only POSIX can release.
    OpenBefore,
    /// The file system has its own lock code.
    FileSystem(&'static str),
    /// No descriptor is available, or the kernel has no such locks.
    Refused(String),
    /// The VFS underneath does not lock through SQLite's table of system calls.
    NoTable,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::OpenBefore => f.write_str(
                "the database was open in this process before onewrite was loaded, or before a fork: \
                 close every connection to it once",
            ),
            Why::FileSystem(name) => write!(f, "the file system ({name}) has its own locks"),
            Why::Refused(error) => write!(f, "the kernel refuses locks that outlive close: {error}"),
            Why::NoTable => f.write_str(
                "the VFS underneath does not lock through SQLite's system calls",
            ),
        }
    }
}

/// How SQLite's locks on the file are held.
enum Way {
    /// No lock is held, and the method is undecided.
    Undecided,
    Posix(Why),
    Ofd(Locks),
}

struct Locks {
    description: Arc<Description>,
    writes: bool,
    held: Held,
}

/// See the module.
pub(super) struct Node {
    pub inode: Inode,
    way: Mutex<Way>,
}

/// How to handle a request once its method is decided.
enum Step {
    Answer(Answer),
    /// Wait on this description.
    Wait(Arc<Description>),
}

impl Node {
    pub fn new(inode: Inode, was_open_before: bool) -> Node {
        let way = match was_open_before {
            true => Way::Posix(Why::OpenBefore),
            false => Way::Undecided,
        };
        Node {
            inode,
            way: Mutex::new(way),
        }
    }

    fn way(&self) -> MutexGuard<'_, Way> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the locks are POSIX locks; `None` if they are not, or if none was requested.
    pub fn why_posix(&self) -> Option<Why> {
        match &*self.way() {
            Way::Posix(why) => Some(why.clone()),
            _ => None,
        }
    }

    /// Whether the locks survive a `close`.
    pub fn is_ofd(&self) -> bool {
        matches!(&*self.way(), Way::Ofd(_))
    }

    /// Answers `fcntl` on `fd`, a descriptor of this file that can write if it `writes`.
    pub fn answer(
        &self,
        fd: BorrowedFd<'_>,
        writes: bool,
        command: OfdCommand,
        request: Request,
    ) -> Answer {
        loop {
            let description = match self.decide(fd, writes, command, request) {
                Step::Answer(answer) => return answer,
                Step::Wait(description) => description,
            };
            // Others may use the file meanwhile.
            if let Err(e) = description.lock(OfdCommand::SetWait, request.kind, request.range) {
                return Answer::of_error(&e);
            }
            if let Way::Ofd(locks) = &mut *self.way()
                && Arc::ptr_eq(&locks.description, &description)
            {
                locks.held.set(request.range, request.kind);
                return Answer::Done(None);
            }
            // The locks have moved to another description. Dropping the old one releases this lock.
        }
    }

    fn decide(
        &self,
        fd: BorrowedFd<'_>,
        writes: bool,
        command: OfdCommand,
        request: Request,
    ) -> Step {
        let mut way = self.way();
        if matches!(&*way, Way::Posix(Why::OpenBefore)) {
            let sets = command != OfdCommand::Get;
            if sets && request.kind == OfdType::Read && request.range == FIRST_LOCK {
                *way = Way::Undecided;
            } else {
                if sets && request.kind == OfdType::Unlock && request.range == EVERYTHING {
                    *way = Way::Undecided;
                }
                return Step::Answer(Answer::PassOn);
            }
        }
        if matches!(&*way, Way::Undecided) {
            *way = Locks::begin(fd, writes).map_or_else(Way::Posix, Way::Ofd);
        }
        let Way::Ofd(locks) = &mut *way else {
            return Step::Answer(Answer::PassOn);
        };
        match locks.step(fd, writes, command, request) {
            Ok(step) => step,
            Err(e) if locks.held.is_empty() && is_missing(&e) => {
                *way = Way::Posix(Why::Refused(e.to_string()));
                Step::Answer(Answer::PassOn)
            }
            Err(e) => Step::Answer(Answer::of_error(&e)),
        }
    }
}

impl Locks {
    fn begin(fd: BorrowedFd<'_>, writes: bool) -> Result<Locks, Why> {
        if let Some(name) = own_locks(fd) {
            return Err(Why::FileSystem(name));
        }
        let description = Description::of(fd, writes).map_err(|e| Why::Refused(e.to_string()))?;
        Ok(Locks {
            description: Arc::new(description),
            writes,
            held: Held::default(),
        })
    }

    fn step(
        &mut self,
        fd: BorrowedFd<'_>,
        writes: bool,
        command: OfdCommand,
        request: Request,
    ) -> io::Result<Step> {
        if command != OfdCommand::Get && request.kind == OfdType::Write {
            if !writes {
                // The kernel reports the same for such a descriptor.
                return Err(io::Error::from_raw_os_error(libc::EBADF));
            }
            self.let_write(fd)?;
        }
        if command == OfdCommand::SetWait {
            return Ok(Step::Wait(self.description.clone()));
        }
        let conflict = self
            .description
            .lock(command, request.kind, request.range)?;
        if command == OfdCommand::Set {
            self.held.set(request.range, request.kind);
        }
        Ok(Step::Answer(Answer::Done(conflict)))
    }

    /// The first connection could only read, and this one writes: the locks move to a description
    /// that can. They are shared locks. So the new description gets them whatever others hold, and
    /// each is held all the time.
    fn let_write(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        if self.writes {
            return Ok(());
        }
        let description = Description::of(fd, true)?;
        for (range, kind) in self.held.iter() {
            description.lock(OfdCommand::Set, kind, range)?;
        }
        self.description = Arc::new(description);
        self.writes = true;
        Ok(())
    }
}

/// Whether the kernel, or the file, has no such locks.
fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP)
    )
}
