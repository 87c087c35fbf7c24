//! Pages that stay in their slot: what readers, dead writers, a full disk or an open find next to them.

use std::sync::{Arc, Mutex, OnceLock};

use lsmvbt::{Db, Durability, Error, MemoryFile, Options, PowerCut, Snapshot, Torn};

use crate::headers::at_every_step;
use crate::hooks::Hook;
use crate::late::{at_once_with, far, open, value};
use crate::late_fuzz::Run;
use crate::marks::{TREE, commit, made};
use crate::random::{Random, Seed, number, seeds};

/// Words of shared memory.
const READY: usize = 0;
const WRITING: usize = 4;

/// A closed database, and its number of keys.
fn file_of_rows() -> (MemoryFile, i64) {
    static MADE: OnceLock<(Vec<u8>, i64)> = OnceLock::new();
    let (bytes, keys) = MADE.get_or_init(|| {
        let (file, keys) = made(1, Torn::Double);
        (file.bytes(), keys)
    });
    let file = MemoryFile::new();
    file.set_bytes(bytes);
    (file, *keys)
}

/// No page is late.
fn staying() -> Options {
    Options {
        late_after: 1000,
        ..at_once_with(Torn::Double)
    }
}

fn without_cache() -> Options {
    Options {
        cache_pages: 0,
        ..staying()
    }
}

/// A power cut that may tear all pages that no flush has covered.
fn tear(file: &MemoryFile, seed: u64) {
    let mut random = Random::new(seed);
    file.power_cut(PowerCut::Torn, &mut |n| match n {
        101 => 30,
        _ => random.below(n) * u64::from(n != 10) + random.below(4) * u64::from(n == 10),
    });
}

/// A commit of a page that stays in the slot, and stays there again.
fn stay(db: &mut Db, key: i64, value: u8) {
    let before = db.stats();
    commit(db, key, &[value; 500]);
    assert_eq!(db.stats().pages_written, before.pages_written);
}

fn put_all(db: &mut Db, keys: &[i64], value: u8) -> lsmvbt::Result<()> {
    db.begin_write()?;
    for key in keys {
        db.put_integer(TREE, *key, &[value; 500])?;
    }
    db.commit(Durability::Flush).map(|_| ())
}

/// The work of a writer after a page stays in its slot. The rows of [`World`] keep their values, or get 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Same,
    Neighbor,
    Other,
    Both,
    Late,
    Split,
    Delete,
    Rounds,
    Large,
    Part,
    Vacuum,
    History,
    Written,
    RolledBack,
    Savepoint,
    Settings,
}

const ALL: [Work; 16] = [
    Work::Same,
    Work::Neighbor,
    Work::Other,
    Work::Both,
    Work::Late,
    Work::Split,
    Work::Delete,
    Work::Rounds,
    Work::Large,
    Work::Part,
    Work::Vacuum,
    Work::History,
    Work::Written,
    Work::RolledBack,
    Work::Savepoint,
    Work::Settings,
];

/// Two rows in different leaves, with the value 3. The page of the first one stays.
struct World {
    rows: Vec<i64>,
    end: i64,
}

fn begin(db: &mut Db, keys: i64) -> World {
    let rows = far(keys, 8);
    for row in [rows[1], rows[0]] {
        commit(db, row, &[3; 500]);
    }
    stay(db, rows[0], 3);
    World { rows, end: keys }
}

fn delete_leaf(db: &mut Db, world: &World) -> lsmvbt::Result<()> {
    let near: Vec<i64> = (1..30).map(|k| world.rows[0] + k).collect();
    for _ in 0..4 {
        db.begin_write()?;
        for key in &near {
            db.delete_integer(TREE, *key)?;
        }
        db.commit(Durability::Flush)?;
        put_all(db, &[world.rows[0], world.rows[6]], 3)?;
    }
    Ok(())
}

