//! The block I/O layer on real files: in the temporary directory and, as root, on ext4 images.

mod scratch;

use onewrite::storage::{
    Access, AlignedBuf, Capabilities, Create, DirectIo, Durability, Init, LockByte, LockKind,
    LogFile, NewFile, StorageError, WriteCache, sync_directory,
};
use scratch::ScratchExt4;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const NEW: Create = Create::IfMissing(NewFile {
    mode: 0o644,
    owner: None,
});
const MIB: u64 = 1 << 20;

fn open(path: &Path, direct: DirectIo) -> LogFile {
    LogFile::open(path, NEW, Access::ReadWrite, direct).expect("a log file")
}

/// Runs `test` in the temporary directory and on an ext4 image, with and without direct I/O.
fn everywhere(test: impl Fn(&Path, DirectIo)) {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let ext4 = ScratchExt4::new(64, &[], "");
    let places = [Some(temporary.path()), ext4.as_ref().map(ScratchExt4::path)];
    for place in places.into_iter().flatten() {
        for direct in [DirectIo::Auto, DirectIo::Never] {
            let directory = place.join(format!("{direct:?}"));
            std::fs::create_dir(&directory).expect("a directory");
            test(&directory, direct);
        }
    }
}

fn pattern(bytes: usize, salt: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(bytes);
    for (i, byte) in buf.as_mut_slice().iter_mut().enumerate() {
        *byte = (i % 251) as u8 ^ salt;
    }
    buf
}

fn read(file: &LogFile, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xee; len];
    let n = file.read_at(&mut buf, offset).expect("a read");
    buf.truncate(n);
    buf
}

/// Extents of a file as filefrag prints them: (bytes, unwritten).
fn extents(path: &Path) -> Vec<(u64, bool)> {
    let output = Command::new("filefrag")
        .args(["-v", "-b4096"])
        .arg(path)
        .output();
    let output = output.expect("filefrag of e2fsprogs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // "   0:        0..     255:      33280..     33535:    256:             last,eof"
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows = text.lines().filter_map(|line| {
        let columns: Vec<&str> = line.splitn(6, ':').map(str::trim).collect();
        columns.first()?.parse::<u32>().ok()?;
        let blocks: u64 = columns.get(3)?.parse().ok()?;
        Some((
            blocks * 4096,
            columns.get(4..)?.concat().contains("unwritten"),
        ))
    });
    rows.collect()
}

#[test]
fn what_is_written_is_read_back_by_every_path() {
    everywhere(|directory, direct| {
        let file = open(&directory.join("log"), direct);
        let first = pattern(8192, 1);
        let second = pattern(4096, 2);
        file.write_at(&first, 0, Durability::None).expect("a write");
        assert_eq!(read(&file, 0, 8192), first.as_slice());
        // Over pages that the read has just cached.
        file.write_at(&second, 4096, Durability::WriteThrough)
            .expect("a write");
        assert_eq!(read(&file, 0, 4096), first[..4096]);
        assert_eq!(read(&file, 4096, 4096), second.as_slice());
        // A buffered write, then a direct one into the page that it dirtied.
        file.write_buffered_at(&[7; 100], 50).expect("a write");
        file.write_at(&first[..4096], 0, Durability::WriteThrough)
            .expect("a write");
        assert_eq!(read(&file, 0, 4096), first[..4096]);
        file.write_buffered_at(&[7; 100], 50).expect("a write");
        file.flush().expect("a flush");
        assert_eq!(read(&file, 50, 100), [7; 100]);
        assert_eq!(read(&file, 8000, 4096).len(), 192, "no bytes past the end");
        assert_eq!(read(&file, 1 << 40, 4096), b"");
        assert_eq!(file.size().expect("a size"), 8192);
    });
}

#[test]
fn writes_are_direct_on_ext4_and_counted() {
    let Some(ext4) = ScratchExt4::new(64, &[], "") else {
        return;
    };
    let file = open(&ext4.path().join("log"), DirectIo::Auto);
    let align = file.direct().expect("ext4 on a loop device has direct I/O");
    assert_eq!(file.why_not_direct(), None);
    assert!(align.offset.is_power_of_two() && align.offset <= 4096);
    file.initialize(0..MIB, Init::ZeroFill)
        .expect("a preallocation");
    let setup = file.counters().snapshot();
    assert_eq!((setup.writes, setup.write_bytes, setup.flushes), (0, 0, 0));
    assert_eq!((setup.setup_write_bytes, setup.setup_flushes), (MIB, 1));
    for n in 0..10 {
        file.write_at(&pattern(4096, 3), n * 4096, Durability::WriteThrough)
            .expect("a write");
    }
    file.write_at(&pattern(4096, 3), 0, Durability::None)
        .expect("a write");
    file.flush().expect("a flush");
    let counts = file.counters().snapshot();
    assert_eq!((counts.writes, counts.write_bytes), (11, 11 * 4096));
    assert_eq!((counts.write_through, counts.flushes), (10, 1));
}

#[test]
fn buffered_write_through_is_a_write_and_a_flush() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = open(&directory.path().join("log"), DirectIo::Never);
    assert_eq!(file.direct(), None);
    assert!(
        file.why_not_direct()
            .is_some_and(|reason| reason.contains("turned off"))
    );
    // No alignment is asked of buffered writes.
    file.write_at(&[1; 100], 77, Durability::WriteThrough)
        .expect("a write");
    file.write_at(&[1; 100], 77, Durability::None)
        .expect("a write");
    let counts = file.counters().snapshot();
    assert_eq!(
        (counts.writes, counts.flushes, counts.write_through),
        (2, 1, 0)
    );
}

