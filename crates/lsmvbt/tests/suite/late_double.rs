//! Late pages with `Double`: what a reader, a full disk, a dead writer or a vacuum finds next to them.

use lsmvbt::{Db, MemoryFile, Options, PowerCut, Torn};

use crate::headers::at_every_step;
use crate::hooks::Hook;
use crate::late::{BOTH, at_once_with, far, open, value};
use crate::marks::{TREE, commit, made};

fn double() -> Options {
    at_once_with(Torn::Double)
}

/// All pages that no flush has covered are torn: every second sector is new.
fn tear(file: &MemoryFile) {
    let mut sector = 0;
    file.power_cut(PowerCut::Torn, &mut |n| match n {
        2 => {
            sector += 1;
            sector % 2
        }
        100 => 99,
        _ => 0,
    });
}

fn commit_all(db: &mut Db, keys: &[i64], value: u8) -> lsmvbt::Result<()> {
    db.begin_write()?;
    for key in keys {
        db.put_integer(TREE, *key, &[value; 500])?;
    }
    db.commit(lsmvbt::Durability::Flush).map(|_| ())
}

fn late(db: &mut Db, key: i64, value: u8) {
    let before = db.stats().late_commits;
    commit(db, key, &[value; 500]);
    assert_eq!(db.stats().late_commits, before + 1);
}

/// The late page stands before or behind the other pages of the commit that takes it along.
#[test]
fn a_reader_finds_the_late_page_while_a_commit_takes_it_along() {
    for at in 0..6 {
        let make = || {
            let (file, keys) = made(1, Torn::Double);
            let cache_pages = 0;
            let reader = open(
                &file,
                Options {
                    cache_pages,
                    ..double()
                },
            );
            (file, (reader, far(keys, 8)[at]))
        };
        let read = |(db, key): &mut (Db, i64)| assert_eq!(value(db, *key), 3);
        let steps = at_every_step(make, read, |file, hook: &Hook, world, arm| {
            let (_, keys) = made(1, Torn::Double);
            let rows = far(keys, 8);
            let mut db = Db::open(hook.storage(file.storage()), double()).expect("opened");
            commit(&mut db, rows[6], &[2; 500]);
            late(&mut db, rows[7], 3);
            late(&mut db, rows[at], 3);
            let others: Vec<i64> = (0..6).filter(|i| *i != at).map(|i| rows[i]).collect();
            arm();
            commit_all(&mut db, &others, 4).expect("committed");
            let interrupted = !hook.clear();
            assert_eq!(value(&mut db, rows[at]), 3);
            drop(world.lock().expect("the world"));
            interrupted
        });
        assert!(steps > 10, "{steps}");
    }
}

/// The commit after a late page has written its new pages, and finds the disk full.
#[test]
fn a_full_disk_takes_no_late_page_back() {
    let mut refused = 0;
    for (torn, count) in BOTH
        .into_iter()
        .flat_map(|torn| (1..12).map(move |count| (torn, count * count * 3)))
    {
        let (file, keys) = made(1, torn);
        let rows = far(keys, 8);
        let mut db = open(&file, at_once_with(torn));
        // No page is free.
        let mut end = keys;
        let before = file.bytes().len();
        while file.bytes().len() < before + (16 << 12) {
            let more: Vec<i64> = (end..end + 30).collect();
            commit_all(&mut db, &more, 1).expect("committed");
            end += 30;
        }
        commit(&mut db, rows[0], &[2; 500]);
        late(&mut db, rows[1], 3);
        late(&mut db, rows[2], 3);
        file.limit(Some(file.bytes().len() as u64));
        db.begin_write().expect("begun");
        for key in 0..count {
            db.put_integer(TREE, end + key, &[4; 500]).expect("put");
        }
        let full = db.commit(lsmvbt::Durability::Flush);
        refused += u64::from(full.is_err());
        file.limit(None);
        tear(&file);
        db.abandon();
        let mut db = open(&file, at_once_with(torn));
        for (row, expected) in [(0, 2), (1, 3), (2, 3)] {
            assert_eq!(value(&mut db, rows[row]), expected, "{torn:?} {count}");
        }
    }
    assert!(refused > 6, "{refused}");
}

/// Another handle recovers, and dies in that. Only the newest slot leads to the page that carries the change.
#[test]
fn a_recovery_next_to_others_spares_the_slot_that_leads_to_the_carrier() {
    for (late_after, steps) in (2..4).flat_map(|after| (1..16).map(move |steps| (after, steps))) {
        let (file, keys) = made(1, Torn::Double);
        let rows = far(keys, 8);
        let mut other = open(&file, double());
        let mut db = open(
            &file,
            Options {
                late_after,
                ..double()
            },
        );
        for row in &rows[..late_after as usize] {
            commit(&mut db, *row, &[2; 500]);
        }
        late(&mut db, rows[4], 3);
        file.kill_after(Some(1));
        commit_all(&mut db, &rows[5..6], 4).expect_err("dead");
        file.kill_after(Some(steps));
        let _ = other.begin_write();
        file.kill_after(None);
        tear(&file);
        db.abandon();
        other.abandon();
        let mut db = open(&file, double());
        for row in &rows[..late_after as usize] {
            assert_eq!(value(&mut db, *row), 2, "{late_after} {steps}");
        }
        assert_eq!(value(&mut db, rows[4]), 3, "{late_after} {steps}");
    }
}

