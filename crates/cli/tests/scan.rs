//! `onewrite scan` finds every bad setting that a test can plant, and none on a good file system. It
//! tells the SQLite of programs, also of those that have it linked statically.

#[path = "common/mod.rs"]
mod common;
#[path = "top/programs.rs"]
mod programs;
#[path = "scan/served.rs"]
mod served;

use std::ffi::CStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{can_make, onewrite, path, text};
use onewrite_common::files::{COMPANIONS, companion};
use onewrite_iotrace::scratch::{FileSystem, LoopDevice, Mounted, private_mounts};
use programs::Program;
use rusqlite::{Connection, OpenFlags};
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

/// Tells the kernel whether a device has a cache, until this is dropped.
struct Cache(PathBuf);

impl Cache {
    fn deny(device: &LoopDevice) -> Self {
        let name = device.node().file_name().expect("a name");
        let file = Path::new("/sys/class/block")
            .join(name)
            .join("queue/write_cache");
        let cache = Self(file);
        fs::write(&cache.0, "write through").expect("sysfs");
        cache
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        // The next one that gets this device must find it as it was.
        let _ = fs::write(&self.0, "write back");
    }
}

#[test]
fn a_device_whose_cache_is_denied_is_found() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    private_mounts().expect("mounts of our own");
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().canonicalize().expect("a path");
    let planted = plant(&root, "denied", None);
    let keys_now = || {
        let document = scan(&[path(&root)]);
        let keys = keys(entry(&document, &planted.database));
        keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>()
    };
    let cache = Cache::deny(&planted.device);
    assert_eq!(keys_now(), ["write_cache_denied"]);
    drop(cache);
    assert!(keys_now().is_empty());
    planted.mounted.unmount().expect("unmounted");
    planted.device.detach().expect("no device left");
}

#[test]
fn a_volatile_overlay_is_found() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    private_mounts().expect("mounts of our own");
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().canonicalize().expect("a path");
    let planted = plant(&root, "layers", None);
    let layers = planted.database.parent().expect("a directory");
    let [lower, upper, work, merged] =
        ["lower", "upper", "work", "merged"].map(|it| layers.join(it));
    for layer in [&lower, &upper, &work, &merged] {
        fs::create_dir(layer).expect("a directory");
    }
    let options = format!(
        "lowerdir={},upperdir={},workdir={},volatile",
        path(&lower),
        path(&upper),
        path(&work)
    );
    let options = std::ffi::CString::new(options).expect("no zero");
    let overlay = Path::new("overlay");
    let mounted = Mounted::with_options(overlay, &merged, "overlay", Some(options.as_c_str()));
    let mounted = mounted.expect("an overlay");
    let database = make_database(&merged);
    let document = scan(&[path(&merged)]);
    assert_eq!(
        keys(entry(&document, &database)),
        ["overlay_volatile", "overlay"]
    );
    mounted.unmount().expect("unmounted");
    planted.mounted.unmount().expect("unmounted");
    planted.device.detach().expect("no device left");
}

/// A program serves the file: `scan` tells from the kernel's name of the file system whose.
#[test]
fn file_systems_that_programs_serve_are_found() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: a mount takes root");
        return;
    }
    private_mounts().expect("mounts of our own");
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().canonicalize().expect("a path");
    let database = fs::read(make_database(&root)).expect("a database");
    for (name, key) in [("sshfs", "network"), ("bindfs", "fuse")] {
        let point = root.join(name);
        fs::create_dir(&point).expect("a directory");
        let session = served::mount(name, &point, &database);
        let document = scan(&[path(&point)]);
        let found = entry(&document, &point.join(served::NAME));
        assert_eq!(found["file_system"], format!("fuse.{name}"));
        assert_eq!(found["size"], database.len(), "{found:#}");
        assert_eq!(keys(found), [key]);
        session.umount_and_join().expect("unmounted");
    }
}

/// The version of the SQLite that wrote a database last, from the header.
fn written_by(database: &Path) -> String {
    let bytes = fs::read(database).expect("a database");
    let number = bytes[96..]
        .first_chunk()
        .map_or(0, |word| u32::from_be_bytes(*word));
    let (major, minor) = (number / 1_000_000, number / 1000 % 1000);
    format!("{major}.{minor}.{}", number % 1000)
}

#[test]
fn programs_are_told_with_their_sqlite() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().canonicalize().expect("a path");
    let (of_python, of_linked) = (root.join("python.db"), root.join("linked.db"));
    let python = Program::python(&of_python, "wal", 1);
    let linked = Program::linked(&of_linked, "delete", 1);
    let of_go = root.join("go.db");
    let go = Program::in_go(&of_go, "wal", 1);
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
    if let Some(go) = &go {
        let programs = entry(&document, &of_go)["programs"]
            .as_array()
            .expect("a list");
        assert_eq!(programs.len(), 1, "{document:#}");
        assert_eq!(programs[0]["pid"], go.pid(), "{document:#}");
        let version = programs[0]["sqlite"][0]["version"]
            .as_str()
            .expect("a version");
        assert_eq!(written_by(&of_go), version);
    }
    let faults = onewrite::wal::faults::Fault::of(&version);
    let is_faulty = faults.contains(&onewrite::wal::faults::Fault::WalReset);
    let entry = entry(&document, &of_python);
    assert_eq!(entry["journal_mode"], "wal");
    assert_eq!(keys(entry).contains(&"wal_reset"), is_faulty, "{entry:#}");
}

