//! Random transactions on the engine and on a model of it: a map for every tree, kept for every
//! snapshot.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;
use std::rc::Rc;
use std::time::Duration;

use lsmvbt::{
    Abbreviation, Cursor, Db, Durability, Error, Optimizations, Options, Payloads, Result, Seek,
    Snapshot, Sought, Torn, TreeId, TreeKind, Version,
};

use crate::random::Random;

/// Keys in the order of the tree: integers as eight bytes, custom keys after their length.
pub type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// The content of a version.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Model {
    pub trees: BTreeMap<u32, (u8, Rc<Map>)>,
    pub metas: [u32; 16],
}

pub fn kind_number(kind: TreeKind) -> u8 {
    match kind {
        TreeKind::Integer => 0,
        TreeKind::Bytes => 1,
        TreeKind::Custom => 2,
    }
}

pub fn integer_key(key: i64) -> Vec<u8> {
    ((key as u64) ^ (1 << 63)).to_be_bytes().to_vec()
}

fn integer_of(key: &[u8]) -> i64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(key);
    (u64::from_be_bytes(bytes) ^ (1 << 63)) as i64
}

fn custom_key(key: &[u8]) -> Vec<u8> {
    [&(key.len() as u32).to_be_bytes()[..], key].concat()
}

/// Custom keys are ordered by length, then bytes.
pub fn custom_order(stored: &[u8], sought: &[u8]) -> Ordering {
    stored
        .len()
        .cmp(&sought.len())
        .then_with(|| stored.cmp(sought))
}

/// A custom key. Where a page has abbreviated keys, the search uses them: length and first byte.
pub struct ByLength<'a>(pub &'a [u8]);

fn abbreviated(key: &[u8]) -> u64 {
    key.len() as u64 * 256 + u64::from(key.first().copied().unwrap_or(0))
}

impl Sought for ByLength<'_> {
    fn compare(&mut self, stored: &[u8]) -> Result<Ordering> {
        Ok(custom_order(stored, self.0))
    }

    fn abbreviation(&self) -> Option<Abbreviation> {
        Some(Abbreviation {
            kind: 1,
            sought: abbreviated(self.0),
        })
    }

    fn abbreviate(&self, keys: Payloads<'_>) -> Vec<u64> {
        (0..keys.spans().len())
            .map(|index| abbreviated(keys.at(index)))
            .collect()
    }
}

/// The current key and value of a cursor, in the model's form.
pub fn entry(db: &mut Db, cursor: &Cursor) -> Result<(Vec<u8>, Vec<u8>)> {
    Ok(match cursor.kind() {
        TreeKind::Integer => (integer_key(cursor.integer_key()?), cursor.value(db)?),
        TreeKind::Bytes => (cursor.key(db)?, cursor.value(db)?),
        TreeKind::Custom => (custom_key(&cursor.key(db)?), Vec::new()),
    })
}

/// The whole content of a version, read forwards.
pub fn read_all(db: &mut Db, view: Version) -> Result<Model> {
    let mut model = Model::default();
    for (tree, kind) in db.trees(view)? {
        let mut map = Map::new();
        let mut cursor = db.cursor(view, tree)?;
        let mut more = cursor.first(db)?;
        let mut last: Option<Vec<u8>> = None;
        while more {
            let (key, value) = entry(db, &cursor)?;
            if last.as_ref().is_some_and(|l| *l >= key) {
                return Err(Error::Transaction("keys are not in order"));
            }
            last = Some(key.clone());
            map.insert(key, value);
            more = cursor.next(db)?;
        }
        model
            .trees
            .insert(tree.0, (kind_number(kind), Rc::new(map)));
    }
    for (i, meta) in model.metas.iter_mut().enumerate() {
        *meta = db.meta(view, i)?;
    }
    Ok(model)
}

