//! Device mapper's devices (LVM, dm-crypt): the names that their makers gave them, and what lies below.
//!
//! sysfs has them: `dm/name`, `dm/uuid`, which begins with the maker, and `slaves`, the devices below
//! (kernel document `ABI/testing/sysfs-block-dm`).

use std::fs;
use std::path::Path;

/// Devices below one another that are followed at most.
const MOST_LAYERS: u32 = 8;

/// How the makers begin their devices' uuids, and what the devices are called.
const MAKERS: [(&str, &str); 4] = [
    ("CRYPT-", "dm-crypt"),
    ("LVM-", "LVM"),
    ("mpath-", "multipath"),
    ("part", "a partition"),
];

/// A device with what is known of it, for example `dm-1 (vg-root, LVM) on dm-0 (luks, dm-crypt) on
/// sda2`. Of a device that is none of device mapper's, its name. `sysfs` is its directory there.
pub(crate) fn described(sysfs: &Path, device: &str) -> String {
    described_within(sysfs, device, MOST_LAYERS)
}

fn described_within(sysfs: &Path, device: &str, layers: u32) -> String {
    let read = |file: &str| fs::read_to_string(sysfs.join("dm").join(file));
    let Ok(name) = read("name") else {
        return device.to_owned();
    };
    let uuid = read("uuid").unwrap_or_default();
    let maker = MAKERS.iter().find(|(begin, _)| uuid.starts_with(begin));
    let kind = maker.map_or("device mapper", |(_, kind)| kind);
    let below = match layers {
        0 => Vec::new(),
        _ => below(&sysfs.join("slaves"), layers - 1),
    };
    let on = if below.is_empty() { "" } else { " on " };
    format!(
        "{device} ({}, {kind}){on}{}",
        name.trim(),
        below.join(" and ")
    )
}

fn below(slaves: &Path, layers: u32) -> Vec<String> {
    let entries = fs::read_dir(slaves).into_iter().flatten().flatten();
    let mut described: Vec<_> = entries
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            described_within(&entry.path(), &name, layers)
        })
        .collect();
    described.sort();
    described
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device of device mapper on others, as sysfs has it.
    fn planted(root: &Path, device: &str, (name, uuid): (&str, &str), below: &[&str]) {
        let of = root.join(device);
        fs::create_dir_all(of.join("dm")).unwrap();
        fs::create_dir_all(of.join("slaves")).unwrap();
        fs::write(of.join("dm/name"), format!("{name}\n")).unwrap();
        fs::write(of.join("dm/uuid"), format!("{uuid}\n")).unwrap();
        for other in below {
            fs::create_dir_all(root.join(other)).unwrap();
            std::os::unix::fs::symlink(root.join(other), of.join("slaves").join(other)).unwrap();
        }
    }

    #[test]
    fn a_volume_on_an_encrypted_partition_has_all_their_names() {
        let sysfs = tempfile::tempdir().unwrap();
        let root = sysfs.path();
        planted(root, "dm-0", ("luks", "CRYPT-LUKS2-5a-luks"), &["sda2"]);
        planted(root, "dm-1", ("vg-root", "LVM-9fT"), &["dm-0"]);
        planted(root, "dm-2", ("pair", "other"), &["sdb", "sdc"]);
        let described = |device: &str| described(&root.join(device), device);
        assert_eq!(described("sda2"), "sda2");
        assert_eq!(described("dm-0"), "dm-0 (luks, dm-crypt) on sda2");
        assert_eq!(
            described("dm-1"),
            "dm-1 (vg-root, LVM) on dm-0 (luks, dm-crypt) on sda2"
        );
        assert_eq!(
            described("dm-2"),
            "dm-2 (pair, device mapper) on sdb and sdc"
        );
        assert_eq!(described("none"), "none");
    }

    #[test]
    fn a_ring_of_devices_ends() {
        let sysfs = tempfile::tempdir().unwrap();
        let root = sysfs.path();
        planted(root, "dm-0", ("a", ""), &["dm-1"]);
        planted(root, "dm-1", ("b", ""), &["dm-0"]);
        let told = described(&root.join("dm-0"), "dm-0");
        assert_eq!(told.matches(" on ").count(), MOST_LAYERS as usize);
    }
}
