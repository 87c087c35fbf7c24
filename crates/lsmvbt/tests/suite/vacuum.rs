//! Giving space back: nothing that anybody needs goes, whenever it stops, and the file ends small.

use std::io::ErrorKind;

use lsmvbt::{
    Caching, Db, DirectFile, Durability, Error, Held, MemoryFile, Options, PAGE_SIZE, PowerCut,
    Torn, TreeId, TreeKind,
};

use crate::drive::{ByLength, Model, options, read_all, transaction};
use crate::random::{Random, Seed, number, seeds};

const TORN: [Torn; 2] = [Torn::Trust, Torn::Double];

fn open(file: &MemoryFile, torn: Torn) -> Db {
    Db::open(file.storage(), options(torn)).expect("a database")
}

fn change(db: &mut Db, change: impl FnOnce(&mut Db)) {
    db.begin_write().expect("a transaction");
    change(db);
    db.commit(Durability::Flush).expect("committed");
}

/// The whole content of the newest version, which is sound.
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

const KINDS: [TreeKind; 3] = [TreeKind::Integer, TreeKind::Bytes, TreeKind::Custom];

fn size_of(key: u32) -> usize {
    match key % 40 {
        0 => 9000,
        1 => 1250,
        n => 20 + 11 * n as usize,
    }
}

fn key_of(key: u32) -> Vec<u8> {
    let long = if key % 97 == 3 { 2000 } else { 30 };
    let mut bytes = key.to_be_bytes().to_vec();
    bytes.resize(long, 7);
    bytes
}

fn put(db: &mut Db, tree: TreeId, kind: TreeKind, key: u32) {
    let value = vec![key as u8; size_of(key)];
    match kind {
        TreeKind::Integer => db.put_integer(tree, i64::from(key), &value),
        TreeKind::Bytes => db.put(tree, &key_of(key), &value),
        TreeKind::Custom => {
            let key = key_of(key);
            db.put_custom(tree, &key, &mut ByLength(&key))
        }
    }
    .expect("a row");
}

fn delete(db: &mut Db, tree: TreeId, kind: TreeKind, key: u32) {
    match kind {
        TreeKind::Integer => db.delete_integer(tree, i64::from(key)).map(drop),
        TreeKind::Bytes => db.delete(tree, &key_of(key)).map(drop),
        TreeKind::Custom => {
            let view = db.write_version().expect("a transaction");
            let mut cursor = db.cursor(view, tree).expect("a cursor");
            let key = key_of(key);
            cursor.seek_with(db, &mut ByLength(&key)).expect("found");
            db.delete_at(&mut cursor)
        }
    }
    .expect("deleted");
}

/// Trees of all kinds with these rows, written in order.
fn filled(file: &MemoryFile, torn: Torn, keys: &[u32]) -> (Db, Vec<TreeId>) {
    let mut db = open(file, torn);
    let mut trees = Vec::new();
    change(&mut db, |db| {
        for kind in KINDS {
            trees.push(db.create_tree(kind).expect("a tree"));
        }
    });
    for part in keys.chunks(200) {
        change(&mut db, |db| {
            for key in part {
                for (tree, kind) in trees.iter().zip(KINDS) {
                    put(db, *tree, kind, *key);
                }
            }
        });
    }
    (db, trees)
}

/// Deletes nine of ten rows: all but the last ones, all but each tenth, or at random.
fn thinned(file: &MemoryFile, torn: Torn, rows: u32, how: u32) -> (Db, Vec<u32>) {
    let all: Vec<u32> = (0..rows).collect();
    let (mut db, trees) = filled(file, torn, &all);
    let mut random = Random::new(u64::from(how));
    let stays: Vec<bool> = all
        .iter()
        .map(|key| match how {
            0 => *key >= rows - rows / 10,
            1 => key % 10 == 3,
            _ => random.below(10) == 0,
        })
        .collect();
    let gone: Vec<u32> = all
        .iter()
        .copied()
        .filter(|key| !stays[*key as usize])
        .collect();
    for part in gone.chunks(100) {
        change(&mut db, |db| {
            for key in part {
                for (tree, kind) in trees.iter().zip(KINDS) {
                    delete(db, *tree, kind, *key);
                }
            }
        });
    }
    let left = all.into_iter().filter(|key| stays[*key as usize]).collect();
    (db, left)
}