/// Reads trees backwards and in random places and compares. The cursors are those of earlier calls
/// for the same view.
pub fn probe(
    db: &mut Db,
    view: Version,
    model: &Model,
    cursors: &mut BTreeMap<u32, Cursor>,
    random: &mut Random,
) -> Result<()> {
    for (tree, (kind, map)) in &model.trees {
        let entries = db.count(view, TreeId(*tree))?;
        assert_eq!(entries, map.len() as u64, "count of tree {tree}");
        let cursor = match cursors.entry(*tree) {
            MapEntry::Occupied(kept) => kept.into_mut(),
            MapEntry::Vacant(none) => none.insert(db.cursor(view, TreeId(*tree))?),
        };
        read_back(db, cursor, map)?;
        for _ in 0..5 {
            let key = random_key(random, *kind, 60);
            seek_and_look(db, cursor, &key, map, random)?;
            if cursor.kind() == TreeKind::Custom {
                seek_length(db, cursor, &key, map)?;
            }
        }
    }
    Ok(())
}

fn read_back(db: &mut Db, cursor: &mut Cursor, map: &Map) -> Result<()> {
    let mut more = cursor.last(db)?;
    for (key, _) in map.iter().rev() {
        assert!(more, "the way back ends early");
        assert_eq!(entry(db, cursor)?.0, *key, "backwards");
        more = cursor.prev(db)?;
    }
    assert!(!more, "the way back goes on");
    Ok(())
}

fn seek_and_look(
    db: &mut Db,
    cursor: &mut Cursor,
    key: &[u8],
    map: &Map,
    random: &mut Random,
) -> Result<()> {
    let found = seek(db, cursor, key)?;
    let below = map.range(..key.to_vec()).next_back();
    let above = map.range(key.to_vec()..).next();
    match found {
        Seek::Empty => assert!(map.is_empty(), "the tree is not empty"),
        Seek::Exact => assert_eq!(entry(db, cursor)?.0, key),
        Seek::Larger => assert_eq!(Some(&entry(db, cursor)?.0), above.map(|e| e.0)),
        Seek::Smaller => assert_eq!(Some(&entry(db, cursor)?.0), below.map(|e| e.0)),
    }
    assert_eq!(found == Seek::Exact, map.contains_key(key));
    for _ in 0..3 {
        if cursor.is_valid() {
            look_around(db, cursor, random)?;
        }
    }
    Ok(())
}

/// The entries that a cursor shows around it are those that it reaches step by step, and it can
/// skip over a part of them at once.
fn look_around(db: &mut Db, cursor: &mut Cursor, random: &mut Random) -> Result<()> {
    if random.below(2) == 0 && !cursor.next(db)? {
        return Ok(());
    }
    let Some(around) = cursor.around() else {
        return Ok(());
    };
    let payloads = around.payloads;
    let shown: Vec<(i64, Vec<u8>)> = (0..payloads.spans().len())
        .map(|i| {
            (
                around.integers.get(i).map_or(0, |key| *key),
                payloads.at(i).to_vec(),
            )
        })
        .collect();
    let (mut at, last) = (around.at, shown.len() - 1);
    assert_eq!(there(cursor)?, shown[at]);
    for back in [true, false] {
        let to = random.below(shown.len() as u64) as usize;
        cursor.skip(db, to as isize - at as isize)?;
        at = to;
        assert_eq!(there(cursor)?, shown[at]);
        let most = if back { at } else { last - at };
        for _ in 0..random.below(most as u64 + 1) {
            let more = if back {
                cursor.prev(db)?
            } else {
                cursor.next(db)?
            };
            assert!(more, "an entry that was shown is not there");
            at = if back { at - 1 } else { at + 1 };
            assert_eq!(there(cursor)?, shown[at]);
        }
    }
    let beyond = cursor.skip(db, shown.len() as isize);
    assert!(
        beyond.is_err(),
        "a cursor was moved to what it did not show"
    );
    Ok(())
}

