//! The properties of a directory that the probe reports.

use super::*;

#[test]
fn ext4_on_a_loop_device_is_described_as_it_is() {
    let Some(ext4) = Scratch::ext4(64, &[], "nobarrier") else {
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
    assert_eq!(found.durable_write(), DurableWrite::Flush);
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
    let by_mount = Scratch::ext4(64, &[], "data=journal");
    // The superblock's default does not show among the options of the mount table.
    let by_default = Scratch::tuned_ext4(64, &[], &["tune2fs", "-o", "journal_data"], "");
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
    // `chattr +j` needs a privilege that containers lack, so set the flag in the image. The flag is
    // 0x4000, next to 0x80000 of a file with extents. Under delayed allocation ext4 ignores it.
    let content = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(content.path().join("log"), [1; 8192]).expect("a file");
    let content = content.path().to_str().expect("UTF-8");
    let set_flag = ["debugfs", "-w", "-R", "set_inode_field /log flags 0x84000"];
    let Some(ext4) = Scratch::tuned_ext4(64, &["-d", content], &set_flag, "nodelalloc") else {
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
    let Some(ext4) = Scratch::ext4(64, &[], "") else {
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
    assert_eq!(found.durable, Err("tmpfs keeps files in memory".to_owned()));
}

#[test]
fn xfs_is_direct_and_btrfs_with_checksums_is_not() {
    if let Some(xfs) = Scratch::xfs() {
        let found = Capabilities::of_dir(xfs.path()).expect("capabilities");
        assert_eq!(found.filesystem, "xfs");
        assert!(found.direct.is_ok(), "{found:?}");
    }
    if let Some(btrfs) = Scratch::btrfs() {
        let found = Capabilities::of_dir(btrfs.path()).expect("capabilities");
        assert_eq!(found.filesystem, "btrfs");
        // Btrfs numbers its files itself; the mount table names the device.
        assert!(found.device.starts_with("loop"), "{found:?}");
        assert!(
            found
                .direct
                .as_ref()
                .is_err_and(|r| r.contains("checksums")),
            "{found:?}"
        );
    }
}

/// An overlay shows neither its device nor that device's abilities; the one below it may have FUA.
#[test]
fn under_an_overlay_a_durable_write_covers_nothing_else() {
    let Some(ext4) = Scratch::ext4(64, &[], "") else {
        return;
    };
    let below = Capabilities::of_dir(ext4.path()).expect("capabilities");
    assert!(below.is_only_device && below.durable_write().covers_all_before());
    let Some(found) = of_overlay(ext4.path(), "") else {
        return;
    };
    assert_eq!(found.durable, Ok(()));
    assert!(found.direct.is_ok(), "{found:?}");
    assert_eq!(found.durable_write(), DurableWrite::Unknown);
    assert!(!found.durable_write().covers_all_before());
}

#[test]
fn an_overlay_on_memory_or_without_flushes_is_not_durable() {
    let Some(ext4) = Scratch::ext4(64, &[], "") else {
        return;
    };
    let memory = ext4.path().join("memory");
    std::fs::create_dir(&memory).expect("a directory");
    let point = memory.display().to_string();
    assert!(run("mount", &["-t", "tmpfs", "tmpfs", &point]));
    let in_memory = of_overlay(&memory, "");
    assert!(run("umount", &[&point]));
    let volatile = of_overlay(ext4.path(), ",volatile");
    for (found, told) in [(in_memory, "on tmpfs"), (volatile, "volatile")] {
        let Some(found) = found else { continue };
        let why = found.durable.expect_err("nothing is durable there");
        assert!(why.contains(told), "{why}");
    }
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let ran = Command::new(program).args(arguments).status();
    ran.is_ok_and(|status| status.success())
}

/// What an overlay in this directory can do. Without overlays it prints a line and returns `None`.
fn of_overlay(directory: &Path, further: &str) -> Option<Capabilities> {
    for name in ["lower", "upper", "work", "merged"] {
        std::fs::create_dir(directory.join(name)).expect("a directory");
    }
    let at = |name| directory.join(name).display().to_string();
    let merged = at("merged");
    let options = format!(
        "lowerdir={},upperdir={},workdir={}{further}",
        at("lower"),
        at("upper"),
        at("work")
    );
    if !run(
        "mount",
        &["-t", "overlay", "overlay", "-o", &options, &merged],
    ) {
        eprintln!("SKIPPED: no overlay file system here");
        return None;
    }
    let found = Capabilities::of_dir(Path::new(&merged));
    assert!(run("umount", &[&merged]));
    let found = found.expect("capabilities");
    assert_eq!(found.filesystem, "overlay");
    Some(found)
}

/// A file system on several devices asks one of them about FUA, and writes to all.
#[test]
fn of_several_devices_none_stands_for_all() {
    let Some(btrfs) = Scratch::btrfs() else {
        return;
    };
    let found = Capabilities::of_dir(btrfs.path()).expect("capabilities");
    assert!(found.is_only_device, "{found:?}");
    let image = tempfile::NamedTempFile::new().expect("an image");
    image.as_file().set_len(256 * MIB).expect("a size");
    let second = LoopDevice::attach(image.path()).expect("a loop device");
    let added = Command::new("btrfs")
        .args(["device", "add", "-f"])
        .args([second.node(), btrfs.path()])
        .output()
        .expect("btrfs-progs");
    assert!(added.status.success(), "{added:?}");
    second.detach_when_unused().expect("a loop device of ours");
    let found = Capabilities::of_dir(btrfs.path()).expect("capabilities");
    assert!(!found.is_only_device, "{found:?}");
    // The file system goes first: the device waits until it is free.
    drop(btrfs);
}
