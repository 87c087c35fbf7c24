//! The slots of `Torn::Double`: larger than a span of the free map, and moved by a writer that
//! stops there.

use std::io::ErrorKind;

use lsmvbt::{Db, Durability, Error, MemoryFile, Options, PowerCut, Torn, TreeId, TreeKind};

use crate::drive::options;
use crate::random::Random;

const PAGE: usize = 4096;

/// Its transactions go through one slot, however large they are.
fn open(file: &MemoryFile) -> Db {
    let options = Options {
        cache_pages: 1 << 20,
        ..options(Torn::Double)
    };
    Db::open(file.storage(), options).expect("a database")
}

/// The keys of the other writer.
const OTHERS: std::ops::Range<i64> = 100_000..100_100;

/// A value of one overflow page.
fn value(key: i64) -> Vec<u8> {
    key.to_le_bytes().repeat(460)
}

fn fill(db: &mut Db, tree: TreeId, keys: std::ops::Range<i64>) {
    for key in keys {
        db.put_integer(tree, key, &value(key)).expect("a row");
    }
}

/// A transaction of some rows.
fn write(db: &mut Db, tree: TreeId, keys: std::ops::Range<i64>) {
    db.begin_write().expect("a transaction");
    fill(db, tree, keys);
    db.commit(Durability::Flush).expect("committed");
}

fn holds(db: &mut Db, tree: TreeId, keys: std::ops::Range<i64>) {
    assert!(db.check().expect("checked").is_empty());
    let view = db.snapshot().expect("a snapshot");
    // The other writer of `moved_by_another` may have died after its slot was durable.
    let other = db.get_integer(view.version(), tree, OTHERS.start);
    let others = other.expect("read").map_or(0, |_| OTHERS.count());
    assert_eq!(
        db.count(view.version(), tree).expect("counted"),
        keys.end as u64 + others as u64
    );
    for key in keys.step_by(7) {
        let found = db.get_integer(view.version(), tree, key).expect("read");
        assert_eq!(found, Some(value(key)), "{key}");
    }
}

#[test]
fn a_transaction_may_be_larger_than_a_span_of_the_free_map() {
    const ROWS: i64 = 13_200;
    let file = MemoryFile::new();
    let mut db = open(&file);
    db.begin_write().expect("a transaction");
    let tree = db.create_tree(TreeKind::Integer).expect("a tree");
    fill(&mut db, tree, 0..ROWS);
    db.commit(Durability::Flush).expect("committed");
    let status = db.status().expect("a status");
    assert!(status.pages > 32_256 + ROWS as u32, "{status:?}");
    // Torn in place: only the slot has it.
    let mut seed = 1u64;
    file.power_cut(PowerCut::Torn, &mut |n| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % n
    });
    db.abandon();
    let mut db = open(&file);
    holds(&mut db, tree, 0..ROWS);
    write(&mut db, tree, ROWS..ROWS + 10);
    holds(&mut db, tree, 0..ROWS + 10);
    db.close().expect("closed");
}

/// `moves` is the work of another writer, in whose transaction the slots must move: to the end of the
/// file, or to free pages in it. The first one asks for its status before it writes, or does not.
fn moved_by_another(rows: i64, asks: bool, within: bool, moves: impl FnOnce(&MemoryFile, Db)) {
    let file = MemoryFile::new();
    let (mut a, mut b) = (open(&file), open(&file));
    a.begin_write().expect("a transaction");
    let tree = a.create_tree(TreeKind::Integer).expect("a tree");
    fill(&mut a, tree, 0..5);
    a.commit(Durability::Flush).expect("committed");
    if within {
        leave_free_pages(&file, &mut a);
    }

    b.begin_write().expect("a transaction");
    fill(&mut b, tree, OTHERS);
    moves(&file, b);
    if asks {
        a.status().expect("a status");
    }
    for key in 5..rows {
        write(&mut a, tree, key..key + 1);
    }
    let mut c = open(&file);
    for db in [&mut a, &mut c] {
        holds(db, tree, 0..rows);
    }
}

