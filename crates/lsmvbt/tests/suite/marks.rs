//! The cost of marks, the pages that recovery reads, and commits whose header is lost.

use lsmvbt::{Db, Durability, MemoryFile, Options, PowerCut, Stats, Torn, TreeId, TreeKind};

use crate::drive::options;
use crate::hooks::Hook;
use crate::random::Random;

pub const TREE: TreeId = TreeId(1);
const COMMITS: i64 = 1000;

pub fn commit(db: &mut Db, key: i64, value: &[u8]) {
    db.begin_write().unwrap();
    db.put_integer(TREE, key, value).unwrap();
    db.commit(Durability::Flush).unwrap();
}

/// A closed database of this size, with room in its leaves, and its number of keys.
pub fn made(mebibytes: u64, torn: Torn) -> (MemoryFile, i64) {
    let file = MemoryFile::new();
    let mut db = Db::open(file.storage(), options(torn)).unwrap();
    db.begin_write().unwrap();
    assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
    let mut keys = 0;
    while u64::from(db.status().unwrap().pages) * 4096 < mebibytes << 20 {
        for _ in 0..100 {
            db.put_integer(TREE, keys, &[1; 500]).unwrap();
            keys += 1;
        }
        db.commit(Durability::Flush).unwrap();
        db.begin_write().unwrap();
    }
    for key in (0..keys).step_by(4) {
        db.delete_integer(TREE, key).unwrap();
        if key % 512 == 0 {
            db.commit(Durability::Flush).unwrap();
            db.begin_write().unwrap();
        }
    }
    db.commit(Durability::Flush).unwrap();
    db.close().unwrap();
    (file, keys)
}

/// The work of so many commits of a row each, without the first one after the open.
fn work(db: &mut Db, keys: i64, random: bool) -> Stats {
    let mut dice = Random::new(7);
    let mut next = keys;
    let mut key = || {
        next += 1;
        let picked = dice.below(keys as u64) as i64;
        if random {
            picked - picked % 4 + 1
        } else {
            next
        }
    };
    commit(db, key(), &[2; 500]);
    let before = db.stats();
    for _ in 0..COMMITS {
        commit(db, key(), &[2; 500]);
    }
    let after = db.stats();
    Stats {
        flushes: after.flushes - before.flushes,
        pages_written: after.pages_written - before.pages_written,
        header_pages_written: after.header_pages_written - before.header_pages_written,
        slot_pages_written: after.slot_pages_written - before.slot_pages_written,
        append_splits: after.append_splits - before.append_splits,
        lazy_splits: after.lazy_splits - before.lazy_splits,
        ..after
    }
}

/// One flush a commit. The slots that larger transactions have left become smaller once, by two more.
fn assert_flushes(flushes: u64, commits: i64, torn: Torn) {
    let more = if torn == Torn::Double { 2 } else { 0 };
    let commits = commits as u64;
    assert!(
        (commits..=commits + more).contains(&flushes),
        "{flushes} {torn:?}"
    );
}

#[test]
fn a_commit_is_a_flush_and_a_page_of_the_header_at_most() {
    for (mebibytes, torn) in [
        (1, Torn::Trust),
        (1, Torn::Double),
        (14, Torn::Trust),
        (14, Torn::Double),
        (16, Torn::Trust),
        (16, Torn::Double),
        (64, Torn::Trust),
        (64, Torn::Double),
    ] {
        let (file, keys) = made(mebibytes, torn);
        for random in [true, false] {
            let mut db = Db::open(file.storage(), options(torn)).unwrap();
            let done = work(&mut db, keys, random);
            file.kill_all();
            let db = Db::open(file.storage(), options(torn)).unwrap();
            let (read, again) = (db.stats().pages_read, db.stats().flushes);
            let splits = done.append_splits + done.lazy_splits;
            println!(
                "{mebibytes} MiB, {torn:?}, {}: {} flushes, {} pages ({splits} splits), {} of slots, {} of the header; recovery reads {read} pages",
                if random { "random" } else { "appending" },
                done.flushes,
                done.pages_written,
                done.slot_pages_written,
                done.header_pages_written,
            );
            assert_flushes(done.flushes, COMMITS, torn);
            let most = match (torn, random, mebibytes) {
                // With late pages each 16th commit, and those that come back to a page of before.
                (_, true, _) => 100,
                // New pages are those of slots that became smaller: not marked ahead, as where the
                // file grows.
                (Torn::Double, false, _) => splits + 10,
                _ => 100,
            };
            assert!(done.header_pages_written <= most);
            assert!(read <= 64, "{read}");
            // Without what splits add, a page each.
            assert!(done.pages_written <= COMMITS as u64 + 2 * splits);
            if random {
                // The first commits, before a page is late, have slots.
                assert!(done.slot_pages_written <= 40);
            }
            assert_eq!(again, 0);
            db.close().unwrap();
        }
    }
}

