//! Pages that crashes and full catalog pages leave behind are freed, or do no harm.

use lsmvbt::{Db, Durability, MemoryFile, Options, PAGE_SIZE, PowerCut, Torn, TreeId, TreeKind};

use crate::drive::options;
use crate::marks::{TREE, commit, lose_the_header, lose_the_header_of, made};

fn open(file: &MemoryFile, torn: Torn) -> Db {
    Db::open(file.storage(), options(torn)).unwrap()
}

fn change(db: &mut Db, change: impl FnOnce(&mut Db)) {
    db.begin_write().unwrap();
    change(db);
    db.commit(Durability::Flush).unwrap();
}

/// Changes the catalog.
fn make_tree(db: &mut Db) {
    change(db, |db| {
        db.create_tree(TreeKind::Integer).unwrap();
    });
}

fn fill(db: &mut Db, tree: TreeId, rows: std::ops::Range<i64>, bytes: usize) {
    for key in rows {
        db.put_integer(tree, key, &vec![1; bytes]).unwrap();
    }
}

/// The last page with the value of a row.
fn a_row(file: &MemoryFile) -> u64 {
    let bytes = file.bytes();
    let mut pages = bytes.chunks(PAGE_SIZE);
    let row = pages.rposition(|page| page[64..2000].iter().all(|byte| *byte == 1));
    row.expect("a row") as u64
}

/// All unflushed writes are torn in the middle.
fn tear(file: &MemoryFile) {
    let mut sector = 0;
    file.power_cut(PowerCut::Torn, &mut |n| match n {
        // No write is kept whole,
        101 => 0,
        100 => 99,
        // each is torn,
        10 => 0,
        // and every second sector is of the write.
        2 => {
            sector += 1;
            sector % 2
        }
        _ => n - 1,
    });
}

/// Found by reading: a page that a slice of a dropped tree had freed was used again, and torn. Every
/// later transaction that changed the catalog or made the file grow then failed.
#[test]
fn torn_pages_of_a_dropped_tree_stop_nobody() {
    for (row_pages, is_read) in [(1, true), (1, false), (5, true), (5, false)] {
        let file = MemoryFile::new();
        // Slots are large here, and yet the file is one that is healed.
        let options = Options {
            heal_at_once: 20_000,
            ..options(Torn::Double)
        };
        let open = || Db::open(file.storage(), options.clone()).unwrap();
        let mut db = open();
        let (mut large, mut small) = (TreeId(0), TreeId(0));
        change(&mut db, |db| {
            large = db.create_tree(TreeKind::Integer).unwrap();
            small = db.create_tree(TreeKind::Integer).unwrap();
            fill(
                db,
                large,
                0..1500 / row_pages,
                2200 + 4000 * (row_pages as usize - 1),
            );
        });
        // The floor of this header comes before the slice.
        db.close().unwrap();
        let mut db = open();
        change(&mut db, |db| db.drop_tree(large).unwrap());
        change(&mut db, |db| db.set_meta(0, 1).unwrap());
        make_tree(&mut db);
        let before = db.status().unwrap();
        assert!(before.free_pages > 400, "{before:?}");
        db.begin_write().unwrap();
        fill(&mut db, small, 0..200, 2200);
        file.kill_after(Some(300));
        db.commit(Durability::Flush).unwrap_err();
        file.kill_after(None);
        tear(&file);
        db.abandon();
        let mut db = open();
        // With a reader, nothing is healed where a dead page cannot be read.
        let view = is_read.then(|| db.snapshot().unwrap());
        for _ in 0..8 {
            make_tree(&mut db);
        }
        change(&mut db, |db| fill(db, small, 0..1400, 2200));
        assert_eq!(db.check().unwrap(), Vec::<String>::new());
        drop(view);
        // Its transaction has found no reader, and has healed what was left.
        assert_eq!(db.reclaim().unwrap(), 0);
        let pages = db.status().unwrap().pages;
        assert!(
            pages <= before.pages + before.pages / 10,
            "{before:?} {pages}"
        );
        let view = db.snapshot().unwrap();
        assert_eq!(db.count(view.version(), small).unwrap(), 1400);
        assert_eq!(db.check().unwrap(), Vec::<String>::new());
    }
}

/// A storage that fails once stops the transaction, and the next one frees the tree.
#[test]
fn a_dropped_tree_that_cannot_be_read_now_is_freed_later() {
    let file = MemoryFile::new();
    let mut db = open(&file, Torn::Trust);
    let mut large = TreeId(0);
    change(&mut db, |db| {
        large = db.create_tree(TreeKind::Integer).unwrap();
        fill(db, large, 0..300, 2200);
    });
    change(&mut db, |db| db.drop_tree(large).unwrap());
    // Its cache has none of the pages.
    db.close().unwrap();
    let mut db = open(&file, Torn::Trust);
    file.fail_read_of(a_row(&file));
    db.begin_write().unwrap();
    let failed = db.create_tree(TreeKind::Integer).unwrap_err();
    assert!(matches!(failed, lsmvbt::Error::Io { .. }), "{failed}");
    db.rollback().unwrap();
    make_tree(&mut db);
    assert_eq!(db.reclaim().unwrap(), 0);
}

