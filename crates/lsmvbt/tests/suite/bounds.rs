//! A vacuum goes in steps: each transaction is small, others write in between, and one that waits loses
//! nothing.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use lsmvbt::{
    AtomicWrites, Db, Durability, Error, Held, Lock, LockMode, MemoryFile, Options, PAGE_SIZE,
    Result, Storage, Torn, TreeId, TreeKind, Vacuum, Vacuumed,
};

use crate::drive::{Model, options, random_options, read_all, transaction};
use crate::random::{Random, Seed, seeds};

const TORN: [Torn; 2] = [Torn::Trust, Torn::Double];

/// The work of a handle while it holds the writer's lock.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    reads: usize,
    writes: usize,
}

#[derive(Debug, Default)]
struct Seen {
    now: Work,
    most: Work,
    transactions: u32,
    /// Every second attempt finds the lock taken.
    refuses: bool,
    refused: u32,
}

/// Counts the pages of each time that a handle holds the writer's lock.
#[derive(Clone, Default)]
struct Watch(Arc<Mutex<Seen>>);

impl Watch {
    fn storage(&self, file: &MemoryFile) -> Box<dyn Storage> {
        let (inner, watch) = (file.storage(), self.clone());
        Box::new(Watched { inner, watch })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Seen) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Watched {
    inner: Box<dyn Storage>,
    watch: Watch,
}

impl Storage for Watched {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.watch
            .with(|seen| seen.now.reads += buf.len() / PAGE_SIZE);
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.watch
            .with(|seen| seen.now.writes += data.len() / PAGE_SIZE);
        self.inner.write_at(offset, data)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.inner.truncate(size)
    }

    fn size(&self) -> io::Result<u64> {
        self.inner.size()
    }

    fn atomic_writes(&self) -> AtomicWrites {
        self.inner.atomic_writes()
    }

    fn lock(&self, lock: Lock, mode: LockMode) -> io::Result<bool> {
        let refused = lock == Lock::WRITE
            && self.watch.with(|seen| {
                seen.now = Work::default();
                let refused = seen.refuses && seen.refused <= seen.transactions;
                seen.refused += u32::from(refused);
                refused
            });
        Ok(!refused && self.inner.lock(lock, mode)?)
    }

    fn unlock(&self, lock: Lock, mode: LockMode) -> io::Result<()> {
        if lock == Lock::WRITE {
            self.watch.with(|seen| {
                seen.transactions += 1;
                seen.most.reads = seen.most.reads.max(seen.now.reads);
                seen.most.writes = seen.most.writes.max(seen.now.writes);
            });
        }
        self.inner.unlock(lock, mode)
    }

    fn shm_load(&self, word: usize) -> io::Result<u64> {
        self.inner.shm_load(word)
    }

    fn shm_store(&self, word: usize, value: u64) -> io::Result<()> {
        self.inner.shm_store(word, value)
    }

    fn shm_max(&self, word: usize, value: u64) -> io::Result<()> {
        self.inner.shm_max(word, value)
    }

    fn shm_min(&self, word: usize, value: u64) -> io::Result<()> {
        self.inner.shm_min(word, value)
    }
}

fn change(db: &mut Db, change: impl FnOnce(&mut Db)) {
    db.begin_write().expect("a transaction");
    change(db);
    db.commit(Durability::Flush).expect("committed");
}

fn open(file: &MemoryFile, torn: Torn) -> Db {
    Db::open(file.storage(), options(torn)).expect("a database")
}

fn tree(db: &mut Db) -> TreeId {
    let mut tree = TreeId(0);
    change(db, |db| {
        tree = db.create_tree(TreeKind::Integer).expect("a tree");
    });
    tree
}

fn fill(db: &mut Db, tree: TreeId, rows: std::ops::Range<i64>, size: usize) {
    let keys: Vec<i64> = rows.collect();
    for part in keys.chunks(500) {
        change(db, |db| {
            for key in part {
                let value = vec![*key as u8; size];
                db.put_integer(tree, *key, &value).expect("a row");
            }
        });
    }
}

