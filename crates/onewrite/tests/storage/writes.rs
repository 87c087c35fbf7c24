//! Reads, writes, and their cost on the device.

use super::*;

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
    let Some(ext4) = Scratch::ext4(64, &[], "") else {
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

/// Sectors written to a block device since it was made.
fn sectors_written(device: &str) -> u64 {
    let stat = std::fs::read_to_string(format!("/sys/block/{device}/stat")).expect("its counters");
    let seventh = stat.split_whitespace().nth(6).expect("seven counters");
    seventh.parse().expect("a number")
}

#[test]
fn a_write_that_is_begun_reaches_the_device_without_a_flush() {
    let Some(ext4) = Scratch::ext4(64, &[], "") else {
        return;
    };
    let file = open(&ext4.path().join("log"), DirectIo::Auto);
    file.initialize(0..MIB, Init::ZeroFill)
        .expect("a preallocation");
    let before = sectors_written(&file.capabilities().device);
    let written = pattern(8192, 4);
    file.write_at(&written, 4096, Durability::Cached)
        .expect("a write");
    file.begin_write_back().expect("a write-back that begins");
    file.write_buffered_at(&[5; 4096], 65536).expect("a write");
    assert_eq!(read(&file, 4096, 8192), written.as_slice());
    file.write_back().expect("a write-back");
    let sectors = sectors_written(&file.capabilities().device) - before;
    assert!(sectors >= 24, "{sectors} sectors of 24");
    assert_eq!(file.counters().snapshot().flushes, 0);
    file.drop_page_cache();
    assert_eq!(read(&file, 4096, 8192), written.as_slice());
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
    // Buffered writes need no alignment.
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
    let Some(ext4) = Scratch::ext4(64, &[], "") else {
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

/// Writes and bytes that reached the block device under `file`: Documentation/block/stat.rst.
fn device_bytes(file: &LogFile) -> u64 {
    let path = format!("/sys/class/block/{}/stat", file.capabilities().device);
    let text = std::fs::read_to_string(path).expect("statistics");
    let sectors: u64 = text
        .split_whitespace()
        .nth(6)
        .expect("written sectors")
        .parse()
        .expect("a number");
    sectors * 512
}

#[test]
fn a_durable_overwrite_of_initialized_blocks_writes_itself_and_nothing_else() {
    const WRITES: u64 = 300;
    // ext4 journals the file's new timestamp every five seconds.
    const TIMESTAMP_BYTES: u64 = 32_000;
    for image in [Scratch::ext4(64, &[], ""), Scratch::xfs()] {
        let Some(image) = image else { continue };
        let run = |init| {
            let path = image.path().join(format!("{init}"));
            let file = open(&path, DirectIo::Auto);
            file.initialize(0..2 * MIB, init).expect("a preallocation");
            file.sync_directory().expect("a directory flush");
            let before = device_bytes(&file);
            let buf = pattern(4096, 1);
            for n in 0..WRITES {
                file.write_at(&buf, n * 4096, Durability::WriteThrough)
                    .expect("a write");
            }
            device_bytes(&file) - before
        };
        let written = run(Init::ZeroFill);
        let least = WRITES * 4096;
        assert!(
            (least..=least + TIMESTAMP_BYTES).contains(&written),
            "{written}"
        );
        // Unwritten extents are not enough: each first write changes one, and is journaled.
        let unwritten = run(Init::Unwritten);
        assert!(unwritten > least + WRITES * 512, "{unwritten}");
    }
}

#[test]
fn offsets_beyond_what_files_have_are_no_panic() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = open(&directory.path().join("log"), DirectIo::Auto);
    let buf = pattern(4096, 1);
    for offset in [i64::MAX as u64 - 4095, i64::MAX as u64 + 1, u64::MAX - 4095] {
        assert_eq!(file.read_at(&mut [0; 8192], offset).expect("no bytes"), 0);
        for result in [
            file.write_at(&buf, offset, Durability::WriteThrough),
            file.write_buffered_at(&buf, offset),
            file.initialize(offset..u64::MAX, Init::ZeroFill),
            file.initialize(0..offset, Init::ZeroFill),
            file.truncate(offset),
        ] {
            result.expect_err("beyond the largest file");
        }
    }
    assert_eq!(file.size().expect("a size"), 0);
    assert!(
        file.direct().is_some()
            || file
                .why_not_direct()
                .is_some_and(|r| !r.contains("refused"))
    );
}
