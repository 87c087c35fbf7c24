//! Transactions of `Torn::Double` that write their pages in rounds: crashes at each of their steps, and
//! what they take.

use std::cell::Cell;

use lsmvbt::{Db, Durability, Error, MemoryFile, Options, PowerCut, Torn, TreeId, TreeKind};

use crate::drive::options;
use crate::random::{Random, Seed, seeds};

const PAGE: usize = 4096;
const TREE: TreeId = TreeId(1);
/// Rows before the large transaction, and those that it adds.
const ROWS: i64 = 1_000;
const MORE: i64 = 300;

fn small(torn: Torn, cache_pages: usize) -> Options {
    Options {
        cache_pages,
        recovery_pages: 64,
        heal_at_once: 64,
        ..options(torn)
    }
}

fn open(file: &MemoryFile) -> Db {
    try_open(file).expect("a database")
}

fn try_open(file: &MemoryFile) -> Result<Db, Error> {
    Db::open(file.storage(), small(Torn::Double, 0))
}

fn value(key: i64, number: u8) -> Vec<u8> {
    let bytes = 290 + key as usize % 20;
    vec![number; bytes]
}

/// True for a row that the large transaction changes: one of most pages, which have room for it.
fn is_changed(key: i64) -> bool {
    key % 12 == 5 || key >= ROWS
}

/// A database with rows of number 1, whose last commit is not in place on the device.
fn made(file: &MemoryFile) -> Db {
    filled(open(file))
}

fn filled(mut db: Db) -> Db {
    db.begin_write().expect("a transaction");
    assert_eq!(db.create_tree(TreeKind::Integer).expect("a tree"), TREE);
    db.commit(Durability::Flush).expect("committed");
    for from in (0..ROWS).step_by(50) {
        db.begin_write().expect("a transaction");
        for key in from..from + 50 {
            db.put_integer(TREE, key, &value(key, 1)).expect("a row");
        }
        db.commit(Durability::Flush).expect("committed");
    }
    db
}

/// The end of the large transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Commit,
    Rollback,
    /// Written, and then rolled back.
    TakenBack,
}

/// Changes a row of most pages, and adds some, in rounds.
fn large(db: &mut Db, end: End) -> Result<(), Error> {
    db.begin_write()?;
    for key in 0..ROWS + MORE {
        // In no order, so that pages are written in several rounds.
        let key = key * 7 % (ROWS + MORE);
        if is_changed(key) {
            db.put_integer(TREE, key, &value(key, 2))?;
        }
    }
    match end {
        End::Commit => db.commit(Durability::Flush).map(drop),
        End::Rollback => db.rollback(),
        End::TakenBack => {
            db.write(Durability::Flush)?;
            db.rollback()
        }
    }
}

/// The number of the changed rows, which must be the same in all.
fn number(db: &mut Db) -> u8 {
    assert_eq!(db.check().expect("checked"), Vec::<String>::new());
    let view = db.snapshot().expect("a snapshot");
    let count = db.count(view.version(), TREE).expect("counted") as i64;
    let number = match count {
        ROWS => 1,
        _ => 2,
    };
    assert_eq!(count, if number == 1 { ROWS } else { ROWS + MORE });
    for key in 1..count {
        let found = db.get_integer(view.version(), TREE, key).expect("read");
        let number = if is_changed(key) { number } else { 1 };
        assert_eq!(found, Some(value(key, number)), "{key}");
    }
    number
}

/// A small transaction: the row 0 has its number afterwards.
fn mark(db: &mut Db, number: u8) {
    db.begin_write().expect("a transaction");
    db.put_integer(TREE, 0, &value(0, number)).expect("a row");
    db.commit(Durability::Flush).expect("committed");
}

fn marked(db: &mut Db) -> Option<u8> {
    let view = db.snapshot().expect("a snapshot");
    let found = db.get_integer(view.version(), TREE, 0).expect("read");
    found.map(|value| value[0])
}

/// How it dies.
fn cut(file: &MemoryFile, way: u64, random: &mut Random) {
    match way {
        0 => file.kill_all(),
        1 => file.power_cut(PowerCut::Torn, &mut |_| 0),
        2 => file.power_cut(PowerCut::Torn, &mut |n| n - 1),
        _ => file.power_cut(PowerCut::Torn, &mut |n| random.below(n)),
    }
}