fn content(db: &mut Db) -> Model {
    assert_eq!(db.check().expect("checked"), Vec::<String>::new());
    let view = db.snapshot().expect("a snapshot");
    let content = read_all(db, view.version()).expect("read");
    drop(view);
    db.release_dropped().expect("released");
    content
}

fn pages(file: &MemoryFile) -> usize {
    file.bytes().len() / PAGE_SIZE
}

/// A vacuum by a handle with a small cache. Returns its work.
fn watched(file: &MemoryFile, torn: Torn) -> (Seen, Vacuumed) {
    let watch = Watch::default();
    let few = Options {
        cache_pages: 100,
        ..options(torn)
    };
    let mut db = Db::open(watch.storage(file), few).expect("a database");
    let done = db.vacuum().expect("vacuumed");
    db.close().expect("closed");
    let seen = watch.with(std::mem::take);
    println!("{torn:?}: {seen:?}, {done:?}, {} pages", pages(file));
    (seen, done)
}

/// 512 pages looked at, some of them twice, and the children of the last node; 256 written, or in two
/// places with `Double`.
fn is_small(seen: &Seen) -> bool {
    seen.most.reads <= 1200 && seen.most.writes <= 400
}

/// Found by reading: a sweep that finds nothing to pack read all leaves in one transaction, and the walk
/// all pages.
#[test]
fn no_transaction_of_a_vacuum_reads_much() {
    for torn in TORN {
        let file = MemoryFile::new();
        let mut db = open(&file, torn);
        let (gone, stays) = (tree(&mut db), tree(&mut db));
        fill(&mut db, gone, 0..400, 3000);
        fill(&mut db, stays, 0..12_000, 950);
        change(&mut db, |db| db.drop_tree(gone).expect("dropped"));
        let before = content(&mut db);
        db.close().expect("closed");
        let was = pages(&file);
        let (seen, done) = watched(&file, torn);
        assert!(is_small(&seen), "{seen:?}");
        assert!(done.given_back > 250 && was > 3000, "{done:?} of {was}");
        assert_eq!(content(&mut open(&file, torn)), before);
    }
}

/// Found by reading: the roots at the end of the file moved in one transaction.
#[test]
fn many_small_trees_move_in_many_transactions() {
    for torn in TORN {
        let file = MemoryFile::new();
        let mut db = open(&file, torn);
        let gone = tree(&mut db);
        fill(&mut db, gone, 0..1600, 3000);
        for _ in 0..20 {
            change(&mut db, |db| {
                for _ in 0..75 {
                    let tree = db.create_tree(TreeKind::Integer).expect("a tree");
                    db.put_integer(tree, 1, b"one").expect("a row");
                }
            });
        }
        change(&mut db, |db| db.drop_tree(gone).expect("dropped"));
        let before = content(&mut db);
        db.close().expect("closed");
        let was = pages(&file);
        let (seen, done) = watched(&file, torn);
        assert!(is_small(&seen), "{seen:?}");
        assert!(done.given_back as usize * 10 > was * 4, "{done:?} of {was}");
        assert_eq!(content(&mut open(&file, torn)), before);
    }
}

/// Long values at the end of the file, many in a leaf: one transaction reads and writes some of them.
#[test]
fn long_values_move_in_many_transactions() {
    for torn in TORN {
        let file = MemoryFile::new();
        let mut db = open(&file, torn);
        let (gone, stays) = (tree(&mut db), tree(&mut db));
        fill(&mut db, gone, 0..1500, 3000);
        fill(&mut db, stays, 0..80, 60_000);
        change(&mut db, |db| db.drop_tree(gone).expect("dropped"));
        let before = content(&mut db);
        db.close().expect("closed");
        let was = pages(&file);
        let (seen, done) = watched(&file, torn);
        assert!(is_small(&seen), "{seen:?}");
        assert!(done.given_back as usize * 10 > was * 4, "{done:?} of {was}");
        assert_eq!(content(&mut open(&file, torn)), before);
    }
}

