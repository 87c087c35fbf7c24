//! `onewrite trace`: what it counts is what the device counts, on every file system and in every journal
//! mode; what is told apart is what was done; and nothing is left behind.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{can_make, onewrite, path, text};
use onewrite_iotrace::scratch::{self, FileSystem, LoopDevice, Mounted, Scratch};
use serde_json::Value;

const MODES: &str = "delete,truncate,persist,memory,off,wal,direct,waldio,onewrite,swal";

fn trace(args: &[&str]) -> Output {
    onewrite("trace", args)
}

/// The document of a trace that must succeed.
fn document(args: &[&str]) -> Value {
    let output = trace(&[&["--json"], args].concat());
    let said = text(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

fn runs(document: &Value) -> &[Value] {
    document["runs"].as_array().expect("runs")
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

fn list<'a>(run: &'a Value, name: &str) -> &'a [Value] {
    run[name].as_array().expect("a list")
}

/// A figure of a kind.
fn of_kind(run: &Value, kind: &str, figure: &str) -> u64 {
    let found = list(run, "by_kind")
        .iter()
        .find(|entry| entry["kind"] == kind);
    number(&found.expect("every kind is listed")[figure])
}

/// The sum over kinds, and over what the trace did, is what the device counted.
fn assert_exact(run: &Value) {
    let who = &run["mode"];
    assert_eq!(run["lost_events"], 0, "{who}");
    assert_eq!(run["exact"], true, "{who}: {}", run["checks"]);
    let checks = list(run, "checks");
    assert_eq!(checks.len(), 7);
    for check in checks {
        assert_eq!(check["traced"], check["counted"], "{who} {check}");
    }
    let counted = |what: &str| {
        let found = checks.iter().find(|check| check["what"] == what);
        number(&found.expect("a check")["counted"])
    };
    let sum = |list_name: &str, figure: &str| -> u64 {
        list(run, list_name)
            .iter()
            .map(|entry| number(&entry[figure]))
            .sum()
    };
    for by in ["by_kind", "by_process"] {
        assert_eq!(sum(by, "write_bytes"), counted("write_bytes"), "{who} {by}");
        assert_eq!(sum(by, "read_bytes"), counted("read_bytes"), "{who} {by}");
        assert_eq!(
            sum(by, "discard_bytes"),
            counted("discard_bytes"),
            "{who} {by}"
        );
    }
    let writes = sum("by_kind", "writes");
    assert_eq!(writes, number(&run["total"]["writes"]), "{who}");
    let without_data = number(&run["total"]["flush_requests"]);
    assert_eq!(writes + without_data, counted("write_requests"), "{who}");
    assert_eq!(number(&run["flushes"]), counted("flushes"), "{who}");
    // Nothing on a file system of our own is unknown.
    assert_eq!(of_kind(run, "unknown", "write_bytes"), 0, "{who}: {run:#}");
}

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
        // Every line is an I/O of the sums, and its parts are all of it.
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

/// What a shell command writes: new and old files, names that are not a database's, a file deleted while
/// it is open, reads past the cache, discards.
const SCRIPT: &str = "
set -e
dd if=/dev/zero of=a.db bs=4096 count=64 conv=fsync 2>&1
dd if=/dev/zero of=a.db-wal bs=4096 count=32 conv=fsync 2>&1
dd if=/dev/zero of=lonely-wal bs=4096 count=16 conv=fsync 2>&1
dd if=/dev/zero of=before bs=4096 count=8 conv=notrunc,fsync 2>&1
mkdir new
dd if=/dev/zero of=new/inside bs=4096 count=4 conv=fsync 2>&1
dd if=/dev/zero of=gone bs=4096 count=2 conv=fsync 2>&1
rm gone
dd if=before of=/dev/null iflag=direct bs=4096 count=8 2>&1
mv before after
dd if=/dev/zero of=after bs=4096 count=8 conv=notrunc,fsync 2>&1
";

#[test]
fn a_command_is_traced_with_its_files_and_processes() {
    for file_system in FileSystem::ALL {
        if !can_make(file_system) {
            continue;
        }
        let setup = "dd if=/dev/zero of=before bs=4096 count=8 conv=fsync && sync";
        let args = [
            "--scratch",
            file_system.name(),
            "--setup",
            setup,
            "--per",
            "2",
        ];
        let document = document(&[&args[..], &["--", "sh", "-c", SCRIPT]].concat());
        let run = &runs(&document)[0];
        assert_exact(run);
        assert_eq!(run["exit_code"], 0);
        let files = list(run, "by_file");
        let file = |name: &str| {
            let found = files.iter().find(|file| file["path"] == name);
            found.unwrap_or_else(|| panic!("{}: {name} in {files:?}", file_system.name()))
        };
        for (name, kind, kib) in [
            ("a.db", "database", 256),
            ("a.db-wal", "log", 128),
            ("lonely-wal", "other", 64),
            // Under the name that it had first.
            ("before", "other", 64),
            ("new/inside", "other", 16),
            ("gone", "other", 8),
        ] {
            let file = file(name);
            let seen = (file["kind"].as_str(), number(&file["write_bytes"]));
            assert_eq!(
                seen,
                (Some(kind), kib << 10),
                "{} {name}",
                file_system.name()
            );
        }
        // Btrfs takes the first block from the page cache, while the reader's memory is not yet there.
        let read = number(&file("before")["read_bytes"]);
        let cached = u64::from(file_system == FileSystem::Btrfs) * 4096;
        assert!((32 << 10) - cached <= read && read <= 32 << 10, "{read}");
        let dd = list(run, "by_process")
            .iter()
            .filter(|entry| entry["name"] == "dd");
        let by_dd: u64 = dd.map(|entry| number(&entry["write_bytes"])).sum();
        assert!(by_dd >= 536 << 10, "{by_dd}");
        let written = run["total"]["write_bytes"].as_f64();
        assert_eq!(
            run["per"]["write_bytes"].as_f64(),
            written.map(|bytes| bytes / 2.0)
        );
        let write = list(run, "latency_us")
            .iter()
            .find(|took| took["of"] == "write");
        let write = write.expect("writes took some time");
        assert_eq!(write["count"], run["total"]["writes"]);
        assert!(
            write["p50"].as_f64() > Some(0.0) && write["max"].as_f64() >= write["p99"].as_f64()
        );
    }
}

/// Overwrites blocks that a file has, and waits for them.
fn overwrite(file: &Path, bytes: usize) {
    use std::io::Write;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .open(file)
        .expect("the file");
    file.write_all(&vec![7; bytes]).expect("a write");
    file.sync_all().expect("a sync");
}

#[test]
fn a_directory_is_traced_for_a_time_with_files_that_were_there_before() {
    for file_system in FileSystem::ALL {
        if !can_make(file_system) {
            continue;
        }
        let parent = tempfile::tempdir().expect("a directory");
        let stop = std::sync::atomic::AtomicBool::new(false);
        let scratch = Scratch::create(&scratch::Options {
            file_system,
            bytes: 512 << 20,
            parent: parent.path(),
            stop: &stop,
        });
        let scratch = scratch.expect("a file system");
        let dir = scratch.root().join("app data");
        fs::create_dir(&dir).expect("a directory");
        let header = [&b"SQLite format 3\0"[..], &vec![0; 65_520]].concat();
        let (database, other) = (dir.join("a"), scratch.root().join("b"));
        for file in [&database, &other] {
            fs::write(file, &header).expect("a file");
            fs::File::open(file)
                .expect("the file")
                .sync_all()
                .expect("a sync");
        }
        // Found by the files that are there, and without: then it is unknown, and said so.
        for look in ["30", "0"] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_onewrite"));
            command.args(["trace", "--json", "--seconds", "3", "--look", look, "--dir"]);
            let child = command.arg(&dir).stdout(Stdio::piped()).spawn();
            let child = child.expect("the command");
            let begin = Instant::now();
            while instances(child.id()) == 0 && begin.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_secs(1));
            overwrite(&other, 16 << 10);
            let magic = fs::read(&database).expect("the file");
            assert!(magic.starts_with(b"SQLite"), "{file_system:?}");
            overwrite_behind_header(&database);
            let output = child.wait_with_output().expect("its end");
            let document: Value = serde_json::from_slice(&output.stdout).expect("the document");
            let run = &runs(&document)[0];
            assert_eq!(run["exact"], true, "{}", run["checks"]);
            let bytes = |kind| of_kind(run, kind, "write_bytes");
            let seen = (bytes("database"), bytes("other"), bytes("unknown"));
            let notes = run["notes"].to_string();
            match look {
                "30" => {
                    assert_eq!(seen, (32 << 10, 16 << 10, 0), "{file_system:?} {run:#}");
                    assert_eq!(notes, "[]");
                }
                _ => assert_eq!(seen, (0, 0, 48 << 10), "{file_system:?} {run:#}"),
            }
            assert!(
                look == "30" || notes.contains("not all files were looked at"),
                "{notes}"
            );
        }
        scratch.remove().expect("nothing left");
    }
}

