//! Strict group commit during a flush: which connections wait for it, and the result for each when
//! it fails. Each test follows one rule of `docs/durability.md`, J1 to J17.

use super::refusal::{COMPANY, Refusal, Which};
use super::{ROWS, code, companion, directory, failing, made, open, rows, sql, status, try_sql};
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::Duration;

const INSERT: &str = "INSERT INTO t VALUES('more')";

/// A connection that waits for locks as applications do.
pub(super) fn patient(path: &Path) -> Connection {
    let db = open(path);
    db.busy_timeout(Duration::from_secs(60)).expect("a timeout");
    db
}

/// Runs a test in each mode in which commits are grouped by default. In `direct` the log is SQLite's
/// own.
fn in_each_mode(test: impl Fn(&Path, &str)) {
    for mode in ["onewrite", "direct"] {
        println!("in {mode}");
        let directory = directory();
        test(&directory.path().join("db"), mode);
    }
}

/// A database with two connections that have each just committed. From here on they are in company:
/// their commits are published before they are durable.
pub(super) fn in_company(path: &Path, mode: &str) -> [Connection; 2] {
    let db = made(path, &[]);
    sql(&db, "PRAGMA onewrite_layout=auto");
    assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
    db.busy_timeout(Duration::from_secs(60)).expect("a timeout");
    let other = patient(path);
    for db in [&db, &other, &db] {
        sql(db, "DELETE FROM t WHERE x = 'more'");
        sql(db, INSERT);
    }
    [db, other]
}

pub(super) fn deferred(db: &Connection) -> u64 {
    status(db)["group_commits"]["commits"]
        .as_u64()
        .expect("a number")
}

/// How many commits have arrived for a flush: a word of the memory that processes share.
fn arrivals(path: &Path) -> u32 {
    let page = companion(&companion(path, "-onewrite"), "-shm");
    let page = std::fs::read(page).expect("the page that processes share");
    u32::from_ne_bytes(page[60..64].try_into().expect("a word"))
}

#[test]
fn connections_that_take_turns_publish_first() {
    in_each_mode(|path, mode| {
        let dbs = in_company(path, mode);
        let before = deferred(&dbs[0]);
        for db in dbs.iter().cycle().take(6) {
            sql(db, INSERT);
        }
        assert_eq!(deferred(&dbs[0]) - before, 6);
        let off = "PRAGMA onewrite_group_commit=off";
        dbs.iter().for_each(|db| assert_eq!(sql(db, off), "off"));
        dbs.iter().for_each(|db| drop(sql(db, INSERT)));
        assert_eq!(deferred(&dbs[0]) - before, 6);
    });
}

/// The commit is published then: others may have read it.
#[test]
fn a_commit_whose_flush_lock_cannot_be_taken_is_flushed_without_it() {
    in_each_mode(|path, mode| {
        let [db, other] = in_company(path, mode);
        let before = rows(&other);
        let no_locks_left = Refusal::of(path, Which::FlushLock, 37);
        let flush = Refusal::held(path, Which::Flush, 0);
        flush.release();
        sql(&db, INSERT);
        assert!(no_locks_left.has_come() && flush.has_come());
        drop((no_locks_left, flush));
        assert_eq!(rows(&other), before + 1);
        sql(&other, INSERT);
        assert_eq!(rows(&db), before + 2);
    });
}

#[test]
fn a_writer_that_is_alone_again_writes_by_itself() {
    in_each_mode(|path, mode| {
        let [db, other] = in_company(path, mode);
        drop(other);
        std::thread::sleep(COMPANY + Duration::from_millis(10));
        let before = deferred(&db);
        (0..5).for_each(|_| drop(sql(&db, INSERT)));
        assert_eq!(deferred(&db), before);
    });
}

