//! Commits that write one page which is not the one they change: their cost, the readers of a late page,
//! and that no crash loses it.

use std::collections::BTreeMap;

use lsmvbt::{Db, Durability, Error, MemoryFile, Options, PowerCut, Torn};

use crate::drive::options;
use crate::headers::at_every_step;
use crate::hooks::Hook;
use crate::marks::{TREE, commit, made};
use crate::random::{Random, Seed, seeds};

/// Options with which each commit that may leaves its page late, also in a small file.
pub fn at_once_with(torn: Torn) -> Options {
    Options {
        recovery_pages: 64,
        heal_at_once: 64,
        late_after: 0,
        ..options(torn)
    }
}

pub fn at_once() -> Options {
    at_once_with(Torn::Trust)
}

pub const BOTH: [Torn; 2] = [Torn::Trust, Torn::Double];

/// The power cuts that a device allows whose pages are written like this.
pub fn cut_of(torn: Torn) -> PowerCut {
    match torn {
        Torn::Double => PowerCut::Torn,
        _ => PowerCut::Atomic,
    }
}

pub fn open(file: &MemoryFile, options: Options) -> Db {
    Db::open(file.storage(), options).expect("opened")
}

pub fn value(db: &mut Db, key: i64) -> u8 {
    let view = db.snapshot().expect("a snapshot");
    let value = db.get_integer(view.version(), TREE, key).expect("read");
    value.map_or(0, |value| value[0])
}

/// Keys of rows in different leaves.
pub fn far(keys: i64, count: i64) -> Vec<i64> {
    (1..=count)
        .map(|i| i * keys / (count + 1) / 4 * 4 + 1)
        .collect()
}

#[test]
fn a_random_commit_writes_one_page_whatever_the_size() {
    for (mebibytes, torn) in [16, 64]
        .into_iter()
        .flat_map(|size| BOTH.map(|torn| (size, torn)))
    {
        let (file, keys) = made(mebibytes, torn);
        let mut db = open(&file, options(torn));
        let mut dice = Random::new(7);
        let mut key = || dice.below(keys as u64 / 4) as i64 * 4 + 1;
        for _ in 0..20 {
            commit(&mut db, key(), &[2; 500]);
        }
        let before = db.stats();
        for _ in 0..1000 {
            commit(&mut db, key(), &[3; 500]);
        }
        let after = db.stats();
        let slots = after.slot_pages_written - before.slot_pages_written;
        let pages = after.pages_written - before.pages_written + slots;
        let header = after.header_pages_written - before.header_pages_written;
        let flushes = after.flushes - before.flushes;
        let late = after.late_commits - before.late_commits;
        file.kill_all();
        db.abandon();
        let mut db = open(&file, options(torn));
        let read = db.stats().pages_read;
        println!(
            "{mebibytes} MiB, {torn:?}: {pages} pages, {header} of the header, {flushes} flushes, {late} late; recovery reads {read}"
        );
        assert!(pages + header <= 1100, "{pages} {header}");
        assert!(flushes <= 1050, "{flushes}");
        assert!(read <= 40, "{read}");
        assert_eq!(db.check().expect("checked"), Vec::<String>::new());
    }
}

/// A commit of two leaves after each few of one: what they would save is not worth the flush with which
/// they end.
#[test]
fn commits_that_change_more_do_not_pay_for_late_pages() {
    for single in [12, 24] {
        let count = |late_after| {
            let (file, keys) = made(2, Torn::Trust);
            let mut db = open(
                &file,
                Options {
                    late_after,
                    ..options(Torn::Trust)
                },
            );
            let mut dice = Random::new(5);
            let mut key = || dice.below(keys as u64 / 4) as i64 * 4 + 1;
            for _ in 0..1300 / (single + 1) {
                for _ in 0..single {
                    commit(&mut db, key(), &[2; 500]);
                }
                db.begin_write().expect("begun");
                for key in [key(), key()] {
                    db.put_integer(TREE, key, &[3; 500]).expect("put");
                }
                db.commit(Durability::Flush).expect("committed");
            }
            db.stats()
        };
        let (with, without) = (count(8), count(u32::MAX));
        println!(
            "{single}: {} flushes, {} and {} of the header; without {}, {} and {}",
            with.flushes,
            with.pages_written,
            with.header_pages_written,
            without.flushes,
            without.pages_written,
            without.header_pages_written
        );
        assert!(with.flushes * 100 <= without.flushes * 102);
    }
}

