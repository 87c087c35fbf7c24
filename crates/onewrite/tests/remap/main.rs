//! Checkpoints by block remapping, on real file systems that support it and on some that do not.

mod crash;
mod database;
mod embedded;
mod forward;
mod own_index;
mod processes;
mod readers;
mod refusals;
mod region;
#[path = "../common/rows.rs"]
mod rows;
mod truncation;

use database::{Database, Mount, connect, query};

/// Rows are added, and change their sizes in every round, which ends with a checkpoint. More than
/// `more_than` pages are remapped, and the result is a stock database.
fn churn(database: Database, rounds: u32, more_than: u64) {
    database.sql("CREATE TABLE t(id INTEGER PRIMARY KEY, n DEFAULT 0, x)");
    for round in 0..rounds {
        database.sql("BEGIN");
        for row in 0..40 {
            database.sql(&format!(
                "INSERT INTO t(id, x) VALUES({row}, randomblob({})) \
                 ON CONFLICT DO UPDATE SET x = excluded.x, n = n + 1",
                500 + (round * 977 + row * 131) % 9000
            ));
        }
        database.sql("COMMIT");
        database.sql("PRAGMA wal_checkpoint");
        database.check();
    }
    let remapped = &database.status()["remapped"];
    let pages = remapped["remapped_pages"].as_u64();
    assert!(pages > Some(more_than), "{remapped}");
    database.close_and_check();
}

#[test]
fn pages_change_places_on_xfs() {
    let Some(mount) = Mount::xfs() else { return };
    for mode in ["onewrite", "waldio"] {
        for checkpoint in ["PASSIVE", "FULL", "RESTART", "TRUNCATE"] {
            let database = Database::make(&mount, mode, "exchange", "unwritten");
            database.sql("CREATE TABLE t(id INTEGER PRIMARY KEY, n DEFAULT 0, x)");
            for round in 0..20 {
                database.sql("BEGIN");
                for row in 0..50 {
                    database.sql(&format!(
                        "REPLACE INTO t(id, x) VALUES({row}, randomblob(3000))"
                    ));
                }
                database.sql("COMMIT");
                let done = database.sql(&format!("PRAGMA wal_checkpoint({checkpoint})"));
                assert!(
                    done.starts_with("0|"),
                    "{mode} {checkpoint} {round}: {done}"
                );
                database.check();
            }
            let remapped = &database.status()["remapped"];
            let pages = |name: &str| remapped[name].as_u64().expect("a count");
            assert_eq!(pages("checkpoints"), 20, "{remapped}");
            assert!(pages("remapped_pages") > 500, "{remapped}");
            assert_eq!(pages("copied_pages"), 0, "{remapped}");
            assert_eq!(pages("repaired_frames"), 0, "{remapped}");
            database.close_and_check();
        }
    }
}

#[test]
fn the_result_of_a_checkpoint_is_what_sqlite_says_it_is() {
    let Some(mount) = Mount::xfs() else { return };
    let database = Database::make(&mount, "onewrite", "exchange", "unwritten");
    database.sql("CREATE TABLE t(x)");
    database.sql("INSERT INTO t SELECT randomblob(3000) FROM (WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM s WHERE i<100) SELECT i FROM s)");
    let result = database.sql("PRAGMA wal_checkpoint");
    let numbers: Vec<u32> = result
        .split('|')
        .map(|n| n.parse().expect("a number"))
        .collect();
    assert_eq!(numbers[0], 0);
    assert!(numbers[1] > 70 && numbers[1] == numbers[2], "{result}");
}

/// With `zero-fill`, pages for which the database had no block are copied.
#[test]
fn where_no_page_was_moved_the_log_keeps_its_frames() {
    let Some(mount) = Mount::xfs() else { return };
    let database = Database::make(&mount, "onewrite", "exchange", "zero-fill");
    let other = database.another();
    database.sql("CREATE TABLE t(x)");
    database.sql("INSERT INTO t VALUES(randomblob(3000))");
    for db in [&database.db, &database.db, &other] {
        let result = query(db, "PRAGMA wal_checkpoint");
        assert_eq!(result.as_deref(), Ok("0|3|3"));
    }
    let remapped = &database.status()["remapped"];
    assert_eq!(remapped["calls"], 0, "{remapped}");
    let why = remapped["why_not"].as_str().expect("a reason");
    assert!(why.starts_with("the database grows"), "{why}");
    drop(other);
    database.close_and_check();
}

#[test]
fn after_an_exchange_the_log_is_empty_as_after_a_truncation() {
    let Some(mount) = Mount::xfs() else { return };
    let database = Database::make(&mount, "onewrite", "exchange", "unwritten");
    let other = database.another();
    database.sql("CREATE TABLE t(x)");
    database.sql("INSERT INTO t VALUES(randomblob(3000))");
    assert_eq!(database.sql("PRAGMA wal_checkpoint"), "0|3|3");
    assert_eq!(database.status()["remapped"]["remapped_pages"], 1);
    let stock = connect(&mount.path(), "unix");
    for statement in [
        "PRAGMA journal_mode=wal",
        "CREATE TABLE t(x)",
        "PRAGMA wal_checkpoint(TRUNCATE)",
    ] {
        query(&stock, statement).expect("done");
    }
    for db in [&database.db, &other, &stock] {
        let result = query(db, "PRAGMA wal_checkpoint");
        assert_eq!(result.as_deref(), Ok("0|0|0"));
    }
    drop(other);
    database.close_and_check();
}

#[test]
fn the_database_shares_blocks_on_xfs_and_btrfs() {
    for mount in [Mount::xfs(), Mount::btrfs()].into_iter().flatten() {
        let database = Database::make(&mount, "onewrite", "clone", "auto");
        churn(database, 30, 500);
    }
}

#[test]
fn a_log_of_many_sizes_goes_over_group_after_group() {
    let Some(mount) = Mount::xfs() else { return };
    for init in ["unwritten", "zero-fill"] {
        let database = Database::make(&mount, "onewrite", "exchange", init);
        churn(database, 60, 500);
    }
}

#[test]
fn large_pages_change_places_too() {
    let Some(mount) = Mount::xfs() else { return };
    for bytes in [8192, 65_536] {
        let database = Database::with_pages(&mount, "onewrite", "exchange", "unwritten", bytes);
        churn(database, 10, 20);
    }
}
