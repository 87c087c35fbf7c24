//! Preallocation.

use super::*;

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
                Err(e) if init != Init::ZeroFill && e.is_unsupported() => {
                    assert!(e.to_string().contains("zero-fill"), "the way out: {e}");
                    assert_eq!(file.size().expect("a size"), 4096, "as it was");
                    eprintln!("{init} is not available in {}", directory.display());
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
    let Some(ext4) = Scratch::ext4(64, &[], "") else {
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
    let Some(ext4) = Scratch::ext4(64, &[], "") else {
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
    let Some(ext4) = Scratch::ext4(16, &["-m", "0", "-b", "4096"], "") else {
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
            // ext4 keeps the one block of its extent tree that the attempt needed.
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

#[test]
fn a_full_file_system_without_fallocate_leaves_what_was_zeroed() {
    let Some(ext4) = Scratch::ext4(16, &["-O", "^extents,^64bit", "-m", "0"], "") else {
        return;
    };
    let file = open(&ext4.path().join("log"), DirectIo::Auto);
    file.initialize(0..MIB, Init::ZeroFill)
        .expect("room for one MiB");
    let error = file
        .initialize(MIB..64 * MIB, Init::ZeroFill)
        .expect_err("64 MiB on 16");
    assert!(error.is_no_space(), "{error}");
    // Another process may have taken the blocks before the error for ready, and used them.
    let size = file.size().expect("a size");
    assert!((2 * MIB..16 * MIB).contains(&size), "{size}");
    let data = pattern(4096, 9);
    file.write_at(
        &data,
        size.next_multiple_of(4096) - 8192,
        Durability::WriteThrough,
    )
    .expect("what is ready takes no space");
}