fn there(cursor: &Cursor) -> Result<(i64, Vec<u8>)> {
    let (integer, local, total) = cursor.here()?;
    assert_eq!(local.len(), total as usize);
    Ok((integer, local.to_vec()))
}

/// Seeks any key of the same length as this one.
fn seek_length(db: &mut Db, cursor: &mut Cursor, key: &[u8], map: &Map) -> Result<()> {
    let length = key.len() - 4;
    let found = cursor.seek_with(db, &mut |stored: &[u8]| Ok(stored.len().cmp(&length)))?;
    // In the model, keys begin with their length.
    let (below, above) = (&key[..4], (length as u32 + 1).to_be_bytes());
    let smaller = map.range(..below.to_vec()).next_back();
    let equal = map.range(below.to_vec()..above.to_vec()).next();
    let larger = map.range(above.to_vec()..).next();
    match found {
        Seek::Empty => assert!(map.is_empty(), "the tree is not empty"),
        Seek::Exact => assert_eq!(entry(db, cursor)?.0.len(), key.len()),
        Seek::Larger => assert_eq!(Some(&entry(db, cursor)?.0), larger.map(|e| e.0)),
        Seek::Smaller => assert_eq!(Some(&entry(db, cursor)?.0), smaller.map(|e| e.0)),
    }
    assert_eq!(
        found == Seek::Exact,
        equal.is_some(),
        "keys of {length} bytes"
    );
    Ok(())
}

pub fn seek(db: &mut Db, cursor: &mut Cursor, key: &[u8]) -> Result<Seek> {
    match cursor.kind() {
        TreeKind::Integer => cursor.seek_integer(db, integer_of(key)),
        TreeKind::Bytes => cursor.seek(db, key),
        TreeKind::Custom => cursor.seek_with(db, &mut ByLength(&key[4..])),
    }
}

/// A key, from a small or a large set, in the model's form.
pub fn random_key(random: &mut Random, kind: u8, range: u64) -> Vec<u8> {
    key_of(kind, random.below(range), range)
}

fn key_of(kind: u8, n: u64, range: u64) -> Vec<u8> {
    match kind {
        0 => integer_key(n as i64 - (range / 3) as i64),
        1 => bytes_key(n),
        _ => custom_key(&bytes_key(n)),
    }
}

fn bytes_key(n: u64) -> Vec<u8> {
    // The same number always gives the same key; some keys are long, some do not fit into a page.
    let len = match n % 23 {
        0 => 1500,
        1 => 5000,
        2..7 => 400,
        _ => (n % 40) as usize,
    };
    let mut key = (n as u32).to_be_bytes().to_vec();
    key.resize(4 + len, (n % 251) as u8);
    key
}

pub fn random_value(random: &mut Random) -> Vec<u8> {
    let len = match random.below(100) {
        0..2 => random.below(20_000),
        2..8 => 700 + random.below(600),
        8..30 => random.below(400),
        _ => random.below(60),
    };
    vec![random.below(256) as u8; len as usize]
}

/// The default options, except the effect of a power cut on a page. Nothing goes by the clock.
pub fn options(torn: Torn) -> Options {
    Options {
        torn,
        later: Duration::MAX,
        ..Options::default()
    }
}

/// Options with random switches.
pub fn random_options(random: &mut Random, torn: Torn) -> Options {
    let mut options = options(torn);
    if random.chance(40) {
        options.optimizations = Optimizations {
            lazy_split: random.chance(60),
            reserve_percent: *random.pick(&[0, 10, 25]),
            lazy_gc: random.chance(60),
            metadata_embedding: random.chance(70),
            no_redistribution: random.chance(60),
        };
    }
    options.cache_pages = *random.pick(&[0, 12, 100, 2000]);
    options.recovery_pages = *random.pick(&[64, 128, 640, 4096]);
    options.heal_at_once = options.recovery_pages;
    options.late_after = *random.pick(&[0, 1, 1, 8, u32::MAX]);
    options
}