#[test]
fn none_is_late_where_that_is_off() {
    let (file, keys) = made(1, Torn::Trust);
    let mut db = open(
        &file,
        Options {
            late_after: u32::MAX,
            ..at_once()
        },
    );
    for key in far(keys, 30) {
        commit(&mut db, key, &[2; 500]);
    }
    assert_eq!(db.stats().late_commits, 0);
}

#[test]
fn other_handles_read_a_late_page_and_earlier_versions_of_it() {
    let (file, keys) = made(1, Torn::Trust);
    let mut writer = open(&file, at_once());
    let mut reader = open(
        &file,
        Options {
            cache_pages: 0,
            ..at_once()
        },
    );
    let rows = far(keys, 40);
    for (round, key) in rows.iter().enumerate() {
        let before = reader.snapshot().expect("a snapshot");
        commit(&mut writer, *key, &[2; 500]);
        assert_eq!(value(&mut reader, *key), 2, "{round}");
        let seen = reader.get_integer(before.version(), TREE, *key);
        assert_eq!(seen.expect("read"), Some(vec![1; 500]), "{round}");
        assert_eq!(value(&mut writer, *key), 2, "{round}");
    }
    assert!(writer.stats().late_commits > 30);
    // Each may go on with the page that the other one has left.
    for (round, key) in rows.iter().enumerate() {
        let db = if round % 2 == 0 {
            &mut reader
        } else {
            &mut writer
        };
        commit(db, *key, &[3; 500]);
    }
    assert!(reader.stats().late_commits > 10);
    for key in &rows {
        assert_eq!(value(&mut reader, *key), 3);
        assert_eq!(value(&mut writer, *key), 3);
    }
    assert_eq!(reader.check().expect("checked"), Vec::<String>::new());
}

/// While a handle reads the late page, another one brings it home, and writes its carrier.
#[test]
fn a_reader_finds_a_late_page_at_any_moment() {
    for (by_force, torn) in [false, true]
        .into_iter()
        .flat_map(|by| BOTH.map(|torn| (by, torn)))
    {
        let make = || {
            let (file, keys) = made(1, torn);
            let mut db = open(&file, at_once_with(torn));
            let rows = far(keys, 6);
            for key in &rows[..4] {
                commit(&mut db, *key, &[2; 500]);
            }
            assert!(db.stats().late_commits > 1);
            (file, (db, rows))
        };
        let write = move |(db, rows): &mut (Db, Vec<i64>)| {
            if by_force {
                // Not of one leaf: the late page comes home first.
                db.begin_write().expect("begun");
                for key in &rows[1..3] {
                    db.put_integer(TREE, *key, &[3; 500]).expect("put");
                }
                db.commit(Durability::Flush).expect("committed");
            }
            for key in [rows[4], rows[2], rows[3], rows[2]] {
                commit(db, key, &[4; 500]);
            }
        };
        let steps = at_every_step(make, write, |file, hook: &Hook, world, arm| {
            let rows = world.lock().expect("the world").1.clone();
            let mut reader =
                Db::open(hook.storage(file.storage()), at_once_with(torn)).expect("opened");
            let view = reader.snapshot().expect("a snapshot");
            arm();
            let row = reader.get_integer(view.version(), TREE, rows[3]);
            assert_eq!(row.expect("read"), Some(vec![2; 500]));
            !hook.clear()
        });
        assert!(steps > 3, "{steps}");
    }
}

// ---- crashes

/// The rows, by key, as all acknowledged commits have left them.
type Rows = BTreeMap<i64, u8>;

/// The next step after a late page.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// A commit of another row, so the page comes home.
    Another,
    /// The row of the late page.
    Same,
    /// A row of the page that carries its change.
    Carrier,
    /// Rows of several pages.
    Several,
    /// The same without a flush, and then one with it.
    Later,
    /// Rows of more pages than the cache holds.
    Spills,
    SpillsAndGoesBack,
    /// Written, and rolled back.
    WrittenBack,
    Double,
    Vacuum,
    Reclaim,
    History,
    /// By another handle.
    Other,
    Close,
    /// Every commit writes the header.
    NoEmbedding,
}

const ALL: [Next; 15] = [
    Next::Another,
    Next::Same,
    Next::Carrier,
    Next::Several,
    Next::Later,
    Next::Spills,
    Next::SpillsAndGoesBack,
    Next::WrittenBack,
    Next::Double,
    Next::Vacuum,
    Next::Reclaim,
    Next::History,
    Next::Other,
    Next::Close,
    Next::NoEmbedding,
];

