//! Several handles on one database, with writers that die in the middle, while readers go on.

use lsmvbt::{Db, Durability, Error, MemoryFile, Torn, TreeKind};

use crate::drive::{Model, Seen, durability, options, random_options, read_all, transaction};
use crate::random::{Random, Seed, number, seeds};

struct Handle {
    db: Db,
    seen: Vec<Seen>,
}

struct Run {
    random: Random,
    file: MemoryFile,
    torn: Torn,
    handles: Vec<Handle>,
    model: Model,
    deaths: u64,
    commits: u64,
    /// Whether handles give space back, too.
    vacuums: bool,
}

impl Run {
    fn open(&mut self) {
        let options = random_options(&mut self.random, self.torn);
        let db = Db::open(self.file.storage(), options).unwrap();
        self.handles.push(Handle {
            db,
            seen: Vec::new(),
        });
    }

    fn step(&mut self) {
        let i = self.random.below(self.handles.len() as u64) as usize;
        match self.random.below(100) {
            0..25 => {
                let h = &mut self.handles[i];
                let snapshot = h.db.snapshot().unwrap();
                h.seen.push(Seen::new(snapshot, self.model.clone()));
            }
            50..55 if self.vacuums => self.vacuum(i),
            25..55 => self.look(i),
            55..60 if self.handles.len() < 4 => self.open(),
            60..63 if self.handles.len() > 2 => self.handles.swap_remove(i).db.close().unwrap(),
            _ => self.write(i),
        }
    }

    /// Every snapshot of a handle shows its old content; a new one shows the newest state.
    fn look(&mut self, i: usize) {
        let h = &mut self.handles[i];
        for seen in &h.seen {
            let found = read_all(&mut h.db, seen.snapshot.version()).unwrap();
            assert_eq!(found, seen.model, "a snapshot changed");
        }
        h.seen.clear();
        let now = h.db.snapshot().unwrap();
        assert_eq!(
            read_all(&mut h.db, now.version()).unwrap(),
            self.model,
            "the newest state"
        );
    }

    fn write(&mut self, i: usize) {
        let dies = self.random.chance(15);
        if dies {
            self.file.kill_after(Some(1 + self.random.below(40)));
        }
        let flush = if self.random.chance(80) { 100 } else { 50 };
        let durability = durability(&mut self.random, flush);
        let h = &mut self.handles[i];
        let mut next = None;
        let mut count = 0;
        let worked = transaction(&mut h.db, &self.model, &mut self.random, 100, &mut count)
            .and_then(|model| {
                if self.random.chance(15) {
                    return h.db.rollback();
                }
                next = Some(model);
                h.db.commit(durability).map(|_| ())
            });
        self.file.kill_after(None);
        match (worked, next) {
            (Ok(()), Some(next)) => {
                self.model = next;
                self.commits += 1;
            }
            (Ok(()), None) => {}
            (Err(_), next) => self.bury(i, next),
        }
    }

    /// Makes the file shorter, or dies. Now and then nobody reads.
    fn vacuum(&mut self, i: usize) {
        let is_read = self.random.chance(30);
        if !is_read {
            for h in &mut self.handles {
                h.seen.clear();
                h.db.release_dropped().unwrap();
            }
        }
        if self.random.chance(50) {
            self.file.kill_after(Some(1 + self.random.below(40)));
        }
        let worked = self.handles[i].db.vacuum();
        self.file.kill_after(None);
        match worked {
            Ok(done) => assert!(is_read || done.held.is_none(), "{:?}", done.held),
            Err(_) => self.bury(i, None),
        }
    }

    /// A writer has died: the next one recovers, and either all of its commit is there or nothing.
    fn bury(&mut self, i: usize, next: Option<Model>) {
        self.deaths += 1;
        drop(self.handles.swap_remove(i));
        for other in 0..self.handles.len() {
            if self.random.chance(50) {
                // Before any recovery: the remains of the dead writer do not disturb snapshots.
                let h = &mut self.handles[other];
                for seen in &h.seen {
                    let found = read_all(&mut h.db, seen.snapshot.version()).unwrap();
                    assert_eq!(found, seen.model, "a snapshot changed by a dead writer");
                }
            }
        }
        // One always lives on: when the last process dies, commits without a flush may go with it.
        if self.handles.len() < 2 {
            self.open();
        }
        let h = &mut self.handles[0];
        match h.db.begin_write() {
            Ok(_) => h.db.rollback().unwrap(),
            Err(Error::Poisoned) => panic!("a dead writer poisoned the database"),
            Err(e) => panic!("{e}"),
        }
        let now = h.db.snapshot().unwrap();
        let found = read_all(&mut h.db, now.version()).unwrap();
        let whole = found == self.model || Some(&found) == next.as_ref();
        if !whole {
            eprintln!(
                "{:?} {:?}; committing: {}",
                self.torn,
                h.db.status(),
                next.is_some()
            );
            difference("before", &found, &self.model);
            if let Some(next) = &next {
                difference("after", &found, next);
            }
        }
        assert!(whole, "half a commit");
        self.model = found;
        let findings = h.db.check().unwrap();
        assert!(findings.is_empty(), "{findings:?}");
    }
}

