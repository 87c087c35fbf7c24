//! The system calls, by their numbers on x86-64.

use super::files::Inode;
use super::locks::Owner;
use super::{Kernel, Mutant};
use libc::{c_char, c_int};
use std::ffi::CStr;

/// The outcome of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The call returns this.
    Done(i64),
    /// The kernel tries the call again when a lock was released.
    Blocked,
    /// The process sleeps for this many nanoseconds, or until another process wakes the word. Then
    /// the call returns `result`.
    Asleep {
        nanoseconds: u64,
        word: Option<u64>,
        result: i64,
    },
    /// The call wakes at most this many of the processes that wait for the word.
    Wakes { word: u64, most: u64 },
}

use Outcome::Done;

/// Arguments of a call.
pub type Arguments = [i64; 6];

const fn failed(errno: c_int) -> Outcome {
    Done(-(errno as i64))
}

/// The clock when the system began, in seconds.
const BEGAN: u64 = 1_000;

/// The directory of the database.
pub const DIRECTORY: &str = "/db";

/// # Safety
/// The pointers among the arguments are valid for the call.
unsafe fn path<'a>(pointer: i64) -> Option<&'a str> {
    // SAFETY: by this function's contract.
    let name = unsafe { CStr::from_ptr(pointer as *const c_char) };
    name.to_str().ok()
}

fn is_directory(path: &str) -> bool {
    path == "/" || path == DIRECTORY || path == "/db/" || path.is_empty() || path == "."
}

impl Kernel {
    /// Makes the call.
    ///
    /// # Safety
    /// The arguments fit the call: pointers point to as many bytes as it reads or writes.
    pub unsafe fn call(&mut self, process: usize, nr: i64, a: &Arguments) -> Outcome {
        // SAFETY: by this function's contract, here and below.
        unsafe {
            match nr {
                libc::SYS_openat => self.open(process, a),
                libc::SYS_close => match self.close(process, a[0]) {
                    true => Done(0),
                    false => failed(libc::EBADF),
                },
                libc::SYS_pread64 => self.read(process, a[0], a[1], a[2] as usize, Some(a[3])),
                libc::SYS_read => self.read(process, a[0], a[1], a[2] as usize, None),
                libc::SYS_pwrite64 => self.write(process, a[0], a[1], a[2] as usize, Some(a[3])),
                libc::SYS_write => self.write(process, a[0], a[1], a[2] as usize, None),
                libc::SYS_preadv | libc::SYS_preadv2 | libc::SYS_readv => {
                    let at = (nr != libc::SYS_readv && a[3] != -1).then_some(a[3]);
                    self.vectored(process, a, at, false)
                }
                libc::SYS_pwritev | libc::SYS_pwritev2 | libc::SYS_writev => {
                    let at = (nr != libc::SYS_writev && a[3] != -1).then_some(a[3]);
                    self.vectored(process, a, at, true)
                }
                libc::SYS_lseek => self.seek(process, a),
                libc::SYS_ftruncate => self.on_file(process, a[0], |kernel, inode| {
                    kernel.files.truncate(inode, a[1] as u64);
                    0
                }),
                libc::SYS_fallocate => self.allocate(process, a),
                libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_sync_file_range => {
                    match self.described(process, a[0]) {
                        Some(_) => Done(0),
                        None => failed(libc::EBADF),
                    }
                }
                libc::SYS_fstat => self.stat(process, a[0], a[1]),
                libc::SYS_newfstatat => self.stat_at(process, a),
                libc::SYS_statx => self.statx(process, a),
                libc::SYS_fstatfs => {
                    (a[1] as *mut libc::statfs).write(std::mem::zeroed());
                    (*(a[1] as *mut libc::statfs)).f_type = 0xEF53;
                    Done(0)
                }
                libc::SYS_faccessat => match path(a[1]) {
                    Some(name) if is_directory(name) || self.files.find(name).is_some() => Done(0),
                    _ => failed(libc::ENOENT),
                },
                libc::SYS_unlinkat => match path(a[1]) {
                    Some(name) if self.files.unlink(name) => Done(0),
                    _ => failed(libc::ENOENT),
                },
                libc::SYS_renameat => match (path(a[1]), path(a[3])) {
                    (Some(from), Some(to)) if self.files.rename(from, to) => Done(0),
                    _ => failed(libc::ENOENT),
                },
                libc::SYS_readlinkat => failed(libc::EINVAL),
                libc::SYS_fchmod | libc::SYS_fchown | libc::SYS_munmap => Done(0),
                libc::SYS_fcntl => self.fcntl(process, a),
                libc::SYS_mmap => self.map(process, a),
                libc::SYS_getpid | libc::SYS_gettid => Done(100 + process as i64),
                libc::SYS_clock_gettime => self.time(a),
                libc::SYS_nanosleep => Outcome::Asleep {
                    nanoseconds: nanoseconds(a[0] as *const libc::timespec),
                    word: None,
                    result: 0,
                },
                libc::SYS_sched_yield => Outcome::Asleep {
                    nanoseconds: 0,
                    word: None,
                    result: 0,
                },
                libc::SYS_futex => futex(a, self.tables.clock),
                libc::SYS_getrandom => self.fill_with_random(a),
                libc::SYS_clone | libc::SYS_clone3 => failed(libc::EAGAIN), // There are no threads.
                _ => {
                    self.unknown.push(nr);
                    failed(libc::ENOSYS)
                }
            }
        }
    }