/// Makes a tree of 900 pages and drops it: a run of free pages that is longer than slots of 100 rows. The
/// slots are small again.
fn leave_free_pages(file: &MemoryFile, db: &mut Db) {
    db.begin_write().expect("a transaction");
    let other = db.create_tree(TreeKind::Integer).expect("a tree");
    fill(db, other, 0..900);
    db.commit(Durability::Flush).expect("committed");
    db.begin_write().expect("a transaction");
    db.drop_tree(other).expect("dropped");
    db.commit(Durability::Flush).expect("committed");
    for _ in 0..130 {
        db.begin_write().expect("a transaction");
        let tree = db.create_tree(TreeKind::Integer).expect("a tree");
        db.drop_tree(tree).expect("dropped");
        db.commit(Durability::Flush).expect("committed");
    }
    assert!(db.status().expect("a status").free_pages > 800);
    assert_eq!(slot_pages(file), 16);
}

#[test]
fn slots_that_a_rolled_back_writer_has_moved_are_kept_clear() {
    for (asks, within) in [(false, false), (true, false), (false, true), (true, true)] {
        moved_by_another(300, asks, within, |file, mut b| {
            let (size, slots) = (file.bytes().len(), slot_pages(file));
            b.write(Durability::Flush).expect("written");
            assert!(slot_pages(file) > slots);
            assert!(within == (file.bytes().len() < size + 100 * PAGE));
            b.rollback().expect("rolled back");
            b.close().expect("closed");
        });
    }
}

/// Found by reading: the pages of the old slots were free in the header, and in the memory of the
/// writer. No map that another handle reads had them.
#[test]
fn a_rollback_after_slots_have_moved_leaves_no_page_unreachable() {
    for within in [false, true] {
        let file = MemoryFile::new();
        let (mut a, mut b) = (open(&file), open(&file));
        let (db, tree) = (&mut a, TreeId(1));
        db.begin_write().expect("a transaction");
        assert_eq!(db.create_tree(TreeKind::Integer).expect("a tree"), tree);
        fill(db, tree, 0..5);
        db.commit(Durability::Flush).expect("committed");
        if within {
            leave_free_pages(&file, db);
        }
        let before = slot_pages(&file);
        b.begin_write().expect("a transaction");
        fill(&mut b, tree, OTHERS);
        b.write(Durability::Flush).expect("written");
        b.rollback().expect("rolled back");
        assert!(slot_pages(&file) > before);
        write(&mut a, tree, 5..6);
        write(&mut b, tree, 6..7);
        for db in [&mut a, &mut b] {
            holds(db, tree, 0..7);
            assert_eq!(db.reclaim().expect("reclaimed"), 0, "{within}");
        }
    }
}

#[test]
fn slots_that_a_writer_has_moved_before_it_died_are_kept_clear() {
    for steps in (1..1000).step_by(17) {
        let mut died = false;
        let within = steps / 17 % 3 == 0;
        moved_by_another(150, steps % 2 == 0, within, |file, mut b| {
            file.kill_after(Some(steps));
            died = b.write(Durability::Flush).is_err();
            let _ = b.rollback();
            file.kill_after(None);
        });
        if !died {
            break;
        }
    }
}

#[test]
fn a_flush_that_fails_before_the_commit_ends_it_for_all() {
    let file = MemoryFile::new();
    let (mut a, mut b) = (open(&file), open(&file));
    a.begin_write().expect("a transaction");
    let tree = a.create_tree(TreeKind::Integer).expect("a tree");
    file.fail_syncs(true);
    assert!(a.write(Durability::Flush).is_err());
    file.fail_syncs(false);
    let _ = a.rollback();
    for db in [&mut a, &mut b] {
        assert!(matches!(db.begin_write(), Err(Error::Poisoned)));
    }
    drop((a, b));
    let mut db = open(&file);
    db.begin_write().expect("a transaction");
    assert_eq!(db.create_tree(TreeKind::Integer).expect("a tree"), tree);
    db.commit(Durability::Flush).expect("committed");
}

// ---- smaller again

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// A number in the newest header.
fn of_header(file: &MemoryFile, at: usize) -> u32 {
    let bytes = file.bytes();
    let headers = bytes.chunks(PAGE).take(2);
    let newest = headers.max_by_key(|page| u64::from(u32_at(page, 32)));
    newest.map_or(0, |page| u32_at(page, at))
}

/// Pages of a slot.
fn slot_pages(file: &MemoryFile) -> u32 {
    of_header(file, 84)
}

/// The first page of both.
fn slot_start(file: &MemoryFile) -> u32 {
    of_header(file, 80)
}

/// A database with `rows` rows of a page each, written by one transaction.
fn imported(file: &MemoryFile, rows: i64) -> (Db, TreeId) {
    let mut db = open(file);
    db.begin_write().expect("a transaction");
    let tree = db.create_tree(TreeKind::Integer).expect("a tree");
    fill(&mut db, tree, 0..rows);
    db.commit(Durability::Flush).expect("committed");
    (db, tree)
}