struct World {
    file: MemoryFile,
    torn: Torn,
    /// Rows of leaves of their own.
    keys: Vec<i64>,
    rows: Rows,
    /// The rows after the commit under way, and after those before it that are not acknowledged.
    next: Vec<Rows>,
    value: u8,
}

impl World {
    fn new(torn: Torn) -> World {
        let (file, keys) = made(1, torn);
        let keys = far(keys, 60);
        World {
            rows: keys.iter().map(|key| (*key, 1)).collect(),
            file,
            torn,
            keys,
            next: Vec::new(),
            value: 1,
        }
    }

    /// Changes these rows in a transaction, which stays open.
    fn put(&mut self, db: &mut Db, keys: &[i64]) -> lsmvbt::Result<()> {
        self.value = self.value % 250 + 1;
        let mut next = self.next.last().unwrap_or(&self.rows).clone();
        db.begin_write()?;
        for key in keys {
            db.put_integer(TREE, *key, &[self.value; 500])?;
            next.insert(*key, self.value);
        }
        self.next.push(next);
        Ok(())
    }

    fn commit(&mut self, db: &mut Db, keys: &[i64]) -> lsmvbt::Result<()> {
        self.put(db, keys)?;
        db.commit(Durability::Flush)?;
        self.acknowledged();
        Ok(())
    }

    fn acknowledged(&mut self) {
        if let Some(next) = self.next.pop() {
            self.rows = next;
        }
        self.next.clear();
    }

    /// So many commits of a row each; the last two of these rows.
    fn go(&mut self, db: &mut Db, random: &mut Random, commits: u64) -> lsmvbt::Result<(i64, i64)> {
        let mut last = (self.keys[0], self.keys[0]);
        for _ in 0..commits {
            let key = *random.pick(&self.keys);
            self.commit(db, &[key])?;
            last = (last.1, key);
        }
        Ok(last)
    }

    fn follow(&mut self, mut db: Db, next: Next, random: &mut Random) -> lsmvbt::Result<()> {
        let commits = 2 + random.below(20);
        let (before, late) = self.go(&mut db, random, commits)?;
        let some: Vec<i64> = self.keys.iter().copied().step_by(7).collect();
        let many: Vec<i64> = self.keys.iter().copied().step_by(2).collect();
        let spills = |db: &mut Db| db.set_cache_pages(8);
        match next {
            Next::Another => self.go(&mut db, random, 3).map(|_| ()),
            Next::Same => self.commit(&mut db, &[late]),
            Next::Carrier => self.commit(&mut db, &[before]),
            Next::Several => self.commit(&mut db, &some),
            Next::Later => {
                self.put(&mut db, &some[..1])?;
                db.commit(Durability::Later)?;
                self.put(&mut db, &some[1..2])?;
                db.commit(Durability::Flush)?;
                self.acknowledged();
                Ok(())
            }
            Next::Spills => {
                spills(&mut db);
                self.commit(&mut db, &many)
            }
            Next::SpillsAndGoesBack => {
                spills(&mut db);
                self.put(&mut db, &many)?;
                db.rollback()?;
                self.next.clear();
                self.commit(&mut db, &[late])
            }
            Next::WrittenBack => {
                self.put(&mut db, &[late])?;
                db.write(Durability::Flush)?;
                db.rollback()?;
                self.next.clear();
                self.commit(&mut db, &[late])
            }
            Next::Double => {
                db.set_torn(Torn::Double)?;
                self.commit(&mut db, &[before])
            }
            Next::Vacuum => db.vacuum().map(|_| ()),
            Next::Reclaim => db.reclaim().map(|_| ()),
            Next::History => {
                db.set_history(3)?;
                self.commit(&mut db, &[before])
            }
            Next::Other => {
                let mut other = Db::open(self.file.storage(), at_once_with(self.torn))?;
                self.commit(&mut other, &some[..2])?;
                self.go(&mut other, random, 2)?;
                self.go(&mut db, random, 2).map(|_| ())
            }
            Next::Close => db.close(),
            Next::NoEmbedding => {
                let optimizations = lsmvbt::Optimizations {
                    metadata_embedding: false,
                    ..Default::default()
                };
                db.set_optimizations(optimizations)?;
                self.commit(&mut db, &[before])
            }
        }
    }

