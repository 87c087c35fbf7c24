//! Healing in steps: a file larger than recovery may read does not grow by crashes.

use std::collections::BTreeMap;

use lsmvbt::{Db, Durability, Error, MemoryFile, Options, PowerCut, Torn, TreeId, TreeKind};

use crate::drive::options;
use crate::marks::{commit, lose_the_header, made};
use crate::random::{Random, Seed, seeds};

const TREE: TreeId = TreeId(1);
/// So few that every file here is large.
const FEW: u32 = 16;
const ROWS: i64 = 250;

type Rows = BTreeMap<i64, u8>;

fn open(file: &MemoryFile, torn: Torn) -> Db {
    let options = Options {
        recovery_pages: FEW,
        heal_at_once: FEW,
        late_after: u32::MAX,
        ..options(torn)
    };
    Db::open(file.storage(), options).unwrap()
}

/// Three pages of their own each, or none.
fn value(n: u8) -> Vec<u8> {
    vec![n; if n % 4 == 3 { 300 } else { 12_000 }]
}

fn change(db: &mut Db, change: impl FnOnce(&mut Db)) {
    db.begin_write().unwrap();
    change(db);
    db.commit(Durability::Flush).unwrap();
}

fn rolled_back(db: &mut Db) {
    db.begin_write().unwrap();
    db.rollback().unwrap();
}

fn filled(file: &MemoryFile, torn: Torn, prepare: impl FnOnce(&mut Db)) -> Rows {
    let mut db = open(file, torn);
    prepare(&mut db);
    let mut rows = Rows::new();
    change(&mut db, |db| {
        assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
    });
    for first in (0..ROWS).step_by(10) {
        change(&mut db, |db| {
            for key in first..first + 10 {
                db.put_integer(TREE, key, &value(key as u8)).unwrap();
                rows.insert(key, key as u8);
            }
        });
    }
    db.close().unwrap();
    rows
}

/// Replaces some rows, and removes and adds others: as many are there afterwards.
fn replace(db: &mut Db, rows: &mut Rows, random: &mut Random) -> lsmvbt::Result<()> {
    db.begin_write()?;
    let mut after = rows.clone();
    for _ in 0..4 {
        let (old, new) = (random.below(ROWS as u64) as i64, random.below(256) as u8);
        db.put_integer(TREE, old, &value(new))?;
        after.insert(old, new);
    }
    db.commit(Durability::Flush)?;
    *rows = after;
    Ok(())
}

fn assert_rows(db: &mut Db, rows: &Rows) {
    let view = db.snapshot().unwrap();
    for (key, n) in rows {
        let found = db.get_integer(view.version(), TREE, *key).unwrap();
        assert_eq!(found, Some(value(*n)), "{key}");
    }
    assert_eq!(db.count(view.version(), TREE).unwrap(), rows.len() as u64);
    assert_eq!(db.check().unwrap(), Vec::<String>::new());
}

/// Every life of the database commits some transactions, and ends in a kill or a power cut.
fn lives(torn: Torn, prepare: fn(&mut Db), handles: usize) {
    for seed in seeds(3) {
        let _told = Seed("lives", seed);
        let mut random = Random::new(seed);
        let file = MemoryFile::new();
        let mut rows = filled(&file, torn, prepare);
        let mut db = open(&file, torn);
        // A transaction's own pages next to the rows, and slots.
        for _ in 0..20 {
            replace(&mut db, &mut rows, &mut random).unwrap();
        }
        let pages = db.status().unwrap().pages;
        db.close().unwrap();
        let mut most = 0;
        for life in 0..60 {
            let mut dbs: Vec<Db> = (0..handles).map(|_| open(&file, torn)).collect();
            for _ in 0..1 + random.below(8) {
                let at = random.below(handles as u64) as usize;
                replace(&mut dbs[at], &mut rows, &mut random).unwrap();
                if random.chance(20) {
                    rolled_back(&mut dbs[at]);
                }
            }
            if life % 10 == 0 {
                dbs.iter_mut().for_each(|db| assert_rows(db, &rows));
            }
            most = most.max(dbs[0].status().unwrap().pages);
            if random.chance(50) {
                file.kill_all();
            } else {
                // All commits were flushed.
                file.power_cut(PowerCut::Atomic, &mut |n| random.below(n));
            }
            dbs.into_iter().for_each(Db::abandon);
        }
        println!("{torn:?}, {handles}: {pages} pages, {most} at most in 60 lives");
        assert!(most * 10 <= pages * 13, "{pages} {most}");
        assert_rows(&mut open(&file, torn), &rows);
    }
}

