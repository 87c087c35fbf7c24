//! `onewrite-lab powercut` as a user runs it: it loses nothing, and finds each planted defect.
//!
//! `ONEWRITE_POWERCUT_SEED` sets the seed; the runs print theirs.

mod common;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use common::can_run;

fn command(arguments: &str, directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onewrite-lab"));
    command
        .arg("powercut")
        .args(arguments.split_whitespace())
        .arg("--dir")
        .arg(directory);
    command
}

fn powercut(arguments: &str, directory: &Path) -> (Output, Value) {
    let mut command = command(arguments, directory);
    // A slow machine checks fewer images.
    command.args(["--json", "--time-limit", "60"]);
    if let Ok(seed) = std::env::var("ONEWRITE_POWERCUT_SEED") {
        command.args(["--seed", &seed]);
    }
    let output = command.output().expect("the command");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    eprintln!("powercut {arguments}: {said}");
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("powercut {arguments}: {error}: {output:?}"));
    (output, report)
}

/// Runs the command, which must find nothing.
fn sound(arguments: &str) -> Value {
    let directory = tempfile::tempdir().expect("a directory");
    let (output, report) = powercut(arguments, directory.path());
    assert!(output.status.success(), "{report:#}");
    assert!(report["images"].as_u64() >= Some(20), "{report:#}");
    assert!(
        report["images_with_losses"].as_u64() > Some(0),
        "{report:#}"
    );
    assert!(report["second_images"].as_u64() > Some(0), "{report:#}");
    let left = std::fs::read_dir(directory.path()).expect("a directory");
    assert_eq!(left.count(), 0, "something was left behind");
    report
}

/// Runs the command, which must find a failure and keep it so that the cut can be repeated.
fn caught(arguments: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let (output, report) = powercut(arguments, directory.path());
    assert_eq!(output.status.code(), Some(1), "{report:#}");
    let failure = &report["failure"];
    let kept = failure["kept"]["Ok"].as_str();
    let kept = kept.unwrap_or_else(|| panic!("nothing kept: {report:#}"));
    let again = command(&format!("--replay {kept}"), directory.path())
        .output()
        .expect("the command");
    assert_eq!(again.status.code(), Some(1), "{failure:#}: {again:?}");
    let said = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(said.starts_with("broken promise"), "{said}");
}

#[test]
fn ext4_loses_nothing_in_waldio() {
    if can_run() {
        let report = sound("--mode waldio --cuts 300");
        assert_eq!(report["commits_lost_as_allowed"], 0);
    }
}

#[test]
fn ext4_loses_nothing_in_direct() {
    if can_run() {
        sound("--mode direct --cuts 300");
    }
}

#[test]
fn ext4_loses_nothing_in_onewrite_and_swal() {
    if can_run() {
        sound("--mode onewrite --cuts 200");
        sound("--mode swal --cuts 100");
    }
}

#[test]
fn ext4_keeps_a_prefix_at_normal_and_does_lose_commits_there() {
    if can_run() {
        let report = sound("--mode waldio:synchronous=normal --cuts 300");
        assert!(
            report["commits_lost_as_allowed"].as_u64() > Some(0),
            "{report:#}"
        );
    }
}

#[test]
fn ext4_keeps_the_bound_of_group_synch() {
    if can_run() {
        sound("--mode waldio:group_synch=40/10 --cuts 300");
    }
}

/// Commits of many threads share their flushes, and a commit that a reader has seen is never lost.
#[test]
fn ext4_loses_nothing_of_groups_of_commits() {
    if can_run() {
        for mode in ["onewrite", "waldio:group_commit=on"] {
            sound(&format!("--mode {mode} --workload group --cuts 150"));
        }
        sound("--mode onewrite --fua --workload group --cuts 80");
    }
}

#[test]
fn a_reader_that_does_not_wait_for_a_group_is_caught() {
    if can_run() {
        caught("--mode onewrite:read_durable=off --workload group --cuts 4000");
    }
}

#[test]
fn a_device_with_fua_loses_nothing() {
    if can_run() {
        for mode in ["waldio", "direct", "onewrite"] {
            let report = sound(&format!("--mode {mode} --fua --cuts 100"));
            assert!(report["write_throughs"].as_u64() > Some(0), "{report:#}");
        }
        let report = sound("--mode onewrite --fua --cuts 80 --workload connections,group");
        assert!(report["write_throughs"].as_u64() > Some(0), "{report:#}");
    }
}

