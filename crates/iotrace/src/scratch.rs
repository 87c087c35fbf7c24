//! Our own file system on our own loop device.
//!
//! The programs on such a device caused everything that its counters count. The image is a file
//! that is written in full beforehand. So the host's file system allocates nothing while the
//! scratch file system is in use.
//!
//! **Nothing is left behind.** The mount lives in this process's own mount namespace. The loop
//! device detaches itself after the unmount. The image's name is removed as soon as the loop device
//! holds it. [`Scratch::remove`], and dropping a `Scratch`, take everything down in order. If the
//! process is killed without a chance to do so, the kernel does it. A kill before the mount, during
//! the writing of the image, leaves the image file.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use tempfile::TempDir;

use crate::Error;
use crate::device::BlockDevice;

/// How long unmounting and detaching may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long our own files may take to be closed.
const SHORT_PATIENCE: Duration = Duration::from_millis(500);

/// Bytes written at a time when the image is filled.
const CHUNK: usize = 1 << 20;

/// A file system that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// ext4 as `mkfs.ext4` makes it by default: ordered data, 4 KiB blocks.
    Ext4,
    /// XFS as `mkfs.xfs` makes it by default, with the feature `exchange` where the kernel has it.
    Xfs,
    /// Btrfs as `mkfs.btrfs` makes it by default.
    Btrfs,
}

impl FileSystem {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    /// Its name to `mount`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// Makes it on `target`, a file or a block device, with options in addition to the default
    /// ones.
    pub fn make(self, target: &Path, options: &[&str]) -> Result<(), Error> {
        let (program, arguments, package) = self.maker();
        let path = find(program).ok_or(Error::Missing { program, package })?;
        run(Command::new(path).args(arguments).args(options).arg(target))?;
        match self {
            Self::Xfs => crate::exchange::enable(target),
            Self::Ext4 | Self::Btrfs => Ok(()),
        }
    }

    /// The program that makes it, its options, and its package. None of the options changes the
    /// resulting file system. Discarding would make the image sparse again. ext4's lazy
    /// initialization would go on writing in the background after the mount.
    fn maker(self) -> (&'static str, &'static [&'static str], &'static str) {
        const EXT4: &[&str] = &[
            "-q",
            "-F",
            "-E",
            "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
        ];
        match self {
            Self::Ext4 => ("mkfs.ext4", EXT4, "e2fsprogs"),
            Self::Xfs => ("mkfs.xfs", &["-q", "-f", "-K"], "xfsprogs"),
            Self::Btrfs => ("mkfs.btrfs", &["-q", "-f", "-K"], "btrfs-progs"),
        }
    }

    /// The program that makes it and its package, if it is not installed.
    pub fn missing(self) -> Option<Error> {
        let (program, _, package) = self.maker();
        find(program)
            .is_none()
            .then_some(Error::Missing { program, package })
    }
}

/// The scratch file system to make.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The file system.
    pub file_system: FileSystem,
    /// Size of the image in bytes.
    pub bytes: u64,
    /// The directory for the image and the mount point.
    pub parent: &'a Path,
    /// Set to give up making it.
    pub stop: &'a AtomicBool,
}

/// A mounted scratch file system.
#[derive(Debug)]
pub struct Scratch {
    // In the order in which they must be dropped.
    mounted: Option<Mounted>,
    /// `None` if the device belongs to the caller.
    loop_device: Option<LoopDevice>,
    dir: Option<TempDir>,
    root: PathBuf,
    device: BlockDevice,
}

impl Scratch {
    /// Makes and mounts it. Only the calling thread sees the mount, and the threads and processes
    /// that it starts from then on.
    pub fn create(options: &Options<'_>) -> Result<Self, Error> {
        can_be_made(options.file_system)?;
        let dir = directory_in(options.parent)?;
        let image = dir.path().join("image");
        fill(&image, options)?;
        options.file_system.make(&image, &[])?;
        give_up_if(options.stop)?;
        private_mounts()?;
        let loop_device = LoopDevice::attach(&image)?;
        let mut scratch = Self::mounted(options.file_system, loop_device.node(), dir)?;
        loop_device.detach_when_unused()?;
        fs::remove_file(&image).map_err(Error::io("remove", &image))?;
        scratch.loop_device = Some(loop_device);
        Ok(scratch)
    }

    /// The same on a device that the caller has and keeps. The directory in `parent` is only for
    /// the mount point.
    pub fn create_on(file_system: FileSystem, node: &Path, parent: &Path) -> Result<Self, Error> {
        can_be_made(file_system)?;
        file_system.make(node, &[])?;
        private_mounts()?;
        Self::mounted(file_system, node, directory_in(parent)?)
    }

