//! Finds out whether a power cut leaves all or nothing of a write of 4 KiB. [`Facts`] are the
//! kernel's about a file and its device, and [`Facts::judge`] decides.
//!
//! Two answers are a promise. `statx` gives the units of atomic writes (`STATX_WRITE_ATOMIC`, Linux
//! 6.11), which hold for direct writes with `RWF_ATOMIC`. And a disk writes each of its logical
//! blocks whole, so pages are whole where blocks have 4 KiB. A loop device, RAID or a virtual disk
//! may show other blocks than the disk below. All of these, and all that is unknown, promise
//! nothing.

use std::path::Path;

use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::ReadWriteFlags;

use crate::types::PAGE_SIZE;

/// `STATX_WRITE_ATOMIC` of linux/stat.h.
const STATX_WRITE_ATOMIC: u32 = 0x0001_0000;
/// `RWF_ATOMIC` of linux/fs.h.
const RWF_ATOMIC: u32 = 0x40;
/// The names of disks that do not stand on other devices: SCSI with SATA, and NVMe.
const DISKS: [&str; 2] = ["sd", "nvme"];
/// Words in the vendor or model of the disks of virtual machines.
const VIRTUAL: [&str; 6] = ["qemu", "vbox", "vmware", "virtual", "msft", "virtio"];

/// A promise about writes, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtomicWrites {
    /// Bytes of an aligned write that a power cut leaves all or nothing.
    pub bytes: u32,
    /// The reason, for people.
    pub reason: String,
}

/// How the caller writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// With direct I/O, and `RWF_ATOMIC` where [`Facts::needs_flag`] says so.
    Direct,
    /// Through the page cache, or in ways that the engine does not know.
    Buffered,
}

/// The kernel's facts about a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The least and the most bytes of an atomic write; 0 if there are none.
    pub units: (u32, u32),
    /// The whole device below; `None` where sysfs shows none.
    pub device: Option<Device>,
}

/// A block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// `sda`, `nvme0n1`, `dm-1`. Without the name of a disk, it may be that of a part.
    pub name: String,
    /// Bytes of its logical block; 0 if it does not have the name of a disk.
    pub block: u32,
    /// Vendor and model; empty if it does not have the name of a disk, or blocks below 4 KiB.
    pub model: String,
    /// Whether it is connected by USB. The adapter may show blocks of its own.
    pub usb: bool,
}

impl Device {
    /// True if its blocks are those of a disk.
    fn is_disk(&self) -> bool {
        let model = self.model.to_lowercase();
        !self.usb && has_disk_name(&self.name) && !VIRTUAL.iter().any(|word| model.contains(word))
    }
}

impl Facts {
    /// Asks about a file. Facts that the kernel does not give are unknown.
    pub fn of(path: &Path) -> Facts {
        Facts::with_devices(path, Path::new("/sys/dev/block"))
    }

    /// The same, with the directory of block devices.
    fn with_devices(path: &Path, devices: &Path) -> Facts {
        let flags = StatxFlags::BASIC_STATS | StatxFlags::from_bits_retain(STATX_WRITE_ATOMIC);
        let Ok(stat) = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), flags) else {
            return Facts::default();
        };
        let units = match stat.stx_mask & STATX_WRITE_ATOMIC {
            0 => (0, 0),
            _ => (
                stat.stx_atomic_write_unit_min,
                stat.stx_atomic_write_unit_max,
            ),
        };
        let number = format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor);
        Facts {
            units,
            device: Device::at(&devices.join(number)),
        }
    }

    /// True if direct writes of a page are atomic with `RWF_ATOMIC`.
    pub fn needs_flag(&self) -> bool {
        let (least, most) = self.units;
        least > 0 && least as usize <= PAGE_SIZE && PAGE_SIZE <= most as usize
    }

    /// The answer.
    pub fn judge(&self, writes: Writes) -> AtomicWrites {
        let page = PAGE_SIZE as u32;
        let (least, most) = self.units;
        if writes == Writes::Direct && self.needs_flag() {
            let reason =
                format!("trust: the file system writes {least} to {most} bytes atomically");
            return AtomicWrites {
                bytes: page,
                reason,
            };
        }
        let Some(device) = &self.device else {
            return AtomicWrites::none("double: the kernel shows no device under the file");
        };
        let Device { name, block, .. } = device;
        if !device.is_disk() {
            let reason = format!("double: the blocks of {name} may not be those of a disk");
            return AtomicWrites::none(&reason);
        }
        if *block < page {
            let reason = format!("double: {name} writes {block} bytes whole, and no more");
            return AtomicWrites::none(&reason);
        }
        AtomicWrites {
            bytes: page,
            reason: format!("trust: {name} writes blocks of {block} bytes whole"),
        }
    }
}

impl AtomicWrites {
    /// No promise beyond a sector.
    pub fn none(reason: &str) -> AtomicWrites {
        AtomicWrites {
            bytes: 512,
            reason: reason.to_owned(),
        }
    }
}

fn has_disk_name(name: &str) -> bool {
    DISKS.iter().any(|disk| name.starts_with(disk))
}