/// The live data are a new database of the same rows, written in order, and with `Double` the smallest
/// slots.
#[test]
fn a_vacuum_leaves_little_more_than_the_live_data() {
    for torn in TORN {
        for how in 0..3 {
            let file = MemoryFile::new();
            let (mut db, left) = thinned(&file, torn, 6000, how);
            let (before, was) = (content(&mut db), pages(&file));
            let done = db.vacuum().expect("vacuumed");
            assert_eq!(done.held, None);
            assert_eq!(content(&mut db), before);
            let fresh = MemoryFile::new();
            filled(&fresh, Torn::Trust, &left)
                .0
                .close()
                .expect("closed");
            let slots = if torn == Torn::Double { 2 * 16 } else { 0 };
            let (now, live) = (pages(&file), pages(&fresh) + slots);
            println!("{torn:?} {how}: {was} pages became {now}, live are {live}");
            assert!(now * 10 <= live * 13, "{now} pages, live are {live}");
            assert_eq!(db.status().expect("a status").pages as usize, now);
            assert_eq!(db.reclaim().expect("reclaimed"), 0);
            // Little is left to do.
            let more = db.vacuum().expect("vacuumed").given_back as usize;
            assert!(more * 8 <= now, "{more} more of {now}");
            assert_eq!(content(&mut db), before);
            db.close().expect("closed");
            let mut db = open(&file, torn);
            assert_eq!(content(&mut db), before);
            change(&mut db, |db| put(db, TreeId(1), TreeKind::Integer, 1));
            assert_eq!(db.check().expect("checked"), Vec::<String>::new());
        }
    }
}

#[test]
fn a_part_of_a_vacuum_makes_the_file_shorter_by_as_many_pages() {
    const PART: u32 = 40;
    for torn in TORN {
        let file = MemoryFile::new();
        let (mut db, _) = thinned(&file, torn, 3000, 0);
        let before = content(&mut db);
        db.vacuum_part(0).expect("collected");
        let mut last = db.pages().expect("pages");
        let (begin, mut full) = (last, 0);
        loop {
            db.vacuum_part(PART).expect("given back");
            let now = db.pages().expect("pages");
            assert!(now <= last && last - now <= PART, "{last} to {now}");
            full += u32::from(last - now == PART);
            if now == last {
                break;
            }
            last = now;
        }
        println!("{torn:?}: {begin} pages became {last}");
        assert!(
            full > 4 && last < begin / 2,
            "{full} times, {begin} to {last}"
        );
        assert_eq!(pages(&file), last as usize);
        assert_eq!(content(&mut db), before);
        assert_eq!(db.reclaim().expect("reclaimed"), 0);
    }
}

/// A database with free pages, sparse ones and long values near its end, as a kill leaves it.
fn to_cut(torn: Torn) -> (Vec<u8>, Model) {
    let file = MemoryFile::new();
    let (mut db, _) = thinned(&file, torn, 600, 1);
    let model = content(&mut db);
    file.kill_all();
    db.abandon();
    (file.bytes(), model)
}

