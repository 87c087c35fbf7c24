//! Our own open file description of a file that SQLite has open, to hold locks on.
//!
//! POSIX locks go when the process closes any descriptor of the file. Open-file-description locks
//! go only when the last descriptor of the description is closed. A child of fork shares the
//! description, so [`close_in_child`] closes the child's descriptors at once. Then the child keeps
//! no lock of a killed parent. `vfs::locks` uses it for SQLite's locks,
//! and [`super::LogFile`] for those of the log.

use super::open::LEAST_DESCRIPTOR;
use super::sys::{
    self, OfdCommand, OfdConflict, OfdRange, OfdType, close_number, ofd_lock_range, process_number,
};
use rustix::fs::{Mode, OFlags, fstatfs, open};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

const TO_THE_END: OfdRange = OfdRange { start: 0, len: 0 };

/// Counts the forks that led to this process. It tells a child the descriptions of its parent.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// See the module. Dropping it releases its locks, in the process that made it.
#[derive(Debug)]
pub(crate) struct Description {
    /// Always there until it is dropped.
    fd: Option<OwnedFd>,
    slot: &'static AtomicI32,
    forks: u32,
    /// The number of the process: see [`process_number`].
    pub(super) opened_by: u64,
}

impl Description {
    /// A description of the file behind `fd`. It can take exclusive locks if it `writes`.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn of(fd: BorrowedFd<'_>, writes: bool) -> io::Result<Description> {
        let fd = match reopen(fd, writes) {
            Some(again) => again,
            // Without /proc, or without the right to open the file once more, this shares the
            // description with `fd`. The locks are as safe from close(). But they live on in a
            // child of fork, as long as that has `fd` open.
            None => fcntl_dupfd_cloexec(fd, LEAST_DESCRIPTOR)?,
        };
        Ok(Description::owning(fd))
    }

    /// The one behind `fd`, which nobody else uses.
    pub fn owning(fd: OwnedFd) -> Description {
        // First the number: a fork in between leaves a slot with a number that this child knows to be its parent's.
        let forks = FORKS.load(Ordering::Acquire);
        let slot = free_slot();
        slot.store(fd.as_raw_fd(), Ordering::Release);
        Description {
            fd: Some(fd),
            slot,
            forks,
            opened_by: process_number(),
        }
    }

    /// The descriptor, unless this is a child of the process that made it: there the number is closed, and may
    /// be another file's by now.
    ///
    /// # Errors
    /// EBADF in such a child.
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        let is_ours = self.forks == FORKS.load(Ordering::Acquire);
        let fd = self.fd.as_ref().filter(|_| is_ours);
        fd.map(AsFd::as_fd).ok_or(Errno::BADF.into())
    }

    /// Whether this process made it, and not one that it was forked from.
    pub fn is_of_this_process(&self) -> bool {
        self.opened_by == process_number()
    }

    /// Applies `command` to a range. With [`OfdCommand::Get`] it returns the conflicting lock.
    ///
    /// # Errors
    /// EAGAIN if another lock conflicts, and other errors of fcntl(2).
    pub fn lock(
        &self,
        command: OfdCommand,
        kind: OfdType,
        range: OfdRange,
    ) -> io::Result<Option<OfdConflict>> {
        ofd_lock_range(self.fd()?, command, kind, range)
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        // In a child the locks are the parent's, and the number may be another file's. (The count of
        // forks does not tell if `close_in_child` was never registered.)
        if self.fd().is_err() || !self.is_of_this_process() {
            std::mem::forget(self.fd.take());
            return;
        }
        // An explicit unlock, because a copy of the descriptor may keep the description open.
        let _ = self.lock(OfdCommand::Set, OfdType::Unlock, TO_THE_END);
        // Before the closing, after which the number may be taken again.
        self.slot.store(FREE, Ordering::Release);
    }
}

/// Opens the file behind a descriptor once more.
fn reopen(fd: BorrowedFd<'_>, writes: bool) -> Option<OwnedFd> {
    let access = if writes { OFlags::RDWR } else { OFlags::RDONLY };
    let path = format!("/proc/thread-self/fd/{}", fd.as_raw_fd());
    let again = open(
        path,
        access | OFlags::CLOEXEC | OFlags::NOCTTY,
        Mode::empty(),
    )
    .ok()?;
    let inode = |fd: i32| {
        sys::descriptor(fd)
            .ok()
            .map(|(device, inode, _)| (device, inode))
    };
    let is_same = inode(again.as_raw_fd()) == inode(fd.as_raw_fd());
    (is_same && again.as_raw_fd() >= LEAST_DESCRIPTOR).then_some(again)
}

