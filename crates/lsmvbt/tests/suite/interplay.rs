//! Rounds, the walk after a crash and the vacuum next to each other. Readers found these sequences.

use lsmvbt::{
    Db, Durability, Error, MemoryFile, Options, PAGE_SIZE, PowerCut, Torn, TreeId, TreeKind,
};

use crate::drive::options;
use crate::marks::{self, commit, lose_the_header, made};
use crate::random::Random;

const TREE: TreeId = TreeId(1);

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull)
}

const ROWS: i64 = 2_400;
const MORE: i64 = 120;

fn few() -> Options {
    Options {
        cache_pages: 160,
        ..options(Torn::Double)
    }
}

fn row(number: u8) -> Vec<u8> {
    vec![number; 300]
}

fn one(db: &mut Db, change: impl FnOnce(&mut Db)) {
    db.begin_write().unwrap();
    change(db);
    db.commit(Durability::Flush).unwrap();
}

/// A database whose first pages are free, with small slots.
fn base() -> Vec<u8> {
    let file = MemoryFile::new();
    let mut db = Db::open(file.storage(), few()).unwrap();
    one(&mut db, |db| {
        assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
    });
    for key in -5..0 {
        one(&mut db, |db| {
            db.put_integer(TREE, key, &vec![7; 24_000]).unwrap()
        });
    }
    for from in (0..ROWS).step_by(60) {
        one(&mut db, |db| {
            (from..from + 60).for_each(|key| db.put_integer(TREE, key, &row(1)).unwrap());
        });
    }
    for key in -5..0 {
        one(&mut db, |db| assert!(db.delete_integer(TREE, key).unwrap()));
    }
    for _ in 0..3 {
        one(&mut db, |db| db.put_integer(TREE, 0, &row(1)).unwrap());
    }
    let status = db.status().unwrap();
    assert!(status.free_pages >= 20, "{status:?}");
    db.close().unwrap();
    file.bytes()
}

/// Some rows; then a statement that finds the disk full in its first round, and is undone.
fn refused_and_committed(file: &MemoryFile, fuse: u64) -> Result<(), Error> {
    let mut db = Db::open(file.storage(), few()).unwrap();
    // The first header of this life.
    one(&mut db, |db| db.put_integer(TREE, 0, &row(1)).unwrap());
    file.limit(Some(file.bytes().len() as u64));
    db.begin_write().unwrap();
    for key in ROWS..ROWS + MORE {
        db.put_integer(TREE, key, &row(2)).unwrap();
    }
    let savepoint = db.savepoint().unwrap();
    let refused = (1..ROWS)
        .step_by(12)
        .find_map(|key| db.delete_integer(TREE, key).err());
    assert!(refused.as_ref().is_some_and(is_full), "{refused:?}");
    assert!(db.stats().spilled > 5, "{:?}", db.stats());
    db.rollback_to(savepoint).unwrap();
    file.kill_after(Some(fuse));
    let committed = db.commit(Durability::Flush).map(drop);
    let died = !file.kills();
    file.kill_after(None);
    db.abandon();
    assert_eq!(died, committed.is_err());
    committed
}

#[test]
fn new_pages_of_a_round_that_failed_are_durable_before_the_last_slot() {
    let base = base();
    let mut found = Vec::new();
    for fuse in 1..60 {
        let mut over = false;
        for seed in 0..30 {
            let file = MemoryFile::new();
            file.set_bytes(&base);
            over = refused_and_committed(&file, fuse).is_ok();
            file.limit(None);
            let mut random = Random::new(fuse * 1000 + seed);
            file.power_cut(PowerCut::Atomic, &mut |n| match n {
                101 => 65,
                100 => random.below(100),
                n => n - 1,
            });
            let mut db = Db::open(file.storage(), few()).unwrap();
            let findings = db.check().unwrap();
            let view = db.snapshot().unwrap();
            let count = db.count(view.version(), TREE);
            let whole =
                matches!(count, Ok(count) if count as i64 == ROWS || count as i64 == ROWS + MORE);
            if !findings.is_empty() || !whole {
                found.push((
                    fuse,
                    seed,
                    over,
                    findings.len(),
                    findings.first().cloned(),
                    format!("{count:?}"),
                ));
            }
            drop(view);
        }
        if over {
            break;
        }
    }
    assert!(found.is_empty(), "{} broken states", found.len());
}

