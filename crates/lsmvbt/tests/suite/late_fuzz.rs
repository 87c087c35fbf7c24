//! Random steps of handles that leave pages late where pages may tear: others look at each step of a commit, the
//! disk is full, writers die, and so do those that recover.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};

use lsmvbt::{Db, Durability, MemoryFile, Options, Snapshot, Torn};

use crate::hooks::Hook;
use crate::late::{BOTH, at_once_with, cut_of, far};
use crate::marks::{TREE, made};
use crate::random::{Random, Seed, seeds};

/// Value and length of each row that is looked at.
type Rows = BTreeMap<i64, Option<(u8, usize)>>;

fn read(db: &mut Db, rows: &Rows, view: &Snapshot) -> Rows {
    rows.keys()
        .map(|key| {
            let row = db.get_integer(view.version(), TREE, *key);
            let row = row.unwrap_or_else(|e| panic!("key {key} of {:?}: {e}", view.version()));
            (*key, row.map(|row| (row[0], row.len())))
        })
        .collect()
}

struct Handle {
    db: Db,
    hook: Hook,
    seen: Vec<(Snapshot, Rows)>,
}

pub struct Run {
    file: MemoryFile,
    torn: Torn,
    /// How often a change is one of the neighbors `near`, and these.
    near_chance: u64,
    near: Vec<i64>,
    /// Handles open it with any setting, and change it.
    is_mixed: bool,
    random: Random,
    handles: Vec<Arc<Mutex<Handle>>>,
    rows: Rows,
    next: Option<Rows>,
    pub late: u64,
    pub looks: Arc<Mutex<u64>>,
    trace: bool,
}

fn bytes_of(row: (u8, usize)) -> Vec<u8> {
    vec![row.0; row.1]
}

/// The view of another handle while one is in the middle of something.
fn look(handle: &mut Handle, rows: &Rows, next: Option<&Rows>, keeps: bool) {
    let view = match handle.db.snapshot() {
        // A flush has failed. If nobody provoked that, the step fails with it.
        Err(lsmvbt::Error::Poisoned) => return,
        view => view.expect("a snapshot"),
    };
    for (view, rows) in &handle.seen {
        assert!(
            read(&mut handle.db, rows, view) == *rows,
            "a snapshot changed"
        );
    }
    let found = read(&mut handle.db, rows, &view);
    if found != *rows && Some(&found) != next {
        let differs: Vec<_> = found.iter().filter(|(k, v)| rows[k] != **v).collect();
        panic!("neither before nor after: {differs:?}");
    }
    if keeps {
        handle.seen.push((view, found));
    }
}

impl Run {
    pub fn new(seed: u64, torn: Torn, bytes: &[u8], keys: i64) -> Run {
        let file = MemoryFile::new();
        file.set_bytes(bytes);
        let rows = far(keys, 40).into_iter().map(|k| (k, Some((1, 500))));
        let near = (0..12).map(|k| (far(keys, 40)[3] + k, Some((1, 500))));
        let mut rows: Rows = rows.chain(near).collect();
        for (key, row) in rows.iter_mut() {
            if key % 4 == 0 {
                *row = None;
            }
        }
        Run {
            file,
            torn,
            near_chance: 0,
            near: Vec::new(),
            is_mixed: false,
            random: Random::new(seed),
            handles: Vec::new(),
            rows,
            next: None,
            late: 0,
            looks: Arc::default(),
            trace: std::env::var("TRACE").is_ok(),
        }
    }

    /// The same where mostly neighbors change, and rows at the end, as in [`crate::stays`].
    pub fn of_neighbors(seed: u64, is_mixed: bool, bytes: &[u8], keys: i64) -> Run {
        let torn = if is_mixed { Torn::Trust } else { Torn::Double };
        let mut run = Run::new(seed, torn, bytes, keys);
        run.near_chance = *run.random.pick(&[50, 80, 95]);
        run.is_mixed = is_mixed;
        run.near = (0..12).map(|k| far(keys, 40)[3] + k).collect();
        run.near.extend(keys + 1..keys + 30);
        let near = run.near.iter().copied();
        let others: Vec<i64> = near.filter(|key| !run.rows.contains_key(key)).collect();
        run.rows.extend(others.into_iter().map(|key| (key, None)));
        run
    }

    fn torn(&mut self) -> Torn {
        match self.is_mixed {
            true => *self.random.pick(&BOTH),
            false => self.torn,
        }
    }

