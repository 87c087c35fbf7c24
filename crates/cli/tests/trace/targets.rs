//! A command, a directory and a partition: the trace tells files and processes apart.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use onewrite_iotrace::scratch::{self, FileSystem, LoopDevice, Mounted, Scratch};
use serde_json::Value;

use crate::common::{can_make, instances};
use crate::*;

/// The work of a shell command: new and old files, names that are not a database's, and a file
/// deleted while open. Also reads past the cache, and discards.
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
            // Under its first name.
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
        // Btrfs takes the first block from the page cache while the reader's memory is not yet
        // faulted in.
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

/// Overwrites existing blocks of a file, and waits for them.
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
        // With a look, the existing files are found. Without one the file is unknown, and the notes
        // say so.
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
