//! No page stays unreachable where a handle dies outside of a commit, or rolls back.

use lsmvbt::{Db, Durability, MemoryFile, Options, Torn, TreeId, TreeKind};

use crate::drive::options;

const TREE: TreeId = TreeId(1);

fn open(file: &MemoryFile, torn: Torn) -> Db {
    Db::open(file.storage(), options(torn)).unwrap()
}

fn change(db: &mut Db, change: impl FnOnce(&mut Db)) {
    db.begin_write().unwrap();
    change(db);
    db.commit(Durability::Flush).unwrap();
}

/// A database whose last pages are free, at a place of each kind in a word of the free map.
fn with_free_end(file: &MemoryFile, torn: Torn, rows: i64) -> Db {
    let mut db = open(file, torn);
    change(&mut db, |db| {
        assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
    });
    change(&mut db, |db| {
        for key in 0..rows {
            db.put_integer(TREE, key, &[7; 9000]).unwrap();
        }
    });
    for key in 3..rows {
        change(&mut db, |db| assert!(db.delete_integer(TREE, key).unwrap()));
    }
    change(&mut db, |db| db.set_meta(0, 1).unwrap());
    db
}

/// Found by reading: the words of the free map had reached shared memory, and the new end had not. The
/// pages between them were neither free nor in use.
#[test]
fn whenever_a_handle_dies_that_gives_the_end_back_no_page_is_lost() {
    for torn in [Torn::Trust, Torn::Double] {
        for rows in [30, 44, 60] {
            for store in 1.. {
                let file = MemoryFile::new();
                let mut db = with_free_end(&file, torn, rows);
                let mut other = open(&file, torn);
                file.kill_before_store(Some(store));
                let given = db.vacuum_part(u32::MAX);
                let survived = file.kills();
                file.kill_before_store(None);
                assert_eq!(given.is_ok(), survived, "{given:?}");
                // The end comes and goes. What is used is not given out.
                for key in 100..104 {
                    change(&mut other, |db| {
                        db.put_integer(TREE, key, &[9; 5000]).unwrap();
                    });
                    assert_eq!(other.check().unwrap(), Vec::<String>::new());
                }
                let reclaimed = other.reclaim().unwrap();
                assert_eq!(reclaimed, 0, "{torn:?}, {rows} rows, before store {store}");
                let view = other.snapshot().unwrap();
                assert_eq!(other.count(view.version(), TREE).unwrap(), 7);
                db.abandon();
                if survived {
                    assert!(store > 8);
                    break;
                }
            }
        }
    }
}

/// Rows, of which every tenth has pages of its own.
const ROWS: i64 = 1500;

fn put(db: &mut Db, key: i64, value: u8, bytes: usize) {
    db.put_integer(TREE, key, &vec![value; bytes]).unwrap();
}

/// Puts a value of pages of its own into every tenth row. Those of before are dead then.
fn put_long(db: &mut Db, value: u8) {
    for key in (0..ROWS).step_by(10) {
        put(db, key, value, 6000);
    }
}

/// A change in every leaf: so the pages of dead values are collected there.
fn touch_all(db: &mut Db, value: u8) {
    for key in (1..ROWS).step_by(10) {
        put(db, key, value, 300);
    }
}

/// Leaves full of rows, and dead values in each of them. The cache has few pages, so large transactions
/// write before they commit.
fn with_dead_values(file: &MemoryFile, torn: Torn) -> Db {
    let mut db = open(file, torn);
    change(&mut db, |db| {
        assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
        for key in 0..ROWS {
            put(db, key, 7, if key % 10 == 0 { 6000 } else { 300 });
        }
    });
    change(&mut db, |db| put_long(db, 1));
    assert_eq!(db.reclaim().unwrap(), 0);
    db.set_cache_pages(8);
    db
}

/// All rows are there, and every page is free or in a tree. The free ones are used, each once.
fn is_whole(db: &mut Db, long: u8, short: u8) {
    assert_eq!(db.check().unwrap(), Vec::<String>::new());
    assert_eq!(db.reclaim().unwrap(), 0);
    change(db, |db| touch_all(db, short));
    for key in ROWS..ROWS + 50 {
        change(db, |db| put(db, key, 9, 6000));
    }
    assert_eq!(db.check().unwrap(), Vec::<String>::new());
    assert_eq!(db.reclaim().unwrap(), 0);
    let view = db.snapshot().unwrap();
    for key in 0..ROWS + 50 {
        let expected = match (key, key % 10) {
            (ROWS.., _) => vec![9; 6000],
            (_, 0) => vec![long; 6000],
            (_, 1) => vec![short; 300],
            _ => vec![7; 300],
        };
        let found = db.get_integer(view.version(), TREE, key).unwrap();
        assert_eq!(found, Some(expected), "row {key}");
    }
    drop(view);
    db.release_dropped().unwrap();
}