/// SQLite's busy handler sleeps for up to 100 ms, longer than company lasts. Meanwhile the commit of a
/// slow device ends, and its connection comes back. If it kept the write lock for another flush, a
/// `busy_timeout` above one flush would be too short.
#[test]
fn a_commit_after_one_in_which_others_were_refused_holds_nobody_up() {
    in_each_mode(|path, mode| {
        let [db, other] = in_company(path, mode);
        let alone = || std::thread::sleep(COMPANY + Duration::from_millis(10));
        other.busy_timeout(Duration::ZERO).expect("no timeout");
        alone();
        let before = deferred(&db);
        sql(&db, INSERT);
        assert_eq!(deferred(&db), before, "alone");
        sql(&db, "BEGIN IMMEDIATE");
        assert!(try_sql(&other, INSERT).is_err(), "the lock is taken");
        alone();
        sql(&db, INSERT);
        sql(&db, "COMMIT");
        assert_eq!(deferred(&db), before + 1, "another one waits");
        alone();
        sql(&db, INSERT);
        assert_eq!(deferred(&db), before + 1, "nobody came");
    });
}

/// SQLite rolls back what finds no space, and the application tries again.
#[test]
fn a_commit_in_place_of_one_that_failed_is_in_company_as_that_was() {
    in_each_mode(|path, mode| {
        let [db, other] = in_company(path, mode);
        let alone = || std::thread::sleep(COMPANY + Duration::from_millis(10));
        other.busy_timeout(Duration::ZERO).expect("no timeout");
        sql(&db, "BEGIN IMMEDIATE");
        assert!(try_sql(&other, INSERT).is_err(), "the lock is taken");
        sql(&db, "ROLLBACK");
        alone();
        let before = deferred(&db);
        let full = Refusal::of(path, Which::Frames, 28);
        assert_eq!(failing(&db, INSERT), code::FULL);
        assert!(full.has_come());
        drop(full);
        for _ in 0..2 {
            sql(&db, INSERT);
            assert_eq!(deferred(&db), before + 1, "the first of the two");
        }
    });
}

/// The flush of a slow device takes longer than company lasts. The one that committed last may be the
/// first to come back. A machine that is too slow may need several tries.
#[test]
fn a_commit_after_a_flush_for_several_is_in_company_and_the_next_is_not() {
    in_each_mode(|path, mode| {
        let tries = (0..20).map(|number| path.with_file_name(format!("{number}.db")));
        assert!(tries.into_iter().any(|path| flush_for_several(&path, mode)));
    });
}

