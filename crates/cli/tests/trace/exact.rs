//! The sums over kinds, files and processes are the device's own counters.

use std::fs::{self, File};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use onewrite_iotrace::scratch::{self, FileSystem, LoopDevice, Mounted, Scratch};
use serde_json::Value;

use crate::common::{can_make, path};
use crate::*;

/// All modes that differ in their writes, or in other work: an exchange keeps a descriptor of the
/// database.
const MODES: &str = "delete,truncate,persist,memory,off,wal,direct,waldio,onewrite,swal,\
                     waldio:group_commit=on,waldio:layout=gathered,onewrite:checkpoint=exchange";

fn inserts_are_exact(file_system: FileSystem) {
    if !can_make(file_system) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let events = dir.path().join("events");
    let document = document(&[
        "--scratch",
        file_system.name(),
        "--insert",
        MODES,
        "--count",
        "30",
        "--events",
        path(&events),
    ]);
    let modes: Vec<_> = runs(&document)
        .iter()
        .map(|run| run["mode"].as_str())
        .collect();
    assert_eq!(modes, MODES.split(',').map(Some).collect::<Vec<_>>());
    let lines = fs::read_to_string(&events).expect("the events");
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    for run in runs(&document) {
        assert_exact(run);
        let mode = run["mode"].as_str().expect("a mode");
        let bytes = |kind| of_kind(run, kind, "write_bytes");
        let of_log = 30 * 4096;
        match mode {
            "delete" | "truncate" | "persist" => {
                assert!(bytes("rollback_journal") >= of_log, "{mode}");
                assert!(bytes("database") >= of_log, "{mode}");
                assert_eq!(bytes("log"), 0, "{mode}");
            }
            "memory" | "off" => {
                assert!(bytes("database") >= of_log, "{mode}");
                assert_eq!(bytes("log") + bytes("rollback_journal"), 0, "{mode}");
            }
            _ => {
                assert!(bytes("log") >= of_log, "{mode}");
                assert_eq!(bytes("database") + bytes("rollback_journal"), 0, "{mode}");
            }
        }
        assert!(number(&run["flushes"]) >= 30, "{mode}");
        // The sums count every line, and the parts of a line are all of it.
        let own = lines.iter().filter(|line| line["mode"] == mode);
        let mut written = 0;
        for line in own {
            let parts = list(line, "parts");
            let sum: u64 = parts.iter().map(|part| number(&part["bytes"])).sum();
            assert_eq!(sum, number(&line["bytes"]), "{line}");
            written += if line["op"] == "write" { sum } else { 0 };
            let times = ["queued_us", "issued_us", "completed_us"];
            let times: Vec<f64> = times.iter().filter_map(|t| line[t].as_f64()).collect();
            assert!(times.is_sorted(), "{line}");
        }
        assert_eq!(written, number(&run["total"]["write_bytes"]), "{mode}");
    }
}

#[test]
fn the_sums_are_the_devices_own_counters_on_ext4_in_every_mode() {
    inserts_are_exact(FileSystem::Ext4);
}

#[test]
fn the_sums_are_the_devices_own_counters_on_xfs_in_every_mode() {
    inserts_are_exact(FileSystem::Xfs);
}

#[test]
fn the_sums_are_the_devices_own_counters_on_btrfs_in_every_mode() {
    inserts_are_exact(FileSystem::Btrfs);
}

