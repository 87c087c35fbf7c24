//! `onewrite-lab soak` finds planted defects, names what is missing, and leaves a report and nothing
//! else when it is stopped. `scripts/soak --quick` runs it in all modes and languages.

mod common;

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use common::can_run;

/// A soak of workers in Rust and Python, in which much happens.
fn command(arguments: &str, directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onewrite-lab"));
    command
        .args("soak --hurry 15 --rate 20 --workers 4 --disk 64".split(' '))
        .args("--node /nonexistent --dir".split(' '))
        .arg(directory)
        .args(arguments.split_whitespace());
    command
}

fn report(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

/// The output of the first run that finds something. By chance a run may have nothing to find: all
/// writes survive its power cuts, or a slow machine begins too few transactions.
fn found(arguments: &str, directory: &Path) -> Output {
    found_where(arguments, directory, |_| true)
}

/// The first run that finds what is meant.
fn found_where(arguments: &str, directory: &Path, is_meant: impl Fn(&Output) -> bool) -> Output {
    let runs = (0..8).map(|_| command(arguments, directory).output().expect("the command"));
    let mut failed = runs.filter(|output| output.status.code() != Some(0) && is_meant(output));
    let output = failed.next().expect("nothing was found in eight runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    output
}

#[test]
fn a_transaction_that_is_acknowledged_and_rolled_back_is_missed() {
    if !can_run() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = "--mode waldio --events 60 --broken acknowledges-rolled-back";
    let output = found(arguments, directory.path());
    let report = report(&output);
    let wrong = report["wrong"].to_string();
    assert!(wrong.contains("missing"), "{report:#}");
    let anomalies = report["checked"]["anomalies"]
        .as_object()
        .expect("anomalies");
    assert!(!anomalies.is_empty(), "{report:#}");
    // The evidence is kept.
    let kept = Path::new(report["kept"].as_str().expect("a directory"));
    assert!(kept.join("history.edn").is_file() && kept.join("soak.db").is_file());
}

#[test]
fn what_a_device_without_flushes_loses_is_missed() {
    if !can_run() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    // The file system may be gone, too.
    let arguments = "--mode onewrite --events 40 --broken device-ignores-flushes";
    found(arguments, directory.path());
}

/// This also shows that the clocks jump for the workers of both languages, and for their SQLite.
#[test]
fn histories_by_a_clock_that_jumps_are_found() {
    if !can_run() {
        return;
    }
    let clocks = Path::new(env!("CARGO_BIN_EXE_onewrite-lab"));
    let clocks = clocks.with_file_name("libonewrite_wallclock.so");
    assert!(clocks.is_file(), "cargo build -p onewrite-wallclock");
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = "--mode swal --events 60 --broken histories-by-wall-clock";
    let found = found_where(arguments, directory.path(), |output| {
        let report = report(output);
        let rows = &report["rows_by_wrong_clock"];
        let has_rows = rows["rust"].as_u64().is_some() && rows["python"].as_u64().is_some();
        has_rows
            && report["checked"]["anomalies"]
                .to_string()
                .contains("realtime")
    });
    let report = report(&found);
    assert!(
        report["events"]["clock jump"].as_u64() > Some(0),
        "{report:#}"
    );
    assert_eq!(report["not_done"], serde_json::json!([]));
}

/// The other library is ours, and its workers do not flush.
#[test]
fn what_workers_with_another_library_lose_is_missed() {
    if !can_run() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let library = Path::new(env!("CARGO_BIN_EXE_onewrite-lab")).with_file_name("libonewrite.so");
    let arguments = format!(
        "--mode onewrite --events 60 --python /nonexistent --broken other-library-does-not-flush --other-library {}",
        library.display()
    );
    let output = found(&arguments, directory.path());
    let report = report(&output);
    let (all, other) = (&report["processes"], &report["processes_with_other"]);
    assert!(
        other.as_u64() > Some(0) && other.as_u64() < all.as_u64(),
        "{report:#}"
    );
}

#[test]
fn languages_that_are_missing_are_named() {
    if !can_run() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let run = |arguments: &str| command(arguments, directory.path()).output();
    let output = run("--events 1").expect("the command");
    let missing = report(&output)["missing"].to_string();
    assert!(
        missing.contains("node") && missing.contains("go"),
        "{missing}"
    );
    let output = run("--events 1 --require rust,go").expect("the command");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("no program in go"),
        "{errors}"
    );
    let left = std::fs::read_dir(directory.path()).expect("a directory");
    assert_eq!(left.count(), 0, "something was left behind");
}

#[test]
fn a_soak_that_is_stopped_leaves_a_report_and_nothing_else() {
    if !can_run() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mut child = command("--mode swal", directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command");
    // Stopped when its workers are at work.
    let end = Instant::now() + Duration::from_secs(120);
    let is_at_work = || {
        let entries = std::fs::read_dir(directory.path()).expect("a directory");
        let mut entries = entries.filter_map(Result::ok);
        entries.any(|entry| {
            let history = entry.path().join("worker-0.edn");
            std::fs::metadata(history).is_ok_and(|found| found.len() > 0)
        })
    };
    while !is_at_work() {
        assert!(Instant::now() < end, "no worker begins");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    kill_process(pid, Signal::INT).expect("a signal");
    let mut text = String::new();
    let mut output = child.stdout.take().expect("a pipe");
    output.read_to_string(&mut text).expect("a report");
    let status = child.wait().expect("the command");
    let report: Value = serde_json::from_str(&text).expect(&text);
    assert_eq!(status.code(), Some(130), "{report:#}");
    assert_eq!(report["stopped_early"], true);
    assert_eq!(report["failures"], 0, "{report:#}");
    let left = std::fs::read_dir(directory.path()).expect("a directory");
    assert_eq!(left.count(), 0, "something was left behind");
}
