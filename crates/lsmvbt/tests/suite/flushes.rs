//! Failed flushes, as Linux has them: what was dirty is clean afterwards, in the page cache and
//! perhaps nowhere else, and the next flush succeeds.

use std::sync::{Arc, Mutex};

use lsmvbt::{Db, Durability, Error, MemoryFile, Options, PowerCut, Torn, TreeId, TreeKind};

use crate::drive::options;
use crate::hooks::Hook;

const TREE: TreeId = TreeId(1);
/// Bytes of a value: one row a leaf, so that rows do not meet in a page.
const LARGE: usize = 1200;

fn open(file: &MemoryFile, torn: Torn) -> Db {
    Db::open(file.storage(), options(torn)).unwrap()
}

fn put(db: &mut Db, key: i64, value: u8) -> lsmvbt::Result<()> {
    db.begin_write()?;
    db.put_integer(TREE, key, &[value; LARGE])?;
    db.commit(Durability::Flush)?;
    Ok(())
}

fn put_all(db: &mut Db, value: u8) -> lsmvbt::Result<()> {
    db.begin_write()?;
    for key in 0..40 {
        db.put_integer(TREE, key, &[value; LARGE])?;
    }
    db.commit(Durability::Flush)?;
    Ok(())
}

fn value(db: &mut Db, key: i64) -> u8 {
    let view = db.snapshot().unwrap();
    let value = db.get_integer(view.version(), TREE, key).unwrap();
    value.map_or(0, |value| value[0])
}

/// A database of 40 rows, closed.
fn made(torn: Torn) -> MemoryFile {
    let file = MemoryFile::new();
    let mut db = open(&file, torn);
    db.begin_write().unwrap();
    assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
    for key in 0..40 {
        db.put_integer(TREE, key, &[1; LARGE]).unwrap();
    }
    db.commit(Durability::Flush).unwrap();
    db.close().unwrap();
    file
}

/// All that no flush has covered is gone.
fn power_cut(file: &MemoryFile) {
    file.power_cut(PowerCut::Atomic, &mut |_| 0);
}

fn check(db: &mut Db) {
    assert_eq!(db.check().unwrap(), Vec::<String>::new());
}

#[test]
fn what_was_committed_before_a_failed_flush_is_there_after_it() {
    for torn in [Torn::Trust, Torn::Double] {
        for later in [1, 2, 3, 6] {
            let file = made(torn);
            let mut db = open(&file, torn);
            for key in 0..5 {
                put(&mut db, key, 2).unwrap();
            }
            file.fail_syncs(true);
            put(&mut db, 20, 3).unwrap_err();
            assert!(matches!(put(&mut db, 21, 3), Err(Error::Poisoned)));
            file.fail_syncs(false);
            // The next flush would succeed.
            assert!(matches!(put(&mut db, 21, 3), Err(Error::Poisoned)));
            drop(db);

            let mut db = open(&file, torn);
            let shown = value(&mut db, 20);
            for key in 0..later {
                put(&mut db, 30 + key, 4).unwrap();
            }
            power_cut(&file);
            drop(db);
            let mut db = open(&file, torn);
            for key in 0..5 {
                assert_eq!(value(&mut db, key), 2, "{torn:?}: a commit is gone");
            }
            for key in 0..later {
                assert_eq!(value(&mut db, 30 + key), 4, "{torn:?}: a later one is gone");
            }
            assert_eq!(
                value(&mut db, 20),
                shown,
                "{torn:?}: what was shown has changed"
            );
            check(&mut db);
        }
    }
}

