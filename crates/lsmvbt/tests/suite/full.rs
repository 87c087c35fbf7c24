//! A full disk: a transaction that does not fit is rolled back, everything else goes on.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use lsmvbt::{Db, Durability, Error, MemoryFile, PAGE_SIZE, PowerCut, Torn, TreeKind};

use crate::drive::options;
use crate::random::{Random, Seed, seeds};

fn open(file: &MemoryFile, torn: Torn) -> Db {
    Db::open(file.storage(), options(torn)).expect("a database")
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::StorageFull)
}

type Rows = BTreeMap<i64, Vec<u8>>;

fn holds(db: &mut Db, tree: lsmvbt::TreeId, rows: &Rows) {
    assert_eq!(db.check().expect("checked"), Vec::<String>::new());
    let view = db.snapshot().expect("a snapshot");
    let count = db.count(view.version(), tree).expect("counted");
    assert_eq!(count, rows.len() as u64);
    for (key, value) in rows {
        let found = db.get_integer(view.version(), tree, *key).expect("read");
        assert_eq!(found.as_ref(), Some(value), "{key}");
    }
}

/// One transaction of some rows; false if the disk is full.
fn change(db: &mut Db, tree: lsmvbt::TreeId, rows: &mut Rows, random: &mut Random) -> bool {
    let mut next = rows.clone();
    db.begin_write().expect("not poisoned");
    let changed = (0..=random.below(6)).try_for_each(|_| {
        let key = random.below(4000) as i64;
        if random.below(5) == 0 {
            next.remove(&key);
            return db.delete_integer(tree, key).map(drop);
        }
        let length = [20, 300, 3000, 30_000][random.below(4) as usize];
        let value = vec![random.below(256) as u8; length];
        next.insert(key, value.clone());
        db.put_integer(tree, key, &value)
    });
    let committed = match changed {
        Ok(()) => db.commit(Durability::Flush).map(drop),
        Err(error) => {
            db.rollback().expect("rolled back");
            Err(error)
        }
    };
    match committed {
        Ok(()) => *rows = next,
        Err(ref error) => assert!(is_full(error), "{error}"),
    }
    committed.is_ok()
}

fn run(seed: u64, torn: Torn) -> u32 {
    let _told = Seed("full", seed);
    let mut random = Random::new(seed);
    let file = MemoryFile::new();
    let mut rows = Rows::new();
    let (mut a, mut b) = (open(&file, torn), open(&file, torn));
    a.begin_write().expect("a transaction");
    let tree = a.create_tree(TreeKind::Integer).expect("a tree");
    a.commit(Durability::Flush).expect("committed");
    let mut refused = 0;
    for _ in 0..8 {
        for _ in 0..random.below(30) {
            assert!(change(&mut a, tree, &mut rows, &mut random));
        }
        let more = random.below(20) * PAGE_SIZE as u64;
        file.limit(Some(file.bytes().len() as u64 + more));
        for _ in 0..40 {
            let db = if random.below(2) == 0 { &mut a } else { &mut b };
            refused += u32::from(!change(db, tree, &mut rows, &mut random));
        }
        holds(&mut a, tree, &rows);
        holds(&mut b, tree, &rows);
        file.limit(None);
        match random.below(3) {
            0 => {
                file.power_cut(PowerCut::Atomic, &mut |n| random.below(n));
                (a, b) = (open(&file, torn), open(&file, torn));
            }
            1 => {
                file.kill_all();
                (a, b) = (open(&file, torn), open(&file, torn));
            }
            _ => {}
        }
        holds(&mut b, tree, &rows);
    }
    refused
}

#[test]
fn a_full_disk_refuses_a_transaction_and_nothing_else() {
    for torn in [Torn::Trust, Torn::Double] {
        let refused: u32 = seeds(5).into_iter().map(|seed| run(seed, torn)).sum();
        println!("{torn:?}: {refused} transactions refused");
        assert!(refused > 100, "{refused}");
    }
}

