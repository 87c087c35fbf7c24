//! Several connections and threads on one database.

use super::{MODES, open, open_in, outcome, sql};
use std::time::Duration;

#[test]
fn threads_write_and_read_one_database() {
    const THREADS: usize = 4;
    const COMMITS: usize = 60;
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = open_in(&path, mode);
        sql(&db, "CREATE TABLE t(thread INTEGER, n INTEGER, x TEXT)");
        sql(&db, "CREATE TABLE total(n INTEGER)");
        sql(&db, "INSERT INTO total VALUES(0)");
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let path = &path;
                scope.spawn(move || {
                    let db = open(path);
                    db.busy_timeout(Duration::from_secs(60)).expect("a timeout");
                    sql(&db, "PRAGMA wal_autocheckpoint=40");
                    for n in 0..COMMITS {
                        sql(&db, "BEGIN IMMEDIATE");
                        sql(
                            &db,
                            &format!("INSERT INTO t VALUES({thread},{n},printf('%.*c',900,'x'))"),
                        );
                        sql(&db, "UPDATE total SET n = n + 1");
                        sql(&db, "COMMIT");
                    }
                });
            }
            let path = &path;
            scope.spawn(move || {
                let db = open(path);
                let mut before = 0;
                while before < (THREADS * COMMITS) as u64 {
                    sql(&db, "BEGIN");
                    let total = sql(&db, "SELECT n FROM total");
                    assert_eq!(sql(&db, "SELECT count(*) FROM t"), total, "one snapshot");
                    let gaps = "SELECT count(*) FROM (SELECT max(n) + 1 AS m, count(*) AS c FROM t \
                                GROUP BY thread) WHERE m <> c";
                    assert_eq!(sql(&db, gaps), "0");
                    sql(&db, "COMMIT");
                    let total = total.parse().expect("a number");
                    assert!(total >= before, "time goes on");
                    before = total;
                }
            });
        });
        assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
        drop(db);
        let db = super::stock(&path);
        assert_eq!(
            sql(&db, "SELECT count(*) FROM t"),
            (THREADS * COMMITS).to_string()
        );
    }
}

/// A connection that opens the log asks for its size, while another writes a generation that is not
/// in the file yet.
#[test]
fn a_log_is_opened_while_another_connection_starts_it_again() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = open_in(&path, mode);
        sql(&db, "CREATE TABLE t(x TEXT)");
        for n in 0..20 {
            sql(
                &db,
                &format!("INSERT INTO t VALUES(printf('%.*c', 900, '{n}'))"),
            );
        }
        sql(&db, "PRAGMA wal_checkpoint(PASSIVE)");
        sql(&db, "PRAGMA cache_size=10");
        let rows = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i<100) INSERT \
                    INTO t SELECT printf('%d.%.*c', i, 900, 'x') FROM c";
        sql(&db, "BEGIN");
        sql(&db, rows);
        let other = open(&path);
        assert_eq!(sql(&other, "SELECT count(*) FROM t"), "20", "{mode:?}");
        outcome(&other, "PRAGMA wal_checkpoint(RESTART)");
        drop(other);
        let other = open(&path);
        outcome(&other, "PRAGMA locking_mode=EXCLUSIVE");
        outcome(&other, "SELECT count(*) FROM t");
        drop(other);
        sql(&db, rows);
        sql(&db, "COMMIT");
        let other = open(&path);
        assert_eq!(sql(&other, "SELECT count(*) FROM t"), "220", "{mode:?}");
        assert_eq!(sql(&other, "PRAGMA integrity_check"), "ok", "{mode:?}");
    }
}

#[test]
fn a_snapshot_stays_as_it_is_while_others_write_spill_and_checkpoint() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = open_in(&path, mode);
        sql(&db, "CREATE TABLE t(id INTEGER PRIMARY KEY, x TEXT)");
        sql(
            &db,
            "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i<400) INSERT INTO t \
             SELECT i, printf('%d.%.*c', i, 500, 'a') FROM c",
        );
        sql(&db, "PRAGMA cache_size=10");
        const LOOK: &str = "SELECT count(*), total(length(x)), min(x), max(x) FROM t";
        let mut snapshots = Vec::new();
        for round in 0..6 {
            let reader = open(&path);
            sql(&reader, "PRAGMA cache_size=10");
            sql(&reader, "BEGIN");
            let seen = sql(&reader, LOOK);
            snapshots.push((reader, seen));
            sql(&db, &format!("UPDATE t SET x = x || '{round}'"));
            sql(&db, &format!("DELETE FROM t WHERE id % 50 = {round}"));
            let how = ["PASSIVE", "FULL", "RESTART", "TRUNCATE"][round % 4];
            outcome(&db, &format!("PRAGMA wal_checkpoint({how})"));
            for (reader, seen) in &snapshots {
                assert_eq!(&sql(reader, LOOK), seen, "{mode:?}, round {round}");
            }
            // A connection on an old snapshot cannot write.
            let (oldest, _) = &snapshots[0];
            let found = outcome(oldest, "DELETE FROM t");
            assert!(found.starts_with("error 517"), "BUSY_SNAPSHOT: {found}");
        }
        for (reader, seen) in snapshots {
            assert_eq!(sql(&reader, LOOK), seen);
            sql(&reader, "COMMIT");
            assert_eq!(sql(&reader, LOOK), sql(&db, LOOK));
        }
        assert_eq!(sql(&db, "PRAGMA wal_checkpoint(TRUNCATE)"), "0|0|0");
    }
}

