//! A transaction that is written before it is committed, for a commit together with other databases:
//! it can still be rolled back, and a crash leaves all of it or nothing.

use lsmvbt::{Db, Durability, Error, MemoryFile, PowerCut, Torn, TreeId, TreeKind};

use crate::drive::options;
use crate::random::Random;

const ROWS: i64 = 400;

fn open(file: &MemoryFile, torn: Torn) -> Db {
    Db::open(file.storage(), options(torn)).expect("a database")
}

fn value(key: i64, round: u8) -> Vec<u8> {
    vec![round; if key % 7 == 0 { 9000 } else { 100 }]
}

fn begun(file: &MemoryFile, torn: Torn) -> (Db, TreeId) {
    let mut db = open(file, torn);
    db.begin_write().expect("a transaction");
    let tree = db.create_tree(TreeKind::Integer).expect("a tree");
    for key in 0..ROWS {
        db.put_integer(tree, key, &value(key, 1)).expect("a row");
    }
    db.commit(Durability::Flush).expect("committed");
    (db, tree)
}

/// Changes, removals and new pages.
fn change(db: &mut Db, tree: TreeId) -> Result<(), Error> {
    db.begin_write()?;
    for key in (0..ROWS).step_by(3) {
        db.put_integer(tree, key, &value(key, 2))?;
    }
    for key in (1..ROWS).step_by(30) {
        db.delete_integer(tree, key)?;
    }
    for key in ROWS..2 * ROWS {
        db.put_integer(tree, key, &value(key, 2))?;
    }
    Ok(())
}

/// Whether the change is there: all of it, or nothing.
fn is_changed(db: &mut Db, tree: TreeId) -> bool {
    assert_eq!(db.check().expect("checked"), Vec::<String>::new());
    let view = db.snapshot().expect("a snapshot");
    let changed = db
        .get_integer(view.version(), tree, 1)
        .expect("read")
        .is_none();
    for key in 0..2 * ROWS {
        let expected = match changed {
            false => (key < ROWS).then(|| value(key, 1)),
            true if key < ROWS && key % 30 == 1 => None,
            true if key < ROWS && key % 3 != 0 => Some(value(key, 1)),
            true => Some(value(key, 2)),
        };
        let found = db.get_integer(view.version(), tree, key).expect("read");
        assert_eq!(found, expected, "{key}");
    }
    changed
}

fn cut(torn: Torn) -> PowerCut {
    match torn {
        Torn::Double => PowerCut::Torn,
        _ => PowerCut::Atomic,
    }
}

#[test]
fn a_written_transaction_is_seen_only_after_its_commit() {
    for torn in [Torn::Trust, Torn::Double] {
        let file = MemoryFile::new();
        let (mut a, tree) = begun(&file, torn);
        let mut b = open(&file, torn);
        change(&mut a, tree).expect("changed");
        a.write(Durability::Flush).expect("written");
        assert!(!is_changed(&mut b, tree));
        assert!(a.put_integer(tree, 5, b"late").is_err(), "{torn:?}");
        a.commit(Durability::Flush).expect("committed");
        assert!(is_changed(&mut b, tree));
        assert!(is_changed(&mut a, tree));
    }
}

#[test]
fn a_written_transaction_that_is_rolled_back_never_comes_back() {
    for torn in [Torn::Trust, Torn::Double] {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let file = MemoryFile::new();
            let (mut a, tree) = begun(&file, torn);
            change(&mut a, tree).expect("changed");
            a.write(Durability::Flush).expect("written");
            a.rollback().expect("rolled back");
            assert!(!is_changed(&mut a, tree));
            if seed % 2 == 0 {
                // The next one may be cut as well.
                a.begin_write().expect("a transaction");
                a.put_integer(tree, 2, &value(2, 1)).expect("a row");
                file.kill_after(Some(seed + 1));
                let _ = a.commit(Durability::Flush);
            }
            file.power_cut(cut(torn), &mut |n| random.below(n));
            a.abandon();
            assert!(!is_changed(&mut open(&file, torn), tree), "{torn:?} {seed}");
        }
    }
}

/// What an open after a kill has seen is not brought back by a power cut.
#[test]
fn a_rollback_that_was_killed_does_not_come_undone() {
    for torn in [Torn::Trust, Torn::Double] {
        let mut outcomes = [0, 0];
        for step in 1..3000 {
            let file = MemoryFile::new();
            let (mut a, tree) = begun(&file, torn);
            a.begin_write().expect("a transaction");
            for key in [1, 31, 61] {
                a.delete_integer(tree, key).expect("gone");
            }
            file.kill_after(Some(step));
            let rolled_back = a.write(Durability::Flush).and_then(|()| a.rollback());
            file.kill_after(None);
            file.kill_all();
            a.abandon();
            let is_there = |db: &mut Db| {
                let view = db.snapshot().expect("a snapshot");
                let row = db.get_integer(view.version(), tree, 1).expect("read");
                row.is_some()
            };
            let mut db = open(&file, torn);
            let before = is_there(&mut db);
            file.power_cut(cut(torn), &mut |_| 0);
            db.abandon();
            let after = is_there(&mut open(&file, torn));
            assert!(after || !before, "{torn:?} {step}");
            outcomes[usize::from(before)] += 1;
            if rolled_back.is_ok() {
                break;
            }
        }
        assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
    }
}