/// False if a commit has waited so long for the flush that is held back that it flushed by itself.
fn flush_for_several(path: &Path, mode: &str) -> bool {
    let [db, other] = in_company(path, mode);
    let last = patient(path);
    assert!(rows(&last) > 0);
    let watcher = open(path);
    sql(&watcher, "PRAGMA onewrite_read_durable=off");
    assert!(rows(&watcher) > 0);
    let begun = deferred(&watcher);
    let awaits = |commits| {
        while deferred(&watcher) < begun + commits {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let arrived = arrivals(path);
    let held = Refusal::held(path, Which::Flush, 0);
    let insert = |db: Connection| {
        std::thread::spawn(move || {
            sql(&db, INSERT);
            db
        })
    };
    let first = insert(db);
    held.wait();
    let other = insert(other);
    awaits(2);
    let last = insert(last);
    awaits(3);
    // They arrive at the flush a moment after they are counted.
    while arrivals(path).wrapping_sub(arrived) < 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    held.release();
    let [_db, _other, last] = [first, other, last].map(|it| it.join().expect("no panic"));
    if status(&watcher)["group_commits"]["timed_out"] != 0 {
        return false;
    }
    for commits in [4, 4] {
        std::thread::sleep(COMPANY + Duration::from_millis(10));
        sql(&last, INSERT);
        assert_eq!(deferred(&watcher), begun + commits);
    }
    true
}

/// During a flush others commit, and one flush is enough for all of them.
#[test]
fn others_commit_during_a_flush_and_share_the_next() {
    in_each_mode(|path, mode| {
        let [db, other] = in_company(path, mode);
        let third = patient(path);
        // A connection that does not know the schema reads it first, and waits.
        assert!(rows(&third) > 0);
        let flushes = |db| {
            status(db)["group_commits"]["flushes"]
                .as_u64()
                .expect("a number")
        };
        let watcher = open(path);
        sql(&watcher, "PRAGMA onewrite_read_durable=off");
        assert!(rows(&watcher) > 0);
        let before = flushes(&watcher);
        let commits = deferred(&watcher);
        let held = Refusal::held(path, Which::Flush, 0);
        std::thread::scope(|scope| {
            let first = scope.spawn(move || drop(sql(&db, INSERT)));
            held.wait();
            let rest = [other, third].map(|db| scope.spawn(move || drop(sql(&db, INSERT))));
            // Both are published, though the device has neither.
            while deferred(&watcher) < commits + 3 {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(!held.is_released() && rest.iter().all(|thread| !thread.is_finished()));
            held.release();
            first.join().expect("no panic");
            rest.into_iter()
                .for_each(|thread| thread.join().expect("no panic"));
        });
        assert_eq!(flushes(&watcher) - before, 2);
    });
}

/// No connection reads what a crash could lose, unless it asks for that.
#[test]
fn readers_wait_for_what_they_read() {
    in_each_mode(|path, mode| {
        let [db, other] = in_company(path, mode);
        let before = rows(&other);
        let [reader, relaxed, normal, first] = [(); 4].map(|()| open(path));
        sql(&relaxed, "PRAGMA onewrite_read_durable=off");
        sql(&normal, "PRAGMA synchronous=NORMAL");
        let held = Refusal::held(path, Which::Flush, 0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || drop(sql(&db, INSERT)));
            held.wait();
            assert_eq!(rows(&relaxed), before + 1);
            assert_eq!(rows(&normal), before + 1);
            let waits = [reader, first, other].map(|db| {
                let held = &held;
                scope.spawn(move || {
                    assert_eq!(rows(&db), before + 1);
                    assert!(held.is_released(), "it was read before it was durable");
                })
            });
            std::thread::sleep(Duration::from_millis(100));
            assert!(waits.iter().all(|thread| !thread.is_finished()));
            held.release();
            waits
                .into_iter()
                .for_each(|thread| thread.join().expect("no panic"));
            writer.join().expect("no panic");
        });
    });
}

/// A page that a writer has read before it was durable stays in its cache when it only reads.
#[test]
fn a_reader_waits_also_for_pages_that_it_has() {
    in_each_mode(|path, mode| {
        let [db, other] = in_company(path, mode);
        let before = rows(&other);
        let held = Refusal::held(path, Which::Flush, 0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || drop(sql(&db, INSERT)));
            held.wait();
            sql(&other, "BEGIN IMMEDIATE");
            assert_eq!(rows(&other), before + 1);
            sql(&other, "ROLLBACK");
            let flush = &held;
            let reads = scope.spawn(move || {
                assert_eq!(rows(&other), before + 1);
                assert!(flush.is_released(), "it was read before it was durable");
            });
            std::thread::sleep(Duration::from_millis(100));
            assert!(!reads.is_finished());
            held.release();
            reads.join().expect("no panic");
            writer.join().expect("no panic");
        });
    });
}

/// The database gets nothing that the log could lose.
#[test]
fn a_checkpoint_waits_for_what_it_copies() {
    in_each_mode(|path, mode| {
        let [db, other] = in_company(path, mode);
        sql(&other, "PRAGMA synchronous=OFF");
        let held = Refusal::held(path, Which::Flush, 0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || drop(sql(&db, INSERT)));
            held.wait();
            let flush = &held;
            let checkpoint = scope.spawn(move || {
                sql(&other, "PRAGMA wal_checkpoint(PASSIVE)");
                assert!(flush.is_released(), "it was copied before it was durable");
            });
            std::thread::sleep(Duration::from_millis(100));
            assert!(!checkpoint.is_finished());
            held.release();
            checkpoint.join().expect("no panic");
            writer.join().expect("no panic");
        });
    });
}

