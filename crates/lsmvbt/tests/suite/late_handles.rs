//! Late pages against readers between two steps of a commit, ways that are cut, and failed flushes.

use lsmvbt::{Db, Durability, Error, MemoryFile, Options, PowerCut, Torn, TreeKind};

use crate::drive::{Model, Seen, read_all, small_transaction, transaction};
use crate::headers::at_every_step;
use crate::hooks::Hook;
use crate::late::{BOTH, at_once, at_once_with, cut_of, far, open, value};
use crate::marks::{TREE, commit, made};
use crate::random::{Random, Seed, seeds};

fn commit_all(db: &mut Db, keys: &[i64], value: u8) -> lsmvbt::Result<()> {
    db.begin_write()?;
    for key in keys {
        db.put_integer(TREE, *key, &[value; 500])?;
    }
    db.commit(Durability::Flush).map(|_| ())
}

/// All that no flush has covered is gone.
fn power_cut(file: &MemoryFile) {
    file.power_cut(PowerCut::Atomic, &mut |_| 0);
}

fn late(db: &mut Db, key: i64, value: u8) {
    let before = db.stats().late_commits;
    commit(db, key, &[value; 500]);
    assert_eq!(db.stats().late_commits, before + 1);
}

/// Another handle reads at each step of a commit, and once more after it.
#[test]
fn a_reader_at_any_step_of_a_commit_learns_of_its_late_page() {
    for writes in [false, true] {
        let make = || {
            let (file, keys) = made(1, Torn::Trust);
            let db = open(&file, at_once());
            (file, (db, far(keys, 8)))
        };
        let read = |(db, rows): &mut (Db, Vec<i64>)| {
            let seen = value(db, rows[4]);
            assert!(seen == 1 || seen == 3, "{seen}");
        };
        let steps = at_every_step(make, read, |file, hook: &Hook, world, arm| {
            let rows = world.lock().expect("the world").1.clone();
            let mut writer = Db::open(hook.storage(file.storage()), at_once()).expect("opened");
            for key in &rows[..4] {
                commit(&mut writer, *key, &[2; 500]);
            }
            arm();
            late(&mut writer, rows[4], 3);
            let interrupted = !hook.clear();
            let reader = &mut world.lock().expect("the world").0;
            if writes {
                commit(reader, rows[5], &[3; 500]);
                commit(reader, rows[6], &[3; 500]);
            }
            assert_eq!(value(reader, rows[4]), 3, "the other handle");
            drop(writer);
            let mut third = open(file, at_once());
            assert_eq!(value(&mut third, rows[4]), 3);
            assert_eq!(third.check().expect("checked"), Vec::<String>::new());
            interrupted
        });
        assert!(steps > 10, "{steps}");
    }
}

/// A late page that was on the way to its carrier comes home, and no header is written.
#[test]
fn a_vacuum_that_gives_nothing_back_leaves_no_commit_behind_a_way_that_is_cut() {
    let (file, keys) = made(1, Torn::Trust);
    let rows = far(keys, 8);
    let mut db = open(&file, at_once());
    // The zeros by which the file has grown ahead would be given back.
    db.vacuum_part(0).expect("cut");
    commit(&mut db, rows[0], &[2; 500]);
    for key in [rows[1], rows[2], rows[0]] {
        late(&mut db, key, 3);
    }
    let view = db.snapshot().expect("a snapshot");
    let mut other = open(&file, at_once());
    other.vacuum_part(0).expect("nothing given back");
    assert_eq!(other.stats().header_pages_written, 0);
    drop((view, other));
    commit(&mut db, rows[3], &[4; 500]);
    power_cut(&file);
    drop(db);
    let mut db = open(&file, at_once());
    assert_eq!(value(&mut db, rows[0]), 3);
    assert_eq!(value(&mut db, rows[1]), 3);
    assert_eq!(value(&mut db, rows[2]), 3);
    assert_eq!(value(&mut db, rows[3]), 4);
}