/// One random change of the write transaction, on both sides.
pub fn change(db: &mut Db, model: &mut Model, random: &mut Random, range: u64) -> Result<()> {
    let dice = random.below(1000);
    if model.trees.is_empty() || (dice < 12 && model.trees.len() < 6) {
        let kind = *random.pick(&[TreeKind::Integer, TreeKind::Bytes, TreeKind::Custom]);
        let tree = db.create_tree(kind)?;
        let old = model
            .trees
            .insert(tree.0, (kind_number(kind), Rc::default()));
        assert!(old.is_none(), "tree {} was there already", tree.0);
        return Ok(());
    }
    let trees: Vec<u32> = model.trees.keys().copied().collect();
    let tree = *random.pick(&trees);
    if dice < 16 {
        db.drop_tree(TreeId(tree))?;
        model.trees.remove(&tree);
        return Ok(());
    }
    let Some((kind, map)) = model.trees.get_mut(&tree) else {
        return Ok(());
    };
    if dice < 19 {
        db.clear_tree(TreeId(tree))?;
        *map = Rc::default();
        return Ok(());
    }
    if dice < 40 {
        let (i, value) = (random.below(16) as usize, random.below(1000) as u32);
        db.set_meta(i, value)?;
        model.metas[i] = value;
        return Ok(());
    }
    let (kind, map) = (*kind, Rc::make_mut(map));
    if dice < 700 {
        let key = match map.last_key_value() {
            Some((last, _)) if dice < 150 && kind == 0 => integer_key(integer_of(last) + 1),
            _ => random_key(random, kind, range),
        };
        let value = if kind == 2 {
            Vec::new()
        } else {
            random_value(random)
        };
        put(db, TreeId(tree), kind, &key, &value)?;
        map.insert(key, value);
    } else if dice < 940 {
        let key = random_key(random, kind, range);
        let there = delete(db, TreeId(tree), kind, &key)?;
        assert_eq!(there, map.remove(&key).is_some(), "deletion in tree {tree}");
    } else if dice < 980 {
        delete_run(db, TreeId(tree), map, random)?;
    } else {
        put_run(db, TreeId(tree), (kind, map), random, range)?;
    }
    Ok(())
}

/// The number of neighbors that change together: more than a leaf holds, now and then.
fn run_length(random: &mut Random) -> u64 {
    let limit = *random.pick(&[10, 40, 400]);
    random.below(limit)
}

/// Inserts keys of neighboring numbers, without values.
fn put_run(
    db: &mut Db,
    tree: TreeId,
    (kind, map): (u8, &mut Map),
    random: &mut Random,
    range: u64,
) -> Result<()> {
    let first = random.below(range);
    for n in first..first + run_length(random) {
        let key = key_of(kind, n, range);
        put(db, tree, kind, &key, b"")?;
        map.insert(key, Vec::new());
    }
    Ok(())
}

pub fn put(db: &mut Db, tree: TreeId, kind: u8, key: &[u8], value: &[u8]) -> Result<()> {
    match kind {
        0 => db.put_integer(tree, integer_of(key), value),
        1 => db.put(tree, key, value),
        _ => db.put_custom(tree, &key[4..], &mut ByLength(&key[4..])),
    }
}

pub fn delete(db: &mut Db, tree: TreeId, kind: u8, key: &[u8]) -> Result<bool> {
    match kind {
        0 => db.delete_integer(tree, integer_of(key)),
        1 => db.delete(tree, key),
        _ => {
            let view = db.write_version().ok_or(Error::Transaction("none"))?;
            let mut cursor = db.cursor(view, tree)?;
            let there = seek(db, &mut cursor, key)? == Seek::Exact;
            if there {
                db.delete_at(&mut cursor)?;
            }
            Ok(there)
        }
    }
}

