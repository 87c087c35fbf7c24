//! Commits that share a block of the log, and a writer that is killed or stopped at each step of one.
//! Other processes go on, no commit that returned is lost, and every wait ends. Rules J21 to J27 and
//! N10 of `docs/durability.md`.
//!
//! On x86-64, because other processors cannot go through their atomic operations by single
//! instructions.
#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

mod steps;
mod worker;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use onewrite::storage::{
    Access, Create, DirectIo, LockByte, LockKind, LogFile, NewFile, lock_path,
};
use onewrite_common::files::companion;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use steps::{Files, Step, Traced, Word};
use tempfile::TempDir;
use worker::Worker;

/// The tests trace their children, and wait for them: one at a time.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// A database, and the rows that must be there.
struct Scene {
    directory: TempDir,
    /// Numbers of acknowledged commits, and of published ones.
    rows: BTreeSet<u32>,
    next: u32,
}

fn connect(path: &Path) -> Worker {
    let mut worker = Worker::with(path);
    worker.ask("PRAGMA busy_timeout=60000");
    worker.ask("PRAGMA synchronous=FULL");
    worker.ask("PRAGMA wal_autocheckpoint=0");
    worker
}

fn rows_of(worker: &mut Worker) -> BTreeSet<u32> {
    let rows = worker.ask("SELECT x FROM t");
    let rows = rows.split_whitespace().map(|row| row.parse());
    rows.map(|row| row.expect("a number")).collect()
}

impl Scene {
    fn path(&self) -> PathBuf {
        self.directory.path().join("db")
    }

    fn insert(&mut self) -> (u32, String) {
        self.next += 1;
        (self.next, format!("INSERT INTO t VALUES({})", self.next))
    }

    /// A commit that returns.
    fn commit(&mut self, worker: &mut Worker) {
        let (row, statement) = self.insert();
        worker.ask(&statement);
        self.rows.insert(row);
    }

    /// Connections whose next commits are put off.
    fn with_workers<const N: usize>(page_bytes: u32) -> (Scene, [Worker; N]) {
        let mut scene = Scene {
            directory: tempfile::tempdir().expect("a directory"),
            rows: BTreeSet::new(),
            next: 0,
        };
        let mut maker = connect(&scene.path());
        maker.ask(&format!("PRAGMA page_size={page_bytes}"));
        assert_eq!(maker.ask("PRAGMA journal_mode=onewrite"), "onewrite");
        maker.ask("CREATE TABLE t(x)");
        maker.ask("CREATE TABLE large(x)");
        let mut workers = [(); N].map(|()| connect(&scene.path()));
        for worker in &mut workers {
            // It is not known before its first commit that it will be synced.
            scene.commit(worker);
        }
        maker.kill();
        (scene, workers)
    }

    /// A commit that is published, of a process that dies before the flush: its block stays open.
    fn leave_open(&mut self, mut writer: Worker, files: &Files) {
        let (row, statement) = self.insert();
        let traced = Traced::attach(writer.thread, writer.process(), files);
        writer.order(&statement);
        traced.reach(Step::Published);
        traced.kill();
        writer.kill();
        assert_eq!(files.word(), Word::Open);
        // It never returned, but others read it, or commit behind it.
        self.rows.insert(row);
    }

    /// What a new process reads, while others live and after all have died.
    fn check(&mut self, mut others: Vec<Worker>, may_be: Option<u32>) {
        let path = self.path();
        for other in &mut others {
            self.commit(other);
        }
        let late = &mut Worker::with(&path);
        let found = rows_of(late);
        let missing: Vec<_> = self.rows.difference(&found).collect();
        assert!(missing.is_empty(), "{missing:?} of {found:?}");
        let more: Vec<_> = found.difference(&self.rows).copied().collect();
        assert!(more.iter().all(|row| Some(*row) == may_be), "{more:?}");
        others.into_iter().for_each(Worker::kill);
        let copy = self.directory.path().join("copy");
        for suffix in ["", "-onewrite"] {
            std::fs::copy(companion(&path, suffix), companion(&copy, suffix)).expect("a copy");
        }
        // The copy has no wal-index, so this recovers.
        let recovered = &mut Worker::with(&copy);
        assert_eq!(rows_of(recovered), found, "recovered");
        assert_eq!(recovered.ask("PRAGMA integrity_check"), "ok");
    }
}

/// A writer at a step of its commit, behind one that waits for a flush.
struct At {
    scene: Scene,
    other: Worker,
    writer: Worker,
    row: u32,
    files: Files,
}