/// 32 KiB of a file, from its second block on.
fn overwrite_behind_header(file: &Path) {
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new()
        .write(true)
        .open(file)
        .expect("the file");
    file.write_all_at(&[7; 32 << 10], 4096).expect("a write");
    file.sync_all().expect("a sync");
}

#[test]
fn a_partition_is_traced_without_what_others_do_on_its_disk() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("image");
    // Two partitions of 300 MiB.
    let mut table = vec![0; 512];
    for (at, start) in [(446, 2048u32), (462, 616_448)] {
        table[at + 4] = 0x83;
        table[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
        table[at + 12..at + 16].copy_from_slice(&614_400u32.to_le_bytes());
    }
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    fs::write(&image, &table).expect("an image");
    let file = fs::OpenOptions::new().write(true).open(&image);
    file.and_then(|file| file.set_len(700 << 20))
        .expect("its size");
    let disk = LoopDevice::attach(&image).expect("a loop device");
    let found = Command::new("partx").arg("-a").arg(disk.node()).status();
    assert!(found.expect("partx").success());
    let node = disk.node().display();
    let (first, second) = (format!("{node}p1"), format!("{node}p2"));
    FileSystem::Ext4
        .make(Path::new(&second), &[])
        .expect("a file system");
    scratch::private_mounts().expect("mounts of our own");
    let root = dir.path().join("mnt");
    fs::create_dir(&root).expect("a directory");
    let mounted = Mounted::new(Path::new(&second), &root, "ext4").expect("a mount");
    let before = root.join("before");
    fs::write(&before, vec![1; 64 << 10]).expect("a file");
    let others = format!(
        "dd if=/dev/zero of={} bs=4096 count=2 conv=notrunc,fsync
         dd if=/dev/zero of={first} bs=4096 count=4 conv=fsync
         dd if=/dev/zero of={}/a.db-wal bs=4096 count=2 conv=fsync
         dd if=/dev/zero of={node} bs=512 seek=2000 count=1 conv=fsync",
        before.display(),
        root.display(),
    );
    let document = document(&["--device", &second, "--", "sh", "-c", &others]);
    let run = &runs(&document)[0];
    assert_exact(run);
    // The log has no database.
    assert_eq!(of_kind(run, "other", "write_bytes"), 16 << 10);
    assert!(of_kind(run, "fs_journal", "write_bytes") > 0);
    mounted.unmount().expect("no mount left");
    let gone = Command::new("partx").arg("-d").arg(disk.node()).status();
    assert!(gone.expect("partx").success());
    disk.detach().expect("no device left");
}