    unsafe fn time(&self, a: &Arguments) -> Outcome {
        // The wall clock shows a fixed day; the other clocks began with the system.
        let wall = if a[0] == i64::from(libc::CLOCK_REALTIME) {
            1_700_000_000
        } else {
            BEGAN as i64
        };
        let now = self.tables.clock;
        let time = libc::timespec {
            tv_sec: wall + (now / 1_000_000_000) as i64,
            tv_nsec: (now % 1_000_000_000) as i64,
        };
        // SAFETY: by the contract of `call`.
        unsafe { (a[1] as *mut libc::timespec).write(time) };
        Done(0)
    }

    unsafe fn fill_with_random(&mut self, a: &Arguments) -> Outcome {
        for at in 0..a[1] as usize {
            let byte = self.random() as u8;
            // SAFETY: by the contract of `call`.
            unsafe { (a[0] as *mut u8).add(at).write(byte) };
        }
        Done(a[1])
    }

    unsafe fn open(&mut self, process: usize, a: &Arguments) -> Outcome {
        // SAFETY: by the caller's contract.
        let Some(name) = (unsafe { path(a[1]) }) else {
            return failed(libc::EINVAL);
        };
        let flags = a[2] as i32;
        if is_directory(name) {
            return Done(self.open_description(process, None, flags));
        }
        let inode = match self.files.find(name) {
            Some(_) if flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0 => {
                return failed(libc::EEXIST);
            }
            Some(inode) => inode,
            None if flags & libc::O_CREAT != 0 && name.starts_with(DIRECTORY) => {
                self.files.create(name)
            }
            None => return failed(libc::ENOENT),
        };
        if flags & libc::O_TRUNC != 0 {
            self.files.truncate(inode, 0);
        }
        Done(self.open_description(process, Some(inode), flags))
    }

    fn on_file(
        &mut self,
        process: usize,
        fd: i64,
        does: impl FnOnce(&mut Kernel, Inode) -> i64,
    ) -> Outcome {
        match self.inode(process, fd) {
            Some(inode) => Done(does(self, inode)),
            None => failed(libc::EBADF),
        }
    }

    /// The position of a read or write. Moves the file position if the call has none of its own.
    fn position(&mut self, process: usize, fd: i64, count: usize, at: Option<i64>) -> Option<u64> {
        let description = self.described(process, fd)?;
        Some(at.map_or_else(
            || {
                let before = description.position;
                description.position += count as u64;
                before
            },
            |at| at as u64,
        ))
    }

