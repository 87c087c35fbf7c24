//! Killed tests must leave no loop device behind.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::scratch::Scratch;

/// Set where this test is the one to kill.
const VICTIM: &str = "ONEWRITE_TEST_VICTIM";

/// Longer than any step takes here.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether a loop device is bound to a file below `directory`, whose name may be gone.
fn is_bound(directory: &Path) -> bool {
    let directory = directory.as_os_str().as_encoded_bytes();
    let devices = fs::read_dir("/sys/block").expect("/sys/block");
    devices.flatten().any(|device| {
        fs::read(device.path().join("loop/backing_file")).is_ok_and(|f| f.starts_with(directory))
    })
}

#[test]
fn a_kill_leaves_neither_mount_nor_loop_device_nor_image() {
    if std::env::var_os(VICTIM).is_some() {
        let _held = Scratch::ext4(16, &[], "");
        println!("\nmade");
        thread::sleep(PATIENCE);
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: mounting a loop image needs root");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mut victim = Command::new(std::env::current_exe().expect("this test"))
        .args([
            "--exact",
            "--nocapture",
            "killed::a_kill_leaves_neither_mount_nor_loop_device_nor_image",
        ])
        .env(VICTIM, "1")
        .env("TMPDIR", directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test again");
    let said = BufReader::new(victim.stdout.take().expect("its output"));
    let made = said
        .lines()
        .map_while(Result::ok)
        .any(|line| line == "made");
    let was_bound = is_bound(directory.path());
    victim.kill().expect("a signal");
    victim.wait().expect("its end");
    assert!(made && was_bound, "there was nothing to leave behind");

    let begun = Instant::now();
    while is_bound(directory.path()) {
        assert!(begun.elapsed() < PATIENCE, "the loop device stays bound");
        thread::sleep(Duration::from_millis(5));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let place = directory.path().to_str().expect("UTF-8");
    assert!(!mounts.contains(place), "{mounts}");
    for entry in fs::read_dir(directory.path()).expect("the directory") {
        let scratch = entry.expect("an entry").path();
        let left: Vec<_> = fs::read_dir(&scratch)
            .expect("a directory")
            .flatten()
            .collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert!(left[0].path().ends_with("mnt"), "{left:?}");
    }
}