/// Recovers, with crashes in between, and finds the number of the rows.
fn recovers(file: &MemoryFile, random: &mut Random) -> u8 {
    let mut shown = None;
    for attempt in 0..4 {
        // A recovery that has been whole once writes the same bytes when it is done again.
        if attempt > 0 || random.chance(80) {
            file.kill_after(Some(1 + random.below(300)));
        }
        if let Ok(mut db) = try_open(file) {
            file.kill_after(None);
            let found = number(&mut db);
            // A commit that was not flushed may go, but nothing comes back.
            assert!(shown.is_none_or(|shown| shown >= found), "it came back");
            shown = Some(found);
            db.abandon();
        }
        file.kill_after(None);
        let way = random.below(4);
        cut(file, way, random);
    }
    let mut db = open(file);
    let found = number(&mut db);
    assert!(shown.is_none_or(|shown| shown >= found), "it came back");
    mark(&mut db, 9);
    db.abandon();
    cut(file, 3, random);
    let mut db = open(file);
    assert_eq!((number(&mut db), marked(&mut db)), (found, Some(9)));
    // The next one in rounds begins from what was recovered.
    large(&mut db, End::Rollback).expect("rolled back");
    assert_eq!(number(&mut db), found);
    large(&mut db, End::Commit).expect("committed");
    assert_eq!(number(&mut db), 2);
    db.abandon();
    cut(file, 3, random);
    assert_eq!(number(&mut open(file)), 2);
    found
}

/// The writer has these options; so many of its steps are left out between two deaths.
fn dies_at_each_step(end: End, options: &Options, apart: u64) {
    let died = Cell::new(0);
    let scale = crate::random::number("LSMVBT_SCALE").unwrap_or(1);
    let apart = (apart / scale).max(1) as usize;
    for step in (1..).step_by(apart) {
        let mut over = false;
        for way in 0..4 {
            let file = MemoryFile::new();
            let mut db = filled(Db::open(file.storage(), options.clone()).expect("a database"));
            let mut random = Random::new(step * 4 + way);
            file.kill_after(Some(step));
            let ended = large(&mut db, end);
            over = file.kills();
            file.kill_after(None);
            assert!(!over || ended.is_ok(), "{ended:?}");
            db.abandon();
            cut(&file, way, &mut random);
            let found = recovers(&file, &mut random);
            match (end, over) {
                (End::Commit, true) => assert_eq!(found, 2),
                (End::Rollback, _) | (End::TakenBack, true) => assert_eq!(found, 1),
                (End::Commit | End::TakenBack, false) => {}
            }
            died.set(died.get() + u64::from(!over));
        }
        if over {
            break;
        }
    }
    println!("{end:?}: died {} times", died.get());
    assert!(died.get() > 50, "{}", died.get());
}

#[test]
fn a_writer_may_die_in_a_round() {
    dies_at_each_step(End::Commit, &small(Torn::Double, 0), 24);
}

/// The transaction fits into memory. It has rounds for its new pages.
#[test]
fn a_writer_may_die_while_new_pages_go_in_place() {
    let options = Options {
        new_in_place: true,
        ..small(Torn::Double, 2000)
    };
    let file = MemoryFile::new();
    let mut db = filled(Db::open(file.storage(), options.clone()).expect("a database"));
    large(&mut db, End::Commit).expect("committed");
    assert!(db.stats().spilled >= 16, "{:?}", db.stats());
    dies_at_each_step(End::Commit, &options, 24);
}

#[test]
fn a_writer_may_die_while_it_rolls_rounds_back() {
    dies_at_each_step(End::Rollback, &small(Torn::Double, 0), 24);
}

#[test]
fn a_writer_may_die_while_it_takes_a_written_transaction_back() {
    dies_at_each_step(End::TakenBack, &small(Torn::Double, 0), 24);
}