/// The steps of a vacuum, of which every second finds the writer's lock taken.
fn patient(db: &mut Db, mut vacuum: Vacuum) -> Result<(Vacuumed, u32)> {
    let mut busy = 0;
    loop {
        match db.vacuum_step(&mut vacuum) {
            Ok(Some(done)) => return Ok((done, busy)),
            Ok(None) => {}
            Err(Error::Busy) => busy += 1,
            Err(e) => return Err(e),
        }
        assert!(busy < 10_000, "it does not end");
    }
}

/// Found by reading: the first `Busy` ended a vacuum before the file was cut.
#[test]
fn a_vacuum_goes_on_after_each_step_that_had_to_wait() {
    for torn in TORN {
        let lengths = [false, true].map(|refuses| {
            let file = MemoryFile::new();
            let watch = Watch::default();
            let mut db = Db::open(watch.storage(&file), options(torn)).expect("a database");
            let tree = tree(&mut db);
            fill(&mut db, tree, 0..3000, 900);
            change(&mut db, |db| {
                for key in (0..3000).filter(|key| key % 10 > 0) {
                    db.delete_integer(tree, key).expect("deleted");
                }
            });
            let before = content(&mut db);
            watch.with(|seen| (seen.refuses, seen.refused) = (refuses, seen.transactions));
            let (done, busy) = patient(&mut db, Vacuum::all()).expect("vacuumed");
            watch.with(|seen| seen.refuses = false);
            assert_eq!((done.held, busy > 5), (None, refuses), "{busy}");
            assert_eq!(content(&mut db), before);
            pages(&file)
        });
        assert_eq!(lengths[0], lengths[1]);
        assert!(lengths[0] < 250, "{lengths:?}");
    }
}

/// Handles change trees of all kinds between the steps of two vacuums, free the pages that a sweep has
/// seen, use them again, and make the file longer and shorter. Readers come and go.
#[test]
fn others_write_between_the_steps_of_a_vacuum() {
    let mut given = 0;
    for seed in seeds(40) {
        let _told = Seed("bounds", seed);
        let mut random = Random::new(seed);
        let torn = *random.pick(&TORN);
        let file = MemoryFile::new();
        let mut handles: Vec<Db> = (0..2)
            .map(|_| {
                let options = random_options(&mut random, torn);
                Db::open(file.storage(), options).expect("a database")
            })
            .collect();
        let (mut model, mut vacuums) = (Model::default(), [None, None]);
        for _ in 0..150 {
            let at = random.below(2) as usize;
            if random.chance(35) {
                let db = &mut handles[at];
                model = transaction(db, &model, &mut random, 300, &mut 0).expect("changed");
                let durability = *random.pick(&[Durability::Flush, Durability::Later]);
                db.commit(durability).expect("committed");
            }
            let part = random.chance(40);
            let pages = random.below(60) as u32;
            let vacuum = vacuums[at].get_or_insert_with(|| match part {
                true => Vacuum::part(pages),
                false => Vacuum::all(),
            });
            let reader = match random.chance(4) {
                true => Some(handles[1 - at].snapshot().expect("a snapshot")),
                false => None,
            };
            let step = handles[at].vacuum_step(vacuum).expect("a step");
            if let Some(done) = step {
                given += done.given_back;
                assert!(matches!(done.held, None | Some(Held::Reader(_))));
                vacuums[at] = None;
            } else if random.chance(2) {
                vacuums[at] = None;
            }
            if let Some(reader) = &reader {
                let db = &mut handles[1 - at];
                assert_eq!(read_all(db, reader.version()).expect("read"), model);
            }
            if random.chance(10) {
                for db in &mut handles {
                    assert_eq!(content(db), model);
                }
            }
        }
        for db in &mut handles {
            db.release_dropped().expect("released");
        }
        let db = &mut handles[0];
        db.vacuum().expect("vacuumed");
        assert_eq!(db.reclaim().expect("reclaimed"), 0);
        for db in &mut handles {
            assert_eq!(content(db), model);
        }
    }
    assert!(given > 1000, "{given}");
}

