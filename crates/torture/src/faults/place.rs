//! Where the workers' databases lie.

use crate::failure::Failure;
use onewrite_iotrace::scratch::{FileSystem, Options, Scratch};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// A directory that disappears with this value.
pub enum Place {
    /// An ext4 of our own in memory, where direct I/O and flushes are real and quick.
    Scratch(Box<Scratch>),
    /// Somebody's directory.
    Directory(tempfile::TempDir),
}

/// Size of the file system in bytes.
const BYTES: u64 = 1 << 30;

impl Place {
    /// Makes it: in `parent` where that is given.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make(parent: Option<&Path>) -> Result<Self, Failure> {
        let in_directory = |parent: &Path| {
            tempfile::Builder::new()
                .prefix("onewrite-faults-")
                .tempdir_in(parent)
                .map(Self::Directory)
                .map_err(|e| Failure::io("make a directory in", parent, e))
        };
        if let Some(parent) = parent {
            return in_directory(parent);
        }
        Self::scratch(BYTES).or_else(|_| in_directory(&std::env::temp_dir()))
    }

    /// An ext4 of `bytes` bytes.
    ///
    /// # Errors
    /// It takes root, and the programs that make file systems.
    pub fn scratch(bytes: u64) -> Result<Self, Failure> {
        let stop = AtomicBool::new(false);
        let memory = Path::new("/dev/shm");
        let parent = match memory.is_dir() {
            true => memory.to_owned(),
            false => std::env::temp_dir(),
        };
        let options = Options {
            file_system: FileSystem::Ext4,
            bytes,
            parent: &parent,
            stop: &stop,
        };
        Scratch::create(&options)
            .map(|scratch| Self::Scratch(Box::new(scratch)))
            .map_err(|e| Failure::Harness(e.to_string()))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        match self {
            Self::Scratch(scratch) => scratch.root(),
            Self::Directory(directory) => directory.path(),
        }
    }

    /// Removes it; dropping does the same, but cannot report.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(self) -> Result<(), Failure> {
        match self {
            Self::Scratch(scratch) => scratch
                .remove()
                .map_err(|e| Failure::Harness(e.to_string())),
            Self::Directory(directory) => Ok(directory.close()?),
        }
    }
}

/// Copies a directory of files. Blocks of zeros become holes: what is preallocated costs nothing.
///
/// # Errors
/// Of reading or writing.
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

fn copy_file(from: &Path, to: &Path) -> std::io::Result<()> {
    const PIECE: usize = 64 << 10;
    let source = fs::File::open(from)?;
    let target = fs::File::create(to)?;
    let size = source.metadata()?.len();
    target.set_len(size)?;
    let mut bytes = vec![0; PIECE];
    let mut at = 0;
    while at < size {
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
