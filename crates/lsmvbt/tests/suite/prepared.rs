//! A transaction that was prepared may go on changing: its commit is as whole as any other.

use lsmvbt::{Db, Durability, MemoryFile, Options, PowerCut, Torn, TreeId, TreeKind};

use crate::drive::options;

const TREE: TreeId = TreeId(1);
const ROWS: i64 = 1200;
/// Rows in some 600 leaves. A page has room for 504 entries of a record.
const MANY: i64 = 8000;

/// A handle that writes pages before the commit when more than so many are changed.
fn open(file: &MemoryFile, torn: Torn, cache_pages: usize) -> Db {
    let few = Options {
        cache_pages,
        ..options(torn)
    };
    Db::open(file.storage(), few).unwrap()
}

/// A database with so many rows, some 13 in a leaf.
fn made(torn: Torn, rows: i64) -> MemoryFile {
    let file = MemoryFile::new();
    let mut db = open(&file, torn, 2000);
    db.begin_write().unwrap();
    assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
    change(&mut db, 0..rows, 1);
    db.commit(Durability::Flush).unwrap();
    db.close().unwrap();
    file
}

fn change(db: &mut Db, keys: impl IntoIterator<Item = i64>, number: u8) {
    for key in keys {
        db.put_integer(TREE, key, &[number; 300]).unwrap();
    }
}

fn number(db: &mut Db, key: i64) -> u8 {
    let view = db.snapshot().unwrap();
    db.get_integer(view.version(), TREE, key).unwrap().unwrap()[0]
}

/// What the next open finds after a kill, and after a power cut that keeps no write that was not flushed.
fn is_there(file: &MemoryFile, db: Db, torn: Torn, key: i64, expected: u8) {
    for is_cut in [false, true] {
        match is_cut {
            true => file.power_cut(PowerCut::Atomic, &mut |_| 0),
            false => file.kill_all(),
        }
        let mut db = open(file, torn, 2000);
        let found = number(&mut db, key);
        assert_eq!(found, expected, "{torn:?}, power cut: {is_cut}");
        assert_eq!(db.check().unwrap(), Vec::<String>::new());
        assert_eq!(db.reclaim().unwrap(), 0);
        db.abandon();
    }
    db.abandon();
}

/// Found by the crash tests: the page that was to carry the commit record was written before the commit, so
/// no page had the record. The commit returned, and the next crash took it back.
#[test]
fn a_commit_is_whole_that_has_spilled_after_it_was_prepared() {
    for torn in [Torn::Trust, Torn::Double] {
        let file = made(torn, ROWS);
        let mut db = open(&file, torn, 8);
        db.begin_write().unwrap();
        // One page of the transaction, the first of those that it will write.
        assert!(db.delete_integer(TREE, 1).unwrap());
        db.prepare().unwrap();
        change(&mut db, (0..ROWS).step_by(10), 3);
        assert!(db.stats().spilled > 50);
        db.commit(Durability::Flush).unwrap();
        is_there(&file, db, torn, 0, 3);
    }
}

/// The same without a spill: the record had become too long for the page, and the commit failed.
#[test]
fn a_commit_has_room_for_its_record_when_more_has_changed_after_it_was_prepared() {
    for torn in [Torn::Trust, Torn::Double] {
        let file = made(torn, ROWS);
        let mut db = open(&file, torn, 2000);
        db.begin_write().unwrap();
        // The page is full, so it has room for few pages in its record.
        assert!(db.delete_integer(TREE, 1).unwrap());
        db.prepare().unwrap();
        change(&mut db, (20..ROWS).step_by(10), 3);
        db.commit(Durability::Flush).unwrap();
        is_there(&file, db, torn, 20, 3);
    }
}

/// A long record has pages of its own. They are used once, and free afterwards.
#[test]
fn the_pages_of_a_record_that_is_made_again_are_free_afterwards() {
    for is_committed in [true, false] {
        for goes_back in [true, false] {
            let file = made(Torn::Trust, MANY);
            let mut db = open(&file, Torn::Trust, 2000);
            db.begin_write().unwrap();
            change(&mut db, 0..MANY, 2);
            db.prepare().unwrap();
            db.savepoint().unwrap();
            change(&mut db, 0..MANY / 2, 3);
            db.prepare().unwrap();
            if goes_back {
                db.rollback_to(0).unwrap();
                db.prepare().unwrap();
            }
            change(&mut db, [1], 4);
            match is_committed {
                true => {
                    let before = db.stats().pages_written;
                    db.commit(Durability::Flush).unwrap();
                    assert!(db.stats().pages_written - before > 504);
                }
                false => db.rollback().unwrap(),
            }
            assert_eq!(db.reclaim().unwrap(), 0, "{is_committed} {goes_back}");
            let expected = match (is_committed, goes_back) {
                (false, _) => 1,
                (true, true) => 2,
                (true, false) => 3,
            };
            is_there(&file, db, Torn::Trust, 0, expected);
        }
    }
}

/// The same where the record becomes short, so that it does not need them any more, and where a savepoint
/// takes them back.
#[test]
fn the_pages_of_a_record_that_becomes_short_are_free_afterwards() {
    for goes_back in [true, false] {
        let file = made(Torn::Trust, ROWS);
        let mut db = open(&file, Torn::Trust, 2000);
        db.begin_write().unwrap();
        change(&mut db, [0], 2);
        db.savepoint().unwrap();
        let new = db.create_tree(TreeKind::Integer).unwrap();
        for key in 0..MANY {
            db.put_integer(new, key, &[3; 300]).unwrap();
        }
        db.prepare().unwrap();
        match goes_back {
            true => db.rollback_to(0).unwrap(),
            false => db.drop_tree(new).unwrap(),
        }
        db.prepare().unwrap();
        db.commit(Durability::Flush).unwrap();
        assert_eq!(db.reclaim().unwrap(), 0, "{goes_back}");
        is_there(&file, db, Torn::Trust, 0, 2);
    }
}
