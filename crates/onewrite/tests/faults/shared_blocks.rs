//! The commits of a group share blocks until a flush begins, and no longer: rules J21 to J28 of
//! `docs/durability.md`.

use super::group_commit::{deferred, in_company, patient};
use super::refusal::{Refusal, Which};
use super::{companion, directory, open, rows, sql};
use onewrite::log::LogHeader;
use onewrite::storage::observer::Call;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;
const INSERT: &str = "INSERT INTO t VALUES('more')";
/// Commits of a group.
const GROUP: usize = 12;

/// A log whose writes of frames are noted.
struct Watched {
    log: PathBuf,
    writes: Vec<(ThreadId, RangeInclusive<u64>)>,
    /// The blocks of commits that have returned.
    returned: BTreeSet<u64>,
    /// Those of them that were written once more.
    rewritten: Vec<u64>,
}

static WATCHED: Mutex<Vec<Watched>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<Watched>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes a write, if its log is watched.
pub fn note(path: &Path, call: &Call<'_>) {
    let &Call::Write { offset, bytes, .. } = call else {
        return;
    };
    let mut all = all();
    let Some(watched) = all.iter_mut().find(|watched| watched.log == path) else {
        return;
    };
    let blocks = offset / BLOCK..=(offset + bytes.len() as u64 - 1) / BLOCK;
    let again = watched.returned.range(blocks.clone()).copied();
    watched.rewritten.extend(again);
    watched.writes.push((std::thread::current().id(), blocks));
}

/// Watches the log of a database until it goes out of scope.
struct Watch(PathBuf);

impl Watch {
    fn over(database: &Path) -> Watch {
        let log = companion(database, "-onewrite");
        all().push(Watched {
            log: log.clone(),
            writes: Vec::new(),
            returned: BTreeSet::new(),
            rewritten: Vec::new(),
        });
        Watch(log)
    }

    fn with<T>(&self, work: impl FnOnce(&mut Watched) -> T) -> T {
        let mut all = all();
        work(all.iter_mut().find(|w| w.log == self.0).expect("watched"))
    }

    /// The blocks that were written since the last call, and the number of writes.
    fn take(&self) -> (BTreeSet<u64>, usize) {
        let writes = self.with(|watched| std::mem::take(&mut watched.writes));
        let number = writes.len();
        (
            writes.into_iter().flat_map(|(_, blocks)| blocks).collect(),
            number,
        )
    }