#[test]
fn unaligned_direct_writes_are_refused_with_all_they_need() {
    let Some(ext4) = ScratchExt4::new(64, &[], "") else {
        return;
    };
    let file = open(&ext4.path().join("log"), DirectIo::Auto);
    let align = file.direct().expect("direct I/O");
    let buf = pattern(3 * 4096, 4);
    let bad: [(&[u8], u64); 3] = [(&buf[..4096], 100), (&buf[..100], 0), (&buf[1..4097], 0)];
    for (bytes, offset) in bad {
        let error = file
            .write_at(bytes, offset, Durability::None)
            .expect_err("unaligned");
        assert!(
            matches!(error, StorageError::Misaligned { align: a, .. } if a == align),
            "{error}"
        );
        let text = error.to_string();
        assert!(
            text.contains("/log") && text.contains(&align.offset.to_string()),
            "{text}"
        );
    }
    assert_eq!(file.size().expect("a size"), 0);
    assert_eq!(file.counters().writes.load(Relaxed), 0);
    // The smallest aligned write works.
    let least = align.offset as usize;
    file.write_at(
        &buf[..least],
        u64::from(align.offset),
        Durability::WriteThrough,
    )
    .expect("an aligned write");
    assert_eq!(read(&file, u64::from(align.offset), least), buf[..least]);
}

#[test]
fn every_initialization_extends_the_file_with_zeros_and_keeps_what_was_there() {
    everywhere(|directory, direct| {
        for init in [Init::ZeroFill, Init::WriteZeroes, Init::Unwritten] {
            let file = open(&directory.join(init.to_string()), direct);
            let data = pattern(4096, 5);
            file.write_at(&data, 0, Durability::WriteThrough)
                .expect("a write");
            // Not a multiple of the piece size, and then a second chunk.
            let (middle, end) = (4096 + 2 * MIB + 12288, 4 * MIB);
            match file.initialize(4096..middle, init) {
                Err(e) if init == Init::WriteZeroes && e.is_unsupported() => {
                    assert!(e.to_string().contains("zero-fill"), "the way out: {e}");
                    assert_eq!(file.size().expect("a size"), 4096, "as it was");
                    eprintln!("write-zeroes is not available on {}", directory.display());
                    continue;
                }
                result => result.expect("a preallocation"),
            }
            assert_eq!(file.size().expect("a size"), middle);
            file.initialize(middle..end, init).expect("a preallocation");
            assert_eq!(file.size().expect("a size"), end);
            assert_eq!(read(&file, 0, 4096), data.as_slice());
            let rest = read(&file, 4096, 8 << 20);
            assert_eq!(rest.len() as u64, end - 4096);
            assert!(rest.iter().all(|&b| b == 0), "{init}");
            assert_eq!(
                file.counters().setup_flushes.load(Relaxed),
                2,
                "one flush a chunk"
            );
        }
    });
}

#[test]
fn initializing_existing_data_zeroes_it() {
    everywhere(|directory, direct| {
        let file = open(&directory.join("log"), direct);
        file.write_at(&pattern(16384, 6), 0, Durability::WriteThrough)
            .expect("a write");
        file.initialize(4096..8192, Init::ZeroFill)
            .expect("a preallocation");
        assert_eq!(file.size().expect("a size"), 16384);
        assert_eq!(read(&file, 0, 4096), pattern(4096, 6).as_slice());
        assert_eq!(read(&file, 4096, 4096), [0; 4096]);
        assert_eq!(read(&file, 8192, 4096), pattern(16384, 6)[8192..12288]);
    });
}

