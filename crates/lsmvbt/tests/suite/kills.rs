//! The death of the last process, with the power on: what was written is there, flushed or not.

use std::time::Duration;

use lsmvbt::{Db, Durability, MemoryFile, Result, Torn, TreeId, TreeKind};

use crate::drive::options;

const ROWS: i64 = 400;

/// A database of some leaves, durable.
fn made(file: &MemoryFile) -> (Db, TreeId) {
    let mut db = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    db.begin_write().unwrap();
    let tree = db.create_tree(TreeKind::Integer).unwrap();
    for key in 0..ROWS {
        db.put_integer(tree, key, &[0; 40]).unwrap();
    }
    db.commit(Durability::Flush).unwrap();
    (db, tree)
}

/// A transaction over `rows` rows, spread over the leaves.
fn change(db: &mut Db, tree: TreeId, number: u32, rows: i64) -> Result<()> {
    put_rows(db, tree, number, rows)?;
    db.commit(Durability::Later)?;
    Ok(())
}

fn put_rows(db: &mut Db, tree: TreeId, number: u32, rows: i64) -> Result<()> {
    db.begin_write()?;
    for i in 0..rows {
        let key = (i64::from(number) * 7 + i * ROWS / rows) % ROWS;
        db.put_integer(tree, key, &number.to_le_bytes())?;
    }
    db.set_meta(0, number)
}

/// Dies at each step of a commit of `last` rows, after `before` commits of other sizes.
fn die_everywhere(before: u32, last: i64, pages: usize) {
    let mut survived = 0;
    for fuse in 1..500 {
        let file = MemoryFile::new();
        let (mut db, tree) = made(&file);
        db.set_cache_pages(pages);
        for number in 1..=before {
            change(&mut db, tree, number, 1 + i64::from(number % 5)).unwrap();
        }
        file.kill_after(Some(fuse));
        let committed = change(&mut db, tree, before + 1, last);
        file.kill_after(None);
        file.kill_all();
        drop(db);
        let mut db = Db::open(file.storage(), options(Torn::Trust)).unwrap();
        let view = db.snapshot().unwrap();
        let found = db.meta(view.version(), 0).unwrap();
        assert!(
            found == before || found == before + 1,
            "killed at step {fuse}: {found} of {before} commits are there"
        );
        assert_eq!(db.check().unwrap(), Vec::<String>::new());
        if committed.is_ok() {
            assert_eq!(found, before + 1);
            survived += 1;
            break;
        }
    }
    assert_eq!(survived, 1, "the commit has more steps than were tried");
}

#[test]
fn the_death_of_the_last_process_inside_a_commit_loses_no_commit() {
    for before in [1, 2, 7, 60] {
        for rows in [1, 3, 40] {
            die_everywhere(before, rows, 2000);
        }
    }
}

#[test]
fn nor_inside_a_transaction_that_spills() {
    for before in [1, 9] {
        die_everywhere(before, 40, 0);
    }
}

/// A transaction that is written and rolled back, as one over several databases may be. It takes the
/// record of the commit before off its page, and must not take that commit along.
#[test]
fn nor_inside_the_rollback_of_a_written_transaction() {
    let mut all = 0;
    for fuse in 1..500 {
        let file = MemoryFile::new();
        let (mut db, tree) = made(&file);
        change(&mut db, tree, 1, 40).unwrap();
        change(&mut db, tree, 2, 3).unwrap();
        file.kill_after(Some(fuse));
        let taken_back = write_back(&mut db, tree, 3, 40).is_ok();
        // And once more, without an end.
        let _ = change(&mut db, tree, 4, 40);
        file.kill_after(None);
        file.kill_all();
        drop(db);
        let mut db = Db::open(file.storage(), options(Torn::Trust)).unwrap();
        let view = db.snapshot().unwrap();
        let found = db.meta(view.version(), 0).unwrap();
        let right = if taken_back { [2, 4] } else { [2, 3] };
        assert!(right.contains(&found), "killed at step {fuse}: {found}");
        assert_eq!(db.check().unwrap(), Vec::<String>::new());
        all += u32::from(found == 4);
        if all == 2 {
            break;
        }
    }
    assert_eq!(all, 2, "there are more steps than were tried");
}

fn write_back(db: &mut Db, tree: TreeId, number: u32, rows: i64) -> Result<()> {
    put_rows(db, tree, number, rows)?;
    db.write(Durability::Later)?;
    db.rollback()
}

#[test]
fn nor_after_many_transactions_that_were_rolled_back() {
    let file = MemoryFile::new();
    let (mut db, tree) = made(&file);
    change(&mut db, tree, 1, 40).unwrap();
    // More than the distance that a page can name.
    for _ in 0..70_000 {
        db.begin_write().unwrap();
        db.rollback().unwrap();
    }
    file.kill_after(Some(4));
    change(&mut db, tree, 2, 40).unwrap_err();
    file.kill_all();
    drop(db);
    let mut db = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    let view = db.snapshot().unwrap();
    assert_eq!(db.meta(view.version(), 0).unwrap(), 1);
}

#[test]
fn what_a_power_cut_may_lose_is_bounded_by_the_clock() {
    let file = MemoryFile::new();
    let (mut db, tree) = made(&file);
    change(&mut db, tree, 1, 1).unwrap();
    let flushes = db.stats().flushes;
    db.set_later(Duration::ZERO);
    change(&mut db, tree, 2, 1).unwrap();
    assert_eq!(db.stats().flushes, flushes + 1, "the first one is too old");
    assert_eq!(db.status().unwrap().durable, db.status().unwrap().current);
    db.set_later(Duration::from_millis(20));
    change(&mut db, tree, 3, 1).unwrap();
    std::thread::sleep(Duration::from_millis(21));
    change(&mut db, tree, 4, 1).unwrap();
    assert_eq!(db.stats().flushes, flushes + 2);
    file.power_cut(lsmvbt::PowerCut::Atomic, &mut |_| 0);
    drop(db);
    let mut db = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    let view = db.snapshot().unwrap();
    assert_eq!(db.meta(view.version(), 0).unwrap(), 4);
}
