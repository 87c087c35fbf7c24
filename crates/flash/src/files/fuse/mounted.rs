//! The kernel's calls, each answered from the [`State`].

use std::ffi::OsStr;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    IoctlFlags, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyOpen, ReplyStatfs, ReplyWrite,
    Request, TimeOrNow, WriteFlags,
};

use super::*;

fn empty(done: Result<(), Errno>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Mounted {
    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut state = self.0.state();
        let found = match parent {
            INodeNo::ROOT => state.lookup(name),
            _ => Err(Errno::ENOTDIR),
        };
        match found.and_then(|file| state.attributes(inode_of(file))) {
            Ok(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.state().attributes(ino) {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut state = self.0.state();
        let done = match size {
            Some(size) => state.truncate(req.pid(), ino, size),
            None => Ok(()),
        };
        match done.and_then(|()| state.attributes(ino)) {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let mut state = self.0.state();
        let made = match (parent, state.lookup(name)) {
            (INodeNo::ROOT, Ok(file)) if flags & libc_o_excl() == 0 => Ok(file),
            (INodeNo::ROOT, _) => state.on(|files| files.create(name.as_bytes())),
            _ => Err(Errno::ENOTDIR),
        };
        let made = made.and_then(|file| Ok((file, state.attributes(inode_of(file))?)));
        match made {
            Ok((file, attributes)) => {
                let handle = state.open(file);
                reply.created(
                    &TTL,
                    &attributes,
                    Generation(0),
                    handle,
                    FopenFlags::FOPEN_DIRECT_IO,
                );
            }
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let mut state = self.0.state();
        match state.on(|files| {
            let file = file_of(ino.0)?;
            files.size(file).map(|_| file)
        }) {
            Ok(file) => {
                let handle = state.open(file);
                reply.opened(handle, FopenFlags::FOPEN_DIRECT_IO);
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        let mut state = self.0.state();
        let read = state
            .check_handle(fh)
            .and_then(|()| state.on(|files| files.read(file_of(ino.0)?, offset, &mut bytes)));
        match read {
            Ok(length) => reply.data(&bytes[..length]),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.0.state().write(req.pid(), ino, fh, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn fsync(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        empty(self.0.state().sync(req.pid(), ino), reply);
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        // Names are durable when the call that made them returns.
        reply.ok();
    }

    fn flush(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let done = self.0.state().closed(req.pid(), ino, fh);
        empty(done, reply);
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        empty(self.0.state().release(fh), reply);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = match parent {
            INodeNo::ROOT => self.0.state().remove(name),
            _ => Err(Errno::ENOTDIR),
        };
        empty(done, reply);
    }

    fn rename(
        &self,
        _req: &Request,
        _parent: INodeNo,
        name: &OsStr,
        _newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut state = self.0.state();
        let done = match flags.is_empty() {
            true => state.rename(name, newname),
            false => Err(Errno::EINVAL),
        };
        empty(done, reply);
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let mut state = self.0.state();
        let Ok(files) = state.files() else {
            return reply.error(Errno::EIO);
        };
        let dots = [
            (INodeNo::ROOT, FileType::Directory, b".".to_vec()),
            (INodeNo::ROOT, FileType::Directory, b"..".to_vec()),
        ];
        let named = files.list().filter(|(name, _)| name[0] != 0);
        let named =
            named.map(|(name, file)| (inode_of(file), FileType::RegularFile, name.to_vec()));
        let entries = dots
            .into_iter()
            .chain(named)
            .enumerate()
            .skip(offset as usize);
        for (number, (ino, kind, name)) in entries {
            if reply.add(ino, number as u64 + 1, kind, OsStr::from_bytes(&name)) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let (bytes, free) = self.0.with(|files| files.space()).unwrap_or_default();
        reply.statfs(
            bytes / 4096,
            free / 4096,
            free / 4096,
            0,
            0,
            4096,
            255,
            4096,
        );
    }

    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        match self.0.state().ioctl(req.pid(), ino, fh, cmd, in_data) {
            Ok(()) => reply.ioctl(0, &[]),
            Err(error) => reply.error(error),
        }
    }
}

/// `O_EXCL`.
fn libc_o_excl() -> i32 {
    rustix::fs::OFlags::EXCL.bits() as i32
}
