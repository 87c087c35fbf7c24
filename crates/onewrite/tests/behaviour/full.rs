//! A full file system. A store into mapped memory needs space where the file has a hole. On Btrfs, which writes
//! no block in place, it always does, unless the file is one that is written in place.

use super::child::Child;
use super::readonly::by_uri;
use super::scratch::Scratch;
use super::{copy, open, outcome, sql};
use onewrite_common::files::companion;
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// The first kernel whose Btrfs needs no space for a store into blocks that are written in place.
const KERNEL: (u32, u32) = (6, 15);

fn kernel() -> Option<(u32, u32)> {
    let release = rustix::system::uname().release().to_str().ok()?.to_owned();
    let mut numbers = release.split(['.', '-']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The kernel writes back what is mapped: the next store is the first one again.
fn sync() {
    assert!(Command::new("sync").status().expect("sync").success());
}

/// Fills the file system to the last block.
fn fill(path: &Path) {
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(path)
        .expect("a file");
    for bytes in [1 << 20, 4096, 4096] {
        while file.write_all(&vec![7; bytes]).is_ok() {}
        sync();
    }
}

fn flags(path: &Path) -> IFlags {
    let file = File::open(path).expect("a file or directory");
    ioctl_getflags(&file).expect("its flags")
}

/// Files take over how their directory is compressed.
#[test]
fn on_btrfs_mapped_files_are_written_in_place_also_where_others_are_compressed() {
    const NOT_COMPRESSED: IFlags = IFlags::from_bits_retain(0x400);
    let Some(scratch) = Scratch::btrfs() else {
        return;
    };
    for inherited in [IFlags::empty(), IFlags::COMPRESSED, NOT_COMPRESSED] {
        let directory = scratch.path().join(format!("{:x}", inherited.bits()));
        std::fs::create_dir(&directory).expect("a directory");
        let its = File::open(&directory).expect("the directory");
        ioctl_setflags(&its, inherited).expect("its flags");
        let path = directory.join("db");
        let mut process = Child::start(&path);
        assert_eq!(process.sql("PRAGMA journal_mode=onewrite"), "onewrite");
        assert_eq!(process.sql("CREATE TABLE t(x)"), "");
        assert_eq!(flags(&path), inherited, "the database's");
        for mapped in ["-shm", "-onewrite-shm"] {
            let found = flags(&companion(&path, mapped));
            assert_eq!(found, IFlags::NOCOW, "{mapped} under {inherited:?}");
        }
    }
}

/// SQLite makes no wal-index for it, either.
#[test]
fn on_btrfs_a_connection_that_may_only_read_the_wal_index_makes_none() {
    let Some(scratch) = Scratch::btrfs() else {
        return;
    };
    let path = scratch.path().join("db");
    let mut process = Child::start(&path);
    assert_eq!(process.sql("PRAGMA journal_mode=onewrite"), "onewrite");
    assert_eq!(process.sql("CREATE TABLE t(x)"), "");
    let copied = scratch.path().join("copied");
    copy(&path, &copied);
    let shm = companion(&copied, "-shm");
    let reader = by_uri(&copied, "readonly_shm=1");
    let _ = outcome(&reader, "SELECT count(*) FROM t");
    assert!(!shm.exists(), "it was made");
    drop(reader);
    assert_eq!(sql(&open(&copied), "SELECT count(*) FROM t"), "0");
}

/// SQLite's wal-index is mapped, too. In SQLite's own WAL mode this ends the process by SIGBUS.
#[test]
fn on_a_full_btrfs_a_commit_fails_and_no_process_ends() {
    if kernel().is_none_or(|kernel| kernel < KERNEL) {
        eprintln!("SKIPPED: this kernel is too old");
        return;
    }
    let Some(scratch) = Scratch::btrfs() else {
        return;
    };
    for mode in ["onewrite", "waldio"] {
        let path = scratch.path().join(mode);
        let mut processes = [Child::start(&path), Child::start(&path)];
        assert_eq!(
            processes[0].sql(&format!("PRAGMA journal_mode={mode}")),
            mode
        );
        processes[0].sql("CREATE TABLE t(x)");
        let mut rows = 0;
        let mut insert = |processes: &mut [Child]| {
            for process in processes {
                process.sql("PRAGMA busy_timeout=10000");
                let answer = process.sql("INSERT INTO t VALUES(1)");
                let is_full = answer.starts_with("error 13");
                assert!(answer.is_empty() || is_full, "{mode}: {answer}");
                rows += u32::from(!is_full);
            }
            sync();
            rows
        };
        for _ in 0..10 {
            insert(&mut processes);
        }
        let filler = scratch.path().join("filler");
        fill(&filler);
        for _ in 0..10 {
            insert(&mut processes);
        }
        std::fs::remove_file(filler).expect("it is removed");
        sync();
        let rows = insert(&mut processes);
        for process in &mut processes {
            assert_eq!(process.sql("SELECT count(*) FROM t"), rows.to_string());
            assert_eq!(process.sql("PRAGMA integrity_check"), "ok", "{mode}");
        }
    }
}

/// `mkfs.ext4` chooses such blocks below 512 MB. SQLite writes one byte in each 4 KiB of its wal-index, which
/// leaves three blocks of four as holes. In SQLite's own WAL mode this ends a process by SIGBUS that opens the
/// database where little space is left.
#[test]
fn on_a_full_ext4_with_small_blocks_no_process_ends() {
    for mode in ["onewrite", "direct", "waldio"] {
        let Some(scratch) = Scratch::ext4(32, &["-b", "1024", "-m", "0"], "") else {
            return;
        };
        let path = scratch.path().join("db");
        let mut process = Child::start(&path);
        assert_eq!(process.sql(&format!("PRAGMA journal_mode={mode}")), mode);
        assert_eq!(process.sql("CREATE TABLE t(x)"), "");
        drop(process);
        let filler = scratch.path().join("filler");
        fill(&filler);
        let mut rows = 0;
        for _ in 0..12 {
            let mut process = Child::start(&path);
            let found = process.sql("SELECT count(*) FROM t");
            let answer = process.sql("INSERT INTO t VALUES(1)");
            let is_of_space = |answer: &str| answer.starts_with("error 13");
            assert!(
                is_of_space(&found) || found == rows.to_string(),
                "{mode}: {found}"
            );
            assert!(
                is_of_space(&answer) || answer.is_empty(),
                "{mode}: {answer}"
            );
            rows += u32::from(answer.is_empty());
            drop(process);
            let file = File::options().write(true).open(&filler).expect("the file");
            let bytes = file.metadata().expect("its size").len();
            file.set_len(bytes - 4096).expect("it is cut");
            sync();
        }
        std::fs::remove_file(filler).expect("it is removed");
        sync();
        let db = open(&path);
        assert_eq!(sql(&db, "INSERT INTO t VALUES(1)"), "", "{mode}");
        assert_eq!(
            sql(&db, "SELECT count(*) FROM t"),
            (rows + 1).to_string(),
            "{mode}"
        );
        assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok", "{mode}");
    }
}