#[test]
fn kills_with_frees_between_do_not_make_a_large_file_grow() {
    lives(Torn::Trust, |_| {}, 1);
    lives(Torn::Double, |_| {}, 1);
}

#[test]
fn nor_with_a_history() {
    lives(Torn::Trust, |db| db.set_history(3).unwrap(), 1);
    lives(Torn::Double, |db| db.set_history(3).unwrap(), 1);
}

#[test]
fn nor_with_two_handles_that_take_turns() {
    lives(Torn::Trust, |_| {}, 2);
    lives(Torn::Double, |_| {}, 2);
}

/// A file that a kill has left with pages that nothing leads to, and the number of free pages that it
/// has at least once these are freed.
fn killed() -> (MemoryFile, Rows, u32) {
    let file = MemoryFile::new();
    let mut rows = filled(&file, Torn::Trust, |_| {});
    let mut db = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    for key in 0..ROWS / 4 {
        change(&mut db, |db| assert!(db.delete_integer(TREE, key).unwrap()));
        rows.remove(&key);
    }
    let free = db.status().unwrap().free_pages;
    assert!(free > 100, "{free}");
    file.kill_all();
    db.abandon();
    (file, rows, free)
}

#[test]
fn transactions_that_are_rolled_back_heal_in_small_steps() {
    let (file, rows, free) = killed();
    let mut db = open(&file, Torn::Trust);
    db.set_cache_pages(0);
    assert!(db.status().unwrap().free_pages < free - 100);
    let (mut steps, mut most) = (0, 0);
    while db.status().unwrap().free_pages < free - 4 {
        let read = db.stats().pages_read;
        rolled_back(&mut db);
        // The first one writes again what only the page cache may hold.
        if steps > 0 {
            most = most.max(db.stats().pages_read - read);
        }
        steps += 1;
        assert!(steps < 200, "{:?}", db.status());
    }
    println!("{steps} steps of {most} pages at most");
    assert!(steps > 20 && most <= 16, "{steps} {most}");
    let read = db.stats().pages_read;
    rolled_back(&mut db);
    assert!(db.stats().pages_read - read <= 2);
    assert_rows(&mut db, &rows);
    assert_eq!(db.reclaim().unwrap(), 0);
}

/// Transactions that have written pages are rolled back in the middle of the walk.
#[test]
fn a_rollback_of_written_pages_takes_nothing_from_the_walk() {
    for seed in seeds(8) {
        let _told = Seed("rollback", seed);
        let mut random = Random::new(seed);
        let (file, mut rows, _) = killed();
        let mut db = open(&file, Torn::Trust);
        for _ in 0..60 {
            db.set_cache_pages(*random.pick(&[0, 2000]));
            db.begin_write().unwrap();
            for _ in 0..random.below(60) {
                let key = random.below(ROWS as u64) as i64;
                if random.chance(50) {
                    db.put_integer(TREE, key, &value(9)).unwrap();
                } else {
                    db.delete_integer(TREE, key).unwrap();
                }
            }
            if random.chance(40) {
                db.write(Durability::Flush).unwrap();
            }
            db.rollback().unwrap();
            if random.chance(30) {
                replace(&mut db, &mut rows, &mut random).unwrap();
            }
        }
        for _ in 0..100 {
            rolled_back(&mut db);
        }
        let read = db.stats().pages_read;
        rolled_back(&mut db);
        assert!(db.stats().pages_read - read <= 2, "the walk is over");
        assert_rows(&mut db, &rows);
    }
}