fn work(db: &mut Db, world: &World, what: Work) -> lsmvbt::Result<()> {
    let (row, other) = (world.rows[0], world.rows[4]);
    match what {
        Work::Same => put_all(db, &[row], 4),
        Work::Neighbor => {
            put_all(db, &[row + 1], 4)?;
            put_all(db, &[row + 2], 4)
        }
        Work::Other => {
            put_all(db, &[other], 4)?;
            put_all(db, &[world.rows[5]], 4)
        }
        Work::Both => put_all(db, &[row, other], 4),
        Work::Late => {
            put_all(db, &[world.rows[5]], 4)?;
            put_all(db, &[other], 4)?;
            put_all(db, &[row], 4)?;
            put_all(db, &[row + 1], 4)?;
            put_all(db, &[world.rows[6]], 4)
        }
        Work::Split => {
            let near: Vec<i64> = (-3..4).map(|k| row + k * 4 + 3).collect();
            put_all(db, &near, 4)?;
            put_all(db, &[row + 1], 4)
        }
        Work::Delete => delete_leaf(db, world),
        Work::Rounds | Work::Large => {
            let pages = if what == Work::Rounds { 9 } else { 2000 };
            db.set_cache_pages(pages);
            let more: Vec<i64> = (0..60).map(|k| world.end / 61 * k / 4 * 4 + 3).collect();
            let more: Vec<i64> = more.into_iter().filter(|k| *k != row).collect();
            put_all(db, &more, 4)
        }
        Work::Part => db.vacuum_part(3).map(|_| ()),
        Work::Vacuum => db.vacuum().map(|_| ()),
        Work::History => {
            db.set_history(3)?;
            db.set_history(0)
        }
        Work::Written => {
            db.begin_write()?;
            db.put_integer(TREE, row, &[4; 500])?;
            db.write(Durability::Flush)?;
            db.commit(Durability::Flush).map(|_| ())
        }
        Work::RolledBack => {
            for _ in 0..2 {
                db.begin_write()?;
                // A crash before the rollback commits it.
                db.put_integer(TREE, row, &[4; 500])?;
                db.write(Durability::Flush)?;
                db.rollback()?;
            }
            Ok(())
        }
        Work::Savepoint => {
            db.begin_write()?;
            let savepoint = db.savepoint()?;
            db.put_integer(TREE, other, &[5; 500])?;
            db.rollback_to(savepoint)?;
            db.put_integer(TREE, row, &[4; 500])?;
            db.commit(Durability::Flush).map(|_| ())
        }
        Work::Settings => {
            db.set_torn(Torn::Trust)?;
            put_all(db, &[other], 4)?;
            db.set_torn(Torn::Double)
        }
    }
}

fn options_for(what: Work) -> Options {
    match what {
        Work::Late => at_once_with(Torn::Double),
        _ => staying(),
    }
}

fn begun(what: Work) -> (MemoryFile, Db, World) {
    let (file, keys) = file_of_rows();
    let mut db = open(&file, staying());
    let world = begin(&mut db, keys);
    let db = match what {
        Work::Late => {
            let mut other = open(&file, options_for(what));
            stay(&mut other, world.rows[0], 3);
            other
        }
        _ => db,
    };
    (file, db, world)
}

fn value_at(db: &mut Db, view: &Snapshot, key: i64) -> u8 {
    let found = db.get_integer(view.version(), TREE, key);
    let found = found.unwrap_or_else(|e| panic!("key {key}: {e}"));
    found.map_or(0, |value| value[0])
}

fn assert_rows(db: &mut Db, rows: &[i64], of: &dyn std::fmt::Debug) {
    let view = db.snapshot().expect("a snapshot");
    for row in [0, 1] {
        let found = value_at(db, &view, rows[row]);
        assert!(
            found == 3 || row == 0 && found == 4,
            "{of:?}: row {row} is {found}"
        );
    }
}

/// A reader, its snapshot of before, the rows, and the writer with what it works on, until it begins.
type Watched = (Db, Option<Snapshot>, Vec<i64>, Option<(Db, World)>);