#[test]
fn on_btrfs_log_trees_are_told_apart_from_all_others() {
    if !can_make(FileSystem::Btrfs) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("image");
    let file = File::create(&image).expect("an image");
    file.set_len(600 << 20).expect("its size");
    FileSystem::Btrfs.make(&image, &[]).expect("a file system");
    let disk = LoopDevice::attach(&image).expect("a loop device");
    scratch::private_mounts().expect("mounts of our own");
    let root = dir.path().join("mnt");
    fs::create_dir(&root).expect("a directory");
    let mounted = Mounted::new(disk.node(), &root, "btrfs").expect("a mount");
    let events = dir.path().join("events");
    let script = "for n in 1 2 3 4 5 6 7 8; do
        dd if=/dev/zero of=$0/file$n bs=4096 count=3 conv=fsync
        [ $n = 4 ] && sync -f $0
    done; true";
    let args = ["--dir", path(&root), "--events", path(&events)];
    let document = document(&[&args[..], &["--", "sh", "-c", script, path(&root)]].concat());
    assert_exact(&runs(&document)[0]);
    drop(mounted);
    disk.detach().expect("no device left");
    // The last write at an address is still there, and a block of a tree names its tree.
    let bytes = fs::read(&image).expect("the image");
    let mut last = std::collections::BTreeMap::new();
    for line in fs::read_to_string(&events).expect("the events").lines() {
        let line: Value = serde_json::from_str(line).expect("an object");
        let mut at = number(&line["address"]) as usize;
        for part in list(&line, "parts")
            .iter()
            .filter(|_| line["op"] == "write")
        {
            let kind = part["kind"].as_str().unwrap_or_default().to_owned();
            let end = at + number(&part["bytes"]) as usize;
            for block in (at..end).step_by(4096) {
                last.insert(block, kind.clone());
            }
            at = end;
        }
    }
    let fsid = &bytes[(64 << 10) + 32..][..16];
    let (mut of_log, mut of_others) = (0, 0);
    for (at, kind) in last {
        // The superblock has the id at the same place.
        let is_node = &bytes[at + 32..][..16] == fsid && &bytes[at + 64..][..8] != b"_BHRfS_M";
        let is_log = bytes[at + 88..][..8] == (-6i64).to_le_bytes();
        match (is_node, is_log) {
            (false, _) => continue,
            (true, true) => of_log += 1,
            (true, false) => of_others += 1,
        }
        let expected = if is_log { "fs_journal" } else { "fs_metadata" };
        assert_eq!(kind, expected, "{at}");
    }
    assert!(of_log >= 8 && of_others >= 4, "{of_log} {of_others}");
}

#[test]
fn one_insert_is_what_the_papers_figure_2_shows() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let picture = dir.path().join("picture.svg");
    let args = ["--scratch", "ext4", "--insert", "wal,waldio,onewrite"];
    let document = document(&[&args[..], &["--plot", path(&picture)]].concat());
    let [wal, waldio, onewrite] = runs(&document) else {
        panic!("{document}")
    };
    // 20 KByte of journal and 8 of log, in table 1.
    assert_eq!(of_kind(wal, "fs_journal", "write_bytes"), 20 << 10);
    assert_eq!(of_kind(wal, "log", "write_bytes"), 8 << 10);
    for run in [waldio, onewrite] {
        assert_eq!(number(&run["total"]["write_bytes"]), 4096);
        assert_eq!(
            (number(&run["total"]["writes"]), number(&run["flushes"])),
            (1, 1)
        );
    }
    let svg = fs::read_to_string(&picture).expect("the picture");
    for part in ["file-system journal", "waldio", "28", "time (", "(MiB)"] {
        assert!(svg.contains(part), "{part}");
    }
}

/// XFS writes its log with a flush before and after. The kernel reports such a write when its data
/// is there, and counts it after the second flush. No trace begins or ends between the two.
#[test]
fn a_trace_begins_and_ends_at_any_moment_of_commits() {
    if !can_make(FileSystem::Xfs) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let stop = AtomicBool::new(false);
    let scratch = Scratch::create(&scratch::Options {
        file_system: FileSystem::Xfs,
        bytes: 512 << 20,
        parent: dir.path(),
        stop: &stop,
    });
    let scratch = scratch.expect("a file system");
    let root = scratch.root().to_owned();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = Ends(&ended);
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                // A new file changes metadata, so that the log is written.
                let mut file = File::create(root.join("file")).expect("a file");
                file.write_all(&[7; 4096]).expect("written");
                file.sync_all().expect("synced");
                fs::remove_file(root.join("file")).expect("removed");
            }
        });
        for _ in 0..10 {
            let document = document(&["--dir", path(&root), "--seconds", "0.1"]);
            let run = &runs(&document)[0];
            assert_eq!(run["exact"], true, "{}", run["checks"]);
        }
    });
    scratch.remove().expect("no device left");
}

/// Says so when the work has ended, also by a failed assertion.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
