//! A file that gets the name of another one, which is still open. The shared memory goes by the name.

use std::fs;
use std::path::Path;

use lsmvbt::{Caching, Db, DirectFile, Durability, Error, Torn, TreeId, TreeKind};

use crate::drive::options;

const TREE: TreeId = TreeId(1);

fn open(path: &Path, torn: Torn) -> Result<Db, Error> {
    let storage = DirectFile::open(path, Caching::Buffered).expect("the file");
    Db::open(Box::new(storage), options(torn))
}

fn commit(db: &mut Db, change: impl FnOnce(&mut Db)) {
    db.begin_write().expect("a transaction");
    change(db);
    db.commit(Durability::Flush).expect("committed");
}

fn put(db: &mut Db, keys: std::ops::Range<i64>) {
    commit(db, |db| {
        for key in keys {
            db.put_integer(TREE, key, &[7; 500]).expect("a row");
        }
    });
}

/// The file has become shorter since the backup. Until 2026-11-30 commits to the backup went over its pages.
#[test]
fn a_backup_that_gets_the_name_of_an_open_file_is_refused_until_that_is_closed() {
    for torn in [Torn::Trust, Torn::Double] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let mut old = open(&path("db"), torn).expect("a database");
        commit(&mut old, |db| {
            assert_eq!(db.create_tree(TreeKind::Integer).expect("a tree"), TREE);
        });
        put(&mut old, 0..2000);
        old.close().expect("closed");
        fs::copy(path("db"), path("backup")).expect("a backup");
        let mut old = open(&path("db"), torn).expect("a database");
        commit(&mut old, |db| {
            (100..2000).for_each(|key| assert!(db.delete_integer(TREE, key).expect("deleted")));
        });
        old.vacuum().expect("shorter");
        fs::rename(path("db"), path("old")).expect("renamed");
        fs::rename(path("backup"), path("db")).expect("restored");
        let refused = open(&path("db"), torn).err().expect("another file");
        assert!(matches!(refused, Error::OtherFile), "{refused}");
        // The one that is open goes on.
        put(&mut old, 5000..5100);
        old.close().expect("closed");
        let mut restored = open(&path("db"), torn).expect("a database");
        put(&mut restored, 2000..3000);
        assert_eq!(restored.check().expect("checked"), Vec::<String>::new());
        let view = restored.snapshot().expect("a snapshot");
        assert_eq!(restored.count(view.version(), TREE).expect("counted"), 3000);
    }
}