/// Found by reading: a transaction of `Trust` died after it had written pages, in a file without slots. The
/// next open was one of `Double`. Its recovery stripped the pages in place, and a power cut tore them.
#[test]
fn a_recovery_that_finds_no_slots_makes_them() {
    let (mut died, mut made_slots) = (0, 0);
    for step in (1..).step_by(16) {
        let mut over = false;
        for way in 1..4 {
            let file = MemoryFile::new();
            let db = Db::open(file.storage(), small(Torn::Trust, 0));
            let mut db = filled(db.expect("a database"));
            let mut random = Random::new(step * 4 + way);
            file.kill_after(Some(step));
            let ended = large(&mut db, End::Commit);
            over = file.kills();
            file.kill_after(None);
            assert!(!over || ended.is_ok(), "{ended:?}");
            db.abandon();
            // Pages are not torn while the setting is `Trust`.
            file.power_cut(PowerCut::Atomic, &mut |n| match way {
                1 => 0,
                2 => n - 1,
                _ => random.below(n),
            });
            assert_eq!(slot_pages(&file), 0);
            // A recovery dies at some step, and then at others.
            file.kill_after(Some(1 + random.below(200)));
            let opened = try_open(&file);
            file.kill_after(None);
            made_slots += u32::from(slot_pages(&file) > 0);
            opened.into_iter().for_each(Db::abandon);
            cut(&file, 3, &mut random);
            let found = recovers(&file, &mut random);
            assert!(!over || found == 2, "{found}");
            died += u32::from(!over);
        }
        if over {
            break;
        }
    }
    println!("died {died} times, {made_slots} recoveries made slots");
    assert!(died > 20, "{died}");
}

/// A writer dies in a round, and another handle goes on, while a reader reads what was there before.
#[test]
fn another_handle_goes_on_where_a_writer_died_in_a_round() {
    let mut died = 0;
    for step in (1..).step_by(31) {
        let file = MemoryFile::new();
        let mut db = made(&file);
        let mut other = open(&file);
        let view = other.snapshot().expect("a snapshot");
        file.kill_after(Some(step));
        let _ = large(&mut db, End::Commit);
        let over = file.kills();
        file.kill_after(None);
        other.begin_write().expect("a transaction");
        other.rollback().expect("rolled back");
        let found = number(&mut other);
        for key in (0..ROWS).filter(|key| is_changed(*key)) {
            let row = other.get_integer(view.version(), TREE, key).expect("read");
            assert_eq!(row, Some(value(key, 1)), "{key}");
        }
        drop(view);
        mark(&mut other, 7);
        db.abandon();
        other.abandon();
        let mut random = Random::new(step);
        cut(&file, 3, &mut random);
        let mut db = open(&file);
        assert_eq!((number(&mut db), marked(&mut db)), (found, Some(7)));
        if over {
            assert_eq!(found, 2);
            break;
        }
        died += 1;
    }
    assert!(died > 20, "{died}");
}

/// Pages of a slot, as the newest header has it.
fn slot_pages(file: &MemoryFile) -> u32 {
    let bytes = file.bytes();
    let u32_at =
        |page: &[u8], at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("4 bytes"));
    let newest = bytes.chunks(PAGE).take(2);
    let newest = newest.max_by_key(|page| u32_at(page, 32));
    newest.map_or(0, |page| u32_at(page, 84))
}

/// The work of a transaction.
#[derive(Clone, Copy, Debug)]
struct Cost {
    in_place: u64,
    in_slots: u64,
    flushes: u64,
    slot_pages: u32,
}

/// The costs of transactions of some 8,000 pages, of new ones and of changed ones, with this cache.
fn costs(cache_pages: usize) -> [Cost; 2] {
    let file = MemoryFile::new();
    let options = Options {
        cache_pages,
        ..options(Torn::Double)
    };
    let mut db = Db::open(file.storage(), options).expect("a database");
    db.begin_write().expect("a transaction");
    assert_eq!(db.create_tree(TreeKind::Integer).expect("a tree"), TREE);
    db.commit(Durability::Flush).expect("committed");
    let costs = [(1, 1), (2, 12)].map(|(number, apart)| {
        let before = db.stats();
        db.begin_write().expect("a transaction");
        for key in (0..96_000).step_by(apart) {
            let row = value(key, number);
            db.put_integer(TREE, key, &row).expect("a row");
        }
        db.commit(Durability::Flush).expect("committed");
        let now = db.stats();
        Cost {
            in_place: now.spilled + now.pages_written - before.spilled - before.pages_written,
            in_slots: now.slot_pages_written - before.slot_pages_written,
            flushes: now.flushes - before.flushes,
            slot_pages: slot_pages(&file),
        }
    });
    assert_eq!(db.check().expect("checked"), Vec::<String>::new());
    println!("{cache_pages} pages in memory: {costs:?}");
    costs
}

