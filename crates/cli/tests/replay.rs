//! `onewrite replay` of imported statements: in recorded time, and on every file system.

mod common;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use common::{can_make, onewrite, path, text};
use onewrite_iotrace::scratch::FileSystem;
use serde_json::Value;

/// A trace of transactions with pauses between them.
fn imported(dir: &Path, transactions: usize, pause_ms: u64) -> PathBuf {
    let mut list = String::new();
    for number in 0..transactions {
        let comma = if number == 0 { "" } else { "," };
        let _ = write!(
            list,
            r#"{comma}{{"op":"query","sql":"INSERT INTO t (a) VALUES ('row {number}')"}},
               {{"op":"query","sql":"SELECT count(*), max(a) FROM t"}},
               {{"op":"break","delta":{pause_ms}}}"#
        );
    }
    let table = r#"{"op":"query","sql":"CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)"}"#;
    let (script, trace) = (dir.join("a.json"), dir.join("a.trace"));
    let json = format!(r#"{{"init":[{table}],"benchmark":[{list}]}}"#);
    std::fs::write(&script, json).expect("a script");
    let output = onewrite("import", &["-o", path(&trace), path(&script)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    trace
}

fn replay(trace: &Path, more: &[&str]) -> Value {
    let output = onewrite("replay", &[&[path(trace), "--json"], more].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(document["same_in_all_modes"], true, "{document:#}");
    document
}

fn runs(document: &Value) -> &[Value] {
    document["runs"].as_array().expect("runs")
}

#[test]
fn in_recorded_time_a_replay_takes_as_long_as_the_recording_and_comes_to_the_same() {
    let dir = tempfile::tempdir().expect("a directory");
    let trace = imported(dir.path(), 12, 50);
    let place = ["--modes", "wal,onewrite", "--dir", path(dir.path())];
    let recorded = replay(&trace, &[&place[..], &["--speed", "recorded"]].concat());
    // There are eleven pauses between the first statement and the last.
    for run in runs(&recorded) {
        let elapsed = run["elapsed_s"].as_f64().expect("a time");
        assert!((0.55..30.0).contains(&elapsed), "{run:#}");
    }
    let full = replay(&trace, &place);
    let sums = |document: &Value| -> Vec<(Value, Value)> {
        let of = |run: &Value| (run["statements"].clone(), run["commits"].clone());
        runs(document).iter().map(of).collect()
    };
    assert_eq!(sums(&recorded), sums(&full));
    let content = |document: &Value| runs(document)[0]["checked"]["databases"].clone();
    assert_eq!(content(&recorded), content(&full));
}

fn on(file_system: FileSystem) {
    if !can_make(file_system) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let trace = imported(dir.path(), 60, 1);
    let name = file_system.name();
    let document = replay(
        &trace,
        &["--scratch", name, "--modes", "delete,wal,waldio,onewrite"],
    );
    assert_eq!(document["filesystem"], name);
    let runs = runs(&document);
    assert_eq!(runs.len(), 4, "{}", document["failed"]);
    for run in runs {
        assert_eq!(run["commits"], 60, "{run:#}");
        let by_file = run["by_file"].as_object().expect("bytes by file");
        let sum: u64 = by_file.values().filter_map(Value::as_u64).sum();
        assert_eq!(run["device"]["write_bytes"].as_u64(), Some(sum), "{run:#}");
        assert!(run["device"]["flushes"].as_u64() >= Some(60), "{run:#}");
        assert!(by_file["log_bytes"].as_u64() > Some(0), "{run:#}");
    }
}

#[test]
fn a_replay_on_ext4_counts_every_byte() {
    on(FileSystem::Ext4);
}

#[test]
fn a_replay_on_xfs_counts_every_byte() {
    on(FileSystem::Xfs);
}

#[test]
fn a_replay_on_btrfs_counts_every_byte() {
    on(FileSystem::Btrfs);
}

#[test]
fn what_is_no_trace_is_refused_with_the_way_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let missing = dir.path().join("missing.trace");
    let other = dir.path().join("other.trace");
    std::fs::write(&other, "SELECT 1;\n").expect("a file");
    for file in [&missing, &other] {
        let output = onewrite("replay", &[path(file), "--dir", path(dir.path())]);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains(path(file)), "{said}");
    }
}
