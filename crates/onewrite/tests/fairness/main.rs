//! Many writers in strict group commit: none waits long, and none is refused. Waits are counted in
//! flushes, not measured. Each flush takes its time, as on a slow device.

#[path = "../process/children.rs"]
mod children;
#[path = "../common/rows.rs"]
mod rows;

use onewrite::storage::Durability;
use onewrite::storage::observer::{Call, Observer, observe};
use onewrite_common::files::companion;
use rusqlite::{Connection, OpenFlags};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Barrier, Once};
use std::time::Duration;
use std::{io, thread};

/// The modes that share flushes by default.
const MODES: [&str; 2] = ["onewrite", "direct"];
const WRITERS: usize = 32;
const PROCESSES: usize = 8;
/// Commits of a test, in all.
const COMMITS: usize = 10_000;
/// SQLite's default, in frames.
const CHECKPOINT: usize = 1_000;
/// A commit waits for at most so many flushes.
const MOST_FLUSHES: u32 = 20;
/// Where `-onewrite-shm` counts the flushes for a group.
const FLUSHES_AT: u64 = 56;

/// A device with slow flushes. A write-through write flushes, too.
struct SlowFlushes;

/// A busy machine may keep a thread from its processor for longer than a flush of a fast device takes.
const FLUSH: Duration = Duration::from_millis(30);
/// The flush of a database whose name begins with this takes as long as a network's.
const SLOW: &str = "slow";
const SLOW_FLUSH: Duration = Duration::from_millis(1_000);
/// More than that. A busy machine may still keep the one that holds the write lock from its processor for
/// longer, see [`Seen::passed`].
const TIMEOUT_ABOVE: Duration = Duration::from_millis(1_250);
/// Commits with slow flushes, in all.
const SLOW_COMMITS: usize = 320;

impl Observer for SlowFlushes {
    fn before(&self, path: &Path, call: &Call<'_>) -> io::Result<()> {
        let flushes = match call {
            Call::Flush => true,
            Call::Write { durability, .. } => *durability == Durability::WriteThrough,
            _ => false,
        };
        let name = path.file_name().map(|name| name.to_string_lossy());
        let is_slow = name.is_some_and(|name| name.starts_with(SLOW));
        match (flushes, is_slow) {
            (true, true) => thread::sleep(SLOW_FLUSH),
            (true, false) => thread::sleep(FLUSH),
            _ => {}
        }
        Ok(())
    }
}

fn open(path: &Path, timeout: Duration) -> Connection {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        assert!(observe(Box::new(SlowFlushes)), "the only hook");
        onewrite::register().expect("the VFS onewrite");
    });
    let db = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), onewrite::VFS_NAME)
        .expect("a connection");
    db.busy_timeout(timeout).expect("a timeout");
    db
}

fn sql(db: &Connection, statement: &str) -> String {
    rows::query(db, statement).unwrap_or_else(|e| panic!("{statement}: {e}"))
}

fn made(path: &Path, mode: &str) -> Connection {
    let db = open(path, Duration::from_secs(60));
    assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
    sql(&db, "CREATE TABLE t(writer INTEGER, n INTEGER, x TEXT)");
    db
}

/// Counts flushes for a group, by all processes.
struct Flushes(File);

impl Flushes {
    fn of(path: &Path) -> Self {
        let page = companion(&companion(path, "-onewrite"), "-shm");
        Self(File::open(page).expect("the page that processes share"))
    }

    fn now(&self) -> u32 {
        let mut word = [0; 4];
        self.0.read_exact_at(&mut word, FLUSHES_AT).expect("a word");
        u32::from_ne_bytes(word)
    }
}

/// Counts the commits of all processes that have returned: one byte each.
struct Commits(File);

impl Commits {
    fn of(path: &Path) -> Self {
        let mut options = File::options();
        let file = options.append(true).create(true);
        Self(file.open(companion(path, "-commits")).expect("a file"))
    }

    fn now(&self) -> u64 {
        self.0.metadata().expect("its size").len()
    }

    fn add(&mut self) {
        self.0.write_all(&[0]).expect("a byte");
    }
}

/// The longest wait of a process's writers, and how often they were refused.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// The most flushes from the begin of a transaction to the return of its COMMIT.
    longest: u32,
    /// How often SQLite said that the database is locked.
    busy: u32,
    /// How often it said so after a wait in which another commit had returned. So it is not that one
    /// commit has held the write lock all the time, with one flush and without a processor.
    passed: u32,
}

impl Seen {
    fn and(self, other: Self) -> Self {
        Self {
            longest: self.longest.max(other.longest),
            busy: self.busy + other.busy,
            passed: self.passed + other.passed,
        }
    }
}

/// Waits for the others when it is dropped. So a writer that fails before keeps nobody waiting.
struct Ready<'a>(&'a Barrier);

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        self.0.wait();
    }
}