#[test]
fn on_btrfs_log_trees_are_told_apart_from_all_others() {
    if !can_make(FileSystem::Btrfs) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("image");
    let file = fs::File::create(&image).expect("an image");
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
    // What was last written at an address is there, and a block of a tree says which tree it is of.
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

#[test]
fn people_get_tables() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let picture = dir.path().join("picture.png");
    let command = "dd if=/dev/zero of=file bs=4096 count=4 conv=fsync 2>&1";
    let args = ["--scratch", "ext4", "--per", "4", "--plot", path(&picture)];
    let output = trace(&[&args[..], &["--", "sh", "-c", command]].concat());
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for part in [
        "on ext4 (loop",
        "file-system journal",
        "other file",
        "file ",
        "dd ",
        "jbd2/loop",
        "p99 us",
        "each",
        "exact: bytes, requests and flushes are those that the device counted",
    ] {
        assert!(table.contains(part), "{part} in {table}");
    }
    assert!(
        fs::read(&picture)
            .expect("the picture")
            .starts_with(b"\x89PNG")
    );
    let args = [
        "--scratch",
        "ext4",
        "--insert",
        "wal,onewrite",
        "--count",
        "3",
    ];
    let table = text(&trace(&args).stdout);
    assert!(
        table.contains("by journal mode; figures are those of one of 3"),
        "{table}"
    );
}

#[test]
fn the_exit_code_is_the_commands() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    for (command, code) in [("exit 7", 7), ("kill -9 $$", 137)] {
        let output = trace(&["--scratch", "ext4", "--json", "--", "sh", "-c", command]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).expect("the document");
        let run = &runs(&document)[0];
        let signal = (code > 128).then_some(code - 128);
        assert_eq!(run["signal"].as_i64(), signal.map(i64::from));
        assert_eq!(run["exit_code"].is_null(), signal.is_some());
    }
}