/// A write-through write to another file makes a commit durable on a device that flushes for it. On
/// a device with FUA it does not.
#[test]
fn what_trusts_a_write_through_write_for_earlier_ones_is_sound_without_fua_and_caught_with_it() {
    if can_run() {
        sound("--broken trusts-write-through --workload inserts --cuts 200");
        caught("--broken trusts-write-through --fua --workload inserts --cuts 2000");
    }
}

#[test]
fn other_file_systems_lose_nothing() {
    if can_run() {
        sound("--fs xfs --mode waldio --cuts 80 --workload multi,checkpoint");
        sound("--fs btrfs --mode waldio --cuts 80 --workload multi,checkpoint");
        sound("--fs ext4-data-journal --mode waldio --cuts 80 --workload multi,checkpoint");
    }
}

#[test]
fn writes_that_are_never_torn_or_come_in_order_are_other_images() {
    if can_run() {
        let torn = |arguments: &str| sound(arguments)["torn_writes"].as_u64();
        assert_eq!(torn("--tear in-order --cuts 80 --workload multi"), Some(0));
        assert!(torn("--tear 4k --cuts 80 --workload multi") > Some(0));
    }
}

#[test]
fn an_engine_that_never_flushes_is_caught() {
    if can_run() {
        caught("--broken no-flush --workload inserts --cuts 2000");
    }
}

#[test]
fn a_device_that_ignores_flushes_is_caught() {
    if can_run() {
        caught("--broken device-ignores-flushes --workload inserts --cuts 2000");
    }
}

#[test]
fn a_log_that_is_reused_before_its_checkpoint_is_durable_is_caught() {
    if can_run() {
        caught("--broken early-reuse --workload checkpoint --cuts 4000");
    }
}

#[test]
fn unwritten_extents_taken_for_initialized_are_caught_and_initialized_ones_are_sound() {
    if can_run() {
        caught("--broken unwritten-extents --workload inserts --cuts 2000");
        sound("--broken initialized-extents --workload inserts --cuts 200");
    }
}

/// The number of loop devices whose file lies below `directory`.
fn loops_below(directory: &Path) -> usize {
    let directory = directory.to_str().expect("UTF-8");
    let entries = std::fs::read_dir("/sys/block").expect("sysfs").flatten();
    entries
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("loop/backing_file")).ok())
        .filter(|backing| backing.starts_with(directory))
        .count()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn stopped_by(signal: rustix::process::Signal, directory: &Path) -> Output {
    let child = command("--cuts 100000 --jobs 2 --json", directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command");
    wait_until("no devices were made", || loops_below(directory) == 2);
    std::thread::sleep(Duration::from_millis(1500));
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, signal).expect("kill");
    let output = child.wait_with_output().expect("wait");
    wait_until("loop devices were left", || loops_below(directory) == 0);
    output
}

#[test]
fn a_run_that_is_stopped_leaves_nothing_behind() {
    if !can_run() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let output = stopped_by(rustix::process::Signal::INT, directory.path());
    assert_eq!(output.status.code(), Some(130));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report of what was done");
    assert_eq!(report["stopped_early"], true);
    let left = std::fs::read_dir(directory.path()).expect("a directory");
    assert_eq!(left.count(), 0);
    // Killed without a chance to clean up. The kernel removes mounts and devices.
    stopped_by(rustix::process::Signal::KILL, directory.path());
}

#[test]
fn modes_that_promise_nothing_are_refused_with_the_reason() {
    if !can_run() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    for (mode, reason, code) in [
        ("off", "promises nothing", 1),
        ("delete", "synchronous=extra", 1),
        ("waldoi", "no mode is called", 2),
    ] {
        let output = command(&format!("--mode {mode}"), directory.path())
            .output()
            .expect("the command");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code));
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn what_is_missing_is_named() {
    if !can_run() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let none = directory.path().join("none");
    let output = command("", &none).output().expect("the command");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no such directory"), "{said}");
    assert!(said.contains("--dir"), "{said}");
}
