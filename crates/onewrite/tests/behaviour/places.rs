//! Where the database lies: without direct I/O, read-only, on a full disk.

use super::scratch::Scratch;
use super::settings::heard;
use super::{MODES, WALDIO, copy, open, open_flags, open_in, outcome, sql, status};
use rusqlite::OpenFlags;

#[test]
fn without_direct_io_every_layout_works_and_says_why() {
    let memory = tempfile::tempdir_in("/dev/shm");
    let temporary = tempfile::tempdir().expect("a directory");
    for mode in MODES {
        let name = format!("{}{}", mode.name, mode.before.len());
        let off = temporary.path().join(&name);
        let mut places = vec![(off, "turned off")];
        match &memory {
            Ok(memory) => places.push((memory.path().join(&name), "tmpfs")),
            Err(e) => eprintln!("SKIPPED in memory: {e}"),
        }
        for (path, why) in places {
            let _ = std::fs::remove_file(&path);
            let db = open(&path);
            if why == "turned off" {
                sql(&db, "PRAGMA onewrite_direct_io=off");
            }
            for pragma in mode.before {
                sql(&db, pragma);
            }
            assert_eq!(
                sql(&db, &format!("PRAGMA journal_mode={}", mode.name)),
                mode.name
            );
            sql(&db, "CREATE TABLE t(x)");
            for n in 0..20 {
                sql(&db, &format!("INSERT INTO t VALUES({n})"));
            }
            let status = status(&db);
            assert_eq!(status["direct_io"], false);
            let said = status["direct_io_why_not"].as_str().unwrap_or_default();
            assert!(said.contains(why), "{said}");
            let crashed = super::companion(&path, ".copy");
            copy(&path, &crashed);
            for path in [&crashed, &path] {
                let db = open(path);
                assert_eq!(sql(&db, "SELECT sum(x) FROM t"), "190");
                assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
            }
            drop(db);
            for suffix in ["", "-onewrite", "-wal", "-shm"] {
                let _ = std::fs::remove_file(super::companion(&path, suffix));
            }
        }
    }
}

/// Nothing there is durable, and a program that asks for FULL believes that it is.
#[test]
fn a_database_in_memory_is_a_warning_and_works() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("SKIPPED: no /dev/shm here");
        return;
    };
    let path = memory.path().join("db");
    let (text, errors) = heard(&path, &[("ONEWRITE_MAKE_DEFAULT", "1")]);
    assert!(
        text.contains("mode=delete,stock") && errors.is_empty(),
        "{text}{errors}"
    );
    let usual = [
        ("ONEWRITE_MAKE_DEFAULT", "1"),
        ("ONEWRITE_JOURNAL_MODE", "onewrite"),
    ];
    let (text, errors) = heard(&path, &usual);
    assert_eq!(text.matches("mode=onewrite,onewrite").count(), 2, "{text}");
    // It names the mount, or the database where the mount is not known.
    let told = "tmpfs keeps files in memory: no commit survives a power cut";
    // In the status of both connections, and once on standard error.
    assert_eq!(text.matches("warnings=[\"/dev/shm").count(), 2, "{text}");
    assert_eq!(text.matches(told).count(), 2, "{text}");
    assert!(errors.starts_with("onewrite: /dev/shm"), "{errors}");
    assert_eq!(errors.matches(told).count(), 1, "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    let directory = tempfile::tempdir().expect("a directory");
    let (text, errors) = heard(&directory.path().join("db"), &usual);
    assert!(errors.is_empty(), "{errors}");
    assert_eq!(text.matches("warnings=[]").count(), 2, "{text}");
}

#[test]
fn readers_open_a_database_at_rest_in_use_and_after_a_crash() {
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let reader = |path| {
            open_flags(path, "onewrite", OpenFlags::SQLITE_OPEN_READ_ONLY).expect("a reader")
        };
        let db = open_in(&path, mode);
        sql(&db, "CREATE TABLE t(x)");
        sql(&db, "INSERT INTO t VALUES(1)");
        drop(db);
        // A reader of a database at rest, before a writer comes.
        let first = reader(&path);
        assert_eq!(sql(&first, "SELECT count(*) FROM t"), "1", "{mode:?}");
        let db = open(&path);
        sql(&db, "INSERT INTO t VALUES(2)");
        assert_eq!(sql(&first, "SELECT count(*) FROM t"), "2", "{mode:?}");
        let second = reader(&path);
        assert_eq!(sql(&second, "SELECT count(*) FROM t"), "2");
        assert!(outcome(&second, "DELETE FROM t").starts_with("error 8"));
        let refused = outcome(&second, "PRAGMA journal_mode=delete");
        assert!(
            refused.starts_with("error") || refused == mode.name,
            "{refused}"
        );
        sql(&db, "INSERT INTO t VALUES(3)");
        let crashed = directory.path().join("crashed");
        copy(&path, &crashed);
        drop((first, second, db));
        let after = reader(&crashed);
        assert_eq!(sql(&after, "SELECT count(*) FROM t"), "3", "{mode:?}");
        // The last to close is a reader, which cannot clear up. The next writer can.
        drop(after);
        let db = open(&crashed);
        sql(&db, "INSERT INTO t VALUES(4)");
        drop(db);
        let db = super::stock(&crashed);
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "4", "{mode:?}");
    }
}

