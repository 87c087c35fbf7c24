//! The device below a directory, its file system, and the mount point of the whole file system.

use std::fmt;
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

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
        let holding = mounts.iter().filter(|mount| path.starts_with(&mount.point));
        // Of equal ones the last hides the others.
        let holding = holding.max_by_key(|mount| mount.point.as_os_str().len());
        let mount = holding.ok_or_else(|| unknown(&path.display(), "no mount"))?;
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
            mount.device == number
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
        let file_system = kinds.clone().find(|kind| kind.name() == mount.kind);
        let file_system =
            file_system.ok_or_else(|| unknown(&mount.point.display(), &mount.kind))?;
        let device = match file_system {
            // The device numbers of its directories belong to no device.
            FileSystem::Btrfs => BlockDevice::from_node(&mount.source)?,
            _ => BlockDevice::from_kernel_number(mount.device)?,
        };
        let whole = |other: &&Mount| other.device == mount.device && other.inside == Path::new("/");
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

/// A line of the mount table.
#[derive(Debug)]
struct Mount {
    /// As the kernel holds it in memory.
    device: u32,
    /// The mounted directory of the file system.
    inside: PathBuf,
    point: PathBuf,
    kind: String,
    source: PathBuf,
}

fn mounts() -> Result<Vec<Mount>, Error> {
    let path = Path::new("/proc/self/mountinfo");
    let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
    Ok(text.lines().filter_map(parse_mount).collect())
}

fn parse_mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let before: Vec<&str> = before.split(' ').collect();
    let mut after = after.split(' ');
    let (major, minor) = before.get(2)?.split_once(':')?;
    Some(Mount {
        device: major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?,
        inside: PathBuf::from(unescape(before.get(3)?)),
        point: PathBuf::from(unescape(before.get(4)?)),
        kind: after.next()?.to_owned(),
        source: PathBuf::from(unescape(after.next()?)),
    })
}

/// The mount table writes some characters as a backslash and three octal digits.
fn unescape(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n")];
    let plain = escapes
        .into_iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    plain.replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_mount_table_is_read() {
        let line = "36 35 98:0 /sub /mnt/a\\040b rw shared:1 - ext3 /dev/root rw,errors=continue";
        let mount = parse_mount(line).unwrap();
        assert_eq!(mount.device, 98 << 20);
        assert_eq!(mount.inside, Path::new("/sub"));
        assert_eq!(mount.point, Path::new("/mnt/a b"));
        assert_eq!(
            (mount.kind.as_str(), mount.source),
            ("ext3", PathBuf::from("/dev/root"))
        );
        assert!(parse_mount("36 35 98 / / rw - ext4 /dev/a rw").is_none());
        assert!(parse_mount("").is_none());
    }
}