/// In a transaction of several databases, SQLite does not report errors that come after
/// publication.
#[test]
fn a_transaction_of_several_databases_is_durable_before_it_is_published() {
    in_each_mode(|path, mode| {
        let [db, other] = in_company(path, mode);
        sql(
            &db,
            &format!("ATTACH '{}' AS more", companion(path, "2").display()),
        );
        for journal_mode in ["onewrite", "delete"] {
            sql(&db, &format!("PRAGMA more.journal_mode={journal_mode}"));
            sql(&db, "CREATE TABLE IF NOT EXISTS more.u(x)");
            let company = |both: &str| {
                sql(&other, INSERT);
                let before = deferred(&other);
                sql(&db, "BEGIN");
                sql(&db, INSERT);
                sql(&db, both);
                sql(&db, "COMMIT");
                deferred(&other) - before
            };
            assert_eq!(company("INSERT INTO more.u VALUES(1)"), 0, "{journal_mode}");
            assert_eq!(company("SELECT count(*) FROM more.u"), 1, "{journal_mode}");
        }
    });
}

/// A failed flush may have lost any of the commits that wait for it. None of them is acknowledged
/// or read, and the next open takes from the device what it has.
#[test]
fn a_failed_flush_fails_all_commits_that_wait_and_all_that_come() {
    in_each_mode(|path, mode| {
        let [db, other] = in_company(path, mode);
        let before = rows(&other);
        let [idle, reader] = [(); 2].map(|()| patient(path));
        assert_eq!(rows(&idle), before);
        let held = Refusal::held(path, Which::Flush, 5);
        let commits = deferred(&db);
        let connections = std::thread::scope(|scope| {
            let fails = |db: Connection, statement| {
                scope.spawn(move || {
                    assert_eq!(failing(&db, statement), code::FSYNC, "{statement}");
                    db
                })
            };
            let first = fails(db, INSERT);
            held.wait();
            let second = fails(other, INSERT);
            let third = fails(reader, "SELECT count(*) FROM t");
            while deferred(&idle) < commits + 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            held.release();
            [first, second, third].map(|thread| thread.join().expect("no panic"))
        });
        for db in connections.iter().chain([&idle]) {
            let found = try_sql(db, "SELECT count(*) FROM t");
            assert!(found.is_err(), "{found:?} from a poisoned log");
            let found = try_sql(db, INSERT);
            assert!(found.is_err(), "{found:?} on a poisoned log");
        }
        drop((connections, idle, held));
        let db = open(path);
        let found = rows(&db);
        assert!((before..=before + 2).contains(&found), "{found} rows");
        assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
        assert!(before > ROWS);
    });
}

/// A process that was stopped in its flush, or in its turn, blocks others only for a bounded time.
#[test]
fn no_commit_waits_for_a_process_that_was_stopped() {
    in_each_mode(|path, mode| {
        use onewrite::storage::{Access, Create, DirectIo, LockByte, LockKind, LogFile, NewFile};
        let [db, other] = in_company(path, mode);
        let log = companion(path, "-onewrite");
        let stopped = LogFile::open(&log, Create::Never, Access::ReadWrite, DirectIo::Never);
        let mut stopped = stopped.expect("the log");
        let new = NewFile {
            mode: 0o600,
            owner: None,
        };
        let locks = onewrite::storage::lock_path(&log);
        stopped
            .lock_in_own_file(locks, new, false)
            .expect("the locks");
        for byte in [LockByte::Flush, LockByte::Turn] {
            assert!(stopped.try_lock(byte, LockKind::Exclusive).expect("a lock"));
        }
        let (before, commits) = (rows(&other), deferred(&db));
        sql(&db, INSERT);
        assert_eq!(rows(&other), before + 1);
        assert_eq!(deferred(&db), commits + 1);
    });
}

