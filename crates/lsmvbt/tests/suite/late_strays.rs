//! Late pages where a handle has an old view of what others share: the setting for torn pages, its cache, or the
//! numbers of versions.

use lsmvbt::{Db, Durability, MemoryFile, Options, PowerCut, Torn};

use crate::headers::at_every_step;
use crate::hooks::Hook;
use crate::late::{BOTH, at_once_with, far, open, value};
use crate::marks::{TREE, commit, made};

/// All pages that no flush has covered are torn: the second half is new.
fn tear(file: &MemoryFile, new: u64) {
    let mut sector = 0;
    file.power_cut(PowerCut::Torn, &mut |n| match n {
        2 => {
            sector += 1;
            (sector + new + 1) % 2
        }
        100 => 99,
        _ => 0,
    });
}

/// The process of this handle dies, outside of a transaction.
fn die(file: &MemoryFile, mut db: Db) {
    file.kill_before_store(Some(1));
    assert!(db.begin_write().is_err());
    file.kill_before_store(None);
    db.abandon();
}

/// A handle that has opened the file with another setting closes it last, next to a page that is late.
#[test]
fn the_last_handle_brings_the_late_page_home_by_the_setting_of_all() {
    for (steps, new) in (1..60).flat_map(|steps| [0, 1].map(|new| (steps, new))) {
        let (file, keys) = made(1, Torn::Trust);
        let rows = far(keys, 8);
        let first = open(&file, at_once_with(Torn::Trust));
        let mut db = open(&file, at_once_with(Torn::Trust));
        db.set_torn(Torn::Double).expect("set");
        for row in &rows[..4] {
            // A new row before another one: its cell stands behind.
            commit(&mut db, *row - 1, &[2; 300]);
        }
        assert!(db.stats().late_commits > 1);
        die(&file, db);
        file.kill_after(Some(steps));
        let closed = first.close();
        let killed = !file.kills();
        file.kill_after(None);
        if !killed {
            closed.expect("closed");
        }
        tear(&file, new);
        let mut db = open(&file, at_once_with(Torn::Double));
        for row in &rows[..4] {
            assert_eq!(value(&mut db, *row - 1), 2, "{steps} {new}");
        }
        assert_eq!(db.check().expect("checked"), Vec::<String>::new());
        if !killed {
            return;
        }
    }
}

/// The same the other way round: the file has no slots.
#[test]
fn the_last_handle_needs_no_slots_where_pages_do_not_tear() {
    let (file, keys) = made(1, Torn::Trust);
    let rows = far(keys, 8);
    let mut db = open(&file, at_once_with(Torn::Double));
    let first = open(&file, at_once_with(Torn::Double));
    db.set_torn(Torn::Trust).expect("set");
    for row in &rows[..4] {
        commit(&mut db, *row, &[2; 500]);
    }
    assert!(db.stats().late_commits > 1);
    die(&file, db);
    first.close().expect("closed");
    let mut db = open(&file, at_once_with(Torn::Trust));
    for row in &rows[..4] {
        assert_eq!(value(&mut db, *row), 2);
    }
}

/// A commit that changes the late page once more is refused, and its page was written all the same. The cache
/// has the page no more.
#[test]
fn a_refused_change_of_the_late_page_leaves_nothing_where_no_cache_has_it() {
    let (file, keys) = made(1, Torn::Trust);
    let rows = far(keys, 60);
    let hook = Hook::default();
    let options = Options {
        cache_pages: 16,
        ..at_once_with(Torn::Trust)
    };
    let mut db = Db::open(hook.storage(file.storage()), options).expect("opened");
    for row in &rows[..4] {
        commit(&mut db, *row, &[2; 500]);
    }
    db.begin_write().expect("begun");
    db.put_integer(TREE, rows[3], &[3; 500]).expect("put");
    let view = db.write_version().expect("a version");
    for row in &rows[10..] {
        for _ in 0..2 {
            db.get_integer(view, TREE, *row).expect("read");
        }
    }
    hook.next_write_is_full();
    db.commit(Durability::Flush).expect_err("full");
    assert_eq!(value(&mut db, rows[3]), 2);
    commit(&mut db, rows[5], &[4; 500]);
    assert_eq!(value(&mut db, rows[3]), 2);
    let mut other = open(&file, at_once_with(Torn::Trust));
    assert_eq!(value(&mut other, rows[3]), 2);
    assert_eq!(other.check().expect("checked"), Vec::<String>::new());
}