    unsafe fn read(
        &mut self,
        process: usize,
        fd: i64,
        out: i64,
        count: usize,
        at: Option<i64>,
    ) -> Outcome {
        let Some(inode) = self.inode(process, fd) else {
            return failed(libc::EBADF);
        };
        let position = at.map_or_else(
            || self.described(process, fd).map_or(0, |d| d.position),
            |at| at as u64,
        );
        // SAFETY: by the caller's contract.
        let got = unsafe { self.files.read(inode, out as *mut u8, count, position) };
        self.position(process, fd, got, at);
        Done(got as i64)
    }

    unsafe fn write(
        &mut self,
        process: usize,
        fd: i64,
        from: i64,
        count: usize,
        at: Option<i64>,
    ) -> Outcome {
        if matches!(fd, 1 | 2) {
            // SAFETY: by the caller's contract. Standard error goes to the real one, for people.
            return Done(unsafe { libc::write(2, from as *const libc::c_void, count) } as i64);
        }
        let Some(inode) = self.inode(process, fd) else {
            return failed(libc::EBADF);
        };
        let position = self.position(process, fd, count, at).unwrap_or(0);
        // SAFETY: by the caller's contract.
        unsafe { self.files.write(inode, from as *const u8, count, position) };
        Done(count as i64)
    }

    unsafe fn vectored(
        &mut self,
        process: usize,
        a: &Arguments,
        at: Option<i64>,
        writes: bool,
    ) -> Outcome {
        let mut all = 0;
        for part in 0..a[2] as usize {
            // SAFETY: by the caller's contract.
            let part = unsafe { *(a[1] as *const libc::iovec).add(part) };
            let at = at.map(|at| at + all);
            let (base, count) = (part.iov_base as i64, part.iov_len);
            // SAFETY: as above.
            let outcome = unsafe {
                match writes {
                    true => self.write(process, a[0], base, count, at),
                    false => self.read(process, a[0], base, count, at),
                }
            };
            match outcome {
                Done(got) if got >= 0 => all += got,
                other => return other,
            }
        }
        Done(all)
    }

    fn seek(&mut self, process: usize, a: &Arguments) -> Outcome {
        let size = self
            .inode(process, a[0])
            .map_or(0, |inode| self.files.size(inode));
        let Some(description) = self.described(process, a[0]) else {
            return failed(libc::EBADF);
        };
        let base = match a[2] as i32 {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => description.position as i64,
            libc::SEEK_END => size as i64,
            _ => return failed(libc::EINVAL),
        };
        description.position = (base + a[1]) as u64;
        Done(base + a[1])
    }

    fn allocate(&mut self, process: usize, a: &Arguments) -> Outcome {
        let (mode, from, to) = (a[1] as i32, a[2] as usize, (a[2] + a[3]) as usize);
        if mode & !(libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_ZERO_RANGE) != 0 {
            return failed(libc::EOPNOTSUPP);
        }
        self.on_file(process, a[0], |kernel, inode| {
            if mode & libc::FALLOC_FL_ZERO_RANGE != 0 {
                kernel.files.zero(inode, from, to);
            }
            if mode & libc::FALLOC_FL_KEEP_SIZE == 0 && kernel.files.size(inode) < to as u64 {
                kernel.files.truncate(inode, to as u64);
            }
            0
        })
    }

    unsafe fn stat(&mut self, process: usize, fd: i64, out: i64) -> Outcome {
        match self.described(process, fd).map(|described| described.inode) {
            // SAFETY: by the caller's contract.
            Some(inode) => unsafe { self.put_stat(inode, out as *mut libc::stat) },
            None => failed(libc::EBADF),
        }
    }

