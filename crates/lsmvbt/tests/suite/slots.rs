//! The slots of `Torn::Double`: larger than a span of the free map, and moved by a writer that
//! stops there.

use lsmvbt::{Db, Durability, MemoryFile, PowerCut, Torn, TreeId, TreeKind};

use crate::drive::options;

fn open(file: &MemoryFile) -> Db {
    Db::open(file.storage(), options(Torn::Double)).expect("a database")
}

/// The keys of the other writer.
const OTHERS: std::ops::Range<i64> = 100_000..100_100;

/// A value of one overflow page.
fn value(key: i64) -> Vec<u8> {
    key.to_le_bytes().repeat(460)
}

fn fill(db: &mut Db, tree: TreeId, keys: std::ops::Range<i64>) {
    for key in keys {
        db.put_integer(tree, key, &value(key)).expect("a row");
    }
}

/// A transaction of some rows.
fn write(db: &mut Db, tree: TreeId, keys: std::ops::Range<i64>) {
    db.begin_write().expect("a transaction");
    fill(db, tree, keys);
    db.commit(Durability::Flush).expect("committed");
}

fn holds(db: &mut Db, tree: TreeId, keys: std::ops::Range<i64>) {
    assert!(db.check().expect("checked").is_empty());
    let view = db.snapshot().expect("a snapshot");
    // The other writer of `moved_by_another` may have died after its slot was durable.
    let other = db.get_integer(view.version(), tree, OTHERS.start);
    let others = other.expect("read").map_or(0, |_| OTHERS.count());
    assert_eq!(
        db.count(view.version(), tree).expect("counted"),
        keys.end as u64 + others as u64
    );
    for key in keys.step_by(7) {
        let found = db.get_integer(view.version(), tree, key).expect("read");
        assert_eq!(found, Some(value(key)), "{key}");
    }
}

#[test]
fn a_transaction_may_be_larger_than_a_span_of_the_free_map() {
    const ROWS: i64 = 13_200;
    let file = MemoryFile::new();
    let mut db = open(&file);
    db.begin_write().expect("a transaction");
    let tree = db.create_tree(TreeKind::Integer).expect("a tree");
    fill(&mut db, tree, 0..ROWS);
    db.commit(Durability::Flush).expect("committed");
    let status = db.status().expect("a status");
    assert!(status.pages > 32_256 + ROWS as u32, "{status:?}");
    // Torn in place: only the slot has it.
    let mut seed = 1u64;
    file.power_cut(PowerCut::Torn, &mut |n| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % n
    });
    std::mem::forget(db);
    let mut db = open(&file);
    holds(&mut db, tree, 0..ROWS);
    write(&mut db, tree, ROWS..ROWS + 10);
    holds(&mut db, tree, 0..ROWS + 10);
    db.close().expect("closed");
}

/// `moves` is the work of another writer, in whose transaction the slots must move. The first one asks
/// for its status before it writes, or does not.
fn moved_by_another(rows: i64, asks: bool, moves: impl FnOnce(&MemoryFile, Db)) {
    let file = MemoryFile::new();
    let (mut a, mut b) = (open(&file), open(&file));
    a.begin_write().expect("a transaction");
    let tree = a.create_tree(TreeKind::Integer).expect("a tree");
    fill(&mut a, tree, 0..5);
    a.commit(Durability::Flush).expect("committed");

    b.begin_write().expect("a transaction");
    fill(&mut b, tree, OTHERS);
    moves(&file, b);
    if asks {
        a.status().expect("a status");
    }
    for key in 5..rows {
        write(&mut a, tree, key..key + 1);
    }
    let mut c = open(&file);
    for db in [&mut a, &mut c] {
        holds(db, tree, 0..rows);
    }
}

#[test]
fn slots_that_a_rolled_back_writer_has_moved_are_kept_clear() {
    for asks in [false, true] {
        moved_by_another(300, asks, |_, mut b| {
            b.write(Durability::Flush).expect("written");
            b.rollback().expect("rolled back");
            b.close().expect("closed");
        });
    }
}

#[test]
fn slots_that_a_writer_has_moved_before_it_died_are_kept_clear() {
    for steps in (1..1000).step_by(17) {
        let mut died = false;
        moved_by_another(150, steps % 2 == 0, |file, mut b| {
            file.kill_after(Some(steps));
            died = b.write(Durability::Flush).is_err();
            let _ = b.rollback();
            file.kill_after(None);
        });
        if !died {
            break;
        }
    }
}

#[test]
fn a_flush_that_fails_before_the_commit_ends_it_for_all() {
    let file = MemoryFile::new();
    let (mut a, mut b) = (open(&file), open(&file));
    a.begin_write().expect("a transaction");
    let tree = a.create_tree(TreeKind::Integer).expect("a tree");
    file.fail_syncs(true);
    assert!(a.write(Durability::Flush).is_err());
    file.fail_syncs(false);
    let _ = a.rollback();
    for db in [&mut a, &mut b] {
        assert!(matches!(db.begin_write(), Err(lsmvbt::Error::Poisoned)));
    }
    drop((a, b));
    let mut db = open(&file);
    db.begin_write().expect("a transaction");
    assert_eq!(db.create_tree(TreeKind::Integer).expect("a tree"), tree);
    db.commit(Durability::Flush).expect("committed");
}