/// Found by reading: a transaction collects dead values in leaves, writes these, and is rolled back. The
/// leaves did not get the dead values back, and the values' pages were neither free nor in use.
#[test]
fn a_file_does_not_grow_by_large_transactions_that_are_rolled_back() {
    for torn in [Torn::Trust, Torn::Double] {
        let file = MemoryFile::new();
        let mut db = with_dead_values(&file, torn);
        let mut pages = Vec::new();
        for round in 0..12 {
            let spilled = db.stats().spilled;
            db.begin_write().unwrap();
            touch_all(&mut db, round);
            db.rollback().unwrap();
            assert!(db.stats().spilled > spilled + 50);
            change(&mut db, |db| put_long(db, round));
            pages.push(db.pages().unwrap());
        }
        println!("{torn:?}: {pages:?}");
        assert!(pages[11] <= pages[2], "{torn:?}: {pages:?}");
        is_whole(&mut db, 11, 200);
    }
}

/// The same where another handle goes on.
#[test]
fn others_use_what_a_transaction_has_collected_before_its_rollback() {
    for torn in [Torn::Trust, Torn::Double] {
        let file = MemoryFile::new();
        let mut db = with_dead_values(&file, torn);
        let mut other = open(&file, torn);
        change(&mut other, |db| db.set_meta(0, 1).unwrap());
        let before = other.status().unwrap().free_pages;
        db.begin_write().unwrap();
        touch_all(&mut db, 8);
        db.rollback().unwrap();
        assert!(other.status().unwrap().free_pages > before + 50);
        is_whole(&mut other, 1, 9);
        is_whole(&mut db, 1, 10);
    }
}

/// The same where a savepoint is undone, and the rest is committed or not. `dirty`: the leaves were
/// changed before the savepoint, and get their dead values back.
#[test]
fn what_a_statement_has_collected_before_it_was_undone_is_given_back() {
    for torn in [Torn::Trust, Torn::Double] {
        for (dirty, commits, again) in (0..8).map(|n| (n & 1 > 0, n & 2 > 0, n & 4 > 0)) {
            let file = MemoryFile::new();
            let mut db = with_dead_values(&file, torn);
            let mut other = open(&file, torn);
            let reader = other.snapshot().unwrap();
            change(&mut db, |db| put_long(db, 2));
            db.begin_write().unwrap();
            db.set_meta(0, 1).unwrap();
            if dirty {
                // In memory only, and next to a reader: nothing is collected.
                db.set_cache_pages(2000);
                touch_all(&mut db, 3);
            }
            drop(reader);
            other.close().unwrap();
            let savepoint = db.savepoint().unwrap();
            db.set_cache_pages(8);
            touch_all(&mut db, 4);
            db.rollback_to(savepoint).unwrap();
            if again {
                touch_all(&mut db, 5);
            }
            if commits {
                db.commit(Durability::Flush).unwrap();
            } else {
                db.rollback().unwrap();
            }
            assert_eq!(db.check().unwrap(), Vec::<String>::new());
            change(&mut db, |db| db.set_meta(0, 2).unwrap());
            is_whole(&mut db, 2, 6);
        }
    }
}

/// The same where a commit together with other databases is taken back after it was written.
#[test]
fn what_a_written_transaction_has_collected_is_given_back() {
    for torn in [Torn::Trust, Torn::Double] {
        for cache_pages in [8, 2000] {
            let file = MemoryFile::new();
            let mut db = with_dead_values(&file, torn);
            db.set_cache_pages(cache_pages);
            db.begin_write().unwrap();
            touch_all(&mut db, 8);
            db.write(Durability::Flush).unwrap();
            db.rollback().unwrap();
            is_whole(&mut db, 1, 9);
        }
    }
}

fn without_lazy_splits(torn: Torn) -> Options {
    let mut options = options(torn);
    options.optimizations.lazy_split = false;
    options
}

/// Collects the garbage of the last transactions. Every page is free or in a tree then.
fn leaves_nothing(db: &mut Db) {
    for _ in 0..2 {
        assert_eq!(db.check().unwrap(), Vec::<String>::new());
        // Each change of the catalog collects what earlier ones have left there.
        change(db, |db| {
            db.create_tree(TreeKind::Integer).unwrap();
        });
    }
    assert_eq!(db.reclaim().unwrap(), 0);
}