/// The flush with which a late page comes home fails, and the page cache has the page all the same.
#[test]
fn a_page_that_a_failed_flush_has_brought_home_is_written_again() {
    for (dies, torn) in [false, true]
        .into_iter()
        .flat_map(|dies| BOTH.map(|torn| (dies, torn)))
    {
        let (file, keys) = made(1, torn);
        let rows = far(keys, 8);
        let mut db = open(&file, at_once_with(torn));
        commit(&mut db, rows[0], &[2; 500]);
        late(&mut db, rows[1], 3);
        file.fail_syncs(true);
        if dies {
            // The page that comes home takes two steps, the flush as well.
            file.kill_after(Some(4));
        }
        let failed = commit_all(&mut db, &[rows[2], rows[3]], 4);
        assert!(failed.is_err_and(|e| !matches!(e, Error::Poisoned)));
        file.fail_syncs(false);
        file.kill_after(None);
        drop(db);
        let mut db = open(&file, at_once_with(torn));
        assert_eq!(value(&mut db, rows[1]), 3);
        commit_all(&mut db, &[rows[0], rows[4]], 5).expect("committed");
        assert_eq!(value(&mut db, rows[1]), 3);
        power_cut(&file);
        drop(db);
        let mut db = open(&file, at_once_with(torn));
        assert_eq!(value(&mut db, rows[1]), 3, "{dies}");
        assert_eq!(value(&mut db, rows[0]), 5);
    }
}

// ---- several handles

struct Handle {
    db: Db,
    seen: Vec<Seen>,
}

/// Handles that leave pages late, and die, and fail to flush.
struct Run {
    random: Random,
    file: MemoryFile,
    handles: Vec<Handle>,
    torn: Torn,
    model: Model,
    late: u64,
    deaths: u64,
}

impl Run {
    fn new(seed: u64, torn: Torn) -> Run {
        let mut random = Random::new(seed);
        let file = MemoryFile::new();
        let mut db = open(&file, at_once_with(torn));
        db.begin_write().expect("begun");
        let rows = db.create_tree(TreeKind::Integer).expect("a tree");
        let keys = db.create_tree(TreeKind::Bytes).expect("a tree");
        for key in 0..300 {
            db.put_integer(rows, key, &vec![1; 100 + key as usize % 300])
                .expect("put");
            db.put(keys, &(key * 7919 % 300).to_be_bytes(), &[1; 120])
                .expect("put");
        }
        for key in (0..300).step_by(9) {
            db.put_integer(rows, key, &[4; 3000]).expect("put");
        }
        for key in (0..300).step_by(4) {
            db.delete_integer(rows, key).expect("deleted");
            db.delete(keys, &key.to_be_bytes()).expect("deleted");
        }
        db.commit(Durability::Flush).expect("committed");
        let view = db.snapshot().expect("a snapshot");
        let model = read_all(&mut db, view.version()).expect("read");
        drop(view);
        if random.chance(50) {
            db.set_history(*random.pick(&[3, 40])).expect("set");
        }
        db.close().expect("closed");
        Run {
            random,
            file,
            handles: Vec::new(),
            torn,
            model,
            late: 0,
            deaths: 0,
        }
    }

    fn open(&mut self) {
        let options = Options {
            cache_pages: *self.random.pick(&[0, 9, 30, 2000]),
            late_after: *self.random.pick(&[0, 0, 2]),
            ..at_once_with(self.torn)
        };
        let db = open(&self.file, options);
        self.handles.push(Handle {
            db,
            seen: Vec::new(),
        });
    }

    fn step(&mut self) {
        while self.handles.is_empty() {
            self.open();
        }
        let i = self.random.below(self.handles.len() as u64) as usize;
        match self.random.below(100) {
            0..58 => self.write(i, true),
            58..64 => self.write(i, false),
            64..74 => {
                let h = &mut self.handles[i];
                let snapshot = h.db.snapshot().expect("a snapshot");
                h.seen.push(Seen::new(snapshot, self.model.clone()));
            }
            74..86 => self.look(i),
            86..90 if self.handles.len() < 3 => self.open(),
            90..92 => {
                let pages = self.random.below(3) as u32;
                self.handles[i].db.vacuum_part(pages).expect("given back");
            }
            92..93 => self.handles.swap_remove(i).db.close().expect("closed"),
            93..95 => self.fail(i),
            95..96 => {
                self.bury_all();
                self.open();
            }
            _ => {}
        }
    }

    fn look(&mut self, i: usize) {
        let h = &mut self.handles[i];
        for seen in &h.seen {
            let found = read_all(&mut h.db, seen.snapshot.version()).expect("read");
            assert!(found == seen.model, "a snapshot changed");
        }
        if self.random.chance(50) {
            h.seen.clear();
        }
        let now = h.db.snapshot().expect("a snapshot");
        let found = read_all(&mut h.db, now.version()).expect("read");
        assert!(found == self.model, "the newest state");
    }