fn difference(name: &str, found: &Model, wanted: &Model) {
    let trees = found.trees.keys().chain(wanted.trees.keys());
    for tree in trees.collect::<std::collections::BTreeSet<_>>() {
        match (found.trees.get(tree), wanted.trees.get(tree)) {
            (Some(a), Some(b)) if a != b => {
                let lost = b.1.iter().filter(|e| a.1.get(e.0) != Some(e.1)).count();
                let new = a.1.iter().filter(|e| b.1.get(e.0) != Some(e.1)).count();
                eprintln!(
                    "{name}: tree {tree}: {lost} of {} lost, {new} new",
                    b.1.len()
                );
            }
            (Some(_), None) => eprintln!("{name}: tree {tree} should not be there"),
            (None, Some(_)) => eprintln!("{name}: tree {tree} is missing"),
            _ => {}
        }
    }
    if found.metas != wanted.metas {
        eprintln!("{name}: {:?} instead of {:?}", found.metas, wanted.metas);
    }
}

#[test]
fn readers_and_writers_share_a_database_with_writers_that_die() {
    share(false);
}

#[test]
fn nor_does_anybody_see_that_others_give_space_back() {
    share(true);
}

fn share(vacuums: bool) {
    let steps = number("LSMVBT_STEPS").unwrap_or(12_000);
    let (mut deaths, mut commits) = (0, 0);
    for seed in seeds((steps / 300).max(1)) {
        let _told = Seed("several", seed);
        let mut random = Random::new(seed);
        let torn = *random.pick(&[Torn::Trust, Torn::Double]);
        let file = MemoryFile::new();
        let mut run = Run {
            random,
            file,
            torn,
            handles: Vec::new(),
            model: Model::default(),
            deaths: 0,
            commits: 0,
            vacuums,
        };
        run.open();
        run.open();
        for _ in 0..300 {
            run.step();
        }
        deaths += run.deaths;
        commits += run.commits;
    }
    println!("{commits} commits, {deaths} writers died");
    assert!(deaths > 0);
}

#[test]
fn what_a_commit_without_a_flush_frees_other_handles_use_once() {
    let file = MemoryFile::new();
    let mut a = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    let mut b = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    // Of one page each.
    let value = |key: i64| key.to_le_bytes().repeat(460);
    a.begin_write().unwrap();
    let tree = a.create_tree(TreeKind::Integer).unwrap();
    for key in 0..200 {
        a.put_integer(tree, key, &value(key)).unwrap();
    }
    a.commit(Durability::Flush).unwrap();
    a.begin_write().unwrap();
    a.clear_tree(tree).unwrap();
    a.commit(Durability::Flush).unwrap();
    // The catalog is changed: the cleared pages are freed, but `a` may not use them.
    a.begin_write().unwrap();
    a.create_tree(TreeKind::Integer).unwrap();
    a.commit(Durability::Later).unwrap();
    let before = a.status().unwrap();
    assert!(before.durable < before.current && before.free_pages >= 200);
    a.begin_write().unwrap();
    a.put_integer(tree, 0, &value(0)).unwrap();
    a.commit(Durability::Later).unwrap();
    let grown = a.status().unwrap();
    assert!(grown.pages > before.pages, "used before it was durable");

    for (turn, keys) in [1..100, 100..190, 190..195].into_iter().enumerate() {
        let db = if turn == 1 { &mut a } else { &mut b };
        db.begin_write().unwrap();
        for key in keys {
            db.put_integer(tree, key, &value(key)).unwrap();
        }
        db.commit(Durability::Later).unwrap();
    }
    assert_eq!(a.status().unwrap().pages, grown.pages, "the file grew");
    for db in [&mut a, &mut b] {
        db.begin_write().unwrap();
        assert_eq!(db.check().unwrap(), Vec::<String>::new());
        db.rollback().unwrap();
        let view = db.snapshot().unwrap().version();
        assert_eq!(db.count(view, tree).unwrap(), 195);
        for key in 0..195 {
            let found = db.get_integer(view, tree, key).unwrap();
            assert_eq!(found, Some(value(key)));
        }
    }
}
