//! A log that moves forward after each checkpoint, a checkpoint that copies without blocking
//! others, and a full disk.

use onewrite_common::files::companion;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::database::{Database, Mount, connect, query};

fn log_of(database: &Database) -> PathBuf {
    companion(&database.path, "-onewrite")
}

/// The extents of a file's first bytes on the device, counted by `filefrag`.
fn extents(path: &Path, first_bytes: u64) -> usize {
    let output = std::process::Command::new("filefrag")
        .args(["-v", "-b4096"])
        .arg(path)
        .output()
        .expect("filefrag (e2fsprogs)");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut next_physical = None;
    let mut pieces = 0;
    for line in text.lines() {
        let fields: Vec<_> = line
            .split([':', '.'])
            .map(str::trim)
            .filter(|f| !f.is_empty())
            .collect();
        let numbers: Vec<u64> = fields.iter().map_while(|f| f.parse().ok()).collect();
        let [_, logical, _, physical, last, ..] = numbers[..] else {
            continue;
        };
        if logical * 4096 >= first_bytes {
            break;
        }
        // An extent that changes its state midway is still one piece of the device.
        pieces += usize::from(next_physical != Some(physical));
        next_physical = Some(last + 1);
    }
    assert!(pieces > 0, "{text}");
    pieces
}

fn rewritten(database: &Database, from: u32, rounds: u32) {
    for round in from..from + rounds {
        for row in 0..25 {
            let row = (round * 7919 + row * 131) % 400;
            database.sql(&format!(
                "UPDATE t SET x = randomblob(8000) WHERE id = {row}"
            ));
        }
        assert!(database.sql("PRAGMA wal_checkpoint").starts_with("0|"));
    }
}

fn filled(mount: &Mount, how: &str, init: &str) -> Database {
    with_rows(Database::make(mount, "onewrite", how, init))
}

fn with_rows(database: Database) -> Database {
    database.sql("PRAGMA wal_autocheckpoint=0");
    database.sql("CREATE TABLE t(id INTEGER PRIMARY KEY, x)");
    database.sql("BEGIN");
    for row in 0..400 {
        database.sql(&format!("INSERT INTO t VALUES({row}, randomblob(8000))"));
    }
    database.sql("COMMIT");
    database.sql("PRAGMA wal_checkpoint");
    database
}

fn count(database: &Database, name: &str) -> u64 {
    let status = database.status();
    status["remapped"][name].as_u64().expect("a count")
}

