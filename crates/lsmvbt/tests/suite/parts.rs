//! Parts of long values: changed where they stand, with savepoints, rollbacks, spills and snapshots.

use lsmvbt::{Db, Durability, MemoryFile, Options, Torn, TreeId, TreeKind, Version};

use crate::drive::options;
use crate::random::{Random, Seed, seeds};

const TREE: TreeId = TreeId(1);
const PAGE: usize = 4096;

fn made(torn: Torn, cache_pages: usize) -> (MemoryFile, Db) {
    let file = MemoryFile::new();
    let options = Options {
        cache_pages,
        ..options(torn)
    };
    let mut db = Db::open(file.storage(), options).unwrap();
    db.begin_write().unwrap();
    assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
    db.commit(Durability::Flush).unwrap();
    (file, db)
}

fn overwrite(db: &mut Db, key: i64, offset: usize, data: &[u8]) {
    let view = db.write_version().unwrap();
    let mut cursor = db.cursor(view, TREE).unwrap();
    cursor.seek_integer(db, key).unwrap();
    db.overwrite_at(&cursor, offset as u32, data).unwrap();
}

fn value(db: &mut Db, view: Version, key: i64) -> Vec<u8> {
    db.get_integer(view, TREE, key).unwrap().unwrap()
}

/// Values of one row each, of any size, and their changes.
struct Run {
    db: Db,
    random: Random,
    values: Vec<Vec<u8>>,
}

impl Run {
    fn change(&mut self) {
        let key = self.random.below(self.values.len() as u64) as usize;
        if self.random.below(10) == 0 {
            let size = self.random.below(40_000) as usize;
            self.values[key] = vec![self.random.below(256) as u8; size];
            let new = &self.values[key];
            return self.db.put_integer(TREE, key as i64, new).unwrap();
        }
        let size = self.values[key].len() as u64;
        let offset = self.random.below(size + 1) as usize;
        let room = self.values[key].len() - offset;
        let most = 1 + self.random.below(3) * 5000;
        let length = room.min(self.random.below(most) as usize);
        let data = vec![self.random.below(256) as u8; length];
        self.values[key][offset..offset + length].copy_from_slice(&data);
        overwrite(&mut self.db, key as i64, offset, &data);
    }

    fn compare(&mut self, view: Version) {
        for key in 0..self.values.len() {
            let found = value(&mut self.db, view, key as i64);
            assert!(found == self.values[key], "row {key}");
        }
    }

    fn transaction(&mut self) {
        let before = self.values.clone();
        let old = self.db.snapshot().unwrap();
        self.db.begin_write().unwrap();
        for _ in 0..self.random.below(4) {
            let saved = self.values.clone();
            let savepoint = self.db.savepoint().unwrap();
            for _ in 0..self.random.below(8) {
                self.change();
            }
            if self.random.below(3) == 0 {
                self.db.rollback_to(savepoint).unwrap();
                self.values = saved;
            }
            let view = self.db.write_version().unwrap();
            self.compare(view);
        }
        let new = std::mem::replace(&mut self.values, before);
        self.compare(old.version());
        if self.random.below(4) == 0 {
            self.db.rollback().unwrap();
        } else {
            self.db.commit(Durability::Flush).unwrap();
            self.values = new;
        }
        let now = self.db.snapshot().unwrap();
        self.compare(now.version());
    }
}

#[test]
fn changed_parts_are_those_of_a_map_of_versions() {
    for torn in [Torn::Trust, Torn::Double] {
        for seed in seeds(4) {
            let _seed = Seed("parts", seed);
            // Few pages in memory, so that transactions spill.
            let (_file, mut db) = made(torn, 20);
            let values: Vec<Vec<u8>> = [0, 10, 1300, 1301, 5000, 30_000]
                .iter()
                .map(|size| vec![7; *size])
                .collect();
            db.begin_write().unwrap();
            for (key, value) in values.iter().enumerate() {
                db.put_integer(TREE, key as i64, value).unwrap();
            }
            db.commit(Durability::Flush).unwrap();
            let random = Random::new(seed);
            let mut run = Run { db, random, values };
            for _ in 0..60 {
                run.transaction();
            }
            assert_eq!(run.db.check().unwrap(), Vec::<String>::new());
        }
    }
}

/// A value of 4 MiB, written and read in order in pieces of a page, with 50 pages in memory.
#[test]
fn a_long_value_is_written_in_pieces_without_reading_all_of_it_for_each() {
    const PIECES: usize = 1024;
    let (_file, mut db) = made(Torn::Trust, 50);
    db.begin_write().unwrap();
    db.put_integer(TREE, 1, &vec![0; PIECES * PAGE]).unwrap();
    db.commit(Durability::Flush).unwrap();
    let read = |db: &Db| db.stats().pages_read;
    let before = read(&db);
    db.begin_write().unwrap();
    for piece in 0..PIECES {
        overwrite(&mut db, 1, piece * PAGE, &[piece as u8; PAGE]);
    }
    db.commit(Durability::Flush).unwrap();
    let written = read(&db) - before;
    let view = db.snapshot().unwrap();
    let mut cursor = db.cursor(view.version(), TREE).unwrap();
    cursor.seek_integer(&mut db, 1).unwrap();
    let before = read(&db);
    let mut piece = [0; PAGE];
    for number in 0..PIECES {
        let offset = (number * PAGE) as u32;
        cursor.read(&mut db, offset, &mut piece).unwrap();
        assert!(piece == [number as u8; PAGE], "{number}");
    }
    let read = read(&db) - before;
    println!("{PIECES} pieces of a page: {written} pages read to write them, {read} to read them");
    // The first piece copies the value. Then a piece is in two pages, found from the one before.
    assert!(written <= 5 * PIECES as u64 && read <= 4 * PIECES as u64);
    assert_eq!(db.check().unwrap(), Vec::<String>::new());
}

#[test]
fn a_part_past_the_end_is_refused_and_changes_nothing() {
    let (_file, mut db) = made(Torn::Trust, 50);
    db.begin_write().unwrap();
    db.put_integer(TREE, 1, &[1; 6000]).unwrap();
    for offset in [1, 6001, u32::MAX] {
        let view = db.write_version().unwrap();
        let mut cursor = db.cursor(view, TREE).unwrap();
        cursor.seek_integer(&mut db, 1).unwrap();
        db.overwrite_at(&cursor, offset, &[9; 6000]).unwrap_err();
    }
    db.commit(Durability::Flush).unwrap();
    let view = db.snapshot().unwrap();
    assert_eq!(value(&mut db, view.version(), 1), [1; 6000]);
}