    /// The commits of this thread have returned.
    fn returned(&self) {
        let me = std::thread::current().id();
        self.with(|watched| {
            let mine = watched.writes.extract_if(.., |(thread, _)| *thread == me);
            let mine: Vec<_> = mine.flat_map(|(_, blocks)| blocks).collect();
            watched.returned.extend(mine);
        });
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        all().retain(|watched| watched.log != self.0);
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The blocks of a commit whose flush is held, of those that gather meanwhile, and of one after them.
fn gathered(path: &Path) -> [BTreeSet<u64>; 3] {
    let watch = Watch::over(path);
    let watcher = open(path);
    sql(&watcher, "PRAGMA onewrite_read_durable=off");
    assert!(rows(&watcher) > 0);
    let dbs: Vec<_> = (0..GROUP + 2).map(|_| patient(path)).collect();
    // A connection's first commit is written before it is known that it will be synced.
    dbs.iter().for_each(|db| drop(sql(db, INSERT)));
    watch.take();
    let held = Refusal::held(path, Which::Flush, 0);
    let before = deferred(&watcher);
    let mut dbs = dbs.into_iter();
    let (first, last) = (dbs.next().expect("one"), dbs.next().expect("one"));
    let blocks = std::thread::scope(|scope| {
        let first = scope.spawn(move || drop(sql(&first, INSERT)));
        held.wait();
        let (of_first, _) = watch.take();
        let rest: Vec<_> = dbs
            .map(|db| scope.spawn(move || drop(sql(&db, INSERT))))
            .collect();
        until("they do not gather", || {
            deferred(&watcher) == before + 1 + GROUP as u64
        });
        let (of_group, writes) = watch.take();
        assert_eq!(writes, GROUP);
        held.release();
        first.join().expect("no panic");
        rest.into_iter().for_each(|db| db.join().expect("no panic"));
        [of_first, of_group]
    });
    sql(&last, INSERT);
    let [of_first, of_group] = blocks;
    [of_first, of_group, watch.take().0]
}

#[test]
fn commits_that_wait_for_one_flush_share_blocks() {
    let directory = directory();
    let path = directory.path().join("db");
    let _dbs = in_company(&path, "onewrite");
    let [of_first, of_group, of_last] = gathered(&path);
    // A page that is stored whole takes less than a block.
    assert!(of_group.len() <= 2, "{of_group:?}");
    assert!(of_group.is_disjoint(&of_first), "its flush has begun");
    assert!(of_last.is_disjoint(&of_group), "it is durable");
    assert_eq!(of_last.len(), 1);
}

#[test]
fn a_durable_commit_closes_the_block_of_those_at_normal_before_it() {
    const COMMITS: usize = 20;
    let directory = directory();
    let path = directory.path().join("db");
    let db = patient(&path);
    sql(&db, "PRAGMA journal_mode=onewrite");
    sql(&db, "CREATE TABLE t(x)");
    let watch = Watch::over(&path);
    for _ in 0..3 {
        sql(&db, "PRAGMA synchronous=NORMAL");
        (0..COMMITS).for_each(|_| drop(sql(&db, INSERT)));
        sql(&db, "PRAGMA synchronous=FULL");
        // The first one is written before it is known that it will be synced.
        for _ in 0..2 {
            sql(&db, INSERT);
            watch.returned();
        }
    }
    assert_eq!(watch.with(|watched| watched.rewritten.clone()), [0u64; 0]);
}

/// A process of an older version may have it open, too.
#[test]
fn a_log_of_version_3_that_is_in_use_has_no_shared_blocks() {
    let directory = directory();
    let [path, old] = ["db", "old"].map(|name| directory.path().join(name));
    let dbs = in_company(&path, "onewrite");
    for suffix in ["", "-onewrite"] {
        std::fs::copy(companion(&path, suffix), companion(&old, suffix)).expect("a copy");
    }
    drop(dbs);
    let log = companion(&old, "-onewrite");
    let mut bytes = std::fs::read(&log).expect("the log");
    bytes[8..12].copy_from_slice(&3u32.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[..124]);
    bytes[124..128].copy_from_slice(&crc.to_be_bytes());
    std::fs::write(&log, bytes).expect("a log as version 3 wrote it");
    let [db, other] = [patient(&old), patient(&old)];
    for db in [&db, &other, &db] {
        sql(db, INSERT);
    }
    let [_, of_group, _] = gathered(&old);
    assert_eq!(of_group.len(), GROUP);
    let header = std::fs::read(&log).expect("the log");
    let header = LogHeader::parse(&header).expect("a header");
    assert_eq!(header.version(), 3);
}

/// Whatever else commits next to a group: a connection that flushes by itself, one at NORMAL, one
/// that checkpoints, and one that rolls back.
#[test]
fn the_blocks_of_a_commit_that_has_returned_are_not_written_again() {
    const THREADS: usize = 6;
    const COMMITS: usize = 60;
    let directory = directory();
    let path = directory.path().join("db");
    let dbs = in_company(&path, "onewrite");
    // As long as there is a reader, the log does not start again over these blocks.
    let reader = open(&path);
    sql(&reader, "BEGIN");
    assert!(rows(&reader) > 0);
    let connect = || {
        let db = patient(&path);
        sql(&db, "PRAGMA wal_autocheckpoint=0");
        db
    };
    let watch = Watch::over(&path);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (watch, db) = (&watch, connect());
            scope.spawn(move || {
                for n in 0..COMMITS {
                    match (thread, n % 4) {
                        (0, 0) => drop(sql(&db, "PRAGMA onewrite_group_commit=off")),
                        (0, 2) => drop(sql(&db, "PRAGMA onewrite_group_commit=on")),
                        (1, 0) => {
                            sql(&db, "PRAGMA synchronous=NORMAL");
                            sql(&db, INSERT);
                            sql(&db, "PRAGMA synchronous=FULL");
                        }
                        (2, 0) => {
                            sql(&db, "BEGIN IMMEDIATE");
                            sql(&db, INSERT);
                            sql(&db, "ROLLBACK");
                        }
                        (3, 0) => drop(sql(&db, "PRAGMA wal_checkpoint(PASSIVE)")),
                        _ => {}
                    }
                    sql(&db, INSERT);
                    watch.returned();
                }
            });
        }
    });
    assert_eq!(watch.with(|watched| watched.rewritten.clone()), [0u64; 0]);
    drop((reader, dbs));
    let wanted = THREADS * COMMITS + COMMITS / 4;
    let db = open(&path);
    let found = sql(&db, "SELECT count(*) FROM t WHERE x = 'more'");
    assert_eq!(found, (wanted + 1).to_string());
}