/// A child that took the place of its root, and died in the same transaction, belonged to nobody.
#[test]
fn a_tree_that_loses_levels_and_becomes_empty_leaves_nothing() {
    for (rows, back) in [(2500, false), (2500, true), (50, false), (50, true)] {
        let mut db = open(&MemoryFile::new(), Torn::Trust);
        change(&mut db, |db| {
            assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
            (0..rows).for_each(|key| put(db, key, 1, 1300));
        });
        change(&mut db, |db| {
            for key in 0..rows {
                let key = if back { rows - 1 - key } else { key };
                assert!(db.delete_integer(TREE, key).unwrap());
            }
            put(db, 1, 2, 10);
        });
        leaves_nothing(&mut db);
        let view = db.snapshot().unwrap();
        assert_eq!(db.count(view.version(), TREE).unwrap(), 1);
    }
}

/// The same where it gets a root above it, or is replaced.
#[test]
fn a_tree_that_loses_levels_and_gets_them_back_leaves_nothing() {
    for options in [options(Torn::Trust), without_lazy_splits(Torn::Trust)] {
        for (rows, left) in [(50, 3), (50, 1), (2500, 3), (2500, 400)] {
            let mut db = Db::open(MemoryFile::new().storage(), options.clone()).unwrap();
            change(&mut db, |db| {
                assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
                (0..rows).for_each(|key| put(db, key, 1, 1300));
            });
            for round in 2..5 {
                change(&mut db, |db| {
                    for key in left..rows {
                        assert!(db.delete_integer(TREE, key).unwrap());
                    }
                    (0..rows).for_each(|key| put(db, key, round, 1300));
                });
                // Then the same is rolled back, or the tree is cleared.
                db.begin_write().unwrap();
                (left..rows).for_each(|key| assert!(db.delete_integer(TREE, key).unwrap()));
                (0..rows).for_each(|key| put(&mut db, key, 9, 1300));
                match round {
                    2 => db.rollback().unwrap(),
                    _ => {
                        db.clear_tree(TREE).unwrap();
                        (0..rows).for_each(|key| put(&mut db, key, round, 1300));
                        db.commit(Durability::Flush).unwrap();
                    }
                }
                leaves_nothing(&mut db);
                let view = db.snapshot().unwrap();
                for key in 0..rows {
                    let found = db.get_integer(view.version(), TREE, key).unwrap();
                    assert_eq!(found, Some(vec![round; 1300]));
                }
                drop(view);
                db.release_dropped().unwrap();
            }
        }
    }
}

/// The router of a child that took the place of its root had pages of its own, for a long key.
#[test]
fn a_root_with_long_keys_that_goes_leaves_nothing() {
    for left in [1, 2, 5, 20] {
        for by_one in [false, true] {
            let mut db = open(&MemoryFile::new(), Torn::Trust);
            let key = |n: u32| [&n.to_be_bytes()[..], &[5; 5000]].concat();
            let delete = |db: &mut Db, from: u32, to: u32| {
                for n in from..to {
                    assert!(db.delete(TREE, &key(n)).unwrap());
                }
            };
            change(&mut db, |db| {
                assert_eq!(db.create_tree(TreeKind::Bytes).unwrap(), TREE);
                (0..300).for_each(|n| db.put(TREE, &key(n), b"").unwrap());
            });
            if by_one {
                for n in 0..300 - left {
                    change(&mut db, |db| delete(db, n, n + 1));
                }
            } else {
                change(&mut db, |db| {
                    delete(db, 0, 300 - left);
                    // Nodes of this transaction come and go.
                    (500..700).for_each(|n| db.put(TREE, &key(n), b"").unwrap());
                    delete(db, 300 - left, 300);
                    delete(db, 500, 700 - left);
                });
            }
            leaves_nothing(&mut db);
            let view = db.snapshot().unwrap();
            assert_eq!(db.count(view.version(), TREE).unwrap(), u64::from(left));
        }
    }
}

/// Rows move to a new page by a split, and die there, and then their tree goes, in one transaction. The old
/// page leads to what they owned, and garbage collection in this page made it forget that.
#[test]
fn a_tree_that_was_split_and_goes_in_the_same_transaction_leaves_nothing() {
    for clears in [false, true] {
        let mut options = options(Torn::Trust);
        // Collects in pages that earlier transactions have changed.
        options.optimizations.lazy_gc = false;
        let mut db = Db::open(MemoryFile::new().storage(), options).unwrap();
        change(&mut db, |db| {
            assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
            (0..40).for_each(|key| put(db, 2 * key, 1, 6000));
        });
        change(&mut db, |db| {
            (5..11).for_each(|key| put(db, 2 * key + 1, 2, 100));
            for key in (60..80).step_by(2) {
                assert!(db.delete_integer(TREE, key).unwrap());
            }
            match clears {
                true => db.clear_tree(TREE).unwrap(),
                false => db.drop_tree(TREE).unwrap(),
            }
        });
        for round in 0..40 {
            change(&mut db, |db| db.set_meta(0, round + 1).unwrap());
        }
        leaves_nothing(&mut db);
    }
}
