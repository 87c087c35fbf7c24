//! `onewrite scan` finds every bad setting that a test can plant, and none on a good file system. It
//! tells the SQLite of programs, also of those that have it linked statically.

#[path = "common/mod.rs"]
mod common;
#[path = "top/programs.rs"]
mod programs;

use std::ffi::CStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{can_make, onewrite, path, text};
use onewrite_iotrace::scratch::{FileSystem, LoopDevice, Mounted, private_mounts};
use programs::Program;
use serde_json::Value;

fn scan(args: &[&str]) -> Value {
    let output = onewrite("scan", &[&["--json"], args].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

fn make_database(dir: &Path) -> PathBuf {
    let file = dir.join("app.db");
    let database = rusqlite::Connection::open(&file).expect("a database");
    database
        .execute_batch("CREATE TABLE t(x)")
        .expect("a table");
    file
}

/// The entry of the database at a path.
fn entry<'a>(document: &'a Value, file: &Path) -> &'a Value {
    let databases = document["databases"].as_array().expect("a list");
    let found = databases.iter().find(|entry| entry["path"] == path(file));
    found.unwrap_or_else(|| panic!("{} is missing: {document:#}", file.display()))
}

fn keys(entry: &Value) -> Vec<&str> {
    let findings = entry["findings"].as_array().expect("a list").iter();
    let key = |finding: &Value| !finding["fix"].as_str().expect("a fix").is_empty();
    assert!(findings.clone().all(key), "{entry:#}");
    findings
        .filter_map(|finding| finding["key"].as_str())
        .collect()
}

/// An ext4 with these mount options, and a database on it.
struct Planted {
    // Unmounted before the device ends.
    mounted: Mounted,
    device: LoopDevice,
    database: PathBuf,
}

fn plant(root: &Path, name: &str, options: Option<&CStr>) -> Planted {
    let (image, point) = (root.join(format!("{name}.image")), root.join(name));
    let file = File::create(&image).expect("an image");
    file.set_len(64 << 20).expect("its size");
    FileSystem::Ext4.make(&image, &[]).expect("a file system");
    fs::create_dir(&point).expect("a directory");
    let device = LoopDevice::attach(&image).expect("a loop device");
    let mounted = Mounted::with_options(device.node(), &point, "ext4", options).expect("a mount");
    Planted {
        mounted,
        device,
        database: make_database(&point),
    }
}

#[test]
fn planted_settings_are_found_and_nothing_on_a_good_ext4() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    private_mounts().expect("mounts of our own");
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().canonicalize().expect("a path");
    let planted = [
        plant(&root, "good", None),
        plant(&root, "writeback", Some(c"data=writeback")),
        plant(&root, "nobarrier", Some(c"nobarrier")),
    ];
    let memory = root.join("memory");
    fs::create_dir(&memory).expect("a directory");
    let on_memory = Mounted::new(Path::new("tmpfs"), &memory, "tmpfs").expect("tmpfs");
    let in_memory = make_database(&memory);
    let layers = root.join("good/layers");
    let [lower, upper, work, merged] = ["lower", "upper", "work", "merged"].map(|l| layers.join(l));
    for layer in [&lower, &upper, &work, &merged] {
        fs::create_dir_all(layer).expect("a directory");
    }
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        path(&lower),
        path(&upper),
        path(&work)
    );
    let overlay = Command::new("mount")
        .args(["-t", "overlay", "overlay", "-o", &options])
        .arg(&merged)
        .status();
    let overlay = overlay.is_ok_and(|status| status.success());
    assert!(overlay, "overlayfs cannot be mounted");
    let on_overlay = make_database(&merged);
    let document = scan(&[path(&root)]);
    let human = onewrite("scan", &[path(&root)]);
    let removed = Command::new("umount").arg(&merged).status();
    assert!(removed.expect("umount").success());
    drop(on_memory);
    let found: Vec<_> = planted
        .iter()
        .map(|planted| keys(entry(&document, &planted.database)))
        .collect();
    assert_eq!(found, [vec![], vec!["data_writeback"], vec!["no_barriers"]]);
    assert_eq!(keys(entry(&document, &in_memory)), ["memory"]);
    assert_eq!(keys(entry(&document, &on_overlay)), ["overlay"]);
    let good = entry(&document, &planted[0].database);
    assert_eq!(good["file_system"], "ext4");
    assert_eq!(
        (&good["journal_mode"], &good["page_size"]),
        (&"delete".into(), &4096.into())
    );
    assert!(good["size"].as_u64() >= Some(4096), "{good:#}");
    let table = text(&human.stdout);
    for part in ["data=ordered in /etc/fstab", "barrier=1", "docker run -v"] {
        assert!(table.contains(part), "{part}\n{table}");
    }
    for planted in planted {
        planted.mounted.unmount().expect("unmounted");
        planted.device.detach().expect("no device left");
    }
}

#[test]
fn programs_are_told_with_their_sqlite() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().canonicalize().expect("a path");
    let (of_python, of_linked) = (root.join("python.db"), root.join("linked.db"));
    let python = Program::python(&of_python, "wal", 1);
    let linked = Program::linked(&of_linked, "delete", 1);
    let document = scan(&[path(&root)]);
    let version = Command::new("python3")
        .args(["-c", "import sqlite3; print(sqlite3.sqlite_version)"])
        .output()
        .expect("python3");
    let version = text(&version.stdout).trim().to_owned();
    let of = |file: &Path, program: &Program, version: &str| {
        let entry = entry(&document, file);
        let programs = entry["programs"].as_array().expect("a list");
        assert_eq!(programs.len(), 1, "{entry:#}");
        assert_eq!(programs[0]["pid"], program.pid(), "{entry:#}");
        assert_eq!(programs[0]["sqlite"][0]["version"], version, "{entry:#}");
    };
    of(&of_python, &python, &version);
    of(&of_linked, &linked, rusqlite::version());
    let faults = onewrite::wal::faults::Fault::of(&version);
    let is_faulty = faults.contains(&onewrite::wal::faults::Fault::WalReset);
    let entry = entry(&document, &of_python);
    assert_eq!(entry["journal_mode"], "wal");
    assert_eq!(keys(entry).contains(&"wal_reset"), is_faulty, "{entry:#}");
}

#[test]
fn a_missing_directory_is_named() {
    let output = onewrite("scan", &["/no/such/directory"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/no/such/directory"));
}