#[test]
fn an_unaligned_range_is_initialized_exactly() {
    everywhere(|directory, direct| {
        let file = open(&directory.join("log"), direct);
        file.initialize(100..5000, Init::ZeroFill)
            .expect("a preallocation");
        assert_eq!(file.size().expect("a size"), 5000);
        assert_eq!(read(&file, 0, 8192), [0; 5000]);
        file.initialize(5000..5000, Init::ZeroFill)
            .expect("nothing to do");
        assert_eq!(file.size().expect("a size"), 5000);
    });
}

#[test]
fn zero_fill_leaves_written_extents_and_fallocate_unwritten_ones() {
    let Some(ext4) = ScratchExt4::new(64, &[], "") else {
        return;
    };
    for direct in [DirectIo::Auto, DirectIo::Never] {
        for (init, unwritten) in [(Init::ZeroFill, false), (Init::Unwritten, true)] {
            let path = ext4.path().join(format!("{init}-{direct:?}"));
            let file = open(&path, direct);
            file.initialize(0..4 * MIB, init).expect("a preallocation");
            let extents = extents(&path);
            assert_eq!(
                extents.iter().map(|e| e.0).sum::<u64>(),
                4 * MIB,
                "{extents:?}"
            );
            assert!(
                extents.iter().all(|e| e.1 == unwritten),
                "{init}: {extents:?}"
            );
            assert!(
                extents.len() <= 2,
                "contiguous on an empty file system: {extents:?}"
            );
        }
    }
}

#[test]
fn write_zeroes_leaves_written_extents_where_the_device_can() {
    let Some(ext4) = ScratchExt4::new(64, &[], "") else {
        return;
    };
    let found = Capabilities::of_dir(ext4.path()).expect("capabilities");
    let path = ext4.path().join("log");
    let file = open(&path, DirectIo::Auto);
    let result = file.initialize(0..4 * MIB, Init::WriteZeroes);
    match found.write_zeroes {
        Ok(()) => {
            result.expect("what the probe promised");
            assert!(extents(&path).iter().all(|e| !e.1));
        }
        Err(reason) => {
            let error = result.expect_err("what the probe denied");
            assert!(error.is_unsupported(), "{error} (probe: {reason})");
        }
    }
}

#[test]
fn a_full_file_system_leaves_the_file_as_it_was() {
    let Some(ext4) = ScratchExt4::new(16, &["-m", "0", "-b", "4096"], "") else {
        return;
    };
    for direct in [DirectIo::Auto, DirectIo::Never] {
        let path = ext4.path().join(format!("log-{direct:?}"));
        let file = open(&path, direct);
        file.initialize(0..MIB, Init::ZeroFill)
            .expect("room for one MiB");
        let data = pattern(4096, 8);
        file.write_at(&data, 4096, Durability::WriteThrough)
            .expect("a write");
        for init in [Init::ZeroFill, Init::Unwritten] {
            let before = std::fs::metadata(&path).expect("metadata").blocks();
            let writes = file.counters().snapshot().setup_writes;
            let error = file
                .initialize(MIB..64 * MIB, init)
                .expect_err("64 MiB on 16");
            assert!(error.is_no_space(), "{error}");
            assert!(
                error.to_string().contains("free some space"),
                "the way out: {error}"
            );
            let after = std::fs::metadata(&path).expect("metadata");
            assert_eq!(after.len(), MIB, "{init}, {direct:?}");
            // ext4 keeps the one block of its extent tree that the attempt has needed.
            assert!(
                after.blocks() <= before + 8,
                "{init}: {before}, now {}",
                after.blocks()
            );
            assert_eq!(read(&file, 4096, 4096), data.as_slice());
            assert_eq!(
                file.counters().snapshot().setup_writes,
                writes,
                "known before any work"
            );
        }
        file.initialize(MIB..2 * MIB, Init::ZeroFill)
            .expect("still room for one more");
    }
}

#[test]
fn truncation_frees_and_grows() {
    everywhere(|directory, direct| {
        let file = open(&directory.join("log"), direct);
        file.initialize(0..MIB, Init::ZeroFill)
            .expect("a preallocation");
        file.truncate(4096).expect("a truncation");
        assert_eq!(file.size().expect("a size"), 4096);
        file.truncate(8192).expect("a truncation");
        assert_eq!(read(&file, 0, 1 << 20), [0; 8192]);
    });
}