/// The late page comes home without a commit. So no slot has the page of the last one.
#[test]
fn no_chain_begins_with_a_page_that_no_slot_has() {
    for by_another in [false, true] {
        let (file, keys) = made(1, Torn::Double);
        let rows = far(keys, 8);
        let mut db = open(&file, double());
        commit(&mut db, rows[0], &[2; 500]);
        late(&mut db, rows[1], 3);
        late(&mut db, rows[2], 3);
        let mut other = open(&file, double());
        match by_another {
            true => other.vacuum_part(0),
            false => db.vacuum_part(0),
        }
        .expect("nothing given back");
        file.kill_after(Some(3));
        commit_all(&mut db, &rows[3..4], 4).expect_err("dead");
        file.kill_after(None);
        tear(&file);
        db.abandon();
        other.abandon();
        let mut db = open(&file, double());
        for (row, expected) in [(0, 2), (1, 3), (2, 3), (3, 1)] {
            assert_eq!(value(&mut db, rows[row]), expected, "{row}");
        }
    }
}

/// Another handle has read the page that a refused commit has written, before it is taken back.
#[test]
fn a_page_that_is_taken_back_stays_in_no_cache() {
    // With `Double` it is not taken back.
    let torn = Torn::Trust;
    let make = || {
        let (file, keys) = made(1, torn);
        let reader = open(&file, at_once_with(torn));
        (file, (reader, far(keys, 8)))
    };
    let read = |(db, rows): &mut (Db, Vec<i64>)| {
        for row in [0, 1] {
            assert_eq!(value(db, rows[row]), 3);
        }
    };
    at_every_step(make, read, |file, hook: &Hook, world, arm| {
        let rows = world.lock().expect("the world").1.clone();
        let mut db = Db::open(hook.storage(file.storage()), at_once_with(torn)).expect("opened");
        commit(&mut db, rows[5], &[3; 500]);
        late(&mut db, rows[0], 3);
        late(&mut db, rows[1], 3);
        arm();
        hook.next_write_is_full();
        assert!(commit_all(&mut db, &rows[2..3], 4).is_err());
        let interrupted = !hook.clear();
        {
            let reader = &mut world.lock().expect("the world").0;
            for row in [4, 1, 5, 0, 3] {
                commit(reader, rows[row] + 1, &[5; 500]);
            }
        }
        let mut third = open(file, at_once_with(torn));
        for row in [4, 1, 5, 0, 3] {
            assert_eq!(value(&mut third, rows[row] + 1), 5, "{torn:?}");
        }
        interrupted
    });
}

/// Spilled pages are read again and go back to a savepoint. Then the commit writes them with other bytes.
#[test]
fn a_page_that_goes_back_to_a_savepoint_is_not_taken_for_its_bytes() {
    use crate::random::{Random, Seed, seeds};
    for seed in seeds(30) {
        let _told = Seed("savepoint", seed);
        let mut random = Random::new(seed);
        let torn = *random.pick(&BOTH);
        let (file, keys) = made(1, torn);
        let mut db = open(&file, at_once_with(torn));
        for round in 0..12u8 {
            db.set_cache_pages(8);
            db.begin_write().expect("begun");
            for _ in 0..30 {
                let key = random.below(keys as u64) as i64;
                db.put_integer(TREE, key, &[round; 480]).expect("put");
            }
            let savepoint = db.savepoint().expect("a savepoint");
            for _ in 0..random.below(12) {
                let key = random.below(keys as u64) as i64;
                db.put_integer(TREE, key, &[round; 470]).expect("put");
            }
            db.set_cache_pages(2000);
            if random.chance(80) {
                db.rollback_to(savepoint).expect("back");
            }
            db.commit(lsmvbt::Durability::Flush).expect("committed");
            for _ in 0..20 {
                let key = random.below(keys as u64) as i64;
                commit(&mut db, key, &[round; 490]);
                let mut other = open(&file, at_once_with(torn));
                assert_eq!(value(&mut other, key), round);
            }
        }
        assert_eq!(db.check().expect("checked"), Vec::<String>::new());
    }
}

/// The late page comes home through a slot in the middle of a commit, and the writer dies there. Another handle
/// recovers.
#[test]
fn a_late_page_comes_home_where_its_writer_dies_in_that() {
    for (steps, cuts) in (1..60).flat_map(|steps| [false, true].map(|cuts| (steps, cuts))) {
        let (file, keys) = made(1, Torn::Double);
        let rows = far(keys, 80);
        let mut other = open(&file, double());
        let mut db = open(&file, double());
        commit(&mut db, rows[0], &[2; 500]);
        late(&mut db, rows[1], 3);
        late(&mut db, rows[2], 3);
        // Larger slots, whose header needs the late page at home.
        file.kill_after(Some(steps));
        let done = commit_all(&mut db, &rows[5..], 4);
        file.kill_after(None);
        other.begin_write().expect("begun");
        other.rollback().expect("rolled back");
        for again in [false, true] {
            for (row, expected) in [(0, 2), (1, 3), (2, 3)] {
                assert_eq!(value(&mut other, rows[row]), expected, "{steps} {again}");
            }
            if cuts {
                tear(&file);
                std::mem::replace(&mut other, open(&file, double())).abandon();
            }
        }
        db.abandon();
        if done.is_ok() {
            return;
        }
    }
}