/// Found by a review: a tree that others clear between all steps left pages to collect in each of them.
#[test]
fn a_vacuum_ends_next_to_a_handle_that_clears_a_tree() {
    for torn in TORN {
        for most in [None, Some(20)] {
            let file = MemoryFile::new();
            let (mut a, mut b) = (open(&file, torn), open(&file, torn));
            let (stays, queue) = (tree(&mut b), tree(&mut b));
            fill(&mut b, stays, 0..2000, 900);
            change(&mut b, |db| {
                for key in 0..1900 {
                    db.delete_integer(stays, key).expect("deleted");
                }
            });
            let mut vacuum = most.map_or_else(Vacuum::all, Vacuum::part);
            let mut steps = 0;
            while a.vacuum_step(&mut vacuum).expect("a step").is_none() {
                change(&mut b, |db| {
                    db.clear_tree(queue).expect("cleared");
                    db.put_integer(queue, 1, b"job").expect("a row");
                });
                steps += 1;
                assert!(steps < 500, "{torn:?}, {most:?}: it does not end");
            }
            println!("{torn:?}, {most:?}: {steps} steps, {} pages", pages(&file));
            assert_eq!(content(&mut a).trees.len(), 2);
        }
    }
}

/// Found by a review: where others had made the file shorter meanwhile, the end of a part was behind the
/// file's. The file then ended there, and the pages up to it were lost.
#[test]
fn a_part_does_not_make_the_file_longer() {
    for torn in TORN {
        let file = MemoryFile::new();
        let few = Options {
            cache_pages: 50,
            ..options(torn)
        };
        let mut a = open(&file, torn);
        let mut b = Db::open(file.storage(), few).expect("a database");
        let tree = tree(&mut b);
        fill(&mut b, tree, 0..2000, 1900);
        change(&mut b, |db| {
            for key in (0..2000).filter(|key| key % 200 < 195) {
                db.delete_integer(tree, key).expect("deleted");
            }
        });
        let mut part = Vacuum::part(1);
        assert_eq!(a.vacuum_step(&mut part).expect("a step"), None);
        b.vacuum().expect("vacuumed");
        // The file becomes longer than its last page.
        b.begin_write().expect("a transaction");
        for key in 0..2400 {
            let value = [2; 1900];
            b.put_integer(tree, 10_000 + key, &value).expect("a row");
        }
        b.rollback().expect("rolled back");
        fill(&mut b, tree, 1..2, 1);
        let before = b.status().expect("a status").pages;
        while a.vacuum_step(&mut part).expect("a step").is_none() {}
        let after = a.status().expect("a status").pages;
        assert!(after <= before, "{torn:?}: {before} pages, then {after}");
        assert_eq!(content(&mut a), content(&mut b));
    }
}

/// The pages written for so many transactions of `rows` long rows, each followed by a part of a vacuum.
fn with_parts(rows: i64, parts: bool) -> (u64, u64, u64) {
    let file = MemoryFile::new();
    let mut db = open(&file, Torn::Double);
    let tree = tree(&mut db);
    fill(&mut db, tree, 0..2000, 3000);
    fill(&mut db, tree, 0..rows, 2000);
    let before = db.stats();
    for round in 0..20 {
        change(&mut db, |db| {
            for key in 0..rows {
                let value = vec![round; 2000];
                db.put_integer(tree, key, &value).expect("a row");
            }
            db.delete_integer(tree, 1999 - i64::from(round))
                .expect("deleted");
        });
        if parts {
            db.vacuum_part(1).expect("vacuumed");
        }
    }
    let now = db.stats();
    (
        now.flushes - before.flushes,
        now.header_pages_written - before.header_pages_written,
        pages(&file) as u64,
    )
}

/// Found by reading: each part made the slots as small as they can be, and the next commit made them large
/// again.
#[test]
fn a_part_of_a_vacuum_leaves_slots_before_its_end_as_they_are() {
    let (alone, parts) = (with_parts(100, false), with_parts(100, true));
    println!("flushes, header pages, pages: {alone:?} and {parts:?}");
    assert!(parts.0 <= alone.0 + 20 * 4 && parts.1 <= alone.1 + 20 * 2);
}