#[test]
fn locks_of_two_open_files_exclude_each_other_byte_by_byte() {
    use LockKind::{Exclusive, Shared};
    everywhere(|directory, direct| {
        let path = directory.join("log");
        let (a, b) = (open(&path, direct), open(&path, direct));
        let byte = LockByte::Presence;
        assert!(a.try_lock(byte, Shared).expect("a lock"));
        assert!(b.try_lock(byte, Shared).expect("a lock"));
        assert!(
            !a.try_lock(byte, Exclusive).expect("an answer"),
            "b holds it shared"
        );
        assert!(a.is_locked_by_other(byte, Exclusive).expect("an answer"));
        assert!(!a.is_locked_by_other(byte, Shared).expect("an answer"));
        b.unlock(byte).expect("unlocked");
        assert!(
            !a.is_locked_by_other(byte, Exclusive)
                .expect("own locks do not count")
        );
        assert!(a.try_lock(byte, Exclusive).expect("upgraded"));
        assert!(!b.try_lock(byte, Shared).expect("an answer"));
        assert!(b.is_locked_by_other(byte, Shared).expect("an answer"));
        assert!(
            b.try_lock(LockByte::Extension, Exclusive)
                .expect("another byte")
        );
        assert!(!a.try_lock(LockByte::Extension, Shared).expect("an answer"));
        assert!(
            a.try_lock(LockByte::Poison, Exclusive)
                .expect("a third byte")
        );
        // Another descriptor of this process that comes and goes takes nothing with it, unlike
        // with POSIX locks.
        drop(open(&path, direct));
        assert!(!b.try_lock(byte, Shared).expect("an answer"));
        drop(a);
        assert!(
            b.try_lock(byte, Exclusive)
                .expect("free after the holder closed")
        );
    });
}

#[test]
fn a_waiting_lock_waits_until_the_holder_lets_go() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("log");
    let (a, b) = (open(&path, DirectIo::Auto), open(&path, DirectIo::Auto));
    a.lock(LockByte::Extension, LockKind::Exclusive)
        .expect("a lock");
    let wait = Duration::from_millis(150);
    std::thread::scope(|scope| {
        let started = Instant::now();
        let waiter = scope.spawn(move || {
            b.lock(LockByte::Extension, LockKind::Exclusive)
                .expect("a lock");
            started.elapsed()
        });
        std::thread::sleep(wait);
        a.unlock(LockByte::Extension).expect("unlocked");
        assert!(waiter.join().expect("the waiter") >= wait);
    });
}

#[test]
fn a_killed_process_leaves_no_lock() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("log");
    let file = open(&path, DirectIo::Auto);
    // flock(1) would take another kind of lock; Python has the same fcntl call.
    let script = "import fcntl,struct,sys,time\n\
        f = open(sys.argv[1], 'r+b')\n\
        lock = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0x7fffff00, 1, 0)\n\
        fcntl.fcntl(f, 37, lock)\n\
        print('held', flush=True)\n\
        time.sleep(60)\n";
    let child = Command::new("python3")
        .args(["-c", script])
        .arg(&path)
        .stdout(std::process::Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("SKIPPED: needs python3");
        return;
    };
    let mut held = [0; 5];
    child
        .stdout
        .take()
        .expect("its output")
        .read_exact(&mut held)
        .expect("a line");
    let seen = file.is_locked_by_other(LockByte::Presence, LockKind::Shared);
    child.kill().expect("killed");
    child.wait().expect("gone");
    assert!(
        seen.expect("an answer"),
        "the documented byte, held by another process"
    );
    assert!(
        file.try_lock(LockByte::Presence, LockKind::Exclusive)
            .expect("an answer")
    );
}

#[test]
fn a_new_file_gets_its_permissions_whatever_the_umask() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("log");
    let new = NewFile {
        mode: 0o666,
        owner: None,
    };
    LogFile::open(&path, Create::New(new), Access::ReadWrite, DirectIo::Auto).expect("a file");
    let mode = std::fs::metadata(&path)
        .expect("metadata")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o666);
    let again = LogFile::open(&path, Create::New(new), Access::ReadWrite, DirectIo::Auto);
    assert_eq!(
        again.expect_err("it exists").kind(),
        std::io::ErrorKind::AlreadyExists
    );
    if rustix::process::geteuid().is_root() {
        let path = directory.path().join("owned");
        let new = NewFile {
            mode: 0o600,
            owner: Some((12, 34)),
        };
        LogFile::open(&path, Create::New(new), Access::ReadWrite, DirectIo::Auto).expect("a file");
        let metadata = std::fs::metadata(&path).expect("metadata");
        assert_eq!((metadata.uid(), metadata.gid()), (12, 34));
    }
}