    /// Mounts a file system that was made on such a device before.
    ///
    /// # Errors
    /// As [`Scratch::create_on`].
    pub fn mount_on(file_system: FileSystem, node: &Path, parent: &Path) -> Result<Self, Error> {
        private_mounts()?;
        Self::mounted(file_system, node, directory_in(parent)?)
    }

    fn mounted(file_system: FileSystem, node: &Path, dir: TempDir) -> Result<Self, Error> {
        let device = BlockDevice::from_node(node)?;
        let root = dir.path().join("mnt");
        fs::create_dir(&root).map_err(Error::io("create", &root))?;
        let mounted = Mounted::new(node, &root, file_system.name())?;
        Ok(Self {
            mounted: Some(mounted),
            loop_device: None,
            dir: Some(dir),
            root,
            device,
        })
    }

    /// Its mount point.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Its device, which nothing else uses.
    pub fn device(&self) -> &BlockDevice {
        &self.device
    }

    /// A directory next to the mount point, on the host's file system; removed with the rest.
    pub fn host_dir(&self) -> PathBuf {
        self.root.parent().unwrap_or(&self.root).to_owned()
    }

    /// Unmounts, detaches and deletes. Dropping does the same, but cannot report.
    pub fn remove(mut self) -> Result<(), Error> {
        self.take_down()
    }

    /// Detaches the mount from the tree at once. It ends when the last file on it is closed, and
    /// its memory or disk space is free then. Use this if a file stays open until the process ends.
    /// Dropping would wait for that, half a minute long.
    pub fn let_go(mut self) {
        if let Some(mounted) = self.mounted.take() {
            mounted.let_go();
        }
        // The kernel detaches the device when it is unmounted, as asked.
        std::mem::forget(self.loop_device.take());
    }

    /// Whether this process itself keeps a file open there, so that waiting is useless. A
    /// checkpoint by block remapping keeps its files open until the process ends.
    fn is_kept_by_us(&self) -> bool {
        let Ok(root) = rustix::fs::stat(&self.root) else {
            return false;
        };
        let of_open =
            |entry: std::io::Result<fs::DirEntry>| rustix::fs::stat(entry.ok()?.path()).ok();
        let open = || fs::read_dir("/proc/self/fd").into_iter().flatten();
        let begin = Instant::now();
        while open()
            .filter_map(of_open)
            .any(|file| file.st_dev == root.st_dev)
        {
            if begin.elapsed() > SHORT_PATIENCE {
                return true;
            }
            thread::sleep(Duration::from_millis(20));
        }
        false
    }

    fn take_down(&mut self) -> Result<(), Error> {
        if self.mounted.is_some() && self.is_kept_by_us() {
            if let Some(mounted) = self.mounted.take() {
                mounted.let_go();
            }
            // It detaches itself with the mount.
            std::mem::forget(self.loop_device.take());
        }
        let unmounted = self.mounted.take().map_or(Ok(()), Mounted::unmount);
        let detached = self.loop_device.take().map_or(Ok(()), LoopDevice::detach);
        let deleted = self.dir.take().map_or(Ok(()), |dir| {
            let path = dir.path().to_owned();
            dir.close().map_err(Error::io("remove", &path))
        });
        unmounted.and(detached).and(deleted)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // remove() reports errors; here no caller could receive them.
        let _ = self.take_down();
    }
}

/// A mount that ends with this value.
#[derive(Debug)]
pub struct Mounted {
    target: Option<PathBuf>,
}

impl Mounted {
    /// Mounts `source` on `target` with the default options.
    pub fn new(source: &Path, target: &Path, kind: &str) -> Result<Self, Error> {
        Self::with_options(source, target, kind, None)
    }

    /// Mounts with options of the file system, such as `data=journal`.
    pub fn with_options(
        source: &Path,
        target: &Path,
        kind: &str,
        options: Option<&CStr>,
    ) -> Result<Self, Error> {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount(source, target, kind, flags, options).map_err(Error::io("mount", target))?;
        Ok(Self {
            target: Some(target.to_owned()),
        })
    }

    /// Waits for files that are still open. A mount that stays busy is detached from the tree, and
    /// ends when they are closed.
    pub fn unmount(mut self) -> Result<(), Error> {
        self.take_down()
    }

    fn let_go(mut self) {
        if let Some(target) = self.target.take() {
            let _ = unmount(&target, UnmountFlags::DETACH);
        }
    }

    fn take_down(&mut self) -> Result<(), Error> {
        let Some(target) = self.target.take() else {
            return Ok(());
        };
        unmount_within(&target, PATIENCE)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.take_down();
    }
}