#[test]
fn exclusive_locking_keeps_others_out_and_lets_them_in_again() {
    for (mode, shares_its_index) in MODES.into_iter().flat_map(|m| [(m, true), (m, false)]) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        drop(open_in(&path, mode));
        let db = open(&path);
        if shares_its_index {
            sql(&db, "SELECT count(*) FROM sqlite_schema");
        }
        sql(&db, "PRAGMA locking_mode=EXCLUSIVE");
        sql(&db, "CREATE TABLE t(x)");
        for n in 0..30 {
            sql(&db, &format!("INSERT INTO t VALUES({n})"));
        }
        assert_eq!(sql(&db, "PRAGMA journal_mode"), mode.name);
        let other = open(&path);
        let found = outcome(&other, "SELECT count(*) FROM t");
        assert!(found.starts_with("error 5"), "{mode:?}: {found}");
        let crashed = directory.path().join("crashed");
        super::copy(&path, &crashed);
        assert_eq!(
            sql(&open(&crashed), "SELECT sum(x) FROM t"),
            "435",
            "{mode:?}"
        );
        sql(&db, "PRAGMA locking_mode=NORMAL");
        sql(&db, "INSERT INTO t VALUES(30)");
        if !shares_its_index {
            // A connection whose wal-index was never in shared memory keeps the database until it
            // closes.
            let found = outcome(&other, "SELECT count(*) FROM t");
            assert!(found.starts_with("error 5"), "{mode:?}: {found}");
            drop(db);
        }
        assert_eq!(sql(&other, "SELECT sum(x) FROM t"), "465", "{mode:?}");
    }
}

#[test]
fn attached_databases_in_different_modes_commit_together() {
    let stock_modes = ["delete", "truncate", "persist", "wal"];
    for (nth, mode) in MODES.into_iter().enumerate() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let db = open_in(&path("main"), mode);
        // Another of our modes, a stock mode, and one left unset.
        let other = MODES[(nth + 1) % MODES.len()];
        drop(open_in(&path("other"), other));
        let third = stock_modes[nth % stock_modes.len()];
        let modes = [
            ("main", mode.name),
            ("other", other.name),
            ("third", third),
            ("fourth", "delete"),
        ];
        for (name, _) in &modes[1..] {
            sql(&db, &format!("ATTACH '{}' AS {name}", path(name).display()));
        }
        sql(&db, &format!("PRAGMA third.journal_mode={third}"));
        for (name, _) in modes {
            sql(&db, &format!("CREATE TABLE {name}.t(x)"));
        }
        for n in 0..6 {
            sql(&db, "BEGIN");
            for (name, _) in modes {
                sql(&db, &format!("INSERT INTO {name}.t VALUES({n})"));
            }
            sql(&db, "SAVEPOINT s");
            for (name, _) in modes {
                sql(&db, &format!("INSERT INTO {name}.t VALUES('no')"));
            }
            sql(&db, ["ROLLBACK TO s", "RELEASE s"][n % 2]);
            sql(&db, ["COMMIT", "ROLLBACK"][n % 2]);
            for (name, journal) in modes {
                assert_eq!(sql(&db, &format!("PRAGMA {name}.journal_mode")), journal);
            }
        }
        let left = std::fs::read_dir(directory.path()).expect("a directory");
        let names = left.map(|entry| entry.expect("an entry").file_name());
        let mut names = names.map(|name| name.to_string_lossy().into_owned());
        assert!(
            !names.any(|name| name.contains("-mj")),
            "a super-journal stayed"
        );
        drop(db);
        for (name, _) in modes {
            let db = super::stock(&path(name));
            let rows = sql(&db, "SELECT group_concat(x) FROM t");
            assert_eq!(rows, "0,2,4", "{mode:?}, {name}");
            assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
        }
    }
}

/// A commit that fails in one database commits in none. Stock connections see only whole
/// transactions.
#[test]
fn a_database_that_is_busy_keeps_a_common_commit_from_all() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let (main, other) = (
            directory.path().join("main"),
            directory.path().join("other"),
        );
        let db = open_in(&main, mode);
        let attach = format!("ATTACH '{}' AS other", other.display());
        sql(&db, &attach);
        sql(&db, "CREATE TABLE main.t(x)");
        sql(&db, "CREATE TABLE other.t(x)");
        // In a rollback mode, a reader lets others write but not commit.
        let reader = super::stock(&other);
        sql(&reader, "BEGIN");
        sql(&reader, "SELECT * FROM t");
        sql(&db, "BEGIN");
        sql(&db, "INSERT INTO main.t VALUES(1)");
        sql(&db, "INSERT INTO other.t VALUES(1)");
        let found = outcome(&db, "COMMIT");
        assert!(found.starts_with("error 5"), "{mode:?}: {found}");
        let second = open(&main);
        assert_eq!(sql(&second, "SELECT count(*) FROM t"), "0", "{mode:?}");
        sql(&reader, "COMMIT");
        sql(&db, "COMMIT");
        assert_eq!(sql(&second, "SELECT count(*) FROM t"), "1", "{mode:?}");
        assert_eq!(sql(&reader, "SELECT count(*) FROM t"), "1", "{mode:?}");
    }
}