impl Device {
    /// The whole device of this directory of sysfs: a partition has no queue of its own. Every open
    /// of a database asks this, so it takes few system calls, and no more than the answer needs.
    fn at(link: &Path) -> Option<Device> {
        let target = std::fs::read_link(link).ok()?;
        let shown = target.file_name()?.to_string_lossy();
        if !has_disk_name(&shown) {
            return Some(Device {
                name: shown.into_owned(),
                ..Device::default()
            });
        }
        let (directory, whole) = match link.join("partition").exists() {
            true => (link.join(".."), target.parent()?),
            false => (link.to_owned(), target.as_path()),
        };
        let text = |name: &str| std::fs::read_to_string(directory.join(name)).ok();
        let name = whole.file_name()?.to_string_lossy().into_owned();
        let block = text("queue/logical_block_size")?.trim().parse().ok()?;
        let names: &[&str] = match block < PAGE_SIZE as u32 {
            true => &[],
            false => &["device/vendor", "device/model"],
        };
        Some(Device {
            name,
            block,
            model: names.iter().filter_map(|name| text(name)).collect(),
            usb: whole.to_string_lossy().contains("/usb"),
        })
    }
}

/// The flag of an atomic write.
pub(super) fn flag() -> ReadWriteFlags {
    ReadWriteFlags::from_bits_retain(RWF_ATOMIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(units: (u32, u32), name: &str, block: u32) -> Facts {
        let device = Device {
            name: name.to_owned(),
            block,
            ..Device::default()
        };
        Facts {
            units,
            device: Some(device),
        }
    }

    fn bytes(facts: &Facts, writes: Writes) -> u32 {
        let answer = facts.judge(writes);
        let word = if answer.bytes == 4096 {
            "trust: "
        } else {
            "double: "
        };
        assert!(answer.reason.starts_with(word), "{answer:?}");
        answer.bytes
    }

    #[test]
    fn the_units_of_statx_count_for_direct_writes_that_they_cover() {
        for (units, expected) in [
            ((0, 0), 512),
            ((512, 2048), 512),
            ((512, 4096), 4096),
            ((4096, 4096), 4096),
            ((512, 65536), 4096),
            ((8192, 65536), 512),
            ((0, 4096), 512),
        ] {
            let facts = facts(units, "dm-0", 512);
            assert_eq!(bytes(&facts, Writes::Direct), expected, "{units:?}");
            assert_eq!(facts.needs_flag(), expected == 4096);
            assert_eq!(bytes(&facts, Writes::Buffered), 512, "{units:?}");
        }
    }

    #[test]
    fn blocks_of_a_page_count_on_a_disk_alone() {
        for (name, block, expected) in [
            ("nvme0n1", 4096, 4096),
            ("sda", 4096, 4096),
            ("sdb", 16384, 4096),
            ("sda", 512, 512),
            ("nvme0n1", 512, 512),
            ("loop0", 4096, 512),
            ("dm-0", 4096, 512),
            ("md127", 4096, 512),
            ("vda", 4096, 512),
            ("zram0", 4096, 512),
            ("nbd0", 4096, 512),
        ] {
            let facts = facts((0, 0), name, block);
            for writes in [Writes::Direct, Writes::Buffered] {
                assert_eq!(bytes(&facts, writes), expected, "{name} {block}");
            }
            assert!(facts.judge(Writes::Direct).reason.contains(name));
        }
        assert_eq!(bytes(&Facts::default(), Writes::Direct), 512);
        let mut virtual_disk = facts((0, 0), "sda", 4096);
        let device = virtual_disk.device.as_mut().unwrap();
        device.model = "QEMU    HARDDISK\n".to_owned();
        assert_eq!(bytes(&virtual_disk, Writes::Direct), 512);
        let mut adapter = facts((0, 0), "sda", 4096);
        adapter.device.as_mut().unwrap().usb = true;
        assert_eq!(bytes(&adapter, Writes::Direct), 512);
    }

    #[test]
    fn sysfs_shows_the_whole_device_of_a_partition() {
        let sys = tempfile::tempdir().unwrap();
        let whole = sys.path().join("devices/nvme0n1");
        std::fs::create_dir_all(whole.join("queue")).unwrap();
        std::fs::create_dir_all(whole.join("nvme0n1p2")).unwrap();
        std::fs::write(whole.join("queue/logical_block_size"), "4096\n").unwrap();
        std::fs::write(whole.join("nvme0n1p2/partition"), "2\n").unwrap();
        std::fs::create_dir_all(whole.join("device")).unwrap();
        std::fs::write(whole.join("device/model"), "Disk\n").unwrap();
        let found = Some(Device {
            name: "nvme0n1".to_owned(),
            block: 4096,
            model: "Disk\n".to_owned(),
            usb: false,
        });
        for (number, target) in [("259:0", whole.clone()), ("259:2", whole.join("nvme0n1p2"))] {
            let link = sys.path().join(number);
            std::os::unix::fs::symlink(target, &link).unwrap();
            assert_eq!(Device::at(&link), found);
        }
        assert_eq!(Device::at(&sys.path().join("0:42")), None);
        // A file, of whose device these directories say nothing.
        let file = sys.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(Facts::with_devices(&file, sys.path()).device, None);
    }

    #[test]
    fn what_this_machine_has_is_told_with_its_reason() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        std::fs::write(&file, [0; PAGE_SIZE]).unwrap();
        let facts = Facts::of(&file);
        println!("{facts:?}");
        for writes in [Writes::Direct, Writes::Buffered] {
            let answer = facts.judge(writes);
            println!("{writes:?}: {answer:?}");
            assert!(bytes(&facts, writes) <= 4096);
        }
        assert_eq!(Facts::of(&home.path().join("missing")), Facts::default());
    }
}
