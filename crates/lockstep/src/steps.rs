//! The system calls that count as steps, and their descriptions.

use crate::kernel::Kernel;
use crate::kernel::calls::{Arguments, CHECKPOINT, DIRECTORY, FIRST_READER, RECOVER, WRITER};
use crate::world::{BARRIER, MEMORY};
use std::ffi::{CStr, c_char};

/// Whether other processes could notice the call, or it could notice them.
pub fn is_shared(kernel: &Kernel, process: usize, nr: i64, a: &Arguments) -> bool {
    match nr {
        MEMORY => true,
        libc::SYS_fcntl => {
            matches!(
                a[1] as i32,
                libc::F_SETLK
                    | libc::F_SETLKW
                    | libc::F_GETLK
                    | libc::F_OFD_SETLK
                    | libc::F_OFD_SETLKW
                    | libc::F_OFD_GETLK
            )
        }
        libc::SYS_openat | libc::SYS_unlinkat | libc::SYS_faccessat => {
            // SAFETY: the call's path.
            let name = unsafe { CStr::from_ptr(a[1] as *const c_char) }.to_bytes();
            name.starts_with(DIRECTORY.as_bytes()) && name.len() > DIRECTORY.len() + 1
        }
        libc::SYS_read
        | libc::SYS_write
        | libc::SYS_pread64
        | libc::SYS_pwrite64
        | libc::SYS_preadv
        | libc::SYS_preadv2
        | libc::SYS_pwritev
        | libc::SYS_pwritev2
        | libc::SYS_ftruncate
        | libc::SYS_fallocate
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_fstat
        | libc::SYS_close
        | libc::SYS_mmap => kernel
            .inode(process, if nr == libc::SYS_mmap { a[3] } else { a[0] })
            .is_some(),
        libc::SYS_futex => true,
        _ => false,
    }
}

/// A readable description of the call.
pub fn describe(kernel: &Kernel, process: usize, nr: i64, a: &Arguments) -> String {
    let file = |fd: i64| {
        let inode = kernel.inode(process, fd);
        let name = inode.map_or("?", |inode| kernel.files.name(inode));
        name.rsplit('/').next().unwrap_or(name).to_owned()
    };
    // SAFETY: these calls have a path.
    let path = || unsafe { CStr::from_ptr(a[1] as *const c_char) }.to_string_lossy();
    match nr {
        MEMORY => format!("wal-index: {}", memory(a[0])),
        libc::SYS_fcntl => {
            // SAFETY: a lock's description; `is_shared` has checked the command.
            let lock = unsafe { &*(a[2] as *const libc::flock) };
            let how = match a[1] as i32 {
                libc::F_SETLK | libc::F_OFD_SETLK => "lock",
                libc::F_SETLKW | libc::F_OFD_SETLKW => "wait for lock",
                _ => "ask for lock",
            };
            let kind = match i32::from(lock.l_type) {
                libc::F_RDLCK => "shared",
                libc::F_WRLCK => "exclusive",
                _ => "none",
            };
            let name = file(a[0]);
            let place = match name.ends_with("db-shm") {
                true => index_lock(lock.l_start as u64, lock.l_len as u64),
                false => format!("{:#x}+{}", lock.l_start, lock.l_len),
            };
            format!("{name}: {how} {place}: {kind}")
        }
        libc::SYS_openat => format!("open {}", path()),
        libc::SYS_unlinkat => format!("unlink {}", path()),
        libc::SYS_faccessat => format!("access {}", path()),
        libc::SYS_read => format!("{}: read {}", file(a[0]), a[2]),
        libc::SYS_write => format!("{}: write {}", file(a[0]), a[2]),
        libc::SYS_pread64 => format!("{}: read {} at {}", file(a[0]), a[2], a[3]),
        libc::SYS_pwrite64 => format!("{}: write {} at {}", file(a[0]), a[2], a[3]),
        libc::SYS_preadv | libc::SYS_preadv2 => format!("{}: read at {}", file(a[0]), a[3]),
        libc::SYS_pwritev | libc::SYS_pwritev2 => format!("{}: write at {}", file(a[0]), a[3]),
        libc::SYS_ftruncate => format!("{}: truncate to {}", file(a[0]), a[1]),
        libc::SYS_fallocate => format!("{}: allocate {} at {}", file(a[0]), a[3], a[2]),
        libc::SYS_fsync | libc::SYS_fdatasync => format!("{}: flush", file(a[0])),
        libc::SYS_fstat => format!("{}: size", file(a[0])),
        libc::SYS_close => format!("{}: close", file(a[0])),
        libc::SYS_mmap => format!("{}: map", file(a[3])),
        libc::SYS_futex => "futex".to_owned(),
        other => format!("system call {other}"),
    }
}

fn index_lock(from: u64, count: u64) -> String {
    let name = match from {
        WRITER => "WRITE".to_owned(),
        CHECKPOINT => "CKPT".to_owned(),
        RECOVER => "RECOVER".to_owned(),
        reader @ FIRST_READER..128 => format!("READ{}", reader - FIRST_READER),
        other => format!("{other:#x}"),
    };
    match count {
        1 => name,
        count => format!("{name}+{count}"),
    }
}

/// The places in SQLite's source that `scripts/lockstep` marks.
fn memory(place: i64) -> &'static str {
    match place {
        BARRIER => "barrier",
        2 => "checkpoint's words",
        3 => "nBackfill",
        4 => "a read mark",
        5 => "nBackfillAttempted",
        _ => "a word",
    }
}
