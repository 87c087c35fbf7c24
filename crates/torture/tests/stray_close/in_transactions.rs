//! Stray closes in the middle of a transaction: RESERVED, EXCLUSIVE, SHARED, and the locks of the
//! wal-index.

use super::program::{Kind, Library, Program};
use super::{Fixture, LOGGED, ROLLBACK, assert_rows, five_rows, insert_five, with_both};

const BUSY: &str = "ERROR database is locked";

fn visitors(mode_is_guarded: bool) -> Vec<Kind> {
    match mode_is_guarded {
        true => vec![Kind::Ours],
        false => vec![Kind::Ours, Kind::Stock],
    }
}

#[test]
fn nobody_writes_next_to_a_reserved_lock() {
    with_both(|library| {
        for (mode, kind) in in_rollback_modes() {
            let fixture = Fixture::new();
            let database = fixture.database();
            let mut writer = five_rows(library, mode, &database);
            writer.must("BEGIN IMMEDIATE");
            insert_five(&mut writer);
            writer.stray(&database);
            let mut other = Program::with(library, kind, &database);
            assert_eq!(other.sql("SELECT count(*) FROM t"), "5", "{mode}");
            assert_eq!(other.sql("INSERT INTO t DEFAULT VALUES"), BUSY, "{mode}");
            other.close();
            writer.must("COMMIT");
            writer.kill();
            assert_rows(Kind::Stock, &database, 10, mode);
        }
    });
}

#[test]
fn nobody_reads_next_to_an_exclusive_lock() {
    with_both(|library| {
        for (mode, kind) in in_rollback_modes() {
            let fixture = Fixture::new();
            let database = fixture.database();
            let mut writer = five_rows(library, mode, &database);
            writer.must("BEGIN EXCLUSIVE");
            insert_five(&mut writer);
            writer.stray(&database);
            let mut other = Program::with(library, kind, &database);
            assert_eq!(other.sql("SELECT count(*) FROM t"), BUSY, "{mode}");
            other.close();
            writer.must("COMMIT");
            writer.kill();
            assert_rows(Kind::Stock, &database, 10, mode);
        }
    });
}

#[test]
fn nobody_commits_under_a_reader() {
    with_both(|library| {
        for (mode, kind) in in_rollback_modes() {
            let fixture = Fixture::new();
            let database = fixture.database();
            let mut reader = five_rows(library, mode, &database);
            reader.must("BEGIN");
            reader.must("SELECT count(*) FROM t");
            reader.stray(&database);
            let mut other = Program::with(library, kind, &database);
            assert_eq!(other.sql("INSERT INTO t DEFAULT VALUES"), BUSY, "{mode}");
            other.close();
            reader.must("COMMIT");
            insert_five(&mut reader);
            reader.close();
            assert_rows(Kind::Stock, &database, 10, mode);
        }
    });
}

fn in_rollback_modes() -> impl Iterator<Item = (&'static str, Kind)> {
    let kinds = |mode| [Kind::Ours, Kind::Stock].map(|kind| (mode, kind));
    ROLLBACK.into_iter().flat_map(kinds)
}

#[test]
fn nobody_takes_the_write_lock_of_the_wal_index() {
    with_both(|library| {
        for mode in LOGGED {
            for kind in visitors(mode.is_guarded()) {
                let fixture = Fixture::new();
                let database = fixture.database();
                let mut writer = five_rows(library, mode.name, &database);
                writer.must("BEGIN IMMEDIATE");
                insert_five(&mut writer);
                writer.stray(&fixture.file("-shm"));
                let mut other = Program::with(library, kind, &database);
                assert_eq!(other.sql("INSERT INTO t DEFAULT VALUES"), BUSY, "{mode:?}");
                other.close();
                writer.must("COMMIT");
                writer.kill();
                assert_rows(Kind::Ours, &database, 10, mode.name);
            }
        }
    });
}

#[test]
fn no_log_starts_again_under_a_reader() {
    with_both(|library| {
        for mode in LOGGED {
            for kind in visitors(mode.is_guarded()) {
                no_log_starts_again_under(library, mode.name, kind);
            }
        }
    });
}

fn no_log_starts_again_under(library: Library, mode: &str, kind: Kind) {
    let fixture = Fixture::new();
    let database = fixture.database();
    let mut reader = five_rows(library, mode, &database);
    reader.must("BEGIN");
    assert_eq!(reader.must("SELECT count(*) FROM t"), "5");
    reader.stray(&fixture.file("-shm"));
    let mut other = Program::with(library, kind, &database);
    insert_five(&mut other);
    let checkpoint = other.must("PRAGMA wal_checkpoint(RESTART)");
    assert!(checkpoint.starts_with("1|"), "{mode}: {checkpoint}");
    insert_five(&mut other);
    assert_eq!(reader.must("SELECT count(*) FROM t"), "5", "{mode}");
    reader.must("COMMIT");
    other.close();
    reader.close();
    assert_rows(Kind::Ours, &database, 15, mode);
}