#[test]
fn what_is_no_log_file_is_refused_by_name() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| directory.path().join(name);
    let open = |name: &str, create, access| {
        let error = LogFile::open(&at(name), create, access, DirectIo::Auto).expect_err(name);
        assert!(error.to_string().contains(name), "{error}");
        error
    };
    assert!(open("missing", Create::Never, Access::ReadWrite).is_not_found());
    std::fs::create_dir(at("directory")).expect("a directory");
    open("directory", Create::Never, Access::ReadWrite);
    let error = open("directory", Create::Never, Access::ReadOnly);
    assert!(matches!(error, StorageError::NotAFile { .. }), "{error}");
    std::os::unix::fs::symlink(at("elsewhere"), at("link")).expect("a link");
    let error = open("link", NEW, Access::ReadWrite);
    assert!(error.to_string().contains("symbolic link"), "{error}");
    let mkfifo = Command::new("mkfifo")
        .arg(at("fifo"))
        .status()
        .expect("mkfifo");
    assert!(mkfifo.success());
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let error = open("fifo", Create::Never, access);
        assert!(matches!(error, StorageError::NotAFile { .. }), "{error}");
    }
}

#[test]
fn a_read_only_file_reads_and_locks_shared_and_refuses_the_rest() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("log");
    std::fs::write(&path, b"content").expect("a file");
    let file = LogFile::open(&path, Create::Never, Access::ReadOnly, DirectIo::Auto).expect("open");
    assert_eq!(read(&file, 3, 100), b"tent");
    let refused = [
        file.write_at(&[0; 4096], 0, Durability::None),
        file.write_buffered_at(&[0], 0),
        file.truncate(0),
        file.initialize(0..4096, Init::ZeroFill),
        file.lock(LockByte::Presence, LockKind::Exclusive),
        file.try_lock(LockByte::Presence, LockKind::Exclusive)
            .map(|_| ()),
    ];
    for result in refused {
        let error = result.expect_err("read-only");
        assert!(matches!(error, StorageError::ReadOnly { .. }), "{error:?}");
    }
    assert!(
        file.try_lock(LockByte::Presence, LockKind::Shared)
            .expect("a shared lock")
    );
    assert!(
        !file
            .is_locked_by_other(LockByte::Presence, LockKind::Exclusive)
            .expect("an answer")
    );
    assert_eq!(std::fs::read(&path).expect("a file"), b"content");
}

#[test]
fn a_deleted_or_replaced_file_is_noticed() {
    everywhere(|directory, direct| {
        let path = directory.join("log");
        let file = open(&path, direct);
        assert!(file.same_as_path().expect("an answer"));
        let metadata = std::fs::metadata(&path).expect("metadata");
        assert_eq!(
            file.identity().expect("identity"),
            (metadata.dev(), metadata.ino())
        );
        std::fs::rename(&path, directory.join("moved")).expect("a rename");
        assert!(!file.same_as_path().expect("an answer"));
        std::fs::File::create(&path).expect("another file");
        assert!(!file.same_as_path().expect("an answer"));
        sync_directory(&path).expect("a directory");
    });
    assert!(
        sync_directory(Path::new("/nonexistent/log"))
            .expect_err("missing")
            .is_not_found()
    );
}

#[test]
fn ext4_on_a_loop_device_is_described_as_it_is() {
    let Some(ext4) = ScratchExt4::new(64, &[], "nobarrier") else {
        return;
    };
    let found = Capabilities::of_dir(ext4.path()).expect("capabilities");
    assert_eq!(found.filesystem, "ext4");
    assert_eq!(found.mount_point.as_deref(), Some(ext4.path()));
    assert!(found.device.starts_with("loop"), "{found:?}");
    assert!(found.backing_file.is_some());
    assert!(found.direct.is_ok(), "{found:?}");
    assert_eq!(found.write_cache, WriteCache::WriteBack);
    assert!(
        found.fua.as_ref().is_err_and(|r| r.contains(&found.device)),
        "{found:?}"
    );
    assert!(!found.writes_through_in_one_command());
    assert!(
        found
            .barriers
            .as_ref()
            .is_err_and(|r| r.contains("nobarrier")),
        "{found:?}"
    );
    assert_eq!(found.logical_block_bytes, 512);
    let file = open(&ext4.path().join("log"), DirectIo::Auto);
    assert_eq!(file.capabilities().direct, found.direct);
    let left: Vec<_> = std::fs::read_dir(ext4.path())
        .expect("a directory")
        .collect();
    assert_eq!(left.len(), 2, "lost+found and log, nothing of the probe");
}