/// Pages that recovery reads after so many random commits.
fn read_by_recovery(file: &MemoryFile, keys: i64, commits: i64, recovery_pages: u32) -> u64 {
    let options = Options {
        recovery_pages,
        ..options(Torn::Trust)
    };
    let mut db = Db::open(file.storage(), options.clone()).unwrap();
    let mut dice = Random::new(commits as u64);
    for _ in 0..commits {
        let key = dice.below(keys as u64) as i64;
        commit(&mut db, key - key % 4 + 1, &[3; 500]);
    }
    file.kill_all();
    let db = Db::open(file.storage(), options).unwrap();
    let read = db.stats().pages_read;
    db.close().unwrap();
    read
}

#[test]
fn recovery_reads_what_was_written_since_the_last_header() {
    let (file, keys) = made(14, Torn::Trust);
    for commits in [1, 10, 30] {
        let read = read_by_recovery(&file, keys, commits, 4096);
        println!("14 MiB, {commits} commits: {read} pages");
        // The pages, the headers, the map, and what is written again.
        assert!(read <= commits as u64 + 32, "{commits}: {read}");
    }
    for commits in [1, 100, 1000] {
        let read = read_by_recovery(&file, keys, commits, 1000);
        println!("14 MiB of which recovery may read 1,000 pages, {commits} commits: {read} pages");
        assert!(
            read <= commits.min(256) as u64 * 2 + 64,
            "{commits}: {read}"
        );
    }
}

#[test]
fn recovery_reads_little_where_the_same_pages_change_or_rows_are_appended() {
    let (file, keys) = made(14, Torn::Trust);
    let mut db = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    for i in 0..1000 {
        commit(&mut db, i % 20 * keys / 20 / 4 * 4 + 1, &[4; 500]);
    }
    file.kill_all();
    let mut db = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    let hot = db.stats().pages_read;
    for i in 0..3000 {
        commit(&mut db, keys + i, &[5; 500]);
    }
    file.kill_all();
    let db = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    let appended = db.stats().pages_read;
    println!("14 MiB: {hot} pages after changes of 20 rows, {appended} after 3,000 appended ones");
    assert!(hot <= 52, "{hot}");
    assert!(appended <= 128, "{appended}");
}

/// The process is killed after commits of one row, and the next open has nothing to redo.
#[test]
fn recovery_reads_no_page_twice() {
    for (torn, most) in [(Torn::Trust, 6), (Torn::Double, 12)] {
        let file = MemoryFile::new();
        let mut db = Db::open(file.storage(), options(torn)).unwrap();
        db.begin_write().unwrap();
        assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
        db.commit(Durability::Flush).unwrap();
        (0..50).for_each(|value| commit(&mut db, 1, &[value; 500]));
        file.kill_all();
        db.abandon();
        let db = Db::open(file.storage(), options(torn)).unwrap();
        let read = db.stats().pages_read;
        println!("{torn:?}: {read} pages");
        assert!(read <= most, "{torn:?}: {read}");
    }
}

/// So that a device reads them at once: the pages of marked regions, of slots, and in place.
#[test]
fn recovery_announces_what_it_reads() {
    for torn in [Torn::Trust, Torn::Double] {
        let (file, keys) = made(16, torn);
        let mut db = Db::open(file.storage(), options(torn)).unwrap();
        for key in (0..keys).step_by(keys as usize / 40) {
            db.begin_write().unwrap();
            for key in [key, keys - key] {
                db.put_integer(TREE, key, &[2; 501]).unwrap();
            }
            db.commit(Durability::Flush).unwrap();
        }
        file.kill_all();
        db.abandon();
        let hook = Hook::default();
        let db = Db::open(hook.storage(file.storage()), options(torn)).unwrap();
        let (read, announced) = (db.stats().pages_read, hook.announced() / 4096);
        println!("{torn:?}: {announced} of {read} pages");
        // Not the headers and the free map, which say what the others are.
        assert!(announced + 4 >= read, "{torn:?}: {announced} of {read}");
    }
}

/// A power cut that keeps the page of a commit, and loses the header that marks it.
pub fn lose_the_header(file: &MemoryFile, db: &mut Db, key: i64) {
    lose_the_header_of(file, db, key, &[9; 500]);
}