/// Unmounts `target`. A file there may be open a moment longer: a process that is being started has
/// copies of all open files until it runs its program, and others look at paths. A mount that stays
/// busy for longer than `patience` is detached from the tree, and that is an error.
pub fn unmount_within(target: &Path, patience: Duration) -> Result<(), Error> {
    let begin = Instant::now();
    loop {
        match unmount(target, UnmountFlags::empty()) {
            Err(Errno::BUSY) if begin.elapsed() < patience => {
                thread::sleep(Duration::from_millis(20));
            }
            Ok(()) => return Ok(()),
            Err(error) => {
                let _ = unmount(target, UnmountFlags::DETACH);
                return Err(Error::io("unmount", target)(error));
            }
        }
    }
}

/// How a loop device reads and writes its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// As a program does, one request after the other.
    Buffered,
    /// Past the page cache, several requests at the same time.
    Direct,
}

/// A loop device bound to our image, until this value ends.
#[derive(Debug)]
pub struct LoopDevice {
    node: PathBuf,
    image: PathBuf,
}

impl LoopDevice {
    /// Binds a free one to `image`.
    pub fn attach(image: &Path) -> Result<Self, Error> {
        Self::attach_with(image, Access::Buffered)
    }

    /// Binds a free one to `image`, with this access.
    pub fn attach_with(image: &Path, access: Access) -> Result<Self, Error> {
        let program = find("losetup").ok_or(Error::Missing {
            program: "losetup",
            package: "util-linux (or mount)",
        })?;
        let arguments: &[&str] = match access {
            Access::Buffered => &["--find", "--show"],
            Access::Direct => &["--find", "--show", "--direct-io=on"],
        };
        let node = run(Command::new(program).args(arguments).arg(image))?;
        Ok(Self {
            node: PathBuf::from(node.trim()),
            image: image.to_owned(),
        })
    }

    /// Its node below `/dev`.
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// Writes out the kernel's page cache of the device, and drops the cache. While a process has
    /// the device open, the kernel does not do so by itself.
    pub fn drop_cache(&self) -> Result<(), Error> {
        let program = find("blockdev").ok_or(Error::Missing {
            program: "blockdev",
            package: "util-linux",
        })?;
        run(Command::new(program).arg("--flushbufs").arg(&self.node)).map(drop)
    }

    /// Asks the kernel to detach the device once no process has it open or mounted.
    pub fn detach_when_unused(&self) -> Result<(), Error> {
        let program = find("losetup").unwrap_or_else(|| PathBuf::from("losetup"));
        run(Command::new(program).arg("--detach").arg(&self.node)).map(drop)
    }

    /// Whether the device is still bound to our image, and not free or bound to another.
    fn is_bound(&self) -> bool {
        let name = self.node.file_name().unwrap_or_default();
        let path = Path::new("/sys/block").join(name).join("loop/backing_file");
        let ours = self.image.as_os_str().as_encoded_bytes();
        fs::read(path).is_ok_and(|backing| backing.starts_with(ours))
    }

    /// Waits until it is free again.
    pub fn detach(self) -> Result<(), Error> {
        self.wait_until_free()
    }

    fn wait_until_free(&self) -> Result<(), Error> {
        let begin = Instant::now();
        while self.is_bound() {
            if begin.elapsed() > PATIENCE {
                return Err(Error::Unavailable(format!(
                    "{} is still in use; `losetup --detach {}` frees it",
                    self.node.display(),
                    self.node.display()
                )));
            }
            let _ = self.detach_when_unused();
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = self.wait_until_free();
    }
}

/// Moves the calling thread, and those it starts later, into their own mount namespace. No mount
/// spreads from there to others.
pub fn private_mounts() -> Result<(), Error> {
    let root = Path::new("/");
    // rustix deprecates the safe form because of UnshareFlags::FILES, which is not used here.
    #[allow(deprecated)]
    rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS)
        .map_err(Error::io("enter a mount namespace below", root))?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change(root, private).map_err(Error::io("make private the mounts below", root))
}

/// Whether this process can make and mount it with the installed programs.
fn can_be_made(file_system: FileSystem) -> Result<(), Error> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Unavailable(
            "a scratch file system takes root: it is made on a loop device and mounted".to_owned(),
        ));
    }
    file_system.missing().map_or(Ok(()), Err)
}

fn directory_in(parent: &Path) -> Result<TempDir, Error> {
    tempfile::Builder::new()
        .prefix("onewrite-scratch-")
        .tempdir_in(parent)
        .map_err(Error::io("create a directory in", parent))
}