    fn crash(&self, random: &mut Random) {
        self.file.kill_after(None);
        match random.chance(70) {
            true => self
                .file
                .power_cut(cut_of(self.torn), &mut |n| random.below(n)),
            false => self.file.kill_all(),
        }
    }

    /// The rows are those of the acknowledged commits, or of the one that was under way.
    fn check(&mut self, torn: Torn, what: Next) {
        let mut db = open(&self.file, Options { torn, ..at_once() });
        let found: Rows = self
            .keys
            .iter()
            .map(|key| (*key, value(&mut db, *key)))
            .collect();
        if !self.next.contains(&found) {
            assert_eq!(found, self.rows, "{what:?}");
        }
        self.rows = found;
        self.next.clear();
        assert_eq!(db.check().expect("checked"), Vec::<String>::new());
        // A commit that was under way is durable after this.
        db.flush().expect("flushed");
        db.abandon();
    }
}

/// A crash at a random step of what follows a late page, and of the recovery, by a kill or a power cut.
#[test]
fn whatever_follows_a_late_page_loses_nothing() {
    let mut late = 0;
    for (seed, torn) in seeds(40)
        .into_iter()
        .flat_map(|seed| BOTH.map(|torn| (seed, torn)))
    {
        let _told = Seed("late", seed);
        let mut random = Random::new(seed);
        let mut world = World::new(torn);
        // On a device that tears pages, only `Double` may open it.
        let any = |random: &mut Random| match torn {
            Torn::Double => torn,
            _ => *random.pick(&BOTH),
        };
        for next in ALL {
            let mut db = open(&world.file, at_once_with(torn));
            let most = *random.pick(&[20, 100, 300]);
            world.file.kill_after(Some(1 + random.below(most)));
            let _ = world.go(&mut db, &mut random, 1);
            late += db.stats().late_commits;
            let _ = world.follow(db, next, &mut random);
            world.crash(&mut random);
            // A recovery that is cut as well.
            let options = at_once_with(any(&mut random));
            world.file.kill_after(Some(1 + random.below(20)));
            Db::open(world.file.storage(), options)
                .into_iter()
                .for_each(Db::abandon);
            world.crash(&mut random);
            world.check(any(&mut random), next);
            world.crash(&mut random);
        }
    }
    println!("{late}");
}

/// The next open is one of `Double`, on a device that tears pages. The late page comes home through a slot.
#[test]
fn a_late_page_comes_home_through_a_slot_where_pages_may_tear() {
    for seed in seeds(60) {
        let _told = Seed("late slot", seed);
        let mut random = Random::new(seed);
        let mut world = World::new(Torn::Trust);
        let mut db = open(&world.file, at_once());
        let commits = 3 + random.below(9);
        world.go(&mut db, &mut random, commits).expect("committed");
        assert!(db.stats().late_commits > 0);
        db.abandon();
        world.file.power_cut(PowerCut::Atomic, &mut |_| 0);
        for _ in 0..6 {
            world.file.kill_after(Some(1 + random.below(25)));
            let torn = Torn::Double;
            if let Ok(mut db) = Db::open(world.file.storage(), Options { torn, ..at_once() }) {
                let _ = world.go(&mut db, &mut random, 1);
                db.abandon();
            }
            world.file.kill_after(None);
            world
                .file
                .power_cut(PowerCut::Torn, &mut |n| random.below(n));
            world.check(Torn::Double, Next::Double);
            world
                .file
                .power_cut(PowerCut::Torn, &mut |n| random.below(n));
        }
    }
}

/// A file system that copies on write has no room for the page that a commit writes.
#[test]
fn a_full_disk_refuses_a_commit_and_the_late_page_stays() {
    let mut world = World::new(Torn::Trust);
    let mut random = Random::new(3);
    let mut db = open(&world.file, at_once());
    let mut refused = 0;
    for round in 0..30 {
        world.go(&mut db, &mut random, 2).expect("committed");
        let pages = u64::from(db.pages().expect("pages"));
        let half = pages / 2;
        let range = if round % 2 == 0 { 0..half } else { half..pages };
        world.file.refuse_writes_of(Some(range));
        let key = *random.pick(&world.keys);
        let done = world.commit(&mut db, &[key]);
        world.file.refuse_writes_of(None);
        match done {
            Ok(()) => {}
            Err(Error::Io { .. }) => refused += 1,
            Err(Error::Poisoned) => panic!("one commit had no room, and all is over"),
            Err(e) => panic!("{e}"),
        }
        if world.next.pop().is_some() {
            drop(db);
            db = open(&world.file, at_once());
        }
        for (key, expected) in world.rows.clone() {
            assert_eq!(value(&mut db, key), expected, "{round}");
        }
    }
    assert!(refused > 5, "{refused}");
    assert_eq!(db.check().expect("checked"), Vec::<String>::new());
}