    fn open(&mut self) -> Result<usize, lsmvbt::Error> {
        let late_after: &[u32] = match self.near_chance {
            0 => &[0, 0, 0, 2, 8],
            _ => &[0, 0, 2, 8, 1000, u32::MAX],
        };
        let torn = self.torn();
        let recovery_pages = *self.random.pick(&[64, 64, 1000]);
        let options = Options {
            cache_pages: *self.random.pick(&[0, 9, 30, 2000]),
            late_after: *self.random.pick(late_after),
            recovery_pages,
            heal_at_once: recovery_pages,
            ..at_once_with(torn)
        };
        let hook = Hook::default();
        let db = Db::open(hook.storage(self.file.storage()), options)?;
        let db_version = db.current_version();
        let seen = Vec::new();
        if self.trace {
            println!("  open {:?}: {:?}", self.torn, db_version);
        }
        self.handles
            .push(Arc::new(Mutex::new(Handle { db, hook, seen })));
        Ok(self.handles.len() - 1)
    }

    /// Another handle looks before one of the next steps of this one.
    fn arm(&mut self, i: usize) {
        if self.handles.len() < 2 || self.file.kills() || self.random.chance(40) {
            return;
        }
        let other = (i + 1 + self.random.below(self.handles.len() as u64 - 1) as usize)
            % self.handles.len();
        let other = self.handles[other].clone();
        let (rows, next) = (self.rows.clone(), self.next.clone());
        let keeps = self.random.chance(50);
        let looks = self.looks.clone();
        let steps = 1 + self.random.below(60);
        let act = move || {
            *looks.lock().unwrap() += 1;
            look(&mut other.lock().unwrap(), &rows, next.as_ref(), keeps);
        };
        self.handles[i].lock().unwrap().hook.before(steps, act);
    }

    fn changed(&mut self, count: usize) -> Vec<(i64, Option<(u8, usize)>)> {
        let keys: Vec<i64> = self.rows.keys().copied().collect();
        (0..count)
            .map(|_| {
                let is_near = self.near_chance > 0 && self.random.chance(self.near_chance);
                let key = match is_near {
                    true => *self.random.pick(&self.near),
                    false => *self.random.pick(&keys),
                };
                let row = match self.random.below(100) {
                    0..12 => None,
                    12..60 => Some((self.random.below(250) as u8 + 1, 500)),
                    60..90 => Some((
                        self.random.below(250) as u8 + 1,
                        300 + self.random.below(400) as usize,
                    )),
                    _ => Some((
                        self.random.below(250) as u8 + 1,
                        1 + self.random.below(6000) as usize,
                    )),
                };
                (key, row)
            })
            .collect()
    }

    fn put(db: &mut Db, changes: &[(i64, Option<(u8, usize)>)]) -> lsmvbt::Result<()> {
        for (key, row) in changes {
            match row {
                Some(row) => {
                    db.put_integer(TREE, *key, &bytes_of(*row))?;
                }
                None => {
                    db.delete_integer(TREE, *key)?;
                }
            }
        }
        Ok(())
    }

    fn after(&self, changes: &[(i64, Option<(u8, usize)>)]) -> Rows {
        let mut next = self.rows.clone();
        next.extend(changes.iter().copied());
        next
    }

    /// One step of a handle. `next` is what it would commit.
    fn act(&mut self, i: usize) -> lsmvbt::Result<bool> {
        let what = self.random.below(100);
        let count = match what {
            0..60 => 1,
            60..70 => 2,
            70..76 => 12,
            _ => 3,
        };
        let changes = self.changed(count);
        let handle = self.handles[i].clone();
        if self.trace {
            println!("  act {what} by {i} {changes:?}");
        }
        self.next = Some(self.after(&changes));
        self.arm(i);
        let torn = self.torn();
        let random = &mut self.random;
        let mut guard = handle.lock().unwrap();
        let db = &mut guard.db;
        match what {
            89..90 if self.is_mixed => db.set_torn(torn).map(|_| false),
            0..76 => {
                if self.is_mixed && random.chance(6) {
                    db.set_torn(*random.pick(&BOTH))?;
                }
                db.begin_write()?;
                if random.chance(10) {
                    let savepoint = db.savepoint()?;
                    Self::put(db, &changes)?;
                    db.rollback_to(savepoint)?;
                }
                Self::put(db, &changes)?;
                if random.chance(5) {
                    db.write(Durability::Flush)?;
                }
                let how = match random.chance(4) {
                    true => Durability::Later,
                    false => Durability::Flush,
                };
                db.commit(how)?;
                if how == Durability::Later {
                    db.flush()?;
                }
                Ok(true)
            }
            76..80 => {
                db.begin_write()?;
                Self::put(db, &changes)?;
                db.write(Durability::Flush)?;
                db.rollback()?;
                Ok(false)
            }
            80..83 => {
                db.begin_write()?;
                Self::put(db, &changes)?;
                db.rollback()?;
                Ok(false)
            }
            83..87 => db.vacuum_part(random.below(3) as u32).map(|_| false),
            87..89 => db.set_history(*random.pick(&[0, 0, 3])).map(|_| false),
            89..91 => db.flush().map(|_| false),
            91..93 => {
                // Grows.
                db.begin_write()?;
                for key in 0..random.below(120) as i64 {
                    db.put_integer(TREE, 1_000_000 + key, &[1; 500])?;
                }
                db.commit(Durability::Flush)?;
                Ok(false)
            }
            93..95 => {
                db.begin_write()?;
                for key in 0..120 {
                    db.delete_integer(TREE, 1_000_000 + key)?;
                }
                db.commit(Durability::Flush)?;
                Ok(false)
            }
            95..96 => db.reclaim().map(|_| false).or_else(|e| match e {
                lsmvbt::Error::Busy => Ok(false),
                e => Err(e),
            }),
            _ if self.file.kills() => Ok(false),
            _ => {
                let keeps = random.chance(70);
                if random.chance(50) {
                    guard.seen.clear();
                }
                look(&mut guard, &self.rows, None, keeps);
                Ok(false)
            }
        }
    }