/// A reader without a cache looks at each step of a writer. It also has a snapshot of before.
#[test]
fn a_reader_finds_the_page_at_each_step_of_a_writer() {
    for what in ALL {
        let keeps = !matches!(what, Work::Vacuum | Work::Part | Work::Settings);
        let make = || {
            let (file, db, world) = begun(what);
            let mut reader = open(&file, without_cache());
            let seen = keeps.then(|| reader.snapshot().expect("a snapshot"));
            (file, (reader, seen, world.rows.clone(), Some((db, world))))
        };
        let read = move |(reader, seen, rows, _): &mut Watched| {
            assert_rows(reader, rows, &what);
            if let Some(seen) = seen {
                assert_eq!(value_at(reader, seen, rows[0]), 3, "{what:?}");
            }
        };
        let steps = at_every_step(make, read, |file, hook: &Hook, world, arm| {
            let (_db, of) = world.lock().expect("the world").3.take().expect("once");
            let mut db = Db::open(hook.storage(file.storage()), options_for(what)).expect("opened");
            arm();
            work(&mut db, &of, what).expect("done");
            let interrupted = !hook.clear();
            let (reader, seen, rows, _) = &mut *world.lock().expect("the world");
            assert_rows(reader, rows, &what);
            if let Some(seen) = seen {
                assert_eq!(value_at(reader, seen, rows[0]), 3, "{what:?}");
            }
            interrupted
        });
        assert!(steps > 10, "{steps}");
    }
}

/// A writer does all of its work before each step of a reader without a cache.
#[test]
fn a_reader_finds_the_page_while_a_writer_works_between_its_steps() {
    for what in ALL {
        let make = || {
            let (file, db, world) = begun(what);
            (file, (db, world))
        };
        let write = move |(db, world): &mut (Db, World)| {
            work(db, world, what).expect("done");
        };
        let steps = at_every_step(make, write, |file, hook: &Hook, world, arm| {
            let rows = world.lock().expect("the world").1.rows.clone();
            let storage = hook.storage(file.storage());
            let mut reader = Db::open(storage, without_cache()).expect("opened");
            arm();
            assert_rows(&mut reader, &rows, &what);
            let interrupted = !hook.clear();
            assert_rows(&mut reader, &rows, &what);
            interrupted
        });
        assert!(steps > 10, "{steps}");
    }
}

/// A crash of all, or a power cut, in the recovery as well.
fn crash(file: &MemoryFile, what: Work, how: u64) {
    let mut random = Random::new(how);
    match how % 3 {
        0 => file.kill_all(),
        // No page may be torn that `Trust` has written.
        _ if what == Work::Settings => file.power_cut(PowerCut::Atomic, &mut |n| random.below(n)),
        _ => tear(file, how),
    }
}

/// A writer dies at each of its steps. Another handle recovers, or all of them are gone; a recovery dies too.
#[test]
fn nothing_is_lost_where_a_writer_dies() {
    for what in ALL {
        let (mut died, mut steps) = (true, 0);
        while std::mem::take(&mut died) {
            // The first ones all, and of many only some.
            steps += 1 + steps / 12;
            let is_chosen =
                |how: &u64| number("LSMVBT_SCALE").is_some() || (how + steps).is_multiple_of(5);
            for how in (0..8).filter(is_chosen) {
                let (file, mut db, world) = begun(what);
                let mut other = open(&file, without_cache());
                match how % 2 {
                    0 => file.kill_after(Some(steps)),
                    _ => file.kill_before_store(Some(steps)),
                }
                let done = work(&mut db, &world, what);
                died |= !file.kills();
                file.kill_after(None);
                file.kill_before_store(None);
                let of = (what, steps, how, done.is_ok());
                if how < 2 {
                    assert_rows(&mut other, &world.rows, &of);
                    if done.is_err() {
                        other.begin_write().expect("begun");
                        other.rollback().expect("rolled back");
                        assert_rows(&mut other, &world.rows, &of);
                    }
                    assert_eq!(
                        other.check().expect("checked"),
                        Vec::<String>::new(),
                        "{of:?}"
                    );
                }
                crash(&file, what, how);
                db.abandon();
                other.abandon();
                for again in 0..2 {
                    file.kill_after(Some(1 + steps % 7 + again));
                    if let Ok(mut db) = Db::open(file.storage(), staying()) {
                        assert_rows(&mut db, &world.rows, &of);
                        let _ = put_all(&mut db, &[world.rows[3]], 3);
                        db.abandon();
                    }
                    file.kill_after(None);
                    crash(&file, what, how + again);
                }
                let mut db = open(&file, staying());
                assert_rows(&mut db, &world.rows, &of);
                assert_eq!(db.check().expect("checked"), Vec::<String>::new(), "{of:?}");
            }
        }
    }
}