/// Deletes some neighbors through one cursor.
fn delete_run(db: &mut Db, tree: TreeId, map: &mut Map, random: &mut Random) -> Result<()> {
    let view = db.write_version().ok_or(Error::Transaction("none"))?;
    let mut cursor = db.cursor(view, tree)?;
    let Some(first) = map
        .keys()
        .nth(random.below(map.len() as u64) as usize)
        .cloned()
    else {
        assert!(!cursor.first(db)?);
        return Ok(());
    };
    assert_eq!(seek(db, &mut cursor, &first)?, Seek::Exact);
    let mut key = first;
    for _ in 0..run_length(random) {
        db.delete_at(&mut cursor)?;
        map.remove(&key);
        let next = map.range(key.clone()..).next().map(|e| e.0.clone());
        let moved = if cursor.kind() == TreeKind::Custom {
            assert!(cursor.is_stale(db) && matches!(cursor.next(db), Err(Error::CursorStale)));
            match seek(db, &mut cursor, &key)? {
                Seek::Larger => true,
                Seek::Smaller => cursor.next(db)?,
                Seek::Exact | Seek::Empty => false,
            }
        } else {
            cursor.next(db)?
        };
        assert_eq!(moved, next.is_some(), "after a deletion in tree {}", tree.0);
        let Some(next) = next else { return Ok(()) };
        assert_eq!(entry(db, &cursor)?.0, next);
        key = next;
    }
    Ok(())
}

/// A snapshot and the content that it must show.
pub struct Seen {
    pub snapshot: Snapshot,
    pub model: Model,
    /// Cursors of its view, once it has been probed.
    pub cursors: BTreeMap<u32, Cursor>,
}

impl Seen {
    pub fn new(snapshot: Snapshot, model: Model) -> Seen {
        Seen {
            snapshot,
            model,
            cursors: BTreeMap::new(),
        }
    }
}

/// One write transaction with savepoints. Returns the content that it would commit; the transaction
/// is still open.
pub fn transaction(
    db: &mut Db,
    base: &Model,
    random: &mut Random,
    range: u64,
    operations: &mut u64,
) -> Result<Model> {
    let mut model = base.clone();
    db.begin_write()?;
    let mut savepoints: Vec<Model> = Vec::new();
    let length = *random.pick(&[1, 1, 1, 2, 3, 8, 20, 60]);
    for _ in 0..length {
        change(db, &mut model, random, range)?;
        *operations += 1;
        if random.chance(6) {
            assert_eq!(db.savepoint()?, savepoints.len());
            savepoints.push(model.clone());
        }
        if !savepoints.is_empty() && random.chance(8) {
            let to = random.below(savepoints.len() as u64) as usize;
            if random.chance(60) {
                db.rollback_to(to)?;
                savepoints.truncate(to + 1);
                model = savepoints[to].clone();
            } else {
                db.release(to)?;
                savepoints.truncate(to);
            }
            assert_eq!(db.savepoints(), savepoints.len());
        }
    }
    Ok(model)
}

/// A write transaction that changes one row which is there. `None` if there is none, and no transaction.
pub fn small_transaction(db: &mut Db, base: &Model, random: &mut Random) -> Result<Option<Model>> {
    let mut model = base.clone();
    let rows: Vec<u32> = model
        .trees
        .iter()
        .filter(|(_, (kind, map))| *kind < 2 && !map.is_empty())
        .map(|(tree, _)| *tree)
        .collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let tree = *random.pick(&rows);
    let Some((kind, map)) = model.trees.get_mut(&tree) else {
        return Ok(None);
    };
    let at = random.below(map.len() as u64) as usize;
    let Some(key) = map.keys().nth(at).cloned() else {
        return Ok(None);
    };
    let value = vec![random.below(256) as u8; random.below(60) as usize];
    db.begin_write()?;
    put(db, TreeId(tree), *kind, &key, &value)?;
    Rc::make_mut(map).insert(key, value);
    Ok(Some(model))
}

pub fn durability(random: &mut Random, flush: u64) -> Durability {
    if random.chance(flush) {
        Durability::Flush
    } else {
        Durability::Later
    }
}
