//! A FUSE file system with one file, which a thread of the test serves.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation,
    INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry,
    Request,
};

/// The name of the file.
pub const NAME: &str = "app.db";

const FILE: INodeNo = INodeNo(2);
const FOREVER: Duration = Duration::from_secs(1 << 30);

struct OneFile(Vec<u8>);

/// Mounts a file system `fuse.NAME` whose file has this content.
pub fn mount(name: &str, point: &Path, content: &[u8]) -> BackgroundSession {
    let mut config = Config::default();
    let names = [
        MountOption::FSName("served".to_owned()),
        // fuser keeps its own option for the name from the kernel.
        MountOption::CUSTOM(format!("subtype={name}")),
    ];
    config.mount_options.extend(names);
    fuser::spawn_mount(OneFile(content.to_owned()), point, &config).expect("a mount")
}

impl OneFile {
    fn attributes(&self, ino: INodeNo) -> FileAttr {
        let is_file = ino == FILE;
        let size = if is_file { self.0.len() as u64 } else { 0 };
        FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_file {
                FileType::RegularFile
            } else {
                FileType::Directory
            },
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for OneFile {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == NAME {
            true => reply.entry(&FOREVER, &self.attributes(FILE), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &self.attributes(ino));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let bytes = self.0.iter().skip(offset as usize).take(size as usize);
        reply.data(&bytes.copied().collect::<Vec<u8>>());
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if offset == 0 {
            let is_full = reply.add(FILE, 1, FileType::RegularFile, NAME);
            assert!(!is_full, "one name fits");
        }
        reply.ok();
    }
}
