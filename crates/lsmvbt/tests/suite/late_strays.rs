//! Late pages where a handle has an old view of what others share: the setting for torn pages, its cache, or the
//! numbers of versions.

use lsmvbt::{Db, Durability, MemoryFile, Options, PowerCut, Torn};

use crate::hooks::Hook;
use crate::late::{at_once_with, far, open, value};
use crate::marks::{TREE, commit, made};

/// All pages that no flush has covered are torn: the second half is new.
fn tear(file: &MemoryFile, new: u64) {
    let mut sector = 0;
    file.power_cut(PowerCut::Torn, &mut |n| match n {
        2 => {
            sector += 1;
            u64::from((sector + new) % 2 == 0)
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
    std::mem::forget(db);
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
