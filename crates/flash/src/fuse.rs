//! The FUSE file system with one file, which is the device.
//!
//! The file is opened with direct I/O, so that the kernel keeps no copy of it. So its content may
//! be exchanged while the device is not mounted. The loop driver turns a flush into an fsync of the
//! file, and a discard into a fallocate that punches a hole.
//!
//! With a [`Schedule`] the thread that got a request sleeps until the time of its answer; there are
//! more threads than the device has channels. The loop driver sends a flush only after it has
//! passed on everything before, and sends nothing after it until the answer.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, WriteFlags,
};

use crate::medium::Medium;
use crate::schedule::{Request as Asked, Schedule};

/// The name of the file.
pub(crate) const FILE_NAME: &str = "device";

const FILE: INodeNo = INodeNo(2);
/// Nothing ever changes, so the kernel may cache it.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// fallocate(2).
const FALLOC_FL_PUNCH_HOLE: i32 = 0x02;
const FALLOC_FL_ZERO_RANGE: i32 = 0x10;

/// See the module.
pub(crate) struct OneFile<M> {
    pub(crate) device: M,
    /// `None` answers at once.
    pub(crate) schedule: Option<Arc<Schedule>>,
    /// Whether several requests are answered at once.
    pub(crate) is_async: bool,
}

impl<M: Medium> OneFile<M> {
    /// Does some work, and returns when the device would have done it.
    fn take_time<T>(&self, asked: Asked, work: impl FnOnce(&M) -> T) -> T {
        let schedule = self.schedule.as_ref();
        let answer = schedule.map(|schedule| schedule.answer_at(Instant::now(), asked));
        let done = work(&self.device);
        let left = answer.map(|answer| answer.saturating_duration_since(Instant::now()));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            std::thread::sleep(left);
        }
        done
    }

    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0o700, 0),
            FILE => (FileType::RegularFile, 0o600, self.device.bytes()),
            _ => return None,
        };
        Some(attributes(ino, kind, perm, size, 4096))
    }
}

/// Attributes of entries that belong to root and keep no times.
pub(crate) fn attributes(
    ino: INodeNo,
    kind: FileType,
    perm: u16,
    size: u64,
    blksize: u32,
) -> FileAttr {
    FileAttr {
        ino,
        size,
        blocks: size.div_ceil(512),
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize,
        flags: 0,
    }
}

impl<M: Medium> Filesystem for OneFile<M> {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        if self.is_async {
            // Without it the kernel waits for each request before it sends the next.
            let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        }
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(FILE) {
            Some(attributes) if parent == INodeNo::ROOT && name == FILE_NAME => {
                reply.entry(&FOREVER, &attributes, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let left = self
            .device
            .bytes()
            .saturating_sub(offset)
            .min(u64::from(size));
        let mut bytes = vec![0; left as usize];
        let asked = Asked::Read(left);
        match self.take_time(asked, |device| device.read(offset, &mut bytes)) {
            Ok(()) => reply.data(&bytes),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let asked = Asked::Write(data.len() as u64);
        match self.take_time(asked, |device| device.write(offset, data)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        match self.take_time(Asked::Flush, M::flush) {
            Ok(()) => reply.ok(),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) == 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        match self.take_time(Asked::Zero, |device| device.zero(offset, length)) {
            Ok(()) => reply.ok(),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // close(2) of a descriptor, not a flush of the device.
        reply.ok();
    }
}