/// While the region lasts, the log is one piece. Without it, the log has as many pieces as the
/// blocks that the database gave it.
#[test]
fn the_log_is_one_piece_as_long_as_the_region_lasts() {
    let mut pieces = Vec::new();
    for how in ["exchange", "forward"] {
        let Some(mount) = Mount::xfs() else { return };
        let database = filled(&mount, how, "zero-fill");
        if how == "forward" {
            // The region is made in the background.
            let end = Instant::now() + Duration::from_secs(60);
            while count(&database, "moved_forward") == 0
                || count(&database, "region_bytes") < 24 << 20
            {
                rewritten(&database, 0, 1);
                assert!(Instant::now() < end, "{}", database.status());
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        let before = count(&database, "moved_forward");
        rewritten(&database, 100, 20);
        let moved = count(&database, "moved_forward") - before;
        assert_eq!(moved, if how == "forward" { 20 } else { 0 });
        database.check();
        // The log of these checkpoints has some 80 frames and a block of headers.
        pieces.push(extents(&log_of(&database), 70 * 4096));
        let db = connect(&database.path, "onewrite");
        assert_eq!(query(&db, "PRAGMA integrity_check").as_deref(), Ok("ok"));
        drop(db);
        database.close_and_check();
    }
    println!("pieces of the log's first 70 blocks: {pieces:?}");
    assert!(pieces[1] <= 4 && pieces[0] > 10, "{pieces:?}");
}

/// A region in a file of its own is made again as the log takes it: three times its size here. The
/// log's own file does not become longer for it.
#[test]
fn a_region_of_its_own_is_made_again_and_the_log_stays_one_piece() {
    let Some(mount) = Mount::xfs() else { return };
    let database = Database::make(&mount, "onewrite", "forward", "zero-fill");
    database.sql("PRAGMA onewrite_region='1M'");
    let database = with_rows(database);
    let length = || std::fs::metadata(log_of(&database)).expect("the log").len();
    let is_whole = || {
        let end = Instant::now() + Duration::from_secs(60);
        while count(&database, "region_bytes") < 1 << 20 {
            assert!(Instant::now() < end, "{}", database.status());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    rewritten(&database, 0, 1);
    is_whole();
    let (before, first) = (count(&database, "moved_forward"), length());
    for round in 0..12 {
        rewritten(&database, 100 + round, 1);
        is_whole();
    }
    assert_eq!(count(&database, "moved_forward") - before, 12);
    assert_eq!(length(), first, "{}", database.status());
    // The log of each of these checkpoints has some 80 frames.
    let made = count(&database, "replenished_bytes");
    assert!(made > 3 << 20, "{}", database.status());
    let pieces = extents(&log_of(&database), 70 * 4096);
    assert!(pieces <= 3, "{pieces}");
    database.check();
    let db = connect(&database.path, "onewrite");
    assert_eq!(query(&db, "PRAGMA integrity_check").as_deref(), Ok("ok"));
    drop(db);
    database.close_and_check();
}

/// Blocks that were never written are allocated again where the database grows.
#[test]
fn a_log_that_gave_its_blocks_to_a_growing_database_gets_new_ones() {
    let Some(mount) = Mount::xfs() else { return };
    let database = filled(&mount, "forward", "unwritten");
    for round in 0..20 {
        for row in 0..25 {
            let row = 1000 + round * 100 + row;
            database.sql(&format!("INSERT INTO t VALUES({row}, randomblob(8000))"));
        }
        assert!(database.sql("PRAGMA wal_checkpoint").starts_with("0|"));
    }
    assert!(
        count(&database, "moved_forward") >= 20,
        "{}",
        database.status()
    );
    let pieces = extents(&log_of(&database), 70 * 4096);
    assert!(pieces <= 2, "{pieces}");
    database.check();
    database.close_and_check();
}

/// A log that grows beyond its first chunk continues in the region.
#[test]
fn a_large_transaction_uses_the_region() {
    let Some(mount) = Mount::xfs() else { return };
    let database = filled(&mount, "forward", "zero-fill");
    for round in 0..6 {
        database.sql("BEGIN");
        for row in 0..900 {
            let row = row + round * 100;
            database.sql(&format!("REPLACE INTO t VALUES({row}, randomblob(8000))"));
        }
        database.sql("COMMIT");
        let digest = database.sql("SELECT count(*), total(length(x)) FROM t");
        assert!(database.sql("PRAGMA wal_checkpoint").starts_with("0|"));
        assert_eq!(
            database.sql("SELECT count(*), total(length(x)) FROM t"),
            digest
        );
        rewritten(&database, round, 2);
        database.check();
    }
    assert!(
        count(&database, "moved_forward") > 6,
        "{}",
        database.status()
    );
    database.close_and_check();
}

/// If remapping is not worth it, the checkpoint finds that before it excludes any connection.
#[test]
fn a_checkpoint_that_copies_excludes_no_connection() {
    let Some(mount) = Mount::xfs() else { return };
    let database = filled(&mount, "exchange", "unwritten");
    rewritten(&database, 0, 1);
    let before = (
        count(&database, "kept_out_us"),
        count(&database, "checkpoints"),
    );
    assert!(before.0 > 0 && before.1 > 0, "{}", database.status());
    // Page 1 only, which is always copied.
    database.sql("PRAGMA user_version=7");
    assert!(database.sql("PRAGMA wal_checkpoint").starts_with("0|"));
    let remapped = database.status()["remapped"].clone();
    assert_eq!(
        remapped["why_not"], "copying writes fewer bytes",
        "{remapped}"
    );
    assert_eq!(remapped["kept_out_us"], before.0, "{remapped}");
    // So many pages that, by the model, the calls would take too long: the rows are far apart.
    database.sql("CREATE TABLE s(id INTEGER PRIMARY KEY, v, x)");
    for part in 0..4 {
        database.sql(&format!(
            "INSERT INTO s WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 9499) \
             SELECT i + {part} * 9500, 0, zeroblob(2500) FROM n"
        ));
        database.sql("PRAGMA wal_checkpoint(TRUNCATE)");
    }
    let before = (
        count(&database, "kept_out_us"),
        count(&database, "remapped_pages"),
    );
    database.sql("UPDATE s SET v = 1 WHERE id % 2 = 0");
    assert!(database.sql("PRAGMA wal_checkpoint").starts_with("0|"));
    let remapped = database.status()["remapped"].clone();
    assert_eq!(
        remapped["why_not"], "remapping would take too long",
        "{remapped}"
    );
    assert_eq!(remapped["remapped_pages"], before.1, "{remapped}");
    assert_eq!(remapped["kept_out_us"], before.0, "{remapped}");
    database.check();
}

fn fill(mount: &Mount) -> PathBuf {
    let path = mount.root().join("filling");
    let mut file = File::create(&path).expect("a file");
    for bytes in [1 << 20, 4096] {
        while file
            .write_all(&vec![7; bytes])
            .and_then(|()| file.sync_data())
            .is_ok()
        {}
    }
    path
}

/// A write to a block that log and database share goes to another block. On a full disk it fails,
/// and then only that commit is lost.
#[test]
fn a_full_disk_does_not_poison_a_log_that_shares_blocks() {
    let Some(mount) = Mount::xfs() else { return };
    let database = filled(&mount, "clone", "zero-fill");
    for row in 0..400 {
        database.sql(&format!("UPDATE t SET x = zeroblob(8000) WHERE id = {row}"));
    }
    assert!(database.sql("PRAGMA wal_checkpoint").starts_with("0|"));
    assert!(count(&database, "remapped_pages") > 700);
    // Otherwise its commits go through the page cache.
    database.sql("PRAGMA onewrite_group_commit=off");
    let other = connect(&database.path, "onewrite");
    query(&other, "PRAGMA synchronous=NORMAL").expect("set");
    query(&other, "PRAGMA wal_autocheckpoint=0").expect("set");
    query(&other, "UPDATE t SET x = 'normal' WHERE id = 0")
        .expect("a commit that is not durable yet");
    let filling = fill(&mount);
    let refused = query(
        &database.db,
        "UPDATE t SET x = zeroblob(8001) WHERE id < 20",
    )
    .expect_err("no space");
    assert_eq!(
        refused.sqlite_error_code(),
        Some(rusqlite::ErrorCode::DiskFull),
        "{refused}"
    );
    assert_eq!(database.status()["poisoned"], serde_json::Value::Null);
    assert_eq!(database.sql("SELECT x FROM t WHERE id = 0"), "normal");
    std::fs::remove_file(filling).expect("removed");
    database.sql("UPDATE t SET x = zeroblob(8001) WHERE id < 20");
    database.check();
    drop(other);
    database.close_and_check();
}
