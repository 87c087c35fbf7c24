//! The device below a directory, its file system, and the mount point of the whole file system.

use std::fmt;
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use onewrite_common::mounts::{self, Mount, holding};

use crate::Error;
use crate::device::BlockDevice;
use crate::scratch::FileSystem;

/// The device below a directory, its file system, and the mount point.
#[derive(Clone, Debug)]
pub struct Place {
    /// The device.
    pub device: BlockDevice,
    /// Its file system.
    pub file_system: FileSystem,
    /// The mount point of the whole file system.
    pub root: PathBuf,
}

impl Place {
    /// The device and file system below `path`.
    ///
    /// # Errors
    /// If that is no file system that can be traced. The message says what it is, and what to do.
    pub fn of_path(path: &Path) -> Result<Self, Error> {
        let path = fs::canonicalize(path).map_err(Error::io("find", path))?;
        let mounts = mounts()?;
        let mount = holding(&mounts, &path).ok_or_else(|| unknown(&path.display(), "no mount"))?;
        Self::of_mount(mount, &mounts)
    }

    /// The file system on the device at `node`, for example `/dev/sda2`.
    ///
    /// # Errors
    /// If it is not mounted, or holds no file system that can be traced.
    pub fn of_device(node: &Path) -> Result<Self, Error> {
        let meta = fs::metadata(node).map_err(Error::io("find", node))?;
        if !meta.file_type().is_block_device() {
            let text = "it is no block device; name a disk or partition, such as /dev/sda2";
            return Err(Error::Unavailable(format!("{}: {text}", node.display())));
        }
        let device = BlockDevice::from_node(node)?;
        let mounts = mounts()?;
        let number = device.kernel_number();
        let on_device = |mount: &&Mount| {
            kernel_number(mount) == number
                || BlockDevice::from_node(&mount.source).is_ok_and(|found| found == device)
        };
        let mount = mounts.iter().find(on_device).ok_or_else(|| {
            Error::Unavailable(format!(
                "{} is not mounted: mount its file system, or name the disk or partition that is",
                node.display()
            ))
        })?;
        Self::of_mount(mount, &mounts)
    }

    fn of_mount(mount: &Mount, mounts: &[Mount]) -> Result<Self, Error> {
        let kinds = FileSystem::ALL.into_iter();
        let file_system = kinds.clone().find(|kind| kind.name() == mount.filesystem);
        let file_system =
            file_system.ok_or_else(|| unknown(&mount.point.display(), &mount.filesystem))?;
        let device = match file_system {
            // The device numbers of its directories belong to no device.
            FileSystem::Btrfs => BlockDevice::from_node(&mount.source)?,
            _ => BlockDevice::from_kernel_number(kernel_number(mount))?,
        };
        let whole = |other: &&Mount| other.device == mount.device && other.root == Path::new("/");
        let root = mounts.iter().filter(whole).find(|other| {
            // Not hidden by another mount.
            let number = fs::metadata(&other.point).map(|meta| meta.st_dev());
            let here = fs::metadata(&mount.point).map(|meta| meta.st_dev());
            number.ok() == here.ok()
        });
        Ok(Self {
            device,
            file_system,
            root: root.unwrap_or(mount).point.clone(),
        })
    }
}

fn unknown(what: &dyn fmt::Display, kind: &str) -> Error {
    Error::Unavailable(format!(
        "{what} is on {kind}: only ext4, XFS and Btrfs can be traced; name a directory on one of those \
         with --dir, or take a scratch file system with --scratch ext4"
    ))
}

/// The device's number as the kernel holds it in memory.
fn kernel_number(mount: &Mount) -> u32 {
    let (major, minor) = mount.device;
    major << 20 | minor
}

fn mounts() -> Result<Vec<Mount>, Error> {
    let path = Path::new(mounts::OF_THIS_PROCESS);
    mounts::read(path).map_err(Error::io("read", path))
}