/// The same where the page is there all the same. The rollback may be cut at any of its steps.
#[test]
fn a_commit_that_is_refused_and_yet_written_is_taken_back() {
    let mut poisoned = 0;
    for (seed, torn) in seeds(400)
        .into_iter()
        .flat_map(|seed| BOTH.map(|torn| (seed, torn)))
    {
        let _told = Seed("refused", seed);
        let mut random = Random::new(seed);
        let mut world = World::new(torn);
        let hook = Hook::default();
        let mut db =
            Db::open(hook.storage(world.file.storage()), at_once_with(torn)).expect("opened");
        let mut other = open(&world.file, at_once_with(torn));
        let commits = 3 + random.below(9);
        let (_, late) = world.go(&mut db, &mut random, commits).expect("committed");
        if random.chance(50) {
            // None is late then.
            world.commit(&mut db, &[late]).expect("committed");
        }
        hook.next_write_is_full();
        let steps = random.below(12);
        world.file.kill_after((steps > 2).then_some(steps));
        let key = if random.chance(60) {
            late
        } else {
            *random.pick(&world.keys)
        };
        let refused = world.commit(&mut db, &[key]);
        assert!(refused.is_err());
        let killed = steps > 2 && !world.file.kills();
        world.file.kill_after(None);
        let again = match killed {
            true => Ok(()),
            false => db.begin_write().and_then(|_| db.rollback()),
        };
        if torn == Torn::Double && matches!(again, Err(Error::Poisoned)) {
            // It cannot be taken back: all handles must be closed.
            poisoned += 1;
            drop((db, other));
            if random.chance(50) {
                world.crash(&mut random);
            }
            world.check(torn, Next::Another);
            continue;
        }
        if !killed {
            world.next.clear();
            world.go(&mut db, &mut random, 2).expect("committed");
        }
        match random.chance(50) {
            // Another handle goes on.
            true => {
                other.begin_write().expect("begun");
                other.rollback().expect("rolled back");
            }
            false => world.crash(&mut random),
        }
        if !world.file.kills() && random.chance(50) {
            world.crash(&mut random);
        }
        db.abandon();
        world.check(torn, Next::Another);
        drop(other);
    }
    assert!(poisoned > 0 || seeds(400).len() < 400);
}

// ---- format 6

/// Databases as the release left them that wrote format 6: 60 rows, each committed alone. Two are as a power
/// cut has left them, with `Trust` and with `Double`.
const OF_FORMAT_6: [(&[u8], Torn); 3] = [
    (include_bytes!("format6/cut-trust.lsmvbt"), Torn::Trust),
    (include_bytes!("format6/cut-double.lsmvbt"), Torn::Double),
    (include_bytes!("format6/closed.lsmvbt"), Torn::Trust),
];

/// The digits of the formats in both headers.
fn formats(bytes: &[u8]) -> [u8; 2] {
    [bytes[14], bytes[4096 + 14]]
}

#[test]
fn a_database_of_format_6_is_read_and_is_of_the_newest_before_a_page_is_late() {
    for (bytes, torn) in OF_FORMAT_6 {
        assert_eq!(formats(bytes), *b"66");
        let file = MemoryFile::new();
        file.set_bytes(bytes);
        let options = Options { torn, ..at_once() };
        let mut db = open(&file, options.clone());
        for key in 0..60 {
            assert_eq!(value(&mut db, key), 2);
        }
        assert_eq!(formats(&file.bytes()), *b"66", "nothing was written");
        for (commits, key) in (0..40).enumerate() {
            let late = db.stats().late_commits;
            commit(&mut db, key, &[3; 300]);
            let is_newest = formats(&file.bytes()) == *b"77";
            assert!(is_newest || db.stats().late_commits == late, "{commits}");
        }
        assert!(db.stats().late_commits > 0, "{torn:?}");
        assert_eq!(formats(&file.bytes()), *b"77");
        file.power_cut(PowerCut::Atomic, &mut |_| 0);
        db.abandon();
        let mut db = open(&file, options);
        for key in 0..60 {
            assert_eq!(value(&mut db, key), if key < 40 { 3 } else { 2 });
        }
    }
}
