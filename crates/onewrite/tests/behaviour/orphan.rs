//! Databases that are removed and created again while their log has transactions: after a kill, and
//! with a connection that was never closed.

use super::{
    MODES, Mode, companion, copy, guarded, open, open_flags, open_in, outcome, sql, status, stock,
};
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};

const COUNT: &str = "SELECT count(*) FROM t";

fn fill(db: &Connection, rows: u32) {
    sql(db, "CREATE TABLE t(id INTEGER PRIMARY KEY, x)");
    for _ in 0..rows {
        sql(db, "INSERT INTO t(x) VALUES(randomblob(300))");
    }
}

/// The files that a kill leaves of a database with nine rows.
fn killed(directory: &Path, mode: Mode) -> PathBuf {
    let (origin, path) = (directory.join("origin"), directory.join("db"));
    let db = open_in(&origin, mode);
    fill(&db, 9);
    copy(&origin, &path);
    path
}

/// The logs that were set aside next to a database.
fn orphans(path: &Path) -> Vec<PathBuf> {
    let begin = companion(path, "-onewrite-orphan-");
    let entries = std::fs::read_dir(path.parent().expect("a directory")).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let begins = |path: &PathBuf| {
        path.to_string_lossy()
            .starts_with(&*begin.to_string_lossy())
    };
    paths.filter(begins).collect()
}

#[test]
fn the_log_of_a_removed_database_is_set_aside_and_kept_whole() {
    for mode in guarded() {
        // The new database: none yet, or one that a stock connection made without a table.
        for made_by_stock in [false, true] {
            let directory = tempfile::tempdir().expect("a directory");
            let path = killed(directory.path(), mode);
            let (log, old) = (companion(&path, "-onewrite"), directory.path().join("old"));
            let whole = std::fs::read(&log).expect("the log");
            std::fs::rename(&path, &old).expect("a rename");
            if made_by_stock {
                let db = stock(&path);
                sql(&db, "PRAGMA journal_mode=wal");
                sql(&db, "PRAGMA user_version=7");
            }
            let mode = match made_by_stock {
                // It has no reserved bytes.
                true if mode.name == "waldio" => MODES[2],
                _ => mode,
            };
            let db = open_in(&path, mode);
            fill(&db, 3);
            assert_eq!(sql(&db, COUNT), "3", "{mode:?}");
            drop(db);

            let orphans = orphans(&path);
            assert_eq!(orphans.len(), 1, "{mode:?}: {orphans:?}");
            assert!(std::fs::read(&orphans[0]).expect("it") == whole, "{mode:?}");
            assert_eq!(sql(&stock(&path), COUNT), "3", "{mode:?}");
            // Back under its name, it is the same log as before.
            std::fs::rename(&orphans[0], &log).expect("a rename");
            std::fs::rename(&old, &path).expect("a rename");
            let db = open(&path);
            assert_eq!(sql(&db, COUNT), "9", "{mode:?}");
            assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
        }
    }
}

/// Without the first block it passed for a log that was never written, and a new one was made over it.
#[test]
fn a_log_that_has_lost_its_first_block_is_kept_whole() {
    for mode in guarded() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = killed(directory.path(), mode);
        let log = companion(&path, "-onewrite");
        let file = std::fs::File::options().write(true).open(&log);
        let file = file.expect("the log");
        std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4096], 0).expect("zeros");
        let whole = std::fs::read(&log).expect("the log");
        std::fs::remove_file(&path).expect("the database");
        let db = open_in(&path, mode);
        fill(&db, 3);
        assert_eq!(sql(&db, COUNT), "3", "{mode:?}");
        let orphans = orphans(&path);
        assert_eq!(orphans.len(), 1, "{mode:?}: {orphans:?}");
        assert!(std::fs::read(&orphans[0]).expect("it") == whole, "{mode:?}");
    }
}

#[test]
fn the_connection_that_set_a_log_aside_says_where_to() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = killed(directory.path(), MODES[6]);
    std::fs::remove_file(&path).expect("the database");
    let db = open(&path);
    sql(&db, "SELECT count(*) FROM sqlite_schema");
    let said = status(&db)["set_aside"].as_str().map(PathBuf::from);
    assert_eq!(said, orphans(&path).first().cloned());
    assert!(said.is_some_and(|aside| aside.exists()));
}

/// A test suite that forgets to close its connections: each holds the log of its removed database.
#[test]
fn databases_removed_under_a_connection_can_be_made_again_any_number_of_times() {
    for mode in guarded() {
        // A connection that has not committed still has its log open.
        for commits in [true, false] {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("db");
            let mut leaked = Vec::new();
            for round in 0..4 {
                let db = open_in(&path, mode);
                if commits {
                    fill(&db, 2);
                } else {
                    sql(&db, "PRAGMA schema_version");
                }
                for (nth, old) in leaked.iter().enumerate() {
                    let table = format!("CREATE TABLE u{round}_{nth}(x)");
                    outcome(old, &table);
                    outcome(old, "PRAGMA wal_checkpoint");
                }
                leaked.push(db);
                if round < 3 {
                    std::fs::remove_file(&path).expect("the database");
                }
            }
            let last = leaked.pop().expect("a connection");
            if !commits {
                fill(&last, 2);
            }
            for old in &leaked {
                outcome(old, "CREATE TABLE v(x)");
                outcome(old, "PRAGMA journal_mode=delete");
                outcome(old, "PRAGMA journal_mode=direct");
            }
            sql(&last, "INSERT INTO t(x) VALUES(1)");
            let left = directory.path().join("left");
            copy(&path, &left);
            let after = open(&left);
            assert_eq!(sql(&after, COUNT), "3", "{mode:?}, {commits}: killed");
            assert_eq!(sql(&after, "PRAGMA integrity_check"), "ok");
            drop((last, leaked));
            let db = stock(&path);
            assert_eq!(sql(&db, COUNT), "3", "{mode:?}, {commits}");
            assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
        }
    }
}

