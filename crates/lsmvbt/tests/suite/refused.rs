//! Writes that fail and have reached the disk all the same. Neither a full file system that copies on write nor a
//! failing device says whether a page is as before or as written.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use lsmvbt::{Db, Durability, Error, MemoryFile, Options, PowerCut, Torn};

use crate::hooks::Hook;
use crate::late::{BOTH, at_once_with, cut_of, far, value};
use crate::marks::{TREE, commit, made};
use crate::random::{Random, Seed, seeds};

const REASONS: [ErrorKind; 2] = [ErrorKind::StorageFull, ErrorKind::Other];

fn options(torn: Torn, cache_pages: usize) -> Options {
    Options {
        cache_pages,
        late_after: 4,
        ..at_once_with(torn)
    }
}

/// Puts these rows in one transaction. An error undoes all of it.
fn put_all(db: &mut Db, rows: &[i64], value: u8) -> lsmvbt::Result<()> {
    db.begin_write()?;
    let put = |key: &i64| db.put_integer(TREE, *key, &[value; 500]);
    let done = rows.iter().try_for_each(put);
    let done = done.and_then(|()| db.commit(Durability::Flush).map(|_| ()));
    if done.is_err() {
        let _ = db.rollback();
    }
    done
}

fn values(db: &mut Db, rows: &[i64]) -> Vec<u8> {
    rows.iter().map(|key| value(db, *key)).collect()
}

fn crash(file: &MemoryFile, torn: Torn, how: u64) {
    let mut random = Random::new(how);
    match how {
        0 => file.kill_all(),
        1 => file.power_cut(PowerCut::Atomic, &mut |n| n - 1),
        _ => file.power_cut(cut_of(torn), &mut |n| random.below(n)),
    }
}

/// A transaction that fails, and the crash after it.
#[derive(Clone, Copy, Debug)]
struct Case {
    torn: Torn,
    reason: ErrorKind,
    /// Rows of the transaction.
    count: usize,
    late_after: u32,
    /// Another handle commits before the crash.
    goes_on: bool,
    how: u64,
}

/// A transaction fails at its `writes`-th write. False if it has fewer.
fn fails(case: Case, (bytes, keys): &(Vec<u8>, i64), writes: u64) -> bool {
    let Case { torn, count, .. } = case;
    let file = MemoryFile::new();
    file.set_bytes(bytes);
    let far = far(*keys, 40);
    let (rows, others) = far.split_at(30);
    let rows = &rows[..count];
    let options = Options {
        late_after: case.late_after,
        ..options(torn, 9)
    };
    let hook = Hook::default();
    let mut db = Db::open(hook.storage(file.storage()), options.clone()).expect("opened");
    let mut other = Db::open(file.storage(), options.clone()).expect("opened");
    for number in 0..6 {
        commit(&mut other, others[number % 2], &[2; 500]);
    }
    hook.fails_at(writes, case.reason);
    let done = put_all(&mut db, rows, 9);
    let has_failed = hook.left() == 0;
    hook.clear();
    let of = (case, writes, done.is_ok());
    // The outcome is unknown only where all handles are poisoned.
    let mut known = match other.begin_write() {
        Err(Error::Poisoned) => None,
        begun => {
            begun.expect("begun");
            other.rollback().expect("rolled back");
            Some(if done.is_ok() { 9 } else { 1 })
        }
    };
    let mut last = 1;
    if let Some(known) = known {
        assert_eq!(values(&mut other, rows), vec![known; count], "{of:?}");
        if case.goes_on {
            commit(&mut other, others[3], &[4; 500]);
            last = 4;
        }
    }
    for _ in 0..2 {
        crash(&file, torn, case.how);
        let mut db = Db::open(file.storage(), options.clone()).expect("opened");
        let found = values(&mut db, rows);
        let known = *known.get_or_insert(found[0]);
        assert_eq!(found, vec![known; count], "{of:?}");
        assert_eq!(value(&mut db, others[3]), last, "{of:?}");
        assert_eq!(db.check().expect("checked"), Vec::<String>::new(), "{of:?}");
        db.abandon();
    }
    db.abandon();
    other.abandon();
    has_failed
}

#[test]
fn what_has_failed_and_was_written_all_the_same_does_not_come_back() {
    let mut failed = 0;
    for torn in BOTH {
        let (file, keys) = made(1, torn);
        let made = (file.bytes(), keys);
        let transactions = [(1, 4), (3, 4), (3, u32::MAX), (30, u32::MAX)];
        let kinds = REASONS
            .into_iter()
            .flat_map(|reason| transactions.map(|transaction| (reason, transaction)));
        for (reason, (count, late_after)) in kinds {
            for (goes_on, how) in [(false, 0), (false, 2), (true, 0), (true, 3)] {
                let case = Case {
                    torn,
                    reason,
                    count,
                    late_after,
                    goes_on,
                    how,
                };
                failed += (1..)
                    .take_while(|writes| fails(case, &made, *writes))
                    .count();
            }
        }
    }
    println!("{failed} writes failed");
    assert!(failed > 50, "{failed}");
}