/// A head that nothing has flushed, in a database that an open has recovered.
fn with_head_in_page_cache() -> (MemoryFile, Vec<i64>) {
    let (file, keys) = file_of_rows();
    let mut db = open(&file, staying());
    let rows = begin(&mut db, keys).rows;
    // The other slot has not got the page, which is written in place then.
    commit(&mut db, rows[1], &[3; 500]);
    // Before the flush.
    file.kill_after(Some(5));
    put_all(&mut db, &rows[..1], 4).expect_err("dead");
    file.kill_all();
    db.abandon();
    (file, rows)
}

/// Nothing is written in place before the slot is durable (MV26).
#[test]
fn a_page_is_not_written_in_place_before_its_slot_is_durable() {
    for (steps, how) in (1..12).flat_map(|steps| (0..24).map(move |how| (steps, how))) {
        let (file, rows) = with_head_in_page_cache();
        let mut db = open(&file, staying());
        assert_eq!(value(&mut db, rows[0]), 4);
        let other = match how % 3 {
            1 => {
                let read_only = true;
                Some(Db::open(
                    file.storage(),
                    Options {
                        read_only,
                        ..staying()
                    },
                ))
            }
            _ => None,
        };
        file.kill_after(Some(steps));
        let _ = match how % 3 {
            0 | 1 => db.close(),
            _ => {
                let set = db.set_torn(Torn::Trust);
                db.abandon();
                set
            }
        };
        file.kill_after(None);
        tear(&file, how);
        other.into_iter().flatten().for_each(Db::abandon);
        let mut db = open(&file, staying());
        assert_rows(&mut db, &rows, &(steps, how));
        assert_eq!(db.check().expect("checked"), Vec::<String>::new());
    }
}

/// After a failed flush the page cache has dropped a head that was not on the device. Its slot has an older one.
#[test]
fn a_reader_takes_no_older_head_after_a_failed_flush() {
    let make = || {
        let (file, rows) = with_head_in_page_cache();
        let db = open(&file, staying());
        (file.clone(), (file, db, rows))
    };
    let fail = |(file, db, rows): &mut (MemoryFile, Db, Vec<i64>)| {
        file.fail_syncs(true);
        put_all(db, &rows[5..6], 5).expect_err("a failed flush");
        file.drop_page_cache(&mut |_| false);
    };
    let steps = at_every_step(make, fail, |file, hook: &Hook, world, arm| {
        let rows = world.lock().expect("the world").2.clone();
        let mut reader = Db::open(hook.storage(file.storage()), without_cache()).expect("opened");
        let view = reader.snapshot().expect("a snapshot");
        arm();
        match reader.get_integer(view.version(), TREE, rows[0]) {
            Ok(found) => assert_eq!(found.expect("a row")[0], 4),
            Err(e) => assert!(matches!(e, Error::Poisoned), "{e}"),
        }
        !hook.clear()
    });
    assert!(steps > 5, "{steps}");
}

/// A power cut has kept a header whose floor is above the slot, and not the page in place. Then a writer dies.
#[test]
fn a_page_stays_below_a_floor_that_has_moved() {
    let mut above = 0;
    for (ticks, kept) in (1..14).flat_map(|ticks| (0..6).map(move |kept| (ticks, kept))) {
        let (file, keys) = file_of_rows();
        let mut db = open(&file, staying());
        let rows = begin(&mut db, keys).rows;
        let slot = db.current_version().expect("a version");
        for _ in 0..3 {
            db.begin_write().expect("begun");
            db.put_integer(TREE, rows[4], &[5; 500]).expect("put");
            db.rollback().expect("rolled back");
        }
        // So many marks that the floor moves.
        let more: Vec<i64> = (keys..keys + 400).collect();
        file.kill_after(Some(ticks));
        let _ = put_all(&mut db, &more, 5);
        file.kill_after(None);
        let mut pages = 0;
        file.power_cut(PowerCut::Atomic, &mut |n| match n {
            101 => 50,
            100 => {
                pages += 1;
                if pages <= kept { 0 } else { 99 }
            }
            _ => 9 % n,
        });
        db.abandon();
        let (mut db, mut other) = (open(&file, staying()), open(&file, staying()));
        assert_rows(&mut db, &rows, &(ticks, kept));
        above += u64::from(db.current_version().expect("a version") > slot);
        // As a writer leaves it that has died.
        file.storage().shm_store(WRITING, 1).expect("stored");
        other.begin_write().expect("begun");
        other.rollback().expect("rolled back");
        assert_rows(&mut db, &rows, &(ticks, kept));
        assert_rows(&mut other, &rows, &(ticks, kept));
    }
    assert!(above > 0);
}

