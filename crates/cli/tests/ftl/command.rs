//! `onewrite ftl` itself: devices made, inspected, replayed, cut, and mounted again.

use crate::common::{onewrite, path, text};
use crate::support::{Mounted, Unattended, can_run, count};

#[test]
fn devices_are_made_inspected_replayed_and_cut() {
    let dir = tempfile::tempdir().unwrap();
    let device = dir.path().join("device");
    let device = path(&device);
    let shape = [
        "--mib",
        "64",
        "--pages-per-block",
        "32",
        "--channels",
        "2",
        "--table",
        "500",
    ];
    let made = onewrite("ftl", &[&["create", device], &shape[..]].concat());
    assert!(made.status.success(), "{made:?}");
    let again = onewrite("ftl", &["create", device]);
    assert!(text(&again.stderr).contains("exists already"), "{again:?}");
    let trace = dir.path().join("trace");
    let lines: String = (0..400)
        .map(|n| format!("{{\"op\":\"write\",\"address\":{},\"bytes\":4096}}\n{{\"op\":\"flush\",\"address\":0,\"bytes\":0}}\n", n * 8192 % 131_072))
        .collect();
    std::fs::write(&trace, lines).unwrap();
    let replayed = onewrite("ftl", &["replay", device, path(&trace)]);
    assert!(replayed.status.success(), "{replayed:?}");
    let shown = text(&replayed.stdout);
    assert!(shown.contains("one request after the other"), "{shown}");
    let cut = onewrite("ftl", &["cut", device, "--cuts", "20"]);
    assert!(cut.status.success(), "{cut:?}");
    assert!(
        text(&cut.stdout).contains("0 pages lost or torn"),
        "{cut:?}"
    );
    let plot = dir.path().join("wear.svg");
    let shown = onewrite("ftl", &["inspect", device, "--json", "--plot", path(&plot)]);
    let report: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert!(
        report["nand"]["programs"].as_u64().unwrap() > 400,
        "{report}"
    );
    assert!(std::fs::read_to_string(&plot).unwrap().contains("Wear"));
    std::fs::write(device, b"no device").unwrap();
    let refused = onewrite("ftl", &["inspect", device]);
    assert!(
        text(&refused.stderr).contains("no saved flash device"),
        "{refused:?}"
    );
}

/// Ends a mount whose device cannot be written back, as it is interrupted. Returns it, and what it says.
fn stopped_but_stuck(mounted: &Unattended) -> String {
    std::fs::create_dir(mounted.new_file()).unwrap();
    mounted.interrupt();
    mounted.said("in this process's memory only")
}

#[test]
fn a_device_that_cannot_be_written_back_is_not_lost() {
    if !can_run() {
        return;
    }
    let mut mounted = Unattended::new();
    std::fs::write(mounted.files().join("a"), "committed").unwrap();
    let said = stopped_but_stuck(&mounted);
    assert!(said.contains("Is a directory"), "{said}");
    assert!(mounted.is_running());
    std::fs::remove_dir(mounted.new_file()).unwrap();
    assert!(mounted.ended().success());
    let mounted = mounted.mount_again();
    let read = std::fs::read_to_string(mounted.files().join("a")).unwrap();
    assert_eq!(read, "committed");
}

#[test]
fn a_device_that_is_given_up_is_as_it_was_and_the_error_is_shown() {
    if !can_run() {
        return;
    }
    let mut mounted = Unattended::new();
    std::fs::write(mounted.files().join("a"), "committed").unwrap();
    stopped_but_stuck(&mounted);
    mounted.interrupt();
    assert_eq!(mounted.ended().code(), Some(1));
    let said = mounted.said("given up");
    assert!(said.contains("Is a directory"), "{said}");
    std::fs::remove_dir(mounted.new_file()).unwrap();
    let mounted = mounted.mount_again();
    assert!(!mounted.files().join("a").exists());
}

#[test]
fn a_device_larger_than_memory_may_be_is_refused_before_it_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.device");
    let shape = [
        "--host-mib",
        "60000",
        "--page-size",
        "65536",
        "--full",
        "90",
    ];
    let refused = onewrite("ftl", &[&["create", path(&file)], &shape[..]].concat());
    let said = text(&refused.stderr);
    assert!(said.contains("holds 65536 MiB at most"), "{said}");
    assert!(!file.exists());
}

/// A process has a database open when the mount ends.
#[test]
fn what_was_committed_is_in_the_devices_file() {
    if !can_run() {
        return;
    }
    let mounted = Mounted::new();
    let connection = mounted.create("a.db");
    connection
        .execute_batch("INSERT INTO t (b) VALUES ('one')")
        .unwrap();
    let refused = onewrite("ftl", &["inspect", path(&mounted.device())]);
    let said = text(&refused.stderr);
    assert!(said.contains("in use by another process"), "{said}");
    let mounted = mounted.mount_again();
    drop(connection);
    assert_eq!(count(&mounted.open("a.db")), 1);
    let again = onewrite("ftl", &["create", path(&mounted.device())]);
    assert!(!again.status.success());
}