/// Commits that change a row each.
fn small(db: &mut Db, tree: TreeId, commits: i64) {
    for number in 0..commits {
        let key = number % 5;
        write(db, tree, key..key + 1);
    }
}

/// The number of commits of one row after which the slots are smaller.
fn commits_until_smaller(rows: i64) -> i64 {
    let file = MemoryFile::new();
    let (mut db, tree) = imported(&file, rows);
    let before = slot_pages(&file);
    let smaller = (1..200).find(|_| {
        small(&mut db, tree, 1);
        slot_pages(&file) < before
    });
    smaller.expect("they stay as they are")
}

#[test]
fn slots_become_smaller_and_the_file_uses_their_pages() {
    const ROWS: i64 = 2_000;
    let file = MemoryFile::new();
    let (mut db, tree) = imported(&file, ROWS);
    let size = db.status().expect("a status").pages;
    assert!(slot_pages(&file) > ROWS as u32);
    let flushes = db.stats().flushes;
    small(&mut db, tree, 128);
    assert_eq!(slot_pages(&file), 16);
    // Once more before the header, and once after it.
    assert_eq!(db.stats().flushes, flushes + 128 + 2);
    for from in (0..2 * ROWS).step_by(10) {
        write(&mut db, tree, ROWS + from..ROWS + from + 10);
    }
    let now = db.status().expect("a status").pages;
    assert!(now < size + 100, "{size} pages became {now}");
    holds(&mut db, tree, 0..3 * ROWS);
}

/// Found by reading: the commit failed whose turn it was to make the slots smaller.
#[test]
fn slots_that_find_no_room_to_become_smaller_stay_as_they_are() {
    const ROWS: i64 = 100;
    let commits = commits_until_smaller(ROWS);
    // The headers, and the maps of free pages.
    for full in [0..2, 4..6] {
        let file = MemoryFile::new();
        let (mut db, tree) = imported(&file, ROWS);
        small(&mut db, tree, commits - 1);
        let before = slot_pages(&file);
        file.refuse_writes_of(Some(full));
        small(&mut db, tree, 1);
        file.refuse_writes_of(None);
        let mut other = open(&file);
        for db in [&mut db, &mut other] {
            small(db, tree, 31);
            assert_eq!(slot_pages(&file), before);
            holds(db, tree, 0..ROWS);
        }
        small(&mut db, tree, 2);
        assert!(slot_pages(&file) < before);
        other.release_dropped().expect("released");
        assert_eq!(db.reclaim().expect("reclaimed"), 0);
        db.abandon();
        other.abandon();
        file.power_cut(PowerCut::Torn, &mut |_| 0);
        holds(&mut open(&file), tree, 0..ROWS);
    }
}

/// The flushes of a commit of 40 rows, in which the slots move.
fn moves(file: &MemoryFile, db: &mut Db, tree: TreeId, rows: i64) -> u64 {
    let (slots, flushes) = (slot_pages(file), db.stats().flushes);
    write(db, tree, rows..rows + 40);
    assert!(slot_pages(file) > slots);
    db.stats().flushes - flushes
}

/// Before free pages within the file are written over, a durable header settles all commits: a record
/// may name such a page.
#[test]
fn slots_that_move_within_the_file_come_after_a_header() {
    let file = MemoryFile::new();
    let (mut db, tree) = imported(&file, 5);
    let at_the_end = moves(&file, &mut db, tree, 5);
    let file = MemoryFile::new();
    let (mut db, tree) = imported(&file, 300);
    small(&mut db, tree, 128);
    assert_eq!(slot_pages(&file), 16);
    let within = moves(&file, &mut db, tree, 300);
    assert_eq!((at_the_end, within), (1 + 2, 1 + 2 + 2));
}

