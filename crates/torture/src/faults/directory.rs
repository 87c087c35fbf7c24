//! The directory of the workers' databases.

use crate::failure::Failure;
use onewrite_iotrace::scratch::{self, FileSystem, LoopDevice, Mounted};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A directory that disappears with this value.
pub enum WorkDirectory {
    /// A file system of its own in memory, where direct I/O and flushes are real and quick.
    Image(Image),
    /// A directory in an existing file system.
    Directory(tempfile::TempDir),
}

/// A mounted file system. Fields are in the order in which they must be dropped.
pub struct Image {
    mounted: Option<Mounted>,
    device: Option<LoopDevice>,
    root: PathBuf,
    directory: tempfile::TempDir,
}

/// Size of the file system in bytes.
const BYTES: u64 = 1 << 30;

fn harness(error: onewrite_iotrace::Error) -> Failure {
    Failure::Harness(error.to_string())
}

impl Image {
    /// Makes an ext4 of `bytes` bytes in a new directory in `parent`, without a journal, because
    /// the power stays on. When this returns, the image no longer has a name. So a `kill -9` leaves
    /// no more than empty directories.
    ///
    /// # Errors
    /// This needs root, and the programs that make file systems.
    pub fn make(bytes: u64, parent: &Path) -> Result<Self, Failure> {
        if !rustix::process::geteuid().is_root() {
            return Err(Failure::Harness(
                "a file system of our own takes root".into(),
            ));
        }
        let directory = tempfile::Builder::new()
            .prefix("onewrite-faults-")
            .tempdir_in(parent)?;
        let image = directory.path().join("image");
        fs::File::create(&image)?.set_len(bytes)?;
        FileSystem::Ext4
            .make(&image, &["-O", "^has_journal"])
            .map_err(harness)?;
        scratch::private_mounts().map_err(harness)?;
        let device = LoopDevice::attach(&image).map_err(harness)?;
        fs::remove_file(&image)?;
        let root = directory.path().join("mnt");
        fs::create_dir(&root)?;
        let mounted = Mounted::new(device.node(), &root, "ext4").map_err(harness)?;
        device.detach_when_unused().map_err(harness)?;
        Ok(Self {
            mounted: Some(mounted),
            device: Some(device),
            root,
            directory,
        })
    }

    /// The mount point.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Unmounts and removes it. Dropping does the same, but cannot report errors.
    ///
    /// # Errors
    /// The file system is in use.
    pub fn remove(mut self) -> Result<(), Failure> {
        let unmounted = self.mounted.take().map_or(Ok(()), Mounted::unmount);
        let detached = self.device.take().map_or(Ok(()), LoopDevice::detach);
        unmounted.and(detached).map_err(harness)?;
        Ok(self.directory.close()?)
    }
}

impl WorkDirectory {
    /// Makes a directory, in `parent` if it is given.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn make(parent: Option<&Path>) -> Result<Self, Failure> {
        let in_directory = |parent: &Path| {
            tempfile::Builder::new()
                .prefix("onewrite-faults-")
                .tempdir_in(parent)
                .map(Self::Directory)
                .map_err(|e| Failure::io("make a directory in", parent, e))
        };
        match parent {
            Some(parent) => in_directory(parent),
            None => Image::make(BYTES, &in_memory())
                .map(Self::Image)
                .or_else(|_| in_directory(&std::env::temp_dir())),
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        match self {
            Self::Image(image) => image.root(),
            Self::Directory(directory) => directory.path(),
        }
    }

    /// A directory outside of this one, which disappears with it, for more file systems.
    pub fn images(&self) -> &Path {
        match self {
            Self::Image(image) => image.directory.path(),
            Self::Directory(directory) => directory.path(),
        }
    }

    /// Removes the directory. Dropping does the same, but cannot report errors.
    ///
    /// # Errors
    /// The directory cannot be removed.
    pub fn remove(self) -> Result<(), Failure> {
        match self {
            Self::Image(image) => image.remove(),
            Self::Directory(directory) => Ok(directory.close()?),
        }
    }
}

/// A directory in memory, if there is one.
fn in_memory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => memory.to_owned(),
        false => std::env::temp_dir(),
    }
}

/// Copies a directory of files. Blocks of zeros become holes, so preallocated blocks cost nothing.
///
/// # Errors
/// Errors of reading or writing.
pub fn copy_files(from: &Path, to: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(to) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(Failure::io("remove", to, e));
        }
        _ => {}
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let target: PathBuf = to.join(path.file_name().unwrap_or_default());
        copy_file(&path, &target).map_err(|e| Failure::io("copy", &path, e))?;
    }
    Ok(())
}

/// Copies one file in the same way.
///
/// # Errors
/// Errors of reading or writing.
pub fn copy_file(from: &Path, to: &Path) -> std::io::Result<()> {
    const PIECE: usize = 64 << 10;
    let source = fs::File::open(from)?;
    let target = fs::File::create(to)?;
    let size = source.metadata()?.len();
    target.set_len(size)?;
    let mut bytes = vec![0; PIECE];
    let mut at = 0;
    while at < size {
        at = match rustix::fs::seek(&source, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => data,
            // Only holes are left.
            Err(rustix::io::Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        };
        let length = source.read_at(&mut bytes, at)?;
        if length == 0 {
            break;
        }
        if bytes[..length].iter().any(|&byte| byte != 0) {
            target.write_all_at(&bytes[..length], at)?;
        }
        at += length as u64;
    }
    Ok(())
}
