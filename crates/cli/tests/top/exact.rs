//! The report of `top` agrees with the counts of the device and the programs.

use std::fs::File;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

use onewrite_iotrace::scratch::{FileSystem, Options, Scratch};
use onewrite_iotrace::trace::Mark;
use serde_json::Value;

use crate::common::can_make;
use crate::programs::Program;
use crate::*;

const COMMITS: u32 = 300;

/// Within 2 %.
fn assert_close(what: &str, one: u64, other: u64) {
    let difference = one.abs_diff(other);
    assert!(difference * 50 <= other, "{what}: {one} and {other}");
}

fn bytes_and_commits_are_exact(file_system: FileSystem) {
    if !can_make(file_system) {
        return;
    }
    // `top` runs where the scratch file system is not mounted, as it does next to containers.
    let (start, started) = (mpsc::channel::<()>(), mpsc::channel());
    let elsewhere = std::thread::spawn(move || {
        start.1.recv().expect("a word");
        let top = Top::start(&["--json", "--for", "600s"]);
        started.0.send(top).expect("a receiver");
    });
    let (parent, stop) = (
        tempfile::tempdir().expect("a directory"),
        AtomicBool::new(false),
    );
    let scratch = Scratch::create(&Options {
        file_system,
        bytes: 512 << 20,
        parent: parent.path(),
        stop: &stop,
    })
    .expect("a scratch file system");
    let root = scratch.root();
    let path = |name: &str| {
        let dir = root.join(name.trim_end_matches(".db"));
        std::fs::create_dir(&dir).expect("a directory");
        dir.join(name)
    };
    let [wal, delete, linked, node, go] =
        ["wal.db", "delete.db", "linked.db", "node.db", "go.db"].map(path);
    let mut programs = vec![
        (&wal, "wal", Program::python(&wal, "wal", COMMITS)),
        (
            &delete,
            "delete",
            Program::python(&delete, "delete", COMMITS),
        ),
        (&linked, "wal", Program::linked(&linked, "wal", COMMITS)),
    ];
    let of_node = Program::node(&node, "wal", COMMITS);
    programs.extend(of_node.map(|program| (&node, "wal", program)));
    let of_go = Program::in_go(&go, "delete", COMMITS);
    programs.extend(of_go.map(|program| (&go, "delete", program)));
    let dir = File::open(root).expect("the root");
    let from = Mark::settled(scratch.device(), &dir).expect("an idle device");
    start.0.send(()).expect("a receiver");
    let top = started.1.recv().expect("a running top");
    elsewhere.join().expect("no panic");
    programs.iter_mut().for_each(|(_, _, program)| program.go());
    programs
        .iter_mut()
        .for_each(|(_, _, program)| program.wait_done());
    let to = Mark::settled(scratch.device(), &dir).expect("an idle device");
    let document = top.stop();
    for (path, mode, program) in &programs {
        assert_program(&document, path, mode, program);
    }
    let counted = to.counters.since(from.counters).write_bytes;
    let paths = programs.iter().map(|(path, _, _)| *path);
    let bytes = paths.map(|path| number(&database(&document, path)["bytes"]));
    assert_close("bytes of databases", bytes.sum(), counted);
    let device = scratch.device().name();
    let device = list(&document, "devices")
        .iter()
        .find(|d| d["name"] == device);
    let device = device.expect("the device");
    assert_close("bytes traced", number(&device["traced_bytes"]), counted);
    assert_close("bytes counted", number(&device["counted_bytes"]), counted);
    let figure = |name: &str| {
        device[name]
            .as_f64()
            .unwrap_or_else(|| panic!("{device:#}"))
    };
    let size = figure("size");
    assert_eq!(size, f64::from(512 << 20), "{device:#}");
    // The rating that is assumed, 360 full writes.
    let days = figure("life_years") * 365.25;
    let writes = days * figure("bytes_per_day");
    assert!((writes / size - 360.0).abs() < 0.01, "{device:#}");
    assert_eq!(document["lost_events"], 0);
    drop(programs);
    drop(dir);
    scratch.remove().expect("nothing left");
}

fn assert_program(document: &Value, path: &Path, mode: &str, program: &Program) {
    let database = database(document, path);
    assert_eq!(database["commits"], COMMITS, "{database:#}");
    assert_ne!(database["commits_from"], "flushes", "{database:#}");
    assert_eq!(database["journal_mode"], mode, "{database:#}");
    let programs = list(database, "programs");
    assert_eq!(programs.len(), 1, "{database:#}");
    assert_eq!(programs[0]["pid"], program.pid(), "{database:#}");
    assert_eq!(programs[0]["commits"], COMMITS, "{database:#}");
    assert!(!programs[0]["name"].as_str().expect("a name").is_empty());
    let times = &database["flush_us"];
    assert_close(
        "times of flushes",
        number(&times["count"]),
        u64::from(COMMITS),
    );
    let parts = ["log_bytes", "database_bytes", "fs_journal_bytes"];
    let sum: u64 = parts.iter().map(|part| number(&database[*part])).sum();
    assert_eq!(sum, number(&database["bytes"]));
    assert!(number(&database["log_bytes"]) >= u64::from(COMMITS) * 4096);
    let estimate = &database["estimate"];
    let per_commit = |value: &Value| value["bytes_per_commit"].as_f64().expect("bytes");
    assert!(per_commit(&estimate["onewrite"]) < per_commit(database));
}

#[test]
fn bytes_and_commits_are_those_of_the_device_and_the_programs_on_ext4() {
    bytes_and_commits_are_exact(FileSystem::Ext4);
}

#[test]
fn bytes_and_commits_are_those_of_the_device_and_the_programs_on_xfs() {
    bytes_and_commits_are_exact(FileSystem::Xfs);
}

#[test]
fn bytes_and_commits_are_those_of_the_device_and_the_programs_on_btrfs() {
    bytes_and_commits_are_exact(FileSystem::Btrfs);
}