/// A page of a lost version, which the walk has put into a transaction, finds the disk full (a file
/// system that copies on write), and the transaction is rolled back when there is room again.
#[test]
fn a_rollback_after_a_full_disk_believes_no_lost_version() {
    let mut wrong = Vec::new();
    for torn in [Torn::Trust, Torn::Double] {
        let (file, keys) = made(1, Torn::Trust);
        let mut db = Db::open(file.storage(), options(Torn::Trust)).unwrap();
        commit(&mut db, 1, &[2; 500]);
        let before = file.bytes();
        lose_the_header(&file, &mut db, keys / 2 / 4 * 4 + 1);
        db.abandon();
        let key = keys / 2 / 4 * 4 + 1;
        let lost = file.bytes();
        let page = lost
            .chunks(PAGE_SIZE)
            .zip(before.chunks(PAGE_SIZE))
            .position(|(lost, before)| lost != before)
            .unwrap() as u64;
        let small = Options {
            cache_pages: 8,
            recovery_pages: 16,
            heal_at_once: 16,
            ..options(torn)
        };
        let mut db = Db::open(file.storage(), small.clone()).unwrap();
        // Somewhere else: the walk has not come to the page yet.
        commit(&mut db, keys - 3, &[3; 500]);
        let value = |db: &mut Db| {
            let view = db.snapshot().unwrap();
            db.get_integer(view.version(), marks::TREE, key)
                .unwrap()
                .unwrap()[0]
        };
        assert_eq!(value(&mut db), 1);
        db.begin_write().unwrap();
        file.refuse_writes_of(Some(page..page + 1));
        let refused = (key..keys - 20).step_by(8).find_map(|key| {
            db.put_integer(marks::TREE, key / 4 * 4 + 1, &[6; 500])
                .err()
        });
        assert!(refused.as_ref().is_some_and(is_full), "{refused:?}");
        file.refuse_writes_of(None);
        db.rollback().unwrap();
        wrong.push((torn, value(&mut db), db.check().unwrap()));
    }
    assert!(
        wrong.iter().all(|(_, value, _)| *value == 1),
        "a row of a lost version: {wrong:?}"
    );
}

/// A large transaction dies in a round. On a full disk the next transactions, which write its pages
/// again, need larger slots than there is room for.
#[test]
fn pages_of_lost_versions_need_no_room_on_a_full_disk() {
    let file = MemoryFile::new();
    file.set_bytes(&base());
    let small = Options {
        cache_pages: 60,
        ..few()
    };
    let mut db = Db::open(file.storage(), small.clone()).unwrap();
    for _ in 0..3 {
        one(&mut db, |db| db.put_integer(TREE, 0, &row(1)).unwrap());
    }
    db.begin_write().unwrap();
    for key in (1..ROWS).step_by(12) {
        assert!(db.delete_integer(TREE, key).unwrap());
    }
    file.kill_all();
    db.abandon();
    file.limit(Some(file.bytes().len() as u64));
    let mut db = Db::open(file.storage(), few()).unwrap();
    let mut errors = Vec::new();
    for number in 0..20 {
        db.begin_write().unwrap();
        db.put_integer(TREE, 0, &row(number)).unwrap();
        errors.extend(db.commit(Durability::Flush).err());
    }
    assert!(errors.is_empty());
}

/// The record of the newest commit has a page behind the end of the free map that a recovery has made.
#[test]
fn a_vacuum_after_a_crash_cuts_no_page_of_the_newest_record() {
    let mut counts = Vec::new();
    for (torn, history, whole) in [
        (Torn::Trust, true, true),
        (Torn::Trust, false, false),
        (Torn::Double, true, true),
        (Torn::Double, false, false),
    ] {
        let file = MemoryFile::new();
        let mut db = Db::open(file.storage(), options(Torn::Trust)).unwrap();
        if history {
            db.set_history(3).unwrap();
        }
        one(&mut db, |db| {
            assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
            db.put_integer(TREE, 0, &row(1)).unwrap();
        });
        // One commit of many pages: its record takes pages of its own.
        one(&mut db, |db| {
            (1..900).for_each(|key| db.put_integer(TREE, key, &vec![2; 3000]).unwrap());
        });
        file.power_cut(PowerCut::Atomic, &mut |n| n - 1);
        db.abandon();
        let mut db = Db::open(file.storage(), options(torn)).unwrap();
        let vacuumed = match whole {
            true => db.vacuum().map(drop),
            false => db.vacuum_part(0).map(drop),
        };
        vacuumed.unwrap();
        file.kill_all();
        db.abandon();
        let mut db = Db::open(file.storage(), options(torn)).unwrap();
        let view = db.snapshot().unwrap();
        counts.push(db.count(view.version(), TREE).unwrap());
    }
    assert_eq!(counts, [900; 4]);
}