    unsafe fn put_stat(&self, inode: Option<Inode>, out: *mut libc::stat) -> Outcome {
        // SAFETY: by the caller's contract; a stat is plain integers.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            stat.st_dev = libc::makedev(8, 1);
            stat.st_blksize = 4096;
            stat.st_mode = libc::S_IFDIR | 0o755;
            stat.st_ino = 2;
            if let Some(inode) = inode {
                stat.st_mode = libc::S_IFREG | 0o644;
                stat.st_ino = 100 + u64::from(inode.0);
                stat.st_size = self.files.size(inode) as i64;
                stat.st_blocks = (stat.st_size + 511) / 512;
            }
            stat.st_nlink = u64::from(inode.is_none_or(|inode| self.files.is_linked(inode)));
            out.write(stat);
        }
        Done(0)
    }

    unsafe fn stat_at(&mut self, process: usize, a: &Arguments) -> Outcome {
        // SAFETY: by the caller's contract.
        unsafe {
            match path(a[1]) {
                Some("") => self.stat(process, a[0], a[2]),
                Some(name) if is_directory(name) => self.put_stat(None, a[2] as *mut libc::stat),
                Some(name) => match self.files.find(name) {
                    Some(inode) => self.put_stat(Some(inode), a[2] as *mut libc::stat),
                    None => failed(libc::ENOENT),
                },
                None => failed(libc::EINVAL),
            }
        }
    }

    unsafe fn statx(&mut self, process: usize, a: &Arguments) -> Outcome {
        // SAFETY: by the caller's contract; both are plain integers.
        unsafe {
            if a[1] == 0 || a[4] == 0 {
                // SQLite asks whether the call exists.
                return failed(libc::EFAULT);
            }
            let mut stat: libc::stat = std::mem::zeroed();
            let arguments = [a[0], a[1], &raw mut stat as i64, 0, 0, 0];
            let outcome = self.stat_at(process, &arguments);
            if outcome == Done(0) {
                let mut statx: libc::statx = std::mem::zeroed();
                statx.stx_mask = libc::STATX_BASIC_STATS | libc::STATX_DIOALIGN;
                statx.stx_blksize = 4096;
                statx.stx_mode = stat.st_mode as u16;
                statx.stx_nlink = stat.st_nlink as u32;
                statx.stx_ino = stat.st_ino;
                statx.stx_size = stat.st_size as u64;
                statx.stx_blocks = stat.st_blocks as u64;
                (statx.stx_dev_major, statx.stx_dev_minor) = (8, 1);
                (statx.stx_dio_mem_align, statx.stx_dio_offset_align) = (512, 512);
                (a[4] as *mut libc::statx).write(statx);
            }
            outcome
        }
    }

    unsafe fn map(&mut self, process: usize, a: &Arguments) -> Outcome {
        let (flags, fd, offset) = (a[2] as i32, a[3], a[4] as usize);
        if flags & libc::MAP_ANONYMOUS != 0 || flags & libc::MAP_SHARED == 0 {
            return failed(libc::ENOMEM);
        }
        self.on_file(process, fd, |kernel, inode| {
            kernel.files.map(inode, offset) as i64
        })
    }

    unsafe fn fcntl(&mut self, process: usize, a: &Arguments) -> Outcome {
        let Some(number) = self.description(process, a[0]) else {
            return failed(libc::EBADF);
        };
        let posix = Owner::Process(process as u8);
        let open = Owner::Description(number);
        // SAFETY: by the caller's contract.
        unsafe {
            match a[1] as i32 {
                libc::F_SETLK => self.set_lock(process, a, posix, false),
                libc::F_SETLKW => self.set_lock(process, a, posix, true),
                libc::F_GETLK => self.get_lock(process, a, posix),
                libc::F_OFD_SETLK => self.set_lock(process, a, open, false),
                libc::F_OFD_SETLKW => self.set_lock(process, a, open, true),
                libc::F_OFD_GETLK => self.get_lock(process, a, open),
                libc::F_GETFL => Done(self.described(process, a[0]).map_or(0, |d| d.flags.into())),
                libc::F_GETFD | libc::F_SETFD | libc::F_SETFL => Done(0),
                libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
                    Done(self.descriptor(process, number, a[2] as usize))
                }
                _ => failed(libc::EINVAL),
            }
        }
    }

    unsafe fn set_lock(
        &mut self,
        process: usize,
        a: &Arguments,
        owner: Owner,
        waits: bool,
    ) -> Outcome {
        // SAFETY: by the caller's contract.
        let wanted = unsafe { *(a[2] as *const libc::flock) };
        let range = range(&wanted);
        let Some(inode) = self.inode(process, a[0]) else {
            return failed(libc::EBADF);
        };
        let is_exclusive = match i32::from(wanted.l_type) {
            libc::F_UNLCK => {
                self.about_to_unlock(inode, range, owner);
                self.tables.locks.set(inode, range, None, owner);
                return Done(0);
            }
            kind => kind == libc::F_WRLCK,
        };
        let conflict = self
            .tables
            .locks
            .conflict(inode, range, is_exclusive, owner);
        if conflict.is_some() && !self.grants_though_taken(inode, range, is_exclusive) {
            return match waits {
                true => Outcome::Blocked,
                false => failed(libc::EAGAIN),
            };
        }
        self.tables
            .locks
            .set(inode, range, Some(is_exclusive), owner);
        self.has_locked(inode, range, is_exclusive);
        Done(0)
    }

    unsafe fn get_lock(&mut self, process: usize, a: &Arguments, owner: Owner) -> Outcome {
        // SAFETY: by the caller's contract.
        let wanted = unsafe { &mut *(a[2] as *mut libc::flock) };
        let Some(inode) = self.inode(process, a[0]) else {
            return failed(libc::EBADF);
        };
        let is_exclusive = i32::from(wanted.l_type) == libc::F_WRLCK;
        let range = range(wanted);
        let conflict = self
            .tables
            .locks
            .conflict(inode, range, is_exclusive, owner);
        match conflict {
            Some((owner, is_exclusive)) => {
                wanted.l_type = match is_exclusive {
                    true => libc::F_WRLCK as i16,
                    false => libc::F_RDLCK as i16,
                };
                wanted.l_pid = match owner {
                    Owner::Process(process) => 100 + i32::from(process),
                    Owner::Description(_) => -1,
                };
            }
            None => wanted.l_type = libc::F_UNLCK as i16,
        }
        Done(0)
    }

    // ---- Planted faults ----

    fn is_index(&self, inode: Inode) -> bool {
        self.files.name(inode).ends_with("db-shm")
    }

    fn grants_though_taken(&self, inode: Inode, range: (u64, u64), is_exclusive: bool) -> bool {
        match self.mutant {
            Some(Mutant::ResetRule) => {
                self.is_index(inode) && range == (CHECKPOINT, CHECKPOINT + 1) && !is_exclusive
            }
            Some(Mutant::TwoWriters) => {
                self.is_index(inode) && range == (WRITER, WRITER + 1) && is_exclusive
            }
            Some(Mutant::ReadersIgnored) => {
                self.is_index(inode) && range.0 > FIRST_READER && is_exclusive
            }
            _ => false,
        }
    }

    fn has_locked(&mut self, inode: Inode, range: (u64, u64), is_exclusive: bool) {
        if !is_exclusive || !self.is_index(inode) {
            return;
        }
        let keeps_the_second_copy = self.mutant.is_some_and(Mutant::keeps_the_second_copy);
        if keeps_the_second_copy && range == (WRITER, WRITER + 1) {
            self.old_header = Some(self.in_index(inode, SECOND_COPY));
        }
        self.recovers |= is_recovery(range);
    }

    fn about_to_unlock(&mut self, inode: Inode, range: (u64, u64), owner: Owner) {
        if !self.is_index(inode) || !self.tables.locks.holds(inode, range, owner) {
            return;
        }
        if self.mutant == Some(Mutant::StaleBackfill) && range == (CHECKPOINT, CHECKPOINT + 1) {
            let last_frame: [u8; 4] = self.in_index(inode, LAST_FRAME);
            self.put_in_index(inode, BACKFILLED, last_frame);
        }
        let has_recovered = is_recovery(range) && std::mem::take(&mut self.recovers);
        if has_recovered && self.mutant == Some(Mutant::SameEmptyHeader) {
            self.forget_generation(inode);
        }
        if range == (WRITER, WRITER + 1)
            && let Some(old) = self.old_header.take()
        {
            self.put_in_index(inode, SECOND_COPY, old);
        }
    }

    /// Without frames, the header gets no salts and no checksum of a frame.
    fn forget_generation(&mut self, inode: Inode) {
        let mut header: [u8; 48] = self.in_index(inode, 0);
        if header[LAST_FRAME as usize..][..4] != [0; 4] {
            return;
        }
        header[OF_GENERATION].fill(0);
        let sum = checksum(&header[..OF_GENERATION.end]);
        header[OF_GENERATION.end..].copy_from_slice(&sum);
        self.put_in_index(inode, 0, header);
        self.put_in_index(inode, SECOND_COPY, header);
        self.old_header = None;
    }

    fn in_index<const N: usize>(&self, inode: Inode, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        // SAFETY: the buffer has that many bytes.
        unsafe { self.files.read(inode, bytes.as_mut_ptr(), N, at) };
        bytes
    }

    fn put_in_index<const N: usize>(&mut self, inode: Inode, at: u64, bytes: [u8; N]) {
        // SAFETY: the buffer has that many bytes.
        unsafe { self.files.write(inode, bytes.as_ptr(), N, at) };
    }
}

