//! Every system call fails, once and for good: the right error, nothing lost, and work goes on.

mod common;

use common::{expect_clean, number, skip};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// `onewrite detach` is a scenario: the command must stand beside `onewrite-torture`.
fn build_command() {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_onewrite-torture"));
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "onewrite-cli"]);
    build
        .arg("--manifest-path")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    if program.parent().is_some_and(|dir| dir.ends_with("release")) {
        build.arg("--release");
    }
    let status = build.status().expect("cargo runs where its tests do");
    assert!(status.success(), "cannot build the command onewrite");
}

/// Runs one in so many of the faults of a mode, and all conditions.
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
    // The errors that a full disk, a failing device and a lack of descriptors become were all seen.
    let text = report["rows"].to_string();
    for code in ["FULL", "IOERR", "CANTOPEN"] {
        assert!(text.contains(code), "no {code} in {report}");
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

/// The judge sees: what one of the engine's own mistakes would look like is a finding.
#[test]
fn a_lie_about_a_fault_is_found() {
    if cfg!(not(target_arch = "x86_64")) {
        skip("faults are put in by a tracer for x86-64");
        return;
    }
    for lie in ["swallowed-error", "wrong-code", "hang"] {
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
