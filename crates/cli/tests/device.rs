//! `onewrite compare --device` as a user runs it: rates stay below the model's limits, and figures
//! add up. However it ends, nothing is left behind.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::flash::{FTLS, counts_add_up, number};
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

/// Runs these modes on flash, in a directory of which nothing may be left.
fn on_flash(flash: &str, file_system: FileSystem, modes: &[&str], more: &[&str]) -> Value {
    let dir = tempfile::tempdir().expect("a directory");
    let modes = modes.join(",");
    let (scratch, name) = (path(dir.path()), file_system.name());
    let args = ["--device", flash, "--scratch", name, "--modes", &modes];
    let document = document(&[&args[..], &["--scratch-dir", scratch], more].concat());
    assert_eq!(loops_below(dir.path()), 0);
    let left = std::fs::read_dir(dir.path()).expect("a directory");
    assert_eq!(left.count(), 0, "something was left behind");
    document
}

/// Every way to flush and to copy, on flash that is in use, so that garbage is collected. Time adds
/// nothing to counts, so it is left out.
#[test]
fn what_flash_programs_is_what_the_host_wrote_the_map_and_what_was_moved() {
    if !can_run() {
        return;
    }
    let modes = [
        "delete", "truncate", "persist", "wal", "waldio", "swal", "direct", "onewrite",
    ];
    let more = [
        "ftl:flush=journal,time=none",
        "ftl:flush=changed,gc=cost-benefit,planes=2,map-cache=400,pages=paired,queue=8,time=none",
    ];
    for flash in FTLS.into_iter().chain(more) {
        let document = on_flash(flash, FileSystem::Ext4, &modes, &["--count", "60"]);
        counts_add_up(&document, flash, &modes);
        let runs = document["runs"].as_array().expect("runs");
        let written = |mode: &str| {
            let run = runs.iter().find(|run| run["mode"] == mode);
            number(run.expect("a run"), "/flash/statistics/host_writes")
        };
        assert!(written("onewrite") < written("wal"), "{document}");
        assert!(written("wal") < written("persist"), "{document}");
        assert!(written("persist") < written("delete"), "{document}");
        assert!(written("delete") < written("truncate"), "{document}");
    }
}

/// Checkpoints that give the database the log's blocks, where the file system has a call for it. Rows
/// of half a page make the database grow, so that there are blocks to give.
#[test]
fn what_flash_programs_adds_up_where_checkpoints_remap_blocks() {
    if !can_run() || !can_make(FileSystem::Xfs) || !can_make(FileSystem::Btrfs) {
        return;
    }
    let on_xfs = [
        "onewrite:checkpoint=exchange",
        "onewrite:checkpoint=forward,region=4m",
    ];
    let on_btrfs = ["onewrite:checkpoint=clone"];
    let more = ["--count", "150", "--record-size", "2000"];
    let more = [&more[..], &["--autocheckpoint", "50"]].concat();
    for flash in FTLS {
        for (file_system, modes) in [
            (FileSystem::Xfs, &on_xfs[..]),
            (FileSystem::Btrfs, &on_btrfs),
        ] {
            let document = on_flash(flash, file_system, modes, &more);
            counts_add_up(&document, flash, modes);
            for run in document["runs"].as_array().expect("runs") {
                let remapped = "/pragmas/onewrite_status/remapped";
                let pages = number(run, &format!("{remapped}/remapped_pages"));
                assert!(pages > 0, "{run}");
                let made = number(run, &format!("{remapped}/replenished_bytes"));
                let has_region = run["mode"] == on_xfs[1];
                assert_eq!(made > 0, has_region, "{run}");
            }
        }
    }
}

/// Each durable write of the raw rates is a page at least, which takes 1.35 ms.
#[test]
fn flash_takes_its_time_and_the_report_has_its_life() {
    if !can_run() {
        return;
    }
    let flash = "ftl:full=0,channels=1";
    let output = onewrite(
        "compare",
        &[
            "--device", flash, "--modes", "wal", "--repeat", "1", "--count", "20",
        ],
    );
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for said in [
        "on flash (ftl:full=0,channels=1",
        "of life",
        "years at 1 transaction a second",
    ] {
        assert!(shown.contains(said), "{said}: {shown}");
    }
    let durable = shown
        .lines()
        .find(|line| line.contains("direct and durable"));
    let fastest = durable.and_then(|line| {
        line.split(" to ")
            .nth(1)?
            .strip_suffix(')')?
            .parse::<u32>()
            .ok()
    });
    assert!(
        fastest.is_some_and(|rate| rate > 0 && rate < 740),
        "{shown}"
    );
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

/// A region takes three times its size. On a small device it is not made, so that its mode writes no
/// more than without one; the report says so.
#[test]
fn a_region_that_is_larger_than_the_device_can_spare_is_told() {
    if !can_run() || !can_make(FileSystem::Xfs) {
        return;
    }
    let modes = ["150m", "24m"].map(|size| format!("onewrite:checkpoint=forward,region={size}"));
    let document = document(&[
        "--device",
        "ftl:time=none",
        "--scratch",
        "xfs",
        "--modes",
        &modes.join(","),
        "--count",
        "1100",
        "--autocheckpoint",
        "500",
    ]);
    let notes = document["notes"].as_array().expect("notes");
    let told = |mode: &str| {
        let mut notes = notes.iter().filter_map(Value::as_str);
        notes.any(|note| note.starts_with(mode) && note.contains("the region was refused"))
    };
    assert_eq!(
        [told(&modes[0]), told(&modes[1])],
        [true, false],
        "{notes:?}"
    );
    let runs = document["runs"].as_array().expect("runs");
    let made = |run: &Value| {
        let bytes = &run["pragmas"]["onewrite_status"]["remapped"]["replenished_bytes"];
        bytes.as_u64().expect("a count")
    };
    assert_eq!(made(&runs[0]), 0, "{document}");
    assert!(made(&runs[1]) >= 20 << 20, "{document}");
}

#[test]
fn a_model_that_is_none_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("x.toml");
    std::fs::write(&file, "description = 'a'\nchannels = 1\n[flush]\nus = 3").expect("a file");
    for (device, said) in [
        ("floppy", "none, nvme, emmc, sd"),
        (path(&file), "no sources"),
        ("ftl:spare=100", "not a number from 1 to 90"),
        ("ftl:wear", "there is no such option"),
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
