//! An open after a crash shows a state, and no later crash takes it back.
//!
//! Mixes at random: commits, rollbacks of written transactions, kills, power cuts, failing flushes,
//! several handles, some of which only read, changes of the setting, slots that grow and shrink, and
//! headers of an older format.

use std::collections::{BTreeMap, BTreeSet};

use lsmvbt::{Db, Durability, MemoryFile, Options, PowerCut, Result, Torn, TreeId, TreeKind};

use crate::drive::options;
use crate::random::{Random, Seed, seeds};

const TREE: TreeId = TreeId(1);
const PAGE: usize = 4096;
const STEPS: u64 = 40;

type Rows = BTreeMap<i64, Vec<u8>>;

/// A transaction whose outcome is open.
struct Open {
    number: u64,
    /// Its flush succeeded, so nothing but a rollback takes it away.
    is_written: bool,
}

/// The states that a reader may find. Row 0 holds the number of the newest transaction that is there.
#[derive(Default)]
struct Truth {
    rows: BTreeMap<u64, Rows>,
    sure: u64,
    open: Option<Open>,
    /// Transactions that were undone and had been written.
    undone: BTreeSet<u64>,
}

impl Truth {
    fn is_now(&mut self, number: u64) {
        if let Some(open) = self.open.take()
            && open.number != number
            && open.is_written
        {
            self.undone.insert(open.number);
        }
        self.sure = number;
    }
}

struct World {
    file: MemoryFile,
    random: Random,
    truth: Truth,
    next: u64,
    dbs: Vec<Db>,
    /// A handle that only reads.
    reader: Option<Db>,
    torn: Torn,
    /// The page cache may have pages that a power cut must not tear.
    has_trusted: bool,
    /// Whether handles give space back, too.
    vacuums: bool,
    /// Checks after a crash, and after one that left a written transaction with its rollback.
    checks: [u64; 2],
}

fn number_of(rows: &Rows) -> u64 {
    let first: Option<[u8; 8]> = rows.get(&0).and_then(|v| v.get(..8)?.try_into().ok());
    first.map_or(0, u64::from_le_bytes)
}

fn read(db: &mut Db) -> Result<Rows> {
    let view = db.snapshot()?;
    let mut rows = Rows::new();
    for key in 0..80 {
        if let Some(value) = db.get_integer(view.version(), TREE, key)? {
            rows.insert(key, value);
        }
    }
    Ok(rows)
}

impl World {
    fn new(seed: u64, vacuums: bool) -> World {
        let file = MemoryFile::new();
        let mut db = Db::open(file.storage(), options(Torn::Double)).expect("a database");
        db.begin_write().expect("a transaction");
        assert_eq!(db.create_tree(TreeKind::Integer).expect("a tree"), TREE);
        db.commit(Durability::Flush).expect("committed");
        let mut truth = Truth::default();
        truth.rows.insert(0, Rows::new());
        World {
            file,
            random: Random::new(seed),
            truth,
            next: 1,
            dbs: vec![db],
            reader: None,
            torn: Torn::Double,
            has_trusted: false,
            vacuums,
            checks: [0, 0],
        }
    }

    /// Compares with what may be there, and returns the number of the newest transaction.
    fn check(&mut self, db: &mut Db) -> Result<u64> {
        let rows = read(db)?;
        let number = number_of(&rows);
        let truth = &mut self.truth;
        let open = truth.open.as_ref().map(|open| open.number);
        assert!(
            number == truth.sure || Some(number) == open,
            "{number} is there, not {}; it was undone when it was written: {}",
            truth.sure,
            truth.undone.contains(&number)
        );
        assert_eq!(Some(&rows), truth.rows.get(&number), "mixed: {number}");
        assert_eq!(db.check()?, Vec::<String>::new());
        Ok(number)
    }