#[test]
fn what_cannot_be_traced_is_explained() {
    let said = |args: &[&str], code: i32| {
        let output = trace(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
        said
    };
    for (args, part) in [
        (&[][..], "--seconds"),
        (&["--insert", "wal"], "--scratch"),
        (
            &["--scratch", "ext4", "--insert", "walido"],
            "no mode is called",
        ),
        (&["--seconds", "0"], "more than 0"),
        (&["--seconds", "1", "--", "true"], "cannot be used with"),
        (&["--plot", "a.jpg", "--", "true"], ".svg or .png"),
        (&["--per", "0", "--", "true"], "--per"),
    ] {
        let said = said(args, 2);
        assert!(said.contains(part), "{args:?}: {said}");
    }
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: tracing takes root");
        return;
    }
    for (args, part) in [
        (
            &["--dir", "/proc", "--seconds", "1"][..],
            "only ext4, XFS and Btrfs",
        ),
        (&["--dir", "/no/such", "--seconds", "1"], "/no/such"),
        (
            &["--device", "/dev/null", "--seconds", "1"],
            "no block device",
        ),
        (
            &["--events", "/no/such/file", "--", "true"],
            "/no/such/file",
        ),
    ] {
        let said = said(args, 1);
        assert!(said.contains(part), "{args:?}: {said}");
    }
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let error = said(&["--scratch", "ext4", "--", "no-such-command"], 1);
    assert!(
        error.contains("no-such-command") && error.contains("PATH"),
        "{error}"
    );
    let error = said(&["--scratch", "ext4", "--setup", "exit 3", "--", "true"], 1);
    assert!(
        error.contains("set-up failed") && error.contains("exit 3"),
        "{error}"
    );
}

#[test]
fn without_root_it_says_so() {
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: needs root, to give it up");
        return;
    }
    let dir = tempfile::tempdir_in("/tmp").expect("a directory");
    use std::os::unix::fs::PermissionsExt;
    let all = fs::Permissions::from_mode(0o755);
    fs::set_permissions(dir.path(), all).expect("permissions");
    let program = dir.path().join("onewrite");
    fs::copy(env!("CARGO_BIN_EXE_onewrite"), &program).expect("a copy");
    let mut command = Command::new(&program);
    let output = command
        .args(["trace", "--", "true"])
        .uid(65534)
        .gid(65534)
        .current_dir(dir.path())
        .output()
        .expect("the command");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("takes root") && said.contains("sudo"),
        "{said}"
    );
}

/// Tracing instances of a process.
fn instances(pid: u32) -> usize {
    let entries = fs::read_dir("/sys/kernel/tracing/instances");
    let prefix = format!("onewrite-{pid}-");
    let names = entries.into_iter().flatten().flatten();
    names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(&prefix))
        .count()
}

#[test]
fn ctrl_c_ends_the_trace_and_shows_what_was_seen() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let script = "dd if=/dev/zero of=file bs=4096 count=4 conv=fsync 2>/dev/null; sleep 100";
    let child = Command::new(env!("CARGO_BIN_EXE_onewrite"))
        .args(["trace", "--scratch", "ext4", "--json", "--scratch-dir"])
        .arg(dir.path())
        .args(["--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command");
    let pid = child.id();
    let begin = Instant::now();
    while !is_sleeping(pid) {
        assert!(
            begin.elapsed() < Duration::from_secs(120),
            "it never came to sleep"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(instances(pid), 1);
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::INT,
    )
    .expect("a signal");
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("the document");
    assert_exact(&runs(&document)[0]);
    assert!(of_kind(&runs(&document)[0], "other", "write_bytes") >= 16 << 10);
    assert_eq!(instances(pid), 0);
    assert_eq!(fs::read_dir(dir.path()).expect("the directory").count(), 0);
}

/// Whether a process of the traced command is `sleep`.
fn is_sleeping(pid: u32) -> bool {
    let children = |pid: u32| -> Vec<u32> {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let text = fs::read_to_string(Path::new(&path)).unwrap_or_default();
        text.split_ascii_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect()
    };
    let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let below = children(pid).into_iter().flat_map(|child| {
        let mut all = children(child);
        all.push(child);
        all
    });
    below.into_iter().any(|pid| name(pid).trim() == "sleep")
}
