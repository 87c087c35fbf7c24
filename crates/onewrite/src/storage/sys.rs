//! The storage layer's only unsafe code: system calls that rustix lacks, and mapped memory.
//!
//! - `lock.rs`, `description.rs`: open-file-description locks, `fcntl(F_OFD_*)` of fcntl(2).
//! - `file.rs`: sync_file_range(2).
//! - `atomic.rs`: fstat(2), fcntl(2) and ioctl(2) of a descriptor's number. `open.rs`: ioctl(2).
//! - `blocks.rs`: two ioctls; their arguments live on this stack frame. `kept.rs`: fcntl(2).
//! - `shared.rs`, `slots.rs`: mmap(2) of their memory. Also getauxval(3), and pthread_sigmask(3).
//! - `description.rs`: a page that the kernel clears in a child, madvise(2).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

#[cfg(not(any(shuttle, loom)))]
pub(super) use mapped::{Mapped, MappedSlots};

/// Whether the program runs with more privileges than the user that started it (`AT_SECURE` of
/// getauxval(3)).
pub(crate) fn has_raised_privileges() -> bool {
    // SAFETY: it reads what the kernel gave this process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Starts a thread that gets none of the application's signals, except those for its own faults.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    const OWN_FAULTS: [i32; 6] = [
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGSEGV,
        libc::SIGSYS,
        libc::SIGTRAP,
    ];
    // SAFETY: the sets are initialized, and the mask is this thread's. A new thread inherits it.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        for fault in OWN_FAULTS {
            libc::sigdelset(&raw mut all, fault);
        }
        let is_set = libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) == 0;
        let started = start();
        if is_set {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        }
        started
    }
}

/// A number that tells this process from those that it was forked from and from its children. The
/// number of a process alone does not: it is 1 again in a new PID namespace, and is used again.
pub(crate) fn process_number() -> u64 {
    let Some(page) = page_of_this_process() else {
        return u64::from(std::process::id());
    };
    // qemu's user mode clears no memory, though it says so. There the process's own number tells.
    let upper = u64::from(std::process::id() | 1 << 31) << 32;
    let present = page.load(Ordering::Acquire);
    if present & !0xffff_ffff == upper {
        return present;
    }
    let mut random = [0; 4];
    // Without random numbers the time of a parent and its child differs.
    let drawn = match getrandom::fill(&mut random) {
        Ok(()) => u32::from_ne_bytes(random),
        Err(_) => UNIX_EPOCH
            .elapsed()
            .map_or(0, |time| time.as_nanos() as u32),
    };
    let drawn = upper | u64::from(drawn);
    match page.compare_exchange(present, drawn, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => drawn,
        Err(others) => others,
    }
}

/// Memory that is zero in every new process. `None`: the kernel cannot do it (before Linux 4.14).
/// Without a lock, because a fork may find that taken.
fn page_of_this_process() -> Option<&'static AtomicU64> {
    static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
    const BYTES: usize = 4096;
    let mut page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        // SAFETY: a new private mapping, which is aligned, zero, and unmapped only while no one else
        // knows it.
        page = unsafe {
            let (access, kind) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            );
            let made = libc::mmap(ptr::null_mut(), BYTES, access, kind, -1, 0);
            if made == libc::MAP_FAILED {
                return None;
            }
            if libc::madvise(made, BYTES, libc::MADV_WIPEONFORK) != 0 {
                libc::munmap(made, BYTES);
                return None;
            }
            let (null, order) = (ptr::null_mut(), Ordering::AcqRel);
            match PAGE.compare_exchange(null, made.cast(), order, Ordering::Acquire) {
                Ok(_) => made.cast(),
                Err(others) => {
                    libc::munmap(made, BYTES);
                    others
                }
            }
        };
    }
    // SAFETY: it is mapped as long as the process lives.
    Some(unsafe { &*page })
}

/// The `l_type` of a lock request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OfdType {
    /// `F_RDLCK`.
    Read,
    /// `F_WRLCK`.
    Write,
    /// `F_UNLCK`.
    Unlock,
}

/// The `fcntl` command for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OfdCommand {
    /// `F_OFD_SETLK`: takes or releases at once, or fails with EAGAIN.
    Set,
    /// `F_OFD_SETLKW`: the same, but waits; EINTR if a signal arrives. Only where SQLite itself
    /// waits.
    SetWait,
    /// `F_OFD_GETLK`: whether the lock could be taken.
    Get,
}