    pub fn step(&mut self) {
        while self.handles.is_empty() {
            self.open().expect("opened");
        }
        if self.handles.len() < 3 && self.random.chance(6) {
            self.open().expect("opened");
        }
        let i = self.random.below(self.handles.len() as u64) as usize;
        if self.random.chance(3) {
            return self.close(i);
        }
        let trouble = self.random.below(100);
        match trouble {
            0..9 => self.file.kill_after(Some(1 + self.random.below(9))),
            9..16 => self.file.kill_before_store(Some(1 + self.random.below(25))),
            16..18 => self.file.limit(Some(self.file.bytes().len() as u64)),
            18..19 => {
                let end = self.file.bytes().len() as u64 / 4096;
                let half = end / 2;
                let range = if self.random.chance(50) {
                    0..half
                } else {
                    half..end
                };
                self.file.refuse_writes_of(Some(range));
            }
            19..21 => self.file.fail_syncs_after(self.random.below(2)),
            21..22 => {
                let writes = 1 + self.random.below(5);
                let hook = self.handles[i].lock().unwrap().hook.clone();
                hook.fails_at(writes, ErrorKind::StorageFull);
            }
            _ => {}
        }
        let before = self.handles[i].lock().unwrap().db.stats().late_commits;
        let done = self.act(i);
        // Also behind its commit.
        let died = trouble < 16 && !self.file.kills();
        self.file.kill_after(None);
        self.file.kill_before_store(None);
        self.file.limit(None);
        self.file.refuse_writes_of(None);
        self.file.fail_syncs(false);
        {
            let h = self.handles[i].lock().unwrap();
            h.hook.clear();
            self.late += h.db.stats().late_commits - before;
        }
        if self.trace {
            let now = self.handles[i].lock().unwrap().db.current_version();
            println!("{i} {trouble} {done:?} {now:?}");
        }
        match done {
            Ok(true) => {
                self.rows = self.next.take().expect("next");
                if died {
                    self.handles.swap_remove(i);
                }
                if self.random.chance(3) {
                    self.crash();
                }
            }
            Ok(false) => {
                self.next = None;
                if died {
                    self.handles.swap_remove(i);
                }
                if self.random.chance(3) {
                    self.crash();
                }
            }
            Err(e) => self.after_error(i, trouble, e),
        }
    }

    /// A handle is closed, and may die in that.
    fn close(&mut self, i: usize) {
        let handle = Arc::into_inner(self.handles.swap_remove(i)).expect("one handle");
        let Handle { db, seen, .. } = handle.into_inner().expect("no panic");
        drop(seen);
        let kills = self.random.chance(60);
        let steps = 1 + self.random.below(12);
        self.file.kill_after(kills.then_some(steps));
        let closed = db.close();
        let died = kills && !self.file.kills();
        self.file.kill_after(None);
        if !died {
            closed.expect("closed");
        }
        if self.random.chance(30) {
            self.crash();
        }
    }