    /// Opens another handle, the first one after a crash or after a close.
    fn open(&mut self) {
        let first = self.dbs.is_empty() && self.reader.is_none();
        let wish = match self.random.chance(85) {
            true => Torn::Double,
            false => Torn::Trust,
        };
        let mut db = match Db::open(self.file.storage(), options(wish)) {
            Ok(db) => db,
            Err(_) => return,
        };
        if first {
            self.torn = wish;
            self.has_trusted |= wish == Torn::Trust;
            self.checks[0] += 1;
            let written = self.truth.open.as_ref().is_some_and(|open| open.is_written);
            self.checks[1] += u64::from(written);
        }
        if let Ok(number) = self.check(&mut db) {
            self.dbs.push(db);
            // One that no flush has made durable may still be lost: its COMMIT has not returned.
            let open = self.truth.open.as_ref();
            let may_go = open.is_some_and(|open| open.number == number && !open.is_written);
            if first && !may_go {
                self.truth.is_now(number);
            }
        }
    }

    /// Opens a handle that only reads, if there is none, or closes it. It changes nothing, so what it
    /// has shown is what the next handle finds.
    fn read_only(&mut self) {
        if let Some(reader) = self.reader.take() {
            let _ = reader.close();
            return;
        }
        let first = self.dbs.is_empty();
        let only_reads = Options {
            read_only: true,
            ..options(self.torn)
        };
        let Ok(mut reader) = Db::open(self.file.storage(), only_reads) else {
            return;
        };
        if let Ok(number) = self.check(&mut reader) {
            self.reader = Some(reader);
            if first {
                // A clean header is durable, or leads to the same state as the one before it.
                self.truth.is_now(number);
            }
        }
    }

    /// As many small commits as slots need to become smaller.
    fn many(&mut self) {
        let db = &mut self.dbs[0];
        for _ in 0..130 {
            let number = self.next;
            let begun = db.begin_write().and_then(|_| read(db));
            let Ok(mut rows) = begun else {
                break;
            };
            self.truth.is_now(number_of(&rows));
            self.next += 1;
            rows.insert(0, number.to_le_bytes().to_vec());
            self.truth.rows.insert(number, rows);
            let is_written = false;
            self.truth.open = Some(Open { number, is_written });
            let done = db.put_integer(TREE, 0, &number.to_le_bytes());
            if done.and_then(|()| db.commit(Durability::Flush)).is_err() {
                break;
            }
            self.truth.is_now(number);
            self.has_trusted &= self.torn == Torn::Trust;
        }
        let mut db = self.dbs.remove(0);
        if self.check(&mut db).is_ok() {
            self.dbs.push(db);
        }
    }

    /// A transaction: committed, written and rolled back, or left when it is written.
    fn transaction(&mut self) {
        let at = self.random.below(self.dbs.len() as u64) as usize;
        let mut db = self.dbs.swap_remove(at);
        let ended = self.run(&mut db);
        let ended = ended.and_then(|()| self.check(&mut db));
        if ended.is_ok() {
            self.dbs.push(db);
        }
    }

    fn run(&mut self, db: &mut Db) -> Result<()> {
        db.begin_write()?;
        // The leftovers of a crash, or of a handle that died, are durable now.
        let base = self.check(db)?;
        self.truth.is_now(base);
        let number = self.next;
        self.next += 1;
        let mut rows = read(db)?;
        let count = if self.random.chance(15) { 60 } else { 3 };
        // Slots grow now and then.
        let large = if self.random.chance(20) { 50 } else { 5 };
        let mut changes = vec![(0, number.to_le_bytes().to_vec())];
        for _ in 0..count {
            let size = if self.random.chance(large) { 9000 } else { 900 };
            changes.push((1 + self.random.below(79) as i64, vec![number as u8; size]));
        }
        for (key, value) in changes {
            db.put_integer(TREE, key, &value)?;
            rows.insert(key, value);
        }
        self.truth.rows.insert(number, rows);
        if self.random.chance(5) {
            return db.rollback();
        }
        let is_written = false;
        self.truth.open = Some(Open { number, is_written });
        if self.random.chance(60) {
            db.write(Durability::Flush)?;
            if let Some(open) = &mut self.truth.open {
                open.is_written = true;
            }
        }
        if self.random.chance(15) {
            // Its handle dies, and leaves it.
            return self.leave(db);
        }
        if self.random.chance(50) {
            db.rollback()?;
            self.truth.is_now(base);
        } else {
            db.commit(Durability::Flush)?;
            self.truth.is_now(number);
            self.has_trusted &= self.torn == Torn::Trust;
        }
        Ok(())
    }