/// A read-only connection cannot note in shared memory what it has flushed. It has flushed it all
/// the same.
#[test]
fn a_read_only_connection_waits_for_its_own_flush_alone() {
    in_each_mode(|path, mode| {
        let [db, other] = in_company(path, mode);
        let before = rows(&other);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let reader = Connection::open_with_flags_and_vfs(path, flags, onewrite::VFS_NAME);
        let reader = reader.expect("a connection");
        assert_eq!(rows(&reader), before);
        let held = Refusal::held(path, Which::Flush, 0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || drop(sql(&db, INSERT)));
            held.wait();
            assert_eq!(rows(&reader), before + 1);
            assert!(!held.is_released() && !writer.is_finished());
            held.release();
            writer.join().expect("no panic");
        });
    });
}

/// Stock connections do not know that a log is poisoned. They recover once the wal-index is invalid.
#[test]
fn stock_connections_learn_of_a_failed_flush_as_soon_as_the_write_lock_is_free() {
    let directory = directory();
    let path = directory.path().join("db");
    let [db, other] = in_company(&path, "direct");
    let stock =
        Connection::open_with_flags_and_vfs(&path, OpenFlags::SQLITE_OPEN_READ_WRITE, c"unix");
    let stock = stock.expect("a stock connection");
    stock
        .busy_timeout(Duration::from_secs(60))
        .expect("a timeout");
    let index = || std::fs::read(companion(&path, "-shm")).expect("the wal-index")[..96].to_vec();
    let held = Refusal::held(&path, Which::Flush, 5);
    std::thread::scope(|scope| {
        let fails = scope.spawn(move || {
            assert_eq!(failing(&db, INSERT), code::FSYNC);
            db
        });
        held.wait();
        sql(&stock, "BEGIN IMMEDIATE");
        held.release();
        std::thread::sleep(Duration::from_millis(100));
        assert!(!fails.is_finished() && index().iter().any(|byte| *byte != 0));
        sql(&stock, "ROLLBACK");
        drop(fails.join().expect("no panic"));
    });
    assert!(index().iter().all(|byte| *byte == 0));
    assert!(rows(&stock) > ROWS);
    drop(other);
}

/// As a writer leaves it that is killed while it publishes.
fn invalidate(path: &Path) {
    use std::os::unix::fs::FileExt;
    let index = std::fs::File::options()
        .write(true)
        .open(companion(path, "-shm"));
    let index = index.expect("a wal-index");
    index.write_all_at(&[0; 96], 0).expect("an invalid one");
    // A close would end SQLite's locks.
    std::mem::forget(index);
}

/// `work` of one connection comes while another one flushes a commit, and somebody has to recover the
/// wal-index. It ends only after the flush.
fn is_after_the_flush(path: &Path, mode: &str, prepare: &str, work: &str) {
    let [db, other] = in_company(path, mode);
    sql(&other, prepare);
    let held = Refusal::held(path, Which::Flush, 0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || drop(sql(&db, INSERT)));
        held.wait();
        invalidate(path);
        let flush = &held;
        let done = scope.spawn(move || {
            sql(&other, work);
            flush.is_released()
        });
        std::thread::sleep(Duration::from_millis(200));
        held.release();
        assert!(done.join().expect("no panic"), "{mode}: {work}");
        writer.join().expect("no panic");
    });
}

#[test]
fn readers_wait_for_a_commit_from_before_a_recovery() {
    in_each_mode(|path, mode| {
        is_after_the_flush(
            path,
            mode,
            "PRAGMA synchronous=FULL",
            "SELECT count(*) FROM t",
        );
    });
}

#[test]
fn a_checkpoint_waits_for_a_commit_from_before_a_recovery() {
    in_each_mode(|path, mode| {
        let checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
        is_after_the_flush(path, mode, "PRAGMA synchronous=OFF", checkpoint);
    });
}
