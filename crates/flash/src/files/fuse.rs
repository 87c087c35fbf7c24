//! Transactional files as the kernel sees them: a FUSE file system.
//!
//! | call | what it is |
//! | --- | --- |
//! | `fsync`, ioctl [`COMMIT`] | commit(t), unless another process has begun it |
//! | ioctl [`ABORT`] | abort(t) |
//! | ioctl [`START`] | what was written before is committed; from now on what is written to the file is aborted, not committed, if the descriptor is closed without a commit |
//! | ioctl [`SHARE`] | the file and the one whose inode number is given share a transaction |
//! | ioctl [`LAZY`] | bytes are written that need not outlive the mount |
//! | `close` without [`START`] | commit(t), as an ordinary program expects that what it wrote is there; abort(t) if that fails |
//! | `write` without [`START`] | commit(t) first, if the transaction is half as large as the X-L2P table |
//! | `write`, `truncate` while only other processes have begun | `EBUSY` |
//! | `truncate` of a file that nobody has open | commit(t) |
//!
//! The first three ioctls are F2FS's (`F2FS_IOC_START_ATOMIC_WRITE` and so on), so that one program
//! can use either. The kernel opens files with direct I/O, so it caches nothing that an abort would
//! have to undo.

mod mounted;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use fuser::BackgroundSession;
use fuser::{Config, Errno, FileAttr, FileHandle, FileType, INodeNo, MountOption};

use super::{FileNo, Files, FilesError};
use crate::disk::{Pace, Waiting};
use crate::error::Error;
use crate::fuse::attributes;

/// `F2FS_IOC_START_ATOMIC_WRITE`.
pub const START: u32 = 0xF501;
/// `F2FS_IOC_COMMIT_ATOMIC_WRITE`.
pub const COMMIT: u32 = 0xF502;
/// `F2FS_IOC_ABORT_ATOMIC_WRITE` (earlier `F2FS_IOC_ABORT_VOLATILE_WRITE`).
pub const ABORT: u32 = 0xF505;
/// `_IOW('X', 1, u64)`: ours.
pub const SHARE: u32 = 0x4008_5801;

/// `_IOW('X', 2, u8[128])`: ours. The offset of the bytes (8), their length (4), and the bytes.
pub const LAZY: u32 = 0x4080_5802;

/// The kernel must cache nothing: an abort changes sizes.
const TTL: Duration = Duration::ZERO;
/// The root is 1.
const FIRST_INODE: u64 = 2;

/// Files that the kernel may use; clones are the same.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// `None` while the power is off.
    files: Option<Files>,
    /// By handle: the file, and the process that has begun a transaction with it, if any.
    handles: BTreeMap<u64, (FileNo, Option<Process>)>,
    /// Removed by name, but still open.
    removed: BTreeMap<FileNo, Vec<u8>>,
    next_handle: u64,
    waiting: Waiting,
}