/// A transaction that has written pages before its commit, and fills the disk then.
#[test]
fn a_transaction_that_spills_onto_a_full_disk_is_rolled_back() {
    for more in [0, 7, 40] {
        let file = MemoryFile::new();
        let few = lsmvbt::Options {
            cache_pages: 16,
            ..options(Torn::Trust)
        };
        let mut a = Db::open(file.storage(), few).expect("a database");
        let mut b = open(&file, Torn::Trust);
        a.begin_write().expect("a transaction");
        let tree = a.create_tree(TreeKind::Integer).expect("a tree");
        let mut rows = Rows::new();
        for key in 0..300 {
            rows.insert(key, vec![1; 500]);
            a.put_integer(tree, key, &rows[&key]).expect("a row");
        }
        a.commit(Durability::Flush).expect("committed");
        file.limit(Some(file.bytes().len() as u64 + more * PAGE_SIZE as u64));
        a.begin_write().expect("a transaction");
        let refused = (0..3000).find_map(|key| a.put_integer(tree, key, &[2; 700]).err());
        let refused = refused.expect("a full disk");
        assert!(is_full(&refused), "{refused}");
        a.rollback().expect("rolled back");
        holds(&mut a, tree, &rows);
        holds(&mut b, tree, &rows);
        // A statement that fails is undone alone.
        a.begin_write().expect("a transaction");
        rows.insert(3, b"kept".to_vec());
        a.put_integer(tree, 3, b"kept").expect("a row");
        let savepoint = a.savepoint().expect("a savepoint");
        let refused = (0..3000).find_map(|key| a.put_integer(tree, key, &[3; 700]).err());
        assert!(refused.as_ref().is_some_and(is_full), "{refused:?}");
        a.rollback_to(savepoint).expect("undone");
        a.commit(Durability::Flush).expect("committed");
        holds(&mut a, tree, &rows);
        holds(&mut b, tree, &rows);
        file.kill_all();
        a.abandon();
        b.abandon();
        holds(&mut open(&file, Torn::Trust), tree, &rows);
    }
}

/// A file system that looks for room when it writes back, or a quota. The disk is full at the flush, so the
/// pages may be anywhere.
#[test]
fn a_disk_that_is_full_at_the_flush_is_the_error_that_is_seen() {
    for torn in [Torn::Trust, Torn::Double] {
        for reason in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
            let file = MemoryFile::new();
            let (mut a, mut b) = (open(&file, torn), open(&file, torn));
            a.begin_write().expect("a transaction");
            let tree = a.create_tree(TreeKind::Integer).expect("a tree");
            let mut rows = Rows::from([(1, vec![1; 500])]);
            a.put_integer(tree, 1, &rows[&1]).expect("a row");
            a.commit(Durability::Flush).expect("committed");
            a.begin_write().expect("a transaction");
            a.put_integer(tree, 2, &[2; 500]).expect("a row");
            file.fail_syncs_as(reason);
            file.fail_syncs(true);
            let error = a.commit(Durability::Flush).expect_err("a full disk");
            let is_first = matches!(&error, Error::Io { source, .. } if source.kind() == reason);
            assert!(is_first, "{torn:?}: {error}");
            file.fail_syncs(false);
            for db in [&mut a, &mut b] {
                assert!(matches!(db.begin_write(), Err(Error::Poisoned)));
            }
            drop((a, b));
            let mut db = open(&file, torn);
            let view = db.snapshot().expect("a snapshot");
            if db.count(view.version(), tree).expect("counted") == 2 {
                rows.insert(2, vec![2; 500]);
            }
            holds(&mut db, tree, &rows);
        }
    }
}

/// Slots get their space when they are made. So a commit that fits them, and has no new page, needs no more.
#[test]
fn a_commit_that_fits_the_slots_finds_their_space_on_a_full_disk() {
    let file = MemoryFile::new();
    let mut db = open(&file, Torn::Double);
    db.begin_write().expect("a transaction");
    let tree = db.create_tree(TreeKind::Integer).expect("a tree");
    let mut rows = Rows::new();
    for key in 0..210 {
        rows.insert(key, vec![1; 500]);
        db.put_integer(tree, key, &rows[&key]).expect("a row");
    }
    db.commit(Durability::Flush).expect("committed");
    file.limit(Some(file.bytes().len() as u64));
    for round in 0..5 {
        db.begin_write().expect("a transaction");
        // One of each leaf.
        for key in (round..210).step_by(7) {
            rows.remove(&key);
            assert!(db.delete_integer(tree, key).expect("a row"));
        }
        db.commit(Durability::Flush).expect("there is room");
        holds(&mut db, tree, &rows);
    }
}