#[test]
fn a_handle_that_dies_in_a_failing_flush_leaves_nothing_that_is_believed() {
    for torn in [Torn::Trust, Torn::Double] {
        // At each step of a commit; with another handle that lives, or without.
        for (fuse, lives) in (1..20).flat_map(|fuse| [(fuse, false), (fuse, true)]) {
            let file = made(torn);
            let mut db = open(&file, torn);
            let mut other = lives.then(|| open(&file, torn));
            for key in 0..3 {
                put(&mut db, key, 2).unwrap();
            }
            file.fail_syncs(true);
            file.kill_after(Some(fuse));
            put(&mut db, 20, 3).unwrap_err();
            file.kill_after(None);
            file.fail_syncs(false);
            drop(db);
            // One that is opened afterwards has never heard of the error.
            let mut db = match Db::open(file.storage(), options(torn)) {
                Ok(db) => db,
                Err(Error::Poisoned) => {
                    drop(other.take());
                    open(&file, torn)
                }
                Err(e) => panic!("{e}"),
            };
            let mut next = put(&mut db, 30, 4);
            if matches!(next, Err(Error::Poisoned)) {
                drop((db, other.take()));
                db = open(&file, torn);
                next = put(&mut db, 30, 4);
            }
            next.unwrap();
            let shown = value(&mut db, 20);
            power_cut(&file);
            drop((db, other));
            let mut db = open(&file, torn);
            for key in 0..3 {
                assert_eq!(
                    value(&mut db, key),
                    2,
                    "{torn:?}, step {fuse}: a commit is gone"
                );
            }
            assert_eq!(
                value(&mut db, 30),
                4,
                "{torn:?}, step {fuse}: the later one is gone"
            );
            assert_eq!(value(&mut db, 20), shown, "{torn:?}, step {fuse}");
            check(&mut db);
        }
    }
}

#[test]
fn a_close_whose_flush_fails_leaves_nothing_that_is_believed() {
    for torn in [Torn::Trust, Torn::Double] {
        for good in 0..3 {
            let file = made(torn);
            let mut db = open(&file, torn);
            for key in 0..5 {
                put(&mut db, key, 2).unwrap();
            }
            // Its pages come free, so the free map is written at the close.
            db.begin_write().unwrap();
            for key in 5..20 {
                assert!(db.delete_integer(TREE, key).unwrap());
            }
            db.commit(Durability::Flush).unwrap();
            put(&mut db, 0, 2).unwrap();
            file.fail_syncs_after(good);
            let closed = db.close();
            file.fail_syncs(false);
            let mut db = open(&file, torn);
            for key in 0..3 {
                put(&mut db, 30 + key, 4).unwrap();
            }
            power_cut(&file);
            drop(db);
            let mut db = open(&file, torn);
            for key in 0..5 {
                assert_eq!(value(&mut db, key), 2, "{torn:?}, {good}: {closed:?}");
            }
            assert_eq!(value(&mut db, 32), 4, "{torn:?}, {good}: {closed:?}");
            check(&mut db);
        }
    }
}

#[test]
fn pages_that_leave_the_page_cache_after_a_failed_flush_change_no_answer() {
    for torn in [Torn::Trust, Torn::Double] {
        let file = made(torn);
        let mut db = Db::open(
            file.storage(),
            Options {
                cache_pages: 0,
                ..options(torn)
            },
        )
        .unwrap();
        put(&mut db, 3, 2).unwrap();
        let view = db.snapshot().unwrap();
        file.fail_syncs(true);
        put_all(&mut db, 3).unwrap_err();
        file.fail_syncs(false);
        file.drop_page_cache(&mut |_| false);
        // The handle has no page left, and the file's are of no single version.
        let read = db.get_integer(view.version(), TREE, 3);
        assert!(matches!(read, Err(Error::Poisoned)), "{read:?}");
        drop((view, db));
        let mut db = open(&file, torn);
        let shown = value(&mut db, 3);
        // The open has made dirty what it found, so the page cache keeps it.
        file.drop_page_cache(&mut |_| false);
        for key in 0..40 {
            let expected = if shown == 3 {
                3
            } else {
                1 + u8::from(key == 3)
            };
            assert_eq!(value(&mut db, key), expected, "{torn:?}");
        }
        check(&mut db);
    }
}