/// A hard link has a log of its own. In one process SQLite would read that with the index of the other.
#[test]
fn a_second_name_of_an_open_file_is_refused_with_the_first() {
    let flags = OpenFlags::default();
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let [path, link] = ["db", "link"].map(|name| directory.path().join(name));
        let db = open_in(&path, mode);
        sql(&db, "CREATE TABLE t(x)");
        std::fs::hard_link(&path, &link).expect("a link");
        let refused = open_flags(&link, "onewrite", flags).expect_err("it is in use");
        let refused = refused.to_string();
        for part in [link.as_path(), &path].map(|path| path.to_str().expect("UTF-8")) {
            assert!(refused.contains(part), "{mode:?}: {refused}");
        }
        assert!(
            refused.contains("a log for each name"),
            "{mode:?}: {refused}"
        );
        assert!(refused.contains("onewrite backup"), "{mode:?}: {refused}");
        let attach = format!("ATTACH '{}' AS other", link.display());
        let attached = super::outcome(&db, &attach);
        assert!(attached.starts_with("error 14"), "{mode:?}: {attached}");
        // The first name goes on, in other connections, too.
        sql(&db, "INSERT INTO t VALUES(1)");
        let other = open(&path);
        assert_eq!(sql(&other, "SELECT count(*) FROM t"), "1", "{mode:?}");
        drop((other, db));
        let linked = open(&link);
        assert_eq!(sql(&linked, "SELECT count(*) FROM t"), "1", "{mode:?}");
    }
    // In a rollback mode there is no log to share.
    let directory = tempfile::tempdir().expect("a directory");
    let [path, link] = ["db", "link"].map(|name| directory.path().join(name));
    let db = open(&path);
    sql(&db, "CREATE TABLE t(x)");
    std::fs::hard_link(&path, &link).expect("a link");
    assert_eq!(sql(&open(&link), "SELECT count(*) FROM t"), "0");
}

#[test]
fn a_full_disk_rolls_back_and_later_commits_work() {
    for mode in MODES {
        let Some(disk) = Scratch::ext4(48, &["-m", "0"], "") else {
            return;
        };
        let path = disk.path().join("db");
        let filler = disk.path().join("filler");
        let db = open_in(&path, mode);
        sql(&db, "PRAGMA wal_autocheckpoint=0");
        sql(&db, "CREATE TABLE t(id INTEGER PRIMARY KEY, x)");
        sql(&db, "INSERT INTO t(x) VALUES(randomblob(1000))");
        // Another file takes all free space.
        let fill = std::process::Command::new("dd")
            .args(["if=/dev/zero", "bs=64k"])
            .arg(format!("of={}", filler.display()))
            .output()
            .expect("dd");
        assert!(!fill.status.success(), "the disk is not full");
        let many = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i<9000) \
                    INSERT INTO t(x) SELECT randomblob(3000) FROM c";
        for big in ["BEGIN", "PRAGMA cache_size=10"] {
            sql(&db, big);
        }
        let found = outcome(&db, many);
        assert!(found.starts_with("error 13"), "{mode:?}: {found}");
        let _ = outcome(&db, "ROLLBACK");
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "1", "{mode:?}");
        assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
        // Small transactions, until they fail too.
        let mut rows = 1;
        let failed = loop {
            let found = outcome(&db, "INSERT INTO t(x) VALUES(randomblob(20000))");
            match found.starts_with("error") {
                true => break found,
                false => rows += 1,
            }
        };
        assert!(failed.starts_with("error 13"), "{mode:?}: {failed}");
        // SQLite has one fixed text for this error. The status has the file and the way out.
        let error = status(&db)["error"].to_string();
        let names_log = error.contains("db-onewrite") || error.contains("db-wal");
        assert!(
            names_log && error.contains("free some space"),
            "{mode:?}: {error}"
        );
        let count = rows.to_string();
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), count, "{mode:?}");
        std::fs::remove_file(&filler).expect("space");
        sql(&db, "INSERT INTO t(x) VALUES(randomblob(20000))");
        sql(&db, "DELETE FROM t WHERE id > 1");
        let elsewhere = tempfile::tempdir().expect("a directory");
        let crashed = elsewhere.path().join("crashed");
        copy(&path, &crashed);
        drop(db);
        for path in [&path, &crashed] {
            let db = open(path);
            assert_eq!(sql(&db, "SELECT count(*) FROM t"), "1", "{mode:?}");
            assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
            let db = open(path);
            assert_eq!(sql(&db, "PRAGMA journal_mode"), mode.name);
        }
    }
}

