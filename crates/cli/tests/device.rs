//! `onewrite compare --device` as a user runs it: rates stay below the model's limits, and figures
//! add up. However it ends, nothing is left behind.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{can_make, onewrite, path, text};
use onewrite_iotrace::scratch::FileSystem;
use serde_json::Value;

fn can_run() -> bool {
    if !Path::new("/dev/fuse").exists() {
        println!("SKIPPED: no /dev/fuse");
        return false;
    }
    can_make(FileSystem::Ext4)
}

fn document(args: &[&str]) -> Value {
    let output = onewrite("compare", &[args, &["--repeat", "1", "--json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

/// Loop devices whose file is below `directory`.
fn loops_below(directory: &Path) -> usize {
    let entries = std::fs::read_dir("/sys/block").expect("sysfs").flatten();
    entries
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("loop/backing_file")).ok())
        .filter(|backing| backing.starts_with(path(directory)))
        .count()
}

#[test]
fn an_emmc_is_as_slow_as_its_model_and_its_bytes_add_up() {
    if !can_run() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let document = document(&[
        "--scratch",
        "ext4",
        "--device",
        "emmc",
        "--scratch-dir",
        path(dir.path()),
        "--modes",
        "wal,waldio",
        "--count",
        "100",
    ]);
    let model = &document["device_model"];
    assert_eq!(model["name"], "emmc");
    assert!(model["flush"]["us"].as_f64() >= Some(1000.0), "{model}");
    assert_eq!(document["device"], "loop");
    // One write-through write takes 957 us, and 33 us for its bytes. A plain write takes 77 us.
    let raw = &document["raw"]["max"];
    for (rate, most) in [
        ("direct_dsync_4k_per_s", 1010.1),
        ("direct_4k_per_s", 13_000.0),
    ] {
        let rate = raw[rate].as_f64().expect("a rate");
        assert!(rate > 0.0 && rate <= most, "{raw}");
    }
    for run in document["runs"].as_array().expect("runs") {
        assert!(run["ops_per_s"].as_f64() < Some(1010.1), "{run}");
        assert!(run["device"]["flushes"].as_u64() >= Some(100), "{run}");
        let by_file = run["by_file"].as_object().expect("bytes by file");
        let sum: u64 = by_file.values().filter_map(Value::as_u64).sum();
        assert_eq!(Some(sum), run["device"]["write_bytes"].as_u64(), "{run}");
    }
    assert_eq!(loops_below(dir.path()), 0);
    let left = std::fs::read_dir(dir.path()).expect("a directory");
    assert_eq!(left.count(), 0, "something was left behind");
}

#[test]
fn a_model_may_be_a_file_and_a_report_names_it() {
    if !can_run() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("mine.toml");
    let model =
        "description = 'of my own'\nsources = ['a guess']\nchannels = 2\n[flush]\nus = 3000";
    std::fs::write(&file, model).expect("a file");
    let args = [
        "--device",
        path(&file),
        "--modes",
        "waldio",
        "--count",
        "40",
    ];
    let output = onewrite("compare", &args);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(shown.contains("the model mine (of my own)"), "{shown}");
}

#[test]
fn a_model_that_is_none_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("x.toml");
    std::fs::write(&file, "description = 'a'\nchannels = 1\n[flush]\nus = 3").expect("a file");
    for (device, said) in [
        ("floppy", "none, nvme, emmc, sd"),
        (path(&file), "no sources"),
    ] {
        let output = onewrite("compare", &["--device", device]);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            text(&output.stderr).contains(said),
            "{}",
            text(&output.stderr)
        );
    }
    let output = onewrite("compare", &["--device", "sd", "--dir", "."]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_run_that_is_killed_leaves_no_device() {
    if !can_run() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let wait_until = |what: &str, done: &dyn Fn() -> bool| {
        let begin = Instant::now();
        while !done() {
            assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let mut child = Command::new(env!("CARGO_BIN_EXE_onewrite"))
        .args([
            "compare", "--device", "emmc", "--count", "100000", "--modes", "wal",
        ])
        .args(["--scratch-dir", path(dir.path())])
        .stdout(Stdio::null())
        .spawn()
        .expect("the command");
    wait_until("no device was made", &|| loops_below(dir.path()) == 1);
    std::thread::sleep(Duration::from_millis(1500));
    child.kill().expect("kill");
    child.wait().expect("wait");
    wait_until("a device was left", &|| loops_below(dir.path()) == 0);
}
