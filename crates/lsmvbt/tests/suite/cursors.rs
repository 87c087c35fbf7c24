//! Cursors that outlive the state in which they were made.

use lsmvbt::{Cursor, Db, Durability, MemoryFile, Options, PAGE_SIZE, Seek, TreeId, TreeKind};

/// A database with a tree of even numbers, and the tree.
fn evens() -> (Db, TreeId) {
    let mut db = Db::open(MemoryFile::new().storage(), Options::default()).unwrap();
    let tree = fill(&mut db);
    (db, tree)
}

fn fill(db: &mut Db) -> TreeId {
    db.begin_write().unwrap();
    let tree = db.create_tree(TreeKind::Integer).unwrap();
    for n in 0..2000 {
        db.put_integer(tree, 2 * n, b"even").unwrap();
    }
    db.commit(Durability::Flush).unwrap();
    tree
}

/// The page of the root is read then, and the leaf is not.
#[test]
fn a_cursor_that_could_not_go_to_an_end_is_nowhere() {
    let file = MemoryFile::new();
    let mut db = Db::open(file.storage(), Options::default()).unwrap();
    let tree = fill(&mut db);
    db.close().unwrap();
    let (mut failures, pages) = (0, file.bytes().len() / PAGE_SIZE);
    for (page, last) in (3..pages as u64).flat_map(|page| [(page, false), (page, true)]) {
        let mut db = Db::open(file.storage(), Options::default()).unwrap();
        let snapshot = db.snapshot().unwrap();
        let mut cursor = db.cursor(snapshot.version(), tree).unwrap();
        file.fail_read_of(page);
        let moved = match last {
            true => cursor.last(&mut db),
            false => cursor.first(&mut db),
        };
        file.fail_read_of(u64::MAX);
        failures += usize::from(moved.is_err());
        assert_eq!(cursor.is_valid(), moved.is_ok(), "page {page}, {last}");
    }
    // Each by its leaf, at least.
    assert!(failures >= 2, "{failures}");
}

fn value(db: &mut Db, cursor: &mut Cursor, key: i64) -> Option<Vec<u8>> {
    match cursor.seek_integer(db, key).unwrap() {
        Seek::Exact => Some(cursor.value(db).unwrap()),
        _ => None,
    }
}

#[test]
fn a_cursor_of_a_transaction_forgets_the_way_it_came_when_that_is_committed() {
    let (mut db, tree) = evens();
    let view = db.begin_write().unwrap();
    let mut cursor = db.cursor(view, tree).unwrap();
    assert_eq!(value(&mut db, &mut cursor, 1001), None);
    for n in 0..2000 {
        db.put_integer(tree, 2 * n + 1, b"odd").unwrap();
    }
    let version = db.commit_and_read(Durability::Flush, &mut None).unwrap();
    assert_eq!(version, view);
    assert_eq!(
        value(&mut db, &mut cursor, 1001).as_deref(),
        Some(&b"odd"[..])
    );
    assert_eq!(
        value(&mut db, &mut cursor, 1000).as_deref(),
        Some(&b"even"[..])
    );
}

#[test]
fn a_cursor_of_a_snapshot_finds_its_way_whatever_is_written_meanwhile() {
    let (mut db, tree) = evens();
    let snapshot = db.snapshot().unwrap();
    let mut cursor = db.cursor(snapshot.version(), tree).unwrap();
    for round in 0..20 {
        for n in (round..4000).step_by(97) {
            let expected = (n % 2 == 0).then_some(&b"even"[..]);
            assert_eq!(
                value(&mut db, &mut cursor, n).as_deref(),
                expected,
                "round {round}"
            );
        }
        db.begin_write().unwrap();
        for n in 0..2000 {
            if (n + round) % 3 == 0 {
                db.delete_integer(tree, 2 * n).unwrap();
            } else {
                db.put_integer(tree, 2 * n + round % 2, b"new").unwrap();
            }
        }
        db.commit(Durability::Flush).unwrap();
    }
}

/// A page is copied once, for the rollback.
#[test]
fn a_transaction_that_deletes_row_by_row_copies_each_page_once() {
    let mut copied = Vec::new();
    for ends in [false, true] {
        let mut db = Db::open(MemoryFile::new().storage(), Options::default()).unwrap();
        db.begin_write().unwrap();
        let tree = db.create_tree(TreeKind::Integer).unwrap();
        for key in 0..1000 {
            db.put_integer(tree, key, &[1; 30]).unwrap();
        }
        db.commit(Durability::Flush).unwrap();
        let view = db.begin_write().unwrap();
        let before = db.stats().copied;
        for key in 0..900 {
            let mut cursor = db.cursor(view, tree).unwrap();
            assert_eq!(cursor.seek_integer(&mut db, key).unwrap(), Seek::Exact);
            match ends {
                true => db.delete_with(cursor).unwrap(),
                false => db.delete_at(&mut cursor).unwrap(),
            }
        }
        copied.push(db.stats().copied - before);
        assert_eq!(db.count(view, tree).unwrap(), 100);
        db.commit(Durability::Flush).unwrap();
        assert_eq!(db.check().unwrap(), Vec::<String>::new());
    }
    println!("pages copied by 900 deletions: {copied:?}, without and with the cursor's end");
    assert!(copied[0] >= 900 && copied[1] <= 40, "{copied:?}");
}