impl At {
    /// Calls `then` while the writer stands there.
    fn step(step: Step, page_bytes: u32, then: impl FnOnce(Traced<'_>)) -> At {
        let (mut scene, [other, dies, mut writer]) = Scene::with_workers(page_bytes);
        let files = Files::of(&scene.path());
        scene.leave_open(dies, &files);
        let (row, statement) = scene.insert();
        let traced = Traced::attach(writer.thread, writer.process(), &files);
        writer.order(&statement);
        traced.reach(step);
        let word = match step {
            Step::Writes | Step::HalfWritten | Step::Written => Word::Held,
            Step::Opened | Step::HalfPublished | Step::Published => Word::Open,
            Step::Flushes | Step::Flushed => Word::Closed,
        };
        assert_eq!(files.word(), word, "{step:?}");
        then(traced);
        At {
            scene,
            other,
            writer,
            row,
            files,
        }
    }
}

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn a_writer_is_killed_at_each_step_of_a_commit_that_shares_a_block() {
    let _alone = alone();
    for step in steps::ALL {
        println!("{step:?}");
        let At {
            mut scene,
            other,
            writer,
            row,
            ..
        } = At::step(step, 4096, |traced| traced.kill());
        writer.kill();
        if step >= Step::Published {
            scene.rows.insert(row);
        }
        let may_be = (step == Step::HalfPublished).then_some(row);
        scene.check(vec![other], may_be);
    }
}

/// Others read meanwhile, and so make durable what is in its block.
#[test]
fn a_writer_is_stopped_at_each_step_of_a_commit_that_shares_a_block() {
    let _alone = alone();
    for (dies, page_bytes) in [(false, 512), (true, 65536)] {
        for step in steps::ALL {
            println!("{step:?}, and {}", if dies { "dies" } else { "goes on" });
            let mut at = At::step(step, page_bytes, |traced| traced.stop());
            if step != Step::HalfPublished {
                // Its own commit is not visible before it is published.
                let mut seen = at.scene.rows.clone();
                seen.extend((step >= Step::Published).then_some(at.row));
                assert_eq!(rows_of(&mut at.other), seen);
                assert_eq!(at.files.word(), Word::Closed, "a flush has begun");
            }
            if step <= Step::Published {
                at.other.ask("PRAGMA busy_timeout=50");
                let refused = at.other.try_ask("INSERT INTO t VALUES(0)");
                assert!(refused.starts_with("ERROR"), "{refused}");
                at.other.ask("PRAGMA busy_timeout=60000");
            }
            let process = Pid::from_raw(at.writer.process());
            let mut others = vec![at.other];
            if dies {
                at.writer.kill();
                if step >= Step::Published {
                    at.scene.rows.insert(at.row);
                }
            } else {
                kill(process, Signal::SIGCONT).expect("goes on");
                assert_eq!(at.writer.answer(), "");
                at.scene.rows.insert(at.row);
                others.push(at.writer);
            }
            let may_be = (step == Step::HalfPublished).then_some(at.row);
            at.scene.check(others, may_be);
        }
    }
}

/// A connection of a process that cannot map the shared words.
fn connect_without_words(path: &Path) -> Worker {
    let [words, apart] = ["-onewrite-shm", "-apart"].map(|suffix| companion(path, suffix));
    std::fs::rename(&words, &apart).expect("out of the way");
    std::fs::create_dir(&words).expect("in its place");
    let mut worker = connect(path);
    rows_of(&mut worker);
    std::fs::remove_dir(&words).expect("removed");
    std::fs::rename(&apart, &words).expect("back again");
    worker
}

/// It begins with the next block, and cannot tell the others.
#[test]
fn what_a_process_without_the_shared_words_rolls_back_hides_no_later_commit() {
    let _alone = alone();
    let (mut scene, [other, dies, mut writer]) = Scene::with_workers(4096);
    let files = Files::of(&scene.path());
    let mut without = connect_without_words(&scene.path());
    scene.leave_open(dies, &files);
    without.ask("PRAGMA cache_size=10");
    without.ask("BEGIN");
    without.ask("INSERT INTO t VALUES(randomblob(2000000))");
    without.ask("ROLLBACK");
    scene.commit(&mut writer);
    scene.check(vec![other, writer, without], None);
}

/// Where the last written block of the log ends.
fn used(log: &Path) -> usize {
    let bytes = std::fs::read(log).expect("the log");
    let last = bytes.iter().rposition(|byte| *byte != 0);
    last.expect("a header") + 1
}

/// A leader waits for a writer that holds a block. If that one waited for room, all would.
#[test]
fn a_writer_that_needs_room_holds_no_block() {
    let _alone = alone();
    let (mut scene, [mut fills, dies, mut writer]) = Scene::with_workers(4096);
    let files = Files::of(&scene.path());
    let log = companion(&scene.path(), "-onewrite");
    let extends = Extends::beginning(&log);
    let bytes = std::fs::metadata(&log).expect("the log").len() as usize;
    while used(&log) + 200_000 < bytes {
        fills.ask("INSERT INTO large VALUES(randomblob(50000))");
    }
    scene.leave_open(dies, &files);
    writer.ask("PRAGMA busy_timeout=50");
    let traced = Traced::attach(writer.thread, writer.process(), &files);
    writer.order("INSERT INTO large VALUES(randomblob(230000))");
    traced.release_at_answer();
    let refused = writer.answer();
    assert!(refused.starts_with("ERROR"), "{refused}");
    drop(extends);
    writer.ask("PRAGMA busy_timeout=60000");
    writer.ask("INSERT INTO large VALUES(randomblob(230000))");
    scene.check(vec![fills, writer], None);
}

/// Another process that changes the log's size, and does not end.
struct Extends(LogFile);

impl Extends {
    fn beginning(log: &Path) -> Extends {
        let new = NewFile {
            mode: 0o600,
            owner: None,
        };
        let file = LogFile::open(log, Create::Never, Access::ReadWrite, DirectIo::Never);
        let mut file = file.expect("the log");
        let locks = lock_path(log);
        file.lock_in_own_file(locks, new, false).expect("its locks");
        let locked = file.try_lock(LockByte::Extension, LockKind::Exclusive);
        assert!(locked.expect("an answer"));
        Extends(file)
    }
}

impl Drop for Extends {
    fn drop(&mut self) {
        let unlocked = self.0.unlock(LockByte::Extension);
        assert!(unlocked.is_ok() || std::thread::panicking());
    }
}