    /// The handle dies at its next step.
    fn leave(&mut self, db: &mut Db) -> Result<()> {
        self.file.kill_after(Some(1));
        let left = db.rollback();
        self.file.kill_after(None);
        left
    }

    fn change_torn(&mut self) {
        let wish = match self.torn {
            Torn::Trust => Torn::Double,
            _ => Torn::Trust,
        };
        let mut db = self.dbs.remove(0);
        self.has_trusted = true;
        if db.set_torn(wish).is_ok() {
            self.torn = wish;
            self.dbs.push(db);
        }
    }

    /// Makes the file shorter. It may recover first, as any transaction does.
    fn vacuum(&mut self) {
        let at = self.random.below(self.dbs.len() as u64) as usize;
        let mut db = self.dbs.swap_remove(at);
        let ended = db.vacuum().map(drop).and_then(|()| self.check(&mut db));
        if let Ok(number) = ended {
            self.truth.is_now(number);
            self.dbs.push(db);
        }
    }

    /// A handle learns the header without a transaction.
    fn ask(&mut self) {
        let at = self.random.below(self.dbs.len() as u64) as usize;
        let _ = self.dbs[at].status();
    }

    fn close(&mut self) {
        let at = self.random.below(self.dbs.len() as u64) as usize;
        let _ = self.dbs.swap_remove(at).close();
    }

    fn crash(&mut self) {
        match self.random.chance(50) {
            true => self.file.kill_all(),
            false => {
                let how = if self.has_trusted {
                    PowerCut::Atomic
                } else {
                    PowerCut::Torn
                };
                let nothing = self.random.chance(40);
                let random = &mut self.random;
                self.file
                    .power_cut(how, &mut |n| if nothing { 0 } else { random.below(n) });
                self.has_trusted = false;
                if self.random.chance(10) {
                    self.make_older();
                }
            }
        }
        for db in self.dbs.drain(..).chain(self.reader.take()) {
            db.abandon();
        }
    }

    /// Gives the headers format 3, of which the file has only what format 6 has too.
    fn make_older(&mut self) {
        let mut bytes = self.file.bytes();
        for page in bytes.chunks_mut(PAGE).take(2) {
            let crc = |page: &[u8]| crc32c::crc32c(&page[..PAGE - 4]).to_le_bytes();
            if page.starts_with(b"LSMVBT format 7") && page[PAGE - 4..] == crc(page) {
                (page[14], page[16]) = (b'3', 3);
                let sum = crc(page);
                page[PAGE - 4..].copy_from_slice(&sum);
            }
        }
        self.file.set_bytes(&bytes);
    }

    fn step(&mut self) {
        let trouble = self.random.below(100);
        if trouble < 25 {
            let fuse = 1 + self.random.below(60);
            self.file.kill_after(Some(fuse));
        } else if trouble < 32 {
            self.file.fail_syncs_after(self.random.below(4));
        }
        match self.random.below(100) {
            92..97 => self.read_only(),
            _ if self.dbs.is_empty() => self.open(),
            97.. => self.many(),
            0..12 if self.dbs.len() < 3 => self.open(),
            12..16 => self.change_torn(),
            16..20 => self.close(),
            20..23 if self.vacuums => self.vacuum(),
            20..26 => self.ask(),
            26..38 => self.crash(),
            _ => self.transaction(),
        }
        self.file.kill_after(None);
        if self.file.fails_syncs() && self.random.chance(50) {
            self.crash();
        }
        self.file.fail_syncs(false);
    }
}

#[test]
fn what_was_shown_stays() {
    stays(false);
}

#[test]
fn what_was_shown_stays_whoever_gives_space_back() {
    stays(true);
}

fn stays(vacuums: bool) {
    let mut checks = [0, 0];
    for seed in seeds(60) {
        let _seed = Seed("shown", seed);
        let mut world = World::new(seed, vacuums);
        for _ in 0..STEPS {
            world.step();
        }
        world.crash();
        world.open();
        assert_eq!(world.dbs.len(), 1, "it does not open");
        checks = [0, 1].map(|i| checks[i] + world.checks[i]);
    }
    println!("checked after a crash: {checks:?}");
    if seeds(60).len() > 1 {
        assert!(checks.iter().all(|count| *count > 50), "{checks:?}");
    }
}
