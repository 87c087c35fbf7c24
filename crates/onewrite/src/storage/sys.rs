//! What needs unsafe code: the two system calls that rustix lacks, and mapped memory.
//!
//! `fcntl(F_OFD_*)` of fcntl(2), open-file-description locks, called by `lock.rs`;
//! sync_file_range(2), called by `file.rs`: their arguments live on this stack frame. And mmap(2) of
//! the page that `shared.rs` hands out. This is the only file of the storage layer with unsafe code.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

#[cfg(not(shuttle))]
pub(super) use mapped::Mapped;

/// What `l_type` of a lock request says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OfdType {
    /// `F_RDLCK`.
    Read,
    /// `F_WRLCK`.
    Write,
    /// `F_UNLCK`.
    Unlock,
}

/// Which `fcntl` command carries it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OfdCommand {
    /// `F_OFD_SETLK`: take or release at once, or fail with EAGAIN.
    Set,
    /// `F_OFD_SETLKW`: the same, waiting; EINTR when a signal arrives.
    #[cfg_attr(
        shuttle,
        expect(dead_code, reason = "would block every thread of the model")
    )]
    SetWait,
    /// `F_OFD_GETLK`: could the lock be taken?
    Get,
}

/// Applies `command` to the one byte at `offset` of `fd`. Returns whether the byte is locked by
/// somebody else after [`OfdCommand::Get`], and false after the others.
pub(super) fn ofd_lock(
    fd: BorrowedFd<'_>,
    command: OfdCommand,
    kind: OfdType,
    offset: i32,
) -> io::Result<bool> {
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
    // SAFETY: flock is plain integers, for which zero is a value. l_pid must be zero here.
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    request.l_type = l_type as libc::c_short;
    request.l_whence = libc::SEEK_SET as libc::c_short;
    request.l_start = libc::off_t::from(offset);
    request.l_len = 1;
    // SAFETY: the descriptor is open for as long as it is borrowed, and the kernel reads and writes
    // no more than the flock that the pointer points to.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), command, &raw mut request) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(command == libc::F_OFD_GETLK && request.l_type != libc::F_UNLCK as libc::c_short)
}

/// How far [`write_back`] goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WriteBack {
    /// Dirty pages are given to the device.
    Begin,
    /// The same, and all that were given to it have arrived.
    Finish,
}

/// sync_file_range(2): dirty pages of a range go to the device, without a flush of its cache; to the
/// end of the file where `bytes` is 0.
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

/// Whether an error says that there is no such system call: a filter, or a file that has none.
pub(super) fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOSYS | libc::EINVAL | libc::ESPIPE | libc::EPERM)
    )
}

#[cfg(not(shuttle))]
mod mapped {
    use super::super::open::Access;
    use super::super::shared::{SHARED_BYTES, SharedWords};
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
        /// Maps a file that has [`SHARED_BYTES`] of allocated bytes. Through one that was opened
        /// read-only the words must not be written.
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
            // SAFETY: page-aligned, larger than the words, and mapped until the drop. Other processes
            // change it: the words are atomics, and any bits are a value.
            unsafe { self.words.as_ref() }
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            // SAFETY: mapped by `new`, and nobody borrows it any more.
            let unmapped = unsafe { munmap(self.words.as_ptr().cast(), SHARED_BYTES as usize) };
            debug_assert!(unmapped.is_ok());
        }
    }
}