#[test]
fn a_database_without_room_for_frame_headers_says_how_to_get_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = super::stock(&path);
    sql(&db, "CREATE TABLE t(x)");
    drop(db);
    let db = open(&path);
    let refused = outcome(&db, "PRAGMA journal_mode=waldio");
    assert!(refused.contains("onewrite_reserve_bytes=24"), "{refused}");
    assert_eq!(sql(&db, "PRAGMA journal_mode"), "delete");
    for pragma in [
        "PRAGMA onewrite_reserve_bytes=24",
        "PRAGMA journal_mode=delete",
        "VACUUM",
    ] {
        sql(&db, pragma);
    }
    assert_eq!(sql(&db, "PRAGMA journal_mode=waldio"), "waldio");
    drop(db);
    let db = open_in(&path, WALDIO);
    assert_eq!(status(&db)["layout"], "embedded");
}

/// 247 bytes and "-journal" make 255, the limit for a name. "-onewrite" has one byte more.
#[test]
fn a_name_without_room_for_our_suffix_keeps_no_other_mode_from_working() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("n".repeat(247));
    let db = open(&path);
    for mode in ["delete", "wal"] {
        assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
        sql(&db, &format!("CREATE TABLE {mode}_mode(x)"));
    }
    for (mode, layout) in [("waldio", "page4k"), ("direct", "embedded")] {
        sql(&db, &format!("PRAGMA onewrite_layout={layout}"));
        let refused = outcome(&db, &format!("PRAGMA journal_mode={mode}"));
        assert!(refused.starts_with("error 14"), "{mode}: {refused}");
        sql(&db, &format!("CREATE TABLE after_{mode}(x)"));
    }
    drop(db);
    let tables = "SELECT count(*) FROM sqlite_schema";
    for db in [open(&path), super::stock(&path)] {
        assert_eq!(sql(&db, tables), "4");
    }
}

/// There, direct writes are multiples of the device's sectors of 4,096 bytes. A frame may be larger
/// by its header.
#[test]
fn a_device_with_large_sectors_takes_direct_writes_in_every_mode() {
    for mode in MODES {
        let Some(disk) = Scratch::ext4_on_large_sectors(64) else {
            return;
        };
        let path = disk.path().join("db");
        if mode.before == ["PRAGMA onewrite_layout=sector"] {
            // That layout consists of units of 512 bytes.
            let db = open(&path);
            sql(&db, mode.before[0]);
            let refused = outcome(&db, "PRAGMA journal_mode=waldio");
            assert!(refused.contains("use onewrite_layout=page4k"), "{refused}");
            continue;
        }
        let db = open_in(&path, mode);
        sql(&db, "CREATE TABLE t(x)");
        let status = status(&db);
        // The paper's log always uses the page cache.
        let is_direct = mode.name != "swal";
        assert_eq!(status["direct_io"], is_direct, "{mode:?}: {status}");
        for n in 0..60 {
            sql(
                &db,
                &format!("INSERT INTO t VALUES(randomblob({}))", n * 97),
            );
        }
        sql(&db, "PRAGMA wal_checkpoint(RESTART)");
        sql(&db, "INSERT INTO t VALUES(randomblob(20000))");
        assert_eq!(self::status(&db)["direct_io"], is_direct, "{mode:?}");
        let crashed = disk.path().join("crashed");
        copy(&path, &crashed);
        drop(db);
        for path in [&path, &crashed] {
            let db = open(path);
            assert_eq!(sql(&db, "SELECT count(*) FROM t"), "61", "{mode:?}");
            assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
        }
    }
}

/// Databases over 4 GiB: page numbers and offsets beyond 32 bits, in a sparse file.
#[test]
fn a_database_of_more_than_four_gibibytes_is_written_at_its_end() {
    for mode in [WALDIO, MODES[4], MODES[6]] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = open_in(&path, mode);
        sql(&db, "CREATE TABLE t(x)");
        sql(&db, "PRAGMA journal_mode=delete");
        drop(db);
        let pages = enlarge(&path, 5 << 30);
        let db = open_in(&path, mode);
        assert_eq!(sql(&db, "PRAGMA page_count"), pages.to_string());
        for n in 0..20 {
            sql(
                &db,
                &format!("INSERT INTO t VALUES(randomblob(20000 + {n}))"),
            );
        }
        let crashed = directory.path().join("crashed");
        copy(&path, &crashed);
        sql(&db, "PRAGMA wal_checkpoint(TRUNCATE)");
        drop(db);
        for path in [&path, &crashed] {
            let db = open(path);
            assert_eq!(
                sql(&db, "SELECT count(*), sum(length(x)) > 400000 FROM t"),
                "20|1"
            );
            let all: u64 = sql(&db, "PRAGMA page_count").parse().expect("a number");
            assert!(all > pages, "the rows lie beyond: {all}");
        }
    }
}

/// Enlarges a database at rest by a hole. Returns its number of pages.
fn enlarge(path: &std::path::Path, bytes: u64) -> u64 {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().read(true).write(true).open(path);
    let file = file.expect("the database");
    let mut header = [0; 100];
    file.read_exact_at(&mut header, 0).expect("a header");
    let pages = bytes / u64::from(u16::from_be_bytes([header[16], header[17]]));
    let number = u32::try_from(pages).expect("32 bits").to_be_bytes();
    file.write_all_at(&number, 28).expect("the page count");
    file.set_len(bytes).expect("a hole");
    pages
}