/// Applies `command` to the one byte at `offset` of `fd`. After [`OfdCommand::Get`] it returns
/// whether another lock covers the byte, and false after the others.
pub(super) fn ofd_lock(
    fd: BorrowedFd<'_>,
    command: OfdCommand,
    kind: OfdType,
    offset: i32,
) -> io::Result<bool> {
    let range = OfdRange {
        start: offset.into(),
        len: 1,
    };
    ofd_lock_range(fd, command, kind, range).map(|conflict| conflict.is_some())
}

/// A range of a file. If `len` is 0, it extends to the file's end, even as the file grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OfdRange {
    pub start: i64,
    pub len: i64,
}

/// A conflicting lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OfdConflict {
    pub kind: OfdType,
    pub range: OfdRange,
    /// The process that holds it; -1 for an open file description.
    pub pid: i32,
}

/// Applies `command` to a range of `fd`. After [`OfdCommand::Get`] it returns the conflicting lock,
/// and none after the others.
pub(super) fn ofd_lock_range(
    fd: BorrowedFd<'_>,
    command: OfdCommand,
    kind: OfdType,
    range: OfdRange,
) -> io::Result<Option<OfdConflict>> {
    let l_type = match kind {
        OfdType::Read => libc::F_RDLCK,
        OfdType::Write => libc::F_WRLCK,
        OfdType::Unlock => libc::F_UNLCK,
    };
    let command = match command {
        OfdCommand::Set => libc::F_OFD_SETLK,
        OfdCommand::SetWait => libc::F_OFD_SETLKW,
        OfdCommand::Get => libc::F_OFD_GETLK,
    };
    // SAFETY: flock64 is plain integers, for which zero is a value. l_pid must be zero here.
    let mut request: libc::flock64 = unsafe { std::mem::zeroed() };
    request.l_type = l_type as libc::c_short;
    request.l_whence = libc::SEEK_SET as libc::c_short;
    request.l_start = range.start;
    request.l_len = range.len;
    // SAFETY: the descriptor is open for as long as it is borrowed. The kernel reads and writes no
    // more than the flock64 that the pointer points to.
    let result = unsafe { fcntl64(fd.as_raw_fd(), command, &raw mut request) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    let kind = match libc::c_int::from(request.l_type) {
        _ if command != libc::F_OFD_GETLK => return Ok(None),
        libc::F_UNLCK => return Ok(None),
        libc::F_RDLCK => OfdType::Read,
        _ => OfdType::Write,
    };
    Ok(Some(OfdConflict {
        kind,
        range: OfdRange {
            start: request.l_start,
            len: request.l_len,
        },
        pid: request.l_pid,
    }))
}

/// Closes a descriptor by its number, in a child of fork. No code of the child uses it.
pub(super) fn close_number(number: i32) {
    // SAFETY: no pointer is passed. Only the parent's locks used the descriptor of this number.
    unsafe { libc::close(number) };
}

/// fcntl(2) with the kernel's lock structure for open-file-description locks. Its offsets have 64
/// bits, also in a 32-bit process.
///
/// # Safety
/// `request` points to a structure that may be read and written.
#[cfg(target_pointer_width = "64")]
unsafe fn fcntl64(fd: i32, command: i32, request: *mut libc::flock64) -> i32 {
    // SAFETY: the caller's promise; flock64 is flock here.
    unsafe { libc::fcntl(fd, command, request) }
}

/// See above. The C library's fcntl() may expect a structure with 32-bit offsets for these
/// commands; that has changed between versions. The system call has not.
///
/// # Safety
/// As above.
#[cfg(not(target_pointer_width = "64"))]
unsafe fn fcntl64(fd: i32, command: i32, request: *mut libc::flock64) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_fcntl64, fd, command, request) as i32 }
}