/// The number of a refused commit counts as used, also where a writer has died since then and left nothing. Its
/// handle must not take the commit of another one for its own.
#[test]
fn no_number_is_used_again_after_a_writer_has_died() {
    let double = || at_once_with(Torn::Double);
    for skipped in 0..4 {
        let (file, keys) = made(1, Torn::Double);
        let rows = far(keys, 8);
        let mut other = open(&file, double());
        // The refused commit is the last one before those that leave a page late.
        let late_after = 2;
        let mut db = open(
            &file,
            Options {
                late_after,
                ..double()
            },
        );
        commit(&mut db, rows[0], &[2; 500]);
        for _ in 0..skipped {
            other.begin_write().expect("begun");
            other.rollback().expect("rolled back");
        }
        file.refuse_writes_of(Some(0..u64::MAX));
        db.begin_write().expect("begun");
        let refused = db.write_version().expect("a version");
        db.put_integer(TREE, rows[1], &[9; 500]).expect("put");
        db.commit(Durability::Flush).expect_err("full");
        file.refuse_writes_of(None);
        let mut third = open(&file, double());
        third.begin_write().expect("begun");
        third.put_integer(TREE, rows[2], &[9; 500]).expect("put");
        file.kill_after(Some(1));
        third.commit(Durability::Flush).expect_err("dead");
        third.abandon();
        commit(&mut other, rows[3], &[3; 500]);
        let is_newer = other.current_version().expect("a version") > refused;
        commit(&mut db, rows[7], &[4; 500]);
        file.kill_all();
        db.abandon();
        other.abandon();
        let mut db = open(&file, double());
        for (row, expected) in [(0, 2), (1, 1), (2, 1), (3, 3), (7, 4)] {
            assert_eq!(value(&mut db, rows[row]), expected, "{skipped}: {row}");
        }
        assert!(is_newer, "{skipped}: a number was given twice");
    }
}

/// A writer dies while it brings the late page home, which is no commit. The next one finds the page at home, and
/// the word that says that it is late.
#[test]
fn a_commit_succeeds_after_a_writer_has_died_that_brought_the_late_page_home() {
    for torn in BOTH {
        let mut refused = Vec::new();
        for steps in 1.. {
            let (file, keys) = made(1, torn);
            let rows = far(keys, 8);
            let mut other = open(&file, at_once_with(torn));
            let mut db = open(&file, at_once_with(torn));
            for row in &rows[..4] {
                commit(&mut db, *row - 1, &[2; 300]);
            }
            file.kill_after(Some(steps));
            let done = db.vacuum_part(0);
            let killed = !file.kills();
            file.kill_after(None);
            db.abandon();
            other.begin_write().expect("begun");
            other.put_integer(TREE, rows[5], &[3; 300]).expect("put");
            if let Err(e) = other.commit(Durability::Flush) {
                refused.push((steps, e.to_string()));
            }
            for row in &rows[..4] {
                assert_eq!(value(&mut other, *row - 1), 2, "{torn:?} {steps}");
            }
            if !killed {
                done.expect("nothing given back");
                break;
            }
        }
        assert_eq!(refused, [], "{torn:?}");
    }
}

/// A writer dies while it writes in place what its slot has, with the late page. Another one redoes the slot. At
/// each of its steps a reader finds the late page.
#[test]
fn a_reader_finds_the_late_page_while_another_handle_redoes_the_slot() {
    let double = || at_once_with(Torn::Double);
    let (file, keys) = made(1, Torn::Double);
    let (bytes, rows) = (file.bytes(), far(keys, 8));
    let mut steps = 0;
    for dies_at in 7..14 {
        let make = || {
            let file = MemoryFile::new();
            file.set_bytes(&bytes);
            let reader = open(&file, double());
            (file, (reader, rows[5]))
        };
        let read = |(db, key): &mut (Db, i64)| assert_eq!(value(db, *key), 3);
        steps += at_every_step(make, read, |file, hook: &Hook, _, arm| {
            let mut next = Db::open(hook.storage(file.storage()), double()).expect("opened");
            let mut db = open(file, double());
            for row in [0, 1, 5] {
                commit(&mut db, rows[row], &[3; 500]);
            }
            assert!(db.stats().late_commits > 1);
            file.kill_after(Some(dies_at));
            db.begin_write().expect("begun");
            for row in &rows[1..4] {
                db.put_integer(TREE, *row, &[4; 500]).expect("put");
            }
            let _ = db.commit(Durability::Flush);
            file.kill_after(None);
            db.abandon();
            arm();
            next.begin_write().expect("begun");
            let interrupted = !hook.clear();
            next.rollback().expect("rolled back");
            interrupted
        });
    }
    assert!(steps > 100, "{steps}");
}