/// A walk that is cut short by a crash, or by a close, goes faster in the next life.
#[test]
fn lives_of_one_commit_come_to_an_end_of_the_walk() {
    for is_closed in [false, true] {
        let (file, mut rows, _) = killed();
        let mut lives = 0;
        loop {
            let mut db = open(&file, Torn::Trust);
            let free = db.status().unwrap().free_pages;
            // Most of what the kill has left.
            if free > 100 {
                break;
            }
            change(&mut db, |db| {
                db.put_integer(TREE, 240, &value(3)).unwrap();
                rows.insert(240, 3);
            });
            if is_closed {
                db.close().unwrap();
            } else {
                file.kill_all();
                db.abandon();
            }
            lives += 1;
            assert!(lives < 12, "{is_closed}");
        }
        println!("{lives} lives, closed: {is_closed}");
        assert_rows(&mut open(&file, Torn::Trust), &rows);
    }
}

/// The walk goes on while others read. The rows that they read stay.
#[test]
fn readers_stop_no_walk_and_lose_nothing() {
    let (file, mut rows, free) = killed();
    let mut random = Random::new(1);
    let mut reader = open(&file, Torn::Trust);
    let mut db = open(&file, Torn::Trust);
    let mut views = Vec::new();
    for n in 0..300 {
        if n % 30 == 0 {
            views.push((reader.snapshot().unwrap(), rows.clone()));
            if views.len() > 3 {
                views.remove(1);
            }
        }
        replace(&mut db, &mut rows, &mut random).unwrap();
    }
    for (view, rows) in &views {
        for (key, n) in rows {
            let found = reader.get_integer(view.version(), TREE, *key).unwrap();
            assert_eq!(found, Some(value(*n)), "{key}");
        }
    }
    drop(views);
    assert_rows(&mut db, &rows);
    reader.release_dropped().unwrap();
    // Everything is reached or free, without another walk.
    let before = db.status().unwrap();
    assert_eq!(db.reclaim().unwrap(), 0, "{before:?} {free}");
}

/// The other handle commits more pages than the ring has room for: the walk begins again, with larger
/// steps, and ends.
#[test]
fn a_walk_that_missed_what_another_handle_wrote_begins_again() {
    let (file, mut rows, free) = killed();
    let (mut a, mut b) = (open(&file, Torn::Trust), open(&file, Torn::Trust));
    // This one recovers and walks as well: it would be over first.
    let mut heals = 0;
    for n in 0..40u8 {
        rolled_back(&mut a);
        heals += u32::from(a.status().unwrap().free_pages + 300 > free);
        change(&mut b, |db| {
            for key in ROWS..ROWS + 200 {
                db.put_integer(TREE, key, &[n; 12_000]).unwrap();
            }
        });
        change(&mut b, |db| {
            for key in ROWS..ROWS + 200 {
                assert!(db.delete_integer(TREE, key).unwrap());
            }
        });
    }
    assert!(heals > 0);
    for key in 0..4 {
        change(&mut a, |db| db.put_integer(TREE, key, &value(0)).unwrap());
        rows.insert(key, 0);
    }
    assert_rows(&mut a, &rows);
    assert_rows(&mut b, &rows);
    b.release_dropped().unwrap();
    assert_eq!(a.reclaim().unwrap(), 0);
}

/// Where a live page cannot be read, nothing is freed, and transactions go on.
#[test]
fn a_damaged_page_frees_nothing() {
    let (file, rows, free) = killed();
    let mut db = open(&file, Torn::Trust);
    let view = db.snapshot().unwrap();
    let key = *rows.keys().find(|key| rows[*key] == 200).unwrap();
    let bytes = file.bytes();
    let page = bytes
        .chunks(4096)
        .position(|page| page[100..4000].iter().all(|byte| *byte == 200))
        .unwrap();
    drop(view);
    file.damage(page as u64, 1000, 1);
    for _ in 0..300 {
        rolled_back(&mut db);
    }
    assert!(db.status().unwrap().free_pages < free - 100);
    let view = db.snapshot().unwrap();
    let found = db.get_integer(view.version(), TREE, key);
    assert!(matches!(found, Err(Error::Damaged { .. })), "{found:?}");
}

