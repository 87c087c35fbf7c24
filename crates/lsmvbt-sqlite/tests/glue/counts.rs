//! Counts of the pages that a commit under SQLite writes.

use std::fs::File;
use std::path::Path;

use onewrite_iotrace::scratch::{FileSystem, LoopDevice, Mounted, private_mounts};

use lsmvbt_sqlite::sqlite::Connection;

use crate::support::{Setup, one, run};

const ENGINE: &str = "lsmvbt";
const ROWS: u32 = 4_000;
const COMMITS: u32 = 400;

/// The sum of these counts of the status.
fn counts(connection: &Connection, names: &[&str]) -> u32 {
    let status = one(connection, "PRAGMA onewrite_status").replace('\'', "''");
    let count = |name: &&str| -> u32 {
        let field = format!("SELECT json_extract('{status}', '$.{name}')");
        one(connection, &field).parse().expect("a count")
    };
    names.iter().map(count).sum()
}

/// Pages written so far, of the header and of slots as well.
fn pages_written(connection: &Connection) -> u32 {
    let all = [
        "pages_written",
        "header_pages_written",
        "slot_pages_written",
    ];
    counts(connection, &all)
}

/// A commit need not keep what the statement's own snapshot shows: without it, full pages have room for the
/// change of another one.
#[test]
fn a_random_commit_writes_one_page() {
    for torn in ["trust", "double"] {
        let setup = Setup::new();
        let a = setup.open("x", ENGINE);
        let set = format!("PRAGMA lsmvbt_torn = {torn}; PRAGMA lsmvbt_recovery_pages = 64");
        run(&a, &set);
        run(
            &a,
            &format!(
                "CREATE TABLE t(x INTEGER PRIMARY KEY, y); \
                 WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {ROWS}) \
                 INSERT INTO t SELECT i, randomblob(500) FROM c; \
                 DELETE FROM t WHERE x % 4 = 0"
            ),
        );
        // After that no page is marked.
        drop(a);
        let a = setup.open("x", ENGINE);
        run(&a, &set);
        run(&a, "UPDATE t SET y = randomblob(500) WHERE x = 1");
        let before = pages_written(&a);
        for i in 0..COMMITS {
            let row = i * 2_477 % ROWS / 4 * 4 + 1 + i % 3;
            let update = format!("UPDATE t SET y = randomblob(500) WHERE x = {row}");
            run(&a, &update);
        }
        let pages = pages_written(&a) - before;
        // 16 for the 8 commits before the first late page, with `double`, and a header with every 16th.
        assert!(pages <= COMMITS + 8 + COMMITS / 16 + 4, "{torn}: {pages}");
    }
}

/// With `double` a leaf that changes again stays in its slot. When it is split, it is written in place, with the new
/// leaf and the page above.
#[test]
fn an_appended_row_writes_one_page() {
    for (torn, splits_cost) in [("trust", 1), ("double", 3)] {
        let setup = Setup::new();
        let a = setup.open("x", ENGINE);
        run(&a, &format!("PRAGMA lsmvbt_torn = {torn}"));
        run(&a, "CREATE TABLE t(x INTEGER PRIMARY KEY, y)");
        run(&a, "INSERT INTO t VALUES (1, randomblob(100))");
        let splits = |connection: &Connection| {
            counts(
                connection,
                &["append_splits", "lazy_splits", "legacy_splits"],
            )
        };
        let (pages, split) = (pages_written(&a), splits(&a));
        for _ in 0..COMMITS {
            run(&a, "INSERT INTO t(y) VALUES (randomblob(100))");
        }
        let (pages, split) = (pages_written(&a) - pages, splits(&a) - split);
        assert!((8..20).contains(&split), "{torn}: {split}");
        // And a header with every 16th page of the file.
        let most = COMMITS + split * splits_cost + 8;
        assert!(pages <= most, "{torn}: {pages} of {most}");
    }
}

/// A header marks the free pages that are taken next, so that not every split writes one.
#[test]
fn appended_rows_in_free_pages_write_few_headers() {
    let setup = Setup::new();
    let a = setup.open("x", ENGINE);
    run(
        &a,
        "PRAGMA lsmvbt_torn = double; CREATE TABLE t(x INTEGER PRIMARY KEY, y)",
    );
    let rows = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 4000) \
                INSERT INTO t SELECT i, randomblob(500) FROM c";
    run(&a, rows);
    run(&a, "DELETE FROM t WHERE x > 100");
    drop(a);
    let a = setup.open("x", ENGINE);
    run(&a, "INSERT INTO t(y) VALUES (randomblob(500))");
    let before = counts(&a, &["header_pages_written"]);
    for _ in 0..COMMITS {
        run(&a, "INSERT INTO t(y) VALUES (randomblob(500))");
    }
    let headers = counts(&a, &["header_pages_written"]) - before;
    // One for 8 of 57 splits, and with it now and then a free map.
    assert!(headers <= 20, "{headers}");
}

/// Zeros behind new pages save a flush where a page stays in its place: not on Btrfs.
#[test]
fn zeros_are_written_where_they_prepare_something() {
    for (kind, name, prepares) in [
        (FileSystem::Ext4, "ext4", true),
        (FileSystem::Xfs, "xfs", true),
        (FileSystem::Btrfs, "btrfs", false),
    ] {
        if let Some(missing) = private_mounts().err().or_else(|| kind.missing()) {
            println!("SKIPPED: a file system takes root and its mkfs: {missing}");
            return;
        }
        let (images, setup) = (Setup::new(), Setup::new());
        let image = images.path("image");
        let image = Path::new(&image);
        File::create(image)
            .and_then(|file| file.set_len(320 << 20))
            .expect("an image");
        kind.make(image, &[]).expect(name);
        let device = LoopDevice::attach(image).expect("a loop device");
        let directory = setup.path("");
        let mounted = Mounted::new(device.node(), directory.as_ref(), name).expect("a mount");
        let a = setup.open("x", ENGINE);
        run(&a, "CREATE TABLE t(x)");
        for _ in 0..300 {
            run(&a, "INSERT INTO t VALUES (randomblob(500))");
        }
        let zeros = counts(&a, &["zero_pages_written"]);
        drop(a);
        mounted.unmount().expect("not in use");
        device.detach().expect("not in use");
        assert_eq!(zeros > 0, prepares, "{name}: {zeros}");
    }
}