/// Whether a connection that locks these bytes exclusively recovers the wal-index.
fn is_recovery(range: (u64, u64)) -> bool {
    range.0 <= RECOVER && RECOVER < range.1
}

/// SQLite's lock bytes in the wal-index.
pub const WRITER: u64 = 120;
pub const CHECKPOINT: u64 = 121;
pub const RECOVER: u64 = 122;
pub const FIRST_READER: u64 = 123;

/// Places in the wal-index, in bytes.
const LAST_FRAME: u64 = 16;
/// The checksum of the last frame, and the salts; the header's own checksum is behind them.
const OF_GENERATION: std::ops::Range<usize> = 24..40;
const SECOND_COPY: u64 = 48;
const BACKFILLED: u64 = 96;

/// SQLite's checksum of a header in the wal-index.
fn checksum(bytes: &[u8]) -> [u8; 8] {
    let words = bytes
        .chunks_exact(4)
        .map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    let words: Vec<u32> = words.collect();
    let sum = words.chunks_exact(2).fold([0_u32; 2], |[a, b], pair| {
        let a = a.wrapping_add(pair[0]).wrapping_add(b);
        [a, b.wrapping_add(pair[1]).wrapping_add(a)]
    });
    let mut out = [0; 8];
    out[..4].copy_from_slice(&sum[0].to_ne_bytes());
    out[4..].copy_from_slice(&sum[1].to_ne_bytes());
    out
}