/// Dies at each step in turn, and finds all of it after a kill and after power cuts.
#[test]
fn whenever_a_vacuum_dies_nothing_is_lost() {
    let every = 5 / number("LSMVBT_SCALE").unwrap_or(1).clamp(1, 5);
    for torn in TORN {
        let (bytes, model) = to_cut(torn);
        let mut sizes = Vec::new();
        for (steps, seed) in (1..).step_by(every as usize).zip(1..) {
            let _told = Seed("vacuum", seed);
            let file = MemoryFile::new();
            file.set_bytes(&bytes);
            let mut random = Random::new(seed);
            let mut db = open(&file, torn);
            file.kill_after(Some(steps));
            let died = db.vacuum().is_err();
            file.kill_after(None);
            db.abandon();
            let cut = match torn {
                Torn::Double => PowerCut::Torn,
                _ => PowerCut::Atomic,
            };
            match seed % 4 {
                0 => file.kill_all(),
                // Nothing is kept, or all.
                1 => file.power_cut(cut, &mut |_| 0),
                2 => file.power_cut(cut, &mut |n| if n == 101 { 100 } else { n - 1 }),
                _ => file.power_cut(cut, &mut |n| random.below(n)),
            }
            let mut db = open(&file, torn);
            assert_eq!(content(&mut db), model, "step {steps}");
            db.vacuum().expect("vacuumed");
            assert_eq!(content(&mut db), model, "step {steps}");
            assert_eq!(db.reclaim().expect("reclaimed"), 0, "step {steps}");
            sizes.push(pages(&file));
            if !died {
                println!("{torn:?}: {steps} steps");
                break;
            }
        }
        let (least, most) = (sizes.iter().min(), sizes.iter().max());
        println!(
            "{torn:?}: {} pages became {least:?} to {most:?}",
            bytes.len() / PAGE_SIZE
        );
        assert!(most.is_some_and(|most| most * 2 < bytes.len() / PAGE_SIZE));
    }
}

#[test]
fn a_reader_keeps_what_it_needs_and_is_named() {
    for torn in TORN {
        let file = MemoryFile::new();
        let (mut db, left) = thinned(&file, torn, 1500, 2);
        let mut reader = open(&file, torn);
        let view = reader.snapshot().expect("a snapshot");
        let before = read_all(&mut reader, view.version()).expect("read");
        change(&mut db, |db| {
            for key in &left[..20] {
                delete(db, TreeId(1), TreeKind::Integer, *key);
            }
        });
        let (now, size) = (content(&mut db), pages(&file));
        for _ in 0..2 {
            let done = db.vacuum().expect("vacuumed");
            assert_eq!(done.held, Some(Held::Reader(view.version())));
            let done = db.vacuum_part(u32::MAX).expect("vacuumed");
            assert_eq!(done.held, Some(Held::Reader(view.version())));
            assert_eq!(read_all(&mut reader, view.version()).expect("read"), before);
            assert_eq!(content(&mut db), now);
        }
        drop(view);
        reader.release_dropped().expect("released");
        assert_eq!(db.vacuum().expect("vacuumed").held, None);
        assert!(pages(&file) * 3 < size, "{size} to {}", pages(&file));
        assert_eq!(content(&mut reader), now);
    }
}

/// A reader of the newest version comes before the vacuum, or while it moves pages.
#[test]
fn a_snapshot_of_the_newest_version_stays_whole() {
    for torn in TORN {
        let file = MemoryFile::new();
        let (mut db, _) = thinned(&file, torn, 1500, 0);
        let mut reader = open(&file, torn);
        let view = reader.snapshot().expect("a snapshot");
        let before = read_all(&mut reader, view.version()).expect("read");
        let size = pages(&file);
        db.vacuum_part(100).expect("given back");
        for _ in 0..30 {
            change(&mut db, |db| put(db, TreeId(1), TreeKind::Integer, 9999));
        }
        assert_eq!(read_all(&mut reader, view.version()).expect("read"), before);
        assert!(pages(&file) >= size - 100);
        drop(view);
        reader.release_dropped().expect("released");
        db.vacuum().expect("vacuumed");
        assert!(pages(&file) * 3 < size);
        content(&mut reader);
    }
}

#[test]
fn a_history_keeps_all_but_the_free_end() {
    let file = MemoryFile::new();
    let (mut db, _) = thinned(&file, Torn::Trust, 600, 0);
    db.set_history(1000).expect("set");
    let old = db.current_version().expect("a version");
    let view = db.snapshot().expect("a snapshot");
    let before = read_all(&mut db, view.version()).expect("read");
    drop(view);
    change(&mut db, |db| db.clear_tree(TreeId(2)).expect("cleared"));
    let done = db.vacuum().expect("vacuumed");
    assert_eq!(done.held, Some(Held::History));
    let view = db.snapshot_at(old).expect("kept");
    assert_eq!(read_all(&mut db, view.version()).expect("read"), before);
    drop(view);
    db.set_history(0).expect("set");
    assert_eq!(db.vacuum().expect("vacuumed").held, None);
}