/// A release before pages stayed in their slot does not look at the word, and would fill the slot.
#[test]
fn a_release_that_knows_of_no_page_in_a_slot_is_not_joined() {
    let file = MemoryFile::new();
    let db = open(&file, staying());
    let storage = file.storage();
    let ready = storage.shm_load(READY).expect("loaded");
    storage
        .shm_store(READY, 0x4c53_4d56_4254_000a)
        .expect("stored");
    assert!(matches!(
        Db::open(file.storage(), staying()),
        Err(Error::Busy)
    ));
    storage.shm_store(READY, ready).expect("stored");
    drop(db);
}

/// The pages that change.
fn pages_of(what: Work) -> Vec<u64> {
    let (file, mut db, world) = begun(what);
    let before = file.bytes();
    work(&mut db, &world, what).expect("done");
    let after = file.bytes();
    let pages = after.chunks(4096).enumerate();
    let is_other = |at: usize, page: &[u8]| before.chunks(4096).nth(at) != Some(page);
    let changed = pages.filter(|(at, page)| is_other(*at, page));
    changed.map(|(at, _)| at as u64).collect()
}

/// One page finds the disk full, where the file system copies on write.
#[test]
fn a_full_disk_takes_no_page_back() {
    let mut refused = 0;
    for what in [
        Work::Same,
        Work::Other,
        Work::Both,
        Work::Late,
        Work::Split,
        Work::Part,
    ] {
        for page in pages_of(what) {
            let (file, mut db, world) = begun(what);
            file.refuse_writes_of(Some(page..page + 1));
            let done = work(&mut db, &world, what);
            file.refuse_writes_of(None);
            refused += u64::from(done.is_err());
            let of = (what, page);
            let mut other = Db::open(file.storage(), without_cache());
            if let Ok(other) = &mut other {
                assert_rows(other, &world.rows, &of);
                if done.is_err() && matches!(what, Work::Same | Work::Both) {
                    assert_eq!(value(other, world.rows[0]), 3, "{of:?}");
                }
            }
            if page % 2 == 0 {
                let _ = put_all(&mut db, &[world.rows[7]], 3);
            }
            tear(&file, page);
            db.abandon();
            other.into_iter().for_each(Db::abandon);
            let mut db = open(&file, staying());
            assert_rows(&mut db, &world.rows, &of);
        }
    }
    println!("{refused} refused");
    assert!(refused > 10, "{refused}");
}

/// Handles take turns, with and without pages that stay.
#[test]
fn handles_that_take_turns_find_the_page() {
    let (file, keys) = file_of_rows();
    let rows = far(keys, 8);
    let options = [0, 2, 1000, u32::MAX].map(|late_after| Options {
        late_after,
        ..without_cache()
    });
    let mut handles = options.map(|options| open(&file, options));
    let reader = Arc::new(Mutex::new(open(
        &file,
        Options {
            read_only: true,
            ..without_cache()
        },
    )));
    for round in 0..120usize {
        let number = (round / 3 + round * round) % 4;
        let row = rows[round * 7 % 11 / 6];
        commit(&mut handles[number], row, &[round as u8; 500]);
        for handle in &mut handles {
            assert_eq!(value(handle, row), round as u8);
        }
        assert_eq!(
            value(&mut reader.lock().expect("a reader"), row),
            round as u8
        );
    }
}

#[test]
fn nothing_is_lost_whatever_happens_to_pages_that_stay() {
    let (file, keys) = made(1, Torn::Trust);
    let bytes = file.bytes();
    let (mut late, mut looks) = (0, 0);
    let both = |seed| [false, true].map(|is_mixed| (seed, is_mixed));
    for (seed, is_mixed) in seeds(20).into_iter().flat_map(both) {
        let _told = Seed("stays", seed);
        let mut run = Run::of_neighbors(seed, is_mixed, &bytes, keys);
        for _ in 0..150 {
            run.step();
        }
        run.crash();
        late += run.late;
        looks += *run.looks.lock().expect("a number");
    }
    println!("{late} late commits, {looks} looks");
}
