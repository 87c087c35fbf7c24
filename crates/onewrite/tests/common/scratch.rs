//! A small file system for one test: an image file, mounted through a loop device.
//!
//! Dropping it unmounts, detaches and deletes it, even if the test fails. If the test is killed,
//! the kernel does it. The mount lives in a mount namespace of the test's thread, which the threads
//! and processes that it starts share. The loop device detaches itself with the last mount, and the
//! image has no name. Only an empty directory is left.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// A mounted image.
pub struct Scratch {
    mount_point: PathBuf,
    /// Holds the mount point. It is dropped, and so deleted, after the unmounting.
    _directory: tempfile::TempDir,
}

impl Scratch {
    /// An ext4, with further arguments for mkfs.ext4 and further mount options (`""` for none).
    /// Without root it prints a line and returns `None`.
    pub fn ext4(megabytes: u64, mkfs_args: &[&str], mount_options: &str) -> Option<Self> {
        Self::tuned_ext4(megabytes, mkfs_args, &[], mount_options)
    }

    /// The same, with a command that changes the image between making and mounting it. The image's
    /// path is the command's last argument.
    pub fn tuned_ext4(
        megabytes: u64,
        mkfs_args: &[&str],
        tune: &[&str],
        mount_options: &str,
    ) -> Option<Self> {
        let mkfs = [&["mkfs.ext4", "-q", "-F"], mkfs_args].concat();
        Self::make(megabytes, &mkfs, tune, mount_options)
    }

    /// An XFS. Without root or xfsprogs it prints a line and returns `None`.
    #[allow(dead_code)] // as for remount
    pub fn xfs() -> Option<Self> {
        Self::make(320, &["mkfs.xfs", "-q"], &[], "")
    }

    /// A Btrfs. Without root or btrfs-progs it prints a line and returns `None`.
    #[allow(dead_code)] // as for remount
    pub fn btrfs() -> Option<Self> {
        Self::make(128, &["mkfs.btrfs", "-q"], &[], "")
    }

    /// An ext4 on a device that addresses 4,096 bytes at a time.
    #[allow(dead_code)] // as for remount
    pub fn ext4_on_large_sectors(megabytes: u64) -> Option<Self> {
        let mkfs = ["mkfs.ext4", "-q", "-F", "-b", "4096"];
        // The device detaches with the last mount. If this shell is killed, at most a device
        // without a name is left.
        let script = "device=$(losetup --find --show --sector-size 4096 \"$1\") || exit 1; \
                      mount \"$device\" \"$2\"; mounted=$?; losetup --detach \"$device\"; exit $mounted";
        Self::make_and(megabytes, &mkfs, &[], |image, mount_point| {
            run("sh", &["-c", script, "sh", image, mount_point]);
        })
    }

    fn make(megabytes: u64, mkfs: &[&str], tune: &[&str], mount_options: &str) -> Option<Self> {
        let options = format!("loop,{mount_options}");
        let options = options.trim_end_matches(',');
        Self::make_and(megabytes, mkfs, tune, |image, mount_point| {
            run("mount", &["-o", options, image, mount_point]);
        })
    }

    fn make_and(
        megabytes: u64,
        mkfs: &[&str],
        tune: &[&str],
        mount: impl FnOnce(&str, &str),
    ) -> Option<Self> {
        let (mkfs, args) = mkfs.split_first().expect("a program");
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED with {mkfs}: mounting a loop image needs root");
            return None;
        }
        if Command::new(mkfs).arg("-V").output().is_err() {
            eprintln!("SKIPPED with {mkfs}: it is not installed");
            return None;
        }
        let directory = tempfile::Builder::new()
            .prefix("onewrite-scratch-")
            .tempdir()
            .expect("a temporary directory");
        let image = directory.path().join("image");
        let mount_point = directory.path().join("mnt");
        std::fs::create_dir(&mount_point).expect("a mount point");
        File::create(&image)
            .and_then(|file| file.set_len(megabytes << 20))
            .expect("an image file");
        let image = image.to_str().expect("a temporary path in UTF-8");
        run(mkfs, &[args, &[image]].concat());
        if let Some((program, args)) = tune.split_first() {
            run(program, &[args, &[image]].concat());
        }
        let scratch = Self {
            mount_point,
            _directory: directory,
        };
        onewrite_iotrace::scratch::private_mounts().expect("mounts of our own");
        // Another process binds the loop device and mounts it, even if this one is killed now.
        mount(image, scratch.mount_point_text());
        std::fs::remove_file(image).expect("the image's name");
        Some(scratch)
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.mount_point
    }

    /// Mounts it again with other options, for example `ro`.
    #[allow(dead_code)] // not every test that includes this module needs it
    pub fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        run("mount", &["-o", &options, self.mount_point_text()]);
    }

    fn mount_point_text(&self) -> &str {
        self.mount_point
            .to_str()
            .expect("a temporary path in UTF-8")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A descriptor that a failing test has not closed yet keeps it busy for a moment.
        for _ in 0..50 {
            let umount = Command::new("umount").arg(&self.mount_point).output();
            if umount.is_ok_and(|o| o.status.success() || is_unmounted(&o.stderr)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = Command::new("umount")
            .arg("-l")
            .arg(&self.mount_point)
            .output();
    }
}

fn is_unmounted(stderr: &[u8]) -> bool {
    String::from_utf8_lossy(stderr).contains("not mounted")
}

fn run(program: &str, args: &[&str]) {
    let once = || {
        let output = Command::new(program).args(args).output();
        output.unwrap_or_else(|e| panic!("cannot run {program}: {e}"))
    };
    let is_busy = |output: &Output| String::from_utf8_lossy(&output.stderr).contains("busy");
    let mut output = once();
    // A child that another test starts holds all descriptors of this process until it calls exec.
    for _ in 0..100 {
        if !is_busy(&output) {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
        output = once();
    }
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