impl Shared {
    /// These files. With [`Pace::Real`] the caller waits until the FTL would have answered.
    pub fn new(files: Files, pace: Pace) -> Self {
        Self(Arc::new(Mutex::new(State {
            waiting: Waiting::new(pace, files.ftl()),
            files: Some(files),
            handles: BTreeMap::new(),
            removed: BTreeMap::new(),
            next_handle: 1,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the files, or changes them; `None` while the power is off.
    pub fn with<T>(&self, what: impl FnOnce(&mut Files) -> T) -> Option<T> {
        self.state().files.as_mut().map(what)
    }

    /// The power goes: everything fails from now on. Returns the rest of the device.
    pub fn power_off(&self) -> Option<crate::ftl::Ftl> {
        let files = self.state().files.take()?;
        let mut ftl = files.into_ftl();
        ftl.nand_mut().power_off();
        Some(ftl)
    }

    /// The power is back, with these files. Older descriptors fail: their files may have changed.
    pub fn power_on(&self, files: Files) {
        let mut state = self.state();
        state.handles.clear();
        state.removed.clear();
        state.files = Some(files);
    }

    /// Mounts them on a directory, until the session is dropped.
    ///
    /// # Errors
    /// If there is no root, or no FUSE.
    pub fn mount(&self, directory: &Path) -> Result<BackgroundSession, Error> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("onewrite-xftl".to_owned()),
            MountOption::NoDev,
            MountOption::NoSuid,
        ];
        fuser::spawn_mount(Mounted(self.clone()), directory, &config)
            .map_err(Error::io("mount a FUSE file system on", directory))
    }
}

struct Mounted(Shared);

/// A process, by the number of its first thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process(u32);

impl Process {
    /// The process of a thread; the kernel names only the thread.
    fn of(thread: u32) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
        Self(
            line.and_then(|number| number.trim().parse().ok())
                .unwrap_or(thread),
        )
    }
}

fn errno(error: &FilesError) -> Errno {
    match error {
        FilesError::NotFound => Errno::ENOENT,
        FilesError::Exists => Errno::EEXIST,
        FilesError::Name => Errno::ENAMETOOLONG,
        FilesError::NoSpace => Errno::ENOSPC,
        FilesError::Refused => Errno::ENOTTY,
        FilesError::Busy => Errno::EBUSY,
        FilesError::Format(_) | FilesError::Device(_) => Errno::EIO,
    }
}

fn inode_of(file: FileNo) -> INodeNo {
    INodeNo(u64::from(file.0) + FIRST_INODE)
}

fn file_of(ino: u64) -> Result<FileNo, FilesError> {
    let number = ino
        .checked_sub(FIRST_INODE)
        .and_then(|number| u32::try_from(number).ok());
    number.map(FileNo).ok_or(FilesError::NotFound)
}

impl State {
    fn files(&mut self) -> Result<&mut Files, Errno> {
        self.files.as_mut().ok_or(Errno::EIO)
    }

    fn on<T>(
        &mut self,
        work: impl FnOnce(&mut Files) -> Result<T, FilesError>,
    ) -> Result<T, Errno> {
        let mut waiting = self.waiting;
        let files = self.files()?;
        waiting.arrive(files.ftl());
        let done = work(files);
        // Others wait as well: the kernel's requests come one after the other.
        std::thread::sleep(waiting.left(files.ftl()));
        self.waiting = waiting;
        done.map_err(|error| errno(&error))
    }

    fn attributes(&mut self, ino: INodeNo) -> Result<FileAttr, Errno> {
        let (kind, perm, size) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0o755, 0),
            INodeNo(ino) => {
                let size = self.on(|files| files.size(file_of(ino)?))?;
                (FileType::RegularFile, 0o644, size)
            }
        };
        Ok(attributes(ino, kind, perm, size, 8192))
    }

    /// A descriptor from before a power cut is unknown: its owner may remember a state that is
    /// gone.
    fn check_handle(&self, handle: FileHandle) -> Result<(), Errno> {
        match self.handles.contains_key(&handle.0) {
            true => Ok(()),
            false => Err(Errno::EIO),
        }
    }

    /// Looks up a name, except that of a removed file.
    fn lookup(&mut self, name: &OsStr) -> Result<FileNo, Errno> {
        self.on(|files| files.lookup(name.as_bytes()))
    }

    fn open(&mut self, file: FileNo) -> FileHandle {
        let handle = self.next_handle;
        self.next_handle += 1;
        self.handles.insert(handle, (file, None));
        FileHandle(handle)
    }

    /// A removed file that is open stays under a name that nobody can ask for, until a power cut or
    /// its last close.
    fn remove(&mut self, name: &OsStr) -> Result<(), Errno> {
        let file = self.lookup(name)?;
        if !self.is_open(file) {
            return self.on(|files| files.remove(file));
        }
        let hidden = hidden_name(file);
        self.on(|files| files.rename(file, &hidden))?;
        self.removed.insert(file, hidden);
        Ok(())
    }