/// Found once: a header without marks called the number of a rolled-back transaction settled, and the
/// next open gave that number to a commit. So its slot did not repair a torn page.
#[test]
fn a_settled_number_is_not_used_again() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let file = MemoryFile::new();
        let (a, tree) = begun(&file, Torn::Double);
        a.close().expect("closed");
        let mut a = open(&file, Torn::Trust);
        a.begin_write().expect("a transaction");
        a.put_integer(tree, 5, b"gone").expect("a row");
        a.rollback().expect("rolled back");
        a.set_torn(Torn::Double).expect("changed for all");
        file.kill_all();
        a.abandon();
        let mut a = open(&file, Torn::Double);
        a.begin_write().expect("a transaction");
        for key in (0..ROWS).step_by(20) {
            a.put_integer(tree, key, b"new").expect("a row");
        }
        a.commit(Durability::Flush).expect("committed");
        file.power_cut(PowerCut::Torn, &mut |n| random.below(n));
        a.abandon();
        let mut a = open(&file, Torn::Double);
        assert_eq!(a.check().expect("checked"), Vec::<String>::new(), "{seed}");
        let view = a.snapshot().expect("a snapshot");
        let row = a.get_integer(view.version(), tree, 20).expect("read");
        assert_eq!(row.as_deref(), Some(&b"new"[..]), "{seed}");
    }
}

/// Flushes of the open that recovers after a kill.
fn flushes_of_recovery(file: &MemoryFile, torn: Torn, killed: Db) -> u64 {
    file.kill_all();
    killed.abandon();
    open(file, torn).stats().flushes
}

/// The slot of an orderly commit stays, and every later header calls it settled.
#[test]
fn a_slot_that_both_headers_call_settled_costs_no_flush() {
    for torn in [Torn::Trust, Torn::Double] {
        let file = MemoryFile::new();
        let (a, _) = begun(&file, Torn::Double);
        a.close().expect("closed");
        let (a, _) = begun(&file, torn);
        assert_eq!(flushes_of_recovery(&file, torn, a), 0, "{torn:?}");
    }
}

/// A process may find the setting only after its first look: `PRAGMA lsmvbt_torn` comes after the open.
#[test]
fn what_trust_has_committed_costs_no_flush_to_find_whatever_the_setting_is_now() {
    let file = MemoryFile::new();
    let (mut a, tree) = begun(&file, Torn::Trust);
    change(&mut a, tree).expect("changed");
    a.commit(Durability::Flush).expect("committed");
    assert_eq!(flushes_of_recovery(&file, Torn::Double, a), 0);
}

#[test]
fn a_slot_that_only_the_newer_header_calls_settled_costs_one() {
    let file = MemoryFile::new();
    let (mut a, tree) = begun(&file, Torn::Double);
    change(&mut a, tree).expect("changed");
    a.write(Durability::Flush).expect("written");
    a.rollback().expect("rolled back");
    assert_eq!(flushes_of_recovery(&file, Torn::Double, a), 1);
}

/// Later headers must not go back to a version before the one in the slot.
#[test]
fn a_slot_that_is_rolled_back_stays_settled() {
    let file = MemoryFile::new();
    let (mut a, tree) = begun(&file, Torn::Double);
    change(&mut a, tree).expect("changed");
    a.write(Durability::Flush).expect("written");
    a.rollback().expect("rolled back");
    for torn in [Torn::Trust, Torn::Double] {
        a.set_torn(torn).expect("changed for all");
    }
    file.power_cut(PowerCut::Torn, &mut |_| 0);
    a.abandon();
    assert!(!is_changed(&mut open(&file, Torn::Double), tree));
}

#[test]
fn a_crash_while_it_is_written_or_rolled_back_leaves_all_or_nothing() {
    for torn in [Torn::Trust, Torn::Double] {
        let mut outcomes = [0, 0];
        for step in (1..1500).step_by(11) {
            let mut random = Random::new(step);
            let file = MemoryFile::new();
            let (mut a, tree) = begun(&file, torn);
            change(&mut a, tree).expect("changed");
            file.kill_after(Some(step));
            let rolled_back = a.write(Durability::Flush).and_then(|()| a.rollback());
            file.power_cut(cut(torn), &mut |n| random.below(n));
            a.abandon();
            let mut db = open(&file, torn);
            let changed = is_changed(&mut db, tree);
            assert!(!(changed && rolled_back.is_ok()), "{torn:?} {step}");
            outcomes[usize::from(changed)] += 1;
            drop(db);
            assert_eq!(is_changed(&mut open(&file, torn), tree), changed);
            if rolled_back.is_ok() {
                break;
            }
        }
        println!("{torn:?}: nothing and all: {outcomes:?}");
        assert!(outcomes[0] > 10, "{torn:?}: {outcomes:?}");
    }
}

#[test]
fn a_written_transaction_is_committed_by_a_crash() {
    for torn in [Torn::Trust, Torn::Double] {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let file = MemoryFile::new();
            let (mut a, tree) = begun(&file, torn);
            change(&mut a, tree).expect("changed");
            a.write(Durability::Flush).expect("written");
            file.power_cut(cut(torn), &mut |n| random.below(n));
            a.abandon();
            assert!(is_changed(&mut open(&file, torn), tree), "{torn:?} {seed}");
        }
    }
}