#[test]
fn a_file_that_is_no_log_does_not_keep_a_new_database_from_a_mode() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    std::fs::write(companion(&path, "-onewrite"), "something else").expect("a write");
    let db = open_in(&path, MODES[6]);
    fill(&db, 3);
    assert_eq!(sql(&db, COUNT), "3");
    let kept = std::fs::read(&orphans(&path)[0]).expect("it");
    assert_eq!(kept, b"something else");
}

/// A read-only connection sets nothing aside, and a database with content is not new.
#[test]
fn a_log_is_not_set_aside_for_a_database_with_a_table_nor_by_a_reader() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = killed(directory.path(), MODES[6]);
    std::fs::write(&path, "").expect("an empty database");
    let reader = open_flags(&path, "onewrite", OpenFlags::SQLITE_OPEN_READ_ONLY);
    let refused = reader.expect_err("refused").to_string();
    assert!(refused.contains("onewrite salvage"), "{refused}");

    let db = stock(&path);
    sql(&db, "CREATE TABLE t(x)");
    // A table existed here, even if it was dropped.
    for statement in ["SELECT 1", "DROP TABLE t"] {
        sql(&db, statement);
        super::damage::refused(&path, "onewrite salvage");
        assert_eq!(orphans(&path).len(), 0, "{statement}");
    }
}

#[test]
fn the_number_of_logs_that_are_set_aside_is_limited() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = killed(directory.path(), MODES[6]);
    std::fs::remove_file(&path).expect("the database");
    for n in 0..1000 {
        let name = companion(&path, &format!("-onewrite-orphan-{n}"));
        std::fs::write(name, "").expect("a file");
    }
    let db = open(&path);
    let found = outcome(&db, "SELECT count(*) FROM sqlite_schema");
    assert!(found.starts_with("error 14"), "{found}");
    let said = status(&db)["error"].to_string();
    assert!(said.contains("onewrite salvage"), "{said}");
    assert!(companion(&path, "-onewrite").exists());
}

/// A name so long that `<db>-onewrite-orphan-<id>` does not fit in a name of 255 bytes.
#[test]
fn a_database_with_a_long_name_can_be_made_again_like_any_other() {
    for len in [217, 218, 223, 241] {
        let directory = tempfile::tempdir().expect("a directory");
        let killed = killed(directory.path(), MODES[6]);
        let path = directory.path().join("n".repeat(len));
        for round in 0..2 {
            std::fs::copy(
                companion(&killed, "-onewrite"),
                companion(&path, "-onewrite"),
            )
            .expect("it");
            let db = open_in(&path, MODES[6]);
            fill(&db, 3);
            assert_eq!(sql(&db, COUNT), "3", "{len}");
            let aside = status(&db)["set_aside"].as_str().map(PathBuf::from);
            let aside = aside.unwrap_or_else(|| panic!("{len}: no name"));
            let (whole, kept) = (companion(&killed, "-onewrite"), std::fs::read(&aside));
            assert!(
                kept.expect("it") == std::fs::read(whole).expect("it"),
                "{len}"
            );
            assert!(aside.to_string_lossy().contains("-onewrite-orphan-"));
            drop(db);
            std::fs::remove_file(&path).expect("the database");
            std::fs::remove_file(companion(&path, "-onewrite")).expect("the log");
            let files = std::fs::read_dir(directory.path()).expect("a directory");
            let orphans = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
            let orphans = orphans.filter(|name| name.contains("-orphan-")).count();
            assert_eq!(orphans, round + 1, "{len}");
        }
    }
}

#[test]
fn a_name_without_room_for_the_files_of_a_mode_is_refused_before_anything_changes() {
    for (len, mode) in [(242, "onewrite"), (242, "swal"), (247, "direct")] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("z".repeat(len));
        let db = open(&path);
        // SQLite itself needs 8 bytes for "-journal".
        assert_eq!(sql(&db, "PRAGMA journal_mode=wal"), "wal");
        sql(&db, "CREATE TABLE t(x)");
        let found = outcome(&db, &format!("PRAGMA journal_mode={mode}"));
        assert!(found.starts_with("error 14"), "{mode}: {found}");
        let most = if mode == "direct" { 246 } else { 241 };
        assert!(found.contains(&format!("at most {most}:")), "{found}");
        assert_eq!(sql(&db, "PRAGMA journal_mode"), "wal", "{mode}");
        sql(&db, "INSERT INTO t VALUES(1)");
        assert_eq!(sql(&db, COUNT), "1");
    }
}