/// Why locks on this file should stay as they are: its file system has its own lock code. On FUSE,
/// locks of a description whose process was killed may stay with the server. Whether the other file
/// systems keep them apart is unknown.
pub(crate) fn own_locks(fd: BorrowedFd<'_>) -> Option<&'static str> {
    match fstatfs(fd).ok()?.f_type as u32 {
        0x6573_5546 => Some("FUSE"),
        0x0000_6969 => Some("NFS"),
        0x0000_517B | 0xFF53_4D42 | 0xFE53_4D42 => Some("SMB"),
        0x0102_1997 => Some("9P"),
        0x00C3_6400 => Some("Ceph"),
        0x5346_414F | 0x6B41_4653 => Some("AFS"),
        0x0BD0_0BD0 => Some("Lustre"),
        0x0116_1970 => Some("GFS2"),
        0x7461_636F => Some("OCFS2"),
        0x4750_4653 => Some("GPFS"),
        0x786F_4256 => Some("vboxsf"),
        _ => None,
    }
}

/// The numbers of all descriptors that the process has open. Without /proc: those below a bound.
pub(crate) fn open_descriptors() -> Vec<i32> {
    const BOUND: u64 = 1 << 16;
    let named = std::fs::read_dir("/proc/thread-self/fd").map(|entries| {
        let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        numbers.collect()
    });
    named.unwrap_or_else(|_| {
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let numbers = 0..most.unwrap_or(BOUND).min(BOUND) as i32;
        numbers.filter(|number| sys::is_open(*number)).collect()
    })
}

const FREE: i32 = -1;
const TAKEN: i32 = -2;
const SLOTS: usize = 32;

/// The numbers of all these descriptors, readable without a lock. After a fork, a lock may be held
/// that no thread of the child will ever release.
struct Slots {
    numbers: [AtomicI32; SLOTS],
    more: OnceLock<Box<Slots>>,
}

static ALL: Slots = Slots::new();

impl Slots {
    const fn new() -> Slots {
        Slots {
            numbers: [const { AtomicI32::new(FREE) }; SLOTS],
            more: OnceLock::new(),
        }
    }
}

fn free_slot() -> &'static AtomicI32 {
    let take = |slot: &AtomicI32| {
        let taken = slot.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok()
    };
    let mut slots = &ALL;
    loop {
        if let Some(slot) = slots.numbers.iter().find(|slot| take(slot)) {
            return slot;
        }
        slots = slots.more.get_or_init(|| Box::new(Slots::new()));
    }
}

/// Closes the copies of the descriptors in a child of fork. Takes no lock and allocates nothing. A
/// descriptor that another thread of the parent was just opening stays open in the child.
pub(crate) fn close_in_child() {
    FORKS.fetch_add(1, Ordering::AcqRel);
    let mut slots = Some(&ALL);
    while let Some(part) = slots {
        for slot in &part.numbers {
            let number = slot.swap(FREE, Ordering::AcqRel);
            if number >= 0 {
                close_number(number);
            }
        }
        slots = part.more.get().map(Box::as_ref);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    const BYTE: OfdRange = OfdRange {
        start: 0x4000_0000,
        len: 1,
    };

    fn is_free(description: &Description, kind: OfdType) -> bool {
        let conflict = description.lock(OfdCommand::Get, kind, BYTE);
        conflict.expect("an answer").is_none()
    }

    #[test]
    fn closing_another_descriptor_of_the_file_drops_no_lock() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("database");
        let file = File::create_new(&path).expect("a file");
        let held = Description::of(file.as_fd(), true).expect("a description");
        held.lock(OfdCommand::Set, OfdType::Write, BYTE)
            .expect("the lock");
        drop(File::open(&path).expect("the file"));
        let other = File::open(&path).expect("the file");
        let other = Description::of(other.as_fd(), false).expect("a description");
        assert!(!is_free(&other, OfdType::Read));
        drop(held);
        assert!(is_free(&other, OfdType::Write));
    }

    #[test]
    fn there_may_be_any_number_of_them() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = File::create_new(directory.path().join("database")).expect("a file");
        let many: Vec<_> = (0..3 * SLOTS)
            .map(|_| Description::of(file.as_fd(), true).expect("a description"))
            .collect();
        let mut numbers: Vec<_> = many.iter().map(|one| one.slot.as_ptr()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 3 * SLOTS);
    }
}