fn range(lock: &libc::flock) -> (u64, u64) {
    let from = lock.l_start as u64;
    match lock.l_len {
        0 => (from, u64::MAX),
        length => (from, from + length as u64),
    }
}

/// # Safety
/// The pointer is null, or points to a time.
unsafe fn nanoseconds(time: *const libc::timespec) -> u64 {
    match time.is_null() {
        true => u64::MAX,
        // SAFETY: by this function's contract.
        false => unsafe { (*time).tv_sec as u64 * 1_000_000_000 + (*time).tv_nsec as u64 },
    }
}

unsafe fn futex(a: &Arguments, clock: u64) -> Outcome {
    let word = a[0] as u64;
    match a[1] as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) {
        // SAFETY: by the caller's contract.
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => unsafe {
            if *(a[0] as *const u32) != a[2] as u32 {
                return failed(libc::EAGAIN);
            }
            let mut nanoseconds = nanoseconds(a[3] as *const libc::timespec);
            if a[1] as i32 & libc::FUTEX_WAIT_BITSET == libc::FUTEX_WAIT_BITSET {
                // An absolute time, not a duration.
                nanoseconds = nanoseconds.saturating_sub(BEGAN * 1_000_000_000 + clock);
            }
            Outcome::Asleep {
                nanoseconds,
                word: Some(word),
                result: -i64::from(libc::ETIMEDOUT),
            }
        },
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => Outcome::Wakes {
            word,
            most: a[2] as u64,
        },
        _ => failed(libc::ENOSYS),
    }
}