/// The same with this value. The power is cut before a second page is written.
pub fn lose_the_header_of(file: &MemoryFile, db: &mut Db, key: i64, value: &[u8]) {
    // Two steps each for the header and the page; the next one begins the flush.
    file.kill_after(Some(5));
    db.begin_write().unwrap();
    db.put_integer(TREE, key, value).unwrap();
    db.commit(Durability::Flush).unwrap_err();
    file.kill_after(None);
    let mut asked = 0;
    file.power_cut(PowerCut::Atomic, &mut |n| {
        asked += 1;
        match asked {
            // How many of 100 writes are kept; the header's is not.
            1 => 50,
            2 => n - 1,
            _ => 0,
        }
    });
}

fn values(db: &mut Db, keys: &[i64]) -> Vec<u8> {
    let view = db.snapshot().unwrap();
    let mut value = |key| db.get_integer(view.version(), TREE, key).unwrap().unwrap()[0];
    keys.iter().map(|key| value(*key)).collect()
}

#[test]
fn a_page_whose_header_is_lost_is_of_a_commit_that_never_happened() {
    let small = Options {
        recovery_pages: 64,
        heal_at_once: 64,
        late_after: u32::MAX,
        ..options(Torn::Trust)
    };
    let (file, keys) = made(1, Torn::Trust);
    let far: Vec<i64> = (1..9).map(|i| i * keys / 9 / 4 * 4 + 1).collect();
    let mut db = Db::open(file.storage(), small.clone()).unwrap();
    for (round, key) in far.iter().enumerate() {
        commit(&mut db, 1, &[2; 500]);
        let before = file.bytes();
        lose_the_header(&file, &mut db, *key);
        let changed = |bytes: &[u8]| {
            bytes
                .chunks(4096)
                .zip(before.chunks(4096))
                .filter(|(a, b)| a != b)
                .count()
        };
        assert_eq!(
            changed(&file.bytes()),
            1,
            "the page is there, without its header"
        );
        db.abandon();
        db = Db::open(file.storage(), small.clone()).unwrap();
        assert_eq!(values(&mut db, &far), vec![1; far.len()], "{round}");
        // Later commits have numbers of their own, whatever they do.
        for _ in 0..round * 20 {
            commit(&mut db, 5, &[4; 500]);
        }
        assert_eq!(values(&mut db, &far), vec![1; far.len()], "{round}");
        if round % 3 == 2 {
            db.close().unwrap();
            db = Db::open(file.storage(), small.clone()).unwrap();
        }
        assert_eq!(db.check().unwrap(), Vec::<String>::new());
    }
    // The pages can be changed, and have nothing of the lost versions then.
    for key in &far {
        commit(&mut db, *key, &[7; 500]);
    }
    db.close().unwrap();
    let mut db = Db::open(file.storage(), small).unwrap();
    assert_eq!(values(&mut db, &far), vec![7; far.len()]);
}

/// The commit whose header is lost began from versions that no flush had covered. Recovery goes back
/// to any of them, and the page must have it.
#[test]
fn a_commit_whose_header_is_lost_may_begin_from_a_version_that_is_not_durable() {
    let small = Options {
        recovery_pages: 64,
        heal_at_once: 64,
        late_after: u32::MAX,
        later: std::time::Duration::from_secs(3600),
        ..options(Torn::Trust)
    };
    let mut states = std::collections::BTreeSet::new();
    for kept in 0..40 {
        let (file, keys) = made(1, Torn::Trust);
        let far = keys / 2 / 4 * 4 + 1;
        let near: Vec<i64> = (0..3).map(|i| i * 40 + 1).collect();
        let mut db = Db::open(file.storage(), small.clone()).unwrap();
        for key in &near {
            commit(&mut db, *key, &[2; 500]);
        }
        // Marked, and not flushed.
        for key in &near {
            db.begin_write().unwrap();
            db.put_integer(TREE, *key, &[3; 500]).unwrap();
            db.commit(Durability::Later).unwrap();
        }
        file.kill_after(Some(5));
        db.begin_write().unwrap();
        db.put_integer(TREE, far, &[9; 500]).unwrap();
        db.commit(Durability::Flush).unwrap_err();
        file.kill_after(None);
        // Of each write a bit says whether it is kept; never the header's, which comes first.
        let mut asked = 0;
        file.power_cut(PowerCut::Atomic, &mut |n| {
            asked += 1;
            match asked {
                1 => 50,
                2 => n - 1,
                _ if kept >> (asked % 6) & 1 == 1 => 0,
                _ => n - 1,
            }
        });
        db.abandon();
        let mut db = Db::open(file.storage(), small.clone()).unwrap();
        let found = values(&mut db, &[near[0], near[1], near[2], far]);
        // A beginning of the commits, in their order.
        let newer = found[..3].iter().take_while(|value| **value == 3).count();
        assert_eq!(found[newer..3], vec![2; 3 - newer], "{kept}: {found:?}");
        assert_eq!(found[3], 1, "{kept}: never committed");
        states.insert(newer);
        assert_eq!(db.check().unwrap(), Vec::<String>::new());
        commit(&mut db, far, &[7; 500]);
        assert_eq!(values(&mut db, &[far]), [7]);
    }
    assert!(states.len() > 1, "{states:?}");
}