/// Two handles, one of which may see the pages of before, and the file grows again where it was cut.
#[test]
fn handles_that_take_turns_agree() {
    for seed in seeds(12) {
        let _told = Seed("vacuum", seed);
        let mut random = Random::new(seed);
        let torn = *random.pick(&TORN);
        let file = MemoryFile::new();
        let mut handles = [open(&file, torn), open(&file, torn)];
        let mut model = Model::default();
        let mut given = 0;
        for _ in 0..60 {
            let db = &mut handles[random.below(2) as usize];
            model = transaction(db, &model, &mut random, 300, &mut 0).expect("changed");
            db.commit(Durability::Flush).expect("committed");
            let db = &mut handles[random.below(2) as usize];
            if random.chance(20) {
                given += db.vacuum().expect("vacuumed").given_back;
            }
            if random.chance(20) {
                let part = random.below(60) as u32;
                given += db.vacuum_part(part).expect("vacuumed").given_back;
            }
            for db in &mut handles {
                assert_eq!(content(db), model);
            }
        }
        assert!(given > 0);
    }
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::StorageFull)
}

/// No room to grow, none for a header, or none to cut: all that is there stays, and the next call does
/// the rest.
#[test]
fn a_full_disk_loses_nothing() {
    for torn in TORN {
        for what in 0..5 {
            let file = MemoryFile::new();
            let (mut db, _) = thinned(&file, torn, 1500, 1);
            let (before, size) = (content(&mut db), pages(&file));
            match what {
                0 => file.limit(Some((size * PAGE_SIZE) as u64)),
                1 => file.refuse_truncates(true),
                2 => file.refuse_writes_of(Some(0..2)),
                3 => file.refuse_writes_of(Some(4..6)),
                _ => file.refuse_writes_of(Some(20..30)),
            }
            let done = db.vacuum();
            println!(
                "{torn:?} {what}: {done:?}, {} pages of {size}",
                pages(&file)
            );
            if let Err(error) = &done {
                let ended = what == 4 && matches!(error, Error::Poisoned);
                assert!(is_full(error) || ended, "{error}");
            }
            file.limit(None);
            file.refuse_truncates(false);
            file.refuse_writes_of(None);
            // A failed write of a page in place ends all handles, as in any commit.
            let poisoned = matches!(db.begin_write(), Err(Error::Poisoned));
            if poisoned {
                assert!(what > 1, "{what}");
                drop(db);
                db = open(&file, torn);
            } else {
                db.rollback().expect("rolled back");
            }
            assert_eq!(content(&mut db), before);
            db.vacuum().expect("vacuumed");
            assert_eq!(content(&mut db), before);
            assert!(pages(&file) * 2 < size, "{size} to {}", pages(&file));
        }
    }
}

/// The end lies in another span of the free map afterwards, and the file grows into it again.
#[test]
fn a_file_leaves_a_span_of_the_free_map_and_comes_back() {
    const ROWS: i64 = 8;
    const SIZE: usize = 16_600_000;
    let file = MemoryFile::new();
    let mut db = open(&file, Torn::Trust);
    let fill = |db: &mut Db, byte: u8| {
        let mut tree = TreeId(0);
        change(db, |db| {
            tree = db.create_tree(TreeKind::Integer).expect("a tree");
            for key in 0..ROWS {
                db.put_integer(tree, key, &vec![byte; SIZE]).expect("a row");
            }
        });
        tree
    };
    let small = {
        let mut tree = TreeId(0);
        change(&mut db, |db| {
            tree = db.create_tree(TreeKind::Integer).expect("a tree");
        });
        tree
    };
    for byte in [1, 2] {
        let large = fill(&mut db, byte);
        change(&mut db, |db| {
            db.put_integer(small, 1, &[byte; 5000]).expect("a row")
        });
        assert!(db.pages().expect("pages") > 32_256);
        change(&mut db, |db| db.drop_tree(large).expect("dropped"));
        db.vacuum().expect("vacuumed");
        assert!(pages(&file) < 200, "{}", pages(&file));
        assert_eq!(db.check().expect("checked"), Vec::<String>::new());
        db.close().expect("closed");
        db = open(&file, Torn::Trust);
        let view = db.snapshot().expect("a snapshot");
        let found = db.get_integer(view.version(), small, 1).expect("read");
        assert_eq!(found, Some(vec![byte; 5000]));
    }
}

