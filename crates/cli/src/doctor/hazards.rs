//! Settings of a file system or a device that lose commits, each with the line that improves it.
//!
//! The one list of them: `doctor` warns with it, and `scan` looks for it at every database. Pure; the
//! facts about a device are in [`Disk`].

use onewrite::storage::{IN_MEMORY, NO_BARRIERS, VOLATILE};
use serde::Serialize;

/// File systems that several machines can mount at once.
pub const NETWORK: &[&str] = &[
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "ceph",
    "gfs2",
    "ocfs2",
    "lustre",
    "virtiofs",
    "fuse.ceph-fuse",
    "fuse.sshfs",
    "fuse.glusterfs",
    "fuse.rclone",
    "fuse.s3fs",
];

/// Why a file system without flushes loses commits.
pub const WITHOUT_FLUSHES: &str =
    "A power cut can lose commits and corrupt the file system in every mode";

/// A setting that loses commits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Hazard {
    /// Its name in JSON.
    pub key: &'static str,
    /// The danger.
    pub what: String,
    /// The line that improves it.
    pub fix: String,
}

/// The facts about a disk that its queue does not report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// The kernel treats the disk as one without a volatile cache, although the disk reports one.
    pub cache_is_denied: bool,
    /// It is connected by USB.
    pub is_usb: bool,
}

/// A place to look at.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The type of the file system.
    pub file_system: &'a str,
    /// Its mount point.
    pub mount_point: &'a str,
    /// Its options.
    pub options: &'a [String],
    /// The name of the device, and its facts.
    pub disk: Option<(&'a str, Disk)>,
}

/// The hazards of a place.
pub fn of(place: &Place<'_>) -> Vec<Hazard> {
    let mut found: Vec<Hazard> = of_options(place);
    found.extend(of_kind(place.file_system));
    if let Some((name, disk)) = place.disk {
        found.extend(of_disk(name, disk));
    }
    found
}

fn of_options(place: &Place<'_>) -> Vec<Hazard> {
    let point = place.mount_point;
    let has = |wanted: &&&str| place.options.iter().any(|option| option == *wanted);
    let mut found = Vec::new();
    if let Some(option) = NO_BARRIERS.iter().find(has) {
        found.push(Hazard {
            key: "no_barriers",
            what: format!(
                "{point} is mounted with {option}: the device is never flushed. {WITHOUT_FLUSHES}"
            ),
            fix: format!(
                "remove {option} from /etc/fstab, then: mount -o remount,barrier=1 {point}"
            ),
        });
    }
    if has(&&"data=writeback") {
        found.push(Hazard {
            key: "data_writeback",
            what: format!(
                "{point} is mounted with data=writeback: after a power cut a file that grew can hold \
                 old bytes of other files"
            ),
            fix: format!(
                "data=ordered in /etc/fstab (or tune2fs -o ^journal_data_writeback DEVICE), then \
                 unmount and mount {point}"
            ),
        });
    }
    if let Some(option) = VOLATILE.iter().find(has)
        && place.file_system == "overlay"
    {
        found.push(Hazard {
            key: "overlay_volatile",
            what: format!("{point} is an overlay mounted with {option}: no flush reaches the disk"),
            fix: "mount it without volatile, or put the database on a volume".to_owned(),
        });
    }
    found
}

fn of_kind(kind: &str) -> Option<Hazard> {
    let hazard = |key, what: String, fix: &str| Hazard {
        key,
        what,
        fix: fix.to_owned(),
    };
    if IN_MEMORY.contains(&kind) {
        return Some(hazard(
            "memory",
            format!("{kind} keeps files in memory: nothing survives a power cut or a reboot"),
            "move the database to a directory on a disk",
        ));
    }
    if NETWORK.contains(&kind) {
        return Some(hazard(
            "network",
            format!(
                "{kind}: locks and flushes are those of a server, and WAL does not work from several \
                 machines"
            ),
            "move the database to a local disk, or use journal_mode=delete from one machine alone",
        ));
    }
    if kind == "overlay" {
        return Some(hazard(
            "overlay",
            "overlay copies a file of a lower layer at the first write: programs that have it open \
             stay on the old copy, and a container's layer goes with the container"
                .to_owned(),
            "put the database on a volume (docker run -v DIR:DIR)",
        ));
    }
    if kind == "fuse" || kind == "fuseblk" || kind.starts_with("fuse.") {
        return Some(hazard(
            "fuse",
            format!("{kind}: whether a flush reaches a disk is up to another program"),
            "move the database to ext4 or XFS on a disk",
        ));
    }
    None
}

fn of_disk(name: &str, disk: Disk) -> Vec<Hazard> {
    let mut found = Vec::new();
    if disk.cache_is_denied {
        found.push(Hazard {
            key: "write_cache_denied",
            what: format!(
                "{name} has a volatile cache, but the kernel was told that it has none: it is never \
                 flushed. {WITHOUT_FLUSHES}"
            ),
            fix: format!("echo 'write back' > /sys/block/{name}/queue/write_cache"),
        });
    }
    if disk.is_usb {
        found.push(Hazard {
            key: "usb",
            what: format!(
                "{name} is connected by USB: some bridges confirm a flush before it is done, and a \
                 cable can come loose"
            ),
            fix: "connect the disk by SATA or NVMe, and keep copies: onewrite backup".to_owned(),
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(kind: &str, options: &[&str], disk: Disk) -> Vec<&'static str> {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let place = Place {
            file_system: kind,
            mount_point: "/data",
            options: &options,
            disk: Some(("sda", disk)),
        };
        of(&place).iter().map(|hazard| hazard.key).collect()
    }

    #[test]
    fn each_setting_that_loses_commits_is_found_and_no_other() {
        let good = Disk::default();
        let denied = Disk {
            cache_is_denied: true,
            ..good
        };
        let usb = Disk {
            is_usb: true,
            ..good
        };
        for (kind, options, disk, expected) in [
            ("ext4", &["rw", "relatime"][..], good, &[][..]),
            ("xfs", &["rw"], good, &[]),
            ("ext4", &["data=ordered", "barrier=1"], good, &[]),
            ("ext4", &["nobarrier"], good, &["no_barriers"]),
            ("f2fs", &["fsync_mode=nobarrier"], good, &["no_barriers"]),
            ("ext4", &["data=writeback"], good, &["data_writeback"]),
            ("tmpfs", &[], good, &["memory"]),
            (
                "overlay",
                &["volatile"],
                good,
                &["overlay_volatile", "overlay"],
            ),
            (
                "overlay",
                &["fsync=volatile"],
                good,
                &["overlay_volatile", "overlay"],
            ),
            ("9p", &[], good, &["network"]),
            ("nfs4", &[], good, &["network"]),
            ("cifs", &[], good, &["network"]),
            ("fuse.sshfs", &[], good, &["network"]),
            ("virtiofs", &[], good, &["network"]),
            ("fuse.bindfs", &[], good, &["fuse"]),
            ("ext4", &[], denied, &["write_cache_denied"]),
            ("ext4", &[], usb, &["usb"]),
        ] {
            assert_eq!(keys(kind, options, disk), expected, "{kind} {options:?}");
        }
    }
}