#[test]
fn after_many_crashes_with_a_history_a_commit_still_flushes_once() {
    let small = Options {
        recovery_pages: 64,
        heal_at_once: 64,
        late_after: u32::MAX,
        ..options(Torn::Trust)
    };
    let (file, keys) = made(1, Torn::Trust);
    // A history needs the numbers of lost versions.
    let mut db = Db::open(file.storage(), small.clone()).unwrap();
    db.set_history(2).unwrap();
    db.close().unwrap();
    for round in 0..40 {
        let mut db = Db::open(file.storage(), small.clone()).unwrap();
        for i in 0..10 {
            let key = (i * 37 + round * 11) % (keys / 4) * 4 + 1;
            commit(&mut db, key, &[round as u8; 500]);
            assert_eq!(values(&mut db, &[key]), [round as u8]);
        }
        assert_eq!(db.check().unwrap(), Vec::<String>::new());
        file.power_cut(PowerCut::Atomic, &mut |n| n - 1);
        db.abandon();
    }
    let mut db = Db::open(file.storage(), small).unwrap();
    let flushes = db.stats().flushes;
    for i in 0..100 {
        commit(&mut db, i * 7 % (keys / 4) * 4 + 1, &[1; 500]);
    }
    // One before the first transaction, and one of the first header.
    let flushes = db.stats().flushes - flushes;
    assert!(flushes <= 102, "{flushes}");
    assert_eq!(db.check().unwrap(), Vec::<String>::new());
}

/// A database of format 1 whose process was killed: a table of the rows 2 and 3, with an index.
fn format_1(bytes: &[u8]) -> MemoryFile {
    let file = MemoryFile::new();
    let storage = file.storage();
    storage.write_at(0, bytes).unwrap();
    storage.sync().unwrap();
    drop(storage);
    file.kill_all();
    file
}

#[test]
fn a_database_of_format_1_is_read_and_becomes_one_of_the_newest_when_it_is_written() {
    for (torn, bytes) in [
        (
            Torn::Trust,
            &include_bytes!("format1/killed-trust.lsmvbt")[..],
        ),
        (
            Torn::Double,
            &include_bytes!("format1/killed-double.lsmvbt")[..],
        ),
    ] {
        let file = format_1(bytes);
        let formats = |file: &MemoryFile| [14, 4096 + 14].map(|at| file.bytes()[at]);
        let rows = |db: &mut Db| {
            assert_eq!(db.check().unwrap(), Vec::<String>::new());
            let view = db.snapshot().unwrap();
            let trees = db.trees(view.version()).unwrap();
            let count = |tree: &(TreeId, TreeKind)| db.count(view.version(), tree.0).unwrap();
            trees.iter().map(count).collect::<Vec<u64>>()
        };
        let mut db = Db::open(file.storage(), options(torn)).unwrap();
        assert_eq!(rows(&mut db), [2, 2, 2]);
        file.kill_all();
        db.abandon();
        let mut db = Db::open(file.storage(), options(torn)).unwrap();
        db.begin_write().unwrap();
        assert!(db.delete_integer(TreeId(2), 3).unwrap());
        db.commit(Durability::Flush).unwrap();
        db.close().unwrap();
        assert_eq!(formats(&file), [b'7', b'7']);
        let mut db = Db::open(file.storage(), options(torn)).unwrap();
        assert_eq!(rows(&mut db), [2, 1, 2]);
    }
}

#[test]
fn two_handles_that_take_turns_flush_once_a_commit() {
    let (file, keys) = made(1, Torn::Trust);
    let small = Options {
        recovery_pages: 64,
        heal_at_once: 64,
        late_after: u32::MAX,
        ..options(Torn::Trust)
    };
    let mut handles = [(); 2].map(|()| Db::open(file.storage(), small.clone()).unwrap());
    let mut dice = Random::new(3);
    let mut flushes = || {
        for _ in 0..100 {
            for db in &mut handles {
                let key = dice.below(keys as u64) as i64;
                commit(db, key - key % 4 + 1, &[5; 500]);
            }
        }
        handles.iter().map(|db| db.stats().flushes).sum::<u64>()
    };
    let before = flushes();
    assert_eq!(flushes() - before, 200);
}