    /// A write transaction. The state that it would commit, and whether it did.
    fn transact(&mut self, i: usize, small: bool) -> (Option<Model>, lsmvbt::Result<()>) {
        let h = &mut self.handles[i];
        let before = h.db.stats().late_commits;
        let made = match small {
            true => small_transaction(&mut h.db, &self.model, &mut self.random),
            false => transaction(&mut h.db, &self.model, &mut self.random, 300, &mut 0).map(Some),
        };
        let (next, done) = match made {
            Ok(None) => (None, Ok(())),
            Ok(Some(_)) if self.random.chance(4) => (None, h.db.rollback()),
            Ok(Some(next)) => (Some(next), h.db.commit(Durability::Flush).map(|_| ())),
            Err(e) => (None, Err(e)),
        };
        self.late += h.db.stats().late_commits - before;
        (next, done)
    }

    fn write(&mut self, i: usize, small: bool) {
        match self.random.below(100) {
            0..8 => self.file.kill_after(Some(1 + self.random.below(8))),
            8..20 => self.file.kill_before_store(Some(1 + self.random.below(22))),
            _ => {}
        }
        let (next, done) = self.transact(i, small);
        self.file.kill_after(None);
        self.file.kill_before_store(None);
        match (done, next) {
            (Ok(()), next) => self.model = next.unwrap_or_else(|| self.model.clone()),
            (Err(_), next) => {
                self.deaths += 1;
                drop(self.handles.swap_remove(i));
                for h in &mut self.handles {
                    for seen in &h.seen {
                        let found = read_all(&mut h.db, seen.snapshot.version()).expect("read");
                        assert!(found == seen.model, "a snapshot changed by a dead writer");
                    }
                }
                self.learn(next);
            }
        }
    }

    /// A flush fails, and all handles close.
    fn fail(&mut self, i: usize) {
        let good = self.random.below(2);
        self.file.fail_syncs_after(good);
        let small = self.random.chance(50);
        let (next, done) = self.transact(i, small);
        self.file.fail_syncs(false);
        if done.is_ok() {
            self.model = next.unwrap_or_else(|| self.model.clone());
            return;
        }
        self.handles.clear();
        if self.random.chance(30) {
            let random = &mut self.random;
            self.file.drop_page_cache(&mut |_| random.chance(50));
        }
        self.learn(next);
        let random = &mut self.random;
        self.file.drop_page_cache(&mut |_| random.chance(70));
    }

    /// The state before or after a commit whose outcome nobody knows. The next commit makes it durable.
    fn learn(&mut self, next: Option<Model>) {
        if self.handles.is_empty() {
            self.open();
        }
        let h = &mut self.handles[0];
        h.db.begin_write().expect("begun");
        h.db.rollback().expect("rolled back");
        let now = h.db.snapshot().expect("a snapshot");
        let found = read_all(&mut h.db, now.version()).expect("read");
        assert!(
            found == self.model || Some(&found) == next.as_ref(),
            "half of a commit"
        );
        self.model = found;
        h.db.flush().expect("flushed");
    }

    fn bury_all(&mut self) {
        match self.random.chance(60) {
            true => {
                let (random, cut) = (&mut self.random, cut_of(self.torn));
                self.file.power_cut(cut, &mut |n| random.below(n));
            }
            false => self.file.kill_all(),
        }
        self.handles.clear();
        self.open();
        self.look(0);
        assert_eq!(
            self.handles[0].db.check().expect("checked"),
            Vec::<String>::new()
        );
    }
}

#[test]
fn several_handles_leave_pages_late_and_die() {
    let (mut late, mut deaths) = (0, 0);
    for (seed, torn) in seeds(40)
        .into_iter()
        .flat_map(|seed| BOTH.map(|torn| (seed, torn)))
    {
        let _told = Seed("late hunt", seed);
        let mut run = Run::new(seed, torn);
        for _ in 0..200 {
            run.step();
        }
        run.bury_all();
        (late, deaths) = (late + run.late, deaths + run.deaths);
    }
    println!("{late} late commits, {deaths} deaths");
    assert!(late > 500, "{late}");
}