    /// Commits or aborts the files of one transaction. The process that had begun it has no part in
    /// later writes.
    fn end(&mut self, file: FileNo, end: End) -> Result<(), Errno> {
        let sharing = self.files()?.sharing(file);
        self.on(|files| match end {
            End::Commit => files.commit(file),
            End::Abort => files.abort(file),
        })?;
        for (open, has_begun) in self.handles.values_mut() {
            if sharing.contains(open) {
                *has_begun = None;
            }
        }
        sharing
            .into_iter()
            .try_for_each(|file| self.drop_removed(file))
    }

    /// Removes a file that has no name any more, if nobody has it open and no transaction needs it.
    fn drop_removed(&mut self, file: FileNo) -> Result<(), Errno> {
        let is_alone = self.files()?.sharing(file).len() == 1;
        match !self.is_open(file) && is_alone && self.removed.remove(&file).is_some() {
            true => self.on(|files| files.remove(file)),
            false => Ok(()),
        }
    }

    fn is_open(&self, file: FileNo) -> bool {
        self.handles.values().any(|(open, _)| *open == file)
    }

    /// Commits what was written without [`START`]. If that fails, it must not hold entries of the
    /// X-L2P table any longer: nobody would end it.
    fn end_plain(&mut self, file: FileNo) -> Result<(), Errno> {
        let done = self.end(file, End::Commit);
        if done.is_err() {
            // Without power there is nothing to abort.
            let _ = self.end(file, End::Abort);
        }
        done
    }

    /// A write would belong to the transaction that others have begun, and be lost by their abort.
    fn check_writer(&self, who: u32, file: FileNo) -> Result<(), Errno> {
        let mut beginners = self.beginners(file).peekable();
        if beginners.peek().is_none() {
            return Ok(());
        }
        let beginners: Vec<Process> = beginners.collect();
        // The process of its first thread is known without asking the kernel.
        match beginners.contains(&Process(who)) || beginners.contains(&Process::of(who)) {
            true => Ok(()),
            false => Err(Errno::EBUSY),
        }
    }