// ---- transactions that go on

type Rows = BTreeMap<i64, u8>;

struct Run {
    file: MemoryFile,
    torn: Torn,
    random: Random,
    handles: Vec<(Db, Hook)>,
    keys: Vec<i64>,
    rows: Rows,
    failed: u64,
}

impl Run {
    fn open(&mut self) {
        let hook = Hook::default();
        let late_after = *self.random.pick(&[0, 4, u32::MAX]);
        let options = Options {
            late_after,
            ..options(self.torn, *self.random.pick(&[9, 2000]))
        };
        let db = Db::open(hook.storage(self.file.storage()), options).expect("opened");
        self.handles.push((db, hook));
    }

    fn read(&mut self) -> Rows {
        let (db, _) = &mut self.handles[0];
        let view = db.snapshot().expect("a snapshot");
        let read = |key: &i64| {
            let row = db.get_integer(view.version(), TREE, *key).expect("read");
            (*key, row.map_or(0, |row| row[0]))
        };
        self.keys.iter().map(read).collect()
    }

    /// Statements, each with a savepoint, and a commit. Returns the rows after it if it succeeds, and its result.
    fn transact(&mut self) -> (Rows, lsmvbt::Result<()>) {
        let Run {
            random, handles, ..
        } = self;
        let (db, hook) = &mut handles[random.below(2) as usize];
        let mut next = self.rows.clone();
        if let Err(e) = db.begin_write() {
            return (next, Err(e));
        }
        if random.chance(60) {
            hook.fails_at(1 + random.below(8), *random.pick(&REASONS));
        }
        let mut tries = 0;
        loop {
            for _ in 0..1 + random.below(3) {
                let savepoint = db.savepoint().expect("a savepoint");
                let before = next.clone();
                let many = *random.pick(&[1, 1, 1, 3, 25]);
                let mut done = Ok(());
                for _ in 0..many {
                    let (key, value) = (*random.pick(&self.keys), 1 + random.below(250) as u8);
                    done = done.and_then(|()| db.put_integer(TREE, key, &[value; 500]));
                    next.insert(key, value);
                }
                if done.is_err() || random.chance(10) {
                    next = before;
                    if let Err(e) = db.rollback_to(savepoint) {
                        let _ = db.rollback();
                        return (next, Err(e));
                    }
                }
            }
            let done = match random.chance(8) {
                true => db.rollback().map(|()| next = self.rows.clone()),
                false => db.commit(Durability::Flush).map(|_| ()),
            };
            self.failed += u64::from(done.is_err());
            tries += 1;
            if done.is_err() && db.write_version().is_some() {
                if tries < 3 && random.chance(50) {
                    continue;
                }
                let _ = db.rollback();
            }
            hook.clear();
            return (next, done);
        }
    }

    fn step(&mut self) {
        while self.handles.len() < 2 {
            self.open();
        }
        let (next, done) = self.transact();
        let is_poisoned = matches!(self.handles[1].0.snapshot(), Err(Error::Poisoned));
        if done.is_ok() {
            self.rows = next.clone();
        }
        if is_poisoned || self.random.chance(25) {
            let how = self.random.below(6);
            crash(
                &self.file,
                self.torn,
                if how < 3 {
                    how
                } else {
                    self.random.below(1 << 40)
                },
            );
            self.handles.drain(..).for_each(|(db, _)| db.abandon());
            self.open();
        }
        let found = self.read();
        if is_poisoned && found == next {
            self.rows = next;
        }
        let differ: Vec<_> = found
            .iter()
            .filter(|(key, value)| self.rows[key] != **value)
            .collect();
        assert!(differ.is_empty(), "{done:?}, {is_poisoned}: {differ:?}");
        if self.random.chance(10) {
            let (db, _) = &mut self.handles[0];
            assert_eq!(db.check().expect("checked"), Vec::<String>::new());
        }
    }
}

#[test]
fn a_transaction_that_goes_on_after_a_write_has_failed_is_not_lost() {
    let mut failed = 0;
    for torn in BOTH {
        let (file, keys) = made(1, torn);
        let bytes = file.bytes();
        for seed in seeds(20) {
            let _told = Seed("refused", seed);
            let file = MemoryFile::new();
            file.set_bytes(&bytes);
            let keys = far(keys, 70);
            let mut run = Run {
                file,
                torn,
                random: Random::new(seed),
                handles: Vec::new(),
                rows: keys.iter().map(|key| (*key, 1)).collect(),
                keys,
                failed: 0,
            };
            for _ in 0..60 {
                run.step();
            }
            failed += run.failed;
        }
    }
    println!("{failed} commits failed");
    assert!(failed > 50, "{failed}");
}