    fn after_error(&mut self, i: usize, trouble: u64, e: lsmvbt::Error) {
        let is_damage = matches!(e, lsmvbt::Error::Damaged { .. });
        assert!(!is_damage && trouble < 22, "{trouble}: {e}");
        let died = trouble < 16;
        let is_poisoned = !died && {
            // Any handle tells.
            let mut h = self.handles[i].lock().unwrap();
            let _ = h.db.rollback();
            match h.db.begin_write() {
                Ok(_) => h.db.rollback().is_err(),
                Err(_) => true,
            }
        };
        if self.trace {
            println!("  {e} {died} {is_poisoned}");
        }
        if died {
            let handle = self.handles.swap_remove(i);
            drop(handle);
            if self.random.chance(25) {
                return self.crash();
            }
            // Others look before they recover.
            let (rows, next) = (self.rows.clone(), self.next.clone());
            for h in &self.handles {
                look(&mut h.lock().unwrap(), &rows, next.as_ref(), false);
            }
            // Another one recovers, and may die in that.
            if !self.handles.is_empty() && self.random.chance(50) {
                match self.random.chance(50) {
                    true => self.file.kill_after(Some(1 + self.random.below(14))),
                    false => self.file.kill_before_store(Some(1 + self.random.below(30))),
                }
                let recovered = {
                    let mut h = self.handles[0].lock().unwrap();
                    h.db.begin_write().and_then(|_| h.db.rollback())
                };
                let died = !self.file.kills();
                self.file.kill_after(None);
                self.file.kill_before_store(None);
                if recovered.is_err() || died {
                    self.handles.swap_remove(0);
                    if self.random.chance(60) {
                        return self.crash();
                    }
                }
            }
        } else if is_poisoned {
            self.handles.clear();
            if self.near_chance > 0 {
                let random = &mut self.random;
                let percent = *random.pick(&[0, 50, 100]);
                self.file.drop_page_cache(&mut |_| random.chance(percent));
            }
            if self.random.chance(40) {
                return self.crash();
            }
        }
        self.learn();
    }

    pub fn crash(&mut self) {
        let handles = std::mem::take(&mut self.handles);
        let random = &mut self.random;
        let cut = random.chance(75);
        match cut {
            true => self
                .file
                .power_cut(cut_of(self.torn), &mut |n| random.below(n)),
            false => self.file.kill_all(),
        }
        drop(handles);
        // A recovery that is cut as well.
        while self.random.chance(40) {
            self.file.kill_after(Some(1 + self.random.below(16)));
            if self.open().is_ok() {
                let mut h = self.handles[0].lock().unwrap();
                let _ = h.db.begin_write();
            }
            self.file.kill_after(None);
            let handles = std::mem::take(&mut self.handles);
            let random = &mut self.random;
            match random.chance(75) {
                true => self
                    .file
                    .power_cut(cut_of(self.torn), &mut |n| random.below(n)),
                false => self.file.kill_all(),
            }
            drop(handles);
        }
        self.learn();
        let mut h = self.handles[0].lock().unwrap();
        assert_eq!(h.db.check().expect("checked"), Vec::<String>::new());
    }

    /// The state before or after the commit that was under way.
    fn learn(&mut self) {
        if self.handles.is_empty() {
            self.open().expect("opened");
        }
        let mut h = self.handles[0].lock().unwrap();
        h.db.begin_write().expect("begun");
        h.db.rollback().expect("rolled back");
        let view = h.db.snapshot().expect("a snapshot");
        let found = read(&mut h.db, &self.rows, &view);
        if found != self.rows && Some(&found) != self.next.as_ref() {
            let differs: Vec<_> = found
                .iter()
                .filter(|(k, v)| self.rows[k] != **v)
                .map(|(k, v)| (k, v, self.rows[k]))
                .collect();
            panic!("lost: {differs:?}");
        }
        h.db.flush().expect("flushed");
        drop(view);
        drop(h);
        self.rows = found;
        self.next = None;
    }
}

#[test]
fn nothing_is_lost_whatever_happens_to_late_pages() {
    let (file, keys) = made(1, Torn::Trust);
    let bytes = file.bytes();
    let (mut late, mut looks) = (0, 0);
    for (seed, torn) in seeds(30)
        .into_iter()
        .flat_map(|seed| BOTH.map(|torn| (seed, torn)))
    {
        let _told = Seed("late fuzz", seed);
        let mut run = Run::new(seed, torn, &bytes, keys);
        for _ in 0..150 {
            run.step();
        }
        run.crash();
        late += run.late;
        looks += *run.looks.lock().unwrap();
    }
    println!("{late} late commits, {looks} looks");
}

/// The device writes pages as a whole. Handles open the file with any setting for torn pages, and change it.
#[test]
fn nothing_is_lost_where_the_setting_for_torn_pages_changes() {
    let (file, keys) = made(1, Torn::Trust);
    let bytes = file.bytes();
    let mut late = 0;
    for seed in seeds(30) {
        let _told = Seed("late fuzz, any setting", seed);
        let mut run = Run::new(seed, Torn::Trust, &bytes, keys);
        run.is_mixed = true;
        for _ in 0..150 {
            run.step();
        }
        run.crash();
        late += run.late;
    }
    println!("{late} late commits");
}