    fn write(
        &mut self,
        who: u32,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Errno> {
        self.check_handle(handle)?;
        let file = file_of(ino.0).map_err(|error| errno(&error))?;
        self.check_writer(who, file)?;
        match self.is_begun(file) {
            true => self.on(|files| files.write(file, offset, data)),
            false => self.on(|files| files.write_in_parts(file, offset, data)),
        }
    }

    fn truncate(&mut self, who: u32, ino: INodeNo, bytes: u64) -> Result<(), Errno> {
        let file = file_of(ino.0).map_err(|error| errno(&error))?;
        self.check_writer(who, file)?;
        self.on(|files| files.truncate(file, bytes))?;
        // Otherwise a close or a sync commits it.
        match self.is_open(file) || self.is_begun(file) {
            true => Ok(()),
            false => self.end_plain(file),
        }
    }

    fn release(&mut self, handle: FileHandle) -> Result<(), Errno> {
        let Some((file, has_begun)) = self.handles.remove(&handle.0) else {
            return Ok(());
        };
        // The kernel reports this some time after the close, and others may have begun transactions
        // since. So this counts only if the descriptor's transaction has not ended yet.
        if has_begun.is_some() {
            self.end(file, End::Abort)?;
        }
        // The file may have been truncated by its name after the close.
        let is_left = self.files()?.is_changed(file) && !self.removed.contains_key(&file);
        if is_left && !self.is_open(file) && !self.is_begun(file) {
            self.end_plain(file)?;
        }
        self.drop_removed(file)
    }

    fn ioctl(
        &mut self,
        who: u32,
        ino: INodeNo,
        handle: FileHandle,
        command: u32,
        data: &[u8],
    ) -> Result<(), Errno> {
        let file = file_of(ino.0).map_err(|error| errno(&error))?;
        self.check_handle(handle)?;
        match command {
            START => {
                // Earlier writes without a sync do not belong to this transaction: an abort must
                // leave them.
                if !self.is_begun(file) {
                    self.end(file, End::Commit)?;
                }
                let known = self.handles.get_mut(&handle.0).ok_or(Errno::EIO)?;
                known.1 = Some(Process::of(who));
            }
            COMMIT => self.end(file, End::Commit)?,
            ABORT => self.end(file, End::Abort)?,
            SHARE => {
                let with = data
                    .try_into()
                    .map(u64::from_ne_bytes)
                    .map_err(|_| Errno::EINVAL)?;
                self.on(|files| files.share(file, file_of(with)?))?;
            }
            LAZY => {
                self.check_writer(who, file)?;
                let (offset, bytes) = lazy_write(data).ok_or(Errno::EINVAL)?;
                self.on(|files| files.write_lazily(file, offset, bytes))?;
            }
            _ => return Err(Errno::ENOTTY),
        }
        Ok(())
    }

    /// A descriptor was closed. A transaction that its process has begun with it is aborted here,
    /// not at the last close. The kernel releases the process's locks after this call.
    fn closed(&mut self, who: u32, ino: INodeNo, handle: FileHandle) -> Result<(), Errno> {
        let Ok(file) = file_of(ino.0) else {
            return Ok(());
        };
        if let Some((_, Some(process))) = self.handles.get(&handle.0) {
            // A child that closes an inherited descriptor ends nothing.
            return match *process == Process::of(who) {
                true => self.end(file, End::Abort),
                false => Ok(()),
            };
        }
        match !self.is_begun(file) && self.on(|files| files.size(file)).is_ok() {
            true => self.end_plain(file),
            false => Ok(()),
        }
    }

    /// The process that has begun a transaction on a file closes or syncs it; others do not commit
    /// it.
    fn is_begun(&self, file: FileNo) -> bool {
        self.beginners(file).next().is_some()
    }

    /// The processes that have begun a file's transaction.
    fn beginners(&self, file: FileNo) -> impl Iterator<Item = Process> {
        let sharing = self.files.as_ref().map(|files| files.sharing(file));
        let sharing = sharing.unwrap_or_default();
        let begun = self.handles.values();
        begun.filter_map(move |(open, has_begun)| has_begun.filter(|_| sharing.contains(open)))
    }

    fn sync(&mut self, who: u32, ino: INodeNo) -> Result<(), Errno> {
        let file = file_of(ino.0).map_err(|error| errno(&error))?;
        let who = Process::of(who);
        // If others have begun the transaction, it holds nothing of the caller, and their half must
        // not become durable.
        let is_others = self.is_begun(file) && !self.beginners(file).any(|process| process == who);
        match is_others {
            true => Ok(()),
            false => self.end(file, End::Commit),
        }
    }

    /// Gives a file a name. A file that already has it is removed, or continues without a name if
    /// it is open. Both are one transaction, so that there is always one file of that name.
    fn rename(&mut self, name: &OsStr, to: &OsStr) -> Result<(), Errno> {
        let file = self.lookup(name)?;
        let old = self.lookup(to).ok().filter(|old| *old != file);
        let Some(old) = old.filter(|old| self.is_open(*old)) else {
            return self.on(|files| files.rename(file, to.as_bytes()));
        };
        let hidden = hidden_name(old);
        self.on(|files| files.replace(file, to.as_bytes(), &hidden))?;
        self.removed.insert(old, hidden);
        Ok(())
    }
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Commit,
    Abort,
}

/// The argument of [`LAZY`].
fn lazy_write(data: &[u8]) -> Option<(u64, &[u8])> {
    let (offset, rest) = data.split_first_chunk()?;
    let (length, bytes) = rest.split_first_chunk()?;
    let bytes = bytes.get(..u32::from_ne_bytes(*length) as usize)?;
    Some((u64::from_ne_bytes(*offset), bytes))
}

/// The name under which a removed file stays while it is open.
fn hidden_name(file: FileNo) -> Vec<u8> {
    format!("\0removed {}", file.0).into_bytes()
}
