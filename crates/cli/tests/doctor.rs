//! `onewrite doctor` as a user runs it.

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::{can_make, onewrite, path, text};
use onewrite_iotrace::scratch::{FileSystem, Options, Scratch};

fn doctor(args: &[&str]) -> Output {
    onewrite("doctor", args)
}

/// It must fail, give the reason only on standard error, and name the place.
fn refusal(dir: &Path) -> String {
    let output = doctor(&[path(dir), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "");
    let said = text(&output.stderr);
    assert!(said.contains(path(dir)), "{said}");
    said
}

#[test]
fn places_that_cannot_hold_a_database_are_refused_in_plain_words() {
    let temporary = tempfile::tempdir().expect("a directory");
    assert!(refusal(&temporary.path().join("none")).contains("there is no directory"));
    let file = temporary.path().join("app.db");
    std::fs::write(&file, b"").expect("a file");
    assert!(refusal(&file).contains("is a file, not a directory"));
    assert!(refusal(Path::new("/proc")).contains("takes no files"));
}

#[test]
fn text_ends_with_a_recommendation_and_nothing_stays_behind() {
    let temporary = tempfile::tempdir().expect("a directory");
    let output = doctor(&[path(temporary.path())]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for part in [
        "file system",
        "direct I/O",
        "FUA",
        "write-zeroes",
        "waldio",
        "Recommended: ",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let left = std::fs::read_dir(temporary.path())
        .expect("a directory")
        .count();
    assert_eq!(left, 0);
}

#[test]
fn a_scratch_ext4_is_described_as_it_is_and_refused_once_it_is_read_only() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    let scratch = Scratch::create(&Options {
        file_system: FileSystem::Ext4,
        bytes: 128 << 20,
        parent: &std::env::temp_dir(),
        stop: &stop,
    })
    .expect("a scratch file system");
    let output = doctor(&[path(scratch.root()), "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(report["filesystem"], "ext4");
    assert_eq!(report["device"], scratch.device().name());
    assert_eq!(report["direct_io"]["available"], true);
    assert_eq!(report["fua"]["available"], false, "a loop device has none");
    assert_eq!(report["write_cache"], "write-back");
    let raw = &report["raw"];
    let rate = |name: &str| raw[name].as_f64().expect("a measured rate");
    assert!(rate("direct_4k_per_s") > rate("direct_dsync_4k_per_s"));
    assert_eq!(report["modes"][2]["mode"], "waldio");
    assert_eq!(
        report["modes"][2]["limit_per_s"],
        raw["direct_dsync_4k_per_s"]
    );
    assert_eq!(report["recommendation"]["mode"], "onewrite");

    let remount = Command::new("mount")
        .args(["-o", "remount,ro", path(scratch.root())])
        .status();
    assert!(remount.expect("mount").success());
    let said = refusal(scratch.root());
    assert!(
        said.contains("mounted read-only") && said.contains("remount,rw"),
        "{said}"
    );
    scratch.remove().expect("removed");
}
