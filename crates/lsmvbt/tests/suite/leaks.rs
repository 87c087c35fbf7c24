//! No page stays unreachable where a handle dies outside of a commit.

use lsmvbt::{Db, Durability, MemoryFile, Torn, TreeId, TreeKind};

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
                std::mem::forget(db);
                if survived {
                    assert!(store > 8);
                    break;
                }
            }
        }
    }
}