#[test]
fn a_large_transaction_takes_small_slots_and_few_flushes() {
    let [new, old] = costs(2000);
    // New pages go through no slot.
    assert!(new.in_place > 8_000 && new.in_slots < 100, "{new:?}");
    assert!(new.slot_pages == 16 && new.flushes < 40, "{new:?}");
    assert!(old.in_slots > 6_000 && old.slot_pages < 400, "{old:?}");
    assert!(old.flushes < 120, "{old:?}");
    let [new, old] = costs(1 << 20);
    assert!(new.slot_pages > 8_000 && new.flushes < 6, "{new:?}");
    assert!(old.in_slots > 8_000 && old.flushes < 6, "{old:?}");
}

/// Savepoints, full disks and rollbacks in transactions with rounds, at random.
fn run(seed: u64) -> (u32, u64) {
    let _told = Seed("rounds", seed);
    let mut random = Random::new(seed);
    let file = MemoryFile::new();
    let mut db = made(&file);
    let mut numbers: Vec<u8> = vec![1; ROWS as usize];
    let most = numbers.len() as u64 + 100;
    let (mut refused, mut spilled) = (0, 0);
    for _ in 0..12 {
        if random.below(3) == 0 {
            let more = random.below(60) * PAGE as u64;
            file.limit(Some(file.bytes().len() as u64 + more));
        }
        let mut next = numbers.clone();
        db.begin_write().expect("not poisoned");
        for _ in 0..1 + random.below(4) {
            let savepoint = db.savepoint().expect("a savepoint");
            let before = next.clone();
            let number = 1 + random.below(200) as u8;
            let changed = (0..random.below(150)).try_for_each(|_| {
                let key = random.below(most) as usize;
                if next.len() <= key {
                    next.resize(key + 1, 0);
                }
                next[key] = number;
                db.put_integer(TREE, key as i64, &value(key as i64, number))
            });
            if changed.is_err() || random.below(3) == 0 {
                db.rollback_to(savepoint).expect("undone");
                next = before;
            }
            refused += u32::from(changed.is_err());
        }
        let ended = match random.below(5) {
            0 => db.rollback().map(|()| false),
            1 => db
                .write(Durability::Flush)
                .and_then(|()| db.rollback())
                .map(|()| false),
            _ => db.commit(Durability::Flush).map(|_| true),
        };
        match ended {
            Ok(true) => numbers = next,
            Ok(false) => {}
            Err(error) => {
                assert!(matches!(error, Error::Io { .. }), "{error}");
                refused += 1;
            }
        }
        file.limit(None);
        if random.below(2) == 0 {
            spilled += db.stats().spilled;
            std::mem::replace(&mut db, {
                let way = random.below(4);
                cut(&file, way, &mut random);
                open(&file)
            })
            .abandon();
        }
        assert_eq!(db.check().expect("checked"), Vec::<String>::new());
        let view = db.snapshot().expect("a snapshot");
        for (key, number) in (0..).zip(&numbers) {
            let found = db.get_integer(view.version(), TREE, key).expect("read");
            let expected = (*number > 0).then(|| value(key, *number));
            assert_eq!(found, expected, "{key}");
        }
    }
    (refused, spilled + db.stats().spilled)
}

#[test]
fn savepoints_and_full_disks_in_rounds_leave_what_was_committed() {
    let runs: Vec<(u32, u64)> = seeds(12).into_iter().map(run).collect();
    let refused: u32 = runs.iter().map(|run| run.0).sum();
    let spilled: u64 = runs.iter().map(|run| run.1).sum();
    println!("{refused} refused, {spilled} pages before their commit");
    assert!(refused > 5 && spilled > 1_000, "{refused} {spilled}");
}
