//! Handles that read the header and the directory while another one writes them: at every step of the
//! reader, the writer does all of its work.

use std::sync::{Arc, Mutex};

use lsmvbt::{Db, Durability, MemoryFile, Torn, TreeId, TreeKind, Version};

use crate::drive::options;
use crate::hooks::Hook;

const TREE: TreeId = TreeId(1);
const BEGIN: u32 = 1_800_000_000;
/// Its samples are two seconds apart.
const SPAN: u32 = 128;

fn commit(db: &mut Db, key: i64, bytes: usize) -> Version {
    db.begin_write().unwrap();
    db.put_integer(TREE, key, &vec![7; bytes]).unwrap();
    db.commit(Durability::Flush).unwrap()
}

/// A database with a tree, open.
fn made(file: &MemoryFile) -> Db {
    file.set_clock(BEGIN);
    let mut db = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    db.begin_write().unwrap();
    assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
    db.commit(Durability::Flush).unwrap();
    commit(&mut db, 1, 10);
    db
}

/// Runs `read` on a handle, with `write` before each of its steps in turn, each time in a new world of
/// `make`. `read` returns true if it was interrupted. Returns the number of steps.
pub fn at_every_step<W: Send + 'static>(
    make: impl Fn() -> (MemoryFile, W),
    write: impl Fn(&mut W) + Clone + Send + 'static,
    read: impl Fn(&MemoryFile, &Hook, &Mutex<W>, &dyn Fn()) -> bool,
) -> u64 {
    for step in 1.. {
        let (file, world) = make();
        let world = Arc::new(Mutex::new(world));
        let hook = Hook::default();
        let arm = || {
            let (world, write) = (world.clone(), write.clone());
            hook.before(step, move || write(&mut world.lock().unwrap()));
        };
        if !read(&file, &hook, &world, &arm) {
            return step - 1;
        }
    }
    0
}

/// Writes headers with another free map each: every row takes more of the free pages.
fn write_headers(db: &mut Db) {
    for _ in 0..4 {
        let key = db.current_version().unwrap().0 as i64;
        commit(db, key, 9_000);
        db.reclaim().unwrap();
    }
}

/// A database with many free pages, in a header.
fn with_free_pages() -> (MemoryFile, Db) {
    let file = MemoryFile::new();
    let mut db = made(&file);
    for bytes in [900_000, 10, 10] {
        commit(&mut db, 1, bytes);
    }
    db.reclaim().unwrap();
    write_headers(&mut db);
    assert!(db.status().unwrap().free_pages > 100);
    (file, db)
}

#[test]
fn an_open_succeeds_while_another_handle_writes_headers() {
    let steps = at_every_step(with_free_pages, write_headers, |file, hook, writer, arm| {
        arm();
        let opened = Db::open(hook.storage(file.storage()), options(Torn::Trust));
        let mut db = opened.expect("no damage");
        let interrupted = !hook.clear();
        let current = writer.lock().unwrap().current_version().unwrap();
        assert_eq!(db.status().unwrap().current, current);
        assert_eq!(db.check().unwrap(), Vec::<String>::new());
        interrupted
    });
    assert!(steps > 5, "{steps}");
}

#[test]
fn a_reader_learns_the_header_while_another_handle_writes_it() {
    let steps = at_every_step(with_free_pages, write_headers, |file, hook, writer, arm| {
        let mut db = Db::open(hook.storage(file.storage()), options(Torn::Trust)).unwrap();
        // Another one than it knows.
        writer.lock().unwrap().set_history(0).unwrap();
        arm();
        db.status().expect("no damage");
        !hook.clear()
    });
    assert!(steps > 5, "{steps}");
}

/// A history of time that has dropped its first versions, and the handle of its writer.
fn with_times() -> (MemoryFile, Db) {
    let file = MemoryFile::new();
    let mut db = made(&file);
    db.set_history_time(SPAN).unwrap();
    for second in 1..3 * SPAN {
        file.set_clock(BEGIN + second);
        commit(&mut db, 1, 10);
    }
    (file, db)
}

/// The change of the history writes a header, and then removes the samples from the directory. A header
/// with the samples of the other would keep all versions since the first history.
#[test]
fn the_history_is_that_of_one_header_and_its_directory() {
    let change = |db: &mut Db| db.set_history(3).unwrap();
    let steps = at_every_step(with_times, change, |file, hook, writer, arm| {
        let mut db = Db::open(hook.storage(file.storage()), options(Torn::Trust)).unwrap();
        let before = db.status().unwrap().oldest;
        arm();
        let found = db.status().unwrap().oldest;
        assert!(found >= before, "{found:?}, and before it was {before:?}");
        if hook.clear() {
            return false;
        }
        let kept = writer.lock().unwrap().status().unwrap().oldest;
        assert!(kept > before && found <= kept, "{kept:?}");
        true
    });
    assert!(steps > 5, "{steps}");
}

#[test]
fn the_version_of_a_time_is_never_younger_whatever_is_committed_meanwhile() {
    let make = || {
        let (file, db) = with_times();
        file.set_clock(BEGIN + 4 * SPAN);
        (file, db)
    };
    let write = |db: &mut Db| {
        commit(db, 1, 10);
    };
    let steps = at_every_step(make, write, |file, hook, writer, arm| {
        let mut db = Db::open(hook.storage(file.storage()), options(Torn::Trust)).unwrap();
        let newest = writer.lock().unwrap().current_version().unwrap();
        arm();
        let found = db.version_at(BEGIN + 3 * SPAN + 20).unwrap();
        assert_eq!(found, newest);
        !hook.clear()
    });
    assert!(steps > 5, "{steps}");
}
