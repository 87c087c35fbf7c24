//! A small ext4 of its own for one test: an image file, mounted through a loop device.
//!
//! Unmounted, detached and deleted when it goes out of scope, also when the test fails.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A mounted ext4 image.
pub struct ScratchExt4 {
    mount_point: PathBuf,
    /// Holds image and mount point; dropped, and so deleted, after the unmounting.
    _directory: tempfile::TempDir,
}

impl ScratchExt4 {
    /// Makes and mounts one, with further arguments for mkfs.ext4 and further mount options
    /// (`""` for none). `None`, and a line that says so, without root.
    pub fn new(megabytes: u64, mkfs_args: &[&str], mount_options: &str) -> Option<Self> {
        Self::tuned(megabytes, mkfs_args, &[], mount_options)
    }

    /// The same, with a command that changes the image between making and mounting; the image's
    /// path is its last argument.
    pub fn tuned(
        megabytes: u64,
        mkfs_args: &[&str],
        tune: &[&str],
        mount_options: &str,
    ) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED on a scratch ext4: mounting a loop image needs root");
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
        run("mkfs.ext4", &[&["-q", "-F"], mkfs_args, &[image]].concat());
        if let Some((program, args)) = tune.split_first() {
            run(program, &[args, &[image]].concat());
        }
        let scratch = Self {
            mount_point,
            _directory: directory,
        };
        let options = if mount_options.is_empty() {
            "loop".to_owned()
        } else {
            format!("loop,{mount_options}")
        };
        run(
            "mount",
            &[
                "-t",
                "ext4",
                "-o",
                &options,
                image,
                scratch.mount_point_text(),
            ],
        );
        Some(scratch)
    }

    /// Where it is mounted.
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

impl Drop for ScratchExt4 {
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
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|e| panic!("cannot run {program}: {e}"));
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