/// Device and inode of an open descriptor, and whether it can write.
///
/// # Errors
/// EBADF if the number is not a descriptor, and other errors of fstat(2).
pub(crate) fn descriptor(number: i32) -> io::Result<(u64, u64, bool)> {
    // Not stat: in a 32-bit process it has no room for the inode numbers and sizes of some files.
    // SAFETY: stat64 is plain integers, for which zero is a value.
    let mut stat: libc::stat64 = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes no more than the stat64 that the pointer points to, and refuses a number
    // that is no descriptor.
    if unsafe { libc::fstat64(number, &raw mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: no pointer is passed.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
    let writes = flags != -1 && flags & libc::O_ACCMODE == libc::O_RDWR;
    Ok((stat.st_dev, stat.st_ino, writes))
}

/// An ioctl without argument, or with as many bytes as its number says.
pub(super) fn ioctl(number: i32, request: u32, argument: &[u8]) -> io::Result<()> {
    // Fourteen bits of a request's number are the size of its argument (`asm-generic/ioctl.h`).
    if argument.len() != (request >> 16 & 0x3FFF) as usize {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: the requests of `atomic.rs` and `set_file_flags` make the kernel read at most as many bytes
    // as their numbers say. That is the argument's length, checked above. It writes nothing.
    let result = unsafe { libc::ioctl(number, request as libc::Ioctl, argument.as_ptr()) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Sets the attributes of a file (`FS_IOC_SETFLAGS` of ioctl_iflags(2)). The number says the size of a long,
/// and the kernel reads an int. The rest of the long is set, too, for programs that check what is read.
pub(super) fn set_file_flags(file: impl AsFd, flags: u32) -> io::Result<()> {
    const SET_FLAGS: libc::Ioctl = ioctl_write(b'f', 2, size_of::<libc::c_long>());
    let mut argument = [0; size_of::<libc::c_long>()];
    argument[..4].copy_from_slice(&flags.to_ne_bytes());
    ioctl(file.as_fd().as_raw_fd(), SET_FLAGS as u32, &argument)
}

/// How far [`write_back`] goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WriteBack {
    /// Dirty pages are given to the device.
    Begin,
    /// The same, and waits until the device has them all.
    Finish,
}

/// One write that is durable when it returns (`RWF_DSYNC`).
#[cfg(not(target_os = "android"))]
pub(super) fn write_durably(fd: impl AsFd, buf: &[u8], offset: u64) -> rustix::io::Result<usize> {
    use rustix::io::{ReadWriteFlags, pwritev2};
    pwritev2(fd, &[io::IoSlice::new(buf)], offset, ReadWriteFlags::DSYNC)
}

/// Not on Android: its filter of system calls kills a program that makes a call which that
/// version's C library lacks. pwritev2(2) came with Android 13. The caller writes and flushes.
#[cfg(target_os = "android")]
pub(super) fn write_durably(_: impl AsFd, _: &[u8], _: u64) -> rustix::io::Result<usize> {
    Err(rustix::io::Errno::NOSYS)
}

/// sync_file_range(2): writes dirty pages of a range to the device, without a flush of its cache.
/// If `bytes` is 0, the range extends to the end of the file.
#[cfg(not(target_os = "android"))]
pub(super) fn write_back(
    fd: BorrowedFd<'_>,
    offset: u64,
    bytes: u64,
    how: WriteBack,
) -> io::Result<()> {
    let flags = match how {
        WriteBack::Begin => libc::SYNC_FILE_RANGE_WRITE,
        WriteBack::Finish => {
            libc::SYNC_FILE_RANGE_WAIT_BEFORE
                | libc::SYNC_FILE_RANGE_WRITE
                | libc::SYNC_FILE_RANGE_WAIT_AFTER
        }
    };
    let too_large = |_| io::Error::from_raw_os_error(libc::EFBIG);
    let offset = libc::off64_t::try_from(offset).map_err(too_large)?;
    let bytes = libc::off64_t::try_from(bytes).map_err(too_large)?;
    // SAFETY: the descriptor is open for as long as it is borrowed; the rest are integers.
    match unsafe { libc::sync_file_range(fd.as_raw_fd(), offset, bytes, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// See above, and [`write_durably`]. The caller does without it, or flushes.
#[cfg(target_os = "android")]
pub(super) fn write_back(_: BorrowedFd<'_>, _: u64, _: u64, _: WriteBack) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

/// Whether there is no such call here, and another one has to do: because of an old kernel, of the file
/// system, or of a sandbox. Many of these refuse with EPERM what they do not know. Where EPERM has another
/// reason, the other call meets it, too.
pub(super) fn is_refused(errno: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM)
}

/// The device of a file, by fstat(2), where statx(2) is refused. The mount, and the alignment of direct
/// I/O, stay unknown.
pub(super) fn statx_without(file: &std::fs::File) -> Result<rustix::fs::Statx, rustix::io::Errno> {
    let device = rustix::fs::fstat(file)?.st_dev;
    // SAFETY: it is plain integers, for which zero is a value.
    let mut found: rustix::fs::Statx = unsafe { std::mem::zeroed() };
    found.stx_dev_major = rustix::fs::major(device);
    found.stx_dev_minor = rustix::fs::minor(device);
    Ok(found)
}

/// Whether an error says that there is no such system call: because of a filter, or of a file
/// without it.
pub(super) fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOSYS | libc::EINVAL | libc::ESPIPE | libc::EPERM)
    )
}

/// Whether a descriptor with this number is open.
pub(super) fn is_open(number: i32) -> bool {
    // SAFETY: no pointer is passed.
    unsafe { libc::fcntl(number, libc::F_GETFD) != -1 }
}

/// `struct xfs_exchange_range` of xfs_fs.h (Linux 6.10).
#[repr(C)]
struct XfsExchangeRange {
    file1_fd: i32,
    pad: u32,
    file1_offset: u64,
    file2_offset: u64,
    length: u64,
    flags: u64,
}

/// `_IOW('X', 129, struct xfs_exchange_range)`.
const XFS_IOC_EXCHANGE_RANGE: libc::Ioctl = ioctl_write(b'X', 129, size_of::<XfsExchangeRange>());

/// `struct file_clone_range` of linux/fs.h.
#[repr(C)]
struct FileCloneRange {
    src_fd: i64,
    src_offset: u64,
    src_length: u64,
    dest_offset: u64,
}

/// `_IOW(0x94, 13, struct file_clone_range)`.
const FICLONERANGE: libc::Ioctl = ioctl_write(0x94, 13, size_of::<FileCloneRange>());

/// `_IOW` of asm-generic/ioctl.h. Some architectures encode the direction differently (MIPS,
/// PowerPC, SPARC). They get a request that the kernel does not know, and copy.
const fn ioctl_write(kind: u8, number: u8, size: usize) -> libc::Ioctl {
    const WRITE: u32 = 1;
    (WRITE << 30 | (size as u32) << 16 | (kind as u32) << 8 | number as u32) as libc::Ioctl
}

/// Two files exchange blocks, atomically.
pub(super) fn exchange_range(
    one: BorrowedFd<'_>,
    one_offset: u64,
    other: BorrowedFd<'_>,
    other_offset: u64,
    bytes: u64,
) -> io::Result<()> {
    let request = XfsExchangeRange {
        file1_fd: other.as_raw_fd(),
        pad: 0,
        file1_offset: other_offset,
        file2_offset: one_offset,
        length: bytes,
        flags: 0,
    };
    // SAFETY: both descriptors are borrowed; the kernel reads no more than the structure.
    match unsafe { libc::ioctl(one.as_raw_fd(), XFS_IOC_EXCHANGE_RANGE, &raw const request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// From here on, a range of a file shares the blocks of another file.
pub(super) fn clone_range(
    to: BorrowedFd<'_>,
    to_offset: u64,
    from: BorrowedFd<'_>,
    from_offset: u64,
    bytes: u64,
) -> io::Result<()> {
    let request = FileCloneRange {
        src_fd: i64::from(from.as_raw_fd()),
        src_offset: from_offset,
        src_length: bytes,
        dest_offset: to_offset,
    };
    // SAFETY: as above.
    match unsafe { libc::ioctl(to.as_raw_fd(), FICLONERANGE, &raw const request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(any(shuttle, loom)))]
mod mapped {
    use super::super::open::Access;
    use super::super::shared::{SHARED_BYTES, SharedWords};
    use super::super::slots::{PageWord, SLOTS_AT, SlotHeader, SlotLayout};
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    use std::fs::File;
    use std::ops::Deref;
    use std::ptr::{self, NonNull};

    /// The shared page, mapped until this is dropped.
    pub(in super::super) struct Mapped {
        words: NonNull<SharedWords>,
    }

    // SAFETY: the words are atomics, and the mapping belongs to no thread.
    unsafe impl Send for Mapped {}
    // SAFETY: as above.
    unsafe impl Sync for Mapped {}

    impl Mapped {
        /// Maps a file that has [`SHARED_BYTES`] of allocated bytes. If it was opened read-only,
        /// the words must not be written.
        pub fn new(file: &File, access: Access) -> rustix::io::Result<Mapped> {
            const _: () = assert!(size_of::<SharedWords>() <= SHARED_BYTES as usize);
            let protection = match access {
                Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
                Access::ReadOnly => ProtFlags::READ,
            };
            // SAFETY: a new mapping where the kernel finds room.
            let at = unsafe {
                let bytes = SHARED_BYTES as usize;
                mmap(
                    ptr::null_mut(),
                    bytes,
                    protection,
                    MapFlags::SHARED,
                    file,
                    0,
                )?
            };
            let words = NonNull::new(at.cast()).ok_or(rustix::io::Errno::NOMEM)?;
            Ok(Mapped { words })
        }
    }

    impl Deref for Mapped {
        type Target = SharedWords;

        fn deref(&self) -> &SharedWords {
            // SAFETY: page-aligned, larger than the words, and mapped until the drop. Other
            // processes change it, but the words are atomics, and any bits are a value.
            unsafe { self.words.as_ref() }
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            // SAFETY: mapped by `new`, and no borrow of it is left.
            let unmapped = unsafe { munmap(self.words.as_ptr().cast(), SHARED_BYTES as usize) };
            debug_assert!(unmapped.is_ok());
        }
    }

    /// Slots for pages, mapped until this is dropped.
    pub(in super::super) struct MappedSlots {
        at: NonNull<u8>,
        layout: SlotLayout,
    }

    // SAFETY: the slots are atomics, and the mapping belongs to no thread.
    unsafe impl Send for MappedSlots {}
    // SAFETY: as above.
    unsafe impl Sync for MappedSlots {}

    impl MappedSlots {
        /// Maps the slots of a file that has all of their blocks. If it was opened read-only, they
        /// must not be written.
        pub fn new(
            file: &File,
            layout: SlotLayout,
            access: Access,
        ) -> rustix::io::Result<MappedSlots> {
            let protection = match access {
                Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
                Access::ReadOnly => ProtFlags::READ,
            };
            // SAFETY: a new mapping where the kernel finds room.
            let at = unsafe {
                let (bytes, flags) = (layout.bytes(), MapFlags::SHARED);
                mmap(ptr::null_mut(), bytes, protection, flags, file, SLOTS_AT)?
            };
            let at = NonNull::new(at.cast()).ok_or(rustix::io::Errno::NOMEM)?;
            Ok(MappedSlots { at, layout })
        }

        pub fn headers(&self) -> &[SlotHeader] {
            // SAFETY: page-aligned, and mapped until the drop. Other processes change it, but the
            // headers are atomics, and any bits are a value.
            unsafe { std::slice::from_raw_parts(self.at.as_ptr().cast(), self.layout.slots) }
        }

        pub fn words(&self) -> &[PageWord] {
            let words = self.layout.slots * self.layout.page_words();
            // SAFETY: as above. The pages begin on a multiple of 4,096 bytes.
            unsafe {
                let at = self.at.as_ptr().add(self.layout.header_bytes());
                std::slice::from_raw_parts(at.cast(), words)
            }
        }
    }

    impl Drop for MappedSlots {
        fn drop(&mut self) {
            // SAFETY: mapped by `new`, and no borrow of it is left.
            let unmapped = unsafe { munmap(self.at.as_ptr().cast(), self.layout.bytes()) };
            debug_assert!(unmapped.is_ok());
        }
    }
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;

    /// A child made without the C library runs no fork handler.
    #[test]
    fn a_child_has_another_number_whatever_made_it() {
        let ours = process_number();
        assert_eq!(process_number(), ours);
        // SAFETY: as fork(2); the child only compares, and ends.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if child == 0 {
            let differs = process_number() != ours;
            // SAFETY: it ends the child.
            unsafe { libc::_exit(i32::from(differs)) }
        }
        assert!(child > 0, "{}", io::Error::last_os_error());
        let mut ended = 0;
        // SAFETY: a child of this test.
        let waited = unsafe { libc::waitpid(child as libc::pid_t, &raw mut ended, 0) };
        assert_eq!(
            (i64::from(waited), libc::WEXITSTATUS(ended)),
            (child as i64, 1)
        );
        assert_eq!(process_number(), ours);
    }
}
