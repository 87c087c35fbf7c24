//! `onewrite compare --scratch` that is stopped or killed at work leaves no mount, no loop device,
//! no tracing instance and no process behind. If it can clean up, it leaves no file.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{can_make, instances, until};
use onewrite_iotrace::scratch::FileSystem;
use rustix::process::{Pid, Signal, kill_process};

/// A comparison that takes many seconds, its scratch image in `dir`.
fn start(dir: &Path, more: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_onewrite"))
        .args([
            "compare",
            "--scratch",
            "ext4",
            "--modes",
            "delete",
            "--count",
            "6000",
        ])
        .arg("--scratch-dir")
        .arg(dir)
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command")
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// The database's directory, seen through the process's own mounts, once transactions are running.
fn running(child: &Child, dir: &Path) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{}/root", child.id()));
    until("database", || {
        let scratch = fs::read_dir(dir).ok()?.next()?.ok()?.path();
        let inside = root
            .join(scratch.strip_prefix("/").ok()?)
            .join("mnt/database");
        let length = inside.join("test.db").metadata().ok()?.len();
        // More than the table: transactions have been committed.
        (length >= 4 * 4096).then_some(inside)
    })
}

/// The loop devices whose image is in `dir`.
fn loops(dir: &Path) -> Vec<PathBuf> {
    let dir = dir.as_os_str().as_encoded_bytes();
    fs::read_dir("/sys/block")
        .expect("/sys/block")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|device| {
            fs::read(device.join("loop/backing_file")).is_ok_and(|file| file.starts_with(dir))
        })
        .collect()
}

/// Waits for its end by a signal: it reports that, and leaves neither a loop device nor a file in
/// `dir`.
fn stopped(child: Child, dir: &Path) -> Output {
    let output = child.wait_with_output().expect("its end");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert_eq!(loops(dir), Vec::<PathBuf>::new());
    assert_eq!(fs::read_dir(dir).expect("the directory").count(), 0);
    output
}

fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_ascii_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

#[test]
fn a_signal_leaves_nothing_behind() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let dir = tempfile::tempdir().expect("a directory");
        let child = start(dir.path(), &[]);
        running(&child, dir.path());
        assert_eq!(loops(dir.path()).len(), 1);
        let begin = Instant::now();
        kill_process(pid(&child), signal).expect("a signal");
        let number = child.id();
        let output = stopped(child, dir.path());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.ends_with("onewrite: stopped\n"), "{said}");
        assert!(output.stdout.is_empty());
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "{:?}",
            begin.elapsed()
        );
        assert_eq!(instances(number), 0);
    }
}

/// Whether a directory below has a rollback journal.
fn has_journal(dir: &Path) -> bool {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| {
        path.to_string_lossy().ends_with("-journal") || path.is_dir() && has_journal(&path)
    })
}

#[test]
fn what_was_measured_before_a_signal_is_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    // The first mode has no journal on disk, and waits for nothing.
    let modes = "memory:synchronous=off,delete";
    let child = Command::new(env!("CARGO_BIN_EXE_onewrite"))
        .args(["compare", "--json", "--count", "20000", "--modes", modes])
        .arg("--dir")
        .arg(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command");
    until("second mode", || has_journal(dir.path()).then_some(()));
    kill_process(pid(&child), Signal::INT).expect("a signal");
    let output = stopped(child, dir.path());
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("a report of what was complete");
    let runs = report["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 1, "{report:#}");
    assert_eq!(runs[0]["mode"], "memory:synchronous=off");
    let notes = report["notes"].to_string();
    assert!(notes.contains("stopped after one complete run"), "{notes}");
}

#[test]
fn a_signal_ends_the_worker_processes_too() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let child = start(dir.path(), &["--processes", "3"]);
    running(&child, dir.path());
    let workers = children(child.id());
    assert_eq!(workers.len(), 3, "{workers:?}");
    kill_process(pid(&child), Signal::TERM).expect("a signal");
    stopped(child, dir.path());
    for worker in workers {
        assert!(
            !Path::new("/proc").join(worker.to_string()).exists(),
            "{worker} lives on"
        );
    }
}

#[test]
fn a_signal_while_the_image_is_written_leaves_nothing_behind() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let child = start(dir.path(), &[]);
    until("image", || fs::read_dir(dir.path()).ok()?.next()?.ok());
    kill_process(pid(&child), Signal::INT).expect("a signal");
    stopped(child, dir.path());
}

#[test]
fn a_kill_leaves_neither_mount_nor_loop_device_nor_worker_nor_image() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut child = start(dir.path(), &["--processes", "2"]);
    let inside = running(&child, dir.path());
    let workers = children(child.id());
    assert_eq!(workers.len(), 2, "{workers:?}");
    kill_process(pid(&child), Signal::KILL).expect("a signal");
    child.wait().expect("its end");
    assert!(!inside.exists());
    until("end of the workers and of the loop device", || {
        let gone = |worker: &u32| {
            !Path::new("/proc")
                .join(worker.to_string())
                .join("fd/0")
                .exists()
        };
        (workers.iter().all(gone) && loops(dir.path()).is_empty()).then_some(())
    });
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    assert!(
        !mounts.contains(dir.path().to_str().expect("UTF-8")),
        "{mounts}"
    );
    // Only empty directories are left.
    let mut left = vec![dir.path().to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).expect("the directory") {
            let path = entry.expect("an entry").path();
            assert!(path.is_dir(), "{} is left", path.display());
            left.push(path);
        }
    }
}