/// After a large import the slots stand at the end.
#[test]
fn slots_at_the_end_move_nearer() {
    let file = MemoryFile::new();
    let mut db = open(&file, Torn::Double);
    let mut tree = TreeId(0);
    change(&mut db, |db| {
        tree = db.create_tree(TreeKind::Integer).expect("a tree");
        for key in 0..2000 {
            db.put_integer(tree, key, &[7; 3000]).expect("a row");
        }
    });
    change(&mut db, |db| {
        for key in 20..2000 {
            db.delete_integer(tree, key).expect("deleted");
        }
    });
    let (before, size) = (content(&mut db), pages(&file));
    db.vacuum().expect("vacuumed");
    println!("{size} pages became {}", pages(&file));
    assert!(pages(&file) < 120, "{}", pages(&file));
    file.power_cut(PowerCut::Torn, &mut |_| 0);
    db.abandon();
    assert_eq!(content(&mut open(&file, Torn::Double)), before);
}

#[test]
fn a_file_of_a_file_system_becomes_shorter() {
    for caching in [Caching::Direct, Caching::Buffered] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x");
        let open = || {
            let storage = DirectFile::open(&path, caching).expect("a file");
            Db::open(Box::new(storage), options(Torn::Trust)).expect("a database")
        };
        let mut db = open();
        let mut tree = TreeId(0);
        change(&mut db, |db| {
            tree = db.create_tree(TreeKind::Integer).expect("a tree");
            for key in 0..900 {
                db.put_integer(tree, key, &[7; 900]).expect("a row");
            }
        });
        change(&mut db, |db| {
            for key in 0..800 {
                db.delete_integer(tree, key).expect("deleted");
            }
        });
        let before = content(&mut db);
        db.vacuum().expect("vacuumed");
        let size = std::fs::metadata(&path).expect("the file").len();
        assert_eq!(
            size,
            u64::from(db.pages().expect("pages")) * PAGE_SIZE as u64
        );
        assert!(size < 60 * PAGE_SIZE as u64, "{size}");
        drop(db);
        assert_eq!(content(&mut open()), before);
    }
}

/// Found by reading: with a commit that was not flushed the old pages stayed.
#[test]
fn a_part_of_a_vacuum_needs_no_flush_of_its_commit() {
    let left = [Durability::Flush, Durability::Later].map(|durability| {
        let file = MemoryFile::new();
        let (mut db, _) = thinned(&file, Torn::Trust, 3000, 0);
        db.vacuum_part(0).expect("collected");
        db.begin_write().expect("a transaction");
        put(&mut db, TreeId(1), TreeKind::Integer, 2999);
        db.commit(durability).expect("committed");
        db.vacuum_part(40).expect("given back");
        db.pages().expect("pages")
    });
    assert_eq!(left[0], left[1]);
}

/// Found by reading: all leaves that the transaction left were dirty at once, and went through one slot.
#[test]
fn what_a_large_transaction_left_is_collected_in_rounds() {
    let file = MemoryFile::new();
    let few = Options {
        cache_pages: 100,
        ..options(Torn::Double)
    };
    let mut db = Db::open(file.storage(), few).expect("a database");
    let mut tree = TreeId(0);
    change(&mut db, |db| {
        tree = db.create_tree(TreeKind::Integer).expect("a tree");
    });
    for part in 0..60 {
        change(&mut db, |db| {
            for key in part * 50..part * 50 + 50 {
                db.put_integer(tree, key, &[7; 5000]).expect("a row");
            }
        });
    }
    change(&mut db, |db| {
        for key in (0..3000).step_by(2) {
            db.delete_integer(tree, key).expect("deleted");
        }
    });
    file.limit(Some(file.bytes().len() as u64));
    db.vacuum_part(10).expect("given back");
    assert_eq!(db.check().expect("checked"), Vec::<String>::new());
}