/// Writes the image in full.
fn fill(image: &Path, options: &Options<'_>) -> Result<(), Error> {
    let space =
        rustix::fs::statvfs(options.parent).map_err(Error::io("statvfs", options.parent))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if free < options.bytes.saturating_add(options.bytes / 8) {
        return Err(Error::Unavailable(format!(
            "{}: {} MiB free, the scratch image takes {} MiB; another directory can be chosen",
            options.parent.display(),
            free >> 20,
            options.bytes >> 20
        )));
    }
    let mut file = File::create(image).map_err(Error::io("create", image))?;
    let zeros = vec![0u8; CHUNK];
    let mut left = options.bytes;
    while left > 0 {
        give_up_if(options.stop)?;
        let now = left.min(CHUNK as u64);
        let part = zeros.get(..now as usize).unwrap_or(&zeros);
        file.write_all(part).map_err(Error::io("fill", image))?;
        left -= now;
    }
    file.sync_all().map_err(Error::io("sync", image))
}

fn give_up_if(stop: &AtomicBool) -> Result<(), Error> {
    if stop.load(Ordering::Relaxed) {
        Err(Error::Interrupted)
    } else {
        Ok(())
    }
}

/// Runs a program to its end and returns its output. It is kept out of the terminal's process
/// group: we handle Ctrl-C, and the program must not die of it halfway.
pub(crate) fn run(command: &mut Command) -> Result<String, Error> {
    let shown = format!("{command:?}").replace('"', "");
    let failed = |message: String| Error::Command {
        command: shown.clone(),
        message,
    };
    let output = command
        .stdin(Stdio::null())
        .process_group(0)
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(failed(if message.is_empty() {
        output.status.to_string()
    } else {
        message
    }))
}

/// Looks for a program in PATH and in the directories of the administrator's programs.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root_or_skip() -> bool {
        let root = rustix::process::geteuid().is_root();
        if !root {
            eprintln!("skipped: needs root");
        }
        root
    }

    fn options<'a>(file_system: FileSystem, parent: &'a Path, stop: &'a AtomicBool) -> Options<'a> {
        Options {
            file_system,
            bytes: 512 << 20,
            parent,
            stop,
        }
    }

    fn bound_to(parent: &Path) -> usize {
        let parent = fs::canonicalize(parent).unwrap();
        let parent = parent.as_os_str().as_encoded_bytes();
        fs::read_dir("/sys/block")
            .unwrap()
            .filter_map(|entry| fs::read(entry.unwrap().path().join("loop/backing_file")).ok())
            .filter(|backing| backing.starts_with(parent))
            .count()
    }

    #[test]
    fn a_scratch_file_system_counts_our_writes_and_leaves_nothing() {
        if !root_or_skip() {
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        for file_system in FileSystem::ALL {
            if let Some(missing) = file_system.missing() {
                eprintln!("skipped {}: {missing}", file_system.name());
                continue;
            }
            let stop = AtomicBool::new(false);
            let scratch = Scratch::create(&options(file_system, parent.path(), &stop)).unwrap();
            assert_eq!(bound_to(parent.path()), 1);
            let before = scratch.device().wait_idle(PATIENCE).unwrap();
            let mut file = File::create(scratch.root().join("file")).unwrap();
            file.write_all(&[1; 1 << 20]).unwrap();
            file.sync_all().unwrap();
            let wrote = scratch.device().wait_idle(PATIENCE).unwrap().since(before);
            assert!(
                wrote.write_bytes >= 1 << 20,
                "{}: {wrote:?}",
                file_system.name()
            );
            assert!(wrote.flushes >= 1, "{}: {wrote:?}", file_system.name());
            drop(file);
            scratch.remove().unwrap();
            assert_eq!(bound_to(parent.path()), 0);
            assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_panic_leaves_nothing() {
        if !root_or_skip() {
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().to_owned();
        let thread = thread::spawn(move || {
            let stop = AtomicBool::new(false);
            let _scratch = Scratch::create(&options(FileSystem::Ext4, &path, &stop)).unwrap();
            assert_eq!(bound_to(&path), 1);
            panic!("on purpose");
        });
        let payload = thread.join().unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));
        assert_eq!(bound_to(parent.path()), 0);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_stop_while_the_image_is_written_leaves_nothing() {
        if !root_or_skip() {
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(true);
        let made = Scratch::create(&options(FileSystem::Ext4, parent.path(), &stop));
        assert!(matches!(made, Err(Error::Interrupted)));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_image_larger_than_the_disk_is_refused_before_a_byte_is_written() {
        if !root_or_skip() {
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let huge = Options {
            bytes: 1 << 60,
            ..options(FileSystem::Ext4, parent.path(), &stop)
        };
        let error = Scratch::create(&huge).unwrap_err().to_string();
        assert!(error.contains("the scratch image takes"), "{error}");
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let error = run(Command::new("sh").args(["-c", "echo it went wrong >&2; exit 3"]));
        let text = error.unwrap_err().to_string();
        assert!(
            text.ends_with("it went wrong") && text.starts_with("sh -c"),
            "{text}"
        );
    }
}
