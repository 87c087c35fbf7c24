//! Where remapping is not possible, pages are copied, and the status gives the reason.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::database::{Database, Mount, connect, query};

#[test]
fn on_ext4_everything_is_copied() {
    let Some(mount) = Mount::ext4() else { return };
    for how in ["exchange", "clone"] {
        let database = Database::make(&mount, "onewrite", how, "unwritten");
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

/// A database that was in one of our modes, and was replaced by one with smaller pages. The log
/// that was left has no frames, and remembers the mode and layout `gathered`.
struct Replaced {
    path: PathBuf,
    _directory: TempDir,
}

impl Replaced {
    fn new(mode: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let before = connect(&path, "onewrite");
        query(&before, "PRAGMA onewrite_checkpoint=exchange").expect("set");
        let entered = query(&before, &format!("PRAGMA journal_mode={mode}"));
        assert_eq!(entered.as_deref(), Ok(mode));
        query(&before, "CREATE TABLE before(x)").expect("made");
        drop(before);
        std::fs::remove_file(&path).expect("removed");
        let replaced = Self {
            path,
            _directory: directory,
        };
        assert!(replaced.log().exists(), "the mode is remembered");
        replaced
    }

    fn log(&self) -> PathBuf {
        self.path.with_file_name("db-onewrite")
    }

    /// The other database, with one row: closed, or as a killed process leaves it.
    fn put(&self, mode: &str, is_closed: bool) {
        let made = self.path.with_file_name("made");
        let db = connect(&made, "unix");
        query(&db, "PRAGMA page_size=1024").expect("set");
        query(&db, &format!("PRAGMA journal_mode={mode}")).expect("set");
        query(&db, "CREATE TABLE t(x)").expect("made");
        query(&db, "INSERT INTO t VALUES('one')").expect("inserted");
        let db = (!is_closed).then_some(db);
        for suffix in ["", "-wal"] {
            let companion = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
            if companion(&made).exists() {
                std::fs::copy(companion(&made), companion(&self.path)).expect("copied");
            }
        }
        drop(db);
    }

    fn check(&self, settings: &str, mode: &str, layout: Option<&str>) {
        let db = connect(&self.path, "onewrite");
        db.execute_batch(settings).expect(settings);
        let count = || query(&db, "SELECT count(*) FROM t").expect("a count");
        assert_eq!(count(), "1", "{settings}");
        query(&db, "INSERT INTO t VALUES('two')").expect("inserted");
        assert_eq!(count(), "2");
        let found = query(&db, "PRAGMA journal_mode").expect("a mode");
        assert_eq!(found, mode, "{settings}");
        if let Some(layout) = layout {
            let found = query(&db, "PRAGMA onewrite_layout").expect("a layout");
            assert_eq!(found, layout, "{settings}");
        }
        assert_eq!(query(&db, "PRAGMA integrity_check").as_deref(), Ok("ok"));
        drop(db);
        let stock = connect(&self.path, "unix");
        assert_eq!(
            query(&stock, "SELECT count(*) FROM t").as_deref(),
            Ok("2"),
            "{settings}"
        );
    }
}

const EXCHANGE: &str = "PRAGMA onewrite_checkpoint=exchange";

/// With its frames in the other database's own log, and without.
#[test]
fn an_empty_log_whose_layout_does_not_suit_does_not_block_a_mode() {
    for is_closed in [true, false] {
        for (mode, settings, found, layout) in [
            // The mode is remembered, and has another layout.
            ("onewrite", "", "onewrite", Some("packed")),
            // The layout that the connection asks for is not possible.
            ("onewrite", EXCHANGE, "wal", None),
            ("waldio", EXCHANGE, "wal", None),
            // The mode's usual layout is not possible either: there are no reserved bytes.
            ("waldio", "", "wal", None),
            (
                "waldio",
                "PRAGMA onewrite_layout=page4k",
                "waldio",
                Some("page4k"),
            ),
            (
                "onewrite",
                "PRAGMA locking_mode=EXCLUSIVE",
                "onewrite",
                Some("packed"),
            ),
        ] {
            let replaced = Replaced::new(mode);
            replaced.put("wal", is_closed);
            replaced.check(settings, found, layout);
        }
    }
}

#[test]
fn a_mode_is_entered_next_to_an_empty_log_whose_layout_does_not_suit() {
    let replaced = Replaced::new("onewrite");
    replaced.put("delete", true);
    replaced.check("PRAGMA journal_mode=onewrite", "onewrite", Some("packed"));
}

/// `EXT4_IOC_MOVE_EXT` moves a donor's blocks into a file, but the file keeps its own content in
/// them. The donor's content does not reach the file, and the donor loses its blocks.
#[test]
fn ext4_moves_blocks_and_not_what_they_hold() {
    let Some(mount) = Mount::ext4() else { return };
    let make = |name: &str, byte: u8| {
        let path = mount.root().join(name);
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

/// `struct move_extent` of ext4.h, `_IOWR('f', 15, ...)`. Returns the number of moved blocks.
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