/// Found by reading: a full catalog page is left with the dead entries in it, also those of trees that
/// were dropped and that a reader still saw.
#[test]
fn a_full_catalog_page_takes_no_dropped_tree_along() {
    let file = MemoryFile::new();
    let mut db = open(&file, Torn::Trust);
    let mut reader = open(&file, Torn::Trust);
    let (mut large, mut other) = (TreeId(0), TreeId(0));
    change(&mut db, |db| {
        large = db.create_tree(TreeKind::Integer).unwrap();
        other = db.create_tree(TreeKind::Integer).unwrap();
        fill(db, large, 0..1200, 2200);
        fill(db, other, 0..1, 10);
    });
    let view = reader.snapshot().unwrap();
    change(&mut db, |db| db.drop_tree(large).unwrap());
    for _ in 0..700 {
        change(&mut db, |db| {
            db.clear_tree(other).unwrap();
            fill(db, other, 0..1, 10);
        });
    }
    assert_eq!(reader.count(view.version(), large).unwrap(), 1200);
    drop(view);
    reader.release_dropped().unwrap();
    db.set_cache_pages(0);
    let mut most = 0;
    for n in 0..8 {
        let read = db.stats().pages_read;
        change(&mut db, |db| {
            db.set_meta(0, n).unwrap();
            db.create_tree(TreeKind::Integer).unwrap();
        });
        most = most.max(db.stats().pages_read - read);
    }
    println!("a transaction read {most} pages at most");
    assert!(most < 1200, "{most}");
    let status = db.status().unwrap();
    assert_eq!(db.reclaim().unwrap(), 0, "{status:?}");
    assert!(status.free_pages > 1800, "{status:?}");
    assert_eq!(db.check().unwrap(), Vec::<String>::new());
}

/// The pages that a kill has left unreachable.
fn killed() -> (MemoryFile, Db) {
    let file = MemoryFile::new();
    let mut db = open(&file, Torn::Trust);
    let mut tree = TreeId(0);
    change(&mut db, |db| {
        tree = db.create_tree(TreeKind::Integer).unwrap();
        fill(db, tree, 0..200, 2500);
    });
    db.close().unwrap();
    let mut db = open(&file, Torn::Trust);
    for key in 0..100 {
        change(&mut db, |db| assert!(db.delete_integer(tree, key).unwrap()));
    }
    file.kill_all();
    db.abandon();
    let db = open(&file, Torn::Trust);
    (file, db)
}

#[test]
fn a_transaction_that_is_rolled_back_frees_what_a_crash_has_left() {
    let (_, mut db) = killed();
    let before = db.status().unwrap().free_pages;
    db.begin_write().unwrap();
    db.rollback().unwrap();
    assert!(db.status().unwrap().free_pages >= before + 90);
    assert_eq!(db.reclaim().unwrap(), 0);
}

/// Found by reading: one failing read, and what the crash had left stayed.
#[test]
fn a_read_that_fails_once_keeps_no_page_unreachable() {
    let (file, mut db) = killed();
    file.fail_read_of(a_row(&file));
    for _ in 0..2 {
        db.begin_write().unwrap();
        db.rollback().unwrap();
    }
    assert_eq!(db.reclaim().unwrap(), 0);
}

/// Pages that cannot be read at all are looked for a few times only.
#[test]
fn a_read_that_always_fails_ends_the_search() {
    let (file, mut db) = killed();
    db.set_cache_pages(0);
    let mut read = Vec::new();
    for _ in 0..6 {
        file.fail_read_of(a_row(&file));
        let before = db.stats().pages_read;
        db.begin_write().unwrap();
        db.rollback().unwrap();
        read.push(db.stats().pages_read - before);
    }
    assert!(read[..3].iter().all(|count| *count > 0), "{read:?}");
    assert_eq!(read[3..], [0; 3], "{read:?}");
}

