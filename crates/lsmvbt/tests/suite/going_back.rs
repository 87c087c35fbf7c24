//! Going back to a savepoint whose pages were written meanwhile: they are read again, and a read may fail.

use lsmvbt::{Db, Durability, Error, MemoryFile, Options, PAGE_SIZE, Torn, TreeId, TreeKind};

use crate::drive::options;

const TREE: TreeId = TreeId(1);
const ROWS: i64 = 200;

fn open(file: &MemoryFile, torn: Torn) -> Db {
    let options = Options {
        cache_pages: 8,
        ..options(torn)
    };
    Db::open(file.storage(), options).expect("a database")
}

fn change(db: &mut Db, value: u8) {
    for key in 0..ROWS {
        db.put_integer(TREE, key, &[value; 500]).expect("a row");
    }
}

/// The value that all rows have, also with the tree and its pages checked.
fn value(db: &mut Db) -> u8 {
    assert_eq!(db.check().expect("checked"), Vec::<String>::new());
    let snapshot = db.snapshot().expect("a snapshot");
    let mut rows = (0..ROWS).map(|key| {
        let row = db.get_integer(snapshot.version(), TREE, key);
        let row = row.expect("read").expect("there");
        assert_eq!(row, [row[0]; 500]);
        row[0]
    });
    let first = rows.next().expect("a row");
    assert!(rows.all(|value| value == first));
    first
}

/// How many reads have failed.
fn run(torn: Torn, again: bool) -> u32 {
    let file = MemoryFile::new();
    let mut db = open(&file, torn);
    db.begin_write().expect("a transaction");
    assert_eq!(db.create_tree(TreeKind::Integer).expect("a tree"), TREE);
    change(&mut db, 0);
    db.commit(Durability::Flush).expect("committed");
    let (mut now, mut failures) = (0, 0);
    for page in 3..file.bytes().len().div_ceil(PAGE_SIZE) as u64 + 64 {
        db.begin_write().expect("a transaction");
        let savepoint = db.savepoint().expect("a savepoint");
        change(&mut db, page as u8);
        file.fail_read_of(page);
        let failed = db.rollback_to(savepoint);
        file.fail_read_of(u64::MAX);
        if let Err(error) = &failed {
            assert!(matches!(error, Error::Io { .. }), "{error}");
            failures += 1;
        }
        match (failed.is_err(), again) {
            (true, false) => now = page as u8,
            (true, true) => db.rollback_to(savepoint).expect("undone"),
            (false, _) => {}
        }
        db.commit(Durability::Flush).expect("committed");
        assert_eq!(value(&mut db), now, "{torn:?}, page {page}");
    }
    failures
}

/// Until 2026-11-30 some pages were as at the savepoint then, others not, and the transaction could be committed.
#[test]
fn a_savepoint_to_which_nobody_could_go_back_is_open_and_nothing_is_undone() {
    for torn in [Torn::Trust, Torn::Double] {
        for again in [true, false] {
            let failures = run(torn, again);
            assert!(failures > 10, "{torn:?}, {again}: {failures}");
        }
    }
}
