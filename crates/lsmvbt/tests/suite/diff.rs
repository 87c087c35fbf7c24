//! The rows that differ between two versions: which ones, and what is read to find them.

use std::collections::BTreeMap;

use lsmvbt::{
    Change, ChangeKind, Db, Durability, Error, MemoryFile, Torn, TreeId, TreeKind, Version,
};

use crate::drive::options;
use crate::random::{Random, Seed, seeds};

const TREE: TreeId = TreeId(1);
const OTHER: TreeId = TreeId(2);

type Rows = BTreeMap<i64, Vec<u8>>;

fn expected(old: &Rows, new: &Rows) -> Vec<Change> {
    let keys: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let kind = |key: &i64| match (old.get(key), new.get(key)) {
        (None, _) => Some(ChangeKind::Insert),
        (_, None) => Some(ChangeKind::Delete),
        (a, b) => (a != b).then_some(ChangeKind::Update),
    };
    let change = |key: &i64| kind(key).map(|kind| Change { key: *key, kind });
    keys.into_iter().filter_map(change).collect()
}

fn diff(db: &mut Db, old: Version, new: Version) -> Vec<Change> {
    db.diff(Some((old, TREE)), Some((new, TREE))).unwrap()
}

/// Transactions of every kind, and each pair of the versions that they make.
#[test]
fn the_rows_that_differ_are_found_between_any_two_versions() {
    for seed in seeds(3) {
        let _seed = Seed(
            "the_rows_that_differ_are_found_between_any_two_versions",
            seed,
        );
        let mut dice = Random::new(seed);
        let file = MemoryFile::new();
        let torn = *dice.pick(&[Torn::Trust, Torn::Double]);
        let mut db = Db::open(file.storage(), options(torn)).unwrap();
        db.begin_write().unwrap();
        assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
        db.commit(Durability::Flush).unwrap();
        db.set_history(1000).unwrap();
        let (mut rows, mut versions) = (Rows::new(), Vec::new());
        for _ in 0..25 {
            db.begin_write().unwrap();
            let first = dice.below(3000) as i64;
            for key in first..first + dice.below(400) as i64 {
                let size = *dice.pick(&[0, 10, 10, 100, 100, 900, 9000]);
                let value = vec![dice.below(4) as u8; size];
                match dice.below(4) {
                    0 => drop(db.delete_integer(TREE, key).unwrap()),
                    _ => db.put_integer(TREE, key, &value).unwrap(),
                }
                match db
                    .get_integer(db.write_version().unwrap(), TREE, key)
                    .unwrap()
                {
                    Some(value) => drop(rows.insert(key, value)),
                    None => drop(rows.remove(&key)),
                }
            }
            if dice.chance(5) {
                db.clear_tree(TREE).unwrap();
                rows.clear();
            }
            versions.push((db.commit(Durability::Flush).unwrap(), rows.clone()));
        }
        // The writer's handle, and another one, without the pages in memory.
        for pair in versions.windows(2) {
            let found = diff(&mut db, pair[0].0, pair[1].0);
            assert_eq!(found, expected(&pair[0].1, &pair[1].1));
        }
        let mut db = Db::open(file.storage(), options(torn)).unwrap();
        for (old, before) in &versions {
            for (new, after) in &versions {
                let found = diff(&mut db, *old, *new);
                assert_eq!(found, expected(before, after), "{old:?} to {new:?}");
            }
            let found = db.diff(None, Some((*old, TREE))).unwrap();
            assert_eq!(found, expected(&Rows::new(), before));
        }
    }
}

/// Each page of the tree is read once, and no value of a row that has not changed. In memory, nothing
/// is.
#[test]
fn each_page_of_the_tree_is_read_once_and_no_unchanged_value() {
    let file = MemoryFile::new();
    let mut db = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    db.begin_write().unwrap();
    assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
    for key in 0..3000 {
        db.put_integer(TREE, key, &[1; 20_000]).unwrap();
    }
    db.commit(Durability::Flush).unwrap();
    db.set_history(10).unwrap();
    let old = db.current_version().unwrap();
    db.begin_write().unwrap();
    db.put_integer(TREE, 1234, &[2; 20_000]).unwrap();
    let new = db.commit(Durability::Flush).unwrap();
    db.close().unwrap();

    let mut db = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    let pages = db.status().unwrap().pages;
    let before = db.stats().pages_read;
    let count = db.count(new, TREE).unwrap();
    let of_tree = db.stats().pages_read - before;
    assert_eq!(count, 3000);
    assert!(of_tree > 50 && u64::from(pages) > 40 * of_tree, "{of_tree}");

    let mut db = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    db.set_cache_pages(1000);
    let before = db.stats().pages_read;
    let update = |key| Change {
        key,
        kind: ChangeKind::Update,
    };
    assert_eq!(diff(&mut db, old, new), [update(1234)]);
    let read = db.stats().pages_read - before;
    // The two values differ in length or bytes: both are read, up to 5 pages each.
    assert!(
        (of_tree..of_tree + 12).contains(&read),
        "{read} and {of_tree}"
    );
    println!("a tree of {of_tree} pages, {pages} with its values: {read} read");
    assert_eq!(diff(&mut db, new, old), [update(1234)]);
    assert_eq!(db.stats().pages_read - before, read);
}

#[test]
fn trees_that_were_made_again_are_compared_by_their_rows() {
    let file = MemoryFile::new();
    let mut db = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    db.set_history(10).unwrap();
    db.begin_write().unwrap();
    for tree in [TREE, OTHER] {
        assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), tree);
        for key in 0..100 {
            let differs = tree == OTHER && key >= 90;
            let value = [key as u8 + u8::from(differs); 200];
            db.put_integer(tree, key, &value).unwrap();
        }
    }
    let bytes = db.create_tree(TreeKind::Bytes).unwrap();
    let old = db.commit(Durability::Flush).unwrap();
    db.begin_write().unwrap();
    db.drop_tree(TREE).unwrap();
    assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
    for key in 50..150 {
        db.put_integer(TREE, key, &[(key / 99) as u8; 200]).unwrap();
    }
    let new = db.commit(Durability::Flush).unwrap();
    for from in [TREE, OTHER] {
        let found = db.diff(Some((old, from)), Some((new, TREE))).unwrap();
        let kinds = |kind| found.iter().filter(|change| change.kind == kind).count();
        let all = [ChangeKind::Insert, ChangeKind::Update, ChangeKind::Delete].map(kinds);
        assert_eq!(all, [50, 50, 50]);
    }
    assert_eq!(db.diff(Some((old, OTHER)), Some((new, OTHER))).unwrap(), []);
    // Both began in the same version, and are two trees.
    let found = db.diff(Some((old, TREE)), Some((new, OTHER))).unwrap();
    let keys: Vec<i64> = found.iter().map(|change| change.key).collect();
    assert_eq!(keys, (90..100).collect::<Vec<i64>>());
    let error = db.diff(Some((old, bytes)), None);
    assert!(matches!(error, Err(Error::WrongKind(tree)) if tree == bytes));
}