/// One writer's commits, half of them by a transaction of its own.
fn write(path: &Path, timeout: Duration, commits: usize, begin: &Barrier) -> Seen {
    let ready = Ready(begin);
    let db = open(path, timeout);
    let (flushes, mut returned) = (Flushes::of(path), Commits::of(path));
    // With few commits the log is to restart as well.
    sql(
        &db,
        &format!(
            "PRAGMA wal_autocheckpoint={}",
            CHECKPOINT.min(commits * WRITERS / 4)
        ),
    );
    sql(&db, "SELECT count(*) FROM t");
    drop(ready);
    let mut seen = Seen::default();
    for n in 0..commits {
        let insert = format!("INSERT INTO t VALUES(1,{n},'x')");
        let transaction = match n % 2 {
            0 => insert,
            _ => format!("BEGIN IMMEDIATE; {insert}; COMMIT"),
        };
        let before = flushes.now();
        loop {
            let others = returned.now();
            match db.execute_batch(&transaction) {
                Ok(()) => break returned.add(),
                Err(e) if e.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {
                    seen.busy += 1;
                    seen.passed += u32::from(returned.now() > others);
                    if !db.is_autocommit() {
                        db.execute_batch("ROLLBACK").expect("no transaction");
                    }
                }
                Err(e) => panic!("{e}"),
            }
        }
        seen.longest = seen.longest.max(flushes.now().wrapping_sub(before));
    }
    seen
}

fn threads(path: &Path, count: usize, timeout: Duration, commits: usize) -> Seen {
    let begin = Barrier::new(count);
    thread::scope(|scope| {
        let start = |_| scope.spawn(|| write(path, timeout, commits, &begin));
        let writers: Vec<_> = (0..count).map(start).collect();
        let seen = writers.into_iter().map(|it| it.join().expect("no panic"));
        seen.fold(Seen::default(), Seen::and)
    })
}

const TIMEOUT: &str = "ONEWRITE_FAIRNESS_TIMEOUT";
const EACH: &str = "ONEWRITE_FAIRNESS_COMMITS";

fn processes(path: &Path, timeout: Duration, commits: usize) -> Seen {
    let child = |_| {
        let mut child = children::child(&children::this_program(), "writes", path);
        child
            .env(TIMEOUT, timeout.as_millis().to_string())
            .env(EACH, commits.to_string());
        thread::spawn(move || children::printed(&mut child))
    };
    let children: Vec<_> = (0..PROCESSES).map(child).collect();
    let told = |text: String| {
        let line = text.lines().find(|line| line.contains(" flushes at most"));
        let words: Vec<u32> = line
            .unwrap_or_else(|| panic!("{text}"))
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        Seen {
            longest: words[0],
            busy: words[1],
            passed: words[2],
        }
    };
    let seen = children
        .into_iter()
        .map(|child| told(child.join().expect("no panic")));
    seen.fold(Seen::default(), Seen::and)
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn writes() {
    let number = |name: &str| -> u64 {
        let text = std::env::var(name).expect("a number");
        text.parse().expect("a number")
    };
    let path = std::env::var(children::DATABASE).expect("a database");
    let timeout = Duration::from_millis(number(TIMEOUT));
    let commits = usize::try_from(number(EACH)).expect("a number");
    let seen = threads(Path::new(&path), WRITERS / PROCESSES, timeout, commits);
    println!(
        "\n{} flushes at most, {} refused, {} passed",
        seen.longest, seen.busy, seen.passed
    );
}

/// Makes so many commits with each of the writers; a busy timeout.
type Work = fn(&Path, Duration, usize) -> Seen;

fn seen_by(work: Work, mode: &str, name: &str, timeout: Duration, commits: usize) -> Seen {
    let directory = match name {
        // A timeout is above a flush only if that takes no longer. On a disk where others write much it may take
        // seconds.
        SLOW => tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()),
        _ => tempfile::tempdir(),
    };
    let directory = directory.expect("a directory");
    let path = directory.path().join(name);
    let db = made(&path, mode);
    let flushes = Flushes::of(&path);
    let before = flushes.now();
    let seen = work(&path, timeout, commits / WRITERS);
    println!(
        "{mode}: {} flushes at most of {}, {} refused, {} passed",
        seen.longest,
        flushes.now().wrapping_sub(before),
        seen.busy,
        seen.passed
    );
    let count = (commits / WRITERS * WRITERS).to_string();
    assert_eq!(sql(&db, "SELECT count(*) FROM t"), count);
    seen
}

fn among_threads(path: &Path, timeout: Duration, commits: usize) -> Seen {
    threads(path, WRITERS, timeout, commits)
}

fn waits_for_few_flushes(work: Work, mode: &str) {
    let seen = seen_by(work, mode, "db", Duration::from_secs(60), COMMITS);
    assert!(seen.longest <= MOST_FLUSHES, "{} flushes", seen.longest);
    assert_eq!(seen.busy, 0);
}

fn is_never_refused(work: Work) {
    for mode in MODES {
        let seen = seen_by(work, mode, SLOW, TIMEOUT_ABOVE, SLOW_COMMITS);
        assert_eq!(seen.passed, 0, "{mode}");
    }
}

#[test]
fn no_thread_waits_for_many_flushes() {
    waits_for_few_flushes(among_threads, "onewrite");
}

#[test]
fn in_direct_no_thread_waits_for_many_flushes() {
    waits_for_few_flushes(among_threads, "direct");
}

#[test]
fn no_process_waits_for_many_flushes() {
    waits_for_few_flushes(processes, "onewrite");
}

#[test]
fn in_direct_no_process_waits_for_many_flushes() {
    waits_for_few_flushes(processes, "direct");
}

#[test]
fn no_thread_is_refused_with_a_timeout_above_a_flush() {
    is_never_refused(among_threads);
}

#[test]
fn no_process_is_refused_with_a_timeout_above_a_flush() {
    is_never_refused(processes);
}
