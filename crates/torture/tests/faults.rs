//! Every system call fails, once and for good: the error is right, nothing is lost, and work
//! continues.

mod common;

use common::{expect_clean, number, skip};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// `onewrite detach` is a scenario, so the command must lie next to `onewrite-torture`.
fn build_command() {
    common::bring_up_to_date(&["--package", "onewrite-cli"]);
}

/// Runs one of every `every` faults of a mode, and all conditions.
fn expect_faults_handled(mode: &str, every: u32, least: u64) -> Option<Value> {
    if cfg!(not(target_arch = "x86_64")) {
        skip("faults are put in by a tracer for x86-64");
        return None;
    }
    build_command();
    let report = expect_clean(&format!("faults --mode {mode} --every {every} --json"));
    assert!(number(&report, "injections") >= least, "{report}");
    for (what, why) in report["skipped"].as_object().into_iter().flatten() {
        skip(&format!("{what}: {why}"));
    }
    Some(report)
}

#[test]
fn waldio_handles_every_fault() {
    let Some(report) = expect_faults_handled("waldio", 41, 100) else {
        return;
    };
    // The run saw the errors of a full disk, a failing device and a lack of descriptors.
    let text = report["rows"].to_string();
    for code in ["FULL", "IOERR", "CANTOPEN"] {
        assert!(text.contains(code), "no {code} in {report}");
    }
}

/// All faults while a database is opened. If the file cannot be read, nobody knows which engine it
/// belongs to.
#[cfg(feature = "lsmvbt")]
#[test]
fn lsmvbt_handles_every_fault() {
    expect_handled("--mode lsmvbt --scenario open-new", &["EIO", "done-EIO"]);
    expect_handled("--mode lsmvbt --scenario open", &["EIO", "EACCES"]);
    expect_clean("faults --mode lsmvbt --every 31 --json");
}

/// All faults of one scenario, or of one call or error in it.
fn expect_handled(arguments: &str, faults: &[&str]) {
    if cfg!(not(target_arch = "x86_64")) {
        skip("faults are put in by a tracer for x86-64");
        return;
    }
    let report = expect_clean(&format!("faults {arguments} --json"));
    let rows = report["rows"].to_string();
    for fault in faults {
        let was_put_in = ["once", "for good"]
            .iter()
            .any(|lasts| rows.contains(&format!("\"{fault} {lasts}\"")));
        assert!(was_put_in, "no {fault} in {rows}");
    }
}

#[test]
fn a_failed_preallocation_is_handled() {
    expect_handled(
        "--mode waldio --scenario open-new --call fallocate",
        &["EIO", "ENOSPC", "EDQUOT", "EROFS", "EINTR", "EOPNOTSUPP"],
    );
}

/// Writes and flushes that fail in every way while the log grows.
#[test]
fn every_fault_is_handled_while_the_log_grows() {
    expect_handled(
        "--mode waldio --scenario extend",
        &[
            "EIO", "ENOSPC", "EDQUOT", "EROFS", "EINTR", "short", "done-EIO",
        ],
    );
}

/// Also faults that only a failed flush can cause: commits at NORMAL before it.
#[test]
fn every_fault_is_handled_where_earlier_commits_wait_for_a_flush() {
    for mode in ["waldio", "direct"] {
        expect_handled(
            &format!("--mode {mode} --scenario normal-then-full"),
            &["EIO", "ENOSPC", "EDQUOT", "EINTR", "short", "done-EIO"],
        );
    }
}

#[test]
fn a_mapping_that_fails_is_handled() {
    for mode in ["waldio", "direct"] {
        expect_handled(
            &format!("--mode {mode} --scenario recover-and-close --call mmap"),
            &["ENOMEM", "EACCES"],
        );
    }
}

/// A guard that was cleared, or may have been, and a failing flush.
#[test]
fn every_failed_flush_of_a_switch_is_handled() {
    for scenario in ["switch-to-wal", "switch-to-delete"] {
        expect_handled(
            &format!("--mode waldio --scenario {scenario} --call fdatasync"),
            &["EIO", "ENOSPC", "EDQUOT", "EINTR"],
        );
    }
}

#[test]
fn direct_handles_every_fault() {
    expect_faults_handled("direct", 41, 100);
}

#[test]
fn stock_modes_pass_through_under_faults() {
    expect_faults_handled("wal", 97, 30);
    expect_faults_handled("delete", 97, 30);
}

/// The judge can find mistakes: it reports each simulated mistake of the engine.
#[test]
fn a_lie_about_a_fault_is_found() {
    if cfg!(not(target_arch = "x86_64")) {
        skip("faults are put in by a tracer for x86-64");
        return;
    }
    for lie in ["swallowed-error", "wrong-code", "hang", "silence"] {
        let arguments = format!(
            "faults --mode waldio --scenario commit --call statx --nth 1 --errno EIO --once --json \
             --lie {lie}"
        );
        common::expect_broken(
            &arguments,
            &[onewrite_torture::failure::Promise::FaultsAreHandled],
        );
    }
}

/// The directory where a process has mounted its own file system.
fn mount_point(process: u32) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string(format!("/proc/{process}/mountinfo")).ok()?;
    let mut points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    points
        .find(|point| point.contains("/onewrite-faults-"))
        .map(PathBuf::from)
}

fn stops_and_leaves_nothing(arguments: &[&str], signal: rustix::process::Signal) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_onewrite-torture"))
        .args(["faults", "--json"])
        .args(arguments)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the command");
    let begin = std::time::Instant::now();
    let works = |point: &PathBuf| {
        let root = format!("/proc/{}/root{}", child.id(), point.display());
        std::fs::read_dir(root).is_ok_and(|files| files.count() > 1)
    };
    let point = loop {
        if let Some(point) = mount_point(child.id()).filter(works) {
            break point;
        }
        assert!(begin.elapsed().as_secs() < 60, "it does not begin");
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    let directory = point.parent().expect("a directory of its own");
    assert!(directory.is_dir());
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(child.try_wait().expect("a child").map(|s| s.code()), None);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal)
        .expect("a signal");
    let output = child.wait_with_output().expect("its end");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.ends_with("stopped\n"), "{said}");
    assert!(!directory.exists(), "{} is left", directory.display());
}

#[test]
fn a_signal_leaves_nothing_behind() {
    use rustix::process::Signal;
    if cfg!(not(target_arch = "x86_64")) || !rustix::process::geteuid().is_root() {
        skip("a file system of its own takes root, and a tracer for x86-64");
        return;
    }
    for signal in [Signal::INT, Signal::TERM] {
        stops_and_leaves_nothing(&["--scenario", "open"], signal);
        stops_and_leaves_nothing(&["--condition", "no-memory"], signal);
    }
}
