//! Where there is nothing to remap with, pages are copied, and the reason is told.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use super::database::{Database, Place, connect, query};

#[test]
fn on_ext4_everything_is_copied() {
    let Some(place) = Place::ext4() else { return };
    for how in ["exchange", "clone"] {
        let database = Database::make(&place, "onewrite", how, "unwritten");
        database.sql("CREATE TABLE t(x)");
        for _ in 0..60 {
            database.sql("INSERT INTO t VALUES(randomblob(5000))");
        }
        database.sql("PRAGMA wal_checkpoint");
        database.check();
        let remapped = database.status()["remapped"].clone();
        assert_eq!(remapped["remapped_pages"], 0, "{remapped}");
        let why = remapped["why_not"].as_str().expect("a reason");
        assert!(why.contains("was refused"), "{why}");
        database.close_and_check();
    }
}

#[test]
fn a_layout_that_cannot_is_refused_with_the_way_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = connect(&directory.path().join("db"), "onewrite");
    assert_eq!(
        query(&db, "PRAGMA journal_mode=onewrite").as_deref(),
        Ok("onewrite")
    );
    let refused = |db: &rusqlite::Connection, pragma: &str, word: &str| {
        let error = query(db, pragma).expect_err("refused").to_string();
        assert!(error.contains(word), "{error}");
    };
    refused(
        &db,
        "PRAGMA onewrite_checkpoint=exchange",
        "journal_mode=delete",
    );
    refused(
        &db,
        "PRAGMA onewrite_checkpoint=move",
        "copy, exchange, forward, clone or auto",
    );
    let small = connect(&directory.path().join("small"), "onewrite");
    query(&small, "PRAGMA page_size=1024").expect("set");
    query(&small, "PRAGMA onewrite_checkpoint=exchange").expect("set");
    refused(
        &small,
        "PRAGMA journal_mode=onewrite",
        "whole blocks of 4096",
    );
    let log = directory.path().join("small-onewrite");
    assert!(!log.exists(), "a log was made all the same");
    for mode in ["swal", "direct"] {
        let other = connect(&directory.path().join(mode), "onewrite");
        query(&other, "PRAGMA onewrite_checkpoint=exchange").expect("set");
        refused(
            &other,
            &format!("PRAGMA journal_mode={mode}"),
            "does not hold pages as the database",
        );
    }
}

/// `EXT4_IOC_MOVE_EXT` moves a donor's blocks into a file, which gets them with its own content: the donor's
/// is not what the file has afterwards, and the donor is left without.
#[test]
fn ext4_moves_blocks_and_not_what_they_hold() {
    let Some(place) = Place::ext4() else { return };
    let make = |name: &str, byte: u8| {
        let path = place.root().join(name);
        let mut options = File::options();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .open(path)
            .expect("a file");
        file.write_all_at(&vec![byte; 65_536], 0).expect("written");
        file.sync_all().expect("flushed");
        file
    };
    let (database, log) = (make("database", 1), make("log", 2));
    let moved = move_extents(&database, &log, 4);
    let first = |file: &File, at: u64| {
        let mut byte = [0xff];
        file.read_exact_at(&mut byte, at).expect("read");
        byte[0]
    };
    match moved {
        Ok(blocks) => {
            assert!(blocks > 0);
            assert_eq!(first(&database, 0), 1, "it keeps its own content");
            println!("{blocks} blocks; the donor now reads {}", first(&log, 0));
        }
        Err(e) => println!("refused: {e}"),
    }
    assert_eq!(first(&database, 40_960), 1);
}

/// `struct move_extent` of ext4.h, `_IOWR('f', 15, ...)`. Blocks that were moved.
#[allow(unsafe_code)]
fn move_extents(file: &File, donor: &File, blocks: u64) -> std::io::Result<u64> {
    #[repr(C)]
    struct MoveExtent {
        reserved: u32,
        donor_fd: u32,
        orig_start: u64,
        donor_start: u64,
        len: u64,
        moved_len: u64,
    }
    let mut request = MoveExtent {
        reserved: 0,
        donor_fd: donor.as_raw_fd() as u32,
        orig_start: 0,
        donor_start: 0,
        len: blocks,
        moved_len: 0,
    };
    const EXT4_IOC_MOVE_EXT: u64 = 0xc028_660f;
    // SAFETY: both files are open, and the structure is the kernel's.
    let result = unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            EXT4_IOC_MOVE_EXT as libc::Ioctl,
            &raw mut request,
        )
    };
    match result {
        0 => Ok(request.moved_len),
        _ => Err(std::io::Error::last_os_error()),
    }
}
