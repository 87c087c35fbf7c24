//! Facts about a disk in sysfs that its queue does not report.
//!
//! `queue/write_cache` can be overwritten. The disk's own answer is in `cache_type` of SCSI and
//! virtio disks. A disk with FUA has a volatile cache: the kernel needs FUA for nothing else. A loop
//! device has the page cache. A device of LVM, LUKS or RAID has the faults of the disks below it.

use std::fs;
use std::path::{Path, PathBuf};

use super::hazards::Disk;

/// The unit of sizes in sysfs, whatever the disk's own sectors have.
const SECTOR_BYTES: u64 = 512;

/// The most layers of devices: LVM on LUKS on RAID, and some more.
const MOST_LAYERS: u32 = 8;

/// The facts about the disk of a device such as `sda1`.
pub fn of(device: &str) -> Disk {
    of_class(Path::new("/sys/class/block"), device)
}

/// Bytes of the whole disk that a device such as `sda1` is a part of.
pub(crate) fn size_of(device: &str) -> Option<u64> {
    size_in(Path::new("/sys/class/block"), device)
}

fn size_in(class: &Path, device: &str) -> Option<u64> {
    let size = fs::read_to_string(disk_of(&class.join(device))?.join("size")).ok()?;
    let sectors: u64 = size.trim().parse().ok()?;
    (sectors > 0).then_some(sectors * SECTOR_BYTES)
}

fn of_class(class: &Path, device: &str) -> Disk {
    disk_of(&class.join(device)).map_or_else(Disk::default, |disk| of_disk(&disk, MOST_LAYERS))
}

/// The facts about a disk, with those of the disks below it.
fn of_disk(disk: &Path, layers: u32) -> Disk {
    let is_usb = |part: &std::ffi::OsStr| part.to_string_lossy().starts_with("usb");
    let own = Disk {
        cache_is_denied: cache_is_denied(disk),
        is_usb: disk.iter().any(is_usb),
    };
    let below = match layers {
        0 => None,
        _ => fs::read_dir(disk.join("slaves")).ok(),
    };
    let below = below.into_iter().flatten().flatten();
    let below = below.filter_map(|link| disk_of(&link.path()));
    below.fold(own, |found, disk| {
        let of = of_disk(&disk, layers - 1);
        Disk {
            cache_is_denied: found.cache_is_denied || of.cache_is_denied,
            is_usb: found.is_usb || of.is_usb,
        }
    })
}

/// The directory of the whole disk.
fn disk_of(link: &Path) -> Option<PathBuf> {
    let directory = link.canonicalize().ok()?;
    match directory.join("partition").exists() {
        true => directory.parent().map(Path::to_owned),
        false => Some(directory),
    }
}

fn cache_is_denied(disk: &Path) -> bool {
    let text = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    if text(disk.join("queue/write_cache")).trim() != "write through" {
        return false;
    }
    let scsi = fs::read_dir(disk.join("device/scsi_disk"));
    let of_scsi = scsi.into_iter().flatten().flatten();
    let mut types = of_scsi.map(|entry| entry.path().join("cache_type"));
    let own = std::iter::once(disk.join("cache_type"));
    let has_cache = types
        .by_ref()
        .chain(own)
        .any(|path| text(path).trim().starts_with("write back"));
    has_cache || disk.join("loop").is_dir() || text(disk.join("queue/fua")).trim() == "1"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A class directory with a disk `sda` and its partition, as sysfs has them.
    fn planted(bus: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let disk = root.path().join("devices").join(bus).join("block/sda");
        fs::create_dir_all(disk.join("sda1")).unwrap();
        fs::write(disk.join("sda1/partition"), "1").unwrap();
        for (file, content) in files {
            let path = disk.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let class = root.path().join("class");
        fs::create_dir(&class).unwrap();
        for (name, target) in [("sda", disk.clone()), ("sda1", disk.join("sda1"))] {
            std::os::unix::fs::symlink(target, class.join(name)).unwrap();
        }
        root
    }

    fn of_planted(bus: &str, files: &[(&str, &str)]) -> Disk {
        let root = planted(bus, files);
        let class = root.path().join("class");
        let found = of_class(&class, "sda1");
        assert_eq!(found, of_class(&class, "sda"));
        found
    }

    #[test]
    fn a_cache_that_the_kernel_was_told_not_to_flush_is_found() {
        let through = ("queue/write_cache", "write through\n");
        let back = "write back\n";
        for (files, denied) in [
            (
                &[through, ("device/scsi_disk/0:0:0:0/cache_type", back)][..],
                true,
            ),
            (&[through, ("cache_type", back)], true),
            (&[through, ("queue/fua", "1\n")], true),
            (&[through, ("queue/fua", "0\n")], false),
            (&[through, ("loop/backing_file", "/image\n")], true),
            (&[through, ("cache_type", "write through\n")], false),
            (&[("queue/write_cache", back), ("cache_type", back)], false),
            (&[], false),
        ] {
            let found = of_planted("pci0/ata1", files);
            assert_eq!(found.cache_is_denied, denied, "{files:?}");
            assert!(!found.is_usb);
        }
    }

    #[test]
    fn a_partition_has_the_size_of_its_disk() {
        let files = [("size", "2048\n"), ("sda1/size", "1000\n")];
        let root = planted("pci0/ata1", &files);
        let class = root.path().join("class");
        for device in ["sda", "sda1"] {
            assert_eq!(size_in(&class, device), Some(1 << 20));
        }
        assert_eq!(size_in(&class, "sdb"), None);
        let empty = planted("pci0/ata1", &[("size", "0\n")]);
        assert_eq!(size_in(&empty.path().join("class"), "sda"), None);
    }

    #[test]
    fn a_disk_below_others_is_found() {
        let root = planted("pci0/usb2/2-1/host6", &[("cache_type", "write back\n")]);
        let class = root.path().join("class");
        let sda = class.join("sda").canonicalize().unwrap();
        fs::create_dir(sda.join("queue")).unwrap();
        fs::write(sda.join("queue/write_cache"), "write through\n").unwrap();
        // A volume on an encrypted partition of it.
        let mut below = class.join("sda1");
        for name in ["dm-0", "dm-1"] {
            let device = root.path().join("devices/virtual/block").join(name);
            fs::create_dir_all(device.join("slaves")).unwrap();
            std::os::unix::fs::symlink(&below, device.join("slaves/below")).unwrap();
            below = class.join(name);
            std::os::unix::fs::symlink(&device, &below).unwrap();
        }
        let found = of_class(&class, "dm-1");
        assert!(found.is_usb && found.cache_is_denied, "{found:?}");
        // A ring of devices ends.
        let slaves = class.join("sda").join("slaves");
        fs::create_dir(&slaves).unwrap();
        std::os::unix::fs::symlink(class.join("dm-1"), slaves.join("ring")).unwrap();
        assert!(of_class(&class, "dm-1").is_usb);
    }

    #[test]
    fn a_disk_behind_usb_is_found() {
        assert!(of_planted("pci0/usb2/2-1/host6", &[]).is_usb);
        assert_eq!(of_class(Path::new("/none"), "sda"), Disk::default());
    }
}