/// Power cuts and kills, again and again, in a database that fills and empties tables.
#[test]
fn a_small_database_does_not_grow_with_crashes() {
    for torn in [Torn::Trust, Torn::Double] {
        let file = MemoryFile::new();
        let mut db = Db::open(file.storage(), options(torn)).unwrap();
        db.begin_write().unwrap();
        assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
        db.commit(Durability::Flush).unwrap();
        let mut pages = Vec::new();
        for round in 0..40 {
            for half in 0..10 {
                db.begin_write().unwrap();
                for key in 0..60 {
                    let key = (half * 1000 + key) % 5000;
                    match half {
                        0..5 => db.put_integer(TREE, key, &[round; 2500]).unwrap(),
                        _ => assert!(db.delete_integer(TREE, key).unwrap()),
                    }
                }
                db.commit(Durability::Flush).unwrap();
            }
            pages.push(db.status().unwrap().pages);
            if round % 2 == 0 {
                file.kill_all();
            } else {
                file.power_cut(PowerCut::Atomic, &mut |_| 0);
            }
            db.abandon();
            db = Db::open(file.storage(), options(torn)).unwrap();
            assert_eq!(db.check().unwrap(), Vec::<String>::new());
        }
        println!("{torn:?}: {pages:?}");
        assert!(pages[39] <= pages[1] + 3 * pages[1] / 10, "{pages:?}");
        commit(&mut db, 1, &[1; 500]);
        let before = db.stats().flushes;
        for key in 0..100 {
            commit(&mut db, key, &[1; 500]);
        }
        assert_flushes(db.stats().flushes - before, 100, torn);
    }
}

#[test]
fn a_crash_takes_no_version_out_of_the_history() {
    let (file, _) = made(1, Torn::Trust);
    let mut db = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    db.set_history(10).unwrap();
    commit(&mut db, 1, &[5; 500]);
    let then = db.status().unwrap().current;
    for value in 6..9 {
        commit(&mut db, 1, &[value; 500]);
        file.power_cut(PowerCut::Atomic, &mut |_| 0);
        db.abandon();
        db = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    }
    for value in 9..13 {
        commit(&mut db, 1, &[value; 500]);
    }
    let view = db.snapshot_at(then).unwrap();
    let found = db.get_integer(view.version(), TREE, 1).unwrap();
    assert_eq!(found, Some(vec![5; 500]));
    assert_eq!(db.check().unwrap(), Vec::<String>::new());
}

/// As many versions as the history has, whatever the crashes, and not many more.
#[test]
fn many_crashes_take_no_version_out_of_the_history() {
    const KEPT: usize = 40;
    for torn in [Torn::Trust, Torn::Double] {
        let (file, _) = made(1, torn);
        let mut db = Db::open(file.storage(), options(torn)).unwrap();
        db.set_history(KEPT as u64).unwrap();
        let mut versions = Vec::new();
        for round in 0..120u8 {
            for value in [round, round + 100] {
                commit(&mut db, 1, &[value; 500]);
                versions.push((db.status().unwrap().current, value));
            }
            if round % 2 == 0 {
                file.kill_all();
            } else {
                file.power_cut(PowerCut::Atomic, &mut |n| n - 1);
            }
            db.abandon();
            db = Db::open(file.storage(), options(torn)).unwrap();
            if round % 8 != 7 {
                continue;
            }
            let kept = versions.iter().rev().take(KEPT + 1);
            for (version, value) in kept {
                let view = db.snapshot_at(*version).unwrap();
                let found = db.get_integer(view.version(), TREE, 1).unwrap();
                assert_eq!(found, Some(vec![*value; 500]), "{round}");
            }
            // One that is shown is whole, also where more are kept than asked for.
            let mut more = versions.iter().rev().skip(KEPT + 1);
            let read = more.position(|(version, value)| match db.snapshot_at(*version) {
                Ok(view) => {
                    let found = db.get_integer(view.version(), TREE, 1).unwrap();
                    assert_eq!(found, Some(vec![*value; 500]), "{round}");
                    false
                }
                Err(_) => true,
            });
            assert!(read.unwrap_or(0) <= KEPT / 4, "{round}: {read:?}");
        }
        assert_eq!(db.check().unwrap(), Vec::<String>::new());
    }
}
