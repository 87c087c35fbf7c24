//! Helpers of the integration tests, which run `onewrite-torture` and read its output.

#![allow(dead_code)] // each test binary uses its own part

use onewrite_torture::failure::{Failure, Promise};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

fn torture(arguments: &str) -> (Output, String) {
    let program = env!("CARGO_BIN_EXE_onewrite-torture");
    let output = Command::new(program)
        .args(arguments.split_whitespace())
        .output()
        .unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    // It has the seed. The test harness shows it when the test fails.
    eprintln!("onewrite-torture {arguments}\n{stderr}");
    (output, stderr)
}

/// Runs the command, which must find no failure. Returns its report.
pub fn expect_clean(arguments: &str) -> Value {
    let (output, stderr) = torture(arguments);
    assert!(
        output.status.success(),
        "onewrite-torture {arguments}\n{stderr}"
    );
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("not one JSON document: {error}: {output:?}"));
    eprintln!("{report}");
    report
}

/// Runs the command, which must find one of `promises` broken.
pub fn expect_broken(arguments: &str, promises: &[Promise]) {
    let (output, stderr) = torture(arguments);
    assert_eq!(
        output.status.code(),
        Some(1),
        "onewrite-torture {arguments}\n{stderr}"
    );
    let failure: Failure = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("not one JSON document: {error}: {output:?}"));
    match failure {
        Failure::Broken { promise, detail } if promises.contains(&promise) => remove_kept(&detail),
        other => panic!("onewrite-torture {arguments}\nfound {other}, not one of {promises:?}"),
    }
}

/// Removes the kept files, because a lie broke them.
fn remove_kept(detail: &str) {
    let kept = detail
        .split("files kept in ")
        .nth(1)
        .and_then(|rest| rest.split(": ").next());
    if let Some(directory) = kept {
        std::fs::remove_dir_all(directory)
            .unwrap_or_else(|error| panic!("cannot remove {directory}: {error}"));
    }
}

/// A number in a report.
pub fn number(report: &Value, name: &str) -> u64 {
    report[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// Prints what is skipped, and why. On CI nothing may be skipped.
pub fn skip(reason: &str) {
    let on_ci = std::env::var("CI").is_ok_and(|ci| !ci.is_empty() && ci != "false");
    assert!(!on_ci, "skipped on CI: {reason}");
    eprintln!("SKIPPED: {reason}");
}

/// Builds what a test needs besides its own program, unless `scripts/test` has built everything
/// (`ONEWRITE_BUILT`). A build of one package has other features than a build of all. It would
/// change libraries that later tests are linked with.
pub fn bring_up_to_date(what: &[&str]) {
    if std::env::var_os("ONEWRITE_BUILT").is_some() {
        return;
    }
    let program = PathBuf::from(env!("CARGO_BIN_EXE_onewrite-torture"));
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet"]).args(what);
    build
        .arg("--manifest-path")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    if program.parent().is_some_and(|dir| dir.ends_with("release")) {
        build.arg("--release");
    }
    let status = build.status().expect("cargo runs where its tests do");
    assert!(status.success(), "cannot build {what:?}");
}

/// The loadable extension of this build, up to date.
pub fn extension() -> PathBuf {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_onewrite-torture"));
    let profile_directory = program.parent().expect("a program lies in a directory");
    bring_up_to_date(&["--package", "onewrite", "--lib"]);
    let extension = profile_directory.join("libonewrite.so");
    assert!(extension.exists(), "there is no {}", extension.display());
    extension
}

/// A Python whose sqlite3 module can load extensions; some builds cannot.
pub fn python() -> Option<PathBuf> {
    let named = std::env::var_os("ONEWRITE_PYTHON").map(PathBuf::from);
    let usual = ["/usr/bin/python3", "python3", "/usr/local/bin/python3"].map(PathBuf::from);
    let test = "import sqlite3; sqlite3.connect(':memory:').enable_load_extension(True)";
    let found = named.into_iter().chain(usual).find(|python| {
        Command::new(python)
            .args(["-c", test])
            .output()
            .is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        skip("no python3 whose sqlite3 module can load extensions");
    }
    found
}