/// Found by reading: after 32 crashes of a larger file marks were flushed before their pages again. The
/// ranges of lost versions were never forgotten there.
#[test]
fn any_number_of_lost_headers_leaves_commits_at_one_flush() {
    let (file, keys) = made(1, Torn::Trust);
    let mut random = Random::new(3);
    let half = keys / 2;
    let mut key = move || random.below(half as u64) as i64 / 4 * 4 + 1;
    for life in 0..80 {
        let mut db = open(&file, Torn::Trust);
        for n in 0..25 {
            commit(&mut db, key(), &[n; 500]);
        }
        let flushes = db.stats().flushes;
        for n in 0..10 {
            commit(&mut db, key(), &[n; 500]);
        }
        assert_eq!(db.stats().flushes - flushes, 10, "{life}");
        // A page that is not marked yet.
        lose_the_header(&file, &mut db, (half + life * half / 80) / 4 * 4 + 1);
        db.abandon();
    }
    let mut db = open(&file, Torn::Trust);
    assert_eq!(db.check().unwrap(), Vec::<String>::new());
}

/// Found by reading: the handle took its own header for another one, and said Damaged.
#[test]
fn a_walk_that_has_ended_knows_the_header_of_the_file() {
    let file = MemoryFile::new();
    filled(&file, Torn::Trust, |_| {});
    let mut db = open(&file, Torn::Trust);
    change(&mut db, |db| {
        db.put_integer(TREE, 1, &value(3)).unwrap();
    });
    file.kill_all();
    db.abandon();
    let mut a = open(&file, Torn::Trust);
    // The header has the lost versions then.
    change(&mut a, |db| {
        db.put_integer(TREE, 1, &value(7)).unwrap();
    });
    // The walk ends, and no header is written.
    for _ in 0..500 {
        rolled_back(&mut a);
    }
    // Another handle dies in a flush.
    let mut b = open(&file, Torn::Trust);
    file.kill_after(Some(1));
    assert!(b.vacuum_part(0).is_err());
    file.kill_after(None);
    b.abandon();
    a.begin_write().expect("goes on");
    a.rollback().unwrap();
}

/// The last step of a walk forgets the lost versions. Its handle dies before one of its stores to shared memory.
#[test]
fn a_handle_that_dies_where_lost_versions_are_forgotten_makes_no_other_ones_lost() {
    for stores in 1..50 {
        let file = MemoryFile::new();
        let rows = filled(&file, Torn::Trust, |_| {});
        let mut db = open(&file, Torn::Trust);
        for key in 0..3 {
            change(&mut db, |db| {
                db.put_integer(TREE, key, &value(key as u8)).unwrap();
            });
        }
        file.power_cut(PowerCut::Atomic, &mut |_| 0);
        db.abandon();
        let one_step = || Db::open(file.storage(), options(Torn::Trust)).unwrap();
        // Its walk takes many steps, so it does not end before the next header.
        let (mut db, mut other) = (open(&file, Torn::Trust), one_step());
        file.kill_before_store(Some(stores));
        let _ = other.begin_write();
        file.kill_before_store(None);
        drop(other);
        change(&mut db, |db| {
            db.put_integer(TREE, 7, &value(7)).unwrap();
        });
        for mut db in [one_step(), db] {
            let view = db.snapshot().unwrap();
            for (key, row) in &rows {
                let found = db.get_integer(view.version(), TREE, *key).unwrap();
                assert_eq!(found, Some(value(*row)), "{stores}");
            }
            drop(view);
            assert_eq!(db.check().unwrap(), Vec::<String>::new(), "{stores}");
        }
    }
}