#[test]
fn a_rollback_after_a_failed_flush_claims_nothing() {
    let file = made(Torn::Trust);
    let small = Options {
        cache_pages: 0,
        recovery_pages: 64,
        heal_at_once: 64,
        ..options(Torn::Trust)
    };
    let mut db = Db::open(file.storage(), small).unwrap();
    put_all(&mut db, 1).unwrap();
    put(&mut db, 1, 2).unwrap();
    db.begin_write().unwrap();
    db.put_integer(TREE, 2, &[2; LARGE]).unwrap();
    db.commit(Durability::Later).unwrap();
    // It writes pages before its commit, until one lies where no header has told of it.
    db.begin_write().unwrap();
    file.fail_syncs(true);
    let mut keys = (4..40).chain(100..2000);
    let failed = keys.find_map(|key| db.put_integer(TREE, key, &[3; LARGE]).err());
    assert!(matches!(failed, Some(Error::Io { .. })), "{failed:?}");
    assert!(db.stats().spilled > 0);
    // The next flush would succeed, and a header would say that the last commit is durable.
    file.fail_syncs(false);
    assert!(matches!(db.rollback(), Err(Error::Poisoned)));
    drop(db);
    let mut db = open(&file, Torn::Trust);
    let shown = value(&mut db, 2);
    put(&mut db, 3, 4).unwrap();
    power_cut(&file);
    drop(db);
    let mut db = open(&file, Torn::Trust);
    let found = [1, 2, 3].map(|key| value(&mut db, key));
    assert_eq!(found, [2, shown, 4]);
    check(&mut db);
}

/// Found by reading: a handle that closes looked for a failed flush before it had the writer's lock. It
/// wrote then, and its close failed.
#[test]
fn a_close_next_to_a_flush_that_fails_writes_nothing_and_succeeds() {
    let mut failed = 0;
    // A handle with a commit that is not flushed begins with that.
    let cases = [Durability::Flush, Durability::Later];
    let cases = cases.map(|last| [(Torn::Trust, last), (Torn::Double, last)]);
    for (torn, last) in cases.into_iter().flatten() {
        for step in 1.. {
            let file = made(torn);
            let hook = Hook::default();
            let mut closes = Db::open(hook.storage(file.storage()), options(torn)).unwrap();
            let writer = Arc::new(Mutex::new(open(&file, torn)));
            let only_reads = Options {
                read_only: true,
                ..options(torn)
            };
            let reader = Db::open(file.storage(), only_reads).unwrap();
            put(&mut closes, 3, 2).unwrap();
            closes.begin_write().unwrap();
            closes.put_integer(TREE, 4, &[7; 9]).unwrap();
            closes.commit(last).unwrap();
            let then = Arc::new(Mutex::new(None));
            let (others, at) = (writer.clone(), then.clone());
            let same = file.clone();
            hook.before(step, move || {
                same.fail_syncs(true);
                if matches!(
                    put(&mut others.lock().unwrap(), 30, 3),
                    Err(Error::Io { .. })
                ) {
                    *at.lock().unwrap() = Some(same.counts());
                }
                same.fail_syncs(false);
            });
            let closed = closes.close();
            let is_over = hook.clear();
            if let Some(counts) = *then.lock().unwrap() {
                assert_eq!(file.counts(), counts, "{torn:?} {step}");
                failed += 1;
            }
            closed.unwrap_or_else(|error| panic!("{torn:?} {last:?} {step}: {error}"));
            std::mem::forget(writer);
            reader.abandon();
            power_cut(&file);
            let mut db = open(&file, torn);
            check(&mut db);
            assert_eq!(value(&mut db, 3), 2);
            if is_over {
                break;
            }
        }
    }
    println!("{failed} flushes failed during a close");
    assert!(failed >= 2, "{failed}");
}