#[test]
fn data_journaling_means_no_direct_io_and_says_so() {
    let by_mount = ScratchExt4::new(64, &[], "data=journal");
    // The superblock's default does not show among the options of the mount table.
    let by_default = ScratchExt4::tuned(64, &[], &["tune2fs", "-o", "journal_data"], "");
    for ext4 in [by_mount, by_default].into_iter().flatten() {
        let found = Capabilities::of_dir(ext4.path()).expect("capabilities");
        let reason = found.direct.expect_err("no direct I/O");
        assert!(reason.contains("data=journal"), "{reason}");
        let file = open(&ext4.path().join("log"), DirectIo::Auto);
        assert_eq!(file.direct(), None);
        assert_eq!(file.why_not_direct(), Some(reason.as_str()));
        file.initialize(0..MIB, Init::ZeroFill)
            .expect("a preallocation");
        file.write_at(&[9; 10], 5, Durability::WriteThrough)
            .expect("a buffered write");
        assert_eq!(read(&file, 5, 10), [9; 10]);
    }
}

#[test]
fn a_file_whose_data_is_journaled_has_no_direct_io_and_says_so() {
    // `chattr +j` needs a privilege that containers lack, so set the flag in the image: 0x4000,
    // beside 0x80000 of a file with extents. ext4 ignores it under delayed allocation.
    let content = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(content.path().join("log"), [1; 8192]).expect("a file");
    let content = content.path().to_str().expect("UTF-8");
    let set_flag = ["debugfs", "-w", "-R", "set_inode_field /log flags 0x84000"];
    let Some(ext4) = ScratchExt4::tuned(64, &["-d", content], &set_flag, "nodelalloc") else {
        return;
    };
    let file = open(&ext4.path().join("log"), DirectIo::Auto);
    let reason = file.why_not_direct().expect("no direct I/O");
    assert!(reason.contains("attribute j"), "{reason}");
    assert_eq!(read(&file, 0, 8192), [1; 8192]);
    // Another file there has direct I/O.
    assert!(
        open(&ext4.path().join("other"), DirectIo::Auto)
            .direct()
            .is_some()
    );
}

#[test]
fn a_place_without_files_is_an_error_that_says_why() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let missing = Capabilities::of_dir(&directory.path().join("none")).expect_err("missing");
    assert!(missing.is_not_found(), "{missing}");
    let path = directory.path().join("file");
    std::fs::write(&path, b"").expect("a file");
    let error = Capabilities::of_dir(&path).expect_err("a file");
    assert_eq!(error.kind(), std::io::ErrorKind::NotADirectory, "{error}");
    let Some(ext4) = ScratchExt4::new(64, &[], "") else {
        return;
    };
    ext4.remount("ro");
    let error = Capabilities::of_dir(ext4.path()).expect_err("read-only");
    assert!(error.to_string().contains("mounted read-only"), "{error}");
}

#[test]
fn memory_file_systems_have_no_direct_io() {
    let path = Path::new("/dev/shm");
    let Ok(found) = Capabilities::of_dir(path) else {
        eprintln!("SKIPPED: no /dev/shm here");
        return;
    };
    if found.filesystem != "tmpfs" {
        eprintln!("SKIPPED: /dev/shm is {}", found.filesystem);
        return;
    }
    assert!(
        found.direct.as_ref().is_err_and(|r| r.contains("tmpfs")),
        "{found:?}"
    );
    assert_eq!(
        (found.device.as_str(), found.write_cache),
        ("", WriteCache::Unknown)
    );
    assert!(found.fua.is_err() && found.write_zeroes.is_err());
}

#[test]
fn initialization_methods_have_names() {
    for init in [Init::ZeroFill, Init::WriteZeroes, Init::Unwritten] {
        assert_eq!(init.to_string().parse(), Ok(init));
    }
    assert_eq!("Zero-Fill".parse(), Ok(Init::ZeroFill));
    let error = "auto"
        .parse::<Init>()
        .expect_err("the caller's word")
        .to_string();
    assert!(
        error.contains("auto") && error.contains("write-zeroes"),
        "{error}"
    );
}