/// Named pipes where files are expected, a loop of links, a socket, files that only begin as databases:
/// none of these makes it wait or fail.
#[test]
fn whatever_lies_in_a_directory_the_others_are_found() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().canonicalize().expect("a path");
    let good = make_database(&root);
    for (number, suffix) in COMPANIONS.iter().enumerate() {
        for (kind, mode) in [("wal", "PRAGMA journal_mode=wal"), ("delete", "SELECT 1")] {
            let file = root.join(format!("{kind}{number}.db"));
            let database = rusqlite::Connection::open(&file).expect("a database");
            let made = database.execute_batch(&format!("CREATE TABLE t(x); {mode}"));
            made.expect("a table");
            drop(database);
            make_pipe(&companion(&file, suffix));
        }
    }
    make_pipe(&root.join("pipe.db"));
    let link = |from: &Path, to: PathBuf| std::os::unix::fs::symlink(from, to).expect("a link");
    link(&root, root.join("loop"));
    link(&root.join("none"), root.join("nowhere.db"));
    link(&good, root.join("again.db"));
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).expect("a socket");
    for (name, length) in [("magic.db", 16), ("short.db", 99), ("full.db", 100)] {
        let mut bytes = b"SQLite format 3\0".to_vec();
        bytes.resize(length, 0xff);
        fs::write(root.join(name), bytes).expect("a file");
    }
    let run = |args: &[&str]| {
        let mut command = Command::new("timeout");
        // It could not see another signal while it waits.
        command.args(["--signal=KILL", "60", env!("CARGO_BIN_EXE_onewrite")]);
        let output = command.args(args).output().expect("timeout");
        assert!(
            output.status.code().is_some_and(|code| code != 137),
            "{args:?} hangs"
        );
        output
    };
    let output = run(&["scan", path(&root), "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    let found = |name: &str| {
        let databases = document["databases"].as_array().expect("a list").iter();
        databases
            .filter(|entry| entry["path"] == path(&root.join(name)))
            .count()
    };
    assert_eq!(found("app.db"), 1, "{document:#}");
    for number in 0..COMPANIONS.len() {
        for kind in ["wal", "delete"] {
            let name = format!("{kind}{number}.db");
            assert_eq!(found(&name), 1, "{name} in {document:#}");
            for command in ["inspect", "verify"] {
                run(&[command, path(&root.join(&name))]);
            }
        }
    }
    assert_eq!(
        (found("pipe.db"), found("again.db")),
        (0, 0),
        "{document:#}"
    );
}

fn make_pipe(path: &Path) {
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mkfifoat(rustix::fs::CWD, path, mode).expect("a pipe");
}

#[test]
fn a_missing_directory_is_named() {
    let output = onewrite("scan", &["/no/such/directory"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/no/such/directory"));
}

#[test]
fn a_closed_database_is_listed_with_the_mode_that_it_remembers() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().canonicalize().expect("a path");
    onewrite::register().expect("the VFS");
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let modes = ["onewrite", "waldio", "swal", "direct"];
    for mode in modes {
        let file = place.join(mode);
        let ours = Connection::open_with_flags_and_vfs(&file, flags, onewrite::VFS_NAME);
        let ours = ours.expect("a database");
        let sql = format!("PRAGMA journal_mode={mode}; CREATE TABLE t(x)");
        ours.execute_batch(&sql).expect(&sql);
        ours.close().expect("it closes");
    }
    let document = scan(&[path(&place)]);
    for mode in modes {
        assert_eq!(entry(&document, &place.join(mode))["journal_mode"], mode);
    }
    // Stock SQLite writes its own log.
    let file = place.join("onewrite");
    let stock = Connection::open_with_flags_and_vfs(&file, flags, "unix").expect("a database");
    stock
        .execute_batch("INSERT INTO t VALUES(1)")
        .expect("a row");
    let document = scan(&[path(&place)]);
    assert_eq!(entry(&document, &file)["journal_mode"], "wal");
}

#[test]
fn a_database_of_lsmvbt_is_listed_as_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().canonicalize().expect("a path");
    let file = place.join("other.db");
    let mut bytes = b"LSMVBT format 7\0\x07\0\0\0\0\x10\0\0".to_vec();
    bytes.resize(3 * 4096, 0x5a);
    fs::write(&file, bytes).expect("a file");
    let stock = make_database(&place);
    // A program has it open.
    let mut reader = Command::new("sleep");
    reader
        .arg("60")
        .stdin(File::open(&file).expect("it opens"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut reader = reader.spawn().expect("it starts");
    for dir in [&place, &file] {
        let document = scan(&[path(dir)]);
        let found = entry(&document, &file);
        assert_eq!(found["journal_mode"], "lsmvbt", "{found:#}");
        assert_eq!(found["page_size"], 4096, "{found:#}");
        let programs = found["programs"].as_array().expect("programs");
        assert!(programs.iter().any(|it| it["name"] == "sleep"), "{found:#}");
    }
    entry(&scan(&[path(&place)]), &stock);
    let output = onewrite("scan", &[path(&place)]);
    let told = text(&output.stdout);
    assert!(told.contains("docs/lsmvbt-sqlite.md"), "{told}");
    reader.kill().expect("it can be killed");
    reader.wait().expect("it ends");
}