/// Found by reading: the caller got `Poisoned`, and never the reason.
#[test]
fn a_flush_that_fails_while_slots_change_is_the_error_that_is_seen() {
    const ROWS: i64 = 100;
    let commits = commits_until_smaller(ROWS);
    // They become smaller, or move. Before the header, after it, and with the commit itself.
    for (is_smaller, good) in [true, false]
        .into_iter()
        .flat_map(|way| (0..3).map(move |n| (way, n)))
    {
        for reason in [ErrorKind::StorageFull, ErrorKind::InvalidData] {
            let file = MemoryFile::new();
            let (mut db, tree) = imported(&file, ROWS);
            small(&mut db, tree, commits - 1);
            let mut other = open(&file);
            db.begin_write().expect("a transaction");
            let rows = if is_smaller { 3..4 } else { 0..ROWS * 2 };
            fill(&mut db, tree, rows.clone());
            file.fail_syncs_as(reason);
            file.fail_syncs_after(good);
            let error = db.commit(Durability::Flush).expect_err("a flush");
            let is_first = matches!(&error, Error::Io { source, .. } if source.kind() == reason);
            assert!(is_first, "{is_smaller} {good}: {error}");
            file.fail_syncs(false);
            for db in [&mut db, &mut other] {
                assert!(matches!(db.begin_write(), Err(Error::Poisoned)));
            }
            drop((db, other));
            let mut db = open(&file);
            let view = db.snapshot().expect("a snapshot");
            let count = db.count(view.version(), tree).expect("counted") as i64;
            assert!(count == ROWS || (good == 2 && count == rows.end), "{count}");
            holds(&mut db, tree, 0..count);
        }
    }
}

#[test]
fn large_transactions_now_and_then_do_not_make_the_file_grow() {
    const ROWS: i64 = 300;
    let file = MemoryFile::new();
    let (mut db, tree) = imported(&file, ROWS);
    let mut sizes = Vec::new();
    for _ in 0..60 {
        small(&mut db, tree, 128);
        assert_eq!(slot_pages(&file), 16);
        write(&mut db, tree, 0..ROWS);
        assert!(slot_pages(&file) > ROWS as u32);
        sizes.push(db.status().expect("a status").pages);
    }
    println!("pages after each: {sizes:?}");
    // New slots begin behind the small ones, until there is room before them.
    let (first, early, late) = (sizes[0], sizes[35], sizes[59]);
    assert!(
        late == early && late <= first + 3 * ROWS as u32,
        "{sizes:?}"
    );
    holds(&mut db, tree, 0..ROWS);
}

#[test]
fn the_last_handle_leaves_small_slots() {
    let file = MemoryFile::new();
    let (mut db, tree) = imported(&file, 500);
    let other = open(&file);
    let large = slot_pages(&file);
    db.close().expect("closed");
    assert_eq!(slot_pages(&file), large);
    other.close().expect("closed");
    assert_eq!(slot_pages(&file), 64);
    db = open(&file);
    let status = db.status().expect("a status");
    assert!(status.free_pages >= 2 * (large - 64), "{status:?}");
    write(&mut db, tree, 500..650);
    assert_eq!(db.status().expect("a status").pages, status.pages);
    holds(&mut db, tree, 0..650);
    // A small part of the file stays.
    drop(db);
    let file = MemoryFile::new();
    let (mut db, tree) = imported(&file, 70);
    for from in (70..4_000).step_by(20) {
        write(&mut db, tree, from..from + 20);
    }
    assert!(slot_pages(&file) > 80);
    drop(db);
    assert!(slot_pages(&file) > 80);
}

/// Does `last` after `make`, and lets the handle die at its steps, in one of four ways. What
/// is there afterwards must be whole, and stay over further commits and another power cut.
fn dies_at_each_step(
    rows: i64,
    make: impl Fn(&MemoryFile) -> (Db, TreeId),
    last: impl Fn(Db, TreeId),
) {
    let mut died = 0;
    // Of the many zeros that make room for slots not each one.
    let steps = (1..20).chain((20..).step_by(7));
    for (step, way) in steps.flat_map(|step| (0..4).map(move |way| (step, way))) {
        let file = MemoryFile::new();
        let (db, tree) = make(&file);
        file.kill_after(Some(step));
        last(db, tree);
        let is_over = file.kills();
        file.kill_after(None);
        let mut random = Random::new(step * 4 + way);
        match way {
            0 => file.kill_all(),
            1 => file.power_cut(PowerCut::Torn, &mut |_| 0),
            2 => file.power_cut(PowerCut::Torn, &mut |n| n - 1),
            _ => file.power_cut(PowerCut::Torn, &mut |n| random.below(n)),
        }
        let mut db = open(&file);
        holds(&mut db, tree, 0..rows);
        small(&mut db, tree, 70);
        db.abandon();
        file.power_cut(PowerCut::Torn, &mut |n| random.below(n));
        let mut db = open(&file);
        holds(&mut db, tree, 0..rows);
        if is_over && way == 3 {
            break;
        }
        died += u64::from(!is_over);
    }
    println!("died {died} times");
    assert!(died > 20, "{died}");
}

