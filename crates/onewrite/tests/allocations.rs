//! The engine allocates nothing in a commit once the log is being reused.
//!
//! Two kinds of allocation are left:
//!
//! - The commit that begins the log again writes the block of its header. That is one. In `direct` it
//!   is two, because the block that the next frame shares was forgotten.
//! - `lz4_flex` makes a table for each page that it compresses with another as dictionary, and takes
//!   none from its caller. In blocks of its own, a commit does that only to try whether pages that
//!   are stored whole are like others: [`MOST_TABLES`] times at most, and only where that may save a
//!   block.
//!
//! The allocator counts for each thread. SQLite and the compressors in C call C's `malloc`, which
//! does not count.
#![allow(unsafe_code, reason = "a global allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

/// The bytes of a table of `lz4_flex`, where a page and its dictionary are below 64 KiB: 4,096
/// numbers of two bytes.
const LZ4_TABLE: usize = 8192;
/// The looks that the second try to save a block may have.
const MOST_TABLES: u64 = 12;

/// Allocations of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Made {
    tables: u64,
    others: u64,
}

thread_local! {
    static MADE: Cell<Made> = const { Cell::new(Made { tables: 0, others: 0 }) };
}

struct Counting;

fn count(bytes: usize) {
    let counted = |mut made: Made| {
        match bytes {
            LZ4_TABLE => made.tables += 1,
            _ => made.others += 1,
        }
        made
    };
    // A thread that ends may have lost it.
    let _ = MADE.try_with(|made| made.set(counted(made.get())));
}

// SAFETY: the system's allocator does all of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: by this function's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: by this function's contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: by this function's contract.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: by this function's contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(work: impl FnOnce()) -> Made {
    let before = MADE.get();
    work();
    let after = MADE.get();
    Made {
        tables: after.tables - before.tables,
        others: after.others - before.others,
    }
}

/// Commits between two checkpoints. The first of them begins the log again.
const GENERATION: i64 = 50;
/// Lists have then grown to what such commits need.
const WARM: i64 = 500;

fn open(path: &Path, mode: &str) -> Connection {
    let flags = OpenFlags::default();
    let db =
        Connection::open_with_flags_and_vfs(path, flags, onewrite::VFS_NAME).expect("a database");
    let switch = format!("PRAGMA journal_mode={mode}");
    let now: String = db.query_row(&switch, [], |row| row.get(0)).expect("a mode");
    assert_eq!(now, mode);
    if mode == "onewrite" {
        // Each commit that might save a block tries to.
        db.execute_batch("PRAGMA onewrite_goal=bytes")
            .expect("a goal");
    }
    db.execute_batch(
        "PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=0;
         CREATE TABLE t(id INTEGER PRIMARY KEY, a INTEGER, b BLOB); CREATE INDEX i ON t(a);
         WITH RECURSIVE c(n) AS (VALUES(1) UNION ALL SELECT n + 1 FROM c WHERE n < 5000)
         INSERT INTO t SELECT n, n * 7919 % 10007, randomblob(100) FROM c",
    )
    .expect("a table");
    db
}

/// The commits that allocated otherwise than they should, by number, and what they allocated.
fn exceptions(db: &Connection, at_restart: u64, most_tables: u64) -> Vec<(i64, Made)> {
    let mut update = db
        .prepare("UPDATE t SET a = a + ?1, b = randomblob(100) WHERE id = ?2")
        .expect("a statement");
    let mut exceptions = Vec::new();
    for n in 0..WARM + 1000 {
        let is_first = n % GENERATION == 0;
        if is_first {
            let row = db.query_row("PRAGMA wal_checkpoint", [], |row| row.get(0));
            assert_eq!(row, Ok(0), "the checkpoint is not refused");
        }
        let made = allocations(|| {
            update
                .execute([n % 5, n * 7919 % 5000 + 1])
                .expect("a commit");
        });
        let expected = if is_first { at_restart } else { 0 };
        let is_so = made.others == expected && made.tables <= most_tables;
        if n >= WARM && !is_so {
            exceptions.push((n, made));
        }
    }
    exceptions
}

#[test]
fn a_commit_allocates_nothing_but_blocks_of_a_new_header_and_tables_of_lz4() {
    onewrite::register().expect("the VFS");
    // SQLite's own log shows that neither the test nor its binding to SQLite allocates.
    for (mode, at_restart, most_tables) in [
        ("wal", 0, 0),
        ("waldio", 1, 0),
        ("onewrite", 1, MOST_TABLES),
        ("direct", 2, 0),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let db = open(&directory.path().join("db"), mode);
        assert_eq!(exceptions(&db, at_restart, most_tables), [], "{mode}");
    }
}
