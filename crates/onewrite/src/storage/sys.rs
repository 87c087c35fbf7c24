//! Open-file-description locks, the one system call that rustix lacks.
//!
//! `fcntl(F_OFD_*)` of fcntl(2). Called by `lock.rs` alone. This is the only file of the storage
//! layer with unsafe code: one call, whose argument lives on this stack frame.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

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