#[test]
fn a_writer_may_die_while_slots_become_smaller() {
    const ROWS: i64 = 100;
    let commits = commits_until_smaller(ROWS);
    let make = |file: &MemoryFile| {
        let (mut db, tree) = imported(file, ROWS);
        small(&mut db, tree, commits - 1);
        (db, tree)
    };
    dies_at_each_step(ROWS, make, |mut db, tree| {
        let _ = db.begin_write();
        let _ = db.put_integer(tree, 3, &value(3));
        let _ = db.commit(Durability::Flush);
        db.abandon();
    });
}

#[test]
fn the_last_handle_may_die_while_slots_become_smaller() {
    const ROWS: i64 = 200;
    dies_at_each_step(ROWS, |file| imported(file, ROWS), |db, _| drop(db));
}

/// A commit with `Trust` has lists of pages in its record, which are free afterwards. The first slots
/// take these pages.
#[test]
fn a_writer_may_die_while_the_first_slots_take_free_pages() {
    const ROWS: i64 = 600;
    for crashes in [0, 1, 40] {
        let make = |file: &MemoryFile| {
            let options = Options {
                heal_at_once: 1,
                ..options(Torn::Trust)
            };
            let trusting = || Db::open(file.storage(), options.clone()).expect("a database");
            let mut db = trusting();
            db.begin_write().expect("a transaction");
            let tree = db.create_tree(TreeKind::Integer).expect("a tree");
            db.commit(Durability::Flush).expect("committed");
            for _ in 1..crashes {
                // Soon the header has no place for more lost versions.
                db.set_recovery_pages(1);
                small(&mut db, tree, 1);
                file.kill_all();
                std::mem::replace(&mut db, trusting()).abandon();
            }
            db.set_recovery_pages(1);
            write(&mut db, tree, 0..ROWS);
            if crashes > 0 {
                file.kill_all();
                db.abandon();
                db = open(file);
            } else {
                db.set_torn(Torn::Double).expect("changed");
            }
            db.set_recovery_pages(1);
            assert_eq!(slot_pages(file), 0);
            (db, tree)
        };
        dies_at_each_step(ROWS, make, |mut db, tree| {
            let _ = db.begin_write();
            let _ = db.put_integer(tree, 3, &value(3));
            let _ = db.commit(Durability::Flush);
            db.abandon();
        });
    }
}

/// The same where the slots are there, and move over such pages. The commit with `Trust` is the newest one,
/// or has others behind it.
#[test]
fn a_writer_may_die_while_slots_move_to_pages_that_a_record_names() {
    const ROWS: i64 = 600;
    // Changes many leaves and takes no page, so that the slots find those of the record.
    let change = |db: &mut Db| {
        let _ = db.begin_write();
        for number in 0..25 {
            let _ = db.delete_integer(TreeId(2), number * 100);
        }
        let _ = db.commit(Durability::Flush);
    };
    for (more, crashes) in [(0, false), (2, true)] {
        let make = |file: &MemoryFile| {
            let (mut db, tree) = imported(file, 5);
            assert_eq!((tree, slot_pages(file)), (TreeId(1), 16));
            db.set_torn(Torn::Trust).expect("changed");
            db.set_recovery_pages(1);
            db.begin_write().expect("a transaction");
            assert_eq!(
                db.create_tree(TreeKind::Integer).expect("a tree"),
                TreeId(2)
            );
            for key in 0..2_500 {
                db.put_integer(TreeId(2), key, &[1; 20]).expect("a row");
            }
            fill(&mut db, tree, 0..ROWS);
            db.commit(Durability::Flush).expect("committed");
            small(&mut db, tree, more);
            if crashes {
                file.kill_all();
                db.abandon();
                db = open(file);
            } else {
                db.set_torn(Torn::Double).expect("changed");
            }
            (db, tree)
        };
        let file = MemoryFile::new();
        let (mut db, _) = make(&file);
        let pages = file.bytes().len() / PAGE;
        change(&mut db);
        let start = slot_start(&file) as usize;
        assert!(slot_pages(&file) > 16 && start < pages, "{start} {pages}");
        dies_at_each_step(ROWS, make, |mut db, _| {
            change(&mut db);
            db.abandon();
        });
    }
}
