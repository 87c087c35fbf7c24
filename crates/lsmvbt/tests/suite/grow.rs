//! The file grows ahead of the pages: see `src/grow.rs`.

use lsmvbt::{Db, Durability, MemoryFile, PAGE_SIZE, PowerCut, Torn, TreeId, TreeKind};

use crate::drive::options;

const BOTH: [Torn; 2] = [Torn::Trust, Torn::Double];
const ROW: [u8; 500] = [1; 500];

/// A database of some 400 pages, and the next key.
fn made(file: &MemoryFile, torn: Torn) -> (Db, TreeId, i64) {
    let mut db = Db::open(file.storage(), options(torn)).expect("a database");
    db.begin_write().expect("a transaction");
    let tree = db.create_tree(TreeKind::Integer).expect("a tree");
    db.commit(Durability::Flush).expect("a commit");
    // Not all at once: the slots would become large, and leave their pages to the next rows.
    let rows = 2_800;
    for first in (0..rows).step_by(50) {
        db.begin_write().expect("a transaction");
        for key in first..first + 50 {
            db.put_integer(tree, key, &ROW).expect("a row");
        }
        db.commit(Durability::Flush).expect("a commit");
    }
    (db, tree, rows)
}

fn append(db: &mut Db, tree: TreeId, key: i64) {
    db.begin_write().expect("a transaction");
    db.put_integer(tree, key, &ROW).expect("a row");
    db.commit(Durability::Flush).expect("a commit");
}

fn pages_of(file: &MemoryFile) -> u32 {
    (file.bytes().len() / PAGE_SIZE) as u32
}

fn assert_holds(db: &mut Db, tree: TreeId, rows: i64) {
    assert_eq!(db.check().expect("checked"), Vec::<String>::new());
    let view = db.snapshot().expect("a snapshot");
    let count = db.count(view.version(), tree).expect("counted");
    assert_eq!(count, rows as u64);
}

#[test]
fn few_commits_make_the_file_longer() {
    for torn in BOTH {
        let file = MemoryFile::new();
        let (mut db, tree, rows) = made(&file, torn);
        let (mut longer, mut size) = (0, pages_of(&file));
        for key in rows..rows + 1_500 {
            append(&mut db, tree, key);
            longer += u32::from(pages_of(&file) > size);
            size = pages_of(&file);
            let used = db.status().expect("a status").pages;
            assert!(size <= used + used / 16 + 1, "{torn:?}: {size} for {used}");
        }
        // Some 210 pages are new, and each time there are 25 more of zeros.
        assert!((1..=16).contains(&longer), "{torn:?}: {longer}");
        assert!(db.stats().zero_pages_written >= 150, "{torn:?}");
        assert_holds(&mut db, tree, rows + 1_500);
        db.vacuum().expect("a vacuum");
        let used = db.status().expect("a status").pages;
        assert_eq!(pages_of(&file), used, "{torn:?}: a vacuum cuts the zeros");
    }
}

#[test]
fn zeros_need_no_room_and_no_power() {
    for torn in BOTH {
        let file = MemoryFile::new();
        let (mut db, tree, rows) = made(&file, torn);
        // The rows find their pages, and the zeros do not.
        for key in rows..rows + 300 {
            let before = pages_of(&file);
            let used = db.status().expect("a status").pages.max(before);
            file.limit(Some(u64::from(used + 2) * PAGE_SIZE as u64));
            append(&mut db, tree, key);
        }
        file.limit(None);
        assert_eq!(db.stats().zero_pages_written, 0, "{torn:?}");
        for key in rows + 300..rows + 400 {
            append(&mut db, tree, key);
        }
        assert!(db.stats().zero_pages_written > 0, "{torn:?}");
        db.abandon();
        file.power_cut(PowerCut::Torn, &mut |n| n - 1);
        let mut db = Db::open(file.storage(), options(torn)).expect("a database");
        assert_holds(&mut db, tree, rows + 400);
        for key in rows + 400..rows + 500 {
            append(&mut db, tree, key);
        }
        assert_holds(&mut db, tree, rows + 500);
    }
}

#[test]
fn no_zeros_where_they_prepare_nothing() {
    for torn in BOTH {
        let file = MemoryFile::new();
        file.copy_on_write();
        let (mut db, tree, rows) = made(&file, torn);
        for key in rows..rows + 300 {
            append(&mut db, tree, key);
        }
        assert_eq!(db.stats().zero_pages_written, 0, "{torn:?}");
        assert_holds(&mut db, tree, rows + 300);
    }
}

/// With [`Torn::Double`] a commit may make the file longer for its pages, and then for its slots.
#[test]
fn zeros_stand_behind_slots_that_the_same_commit_makes() {
    let mut made_slots = 0;
    for rows_at_once in 8..60 {
        let file = MemoryFile::new();
        let (mut db, tree, rows) = made(&file, Torn::Double);
        let pages = db.status().expect("a status").pages;
        db.begin_write().expect("a transaction");
        // A new page, and many that change: their images need larger slots.
        for key in rows..rows + 8 {
            db.put_integer(tree, key, &ROW).expect("a row");
        }
        for nth in 0..rows_at_once {
            db.put_integer(tree, nth * 40, &[2; 500]).expect("a row");
        }
        db.commit(Durability::Flush).expect("a commit");
        made_slots += u32::from(db.status().expect("a status").pages > pages + 2);
        db.abandon();
        // All writes in place are lost: the slot alone has the images.
        file.power_cut(PowerCut::Torn, &mut |_| 0);
        let mut db = Db::open(file.storage(), options(Torn::Double)).expect("a database");
        assert_holds(&mut db, tree, rows + 8);
        let view = db.snapshot().expect("a snapshot");
        for nth in 0..rows_at_once {
            let found = db
                .get_integer(view.version(), tree, nth * 40)
                .expect("read");
            assert_eq!(
                found.as_deref(),
                Some(&[2; 500][..]),
                "{rows_at_once}: {nth}"
            );
        }
    }
    assert!(made_slots > 10, "{made_slots}");
}