/// Found by reading: a page of a lost version is written again by the first transaction after the
/// crash. When that was rolled back, no later one did.
#[test]
fn a_page_of_a_lost_version_is_written_by_the_first_transaction_that_commits() {
    for rolled_back in [0, 1, 3] {
        let (file, keys) = made(1, Torn::Trust);
        let mut db = open(&file, Torn::Trust);
        commit(&mut db, 1, &[2; 500]);
        let before = file.bytes();
        lose_the_header(&file, &mut db, keys / 2 / 4 * 4 + 1);
        db.abandon();
        let lost = file.bytes();
        let pages = || lost.chunks(PAGE_SIZE).zip(before.chunks(PAGE_SIZE));
        let page = pages().position(|(lost, before)| lost != before).unwrap();
        assert_eq!(pages().filter(|(lost, before)| lost != before).count(), 1);
        let is_lost = || {
            let at = page * PAGE_SIZE..(page + 1) * PAGE_SIZE;
            file.bytes()[at.clone()] == lost[at]
        };
        let mut db = open(&file, Torn::Trust);
        for _ in 0..rolled_back {
            db.begin_write().unwrap();
            db.rollback().unwrap();
        }
        assert!(is_lost());
        commit(&mut db, 1, &[3; 500]);
        assert!(!is_lost(), "{rolled_back}");
        assert_eq!(db.check().unwrap(), Vec::<String>::new());
        // That was all, once.
        let written = db.stats().pages_written;
        commit(&mut db, 1, &[4; 500]);
        assert_eq!(db.stats().pages_written - written, 1);
    }
}

/// Found by reading: the walk over all pages was repeated by every transaction until one committed.
#[test]
fn a_transaction_that_is_rolled_back_leaves_the_next_one_little_to_read() {
    let (file, keys) = made(1, Torn::Trust);
    let mut db = open(&file, Torn::Trust);
    commit(&mut db, 1, &[2; 500]);
    lose_the_header(&file, &mut db, keys / 2 / 4 * 4 + 1);
    db.abandon();
    let mut handles = [open(&file, Torn::Trust), open(&file, Torn::Trust)];
    for db in &mut handles {
        db.set_cache_pages(0);
        let mut read = Vec::new();
        for _ in 0..6 {
            let before = db.stats().pages_read;
            db.begin_write().unwrap();
            db.rollback().unwrap();
            read.push(db.stats().pages_read - before);
        }
        println!("pages read: {read:?}");
        assert!(read[0] > 100, "{read:?}");
        assert!(read[1..].iter().all(|count| *count <= 2), "{read:?}");
    }
    // One of them commits, and the other one has nothing left to write.
    let [a, b] = &mut handles;
    commit(a, 5, &[3; 500]);
    let written = b.stats().pages_written;
    commit(b, 9, &[3; 500]);
    assert_eq!(b.stats().pages_written - written, 1);
    let read = b.stats().pages_read;
    b.begin_write().unwrap();
    b.rollback().unwrap();
    assert!(b.stats().pages_read - read <= 2);
    assert_eq!(b.check().unwrap(), Vec::<String>::new());
}

/// Found by reading: a dropped tree leads to a page that a slice has freed and that a lost version took.
/// The walk after the crash had it written again. A list of the commit took the page as well, and
/// the next crash undid that commit.
#[test]
fn a_free_page_of_a_lost_version_is_nobody_s() {
    for is_free in [true, false] {
        let (file, keys) = made(4, Torn::Trust);
        let mut db = open(&file, Torn::Trust);
        let mut large = TreeId(0);
        change(&mut db, |db| {
            large = db.create_tree(TreeKind::Integer).unwrap();
            fill(db, large, 0..1200, 2200);
        });
        // The floor of the last header comes after the slice, or before it.
        let mut db = if is_free {
            db
        } else {
            db.close().unwrap();
            open(&file, Torn::Trust)
        };
        change(&mut db, |db| db.drop_tree(large).unwrap());
        make_tree(&mut db);
        if is_free {
            db.close().unwrap();
            db = open(&file, Torn::Trust);
        }
        commit(&mut db, 1, &[2; 500]);
        let before = file.bytes();
        lose_the_header_of(&file, &mut db, 5, &[9; 5000]);
        db.abandon();
        let lost = file.bytes();
        let pages = || lost.chunks(PAGE_SIZE).zip(before.chunks(PAGE_SIZE));
        assert_eq!(pages().filter(|(lost, before)| lost != before).count(), 1);
        let mut db = open(&file, Torn::Trust);
        // A row of each page: the record needs a list, and no page is split.
        change(&mut db, |db| {
            for key in (1..keys).step_by(12) {
                db.put_integer(TREE, key, &[3; 500]).unwrap();
            }
        });
        file.kill_all();
        db.abandon();
        let mut db = open(&file, Torn::Trust);
        let view = db.snapshot().unwrap();
        for key in (1..keys).step_by(12) {
            let found = db.get_integer(view.version(), TREE, key).unwrap();
            assert_eq!(found, Some(vec![3; 500]), "{key} {is_free}");
        }
        drop(view);
        for _ in 0..8 {
            make_tree(&mut db);
        }
        assert_eq!(db.check().unwrap(), Vec::<String>::new());
        assert_eq!(db.reclaim().unwrap(), 0, "{is_free}");
    }
}
