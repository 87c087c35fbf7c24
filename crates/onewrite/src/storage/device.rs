//! The abilities of the block device under a file: the queue attributes of sysfs
//! (Documentation/ABI/stable/sysfs-block of the kernel).
//!
//! Called by the capability probe. sysfs does not show network devices, FUSE, tmpfs, or any device
//! in a container without `/sys`. Such a device is unknown, and never assumed to be good.

use std::path::{Path, PathBuf};

/// Whether a completed write may still be in a volatile cache of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteCache {
    /// It may be: durability needs a flush or FUA.
    WriteBack,
    /// The device reports no volatile cache: every completed write is durable.
    WriteThrough,
    /// sysfs does not report it.
    Unknown,
}

/// The queue attributes of one block device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct BlockDevice {
    /// `loop0`, `nvme0n1p2`, `dm-1`.
    pub name: String,
    /// `None` if sysfs does not report it.
    pub fua: Option<bool>,
    pub write_cache: WriteCache,
    /// Largest write-zeroes command that unmaps, in bytes; 0 without the command, `None` before
    /// Linux 6.17.
    pub write_zeroes_unmap_bytes: Option<u64>,
    /// Largest write that is never torn; `None` without such a promise.
    pub atomic_write_bytes: Option<u32>,
    pub logical_block_bytes: u32,
    pub physical_block_bytes: u32,
    /// For a loop device, the file behind it.
    pub backing_file: Option<PathBuf>,
}

impl BlockDevice {
    /// The device with this number, if it is a block device that sysfs shows.
    pub(super) fn by_number(major: u32, minor: u32) -> Option<Self> {
        Self::at(Path::new(&format!("/sys/dev/block/{major}:{minor}")))
    }

    fn at(link: &Path) -> Option<Self> {
        let directory = link.canonicalize().ok()?;
        let name = directory.file_name()?.to_string_lossy().into_owned();
        let whole = whole_device(directory)?;
        let queue = whole.join("queue");
        Some(Self {
            name,
            fua: number(&queue, "fua").map(|fua| fua == 1),
            write_cache: match text(&queue, "write_cache").as_deref() {
                Some("write back") => WriteCache::WriteBack,
                Some("write through") => WriteCache::WriteThrough,
                _ => WriteCache::Unknown,
            },
            write_zeroes_unmap_bytes: number(&queue, "write_zeroes_unmap_max_bytes"),
            atomic_write_bytes: small(&queue, "atomic_write_unit_max_bytes").filter(|&n| n > 0),
            logical_block_bytes: small(&queue, "logical_block_size")?,
            physical_block_bytes: small(&queue, "physical_block_size")?,
            backing_file: text(&whole, "loop/backing_file").map(PathBuf::from),
        })
    }
}

/// Identifies a device, also on another machine: its name, its size and its own identifiers.
pub(super) fn identity(name: &str) -> String {
    let Ok(directory) = Path::new("/sys/class/block").join(name).canonicalize() else {
        return name.to_owned();
    };
    let of_itself = [
        "size",
        "wwid",
        "serial",
        "device/wwid",
        "device/serial",
        "device/model",
        "device/cid",
        "dm/uuid",
        "loop/backing_file",
    ];
    let whole = whole_device(directory.clone());
    let texts = of_itself.map(|file| {
        text(&directory, file)
            .or_else(|| text(whole.as_deref()?, file))
            .unwrap_or_default()
    });
    format!("{name} {}", texts.join(" "))
}

/// A partition has no queue; its parent directory is the whole device.
fn whole_device(directory: PathBuf) -> Option<PathBuf> {
    match directory.join("partition").exists() {
        true => directory.parent().map(Path::to_owned),
        false => Some(directory),
    }
}

/// Whether this device is the only one of its Btrfs file system. `false` if sysfs does not report
/// it.
pub(super) fn is_alone_in_btrfs(name: &str) -> bool {
    let Ok(mounted) = std::fs::read_dir("/sys/fs/btrfs") else {
        return false;
    };
    let devices = mounted
        .flatten()
        .map(|entry| entry.path().join("devices"))
        .find(|devices| devices.join(name).exists());
    let count = devices.and_then(|devices| Some(std::fs::read_dir(devices).ok()?.count()));
    count == Some(1)
}

fn text(directory: &Path, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(directory.join(name)).ok()?;
    Some(text.trim_end().to_owned())
}

fn number(directory: &Path, name: &str) -> Option<u64> {
    text(directory, name)?.parse().ok()
}

fn small(directory: &Path, name: &str) -> Option<u32> {
    number(directory, name)?.try_into().ok()
}
